"""Data frames of evaluation tools and of pandas, saved as CSV."""

from __future__ import annotations

import pytest

from irtjax import read
from tests.reading_cases import refused

MODELS = ["org/a", "org/b", "c"]
CELLS = [(m, j, "CI"[(i + j) % 2]) for i, m in enumerate(MODELS) for j in range(4)]


@pytest.mark.parametrize("epoch", [True, False])
@pytest.mark.parametrize("task", [True, False])
def test_samples_of_inspect(tmp_path, epoch, task):
    """`samples_df(logs, columns=EvalModel + SampleSummary).to_csv()`."""
    header = ["eval_id", "sample_id", "log", *["task_name"] * task, "model", "id"]
    header += [*["epoch"] * epoch, "input", "target", "score_match", "total_tokens"]
    rows = [
        ["e", f"u{m}{j}", "l", *["arc"] * task, m, j, *[1] * epoch, "q", "t", x, 5]
        for m, j, x in CELLS
    ]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]))
    table = read(path)
    assert table.subjects.tolist() == MODELS
    assert table.values.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]
    assert table.items[0] == ("arc/0" if task else "0")


def test_frames_of_inspect_that_lack_something(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("eval_id,sample_id,id,score_match\ne,u,1,C\ne,v,2,I\n")
    assert "columns=EvalModel + SampleSummary" in refused(path)
    assert read(path, subject_name="m").values.tolist() == [[1, 0]]
    path.write_text("eval_id,model,score_headline_value\ne,m,0.5\nf,n,0.25\n")
    assert "holds the totals of evaluations by Inspect" in refused(path)


def test_indices_of_pandas_are_no_items(tmp_path):
    path = tmp_path / "t.csv"
    header = "Unnamed: 0.1,Unnamed: 0,model,q1,q2,q3"
    path.write_text(f"{header}\n0,0,a,1,0,1\n1,1,b,0,0,1\n2,2,c,1,1,1\n")
    table = read(path)
    assert table.subjects.tolist() == ["a", "b", "c"]
    assert table.items.tolist() == ["q1", "q2", "q3"]
    assert sum("numbers the rows" in note for note in table.notes) == 2


def test_long_frames_with_an_index(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"{k},{m},q{j},{x == 'C'}" for k, (m, j, x) in enumerate(CELLS)]
    for name in ("", "Unnamed: 0", "index"):
        path.write_text("\n".join([f"{name},model,question,is_correct", *rows]))
        table = read(path)
        assert table.subjects.tolist() == MODELS and table.num_observed == 12


def test_samples_of_lm_eval_that_pandas_wrote(tmp_path):
    for m in ("a", "b"):
        rows = [f"{j},{j},h{j},none,{j % 2}" for j in range(4)]
        text = "\n".join([",doc_id,doc_hash,filter,acc", *rows])
        (tmp_path / f"{m}.csv").write_text(text)
    table = read(tmp_path)
    assert table.subjects.tolist() == ["a", "b"]
    assert table.values.tolist() == [[0, 1, 0, 1]] * 2


def test_a_published_frame(shared_cases):
    table = read(shared_cases / "C21" / "samples.csv")
    assert (table.num_subjects, table.num_items) == (10, 36)
    assert table.num_observed == 360 and table.seen.sum() == 190
