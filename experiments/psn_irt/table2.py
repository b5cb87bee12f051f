"""Prediction of held-out responses by every row of Tables 2 and 7 of the PSN-IRT paper.

    python experiments/psn_irt/table2.py --small      # simulated data, minutes
    python experiments/psn_irt/table2.py --out DIR    # the data beside the checkout
    python experiments/psn_irt/table2.py --rows neural --rows additive --seed 1
    python experiments/psn_irt/table2.py --rows ablation --embeddings TEXTS.npy

The README beside this file says what each row is.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.lego_irt.methods import (
    Fitted,
    area_under_curve,
    log_loss,
    mean_chances,
)
from experiments.lego_irt.tables import (
    masked,
    observed,
    psn_irt,
    simulated_groups,
    thinned,
)
from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint.gradient import Gradient
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import MultilevelProblem
from irtjax.estimators.neural.twin import Neural
from irtjax.estimators.neural.vibo import VIBO, predict
from irtjax.estimators.posterior.methods import NUTS
from irtjax.estimators.start import start_values
from irtjax.fitting.resolve import make_model
from irtjax.inference import score
from irtjax.likelihood.problem import Problem
from irtjax.models.model import Population
from irtjax.models.multilevel.specification import Hierarchical, MultiBenchmark
from irtjax.models.priors import LogitNormal
from irtjax.numerics.kernels import equal_nodes
from irtjax.subsets.errors import rank_correlation

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
#: Of the cells: trained on, for early stopping; the rest judges.
TRAINED, VALIDATED = 0.6, 0.2
#: Chances are kept this far from 0 and 1 when they are judged.
CLIP = 1e-6
MEASURES = ("ACC", "F1", "AUC", "log-loss")
FAMILIES = ("1pl", "2pl", "3pl", "4pl")
GROUPS = ("additive", "mle", "vi", "neural", "ablation", "principled", "mcmc")


class Split(NamedTuple):
    """A table with its cells in three parts, each `[subjects, items]`.

    And a random half of the items, for the agreement of ranks.
    """

    table: irtjax.ResponseTable
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    half: np.ndarray

    def sides(self) -> list[np.ndarray]:
        """Cells to judge by, of one half of the items and of the other."""
        return [self.test & side for side in (self.half, ~self.half)]


#: Of logits of asymptotes in principled fits, where they are not learned: a dozen
#: answers to an item hardly tell a low wide distribution from a narrow higher one.
ASYMPTOTES = {
    "lower_asymptote": LogitNormal(-3.0, 1.0),
    "upper_asymptote": LogitNormal(3.0, 1.0),
}


class Effort(NamedTuple):
    """How much work rows are given.

    Attributes:
        epochs: Of the networks at most.
        vi_epochs: Of variational inference.
        mle_steps: Of joint maximum likelihood.
        learned_items: Items of each benchmark, at most, that abilities and priors are
            learned from by principled fits with asymptotes.
        mcmc_items: Items of each benchmark that MCMC is given.
        nuts: Its settings.
        classical: Families of maximum likelihood, variational inference and MCMC.
        families: Of the principled fits.
        asymptotes: Priors of asymptotes in them; those not named are learned.
        dtype: Floating type of the principled fits.
    """

    epochs: int = 50
    vi_epochs: int = 100
    mle_steps: int = 200
    learned_items: int = 100
    mcmc_items: int = 5
    nuts: NUTS = NUTS(
        num_warmup=1000, num_draws=1000, num_chains=4, target_acceptance=0.99
    )
    classical: tuple[str, ...] = FAMILIES
    families: tuple[str, ...] = ("2pl", "3pl", "4pl")
    asymptotes: dict[str, LogitNormal] = {}
    dtype: Any = jnp.float32


#: Items of each benchmark that fits with asymptotes learn from on the way to more: with
#: tens of thousands a step takes long, and most steps look for the neighbourhood.
STAGES = (100, 1000)
SMALL = Effort(
    3,
    3,
    5,
    10,
    5,
    NUTS(num_warmup=30, num_draws=39, num_chains=1),
    ("4pl",),
    ("2pl", "3pl"),
)


class Made(NamedTuple):
    """What a row comes to.

    Attributes:
        chance: `[subjects, items]`; NaN where a row has none.
        said: What became of the fit.
        tau: Kendall's tau of the subjects' scores on either half of the items, by the
            cells to judge, items as estimated; NaN where there are too few of these.
    """

    chance: np.ndarray
    said: str
    tau: float = float("nan")


#: A row: its name, and a function that makes it.
Row = tuple[str, Callable[[], Made]]
#: Nodes that scores are looked for between, in standard deviations of abilities.
NODES = equal_nodes(-6, 6, 241)


def split(table: irtjax.ResponseTable, seed: int) -> Split:
    """A seeded 60/20/20 split of the observed cells."""
    there = observed(table)
    place = np.random.default_rng(seed).random(there.shape)
    return Split(
        table,
        there & (place < TRAINED),
        there & (place >= TRAINED) & (place < TRAINED + VALIDATED),
        there & (place >= TRAINED + VALIDATED),
        np.random.default_rng([seed, 1]).random(table.num_items) < 0.5,
    )


def measures(values: np.ndarray, chance: np.ndarray, cells: np.ndarray) -> dict:
    """Accuracy and F1 at 1/2, area under the curve, and log-loss in nats."""
    # A chance of exactly 0 or 1 that proves wrong has no finite log-loss.
    right, p = values[cells], np.clip(chance[cells], CLIP, 1 - CLIP)
    called = p > 0.5
    hits = np.sum(called & (right == 1))
    return {
        "ACC": float(np.mean(called == (right == 1))),
        "F1": float(2 * hits / max(called.sum() + right.sum(), 1)),
        "AUC": area_under_curve(right, p),
        "log-loss": log_loss(right, p),
    }


def chances(parameters: Any) -> np.ndarray:
    """P of every cell at estimated items and abilities."""
    items = jax.tree.map(np.asarray, parameters.items)
    theta = np.asarray(parameters.theta)[:, None]
    rise = special.expit(items.discrimination * theta + items.intercept)
    return items.lower_asymptote + (items.upper_asymptote - items.lower_asymptote) * (
        rise
    )


def halves_agree(parts: Split, model: Any, parameters: Any) -> float:
    """Kendall's tau of modes of abilities on either half, given estimated items.

    The prior is normal, with the mean and the spread of the abilities as estimated.
    """
    items = jax.tree.map(jnp.asarray, parameters.items)
    theta = jnp.asarray(parameters.theta)
    population = Population(jnp.mean(theta), jnp.std(theta))
    scores = []
    for seen in parts.sides():
        values = np.where(seen, parts.table.values, 0).astype(np.int8)
        data = Responses(jnp.asarray(values), jnp.asarray(seen))
        found = score(model, items, population, data, scoring="map", nodes=NODES)
        scores.append(np.asarray(found.ability))
    return agreement(scores)


def agreement(scores: list[np.ndarray]) -> float:
    """Kendall's tau of two scores; NaN where one does not vary."""
    found = rank_correlation(*scores)
    return float("nan") if found is None else found


def pointwise(
    parts: Split, family: str, method: Any, steps: int, **options: Any
) -> tuple[Made, Any, Problem]:
    """A fit by the driver, and what it was made from."""
    cells = parts.train
    if isinstance(method, Neural):
        cells = cells | parts.validation  # The method knows which ones to hold out.
    table = masked(parts.table, cells)
    positive = family != "1pl"
    priors = options.get("priors", "weak")
    model = make_model(family, table, priors, positive=positive)
    data = table.responses(jnp.float32)
    problem = Problem.create(model, data)
    start = start_values(model, data, dtype=jnp.float32)
    fit = run_jit(problem, method, start, key=jax.random.key(0), max_steps=steps)
    said = f"{Status(int(fit.status)).name} {int(fit.num_steps)}"
    tau = halves_agree(parts, model, fit.parameters)
    return Made(chances(fit.parameters), said, tau), fit, problem


def trained(parts: Split, effort: Effort, family: str, **options: Any) -> Callable:
    """A row by a network."""
    method = Neural(
        validation=jnp.asarray(parts.validation),
        epoch_cells=int(parts.train.sum()),
        epochs=effort.epochs,
        **options,
    )
    return lambda: pointwise(parts, family, method, effort.epochs)[0]


def neural_rows(parts: Split, effort: Effort) -> Iterator[Row]:
    """Deep-IRT and the twins."""
    yield "Deep-IRT", trained(parts, effort, "1pl", head="deep")
    for family in FAMILIES:
        yield f"twin {family}", trained(parts, effort, family)


def ablation_rows(
    parts: Split, effort: Effort, embeddings: np.ndarray | None
) -> Iterator[Row]:
    """Table 3: the graph-aggregating encoder, and features in place of identifiers.

    And three layers, stopping by F1, next to no decay: as the paper has it, whose decay
    of 1e-4 is that of Adam, added to gradients.

    Features are the benchmark of an item, and embeddings `[items, features]` of its
    text where they are given.
    """
    # Steps of the graph cost a pass over the data: few and large batches.
    graph = {"encoder": "graph", "batch_size": 8192}
    yield "twin 4pl, graph", trained(parts, effort, "4pl", **graph)
    deep = {"hidden": (64, 64), "weight_decay": 1e-4, "criterion": "f1"}
    yield "twin 4pl, three layers", trained(parts, effort, "4pl", **deep)
    names = np.asarray(parts.table.benchmarks)
    kinds = {"benchmark": (names[:, None] == np.unique(names)).astype(np.float32)}
    if embeddings is not None:
        kinds["embeddings"] = np.asarray(embeddings, np.float32)
    for kind, features in kinds.items():
        made = trained(parts, effort, "4pl", item_features=jnp.asarray(features))
        yield f"twin 4pl, items by {kind}", made


def read_embeddings(path: Path, items: int) -> np.ndarray:
    """A `.npy` file of numbers `[items, features]`, in the order of the table."""
    found = np.load(path, allow_pickle=False)
    if found.ndim != 2 or len(found) != items or not np.isfinite(found).all():
        raise SystemExit(
            f"{path}: embeddings have shape {found.shape}; give finite numbers, one row"
            f" for each of the {items:,} items"
        )
    return found


def vi_rows(parts: Split, effort: Effort) -> Iterator[Row]:
    """Mean-field and amortised, at the means and averaged over the approximation."""
    both = (("VI", False), ("VIBO", True))
    for (name, amortised), family in itertools.product(both, effort.classical):
        method = VIBO(amortised=amortised, epochs=effort.vi_epochs)
        found: dict[str, Any] = {}

        def at_means(method=method, family=family, found=found):
            made, fit, problem = pointwise(parts, family, method, effort.vi_epochs)
            found["fit"] = (problem, fit.state, made)
            return made

        def averaged(found=found):
            problem, state, made = found["fit"]
            draws = jax.jit(predict)(problem, state, key=jax.random.key(1))
            return made._replace(chance=np.asarray(draws))

        yield f"{name} {family}", at_means
        yield f"{name} {family}, averaged", averaged


def principled_rows(parts: Split, effort: Effort) -> Iterator[Row]:
    """Items integrated out, priors learned by benchmark; one ability, then several.

    Where there are asymptotes, abilities and priors are learned from some items of each
    benchmark, and all are then integrated given these.
    """
    whole = masked(parts.table, parts.train)

    def problem_of(table: irtjax.ResponseTable, family: str, grouped: bool):
        model = make_model(family, table, "weak", positive=True)
        named = {p.name for p in model.family.parameters} & set(effort.asymptotes)
        priors = {name: effort.asymptotes[name] for name in sorted(named)}
        kind = (MultiBenchmark if grouped else Hierarchical)(priors=priors)
        layout = kind.lay_out(table, model.family, effort.dtype)
        responses = table.responses(effort.dtype)
        return MultilevelProblem.create(layout.model, responses), layout

    def one(family: str, grouped: bool):
        some = family in ("3pl", "4pl")
        # Spreads of asymptotes that are learned by few nodes are others: see README.
        method = Laplace(8 if some else 5, 0.05)
        last = effort.learned_items if some else whole.num_items
        sizes = [size for size in STAGES if some and size < last]
        components = None
        for size in (*sizes, last):
            learned = thinned(whole, size, 0)
            problem, layout = problem_of(learned, family, grouped)
            fit = run_jit(problem, method, components, max_steps=300)
            components = fit.state.components
        status, state = Status(int(fit.status)), fit.state
        if learned.num_items < whole.num_items:
            problem, layout = problem_of(whole, family, grouped)
            known, method = state, Laplace(4, 0.05)
            # Modes of all items to start from; the rest is as learned.
            state = jax.jit(method.init)(problem, known.components, None)._replace(
                ability=known.ability, ability_covariance=known.ability_covariance
            )
        fitted = Fitted(problem, layout, method, state, status)
        said = f"{status.name} {int(fit.num_steps)}"
        if some:
            said += f", learned from {learned.num_items:,} items"
        scores = [fitted.score(parts.table.values, seen) for seen in parts.sides()]
        tau = agreement(scores)
        return Made(fitted.predictions(num_draws=10), said, tau)

    for family in effort.families:
        for name, grouped in (("hierarchical", False), ("multibenchmark", True)):
            yield f"{name} {family}", lambda f=family, g=grouped: one(f, g)


def mcmc_rows(parts: Split, effort: Effort, seed: int) -> Iterator[Row]:
    """NUTS on some items of each benchmark; other cells of its chances are NaN."""

    def one(family: str):
        some = thinned(parts.table, effort.mcmc_items, seed)
        place = {name: k for k, name in enumerate(parts.table.items.tolist())}
        chosen = np.array([place[name] for name in some.items.tolist()])
        table = masked(some, parts.train[:, chosen])
        fit = irtjax.fit(
            table,
            # The 1PL with its unit in the items, which is how posteriors have it.
            "rasch" if family == "1pl" else family,
            effort.nuts,
            positive=family != "1pl",
            key=jax.random.key(seed),
        )
        assert fit.structure is not None and fit.structure.draws is not None
        values = fit.structure.draws.values
        theta = np.asarray(values["ability"])[..., 0]
        rows = np.asarray(values["coordinates"])
        theta = theta.reshape(-1, theta.shape[-1])
        rows = rows.reshape(-1, *rows.shape[-2:])
        total = np.zeros((theta.shape[1], rows.shape[1]))
        for ability, coordinates in zip(theta, rows, strict=True):
            items = fit.model.constrain(jnp.asarray(coordinates))
            total += chances(_Point(items, ability))
        chance = np.full(parts.table.values.shape, np.nan)
        chance[:, chosen] = total / len(theta)
        return Made(chance, f"{fit.status.name}, {len(chosen)} items")

    for family in effort.classical:
        yield f"MCMC {family}", lambda f=family: one(f)


class _Point(NamedTuple):
    items: Any
    theta: np.ndarray


def plan(
    parts: Split, effort: Effort, seed: int, embeddings: np.ndarray | None = None
) -> dict[str, Iterator[Row]]:
    """Rows by group."""

    def additive():
        values = parts.table.values
        means = [
            np.where(seen, values, 0).sum(1) / np.maximum(seen.sum(1), 1)
            for seen in parts.sides()
        ]
        chance = mean_chances(values, parts.train)["additive"]
        return Made(chance, "closed form", agreement(means))

    def mle(family: str):
        method = Gradient(penalty=0.0)
        return pointwise(parts, family, method, effort.mle_steps, priors=None)[0]

    return {
        "additive": iter([("additive", additive)]),
        "mle": iter([(f"MLE {f}", lambda f=f: mle(f)) for f in effort.classical]),
        "vi": vi_rows(parts, effort),
        "neural": neural_rows(parts, effort),
        "ablation": ablation_rows(parts, effort, embeddings),
        "principled": principled_rows(parts, effort),
        "mcmc": mcmc_rows(parts, effort, seed),
    }


def table_two(
    parts: Split,
    effort: Effort,
    seed: int,
    groups: tuple[str, ...] = GROUPS,
    embeddings: np.ndarray | None = None,
) -> list[dict]:
    """All rows with their measures; after MCMC's those of the others on its items."""
    rows, kept = [], {}
    for group, members in plan(parts, effort, seed, embeddings).items():
        if group not in groups:
            continue
        for name, predict_cells in members:
            began = time.perf_counter()
            chance, said, tau = predict_cells()
            seconds = time.perf_counter() - began
            cells = parts.test & np.isfinite(chance)
            found = measures(parts.table.values, chance, cells) | {"tau": tau}
            rows.append({"row": name, **found, "seconds": seconds, "end": said})
            show(rows[-1])
            if group != "mcmc":
                kept[name] = chance
        if group != "mcmc":
            continue
        # All rows by MCMC are of the same items, and so of the same cells.
        for other, theirs in kept.items():
            found = measures(parts.table.values, theirs, cells) | {"tau": float("nan")}
            row = {"row": f"  {other}, same items", **found, "seconds": 0.0}
            rows.append(row | {"end": ""})
            show(rows[-1])
    return rows


def show(row: dict) -> None:
    """Prints one row."""
    numbers = "  ".join(f"{row[k]:.4f}" for k in (*MEASURES, "tau"))
    print(
        f"{row['row']:<34}{numbers}  {row['seconds']:6.1f} s  {row['end']}", flush=True
    )


def main(argv: list[str] | None = None) -> list[dict]:
    """Runs the rows and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="simulated data")
    parser.add_argument("--data", type=Path, default=DATA, help="the shared data")
    parser.add_argument("--out", type=Path, help="folder for table2.csv")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", action="append", choices=GROUPS, help="some groups")
    parser.add_argument(
        "--family",
        action="append",
        choices=FAMILIES,
        help="some families of all but the networks",
    )
    parser.add_argument(
        "--embeddings", type=Path, help=".npy of the items' texts, a row for each"
    )
    parser.add_argument(
        "--given-asymptotes", action="store_true", help="in principled fits"
    )
    parser.add_argument(
        "--double", action="store_true", help="principled fits in double precision"
    )
    parser.add_argument(
        "--learn-from",
        type=int,
        metavar="N",
        help="items of each benchmark that principled fits with asymptotes learn from",
    )
    options = parser.parse_args(argv)
    if options.small:
        table = simulated_groups(20, 15, 2, scores=False, seed=options.seed)
    elif (options.data / "psn_irt").is_dir():
        table = psn_irt(options.data)
    else:
        raise SystemExit(f"no psn_irt in {options.data}: name the folder with --data")
    parts = split(table, options.seed)
    print(
        f"{table.num_subjects} x {table.num_items:,}; cells: {parts.train.sum():,} to"
        f" train, {parts.validation.sum():,} to stop, {parts.test.sum():,} to judge"
    )
    print(f"{'':<34}ACC     F1      AUC     log-loss  tau")
    effort = SMALL if options.small else Effort()
    if options.learn_from is not None:
        effort = effort._replace(learned_items=options.learn_from)
    if options.family:
        effort = effort._replace(
            classical=tuple(options.family), families=tuple(options.family)
        )
    if options.double:
        jax.config.update("jax_enable_x64", True)
        effort = effort._replace(dtype=jnp.float64)
    if options.given_asymptotes:
        effort = effort._replace(asymptotes=ASYMPTOTES)
    embeddings = None
    if options.embeddings is not None:
        embeddings = read_embeddings(options.embeddings, table.num_items)
    chosen = tuple(options.rows or GROUPS)
    rows = table_two(parts, effort, options.seed, chosen, embeddings)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        with open(options.out / "table2.csv", "w", newline="", encoding="utf-8") as to:
            writer = csv.DictWriter(to, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return rows


if __name__ == "__main__":
    main()
