"""A saved arena: what `Arena.save` wrote, restored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax._types import Status
from irtjax.calibration.abilities import Abilities
from irtjax.data.decode import Record, decode
from irtjax.data.files import read_bytes
from irtjax.data.fit_folder import Mark, is_arena, read_table
from irtjax.storage.arrays import read_arrays

if TYPE_CHECKING:
    from irtjax.comparisons.arena import Arena


class _Document(Record):
    """The fields of `fit.json` that an arena is made of."""

    subjects: list[str]
    log_likelihood: float
    num_parameters: int
    num_comparisons: float
    status: str
    level: float
    effects: dict[str, dict[str, float]]
    options: dict[str, Any]
    warnings: list[str]
    notes: list[str]
    answers: dict[str, Any] = {}
    data_hash: str = ""
    heading: str = ""
    noun: str = "model"


def load_arena(folder: str | Path) -> Arena:
    """Restores the fit of comparisons that `Arena.save` wrote.

    Raises:
        ValueError: If the folder has none, or it is damaged; the message says how to
            make one.
    """
    # Commands on responses load the storage, and no comparisons.
    from irtjax.comparisons.arena import ARENA_VERSION, ARRAYS, OPTIONAL, Arena

    folder = Path(folder)
    if not is_arena(folder):
        raise ValueError(
            f"{folder} is not the folder of an arena: make one with `irtjax arena FILE"
            f" --out {folder}`"
        )
    try:
        data = read_bytes(folder / "fit.json")
        if decode(data, Mark, "fit.json").version != ARENA_VERSION:
            raise ValueError("it is of another version of irtjax")
        content = decode(data, _Document, "fit.json")
        arrays = read_arrays(folder / "abilities.npz")
        estimates, covariance, score, error, observed = (arrays[x] for x in ARRAYS)
        status = Status[content.status]
        tables = {
            name: read_table(folder / f"{name}.parquet")
            for name in ("pairs", *OPTIONAL)
            if (folder / f"{name}.parquet").is_file()
        }
        abilities = Abilities(
            content.subjects,
            estimates,
            covariance,
            (score, error) if np.isfinite(score).all() else None,
            observed,
            content.level,
            content.heading,
            content.noun,
        )
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{folder} is damaged ({error}): run `irtjax arena` again"
        ) from None
    return Arena(
        abilities,
        {name: (x["estimate"], x["se"]) for name, x in content.effects.items()},
        content.log_likelihood,
        content.num_parameters,
        content.num_comparisons,
        status,
        content.options,
        tuple(content.warnings),
        tuple(content.notes),
        content.data_hash,
        tables.pop("pairs", None),
        tables.pop("style", None),
        tables,
        content.answers,
    )
