"""Coverage of clustered intervals and simultaneous ranks where battles share prompts.

    python experiments/comparisons/coverage.py [--replicates 200] [--models 5 20 200]

Model i beats model j on prompt c if

    Phi(sqrt(r) (z_ci - z_cj) / sqrt(2) + sqrt(1 - r) e) < G(theta_i - theta_j),

with z and e standard normal: each battle has exactly the chance of Bradley and Terry,
and battles on one prompt are alike (r = .5).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jax
import numpy as np
from scipy.special import expit, ndtr

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from irtjax import ranking

#: Battles by number of models.
BATTLES = {5: 4000, 20: 8000, 60: 16_000, 200: 60_000}
#: Models and battles of a prompt.
MODELS, SIZE = 4, 10
#: Share of the variance that battles on a prompt have in common.
SHARED = 0.5


def battles(
    rng: np.random.Generator, ability: np.ndarray, number: int
) -> irtjax.ComparisonTable:
    """Votes on prompts with four models and ten battles each, which are alike."""
    models, prompts = len(ability), number // SIZE
    prompt = np.arange(number) % prompts
    some = np.argsort(rng.random((prompts, models)), axis=1)[:, :MODELS]
    one = rng.integers(MODELS, size=number)
    other = (one + rng.integers(1, MODELS, size=number)) % MODELS
    first, second = some[prompt, one], some[prompt, other]
    taste = rng.normal(size=(prompts, models))
    z = (taste[prompt, first] - taste[prompt, second]) / np.sqrt(2)
    noise = np.sqrt(1 - SHARED) * rng.normal(size=number)
    won = ndtr(np.sqrt(SHARED) * z + noise) < expit(ability[first] - ability[second])
    return irtjax.ComparisonTable.of(
        [f"m{k:03d}" for k in range(models)],
        first,
        second,
        np.eye(4)[np.where(won, 0, 1)],
        labels={"prompt": np.char.add("p", prompt.astype(str))},
    )


def abilities_of(models: int) -> np.ndarray:
    """Abilities from -1 to 1, two models with each of them, and a sum of 0."""
    twice = np.repeat(np.linspace(-1, 1, -(-models // 2)), 2)[:models]
    return twice - twice.mean()


def checked(truth: np.ndarray, abilities: irtjax.Abilities) -> tuple[float, ...]:
    """Coverage of abilities and of differences, of all ranks; false discoveries."""
    models = len(truth)
    covariance = np.asarray(abilities.covariance)
    error = np.sqrt(np.diagonal(covariance))
    inside = np.abs(abilities.estimates - truth) <= 1.96 * error
    gap = abilities.estimates[:, None] - abilities.estimates
    actual = truth[:, None] - truth
    own = error[:, None] ** 2 + error**2 - 2 * covariance
    upper = np.triu(np.ones_like(gap, bool), 1)
    z = np.where(upper, gap, 0) / np.sqrt(np.where(upper, own, 1))
    of = np.where(upper, gap - actual, 0) / np.sqrt(np.where(upper, own, 1))
    found = ranking.rank(
        abilities.estimates, error, key=jax.random.key(0), covariance=covariance
    )
    chosen = upper & (np.abs(z) > found.critical_z)
    wrong = chosen & ((actual == 0) | (np.sign(actual) != np.sign(gap)))
    sets = ranking.rank(
        abilities.estimates,
        error,
        key=jax.random.key(0),
        covariance=covariance,
        simultaneous=True,
    )
    best = 1 + np.sum(actual.T > 1e-12, axis=1)
    worst = models - np.sum(actual > 1e-12, axis=1)
    ranks = np.all((sets.rank_lower <= best) & (sets.rank_upper >= worst))
    pairs = np.mean(np.abs(of[upper]) <= 1.96)
    false = wrong.sum() / max(chosen.sum(), 1)
    return float(inside.mean()), float(pairs), float(ranks), float(false)


def simulate(models: int, replicates: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Means of `checked` over replicates, by the errors."""
    rng, truth = np.random.default_rng(seed), abilities_of(models)
    rows: dict[str, list[tuple[float, ...]]] = {"clustered": [], "naive": []}
    for _ in range(replicates):
        table = battles(rng, truth, BATTLES[models])
        for name, cluster in (("clustered", ("prompt",)), ("naive", ())):
            fit = irtjax.fit_comparisons(table, cluster=cluster)
            rows[name].append(checked(truth, fit.abilities))
    return {name: np.mean(values, axis=0) for name, values in rows.items()}


def main() -> None:
    """Prints the table of the README."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--models", type=int, nargs="+", default=list(BATTLES))
    chosen = parser.parse_args()
    print("| models | errors | abilities | differences | all ranks | false |")
    print("| --- | --- | --- | --- | --- | --- |")
    for models in chosen.models:
        for name, values in simulate(models, chosen.replicates).items():
            cells = " | ".join(f"{100 * x:.1f} %" for x in values)
            print(f"| {models} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
