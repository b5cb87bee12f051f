"""Calibrations on disk: tables, JSON and plain arrays in one folder, no pickle."""

from irtjax.storage.checkpoint import load_checkpoint, save_checkpoint
from irtjax.storage.folder import (
    FIT_FILES,
    check_folder,
    is_fit,
    load,
    save,
    write_table,
)

__all__ = [
    "FIT_FILES",
    "check_folder",
    "is_fit",
    "load",
    "load_checkpoint",
    "save",
    "save_checkpoint",
    "write_table",
]
