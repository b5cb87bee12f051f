"""Models of slopes fitted by name to few subjects: pairs of equal subjects that differ.

    python experiments/coverage/few.py                # small: a minute
    python experiments/coverage/few.py --full --out DIR  # docs/evidence/few-subjects.md

Each replication draws abilities, items and responses, and calls `irtjax.fit(table,
model, method)`. Fits test pairs as if `irtjax.calibration.scale` had no rule; what the
rule decides is a column of its own. The README beside this file says what the columns
are.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.coverage.designs import share, spread_of_pairs
from experiments.coverage.tables import markdown, write
from irtjax.calibration import build, scale
from irtjax.calibration.identification import variation
from irtjax.ranking import without_scale
from irtjax.ranking.discoveries import benjamini_hochberg

RATE = 0.05
#: Distance of the two groups, and of the one subject that differs, in logits.
APART = 1.5
CATEGORIES = 4


@dataclasses.dataclass(frozen=True)
class Design:
    """What is drawn and fitted.

    Attributes:
        method: Name of the method.
        model: Name of the model; the truth is a 3pl for "3pl", graded for "graded",
            else a 2pl.
        subjects: Number of subjects.
        items: Number of items.
        abilities: "equal"; "normal"; "groups", two of equal size; "one", of
            whom one differs.
        tables: Data sets.
    """

    method: str
    model: str
    subjects: int
    items: int
    abilities: str
    tables: int = 20


def draw_abilities(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Abilities of a design."""
    if kind == "normal":
        return rng.normal(size=count)
    ability = np.zeros(count)
    if kind == "groups":
        ability[: count // 2] = APART
    if kind == "one":
        ability[0] = APART
    return ability


def draw(
    design: Design, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Abilities and expected scores on all items, `[subjects]`, and the table."""
    theta = draw_abilities(design.abilities, design.subjects, rng)
    slope = np.exp(rng.normal(0.1, 0.4, size=design.items))
    place = rng.normal(-0.3, 1.2, size=design.items)
    logit = slope * (theta[:, None] - place)
    uniform = rng.random(logit.shape)
    if design.model == "graded":
        steps = np.sort(rng.normal(0, 1.2, size=(design.items, CATEGORIES - 1)))
        above = 1 / (1 + np.exp(-(logit[..., None] - slope[:, None] * steps)))
        values, mean = (uniform[..., None] < above).sum(axis=-1), above.sum(axis=-1)
    else:
        low = rng.uniform(0.1, 0.3, design.items) if design.model == "3pl" else 0.0
        mean = low + (1 - low) / (1 + np.exp(-logit))
        values = (uniform < mean).astype(float)
    return theta, mean.mean(axis=1), irtjax.ResponseTable.from_arrays(values)


def fit_without_rule(design: Design, table) -> tuple[Any, bool]:
    """A fit whose errors are as estimated, and whether the rule tests its pairs."""
    rule, tested = scale.with_errors_of_scale, []

    def note(estimates, *data):
        tested.append(rule(estimates, *data).error is estimates.error)
        return estimates

    build.with_errors_of_scale = note
    try:
        fit = irtjax.fit(table, design.model, design.method)
    finally:
        build.with_errors_of_scale = rule
    return fit, tested[-1]


def evaluate(theta: np.ndarray, score, table, fit, tested: bool) -> dict[str, float]:
    """What one fit states against what was drawn."""
    from scipy.special import ndtr

    column = fit.abilities.table.column
    ability, error = (column(x).to_numpy() for x in ("ability", "ability_se"))
    first, second = np.triu_indices(len(theta), 1)
    gap, apart = ability[first] - ability[second], theta[first] - theta[second]
    shared, scales = fit.ability_shared, fit.ability_scale
    spread = spread_of_pairs(error, shared, first, second)
    given = spread_of_pairs(*without_scale(error, shared, scales), first, second)
    p_value = 2 * ndtr(-np.abs(gap) / np.maximum(given, 1e-12))
    called = benjamini_hochberg(p_value) <= RATE
    equal, strength = apart == 0, variation(table).strength
    low, high = (
        column(f"expected_score_{end}").to_numpy() for end in ("lower", "upper")
    )
    return {
        "any": float(called.any()),
        "of_equal": share(called, equal),
        "of_unequal": share(called & (gap * apart > 0), ~equal),
        "wrong": float((called & (gap * apart <= 0)).sum() / max(called.sum(), 1)),
        "difference": float((np.abs(gap - apart) <= 1.959964 * spread).mean()),
        "score": float(((low <= score) & (score <= high)).mean()),
        "strength": strength,
        "tested": float(tested),
        "any_tested": float(tested and called.any()),
    }


def run_design(design: Design, seed: int) -> dict[str, Any]:
    """One row of the table: means over data sets, and their Monte-Carlo errors."""
    found, began = [], time.process_time()
    for replication in range(design.tables):
        size = design.subjects, design.items, replication
        rng = np.random.default_rng([seed, *size])
        theta, score, table = draw(design, rng)
        fit, tested = fit_without_rule(design, table)
        found.append(evaluate(theta, score, table, fit, tested))
    row = dataclasses.asdict(design)
    for name in found[0]:
        values = np.array([one[name] for one in found])
        row[name] = float(values.mean())
        row[f"{name}_error"] = float(values.std(ddof=1) / len(values) ** 0.5)
    row["seconds"] = time.process_time() - began
    return row


#: By method: subjects, items, abilities and data sets of 2PL models.
SIZES = {
    "em": (
        (8, 100, "normal", 20), (10, 100, "normal", 20), (10, 100, "groups", 20),
        (12, 25, "normal", 20), (12, 100, "normal", 20), (12, 100, "groups", 20),
        (20, 100, "normal", 20), (20, 100, "equal", 20), (20, 400, "normal", 20),
        (30, 100, "normal", 20), (30, 100, "one", 20), (30, 400, "normal", 20),
        (50, 25, "normal", 20), (50, 100, "normal", 20), (50, 100, "equal", 20),
        (50, 100, "one", 20), (100, 25, "equal", 20),
    ),
    "mm": (
        (8, 100, "normal", 20), (8, 100, "groups", 20), (8, 400, "normal", 10),
        (12, 100, "normal", 20), (20, 100, "normal", 20), (20, 100, "equal", 20),
        (20, 100, "one", 20), (50, 100, "normal", 20),
    ),
    "laplace": (
        (2, 25, "normal", 60), (2, 100, "normal", 60), (2, 100, "equal", 40),
        (3, 25, "normal", 60), (3, 100, "normal", 20), (3, 100, "equal", 40),
        (4, 25, "normal", 60), (4, 25, "equal", 60), (4, 100, "normal", 40),
        (4, 100, "equal", 40), (4, 400, "normal", 20), (4, 400, "equal", 40),
        (6, 25, "normal", 40), (6, 25, "equal", 40), (6, 100, "normal", 40),
        (6, 100, "equal", 40), (8, 100, "equal", 40),
    ),
    "vi": (
        (2, 100, "normal", 10), (2, 100, "equal", 10), (3, 100, "equal", 10),
        (4, 100, "normal", 20), (4, 100, "equal", 20), (8, 100, "normal", 20),
        (8, 100, "equal", 20),
    ),
}  # fmt: skip
FULL = (
    *(Design(name, "2pl", *size) for name, sizes in SIZES.items() for size in sizes),
    Design("em", "graded", 20, 100, "normal", 8),
    Design("em", "graded", 20, 100, "equal", 8),
    Design("em", "3pl", 30, 100, "normal", 8),
    Design("em", "3pl", 30, 100, "equal", 8),
    Design("laplace", "rasch", 2, 25, "normal", 40),
    Design("laplace", "rasch", 4, 25, "normal", 40),
)
SMALL = (
    Design("mm", "2pl", 12, 20, "equal", 2),
    Design("laplace", "2pl", 3, 20, "normal", 2),
)
COLUMNS = {
    "method": "method", "model": "model", "subjects": "N", "items": "J",
    "abilities": "abilities", "tables": "sets", "any": "sets with a pair",
    "of_equal": "of equal pairs", "of_unequal": "of unequal pairs", "wrong": "false",
    "difference": "difference", "score": "score", "strength": "strength",
    "tested": "tested", "any_tested": "sets with a pair, by the rule",
}  # fmt: skip
#: Columns with Monte-Carlo errors.
ERRORS = ("difference",)


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    """Runs the designs, prints the table and returns its rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="every design")
    parser.add_argument("--method", help="designs of one method")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for few.csv and few.md")
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    rows = []
    for design in FULL if options.full else SMALL:
        if options.method in (None, design.method):
            rows.append(run_design(design, options.seed))
            line = markdown(rows[-1:], COLUMNS, ERRORS).splitlines()[-1]
            print(line, file=sys.stderr, flush=True)
    if not rows:
        parser.error(f"no design has the method {options.method!r}")
    text = markdown(rows, COLUMNS, ERRORS)
    print(text)
    if options.out:
        write(options.out, "few", rows, text)
    return rows


if __name__ == "__main__":
    main()
