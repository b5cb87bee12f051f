"""Convergence of chains, in tables and sentences: R-hat, effective draws, energies.

Rank-normalised split R-hat and effective sample sizes are those of Vehtari, Gelman,
Simpson, Carpenter and Buerkner (2021), on the host in double precision.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from irtjax._backend import num_cores
from irtjax._types import Status
from irtjax.data.wording import counted, have, percent
from irtjax.estimators.posterior.nuts import Draws

if TYPE_CHECKING:
    import pyarrow as pa

#: Limits within which draws count as converged (Vehtari and others 2021, Section 4).
RHAT_LIMIT, ESS_LIMIT = 1.01, 400
#: Below it the momenta do not reach the energies of the posterior (Betancourt 2016).
BFMI_LIMIT = 0.3
#: Share of a chain's transitions from which, if they diverge, it counts as stuck.
STUCK_SHARE = 0.5
#: Numbers in a block of draws: 2 MB, the size of a core's cache.
BLOCK = 250_000


class Diagnosis(NamedTuple):
    """Moments of draws and their accuracy, each of a parameter's shape.

    Attributes:
        mean: Mean of all draws.
        sd: Their standard deviation.
        mcse: Monte Carlo standard error of the mean.
        ess_bulk: Effective draws for means and medians.
        ess_tail: Effective draws for the 5 % and 95 % quantiles, the smaller.
        rhat: The larger of R-hat of locations and of scales; 1 is best. Infinite for
            constant chains at different values.
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
    they are positive and made monotone (Geyer 1992). A constant parameter has R-hat 1,
    and all its draws are effective; one with a draw that is not finite has NaN.

    Args:
        values: `[chains, draws, ...]`.

    Returns:
        The diagnosis, arrays of shape `[...]`.

    Raises:
        ValueError: If there are fewer than 4 draws of each chain.

    >>> found = diagnose(np.random.default_rng(0).normal(size=(4, 1000, 2)))
    >>> bool((found.rhat < 1.01).all()), bool((found.ess_bulk > 3000).all())
    (True, True)
    """
    values = np.asarray(values)
    if values.ndim < 2 or values.shape[1] < 4:
        raise ValueError(
            f"diagnose: draws have shape {values.shape}; it takes [chains, draws, ...]"
            " with 4 or more draws"
        )
    chains, draws, *shape = values.shape
    flat = values.reshape(chains, draws, -1)
    if not flat.shape[2]:
        return Diagnosis(*(np.zeros(shape) for _ in Diagnosis._fields))
    size = max(BLOCK // (chains * draws), 1)
    blocks = (flat[:, :, at : at + size] for at in range(0, flat.shape[2], size))
    with ThreadPoolExecutor(num_cores()) as workers:
        results = list(workers.map(_diagnose_block, blocks))
    parts = [np.concatenate(part) for part in zip(*results, strict=True)]
    return Diagnosis(*(part.reshape(shape) for part in parts))


def _diagnose_block(values: np.ndarray) -> Diagnosis:
    """`diagnose` for `[chains, draws, parameters]`."""
    finite = np.isfinite(values).all((0, 1))
    # Results of the other parameters are replaced by NaN below.
    values = np.where(finite, values, 0.0).astype(np.float64)
    together = values.reshape(-1, values.shape[2])
    halves = split_chains(values)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    normal = _rank_normal(halves)
    lower, upper = np.quantile(together, [0.05, 0.95], axis=0)
    tails = [effective_draws((halves <= q).astype(np.float64)) for q in (lower, upper)]
    mean, sd = together.mean(0), together.std(0, ddof=1)
    mcse, ess = sd / np.sqrt(effective_draws(halves)), effective_draws(normal)
    rhat = np.maximum(_rhat(normal), _rhat(_rank_normal(folded)))
    statistics = mean, sd, mcse, ess, np.minimum(*tails), rhat
    return Diagnosis(*(np.where(finite, part, np.nan) for part in statistics))


def split_chains(values: np.ndarray) -> np.ndarray:
    """Half chains as chains, without the middle one of an odd number of draws."""
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _rank_normal(values: np.ndarray) -> np.ndarray:
    """Normal scores of the ranks among all chains, ties at their mean rank."""
    from scipy import special, stats

    together = values.reshape(-1, values.shape[2])
    rank = stats.rankdata(together, axis=0)
    return special.ndtri((rank - 0.375) / (len(together) + 0.25)).reshape(values.shape)


def _rhat(values: np.ndarray) -> np.ndarray:
    """R-hat of `[draws, chains, ...]` values."""
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
    before_cut = np.arange(len(pairs))[:, None] < cut
    monotone = np.minimum.accumulate(np.where(before_cut, pairs, np.inf), axis=0)
    tail = np.maximum(np.take_along_axis(even, cut[None], axis=0)[0], 0)
    tau = -1 + 2 * np.sum(np.where(before_cut, monotone, 0), axis=0) + tail
    # Alternating draws can be worth more than independent ones, up to a limit.
    effective = total / np.maximum(tau, 1 / np.log10(total))
    return np.where(moves, effective, total)


def bfmi(energy) -> np.ndarray:
    """Bayesian fraction of missing information of each chain (Betancourt 2016).

    sum_t (E_t - E_{t-1})^2 / sum_t (E_t - mean E)^2: variation of the energy by new
    momenta, relative to its variation over the posterior.

    Args:
        energy: `[chains, transitions]`.

    Returns:
        `[chains]`; 1 where the energy never changes.

    >>> bool((bfmi(np.random.default_rng(0).normal(size=(2, 5000))) > 1.8).all())
    True
    """
    energy = np.asarray(energy, np.float64)
    total = np.square(energy - energy.mean(axis=1, keepdims=True)).sum(axis=1)
    change = np.square(np.diff(energy, axis=1)).sum(axis=1)
    return np.divide(change, total, out=np.ones_like(total), where=total > 0)


def worst(draws: Draws) -> tuple[tuple[float, str], tuple[float, str]]:
    """The largest R-hat and the fewest effective draws, with names; NaN is worst."""
    rhats, counts = [(1.0, "")], [(np.inf, "")]
    for name, values in draws.values.items():
        if 0 in values.shape[2:]:
            continue
        diagnosis, names = diagnose(values), entries(name, values.shape[2:])
        rhat = np.ravel(np.nan_to_num(diagnosis.rhat, nan=np.inf, posinf=np.inf))
        ess = np.ravel(
            np.nan_to_num(np.minimum(diagnosis.ess_bulk, diagnosis.ess_tail))
        )
        rhats.append((float(rhat.max()), names[rhat.argmax()]))
        counts.append((float(ess.min()), names[ess.argmin()]))
    return max(rhats), min(counts)


def entries(name: str, shape: tuple[int, ...]) -> list[str]:
    """Names of the entries of an array, in order."""
    if not shape:
        return [name]
    return [f"{name}[{','.join(map(str, index))}]" for index in np.ndindex(shape)]


def has_converged(draws: Draws, extremes: Any = None) -> bool:
    """Whether all R-hat < 1.01, effective draws >= 400, and none is divergent.

    `found` is what `worst` returns, if it is computed already.
    """
    if int(draws.status) in (Status.RUNNING, Status.NONFINITE):
        return False
    (rhat, _), (ess, _) = extremes or worst(draws)
    divergent = np.any(np.asarray(draws.divergent))
    return rhat < RHAT_LIMIT and ess >= ESS_LIMIT and not divergent


def summary(draws: Draws, names: list[str] | None = None) -> pa.Table:
    """One row per parameter: moments, quantiles and diagnostics.

    Args:
        draws: The draws.
        names: Which of `draws.values` to list; all when None.

    Returns:
        A table with the columns parameter (`name[i,j]`), mean, sd, q5, q50, q95, mcse,
        ess_bulk, ess_tail, rhat.

    Raises:
        ValueError: If a name is not among the values.
    """
    import pyarrow as pa

    columns: dict[str, list[np.ndarray]] = {}
    for name in draws.values if names is None else names:
        if name not in draws.values:
            raise ValueError(
                f"{name!r} was not kept: the draws hold {', '.join(draws.values)}"
            )
        values = np.asarray(draws.values[name])
        diagnosis = diagnose(values)
        together = values.reshape(-1, diagnosis.mean.size).astype(np.float64)
        quantiles = np.quantile(together, [0.05, 0.5, 0.95], axis=0)
        rows = {
            "parameter": np.array(entries(name, values.shape[2:]), object),
            "mean": diagnosis.mean,
            "sd": diagnosis.sd,
            **dict(zip(("q5", "q50", "q95"), quantiles, strict=True)),
            **{
                k: getattr(diagnosis, k)
                for k in ("mcse", "ess_bulk", "ess_tail", "rhat")
            },
        }
        for column, values in rows.items():
            columns.setdefault(column, []).append(np.ravel(values))
    return pa.table({k: pa.array(np.concatenate(v)) for k, v in columns.items()})


def trajectories(draws: Draws) -> pa.Table:
    """One row per chain: statistics of its trajectories after warm-up.

    Args:
        draws: The draws.

    Returns:
        A table with the columns chain, transitions, divergent, deepest (transitions
        that reached the limit of the tree depth), tree_depth, num_leapfrog and
        acceptance (means), bfmi (null with one transition) and step_size.
    """
    import pyarrow as pa

    chains, transitions = draws.divergent.shape
    depth = np.asarray(draws.tree_depth)
    fraction = bfmi(draws.energy).tolist() if transitions > 1 else [None] * chains
    return pa.table(
        {
            "chain": np.arange(chains),
            "transitions": np.full(chains, transitions),
            "divergent": np.asarray(draws.divergent).sum(axis=1),
            "deepest": (depth >= draws.max_depth).sum(axis=1),
            "tree_depth": depth.mean(axis=1),
            "num_leapfrog": np.asarray(draws.num_leapfrog).mean(axis=1),
            "acceptance": np.asarray(draws.acceptance, float).mean(axis=1),
            "bfmi": pa.array(fraction, pa.float64()),
            "step_size": np.asarray(draws.step_size, float),
        }
    )


def verdict(draws: Draws) -> list[str]:
    """The diagnostics in sentences, the conclusion first.

    "Converged" requires R-hat < 1.01 and at least 400 effective draws for all that was
    kept, and no divergent transition.

    Args:
        draws: The draws.

    Returns:
        One or more sentences.
    """
    chains, transitions = draws.divergent.shape
    if any(values.shape[1] < 4 for values in draws.values.values()):
        return ["Not converged: fewer than 4 draws of each chain; draw more."]
    (rhat, of_rhat), (ess, of_ess) = extremes = worst(draws)
    conclusion = "Converged" if has_converged(draws, extremes) else "Not converged"
    sentences = [
        f"{conclusion}: {counted(chains, 'chain')} of {counted(transitions, 'step')},"
        " largest R-hat"
        f" {rhat:.3f} ({of_rhat}), fewest effective draws {ess:,.0f} ({of_ess})."
    ]
    if chains < 4:
        sentences.append(f"{chains} of the 4 chains that R-hat needs to be reliable.")
    if not rhat < RHAT_LIMIT:
        sentences.append(
            f"The chains do not agree on {of_rhat} (R-hat {rhat:.3f}, should be below"
            f" {RHAT_LIMIT}): run longer; if they stay apart, the posterior has several"
            " modes or something that the data do not determine."
        )
    if ess < ESS_LIMIT:
        sentences.append(
            f"Too few effective draws of {of_ess} ({ess:,.0f}, should be {ESS_LIMIT} or"
            " more): draw more, or use coordinates that depend less on each other."
        )
    sentences += _on_trajectories(draws)
    if int(draws.status) == Status.RUNNING:
        sentences.append("The run is not finished: resume it.")
    if int(draws.status) == Status.NONFINITE:
        sentences.append(
            "A log density is not finite: look for a logarithm or a quotient that"
            " leaves its range."
        )
    return sentences


def _on_trajectories(draws: Draws) -> list[str]:
    """Sentences on divergences, depths and energies."""
    sentences = []
    divergent = np.asarray(draws.divergent)
    often = divergent.sum(axis=1) >= STUCK_SHARE * max(divergent.shape[1], 1)
    if stuck := int(often.sum()):
        sentences.append(
            f"{stuck} of {counted(len(divergent), 'chain')} {have(stuck)} not moved:"
            f" {percent(STUCK_SHARE)} or more of the transitions diverged; do not use"
            " these draws: sample with another key, or raise num_warmup and"
            " target_acceptance."
        )
    if count := int(divergent.sum()):
        sentences.append(
            f"{count:,} of {divergent.size:,} transitions diverged"
            f" ({percent(round(count / divergent.size, 4))}): the draws miss places"
            " where the posterior curves sharply; raise target_acceptance (0.95, 0.99),"
            " or use a non-centred form of the hierarchy."
        )
    deepest = np.asarray(draws.tree_depth) >= draws.max_depth
    if share := float(deepest.mean()) if deepest.size else 0.0:
        sentences.append(
            f"{percent(round(share, 3))} of the transitions reached the limit of the"
            f" tree depth ({draws.max_depth}): the draws are valid but expensive;"
            " rescale the parameters, use dense=True, or raise max_depth."
        )
    fraction = bfmi(draws.energy) if draws.energy.shape[1] > 1 else np.ones(1)
    if low := int((fraction < BFMI_LIMIT).sum()):
        sentences.append(
            f"{low} of {counted(fraction.size, 'chain')} {have(low)} a low fraction"
            f" of missing information ({fraction.min():.2f}, should be above"
            f" {BFMI_LIMIT}): the tails are explored slowly; run longer or use a"
            " non-centred form."
        )
    return sentences
