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
    Task,
    check_common,
    check_used,
    takes_cells,
)
from irtjax.inference import check_kind
from irtjax.likelihood.padding import cut_start
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.families.bounded import arrays_of
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
        data, options = parts.data, parts.options
        chosen = make_model(self.model, table, bounds=data["bounds"], **parts.model)
        made = make_method(method, parts.fields, chosen, table.num_subjects)
        if isinstance(self.model, str) and parts.model["priors"] == "weak":
            chosen = made.adapted(chosen)
        stated = isinstance(parts.model["priors"], Mapping) and chosen.priors
        if stated and not made.priors_of(chosen):
            raise ValueError(
                f"priors has no effect by method {made.name!r}, which uses none: leave"
                " it out, or use method='em'"
            )
        chosen = weighted_priors(chosen, made)
        check_data(table, chosen, level)
        chosen, exists = with_categories(chosen, table)
        check_used(chosen, parts)
        check_common(chosen, options.get("anchor"))
        if chosen.has_lengths:
            table = without_zero_lengths(table, data["zero_lengths"])
        ordered, places = table, None
        few = takes_cells(table, chosen, made, options)
        order = None if few else made.subject_order(table)
        if order is not None:
            ordered, places = table.select(subjects=order), np.argsort(order)
        offset = data["length_offset"] if chosen.has_lengths else None
        if offset is not None:
            length_checks.refuse_constant(ordered)
        responses: Any
        if few:
            responses, warnings, scaling = table.sparse_responses(), (), {}
        else:
            ordered, responses, warnings, scaling = arrays_of(
                ordered, chosen, data, floating, offset=offset
            )
        anchor, start = options.get("anchor"), options.get("start", "proportions")
        anchored = None if anchor is None else read_anchor(anchor)
        if anchored is not None:
            refuse_other_anchors(anchor, anchored, table.item_contents)
        # Before start values, whose program takes a second to compile.
        plain = Problem.create(chosen, responses)
        plain = dataclasses.replace(plain, anchored=anchored is not None)
        check_suits(made, plain)
        made.check_anchors(plain)
        if isinstance(start, str):
            padded = plain
            if start == "proportions":
                padded = made.padded(plain, floating)
            first = _start_jit(padded.model, padded.data, how=start, dtype=floating)
            first = cut_start(first, responses)
        else:
            # Abilities of a start are in the order of the table that was given.
            first = start if places is None else start._replace(theta=None)
        first = _floating(first, floating)
        free = None
        chosen = _with_lacking(chosen, anchored)
        if exists is not None:
            family: Any = chosen.family
            closed, free = family.close(first.items, exists)
            first = first._replace(items=closed)
        problem, first = _anchored(chosen, responses, first, ordered.items, anchored)
        if free is not None:
            freed = problem.free & jnp.asarray(free)
            problem = eqx.tree_at(lambda x: x.free, problem, freed)
        kind = options.get("standard_errors", "none")
        if kind != "none":
            check_kind(problem, kind)
        priors = made.priors_of(chosen)
        record = {
            "model": chosen.name,
            "priors": {name: repr(prior) for name, prior in priors.items()},
            "positive": parts.model["positive"],
            "anchored_items": len(set(anchored or ()) & set(table.items.tolist())),
            "start": start if isinstance(start, str) else "given",
            "population": made.record().get("population", "normal"),
            "standard_errors": kind,
            "item_uncertainty": options.get("item_uncertainty", True),
            # It depends on the memory that was free, too.
            **({"storage": "cells"} if few else {}),
            **({} if offset is None else _of_lengths(data)),
            **scaling,
        }
        if exists is not None:
            note = categories_note(table, chosen, exists)
            ordered = ordered.replace(notes=(*ordered.notes, note))
        if few and kind != "none":
            ordered = ordered.replace(notes=(*ordered.notes, APPROXIMATE))
        if made.marginal and (skipped := warning_of_missing(table)):
            integrated = chosen.family.integrable and chosen.family.has_slope
            cure = ", or use method='laplace'" * (integrated and not chosen.has_lengths)
            warnings = (*warnings, skipped + cure)
        return Task(made, ordered, problem, first, None, warnings, record, places)

    def finish(self, estimates: Estimates, task: Task) -> Estimates:
        """The estimates, with what the correlation of lengths depends on."""
        if not task.problem.model.has_lengths:
            return estimates
        sentences = length_checks.warnings_of(task.problem, estimates, task.table)
        return dataclasses.replace(
            estimates, warnings=(*estimates.warnings, *sentences)
        )


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
