"""What a structured fit holds beyond items and abilities, as arrays and as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from irtjax.calibration import Structure

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration import Calibration

_PREFIX = "structure."


def structure_arrays(structure: Structure | None) -> dict[str, Any]:
    """Arrays of a structure by name, for a file; draws are not among them."""
    if structure is None:
        return {}
    fields = structure._asdict()
    fields.pop("draws")
    names, values = fields.pop("effects")
    fields |= {"effect_names": names, "effect_values": values}
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
    bounds = {
        f"correlation_{side}": own.pop(f"correlation_{side}", None)
        for side in ("lower", "upper")
    }
    return Structure(**own, **bounds, effects=effects)


def structure_tables(fit: Calibration) -> dict[str, pa.Table]:
    """Tables for people, by file name without its ending.

    "group_abilities": a row for each subject and group. "correlations": a row for each
    pair of groups, of mean responses (raw) and of the groups' own parts of ability.
    "effects": what levels and covariates add to the items' coordinates.
    """
    import pyarrow as pa

    structure = fit.structure
    if structure is None:
        return {}
    tables: dict[str, pa.Table] = {}
    columns = [
        parameter.name
        if parameter.bijection.kind != "positive"
        else f"log_{parameter.name}"
        for parameter in fit.model.family.parameters
    ]
    names, values = structure.effects
    tables["effects"] = pa.table(
        {
            "effect": pa.array(names.tolist(), pa.string()),
            **{name: values[:, k] for k, name in enumerate(columns)},
        }
    )
    groups = structure.groups.tolist()
    if len(groups) < 2:
        return tables
    subjects = fit.ability_table.column("subject").to_pylist()
    half = float(ndtri(0.5 + fit.level / 2)) * structure.error
    tables["group_abilities"] = pa.table(
        {
            "subject": np.repeat(subjects, len(groups)).tolist(),
            "group": groups * len(subjects),
            "ability": structure.ability.ravel(),
            "ability_se": structure.error.ravel(),
            "lower": (structure.ability - half).ravel(),
            "upper": (structure.ability + half).ravel(),
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
    if structure.draws is not None:
        from irtjax.diagnostics import summary

        tables["diagnostics"] = summary(structure.draws)
    return tables
