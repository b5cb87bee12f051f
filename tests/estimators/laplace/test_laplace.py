"""`laplace`: integrals against grids, derivatives by differences, recovery."""

import dataclasses
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from experiments.scaling.bayes import draw_benchmarks
from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run
from irtjax.estimators.laplace import components as of_components
from irtjax.estimators.laplace import problem as of_problem
from irtjax.estimators.laplace.curvature import centred, factorise
from irtjax.estimators.laplace.errors import errors_of
from irtjax.estimators.laplace.item_posterior import (
    LEAST_CURVATURE,
    Outer,
    at_least_prior,
    hermite_nodes,
    orders_of,
)
from irtjax.estimators.laplace.items import (
    Following,
    arrange,
    expected_responses,
    summarise,
    variance_of_items,
)
from irtjax.estimators.laplace.laplace import Laplace, suitable_order
from irtjax.estimators.laplace.m_step import error_of_effects, half_normal_mode
from irtjax.estimators.laplace.problem import (
    AbilityPoint,
    LaplaceCarry,
    MultilevelProblem,
)
from irtjax.models.families.continuous import LogitNormalScores
from irtjax.models.families.logistic import Binary
from irtjax.models.families.mixed import MixedScores
from irtjax.models.multilevel.model import MultilevelModel, general_ability
from irtjax.models.priors import LogitNormal, LogNormal, Normal
from irtjax.prediction.responses import predict_responses

RNG = np.random.default_rng(8)

#: One program each, in place of one for each operation.
judged, num_effective, precisions, start_components, start_multilevel = map(
    eqx.filter_jit,
    (
        of_components.judged,
        of_components.num_effective,
        of_components.precisions,
        of_problem.start_components,
        of_problem.start_multilevel,
    ),
)
progress = eqx.filter_jit(
    lambda problem, method, state: method.progress(problem, SimpleNamespace(**state))
)


def benchmarks(subjects, items, groups, **more) -> MultilevelModel:
    """Items in turn of each benchmark, with an effect of each benchmark."""
    group = np.arange(items) % groups
    design = np.column_stack([np.ones(items), np.eye(groups)[group]])
    options = {"num_groups": groups, "has_group_scales": groups > 1} | more
    return MultilevelModel(
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


def metrics(subjects, stems, groups) -> MultilevelModel:
    """Every stem by every metric, with effects of the metrics."""
    group, stem = np.divmod(np.arange(groups * stems), stems)
    return MultilevelModel(
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


def random_outer(model: MultilevelModel) -> Outer:
    rows = model.num_groups if model.has_group_effects else 0
    return Outer(
        jnp.asarray(RNG.normal(size=(model.subject_design.shape[0], model.num_groups))),
        jnp.asarray(0.4 * RNG.normal(size=(model.design.shape[1], 2))),
        jnp.asarray([[[0.6, 0.0], [0.5, 1.1]], [[0.6, 0.0], [-0.2, 1.1]]])[
            : model.num_groups if model.has_tilts else 1
        ],
        jnp.asarray(0.4 * RNG.normal(size=(rows, 2))),
    )


def passed(model, distinct, outer, order=15, error=None):
    size = model.subject_design.shape[0] * model.num_groups
    shape = (1, size, size)
    if not distinct.is_aligned:
        shape = (model.num_groups, *[size // model.num_groups] * 2)
    mode = jnp.zeros((distinct.weight.shape[0], 2))
    # Sure abilities, so that items are expected what they are at them.
    known = jnp.zeros(shape) if error is None else error[0]
    shift = jnp.zeros_like(outer.ability) if error is None else error[1]
    return summarise_jit(
        model, distinct, outer, mode, known, shift, order=order, num_newton=20
    )


#: One program for all calls of a shape.
summarise_jit = eqx.filter_jit(summarise)


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
    distinct, outer = arrange(model, data), random_outer(model)
    found = passed(model, distinct, outer)
    factors = np.asarray(outer.residual_factor)
    rows = np.asarray(model.factor_row)
    log_a, d = np.linspace(-5, 5, 401)[:, None], np.linspace(-9, 9, 361)
    for stem in range(model.num_stems):
        mean = np.asarray(model.design[stem] @ outer.effects)
        point = np.stack(np.broadcast_arrays(log_a, d), -1)
        omega = factors[rows[stem]] @ factors[rows[stem]].T
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
        place = int(distinct.of_stem[stem])
        # Fifteen nodes a coordinate: the quadrature errs in the fifth digit or less.
        assert float(found.log_marginal[place]) == pytest.approx(wanted, abs=2e-4)


@pytest.mark.slow
def test_items_of_two_kinds_are_integrated_as_those_of_one_kind_each():
    subjects, items, rng = 7, 4, np.random.default_rng(3)
    binary = np.array([True, False, False, True])
    logits = rng.normal(size=(subjects, items))
    mixed = np.where(binary, logits > 0, logits)
    root = np.array([[0.6, 0, 0], [0.5, 1.1, 0], [0.2, -0.3, 0.4]])
    effects = 0.4 * rng.normal(size=(1, 3))
    theta = jnp.asarray(rng.normal(size=(subjects, 1)))

    def log_marginal(family, values):
        model = MultilevelModel(
            family,
            jnp.zeros(items, int),
            jnp.arange(items),
            jnp.ones((items, 1)),
            jnp.asarray([-1]),
            jnp.zeros((subjects, 0)),
            num_stems=items,
        )
        size = family.num_columns
        distinct = arrange(model, Responses(jnp.asarray(values)))
        outer = Outer(
            theta,
            jnp.asarray(effects[:, :size]),
            jnp.asarray(root[None, :size, :size]),
            jnp.zeros((0, size)),
        )
        found = summarise_jit(
            model,
            distinct,
            outer,
            jnp.zeros((distinct.weight.shape[0], size)),
            jnp.zeros((1, subjects, subjects)),
            jnp.zeros((subjects, 1)),
            order=9,
            num_newton=20,
        )
        return np.asarray(found.log_marginal)[np.asarray(distinct.of_stem)]

    both = log_marginal(MixedScores(tuple(binary.tolist()), "positive"), mixed)
    right = log_marginal(Binary(slopes="positive"), (logits > 0).astype(np.int8))
    score = log_marginal(LogitNormalScores(slopes="positive"), logits)
    # A coordinate that is out of use keeps its prior, whose integral is 1; nodes that
    # take it along lie elsewhere, and the quadrature errs in the fourth digit.
    np.testing.assert_allclose(both, np.where(binary, right, score), atol=1e-3)


@pytest.mark.parametrize("kind", ["benchmarks", "metrics"])
def test_derivatives_are_those_of_differences(kind):
    if kind == "benchmarks":
        model, data = benchmarks(3, 6, 2), random_data(3, 6)
    else:
        model, data = metrics(3, 4, 2), random_data(3, 8)
    distinct, outer = arrange(model, data), random_outer(model)

    def total(outer):
        return jnp.sum(passed(model, distinct, outer).log_marginal * distinct.weight)

    found, step = passed(model, distinct, outer), 1e-3
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
    if not distinct.is_aligned:
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


@pytest.mark.parametrize("kind", ["benchmarks", "metrics"])
def test_items_are_expected_over_the_error_of_the_abilities(kind):
    """To second order: E[f(theta)] = f + f' delta + tr(C f'') / 2, by differences."""
    if kind == "benchmarks":
        model, data = benchmarks(3, 6, 2), random_data(3, 6)
    else:
        model, data = metrics(3, 4, 2), random_data(3, 8)
    distinct, outer = arrange(model, data), random_outer(model)
    root = 0.3 * RNG.normal(size=(6, 6))
    whole = root @ root.T
    if not distinct.is_aligned:
        # Items of one group hear of the covariance within it.
        whole[:3, 3:] = whole[3:, :3] = 0
    shift = 0.1 * RNG.normal(size=(3, 2))
    blocks = np.stack([whole[:3, :3], whole[3:, 3:]])
    error = (blocks if not distinct.is_aligned else whole[None], shift)
    error = jax.tree.map(jnp.asarray, error)
    found = passed(model, distinct, outer, 9, error)
    flat, step = outer.ability.T.reshape(-1), 0.02

    def at(move):
        ability = (flat + move).reshape(2, 3).T
        return passed(model, distinct, outer._replace(ability=ability), 9)

    plain = at(jnp.zeros(6))
    values, vectors = np.linalg.eigh(whole)
    second = lambda x: x.covariance + jnp.einsum("ua,ub->uab", x.mean, x.mean)
    mean, square = np.asarray(plain.mean), np.asarray(second(plain))
    middle = mean.copy(), square.copy()
    for value, vector in zip(values, vectors.T, strict=True):
        up, down = at(step * vector), at(-step * vector)
        mean += value * (up.mean + down.mean - 2 * middle[0]) / (2 * step**2)
        square += value * (second(up) + second(down) - 2 * middle[1]) / (2 * step**2)
    along = shift.T.reshape(-1)
    up, down = at(1e-3 * along), at(-1e-3 * along)
    mean += (up.mean - down.mean) / 2e-3
    square += (second(up) - second(down)) / 2e-3
    # Second differences over 0.04 err by fourth derivatives, some 1e-3 of them.
    np.testing.assert_allclose(found.mean, mean, atol=2e-3)
    whole_mean = np.asarray(found.mean)
    left = square - whole_mean[:, :, None] * whole_mean[:, None]
    row = np.eye(len(found.within))[distinct.row]
    within = np.einsum("u,ur,uab->rab", distinct.weight, row, left)
    np.testing.assert_allclose(found.within, within, atol=0.02)
    # The slope of -tr(C A) / 2 in the abilities, and that of delta' gradient.
    for i in range(6):
        unit = 1e-3 * np.eye(6)[i]
        up, down = at(jnp.asarray(unit)), at(jnp.asarray(-unit))

        def height(x):
            trace = sum(
                np.sum(np.asarray(a) * np.asarray(b))
                for a, b in zip(x.curvature, error[0], strict=True)
            )
            return -0.5 * trace + np.sum(np.asarray(x.gradient) * shift)

        wanted = (height(up) - height(down)) / 2e-3
        assert found.bend.T.reshape(-1)[i] == pytest.approx(wanted, abs=2e-3)
    if model.has_group_effects:
        for m, c in ((0, 0), (1, 1)):
            move = jnp.zeros_like(outer.group_effects).at[m, c].set(1e-3)

            def tall(sign, move=move):
                moved = outer._replace(group_effects=outer.group_effects + sign * move)
                x = passed(model, distinct, moved, 9)
                trace = np.sum(np.asarray(x.curvature) * np.asarray(error[0]))
                return -0.5 * trace + np.sum(np.asarray(x.gradient) * shift)

            wanted = (tall(1) - tall(-1)) / 2e-3
            more = float(found.effect_gradient[m, c] - plain.effect_gradient[m, c])
            assert more == pytest.approx(wanted, abs=2e-3)


@pytest.mark.slow
def test_scores_are_expected_over_the_error_of_the_abilities():
    """E log p(y | theta) for theta ~ N(m, C), on a grid of the item's coordinates."""
    model = MultilevelModel(
        LogitNormalScores(slopes="positive"),
        jnp.zeros(1, int),
        jnp.zeros(1, int),
        jnp.ones((1, 1)),
        jnp.asarray([-1]),
        jnp.zeros((6, 0)),
    )
    theta, effects = RNG.normal(size=(6, 1)), np.array([[0.1, -0.3, -0.2]])
    root = np.array([[0.4, 0, 0], [0.2, 0.9, 0], [0.1, -0.1, 0.5]])
    values = jnp.asarray(theta + 0.3 + 0.7 * RNG.normal(size=(6, 1)))
    distinct = arrange(model, Responses(values))
    outer = Outer(*map(jnp.asarray, (theta, effects, root[None])), jnp.zeros((0, 3)))
    half = 0.4 * RNG.normal(size=(6, 6))
    found = summarise_jit(
        model,
        distinct,
        outer,
        jnp.zeros((1, 3)),
        jnp.asarray(half @ half.T)[None],
        jnp.zeros((6, 1)),
        order=15,
        num_newton=20,
        expected=True,
    )
    axes = [np.linspace(-4, 4, 81) * sd for sd in np.sqrt(np.diag(root @ root.T))]
    log_a, d, log_sd = (
        x + m
        for x, m in zip(np.meshgrid(*axes, indexing="ij"), effects[0], strict=True)
    )
    point = np.stack([log_a, d, log_sd], -1)
    density = stats.multivariate_normal.logpdf(point, effects[0], root @ root.T)
    for i in range(6):
        gap = float(values[i, 0]) - np.exp(log_a) * theta[i, 0] - d
        square = gap**2 + np.exp(2 * log_a) * (half @ half.T)[i, i]
        density += -log_sd - 0.5 * square * np.exp(-2 * log_sd)
    share = np.exp(density - density.max())
    share /= share.sum()
    mean = np.einsum("abc,abck->k", share, point)
    square = np.einsum("abc,abck,abcl->kl", share, point, point)
    # Fifteen nodes a coordinate against a grid that ends at four standard deviations.
    np.testing.assert_allclose(found.mean_at[0], mean, atol=2e-3)
    covariance = square - np.outer(mean, mean)
    np.testing.assert_allclose(found.covariance[0], covariance, atol=2e-3)


def test_errors_of_items_are_those_of_moving_everything_they_hang_on():
    """Means of items by differences in abilities and effects, times their errors."""
    model, data = benchmarks(3, 6, 2), random_data(3, 6)
    distinct, outer = arrange(model, data), random_outer(model)
    roots = np.asarray(outer.residual_factor)
    omega = jnp.asarray(np.linalg.inv(roots @ roots.transpose(0, 2, 1)))
    size = outer.effects.size
    parts = [0.3 * RNG.normal(size=shape) for shape in ((6, 6), (size, 6), (size,) * 2)]
    whole, slope, rest = parts[0] @ parts[0].T, parts[1], parts[2] @ parts[2].T
    follow = Following(omega, *(jnp.asarray(x) for x in (slope.T, slope, rest)))
    found = eqx.filter_jit(variance_of_items)(
        model,
        distinct,
        outer,
        jnp.zeros((distinct.weight.shape[0], 2)),
        jnp.zeros((2, 3, 3)),
        jnp.asarray(whole),
        follow,
        order=9,
        num_newton=20,
    )

    @jax.jit
    def mean(move, more):
        ability = outer.ability + move.reshape(2, 3).T
        effects = outer.effects + more.reshape(2, -1).T
        return passed(model, distinct, Outer(ability, effects, *outer[2:]), 9).mean_at

    def by(move, more):
        return (mean(move, more) - mean(-move, -more)) / 2e-3

    still = jnp.zeros(6), jnp.zeros(size)
    ability = np.stack([by(1e-3 * u, still[1]) for u in jnp.eye(6)], -1)
    effect = np.stack([by(still[0], 1e-3 * u) for u in jnp.eye(size)], -1)
    along = ability + effect @ slope
    wanted = np.einsum("uan,nk,uak->ua", along, whole, along)
    wanted += np.einsum("uan,nk,uak->ua", effect, rest, effect)
    np.testing.assert_allclose(found, wanted, rtol=5e-3)


@pytest.mark.slow
def test_scores_of_few_items_end_where_they_were_drawn_from():
    """Forty subjects, twenty questions by three metrics: Heywood's case was the end."""
    model = dataclasses.replace(
        metrics(40, 20, 3), family=LogitNormalScores(slopes="positive")
    )
    shares = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        own = np.outer(*[(0.6, 0.4, 0.5)] * 2) * (0.3 + 0.7 * np.eye(3))
        theta = rng.multivariate_normal(np.zeros(3), 1 + own, 40)
        log_a, d = 0.4 * rng.normal(size=20), rng.normal(size=20)
        sd = np.exp(0.3 * rng.normal(size=20))
        group, stem = np.asarray(model.group), np.asarray(model.stem)
        scores = np.exp(log_a)[stem] * theta[:, group] + d[stem]
        scores += sd[stem] * rng.normal(size=scores.shape)
        problem = MultilevelProblem.create(model, Responses(jnp.asarray(scores)))
        fit = run_jit(problem, Laplace(), None, max_steps=100)
        assert Status(int(fit.status)) is Status.CONVERGED
        errors = errors_of(problem, Laplace(), fit.state)
        error = np.sqrt(np.diagonal(errors.covariance)).reshape(3, -1).T
        # Items tell where ability is 0 and what its unit is; drawn, they err too.
        shares.append(
            np.mean(np.abs(np.asarray(fit.state.ability) - theta) < 1.645 * error)
        )
        # The log unit is known to 1 / sqrt(80) where the spread of abilities is; with
        # own parts of 0 to 1.5 as likely as not, their log spread adds up to 0.3.
        centred = fit.state.ability - fit.state.ability.mean(axis=0)
        along = np.zeros(120)
        along[:40] = centred[:, 0] / np.sum(centred[:, 0] ** 2)
        assert 0.5 < along @ errors.covariance @ along * 2 * 40 < 8
        assert along @ errors.given @ along < 1e-6
    # 90 % intervals; those of one data set share an origin and a unit.
    assert abs(np.mean(shares) - 0.9) < 3 * max(np.std(shares) / 8**0.5, 0.015)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_few_responses_end_at_a_mode_of_the_marginal_likelihood(seed):
    """Thirty subjects and thirty items in a group: scales by differences of it."""
    model = benchmarks(30, 90, 3)
    problem = MultilevelProblem.create(model, simulated(model, seed=seed)[0])
    # By derivatives alone, as with a dozen subjects: only then is it that mode.
    problem = dataclasses.replace(problem, expected=False)
    fit = run_jit(problem, Laplace(tolerance=1e-3), None, max_steps=300)
    assert Status(int(fit.status)) is Status.CONVERGED
    components = fit.state.components

    @eqx.filter_jit
    def height(move):
        """Laplace's log marginal density, abilities at their mode."""
        moved = components._replace(
            log_scale=components.log_scale + move[:3],
            correlation=components.correlation + move[3:],
        )
        at = lambda **parts: fit.state._replace(point=fit.state.point._replace(**parts))

        def step(_, mode):
            state = at(components=moved, ability_mode=mode)
            return Laplace().approximate(problem, state).ability_mode

        mode = jax.lax.fori_loop(0, 8, step, fit.state.ability_mode)
        state = at(components=moved, ability_mode=mode)
        return Laplace().approximate(problem, state).objective

    for i in range(6):
        unit = 0.02 * jnp.eye(6)[i]
        up, middle, down = height(unit), height(0 * unit), height(-unit)
        slope, curve = (up - down) / 0.04, (up + down - 2 * middle) / 0.02**2
        # In standard errors of the scale or the correlation.
        assert curve < 0 and abs(slope) / np.sqrt(-curve) < 0.02


@pytest.mark.slow
def test_many_subjects_and_few_items():
    """300 by 30: at the mode of the abilities items would be far too steep."""
    model = benchmarks(300, 30, 1)
    shares, slopes = [], []
    for seed in range(8):
        data, theta, *_ = simulated(model, seed=100 + seed, scale=(1e-9,))
        problem = MultilevelProblem.create(model, data)
        fit = run_jit(problem, Laplace(), None, max_steps=100)
        assert Status(int(fit.status)) is Status.CONVERGED
        errors = errors_of(problem, Laplace(), fit.state)
        error = np.sqrt(np.diagonal(errors.covariance))
        gap = np.asarray(fit.state.ability)[:, 0] - theta[:, 0]
        shares.append(np.mean(np.abs(gap) < 1.645 * error))
        slopes.append(float(fit.state.components.effects[0, 0]))
    # Intervals of one data set share an origin and a unit: errors are over data sets.
    assert abs(np.mean(shares) - 0.9) < 3 * max(np.std(shares) / 8**0.5, 0.01)
    # Thirty slopes with a spread of 0.4 have a mean with an error of 0.07 alone.
    assert abs(np.mean(slopes) - 0.2) < 3 * 0.08 / 8**0.5


@pytest.mark.slow
def test_a_group_that_is_hard_for_all_keeps_its_subjects_at_0():
    """Scores whose intercepts are -2 a in the second group, about 0 in the first."""
    model = dataclasses.replace(
        benchmarks(25, 120, 2), family=LogitNormalScores(slopes="positive")
    )
    group, rng = np.asarray(model.group), np.random.default_rng(0)
    theta = rng.normal(size=(25, 1)) + 0.5 * rng.normal(size=(25, 2))
    slope = np.exp(0.6 * rng.normal(size=120))
    d = -slope * 2.0 * group + 0.5 * rng.normal(size=120)
    scores = slope * theta[:, group] + d + 0.5 * rng.normal(size=(25, 120))
    problem = MultilevelProblem.create(model, Responses(jnp.asarray(scores)))
    fit = run_jit(problem, Laplace(order=3), None, max_steps=200)
    assert Status(int(fit.status)) is Status.CONVERGED
    off = np.asarray(fit.state.ability) - theta
    errors = errors_of(problem, Laplace(order=3), fit.state)
    error = np.sqrt(np.diagonal(errors.covariance)).reshape(2, -1).T
    # Nine tenths in the long run; those of one data set share an origin and a unit. A
    # slope common to both groups moved the second by -1.35, and none held.
    assert np.mean(np.abs(off) < 1.645 * error, axis=0).min() > 0.75


def test_abilities_given_their_mean_are_the_conditional_normal():
    """Covariance and step of two groups of three, by conditioning on their sums."""
    root = RNG.normal(size=(2, 3, 3))
    curvature = root @ root.transpose(0, 2, 1) + np.eye(3)
    precision = np.array([[1.0, -0.3], [-0.3, 0.8]])
    ones = jnp.ones((3, 2))
    found = SimpleNamespace(gradient=ones, curvature=jnp.asarray(curvature), safe=ones)
    factor, data, log_det = factorise(found, jnp.asarray(precision), 2, None, 2)
    whole = np.zeros((6, 6))
    whole[:3, :3], whole[3:, 3:] = curvature
    whole = whole + np.kron(precision, np.eye(3))
    sums, inverse = np.kron(np.eye(2), np.ones((3, 1))), np.linalg.inv(whole)
    pull = inverse @ sums
    wanted = inverse - pull @ np.linalg.inv(sums.T @ pull) @ pull.T
    identity = jnp.eye(6)
    solved = jax.scipy.linalg.cho_solve((factor, True), identity)
    np.testing.assert_allclose(centred(solved, 2), wanted, atol=1e-12)
    gradient = RNG.normal(size=6)
    step = jax.scipy.linalg.cho_solve((factor, True), centred(jnp.asarray(gradient), 2))
    np.testing.assert_allclose(step, wanted @ gradient, atol=1e-12)
    np.testing.assert_allclose(np.asarray(data) @ sums, 0, atol=1e-12)
    # The determinant over the directions that are left.
    left = np.linalg.svd(sums, full_matrices=True)[0][:, 2:]
    assert float(log_det) == pytest.approx(np.linalg.slogdet(left.T @ whole @ left)[1])


def test_equal_items_are_done_once():
    model, data = benchmarks(3, 40, 1), random_data(3, 40)
    distinct, outer = arrange(model, data), random_outer(model)
    # Rows that fill up to the number of items count for nothing.
    assert distinct.weight.shape[0] == 40 and float(distinct.weight.sum()) == 40
    assert int(jnp.sum(distinct.weight > 0)) < 30
    assert int(distinct.of_stem.max()) < 30
    alone = distinct._replace(
        values=distinct.values[distinct.of_stem],
        exposure=distinct.exposure[distinct.of_stem],
        group=distinct.group[distinct.of_stem],
        design=distinct.design[distinct.of_stem],
        weight=jnp.ones(40),
        row=distinct.row[distinct.of_stem],
        of_stem=jnp.arange(40),
    )
    once, every = passed(model, distinct, outer, 3), passed(model, alone, outer, 3)
    np.testing.assert_allclose(once.gradient, every.gradient, atol=1e-9)
    np.testing.assert_allclose(once.curvature, every.curvature, atol=1e-9)
    np.testing.assert_allclose(
        once.log_marginal[distinct.of_stem], every.log_marginal, atol=1e-9
    )


def test_half_normal_mode_is_the_root():
    total, count, scale = 7.0, 5.0, 2.0
    found = float(half_normal_mode(jnp.asarray(total), count, scale))
    height = lambda x: (
        -count * x - total / (2 * np.exp(2 * x)) - np.exp(2 * x) / (2 * scale**2) + x
    )
    nearby = found + np.array([-1e-3, 0, 1e-3])
    assert np.argmax(height(nearby)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("slopes", ["unit", "positive"])
def test_levels_of_few_items_keep_their_spread(slopes):
    """Items that a dozen subjects hardly tell must not make their levels look alike."""
    levels, each, subjects = 60, 3, 12
    level = np.repeat(np.arange(levels), each)
    items = len(level)
    model = MultilevelModel(
        Binary(slopes=slopes),
        jnp.zeros(items, int),
        jnp.arange(items),
        jnp.asarray(np.column_stack([np.ones(items), np.eye(levels)[level]])),
        jnp.asarray([-1, *[0] * levels]),
        jnp.zeros((subjects, 0)),
        num_stems=items,
        num_components=1,
    )
    found = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        log_a = (0.2 + 0.4 * rng.normal(size=items)) * (slopes == "positive")
        d = 0.8 * rng.normal(size=levels)[level] + 0.6 * rng.normal(size=items)
        eta = np.exp(log_a) * rng.normal(size=(subjects, 1)) + d
        right = rng.random(eta.shape) < 1 / (1 + np.exp(-eta))
        problem = MultilevelProblem.create(model, Responses(jnp.asarray(right, int)))
        fit = run_jit(problem, Laplace(order=3), None, max_steps=100)
        assert Status(int(fit.status)) is Status.CONVERGED
        found.append(np.exp(fit.state.components.log_component_sd[0, -1]))
    # Means of three items vary by 0.64 + (0.36 + 0.5) / 3 = 0.93, and of that the
    # sample variance of 60 has an error of 0.17, its root one of 0.17 / 1.6.
    assert abs(np.mean(found) - 0.8) < 3 * 0.11 / 4**0.5


def test_items_hardly_told_tell_their_levels_next_to_nothing():
    """The error of effects beside that of the normal model with items integrated out.

    Where the share that is told at least was 0.02 of what items could tell, the spread
    of REALSumm's levels came out at 0.34 for 0.54.
    """
    items, levels, told = 12, 4, 0.05
    design = np.column_stack([np.ones(items), np.eye(levels)[np.arange(items) % 4]])
    spread, prior = 0.1, np.array([5.0, *[0.5] * levels])
    responses = np.linspace(0.5, 2, items) * told
    posterior = 1 / (responses + spread**-2)
    square = np.einsum("je,jf,j->ef", design, design, posterior)
    found, known = error_of_effects(
        jnp.asarray(design.T @ design / spread**2),
        jnp.asarray(np.diag(prior**-2.0)),
        jnp.full((1, 1, 1), spread**-2.0),
        jnp.asarray(square)[None, None, None],
    )
    wanted = np.einsum("je,jf,j->ef", design, design, 1 / (spread**2 + 1 / responses))
    np.testing.assert_allclose(known[0, :, 0], wanted, atol=2e-6 * items / spread**2)
    wanted = np.linalg.inv(wanted + np.diag(prior**-2.0))
    # A millionth of 100 for each item, beside 0.05 that it is told.
    np.testing.assert_allclose(np.diag(found[0, :, 0]), np.diag(wanted), rtol=0.01)


@pytest.mark.slow
def test_levels_that_are_alike_do_not_hold_the_unit_of_all():
    """With a spread of levels near 0 a unit common to all groups crawled: 160 steps."""
    model, data, theta = draw_benchmarks(12, 4000, 11, 0.0025)
    problem = MultilevelProblem.create(model, data)
    fit = run_jit(problem, Laplace(), None, max_steps=80)
    assert Status(int(fit.status)) is Status.CONVERGED
    found = np.asarray(fit.state.ability)
    assert np.corrcoef(found.ravel(), theta.ravel())[0, 1] > 0.98
    # Going on makes no difference: the unit is where it belongs.
    more = run_jit(problem, Laplace(tolerance=1e-3), None, max_steps=200)
    assert np.std(more.state.ability) == pytest.approx(np.std(found), rel=0.01)


def test_effects_count_as_far_as_they_are_free_of_their_prior():
    model = benchmarks(5, 30, 3)
    components = start_components(model, jnp.zeros((30, 2)))
    wide = jnp.asarray(RNG.normal(size=1))

    def count(log_sd):
        rest = components._replace(
            log_component_sd=jnp.full((1, 2), log_sd),
            log_residual_sd=jnp.asarray([-0.5, 0.3]),
            residual_correlation=wide,
            tilt=jnp.asarray([0.4, -0.1, -0.3]),
        )
        return float(num_effective(model, rest))

    # Three scales and three correlations of abilities, one correlation of items, two
    # free slopes, two standard deviations of items and of levels, and the effects.
    rest = 3 + 3 + 1 + 2 + 2 + 2
    assert count(-15.0) == pytest.approx(rest + 2, abs=0.01)
    # Each group's mean of two coordinates; one more effect would be one too many.
    assert count(8.0) == pytest.approx(rest + 6, abs=0.01)
    assert rest + 2 < count(-1.0) < rest + 6


def simulated(model: MultilevelModel, seed=0, scale=(0.6, 0.4, 0.5), rho=0.3):
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
    problem = MultilevelProblem.create(model, data)
    fit = run_jit(problem, Laplace(order=3), None, max_steps=200)
    assert Status(int(fit.status)) is Status.CONVERGED
    state = fit.state
    errors = errors_of(problem, Laplace(order=3), state)
    error = np.sqrt(np.diagonal(errors.covariance)).reshape(3, -1).T
    z = (np.asarray(state.ability) - theta) / error
    # 120 abilities whose errors share an origin and a unit for each group.
    assert np.abs(z).mean() < 1.2
    # The unit of ability is as uncertain as 40 deviations with errors are: over data
    # sets the mean has a standard deviation of 0.15.
    assert float(state.components.effects[0, 0]) == pytest.approx(0.2, abs=0.45)
    sd = np.exp(np.asarray(state.components.log_residual_sd))
    np.testing.assert_allclose(sd, [0.4, 1.0], rtol=0.25)
    # 40 subjects: a log standard deviation has an error of 1 / sqrt(80) at least.
    found = np.exp(np.asarray(state.components.log_scale))
    assert np.abs(np.log(found / np.sqrt(np.diag(own)))).max() < 0.6
    general = general_ability(jnp.asarray(own))
    assert np.corrcoef(state.ability @ general.weights, psi)[0, 1] > 0.9
    coordinates = np.asarray(state.mean)[np.asarray(problem.distinct.of_stem)]
    assert np.corrcoef(coordinates[:, 1], d)[0, 1] > 0.9
    # What is expected of cells is calibrated: right as often as it says.
    outer = Outer(
        state.ability,
        state.components.effects,
        model.residual_factor(*state.components[4:6], *state.components[-2:]),
        state.components.group_effects,
    )
    expected = expected_responses(model, problem.distinct, outer, state.mode, order=3)
    gap = np.asarray(data.values) - np.asarray(expected[problem.distinct.of_stem, 0].T)
    assert abs(gap.mean()) < 0.01


def test_what_is_too_large_or_double_is_refused():
    model = metrics(4, 3, 2)
    twice = eqx.tree_at(lambda m: m.group, model, jnp.zeros(6, int))
    with pytest.raises(ValueError, match="two columns of one metric"):
        arrange(twice, random_data(4, 6))
    model, data = benchmarks(3001, 4, 2), random_data(3001, 4)
    with pytest.raises(ValueError, match="calibrate on 3,000 subjects and score"):
        Laplace().init(MultilevelProblem.create(model, data), None, None)


def test_start_values_are_finite_without_variation():
    model = benchmarks(3, 4, 2)
    data = Responses(jnp.ones((3, 4), jnp.int8))
    ability, mode = start_multilevel(model, data)
    parts = [ability, mode, *start_components(model, mode)]
    assert all(bool(jnp.isfinite(part).all()) for part in parts)


def test_a_fit_rests_only_when_its_likelihood_does():
    # Where items are hardly told, moves get short long before the end is near:
    # REALSumm's were below a hundredth of an error two nats below the mode.
    model, data = benchmarks(5, 12, 2), random_data(5, 12)
    problem, method = MultilevelProblem.create(model, data), Laplace()
    components = start_components(model, start_multilevel(model, data)[1])

    def ends(objectives, method=method, residual=0.005):
        recent = jnp.asarray(objectives)
        state = {
            "image": AbilityPoint(components, None),
            "num_seen": jnp.asarray(20),
            "carry": LaplaceCarry(*(None,) * 5, recent=recent[:-1]),
            "objective": recent[-1],
            "residual": jnp.asarray(residual),
            "refused": jnp.asarray(0),
        }
        return bool(progress(problem, method, state).converged)

    assert ends([-50.0, -49.97, -49.96, -49.99, -49.95])
    assert not ends([-50.0, -49.97, -49.96, -49.99, -49.95], residual=0.02)
    assert not ends([-50.4, -50.3, -50.2, -50.1, -50.0])
    assert not ends([-jnp.inf, -50.0, -50.0, -50.0, -50.0])
    assert ends([-50.4, -50.3, -50.2, -50.1, -50.0], Laplace(tolerance=0.05))
    # Rounding of a large number in single precision is no change.
    large = jnp.asarray([-4e6, -4e6 + 1, -4e6, -4e6 + 0.5, -4e6 + 1.5], jnp.float32)
    assert ends(large) and not ends(large.astype(float))


def test_what_moves_with_the_units_of_ability_is_judged_by_their_errors():
    """A unit's error in logarithms is (2 n)^-1/2: nothing is moved more by it."""
    subjects, items, groups = 12, 60, 3
    model = benchmarks(subjects, items, groups)
    assert model.has_tilts
    zeros = jnp.zeros((items, model.num_columns))
    components = start_components(model, zeros)._replace(tilt=jnp.array([-2.0, 0, 2]))
    ability = jnp.asarray(RNG.normal(size=(subjects, groups)))
    tiny = jnp.full(ability.shape, 1e-6)
    weights, by_ability = judged(model, components, ability, tiny)
    unit = (2 * subjects) ** -0.5
    # Known exactly but for their units, a move by one unit's error is one error.
    np.testing.assert_allclose(
        by_ability * ability * unit, jnp.sign(ability), rtol=1e-6
    )
    assert np.all(weights.effects[:, 0] * unit < 1)
    slope = np.sqrt(np.mean(np.square(components.tilt)))
    assert np.all(weights.effects[:, 1:] * unit * slope < 1)
    # Errors that are wide leave no room for those of units.
    wide = jnp.full(ability.shape, 1e3)
    np.testing.assert_allclose(
        judged(model, components, ability, wide)[1], 1e-3, rtol=1e-4
    )
    # Without slopes there is no unit, and all is judged as complete data would.
    rasch = MultilevelModel(
        Binary(slopes="unit"),
        model.group,
        model.stem,
        model.design,
        np.array([-1, 0, 0, 0]),
        jnp.zeros((subjects, 0)),
        num_groups=groups,
        has_group_scales=True,
    )
    plain = start_components(rasch, jnp.zeros((items, rasch.num_columns)))
    same, by_error = judged(rasch, plain, ability, tiny)
    np.testing.assert_array_equal(same.effects, precisions(rasch, plain).effects)
    np.testing.assert_allclose(by_error, 1e6, rtol=1e-6)


@pytest.mark.slow
def test_what_is_given_of_items_is_not_learned_and_tells_nothing():
    model = benchmarks(6, 8, 2, priors={"intercept": Normal(0.0, 1.0)})
    problem, method = MultilevelProblem.create(model, random_data(6, 8)), Laplace()
    first = start_components(model, start_multilevel(model, problem.data)[1])
    spread = first.log_component_sd.at[0, 1].add(2.0)
    step = jax.jit(
        lambda at: method.step(problem, method.init(problem, at, None), None)
    )
    one, other = (step(first._replace(log_component_sd=sd)).components for sd in (
        first.log_component_sd, spread
    ))  # fmt: skip
    assert other.log_component_sd[0, 1] == spread[0, 1]
    assert one.log_component_sd[0, 0] != first.log_component_sd[0, 0]
    other = other._replace(
        log_component_sd=other.log_component_sd.at[0, 1].set(
            first.log_component_sd[0, 1]
        )
    )
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def with_asymptotes(subjects, items, given) -> MultilevelModel:
    """Items with both asymptotes, whose priors are given or learned."""
    priors = {
        "lower_asymptote": LogitNormal(-2.0, 1.0),
        "upper_asymptote": LogitNormal(3.0, 1.0),
    }
    return MultilevelModel(
        Binary(slopes="positive", asymptotes=2),
        jnp.zeros(items, int),
        jnp.arange(items),
        jnp.ones((items, 1)),
        jnp.asarray([-1]),
        jnp.zeros((subjects, 0)),
        priors if given else {},
        num_stems=items,
    )


def four_parameters(subjects, items, seed):
    """Responses, and their chances."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(subjects, 1))
    slope, shift = np.exp(0.4 * rng.normal(size=items)), 1.5 * rng.normal(size=items)
    low, room = 1 / (1 + np.exp(-rng.normal([[-1.2], [3.0]], 0.7, (2, items))))
    chance = low + (1 - low) * room / (1 + np.exp(-2 * slope * theta - shift))
    return rng.random(chance.shape) < chance, chance


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one ability", "metrics"])
def test_a_given_prior_of_discriminations_tells_the_unit_of_ability(kind):
    # With this seed the acceleration leaps to a spread without bound, and comes back.
    rng = np.random.default_rng(1)
    # Scores so sure that all but the unit is known: abilities c u, slopes alpha / c.
    # Then log c has the density c^n exp(-c^2 u'Pu / 2) prod_j p(alpha_j / c),
    # n for the volume of the n abilities, P the precision of their prior.
    subjects, stems, groups, sd = 60, 24, 1 if kind == "one ability" else 3, 0.5
    own = np.array([[0.64, 0.3, 0.0], [0.3, 0.49, -0.1], [0.0, -0.1, 0.81]])
    theta = rng.normal(size=(subjects, 1))
    if groups > 1:
        theta = theta + rng.multivariate_normal(np.zeros(3), own, subjects)
    # A truth that the prior finds unlikely: the unit is between the two.
    slope = np.exp(sd * rng.normal(size=stems) - 0.4)
    intercept = rng.normal(size=stems)
    logits = slope * theta.T[:, :, None] + intercept
    logits = logits + 0.02 * rng.normal(size=logits.shape)
    logits = logits.transpose(1, 0, 2).reshape(subjects, -1)
    group, stem = np.divmod(np.arange(groups * stems), stems)
    model = MultilevelModel(
        LogitNormalScores(slopes="positive"),
        jnp.asarray(group),
        jnp.asarray(stem),
        jnp.ones((stems, 1)),
        jnp.asarray([-1]),
        jnp.zeros((subjects, 0)),
        {"discrimination": LogNormal(0.0, sd)},
        num_groups=groups,
        num_stems=stems,
    )
    problem = MultilevelProblem.create(model, Responses(jnp.asarray(logits)))
    fit = run_jit(problem, Laplace(2, 1e-3), None, max_steps=300)
    assert int(fit.status) == Status.CONVERGED
    ability = np.asarray(fit.state.ability)
    ability = ability - ability.mean(axis=0)
    # In units of the truth: the mean of all items tells it next to exactly.
    shape = theta - theta.mean(axis=0)
    found = np.sum(ability * shape) / np.sum(shape**2)
    np.testing.assert_allclose(ability, found * shape, atol=0.05)
    covariance = np.eye(1)
    if groups > 1:
        scale, place = fit.state.components.log_scale, fit.state.components.correlation
        covariance = 1 + np.asarray(
            problem.model.specific_covariance(
                model.zeros()._replace(log_scale=scale, correlation=place)
            )
        )
    square = np.sum(shape @ np.linalg.inv(covariance) * shape)
    count, log_slope = shape.size - groups, np.log(slope)

    def rise(log_unit):
        pull = np.sum(log_slope - log_unit) / sd**2
        return count - np.exp(2 * log_unit) * square + pull

    expected = optimize.brentq(rise, -2, 2)
    error = (2 * count + stems / sd**2) ** -0.5
    assert abs(np.log(found) - expected) < 0.25 * error
    # Without the volume the unit would be elsewhere, by many errors.
    assert optimize.brentq(lambda x: rise(x) - count, -5, 2) < expected - 2 * error


@pytest.mark.parametrize(
    ("known", "groups"),
    [
        pytest.param(True, 1, id="given, one ability", marks=pytest.mark.slow),
        pytest.param(True, 3, id="given", marks=pytest.mark.slow),
        pytest.param(False, 3, id="learned", marks=pytest.mark.slow),
    ],
)
def test_abilities_and_discriminations_are_in_one_unit(known, groups):
    """Regressions of scores on abilities, their errors counted, have the slopes found.

    The mean of the abilities was off their mode's unit by 0.03 where slopes are given.
    """
    # One ability has the sizes and the prior of the test before: one program.
    subjects, stems, sd = (60, 24, 0.5) if groups == 1 else (100, 20, 0.3)
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(subjects, 1)) + 0.7 * rng.normal(size=(subjects, groups))
    slope, intercept = np.exp(sd * rng.normal(size=stems)), rng.normal(size=stems)
    logits = slope * theta[..., None] + intercept
    logits = (logits + rng.normal(size=logits.shape)).reshape(subjects, -1)
    group, stem = np.divmod(np.arange(groups * stems), stems)
    model = MultilevelModel(
        LogitNormalScores(slopes="positive"),
        jnp.asarray(group),
        jnp.asarray(stem),
        jnp.ones((stems, 1)),
        jnp.asarray([-1]),
        jnp.zeros((subjects, 0)),
        {"discrimination": LogNormal(0.0, sd)} if known else {},
        num_groups=groups,
        num_stems=stems,
    )
    problem = MultilevelProblem.create(model, Responses(jnp.asarray(logits)))
    fit = run_jit(problem, Laplace(2, 1e-3), None, max_steps=300)
    assert int(fit.status) == Status.CONVERGED
    ability = np.asarray(fit.state.ability)
    ability = ability - ability.mean(axis=0)
    variance = np.diagonal(np.asarray(fit.state.ability_covariance)).sum()
    scores = logits.reshape(subjects, groups, stems)
    found = np.einsum("ng,ngj->j", ability, scores) / (np.sum(ability**2) + variance)
    gap = np.mean(np.log(found)) - np.mean(np.asarray(fit.state.mean)[:, 0])
    assert abs(gap) < 0.01


def test_curvature_has_a_least_share_of_the_prior_only_where_it_lacks():
    model = with_asymptotes(6, 2, given=False)
    root = np.tril(RNG.normal(size=(4, 4)), -1) + np.diag([0.5, 2.0, 1.0, 0.8])
    factor, prior = jnp.asarray(root), np.linalg.inv(root @ root.T)
    np.testing.assert_allclose(at_least_prior(model, factor, prior), prior, rtol=1e-8)
    turn = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    back = np.linalg.inv(root)
    for worst in (1e-6, -3.0):
        sizes = np.array([5.0, 1.0, 0.4, worst])
        bent = back.T @ (turn * sizes) @ turn.T @ back
        found = (
            root.T @ np.asarray(at_least_prior(model, factor, jnp.asarray(bent))) @ root
        )
        wanted = np.sort(np.maximum(sizes, LEAST_CURVATURE))
        np.testing.assert_allclose(np.linalg.eigvalsh(found), wanted, rtol=1e-8)


def test_asymptotes_that_round_to_an_end_leave_numbers_in_single_precision():
    family = Binary(slopes="positive", asymptotes=2)
    rows = jnp.asarray([[0, 0, 40, 3], [0, 0, -60, 40], [3, 30, 40, 40]], jnp.float32)
    base, rest = jax.vmap(lambda x: family.natural(family.constrain(x), 1.5))(rows)
    assert rows.dtype == base.dtype == jnp.float32
    # Of a missing response 0 times the base, of a right one the sum.
    assert np.isfinite(0 * base).all() and np.isfinite(base + rest).all()


def by_nodes_of_the_prior(right, theta, mean, sd, of_room=False):
    """Log marginal and variances of an item with asymptotes, by 20 nodes of each.

    With `of_room` the last coordinate is that of the share of the room above the lower
    asymptote.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(20)
    rows = [m + s * points for m, s in zip(mean, sd, strict=True)]
    log_a, d, low, high = np.meshgrid(*rows, indexing="ij", sparse=True)
    low, high = (1 / (1 + np.exp(-x)) for x in (low, high))
    high = low + (1 - low) * high if of_room else high
    total = 0.0
    for answer, ability in zip(right, theta, strict=True):
        rise = 1 / (1 + np.exp(-np.exp(log_a) * ability - d))
        chance = np.where(high > low, low + (high - low) * rise, 0.5)
        total = total + np.log(chance if answer else 1 - chance)
    share = np.exp(total) * (high > low)
    for axis in range(4):
        size = np.where(np.arange(4) == axis, 20, 1)
        share = share * (weights / weights.sum()).reshape(size)
    whole = share.sum()
    found = []
    for axis, row in enumerate(rows[:2]):
        own = share.sum(axis=tuple(np.delete(np.arange(4), axis))) / whole
        found.append(own @ row**2 - (own @ row) ** 2)
    return np.log(whole), np.array(found)


def error_of_nodes(order=None):
    """Mean error of the log marginals of 20 items; by default with a fit's nodes."""
    # Priors as wide as those learned from 12 models: with 6 nodes the error of 550
    # items decided what was learned.
    model = with_asymptotes(12, 20, given=False)
    values, _ = four_parameters(12, 20, 4)
    distinct = arrange(model, Responses(jnp.asarray(values, jnp.int8)))
    theta, mean, sd = np.linspace(-2, 2, 12), [0.6, 0.3, -2.6, 2.8], [0.6, 2, 1, 1]
    outer = Outer(
        jnp.asarray(theta)[:, None],
        jnp.asarray([mean]),
        jnp.diag(jnp.asarray(sd, float))[None],
        jnp.zeros((0, 4)),
    )
    mode = jnp.tile(jnp.asarray(mean), (len(distinct.weight), 1))
    none = (jnp.zeros((1, 12, 12)), jnp.zeros((12, 1)))
    exact = [by_nodes_of_the_prior(y, theta, mean, sd, True)[0] for y in values.T]
    order = suitable_order(model.family, 12) if order is None else order
    options = {"order": order, "num_newton": 9, "corrected": False}
    found = summarise_jit(model, distinct, outer, mode, *none, **options)
    return np.mean(np.abs(found.log_marginal[distinct.of_stem] - np.asarray(exact)))


@pytest.mark.slow
def test_the_nodes_of_a_fit_with_asymptotes_are_enough():
    assert error_of_nodes() < 0.015


@pytest.mark.slow
def test_five_nodes_of_items_with_asymptotes_are_not_enough():
    assert error_of_nodes(5) > 0.03


@pytest.mark.slow
def test_items_with_asymptotes_are_integrated_better_when_nodes_are_placed_anew(
    monkeypatch,
):
    model = with_asymptotes(12, 30, given=True)
    assert orders_of(model, 4) == (4, 4, 2, 2) and model.num_correlated == 2
    values, _ = four_parameters(12, 30, 4)
    distinct = arrange(model, Responses(jnp.asarray(values, jnp.int8)))
    theta, mean, sd = np.linspace(-2, 2, 12), [0.5, 0.3, -2.0, 3.0], [0.6, 1.5, 1, 1]
    outer = Outer(
        jnp.asarray(theta)[:, None],
        jnp.asarray([[0.5, 0.3, 0.0, 0.0]]),
        jnp.diag(jnp.asarray([0.6, 1.5, 1.0, 1.0]))[None],
        jnp.zeros((0, 4)),
    )
    exact = [by_nodes_of_the_prior(y, theta, mean, sd) for y in values.T]
    log_marginal = np.array([x[0] for x in exact])
    variance = np.mean([x[1] for x in exact], axis=0)
    mode = jnp.tile(jnp.asarray(mean), (len(distinct.weight), 1))
    none = (jnp.zeros((1, 12, 12)), jnp.zeros((12, 1)))

    def errors(times):
        monkeypatch.setattr(
            "irtjax.estimators.laplace.item_posterior.NUM_REFINEMENTS", times
        )
        options = {"order": 4, "num_newton": 9, "corrected": False}
        found = summarise(model, distinct, outer, mode, *none, **options)
        own = np.diagonal(found.covariance[distinct.of_stem], axis1=1, axis2=2)[:, :2]
        gap = np.asarray(found.log_marginal[distinct.of_stem]) - log_marginal
        return np.append(np.abs(own.mean(axis=0) / variance - 1), np.std(gap))

    once, never = errors(1), errors(0)
    assert (once < never).all()
    assert (once < 0.05).all()


@pytest.mark.slow
def test_asymptotes_of_a_dozen_subjects_end_and_predict():
    values, chance = four_parameters(12, 300, 5)
    seen = np.random.default_rng(6).random(chance.shape) < 0.75
    data = Responses(jnp.asarray(values & seen, jnp.int8), jnp.asarray(seen))
    loss = []
    for model, order in (
        (benchmarks(12, 300, 1), 5),
        (with_asymptotes(12, 300, given=True), 4),
    ):
        problem = MultilevelProblem.create(model, data)
        fit = run_jit(problem, Laplace(order, 0.05), None, max_steps=300)
        assert Status(int(fit.status)) is Status.CONVERGED
        expected = np.asarray(predict_responses(problem, fit.state, order=4))
        log_loss = chance * np.log(expected) + (1 - chance) * np.log1p(-expected)
        loss.append(-log_loss[~seen].mean())
    assert loss[1] < loss[0]


def few_cells():
    """A problem of 6 subjects and 25 items, a method and its first state."""
    rng = np.random.default_rng(5)
    right = jnp.asarray(rng.random((6, 25)) < 0.6, jnp.int8)
    problem = MultilevelProblem.create(benchmarks(6, 25, 1), Responses(right))
    method = Laplace(order=3)
    return problem, method, eqx.filter_jit(method.init)(problem, None, None)


def next_state(state, each):
    carry = state.carry._replace(
        shift=each.shift, ability_covariance=each.covariance, mode=each.items.mode
    )
    point = state.point._replace(ability_mode=each.ability_mode)
    return state._replace(point=point, carry=carry)


@pytest.mark.slow
def test_a_step_is_the_same_whether_its_passes_are_one_program_or_two(monkeypatch):
    problem, method, state = few_cells()
    found = []
    for few in (0, 2**14):
        monkeypatch.setattr("irtjax.estimators.laplace.laplace.FEW_CELLS", few)
        # A function of its own, so that it is traced again.
        step = eqx.filter_jit(lambda *given: method.approximate(*given))
        at = state
        for _ in range(2):
            each = step(problem, at)
            at = next_state(at, each)
        found.append(each)
    assert float(jnp.abs(found[0].shift).max()) > 1e-3
    # Rounding decides whether a last Newton step to a mode, of 1e-8 or less, is kept.
    for one, two in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_what_errors_are_made_of_does_not_depend_on_the_corrections():
    problem, method, at = few_cells()
    step = eqx.filter_jit(lambda *given: method.approximate(*given))
    for _ in range(2):
        at = next_state(at, step(problem, at))
    passes = [
        eqx.filter_jit(lambda *x, c=c: method.summarise(*x, corrected=c))(problem, at)
        for c in (True, False)
    ]
    assert float(jnp.abs(passes[0].bend).max()) > 1e-3
    for name in ("gradient", "curvature", "safe", "cross", "square", "covariance"):
        one, two = (getattr(each, name) for each in passes)
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-13)
