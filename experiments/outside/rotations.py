"""`irtjax.numerics.rotation` against R's GPArotation and stats."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.outside import rscript
from irtjax.numerics.loadings import align
from irtjax.numerics.rotation import rotate

PACKAGES = ("GPArotation",)
SHAPES = ((12, 2), (20, 3), (40, 4))


def planted(items: int, dims: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Turned loadings with a simple structure, and a target of its small ones."""
    rng = np.random.default_rng(seed)
    simple = 0.12 * rng.normal(size=(items, dims))
    rows = np.arange(items)
    simple[rows, rows % dims] += rng.uniform(0.4, 0.8, items)
    turn = np.linalg.qr(rng.normal(size=(dims, dims)))[0]
    return simple @ turn, np.where(np.abs(simple) < 0.25, 0.0, np.nan)


def random(items: int, dims: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Loadings without any structure, and 40 % of a target of zeros."""
    rng = np.random.default_rng(seed)
    target = np.where(rng.random((items, dims)) < 0.4, 0.0, np.nan)
    return 0.4 * rng.normal(size=(items, dims)), target


def gaps(loadings: np.ndarray, target: np.ndarray, starts: int) -> list[dict[str, Any]]:
    """Largest differences of each rotation of a matrix; criteria, irtjax less R."""
    given = {"loadings": loadings, "target": target, "starts": starts}
    rows = []
    for name, theirs in rscript.call("rotations.R", given).items():
        kind, _, how = name.partition(", ")
        options: dict[str, Any] = {"normalise": how == "Kaiser"} if how else {}
        if kind.startswith("target"):
            options["target"] = jnp.asarray(target)
        ours = rotate(jnp.asarray(loadings), kind, num_starts=20, **options)
        pattern, phi = (np.array(theirs[key], float) for key in ("loadings", "phi"))
        matched = align(jnp.asarray(pattern), ours.loadings)
        # A signed permutation.
        change = np.asarray(matched.transform)
        turned = change.T @ np.asarray(ours.correlations) @ change
        value = theirs.get("value", float(ours.value))
        rows.append({
            "data": "x".join(map(str, loadings.shape)),
            "rotation": name,
            "loadings": float(np.abs(np.asarray(matched.loadings) - pattern).max()),
            "correlations": float(np.abs(turned - phi).max()),
            "criterion": float(ours.value) - value,
        })  # fmt: skip
    return rows


def main(*, small: bool) -> list[dict[str, Any]]:
    """Rotations of planted and of random loadings."""
    if small:
        return gaps(*planted(20, 3, 1), starts=2)
    rows = [gaps(*planted(*shape, k), starts=4) for k, shape in enumerate(SHAPES)]
    rows.append(gaps(*random(30, 3, 4), starts=4))
    return sum(rows, [])
