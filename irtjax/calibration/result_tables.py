"""The tables of a fit: its items and its abilities."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from irtjax.data.frames import HasTable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclasses.dataclass(frozen=True, eq=False)
class ItemTable(HasTable):
    """The items of a fit: `Calibration.items`.

    Attributes:
        table: One row per item: parameters with standard errors, accuracy, flags.
    """

    table: pa.Table


@dataclasses.dataclass(frozen=True, eq=False)
class AbilityTable(HasTable):
    """The subjects of a fit: `Calibration.abilities`.

    Attributes:
        table: One row per subject, in the order of the data: ability, score and
            accuracy with errors and intervals, rank, flags.
    """

    table: pa.Table
