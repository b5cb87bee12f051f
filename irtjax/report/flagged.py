"""Flagged items for people to read: their texts, and why they are flagged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from irtjax.data.item_texts import ItemText, Texts
from irtjax.data.wording import counted, have
from irtjax.report.words import markdown, number, visible

if TYPE_CHECKING:
    from irtjax.auditing import Audit

#: Items with their texts on the page and on the screen.
ON_PAGE, ON_SCREEN = 200, 3
#: Characters of a prompt and of an answer on the screen.
_PROMPT, _ANSWER = 240, 100


def is_bad(flags: str) -> bool:
    """Whether a test found a defect; saturation and no variation are none."""
    return bool(_tested(flags))


def _tested(flags: str) -> list[str]:
    """Those of an item's flags that were tested with error control."""
    from irtjax.auditing.examine import TESTED

    return [x for x in flags.split("; ") if x in TESTED]


def worst_first(audit: Audit) -> list[dict[str, Any]]:
    """Rows of the flagged items: those with most defects, then the smallest p-values.

    Items that are only saturated or without variation come last: no test found them.
    """
    from irtjax.auditing.examine import column_of

    rows = [row for row in audit.items.to_pylist() if row["flags"]]

    def place(row: dict[str, Any]) -> tuple[int, float]:
        defects = _tested(row["flags"])
        p_values = [row[column_of(x)] for x in defects]
        return -len(defects), min(
            (p for p in p_values if p is not None), default=math.inf
        )

    return sorted(rows, key=place)


def flagged_table(audit: Audit, texts: Texts) -> pa.Table:
    """A row for each flagged item, the worst first, with its texts if known."""
    names = ("item", "benchmark", "flags", "observed", "accuracy", "item_rest")
    rows = [
        {name: row[name] for name in names} | _of(texts, row["item"])._asdict()
        for row in worst_first(audit)
    ]
    fields = [audit.items.schema.field(name) for name in names]
    words = [pa.field(name, pa.string()) for name in ("prompt", "answer", "wrong")]
    schema = pa.schema([*fields, *words, pa.field("wrong_count", pa.int64())])
    return pa.Table.from_pylist(rows, schema)


def flagged_page(audit: Audit, texts: Texts) -> str:
    """The flagged items with their texts as Markdown, in which nothing is markup."""
    rows = worst_first(audit)
    lines = [
        "# Flagged items",
        "",
        f"{len(rows):,} of {counted(audit.items.num_rows, 'item')} {have(len(rows))}"
        " a flag. Those"
        " with most"
        " defects come first, then those with the smallest p-values.",
    ]
    if len(rows) > ON_PAGE:
        lines[-1] += f" The first {ON_PAGE} are here, all in flagged_items.csv."
    for row in rows[:ON_PAGE]:
        text = _of(texts, row["item"])
        lines += ["", f"## {markdown(row['item'])}", ""]
        lines += [f"- flags: {row['flags']}", f"- {_numbers(row)}"]
        if text.answer:
            lines.append(f"- expected: {_in_line(text.answer)}")
        if text.wrong:
            lines.append(f"- {_times(text)}: {_in_line(text.wrong)}")
        if text.prompt:
            lines += ["", *_fenced(text.prompt)]
    return "\n".join(lines) + "\n"


def flagged_lines(audit: Audit, texts: Texts) -> list[str]:
    """Sentences on the worst of the bad items whose texts are known, for a screen."""
    rows = [row for row in worst_first(audit) if row["item"] in texts]
    lines = []
    for row in [row for row in rows if is_bad(row["flags"])][:ON_SCREEN]:
        text = texts[row["item"]]
        lines += ["", f"{row['item']} ({row['flags']}): {_numbers(row)}"]
        if text.prompt:
            lines.append(f"  {_short(text.prompt, _PROMPT)}")
        if text.answer:
            lines.append(f"  expected: {_short(text.answer, _ANSWER)}")
        if text.wrong:
            lines.append(f"  {_times(text)}: {_short(text.wrong, _ANSWER)}")
    return lines


def _of(texts: Mapping[str, ItemText], name: str) -> ItemText:
    """The texts of an item, empty where there are none."""
    return texts.get(name, ItemText())


def _numbers(row: Mapping[str, Any]) -> str:
    """Accuracy and item-rest correlation in words."""
    return (
        f"{number(row['accuracy'], 3)} right of {row['observed']:,}, item-rest"
        f" correlation {number(row['item_rest'])}"
    )


def _times(text: ItemText) -> str:
    """The title of the most frequent wrong answer."""
    times = "once" if text.wrong_count == 1 else f"{text.wrong_count:,} times"
    return f"most frequent wrong answer ({times})"


def _in_line(text: str) -> str:
    """A text in one line of Markdown."""
    return markdown(" ".join(text.split()))


def _short(text: str, most: int) -> str:
    """A text on one line, its end kept: the question follows the examples."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= most else f"…{line[len(line) - most + 1 :]}"


def _fenced(text: str) -> list[str]:
    """A text as a block of code, with a fence that is not in it."""
    lines = [visible(line.replace("\t", "    ")) for line in text.splitlines()]
    fence = "```"
    # Of the lines as they are shown: what is removed can join backticks.
    while any(fence in line for line in lines):
        fence += "`"
    return [f"{fence}text", *lines, fence]
