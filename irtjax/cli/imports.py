"""Modules of the user: `--import MODULE`, and `--model` and `--method` MODULE:NAME."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any


def import_module(name: str, option: str = "--import") -> ModuleType:
    """Imports a module that the user named, with the folder of the call on the path."""
    if name.endswith(".py") or os.sep in name:
        raise ValueError(f"{option} {name}: name a module, such as mine for mine.py")
    import jax

    # Arrays that the module makes are then as precise as those of a fit. Without scope:
    # its functions run again in the fit, and `prepare` sets what the command asks for.
    jax.config.update("jax_enable_x64", True)
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name
        if missing and f"{name}.".startswith(f"{missing}."):
            reason = f"no module {missing!r} in {here}, and none is installed"
            raise ValueError(f"{option} {name}: {reason}") from None
        raise _failed(option, name, error) from error
    finally:
        # Nothing else of that folder is imported.
        sys.path.remove(here)


def own_or_name(given: str, option: str, every: bool = False) -> Any:
    """The model or the method that MODULE:NAME is, or returns; other text as it is.

    With `every` also multilevel models and specifications, which `irtjax.fit` takes.
    """
    module, colon, name = given.partition(":")
    if not colon:
        return given
    from irtjax.estimators.driver import AbstractEstimator
    from irtjax.models.model import Model

    part = getattr(import_module(module, option), name, None)
    kind: Any = Model
    what = "an irtjax.Model"
    if every:
        from irtjax.fitting.specification import AbstractSpecification
        from irtjax.models.multilevel.specification import AbstractMultilevel

        kind, what = (Model, AbstractMultilevel, AbstractSpecification), "a model"
    if option == "--method":
        kind, what = AbstractEstimator, "an irtjax.AbstractMethod"
    if callable(part) and not isinstance(part, kind):
        try:
            part = part()
        except Exception as error:
            raise _failed(option, given, error) from error
    if isinstance(part, kind):
        return part
    reason = "there is none" if part is None else f"it is a {type(part).__name__}"
    raise ValueError(
        f"{option} {given}: {reason}; name {what} in the module {module}, or a function"
        " that returns one"
    )


def _failed(option: str, name: str, error: BaseException) -> ValueError:
    """An error of the user's code in one line."""
    kind = type(error).__name__
    return ValueError(
        f"{option} {name}: {kind}: {error} (IRTJAX_TRACEBACK=1 shows where)"
    )
