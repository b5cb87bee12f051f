"""Ability against size and date, and forecasts against persistence (S14).

    python experiments/aims/size_and_time.py              # half a minute
    python experiments/aims/size_and_time.py --out DIR    # its table as CSV

Rasch fits of LiveCodeBench (counts of ten samples), MATH-500 and Terminal-Bench 2, of
`shared/data` beside the checkout. Sizes are read from names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.aims.reliability import found
from experiments.tabulate import aligned, write_csv

#: Columns of the covariates of each row, by the argument of `irtjax.forecast`.
STUDIES = {
    "LiveCodeBench": (
        {"parameters": "names", "date": "release_date"},
        {"date": "release_date", "family": "model_style"},
    ),
    "MATH-500": (
        {"parameters": "names", "family": "vendor"},
        {"parameters": "names", "family": "base_model"},
    ),
    "Terminal-Bench 2": (
        {"date": "date", "family": "model_org"},
        {"date": "date", "family": "model"},
    ),
}


def livecodebench() -> tuple[irtjax.ResponseTable, dict[str, list[Any]], str] | None:
    """Counts of ten samples, and the models with their dates."""
    path = found("livecodebench/generation_2024_02_long.parquet")
    if path is None:
        return None
    rows = pq.read_table(path).to_pydict()
    subjects, row = np.unique(rows["model"], return_inverse=True)
    items, column = np.unique(rows["item"], return_inverse=True)
    share = np.array(rows["pass1"], float)
    seen = np.isfinite(share)
    right, trials = np.zeros((2, len(subjects), len(items)), int)
    right[row[seen], column[seen]] = np.rint(share[seen] / 10).astype(int)
    trials[row[seen], column[seen]] = 10
    table = irtjax.ResponseTable.from_arrays(
        right, subjects=subjects, items=items, trials=trials
    )
    models = pyarrow.csv.read_csv(path.parent / "generation_2024_02_models.csv")
    return table, models.to_pydict(), "model_repr"


def math500() -> tuple[irtjax.ResponseTable, dict[str, list[Any]], str] | None:
    """Right and wrong answers; vendors are the first words of names."""
    path = found("lart/accuracy_math500.parquet")
    if path is None:
        return None
    columns = pyarrow.csv.read_csv(path.parent / "models.csv").to_pydict()
    columns["vendor"] = [name.split("_")[0] for name in columns["base_model"]]
    return irtjax.read(path), columns, "model"


def terminal_bench() -> tuple[irtjax.ResponseTable, dict[str, list[Any]], str] | None:
    """Agents by tasks, with their dates."""
    path = found("agents/terminal_bench_2_long.parquet")
    if path is None:
        return None
    table = irtjax.read(path, subject="agent", item="task", response="resolved")
    models = pyarrow.csv.read_csv(path.parent / "terminal_bench_2_subjects.csv")
    return table, models.to_pydict(), "subject_id"


READERS = dict(zip(STUDIES, (livecodebench, math500, terminal_bench), strict=True))


def rows_of(name: str) -> list[dict[str, Any]]:
    """The rows of a data set: coefficients, and errors of forecasts."""
    data = READERS[name]()
    if data is None:
        return []
    table, models, subject = data
    fit = irtjax.fit(table, "rasch", "em")
    rows = []
    for covariates in STUDIES[name]:
        result = irtjax.forecast(fit, models, name=subject, **covariates)
        terms = {x["term"]: x for x in result.table.to_pylist()}
        row: dict[str, Any] = {
            "data": name,
            "covariates": ", ".join(covariates.values()),
            "models": result.subjects.num_rows,
        }
        for term in ("log10 parameters", "year"):
            row[term] = terms.get(term, {}).get("estimate")
            row[f"{term} se"] = terms.get(term, {}).get("standard_error")
        row |= {"family sd": result.family_sd, "residual sd": result.residual_sd}
        row |= {"explained": result.explained}
        test = result.test or {}
        for column in ("models", "error", "persistence", "coverage"):
            row["predicted" if column == "models" else column] = test.get(column)
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Prints the table, and writes it with `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=STUDIES, nargs="+", default=list(STUDIES))
    parser.add_argument("--out", type=Path, help="folder for the table as CSV")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    rows = [row for name in options.only for row in rows_of(name)]
    print(aligned(rows) if rows else "no data")
    write_csv(options.out, "size_and_time", rows)
    return rows


if __name__ == "__main__":
    main()
