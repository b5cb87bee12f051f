"""The bank, the subjects and the tests that tests of adaptive testing share."""

from functools import cache

import jax
import jax.numpy as jnp

from irtjax.adaptive import Design, ItemBank
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.models.model import Population
from irtjax.models.simulate import simulate_items
from tests.scoring_cases import ALL

SIZE, LENGTH = 40, 10
#: Not the standard population, so that a forgotten mean or sd shows.
POPULATION = Population(jnp.array(0.3), jnp.array(1.2))
FAMILIES = ["2pl", "3pl", "probit2pl", "graded"]


@cache
def bank_of(name: str = "2pl", dtype=jnp.float64, length: int = LENGTH) -> ItemBank:
    model = ALL[name]
    items = simulate_items(
        model, SIZE, jax.random.key(5), discrimination=(0.7, 2.2), intercept_sd=1.2
    )
    items, population = jax.tree.map(lambda x: x.astype(dtype), (items, POPULATION))
    return ItemBank.create(model, items, population, num_items=length)


THETA = jnp.linspace(-2.0, 2.5, 12)
KEY = jax.random.key(3)


@cache
def run_of(name: str = "2pl", score: str = "eap"):
    design = Design.create(LENGTH, scoring=score)
    return run_tests_jit(bank_of(name), design, key=KEY, theta=THETA)
