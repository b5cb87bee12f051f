"""Items to read in `report.html`: answers that agree, and flags with evidence."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from irtjax.calibration.flags import CONSTANT, MEANING
from irtjax.data.wording import are, counted, percent
from irtjax.models.model import response_ends
from irtjax.report import page_data
from irtjax.report.audit import nearest_sentence
from irtjax.report.page_data import Sources, column, labels, labels_of_benchmarks
from irtjax.report.page_scores import noun_of
from irtjax.report.words import interval, listing, number, short
from irtjax.validity.classical import ENOUGH

if TYPE_CHECKING:
    from irtjax.auditing import Audit, ItemsToRead
    from irtjax.calibration.calibration import Calibration

#: Rows of the table, and letters of an item's text there.
ROWS, TEXT = 200, 2000
#: Letters of the line that stands for a text, of an answer, and of a sentence.
HEAD, ANSWER, SENTENCE = 120, 80, 2000
#: Items that are shown although not significant, and names at the head of the page.
FIRST, TILE = 5, 3


def flags_of(fit: Calibration, audit: Audit | None) -> list[str]:
    """Flags of each item that claim a defect: of the fit, and tested by the audit."""
    table = fit.items.table
    names_of = []
    for text in table.column("flags").to_pylist():
        names = [x for x in (text or "").split("; ") if x and x not in CONSTANT]
        names_of.append(names)
    if audit is not None:
        from irtjax.auditing import TESTED

        rows = audit.items.select(["item", "flags"]).to_pylist()
        of = {row["item"]: row["flags"].split("; ") for row in rows}
        for names, item in zip(names_of, table.column("item").to_pylist(), strict=True):
            tested = [x for x in of.get(item, ()) if x in TESTED and x not in names]
            names += tested
    return ["; ".join(names) for names in names_of]


def items_to_read(
    of: Sources, flags: list[str], places: np.ndarray, found: ItemsToRead | None
) -> dict[str, Any]:
    """Items on whose other answer the models agree, then those that are flagged."""
    fit = of.fit
    agreed = _agreed(found)
    names = fit.item_names.tolist()
    where = {name: k for k, name in enumerate(names)}
    first = [where[row["item"]] for row in agreed if row["item"] in where]
    by_place = {where[row["item"]]: row for row in agreed if row["item"] in where}
    evidence = _evidence(of)
    slope = column(fit.items.table, "discrimination")
    others = [k for k, flag in enumerate(flags) if flag and k not in by_place]
    others.sort(key=lambda k: (evidence.least(k), slope[k]))
    chosen = first + others
    rows = _rows(of, chosen[:ROWS], flags, places, by_place, evidence)
    sentence, brief = _sentences(of, flags, found, len(others))
    count = len(others) + (0 if found is None else len({*found.significant}))
    left = len(chosen) - len(rows)
    return {
        "rows": rows,
        "count": count,
        "sentence": sentence,
        "brief": brief,
        "noun": noun_of(fit),
        "answers": bool(first),
        "why": _why(rows),
        # Answers are the stronger evidence.
        "thirds": not first and any("weakest" in row for row in rows),
        "benchmarks": len({*labels_of_benchmarks(fit.items.table)}) > 1,
        "left": f"{counted(left, 'more flagged item')} {are(left)} in items.csv."
        if left > 0
        else "",
        "note": _note(of, bool(others), bool(first)),
    }


def _agreed(found: ItemsToRead | None) -> list[dict[str, Any]]:
    """Rows of the significant items, and of the next ones where these are few."""
    if found is None:
        return []
    rows, significant = found.table.to_pylist(), {*found.significant}
    first = [row for row in rows if row["item"] in significant]
    others = [row for row in rows if row["item"] not in significant]
    return first + others[: max(FIRST - len(first), 0)]


def _rows(
    of: Sources,
    chosen: list[int],
    flags: list[str],
    places: np.ndarray,
    agreed: dict[int, dict[str, Any]],
    evidence: _Evidence,
) -> list[dict[str, Any]]:
    """Rows of the table, as text."""
    fit = of.fit
    names, benchmarks = labels(fit.item_names), labels_of_benchmarks(fit.items.table)
    where = {place: k for k, place in enumerate(places.tolist())}
    # All of a few items, the beginnings of many.
    room = page_data.text_rooms(len(fit.item_names))[0]
    texts = page_data.texts_of(
        of.texts, fit.item_names, chosen, min(TEXT, room // max(len(chosen), 1))
    )
    ends = page_data.thirds(of.cells, of.order)
    slope, error = (
        column(fit.items.table, f"discrimination{end}") for end in ("", "_se")
    )
    accuracy = column(fit.items.table, "accuracy")
    half = float(ndtri(0.5 + fit.level / 2)) * error
    rows = []
    for k in chosen:
        row = {"name": names[k], "place": where.get(k, ""), "benchmark": benchmarks[k]}
        row |= {"evidence": evidence.of(k, flags[k]), "text": texts.get(k)}
        row["head"] = _head(texts.get(k))
        row |= {"discrimination": number(slope[k]), "accuracy": number(accuracy[k])}
        bounds = interval(slope[k] - half[k], slope[k] + half[k])
        row["discrimination_interval"] = bounds if math.isfinite(half[k]) else ""
        if k in agreed:
            one = agreed[k]
            row |= {x: short(str(one[x] or "–"), ANSWER) for x in ("answer", "key")}
            row |= {"count": f"{one['count']:,}", "p": p_text(one["p_value"])}
            if one.get("models"):
                row["count"] += f" of {one['models']:,}"
        if ends is not None and np.isfinite(ends[:, k]).any():
            low, top = response_ends(fit.model).values()
            weak, strong = (low + (top - low) * x for x in ends[:, k].tolist())
            row |= {"weakest": number(weak), "strongest": number(strong)}
        rows.append(row)
    return rows


def _why(rows: list[dict[str, Any]]) -> str:
    """The heading of the column of reasons and texts; "" without any."""
    if any(row["evidence"] for row in rows):
        return "Why"
    return "Prompt" if any(row["text"] for row in rows) else ""


def p_text(p: float | None) -> str:
    """Returns a p-value with two digits.

    >>> p_text(0.0312), p_text(1.3e-7), p_text(None)
    ('.031', '1.3e-07', '–')
    """
    if p is None or not math.isfinite(p):
        return "–"
    return f"{p:.2g}".removeprefix("0") if p >= 1e-3 else f"{p:.1e}"


def _head(text: str | None) -> str:
    r"""The end of a prompt on one line: the question follows the examples.

    >>> _head("1 + 1 = ?\nA:\n\nExpected: 2")
    '1 + 1 = ? A:'
    """
    prompt, _, _ = (text or "").partition("\n\nExpected: ")
    line = " ".join(prompt.split())
    return line if len(line) <= HEAD else f"…{line[-HEAD:]}"


def _sentences(
    of: Sources, flags: list[str], found: ItemsToRead | None, others: int
) -> tuple[str, str]:
    """What the section begins with, and a sentence for the head of the page."""
    agreed = "" if found is None else short(found.sentence(TILE), SENTENCE)
    if agreed:
        size = len(found.significant) if found is not None else 0
        agreed = agreed.removeprefix(f"{counted(size, 'item')} ")
        agreed = f"{agreed[0].upper()}{agreed[1:].rstrip('.')}."
    if others:
        kinds = Counter(x for flag in flags for x in flag.split("; ") if x)
        text = f"{others:,} of {counted(len(flags), 'item')} {are(others)} flagged."
        most = [f"{n:,} {name}" for name, n in kinds.most_common(3)]
        return text, f"{agreed} Flagged: {listing(most)}.".lstrip()
    brief = "No item is flagged"
    if len(of.fit.subject_names) < 2 * ENOUGH:
        count = counted(len(of.fit.subject_names), noun_of(of.fit))
        brief += f"; {count} are few to find one"
    near = "" if of.audit is None else nearest_sentence(of.audit, short)
    return near, agreed or f"{brief}."


def _note(of: Sources, flagged: bool, agreed: bool) -> str:
    """How to read the table."""
    note = "A reason to read an item, not a verdict on it."
    if agreed:
        note += (
            f" p: chance of as much agreement if {noun_of(of.fit)}s err independently."
        )
    if of.audit is not None and flagged:
        rate = percent(of.audit.false_discovery_rate)
        note += f" Each test has a false discovery rate of {rate}; q: adjusted p."
    return note


@dataclasses.dataclass(frozen=True)
class _Evidence:
    """What is known about a flag of an item: its meaning, and the audit's p-values."""

    meaning: dict[str, str]
    tests: dict[str, dict[str, tuple[float, float]]]
    items: list[str]

    def of(self, place: int, flags: str) -> list[dict[str, str]]:
        """Flags of one item with their meaning and, if tested, p and q."""
        meanings = []
        for flag in filter(None, flags.split("; ")):
            text = self.meaning.get(flag, "")
            p, q = self.tests.get(flag, {}).get(self.items[place], (math.nan, math.nan))
            if math.isfinite(p):
                text += f" (p = {p:.2g}, q = {q:.2g})"
            meanings.append({"flag": flag, "meaning": text})
        return meanings

    def least(self, place: int) -> float:
        """The smallest p-value of an item; 1 without one."""
        name = self.items[place]
        p_values = [of[name][0] for of in self.tests.values() if name in of]
        return min([p for p in p_values if math.isfinite(p)], default=1.0)


def _evidence(of: Sources) -> _Evidence:
    """Meanings of flags, and p-values by defect and item."""
    meaning, tests = dict(MEANING), {}
    if of.audit is not None:
        from irtjax.auditing import TESTED
        from irtjax.auditing.examine import column_of

        meaning |= TESTED
        names = of.audit.items.column("item").to_pylist()
        for defect in TESTED:
            p = column(of.audit.items, column_of(defect))
            q = column(of.audit.items, "q" + column_of(defect)[1:])
            pairs = zip(p.tolist(), q.tolist(), strict=True)
            tests[defect] = dict(zip(names, pairs, strict=True))
    return _Evidence(meaning, tests, of.fit.items.table.column("item").to_pylist())
