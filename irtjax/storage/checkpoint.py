"""The loop of a long run in a file, from which it resumes."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

from irtjax.data.archives import read_archive, write_archive
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
    write_archive(path, FORMAT, jax.tree.leaves(loop))
    return path


def load_checkpoint(path: str | Path, like: Loop) -> Loop:
    """Reads the loop that `save_checkpoint` wrote, for `run(..., resume=)`.

    `like` is a loop of the same problem, method and `max_steps`, made by
    `irtjax.estimators.driver.begin`; a ValueError refuses the file of another one.
    """
    stored, _ = read_archive(path, FORMAT, "checkpoint")
    leaves, tree = jax.tree.flatten(like)
    wanted = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]
    if wanted != [(leaf.shape, leaf.dtype) for leaf in stored]:
        raise ValueError(
            f"{path}: it belongs to another problem, method or number of steps"
        )
    return jax.tree.unflatten(tree, [jax.numpy.asarray(leaf) for leaf in stored])
