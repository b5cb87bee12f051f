"""Kills a fit of two processes again and again, and compares what it ends with.

Each run of two processes of two devices is stopped at a random time: one of them,
chosen at random, is killed, or one in ten stopped without a sign. The time is within
some seconds of its first checkpoint; one run in five may be stopped before, from its
first second on. Both commands must then end with one line. The next run resumes. A fit
that ends is compared, byte by byte, with one of a single process that nothing has
stopped, and another one begins.

    python experiments/scaling/kills.py --kills 200 --minutes 90
"""

import argparse
import contextlib
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

#: Steps without acceleration, to a tolerance that takes hundreds of them.
OPTIONS = (
    "--model 2pl --method mm --memory 0 --set tolerance=1e-14 --max-steps 3000"
    " --standard-errors none --no-page --quiet"
)
TABLES = ("items.parquet", "abilities.parquet", "parameters.npz")
#: Seconds within which both commands end, on a busy machine too.
PATIENCE = 600


def write_responses(path: Path) -> None:
    """Responses of 2,003 subjects to 30 items, a fifth of them missing."""
    rng = np.random.default_rng(0)
    ability, difficulty = rng.normal(size=(2003, 1)), rng.normal(size=30)
    right = rng.random((2003, 30)) < 1 / (1 + np.exp(difficulty - ability))
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


def wait(
    processes: list[subprocess.Popen[str]], checkpoint: Path, seconds: float
) -> None:
    """Waits for a random time, or for the end of both commands.

    It is within so many seconds of a new checkpoint, one time in five of the start.
    """
    is_early, started = random.random() < 0.2, time.time()
    until = started + random.uniform(1, seconds) if is_early else None
    while any(process.poll() is None for process in processes):
        if until is None:
            with contextlib.suppress(FileNotFoundError):
                if checkpoint.stat().st_mtime > started:
                    until = time.time() + random.uniform(0, seconds)
        elif time.time() > until:
            return
        time.sleep(0.02)


def stop_one(processes: list[subprocess.Popen[str]]) -> str:
    """Kills or stops one of two processes; how, or "" if its fit had ended."""
    how = random.choices(["SIGKILL", "SIGSTOP"], [9, 1])[0]
    victim = random.randrange(2)
    child = child_of(processes[victim])
    if child is None:
        return ""
    os.kill(child, getattr(signal, how))
    if how == "SIGSTOP":
        processes[1 - victim].wait(PATIENCE)
        os.kill(child, signal.SIGKILL)
    return how


def check_ends(processes: list[subprocess.Popen[str]], how: str) -> bool:
    """Whether both commands were successful; a stopped one prints one line at most."""
    reports = [process.communicate(timeout=PATIENCE) for process in processes]
    codes = [process.returncode for process in processes]
    assert codes in ([0, 0], [1, 1]) or how, (codes, reports)
    for out, error in reports:
        assert not out and len(error.splitlines()) <= 1, (how, out, error)
    return codes == [0, 0]


def main() -> None:
    """Runs until a fit was stopped so many times, and prints what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=np.inf, help="ends after them")
    parser.add_argument("--seconds", type=float, default=3.0, help="after a checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    folder = Path(tempfile.mkdtemp())
    write_responses(folder / "responses.csv")
    began = time.perf_counter()
    one = start(folder, "--out one --devices 1")
    assert one.wait() == 0, one.communicate()
    checkpoint, two = folder / "two.fit.npz", folder / "two"
    # On a busy machine processes lose each other without a signal: "".
    kills = {"SIGKILL": 0, "SIGSTOP": 0, "": 0}
    resumed = ends = stops = fits = 0  # `stops` of the fit on its way
    minutes = 0.0
    while sum(kills.values()) < arguments.kills and minutes < arguments.minutes:
        resumed += checkpoint.exists()
        processes = start_both(folder)
        wait(processes, checkpoint, arguments.seconds)
        how = stop_one(processes)
        if not check_ends(processes, how):
            kills[how] += 1
            stops += 1
        if two.exists():
            for name in TABLES:
                assert (two / name).read_bytes() == (folder / "one" / name).read_bytes()
            ends, fits, stops = ends + 1, fits + (stops > 0), 0
            shutil.rmtree(two)
            checkpoint.unlink(missing_ok=True)
        minutes = (time.perf_counter() - began) / 60
        print(
            f"{minutes:.0f} min: {kills['SIGKILL']} killed, {kills['SIGSTOP']} stopped"
            f" without a sign, {kills['']} lost each other; {resumed} runs resumed;"
            f" {ends} fits ended with the bits of a fit of one process, {fits} of them"
            " after stops",
            flush=True,
        )


if __name__ == "__main__":
    main()
