"""Quadrature nodes: fine enough, and a warning where they are not."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irtjax.data.responses import Responses
from irtjax.likelihood.padding import padded_size
from irtjax.likelihood.quadrature import (
    AFFORDABLE,
    REACH,
    SHORT_REACH,
    SMALLEST,
    choose_nodes,
    resolution,
)
from irtjax.likelihood.quadrature import test_information as information_of
from irtjax.models.catalogue import two_parameter
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Population

MODEL = two_parameter()


def _items(num_items: int, slope: float) -> LogisticItems:
    intercept = np.zeros(num_items)
    return LogisticItems(
        *map(jnp.asarray, (intercept + slope, intercept, intercept, intercept + 1))
    )


def _population(sd=1.0, mean=0.0):
    return Population(jnp.asarray(mean), jnp.asarray(sd))


def _data(num_items: int) -> Responses:
    return Responses(jnp.zeros((2, num_items), jnp.int8))


def test_information_is_the_sum_over_items():
    # a^2 P (1 - P) at P = 1/2, and what weights leave of it.
    items, theta = _items(8, 2.0), jnp.zeros(1)
    assert float(information_of(MODEL, items, theta)[0]) == pytest.approx(8 * 4 / 4)
    half = information_of(MODEL, items, theta, jnp.full(8, 0.5))
    assert float(half[0]) == pytest.approx(4)


# The numbers of items are few because each is a shape of its own to compile.
@settings(max_examples=12, deadline=None)
@given(
    num_items=st.sampled_from([5, 40]),
    slope=st.floats(0.1, 30),
    sd=st.sampled_from([0.4, 1.0, 2.5]),
)
def test_chosen_nodes_always_resolve_the_narrowest_posterior(num_items, slope, sd):
    items, data, population = (
        _items(num_items, slope),
        _data(num_items),
        _population(sd),
    )
    nodes = choose_nodes(MODEL, items, population, data)
    found = resolution(MODEL, items, population, nodes, data)
    assert found.ratio <= 1.0 and found.warning() is None
    assert nodes[0] == -nodes[-1] and nodes[-1] in (REACH, SHORT_REACH)
    assert nodes[-1] == REACH or nodes.size > 300
    few = nodes.size == SMALLEST or padded_size(nodes.size - 1) == nodes.size - 1
    assert nodes.size >= SMALLEST and few
    if nodes.size <= AFFORDABLE - 20 and nodes.size > SMALLEST:
        assert found.ratio <= 0.5 + 1e-9
    # The narrowest posterior: prior precision plus the largest test information.
    peak = num_items * slope**2 / 4
    assert found.smallest_posterior_sd == pytest.approx(
        1 / np.sqrt(1 / sd**2 + peak), rel=1e-6
    )


def test_wide_nodes_are_named_with_a_cure():
    items, data = _items(40, 5.0), _data(40)
    found = resolution(MODEL, items, _population(), np.linspace(-6, 6, 61), data)
    # Information 250: a posterior of sd 0.063 on nodes 0.2 apart.
    assert found.ratio == pytest.approx(0.2 * np.sqrt(251), rel=1e-6)
    message = found.warning()
    assert message is not None
    assert "61 nodes lie 0.2 apart" in message and "use about 387 nodes" in message


def test_missing_responses_widen_posteriors():
    items = _items(40, 5.0)
    seen = np.zeros((2, 40), bool)
    seen[0, :10] = seen[1, :4] = True
    data = Responses(jnp.zeros((2, 40), jnp.int8), jnp.asarray(seen))
    found = resolution(MODEL, items, _population(), np.linspace(-6, 6, 61), data)
    # The subject who met most met a quarter of the items.
    assert found.smallest_posterior_sd == pytest.approx(1 / np.sqrt(1 + 250 / 4))
