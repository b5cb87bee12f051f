"""Side by side on the same logs: what packages say of ten models, and what is true.

    python experiments/peers/run.py                       # small: two data sets
    python experiments/peers/run.py --full --out DIR      # the page's tables
    python experiments/peers/run.py --only evalci girth   # some packages

Packages that are not installed are named and skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.peers.packages import PACKAGES, Said, names
from experiments.peers.simulate import WRONG_KEYS, Data, draw

#: Data sets, small and full, and of packages that take many seconds for one.
SMALL, SETS = 2, 40
SLOW = {"irtjax": 12, "evalstats": 12, "evalci": 12, "theta-irt": 4}
SLOW |= {"girth": 1, "py-irt": 2}


def judged(said: Said, data: Data) -> dict[str, Any]:
    """What a package says of one data set, compared with the truth."""
    truth = data.population
    equal = truth[:, None] == truth[None, :]
    upper = np.triu_indices(len(truth), 1)
    row: dict[str, Any] = {"words": len(said.text.split())}
    order = np.sign(said.scores[:, None] - said.scores[None, :])
    right = np.sign(truth[:, None] - truth[None, :])
    row["order"] = np.mean((order == right)[upper][~equal[upper]])
    if said.pairs is not None:
        found, wrong = said.pairs[upper], (equal | (order != right))[upper]
        row |= {"found": np.sum(found & ~wrong), "false": np.sum(found & wrong)}
        row["different"] = np.sum(~equal[upper])
    if said.lower is not None and said.upper is not None:
        for name, true in (("population", truth), ("these", data.expected)):
            row[f"covers_{name}"] = np.mean((said.lower <= true) & (true <= said.upper))
        row["width"] = np.mean(said.upper - said.lower)
    if said.items is not None:
        wrong_keys = set(names(np.flatnonzero(data.key > 0)))
        # As many as there are wrong keys and one more.
        row["keys"] = len(wrong_keys & set(said.items[: WRONG_KEYS + 1]))
        row["keys_in_20"] = len(wrong_keys & set(said.items[:20]))
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over data sets; false pairs also as the share of data sets with one."""
    result: dict[str, Any] = {"sets": len(rows)}
    for name in rows[0]:
        result[name] = float(np.mean([row[name] for row in rows]))
    if "false" in rows[0]:
        result["any_false"] = float(np.mean([row["false"] > 0 for row in rows]))
        found = sum(row["found"] + row["false"] for row in rows)
        result["false_share"] = sum(row["false"] for row in rows) / max(found, 1)
    return result


def main(arguments: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """Runs the packages, prints a line for each, and writes them with `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all data sets")
    parser.add_argument("--only", choices=PACKAGES, nargs="+", default=list(PACKAGES))
    parser.add_argument("--out", type=Path, help="folder for a file of each package")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    results = {}
    for name in options.only:
        say, needs = PACKAGES[name]
        lacking = [x for x in needs if importlib.util.find_spec(x) is None]
        if lacking:
            print(f"{name}: {', '.join(lacking)} not installed, skipped", flush=True)
            continue
        rows = []
        for seed in range(min(SLOW.get(name, SETS), SETS if options.full else SMALL)):
            data, began = draw(seed), time.process_time()
            said = say(data)
            row = judged(said, data) | {"seconds": time.process_time() - began}
            rows.append(row)
            results[name] = summary(rows)
            if options.out is not None:
                options.out.mkdir(parents=True, exist_ok=True)
                place = options.out / f"{name.replace(' ', '_')}.json"
                kept = {"mean": results[name], "text": said.text}
                place.write_text(json.dumps(kept), encoding="utf-8")
        print(name, json.dumps(results[name]), flush=True)
    return results


if __name__ == "__main__":
    main()
