"""From a calibration, or a bank, to a bank with names."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.adaptive.bank import AbstractBank, ItemBank
from irtjax.adaptive.design import Design
from irtjax.adaptive.lengths import LengthBank
from irtjax.calibration.calibration import Calibration
from irtjax.data.arrays import check_unique, names_of
from irtjax.models.model import check_one_ability


class LabelledBank(NamedTuple):
    """A bank with the names of its items."""

    bank: AbstractBank
    names: np.ndarray  # [items]
    groups: np.ndarray | None  # [items] content groups, such as benchmarks

    def position(self, name: str) -> int:
        """Where an item is in the bank; a name of no item is refused."""
        found = np.flatnonzero(self.names == name)
        if not len(found):
            raise ValueError(
                f"no item named {name!r} in the bank of {len(self.names):,} items (the"
                f" first is {str(self.names[0])!r})"
            )
        return int(found[0])

    def design(self, num_items: int | None, **rules: Any) -> Design:
        """The rules of tests of at most `num_items` items, None for the whole bank."""
        size = self.bank.num_items
        longest = size if num_items is None else min(num_items, size)
        design = Design.create(longest, groups=self.groups, **rules)
        histogram = isinstance(self.bank, ItemBank) and self.bank.histogram
        if design.score == "map" and histogram:
            raise ValueError(
                "score 'map' is not defined for a histogram population: use 'eap'"
            )
        return design


def check_exposure(limit: float | None) -> None:
    """Refuses a largest share of tests that is none."""
    if limit is not None and not 0 < limit <= 1:
        raise ValueError(f"max_exposure {limit:g} is not above 0 and at most 1")


def label(source: Any, num_items: int | None, names: Any, groups: Any) -> LabelledBank:
    """A bank for tests of `num_items`; names and groups of None: the calibration's."""
    bank = source
    if isinstance(source, Calibration):
        check_one_ability(source.model, "an adaptive test")
        known = jax.tree.map(jnp.asarray, source.parameters)
        parts: Any = source.model, known.items, known.population
        if known.lengths is None:
            bank = ItemBank.create(*parts, num_items=num_items)
        else:
            parts += (known.lengths,)
            offset = source.options["length_offset"]
            bank = LengthBank.of(*parts, offset=offset, num_items=num_items)
        names = source.items if names is None else names
        groups = source.benchmarks if groups is None else groups
    elif not isinstance(source, AbstractBank):
        raise ValueError(
            f"a test is built from a calibration (irtjax.fit, irtjax.load) or an"
            f" ItemBank, not from a {type(source).__name__}"
        )
    labels = names_of("item", names, bank.num_items)
    check_unique("item", labels)
    if groups is not None:
        groups = names_of("content group", groups, bank.num_items)
    return LabelledBank(bank, labels, groups)
