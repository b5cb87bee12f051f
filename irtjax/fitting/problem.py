"""From a labelled table and a model to the problem of arrays that a method solves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.data.responses import Responses
from irtjax.data.table import ResponseTable
from irtjax.estimators.catalogue import method_class
from irtjax.estimators.driver import AbstractEstimator
from irtjax.estimators.laplace.problem import MultilevelProblem
from irtjax.estimators.marginal.refinement import LARGE
from irtjax.estimators.start import start_values
from irtjax.fitting.anchors import apply_anchor, read_anchor
from irtjax.fitting.resolve import check_data, make_method, make_model
from irtjax.fitting.settings import Parts
from irtjax.likelihood.padding import cut_start, pad_responses
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import MULTILEVEL_MODELS
from irtjax.models.families.bounded import check_ends, prepare, with_scores
from irtjax.models.model import Model
from irtjax.models.multilevel.design import NESTED, Layout, lay_out
from irtjax.numerics.programs import stored_jit
from irtjax.uncertainty import check_kind

_start_jit = stored_jit(start_values)


class Task(NamedTuple):
    """The problem of a method, and the labels of its results.

    Attributes:
        method: The method, with the settings that suit the model.
        table: The responses in the order that the method sees them.
        start: Start values; None where the method makes its own.
        layout: Names of the parts of a multilevel model; None of others.
        warnings: Of preparing the data.
        options: For the record of the fit.
    """

    method: AbstractEstimator
    table: ResponseTable
    problem: Any
    start: Start | None
    layout: Layout | None
    warnings: tuple[str, ...]
    options: dict[str, Any]


def make_task(
    table: ResponseTable,
    model: Model | str,
    method: AbstractEstimator | str,
    parts: Parts,
    *,
    level: float,
    dtype: Any,
) -> Task:
    """The task of a fit; a ValueError in one line for what does not suit."""
    # The method's state has the dtype of the start values.
    floating = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
    kind = method_class(method) if isinstance(method, str) else method
    multilevel = kind.multilevel or model in MULTILEVEL_MODELS
    make = _multilevel_task if multilevel else _item_task
    return make(table, model, method, parts, level, floating)


def _item_task(
    table: ResponseTable,
    model: Model | str,
    named: AbstractEstimator | str,
    parts: Parts,
    level: float,
    floating: Any,
) -> Task:
    """The task of a method that estimates items as parameters."""
    data, options = parts.data, parts.options
    chosen = make_model(model, table, bounds=data["bounds"], **parts.model)
    method = make_method(named, parts.fields, chosen, table.num_subjects)
    if isinstance(model, str) and parts.model["priors"] == "weak":
        chosen = method.adapted(chosen)
    check_data(table, chosen, level)
    _check_used(chosen, parts)
    _check_common(chosen, method, options.get("anchor"))
    ordered = table
    if method.sorts_subjects and table.values.size >= LARGE:
        # Neighbours in ability share a window of nodes: see `expected_counts`.
        order = np.argsort(table.subject_accuracy(), kind="stable")
        ordered = table.select(subjects=order)
    offset = None if chosen.lengths is None else data["length_offset"]
    ordered, responses, warnings, scaling = _prepared(
        ordered, chosen, data, floating, offset
    )
    anchor, start = options.get("anchor"), options.get("start", "proportions")
    anchored = None if anchor is None else read_anchor(anchor)
    # Before start values, whose program takes a second to compile.
    plain = Problem.create(chosen, responses)
    method.check(dataclasses.replace(plain, anchored=anchored is not None))
    if isinstance(start, str):
        padded = chosen, responses
        if method.pads and start == "proportions":
            *padded, _ = pad_responses(chosen, responses, floating)
        first = cut_start(_start_jit(*padded, how=start, dtype=floating), responses)
    else:
        # Abilities of a start are in the order of the table that was given.
        sorted_ = ordered.subjects is not table.subjects
        first = start._replace(theta=None) if sorted_ else start
    first = _floating(first, floating)
    problem, first = _anchored(chosen, responses, first, ordered.items, anchored)
    kind = options.get("standard_errors", "none")
    if kind != "none":
        check_kind(problem, kind)
    record = {
        "model": chosen.name,
        "priors": {name: repr(prior) for name, prior in chosen.priors.items()},
        "positive": parts.model["positive"],
        "anchored_items": len(set(anchored or ()) & set(table.items.tolist())),
        "start": start if isinstance(start, str) else "given",
        "population": getattr(method, "population", "normal"),
        "standard_errors": kind,
        "item_uncertainty": options.get("item_uncertainty", True),
        **({} if chosen.lengths is None else {"length_offset": data["length_offset"]}),
        **scaling,
    }
    return Task(method, ordered, problem, first, None, warnings, record)


def _check_used(model: Model, parts: Parts) -> None:
    """Refuses settings that a model would ignore."""
    if parts.model["positive"] and not model.family.has_slope:
        raise ValueError(
            f"positive has no effect on a {model.name} model, whose items have equal"
            " discriminations: leave it out"
        )
    if model.lengths is None and parts.data["length_offset"] != 1.0:
        raise ValueError(
            f"length_offset is for the model lart: a {model.name} model has no lengths"
        )


def _check_common(model: Model, method: AbstractEstimator, anchor: Any = None) -> None:
    """Refuses parameters common to all items where they would vary between items."""
    if not model.family.common:
        return
    named = f"the model {model.name} has a {model.family.common[0]} common to all items"
    if not method.common:
        raise ValueError(f"{named}: use method='em', not {method.name!r}")
    if set(model.priors) & set(model.family.common):
        raise ValueError(f"{named}, which has no prior: leave it out of priors")
    if anchor is not None:
        raise ValueError(f"{named}, which anchors would fix: leave anchor out")


def _multilevel_task(
    table: ResponseTable,
    model: Model | str,
    named: AbstractEstimator | str,
    parts: Parts,
    level: float,
    floating: Any,
) -> Task:
    """The task of a multilevel model, or of a method that integrates items out."""
    name = named if isinstance(named, str) else named.name
    kind = method_class(named) if isinstance(named, str) else named
    if not kind.multilevel:
        raise ValueError(
            f"a {model} model is estimated by method='laplace', 'nuts' or 'vi', not"
            f" {name!r}"
        )
    plan, priors = dict(parts.multilevel), parts.model["priors"]
    if priors is None or priors == "none":
        raise ValueError(
            "multilevel models estimate the priors of items: omit priors, or name those"
            " to fix"
        )
    if isinstance(plan["levels"], Mapping):
        # The labels of "benchmark/domain" are those of the domain.
        facets = {
            name.rsplit(NESTED)[-1]: np.asarray(labels).astype(str)
            for name, labels in plan["levels"].items()
        }
        table = dataclasses.replace(table, item_facets={**table.item_facets, **facets})
    chosen = _family_model(table, model, plan.pop("family"), parts)
    if chosen.lengths is not None:
        raise ValueError(
            f"a {chosen.name} model is estimated by method='em' or 'saem', not"
            f" {name!r}, which ignores lengths"
        )
    method = make_method(named, parts.fields, chosen, table.num_subjects)
    _check_common(chosen, method)
    check_data(table, chosen, level)
    table, responses, warnings, scaling = _prepared(
        table, chosen, parts.data, floating, None
    )
    grouped = model in ("multibenchmark", "multimetric")
    _check_groups(table, model, grouped, plan)
    levels = tuple(plan["levels"])
    if model == "multimetric" and plan["shared_items"] is None and "stem" not in levels:
        levels = ("stem", *levels)
    plan["levels"] = levels
    fixed = {} if isinstance(priors, str) else dict(priors)
    layout = lay_out(
        table, chosen.family, grouped=grouped, priors=fixed, dtype=floating, **plan
    )
    record = {
        "model": model if isinstance(model, str) else model.name,
        "family": chosen.name,
        "priors": {name: repr(prior) for name, prior in fixed.items()},
        "levels": list(levels),
        "item_covariates": sorted(plan["item_covariates"] or {}),
        "subject_covariates": layout.covariates.tolist(),
        **_chosen(plan),
        **scaling,
    }
    problem = MultilevelProblem.create(layout.model, responses)
    method.check(problem)
    return Task(method, table, problem, None, layout, warnings, record)


def _prepared(
    table: ResponseTable,
    model: Model,
    data: Mapping[str, Any],
    floating: Any,
    offset: float | None,
) -> tuple[ResponseTable, Responses, tuple[str, ...], dict[str, Any]]:
    """Table and arrays with scores on the logit scale, warnings and the record."""
    scores = prepare(table, model, squeeze=data["squeeze"], bounds=data["bounds"])
    warnings, record = (), {}
    if scores is not None:
        check_ends(scores, model)
        table, warnings, record = scores.table, scores.warnings, scores.options
    responses = table.responses(floating, length_offset=offset)
    return table, with_scores(responses, scores, floating), warnings, record


def _family_model(
    table: ResponseTable, model: Model | str, family: str | None, parts: Parts
) -> Model:
    """The model of single responses, with positive discriminations."""
    kind = model
    if model in MULTILEVEL_MODELS:
        kind = family or ("continuous" if table.kind == "continuous" else "2pl")
    elif family is not None:
        raise ValueError(
            "family requires a multilevel model: use the model multibenchmark,"
            " multimetric or hierarchical"
        )
    settings = {**parts.model, "priors": "weak", "positive": True}
    chosen = make_model(kind, table, bounds=parts.data["bounds"], **settings)
    if not chosen.family.has_slope and chosen.scale == "standard":
        raise ValueError(
            f"multilevel models have equal slopes as 'rasch', with slopes of 1 and an"
            f" estimated standard deviation of ability, not as {kind!r}: use 'rasch'"
        )
    return chosen


def _check_groups(
    table: ResponseTable, model: Model | str, grouped: bool, plan: Mapping[str, Any]
) -> None:
    """Refuses groups and shared items that a multilevel model does not have."""
    names = np.unique(np.asarray(table.benchmarks)).tolist()
    if grouped and len(names) < 2:
        raise ValueError(
            f"a {model} model needs items of two or more benchmarks or metrics, not of"
            f" {names[0]!r} alone: name their column with benchmark= when reading, or"
            " use the model 'hierarchical'"
        )
    if plan["shared_items"] is None and not plan["metric_effects"]:
        raise ValueError(
            "metric_effects=False requires shared_items: metrics that share nothing"
            " have all parameters of their own"
        )
    if plan["shared_items"] is not None and model != "multimetric":
        raise ValueError(
            f"shared_items requires the model multimetric, not {model}: it names what"
            " several metrics measure"
        )


def _chosen(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a multilevel model that are in the record where they were given."""
    found: dict[str, Any] = {}
    shared = plan["shared_items"]
    if shared is not None:
        found["shared_items"] = shared if isinstance(shared, str) else "given"
        found["metric_effects"] = plan["metric_effects"]
    if plan["spread_by_benchmark"]:
        found["spread_by_benchmark"] = True
    if plan["hyperpriors"] is not None:
        scales = vars(plan["hyperpriors"]).items()
        found["hyperpriors"] = {name: float(value) for name, value in scales}
    return found


def _floating(start: Start, dtype: Any) -> Start:
    return jax.tree.map(lambda a: jnp.asarray(a, dtype), start)


def _anchored(
    model: Model,
    responses: Responses,
    first: Start,
    items: np.ndarray,
    values: dict[str, dict[str, float]] | None,
) -> tuple[Problem, Start]:
    """The problem and the start, with anchors (`read_anchor`) in place."""
    if values is None:
        return Problem.create(model, responses), first
    dtype, family = first.items[0].dtype, model.family
    common = None
    freed = family.with_free_slopes()
    if freed is not None and not family.has_slope:
        # Fixed slopes for every item, and the population on the anchors' scale.
        slopes = {v["discrimination"] for v in values.values() if "discrimination" in v}
        if len(slopes) > 1 or (slopes not in (set(), {1.0}) and model.name == "rasch"):
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
