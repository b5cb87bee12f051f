"""The task of multilevel models, and of methods that integrate items out."""

from __future__ import annotations

import dataclasses
from typing import Any

from irtjax.data.table import ResponseTable
from irtjax.estimators.acceptance import check_suits
from irtjax.estimators.laplace.problem import MultilevelProblem
from irtjax.fitting.resolve import check_data, make_method, make_model
from irtjax.fitting.settings import MODEL
from irtjax.fitting.skipped import NOTE, covariates_of_missing
from irtjax.fitting.specification import (
    AbstractSpecification,
    Parts,
    Task,
    check_common,
    check_used,
)
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import MODELS, model_class
from irtjax.models.families.bounded import MANY_ENDS, arrays_of, at_the_ends
from irtjax.models.model import Model
from irtjax.models.multilevel.specification import (
    MULTILEVEL,
    AbstractMultilevel,
    Hierarchical,
)


class Multilevel(AbstractSpecification):
    """A multilevel model, or a model of one ability whose items are integrated out."""

    settings = {**MODEL, **MULTILEVEL}

    def __init__(self, model: Any):
        self.model = model
        self.name = model if isinstance(model, str) else model.name
        self.nested = issubclass(model_class(model), AbstractMultilevel)
        if self.nested:
            self.default = "laplace", f"{self.name} is a multilevel model"
        if not isinstance(model, str):
            # Of a model of one ability, given priors replace learned ones.
            of_model = self.settings if self.nested else MODEL.keys() - {"priors"}
            self.stated = frozenset(of_model)

    def serves(self, method) -> bool:
        """Methods that integrate items out."""
        return method.multilevel

    def task(self, table, method, parts, level, floating) -> Task:
        """The task, with the labels of the table as groups and facets."""
        plan = self._plan(parts)
        table = plan.with_facets(table)
        if plan.item_covariates is None and plan.shared_items is None:
            covariates = covariates_of_missing(table)
            if covariates is not None:
                plan = dataclasses.replace(plan, item_covariates=covariates)
                table = dataclasses.replace(table, notes=(*table.notes, NOTE))
        chosen = self._item_model(plan, table, parts)
        made = make_method(method, parts.fields, chosen, table.num_subjects)
        check_common(chosen)
        check_data(table, chosen, level)
        check_used(chosen, parts)
        table, responses, warnings, scaling = arrays_of(
            table, chosen, parts.data, floating
        )
        check_suits(made, Problem.create(chosen, responses))
        layout = plan.lay_out(table, chosen.family, floating, name=self.name)
        record = {"model": self.name, "item_model": chosen.name, **plan.record(layout)}
        problem = MultilevelProblem.create(layout.model, responses)
        check_suits(made, problem)
        return Task(made, table, problem, None, layout, warnings, record | scaling)

    def _plan(self, parts: Parts) -> AbstractMultilevel:
        """The model with its settings; those of one ability have no groups."""
        if self.nested and not isinstance(self.model, str):
            return self.model
        settings: dict[str, Any] = {
            name: parts.model[name] for name in (*MULTILEVEL, "priors")
        }
        if self.nested:
            return MODELS[self.model](**settings)
        if settings["item_model"] is not None:
            raise ValueError(
                "item_model requires a multilevel model: use the model multibenchmark,"
                " multimetric or hierarchical"
            )
        settings["item_model"] = self.model
        return Hierarchical(**settings)

    def _item_model(
        self, plan: AbstractMultilevel, table: ResponseTable, parts: Parts
    ) -> Model:
        """The model of single responses, with positive discriminations."""
        item_model = plan.item_model
        if item_model is None:
            item_model = "2pl"
            if table.kind == "continuous":
                ends = at_the_ends(table, parts.data["bounds"])
                item_model = "share" if ends >= MANY_ENDS else "continuous"
        chosen = make_model(
            item_model,
            table,
            positive=True,
            ends=parts.model["ends"],
            bounds=parts.data["bounds"],
        )
        if not chosen.family.has_slope and chosen.scale == "standard":
            raise ValueError(
                "multilevel models have equal slopes as 'rasch', with slopes of 1 and"
                f" an estimated standard deviation of ability, not as {chosen.name!r}:"
                " use 'rasch'"
            )
        return chosen
