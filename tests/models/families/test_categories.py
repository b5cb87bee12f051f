"""Items that lack categories have the probabilities of a family of fewer categories."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.models.families.graded import (
    Graded,
    GradedItems,
    PartialCredit,
    category_numbers,
)
from irtjax.models.families.nominal import Nominal
from irtjax.models.families.rating import RatingScale

THETA = jnp.array([-2.5, 0.3, 4.0])
#: Categories of items of five, by what they lack.
KINDS = {
    "lowest": [0, 1, 1, 1, 1],
    "two lowest": [0, 0, 1, 1, 1],
    "highest": [1, 1, 1, 1, 0],
    "inner": [1, 1, 0, 1, 1],
    "ends and inner": [0, 1, 0, 1, 1],
    "all but two": [0, 1, 0, 1, 0],
}
SHARES = np.array([0.1, 0.25, 0.3, 0.2, 0.15])


@eqx.filter_jit
def _log_probs(family, item):
    return jax.vmap(family.category_log_probs, (None, 0))(item, THETA)


def _probabilities(family, items, k: int = 0):
    """`[nodes, categories]` of one item."""
    item = jax.tree.map(lambda x: jnp.asarray(x)[k], items)
    return np.exp(np.asarray(_log_probs(family, item)))


def _closed(family, exists):
    """Items of the family without some categories, and which coordinates are free."""
    means = tuple(jnp.full(len(exists), share) for share in SHARES[1:])
    items = jax.jit(family.start)(means, jnp.full(len(exists), 0.8))
    family = dataclasses.replace(family, gaps=True)
    return family, *family.close(items, np.array(exists, bool))


def _smaller(family, items, row, kept):
    """Probabilities `[nodes, kept]` of the item with the kept categories alone."""
    if isinstance(family, Nominal):
        slope, odds = (
            np.append(0, np.asarray(getattr(items, name))[row])[kept]
            for name in ("category_slope", "category_intercept")
        )
        logits = np.outer(np.asarray(THETA), slope - slope[0]) + odds - odds[0]
        return jax.nn.softmax(jnp.asarray(logits), axis=1)
    small = dataclasses.replace(family, categories=len(kept), gaps=False)
    used = [k - 1 for k in kept[1:]]
    intercept = np.asarray(items.intercept)[row][used]
    slope = np.asarray(items.discrimination)[row]
    item = GradedItems(jnp.asarray([slope]), jnp.asarray(intercept)[None])
    return _probabilities(small, item)


@pytest.mark.parametrize("make", [Graded, PartialCredit, Nominal])
@pytest.mark.parametrize("kind", KINDS)
def test_closed_categories(make, kind):
    """An item has no more parameters than its own categories, and their chances."""
    exists = np.array([KINDS[kind], [1] * 5], bool)
    family, items, free = _closed(make(5), exists)
    kept = np.flatnonzero(exists[0])
    found = _probabilities(family, items)
    wanted = _smaller(family, items, 0, kept)
    # Closed categories have a chance of e^-20.
    np.testing.assert_allclose(found[:, kept], wanted, rtol=1e-9)
    assert found[:, ~exists[0]].max() < 1e-8
    # A slope, and an intercept for each category but one; of nominal items two slopes
    # and intercepts less.
    count = (lambda c: 2 * (c - 1)) if make is Nominal else (lambda c: c)
    assert free.sum(1).tolist() == [count(len(kept)), count(5)]
    np.testing.assert_array_equal(family.existing(items), exists)


@pytest.mark.parametrize("make", [Graded, PartialCredit, Nominal])
def test_closed_categories_have_finite_derivatives(make):
    """Of log-probabilities of responses in the categories that an item has."""
    exists = np.array(list(KINDS.values()), bool)
    family, items, free = _closed(make(5), exists)
    rows = jax.jit(jax.vmap(family.unconstrain))(items)
    again = jax.jit(jax.vmap(family.constrain))(rows)
    for one, two in zip(items, again, strict=True):
        np.testing.assert_allclose(one, two)

    def total(row, kept):
        logs = family.category_log_probs(family.constrain(row), THETA[1])
        return jnp.sum(jnp.where(kept, logs, 0))

    both = jax.jit(jax.vmap(lambda *x: (jax.grad(total)(*x), jax.hessian(total)(*x))))
    gradient, hessian = map(np.asarray, both(rows, jnp.asarray(exists)))
    assert np.isfinite(gradient).all() and np.isfinite(hessian).all()
    assert (gradient[~free] == 0).all()


@pytest.mark.parametrize("make", [Graded, PartialCredit, Nominal, RatingScale])
def test_responses_are_the_codes(make):
    """Any rising numbers are categories; expected responses are on their scale."""
    plain, coded = make(3), make(3, codes=(2, 3, 7))
    numbers, codes = jnp.array([[0, 2], [1, 0]]), jnp.array([[2, 7], [3, 2]])
    for one, two in zip(
        plain.statistics(numbers), coded.statistics(codes), strict=True
    ):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(category_numbers(codes, (2, 3, 7)), numbers)
    # A missing cell, stored as 0, adds nothing.
    assert not any(np.asarray(x).any() for x in coded.statistics(jnp.zeros((1, 1))))
    means = tuple(jnp.full(1, x) for x in (0.5, 0.3))
    items = jax.jit(plain.start)(means, jnp.full(1, 0.8))
    chances = _probabilities(coded, items)
    np.testing.assert_allclose(chances, _probabilities(plain, items))
    item = jax.tree.map(lambda x: x[0], items)
    expected = jax.jit(jax.vmap(coded.expected_response, (None, 0)))(item, THETA)
    np.testing.assert_allclose(expected, chances @ np.array([2.0, 3.0, 7.0]))
    drawn = jax.jit(coded.sample)(jax.random.key(0), items, jnp.linspace(-2, 2, 60))
    assert set(np.unique(drawn)) <= {2, 3, 7}
