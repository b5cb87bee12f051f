"""Categories, judges, rates of ties and "both bad", against other programs."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app


def votes(
    *,
    seed=0,
    subjects=6,
    count=6000,
    category_sd=0.0,
    judge_sd=0.0,
    tie_sd=0.0,
    bad=None,
    num=8,
):
    """Battles by Rao and Kupper's model, with the planted effects."""
    rng = np.random.default_rng(seed)
    ability = np.linspace(-1, 1, subjects)
    delta = category_sd * rng.normal(size=(subjects, num))
    alpha = np.exp(judge_sd * rng.normal(size=20))
    cut = np.exp(-0.7 + tie_sd * rng.normal(size=subjects))
    first = rng.integers(subjects, size=count)
    second = (first + rng.integers(1, subjects, size=count)) % subjects
    category, judge = rng.integers(num, size=count), rng.integers(20, size=count)
    own = ability[:, None] + delta
    gap = alpha[judge] * (own[first, category] - own[second, category])
    h, noise = np.sqrt(cut[first] * cut[second]), rng.logistic(size=count)
    kind = np.where(gap + noise > h, 0, np.where(gap + noise < -h, 1, 2))
    if bad is not None:
        odds = bad[0] - bad[1] * (ability[first] + ability[second]) / 2
        kind = np.where((kind == 2) & (rng.random(count) < expit(odds)), 3, kind)
    table = irtjax.ComparisonTable.of(
        [f"m{k}" for k in range(subjects)],
        first,
        second,
        np.eye(4)[kind],
        labels={
            "category": np.char.add("c", category.astype(str)),
            "judge": np.char.add("j", judge.astype(str)),
            "each": np.arange(count).astype(str),
        },
    )
    return table, {"delta": delta, "alpha": alpha, "cut": cut, "ability": ability}


def test_both_bad_is_the_maximum_of_another_optimiser():
    table, _ = votes(count=800, bad=(-0.3, 0.8))
    fit = irtjax.fit_comparisons(table, ties="rao_kupper", both_bad="outcome")
    i, j, n = table.first, table.second, table.outcomes

    def negative(z):
        d, h = z[i] - z[j], np.exp(z[6])
        win, loss = expit(d - h), expit(-d - h)
        share = expit(z[7] - z[8] * (z[i] + z[j]) / 2)
        chances = [win, loss, (1 - win - loss) * (1 - share), (1 - win - loss) * share]
        logs = np.log(np.transpose(chances))
        return -np.sum(n * logs) + 10 * z[:6].sum() ** 2

    other = minimize(negative, np.r_[np.zeros(6), -0.5, 0, 0.1], method="BFGS")
    assert fit.log_likelihood == pytest.approx(-other.fun, abs=1e-5)
    # BFGS ends where slopes are below 1e-5 of curvatures of about 100.
    np.testing.assert_allclose(fit.abilities.estimates, other.x[:6], atol=1e-4)
    found = [fit.effects[x][0] for x in ("tie", "both_bad", "both_bad_slope")]
    np.testing.assert_allclose(found, other.x[6:], atol=1e-3)


def test_both_bad_of_an_arena(shared_data):
    """At most both kinds of tie with a constant share of "both bad" among them."""
    path = shared_data / "arena" / "chatbot_arena_2024_08_counts.parquet"
    table = irtjax.read_comparisons(path)
    fit = irtjax.fit_comparisons(table, ties="rao_kupper", both_bad="outcome")
    tie, bad = table.outcomes[:, 2:].sum(axis=0)
    both = (tie * np.log(tie / (tie + bad)) + bad * np.log(bad / (tie + bad))) * -1
    constant = 1.0582693 + both / table.num_comparisons
    nats = -fit.log_likelihood / fit.num_comparisons
    assert constant - 0.02 < nats < constant - 0.001
    assert fit.effects["both_bad_slope"][0] > 0.5


def test_the_marginal_likelihood_is_the_integral():
    """Two models in two categories: one effect, u = delta_1c - delta_2c, for each."""
    counts = np.array([[30, 12], [14, 20]], float)
    outcomes = np.column_stack([counts, np.zeros((2, 2))])
    labels = {"topic": np.array(["x", "y"])}
    table = irtjax.ComparisonTable.of("ab", [0, 0], [1, 1], outcomes, labels=labels)
    fit = irtjax.fit_comparisons(table, category="topic")
    tau = fit.effects["category_sd"][0] * 2**0.5
    assert tau > 0.1
    gap = np.diff(fit.abilities.estimates[::-1])[0]

    def one(wins, losses):
        log = lambda u: wins * np.log(expit(gap + u)) + losses * np.log(expit(-gap - u))
        top = log(0.0)
        density = lambda u: np.exp(log(u) - top - u**2 / (2 * tau**2))
        area = quad(density, -8 * tau, 8 * tau)[0] / (tau * (2 * np.pi) ** 0.5)
        return top + np.log(area)

    # Of the order of 1 / n for Laplace's approximation of n votes.
    assert fit.log_likelihood == pytest.approx(sum(map(one, *counts.T)), abs=0.02)


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ({"category": "category"}, "category_sd"),
        ({"judge": "judge"}, "judge_sd"),
        ({"tie_rates": True}, "tie_rates_sd"),
    ],
)
def test_planted_effects_are_recovered(option, name):
    planted = {
        "category_sd": {"category_sd": 0.4},
        "judge_sd": {"judge_sd": 0.5},
        "tie_rates_sd": {"tie_sd": 0.4},
    }[name]
    table, truth = votes(count=20_000, seed=1, **planted)
    fit = irtjax.fit_comparisons(table, ties="rao_kupper", **option)
    value, error = fit.effects[name]
    assert abs(value - max(planted.values())) < 3 * error
    if name == "category_sd":
        rows = fit.tables["categories"].to_pylist()
        own = truth["ability"][:, None] + truth["delta"]
        own = own - own.mean(axis=0)
        z = [
            (x["ability"] - own[int(x["subject"][1:]), int(x["category"][1:])])
            / x["ability_se"]
            for x in rows
        ]
    elif name == "judge_sd":
        alpha = truth["alpha"] / np.exp(np.log(truth["alpha"]).mean())
        z = [
            (x["reliability"] - alpha[int(x["judge"][1:])]) / x["reliability_se"]
            for x in fit.tables["judges"].to_pylist()
        ]
    else:
        rate = 1 - 2 * expit(-truth["cut"])
        z = [
            (x["tie_rate"] - rate[int(x["subject"][1:])]) / x["tie_rate_se"]
            for x in fit.tables["tie_rates"].to_pylist()
        ]
    # Of 6 to 48 standard normal values, the root mean square is 1 within 3 / sqrt(2 n).
    assert np.sqrt(np.mean(np.square(z))) == pytest.approx(
        1, abs=3 / (2 * len(z)) ** 0.5
    )


def test_without_effects_abilities_are_the_plain_ones():
    table, _ = votes(count=3000)
    plain = irtjax.fit_comparisons(table, ties="davidson")
    fit = irtjax.fit_comparisons(table, ties="davidson", tie_rates=True)
    value, error = fit.effects["tie_rates_sd"]
    assert value < 3 * error
    np.testing.assert_allclose(
        fit.abilities.estimates, plain.abilities.estimates, atol=0.03
    )
    ratio = fit.abilities.standard_error / plain.abilities.standard_error
    np.testing.assert_allclose(ratio, 1, atol=0.03)
    each = irtjax.fit_comparisons(
        table, ties="davidson", tie_rates=True, cluster="each"
    )
    # Where comparisons are independent, the sandwich estimates the same errors.
    ratio = each.abilities.standard_error / fit.abilities.standard_error
    np.testing.assert_allclose(ratio, 1, atol=0.06)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"both_bad": "outcome"}, "requires ties='davidson'"),
        ({"both_bad": "outcome", "ties": "davidson"}, "requires ties and verdicts"),
        ({"tie_rates": True}, "tie_rates requires ties='davidson'"),
        ({"category": "x"}, "no category 'x'"),
        ({"judge": "same"}, "the judge is 'a' in all rows"),
    ],
)
def test_effects_that_are_not_identified_are_refused(options, said):
    table, _ = votes(count=200)
    labels = {"same": np.full(200, "a")}
    parts = table.subjects, table.first, table.second, table.outcomes
    table = irtjax.ComparisonTable.of(*parts, labels=labels)
    with pytest.raises(ValueError, match=said):
        irtjax.fit_comparisons(table, **options)


def test_the_command_writes_the_effects(tmp_path):
    table, _ = votes(count=300, bad=(0.0, 0.5))
    file, out = tmp_path / "battles.csv", tmp_path / "arena"
    words = np.array(["model_a", "model_b", "tie", "both_bad"])
    lines = ["model_a,model_b,winner,category,judge"]
    names, labels = table.subjects, table.labels
    lines += [
        f"{names[i]},{names[j]},{words[k]},{c},{judge}"
        for i, j, k, c, judge in zip(
            table.first,
            table.second,
            table.outcomes.argmax(axis=1),
            labels["category"],
            labels["judge"],
            strict=True,
        )
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ["--ties", "davidson", "--both-bad", "outcome", "--tie-rates"]
    options += ["--category", "category", "--judge", "judge"]
    result = CliRunner().invoke(app, ["arena", str(file), "--out", str(out), *options])
    assert result.exit_code == 0, result.output
    assert "of 8" in result.output and "Reliability, with" in result.output
    saved = json.loads((out / "fit.json").read_text(encoding="utf-8"))
    assert {"category_sd", "judge_sd", "both_bad_slope"} <= saved["effects"].keys()
    for name in ("categories", "judges", "tie_rates"):
        rows = pq.read_table(out / f"{name}.parquet")
        assert irtjax.storage.load_arena(out).tables[name].equals(rows)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert 'id="effects"' in page and "Reliability of judges" in page
