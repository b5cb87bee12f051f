"""The E-step and its derivatives against brute force."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.data.responses import Responses
from irtjax.likelihood import counts as module
from irtjax.likelihood.counts import expected_counts
from irtjax.likelihood.item_steps import (
    expected_derivatives,
    expected_value,
    improve_items,
)
from irtjax.models.catalogue import two_parameter
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items
from irtjax.numerics.kernels import equal_nodes, normal_log_weights
from tests import brute_force
from tests.tables import (
    NAMES,
    NODES,
    NUM_ITEMS,
    NUM_SUBJECTS,
    case,
    true_items,
)

LOG_WEIGHTS = normal_log_weights(jnp.asarray(NODES))


def _counts(model, coordinates, data):
    items = model.constrain(coordinates)
    return expected_counts(model, items, jnp.asarray(NODES), LOG_WEIGHTS, data)


_counts_jit = jax.jit(_counts)


def traced_again(**options):
    """Expected counts as a program of its own: a setting may have changed."""
    return jax.jit(lambda *given: expected_counts(*given, **options))


#: A shift and log scale of ability in which the priors are read.
FRAME = jnp.asarray([0.3, -0.2])


@jax.jit
def _em_gradient(model, coordinates, data):
    counts = _counts(model, coordinates, data)
    nodes = jnp.asarray(NODES)
    return expected_derivatives(model, coordinates, nodes, counts, FRAME), counts


def _perturbed(name: str, scale: float = 0.3) -> jax.Array:
    """Coordinates away from any optimum; ordered intercepts stay in order."""
    simulated = case(name)
    coordinates = simulated.model.unconstrain(true_items(simulated.model))
    noise = np.random.default_rng(3).normal(size=coordinates.shape)
    return coordinates + scale * np.clip(noise, -1.5, 1.5)


def _weighted(data: Responses) -> Responses:
    weight = np.random.default_rng(5).gamma(2.0, 0.5, data.num_subjects)
    return dataclasses.replace(data, subject_weight=jnp.asarray(weight))


def _slopes_by_differences(objective, vector, step: float = 1e-4):
    """Central differences with one Richardson step: error of order step^4."""
    eye = np.eye(vector.size, dtype=vector.dtype)
    central = jax.jit(
        jax.vmap(
            lambda d, h: (
                (objective(vector + h * d) - objective(vector - h * d)) / (2 * h)
            ),
            in_axes=(0, None),
        )
    )
    coarse, fine = (np.asarray(central(eye, h)) for h in (2 * step, step))
    return (4 * fine - coarse) / 3


@pytest.mark.parametrize("name", NAMES)
def test_the_em_gradient_is_the_slope_of_the_marginal_likelihood(name):
    # Fisher's identity, with missing cells and subject weights.
    model, data = case(name).model, _weighted(case(name).data)
    coordinates = _perturbed(name)
    derivatives, counts = _em_gradient(model, coordinates, data)
    vector = brute_force.pack(coordinates, frame=FRAME)
    objective = brute_force.marginal_objective(model, data, NODES)
    slopes = _slopes_by_differences(objective, vector)[:-4].reshape(coordinates.shape)
    # Rounding of a sum of 1e3 nats, 2e-13, over steps of 1e-4.
    np.testing.assert_allclose(derivatives.gradient, slopes, rtol=1e-6, atol=1e-7)
    weight = np.asarray(data.subject_weight)
    items = model.constrain(coordinates)
    prior = jax.jit(brute_force.log_prior)(model, items, jnp.zeros(()), FRAME)
    total = float(counts.log_marginal @ weight) + float(prior)
    assert total == pytest.approx(float(jax.jit(objective)(vector)), abs=1e-8)


def test_the_em_gradient_with_trials():
    model, data = _trials_case()
    coordinates = _perturbed("2pl")
    derivatives, _ = _em_gradient(model, coordinates, data)
    objective = brute_force.marginal_objective(model, data, NODES)
    vector = brute_force.pack(coordinates, frame=FRAME)
    slopes = _slopes_by_differences(objective, vector)[:-4].reshape(coordinates.shape)
    np.testing.assert_allclose(derivatives.gradient, slopes, rtol=1e-6, atol=1e-7)


def _trials_case():
    model = two_parameter()
    rng = np.random.default_rng(8)
    theta, items = rng.standard_normal(NUM_SUBJECTS), true_items(model)
    trials = rng.integers(0, 4, (NUM_SUBJECTS, NUM_ITEMS))
    probability = brute_force.category_probabilities("2pl", items, theta)[..., 1]
    values = rng.binomial(trials, np.asarray(probability)).astype(np.int8)
    return model, Responses(
        jnp.asarray(values), jnp.asarray(trials > 0), jnp.asarray(trials, jnp.int32)
    )


def test_trials_are_repeated_subjects_in_likelihood():
    # r right of n has the likelihood of n single responses, up to a constant.
    model, data = _trials_case()
    coordinates = _perturbed("2pl")
    counts = _counts_jit(model, coordinates, data)
    values, trials = np.asarray(data.values), np.asarray(data.trials)
    wide = [(k < values).astype(np.int8) for k in range(3)]
    seen = [k < trials for k in range(3)]
    tiled = jax.tree.map(lambda x: jnp.tile(x, (3, 1)), coordinates)
    single = Responses(jnp.asarray(np.hstack(wide)), jnp.asarray(np.hstack(seen)))
    np.testing.assert_allclose(
        counts.log_marginal, _counts_jit(model, tiled, single).log_marginal, atol=1e-11
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("2pl positive", marks=pytest.mark.slow),
        pytest.param("4pl", marks=pytest.mark.slow),
        "graded",
        "rasch",
    ],
)
def test_the_curvature_is_minus_the_hessian_of_the_expected_objective(name):
    simulated = case(name)
    model, coordinates = simulated.model, _perturbed(name)
    nodes = jnp.asarray(NODES)

    @jax.jit
    def both(data):
        counts = _counts(model, coordinates, data)
        value = lambda row: expected_value(model, row, nodes, counts, FRAME)
        hessian = jax.jacfwd(jax.jacrev(value))(coordinates)
        own = jnp.arange(NUM_ITEMS)
        direct = expected_derivatives(model, coordinates, nodes, counts, FRAME)
        return hessian[own, own][:, :, own][own, :, own], value(coordinates), direct

    hessian, value, derivatives = both(simulated.data)
    np.testing.assert_allclose(derivatives.curvature, -hessian, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(derivatives.value, value, rtol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "2pl",
        pytest.param("4pl", marks=pytest.mark.slow),
        pytest.param("graded", marks=pytest.mark.slow),
    ],
)
def test_an_item_update_raises_every_item_and_leaves_fixed_columns(name):
    simulated = case(name)
    model, nodes = simulated.model, jnp.asarray(NODES)
    # Far away, where Newton's matrix is indefinite and full steps overshoot.
    coordinates = _perturbed(name, 0.9 if name != "graded" else 0.4)
    free = jnp.asarray(np.random.default_rng(1).random(coordinates.shape) < 0.7)
    counts = _counts_jit(model, coordinates, simulated.data)
    value = jax.jit(expected_value)
    before = value(model, coordinates, nodes, counts, FRAME)
    improve = jax.jit(improve_items, static_argnums=6)
    update = improve(model, coordinates, free, nodes, counts, FRAME, 2)
    after = value(model, update.coordinates, nodes, counts, FRAME)
    assert (np.asarray(after - before) >= -1e-11 * np.abs(before)).all()
    assert float(jnp.sum(after - before)) > 1.0
    fixed = ~np.asarray(free)
    np.testing.assert_array_equal(
        np.asarray(update.coordinates)[fixed], np.asarray(coordinates)[fixed]
    )
    assert (np.asarray(update.gradient)[fixed] == 0).all()


@pytest.mark.parametrize("structure", ["complete", "missing", "trials"])
def test_blocks_change_nothing_but_rounding(monkeypatch, structure):
    if structure == "trials":
        model, data = _trials_case()
    else:
        simulated = case("2pl", structure == "missing")
        model, data = simulated.model, simulated.data
    data = _weighted(data)
    coordinates = _perturbed("2pl")
    arguments = model, model.constrain(coordinates), jnp.asarray(NODES), LOG_WEIGHTS
    whole = traced_again()(*arguments, data)
    # 240 rows in blocks of 64: the last one overlaps its neighbour.
    monkeypatch.setattr(module, "block_size_for", lambda *_: 64)
    blocks = traced_again()(*arguments, data)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(blocks), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
    weight = np.asarray(data.subject_weight)
    assert float(whole.nodes.sum()) == pytest.approx(weight.sum())


@pytest.mark.parametrize("structure", ["complete", "missing"])
def test_a_window_of_nodes_changes_nothing_but_rounding(monkeypatch, structure):
    # Steep items and subjects in order of ability: narrow posteriors in each block.
    simulated = case("2pl", structure == "missing")
    model, data = simulated.model, simulated.data
    order = np.argsort(np.asarray(data.values).sum(1))
    data = jax.tree.map(lambda x: x[order], _weighted(data))
    items = simulated.items._replace(discrimination=jnp.full(NUM_ITEMS, 25.0))
    nodes = jnp.asarray(NODES)
    monkeypatch.setattr(module, "block_size_for", lambda *_: 48)
    arguments = model, items, nodes, LOG_WEIGHTS, data
    whole = traced_again()(*arguments)
    windowed = jax.jit(lambda x: expected_counts(*arguments, centre=x, window=41))
    for centre in (whole.centre, jnp.zeros_like(whole.centre)):
        # Right and quite wrong guesses of where the posteriors are.
        part = windowed(centre)
        for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


def test_the_narrow_window_is_taken_and_changes_nothing(monkeypatch):
    # Hundreds of items: posteriors of a few nodes, so that blocks of neighbours fit in
    # the narrow window.
    model, key = two_parameter(), jax.random.key(1)
    items = simulate_items(model, 400, key, discrimination=(1.5, 2.5))
    theta = jnp.sort(simulate_abilities(320, jax.random.key(2)))
    data = simulate(model, items, theta, jax.random.key(3))
    nodes = jnp.asarray(equal_nodes(-6.0, 6.0, 201))
    weights = normal_log_weights(nodes)
    monkeypatch.setattr(module, "block_size_for", lambda *_: 20)
    monkeypatch.setattr(module, "NARROW", {8: 28})
    widths = []
    original = jax.nn.logsumexp

    def spy(joint, **options):
        jax.debug.callback(lambda: widths.append(joint.shape[1]))
        return original(joint, **options)

    monkeypatch.setattr(jax.nn, "logsumexp", spy)
    whole = expected_counts(model, items, nodes, weights, data)
    jax.effects_barrier()
    assert set(widths) == {201}
    widths.clear()
    part = expected_counts(
        model, items, nodes, weights, data, centre=whole.centre, window=140
    )
    jax.effects_barrier()
    # Blocks in the middle settle for 28 nodes, those at the ends need more.
    assert widths.count(28) >= 8
    assert 140 in widths
    assert 201 not in widths
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


def test_counts_are_exact_sums_over_posteriors():
    simulated = case("3pl")
    model, data = simulated.model, _weighted(simulated.data)
    items = simulated.items
    counts = expected_counts(model, items, jnp.asarray(NODES), LOG_WEIGHTS, data)
    probabilities = brute_force.category_probabilities("3pl", items, NODES)
    cells = brute_force.cell_probabilities(probabilities, data)
    joint = np.asarray(jnp.prod(cells, 1)) * brute_force.normal_weights(NODES)
    posterior = joint / joint.sum(1, keepdims=True)
    posterior *= np.asarray(data.subject_weight)[:, None]
    right = np.einsum("iq,ij->qj", posterior, np.asarray(data.values, float))
    seen = np.einsum("iq,ij->qj", posterior, np.asarray(data.observed, float))
    np.testing.assert_allclose(counts.statistics[0], right, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(counts.base, seen, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(counts.nodes, posterior.sum(0), rtol=1e-10)


def test_item_weights_are_numbers_of_copies():
    simulated = case("2pl")
    model, data = simulated.model, simulated.data
    weight = jnp.asarray([2.0, 1, 0, 1, 1, 0])
    copies = np.array([0, 0, 1, 3, 4])
    coordinates = _perturbed("2pl")
    assert data.observed is not None
    copied = Responses(data.values[:, copies], data.observed[:, copies])
    weighted = _counts_jit(
        model, coordinates, dataclasses.replace(data, item_weight=weight)
    )
    long = _counts_jit(model, coordinates[copies], copied)
    np.testing.assert_allclose(weighted.log_marginal, long.log_marginal, atol=1e-11)
    # What is learned about an item is one copy's worth, also at weight 0.
    np.testing.assert_allclose(
        weighted.statistics[0][:, [1, 3, 4]], long.statistics[0][:, 2:], atol=1e-10
    )
    assert float(weighted.statistics[0][:, 2].sum()) > 0


def test_certain_responses_leave_no_infinities(strict_promotion):
    # Predictors of several hundred: probabilities underflow, logarithms must not.
    model = two_parameter(None)
    items = true_items(model)._replace(discrimination=jnp.full(NUM_ITEMS, 100.0))
    data = case("2pl").data
    counts = traced_again()(model, items, jnp.asarray(NODES), LOG_WEIGHTS, data)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(counts))
    assert float(counts.nodes.sum()) == pytest.approx(NUM_SUBJECTS)
