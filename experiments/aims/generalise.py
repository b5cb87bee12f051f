"""Predictions of unseen responses by kind of newness (AIMS 4.8), and a penalty (4.6.2).

    python experiments/aims/generalise.py                       # small
    python experiments/aims/generalise.py --full --only gsm8k  # a table of the README

`penalty` repeats the book's cross-validation (seed 42). `k16` and `k64` are responses
of 300 subjects to 1,000 items drawn from published factors of a leaderboard
(`shared/data/llm_factors`), whose chances are known. `gsm8k` has real responses
(`shared/data/metabench`), `code` counts of ten with dates
(`shared/data/livecodebench`), `agents` new tasks by features (`shared/data/agents`).
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
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
from irtjax.prediction import splits
from irtjax.prediction.cold_start import feature_chances

#: Columns of the tables.
COLUMNS = ("scheme", "model", "stages", "auc", "auc_lower", "auc_upper")
COLUMNS += ("auc_subjects", "auc_items", "log_score", "calibration")
#: Penalties of the book.
PENALTIES = (0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0)
SCHEMES = ("entry", "rows", "columns", "L")


def rows_of(result: Any) -> list[dict[str, Any]]:
    """The rows of a result, without the mean of all."""
    rows = [x for x in result.table.to_pylist() if x["model"] != "mean"]
    return [{name: row[name] for name in COLUMNS} for row in rows]


def book(full: bool, folder: Path) -> list[dict[str, Any]]:
    """Log scores by the penalty, of Rasch's model by MAP with posterior means.

    The book's are of plug-in joint estimates: `tests/prediction` reproduces those.
    """
    del folder
    state = np.random.RandomState(42)
    theta, beta = state.normal(0, 1, 100), state.normal(0, 1.5, 50)
    values = (state.random((100, 50)) < expit(theta[:, None] - beta)).astype(float)
    folds = np.random.RandomState(42).randint(0, 5, (100, 50))
    # The weak prior of an intercept has standard deviation 3.
    scales = [x**-0.5 / 3 for x in (PENALTIES if full else PENALTIES[3:5])]
    table = irtjax.ResponseTable.from_arrays(values)
    models = {"rasch": {"model": "rasch", "method": "em"}}
    result = irtjax.cross_validate(table, models, prior_scales=scales, folds=folds)
    return [
        {
            "penalty": (3 * row["prior_scale"]) ** -2,
            **{name: row[name] for name in ("log_score", "log_score_se", "auc")},
        }
        for row in result.table.to_pylist()
    ]


def factors(name: str, full: bool, folder: Path) -> list[dict[str, Any]]:
    """Responses drawn from published factors, and their chances."""
    size = (300, 1000) if full else (100, 100)
    with np.load(folder / "llm_factors" / f"open_llm_5suite_{name}.npz") as stored:
        rng = np.random.default_rng(0)
        chosen = [
            np.sort(rng.choice(len(stored[x]), n, replace=False))
            for x, n in zip("UV", size, strict=True)
        ]
        chance = expit(stored["U"][chosen[0]] @ stored["V"][chosen[1]].T)
    values = (rng.random(chance.shape) < chance).astype(float)
    table = irtjax.ResponseTable.from_arrays(values)
    models = {"2pl": {"model": "2pl", "method": "em"}, "truth": lambda part: chance}
    models |= {"factor:4": "factor:4"} if full else {}
    return rows_of(irtjax.generalise(table, SCHEMES, models))


def gsm8k(full: bool, folder: Path) -> list[dict[str, Any]]:
    """Real responses of models of a leaderboard."""
    import pandas as pd

    file = folder / "metabench" / "gsm8k_2pl_responses.parquet"
    values = pd.read_parquet(file).to_numpy(float)
    rng = np.random.default_rng(0)
    values = values[rng.choice(len(values), 1000 if full else 100, replace=False)]
    table = irtjax.ResponseTable.from_arrays(values)
    schemes = {
        "entry": splits.entry,
        "rows": splits.rows,
        "rows_shifted": splits.rows_shifted,
        "columns": splits.columns,
        "L": splits.block,
    }
    return rows_of(irtjax.generalise(table, schemes, ["2pl"]))


def code(full: bool, folder: Path) -> list[dict[str, Any]]:
    """Counts of ten samples, with dates of problems and models."""
    import pandas as pd

    del full
    place = folder / "livecodebench"
    long = pd.read_parquet(place / "generation_2024_02_long.parquet")
    matrix = long.pivot(index="model", columns="item", values="pass1")
    dates = pd.read_csv(place / "generation_2024_02_models.csv")
    released = dates.set_index("model_repr")["release_date"]
    released = released.reindex(matrix.index).dropna()
    matrix = matrix.loc[released.index]
    problems = long.drop_duplicates("item").set_index("item")["date"]
    right = (matrix.to_numpy(float) / 10).round()
    trials = np.where(np.isfinite(right), 10, 0)
    table = irtjax.ResponseTable.from_arrays(
        np.nan_to_num(right), trials=trials, observed=trials > 0
    ).replace(
        subject_facets={"date": released.to_numpy(str)},
        item_facets={"date": problems.loc[matrix.columns].astype(str).to_numpy(str)},
    )
    schemes = {
        "entry": splits.entry,
        "new models": splits.temporal,
        "new problems": partial(splits.temporal, subject_date=None, item_date="date"),
    }
    # Sixteen subjects do not determine slopes.
    models = {"rasch": {"model": "rasch", "method": "em"}}
    return rows_of(irtjax.generalise(table, schemes, models))


def agents(full: bool, folder: Path) -> list[dict[str, Any]]:
    """New tasks by 15 judged features, in five folds of tasks."""
    import pandas as pd

    rows = []
    names = ("swebench_verified", "terminal_bench_2")
    for name in names if full else names[1:]:
        long = pd.read_parquet(folder / "agents" / f"{name}_long.parquet")
        values = long.pivot(index="agent", columns="task", values="resolved")
        table = irtjax.ResponseTable.from_arrays(
            values.to_numpy(float), items=values.columns, subjects=values.index
        )
        features = pd.read_csv(folder / "agents" / f"{name}_task_features.csv")
        features = features.rename(columns={features.columns[0]: "item"})
        models = {"features": feature_chances(features)}
        result = irtjax.generalise(table, {name: splits.new_items}, models)
        rows += rows_of(result)
    return rows


PARTS = {
    "penalty": book,
    "k16": partial(factors, "k16"),
    "k64": partial(factors, "k64"),
    "gsm8k": gsm8k,
    "code": code,
    "agents": agents,
}


def main(words: list[str] | None = None) -> None:
    """Runs the parts and prints their tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="sizes of the README")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, help="folder for tables")
    chosen = parser.parse_args(words)
    jax.config.update("jax_enable_x64", True)
    for name in PARTS if chosen.only is None else [chosen.only]:
        rows = PARTS[name](chosen.full, chosen.shared)
        print(f"\n{name}\n{aligned(rows)}")
        write_csv(chosen.out, f"generalise_{name}", rows)


if __name__ == "__main__":
    main()
