"""R's mirt as a peer: a 2PL by EM with EAP scores, in a process of `Rscript`.

`missing()` states why it cannot run, so that a study names it and goes on.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

NAME = "mirt (R)"
#: Arguments: responses (NA where missing), items out, abilities out, most EM cycles.
#: Seconds are of the fit and the scores, without the start of R and the files.
SCRIPT = """\
args <- commandArgs(trailingOnly = TRUE)
suppressPackageStartupMessages(library(mirt))
y <- read.csv(args[1])
began <- proc.time()[["elapsed"]]
fit <- mirt(y, 1, itemtype = "2PL", verbose = FALSE,
            technical = list(NCYCLES = as.integer(args[4])))
theta <- fscores(fit, method = "EAP")
seconds <- proc.time()[["elapsed"]] - began
items <- coef(fit, simplify = TRUE)$items
write.csv(items[, c("a1", "d")], args[2], row.names = FALSE)
write.csv(data.frame(theta = theta[, 1]), args[3], row.names = FALSE)
cat("RESULT", seconds, extract.mirt(fit, "iterations"),
    extract.mirt(fit, "converged"), "\\n")
"""
#: The exit status states whether the package is there.
CHECK = 'quit(status = !requireNamespace("mirt", quietly = TRUE))'


class Mirt(NamedTuple):
    """What mirt estimated: `[items]`, `[items]`, `[subjects]`, and how."""

    discrimination: np.ndarray
    intercept: np.ndarray
    ability: np.ndarray
    seconds: float
    cycles: int
    converged: bool


def missing() -> str | None:
    """Why mirt cannot run here; None if it can."""
    if shutil.which("Rscript") is None:
        return f"{NAME}: Rscript is not installed, skipped"
    found = subprocess.run(["Rscript", "-e", CHECK], capture_output=True, check=False)
    if found.returncode:
        return f"{NAME}: the R package mirt is not installed, skipped"
    return None


def fit_mirt(
    values: np.ndarray, observed: np.ndarray | None = None, most_cycles: int = 1000
) -> Mirt:
    """Marginal 2PL and EAP abilities of right and wrong responses.

    Raises:
        RuntimeError: With mirt's last line, if it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        script, responses, items, abilities = (
            str(Path(folder) / name)
            for name in ("fit.R", "responses.csv", "items.csv", "abilities.csv")
        )
        Path(script).write_text(SCRIPT, encoding="utf-8")
        cells = np.asarray(values, int).astype(object)
        if observed is not None:
            cells[~observed] = "NA"
        header = ",".join(f"i{k + 1}" for k in range(cells.shape[1]))
        rows = (",".join(map(str, row)) for row in cells)
        Path(responses).write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        command = ["Rscript", script, responses, items, abilities, str(most_cycles)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{NAME} failed: {last_error(done.stderr)}")
        slope, intercept = np.loadtxt(items, delimiter=",", skiprows=1, ndmin=2).T
        ability = np.loadtxt(abilities, delimiter=",", skiprows=1, ndmin=1)
    return Mirt(slope, intercept, ability, *parse(done.stdout))


def last_error(text: str) -> str:
    """The line of R's messages that states what failed.

    >>> last_error("Error in f() : no item\\nCalls: f\\nExecution halted\\n")
    'Error in f() : no item'
    """
    ends = ("Execution halted", "Calls:")
    lines = [x for x in text.strip().splitlines() if not x.startswith(ends)]
    return lines[-1].strip() if lines else "no message"


def parse(text: str) -> tuple[float, int, bool]:
    """Seconds, cycles and convergence from what the script prints.

    >>> parse("Warning: x\\nRESULT 1.25 87 TRUE \\n")
    (1.25, 87, True)
    """
    line = [x for x in text.splitlines() if x.startswith("RESULT ")]
    if not line:
        raise RuntimeError(f"{NAME} printed no result")
    seconds, cycles, converged = line[-1].split()[1:]
    return float(seconds), int(cycles), converged == "TRUE"
