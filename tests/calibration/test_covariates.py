"""New subjects of fits with covariates: priors by these, responses or none."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax.calibration.covariates import read_priors

SUBJECTS, ITEMS = 60, 20


@pytest.fixture(scope="module")
def fit():
    """A Rasch fit of abilities that a covariate explains in part."""
    rng = np.random.default_rng(0)
    size = rng.normal(3, 1, SUBJECTS)
    theta = 1.5 * (size - 3) + 0.7 * rng.normal(size=SUBJECTS)
    right = rng.random((SUBJECTS, ITEMS)) < expit(
        theta[:, None] - np.linspace(-2, 2, ITEMS)
    )
    table = irtjax.ResponseTable.from_arrays(right.astype(float))
    return irtjax.fit(
        table, "hierarchical", item_model="rasch", subject_covariates={"size": size}
    )


def responses(fit, right):
    """A table of new subjects `[subjects, items]`, NaN where missing."""
    names = [f"new {k}" for k in range(len(right))]
    return irtjax.ResponseTable.from_arrays(right, subjects=names, items=fit.item_names)


def test_no_responses_give_the_prior(fit):
    size = [1.0, 3.0, 6.0]
    scored = irtjax.score(
        fit,
        responses(fit, np.full((3, ITEMS), np.nan)),
        subject_table={"size": size},
    )
    structure = fit.structure
    gap = np.array(size) - structure.covariate_means[0]
    _, (effect,), (error,) = structure.subject_effects
    np.testing.assert_allclose(scored.table["ability"], effect * gap, rtol=1e-12)
    sd = np.sqrt(structure.general_variance + (error * gap) ** 2)
    np.testing.assert_allclose(scored.table["ability_se"], sd, rtol=1e-12)
    assert set(scored.table["flags"].to_pylist()) == {
        "no responses: mean and SD of the population"
    }


@pytest.mark.parametrize("scoring", ["eap", "map"])
def test_few_responses_are_as_by_quadrature(fit, scoring):
    right = np.full((3, ITEMS), np.nan)
    right[:, [2, 9, 15]] = [[1, 1, 0], [0, 0, 0], [1, 1, 1]]
    size = {"size": [1.0, 4.0, 5.5]}
    scored = irtjax.score(
        fit, responses(fit, right), scoring=scoring, subject_table=size
    )
    _, prior = read_priors(fit, size, ["a", "b", "c"])
    theta = np.linspace(-15, 15, 30001)
    chance = expit(theta[:, None] + np.asarray(fit.parameters.items.intercept, float))
    for k, row in enumerate(right):
        seen = ~np.isnan(row)
        cells = np.log(np.where(row[seen] == 1, chance[:, seen], 1 - chance[:, seen]))
        log = cells.sum(axis=1) - (theta - prior.mean[k]) ** 2 / prior.variance[k] / 2
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        mean = weight @ theta
        ability = scored.table["ability"][k].as_py()
        if scoring == "map":
            # Nodes of the reference are 0.001 apart.
            assert ability == pytest.approx(theta[log.argmax()], abs=1e-3)
        else:
            assert ability == pytest.approx(mean, abs=1e-6)
            sd = np.sqrt(weight @ (theta - mean) ** 2)
            assert scored.table["ability_se"][k].as_py() >= sd - 1e-6


def test_many_responses_outweigh_covariates(fit):
    rng = np.random.default_rng(1)
    right = rng.random(ITEMS) < 0.6
    gaps = []
    for times in (1, 10, 100):
        table = responses(fit, np.where(right, times, 0.0)[None])
        counts = irtjax.ResponseTable.from_arrays(
            table.values,
            trials=np.full((1, ITEMS), times),
            subjects=["new"],
            items=fit.item_names,
        )
        scores = [
            irtjax.score(fit, counts, subject_table=x).table["ability"][0].as_py()
            for x in ({"size": [6.0]}, None)
        ]
        gaps.append(abs(scores[0] - scores[1]))
    assert gaps[0] > 10 * gaps[2] > 0 and gaps[1] < gaps[0]
    # The prior weighs about 1 in 100 responses to each of 20 items.
    assert gaps[2] < 0.05


def test_new_subjects_are_predicted_from_covariates(fit, tmp_path):
    """The expected response of N(m, v) to an item, by quadrature."""
    path = tmp_path / "models.csv"
    path.write_text("subject,size,maker\nsubject 1,3,a\nlarge,5,a\nsmall,1.5,b\n")
    predicted = irtjax.predict(fit, subject_table=path, item_names=["item 4"])
    assert predicted.subjects.tolist() == ["large", "small"]
    _, prior = read_priors(fit, {"size": [5, 1.5]}, ["large", "small"])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    records = fit.parameters.items
    for k in range(2):
        theta = prior.mean[k] + prior.sd[k] * nodes
        chance = expit(theta + float(records.intercept[3])) @ (weights / weights.sum())
        # The item's own error, with a standard deviation of 0.3, is averaged over too.
        assert predicted.expected[k, 0] == pytest.approx(chance, abs=0.01)
    with pytest.raises(ValueError, match="all 1 subjects are in the fit"):
        irtjax.predict(fit, subject_table={"subject": ["subject 1"], "size": [1]})
    with pytest.raises(ValueError, match="no column 'subject'"):
        irtjax.predict(fit, subject_table={"size": [1]})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"length": [1.0, 2.0]}, "unknown covariate 'length'; the fit has size"),
        ({"size": [1.0]}, "'size' has 1 values, not one for each of the 2 subjects"),
        ({"size": [1.0, None]}, "column 'size', 'new 1': no value"),
        ({"size": ["big", "small"]}, "column 'size', 'new 0': 'big' is not a number"),
        (
            {"subject": ["new 0", "x"], "size": [1.0, 2.0]},
            r"no row for subject 'new 1' \(1 of 2 are missing\)",
        ),
        ({"subject": ["new 0", "new 1"]}, "no column 'size'"),
    ],
)
def test_tables_that_do_not_suit_are_refused_in_a_line(fit, table, message):
    data = responses(fit, np.ones((2, ITEMS)))
    with pytest.raises(ValueError, match=message) as caught:
        irtjax.score(fit, data, subject_table=table)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(
        "subject_table"
    )


def test_fits_without_covariates_and_scores_without_priors_are_refused(fit):
    data = responses(fit, np.ones((1, ITEMS)))
    with pytest.raises(ValueError, match="'ml' does not use covariates"):
        irtjax.score(fit, data, scoring="ml", subject_table={"size": [1.0]})
    plain: Any = SimpleNamespace(structure=None)
    with pytest.raises(ValueError, match="the fit has no covariates of subjects"):
        read_priors(plain, {"size": [1.0]}, ["new"])


def test_priors_of_abilities_by_group_shift_with_their_mean():
    """With slopes of 1, a mean of m is intercepts higher by m."""
    from irtjax import inference
    from irtjax.models.catalogue import rasch

    model = rasch()
    rng = np.random.default_rng(2)
    items = model.constrain(jnp.asarray(rng.normal(size=(8, 1))))
    group = jnp.asarray(np.repeat([0, 1], 4))
    own = jnp.array([[0.5, 0.1], [0.1, 0.3]])
    right, seen = rng.random((3, 8)) < 0.6, np.ones((3, 8), bool)
    seen[2] = False
    data = irtjax.Responses(jnp.asarray(right.astype(float)), jnp.asarray(seen))
    score = lambda items, mean=None: inference.score_groups(
        model.family, items, group, own, data, variance=1.2, mean=mean
    )
    shifted = score(items, np.full(3, 0.7))
    plain = score(items._replace(intercept=items.intercept + 0.7))
    np.testing.assert_allclose(shifted.ability, plain.ability + 0.7, atol=1e-5)
    np.testing.assert_allclose(shifted.general, plain.general + 0.7, atol=1e-5)
    moves = inference.moves_of_prior(shifted, np.asarray(own), 1.2)
    # Without responses abilities move with the mean of their prior, else less.
    np.testing.assert_allclose(moves[2], 1, rtol=1e-5)
    assert (moves[:2] < 1).all() and (moves > 0).all()


def test_tests_begin_with_the_prior_of_covariates(fit):
    """95 % intervals of simulated subjects cover; one begins at its prior."""
    rng = np.random.default_rng(0)
    _, prior = read_priors(fit, {"size": [5.0]}, ["new"])
    begun = irtjax.AdaptiveTest(fit, num_items=5, subject_table={"size": 5.0})
    assert begun.ability == pytest.approx(prior.mean[0], abs=1e-5)
    assert begun.standard_error == pytest.approx(prior.sd[0], abs=1e-4)
    many = {"subject": [f"s{k}" for k in range(200)], "size": rng.normal(3, 1.5, 200)}
    tests = irtjax.simulate_tests(fit, key=0, num_items=4, subject_table=many)
    assert tests.subjects[0] == "s0" and tests.prior[0].shape == (200,)
    # The binomial standard deviation at 200 subjects is 0.015.
    assert tests.coverage() == pytest.approx(0.95, abs=0.05)
    # Four items and covariates have less error than four items alone.
    plain = irtjax.simulate_tests(fit, key=0, num_items=4, ability=tests.truth)
    assert tests.rmse()[-1] < 0.9 * plain.rmse()[-1]
    with pytest.raises(ValueError, match="subject_table has 200 subjects: a test is"):
        irtjax.AdaptiveTest(fit, subject_table=many)
    with pytest.raises(ValueError, match="leave ability and population out"):
        irtjax.simulate_tests(fit, key=0, population=(0, 1), subject_table=many)
