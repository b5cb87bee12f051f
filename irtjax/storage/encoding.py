"""A calibration as JSON and plain arrays, and back.

Models are written by the names of their classes and the values of their fields. A file
only chooses among classes that exist: the model, and every response family and prior
that the process has defined. Nothing that a file names is imported or evaluated. The
name of a family or prior from outside the package includes its module, which must have
been imported before.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from irtjax._types import Status
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.parts import PARTS
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from irtjax.data.arrays import as_labels
from irtjax.data.decode import Count, Record, Whole
from irtjax.data.matching import positions
from irtjax.likelihood.problem import Parameters
from irtjax.likelihood.quadrature import Resolution
from irtjax.models import catalogue  # noqa: F401  # Defines every family.
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.lengths import Lengths
from irtjax.models.model import Model, Population
from irtjax.models.priors import AbstractPrior
from irtjax.storage import checks
from irtjax.storage.plain import plain

if TYPE_CHECKING:
    import pyarrow as pa

_ITEM_COLUMNS = (
    "item benchmark discrimination discrimination_se intercept intercept_se difficulty"
    " difficulty_se lower_asymptote lower_asymptote_se upper_asymptote"
    " upper_asymptote_se accuracy observed flags"
).split()
_ABILITY_COLUMNS = (
    "subject ability ability_se lower upper rank rank_lower rank_upper"
    " probability_best expected_score expected_score_se expected_score_lower"
    " expected_score_upper accuracy accuracy_se accuracy_lower accuracy_upper observed"
    " flags"
).split()
#: Attributes of a calibration that `fit.json` has, too; None for a float that is NaN.
_FLOATS = ("residual", "log_likelihood", "log_prior", "aic", "bic")
_OTHERS = ("num_steps", "num_parameters", "num_observed", "level", "options")
_OTHERS += ("versions", "data_hash", "timings")
_FAMILY = AbstractResponseFamily
#: Arrays of text whose names do not show it.
_NAMES = ("groups", "facets", "rotation")
#: Arrays of names or of their numbers.
_CODES = ("group", "stems")
#: Axes of arrays in the file; one name is one size.
_AXES = {
    "subject_names": "subjects",
    "item_names": "items",
    "benchmark_names": "items",
    "trace": "steps",
    "item_covariance": "items columns columns",
    "ability_shared": "subjects rank",
    "ability_scale": "subjects",
    **{f"{x.prefix}{name}": axes for x in PARTS for name, axes in x.axes.items()},
}
#: Its arrays of errors, each None without standard errors.
_ERROR_ARRAYS = ("item_covariance", "ability_shared", "ability_scale")


class UndefinedClassError(ValueError):
    """A fit has a family or prior from outside the package that is not defined here."""


def _class_name(cls: type) -> str:
    """The name of a class, with its module if that is outside the package."""
    if cls.__module__.split(".")[0] == "irtjax":
        return cls.__name__
    return f"{cls.__module__}.{cls.__qualname__}"


def _known_classes() -> dict[str, type]:
    """The classes that a model may be made of, by name."""
    by_name: dict[str, type] = {"Model": Model, "Lengths": Lengths}
    classes: list[type] = [AbstractResponseFamily, AbstractPrior]
    for cls in classes:
        classes += cls.__subclasses__()
        if not inspect.isabstract(cls):
            # The later of one name counts: a notebook's cell may run again.
            by_name[_class_name(cls)] = cls
    return by_name


def encode(module: Any) -> dict[str, Any]:
    """Returns a model, family or prior as its class name and fields, for `decode`."""
    name = _class_name(type(module))
    if name not in _known_classes():
        raise ValueError(
            f"a {type(module).__name__} cannot be saved: a model is made of response"
            " families and priors"
        )
    fields = {
        field.name: _encoded(getattr(module, field.name), f"{name}.{field.name}")
        for field in dataclasses.fields(module)
    }
    return {"class": name, **fields}


def _encoded(value: Any, place: str) -> Any:
    """A field as JSON that `_field` reads as an equal value."""
    if isinstance(value, dict):
        return {key: encode(inner) for key, inner in value.items()}
    if dataclasses.is_dataclass(value):
        return encode(value)
    if isinstance(value, tuple):
        return [_encoded(inner, place) for inner in value]
    single = value is None or isinstance(value, bool | int | float | str)
    if not single and getattr(value, "ndim", 1):
        raise ValueError(
            f"{place} is a {type(value).__name__}, which cannot be saved: use numbers,"
            " strings or tuples of them"
        )
    return plain(value)


def decode(content: dict[str, Any], what: str = "model") -> Any:
    """Returns the model, family or prior that `encode` wrote; errors call it `what`.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model = two_parameter()
    >>> decode(encode(model)) == model
    True
    """
    fields = dict(content)
    name, classes = fields.pop("class"), _known_classes()
    if name in classes:
        return classes[name](**{k: _field(value, k) for k, value in fields.items()})
    if "." in name:
        raise UndefinedClassError(
            f"this fit has the {what} {name}, which is not defined here: import its"
            " module before loading"
        )
    raise ValueError(f"no model part is called {name!r}")


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
    resolution = None if fit.resolution is None else fit.resolution._asdict()
    status = Status(int(fit.status))

    own = lambda *names: {name: getattr(fit, name) for name in names}
    content = {
        "model": encode(fit.model),
        **own("options", "versions", "data_hash"),
        "num_subjects": len(fit.subject_names),
        "num_items": len(fit.item_names),
        **own("num_observed"),
        "status": {"name": status.name.lower(), "meaning": status.explain()},
        **own("num_steps", "residual", "log_likelihood", "log_prior"),
        **own("num_parameters", "aic", "bic", "level"),
        "population": {"mean": population.mean, "sd": population.sd},
    }
    for part in fit.parts:
        content |= part.document()
    content |= {"resolution": resolution, **own("timings", "warnings", "notes")}
    return plain(content)


def to_arrays(fit: Calibration) -> dict[str, np.ndarray]:
    """Returns the estimates and the trace as named arrays, in their own dtype."""
    items, population, theta, _ = fit.parameters
    arrays = {
        **{f"items.{k}": v for k, v in items._asdict().items()},
        **{f"population.{k}": v for k, v in population._asdict().items()},
        "theta": theta,
        "trace": fit.trace,
        # Names too: the tables for people need not be in the order of the arrays.
        "subject_names": fit.subject_names,
        "item_names": fit.item_names,
        "benchmark_names": fit.benchmarks,
        **{name: getattr(fit, name) for name in _ERROR_ARRAYS},
    }
    for part in fit.parts:
        arrays |= part.arrays()
    return {k: np.asarray(v) for k, v in arrays.items() if v is not None}


class _Ended(Record):
    name: str


class _Nodes(Record):
    num_nodes: Count
    spacing: float
    smallest_posterior_sd: float


class FitDocument(Record):
    """`fit.json`: null stands for a number that is not finite."""

    model: dict[str, Any]
    options: dict[str, Any]
    versions: dict[str, str]
    data_hash: str
    num_observed: Whole
    status: _Ended
    num_steps: Whole
    residual: float | None
    log_likelihood: float | None
    log_prior: float | None
    num_parameters: int | float | None
    aic: float | None
    bic: float | None
    level: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    resolution: _Nodes | None
    timings: dict[str, float | None]
    warnings: list[str]
    notes: list[str]
    correlation_se: float | None = None
    num_subjects: Whole | None = None
    num_items: Whole | None = None
    digests: dict[str, str] | None = None


def from_parts(
    content: FitDocument, arrays: dict[str, Any], tables: dict[str, pa.Table]
) -> Calibration:
    """Returns the calibration that the parts of a folder make."""
    _check_shapes(arrays)
    _check_tables(tables, arrays)
    # The file is sorted by ability, the arrays by `subject_names`.
    abilities, subjects = tables["abilities.parquet"], arrays["subject_names"]
    names = as_labels(abilities.column("subject").to_pylist())
    model = decode(content.model)
    if not isinstance(model, Model) or not isinstance(model.family, _FAMILY):
        raise ValueError("fit.json has no model with a family")
    nodes = content.resolution
    rest: dict[str, Any] = {
        name: getattr(content, name) for name in (*_FLOATS, *_OTHERS)
    }
    rest |= {name: math.nan for name in _FLOATS if rest[name] is None}
    errors = {name: arrays.get(name) for name in _ERROR_ARRAYS}
    parts = [kind.from_arrays(arrays, content) for kind in PARTS]
    parts = tuple(part for part in parts if part is not None)
    parameters = _parameters(model, arrays)
    for part in parts:
        parameters = parameters._replace(**part.parameters())
    checks.check_counts(content, arrays)
    checks.check_options(content.options, model)
    checks.check_parameters(model, parameters)
    checks.check_errors(errors)
    for name, table in tables.items():
        checks.check_table(name, table)
    rest |= errors
    return Calibration(
        model=model,
        parameters=parameters,
        subject_names=subjects,
        item_names=arrays["item_names"],
        benchmarks=arrays.get("benchmark_names"),
        status=_status(content.status.name),
        trace=arrays["trace"],
        items=ItemTable(tables["items.parquet"]),
        abilities=AbilityTable(abilities.take(positions(names, subjects))),
        warnings=tuple(content.warnings),
        notes=tuple(content.notes),
        resolution=None
        if nodes is None
        else Resolution(*msgspec.structs.astuple(nodes)),
        parts=parts,
        **rest,
    )


def _parameters(model: Model, arrays: dict[str, Any]) -> Parameters:
    """The estimates, once their shapes have been checked."""
    record = model.family.Items
    items = record(**{name: arrays[f"items.{name}"] for name in record._fields})
    for name, values in items._asdict().items():
        if values.shape[:1] != arrays["item_names"].shape:
            raise ValueError(
                f"parameters.npz has {name} of shape {values.shape}, but"
                f" there are {len(arrays['item_names'])} items"
            )
    mean, sd = arrays["population.mean"], arrays["population.sd"]
    population = Population(
        mean,
        sd,
        arrays.get("population.log_weights"),
        arrays.get("population.correlation"),
    )
    return Parameters(items, population, arrays.get("theta"))


def _status(name: str) -> Status:
    """The status of that name."""
    if name.upper() not in Status.__members__:
        raise ValueError(f"fit.json has the status {name!r:.40}")
    return Status[name.upper()]


#: Columns of the tables that are no numbers.
_TEXT = ("item", "benchmark", "subject")
#: Those that cannot be missing for all rows.
_NEEDED = ("item", "subject", "rank", "observed", "flags")


def _check_column(kind: Any, name: str, file: str) -> None:
    """Refuses a column of the tables that holds another type."""
    from pyarrow import types

    number = types.is_integer(kind) or types.is_floating(kind)
    text = types.is_string(kind) or types.is_large_string(kind)
    if name == "flags":
        right = types.is_list(kind) and types.is_string(kind.value_type) or text
    else:
        right = text if name in _TEXT else number
    if not right and (name in _NEEDED or not types.is_null(kind)):
        raise ValueError(f"{file}: column {name!r} holds {kind}")


def _check_tables(tables: dict[str, pa.Table], arrays: dict[str, Any]) -> None:
    """Refuses tables that lack a column, or have other rows than the arrays."""
    for file, kind, columns in (
        ("items.parquet", "item", _ITEM_COLUMNS),
        ("abilities.parquet", "subject", _ABILITY_COLUMNS),
    ):
        table = tables[file]
        lacking = [name for name in columns if name not in table.column_names]
        if lacking:
            raise ValueError(f"{file} has no column {lacking[0]!r}")
        for name in columns:
            _check_column(table.schema.field(name).type, name, file)
        size = len(arrays[f"{kind}_names"])
        if table.num_rows != size:
            raise ValueError(
                f"{file} has {table.num_rows} rows, but parameters.npz has {size}"
            )


def _check_shapes(arrays: dict[str, np.ndarray]) -> None:
    """Refuses arrays whose axes do not agree, or that hold another type."""
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        axes = _AXES.get(name)
        last = name.rpartition(".")[2]
        text = axes is not None and (last.endswith("names") or last in _NAMES)
        wanted = [] if axes is None else axes.split()
        same = axes is None or array.ndim == len(wanted)
        for axis, size in zip(wanted, array.shape, strict=False):
            same &= sizes.setdefault(axis, size) == size
        typed = last in _CODES or (array.dtype.kind == "U") == text
        if not same or not typed:
            raise ValueError(
                f"parameters.npz has {name} of type {array.dtype} and shape"
                f" {array.shape}, which does not fit the other arrays"
            )
    theta = arrays.get("theta")
    if theta is not None and theta.shape[:1] != (sizes.get("subjects"),):
        raise ValueError(f"parameters.npz has theta of shape {theta.shape}")
