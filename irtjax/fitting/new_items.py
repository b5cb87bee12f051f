r"""New items on the scale of a fit, whose items and abilities stay as they are.

Each new item has its own marginal likelihood, given what is known of the subjects from
other items,

.. math:: L_j = \prod_i \int P_j(y_{ij} \mid \theta) N(\theta; m_i, s_i^2) d\theta,

with the ability m_i of a subject and its error s_i given the scale (fixed-parameter
calibration: Kim 2006, Journal of Educational Measurement 43). It is maximised, with the
item priors of the model, by EM on nodes for all items at once. Abilities as if they
were known would flatten the slopes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.score import score
from irtjax.calibration.score_curve import errors_given_scale
from irtjax.calibration.tables import floats
from irtjax.data.arrays import places_of
from irtjax.data.coding import coded_as
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.likelihood.item_steps import improve_items
from irtjax.models.model import Model
from irtjax.numerics.precision import full_precision

if TYPE_CHECKING:
    import pyarrow as pa

#: Nodes to the narrowest posterior's standard deviation, and nodes at the most.
NODES_A_DEVIATION, MOST_NODES = 1.5, 401
#: Iterations of EM, and the move of a coordinate that ends them, in standard errors.
MOST_ITERATIONS, TOLERANCE = 200, 1e-3
#: Responses from which an item is calibrated.
FEWEST = 10
#: Cells of a block of items.
BLOCK_CELLS = 2**24


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class NewItems(HasTable):
    """New items on the scale of a fit.

    Attributes:
        table: A row for each new item: `item`, its parameters with standard errors,
            `difficulty` with its error where items have one, `accuracy`, `observed`.
        warnings: Items that were left out, and what is doubtful.
    """

    title = "New items"

    table: pa.Table
    warnings: tuple[str, ...] = ()


class _Counts(NamedTuple):
    """Expected counts of new items at the nodes; see `likelihood.counts.Counts`."""

    base: Float[Array, "nodes items"]
    statistics: tuple[Array, ...]


@full_precision
def calibrate_items(fit: Calibration, data: ResponseTable | Any) -> NewItems:
    """Calibrates items that a fit does not have, on its scale.

    Args:
        fit: A calibration of one ability of right and wrong responses or of categories.
        data: Responses to new items. Subjects are those of the fit by their names, or
            have responses to items of the fit too, from which they are scored.

    Returns:
        Parameters of the new items with standard errors, which count the errors of
        abilities but not those of the old items.

    Raises:
        ValueError: There are no new items, nothing is known of the subjects, or the
            model has several abilities, groups, lengths or scores.

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> old, new = np.arange(140), np.arange(140, 150)
    >>> fit = irtjax.fit(table.select(items=old), "2pl", method="em")
    >>> calibrate_items(fit, table.select(items=new)).table.num_rows
    10
    """
    import pyarrow as pa

    _check(fit)
    if not isinstance(data, ResponseTable):
        from irtjax.data import read

        data = read(data)
    table = coded_as(fit.options, data)
    if table.trials is not None:
        raise ValueError("new items need one response a cell: read with trials='first'")
    ability, error = _abilities(fit, table)
    present = np.isfinite(ability)
    fresh = places_of(fit.item_names, table.items) < 0
    table = table.select(subjects=present, items=fresh)
    enough = table.num_answered(0) >= FEWEST
    seen = True if table.observed is None else table.observed
    least = np.where(seen, table.values, np.inf).min(axis=0, initial=np.inf)
    most = np.where(seen, table.values, -np.inf).max(axis=0, initial=-np.inf)
    varied = (least < most) & enough
    warnings = []
    if not varied.all():
        left = table.items[~varied].tolist()
        names = ", ".join(map(repr, left[:3])) + ", ..." * (len(left) > 3)
        warnings.append(
            f"{counted(len(left), 'item')} with fewer than {FEWEST} responses, or all"
            f" the same: left out ({names})"
        )
        table = table.select(items=varied)
    if not table.num_items:
        raise ValueError(
            f"no new item has {FEWEST} responses of known subjects that differ"
        )
    if not present.all():
        warnings.append(
            f"{counted(int((~present).sum()), 'subject')} left out: not of the fit, and"
            " without a response to its items"
        )
    coordinates, covariance = _estimates(
        fit.model, table, ability[present], error[present]
    )
    columns = _columns(fit.model, coordinates, covariance)
    seen = table.num_answered(0)
    return NewItems(
        pa.table(
            {
                "item": table.items.tolist(),
                **columns,
                "accuracy": table.item_accuracy(),
                "observed": seen,
            }
        ),
        tuple(warnings),
    )


def _check(fit: Calibration) -> None:
    """Refuses fits whose items are not those of one ability and of categories."""
    model = fit.model
    if model.several or fit.num_groups > 1:
        raise ValueError(
            "new items are calibrated on the scale of one ability, and the fit has"
            " several: fit one with one, such as 2pl"
        )
    if not model.family.num_categories or model.has_lengths:
        raise ValueError(
            f"new items are of right and wrong responses or categories, and a"
            f" {model.name} model has others"
        )
    if model.scale == "standard" and not model.family.has_slope:
        raise ValueError(
            f"items of a {model.name} model share a slope, which new ones lack: fit"
            " rasch or 2pl"
        )
    if model.family.common_columns:
        raise ValueError(
            f"items of a {model.name} model share parameters: fit one without, such as"
            " 2pl"
        )


def _abilities(fit: Calibration, table: ResponseTable) -> tuple[np.ndarray, np.ndarray]:
    """Abilities and errors given the scale of the table's subjects; NaN if unknown."""
    size = table.num_subjects
    ability, error = np.full((2, size), np.nan)
    old = places_of(fit.item_names, table.items) >= 0
    if old.all():
        raise ValueError("all items are of the fit: there is none to calibrate")
    if old.any():
        part = table.select(items=old)
        some = part.num_answered(1) > 0
        if some.any():
            scored = score(fit, part.select(subjects=some))
            ability[some] = floats(scored.table, "ability")[0]
            error[some] = np.asarray(scored.own_error, float)
    place = places_of(fit.subject_names, table.subjects)
    rest = np.isnan(ability) & (place >= 0)
    if rest.any():
        own = floats(fit.abilities.table, "ability")[0], errors_given_scale(fit)
        ability[rest], error[rest] = (x[place[rest]] for x in own)
    if not np.isfinite(ability).any():
        raise ValueError(
            "no subject is of the fit or has responses to its items: give some"
        )
    return ability, error


def _estimates(
    model: Model, table: ResponseTable, ability: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of all items and their covariances, block by block."""
    least = max(float(error.min()), 1e-3)
    low, high = float((ability - 5 * error).min()), float((ability + 5 * error).max())
    wanted = int(np.ceil((high - low) / least * NODES_A_DEVIATION)) + 1
    nodes = np.linspace(low, high, min(max(wanted, 31), MOST_NODES))
    spread = np.maximum(error, (nodes[1] - nodes[0]) / NODES_A_DEVIATION)
    exponent = -0.5 * ((nodes - ability[:, None]) / spread[:, None]) ** 2
    weights = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    seen = np.ones(table.values.shape, bool)
    seen = seen if table.observed is None else table.observed
    width = min(max(1, BLOCK_CELLS // table.num_subjects), table.num_items)
    parts = []
    for start in range(0, table.num_items, width):
        # The last block is moved back, so that all have one shape.
        begin = min(start, table.num_items - width)
        block = slice(begin, begin + width)
        arrays = nodes, weights, table.values[:, block], seen[:, block]
        estimates = item_posteriors(model, *(jnp.asarray(x) for x in arrays))
        parts.append([np.asarray(x)[start - begin :] for x in estimates])
    coordinates, covariance = (np.concatenate(x) for x in zip(*parts, strict=True))
    return coordinates, covariance


@eqx.filter_jit
def item_posteriors(
    model: Model, nodes: Array, weights: Array, values: Array, seen: Array
) -> tuple[Array, Array]:
    """Coordinates with the highest posterior `[items, columns]`, and their covariances.

    Of the responses `values` `[subjects, items]` that are `seen`, given the `weights`
    `[subjects, nodes]` of each subject's ability at the nodes.

    A pass is two products with the responses of each category: the chances of the
    responses, W P_c, and the expected numbers of subjects at the nodes, P_c W' (1 / m).
    """
    dtype = weights.dtype
    nodes, mask = jnp.asarray(nodes, dtype), seen.astype(dtype)
    family = model.family
    codes = family.category_codes or (0, 1)
    cells = [(values == code).astype(dtype) * mask for code in codes]
    count = jnp.sum(mask, axis=0) + 0.2
    statistics = family.statistics(jnp.where(seen, values, 0))
    usual = [jnp.sum(s * mask) / jnp.sum(mask) for s in statistics]
    means = tuple(
        (jnp.sum(s * mask, axis=0) + 0.2 * mean) / count
        for s, mean in zip(statistics, usual, strict=True)
    )
    first = model.unconstrain(family.start(means, jnp.ones_like(count)))
    frame = jnp.zeros(2, dtype)
    free = jnp.ones(first.shape, bool)
    of_codes = jnp.asarray(codes, dtype)[:, None]
    by_code = family.statistics(of_codes)

    def chances(coordinates: Array) -> Array:
        """Probabilities `[categories, nodes, items]`."""

        def at(row, node):
            return jnp.exp(family.category_log_probs(family.constrain(row), node))

        over = jax.vmap(jax.vmap(at, in_axes=(0, None)), in_axes=(None, 0))
        return jnp.moveaxis(over(coordinates, nodes), 2, 0)

    def step(state):
        coordinates, _, steps = state
        sums = []
        for chance, cell in zip(chances(coordinates), cells, strict=True):
            mean = jnp.maximum(weights @ chance, 1e-30)
            sums.append(chance * (weights.T @ (cell / mean)))
        counts = jnp.stack(sums)
        base = jnp.sum(counts, axis=0)
        raised = tuple(jnp.tensordot(s[:, 0], counts, 1) for s in by_code)
        update = improve_items(
            model, coordinates, free, nodes, _Counts(base, raised), frame, 1
        )
        move = jnp.abs(update.coordinates - coordinates) * jnp.sqrt(update.curvature)
        # Items without a response may have neither information nor a prior.
        move = jnp.where(jnp.any(seen, axis=0)[:, None], move, 0)
        return update.coordinates, jnp.max(move), steps + 1

    def going(state):
        return (state[1] > TOLERANCE) & (state[2] < MOST_ITERATIONS)

    state = first, jnp.full((), jnp.inf, dtype), 0
    coordinates, _, _ = lax.while_loop(going, step, state)
    return coordinates, _covariance(model, chances, coordinates, weights, mask, frame)


def _covariance(model, chances, coordinates, weights, mask, frame) -> Array:
    """Inverse of the expected information of the responses that were given."""
    columns = coordinates.shape[1]
    means = [jnp.maximum(weights @ chance, 1e-30) for chance in chances(coordinates)]
    slopes = []
    for column in range(columns):
        along = jnp.zeros_like(coordinates).at[:, column].set(1)
        change = jax.jvp(chances, (coordinates,), (along,))[1]
        slopes.append([weights @ part for part in change])
    information = jnp.stack(
        [
            jnp.stack(
                [
                    sum(
                        jnp.sum(mask * one * other / mean, axis=0)
                        for one, other, mean in zip(left, right, means, strict=True)
                    )
                    for right in slopes
                ],
                axis=-1,
            )
            for left in slopes
        ],
        axis=-2,
    )
    bend = jax.vmap(jax.hessian(lambda row: model.log_prior_in(row, frame)))
    information = information - bend(coordinates)
    return jnp.linalg.inv(information)


def _columns(
    model: Model, coordinates: np.ndarray, covariance: np.ndarray
) -> dict[str, np.ndarray]:
    """Parameters with standard errors by the delta method, and difficulties."""
    family = model.family
    errors = lambda slope: jnp.sqrt(
        jnp.einsum("j...a,jab,j...b->j...", slope, covariance, slope)
    )
    rows = jnp.asarray(coordinates)
    records, slopes = (
        jax.vmap(family.constrain)(rows),
        jax.vmap(jax.jacobian(family.constrain))(rows),
    )
    columns: dict[str, np.ndarray] = {}
    for parameter in family.parameters:
        name = parameter.name
        value, error = getattr(records, name), errors(getattr(slopes, name))
        if value.ndim == 1:
            columns |= {name: np.asarray(value), f"{name}_se": np.asarray(error)}
            continue
        for k in range(value.shape[1]):
            columns[f"{name}_{k + 1}"] = np.asarray(value[:, k])
            columns[f"{name}_{k + 1}_se"] = np.asarray(error[:, k])
    if getattr(records, "intercept", rows).ndim == 1:

        def difficulty(row):
            item = family.constrain(row)
            return -item.intercept / item.discrimination

        columns["difficulty"] = np.asarray(jax.vmap(difficulty)(rows))
        slope = errors(jax.vmap(jax.grad(difficulty))(rows))
        columns["difficulty_se"] = np.asarray(slope)
    return columns
