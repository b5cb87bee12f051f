"""Figures of AIMS, with the printed programs' curves where they differ.

    python experiments/aims/figures.py --out FIGURES               # a minute
    python experiments/aims/figures.py --out FIGURES --full        # as in the README
    python experiments/aims/figures.py --out FIGURES --only posterior

`matrix` (2.1, 4.2.1), `curves` (2.3.1), `gradient` (4.2.3, 4.2.5), `em` (4.4.2),
`shrinkage` (4.5.3), `posterior` (4.5.4), `penalty` (4.6.2), `information` (4.7.2),
`tests` (4.7.3), `semantic` (6.1, 6.5), `filtering` (6.6). The printed programs are
recomputed with NumPy and scipy. Each part returns its figure and the rows that the
book prints.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    import sys

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.aims import prediction_figures
from experiments.aims.book import problem, solved, truth
from experiments.tabulate import aligned, write_csv
from irtjax.adaptive import ItemBank
from irtjax.estimators.posterior import summary
from irtjax.estimators.posterior.sample import sample
from irtjax.inference.scores import score
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


def whole_numbers(axes: Any, text: str) -> None:
    """Names an axis of counts, and marks whole numbers alone."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.set_xlabel(text)


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Of estimates with the truth."""
    return float(np.corrcoef(first, second)[0, 1])


def joint_fit(penalised: bool) -> irtjax.Fit:
    """Joint estimates by maximum likelihood, or with the book's priors."""
    if penalised:
        chosen = problem(rasch({"intercept": Normal(0.0, SD)}))
        return solved(chosen, irtjax.MM(tolerance=1e-7))
    return solved(problem(rasch(None)), irtjax.Gradient(None, penalty=0.0))


def joint_estimates(penalised: bool) -> tuple[np.ndarray, np.ndarray]:
    """Abilities and difficulties of a joint fit."""
    parameters = joint_fit(penalised).parameters
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


def printed_lbfgs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The book's L-BFGS (4.2.5), by scipy from 0: as `printed_gradient`."""
    values = truth()[2]
    log_odds = lambda point: point[:100, None] - point[100:]

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        rest = values - expit(log_odds(point))
        loss = np.sum(np.logaddexp(0, log_odds(point)) - values * log_odds(point))
        return float(loss), np.concatenate([-rest.sum(axis=1), rest.sum(axis=0)])

    history = []
    result = minimize(
        objective,
        np.zeros(150),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 200},
        callback=lambda point: history.append(-objective(point)[0]),
    )
    return result.x[:100], result.x[100:], np.array(history)


def gradient(full: bool) -> Part:
    """Convergence, and estimates against the truth, of 4.2.3 and 4.2.5."""
    del full
    theta, beta, _ = truth()
    fit = joint_fit(False)
    history = np.asarray(fit.trace)[: int(fit.num_steps)]
    ours = np.asarray(fit.parameters.theta), -np.asarray(fit.parameters.items.intercept)
    runs = {
        "printed gradient ascent": printed_gradient(),
        "printed L-BFGS": printed_lbfgs(),
        "ours, L-BFGS": (*ours, history),
    }
    best = max(x[2].max() for x in runs.values()) + 1e-6
    figure, panels = style.new_figure(10.5, 3.4, 3, grid="y")
    colors = [style.PALETTE[k] for k in (1, 2, 0)]
    for (name, run), color in zip(runs.items(), colors, strict=True):
        steps = np.arange(1, len(run[2]) + 1)
        panels[0].loglog(steps, best - run[2], color=color, label=name)
    panels[0].set_xlabel("step")
    panels[0].set_ylabel("log-likelihood below the maximum")
    style.title(panels[0], "Convergence")
    shown = [runs["printed gradient ascent"], runs["ours, L-BFGS"]]
    for k, (name, true) in enumerate((("abilities", theta), ("difficulties", beta))):
        estimates = {"printed gradient ascent": shown[0][k], "ours": shown[1][k]}
        _recovery(panels[k + 1], true, estimates)
        style.title(panels[k + 1], f"Recovery of {name}")
    panels[0].legend(fontsize=7, frameon=False)
    first = shown[0]
    rows = [
        {
            "program": name,
            "log-likelihood": f"{run[2][-1]:,.3f}",
            "steps": len(run[2]),
            "r abilities": correlation(theta, run[0]),
            "r difficulties": correlation(beta, run[1]),
            "of gradient ascent": min(correlation(run[k], first[k]) for k in (0, 1)),
        }
        for name, run in runs.items()
    ]
    return figure, rows


def _recovery(axes: Any, true: np.ndarray, estimates: dict[str, np.ndarray]) -> None:
    """Estimates against true values, each around its mean; the last is ours."""
    true = true - true.mean()
    for k, (name, values) in enumerate(estimates.items()):
        place = len(estimates) - 1 - k
        look = {"color": style.PALETTE[place], "label": name}
        axes.scatter(true, values - values.mean(), 8 + 8 * place, **look)
    ends = np.array([true.min(), true.max()])
    axes.plot(ends, ends, color=style.GREY, lw=0.8)
    axes.set_xlabel("true, around the mean")
    axes.set_ylabel("estimate, around the mean")
    axes.legend(fontsize=7, frameon=False)


def printed_em() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The book's EM (4.4.2): abilities, difficulties, log-likelihoods after steps."""
    nodes, weights = np.polynomial.hermite.hermgauss(21)
    nodes, weights = nodes * 2**0.5, weights / np.pi**0.5
    values, beta, history = truth()[2], np.zeros(50), []

    def posterior() -> tuple[np.ndarray, float]:
        log_odds = nodes[:, None] - beta
        joint = values @ log_odds.T - np.logaddexp(0, log_odds).sum(axis=1)
        joint += np.log(weights)
        total = np.asarray(logsumexp(joint, axis=1))
        return np.exp(joint - total[:, None]), float(total.sum())

    for _ in range(50):
        weight, value = posterior()
        history.append(value)
        for _ in range(5):
            chance = expit(nodes[:, None] - beta)
            expected = weight.sum(axis=0) @ chance
            slope = weight.sum(axis=0) @ (chance * (1 - chance))
            beta = beta + (expected - values.sum(axis=0)) / slope
        beta = beta - beta.mean()
    weight, value = posterior()
    return weight @ nodes, beta, np.array([*history[1:], value])


def em(full: bool) -> Part:
    """Marginal log-likelihood after each step, and estimates against the truth."""
    del full
    chosen = problem(rasch(None))
    fit = solved(chosen, irtjax.EM(jnp.asarray(equal_nodes(-6.0, 6.0, 121))))
    history = np.asarray(fit.trace)[: int(fit.num_steps)]
    difficulty = -np.asarray(fit.parameters.items.intercept)
    items, population = fit.parameters.items, fit.parameters.population
    scores = score(chosen.model, items, population, chosen.data)
    ours = np.asarray(scores.ability), difficulty
    printed = printed_em()
    figure, panels = style.new_figure(10.5, 3.4, 3, grid="y")
    lines = ("printed program", printed[2]), ("ours", history)
    for k, (name, values) in enumerate(lines):
        steps = np.arange(1, len(values) + 1)
        panels[0].semilogx(steps, values, color=style.PALETTE[1 - k], label=name)
    panels[0].set_xlabel("step")
    panels[0].set_ylabel("marginal log-likelihood")
    panels[0].legend(fontsize=7, frameon=False)
    style.title(panels[0], "Convergence")
    rows = [
        {"program": name, "steps": len(values), "log-likelihood": f"{values[-1]:,.3f}"}
        for name, values in lines
    ]
    for k, name in enumerate(("abilities", "difficulties")):
        true = truth()[k]
        _recovery(panels[k + 1], true, {"printed program": printed[k], "ours": ours[k]})
        style.title(panels[k + 1], f"Recovery of {name}")
        for row, estimates in zip(rows, (printed, ours), strict=True):
            row[f"r {name}"] = correlation(true, estimates[k])
    return figure, rows


def shrinkage(full: bool) -> Part:
    """Maximum likelihood and MAP against the truth."""
    del full
    likely, prior = joint_estimates(False), joint_estimates(True)
    figure, panels = style.new_figure(7.5, 3.4, 2, grid="y")
    rows = []
    for k, name in enumerate(("abilities", "difficulties")):
        estimates = {"maximum likelihood": likely[k], "MAP": prior[k]}
        _recovery(panels[k], truth()[k], estimates)
        style.title(panels[k], f"Estimates of {name}")
        rows.append({"of": name, "sd ML": likely[k].std(), "sd MAP": prior[k].std()})
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
    figure = plot_trace(draws, names, true)
    look = {"bins": 40, "density": True, "color": style.GREY, "alpha": 0.4}
    for name, axes in zip(names, figure.axes[1::2], strict=True):
        part, place = name.rstrip("]").split("[")
        values = printed[1] if part == "beta" else printed[0]
        axes.hist(values[:, int(place)], orientation="horizontal", **look)
    figure.axes[1].set_title("grey: printed sampler", fontsize=8)
    return figure, rows


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
    panels[0].set_ylabel("information")
    panels[0].set_ylim(0, 0.32)
    chance = np.asarray(expit(ABILITY - beta))
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
    labels = "chosen, by the estimate", "random", "printed: chosen, by the truth"
    for k, (label, values) in enumerate(zip(labels, sums.values(), strict=True)):
        color = style.PALETTE[k]
        panels[1].plot(np.arange(ITEMS + 1), np.r_[0, values], color=color, label=label)
    style.title(panels[1], f"Information at an ability of {ABILITY}")
    whole_numbers(panels[1], "items")
    panels[1].set_ylabel("cumulated information")
    panels[0].legend(fontsize=7, frameon=False, ncols=3, loc="upper center")
    panels[1].legend(fontsize=7, frameon=False)
    return figure, [
        {"items chosen by": k, "sum": float(x[-1])} for k, x in sums.items()
    ]


def tests(full: bool) -> Part:
    """Lengths and reliabilities of tests to a reliability of .8, chosen and random."""
    figure, panels = style.new_figure(10.5, 3.4, 3, grid="y")
    rows = []
    for k, select in enumerate(("information", "random")):
        result = simulated(1000 if full else 100, select, num_items=30, reliability=0.8)
        lengths, color = result.num_given, style.PALETTE[k]
        name = "chosen" if select == "information" else select
        mean = float(lengths.mean())
        panels[0].bar(k, mean, color=color, yerr=lengths.std(), capsize=4)
        panels[0].annotate(
            f"{mean:.1f}", (k, 1), ha="center", color="white", fontweight="bold"
        )
        share = 1 - result.standard_error[:5] ** 2
        for j, (one, length) in enumerate(zip(share, lengths[:5], strict=True)):
            label = name if j == 0 else None
            growth = np.r_[0, one[:length]]
            panels[1].plot(growth, color=color, lw=0.8, label=label)
        edges = np.arange(10.5, 31)
        panels[2].hist(lengths, edges, color=color, alpha=0.6, label=name)
        rows.append({"items chosen by": select, "items": mean})
    panels[0].set_xticks([0, 1], ["chosen", "random"])
    panels[0].set_ylabel("items, with standard deviation")
    panels[1].axhline(0.8, color=style.GREY, lw=0.8)
    panels[1].set_ylabel("reliability")
    panels[2].set_ylabel("tests")
    names = "Items to a reliability of .80", "Reliability of five subjects", "Lengths"
    for axes, title in zip(panels, names, strict=True):
        style.title(axes, title)
    for axes in panels[1:]:
        whole_numbers(axes, "items")
        axes.legend(fontsize=7, frameon=False)
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
