"""Calibrations on disk: tables, JSON and plain arrays in one folder, no pickle."""

from irtjax.estimators.posterior.checkpoint import (
    load_chains,
    save_chains,
    to_arviz,
    write_draws,
)
from irtjax.storage.checkpoint import load_checkpoint, save_checkpoint
from irtjax.storage.folder import (
    FIT_FILES,
    STRUCTURE_FILES,
    check_folder,
    is_fit,
    load,
    save,
    write_table,
)
from irtjax.storage.multilevel import draw_labels

__all__ = [
    "FIT_FILES",
    "STRUCTURE_FILES",
    "check_folder",
    "draw_labels",
    "is_fit",
    "load",
    "load_chains",
    "load_checkpoint",
    "save",
    "save_chains",
    "save_checkpoint",
    "to_arviz",
    "write_draws",
    "write_table",
]
