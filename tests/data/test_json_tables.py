"""Tables in one JSON object: pandas' forms, and tables of Weights & Biases."""

import gzip
import json

import pandas as pd
import pytest

from irtjax.data import read

ROWS = [
    {"model": model, "item": f"q{k}", "score": score}
    for model, scores in {"m": [1, 0, 1], "n": [0, 0, 1]}.items()
    for k, score in enumerate(scores)
]
FRAME = pd.DataFrame(ROWS)


def check(table):
    assert table.subjects.tolist() == ["m", "n"]
    assert table.items.tolist() == ["q0", "q1", "q2"]
    assert table.values.tolist() == [[1, 0, 1], [0, 0, 1]]


@pytest.mark.parametrize("orient", ["split", "records", "index", "columns", "table"])
@pytest.mark.parametrize("indent", [None, 2])
def test_every_form_of_pandas(tmp_path, orient, indent):
    path = tmp_path / "frame.json"
    FRAME.to_json(path, orient=orient, indent=indent)
    check(read(path))
    packed = tmp_path / "frame.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    check(read(packed))


def test_lists_by_column(tmp_path):
    path = tmp_path / "frame.json"
    path.write_text(json.dumps(FRAME.to_dict("list")))
    check(read(path))
    # A matrix is wide, as in CSV.
    wide = {"model": ["m", "n"], "q0": [1, 0], "q1": [0, 0], "q2": [1, None]}
    path.write_text(json.dumps(wide))
    table = read(path)
    assert (table.num_subjects, table.num_items, table.num_observed) == (2, 3, 5)


def test_a_table_of_weights_and_biases(tmp_path):
    path = tmp_path / "eval.table.json"
    data = [list(row.values()) for row in ROWS]
    names = list(ROWS[0])
    path.write_text(json.dumps({"columns": names, "data": data, "ncols": 3}))
    check(read(path))


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ({"columns": ["model", "item"], "data": [["m", "q"], ["m"]]}, "row 2 of data"),
        (
            {"columns": ["m", "m"], "data": [["m", "q"]]},
            "two columns have the name 'm'",
        ),
        ({"a": [1, 2], "b": [1]}, "JSON of no known kind"),
        ({"a": {"x": {"y": 1}}, "b": {"x": {}}}, "JSON of no known kind"),
    ],
)
def test_what_is_no_table(tmp_path, whole, part):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(ValueError) as error:
        read(path)
    assert part in str(error.value)
    assert "t.json" in str(error.value)


def test_one_record_is_a_record(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"model": "m", "item": "q", "score": 1, "tags": ["a"]}))
    assert read(path).values.tolist() == [[1]]
