"""Names of subjects where there is little room: short, listed, tied."""

from __future__ import annotations

import os
from collections.abc import Sequence

from irtjax.data.text_table import BETWEEN, cut, display_width
from irtjax.data.wording import counted, short_names

#: Columns of a name that is cut between others.
_LEAST_CUT = 7
#: What stands for no name.
NONE = "–"


def listed(names: Sequence[str], width: int, last: str = ", ") -> str:
    """Returns as many names as fit, and how many more there are.

    >>> listed(["a", "bb", "ccc"], 20), listed(["aaaa", "bbbb", "cccc"], 13)
    ('a, bb, ccc', 'aaaa, +2 more')
    >>> listed(["a", "b"], 20, " and "), listed(["aaaa", "bbbb"], 9), listed([], 9)
    ('a and b', 'aaaa, +1', '–')
    """
    if len(names) < 2:
        return cut(names[0], width) if names else NONE
    whole = f"{', '.join(names[:-1])}{last}{names[-1]}"
    if display_width(whole) <= width:
        return whole
    for form in (", +{:,} more", ", +{:,}"):
        # A name and its comma take three columns at least.
        for shown in range(min(len(names) - 1, width // 3), 0, -1):
            text = ", ".join(names[:shown]) + form.format(len(names) - shown)
            if display_width(text) <= width:
                return text
    end = f", +{len(names) - 1:,}"
    if width - len(end) < _LEAST_CUT:
        return cut(counted(len(names), "other"), width, head=1.0)
    return cut(names[0], width - len(end)) + end


def bare_names(names: Sequence[str]) -> tuple[list[str], str]:
    """Returns names without the words that all begin or end with, and a note on these.

    >>> bare_names(["a_one_shot", "b_zero_shot"])
    (['a_one', 'b_zero'], 'names end in "_shot", left out here')
    >>> bare_names(["x", "y"])
    (['x', 'y'], '')
    """
    short = list(short_names(names).values())
    begin, end = _shared(short), _shared([name[::-1] for name in short])[::-1]
    least = min(map(len, short), default=0)
    if len(short) < 2 or len(begin) + len(end) >= least:
        end = ""
    if len(short) < 2 or len(begin) >= least:
        begin = ""
    parts = [f'begin with "{begin}"'] * bool(begin) + [f'end in "{end}"'] * bool(end)
    if not parts:
        return short, ""
    note = f"names {' and '.join(parts)}, left out here"
    return [name[len(begin) : len(name) - len(end)] for name in short], note


def _shared(names: Sequence[str]) -> str:
    """The whole words with which all names begin, with what follows the last one."""
    same = os.path.commonprefix(list(names))
    return same[: 1 + max(map(same.rfind, BETWEEN))]


def tie_text(names: Sequence[str], width: int, mark: str = "…") -> str:
    """Returns the whole names that fit, else how many they are.

    >>> tie_text(["a", "bb", "ccc"], 20), tie_text(["a", "bb", "ccc"], 8)
    ('a, bb, ccc', 'a, bb, …')
    >>> tie_text(["long", "longer"], 6), tie_text(["longer-than"], 9), tie_text([], 9)
    ('2', '1 other', '–')
    """
    if not names:
        return NONE
    # A name and its comma take three columns at least.
    for shown in range(min(len(names), width // 3 + 1), 0, -1):
        text = ", ".join([*names[:shown], *([mark] * (shown < len(names)))])
        if display_width(text) <= width:
            return text
    many = counted(len(names), "other")
    return many if len(many) <= width else f"{len(names):,}"
