"""Simulated subjects of another population than that of the bank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.adaptive import misfit_study
from irtjax.adaptive.populations import population_of
from irtjax.models.model import Population
from tests.adaptive.test_adaptive_factors import POPULATION
from tests.adaptive.test_adaptive_factors import bank_of as factor_bank
from tests.adaptive.test_misfit import rasch_bank
from tests.small_fits import small_fit

KEY = jax.random.key(3)


def coverage(bank, count=2000, **population):
    tests = irtjax.simulate_tests(bank, count, key=KEY, num_items=9, **population)
    return tests.coverage(), tests


def test_intervals_cover_less_often_in_a_shifted_population():
    bank = rasch_bank(9)
    own, tests = coverage(bank)
    # 2,000 tests: four binomial standard errors, and .02 for posteriors of nine
    # responses, which are not normal.
    assert abs(own - 0.95) < 4 * (0.95 * 0.05 / 2000) ** 0.5 + 0.02
    one, moved = coverage(bank, population=(1.5, 1))
    two, far = coverage(bank, population=(3, 1))
    assert two < 0.4 < one < own - 0.05
    for mean, found in ((1.5, moved), (3, far)):
        # The mean and sd of 2,000 draws, four standard errors.
        assert abs(found.truth.mean() - mean) < 4 / 2000**0.5
        assert abs(found.truth.std() - 1) < 4 / 4000**0.5
    # All items have one difficulty. EAP is about the ability times reliability.
    assert (far.ability[:, -1] - far.truth).mean() < -1
    # The population of the bank is the default; abilities are what is passed on.
    same, _ = coverage(bank, population=(0, 1))
    given, _ = coverage(bank, ability=far.truth)
    assert same == own and given == two
    assert (
        coverage(bank, population=Population(jnp.array(3.0), jnp.array(1.0)))[0] == two
    )
    assert abs(tests.coverage(0.5) - 0.5) < 0.15


@pytest.mark.slow
def test_intervals_of_several_abilities_cover_less_often_too():
    bank = factor_bank()
    own, tests = coverage(bank, 500)
    shifted, far = coverage(bank, 500, population=([2.5, 2.5], 1))
    assert abs(own - 0.95) < 4 * (0.95 * 0.05 / 500) ** 0.5 + 0.03
    assert shifted < own - 0.1
    assert far.factors is not None and tests.factors is not None
    theta = far.factors.truth
    assert np.abs(theta.mean(0) - 2.5).max() < 4 / 500**0.5
    # Correlations are those of the bank.
    known = np.asarray(POPULATION.covariance)
    sd = np.sqrt(np.diagonal(known))
    r = (known / np.outer(sd, sd))[0, 1]
    assert abs(np.corrcoef(theta.T)[0, 1] - r) < 4 * (1 - r**2) / 500**0.5
    # The truth is the expected score of these abilities, not of those of the bank.
    assert far.truth.mean() > tests.truth.mean() + 0.1


def test_populations_of_several_abilities():
    bank = factor_bank()
    known = np.asarray(bank.spread)
    plain = population_of(bank, (0.5, 2))
    np.testing.assert_allclose(plain.mean, [0.5, 0.5])
    own = np.sqrt(np.diagonal(known))
    np.testing.assert_allclose(plain.covariance, 4 * known / np.outer(own, own))
    covariance = np.array([[2.0, -0.3], [-0.3, 1.0]])
    full = population_of(bank, ([1, 2], covariance))
    np.testing.assert_allclose(full.covariance, covariance)
    np.testing.assert_allclose(population_of(bank, full).covariance, covariance)


@pytest.mark.parametrize(
    ("several", "given", "match"),
    [
        (False, 3, "give a mean and a standard deviation"),
        (False, (0, 1, 2), "give a mean and a standard deviation"),
        (False, (0, 0), "0 is not above 0"),
        (False, ([0, 1], 1), "has one ability, give two numbers"),
        (False, (float("nan"), 1), "not finite"),
        (False, Population(jnp.array(0.0), jnp.array(1.0), jnp.zeros(3)), "histogram"),
        (True, ([0, 0, 0], 1), "give 2 means"),
        (True, (0, [1, -1]), "not above 0"),
        (True, (0, [[1, 2], [2, 1]]), "not symmetric and positive definite"),
    ],
)
def test_what_is_no_population_is_refused(several, given, match):
    bank = factor_bank() if several else rasch_bank(9)
    with pytest.raises(ValueError, match=match):
        irtjax.simulate_tests(bank, 5, key=KEY, num_items=3, population=given)


def test_recorded_and_given_abilities_have_no_other_population():
    options = dict(key=KEY, num_items=3, population=(0, 1))
    with pytest.raises(ValueError, match="leave ability out"):
        irtjax.simulate_tests(rasch_bank(9), ability=np.zeros(4), **options)
    with pytest.raises(ValueError, match="leave replay out"):
        irtjax.simulate_tests(rasch_bank(9), replay=0, **options)


@pytest.mark.slow
def test_a_study_of_misfit_has_another_population():
    options = dict(key=KEY, sizes=[0], draws=2, num_items=5)
    own, other = (
        misfit_study(small_fit(), 200, **options, population=x)
        for x in (None, (-2.5, 1))
    )
    assert other["coverage"][0].as_py() < own["coverage"][0].as_py() - 0.05
    assert other["bias"][0].as_py() > own["bias"][0].as_py() + 0.2
