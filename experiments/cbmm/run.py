"""Every study of the cBMM paper, with the printed algorithm beside irtjax's methods.

python experiments/cbmm/run.py                       # medium: the README's figures
python experiments/cbmm/run.py --small               # five minutes, of compiling
python experiments/cbmm/run.py --full --out DIR      # the paper's sizes: many hours
python experiments/cbmm/run.py --only sizes --replicates 10 --method mm --method em
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.cbmm import coverage, figures, math500, methods, real, simulations
from experiments.tabulate import aligned
from irtjax.cli.machine import prepare

Row = dict[str, Any]
STUDIES: dict[str, Callable[..., list[Row]]] = {
    "sizes": simulations.sizes,
    "coverage": coverage.coverage,
    "temperature": simulations.temperature,
    "missing": simulations.missing,
    "missingness": simulations.missingness,
    "redundancy": simulations.redundancy,
    "resampling": simulations.resampling,
    "degenerate": simulations.degenerate,
    "speed": simulations.speed,
    "stability": real.stability,
    "discrimination": real.discrimination,
    "flow": real.flow,
    "math500": math500.math500,
}
#: What the printed tables are means over.
REPEATED = ("replicate",)
NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?|nan|-?inf")


def means(rows: list[Row]) -> list[Row]:
    """Rows with the means over replicates, and how many these are."""
    names = dict.fromkeys(name for row in rows for name in row)
    settings = [k for k in names if k not in REPEATED and _labels(rows, k)]
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(k) for k in settings), []).append(row)
    found = []
    for key, members in groups.items():
        mean = dict(zip(settings, key, strict=True))
        for name in dict.fromkeys(n for row in members for n in row):
            values = [row.get(name) for row in members]
            numbers = [x for x in values if isinstance(x, int | float | np.number)]
            if name not in settings and name not in REPEATED and numbers:
                mean[name] = float(np.mean(np.array(numbers, float)))
        found.append(mean | {"replicates": len(members)})
    return found


def _labels(rows: list[Row], name: str) -> bool:
    """Whether a column states a setting: words, or a number that repeats with it."""
    known = {"rows", "columns", "log10_s", "rate", "zeros", "level"}
    known |= {"subjects", "items"}
    text = isinstance(rows[0].get(name), str) and name != "status"
    return name in known or text


def show(study: str, rows: list[Row]) -> None:
    """Prints the means of a study."""
    print(f"\n{study}")
    table = means(rows) if "replicate" in rows[0] else rows
    print(aligned(table), flush=True)


def read(path: Path) -> list[Row]:
    """The rows of a study from its CSV file."""
    number = lambda x: None if x == "" else float(x) if NUMBER.fullmatch(x) else x
    with path.open(newline="", encoding="utf-8") as file:
        return [{k: number(x) for k, x in row.items()} for row in csv.DictReader(file)]


def write(path: Path, rows: list[Row]) -> None:
    """Writes the rows of a study as CSV."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: list[str] | None = None) -> dict[str, list[Row]]:
    """Runs the studies, prints their means and writes their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=STUDIES, action="append")
    parser.add_argument(
        "--small", action="store_true", help="tiny sizes: minutes, of compiling"
    )
    parser.add_argument("--full", action="store_true", help="the sizes of the paper")
    parser.add_argument("--replicates", type=int, help="simulated data sets")
    parser.add_argument(
        "--first",
        type=int,
        default=0,
        help="number of the first one: above 0 rows are added to the files in --out",
    )
    parser.add_argument(
        "--method",
        action="append",
        help="methods of the simulated studies, by default all",
    )
    parser.add_argument("--starts", type=int, help="of each variance, for `stability`")
    parser.add_argument(
        "--variance", type=int, action="append", help="of starts, for `stability`"
    )
    parser.add_argument("--suite", action="append", help="suites, for `stability`")
    parser.add_argument("--dates", type=Path, help="release dates, for `math500`")
    parser.add_argument("--levels", type=Path, help="levels of items, for `math500`")
    parser.add_argument("--out", type=Path, help="folder for CSV files and figures")
    options = parser.parse_args(arguments)
    prepare()  # Double precision; compiled programs are kept for the next run.
    size = "small" if options.small else "full" if options.full else "medium"
    scale = simulations.SCALES[size]
    if options.replicates:
        scale = dataclasses.replace(scale, replicates=options.replicates)
    if options.starts:
        scale = dataclasses.replace(scale, starts=options.starts)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    print(*methods.add_peers(), sep="\n")
    allowed = (*methods.METHODS, *simulations.SELECTIONS)
    for name in options.method or ():
        if name not in allowed:
            parser.error(f"--method {name!r} is not one of {', '.join(allowed)}")
    scale = dataclasses.replace(
        scale, first=options.first, methods=tuple(options.method or ())
    )
    found = {}
    for name in options.only or STUDIES:
        began = time.perf_counter()
        more = {"out": options.out} if name in ("flow", "math500") else {}
        if name == "stability":
            more = {"only": options.suite, "variances": options.variance}
        if name == "math500":
            more |= {"dates": options.dates, "levels": options.levels}
        found[name] = STUDIES[name](scale, **more)
        show(name, found[name])
        print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)
        if options.out is not None:
            path = options.out / f"{name}.csv"
            if options.first and path.is_file():
                found[name] = read(path) + found[name]
            write(path, found[name])
            if name in figures.STUDIES:
                figures.draw(options.out, name, found[name])
    return found


if __name__ == "__main__":
    main()
