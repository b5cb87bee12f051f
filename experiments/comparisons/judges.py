"""Are the errors of judges, and accuracies corrected for them, as exact as they state?

    python experiments/comparisons/judges.py [--replicates 40]

20 models respond to 40 items, four judges grade all responses, and 15 % have gold
labels. Judges differ in severity, ability, and in their bias by length.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax

#: alpha, beta and gamma of the judges (`irtjax.validity.judges`).
ALPHA, BETA = np.array([-2.0, -1.5, -2.5, -1.0]), np.array([4.0, 3.0, 4.0, 2.5])
GAMMA = np.array([0.0, 0.6, 0.2, -0.3])
#: Standard errors to either side of a 95 % interval.
HALF = 1.96


def drawn(
    rng: np.random.Generator,
    subjects: int = 20,
    items: int = 40,
    share: float = 0.15,
    style: bool = True,
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """A table of reports, the truth and the lengths `[subjects, items]`."""
    odds = 0.3 + rng.normal(size=(subjects, 1)) - rng.normal(size=items)
    truth = (rng.random((subjects, items)) < expit(odds)).astype(float)
    length = rng.normal(size=(subjects, items))
    length = (length - length.mean()) / length.std()
    i, j, k = (x.ravel() for x in np.indices((subjects, items, len(ALPHA))))
    gamma = GAMMA * style
    chance = expit(ALPHA[k] + BETA[k] * truth[i, j] + gamma[k] * length[i, j])
    gold = np.where(rng.random(truth.shape) < share, truth, np.nan)
    rows = {"subject": i, "item": j, "judge": k, "gold": gold[i, j]}
    rows["verdict"] = (rng.random(i.size) < chance).astype(int)
    rows["length"] = length[i, j]
    return rows, truth, length


def biases(truth: np.ndarray, length: np.ndarray) -> np.ndarray:
    """True biases of the judges by length, in percentage points."""
    k = slice(None), None, None
    chance = expit(ALPHA[k] + BETA[k] * truth + GAMMA[k] * length)
    return 100 * GAMMA * (chance * (1 - chance)).mean(axis=(1, 2))


def checked(rng: np.random.Generator) -> dict[str, Any]:
    """Of one data set: which intervals have the truth, and squared errors."""
    rows, truth, length = drawn(rng)
    found = irtjax.fit_judges(rows, style=["length"])
    judges, table = found.judges.to_pandas(), found.accuracies.to_pandas()
    true = {"sensitivity": expit(ALPHA + BETA), "specificity": expit(-ALPHA)}
    true["length_bias"] = biases(truth, length)
    result: dict[str, Any] = {
        name: judges[f"{name}_lower"].le(x) & judges[f"{name}_upper"].ge(x)
        for name, x in true.items()
    }
    right = truth.mean(axis=1)[table["subject"].astype(int)]
    for name in ("corrected", "rectified"):
        z = (table[name] - right) / table[f"{name}_se"]
        # A model with one gold response or none has no rectified accuracy.
        result[name] = (z.abs() < HALF).where(z.notna())
    for name in ("judged", "corrected", "rectified"):
        result[f"{name} squared error"] = (table[name] - right) ** 2
    return result


def simulate(replicates: int, seed: int = 0) -> dict[str, float]:
    """Shares of intervals that have the truth, and root mean squared errors."""
    rows = [checked(np.random.default_rng(seed + k)) for k in range(replicates)]
    means = {name: np.nanmean([row[name] for row in rows]) for name in rows[0]}
    return {
        name.replace("squared error", "error"): float(
            np.sqrt(value) if "error" in name else value
        )
        for name, value in means.items()
    }


def main() -> None:
    """Prints the tables of the README."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--replicates", type=int, default=40)
    found = simulate(parser.parse_args().replicates)
    print("| quantity | value |\n| --- | --- |")
    for name, value in found.items():
        text = f"{value:.3f}" if "error" in name else f"{value:.1%} inside"
        print(f"| {name} | {text} |")


if __name__ == "__main__":
    main()
