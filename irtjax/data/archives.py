"""Checkpoints: arrays in one uncompressed NumPy archive, without pickle."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from irtjax.data.writing import atomic_path


def write_archive(
    path: Path, form: str, arrays: Iterable[Any], identity: Any = None
) -> None:
    """Writes arrays in order, whole or not at all.

    Args:
        path: The file.
        form: Name and version of the file's form.
        arrays: Arrays of any shapes.
        identity: What `read_archive` returns with the arrays, for JSON; None for
            nothing.

    Raises:
        ValueError: If the file cannot be written.
    """
    entries = {f"leaf_{k}": np.asarray(array) for k, array in enumerate(arrays)}
    entries["format"] = np.array(form)
    if identity is not None:
        entries["identity"] = np.array(json.dumps(identity))
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        # NumPy's stubs take further names for its own option.
        np.savez(file, **entries)  # pyright: ignore[reportArgumentType]


def read_archive(
    path: str | Path, form: str, what: str, *, with_identity: bool = False
) -> tuple[list[np.ndarray], Any]:
    """The arrays that `write_archive` wrote, and their identity or None.

    Args:
        path: The file.
        form: Name and version of the form that the file must have.
        what: What the file is, in messages.
        with_identity: Whether the file must have an identity.

    Raises:
        ValueError: If there is no such file, it is damaged, or it has another form.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            is_form = str(archive["format"]) == form
            identity = json.loads(str(archive["identity"])) if with_identity else None
            count = len(archive.files) - 1 - with_identity
            arrays = [archive[f"leaf_{k}"] for k in range(count)]
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError, AttributeError):
        # NumPy's own message proposes to read pickles; they are not read here.
        raise ValueError(f"{path}: it is damaged, or no {what}") from None
    if not is_form:
        raise ValueError(f"{path}: another form of checkpoint; write it again")
    return arrays, identity
