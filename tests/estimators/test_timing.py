"""Time by phase: unions of intervals, compilation apart, reports to the caller."""

import time

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irtjax.estimators.timing import Clock, union_length

spans = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda p: (p[0], sum(p))),
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(spans)
def test_the_length_of_a_union_counts_each_moment_once(found):
    covered = {moment for start, end in found for moment in range(start, end)}
    assert union_length([(float(a), float(b)) for a, b in found]) == len(covered)


def test_phases_add_up_and_keep_compilation_apart():
    clock = Clock()
    with clock.phase("run"):
        time.sleep(0.02)
    with clock.phase("run"):
        time.sleep(0.02)
    assert 0.04 <= clock.timings["run"] < 2
    assert clock.timings["compile"] == 0

    @jax.jit
    def fresh(x):
        return jnp.sin(x) @ jnp.cos(x).T + time.monotonic_ns() % 7

    began = time.perf_counter()
    with clock.phase("other"):
        fresh(jnp.ones((3, 4))).block_until_ready()
    elapsed = time.perf_counter() - began
    assert 0 < clock.timings["compile"] <= elapsed
    assert clock.timings["other"] + clock.timings["compile"] <= elapsed


def test_the_caller_is_told_when_asked():
    heard = []
    clock = Clock(lambda *told: heard.append(told))
    clock.report("fit", 3, -10.0, 0.5)
    Clock().report("fit", 1, 0.0, 0.0)
    ((phase, step, objective, residual, seconds),) = heard
    assert (phase, step, objective, residual) == ("fit", 3, -10.0, 0.5)
    assert seconds == pytest.approx(0, abs=5) and seconds >= 0
