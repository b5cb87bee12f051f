"""The curvature of each cell in place of the largest: the same optimum, fewer steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax._types import Status
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.multistart import random_starts
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import MODELS, two_parameter
from irtjax.models.priors import Normal
from tests.estimators.joint.joint_cases import SHAPE, responses, simulated

PRIORS = {"discrimination": Normal(1.0, 2.0), "intercept": Normal(0.0, 3.0)}
#: Objectives of two runs that end at a KKT residual of 1e-8.
SAME = {"rtol": 1e-11}


def _fits(data, starts):
    """Runs from `[runs]` starts with either curvature."""
    problem = Problem.create(two_parameter(PRIORS, positive=True), data)

    @jax.jit
    def both(start):
        found = (
            irtjax.run(problem, MM(tolerance=1e-8, curvature=how), start, max_steps=900)
            for how in ("uniform", "cell")
        )
        return [(x.objective, x.num_steps, x.status, x.trace) for x in found]

    return jax.vmap(both)(starts(problem))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["none", "mcar", "trials"])
def test_the_optimum_is_the_same(pattern):
    values, observed = simulated(pattern="mcar" if pattern == "mcar" else "none")
    rest = {}
    if pattern == "trials":
        rng = np.random.default_rng(0)
        trials = rng.integers(0, 5, SHAPE)
        values = rng.binomial(trials, 0.3 + 0.5 * (np.arange(SHAPE[0]) % 2)[:, None])
        rest["trials"] = jnp.asarray(trials, jnp.int8)
    data = responses(values.astype(np.int8), observed, **rest)
    one = lambda problem: jax.tree.map(
        lambda x: x[None], start_values(problem.model, data)
    )
    uniform, cell = _fits(data, one)
    assert uniform[2] == cell[2] == Status.CONVERGED
    np.testing.assert_allclose(cell[0], uniform[0], **SAME)
    assert 5 < cell[1] < uniform[1]
    trace = cell[3][0, : int(cell[1][0])]
    assert np.diff(trace).min() > -1e-10


@pytest.mark.slow
def test_poor_starts_need_fewer_steps_and_the_objective_never_falls():
    """Discriminations up to exp(4.5): a step of the largest curvature is at most 2."""
    data = responses(*simulated())
    poor = lambda problem: random_starts(problem, 4, key=jax.random.key(0), variance=5)
    uniform, cell = _fits(data, poor)
    assert np.all(cell[2] == Status.CONVERGED)
    np.testing.assert_allclose(cell[0], uniform[0], **SAME)
    # 24 against 42 to 76; with more subjects and items thousands (docs).
    assert np.all(1.5 * cell[1] < uniform[1])
    for trace, steps in zip(cell[3], cell[1], strict=True):
        # Rounding of a sum of 60 log-likelihoods of a thousand nats at first.
        assert np.diff(trace[: int(steps)]).min() > -1e-9


def test_it_is_for_logistic_cells_and_part_of_the_record():
    table = irtjax.ResponseTable.from_arrays(simulated()[0])
    with pytest.raises(ValueError, match="curvature 'best' is not 'uniform' or 'cell'"):
        irtjax.fit(table, "2pl", "mm", curvature="best")
    probit = MODELS["factor"](factors=2, link="probit")
    with pytest.raises(ValueError, match="logit link"):
        irtjax.fit(table, probit, MM(curvature="cell"))
    fit = irtjax.fit(table, "2pl", "mm", curvature="cell", standard_errors="none")
    usual = irtjax.fit(table, "2pl", "mm", standard_errors="none")
    assert fit.options["curvature"] == "cell" and "curvature" not in usual.options
    np.testing.assert_allclose(fit.log_likelihood, usual.log_likelihood, rtol=1e-7)
