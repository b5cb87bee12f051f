"""The runs with killed processes, full disks and two writers, at a small size."""

import json
import sys

import pytest

from experiments.robustness import run
from experiments.robustness.outputs import Outputs, State

linux = pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")


def fill(folder, files):
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@linux
def test_states_are_told_from_each_other(tmp_path):
    old = fill(tmp_path / "old", {"a.csv": "x\n1\n", "b.json": "[1]"})
    new = fill(tmp_path / "new", {"a.csv": "x\n2\n", "b.json": "[2]"})
    outputs = Outputs("score", old, new, 1.0, ("score",))
    for files, state in (
        ({}, State.OLD),
        ({"a.csv": "x\n2\n", "b.json": "[2]"}, State.NEW),
        ({"a.csv": "x\n2\n"}, State.MIXED),
        ({"a.csv": "x\n2\n", "b.json": "["}, State.LOST),
        ({"notes.txt": "yours"}, State.LOST),
    ):
        target = outputs.begin(tmp_path / "out", empty=False)
        for name, text in files.items():
            (target / name).write_text(text)
        assert outputs.state(target) is state, files
    target = outputs.begin(tmp_path / "out", empty=False)
    (target / "a.csv").unlink()
    assert outputs.state(target) is State.MIXED
    (target / ".irtjax-left").mkdir()
    assert outputs.leftovers(target) == 1  # Not made by irtjax: it stays.


@linux
def test_a_resumed_run_is_compared_byte_for_byte(tmp_path):
    new = fill(tmp_path / "new", {"a.csv": "x\n2\n", "fit.json": '{"seconds": 1}'})
    old = fill(tmp_path / "old", {"a.csv": "x\n1\n", "fit.json": "{}"})
    outputs = Outputs("fit-nuts", old, new, 1.0, ())
    files = {"a.csv": "x\n2\n", "fit.json": '{"seconds": 2}'}
    target = fill(tmp_path / "out", files)
    assert outputs.equal(target)
    (target / "a.csv").write_text("x\n3\n")
    assert not outputs.equal(target)
    (target / "a.csv").unlink()
    assert not outputs.equal(target)


def in_parts(place, hash_, *parts, **done):
    """The folder of a command that writes the parts "a" and "b", and a page."""
    record = {"data_hash": hash_, "parts": {"a": "not made", "b": "not made"} | done}
    for part in parts:
        (place / part).mkdir(exist_ok=True)
        (place / part / "x.csv").write_text(f"x\n{part}{hash_}\n")
    (place / "run.json").write_text(json.dumps(record))
    return place


@linux
def test_parts_of_two_runs_are_mixed(tmp_path):
    done = {"a": "done", "b": "done"}
    for name in ("old", "new"):
        place = in_parts(fill(tmp_path / name, {}), name, "a", "b", **done)
        (place / "report.html").write_text(f"<p>{name}</html>")
    outputs = Outputs("run", tmp_path / "old", tmp_path / "new", 1.0, ())
    for page, given, made, state in (
        ("old", "new", {}, State.PARTS),  # The record comes before the first part.
        ("old", "new", {"a": "done"}, State.MIXED),
        (None, "new", {"a": "done"}, State.PARTS),
        (None, "new", {"b": "done"}, State.MIXED),
        ("new", "new", done, State.MIXED),
        ("new", "old", done, State.MIXED),
    ):
        target = outputs.begin(tmp_path / "out", empty=False)
        assert outputs.state(target) is State.OLD
        in_parts(target, "new", "a", **made)
        in_parts(target, given, **made)
        (target / "report.html").write_text(f"<p>{page}</html>")
        if page is None:
            (target / "report.html").unlink()
        assert outputs.state(target) is state, (page, given, made)
    in_parts(target, "new", "b", **done)
    assert outputs.state(target) is State.NEW
    # The earlier command, run again at the same time, is the last to write a part.
    in_parts(target, "old", "b", **done)
    assert outputs.state(target, of_two=True) is State.MIXED
    in_parts(target, "old", "a", **done)
    (target / "report.html").write_text("<p>again</html>")
    assert outputs.state(target, of_two=True) is State.PARTS
    (target / "b" / "x.csv").write_text("x")
    assert outputs.state(target) is State.LOST


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", run.COMMANDS)
def test_nothing_is_lost_and_nothing_is_half(name):
    # A process of its own: this one has started JAX, whose threads do not fork.
    import subprocess

    command = [sys.executable, run.__file__, "--commands", name, "--kills", "12"]
    command += ["--sizes", "6", "--parts", "kill", "disk", "pairs"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tables = done.stdout.splitlines()
    assert len([x for x in tables if x.startswith(("kill", "disk", "pairs"))]) == 3
    for line in tables:
        assert "'lost': 0" in line and "'mixed': 0" in line
        assert "'left behind': 0" in line
        assert "'other ends'" not in line or "'other ends': 0" in line
