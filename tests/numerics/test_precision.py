"""Settings under which programs run."""

import jax
import jax.numpy as jnp
import pytest

from irtjax.numerics.precision import full_precision


def test_numbers_that_do_not_exist_are_no_error_under_debugging():
    divide = full_precision(jax.jit(lambda x: x / x))
    with jax.debug_nans(True), jax.debug_infs(True):
        assert jnp.isnan(divide(jnp.zeros(()))).item()
        with pytest.raises(FloatingPointError):
            jax.jit(lambda x: x / x)(jnp.zeros(()))
