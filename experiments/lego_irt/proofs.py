"""Tables of what `posteriors` measures: calibration by simulation, and coverage."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from experiments.lego_irt.posteriors import (
    GIVEN_PRIOR,
    KINDS,
    LEVEL,
    PLAIN,
    TIGHT,
    Intervals,
    draw_data,
    fast_fit,
    many_intervals,
    replicates,
    structured_model,
)
from experiments.lego_irt.sbc import rank_statistics, uniformity
from irtjax._types import Status
from irtjax.estimators.posterior.methods import NUTS
from irtjax.models.multilevel.model import Hyperpriors, MultilevelModel
from irtjax.models.priors import LogNormal

#: Data sets that go through one call: the next ones wait for no longer than these.
CHUNK = 10
#: Draws of each posterior that the truth is ranked among, five steps apart: of the
#: slowest quantities 80 of 99 are effective then.
RANKED = NUTS(
    num_warmup=400, num_draws=99, num_chains=1, target_acceptance=0.9, thinning=5
)
#: The sampler of the study of coverage: with 600 draws fewer than ten were effective of
#: the scales of some data sets, and intervals too short by what these missed.
COVERING = NUTS(num_warmup=600, num_draws=1400, num_chains=1)


def in_chunks(function, model, method: NUTS, num: int, seed: int):
    """`function(model, method, keys)` for `num` keys, as numpy arrays in one tree."""
    keys = jax.random.split(jax.random.key(seed), num)
    parts = [
        jax.device_get(function(model, method, keys[at : at + CHUNK]))
        for at in range(0, num, CHUNK)
    ]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def ranks(
    kind: str,
    num: int,
    seed: int,
    *,
    method: NUTS = RANKED,
    subjects: int = 8,
    items: int = 24,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Ranks of the truth by quantity, `[num, entries]`, and divergences `[num]`."""
    model = structured_model(kind, subjects, items)
    found = in_chunks(replicates, model, method, num, seed)
    by_name = {
        name: rank_statistics(draws[:, 0], found.truth[name])
        for name, draws in found.draws.items()
    }
    return by_name, found.num_divergent


def sbc(
    num: int, seed: int, kinds: Sequence[str] = KINDS, method: NUTS = RANKED, **sizes
) -> list[dict]:
    """Simulation-based calibration of each model.

    Returns:
        For every quantity the mean of (rank + 1/2) / (draws + 1) as `value`, the
        spread of the ranks over that of uniform ones, the share of 90 % intervals that
        hold, p-values and counts by bin.
    """
    rows: list[dict] = []
    for kind in kinds:
        by_name, divergent = ranks(kind, num, seed, method=method, **sizes)
        mine = [
            row
            for name, rank in by_name.items()
            for row in rank_rows(kind, name, rank, method.num_draws)
        ]
        smallest = min(min(row["chi_square_p"], row["ecdf_p"]) for row in mine)
        print(
            f"\n{kind}: {num} data sets, {2 * len(mine)} tests, smallest p"
            f" {smallest:.4f}; {np.mean(divergent > 0):.0%} with a divergence,"
            f" {divergent.mean() / method.num_transitions:.2%} of the transitions"
        )
        for name, rank in by_name.items():
            shares = covered(rank, method.num_draws).mean(axis=1)
            error = shares.std(ddof=1) / num**0.5
            print(f"  90 % intervals of {name}: {shares.mean():.3f} ± {error:.3f}")
        rows += mine
    return rows


def covered(rank: np.ndarray, num_draws: int) -> np.ndarray:
    """Whether the interval of 90 % of the draws holds the truth, by its rank."""
    tail = 0.05 * (num_draws + 1)
    return (rank >= tail) & (rank < num_draws + 1 - tail)


def rank_rows(kind: str, name: str, rank: np.ndarray, num_draws: int) -> list[dict]:
    """A row for each entry of a quantity."""
    found = uniformity(rank, num_draws)
    return [
        {
            "model": kind,
            "quantity": f"{name} {k}" if rank.shape[1] > 1 else name,
            "spread": float(found.sd_ratio[k]),
            "covered": float(covered(rank[:, k], num_draws).mean()),
            "chi_square_p": float(found.chi_square_p[k]),
            "ecdf_p": float(found.ecdf_p[k]),
            "counts": " ".join(map(str, found.counts[:, k])),
            "value": float(found.mean[k]),
        }
        for k in range(rank.shape[1])
    ]


def coverage(
    num: int,
    seed: int,
    kinds: Sequence[str] = KINDS[1:],
    method: NUTS = COVERING,
    subjects: int = 40,
    items: int = 60,
) -> list[dict]:
    """Share of 90 % intervals that cover the truth, by quantity and method.

    Abilities and items are drawn anew for each data set. Hyperparameters are drawn too,
    from the priors of the analysis: intervals of a posterior then hold the truth as
    often as they say, whatever the data. Or they are fixed, and the analysis has the
    priors of `irtjax.fit`: how often a user's intervals hold at one place. Standard
    errors are over data sets, since intervals of one share its scale.
    """
    rows: list[dict] = []
    for fixed, kind in itertools.product((False, True), kinds):
        priors = Hyperpriors() if fixed else TIGHT
        model = structured_model(
            kind, subjects, items, hyperpriors=priors, centred=True
        )
        intervals = partial(many_intervals, fixed=fixed)
        found = in_chunks(intervals, model, method, num, seed)
        label = {"data": kind, "hyperparameters": "fixed" if fixed else "drawn"}
        mine = covered_rows(label, model, found)
        rows += mine
        diverged = found.num_divergent.sum() / num / method.num_transitions
        print(
            f"\n{kind}, {label['hyperparameters']} hyperparameters, {num} data sets;"
            f" {diverged:.2%} of the transitions diverged"
        )
        print_shares(mine)
    return rows


def print_shares(rows: list[dict]) -> None:
    """The mean share of each quantity and method, with its standard error."""
    shares: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        shares.setdefault((row["method"], row["quantity"]), []).append(row["value"])
    for (method, quantity), values in shares.items():
        error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
        print(
            f"  {method}, {quantity}: {np.mean(values):.3f} ± {error:.3f}"
            f" ({len(values)})",
            flush=True,
        )


def covered_rows(label: dict, model: MultilevelModel, found: Intervals) -> list[dict]:
    """Rows of the sampler, and of `laplace` where it converged."""
    rows = coverage_rows(label | {"method": "nuts"}, found.truth, found.bounds)
    fast = label | {"method": "laplace"}
    for trial, values in enumerate(found.values):
        status, _, bounds = fast_fit(model, values)
        converged = status == Status.CONVERGED
        rows.append(
            fast | {"quantity": "converged", "trial": trial, "value": float(converged)}
        )
        if converged:
            truth = {name: found.truth[name][trial, None] for name in bounds}
            bounds = {name: ends[None] for name, ends in bounds.items()}
            rows += [r | {"trial": trial} for r in coverage_rows(fast, truth, bounds)]
    return rows


def coverage_rows(
    label: dict, truth: dict[str, np.ndarray], bounds: dict[str, np.ndarray]
) -> list[dict]:
    """A row for each quantity and data set: the coverage of its intervals."""
    rows = []
    for name, ends in bounds.items():
        holds = (ends[:, 0] <= truth[name]) & (truth[name] <= ends[:, 1])
        shares = holds.reshape(len(holds), -1).mean(axis=1)
        rows += [
            label | {"quantity": name, "trial": trial, "value": float(share)}
            for trial, share in enumerate(shares)
        ]
    return rows


def recovery(
    num: int,
    seed: int,
    kinds: Sequence[str] = KINDS[1:],
    subjects: int = 40,
    items: int = 240,
    fixed: bool = True,
    given_prior: bool = False,
) -> list[dict]:
    """What `laplace` makes of hyperparameters that are the same in all data sets.

    With `given_prior` the prior of discriminations is fixed, as in the paper, and
    metrics have no slopes: the items then identify the scales of ability, and the data
    Sigma. Otherwise it is estimated, and the data identify correlations only.

    Returns:
        Of every hyperparameter its truth and its estimate, and of abilities the
        correlation with the truth, the root mean squared error and the coverage
        of intervals, by data set. If not `fixed`, hyperparameters are drawn from
        the priors of the analysis, and there is the coverage alone.
    """
    priors = Hyperpriors() if fixed else TIGHT
    truth_of = (GIVEN_PRIOR if given_prior else PLAIN) if fixed else None
    rows: list[dict] = []
    for kind in kinds:
        # What is drawn has all priors learned, which is how they can be drawn.
        drawn = structured_model(
            kind,
            subjects,
            items,
            hyperpriors=priors,
            centred=True,
            metric_effects=not given_prior,
        )
        model = drawn
        if given_prior:
            known = {"discrimination": LogNormal(0.0, GIVEN_PRIOR.spreads[0])}
            model = dataclasses.replace(drawn, priors=known)
        for trial, key in enumerate(jax.random.split(jax.random.key(seed), num)):
            truth, values = jax.device_get(draw_data(drawn, key, truth_of))
            # As `irtjax.fit` chooses it.
            order = 5 if subjects < 200 else 2
            status, found, bounds = fast_fit(model, values, order)
            converged = float(status == Status.CONVERGED)
            label = {"data": kind, "trial": trial}
            rows.append(
                label | {"quantity": "converged", "truth": 1.0, "value": converged}
            )
            if converged:
                if fixed:
                    rows += [label | row for row in recovered_rows(truth, found)]
                for name, (lower, upper) in bounds.items():
                    held = (lower <= truth[name]) & (truth[name] <= upper)
                    share = {"quantity": f"{name}, coverage of 90 % intervals"}
                    rows.append(label | share | {"truth": LEVEL, "value": held.mean()})
    return rows


def recovered_rows(truth: dict[str, np.ndarray], found: dict) -> list[dict]:
    """Rows of one data set, without labels."""
    rows: list[dict] = []
    for name, true in truth.items():
        estimate = np.asarray(found[name])
        if "abilit" not in name:  # Ability and abilities.
            rows += [
                {"quantity": f"{name} {k}", "truth": float(t), "value": float(e)}
                for k, (t, e) in enumerate(zip(true, estimate, strict=True))
            ]
            continue
        # Of abilities, the correlation in each group; the error counts their origin.
        pairs = zip(np.atleast_2d(true.T), np.atleast_2d(estimate.T), strict=True)
        alike = np.mean([np.corrcoef(*pair)[0, 1] for pair in pairs])
        error = float(np.sqrt(np.mean((estimate - true) ** 2)))
        rows += [
            {"quantity": f"{name}, correlation", "truth": 1.0, "value": float(alike)},
            {"quantity": f"{name}, error", "truth": 0.0, "value": error},
        ]
    return rows
