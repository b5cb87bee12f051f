"""The score on all items from the responses to some, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import ndtri

from irtjax.likelihood.quadrature import REACH, largest_information, nodes_for
from irtjax.models.model import Model, Population, unit_responses
from irtjax.numerics.kernels import equal_nodes
from irtjax.numerics.programs import stored_jit

#: Numbers that one table of items by nodes may hold, unless it has 201 nodes.
LARGEST_TABLE = 20_000_000
#: Nodes of a table are a multiple of this: folds share one program.
TABLE_NODES = 240
#: Subjects of a block of posteriors.
BLOCK = 2048
#: An error of the full score that is no more than rounding.
ROUNDING = 1e-9
#: Held-out subjects from which a correction of five coefficients is estimated.
CORRECTED_FROM = 50


class NodeCurves(NamedTuple):
    """Items on nodes of ability, as arrays of the host."""

    ability: np.ndarray  # [nodes]
    log_weight: np.ndarray  # [nodes] of the population
    natural: tuple[np.ndarray, ...]  # each g_k of the model, [items, nodes]
    mean: np.ndarray  # [items, nodes] expected response between 0 and 1
    variance: np.ndarray  # [items, nodes] its variance given ability

    def select(self, items: np.ndarray) -> NodeCurves:
        """The curves of some items."""
        tables = jax.tree.map(lambda table: table[items], tuple(self[2:]))
        return NodeCurves(self.ability, self.log_weight, *tables)


def moments(family: Any, item: Any, ability: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the response to an item, between 0 and 1, given ability.

    Of a share, as if it were one right or wrong response.
    """
    if not family.num_categories:
        mean = family.expected_response(item, ability)
        return mean, mean * (1 - mean)
    codes = jnp.asarray(family.category_codes, ability.dtype)
    categories = (codes - codes[0]) / (codes[-1] - codes[0])
    chance = jnp.exp(family.category_log_probs(item, ability))
    mean = chance @ categories
    return mean, jnp.maximum(chance @ categories**2 - mean**2, 0)


def as_records(items: Any) -> Any:
    """Item records as JAX arrays, all of the dtype of the first."""
    dtype = jnp.asarray(items[0]).dtype
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), items)


@stored_jit
def _tables(model: Model, items: Any, theta):
    """Natural parameters, means and variances, `[items, nodes]`."""
    family = model.family

    def of_item(item, ability):
        return family.natural(item, ability), *moments(family, item, ability)

    over_items = jax.vmap(of_item, in_axes=(0, None))
    tables = lax.map(lambda t: over_items(items, t), theta)
    return jax.tree.map(lambda x: x.T, tables)


def curves_of(
    model: Model, items: Any, population: Population, responses: np.ndarray
) -> NodeCurves:
    """Curves on nodes that resolve the posteriors of subjects with every response.

    `responses` `[items]` are the right or wrong ones that a score is worth, else 1.
    """
    items = as_records(items)
    dtype = items[0].dtype
    mean, sd = float(population.mean), float(population.sd)
    log_weight = population.log_weights
    if log_weight is None:
        normal = Population(jnp.asarray(mean, dtype), jnp.asarray(sd, dtype))
        largest = float(largest_information(model, items, normal, None))
        largest *= float(np.max(responses, initial=1))
        smallest = 1 / math.sqrt(1 + max(largest, 0) * sd**2)
        most = max(201, LARGEST_TABLE // max(1, len(items[0])))
        # Multiples of 60, so that similar fits share a compiled program.
        count = 60 * math.ceil(min(nodes_for(smallest).size, most) / 60) + 1
        nodes = equal_nodes(-REACH, REACH, count)
        log_weight = -0.5 * nodes**2
        log_weight -= np.log(np.sum(np.exp(log_weight)))
    else:
        nodes = equal_nodes(-REACH, REACH, np.shape(log_weight)[0])
        log_weight = jax.nn.log_softmax(jnp.asarray(log_weight))
    log_weight = np.asarray(log_weight, float)
    return curves_at(model, items, mean + sd * nodes, log_weight, responses)


def curves_at(
    model: Model,
    items: Any,
    ability: np.ndarray,
    log_weight: np.ndarray,
    responses: np.ndarray,
) -> NodeCurves:
    """Curves on given nodes, `[nodes]` abilities and log weights; see `curves_of`."""
    items, count = as_records(items), len(ability)
    nodes = np.pad(ability, (0, -count % TABLE_NODES), mode="edge")
    tables = _tables(model, items, nodes.astype(items[0].dtype))
    natural, mean, variance = jax.tree.map(lambda x: np.asarray(x)[:, :count], tables)
    if np.any(responses != 1):
        # A score has the log-likelihood of its responses, and the variance of a mean.
        each = np.asarray(responses, mean.dtype)[:, None]
        natural, variance = tuple(each * g for g in natural), variance / each
    return NodeCurves(ability, log_weight, natural, mean, variance)


class Prediction(NamedTuple):
    """Full scores predicted from a subset, each `[subjects]`."""

    score: np.ndarray  # predicted score on all items
    error: np.ndarray  # its standard deviation under the model
    unseen: np.ndarray  # mass of the items that were not answered
    answered: np.ndarray  # what the answered items contribute
    mean: np.ndarray  # weighted mean of the answered items; NaN if there are none
    ability: np.ndarray  # posterior mean
    ability_se: np.ndarray  # posterior standard deviation


def join(parts: Sequence[Prediction]) -> Prediction:
    """Predictions of several groups of subjects, one after another."""
    return Prediction(*(np.concatenate(x) for x in zip(*parts, strict=True)))


class Whole(NamedTuple):
    """All items together, for all subjects alike or for each."""

    mean: np.ndarray  # [nodes] or [subjects, nodes] expected full score
    variance: np.ndarray  # likewise, its variance given ability
    mass: np.ndarray | float  # total of the items' parts, or [subjects]

    @classmethod
    def of(
        cls, curves: NodeCurves, target: np.ndarray, observed: np.ndarray | None = None
    ) -> Whole:
        """The full score of all items, or of those each subject answered."""
        part = target[:, None]
        mean, variance = part * curves.mean, part**2 * curves.variance
        if observed is None:
            return cls(mean.sum(0), variance.sum(0), float(target.sum()))
        seen = observed.astype(mean.dtype)
        return cls(seen @ mean, seen @ variance, seen @ target)


def predict(
    model: Model,
    curves: NodeCurves,
    values: np.ndarray,
    observed: np.ndarray | None,
    *,
    target: np.ndarray,
    weight: np.ndarray,
    whole: Whole,
) -> Prediction:
    """Predicts full scores from responses to a subset.

    With t_j what item j counts (`target`) and p(theta | y) the posterior given the
    responses (`[subjects, subset]`, 0 where missing), the prediction is

        S = sum_answered t_j y_j + E[ sum_unanswered t_j P_j(theta) | y ],

    what was observed and, for the rest, what is expected (the p-IRT estimator of
    tinyBenchmarks, Maia Polo et al. 2024, taken over the posterior in place of a
    point). Its variance is that of the expectation over the posterior and the mean of
    sum_unanswered t_j^2 P_j (1 - P_j). `weight` is that of the plain weighted mean.
    """
    if observed is None:
        observed = np.ones(values.shape, bool)
    parts = []
    for start in range(0, max(len(values), 1), BLOCK):
        part = slice(start, start + BLOCK)
        alike = np.ndim(whole.mass) == 0
        rows = whole if alike else Whole(*(np.asarray(x)[part] for x in whole))
        cells = values[part], observed[part]
        parts.append(_predict(model, curves, *cells, target, weight, rows))
    return join(parts)


def _predict(model, curves, values, observed, target, weight, whole) -> Prediction:
    """`predict` for a block of subjects."""
    seen = observed.astype(float)
    right = unit_responses(model, values.astype(float)) * seen
    joint = curves.log_weight + seen @ curves.natural[0]
    # Statistics are 0 where a response is missing, since its value is.
    statistics = model.family.statistics(jax.device_put(values))
    for statistic, natural in zip(statistics, curves.natural[1:], strict=True):
        joint = joint + np.asarray(statistic, float) @ natural
    joint -= joint.max(axis=1, keepdims=True)
    posterior = np.exp(joint)
    posterior /= posterior.sum(axis=1, keepdims=True)
    rest = whole.mean - seen @ (target[:, None] * curves.mean)
    noise = whole.variance - seen @ (target[:, None] ** 2 * curves.variance)
    # An item may be left of which rounding makes less than nothing.
    unseen = whole.mass - seen @ target
    unseen = np.where(unseen > ROUNDING, unseen, 0)
    some = (unseen > 0)[:, None]
    rest, noise = np.where(some, rest, 0), np.where(some, np.maximum(noise, 0), 0)
    expected = np.sum(posterior * rest, axis=1)
    variance = np.sum(posterior * (rest - expected[:, None]) ** 2, axis=1)
    error = np.sqrt(variance + np.sum(posterior * noise, axis=1))
    answered = right @ target
    total = seen @ weight
    mean = np.full(len(total), np.nan)
    np.divide(right @ weight, total, out=mean, where=total > 0)
    ability = posterior @ curves.ability
    around = curves.ability - ability[:, None]
    width = np.sqrt(np.sum(posterior * around**2, axis=1))
    return Prediction(
        answered + expected, error, unseen, answered, mean, ability, width
    )


class Calibrator(NamedTuple):
    """Errors of predictions, estimated from held-out subjects.

    The correction has coefficients of what is added to the prediction per mass of
    unseen items: of 1, the prediction, its square, the weighted mean and its square.
    """

    misfit: float  # error beyond the model's, per mass of unseen items
    multiplier: float  # how many standard deviations the interval reaches
    correction: tuple[float, ...] = ()

    def score(self, prediction: Prediction) -> np.ndarray:
        """Full scores, corrected; never beyond what the items left could add."""
        score = prediction.score
        if self.correction:
            score = score + _features(prediction) @ np.array(self.correction)
        low, high = prediction.answered, prediction.answered + prediction.unseen
        return np.clip(score, low, high)

    def error(self, prediction: Prediction) -> np.ndarray:
        """Standard deviations of the full score, misfit included."""
        return np.hypot(prediction.error, self.misfit * prediction.unseen)

    def interval(self, prediction: Prediction) -> tuple[np.ndarray, np.ndarray]:
        """Ends, within the same limits."""
        half = self.multiplier * self.error(prediction)
        score = self.score(prediction)
        low = np.maximum(score - half, prediction.answered)
        return low, np.minimum(score + half, prediction.answered + prediction.unseen)


def _features(prediction: Prediction) -> np.ndarray:
    """What corrections are linear in, `[subjects, 5]`; 0 without responses."""
    one = np.ones_like(prediction.score)
    score, mean = prediction.score, np.nan_to_num(prediction.mean)
    columns = np.stack([one, score, score**2, mean, mean**2], axis=1)
    some = prediction.unseen * ~np.isnan(prediction.mean)
    return columns * some[:, None]


def correct(prediction: Prediction, score: np.ndarray) -> tuple[tuple, np.ndarray]:
    """Coefficients of the correction, and full scores less corrected predictions.

    The subjects are ones that choice and fit have not seen, `score` their full scores.
    A model that does not quite fit predicts with a bias that depends on the score.
    Least squares on the model's prediction and the weighted mean corrects it (as the
    blend of both does in tinyBenchmarks, and the regression in metabench: Kipnis et al.
    2025, arXiv 2407.12844), where it predicts subjects better that were left out of it
    one by one. Each subject is corrected by the coefficients of the others.
    """
    plain = score - prediction.score
    if len(score) < CORRECTED_FROM or not np.any(prediction.unseen):
        return (), plain
    columns = _features(prediction)
    gram = columns.T @ columns
    # Columns are shares: a ridge of a millionth of a subject only breaks ties.
    gram += 1e-6 * np.eye(len(gram)) * max(float(np.max(prediction.unseen)) ** 2, 1e-12)
    coefficients = np.linalg.solve(gram, columns.T @ plain)
    leverage = np.sum(columns * np.linalg.solve(gram, columns.T).T, axis=1)
    left = (plain - columns @ coefficients) / np.maximum(1 - leverage, 1e-3)
    if np.mean(left**2) >= np.mean(plain**2):
        return (), plain
    return tuple(coefficients.tolist()), left


def scale(
    prediction: Prediction, left: np.ndarray, level: float, correction: tuple
) -> tuple[Calibrator, bool]:
    """Scales intervals to contain full scores; whether there are subjects enough.

    From what corrections have `left`, misfit is chosen so that mean squared errors are
    as stated with it; the reach is the ceil((n + 1) level)-th smallest of |error| / sd.
    For a further subject drawn as these were, such intervals contain the full score
    with at least that probability, whatever is wrong with the model (split conformal
    prediction with scaled residuals: Lei et al. 2018, JASA 113, section 5.2), up to the
    dependence that folds bring. Without subjects enough for the level the reach is the
    largest ratio seen, and at least that of a normal distribution.
    """
    miss = np.abs(left)
    unseen = np.sum(prediction.unseen**2)
    excess = np.sum(miss**2 - prediction.error**2)
    misfit = math.sqrt(max(excess, 0.0) / unseen) if unseen > 0 else 0.0
    error = Calibrator(misfit, 1.0).error(prediction)
    ratio = np.sort(np.where(miss < ROUNDING, 0, miss / np.maximum(error, ROUNDING)))
    place = math.ceil((len(ratio) + 1) * level)
    enough = place <= len(ratio)
    normal = uncalibrated(level).multiplier
    reach = float(ratio[place - 1]) if enough else max([normal, *ratio.tolist()])
    return Calibrator(misfit, reach, correction), enough


def uncalibrated(level: float) -> Calibrator:
    """The model's own errors, taken as normal."""
    return Calibrator(0.0, float(ndtri(0.5 + level / 2)))
