"""Data sets of the comparisons: simulated, and tables of `shared/data` where it is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def simulated(subjects: int, items: int, seed: int = 0) -> np.ndarray:
    """Right and wrong responses of Rasch's model."""
    rng = np.random.default_rng(seed)
    ability = rng.normal(size=subjects)
    intercept = rng.normal(0.3, 1.2, size=items)
    chance = 1 / (1 + np.exp(-(ability[:, None] + intercept)))
    return (rng.random((subjects, items)) < chance).astype(int)


def classic(name: str) -> np.ndarray | None:
    """A table of `shared/data/classic` with its lowest category 0; None without it."""
    values = _read(SHARED / "classic" / f"{name}.parquet")
    return None if values is None else values - values.min()


def evaluations(items: int) -> np.ndarray | None:
    """12 models' responses to items drawn from 11 benchmarks; None without the file."""
    path = SHARED / "psn_irt" / "responses_items_by_models.parquet"
    values = _read(path)
    if values is None:
        return None
    drawn = np.random.default_rng(0).choice(len(values), items, replace=False)
    return values[np.sort(drawn)].T


def _read(path: Path) -> np.ndarray | None:
    """The numbers of a file of Parquet, `[rows, columns]`."""
    if not path.is_file():
        print(f"{path} is not there, skipped", file=sys.stderr)
        return None
    from pyarrow import parquet

    table = parquet.read_table(path)
    columns = [table[name].to_numpy() for name in table.column_names]
    return np.stack([x for x in columns if x.dtype.kind in "iu"], axis=1).astype(int)
