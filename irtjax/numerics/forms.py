"""The form of a PyTree: all but its arrays, as an object and as JSON.

Records are NamedTuples and `equinox.Module`s of irtjax. Reading a form makes no other
object and calls no code of the file: a class is looked up among those of irtjax that
are imported already.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax


class Place(NamedTuple):
    """Stands for an array in a form, by its number."""

    at: int


def _is_place(value: Any) -> bool:
    """Whether a leaf stands for an array."""
    return isinstance(value, Place)


def split(tree: Any) -> tuple[list[Any], Any]:
    """The arrays of a PyTree, and its form."""
    dynamic, static = eqx.partition(tree, eqx.is_array)
    arrays, structure = jax.tree.flatten(dynamic)
    places = jax.tree.unflatten(structure, map(Place, range(len(arrays))))
    return arrays, eqx.combine(places, static, is_leaf=_is_place)


def fill(form: Any, arrays: Sequence[Any]) -> Any:
    """The PyTree of a form with these arrays."""
    value = lambda x: arrays[x.at] if _is_place(x) else x
    return jax.tree.map(value, form, is_leaf=_is_place)


def encode(form: Any) -> Any:
    """The form as JSON; TypeError for an object that is neither JSON nor a record."""
    if form is None or isinstance(form, bool | int | float | str):
        return form
    if _is_place(form):
        return {"place": form.at}
    if isinstance(form, list):
        return [encode(x) for x in form]
    if isinstance(form, dict) and all(isinstance(key, str) for key in form):
        return {"mapping": {key: encode(x) for key, x in form.items()}}
    kind, fields = type(form), _fields(type(form))
    if fields is not None:
        values = {name: encode(getattr(form, name)) for name in fields}
        return {"record": f"{kind.__module__}:{kind.__qualname__}", "fields": values}
    if isinstance(form, tuple):
        return {"tuple": [encode(x) for x in form]}
    raise TypeError(f"{type(form)} has no form in JSON")


def decode(content: Any) -> Any:
    """The form of JSON; ValueError if a record or its fields are not those of irtjax.

    >>> decode(encode((Place(0), {"a": [1, None]})))
    (Place(at=0), {'a': [1, None]})
    """
    if isinstance(content, list):
        return [decode(x) for x in content]
    if not isinstance(content, dict):
        return content
    if "place" in content:
        return Place(int(content["place"]))
    if "tuple" in content:
        return tuple(decode(x) for x in content["tuple"])
    if "mapping" in content:
        return {key: decode(x) for key, x in content["mapping"].items()}
    kind = _class(content["record"])
    values = {name: decode(x) for name, x in content["fields"].items()}
    if tuple(values) != _fields(kind):
        raise ValueError(f"{content['record']} has other fields")
    if issubclass(kind, tuple):
        return kind(**values)
    # As it was: checks and conversions of a constructor were made then.
    record = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(record, name, value)
    return record


def _fields(kind: Any) -> tuple[str, ...] | None:
    """Names of the fields of a record, None of anything else."""
    if not isinstance(kind, type):
        return None
    if issubclass(kind, eqx.Module):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None


def _class(name: str) -> type:
    """A record class of irtjax that is imported."""
    module, _, path = name.partition(":")
    if module.partition(".")[0] != "irtjax" or module not in sys.modules:
        raise ValueError(f"{name} is no class of irtjax")
    kind = getattr(sys.modules[module], path, None)
    if _fields(kind) is None:
        raise ValueError(f"{name} is no record")
    return cast(type, kind)
