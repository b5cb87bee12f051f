"""The tables of a fit: its items and its abilities."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from irtjax.data.frames import HasTable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ItemTable(HasTable):
    """The items of a fit: `Calibration.items`.

    Attributes:
        table: One row per item: parameters with standard errors, accuracy, flags.
    """

    title = "Items"
    columns = ("item", "difficulty", "difficulty_se", "discrimination")
    columns += ("discrimination_se", "accuracy", "observed", "flags")

    table: pa.Table


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AbilityTable(HasTable):
    """The subjects of a fit: `Calibration.abilities`.

    Attributes:
        table: One row per subject, in the order of the data: ability, score and
            accuracy with errors and intervals, rank, flags.
    """

    title = "Abilities"
    columns = ("subject", "rank", "ability", "ability_se", "lower", "upper")
    columns += ("expected_score", "expected_score_lower", "expected_score_upper")
    columns += ("observed", "flags")

    table: pa.Table
