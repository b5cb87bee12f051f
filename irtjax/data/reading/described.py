"""Texts and ids of items, gathered once an item while logs are read."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from irtjax.data.item_texts import LONGEST_WRONG, ItemText, SourceId, cut
from irtjax.data.reading.identity import ItemKey

#: Benchmark, name and content of an item.
Place: TypeAlias = tuple[str, str, str]
#: Distinct wrong answers that are counted of an item; later ones are not.
_MOST = 16


@dataclasses.dataclass
class Described:
    """What the logs of one harness hold about items.

    Attributes:
        harness: Its name, if it can evaluate chosen items.
        wanted: Whether texts are kept.
        filters: Answer filters whose wrong answers are taken, the first that has any;
            else those of the first filter that was met.
    """

    harness: str = ""
    wanted: bool = False
    filters: tuple[str, ...] = ()
    _texts: dict[Place, tuple[str, str]] = dataclasses.field(default_factory=dict)
    _ids: dict[Place, dict[str, None]] = dataclasses.field(default_factory=dict)
    _wrong: dict[Place, dict[str, Counter[str]]] = dataclasses.field(
        default_factory=dict
    )

    def needs(self, place: Place) -> bool:
        """Whether the text of an item is still to be found."""
        return self.wanted and place not in self._texts

    def text(self, place: Place, prompt: str, answer: str) -> None:
        """Keeps the prompt and the expected answer of an item."""
        self._texts[place] = cut(prompt), cut(answer)

    def id(self, place: Place, id: str) -> None:
        """Keeps an id of an item in the harness."""
        self._ids.setdefault(place, {})[id] = None

    def wrong(self, place: Place, answer: str, filter: str = "") -> None:
        """Counts a wrong answer."""
        answer = cut(answer.strip(), LONGEST_WRONG)
        counts = self._wrong.setdefault(place, {}).setdefault(filter, Counter())
        if answer and (answer in counts or len(counts) < _MOST):
            counts[answer] += 1

    def by_label(
        self, keys: Sequence[ItemKey], labels: Sequence[str]
    ) -> tuple[dict[str, ItemText], dict[str, tuple[SourceId, ...]]]:
        """Texts and ids by the names that items got."""
        prompts: dict[str, tuple[str, str]] = {}
        wrong: dict[str, Counter[str]] = {}
        ids: dict[str, dict[SourceId, None]] = {}
        stems: dict[SourceId, set[str]] = {}
        seen: dict[str, set[Place]] = {}
        for key, label in zip(keys, labels, strict=True):
            place = key.benchmark, key.name, key.content
            if place in seen.setdefault(label, set()):
                continue
            seen[label].add(place)
            if place in self._texts:
                prompts.setdefault(label, self._texts[place])
            counts = self._wrong.get(place, {})
            preferred = (counts[x] for x in (*self.filters, *counts) if x in counts)
            wrong.setdefault(label, Counter()).update(next(preferred, {}))
            for id in self._ids.get(place, ()):
                source = SourceId(self.harness, key.benchmark, id)
                ids.setdefault(label, {})[source] = None
                # Parts of a score, such as "#1", have the id of the whole.
                stems.setdefault(source, set()).add(label.removesuffix(key.part))
        texts = {}
        for label, (prompt, answer) in prompts.items():
            most = wrong[label].most_common(1)
            texts[label] = ItemText(prompt, answer, *(most[0] if most else ()))
        return texts, {
            label: () if any(len(stems[x]) > 1 for x in found) else tuple(found)
            for label, found in ids.items()
        }
