"""Score and Wald tests of items: derivatives, levels, and planted items."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from irtjax.validity.fitted_curves import FittedCurves
from irtjax.validity.limited_information import CategoryCurves
from irtjax.validity.nested_tests import (
    guess_scores,
    slope_scores,
    slope_wald,
    subject_scores,
)

NODES = np.linspace(-5, 5, 81)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
NUM_SUBJECTS, NUM_ITEMS = 4000, 20


def fitted_2pl(a, d, equal=False):
    """A 2PL at its parameters; with `equal` slopes of one standard deviation a."""
    p = expit(a[:, None] * NODES + d[:, None])
    slope = p * (1 - p)
    both = lambda x: np.stack([-x, x], 2)
    columns = [slope] if equal else [slope * NODES, slope]
    size = len(columns)
    curves = CategoryCurves(
        both(p),
        both(np.stack(columns, -1)),
        both(slope * NODES),
        np.arange(2.0),
        np.ones((a.size, 2), bool),
    )
    curves = curves._replace(probabilities=np.stack([1 - p, p], 2))
    numbers = np.arange(a.size * size).reshape(a.size, size)
    rows = np.column_stack([a, d])[:, -size:]
    # Equal slopes are 1: nodes and their weights have the standard deviation.
    nodes = NODES * a[0] if equal else NODES
    return FittedCurves(None, rows, curves, nodes, WEIGHTS, numbers, equal)


def responses(a, d, guess=0.0, seed=0):
    """Right and wrong responses, of which a tenth is missing."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(NUM_SUBJECTS, 1))
    chance = guess + (1 - guess) * expit(a * theta + d)
    seen = rng.random(chance.shape) < 0.9
    return (rng.random(chance.shape) < chance) * seen, seen


def test_scores_are_derivatives_of_the_likelihood():
    rng = np.random.default_rng(2)
    a, d = np.array([0.7, 1.4, 2.0]), np.array([-1.0, 0.2, 0.8])
    values, seen = rng.integers(0, 2, (5, 3)), rng.random((5, 3)) < 0.8

    def log_likelihood(d):
        p = expit(a * NODES[:, None] + d)[:, None]
        cells = np.where(seen, np.where(values == 1, p, 1 - p), 1.0)
        return np.log(WEIGHTS @ cells.prod(-1))

    fitted = fitted_2pl(a, d)
    p = fitted.curves.probabilities[..., 1]
    scores = subject_scores(
        values,
        seen,
        fitted.likelihood(values, seen).posterior(),
        p,
        (p * (1 - p))[..., None],
    )
    for j, step in enumerate(1e-5 * np.eye(3)):
        slope = (log_likelihood(d + step) - log_likelihood(d - step)) / 2e-5
        np.testing.assert_allclose(scores[:, j, 0], slope, atol=1e-8)


def test_slopes_of_their_own():
    rng = np.random.default_rng(3)
    a, d = np.full(NUM_ITEMS, 1.3), rng.normal(size=NUM_ITEMS)
    steep = a.copy()
    steep[0] = 2.0
    z, step = slope_scores(fitted_2pl(a, d, equal=True), *responses(steep, d))
    # One step from 1.3 to 2.0, a ratio of 1.54, and errors of .06.
    assert z[0] > 4 and 0.3 < step[0] < 0.8
    # 19 items without one: above 1.96 at most 4 (chance .0020 of 5), mean square
    # within three errors of 1.
    assert (np.abs(z[1:]) > 1.96).sum() <= 4
    assert abs(np.mean(z[1:] ** 2) - 1) < 3 * np.sqrt(2 / 19)
    # At the true parameters of the larger model the errors alone are tested.
    wald = slope_wald(fitted_2pl(steep, d), *responses(steep, d))
    assert wald.degrees == NUM_ITEMS - 1
    assert wald.z[0] > 4 and wald.p_value < 0.01
    equal = slope_wald(fitted_2pl(a, d), *responses(a, d))
    assert equal.statistic < 1e-12 and equal.p_value == 1


def test_guesses():
    rng = np.random.default_rng(4)
    a, d = np.exp(0.2 * rng.normal(size=NUM_ITEMS)) * 1.5, rng.normal(size=NUM_ITEMS)
    guess = np.where(np.arange(NUM_ITEMS) < 2, 0.3, 0.0)
    d[:2] = -2.0
    data = responses(a, d, guess)
    for j in range(2):
        # The 2PL nearest to the 3PL, over the population: what a fit tends to.
        chance = 0.3 + 0.7 * expit(a[j] * NODES + d[j])

        def loss(x, chance=chance):
            eta = x[0] * NODES + x[1]
            return WEIGHTS @ (np.logaddexp(0, eta) - chance * eta)

        a[j], d[j] = minimize(loss, [1.0, 0.0]).x
    z, step = guess_scores(fitted_2pl(a, d), *data)
    assert (z[:2] > 3).all() and (step[:2] > 0.1).all()
    assert (z[2:] > 1.645).sum() <= 4
    assert abs(np.mean(z[2:] ** 2) - 1) < 3 * np.sqrt(2 / 18)
