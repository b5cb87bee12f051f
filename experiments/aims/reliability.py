"""Reliability, and the plain sum against a model, on published data (exercise 1.1).

    python experiments/aims/reliability.py           # components, LSAT7's sum: seconds
    python experiments/aims/reliability.py --full    # the sum of MATH-500 and gsm8k too

Data are those of `shared/data` beside the checkout; sets that are missing are skipped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow.parquet as pq

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.tabulate import aligned, write_csv

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
#: Printed coefficients of comparisons and of scores: of subjects by items, and of
#: systems by articles by three experts (SummEval).
PRINTED = {
    "classic/lsat7.parquet": (0.45341, 0.4369),
    "lart/accuracy_math500.parquet": (0.9977, 0.9971),
    "coherence": (0.8958, 0.8101),
    "consistency": (0.9737, 0.9696),
    "fluency": (0.9637, 0.9459),
    "relevance": (0.8774, 0.7557),
}
#: Data of the plain sum against the 2PL, the small ones first.
SUMS = (
    "classic/lsat7.parquet",
    "lart/accuracy_math500.parquet",
    "metabench/gsm8k_2pl_responses.parquet",
)


def found(name: str) -> Path | None:
    """A file of the shared data; None, with a line, where it is not there."""
    path = SHARED / name
    if path.is_file():
        return path
    print(f"{path} is not there, skipped", file=sys.stderr)
    return None


def coefficients() -> list[dict[str, Any]]:
    """Coefficients of all data with a printed one."""
    rows = []

    def add(name: str, study: Any) -> None:
        design = study.design()
        printed = PRINTED[name]
        rows.append(
            {
                "data": name.removesuffix(".parquet"),
                "E rho^2": design.coefficient,
                "printed": printed[0],
                "Phi": design.dependability,
                "printed Phi": printed[1],
            }
        )

    for name in SUMS[:2]:
        if (path := found(name)) is not None:
            add(name, irtjax.reliability(irtjax.read(path)).components)
    if (path := found("summeval/ratings_long.parquet")) is not None:
        ratings = pq.read_table(path).to_pydict()
        expert = np.array(ratings["rater_type"]) == "expert"
        for dimension in list(PRINTED)[2:]:
            chosen = expert & (np.array(ratings["dimension"]) == dimension)
            names = "system", "item", "rater", "score"
            columns = {x: np.array(ratings[x])[chosen] for x in names}
            add(
                dimension,
                irtjax.generalisability(columns, ["item", "rater"], subject="system"),
            )
    return rows


def sums(full: bool) -> list[dict[str, Any]]:
    """What the plain sum keeps of the information of a 2PL."""
    rows = []
    for name in SUMS if full else SUMS[:1]:
        if (path := found(name)) is None:
            continue
        table = irtjax.read(path)
        fit = irtjax.fit(table, "2pl", "em", standard_errors="none")
        result = irtjax.reliability(table, fit=fit)
        model = result.model
        assert model is not None
        share = np.asarray(model.table["efficiency"])
        theta = np.asarray(model.table["ability"])
        central = np.abs(np.linspace(-3, 3, len(share))) <= 1.96
        least = np.flatnonzero(central)[np.argmin(share[central])]
        rows.append(
            {
                "data": name.removesuffix(".parquet"),
                "subjects": table.num_subjects,
                "items": table.num_items,
                "alpha": result.alpha,
                "marginal": model.marginal,
                "empirical": model.empirical,
                "sum keeps": model.efficiency,
                "least": share[least],
                "at ability": theta[least],
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Prints the tables, and writes them with `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all data of the sum")
    parser.add_argument("--out", type=Path, help="folder for a CSV file of each table")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    tables = {"coefficients": coefficients(), "sums": sums(options.full)}
    for name, rows in tables.items():
        if rows:
            print(name, aligned(rows), sep="\n")
            write_csv(options.out, name, rows)
    return tables


if __name__ == "__main__":
    main()
