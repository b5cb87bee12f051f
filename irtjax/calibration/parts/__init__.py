"""Parts of a calibration: what only some fits have, one class in one file each."""

from irtjax.calibration.parts.factors import Factors
from irtjax.calibration.parts.groups import Structure
from irtjax.calibration.parts.lengths import ResponseLengths
from irtjax.calibration.parts.part import Findings as Findings
from irtjax.calibration.parts.part import Part

#: The kinds of parts, in the order of their columns, findings and figures.
PARTS: tuple[type[Part], ...] = (ResponseLengths, Structure, Factors)
