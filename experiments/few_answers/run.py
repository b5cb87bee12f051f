"""Scores of new models from 5 % of the items: effective samples and coverage.

    python experiments/few_answers/run.py                          # small: two minutes
    nice python experiments/few_answers/run.py --full --case k16   # a row of the README
    nice python experiments/few_answers/run.py --full --case gsm8k

The README beside this file says how each quantity is defined.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq

import irtjax
from irtjax.adaptive import Design, FactorBank, ItemBank
from irtjax.adaptive.score_draws import (
    FEWEST_DRAWS,
    draw_of,
    estimate_drawn,
    predicted_score,
    stopping_error,
)
from irtjax.adaptive.steps import select, start, update

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
#: Share of the items that a new model answers.
SHARE = 0.05
#: Generator and benchmarks of a case. MMLU-Pro is not in the data: the nearest to its
#: questions are those of GPQA, MATH and MuSR.
CASES = {
    "k16": ("k16", ["bbh"]),
    "k64": ("k64", ["bbh"]),
    "knowledge": ("k64", ["gpqa", "math", "musr"]),
    "five": ("k64", ["bbh", "gpqa", "ifeval", "math", "musr"]),
}
#: Numbers of factors among which the held-out likelihood chooses.
FACTORS = (8, 16)
SMALL_FACTORS = (2, 4)
#: Steps of a fit. Slopes of k64, whose responses are nearly certain, grow for long:
#: 16 factors had not converged after six minutes of processor time.
STEPS = {"k16": 5000, "k64": 300}


def generator(name: str, items: int | None, seed: int):
    """Probabilities of right responses to a case's items of all models, shuffled."""
    name, benchmarks = CASES[name]
    file = np.load(SHARED / "llm_factors" / f"open_llm_5suite_{name}.npz")
    rng = np.random.default_rng(seed)
    models, columns = (file[x].astype(np.float32) for x in ("U", "V"))
    models = models[rng.permutation(len(models))]
    labels = pq.read_table(SHARED / "llm_factors" / "open_llm_5suite_items.parquet")
    columns = columns[np.isin(labels["benchmark"].to_pylist(), benchmarks)]
    columns = columns[np.sort(rng.permutation(len(columns))[:items])]
    return 1 / (1 + np.exp(-models @ columns.T)), rng


def fit_history(values: np.ndarray, factors: int, steps: int) -> irtjax.Calibration:
    """A factor model of the history, of its main axes."""
    table = irtjax.ResponseTable.from_arrays(values)
    settings: dict[str, Any] = {"standard_errors": "none", "rotation": "none"}
    settings |= {"dtype": jnp.float32, "max_steps": steps}
    return irtjax.fit(table, "factor", "mm", factors=factors, **settings)


def bank_of(fit: irtjax.Calibration):
    """The items of a fit, taken as known."""
    items, population = (
        jax.tree.map(jnp.asarray, x)
        for x in (fit.parameters.items, fit.parameters.population)
    )
    make = FactorBank if fit.factor_names else ItemBank
    return make.create(fit.model, items, population)


@eqx.filter_jit
def run_draws(bank, design: Design, values, keys):
    """Draws, responses, predicted scores and their errors, `[subjects, draws]` each."""
    allowed = jnp.ones(bank.num_items, bool)

    def test(values, key):
        def step(carry, _):
            state, total = carry
            item = select(bank, design, state)
            draw = draw_of(bank, design, state, item)
            total = total + values[item]
            state = update(bank, design, state, item, values[item].astype(jnp.int32))
            predicted = predicted_score(bank, state, total, allowed)
            return (state, total), (draw, values[item], *predicted)

        init = start(bank, design, key=key), jnp.zeros((), values.dtype)
        return jax.lax.scan(step, init, None, length=design.num_items)[1]

    return jax.vmap(test)(values, keys)


def tests_of(bank, values: np.ndarray, number: int, seed: int, together: int):
    """Paths of the tests of all subjects, some at once: see `run_draws`."""
    design = Design.create(number, select="score")
    keys = jax.random.split(jax.random.key(seed), len(values))
    began, paths = time.process_time(), []
    for begin in range(0, len(values), together):
        part = slice(begin, begin + together)
        cells = jnp.asarray(values[part], jnp.float32)
        block = jax.device_get(run_draws(bank, design, cells, keys[part]))
        count = len(cells)
        paths += [jax.tree.map(lambda x, k=k: x[k], block) for k in range(count)]
    print(f"{len(values)} tests: {time.process_time() - began:.0f} s", flush=True)
    return paths


def score_after(path, count: int, items: int):
    """The estimate after some of the draws of a path."""
    draws, responses, mean, error = jax.tree.map(lambda x: x[:count], path)
    predicted = float(mean[-1]), float(error[-1])
    return estimate_drawn(draws, responses, items, predicted, 0.95)


def end_of(path, limit: float, items: int) -> int:
    """Draws after which `AdaptiveTest` ends by this error of the score."""
    draws, responses = path[:2]
    for count in range(FEWEST_DRAWS, items):
        first = jax.tree.map(lambda x, count=count: x[:count], (draws, responses))
        if stopping_error(*first, items) < limit:
            return count
    return items


def random_loss(fit: irtjax.Calibration, values: np.ndarray, rng) -> float:
    """Mean log loss of held-out subjects' responses, from 5 % of them."""
    seen = rng.random(values.shape) < SHARE
    few = np.where(seen, values, np.nan)
    table = irtjax.ResponseTable.from_arrays(few, items=fit.item_names)
    chance = irtjax.predict(fit, scored=irtjax.score(fit, table)).expected
    chance = np.clip(chance, 1e-4, 1 - 1e-4)
    logs = np.where(values == 1, np.log(chance), np.log1p(-chance))
    return float(-logs[~seen].mean())


def summary(name: str, estimates, true, number: int, items: int) -> dict[str, Any]:
    """Effective sample and coverage of `[..., subjects]` estimates with their ends."""
    value, lower, upper = estimates
    plain = true * (1 - true) / number * (1 - number / items) * items / (items - 1)
    square = np.mean(np.atleast_2d((value - true) ** 2), axis=0)
    ratio = plain.mean() / square.mean()
    # The delta method: both means are of the same subjects.
    error = np.std(plain / plain.mean() - square / square.mean()) * ratio
    row = {"estimate": name, "effective": ratio, "se": error / np.sqrt(len(true))}
    row["coverage"] = float(np.mean((lower <= true) & (true <= upper)))
    return row


def history_case(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Draws for new models of a generator with a factor model of the others."""
    full, seed, new = options.full, options.seed, options.new
    chance, rng = generator(name, options.items or (None if full else 600), seed)
    values = (rng.random(chance.shape) < chance).astype(np.int8)
    history = options.history or (1000 if full else 400)
    old, held, tested = np.split(values, [history, history + (100 if full else 50)])
    fits, losses = {}, {}
    for factors in options.factors or (FACTORS if full else SMALL_FACTORS):
        began = time.process_time()
        fits[factors] = fit_history(old, factors, STEPS[CASES[name][0]])
        losses[factors] = random_loss(fits[factors], held, rng)
        seconds = time.process_time() - began
        loss = f"{factors} factors: held-out loss {losses[factors]:.4f}"
        print(f"{loss}, {seconds:.0f} s", flush=True)
    best = min(losses, key=lambda x: losses[x])
    tested = tested[:new]
    items, true = tested.shape[1], tested.mean(axis=1)
    number = round(SHARE * items)
    paths = tests_of(bank_of(fits[best]), tested, number, seed, 8)
    scores = [score_after(path, number, items) for path in paths]
    drawn = [(x.score, x.lower, x.upper) for x in scores]
    middle = np.array([x.predicted for x in scores])
    reach = 1.96 * np.array([x.predicted_error for x in scores])
    predicted = middle, middle - reach, middle + reach
    samples = [
        rectified_scores(fits[best], tested, number, rng)
        for _ in range(options.samples)
    ]
    rectified = np.stack(samples, axis=1)
    own = chance[-len(values) + len(old) + len(held) :][: len(tested)]
    bound = np.mean(true * (1 - true)) / number * (1 - number / items)
    bound = bound / np.mean([least_square(p, number) for p in own])
    rows = [
        summary("drawn", np.array(drawn).T, true, number, items),
        summary("predicted", predicted, true, number, items),
        summary("random, rectified", rectified, true, number, items),
    ]
    return [{"case": name, "factors": best, "bound": bound, **row} for row in rows]


def rectified_scores(
    fit: irtjax.Calibration, values: np.ndarray, number: int, rng
) -> np.ndarray:
    """Scores of random answers of each subject and their ends, `[3, subjects]`."""
    items = values.shape[1]
    few = np.full(values.shape, np.nan)
    for row, cells in zip(few, values, strict=True):
        place = rng.permutation(items)[:number]
        row[place] = cells[place]
    table = irtjax.ResponseTable.from_arrays(few, items=fit.item_names)
    rows = irtjax.estimate_score(fit, table, key=rng.integers(2**31)).table
    return np.array([rows[x].to_numpy() for x in ("score", "lower", "upper")])


def least_square(chance: np.ndarray, number: int) -> float:
    """Least squared error of unbiased scores where the true chances are known.

    Chances of inclusion pi proportional to the noise sqrt(p (1 - p)), at most 1, have
    the error sum_j p_j (1 - p_j) (1 / pi_j - 1) / J^2.
    """
    noise = np.sqrt(chance * (1 - chance))
    low, high = 0.0, number / max(float(noise.min()), 1e-12)
    for _ in range(100):
        middle = (low + high) / 2
        short = np.minimum(1, middle * noise).sum() < number
        low, high = (middle, high) if short else (low, middle)
    inclusion = np.maximum(np.minimum(1, low * noise), 1e-12)
    return float(np.sum(noise**2 * (1 / inclusion - 1))) / len(chance) ** 2


def order_of(scores: np.ndarray, true: np.ndarray) -> float:
    """Kendall's tau-b with the true scores."""
    from scipy.stats import kendalltau

    return float(kendalltau(scores, true).statistic)


def stopping_case(full: bool, seed: int, new: int) -> list[dict[str, Any]]:
    """Tests that end at an error, on metabench's gsm8k, and random items at the same.

    The cost is the number of items; random items need as many as the plain mean needs
    for the same squared error.
    """
    frame = pq.read_table(SHARED / "metabench" / "gsm8k_2pl_responses.parquet")
    frame = frame.to_pandas()
    rng = np.random.default_rng(seed)
    values = frame.to_numpy()[rng.permutation(len(frame))]
    old, tested = values[: 1500 if full else 300], values[-new:]
    names = frame.columns.to_list()
    table = irtjax.ResponseTable.from_arrays(old.astype(float), items=names)
    fit = irtjax.fit(table, "2pl", method="em", standard_errors="none")
    items, true, rows = len(names), tested.mean(axis=1), []
    paths = tests_of(bank_of(fit), tested, items, seed, 50)
    for limit in (0.06, 0.04, 0.03):
        count = np.array([end_of(path, limit, items) for path in paths])
        ends = [score_after(x, n, items) for x, n in zip(paths, count, strict=True)]
        numbers = np.array([(x.score, x.lower, x.upper, x.predicted) for x in ends]).T
        square = np.mean((numbers[0] - true) ** 2)
        # m random items have the error s^2 (1 / m - 1 / J): solved for m.
        spread = np.mean(true * (1 - true)) * items / (items - 1)
        same = 1 / (square / spread + 1 / items)
        few = max(round(same), 2)
        random = [x[rng.permutation(items)[:few]].mean() for x in np.asarray(tested)]
        rows.append(
            {
                "case": "gsm8k",
                "score_error": limit,
                "items": count.mean(),
                "of": items,
                "rmse": np.sqrt(square),
                "coverage": np.mean((numbers[1] <= true) & (true <= numbers[2])),
                "random items": same,
                "tau": order_of(numbers[0], true),
                "tau of random": order_of(np.array(random), true),
                "tau predicted": order_of(numbers[3], true),
            }
        )
    return rows


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    """Runs the cases and prints a row for each estimate."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="the sizes of the README")
    parser.add_argument("--case", action="append", choices=[*CASES, "gsm8k"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--new", type=int, help="number of new models")
    parser.add_argument("--items", type=int, help="number of items")
    parser.add_argument(
        "--samples", type=int, help="random samples of each new model's items"
    )
    parser.add_argument("--history", type=int, help="number of models of the history")
    parser.add_argument("--factors", type=int, nargs="+", help="numbers of factors")
    options = parser.parse_args(argv)
    options.new = options.new or (200 if options.full else 16)
    options.samples = options.samples or (100 if options.full else 2)
    if not SHARED.is_dir():
        print(f"skipped: {SHARED} is not there")
        return []
    rows = []
    for case in options.case or [*CASES, "gsm8k"]:
        if case == "gsm8k":
            part = stopping_case(options.full, options.seed, options.new)
        else:
            part = history_case(case, options)
        for row in part:
            print(
                ", ".join(
                    f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
                    for k, v in row.items()
                )
            )
        rows += part
    return rows


if __name__ == "__main__":
    main()
