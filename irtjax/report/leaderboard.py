"""The leaderboard as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from irtjax.data.wording import percent
from irtjax.report.summary import flag_counts, summarise
from irtjax.report.words import interval, listing, markdown, number, score_text

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects

#: Rows of the page; the tables in its folder have all.
MOST_ROWS = 500


def leaderboard(
    fit: Calibration,
    ranked: RankedSubjects,
    figures: Sequence[tuple[str, str]] = (),
) -> str:
    """Returns the page: summary, ranked table, flagged items, figures, how it was made.

    Names are escaped for Markdown and HTML.

    Args:
        fit: The calibration.
        ranked: Its ranking.
        figures: Titles and file names of figures in the folder.
    """
    lines = ["# Leaderboard", ""]
    for sentence in summarise(fit, ranked, markdown):
        head, *points = sentence.split("\n")
        lines += [f"- {head}", *(f"  - {point.strip()}" for point in points)]
    if fit.warnings:
        lines += ["", "## Warnings", "", *(f"- {markdown(w)}" for w in fit.warnings)]
    lines += ["", "## Subjects", "", *_subjects(ranked)]
    if fit.benchmarks is not None and len(set(fit.benchmarks.tolist())) > 1:
        lines += ["", "## Benchmarks", "", *_benchmarks(fit)]
    flagged = flag_counts(fit.item_table, "item")
    if flagged:
        lines += ["", "## Flagged items", "", *_flagged(flagged)]
    for title, name in figures:
        lines += ["", f"## {title}", "", f"![{title}]({name})"]
    lines += ["", "## How it was made", "", *_method(fit)]
    return "\n".join(lines) + "\n"


def table_lines(
    header: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)
) -> list[str]:
    """Returns a Markdown table; the columns at `left` are aligned to the left."""
    marks = ["---" if k in left else "--:" for k in range(len(header))]
    return [
        "| " + " | ".join(header) + " |",
        "| " + " | ".join(marks) + " |",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def group_span(first: int, last: int) -> str:
    """Returns the groups of a subject.

    >>> group_span(1, 1), group_span(2, 4)
    ('1', '2-4')
    """
    return str(first) if first == last else f"{first}-{last}"


def _subjects(ranked: RankedSubjects) -> list[str]:
    level = percent(ranked.level)
    header = ["subject", "rank", f"{level} ranks", "ability", "error"]
    header += [f"{level} interval", "P(best)", "groups", "score", "accuracy"]
    header += ["error (items)", "observed"]
    rows = []
    for row in ranked.rows(stop=MOST_ROWS):
        rows.append(
            [
                markdown(row["subject"]),
                str(row["rank"]),
                interval(row["rank_lower"], row["rank_upper"], 0),
                number(row["ability"], 3),
                number(row["ability_se"], 3),
                interval(row["lower"], row["upper"]),
                number(row["probability_best"]),
                group_span(row["first_group"], row["last_group"]),
                score_text(
                    row["expected_score"],
                    row["expected_score_lower"],
                    row["expected_score_upper"],
                ),
                number(row["accuracy"], 3),
                number(row["accuracy_se"], 3),
                f"{row['observed']:,}",
            ]
        )
    lines = table_lines(header, rows)
    left = ranked.table.num_rows - len(rows)
    if left > 0:
        lines += ["", f"{left:,} more subjects are in `abilities.csv`."]
    lines += [
        "",
        f"Ranks: the interval leaves out at most {percent(round(1 - ranked.level, 6))}"
        " of the probability, at most half of it at either end. P(best): probability"
        " of rank 1. Subjects that share a group are statistically tied. Error:"
        " standard error.",
        " Score: expected mean response over all items of the fit, with its interval."
        " Accuracy: mean of the observed responses; its error is over items.",
    ]
    return lines


def benchmark_rows(fit: Calibration) -> list[tuple[str, int, float, float, int]]:
    """Returns name, items, mean discrimination, median difficulty, flagged items."""
    import numpy as np
    import pyarrow as pa

    def floats(name: str) -> np.ndarray:
        values = fit.item_table.column(name).cast(pa.float64()).combine_chunks()
        return values.to_numpy(zero_copy_only=False)

    names = np.array([b or "" for b in fit.item_table.column("benchmark").to_pylist()])
    slope, difficulty = floats("discrimination"), floats("difficulty")
    flagged = np.array([bool(f) for f in fit.item_table.column("flags").to_pylist()])
    rows = []
    for name in np.unique(names).tolist():
        mine = names == name
        known = difficulty[mine & np.isfinite(difficulty)]
        middle = float(np.median(known)) if known.size else float("nan")
        mean = float(np.nanmean(slope[mine])) if np.isfinite(slope[mine]).any() else 0.0
        rows.append((name, int(mine.sum()), mean, middle, int(flagged[mine].sum())))
    return rows


def _benchmarks(fit: Calibration) -> list[str]:
    header = ["benchmark", "items", "mean discrimination", "median difficulty"]
    rows = [
        [markdown(name), f"{size:,}", number(slope), number(middle), f"{flagged:,}"]
        for name, size, slope, middle, flagged in benchmark_rows(fit)
    ]
    return table_lines([*header, "flagged"], rows)


def _flagged(found: dict[str, list[str]]) -> list[str]:
    rows = [
        [markdown(flag), f"{len(names):,}", listing([markdown(n) for n in names], 8)]
        for flag, names in found.items()
    ]
    lines = table_lines(["flag", "items", "which"], rows, (0, 2))
    return [*lines, "", "All of them are in `items.csv`."]


def option_pairs(options: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Returns options as "name value", nested ones as "outer.inner value".

    >>> option_pairs({"model": "2pl", "priors": {"intercept": "N"}, "anchor": None})
    ['model 2pl', 'priors.intercept N']
    """
    out: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            out += option_pairs(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            # Options that take several values are left out where there are none.
            if not value:
                continue
            out.append(f"{prefix}{name} {listing([str(v) for v in value])}")
        elif value is not None:
            out.append(f"{prefix}{name} {value}")
    return out


def _method(fit: Calibration) -> list[str]:
    options = ", ".join(option_pairs(fit.options))
    versions = ", ".join(f"{k} {v}" for k, v in fit.versions.items())
    times = ", ".join(f"{k} {v:.2f} s" for k, v in fit.timings.items())
    lines = [
        f"- Options: {markdown(options)}",
        f"- Versions: {markdown(versions)}",
        f"- Time: {markdown(times)}",
        f"- Data: SHA-256 `{fit.data_hash}`",
    ]
    return lines + [f"- {markdown(note)}" for note in fit.notes]
