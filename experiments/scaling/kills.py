"""Kills a fit of two processes again and again, and compares what it ends with.

Each run of two processes of two devices is stopped after a random time: one of them,
chosen at random, is killed, or one in five stopped without a sign. Both commands must
then end with one line. The next run resumes. A fit that ends is compared, byte by byte,
with one of a single process that nothing has stopped, and another one begins.

    python experiments/scaling/kills.py --kills 200
"""

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

#: Steps without acceleration, to a tolerance that takes many of them.
OPTIONS = (
    "--model 3pl --method em --memory 0 --set tolerance=1e-12 --max-steps 3000"
    " --standard-errors none --no-page --quiet"
)
TABLES = ("items.parquet", "abilities.parquet", "parameters.npz")
#: Seconds within which both commands end, on a busy machine too.
PATIENCE = 600


def write_responses(path: Path) -> None:
    """Responses of 203 subjects to 12 items, a fifth of them missing."""
    rng = np.random.default_rng(0)
    ability, difficulty = rng.normal(size=(203, 1)), rng.normal(size=12)
    right = rng.random((203, 12)) < 1 / (1 + np.exp(difficulty - ability))
    seen = rng.random(right.shape) < 0.8
    rows = [f"m{i},q{j},{right[i, j]:d}" for i, j in np.argwhere(seen)]
    path.write_text("\n".join(["model,item,score", *rows]) + "\n")


def start(folder: Path, options: str) -> subprocess.Popen[str]:
    """One command of a fit."""
    words = f"fit responses.csv {OPTIONS} {options}".split()
    command = [sys.executable, "-m", "irtjax", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True)


def start_both(folder: Path) -> list[subprocess.Popen[str]]:
    """The commands of two processes, which resume if there is what to resume from."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = f"--out two --distributed --devices 2 --coordinator 127.0.0.1:{port}"
    if (folder / "two.fit.npz").exists():
        options += " --resume"
    return [start(folder, f"{options} --processes 2 --process {k}") for k in (0, 1)]


def child_of(process: subprocess.Popen[str]) -> int | None:
    """The process that a command watches; None before and after."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        return int(children.read_text().split()[0])
    except (OSError, IndexError):
        return None


def stop_one(processes: list[subprocess.Popen[str]], longest: float) -> str:
    """Kills or stops one of two processes; how, or "" if the fit had ended."""
    time.sleep(random.uniform(1, longest))
    how = random.choices(["SIGKILL", "SIGSTOP"], [4, 1])[0]
    victim = random.randrange(2)
    child = child_of(processes[victim])
    if child is None:
        return ""
    os.kill(child, getattr(signal, how))
    if how == "SIGSTOP":
        processes[1 - victim].wait(PATIENCE)
        os.kill(child, signal.SIGKILL)
    return how


def main() -> None:
    """Runs until a fit was stopped so many times, and prints what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--longest", type=float, default=15.0, help="seconds of a run")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    folder = Path(tempfile.mkdtemp())
    write_responses(folder / "responses.csv")
    began = time.perf_counter()
    one = start(folder, "--out one --devices 1")
    assert one.wait() == 0, one.communicate()
    whole = time.perf_counter() - began
    kills, ends, resumed = {"SIGKILL": 0, "SIGSTOP": 0}, 0, 0
    while sum(kills.values()) < arguments.kills:
        resumed += (folder / "two.fit.npz").exists()
        processes = start_both(folder)
        how = stop_one(processes, max(arguments.longest, whole))
        reports = [process.communicate(timeout=PATIENCE) for process in processes]
        codes = [process.returncode for process in processes]
        if codes == [0, 0]:
            ends += 1
            for name in TABLES:
                same = (folder / "one" / name).read_bytes()
                assert (folder / "two" / name).read_bytes() == same, name
            shutil.rmtree(folder / "two")
        else:
            kills[how] += 1
            for out, error in reports:
                lines = error.splitlines()
                assert not out and len(lines) <= 1, (how, out, error)
        done = sum(kills.values())
        print(f"{done} stops, {resumed} resumed, {ends} whole fits", flush=True)
    print(
        f"{kills['SIGKILL']} killed, {kills['SIGSTOP']} stopped without a sign;"
        f" {resumed} runs resumed; {ends} fits ended, each with the bits of a fit of"
        " one process"
    )


if __name__ == "__main__":
    main()
