"""New tasks and new pairs of agents and models: accuracy and coverage, in five folds.

`python -m experiments.aims.cold_start [--seeds 3]` with `../shared/data/agents` prints
the tables of the README. kNN and a network predict difficulties by Rasch's model of the
old tasks from the same features.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow.parquet as pq

import irtjax

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "agents"
FOLDS, NEIGHBOURS, WIDTH, STEPS = 5, 20, 64, 600


def area(right: np.ndarray, chance: np.ndarray) -> float:
    """Area under the curve of true and false positives, ties as halves."""
    from scipy.stats import rankdata

    rank, one = rankdata(chance), right == 1
    pairs = one.sum() * (~one).sum()
    return float((rank[one].sum() - one.sum() * (one.sum() + 1) / 2) / pairs)


def load(name: str):
    """Responses `[agents, tasks]` with names, and the file of features."""
    rows = pq.read_table(DATA / f"{name}_long.parquet").to_pandas()
    right = rows.pivot(index="agent", columns="task", values="resolved").astype(float)
    return right, DATA / f"{name}_task_features.csv"


def table_of(right, values) -> irtjax.ResponseTable:
    """Labelled responses, NaN where missing."""
    return irtjax.ResponseTable.from_arrays(
        values, subjects=right.index.to_numpy(), items=right.columns.to_numpy()
    )


def ridge(old, target, new) -> np.ndarray:
    """Ridge of weight 10, as `checks/agents_cold_start.py`."""
    weights = np.linalg.solve(old.T @ old + 10 * np.eye(old.shape[1]), old.T @ target)
    return new @ weights


def neighbours(old, target, new) -> np.ndarray:
    """Mean of the nearest tasks."""
    distance = ((new[:, None] - old) ** 2).sum(axis=2)
    return target[np.argsort(distance, axis=1)[:, :NEIGHBOURS]].mean(axis=1)


def network(old, target, new, seed=0) -> np.ndarray:
    """A hidden layer, stopped where a fifth of the old tasks is predicted best."""
    rng = np.random.default_rng(seed)
    held = rng.permutation(len(old)) < len(old) // 5
    keys = jax.random.split(jax.random.key(seed), 2)
    parameters = {
        "in": jax.random.normal(keys[0], (old.shape[1], WIDTH)) / old.shape[1] ** 0.5,
        "bias": jnp.zeros(WIDTH),
        "out": jax.random.normal(keys[1], (WIDTH,)) / WIDTH**0.5,
    }
    apply = lambda p, x: jax.nn.relu(x @ p["in"] + p["bias"]) @ p["out"]
    loss = lambda p, x, y: jnp.mean((apply(p, x) - y) ** 2)
    rule = optax.adamw(3e-3, weight_decay=1e-2)

    @jax.jit
    def train(p):
        def step(carry, _):
            p, state, best, least = carry
            slope = jax.grad(loss)(p, old[~held], target[~held])
            updates, state = rule.update(slope, state, p)
            p = optax.apply_updates(p, updates)
            error = loss(p, old[held], target[held])
            best = jax.tree.map(lambda a, b: jnp.where(error < least, a, b), p, best)
            return (p, state, best, jnp.minimum(error, least)), None

        first = p, rule.init(p), p, jnp.inf
        return jax.lax.scan(step, first, None, STEPS)[0][2]

    return np.asarray(apply(train(parameters), new))


def new_tasks(name: str, seed: int) -> dict[str, float]:
    """Areas by method, mean over folds, and coverage of the intervals."""
    right, path = load(name)
    values = right.to_numpy()
    tasks = values.shape[1]
    features = np.genfromtxt(path, delimiter=",", skip_header=1, dtype=str)
    place = {task: k for k, task in enumerate(features[:, 0])}
    numbers = features[[place[x] for x in right.columns], 1:].astype(float)
    fold = np.random.default_rng(seed).permutation(tasks) % FOLDS
    areas: dict[str, list[float]] = {}
    covered = []
    for k in range(FOLDS):
        new = fold == k
        train = np.where(new, np.nan, values)
        result = irtjax.cold_start(table_of(right, train), item_features=path)
        answers = values[:, new].ravel()

        def add(method, chance, new=new, answers=answers):
            areas.setdefault(method, []).append(area(answers, chance[:, new].ravel()))

        add("irtjax", result.expected)
        scale = (numbers - numbers[~new].mean(0)) / (numbers[~new].std(0) + 1e-9)
        plain = irtjax.cold_start(
            table_of(right, train), item_features={"noise": np.arange(tasks) % 7}
        )
        ability = plain.subjects["ability"].to_numpy()[:, None]
        difficulty = plain.items["difficulty"].to_numpy()
        target = difficulty[~new] - difficulty[~new].mean()
        add("ability alone", np.repeat(ability, tasks, axis=1))
        for method in (ridge, neighbours, network):
            own = np.zeros(tasks)
            own[new] = method(scale[~new], target, scale[new])
            add(method.__name__, ability - own)
        whole = irtjax.cold_start(
            table_of(right, values), item_features={"noise": np.arange(tasks) % 7}
        )
        add("own difficulty", ability - whole.items["difficulty"].to_numpy())
        ends = [result.items[x].to_numpy()[new] for x in ("lower", "upper")]
        score = values.mean(axis=0)[new]
        covered += ((ends[0] <= score) & (score <= ends[1])).tolist()
    means = {method: float(np.mean(x)) for method, x in areas.items()}
    return means | {"covered": float(np.mean(covered))}


def new_pairs(seed: int) -> dict[str, float]:
    """Scores of pairs of agents and models never run, Terminal-Bench 2."""
    right, _ = load("terminal_bench_2")
    values = right.to_numpy()
    path = DATA / "terminal_bench_2_subjects.csv"
    fold = np.random.default_rng(seed).permutation(len(values)) % FOLDS
    errors: dict[str, list[float]] = {}
    covered = []
    for k in range(FOLDS):
        new = fold == k
        train = np.where(new[:, None], np.nan, values)
        score = values.mean(axis=1)[new]
        for name, columns in (
            ("agent and model", ["agent", "model"]),
            ("model alone", ["model"]),
            ("agent alone", ["agent"]),
        ):
            result = irtjax.cold_start(
                table_of(right, train), subject_features=path, subject_columns=columns
            )
            rows = result.subjects.to_pandas()[new]
            errors.setdefault(name, []).extend(abs(rows["expected"] - score))
            if len(columns) == 2:
                inside = (rows["lower"] <= score) & (score <= rows["upper"])
                covered += inside.tolist()
        mean = np.nanmean(train)
        errors.setdefault("mean of all", []).extend(abs(mean - score))
    means = {method: float(np.mean(x)) for method, x in errors.items()}
    return means | {"covered": float(np.mean(covered))}


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    for name, function in (
        ("SWE-bench Verified", lambda s: new_tasks("swebench_verified", s)),
        ("Terminal-Bench 2", lambda s: new_tasks("terminal_bench_2", s)),
        ("new pairs of Terminal-Bench 2", new_pairs),
    ):
        runs = [function(seed) for seed in seeds]
        print(name)
        for method in runs[0]:
            values = [run[method] for run in runs]
            shown = [f"{x:.4f}" for x in (*values, np.mean(values))]
            print(f"  {method:16}", *shown)


if __name__ == "__main__":
    main()
