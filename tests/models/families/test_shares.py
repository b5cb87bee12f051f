"""Shares of right responses: a 2PL by quasi-likelihood, worth what scores show."""

import jax
import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax.data.scores import to_shares
from irtjax.fitting.defaults import choose
from irtjax.models.families.bounded import at_the_ends, in_unit_range, worth_of
from irtjax.numerics.dispersion import share_dispersion
from irtjax.plots.curves import information_by_group
from irtjax.report.page_data import cells_of
from irtjax.report.summary import fit_sentences


def shares(seed, subjects=30, items=40, trials=10, correlation=0.5):
    """Expected shares and shares of trials that agree, of a 2PL."""
    rng = np.random.default_rng(seed)
    slope = np.exp(0.3 * rng.normal(size=items))
    ability = rng.normal(size=(subjects, 1))
    mean = expit(slope * (ability - rng.normal(size=items)))
    size = (1 - correlation) / correlation
    chance = rng.beta(mean * size, (1 - mean) * size)
    return mean, rng.binomial(trials, chance) / trials


@pytest.mark.parametrize("subjects", [8, 40])
@pytest.mark.parametrize(
    ("trials", "correlation"), [(1, 0.5), (10, 0.7), (10, 0.1), (4, 1e-6)]
)
def test_the_dispersion_is_that_of_dependent_trials(subjects, trials, correlation):
    truth = (1 + (trials - 1) * correlation) / trials
    found = []
    for seed in range(10):
        values = shares(seed, subjects, 100, trials, correlation)[1]
        found.append(share_dispersion(values, np.ones(values.shape, bool)))
    # Unequal slopes make it a little larger: by .0125 at most here, of .1.
    error = np.std(found) / np.sqrt(len(found))
    assert truth - 4 * error <= np.mean(found) < truth + 4 * error + 0.02


def test_missing_scores_do_not_count():
    values = shares(0, 60, 50)[1]
    seen = np.random.default_rng(1).random(values.shape) < 0.6
    odd = np.where(seen, values, 7.0)
    found = share_dispersion(odd, seen)
    assert found == share_dispersion(np.where(seen, values, 0.0), seen)
    whole = share_dispersion(values, np.ones(values.shape, bool))
    assert found == pytest.approx(whole, abs=0.03)
    assert share_dispersion(values, np.zeros(values.shape, bool)) == 1.0


def test_scores_without_an_estimate_are_worth_one_response():
    everywhere = np.ones((12, 20), bool)
    right = np.tile(np.arange(20) % 2 * 1.0, (12, 1))
    for values in (right, everywhere * 1.0, everywhere * 0.5, right * 0.3):
        assert share_dispersion(values, everywhere) == 1.0
    # 0 and 1 are right or wrong, however well abilities predict them.
    ordered = np.sort(np.random.default_rng(0).random((12, 20)) < 0.5, axis=0) * 1.0
    assert share_dispersion(ordered, everywhere) == 1.0
    values = shares(0, 12, 20)[1]
    stuck = np.concatenate([values, np.full((12, 20), 0.5)], axis=1)
    wide = np.ones(stuck.shape, bool)
    assert share_dispersion(stuck, wide) == share_dispersion(values, everywhere)
    assert share_dispersion(values[:, :1], everywhere[:, :1]) == 1.0


def test_small_benchmarks_have_one_dispersion_together():
    values = shares(0, 12, 60)[1]
    names = np.array([*["large"] * 30, *(f"small {k}" for k in range(29)), "right"])
    values[:, -1] = values[:, -1] > 0.5
    table = irtjax.ResponseTable.from_arrays(values, benchmark=names.tolist())
    worth = to_shares(table).worth
    assert list(worth) == list(dict.fromkeys(names.tolist()))
    small = values[:, 30:59]
    together = 1 / share_dispersion(small, np.ones(small.shape, bool))
    assert {worth[f"small {k}"] for k in range(29)} == {together}
    assert 1.4 < together < 2.6
    assert worth["right"] == 1.0 != worth["large"] != together


def test_benchmarks_have_dispersions_of_their_own():
    right = (shares(0)[1] > 0.5) * 1.0
    values = np.concatenate([right, shares(1)[1]], axis=1)
    names = ["right"] * 40 + ["share"] * 40
    table = irtjax.ResponseTable.from_arrays(values, benchmark=names)
    found = to_shares(table)
    assert found.worth["right"] == pytest.approx(1, abs=0.05)
    assert found.worth["share"] > 1.5
    np.testing.assert_array_equal(
        found.trials[0], worth_of({"worth": found.worth}, np.array(names), 80)
    )
    assert to_shares(table, {"right": 3.0}).worth["right"] == 3.0


def test_scores_worth_whole_numbers_are_counts():
    """The quasi-likelihood of w responses is the likelihood of w trials."""
    values = shares(3, 80, 8, trials=2)[1]
    prepared = irtjax.ResponseTable.from_arrays(values)
    counts = irtjax.ResponseTable.from_arrays(
        2 * values, trials=np.full(values.shape, 2)
    )
    from irtjax.models.families.bounded import prepare

    share = irtjax.MODELS["share"]()
    scores = prepare(prepared, share, worth=2.0)
    np.testing.assert_array_equal(scores.values, counts.values)
    np.testing.assert_array_equal(scores.trials, counts.trials)
    one, two = (
        irtjax.functional.log_likelihood(
            model,
            model.constrain(np.ones((8, 2))),
            np.zeros(80),
            scores.values,
            trials=scores.trials,
        )
        for model in (share, irtjax.MODELS["2pl"]())
    )
    np.testing.assert_allclose(one, two, rtol=1e-12)


def test_the_default_takes_shares_where_scores_are_at_the_ends():
    mean, values = shares(4)
    table = irtjax.ResponseTable.from_arrays(values)
    assert at_the_ends(table) > 0.3
    chosen = choose(table)
    assert chosen[:2] == ("share", "laplace")
    assert "of the scores are at an end" in chosen.reason
    inside = irtjax.ResponseTable.from_arrays(np.clip(values, 0.01, 0.99))
    assert at_the_ends(inside) == 0 and choose(inside).model == "continuous"
    percents = irtjax.ResponseTable.from_arrays(100 * values)
    assert choose(percents, settings={"bounds": (0, 100)}).model == "share"
    # Bounds state that items are scores, even where all are at the ends.
    ends = irtjax.ResponseTable.from_arrays(100 * (values > 0.5))
    assert at_the_ends(ends, (0, 100)) == 1.0
    assert choose(ends, settings={"bounds": (0, 100)}).model == "share"
    few = irtjax.ResponseTable.from_arrays(values[:5])
    model = choose(few).model
    assert model.name == "share" and model.scale == "unit_slope"
    right = irtjax.ResponseTable.from_arrays((values > 0.5) * 1.0)
    assert at_the_ends(right) == 0 and choose(right).model == "2pl"


@pytest.fixture(scope="module")
def fitted():
    mean, values = shares(5, 12, 60)
    table = irtjax.ResponseTable.from_arrays(100 * values)
    return mean, table, irtjax.fit(table, bounds=(0, 100))


@pytest.mark.slow
def test_a_fit_knows_what_its_scores_are_worth(fitted, tmp_path):
    mean, table, fit = fitted
    worth = fit.options["worth"]
    assert fit.model.name == "share" and 1.4 < worth < 2.6
    assert fit.status.name == "CONVERGED"
    assert any(f"a score is worth {worth:.3g} responses" in x for x in fit.notes)
    # A quasi-likelihood has no AIC.
    for text in (fit_sentences(fit)[0], fit.summary()):
        assert "quasi-log-likelihood" in text and "(no AIC or BIC)" in text
    rows = {row["subject"]: row for row in fit.abilities.table.to_pylist()}
    score = np.array([rows[name]["expected_score"] for name in fit.subject_names])
    error = np.array(
        [
            rows[name]["expected_score_upper"] - rows[name]["expected_score_lower"]
            for name in fit.subject_names
        ]
    ) / (2 * 1.96)
    assert np.abs((score - mean.mean(axis=1)) / error).max() < 4
    # New subjects are scored by the same worth, from a saved fit too.
    irtjax.save(fit, tmp_path / "fit")
    loaded = irtjax.load(tmp_path / "fit")
    assert loaded.options["worth"] == worth
    one, two = (
        irtjax.score(x, table, scoring="eap").table.to_pylist() for x in (fit, loaded)
    )
    assert one == two
    ends = [row["ability_se"] for row in one]
    assert np.median(ends) < 0.5
    with pytest.raises(ValueError, match="means of scores and no distribution"):
        irtjax.predictive_checks(fit, table)


def test_comparisons_and_pages_have_scores_in_their_bounds(fitted):
    _, table, fit = fitted
    values = table.values / 100
    pair = irtjax.compare(fit, "subject 1", "subject 2", data=table)
    assert pair.right_first == pytest.approx(values[0].sum())
    found = pair.accuracy_difference
    assert found == pytest.approx(values[0].mean() - values[1].mean())
    np.testing.assert_allclose(cells_of(fit, table).rate, values, atol=1e-12)
    # Benchmarks are those of the fit; items that it has not have their own.
    by_name = {"bounds": {"judge": (1, 9)}}
    other = irtjax.ResponseTable.from_arrays(
        [[0.5, 5.0, 3.0]], items=["a", "b", "c"], benchmark=["judge", "x", "judge"]
    )
    found = in_unit_range(by_name, other, ["b", "a"], np.array(["judge", "y"]))
    assert found.tolist() == [[0.5, 0.5, 0.25]]


def test_information_is_that_of_what_scores_are_worth(fitted):
    fit = fitted[2]
    nodes, codes = np.linspace(-1, 1, 3), np.zeros(60, int)
    found = information_by_group(fit, nodes, codes, 1)[0]
    items = fit.parameters.items
    slope, chance = (
        items.discrimination,
        expit(np.multiply.outer(nodes, items.discrimination) + items.intercept),
    )
    wanted = fit.options["worth"] * (slope**2 * chance * (1 - chance)).sum(axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_simulated_responses_are_right_or_wrong():
    model = irtjax.MODELS["share"]()
    items = model.constrain(np.array([[1.0, 0.5], [2.0, -0.5]]))
    values = model.family.sample(jax.random.key(0), items, np.zeros(4000))
    np.testing.assert_allclose(
        values.mean(axis=0), expit([0.5, -0.5]), atol=4 * 0.5 / 4000**0.5
    )
    assert set(np.unique(values)) == {0.0, 1.0}


def test_scores_outside_are_refused():
    table = irtjax.ResponseTable.from_arrays([[0.0, 30.0], [100.0, 5.0]])
    with pytest.raises(ValueError, match="score 30 is not between 0 and 1"):
        irtjax.fit(table, "share")
    inside = irtjax.ResponseTable.from_arrays(shares(0)[1])
    with pytest.raises(ValueError, match="leave squeeze out"):
        irtjax.fit(inside, "share", squeeze=10)
