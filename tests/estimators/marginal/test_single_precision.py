"""EM in single precision converges where rounding is larger than the last gains."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.ascent import independent_rounding
from irtjax.likelihood.counts import expected_counts
from irtjax.models.families.logistic import LogisticItems
from irtjax.numerics.kernels import equal_nodes, normal_log_weights


def responses(subjects, items, seed=0):
    """Discriminations, intercepts, and right or wrong responses of a 2PL."""
    rng = np.random.default_rng(seed)
    slope, intercept = rng.uniform(0.5, 2, items), rng.normal(0, 0.8, items)
    logit = slope * rng.normal(size=(subjects, 1)) + intercept
    right = rng.random(logit.shape) < 1 / (1 + np.exp(-logit))
    return slope.astype("f4"), intercept.astype("f4"), right.astype(np.int8)


@pytest.mark.parametrize(("subjects", "items"), [(5000, 100), (8000, 20)])
def test_rounding_of_a_gain_is_within_the_allowance(subjects, items):
    slope, intercept, right = responses(subjects, items)
    moved = intercept + 1e-3 * np.random.default_rng(1).normal(size=items)

    def log_marginal(point, dtype):
        values = slope, point.astype("f4"), 0 * slope, 0 * slope + 1
        record = LogisticItems(*(jnp.asarray(x, dtype) for x in values))
        # The same numbers in both precisions.
        nodes = jnp.asarray(np.asarray(equal_nodes(-6.0, 6.0, 121), "f4"), dtype)
        given = irtjax.MODELS["2pl"](), record, nodes, normal_log_weights(nodes)
        return expected_counts(*given, Responses(jnp.asarray(right))).log_marginal

    gains = {
        dtype: float(
            jnp.sum(log_marginal(moved, dtype) - log_marginal(intercept, dtype))
        )
        for dtype in ("float32", "float64")
    }
    terms = log_marginal(intercept, "float32")
    error = abs(gains["float32"] - gains["float64"])
    later: Any = SimpleNamespace(num_seen=jnp.ones((), jnp.int32))
    assert irtjax.EM().accepts(later, jnp.asarray(-error), terms)
    if items == 100:  # Without what subjects share it is refused.
        assert error > float(independent_rounding(terms))


@pytest.mark.slow
def test_a_fit_at_its_optimum_has_converged():
    table = irtjax.ResponseTable.from_arrays(responses(6000, 60)[2])
    fit = irtjax.fit(table, "2pl", "em", dtype=jnp.float32, standard_errors="none")
    assert fit.status == Status.CONVERGED
    # The tolerance in single precision, in standard errors.
    assert fit.residual <= 1e-2
    exact = irtjax.fit(table, "2pl", "em", standard_errors="none")
    # 120 parameters within 0.01 standard errors of the maximum, and the rounding of
    # log-likelihoods of 35 nats.
    allowed = 120 * 0.01**2 / 2 + 6000 * 35 * np.finfo("f4").eps
    assert abs(fit.log_likelihood - exact.log_likelihood) < allowed
