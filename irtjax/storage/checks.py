"""Checks of what a saved fit holds against its model, before anything uses it.

A file can be cut, mixed with another fit's, or edited. `load` compares each file with
the digest that `save` wrote, and the arrays with what the model requires: dtype,
shape, finiteness and range. Fits of before have no digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import jax
import msgspec
import numpy as np

from irtjax.data.decode import Record, Whole
from irtjax.likelihood.problem import Parameters
from irtjax.models.lengths import LengthParameters
from irtjax.models.model import Model

#: Bounds of scores.
_Bounds: TypeAlias = tuple[float, float]
#: Bounds of arrays by the last part of their names: exclusive where a number is such.
_BOUNDS = {
    "lower_asymptote": (0.0, 1.0),
    "upper_asymptote": (0.0, 1.0),
    "sd": (0.0, np.inf),
    "residual_variance": (0.0, np.inf),
    "correlation": (-1.0, 1.0),
}
#: What rounding may add to a number at a bound.
_ROUNDING = 1e-4
#: Columns of the tables between 0 and 1, and those of counts and ranks.
_CHANCES = ("probability_best", "lower_asymptote", "upper_asymptote")
_POSITIVE = ("observed", "rank", "rank_lower", "rank_upper")


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the files of a folder that are there, by name."""
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in names
        if (folder / name).is_file()
    }


def digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON object, which does not depend on its layout.

    >>> digest_of({"a": 1, "b": [0.5]}) == digest_of({"b": [0.5], "a": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_digests(folder: Path, data: bytes, recorded: Mapping[str, str]) -> None:
    """Refuses files that are not those that `save` wrote.

    Args:
        folder: Folder of the fit.
        data: Bytes of its `fit.json`.
        recorded: Digests by file. A file that is not there was deleted, such as the
            prompts of items.

    Raises:
        ValueError: A file differs; the message names it.
    """
    content = json.loads(data)
    content["digests"] = {k: v for k, v in recorded.items() if k != "fit.json"}
    here = digests(folder, content["digests"]) | {"fit.json": digest_of(content)}
    for name, digest in here.items():
        if digest != recorded.get(name):
            raise ValueError(f"{name} was changed after it was written")


def check_parameters(model: Model, parameters: Parameters) -> None:
    """Refuses estimates that the model cannot have.

    Raises:
        ValueError: An array has another dtype or shape, or a number that is not finite
            or outside its range; the message names it.
    """
    items, population, theta, lengths = parameters
    size, family = items[0].shape[0], model.family
    shape = (size, family.num_columns)
    rows = jax.ShapeDtypeStruct(shape, np.float32)
    record = jax.eval_shape(jax.vmap(family.constrain), rows)
    for name, wanted in record._asdict().items():
        _check(f"items.{name}", getattr(items, name), wanted.shape)
    each = family.ability_shape
    _check("population.mean", population.mean, each)
    _check("population.sd", population.sd, each)
    if population.log_weights is not None:
        weights = np.asarray(population.log_weights)
        # A node of weight 0 has a logarithm of minus infinity.
        _check("population.log_weights", np.exp(weights), (weights.size,))
    if population.correlation is not None:
        _check("population.correlation", population.correlation, 2 * each)
    if theta is not None:
        _check("theta", theta, (len(theta), *each))
    if model.has_lengths != (lengths is not None):
        raise ValueError("parameters.npz and its model differ in response lengths")
    if lengths is not None:
        _check_lengths(lengths, size)


def _check_lengths(lengths: LengthParameters, size: int) -> None:
    """Refuses parameters of response lengths that cannot be."""
    for name, array in lengths.items._asdict().items():
        _check(f"lengths.{name}", array, (size,))
    _check("correlation", lengths.correlation, ())


def check_errors(arrays: Mapping[str, np.ndarray | None]) -> None:
    """Refuses errors of estimates that are no finite numbers."""
    for name, array in arrays.items():
        if array is not None:
            _check(name, array, array.shape)


def _check(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Refuses an array of `parameters.npz`."""
    array = np.asarray(array)
    if array.dtype not in (np.float32, np.float64) or array.shape != shape:
        raise ValueError(
            f"parameters.npz has {name} of type {array.dtype} and shape {array.shape},"
            f" and its model needs floats of shape {shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"parameters.npz has a number in {name} that is not finite")
    low, high = _BOUNDS.get(name.rpartition(".")[2], (-np.inf, np.inf))
    if ((array < low - _ROUNDING) | (array > high + _ROUNDING)).any():
        raise ValueError(
            f"parameters.npz has a number in {name} that is not between {low:g} and"
            f" {high:g}"
        )


def check_table(file: str, table: Any) -> None:
    """Refuses numbers of a table for people that cannot be.

    Args:
        file: Its name, for messages.
        table: An Arrow table; null is a number that is not known.

    Raises:
        ValueError: A number is not finite or outside its range; the message names
            file and column.
    """
    for name in table.column_names:
        column = table.column(name)
        is_number = str(column.type).startswith(("float", "double", "int", "uint"))
        if not is_number and name.startswith("accuracy") and len(column.drop_null()):
            raise ValueError(f"{file}: column {name!r} holds {column.type}")
        if not is_number:
            continue
        values = column.drop_null().to_numpy().astype(float)
        low, high = -np.inf, np.inf
        if name.endswith("_se") or name in (*_CHANCES, *_POSITIVE):
            low = 0.0
        if name in _CHANCES:
            high = 1.0
        if not np.isfinite(values).all() or ((values < low) | (values > high)).any():
            raise ValueError(f"{file}: column {name!r} has a number that cannot be")


class _Options(Record):
    """The options that are read from a saved fit; others are shown alone."""

    model: str | None = None
    method: str | None = None
    choice: str | None = None
    command: str | None = None
    loadings: str | None = None
    rotation: str | None = None
    sources: list[str] | None = None
    facets: list[str] | None = None
    positive: bool | None = None
    item_uncertainty: bool | None = None
    anchored_items: Whole | None = None
    length_offset: float | None = None
    zero_lengths: Literal["kept", "missing"] | None = None
    worth: float | None = None
    bounds: _Bounds | dict[str, _Bounds | None] | None = None


def check_options(options: dict[str, Any], model: Model) -> None:
    """Refuses options of another type than the commands read."""
    try:
        typed = msgspec.convert(options, _Options, strict=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"fit.json has options that cannot be: {error}") from None
    if model.has_lengths and typed.length_offset is None:
        raise ValueError("fit.json has no length_offset among its options")
    if typed.worth is not None and not typed.worth > 0:
        raise ValueError(f"fit.json has the worth {typed.worth:g} among its options")
    bounds = typed.bounds
    for pair in bounds.values() if isinstance(bounds, dict) else (bounds,):
        if pair is not None and not pair[0] < pair[1]:
            raise ValueError("fit.json has bounds among its options that cannot be")


def check_counts(content: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuses a `fit.json` that contradicts `parameters.npz`."""
    for name, stored in (
        ("num_subjects", len(arrays["subject_names"])),
        ("num_items", len(arrays["item_names"])),
    ):
        stated = getattr(content, name)
        if stated is not None and stated != stored:
            raise ValueError(
                f"fit.json has {name} {stated}, but parameters.npz has {stored}"
            )
    parameters = content.num_parameters
    if parameters is not None and not 0 <= parameters <= 2**53:
        raise ValueError(f"fit.json has num_parameters {parameters}")
