"""Andrich's rating scale: steps common to all items, against brute force."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import irtjax
from irtjax.models.catalogue import rating_scale
from irtjax.models.families.rating import RatingItems
from irtjax.models.priors import Normal
from irtjax.models.simulate import simulate, simulate_items

SUBJECTS, ITEMS = 300, 6
STEPS = jnp.array([1.0, 0.2])
NODES = jnp.linspace(-6, 6, 121)


@functools.cache
def table() -> irtjax.ResponseTable:
    """300 subjects on six items of four categories, some responses missing."""
    keys = jax.random.split(jax.random.key(5), 4)
    items = RatingItems(
        jnp.ones(ITEMS),
        jax.random.normal(keys[0], (ITEMS,)),
        jnp.broadcast_to(STEPS, (ITEMS, 2)),
    )
    theta = 1.3 * jax.random.normal(keys[1], (SUBJECTS,))
    data = simulate(rating_scale(4), items, theta, keys[2], missing=0.1)
    return irtjax.ResponseTable.from_arrays(
        np.asarray(data.values), observed=np.asarray(data.observed)
    )


@functools.cache
def fitted(name: str, **options) -> irtjax.Calibration:
    return irtjax.fit(table(), name, "em", priors=None, **options)


def minus_log_likelihood(point):
    """By quadrature, written out: intercepts, two steps, log sd of ability."""
    values = jnp.asarray(table().values, int)
    intercept, steps = point[:ITEMS], point[ITEMS:-1]
    steps = jnp.append(steps, -jnp.sum(steps))
    predictor = jnp.exp(point[-1]) * NODES[:, None] + intercept
    terms = jnp.cumsum(predictor[..., None] + steps, axis=-1)
    terms = jnp.concatenate([jnp.zeros_like(terms[..., :1]), terms], axis=-1)
    log_probs = jax.nn.log_softmax(terms, axis=-1)
    cells = log_probs[:, jnp.arange(ITEMS)[None], values]
    cells = jnp.where(jnp.asarray(table().observed), cells, 0)
    log_weights = jax.nn.log_softmax(-(NODES**2) / 2)
    total = cells.sum(axis=-1) + log_weights[:, None]
    return -jax.nn.logsumexp(total, axis=0).sum()


@functools.cache
def maximum():
    """The maximum by another optimiser, and standard errors of its Hessian."""
    found = optimize.minimize(
        jax.jit(minus_log_likelihood),
        np.zeros(ITEMS + 3),
        jac=jax.jit(jax.grad(minus_log_likelihood)),
        method="BFGS",
        options={"gtol": 1e-7},
    )
    hessian = jax.jit(jax.hessian(minus_log_likelihood))(jnp.asarray(found.x))
    return found, np.sqrt(np.diag(np.linalg.inv(hessian)))


@pytest.mark.slow
def test_the_fit_is_the_maximum_of_the_likelihood():
    fit, (found, _) = fitted("rsm"), maximum()
    assert fit.status == 0
    assert fit.num_parameters == ITEMS + 2 + 1
    np.testing.assert_allclose(fit.log_likelihood, -found.fun, atol=1e-5)
    items = fit.parameters.items
    np.testing.assert_allclose(items.intercept, found.x[:ITEMS], atol=1e-3)
    np.testing.assert_allclose(items.step[0], found.x[ITEMS:-1], atol=1e-3)
    # One value, not six that agree.
    assert (np.asarray(items.step) == np.asarray(items.step)[:1]).all()


@pytest.mark.slow
def test_standard_errors_are_those_of_the_hessian():
    column, errors = fitted("rsm").items.table.column, maximum()[1]
    np.testing.assert_allclose(column("intercept_se"), errors[:ITEMS], rtol=1e-3)
    for k in range(2):
        wanted = np.full(ITEMS, errors[ITEMS + k])
        np.testing.assert_allclose(column(f"step_{k + 1}_se"), wanted, rtol=1e-3)


@pytest.mark.slow
def test_it_is_nested_in_partial_credit():
    small, large = fitted("rsm"), fitted("pcm", standard_errors="none")
    gained = large.log_likelihood - small.log_likelihood
    added = large.num_parameters - small.num_parameters
    assert added == (ITEMS - 1) * 2
    # Twice the gain is chi-squared with 10 degrees of freedom: at most 29.6 (.999).
    assert 0 < 2 * gained < 29.6


def test_true_steps_lie_within_four_standard_errors():
    column = fitted("rsm").items.table.column
    for k, true in enumerate(STEPS):
        estimate, error = (
            column(f"step_{k + 1}{end}")[0].as_py() for end in ("", "_se")
        )
        assert abs(estimate - true) < 4 * error


@pytest.mark.slow
def test_two_categories_are_the_rasch_model():
    values = np.minimum(table().values, 1)
    binary = irtjax.ResponseTable.from_arrays(values, observed=table().observed)
    options = {"priors": None, "standard_errors": "none"}
    pair = [irtjax.fit(binary, n, "em", **options) for n in ("rsm", "rasch")]
    np.testing.assert_allclose(*(fit.log_likelihood for fit in pair), atol=1e-6)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"priors": {"step": Normal(0.0, 1.0)}}, "has no prior"),
        ({"standard_errors": "sandwich"}, "standard_errors='observed'"),
    ],
)
def test_what_would_vary_between_items_is_refused(how, message):
    with pytest.raises(ValueError, match=message):
        irtjax.fit(table(), "rsm", **{"method": "em", **how})


def test_simulated_items_share_their_steps():
    items = simulate_items(rating_scale(5), 7, jax.random.key(0))
    assert items.step.shape == (7, 3)
    assert (items.step == items.step[:1]).all()
