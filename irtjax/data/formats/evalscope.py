"""Reviews of evalscope: ``TIME/reviews/MODEL/DATASET_SUBSET.jsonl``.

A review has the scores of a sample. Those up to 0.17 have a list of choices with a
review each.
"""

from __future__ import annotations

from pathlib import Path

from irtjax.data.files import folders_of
from irtjax.data.reading.record_files import file_names
from irtjax.data.reading.tool import Tool

_GIVE = "give the .jsonl files in its folder reviews"


def _model(path: Path) -> str:
    """The model: the folder of the file, in that of the reviews."""
    folders = folders_of(path)
    return folders[-1] if folders[-2:-1] == ["reviews"] else ""


def _dataset(path: Path) -> str:
    """The data set of a file, by its name."""
    return file_names([path])[0]


def _time(path: Path) -> str:
    """When the run began: the folder above the reviews."""
    folders = folders_of(path)
    return folders[-3] if folders[-2:-1] == ["reviews"] else ""


TOOL = Tool(
    name="evalscope",
    marks=({"index", "sample_score"}, {"choices", "raw_input", "model_spec"}),
    subject_of=_model,
    item=("sample_score.group_id", "index"),
    content=("input", "target", "raw_input"),
    benchmark=_dataset,
    run=_time,
    scores=(
        "sample_score.score.value.*",
        *("choices[].review.result", "choices[].review.result.*"),
    ),
    main="sample_score.score.main_score_name",
    prompt=("input",),
    answer=("target",),
    prediction=("sample_score.score.extracted_prediction", "choices[].review.pred"),
    without=(
        (
            {"index", "model", "model_output"},
            f"holds predictions of evalscope without scores; {_GIVE}",
        ),
        (
            {"name", "dataset_name", "model_name", "score", "metrics"},
            f"holds the totals of evalscope; {_GIVE}",
        ),
    ),
    start=r'\s*\{\s*"index"\s*:.*"sample_score"',
)
recognise = TOOL.recognise
recognise_start = TOOL.recognise_start
read_files = TOOL.read_files
