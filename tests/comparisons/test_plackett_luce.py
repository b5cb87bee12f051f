"""Rankings by Plackett and Luce's model, against written-out chances."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.comparisons.plackett_luce import Rankings, fit_rankings

NAMES = list("abcde")


def draw(count, seed=0, sizes=(2, 3, 4, 5)):
    """Rankings of some of five models, by Gumbel's noise, whose order is Luce's."""
    rng = np.random.default_rng(seed)
    ability = np.linspace(-1, 1, 5)
    lists = []
    for _ in range(count):
        some = rng.choice(5, rng.choice(sizes), replace=False)
        noisy = ability[some] + rng.gumbel(size=len(some))
        lists.append(some[np.argsort(-noisy)].tolist())
    return lists


def chance(theta, ranking):
    """The written-out product of choices."""
    product = 1.0
    for k in range(len(ranking)):
        product *= np.exp(theta[ranking[k]]) / np.exp(theta[ranking[k:]]).sum()
    return product


def file_of(lists, path):
    rows = [" > ".join(NAMES[k] for k in ranking) for ranking in lists]
    lines = ["id,ranking", *(f"{k},{row}" for k, row in enumerate(rows))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_maximum_is_that_of_another_optimiser(tmp_path):
    lists = draw(150)
    table = irtjax.read_comparisons(file_of(lists, tmp_path / "rankings.csv"))
    fit = irtjax.fit_comparisons(table, "plackett_luce")

    def negative(theta):
        return -sum(np.log(chance(theta, r)) for r in lists) + theta.sum() ** 2

    other = minimize(negative, np.zeros(5), method="BFGS", options={"gtol": 1e-7})
    assert fit.log_likelihood == pytest.approx(-other.fun, abs=1e-8)
    np.testing.assert_allclose(fit.abilities.estimates, other.x, atol=1e-5)
    # The information by second differences, with a size for the sum of abilities.
    unit, step = np.eye(5), 1e-3
    value = lambda *moves: negative(other.x + step * sum(moves))
    hessian = np.array(
        [
            [
                (value(a, b) - value(a, -b) - value(-a, b) + value(-a, -b))
                / (4 * step**2)
                for b in unit
            ]
            for a in unit
        ]
    )
    centre = np.eye(5) - 0.2
    wanted = centre @ np.linalg.inv(hessian) @ centre
    np.testing.assert_allclose(fit.abilities.covariance, wanted, atol=1e-5)
    assert fit.num_comparisons == 150 and fit.num_parameters == 4


def test_chances_of_all_orders_have_a_sum_of_one():
    theta = np.array([0.3, -0.8, 0.5])
    orders = list(itertools.permutations(range(3)))
    assert sum(chance(theta, list(r)) for r in orders) == pytest.approx(1)
    # As rankings in these proportions, they have theta as their estimate.
    counts = [round(1e5 * chance(theta, list(r))) for r in orders]
    order = np.repeat(np.array(orders), counts, axis=0)
    ability, *_ = fit_rankings(Rankings(order, np.arange(len(order)), 3))
    np.testing.assert_allclose(ability, theta, atol=1e-4)


def test_rankings_of_two_are_comparisons():
    lists = np.array(draw(400, seed=1, sizes=(2,)))
    labels = {"ranking": np.arange(400).astype(str), "voter": np.arange(400) % 50}
    rows = np.tile([1.0, 0, 0, 0], (400, 1))
    table = irtjax.ComparisonTable.of(NAMES, *lists.T, rows, labels=labels)
    for cluster in ((), "voter", ["voter", "ranking"]):
        one = irtjax.fit_comparisons(table, "plackett_luce", cluster=cluster)
        other = irtjax.fit_comparisons(table, cluster=cluster)
        assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-8)
        for name in ("estimates", "covariance"):
            np.testing.assert_allclose(
                getattr(one.abilities, name), getattr(other.abilities, name), atol=1e-8
            )


def test_errors_are_those_of_simulated_rankings():
    """Of 60 sets of 200 rankings."""
    errors, z = [], []
    truth = np.linspace(-1, 1, 5)
    for seed in range(60):
        lists = draw(200, seed=seed, sizes=(5,))
        order = np.array(lists)
        ability, covariance, *_ = fit_rankings(Rankings(order, np.arange(200), 5))
        errors.append(np.sqrt(np.diag(covariance)))
        z.append((ability - truth) / errors[-1])
    # A root mean square of 300 values, those of one set with a sum of about 0.
    assert np.sqrt(np.mean(np.square(z))) == pytest.approx(1, abs=0.13)


@pytest.mark.parametrize(
    ("rows", "labels", "said"),
    [
        ([0, 0, 0], None, "has no label 'ranking'"),
        ([0, 2, 0], "xxx", "the ranking 'x' has a tie"),
        ([0, 1, 0], "xxx", "the ranking 'x' are not those of an order"),
        ([0, 0, 0], "xyx", "the ranking 'x' are not those of an order"),
    ],
)
def test_what_is_no_ranking_is_refused(rows, labels, said):
    labels = {} if labels is None else {"ranking": np.array(list(labels))}
    table = irtjax.ComparisonTable.of(
        "abc", [0, 0, 1], [1, 2, 2], np.eye(4)[rows], labels=labels
    )
    with pytest.raises(ValueError, match=said):
        irtjax.fit_comparisons(table, "plackett_luce")


def test_options_of_pairs_are_refused():
    labels = {"ranking": np.array(["x"])}
    table = irtjax.ComparisonTable.of("ab", [0], [1], [[1, 0, 0, 0]], labels=labels)
    with pytest.raises(ValueError, match="plackett_luce' has no ties"):
        irtjax.fit_comparisons(table, "plackett_luce", order=True)


def test_a_model_that_is_always_last_is_named():
    lists = [[*r, 4] for r in draw(40, sizes=(3,)) if 4 not in r]
    order = np.array(lists)
    first, second = np.triu_indices(4, 1)
    number = np.repeat(np.arange(len(lists)), len(first)).astype(str)
    rows = np.tile([1.0, 0, 0, 0], (len(number), 1))
    sides = order[:, first].reshape(-1), order[:, second].reshape(-1)
    table = irtjax.ComparisonTable.of(NAMES, *sides, rows, labels={"ranking": number})
    fit = irtjax.fit_comparisons(table, "plackett_luce")
    assert "never won: e" in fit.warnings[0]
    assert np.isfinite(fit.abilities.covariance).all()


def test_the_command_ranks_rankings(tmp_path):
    """Of two files, each with its own numbers of rankings."""
    files = [
        str(file_of(draw(60, seed=k), tmp_path / f"rankings_{k}.csv")) for k in (1, 2)
    ]
    out = tmp_path / "arena"
    options = ["--model", "plackett_luce", "--out", str(out)]
    result = CliRunner().invoke(app, ["arena", *files, *options])
    assert result.exit_code == 0, result.output
    saved = irtjax.storage.load_arena(out)
    assert saved.num_comparisons == 120
    assert "120 rankings" in (out / "report.html").read_text(encoding="utf-8")
    table = irtjax.read_comparisons(files)
    fit = irtjax.fit_comparisons(table, "plackett_luce")
    assert saved.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-9)
