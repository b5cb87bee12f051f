"""The task of methods that estimate items as parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax.calibration.parts.lengths import without_zero_lengths
from irtjax.data.responses import Responses
from irtjax.data.table import ResponseTable
from irtjax.estimators.acceptance import check_suits
from irtjax.estimators.estimates import Estimates
from irtjax.estimators.start import start_values
from irtjax.fitting import length_checks
from irtjax.fitting.anchors import (
    Fixed,
    apply_anchor,
    read_anchor,
    refuse_other_anchors,
)
from irtjax.fitting.categories import categories_note, with_categories
from irtjax.fitting.resolve import (
    check_data,
    make_method,
    make_model,
    weighted_priors,
)
from irtjax.fitting.settings import MODEL
from irtjax.fitting.skipped import warning_of_missing
from irtjax.fitting.specification import (
    AbstractSpecification,
    Parts,
    Task,
    check_common,
    check_used,
    data_of,
    takes_cells,
)
from irtjax.inference import check_kind
from irtjax.likelihood.padding import cut_start
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.model import Model
from irtjax.numerics.programs import stored_jit

#: On the errors of items of a fit by observed response.
APPROXIMATE = (
    "standard errors of items are approximate: the fit is by observed response, without"
    " the dense matrix"
)

_start_jit = stored_jit(start_values)


class OneAbility(AbstractSpecification):
    """A model of one ability, or the name of one."""

    settings = MODEL
    default = None

    def __init__(self, model: Model | str):
        self.model = model
        self.name = model if isinstance(model, str) else model.name
        self.stated = frozenset(() if isinstance(model, str) else MODEL)

    def serves(self, method) -> bool:
        """Methods that estimate items as parameters."""
        return not method.multilevel

    def task(self, table, method, parts, level, floating) -> Task:
        """The task, with start values and anchors."""
        settings, options = parts.data, parts.options
        model, made = self._model_and_method(table, method, parts)
        check_data(table, model, level)
        model, exists = with_categories(model, table)
        check_used(model, parts)
        check_common(model, options.get("anchor"))
        if model.has_lengths:
            table = without_zero_lengths(table, settings["zero_lengths"])
        # Devices divide the rows of a matrix.
        by_cell = parts.mesh is None and takes_cells(table, model, made, options)
        order = None if by_cell else made.subject_order(table)
        ordered = table if order is None else table.select(subjects=order)
        offset = settings["length_offset"] if model.has_lengths else None
        if offset is not None:
            length_checks.refuse_constant(ordered)
        data = data_of(
            ordered, model, settings, floating, by_cell=by_cell, offset=offset
        )
        anchor, anchored = options.get("anchor"), None
        if anchor is not None:
            anchored = read_anchor(anchor)
            refuse_other_anchors(anchor, anchored, table.item_contents)
        # Before start values, whose program takes a second to compile.
        problem = Problem.create(model, data.responses)
        problem = dataclasses.replace(problem, anchored=anchored is not None)
        check_suits(made, problem)
        made.check_anchors(problem)
        how = options.get("start", "proportions")
        if order is not None and not isinstance(how, str):
            # Its abilities are in the order of the table that was given.
            how = how._replace(theta=None)
        start = _start_of(made, problem, how, floating)
        model = _with_lacking(model, anchored)
        problem = dataclasses.replace(problem, model=model)
        problem, start = _restricted(problem, start, data.table.items, anchored, exists)
        kind = options.get("standard_errors", "none")
        if kind != "none":
            check_kind(problem, kind)
        notes = []
        if exists is not None:
            notes.append(categories_note(table, model, exists))
        if by_cell and kind != "none":
            notes.append(APPROXIMATE)
        num_anchored = len(set(anchored or ()) & set(table.items.tolist()))
        record = {
            **_record_of(model, made, parts, num_anchored),
            **({} if offset is None else _of_lengths(settings)),
            **data.record,
        }
        ordered = data.table
        if notes:
            ordered = ordered.replace(notes=(*ordered.notes, *notes))
        warnings = (*data.warnings, *_warnings_of_missing(table, model, made))
        places = None if order is None else np.argsort(order)
        return Task(made, ordered, problem, start, None, warnings, record, places)

    def _model_and_method(self, table, method, parts) -> tuple[Model, Any]:
        """The model, with priors that the method weighs, and the method."""
        priors, bounds = parts.model["priors"], parts.data["bounds"]
        model = make_model(self.model, table, bounds=bounds, **parts.model)
        made = make_method(method, parts.fields, model, table.num_subjects)
        if isinstance(self.model, str) and priors == "weak":
            model = made.adapted(model)
        stated = isinstance(priors, Mapping) and model.priors
        if stated and not made.priors_of(model):
            raise ValueError(
                f"priors has no effect by method {made.name!r}, which uses none: leave"
                " it out, or use method='em'"
            )
        return weighted_priors(model, made), made

    def finish(self, estimates: Estimates, task: Task) -> Estimates:
        """The estimates, with what the correlation of lengths depends on."""
        if not task.problem.model.has_lengths:
            return estimates
        sentences = length_checks.warnings_of(task.problem, estimates, task.table)
        return dataclasses.replace(
            estimates, warnings=(*estimates.warnings, *sentences)
        )


def _record_of(
    model: Model, method: Any, parts: Parts, num_anchored: int
) -> dict[str, Any]:
    """Settings of the model and the method, for the record of a fit."""
    start = parts.options.get("start", "proportions")
    priors = method.priors_of(model)
    return {
        "model": model.name,
        "priors": {name: repr(prior) for name, prior in priors.items()},
        "positive": parts.model["positive"],
        "anchored_items": num_anchored,
        "start": start if isinstance(start, str) else "given",
        "population": method.record().get("population", "normal"),
        "standard_errors": parts.options.get("standard_errors", "none"),
        "item_uncertainty": parts.options.get("item_uncertainty", True),
    }


def _warnings_of_missing(table: ResponseTable, model: Model, method: Any) -> list[str]:
    """A warning where missing responses depend on ability, with its cure."""
    skipped = warning_of_missing(table) if method.marginal else None
    if not skipped:
        return []
    family = model.family
    integrated = family.integrable and family.has_slope and not model.has_lengths
    return [skipped + ", or use method='laplace'" * integrated]


def _start_of(method: Any, problem: Problem, how: Start | str, dtype: Any) -> Start:
    """Start values, or those that are given, in a dtype."""
    if not isinstance(how, str):
        return _floating(how, dtype)
    padded = method.padded(problem, dtype) if how == "proportions" else problem
    start = _start_jit(padded.model, padded.data, how=how, dtype=dtype)
    return _floating(cut_start(start, problem.data), dtype)


def _restricted(
    problem: Problem,
    start: Start,
    items: np.ndarray,
    anchored: dict[str, dict[str, Fixed]] | None,
    exists: np.ndarray | None,
) -> tuple[Problem, Start]:
    """The problem and the start with anchors, without categories that do not exist."""
    model, free = problem.model, None
    if exists is not None:
        family: Any = model.family
        closed, free = family.close(start.items, exists)
        start = start._replace(items=closed)
    problem, start = _anchored(model, problem.data, start, items, anchored)
    if free is not None:
        free = problem.free & jnp.asarray(free)
        problem = eqx.tree_at(lambda x: x.free, problem, free)
    return problem, start


def _of_lengths(data: Mapping[str, Any]) -> dict[str, Any]:
    """How response lengths were taken, for the record of a fit."""
    return {name: data[name] for name in ("length_offset", "zero_lengths")}


def _floating(start: Start, dtype: Any) -> Start:
    """The start with arrays of a dtype."""
    return jax.tree.map(lambda a: jnp.asarray(a, dtype), start)


def _anchored(
    model: Model,
    responses: Responses,
    first: Start,
    items: np.ndarray,
    values: dict[str, dict[str, Fixed]] | None,
) -> tuple[Problem, Start]:
    """The problem and the start, with anchors (`read_anchor`) in place."""
    if values is None:
        return Problem.create(model, responses), first
    dtype, family = first.items[0].dtype, model.family
    common = None
    freed = family.with_free_slopes()
    if freed is not None and not family.has_slope:
        # Fixed slopes for every item, and the population on the anchors' scale.
        fixed = [v["discrimination"] for v in values.values() if "discrimination" in v]
        slopes = {slope for value in fixed for slope in np.ravel(value).tolist()}
        unit_slope = model.scale == "unit_slope"
        if len(slopes) > 1 or (unit_slope and slopes - {1.0}):
            raise ValueError(
                f"anchors with {len(slopes)} discriminations do not suit a"
                f" {model.name} model; use 2pl"
            )
        common = slopes.pop() if slopes else 1.0
        values = {k: {**v, "discrimination": common} for k, v in values.items()}
        priors = {k: p for k, p in model.priors.items() if k != "discrimination"}
        model = Model(model.name, freed, priors, model.scale)
        slope = jnp.full_like(first.items.discrimination, common)
        first = first._replace(items=first.items._replace(discrimination=slope))
    first, free = apply_anchor(model, first, items, values)
    if common is not None:
        free = free.at[:, 0].set(False)
    return Problem(model, responses, free, anchored=True), _floating(first, dtype)


def _with_lacking(model: Model, anchored: dict[str, dict[str, Fixed]] | None) -> Model:
    """The model, whose items may lack categories if an anchored item does."""
    values = [v for item in (anchored or {}).values() for v in item.values()]
    lacks = any(np.isnan(np.ravel(v)).any() for v in values)
    if not lacks or not model.family.closable:
        return model
    return dataclasses.replace(
        model, family=dataclasses.replace(model.family, gaps=True)
    )
