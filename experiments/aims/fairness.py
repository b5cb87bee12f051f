"""False discoveries and power of tests of differential functioning, under impact.

    python experiments/aims/fairness.py [--replicates 40] [--only impact|clusters|leaks]
        [--json FILE]

- `impact`: two groups whose abilities differ by .7 standard deviations; a share of the
  items is easier for the second group by one logit, all in one direction.
- `clusters`: the same, of fine-tunes: the models of each of 60 or 20 bases share
  deviations of items with a standard deviation of .8 logits; with and without
  `cluster=`.
- `leaks`: 300 models, ten of 100 items leaked, as in experiments/psn_irt/defects.py:
  hard ones (a = 1.5, b ~ U(.5, 1.5)) that a share of the later half of the models, or
  all models of one family of six, knows beforehand; by `irtjax.dif` and by the audit.

For each test: the mean share of false ones among the items found (5 % are allowed), the
share of the planted ones found, and the error of the change of the mean score.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

import irtjax

#: Difference of mean abilities of two groups; shift of planted items, in logits.
IMPACT, SHIFT = 0.7, 1.0
#: Standard deviation of the deviations of a base, by item.
OF_BASE = 0.8
#: Models and items of each table; share of items leaked, and families.
MODELS, ITEMS, LEAKED, FAMILIES = 300, 100, 0.1, 6


class Case(NamedTuple):
    """A table `[subjects, items]`, which items are planted, and labels of subjects."""

    right: np.ndarray
    planted: np.ndarray
    labels: dict[str, np.ndarray]
    points: float = float("nan")


class Test(NamedTuple):
    """A call of `irtjax.dif`: its label of subjects and its settings."""

    name: str
    label: str
    settings: dict[str, Any]


def two_groups(rng: np.random.Generator, share: float) -> Case:
    """Two groups, and planted items that are easier for the second."""
    codes, items = np.repeat([0, 1], MODELS // 2), ITEMS
    theta = rng.normal(size=len(codes)) + IMPACT * codes
    slope, intercept = rng.uniform(0.7, 1.6, items), rng.normal(size=items)
    planted = np.arange(items) < share * items
    logit = theta[:, None] * slope + intercept + SHIFT * planted * codes[:, None]
    right = (rng.random(logit.shape) < expit(logit)).astype(int)
    everyone = rng.normal(IMPACT * codes.mean(), 1, 4000)[:, None]
    base = everyone * slope + intercept
    points = 100 * (expit(base + SHIFT * planted) - expit(base)).mean()
    return Case(right, planted, {"group": codes.astype(str)}, points)


def fine_tunes(rng: np.random.Generator, share: float, bases: int) -> Case:
    """Two groups with half of the bases each, whose fine-tunes share deviations."""
    items = ITEMS
    base = np.repeat(np.arange(bases), MODELS // bases)
    codes = (base >= bases // 2).astype(int)
    theta = (rng.normal(size=bases)[base] + 0.5 * rng.normal(size=len(base))) / 1.12
    slope, intercept = rng.uniform(0.7, 1.6, items), rng.normal(size=items)
    planted = np.arange(items) < share * items
    own = OF_BASE * rng.normal(size=(bases, items))[base]
    logit = (theta + IMPACT * codes)[:, None] * slope + intercept + own
    logit += SHIFT * planted * codes[:, None]
    right = (rng.random(logit.shape) < expit(logit)).astype(int)
    return Case(right, planted, {"group": codes.astype(str), "base": base.astype(str)})


def leaks(rng: np.random.Generator, known: float, by: str) -> Case:
    """Items that a share of the later models, or of one family, knows beforehand."""
    date = rng.permutation(np.linspace(-1, 1, MODELS))
    family = rng.permutation(np.arange(MODELS) % FAMILIES)
    theta = (rng.normal(size=MODELS) + IMPACT * (date > 0))[:, None]
    slope, middle = rng.uniform(0.8, 2, ITEMS), rng.normal(size=ITEMS)
    planted = np.arange(ITEMS) < LEAKED * ITEMS
    slope[planted], middle[planted] = 1.5, rng.uniform(0.5, 1.5, planted.sum())
    may = date > 0 if by == "date" else family == 0
    knows = (rng.random((MODELS, ITEMS)) < known) & may[:, None] & planted
    right = knows | (rng.random((MODELS, ITEMS)) < expit(slope * (theta - middle)))
    labels = {
        "release": np.where(date > 0, "after", "before"),
        "date": date,
        "family": np.array([f"family {k}" for k in family]),
    }
    return Case(right.astype(int), planted, labels)


def differing(case: Case, test: Test) -> tuple[np.ndarray, float]:
    """Which items a test, or the audit, names; points added to the mean score."""
    table = irtjax.ResponseTable.from_arrays(case.right)
    if test.name == "audit":
        audit = irtjax.audit(table, model="2pl", method="em")
        named = [x["item"] for x in audit.items.to_pylist() if _leaked(x)]
        return np.isin(table.items, named), float("nan")
    settings: dict[str, Any] = {
        name: case.labels[x] if name == "cluster" else x
        for name, x in test.settings.items()
    }
    result = irtjax.dif(table, case.labels[test.label], **settings)
    differs = np.array(result.table.column("differs").to_pylist())
    return differs, result.score_difference.get("1", float("nan"))


def _leaked(row: dict[str, Any]) -> bool:
    return "suspected contamination" in row["flags"]


def measure(
    name: str,
    draw: Callable[[np.random.Generator], Case],
    tests: list[Test],
    replicates: int,
) -> list[dict[str, Any]]:
    """A row for each test, printed."""
    cases = [draw(np.random.default_rng(k)) for k in range(replicates)]
    rows = []
    for test in tests:
        start, false, power, errors = time.process_time(), [], [], []
        for case in cases:
            differs, points = differing(case, test)
            planted = case.planted
            false.append((differs & ~planted).sum() / max(differs.sum(), 1))
            power.append(differs[planted].mean() if planted.any() else np.nan)
            errors.append(points - case.points)
        row = {
            "design": name,
            "test": test.name,
            "false": float(np.mean(false)),
            "false_error": float(np.std(false) / np.sqrt(replicates)),
            "power": float(np.mean(power)),
            "score_error": float(np.mean(errors)),
            "seconds": (time.process_time() - start) / replicates,
        }
        rows.append(row)
        print(
            f"{name:42} {test.name:14} false {row['false']:.3f} ±"
            f" {row['false_error']:.3f}  power {row['power']:.2f}"
            f"  score {row['score_error']:+.2f}  {row['seconds']:.2f} s",
            flush=True,
        )
    return rows


def designs() -> dict[str, list[tuple]]:
    """Designs by name of study: name, how to draw, tests."""
    three = [
        Test(x, "group", {"method": x, "reference": "0"})
        for x in ("score", "mh", "logistic")
    ]
    clustered = Test("score, cluster", "group", {"cluster": "base", "reference": "0"})
    strata = [Test(x, "release", {"method": x}) for x in ("score", "mh")]
    numbers = [
        Test(f"{x}, number", "date", {"method": x}) for x in ("score", "logistic")
    ]
    audit, families = Test("audit", "", {}), Test("score, family", "family", {})
    studies: dict[str, list[tuple]] = {"impact": [], "clusters": [], "leaks": []}
    for share in (0.0, 0.1, 0.2):
        draw = lambda rng, a=share: two_groups(rng, a)
        name = f"150 + 150 x 100, {share:.0%} planted"
        studies["impact"].append((name, draw, three))
    for bases, share in ((60, 0.0), (60, 0.1), (20, 0.0), (20, 0.1)):
        name = f"{bases} bases of {MODELS // bases} x 100, {share:.0%} planted"
        draw = lambda rng, a=share, n=bases: fine_tunes(rng, a, n)
        studies["clusters"].append((name, draw, [three[0], clustered]))
    for known in (0.5, 1.0):
        name = f"10 leaked to {known:.0%} of later models"
        draw = lambda rng, a=known: leaks(rng, a, "date")
        studies["leaks"].append((name, draw, [*strata, *numbers, audit]))
    draw = lambda rng: leaks(rng, 1.0, "family")
    studies["leaks"].append(("10 leaked to a family of six", draw, [families, audit]))
    return studies


def main() -> None:
    """Prints a table by design and test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--only", choices=("impact", "clusters", "leaks"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for study, cases in designs().items():
        if arguments.only in (None, study):
            for name, draw, tests in cases:
                rows += measure(name, draw, tests, arguments.replicates)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
