"""The leaderboard as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from irtjax.calibration.flags import CONSTANT, is_of_items
from irtjax.calibration.heterogeneity import discrimination_heterogeneity
from irtjax.data.wording import are, counted, percent
from irtjax.report.summary import has_converged, summarise
from irtjax.report.words import (
    interval,
    listing,
    markdown,
    number,
    score_text,
    worded,
)

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects

#: Rows of the page; the tables in its folder have all.
MOST_ROWS = 500
#: Rows and columns of the table of accuracies by benchmark.
MOST_SUBJECTS, MOST_BENCHMARKS = 50, 12


def leaderboard(
    fit: Calibration, ranked: RankedSubjects, figures: Sequence[tuple[str, str]] = ()
) -> str:
    """Returns the page: summary, ranked table, flagged items, figures, how it was made.

    Names are escaped for Markdown and HTML. `figures` are titles and file names.
    """
    lines = ["# Leaderboard", ""]
    lines += [f"- {sentence}" for sentence in summarise(fit, ranked, markdown)]
    flagged = [w for w in fit.warnings if is_of_items(w)]
    others = [w for w in fit.warnings if w not in flagged]
    if others:
        lines += ["", "## Warnings", "", *points(others)]
    lines += ["", "## Subjects", "", *_subjects(ranked)]
    difference = heterogeneity_sentence(fit) if has_converged(fit) else None
    if difference is not None:
        lines += ["", difference]
    if fit.benchmarks is not None and len(set(fit.benchmarks.tolist())) > 1:
        benchmarks = table_lines(*benchmark_rows(fit, markdown))
        lines += ["", "## Benchmarks", "", *benchmarks]
        lines += _accuracies(ranked)
    if flagged:
        lines += ["", "## Flagged items", "", *points(flagged)]
        lines += ["", "All of them are in `items.csv`, column `flags`."]
    for title, name in figures:
        lines += ["", f"## {title}", "", f"![{title}]({name})"]
    lines += ["", "## How it was made", "", *_method(fit)]
    return "\n".join(lines) + "\n"


def points(messages: Iterable[str]) -> list[str]:
    """Returns warnings or notes as points of a list."""
    return [f"- {markdown(message)}" for message in worded(messages)]


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


def subject_header(level: float) -> list[str]:
    """Returns the names of the columns of `subject_cells`."""
    text = percent(level)
    names = ["subject", "rank", f"{text} ranks", "ability", "error"]
    return [*names, f"{text} interval", "P(best)", "groups", "score", "accuracy"]


def subject_cells(row: Mapping[str, Any], digits: int = 2) -> list[str]:
    """Returns a row of a ranking as text, the ability and its error to some digits."""
    ends = ("", "_lower", "_upper")
    return [
        row["subject"],
        str(row["rank"]),
        interval(row["rank_lower"], row["rank_upper"], 0),
        number(row["ability"], digits),
        number(row["ability_se"], digits),
        interval(row["lower"], row["upper"]),
        number(row["probability_best"]),
        group_span(row["first_group"], row["last_group"]),
        score_text(*(row[f"expected_score{end}"] for end in ends)),
        # Accuracies have no interval at another level than the fit's.
        score_text(*(row.get(f"accuracy{end}") for end in ends), digits=digits),
    ]


def _subjects(ranked: RankedSubjects) -> list[str]:
    """Lines of the table of subjects."""
    header = [*subject_header(ranked.level), "observed"]
    shown = ranked.rows(stop=MOST_ROWS)
    are_flagged = any(row["flags"] for row in shown)
    rows = []
    for row in shown:
        name, *cells = subject_cells(row, 3)
        cells = [markdown(name), *cells, f"{row['observed']:,}"]
        rows.append(cells + [markdown(row["flags"] or "")] * are_flagged)
    header += ["flags"] * are_flagged
    lines = table_lines(
        header, rows, left=(0, len(header) - 1) if are_flagged else (0,)
    )
    left = ranked.table.num_rows - len(rows)
    if left > 0:
        lines += [
            "",
            f"{counted(left, 'more subject')} {are(left)} in `abilities.csv`.",
        ]
    lines += [
        "",
        f"Ranks: the interval leaves out at most {percent(round(1 - ranked.level, 6))}"
        " of the probability, at most half of it at either end. P(best): probability"
        " of rank 1. Subjects that share a group are statistically tied. Error:"
        " standard error.",
        " Score: expected mean response over all items of the fit, with its interval."
        " Accuracy: mean of the observed responses; its interval is over items, or over"
        " benchmarks where the summary states it. Of both, higher is better.",
    ]
    return lines


def benchmarks_with_accuracy(ranked: RankedSubjects) -> list[str]:
    """Returns the benchmarks on which a ranking has accuracies, in alphabetical order.

    None where a fit has one benchmark, or very many.
    """
    columns = {*ranked.table.column_names}
    names = [name for name in columns if f"{name}_se" in columns]
    first = "accuracy["
    return sorted(name[len(first) : -1] for name in names if name.startswith(first))


def accuracy_cells(row: Mapping[str, Any], benchmarks: Iterable[str]) -> list[str]:
    """Returns a subject's accuracies on benchmarks, with their intervals, as text."""
    from irtjax.calibration.tables import of_benchmark

    cells = []
    for name in benchmarks:
        value, _, low, high = (row.get(column) for column in of_benchmark(name))
        cells.append(score_text(value, low, high))
    return cells


def _accuracies(ranked: RankedSubjects) -> list[str]:
    """The section of accuracies by benchmark; nothing where the fit has none."""
    names = benchmarks_with_accuracy(ranked)
    if not names:
        return []
    shown, rows = names[:MOST_BENCHMARKS], []
    for row in ranked.rows(stop=MOST_SUBJECTS):
        rows.append([markdown(row["subject"]), *accuracy_cells(row, shown)])
    header = ["subject", *map(markdown, shown)]
    lines = ["", "## Accuracy by benchmark", "", *table_lines(header, rows), ""]
    lines += [
        "Mean responses with their intervals over items, in the order of abilities."
    ]
    left = []
    if len(names) > len(shown):
        left.append(f"{counted(len(names) - len(shown), 'more benchmark')}")
    if ranked.table.num_rows > len(rows):
        left.append(f"{counted(ranked.table.num_rows - len(rows), 'more subject')}")
    if left:
        lines[-1] += f" {' and '.join(left)} are in `abilities.csv`."
    return lines


def heterogeneity_sentence(fit: Calibration) -> str | None:
    """Returns why ability and accuracy differ; None where it is not defined.

    Where items have scores their precision counts too, and trials where they have many.
    """
    if not fit.model.family.num_categories:
        return None
    try:
        heterogeneity = discrimination_heterogeneity(fit)
    except ValueError:  # No discriminations, too few, or with a mean of 0 or less.
        return None
    text = "Why ability and accuracy differ: in accuracy all items count alike, in"
    text += " ability by their discriminations. These have a coefficient of variation"
    text += f" (standard deviation over mean) of {number(heterogeneity.cv)}"
    if heterogeneity.cv_corrected is not None:
        text += (
            f", and of {number(heterogeneity.cv_corrected)} without estimation errors"
        )
        if heterogeneity.cv_lower is not None:
            bounds = interval(heterogeneity.cv_lower, heterogeneity.cv_upper)
            text += f" ({bounds}, {percent(fit.level)})"
    if fit.num_observed < len(fit.subject_names) * len(fit.item_names):
        text += ". Missing responses matter too: an accuracy is over the items observed"
    if heterogeneity.spearman is not None:
        bounds = interval(heterogeneity.lower, heterogeneity.upper)
        text += ". Spearman's correlation of ability and accuracy is"
        text += f" {number(heterogeneity.spearman)} ({bounds}, {percent(fit.level)})"
    return f"{text}."


def benchmark_rows(
    fit: Calibration, escape: Callable[[str], str]
) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows of the benchmarks: items and their parameters."""
    import numpy as np

    from irtjax.plots.style import column

    table = fit.items.table
    names = np.array([b or "" for b in table.column("benchmark").to_pylist()])
    slope, difficulty = column(table, "discrimination"), column(table, "difficulty")
    flags = [{*(f or "").split("; ")} for f in table.column("flags").to_pylist()]
    flagged = np.array([bool(names - {"", *CONSTANT}) for names in flags])
    header = ["benchmark", "items", "mean discrimination", "median difficulty"]
    rows = []
    for name in np.unique(names).tolist():
        mine = names == name
        located = difficulty[mine & np.isfinite(difficulty)]
        middle = float(np.median(located)) if located.size else None
        mean = float(np.nanmean(slope[mine])) if np.isfinite(slope[mine]).any() else 0.0
        cells = [escape(name), f"{mine.sum():,}", number(mean), number(middle)]
        rows.append([*cells, f"{flagged[mine].sum():,}"])
    return [*header, "flagged"], rows


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
            if value:
                out.append(f"{prefix}{name} {listing([str(v) for v in value])}")
        elif value is not None:
            out.append(f"{prefix}{name} {value}")
    return out


def _method(fit: Calibration) -> list[str]:
    """Lines on options, versions, times and data."""
    lines = [
        f"Options: {', '.join(option_pairs(fit.options))}",
        f"Versions: {', '.join(f'{k} {v}' for k, v in fit.versions.items())}",
        f"Time: {', '.join(f'{k} {v:.2f} s' for k, v in fit.timings.items())}",
    ]
    return [
        *(f"- {markdown(line)}" for line in lines),
        f"- Data: SHA-256 `{fit.data_hash}`",
        *points(fit.notes),
    ]
