r"""What the responses of one model imply: its ability and expected scores.

Of a model of one ability the expected score on a set of J items is

    S = E[T(theta)],  T(theta) = (1 / J) sum_j E[y_j | theta],
    se(S)^2 = Var[T(theta)] + E[(1 / J^2) sum_j Var(E[y_j | theta, x_j])],

over theta ~ N(ability, se^2) on the scale of the fit, whose location and scale move
items and abilities together. The errors of the items x_j are integrated out of E[y_j]
(`models.predictive`) and add the second sum; without errors items are at their
estimates. Of several abilities the score is that of `inference.vector_scores`. All
items of the fit count, those that were answered and those that were not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.calibration.item_error import item_errors
from irtjax.calibration.score import score
from irtjax.calibration.tables import score_interval
from irtjax.data import ResponseTable
from irtjax.inference.expected import response_table_jit
from irtjax.inference.vector_scores import expected_on_items, score_factors
from irtjax.models.model import response_ends
from irtjax.models.predictive import expected_with_errors, with_errors
from irtjax.numerics.precision import full_precision

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: Gauss-Hermite nodes over the error of the ability, as in `irtjax.predict`.
NODES = 15


@dataclasses.dataclass(frozen=True)
class Number:
    """An estimate with its standard error and interval."""

    value: float
    standard_error: float
    lower: float
    upper: float


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What the responses of one model imply.

    Attributes:
        ability: The ability; of several abilities the expected score on all items.
        score: Expected score on all items of the fit.
        benchmarks: Expected score on the items of each benchmark; empty without any.
        num_items: Number of responses.
        level: Level of the intervals.
        flags: What is wrong with the ability, in words; "" if nothing.
    """

    ability: Number
    score: Number
    benchmarks: dict[str, Number]
    num_items: int
    level: float
    flags: str = ""

    def numbers(self) -> dict[str, float]:
        """Ability and expected score with errors and intervals, by name."""
        numbers = {}
        for name, number in (("ability", self.ability), ("expected_score", self.score)):
            numbers[name] = number.value
            numbers[f"{name}_se"] = number.standard_error
            numbers[f"{name}_lower"] = number.lower
            numbers[f"{name}_upper"] = number.upper
        return {**numbers, "items": float(self.num_items)}


@full_precision
def estimate(
    fit: Calibration, responses: Mapping[str, float], *, level: float | None = None
) -> Estimate:
    """Estimates ability and expected scores of a model from its responses.

    Args:
        fit: A calibration of one ability, or of factors.
        responses: Responses by the names of items; other names are refused.
        level: Level of the intervals; None takes that of the fit.

    Returns:
        The estimate; that of the population without responses.

    Raises:
        ValueError: If an item is unknown or a response does not suit the model.

    >>> import irtjax
    >>> fit = irtjax.fit(irtjax.make_demo().table, "2pl", standard_errors="none")
    >>> names = fit.item_names.tolist()
    >>> good = estimate(fit, dict.fromkeys(names[:20], 1))
    >>> poor = estimate(fit, dict.fromkeys(names[:20], 0))
    >>> good.ability.value > poor.ability.value, good.score.value > poor.score.value
    (True, True)
    """
    place = {name: k for k, name in enumerate(fit.item_names.tolist())}
    unknown = [name for name in responses if name not in place]
    if unknown:
        raise ValueError(f"no item named {unknown[0]!r} in the fit")
    # One row with all items of the fit has the same shape after each response, so that
    # nothing is compiled again.
    values = np.full((1, len(place)), np.nan)
    for name, value in responses.items():
        values[0, place[name]] = value
    table = ResponseTable.from_arrays(values, items=fit.item_names, subjects=["model"])
    scored = score(fit, table, level=level)
    row = scored.table.to_pylist()[0]
    names = ("ability", "ability_se", "lower", "upper")
    ability = Number(*(float(row[name]) for name in names))
    sets: dict[str, np.ndarray] = {"": np.arange(len(place))}
    if fit.benchmarks is not None:
        labels = [str(x) for x in fit.benchmarks]
        sets |= {
            x: np.flatnonzero(np.asarray(labels) == x) for x in dict.fromkeys(labels)
        }
    chosen = list(sets.values())
    if fit.factor_names:
        scores, errors = _factor_scores(fit, table, chosen)
    else:
        assert scored.own_error is not None
        own_error = float(scored.own_error[0])
        scores, errors = _scores(fit, ability.value, own_error, chosen)
    options: dict[str, Any] = {**response_ends(fit.model), "level": scored.level}
    parts = [table.select(items=x) for x in chosen]
    mean = np.array([part.subject_accuracy()[0] for part in parts])
    own = mean, np.array([part.num_observed for part in parts])
    lower, upper = score_interval(scores, errors, **options, own=own)
    columns = (np.asarray(x, float).tolist() for x in (scores, errors, lower, upper))
    rows = (Number(*row) for row in zip(*columns, strict=True))
    by_set = dict(zip(sets, rows, strict=True))
    whole = by_set.pop("")
    return Estimate(ability, whole, by_set, len(responses), scored.level, row["flags"])


def _scores(
    fit: Calibration, ability: float, own_error: float, sets: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Expected scores on sets of items and their errors, of one ability."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    items = jax.tree.map(jnp.asarray, fit.parameters.items)
    theta = jnp.asarray(ability + own_error * nodes, items[0].dtype)
    uncertain = item_errors(fit)
    if uncertain is None or not fit.model.family.num_categories:
        cells = response_table_jit(fit.model.family, items, theta)
        cells = np.stack([cells, np.zeros(cells.shape)])
    else:
        center = fit.parameters.population.mean
        curves, records = with_errors(fit.model, items, uncertain.items, center)
        cells = expected_with_errors(curves.family, records, theta)
    cells = np.asarray(cells, np.float64)
    curves = np.stack([cells[0][:, chosen].mean(1) for chosen in sets], axis=1)
    spread = [cells[1][:, chosen].mean(1) / len(chosen) for chosen in sets]
    mean = weights @ curves
    variance = weights @ ((curves - mean) ** 2 + np.stack(spread, axis=1))
    return mean, np.sqrt(variance)


def _factor_scores(
    fit: Calibration, table: Any, sets: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Expected scores on sets of items and their errors, of several abilities."""
    items = jax.tree.map(jnp.asarray, fit.parameters.items)
    population = jax.tree.map(jnp.asarray, fit.parameters.population)
    data = table.responses(items[0].dtype)
    modes = score_factors(fit.model, items, population, data)
    per_set = []
    for chosen in sets:
        part = jax.tree.map(lambda x, at=chosen: x[at], items)
        per_set.append([float(x[0]) for x in expected_on_items(fit.model, part, modes)])
    scores, errors = np.asarray(per_set, np.float64).T
    return scores, errors
