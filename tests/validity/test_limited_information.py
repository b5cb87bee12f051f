"""M2 and C2 against their definition, over all patterns of responses."""

import itertools

import numpy as np
import pytest

from irtjax.validity.limited_information import (
    CategoryCurves,
    Moments,
    limited_fit,
    noncentral_chance,
    rmsea,
)

STANDARD = np.linspace(-6, 6, 61)
WEIGHTS = np.exp(-(STANDARD**2) / 2) / np.exp(-(STANDARD**2) / 2).sum()


def partial_credit(items, num_categories):
    """Probabilities `[items, nodes, C]` of rows of a slope and C - 1 steps."""
    categories = np.arange(num_categories)
    slope, steps = items[:, :1], np.cumsum(items[:, 1:], 1)
    base = np.concatenate([np.zeros_like(slope), steps], 1)
    ability = slope[:, :, None] * STANDARD[:, None] * categories
    chance = np.exp(ability + base[:, None])
    return chance / chance.sum(-1, keepdims=True)


def curves_of(items, num_categories):
    """Curves with derivatives by central differences."""
    at = lambda x: partial_credit(x, num_categories)
    steps = 1e-5 * np.eye(items.shape[1])
    by_item = [(at(items + step) - at(items - step)) / 2e-5 for step in steps]
    # A larger standard deviation of ability is a larger slope of every item.
    by_scale = items[:, 0][:, None, None] * by_item[0]
    return CategoryCurves(
        at(items),
        np.stack(by_item, -1),
        by_scale,
        np.arange(num_categories, dtype=float),
        np.ones((len(items), num_categories), bool),
    )


def by_definition(curves, values, parameters, with_scale, share=None):
    """N e'C e, with the covariance of moments from all patterns of responses.

    `share` `[items]` of responses exist; `values` are -1 where they do not.
    """
    num_items, _, num_categories = curves.probabilities.shape
    first, second = np.triu_indices(num_items, 1)
    single = lambda y: (y[:, :, None] == np.arange(1, num_categories)) * 1.0
    pair = lambda y: y[:, first] * y[:, second]
    join = lambda z, yy: np.concatenate([z.reshape(len(z), -1), yy], 1)
    patterns = np.array([*itertools.product(range(num_categories), repeat=num_items)])
    cells = [curves.probabilities[j][:, patterns[:, j]] for j in range(num_items)]
    kinds = join(single(patterns), pair(patterns))
    mean = WEIGHTS @ np.prod(cells, 0) @ kinds
    size = parameters.max() + 1 + with_scale
    slopes = np.zeros((kinds.shape[1], size))
    for j in range(num_items):
        others = np.prod([cells[i] for i in range(num_items) if i != j], 0)
        for column, place in enumerate(parameters[j]):
            slope = curves.by_item[j, :, :, column][:, patterns[:, j]]
            slopes[:, place] += (WEIGHTS @ (others * slope)) @ kinds
        if with_scale:
            slope = curves.by_scale[j][:, patterns[:, j]]
            slopes[:, -1] += (WEIGHTS @ (others * slope)) @ kinds
    # Each response exists or not; errors of means over those that do.
    share = np.ones(num_items) if share is None else share
    states = np.array([*itertools.product(range(-1, num_categories), repeat=num_items)])
    exists = states >= 0
    part = lambda j, y: np.where(
        y < 0, 1 - share[j], share[j] * curves.probabilities[j][:, np.maximum(y, 0)]
    )
    chance = WEIGHTS @ np.prod([part(j, states[:, j]) for j in range(num_items)], 0)
    errors = join(single(states), pair(states)) - mean
    errors *= join(
        np.repeat((exists / share)[..., None], num_categories - 1, 2),
        pair(exists / share),
    )
    covariance = (errors * chance[:, None]).T @ errors
    seen = values >= 0
    count = join(np.repeat(seen[..., None], num_categories - 1, 2), pair(seen)).sum(0)
    sums = join(single(values), pair(np.where(seen, values, 0))).sum(0)
    gap = sums / count - mean
    inverse = np.linalg.inv(covariance)
    inner = inverse @ slopes
    part = gap @ inner
    total = gap @ inverse @ gap - part @ np.linalg.solve(slopes.T @ inner, part)
    return len(values) * total, len(gap) - size


def moments_of(values, codes):
    """Moments of responses, -1 where they are missing."""
    return Moments.of(values, codes, values >= 0)


@pytest.mark.parametrize(
    ("num_categories", "num_items", "equal_slopes"),
    [(2, 6, False), (2, 5, True), (3, 5, False), (4, 4, False)],
)
def test_m2_is_its_definition(num_categories, num_items, equal_slopes):
    rng = np.random.default_rng(1)
    items = rng.normal(size=(num_items, num_categories))
    items[:, 0] = 1.2 if equal_slopes else np.exp(0.5 * items[:, 0])
    curves = curves_of(items, num_categories)
    values = rng.integers(0, num_categories, (300, num_items))
    parameters = np.arange(items.size).reshape(items.shape)
    if equal_slopes:
        parameters = np.stack([np.full(num_items, -1), np.arange(num_items)], 1)
        plain = parameters[:, 1:]
        exact = curves._replace(by_item=curves.by_item[..., 1:])
    else:
        plain, exact = parameters, curves
    # Bad estimates, of which M2 is large: each part of it counts.
    expected = by_definition(exact, values, plain, equal_slopes)
    observed = moments_of(values, curves.codes)
    result = limited_fit(curves, WEIGHTS, observed, parameters, equal_slopes)
    assert result.degrees == expected[1]
    assert result.statistic == pytest.approx(expected[0], rel=1e-6)


@pytest.mark.parametrize(("num_categories", "num_items"), [(2, 5), (3, 4)])
def test_m2_of_missing_responses_is_its_definition(num_categories, num_items):
    rng = np.random.default_rng(5)
    items = rng.normal(size=(num_items, num_categories))
    items[:, 0] = np.exp(0.5 * items[:, 0])
    curves = curves_of(items, num_categories)
    values = rng.integers(0, num_categories, (300, num_items))
    values[rng.random(values.shape) < np.linspace(0, 0.6, num_items)] = -1
    parameters = np.arange(items.size).reshape(items.shape)
    share = (values >= 0).mean(0)
    expected = by_definition(curves, values, parameters, False, share)
    observed = moments_of(values, curves.codes)
    result = limited_fit(curves, WEIGHTS, observed, parameters, False)
    assert result.degrees == expected[1]
    assert result.statistic == pytest.approx(expected[0], rel=1e-6)


def test_m2_of_many_items_leaves_out_little(monkeypatch):
    rng = np.random.default_rng(4)
    items = np.column_stack([np.exp(rng.normal(size=12)), rng.normal(size=12)])
    curves, values = curves_of(items, 2), rng.integers(0, 2, (400, 12))
    observed, places = moments_of(values, curves.codes), np.arange(24).reshape(12, 2)
    exact = limited_fit(curves, WEIGHTS, observed, places, False).statistic
    monkeypatch.setattr("irtjax.validity.limited_information.EXACT_ITEMS", 0)
    result = limited_fit(curves, WEIGHTS, observed, places, False).statistic
    # Variances are too small by a millionth of the largest ones.
    assert result == pytest.approx(exact, rel=1e-3)
    assert result != exact


def test_equal_slopes_may_be_one_parameter_or_the_scale():
    rng = np.random.default_rng(2)
    items = np.column_stack([np.full(6, 1.3), rng.normal(size=6)])
    curves, values = curves_of(items, 2), rng.integers(0, 2, (200, 6))
    observed = moments_of(values, curves.codes)
    one = np.stack([np.zeros(6, int), 1 + np.arange(6)], 1)
    fixed = np.where(one == 0, -1, one - 1)
    common = limited_fit(curves, WEIGHTS, observed, one, False)
    scale = limited_fit(curves, WEIGHTS, observed, fixed, True)
    assert common.degrees == scale.degrees == 21 - 7
    assert common.statistic == pytest.approx(scale.statistic, rel=1e-8)


def test_m2_is_chi_squared_at_the_true_parameters():
    # With all parameters fixed M2 of 21 moments has mean 21; 200 samples of 2,000.
    rng = np.random.default_rng(3)
    items = np.column_stack([np.full(6, 1.3), rng.normal(size=6)])
    curves = curves_of(items, 2)
    one = np.stack([np.zeros(6, int), 1 + np.arange(6)], 1)
    statistics = []
    for _ in range(200):
        ability = rng.normal(size=2000)
        chance = 1 / (1 + np.exp(-1.3 * ability[:, None] - items[:, 1]))
        values = (rng.random(chance.shape) < chance).astype(int)
        observed = moments_of(values, curves.codes)
        statistics.append(limited_fit(curves, WEIGHTS, observed, one, False).statistic)
    # 14 degrees of freedom after projection on the parameters.
    assert np.mean(statistics) == pytest.approx(14, abs=4 * np.sqrt(28 / 200))
    assert np.var(statistics) == pytest.approx(28, rel=0.5)


def test_noncentral_chances_agree_where_the_formula_changes():
    for x in (480.0, 540.0, 620.0):
        exact = noncentral_chance(x, 499.999, 40.0)
        assert noncentral_chance(x, 500.0, 40.0) == pytest.approx(exact, abs=2e-4)


def test_rmsea_of_a_model_that_holds_is_0():
    assert rmsea(4.0, 5, 1000)[:2] == (0, 0)
    assert np.isnan(rmsea(4.0, 0, 1000)).all()
