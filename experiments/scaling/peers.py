"""Times irtjax and whichever other packages are installed on the same data.

    python experiments/scaling/peers.py '{"subjects": 200, "items": 30}'

Worker of `run.py`: everything runs in this one process; a package that is not
installed is named and skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.scaling import mirt, pyirt
from irtjax.models.catalogue import two_parameter
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items

Row = dict[str, Any]


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall-clock time of one call, and what it returned."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def correlation(estimate: np.ndarray, truth: np.ndarray) -> float:
    """Pearson correlation with the simulated values: is it the same task?"""
    return float(np.corrcoef(np.asarray(estimate, float), truth)[0, 1])


def fit_irtjax(values: np.ndarray, method: str) -> np.ndarray:
    """Discriminations of a user's whole call, scores and errors included."""
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(table, "2pl", method=method)
    return np.asarray(fit.parameters.items.discrimination)


def fit_girth(values: np.ndarray) -> np.ndarray:
    """Marginal 2PL of girth, which wants items in rows."""
    girth = importlib.import_module("girth")
    return girth.twopl_mml(values.T.astype(int))["Discrimination"]


def fit_scipy(values: np.ndarray) -> np.ndarray:
    """Joint penalised likelihood by L-BFGS-B, the penalties those of irtjax's MM.

    That is: theta ~ N(0, 1), a ~ N(1, 2^2), d ~ N(0, 3^2), without the choice of
    frame that irtjax makes for item priors.
    """
    from scipy.optimize import minimize

    num_subjects, num_items = values.shape
    right = values.astype(float)

    def split(x):
        return np.split(x, [num_subjects, num_subjects + num_items])

    def loss(x):
        theta, a, d = split(x)
        eta = np.outer(theta, a) + d
        value = np.logaddexp(0, eta).sum() - np.vdot(right, eta)
        value += theta @ theta / 2 + ((a - 1) @ (a - 1)) / 8 + d @ d / 18
        left = 1 / (1 + np.exp(-eta)) - right
        return value, np.concatenate(
            [left @ a + theta, theta @ left + (a - 1) / 4, left.sum(axis=0) + d / 9]
        )

    score = values.mean(axis=1)
    score = (score - score.mean()) / score.std()
    start = np.concatenate([score, np.ones(num_items), np.zeros(num_items)])
    found = minimize(
        loss, start, jac=True, method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 10000, "ftol": 1e-12, "gtol": 1e-5},
    )  # fmt: skip
    theta, a, _ = split(found.x)
    return a * theta.std()


#: Module (none of peers with a file here), call, and a method of irtjax that is alike.
PEERS: dict[str, tuple[str, Callable[[np.ndarray], Any], str]] = {
    "girth (marginal)": ("girth", fit_girth, "em"),
    pyirt.NAME: ("", pyirt.fit_pyirt, "em"),
    mirt.NAME: ("", mirt.fit_mirt, "em"),
    "scipy L-BFGS-B (joint)": ("scipy", fit_scipy, "mm"),
}


def absent(name: str, module: str) -> str | None:
    """Why a peer cannot run here; None if it can."""
    if name in (mirt.NAME, pyirt.NAME):
        return (mirt if name == mirt.NAME else pyirt).missing()
    if importlib.util.find_spec(module) is None:
        return f"{name}: not installed, skipped"
    return None


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each package on one simulated data set, and ratios to irtjax."""
    load_before = os.getloadavg()[0]
    model = two_parameter()
    keys = jax.random.split(jax.random.key(1), 3)
    items = simulate_items(model, spec["items"], keys[0], dtype=jnp.float32)
    theta = simulate_abilities(spec["subjects"], keys[1], dtype=jnp.float32)
    values = np.asarray(simulate(model, items, theta, keys[2]).values)
    truth = np.asarray(items.discrimination, float)
    rows: list[Row] = []

    def add(quantity: str, value: float, unit: str = "") -> None:
        rows.append({"quantity": quantity, "value": value, "unit": unit,
                     "target": None, "at": "<="})  # fmt: skip

    own = {}
    for method in ("em", "mm"):
        first, _ = seconds(lambda: fit_irtjax(values, method))  # noqa: B023
        own[method], slopes = seconds(lambda: fit_irtjax(values, method))  # noqa: B023
        add(f"irtjax {method}, first call with compilation", first, "s")
        add(f"irtjax {method}, second call", own[method], "s")
        add(f"irtjax {method}, correlation of a", correlation(slopes, truth))
    notes = []
    for name, (module, call, like) in PEERS.items():
        if (why := absent(name, module)) is not None:
            notes.append(why)
            continue
        taken, slopes = seconds(lambda: call(values))  # noqa: B023
        if isinstance(slopes, mirt.Mirt | pyirt.PyIrt):
            # Without the start of R and the files of responses.
            taken, slopes = slopes.seconds, slopes.discrimination
        add(name, taken, "s")
        add(f"{name}, correlation of a", correlation(slopes, truth))
        add(f"{name} / irtjax {like}, second call", taken / own[like], "times")
    load = [load_before, os.getloadavg()[0]]
    return {"rows": rows, "load": load, "notes": notes}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
