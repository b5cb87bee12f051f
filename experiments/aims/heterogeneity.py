"""One skill or several: how often the verdict on a benchmark is right.

    python experiments/aims/heterogeneity.py                       # small: a minute
    python experiments/aims/heterogeneity.py --replicates 200      # the README's table

Responses are drawn from one ability (2PL, slopes U(0.5, 2), intercepts N(0, 1)), or
from two that correlate, each measured by half of the items. A factor model is fitted
by `mm`, with two factors unless `--factors` gives another number, and
`irtjax.heterogeneity` gives the verdict, which does not depend on the method.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.special import expit

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.tabulate import aligned, write_csv
from irtjax.validity.heterogeneity import CONFLICTING, NONE, ONE, RELATED

#: Correlations of the two abilities; 1 is one skill.
CORRELATIONS = (1.0, 0.9, 0.7, 0.0, -0.5)


def drawn(correlation: float, subjects: int, items: int, seed: int):
    """Responses of a benchmark of two skills; of one where they correlate at 1."""
    rng = np.random.default_rng(seed)
    first, other = rng.normal(size=(2, subjects))
    second = correlation * first + np.sqrt(1 - correlation**2) * other
    theta = np.stack([first, second], axis=1)
    eta = theta[:, np.arange(items) % 2] * rng.uniform(0.5, 2, items)
    right = rng.random((subjects, items)) < expit(eta + rng.normal(size=items))
    return irtjax.ResponseTable.from_arrays(right.astype(np.int8))


def study(correlation: float, given: argparse.Namespace) -> dict[str, Any]:
    """Shares of the verdicts, and the mean of the smallest correlation."""
    verdicts, smallest, began = [], [], time.perf_counter()
    for seed in range(given.replicates):
        if verdicts and time.perf_counter() - began > given.seconds:
            break
        table = drawn(correlation, given.subjects, given.items, seed)
        fit = irtjax.fit(table, "factor", "mm", factors=given.factors, rotation="none")
        found = irtjax.heterogeneity(fit, table, key=jax.random.key(seed))
        row = found.table.to_pylist()[0]
        verdicts.append(row["verdict"])
        smallest.append(row["smallest"])
    count = len(verdicts)
    share = lambda name: verdicts.count(name) / count
    known = [value for value in smallest if value is not None]
    return {
        "correlation": correlation,
        "replicates": count,
        **{name: share(name) for name in (ONE, RELATED, CONFLICTING, NONE)},
        "several compared": len(known) / count,
        "mean smallest": float(np.mean(known)) if known else float("nan"),
    }


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Runs the study and prints its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--replicates", type=int, default=3)
    parser.add_argument("--subjects", type=int, default=150)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--factors", type=int, default=2)
    parser.add_argument(
        "--correlations", type=float, nargs="+", default=list(CORRELATIONS)
    )
    parser.add_argument(
        "--seconds", type=float, default=np.inf, help="for each correlation"
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    rows = []
    for correlation in given.correlations:
        rows.append(study(correlation, given))
        print(f"correlation {correlation} done", file=sys.stderr, flush=True)
    print(aligned(rows))
    write_csv(given.out, "heterogeneity", rows)
    return rows


if __name__ == "__main__":
    main()
