"""Predictions of unseen responses: what is used, identities, and known truth."""

from functools import partial

import numpy as np
import pytest
from scipy.special import expit, logsumexp

import irtjax
from irtjax.prediction import splits
from irtjax.prediction.generalise import generalise
from irtjax.prediction.held_out import OnNodes, baselines, predictor
from irtjax.prediction.stacking import cells_of

SUBJECTS, ITEMS = 150, 60


@pytest.fixture(scope="module")
def truth():
    """Chances of a 2PL."""
    rng = np.random.default_rng(5)
    ability = rng.normal(size=(SUBJECTS, 1))
    slope, intercept = rng.lognormal(0.2, 0.4, ITEMS), rng.normal(0, 1.5, ITEMS)
    return expit(slope * ability + intercept)


@pytest.fixture(scope="module")
def table(truth):
    """Responses with these chances."""
    rng = np.random.default_rng(6)
    values = (rng.random(truth.shape) < truth).astype(float)
    facets = {"benchmark": np.repeat(["a", "b", "c"], ITEMS // 3)}
    return irtjax.ResponseTable.from_arrays(values).replace(item_facets=facets)


@pytest.fixture(scope="module")
def model(table):
    """The 2PL on nodes: one compiled program for the tests."""
    made = predictor(table, "2pl")
    assert isinstance(made, OnNodes)
    return made


def test_chances_are_posterior_means_at_the_estimates(table, model):
    """By hand, from the parameters of the fit."""
    train = splits.entry(table).train
    items, population = model.fit(model.data(train)).parameters[:2]
    nodes = np.linspace(-8, 8, 321)
    assert float(population.sd) == pytest.approx(1)
    slope, intercept = (np.asarray(x) for x in items[:2])
    eta = nodes[:, None] * slope + intercept
    seen = np.where(train, table.values, 0)
    height = seen @ eta.T - train @ np.logaddexp(0, eta).T - nodes**2 / 2
    weight = np.exp(height - logsumexp(height, axis=1, keepdims=True))
    chance = model.joint(train).chance
    # The nodes end at 5 standard deviations, beyond which the population has 6e-7.
    np.testing.assert_allclose(chance, weight @ expit(eta), atol=2e-6, rtol=0)


def test_predicted_responses_are_not_used(table):
    """Chances are the same, to the bit, whatever the responses to predict are."""
    split = splits.block(table, key=2)
    flipped = np.where(split.train, table.values, 1 - table.values)
    other = predictor(table.replace(values=flipped.astype(np.int8)), "2pl")
    # A predictor of its own: nodes are those of its first fit.
    model = predictor(table, "2pl")
    assert (other.joint(split.train).chance == model.joint(split.train).chance).all()
    staged = model.staged(split)
    assert (other.staged(split) == staged).all()
    # The first stage uses no response of new subjects, nor of new items.
    old = ~split.new_subjects[:, None] & ~split.new_items
    masked = split._replace(train=split.train & old)
    corner = np.ix_(~split.new_subjects, ~split.new_items)
    assert (model.staged(masked)[corner] == staged[corner]).all()


def test_two_stages_without_new_subjects_and_items_are_one(table, model):
    """With everything exposed that is not predicted, rows and columns are entries."""
    entry = splits.entry(table)
    assert (model.staged(entry) == model.joint(entry.train).chance).all()


def test_schemes_against_the_truth_and_baselines(table, truth):
    """The 2PL is between additive effects and the chances that responses were drawn by.

    Of 1,800 to 6,300 predicted responses, with the same split for all.
    """
    schemes = {
        "entry": splits.entry,
        "rows": partial(splits.rows, share=0.5),
        "columns": partial(splits.columns, share=0.5),
        "L": partial(splits.block, share=(0.5, 0.5)),
    }
    models = {"2pl": "2pl", "truth": lambda part: truth}
    result = generalise(table, schemes, models, key=3)
    rows = {(x["scheme"], x["model"], x["stages"]): x for x in result.table.to_pylist()}
    for scheme in schemes:
        for name in ("auc", "log_score"):
            best = rows[scheme, "truth", "joint"][name]
            additive = rows[scheme, "additive", "baseline"][name]
            assert best > rows[scheme, "2pl", "joint"][name] > additive
            if scheme != "entry":
                staged = rows[scheme, "2pl", "staged"][name]
                joint = rows[scheme, "2pl", "joint"][name]
                assert best > staged and abs(staged - joint) < 0.02
        row = rows[scheme, "2pl", "joint"]
        assert row["auc_lower"] < row["auc"] < row["auc_upper"]
        assert row["gain"] == pytest.approx(
            row["auc"] - rows[scheme, "additive", "baseline"]["auc"]
        )
        # A mean of items does not separate the items of one subject, nor the reverse.
        assert rows[scheme, "items", "baseline"]["auc_items"] == 0.5
        assert rows[scheme, "subjects", "baseline"]["auc_subjects"] == 0.5
    assert not result.warnings
    assert "by truth (joint)" in result.sentences[0]


def test_one_exposed_response_orders_between_item_means_and_many(table, model):
    """Of a new subject of whom one response is seen (S7)."""
    result = generalise(
        table, {"rows": partial(splits.rows, share=0.5, exposure=1e-6)}, ["2pl"]
    )
    areas = {(x["model"], x["stages"]): x["auc"] for x in result.table.to_pylist()}
    gain = areas["2pl", "staged"] - areas["items", "baseline"]
    whole = generalise(table, ["entry"], ["2pl"]).table.to_pylist()
    most = whole[0]["auc"] - next(x["auc"] for x in whole if x["model"] == "items")
    assert 0 < gain < most


def test_baselines_of_training_responses(table):
    right, count = cells_of(table)
    train = splits.entry(table).train
    train[3] = False
    chances = baselines(right, count, train)
    mean = right[train].mean()
    assert chances.mean[0, 0] == pytest.approx(mean)
    assert chances.subjects[3, 0] == pytest.approx(mean)
    item = (right[train[:, 7], 7].sum() + mean) / (train[:, 7].sum() + 1)
    assert chances.items[0, 7] == pytest.approx(item)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"schemes": ["row"]}, "no scheme 'row'; there are entry, rows"),
        ({"schemes": []}, "no scheme is named"),
        ({"models": ["9pl"]}, "no model '9pl'; there are"),
        ({"models": ["2pl:3"]}, "model '2pl:3': only factor has a number"),
        ({"models": {"x": {}}}, "settings of 'x' have no model"),
        ({"models": {"x": lambda part: np.ones(3)}}, "a predictor returned shape (3,)"),
        ({"repeats": 0}, "repeats 0: give 1 or more"),
        ({"level": 95}, "level is between 0 and 1"),
        ({"schemes": ["temporal"]}, "subjects have no column 'date'"),
    ],
)
def test_bad_input_is_refused_in_one_line(table, arguments, message):
    with pytest.raises(ValueError) as refused:
        generalise(table, **{"schemes": ["entry"], "models": ["1pl"], **arguments})
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_scores_are_refused():
    table = irtjax.ResponseTable.from_arrays(np.random.default_rng(0).random((5, 6)))
    with pytest.raises(ValueError, match="these are continuous: choose a 0/1 metric"):
        generalise(table)
