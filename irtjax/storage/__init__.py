"""Calibrations on disk: tables, JSON and plain arrays in one folder, no pickle."""

from irtjax.storage.folder import (
    FIT_FILES,
    check_folder,
    is_fit,
    load,
    save,
    write_table,
)

__all__ = ["FIT_FILES", "check_folder", "is_fit", "load", "save", "write_table"]
