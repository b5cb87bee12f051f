"""lz* of subjects: Snijders' formula and its level; S-X2; the effect of misfit."""

import numpy as np
from scipy.special import expit, ndtr

from irtjax.models.catalogue import two_parameter
from irtjax.models.families.logistic import LogisticItems
from irtjax.validity.item_fit import (
    NodeLikelihood,
    misfit_effect,
    rest_chances,
    rest_group_fit,
    score_group_fit,
)
from irtjax.validity.person_fit import response_fit

NODES = np.linspace(-5, 5, 101)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


def simulated(num_subjects, num_items, seed=0):
    """Responses, slopes and intercepts of a 2PL, and its chances at the nodes."""
    rng = np.random.default_rng(seed)
    a, d = np.exp(0.3 * rng.normal(size=num_items)), rng.normal(size=num_items)
    theta = rng.normal(size=(num_subjects, 1))
    values = (rng.random((num_subjects, num_items)) < expit(a * theta + d)).astype(int)
    right = expit(a[:, None] * NODES + d[:, None])
    data = NodeLikelihood(
        values,
        np.ones(values.shape, bool),
        np.stack([1 - right, right], -1),
        np.arange(2.0),
        NODES,
        WEIGHTS,
    )
    return data, a, d


def fit_of(data, a, d, theta):
    """Fit of subjects and items of a 2PL."""
    items = LogisticItems(a, d, np.zeros_like(a), np.ones_like(a))
    family = two_parameter().family
    return response_fit(family, items, theta, data.values, data.seen)


def test_lz_star_is_that_of_snijders():
    data, a, d = simulated(200, 20)
    theta = np.zeros(200)
    for _ in range(30):  # The mode of the posterior, prior N(0, 1).
        p = expit(a * theta[:, None] + d)
        slope = (data.values - p) @ a - theta
        theta = theta + slope / ((p * (1 - p)) @ a**2 + 1)
    p = expit(a * theta[:, None] + d)
    # W = sum (y - P) w with w = logit P; estimating equation r0 + sum (y - P) r = 0
    # with r = a, r0 = -theta; w~ = w - c r, c = sum P' w / sum P' r.
    w, slope = np.log(p / (1 - p)), a * p * (1 - p)
    c = (slope * w).sum(1) / (slope * a).sum(1)
    variance = ((w - c[:, None] * a) ** 2 * p * (1 - p)).sum(1)
    expected = (((data.values - p) * w).sum(1) - c * theta) / np.sqrt(variance)
    subjects, _ = fit_of(data, a, d, theta)
    np.testing.assert_allclose(subjects.lz_star, expected, atol=1e-8)


def test_lz_star_has_its_level_at_posterior_means():
    data, a, d = simulated(4000, 60)
    subjects, _ = fit_of(data, a, d, data.ability())
    # Of 4,000 subjects four binomial errors, and 60 items, of which l is skewed.
    for level in (0.05, 0.2):
        error = 4 * np.sqrt(level * (1 - level) / 4000)
        assert abs(np.mean(ndtr(subjects.lz_star) <= level) - level) < error + 0.01
    assert np.std(subjects.lz_star) > 0.97 > np.std(subjects.zh)


def test_misfit_and_its_effect():
    data, a, d = simulated(3000, 30, seed=1)
    chance = data.chance[..., 1].copy()
    # The model has three items harder than they are.
    chance[:3] = expit(a[:3, None] * NODES + d[:3, None] - 1)
    result = score_group_fit(data.values, chance, WEIGHTS, 0)
    assert (result.p_value[:3] < 1e-10).all()
    # Of 27 sound items at the true parameters none, 5 % binomial: at most 5 of 27.
    assert (result.p_value[3:] < 0.05).sum() <= 5
    # One logit is .12 to .24 of a share where the chance is .15 to .85; the sum of the
    # wrong items shifts the scores that the sound ones are compared within.
    assert (result.rmsd[:3] > 0.1).all() and result.rmsd[3:].max() < 0.05
    wrong = data._replace(chance=np.stack([1 - chance, chance], -1))
    effect = misfit_effect(wrong, np.arange(30) < 3, result.rmsd)
    assert (effect.misfitting, effect.left_out) == (3, 3)
    assert effect.places > 0 and 0.9 < effect.correlation < 1
    everything = misfit_effect(wrong, np.ones(30, bool), result.rmsd)
    assert everything.left_out == 15
    assert "the 15 items that misfit most (30 of 30 items misfit)" in str(everything)
    assert str(misfit_effect(wrong, np.zeros(30, bool), result.rmsd)) == (
        "0 of 30 items misfit"
    )


def with_missing(data, share):
    """The same responses, of which a share is missing."""
    seen = np.random.default_rng(2).random(data.values.shape) >= share
    return data._replace(seen=seen, values=data.values * seen)


def test_chances_given_the_other_responses():
    data = with_missing(simulated(50, 4)[0], 0.4)
    share = rest_chances(data)
    for j in range(4):
        others = data.posterior(np.arange(4) != j) @ data.chance[j, :, 1]
        seen = data.seen[:, j]
        np.testing.assert_allclose(share[seen, j], others[seen], rtol=1e-10)


def test_misfit_of_items_with_missing_responses():
    data, a, d = simulated(3000, 30, seed=1)
    data = with_missing(data, 0.4)
    result = rest_group_fit(data, 0)
    # All 16 groups are full. At the true parameters of 30 items at most 5 (chance .003
    # of 6), and the mean of 30 chi-squared numbers within four errors.
    np.testing.assert_array_equal(result.degrees, 16)
    assert (result.p_value < 0.05).sum() <= 5
    assert abs(result.s_x2.mean() - 16) < 4 * np.sqrt(2 * 16 / 30)
    right = expit(a[:3, None] * NODES + d[:3, None] - 1)
    chance = data.chance.copy()
    chance[:3] = np.stack([1 - right, right], -1)
    wrong = rest_group_fit(data._replace(chance=chance), 0)
    assert (wrong.p_value[:3] < 1e-10).all() and (wrong.rmsd[:3] > 0.1).all()
    assert (wrong.p_value[3:] < 0.05).sum() <= 5


def test_subjects_of_equal_responses_are_in_one_group():
    # Three items: at most 9 patterns of the two others. Rounding differs between right
    # and wrong responses, which would separate them.
    data = with_missing(simulated(3000, 3, seed=3)[0], 0.3)
    result = rest_group_fit(data, 0)
    assert (result.degrees <= 9).all() and (result.degrees >= 4).all()
    assert (result.p_value > 0.001).all()
