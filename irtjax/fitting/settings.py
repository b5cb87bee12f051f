"""The settings of a fit: whose each is, and what it is when it is not given.

Each setting of `irtjax.fit` belongs to one thing: the named model, the preparation of
the data, a multilevel model, or the method (a field of its class, or one of its
`options`). A setting that nothing in a fit would use is refused, so none is ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.estimators.catalogue import METHODS, method_class
from irtjax.estimators.driver import ITEM_OPTIONS, AbstractEstimator
from irtjax.estimators.start import STARTS
from irtjax.fitting.setting_types import Settings as Settings
from irtjax.fitting.specification import AbstractSpecification, Parts
from irtjax.likelihood.problem import Start
from irtjax.models.catalogue import check_priors
from irtjax.models.factors import FACTOR
from irtjax.models.multilevel.specification import MULTILEVEL
from irtjax.numerics.memory import require_memory
from irtjax.numerics.seeds import is_key

MODEL: dict[str, Any] = {"priors": "weak", "positive": False, "ends": None}
DATA: dict[str, Any] = {
    "squeeze": None,
    "bounds": None,
    "length_offset": 1.0,
    "zero_lengths": "kept",
}
#: Settings of methods that decide which method the data are fitted by.
ITEMS = (*ITEM_OPTIONS, "population")


def check_values(
    method: Any,
    settings: Mapping[str, Any],
    level: Any,
    key: Any,
    dtype: Any,
    max_steps: Any,
) -> None:
    """Refuses values that no fit can have, in one line with the cure."""
    try:
        floating = dtype is None or jnp.dtype(dtype) in (jnp.float32, jnp.float64)
    except TypeError:
        floating = False
    number = isinstance(level, float | int | np.floating)
    whole = isinstance(max_steps, int | np.integer) and not isinstance(max_steps, bool)
    limit = max_steps is None or (whole and 1 <= max_steps < 2**31)
    is_method = isinstance(method, str | AbstractEstimator)
    start, facets = settings.get("start", STARTS[0]), settings.get("facets", ())
    listed = hasattr(facets, "__iter__") and not isinstance(facets, str)
    starts = ", ".join(STARTS)
    for name, value, fine, cure in (
        ("method", method, is_method, f"auto, {', '.join(METHODS)}, or irtjax.EM()"),
        ("level", level, number, "a number between 0 and 1"),
        ("max_steps", max_steps, limit, "a whole number from 1 to 2**31 - 1, or None"),
        ("key", key, is_key(key), "a whole number such as 0, or jax.random.key(0)"),
        ("dtype", dtype, floating, "'float64' or 'float32'"),
        ("facets", facets, listed, "a list of names, such as ['domain']"),
        ("start", start, _is_start(start), f"{starts}, or an irtjax.Start"),
    ):
        if not fine:
            raise ValueError(f"{name} {value!r}: give {cure}")
    if max_steps is not None:
        cure = "fewer steps suffice"
        require_memory(8.0 * max_steps, f"max_steps {max_steps:,}", cure)
    check_priors(settings.get("priors"))


def _is_start(start: Any) -> bool:
    """Whether a value can be start values, or the name of some."""
    return isinstance(start, Start) or (isinstance(start, str) and start in STARTS)


def check_start(start: Any, num_items: int) -> None:
    """Refuses start values of other items."""
    if isinstance(start, Start) and np.shape(start.items[0])[0] != num_items:
        raise ValueError(
            f"start has {np.shape(start.items[0])[0]} items, but the data have"
            f" {num_items}: give start values of the same items"
        )


def changed(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Settings among `defaults` that differ from their default."""
    return {
        name: settings[name]
        for name, usual in defaults.items()
        if name in settings and not _same(settings[name], usual)
    }


def _same(value: Any, usual: Any) -> bool:
    """Whether a setting has its default."""
    if value is usual:
        return True
    if isinstance(usual, str | bool | int | float):
        return type(value) in (str, bool, int, float) and value == usual
    empty = isinstance(value, Mapping | tuple | list) and not len(value)
    return empty and (usual is None or len(usual) == 0)


def sort_settings(
    settings: Mapping[str, Any],
    specification: AbstractSpecification,
    method: type[AbstractEstimator] | Any,
    max_steps: int | None = None,
) -> Parts:
    """Settings by what they belong to.

    `method` is a method, or the class of one that was named. A setting that a method
    does not have is refused whatever its value, except settings of multilevel models at
    their defaults, and None for `ITEMS`.

    Raises:
        ValueError: If a setting belongs to nothing in this fit, or limits the steps as
            `max_steps` does, or if the method has no such limit.
    """
    named = isinstance(method, type)
    kind = method if named else type(method)
    own = _fields(kind)
    accepted = {*specification.settings, *DATA, *kind.runs.options}
    usual = {**MULTILEVEL, **FACTOR, **dict.fromkeys(ITEMS)}
    fields: dict[str, Any] = {}
    for name, value in settings.items():
        if name in accepted:
            continue
        if name in own and named:
            fields[name] = value
        elif name not in usual or not _same(value, usual[name]):
            raise ValueError(_refusal(name, value, method))
    if max_steps is not None and kind.runs.limit in fields:
        raise ValueError(
            f"{kind.runs.limit} and max_steps set the same limit: leave one out"
        )
    if max_steps is not None and kind.runs.lengths:
        instead = " and ".join(f"{name}=" for name in kind.runs.lengths)
        used = kind.__name__.lower()
        raise ValueError(
            f"max_steps is not a limit of method {used}: set its number of steps with"
            f" {instead}"
        )
    wrong = settings.keys() & specification.stated
    if wrong:
        raise ValueError(
            f"{min(wrong)} is a setting of models given by name; state it in the"
            f" model that is given ({specification.name})"
        )
    filled = lambda usual: {k: settings.get(k, v) for k, v in usual.items()}
    options = filled(kind.runs.options)
    path = options.get("checkpoint")
    # Of several processes the first one reads.
    reads = options.get("resume") and jax.process_index() == 0
    if reads and not (path and Path(path).is_file()):
        raise ValueError(
            f"resume=True, but there is no checkpoint {path}: give the file that a"
            " stopped run saved, or leave resume out"
        )
    return Parts(filled(specification.settings), filled(DATA), fields, options)


def _refusal(name: str, value: Any, method: Any) -> str:
    """Why a setting is refused: what it belongs to."""
    if name in MULTILEVEL:
        factor = "the model factor, " if name in FACTOR else ""
        others = [x for x in METHODS if name in _own(method_class(x))]
        *methods, last = ["laplace", "nuts", "vi", *others]
        return (
            f"{name} requires {factor}a multilevel model (multibenchmark, multimetric"
            f" or hierarchical) or the method {', '.join(methods)} or {last}"
        )
    if name in FACTOR:
        return f"{name} requires the model factor"
    who = owners(name)
    if who and not isinstance(method, type) and name in _fields(method):
        kind = type(method).__name__
        return (
            f"{name} is a setting of methods given by name: give it to the method,"
            f" {kind}({name}={value!r})"
        )
    if who:
        used = method.__name__.lower() if isinstance(method, type) else method.name
        return f"{name} requires method {' or '.join(who)}; {used} does not accept it"
    names = sorted(
        {*MODEL, *DATA, *MULTILEVEL, *FACTOR, *ITEMS, "checkpoint", "resume"}
    )
    return f"no setting {name!r}; there are {', '.join(names)}"


def _fields(method: Any) -> set[str]:
    """Names of the fields of a method, or of its class."""
    return {f.name for f in dataclasses.fields(method)}


def _own(kind: type[AbstractEstimator]) -> set[str]:
    """Names of the settings of a method of a class."""
    return {*kind.runs.options, *_fields(kind)}


def owners(name: str) -> list[str]:
    """Methods by name that have a setting of their own; none for other settings.

    >>> owners("num_draws"), owners("facets")
    (['saem', 'nuts', 'vi'], [])
    """
    if name in {*MODEL, *DATA, *MULTILEVEL, *FACTOR}:
        return []
    return [method for method in METHODS if name in _own(method_class(method))]


def owners_instead(name: str, method: str) -> list[str]:
    """Methods that have a setting which the named one lacks; none if it has it.

    >>> owners_instead("epochs", "em"), owners_instead("epochs", "neural")
    (['neural', 'vibo'], [])
    """
    return [] if name in _own(method_class(method)) else owners(name)
