"""Which family for scores in [0, 1]: log density of held-out cells.

    python experiments/lego_irt/families.py --small      # simulated data, a minute
    python experiments/lego_irt/families.py --out DIR    # AlpacaEval, five minutes

The README beside this file says what is measured and how.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.tabulate import write_csv
from irtjax.data.scores import to_logits
from irtjax.likelihood.quadrature import choose_nodes
from irtjax.models.catalogue import inflated_beta
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items
from irtjax.numerics.kernels import normal_log_weights

DATA = Path("shared/data/alpacaeval/preference_v2.parquet")
#: Scores this near to 0 or 1 count as at it, in the coarse score.
ENDS = 0.01
SHARE = 0.1


class Family(NamedTuple):
    """A model by name, and its options."""

    label: str
    model: str
    options: dict[str, Any]


FAMILIES = (
    Family("continuous", "continuous", {}),
    Family("beta", "beta", {}),
    Family("inflated_beta", "inflated_beta", {}),
    Family(f"inflated_beta, ends {ENDS:g}", "inflated_beta", {"ends": ENDS}),
)


def simulated(num_subjects: int = 40, num_items: int = 12) -> irtjax.ResponseTable:
    """Ordered beta scores, a tenth of them at the ends."""
    keys = jax.random.split(jax.random.key(0), 3)
    model = inflated_beta()
    items = simulate_items(model, num_items, keys[0], discrimination=(0.8, 2.0))
    data = simulate(model, items, simulate_abilities(num_subjects, keys[1]), keys[2])
    return irtjax.ResponseTable.from_arrays(model.family.to_scores(data.values, items))


def held_out(table: irtjax.ResponseTable, seed: int) -> np.ndarray:
    """A mask of the cells kept for judging, a tenth of the observed ones."""
    seen = np.ones(table.values.shape, bool)
    if table.observed is not None:
        seen = table.observed
    return seen & (np.random.default_rng(seed).random(seen.shape) < SHARE)


def posteriors(fit: irtjax.Calibration, table: irtjax.ResponseTable):
    """Nodes, and the log posterior of each subject's ability on them."""
    model, unit = fit.model, fit.parameters.population
    items = jax.tree.map(jnp.asarray, fit.parameters.items)
    columns = np.ones(table.num_items, bool)
    ends, squeeze = model.family.ends_at, fit.options["squeeze"]
    logits = to_logits(table, columns, squeeze=squeeze, ends=ends)
    values = jnp.asarray(logits.values)
    seen = np.ones(values.shape, bool) if table.observed is None else table.observed
    data = irtjax.Responses(values, jnp.asarray(seen))
    nodes = jnp.asarray(choose_nodes(model, items, unit, data))
    known = jnp.asarray(seen)

    def at_node(node):
        theta = jnp.full(values.shape[0], node)
        return jnp.sum(model.family.log_prob(values, items, theta, known), axis=1)

    log_lik = jax.jit(lambda x: jax.lax.map(at_node, x))(nodes).T
    joint = np.asarray(log_lik + normal_log_weights(nodes))
    return np.asarray(nodes), joint - special.logsumexp(joint, axis=1, keepdims=True)


def log_predictive(fit, name: str, nodes, y, columns, ends: float, mine: float):
    """Log density of scores, or log mass of an end, at each node, `[cells, nodes]`.

    Args:
        fit: The calibration.
        name: Its family.
        nodes: Abilities.
        y: Scores, one per cell.
        columns: Their items.
        ends: How near to 0 or 1 a score is judged by the mass of the end.
        mine: How near it is at the end for the fit itself.
    """
    items = [np.asarray(x, float)[columns, None] for x in fit.parameters.items]
    eta = items[0] * nodes + items[1]
    y = y[:, None]
    low, high = y <= ends, y >= 1 - ends
    inner = np.where(low | high, 0.5, y)
    if name == "continuous":
        logit = lambda x: np.log(x) - np.log1p(-x)
        density = stats.norm.logpdf(logit(inner), eta, items[2])
        density -= np.log(inner) + np.log1p(-inner)
        if ends == 0:
            return density
        below = stats.norm.logcdf(logit(ends), eta, items[2])
        above = stats.norm.logsf(logit(1 - ends), eta, items[2])
        return np.where(low, below, np.where(high, above, density))
    mean = special.expit(eta)
    up, down = mean * items[2], special.expit(-eta) * items[2]
    density = special.xlogy(up - 1, inner) + special.xlog1py(down - 1, -inner)
    density = density - special.betaln(up, down)
    below, above = special.betainc(up, down, ends), special.betainc(down, up, ends)
    if name == "inflated_beta":
        zero, one = special.expit(items[3] - eta), special.expit(eta - items[4])
        between = 1 - zero - one
        density = density + np.log(np.maximum(between, 1e-300))
        # What the fit calls an end it has no density for; the rest it has both for.
        inside = between if mine < ends else 0.0
        below, above = zero + inside * below, one + inside * above
    tiny = 1e-300
    ended = np.where(low, np.log(below + tiny), np.log(above + tiny))
    return np.where(low | high, ended, density)


def judge(table, family: Family, hidden: np.ndarray) -> tuple[list[dict], np.ndarray]:
    """Rows of what a family makes of the hidden cells, and its terms by cell."""
    began = time.perf_counter()
    seen = ~hidden if table.observed is None else table.observed & ~hidden
    train = irtjax.ResponseTable.from_arrays(
        table.values, subjects=table.subjects, items=table.items, observed=seen
    )
    fit = irtjax.fit(train, family.model, standard_errors="none", **family.options)
    seconds = time.perf_counter() - began
    nodes, log_posterior = posteriors(fit, train)
    rows, columns = np.nonzero(hidden)
    y = table.values[rows, columns]
    mine = family.options.get("ends", 0.0)
    found = []
    terms = np.full((2, len(y)), np.nan)
    for k, (score, ends) in enumerate((("density", 0.0), ("coarse", ENDS))):
        if mine > ends:
            continue
        cells = log_predictive(fit, family.model, nodes, y, columns, ends, mine)
        value = special.logsumexp(cells + log_posterior[rows], axis=1)
        # An exact end has no density.
        value[(ends == 0) & ((y == 0) | (y == 1))] = np.nan
        terms[k] = value
        found.append(
            {
                "family": family.label,
                "score": score,
                "mean": float(np.nanmean(value)),
                "cells": int(np.isfinite(value).sum()),
                "status": fit.status.name,
                "steps": fit.num_steps,
                "seconds": round(seconds, 1),
            }
        )
    return found, terms


def compare(table: irtjax.ResponseTable, seed: int = 0) -> list[dict]:
    """What every family makes of the same hidden cells.

    The standard error is that of the mean difference from the first family, over
    subjects.
    """
    hidden = held_out(table, seed)
    subject = np.nonzero(hidden)[0]
    found, first = [], None
    for family in FAMILIES:
        rows, terms = judge(table, family, hidden)
        first = terms if first is None else first
        for row in rows:
            k = ("density", "coarse").index(row["score"])
            gap = terms[k] - first[k]
            by_subject = [
                np.nanmean(gap[subject == s])
                for s in np.unique(subject[np.isfinite(gap)])
            ]
            count = len(by_subject)
            row["difference"] = float(np.mean(by_subject))
            row["se"] = float(np.std(by_subject, ddof=1) / np.sqrt(count))
            row["seed"] = seed
            print(
                f"{row['family']:26} {row['score']:8} {row['mean']:8.3f}"
                f"  difference {row['difference']:7.3f} ({row['se']:.3f})"
                f"  {row['status'].lower()}, {row['steps']} steps,"
                f" {row['seconds']:.0f} s",
                flush=True,
            )
        found += rows
    return found


def load(path: Path) -> irtjax.ResponseTable:
    """Scores from a Parquet file with subjects as index and items as columns."""
    if not path.is_file():
        raise SystemExit(f"{path} is not there: give the file with --data, or --small")
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    names = [n for n in table.column_names if n not in ("model", "__index_level_0__")]
    values = np.stack([table.column(n).to_numpy() for n in names], 1).astype(float)
    return irtjax.ResponseTable.from_arrays(values, items=names)


def main(arguments: list[str] | None = None) -> list[dict]:
    """Runs the comparison and writes `families.csv`."""
    parser = argparse.ArgumentParser(description=__doc__)
    root = Path(__file__).resolve().parents[3]
    parser.add_argument("--data", type=Path, default=root / DATA)
    parser.add_argument("--small", action="store_true", help="simulated data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="folder of the CSV")
    given = parser.parse_args(arguments)
    table = simulated() if given.small else load(given.data)
    rows = compare(table, given.seed)
    write_csv(given.out, "families", rows)
    return rows


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
