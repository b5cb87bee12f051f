"""Tables for people: groups, variance components, loadings; labels of draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.parts.factors import Factors, correlation_columns
from irtjax.calibration.parts.groups import structure_with_draws
from irtjax.calibration.tables import floats, number_column
from irtjax.models.factors import Factor

if TYPE_CHECKING:
    import pyarrow as pa

#: Axes of what a sampler keeps, after chains and draws.
_AXES = {
    "ability": ("subject", "group"),
    "general_mean": ("subject",),
    "expected_score": ("subject",),
    "coordinates": ("item", "coordinate"),
    "specific_covariance": ("group", "other_group"),
    "effects": ("effect", "coordinate"),
    "residual_sd": ("coordinate",),
    "component_sd": ("facet", "coordinate"),
    "benchmark_sd": ("benchmark", "coordinate"),
    "group_effects": ("group", "coordinate"),
    "subject_effects": ("covariate",),
}


def draw_labels(fit: Calibration) -> dict[str, Any]:
    """Names of the axes of a fit's draws, and labels along them.

    Returns `dims`, names of axes by variable, and `coords`, labels by axis, for
    `to_arviz` and `write_draws`. Axes are `subject`, `item`, `group` (benchmarks or
    metrics; `other_group` where there are two), `coordinate` (of items, as the columns
    of `effects.csv`), `effect`, `facet`, `benchmark` and `covariate`.
    """
    structure, values = structure_with_draws(fit)
    effects, covariates = structure.effects[0], structure.subject_effects
    coords = {
        "subject": fit.subject_names,
        "item": fit.item_names,
        "group": structure.groups,
        "other_group": structure.groups,
        "coordinate": np.asarray(fit.model.family.coordinate_names),
        # Those of the groups come last, and are a variable of their own.
        "effect": effects[: values["effects"].shape[2]] if "effects" in values else [],
        "facet": structure.facets,
        "benchmark": None if fit.benchmarks is None else np.unique(fit.benchmarks),
        "covariate": None if covariates is None else covariates[0],
    }
    dims = {name: list(axes) for name, axes in _AXES.items() if name in values}
    used = {axis for axes in dims.values() for axis in axes}
    return {"dims": dims, "coords": {k: v for k, v in coords.items() if k in used}}


def _best_order(abilities: pa.Table) -> np.ndarray:
    """The rows of a table of abilities best first, those without one last."""
    ability = np.array(abilities.column("ability").to_pylist(), float)
    return np.argsort(np.where(np.isfinite(ability), -ability, np.inf), kind="stable")


def best_first(abilities: pa.Table) -> pa.Table:
    """Returns a table of abilities as it is written to files, best first."""
    return abilities.take(_best_order(abilities))


def _with_interval(
    name: str, values: np.ndarray, errors: np.ndarray, level: float
) -> dict[str, np.ndarray]:
    """Columns of normal estimates: value, standard error, bounds at a level."""
    half = float(ndtri(0.5 + level / 2)) * errors
    bounds = {"lower": values - half, "upper": values + half}
    return {name: values, f"{name}_se": errors, **bounds}


def structure_tables(fit: Calibration) -> dict[str, pa.Table]:
    """Tables for people, by file name without its ending.

    "group_abilities": by subject and group. "correlations": of pairs of groups, of mean
    responses (raw) and group-specific abilities (specific). "effects": of facets,
    covariates and metrics on the items' coordinates. "variance_components": standard
    deviations of the facets' effects and of items within them. "subject_effects": of
    the covariates on abilities. For `nuts`, "diagnostics" of draws and
    "trajectories" of chains.
    """
    import pyarrow as pa

    structure = fit.structure
    if structure is None:
        return {}
    columns = fit.model.family.coordinate_names

    def labelled(name: str, rows: tuple[np.ndarray, np.ndarray]) -> pa.Table:
        """A table of named rows of values, null for NaN, one for each coordinate."""
        labels, values = rows
        arrays = [pa.array(x, mask=np.isnan(x)) for x in values.T]
        numbers = dict(zip(columns, arrays, strict=True))
        return pa.table({name: pa.array(labels.tolist(), pa.string()), **numbers})

    tables = {"effects": labelled("effect", structure.effects)}
    if structure.standard_deviations is not None:
        tables["variance_components"] = labelled("of", structure.standard_deviations)
    if structure.subject_effects is not None and len(structure.subject_effects[0]):
        names, values, errors = structure.subject_effects
        rows: dict[str, Any] = {"covariate": pa.array(names.tolist(), pa.string())}
        rows |= _with_interval("effect", values, errors, fit.level)
        tables["subject_effects"] = pa.table(rows)
    if structure.draws is not None:
        from irtjax.estimators.posterior import summary, trajectories

        tables["diagnostics"] = summary(structure.draws)
        tables["trajectories"] = trajectories(structure.draws)
    groups = structure.groups.tolist()
    if len(groups) < 2:
        return tables
    order = _best_order(fit.abilities.table)
    ability, error = structure.ability[order].ravel(), structure.error[order].ravel()
    subjects = np.repeat(fit.subject_names[order], len(groups)).tolist()
    rows = {"subject": subjects, "group": groups * len(order)}
    rows |= _with_interval("ability", ability, error, fit.level)
    tables["group_abilities"] = pa.table(rows)
    first, second = np.triu_indices(len(groups), 1)
    pairs = {
        "first": [groups[i] for i in first],
        "second": [groups[i] for i in second],
        "raw": structure.raw_correlation[first, second],
        "specific": structure.specific_correlation[first, second],
    }
    for end in ("lower", "upper"):
        bound = getattr(structure, f"correlation_{end}")
        if bound is not None:
            pairs[f"specific_{end}"] = bound[first, second]
    tables["correlations"] = pa.table(pairs)
    return tables


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
