"""A part of a calibration: what it answers to tables, files and reports."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Estimates


class Findings(NamedTuple):
    """Sentences about a fit: reasons to doubt its numbers, and other facts."""

    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Part(ABC):
    """What only some fits have, as loadings or abilities by group.

    The methods have neutral answers: a part overrides those that concern it. Its class
    is listed in `PARTS`, over which build, storage and reports loop.
    """

    #: Beginning of the names of its arrays in a file.
    prefix: ClassVar[str]
    #: What is said where a fit has no such part.
    absence: ClassVar[str]
    #: Axes of these arrays, by their names after the prefix; one name is one size.
    axes: ClassVar[Mapping[str, str]] = {}
    #: Whether a fit with the part has its items integrated out.
    integrates_items: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def of(cls, table: ResponseTable, estimates: Estimates, layout: Any) -> Self | None:
        """The part of these estimates; None of fits without it.

        `layout` has the names of the model's groups or factors (`Task.layout`).
        """

    @property
    def factor_names(self) -> tuple[str, ...]:
        """Names of the abilities on which items have slopes of their own."""
        return ()

    @property
    def no_rank(self) -> str:
        """Why new subjects of a fit with the part have no rank; "" if they have one."""
        return ""

    @property
    def group_abilities(self) -> np.ndarray:
        """`[subjects, groups]` abilities on the scale of the general one, if any."""
        return np.empty((0, 0))

    def take(self, order: np.ndarray) -> Self:
        """The part with its subjects in another order."""
        return self

    def with_subjects(
        self, stays: np.ndarray, ability: np.ndarray, error: np.ndarray
    ) -> Self:
        """The part with new subjects of one ability after those that stay."""
        return self

    def rescaled(self, scale: float, shift: float) -> Self:
        """The part of a fit of one ability, which becomes `scale` theta + `shift`."""
        return self

    def item_columns(self, estimates: Estimates) -> dict[str, Any]:
        """Columns of the item table by name, None where no value is known."""
        return {}

    def ability_columns(self, estimates: Estimates) -> dict[str, Any]:
        """Columns of the ability table by name; `estimates` have all errors."""
        return {}

    def findings(
        self, table: ResponseTable, estimates: Estimates, options: dict[str, Any]
    ) -> Findings:
        """Warnings and notes on the part."""
        return Findings()

    def figures(self) -> list[tuple[str, str, str]]:
        """Title, file name, and name in `irtjax.plots`, of each figure of a report."""
        return []

    def document(self) -> dict[str, Any]:
        """Entries of `fit.json`."""
        return {}

    def parameters(self) -> dict[str, Any]:
        """Fields of `Calibration.parameters` that are stored with the part."""
        return {}

    def arrays(self) -> dict[str, Any]:
        """Arrays for a file, by their whole names."""
        fields = {x.name: getattr(self, x.name) for x in dataclasses.fields(self)}
        return {f"{self.prefix}{k}": x for k, x in fields.items() if x is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], document: Any) -> Self | None:
        """The part in the arrays of a file and in `fit.json`; None without it."""
        own = {
            name.removeprefix(cls.prefix): value
            for name, value in arrays.items()
            if name.startswith(cls.prefix)
        }
        return cls.from_own(own, arrays, document) if own else None

    @classmethod
    @abstractmethod
    def from_own(
        cls, own: dict[str, Any], arrays: Mapping[str, Any], document: Any
    ) -> Self:
        """The part from its `own` arrays, by their names after the prefix."""
