"""The factors of a fit: arrays for its file and back, tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.factors import Factors, correlation_columns, loading_columns

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIX = "factors."


def factor_arrays(factors: Factors | None) -> dict[str, Any]:
    """Arrays of the factors by name."""
    if factors is None:
        return {}
    fields = factors._asdict().items()
    return {f"{_PREFIX}{name}": x for name, x in fields if x is not None}


def factors_of(arrays: dict[str, Any]) -> Factors | None:
    """The factors of a file's arrays; None if it has none."""
    own = {
        name.removeprefix(_PREFIX): value
        for name, value in arrays.items()
        if name.startswith(_PREFIX)
    }
    if not own:
        return None
    own["rotation"] = str(own["rotation"])
    own["share_at_best"] = float(own["share_at_best"])
    own["axes_known"] = bool(own.get("axes_known", True))
    if "certificate" in own:
        own["certificate"] = float(own["certificate"])
    return Factors(**{"loadings_error": None, **own})


def factor_tables(fit: Calibration) -> dict[str, pa.Table]:
    """Tables for people by file name: loadings, structure, correlations of factors.

    The errors of correlations, where known, are a table of their own, by pair.
    """
    import pyarrow as pa

    found = fit.factors
    if found is None:
        return {}
    items: dict[str, Any] = {"item": fit.items.tolist()}
    if fit.benchmarks is not None:
        items["benchmark"] = fit.benchmarks.tolist()
    names, columns = found.names.tolist(), loading_columns(found)
    structure = {k: x for k, x in columns.items() if not k.startswith("loading_")}
    rows = {"factor": names}
    rows |= {name: found.correlation[:, k] for k, name in enumerate(names)}
    tables = {
        "loadings": pa.table(items | columns),
        "structure": pa.table(items | structure),
        "factor_correlations": pa.table(rows),
    }
    if found.correlation_error is not None:
        pairs = correlation_columns(found, fit.level)
        first, second, *numbers = pairs.items()
        columns = {name: x.tolist() for name, x in (first, second)}
        columns |= {name: pa.array(x, mask=np.isnan(x)) for name, x in numbers}
        tables["factor_correlation_errors"] = pa.table(columns)
    return tables
