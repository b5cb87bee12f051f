"""Rows of long tables whose score is none: failed calls, and answers not given."""

import pandas as pd
import pyarrow as pa
import pytest

from irtjax.data import read


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet", "frame"])
def test_response_of_a_failed_call_is_missing(tmp_path, name):
    frame = pd.DataFrame(
        {
            "model": ["m", "m", "m", "n", "n"],
            "item": ["a", "b", "c", "a", "b"],
            "score": [1, 0, 0, 1, 1],
            "error": ["", "timeout", None, " ", "rate limit"],
        }
    )
    path = tmp_path / name
    if name == "t.csv":
        frame.to_csv(path, index=False)
    elif name == "t.jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif name == "t.parquet":
        frame.to_parquet(path)
    source = frame if name == "frame" else path
    table = read(source)
    assert table.observed is not None
    assert table.observed.tolist() == [[True, False, True], [True, False, False]]
    assert any("2 responses of rows with an error" in note for note in table.notes)
    wrong = read(source, missing_as="wrong")
    assert wrong.observed is None
    assert wrong.values.tolist() == [[1, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("cells", "failed"),
    [
        ([{"code": 429}, None], [True, False]),
        ([True, False], [True, False]),
        (["None", "oops"], [False, True]),
        # A number may be a measure, such as an absolute error: left alone, and said.
        ([float("inf"), 0.0], [False, False]),
    ],
)
def test_what_tells_of_a_failed_call(cells, failed):
    columns = {"model": ["m", "m"], "item": ["a", "b"], "score": [1, 1]}
    table = read(pa.table({**columns, "error": cells}))
    known = [[True, True]] if table.observed is None else table.observed.tolist()
    assert known == [[not f for f in failed]]
    assert any("'error'" in note for note in table.notes)


def test_verdict_of_no_answer_is_missing(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,item,score\nm,a,C\nm,b,N\nn,a,I\nn,b,C\n")
    table = read(path)
    assert table.num_observed == 3
    assert any("1 score of no answer" in note for note in table.notes)
    assert read(path, missing_as="wrong").values.tolist() == [[1, 0], [0, 1]]
