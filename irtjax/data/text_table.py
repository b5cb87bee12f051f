"""Tables and sentences as plain text that fits a terminal."""

from __future__ import annotations

import re
import shutil
import sys
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from irtjax.data.wording import visible

#: Columns of a table where standard output is no terminal, and the fewest of any.
USUAL_WIDTH, LEAST_WIDTH = 80, 20
#: Spaces before a row, and between two columns.
_MARGIN, _GAP = " ", "  "
#: Width to which names are cut before columns are left out, and after.
_NAME, _SHORT_NAME = 20, 8
#: Words of a name, each with what follows it, and the share of the columns that words
#: left of a name fill at least.
BETWEEN = "/_ :|-"
_WORDS = re.compile(f"[^{BETWEEN}]*[{BETWEEN}]*")
_ENOUGH = 0.6
#: What stands for a character where there is no Unicode.
_ASCII = str.maketrans("–—−·●━─┊│≥≤±→’", "---.*=-||><+>'")
_MARK, _ASCII_MARK = "…", ".."
#: Characters that show whether a stream has Unicode.
_PROBE = "…–−●━┊"


def terminal_width() -> int:
    """Returns the columns of the terminal; `COLUMNS` counts first, a pipe has 80."""
    return max(shutil.get_terminal_size((USUAL_WIDTH, 24)).columns, LEAST_WIDTH)


def has_unicode(stream: Any = None) -> bool:
    """Returns whether a stream, by default standard output, can show Unicode."""
    stream = sys.stdout if stream is None else stream
    try:
        _PROBE.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def plain(text: str, unicode: bool | None = None) -> str:
    """Returns a text as standard output can show it.

    >>> plain("1–2 · a…", unicode=False)
    '1-2 . a..'
    """
    if has_unicode() if unicode is None else unicode:
        return text
    text = text.translate(_ASCII).replace(_MARK, _ASCII_MARK)
    return text.encode("ascii", "backslashreplace").decode("ascii")


def display_width(text: str) -> int:
    """Returns the columns that a text takes: two of a CJK character, none of an accent.

    >>> display_width("abc"), display_width("模型"), display_width("e\u0301")
    (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int, mark: str = _MARK, head: float = 0.5) -> str:
    """Returns a text of at most so many columns, a share `head` of them its beginning.

    >>> cut("abcdefghij", 7), cut("abc", 3), cut("模型模型", 5)
    ('abc…hij', 'abc', '模…型')
    """
    if display_width(text) <= width:
        return text
    room = width - display_width(mark)
    if room < 1:
        return mark[:width]
    begin = _taken(text, round(room * head))
    end = _taken(text[::-1], room - display_width(begin))[::-1]
    return f"{begin}{mark}{end}"


def _taken(text: str, width: int) -> str:
    """The beginning of a text that takes at most so many columns."""
    total = 0
    for k, character in enumerate(text):
        total += _width(character)
        if total > width:
            return text[:k]
    return text


def cut_names(names: Sequence[str], width: int, mark: str = _MARK) -> list[str]:
    """Returns names of at most so many columns, different ones different if possible.

    What is left out is whole words, where that leaves enough of a name.

    >>> cut_names(["model-of-7b-size-a", "model-of-8b-size-a"], 12)
    ['model-of-7b…', 'model-of-8b…']
    >>> cut_names(["qwen3_30b_instruct_one_shot", "qwen3_30b_instruct_zero_shot"], 20)
    ['qwen3_30b…one_shot', 'qwen3_30b…zero_shot']
    """
    ways = {name: _cuts(name, width, mark) for name in names}
    texts = {name: next(iter(cuts.values())) for name, cuts in ways.items()}
    alike: dict[str, list[str]] = {}
    for name, text in texts.items():
        alike.setdefault(text, []).append(name)
    used = {*alike}
    for group in alike.values():
        if len(group) > 1:
            texts |= _distinguished(group, ways, used)
            used |= {texts[name] for name in group}
    return [texts[name] for name in names]


def _distinguished(
    group: list[str], ways: dict[str, dict[Any, str]], used: set[str]
) -> dict[str, str]:
    """Names that would be cut to the same text, each cut at the same place."""
    best: dict[str, str] = {}
    for way in {way: None for name in group for way in ways[name]}:
        tried = {name: ways[name][way] for name in group if way in ways[name]}
        texts = {*tried.values()}
        if len(tried) == len(group) and not texts & used:
            if len(texts) == len(group):
                return tried
            if len(texts) > len({*best.values()}):
                best = tried
    return best


def _cuts(name: str, width: int, mark: str) -> dict[Any, str]:
    """The ways to cut a name, the best first, by where; only the name where it fits."""
    if display_width(name) <= width:
        return {None: name}
    words = [word for word in _WORDS.findall(name) if word]
    begins = [text.rstrip(BETWEEN) for text in _grown(words, width)]
    ends = [text[::-1].lstrip(BETWEEN) for text in _grown(_reversed(words), width)]
    candidates = []
    for head, begin in enumerate(begins):
        for tail, end in enumerate(ends):
            text = f"{begin}{mark}{end}"
            size = display_width(text)
            if _ENOUGH * width <= size <= width:
                uneven = abs(display_width(begin) - display_width(end))
                order = not (begin and end), -size, uneven
                candidates.append((order, (head, tail), text))
    ways: dict[Any, str] = {where: text for _, where, text in sorted(candidates)}
    return ways | {x: cut(name, width, mark, x) for x in (0.5, 0.75, 0.25, 1.0, 0.0)}


def _grown(words: list[str], width: int) -> list[str]:
    """The first words, ever more of them, in at most so many columns."""
    beginnings = [""]
    for word in words:
        text = beginnings[-1] + word
        if display_width(text) > width:
            break
        beginnings.append(text)
    return beginnings


def _reversed(words: list[str]) -> list[str]:
    """The words read from the end."""
    return [word[::-1] for word in reversed(words)]


def text_table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    left: int | Collection[str] = 1,
    spare: Sequence[str] = (),
    title: str = "",
    width: int | None = None,
    unicode: bool | None = None,
) -> str:
    """Returns a table as text, without markup.

    Args:
        header: Names of the columns.
        rows: Rows of cells.
        left: The number of first columns, or the names of the columns, that are
            aligned to the left: those of words, whose cells are cut in the middle where
            the table is too wide.
        spare: Columns that a narrow screen can do without, least needed first.
        title: A line above.
        width: Most columns of the screen; None takes those of the terminal.
        unicode: Whether other characters than ASCII are used; None asks the stream.

    >>> print(text_table(["model", "score"], [["a", ".71"], ["bc", ".6"]], width=40))
     model  score
     a        .71
     bc        .6
    """
    unicode = has_unicode() if unicode is None else unicode
    shown = lambda cell: plain(visible(str(cell)), unicode)
    width = max(terminal_width() if width is None else width, LEAST_WIDTH)
    cells = [[shown(cell) for cell in row] for row in rows]
    heads = [shown(name) for name in header]
    words = {
        k
        for k, name in enumerate(header)
        if (k < left if isinstance(left, int) else name in left)
    }
    layout = _Layout(heads, cells, words, width - len(_MARGIN))
    layout.fit([k for name in spare for k in range(len(header)) if header[k] == name])
    mark = _MARK if unicode else _ASCII_MARK
    lines = wrapped(shown(title), width) if title else []
    lines += layout.lines(mark)
    if layout.lost:
        names = ", ".join(heads[k] for k in layout.lost)
        lines.append(cut(f"{_MARGIN}(a wider screen has: {names})", width, mark, 1.0))
    return "\n".join(line.rstrip() for line in lines)


class _Layout:
    """Which columns of a table are shown, and how wide."""

    def __init__(
        self, heads: list[str], cells: list[list[str]], words: set[int], width: int
    ) -> None:
        self.heads, self.cells, self.words, self.width = heads, cells, words, width
        self.kept = list(range(len(heads)))
        self.lost: list[int] = []
        self.body = [
            max((display_width(row[k]) for row in cells), default=0) for k in self.kept
        ]
        self.widths = [
            max(size, display_width(name))
            for size, name in zip(self.body, heads, strict=True)
        ]

    def _excess(self) -> int:
        """Columns of the screen that the table has too many."""
        gaps = len(_GAP) * max(len(self.kept) - 1, 0)
        return sum(self.widths[k] for k in self.kept) + gaps - self.width

    def fit(self, spare: list[int]) -> None:
        """Folds headings, cuts names and leaves columns out until the table fits."""
        if self._excess() <= 0:
            return
        for k, name in enumerate(self.heads):
            # As `wrapped` folds it: "95 %" is one word.
            words = name.replace(" %", "\xa0%").split(" ")
            longest = max(map(display_width, words), default=0)
            self.widths[k] = max(self.body[k], longest)
        natural = list(self.widths)
        self._cut_words(_NAME)
        for k in spare:
            if self._excess() > 0 and k in self.kept:
                self.kept.remove(k)
        self._cut_words(_SHORT_NAME)
        while self._excess() > 0 and len(self.kept) > 1:
            self.lost.insert(0, self.kept.pop())
        if self._excess() > 0:
            self.widths[self.kept[0]] -= self._excess()
        # What is left of the width goes back to the words, from the left.
        for k in self.kept:
            if k in self.words:
                self.widths[k] = min(natural[k], self.widths[k] - self._excess())

    def _cut_words(self, least: int) -> None:
        """Cuts the widest columns of words, to no less than `least`."""
        places = [k for k in self.kept if k in self.words and self.widths[k] > least]
        while self._excess() > 0 and places:
            widest = max(places, key=lambda k: self.widths[k])
            if self.widths[widest] <= least:
                return
            self.widths[widest] -= 1

    def lines(self, mark: str) -> list[str]:
        """The heading and the rows as lines of text."""
        columns = []
        for k in self.kept:
            heading = wrapped(self.heads[k], self.widths[k])
            names = [row[k] for row in self.cells]
            columns.append((k, heading, cut_names(names, self.widths[k], mark)))
        deep = max((len(heading) for _, heading, _ in columns), default=0)
        stacked = [
            (k, [""] * (deep - len(heading)) + heading + names)
            for k, heading, names in columns
        ]
        padded = [
            [_padded(cell, self.widths[k], k in self.words) for cell in cells]
            for k, cells in stacked
        ]
        if not any(self.heads):
            padded = [cells[deep:] for cells in padded]
        return [_MARGIN + _GAP.join(cells) for cells in zip(*padded, strict=True)]


def _padded(text: str, width: int, left: bool) -> str:
    """A text with spaces up to a width."""
    space = " " * (width - display_width(text))
    return text + space if left else space + text


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Returns lines of a text; a word that is too long has a line of its own.

    >>> wrapped("Of three words two fit.", 12, "  ")
    ['Of three', '  words two', '  fit.']
    """
    # "95 %" is one word.
    first, *words = text.replace(" %", "\xa0%").strip().split(" ")
    start = text[: len(text) - len(text.lstrip())]
    lines, line = [], start + first
    for word in words:
        if display_width(line) + 1 + display_width(word) <= width:
            line += f" {word}"
        else:
            lines.append(line)
            line = start + indent + word
    return [row.replace("\xa0", " ") for row in (*lines, line)]
