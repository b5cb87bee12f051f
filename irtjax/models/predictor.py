"""The predictor: where abilities and items meet, for every response family.

A model is a response family composed with a predictor. The family maps eta and the
item's other parameters to log p(y); the predictor maps an ability and the item's
coordinates to eta, one number for each intercept of the item.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Array


def predictor(item: Any, theta: Array) -> Array:
    """Eta = a theta + d, for each intercept d of the item.

    Args:
        item: A record with `discrimination` and `intercept`.
        theta: Ability, a scalar for one item; or what broadcasts with its fields.

    >>> from irtjax.models.families.logistic import LogisticItems
    >>> float(predictor(LogisticItems(2.0, -1.0, 0.0, 1.0), 0.75))
    0.5
    """
    return item.discrimination * theta + item.intercept
