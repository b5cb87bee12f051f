"""Tests under wrong item parameters: banks whose items differ from the true ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import KeyArray, RandomKey
from irtjax.adaptive.bank import AbstractBank
from irtjax.adaptive.design import COMPARED, Design, Rules
from irtjax.adaptive.factor_bank import FactorBank
from irtjax.adaptive.item_bank import ItemBank
from irtjax.adaptive.labels import LabelledBank, counts_of, label
from irtjax.adaptive.lengths import LengthBank
from irtjax.adaptive.populations import population_of
from irtjax.adaptive.regressed import regressed_items
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.item_error import factor_item_errors, item_errors
from irtjax.data.arrays import places_of
from irtjax.data.frames import HasTable
from irtjax.data.item_texts import refuse_other_contents
from irtjax.models.family import Items
from irtjax.models.model import Population
from irtjax.models.simulate import simulate_abilities
from irtjax.numerics.precision import full_precision
from irtjax.numerics.random_keys import as_key

if TYPE_CHECKING:
    import pyarrow as pa

#: 95 % of a normal distribution lie within so many standard deviations.
NORMAL_95 = 1.959964


@full_precision
def draw_items(fit: Calibration, key: RandomKey, size: float = 1.0) -> Items:
    """Items drawn around those of a calibration, by their errors.

    Args:
        fit: A calibration with standard errors of its items.
        key: A whole number or a JAX key.
        size: Factor of the errors.

    Returns:
        Item records, `[items]`.

    Raises:
        ValueError: If the calibration has no covariance of its items.
    """
    model, items = fit.model, jax.tree.map(jnp.asarray, fit.parameters.items)
    coordinates = model.unconstrain(items)
    # A rotation moves all items together.
    fixed = fit.at_fixed_axes
    covariance = fit.item_covariance if fixed is None else fixed
    if covariance is None:
        raise ValueError(
            "items cannot be drawn: the fit has no errors of items; fit with"
            " standard_errors='observed'"
        )
    if covariance.shape != (*coordinates.shape, coordinates.shape[1]) or (
        model.family.common
    ):
        raise ValueError(f"items of a {model.name} model cannot be drawn one by one")
    # Coordinates that are not identified have no finite variance: they stay.
    blocks = np.nan_to_num(np.asarray(covariance, float), posinf=0, neginf=0)
    values, vectors = np.linalg.eigh(blocks)
    roots = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    noise = jax.random.normal(as_key(key), coordinates.shape, coordinates.dtype)
    moves = jnp.einsum("jpq,jq->jp", jnp.asarray(roots, noise.dtype), noise)
    drawn = model.constrain(coordinates + size * moves)
    # What a model does not estimate stays as it is.
    estimated = {parameter.name for parameter in model.family.parameters}
    kept = {k: v for k, v in items._asdict().items() if k not in estimated}
    return drawn._replace(**kept)


def with_items(bank: Any, items: Items) -> AbstractBank:
    """A bank that draws responses by other items; it scores nothing by them."""
    exact = {"errors": None} if isinstance(bank, ItemBank | FactorBank) else {}
    return dataclasses.replace(bank, items=items, **exact)


def true_bank(
    source: Any, bank: LabelledBank, truth: Any, key: KeyArray
) -> AbstractBank:
    """The bank by which simulated subjects respond: see `simulate_tests`, truth."""
    if isinstance(truth, Calibration):
        return _of_calibration(truth, bank)
    if hasattr(truth, "_fields"):
        return with_items(bank.bank, _as_those_of(bank.bank, truth))
    if not isinstance(truth, str):
        raise ValueError(
            f"truth is of type {type(truth).__name__}: give 'bank', 'draw', a"
            " calibration or an item record"
        )
    if truth == "bank":
        return bank.bank
    if truth != "draw":
        raise ValueError(
            f"truth {truth!r} is neither 'bank', 'draw', a calibration nor an item"
            " record"
        )
    if not isinstance(source, Calibration):
        raise ValueError("truth 'draw' needs a calibration, which has errors of items")
    known = bank.bank
    if isinstance(known, FactorBank) and known.errors is not None:
        return with_items(known, _drawn(known, key))
    return with_items(known, draw_items(source, key))


def _as_those_of(bank: Any, items: Items) -> Items:
    """An item record with the types of a bank's; refuses another kind or size."""
    known = bank.items
    if type(items) is not type(known):
        raise ValueError(
            f"truth: the record is of type {type(items).__name__}, the items of the"
            f" bank of type {type(known).__name__}"
        )
    for name, given, own in zip(known._fields, items, known, strict=True):
        if np.shape(given) != np.shape(own):
            raise ValueError(
                f"truth: {name} has shape {np.shape(given)}, that of the bank's items"
                f" {np.shape(own)}: give a record of these items in their order"
            )
        if np.isnan(np.asarray(given, float)).any():
            raise ValueError(f"truth: {name} has values that are no numbers")
    return jax.tree.map(lambda given, own: jnp.asarray(given, own.dtype), items, known)


def _drawn(bank: FactorBank, key: KeyArray) -> Items:
    """Items drawn by the errors of a bank, which were drawn towards their mean."""
    assert bank.errors is not None
    slopes, intercept = bank.items.discrimination, bank.items.intercept
    values, vectors = np.linalg.eigh(np.asarray(bank.errors.blocks, float))
    roots = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    noise = jax.random.normal(key, values.shape, slopes.dtype)
    moves = jnp.einsum("jpq,jq->jp", jnp.asarray(roots, noise.dtype), noise)
    shift = moves[:, -1].reshape((-1,) + (1,) * (intercept.ndim - 1))
    found = slopes + moves[:, :-1]
    if bank.model.family.parameters[0].bijection.kind == "positive":
        found = jnp.maximum(found, 0)
    return bank.items._replace(discrimination=found, intercept=intercept + shift)


def _of_calibration(fit: Calibration, bank: LabelledBank) -> AbstractBank:
    """The bank of another calibration, its items in the order of this one."""
    composite = getattr(bank.bank, "composite", None)
    other = label(fit, None, None, None, dict(composite=composite))
    places = places_of(other.names, bank.names)
    if (places < 0).any():
        name = str(bank.names[int(places.argmin())])
        raise ValueError(f"truth: item {name!r} is not in that calibration")
    refuse_other_contents(bank.contents, other.contents, "the fit of the truth")
    kinds = [(type(x.bank), x.bank.num_categories) for x in (bank, other)]
    if kinds[0] != kinds[1]:
        raise ValueError("truth: that calibration is of another kind of model")
    known: Any = other.bank
    items = jax.tree.map(jnp.asarray, fit.parameters.items)
    rows: Any = with_items(known, jax.tree.map(lambda x: x[places], items))
    if isinstance(rows, LengthBank) and rows.lengths is not None:
        lengths = jax.tree.map(lambda x: x[places], rows.lengths.items)
        lengths = rows.lengths._replace(items=lengths)
        rows = eqx.tree_at(lambda x: x.lengths, rows, lengths)
    return rows


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MisfitStudy(HasTable):
    """How far tests are off when the bank has errors: see `misfit_study`.

    Attributes:
        table: A row for each size of the errors and rule.
    """

    title = "Tests with a bank that has errors"

    table: pa.Table


@full_precision
def misfit_study(
    fit: Calibration,
    num_subjects: int = 200,
    *,
    key: RandomKey,
    sizes: Sequence[float] = (0.0, 0.5, 1.0, 2.0),
    draws: int = 5,
    num_items: int = 30,
    population: Any = None,
    **rules: Unpack[Rules],
) -> MisfitStudy:
    """How far tests are off when the bank has errors: adaptive and random items.

    The items of the fit are the truth, by which subjects respond. Tests select and
    score by a bank drawn around it, as another calibration of the same size would
    estimate it, with errors of that size, which the curves of the drawn bank count.
    Selection prefers items whose discrimination was drawn too high.

    Args:
        fit: A calibration with standard errors of its items.
        num_subjects: Subjects drawn for each drawn bank.
        key: A whole number or a JAX key.
        sizes: Errors of the items as multiples of those of the calibration.
        draws: Banks drawn for each size.
        num_items: Items of a test, at the most.
        population: The population of the subjects, if it is not that of the bank, as
            for `simulate_tests`: (mean, sd).
        **rules: Those of `adaptive.Rules`. Tests of random items have the same score,
            quota, composite, cost and budget, and no other rule that ends a test.

    Returns:
        A table with a row for each size and rule: `size`, `select`, `num_items` (mean),
        `bias`, `rmse` with its standard error over draws, `standard_error` (root mean
        square of those stated), `coverage` of 95 % intervals, and `slope_ratio`, the
        geometric mean of the bank's over true discriminations of the items given.

    Raises:
        ValueError: If the fit has no errors of items, or models response lengths.

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> fit = irtjax.fit(table, "rasch")  # doctest: +SKIP
    >>> options = dict(key=0, sizes=[1.0], draws=1, num_items=5)
    >>> study = misfit_study(fit, 20, **options)  # doctest: +SKIP
    >>> study.table["select"].to_pylist()  # doctest: +SKIP
    ['information', 'random']
    """
    import pyarrow as pa

    key = as_key(key)
    if draws < 1 or num_subjects < 1:
        raise ValueError("draws and num_subjects: give at least 1 of each")
    # Banks of overestimated slopes need finer nodes: as of tests four times as long.
    known = label(fit, 4 * num_items, None, None, rules)
    if isinstance(known.bank, LengthBank):
        raise ValueError("misfit_study does not serve models with response lengths")
    answers = with_items(known.bank, jax.tree.map(jnp.asarray, fit.parameters.items))
    designs = _designs(known, num_items, rules)
    other = None if population is None else population_of(known.bank, population)
    kinds = [design.select for design in designs]
    times = designs[0].repeats
    rows = []
    for size in sizes:
        found: list[list[np.ndarray]] = [[] for _ in kinds]
        for draw in range(draws):
            # The same subjects and errors for every size and rule.
            seeds = jax.random.split(jax.random.fold_in(key, draw), 3)
            theta = known.bank.draw_abilities(num_subjects, seeds[2])
            if other is not None:
                theta = simulate_abilities(num_subjects, seeds[2], other, theta.dtype)
            truth = np.asarray(answers.truth(theta), float)
            bank = _rebuilt(
                known.bank, fit, draw_items(fit, seeds[0], size), size, times
            )
            for design, cell in zip(designs, found, strict=True):
                options: Any = dict(theta=theta, answers=answers)
                tests = run_tests_jit(bank, design, key=seeds[1], **options)
                ratio = _slope_ratio(bank, answers, np.asarray(tests.items))
                error = np.asarray(tests.ability[:, -1], float) - truth
                stated = np.asarray(tests.standard_error[:, -1], float)
                cell.append(np.stack([error, stated, ratio, tests.num_given]))
        for select, cell in zip(kinds, found, strict=True):
            rows.append({"size": float(size), "select": select, **_summary(cell)})
    return MisfitStudy(pa.Table.from_pylist(rows))


def _designs(known: LabelledBank, num_items: int, rules: Rules) -> list[Design]:
    """The tests of a study, and those of random items unless they are."""
    designs = [known.design(num_items, **rules)]
    if designs[0].select != "random":
        kept: Any = {k: v for k, v in rules.items() if k in COMPARED}
        designs.append(known.design(num_items, **kept, select="random"))
    return designs


def _summary(cell: list[np.ndarray]) -> dict[str, float]:
    """Columns of `misfit_study` from `[4, subjects]` of each draw."""
    error, stated, ratio, count = np.concatenate(cell, axis=1)
    each = [np.sqrt(np.mean(part[0] ** 2)) for part in cell]
    spread = np.std(each, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.nan
    return {
        "num_items": float(count.mean()),
        "bias": float(error.mean()),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "rmse_se": float(spread),
        "standard_error": float(np.sqrt(np.mean(stated**2))),
        "coverage": float(np.mean(np.abs(error) < NORMAL_95 * stated)),
        "slope_ratio": float(np.exp(np.mean(ratio))),
    }


def _rebuilt(
    bank: Any, fit: Calibration, items: Items, size: float, repeats: int
) -> AbstractBank:
    """A bank of drawn items with their errors, the same population and nodes."""
    if isinstance(bank, FactorBank):
        blocks = factor_item_errors(fit)
        options = dict(composite=bank.composite)
        if blocks is not None and size:
            # No prior has drawn these items towards its mean.
            given = bank.model, items, bank.population, size**2 * blocks
            items, options["covariance"] = regressed_items(*given, counts_of(fit), 0)
        return FactorBank.create(bank.model, items, bank.population, **options)
    nodes = (bank.theta - bank.mean) / bank.sd
    histogram = bank.log_prior if bank.histogram else None
    population = Population(bank.mean, bank.sd, histogram)
    errors = item_errors(fit)
    options: dict[str, Any] = dict(nodes=nodes, repeats=repeats)
    if errors is not None and size:
        options["covariance"] = size**2 * errors.items
    return ItemBank.create(bank.model, items, population, **options)


def _slope_ratio(bank: Any, true: Any, given: np.ndarray) -> np.ndarray:
    """Mean log of the bank's over true discriminations of the items given, by test."""
    sizes = []
    for items in (bank.items, true.items):
        slope = np.asarray(items.discrimination, float)
        slope = slope.reshape(len(slope), -1)
        sizes.append(np.log(np.maximum(np.linalg.norm(slope, axis=1), 1e-12)))
    ratio = (sizes[0] - sizes[1])[given]
    used = given >= 0
    return np.sum(np.where(used, ratio, 0), axis=1) / np.maximum(used.sum(axis=1), 1)
