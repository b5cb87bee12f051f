"""SAEM: draws of the right law, and EM's optimum within Monte-Carlo error."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import begin, loop_of, run
from irtjax.estimators.marginal.draws import draw_augmented, draw_on_nodes, node_weights
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.marginal.saem import SAEM, Latent, reciprocal
from irtjax.estimators.start import start_values
from irtjax.inference import item_covariance
from irtjax.likelihood.problem import Problem, Start, estimation_scale
from irtjax.models.catalogue import latency_response, two_parameter
from irtjax.models.families.logistic import LogisticItems
from irtjax.numerics.kernels import equal_nodes
from irtjax.storage import load_checkpoint, save_checkpoint
from tests.estimators.marginal.test_lart import drawn
from tests.tables import NODES, case, grid_fit, run_jit

KEY = jax.random.key(3)


def fitted(method, model, data, key=KEY):
    return fitted_from(start_values(model, data), method, model, data, key)


def fitted_from(start, method, model, data, key=KEY, steps=None):
    problem = Problem.create(model, data)
    steps = steps or method.num_steps
    return run_jit(problem, method, start, key=key, max_steps=steps)


def test_draws_on_nodes_follow_the_posterior():
    share = np.random.default_rng(0).dirichlet(np.ones(7), size=2)
    uniforms = jax.random.uniform(KEY, (2, 20_000))
    index = np.asarray(draw_on_nodes(jnp.asarray(share), uniforms))
    for row, expected in zip(index, share, strict=True):
        found = np.bincount(row, minlength=7)
        assert stats.chisquare(found, expected * len(row)).pvalue > 1e-4


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=1, max_size=5))
def test_node_weights_keep_three_moments(values):
    nodes = jnp.asarray(equal_nodes(-3.0, 3.0, 13))
    weights = node_weights(jnp.asarray(values), nodes)
    for power in range(3):
        np.testing.assert_allclose(
            weights @ nodes**power, np.mean(np.asarray(values) ** power), atol=1e-12
        )
    on_node = node_weights(nodes[4:5], nodes)
    np.testing.assert_allclose(on_node, np.eye(13)[4], atol=1e-12)


def test_the_augmented_sampler_draws_from_the_posterior():
    # 4,000 subjects with the same responses, one missing, and the same evidence of
    # lengths: after 60 sweeps from the prior their abilities are one sample.
    count = 4000
    items = LogisticItems(
        jnp.array([1.2, 0.7, 1.5, 0.4, 1.0]),
        jnp.array([0.3, -0.5, -1.0, 0.8, 0.0]),
        jnp.zeros(5),
        jnp.ones(5),
    )
    responses, seen = np.array([1, 0, 1, 0, 1]), np.array([1, 1, 1, 1, 0], bool)
    data = Responses(
        jnp.asarray(np.tile(responses, (count, 1)), jnp.int8),
        jnp.asarray(np.tile(seen, (count, 1))),
        evidence=jnp.tile(jnp.array([0.6, 0.9]), (count, 1)),
    )
    mean, sd = 0.3, 1.2
    prior = mean + sd * jax.random.normal(KEY, (count,))
    sample = draw_augmented(KEY, items, data, prior, mean, sd, num_sweeps=60)
    grid = np.linspace(-8, 8, 4001)
    sign = np.where(seen, 2 * responses - 1, 0)
    eta = np.asarray(items.discrimination) * grid[:, None] + np.asarray(items.intercept)
    log_density = np.sum(np.where(sign == 0, 0, stats.norm.logcdf(sign * eta)), axis=1)
    log_density += stats.norm.logpdf(grid, mean, sd) + 0.6 * grid - 0.9 * grid**2 / 2
    cumulative = np.cumsum(np.exp(log_density - log_density.max()))
    law = lambda x: np.interp(x, grid, cumulative / cumulative[-1])
    assert stats.kstest(np.asarray(sample), law).pvalue > 1e-3
    # The start is another law: the test can tell.
    assert stats.kstest(np.asarray(prior), law).pvalue < 1e-6


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("rasch", marks=pytest.mark.slow),
        "2pl",
        pytest.param("3pl", marks=pytest.mark.slow),
        pytest.param("graded", marks=pytest.mark.slow),
    ],
)
def test_the_optimum_is_that_of_em(name):
    simulated, exact = case(name), grid_fit(name, "em")
    fit = fitted(SAEM(jnp.asarray(NODES)), simulated.model, simulated.data)
    assert Status(int(fit.status)) is Status.CONVERGED
    # 150 times four draws with slowly falling weights: each estimate is off by some
    # 0.1 of its standard error, and the log posterior falls by half their squares' sum.
    problem = Problem.create(simulated.model, simulated.data)
    start = exact.parameters
    coordinates = simulated.model.unconstrain(start.items)
    scale = estimation_scale(problem, start_values(simulated.model, simulated.data))
    scale = scale._replace(sd=start.population.sd) if name == "rasch" else scale
    covariance = item_covariance(problem, coordinates, scale, jnp.asarray(NODES))
    error = np.sqrt(np.diagonal(covariance.items, axis1=1, axis2=2))
    move = simulated.model.unconstrain(fit.parameters.items) - coordinates
    assert np.abs(move / error).max() < 0.5
    assert float(exact.log_lik) - float(fit.log_lik) < 0.5
    assert float(fit.log_lik) == pytest.approx(float(fit.subject_log_lik.sum()))


@pytest.mark.slow
def test_a_run_that_drifts_is_not_called_converged():
    # Gains too small to leave the start: iterates lie on their average, far from the
    # optimum. What is reported is EM's judgement of the average, to rounding.
    data, model = drawn()[0], latency_response()
    crawl = lambda step: jnp.where(step == 1, 1.0, 1e-3)
    method = SAEM(jnp.asarray(NODES), num_steps=20, gain=crawl)
    start = start_values(model, data)
    wrong = start.lengths._replace(correlation=jnp.asarray(-0.2))
    start = start._replace(lengths=wrong)
    fit = fitted_from(start, method, model, data)
    assert Status(int(fit.status)) is Status.MAX_STEPS
    found = fit.parameters
    here = Start(found.items, None, found.population, found.lengths)
    exact = fitted_from(here, EM(jnp.asarray(NODES), memory=0), model, data, steps=1)
    assert float(fit.residual) == pytest.approx(float(exact.residual), rel=1e-3)
    assert float(fit.objective) == pytest.approx(float(exact.objective), rel=1e-9)
    assert float(fit.residual) > 1


@pytest.mark.slow
def test_a_run_in_parts_is_the_unbroken_run():
    # The unbroken run is a scan, the parts are the driver's loop.
    simulated = case("2pl")
    problem = Problem.create(simulated.model, simulated.data)
    method = SAEM(jnp.asarray(NODES), num_steps=12)
    start = start_values(simulated.model, simulated.data)
    whole = run_jit(problem, method, start, key=KEY, max_steps=12)
    part = run_jit(
        problem, method, start, key=KEY, max_steps=12, stop_after=jnp.asarray(5)
    )
    assert int(part.status) == Status.RUNNING and int(part.num_steps) == 5
    rest = run_jit(problem, method, start, key=KEY, max_steps=12, resume=loop_of(part))
    for one, two in zip(
        jax.tree.leaves(whole.parameters), jax.tree.leaves(rest.parameters), strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=1e-9)
    np.testing.assert_allclose(whole.trace, rest.trace, rtol=1e-12)
    # Nothing in the state grows with the number of steps.
    shapes = lambda fit: [x.shape for x in jax.tree.leaves(fit.state)]
    assert shapes(part) == shapes(whole)


@pytest.mark.slow
def test_chains_by_vmap_are_single_runs():
    simulated = case("2pl")
    problem = Problem.create(simulated.model, simulated.data)
    method = SAEM(jnp.asarray(NODES), num_steps=30, num_draws=2, gain=reciprocal)
    start = start_values(simulated.model, simulated.data)
    keys = jax.random.split(KEY, 3)

    def chain(key):
        fit = run(problem, method, start, key=key, max_steps=30)
        return fit.parameters.items

    together = jax.jit(jax.vmap(chain))(keys)
    alone = jax.jit(chain)(keys[1])
    np.testing.assert_allclose(
        together.discrimination[1], alone.discrimination, rtol=1e-8
    )
    assert np.ptp(together.discrimination, axis=0).min() > 0


@pytest.mark.slow
def test_missing_cells_count_like_dropped_ones():
    # A subject without a response changes nothing but through its own draws, which
    # follow the population: with weight 0 it changes nothing at all.
    simulated = case("2pl")
    data = simulated.data
    weight = jnp.ones(data.num_subjects).at[:40].set(0)
    problem = Problem.create(
        simulated.model, dataclasses.replace(data, subject_weight=weight)
    )
    method = SAEM(jnp.asarray(NODES), num_steps=2)
    start = start_values(simulated.model, data)
    state = eqx.filter_jit(method.init)(problem, start, KEY)
    new = eqx.filter_jit(method.step)(problem, state, KEY)
    assert float(new.averaged.nodes.sum()) == pytest.approx(200)
    assert float(new.averaged.base.sum()) == pytest.approx(
        float(data.exposure[40:].sum())
    )


def test_moments_move_with_the_scale():
    rng = np.random.default_rng(5)
    theta, tau = rng.normal(size=(2, 4))
    latent = Latent(theta, theta**2, tau, tau**2, theta * tau)
    moved = latent.moved(0.3, 1.5, -0.2, 0.7)
    x, y = (theta - 0.3) / 1.5, (tau + 0.2) / 0.7
    for found, wanted in zip(moved, (x, x**2, y, y**2, x * y), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "key", "words"),
    [
        ({"nodes": None}, KEY, "no quadrature nodes"),
        ({}, None, "pass key"),
        ({"sampler": "magic"}, KEY, "'magic' is none of grid, augmented"),
        ({"sampler": "augmented"}, KEY, "needs a probit model"),
        ({"nodes": np.array([0.0, 1.0, 3.0])}, KEY, "equally spaced"),
    ],
)
def test_what_cannot_be_done_is_refused(options, key, words):
    data = case("2pl").data
    problem = Problem.create(two_parameter(), data)
    method = SAEM(**{"nodes": jnp.asarray(NODES)} | options)
    with pytest.raises(ValueError, match=words):
        method.init(problem, start_values(two_parameter(), data), key)


@pytest.mark.slow
def test_a_run_goes_on_from_a_file(tmp_path):
    simulated = case("2pl")
    problem = Problem.create(simulated.model, simulated.data)
    method = SAEM(jnp.asarray(NODES), num_steps=12)
    start = start_values(simulated.model, simulated.data)
    options = {"key": KEY, "max_steps": 12}
    whole = run_jit(problem, method, start, **options)
    part = run_jit(problem, method, start, stop_after=jnp.asarray(5), **options)
    path = save_checkpoint(tmp_path / "run.npz", part)
    fresh = begin(problem, method, start, **options)
    loop = load_checkpoint(path, fresh)
    rest = run_jit(problem, method, start, resume=loop, **options)
    np.testing.assert_allclose(whole.trace, rest.trace, rtol=1e-12)
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]
    longer = begin(problem, method, start, key=KEY, max_steps=13)
    with pytest.raises(ValueError, match="another problem, method or number"):
        load_checkpoint(path, longer)
    with pytest.raises(ValueError, match="cannot read"):
        load_checkpoint(tmp_path / "none.npz", fresh)
    (tmp_path / "text.npz").write_text("nothing")
    with pytest.raises(ValueError, match=r"text\.npz: it is"):
        load_checkpoint(tmp_path / "text.npz", fresh)
    with pytest.raises(ValueError, match="choose a place that exists"):
        save_checkpoint(tmp_path / "no" / "run.npz", part)
