"""The section of bad items in `report.html`: flags with their evidence."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from irtjax.calibration.flags import CONSTANT, MEANING
from irtjax.data.wording import are, counted, percent
from irtjax.models.model import response_ends
from irtjax.report import page_data
from irtjax.report.audit import nearest_sentence
from irtjax.report.page_data import Sources, column, labels, labels_of_benchmarks
from irtjax.report.summary import constant_items, constant_sentence, none_flagged
from irtjax.report.words import interval, number, short

if TYPE_CHECKING:
    from irtjax.auditing import Audit
    from irtjax.calibration.calibration import Calibration

#: Rows of the table, letters of an item's text there, and of all these together.
BAD_ROWS, TEXT, ROOM = 200, 2000, 60_000


def bad_flags(fit: Calibration, audit: Audit | None) -> list[str]:
    """Flags of each item that claim a defect: of the fit, and tested by the audit."""
    table = fit.items.table
    found = []
    for text in table.column("flags").to_pylist():
        names = [x for x in (text or "").split("; ") if x and x not in CONSTANT]
        found.append(names)
    if audit is not None:
        from irtjax.auditing import TESTED

        rows = audit.items.select(["item", "flags"]).to_pylist()
        of = {row["item"]: row["flags"].split("; ") for row in rows}
        for names, item in zip(found, table.column("item").to_pylist(), strict=True):
            tested = [x for x in of.get(item, ()) if x in TESTED and x not in names]
            names += tested
    return ["; ".join(names) for names in found]


def bad_items(of: Sources, flags: list[str], places: np.ndarray) -> dict[str, Any]:
    """Items whose flags claim a defect, with the evidence."""
    fit = of.fit
    chosen = [k for k, flag in enumerate(flags) if flag]
    slope = column(fit.items.table, "discrimination")
    evidence = _evidence(of)
    chosen.sort(key=lambda k: (evidence.least(k), slope[k]))
    shown = chosen[:BAD_ROWS]
    names = labels(fit.item_names)
    where = {place: k for k, place in enumerate(places.tolist())}
    # All of a few items, the beginnings of many.
    most = min(TEXT, ROOM // max(len(shown), 1))
    texts = page_data.texts_of(of.texts, fit.item_names, shown, most)
    ends = page_data.thirds(of.cells, of.order)
    error = column(fit.items.table, "discrimination_se")
    benchmarks = labels_of_benchmarks(fit.items.table)
    accuracy = column(fit.items.table, "accuracy")
    observed = fit.items.table["observed"].to_pylist()
    half = float(ndtri(0.5 + fit.level / 2)) * error
    rows = []
    for k in shown:
        bounds = interval(slope[k] - half[k], slope[k] + half[k])
        row = {"name": names[k], "place": where.get(k, ""), "text": texts.get(k)}
        row |= {"benchmark": benchmarks[k], "evidence": evidence.of(k, flags[k])}
        row |= {"discrimination": number(slope[k]), "accuracy": number(accuracy[k], 3)}
        row["discrimination_interval"] = bounds if math.isfinite(half[k]) else ""
        row["observed"] = f"{observed[k]:,}"
        if ends is not None:
            low, top = response_ends(fit.model).values()
            weak, strong = (low + (top - low) * x for x in ends[:, k].tolist())
            row |= {"weakest": number(weak), "strongest": number(strong)}
        rows.append(row)
    total, count = len(flags), len(chosen)
    constant = constant_items(fit)
    sentence = (
        f"{count:,} of {counted(total, 'item')} {are(count)} flagged."
        f" {constant_sentence(constant, total)}"
    ).rstrip()
    if not count:
        sentence = none_flagged(constant, total)
        near = "" if of.audit is None else nearest_sentence(of.audit, short)
        sentence += f" {near}" * bool(near)
    rate = None if of.audit is None else percent(of.audit.false_discovery_rate)
    note = "A flag is a reason to read an item, not a verdict on it."
    if rate is not None:
        note = f"Each test has a false discovery rate of {rate}. q: adjusted p. {note}"
        note += f" {of.audit.missing}" if of.audit is not None else ""
    elif count or of.fit.model.family.dims == 0:
        note += " `irtjax audit` tests for wrong keys, copies and contamination too."
    left = count - len(shown)
    return {
        "rows": rows,
        "sentence": sentence,
        "caption": "Flagged items, the strongest evidence first",
        "thirds": ends is not None,
        "benchmarks": len({*benchmarks}) > 1,
        "left": f"{counted(left, 'more flagged item')} {are(left)} in items.csv."
        if left > 0
        else "",
        "note": note.replace("`", ""),
    }


@dataclasses.dataclass(frozen=True)
class _Evidence:
    """What is known about a flag of an item: its meaning, and the audit's p-values."""

    meaning: dict[str, str]
    tests: dict[str, dict[str, tuple[float, float]]]
    items: list[str]

    def of(self, place: int, flags: str) -> list[dict[str, str]]:
        """Flags of one item with their meaning and, if tested, p and q."""
        found = []
        for flag in filter(None, flags.split("; ")):
            text = self.meaning.get(flag, "")
            p, q = self.tests.get(flag, {}).get(self.items[place], (math.nan, math.nan))
            if math.isfinite(p):
                text += f" (p = {p:.2g}, q = {q:.2g})"
            found.append({"flag": flag, "meaning": text})
        return found

    def least(self, place: int) -> float:
        """The smallest p-value of an item; 1 without one."""
        name = self.items[place]
        known = [of[name][0] for of in self.tests.values() if name in of]
        return min([p for p in known if math.isfinite(p)], default=1.0)


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
