"""The head of `report.html`: title, what it is of, and three answers as tiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax.calibration.shown_names import short_names
from irtjax.data.wording import counted, percent
from irtjax.report.page_data import labels
from irtjax.report.page_html import SENTENCE
from irtjax.report.verdict import LIKELY
from irtjax.report.words import listing, number, short

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects

#: Tasks in a title, names of models and items in a tile, and letters of a name there.
TITLE_TASKS, TILE_NAMES, TILE_LETTERS = 3, 3, 60
#: Tied models of whom the first are named.
FEW = 20


def title_of(fit: Calibration, folder: str) -> str:
    """The title of a page where none is chosen: tasks, else data, else the folder."""
    tasks = tasks_of(fit)
    if 0 < len(tasks) <= TITLE_TASKS:
        return listing([short(name, TILE_LETTERS) for name in tasks])
    sources = [Path(str(path)) for path in fit.options.get("sources") or ()]
    if len(sources) == 1:
        return short(sources[0].stem, TILE_LETTERS)
    parents = {path.parent for path in sources}
    if len(parents) == 1 and (name := parents.pop().name):
        return short(name, TILE_LETTERS)
    return short(folder, TILE_LETTERS) if folder else "Leaderboard"


def tasks_of(fit: Calibration) -> list[str]:
    """Names of the tasks of a fit, in alphabetical order; none where it has one set."""
    if fit.benchmarks is None:
        return []
    return sorted({str(name) for name in fit.benchmarks.tolist() if name})


def first_tile(ranked: RankedSubjects) -> dict[str, Any]:
    """Who has the first place, alone or with those that it is tied with."""
    rows = ranked.rows(stop=TILE_NAMES)
    tile: dict[str, Any] = {"label": "First place", "href": "scores"}
    if not rows:
        return tile | {"value": "–", "text": f"No {ranked.noun} has a finite ability."}
    noun, first = ranked.noun, ranked.groups[0]
    every = ranked.table.column("subject").to_pylist()
    shown = list(short_names(labels(every)).values())[: len(first)]
    names = [short(name, TILE_LETTERS) for name in shown[:TILE_NAMES]]
    share = percent(round(1 - ranked.level, 6))
    pairs = f"{ranked.num_different:,} of {counted(ranked.num_pairs, 'pair')} differ"
    pairs += f" ({share} false)."
    if len(first) == 1:
        text = f"Ahead of every other {noun}. {pairs}"
        return tile | {"value": names[0], "text": text}
    if rows[0]["probability_best"] >= LIKELY:
        chance = number(rows[0]["probability_best"]).removeprefix("0")
        text = f"Best with probability {chance}, not significantly ahead of"
        text += f" {listing(shown[1:], TILE_NAMES)}. {pairs}"
        return tile | {"value": names[0], "text": text}
    if len(first) > TILE_NAMES:
        value = f"{len(first):,} {noun}s share it"
        text = f"{listing(shown, TILE_NAMES)} are tied. {pairs}"
        return tile | {"value": value, "text": text if len(first) <= FEW else pairs}
    chances = [number(x["probability_best"]).removeprefix("0") for x in rows]
    chances = chances[: len(first)]
    text = f"They are tied: best with probability {listing(chances)}. {pairs}"
    return tile | {"value": listing(names), "text": text}


def read_tile(read: dict[str, Any]) -> dict[str, Any]:
    """How many items are worth reading."""
    count = read["count"]
    tile = {"label": "Items to read", "href": "read" if read["rows"] else ""}
    value = f"{count:,}" if count else "None"
    return tile | {"value": value, "text": read["brief"]}


def cheaper_tile(
    fit: Calibration, small: Any, why: Sequence[str] = ()
) -> dict[str, Any]:
    """How many items suffice, or why it is not known."""
    tile = {"label": "Cheaper", "href": "" if small is None else "few"}
    if small is None:
        usual = "irtjax shrink finds few items that give the full score."
        if fit.several_abilities:
            usual = "A subset needs a model of one ability."
        text = " ".join(filter(None, why)) or usual
        return tile | {"value": "–", "text": short(text, SENTENCE)}
    sentence = getattr(small, "sentence", None)
    text = str(sentence()) if callable(sentence) else ""
    value = counted(small.size, "item")
    text = text.removeprefix(f"{value} ")
    if not text:
        error = number(small.score_error).removeprefix("0")
        text = f"give the full score with a standard error of {error}."
    text = text.rstrip(".") + "."
    return tile | {"value": value, "text": text}
