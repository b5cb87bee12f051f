"""Models, items and data that the tests of scoring share."""

import jax
import jax.numpy as jnp

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
