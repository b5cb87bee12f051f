"""The fast route: integrals against grids, derivatives by differences, recovery."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.base import run
from irtjax.estimators.laplace import (
    Laplace,
    StructuredProblem,
    half_normal_mode,
    start_components,
    start_structured,
)
from irtjax.estimators.units import (
    Outer,
    arrange,
    expected_responses,
    hermite_nodes,
    summarise,
)
from irtjax.models.hierarchical import Hierarchical, general_ability
from irtjax.models.logistic import Binary

RNG = np.random.default_rng(8)


def benchmarks(subjects, items, groups, **more) -> Hierarchical:
    """Items in turn of each benchmark, with an effect of each benchmark."""
    group = np.arange(items) % groups
    design = np.column_stack([np.ones(items), np.eye(groups)[group]])
    options = {"num_groups": groups, "has_group_scales": groups > 1} | more
    return Hierarchical(
        Binary(slopes="positive"),
        jnp.asarray(group),
        jnp.arange(items),
        jnp.asarray(design),
        jnp.asarray([-1, *[0] * groups]),
        jnp.zeros((subjects, 0)),
        num_stems=items,
        num_components=1,
        **options,
    )


def metrics(subjects, stems, groups) -> Hierarchical:
    """Every stem by every metric, with effects of the metrics."""
    group, stem = np.divmod(np.arange(groups * stems), stems)
    return Hierarchical(
        Binary(slopes="positive"),
        jnp.asarray(group),
        jnp.asarray(stem),
        jnp.ones((stems, 1)),
        jnp.asarray([-1]),
        jnp.zeros((subjects, 0)),
        num_groups=groups,
        num_stems=stems,
        has_group_effects=True,
        has_group_scales=True,
    )


def random_data(subjects, items, share=0.85) -> Responses:
    seen = RNG.random((subjects, items)) < share
    right = (RNG.random((subjects, items)) < 0.6) & seen
    return Responses(jnp.asarray(right, jnp.int8), jnp.asarray(seen))


def random_outer(model: Hierarchical) -> Outer:
    rows = model.num_groups if model.has_group_effects else 0
    return Outer(
        jnp.asarray(RNG.normal(size=(model.subject_design.shape[0], model.num_groups))),
        jnp.asarray(0.4 * RNG.normal(size=(model.design.shape[1], 2))),
        jnp.asarray([[0.6, 0.0], [0.5, 1.1]]),
        jnp.asarray(0.4 * RNG.normal(size=(rows, 2))),
    )


def passed(model, units, outer, order=15):
    size = model.subject_design.shape[0] * model.num_groups
    shape = (1, size, size)
    if not units.is_aligned:
        shape = (model.num_groups, *[size // model.num_groups] * 2)
    mode = jnp.zeros((units.weight.shape[0], 2))
    covariance = jnp.broadcast_to(0.01 * jnp.eye(shape[-1]), shape)
    return summarise(model, units, outer, mode, covariance, order=order, num_newton=20)


def test_hermite_nodes_integrate_polynomials():
    points, log_weights = hermite_nodes(4, 3)
    moment = np.exp(log_weights) @ (points[:, 0] ** 2 * points[:, 2] ** 4)
    assert moment == pytest.approx(np.pi**1.5 * 0.5 * 0.75)


@pytest.mark.parametrize("kind", ["benchmarks", "metrics"])
def test_integrals_are_those_of_a_fine_grid(kind):
    if kind == "benchmarks":
        model, data = benchmarks(5, 4, 2), random_data(5, 4)
    else:
        model, data = metrics(5, 2, 2), random_data(5, 4)
    units, outer = arrange(model, data), random_outer(model)
    found = passed(model, units, outer)
    omega = np.asarray(outer.residual_factor @ outer.residual_factor.T)
    log_a, d = np.linspace(-5, 5, 401)[:, None], np.linspace(-9, 9, 361)
    for stem in range(model.num_stems):
        mean = np.asarray(model.design[stem] @ outer.effects)
        point = np.stack(np.broadcast_arrays(log_a, d), -1)
        density = stats.multivariate_normal.logpdf(point, mean, omega)
        for column in np.flatnonzero(np.asarray(model.stem) == stem):
            group, shift = int(model.group[column]), np.zeros(2)
            if model.has_group_effects:
                shift = np.asarray(outer.group_effects[group])
            for subject in np.flatnonzero(np.asarray(data.observed[:, column])):
                theta = float(outer.ability[subject, group])
                eta = np.exp(log_a + shift[0]) * theta + d + shift[1]
                sign = 2 * int(data.values[subject, column]) - 1
                density -= np.logaddexp(0, -sign * eta)
        wanted = np.log(np.exp(density).sum() * 0.025 * 0.05)
        unit = int(units.unit[stem])
        # Fifteen nodes a coordinate: the quadrature errs in the fifth digit or less.
        assert float(found.log_marginal[unit]) == pytest.approx(wanted, abs=2e-4)


@pytest.mark.parametrize("kind", ["benchmarks", "metrics"])
def test_derivatives_are_those_of_differences(kind):
    if kind == "benchmarks":
        model, data = benchmarks(3, 6, 2), random_data(3, 6)
    else:
        model, data = metrics(3, 4, 2), random_data(3, 8)
    units, outer = arrange(model, data), random_outer(model)
    total = jax.jit(
        lambda outer: jnp.sum(passed(model, units, outer).log_marginal * units.weight)
    )
    found, step = passed(model, units, outer), 1e-3
    flat = outer.ability.T.reshape(-1)

    def at(move):
        ability = (flat + move).reshape(model.num_groups, -1).T
        return float(total(outer._replace(ability=ability)))

    size = flat.shape[0]
    unit = step * np.eye(size)
    slope = [(at(unit[i]) - at(-unit[i])) / (2 * step) for i in range(size)]
    # The identities hold for the integrals; the quadrature is within 1e-4 of them.
    np.testing.assert_allclose(found.gradient.T.reshape(-1), slope, atol=1e-3)
    curvature = np.asarray(found.curvature)
    if not units.is_aligned:
        whole = np.zeros((2, 3, 2, 3))
        whole[[0, 1], :, [0, 1]] = curvature
        curvature = whole.reshape(6, 6)
    wide, pairs = 0.05, [(0, 0), (0, 1), (1, 4), (5, 5)]
    for i, k in pairs:
        one, other = wide * np.eye(size)[i], wide * np.eye(size)[k]
        second = at(one + other) - at(one - other) - at(other - one) + at(-one - other)
        # Differences over 0.1: curvatures change by some per cent of 1.
        assert -second / (4 * wide**2) == pytest.approx(
            curvature.reshape(6, 6)[i, k], abs=0.02
        )
    if model.has_group_effects:
        for m, c in ((0, 0), (1, 1)):
            move = jnp.zeros_like(outer.group_effects).at[m, c].set(step)
            up = total(outer._replace(group_effects=outer.group_effects + move))
            down = total(outer._replace(group_effects=outer.group_effects - move))
            difference = float(up - down) / (2 * step)
            assert float(found.effect_gradient[m, c]) == pytest.approx(
                difference, abs=1e-3
            )


def test_skewness_of_abilities_is_that_of_differences():
    group, items = np.arange(6) % 2, 6
    model = Hierarchical(
        Binary(slopes="unit"),
        jnp.asarray(group),
        jnp.arange(items),
        jnp.ones((items, 1)),
        jnp.asarray([-1]),
        jnp.zeros((3, 0)),
        num_groups=2,
        num_stems=items,
    )
    units = arrange(model, random_data(3, items))
    ability, step = jnp.asarray(RNG.normal(size=(3, 2))), 0.02

    @jax.jit
    def at(ability, variance):
        outer = Outer(ability, jnp.zeros((1, 1)), jnp.eye(1), jnp.zeros((0, 1)))
        mode = jnp.zeros((units.weight.shape[0], 1))
        errors = variance * jnp.broadcast_to(jnp.eye(3), (2, 3, 3))
        return summarise(model, units, outer, mode, errors, order=15, num_newton=20)

    found, moved, bent = at(ability, 0.0), at(ability, 0.3), 0.0
    for i, m in np.ndindex(3, 2):
        move = jnp.zeros((3, 2)).at[i, m].set(step)
        up, down = at(ability + move, 0.0), at(ability - move, 0.0)
        third = (up.gradient - 2 * found.gradient + down.gradient)[i, m] / step**2
        # Differences err by the square of the step times derivatives of some units.
        assert float(found.third[i, m]) == pytest.approx(float(third), abs=2e-3)
        bent = bent + (up.mean - 2 * found.mean + down.mean) / step**2
    # Means over abilities that err by a variance of 0.3.
    np.testing.assert_allclose(moved.mean - found.mean, 0.15 * bent, atol=1e-3)


def test_equal_items_are_done_once():
    model, data = benchmarks(3, 40, 1), random_data(3, 40)
    units, outer = arrange(model, data), random_outer(model)
    assert units.weight.shape[0] < 30 and float(units.weight.sum()) == 40
    alone = units._replace(
        values=units.values[units.unit],
        exposure=units.exposure[units.unit],
        group=units.group[units.unit],
        design=units.design[units.unit],
        weight=jnp.ones(40),
        unit=jnp.arange(40),
    )
    once, every = passed(model, units, outer, 3), passed(model, alone, outer, 3)
    np.testing.assert_allclose(once.gradient, every.gradient, atol=1e-9)
    np.testing.assert_allclose(once.curvature, every.curvature, atol=1e-9)
    np.testing.assert_allclose(
        once.log_marginal[units.unit], every.log_marginal, atol=1e-9
    )


def test_half_normal_mode_is_the_root():
    total, count, scale = 7.0, 5.0, 2.0
    found = float(half_normal_mode(jnp.asarray(total), count, scale))
    height = lambda x: (  # noqa: E731
        -count * x - total / (2 * np.exp(2 * x)) - np.exp(2 * x) / (2 * scale**2) + x
    )
    nearby = found + np.array([-1e-3, 0, 1e-3])
    assert np.argmax(height(nearby)) == 1


def simulated(model: Hierarchical, seed=0, scale=(0.6, 0.4, 0.5), rho=0.3):
    """Responses of known abilities, with every part of the model at work."""
    rng = np.random.default_rng(seed)
    groups, subjects = model.num_groups, model.subject_design.shape[0]
    own = np.outer(scale, scale) * (rho + (1 - rho) * np.eye(groups))
    psi = rng.normal(size=subjects)
    theta = psi[:, None] + rng.multivariate_normal(np.zeros(groups), own, subjects)
    shift = np.linspace(-0.7, 0.7, groups)[np.asarray(model.group)]
    log_a = 0.2 + 0.4 * rng.normal(size=model.num_stems)
    d = shift + rng.normal(size=model.num_stems)
    eta = np.exp(log_a) * theta[:, np.asarray(model.group)] + d
    right = rng.random(eta.shape) < 1 / (1 + np.exp(-eta))
    return Responses(jnp.asarray(right, jnp.int8)), theta, psi, own, log_a, d


run_jit = eqx.filter_jit(run)


@pytest.mark.slow
def test_it_recovers_what_was_simulated():
    model = benchmarks(40, 240, 3)
    data, theta, psi, own, log_a, d = simulated(model)
    problem = StructuredProblem.create(model, data)
    fit = run_jit(problem, Laplace(order=3), None, max_steps=200)
    assert Status(int(fit.status)) is Status.CONVERGED
    state = fit.state
    error = jnp.sqrt(jnp.diagonal(state.reported_covariance)).reshape(3, -1).T
    z = (np.asarray(state.ability) - theta) / np.asarray(error)
    # 120 abilities whose errors share an origin and a unit for each group.
    assert np.abs(z).mean() < 1.2
    # Means of 240 items, with what 40 subjects say of each.
    assert float(state.components.effects[0, 0]) == pytest.approx(0.2, abs=0.25)
    sd = np.exp(np.asarray(state.components.log_residual_sd))
    np.testing.assert_allclose(sd, [0.4, 1.0], rtol=0.25)
    # 40 subjects: a log standard deviation has an error of 1 / sqrt(80) at least.
    found = np.exp(np.asarray(state.components.log_scale))
    assert np.abs(np.log(found / np.sqrt(np.diag(own)))).max() < 0.6
    general = general_ability(jnp.asarray(own))
    assert np.corrcoef(state.ability @ general.weights, psi)[0, 1] > 0.9
    coordinates = np.asarray(state.mean)[np.asarray(problem.units.unit)]
    assert np.corrcoef(coordinates[:, 1], d)[0, 1] > 0.9
    # What is expected of cells is calibrated: right as often as it says.
    outer = Outer(
        state.ability,
        state.components.effects,
        model.residual_factor(*state.components[4:6]),
        state.components.group_effects,
    )
    expected = expected_responses(model, problem.units, outer, state.mode, order=3)
    gap = np.asarray(data.values) - np.asarray(expected[problem.units.unit, 0].T)
    assert abs(gap.mean()) < 0.01


def test_what_is_too_large_or_double_is_refused():
    model = metrics(4, 3, 2)
    twice = eqx.tree_at(lambda m: m.group, model, jnp.zeros(6, int))
    with pytest.raises(ValueError, match="two columns of one metric"):
        arrange(twice, random_data(4, 6))
    model, data = benchmarks(3001, 4, 2), random_data(3001, 4)
    with pytest.raises(ValueError, match="fit fewer of either"):
        Laplace().init(StructuredProblem.create(model, data), None, None)


def test_start_values_are_finite_without_variation():
    model = benchmarks(3, 4, 2)
    data = Responses(jnp.ones((3, 4), jnp.int8))
    ability, mode = start_structured(model, data)
    parts = [ability, mode, *start_components(model, mode)]
    assert all(bool(jnp.isfinite(part).all()) for part in parts)
