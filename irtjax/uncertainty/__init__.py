"""Standard errors of item parameters."""

from irtjax.uncertainty.covariance import KINDS, Covariance, item_covariance

__all__ = ["KINDS", "Covariance", "item_covariance"]
