"""Calibrations on disk: tables, JSON and plain arrays in one folder, no pickle."""

from typing import TYPE_CHECKING

from irtjax._lazy import loader

if TYPE_CHECKING:
    from irtjax.data.fit_folder import FIT_FILES as FIT_FILES
    from irtjax.data.fit_folder import RUN_FILES as RUN_FILES
    from irtjax.data.fit_folder import STRUCTURE_FILES as STRUCTURE_FILES
    from irtjax.data.fit_folder import is_arena as is_arena
    from irtjax.data.fit_folder import is_fit as is_fit
    from irtjax.data.fit_folder import load_responses as load_responses
    from irtjax.estimators.posterior.checkpoint import load_chains as load_chains
    from irtjax.estimators.posterior.checkpoint import save_chains as save_chains
    from irtjax.estimators.posterior.checkpoint import to_arviz as to_arviz
    from irtjax.estimators.posterior.checkpoint import write_draws as write_draws
    from irtjax.storage.arena import load_arena as load_arena
    from irtjax.storage.checkpoint import load_checkpoint as load_checkpoint
    from irtjax.storage.checkpoint import save_checkpoint as save_checkpoint
    from irtjax.storage.folder import check_folder as check_folder
    from irtjax.storage.folder import load as load
    from irtjax.storage.folder import load_contents as load_contents
    from irtjax.storage.folder import save as save
    from irtjax.storage.folder import write_table as write_table
    from irtjax.storage.growth import add as add
    from irtjax.storage.tables import draw_labels as draw_labels

__getattr__ = loader(
    __name__,
    {
        "irtjax.data.fit_folder": "FIT_FILES RUN_FILES STRUCTURE_FILES"
        " is_arena is_fit load_responses",
        "irtjax.estimators.posterior.checkpoint": "load_chains save_chains"
        " to_arviz write_draws",
        "irtjax.storage.arena": "load_arena",
        "irtjax.storage.checkpoint": "load_checkpoint save_checkpoint",
        "irtjax.storage.folder": "check_folder load load_contents save write_table",
        "irtjax.storage.growth": "add",
        "irtjax.storage.tables": "draw_labels",
    },
)
