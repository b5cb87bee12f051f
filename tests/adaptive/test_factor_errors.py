"""Tests of several abilities whose items have errors, against brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax.adaptive import AdaptiveTest, Design, FactorBank, draw_items
from irtjax.adaptive.labels import LabelledBank, label
from irtjax.adaptive.misfit import misfit_study, true_bank
from irtjax.adaptive.normal_errors import (
    axes_variance,
    shared_covariance,
    with_axes_error,
)
from irtjax.adaptive.normal_posterior import LogPosterior, flat_posterior
from irtjax.adaptive.regressed import regressed, regressed_items
from irtjax.adaptive.saved import fingerprint
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.inference.scale_error import with_scale_error
from irtjax.likelihood.products import cells
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.families.graded import GradedItems
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Population
from tests.adaptive.test_adaptive_factors import POPULATION, SIZE, bank_of, items_of

MODEL = factor_model(Factor(factors=2))
KEY = jax.random.key(9)
ROOTS = np.random.default_rng(3).normal(0, 0.3, (SIZE, 3, 3))
BLOCKS = ROOTS @ np.swapaxes(ROOTS, 1, 2)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
GIVEN = np.array([1, 4, 9, 16, 17, 20, 22, 25, 28, 29])
REPLIES = np.array([1, 0, 1, 1, 0, 1, 1, 1, 0, 1])


def uncertain(**options) -> FactorBank:
    return FactorBank.create(
        MODEL, items_of(), POPULATION, covariance=BLOCKS, **options
    )


def posterior(blocks):
    given = jax.tree.map(lambda x: x[GIVEN], items_of())
    prior = bank_of().center, bank_of().precision
    replies, seen = jnp.asarray(REPLIES, float), jnp.ones(10, bool)
    density = LogPosterior(MODEL, given, replies, seen, prior)
    find = jax.jit(lambda blocks: flat_posterior(density, prior[0], blocks))
    return find(jnp.asarray(blocks[GIVEN]))


def by_quadrature(blocks):
    """Mean and covariance of the abilities, on a grid."""
    line = np.linspace(-7, 7, 121)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    wide = np.column_stack([grid, np.ones(len(grid))])
    slopes, intercept = (np.asarray(x)[GIVEN] for x in items_of()[:2])
    gap = grid - np.asarray(POPULATION.mean)
    inverse = np.linalg.inv(np.asarray(POPULATION.covariance))
    logs = -0.5 * np.einsum("tk,kl,tl->t", gap, inverse, gap)
    for j in range(10):
        sd = np.sqrt(np.einsum("tk,kl,tl->t", wide, blocks[GIVEN[j]], wide))
        eta = (grid @ slopes[j] + intercept[j])[:, None] + sd[:, None] * NODES
        right = expit(eta) @ WEIGHTS / WEIGHTS.sum()
        logs += np.log(right if REPLIES[j] else 1 - right)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    mean = weight @ grid
    return mean, (grid - mean).T * weight @ (grid - mean)


def test_the_posterior_is_that_of_quadrature_over_the_errors_of_items():
    (mean, spread), (_, exact) = by_quadrature(BLOCKS), by_quadrature(0 * BLOCKS)
    found, known = posterior(BLOCKS), posterior(0 * BLOCKS)
    # A normal approximation of ten responses errs by a share of 1 / sqrt(10).
    assert (np.abs(found.mean - mean) < 0.1 * np.sqrt(np.diagonal(spread))).all()
    # What the errors of items add, of which more cancels.
    want = np.diagonal(spread) / np.diagonal(exact)
    got = np.diagonal(found.covariance) / np.diagonal(known.covariance)
    assert (want > 1.05).all()
    np.testing.assert_allclose(got, want, rtol=0.1)


def test_tiny_errors_give_the_posterior_of_items_that_are_known():
    known = score_of(GIVEN, REPLIES)
    found = posterior(1e-12 * BLOCKS)
    np.testing.assert_allclose(found.mode, known.ability[0], atol=1e-7)
    np.testing.assert_allclose(found.covariance, known.covariance[0], atol=1e-7)
    np.testing.assert_allclose(found.mean, known.mean[0], atol=1e-7)


def score_of(given, replies, move=None):
    """`score_factors` of one subject, items moved by a change of (a, d)."""
    from irtjax.inference.vector_scores import score_factors

    values, seen = np.zeros((1, SIZE), np.int8), np.zeros((1, SIZE), bool)
    values[0, given], seen[0, given] = replies, True
    data = irtjax.Responses(jnp.asarray(values), jnp.asarray(seen))
    items = items_of()
    if move is not None:
        items = items._replace(
            discrimination=items.discrimination + move[:, :2],
            intercept=items.intercept + move[:, 2],
        )
    return score_factors(MODEL, items, POPULATION, data)


def test_responses_to_one_item_share_its_error():
    """Against modes found again with each number of each item moved."""
    known, given = (
        score_of(GIVEN, REPLIES),
        jax.tree.map(lambda x: x[GIVEN], items_of()),
    )
    theta, covariance = known.ability[0], known.covariance[0]
    seen, values = jnp.ones((1, 10), bool), jnp.asarray(REPLIES[None], float)
    found = cells(MODEL, given, theta[None], values, seen)
    slopes, blocks = given.discrimination, jnp.asarray(BLOCKS[GIVEN])
    same = jnp.eye(10, dtype=bool)
    got = shared_covariance(slopes, blocks, found, theta, covariance, same)
    want = np.zeros((2, 2))
    for item in GIVEN:
        moves = np.zeros((3, 2))
        for k in range(3):
            step = np.zeros((SIZE, 3))
            step[item, k] = 1e-5
            up, down = (score_of(GIVEN, REPLIES, s * step) for s in (1, -1))
            moves[k] = (up.ability[0] - down.ability[0]) / 2e-5
        want += moves.T @ BLOCKS[item] @ moves
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    # Two responses to an item whose error they share add more than two items do.
    twice = same.at[0, 1].set(True).at[1, 0].set(True)
    double = blocks.at[1].set(blocks[0])
    pair = jax.tree.map(lambda x: x.at[1].set(x[0]), given)
    values = values.at[0, 1].set(values[0, 0])
    found = cells(MODEL, pair, theta[None], values, seen)
    parts = pair.discrimination, double, found, theta, covariance
    alone, shared = (shared_covariance(*parts, x) for x in (same, twice))
    assert float(jnp.trace(shared)) > float(jnp.trace(alone))


def test_the_error_of_the_axes_of_one_ability_is_that_of_its_scale():
    sample, gap = jnp.array(0.05), jnp.array([1.3])
    spread = jnp.array([[1.7]])
    error = axes_variance(gap, spread, 1 / spread, sample, False)
    scale = np.diag([0.05 * 1.7, 0.05 / 2])
    want = with_scale_error(scale, 1.3, 0.4, (0.0, np.sqrt(1.7)))
    found = with_axes_error(jnp.array([[0.4]]), gap, spread, 1 / spread, error)
    assert float(found[0, 0]) == pytest.approx(float(want), rel=1e-12)
    fixed = axes_variance(gap, spread, 1 / spread, sample, True)
    np.testing.assert_allclose(fixed, error)


@pytest.mark.parametrize("noise", [0.3, 1.5])
def test_abilities_on_axes_that_err_are_off_as_stated(noise):
    """Abilities of two dimensions, scored from measures on axes with an error."""
    rng, count = np.random.default_rng(7), 200_000
    spread = np.array([[1.5, 0.6], [0.6, 1.0]])
    error = np.array([[0.3, -0.1], [-0.1, 0.2]])
    blur = noise**2 * np.array([[1.0, 0.3], [0.3, 2.0]])
    draw = lambda covariance: rng.multivariate_normal(np.zeros(2), covariance, count)
    theta = draw(spread)
    share = spread @ np.linalg.inv(spread + blur)
    covariance = spread - share @ spread
    score = (theta + draw(error) + draw(blur)) @ share.T
    # At one score: errors are normal given it, about a linear function of it.
    gap = np.sqrt(np.diag(share @ spread))
    slope = np.linalg.lstsq(score, score - theta, rcond=None)[0]
    left = score - theta - score @ slope
    want = np.cov(left.T) + np.outer(gap @ slope, gap @ slope)
    parts = jnp.asarray(spread), jnp.linalg.inv(spread), jnp.asarray(error)
    found = with_axes_error(jnp.asarray(covariance), jnp.asarray(gap), *parts)
    # Five Monte-Carlo errors of a covariance, and of the squared shift.
    atol = 5 * np.sqrt(2 / count) * np.max(np.diag(want)) * 2
    np.testing.assert_allclose(found, want, atol=atol)


def test_abilities_are_never_better_known_with_the_error_of_their_axes():
    spread, error = jnp.array([[1.5, 0.6], [0.6, 1.0]]), 0.1 * jnp.eye(2)
    known = spread, jnp.linalg.inv(spread), error
    nothing = with_axes_error(spread, jnp.array([2.0, 1.0]), *known)
    np.testing.assert_allclose(nothing, spread, rtol=1e-12)
    rng = np.random.default_rng(8)
    for scale in (0.1, 0.5, 1.0, 3.0, 30.0):  # To errors larger than the population.
        root = jnp.asarray(rng.normal(size=(2, 2)))
        own = scale * (root @ root.T + 0.1 * jnp.eye(2))
        found = with_axes_error(own, jnp.asarray(rng.normal(size=2)), *known)
        assert np.linalg.eigvalsh(np.asarray(found - own)).min() > -1e-12


def test_the_axes_of_a_sample_err_as_stated():
    """Standardised abilities of samples of 200, against those of the population."""
    rng, size, x = np.random.default_rng(1), 200, np.array([1.5, -0.5])
    found = []
    for _ in range(4000):
        sample = rng.normal(size=(size, 2))
        values, vectors = np.linalg.eigh(np.cov(sample.T, bias=True))
        found.append(vectors / np.sqrt(values) @ vectors.T @ (x - sample.mean(0)))
    one = jnp.eye(2)
    want = axes_variance(jnp.asarray(x), one, one, jnp.array(1 / size), False)
    # Four Monte-Carlo errors of a variance, and terms of the order 1 / N.
    np.testing.assert_allclose(np.cov(np.array(found).T), want, rtol=0.1, atol=2e-4)


def test_items_are_drawn_towards_their_mean():
    rng, count = np.random.default_rng(2), 400
    true = rng.multivariate_normal([1, 0.2, 0], np.diag([0.2, 0.05, 1.0]), count)
    counts = np.where(np.arange(count) % 2, 300, 75)
    pooled = np.array([[0.1, 0.02, 0], [0.02, 0.1, 0.01], [0, 0.01, 0.08]])
    factor = (1 / counts) / np.mean(1 / counts)
    blocks = pooled * factor[:, None, None]
    noise = rng.multivariate_normal(np.zeros(3), pooled, count)
    rows = true + noise * np.sqrt(factor)[:, None]
    found = regressed(rows, blocks, counts)
    error, before = found.rows - true, rows - true
    # Errors are smaller and as stated: 400 items, five standard errors of a ratio.
    ratio = np.mean(error**2, 0) / np.mean(before**2, 0)
    assert ratio[0] < 0.7 and ratio[1] < 0.4 and ratio[2] < 1
    stated = np.diagonal(found.blocks, axis1=1, axis2=2)
    np.testing.assert_allclose(
        np.mean(error**2 / stated, 0), 1, atol=5 * np.sqrt(2 / 400)
    )
    few = np.mean(stated[counts == 75], 0) / np.mean(stated[counts == 300], 0)
    assert (few > 1.2).all()


def test_the_prior_of_a_fit_is_not_counted_twice():
    """Estimates that a prior N(0, 1) drew, of slopes 0.8 with errors of .5."""
    rng, count = np.random.default_rng(12), 3000
    true = 0.8 + rng.normal(0, 0.5, (count, 2))
    kept = 1 / (1 + 0.25)  # Posterior precision 4 + 1.
    rows = kept * (true + rng.normal(0, 0.5, true.shape))
    blocks = np.tile(0.25 * kept * np.eye(2), (count, 1, 1))
    slope = {}
    for name, prior in (("flat", None), ("counted", np.eye(2))):
        found = regressed(rows, blocks, None, prior)
        slope[name] = np.polyfit(found.rows[:, 0], true[:, 0], 1)[0]
    # The best prediction has a slope of 1; four standard errors of it are .07.
    assert slope["counted"] == pytest.approx(1, abs=0.07) and slope["flat"] > 1.3
    variance = np.mean(np.var(found.rows - true, axis=0))
    assert found.blocks[0, 0, 0] == pytest.approx(variance, rel=0.1)
    # A prior that does most of the work leaves nothing to do.
    narrow = regressed(rows, blocks, None, 4 * np.eye(2))
    np.testing.assert_array_equal(narrow.rows, rows)


def test_few_items_that_hardly_differ_are_not_taken_as_known():
    rng, share = np.random.default_rng(13), []
    for _ in range(200):
        true = np.tile([1.0, 0.5, 0.0], (15, 1))
        noise = rng.normal(0, 0.4, true.shape)
        found = regressed(true + noise, np.tile(0.16 * np.eye(3), (15, 1, 1)))
        stated = np.diagonal(found.blocks, axis1=1, axis2=2)
        assert (stated > 0).all()
        share.append(np.mean((found.rows - true) ** 2) / np.mean(stated))
    # The variance that the unknown mean and spread add is the more too large, the less
    # items differ; here they are the same.
    assert 0.5 < np.mean(share) < 1


@pytest.mark.slow
def test_marks_and_fingerprints_of_uncertain_banks():
    composite = jnp.array([1.0, 0.5])
    one = uncertain(composite=composite, num_subjects=20)
    other = uncertain(composite=composite)
    design, mark = Design.create(4, select="fixed"), (jnp.array(0.4), jnp.array(0.1))
    found = []
    for bank in (one, other):
        state = irtjax.adaptive.start(bank, design, key=KEY)
        state = irtjax.adaptive.update(bank, design, state, jnp.array(3), jnp.array(1))
        found.append(float(bank.above(state, *mark)))
    # The mark is on the same axes as the ability: their error does not matter.
    assert found[0] == pytest.approx(found[1], abs=1e-12)
    names = np.array([f"q{k}" for k in range(SIZE)])
    items = one.items._replace(discrimination=one.items.discrimination + 1e-13)
    near = FactorBank.create(
        MODEL,
        items,
        POPULATION,
        covariance=BLOCKS,
        composite=composite,
        num_subjects=20,
    )
    hashes = {fingerprint(LabelledBank(x, names, None, None)) for x in (one, near)}
    assert len(hashes) == 1


def test_kinds_of_items_have_their_own_means_and_fixed_numbers_stay():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(60, 3))
    blocks = np.tile(np.eye(3) * 0.2, (60, 1, 1))
    rows[:30, 0] = 0
    blocks[:30, 0] = blocks[:30, :, 0] = 0
    rows[30:, 1] += 5
    blocks[:3], blocks[55:, 2] = 0, 0
    blocks[55:, :, 2] = 0
    found = regressed(rows, blocks)
    assert not found.rows[:30, 0].any() and not found.blocks[:30, 0].any()
    # No errors; and too few of their kind for a mean.
    for part in (slice(0, 3), slice(55, 60)):
        np.testing.assert_array_equal(found.rows[part], rows[part])
    assert abs(found.rows[3:30, 1].mean() - rows[3:30, 1].mean()) < 1e-12
    assert found.rows[30:55, 1].std() < rows[30:55, 1].std()


def test_intercepts_of_an_item_move_together_and_slopes_stay_positive():
    rng = np.random.default_rng(5)
    slopes = np.abs(rng.normal(0.2, 0.5, (40, 2)))
    cuts = np.sort(rng.normal(size=(40, 2)))[:, ::-1]
    items = GradedItems(jnp.asarray(slopes), jnp.asarray(cuts))
    model = factor_model(Factor(factors=2, item_model="graded", positive=True), 3)
    unit = Population(jnp.zeros(2), jnp.ones(2))
    blocks = np.tile(np.eye(4) * 0.1, (40, 1, 1))
    found, left = regressed_items(model, items, unit, blocks)
    gap = np.diff(np.asarray(found.intercept), axis=1)
    np.testing.assert_allclose(gap, np.diff(cuts, axis=1), atol=1e-12)
    assert left.shape == (40, 3, 3) and float(found.discrimination.min()) >= 0
    assert np.std(found.discrimination) < np.std(slopes)


def test_a_bank_without_errors_is_the_same_bank():
    plain = bank_of()
    same = FactorBank.create(
        MODEL, items_of(), POPULATION, covariance=np.zeros((SIZE, 3, 3))
    )
    assert jax.tree.structure(same) == jax.tree.structure(plain)
    pairs = zip(jax.tree.leaves(same), jax.tree.leaves(plain), strict=True)
    assert all(np.array_equal(x, y) for x, y in pairs)


def test_a_bank_with_errors_states_those_it_lacks_and_is_another_one():
    blocks = BLOCKS.copy()
    blocks[2] = 0
    names = np.array([f"q{k}" for k in range(SIZE)])
    options = dict(composite=(1.0, 0.0))
    lacking = FactorBank.create(
        MODEL, items_of(), POPULATION, covariance=blocks, **options
    )
    known = LabelledBank(lacking, names, None, None, label_source())
    assert known._exact() == (
        "1 item has no finite errors: items without errors are taken as known",
    )
    banks = lacking, uncertain(**options), uncertain(num_subjects=50, **options)
    hashes = {fingerprint(LabelledBank(x, names, None, None)) for x in banks}
    assert len(hashes) == 3
    assert LabelledBank(banks[1], names, None, None, label_source())._exact() == ()


def label_source():
    from types import SimpleNamespace
    from typing import Any

    found: Any = SimpleNamespace(options={})
    return found


def test_uncertain_items_are_chosen_later():
    """The merit is that of curves that the errors flatten."""
    bank, plain = uncertain(composite=(1.0, 0.5)), bank_of((1.0, 0.5))
    design = Design.create(4, select="fixed")
    state = irtjax.adaptive.start(plain, design, key=KEY)
    mode = np.asarray(plain.center)
    wide = np.append(mode, 1)
    factor = 1 / np.sqrt(1 + wide @ BLOCKS @ wide * np.pi / 8)
    slopes, intercept = (np.asarray(x) for x in items_of()[:2])
    chance = expit(factor * (slopes @ mode + intercept))
    weight = factor**2 * chance * (1 - chance)
    spread = np.asarray(plain.spread)
    quadratic = np.einsum("jk,kl,jl->j", slopes, spread, slopes)
    for rule, want in (
        ("d_optimal", np.log1p(weight * quadratic)),
        (
            "a_optimal",
            weight * np.sum((slopes @ spread) ** 2, 1) / (1 + weight * quadratic),
        ),
    ):
        np.testing.assert_allclose(bank.merit(rule, state), want, rtol=1e-9)
        assert (bank.merit(rule, state) < plain.merit(rule, state)).all()


@pytest.mark.slow
def test_scores_after_each_item_are_those_of_the_posterior():
    bank = uncertain(num_subjects=60)
    theta = bank.draw_abilities(5, jax.random.key(1))
    tests = run_tests_jit(bank, Design.create(10), key=KEY, theta=theta)
    values, seen = np.zeros((5, SIZE), np.int8), np.zeros((5, SIZE), bool)
    for row in range(5):
        values[row, tests.items[row]] = tests.observations[row]
        seen[row, tests.items[row]] = True
    data = irtjax.Responses(jnp.asarray(values), jnp.asarray(seen))
    np.testing.assert_allclose(bank.all_items(data), tests.ability[:, -1], atol=1e-7)
    exact = run_tests_jit(bank_of(), Design.create(10), key=KEY, theta=theta)
    assert np.mean(tests.standard_error[:, -1]) > np.mean(exact.standard_error[:, -1])


@pytest.mark.slow
def test_when_every_item_is_given_errors_of_items_hardly_matter():
    """The responses then determine the score: v / n - v / J of the module is 0."""
    rng = np.random.default_rng(6)
    unit = Population(jnp.zeros(1), jnp.ones(1))
    items = LogisticItems(jnp.ones((60, 1)), *jnp.zeros((2, 60)), jnp.ones(60))
    model = factor_model(Factor(factors=2))
    model = model.__class__(model.name, model.family.__class__(dims=1))
    blocks = np.tile(np.diag([0.01, 0.2]), (60, 1, 1))
    banks = [
        FactorBank.create(model, items, unit, covariance=x) for x in (None, blocks)
    ]
    theta = jnp.asarray(rng.normal(size=(8, 1)))
    found = [
        run_tests_jit(x, Design.create(60, select="fixed"), key=KEY, theta=theta)
        for x in banks
    ]
    error = [float(np.mean(x.standard_error[:, -1])) for x in found]
    assert error[1] == pytest.approx(error[0], rel=0.03)
    middle = [np.mean(x.standard_error[:, 20]) for x in found]
    assert middle[1] > middle[0]


@pytest.mark.slow
@pytest.mark.parametrize("select", ["information", "random"])
def test_intervals_cover_after_small_calibrations(select):
    """Estimates with errors of .4, 10 banks of 100 items, 60 subjects on 20 items."""
    rng, unit = np.random.default_rng(7), Population(jnp.zeros(2), jnp.ones(2))
    covered = {"known": [], "counted": []}
    for draw in range(10):
        slopes = np.exp(rng.normal(0, 0.35, (100, 2))) * (rng.random((100, 2)) < 0.6)
        true = np.column_stack([slopes, rng.normal(size=100)])
        blocks = np.tile(0.4**2 * np.eye(3), (100, 1, 1))
        rows = jnp.asarray(true + 0.4 * rng.normal(size=true.shape))
        items, answers = (
            LogisticItems(x[:, :2], x[:, 2], jnp.zeros(100), jnp.ones(100))
            for x in (rows, jnp.asarray(true))
        )
        # No prior has drawn these estimates.
        drawn, left = regressed_items(MODEL, items, unit, blocks, None, 0.0)
        banks = {
            "known": FactorBank.create(MODEL, items, unit),
            "counted": FactorBank.create(MODEL, drawn, unit, covariance=left),
        }
        exact = FactorBank.create(MODEL, answers, unit)
        theta = exact.draw_abilities(60, jax.random.key(draw))
        truth = np.asarray(exact.truth(theta))
        for name, bank in banks.items():
            options = dict(key=KEY, theta=theta, answers=exact)
            tests = run_tests_jit(bank, Design.create(20, select=select), **options)
            gap = np.abs(np.asarray(tests.ability[:, -1]) - truth)
            covered[name].append(np.mean(gap < 1.96 * tests.standard_error[:, -1]))
    # 600 tests: four binomial standard errors are .036, and posteriors of 20 responses
    # are not quite normal.
    assert 0.91 < np.mean(covered["counted"]) < 0.98
    if select == "information":
        assert np.mean(covered["known"]) < 0.87


@pytest.mark.slow
def test_a_fit_hands_its_errors_to_its_tests(tmp_path):
    rng = np.random.default_rng(8)
    slopes = np.zeros((30, 2))
    slopes[np.arange(30), np.arange(30) % 2] = 1.5
    right = rng.random((80, 30)) < expit(rng.normal(size=(80, 2)) @ slopes.T)
    table = irtjax.ResponseTable.from_arrays(right.astype(int))
    fit = irtjax.fit(table, "factor", factors=2)
    known = label(fit, 5, None, None, {})
    bank = known.bank
    assert isinstance(bank, FactorBank) and bank.errors is not None
    assert float(bank.sampling) == pytest.approx(1 / 80) and known._exact() == ()
    estimated = np.asarray(fit.parameters.items.discrimination)
    assert np.std(bank.items.discrimination) < np.std(estimated)
    test = AdaptiveTest(fit, 4)
    while (item := test.next_item()) is not None:
        test.record(item, 1)
    again = AdaptiveTest.load(test.save(tmp_path / "t.json"), fit)
    assert again.abilities == test.abilities
    # Errors of the axes count in each ability, and not in the expected score.
    posterior = test._state.posterior
    own = np.sqrt(np.diagonal(posterior.covariance))
    assert all(
        error > x for (_, error), x in zip(test.abilities.values(), own, strict=True)
    )
    for truth in ("bank", "draw"):
        tests = irtjax.simulate_tests(
            fit, 400, key=KEY, num_items=10, truth=truth, select="d_optimal"
        )
        gap = tests.factors.ability - tests.factors.truth
        error = np.sqrt(np.diagonal(tests.factors.covariance, axis1=1, axis2=2))
        # 800 abilities, of 400 subjects: five binomial standard errors.
        assert abs(np.mean(np.abs(gap) < 1.96 * error) - 0.95) < 0.055
        gap = tests.ability[:, -1] - tests.truth
        share = np.mean(np.abs(gap) < 1.96 * tests.standard_error[:, -1])
        assert abs(share - 0.95) < 0.055
    drawn = np.asarray(bank.drawn_items(KEY).discrimination - bank.items.discrimination)
    stated = np.diagonal(np.asarray(bank.errors.blocks), axis1=1, axis2=2)[:, :2]
    assert np.mean(drawn**2) == pytest.approx(np.mean(stated), rel=1)
    assert true_bank(fit, known, "draw", KEY).errors is None
    # Another calibration has the errors at axes that are fixed.
    other = np.asarray(draw_items(fit, KEY).discrimination) - estimated
    fixed = np.diagonal(fit.factors.at_fixed_axes, axis1=1, axis2=2)[:, :2]
    assert 0.5 < np.mean(other**2 / fixed) < 2
    repeats = irtjax.simulate_tests(
        fit, 20, key=KEY, num_items=10, repeats=2, icc=0.2, select="random"
    )
    assert np.isfinite(repeats.standard_error).all()
    study = misfit_study(fit, 20, key=KEY, sizes=[0], draws=1, num_items=5)
    np.testing.assert_allclose(study.table["slope_ratio"].to_numpy(), 1)
    answers = true_bank(fit, known, fit, KEY)
    np.testing.assert_array_equal(answers.items.discrimination, estimated)
