"""What is compared: multilevel fits, predictions from means, and tests of pairs."""

from __future__ import annotations

import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

import irtjax
from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run_jit
from irtjax.estimators.laplace.errors import errors_of
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import LaplaceState, MultilevelProblem
from irtjax.fitting.resolve import make_model
from irtjax.inference import GroupScores, score_groups
from irtjax.models.families.bounded import prepare, with_scores
from irtjax.models.multilevel.design import Layout
from irtjax.models.multilevel.specification import Hierarchical, MultiBenchmark
from irtjax.prediction.responses import predict_responses

MAX_STEPS = 300


class Fitted(NamedTuple):
    """A multilevel fit with what it was made from."""

    problem: MultilevelProblem
    layout: Layout
    method: Laplace
    state: LaplaceState
    status: Status

    def usable(self, what: str) -> bool:
        """Whether the fit ended at finite values; says so where it did not."""
        if self.status is Status.NONFINITE:
            print(f"  {what}: left out, the fit ran away", file=sys.stderr)
        elif self.status is not Status.CONVERGED:
            print(f"  {what}: {self.status.explain()}", file=sys.stderr)
        return self.status is not Status.NONFINITE

    def predictions(self, num_draws: int = 20) -> np.ndarray:
        """Means of all responses, `[subjects, items]`, over draws of the abilities."""
        order = 3 if self.problem.model.num_columns > 2 else 5
        options = {"num_draws": num_draws, "key": jax.random.key(0)}
        means = predict_responses(self.problem, self.state, order=order, **options)
        return np.asarray(means)

    def without(self, subjects: np.ndarray) -> Fitted:
        """A fit like this one in which some subjects `[subjects]` have no responses.

        They keep their rows, so that all such fits are one compiled program. A subject
        without responses has its prior, which tells nothing of items.
        """
        data = self.problem.data
        seen = np.ones(data.values.shape, bool)
        if data.observed is not None:
            seen = np.array(data.observed)
        seen[subjects] = False
        kept = Responses(jnp.where(seen, data.values, 0), jnp.asarray(seen))
        problem = MultilevelProblem.create(self.problem.model, kept)
        fit = run_jit(problem, self.method, None, max_steps=MAX_STEPS)
        status = Status(int(fit.status))
        return self._replace(problem=problem, state=fit.state, status=status)

    def scored(self, data: Responses) -> GroupScores:
        """Scores of subjects from their responses, items at their modes."""
        model, components = self.problem.model, self.state.components
        rows = self.state.mean[self.problem.distinct.of_stem][model.stem]
        items = jax.vmap(model.family.constrain)(model.family.with_offsets(rows))
        own = jnp.zeros((1, 1), rows.dtype)
        if model.num_groups > 1:
            own = model.specific_covariance(components)
        return score_groups(model.family, items, model.group, own, data)

    def score(self, values: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """General abilities `[subjects]` from other responses."""
        values = np.where(seen, values, 0)
        data = Responses(jnp.asarray(values, self.state.mean.dtype), jnp.asarray(seen))
        return np.asarray(self.scored(data).general)

    def abilities(self) -> tuple[np.ndarray, np.ndarray]:
        """Abilities of the first group `[subjects]`, and their covariance."""
        count = self.state.ability.shape[0]
        errors = errors_of(self.problem, self.method, self.state)
        return np.asarray(self.state.ability)[:, 0], errors.covariance[:count, :count]


def structured(
    table: irtjax.ResponseTable,
    *,
    grouped: bool = False,
    stems: bool = False,
    order: int | None = None,
    tolerance: float = 0.05,
    squeeze: float | None = None,
) -> Fitted:
    """A multilevel fit by `laplace`, without the tables of `irtjax.fit`.

    Args:
        table: The responses: scores in [0, 1], or right and wrong.
        grouped: Whether each benchmark has an ability of its own.
        stems: Whether items of one stem (article) share effects.
        order: Quadrature nodes per coordinate; None: 5 for right and wrong, 3 for
            scores.
        tolerance: In standard errors.
        squeeze: Of scores; see `irtjax.fit`.
    """
    scored = table.kind == "continuous"
    model = make_model("continuous" if scored else "2pl", table, "weak", positive=True)
    scores = prepare(table, model, squeeze=squeeze)
    table = table if scores is None else scores.table
    responses = with_scores(table.responses(jnp.zeros(()).dtype), scores, float)
    kind = MultiBenchmark if grouped else Hierarchical
    layout = kind(facets=("stem",) if stems else ()).lay_out(table, model.family)
    problem = MultilevelProblem.create(layout.model, responses)
    method = Laplace(order or (3 if scored else 5), tolerance)
    fit = run_jit(problem, method, None, max_steps=MAX_STEPS)
    return Fitted(problem, layout, method, fit.state, Status(int(fit.status)))


def mean_predictions(values: np.ndarray, seen: np.ndarray) -> dict[str, np.ndarray]:
    """Predictions of every cell from means of the cells seen, `[subjects, items]`.

    GME is the mean of all; MME and IME those of models and items; "additive" adds the
    two. "Additive, shrunken" is the same with effects of models and items shrunken by
    the share of their variance that is not noise (a moment estimate), as the best
    linear predictor has it.
    """
    grand = float(values[seen].mean())
    whole = np.full(values.shape, grand)
    gap = np.where(seen, values - grand, 0)
    by_model, by_item = seen.sum(axis=1), seen.sum(axis=0)
    model = gap.sum(axis=1) / np.maximum(by_model, 1)
    item = gap.sum(axis=0) / np.maximum(by_item, 1)
    additive = whole + model[:, None] + item
    left = np.where(seen, gap - model[:, None] - item, 0)
    freedom = max(seen.sum() - by_model.size - by_item.size + 1, 1)
    noise = float(np.sum(left**2) / freedom)
    small_model = _shrink(model, by_model, noise)
    # Items' means of what models leave, so that who answered does not count.
    rest = np.where(seen, gap - small_model[:, None], 0)
    item_left = rest.sum(axis=0) / np.maximum(by_item, 1)
    shrunken = whole + small_model[:, None] + _shrink(item_left, by_item, noise)
    return {
        "GME": whole,
        "MME": whole + model[:, None],
        "IME": whole + item,
        "additive": np.clip(additive, 0, 1),
        "additive, shrunken": np.clip(shrunken, 0, 1),
    }


def _shrink(effect: np.ndarray, count: np.ndarray, noise: float) -> np.ndarray:
    """Effects times the share of their variance that is not noise."""
    known = count > 0
    error = noise / np.maximum(count, 1)
    variance = max(float(np.mean((effect**2 - error)[known])), 0.0)
    return np.where(known, effect * variance / (variance + error + 1e-300), 0)


def mean_chances(values: np.ndarray, seen: np.ndarray) -> dict[str, np.ndarray]:
    """Chances of right answers from shares right, each `[subjects, items]`.

    GME, MME and IME are the share of all, of the model and of the item; "additive" is
    logit(item mean) + logit(model mean) less that of all. Shares have half a right and
    half a wrong pseudo-response, so that none is certain.
    """
    right = np.where(seen, values, 0)

    def logit(axis):
        count = seen.sum(axis=axis)
        return special.logit((right.sum(axis=axis) + 0.5) / (count + 1))

    grand, of_model, of_item = logit(None), logit(1)[:, None], logit(0)
    found = {
        "GME": grand,
        "MME": of_model,
        "IME": of_item,
        "additive": of_model + of_item - grand,
    }
    shape = values.shape
    return {k: np.broadcast_to(special.expit(v), shape) for k, v in found.items()}


def plain_chances(table: irtjax.ResponseTable) -> np.ndarray:
    """Chances `[subjects, items]` at the estimates of a plain 2PL by EM."""
    fit = irtjax.fit(table, "2pl", standard_errors="none", positive=True)
    rows = fit.abilities.table.to_pydict()
    by_name = dict(zip(rows["subject"], rows["ability"], strict=True))
    ability = jnp.asarray([by_name[name] for name in table.subjects.tolist()])
    items = jax.tree.map(jnp.asarray, fit.parameters.items)
    over = jax.vmap(fit.model.family.expected_response, in_axes=(0, None))
    return np.asarray(jax.vmap(over, in_axes=(None, 0))(items, ability))


def area_under_curve(right: np.ndarray, chance: np.ndarray) -> float:
    """Chance that a right cell is given a higher chance than a wrong one.

    >>> area_under_curve(np.array([0, 1, 1]), np.array([0.2, 0.2, 0.9]))
    0.75
    """
    ranks = stats.rankdata(chance)
    ones = int(right.sum())
    total = ranks[right > 0].sum() - ones * (ones + 1) / 2
    return float(total / (ones * (right.size - ones)))


def log_loss(right: np.ndarray, chance: np.ndarray) -> float:
    """Mean of minus the log chance of what happened."""
    chance = np.clip(chance, 1e-9, 1 - 1e-9)
    return float(
        -np.mean(special.xlogy(right, chance) + special.xlog1py(1 - right, -chance))
    )


def t_tests(
    values: np.ndarray, seen: np.ndarray, *, paired: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Differences and two-sided p-values of all pairs of rows, `[subjects, subjects]`.

    Args:
        values: `[subjects, items]`.
        seen: Which of them count.
        paired: By the differences on the items that both have, which takes out how hard
            these are; else Welch's test, as if the items were other ones.
    """
    mask = seen.astype(float)
    x = np.where(seen, values, 0)
    if paired:
        count = mask @ mask.T
        total = x @ mask.T
        mean = (total - total.T) / np.maximum(count, 1)
        square = (x**2) @ mask.T
        square = square + square.T - 2 * x @ x.T
        variance = (square - count * mean**2) / np.maximum(count - 1, 1)
        error = np.sqrt(np.maximum(variance, 0) / np.maximum(count, 1))
        freedom = np.maximum(count - 1, 1)
    else:
        count = mask.sum(axis=1)
        average = x.sum(axis=1) / np.maximum(count, 1)
        square = np.where(seen, (values - average[:, None]) ** 2, 0).sum(axis=1)
        own = square / np.maximum(count - 1, 1) / np.maximum(count, 1)
        mean = average[:, None] - average
        error = np.sqrt(own[:, None] + own)
        small = own**2 / np.maximum(count - 1, 1)
        freedom = (own[:, None] + own) ** 2 / np.maximum(small[:, None] + small, 1e-300)
    t = np.abs(mean) / np.maximum(error, 1e-300)
    # One item has no variance, and says nothing.
    enough = count >= 2 if paired else (count >= 2)[:, None] & (count >= 2)
    t = np.where(enough & (mean != 0), t, 0)
    return mean, 2 * stats.t.sf(t, freedom)


def told_apart(p_value: np.ndarray, *, adjusted: bool, rate: float = 0.05):
    """Which pairs `[pairs]` have a p-value of at most `rate`, adjusted over all or not.

    Pairs are in the order of `numpy.triu_indices`.
    """
    flat = p_value[np.triu_indices(len(p_value), 1)]
    if adjusted:
        flat = stats.false_discovery_control(flat)
    return flat <= rate


def told_apart_by_model(p_value: np.ndarray, rate: float = 0.05) -> float:
    """Mean share of the others that a model is told apart from, as the paper counts.

    Algorithm 1 adjusts the p-values of one model and the others by themselves: false
    discoveries are held among those of each model, not of all pairs.

    Args:
        p_value: `[subjects, subjects]`, symmetric.
        rate: Of false discoveries.
    """
    others = ~np.eye(len(p_value), dtype=bool)
    own = p_value[others].reshape(len(p_value), -1)
    return float(np.mean(stats.false_discovery_control(own, axis=1) <= rate))


def fixed_item_tests(
    whole: Fitted, folds: int, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """z-tests of all pairs with items as calibrated from other models, and fixed.

    Models are dealt into folds, and items are calibrated anew without the fold of the
    one model and that of the other; both are scored with these. Given the items their
    errors are independent: the squares add. Either score has the origin and the unit
    of that calibration, and z has neither, so that no two scales are ever linked. That
    items are not known exactly is left out: of two models that answered the same ones
    most of it cancels, of two that answered different ones it does not.

    Args:
        whole: A fit of all models; its responses are the ones scored.
        folds: Of models.
        seed: Of the folds.

    Returns:
        Differences and two-sided p-values, `[subjects, subjects]`; the differences
        are in units of their calibration. None if a calibration did not converge, which
        it says.
    """
    count = whole.state.ability.shape[0]
    fold = np.random.default_rng(seed).permutation(count) % folds
    difference, z = np.zeros((count, count)), np.zeros((count, count))
    for one, other in zip(*np.triu_indices(folds), strict=True):
        fit = whole.without(np.isin(fold, (one, other)))
        fit.usable(f"items without folds {one} and {other}")
        if fit.status is not Status.CONVERGED:
            return None
        found = fit.scored(whole.problem.data)
        theta, error = np.asarray(found.general), np.asarray(found.general_error)
        gap = theta[:, None] - theta
        mine = (fold[:, None] == one) & (fold == other)
        mine |= mine.T
        difference = np.where(mine, gap, difference)
        z = np.where(mine, gap / np.sqrt(error[:, None] ** 2 + error**2), z)
    return difference, 2 * stats.norm.sf(np.abs(z))


def above(
    p_value: np.ndarray, difference: np.ndarray, rate: float = 0.05
) -> np.ndarray:
    """Which models are told to be above which, `[lower, higher]`.

    Args:
        p_value: `[subjects, subjects]`, symmetric; adjusted here over all pairs.
        difference: `[subjects, subjects]`, the row's estimate less the column's.
        rate: Of false discoveries.
    """
    apart = np.zeros(p_value.shape, bool)
    apart[np.triu_indices(len(p_value), 1)] = told_apart(
        p_value, adjusted=True, rate=rate
    )
    return (apart | apart.T) & (difference < 0)


def longest_chain(above: np.ndarray) -> list[int]:
    """A longest chain of models, lowest first, each told to be above ALL before it.

    A ranking says of every two of its models which is ahead, so every pair must have
    been told. z-tests of one covariance at one critical value are transitive: standard
    errors of differences obey the triangle inequality, so z of the outer pair is at
    least the smaller of the two between. Then it is enough that each model is above
    the one before, and the sets below are those above a model: as many as models.
    t-tests have degrees of freedom and items of each pair's own. Then a chain of steps
    may have ends that are not told apart, or may even go round in circles.

    The longest chain within a set of candidates starts at one of them and goes on
    within those above it. Sets are remembered, and a candidate is left out where the
    longest chain above it among all models could not win (Russian dolls).

    Args:
        above: `[subjects, subjects]`, whether the column's model is told to be above
            the row's; see `above`. Never both ways.

    >>> steps = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], bool)
    >>> longest_chain(steps)  # The third is above the second, not told of the first.
    [1, 2]
    """
    higher = [sum(1 << int(j) for j in np.flatnonzero(row)) for row in above]
    most = [len(higher)] * len(higher)
    chains: dict[int, tuple[int, ...]] = {0: ()}

    def longest(candidates: int) -> tuple[int, ...]:
        if candidates in chains:
            return chains[candidates]
        members = [k for k in range(len(higher)) if candidates >> k & 1]
        best: tuple[int, ...] = ()
        for k in sorted(members, key=lambda k: -(candidates & higher[k]).bit_count()):
            rest = candidates & higher[k]
            if min(rest.bit_count(), most[k]) >= len(best):
                best = max(best, (k, *longest(rest)), key=len)
        chains[candidates] = best
        return best

    # From the models that few are above, so that bounds are there when needed.
    for k in sorted(range(len(higher)), key=lambda k: higher[k].bit_count()):
        most[k] = len(longest(higher[k]))
    return list(longest((1 << len(higher)) - 1))


def share_reversed(
    apart: np.ndarray, difference: np.ndarray, truth: np.ndarray
) -> float:
    """Share of the pairs told apart that are in another order than `truth` has them.

    Args:
        apart: `[pairs]`; see `told_apart`.
        difference: `[subjects, subjects]` of the estimates.
        truth: `[subjects]` numbers that order the subjects.
    """
    upper = np.triu_indices(len(truth), 1)
    wrong = difference[upper] * (truth[:, None] - truth)[upper] < 0
    return float(np.sum(wrong & apart) / max(apart.sum(), 1))
