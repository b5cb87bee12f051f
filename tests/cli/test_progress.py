"""Progress on standard error: shares, times, and where there is none."""

import math
import os
import re
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import irtjax
from irtjax._types import Status
from irtjax.cli.progress import ProgressLine, duration
from irtjax.estimators.catalogue import METHODS, method_class
from irtjax.estimators.driver import AbstractMethod, _Expected
from irtjax.numerics import compiling
from irtjax.numerics.progress import watched


class Stream:
    """A stream that remembers, on a file descriptor if there is one."""

    def __init__(self, number=None):
        self.number, self.text = number, ""

    def fileno(self):
        if self.number is None:
            raise OSError
        return self.number

    def isatty(self):
        return False

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_the_share_done_and_the_time_left_are_shown():
    progress = ProgressLine(quiet=True)
    progress("shrink")
    progress.share(0.0, "fold 1 of 4")
    assert "0 % done" in progress.line() and "left" not in progress.line()
    progress._loop_begun -= 10.0
    progress.share(0.25, "fold 2 of 4")
    # 10 s for a quarter.
    assert progress.line().startswith("shrink  fold 2 of 4  25 % done, about 30 s left")
    progress.share(None)
    assert "%" not in progress.line() and "fold" not in progress.line()


def test_a_phase_without_a_share_shows_its_own_time():
    progress = ProgressLine(quiet=True)
    progress._begun -= 30.0
    progress("scores")
    assert progress.line() == "scores  30 s"
    progress._phase_begun -= 4.0
    progress("scores")  # Again: it goes on.
    assert progress.line() == "scores for 4 s  30 s"
    progress.share(0.5, "pass 1 of 2")
    assert progress.line().startswith("scores  pass 1 of 2  50 % done")
    progress.share(0.5, "scores")  # Not twice.
    assert progress.line().startswith("scores  50 % done")
    progress.share(None)
    progress("tables")
    assert progress.line() == "tables  30 s"


def test_it_watches_the_loops_within_its_block():
    stream = Stream()
    with ProgressLine(stream=stream, patience=0.01, interval=0.01) as progress:
        progress("work")
        for _ in watched(range(2), "part"):
            deadline = time.monotonic() + 10
            while "part 2 of 2" not in stream.text and time.monotonic() < deadline:
                time.sleep(0.01)
                if "part 1 of 2" in stream.text:
                    break
    assert "part 1 of 2  0 % done" in stream.text
    stream.text = ""
    list(watched(range(2), "part"))
    assert stream.text == ""


def test_compilation_is_shown_while_it_lasts():
    progress, seen = ProgressLine(quiet=True), []
    compiling.watch()
    progress("fit")

    @jax.jit
    def slow(x):
        seen.append(progress.line())  # JAX traces this function now.
        return x + 1

    before = progress.line()
    slow(jax.numpy.ones(3))
    # A slow machine takes some seconds.
    assert len(seen) == 1 and re.fullmatch(r"fit  compiling  \d+ s", seen[0])
    for line in (before, progress.line()):
        assert re.fullmatch(r"fit( for \d+ s)?  \d+ s", line)
    with pytest.raises(ZeroDivisionError):
        jax.jit(lambda x: x / (1 // 0))(1.0)
    assert not compiling.is_compiling()


def test_the_time_left_leaves_out_compilation(monkeypatch):
    progress, now, spent = ProgressLine(quiet=True), [100.0], [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(compiling, "seconds", lambda: spent[0])
    progress("scores")
    progress.share(0.0)
    now[0], spent[0] = 112.0, 10.0  # Of 12 s, 10 are compilation.
    progress.share(0.25)
    assert "25 % done, about 6 s left" in progress.line()
    now[0], spent[0] = 115.0, 13.0  # Another program.
    assert "25 % done, about 6 s left" in progress.line()
    now[0] = 116.0
    assert "25 % done, about 5 s left" in progress.line()


def test_the_seconds_of_compilation_are_those_with_an_event(monkeypatch):
    now = [10.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    before = compiling.seconds()
    outer, inner = (compiling.EVENTS + x for x in ("trace", "lower"))
    compiling._begin(outer, 0)
    now[0] = 11.0
    compiling._begin(inner, 0)  # One within the other counts once.
    now[0] = 13.0
    assert compiling.seconds() - before == 3.0
    for event in (inner, outer):
        compiling._end(event, 0, 0)
    now[0] = 50.0
    assert compiling.seconds() - before == 3.0
    compiling._end(outer, 0, 0)  # Of a release that has no beginning.
    assert compiling.seconds() - before == 3.0


@pytest.mark.parametrize("pipe", [True, False])
def test_a_pipe_gets_no_progress_and_a_file_does(tmp_path, pipe):
    ends = os.pipe()
    with open(tmp_path / "log", "w") as file:
        stream = Stream(ends[1] if pipe else file.fileno())
        with ProgressLine(stream=stream, patience=0.0, interval=0.01) as progress:
            progress("work")
            time.sleep(0.1)
    for end in ends:
        os.close(end)
    assert ("work" in stream.text) != pipe


def test_durations_have_the_unit_that_suits():
    assert [duration(x) for x in (0.4, 99, 100, 3540, 7260)] == [
        *("0 s", "99 s", "2 min", "59 min", "2 h 1 min")
    ]


def test_a_fit_is_as_far_as_the_logarithm_of_its_residual():
    expected = _Expected(1e-4)
    shares = [expected.share(x, Status.RUNNING) for x in (1.0, 0.1, 0.5, 0.01, 0.0)]
    assert shares == pytest.approx([0, 0.25, 0.25, 0.5, 0.5])
    assert expected.share(1e-9, Status.RUNNING) == 0.99
    assert expected.share(1e-9, Status.CONVERGED) == 1
    for tolerance in (None, 0.0):
        assert _Expected(tolerance).share(0.1, Status.RUNNING) == 0


def test_a_fit_is_no_farther_than_the_steps_that_it_takes_in_any_case():
    by_steps = _Expected(None, 40)
    shares = [by_steps.share(math.inf, Status.RUNNING, k) for k in (10, 20, 80)]
    assert shares == [0.25, 0.5, 0.99]
    both = _Expected(1e-4, 40)
    shares = [both.share(x, Status.RUNNING, k) for x, k in ((1, 10), (1e-2, 10))]
    assert shares == pytest.approx([0, 0.25])
    assert both.share(1e-2, Status.RUNNING, 40) == pytest.approx(0.5)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_of_steps_has_a_goal_or_planned_steps(name):
    method = method_class(name)()
    if isinstance(method, AbstractMethod):
        problem = SimpleNamespace(model=irtjax.MODELS["2pl"]())
        goals = [method.goal(problem, np.dtype(x)) for x in ("float32", "float64")]
        assert method.num_planned or all(0 < float(goal) < 1 for goal in goals)


def test_each_stopping_rule_of_mm_has_a_goal():
    problem = SimpleNamespace(model=irtjax.MODELS["2pl"]())
    goal = lambda **given: irtjax.MM(**given).goal(problem, np.dtype("float64"))
    assert (goal(), goal(stop="relative_change")) == (1e-6, 1e-4)
    assert goal(stop="relative_change", tolerance=1e-3) == 1e-3
