"""The task of factor models: several abilities, items estimated as parameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, listing
from irtjax.estimators.acceptance import check_suits
from irtjax.estimators.catalogue import method_class
from irtjax.estimators.estimates import Estimates
from irtjax.estimators.loadings import rotated
from irtjax.estimators.marginal.refinement import expects_grid
from irtjax.estimators.start import start_values
from irtjax.fitting.best_start import num_starts_of, with_best_start
from irtjax.fitting.one_ability import APPROXIMATE
from irtjax.fitting.rank_and_prior import (
    METHOD,
    NOISE,
    Search,
    find_rank,
    noise_note,
    with_held_out_prior,
    with_rank,
)
from irtjax.fitting.resolve import (
    category_codes,
    check_data,
    make_method,
    nearly_binary,
    weighted_priors,
    with_codes,
)
from irtjax.fitting.specification import (
    AbstractSpecification,
    Task,
    data_of,
    takes_cells,
)
from irtjax.likelihood.cubature import AFFORDABLE_NODES, MOST_DIMS, count_points
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import HELD_OUT, factor_model
from irtjax.models.factors import FACTOR, Factor
from irtjax.models.model import Model
from irtjax.models.priors import Normal

#: Responses of a subject to the items of a factor from which `mm` is the default.
ENOUGH_RESPONSES = 100
#: Cells of a table times points of a subject for which `gvem` takes some minutes.
MOST_CELLS = 100_000_000
#: Products of a pass over a table on a grid for which `em` takes some minutes.
MOST_PRODUCTS = 12_500_000_000
#: Least standard deviation of the weak prior of slopes of marginal methods, and the
#: variance for as many items to a factor as subjects.
LEAST_SD, PER_SHARE = 2.0, 50.0


def with_wide_slopes(model: Model, num_subjects: int, num_items: float) -> Model:
    """The model with a prior of slopes that leaves the scale of abilities alone.

    All items of a factor pull at its scale together. With J items to a factor
    (`num_items`) and N subjects, N(0, s^2) makes slopes of mean square q smaller by
    J q / (2 N s^2), to first order: by 14 % with N(0, 1) and 100 items for 300 subjects
    (measured). With s^2 = 50 J / N, or more, that is at most q %.
    """
    sd = max(LEAST_SD, math.sqrt(PER_SHARE * num_items / num_subjects))
    priors = {**model.priors, "discrimination": Normal(0.0, round(sd, 3))}
    return dataclasses.replace(model, priors=priors)


def kind_of(table, bounds=None) -> str:
    """Kind of the responses; scores that are 0 or 1 but for a few are binary.

    Responses with bounds are scores, whatever values they took.
    """
    if bounds is not None:
        return "continuous"
    return "binary" if nearly_binary(table) else table.kind


def _too_many_for_gvem(table, plan: Factor) -> str:
    """Why `gvem` would take too long; empty if it would not."""
    cells = table.num_subjects * table.num_items
    samples = method_class("gvem")().num_samples  # pyright: ignore[reportAttributeAccessIssue]
    if cells * count_points(plan.count, samples) > MOST_CELLS:
        return f"{cells:,} cells are too many for gvem"
    return ""


def _too_many_for_em(table, plan: Factor) -> str:
    """Why the grid of `em` would be too large; empty if it would not."""
    if plan.count > MOST_DIMS:
        return f"em has at most {MOST_DIMS} factors, and gvem is for other models"
    cells, codes = table.num_subjects * table.num_items, category_codes(table)
    if cells * len(codes) * AFFORDABLE_NODES > MOST_PRODUCTS:
        return f"{cells:,} cells are too many for em"
    if plan.count >= min(table.num_subjects, table.num_items):
        return ""  # It will be refused.
    model = with_codes(factor_model(plan, len(codes)), codes)
    data = table.responses(jnp.zeros(()).dtype)
    start = start_values(model, data)
    if not expects_grid(Problem.create(model, data), start):
        return "posteriors are expected to be too narrow for the grid of em"
    return ""


def _check_settings(
    plan: Factor, table: ResponseTable, model: Model, options: Mapping[str, Any]
) -> None:
    """Refuses settings that factor models do not have, and too many factors."""
    most = min(table.num_subjects, table.num_items) - 1
    if plan.count > most:
        raise ValueError(
            f"{plan.count} factors of {table.num_subjects} subjects and"
            f" {table.num_items} items: give at most {most}"
        )
    errors = options.get("standard_errors", "none")
    if model.several and errors not in ("observed", "none"):
        raise ValueError(
            f"standard_errors {errors!r} is not for several abilities: use 'observed'"
            " or 'none'"
        )
    if options.get("anchor") is not None:
        raise ValueError("a factor model takes no anchors: leave anchor out")
    if not model.priors:
        raise ValueError(
            "a factor model needs priors, without which its joint estimates have no"
            " finite value: leave priors out, or give a penalty above 0"
        )


def _notes_of_unmeasured(table: ResponseTable, mask: np.ndarray | None) -> list[str]:
    """A note of the items that measure no factor."""
    if mask is None or mask.any(axis=1).all():
        return []
    items = table.items[~mask.any(axis=1)].tolist()
    verb = "measures" if len(items) == 1 else "measure"
    subject = counted(len(items), "item")
    return [f"{subject} {verb} no factor by loadings: {listing(items, 3)}"]


def _start_of(problem: Problem, mask: np.ndarray | None, how: str, dtype: Any) -> Start:
    """Start values, with slopes of 0 where the mask has no loading."""
    model, data = problem.model, problem.data
    if model.several:
        return start_values(model, data, how=how, dtype=dtype, loadings=mask)
    start = start_values(model, data, how=how, dtype=dtype)
    if mask is None:
        return start
    # One factor, which some items do not measure.
    slope = jnp.where(mask[:, 0], start.items.discrimination, 0)
    return start._replace(items=start.items._replace(discrimination=slope))


def _check_variation(table: ResponseTable, count: int) -> None:
    """Refuses several factors of items of which too few have different responses."""
    if count == 1:
        return
    values, seen = table.values, table.observed
    if table.trials is not None:
        values = values / np.maximum(table.trials, 1)
    seen = True if seen is None else seen
    highest = np.max(values, axis=0, where=seen, initial=values.min())
    lowest = np.min(values, axis=0, where=seen, initial=values.max())
    varied = int((highest > lowest).sum())
    if varied <= count:
        raise ValueError(
            f"{count} factors, but only {counted(varied, 'item')} of {values.shape[1]}"
            f" {'has' if varied == 1 else 'have'} responses that differ between"
            " subjects: use fewer factors, or more items and subjects"
        )


class FactorAnalysis(AbstractSpecification):
    """A factor model, as an object or by its name."""

    settings = FACTOR
    default = "gvem", "the factor model has several abilities"

    def __init__(self, model: Factor | str):
        self.model = model
        self.name = Factor.name
        self.stated = frozenset(() if isinstance(model, str) else FACTOR)

    def serves(self, method) -> bool:
        """Methods for several abilities."""
        return method.several

    def default_for(self, table, settings) -> tuple[str, str]:
        """By the responses of a subject to the items of a factor."""
        stated = {name: settings[name] for name in FACTOR if name in settings}
        plan = Factor(**stated) if isinstance(self.model, str) else self.model
        for name, value in (("penalty", NOISE), ("priors", HELD_OUT)):
            setting = plan.priors if name == "priors" else settings.get(name)
            if isinstance(setting, str) and setting == value:
                return METHOD, f"{name} {value!r} requires it"
        if plan.count == 1:
            return "em", "the factor model has one ability"
        plan = plan.of(kind_of(table, settings.get("bounds")))
        if plan.item_model == "continuous":
            return "em", "scores have an exact marginal likelihood"
        priors = plan.priors if isinstance(plan.priors, Mapping) else {}
        prior = priors.get("discrimination")
        name = "gvem" if plan.link == "logit" and plan.item_model == "binary" else "em"
        if isinstance(prior, Normal) and prior.mean != 0:
            return "mm", f"{name} needs a prior of discriminations with mean 0"
        each = table.num_observed / max(table.num_subjects, 1) / plan.count
        reason = (
            f"a subject has {counted(round(each), 'response')} to a factor on average"
        )
        if each >= ENOUGH_RESPONSES:
            return "mm", f"{reason}, {ENOUGH_RESPONSES} or more"
        against = _too_many_for_gvem if name == "gvem" else _too_many_for_em
        against = against(table, plan)
        if against:
            return "mm", against
        return name, f"{reason}, below {ENOUGH_RESPONSES}"

    def task(self, table, method, parts, level, floating) -> Task:
        """The task, with what is left to the data found first."""
        plan = Factor(**parts.model) if isinstance(self.model, str) else self.model
        plan = plan.of(kind_of(table, parts.data["bounds"]))
        search = Search.of(plan, table, method, parts)
        plan, parts = search.usual(plan, parts)
        key = jax.random.key(0) if parts.key is None else parts.key
        task = self._task(plan, table, method, parts, level, floating)
        if search.noise:
            noise, most = find_rank(task, plan, floating, key), plan.count
            plan = dataclasses.replace(plan, factors=noise.rank)
            task = self._task(plan, table, method, parts, level, floating)
            task = with_rank(task, noise, most)
        if search.held_out:
            fixed = isinstance(parts.options.get("start"), Start)
            task = with_held_out_prior(task, plan, floating, fixed, key)
        num = num_starts_of(plan, task)
        return with_best_start(task, num, key) if num > 1 else task

    def _task(self, plan: Factor, table, method, parts, level, floating) -> Task:
        """The task, with start values and the mask of loadings."""
        codes = category_codes(table)
        model = with_codes(factor_model(plan, len(codes)), codes)
        made = make_method(method, parts.fields, model, table.num_subjects)
        if plan.priors == "weak":
            model = made.adapted(model)
        model = weighted_priors(model, made)
        check_data(table, model, level)
        _check_settings(plan, table, model, parts.options)
        mask, target = plan.mask(table), plan.target_of(table)
        if model.several and made.marginal and plan.priors == "weak":
            each = table.num_items / plan.count
            each = each if mask is None else mask.sum(axis=0).max()
            model = with_wide_slopes(model, table.num_subjects, each)
        by_cell = takes_cells(table, model, made, parts.options)
        if not by_cell:
            _check_variation(table, plan.count)
        data = data_of(table, model, parts.data, floating, by_cell=by_cell)
        problem = Problem.create(model, data.responses)
        if mask is not None:
            slopes = jnp.asarray(mask).reshape(table.num_items, -1)
            free = problem.free.at[:, : slopes.shape[1]].set(slopes)
            problem = dataclasses.replace(problem, free=free)
        check_suits(made, problem)
        start = parts.options.get("start", "proportions")
        errors = parts.options.get("standard_errors", "none")
        record = {
            "model": model.name,
            "priors": {name: repr(prior) for name, prior in model.priors.items()},
            "positive": plan.positive,
            **plan.record(),
            "start": start if isinstance(start, str) else "given",
            "standard_errors": errors,
            "item_uncertainty": parts.options.get("item_uncertainty", True),
            **data.record,
        }
        if not isinstance(start, Start):
            start = _start_of(problem, mask, start, floating)
        beyond = plan.beyond(table.num_items, mask)
        warnings = (*data.warnings, beyond) if beyond else data.warnings
        table, notes = data.table, _notes_of_unmeasured(table, mask)
        if by_cell and errors != "none" and not model.several:
            notes.append(APPROXIMATE)
        if notes:
            table = table.replace(notes=(*table.notes, *notes))
        return Task(
            made, table, problem, start, plan.names(), warnings, record, target=target
        )

    def finish(self, estimates: Estimates, task: Task) -> Estimates:
        """The estimates on rotated factors, with the certificate of their number."""
        rotation, noise = task.options["rotation"], task.options.get("noise")
        if estimates.several and rotation != "none":
            estimates = rotated(estimates, rotation, target=task.target)
        if noise is None:
            return estimates
        note = noise_note(noise, estimates.log_likelihood)
        factors = estimates.factors
        if factors is not None:
            certificate = noise["certificate"]
            factors = dataclasses.replace(factors, certificate=certificate)
        verdict = (*estimates.verdict, note)
        return dataclasses.replace(estimates, factors=factors, verdict=verdict)
