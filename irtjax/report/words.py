"""Names and numbers as text that is safe where it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from irtjax.data.wording import markdown as markdown
from irtjax.data.wording import number, visible

_wording: ContextVar[Callable[[str], str] | None] = ContextVar(
    "irtjax_wording", default=None
)


@contextmanager
def wording(translate: Callable[[str], str]) -> Iterator[None]:
    """Within the block, reports show warnings and notes as a function words them.

    The command line replaces settings of Python by options; see `worded`.
    """
    token = _wording.set(translate)
    try:
        yield
    finally:
        _wording.reset(token)


def worded(messages: Iterable[str]) -> list[str]:
    """Returns warnings and notes in the words of who makes the report.

    >>> worded(["use method='mm'"])
    ["use method='mm'"]
    >>> with wording(lambda text: text.replace("method=", "--method ")):
    ...     worded(["use method='mm'"])
    ["use --method 'mm'"]
    """
    translate = _wording.get()
    return list(messages) if translate is None else [translate(x) for x in messages]


def short(name: str, limit: int = 100) -> str:
    """Returns a visible name that is cut in the middle when long.

    >>> short("b" * 200, 9)
    'bbbb…bbbb'
    """
    text = visible(str(name)).strip() or "(no name)"
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def interval(low: float | None, high: float | None, digits: int = 2) -> str:
    """Returns an interval.

    >>> interval(-0.5, 1), interval(1, 4, 0)
    ('-0.50 … 1.00', '1 … 4')
    """
    return f"{number(low, digits)} … {number(high, digits)}"


def score_text(
    score: float | None, low: float | None, high: float | None, digits: int = 2
) -> str:
    """Returns a score with its interval, if it has one, briefly.

    >>> score_text(0.712, 0.68, 0.742), score_text(1.25, 0.9, 1.4)
    ('.71 [.68, .74]', '1.25 [0.90, 1.40]')
    >>> score_text(0.712, None, None, 3)
    '.712'
    """
    texts = [number(value, digits) for value in (score, low, high)]
    if not any(value and value > 1 for value in (score, low, high)):
        texts = [text[1:] if text.startswith("0.") else text for text in texts]
    return texts[0] + f" [{texts[1]}, {texts[2]}]" * (texts[1:] != ["–", "–"])


def listing(names: Sequence[str], most: int = 5) -> str:
    """Returns names as a list in a sentence, cut when long.

    >>> listing(["a"]), listing(["a", "b", "c"]), listing(["a", "b", "c"], 2)
    ('a', 'a, b and c', 'a, b and 1 more')
    """
    names = list(names)
    if len(names) <= 1:
        return "".join(names)
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"
