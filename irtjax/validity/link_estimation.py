r"""Constants that put several calibrations on one scale, with their errors.

Calibration k has items with curves of a theta + d. Abilities of its scale are those of
the first calibration by

    theta_1 = A_k theta_k + B_k,    a_1 = a_k / A_k,    d_1 = d_k - a_k B_k / A_k.   (1)

Let r_m be the difference of (a, d) of an item in two calibrations, both on the first
scale by (1), and T_m its covariance given the constants. Both items have errors, so the
constants minimise the sum over items of the distance in which T_m depends on them too:
that is maximum likelihood of normal errors with the true (a, d) of items profiled out.

    weighted       sum_m w_m delta_m^2,          delta_m^2 = r_m' T_m^-1 r_m,
    robust         sum_m w_m rho(delta_m),       rho Tukey's bisquare,
    haebara        sum_m w_m E[(P_m - P'_m)^2],
    stocking_lord  sum over pairs of E[(sum_m w_m (P_m - P'_m))^2],                  (2)

E the mean over the populations of both. Each two calibrations with common items count,
with w_m = 2 / (calibrations that have the item), so that the sum over pairs is that of
distances from the mean of all (Battauz 2017, Psychometrika 82). Moments of two
calibrations have closed forms, mean(a_k) / mean(a_1) and the like.

Where items differ by more than their errors, as those of a model that fits poorly do,
delta_m^2 of "robust" is over their dispersion s^2, as if a fifth of the items drifted:
the median of delta^2 over the 62.5 % quantile of chi-square, if that is above 1.

**Errors.** Items of one calibration err on their own, with covariance S_j, and together
by the location and the scale e of their calibration, t = theta + e_0 + e_1 theta, with
the covariance V. The constants are functions of all item coordinates x, by (2)
implicitly; their covariance is

    C = sum_j D_j S_j D_j' + sum_k F_k V_k F_k',   D_j = d eta / d x_j,
    F_k = sum_j D_j (d x_j / d e),                 d eta / d x = -H^-1 d^2 Q / d eta dx.

**Location and scale of one calibration.** Posterior means m of normal populations move
by k e_0 + m (2 k - 1) e_1, k = 1 - var(theta | y) / var(theta); V follows from the
shared errors of the calibrated abilities by regression on these two.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chi2

from irtjax.calibration.item_error import item_errors
from irtjax.calibration.rescaled import moved_item
from irtjax.calibration.score_curve import errors_given_scale
from irtjax.calibration.tables import floats

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.models.family import AbstractResponseFamily

#: Standard normal nodes of a population, with their weights.
NODES = np.linspace(-4.0, 4.0, 33)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
#: Share of items without drift that have no weight in the robust link: of normal errors
#: its efficiency is then 87 % with two parameters of an item.
NO_WEIGHT = 1 / 3000
#: Least share of an item's variance that is its own.
LEAST_OWN = 0.1
#: Quantile of items without drift that is the median of all if a fifth drift, and the
#: number of items from which their dispersion is estimated.
QUANTILE, ENOUGH = 0.5 / 0.8, 10
#: Newton steps at the most, and the step that ends them.
MOST_STEPS, TOLERANCE = 200, 1e-12
#: Step of differences of analytic first derivatives: errors of 1e-10 of their size.
STEP = 1e-5


class Form(NamedTuple):
    """One calibration as arrays.

    Attributes:
        items: `[items]` names.
        x: `[items, columns]` coordinates, of the family with slopes of any sign.
        own: `[items, columns, columns]` covariance given location and scale; NaN where
            there is none.
        moves: `[items, columns, 2]` derivatives of x in e_0 and e_1.
        scale: `[2, rank]` L with V = L L', in the factors of shared errors.
        population: Mean and standard deviation of ability.
        subjects: `[subjects]` names.
        ability: `[subjects]` abilities.
        design: `[subjects, 2]` derivatives of abilities in e_0 and e_1.
        rest: `[subjects, rank]` other loadings of these factors.
        error: `[subjects]` standard errors of their own.
    """

    items: np.ndarray
    x: np.ndarray
    own: np.ndarray
    moves: np.ndarray
    scale: np.ndarray
    population: tuple[float, float]
    subjects: np.ndarray
    ability: np.ndarray
    design: np.ndarray
    rest: np.ndarray
    error: np.ndarray

    @classmethod
    def of(cls, fit: Calibration) -> Form:
        """The items and the abilities of a calibration with their errors."""
        family, any_sign = fit.model.family, family_of(fit)
        items = jax.tree.map(
            lambda part: jnp.asarray(part, jnp.float64), fit.parameters.items
        )
        x, moves, steps = map(np.asarray, _coordinates(family, any_sign, items))
        ability, error = floats(fit.abilities.table, "ability", "ability_se")
        design, rest, scale = _shared_parts(fit, ability)
        errors = item_errors(fit)
        own = np.full((*x.shape, x.shape[1]), np.nan)
        if errors is not None:
            covariance = steps @ np.asarray(errors.items) @ np.swapaxes(steps, 1, 2)
            own = _own(covariance, moves, scale @ scale.T)
        mean, sd = fit.parameters.population.mean, fit.parameters.population.sd
        if np.size(mean) != 1:
            mean, sd = np.nanmean(ability), np.nanstd(ability)
        population = float(np.ravel(mean)[0]), float(np.ravel(sd)[0])
        if fit.ability_shared is not None:
            square = error**2 - np.sum(np.square(fit.ability_shared), axis=1)
            error = np.sqrt(np.maximum(square, 0))
        return cls(
            np.asarray(fit.item_names),
            x,
            own,
            moves,
            scale,
            population,
            np.asarray(fit.subject_names),
            ability,
            design,
            rest,
            error,
        )


class FormPairs(NamedTuple):
    """Items that two calibrations have, all pairs of calibrations after each other.

    Attributes:
        first, second: `[M]` places of the item among the items of all calibrations.
        form, other: `[M]` their calibrations.
        weight: `[M]` 2 / number of calibrations that have the item.
        group: `[M]` the pair of calibrations, from 0.
    """

    first: np.ndarray
    second: np.ndarray
    form: np.ndarray
    other: np.ndarray
    weight: np.ndarray
    group: np.ndarray


class LinkEstimate(NamedTuple):
    """Constants of all calibrations after the first, and how they depend on items.

    Attributes:
        constants: `[forms, 2]` A and B; 1 and 0 of the first.
        derivative: `[forms, 2, items, columns]` in the coordinates of the items of all
            calibrations.
        own: `[forms * 2, forms * 2]` covariance due to own errors of items and of
            subjects that link.
        by_scale: `[forms, forms * 2, 2]` F, derivatives in the e of each calibration.
        covariance: The same with errors of location and scale.
        dispersion: s^2, 1 for other methods than "robust".
        by_subjects: The part of `own` that is due to subjects.
    """

    constants: np.ndarray
    derivative: np.ndarray
    own: np.ndarray
    by_scale: np.ndarray
    covariance: np.ndarray
    dispersion: float = 1.0
    by_subjects: np.ndarray | float = 0.0


def family_of(fit: Calibration) -> AbstractResponseFamily:
    """The family of a calibration, with slopes of any sign."""
    family = fit.model.family
    return family.with_any_sign() or family


def _shared_parts(
    fit: Calibration, ability: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What location and scale do to abilities, other shared errors, and L."""
    carried = np.ones_like(ability)
    if fit.parameters.theta is None:
        sd = float(np.mean(np.asarray(fit.parameters.population.sd)))
        carried = 1 - np.minimum(errors_given_scale(fit) / sd, 1) ** 2
    design = np.column_stack([carried, ability * (2 * carried - 1)])
    if not fit.model.family.has_slope:
        design[:, 1] = 0
    if fit.ability_shared is None:
        return design, np.zeros((len(ability), 0)), np.zeros((2, 0))
    shared = np.asarray(fit.ability_shared, float)
    usable = np.isfinite(design).all(axis=1) & np.isfinite(shared).all(axis=1)
    loadings = np.linalg.pinv(design[usable]) @ shared[usable]
    return design, shared - design @ loadings, loadings


def _own(covariance: np.ndarray, moves: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """S: covariances of items less that of location and scale; NaN if not positive."""
    covariance = np.asarray(covariance, float)
    own = np.full_like(covariance, np.nan)
    usable = np.isfinite(covariance).all(axis=(1, 2))
    whole = covariance[usable]
    error = np.sqrt(np.maximum(np.diagonal(whole, axis1=1, axis2=2), 0))
    unit = np.where(error > 0, error, 1)
    unit = unit[:, :, None] * unit[:, None, :]
    values, vectors = np.linalg.eigh(whole / unit)
    root = np.sqrt(np.maximum(values, 0))
    turn = vectors * np.where(root > 0, 1 / np.where(root > 0, root, 1), 0)[:, None]
    shared = moves[usable] @ scale @ np.swapaxes(moves[usable], 1, 2) / unit
    rest = np.eye(whole.shape[1]) - np.swapaxes(turn, 1, 2) @ shared @ turn
    values, basis = np.linalg.eigh(rest)
    back = (vectors * root[:, None]) @ basis
    variances = np.maximum(values, LEAST_OWN)
    own[usable] = unit * ((back * variances[:, None]) @ np.swapaxes(back, 1, 2))
    return own


@functools.partial(jax.jit, static_argnums=(0, 1))
def _coordinates(
    family: AbstractResponseFamily, any_sign: AbstractResponseFamily, items: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Coordinates x, `moves`, and derivatives of x in the family's coordinates."""

    def of_one(item: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        moved = lambda e: any_sign.unconstrain(moved_item(family, item, 1 + e[1], e[0]))
        convert = lambda x: any_sign.unconstrain(family.constrain(x))
        moves = jax.jacfwd(moved)(jnp.zeros(2))
        return moved(jnp.zeros(2)), moves, jax.jacfwd(convert)(family.unconstrain(item))

    return jax.vmap(of_one)(items)


@functools.partial(jax.jit, static_argnums=0)
def _lines(family: AbstractResponseFamily, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(a, d_1, ...) of each item, and its derivatives in the coordinates."""

    def of_one(x: jax.Array) -> jax.Array:
        item = family.constrain(x)
        parts = jnp.atleast_1d(item.discrimination), jnp.atleast_1d(item.intercept)
        return jnp.concatenate(parts)

    return jax.vmap(of_one)(x), jax.vmap(jax.jacfwd(of_one))(x)


@functools.partial(jax.jit, static_argnums=0)
def curves(
    family: AbstractResponseFamily, x: jax.Array, theta: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Expected responses of items at abilities `[items, nodes]`, and their slopes."""

    def of_one(x: jax.Array, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        response = functools.partial(family.expected_response, family.constrain(x))
        return jax.jvp(jax.vmap(response), (theta,), (jnp.ones_like(theta),))

    return jax.vmap(of_one)(x, theta)


class ItemLines(NamedTuple):
    """(a, d) of the items of all calibrations.

    Attributes:
        x: `[n, columns]` coordinates.
        y: `[n, lines]` (a, d).
        slopes: `[n, lines, columns]` derivatives of y in x.
        covariance: `[n, lines, lines]` of y given location and scale.
    """

    x: np.ndarray
    y: np.ndarray
    slopes: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, family: AbstractResponseFamily, forms: Sequence[Form]) -> ItemLines:
        """Those of calibrations; items without errors have a covariance of NaN."""
        x = np.concatenate([form.x for form in forms])
        own = np.concatenate([form.own for form in forms])
        y, slopes = (np.asarray(part) for part in _lines(family, x))
        return cls(x, y, slopes, slopes @ own @ np.swapaxes(slopes, 1, 2))


def line_matrices(constants: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
    """`[M, size, size]` of (1), and its derivatives in log A and B."""
    a, b = constants.T
    matrix = np.tile(np.eye(size), (len(a), 1, 1))
    matrix[:, 0, 0], matrix[:, 1:, 0] = 1 / a, -(b / a)[:, None]
    by_log_a, by_b = np.zeros_like(matrix), np.zeros_like(matrix)
    by_log_a[:, 0, 0], by_log_a[:, 1:, 0] = -1 / a, (b / a)[:, None]
    by_b[:, 1:, 0] = -(1 / a)[:, None]
    return matrix, by_log_a, by_b


class Distances(NamedTuple):
    """delta^2, r and T of (2), with derivatives in log A and B of both calibrations."""

    square: np.ndarray
    gradient: np.ndarray
    r: np.ndarray
    moves: np.ndarray
    total: np.ndarray


def distances(
    pairs: FormPairs,
    items: ItemLines,
    constants: np.ndarray,
    first_line: int,
    y: Sequence[np.ndarray] | None = None,
) -> Distances:
    """Distances of the items of pairs, `[M]`; `first_line` is 1 without slopes."""
    if y is None:
        y = [items.y[place] for place in (pairs.first, pairs.second)]
    rows = slice(first_line, None)
    r, total, moves, spreads = 0.0, 0.0, [], []
    for sign, form, place, lines in (
        (1, pairs.form, pairs.first, y[0]),
        (-1, pairs.other, pairs.second, y[1]),
    ):
        matrix, *steps = line_matrices(constants[form], lines.shape[1])
        spread = items.covariance[place] @ np.swapaxes(matrix, 1, 2)
        r = r + sign * np.einsum("mab,mb->ma", matrix, lines)[:, rows]
        total = total + (matrix @ spread)[:, rows, rows]
        for step in steps:
            moves.append(sign * np.einsum("mab,mb->ma", step, lines)[:, rows])
            spreads.append((step @ spread)[:, rows, rows])
    applied = np.linalg.solve(total, r[:, :, None])[:, :, 0]
    by_constants = np.stack(moves, axis=2)
    gradient = 2 * np.einsum("ma,mae->me", applied, by_constants)
    gradient -= 2 * np.einsum("ma,emab,mb->me", applied, np.stack(spreads), applied)
    square = np.einsum("ma,ma->m", applied, r)
    return Distances(square, gradient, r, by_constants, total)


class ByDistance(NamedTuple):
    """The criteria "weighted" and "robust"."""

    family: AbstractResponseFamily
    pairs: FormPairs
    items: ItemLines
    limit: float

    def terms(
        self, constants: np.ndarray, y: Sequence[np.ndarray] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values `[M]` and derivatives `[M, 4]`; bisquares where there is a limit."""
        first_line = 0 if self.family.has_slope else 1
        square, gradient, *_ = distances(
            self.pairs, self.items, constants, first_line, y
        )
        rest = 1 - np.minimum(square / self.limit, 1)
        value = square, np.ones_like(square)
        if np.isfinite(self.limit):
            value = self.limit / 3 * (1 - rest**3), rest**2
        weight = self.pairs.weight
        return weight * value[0], (weight * value[1])[:, None] * gradient

    def cross(self, constants: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives `[M, 4, columns]` of `terms` in the coordinates of both items."""
        places = self.pairs.first, self.pairs.second
        parts = _differences(
            lambda y: self.terms(constants, y)[1], [self.items.y[p] for p in places]
        )
        one, two = (
            part @ self.items.slopes[place]
            for part, place in zip(parts, places, strict=True)
        )
        return one, two


class ByCurves(NamedTuple):
    """The criteria "haebara" and, of sums over items, "stocking_lord"."""

    family: AbstractResponseFamily
    pairs: FormPairs
    items: ItemLines
    populations: np.ndarray
    summed: bool

    def gaps(
        self, constants: np.ndarray, x: Sequence[np.ndarray] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Weighted P - P' `[2, M, nodes]` at either population, and derivatives."""
        forms = self.pairs.form, self.pairs.other
        if x is None:
            x = self.items.x[self.pairs.first], self.items.x[self.pairs.second]
        values, slopes = [], []
        for side in (0, 1):
            here, there = forms[side], forms[1 - side]
            mean, sd = self.populations[here].T
            theta = mean[:, None] + sd[:, None] * NODES
            a, b = (column[:, None] for column in constants[here].T)
            c, e = (column[:, None] for column in constants[there].T)
            away = (a * theta + b - e) / c
            near = np.asarray(curves(self.family, x[side], theta)[0])
            far, slope = map(np.asarray, curves(self.family, x[1 - side], away))
            ones = np.ones_like(away)
            steps = [a * theta / c, ones / c, -away, -ones / c]
            steps = steps if side == 0 else steps[2:] + steps[:2]
            sign = 1 - 2 * side
            values.append(sign * (near - far))
            slopes.append(-sign * slope[:, :, None] * np.stack(steps, axis=2))
        weight = np.sqrt(self.pairs.weight)[:, None]
        if self.summed:
            weight = weight**2
        return weight * np.stack(values), weight[:, :, None] * np.stack(slopes)

    def _totals(self, terms: np.ndarray) -> np.ndarray:
        """Sums over the items of each pair, for each of its items; or the terms."""
        if not self.summed:
            return terms
        group = self.pairs.group
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        return np.add.reduceat(terms, starts, axis=1)[:, group]

    def terms(self, constants: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values `[M]` and derivatives `[M, 4]`."""
        gap, slope = self.gaps(constants)
        total = self._totals(gap)
        value = np.einsum("smq,smq,q->m", gap, total, WEIGHTS)
        return value, 2 * np.einsum("smq,smqe,q->me", total, slope, WEIGHTS)

    def cross(self, constants: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives `[M, 4, columns]` of `terms` in the coordinates of both items."""
        gap, slope = self.gaps(constants)
        total, total_slope = self._totals(gap), self._totals(slope)

        def gaps_and_slopes(x: Sequence[np.ndarray]) -> np.ndarray:
            gap, slope = self.gaps(constants, x)
            return np.concatenate([gap[..., None], slope], axis=-1)

        x = [self.items.x[p] for p in (self.pairs.first, self.pairs.second)]
        one, two = (
            2 * np.einsum("smqc,smqe,q->mec", part[..., 0, :], total_slope, WEIGHTS)
            + 2 * np.einsum("smq,smqec,q->mec", total, part[..., 1:, :], WEIGHTS)
            for part in _differences(gaps_and_slopes, x)
        )
        return one, two


def _differences(
    function: Callable[[Sequence[np.ndarray]], np.ndarray], pair: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Derivatives of a function of two arrays in each column of either, by the last.

    Central differences of analytic functions.
    """
    results = []
    for side in (0, 1):
        columns = []
        for step in STEP * np.eye(pair[side].shape[1]):
            ends = []
            for sign in (1, -1):
                moved = [*pair]
                moved[side] = pair[side] + sign * step
                ends.append(function(moved))
            columns.append((ends[0] - ends[1]) / (2 * STEP))
        results.append(np.stack(columns, axis=-1))
    return results


def pairs_of(
    forms: Sequence[Form],
    usable: Sequence[np.ndarray],
    chosen: Sequence[tuple[int, int]],
) -> FormPairs:
    """The common usable items of chosen pairs of calibrations."""
    starts = np.cumsum([0, *(len(form.items) for form in forms)])
    names = [form.items[mask] for form, mask in zip(forms, usable, strict=True)]
    places = [np.flatnonzero(mask) for mask in usable]
    labels, count = np.unique(np.concatenate(names), return_counts=True)
    parts = []
    for group, (form, other) in enumerate(chosen):
        shared, one, two = np.intersect1d(
            names[form], names[other], assume_unique=True, return_indices=True
        )
        parts.append(
            FormPairs(
                starts[form] + places[form][one],
                starts[other] + places[other][two],
                np.full(len(shared), form),
                np.full(len(shared), other),
                2 / count[np.searchsorted(labels, shared)],
                np.full(len(shared), group),
            )
        )
    if not parts:
        return FormPairs(*np.zeros((6, 0), int))
    return FormPairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def criterion(
    family: AbstractResponseFamily,
    method: str,
    forms: Sequence[Form],
    items: ItemLines,
    pairs: FormPairs,
    dispersion: float = 1.0,
) -> ByDistance | ByCurves:
    """The criterion (2) of a method."""
    if method in ("haebara", "stocking_lord"):
        populations = np.array([form.population for form in forms])
        return ByCurves(family, pairs, items, populations, method == "stocking_lord")
    size = items.y.shape[1] - (not family.has_slope)
    limit = np.inf
    if method == "robust":
        limit = dispersion * float(chi2.isf(NO_WEIGHT, size))
    return ByDistance(family, pairs, items, limit)


def dispersion_of(
    family: AbstractResponseFamily,
    items: ItemLines,
    pairs: FormPairs,
    constants: np.ndarray,
) -> float:
    """s^2, by which items differ more than by their errors."""
    if len(pairs.first) < ENOUGH:
        return 1.0
    first_line = 0 if family.has_slope else 1
    square = distances(pairs, items, constants, first_line).square
    usual = chi2.ppf(QUANTILE, items.y.shape[1] - first_line)
    return max(1.0, float(np.median(square) / usual))


def solve(
    family: AbstractResponseFamily,
    method: str,
    forms: Sequence[Form],
    items: ItemLines,
    pairs: FormPairs,
    start: np.ndarray,
) -> LinkEstimate:
    """Constants by a criterion of (2), with errors; `start` has A and B of all."""
    if method != "robust":
        return _solved(family, method, forms, items, pairs, start, 1.0)
    result = None
    for _ in range(2):  # The dispersion about the medians, then about the link.
        begin = start if result is None else result.constants
        dispersion = dispersion_of(family, items, pairs, begin)
        if result is None or dispersion != result.dispersion:
            result = _solved(family, method, forms, items, pairs, begin, dispersion)
    assert result is not None
    return result


def _solved(
    family: AbstractResponseFamily,
    method: str,
    forms: Sequence[Form],
    items: ItemLines,
    pairs: FormPairs,
    start: np.ndarray,
    dispersion: float,
) -> LinkEstimate:
    """The estimate of `solve` at a dispersion."""
    terms = criterion(family, method, forms, items, pairs, dispersion)
    shape = len(forms), 2
    free = np.ones(shape, bool)
    free[0] = False
    free[:, 0] &= family.has_slope
    free = np.flatnonzero(free)
    places = np.stack(
        [2 * form + k for form in (pairs.form, pairs.other) for k in (0, 1)]
    )

    def constants_at(eta: np.ndarray) -> np.ndarray:
        full = np.zeros(2 * len(forms))
        full[free] = eta
        log_a, b = full.reshape(shape).T
        return np.stack([np.exp(log_a), b], axis=1)

    def value(eta: np.ndarray) -> tuple[float, np.ndarray]:
        total, gradient = terms.terms(constants_at(eta))
        full = np.zeros(2 * len(forms))
        np.add.at(full, places.T, gradient)
        return float(total.sum()), full[free]

    first = np.stack([np.log(start[:, 0]), start[:, 1]], axis=1).ravel()[free]
    eta, hessian = minimum(value, first)
    constants = constants_at(eta)
    cross = np.zeros((2 * len(forms), *items.x.shape))
    for part, place in zip(
        terms.cross(constants), (pairs.first, pairs.second), strict=True
    ):
        np.add.at(cross, (places.T, place[:, None]), part)
    derivative = np.zeros_like(cross)
    derivative[free] = -np.linalg.solve(
        hessian, cross[free].reshape(len(free), -1)
    ).reshape(-1, *items.x.shape)
    derivative = derivative.reshape(*shape, *items.x.shape)
    derivative[:, 0] *= constants[:, :1, None]
    return with_errors(constants, derivative, forms, dispersion)


def solve_moments(
    method: str, forms: Sequence[Form], items: ItemLines, pairs: FormPairs, slope: bool
) -> LinkEstimate:
    """Constants of the second of two calibrations by moments, with their errors."""

    def constants(y: jax.Array) -> jax.Array:
        one, two = y[pairs.first], y[pairs.second]
        b, other_b = (-part[:, 1:] / part[:, :1] for part in (one, two))
        ratio = jnp.ones(())
        if slope and method == "mean_mean":
            ratio = two[:, 0].mean() / one[:, 0].mean()
        elif slope:
            ratio = b.std() / other_b.std()
        return jnp.stack([ratio, b.mean() - ratio * other_b.mean()])

    y = jnp.asarray(items.y)
    by_y = np.asarray(jax.jacrev(constants)(y))
    derivative = np.zeros((2, 2, *items.x.shape))
    derivative[1] = np.einsum("eny,nyx->enx", by_y, items.slopes)
    of_forms = np.stack([np.array([1.0, 0.0]), np.asarray(constants(y))])
    return with_errors(of_forms, derivative, forms)


def with_errors(
    constants: np.ndarray,
    derivative: np.ndarray,
    forms: Sequence[Form],
    dispersion: float = 1.0,
    by_subjects: np.ndarray | float = 0.0,
    moves: np.ndarray | float = 0.0,
) -> LinkEstimate:
    """The covariance of constants by the delta method.

    `by_subjects` and `moves` are the parts of `own` and `by_scale` that are not by
    items.
    """
    own = np.concatenate([form.own for form in forms])
    flat = derivative.reshape(-1, *derivative.shape[2:])
    used = np.abs(flat).sum(axis=(0, 2)) > 0
    part = flat[:, used]
    covariance = np.einsum("ejp,jpq,fjq->ef", part, own[used], part, optimize=True)
    covariance = covariance * dispersion + by_subjects
    by_scale = moves_of_forms(flat, forms) + moves
    parts = [by_e @ form.scale for by_e, form in zip(by_scale, forms, strict=True)]
    total = covariance + sum(part @ part.T for part in parts)
    return LinkEstimate(
        constants, derivative, covariance, by_scale, total, dispersion, by_subjects
    )


def moves_of_forms(derivative: np.ndarray, forms: Sequence[Form]) -> np.ndarray:
    """`[forms, e, 2]` derivatives in location and scale of each calibration.

    Args:
        derivative: `[e, items, columns]` in the items of all.
        forms: The calibrations.
    """
    ends = np.cumsum([len(form.items) for form in forms])
    parts = np.split(derivative, ends[:-1], axis=1)
    return np.stack(
        [
            np.einsum("ejp,jpc->ec", part, form.moves)
            for part, form in zip(parts, forms, strict=True)
        ]
    )


def minimum(
    value: Callable[[np.ndarray], tuple[float, np.ndarray]], eta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The minimum of a criterion, and the Hessian there.

    Newton steps with second derivatives by differences of the gradient. Directions of
    negative curvature are followed downhill; steps that raise the criterion are halved.
    """

    def curvature(eta: np.ndarray) -> np.ndarray:
        steps = STEP * np.eye(len(eta))
        rows = [(value(eta + x)[1] - value(eta - x)[1]) / (2 * STEP) for x in steps]
        return (np.array(rows) + np.array(rows).T) / 2

    now, gradient = value(eta)
    for _ in range(MOST_STEPS):
        values, vectors = np.linalg.eigh(curvature(eta))
        values = np.maximum(np.abs(values), 1e-10 * np.abs(values).max() + 1e-300)
        step = -vectors @ ((vectors.T @ gradient) / values)
        step = step / max(1.0, float(np.abs(step).max()))
        while value(eta + step)[0] > now and np.abs(step).max() > TOLERANCE:
            step = step / 2
        eta = eta + step
        now, gradient = value(eta)
        if np.abs(step).max() <= TOLERANCE:
            break
    return eta, curvature(eta)
