"""M2 and C2: a model against the means and products of its items' responses.

With moments m of the responses (the share of each category of an item, and the mean
product of each two items), their values under the model m(b), residuals e = m - m(b),
their covariance X / N under the model, and derivatives D of m(b) in its parameters,

    M2 = N min_x (e - D x)' X^-1 (e - D x),

which is chi-squared with as many degrees of freedom as moments less parameters if the
model holds, for any consistent estimates (Maydeu-Olivares and Joe 2006). With more than
two categories only products of scores are taken: C2 (Cai and Monroe 2014).

X has one row per moment, 31,125 of 249 items. It is never formed. Given ability,
responses are independent, and with residuals r = y - E(y | ability)

    y_i y_j = S_i S_j + S_i r_j + S_j r_i + r_i r_j.

The last term has a diagonal covariance W. The others are combinations of few numbers:
those of an item r_j times functions of ability, and those of ability alone. Hence
X = W + U U' with about 20 columns of U for each item, and M2 is a ridge regression on
[U, D] with weights W^-1, in which moments of single items, without a term in W, are
constraints.

Responses may be missing if that depends neither on ability nor on other items. With v
the indicator of a response over its share r, moments are means over the responses that
exist, whose errors are those of v_i v_j (y_i y_j - m_ij). Given ability v y and v are
independent between items, so the same sums hold with them in place of y and 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import brentq
from scipy.special import chdtrc, chndtr, ndtr

from irtjax.models.family import AbstractResponseFamily
from irtjax.numerics.programs import stored_jit

#: Part of the largest eigenvalue below which functions of ability are left out: of few
#: items, and of more than `EXACT_ITEMS`. M2 of 249 items of slopes up to 5 then differs
#: by 1.3e-5 of itself, and takes a quarter of the time.
LEAST_PART, LEAST_OF_MANY = 1e-10, 1e-6
EXACT_ITEMS = 60
#: Subjects who responded to both items of a pair, below which it is left out.
LEAST_JOINT = 20
#: Degrees of freedom from which the noncentral chi-squared is taken as normal after a
#: power transformation, whose error is then below 1e-4.
MANY_DEGREES = 500


class CategoryCurves(NamedTuple):
    """Response probabilities at nodes, and their derivatives.

    Attributes:
        probabilities: `[items, nodes, C]`.
        by_item: `[items, nodes, C, columns]` in coordinates of the item.
        by_scale: `[items, nodes, C]` in the standard deviation of ability.
        codes: `[C]` score of each category.
        exists: `[items, C]` whether the item has the category.
    """

    probabilities: np.ndarray
    by_item: np.ndarray
    by_scale: np.ndarray
    codes: np.ndarray
    exists: np.ndarray

    @property
    def scores(self) -> np.ndarray:
        """Expected scores `[items, nodes]`."""
        return self.probabilities @ self.codes

    @property
    def singles(self) -> np.ndarray:
        """Categories `[items, C - 1]` whose shares are moments: all but the first."""
        first = np.argmax(self.exists, 1)[:, None] == np.arange(self.codes.size)
        return (self.exists & ~first)[:, 1:]


class Moments(NamedTuple):
    """Observed moments of responses.

    Attributes:
        shares: `[items, C]` of each category.
        products: `[items, items]` mean products of scores; 0 without joint responses.
        joint: `[items, items]` subjects who responded to both items of a pair.
        size: Subjects.
    """

    shares: np.ndarray
    products: np.ndarray
    joint: np.ndarray
    size: int

    @staticmethod
    def of(values: np.ndarray, codes: np.ndarray, seen: np.ndarray) -> Moments:
        """The moments of responses `[subjects, items]` where `seen`."""
        exists = seen.astype(np.float64)
        joint = exists.T @ exists
        equal = [((values == code) & seen).sum(0) for code in codes]
        scores = np.where(seen, values, 0).astype(np.float64)
        return Moments(
            np.stack(equal, 1) / np.diag(joint)[:, None],
            scores.T @ scores / np.maximum(joint, 1),
            joint,
            len(values),
        )

    @property
    def observed(self) -> np.ndarray:
        """Share of the subjects `[items]` who responded."""
        return np.diag(self.joint) / self.size

    @property
    def paired(self) -> np.ndarray:
        """Pairs of items `[items, items]` with enough joint responses."""
        return (self.joint >= min(LEAST_JOINT, self.size)) & ~np.eye(
            len(self.joint), dtype=bool
        )


class LimitedFit(NamedTuple):
    """M2 or C2 of a fit, and of independent items; residual correlations."""

    statistic: float
    degrees: int
    independent: float  # M2 of independent items.
    residuals: np.ndarray  # `[items, items]` correlations, observed less expected.


@stored_jit
def _curves(family: Any, rows: Any, nodes: Any, standard: Any) -> tuple[Any, ...]:
    """Probabilities and their derivatives in items and in the scale of ability."""

    def chances(row, theta):
        return jnp.exp(family.category_log_probs(family.constrain(row), theta))

    def at(row, theta):
        up = jax.jacfwd(chances, argnums=(0, 1))(row, theta)
        return chances(row, theta), *up

    over_nodes = jax.vmap(at, in_axes=(None, 0))
    values, by_item, slope = jax.vmap(over_nodes, in_axes=(0, None))(rows, nodes)
    return values, by_item, slope * standard[:, None]


def curves_of(
    family: AbstractResponseFamily,
    rows: Any,
    items: Any,
    nodes: np.ndarray,
    standard: np.ndarray,
) -> CategoryCurves:
    """The curves of items at nodes, of which `standard` are the standardised ones."""
    kind = rows.dtype
    parts = _curves(family, rows, jnp.asarray(nodes, kind), jnp.asarray(standard, kind))
    chances, by_item, by_scale = (np.asarray(x, np.float64) for x in parts)
    existing = family.existing(items)
    if existing is None:
        existing = np.ones((rows.shape[0], family.num_categories), bool)
    codes = np.asarray(family.category_codes, np.float64)
    return CategoryCurves(chances, by_item, by_scale, codes, np.asarray(existing))


def _item_terms(
    curves: CategoryCurves,
    weights: np.ndarray,
    observed: np.ndarray,
    products: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """U of terms in r_j: of shares `[items, C - 1, R]`, products `[items, items, R]`.

    The covariance of (z_j, v_j, f(ability) r_j), z the indicators of categories less
    their shares, v the weight of a response, f a basis of the curves of all items, is
    factored by its largest eigenvalues. `observed` `[items]` are shares of responses,
    `products` those of the model.
    """
    p, scores = curves.probabilities, curves.scores
    least = LEAST_PART if len(p) <= EXACT_ITEMS else LEAST_OF_MANY
    left, size, right = np.linalg.svd(scores * np.sqrt(weights), full_matrices=False)
    most = max(1, int(np.sum(size**2 > least * size[0] ** 2)))
    basis = right[:most] / np.sqrt(weights)  # Functions of ability `[most, nodes]`.
    loadings = left[:, :most] * size[:most]
    # Given ability, covariances of v (z, 1, y): E(x x') / r - E(x) E(x)'.
    num = curves.codes.size - 1
    design = np.column_stack([np.eye(num + 1)[:, 1:], np.ones(num + 1), curves.codes])
    mean = p @ design
    square = np.einsum("jqc,ca,cb->jqab", p, design, design, optimize=True)
    square /= observed[:, None, None, None]
    inner = square - mean[..., None] * mean[:, :, None]
    turn = np.tile(np.eye(num + 1), (len(p), 1, 1))
    turn[:, :num, num] = -np.einsum("q,jqc->jc", weights, p[..., 1:])
    corner = np.einsum("q,jqab->jab", weights, inner[..., :-1, :-1])
    corner = turn @ corner @ turn.swapaxes(1, 2)
    side = np.einsum("jqa,rq->jar", inner[..., :-1, -1] * weights[:, None], basis)
    side = turn @ side
    variance = inner[..., -1, -1]
    body = np.einsum("jq,rq,sq->jrs", variance * weights, basis, basis, optimize=True)
    moments = np.block([[corner, side], [side.swapaxes(1, 2), body]])
    values, vectors = np.linalg.eigh(moments)
    positive = values[:, ::-1] > least * values[:, -1:]
    rank = int(positive.sum(1).max())
    root = vectors[:, :, ::-1][:, :, :rank] * np.sqrt(
        np.where(positive, values[:, ::-1], 0)[:, None, :rank]
    )
    of_products = np.einsum("ir,jrk->jik", loadings, root[:, num + 1 :], optimize=True)
    return root[:, :num], of_products - products[..., None] * root[:, None, num]


def _normal_equations(own: np.ndarray, common: np.ndarray, root: np.ndarray, e):
    """Products of the columns of [U, D] over pairs of items, and with residuals.

    `own` `[items, items, m]` are columns of an item: at pair (j, i) those of j;
    `common` `[items, items, n]` are symmetric; `root` is W^-1/2, 0 on the diagonal.
    """
    size, _, width = own.shape
    own, common, e = own * root[..., None], common * root[..., None], e * root
    cross = own.transpose(0, 2, 1)[..., None] * own.transpose(1, 0, 2)[:, None]
    at = np.arange(size)
    cross[at, :, at] = own.transpose(0, 2, 1) @ own
    flat = common.reshape(size * size, -1)
    total = size * width
    matrix = np.empty((total + flat.shape[1],) * 2)
    matrix[:total, :total] = cross.reshape(total, total)
    side = (own.transpose(0, 2, 1) @ common).reshape(total, -1)
    matrix[:total, total:], matrix[total:, :total] = side, side.T
    # Each pair occurs twice in a symmetric array.
    matrix[total:, total:] = flat.T @ flat / 2
    by_own = (own.transpose(0, 2, 1) @ e[..., None]).reshape(-1)
    right = np.concatenate([by_own, flat.T @ e.reshape(-1) / 2])
    return matrix, right, (e**2).sum() / 2


def limited_fit(
    curves: CategoryCurves,
    weights: np.ndarray,
    observed: Moments,
    parameters: np.ndarray,
    with_scale: bool,
) -> LimitedFit:
    """M2 or C2 of responses, complete or missing at random one by one.

    Args:
        curves: Probabilities at nodes.
        weights: `[nodes]` of the population, summing to 1.
        observed: Moments of the responses.
        parameters: `[items, columns]` number of the parameter that each coordinate is,
            several being the same one if they are equal; -1 for fixed ones.
        with_scale: Whether the standard deviation of ability is a parameter too.
    """
    scores, codes = curves.scores, curves.codes
    num_items = len(scores)
    mean = scores @ weights
    products = (scores * weights) @ scores.T
    share, paired = observed.observed, observed.paired
    lack = 1 / share - 1
    variance = (curves.probabilities @ codes**2) / share[:, None] - scores**2
    noise = (variance * weights) @ variance.T
    noise -= products**2 * np.outer(lack, lack)
    root = np.where(paired, 1 / np.sqrt(np.maximum(noise, 1e-14)), 0)

    shares_of, products_of = _item_terms(curves, weights, share, products)
    slopes = np.einsum("jqcp,c->jqp", curves.by_item, codes)
    slopes = np.einsum("jqp,iq->jip", slopes * weights[:, None], scores, optimize=True)
    own = np.concatenate([products_of, slopes], 2)
    # Ability alone: the moments at each node less their means.
    half = np.sqrt(weights)
    shared = (scores[:, None] * scores[None] - products[..., None]) * half
    moved = ((curves.by_scale @ codes) * weights) @ scores.T
    common = np.concatenate([shared, (moved + moved.T)[..., None]], 2)
    matrix, right, total = _normal_equations(
        own, common, root, observed.products - products
    )

    rows, gaps = _constraints(curves, weights, observed, shares_of)
    rank = products_of.shape[2]
    random = np.zeros(own.shape[1:], bool)
    random[:, :rank] = True
    labels = np.full(own.shape[1:], -1)
    labels[:, rank:] = parameters
    last = parameters.max() + 1 if with_scale else -1
    random = np.concatenate([random.reshape(-1), np.ones(half.size, bool), [False]])
    labels = np.concatenate([labels.reshape(-1), np.full(half.size, -1), [last]])
    value, num_parameters = _smallest(matrix, right, total, rows, gaps, random, labels)
    second = (curves.probabilities @ codes**2) @ weights
    model = _correlations(products, mean, second)
    seen = observed.shares @ codes, observed.shares @ codes**2
    correlations = _correlations(observed.products, *seen)
    upper = np.triu_indices(num_items, 1)
    return LimitedFit(
        observed.size * value,
        len(gaps) + int(paired[upper].sum()) - num_parameters,
        float(np.nansum((observed.joint * paired * correlations**2)[upper])),
        np.where(paired, correlations - model, np.nan),
    )


def _constraints(
    curves: CategoryCurves, weights: np.ndarray, observed: Moments, root: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The columns of [U, D] at the shares of categories, and residuals of shares.

    `root` `[items, C - 1, R]` are the columns of U of each item.
    """
    p = curves.probabilities[..., 1:]
    share = np.einsum("q,jqc->jc", weights, p)
    single = np.einsum("q,jqcp->jcp", weights, curves.by_item[:, :, 1:])
    own = np.concatenate([root, single], 2)
    num_items, num_singles, width = own.shape
    rows = np.zeros((num_items, num_singles, num_items, width))
    at = np.arange(num_items)
    rows[at, :, at] = own
    between = (p - share[:, None]).transpose(0, 2, 1) * np.sqrt(weights)
    scale = np.einsum("q,jqc->jc", weights, curves.by_scale[..., 1:])
    common = np.concatenate([between, scale[..., None]], 2)
    flat = num_items * num_singles
    columns = np.concatenate([rows.reshape(flat, -1), common.reshape(flat, -1)], 1)
    singles = curves.singles
    return columns[singles.reshape(-1)], (observed.shares[:, 1:] - share)[singles]


def _correlations(products, mean, second) -> np.ndarray:
    """Correlations `[items, items]` of scores from moments; NaN of constants."""
    covariance = products - np.outer(mean, mean)
    np.fill_diagonal(covariance, second - mean**2)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.sqrt(np.diag(covariance))
        return covariance / np.outer(scale, scale)


def _smallest(matrix, right, total, rows, gaps, random, labels) -> tuple[float, int]:
    """The minimum over x of the ridge regression, and the number of parameters.

    min x'Kx - 2 h'x + c subject to A x = g, with 1 added to the diagonal of K at random
    columns. Columns of one parameter are added up.
    """
    names, place = np.unique(labels[labels >= 0], return_inverse=True)
    fixed = np.flatnonzero(labels >= 0)
    chosen = np.flatnonzero(random)
    add = np.zeros((fixed.size, names.size))
    add[np.arange(fixed.size), place] = 1
    body = matrix[np.ix_(chosen, chosen)]
    body[np.diag_indices_from(body)] += 1
    side, corner = matrix[np.ix_(chosen, fixed)] @ add, matrix[np.ix_(fixed, fixed)]
    corner = add.T @ corner @ add
    across = rows[:, fixed] @ add
    # Parameters in units of their information; the ridge is for those without any.
    unit = 1 / np.sqrt(np.maximum(np.diag(corner), 1e-300))
    corner = corner * unit * unit[:, None] + 1e-10 * np.eye(unit.size)
    side, across = side * unit, across * unit
    whole = np.block([[body, side], [side.T, corner]])
    h = np.concatenate([right[chosen], unit * (add.T @ right[fixed])])
    a = np.concatenate([rows[:, chosen], across], 1)
    factor, _ = cho_factor(whole, lower=True, overwrite_a=True, check_finite=False)
    images = solve_triangular(
        factor, np.column_stack([h, a.T]), lower=True, check_finite=False
    )
    first, others = images[:, 0], images[:, 1:]
    miss = others.T @ first - gaps
    schur = cho_factor(others.T @ others, lower=True)
    value = total - first @ first + miss @ cho_solve(schur, miss)
    return max(float(value), 0.0), names.size


def noncentral_chance(x: float, degrees: float, noncentral: float) -> float:
    """Chance that a noncentral chi-squared number is at most x.

    With many degrees of freedom by the power transformation of Sankaran (1963).

    >>> round(noncentral_chance(11.07, 5, 0.0), 3)
    0.95
    """
    if degrees < MANY_DEGREES:
        return float(chndtr(x, degrees, noncentral))
    n, m = degrees + noncentral, degrees + 2 * noncentral
    power = 1 - 2 * n * (degrees + 3 * noncentral) / (3 * m**2)
    part = m / n**2
    mean = 1 + power * (power - 1) * part
    mean -= power * (power - 1) * (2 - power) * (1 - 3 * power) * part**2 / 2
    sd = power * np.sqrt(2 * part) * (1 + (power - 1) * (1 - 3 * power) * part / 2)
    return float(ndtr(((x / n) ** power - mean) / sd))


def rmsea(
    statistic: float, degrees: int, size: int, level: float = 0.9
) -> tuple[float, float, float]:
    """Root mean square error of approximation and its interval.

    RMSEA = sqrt(max(X - df, 0) / (df (N - 1))) (Steiger 1990); its bounds are those of
    the noncentrality of X.

    >>> [round(x, 4) for x in rmsea(11.93841, 5, 1000)]
    [0.0373, 0.009, 0.065]
    """
    if degrees <= 0:
        return np.nan, np.nan, np.nan
    scale = degrees * (size - 1)

    def bound(chance: float) -> float:
        gap = lambda x: noncentral_chance(statistic, degrees, x) - chance
        if gap(0.0) <= 0:
            return 0.0
        high = max(2 * statistic, 1.0) + 50
        return float(brentq(gap, 0.0, high, xtol=1e-6))  # pyright: ignore[reportArgumentType]

    tail = (1 - level) / 2
    error = lambda excess: float(np.sqrt(excess / scale))
    excess = max(statistic - degrees, 0)
    return error(excess), error(bound(1 - tail)), error(bound(tail))


def p_value(statistic: float, degrees: int) -> float:
    """Chance of a chi-squared number above the statistic; NaN without degrees."""
    return float(chdtrc(degrees, statistic)) if degrees > 0 else np.nan
