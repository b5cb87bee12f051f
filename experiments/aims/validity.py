"""Correlations without errors (AIMS 2.2.4, 2.6.2): coverage of their intervals.

    python experiments/aims/validity.py          # ten seconds of processor time
    python experiments/aims/validity.py --full   # the table of the README

`quantities`: two normal quantities whose errors are drawn from U(.2, .9); in families
of four, half of both variances is between families. `fits`: abilities of Rasch's model,
20 items, against a column with a reliability of .8.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.special import expit

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    import sys

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.tabulate import aligned, write_csv
from irtjax.validity.latent_correlation import latent_correlation

#: Subjects, and correlations, of the full table.
SUBJECTS, CORRELATIONS = (25, 60, 200), (0.0, 0.5, 0.9)
#: Subjects of a family.
SIZE = 4


def quantities(
    rng: np.random.Generator, count: int, rho: float, families: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Two standard normal quantities `[2, subjects]`, and families."""
    family = np.arange(count) // SIZE if families else None
    true = rng.normal(size=(2, count))
    if family is not None:
        between = rng.normal(size=(2, family[-1] + 1))[:, family]
        true = (true + between) / np.sqrt(2)
    true[1] = rho * true[0] + np.sqrt(1 - rho**2) * true[1]
    return true, family


def row_of(ends: np.ndarray, rho: float, **labels: Any) -> dict[str, Any]:
    """Coverage and mean length of intervals `[data sets, 3]` with estimates."""
    estimate, lower, upper = ends[np.isfinite(ends).all(axis=1)].T
    covered = (lower <= rho) & (rho <= upper)
    share = float(covered.mean())
    return {
        **labels,
        "correlation": rho,
        "data sets": len(ends),
        "no estimate": int(len(ends) - len(estimate)),
        "median": float(np.median(estimate)),
        "coverage": share,
        "coverage se": float(np.sqrt(share * (1 - share) / len(covered))),
        "length": float(np.mean(upper - lower)),
    }


def stated_errors(replicates: int, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Errors that are stated, with and without families."""
    rows = []
    cases = [(n, rho, False) for n in sizes for rho in CORRELATIONS]
    cases += [(max(sizes), rho, True) for rho in CORRELATIONS[:2]]
    for count, rho, families in cases:
        rng, ends = np.random.default_rng(count), []
        for _ in range(replicates):
            true, family = quantities(rng, count, rho, families)
            errors = rng.uniform(0.2, 0.9, size=true.shape)
            seen = true + errors * rng.normal(size=true.shape)
            ends.append(latent_correlation(seen, errors, family)[:3])
        labels = {"subjects": count, "families of": SIZE if families else 1}
        rows.append(row_of(np.array(ends), rho, **labels))
    return rows


def fits(replicates: int, count: int) -> list[dict[str, Any]]:
    """Fits of Rasch's model against a column with errors."""
    rng, rho, ends, raw = np.random.default_rng(0), 0.7, [], []
    names = [f"m{k}" for k in range(count)]
    for _ in range(replicates):
        true, _ = quantities(rng, count, rho, False)
        chance = expit(true[0][:, None] - rng.normal(size=20))
        right = rng.random(chance.shape) < chance
        table = irtjax.ResponseTable.from_arrays(right, subjects=names)
        fit = irtjax.fit(table, "rasch", "em", standard_errors="none")
        outside = true[1] + 0.5 * rng.normal(size=count)
        columns = {"subject": names, "outside": outside.tolist()}
        result = irtjax.correlates(
            fit, columns, ["outside"], reliability={"outside": 0.8}
        )
        row = result.table.to_pylist()[0]
        ends.append([row[x] for x in ("correlation", "lower", "upper")])
        raw.append(row["raw"])
    row = row_of(np.array(ends), rho, subjects=count, items=20)
    return [row | {"median raw": float(np.median(raw))}]


def main(arguments: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Prints the tables, and writes them with `--out`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="more data sets")
    parser.add_argument("--out", type=Path, help="folder for a CSV file of each table")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    tables = {}
    for name, part in (
        (
            "quantities",
            lambda n: stated_errors(n, SUBJECTS if options.full else SUBJECTS[:1]),
        ),
        ("fits", lambda n: fits(n // 2, 100 if options.full else 40)),
    ):
        tables[name] = part(200 if options.full else 20)
        print(name, aligned(tables[name]), sep="\n", flush=True)
        write_csv(options.out, name, tables[name])
    return tables


if __name__ == "__main__":
    main()
