"""A calibration as JSON and plain arrays, and back.

Models are written by the names of their classes and the values of their fields. A file
only chooses among classes that exist: the model, and every response family and prior
that the process has defined. Nothing that a file names is imported or evaluated. A
family or prior from outside the package has its module in its name, and that module
must have been imported before.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax._types import Status
from irtjax.calibration.calibration import Calibration
from irtjax.data.matching import positions
from irtjax.likelihood.problem import Parameters
from irtjax.likelihood.quadrature import Resolution
from irtjax.models import catalogue  # noqa: F401  # Defines every family.
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.lengths import LengthItems, LengthParameters, Lengths
from irtjax.models.model import Model, Population
from irtjax.models.priors import AbstractPrior
from irtjax.storage.multilevel import structure_arrays, structure_of

if TYPE_CHECKING:
    import pyarrow as pa

_ITEM_COLUMNS = (
    *("item", "benchmark", "discrimination", "discrimination_se", "intercept"),
    *("intercept_se", "difficulty", "difficulty_se", "lower_asymptote"),
    *("lower_asymptote_se", "upper_asymptote", "upper_asymptote_se", "accuracy"),
    *("observed", "flags"),
)
_ABILITY_COLUMNS = (
    *("subject", "ability", "ability_se", "lower", "upper", "rank", "rank_lower"),
    *("rank_upper", "probability_best", "expected_score", "expected_score_se"),
    *(
        "expected_score_lower",
        "expected_score_upper",
        "accuracy",
        "accuracy_se",
        "accuracy_lower",
    ),
    *("accuracy_upper", "observed", "flags"),
)


def plain(value: Any) -> Any:
    """Returns a value as strict JSON can hold it; what is not finite becomes None.

    >>> plain({"a": float("nan"), "b": (1, np.float32(0.5)), "c": np.arange(2)})
    {'a': None, 'b': [1, 0.5], 'c': [0, 1]}
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, Status):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.generic) or type(value).__module__.startswith(
        ("jax", "numpy")
    ):
        return plain(np.asarray(value).tolist())
    return str(value)


class UndefinedClassError(ValueError):
    """A fit has a family or prior from outside the package that is not defined."""


def _class_name(cls: type) -> str:
    """The class's own name in the package, with its module outside it."""
    if cls.__module__.split(".")[0] == "irtjax":
        return cls.__name__
    return f"{cls.__module__}.{cls.__qualname__}"


def _known_classes() -> dict[str, type]:
    """The classes that a model may be made of, by name.

    Of two classes of one name the later one counts, as where a cell of a notebook is
    run again.
    """
    known: dict[str, type] = {"Model": Model, "Lengths": Lengths}
    found: list[type] = [AbstractResponseFamily, AbstractPrior]
    for cls in found:
        found += cls.__subclasses__()
        if not inspect.isabstract(cls):
            known[_class_name(cls)] = cls
    return known


def _class_of(name: str, what: str) -> type:
    """The class of a name.

    Raises:
        UndefinedClassError: If the name has a module, and no such class is defined.
        ValueError: If the name has none, and the package has no such class.
    """
    known = _known_classes()
    if name in known:
        return known[name]
    if "." in name:
        raise UndefinedClassError(
            f"this fit has the {what} {name}, which is not defined here: import its"
            " module before loading"
        )
    raise ValueError(f"no model part is called {name!r}")


def encode(module: Any) -> dict[str, Any]:
    """Returns a model, family or prior as its class name and fields.

    Raises:
        ValueError: If it is of a class that `decode` would not make, or a field is
            neither a number, a string, a tuple of these, a model part, nor a dict of
            model parts.
    """
    name = _class_name(type(module))
    if name not in _known_classes():
        raise ValueError(
            f"a {type(module).__name__} cannot be saved: a model is made of response"
            " families and priors"
        )
    fields = {}
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if isinstance(value, dict):
            fields[field.name] = {key: encode(inner) for key, inner in value.items()}
        elif dataclasses.is_dataclass(value):
            fields[field.name] = encode(value)
        else:
            fields[field.name] = _plain_field(value, f"{name}.{field.name}")
    return {"class": name, **fields}


def _plain_field(value: Any, place: str) -> Any:
    """A field as JSON that `decode` reads as an equal value."""
    if isinstance(value, tuple):
        return [_plain_field(inner, place) for inner in value]
    single = isinstance(value, bool | int | float | str) or value is None
    if not single and getattr(value, "ndim", 1):
        raise ValueError(
            f"{place} is a {type(value).__name__}, which cannot be saved: use numbers,"
            " strings or tuples of them"
        )
    return plain(value)


def decode(content: dict[str, Any], what: str = "model") -> Any:
    """Returns the model, family or prior that `encode` wrote.

    Args:
        content: What `encode` returned, or JSON made of it.
        what: What to call it in an error.

    Raises:
        UndefinedClassError: If it has a family or prior that is not defined here.
        ValueError: If it names anything else that is no part of a model.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model = two_parameter()
    >>> decode(encode(model)) == model
    True
    """
    fields = dict(content)
    cls = _class_of(fields.pop("class"), what)
    return cls(**{key: _field(value, key) for key, value in fields.items()})


def _field(value: Any, name: str) -> Any:
    """The value of a field; the priors of a model are a dict."""
    if isinstance(value, dict) and "class" in value:
        return decode(value, name)
    if isinstance(value, dict):
        return {key: decode(part, "prior") for key, part in value.items()}
    if isinstance(value, list):
        return tuple(_field(part, name) for part in value)
    return value


def to_json(fit: Calibration) -> dict[str, Any]:
    """Returns the content of `fit.json` for a calibration."""
    population = fit.parameters.population
    resolution = fit.resolution
    return {
        "model": encode(fit.model),
        "options": plain(fit.options),
        "versions": plain(fit.versions),
        "data_hash": fit.data_hash,
        "num_subjects": len(fit.subjects),
        "num_items": len(fit.items),
        "num_observed": int(fit.num_observed),
        "status": {
            "name": Status(int(fit.status)).name.lower(),
            "meaning": Status(int(fit.status)).explain(),
        },
        "num_steps": int(fit.num_steps),
        "residual": plain(float(fit.residual)),
        "log_likelihood": plain(float(fit.log_likelihood)),
        "log_prior": plain(float(fit.log_prior)),
        "num_parameters": int(fit.num_parameters),
        "aic": plain(float(fit.aic)),
        "bic": plain(float(fit.bic)),
        "level": float(fit.level),
        "population": {
            "mean": plain(float(population.mean)),
            "sd": plain(float(population.sd)),
        },
        **_lengths_to_json(fit),
        "resolution": None if resolution is None else plain(resolution._asdict()),
        "timings": plain(fit.timings),
        "warnings": list(fit.warnings),
        "notes": list(fit.notes),
    }


def _lengths_to_json(fit: Calibration) -> dict[str, Any]:
    """The correlation of ability and speed, for models with response lengths."""
    lengths = fit.parameters.lengths
    if lengths is None:
        return {}
    error = fit.correlation_error
    return {
        "correlation": float(lengths.correlation),
        "correlation_se": None if error is None else plain(error),
    }


def to_arrays(fit: Calibration) -> dict[str, np.ndarray]:
    """Returns the estimates and the trace as named arrays, in their own dtype."""
    parameters = fit.parameters
    arrays = {f"items.{k}": v for k, v in parameters.items._asdict().items()}
    arrays |= {f"population.{k}": v for k, v in parameters.population._asdict().items()}
    arrays |= {"theta": parameters.theta, "trace": fit.trace}
    if parameters.lengths is not None:
        lengths, correlation = parameters.lengths
        arrays |= {f"lengths.{k}": v for k, v in lengths._asdict().items()}
        arrays |= {"correlation": correlation}
    # Names too: the tables for people need not be in the order of the arrays.
    arrays |= {"subject_names": fit.subjects, "item_names": fit.items}
    arrays |= {"benchmark_names": fit.benchmarks}
    arrays |= {"item_covariance": fit.item_covariance}
    arrays |= {"ability_shared": fit.ability_shared}
    arrays |= {"ability_scale": fit.ability_scale}
    arrays |= structure_arrays(fit.structure)
    return {k: np.asarray(v) for k, v in arrays.items() if v is not None}


def from_parts(
    content: dict[str, Any],
    arrays: dict[str, Any],
    item_table: pa.Table,
    ability_table: pa.Table,
) -> Calibration:
    """Returns the calibration of the parts of its folder.

    Raises:
        ValueError: If the parts do not fit together.
        KeyError: If something is missing.
    """
    _check_columns("items.parquet", item_table, _ITEM_COLUMNS)
    _check_columns("abilities.parquet", ability_table, _ABILITY_COLUMNS)
    for file, table, names in (
        ("items.parquet", item_table, arrays["item_names"]),
        ("abilities.parquet", ability_table, arrays["subject_names"]),
    ):
        if table.num_rows != len(names):
            raise ValueError(
                f"{file} has {table.num_rows} rows, but parameters.npz has {len(names)}"
            )
    # The file is sorted by ability, the arrays by `subjects`.
    names = np.asarray(ability_table.column("subject").to_pylist())
    ability_table = ability_table.take(positions(names, arrays["subject_names"]))
    model = decode(content["model"])
    record = model.family.Items
    items = record(**{name: arrays[f"items.{name}"] for name in record._fields})
    for name, values in zip(record._fields, items, strict=True):
        if values.shape[:1] != (item_table.num_rows,):
            raise ValueError(
                f"parameters.npz has {name} of shape {values.shape}, but"
                f" there are {item_table.num_rows} items"
            )
    population = Population(
        arrays["population.mean"],
        arrays["population.sd"],
        arrays.get("population.log_weights"),
    )
    lengths = None
    if model.lengths is not None:
        parts = {name: arrays[f"lengths.{name}"] for name in LengthItems._fields}
        lengths = LengthParameters(LengthItems(**parts), arrays["correlation"])
    resolution = content["resolution"]
    return Calibration(
        model=model,
        parameters=Parameters(items, population, arrays.get("theta"), lengths),
        subjects=arrays["subject_names"],
        items=arrays["item_names"],
        benchmarks=arrays.get("benchmark_names"),
        status=Status[content["status"]["name"].upper()],
        num_steps=content["num_steps"],
        trace=arrays["trace"],
        residual=_number(content["residual"]),
        log_likelihood=_number(content["log_likelihood"]),
        log_prior=_number(content["log_prior"]),
        num_parameters=content["num_parameters"],
        num_observed=content["num_observed"],
        aic=_number(content["aic"]),
        bic=_number(content["bic"]),
        item_table=item_table,
        ability_table=ability_table,
        warnings=tuple(content["warnings"]),
        notes=tuple(content["notes"]),
        options=content["options"],
        versions=content["versions"],
        data_hash=content["data_hash"],
        timings=content["timings"],
        resolution=None if resolution is None else Resolution(**resolution),
        level=content["level"],
        item_covariance=arrays.get("item_covariance"),
        ability_shared=arrays.get("ability_shared"),
        ability_scale=arrays.get("ability_scale"),
        correlation_error=content.get("correlation_se"),
        structure=structure_of(arrays),
    )


def _check_columns(file: str, table: pa.Table, columns: tuple[str, ...]) -> None:
    lacking = [name for name in columns if name not in table.column_names]
    if lacking:
        raise ValueError(f"{file} has no column {lacking[0]!r}")


def _number(value: float | None) -> float:
    return math.nan if value is None else value
