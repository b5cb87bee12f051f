"""What MM needs of a response: log p(y), its slope in eta, a bound of its curvature.

A response depends on abilities and discriminations through eta = a'theta + d alone. MM
fits a family if there is a constant L with -d^2 log p(y) / d eta^2 <= L for every y and
eta, since then, r being the slope,

    log p(y | eta') >= log p(y | eta) + r (eta' - eta) - L (eta' - eta)^2 / 2.

| family | slope r | L |
|---|---|---|
| logit, n trials | y - n sigma(eta) | 1/4 of each trial |
| probit | q h(q eta), q = 2 y - 1, h = phi / Phi | 1, as 0 < h(x) (h(x) + x) < 1 |
| graded | 1 - sigma(eta + c_y) - sigma(eta + c_{y+1}) | 1/2, twice sigma' |
| partial credit | y - E[y] | (C - 1)^2 / 4, the largest variance of 0 ... C - 1 |

Of two categories the last two are the first, with L = 1/4. Items of ordered categories
have C - 1 intercepts: d is their mean, and `cuts` are their deviations from it. Given
eta, log p is concave in the cuts, with the score and expected information below.

For a logit the inequality also holds with w(eta) = tanh(eta / 2) / (2 eta) <= 1/4 in
place of L (Jaakkola and Jordan 2000): far from eta = 0 about 1 / (2 |eta|), so that
steps from extreme values are long. Each cell has its own, as with missing cells.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from jaxtyping import Array

from irtjax.models.families.graded import (
    CLOSED,
    Graded,
    GradedItems,
    PartialCredit,
    SpacedGraded,
    category_numbers,
    filled,
    is_mark,
    open_categories,
)
from irtjax.models.families.logistic import Binary, LogisticItems
from irtjax.models.model import Model
from irtjax.numerics.kernels import softplus

_HALF_LOG_TWO_PI = 0.9189385332046727


class Cell(NamedTuple):
    """Log p and its slope in eta, 0 in missing cells, and the bound of its curvature.

    The bound is in units of L, so of missing cells 0; None for the exposure.
    """

    log_prob: Array
    slope: Array
    bend: Array | None = None


#: Up to here tanh(x / 2) / (2 x) is a series, which is above it by less than x^6 / 1e3.
SMALL_LOGIT = 0.05


def logit_bend(eta: Array, chance: Array) -> Array:
    """4 w(eta) = 2 tanh(eta / 2) / eta, from sigma(eta).

    >>> logit_bend(jnp.array([0.0, 4.0]), jax.nn.sigmoid(jnp.array([0.0, 4.0])))
    Array([1.       , 0.4820138], dtype=float32)
    """
    small = jnp.abs(eta) < SMALL_LOGIT
    ratio = 4 * (chance - 0.5) / jnp.where(small, 1, eta)
    return jnp.where(small, 1 - eta**2 / 12 + eta**4 / 120, ratio)


class CutTerms(NamedTuple):
    """Of the m cuts: scores, and expected information by pairs h <= k of cuts."""

    scores: tuple[Array, ...]
    information: dict[tuple[int, int], Array]


class AbstractCells(eqx.Module):
    """One response as MM sees it, elementwise in blocks `[subjects, items]`."""

    #: Whether cuts must decrease.
    ordered: ClassVar[bool] = False
    #: Number of cuts, 0 for families with one intercept.
    num_cuts: ClassVar[int] = 0

    @property
    def own_bend(self) -> bool:
        """Whether the bound of the curvature depends on the eta of a cell."""
        return False

    @property
    @abstractmethod
    def curvature(self) -> float:
        """L, for each trial."""

    @abstractmethod
    def cell(self, values, exposure, eta, cuts, single: bool) -> Cell:
        """Log p and slope; `exposure` is a mask or trials (not if `single`), or 1."""

    def cut_terms(self, values, exposure, eta, cuts) -> CutTerms:
        """Scores and information of the cuts."""
        raise NotImplementedError

    def split(self, items: Any) -> tuple[Array, Array | None]:
        """The intercept d of item records, and the cuts."""
        return items.intercept, None

    @abstractmethod
    def join(self, slope: Array, intercept: Array, cuts: Array | None) -> Any:
        """The item records."""


class _BinaryCells(AbstractCells):
    def join(self, slope: Array, intercept: Array, cuts: Array | None) -> Any:
        """Records without asymptotes."""
        zero = jnp.zeros_like(intercept)
        return LogisticItems(slope, intercept, zero, zero + 1)


class LogitCells(_BinaryCells):
    """Right or wrong, or numbers right of trials, by the logistic function.

    With `by_cell` each cell has the curvature w(eta), else 1/4.
    """

    by_cell: bool = eqx.field(static=True, default=False)

    @property
    def own_bend(self) -> bool:
        """As `by_cell`."""
        return self.by_cell

    @property
    def curvature(self) -> float:
        """A variance of at most 1/4."""
        return 0.25

    def cell(self, values, exposure, eta, cuts, single: bool) -> Cell:
        """Log p = y eta - n max(eta, 0) + n log max(sigma, 1 - sigma)."""
        chance = jax.nn.sigmoid(eta)
        slope = values - exposure * chance
        # For single responses the slope has the larger: one logarithm per cell.
        if single:
            distance = jnp.abs(slope)
            likelier = jnp.log(jnp.maximum(distance, 1 - distance))
        else:
            likelier = jnp.log(jnp.maximum(chance, 1 - chance)) * exposure
        log_prob = values * eta - jnp.maximum(eta, 0) * exposure + likelier
        bend = exposure * logit_bend(eta, chance) if self.own_bend else None
        return Cell(log_prob, slope, bend)


class ProbitCells(_BinaryCells):
    """Right or wrong, or numbers right of trials, by the normal distribution."""

    @property
    def curvature(self) -> float:
        """That of log Phi tends to 1 far below 0."""
        return 1.0

    def cell(self, values, exposure, eta, cuts, single: bool) -> Cell:
        """Log Phi of each side, and its slope phi / Phi from logarithms."""

        def side(x):
            log_chance = log_ndtr(x)
            ratio = jnp.exp(-0.5 * x**2 - _HALF_LOG_TWO_PI - log_chance)
            return log_chance, ratio

        if single:
            sign = 2 * values - 1
            log_chance, ratio = side(sign * eta)
            return Cell(exposure * log_chance, exposure * sign * ratio)
        right, wrong = side(eta), side(-eta)
        rest = exposure - values
        return Cell(
            values * right[0] + rest * wrong[0], values * right[1] - rest * wrong[1]
        )


class _OrderedCells(AbstractCells):
    # As those of the family.
    categories: int = eqx.field(static=True)
    codes: tuple[int, ...] = eqx.field(static=True, default=())
    gaps: bool = eqx.field(static=True, default=False)

    @property
    def num_cuts(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One less than the categories."""
        return self.categories - 1

    def split(self, items: Any) -> tuple[Array, Array | None]:
        """The mean of the intercepts, and their deviations."""
        if not self.gaps:
            mean = jnp.mean(items.intercept, axis=1)
            return mean, items.intercept - mean[:, None]
        # Marks of categories that items lack stay as they are.
        used = ~is_mark(items.intercept)
        total = jnp.sum(jnp.where(used, items.intercept, 0), axis=1)
        mean = total / jnp.sum(used, axis=1)
        return mean, items.intercept - jnp.where(used, mean[:, None], 0)

    def join(self, slope: Array, intercept: Array, cuts: Array | None) -> Any:
        """Records with all intercepts."""
        assert cuts is not None
        mean = intercept[:, None]
        if self.gaps:
            mean = jnp.where(is_mark(cuts), 0, mean)
        return GradedItems(slope, mean + cuts)


class GradedCells(_OrderedCells):
    """P(y >= h) = sigma(eta + c_h), h = 1 ... C - 1."""

    ordered: ClassVar[bool] = True

    @property
    def curvature(self) -> float:
        """A slope of the logistic function at each of two intercepts."""
        return 0.5 if self.categories > 2 else 0.25

    def _sides(self, values, eta, cuts):
        """Eta + c_y and eta + c_{y+1}, the distance of the two, and which exist."""
        upper = lower = eta
        # Of end categories one side does not exist: any distance but 0 serves.
        gap = jnp.ones_like(eta)
        for h in range(self.num_cuts):
            upper = jnp.where(values == h + 1, eta + cuts[:, h], upper)
            lower = jnp.where(values == h, eta + cuts[:, h], lower)
            if h:
                gap = jnp.where(values == h, cuts[:, h - 1] - cuts[:, h], gap)
        return upper, lower, gap, values > 0, values < self.num_cuts

    def _filled(self, cuts):
        return filled(cuts) if self.gaps else cuts

    def cell(self, values, exposure, eta, cuts, single: bool) -> Cell:
        """sigma(u) - sigma(v) = sigma(u) sigma(-v) (1 - e^(v - u)), u above v."""
        values, cuts = category_numbers(values, self.codes), self._filled(cuts)
        upper, lower, gap, above, below = self._sides(values, eta, cuts)
        log_prob = jnp.where(above, -softplus(-upper), 0)
        log_prob = log_prob - jnp.where(below, softplus(lower), 0)
        between = above & below
        # Cuts out of order have no probability: NaN, and the point is refused.
        log_prob = log_prob + jnp.where(between, jnp.log(-jnp.expm1(-gap)), 0)
        slope = jnp.where(above, jax.nn.sigmoid(-upper), 0)
        slope = slope - jnp.where(below, jax.nn.sigmoid(lower), 0)
        return Cell(exposure * log_prob, exposure * slope)

    def cut_terms(self, values, exposure, eta, cuts) -> CutTerms:
        """Scores and information of intercepts that have two categories each.

        With p_h the chance of category h and g_h = sigma'(eta + c_h), the slopes are
        d log p_h / d c_h = g_h / p_h and d log p_{h-1} / d c_h = -g_h / p_{h-1}, so the
        information has g_h^2 (1 / p_h + 1 / p_{h-1}) on its diagonal, and next to it
        -g_h g_{h+1} / p_h.
        """
        values, own = category_numbers(values, self.codes), cuts
        cuts = self._filled(cuts)
        chance = [jax.nn.sigmoid(eta + cuts[:, h]) for h in range(self.num_cuts)]
        scores, information = [], {}
        # The category below each cut, and the cut below that category.
        lower, beyond = 0, jnp.full_like(cuts[:, 0], 2 * CLOSED)
        for h, here in enumerate(chance):
            if h:
                lacks = own[:, h - 1] < -CLOSED / 2
                lower = jnp.where(lacks, lower, h)
                beyond = jnp.where(lacks, beyond, cuts[:, h - 1])
            # g_h / p_h and g_h / p_{h-1}, without a difference of probabilities.
            over, under = 1 - here, here
            if h + 1 < self.num_cuts:
                over = over + self._inverse(cuts[:, h] - cuts[:, h + 1])
            if h:
                under = under + self._inverse(beyond - cuts[:, h])
            score = jnp.where(values == h + 1, over, 0)
            scores.append(exposure * (score - jnp.where(values == lower, under, 0)))
            slope = exposure * here * (1 - here)
            information[h, h] = slope * (over + under)
            if h + 1 < self.num_cuts:
                beside = chance[h + 1] * (1 - chance[h + 1])
                information[h, h + 1] = -exposure * over * beside
        return CutTerms(tuple(scores), information)

    def _inverse(self, gap):
        """1 / (e^gap - 1); of closed categories, whose gap is 0, any number."""
        if self.gaps:
            gap = jnp.where(gap > 0, gap, jnp.where(gap == 0, 1, gap))
        return 1 / jnp.expm1(gap)


class PartialCreditCells(_OrderedCells):
    """P(y) ~ exp(y eta + c_1 + ... + c_y), normalised."""

    @property
    def curvature(self) -> float:
        """The variance of a response that is 0 or C - 1, each with chance 1/2."""
        return self.num_cuts**2 / 4

    def _chances(self, eta, cuts):
        """Log of the normaliser, and P(y >= h) for h = 1 ... C - 1."""
        logits = [jnp.zeros_like(eta)]
        if self.gaps:
            exists, steps = open_categories(cuts), self._steps(eta, cuts)
            for step in steps:
                logits.append(logits[-1] + step)
            logits = [
                jnp.where(exists[:, h], logit, -CLOSED)
                for h, logit in enumerate(logits)
            ]
        else:
            below = jnp.cumsum(cuts, axis=1)
            logits += [(h + 1) * eta + below[:, h] for h in range(self.num_cuts)]
        highest = logits[0]
        for logit in logits[1:]:
            highest = jnp.maximum(highest, logit)
        weights = [jnp.exp(logit - highest) for logit in logits]
        at_least = [weights[-1]]
        for weight in weights[-2::-1]:
            at_least.insert(0, at_least[0] + weight)
        total = at_least[0]
        return highest + jnp.log(total), [x / total for x in at_least[1:]]

    def _steps(self, eta, cuts):
        """The logits of neighbouring categories; 0 over those that items lack."""
        marked = is_mark(cuts)
        return [
            jnp.where(marked[:, h], 0, eta + cuts[:, h]) for h in range(self.num_cuts)
        ]

    def cell(self, values, exposure, eta, cuts, single: bool) -> Cell:
        """The logit of y less the log of the normaliser, and y - E[y]."""
        values = category_numbers(values, self.codes)
        total, at_least = self._chances(eta, cuts)
        if self.gaps:
            logit = slope = jnp.zeros_like(eta)
            for h, step in enumerate(self._steps(eta, cuts)):
                logit = logit + jnp.where(values > h, step, 0)
                own = jnp.where(values > h, 1, 0) - at_least[h]
                slope = slope + jnp.where(is_mark(cuts[:, h]), 0, own)
            return Cell(exposure * (logit - total), exposure * slope)
        logit = values * eta
        for h in range(self.num_cuts):
            logit = logit + jnp.where(values > h, cuts[:, h], 0)
        slope = values - sum(at_least[1:], at_least[0])
        return Cell(exposure * (logit - total), exposure * slope)

    def cut_terms(self, values, exposure, eta, cuts) -> CutTerms:
        """Indicators of y >= h less their chances, and covariances of these."""
        values = category_numbers(values, self.codes)
        _, at_least = self._chances(eta, cuts)
        scores = [
            exposure * (jnp.where(values > h, 1, 0) - at_least[h])
            for h in range(self.num_cuts)
        ]
        information = {
            (h, k): exposure * at_least[k] * (1 - at_least[h])
            for h in range(self.num_cuts)
            for k in range(h, self.num_cuts)
        }
        return CutTerms(tuple(scores), information)


#: The cells that the functions of `bound` take when none are given.
LOGIT = LogitCells()
#: Bounds of the curvature of a cell: the largest of all, or its own.
CURVATURES = ("uniform", "cell")


def cells_of(model: Model, curvature: str = "uniform") -> AbstractCells:
    """What MM needs of a model's family; a ValueError for families that it cannot fit.

    >>> from irtjax.models.catalogue import graded
    >>> cells_of(graded(5)).curvature
    0.5
    """
    if curvature not in CURVATURES:
        names = " or ".join(map(repr, CURVATURES))
        raise ValueError(f"curvature {curvature!r} is not {names}")
    cells = _cells_of(model)
    if curvature == "uniform":
        return cells
    if not isinstance(cells, LogitCells):
        raise ValueError(
            f"curvature 'cell' is for right and wrong responses with a logit link, not"
            f" {model.name!r}: leave curvature out"
        )
    return LogitCells(by_cell=True)


def _cells_of(model: Model) -> AbstractCells:
    """`cells_of` with the curvature of all cells."""
    family = model.family
    if isinstance(family, Binary) and family.asymptotes == 0 and not model.has_lengths:
        return LOGIT if family.link == "logit" else ProbitCells()
    if isinstance(family, Graded | PartialCredit):
        cells = GradedCells if isinstance(family, Graded) else PartialCreditCells
        return cells(family.categories, family.codes, family.gaps)
    if isinstance(family, SpacedGraded):
        raise ValueError(
            "MM fits a graded model with positive slopes under the default priors"
            " alone: leave priors out, or use EM"
        )
    raise ValueError(
        "MM fits binary models without asymptotes (logit or probit), graded and"
        f" partial credit models, not {model.name!r}; use Gradient for its joint or EM"
        " for its marginal likelihood"
    )
