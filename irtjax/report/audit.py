"""An audit as rows for a screen and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from irtjax.data.wording import counted, percent
from irtjax.report.leaderboard_page import points, table_lines
from irtjax.report.words import listing, markdown, number, short

if TYPE_CHECKING:
    from irtjax.auditing import Audit, ItemsToRead


def benchmark_quality_rows(audit: Audit) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the benchmarks: means, ranks in brackets, sum of ranks."""
    from irtjax.auditing import PROPERTIES

    header = ["benchmark", "items", "accuracy"]
    header += ["LEH" if name == "leh" else name for name in PROPERTIES]
    header += ["item-rest", "rank total"]
    rows = []
    for row in audit.benchmarks.to_pylist():
        cells = [row["benchmark"] or "(all)", f"{row['items']:,}"]
        cells.append(number(row["accuracy"], 3))
        for name in PROPERTIES:
            digits = 4 if name in ("leh", "information") else 2
            cells.append(f"{number(row[name], digits)} ({row[f'rank_{name}']:g})")
        cells += [number(row["item_rest"], 2), f"{row['rank_total']:g}"]
        rows.append(cells)
    return header, rows


def audit_rows(
    audit: Audit, most: int = 5, name: Callable[[str], str] = str
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the defects: their numbers, and names of items."""
    control = {}
    if audit.control is not None:
        control = {row["defect"]: row for row in audit.control.to_pylist()}
    header = (
        ["defect", "items"] + ["without signal"] * bool(control) + ["smallest p-values"]
    )
    rows = []
    untested = _untested(audit)
    for defect, count in audit.counts().items():
        if defect in untested:
            continue
        row = [defect, f"{count:,}"]
        if control:
            expected = control.get(defect)
            mean = (
                "–" if expected is None else number(expected["without_signal_mean"], 1)
            )
            row.append(mean)
        names = [name(item) for item in audit.flagged(defect)]
        rows.append([*row, listing(names, most)])
    return header, rows


def _untested(audit: Audit) -> set[str]:
    """The defects that are not tested, of scores."""
    from irtjax.auditing import TESTED
    from irtjax.auditing.examine import column_of

    nulls = {x: audit.items.column(column_of(x)).null_count for x in TESTED}
    lost = {x for x, count in nulls.items() if count == audit.items.num_rows}
    # Of right and wrong responses a test may be left out, and is still listed.
    return lost if "suspected wrong key" in lost else set()


def to_read_rows(
    found: ItemsToRead, most: int = 5, name: Callable[[str], str] = short
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the items to read: all that are significant, or the first."""
    size = max(most, len(found.significant))
    rows = [
        [
            name(row["item"]),
            name(row["answer"]) if row["answer"] else "–",
            f"{row['count']:,} of {row['models']:,}",
            name(row["key"]) if row["key"] else "–",
            f"{row['p_value']:.2g}",
        ]
        for row in found.table.slice(0, size).to_pylist()
    ]
    return ["item", "answer", "models", "key", "p"], rows


def discriminating_sentence(audit: Audit) -> str:
    """Counts the items whose discrimination differs from zero."""
    discriminating = audit.items.column("discriminates").to_pylist()
    count, total = sum(bool(x) for x in discriminating), len(discriminating)
    without = ""
    for row in [] if audit.control is None else audit.control.to_pylist():
        if row["defect"] == "discriminates":
            mean = number(row["without_signal_mean"], 1)
            without = f", {mean} where nothing is related to ability"
    return (
        f"Zero discrimination is refuted for {count:,} of {counted(total, 'item')}"
        " (false"
        f" discovery rate {percent(audit.false_discovery_rate)}{without}); Cronbach's"
        f" alpha of all items: {number(audit.alpha, 3)}."
    )


def nearest_sentence(audit: Audit, name: Callable[[str], str] = str) -> str:
    """The items nearest to a flag where none has one; "" where none is near.

    Few subjects leave the tests without power: these items are the first to read.
    """
    from irtjax.auditing import TESTED

    if any(audit.flagged(defect) for defect in TESTED):
        return ""
    near = [x for x in audit.nearest() if x[2] <= audit.false_discovery_rate]
    parts = [f"{name(item)} ({defect}, p = {p:.2g})" for item, defect, p in near]
    p = "p-values without correction for the number of tests"
    return f"Nearest to a flag ({p}): {listing(parts)}." * bool(parts)


def audit_page(
    audit: Audit, figures: Sequence[str] = (), notes: Sequence[str] = ()
) -> str:
    """Returns the audit as Markdown; names are escaped for Markdown and HTML.

    Args:
        audit: The audit.
        figures: Names of its figures, which are shown at the end.
        notes: How the responses were read.
    """
    header, rows = benchmark_quality_rows(audit)
    rows = [[markdown(row[0]), *row[1:]] for row in rows]
    lines = ["# Audit", "", discriminating_sentence(audit), "", markdown(audit.missing)]
    lines += ["", "## Benchmarks", "", *table_lines(header, rows)]
    header, rows = audit_rows(audit, 10, markdown)
    lines += [
        "",
        "## Items by defect",
        "",
        *table_lines(header, rows, (0, len(header) - 1)),
    ]
    rate = percent(audit.false_discovery_rate)
    near = nearest_sentence(audit, markdown)
    rate = f"The test of each defect has a false discovery rate of {rate}."
    lines += ["", f"{rate} {near}".strip()]
    read = audit.to_read
    if read is not None and read.table.num_rows:
        header, rows = to_read_rows(read, 10, markdown)
        lines += ["", "## Items to read", "", *table_lines(header, rows, (0, 1, 3))]
        lines += ["", f"{markdown(read.sentence())}."]
    if audit.warnings:
        lines += ["", "## Warnings", "", *points(audit.warnings)]
    if notes:
        lines += ["", "## Notes", "", *points(notes)]
    for name in figures:
        title = name.removesuffix(".png").replace("_", " ").capitalize()
        lines += ["", f"## {title}", "", f"![{title}]({name})"]
    return "\n".join(lines) + "\n"
