r"""Which items discriminate: a path of lasso penalties on discriminations.

Slopes a_j >= 0 of a logistic 2PL maximise, abilities having a standard deviation of 1,

    sum_ij log p(y_ij) + log priors - sum_j lambda_j a_j,
    lambda_j = z sqrt(sum_i (theta_i - mean_j)^2 p_j (1 - p_j)),

the sums over the subjects who answered item j, p_j its share right. A slope is 0
exactly where the score S_j = sum_i theta_i (y_ij - p_ij) at a_j = 0 is at most lambda_j
(KKT). An item at 0 plays no part in the abilities, so if it does not discriminate its
score has mean 0 and the variance under the root, and is above lambda_j with
probability 1 - Phi(z): z = 0 keeps half of such items, z = 1.645 a share of 5 %.

With K abilities and slopes of any sign (exploratory factor models) all slopes of an
item are 0 together, where the length of its score is at most lambda_j. z is then a
quantile of the length of K standard normal variables, and for abilities of covariance I

    lambda_j = z sqrt(l_j p_j (1 - p_j)),

l_j being the largest eigenvalue of sum_i (theta_i - mean_j)(theta_i - mean_j)' over the
subjects who answered item j. If all did, all eigenvalues are equal and the level is
exact; else such an item is kept less often. z = 0 keeps all items.

Each step of the path starts from the one before, z rising from 0, in one program.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from scipy.special import gammaincc, gammainccinv, ndtr, ndtri

from irtjax._types import Status
from irtjax.data import ResponseTable, read
from irtjax.data.frames import HasTable
from irtjax.data.responses import Responses
from irtjax.data.wording import counted, have
from irtjax.estimators.driver import run
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.families.logistic import Binary
from irtjax.models.model import Model
from irtjax.models.priors import AbstractPrior, Normal
from irtjax.numerics.precision import full_precision
from irtjax.numerics.programs import stored_jit

if TYPE_CHECKING:
    import pyarrow as pa

#: The family of one ability.
_ONE = Binary(slopes="positive")
#: Weak priors centred at 0, which do not move the score of a slope at 0.
PRIORS: dict[str, AbstractPrior] = {
    "discrimination": Normal(0.0, 2.0),
    "intercept": Normal(0.0, 3.0),
}
#: Largest z of the default path: of items that do not discriminate it keeps 3e-5.
HIGHEST = 4.0
#: Steps at each point of the path, and largest KKT residual of a point.
MOST_STEPS, TOLERANCE = 500, 1e-5
#: Fewest items from which abilities should be estimated.
FEW_ITEMS = 20


class _Points(NamedTuple):
    """Arrays with the points of the path in front."""

    slope: Float[Array, "points items"]
    intercept: Float[Array, "points items"]
    theta: Float[Array, "points subjects ..."]
    penalty: Float[Array, "points items"]
    residual: Float[Array, " points"]
    steps: Array
    status: Array


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DiscriminationPath(HasTable):
    """Discriminations at each penalty, and the items that are kept at a level.

    Attributes:
        items: `[items]` names.
        table: A row for each point: z, level (the chance that an item which does not
            discriminate is kept), penalty (the median lambda), kept, zero,
            false_discovery_rate (at most: items times level over kept), residual,
            steps, converged.
        discrimination: `[points, items]` slopes, abilities having mean 0 and standard
            deviation 1; with several, uncorrelated ones, the lengths of the slopes.
        intercept: `[points, items]`.
        ability: `[points, subjects]`, or `[points, subjects, factors]`.
        penalty: `[points, items]` lambda_j.
        level: The level of `selected`.
        selected: `[items]` whether an item is kept at that level.
        notes: What to know about the path.
    """

    title = "Items that discriminate, by penalty"

    items: np.ndarray
    table: pa.Table
    discrimination: np.ndarray
    intercept: np.ndarray
    ability: np.ndarray
    penalty: np.ndarray
    level: float
    selected: np.ndarray
    notes: tuple[str, ...]

    @property
    def item_table(self) -> pa.Table:
        """By item: discrimination without penalty, the largest z that keeps it, kept.

        `largest_z` is 0 for an item that only z = 0 keeps, and null if none does.
        """
        import pyarrow as pa

        z = self.table["z"].to_numpy()
        positive = self.discrimination > 0
        last = np.where(positive, z[:, None], -1.0).max(axis=0)
        return pa.table(
            {
                "item": self.items.tolist(),
                "discrimination": self.discrimination[0],
                "largest_z": pa.array(last, mask=last < 0),
                "kept": self.selected,
            }
        )

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        selected, count = int(self.selected.sum()), len(self.items)
        return (
            f"{selected:,} of {counted(count, 'item')}"
            f" {'discriminates' if selected == 1 else 'discriminate'} at level"
            f" {self.level:g}; {count - selected:,} {have(count - selected)} a"
            " discrimination of 0"
        )


@full_precision
def discrimination_path(
    data: ResponseTable | Any,
    *,
    level: float = 0.05,
    num: int = 30,
    highest: float = HIGHEST,
    factors: int = 1,
) -> DiscriminationPath:
    """Finds items that do not discriminate, by a path of lasso penalties.

    Args:
        data: A `ResponseTable` of right or wrong responses (or counts), or anything
            `irtjax.read` takes.
        level: Chance that an item which does not discriminate is selected.
        num: Number of penalties from 0 to the largest; that of `level` is added.
        highest: z of the largest penalty.
        factors: Number of abilities.

    Returns:
        Discriminations at each penalty, and the items that are kept at `level`.

    Raises:
        ValueError: If responses are not right or wrong, or a setting is out of range.

    >>> rng = np.random.default_rng(0)
    >>> ability, slope = rng.normal(size=(300, 1)), np.repeat([0.0, 1.5], [6, 24])
    >>> right = rng.random((300, 30)) < 1 / (1 + np.exp(-ability * slope))
    >>> path = discrimination_path(ResponseTable.from_arrays(right), num=3)
    >>> path.table.num_rows, bool(path.selected[6:].all())
    (4, True)
    """
    table = data if isinstance(data, ResponseTable) else read(data)
    _check(table, level, num, highest, factors)
    calibrated = float(_quantile(level, factors))
    grid = np.linspace(0, max(highest, calibrated), num)
    z = np.unique(np.append(grid, calibrated))
    dtype = jnp.zeros(()).dtype
    several = factors > 1
    family = factor_model(Factor(factors)).family if several else _ONE
    model = Model("factor" if several else "2pl", family, PRIORS)
    problem = Problem.create(model, table.responses(dtype))
    start = start_values(model, problem.data)
    path = _path(problem, start, jnp.asarray(z, dtype))
    path = jax.tree.map(np.asarray, path)
    flat = table.item_accuracy()
    varies = np.isfinite(flat) & (flat > 0) & (flat < 1)
    place = int(np.flatnonzero(z == calibrated)[0])
    return DiscriminationPath(
        table.items,
        _rows(z, path, factors),
        path.slope,
        path.intercept,
        path.theta,
        path.penalty,
        level,
        path.slope[place] > 0,
        _notes(table, varies, path),
    )


def _quantile(level: float, factors: int) -> Any:
    """Z that an item which does not discriminate exceeds with this probability."""
    if factors == 1:
        return ndtri(1 - level)
    return np.sqrt(2 * gammainccinv(factors / 2, level))


def _level(z: np.ndarray, factors: int) -> np.ndarray:
    """The probability to exceed z."""
    return ndtr(-z) if factors == 1 else gammaincc(factors / 2, z**2 / 2)


def _check(
    table: ResponseTable, level: float, num: int, highest: float, factors: int
) -> None:
    """Refuses responses and options that the path does not serve."""
    if table.kind not in ("binary", "counts"):
        raise ValueError(
            "discrimination_path needs responses that are right or wrong, not"
            f" {table.kind}: choose a 0/1 metric"
        )
    if not 0 < level <= 0.5:
        raise ValueError(f"level {level} is not above 0 and at most 0.5")
    if num < 2 or not highest > 0:
        raise ValueError(
            f"num {num} and highest {highest:g}: give at least 2 penalties, up to a z"
            " above 0"
        )
    most = min(table.num_subjects, table.num_items) - 1
    if not 1 <= factors <= max(most, 1):
        raise ValueError(
            f"{factors} factors of {table.num_subjects} subjects and {table.num_items}"
            f" items: give 1 to {max(most, 1)}"
        )


@stored_jit
def _path(problem: Problem, start: Start, z: Float[Array, " points"]) -> _Points:
    """Every point from the one before."""
    dtype = z.dtype
    tolerance = jnp.asarray(max(TOLERANCE, 300 * float(jnp.finfo(dtype).eps)), dtype)

    def point(carry, z):
        items, theta = carry
        unit = _score_deviation(problem.model, problem.data, theta)
        method = MM(tolerance=tolerance, lasso=z * unit)
        fit = run(problem, method, Start(items, theta), max_steps=MOST_STEPS)
        items, theta = fit.parameters.items, fit.parameters.theta
        assert theta is not None  # The method is a joint one.
        slope = items.discrimination
        at_point = _Points(
            slope if slope.ndim == 1 else jnp.linalg.norm(slope, axis=1),
            items.intercept,
            theta,
            z * unit,
            fit.residual,
            fit.num_steps,
            fit.status,
        )
        return (items, theta), at_point

    cast = lambda x: jnp.asarray(x, dtype)
    first = jax.tree.map(cast, (start.items, start.theta))
    return lax.scan(point, first, z)[1]


def _score_deviation(model: Model, data: Responses, theta: Array) -> Array:
    """Standard deviation of each item's score under no discrimination.

    With several abilities the largest one of a direction.
    """
    rows = theta.reshape(len(theta), -1)
    dims = rows.shape[1]
    outer = (rows[:, :, None] * rows[:, None]).reshape(len(theta), -1)
    powers = jnp.concatenate([jnp.ones_like(rows[:, :1]), rows, outer], axis=1)
    _, values, exposure = data.column_products(powers)
    count, first, second = jnp.split(exposure, [1, 1 + dims], axis=1)
    squares = first[:, :, None] * first[:, None] / jnp.maximum(count, 1)[..., None]
    squares = second.reshape(-1, dims, dims) - squares
    squares = squares[:, 0, 0] if dims == 1 else jnp.linalg.eigvalsh(squares)[:, -1]
    count = count[:, 0]
    share = values[:, 0] / jnp.maximum(count, 1)
    deviation = jnp.sqrt(jnp.maximum(share * (1 - share) * squares, 0))
    # An item without variation has no score: any penalty above 0 leaves it at 0.
    return jnp.where(deviation > 0, deviation, jnp.sqrt(jnp.maximum(count, 1)))


def _rows(z: np.ndarray, points: _Points, factors: int) -> pa.Table:
    """The table of the path, a row for each penalty."""
    import pyarrow as pa

    positive = (points.slope > 0).sum(axis=1)
    chance, count = _level(z, factors), points.slope.shape[1]
    return pa.table(
        {
            "z": z,
            "level": chance,
            "penalty": np.median(points.penalty, axis=1),
            "kept": positive,
            "zero": count - positive,
            "false_discovery_rate": np.minimum(
                count * chance / np.maximum(positive, 1), 1
            ),
            "residual": points.residual,
            "steps": points.steps,
            "converged": points.status == Status.CONVERGED,
        }
    )


def _notes(
    table: ResponseTable, varies: np.ndarray, points: _Points
) -> tuple[str, ...]:
    """Items without variation, points that did not converge, abilities of few items."""
    notes = []
    if not varies.all():
        names = ", ".join(map(str, table.items[~varies][:5]))
        ellipsis = ", ..." if (~varies).sum() > 5 else ""
        notes.append(
            f"{counted(int((~varies).sum()), 'item')} without right and wrong responses"
            f" cannot discriminate: {names}{ellipsis}"
        )
    unfinished = int((points.status != Status.CONVERGED).sum())
    if unfinished:
        notes.append(
            f"{counted(unfinished, 'point')} of the path did not converge (largest"
            f" residual {points.residual.max():.2g}): treat them as provisional"
        )
    fewest = int((points.slope > 0).sum(axis=1).min())
    if fewest < FEW_ITEMS:
        notes.append(
            f"abilities depend on {counted(fewest, 'item')} at the largest penalty:"
            f" below {FEW_ITEMS} the level is approximate"
        )
    return tuple(notes)
