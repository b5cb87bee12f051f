"""Table 4 of the PSN-IRT paper with networks: parameters from a share of the items.

    python experiments/psn_irt/networks.py --small          # simulated, a minute
    python experiments/psn_irt/networks.py --out DIR        # data beside the checkout

`subsets.md` beside this file says what was measured; `subsets.py --only stability` has
the same table by marginal fits.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.psn_irt.figure_4 import panels
from experiments.psn_irt.subsets import DATA, Matrix, read, simulated
from experiments.tabulate import write_csv
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run_jit
from irtjax.estimators.neural.twin import Neural
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import MODELS

SHARES = (0.3, 0.5, 0.7)
#: Settings of the networks: irtjax's, and those nearest to the paper's (table2.py).
DESIGNS: dict[str, dict[str, Any]] = {
    "two layers": {},
    "three layers": {"hidden": (64, 64), "weight_decay": 1e-4, "criterion": "f1"},
}
NAMES = ("difficulty", "discrimination", "guessing", "feasibility")


class Trained(NamedTuple):
    """Item parameters by name, abilities, and how the training ended."""

    items: dict[str, np.ndarray]
    ability: np.ndarray
    status: str


def train(matrix: Matrix, kept: np.ndarray, key: int, epochs: int, design) -> Trained:
    """A 4PL by twin networks on some of the items, early stopping on a fifth."""
    values, seen = matrix.values[:, kept], matrix.seen[:, kept]
    model = MODELS["4pl"]("weak", positive=True)
    data = Responses(jnp.asarray(values), jnp.asarray(seen))
    start = start_values(model, data, dtype=jnp.float32)
    method = Neural(validation=0.2, epochs=epochs, **design)
    problem = Problem.create(model, data)
    found = run_jit(problem, method, start, key=jax.random.key(key), max_steps=epochs)
    a, d, c, u = (np.asarray(x, float) for x in found.parameters.items)
    numbers = np.where(a > 0, -d / np.where(a > 0, a, 1), np.nan), a, c, u
    status = f"{irtjax.Status(int(found.status)).name} {int(found.num_steps)}"
    items = dict(zip(NAMES, numbers, strict=True))
    return Trained(items, np.asarray(found.parameters.theta), status)


def stability(
    matrix: Matrix, seed: int, epochs: int, designs: dict[str, dict[str, Any]]
) -> tuple[list[dict], dict[str, Trained]]:
    """Correlations with the parameters of all items, and the networks of all items.

    The last row of a design is a second training on all items, from another key: how
    far two trainings agree on the same data.
    """
    count = matrix.values.shape[1]
    everything = np.arange(count)
    rows, whole = [], {}
    for name, design in designs.items():
        whole[name] = train(matrix, everything, seed, epochs, design)
        rng = np.random.default_rng(seed)
        for share in (*SHARES, 1.0):
            began = time.perf_counter()
            kept = everything
            if share < 1:
                kept = np.sort(rng.permutation(count)[: round(share * count)])
            part = train(matrix, kept, seed + 1, epochs, design)
            row = {"networks": name, "items": f"{100 * share:.0f} %"}
            row |= agreement(part.items, whole[name].items, kept)
            theta = stats.kendalltau(part.ability, whole[name].ability)
            row |= {"abilities, Kendall": float(np.asarray(theta)[0])}
            rows.append(row | {"end": part.status})
            say(rows[-1], time.perf_counter() - began)
    return rows, whole


def agreement(part, whole, kept: np.ndarray) -> dict[str, float]:
    """Pearson's and Spearman's correlations of each parameter over the kept items."""
    found = {}
    for name in NAMES:
        ours, other = part[name], whole[name][kept]
        both = np.isfinite(ours) & np.isfinite(other)
        found[name] = float(np.corrcoef(ours[both], other[both])[0, 1])
        ranks = stats.spearmanr(ours[both], other[both])
        found[f"{name}, Spearman"] = float(np.asarray(ranks)[0])
    return found


def say(row: dict, seconds: float) -> None:
    """Prints a row."""
    cells = "  ".join(
        f"{row[n]:.3f} ({row[f'{n}, Spearman']:.3f})".ljust(17) for n in NAMES
    )
    rank = row["abilities, Kendall"]
    text = f"{row['networks']:<13}{row['items']:>6}  {cells}{rank:6.3f}"
    print(f"{text}  {row['end']}  {seconds:.0f} s", flush=True)


def main(arguments: list[str] | None = None) -> list[dict]:
    """Trains the networks, prints the table and writes it with the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="simulated responses")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--design", action="append", choices=DESIGNS)
    parser.add_argument("--out", type=Path, help="folder for networks.csv and figures")
    given = parser.parse_args(arguments)
    if not given.small and not (given.data / "psn_irt").is_dir():
        parser.error(f"{given.data / 'psn_irt'} is not there: give --data FOLDER")
    matrix = simulated(600, given.seed) if given.small else read(given.data)
    print(f"{'':<21}" + "".join(f"{name:<17}  " for name in NAMES) + "Kendall's tau")
    designs = {name: DESIGNS[name] for name in given.design or DESIGNS}
    epochs = 10 if given.small else 50
    rows, whole = stability(matrix, given.seed, epochs, designs)
    if given.out is not None:
        write_csv(given.out, "networks", rows)
        for name, fit in whole.items():
            title = f"Item parameters by networks of {name}"
            pair = fit.items["difficulty"], fit.items["discrimination"]
            figure = panels(*pair, matrix.benchmark.astype(str), title)
            figure.savefig(given.out / f"figure_4_{name.split()[0]}.png", dpi=120)
    return rows


if __name__ == "__main__":
    main()
