"""Full scores of held-out models from subsets of metabench's GSM8K.

    python experiments/shrink/run.py                      # simulated responses, seconds
    python experiments/shrink/run.py --full --out DIR     # metabench, minutes

The README beside this file says what was measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
FILE = Path("metabench") / "gsm8k_2pl_responses.parquet"
SIZES = (10, 20, 30, 50, 75, 100, 125, 150, 175, 200, 225)
#: One point of the full score.
POINT = 0.01


def simulated(subjects: int, items: int, seed: int) -> irtjax.ResponseTable:
    """Responses of a 2PL with abilities spread as on a leaderboard."""
    rng = np.random.default_rng(seed)
    ability = 1.2 * rng.normal(size=(subjects, 1))
    slope, shift = np.exp(0.4 * rng.normal(size=items)), 1.5 * rng.normal(size=items)
    chance = 1 / (1 + np.exp(-slope * ability - shift))
    return irtjax.ResponseTable.from_arrays(rng.random(chance.shape) < chance)


def main(arguments: list[str] | None = None) -> irtjax.SubsetErrors:
    """Measures, prints and, with --out, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="metabench, all sizes")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default="2pl")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    if given.full:
        if not (given.data / FILE).is_file():
            parser.error(f"{given.data / FILE} is not there: give --data FOLDER")
        table, sizes = irtjax.read(given.data / FILE), SIZES
    else:
        table, sizes = simulated(120, 60, given.seed), (5, 20, 40)
    sizes = given.sizes or sizes
    begun = time.perf_counter()
    errors = irtjax.subset_errors(
        table,
        sizes,
        model=given.model,
        folds=given.folds,
        key=jax.random.key(given.seed),
    )
    seconds = time.perf_counter() - begun
    report(errors)
    print(f"\n{seconds:.0f} s")
    if given.out is not None:
        write(errors, given.out)
    return errors


def report(errors: irtjax.SubsetErrors) -> None:
    """Prints a table of everything, and the sizes that an error of a point takes."""
    print(
        "| rule | items | error | by the model alone | weighted mean | coverage |"
        " width | tau | tau of mean |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for row in errors.rows:
        points = [
            100 * row[f"mean_absolute_error{end}"]
            for end in ("", "_of_irt", "_of_mean")
        ]
        print(
            f"| {row['rule']} | {row['size']} | "
            + " | ".join(f"{value:.2f}" for value in points)
            + f" | {100 * row['coverage']:.1f} | {100 * row['width']:.1f}"
            f" | {row['kendall']:.3f} | {row['kendall_of_mean']:.3f} |"
        )
    for rule in dict.fromkeys(row["rule"] for row in errors.rows):
        print(f"{rule}: one point at {crossing(errors, rule)} items")


def crossing(errors: irtjax.SubsetErrors, rule: str) -> str:
    """Where the error falls to one point, interpolated between measured sizes."""
    mine = [row for row in errors.rows if row["rule"] == rule]
    size = np.array([row["size"] for row in mine], float)
    error = np.array([row["mean_absolute_error"] for row in mine])
    below = np.flatnonzero(error <= POINT)
    if not below.size:
        return f"more than {size[-1]:.0f}"
    first = int(below[0])
    if first == 0:
        return f"at most {size[0]:.0f}"
    pair = slice(first - 1, first + 1)
    return f"{np.interp(-POINT, -error[pair], size[pair]):.0f}"


def write(errors: irtjax.SubsetErrors, folder: Path) -> None:
    """Writes the table and the figure."""
    from irtjax.plots import plot_subset_errors, save_figure
    from irtjax.storage import write_table

    folder.mkdir(parents=True, exist_ok=True)
    write_table(errors.table, folder / "errors.csv")
    save_figure(plot_subset_errors(errors), folder / "errors.png")


if __name__ == "__main__":
    main()
