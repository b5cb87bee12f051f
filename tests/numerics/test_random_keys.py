"""`key` of public functions: a whole number or a JAX key."""

import inspect

import jax
import numpy as np
import pytest

import irtjax
from irtjax import elo
from irtjax.numerics.random_keys import as_key
from irtjax.numerics.seeds import seed_of


def test_no_public_function_has_a_seed():
    """One name for what is random: `key` in Python, `--seed` on the command line."""
    for name in irtjax.__all__:
        item = getattr(irtjax, name)
        methods = vars(item).values() if inspect.isclass(item) else ()
        for function in (item, *methods):
            if callable(function) and not inspect.ismodule(function):
                try:
                    parameters = inspect.signature(function).parameters
                except ValueError:  # Built in.
                    continue
                assert "seed" not in parameters, (name, function)


@pytest.mark.parametrize("key", [-1, 0.5, True, "a", np.float64(1)])
def test_what_is_no_key_is_refused_in_one_line(key):
    table = irtjax.ResponseTable.from_arrays(np.eye(4))
    for call in (as_key, seed_of, lambda key: irtjax.fit(table, "rasch", key=key)):
        with pytest.raises(ValueError, match=r"key .*: give a whole number") as caught:
            call(key)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_the_number_of_a_key_is_that_it_was_made_of(impl):
    for seed in (0, 7, 2**31):
        assert seed_of(jax.random.key(seed, impl=impl)) == seed
    assert seed_of(jax.random.PRNGKey(7)) == 7
    one, other = jax.random.split(jax.random.key(0))
    assert seed_of(one) != seed_of(other)


def test_a_number_and_its_key_draw_the_same():
    rng = np.random.default_rng(0)
    right = rng.random((30, 12)) < 1 / (1 + np.exp(-rng.normal(size=(30, 1))))
    fit = irtjax.fit(
        irtjax.ResponseTable.from_arrays(right), "rasch", "em", standard_errors="none"
    )
    win = [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
    votes = irtjax.ComparisonTable.of("abc", [0, 1, 0], [1, 2, 2], win)
    for draw in (
        lambda key: irtjax.rank(fit, key=key).table.to_pydict(),
        lambda key: elo(votes, key=key).rating.tolist(),
        lambda key: irtjax.make_demo(key).ability.tolist(),
        lambda key: irtjax.simulate_tests(fit, 5, key=key, num_items=4).given.tolist(),
        lambda key: irtjax.AdaptiveTest(fit, 4, key=key, select="random").rules,
    ):
        assert draw(5) == draw(jax.random.key(5))
