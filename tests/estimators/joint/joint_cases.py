"""Simulated responses for the tests of the joint methods."""

import jax.numpy as jnp
import numpy as np

from irtjax.data.responses import Responses

SHAPE = (60, 40)


def simulated(temperature=1.0, pattern="none", seed=0, shape=SHAPE, sparse=0.0):
    """Design of the cBMM paper, A.6: responses and mask of one missingness pattern."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=shape[0])
    slope = rng.uniform(0.5, 1, shape[1]) * (rng.random(shape[1]) >= sparse)
    eta = np.outer(theta, slope) + 0.5 * rng.normal(size=shape[1])
    values = (rng.random(shape) < 1 / (1 + np.exp(-eta / temperature))).astype(np.int8)
    if pattern == "none":
        return values, None
    if pattern == "mcar":
        observed = rng.random(shape) < 0.6
    elif pattern == "mar":  # what is missing depends on the subject's first answer
        observed = rng.random(shape) < np.where(values[:, :1] == 1, 0.9, 0.4)
    else:  # mnar: wrong answers go missing in some columns
        observed = (values == 1) | (rng.random(shape[1]) < 0.8)
    return np.where(observed, values, 0).astype(np.int8), observed


def responses(values, observed=None, **rest):
    mask = None if observed is None else jnp.asarray(observed)
    return Responses(jnp.asarray(values), mask, **rest)
