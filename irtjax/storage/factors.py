"""The factors of a fit: arrays for its file and back, tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.factors import Factors, loading_columns

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
    return Factors(**{"loadings_error": None, **own})


def factor_tables(fit: Calibration) -> dict[str, pa.Table]:
    """Tables for people by file name: loadings, and correlations of factors."""
    import pyarrow as pa

    found = fit.factors
    if found is None:
        return {}
    items: dict[str, Any] = {"item": fit.items.tolist()}
    if fit.benchmarks is not None:
        items["benchmark"] = fit.benchmarks.tolist()
    names = found.names.tolist()
    rows = {"factor": names}
    rows |= {name: found.correlation[:, k] for k, name in enumerate(names)}
    return {
        "loadings": pa.table(items | loading_columns(found)),
        "factor_correlations": pa.table(rows),
    }
