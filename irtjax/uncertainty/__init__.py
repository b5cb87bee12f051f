"""Standard errors of item parameters."""

from irtjax.uncertainty.covariance import (
    KINDS,
    Covariance,
    check_kind,
    item_covariance,
)
from irtjax.uncertainty.lengths import (
    LengthCovariance,
    evidence_moves,
    length_covariance,
)

__all__ = [
    "KINDS",
    "Covariance",
    "LengthCovariance",
    "check_kind",
    "evidence_moves",
    "item_covariance",
    "length_covariance",
]
