"""Defaults on samples of the items of real benchmarks, against all items.

    python experiments/coverage/benchmarks.py                  # three samples of each
    python experiments/coverage/benchmarks.py --full --out DIR # docs/evidence

A sample of the items of a benchmark is fitted; what it states about order, pairs, ranks
and the best subject is compared with the accuracies on all items of the benchmark. Real
responses come from `../shared/data` where that folder lies beside the checkout.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.coverage.designs import evaluate
from experiments.coverage.tables import markdown

SHARED = Path(__file__).resolve().parents[3] / "shared/data"
SIZES = (60, 200)
#: Benchmarks of the twelve models with enough items to draw from.
LARGE = 1000
#: Subjects that are drawn for each sample from a benchmark with more of them.
DRAWN = (10, 30)
MODELS = {"default": "auto", "rasch": "rasch"}
MEASURES = {
    "found": "pairs found", "gain": "more than by accuracy", "false": "false",
    "rank": "rank", "p_best": "P(best)", "is_best": "is best",
    "tau_gain": "τ less accuracy's",
}  # fmt: skip
COLUMNS = {
    "benchmark": "benchmark", "subjects": "N", "items": "J", "model": "fitted",
} | MEASURES  # fmt: skip

Draw = Callable[[np.random.Generator], np.ndarray]


def benchmarks() -> Iterator[tuple[str, np.ndarray, int | None]]:
    """Names, responses `[subjects, items]` (NaN missing), subjects to draw."""
    import pyarrow.parquet as parquet

    folder = SHARED / "psn_irt"
    if folder.is_dir():
        read = parquet.read_table(
            folder / "responses_corrected_items_by_models.parquet"
        )
        names = [n for n in read.column_names if n not in ("item", "__index_level_0__")]
        values = np.array(
            [
                read[name].cast("float64").to_numpy(zero_copy_only=False)
                for name in names
            ]
        )
        of = np.array(parquet.read_table(folder / "items.parquet")["benchmark"])
        for name in sorted(set(of)):
            mine = values[:, of == name]
            if mine.shape[1] >= LARGE:
                yield name, mine, None
    file = SHARED / "lart/accuracy_math500.parquet"
    if file.is_file():
        read = parquet.read_table(file)
        names = [name for name in read.column_names if name.startswith("math500")]
        values = np.array([read[name].to_numpy() for name in names], float).T
        for subjects in DRAWN:
            yield "MATH-500", values, subjects


def without_copies(values: np.ndarray) -> np.ndarray:
    """The responses without all but one of the subjects that are copies."""
    from irtjax.calibration.copies import copies_of

    seen = ~np.isnan(values)
    found = copies_of(np.where(seen, values, 0), seen)
    out = [place for group in found.groups for place in group[1:]]
    return np.delete(values, out, axis=0)


def study(
    values: np.ndarray, items: int, subjects: int | None, model: str, samples: int
) -> dict[str, Any]:
    """Means over samples of items, and their Monte-Carlo errors."""
    found = []
    for sample in range(samples):
        rng = np.random.default_rng([items, subjects or 0, sample])
        own = values
        if subjects is not None:
            own = values[rng.choice(len(values), subjects, replace=False)]
        truth = np.nanmean(own, axis=1)
        drawn = own[:, rng.choice(own.shape[1], items, replace=False)]
        seen = ~np.isnan(drawn)
        drawn = np.where(seen, drawn, 0).astype(np.int8)
        table = irtjax.ResponseTable.from_arrays(drawn, observed=seen)
        fit = irtjax.fit(table, MODELS[model])
        one = evaluate(truth, truth, table, fit)
        one["gain"] = one["found"] - one["found_accuracy"]
        one["tau_gain"] = one["tau"] - one["tau_accuracy"]
        found.append(one)
    row: dict[str, Any] = {"subjects": len(own), "items": items}
    for name in MEASURES:
        column = np.array([one[name] for one in found])
        row[name] = float(column.mean())
        row[f"{name}_error"] = float(column.std(ddof=1) / len(column) ** 0.5)
    return row


def main() -> None:
    """Runs the study; prints the table and writes it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="forty samples of each")
    parser.add_argument("--out", type=Path, help="folder for benchmarks.md")
    chosen = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = []
    for name, values, subjects in benchmarks():
        variants = {name: values}
        if subjects is None and len(distinct := without_copies(values)) < len(values):
            variants[f"{name} without the copy"] = distinct
        elif subjects is not None:
            variants = {name: without_copies(values)}
        for label, responses in variants.items():
            for items in SIZES:
                for model in MODELS:
                    row = study(
                        responses, items, subjects, model, 40 if chosen.full else 3
                    )
                    rows.append({"benchmark": label, "model": model, **row})
                    line = markdown(rows[-1:], COLUMNS).splitlines()[-1]
                    print(line, flush=True)
    if not rows:
        sys.exit("the data are not here: nothing was measured")
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
        text = markdown(rows, COLUMNS)
        (chosen.out / "benchmarks.md").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
