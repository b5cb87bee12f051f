"""Rules of selection against their definitions, by brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from irtjax.adaptive import Design, FactorBank, merits, start
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.models.families.logistic import Binary
from irtjax.models.model import Model, Population
from tests.adaptive.test_adaptive_factors import bank_of as factor_bank
from tests.adaptive.test_adaptive_factors import run_of
from tests.adaptive_cases import KEY, LENGTH, SIZE, THETA, bank_of

SLOW = pytest.mark.slow


def state_of(bank, num_given: int = 3):
    """A state after some responses, with a posterior that is not normal."""
    state = start(bank, Design.create(LENGTH), key=KEY)
    log_posterior = bank.log_prior - 0.8 * jnp.abs(bank.theta - 0.6) + 0.3 * bank.theta
    ability = jax.nn.softmax(log_posterior) @ bank.theta
    count = jnp.asarray(num_given, jnp.int32)
    return state._replace(posterior=log_posterior, ability=ability, num_given=count)


def entropy(p):
    return -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0), -1)


@SLOW
@pytest.mark.parametrize("name", ["2pl", "graded"])
def test_mutual_information_is_the_expected_decrease_of_entropy(name):
    bank = bank_of(name)
    state = state_of(bank)
    prior = np.asarray(jax.nn.softmax(state.posterior))
    chance = np.exp(np.asarray(bank.table))
    joint = chance * prior
    marginal = joint.sum(-1)
    after = np.sum(marginal * entropy(joint / marginal[..., None]), -1)
    got = bank.merit("mutual_information", state)
    # Entropies of order 4 are rounded to 1e-15 each.
    np.testing.assert_allclose(got, entropy(prior) - after, atol=1e-13)


def test_with_a_narrow_posterior_all_rules_order_items_as_information_does():
    bank = bank_of()
    state = state_of(bank)
    for width in (0.4, 0.2):
        log = -0.5 * ((bank.theta - 0.4) / width) ** 2
        weight = jax.nn.softmax(log)
        variance = float(weight @ (bank.theta - weight @ bank.theta) ** 2)
        got = bank.merit("mutual_information", state._replace(posterior=log))
        want = 0.5 * variance * bank.information(weight @ bank.theta)
        # The next term of the expansion is smaller by the variance.
        np.testing.assert_allclose(got, want, rtol=3 * variance, atol=1e-4 * width**2)


@pytest.mark.parametrize("num_given", [0, 3, 40])
def test_kl_is_its_integral(num_given):
    bank = bank_of()
    state = state_of(bank, num_given)
    reach = 3 * float(bank.sd) / np.sqrt(num_given + 1)
    here, step = float(state.ability), float(bank.theta[1] - bank.theta[0])
    got = np.asarray(bank.merit("kl", state))
    items = jax.tree.map(np.asarray, bank.items)

    def divergence(u, a, d):
        p, q = expit(a * here + d), expit(a * u + d)
        return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))

    for j in range(0, SIZE, 7):
        known = items.discrimination[j], items.intercept[j]
        want = quad(divergence, here - reach, here + reach, args=known, points=[here])
        # The stated error of interpolation, and as much again for the next order.
        assert got[j] == pytest.approx(want[0], rel=(step / reach) ** 2)


@SLOW
def test_an_impossible_category_is_no_nan():
    table = jnp.log(jnp.array([[[1.0, 1.0, 0.5], [0.0, 0.0, 0.5]]]))
    nodes = jnp.array([-1.0, 0.0, 1.0])
    weight = jnp.array([0.3, 0.4, 0.3])
    assert jnp.isfinite(merits.mutual_information(table, weight)).all()
    weight = merits.interval_weights(nodes, jnp.array(0.0), jnp.array(2.0))
    # Certainly right here, and half right at 1: log 2 over half the last interval.
    found = merits.kullback_leibler(table, weight, table[:, :, 1])
    assert float(found[0]) == pytest.approx(0.5 * np.log(2))


@SLOW
def test_mutual_information_of_several_abilities_is_that_of_the_plane():
    bank = factor_bank()
    state = start(bank, Design.create(LENGTH), key=KEY)
    covariance = jnp.array([[0.5, 0.2], [0.2, 0.4]])
    known = state.posterior._replace(
        mean=jnp.array([0.3, -0.4]), mode=jnp.zeros(2), covariance=covariance
    )
    got = bank.merit("mutual_information", state._replace(posterior=known))
    # A product rule over both abilities, of far more nodes.
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    pairs = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    weight = np.outer(weights, weights).ravel() / weights.sum() ** 2
    theta = np.asarray(known.mean) + pairs @ np.linalg.cholesky(covariance).T
    slopes, intercept = (np.asarray(x) for x in bank.items[:2])
    right = expit(theta @ slopes.T + intercept)
    chance = np.stack([1 - right, right], -1)
    want = entropy(np.tensordot(weight, chance, 1)) - weight @ entropy(chance)
    # What lies beyond 4.5 standard deviations: 7e-6 of the posterior.
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("num_given", [0, 8])
def test_kl_of_several_abilities_is_the_mean_over_an_ellipse(num_given):
    bank = factor_bank()
    state = start(bank, Design.create(LENGTH), key=KEY)
    mean, count = np.array([0.3, -0.4]), jnp.asarray(num_given, jnp.int32)
    known = state.posterior._replace(mean=jnp.asarray(mean), mode=jnp.zeros(2))
    got = bank.merit("kl", state._replace(posterior=known, num_given=count))
    # Midpoints of angles, and Gauss's nodes of the radius, for uniform points.
    angle = (np.arange(200) + 0.5) * np.pi / 100
    node, weight = np.polynomial.legendre.leggauss(60)
    radius, weight = (node + 1) / 2, weight * (node + 1) / 2
    disc = radius[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], -1)
    reach = 3 / np.sqrt(num_given + 1)
    around = mean + reach * disc @ np.linalg.cholesky(bank.spread).T
    slopes, intercept = (np.asarray(x) for x in bank.items[:2])
    p, q = (expit(x @ slopes.T + intercept) for x in (mean, around))
    divergence = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    want = np.tensordot(weight / weight.sum(), divergence.mean(axis=1), 1)
    np.testing.assert_allclose(got, want, rtol=1e-3)


def test_kl_of_one_factor_is_that_of_one_ability():
    one = bank_of()
    items = one.items._replace(discrimination=one.items.discrimination[:, None])
    population = Population(one.mean[None], one.sd[None])
    model = Model("factor", Binary(dims=1))
    several = FactorBank.create(model, items, population, composite=[1.0])
    state, other = state_of(one), start(several, Design.create(LENGTH), key=KEY)
    known = other.posterior._replace(mean=state.ability[None])
    other = other._replace(posterior=known, num_given=state.num_given)
    length = 2 * 3 * one.sd / np.sqrt(int(state.num_given) + 1)
    # The nodes of one ability have an error, see above.
    want, step = one.merit("kl", state) / length, one.theta[1] - one.theta[0]
    error = 2 * float(step / length) ** 2
    np.testing.assert_allclose(several.merit("kl", other), want, rtol=2 * error)


@SLOW
def test_tests_of_several_abilities_by_kl_end_as_those_by_information():
    last = lambda select: float(run_of(select).standard_error[:, -1].mean())
    assert last("kl") < 1.1 * last("information") < 0.95 * last("random")


@SLOW
@pytest.mark.parametrize("rule", ["mutual_information", "kl"])
def test_tests_by_these_rules_end_as_those_by_information(rule):
    errors = {}
    for select in (rule, "information", "random"):
        design = Design.create(LENGTH, select=select)
        tests = run_tests_jit(bank_of(), design, key=KEY, theta=THETA)
        assert len(set(np.asarray(tests.items[3]).tolist())) == LENGTH
        errors[select] = float(tests.standard_error[:, -1].mean())
    # Within 5 % of each other, and far from random items.
    assert errors[rule] < 1.05 * errors["information"] < 0.95 * errors["random"]
