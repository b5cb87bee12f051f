"""Tables without subjects: a file, or a folder, for each."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irtjax import read
from tests.reading_cases import refused

SCORES = {"gpt-4.1": [1, 0, 1], "llama_8b": [0, 0, 1], "qwen2.5": [1, 1, 1]}


def write(path, scores, item="question_id", response="score", start=0) -> None:
    """Writes a table of one subject in the format of the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = [f"q{k + start}" for k in range(len(scores))]
    rows = [{item: x, response: y} for x, y in zip(names, scores, strict=True)]
    if path.suffix == ".csv":
        lines = [f"{x},{y}" for x, y in zip(names, scores, strict=True)]
        path.write_text("\n".join([f"{item},{response}", *lines]) + "\n")
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))


def check(table) -> None:
    """The subjects are those of `SCORES`."""
    found = dict(zip(table.subjects.tolist(), table.values.tolist(), strict=True))
    assert found == SCORES
    assert table.num_observed == 9


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl", ".json"])
def test_a_file_for_each_subject(tmp_path, ending):
    for name, scores in SCORES.items():
        write(tmp_path / f"{name}{ending}", scores)
    table = read(tmp_path)
    check(table)
    (note,) = [x for x in table.notes if "without a column of subjects" in x]
    assert note.startswith("3 files without") and "name of the file" in note
    check(read(sorted(tmp_path.iterdir()), subject_from="file"))


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl", ".json"])
def test_a_column_id_may_be_of_subjects(tmp_path, ending):
    for name, scores in SCORES.items():
        write(tmp_path / f"{name}{ending}", scores, item="id")
    assert "subject_from='file'" in refused(tmp_path)
    check(read(tmp_path, subject_from="file"))


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("below", ["", "run1", "2026-01-01/out"])
def test_a_folder_for_each_subject(tmp_path, ending, below):
    for name, scores in SCORES.items():
        write(tmp_path / name / below / f"eval{ending}", scores)
    check(read(tmp_path))
    check(read(tmp_path, subject_from="folder"))


def test_folders_that_differ_below_too(tmp_path):
    for k, (name, scores) in enumerate(SCORES.items()):
        write(tmp_path / name / f"2026-01-0{k + 1}" / "eval.csv", scores)
    check(read(tmp_path))


def test_a_file_for_each_benchmark_of_a_subject(tmp_path):
    for name, scores in SCORES.items():
        write(tmp_path / name / "arc.csv", scores)
        write(tmp_path / name / "gsm8k.csv", scores, start=10)
    table = read(tmp_path)
    assert sorted(table.subjects.tolist()) == sorted(SCORES)
    assert sorted(set(table.benchmarks.tolist())) == ["arc", "gsm8k"]
    assert (table.num_items, table.num_observed) == (6, 18)


def test_a_folder_for_each_benchmark(tmp_path):
    for name, scores in SCORES.items():
        write(tmp_path / "arc" / f"{name}.csv", scores)
        write(tmp_path / "gsm8k" / f"{name}.csv", scores, start=10)
    table = read(tmp_path)
    assert sorted(table.subjects.tolist()) == sorted(SCORES)
    assert sorted(set(table.benchmarks.tolist())) == ["arc", "gsm8k"]


def test_names_that_repeat_both_ways_are_asked_for(tmp_path):
    for name, scores in SCORES.items():
        write(tmp_path / name / "arc.csv", scores)
        write(tmp_path / name / "gsm8k.csv", scores)
    message = refused(tmp_path)
    assert "subject_from='folder'" in message and "subject_from='file'" in message
    table = read(tmp_path, subject_from="folder")
    assert sorted(table.subjects.tolist()) == sorted(SCORES)
    assert table.num_items == 6 and table.items[0].startswith(("arc/", "gsm8k/"))
    assert read(tmp_path, subject_from="file").num_subjects == 2


def test_files_that_share_no_item_are_asked_for(tmp_path):
    write(tmp_path / "part1.csv", [1, 0, 1])
    write(tmp_path / "part2.csv", [1, 1, 0], start=3)
    message = refused(tmp_path)
    assert "share no item" in message
    assert read(tmp_path, subject_from="file").num_subjects == 2
    table = read(tmp_path, subject_name="m")
    assert table.subjects.tolist() == ["m"] and table.num_items == 6


def test_one_file_asks_for_the_name_of_its_subject(tmp_path):
    write(tmp_path / "m.csv", [1, 0, 1])
    assert "subject_name=" in refused(tmp_path / "m.csv")
    table = read(tmp_path / "m.csv", subject_from="file")
    assert table.subjects.tolist() == ["m"]
    assert "not both" in refused(
        tmp_path / "m.csv", subject_from="file", subject_name="x"
    )


def test_files_with_subjects_keep_them(tmp_path):
    for name in "ab":
        text = f"model,item,score\nm{name},q1,1\nm{name},q2,0\n"
        (tmp_path / f"{name}.csv").write_text(text)
    assert read(tmp_path).subjects.tolist() == ["ma", "mb"]


def test_a_table_that_lacks_subjects_next_to_one_that_has_them(tmp_path):
    (tmp_path / "a.csv").write_text("model,item,score\nm,q1,1\nm,q2,0\n")
    write(tmp_path / "b.csv", [1, 0])
    assert "b.csv: no column of subjects" in refused(tmp_path)


def test_a_column_of_another_name_is_the_response_of_one_subject(tmp_path):
    for name, scores in SCORES.items():
        write(tmp_path / f"{name}.csv", scores, response="em")
    assert "subject_from='file'" in refused(tmp_path)
    check(read(tmp_path, subject_from="file"))


def test_leaving_out_a_subject_by_the_name_of_its_file(tmp_path):
    for name, scores in SCORES.items():
        write(tmp_path / f"{name}.csv", scores)
    table = read(tmp_path, leave_out="llama_8b")
    assert table.subjects.tolist() == ["gpt-4.1", "qwen2.5"]


def test_a_row_of_a_matrix_for_each_file(tmp_path):
    for name, scores in SCORES.items():
        text = "q0,q1,q2\n" + ",".join(map(str, scores)) + "\n"
        (tmp_path / f"{name}.csv").write_text(text)
    check(read(tmp_path, subject_from="file"))


def test_a_published_folder(shared_cases):
    table = read(shared_cases / "C17", response="faithfulness", item="user_input")
    assert (table.num_subjects, table.num_items) == (4, 20)
    assert "ragas_alpha-70b" in table.subjects.tolist()
    assert table.num_observed == 75
