"""Coverage of intervals for the difficulty of items that nobody has responses to.

`python -m experiments.coverage.new_items [--replications 20]` simulates Rasch's model
with difficulties that depend on features, leaves the responses to 50 new items out, and
counts how often the 95 % interval of `irtjax.cold_start` has the true difficulty.
Standard errors of the shares are those of means over replications.
"""

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.special import expit, ndtri

import irtjax

SUBJECTS, NEW = 60, 50
#: Old items, features, standard deviation of residuals, whether effects are linear.
DESIGNS = {
    "linear effects, 100 old items": (100, 6, 1.0, True),
    "linear effects, 30 old items": (30, 6, 1.0, True),
    "features without effect, 100 old items": (100, 6, 1.0, None),
    "sines of features, 100 old items": (100, 6, 1.0, False),
    "large residuals, 15 features, 70 old items": (70, 15, 2.3, True),
}


def covered(design: tuple, seed: int) -> tuple[float, float]:
    """Share of new items within their interval, and the mean length of these."""
    old, width, residual, linear = design
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(old + NEW, width))
    signal = features if linear else np.sin(2 * features)
    effects = 0.0 if linear is None else 1.0
    difficulty = effects * signal @ rng.normal(size=width) / width**0.5
    difficulty = difficulty + residual * rng.normal(size=old + NEW)
    ability = 1.2 * rng.normal(size=SUBJECTS)
    chance = expit(ability[:, None] - difficulty)
    right = (rng.random(chance.shape) < chance).astype(float)
    right[:, old:] = np.nan
    table = irtjax.ResponseTable.from_arrays(right)
    items = irtjax.cold_start(table, item_features=features).items
    names = items["item"].to_pylist()
    order = [names.index(name) for name in table.items.tolist()]
    estimate, error = (
        items[name].to_numpy()[order][old:] for name in ("difficulty", "difficulty_se")
    )
    half = float(ndtri(0.975)) * error
    # Abilities of a fit have the mean 0.
    gap = estimate - (difficulty - ability.mean())[old:]
    return float(np.mean(np.abs(gap) <= half)), float(np.mean(2 * half))


def main() -> None:
    """Prints a row for each design."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--replications", type=int, default=20)
    count = parser.parse_args().replications
    for name, design in DESIGNS.items():
        rows = np.array([covered(design, seed) for seed in range(count)])
        share, length = rows.mean(axis=0)
        error = rows[:, 0].std(ddof=1) / count**0.5
        print(f"| {name} | {100 * share:.1f} ± {100 * error:.1f} | {length:.2f} |")


if __name__ == "__main__":
    main()
