"""Score tests of asymptotes: against derivatives, and their levels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

from irtjax.data.stored_cells import DenseCells
from irtjax.validity.asymptotes import (
    GroupedResponses,
    binomial_quantiles,
    by_subjects,
    drawn_test,
    score_test,
)


def test_the_score_of_an_asymptote_is_the_derivative_of_the_likelihood():
    """By autodiff at the fitted curve, and the variance by the inverse information."""
    random = np.random.default_rng(2)
    theta = random.standard_normal(2000)
    chance = 0.3 + 0.7 * expit(1.3 * theta - 0.4)
    right = (random.random(2000) < chance).astype(float)
    there = random.random(2000) < 0.8

    def chances(x):
        return x[2] + (1 - x[2]) * jax.nn.sigmoid(x[0] * theta + x[1])

    def log_likelihood(x):
        p = chances(x)
        return jnp.sum(there * (right * jnp.log(p) + (1 - right) * jnp.log1p(-p)))

    guess = 0.1
    best = minimize(lambda x: -log_likelihood(jnp.array([*x, guess])), [1.0, 0.0])
    point = jnp.array([*best.x, guess])
    slopes, p = jax.jacobian(chances)(point), chances(point)
    covariance = jnp.linalg.inv(slopes.T @ (slopes * (there / (p * (1 - p)))[:, None]))
    gradient = jax.grad(log_likelihood)(point)[2]
    cells = GroupedResponses(
        (right * there)[None],
        there[None].astype(float),
        theta,
        lambda chance, slopes: (chance, slopes),
        (np.array([1.0]), np.array([0.0])),
        np.array([guess]),
    )
    found = score_test(cells)
    step = float(gradient * covariance[2, 2])
    assert found.estimate[0] == pytest.approx(guess + step, abs=2e-3)
    # The sum is skewed, which moves the tail by a share.
    tail = stats.norm.sf(float(gradient * covariance[2, 2] ** 0.5))
    assert found.p_value[0] == pytest.approx(tail, rel=0.5)
    assert found.p_value[0] < 0.05


@pytest.mark.parametrize("guess", [0.0, 0.25])
def test_asymptotes_subject_by_subject_where_answers_are_missing(guess):
    """300 items, a tenth known to half of the subjects; five binomial errors."""
    random = np.random.default_rng(9)
    subjects, items = 1500, 300
    theta = random.standard_normal((subjects, 1))
    slope, intercept = random.uniform(0.8, 2, items), random.standard_normal(items)
    leaked = np.arange(items) < 30
    slope[leaked], intercept[leaked] = 2.0, -2.0
    chance = guess + (1 - guess) * expit(slope * theta + intercept)
    knows = leaked & (random.random((subjects, items)) < 0.5)
    values = (knows | (random.random(chance.shape) < chance)).astype(np.int8)
    observed = random.random(values.shape) < 0.8
    observed[100:, 299] = False
    values *= observed
    error = np.full(subjects, 0.2)
    ability = theta[:, 0] + 0.2 * random.standard_normal(subjects)
    ability = ability / (1 + 0.2**2)
    found = by_subjects(
        DenseCells(values, observed),
        ability,
        error,
        (slope, intercept, np.full(items, guess), np.ones(items)),
        np.full(items, guess),
    )
    sound = found.p_value[30:299]
    for level in (0.05, 0.25):
        bound = 5 * np.sqrt(level * (1 - level) / sound.size)
        assert abs(np.mean(sound <= level) - level) < bound
    assert np.mean(found.p_value[leaked] <= 0.01) > 0.5
    assert np.median(found.estimate[leaked]) > guess + 0.1
    # Too few answers.
    assert np.isnan(found.p_value[299]) and np.isnan(found.estimate[299])


@pytest.mark.parametrize("guess", [pytest.param(0.0, marks=pytest.mark.slow), 0.25])
def test_asymptotes_at_abilities_from_the_same_answers(guess):
    """Short tests: an error of 10 % of the level 0.05, five of which are allowed above.

    Where the error of abilities is left out 1.6 times too many are at or below 0.05
    with guessing; weak subjects' abilities are the less sure for it. Without it the
    test is careful (0.8 of the level).
    """
    nodes = np.linspace(-5, 5, 81)
    tested = []
    for replication in range(70):
        random = np.random.default_rng([11, replication])
        theta = random.standard_normal((1000, 1))
        slope, intercept = random.uniform(0.8, 2, 30), random.standard_normal(30)
        items = slope, intercept, np.full(30, guess), np.ones(30)
        chance = guess + (1 - guess) * expit(slope * theta + intercept)
        observed = random.random(chance.shape) < 0.8
        values = ((random.random(chance.shape) < chance) & observed).astype(np.int8)
        curve = guess + (1 - guess) * expit(np.outer(slope, nodes) + intercept[:, None])
        place = values @ np.log(curve) + (observed - values) @ np.log1p(-curve)
        weight = np.exp(place - place.max(1, keepdims=True) - 0.5 * nodes**2)
        weight /= weight.sum(1, keepdims=True)
        ability = weight @ nodes
        error = np.sqrt(weight @ nodes**2 - ability**2)
        error[0] = np.nan  # A subject without an error counts for nothing.
        scored = DenseCells(values, observed), ability, error
        tested.append(by_subjects(*scored, items, np.full(30, guess)).p_value)
    p_value = np.concatenate(tested)
    for level in (0.01, 0.05, 0.25):
        error = np.sqrt(level * (1 - level) / p_value.size)
        assert 0.5 * level < np.mean(p_value <= level) < level + 5 * error


def test_hard_items_are_not_contaminated_without_right_responses_of_the_weak():
    """A few right responses of the strongest group, and sizes over hard items."""
    theta, count = np.array([-1.2, -0.3, 0.4, 1.3]), np.array([33.0, 32, 31, 60])
    through = lambda chance, slopes: (np.clip(chance, 1e-9, 1 - 1e-9), slopes)
    test = lambda right, start: score_test(
        GroupedResponses(right, count, theta, through, start, np.zeros(len(right)))
    )
    right = np.array([[0.0, 0, 0, 4], [0, 0, 0, 22], [6, 5, 7, 50]])
    start = np.full(3, 2.1), np.array([-5.0, -3.0, -1.0])
    found = test(right, start)
    assert (found.p_value[:2] == 1).all() and found.p_value[2] < 0.01
    random, size = np.random.default_rng(4), 4000
    slope, hard = random.uniform(1.5, 4, size), random.uniform(0.8, 2, size)
    chance = expit(slope[:, None] * (theta - hard[:, None]))
    right = random.binomial(count.astype(int), chance).astype(float)
    p_value = test(right, (slope, -slope * hard)).p_value[right.sum(1) > 0]
    # At most nominal, within five binomial errors: discrete responses give less.
    for level in (0.05, 0.01, 0.001):
        most = level + 5 * np.sqrt(level * (1 - level) / p_value.size)
        assert np.mean(p_value <= level) <= most, level


def test_p_values_of_easy_items_are_drawn():
    """One or few wrong responses, not of the weakest group, are no contamination."""
    theta = np.array([-1.4, -0.7, 0.0, 0.6, 1.4])
    count = np.array([36.0, 64, 60, 37, 53])
    through = lambda chance, slopes: (np.clip(chance, 1e-9, 1 - 1e-9), slopes)

    def test(right, start):
        cells = GroupedResponses(
            right, count, theta, through, start, np.zeros(len(right))
        )
        return drawn_test(cells)

    wrong = np.array([[0.0, 1, 0, 0, 0], [0, 3, 0, 0, 0], [15, 55, 30, 6, 0]])
    start = np.full(3, 1.0), np.array([5.6, 4.7, 1.0])
    p_value = test(count - wrong, start).p_value
    assert (p_value[:2] > 0.02).all() and p_value[2] < 0.005
    random, size = np.random.default_rng(5), 1000
    slope, easy = np.exp(0.4 * random.normal(size=size)), random.uniform(2.5, 5.5, size)
    chance = expit(slope[:, None] * theta + easy[:, None])
    right = random.binomial(count.astype(int), chance).astype(float)
    varied = right.sum(1) < count.sum()
    right, slope, easy = right[varied], slope[varied], easy[varied]
    p_value = test(right, (slope, easy)).p_value
    for level in (0.05, 0.01):
        most = level + 5 * np.sqrt(level * (1 - level) / p_value.size)
        assert np.mean(p_value <= level) <= most, level
    # Undrawn they are far too small.
    guess = np.zeros(len(easy))
    normal = score_test(
        GroupedResponses(right, count, theta, through, (slope, easy), guess)
    )
    assert np.mean(normal.p_value <= 0.01) > 0.02


def test_drawn_binomial_numbers():
    """Quantiles at uniform numbers are scipy's."""
    uniform = np.random.default_rng(0).random((50, 3))
    count, share = np.array([5, 40, 7]), np.array([0.3, 0.01, 1 - 1e-9])
    found = binomial_quantiles(uniform, count, share)
    assert (found == stats.binom.ppf(uniform, count, share)).all()
