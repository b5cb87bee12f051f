"""Tables 4, 6 and 7 of the PSN-IRT paper with marginal fits in place of networks.

    python experiments/psn_irt/subsets.py --small          # simulated, minutes
    python experiments/psn_irt/subsets.py --out DIR        # data beside the checkout
    python experiments/psn_irt/subsets.py --only stability

`subsets.md` beside this file says what each table is and what was measured.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.lego_irt.methods import structured
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run_jit
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.start import start_values
from irtjax.inference import score
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import MODELS
from irtjax.models.model import Population
from irtjax.numerics.kernels import equal_nodes
from irtjax.subsets.errors import rank_correlation
from irtjax.subsets.selection import choose, worth

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
NAMES = ("1pl", "2pl", "3pl", "4pl")
#: By empirical Bayes, items integrated out: see `experiments/lego_irt`.
STRUCTURED = ("2pl, items by benchmark", "multibenchmark 2pl")
WEAK = ("Gemma", "Mistral", "Qwen2.5-3B", "Vicuna")
METHODS = ("random", "clustering", "discrimination", "information")
#: Standardised nodes: a hundredth apart, where posteriors are about as wide.
NODES = equal_nodes(-3.5, 3.5, 701)
TOLERANCE, MAX_STEPS = 0.03, 100

_start_jit = eqx.filter_jit(start_values)


class Matrix(NamedTuple):
    """Responses with names; `seen` is False and `values` 0 where one is missing."""

    values: np.ndarray
    seen: np.ndarray
    subjects: np.ndarray
    published: np.ndarray
    benchmark: np.ndarray


class Fitted(NamedTuple):
    """Estimates for every item, and abilities."""

    model: Any
    items: Any
    population: Population
    ability: np.ndarray
    status: str


def read(data: Path) -> Matrix:
    """The corrected matrix of 12 models and 41,871 items."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    folder = data / "psn_irt"
    frame = pq.read_table(folder / "responses_corrected_items_by_models.parquet")
    names = [name for name in frame.column_names if name != "item"]
    columns = [frame[n].to_numpy(zero_copy_only=False).astype(float) for n in names]
    values = np.stack(columns)
    models = pyarrow.csv.read_csv(folder / "models.csv")
    ability = dict(
        zip(models["model"].to_pylist(), models["ability_psn"].to_pylist(), strict=True)
    )
    benchmark = pq.read_table(folder / "items.parquet")["benchmark"].to_pylist()
    seen = ~np.isnan(values)
    return Matrix(
        np.where(seen, values, 0).astype(np.int8),
        seen,
        np.array(names),
        np.array([ability[name] for name in names]),
        np.array(benchmark),
    )


def simulated(items: int, seed: int) -> Matrix:
    """Twelve models on items of a four-parameter model."""
    rng = np.random.default_rng(seed)
    ability = np.linspace(-2, 1.5, 12)
    slope, shift = np.exp(0.3 * rng.normal(size=items)), 1 + rng.normal(size=items)
    low = rng.uniform(0, 0.3, items)
    chance = low + (0.97 - low) * special.expit(slope * ability[:, None] + shift)
    values = (rng.random(chance.shape) < chance).astype(np.int8)
    names = np.array([f"model {k}" for k in range(8)] + list(WEAK))
    names = names[np.argsort(np.r_[np.arange(4, 12), np.arange(4)])]
    return Matrix(
        values, np.ones(values.shape, bool), names, ability, np.arange(items) % 3
    )


def fit(name: str, values: np.ndarray, seen: np.ndarray) -> Fitted:
    """Marginal MAP by EM; items with equal responses are done once, with their number.

    Twelve models leave about 5,000 patterns of 41,871, and the result is that of all.
    """
    model = MODELS[name]("weak", **({} if name == "1pl" else {"positive": True}))
    coded = np.where(seen, values, -1).T
    patterns, place, count = np.unique(
        coded, axis=0, return_inverse=True, return_counts=True
    )
    # Padded to multiples of 2,000 with weightless items: one program for many subsets.
    extra = -len(patterns) % 2000
    patterns = np.pad(patterns, ((0, extra), (0, 0)), constant_values=-1).T
    weight = jnp.asarray(np.pad(count, (0, extra)), float)
    data = Responses(
        jnp.asarray(np.maximum(patterns, 0), jnp.int8),
        jnp.asarray(patterns >= 0),
        item_weight=weight,
    )
    first = _start_jit(model, data, how="proportions", dtype=jnp.zeros(()).dtype)
    method = EM(jnp.asarray(NODES), TOLERANCE)
    found = run_jit(Problem.create(model, data), method, first, max_steps=MAX_STEPS)
    items, population = found.parameters.items, found.parameters.population
    population = population._replace(log_weights=None)
    scores = score(model, items, population, data, nodes=NODES)
    status = irtjax.Status(int(found.status)).name
    rows = place.reshape(-1)
    return Fitted(
        model,
        jax.tree.map(lambda x: np.asarray(x)[rows], items),
        population,
        np.asarray(scores.ability),
        status,
    )


def chances(fitted: Fitted, ability: np.ndarray) -> np.ndarray:
    """`[subjects, items]` chances at the estimates."""
    family, items = fitted.model.family, jax.tree.map(jnp.asarray, fitted.items)
    over = jax.vmap(family.expected_response, in_axes=(0, None))
    return np.asarray(jax.vmap(over, in_axes=(None, 0))(items, jnp.asarray(ability)))


def additive(values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Chances from logit(item mean) + logit(model mean) less that of all."""

    def logit(axis):
        right = np.where(seen, values, 0).sum(axis)
        return special.logit((right + 0.5) / (seen.sum(axis) + 1))

    return special.expit(logit(1)[:, None] + logit(0) - logit(None))


def accuracy_row(right: np.ndarray, chance: np.ndarray) -> dict[str, float]:
    """Accuracy, F1 of right answers, area under the curve and log-loss."""
    said = chance >= 0.5
    hits = np.sum(said & (right == 1))
    ranks = stats.rankdata(chance)
    ones = int(right.sum())
    area = ranks[right == 1].sum() - ones * (ones + 1) / 2
    clipped = np.clip(chance, 1e-9, 1 - 1e-9)
    loss = special.xlogy(right, clipped) + special.xlog1py(1 - right, -clipped)
    return {
        "ACC": float(np.mean(said == (right == 1))),
        "F1": float(2 * hits / (said.sum() + ones)),
        "AUC": float(area / (ones * (len(right) - ones))),
        "log-loss": float(-loss.mean()),
    }


def prediction(matrix: Matrix, seed: int) -> list[dict]:
    """Table 7: 60 % of the cells to learn from, 20 % to judge by, two halves' ranks.

    The other 20 % (the paper's validation cells) are not used: nothing is tuned.
    """
    rng = np.random.default_rng(seed)
    draw = rng.random(matrix.seen.shape)
    train, test = matrix.seen & (draw < 0.6), matrix.seen & (draw >= 0.8)
    half = rng.random(matrix.values.shape[1]) < 0.5
    right = matrix.values[test]
    rows = []
    for name in ("additive", *NAMES, *STRUCTURED):
        begun = time.perf_counter()
        sides: list[np.ndarray] = []
        if name in STRUCTURED:
            table = irtjax.ResponseTable.from_arrays(
                matrix.values, observed=train, benchmark=matrix.benchmark.astype(str)
            )
            known = structured(table, grouped=name.startswith("multi"))
            chance, status = known.predictions(), known.status.name
            sides = [known.score(matrix.values, test & side) for side in (half, ~half)]
        elif name == "additive":
            chance, status = additive(matrix.values, train), ""
            sides = [_mean(matrix.values, test & side) for side in (half, ~half)]
        else:
            fitted = fit(name, matrix.values, train)
            status = fitted.status
            chance = chances(fitted, fitted.ability)
            sides = [
                _ability(fitted, matrix.values, test & side) for side in (half, ~half)
            ]
        row = {"model": name, **accuracy_row(right, chance[test])}
        row |= {"Kendall": rank_correlation(*sides) if sides else None}
        row |= {"status": status}
        rows.append(row | {"seconds": time.perf_counter() - begun})
        say(rows[-1], len(rows) == 1)
    return rows


def _mean(values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return np.where(seen, values, 0).sum(1) / np.maximum(seen.sum(1), 1)


def _ability(fitted: Fitted, values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    data = Responses(
        jnp.asarray(np.where(seen, values, 0), jnp.int8), jnp.asarray(seen)
    )
    items = jax.tree.map(jnp.asarray, fitted.items)
    found = score(
        fitted.model, items, fitted.population, data, scoring="map", nodes=NODES[::7]
    )
    return np.asarray(found.ability)


def natural(fitted: Fitted) -> dict[str, np.ndarray]:
    """Difficulty, discrimination, guessing and feasibility."""
    a, d, c, u = (np.asarray(x, float) for x in fitted.items)
    steep = np.abs(a) > 0.05
    return {
        "difficulty": np.where(steep, -d / np.where(steep, a, 1), np.nan),
        "discrimination": a,
        "guessing": c,
        "feasibility": u,
    }


def stability(matrix: Matrix, whole: Fitted, seed: int) -> list[dict]:
    """Table 4: parameters estimated from a share of the items against those of all."""
    rng = np.random.default_rng(seed)
    count = matrix.values.shape[1]
    everything = natural(whole)
    rows = []
    for share in (0.3, 0.5, 0.7):
        kept = np.sort(rng.permutation(count)[: round(share * count)])
        part = fit("4pl", matrix.values[:, kept], matrix.seen[:, kept])
        row: dict[str, Any] = {"items": f"{100 * share:.0f} %"}
        for name, values in natural(part).items():
            other = everything[name][kept]
            both = np.isfinite(values) & np.isfinite(other)
            row[name] = float(np.corrcoef(values[both], other[both])[0, 1])
            ranks = stats.spearmanr(values[both], other[both])
            row[f"{name}, Spearman"] = float(np.asarray(ranks)[0])
        rows.append(row | {"status": part.status})
        say(rows[-1], len(rows) == 1)
    return rows


def subsets(matrix: Matrix, whole: Fitted, sizes, seed: int) -> list[dict]:
    """Table 6: spread of the scores on a subset, and their ranks against references."""
    count = matrix.values.shape[1]
    weak = np.array([name.startswith(WEAK) for name in matrix.subjects])
    target, stratum = np.full(count, 1 / count), np.zeros(count, int)
    vectors = np.where(
        matrix.seen, matrix.values, _mean(matrix.values, matrix.seen)[:, None]
    ).T.astype(np.float32)
    full = _mean(matrix.values, matrix.seen)
    rows = []
    for size in (count, *sizes):
        for method in ("all",) if size == count else METHODS:
            for kept, group in ((np.ones(12, bool), "all 12"), (~weak, "8 strong")):
                items = np.arange(count)
                if method != "all":
                    # Information at the strongest model of the group; as the paper.
                    top = float(whole.ability[kept].max())
                    weigh = worth(
                        whole.model, whole.items, whole.population, target, [top]
                    )
                    items = choose(
                        weigh, method, (size,), mass=target, stratum=stratum,
                        key=jax.random.key(seed), vectors=vectors, aim="ability",
                    )[size].items  # fmt: skip
                scores = _mean(matrix.values[:, items], matrix.seen[:, items])[kept]
                rows.append(
                    {
                        "items": size,
                        "method": method,
                        "models": group,
                        "variance": float(scores.var()),
                        "tau with accuracy": rank_correlation(scores, full[kept]),
                        "tau with published ability": rank_correlation(
                            scores, matrix.published[kept]
                        ),
                        "tau with 4PL ability": rank_correlation(
                            scores, whole.ability[kept]
                        ),
                    }
                )
                say(rows[-1], len(rows) == 1)
    return rows


def say(row: dict, titles: bool = False) -> None:
    """Prints a row as a line, below its titles if there is none above."""
    if titles:
        print("\n| " + " | ".join(row) + " |\n|" + "---|" * len(row), flush=True)
    cells = [f"{v:.4f}" if isinstance(v, float) else str(v) for v in row.values()]
    print("| " + " | ".join(cells) + " |", flush=True)


def main(arguments: list[str] | None = None) -> dict[str, list[dict]]:
    """Runs the tables, prints and, with --out, writes them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--small", action="store_true", help="simulated responses, minutes"
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", choices=("prediction", "stability", "subsets"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    if not given.small and not (given.data / "psn_irt").is_dir():
        parser.error(f"{given.data / 'psn_irt'} is not there: give --data FOLDER")
    matrix = simulated(600, given.seed) if given.small else read(given.data)
    sizes = (40, 100) if given.small else (400, 1000)
    found: dict[str, list[dict]] = {}
    if given.only != "prediction":
        begun = time.perf_counter()
        whole = fit("4pl", matrix.values, matrix.seen)
        say({"fit": "4pl", "status": whole.status, "s": time.perf_counter() - begun})
        say(dict(zip(matrix.subjects.tolist(), whole.ability.tolist(), strict=True)))
        if given.only != "stability":
            found["subsets"] = subsets(matrix, whole, sizes, given.seed)
        if given.only != "subsets":
            found["stability"] = stability(matrix, whole, given.seed)
    if given.only in (None, "prediction"):
        found["prediction"] = prediction(matrix, given.seed)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        for name, rows in found.items():
            path = given.out / f"{name}.csv"
            with open(path, "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
    return found


if __name__ == "__main__":
    main()
