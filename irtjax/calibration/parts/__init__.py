"""Parts of a calibration: what only some fits have, one class in one file each."""

from typing import Any

from irtjax.calibration.parts.factors import Factors
from irtjax.calibration.parts.groups import Structure
from irtjax.calibration.parts.lengths import ResponseLengths
from irtjax.calibration.parts.part import Findings as Findings
from irtjax.calibration.parts.part import Part
from irtjax.calibration.parts.populations import Populations
from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Estimates

#: The kinds of parts, in the order of their columns, findings and figures.
PARTS: tuple[type[Part], ...] = (ResponseLengths, Structure, Factors, Populations)


def parts_of(table: ResponseTable, estimates: Estimates, layout: Any) -> list[Part]:
    """The parts that these estimates have."""
    parts = (kind.of(table, estimates, layout) for kind in PARTS)
    return [part for part in parts if part is not None]
