"""Factor models: the rank at the penalty of noise, and the prior by held-out responses.

    python experiments/aims/factor_search.py                    # small: half a minute
    python experiments/aims/factor_search.py --full --out DIR   # the README's tables

Three studies. `rank` draws a known number of factors and counts those that
`penalty="noise"` keeps. `prior` compares `priors="held_out"` with the usual N(0, 1) on
a fifth of the cells, which neither fit sees. `coverage` repeats the study of that name
of `factors.py` with both priors.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
from scipy.special import expit

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.aims.factors import (
    Row,
    auc,
    called,
    drawn_factors,
    logits,
    one_coverage,
)
from experiments.tabulate import aligned, write_csv

#: Largest number of factors of the first study.
MOST = 8


def ranks(subjects: int, items: int, planted: tuple[int, ...], times: int) -> list[Row]:
    """How many factors are kept, by the number drawn and the mean of their slopes."""
    rows = []
    for count in planted:
        for mean in (1.0, 0.5) if count else (0.0,):
            found, certificates = [], []
            for k in range(times):
                rng = np.random.default_rng([count, k])
                slopes = np.zeros((items, max(count, 1)))
                own = rng.uniform(mean / 2, 3 * mean / 2, items)
                slopes[np.arange(items), np.arange(items) % slopes.shape[1]] = own
                eta = rng.normal(size=(subjects, slopes.shape[1])) @ slopes.T
                right = rng.random(eta.shape) < expit(eta + rng.normal(size=items))
                seen = rng.random(eta.shape) < 0.9
                table = irtjax.ResponseTable.from_arrays(
                    right.astype(np.int8), observed=seen
                )
                noise = rank_of(table)
                found.append(noise["rank"])
                certificates.append(noise["certificate"])
            rows.append(
                {
                    "factors": count,
                    "mean slope": mean,
                    "right": float(np.mean(np.array(found) == count)),
                    "fewest": min(found),
                    "most": max(found),
                    "largest q - 1": float(max(certificates) - 1),
                }
            )
    return rows


def rank_of(table: irtjax.ResponseTable) -> Row:
    """The record of the fit at the penalty of noise; a rank of 0 where none is kept."""
    settings = {"factors": MOST, "penalty": "noise", "standard_errors": "none"}
    try:
        return irtjax.fit(table, "factor", "mm", **settings).options["noise"]
    except ValueError as error:
        if "no factor is above noise" not in str(error):
            raise
        return {"rank": 0, "certificate": 1.0}


def priors(name: str, subjects: int, items: int, factors: tuple[int, ...]) -> list[Row]:
    """Area under the curve and log loss of a fifth of the cells by each prior.

    Predictions are posterior means (`irtjax.predict`); the last loss is that of the
    chances at the joint estimates.
    """
    rng = np.random.default_rng(0)
    eta = logits(name, subjects, items, rng)
    right = (rng.random(eta.shape) < expit(eta)).astype(float)
    out = rng.random(eta.shape) < 0.2
    table = irtjax.read(np.where(out, np.nan, right))
    rows, answer = [], right[out] == 1
    for count in factors:
        for prior in ("weak", "held_out"):
            began = time.perf_counter()
            fit = irtjax.fit(
                table,
                "factor",
                "mm",
                factors=count,
                priors=prior,
                standard_errors="none",
            )
            seconds = time.perf_counter() - began
            chance = irtjax.predict(fit).expected[out]
            found = fit.parameters.items
            slopes = np.asarray(found.discrimination).reshape(items, -1)
            theta = np.asarray(fit.parameters.theta).reshape(subjects, -1)
            plain = expit(theta @ slopes.T + np.asarray(found.intercept))[out]
            loss = lambda p: float(-np.log(np.where(answer, p, 1 - p)).mean())
            scale = fit.options.get("prior_scale", {})
            rows.append(
                {
                    "generator": called(name),
                    "factors": count,
                    "prior": prior,
                    "slope sd": scale.get("slope_sd", 1.0),
                    "one standard error": scale.get("one_standard_error", ""),
                    "auc": auc(right[out], chance),
                    "log_loss": loss(chance),
                    "log_loss at the estimates": loss(plain),
                    "seconds": seconds,
                }
            )
    return rows


def coverage(subjects: int, items: int, factors: int, times: int) -> list[Row]:
    """Shares of 95 % intervals that hold what was drawn, by each prior."""
    found: dict[tuple[str, str], list[float]] = {}
    for k in range(times):
        rng = np.random.default_rng([9, k])
        slopes, intercept, theta, correlation = drawn_factors(
            rng, subjects, items, factors
        )
        chance = expit(theta @ slopes.T + intercept)
        right = (rng.random(chance.shape) < chance).astype(np.int8)
        table = irtjax.ResponseTable.from_arrays(right)
        for prior in ("weak", "held_out"):
            fit = irtjax.fit(table, "factor", "mm", factors=factors, priors=prior)
            given = fit, chance, slopes, correlation, np.random.default_rng(k)
            for quantity, value in one_coverage(*given).items():
                found.setdefault((prior, quantity), []).append(value)
    return [
        {
            "prior": prior,
            "quantity": quantity,
            "value": float(np.mean(values)),
            "se": float(np.std(values, ddof=1) / len(values) ** 0.5),
        }
        for (prior, quantity), values in found.items()
    ]


def main(arguments: list[str] | None = None) -> dict[str, list[Row]]:
    """Runs the studies and prints their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the README")
    parser.add_argument("--out", type=Path, help="folder for a CSV file of each study")
    parser.add_argument("--only", choices=["rank", "prior", "coverage"])
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    full, found = options.full, {}
    if options.only in (None, "rank"):
        found["rank"] = (
            ranks(300, 200, (0, 1, 2, 4), 10) if full else ranks(60, 30, (1,), 1)
        )
    if options.only in (None, "prior"):
        size = (300, 1000, (4, 8)) if full else (60, 40, (2,))
        names = ("k16", "k64") if full else ("k16",)
        found["prior"] = [row for name in names for row in priors(name, *size)]
    if options.only in (None, "coverage"):
        found["coverage"] = coverage(*((300, 200, 3, 20) if full else (60, 40, 2, 2)))
    for study, rows in found.items():
        print(study)
        print(aligned(rows), flush=True)
        write_csv(options.out, study, rows)
    return found


if __name__ == "__main__":
    main()
