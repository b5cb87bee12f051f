"""Clusters of items by structure vectors against benchmarks and subsets (AIMS 2.3.2.5).

    python experiments/aims/item_clusters.py --full

Responses are drawn from the published factors of `../shared/data/llm_factors`, whose
items have a benchmark (5) and a subset (38). Items are clustered by a Gaussian mixture
of their structure vectors, with the number of clusters of the lowest BIC. The adjusted
Rand index is 1 for equal partitions and 0 for independent ones (Hubert and Arabie
1985, Journal of Classification 2).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import comb, expit

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    import sys

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.aims.factors import SHARED, published
from experiments.tabulate import aligned, write_csv
from irtjax.numerics.kernels import inverse_cholesky
from irtjax.numerics.mixture import choose_mixture

#: Largest number of clusters.
MOST = 10


def adjusted_rand(first: np.ndarray, second: np.ndarray) -> float:
    """Agreement of two partitions beyond chance.

    >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array(["b", "b", "a", "a"]))
    1.0
    """
    codes = [np.unique(x, return_inverse=True)[1] for x in (first, second)]
    table = np.zeros([code.max() + 1 for code in codes])
    np.add.at(table, tuple(codes), 1)
    pairs = lambda x: float(comb(x, 2).sum())
    rows, columns = pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = rows * columns / float(comb(len(first), 2))
    return (pairs(table) - expected) / ((rows + columns) / 2 - expected)


def clusters(name: str, subjects: int, items: int, factors: int) -> dict[str, Any]:
    """Clusters of items of one generator, and their agreement with labels."""
    import pyarrow.parquet as pq

    labels = pq.read_table(SHARED / "open_llm_5suite_items.parquet").to_pydict()
    rng = np.random.default_rng(0)
    with np.load(published(name)) as stored:
        left, right = stored["U"], stored["V"]
    rows = rng.choice(len(left), subjects, replace=False)
    columns = np.sort(rng.choice(len(right), items, replace=False))
    chance = expit(left[rows] @ right[columns].T)
    values = (rng.random(chance.shape) < chance).astype(float)
    # An item without variation has no structure vector.
    varied = np.ptp(values, axis=0) > 0
    table = irtjax.ResponseTable.from_arrays(values[:, varied])
    fit = irtjax.fit(table, "factor", "mm", factors=factors, standard_errors="none")
    assert fit.factors is not None
    points = jnp.asarray(fit.factors.structure)
    points = points - points.mean(axis=0)
    # A rotation of the factors changes nothing.
    points = points @ inverse_cholesky(points.T @ points / len(points)).T
    mixture, _ = choose_mixture(points, key=jax.random.key(0), most=MOST)
    label = np.asarray(mixture.responsibilities).argmax(axis=1)
    of = lambda kind: np.asarray(labels[kind])[columns[varied]]
    return {
        "generator": name,
        "subjects": subjects,
        "items": int(varied.sum()),
        "factors": factors,
        "clusters": int(mixture.num_components),
        "Rand, benchmarks": adjusted_rand(label, of("benchmark")),
        "Rand, subsets": adjusted_rand(label, of("subset")),
        "Rand, benchmarks and subsets": adjusted_rand(of("benchmark"), of("subset")),
    }


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Prints the table, and writes it with `--out`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="more subjects and items")
    parser.add_argument("--out", type=Path, help="folder for a CSV file")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    size = (300, 600) if options.full else (100, 150)
    rows = []
    for name in ("k16", "k64") if options.full else ("k16",):
        rows.append(clusters(name, *size, 4))
        print(aligned(rows[-1:]), flush=True)
    write_csv(options.out, "item_clusters", rows)
    return rows


if __name__ == "__main__":
    main()
