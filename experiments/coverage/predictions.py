"""Predictions of responses that were not fitted, against additive ones.

    python experiments/coverage/predictions.py                  # small: a minute
    python experiments/coverage/predictions.py --full --out DIR # docs/evidence

A fifth of the cells is left out, `irtjax.fit` fits the others, and `irtjax.predict`
predicts those left out, stacked with additive effects of subjects and items, or by the
model alone. Real responses come from `../shared/data` where that folder lies beside the
checkout.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.special import expit, logit

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.coverage.benchmarks import SHARED
from experiments.coverage.tables import run_designs
from irtjax.prediction.stacking import additive

HELD_OUT = 0.2


@dataclasses.dataclass(frozen=True)
class Design:
    """Sizes, what is drawn, and the number of data sets.

    Attributes:
        subjects: Number of subjects.
        items: Number of items.
        truth: "rasch", "2pl", "3pl", or the name of real data.
        replications: Data sets.
    """

    subjects: int
    items: int
    truth: str = "2pl"
    replications: int = 20


FULL = tuple(
    Design(subjects, items, truth)
    for truth in ("rasch", "2pl", "3pl", "MATH-500", "twelve models")
    for subjects in (12, 20)[: 1 + (truth != "twelve models")]
    for items in (200,)
)
SMALL = (Design(12, 100, replications=2), Design(12, 100, "rasch", replications=2))


def real(name: str) -> np.ndarray:
    """Real responses `[subjects, items]`, NaN where missing."""
    import pyarrow.parquet as parquet

    if name == "MATH-500":
        read = parquet.read_table(SHARED / "lart/accuracy_math500.parquet")
        names = [name for name in read.column_names if name.startswith("math500")]
        return np.array([read[name].to_numpy() for name in names], float).T
    file = SHARED / "psn_irt/responses_corrected_items_by_models.parquet"
    read = parquet.read_table(file)
    names = [n for n in read.column_names if n not in ("item", "__index_level_0__")]
    column = lambda n: read[n].cast("float64").to_numpy(zero_copy_only=False)
    return np.array([column(name) for name in names])


def draw(design: Design, rng: np.random.Generator) -> np.ndarray:
    """Responses `[subjects, items]`, NaN where missing."""
    if design.truth in ("MATH-500", "twelve models"):
        values = real(design.truth)
        rows = rng.choice(len(values), design.subjects, replace=False)
        return values[rows][:, rng.choice(values.shape[1], design.items, replace=False)]
    slope = np.exp(rng.normal(0.1, 0.4, design.items) * (design.truth != "rasch"))
    ability = rng.normal(size=(design.subjects, 1))
    mean = expit(slope * (ability - rng.normal(-0.3, 1.2, design.items)))
    if design.truth == "3pl":
        low = rng.uniform(0.1, 0.3, design.items)
        mean = low + (1 - low) * mean
    return (rng.random(mean.shape) < mean).astype(float)


def recalibrated(right: np.ndarray, chance: np.ndarray) -> float:
    """The slope of a logistic regression of responses on predicted logits."""
    x = np.column_stack([np.ones_like(chance), logit(np.clip(chance, 1e-6, 1 - 1e-6))])
    beta = np.array([0.0, 1.0])
    for _ in range(30):
        p = expit(x @ beta)
        information = (x * (p * (1 - p))[:, None]).T @ x
        beta = beta + np.linalg.solve(information, x.T @ (right - p))
    return float(beta[1])


def loss(right: np.ndarray, chance: np.ndarray) -> float:
    """Mean log-loss in nats."""
    kept = np.clip(chance, 1e-9, 1 - 1e-9)
    return float(-np.mean(np.where(right > 0, np.log(kept), np.log1p(-kept))))


def run_design(design: Design, seed: int) -> dict[str, Any]:
    """One row of the table: means over data sets, and their Monte-Carlo errors."""
    found = []
    for replication in range(design.replications):
        rng = np.random.default_rng([seed, design.subjects, design.items, replication])
        right = draw(design, rng)
        out = (rng.random(right.shape) < HELD_OUT) & np.isfinite(right)
        seen = np.isfinite(right) & ~out
        table = irtjax.ResponseTable.from_arrays(np.where(seen, right, np.nan))
        fit = irtjax.fit(table)
        names: dict[str, Any] = {"subjects": table.subjects, "items": table.items}
        ours = irtjax.predict(fit, **names, data=table).expected
        model = irtjax.predict(fit, **names).expected
        plain = additive(np.where(seen, right, 0.0), seen.astype(float))
        one = {"loss": loss(right[out], ours[out])}
        one["loss_model"] = loss(right[out], model[out])
        one["loss_additive"] = loss(right[out], plain[out])
        one["gain"] = one["loss_additive"] - one["loss"]
        one["gain_model"] = one["loss_additive"] - one["loss_model"]
        one["slope_model"] = recalibrated(right[out], model[out])
        one["slope"] = recalibrated(right[out], ours[out])
        one["slope_additive"] = recalibrated(right[out], plain[out])
        found.append(one)
    row: dict[str, Any] = dataclasses.asdict(design)
    for name in found[0]:
        values = np.array([one[name] for one in found])
        row[name] = float(values.mean())
        row[f"{name}_error"] = float(values.std(ddof=1) / len(values) ** 0.5)
    row["worst"] = float(min(one["gain"] for one in found))
    return row


COLUMNS = {
    "subjects": "N", "items": "J", "truth": "truth", "replications": "sets",
    "loss": "log-loss", "gain": "additive's less this", "worst": "least",
    "gain_model": "additive's less the model's", "slope": "calibration slope",
    "slope_model": "the model's", "slope_additive": "additive's",
}  # fmt: skip


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    """Runs the designs, prints the table and returns its rows."""
    parser = argparse.ArgumentParser(description="Predictions of responses left out")
    parser.add_argument("--full", action="store_true", help="every design")
    parser.add_argument("--only", help="rasch, 2pl, 3pl or the name of real data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sets", type=int, help="data sets of each design")
    parser.add_argument("--out", type=Path, help="folder for predictions.csv and .md")
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    designs = FULL if options.full else SMALL
    chosen = [d for d in designs if options.only in (None, d.truth)]
    if not chosen:
        parser.error(f"no design has the truth {options.only!r}")
    return run_designs(chosen, run_design, options, "predictions", COLUMNS)


if __name__ == "__main__":
    main()
