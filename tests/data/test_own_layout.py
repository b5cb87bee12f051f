"""A data layout of a user's own: binary responses in bits, eight cells in a byte."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import irtjax
from irtjax.data.responses import AbstractResponses
from irtjax.estimators.driver import Run
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.timing import Clock
from irtjax.numerics.kernels import take_block


class PackedResponses(AbstractResponses):
    """Right responses and the mask, `[subjects, bytes]` each."""

    right: jnp.ndarray
    observed: jnp.ndarray
    size: int = eqx.field(static=True)

    @property
    def num_subjects(self):
        return len(self.right)

    @property
    def num_items(self):
        return self.size

    def matrix_blocks(self, size, dtype=jnp.int8):
        def block(start):
            rows = (take_block(x, start, size) for x in (self.right, self.observed))
            right, seen = (jnp.unpackbits(x, 1, self.size) for x in rows)
            return right.astype(dtype), seen

        return block


def responses(num_subjects=2100, num_items=9):
    rng = np.random.default_rng(0)
    ability, easy = rng.normal(size=(num_subjects, 1)), rng.normal(size=num_items)
    right = rng.random((num_subjects, num_items)) < 1 / (1 + np.exp(-ability - easy))
    seen = rng.random(right.shape) < 0.8
    bits = (jnp.asarray(np.packbits(x, axis=1)) for x in (right & seen, seen))
    matrix = irtjax.Responses(jnp.asarray(right * seen, jnp.int8), jnp.asarray(seen))
    return matrix, PackedResponses(*bits, num_items)


def test_a_fit_by_em_is_that_of_the_matrix():
    model, method = irtjax.MODELS["2pl"](), EM()
    run, estimates = Run(Clock()), []
    for data in responses():
        problem = irtjax.Problem.create(model, data)
        solution = method.solve(problem, irtjax.start_values(model, data), run)
        estimates.append(method.estimates(problem, solution, run))
    np.testing.assert_allclose(*(x.log_likelihood for x in estimates), rtol=1e-12)
    # The matrix is padded, so that sums are rounded in another order.
    for name in ("coordinates", "ability", "error"):
        pair = (getattr(x, name) for x in estimates)
        np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-9, err_msg=name)
