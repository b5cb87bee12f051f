"""Does `irtjax fit` end well on degenerate responses and altered files?

    python experiments/fuzz/fits.py               # small: 40 fits
    python experiments/fuzz/fits.py --count 1000  # evidence/hostile-input.md

Three of four inputs are simulated responses that are made degenerate (`responses`),
written as a table and sometimes altered; the others are altered files of all formats
(`mutate.py`). A fit ends with a folder that loads and has no number that is not
finite, or with exit status 2, one line and nothing written. See README.md.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.fuzz.mutate import alter_csv, seeds
from experiments.fuzz.run import SECONDS, make, run_command, watched

#: Memory that a fit may take beyond what the process has.
MEMORY = 1 << 30
#: Seconds of a fit whose programs are not compiled yet.
WARM = 600
#: Few shapes, so that most programs are compiled already.
SHAPES = (*[(6, 5), (12, 8), (25, 8)] * 4, (2, 5), (1, 4), (6, 1))
OPTIONS = (
    *[""] * 8,
    *("--model rasch", "--model 2pl", "--model 2pl --method em", "--model 3pl"),
    *("--model graded", "--model pcm", "--model continuous", "--model mixed"),
    *("--bounds 0 1", "--bounds -5 200", "--model inflated_beta", "--method mm"),
    *("--method gradient", "--priors none", "--trials counts", "--missing-as wrong"),
    *("--model factor --factors 2", "--model multibenchmark", "--length length"),
)
Random = random.Random


def responses(rng: Random) -> tuple[np.ndarray, str]:
    """Responses of some kind with NaN where one is missing, and the kind."""
    draw = np.random.default_rng(rng.getrandbits(32))
    size = rng.choice(SHAPES)
    ability, difficulty = draw.normal(size=(size[0], 1)), draw.normal(size=size[1])
    chance = 1 / (1 + np.exp(difficulty - ability))
    kind = rng.choice(["right", "right", "levels", "scores", "percent", "counts"])
    values: np.ndarray = (draw.random(size) < chance).astype(float)
    if kind in ("levels", "counts"):
        values = draw.binomial(4, chance).astype(float)
    elif kind in ("scores", "percent"):
        values = np.clip(chance + 0.2 * draw.normal(size=size), 0, 1)
        values = values if kind == "scores" else np.round(100 * values)
    return values, kind


def degrade(values: np.ndarray, rng: Random) -> np.ndarray:
    """Responses made degenerate in one way."""
    values = values.copy()
    row, column = rng.randrange(values.shape[0]), rng.randrange(values.shape[1])
    kind = rng.randrange(14)
    if kind == 0:
        values[:, column] = rng.choice([0.0, 1.0, np.nan, values.max()])
    elif kind == 1:
        values[row] = rng.choice([0.0, 1.0, np.nan, values.max()])
    elif kind == 2:
        values[:] = rng.choice([0.0, 1.0, 0.5])
    elif kind == 3:
        values[:] = values[row]  # All subjects alike.
    elif kind == 4:
        values[:] = values[:, [column]]  # All items alike.
    elif kind == 5:  # Subjects in a perfect order.
        order = np.arange(values.shape[0])[:, None] >= np.arange(values.shape[1])
        values = order.astype(float)
    elif kind == 6:
        draw = np.random.default_rng(rng.getrandbits(32))
        values[draw.random(values.shape) < rng.choice([0.3, 0.7, 0.95])] = np.nan
    elif kind == 7:  # Two groups of subjects that share no item.
        half, middle = values.shape[0] // 2, values.shape[1] // 2
        values[:half, :middle], values[half:, middle:] = np.nan, np.nan
    elif kind == 8:
        strange = [2, -1, 0.5, 1e6, 1e-300, 1e300, 20, 3.000001]
        values[row, column] = rng.choice(strange)
    elif kind == 9:
        values = 1 - values
    elif kind == 10:
        values[:, column] = values[:, column - 1]
    elif kind == 11:
        values *= rng.choice([1e-12, 1e12, 0.25, -1])
    return values


def write(values: np.ndarray, path: Path, rng: Random) -> None:
    """Writes responses as a wide or a long table, sometimes altered."""
    text = lambda x: "" if np.isnan(x) else f"{x:g}"
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if rng.random() < 0.6:
        items = [f"b{k % 2}/q{k}" for k in range(values.shape[1])]
        writer.writerow(["model", *items])
        writer.writerows([f"m{i}", *map(text, row)] for i, row in enumerate(values))
    else:
        writer.writerow(["model", "item", "benchmark", "score", "length"])
        again = rng.random() < 0.1
        for (i, k), value in np.ndenumerate(values):
            length = rng.choice([0, 5, 100 + i + k])
            writer.writerow([f"m{i}", f"q{k}", f"b{k % 2}", text(value), length])
            if again and rng.random() < 0.02:
                writer.writerow([f"m{i}", f"q{k}", f"b{k % 2}", "1", ""])
    content = out.getvalue().encode()
    path.write_bytes(alter_csv(content, rng) if rng.random() < 0.2 else content)


def prepare(number: int, folder: Path) -> tuple[Path, list[str]]:
    """The input of a number, and the options of its fit."""
    rng = random.Random(f"fit {number}")
    options = rng.choice(OPTIONS).split()
    if rng.random() < 0.25:
        kinds = seeds()
        kind = rng.choice([*kinds])
        return make(kind, kinds[kind], number, folder), options
    values, _ = responses(rng)
    for _ in range(rng.randrange(3)):
        values = degrade(values, rng)
    path = folder / "responses.csv"
    write(values, path, rng)
    return path, options


def outcome_of(path: Path, options: list[str], out: Path) -> str:
    """How a fit ends: "table", "refused" or a problem."""
    words = ["fit", str(path), *options, "--max-steps", "3", "--no-figures"]
    ended = run_command(*words, "--out", str(out))
    found = sorted(x.name for x in out.parent.iterdir() if x.name != path.name)
    if ended == "refused":
        return ended if not found else f"refused, with {found}"
    return whole(out) if ended == "table" else ended


def whole(out: Path) -> str:
    """Whether a saved fit loads, and its numbers are finite."""
    import irtjax

    fit = irtjax.load(out)
    for name, table in (("items", fit.items.table), ("abilities", fit.abilities.table)):
        for column in table.column_names:
            values = table[column].drop_null()
            if np.dtype(values.type.to_pandas_dtype()).kind != "f":
                continue
            if not np.isfinite(values.to_numpy()).all():
                return f"{name}: {column} is not finite"
    return "table"


def work(numbers: range) -> None:
    """Fits the inputs of some numbers and prints a line of JSON for each."""
    for number in numbers:
        print(json.dumps({"begin": number}), flush=True)
        row: dict[str, Any] = {}
        # The time to compile a program for the first time is not counted.
        for limit in (WARM, SECONDS):
            with tempfile.TemporaryDirectory() as place:
                path, options = prepare(number, Path(place))
                out = Path(place, "fit")
                call = lambda: outcome_of(path, options, out)  # noqa: B023
                found, seconds, memory = watched(call, limit)
                row = {"found": found, "seconds": seconds, "memory": memory}
            if seconds < SECONDS:
                break
        if row["found"] in ("table", "refused") and row["memory"] > MEMORY:
            row["found"] = f"memory: {row['memory'] >> 20} MB"
        row["input"] = f"{path.name} {' '.join(options)}"
        print(json.dumps({"number": number, **row}), flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs the fits, prints a table and the problems, returns their number."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=40, help="fits")
    parser.add_argument("--start", type=int, default=0, help="number of the first")
    parser.add_argument("--work", nargs=2, type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.work:
        work(range(*asked.work))
        return 0
    rows, problems = [], []
    start, stop = asked.start, asked.start + asked.count
    while start < stop:
        # Compiled programs stay in the memory of a process.
        until = min(start + 100, stop)
        words = [sys.executable, __file__, "--work", str(start), str(until)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        begun = start
        for line in done.stdout.splitlines():
            found = json.loads(line)
            begun = found.get("begin", begun)
            if "found" in found:
                rows.append(found)
        start = until
        if done.returncode:
            problems.append((begun, f"{done.returncode} {done.stderr[-300:]!r}", ""))
            start = begun + 1
    good = Counter(row["found"] for row in rows)
    problems += [
        (row["number"], row["found"], row["input"])
        for row in rows
        if row["found"] not in ("table", "refused")
    ]
    slowest = max((row["seconds"] for row in rows), default=0.0)
    most = max((row["memory"] for row in rows), default=0) >> 20
    print("| inputs | fits | refused | problems | slowest (s) | memory (MB) |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(
        f"| {len(rows):,} | {good['table']:,} | {good['refused']:,} | {len(problems)} |"
        f" {slowest:.1f} | {most:,} |"
    )
    for number, found, what in problems:
        print(f"    {number}: {found} ({what})", file=sys.stderr)
    return len(problems)


if __name__ == "__main__":
    # Without the destructors of the libraries, which can abort a process at its end.
    code = main()
    sys.stdout.flush()
    os._exit(min(code, 99))
