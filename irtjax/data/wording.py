"""Words that messages and file formats share."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import SupportsInt

#: What a subject and a benchmark are called where the data have no name for them.
NOUNS = ("subject", "benchmark")
# Marks files that hold a saved `ResponseTable`.
TABLE_FORMAT = "irtjax.response_table"
_MARKDOWN = re.compile(r"([\\`*_\[\]{}|~#!$<>])")


def noun_of(column: str | None) -> str:
    """Returns what one subject is called, by the column that names the subjects.

    >>> noun_of("model_name"), noun_of("student")
    ('model', 'subject')
    """
    words = ("model", "llm", "system")
    return "model" if any(x in (column or "").lower() for x in words) else NOUNS[0]


def several(names: Sequence[object]) -> str:
    """Returns the first of several files for a message, and how many more there are.

    >>> several(["a.csv"]), several(["a.csv", "b.csv", "a.csv"])
    ('a.csv', 'a.csv and 1 more')
    """
    distinct = list(dict.fromkeys(str(name) for name in names))
    others = len(distinct) - 1
    return distinct[0] + (f" and {others} more" if others else "")


def listing(names: Sequence[str], limit: int = 12) -> str:
    """Returns names for a message, cut when there are very many.

    >>> listing(["a", "b"]), listing([str(k) for k in range(5)], 3)
    ('a, b', '0, 1, 2, ... (5 in all)')
    """
    # Names in damaged files may hold lines of text; a message is one line.
    shown = [" ".join(name.split())[:80] for name in names[:limit]]
    ending = [f"... ({len(names)} in all)"] if len(names) > limit else []
    return ", ".join(shown + ending)


def counted(number: SupportsInt, noun: str, plural: str = "") -> str:
    """Returns a number with its noun; the plural adds "s", or is given.

    >>> counted(1, "item"), counted(1200, "item"), counted(0, "entry", "entries")
    ('1 item', '1,200 items', '0 entries')
    """
    count = int(number)
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def were(number: SupportsInt) -> str:
    """Returns the verb of so many.

    >>> were(1), were(2)
    ('was', 'were')
    """
    return "was" if int(number) == 1 else "were"


def are(number: SupportsInt) -> str:
    """Returns the verb of so many.

    >>> are(1), are(2)
    ('is', 'are')
    """
    return "is" if int(number) == 1 else "are"


def have(number: SupportsInt) -> str:
    """Returns the verb of so many.

    >>> have(1), have(2)
    ('has', 'have')
    """
    return "has" if int(number) == 1 else "have"


def percent(level: float) -> str:
    """Returns a share as a percentage.

    >>> percent(0.95), percent(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100 * level:.6g} %"


def visible(name: str) -> str:
    r"""Returns a name without control characters, which could steer a terminal.

    >>> visible("a\x1b[31mred\n")
    'a[31mred'
    """
    return "".join(c for c in name if c.isprintable())


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Returns names without the organisation before "/" where they stay different.

    >>> short_names(["meta/llama", "qwen/qwen", "other/qwen"])
    {'meta/llama': 'llama', 'qwen/qwen': 'qwen/qwen', 'other/qwen': 'other/qwen'}
    """
    ends = [visible(name).rstrip("/").rsplit("/", 1)[-1] for name in names]
    met: dict[str, int] = {}
    for end in ends:
        met[end] = met.get(end, 0) + 1
    return {
        name: end if met[end] == 1 and end else visible(name)
        for name, end in zip(names, ends, strict=True)
    }


def number(value: float | None, digits: int = 2) -> str:
    """Returns a number with a fixed number of digits, a dash where there is none.

    >>> number(1.234), number(None), number(-1234.5, 1), number(-0.001)
    ('1.23', '–', '-1,234.5', '0.00')
    """
    if value is None or not math.isfinite(value):
        return "–"
    # No "-0.00".
    return f"{value:z,.{digits}f}"


def points(value: float | None, digits: int, bare: bool = True) -> str:
    """Returns a score without its leading zero, with a minus sign.

    >>> points(0.781, 2), points(1.0, 2), points(-0.002, 3), points(None, 2)
    ('.78', '1.00', '−.002', '–')
    """
    text = number(value, digits).replace("-", "−")
    return text.replace("0.", ".", 1) if bare and text.lstrip("−")[:2] == "0." else text


def markdown(name: str) -> str:
    r"""Returns a name that Markdown shows as it is: no markup, no HTML, no links.

    >>> markdown("a|b <i> *c*")
    'a\\|b &lt;i&gt; \\*c\\*'
    """
    text = _MARKDOWN.sub(r"\\\1", visible(name).replace("&", "&amp;"))
    text = text.replace(r"\<", "&lt;").replace(r"\>", "&gt;")
    # Bare addresses become links on some hosts.
    text = text.replace("://", "&#58;//").replace("@", "&#64;")
    return re.sub(r"(?i)\bwww\.", "www&#46;", text)


def p_text(value: float) -> str:
    """A p-value as text.

    >>> p_text(0.0281), p_text(3e-5)
    ('= .028', '< .001')
    """
    return "< .001" if value < 0.001 else f"= {value:.3f}".replace("0.", ".")
