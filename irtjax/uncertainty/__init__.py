"""Standard errors of item parameters."""

from irtjax.uncertainty.covariance import (
    KINDS,
    Covariance,
    check_kind,
    item_covariance,
)

__all__ = ["KINDS", "Covariance", "check_kind", "item_covariance"]
