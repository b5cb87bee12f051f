"""What is compared: structured fits, predictions from means, and tests of pairs."""

from __future__ import annotations

import sys
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

import irtjax
from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.base import run
from irtjax.estimators.components import own_covariance
from irtjax.estimators.laplace import Laplace
from irtjax.estimators.structured_errors import errors_of
from irtjax.estimators.structured_state import LaplaceState, StructuredProblem
from irtjax.fit_choices import make_model
from irtjax.prediction import predict_responses
from irtjax.score_tables import prepare, with_scores
from irtjax.scoring import score_groups
from irtjax.structure_layout import Layout, lay_out

_run_jit = eqx.filter_jit(run)
MAX_STEPS = 300


class Fitted(NamedTuple):
    """A structured fit with what it was made from."""

    problem: StructuredProblem
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

    def score(self, values: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """General abilities `[subjects]` from other responses, items at their modes."""
        model, components = self.problem.model, self.state.components
        rows = self.state.mean[self.problem.units.unit][model.stem]
        items = jax.vmap(model.family.constrain)(model.family.with_offsets(rows))
        own = jnp.zeros((1, 1), rows.dtype)
        if model.num_groups > 1:
            own = own_covariance(model, components.log_scale, components.correlation)
        data = Responses(
            jnp.asarray(np.where(seen, values, 0), rows.dtype), jnp.asarray(seen)
        )
        return np.asarray(
            score_groups(model.family, items, model.group, own, data).general
        )

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
    """A structured fit by the fast route, without the tables of `irtjax.fit`.

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
    layout = lay_out(
        table, model.family, grouped=grouped, levels=("stem",) if stems else ()
    )
    problem = StructuredProblem.create(layout.model, responses)
    method = Laplace(order or (3 if scored else 5), tolerance)
    fit = _run_jit(problem, method, None, max_steps=MAX_STEPS)
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
    rows = fit.ability_table.to_pydict()
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
