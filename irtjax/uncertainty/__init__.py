"""Standard errors of item parameters."""

from irtjax.uncertainty.covariance import (
    KINDS,
    LOST,
    Covariance,
    check_kind,
    item_covariance,
)
from irtjax.uncertainty.lengths import (
    LengthCovariance,
    SpeedError,
    evidence_moves,
    length_covariance,
    speed_error,
)

__all__ = [
    "KINDS",
    "LOST",
    "Covariance",
    "LengthCovariance",
    "SpeedError",
    "check_kind",
    "evidence_moves",
    "item_covariance",
    "length_covariance",
    "speed_error",
]
