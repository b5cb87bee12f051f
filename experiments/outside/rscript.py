"""Calls scripts of R with JSON in and out."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.scaling.mirt import last_error

FOLDER = Path(__file__).resolve().parent
#: Seconds for a script; the longest takes about five minutes.
LIMIT = 1200
#: The exit status is the number of packages that are missing; their names are printed.
CHECK = (
    "need <- commandArgs(TRUE); lack <- need[!vapply(need, requireNamespace, TRUE,"
    ' quietly = TRUE)]; cat(lack, sep = ", "); quit(status = length(lack))'
)


def missing(packages: Sequence[str]) -> str | None:
    """Why a script that uses these packages cannot run here; None if it can."""
    if shutil.which("Rscript") is None:
        return "Rscript is not installed"
    need = ["jsonlite", *packages]
    done = subprocess.run(
        ["Rscript", "-e", CHECK, *need],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    return f"R lacks {done.stdout}" if done.returncode else None


def plain(value: Any) -> Any:
    """Arrays as lists, NaN as null."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def call(script: str, data: dict[str, Any], limit: float = LIMIT) -> dict[str, Any]:
    """What a script of this folder returns for the data. Its warnings are printed.

    Raises:
        RuntimeError: With R's error, if it fails, or takes more than `limit` seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input.json"
        path.write_text(json.dumps(plain(data)), encoding="utf-8")
        try:
            done = subprocess.run(
                ["Rscript", str(FOLDER / script), str(path)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{script} failed: over {limit:g} seconds") from None
    if done.returncode:
        raise RuntimeError(f"{script} failed: {last_error(done.stderr)}")
    if done.stderr.strip():
        print(f"{script}: {done.stderr.strip()}", file=sys.stderr)
    return json.loads(done.stdout)
