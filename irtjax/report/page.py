"""`report.html`: a fit, an audit or a subset as one file that opens anywhere.

`page_data` makes the numbers that the page's script computes with, this module what
stands in the page without it. A section that has no meaning for a model is left out, or
has a sentence in place of its figure. All names pass through `page_data.labels` and
Jinja's escaping; the script and the style are allowed by their hashes alone, so markup
that got in as text could not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.calibration.rank import rank
from irtjax.data.wording import are, counted, percent
from irtjax.models.model import response_ends
from irtjax.report import page_data
from irtjax.report.leaderboard_page import group_span, option_pairs
from irtjax.report.page_bad import bad_flags, bad_items
from irtjax.report.page_data import Sources, column, labels, labels_of_benchmarks
from irtjax.report.page_figures import (
    ability_ends,
    ability_unit,
    information_figure,
    rank_figure,
)
from irtjax.report.summary import (
    UNSETTLED,
    has_converged,
    score_sentence,
    summarise,
    verdict,
)
from irtjax.report.words import interval, listing, number, short, worded

if TYPE_CHECKING:
    from irtjax.auditing import Audit
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects
    from irtjax.data import ResponseTable

#: Name of the file.
PAGE = "report.html"
#: Rows that stand in the page without its script: subjects, items.
ROWS, ITEM_ROWS = 40, 20
#: Letters of a sentence, which can hold names of any length.
SENTENCE = 2000
#: Files of the data that the page names.
SOURCES = 6
#: Letters of an item's text where the pointer is on it.
HOVER = 240
#: Letters of all hover texts together.
HOVER_ROOM = 60_000


def report_page(
    fit: Calibration,
    *,
    ranked: RankedSubjects | None = None,
    data: ResponseTable | None = None,
    audit: Audit | None = None,
    items_first: bool = True,
    few: Mapping[str, Any] | None = None,
    texts: Mapping[str, str] | None = None,
    pair: tuple[str, str] | None = None,
    sentences: Sequence[str] = (),
    command: str | None = None,
) -> str:
    """Returns a fit as an HTML page, which needs no other file and no network.

    Args:
        fit: The calibration.
        ranked: Its ranking; None computes it.
        data: The responses, which a fit does not keep: for the items that separate two
            subjects, and the responses next to an item's curve.
        audit: An audit of these items: its tests become the evidence about bad items.
        items_first: Whether, with an audit, bad items come before the leaderboard.
        few: A subset of the items as a section of the page (`page_subset.section`).
        texts: Text of an item (prompt, answers) by its name, shown with bad items and
            where the pointer is on an item.
        pair: Names of two subjects to compare first.
        sentences: A comparison of the two in words: the verdict of the page, in place
            of that on all subjects.
        command: The command that wrote the page.

    Returns:
        The page.

    Raises:
        ValueError: If `data` has no subject or no item of the fit, or `pair` names
            somebody else.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> html = report_page(irtjax.fit(table, "rasch"), data=table)
    >>> html.startswith("<!DOCTYPE html>"), "https://" in html
    (True, False)
    """
    standing = rank(fit) if ranked is None else ranked
    place = {name: k for k, name in enumerate(fit.subject_names.tolist())}
    names = standing.table.column("subject").to_pylist()
    order = np.array([place[name] for name in names], int)
    cells = page_data.cells_of(fit, data)
    # An audit may be of other responses than the fit.
    known = () if data is None else data.notes
    notes = list(dict.fromkeys([*fit.notes, *known]))
    if data is not None and cells is None:
        notes.append(page_data.no_cells_note(data))
    if texts is None:
        known = {**fit.item_texts, **(data.item_texts if data is not None else {})}
        texts = {name: text.as_text() for name, text in known.items()}
    of = Sources(fit, standing, cells, audit, texts, order)
    rows = standing.rows()
    flags = bad_flags(fit, audit)
    places = page_data.shown_items(flags)
    content = fit_data(of, rows, flags, places)
    content["pair"] = [names.index(x) for x in pair or names[:2]]
    warnings = [*fit.warnings, *(audit.warnings if audit is not None else ())]
    items_first = items_first and audit is not None
    title = "Leaderboard" if audit is None else "Leaderboard and audit"
    title = "Audit" if items_first else title
    conclusion = verdict(fit, standing, audit=audit, items_first=items_first)
    if pair:
        title = " and ".join(labels(pair, 40))
    if sentences:
        unsettled = [] if has_converged(fit) else [UNSETTLED]
        conclusion = [*unsettled, *(short(x, SENTENCE) for x in sentences)]
    context = {
        "title": title,
        "items_first": items_first,
        "lead": _lead(fit),
        "verdict": conclusion,
        "doubtful": not has_converged(fit),
        "warnings": [short(x, SENTENCE) for x in worded(dict.fromkeys(warnings))],
        "notes": [short(x, SENTENCE) for x in worded(notes)],
        "sentences": summarise(fit, standing, short),
        "leaderboard": _leaderboard(of, rows),
        "ranks": rank_figure(rows, percent(standing.level)),
        "compare": True,
        "items": _items(of, flags, places),
        "bad": bad_items(of, flags, places),
        "few": few,
        "information": information_figure(fit),
        "provenance": _provenance(fit, command),
    }
    return render(context, content)


def write_page(path: str | Path, page: str) -> Path:
    """Writes a page as UTF-8, whole or not at all, and returns its path."""
    from irtjax.data.writing import atomic_path

    path = Path(path)
    with atomic_path(path) as place:
        place.write_bytes(page.encode("utf-8", "replace"))
    return path


def render(context: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """Returns the page of a context for the template, and of data for the script."""
    import jinja2
    from markupsafe import Markup

    folder = Path(__file__).parent / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder, encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.Undefined,
        trim_blocks=True,
    )
    content = {"digits": page_data.DIGITS, **content}
    parts = {name: _hashed(f"page.{end}") for name, end in _INLINE.items()}
    inline = {
        name: {"text": Markup(text), "hash": digest}
        for name, (text, digest) in parts.items()
    }
    sections = [
        (name, text)
        for name, text, needed in _SECTIONS
        if needed is None or context.get(needed)
    ]
    # Bad items come first in an audit, and once.
    sections = list(dict.fromkeys(sections))
    template = environment.get_template("page.html")
    return template.render(
        **context,
        **inline,
        sections=sections,
        data=Markup(json_text(content)),
        version=version_of_irtjax(),
    )


#: Files of the template that stand in the page, by the name that the template has.
_INLINE = {"script": "js", "style": "css"}
#: Identifier and name of each section, and what it needs.
_SECTIONS = (
    ("bad", "Bad items", "items_first"),
    ("leaderboard", "Leaderboard", "leaderboard"),
    ("ranks", "Rank intervals", "ranks"),
    ("compare", "Compare two", "compare"),
    ("items", "Items", None),
    ("subset", "Errors to expect", "subset"),
    ("bad", "Bad items", "bad"),
    ("few", "Fewer items", "few"),
    ("information", "Test information", "information"),
    ("warnings", "Warnings", None),
    ("provenance", "Provenance", None),
)
ITEM_NOTE = (
    "Point at a dot for its item, or press the arrow keys; click, or press Enter, for"
    " its response curve."
)


@cache
def _hashed(name: str) -> tuple[str, str]:
    """An inline file, and the source expression that allows it."""
    path = Path(__file__).parent / "templates" / name
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    # Without indentation and comments: a tenth of a small page.
    text = "\n".join(x for x in lines if x and not x.startswith("//")) + "\n"
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"sha256-{digest}"


def json_text(content: Any) -> str:
    r"""Returns JSON that can stand in a script element, whatever its texts are.

    >>> json_text({"a": "</script>&\u2028"})
    '{"a":"\\u003c/script\\u003e\\u0026\\u2028"}'
    """
    text = json.dumps(
        content, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def fit_data(
    of: Sources, rows: list[dict[str, Any]], flags: list[str], places: np.ndarray
) -> dict[str, Any]:
    """What the script of a fit's page computes with."""
    fit = of.fit
    names = labels(fit.item_names)
    items = page_data.item_data(fit.items.table, places, flags, names)
    groups = None if fit.structure is None else fit.structure.groups
    if fit.structure is not None and groups is not None and len(groups) > 1:
        items["group"] = np.asarray(fit.structure.group)[places].tolist()
    most = max(HOVER_ROOM // HOVER, 1)
    # Texts of flagged items first: of a large benchmark not all fit.
    first = sorted(places.tolist(), key=lambda k: not flags[k])
    found = page_data.texts_of(of.texts, fit.item_names, first[:most], HOVER)
    where = {place: k for k, place in enumerate(places.tolist())}
    ends = ability_ends(fit)
    curves = None
    if ends is not None:
        curves = page_data.curve_data(fit.model, fit.parameters.items, places, ends)
    factors = None
    if fit.factors is not None and fit.model.family.dims:
        known = fit.parameters.items, places, fit.factors.names
        factors = page_data.factor_curves(fit.model, *known)
    shown = None if of.cells is None else of.cells.of_items(places)
    ability = None
    if ends is not None and "group" not in items:
        ability = np.array([row["ability"] for row in rows], float)
    return {
        "level": fit.level,
        "texts": {str(where[place]): text for place, text in found.items()},
        "subjects": page_data.subject_data(fit, rows, of.order),
        "items": items,
        "curves": curves,
        "factors": factors,
        "ends": ends,
        "responses": page_data.response_rows(shown, of.order, ability),
        "by_benchmark": page_data.accuracies_by_benchmark(fit, rows),
        **scale_of(fit.model),
    }


def scale_of(model: Any) -> dict[str, Any]:
    """The scale of responses, and of abilities, for labels."""
    count = model.family.num_categories
    kind = {0: "score", 2: "share right"}.get(count, "mean response")
    return {**response_ends(model), "kind": kind, "unit": ability_unit(model)}


def _lead(fit: Calibration) -> str:
    """The fit in one line."""
    method = str(fit.options.get("method", "")).upper()
    text = f"{fit.model.name}{f' by {method}' if method else ''}:"
    text += f" {counted(len(fit.subject_names), 'subject')},"
    text += f" {counted(len(fit.item_names), 'item')}"
    count = 0 if fit.benchmarks is None else len(set(fit.benchmarks.tolist()))
    if count > 1:
        text += f" of {counted(count, 'benchmark')}"
    return f"{text}, {counted(fit.num_observed, 'response')}"


def _leaderboard(of: Sources, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of subjects, its first rows."""
    names = labels(row["subject"] for row in rows)
    shown = []
    for row, name in zip(rows[:ROWS], names, strict=False):
        ends = row["lower"], row["upper"]
        half = None if None in ends else (ends[1] - ends[0]) / 2
        cells = {
            "rank": row["rank"],
            "ranks": f"{row['rank_lower']}–{row['rank_upper']}",
            "name": name,
            "flags": row["flags"],
            "ability": number(row["ability"]),
            "half": number(half),
            "best": number(row["probability_best"]),
            "groups": group_span(row["first_group"], row["last_group"]),
        }
        for key, of_score in (("score", "expected_score"), ("accuracy", "accuracy")):
            ends = (row.get(f"{of_score}_lower"), row.get(f"{of_score}_upper"))
            cells[key] = number(row.get(of_score), 3)
            cells[f"{key}_interval"] = "" if None in ends else interval(*ends)
        shown.append(cells)
    factors = bool(of.fit.model.family.dims)
    level = percent(of.ranked.level)
    left = len(rows) - len(shown)
    return {
        "rows": shown,
        "level": level,
        "ability": "Expected score" if factors else "Ability",
        # Of a factor model the ability is the expected score.
        "scores": not factors,
        "accuracies": any(row.get("accuracy") is not None for row in rows[:1]),
        "caption": f"{counted(len(rows), 'subject')} with {level} intervals",
        "left": f"{counted(left, 'more subject')} {are(left)} in abilities.csv."
        if left > 0
        else "",
        "note": "Expected score: mean expected response over all items. Accuracy: mean"
        f" of the responses observed. {score_sentence(of.fit)}",
    }


def item_rows(
    table: Any, places: np.ndarray, flags: Sequence[str], names: Sequence[str]
) -> list[dict[str, Any]]:
    """The first rows of a table of items, as text."""
    columns = {
        name: column(table, name)
        for of in ("difficulty", "discrimination", "accuracy")
        for name in (of, f"{of}_se")
    }
    benchmarks = labels_of_benchmarks(table)
    observed = table["observed"].to_pylist()
    rows = []
    for k in places[:ITEM_ROWS].tolist():
        row = {"name": names[k], "benchmark": benchmarks[k], "flags": flags[k]}
        row["observed"] = f"{observed[k]:,}"
        row["accuracy"] = number(float(columns["accuracy"][k]), 3)
        for name in ("difficulty", "discrimination"):
            error = float(columns[f"{name}_se"][k])
            row[name] = number(float(columns[name][k]))
            row[f"{name}_error"] = f"± {number(error)}" if math.isfinite(error) else ""
        rows.append(row)
    return rows


def _items(of: Sources, flags: list[str], places: np.ndarray) -> dict[str, Any]:
    """The table of items, its first rows, and what the figure is."""
    fit, table = of.fit, of.fit.items.table
    names = labels(fit.item_names)
    rows = item_rows(table, places, flags, names)
    note = ITEM_NOTE
    if fit.model.family.dims:
        note = (
            "Items have several discriminations: the figure has that in the steepest"
            " direction, and the difficulty along it. Point at a dot for its item, or"
            " press the arrow keys; click, or press Enter, for its response curve over"
            " each factor, the others at 0."
        )
    left = []
    if len(places) < len(flags):
        left.append(
            f"{len(places):,} of {counted(len(flags), 'item')} {are(len(places))}"
            " shown, the flagged"
            " ones and"
            " an even sample of the others; items.csv has all."
        )
    return {
        "heading": "Items",
        "caption": f"{counted(len(places), 'item')} with their estimates"
        " ± standard errors",
        "note": note,
        "rows": rows,
        "accuracies": True,
        "benchmarks": len({*labels_of_benchmarks(table)}) > 1,
        "left": " ".join(left),
    }


def _provenance(fit: Calibration, command: str | None) -> list[tuple[str, str, bool]]:
    """How the numbers came about: term, text, and whether it is code."""
    options = {
        name: value
        for name, value in fit.options.items()
        if name not in ("sources", "command", "choice")
    }
    sources = [str(x) for x in fit.options.get("sources") or ()]
    rows = [
        ("Page written by", command, True),
        ("Fit made by", fit.options.get("command"), True),
        ("Written at", now(), False),
        ("Data", listing(sources, SOURCES), False),
        ("SHA-256 of the data", fit.data_hash, True),
        ("Options", ", ".join(option_pairs(options)), False),
        ("Versions", ", ".join(f"{k} {v}" for k, v in fit.versions.items()), False),
        ("Time", ", ".join(f"{k} {v:.2f} s" for k, v in fit.timings.items()), False),
    ]
    return [(name, short(str(x), SENTENCE), code) for name, x, code in rows if x]


def version_of_irtjax() -> str:
    """The version that writes the page; or "0+unknown" of a checkout."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("irtjax")
    except PackageNotFoundError:
        return "0+unknown"


def now() -> str:
    """The time, for the page."""
    import datetime

    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
