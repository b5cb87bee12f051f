"""`report.html`: a fit, an audit or a subset as one file that opens anywhere.

`page_data` makes the numbers that the page's script computes with, the other modules
named `page_` what stands in the page without it. A section that has no meaning for a
model is left out. All names pass through `page_data.labels` and Jinja's escaping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from irtjax._types import check_keywords
from irtjax.calibration.parts import Structure
from irtjax.report import page_data, page_head, page_scores
from irtjax.report.leaderboard_page import option_pairs
from irtjax.report.page_data import Sources, labels
from irtjax.report.page_figures import ability_ends, information_figure, scale_of
from irtjax.report.page_history import history_section
from irtjax.report.page_html import PAGE as PAGE
from irtjax.report.page_html import SENTENCE, now, render
from irtjax.report.page_html import write_page as write_page
from irtjax.report.page_items import has_cloud, item_table
from irtjax.report.page_read import flags_of, items_to_read
from irtjax.report.page_subset import section
from irtjax.report.summary import (
    UNSETTLED,
    fit_sentences,
    has_converged,
    score_sentence,
)
from irtjax.report.words import listing, short, worded

if TYPE_CHECKING:
    from irtjax.auditing import Audit, ItemsToRead
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects
    from irtjax.data import ResponseTable
    from irtjax.subsets.subset import Shrunken

#: Files of the data that the page names.
SOURCES = 6
#: Letters of an item's text where the pointer is on it.
HOVER = 240


class PageOptions(TypedDict, total=False):
    """What else `report_page` shows, and in what order.

    Attributes:
        items_first: Whether, with an audit, items to read come before the scores; True
            if not given.
        few: A subset of the items, as a section of the page.
        few_sentences: The subset in words, or why there is none.
        history: What changed over time (`irtjax.storage.history`), as a section.
        pair: Names of two subjects to compare first.
        sentences: A comparison of the two in words: the head of the page, in place of
            that on all subjects.
        command: The command that wrote the page.
    """

    items_first: bool
    few: Shrunken | None
    few_sentences: Sequence[str]
    history: Any
    pair: tuple[str, str] | None
    sentences: Sequence[str]
    command: str | None


def report_page(
    fit: Calibration,
    *,
    ranked: RankedSubjects | None = None,
    data: ResponseTable | None = None,
    audit: Audit | None = None,
    to_read: ItemsToRead | None = None,
    texts: Mapping[str, str] | None = None,
    title: str | None = None,
    folder: str | Path | None = None,
    **options: Unpack[PageOptions],
) -> str:
    """Returns a fit as an HTML page, which needs no other file and no network.

    Args:
        fit: The calibration.
        ranked: Its ranking; None computes it.
        data: The responses, which a fit does not keep: for the items that separate two
            subjects, and the responses next to an item's curve.
        audit: An audit of these items: its tests become evidence about items to read.
        to_read: Items on whose other answer the models agree.
        texts: Text of an item (prompt, answers) by its name, shown with items to read
            and where the pointer is on an item.
        title: The title; None takes the tasks, the data or the folder.
        folder: The folder that the page is in, for its head.
        **options: `items_first`, `few`, `few_sentences`, `history`, `pair`, `sentences`
            and `command` of `irtjax.report.page.PageOptions`, where each is explained.

    Returns:
        The page.

    Raises:
        TypeError: If there is no option of a name.
        ValueError: If `data` has no subject or no item of the fit, or `pair` names
            somebody else.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> html = report_page(irtjax.fit(table, "rasch"), data=table, title="Four items")
    >>> html.startswith("<!DOCTYPE html>"), "https://" in html
    (True, False)
    """
    check_keywords("report_page", options, PageOptions)
    pair, few = options.get("pair"), options.get("few")
    few_sentences = options.get("few_sentences", ())
    standing = fit.rank() if ranked is None else ranked
    at = {name: k for k, name in enumerate(fit.subject_names.tolist())}
    names = standing.table.column("subject").to_pylist()
    order = np.array([at[name] for name in names], int)
    cells = page_data.cells_of(fit, data)
    if texts is None:
        contents = {**fit.item_texts, **(data.item_texts if data is not None else {})}
        texts = {name: text.as_text() for name, text in contents.items()}
    of = Sources(fit, standing, cells, audit, texts, order)
    rows = standing.rows()
    flags = flags_of(fit, audit)
    places = page_data.shown_items(flags)
    content = fit_data(of, rows, flags, places)
    content["pair"] = [names.index(x) for x in pair or names[:2]]
    warnings = [*fit.warnings, *(audit.warnings if audit is not None else ())]
    read = items_to_read(of, flags, places, to_read)
    first = ""
    if audit is not None and options.get("items_first", True):
        first = "read"
    elif page_scores.items_first(fit) and not pair:
        first = "items"
    place = "" if folder is None else Path(folder).absolute().name
    if title is None:
        title = page_head.title_of(fit, place)
        title = " and ".join(labels(pair, 40)) if pair else title
    # Persons of a test, all alike, have no figure.
    crowd = page_scores.items_first(fit) and len(standing.groups[0]) > page_scores.DRAWN
    tiles = [
        page_head.first_tile(standing),
        page_head.read_tile(read),
        page_head.cheaper_tile(fit, few, few_sentences),
    ]
    context = {
        "title": short(title, 200),
        "facts": standing.heading or fit.heading,
        "folder": short(place, 80) if place else "",
        "date": now(),
        "alert": "" if has_converged(fit) else UNSETTLED,
        "sentences": [short(x, SENTENCE) for x in options.get("sentences", ())],
        "tiles": [] if pair else tiles,
        "first": first,
        "scores": _score_table(fit, standing, rows),
        "figure": None if crowd else page_scores.score_figure(standing, rows),
        "tasks": page_scores.task_table(of, rows),
        "tasks_heading": f"{fit.nouns[1].capitalize()}s",
        "read": read if read["rows"] else None,
        "compare": True,
        "items": item_table(of, flags, places),
        "few": None if few is None else section(few, few_sentences),
        "history": history_section(fit, options.get("history")),
        "information": information_figure(fit),
        "warnings": [short(x, SENTENCE) for x in worded(dict.fromkeys(warnings))],
        "notes": [short(x, SENTENCE) for x in worded(_notes(of, data))],
        "fit_sentences": fit_sentences(fit, short),
        "provenance": _provenance(fit, options.get("command")),
    }
    return render(context, content)


def _notes(of: Sources, data: ResponseTable | None) -> list[str]:
    """Notes of the fit, of the responses, which an audit may have others of."""
    notes_of_data = () if data is None else data.notes
    notes = list(dict.fromkeys([*of.fit.notes, *notes_of_data]))
    if of.audit is not None and of.audit.missing:
        notes.append(of.audit.missing)
    if data is not None and of.cells is None:
        notes.append(page_data.no_cells_note(data))
    return notes


def _score_table(
    fit: Calibration, ranked: RankedSubjects, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """The table of models, in the words of a fit."""
    note = score_sentence(fit) if fit.reversed_scores else ""
    own = not fit.abilities_are_scores
    return page_scores.score_table(ranked, rows, note=note, abilities=own)


def _subject_data(
    fit: Calibration, rows: list[dict[str, Any]], order: np.ndarray
) -> dict[str, Any]:
    """Columns of the subjects, best first; `order` is their place in the fit."""
    of = lambda values: None if values is None else np.asarray(values)[order]
    groups = None
    if fit.num_groups > 1:
        groups = fit.require(Structure).ability
    errors = fit.ability_shared, fit.ability_scale
    return page_data.subject_data(rows, *map(of, (*errors, groups)))


def fit_data(
    of: Sources, rows: list[dict[str, Any]], flags: list[str], places: np.ndarray
) -> dict[str, Any]:
    """What the script of a fit's page computes with."""
    fit = of.fit
    names = labels(fit.item_names)
    items = page_data.item_data(fit.items.table, places, flags, names)
    if fit.num_groups > 1:
        items["group"] = np.asarray(fit.require(Structure).group)[places].tolist()
    most = max(page_data.text_rooms(len(fit.item_names))[1] // HOVER, 1)
    # Texts of flagged items first: of a large benchmark not all fit.
    first = sorted(places.tolist(), key=lambda k: not flags[k])
    hover = page_data.texts_of(of.texts, fit.item_names, first[:most], HOVER)
    where = {place: k for k, place in enumerate(places.tolist())}
    ends = ability_ends(fit)
    curves = None
    if ends is not None:
        curves = page_data.curve_data(fit.model, fit.parameters.items, places, ends)
    factors = None
    if fit.factor_names:
        factors = page_data.factor_curves(
            fit.model, fit.parameters.items, places, fit.factor_names
        )
    shown = None if of.cells is None else of.cells.of_items(places)
    ability = None
    if ends is not None and "group" not in items:
        ability = np.array([row["ability"] for row in rows], float)
    return {
        "level": fit.level,
        "nouns": fit.nouns,
        "measure": page_scores.measure_of(rows)._asdict(),
        "cloud": has_cloud(fit),
        "texts": {str(where[place]): text for place, text in hover.items()},
        "subjects": _subject_data(fit, rows, of.order),
        "items": items,
        "curves": curves,
        "factors": factors,
        "ends": ends,
        "responses": page_data.response_rows(shown, of.order, ability),
        **scale_of(fit.model),
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
        ("Data", listing(sources, SOURCES), False),
        ("SHA-256 of the data", fit.data_hash, True),
        ("Options", ", ".join(option_pairs(options)), False),
        ("Versions", ", ".join(f"{k} {v}" for k, v in fit.versions.items()), False),
        ("Time", ", ".join(f"{k} {v:.2f} s" for k, v in fit.timings.items()), False),
    ]
    return [(name, short(str(x), SENTENCE), code) for name, x, code in rows if x]
