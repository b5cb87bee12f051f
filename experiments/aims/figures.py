"""Figures of AIMS, with the printed programs' curves where they differ.

    python experiments/aims/figures.py --out FIGURES               # a minute
    python experiments/aims/figures.py --out FIGURES --full        # as in the README
    python experiments/aims/figures.py --out FIGURES --only posterior

`matrix` (2.1, 4.2.1), `curves` (2.3.1), `gradient` (4.2.3), `em` (4.4.2), `shrinkage`
(4.5.3), `posterior` (4.5.4), `penalty` (4.6.2), `information` (4.7.2), `tests` (4.7.3),
`semantic` (6.1, 6.5), `filtering` (6.6). The printed programs are recomputed with NumPy
and scipy. Each part returns its figure and the rows that the book prints.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    import sys

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.aims import prediction_figures
from experiments.aims.book import PRINTED, problem, solved, truth
from experiments.tabulate import aligned, write_csv
from irtjax.adaptive import ItemBank
from irtjax.estimators.posterior import summary
from irtjax.estimators.posterior.sample import sample
from irtjax.models.catalogue import rasch
from irtjax.models.model import Population
from irtjax.models.priors import Normal
from irtjax.numerics.kernels import equal_nodes
from irtjax.plots import plot_response_matrix, plot_trace, save_figure, style

#: Standard deviation of the difficulties' prior (4.5.3).
SD = 1.5
#: Ability of the information that adds up, and number of items (4.7.2).
ABILITY, ITEMS = 0.5, 20

Part = tuple[Any, list[dict[str, Any]]]


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Of estimates with the truth."""
    return float(np.corrcoef(first, second)[0, 1])


def joint_estimates(penalised: bool) -> tuple[np.ndarray, np.ndarray]:
    """Abilities and difficulties by maximum likelihood, or with the book's priors."""
    if penalised:
        chosen = problem(rasch({"intercept": Normal(0.0, SD)}))
        fit = solved(chosen, irtjax.MM(tolerance=1e-7))
    else:
        fit = solved(problem(rasch(None)), irtjax.Gradient(None, penalty=0.0))
    parameters = fit.parameters
    return np.asarray(parameters.theta), -np.asarray(parameters.items.intercept)


def matrix(full: bool) -> Part:
    """The responses sorted, and what the book prints of them."""
    del full
    values = truth()[2]
    row = {"shape": "100 x 50", "accuracy": float(values.mean())}
    for name, axis in (("subjects", 1), ("items", 0)):
        mean = values.mean(axis=axis)
        row |= {f"{name} from": float(mean.min()), f"{name} to": float(mean.max())}
    return plot_response_matrix(irtjax.ResponseTable.from_arrays(values)), [row]


def curves(full: bool) -> Part:
    """Response functions of Rasch's model, the 2PL, and 1PL to 3PL."""
    del full
    theta = np.linspace(-4, 4, 201)
    figure, panels = style.new_figure(9.0, 2.8, 3, grid="y", sharey=True)
    chances = lambda a, b, c: c + (1 - c) * expit(a * (theta - b))
    cases = (
        ("Rasch", [(f"b = {b}", 1, b, 0) for b in (-2, -1, 0, 1, 2)]),
        ("2PL", [(f"a = {a}", a, 0, 0) for a in (0.5, 1, 1.5, 2)]),
        ("1PL to 3PL", [("1PL", 1, 0, 0), ("2PL", 1.5, 0, 0), ("3PL", 1.5, 0, 0.25)]),
    )
    for axes, (title, lines) in zip(panels, cases, strict=True):
        for k, (label, *item) in enumerate(lines):
            color = style.PALETTE[k]
            axes.plot(theta, chances(*item), color=color, lw=1.5, label=label)
        axes.legend(fontsize=7, frameon=False)
        axes.set_xlabel("ability")
        style.title(axes, title)
    panels[0].set_ylabel("chance of a right response")
    return figure, []


def printed_gradient() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The book's ascent: abilities, difficulties, log-likelihoods after each step."""
    values = truth()[2]
    theta, beta, history = np.zeros(100), np.zeros(50), []
    for _ in range(500):
        rest = values - expit(theta[:, None] - beta)
        theta, beta = theta + 0.01 * rest.sum(axis=1), beta - 0.01 * rest.sum(axis=0)
        theta, beta = theta - theta.mean(), beta - beta.mean()
        log_odds = theta[:, None] - beta
        history.append(np.sum(values * log_odds - np.logaddexp(0, log_odds)))
    return theta, beta, np.array(history)


def gradient(full: bool) -> Part:
    """Convergence, and estimates against the truth."""
    del full
    theta, beta, values = truth()
    ours, printed = joint_estimates(False), printed_gradient()
    log_odds = ours[0][:, None] - ours[1]
    best = float(np.sum(values * log_odds - np.logaddexp(0, log_odds)))
    figure, panels = style.new_figure(9.5, 3.0, 3, grid="y")
    panels[0].plot(printed[2], color=style.PALETTE[1], label="printed program")
    panels[0].axhline(best, color=style.PALETTE[0], label="maximum")
    panels[0].set_ylim(best - 60, best + 5)
    panels[0].set_xlabel("step")
    panels[0].legend(fontsize=7, frameon=False)
    style.title(panels[0], "Log-likelihood")
    parts = zip(
        ("abilities", "difficulties"), (theta, beta), ours, printed, strict=False
    )
    for axes, (name, true, own, other) in zip(panels[1:], parts, strict=True):
        _recovery(axes, true, {"printed program": other, "ours": own})
        style.title(axes, f"Recovery of {name}")
    rows = [
        {
            "program": name,
            "log-likelihood": f"{value:,.3f}",
            "r abilities": correlation(theta, estimates[0]),
            "r difficulties": correlation(beta, estimates[1]),
        }
        for name, estimates, value in (
            ("printed", printed, float(printed[2][-1])),
            ("ours", ours, best),
        )
    ]
    return figure, rows


def _recovery(axes: Any, true: np.ndarray, estimates: dict[str, np.ndarray]) -> None:
    """Estimates against true values, each around its mean."""
    true = true - true.mean()
    for k, (name, values) in enumerate(estimates.items()):
        size = 16 - 8 * k
        axes.scatter(
            true, values - values.mean(), size, color=style.PALETTE[1 - k], label=name
        )
    ends = np.array([true.min(), true.max()])
    axes.plot(ends, ends, color=style.GREY, lw=0.8)
    axes.set_xlabel("true")
    axes.legend(fontsize=7, frameon=False)


def em(full: bool) -> Part:
    """Marginal log-likelihood after each step, and difficulties against the truth."""
    del full
    method = irtjax.EM(jnp.asarray(equal_nodes(-6.0, 6.0, 121)))
    fit = solved(problem(rasch(None)), method)
    history = np.asarray(fit.trace)[: int(fit.num_steps)]
    figure, panels = style.new_figure(6.5, 3.0, 2, grid="y")
    steps = np.arange(1, len(history) + 1)
    panels[0].plot(steps, history, color=style.PALETTE[0], label="ours")
    end = PRINTED["EM"][0]
    panels[0].axhline(end, color=style.PALETTE[1], label="end of the printed program")
    panels[0].set_xlabel("step")
    panels[0].legend(fontsize=7, frameon=False)
    style.title(panels[0], "Log-likelihood")
    difficulty = -np.asarray(fit.parameters.items.intercept)
    _recovery(panels[1], truth()[1], {"ours": difficulty})
    style.title(panels[1], "Recovery of difficulties")
    row = {"steps": len(steps), "log-likelihood": f"{history[-1]:,.3f}"}
    return figure, [row | {"r difficulties": correlation(truth()[1], difficulty)}]


def shrinkage(full: bool) -> Part:
    """Maximum likelihood against MAP."""
    del full
    likely, prior = joint_estimates(False), joint_estimates(True)
    figure, panels = style.new_figure(6.5, 3.2, 2, grid="y")
    rows = []
    names = "abilities", "difficulties"
    for axes, name, first, second in zip(panels, names, likely, prior, strict=True):
        axes.scatter(first - first.mean(), second - second.mean(), 10)
        ends = np.array([first.min(), first.max()]) - first.mean()
        axes.plot(ends, ends, color=style.GREY, lw=0.8)
        axes.set_xlabel("maximum likelihood")
        style.title(axes, f"MAP {name}")
        rows.append({"of": name, "sd ML": first.std(), "sd MAP": second.std()})
    return figure, rows


def log_posterior(position: dict[str, Any], values: Any) -> Any:
    """The log density of the book's posterior, up to a constant."""
    theta, beta = position["theta"], position["beta"]
    log_odds = theta[:, None] - beta
    likelihood = jnp.sum(values * log_odds - jnp.logaddexp(0.0, log_odds))
    return likelihood - jnp.sum(theta**2) / 2 - jnp.sum(beta**2) / (2 * SD**2)


def printed_metropolis(steps: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The book's random walk: draws of abilities and difficulties, and acceptance."""
    values, rng = truth()[2], np.random.RandomState(123)
    theta, beta = (x - x.mean() for x in joint_estimates(True))

    def density(theta: np.ndarray, beta: np.ndarray) -> float:
        log_odds = theta[:, None] - beta
        fit = np.sum(values * log_odds - np.logaddexp(0, log_odds))
        return float(fit - np.sum(theta**2) / 2 - np.sum(beta**2) / (2 * SD**2))

    now, accepted, draws = density(theta, beta), 0, []
    for step in range(1000 + steps):
        first, second = (x + rng.normal(0, 0.03, len(x)) for x in (theta, beta))
        first, second = first - first.mean(), second - second.mean()
        then = density(first, second)
        if np.log(rng.random_sample()) < then - now:
            theta, beta, now = first, second, then
            accepted += step >= 1000
        if step >= 1000 and step % 2 == 0:
            draws.append(np.concatenate([theta, beta]))
    joined = np.array(draws)
    return joined[:, :100], joined[:, 100:], accepted / steps


def posterior(full: bool) -> Part:
    """Traces of NUTS, and posterior standard deviations beside the random walk's."""
    theta, beta, values = truth()
    start = {"theta": jnp.zeros(100), "beta": jnp.zeros(50)}
    method = irtjax.NUTS(
        num_warmup=500 if full else 100,
        num_draws=1000 if full else 100,
        num_chains=4 if full else 2,
    )
    draws = sample(
        log_posterior, start, jnp.asarray(values), key=jax.random.key(0), method=method
    )
    printed = printed_metropolis(4000 if full else 500)
    table = summary(draws).to_pydict()
    joined = {k: np.asarray(x).reshape(-1, x.shape[2]) for k, x in draws.values.items()}
    rows = []
    for name, first, second, note in (
        ("printed", *printed),
        ("NUTS", joined["theta"], joined["beta"], None),
    ):
        rows.append(
            {
                "sampler": name,
                "sd abilities": float(first.std(axis=0).mean()),
                "sd difficulties": float(second.std(axis=0).mean()),
                "r abilities": correlation(theta, first.mean(axis=0)),
                "r difficulties": correlation(beta, second.mean(axis=0)),
                "acceptance": note,
                "fewest effective": None if note else min(table["ess_bulk"]),
                "largest R-hat": None if note else max(table["rhat"]),
            }
        )
    names = ["theta[0]", "theta[49]", "theta[99]", "beta[0]", "beta[24]", "beta[49]"]
    true = {f"theta[{k}]": float(x) for k, x in enumerate(theta)}
    true |= {f"beta[{k}]": float(x) for k, x in enumerate(beta)}
    return plot_trace(draws, names, true), rows


def bank() -> ItemBank:
    """The book's 50 items."""
    model, beta = rasch(None), jnp.asarray(truth()[1])
    items = model.family.Items(jnp.ones(50), -beta, jnp.zeros(50), jnp.ones(50))
    return ItemBank.create(model, items, Population(jnp.zeros(()), jnp.ones(())))


def simulated(subjects: int, select: str, **settings: Any) -> Any:
    """Tests by MAP, as in the book."""
    return irtjax.simulate_tests(
        bank(), subjects, key=0, select=select, scoring="map", **settings
    )


def information(full: bool) -> Part:
    """Information of items, and what adds up at one ability."""
    beta, theta = truth()[1], np.linspace(-4, 4, 201)
    figure, panels = style.new_figure(7.5, 3.0, 2, grid="y")
    for k, b in enumerate((-2, -1, 0, 1, 2)):
        chance = expit(theta - b)
        color = style.PALETTE[k]
        panels[0].plot(theta, chance * (1 - chance), color=color, label=f"b = {b}")
    style.title(panels[0], "Information of an item")
    panels[0].set_xlabel("ability")
    chance = expit(ABILITY - beta)
    of_item = chance * (1 - chance)
    at = np.full(400 if full else 40, ABILITY)
    sums = {}
    for select in ("information", "random"):
        tests = simulated(len(at), select, num_items=ITEMS, ability=at)
        sums[select] = of_item[tests.given].cumsum(axis=1).mean(axis=0)
    # The printed program knows the ability after one item.
    first = int(np.argmin(np.abs(beta)))
    rest = np.delete(np.arange(50), first)
    order = [first, *rest[np.argsort(np.abs(beta[rest] - ABILITY))][: ITEMS - 1]]
    sums["printed, with the truth"] = of_item[order].cumsum()
    for k, (name, values) in enumerate(sums.items()):
        color = style.PALETTE[k]
        panels[1].plot(np.arange(1, ITEMS + 1), values, color=color, label=name)
    style.title(panels[1], f"Information at an ability of {ABILITY}")
    panels[1].set_xlabel("items")
    for axes in panels:
        axes.legend(fontsize=7, frameon=False)
    return figure, [
        {"items chosen by": k, "sum": float(x[-1])} for k, x in sums.items()
    ]


def tests(full: bool) -> Part:
    """Lengths and reliabilities of tests to a reliability of .8, chosen and random."""
    figure, panels = style.new_figure(9.5, 3.0, 3, grid="y")
    rows = []
    for k, select in enumerate(("information", "random")):
        result = simulated(1000 if full else 100, select, num_items=30, reliability=0.8)
        lengths, color = result.num_given, style.PALETTE[k]
        panels[0].bar(k, lengths.mean(), color=color, yerr=lengths.std())
        share = 1 - result.standard_error[:5] ** 2
        for one, length in zip(share, lengths[:5], strict=True):
            panels[1].plot(np.arange(1, length + 1), one[:length], color=color, lw=0.8)
        panels[2].hist(lengths, np.arange(31.5), color=color, alpha=0.6, label=select)
        rows.append({"items chosen by": select, "items": lengths.mean()})
    panels[0].set_xticks([0, 1], ["information", "random"])
    panels[1].axhline(0.8, color=style.GREY, lw=0.8)
    for axes, title in zip(
        panels, ("Items to .80", "Reliability of five subjects", "Lengths"), strict=True
    ):
        style.title(axes, title)
    panels[1].set_xlabel("items")
    panels[2].legend(fontsize=7, frameon=False)
    return figure, rows


PARTS = {
    "matrix": matrix,
    "curves": curves,
    "gradient": gradient,
    "em": em,
    "shrinkage": shrinkage,
    "posterior": posterior,
    "penalty": prediction_figures.penalty,
    "information": information,
    "tests": tests,
    "semantic": prediction_figures.semantic,
    "filtering": prediction_figures.filtering,
}
#: Parts of data that are not in this repository.
OF_SHARED_DATA = "semantic", "filtering"


def main(arguments: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Draws the figures, and prints what the book prints beside them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=PARTS, nargs="*", help="parts to draw")
    parser.add_argument("--full", action="store_true", help="more draws and subjects")
    parser.add_argument("--out", type=Path, required=True, help="folder of figures")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    tables = {}
    for name in options.only or PARTS:
        if name in OF_SHARED_DATA and not prediction_figures.SHARED.is_dir():
            print(f"{name}: not drawn, for there is no {prediction_figures.SHARED}")
            continue
        figure, rows = PARTS[name](options.full)
        save_figure(figure, options.out / f"{name}.png")
        if rows:
            print(name, aligned(rows), sep="\n")
            write_csv(options.out, name, rows)
            tables[name] = rows
    return tables


if __name__ == "__main__":
    main()
