"""Leave-one-out and replicated data from the draws of a fit."""

import copy
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.estimators.posterior.methods import NUTS
from irtjax.fitting.resolve import make_model

RNG = np.random.default_rng(11)
SUBJECTS, ITEMS = 30, 16


@functools.cache
def simulated():
    """Answers of one ability, with item 5 keyed wrongly, and one cell missing."""
    theta, intercept = np.linspace(-2, 2, SUBJECTS), RNG.normal(size=ITEMS)
    eta = 1.5 * theta[:, None] + intercept
    eta[:, 5] *= -1
    values = (RNG.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(float)
    values[0, 3] = np.nan
    benchmark = np.where(np.arange(ITEMS) % 2, "law", "code")
    table = irtjax.ResponseTable.from_arrays(values, benchmark=benchmark)
    return table, theta, intercept


@functools.cache
def drawn():
    """The table, and draws near the truth in place of a fit's: 2 chains of 150."""
    table, theta, intercept = simulated()
    noise = lambda *shape: 0.15 * RNG.normal(size=(2, 150, *shape))
    ability = theta[:, None] + noise(SUBJECTS, 1)
    rows = np.stack([np.full(ITEMS, np.log(1.5)), intercept], 1) + noise(ITEMS, 2)
    one = np.zeros(ITEMS, int)
    draws = SimpleNamespace(values={"ability": ability, "coordinates": rows})
    structure = SimpleNamespace(draws=draws, group=one, groups=np.array(["all"]))
    return table, SimpleNamespace(
        model=make_model("2pl", table, "weak", positive=True),
        structure=structure,
        options={},
        data_hash=table.data_hash(),
    )


def test_leave_one_out_is_that_of_the_log_densities_of_all_cells():
    from irtjax.estimators.posterior import psis_loo

    table, fit = drawn()
    values = fit.structure.draws.values
    a, d = np.exp(values["coordinates"][..., 0]), values["coordinates"][..., 1]
    eta = a[:, :, None] * np.asarray(values["ability"]) + d[:, :, None]
    sign = 2 * table.values - 1
    logs = -np.logaddexp(0, -sign * eta)[:, :, table.observed]
    wanted = psis_loo(logs)
    found = irtjax.leave_one_out(fit, table)
    np.testing.assert_allclose(found.pointwise, wanted.pointwise, atol=1e-8)
    assert found.elpd == pytest.approx(wanted.elpd)
    assert found.standard_error == pytest.approx(wanted.standard_error, rel=1e-9)
    assert found.p_loo == pytest.approx(wanted.p_loo)


def test_leave_one_out_in_blocks_is_the_same(monkeypatch):
    import irtjax.prediction.predictive_checks as posterior

    table, fit = drawn()
    whole = irtjax.leave_one_out(fit, table)
    # The length of the tail follows the effective draws of the block.
    monkeypatch.setattr(posterior, "BLOCK_CELLS", 300 * SUBJECTS * 5)
    blocks = irtjax.leave_one_out(fit, table)
    assert blocks.elpd == pytest.approx(whole.elpd, abs=0.02)


@pytest.mark.slow
def test_a_wrong_key_is_what_the_model_does_not_explain():
    table, fit = drawn()
    found = irtjax.predictive_checks(fit, table, num_draws=300).table.to_pylist()
    rows = {(row["statistic"], row["of"]): row for row in found}
    item = table.items[5]
    row = rows["item-rest correlation", item]
    assert row["p_value"] < 0.01 and row["observed"] < 0 < row["lower"]
    others = [
        row["p_value"]
        for row in found
        if row["statistic"] == "item-rest correlation" and row["of"] != item
    ]
    # The wrong key spoils the rest means of the others a little.
    assert np.mean(np.array(others) > 0.01) > 0.9
    means = [row for row in found if row["statistic"].startswith("mean")]
    assert len(means) == SUBJECTS + ITEMS
    # All but the means of the item itself and of the ends of the scale, whose
    # answers to it are the wrong way round.
    inside = [row["lower"] <= row["observed"] <= row["upper"] for row in means]
    assert np.mean(inside) > 0.8
    values = np.where(table.observed, table.values, np.nan)
    assert rows["mean of subject", table.subjects[0]]["observed"] == pytest.approx(
        np.nanmean(values[0])
    )
    one = np.nanmean(values[:, 0])
    assert rows["mean of item", table.items[0]]["observed"] == pytest.approx(one)


def test_item_rest_correlations_and_spreads_are_numpys():
    table, fit = drawn()
    found = irtjax.predictive_checks(fit, table, num_draws=20).table.to_pylist()
    rows = {(row["statistic"], row["of"]): row["observed"] for row in found}
    values = np.where(table.observed, table.values, np.nan)
    rest = np.nanmean(np.delete(values, 7, axis=1), axis=1)
    wanted = np.corrcoef(values[:, 7], rest)[0, 1]
    assert rows["item-rest correlation", table.items[7]] == pytest.approx(wanted)
    spread = np.nanmean(values, axis=1).std(ddof=1)
    assert rows["sd of subjects", "all"] == pytest.approx(spread)


def test_counts_and_scores_are_replicated_as_they_are():
    from irtjax.data.responses import Responses
    from irtjax.models.families.logistic import Binary
    from irtjax.prediction.predictive_checks import as_means, sample_cells

    family = Binary(slopes="positive")
    items = jax.vmap(family.constrain)(jnp.zeros((3, 2)))
    trials = jnp.full((2000, 3), 8, jnp.int32)
    data = Responses(jnp.zeros((2000, 3)), None, trials)
    theta = jnp.ones((2000, 3))
    drawn = sample_cells(family, items, theta, data, jax.random.key(0))
    share = np.asarray(as_means(family, drawn, items, data))
    chance = 1 / (1 + np.exp(-1))
    error = np.sqrt(chance * (1 - chance) / (8 * 6000))
    assert share.mean() == pytest.approx(chance, abs=4 * error)
    assert share.std() == pytest.approx(error * np.sqrt(6000), rel=0.05)


def test_no_draws_or_other_responses_are_refused():
    table, fit = drawn()
    bare = copy.copy(fit)
    bare.structure = SimpleNamespace(draws=None)
    with pytest.raises(ValueError, match="no draws"):
        irtjax.leave_one_out(bare, table)
    other = irtjax.ResponseTable.from_arrays(np.where(table.observed, table.values, 1))
    with pytest.raises(ValueError, match="not the one that was fitted"):
        irtjax.predictive_checks(fit, other)
    with pytest.raises(ValueError, match="too few"):
        irtjax.predictive_checks(fit, table, num_draws=5)


@pytest.mark.slow
def test_on_a_real_fit():
    table, *_ = simulated()
    method = NUTS(num_chains=2, num_warmup=300, num_draws=200)
    fit = irtjax.fit(table, "multibenchmark", method, key=jax.random.key(2))
    found = irtjax.predictive_checks(fit, table).table.to_pylist()
    rows = {(row["statistic"], row["of"]): row for row in found}
    # Learned slopes are positive, so a negative correlation stays unexplained.
    row = rows["item-rest correlation", table.items[5]]
    assert row["observed"] < row["lower"]
    assert rows["correlation", "code, law"]["p_value"] > 0.01
    means = [r for r in found if r["statistic"] == "mean of item"]
    # Parameters follow the means, so nine tenths would be too few.
    assert np.mean([r["lower"] <= r["observed"] <= r["upper"] for r in means]) > 0.9
    loo = irtjax.leave_one_out(fit, table)
    assert loo.pointwise.shape == (SUBJECTS * ITEMS - 1,) and loo.elpd < 0
    # Given all parameters. `fit.log_likelihood` is a marginal one, that of `laplace`
    # before its last tenth of a nat.
    given = np.asarray(fit.structure.draws.values["log_likelihood"])
    assert given.mean() > loo.elpd
    marginal = irtjax.fit(table, "multibenchmark", "laplace").log_likelihood
    assert np.isclose(fit.log_likelihood, marginal, atol=0.3)
