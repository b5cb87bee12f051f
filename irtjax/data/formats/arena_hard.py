"""Judgments of Arena-Hard: ``data/BENCHMARK/model_judgment/JUDGE/MODEL.jsonl``.

A judge compares the model with one baseline in two games. The baseline is answer A of
the first and answer B of the second. As in Arena-Hard's own score, a clear verdict
(``A>>B``) counts three times, a tie is half a win, and the response is the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from irtjax.data.files import folders_of
from irtjax.data.reading.record_files import PlacedRecord, objects
from irtjax.data.reading.tool import Tool

_CLEAR = 3
#: Wins of answer A by verdict, and how often they count.
_VERDICTS = {
    **{"A>>B": (1.0, _CLEAR), "A>B": (1.0, 1), "A=B": (0.5, 1)},
    **{"A<B": (0.0, 1), "A<<B": (0.0, _CLEAR), "B>>A": (0.0, _CLEAR)},
    **{"B>A": (0.0, 1), "B=A": (0.5, 1), "B<A": (1.0, 1), "B<<A": (1.0, _CLEAR)},
}


def _rows(path: Path) -> Iterator[PlacedRecord]:
    """The judgments of a file with the share of wins of the model."""
    for place, record, _ in objects(path):
        yield PlacedRecord(place, {**record, "win": _win(record.get("games"), place)})


def _win(games: Any, place: str) -> float | None:
    """The share of wins in two games; None where the judge gave no verdict."""
    if not isinstance(games, list) or len(games) != 2:
        return None
    wins = weights = 0.0
    for game, baseline_is_a in zip(games, (True, False), strict=True):
        verdict = game.get("score") if isinstance(game, dict) else None
        if verdict is None:
            return None
        if str(verdict) not in _VERDICTS:
            raise ValueError(
                f"{place}: the verdict {str(verdict)!r:.40} is none of"
                f" {', '.join(_VERDICTS)}; correct it, or write null"
            )
        win, weight = _VERDICTS[str(verdict)]
        wins += weight * (1 - win if baseline_is_a else win)
        weights += weight
    return wins / weights


def _benchmark(path: Path) -> str:
    """The benchmark, by the folders."""
    folders = folders_of(path)
    return folders[-3] if folders[-2:-1] == ["model_judgment"] else ""


def _judge(path: Path) -> str:
    """The judge, by the folder."""
    folders = folders_of(path)
    return folders[-1] if folders[-2:-1] == ["model_judgment"] else ""


TOOL = Tool(
    name="Arena-Hard",
    marks=({"model", "judge", "games"},),
    rows=_rows,
    subject=("model",),
    item=("question_id", "uid"),
    benchmark=_benchmark,
    filter=_judge,
    scores=("win",),
    note=(
        "a response is the share of wins against Arena-Hard's baseline in two games, a"
        " tie counts half"
    ),
    start=r'\s*\{\s*"(question_id|uid)"\s*:.*"games"\s*:',
)
recognise = TOOL.recognise
recognise_start = TOOL.recognise_start
read_files = TOOL.read_files
