"""The one loop: its verdicts, its trace, its keys, and going on where it stopped."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax._types import Status
from irtjax.data import ResponseTable
from irtjax.data.responses import Responses
from irtjax.estimators.catalogue import method_class
from irtjax.estimators.driver import (
    AbstractMethod,
    Loop,
    Progress,
    begin,
    loop_of,
    run,
)
from irtjax.fitting.problem import make_task, specify
from irtjax.fitting.settings import sort_settings
from irtjax.likelihood.problem import (
    Parameters,
    Problem,
    Start,
    estimation_scale,
    report_scale,
)
from irtjax.models.catalogue import one_parameter, rasch, two_parameter
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Population


class Walk(NamedTuple):
    distance: jax.Array
    noise: jax.Array
    seen: jax.Array


class Halving(AbstractMethod):
    """Halves its distance to a solution; breaks or stalls where it is told to."""

    breaks_at: int = 10**6
    stalls_at: int = 10**6

    def init(self, problem, start, key):
        zero = jnp.zeros(())
        return Walk(zero + 1.0, zero, jnp.zeros((), jnp.int32))

    def step(self, problem, state, key):
        noise = state.noise if key is None else jax.random.normal(key)
        distance = jnp.where(state.seen == self.breaks_at, jnp.nan, state.distance / 2)
        return Walk(distance, noise, state.seen + 1)

    def progress(self, problem, state):
        return Progress(
            -state.distance,
            state.distance,
            state.distance < 1e-3,
            state.seen > self.stalls_at,
        )

    def result(self, problem, state):
        items = LogisticItems(*(jnp.ones(2) * state.distance for _ in range(4)))
        population = Population(jnp.zeros(()), jnp.ones(()))
        return Parameters(items, population), jnp.asarray([1.0, 2.0, 3.0])


PROBLEM = Problem.create(two_parameter(), Responses(np.zeros((3, 2), np.int8)))
START = Start(LogisticItems(*(np.ones(2) for _ in range(4))))
run_jit = eqx.filter_jit(run)


def test_convergence_and_the_padded_trace():
    fit = run_jit(PROBLEM, Halving(), START, max_steps=30)
    assert int(fit.status) == Status.CONVERGED
    # 2^-10 is the first power of a half below 1e-3.
    assert int(fit.num_steps) == 10
    np.testing.assert_array_equal(fit.trace[:10], -(0.5 ** np.arange(1, 11)))
    assert np.isnan(fit.trace[10:]).all() and fit.trace.shape == (30,)
    assert float(fit.log_lik) == 6.0 and float(fit.residual) == 2.0**-10


def test_the_step_limit():
    fit = run_jit(PROBLEM, Halving(), START, max_steps=4)
    assert int(fit.status) == Status.MAX_STEPS and int(fit.num_steps) == 4
    assert np.isfinite(fit.trace).all()


def test_a_non_finite_step_is_undone():
    fit = run_jit(PROBLEM, Halving(breaks_at=3), START, max_steps=30)
    assert int(fit.status) == Status.NONFINITE and int(fit.num_steps) == 4
    assert float(fit.objective) == -0.125
    assert np.isnan(fit.trace[3]) and np.isfinite(fit.trace[:3]).all()
    assert bool(jnp.isfinite(fit.state.distance))


def test_a_stall():
    fit = run_jit(PROBLEM, Halving(stalls_at=5), START, max_steps=30)
    assert int(fit.status) == Status.STALLED and int(fit.num_steps) == 6


def test_statuses_speak():
    assert {s.explain() for s in Status} and len({s.explain() for s in Status}) == 5


def test_stopping_and_going_on_repeats_the_keys():
    key = jax.random.key(7)
    whole = run_jit(PROBLEM, Halving(), START, key=key, max_steps=30)
    part = run_jit(PROBLEM, Halving(), START, key=key, max_steps=30, stop_after=4)
    assert int(part.status) == Status.RUNNING and int(part.num_steps) == 4
    rest = run_jit(
        PROBLEM, Halving(), START, key=key, max_steps=30, resume=loop_of(part)
    )
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(rest), strict=True):
        np.testing.assert_array_equal(a, b)
    assert float(whole.state.noise) == float(
        jax.random.normal(jax.random.fold_in(key, 9))
    )


def test_a_step_limit_can_be_lifted_by_resuming():
    stopped = run_jit(PROBLEM, Halving(), START, max_steps=4)
    loop = loop_of(stopped)
    assert int(loop.status) == Status.RUNNING
    longer = loop._replace(trace=jnp.full(30, jnp.nan).at[:4].set(loop.trace))
    fit = run_jit(PROBLEM, Halving(), START, max_steps=30, resume=longer)
    assert int(fit.status) == Status.CONVERGED and int(fit.num_steps) == 10


def test_nothing_happens_once_it_is_over():
    fit = run_jit(PROBLEM, Halving(), START, max_steps=30)
    again = run_jit(PROBLEM, Halving(), START, max_steps=30, resume=loop_of(fit))
    assert int(again.num_steps) == 10 and int(again.status) == Status.CONVERGED


def test_subject_weights_count_in_the_log_likelihood():
    data = Responses(np.zeros((3, 2), np.int8), subject_weight=jnp.asarray([2.0, 0, 1]))
    fit = run(Problem.create(two_parameter(), data), Halving(), START, max_steps=2)
    assert float(fit.log_lik) == 5.0


def test_a_loop_begins_at_nothing():
    loop = begin(PROBLEM, Halving(), START, max_steps=7)
    assert int(loop.step) == 0 and np.isnan(loop.trace).all()


@pytest.mark.parametrize("model", [one_parameter(), rasch(), two_parameter()])
def test_the_reporting_scale_and_back(model):
    problem = Problem.create(model, Responses(np.zeros((3, 2), np.int8)))
    items = LogisticItems(*map(jnp.asarray, ([1.0, 1], [0.5, -1], [0.0, 0], [1.0, 1])))
    population = Population(jnp.asarray(0.0), jnp.asarray(1.4))
    theta = jnp.asarray([0.7, -1.4, 2.8])
    reported = report_scale(problem, Parameters(items, population, theta))
    back = estimation_scale(problem, Start(reported.items, None, reported.population))
    assert float(back.sd) == pytest.approx(1.4)
    # The predictor of every subject is the same on either scale.
    before = items.discrimination * theta[:, None] + items.intercept
    after = (
        reported.items.discrimination * reported.theta[:, None]
        + reported.items.intercept
    )
    np.testing.assert_allclose(before, after)
    if model.name == "1pl":
        np.testing.assert_allclose(reported.items.discrimination, 1.4)
        assert float(reported.population.sd) == 1


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("2pl", "em"),
        ("2pl", "saem"),
        ("2pl", "mm"),
        ("2pl", "gradient"),
        ("2pl", "neural"),
        ("2pl", "vibo"),
        ("2pl", "laplace"),
        ("factor", "gvem"),
        ("factor", "mm"),
    ],
)
def test_later_steps_take_the_program_of_the_first(model, method):
    kind = method_class(method)
    specification = specify(model, kind)
    parts = sort_settings({}, specification, kind)
    table = ResponseTable.from_arrays(
        np.random.default_rng(0).integers(0, 2, size=(60, 8))
    )
    task = make_task(table, specification, method, parts, level=0.95, dtype=None)
    settings = {"key": jax.random.key(0), "max_steps": 5}
    solver = task.method
    if hasattr(solver, "nodes"):
        solver = dataclasses.replace(solver, nodes=jnp.linspace(-4.0, 4.0, 9))
    inputs = task.problem, solver, task.start
    loop = eqx.filter_eval_shape(begin, *inputs, **settings)
    fit = eqx.filter_eval_shape(run, *inputs, **settings, resume=loop, stop_after=1)
    later = Loop(fit.state, fit.num_steps, fit.status, fit.trace)
    kinds = [
        [(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(one)]
        for one in (loop, later)
    ]
    assert kinds[0] == kinds[1]
