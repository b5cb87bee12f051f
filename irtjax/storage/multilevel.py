"""What a multilevel fit holds beyond items and abilities, as arrays and as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from irtjax.calibration.calibration import Structure
from irtjax.models.multilevel.covariance_mixture import Possible

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.calibration import Calibration

_PREFIX = "structure."
_SUBJECT_EFFECTS = tuple(
    f"subject_effect_{part}" for part in ("names", "values", "errors")
)

#: Axes of what a sampler keeps, after chains and draws.
_AXES = {
    "ability": ("subject", "group"),
    "general_mean": ("subject",),
    "expected_score": ("subject",),
    "coordinates": ("item", "coordinate"),
    "own_covariance": ("group", "other_group"),
    "effects": ("effect", "coordinate"),
    "residual_sd": ("coordinate",),
    "component_sd": ("level", "coordinate"),
    "benchmark_sd": ("benchmark", "coordinate"),
    "group_effects": ("group", "coordinate"),
    "subject_effects": ("covariate",),
}


def structure_arrays(structure: Structure | None) -> dict[str, Any]:
    """Arrays of a structure by name, for a file; draws are not among them."""
    if structure is None:
        return {}
    fields = structure._asdict()
    fields.pop("draws")
    names, values = fields.pop("effects")
    fields |= {"effect_names": names, "effect_values": values}
    spreads = fields.pop("spreads")
    if spreads is not None:
        fields |= {"spread_names": spreads[0], "spread_values": spreads[1]}
    possible = fields.pop("possible")
    if possible is not None:
        fields |= {f"possible_{k}": v for k, v in possible._asdict().items()}
    of_subjects = fields.pop("subject_effects")
    if of_subjects is not None:
        fields |= dict(zip(_SUBJECT_EFFECTS, of_subjects, strict=True))
    return {f"{_PREFIX}{k}": v for k, v in fields.items() if v is not None}


def structure_of(arrays: dict[str, Any]) -> Structure | None:
    """The structure of a file's arrays; None if it has none."""
    own = {
        name.removeprefix(_PREFIX): value
        for name, value in arrays.items()
        if name.startswith(_PREFIX)
    }
    if not own:
        return None
    effects = own.pop("effect_names"), own.pop("effect_values")
    spreads = None
    if "spread_names" in own:
        spreads = own.pop("spread_names"), own.pop("spread_values")
    bounds = {
        f"correlation_{side}": own.pop(f"correlation_{side}", None)
        for side in ("lower", "upper")
    }
    of_subjects = None
    if _SUBJECT_EFFECTS[0] in own:
        names, values, errors = (own.pop(name) for name in _SUBJECT_EFFECTS)
        of_subjects = names, values, errors
    possible = None
    if "possible_own" in own:
        possible = Possible(*(own.pop(f"possible_{name}") for name in Possible._fields))
    variance = float(own.pop("general_variance", 1.0))
    return Structure(
        **own,
        **bounds,
        effects=effects,
        general_variance=variance,
        subject_effects=of_subjects,
        possible=possible,
        spreads=spreads,
    )


def draw_labels(fit: Calibration) -> dict[str, Any]:
    """Names for the axes of a fit's draws, and for the places along them.

    Args:
        fit: A multilevel fit by `nuts`, in the session that made it.

    Returns:
        `dims`, names of axes by variable, and `coords`, labels by axis: what `to_arviz`
        and `write_draws` take. Axes are `subject`, `item`, `group` (benchmarks or
        metrics; `other_group` where there are two), `coordinate` (of items, as the
        columns of `effects.csv`), `effect`, `level`, `benchmark` and `covariate`.

    Raises:
        ValueError: If the fit has no draws.
    """
    structure = fit.structure
    if structure is None or structure.draws is None:
        raise ValueError(
            "the fit has no draws: fit with method='nuts', and use the fit itself"
            " (saved fits do not keep draws; --save-draws writes them, labelled)"
        )
    values = structure.draws.values
    effects, covariates = structure.effects[0], structure.subject_effects
    coords = {
        "subject": fit.subjects,
        "item": fit.items,
        "group": structure.groups,
        "other_group": structure.groups,
        "coordinate": np.asarray(fit.model.family.coordinate_names),
        # Those of the groups come last, and are a variable of their own.
        "effect": effects[: values["effects"].shape[2]] if "effects" in values else [],
        "level": structure.levels,
        "benchmark": None if fit.benchmarks is None else np.unique(fit.benchmarks),
        "covariate": None if covariates is None else covariates[0],
    }
    dims = {name: list(axes) for name, axes in _AXES.items() if name in values}
    used = {axis for axes in dims.values() for axis in axes}
    return {"dims": dims, "coords": {k: v for k, v in coords.items() if k in used}}


def best_order(abilities: pa.Table) -> np.ndarray:
    """Returns the rows of a table of abilities best first, those without one last."""
    ability = np.array(abilities.column("ability").to_pylist(), float)
    return np.argsort(np.where(np.isfinite(ability), -ability, np.inf), kind="stable")


def best_first(abilities: pa.Table) -> pa.Table:
    """Returns a table of abilities as it is written to files, best first."""
    return abilities.take(best_order(abilities))


def structure_tables(fit: Calibration) -> dict[str, pa.Table]:
    """Tables for people, by file name without its ending.

    "group_abilities": a row for each subject and group. "correlations": a row for each
    pair of groups, of mean responses (raw) and of the groups' own parts of ability.
    "effects": what levels, covariates and metrics add to the items' coordinates;
    "spreads": standard deviations of the levels' effects and of items within them.
    "subject_effects": what covariates of subjects add to their abilities. Of `nuts`
    "diagnostics" and "trajectories": how well what was kept is known, and how the
    chains went.
    """
    import pyarrow as pa

    structure = fit.structure
    if structure is None:
        return {}
    tables: dict[str, pa.Table] = {}
    columns = fit.model.family.coordinate_names
    names, values = structure.effects
    tables["effects"] = pa.table(
        {
            "effect": pa.array(names.tolist(), pa.string()),
            **{name: values[:, k] for k, name in enumerate(columns)},
        }
    )
    if structure.spreads is not None:
        names, values = structure.spreads
        found = {
            name: pa.array(values[:, k], mask=np.isnan(values[:, k]))
            for k, name in enumerate(columns)
        }
        of = pa.array(names.tolist(), pa.string())
        tables["spreads"] = pa.table({"of": of, **found})
    if structure.subject_effects is not None and len(structure.subject_effects[0]):
        names, values, errors = structure.subject_effects
        half = float(ndtri(0.5 + fit.level / 2)) * errors
        tables["subject_effects"] = pa.table(
            {
                "covariate": pa.array(names.tolist(), pa.string()),
                "effect": values,
                "effect_se": errors,
                "lower": values - half,
                "upper": values + half,
            }
        )
    if structure.draws is not None:
        from irtjax.estimators.posterior import summary, trajectories

        tables["diagnostics"] = summary(structure.draws)
        tables["trajectories"] = trajectories(structure.draws)
    groups = structure.groups.tolist()
    if len(groups) < 2:
        return tables
    order = best_order(fit.ability_table)
    subjects = fit.subjects[order]
    ability, error = structure.ability[order], structure.error[order]
    half = float(ndtri(0.5 + fit.level / 2)) * error
    tables["group_abilities"] = pa.table(
        {
            "subject": np.repeat(subjects, len(groups)).tolist(),
            "group": groups * len(subjects),
            "ability": ability.ravel(),
            "ability_se": error.ravel(),
            "lower": (ability - half).ravel(),
            "upper": (ability + half).ravel(),
        }
    )
    first, second = np.triu_indices(len(groups), 1)
    pairs = {
        "first": [groups[i] for i in first],
        "second": [groups[i] for i in second],
        "raw": structure.raw_correlation[first, second],
        "own": structure.own_correlation[first, second],
    }
    if structure.correlation_lower is not None:
        assert structure.correlation_upper is not None
        pairs["own_lower"] = structure.correlation_lower[first, second]
        pairs["own_upper"] = structure.correlation_upper[first, second]
    tables["correlations"] = pa.table(pairs)
    return tables
