"""Does the joint scale recover the agreement of two sources?

    python experiments/comparisons/joint_scale.py [--replicates 100] [--models 15 40]

Models have abilities in two sources, with the standard deviations 1 and .5 and a
correlation of 0, .5 or 1. Estimates have errors of .4 and .15.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from irtjax.comparisons import sources

#: Standard deviations of true abilities, and of errors, by source.
DEVIATIONS, ERRORS = (1.0, 0.5), (0.4, 0.15)
CORRELATIONS = (0.0, 0.5, 1.0)


def drawn(
    rng: np.random.Generator,
    correlation: float,
    models: int = 60,
    errors: tuple[float, float] = ERRORS,
    only: int = 0,
) -> tuple[np.ndarray, sources.SourceEstimates]:
    """True abilities `[models, 2]`, and estimates of them.

    The last `only` models have no estimate in the second source.
    """
    root = np.array([[1, 0], [correlation, np.sqrt(1 - correlation**2)]])
    true = (rng.normal(size=(models, 2)) @ root.T) * DEVIATIONS
    seen = true + rng.normal(size=true.shape) * errors
    second = models - only
    value = np.concatenate([seen[:, 0], seen[:second, 1]])
    error = np.repeat(errors, [models, second])
    source = np.repeat([0, 1], [models, second])
    subject = np.concatenate([np.arange(models), np.arange(second)])
    return true, sources.SourceEstimates(value, np.diag(error**2), source, subject)


class Recovery(NamedTuple):
    """Means over replicates.

    Attributes:
        estimate: Estimated correlation.
        inside: Share of 95 % intervals that have the true one.
        discoveries: Share of replicates in which a model differs between the sources:
            the largest |z| of the first source's residuals is significant by Bonferroni
            at 5 %. With a correlation of 1 no model differs truly.
    """

    estimate: float
    inside: float
    discoveries: float


def simulate(
    correlation: float, models: int, replicates: int, seed: int = 11
) -> Recovery:
    """Estimates of data sets that are drawn anew."""
    from scipy.special import ndtri

    rng, rows = np.random.default_rng(seed), []
    farthest = ndtri(1 - 0.025 / models)
    for _ in range(replicates):
        _, estimates = drawn(rng, correlation, models)
        sigma, at = sources.maximum(estimates)
        estimate = sigma[0, 1] / np.sqrt(sigma[0, 0] * sigma[1, 1])
        lower, upper = sources.correlation_interval(estimates, sigma, (0, 1), 0.95)
        _, residual, error = sources.residuals(estimates, sigma, at)
        largest = np.abs(residual / error)[:models].max()
        inside = lower - 1e-9 <= correlation <= upper + 1e-9
        rows.append((estimate, inside, largest > farthest))
    return Recovery(*np.mean(rows, axis=0).tolist())


def main() -> None:
    """Prints the table of the README."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--models", type=int, nargs="+", default=[15, 40])
    chosen = parser.parse_args()
    print("| models | correlation | estimate | inside | a model differs |")
    print("| --- | --- | --- | --- | --- |")
    for models in chosen.models:
        for correlation in CORRELATIONS:
            row = simulate(correlation, models, chosen.replicates)
            cells = f"{row.estimate:.2f} | {row.inside:.0%} | {row.discoveries:.0%}"
            print(f"| {models} | {correlation:g} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
