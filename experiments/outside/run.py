"""irtjax against packages of R that compute the same quantity.

    python experiments/outside/run.py                     # small: about a minute
    python experiments/outside/run.py --full --out DIR    # the page's tables
    python experiments/outside/run.py --only rotations    # one part

A part whose packages are not installed is named and skipped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.outside import classical, conditional, mixed, rotations, rscript
from experiments.tabulate import write_csv

PARTS = {
    "rotations": rotations,
    "classical": classical,
    "conditional": conditional,
    "mixed": mixed,
}


def shown(value: Any) -> str:
    """A number in five digits, a dash for none."""
    if value is None:
        return "–"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Runs the parts, prints their rows, and writes them with `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all data sets")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--out", type=Path, help="folder for a CSV file of each part")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in options.only:
        if (why := rscript.missing(PARTS[name].PACKAGES)) is not None:
            print(f"{name}: {why}, skipped")
            continue
        rows = found[name] = PARTS[name].main(small=not options.full)
        print("|", name, "|", *(" | ".join(rows[0]), "|"))
        for row in rows:
            print("| |", " | ".join(map(shown, row.values())), "|", flush=True)
        write_csv(options.out, name, rows)
    return found


if __name__ == "__main__":
    main()
