"""What response lengths add on real data: four comparisons of the LaRT paper.

    python experiments/lart/compare.py --small       # simulated data, five minutes
    python experiments/lart/compare.py --out DIR     # the data beside the repository
    python experiments/lart/compare.py --data FOLDER --only validity

Each comparison of section 6.3 of the paper (prediction, item efficiency, validity,
model efficiency) is repeated over random splits and gives a table and a figure;
"gains" follows SAEM from two starts (its Appendix D). The README beside this file says
what each measures.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.tabulate import write_csv
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.marginal.saem import SAEM, burn_in, reciprocal
from irtjax.estimators.start import low_rank_start, start_values
from irtjax.inference import score_on_nodes
from irtjax.likelihood.lengths import with_lengths
from irtjax.likelihood.problem import Parameters, Problem, Start
from irtjax.models.catalogue import latency_response, probit_two_parameter
from irtjax.models.lengths import LengthParameters
from irtjax.models.model import Model
from irtjax.models.simulate import (
    simulate,
    simulate_abilities,
    simulate_items,
    simulate_length_items,
    simulate_log_lengths,
)
from irtjax.numerics.kernels import equal_nodes

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "lart"
NODES = equal_nodes(-6.0, 6.0, 241)
FOLDS = 5


class Measured(NamedTuple):
    """Right and wrong answers and log lengths, `[models, items]`."""

    right: np.ndarray
    log_length: np.ndarray

    def responses(self, seen=None, weight=None) -> Responses:
        """As arrays; cells not seen count neither in accuracy nor in length."""
        weight = None if weight is None else jnp.asarray(weight)
        right = jnp.asarray(self.right, jnp.int8)
        if seen is not None:
            seen = jnp.asarray(seen)
            right = right * seen  # A response that is not seen has value 0.
        return Responses(
            right,
            seen,
            subject_weight=weight,
            log_length=jnp.asarray(self.log_length),
            length_observed=seen,
        )


def read(folder: Path, *names: str) -> Measured:
    """Benchmarks side by side, models without any right answer left out."""
    tables = [
        irtjax.read(
            folder / f"accuracy_{name}.parquet",
            length=folder / f"cot_length_{name}.parquet",
        )
        for name in names
    ]
    common = sorted(set.intersection(*(set(t.subjects.tolist()) for t in tables)))
    parts = [t.select(subjects=common) for t in tables]
    right = np.concatenate([t.values for t in parts], axis=1)
    length = np.concatenate([np.asarray(t.lengths, float) for t in parts], axis=1)
    kept = right.sum(axis=1) > 0
    return Measured(right[kept], np.log1p(length[kept]))


def simulated(models: int, items: int, seed: int = 0) -> Measured:
    """Data of the model, where there are no others."""
    keys = jax.random.split(jax.random.key(seed), 5)
    records = simulate_items(latency_response(), items, keys[0])
    theta = simulate_abilities(models, keys[1])
    lengths = LengthParameters(simulate_length_items(items, keys[2]), jnp.array(-0.8))
    log_length, _ = simulate_log_lengths(lengths, theta, keys[3])
    data = simulate(latency_response(), records, theta, keys[4])
    return Measured(np.asarray(data.values), np.asarray(log_length))


def models_compared() -> dict[str, Model]:
    """LaRT and the same model of accuracy alone, both with weak priors."""
    return {"LaRT": latency_response(), "IRT": probit_two_parameter()}


@eqx.filter_jit
def estimate(model: Model, data: Responses) -> Parameters:
    """Items (and lengths) by EM."""
    problem = Problem.create(model, data)
    first = start_values(model, data)
    return run(problem, EM(jnp.asarray(NODES), 1e-3), first, max_steps=300).parameters


@eqx.filter_jit
def abilities(model: Model, known: Parameters, data: Responses) -> jax.Array:
    """EAP abilities, items known, from the cells seen."""
    problem, _ = with_lengths(Problem.create(model, data), known.lengths)
    nodes, bounds = jnp.asarray(NODES), jnp.array([-6.0, 6.0])
    population = known.population
    scores = score_on_nodes(
        model, known.items, population, problem.data, nodes, bounds, scoring="eap"
    )
    return scores.ability


def prediction(data: Measured, splits: int, seed: int) -> list[dict]:
    """Mean absolute error of predicted responses of models held out, five folds."""
    rng = np.random.default_rng(seed)
    count, items = data.right.shape
    rows = []
    for split in range(splits):
        training = np.zeros(count)
        training[rng.permutation(count)[: round(0.78 * count)]] = 1
        fold_of = rng.permutation(items) % FOLDS
        for name, model in models_compared().items():
            known = estimate(model, data.responses(weight=training))
            for fold in range(FOLDS):
                seen = np.broadcast_to(fold_of != fold, data.right.shape)
                theta = abilities(model, known, data.responses(seen))
                chance = ndtr(
                    theta[:, None] * known.items.discrimination + known.items.intercept
                )
                miss = np.abs(np.asarray(chance) - data.right)
                held = (training == 0)[:, None] & ~seen
                rows.append(
                    {"split": split, "fold": fold + 1, "model": name,
                     "value": float(miss[held].mean())}
                )  # fmt: skip
    return rows


@eqx.filter_jit
def adaptive_path(model: Model, known: Parameters, data: Responses, given, steps: int):
    """Abilities after each item of tests that begin with the items given.

    Returns `[steps, models]`: the item chosen is the one of most Fisher information
    at the current ability.
    """
    count = data.values.shape[0]
    over_items = jax.vmap(model.family.information, in_axes=(0, None))

    def now(seen):
        part = dataclasses.replace(
            data, values=data.values * seen, observed=seen, length_observed=seen
        )
        return abilities(model, known, part)

    def step(seen, _):
        theta = now(seen)
        information = jax.vmap(over_items, in_axes=(None, 0))(known.items, theta)
        best = jnp.argmax(jnp.where(seen, -1.0, information), axis=1)
        return seen.at[jnp.arange(count), best].set(True), theta

    seen = jnp.broadcast_to(jnp.asarray(given), data.values.shape)
    return lax.scan(step, seen, length=steps)[1]


def item_efficiency(data: Measured, splits: int, seed: int) -> list[dict]:
    """Distance of the ability after each item from that of all items."""
    rng = np.random.default_rng(seed)
    items = data.right.shape[1]
    first = min(10, items // 3)
    rows = []
    known = {n: estimate(m, data.responses()) for n, m in models_compared().items()}
    for split in range(splits):
        given = np.zeros(items, bool)
        given[rng.permutation(items)[:first]] = True
        for name, model in models_compared().items():
            every = abilities(model, known[name], data.responses())
            ones = np.ones_like(data.right, bool)
            path = adaptive_path(
                model, known[name], data.responses(ones), given, items - first
            )
            distance = np.sqrt(np.mean((np.asarray(path) - np.asarray(every)) ** 2, 1))
            rows += [
                {"split": split, "items": first + k, "model": name, "value": float(d)}
                for k, d in enumerate(distance)
            ]
    return rows


def validity(data: Measured, splits: int, seed: int) -> list[dict]:
    """Variance of the ability over disjoint item sets, summed over models."""
    rng = np.random.default_rng(seed)
    size = data.right.shape[1] // FOLDS
    rows = []
    for split in range(splits):
        order = rng.permutation(data.right.shape[1])
        parts = [order[k * size : (k + 1) * size] for k in range(FOLDS)]
        for name, model in models_compared().items():
            theta = []
            for part in parts:
                cut = Measured(data.right[:, part], data.log_length[:, part])
                known = estimate(model, cut.responses())
                theta.append(np.asarray(abilities(model, known, cut.responses())))
            total = float(np.var(np.stack(theta), axis=0, ddof=1).sum())
            rows.append({"split": split, "model": name, "value": total})
    return rows


def model_efficiency(data: Measured, splits: int, seed: int) -> list[dict]:
    """Distance of slopes and intercepts from few models to those from all."""
    rng = np.random.default_rng(seed)
    count, items = data.right.shape
    compared = {**models_compared(), "IRT, no priors": probit_two_parameter(None)}
    chosen = np.arange(items)
    if items > 100:
        known = estimate(compared["IRT"], data.responses())
        theta = abilities(compared["IRT"], known, data.responses())
        over_items = jax.vmap(compared["IRT"].family.information, in_axes=(0, None))
        information = jax.vmap(over_items, in_axes=(None, 0))(known.items, theta)
        chosen = np.sort(np.argsort(-np.asarray(information).mean(axis=0))[:100])
    cut = Measured(data.right[:, chosen], data.log_length[:, chosen])
    sizes = [n for n in (50, 75, 100, 125) if n < count] or [count // 2]
    ones = np.ones(count)
    final = {n: estimate(m, cut.responses(weight=ones)) for n, m in compared.items()}
    rows = []
    for split in range(splits):
        order = rng.permutation(count)
        for size in sizes:
            weight = np.zeros(count)
            weight[order[:size]] = 1
            for name, model in compared.items():
                known = estimate(model, cut.responses(weight=weight))
                for parameter in ("discrimination", "intercept"):
                    gap = getattr(known.items, parameter) - getattr(
                        final[name].items, parameter
                    )
                    rows.append(
                        {"split": split, "models": size, "parameter": parameter,
                         "model": name, "value": float(jnp.sqrt(jnp.mean(gap**2)))}
                    )  # fmt: skip
    return rows


def by_parameter(items: Any, lengths: LengthParameters | None) -> dict[str, jax.Array]:
    """The parameters of LaRT by the letters of the paper."""
    assert lengths is not None
    omega, phi, variance = lengths.items
    return {
        "a": items.discrimination,
        "b": items.intercept,
        "omega": omega,
        "phi": phi,
        "lambda": variance,
        "rho": lengths.correlation,
    }


@eqx.filter_jit
def saem_path(problem: Problem, method: SAEM, first: Start, target: Parameters, key):
    """Root mean squared distance from the target after each step, by parameter."""
    state = method.init(problem, first, key)
    goal = by_parameter(target.items, target.lengths)

    def step(state, time):
        state = method.step(problem, state, jax.random.fold_in(key, time))
        items = problem.model.constrain(state.point.coordinates)
        now = by_parameter(
            items, problem.model.length_model.constrain(state.point.lengths)
        )
        distance = lambda x, y: jnp.sqrt(jnp.mean((x - y) ** 2))
        return state, jax.tree.map(distance, now, goal)

    return lax.scan(step, state, jnp.arange(method.num_steps))[1]


def gains(models: int, items: int, splits: int, seed: int, steps: int) -> list[dict]:
    """SAEM from the low-rank start with 1/t, and from a random start with burn-in."""
    model, rows = latency_response(), []
    variants: dict[str, tuple[Callable | None, bool]] = {
        "low-rank start, 1/t": (reciprocal, False),
        "random start, 1/t": (reciprocal, True),
        "random start, burn-in 20": (burn_in(20), True),
        "random start, default": (None, True),
    }
    for split in range(splits):
        data = simulated(models, items, seed + split).responses()
        problem = Problem.create(model, data)
        target = estimate(model, data)
        warm = low_rank_start(model, data)
        assert warm.lengths is not None
        keys = jax.random.split(jax.random.key(seed + split), 3)
        cold = warm._replace(
            items=warm.items._replace(
                discrimination=jax.random.uniform(keys[0], (items,)) + 0.1,
                intercept=jax.random.normal(keys[1], (items,)),
            ),
            lengths=warm.lengths._replace(correlation=jnp.zeros(())),
        )
        for name, (gain, is_random) in variants.items():
            method = SAEM(jnp.asarray(NODES[::3]), num_steps=steps, gain=gain)
            first = cold if is_random else warm
            path = saem_path(problem, method, first, target, keys[2])
            rows += [
                {"split": split, "step": k + 1, "parameter": parameter,
                 "model": name, "value": float(v)}
                for parameter, values in path.items()
                for k, v in enumerate(values)
            ]  # fmt: skip
    return rows


def summary(rows: list[dict]) -> list[dict]:
    """Mean and standard error over splits of every other combination of labels."""
    labels = [k for k in rows[0] if k not in ("split", "value")]
    groups: dict[tuple, list[float]] = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in labels), []).append(row["value"])
    out = []
    for label, values in groups.items():
        spread = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0
        out.append(
            dict(zip(labels, label, strict=True))
            | {"mean": float(np.mean(values)), "se": float(spread), "n": len(values)}
        )
    return out


def difference(rows: list[dict]) -> tuple[float, float]:
    """Mean over splits of IRT less LaRT, and its standard error."""
    by_split: dict[int, dict[str, list[float]]] = {}
    for row in rows:
        by_split.setdefault(row["split"], {}).setdefault(row["model"], []).append(
            row["value"]
        )
    gaps = [np.mean(v["IRT"]) - np.mean(v["LaRT"]) for v in by_split.values()]
    error = np.std(gaps, ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
    return float(np.mean(gaps)), float(error)


#: Up to this number of places along the axis means are points, and a line above.
FEW = 12
#: Differences below this are rounding errors, not distances.
ROUNDING = 1e-12


def draw_figure(name: str, rows: list[dict], path: Path) -> None:
    """Means over splits with two standard errors, a panel for each parameter."""
    from irtjax.plots.style import (
        empty_figure,
        legend_below,
        panels,
        save_figure,
        title,
    )

    along = next((k for k in ("items", "models", "step", "fold") if k in rows[0]), None)
    kinds = sorted({row.get("parameter", "") for row in rows})
    columns = min(len(kinds), 3)
    lines = -(-len(kinds) // columns)
    figure = empty_figure(4.2 * columns, 2.9 * lines + 0.3)
    every = panels(figure, lines, columns, len(kinds)).ravel()[: len(kinds)]
    for kind, axes in zip(kinds, every, strict=True):
        mine = [row for row in rows if row.get("parameter", "") == kind]
        title(axes, f"{name} {kind}".strip())
        draw_panel(axes, mine, along)
    legend_below(figure, every[:1], 2)
    save_figure(figure, path, dpi=110)


def draw_panel(axes, rows: list[dict], along: str | None) -> None:
    """One line for each model, or points where there are few places."""
    from irtjax.plots.style import PALETTE

    labels = list(dict.fromkeys(row["model"] for row in rows))
    places = sorted({row[along] for row in rows}) if along else [""]
    few = len(places) <= FEW
    values = [row["mean"] for row in rows]
    exact = max(values) < ROUNDING
    for k, label in enumerate(labels):
        part = [row for row in rows if row["model"] == label]
        x = [row[along] if along else "" for row in part]
        if few:  # Models at one place stand side by side.
            shift = 0.1 * (k - (len(labels) - 1) / 2)
            x = [places.index(place) + shift for place in x]
        y, error = (np.asarray([row[c] for row in part]) for c in ("mean", "se"))
        axes.errorbar(
            x, 0 * y if exact else y, yerr=None if exact else 2 * error, label=label,
            color=PALETTE[k], lw=1.2, elinewidth=0.6, fmt="o" if few else "-", ms=5,
        )  # fmt: skip
    if few:
        axes.set_xticks(range(len(places)), places)
        axes.set_xlim(-0.6, len(places) - 0.4)
    axes.set_xlabel(along or "")
    if exact:
        axes.set_ylim(-1, 1)
        axes.set_yticks([])
        axes.text(
            0.5, 0.6, f"below {ROUNDING:g}", transform=axes.transAxes, ha="center"
        )
    elif max(values) > 20 * max(min(values), ROUNDING):
        axes.set_yscale("log")


def save(out: Path, name: str, rows: list[dict]) -> None:
    """Writes NAME.csv and NAME.png."""
    write_csv(out, name, rows)
    draw_figure(name.replace("_", " "), rows, out / f"{name}.png")


def plan(options) -> dict[str, Callable[[], list[dict]]]:
    """The comparisons that can be run."""
    if options.small:
        data = simulated(40, 25)
        return {
            "prediction": partial(prediction, data, 2, 0),
            "item_efficiency": partial(item_efficiency, data, 1, 0),
            "validity": partial(validity, data, 2, 0),
            "model_efficiency": partial(model_efficiency, data, 1, 0),
            "gains": partial(gains, 40, 8, 1, 0, 10),
        }
    splits, seed = options.splits, options.seed
    found = {"gains": partial(gains, 200, 50, splits, seed, 200)}
    if not (options.data / "accuracy_math500.parquet").is_file():
        print(f"no data in {options.data}: only 'gains' is run", file=sys.stderr)
        return found
    contests = read(options.data, "amc23", "aime24")
    math500 = read(options.data, "math500")
    return {
        "prediction": partial(prediction, contests, splits, seed),
        "item_efficiency": partial(item_efficiency, contests, splits, seed),
        "validity": partial(validity, math500, splits, seed),
        "model_efficiency": partial(model_efficiency, math500, splits, seed),
        **found,
    }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the comparisons, prints their tables and returns all rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="simulated data, a minute")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--splits", type=int, default=20, help="random splits")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one comparison")
    parser.add_argument("--out", type=Path, help="folder for tables and figures")
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    todo = plan(options)
    if options.only and options.only not in todo:
        parser.error(f"no comparison {options.only!r}; there are {', '.join(todo)}")
    results = {}
    for name, make in todo.items():
        if options.only and name != options.only:
            continue
        rows = make()
        table = summary(rows)
        results[name] = rows
        print(f"\n{name}")
        print("  " + "  ".join(f"{k:<10}" for k in list(table[0])[:-3]) + " mean ± se")
        for row in table if len(table) <= 40 else table[:: len(table) // 40 + 1]:
            label = "  ".join(f"{v!s:<10}" for v in list(row.values())[:-3])
            print(f"  {label} {row['mean']:.4f} ± {row['se']:.4f}")
        if name != "gains" and name != "model_efficiency":
            gap, error = difference(rows)
            print(f"  IRT less LaRT: {gap:.4f} ± {error:.4f} ({options.splits} splits)")
        if options.out is not None:
            save(options.out, name, table)
        sys.stdout.flush()
    return results


if __name__ == "__main__":
    main()
