"""Expected responses, observed or not, of a calibration or of a multilevel state."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.parts import Factors
from irtjax.calibration.score import score_new_subjects
from irtjax.calibration.score_curve import errors_given_scale
from irtjax.calibration.tables import floats, number_column
from irtjax.data.frames import HasTable
from irtjax.data.matching import find_names
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.estimators.laplace.components import outer_of
from irtjax.estimators.laplace.item_posterior import Outer
from irtjax.estimators.laplace.items import blocks_of, expected_responses
from irtjax.estimators.laplace.problem import LaplaceState, MultilevelProblem
from irtjax.likelihood.products import expected_categories, expected_cells, outer
from irtjax.numerics.memory import require_memory
from irtjax.numerics.precision import full_precision
from irtjax.numerics.programs import stored_jit
from irtjax.prediction.stacking import is_stacked, stack_of

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.score import ScoredSubjects

#: Gauss-Hermite nodes over the error of an ability. With six items, one of them steep,
#: seven nodes err by 1e-3 and fifteen by less than 2e-4.
ABILITY_NODES = 15
#: Cells of one block of subjects.
BLOCK_CELLS = 2**21


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Predictions(HasTable):
    """Expected responses of subjects to items.

    Attributes:
        subjects: `[subjects]` names.
        items: `[items]` names.
        expected: `[subjects, items]` probabilities of a right response (of a trial),
            expected categories or scores. NaN for a subject without a finite ability.
        standard_error: `[subjects, items]`, from the error of the ability.
        probabilities: `[subjects, items, categories]`, or None.
        categories: The responses that the categories are.
    """

    title = "Expected responses"

    subjects: np.ndarray
    items: np.ndarray
    expected: np.ndarray
    standard_error: np.ndarray
    probabilities: np.ndarray | None = None
    categories: tuple[int, ...] = ()

    @property
    def table(self) -> pa.Table:
        """A row per subject and item: subject, item, expected, expected_se.

        With categories also a probability of each, named by its response.
        """
        import pyarrow as pa

        count, width = self.expected.shape
        row = np.repeat(np.arange(count, dtype=np.int32), width)
        column = np.tile(np.arange(width, dtype=np.int32), count)
        numbers = {"expected": self.expected, "expected_se": self.standard_error}
        if self.probabilities is not None:
            for k, code in enumerate(self.categories):
                numbers[f"probability_{code}"] = self.probabilities[..., k]
        columns = {
            "subject": pa.array(self.subjects.tolist(), pa.string()).take(row),
            "item": pa.array(self.items.tolist(), pa.string()).take(column),
        }
        columns |= {k: number_column(np.ravel(v)) for k, v in numbers.items()}
        return pa.table(columns)


@full_precision
def predict(
    fit: Calibration,
    *,
    subject_names: Sequence[str] | np.ndarray | None = None,
    item_names: Sequence[str] | np.ndarray | None = None,
    categories: bool = False,
    data: ResponseTable | None = None,
    scored: ScoredSubjects | None = None,
    subject_table: Any = None,
) -> Predictions:
    """Predicts the response of every subject to every item, observed or not.

    The prediction averages the item response function over the posterior of the
    ability, taken as normal with the ability and the standard error of the fit given
    the location and the scale of ability, which abilities and items have in common,

        P_ij = E[m_j(theta)],  theta ~ N(ability_i, se_i^2),  se(P_ij)^2 = Var[m_j],

    by Gauss-Hermite quadrature. For models with an ability per benchmark it is that of
    the item's benchmark. For methods that estimate the posterior of items (laplace,
    nuts, vi), m_j is averaged over it, normal on unconstrained coordinates, by a
    cubature rule of degree 3; for other methods the items are at their estimates. The
    standard error is due to the error of the ability only, not to that of the item,
    which is larger where few subjects answered it.

    With the responses of the fit as `data`, predictions of right and wrong responses of
    up to 200 subjects are stacked with those of effects of subjects and items without
    slopes (`irtjax.prediction.stacking`), which folds of responses left out weigh: they
    are calibrated where the model does not fit, and lose no more than additive ones.
    The fit is repeated four times for that.

    Args:
        fit: A calibration, from `irtjax.fit` or `irtjax.load`.
        subject_names: Names of subjects in the order of the result; None for all.
        item_names: Names of items in the order of the result; None for all.
        categories: Whether to return the probability of each category too.
        data: The responses of the fit; None for predictions of the model alone.
        scored: Scores of new subjects by `irtjax.score` with this fit: these are
            predicted, by the model alone, in place of the subjects of the fit.
        subject_table: Covariates of new subjects without responses, of a fit with
            `subject_covariates`: these are predicted in the same way. With responses,
            give it to `irtjax.score`.

    Returns:
        The predictions. Memory: 16 bytes per cell.

    Raises:
        ValueError: If a name is unknown, categories are requested of scores, data are
            not those of the fit, scores lack errors, or a subject lacks covariates.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch")
    >>> expected = predict(fit, subject_names=["subject 1"])
    >>> expected.expected.shape, bool(expected.expected[0, 0] > expected.expected[0, 3])
    ((1, 4), True)
    """
    if subject_table is not None:
        if scored is not None:
            raise ValueError(
                "subject_table: give it to irtjax.score for subjects with responses"
            )
        scored = score_new_subjects(fit, subject_table)
    people = _subjects_of(fit, scored)
    rows = find_names(people.names, subject_names, "subject")
    places = find_names(fit.item_names, item_names, "item")
    family = fit.model.family
    if categories and not family.num_categories:
        raise ValueError(
            f"a {fit.model.name} model is one of scores, without categories: leave"
            " categories out"
        )
    if fit.factor_names:
        return _predict_factors(fit, people, rows, places, categories)
    family = family.of_items(places)
    points = _item_points(fit, places)
    ability, error, column = people.ability, people.error, np.zeros_like(places)
    if (structure := fit.structure) is not None and fit.num_groups > 1:
        column = np.asarray(structure.group)[places]
    nodes, weights = np.polynomial.hermite_e.hermegauss(ABILITY_NODES)
    dtype = points[0].dtype
    rule = jnp.asarray(np.stack([nodes, weights / weights.sum()], axis=1), dtype)
    count, width = len(rows), len(places)
    numbers = 2 + (family.num_categories if categories else 0)
    what = (
        f"expected responses of {counted(count, 'subject')} to {counted(width, 'item')}"
    )
    require_memory(8.0 * numbers * count * width, what, "name some subjects or items")
    expected, standard_error = np.empty((2, count, width))
    kinds = np.empty((count, width, family.num_categories)) if categories else None
    size = min(max(BLOCK_CELLS // max(width, 1), 1), max(count, 1))
    for start in range(0, count, size):
        # The last block is moved back, so that all have one shape.
        at = min(start, count - size)
        part = slice(at, at + size)
        cells = np.ix_(rows[part], column)
        block = jnp.asarray(ability[cells], dtype), jnp.asarray(error[cells], dtype)
        block_cells = _predict_block(family, points, *block, rule, categories)
        expected[part], standard_error[part] = block_cells[:2]
        if kinds is not None:
            kinds[part] = block_cells[2]
    if scored is None and data is not None and is_stacked(fit, data):
        own = data.select(
            subjects=find_names(data.subjects, fit.subject_names, "subject"),
            items=find_names(data.items, fit.item_names, "item"),
        )
        stack = stack_of(fit, own, predict)
        model = expected
        expected = stack.of(model, stack.additive[np.ix_(rows, places)])
        flat = np.maximum(model * (1 - model), 1e-12)
        standard_error *= stack.slope * expected * (1 - expected) / flat
        if kinds is not None:
            kinds = np.stack([1 - expected, expected], axis=-1)
    names = people.names[rows], fit.item_names[places]
    codes = fit.model.family.category_codes
    return Predictions(*names, expected, standard_error, kinds, codes)


class _Subjects(NamedTuple):
    """Subjects to predict.

    Attributes:
        names: `[subjects]`.
        ability: `[subjects, groups]`; of factors `[subjects, factors]`.
        error: `[subjects, groups]` errors given location and scale; of factors
            covariances `[subjects, factors, factors]`.
    """

    names: np.ndarray
    ability: np.ndarray
    error: np.ndarray


def _subjects_of(fit: Calibration, scored: ScoredSubjects | None) -> _Subjects:
    """The subjects of a fit, or new ones that were scored with it."""
    structure = fit.structure
    if scored is None:
        if fit.factor_names:
            factors = fit.require(Factors)
            return _Subjects(fit.subject_names, factors.mean, factors.spread)
        ability = floats(fit.abilities.table, "ability")[0][:, None]
        error = errors_given_scale(fit)[:, None]
        if structure is not None:
            ability = structure.ability
            error = structure.error if fit.num_groups > 1 else error
        return _Subjects(fit.subject_names, ability, error)
    names = np.array(scored.table["subject"].to_pylist())
    if scored.moments is not None:
        return _Subjects(names, *scored.moments)
    if structure is not None and fit.num_groups > 1:
        labels = [f"ability_{name}" for name in structure.groups.tolist()]
        errors = floats(scored.table, *(f"{label}_se" for label in labels))
        abilities = floats(scored.table, *labels)
        return _Subjects(names, np.stack(abilities, 1), np.stack(errors, 1))
    if scored.own_error is None:
        raise ValueError("the scores have no errors: score the subjects again")
    ability = floats(scored.table, "ability")[0][:, None]
    return _Subjects(names, ability, np.asarray(scored.own_error, float)[:, None])


def _predict_factors(
    fit: Calibration,
    people: _Subjects,
    rows: np.ndarray,
    places: np.ndarray,
    categories: bool,
) -> Predictions:
    """`predict` of a factor model, a'theta of each cell being normal."""
    records = jax.tree.map(lambda x: jnp.asarray(x)[places], fit.parameters.items)
    ability, covariance = people.ability[rows], people.error[rows]
    expected, error = np.empty((2, len(rows), len(places)))
    family = fit.model.family
    count = family.num_categories
    kinds = np.empty((*expected.shape, count)) if categories else None
    size = max(BLOCK_CELLS // max(len(places), 1), 1)
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        at, spread = (
            jnp.asarray(x[part], records[0].dtype) for x in (ability, covariance)
        )
        cells = _factor_cells(fit.model, records, at, spread, categories)
        expected[part], error[part] = cells[:2]
        if kinds is not None:
            kinds[part] = cells[2]
    names = people.names[rows], fit.item_names[places]
    return Predictions(*names, expected, error, kinds, family.category_codes)


def expected_of_factors(model, records, scores) -> Array:
    """Expected responses `[subjects, items]` of subjects by their `FactorScores`."""
    parts = scores.ability, scores.covariance
    return _factor_cells(model, records, *parts, False)[0]


@eqx.filter_jit
def _factor_cells(model, records, ability, covariance, categories: bool):
    """Expected responses, their standard deviations and, if wanted, probabilities."""
    slopes = records.discrimination
    variance = covariance.reshape(len(ability), -1) @ outer(slopes).T
    product = ability @ slopes.T
    cells = expected_cells(model, records, product, variance)
    kinds = None
    if categories:
        kinds = expected_categories(model, records, product, variance)
    return cells.mean, jnp.sqrt(jnp.maximum(cells.square - cells.mean**2, 0)), kinds


def _item_points(fit: Calibration, places: np.ndarray):
    """Items at the points of the cubature, `[points, items]`, or at their estimates."""
    items = jax.tree.map(lambda x: np.asarray(x)[places], fit.parameters.items)
    if not fit.multilevel or fit.item_covariance is None:
        return jax.device_put(jax.tree.map(lambda x: x[None], items))
    family = fit.model.family.of_items(places)
    # For k coordinates x ~ N(m, L L') the 2 k points m +- sqrt(k) L e_c with equal
    # weights are exact to degree 3.
    values, vectors = np.linalg.eigh(np.asarray(fit.item_covariance, float)[places])
    roots = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    far = np.sqrt(roots.shape[-1]) * np.moveaxis(roots, -1, 0)
    moves = np.concatenate([far, -far]).astype(items[0].dtype)
    return _moved_items(family, items, moves)


@stored_jit
def _moved_items(family, items, moves):
    """Items with each of the moves added to their coordinates, `[points, items]`."""
    estimated = {parameter.name for parameter in family.parameters}

    def at(move, item):
        moved = family.constrain(family.unconstrain(item) + move)
        fixed = {k: v for k, v in item._asdict().items() if k not in estimated}
        return moved._replace(**fixed)

    return jax.vmap(jax.vmap(at), in_axes=(0, None))(moves, items)


@stored_jit
def _predict_block(family, points, ability, error, rule, categories: bool):
    """Means, standard deviations and, if wanted, probabilities of a block of cells."""

    def cell(item, theta):
        if not categories:
            return family.expected_response(item, theta)
        return jnp.exp(family.category_log_probs(item, theta))

    over_cells = jax.vmap(jax.vmap(cell), in_axes=(None, 0))
    count = points[0].shape[0]
    number = jnp.asarray(family.category_codes or (0,), ability.dtype)

    def over_items(theta):
        add = lambda total, item: (total + over_cells(item, theta) / count, None)
        each, _ = lax.scan(add, whole, points)
        return (each @ number if categories else each), each

    shape = (family.num_categories,) if categories else ()
    empty = jnp.zeros(ability.shape, ability.dtype)
    whole = jnp.zeros((*ability.shape, *shape), ability.dtype)
    # Moments around a value near the mean: small variances lose no digits.
    centre, _ = over_items(ability)

    def at_ability(totals, node):
        mean, each = over_items(ability + error * node[0])
        new = mean - centre, (mean - centre) ** 2, each
        return jax.tree.map(lambda x, y: x + node[1] * y, totals, new), None

    (gap, square, each), _ = lax.scan(at_ability, (empty, empty, whole), rule)
    return centre + gap, jnp.sqrt(jnp.maximum(square - gap**2, 0)), each


@eqx.filter_jit
def _expected(problem, outer: Outer, state, root, standard, order: int):
    """Means by distinct item, averaged over abilities; see `predict_responses`."""
    model, distinct = problem.model, problem.distinct
    subjects, groups = outer.ability.shape

    def add(total, z):
        at = outer.ability + (root @ z).reshape(groups, subjects).T
        conditional, error = outer._replace(ability=at), None
        if problem.expected:
            # The posteriors of items are averaged over the error of the abilities.
            error = blocks_of(state.ability_covariance, groups, distinct.is_aligned)
            conditional = outer
        means = expected_responses(
            model,
            distinct,
            conditional,
            state.mode,
            order=order,
            ability_covariance=error,
            at=at,
        )
        return total + means, None

    empty = jnp.zeros(distinct.values.shape, outer.ability.dtype)
    return lax.scan(add, empty, standard)[0] / standard.shape[0]


def predict_responses(
    problem: MultilevelProblem,
    state: LaplaceState,
    *,
    order: int = 5,
    num_draws: int = 0,
    key: KeyArray | None = None,
) -> Float[Array, "subjects items"]:
    """Mean of every response given all observed ones, of observed cells too.

    E[y_ij | Y, theta] = int E[y | theta_i, x] p(x | y_j, theta) dx, for the posterior p
    of the coordinates x of item j, averaged over the error of theta for
    `MultilevelProblem.expected`; by adaptive quadrature (Naylor and Smith 1982,
    Applications of a Method for the Efficient Computation of Posterior Distributions),
    with `order` nodes per coordinate. For scores this is the mean of the score, not the
    score of the mean logit. Abilities are as estimated, or averaged over draws of
    Laplace's approximation, which matters where subjects answer few items of a group.
    `state` is the final one of `laplace` (`Fit.state`).

    >>> import jax, irtjax
    >>> from irtjax.estimators.laplace.laplace import Laplace
    >>> from irtjax.models.families.logistic import Binary
    >>> from irtjax.models.multilevel.specification import Hierarchical
    >>> table = irtjax.ResponseTable.from_arrays([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    >>> layout = Hierarchical().lay_out(table, Binary(slopes="positive"))
    >>> problem = MultilevelProblem.create(layout.model, table.responses())
    >>> state = jax.jit(Laplace(order=2).init)(problem, None, None)
    >>> means = predict_responses(problem, state)
    >>> means.shape, bool((means[2] > means[1]).all())
    ((3, 3), True)
    """
    if order < 1:
        raise ValueError(
            f"order {order} is not a positive number of nodes: give 1 to 9"
        )
    if num_draws and key is None:
        raise ValueError("draws of abilities need a random key: give key=")
    model, distinct = problem.model, problem.distinct
    outer = outer_of(model, state.ability, state.components)
    size, dtype = state.ability_covariance.shape[0], state.ability.dtype
    root, standard = jnp.zeros((size, size), dtype), jnp.zeros((1, size), dtype)
    if num_draws and key is not None:
        # By eigenvalues: a covariance may be singular.
        values, vectors = jnp.linalg.eigh(state.ability_covariance)
        root = vectors * jnp.sqrt(jnp.maximum(values, 0))
        standard = jax.random.normal(key, (num_draws, size), dtype)
    means = _expected(problem, outer, state, root, standard, order)
    column = np.asarray(model.group) if distinct.is_aligned else 0
    of_stem = np.asarray(distinct.of_stem)[np.asarray(model.stem)]
    return means[of_stem, column].T
