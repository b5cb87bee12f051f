"""The runs with killed processes, full disks and two writers, at a small size."""

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
