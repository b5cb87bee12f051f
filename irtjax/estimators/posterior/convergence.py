"""Whether draws can be trusted, and how much: R-hat, effective draws, energies.

Rank-normalised split R-hat and effective sample sizes are those of Vehtari, Gelman,
Simpson, Carpenter and Buerkner (2021). All is computed on the host in double precision,
for blocks of parameters at once, side by side on the cores.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from irtjax._backend import num_cores
from irtjax._types import Status
from irtjax.estimators.posterior.nuts import Draws

#: Limits within which draws count as converged (Vehtari and others 2021, Section 4).
RHAT_LIMIT, ESS_LIMIT = 1.01, 400
#: Below it the momenta do not reach the energies of the posterior (Betancourt 2016).
BFMI_LIMIT = 0.3
#: Numbers in a block of draws: 2 MB, which a core keeps close by.
BLOCK = 250_000


class Diagnosis(NamedTuple):
    """Moments of draws and how well they are known, each of a parameter's shape.

    Attributes:
        mean: Mean of all draws.
        sd: Their standard deviation.
        mcse: Standard error of the mean by simulation.
        ess_bulk: Effective draws for means and medians.
        ess_tail: Effective draws for the 5 % and 95 % quantiles, the smaller.
        rhat: The larger of R-hat of locations and of scales; 1 is best. Infinite for
            chains that stand still at different places.
    """

    mean: Float[np.ndarray, "..."]
    sd: Float[np.ndarray, "..."]
    mcse: Float[np.ndarray, "..."]
    ess_bulk: Float[np.ndarray, "..."]
    ess_tail: Float[np.ndarray, "..."]
    rhat: Float[np.ndarray, "..."]


def diagnose(values) -> Diagnosis:
    """Moments, R-hat and effective draws of every entry of an array of draws.

    R-hat = sqrt((n - 1) / n + B / (n W)), B / n the variance of the means of the half
    chains and W the mean of their variances, both of rank-normalised draws. Effective
    draws: S / (-1 + 2 sum of P_k), P_k the autocorrelations summed in pairs, as far as
    they are positive and made monotone (Geyer 1992). A parameter that never moves has
    R-hat 1 and all its draws are effective; one with a draw that is not finite has NaN.

    Args:
        values: `[chains, draws, ...]`.

    Returns:
        The diagnosis, arrays of shape `[...]`.

    Raises:
        ValueError: If there are fewer than 4 draws of each chain.

    >>> draws = np.random.default_rng(0).normal(size=(4, 1000, 2))
    >>> bool((diagnose(draws).rhat < 1.01).all())
    True
    >>> bool((diagnose(draws).ess_bulk > 3000).all())
    True
    """
    values = np.asarray(values)
    if values.ndim < 2 or values.shape[1] < 4:
        raise ValueError(
            f"diagnose: draws have shape {values.shape}; it takes [chains, draws, ...]"
            " with 4 or more draws"
        )
    chains, draws = values.shape[:2]
    flat = values.reshape(chains, draws, -1)
    size = max(BLOCK // (chains * draws), 1)

    def block(at: int) -> Diagnosis:
        return _diagnose_block(flat[:, :, at : at + size].astype(np.float64))

    with ThreadPoolExecutor(num_cores()) as workers:
        blocks = list(workers.map(block, range(0, flat.shape[2], size)))
    parts = [np.concatenate(part) for part in zip(*blocks, strict=True)] or [
        np.zeros(0)
    ] * len(Diagnosis._fields)
    return Diagnosis(*(part.reshape(values.shape[2:]) for part in parts))


def _diagnose_block(values: np.ndarray) -> Diagnosis:
    """`diagnose` for `[chains, draws, parameters]`."""
    finite = np.isfinite(values).all((0, 1))
    # Arithmetic on other numbers; the results are set aside below.
    values = np.where(finite, values, 0.0)
    together = values.reshape(-1, values.shape[2])
    halves = split_chains(values)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    normal = _rank_normal(halves)
    lower, upper = np.quantile(together, [0.05, 0.95], axis=0)
    tails = [effective_draws((halves <= q).astype(np.float64)) for q in (lower, upper)]
    mean, sd = together.mean(0), together.std(0, ddof=1)
    found = Diagnosis(
        mean,
        sd,
        sd / np.sqrt(effective_draws(halves)),
        effective_draws(normal),
        np.minimum(*tails),
        np.maximum(_rhat(normal), _rhat(_rank_normal(folded))),
    )
    return Diagnosis(*(np.where(finite, part, np.nan) for part in found))


def split_chains(values: np.ndarray) -> np.ndarray:
    """Half chains as chains; of an odd number of draws the middle one is left out."""
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _rank_normal(values: np.ndarray) -> np.ndarray:
    """Normal scores of the ranks among all chains, ties at their mean rank."""
    from scipy import special, stats

    together = values.reshape(-1, values.shape[2])
    rank = stats.rankdata(together, axis=0)
    return special.ndtri((rank - 0.375) / (len(together) + 0.25)).reshape(values.shape)


def _rhat(values: np.ndarray) -> np.ndarray:
    num = values.shape[1]
    between = values.mean(1).var(0, ddof=1)
    within = values.var(1, ddof=1).mean(0)
    ratio = np.where(between > 0, np.inf, 1 / num)
    np.divide(between, within, out=ratio, where=within > 0)
    return np.sqrt((num - 1) / num + ratio)


def effective_draws(values: np.ndarray) -> np.ndarray:
    """Effective draws of each parameter of `[chains, draws, parameters]`."""
    chains, num = values.shape[:2]
    total = chains * num
    means = values.mean(1)
    # Padded with as many zeros, so that lags do not wrap around.
    length = 1 << (2 * num - 1).bit_length()
    spectrum = np.fft.rfft(values - means[:, None], length, axis=1)
    power = np.mean(spectrum.real**2 + spectrum.imag**2, axis=0)
    covariance = np.fft.irfft(power, length, axis=0)[:num] / num
    within = covariance[0] * num / (num - 1)
    pooled = covariance[0] + (means.var(0, ddof=1) if chains > 1 else 0)
    moves = pooled > 0
    rho = 1 - (within - covariance) / np.where(moves, pooled, 1.0)
    rho[0] = 1
    even, odd = rho[: num // 2 * 2 : 2], rho[1::2]
    pairs = even + odd
    # The last pairs hold few products; the series is cut before them at the latest.
    last = min(max((num - 3) // 2, 0), len(pairs) - 1)
    ended = pairs <= 0
    ended[last] = True
    cut = np.argmax(ended, axis=0)
    kept = np.arange(len(pairs))[:, None] < cut
    monotone = np.minimum.accumulate(np.where(kept, pairs, np.inf), axis=0)
    tail = np.maximum(np.take_along_axis(even, cut[None], axis=0)[0], 0)
    tau = -1 + 2 * np.sum(np.where(kept, monotone, 0), axis=0) + tail
    # Draws that alternate can be worth more than independent ones, but not without end.
    effective = total / np.maximum(tau, 1 / np.log10(total))
    return np.where(moves, effective, total)


def bfmi(energy) -> np.ndarray:
    """Bayesian fraction of missing information of each chain (Betancourt 2016).

    sum_t (E_t - E_{t-1})^2 / sum_t (E_t - mean E)^2: what a fresh momentum changes of
    the energy, relative to the posterior's.

    Args:
        energy: `[chains, transitions]`.

    Returns:
        `[chains]`; 1 where the energy never changes.

    >>> bool((bfmi(np.random.default_rng(0).normal(size=(2, 5000))) > 1.8).all())
    True
    """
    energy = np.asarray(energy, np.float64)
    spread = np.square(energy - energy.mean(axis=1, keepdims=True)).sum(axis=1)
    change = np.square(np.diff(energy, axis=1)).sum(axis=1)
    return np.divide(change, spread, out=np.ones_like(spread), where=spread > 0)


class Worst(NamedTuple):
    """The worst of all parameters: its value and its name."""

    rhat: tuple[float, str]
    ess: tuple[float, str]


def worst(draws: Draws) -> Worst:
    """The largest R-hat and the fewest effective draws, bulk or tail, of all values.

    NaN, of a parameter with a draw that is not finite, is the worst there is.
    """
    rhats, counts = [(1.0, "")], [(np.inf, "")]
    for name, values in draws.values.items():
        shape = values.shape[2:]
        if 0 in shape:
            continue
        found = diagnose(values)
        rhat = np.where(np.isnan(found.rhat), np.inf, found.rhat).ravel()
        ess = np.minimum(found.ess_bulk, found.ess_tail)
        ess = np.where(np.isnan(ess), 0, ess).ravel()
        for bad, at, kept in (
            (rhat, rhat.argmax(), rhats),
            (ess, ess.argmin(), counts),
        ):
            index = ",".join(map(str, np.unravel_index(at, shape)))
            kept.append((float(bad[at]), f"{name}[{index}]" if shape else name))
    return Worst(max(rhats), min(counts))


def has_converged(draws: Draws) -> bool:
    """Whether R-hat < 1.01 and 400 effective draws hold throughout, none divergent."""
    if int(draws.status) in (Status.RUNNING, Status.NONFINITE):
        return False
    found = worst(draws)
    sound = found.rhat[0] < RHAT_LIMIT and found.ess[0] >= ESS_LIMIT
    return sound and not np.any(np.asarray(draws.divergent))
