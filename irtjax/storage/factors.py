"""The factors of a fit: arrays for its file and back, tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.parts.factors import Factors, correlation_columns
from irtjax.calibration.tables import floats, number_column
from irtjax.models.factors import Factor

if TYPE_CHECKING:
    import pyarrow as pa


def _only_factor(fit: Calibration) -> Factors | None:
    """The loadings of a factor model with one factor; None for other models.

    Its fit is that of one ability theta, so abilities are in no array here. A loading
    l = a / sqrt(a^2 + v) has the standard error v / (a^2 + v)^1.5 of that of a, unless
    the residual variance v is estimated for each item, too.
    """
    if fit.options.get("model") != Factor.name:
        return None
    names = "discrimination", "discrimination_se"
    sd = float(fit.parameters.population.sd)
    slope, slope_error = (sd * x for x in floats(fit.items.table, *names))
    residual = fit.model.family.residual_variance(fit.parameters.items)
    variance = np.asarray(residual, float)
    total = slope**2 + variance
    loadings = (slope / np.sqrt(total))[:, None]
    error = (slope_error * variance / total**1.5)[:, None]
    has_error = variance.ndim == 0 and np.isfinite(error).any()
    none = np.empty((0, 1))
    return Factors(
        names=np.array(["factor_1"]),
        loadings=loadings,
        loadings_error=error if has_error else None,
        structure=loadings,
        communality=loadings[:, 0] ** 2,
        correlation=np.eye(1),
        ability=none,
        covariance=none[:, :, None],
        mean=none,
        spread=none[:, :, None],
        rotation="none",
        share_at_best=float("nan"),
    )


def factor_tables(fit: Calibration) -> dict[str, pa.Table]:
    """Tables for people by file name: loadings, structure, correlations of factors.

    The errors of correlations, where known, are a table of their own, by pair.
    """
    import pyarrow as pa

    factors = fit.factors or _only_factor(fit)
    if factors is None:
        return {}
    items: dict[str, Any] = {"item": fit.item_names.tolist()}
    if fit.benchmarks is not None:
        items["benchmark"] = fit.benchmarks.tolist()
    names = factors.names.tolist()
    # Errors that are not known, as those of loadings at their bound 0, are empty.
    columns = {name: number_column(x) for name, x in factors.item_columns().items()}
    structure = {k: x for k, x in columns.items() if not k.startswith("loading_")}
    rows = {"factor": names}
    rows |= {name: factors.correlation[:, k] for k, name in enumerate(names)}
    tables = {
        "loadings": pa.table(items | columns),
        "structure": pa.table(items | structure),
        "factor_correlations": pa.table(rows),
    }
    if factors.correlation_error is not None:
        pairs = correlation_columns(factors, fit.level)
        first, second, *numbers = pairs.items()
        columns = {name: x.tolist() for name, x in (first, second)}
        columns |= {name: number_column(x) for name, x in numbers}
        tables["factor_correlation_errors"] = pa.table(columns)
    return tables
