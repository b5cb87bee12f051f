"""`report.html` of an arena: leaderboard, wins of each pair, and what style changes.

Leaderboard, figure, and the comparison of two are those of the page of a fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax._types import Status
from irtjax.calibration.abilities import Abilities
from irtjax.comparisons.arena import win_shares
from irtjax.comparisons.style import MEDIATOR
from irtjax.data.wording import are, counted
from irtjax.report import page_data, page_head, page_scores
from irtjax.report.arena_answers import answer_tiles
from irtjax.report.leaderboard_page import option_pairs
from irtjax.report.page_data import labels
from irtjax.report.page_html import SENTENCE, now, render
from irtjax.report.summary import UNSETTLED
from irtjax.report.words import number, short, worded

if TYPE_CHECKING:
    from irtjax.calibration.rank import RankedSubjects
    from irtjax.comparisons.arena import Arena

#: What the score of a model is.
MEANING = "expected share of wins against the other models, a tie being half a win"
#: Models of the tables of wins and of style, and categories; more are in the files.
WINS, STYLE, CATEGORIES = 24, 40, 12
#: Columns of tables of effects, captions, and their headers.
EFFECTS = {
    "judges": (
        ("judge", "reliability", "reliability_se", "comparisons"),
        "Reliability of judges: slope of the difference of abilities, geometric mean 1",
        ["judge", "reliability", "SE", "comparisons"],
    ),
    "tie_rates": (
        ("subject", "tie_rate", "tie_rate_se"),
        "Chance of a tie of each with its like, at equal abilities",
        ["model", "chance of a tie", "SE"],
    ),
}
#: What standard deviations of effects are of.
DEVIATIONS = {
    "category_sd": "abilities between categories",
    "judge_sd": "the log reliability of judges",
    "tie_rates_sd": "the log parameter of ties between models",
}


def arena_page(
    arena: Arena,
    *,
    ranked: RankedSubjects | None = None,
    sources: Sequence[str] = (),
    command: str | None = None,
    title: str | None = None,
    folder: str | Path | None = None,
) -> str:
    """Returns a fit of comparisons as an HTML page, which needs no other file.

    Args:
        arena: The fit.
        ranked: Its ranking; None computes it.
        sources: Files of the data.
        command: The command that wrote the page.
        title: The title; None takes the file or the folder.
        folder: The folder that the page is in.

    Returns:
        The page.

    >>> import irtjax
    >>> rows = [[3, 1, 0, 0], [4, 2, 0, 0], [3, 2, 0, 0]]
    >>> table = irtjax.ComparisonTable.of("abc", [0, 0, 1], [1, 2, 2], rows)
    >>> html = arena_page(irtjax.fit_comparisons(table), title="Three models")
    >>> html.startswith("<!DOCTYPE html>"), "https://" in html
    (True, False)
    """
    ranked = arena.abilities.rank() if ranked is None else ranked
    rows = ranked.rows()
    place = "" if folder is None else Path(folder).absolute().name
    if title is None:
        title = short(Path(sources[0]).stem if len(sources) == 1 else place, 60)
    converged = arena.status == Status.CONVERGED
    context = {
        "title": short(title or "Arena", 200),
        "facts": ranked.heading,
        "folder": short(place, 80) if place else "",
        "date": now(),
        "alert": "" if converged else UNSETTLED,
        "sentences": [],
        "tiles": [page_head.first_tile(ranked), *answer_tiles(arena)],
        "scores": page_scores.score_table(ranked, rows, MEANING),
        "figure": page_scores.score_figure(ranked, rows),
        "compare": len(rows) > 1,
        "covariates": _style(arena),
        "effects": _effects(arena, [row["subject"] for row in rows]),
        "wins": _wins(arena, [row["subject"] for row in rows]),
        "warnings": [short(x, SENTENCE) for x in worded(arena.warnings)],
        "notes": [short(x, SENTENCE) for x in worded(arena.notes)],
        "fit_sentences": [short(x, SENTENCE) for x in fit_sentences(arena)],
        "provenance": _provenance(arena, sources, command),
    }
    return render(context, _data(arena.abilities, rows))


def fit_sentences(arena: Arena) -> list[str]:
    """Returns how the fit was made and how well it describes the data, in words."""
    is_ranking = arena.options.get("model") == "plackett_luce"
    unit = "ranking" if is_ranking else "comparison"
    sentences = [
        f"Log-likelihood {arena.log_likelihood:,.4f} of"
        f" {counted(round(arena.num_comparisons), unit)},"
        f" {counted(arena.num_parameters, 'parameter')}."
    ]
    if "both_bad_slope" in arena.effects:
        value, error = arena.effects["both_bad_slope"]
        sentences.append(
            "Of even verdicts, the log-odds that both are bad change with the mean"
            f" ability of the two by {'−' if value >= 0 else '+'}{abs(value):.3f} ±"
            f" {error:.3f}."
        )
    for name in (x for x in DEVIATIONS if x in arena.effects):
        value, error = arena.effects[name]
        sentences.append(
            f"Standard deviation of {DEVIATIONS[name]}: {value:.3f} ± {error:.3f}."
        )
    return [*sentences, *effect_sentences(arena), *arena.answers.get("checks", ())]


def effect_sentences(arena: Arena) -> list[str]:
    """Returns the effects of covariates and of the order, one sentence each."""
    sentences = []
    for name, (value, error) in arena.covariate_effects.items():
        of = (
            "being the first"
            if name == "order"
            else f"one standard deviation of {name}"
        )
        sign = "+" if value >= 0 else "−"
        sentences.append(f"Effect of {of}: {sign}{abs(value):.3f} ± {error:.3f}.")
    return [short(text, SENTENCE) for text in sentences]


def _data(abilities: Abilities, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the script computes with."""
    at = {name: k for k, name in enumerate(map(str, abilities.names))}
    order = np.array([at[row["subject"]] for row in rows], int)
    shared = None
    if abilities.covariance.ndim == 2:
        # Loadings L with L L' = covariance: differences have their exact errors.
        values, vectors = np.linalg.eigh(abilities.covariance[np.ix_(order, order)])
        positive = values > 1e-9 * values[-1]
        shared = vectors[:, positive] * np.sqrt(values[positive])
    return {
        "level": abilities.level,
        "nouns": (abilities.noun, "prompt"),
        "measure": page_scores.measure_of(rows)._asdict(),
        "subjects": page_data.subject_data(rows, shared),
        "unit": "Ability",
    }


def _style(arena: Arena) -> dict[str, Any] | None:
    """The table of abilities with and without covariates; None without any."""
    if arena.style is None:
        return None
    names = ("ability", "ability_without", "difference", "difference_se")
    rows = _cells(arena.style, ("subject", *names))
    left = arena.style.num_rows - len(rows)
    caption = "Abilities at equal style and as they are; SE: that of the difference"
    if left > 0:
        caption += f". {counted(left, 'more model')} {are(left)} in style.csv"
    header = [arena.abilities.noun, "at equal style", "as they are", "difference", "SE"]
    table = {"caption": caption, "header": header, "rows": rows, "words": 1}
    return {
        "table": {**table, "names": True},
        "sentences": [*effect_sentences(arena), MEDIATOR],
    }


def _cells(table: Any, columns: Sequence[str]) -> list[list[str]]:
    """Rows of texts, as many as are shown: a name in the first column, then numbers."""
    rows = table.slice(0, STYLE).to_pylist()
    text = lambda x, name: f"{x:,.0f}" if name == "comparisons" else number(x)
    return [
        [name, *(text(row[x], x) for x in columns[1:])]
        for name, row in zip(labels(r[columns[0]] for r in rows), rows, strict=True)
    ]


def _effects(arena: Arena, names: list[str]) -> list[dict[str, Any]]:
    """Tables of categories, judges and rates of ties."""
    tables = []
    if "categories" in arena.tables:
        rows = arena.tables["categories"].to_pylist()
        categories = list(dict.fromkeys(row["category"] for row in rows))
        cells = {
            (row["subject"], row["category"]): f"{number(row['ability'])} ±"
            f" {number(row['ability_se'])}"
            for row in rows
        }
        shown, columns = names[:WINS], categories[:CATEGORIES]
        body = [
            [name, *(cells[subject, x] for x in columns)]
            for name, subject in zip(labels(shown), shown, strict=True)
        ]
        caption = "Abilities by category ± SE, shrunk towards those over all categories"
        if len(names) > len(shown) or len(categories) > len(columns):
            caption += "; others are in categories.csv"
        header = [arena.abilities.noun, *labels(columns)]
        tables.append({"caption": caption, "header": header, "rows": body})
    for name in (x for x in EFFECTS if x in arena.tables):
        columns, caption, header = EFFECTS[name]
        body = _cells(arena.tables[name], columns)
        if arena.tables[name].num_rows > len(body):
            caption += f"; others are in {name}.csv"
        tables.append({"caption": caption, "header": header, "rows": body})
    return [{**table, "words": 1, "names": True} for table in tables]


def _wins(arena: Arena, names: list[str]) -> dict[str, Any] | None:
    """Shares of points by pair, observed with the expected ones, best models first."""
    if arena.pairs is None or len(names) < 2:
        return None
    chosen = names[:WINS]
    share, expected, games = win_shares(arena, chosen)
    few = len(chosen) <= 10
    shown = labels(chosen)
    body = []
    for i, name in enumerate(shown):
        cells = []
        for j, other in enumerate(shown):
            if i == j or not games[i, j]:
                cells.append({"text": "", "shade": "", "title": "", "hint": ""})
                continue
            value, mean = (
                page_scores.points(x[i, j], 2, True) for x in (share, expected)
            )
            hint = f"{name} against {other}: {value} of {games[i, j]:,.0f},"
            shade = min(int(share[i, j] * page_scores.SHADES), page_scores.SHADES - 1)
            cells.append(
                {
                    "text": value,
                    "shade": f"h{shade}",
                    "title": mean,
                    "hint": f"{hint} expected {mean}",
                }
            )
        body.append({"name": name, "cells": cells})
    left = len(names) - len(chosen)
    caption = "Share of points of the model of a row against that of a column, a tie"
    caption += " being half"
    caption += "; below it the expected share" if few else ""
    if left:
        caption += f". {counted(left, 'more model')} {are(left)} in pairs.csv"
    sizes = [f"{games[:, j].sum():,.0f}" for j in range(len(chosen))]
    return {
        "tasks": [
            {"name": name, "size": size}
            for name, size in zip(labels(chosen, 40), sizes, strict=True)
        ],
        "rows": body,
        "intervals": few,
        "many": len(chosen) > 6,
        "noun": arena.abilities.noun,
        "caption": f"{caption}.",
    }


def _provenance(
    arena: Arena, sources: Sequence[str], command: str | None
) -> list[tuple[str, str, bool]]:
    """How the numbers came about: term, text, and whether it is code."""
    rows = [
        ("Page written by", command, True),
        ("Data", ", ".join(sources), False),
        ("SHA-256 of the data", arena.data_hash, True),
        ("Options", ", ".join(option_pairs(arena.options)), False),
    ]
    return [(name, short(str(x), SENTENCE), code) for name, x, code in rows if x]
