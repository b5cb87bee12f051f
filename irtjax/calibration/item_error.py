"""Errors of the items of a calibration, for the scores of new subjects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from irtjax.inference.scale_error import scale_covariance

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration


class ItemErrors(NamedTuple):
    """What a calibration leaves uncertain of its items and its scale.

    Attributes:
        items: `[items, columns, columns]` covariance of the unconstrained coordinates,
            not finite where one is not identified.
        scale: V of `inference.scale_error`, of location and scale; None if unknown.
    """

    items: np.ndarray
    scale: np.ndarray | None


def item_errors(fit: Calibration) -> ItemErrors | None:
    """Errors of the items of a calibration of one ability, or None.

    There are none without standard errors of items, where the fit takes items as known
    (`item_uncertainty=False`), and of several abilities.
    """
    covariance = fit.item_covariance
    chosen = fit.options.get("item_uncertainty", True)
    if covariance is None or chosen is False or fit.several_abilities:
        return None
    if np.shape(covariance)[1] != fit.model.family.num_columns:
        return None
    ability = fit.abilities.table["ability"].to_numpy(zero_copy_only=False)
    scale = scale_covariance(np.asarray(ability, float), fit.ability_shared)
    return ItemErrors(np.asarray(covariance, float), scale)


def errors_of_items(fit: Calibration) -> ItemErrors | None:
    """Errors of the items of a calibration of any number of abilities, or None.

    Of several abilities they are those of `factor_item_errors`, without a scale.
    """
    if not fit.model.several:
        return item_errors(fit)
    covariance = factor_item_errors(fit)
    return None if covariance is None else ItemErrors(covariance, None)


def factor_item_errors(fit: Calibration) -> np.ndarray | None:
    """`[items, p, p]` covariance of the slopes and the other coordinates of each item.

    Of a fit of several abilities; None where it takes items as known. What has no error
    has zeros. The error of a rotation is left out: it is common to all items, and the
    abilities of subjects follow it.
    """
    covariance, chosen = fit.item_covariance, fit.options.get("item_uncertainty", True)
    if covariance is None or chosen is False:
        return None
    if fit.at_fixed_axes is not None:
        return np.asarray(fit.at_fixed_axes, float)
    # Without a rotation, or by a version that did not keep the above.
    slopes = np.asarray(fit.parameters.items.discrimination, float)
    steps = np.ones(np.shape(covariance)[:2])
    if fit.model.family.parameters[0].bijection.kind == "positive":
        # The covariance is that of logarithms.
        steps[:, : slopes.shape[1]] = slopes
    filled = np.where(np.isfinite(covariance), covariance, 0)
    return filled * steps[:, :, None] * steps[:, None, :]
