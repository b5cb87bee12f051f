"""The sampler's coordinates: the model's density, on narrow ridges no more."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from irtjax.data.responses import Responses
from irtjax.estimators.posterior.level_frame import reordered
from irtjax.estimators.posterior.sampling_frame import (
    CAUTION,
    LIKELY_VARIANCES,
    MANY_ITEMS,
    MANY_RESPONSES,
    Centring,
    SamplingFrame,
    ability_information,
    item_information,
    suitable_frame,
)
from irtjax.models.families.continuous import LogitNormalScores
from irtjax.models.families.graded import Graded
from irtjax.models.families.logistic import Binary
from irtjax.models.multilevel.density import log_density
from irtjax.models.multilevel.model import MultilevelModel, Position
from irtjax.models.priors import HalfNormal, LogNormal, Normal

SUBJECTS, ITEMS = 4, 6


_frame = eqx.filter_jit(SamplingFrame)


def make(
    family,
    groups=1,
    shared=False,
    subjects=SUBJECTS,
    levels=False,
    rough=None,
    order=None,
    **more,
) -> SamplingFrame:
    """A model; `shared`: every stem in every group, `levels`: effects of groups."""
    stems = ITEMS // groups if shared else ITEMS
    group, stem = np.divmod(np.arange(ITEMS), stems)
    if not shared:
        group = np.arange(ITEMS) % groups
    of_group = [group == each for each in range(groups)] if levels else []
    return _frame(
        MultilevelModel(
            family,
            jnp.asarray(group),
            jnp.asarray(stem),
            jnp.asarray(np.column_stack([np.ones(stems), *of_group])),
            jnp.asarray([-1] + [0] * len(of_group)),
            jnp.ones((subjects, 1)),
            num_components=int(levels),
            has_group_scales=levels,
            num_groups=groups,
            num_stems=stems,
            has_group_effects=shared,
            **more,
        ),
        None,
        rough,
        order,
    )


CASES = {
    "free slopes": partial(make, Binary(slopes="free")),
    "no slopes": partial(make, Binary(slopes="unit")),
    "graded": partial(make, Graded(3)),
    "groups": partial(make, Binary(slopes="positive"), 3, centred=False),
    "shared stems": partial(make, Binary(slopes="positive"), 2, shared=True),
    "direction": partial(
        make, Binary(slopes="positive"), 2, rough=jnp.asarray(np.eye(SUBJECTS)[:, :2])
    ),
    "levels": partial(make, Binary(slopes="positive"), 3, levels=True),
    "spreads": partial(
        make,
        Binary(slopes="positive"),
        3,
        levels=True,
        cluster=jnp.arange(ITEMS) % 3,
        num_clusters=3,
    ),
    "free levels": partial(make, Binary(slopes="free"), 2, levels=True),
    "another order": partial(
        make,
        LogitNormalScores(slopes="positive"),
        2,
        levels=True,
        order=(0, 2, 1),
    ),
    "one subject": partial(make, LogitNormalScores(slopes="positive"), subjects=1),
}


def random_coordinates(frame, seed=0) -> Position:
    flat, unravel = ravel_pytree(frame.model.zeros())
    return unravel(0.7 * jax.random.normal(jax.random.key(seed), flat.shape))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_change_of_coordinates_has_the_jacobian_it_tells_and_an_inverse(name):
    frame = CASES[name]()
    coordinates = random_coordinates(frame)
    flat, unravel = ravel_pytree(coordinates)
    flatten = lambda tree: ravel_pytree(tree)[0]

    @jax.jit
    def there_and_back(x):
        slopes = jax.jacobian(lambda x: flatten(frame.position(unravel(x))))(x)
        return slopes, frame.coordinates(frame.position(unravel(x)))

    slopes, back = there_and_back(flat)
    _, told = frame.levels.back(frame.model, coordinates)
    assert told == 0 or frame.model.correlated
    # Hundreds of products of numbers rounded at 1e-16.
    assert abs(np.linalg.slogdet(slopes)[1] - told) < 1e-11
    for one, other in zip(
        jax.tree.leaves(back), jax.tree.leaves(coordinates), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_standardised_parts_have_the_model_s_density(name):
    case = CASES[name]()
    model, rng = case.model, np.random.default_rng(1)
    shape, abilities = model.zeros().items.shape, model.zeros().ability.shape
    information = jnp.asarray(rng.uniform(0, 30, shape)).at[0].set(0).at[1].set(1e4)
    centring = Centring(
        jnp.asarray(rng.normal(size=abilities)),
        jnp.asarray(rng.uniform(0, 30, abilities[1])),
        # Thresholds of ordered categories fall.
        jnp.asarray(0.3 * rng.normal(size=shape) - np.arange(shape[1])),
        information,
        jnp.asarray(rng.uniform(size=shape)),
    )
    frame = eqx.tree_at(
        lambda frame: frame.direction,
        SamplingFrame(model, centring, order=case.levels.order),
        case.direction,
        is_leaf=lambda leaf: leaf is None,
    )
    coordinates = jax.tree.map(lambda part: part / 3, random_coordinates(frame))
    flat, unravel = ravel_pytree(coordinates)
    flatten = lambda tree: ravel_pytree(tree)[0]
    values = np.random.default_rng(2).integers(0, 2, model.group.shape)
    data = Responses(jnp.asarray([values] * model.subject_design.shape[0]))

    @jax.jit
    def all_of_it(x):
        position = frame.position(unravel(x))
        slopes = jax.jacobian(lambda x: flatten(frame.position(unravel(x))))(x)
        density = frame.log_density(unravel(x), data)
        return slopes, density, position, frame.coordinates(position)

    slopes, density, position, back = all_of_it(flat)
    wanted = log_density(model, position, data) + np.linalg.slogdet(slopes)[1]
    assert float(density) == pytest.approx(float(wanted), rel=1e-11, abs=1e-9)
    for one, other in zip(
        jax.tree.leaves(back), jax.tree.leaves(coordinates), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-11)


def test_factors_in_another_order_are_of_the_same_covariance():
    factor = np.tril(np.random.default_rng(6).normal(size=(2, 4, 4)))
    factor[:, 2, 2] *= 1e-6  # What is left is next to nothing, and keeps its digits.
    order = (0, 3, 1, 2)
    covariance = (factor @ factor.swapaxes(1, 2))[:, order][:, :, order]
    found = np.asarray(reordered(jnp.asarray(factor), order))
    np.testing.assert_array_equal(found, np.tril(found))
    np.testing.assert_allclose(found @ found.swapaxes(1, 2), covariance, rtol=1e-9)
    whole = np.prod(np.abs(np.diagonal(factor, axis1=1, axis2=2)), axis=1)
    own = np.diagonal(found, axis1=1, axis2=2)
    assert (own > 0).all()
    np.testing.assert_allclose(np.prod(own, axis=1), whole, rtol=1e-8)


@pytest.mark.parametrize("informed", [False, True])
def test_coordinates_are_about_standard_at_any_scale(informed):
    """Without a funnel: drawn given the scale, their spread does not depend on it."""
    model = make(LogitNormalScores(slopes="positive"), 2, shared=True, subjects=2000)
    model, rng = model.model, np.random.default_rng(8)
    information = 400.0 if informed else 0.0
    shape = model.zeros().items.shape
    near = np.array([0.5, -0.2])
    centring = Centring(
        jnp.asarray(np.tile(near, (2000, 1))),
        jnp.full(2, information),
        jnp.zeros(shape),
        jnp.zeros(shape),
        jnp.zeros(shape),
    )
    frame = SamplingFrame(model, centring)
    coordinates = eqx.filter_jit(frame.coordinates)
    specific = eqx.filter_jit(model.specific_covariance)
    spreads = []
    for log_scale in (-6.0, -3.0, 0.0):
        at = model.zeros()._replace(log_scale=jnp.full(2, log_scale))
        prior = np.linalg.inv(np.asarray(specific(at)) + 1)
        covariance = np.linalg.inv(prior + information * np.eye(2))
        mean = covariance @ (information * near)
        theta = rng.multivariate_normal(mean, covariance, size=2000)
        found = coordinates(at._replace(ability=jnp.asarray(theta)))
        spreads.append(np.asarray(found.ability)[1:].std(axis=0))
    # Of 1,999 draws, an error of 1.6 %; the first ability is standardised without what
    # the responses to the second inform about it, which takes up to 1 / sqrt(2) away.
    spreads = np.asarray(spreads)
    assert spreads.max() < 1.05 and spreads.min() > 0.67
    if not informed:
        np.testing.assert_allclose(spreads, 1, atol=0.065)


def test_information_is_that_of_the_responses():
    rng = np.random.default_rng(3)
    model = make(Binary(slopes="positive"), 2, shared=True, subjects=30).model
    theta = rng.normal(size=(30, 2))
    rows = np.column_stack([np.zeros(3), [0.0, 1.0, -1.0]])
    seen = rng.random((30, ITEMS)) < 0.7
    seen[:, [0, 3]] = False  # Both columns of the first stem.
    right = (rng.random(seen.shape) < 0.5) & seen
    data = Responses(jnp.asarray(right, jnp.int8), jnp.asarray(seen))
    given = model, jnp.asarray(theta), jnp.asarray(rows), data
    found = eqx.filter_jit(item_information)(*given)
    eta = theta[:, np.asarray(model.group)] + rows[np.asarray(model.stem), 1]
    chance = 1 / (1 + np.exp(-eta))
    cells = seen * chance * (1 - chance)
    information = cells.sum(axis=0)
    wanted = information[:3] + information[3:]
    np.testing.assert_allclose(found[:, 1], wanted, rtol=1e-9)
    assert (found[0] == 0).all() and (found >= 0).all()
    # Slopes are 1, so that ability has the information of the intercepts.
    wanted = cells.mean(axis=0).reshape(2, 3).sum(axis=1)
    own = eqx.filter_jit(ability_information)(*given)
    np.testing.assert_allclose(own, wanted, rtol=1e-9)


def test_the_frame_takes_columns_as_the_data_know_them():
    rng = np.random.default_rng(5)
    model = make(LogitNormalScores(slopes="positive"), subjects=30).model
    theta, rows = rng.normal(size=(30, 1)), np.zeros((ITEMS, 3))
    logits = theta + rng.normal(size=(30, ITEMS))
    start, data = (jnp.asarray(theta), jnp.asarray(rows)), Responses(logits)
    # Items' intercepts hardly differ and their dispersions do, and the reverse.
    for sd, order in (((0.4, 0.01, 0.5), (0, 2, 1)), ((0.4, 0.8, 0.02), (0, 1, 2))):
        factor = np.diag(sd)
        factor[2, 1] = 0.03
        frame = suitable_frame(model, data, start, jnp.asarray(factor), start[0])
        assert frame.levels.order == order
        covariance = (factor @ factor.T)[np.ix_(order, order)]
        left = np.zeros(3)
        left[list(order)] = np.diagonal(np.linalg.cholesky(covariance))
        variance = np.clip(CAUTION * left**2, *LIKELY_VARIANCES)
        # 30 residuals of 1: for an intercept 1 each, for a log dispersion 2 of each.
        squares = ((logits - theta) ** 2).sum(axis=0)
        information = np.column_stack([np.full(ITEMS, 30.0), 2 * squares])
        wanted = information * variance[1:] / (1 + information * variance[1:])
        np.testing.assert_allclose(frame.centring.share[:, 1:], wanted, rtol=1e-8)
        found = frame.centring.item_information[:, 1:]
        np.testing.assert_allclose(found, information, rtol=1e-8)


@pytest.mark.slow
def test_many_items_with_many_responses_are_sampled_as_they_are():
    size, flat = MANY_ITEMS, jnp.ones((MANY_ITEMS, 1))
    model = MultilevelModel(
        Binary(slopes="positive"),
        jnp.zeros(size, int),
        jnp.arange(size),
        flat,
        jnp.asarray([-1]),
        jnp.zeros((MANY_RESPONSES, 0)),
        num_groups=1,
        num_stems=size,
    )
    rng = np.random.default_rng(6)
    theta = jnp.asarray(rng.normal(size=(MANY_RESPONSES, 1)))
    right = jnp.asarray(rng.random((MANY_RESPONSES, size)) < 0.5, jnp.int8)
    start = (theta, jnp.zeros((size, 2)))
    frame = partial(suitable_frame, model, factor=0.5 * jnp.eye(2), ability=theta)
    assert frame(Responses(right), start=start).centring.items is None
    seen = jnp.ones(right.shape, bool).at[0, 0].set(False)
    fewer = Responses(right * seen, seen)
    assert frame(fewer, start=start).centring.items.shape == (size, 2)


@pytest.mark.slow
def test_items_meet_abilities_at_their_mean_and_in_their_unit():
    frame = make(Binary(slopes="positive"), 3)
    position = random_coordinates(frame)
    moved = position._replace(ability=1.5 * position.ability + 0.7)
    one, other = frame.coordinates(position), frame.coordinates(moved)
    log_a, d = position.items[:, 0], position.items[:, 1]
    taken = position._replace(
        ability=moved.ability,
        items=jnp.stack([log_a - np.log(1.5), d - jnp.exp(log_a) * 0.7 / 1.5], axis=1),
    )
    # The same predictors of every response, so the same coordinates of items; the
    # spread's least variance of 0.01 keeps the unit from being exact.
    np.testing.assert_allclose(
        frame.coordinates(taken).items, one.items, atol=0.02, rtol=0
    )
    assert (np.abs(other.items - one.items).max(axis=0) > 0.1).all()
    # The mean is a coordinate: a shift moves nothing else of the abilities.
    shifted = frame.coordinates(position._replace(ability=position.ability + 0.7))
    step = np.asarray(shifted.ability - one.ability)
    np.testing.assert_allclose(step[0], 0.7 * np.sqrt(SUBJECTS), rtol=1e-12)
    np.testing.assert_allclose(step[1:], 0, atol=1e-12)


@pytest.mark.slow
def test_what_is_learned_of_items_follows_abilities():
    """A shift and a change of unit that items undo leaves effects and slopes alone."""
    frame = make(Binary(slopes="positive"), 3, levels=True)
    model, position = frame.model, random_coordinates(frame)
    model = eqx.tree_at(lambda m: m.subject_design, model, jnp.ones((400, 1)))
    theta = 2 * jax.random.normal(jax.random.key(5), (400, 3))
    position = position._replace(ability=theta)
    # As if the data knew everything.
    frame = eqx.tree_at(
        lambda frame: frame.levels.gate, frame, jnp.ones_like(frame.levels.gate)
    )
    by, unit = jnp.asarray([0.5, -0.3, 0.1]), jnp.asarray([1.2, 0.8, 1.1])
    log_sd, sd = position.log_residual_sd, model.effect_sd(position)
    slope = jnp.exp(
        frame.levels.share @ (sd * position.effects)[:, 0]
        + 0.5 * jnp.exp(2 * log_sd[0])
    )
    step = slope / unit * by
    effects = position.effects.at[1:, 0].add(-jnp.log(unit) / sd[1:, 0])
    moved = position._replace(
        ability=theta * unit + by,
        effects=effects.at[1:, 1].add(-step / sd[1:, 1]),
        tilt=position.tilt - step / model.hyperpriors.tilt,
    )
    one, other = (frame.levels.towards(model, p) for p in (position, moved))
    # The spread's least variance of 0.01, beside 4, keeps the unit from being exact.
    np.testing.assert_allclose(one.effects, other.effects, atol=0.02)
    np.testing.assert_allclose(one.tilt, other.tilt, atol=0.02)
    assert np.abs(effects - position.effects).max() > 0.1


@pytest.mark.slow
def test_effects_of_groups_follow_abilities_where_groups_share_items():
    frame = make(Binary(slopes="positive"), 3, shared=True)
    model, position = frame.model, random_coordinates(frame)
    model = eqx.tree_at(lambda m: m.subject_design, model, jnp.ones((400, 1)))
    frame = eqx.tree_at(lambda frame: frame.model, frame, model)
    theta = 2 * jax.random.normal(jax.random.key(5), (400, 3))
    # Discriminations that differ by group only, so that the groups undo all.
    position = position._replace(
        ability=theta,
        items=position.items.at[:, 0].set(0.0),
        effects=position.effects.at[0, 0].set(0.0),
        log_residual_sd=position.log_residual_sd.at[0].set(-20.0),
    )
    by, unit = jnp.asarray([0.5, -0.3, 0.1]), jnp.asarray([1.2, 0.8, 1.1])
    effects = position.group_effects
    step = jnp.exp(effects[:, 0]) / unit * by
    moved = position._replace(
        ability=theta * unit + by,
        group_effects=effects - jnp.stack([jnp.log(unit), step], axis=1),
    )
    one, other = frame.coordinates(position), frame.coordinates(moved)
    assert np.abs(moved.group_effects - effects).max() > 0.1
    for name in ("group_effects", "effects", "items"):
        # The spread's least variance of 0.01, beside 4: the unit is not quite exact.
        # What all groups share is in the mean of all items and in that of the groups.
        before, after = getattr(one, name), getattr(other, name)
        rows = slice(1, None) if name == "group_effects" else slice(None)
        np.testing.assert_allclose(after[rows], before[rows], atol=0.02)
    # Added to every group and taken from the items: only what the prior knows moves.
    sd = model.effect_sd(position)[0]
    taken = position._replace(
        group_effects=effects + 0.7,
        items=position.items - 0.7,
        effects=position.effects.at[0].add(-0.7 / sd),
    )
    other = frame.coordinates(taken)
    for name in ("items", "effects"):
        before, after = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(after[:, 0], before[:, 0], atol=1e-9)
    change = np.asarray(other.group_effects - one.group_effects)
    np.testing.assert_allclose(change[0], 0.7 * np.sqrt(3), rtol=1e-9)
    np.testing.assert_allclose(change[1:], 0, atol=1e-9)


@pytest.mark.slow
def test_the_density_is_finite_at_zero_and_keeps_single_precision(strict_promotion):
    priors = {
        "discrimination": LogNormal(0.0, 0.5),
        "intercept": Normal(0.0, 2.0),
        "dispersion": HalfNormal(1.0),
    }
    wide = make(LogitNormalScores(slopes="positive"), priors=priors)
    narrow = lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x
    frame = jax.tree.map(lambda x: narrow(x) if isinstance(x, jax.Array) else x, wide)
    data = Responses(jnp.ones((SUBJECTS, ITEMS), jnp.float32))
    zeros = frame.model.zeros(jnp.float32)
    value, gradient = jax.jit(jax.value_and_grad(frame.log_density))(zeros, data)
    assert value.dtype == jnp.float32 and np.isfinite(value)
    assert all(np.isfinite(part).all() for part in gradient)
    position = frame.position(zeros)
    assert frame.kept(zeros, data).keys() == set(Position._fields)
    # The same sums under another order of compilation: some roundings.
    wanted = log_density(frame.model, position, data)
    assert float(value) == pytest.approx(float(wanted), rel=1e-5)


def test_the_size_of_the_deviations_is_a_coordinate():
    rng = np.random.default_rng(4)
    theta = jnp.asarray(rng.normal(size=(9, 2)))
    model = make(Binary(slopes="positive"), 2, subjects=9).model
    # Step by step each of its many small operations would be compiled apart.
    frame = _frame(model, None, theta)
    coordinates = eqx.filter_jit(lambda frame, at: frame.coordinates(at))
    position = random_coordinates(frame)
    one, other = (
        coordinates(frame, position._replace(ability=ability)).ability
        for ability in (theta, theta + 0.1 * (theta - theta.mean(axis=0)))
    )
    size = np.linalg.norm(theta - theta.mean(axis=0), axis=0)
    np.testing.assert_allclose(one[0], 3 * theta.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(np.abs(one[1]), size, rtol=1e-9)
    np.testing.assert_allclose(one[2:], 0, atol=1e-12)
    np.testing.assert_allclose(np.abs(other[1]), 1.1 * size, rtol=1e-9)
    np.testing.assert_allclose(other[2:], 0, atol=1e-12)
