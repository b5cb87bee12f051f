"""py-irt as a peer: its variational 2PL, with its defaults, where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

NAME = "py-irt (variational)"
#: Its default number of epochs.
EPOCHS = 2000


class PyIrt(NamedTuple):
    """What py-irt estimated: `[items]`, `[items]`, `[subjects]`, and the seconds."""

    discrimination: np.ndarray
    intercept: np.ndarray
    ability: np.ndarray
    seconds: float


def missing() -> str | None:
    """Why py-irt cannot run here; None if it can."""
    if importlib.util.find_spec("py_irt") is None:
        return f"{NAME}: not installed, skipped"
    return None


def fit_pyirt(
    values: np.ndarray, observed: np.ndarray | None = None, epochs: int = EPOCHS
) -> PyIrt:
    """Variational 2PL; its difficulties b are turned into intercepts -a b.

    Args:
        values: `[subjects, items]` right (1) and wrong (0) responses.
        observed: Which of them are known; None for all.
        epochs: Passes over the responses.

    Raises:
        RuntimeError: If py-irt fails, or leaves out subjects or items.
    """
    config = importlib.import_module("py_irt.config")
    training = importlib.import_module("py_irt.training")
    known = np.ones(values.shape, bool) if observed is None else observed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "responses.jsonlines"
        with open(path, "w", encoding="utf-8") as file:
            for i, (row, seen) in enumerate(zip(values, known, strict=True)):
                answers = {str(j): float(row[j]) for j in np.flatnonzero(seen)}
                line = {"subject_id": str(i), "responses": answers}
                file.write(json.dumps(line) + "\n")
        settings = config.IrtConfig(model_type="2pl", epochs=epochs, log_every=epochs)
        began = time.perf_counter()
        try:
            trainer = training.IrtModelTrainer(
                data_path=path, config=settings, verbose=False
            )
            trainer.train(device="cpu")
        except Exception as error:
            raise RuntimeError(f"{NAME} failed: {error!s:.200}") from error
        seconds = time.perf_counter() - began
    found = trainer.last_params
    order = lambda names: np.array([int(names[k]) for k in range(len(names))], int)
    items, subjects = order(found["item_ids"]), order(found["subject_ids"])
    rows, columns = values.shape
    if (len(subjects), len(items)) != (rows, columns):
        raise RuntimeError(f"{NAME} has {len(subjects)} of {rows} subjects and"
                           f" {len(items)} of {columns} items")  # fmt: skip
    ability, slope, difficulty = (np.empty(n) for n in (rows, columns, columns))
    ability[subjects] = found["ability"]
    slope[items], difficulty[items] = found["disc"], found["diff"]
    return PyIrt(slope, -slope * difficulty, ability, seconds)
