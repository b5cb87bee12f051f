"""Whether the measurement is sound: tests of items that every fit can afford."""

from irtjax.validity.discrimination import (
    FALSE_DISCOVERY_RATE,
    negative_discrimination,
)

__all__ = ["FALSE_DISCOVERY_RATE", "negative_discrimination"]
