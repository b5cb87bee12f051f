"""Names of a package that are loaded on first use: a fit imports only what it runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def load_name(place: str) -> Any:
    """What has a name in a module, loaded when it is first asked for.

    >>> load_name("irtjax._types:Status").__name__
    'Status'
    """
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def loader(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` of a package (PEP 562) for the names of some of its modules.

    Args:
        package: Its dotted name.
        homes: Dotted names of modules, with the names of each in one text.

    >>> loader("irtjax", {"irtjax._types": "Status KeyArray"})("Status").__name__
    'Status'
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return load_name(f"{home[name]}:{name}")

    return load
