r"""Ranks of many subjects without drawing all of them.

Let :math:`T_j \sim N(t_j, r_j^2)`. The number of subjects above x has mean and variance

.. math::

    M(x) = \sum_j \Phi((t_j - x) / r_j), \qquad
    V(x) = \sum_j \Phi((t_j - x) / r_j) \Phi((x - t_j) / r_j),

a Poisson-binomial distribution, which is nearly normal where V is large. M falls in x.
So the q-quantile of the number above subject i is near :math:`M(x_q)`, with
:math:`x_q = t_i - z_q r_i`, widened for the variance of the count given x by
:math:`z_q (\sqrt{f^2 r_i^2 + V} - f r_i)`, :math:`f = -M'`, all taken at x_q.

Shared errors: with :math:`T_j = t_j + u_j'g + e_j`, the common g moves M(x) to first
order by :math:`f(x) \bar u(x)'g`, :math:`\bar u(x)` the mean loading of the subjects
near x. A move of all subjects leaves ranks as they are, so subject i is compared with
this mixture by the variance :math:`r_i^2(x) = o_i^2 + |u_i - \bar u(x)|^2`, o_i its own
error. In M and V subject j enters with :math:`r_j(t_j)`.

All sums over subjects are convolutions of histograms over (ability, error), computed
by the fast Fourier transform: time and memory are linear in the number of subjects.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import dawsn, ndtri

#: Classes of errors. With 32, M differs from its sum by less than 1e-4 of its size.
CLASSES = 32
#: Fewest and most points of the grid of abilities.
GRID = (2**12, 2**16)
#: Estimates are near each other within this share of the smaller own errors.
LOCAL = 0.08
#: Subjects in one block of the vectorised passes, so that they stay in the cache.
CHUNK = 2**15


class Mixture(NamedTuple):
    """The mixture of the normal posteriors of all subjects, by points of a grid.

    `local_loading` and `local_residual` are of those with estimates near a point.
    """

    start: float
    spacing: float
    above: np.ndarray  # [points] M, expected number of subjects above, without `exact`
    variance: np.ndarray  # [points] V, the variance of that number
    density: np.ndarray  # [points] f, expected number of subjects per unit of ability
    exact: np.ndarray  # ascending abilities with errors below the spacing, one by one
    loading: np.ndarray | None  # [points, rank] mean loading of subjects near a point
    residual: np.ndarray  # [subjects] r_j, the error of each against those near it
    local_loading: np.ndarray | None
    local_residual: np.ndarray
    own: np.ndarray  # [subjects] the part of each error that no other subject shares
    shared: np.ndarray | None  # [subjects, rank] loadings of shared errors

    def at(self, values: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Values on the grid, linear in between and constant outside."""
        place = (x - self.start) / self.spacing
        return np.interp(place, np.arange(len(values)), values)

    def mirrored(self) -> Mixture:
        """The mixture of the posteriors with the signs of abilities changed."""
        total = float(self.density.sum() * self.spacing)
        return self._replace(
            start=-(self.start + self.spacing * (len(self.above) - 1)),
            above=np.maximum(total - self.above[::-1], 0),
            variance=self.variance[::-1],
            density=self.density[::-1],
            exact=-self.exact[::-1],
            loading=None if self.loading is None else self.loading[::-1],
        )

    def number_above(self, x: np.ndarray, ties: bool = False) -> np.ndarray:
        """M(x); with ties, exact points at x count too."""
        side = "left" if ties else "right"
        count = self.exact.size - np.searchsorted(self.exact, x, side=side)
        return self.at(self.above, x) + count

    def loading_at(self, x: np.ndarray) -> np.ndarray:
        """The mean loading near x, `[size of x, rank]`."""
        assert self.loading is not None
        return _on_grid(self.loading, (x - self.start) / self.spacing)


def mixture_of(
    theta: np.ndarray, own: np.ndarray, shared: np.ndarray | None
) -> Mixture:
    """Bins the subjects of abilities `theta`; computes M, V, f and the mean loading."""
    residual, local_residual, loading, local_loading = own, own, None, None
    frame = _frame(theta, own if shared is None else _apart(own, shared, 0))
    if shared is not None:
        loading, local_loading = _mean_loadings(theta, own, shared, *frame)
        residual, local_residual = np.empty_like(own), np.empty_like(own)
        for first in range(0, theta.size, CHUNK):
            part = slice(first, first + CHUNK)
            place = (theta[part] - frame[0]) / frame[1]
            for means, errors in ((loading, residual), (local_loading, local_residual)):
                near = _on_grid(means, place)
                errors[part] = _apart(own[part], shared[part], near)
    start, spacing, size = frame
    smooth = residual >= spacing
    above, variance, density = np.zeros((3, size))
    if smooth.any():
        levels, counts = histogram(theta[smooth], residual[smooth], *frame, CLASSES)
        above, variance, density = _convolved(levels, counts, spacing)
    return Mixture(
        start,
        spacing,
        above,
        variance,
        density,
        np.sort(theta[~smooth]),
        loading,
        residual,
        local_loading,
        local_residual,
        own,
        shared,
    )


def _apart(own: np.ndarray, shared: np.ndarray, near: np.ndarray | int) -> np.ndarray:
    """Errors against subjects with the loadings `near`."""
    away = shared - near
    return np.sqrt(own**2 + np.einsum("ij,ij->i", away, away))


def _on_grid(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Rows of values `[points, rank]`, linear between points, constant outside."""
    place = np.clip(place, 0, len(values) - 1.001)
    left = place.astype(np.int64)
    share = (place - left)[:, None]
    return (1 - share) * values[left] + share * values[left + 1]


def _frame(theta: np.ndarray, error: np.ndarray) -> tuple[float, float, int]:
    """Start, spacing and size of a grid that covers the abilities and their errors."""
    low, high = float(np.min(theta - 9 * error)), float(np.max(theta + 9 * error))
    width = max(high - low, 1e-9 * (1 + abs(low) + abs(high)))
    wanted = np.quantile(error, 0.01) / 8
    size = width / wanted if wanted > 0 else np.inf
    size = int(2 ** np.ceil(np.log2(np.clip(size, *GRID))))
    return low - 0.01 * width, 1.02 * width / (size - 1), size


def error_classes(error: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Levels of errors, and the place of each error among them, as a real number."""
    # Quantiles: a few very large or small errors cost no accuracy.
    shares = np.linspace(0, 1, max(number - 4, 2))
    shares = np.concatenate([shares, [0.001, 0.01, 0.99, 0.999]])
    levels = np.unique(np.quantile(error, shares))
    # Differences of rounding are no classes.
    keep = np.diff(levels, prepend=-np.inf) > 1e-9 * levels[-1]
    levels = np.maximum(levels[keep], 1e-300)
    logs = np.log(np.maximum(error, 1e-300))
    return levels, np.interp(logs, np.log(levels), np.arange(float(len(levels))))


def histogram(theta, error, start: float, spacing: float, size: int, number: int):
    """Levels of errors, and counts `[levels, size]` shared by neighbouring bins."""
    levels, row = error_classes(error, number)
    column = (theta - start) / spacing
    i, j = row.astype(np.int64), column.astype(np.int64)
    # Shares in two bins and two classes, by the distances, keep the means of both.
    a, b = row - i, column - j
    down, right = np.minimum(i + 1, len(levels) - 1), np.minimum(j + 1, size - 1)
    counts = np.zeros(len(levels) * size)
    for line, p in ((i, 1 - a), (down, a)):
        for place, q in ((j, 1 - b), (right, b)):
            counts += np.bincount(line * size + place, p * q, counts.size)
    return levels, counts.reshape(len(levels), size)


def _convolved(levels, counts, spacing):
    """M, V and f on the grid from the histogram."""
    # The Fourier transform of Phi(z) Phi(-z) is exp(-w^2 / 4) 2 D(w / 2) / (sqrt(pi) w)
    # with Dawson's integral D: Phi(z) Phi(-z) is half the chance that z lies between
    # two independent standard normal variables.
    size = counts.shape[1]
    frequency = 2 * np.pi * np.fft.rfftfreq(size, spacing)
    density, variance = np.zeros((2, frequency.size), complex)
    for level, row in zip(levels, counts, strict=True):
        transformed = np.fft.rfft(row)
        # Sharing between two bins has added a variance of spacing^2 / 6 on average.
        narrow = np.sqrt(max(level**2 - spacing**2 / 6, 0))
        w = frequency * narrow
        density += transformed * np.exp(-(w**2) / 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            kernel = np.exp(-(w**2) / 4) * 2 * dawsn(w / 2) / (np.sqrt(np.pi) * w)
        kernel[w == 0] = 1 / np.sqrt(np.pi)
        variance += transformed * narrow * kernel
    mass = np.maximum(np.fft.irfft(density, size), 0)
    above = np.cumsum(mass[::-1])[::-1] - mass / 2
    variance_above = np.maximum(np.fft.irfft(variance, size), 0) / spacing
    return above, variance_above, mass / spacing


def _mean_loadings(theta, own, shared, start: float, spacing: float, size: int):
    """Mean loadings of those with abilities, and with estimates, near each point."""
    levels, place = error_classes(np.maximum(own, spacing), 8)
    row = np.rint(place).astype(np.int64)
    column = np.rint((theta - start) / spacing).astype(np.int64)
    index = row * size + column
    frequency = 2 * np.pi * np.fft.rfftfreq(size, spacing)
    wide = np.exp(-((frequency * levels[:, None]) ** 2) / 2)
    narrow = np.exp(-((frequency * np.maximum(LOCAL * levels[0], spacing)) ** 2) / 2)

    def smoothed(weights: np.ndarray | None):
        counts = np.bincount(index, weights, len(levels) * size).astype(np.float64)
        transformed = np.fft.rfft(counts.reshape(len(levels), size))
        return (
            np.fft.irfft(np.sum(transformed * wide, axis=0), size),
            np.fft.irfft(np.sum(transformed, axis=0) * narrow, size),
        )

    sums = zip(*(smoothed(column) for column in shared.T), strict=True)
    means, points = [], np.arange(size)
    for weight, each in zip(smoothed(None), sums, strict=True):
        populated = weight > 1e-6
        # Where nobody is near, the mean of the nearest point with some.
        places = np.clip(
            np.searchsorted(points[populated], points), 0, populated.sum() - 1
        )
        mean = np.stack(each, axis=1) / np.where(populated, weight, 1)[:, None]
        means.append(mean[points[populated][places]])
    return means


def quantile_ranks(theta, mixture: Mixture, level: float) -> list[np.ndarray]:
    """Ends of the central rank intervals, best and worst, `[subjects]` each."""
    z = float(ndtri(0.5 + level / 2))
    ends = []
    for sign in (1, -1):
        # Above by z errors: the best rank; below: the worst.
        end = np.empty(theta.size)
        for start in range(0, theta.size, CHUNK):
            part = slice(start, start + CHUNK)
            error = mixture.residual[part]
            x = theta[part] + sign * z * error
            if mixture.shared is not None:
                near = mixture.loading_at(x)
                error = _apart(mixture.own[part], mixture.shared[part], near)
                x = theta[part] + sign * z * error
            count = mixture.number_above(x, ties=sign < 0)
            slope = mixture.at(mixture.density, x) * error
            noise = np.sqrt(slope**2 + mixture.at(mixture.variance, x)) - slope
            # A subject is not above itself: its own part of the count is removed.
            exact = mixture.residual[part] < mixture.spacing
            itself = np.where(exact, float(sign < 0), 0.5 - sign * level / 2)
            end[part] = count - itself - sign * z * noise
        ends.append(1 + np.clip(np.rint(end), 0, theta.size - 1).astype(np.int64))
    return ends
