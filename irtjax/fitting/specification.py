"""What a fit needs of a kind of model: its settings, its methods, its task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh

from irtjax._types import KeyArray
from irtjax.data.table import ResponseTable
from irtjax.estimators.driver import AbstractEstimator
from irtjax.estimators.estimates import Estimates
from irtjax.likelihood.problem import Start
from irtjax.models.families.bounded import arrays_of
from irtjax.models.model import Model
from irtjax.models.multilevel.design import Layout


class Parts(NamedTuple):
    """Settings by what they belong to, with defaults but in `fields`.

    `key` is that of searches before the fit; None for a fixed one. `mesh` are the
    devices that subjects are divided over; None for one.
    """

    model: dict[str, Any]
    data: dict[str, Any]
    fields: dict[str, Any]
    options: dict[str, Any]
    key: KeyArray | None = None
    mesh: Mesh | None = None


class Task(NamedTuple):
    """The problem of a method, and the labels of its results.

    Attributes:
        method: The method, with the settings that suit the model.
        table: The responses in the order that the method sees them.
        start: Start values; None where the method makes its own.
        layout: Names of the parts of a multilevel model, or of the factors; else None.
        warnings: Of preparing the data.
        options: For the record of the fit.
        places: Where `table` has each subject of the user's; None: in the same order.
        target: `[items, factors]` loadings that a rotation approaches; None without.
    """

    method: AbstractEstimator
    table: ResponseTable
    problem: Any
    start: Start | None
    layout: Layout | tuple[str, ...] | None
    warnings: tuple[str, ...]
    options: dict[str, Any]
    places: np.ndarray | None = None
    target: np.ndarray | None = None


class AbstractSpecification(ABC):
    """A model as `irtjax.fit` sees it: the way from a labelled table to a task.

    Attributes:
        name: The model's name, for messages.
        settings: The settings of `irtjax.fit` that it takes, with their defaults.
        stated: Those that are refused because a model object states them.
        default: The method that "auto" is and the reason; None: the data decide.
    """

    name: str
    settings: Mapping[str, Any]
    stated: frozenset[str] = frozenset()
    default: tuple[str, str] | None = ("em", "")

    @abstractmethod
    def serves(self, method: AbstractEstimator | type[AbstractEstimator]) -> bool:
        """Whether a method, or all of its class, can solve the task's problem."""

    def default_for(
        self, table: ResponseTable, settings: Mapping[str, Any]
    ) -> tuple[str, str] | None:
        """The method that "auto" is for a table, and the reason; see `default`."""
        return self.default

    @abstractmethod
    def task(
        self,
        table: ResponseTable,
        method: AbstractEstimator | str,
        parts: Parts,
        level: float,
        floating: Any,
    ) -> Task:
        """The task of a fit; a ValueError in one line for what does not suit."""

    def finish(self, estimates: Estimates, task: Task) -> Estimates:
        """The estimates as they are reported."""
        return estimates


def takes_cells(table: ResponseTable, model: Model, method: Any, options: Any) -> bool:
    """Whether a sparse table is fitted without its matrix."""
    share = method.share_of_cells(model)
    possible = (
        share > 0
        and options.get("standard_errors", "none") in ("none", "observed")
        and options.get("start") != "low_rank"
    )
    return possible and table.takes_cells(share)


class TaskData(NamedTuple):
    """Arrays of a table, and the table that these are of.

    Attributes:
        table: The responses in the units of the model.
        responses: `Responses`, or `SparseResponses`.
        warnings: Of their preparation.
        record: For the record of the fit: storage, and scales of scores.
    """

    table: ResponseTable
    responses: Any
    warnings: tuple[str, ...]
    record: dict[str, Any]


def data_of(
    table: ResponseTable,
    model: Model,
    settings: Mapping[str, Any],
    floating: Any,
    *,
    by_cell: bool,
    offset: float | None = None,
) -> TaskData:
    """Arrays of a table: by cell (`takes_cells`) or dense; `offset` is of lengths."""
    if by_cell:
        # It depends on the memory that was free, too.
        return TaskData(table, table.sparse_responses(), (), {"storage": "cells"})
    return TaskData(*arrays_of(table, model, settings, floating, offset=offset))


def check_used(model: Model, parts: Parts) -> None:
    """Refuses settings that a model would ignore."""
    if parts.model["positive"] and not model.family.has_slope:
        raise ValueError(
            f"positive has no effect on a {model.name} model, whose items have equal"
            " discriminations: leave it out"
        )
    for name, usual in (("length_offset", 1.0), ("zero_lengths", "kept")):
        if not model.has_lengths and parts.data[name] != usual:
            raise ValueError(
                f"{name} is for the model lart: a {model.name} model has no lengths"
            )
    if parts.data["zero_lengths"] not in ("kept", "missing"):
        raise ValueError(
            f"zero_lengths {parts.data['zero_lengths']!r} is neither 'kept' nor"
            " 'missing'"
        )


def check_common(model: Model, anchor: Any = None) -> None:
    """Refuses priors and anchors of parameters common to all items."""
    if not model.family.common:
        return
    named = f"the model {model.name} has a {model.family.common[0]} common to all items"
    if set(model.priors) & set(model.family.common):
        raise ValueError(f"{named}, which has no prior: leave it out of priors")
    if anchor is not None:
        raise ValueError(f"{named}, which anchors would fix: leave anchor out")
