"""Coverage of the defaults of `irtjax.fit`, over the designs users have.

    python experiments/coverage/designs.py                # small: a minute
    python experiments/coverage/designs.py --full --out DIR  # docs/evidence

Each replication draws abilities, items and responses, calls `irtjax.fit(table)` with
nothing else, and compares what it states with what was drawn. The README beside this
file says what the columns are.
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
from experiments.coverage.opponents import (
    adjusted_means,
    paired_accuracies,
    row_means,
)
from experiments.coverage.tables import run_designs
from irtjax._types import Status
from irtjax.ranking import without_scale
from irtjax.ranking.discoveries import benjamini_hochberg

RATE = 0.05
#: Pairs of subjects that are looked at in one data set.
MOST_PAIRS = 20_000
#: The required coverage of intervals.
WANTED = (0.93, 0.97)
#: Trials of each cell where responses are counts, and their correlation in shares.
TRIALS, CORRELATION = 10, 0.5
#: Standard deviation of abilities within a family, of 1 in all, and of its shift of an
#: item in logits.
WITHIN, SHIFT = 0.3, 1.0
#: Highest rating.
HIGHEST = 9
#: Distance of the cuts of partial scores from the middle, and precision between them.
CUT, PRECISION = 2.0, 3.0


@dataclasses.dataclass(frozen=True)
class Design:
    """What is drawn.

    Attributes:
        subjects: Number of subjects.
        items: Number of items.
        abilities: "normal", "skewed", "exponential", "bimodal", "clustered"; "one
            above" (all are equal but one, who is 2 above); or "one fifth at the end"
            (who have hardly a right response).
        missing: Share of cells missing at random.
        skips: Chances of missing responses are those of a logit of `skips` times
            difficulty less ability; 0 for none.
        reversed: Share of items with a wrong key.
        truth: "2pl", or "3pl" with lower asymptotes from .1 to .3.
        kind: "binary", "counts", "scores" (logit-normal), "shares" (of `TRIALS`
            dependent trials), "partial" (0, 1, or beta scores between them) or
            "ratings" (from 0 to 9, of a graded model).
        spread: Standard deviation of abilities, in logits of an average item; 0 makes
            all subjects equal.
        replications: Data sets.
        families: Families of subjects; 0 for independent ones. Abilities of a family
            correlate by .91, and its subjects share a shift of SD 1 logit on each item.
        named: Whether the fit is given the families, or the passages.
        passage: Standard deviation of the shift of ability of a subject on a passage of
            five adjacent items.
        benchmarks: Number of benchmarks, of equal size; each has an ability of its own.
        correlation: Correlation of two of these abilities. The general ability, which
            all benchmarks of such a population measure, is the truth.
    """

    subjects: int
    items: int
    abilities: str = "normal"
    missing: float = 0.0
    truth: str = "2pl"
    kind: str = "binary"
    spread: float = 1.0
    skips: float = 0.0
    reversed: float = 0.0
    replications: int = 40
    families: int = 0
    named: bool = False
    passage: float = 0.0
    benchmarks: int = 1
    correlation: float = 1.0

    @property
    def name(self) -> str:
        """Everything but the sizes, in words."""
        parts = [self.abilities, self.truth, self.kind]
        parts += [f"{self.missing:.0%} missing"] * bool(self.missing)
        parts += [f"weak skip hard ({self.skips})"] * bool(self.skips)
        parts += [f"{self.reversed:.0%} reversed"] * bool(self.reversed)
        parts += ["equal" if self.spread == 0 else f"SD {self.spread}"] * (
            self.spread != 1
        )
        parts += [f"{self.families} families"] * bool(self.families)
        parts += [f"passages SD {self.passage}"] * bool(self.passage)
        parts += ["named"] * self.named
        if self.benchmarks > 1:
            parts += [f"{self.benchmarks} benchmarks correlated {self.correlation}"]
        return ", ".join(parts)


FULL = (
    Design(5, 240),
    Design(8, 25, replications=60),
    Design(8, 60, replications=60),
    Design(8, 240, replications=60),
    Design(10, 100, replications=150),
    Design(10, 240, replications=100),
    Design(15, 400, replications=60),
    Design(10, 2000, replications=100),
    Design(8, 100, spread=0.0),
    Design(10, 240, spread=0.0, replications=100),
    Design(15, 240, spread=0.0),
    Design(10, 240, spread=0.3, replications=100),
    Design(30, 100),
    Design(30, 2000, replications=20),
    Design(60, 200, missing=0.7),
    Design(60, 25, spread=0.3),
    Design(60, 100, spread=0.3),
    Design(60, 200, spread=0.3),
    Design(60, 200, abilities="one above"),
    Design(20, 30, abilities="one fifth at the end"),
    Design(60, 1000, spread=0.2, replications=20),
    Design(200, 25, spread=0.3, replications=20),
    Design(600, 1000, spread=0.2, replications=2),
    Design(10, 240, benchmarks=2, correlation=0.6, replications=100),
    Design(10, 240, benchmarks=4, correlation=0.6, replications=100),
    Design(10, 240, benchmarks=4, correlation=1.0, replications=100),
    Design(12, 330, benchmarks=11, correlation=0.6),
    Design(100, 50),
    Design(100, 200, replications=20),
    Design(200, 40),
    Design(500, 25, replications=20),
    Design(500, 25, missing=0.7, replications=20),
    Design(40, 100, truth="3pl"),
    Design(40, 100, abilities="skewed"),
    Design(200, 40, abilities="skewed"),
    Design(200, 20, abilities="skewed"),
    Design(200, 20, abilities="exponential"),
    Design(40, 100, abilities="bimodal"),
    Design(20, 200, abilities="clustered"),
    Design(60, 200, abilities="clustered"),
    Design(15, 100, kind="counts"),
    Design(15, 100, kind="scores"),
    Design(15, 100, kind="shares"),
    Design(10, 240, kind="shares"),
    Design(5, 240, kind="shares"),
    Design(60, 200, missing=0.7, kind="shares"),
    Design(10, 240, kind="partial"),
    Design(10, 80, kind="ratings"),
    Design(60, 200, skips=1.5),
    Design(60, 200, skips=2.5),
    Design(10, 200, reversed=0.03),
    Design(20, 200, reversed=0.03),
    Design(40, 200, reversed=0.03),
    Design(40, 300, families=4, named=True, replications=20),
    Design(40, 300, families=8, replications=20),
    Design(60, 200, families=15, replications=20),
    Design(20, 200, passage=0.7),
    Design(20, 200, passage=0.7, named=True),
)
SMALL = (
    Design(10, 60, replications=3),
    Design(120, 20, abilities="clustered", replications=2),
)


def draw_abilities(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Abilities with mean 0 and standard deviation 1 in the population."""
    if kind == "normal":
        return rng.normal(size=count)
    if kind == "skewed":  # Gamma with shape 2: skewness 1.4.
        return (rng.gamma(2.0, size=count) - 2) / 2**0.5
    if kind == "exponential":
        return rng.exponential(size=count) - 1
    if kind == "bimodal":
        centre = np.where(rng.random(count) < 0.5, -0.9, 0.9)
        return centre + 0.44 * rng.normal(size=count)
    if kind == "clustered":  # About four subjects of exactly the same ability.
        values = rng.normal(size=max(3, count // 4))
        return values[rng.integers(len(values), size=count)]
    if kind == "one above":
        return 2.0 * (np.arange(count) == 0)
    if kind == "one fifth at the end":
        return np.where(np.arange(count) % 5 == 0, -6.0, rng.normal(size=count))
    raise ValueError(f"no abilities {kind!r}")


def family_of(design: Design) -> np.ndarray:
    """Family of each subject."""
    return np.arange(design.subjects) * design.families // design.subjects


def passage_of(design: Design) -> np.ndarray:
    """Passage of each item."""
    return np.arange(design.items) // 5


def settings_of(design: Design) -> dict[str, Any]:
    """The settings of the fit: the groups, if these are named."""
    if not design.named:
        return {}
    if design.families:
        return {"family": family_of(design)}
    return {"cluster": passage_of(design)}


def draw(
    design: Design, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    """Abilities and expected scores on all items, `[subjects]`, slopes, the table."""
    size = design.subjects, design.items
    theta = draw_abilities(design.abilities, design.subjects, rng)
    if design.families:
        base = draw_abilities(design.abilities, design.families, rng)
        theta = (1 - WITHIN**2) ** 0.5 * base[family_of(design)] + WITHIN * theta
    slope = np.exp(rng.normal(0.1, 0.4, size=design.items))
    theta = theta * (design.spread > 0)
    difficulty = rng.normal(-0.3, 1.2, size=design.items)
    intercept = -slope * difficulty
    wrong_keys = np.arange(design.items) < round(design.reversed * design.items)
    slope, intercept = (np.where(wrong_keys, -x, x) for x in (slope, intercept))
    # Abilities have the unit that fits have: the spread is that of their effect.
    names, each = np.zeros(design.items, int), theta[:, None]
    if design.benchmarks > 1:
        names = np.arange(design.items) * design.benchmarks // design.items
        own = rng.normal(size=(design.subjects, design.benchmarks))[:, names]
        # In the unit of the general ability.
        each = each + (1 / design.correlation - 1) ** 0.5 * own
    logit = each * slope * design.spread + intercept
    if design.families:
        shared = rng.normal(size=(design.families, design.items))
        logit = logit + SHIFT * shared[family_of(design)]
    if design.passage:
        by_passage = rng.normal(size=(design.subjects, design.items // 5))
        logit = logit + slope * design.passage * by_passage[:, passage_of(design)]
    low = rng.uniform(0.1, 0.3, design.items) if design.truth == "3pl" else 0.0
    mean = low + (1 - low) / (1 + np.exp(-logit))
    chances = mean
    if design.passage:  # The expected score is over passages.
        z, weights = np.polynomial.hermite_e.hermegauss(21)
        shifts = slope * design.passage * z[:, None]
        curve = theta[:, None] * slope * design.spread + intercept
        each = [1 / (1 + np.exp(-(curve + shift))) for shift in shifts]
        mean = np.average(each, axis=0, weights=weights)
    options: dict[str, Any] = {}
    if design.benchmarks > 1:
        options["benchmark"] = np.array([f"benchmark {k}" for k in names])
    if design.kind == "counts":
        values = rng.binomial(TRIALS, mean).astype(float)
        options["trials"] = np.full(size, TRIALS)
    elif design.kind == "scores":
        # Logit-normal around the same curves: the continuous model's own truth.
        values = 1 / (1 + np.exp(-(logit + rng.normal(0, 1.5, size))))
        noise = 1.5 * np.polynomial.hermite_e.hermegauss(21)[0]
        weight = np.polynomial.hermite_e.hermegauss(21)[1] / (2 * np.pi) ** 0.5
        mean = sum(
            w / (1 + np.exp(-(logit + e))) for e, w in zip(noise, weight, strict=True)
        )
    elif design.kind == "shares":
        # Chances of a cell vary around the curve: its trials agree beyond ability.
        precision = (1 - CORRELATION) / CORRELATION
        chance = rng.beta(mean * precision, (1 - mean) * precision)
        values = rng.binomial(TRIALS, chance) / TRIALS
    elif design.kind == "ratings":
        shape = design.items, HIGHEST
        steps = np.linspace(2.5, -2.0, HIGHEST) + 0.3 * rng.normal(size=shape)
        above = 1 / (1 + np.exp(-(logit[..., None] + np.sort(steps)[:, ::-1])))
        values = (rng.random(size)[..., None] < above).sum(axis=2)
        mean = above.mean(axis=2)
    elif design.kind == "partial":
        above = lambda cut: 1 / (1 + np.exp(-(logit - cut)))
        uniform = rng.random(size)
        inside = rng.beta(mean * PRECISION, (1 - mean) * PRECISION)
        right, positive = uniform < above(CUT), uniform < above(-CUT)
        values = np.where(right, 1.0, np.where(positive, inside, 0.0))
        mean = above(CUT) + (above(-CUT) - above(CUT)) * mean
    else:
        values = (rng.random(size) < chances).astype(float)
    if design.missing:
        options["observed"] = rng.random(size) >= design.missing
    if design.skips:
        skipped = design.skips * (difficulty - theta[:, None])
        options["observed"] = rng.random(size) >= 1 / (1 + np.exp(-skipped))
    table = irtjax.ResponseTable.from_arrays(values, **options)
    return theta, mean.mean(axis=1), slope * design.spread, table


def spread_of_pairs(error, shared, first, second) -> np.ndarray:
    """Standard errors of differences of abilities."""
    variance = error[first] ** 2 + error[second] ** 2
    if shared is not None:
        variance = variance - 2 * np.sum(shared[first] * shared[second], axis=1)
    return np.sqrt(np.maximum(variance, 0))


def share(found: np.ndarray, among: np.ndarray) -> float:
    """Share of those `among` that are `found`; NaN where there are none."""
    return float(found[among].mean()) if among.any() else float("nan")


def evaluate(theta: np.ndarray, score, table, fit) -> dict[str, float]:
    """What one fit states against what was drawn."""
    from scipy.special import ndtr

    ranked = irtjax.rank(fit)
    place = {name: k for k, name in enumerate(table.subjects.tolist())}
    rows = [place[name] for name in ranked.table.column("subject").to_pylist()]
    truth = theta[rows]
    column = {
        name: np.asarray(ranked.table.column(name).to_pylist())
        for name in ranked.table.column_names
    }
    ability, error = column["ability"], column["ability_se"]
    inside = (column["lower"] <= truth) & (truth <= column["upper"])
    end = truth >= np.quantile(truth, 0.95)
    low, high = column["expected_score_lower"], column["expected_score_upper"]
    scored = (low <= score[rows]) & (score[rows] <= high)
    shared = None if fit.ability_shared is None else fit.ability_shared[rows]
    scale = None if fit.ability_scale is None else fit.ability_scale[rows]
    first, second = np.triu_indices(len(truth), 1)
    if len(first) > MOST_PAIRS:
        chosen = np.random.default_rng(0).choice(len(first), MOST_PAIRS, replace=False)
        first, second = first[chosen], second[chosen]
    gap, apart = ability[first] - ability[second], truth[first] - truth[second]
    spread = spread_of_pairs(error, shared, first, second)
    tested = spread_of_pairs(*without_scale(error, shared, scale), first, second)
    p_of_z = 2 * ndtr(-np.abs(gap) / np.maximum(tested, 1e-12))
    significant = benjamini_hochberg(p_of_z) <= RATE
    right = significant & (gap * apart > 0)
    difference, p_value = paired_accuracies(table.select(subjects=rows), first, second)
    plain = benjamini_hochberg(p_value) <= RATE
    plain_right = plain & (difference * apart > 0)
    same_order = table.select(subjects=rows)
    adjusted, p_adjusted = adjusted_means(same_order, first, second)
    regressed = (benjamini_hochberg(p_adjusted) <= RATE) & (adjusted * apart > 0)
    means = row_means(same_order, first, second)
    unequal = apart != 0
    higher = (truth[None, :] > truth[:, None]).sum(axis=1) + 1
    lowest = (truth[None, :] >= truth[:, None]).sum(axis=1)
    held = (column["rank_lower"] <= lowest) & (higher <= column["rank_upper"])
    best = truth == truth.max()
    return {
        "ability": float(inside.mean()),
        "top": float(inside[end].mean()),
        "difference": float((np.abs(gap - apart) <= 1.959964 * spread).mean()),
        "rank": float(held.mean()),
        "score": float(scored.mean()),
        "found": share(right, unequal),
        "found_accuracy": share(plain_right, unequal),
        "found_adjusted": share(regressed, unequal),
        "false": float((significant & ~right).sum() / max(significant.sum(), 1)),
        "false_accuracy": float((plain & ~plain_right).sum() / max(plain.sum(), 1)),
        "p_best": float(column["probability_best"].max()),
        "is_best": float(best[np.argmax(column["probability_best"])]),
        "tau": float(np.mean(np.sign(gap) * np.sign(apart))),
        "tau_accuracy": float(np.mean(np.sign(difference) * np.sign(apart))),
        "tau_mean": float(np.mean(np.sign(means) * np.sign(apart))),
        "tau_adjusted": float(np.mean(np.sign(adjusted) * np.sign(apart))),
        "converged": float(fit.status == Status.CONVERGED),
    }


def of_slopes(slope: np.ndarray, fit) -> dict[str, float]:
    """Coverage of slopes where some keys are wrong: of good items, and of these."""
    if (slope >= 0).all():
        return dict.fromkeys(("slope", "reversed", "false_sign"), float("nan"))
    names = "discrimination", "discrimination_se"
    found, error = (np.array(fit.items.table[n].to_pylist(), float) for n in names)
    inside = np.abs(found - slope) <= 1.959964 * error
    return {
        "slope": share(inside, slope > 0),
        "reversed": share(inside, slope < 0),
        "false_sign": share(found < 0, slope > 0),
    }


def run_design(design: Design, seed: int) -> dict[str, Any]:
    """One row of the table: means over replications, and their Monte-Carlo errors."""
    found, methods, seconds = [], set(), []
    for replication in range(design.replications):
        rng = np.random.default_rng([seed, design.subjects, design.items, replication])
        theta, score, slope, table = draw(design, rng)
        began = time.process_time()
        fit = irtjax.fit(table, **settings_of(design))
        seconds.append(time.process_time() - began)
        methods.add(f"{fit.options['model']} {fit.options['method']}")
        found.append(evaluate(theta, score, table, fit) | of_slopes(slope, fit))
    row: dict[str, Any] = {
        "subjects": design.subjects,
        "items": design.items,
        "design": design.name,
        "fitted": " or ".join(sorted(methods)),
        "replications": design.replications,
    }
    for name in found[0]:
        values = np.array([one[name] for one in found])
        row[name] = float(values.mean())
        row[f"{name}_error"] = float(values.std(ddof=1) / len(values) ** 0.5)
    # Paired: both orders and both tests saw the same data.
    for name, one, other in (
        ("found_gain", "found", "found_accuracy"),
        ("found_gain_adjusted", "found", "found_adjusted"),
        ("tau_gain", "tau", "tau_accuracy"),
        ("tau_gain_mean", "tau", "tau_mean"),
        ("tau_gain_adjusted", "tau", "tau_adjusted"),
    ):
        gain = np.array([each[one] - each[other] for each in found])
        row[name] = float(gain.mean())
        row[f"{name}_error"] = float(gain.std(ddof=1) / len(gain) ** 0.5)
    row["seconds"] = float(np.median(seconds))
    return row


COLUMNS = {
    "subjects": "N", "items": "J", "design": "design", "fitted": "fitted",
    "replications": "sets", "ability": "ability", "top": "top 5 %",
    "difference": "difference", "rank": "rank", "score": "score",
    "found": "pairs found", "found_gain": "more than by t tests",
    "found_gain_adjusted": "more than by regression", "false": "false",
    "false_accuracy": "false by t tests",
    "slope": "slope", "reversed": "reversed slope", "false_sign": "false sign",
    "p_best": "P(best)", "is_best": "is best", "tau_gain": "τ less shared items'",
    "tau_gain_mean": "τ less means'", "tau_gain_adjusted": "τ less regression's",
    "converged": "converged", "seconds": "seconds",
}  # fmt: skip


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    """Runs the designs, prints the table and returns its rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--small", action="store_true", help="a quick look (default)")
    which.add_argument("--full", action="store_true", help="every design")
    parser.add_argument("--only", help="subjects x items, such as 10x240, and a name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sets", type=int, help="data sets of each design")
    parser.add_argument("--out", type=Path, help="folder for designs.csv and .md")
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    chosen = []
    for design in FULL if options.full else SMALL:
        size = f"{design.subjects}x{design.items}"
        if options.only in (None, size, f"{size} {design.name}"):
            chosen.append(design)
    if not chosen:
        parser.error(f"no design has the sizes {options.only!r}")
    return run_designs(chosen, run_design, options, "designs", COLUMNS)


if __name__ == "__main__":
    main()
