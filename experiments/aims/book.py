"""Printouts of chapter 4 of AIMS on its own data: the printed programs and ours.

    python experiments/aims/book.py          # half a minute of processor time
    python experiments/aims/book.py --full   # the tables of the README

`estimates`: joint maximum likelihood, MAP and EM of the Rasch model (4.2, 4.4, 4.5).
`optimisers`: gradient descent, L-BFGS and Adam from random starts (exercise 2.9).
`tests`: adaptive and random tests to a reliability (4.7.3). The penalty of 4.6.2 is in
`generalise.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.special import expit

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    import sys

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.tabulate import aligned, write_csv
from irtjax.adaptive import ItemBank
from irtjax.estimators.driver import run_jit
from irtjax.models.catalogue import rasch
from irtjax.models.model import Population
from irtjax.models.priors import Normal
from irtjax.numerics.kernels import equal_nodes

#: Log-likelihoods (of MAP: with the priors, without constants) at which the printed
#: programs end, and standard deviations of theta and beta, recomputed by NumPy.
PRINTED = {
    "gradient ascent": (-2385.945, None, None),
    "L-BFGS": (-2385.046, 0.984, 1.597),
    "MAP": (-2451.313, 0.829, 1.450),
    "EM": (-2536.837, None, None),
}
#: Rates of the optimisers, in units of the curvature of each coordinate.
OPTIMISERS = {
    "L-BFGS": None,
    "Adam": optax.adam(0.1),
    "gradient descent": optax.sgd(0.5),
}
#: Mean numbers of items that the printed programs need, with chosen and random items.
PRINTED_ITEMS = {0.95: (30.0, 30.0), 0.8: (17.75, 24.99)}


def truth() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Abilities, difficulties and responses of the book's seed."""
    state = np.random.RandomState(42)
    theta, beta = state.normal(0, 1, 100), state.normal(0, 1.5, 50)
    return theta, beta, (state.random((100, 50)) < expit(theta[:, None] - beta)) * 1.0


def problem(model: Any) -> irtjax.Problem:
    """The Rasch model on the book's responses, with abilities of N(0, 1)."""
    table = irtjax.ResponseTable.from_arrays(truth()[2])
    data = table.responses(jnp.zeros(()).dtype).with_mask()
    free = irtjax.Problem.create(model, data).free
    unit = Population(jnp.zeros(()), jnp.ones(()))
    return irtjax.Problem(model, data, free, prior=unit)


def solved(chosen: irtjax.Problem, method: Any, start: Any = None) -> irtjax.Fit:
    """A fit, compiled."""
    start = irtjax.start_values(chosen.model, chosen.data) if start is None else start
    return run_jit(chosen, method, start, max_steps=20_000)


def joint_row(name: str, fit: irtjax.Fit, penalised: bool) -> dict[str, Any]:
    """What the book prints of joint estimates."""
    theta, beta, values = truth()
    ability, easy = np.asarray(fit.parameters.theta), fit.parameters.items.intercept
    difficulty = -np.asarray(easy)
    log_odds = ability[:, None] - difficulty
    objective = np.sum(values * log_odds - np.logaddexp(0, log_odds))
    if penalised:
        objective -= (np.sum(ability**2) + np.sum(difficulty**2) / 1.5**2) / 2
    printed = PRINTED[name]
    return {
        "method": name,
        "printed": f"{printed[0]:.3f}",
        "ours": f"{objective:.3f}",
        "sd theta printed": printed[1],
        "sd theta": float(ability.std()),
        "sd beta printed": printed[2],
        "sd beta": float(difficulty.std()),
        "r theta": float(np.corrcoef(theta, ability)[0, 1]),
        "r beta": float(np.corrcoef(beta, difficulty)[0, 1]),
    }


def estimates() -> list[dict[str, Any]]:
    """Log-likelihoods, standard deviations, and correlations with the truth."""
    plain = problem(rasch(None))
    rows = [
        joint_row(name, solved(plain, irtjax.Gradient(optimiser, penalty=0.0)), False)
        for name, optimiser in (
            ("gradient ascent", OPTIMISERS["gradient descent"]),
            ("L-BFGS", None),
        )
    ]
    prior = problem(rasch({"intercept": Normal(0.0, 1.5)}))
    rows.append(joint_row("MAP", solved(prior, irtjax.MM(tolerance=1e-7)), True))
    fit = solved(plain, irtjax.EM(jnp.asarray(equal_nodes(-6.0, 6.0, 121))))
    difficulty = -np.asarray(fit.parameters.items.intercept)
    row = {
        "method": "EM",
        "printed": f"{PRINTED['EM'][0]:.3f}",
        "ours": f"{float(jnp.sum(fit.log_lik)):.3f}",
        "sd theta": float(fit.parameters.population.sd),
        "sd beta": float(difficulty.std()),
        "r beta": float(np.corrcoef(truth()[1], difficulty)[0, 1]),
    }
    return [*rows, {name: row.get(name) for name in rows[0]}]


def optimisers(starts: int) -> list[dict[str, Any]]:
    """Steps and seconds until all gradients are below 1e-3 standard errors."""
    plain, rng = problem(rasch(None)), np.random.default_rng(0)
    first = irtjax.start_values(plain.model, plain.data)
    points = [
        first._replace(
            items=first.items._replace(intercept=jnp.asarray(rng.normal(size=50))),
            theta=jnp.asarray(rng.normal(size=100)),
        )
        for _ in range(starts)
    ]
    rows = []
    for name, optimiser in OPTIMISERS.items():
        method = irtjax.Gradient(optimiser, penalty=0.0)
        solved(plain, method, points[0])  # Compiles.
        begun = time.process_time()
        fits = [solved(plain, method, point) for point in points]
        seconds = (time.process_time() - begun) / starts
        steps = [int(fit.num_steps) for fit in fits]
        rows.append(
            {
                "optimiser": name,
                "starts": starts,
                "converged": sum(int(fit.status) == 0 for fit in fits),
                "fewest steps": min(steps),
                "mean": float(np.mean(steps)),
                "most": max(steps),
                "processor seconds": seconds,
            }
        )
    return rows


def tests(subjects: int) -> list[dict[str, Any]]:
    """Items until a reliability is reached, at most 30 of 50, by MAP."""
    model, beta = rasch(None), jnp.asarray(truth()[1])
    items = model.family.Items(jnp.ones(50), -beta, jnp.zeros(50), jnp.ones(50))
    bank = ItemBank.create(model, items, Population(jnp.zeros(()), jnp.ones(())))
    rows = []
    for reliability, printed in PRINTED_ITEMS.items():
        for select, count in zip(("information", "random"), printed, strict=True):
            result = irtjax.simulate_tests(
                bank,
                subjects,
                key=0,
                num_items=30,
                select=select,
                reliability=reliability,
                scoring="map",
            )
            rows.append(
                {
                    "reliability": reliability,
                    "items chosen by": select,
                    "items printed": count,
                    "items": float(result.num_given.mean()),
                    "items se": float(result.num_given.std() / subjects**0.5),
                    "rmse": float(result.rmse()[-1]),
                    "reached": float(1 - np.mean(result.standard_error[:, -1] ** 2)),
                }
            )
    return rows


def main(arguments: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Prints the tables, and writes them with `--out`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="more starts and subjects")
    parser.add_argument("--out", type=Path, help="folder for a CSV file of each table")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    tables = {
        "estimates": estimates(),
        "optimisers": optimisers(10 if options.full else 2),
        "tests": tests(2000 if options.full else 100),
    }
    for name, rows in tables.items():
        print(name, aligned(rows), sep="\n")
        write_csv(options.out, name, rows)
    return tables


if __name__ == "__main__":
    main()
