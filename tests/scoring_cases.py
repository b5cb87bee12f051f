"""Models, items and data that the tests of scoring share."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.data.responses import Responses
from irtjax.models.catalogue import (
    BINARY_MODELS,
    graded,
    nominal,
    partial_credit,
    partial_credit_unit,
    rating_scale,
)
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Population
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items

ALL = {name: make() for name, make in BINARY_MODELS.items()}
ALL |= {"graded": graded(4), "partial credit": partial_credit(3)}
ALL |= {"pcm": partial_credit_unit(3), "rsm": rating_scale(4), "nominal": nominal(4)}
UNIT = Population(jnp.array(0.0), jnp.array(1.0))
NODES = jnp.linspace(-6, 6, 121)
BOUNDS = jnp.array([-6.0, 6.0])


def logistic_items(slope, intercept, low=0.0, high=1.0):
    size = jnp.shape(jnp.asarray(intercept))
    return LogisticItems(
        *(
            jnp.broadcast_to(jnp.asarray(x, float), size)
            for x in (slope, intercept, low, high)
        )
    )


def make_data(model, kind, num_subjects=12, num_items=9):
    keys = jax.random.split(jax.random.key(21), 4)
    items = simulate_items(model, num_items, keys[0], discrimination=(0.8, 2.0))
    theta = simulate_abilities(num_subjects, keys[1])
    binary = model.family.num_categories == 2
    data = simulate(
        model,
        items,
        theta,
        keys[2],
        missing=0.3 if kind == "missing" else 0.0,
        trials=4 if kind == "trials" and binary else None,
    )
    if kind == "weighted":
        weight = jax.random.uniform(keys[3], (num_items,), float, 0.2, 2.0)
        data = Responses(data.values, data.observed, item_weight=weight)
    return items, data


def perturbed(model, items, step, column, row):
    """Items with one unconstrained coordinate moved by a step."""
    coordinates = model.unconstrain(items).at[row, column].add(step)
    estimated = {p.name for p in model.family.parameters}
    kept = {n: v for n, v in items._asdict().items() if n not in estimated}
    return model.constrain(coordinates)._replace(**kept)


def uncertain_items(name, num_subjects=6, num_items=5):
    """A model's items and data, and a covariance `[items, columns, columns]`."""
    model = ALL[name]
    items, data = make_data(model, "missing", num_subjects, num_items)
    if name == "1pl":
        items = items._replace(discrimination=jnp.full(num_items, 1.7))
    columns = model.family.num_columns
    root = np.random.default_rng(0).normal(size=(num_items, columns, columns)) * 0.2
    return model, items, data, jnp.asarray(root @ root.transpose(0, 2, 1))


def delta_method(value_at, model, items, covariance, step=1e-4):
    """`[subjects]` variances that uncertain items add to `value_at(items)`.

    By central differences: the error is about step^2.
    """
    rows, columns = covariance.shape[:2]
    differences = [
        value_at(perturbed(model, items, step, column, row))
        - value_at(perturbed(model, items, -step, column, row))
        for row, column in itertools.product(range(rows), range(columns))
    ]
    slopes = np.stack(differences, -1).reshape(-1, rows, columns) / (2 * step)
    return np.einsum("sjc,jcd,sjd->s", slopes, covariance, slopes)


def check_errors_of_items(found, plain, gradient, blocks, data):
    """Asserts what uncertain items add to errors of scores: J C J', subject by subject.

    `found` are scores with errors of items, `plain` errors without, `gradient`
    `[subjects, items, columns]` of scores, `blocks` the covariance of each item.
    """
    added = np.asarray(found.standard_error**2 - plain**2)
    wanted = np.einsum("ijp,jpq,ijq->i", gradient, blocks, gradient)
    # Left out is how skewness and variance move: a share of 1 / sqrt(responses).
    share = 1 / np.sqrt(np.asarray(data.observed).sum(1).min())
    np.testing.assert_allclose(added, wanted, rtol=share)
    # With more directions than subjects the shared errors are all of them.
    both = np.einsum("ijp,jpq,kjq->ik", gradient, blocks, gradient)
    shared = np.asarray(found.shared)
    np.testing.assert_allclose(shared @ shared.T, both, atol=share * np.max(wanted))
    np.testing.assert_allclose(np.sum(shared**2, 1), added, rtol=1e-6)
