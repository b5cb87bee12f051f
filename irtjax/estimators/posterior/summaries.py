"""Draws as a table of parameters, and their diagnostics in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax._types import Status
from irtjax.estimators.posterior.chains import Draws
from irtjax.estimators.posterior.convergence import (
    BFMI_LIMIT,
    ESS_LIMIT,
    RHAT_LIMIT,
    bfmi,
    diagnose,
    entries,
    has_converged,
    worst,
)

if TYPE_CHECKING:
    import pyarrow as pa


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

    names = list(draws.values) if names is None else names
    columns: dict[str, list[np.ndarray]] = {}
    for name in names:
        if name not in draws.values:
            raise ValueError(
                f"{name!r} was not kept: the draws hold {', '.join(draws.values)}"
            )
        values = np.asarray(draws.values[name])
        found = diagnose(values)
        together = values.reshape(-1, found.mean.size).astype(np.float64)
        quantiles = np.quantile(together, [0.05, 0.5, 0.95], axis=0)
        rows = {
            "parameter": np.array(entries(name, values.shape[2:]), object),
            "mean": found.mean,
            "sd": found.sd,
            **dict(zip(("q5", "q50", "q95"), quantiles, strict=True)),
            **{k: getattr(found, k) for k in ("mcse", "ess_bulk", "ess_tail", "rhat")},
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
    fraction: list[float | None] = [None] * chains
    if transitions > 1:
        fraction = np.asarray(bfmi(draws.energy), float).tolist()
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
    (rhat, of_rhat), (ess, of_ess) = worst(draws)
    conclusion = "Converged" if has_converged(draws) else "Not converged"
    sentences = [
        f"{conclusion}: {chains} chains of {transitions:,} steps, largest R-hat"
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
    if count := int(divergent.sum()):
        sentences.append(
            f"{count:,} of {divergent.size:,} transitions diverged"
            f" ({count / divergent.size:.1%}): the draws miss places where the"
            " posterior curves sharply; raise target_acceptance (0.95, 0.99), or use a"
            " non-centred form of the hierarchy."
        )
    deepest = np.asarray(draws.tree_depth) >= draws.max_depth
    if share := float(deepest.mean()) if deepest.size else 0.0:
        sentences.append(
            f"{share:.1%} of the transitions reached the limit of the tree depth"
            f" ({draws.max_depth}): the draws are valid but expensive; rescale the"
            " parameters, use dense=True, or raise max_depth."
        )
    fraction = bfmi(draws.energy) if draws.energy.shape[1] > 1 else np.ones(1)
    if low := int((fraction < BFMI_LIMIT).sum()):
        sentences.append(
            f"{low} of {fraction.size} chains have a low fraction of missing"
            f" information ({fraction.min():.2f}, should be above {BFMI_LIMIT}): the"
            " tails are explored slowly; run longer or use a non-centred form."
        )
    return sentences
