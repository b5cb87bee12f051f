"""The bootstrap by weights is the bootstrap of repeated rows and columns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.fitting.bootstrap import UNITS, bootstrap, percentile_interval
from irtjax.inference import score
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import two_parameter
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items
from tests.tables import case, fit_with, marginal_method, run_jit

KEY = jax.random.key(3)
COUNT = 4


def replicates_of(unit: str, data: Responses | None = None):
    """A full fit of the 2PL, and a few replicates of it."""
    model = two_parameter()
    if data is None:
        data = many_items() if unit == "items" else case("2pl").data
    fit = fit_with(marginal_method(), model, data)
    problem = Problem.create(model, data)
    found = bootstrap(
        problem,
        marginal_method(),
        Start(fit.parameters.items),
        key=KEY,
        num_replicates=COUNT,
        unit=unit,
        batch_size=2,
    )
    return model, data, found


def many_items() -> Responses:
    """Items enough that a repeated one does not become the ability itself."""
    keys = jax.random.split(KEY, 3)
    items = simulate_items(two_parameter(), 60, keys[0], discrimination=(0.8, 1.6))
    theta = simulate_abilities(150, keys[1])
    return simulate(two_parameter(), items, theta, keys[2], missing=0.1)


def repeated(data: Responses, weight: np.ndarray, axis: int) -> Responses:
    """The rows or columns drawn, each as often as its weight says."""
    index = np.repeat(np.arange(weight.size), weight.astype(int))
    assert data.observed is not None
    return Responses(
        jnp.take(data.values, index, axis), jnp.take(data.observed, index, axis)
    )


@pytest.mark.parametrize("unit", UNITS)
def test_a_replicate_is_a_fit_of_the_repeated_data(unit):
    # With weak priors on: a repeated item has to bring its prior along.
    model, data, found = replicates_of(unit)
    assert (np.asarray(found.status) == Status.CONVERGED).all()
    axis = UNITS.index(unit)
    size = data.values.shape[axis]
    np.testing.assert_array_equal(found.weight.sum(axis=1), size)
    for k in range(COUNT):
        weight = np.asarray(found.weight[k])
        again = fit_with(marginal_method(), model, repeated(data, weight, axis))
        slope = np.asarray(found.parameters.items.discrimination[k])
        intercept = np.asarray(found.parameters.items.intercept[k])
        kept = np.ones(slope.size, bool)
        mine = np.arange(slope.size)
        if unit == "items":
            kept, mine = weight > 0, np.repeat(mine, weight.astype(int))
            theirs = np.searchsorted(mine, np.flatnonzero(kept))
        else:
            theirs = mine
        # Both stop within 1e-4 standard errors, which are below 1 here.
        others = again.parameters.items
        for value, other in (
            (slope, others.discrimination),
            (intercept, others.intercept),
        ):
            np.testing.assert_allclose(
                value[kept], np.asarray(other)[theirs], atol=1e-3
            )
        if unit == "items":
            scores = score(
                model,
                others,
                again.parameters.population,
                repeated(data, weight, axis),
                nodes=marginal_method().nodes,
            )
            np.testing.assert_allclose(found.ability[k], scores.ability, atol=1e-3)


def test_replicates_in_batches_are_single_fits():
    model, data, found = replicates_of("subjects")
    weight = found.weight[1]
    weighted = Responses(data.values, data.observed, subject_weight=weight)
    fit = fit_with(marginal_method(), model, data)
    single = run_jit(
        Problem.create(model, weighted),
        marginal_method(),
        Start(fit.parameters.items),
        max_steps=200,
    )
    np.testing.assert_allclose(
        found.parameters.items.intercept[1],
        single.parameters.items.intercept,
        atol=1e-6,
    )


def test_groups_are_drawn_whole():
    simulated = case("2pl")
    size = simulated.data.num_subjects
    families = np.array(["law", "code", "math", "chat"])[np.arange(size) % 4]
    given = Problem.create(simulated.model, simulated.data), marginal_method()
    draw = lambda groups, num=COUNT: bootstrap(
        *given, Start(simulated.items), key=KEY, num_replicates=num, groups=groups,
        batch_size=2,
    )  # fmt: skip
    weight = np.asarray(draw(families).weight)
    by_family = np.stack([weight[:, families == x] for x in np.unique(families)])
    assert (by_family == by_family[:, :, :1]).all()
    # Four families with replacement.
    np.testing.assert_array_equal(by_family[:, :, 0].sum(axis=0), 4)
    for groups, message in (
        (families[1:], "groups have shape"),
        (np.zeros(size), "all subjects are of one group"),
    ):
        with pytest.raises(ValueError, match=message):
            draw(groups)


@pytest.mark.slow
def test_weights_of_the_data_multiply_those_drawn():
    simulated = case("2pl")
    half = np.arange(simulated.data.num_subjects) % 2 == 0
    own = jnp.asarray(half, float)
    data = Responses(simulated.data.values, simulated.data.observed, subject_weight=own)
    model, _, found = replicates_of("subjects", data)
    # Subjects of weight 0 must not matter: scramble their responses.
    scrambled = jnp.where(half[:, None], data.values, 1 - data.values)
    assert data.observed is not None
    other = Responses(scrambled * data.observed, data.observed, subject_weight=own)
    _, _, again = replicates_of("subjects", other)
    np.testing.assert_allclose(
        found.parameters.items.intercept,
        again.parameters.items.intercept,
        atol=1e-3,
    )


def test_percentiles_and_bad_units():
    low, high = percentile_interval({"a": jnp.arange(201.0)[:, None]}, 0.9)
    np.testing.assert_allclose([low["a"], high["a"]], [[10.0], [190.0]])
    simulated = case("2pl")
    problem = Problem.create(simulated.model, simulated.data)
    with pytest.raises(ValueError, match="'models' is neither 'subjects' nor"):
        bootstrap(
            problem,
            marginal_method(),
            Start(simulated.items),
            key=KEY,
            unit="models",
        )
