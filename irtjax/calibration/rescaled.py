"""A calibration on another scale of ability: theta* = A theta + B.

Discriminations become a / A, intercepts d - a B / A, and difficulties A b + B. No
expected response and no rank changes.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from irtjax.calibration.parts import Populations
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from irtjax.calibration.score_curve import why_not_ranked
from irtjax.calibration.tables import (
    ability_interval,
    errors_of_parameters,
    floats,
    number_column,
)
from irtjax.data.result_text import with_level
from irtjax.models.family import AbstractResponseFamily, Items

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.calibration import Calibration

#: Columns of the item table that depend on the scale.
_COLUMNS = re.compile(
    r"(discrimination|intercept|difficulty|category_slope|category_intercept)"
    r"(?:_(\d+))?(_se)?"
)


class Rescaling(NamedTuple):
    """A scale of ability on which a calibration is put, with its errors.

    Attributes:
        scale, shift: A > 0 and B.
        item_covariance: `[items, columns, columns]` of the items' unconstrained
            coordinates on the new scale, which count errors of A and B; or None.
        shared: `[subjects, rank]` loadings of the errors that abilities on the new
            scale share; or None.
        own: `[subjects]` standard errors of abilities, on the old scale, that they do
            not share.
    """

    scale: float
    shift: float
    item_covariance: np.ndarray | None
    shared: np.ndarray | None
    own: np.ndarray


def moved_item(
    family: AbstractResponseFamily, item: Items, scale: Any, shift: Any
) -> Items:
    """The item that responds at scale * theta + shift as `item` does at theta.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model = two_parameter()
    >>> item = jax.tree.map(lambda x: x[0], model.constrain(np.array([[2.0, 1.0]])))
    >>> moved = moved_item(model.family, item, 2.0, 3.0)
    >>> float(moved.discrimination), float(moved.intercept)
    (1.0, -2.0)
    """
    slope = item.discrimination
    slope = slope / scale if family.has_slope else slope
    intercept = (item.intercept.T - slope.T * shift).T
    moved = item._replace(discrimination=slope, intercept=intercept)
    # With what follows from these, such as the slopes of categories.
    return family.complete({x.name: getattr(moved, x.name) for x in family.parameters})


def check_one_scale(fit: Calibration) -> None:
    """Refuses calibrations whose results depend on the scale of ability in other ways.

    Raises:
        ValueError: For several abilities, response lengths, covariates of subjects,
            populations by group, and slopes that are not identified.
    """
    why = why_not_ranked(fit)
    structure = fit.structure
    if not why and structure is not None and structure.subject_effects is not None:
        why = "its subjects have covariates" * bool(len(structure.subject_effects[0]))
    if not why and fit.part(Populations) is not None:
        why = "its groups of subjects have populations of their own"
    if why:
        raise ValueError(
            f"a {fit.model.name} fit cannot be put on another scale: {why}; use"
            " `link.abilities`"
        )


def rescaled(fit: Calibration, change: Rescaling, note: str) -> Calibration:
    """The calibration on another scale, with a note on it.

    Args:
        fit: The calibration.
        change: The scale.
        note: What the scale is, for `Calibration.notes`.

    Raises:
        ValueError: As `check_one_scale`.
    """
    check_one_scale(fit)
    scale, shift, covariance, shared, own = change
    parameters, family = fit.parameters, fit.model.family
    moved = lambda x: None if x is None else np.asarray(x * scale + shift, x.dtype)
    population = parameters.population
    mean, sd = np.asarray(population.mean), np.asarray(population.sd)
    items = jax.tree.map(np.asarray, moved_item(family, parameters.items, scale, shift))
    as_before = lambda new, old: np.asarray(new, np.asarray(old).dtype)
    parameters = parameters._replace(
        items=jax.tree.map(as_before, items, parameters.items),
        population=population._replace(
            mean=moved(mean), sd=np.asarray(sd * scale, sd.dtype)
        ),
        theta=moved(parameters.theta),
    )
    (ability,) = floats(fit.abilities.table, "ability")
    variance = np.square(scale * own)
    if shared is not None:
        variance = variance + np.sum(np.square(shared), axis=1)
    result = dataclasses.replace(
        fit,
        parameters=parameters,
        item_covariance=covariance,
        ability_shared=shared,
        ability_scale=_stretch(fit, ability, shared),
        abilities=_ability_table(fit, scale, shift, np.sqrt(variance)),
        parts=tuple(part.rescaled(scale, shift) for part in fit.parts),
        notes=(*fit.notes, note),
        options={**fit.options, "scale": {"A": scale, "B": shift}},
    )
    table = _item_table(result, fit.items.table, scale, shift)
    return dataclasses.replace(result, items=ItemTable(table))


def _stretch(fit: Calibration, ability: np.ndarray, shared) -> np.ndarray | None:
    """The part of shared errors that stretches all abilities, as large as before.

    `ranking.scale_loadings` leaves a part of it among the errors of differences where
    subjects may not differ. The error of A changes no order: it is not added to that.
    """
    before = fit.ability_scale
    if before is None or shared is None or fit.ability_shared is None:
        return before if shared is None else None
    usable = np.isfinite(ability)
    whole = [
        _whole_stretch(ability[usable], loadings[usable])
        for loadings in (np.asarray(fit.ability_shared), shared)
    ]
    square = np.sum(whole[0] ** 2)
    share = np.sum(np.asarray(before)[usable] * whole[0]) / (square or 1.0)
    result = np.zeros(len(ability))
    result[usable] = share * whole[1]
    return result


def _whole_stretch(ability: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """`ranking.scale_loadings` without its limit: the covariance with the stretch."""
    gap = ability - ability.mean()
    stretch = gap @ shared
    size = np.sqrt(np.sum(stretch**2))
    return shared @ stretch / (size or 1.0)


def _ability_table(
    fit: Calibration, scale: float, shift: float, error: np.ndarray
) -> AbilityTable:
    """The ability table, on the new scale."""
    table = fit.abilities.table
    (ability,) = floats(table, "ability")
    ability = scale * ability + shift
    lower, upper = ability_interval(fit, ability, error, fit.level)
    columns = {"ability": ability, "ability_se": error, "lower": lower, "upper": upper}
    for name, values in columns.items():
        table = _replaced(table, name, values)
    return AbilityTable(with_level(table, fit.level))


def _item_table(
    fit: Calibration, table: pa.Table, scale: float, shift: float
) -> pa.Table:
    """The item table on the new scale; `fit` has the new parameters."""
    errors = {}
    if fit.item_covariance is not None:
        errors = errors_of_parameters(
            fit.model, fit.parameters.items, fit.item_covariance
        )
    items = fit.parameters.items
    slope = np.asarray(items.discrimination, float)
    for column in table.column_names:
        match = _COLUMNS.fullmatch(column)
        if not match:
            continue
        name, number, is_error = match.groups()
        if not is_error and name.startswith("category"):
            of_category = np.asarray(getattr(items, name), float)
            table = _replaced(table, column, of_category[:, int(number) - 1])
        elif not is_error:
            (value,) = floats(table, column)
            moved = {
                "discrimination": value / (scale if fit.model.family.has_slope else 1),
                "intercept": value - slope * shift,
                "difficulty": value * scale + shift,
            }
            table = _replaced(table, column, moved[name])
        elif name in errors and errors[name].ndim == 1 + bool(number):
            error = errors[name]
            table = _replaced(
                table, column, error[:, int(number) - 1] if number else error
            )
    return table


def _replaced(table: pa.Table, column: str, values: np.ndarray) -> pa.Table:
    """The table with other numbers in a column; what was null is null."""
    (before,) = floats(table, column)
    new = number_column(np.where(np.isfinite(before), values, np.nan))
    return table.set_column(table.column_names.index(column), column, new)
