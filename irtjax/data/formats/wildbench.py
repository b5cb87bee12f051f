"""Scores of WildBench, ``score.v2/eval=JUDGE/MODEL.json``: 1 to 10 for each session."""

from __future__ import annotations

from pathlib import Path

from irtjax.data.files import folders_of
from irtjax.data.reading.tool import Tool


def _judge(path: Path) -> str:
    """The judge, by the name of the folder."""
    folder = folders_of(path)[-1]
    return folder.removeprefix("eval=") if folder.startswith("eval=") else ""


TOOL = Tool(
    name="WildBench",
    marks=({"session_id", "model_test", "score"},),
    subject=("model_test",),
    own_subject=True,
    item=("session_id",),
    filter=_judge,
    scores=("score",),
    note="scores of WildBench are from 1 to 10",
    start=r'\s*\[\s*\{\s*"session_id"',
)
recognise = TOOL.recognise
recognise_start = TOOL.recognise_start
read_files = TOOL.read_files
