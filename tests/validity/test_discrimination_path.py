"""The lasso path of discriminations: KKT conditions, error rates of its selection."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import irtjax
from irtjax._types import Status
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import two_parameter
from irtjax.models.priors import Normal

SIZE, SHARE = 400, 0.5


@functools.cache
def drawn():
    """The redundancy design of the cBMM paper, A.6.4, at a share of one half."""
    rng = np.random.default_rng(1)
    theta, slope = rng.normal(size=SIZE), rng.uniform(0.5, 1, SIZE)
    null = rng.permutation(SIZE) < SHARE * SIZE
    slope[null] = 0
    eta = np.outer(theta, slope) + 0.5 * rng.normal(size=SIZE)
    right = rng.random(eta.shape) < 1 / (1 + np.exp(-eta))
    return irtjax.ResponseTable.from_arrays(right), null


@functools.cache
def path():
    return irtjax.discrimination_path(drawn()[0], num=11)


@pytest.mark.slow
def test_null_items_are_kept_at_the_stated_rates():
    found, null = path(), drawn()[1]
    assert found.table["converged"].to_numpy(zero_copy_only=False).all()
    assert found.notes == ()
    z = found.table["z"].to_numpy()
    level = found.table["level"].to_numpy()
    kept = found.discrimination > 0
    of_null = (kept & null).sum(axis=1)
    count = null.sum()
    # Binomial, at five standard deviations.
    allowed = 5 * np.sqrt(count * level * (1 - level)) + 1
    assert (np.abs(of_null - count * level) < allowed).all()
    # Items that discriminate are all kept up to z = 2, and most of them to the end.
    recall = (kept & ~null).sum(axis=1) / (~null).sum()
    assert (recall[z <= 2] == 1).all() and recall[-1] > 0.8
    # Without penalty half of the null items are kept, precision 1 / 1.5; at z = 1.2 it
    # is .5 / (.5 + .5 * .115) = .897. Half of five standard deviations of the counts.
    precision = (kept & ~null).sum(axis=1) / kept.sum(axis=1)
    assert precision[0] == pytest.approx(2 / 3, abs=0.04)
    assert precision[np.argmin(abs(z - 1.2))] == pytest.approx(0.897, abs=0.05)
    rate = found.table["false_discovery_rate"].to_numpy()
    assert (1 - precision <= rate + 0.02)[z <= 2].all()
    assert found.selected.tolist() == kept[np.isclose(level, 0.05)][0].tolist()


def test_scores_satisfy_the_conditions_of_the_path():
    """At a slope of 0 the score is at most lambda, elsewhere it is equal to it."""
    found, values = path(), np.asarray(drawn()[0].values)
    for k in range(len(found.ability)):
        theta, slope = found.ability[k], found.discrimination[k]
        assert abs(theta.mean()) < 1e-9 and abs(theta.std() - 1) < 1e-9
        chance = 1 / (1 + np.exp(-np.outer(theta, slope) - found.intercept[k]))
        score = theta @ (values - chance)
        # Priors N(0, 1) and N(0, 2^2) of abilities and slopes settle at the scale c of
        # abilities with N c^2 = sum a^2 / (2 c)^2; the second pulls by a / (2 c)^2.
        square = np.sqrt(np.sum(slope**2) / 4 / SIZE)
        gap = (score - slope / 4 / square - found.penalty[k]) / 10
        # Points end at a residual of 1e-5, scores being sums of 400 terms.
        assert gap[slope == 0].max(initial=-1) < 1e-3
        assert np.abs(gap[slope > 0]).max(initial=0) < 1e-3
    rows = found.item_table
    last = rows["largest_z"].to_numpy(zero_copy_only=False)
    kept = rows["kept"].to_numpy(zero_copy_only=False)
    assert (last[kept] >= 1.64).all()
    assert found.sentence.startswith(
        f"{kept.sum()} of 400 items discriminate at level 0.05"
    )


def test_the_penalised_optimum_and_its_conditions():
    rng = np.random.default_rng(3)
    count, items = 60, 40
    theta = rng.normal(size=count)
    slope = np.where(np.arange(items) % 2, 1.2, 0.0)
    right = rng.random((count, items)) < 1 / (1 + np.exp(-np.outer(theta, slope)))
    seen = rng.random(right.shape) < 0.9
    values = (right & seen).astype(np.int8)
    data = irtjax.Responses(jnp.asarray(values), jnp.asarray(seen))
    priors = {"discrimination": Normal(0.0, 2.0), "intercept": Normal(0.0, 3.0)}
    model = two_parameter(priors, positive=True)
    penalty = np.linspace(2.0, 5.0, items)
    method = MM(tolerance=jnp.asarray(1e-8), lasso=jnp.asarray(penalty))
    problem = Problem.create(model, data)
    fit = run_jit(problem, method, start_values(model, data), max_steps=2000)
    assert fit.status == Status.CONVERGED
    trace = np.asarray(fit.trace)[: int(fit.num_steps)]
    assert np.diff(trace).min() > -1e-10
    best = fit.state.best
    a, d = np.asarray(best.discrimination)[:, 0], np.asarray(best.intercept)
    t = np.asarray(best.theta)[:, 0]
    assert 0 < (a == 0).sum() < items

    def terms(a, d, t):
        eta = np.outer(t, a) + d
        residual = seen * (values - 1 / (1 + np.exp(-eta)))
        sd, pull = t.std(), penalty @ a
        height = np.sum(seen * (values * eta - np.logaddexp(0, eta))) - pull * sd
        height -= np.sum(t**2) / 2 + np.sum(a**2) / 8 + np.sum(d**2) / 18
        by_a = t @ residual - a / 4 - penalty * sd
        by_t = residual @ a - t - pull * (t - t.mean()) / (count * sd)
        return height, by_a, residual.sum(0) - d / 9, by_t

    _, by_a, by_d, by_t = terms(a, d, t)
    assert by_a[a == 0].max() <= 1e-6
    for gradient in (by_a[a > 0], by_d, by_t):
        assert np.abs(gradient).max() < 1e-5
    constants = count * np.log(2 * np.pi) / 2 + items * np.log(2 * np.pi * 6)

    def loss(x):
        height, *gradient = terms(x[:items], x[items : 2 * items], x[2 * items :])
        return constants - height, -np.concatenate(gradient)

    bounds = [(0, None)] * items + [(None, None)] * (items + count)
    first = np.concatenate([a + 0.01, d, t])
    options = {"maxiter": 5000, "maxfun": 9000, "ftol": 1e-15, "gtol": 1e-8}
    found = minimize(
        loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    assert float(fit.objective) == pytest.approx(-found.fun, abs=1e-6)


@pytest.mark.slow  # A program of its own.
def test_items_of_two_abilities_are_kept_at_the_stated_rates():
    rng = np.random.default_rng(4)
    slopes = np.zeros((200, 2))
    slopes[120:] = rng.uniform(0.8, 1.5, (80, 1)) * np.eye(2)[np.arange(80) % 2]
    chance = 1 / (1 + np.exp(-rng.normal(size=(300, 2)) @ slopes.T))
    right = rng.random(chance.shape) < chance
    table = irtjax.ResponseTable.from_arrays(right)
    found = irtjax.discrimination_path(table, num=4, highest=3.0, factors=2)
    assert found.table["converged"].to_numpy(zero_copy_only=False).all()
    assert found.ability.shape == (5, 300, 2) and found.discrimination.shape == (5, 200)
    z, level = (found.table[name].to_numpy() for name in ("z", "level"))
    np.testing.assert_allclose(level, np.exp(-(z**2) / 2))  # Of two normal variables.
    kept = found.discrimination > 0
    of_null = kept[:, :120].sum(axis=1)
    allowed = 5 * np.sqrt(120 * level * (1 - level)) + 1
    assert (np.abs(of_null - 120 * level) < allowed).all()
    assert kept[:, 120:].mean() > 0.95
    place = np.flatnonzero(np.isclose(level, 0.05))[0]
    np.testing.assert_array_equal(found.selected, kept[place])
    # All subjects answered each item: lambda is that of the page.
    share = right.mean(axis=0)
    wanted = z[place] * np.sqrt(300 * share * (1 - share))
    np.testing.assert_allclose(found.penalty[place], wanted, rtol=1e-6)


def test_items_without_variation_are_named():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(80, 1))
    right = rng.random((80, 12)) < 1 / (1 + np.exp(-2 * theta))
    right[:, 3] = True
    table = irtjax.ResponseTable.from_arrays(right)
    found = irtjax.discrimination_path(table, num=3)
    assert not found.selected[3] and found.selected.sum() >= 10
    assert found.notes[0].startswith("1 item without right and wrong responses")
    assert "item 4" in found.notes[0]
    assert "abilities depend on" in found.notes[-1]
    assert np.isfinite(found.discrimination).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"level": 0.7}, "level 0.7 is not above 0"),
        ({"num": 1}, "num 1 and highest 4: give at least 2"),
        ({"factors": 400}, "400 factors of 400 subjects and 400 items: give 1 to 399"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        irtjax.discrimination_path(drawn()[0], **settings)


def test_what_has_no_path_is_refused():
    table = irtjax.ResponseTable.from_arrays([[0, 1, 2], [2, 1, 0], [1, 1, 0]])
    with pytest.raises(ValueError, match="right or wrong, not ordinal"):
        irtjax.discrimination_path(table)
    with pytest.raises(ValueError, match="lasso is for slopes kept at or above 0"):
        irtjax.fit(drawn()[0], "2pl", irtjax.MM(lasso=3.0))


@pytest.mark.parametrize("lasso", [pytest.param(None, marks=pytest.mark.slow), 8.0])
def test_slopes_at_0_have_no_errors_and_are_no_fault(lasso):
    rng = np.random.default_rng(0)
    theta, slope = rng.normal(size=(150, 1)), np.repeat([0.0, 1.5], [8, 8])
    right = rng.random((150, 16)) < 1 / (1 + np.exp(-theta * slope))
    table = irtjax.ResponseTable.from_arrays(right)
    fit = irtjax.fit(table, "2pl", MM(lasso=lasso), positive=True)
    items = fit.items.table
    values, errors, intercepts = (
        items[name].to_numpy(zero_copy_only=False).astype(float)
        for name in ("discrimination", "discrimination_se", "intercept_se")
    )
    at_0 = values == 0
    assert 0 < at_0.sum() < 9 and np.isnan(errors[at_0]).all()
    # With a lasso the likelihood is another objective, so nothing has an error.
    assert np.isnan(errors[~at_0]).all() == np.isnan(intercepts).all() == bool(lasso)
    assert not any(items["flags"].to_pylist())
    assert not [x for x in fit.warnings if "identified" in x or "maximum" in x]
    stated = [x for x in fit.notes if "no standard errors: a lasso" in x]
    assert len(stated) == bool(lasso)
