"""Calls scripts of R with JSON in and out."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.scaling.mirt import last_error

FOLDER = Path(__file__).resolve().parent
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
        ["Rscript", "-e", CHECK, *need], capture_output=True, text=True, check=False
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


def call(script: str, data: dict[str, Any]) -> dict[str, Any]:
    """What a script of this folder returns for the data.

    Raises:
        RuntimeError: With R's last line, if it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input.json"
        path.write_text(json.dumps(plain(data)), encoding="utf-8")
        done = subprocess.run(
            ["Rscript", str(FOLDER / script), str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{script} failed: {last_error(done.stderr)}")
    return json.loads(done.stdout)
