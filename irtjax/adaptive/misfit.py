"""Tests under wrong item parameters: banks whose items differ from the true ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import KeyArray, RandomKey
from irtjax.adaptive.bank import AbstractBank, drawn_errors
from irtjax.adaptive.design import COMPARED, Design, Rules
from irtjax.adaptive.labels import LabelledBank, counts_of, label
from irtjax.adaptive.populations import population_of
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.item_error import factor_item_errors, item_errors
from irtjax.data.arrays import places_of
from irtjax.data.frames import HasTable
from irtjax.data.item_texts import refuse_other_contents
from irtjax.models.family import Items
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
    moves = drawn_errors(blocks, as_key(key), coordinates.dtype)
    drawn = model.constrain(coordinates + size * moves)
    # What a model does not estimate stays as it is.
    estimated = {parameter.name for parameter in model.family.parameters}
    constants = {k: v for k, v in items._asdict().items() if k not in estimated}
    return drawn._replace(**constants)


def true_bank(
    source: Any, bank: LabelledBank, truth: Any, key: KeyArray
) -> AbstractBank:
    """The bank by which simulated subjects respond: see `simulate_tests`, truth."""
    tested: Any = bank.bank
    if isinstance(truth, Calibration):
        return _of_calibration(truth, bank)
    if hasattr(truth, "_fields"):
        return tested.with_items(_as_those_of(tested, truth))
    if not isinstance(truth, str):
        raise ValueError(
            f"truth is of type {type(truth).__name__}: give 'bank', 'draw', a"
            " calibration or an item record"
        )
    if truth == "bank":
        return tested
    if truth != "draw":
        raise ValueError(
            f"truth {truth!r} is neither 'bank', 'draw', a calibration nor an item"
            " record"
        )
    if not isinstance(source, Calibration):
        raise ValueError("truth 'draw' needs a calibration, which has errors of items")
    items = tested.drawn_items(key)
    return tested.with_items(draw_items(source, key) if items is None else items)


def _as_those_of(bank: Any, items: Items) -> Items:
    """An item record with the types of a bank's; refuses another kind or size."""
    reference = bank.items
    if type(items) is not type(reference):
        raise ValueError(
            f"truth: the record is of type {type(items).__name__}, the items of the"
            f" bank of type {type(reference).__name__}"
        )
    for name, values, own in zip(reference._fields, items, reference, strict=True):
        if np.shape(values) != np.shape(own):
            raise ValueError(
                f"truth: {name} has shape {np.shape(values)}, that of the bank's items"
                f" {np.shape(own)}: give a record of these items in their order"
            )
        if np.isnan(np.asarray(values, float)).any():
            raise ValueError(f"truth: {name} has values that are no numbers")
    return jax.tree.map(
        lambda values, own: jnp.asarray(values, own.dtype), items, reference
    )


def _of_calibration(fit: Calibration, bank: LabelledBank) -> AbstractBank:
    """The bank of another calibration, its items in the order of this one."""
    composite = getattr(bank.bank, "composite", None)
    other = label(fit, None, None, None, dict(composite=composite))
    answers: Any = other.bank
    places = places_of(other.names, bank.names)
    if (places < 0).any():
        name = str(bank.names[int(places.argmin())])
        raise ValueError(f"truth: item {name!r} is not in that calibration")
    refuse_other_contents(bank.contents, other.contents, "the fit of the truth")
    kinds = [(type(x.bank), x.bank.num_categories) for x in (bank, other)]
    if kinds[0] != kinds[1]:
        raise ValueError("truth: that calibration is of another kind of model")
    items = jax.tree.map(lambda x: jnp.asarray(x)[places], fit.parameters.items)
    return answers.with_items(items, places)


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
    labelled = label(fit, 4 * num_items, None, None, rules)
    tested: Any = labelled.bank
    if fit.model.has_lengths:
        raise ValueError("misfit_study does not serve models with response lengths")
    answers = tested.with_items(jax.tree.map(jnp.asarray, fit.parameters.items))
    covariance, counts = _covariance_of(fit), counts_of(fit)
    designs = _designs(labelled, num_items, rules)
    other = None if population is None else population_of(tested, population)
    kinds = [design.select for design in designs]
    rows = []
    for size in sizes:
        cells: list[list[np.ndarray]] = [[] for _ in kinds]
        for draw in range(draws):
            # The same subjects and errors for every size and rule.
            seeds = jax.random.split(jax.random.fold_in(key, draw), 3)
            theta = tested.draw_abilities(num_subjects, seeds[2])
            if other is not None:
                theta = simulate_abilities(num_subjects, seeds[2], other, theta.dtype)
            truth = np.asarray(answers.truth(theta), float)
            bank = tested.rebuilt(
                draw_items(fit, seeds[0], size),
                size**2 * covariance if size and covariance is not None else None,
                counts,
                designs[0].repeats,
            )
            for design, cell in zip(designs, cells, strict=True):
                tests = run_tests_jit(
                    bank, design, key=seeds[1], theta=theta, answers=answers
                )
                ratio = _slope_ratio(bank, answers, np.asarray(tests.items))
                error = np.asarray(tests.ability[:, -1], float) - truth
                stated = np.asarray(tests.standard_error[:, -1], float)
                cell.append(np.stack([error, stated, ratio, tests.num_given]))
        for select, cell in zip(kinds, cells, strict=True):
            rows.append({"size": float(size), "select": select, **_summary(cell)})
    return MisfitStudy(pa.Table.from_pylist(rows))


def _designs(labelled: LabelledBank, num_items: int, rules: Rules) -> list[Design]:
    """The tests of a study, and those of random items unless they are."""
    designs = [labelled.design(num_items, **rules)]
    if designs[0].select != "random":
        compared: Any = {k: v for k, v in rules.items() if k in COMPARED}
        designs.append(labelled.design(num_items, **compared, select="random"))
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


def _covariance_of(fit: Calibration) -> np.ndarray | None:
    """`[items, columns, columns]` of the errors of items; None: they are exact."""
    if fit.factor_names:
        return factor_item_errors(fit)
    errors = item_errors(fit)
    return None if errors is None else errors.items


def _slope_ratio(bank: Any, true: Any, positions: np.ndarray) -> np.ndarray:
    """Mean log of the bank's over true discriminations of the items given, by test."""
    sizes = []
    for items in (bank.items, true.items):
        slope = np.asarray(items.discrimination, float)
        slope = slope.reshape(len(slope), -1)
        sizes.append(np.log(np.maximum(np.linalg.norm(slope, axis=1), 1e-12)))
    ratio = (sizes[0] - sizes[1])[positions]
    used = positions >= 0
    return np.sum(np.where(used, ratio, 0), axis=1) / np.maximum(used.sum(axis=1), 1)
