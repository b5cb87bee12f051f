"""The verdict of a fit in a few lines: First, Read, Cheaper, Mind, Next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax.calibration.flags import is_of_items
from irtjax.calibration.leaderboard_text import points, tie_ranks
from irtjax.calibration.shown_names import bare_names, listed, short_names
from irtjax.data.reading.choose import usual_choices
from irtjax.data.text_table import (
    cut_names,
    display_width,
    plain,
    terminal_width,
    wrapped,
)
from irtjax.data.wording import counted, percent
from irtjax.report.summary import direction_sentences, has_converged, items_by_flag
from irtjax.report.words import visible

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects

#: Columns of the names of the lines.
_LABEL = 10
#: Columns of names, even on a narrow screen.
_LEAST = 20
#: Probability of being the best from which a subject that is tied is named alone.
LIKELY = 0.9
#: Names that are cut, where more are counted.
_FEW_NAMES = 3
#: Warnings of one line, the characters of one, and those of a beginning that is enough.
MOST_WARNINGS, _MOST, _SHORT = 2, 66, 25
#: Subjects below which tests of items have very little power, as in an audit.
_FEW = 20
#: Warnings that data are few, which come last.
_OF_SIZE = re.compile(r" are few$|^only .* advised")
#: The names in the warning of equal responses, where they fill the line.
_COPIES = re.compile(r"^subjects .{30,}? (?=gave the same \S+ responses)")


def verdict_text(
    lines: Mapping[str, str], width: int | None = None, unicode: bool | None = None
) -> str:
    """Returns lines with their names, folded to the width of the screen.

    >>> print(verdict_text({"First": "a, alone (P .97)."}, 40))
    First     a, alone (P .97).
    """
    width = terminal_width() if width is None else width
    out = []
    for name, text in lines.items():
        # A command stays on one line, to be copied.
        room = 10_000 if name == "Next" else max(width - _LABEL, 20)
        first, *others = [
            part for line in text.split("\n") for part in wrapped(visible(line), room)
        ]
        out.append(f"{name:<{_LABEL}}{first}")
        out += [" " * _LABEL + other for other in others]
    return plain("\n".join(out), unicode)


def first(ranked: RankedSubjects, converged: bool = True, width: int = 80) -> str:
    """Returns who is first, alone or with whom it is tied, and how many pairs differ.

    P is the probability that the first of them is the best of all.
    """
    count, noun = ranked.table.num_rows, ranked.noun
    if not count:
        return f"no {noun} has a finite ability"
    if not converged:
        return "open: the fit has NOT CONVERGED, do not use these scores"
    if count == 1:
        return f"there is one {noun}: nothing to compare"
    tied = int(tie_ranks(ranked)[1][0])
    row = ranked.rows(stop=1)[0]
    sure = row["probability_best"]
    chance = "P > .99" if sure >= 0.995 else f"P {points(sure, 2)}"
    rate = percent(round(1 - ranked.level, 6))
    pairs = f"{ranked.num_different:,} of {ranked.num_pairs:,} pairs differ"
    pairs = f"{pairs} ({rate} false)." if count > 2 else ""
    if tied == count > 2:
        return f"all {count:,} are tied: no pair differs ({rate} false)."
    names, room = ranked.table.column("subject").to_pylist(), width - _LABEL
    if tied == 1:
        leader = f"{_fitting(names, 1, room - 16)}, alone ({chance})."
    elif sure >= LIKELY:
        middle = f" ({chance}), not significantly ahead of "
        best, *others = short_names(names).values()
        leader = best + middle
        left = max(room - display_width(leader) - 1, _LEAST)
        leader += f"{listed(others[: tied - 1], left, ' and ')}."
    else:
        end = f" share it ({chance})."
        leader = _fitting(names, tied, room - len(end)) + end
    whole = f"{leader} {pairs}".rstrip()
    fits = display_width(whole) <= room
    return whole if fits or not pairs else f"{leader}\n{pairs}"


def _fitting(names: list[str], count: int, room: int) -> str:
    """The first names, whole or cut if they are few, else some and how many more."""
    room = max(room, _LEAST)
    short = list(short_names(names).values())
    text = listed(short[:count], room, " and ")
    if count > _FEW_NAMES or text == listed(short[:count], 1000, " and "):
        return text
    each = max((room - 5 - 2 * (count - 2)) // count, _LEAST - 2)
    cut = cut_names(bare_names(names)[0], each)[:count]
    return listed(cut, room, " and ")


def read(fit: Calibration, audit: Any = None, to_read: Any = None) -> str:
    """Returns the items to read: those of agreeing answers, else the flagged ones."""
    if to_read is not None:
        return to_read.sentence()
    if audit is not None:
        from irtjax.auditing import TESTED

        kinds = {kind: audit.flagged(kind) for kind in TESTED}
    else:
        kinds = items_by_flag(fit)
    bad = list(dict.fromkeys(name for names in kinds.values() for name in names))
    if not bad:
        return ""
    flags = [kind for kind, names in kinds.items() if names]
    return (
        f"{counted(len(bad), 'item')} flagged ({', '.join(flags)}): {listed(bad, 40)}"
    )


def mind(fit: Calibration, ranked: RankedSubjects) -> str:
    """Returns the one or two warnings that matter most for these data."""
    noun = fit.nouns[0]
    warnings = [
        brief(_COPIES.sub(f"several {noun}s ", text))
        for text in fit.warnings
        if not is_of_items(text)
    ]
    of_size = [text for text in warnings if _OF_SIZE.search(text)]
    warnings = [text for text in warnings if text not in of_size]
    warnings = [text.rstrip(".") for text in direction_sentences(fit)] + warnings
    left = len(fit.subject_names) - ranked.table.num_rows
    if left and ranked.table.num_rows:
        warnings.append(f"{counted(left, noun)} without a finite ability left out")
    chosen = {name: x for name, (_, x) in usual_choices(fit.notes).items() if x}
    if chosen:
        shown = [f"{name} is {filters}" for name, filters in chosen.items()]
        warnings.append(listed(shown, _MOST))
    if not of_size and len(fit.subject_names) < _FEW and len(fit.item_names) > 1:
        of_size = [f"too few {noun}s to test items"]
    return "; ".join([*warnings, *of_size][:MOST_WARNINGS])


def brief(warning: str) -> str:
    """The beginning of a warning: what is wrong, without the reason and the cure."""
    whole = visible(warning)
    text = re.split(r"[:;]\s", whole, maxsplit=1)[0]
    text = whole if len(text) < _SHORT else text
    text = re.sub(r" \([^()]*\)$", "", text) if len(text) > _MOST else text
    return text if len(text) <= _MOST else text[: _MOST - 1].rsplit(" ", 1)[0] + " …"


def following(ranked: RankedSubjects, folder: Path | str | None) -> str:
    """Returns the command that usually follows: the first two compared."""
    if folder is None:
        return ""
    names = ranked.table.column("subject").slice(0, 2).to_pylist()
    if len(names) < 2:
        return shlex.join(["irtjax", "items", str(folder)])
    return shlex.join(["irtjax", "compare", *names, "--fit", str(folder)])


def verdict(
    fit: Calibration,
    ranked: RankedSubjects,
    *,
    audit: Any = None,
    to_read: Any = None,
    more: Mapping[str, str] | None = None,
    folder: Path | str | None = None,
    width: int | None = None,
) -> dict[str, str]:
    """Returns the lines of the verdict by name, those that have something to state.

    Args:
        fit: The calibration.
        ranked: Its ranking.
        audit: An audit of its items, if there is one.
        to_read: The items to read (`auditing.items_to_read`), if they were examined.
        more: Further lines, which stand before "Mind".
        folder: The folder that the next command names.
        width: Columns for the names of the first; None takes those of the terminal.
    """
    width = terminal_width() if width is None else width
    lines = {
        "First": first(ranked, has_converged(fit), width),
        "Read": read(fit, audit, to_read),
        **(more or {}),
        "Mind": mind(fit, ranked),
        "Next": following(ranked, folder),
    }
    return {name: text for name, text in lines.items() if text}
