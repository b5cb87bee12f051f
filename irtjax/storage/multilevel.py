"""Results of a multilevel fit other than items and abilities, as arrays and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.parts.groups import structure_with_draws

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
