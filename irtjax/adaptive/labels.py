"""From a calibration, or a bank, to a bank with names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.adaptive.bank import AbstractBank, ItemBank
from irtjax.adaptive.design import Design
from irtjax.adaptive.lengths import LengthBank
from irtjax.calibration.calibration import Calibration
from irtjax.data.arrays import check_unique, names_of


class LabelledBank(NamedTuple):
    """A bank with the names of its items.

    Attributes:
        bank: The bank.
        names: `[items]` names.
        groups: `[items]` content group of each, such as its benchmark; or None.
    """

    bank: AbstractBank
    names: np.ndarray
    groups: np.ndarray | None

    def position(self, name: str) -> int:
        """Where an item is in the bank.

        Raises:
            ValueError: If no item has the name.
        """
        found = np.flatnonzero(self.names == name)
        if not len(found):
            raise ValueError(
                f"no item named {name!r} in the bank of {len(self.names):,} items (the"
                f" first is {str(self.names[0])!r})"
            )
        return int(found[0])


def label(
    source: Any,
    num_items: int | None = None,
    names: Iterable[Any] | None = None,
    groups: Iterable[Any] | None = None,
) -> LabelledBank:
    """Makes a labelled bank of a calibration or of a bank.

    Args:
        source: A calibration, or a bank.
        num_items: Length of the longest test, for the nodes; None for the whole bank.
        names: `[items]` names; None takes those of the calibration, or numbers.
        groups: `[items]` content groups; None takes the calibration's benchmarks.

    Returns:
        The labelled bank.

    Raises:
        ValueError: If names are not distinct or of the wrong number, or the source is
            neither.
    """
    if isinstance(source, Calibration):
        known = jax.tree.map(jnp.asarray, source.parameters)
        parts = source.model, known.items, known.population
        bank: AbstractBank
        if known.lengths is None:
            bank = ItemBank.create(*parts, num_items=num_items)
        else:
            bank = LengthBank.of(
                *parts,
                known.lengths,
                offset=source.options["length_offset"],
                num_items=num_items,
            )
        names = source.items if names is None else names
        groups = source.benchmarks if groups is None else groups
    elif isinstance(source, AbstractBank):
        bank = source
    else:
        raise ValueError(
            f"a test is built from a calibration (irtjax.fit, irtjax.load) or an"
            f" ItemBank, not from a {type(source).__name__}"
        )
    labels = names_of("item", names, bank.num_items)
    check_unique("item", labels)
    if groups is not None:
        groups = names_of("content group", groups, bank.num_items)
    return LabelledBank(bank, labels, groups)


def check_score(bank: AbstractBank, design: Design) -> None:
    """Refuses modes under a population that has none.

    Raises:
        ValueError: If the score is "map" and the population a histogram.
    """
    if design.score == "map" and isinstance(bank, ItemBank) and bank.histogram:
        raise ValueError(
            "score 'map' has no mode to find under a histogram population: use 'eap'"
        )
