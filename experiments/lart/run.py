"""What response lengths add: LaRT against probit IRT on simulated data.

    python experiments/lart/run.py                   # small: a minute
    python experiments/lart/run.py --full --out DIR  # the paper's design

The simulation study of the LaRT paper (section 5): 50 items, 100, 200 and 500 subjects,
correlation -0.8, 200 replications, a ~ U(0.5, 1), d ~ N(0, 0.5^2), omega ~ N(0, 1),
phi ~ U(0.5, 1.5), lambda ~ U(0.5, 2). All replications of a size run in one compiled
program. The README beside this file says what is measured and how.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from irtjax._types import Status
from irtjax.calibration.parts.lengths import ability_columns, correlation_interval
from irtjax.estimators.driver import run
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.start import start_values
from irtjax.inference import (
    evidence_moves,
    item_covariance,
    length_covariance,
    score_on_nodes,
    speed_error,
)
from irtjax.likelihood.lengths import with_lengths
from irtjax.likelihood.problem import Problem
from irtjax.likelihood.quadrature import test_information
from irtjax.models.catalogue import latency_response, probit_two_parameter
from irtjax.models.lengths import LengthItems, LengthParameters
from irtjax.models.simulate import (
    simulate,
    simulate_abilities,
    simulate_items,
    simulate_log_lengths,
)
from irtjax.numerics.kernels import after, equal_nodes

RHO = -0.8
Z = 1.959963984540054
BATCH = 8
#: Parameters of the lengths of an item: phi, omega and lambda.
LENGTHS = ("speed_discrimination", "speed_intercept", "residual_variance")


class Case(NamedTuple):
    """One size of the study."""

    subjects: int
    items: int
    replications: int


FULL = tuple(Case(subjects, 50, 200) for subjects in (100, 200, 500))
SMALL = (Case(100, 12, 8),)


class Outcome(NamedTuple):
    """What one model made of one replication.

    Attributes:
        converged: Whether the fit did.
        theta: Mean squared error of ability, on the scale of the population.
        discrimination: Mean squared error.
        intercept: Mean squared error.
        covered: Share of ability intervals that cover the truth.
        covered_speed: Share of speed intervals that do; NaN without lengths.
        covered_given_speed: As of ability, with the precision of the paper's printed
            equation (10), 1 / (1 - rho^2) + information.
        lengths: Mean squared errors of phi, omega and lambda; NaN without lengths.
        correlation: Estimate of rho; NaN without lengths.
        correlation_error: Its standard error.
    """

    converged: jax.Array
    theta: jax.Array
    discrimination: jax.Array
    intercept: jax.Array
    covered: jax.Array
    covered_speed: jax.Array
    covered_given_speed: jax.Array
    lengths: jax.Array
    correlation: jax.Array
    correlation_error: jax.Array


def draw(case: Case, key):
    """Data of one replication with its truth: items, abilities, speeds and lengths."""
    keys = jax.random.split(key, 7)
    items = simulate_items(latency_response(), case.items, keys[0])
    theta = simulate_abilities(case.subjects, keys[1])
    lengths = LengthItems(
        jax.random.normal(keys[2], (case.items,)),
        jax.random.uniform(keys[3], (case.items,), minval=0.5, maxval=1.5),
        jax.random.uniform(keys[4], (case.items,), minval=0.5, maxval=2.0),
    )
    parameters = LengthParameters(lengths, jnp.asarray(RHO))
    log_length, tau = simulate_log_lengths(parameters, theta, keys[5])
    data = simulate(latency_response(), items, theta, keys[6])
    return dataclasses.replace(data, log_length=log_length), items, theta, tau, lengths


def outcome(model, data, items, theta, tau, true_lengths, nodes, previous) -> Outcome:
    """Fits one model and compares it with the truth, after the previous one."""
    problem = Problem.create(model, data)
    fit = run(problem, EM(nodes), start_values(model, data), max_steps=200)
    found, population, _, lengths = fit.parameters
    coordinates = model.unconstrain(found)
    with_evidence, part = with_lengths(problem, lengths)
    if previous is not None:
        coordinates = after(coordinates, previous.covered)
    nan = jnp.full((), jnp.nan)
    rho, rho_error, moves = nan, nan, None
    if lengths is None:
        covariance = item_covariance(problem, coordinates, population, nodes)
    else:
        every = length_covariance(problem, coordinates, lengths, nodes)
        covariance, rho = every.of_items(), lengths.correlation
        rho_error = jnp.sqrt(every.atanh_correlation) * (1 - rho**2)
        moves = evidence_moves(problem, lengths, every.shared_lengths)
    bounds = jnp.asarray([-6.0, 6.0])
    scores = score_on_nodes(
        model,
        found,
        population,
        with_evidence.data,
        nodes,
        bounds,
        covariance,
        moves,
        scoring="eap",
    )
    gap, covered_speed = scores.ability - theta, nan
    if part is not None:
        columns = ability_columns(
            part,
            scores.ability,
            scores.standard_error,
            scores.shared,
            speed_error(part, data, scores.ability, every),
        )
        miss = jnp.abs(columns["speed"] - tau)
        covered_speed = jnp.mean(miss <= Z * columns["speed_se"])
    information = test_information(model, found, scores.ability)
    of_lengths = jnp.full((3,), jnp.nan)
    if lengths is not None:
        pairs = [
            (getattr(lengths.items, name), getattr(true_lengths, name))
            for name in LENGTHS
        ]
        of_lengths = jnp.stack([jnp.mean((x - y) ** 2) for x, y in pairs])
    known = jnp.where(jnp.isnan(rho), 0.0, rho)
    given_speed = 1 / jnp.sqrt(1 / (1 - known**2) + information)
    mean_square = lambda x: jnp.mean(x**2)
    return Outcome(
        fit.status == Status.CONVERGED,
        mean_square(gap),
        mean_square(found.discrimination - items.discrimination),
        mean_square(found.intercept - items.intercept),
        jnp.mean(jnp.abs(gap) <= Z * scores.standard_error),
        covered_speed,
        jnp.mean(jnp.abs(gap) <= Z * given_speed),
        of_lengths,
        rho,
        rho_error,
    )


@eqx.filter_jit
def replicate_all(case: Case, key) -> dict[str, Outcome]:
    """Every replication of a case, for both models."""
    nodes = jnp.asarray(equal_nodes(-6.0, 6.0, 81))
    models = {"lart": latency_response(), "probit2pl": probit_two_parameter()}

    def one(replication_key):
        data, items, theta, tau, lengths = draw(case, replication_key)
        fit = partial(
            outcome,
            data=data,
            items=items,
            theta=theta,
            tau=tau,
            true_lengths=lengths,
            nodes=nodes,
        )
        found: dict[str, Outcome] = {}
        for name, model in models.items():
            previous = next(reversed(found.values()), None)
            found[name] = fit(model, previous=previous)
        return found

    keys = jax.random.split(key, case.replications)
    return lax.map(one, keys, batch_size=min(BATCH, case.replications))


def rows_of(case: Case, results: dict[str, Outcome], seconds: float) -> list[dict]:
    """One row per model: root mean squared errors, and coverage with its error."""
    rows = []
    for name, found in results.items():
        ok = np.asarray(found.converged)
        mean = lambda x, ok=ok: float(np.asarray(x)[ok].mean())
        rho, error = (
            np.asarray(x)[ok] for x in (found.correlation, found.correlation_error)
        )
        lower, upper = correlation_interval(rho, error, 0.95)
        hit = (lower <= RHO) & (RHO <= upper)
        spread = np.asarray(found.covered)[ok].std(ddof=1) / np.sqrt(ok.sum())
        rows.append(
            {
                "subjects": case.subjects,
                "items": case.items,
                "model": name,
                "converged": int(ok.sum()),
                "rmse_theta": mean(found.theta) ** 0.5,
                "rmse_discrimination": mean(found.discrimination) ** 0.5,
                "rmse_intercept": mean(found.intercept) ** 0.5,
                "coverage_theta": mean(found.covered),
                "coverage_theta_se": float(spread),
                "coverage_speed": mean(found.covered_speed),
                "coverage_theta_given_speed": mean(found.covered_given_speed),
                "rmse_rho": float(np.sqrt(np.mean((rho - RHO) ** 2))),
                "coverage_rho": float(hit.mean()) if name == "lart" else float("nan"),
                "seconds": seconds,
            }
        )
    return rows


def sentence(row: dict) -> str:
    """A row as one line."""
    rmse = " ".join(
        f"{label} {row[f'rmse_{name}']:.3f}"
        for label, name in (
            ("theta", "theta"),
            ("a", "discrimination"),
            ("d", "intercept"),
            ("rho", "rho"),
        )
    )
    return (
        f"{row['subjects']:>4} x {row['items']:<3} {row['model']:<10} RMSE {rmse}"
        f"  coverage theta {row['coverage_theta']:.3f}"
        f" ({row['coverage_theta_se']:.3f}),"
        f" given speed {row['coverage_theta_given_speed']:.3f},"
        f" speed {row['coverage_speed']:.3f}, rho {row['coverage_rho']:.3f}"
        f"  {row['converged']} converged, {row['seconds']:.0f} s"
    )


def draw_figure(rows: list[dict], path: Path) -> None:
    """Errors and coverage against the number of subjects, one line per model."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.2))
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 5)
    wanted = ("rmse_theta", "rmse_discrimination", "rmse_intercept", "coverage_theta")
    for name, axes in zip((*wanted, "coverage_rho"), panels, strict=True):
        for model in dict.fromkeys(row["model"] for row in rows):
            mine = [row for row in rows if row["model"] == model]
            x, y = ([row[k] for row in mine] for k in ("subjects", name))
            axes.plot(x, y, "o-", label=model, markersize=4)
        if name.startswith("coverage"):
            axes.axhspan(0.93, 0.97, color="0.93", zorder=0)
            axes.axhline(0.95, color="0.6", linewidth=0.8)
        axes.set_xlabel("subjects")
        axes.set_title(name.replace("_", " of ", 1), fontsize=9, loc="left")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def draw_errors(found: dict[int, Outcome], path: Path) -> None:
    """Figure 2 of the paper: errors of the lengths' parameters over replications."""
    from irtjax.plots import save_figure
    from irtjax.plots.style import new_figure, title

    figure, panels = new_figure(13, 3.2, 4)
    sizes = list(found)
    for k, axes in enumerate(panels):
        values = []
        for outcomes in found.values():
            ok = np.asarray(outcomes.converged)
            if k < 3:
                values.append(np.sqrt(np.asarray(outcomes.lengths)[ok, k]))
            else:
                values.append(np.abs(np.asarray(outcomes.correlation)[ok] - RHO))
        axes.boxplot(values, widths=0.6)
        axes.set_xticks(range(1, len(sizes) + 1), [str(size) for size in sizes])
        axes.set_xlabel("subjects")
        axes.set_ylim(bottom=0)
        title(axes, ("RMSE of φ", "RMSE of ω", "RMSE of λ", "|error of ρ|")[k])
    save_figure(figure, path, dpi=130)


def main(argv: list[str] | None = None) -> list[dict]:
    """Runs the study, prints its table and returns the rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="a minute (default)")
    size.add_argument("--full", action="store_true", help="the paper's design")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replications", type=int, help="other than the design's 200")
    parser.add_argument("--out", type=Path, help="folder for simulation.csv and .png")
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    rows: list[dict] = []
    found: dict[int, Outcome] = {}
    for case in FULL if options.full else SMALL:
        if options.replications:
            case = case._replace(replications=options.replications)
        # Sizes are independent of each other.
        key = jax.random.fold_in(jax.random.key(options.seed), case.subjects)
        began = time.perf_counter()
        results = jax.block_until_ready(replicate_all(case, key))
        rows += rows_of(case, results, time.perf_counter() - began)
        found[case.subjects] = results["lart"]
        for row in rows[-2:]:
            print(sentence(row), flush=True)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        place = options.out / "simulation.csv"
        temporary = place.with_suffix(".tmp")
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        temporary.replace(place)
        draw_figure(rows, options.out / "simulation.png")
        draw_errors(found, options.out / "simulation_lengths.png")
    return rows


if __name__ == "__main__":
    main()
