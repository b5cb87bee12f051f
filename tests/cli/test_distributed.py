"""Fits by two processes of two devices each, on one machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from irtjax.cli.distributed import Devices

#: Steps without acceleration to a tolerance that takes many of them.
LONG = "--model 3pl --method em --memory 0 --set tolerance=1e-12 --max-steps 3000"
QUICK = "--standard-errors none --no-page --quiet"
#: Files and options of two processes, and those of one with the same bits.
DIVIDED = {
    "in memory": ("responses.csv", "--devices 2", "--devices 1"),
    "streamed": (
        "responses.parquet",
        "--stream --max-steps 150",
        "--stream --max-steps 150 --distributed {}",
    ),
}


@pytest.fixture
def responses(tmp_path) -> Path:
    """203 models and 12 items, one of which only the last models have seen."""
    rng = np.random.default_rng(0)
    ability, difficulty = rng.normal(size=(203, 1)), rng.normal(size=12)
    right = rng.random((203, 12)) < 1 / (1 + np.exp(difficulty - ability))
    seen = rng.random((203, 12)) < 0.8
    seen[:, 0] = np.arange(203) > 190
    rows = [f"m{i},q{j},{right[i, j]:d}" for i, j in np.argwhere(seen)]
    path = tmp_path / "responses.csv"
    path.write_text("\n".join(["model,item,score", *rows]) + "\n")
    table = pyarrow.csv.read_csv(path)
    # A model has rows in both row groups.
    pq.write_table(table, tmp_path / "responses.parquet", row_group_size=1000)
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _start(folder: Path, options: str, **settings) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "irtjax", "fit", *options.split()]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, **streams, **settings)


def _address(processes: int) -> str:
    return f"--coordinator 127.0.0.1:{_free_port()} --processes {processes}"


def _start_both(folder: Path, options: str) -> list[subprocess.Popen[str]]:
    options = f"{options} {QUICK} --distributed {_address(2)}"
    return [_start(folder, f"{options} --process {k}") for k in (0, 1)]


def _child_of(process: subprocess.Popen[str]) -> int:
    task = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int(task.read_text().split()[0])


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux's /proc")
@pytest.mark.parametrize("kind", DIVIDED)
def test_a_killed_fit_of_two_processes_resumes_with_the_same_bits(kind, responses):
    folder = responses.parent
    file, of_two, of_one = DIVIDED[kind]
    options = f"{file} {LONG} {of_two} --out two"
    both = _start_both(folder, options)
    while not (folder / "two.fit.npz").exists():
        assert both[0].poll() is None, both[0].communicate()
        time.sleep(0.05)
    os.kill(_child_of(both[1]), signal.SIGKILL)
    for process, reason in zip(both, ("another process", "this process"), strict=True):
        out, error = process.communicate(timeout=600)
        assert process.returncode == 1 and not out
        lines = error.splitlines()
        assert len(lines) == 1 and lines[0].startswith(f"irtjax: {reason}"), error
        assert "--resume" in lines[0]
    left = [x.name for x in folder.iterdir() if x.name.startswith(".irtjax-")]
    assert left == []
    for process in _start_both(folder, f"{options} --resume"):
        out, error = process.communicate(timeout=600)
        assert process.returncode == 0 and not out + error
    assert not (folder / "two.fit.npz").exists()
    of_one = of_one.format(f"{_address(1)} --process 0")
    one = _start(folder, f"{file} {LONG} {QUICK} {of_one} --out one")
    assert one.wait(600) == 0
    for name in ("items.parquet", "abilities.parquet", "parameters.npz"):
        assert (folder / "one" / name).read_bytes() == (
            folder / "two" / name
        ).read_bytes()


def test_addresses_are_complete_or_left_out():
    Devices(devices=2).check()
    for given, message in (
        ({"devices": 3}, "--devices 3 is not one of 1, 2, 4, 8"),
        ({"coordinator": "host:1"}, "require --distributed"),
        ({"distributed": True, "processes": 2}, "are given together"),
        (
            {"distributed": True, "coordinator": "h:1", "processes": 2, "process": 2},
            "the numbers of 2 processes are 0 to 1",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            Devices(**given).check()
