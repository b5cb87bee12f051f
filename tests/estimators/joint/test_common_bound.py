"""One curvature for all rows, against one for each: bounds, monotone, one optimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax.estimators.joint import mm, sparse
from irtjax.estimators.joint.bound import (
    BilinearParameters,
    subject_sweep,
    sweep,
    update_items,
    update_subjects,
)
from irtjax.estimators.start import start_values
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor


def lacking(subjects: int, items: int, dims: int, missing: float):
    """Responses with missing cells, and a point."""
    rng = np.random.default_rng(dims)
    parts = rng.normal(size=(items, dims)), rng.normal(size=items)
    theta = rng.normal(size=(subjects, dims))
    right = rng.random((subjects, items)) < expit(theta @ parts[0].T + parts[1])
    seen = rng.random(right.shape) >= missing
    data = irtjax.Responses(jnp.asarray(right & seen, jnp.int8), jnp.asarray(seen))
    return data, BilinearParameters(*(jnp.asarray(x) for x in (*parts, theta)))


@pytest.mark.parametrize("missing", [0.2, 0.8])
def test_its_curvature_is_that_of_no_missing_cell_and_its_steps_rise(missing):
    data, point = lacking(14, 9, 3, missing)
    own, common = (sweep(data, point, 0.7, common=x) for x in (False, True))
    full = sweep(irtjax.Responses(data.values), point, 0.7)
    pairs = ((common.items, full.items), (common.subjects, full.subjects))
    for found, want in pairs:
        np.testing.assert_allclose(found.curvature, want.curvature)
    # What is seen is the same, and the curvature is at least that of what is seen.
    np.testing.assert_allclose(common.log_lik, own.log_lik)
    for found, seen in ((common.items, own.items), (common.subjects, own.subjects)):
        np.testing.assert_allclose(found.gradient, seen.gradient)
        least = np.linalg.eigvalsh(np.asarray(found.curvature - seen.curvature))
        assert least.min() > -1e-9
    total = float(jnp.sum(common.log_lik))
    free = jnp.ones((9, 4), bool)
    stacked = update_items(common.items, point.stacked, free, False)
    raised = point._replace(discrimination=stacked[:, 1:], intercept=stacked[:, 0])
    middle = float(jnp.sum(sweep(data, raised, 0.7).log_lik))
    bound = subject_sweep(data, raised, 0.7, common=True)
    raised = raised._replace(theta=update_subjects(bound, raised.theta))
    last = float(jnp.sum(sweep(data, raised, 0.7).log_lik))
    assert total < middle < last


@pytest.mark.slow
@pytest.mark.parametrize("positive", [False, True])
def test_many_factors_have_the_same_optimum(monkeypatch, positive):
    data, _ = lacking(60, 40, 9, 0.4)
    model = factor_model(Factor(factors=9, positive=positive))
    method = mm.MM(tolerance=1e-6)
    problem = irtjax.Problem.create(method.adapted(model), data)
    start = start_values(problem.model, data)
    found = {}
    for common in (True, False):
        if not common:
            monkeypatch.setattr(sparse, "is_common", lambda *_: False)
        jax.clear_caches()
        fit = irtjax.run(problem, method, start, max_steps=5000)
        assert int(fit.status) == 0
        trace = np.asarray(fit.trace)[: int(fit.num_steps)]
        assert np.diff(trace).min() > -1e-9 * abs(trace[0])
        found[common] = trace[-1]
    # The same maximum of slopes of any sign; non-negative ones may have several.
    error = dict(rel=2e-3) if positive else dict(abs=1e-4)
    assert found[True] == pytest.approx(found[False], **error)
