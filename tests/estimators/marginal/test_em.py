"""EM: the optimum of independent code, and the symmetries it must have."""

import dataclasses

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from scipy import optimize

import irtjax
from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import begin, loop_of
from irtjax.estimators.marginal.em import EM, TOLERANCE
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem, Start
from irtjax.models import catalogue
from tests import brute_force
from tests.tables import (
    NODES,
    NUM_ITEMS,
    NUM_SUBJECTS,
    case,
    draw,
    estimated_vector,
    fit_with,
    frame_columns,
    free_columns,
    marginal_method,
    run_jit,
    true_items,
)

#: Tight enough that two routes to one optimum agree to some 1e-6.
TIGHT = marginal_method(1e-6)


def _two_parameter_case():
    simulated = case("2pl")
    return simulated.model, simulated.data


@pytest.fixture(scope="module")
def tight_fit():
    return fit_with(TIGHT, *_two_parameter_case())


def _weigh(data: Responses, weight) -> Responses:
    return dataclasses.replace(data, subject_weight=jnp.asarray(weight, float))


@pytest.mark.parametrize(
    ("name", "priors"),
    [
        ("2pl", "weak"),
        pytest.param("2pl", None, marks=pytest.mark.slow),
        pytest.param("rasch", None, marks=pytest.mark.slow),
        pytest.param("3pl", "weak", marks=pytest.mark.slow),
    ],
)
def test_the_optimum_is_that_of_a_general_optimiser(name, priors):
    simulated = case(name)
    model = catalogue.MODELS[name](priors)
    fit = fit_with(TIGHT, model, simulated.data)
    assert int(fit.status) == Status.CONVERGED
    objective = brute_force.marginal_objective(model, simulated.data, NODES)
    free = np.r_[free_columns(model), frame_columns(model)]
    vector = np.array(simulated.vector)

    @jax.jit
    def loss(part):
        return -objective(jnp.asarray(vector).at[free].set(part))

    found = optimize.minimize(
        jax.jit(jax.value_and_grad(loss)),
        vector[free],
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-7},
    )
    estimate = np.asarray(estimated_vector(fit))[free]
    assert -found.fun == pytest.approx(float(fit.objective), abs=1e-7)
    # Errors of the optimiser: gradients of 1e-5 over curvatures of 1 or more.
    hessian = np.asarray(jax.jit(jax.hessian(loss))(found.x))
    error = np.sqrt(np.diag(np.linalg.inv(hessian)))
    assert (np.abs(estimate - found.x) / error).max() < 1e-3


def test_subjects_in_another_order(tight_fit):
    model, data = _two_parameter_case()
    order = np.random.default_rng(0).permutation(NUM_SUBJECTS)
    assert data.observed is not None
    other = fit_with(TIGHT, model, Responses(data.values[order], data.observed[order]))
    chex.assert_trees_all_close(
        other.parameters.items, tight_fit.parameters.items, atol=1e-6
    )
    np.testing.assert_allclose(
        other.subject_log_lik, tight_fit.subject_log_lik[order], atol=1e-6
    )


def test_items_in_another_order(tight_fit):
    model, data = _two_parameter_case()
    order = np.random.default_rng(1).permutation(NUM_ITEMS)
    assert data.observed is not None
    other = fit_with(
        TIGHT, model, Responses(data.values[:, order], data.observed[:, order])
    )
    expected = jax.tree.map(lambda x: x[order], tight_fit.parameters.items)
    chex.assert_trees_all_close(other.parameters.items, expected, atol=1e-6)


def test_relabelling_an_item_mirrors_it():
    # Right and wrong swapped: a -> -a, d -> -d, without priors (signed ones differ).
    model = catalogue.two_parameter(None)
    data = case("2pl").data
    assert data.observed is not None
    values = data.values.at[:, 2].set((1 - data.values[:, 2]) * data.observed[:, 2])
    plain, mirrored = (
        fit_with(TIGHT, model, Responses(v, data.observed)).parameters.items
        for v in (data.values, values)
    )
    sign = np.where(np.arange(NUM_ITEMS) == 2, -1.0, 1.0)
    np.testing.assert_allclose(
        mirrored.discrimination, sign * plain.discrimination, atol=1e-5
    )
    np.testing.assert_allclose(mirrored.intercept, sign * plain.intercept, atol=1e-5)
    assert float(mirrored.discrimination.sum()) > 0


def test_missing_is_the_same_as_dropped(tight_fit):
    model, data = _two_parameter_case()
    assert data.observed is not None
    # Two items that nobody met and ten subjects who met nothing.
    values = jnp.pad(data.values, ((0, 10), (0, 2)))
    padded = Responses(values, jnp.pad(data.observed, ((0, 10), (0, 2))))
    fit = fit_with(TIGHT, model, padded)
    kept = jax.tree.map(lambda x: x[:NUM_ITEMS], fit.parameters.items)
    # An empty subject says nothing, but takes part in the average that moves the
    # scale; the optimum is the same.
    chex.assert_trees_all_close(kept, tight_fit.parameters.items, atol=1e-5)
    assert float(fit.log_lik) == pytest.approx(float(tight_fit.log_lik), abs=1e-6)
    np.testing.assert_allclose(fit.subject_log_lik[-10:], 0, atol=1e-12)
    # What nobody met is at the mode of its priors, 1 and 0, for an ability
    # shifted and stretched to suit the priors.
    shift, log_scale = fit.state.carry.frame
    extra = jax.tree.map(lambda x: x[NUM_ITEMS:], fit.parameters.items)
    np.testing.assert_allclose(extra.discrimination * jnp.exp(log_scale), 1, atol=1e-5)
    np.testing.assert_allclose(
        extra.intercept + extra.discrimination * shift, 0, atol=1e-5
    )


def test_a_weight_is_a_number_of_copies():
    model, data = _two_parameter_case()
    half = NUM_SUBJECTS // 2
    assert data.observed is not None
    twice = np.r_[np.arange(half), np.arange(half)]
    doubled = Responses(data.values[twice], data.observed[twice])
    copies = fit_with(TIGHT, model, _weigh(doubled, np.ones(NUM_SUBJECTS)))
    weight = np.repeat([2.0, 0.0], half)
    weighted = fit_with(TIGHT, model, _weigh(data, weight))
    chex.assert_trees_all_close(
        weighted.parameters.items, copies.parameters.items, atol=1e-6
    )
    assert float(weighted.log_lik) == pytest.approx(float(copies.log_lik), abs=1e-7)


def test_weights_under_vmap_are_single_runs():
    model, data = _two_parameter_case()
    rng = np.random.default_rng(2)
    weights = jnp.asarray(rng.multinomial(NUM_SUBJECTS, [1 / NUM_SUBJECTS] * 240, 3))
    weights = weights.astype(float)
    start = start_values(model, data)

    def of(weight):
        problem = Problem.create(model, _weigh(data, weight))
        return run_jit(problem, TIGHT, start)

    together = eqx.filter_jit(eqx.filter_vmap(of))(weights)
    for k in range(3):
        alone = of(weights[k])
        lane = jax.tree.map(lambda x, k=k: x[k], together.parameters.items)
        chex.assert_trees_all_close(lane, alone.parameters.items, atol=1e-6)
        assert int(together.status[k]) == int(alone.status) == Status.CONVERGED


def test_a_resumed_run_repeats_an_unbroken_one_bit_for_bit(tight_fit):
    model, data = _two_parameter_case()
    problem, start = Problem.create(model, data), start_values(model, data)

    def go(loop, stop_after):
        return run_jit(
            problem, TIGHT, start, resume=loop, stop_after=jnp.asarray(stop_after)
        )

    first = eqx.filter_jit(begin)(problem, TIGHT, start)
    broken = go(first, 3)
    assert int(broken.status) == Status.RUNNING and int(broken.num_steps) == 3
    broken = go(loop_of(broken), 5)
    whole = go(first, 10**6)
    resumed = go(loop_of(broken), 10**6)
    assert int(whole.status) == Status.CONVERGED
    chex.assert_trees_all_equal(resumed, whole)
    assert int(tight_fit.num_steps) == int(whole.num_steps)


def test_single_precision_agrees(tight_fit):
    model, data = _two_parameter_case()
    with jax.numpy_dtype_promotion("strict"):
        start = start_values(model, data, dtype=jnp.float32)
        nodes = jnp.asarray(NODES, jnp.float32)
        method = EM(nodes, jnp.asarray(1e-2, jnp.float32))
        fit = run_jit(Problem.create(model, data), method, start)
    assert fit.parameters.items.discrimination.dtype == jnp.float32
    assert int(fit.status) == Status.CONVERGED
    # Within the tolerance of 0.01 complete-data standard errors, 0.15 to 0.6 here,
    # times the slowness of EM, at most 5 for the share of missing information.
    chex.assert_trees_all_close(
        jax.tree.map(lambda x: x.astype(jnp.float64), fit.parameters.items),
        tight_fit.parameters.items,
        atol=0.01 * 0.6 * 5,
    )
    total = np.asarray(fit.subject_log_lik, np.float64).sum()
    # Half the sum over 12 parameters of squared distances of 0.05 standard errors.
    assert total == pytest.approx(float(tight_fit.log_lik), abs=0.015)


def test_subjects_over_two_devices(tight_fit):
    devices = jax.devices()
    assert len(devices) >= 2, "the tests ask for two CPU devices in conftest.py"
    mesh = jax.make_mesh(
        (2,), ("subjects",), (jax.sharding.AxisType.Auto,), devices=devices[:2]
    )
    model, data = _two_parameter_case()
    rows = NamedSharding(mesh, PartitionSpec("subjects"))
    sharded = jax.tree.map(lambda x: jax.device_put(x, rows), data)
    fit = fit_with(TIGHT, model, sharded)
    chex.assert_trees_all_close(
        jax.device_get(fit.parameters.items),
        jax.device_get(tight_fit.parameters.items),
        atol=1e-6,
    )


def test_items_and_subjects_without_variation_stay_finite():
    model, data = _two_parameter_case()
    assert data.observed is not None
    values = data.values.at[:, 0].set(1).at[:, 1].set(0).at[:5].set(1).at[5:9].set(0)
    values = values * data.observed
    # All-right and all-wrong columns but for the rows that are all of one kind.
    seen = data.observed.at[5:9, 0].set(False).at[:5, 1].set(False)
    fit = fit_with(marginal_method(), model, Responses(values * seen, seen))
    assert int(fit.status) == Status.CONVERGED
    leaves = jax.tree.leaves((fit.parameters, fit.subject_log_lik, fit.objective))
    assert all(bool(jnp.isfinite(x).all()) for x in leaves)
    intercept = np.asarray(fit.parameters.items.intercept)
    assert intercept[0] > 3 and intercept[1] < -3


@pytest.mark.slow
def test_acceleration_and_more_newton_steps_change_the_route_only(tight_fit):
    plain = fit_with(
        marginal_method(1e-6, memory=0, num_newton=3), *_two_parameter_case()
    )
    assert int(plain.status) == Status.CONVERGED
    chex.assert_trees_all_close(
        plain.parameters.items, tight_fit.parameters.items, atol=1e-5
    )
    assert int(tight_fit.num_steps) < int(plain.num_steps)


def test_it_says_when_precision_allows_no_more():
    # A tolerance of 0 cannot be met: proposals are refused or rounding ends it.
    fit = fit_with(marginal_method(0.0), *_two_parameter_case())
    assert Status(int(fit.status)) in (Status.STALLED, Status.MAX_STEPS)
    assert float(fit.residual) < 1e-6


def test_coarse_nodes_do_not_make_it_lose_ground():
    # Slopes of 4 on nodes 1 apart: folding the scale is not neutral there.
    model = catalogue.two_parameter(None)
    steep = true_items(model)._replace(discrimination=jnp.full(NUM_ITEMS, 4.0))
    rng = np.random.default_rng(0)
    values = draw("2pl", steep, rng.standard_normal(NUM_SUBJECTS), rng)
    method = EM(jnp.linspace(-6, 6, 13), jnp.asarray(1e-4))
    fit = fit_with(method, model, Responses(jnp.asarray(values)))
    trace = np.asarray(fit.trace)[: int(fit.num_steps)]
    assert np.isfinite(trace).all()
    assert np.diff(trace).min() >= -1e-9


def simulated_two_groups():
    """80 subjects of two abilities by 6 items."""
    rng = np.random.default_rng(6)
    eta = rng.choice([-1.6, 1.6], 80)[:, None] + np.linspace(-1, 1, 6)
    return (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(int)


@pytest.fixture(scope="module")
def bimodal():
    """Two groups 3.2 apart, each of standard deviation 0.5: mean 0, variance 2.8."""
    rng = np.random.default_rng(6)
    theta = rng.choice([-1.6, 1.6], NUM_SUBJECTS) + 0.5 * rng.standard_normal(240)
    model = catalogue.two_parameter(None)
    items = true_items(model)._replace(discrimination=jnp.full(NUM_ITEMS, 1.8))
    values = draw("2pl", items, theta, rng)
    data = Responses(jnp.asarray(values), jnp.ones(values.shape, bool))
    normal = fit_with(marginal_method(), model, data)
    histogram = fit_with(marginal_method(1e-3, population="histogram"), model, data)
    return model, data, normal, histogram


def test_a_histogram_finds_two_groups(bimodal):
    model, data, normal, histogram = bimodal
    # The normal form is one of its members, so it must win; twice the gain is far
    # beyond what chance gives to a few effective parameters (about 10).
    assert 2 * float(histogram.log_lik - normal.log_lik) > 30
    population = histogram.parameters.population
    weights = np.exp(population.log_weights)
    nodes = np.asarray(histogram.state.carry.nodes)
    assert weights.sum() == pytest.approx(1)
    # Exact at the last update of the weights, one step behind it the nodes are those
    # of the step before.
    assert weights @ nodes == pytest.approx(0, abs=0.02)
    assert weights @ nodes**2 == pytest.approx(1, abs=0.02)
    assert float(population.mean) == 0 and float(population.sd) == 1
    middle = weights[np.abs(nodes) < 0.3].sum()
    sides = weights[np.abs(np.abs(nodes) - 0.95) < 0.3].sum()
    assert sides > 4 * middle
    trace = np.asarray(histogram.trace)[: int(histogram.num_steps)]
    assert np.diff(trace).min() >= -1e-9


@pytest.mark.slow
def test_a_histogram_converges_to_the_tolerance_that_is_given():
    table = irtjax.ResponseTable.from_arrays(simulated_two_groups())
    settings = {"priors": None, "population": "histogram"}
    default = irtjax.fit(table, "rasch", "em", **settings)
    fit = irtjax.fit(table, "rasch", "em", tolerance=3e-4, **settings)
    assert 3e-4 < default.residual <= 1e-3 and fit.residual <= 3e-4
    assert fit.log_likelihood > default.log_likelihood
    usual = irtjax.fit(table, "rasch", "em", tolerance=TOLERANCE, **settings)
    assert usual.residual == default.residual


def test_a_histogram_reports_the_likelihood_of_its_own_weights(bimodal):
    model, data, _, histogram = bimodal
    items, population = histogram.parameters[:2]
    value = brute_force.marginal_log_likelihood(
        "2pl", items, data, histogram.state.carry.nodes, np.exp(population.log_weights)
    )
    # The weights are one step ahead of the items: the difference of one last step.
    assert float(value) == pytest.approx(float(histogram.log_lik), abs=0.02)


def test_bad_settings_are_named():
    model, data = _two_parameter_case()
    problem, start = Problem.create(model, data), start_values(model, data)
    with pytest.raises(ValueError, match="no quadrature nodes"):
        EM().init(problem, start, None)
    with pytest.raises(ValueError, match="neither 'normal' nor 'histogram'"):
        EM(jnp.asarray(NODES), population="uniform").init(problem, start, None)


def test_a_given_start_population_is_honoured():
    # 1PL reports a common slope; a start with it begins at the same likelihood.
    simulated = case("1pl")
    problem = Problem.create(simulated.model, simulated.data)
    start = Start(simulated.items)
    state = TIGHT.init(problem, start, None)
    np.testing.assert_allclose(brute_force.pack(*state.point[:3]), simulated.vector)


def test_windows_of_large_data_hold_the_posteriors():
    # A narrower window than posteriors is tried in vain.
    data = Responses(jnp.zeros((20_000, 100), jnp.int8))
    for count, window in ((97, 48), (401, 160)):
        assert EM().on_nodes(jnp.zeros(count, jnp.float32), data).window == window
