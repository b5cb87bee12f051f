"""The loop of a long run in a file, from which it resumes."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from irtjax.data.writing import atomic_path
from irtjax.estimators.driver import Fit, Loop, loop_of

#: Version of the file's form; raised when its form changes.
FORMAT = "irtjax checkpoint 1"


def save_checkpoint(path: str | Path, fit: Fit | Loop) -> Path:
    """Writes what a run needs to resume (state, step and trace) and returns the path.

    `fit` is what `run` returned, finished or not, or its loop. The file is an
    uncompressed NumPy archive without pickle.
    """
    path = Path(path)
    loop = loop_of(fit) if isinstance(fit, Fit) else fit
    leaves = jax.tree.leaves(loop)
    arrays: dict[str, Any] = {"format": np.array(FORMAT)}
    arrays |= {f"leaf_{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)
    return path


def load_checkpoint(path: str | Path, like: Loop) -> Loop:
    """Reads the loop that `save_checkpoint` wrote, for `run(..., resume=)`.

    `like` is a loop of the same problem, method and `max_steps`, made by
    `irtjax.estimators.driver.begin`; a ValueError refuses the file of another one.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            known = str(archive["format"]) == FORMAT
            found = [archive[f"leaf_{k}"] for k in range(len(archive.files) - 1)]
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError, AttributeError):
        # NumPy's own message proposes to read pickles; they are not read here.
        raise ValueError(f"{path}: it is damaged, or no checkpoint") from None
    if not known:
        raise ValueError(f"{path}: another form of checkpoint; write it again")
    leaves, tree = jax.tree.flatten(like)
    wanted = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]
    if wanted != [(leaf.shape, leaf.dtype) for leaf in found]:
        raise ValueError(
            f"{path}: it belongs to another problem, method or number of steps"
        )
    return jax.tree.unflatten(tree, [jax.numpy.asarray(leaf) for leaf in found])
