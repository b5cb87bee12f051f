"""The first fit of a process in bad surroundings: home, caches, memory."""

import contextlib
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.csv

from experiments.robustness.outputs import complete
from experiments.robustness.processes import Ended

ROOT = Path(__file__).resolve().parents[2]
#: Gigabytes of address space.
LIMITS = (0.1, 0.5, 1, 2, 3, 3.3, 3.6, 4, 5, 8)
#: A user without an entry in the list of users, and so without a home.
NOBODY = 54321

Case = Callable[[Path, dict[str, str]], "contextlib.AbstractContextManager"]


@contextlib.contextmanager
def no_home(cache: Path, environment: dict[str, str]) -> Iterator[None]:
    environment.pop("HOME")
    yield


@contextlib.contextmanager
def home_is_missing(cache: Path, environment: dict[str, str]) -> Iterator[None]:
    environment["HOME"] = "/nonexistent/home"
    yield


@contextlib.contextmanager
def home_is_a_file(cache: Path, environment: dict[str, str]) -> Iterator[None]:
    environment["HOME"] = __file__
    yield


@contextlib.contextmanager
def cache_is_a_file(cache: Path, environment: dict[str, str]) -> Iterator[None]:
    (cache / "irtjax").rename(cache / "elsewhere")
    (cache / "irtjax").write_text("no folder")
    environment["XDG_CACHE_HOME"] = str(cache)
    yield


@contextlib.contextmanager
def cache_is_read_only(cache: Path, environment: dict[str, str]) -> Iterator[None]:
    """An empty cache on a file system that accepts no files, where we may mount."""
    environment["XDG_CACHE_HOME"] = str(cache)
    shutil.rmtree(cache / "irtjax")
    command = ["mount", "-t", "tmpfs", "-o", "ro", "none", str(cache)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not mounted:
        cache.chmod(0o500)
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", str(cache)], check=True)
        cache.chmod(0o700)


def damaged(damage: Callable[[bytes, random.Random], bytes]) -> Case:
    """Every file of the cache is damaged."""

    @contextlib.contextmanager
    def case(cache: Path, environment: dict[str, str]) -> Iterator[None]:
        environment["XDG_CACHE_HOME"] = str(cache)
        rng = random.Random(0)
        for path in sorted(p for p in cache.rglob("*") if p.is_file()):
            path.write_bytes(damage(path.read_bytes(), rng))
        yield

    return case


def cut(content: bytes, rng: random.Random) -> bytes:
    return content[: len(content) // 2]


def zeroed(content: bytes, rng: random.Random) -> bytes:
    return bytes(len(content))


def flipped(content: bytes, rng: random.Random) -> bytes:
    """Each thousandth byte changed, and at least one."""
    changed = bytearray(content)
    for _ in range(1 + len(content) // 1000 if content else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


@contextlib.contextmanager
def good_cache(cache: Path, environment: dict[str, str]) -> Iterator[None]:
    environment["XDG_CACHE_HOME"] = str(cache)
    yield


CASES: dict[str, Case] = {
    "no HOME": no_home,
    "HOME does not exist": home_is_missing,
    "HOME is a file": home_is_a_file,
    "the cache is a file": cache_is_a_file,
    "the cache is read-only": cache_is_read_only,
    "files of the cache are cut": damaged(cut),
    "files of the cache are zeros": damaged(zeroed),
    "bits of the cache are flipped": damaged(flipped),
}


def command(data: Path, out: Path) -> list[str]:
    text = f"-m irtjax fit {data} --out {out} --model rasch --method em --no-figures -q"
    return [sys.executable, *text.split()]


def reference(work) -> np.ndarray:
    """The abilities of a fit in good surroundings; its cache is kept for the others."""
    cache, out = work.place / "cache", work.place / "good"
    ended = run(work, {"XDG_CACHE_HOME": str(cache)}, out)
    assert ended.status == 0, ended
    return abilities(out)


def abilities(folder: Path) -> np.ndarray:
    """The abilities of a fit, by the names of the subjects."""
    table = pyarrow.csv.read_csv(folder / "abilities.csv").sort_by("subject")
    return table["ability"].to_numpy()


def run(work, change: dict[str, str | None], out: Path, size: float | None = None):
    """Runs a fit as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | change
    environment = {k: v for k, v in environment.items() if v is not None}

    def setup() -> None:
        if size is not None:
            most = int(size * 1e9)
            resource.setrlimit(resource.RLIMIT_AS, (most, most))

    done = subprocess.run(
        command(work.names["data"], out),
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        cwd=work.place,
        preexec_fn=setup,
        check=False,
    )
    return Ended(done.returncode, (done.stdout + done.stderr).strip(), 0.0)


def tried(work, name: str, expected: np.ndarray, size: float | None = None) -> dict:
    """How a fit ends in these surroundings, and whether it is the same fit."""
    out, copy = work.place / "out", work.place / "copy"
    for folder in (out, copy):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(work.place / "cache", copy)
    environment = {k: v for k, v in os.environ.items() if k != "XDG_CACHE_HOME"}
    case = good_cache if size is not None else CASES[name]
    before = set(os.listdir(work.place))
    with case(copy, environment):
        lost = dict.fromkeys(os.environ.keys() - environment.keys())
        ended = run(work, {**environment, **lost}, out, size)
    files = complete(out) if out.is_dir() else set()
    differ = float(np.max(np.abs(abilities(out) - expected))) if files else None
    strange = set(os.listdir(work.place)) - before - {"out"}
    return {
        "surroundings": name if size is None else f"{name}, {size:g} GB",
        "outcome": ended.how,
        "files": len(files),
        "abilities differ by": "" if differ is None else f"{differ:.1g}",
        "left in the working folder": len(strange),
        "message": ended.message.splitlines()[-1][:200] if ended.message else "",
    }
