"""Comparisons from files: each kind of file, and what is refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irtjax import ComparisonTable, read_comparisons


def written(folder, name: str, content) -> str:
    """The path of a file of text, of JSON, or of JSON lines."""
    path = folder / name
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    elif name.endswith(".jsonl"):
        path.write_text("\n".join(map(json.dumps, content)) + "\n", encoding="utf-8")
    else:
        path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def outcomes_of(table) -> dict[tuple[str, str], list[float]]:
    """Sums of outcomes by pair of names."""
    found: dict[tuple[str, str], np.ndarray] = {}
    names = table.subjects.tolist()
    for i, j, row in zip(table.first, table.second, table.outcomes, strict=True):
        key = names[i], names[j]
        found[key] = found.get(key, np.zeros(4)) + row
    return {key: row.tolist() for key, row in found.items()}


KINDS = {
    "battles.csv": (
        "question_id,model_a,model_b,winner\n1,x,y,model_a\n2,x,y,tie\n"
        "3,y,z,tie (bothbad)\n4,z,x,model_b\n5,x,z,\n",
        {("x", "y"): [1, 0, 1, 0], ("y", "z"): [0, 0, 0, 1], ("z", "x"): [0, 1, 0, 0]},
    ),
    "onehot.csv": (
        "model_a,model_b,winner_model_a,winner_model_b,winner_tie\nx,y,0,1,0\nx,y,0,0,1\n",
        {("x", "y"): [0, 1, 1, 0]},
    ),
    "pairs.csv": (
        "winner,loser\nx,y\ny,x\nx,y\n",
        {("x", "y"): [2, 0, 0, 0], ("y", "x"): [1, 0, 0, 0]},
    ),
    "counts.csv": (
        "model_a,model_b,wins_a,wins_b,ties,both_bad\nx,y,5,3,2,1\n",
        {("x", "y"): [5, 3, 2, 1]},
    ),
    "names.csv": (
        "first,second,winner\na,b,b\nb,a,b\na,b,A=B\n",
        {("a", "b"): [0, 1, 1, 0], ("b", "a"): [1, 0, 0, 0]},
    ),
    "chances.csv": (
        "model_a,model_b,winner\nx,y,0.75\nx,y,0.5\n",
        {("x", "y"): [1.25, 0.75, 0, 0]},
    ),
    "annotations.json": (
        [
            {"generator_1": "base", "generator_2": "m", "preference": 1.25},
            {"generator_1": "base", "generator_2": "m", "preference": 0},
            {"generator_1": "base", "generator_2": "m", "preference": None},
        ],
        {("base", "m"): [0.75, 0.25, 1, 0]},
    ),
    "pair.jsonl": (
        [
            {"model_1": "x", "model_2": "y", "g1_winner": a, "g2_winner": b}
            for a, b in (
                ("model_1", "model_1"),
                ("model_1", "model_2"),
                ("tie", "tie"),
                ("error", "tie"),
            )
        ],
        {("x", "y"): [1, 0, 2, 0]},
    ),
    "hard.jsonl": (
        [
            {
                "question_id": "1",
                "model": "m",
                "games": [{"score": "B>>A"}, {"score": "A=B"}],
            }
        ],
        {("baseline", "m"): [0, 1, 0, 0], ("m", "baseline"): [0, 0, 1, 0]},
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_file(name, tmp_path):
    content, wanted = KINDS[name]
    assert outcomes_of(read_comparisons(written(tmp_path, name, content))) == wanted


def test_files_of_a_folder_are_one_table(tmp_path):
    written(tmp_path, "one.csv", "model_a,model_b,winner,judge\nx,y,model_a,u\n")
    written(tmp_path, "two.csv", "model_a,model_b,winner,judge\nz,x,model_a,v\n")
    table = read_comparisons(tmp_path)
    assert outcomes_of(table) == {("x", "y"): [1, 0, 0, 0], ("z", "x"): [1, 0, 0, 0]}
    assert table.labels["judge"].tolist() == ["u", "v"]


def test_a_feature_is_the_difference_over_the_sum(tmp_path):
    rows = [
        {"model_a": "x", "model_b": "y", "winner": "tie", "gap": 3, "response_a": "ab",
         "response_b": "abcd", "meta": {"sum_a_tokens": 10, "sum_b_tokens": 30,
         "bold_a": {"**": 1, "__": 2}, "bold_b": {"**": 0, "__": 0}}},
        {"model_a": "x", "model_b": "y", "winner": "tie", "gap": -1, "response_a": "",
         "response_b": "", "meta": {"sum_a_tokens": 0, "sum_b_tokens": 0,
         "bold_a": {"**": 0, "__": 0}, "bold_b": {"**": 0, "__": 0}}},
    ]  # fmt: skip
    path = written(tmp_path, "battles.jsonl", rows)
    names = ["gap", "response", "sum_tokens", "bold"]
    found = read_comparisons(path, features=names).features
    assert {name: values.tolist() for name, values in found.items()} == {
        "gap": [3, -1],
        "response": [pytest.approx(-1 / 3), 0],
        "sum_tokens": [-0.5, 0],
        "bold": [1, 0],
    }


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("model_a,model_b,winner\nx,y,model_c\n", {}, "row 1: winner is 'model_c'"),
        ("model_a,model_b,winner\nx,x,tie\n", {}, "row 1: 'x' is compared with itself"),
        ("model_a,model_b,winner\n,y,tie\n", {}, "row 1: model_a is empty"),
        ("model_a,model_b,winner\nx,y,\n", {}, "no row has a verdict"),
        ("model_a,model_b,winner\nx,y,1.5\n", {}, "row 1: winner is 1.5"),
        ("model_a,model_b,vote\nx,y,1\n", {}, "no column of the outcome"),
        ("model,question,score\nx,q,1\n", {}, "no two columns of models"),
        ("model_a,model_b,winner\nx,y,tie\n", {"winner": "w"}, "no column 'w'"),
        ("model_a,model_b,winner\nx,y,tie\n", {"features": ["length"]}, "no covariate"),
        ("model_a,model_b,wins_a,wins_b\nx,y,3,-1\n", {}, "row 1: wins_b is -1"),
    ],
)
def test_what_is_refused(text, options, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        read_comparisons(written(tmp_path, "battles.csv", text), **options)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((["a", "a"], [0], [1], [[1, 0, 0, 0]]), "same name"),
        ((["a", "b"], [0], [2], [[1, 0, 0, 0]]), "row 0 has subject 2 of 2"),
        ((["a", "b"], [0], [0], [[1, 0, 0, 0]]), "with itself"),
        ((["a", "b"], [0], [1], [[-1, 2, 0, 0]]), "row 0 has the outcomes"),
        ((["a", "b"], [0], [1], [[0, 0, 0, 0]]), "row 0 has the outcomes"),
        ((["a", "b"], [], [], np.zeros((0, 4))), "no comparisons"),
        ((["a", "b"], [0], [1], [[1, 0, 0]]), "shape"),
    ],
)
def test_wrong_arrays_are_refused(parts, said):
    with pytest.raises(ValueError, match=said):
        ComparisonTable.of(*parts)


def test_a_data_frame_is_read():
    frame = pa.table({"model_a": ["x"], "model_b": ["y"], "winner": ["y"]})
    assert outcomes_of(read_comparisons(frame)) == {("x", "y"): [0, 1, 0, 0]}


@pytest.mark.parametrize("coded", [True, False])
def test_parquet_is_read_as_codes(coded, tmp_path):
    """Also where chunks have dictionaries of their own, and cells are empty."""
    names = {"model_a": ["y", "x", "y"], "model_b": ["x", "z", "x"]}
    winner = {"winner": ["x", None, "model_a"], "judge": ["v", "u", None]}
    frame = pa.table(names | winner | {"note": [1, 2, 3]})
    other = pa.table({**names, "winner": ["tie", "z", ""], "judge": ["w", "u", "v"]})
    frame = pa.concat_tables([frame, other], promote_options="default")
    if coded:
        columns = [frame[x].dictionary_encode() for x in frame.column_names[:-1]]
        frame = pa.table(columns, frame.column_names[:-1])
    path = tmp_path / "battles.parquet"
    pq.write_table(frame, path, row_group_size=2)
    table = read_comparisons(path)
    assert outcomes_of(table) == {("y", "x"): [1, 1, 1, 0], ("x", "z"): [0, 1, 0, 0]}
    assert table.labels["judge"].tolist() == ["v", "", "w", "u"]
    assert table.labels.coded("judge").code.dtype == np.int32
    assert "1 row" not in "".join(table.notes) and "2 rows" in table.notes[0]


def test_verdicts_as_places_are_numbers_of_outcomes():
    place = np.array([0, 3, 2, 1, 0])
    sides = [0, 1, 2, 0, 1], [1, 0, 1, 2, 0]
    one, other = (
        ComparisonTable.of("abc", *sides, x) for x in (place, np.eye(4)[place])
    )
    np.testing.assert_array_equal(one.outcomes, other.outcomes)
    np.testing.assert_array_equal(one.merged().verdicts, other.merged().verdicts)
    assert (
        one.data_hash()
        == other.data_hash()
        == other.select(np.arange(5)[::-1]).data_hash()
    )
    assert one.num_comparisons == 5
    with pytest.raises(ValueError, match="row 1 has the outcomes 4"):
        ComparisonTable.of("ab", [0, 0], [1, 1], [0, 4])
