"""Texts and ids of items, gathered once an item while logs are read."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
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
        harness: Its name, if its logs have ids or hashes of items.
        wanted: Whether texts are kept.
        filters: Of a benchmark, answer filters whose wrong answers are taken, the first
            that has any; else those of the first filter that was met.
    """

    harness: str = ""
    wanted: bool = False
    filters: Callable[[str], tuple[str, ...]] = lambda _: ()
    _texts: dict[Place, tuple[str, str]] = dataclasses.field(default_factory=dict)
    #: One id of each item, and the others of the few that have several.
    _ids: dict[Place, str] = dataclasses.field(default_factory=dict)
    _others: dict[Place, set[str]] = dataclasses.field(default_factory=dict)
    _choices: dict[Place, int] = dataclasses.field(default_factory=dict)
    _wrong: dict[tuple[Place, str], dict[str, int]] = dataclasses.field(
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
        if self._ids.setdefault(place, id) != id:
            self._others.setdefault(place, set()).add(id)

    def choices(self, place: Place, count: int) -> None:
        """Keeps how many options an item has."""
        self._choices[place] = count

    def options(self, keys: Sequence[ItemKey], labels: Sequence[str]) -> dict[str, int]:
        """Numbers of options by the names that items got."""
        options: dict[str, int] = {}
        if self._choices:
            for key, label in zip(keys, labels, strict=True):
                count = self._choices.get((key.benchmark, key.name, key.content), 0)
                options[label] = max(count, options.get(label, 0))
        return options

    def wrong(self, place: Place, answer: str, filter: str = "") -> None:
        """Counts a wrong answer."""
        counts = self._wrong.setdefault((place, filter), {})
        answer = cut(answer.strip(), LONGEST_WRONG)
        if answer in counts:
            counts[answer] += 1
        elif answer and len(counts) < _MOST:
            counts[answer] = 1

    def contents(
        self, keys: Sequence[ItemKey], labels: Sequence[str]
    ) -> dict[str, str]:
        """Hashes of items by the names that they got, where a name has only one."""
        contents: dict[str, str] = {}
        if not self.harness:
            return contents
        differing = set()
        for key, label in zip(keys, labels, strict=True):
            content = f"{self.harness}:{key.content}"
            if key.content and contents.setdefault(label, content) != content:
                differing.add(label)
        return {name: x for name, x in contents.items() if name not in differing}

    def by_label(
        self, keys: Sequence[ItemKey], labels: Sequence[str]
    ) -> tuple[dict[str, ItemText], dict[str, tuple[SourceId, ...]]]:
        """Texts and ids by the names that items got."""
        wrong: dict[str, Counter[str]] = {}
        texts: dict[str, ItemText] = {}
        ids: dict[str, tuple[SourceId, ...]] = {}
        whole: dict[SourceId, str] = {}
        shared: set[SourceId] = set()
        met = dict.fromkeys(x for _, x in self._wrong)
        filters = {
            task: dict.fromkeys((*self.filters(task), *met))
            for task in dict.fromkeys(key.benchmark for key in keys)
        }
        seen: set[tuple[str, Place]] = set()
        for key, label in zip(keys, labels, strict=True):
            place = key.benchmark, key.name, key.content
            if (label, place) in seen:
                continue
            seen.add((label, place))
            if place in self._texts:
                texts.setdefault(label, ItemText(*self._texts[place]))
            counters = (self._wrong.get((place, x)) for x in filters[key.benchmark])
            counts = next(filter(None, counters), None)
            if counts:
                wrong.setdefault(label, Counter()).update(counts)
            if place in self._ids:
                own = [self._ids[place], *sorted(self._others.get(place, ()))]
                sources = [SourceId(self.harness, key.benchmark, x) for x in own]
                ids[label] = tuple(dict.fromkeys((*ids.get(label, ()), *sources)))
                # Parts of a score, such as "#1", have the id of the whole.
                stem = label.removesuffix(key.part)
                shared.update(x for x in sources if whole.setdefault(x, stem) != stem)
        for label, counts in wrong.items():
            if label in texts:
                answer, count = counts.most_common(1)[0]
                texts[label] = texts[label]._replace(wrong=answer, wrong_count=count)
        if shared:
            unsure = lambda x: x._replace(id="") if x in shared else x
            ids = {label: tuple(map(unsure, of_item)) for label, of_item in ids.items()}
        return texts, ids
