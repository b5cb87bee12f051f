"""Do altered files end in a table or in one line, quickly and in little memory?

    python experiments/fuzz/run.py         # small: 50 of each format
    python experiments/fuzz/run.py --full  # 2,000 of each; evidence/hostile-input.md

Files of every format are altered by what their parts mean (`mutate.py`), and given to
`irtjax.read`, one in 20 to the command `irtjax info`, and some to `irtjax fit`, in a
process that a crash may end. The README beside this file says what counts as a
problem.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import gzip
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.fuzz.enlarge import enlarge
from experiments.fuzz.mutate import alter, seeds, write_more

#: Seconds that one file may take; memory that it may take for each byte, for each
#: column of a table of text, and beyond: Arrow's reader takes as much for any file.
SECONDS, TIMES, COLUMN, FLOOR = 20, 20, 4096, 16 << 20
#: Bytes of a file of `--large`.
LARGE = 1 << 20
#: One file of so many is given to the command, too.
INFO = 20


class _Hang(BaseException):
    pass


def _alarm(*_: Any) -> None:
    raise _Hang


def memory(name: str) -> int:
    """A line of the process's status in bytes; 0 where there is no such file."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(text.split(f"{name}:")[1].split()[0]) * 1024


def release() -> None:
    """Gives free memory back, so that the growth of a call is what it takes."""
    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # Not with every C library.
        ctypes.CDLL(None).malloc_trim(0)


def ended(call: Any, limit: int = SECONDS) -> str:
    """What a call ends in: "table", "refused" or a problem."""
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(limit)
    try:
        return call()
    except _Hang:
        return "timeout"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)


def watched(call: Any, limit: int = SECONDS) -> tuple[str, float, int]:
    """What a call ends in ("table", "refused" or a problem), seconds and memory."""
    release()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # The peak starts here.
    before, start = memory("VmRSS"), time.monotonic()
    found = ended(call, limit)
    return found, time.monotonic() - start, max(memory("VmHWM") - before, 0)


def read_one(path: Path) -> str:
    """Reads a file from Python."""
    import numpy as np

    import irtjax

    try:
        if (path / "parameters.npz").exists():
            irtjax.load(path)
            return "table"
        table = irtjax.read(path, trials="mean")
    except ValueError as error:
        text = str(error)
        if isinstance(error, UnicodeError) or "\n" in text or len(text) > 1500:
            return f"no line: {type(error).__name__}: {text[:200]!r}"
        return "refused"
    return "table" if np.isfinite(table.values).all() else "values that are not finite"


def run_command(*words: str) -> str:
    """Runs a command with its own handler of errors."""
    from irtjax.cli.app import app

    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app([*words], prog_name="irtjax")
        except SystemExit as end:
            code = end.code
    lines = [x for x in err.getvalue().splitlines() if x.startswith("irtjax: ")]
    if code == 0:
        return "table"
    if code == 2 and len(lines) == 1:
        return "refused"
    return f"exit status {code}: {err.getvalue()[-200:]!r}"


def check(path: Path, info: bool = True, fit: bool = False) -> list[dict[str, Any]]:
    """Outcomes of a file by what was called."""
    calls = {"read": lambda: read_one(path)}
    if info:
        calls["info"] = lambda: run_command("info", str(path))
    if fit:
        out = str(path.parent / "out")
        words = ("fit", str(path), "--model", "rasch", "--max-steps", "2", "--out", out)
        calls["fit"] = lambda: run_command(*words)
    allowed = FLOOR + sum(allowed_for(p) for p in files_of(path))
    rows = []
    for name, call in calls.items():
        found, seconds, taken = watched(call)
        if found in ("table", "refused") and name != "fit" and taken > allowed:
            found = f"memory: {taken >> 20} MB"
        rows.append({"call": name, "found": found, "seconds": seconds, "memory": taken})
    return rows


def allowed_for(path: Path) -> int:
    """Memory that a file may take: what it unpacks to counts, and columns of text."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        with contextlib.suppress(OSError, EOFError, zlib.error):
            content = gzip.decompress(content)
    line = content[: content.find(b"\n") + 1] if path.suffix == ".csv" else b""
    return TIMES * len(content) + COLUMN * max(map(line.count, b",;\t"))


def files_of(path: Path) -> list[Path]:
    """A file, or the files in a folder."""
    return sorted(x for x in path.rglob("*") if x.is_file()) or [path]


def make(
    kind: str, whole: list[Path], number: int, folder: Path, size: int = 0
) -> Path:
    """Writes the altered file of a number, enlarged to about `size` bytes before."""
    return make_by(random.Random(f"{kind} {number}"), whole, folder, size)


def make_by(rng: random.Random, whole: list[Path], folder: Path, size: int = 0) -> Path:
    """Writes an altered file, whatever makes the random draws."""
    source = rng.choice(whole)
    if source.is_dir():
        target = folder / "altered"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        files = files_of(target) if size else []
        for path in files:
            path.write_bytes(enlarge(path, path.read_bytes(), size // len(files)))
        names = [
            path for path in files_of(target) if path.suffix != ".csv"
        ] or files_of(target)
        for path in rng.sample(names, rng.choice([1, 1, 1, min(2, len(names))])):
            data = path.read_bytes()
            path.write_bytes(alter(path.name, data, rng) if data else data)
        return target
    target = folder / source.name
    content = enlarge(source, source.read_bytes(), size)
    target.write_bytes(alter(source.name, content, rng))
    return target


def work(kind: str, whole: list[Path], numbers: range, fits: int, size: int) -> None:
    """Checks the files of some numbers and prints a line of JSON for each."""
    run_command("info", str(seeds()["CSV"][-1]))  # Imports are not counted.
    with tempfile.TemporaryDirectory() as place:
        for number in numbers:
            print(json.dumps({"begin": number}), flush=True)
            path = make(kind, whole, number, Path(place), size)
            fit = fits > 0 and number % max(len(numbers) // fits, 1) == 0
            rows = check(path, number % INFO == 0, fit and not path.is_dir())
            print(json.dumps({"number": number, "rows": rows}), flush=True)
            if not path.is_dir():
                path.unlink()


def survey(
    kind: str, whole: list[Path], count: int, fits: int = 0, size: int = 0
) -> tuple[list[dict[str, Any]], list[tuple[int, str, str]]]:
    """Rows of all calls, and problems as number, call and what was found."""
    rows: list[dict[str, Any]] = []
    problems: list[tuple[int, str, str]] = []
    start = 0
    while start < count:
        words = [sys.executable, __file__, "--work", kind, str(start), str(count)]
        words += ["--fits", str(fits), "--whole", *map(str, whole)]
        words += ["--large"] if size else []
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        begun = start - 1
        for line in done.stdout.splitlines():
            found = json.loads(line)
            begun = found.get("begin", begun)
            for row in found.get("rows", ()):
                rows.append(row)
                if row["found"] not in ("table", "refused"):
                    problems.append((found["number"], row["call"], row["found"]))
        if done.returncode == 0:
            break
        problems.append((begun, "process", f"{done.returncode} {done.stderr[-300:]!r}"))
        start = begun + 1
    return rows, problems


def report(kind: str, rows: list[dict[str, Any]], problems: list[Any]) -> str:
    """A row of the table on the page."""
    found = Counter((row["call"], row["found"]) for row in rows)
    count = sum(1 for row in rows if row["call"] == "read")
    fits = sum(1 for row in rows if row["call"] == "fit")
    read = [row for row in rows if row["call"] != "fit"]
    slowest = max((row["seconds"] for row in read), default=0.0)
    most = max((row["memory"] for row in read), default=0) >> 20
    tables, refused = found["read", "table"], found["read", "refused"]
    return (
        f"| {kind} | {count:,} | {tables:,} | {refused:,} | {fits} | {len(problems)} |"
        f" {slowest:.1f} | {most:,} |"
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs all formats, prints the table and the problems, returns their number."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="2,000 of each format")
    parser.add_argument("--count", type=int, default=0, help="files of each format")
    parser.add_argument("--fits", type=int, default=2, help="fits of each format")
    parser.add_argument("--only", nargs="*", help="formats")
    parser.add_argument(
        "--large", action="store_true", help="files of a megabyte, before they change"
    )
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--whole", nargs="*", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.work:
        kind, start, stop = asked.work
        numbers = range(int(start), int(stop))
        work(kind, asked.whole, numbers, asked.fits, LARGE * asked.large)
        return 0
    count = asked.count or (2000 if asked.full else 50)
    total = 0
    columns = "format,files,tables,refused,fits,problems,slowest (s),memory (MB)"
    print("|", " | ".join(columns.split(",")), "|")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as place:
        kinds = {
            **seeds(),
            **write_more(Path(place)),
            "saved fit": [Path(place, "fit")],
        }
        for kind, whole in kinds.items():
            if asked.only and kind not in asked.only:
                continue
            if kind == "saved fit":
                _save_fit(whole[0])
            rows, problems = survey(kind, whole, count, asked.fits, LARGE * asked.large)
            print(report(kind, rows, problems), flush=True)
            for number, call, found in problems[:20]:
                print(
                    f"    {kind} {number} {call}: {found}", file=sys.stderr, flush=True
                )
            total += len(problems)
    return total


def _save_fit(folder: Path) -> None:
    import irtjax

    values = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    table = irtjax.ResponseTable.from_arrays(values, benchmark=[*"aabb"])
    irtjax.save(irtjax.fit(table, "rasch", "em"), folder)


if __name__ == "__main__":
    # Without the destructors of the libraries, which can abort a process at its end.
    code = main()
    sys.stdout.flush()
    os._exit(min(code, 99))
