"""False discoveries and power of tests of differential functioning, under impact.

    python experiments/aims/fairness.py [--replicates 40] [--json FILE]

Two groups whose abilities differ by .7 standard deviations; a share of the items is
easier for the second group, as leaked items are, all in one direction. For each test:
share of false ones among the items found (asked: 5 %), share of the planted ones found,
error of the estimated change of the mean score, and the difference that an item of
median error must have.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.special import expit

import irtjax

#: Subjects of the two groups, items, share planted, and their shift in logits.
DESIGNS = (
    (200, 200, 40, 0.0, 0.0),
    (200, 200, 40, 0.2, 1.0),
    (200, 100, 40, 0.4, 1.0),
    (150, 150, 100, 0.3, 1.5),
    (15, 15, 100, 0.3, 1.5),
)
IMPACT = 0.7


def draw(rng: np.random.Generator, design: tuple) -> tuple:
    """Responses, groups, which items are planted, and points they add to the score."""
    first, second, items, share, shift = design
    codes = np.repeat([0, 1], [first, second])
    theta = rng.normal(size=first + second) + IMPACT * codes
    slope, intercept = rng.uniform(0.7, 1.6, items), rng.normal(size=items)
    planted = np.arange(items) < share * items
    logit = theta[:, None] * slope + intercept
    moved = logit + shift * planted * codes[:, None]
    right = (rng.random(logit.shape) < expit(moved)).astype(int)
    everyone = rng.normal(IMPACT * second / (first + second), 1, 4000)
    base = everyone[:, None] * slope + intercept
    points = 100 * (expit(base + shift * planted) - expit(base)).mean()
    return right, codes, planted, points


def main() -> None:
    """Prints a table by design and test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for design in DESIGNS:
        for method in ("score", "mh", "logistic"):
            false, power, moved, detectable = [], [], [], []
            for replicate in range(arguments.replicates):
                rng = np.random.default_rng(replicate)
                right, codes, planted, points = draw(rng, design)
                table = irtjax.ResponseTable.from_arrays(right)
                result = irtjax.dif(
                    table, codes.astype(str), method=method, reference="0"
                )
                differs = np.array(result.table.column("differs").to_pylist())
                false.append((differs & ~planted).sum() / max(differs.sum(), 1))
                power.append(differs[planted].mean() if planted.any() else np.nan)
                moved.append(result.score_difference["1"] - points)
                detectable.append(result.detectable)
            row = {
                "subjects": f"{design[0]} + {design[1]}",
                "items": design[2],
                "planted": design[3],
                "shift": design[4],
                "test": method,
                "false": float(np.mean(false)),
                "found": float(np.mean(power)),
                "score_error": float(np.mean(moved)),
                "detectable": float(np.mean(detectable)),
            }
            rows.append(row)
            print(
                f"{row['subjects']:>10} x {row['items']:<4} planted"
                f" {row['planted']:.0%} by {row['shift']:.1f}  {method:8}"
                f"  false {row['false']:.3f}"
                f"  found {row['found']:.2f}  score {row['score_error']:+.2f}"
                f"  detectable {row['detectable']:.0f}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
