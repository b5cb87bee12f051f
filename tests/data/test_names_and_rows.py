"""Names out are names in, and every row is in the table or in a note.

Names differ in what tools cut or change: outer spaces of all kinds, forms of
characters, digits that numbers do not hold, words for nothing, signs of formulas.
"""

import csv
import io
import json
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import irtjax
from irtjax.data.table import ResponseTable

#: Beginnings and ends that readers are tempted to cut.
EDGES = ["", " ", "  ", "\u00a0", "\u2003", "\u3000", "\u200b", "\t"]
ODD = [
    *("007", "7", "7.0", "1e5", "100000", "9007199254740993", "9007199254740992"),
    *("12345678901234567890123", "12345678901234567890124", "-0", "True", "null"),
    *("None", "nan", "NA", "-", "é", "e\u0301", "ﬁ", "fi", 'q"uo', "c,omma", "a/b"),
    *("x;y", "tab\tin", "#hash", "'apo", "{a}", "<b>", "100%", "a  b", "a b"),
]
names = st.lists(
    st.builds(
        lambda before, middle, after: before + middle + after,
        st.sampled_from(EDGES),
        st.sampled_from(ODD) | st.text("ab09 .é", min_size=1).filter(str.strip),
        st.sampled_from(EDGES),
    ),
    min_size=2,
    max_size=8,
    unique=True,
)
quick = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def responses(subjects, items):
    """Rows (subject, item, response) with a 0 and a 1 in every line and column."""
    return [
        (subject, item, (i + k) % 2)
        for i, subject in enumerate(subjects)
        for k, item in enumerate(items)
    ]


def as_csv(path, rows, delimiter=","):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL)
    writer.writerow(["model", "item", "score"])
    writer.writerows(rows)
    path.write_text(out.getvalue(), encoding="utf-8", newline="")
    return path


def records(rows):
    return [dict(zip(("model", "item", "score"), row, strict=True)) for row in rows]


def as_json_lines(path, rows):
    path.write_text("".join(json.dumps(x) + "\n" for x in records(rows)))
    return path


def as_json(path, rows):
    path.write_text(json.dumps(records(rows), ensure_ascii=False), encoding="utf-8")
    return path


def as_parquet(path, rows):
    pq.write_table(pa.Table.from_pylist(records(rows)), path)
    return path


def as_py_irt(path, rows):
    by_subject = {}
    for subject, item, value in rows:
        by_subject.setdefault(subject, {})[item] = value
    lines = [{"subject_id": s, "responses": r} for s, r in by_subject.items()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def as_inspect(path, rows):
    """A folder of logs, a model each; half of them zipped."""
    path.mkdir(exist_ok=True)
    for old in path.iterdir():
        old.unlink()
    subjects = list(dict.fromkeys(row[0] for row in rows))
    for k, subject in enumerate(subjects):
        samples = [
            {"id": item, "epoch": 1, "scores": {"s": {"value": "CI"[1 - value]}}}
            for name, item, value in rows
            if name == subject
        ]
        log = {
            "version": 2,
            "status": "success",
            "eval": {"model": subject, "task": "t", "eval_id": f"e{k}", "run_id": "r"},
            "results": {"total_samples": len(samples)},
        }
        if k % 2:
            with zipfile.ZipFile(path / f"{k}.eval", "w") as archive:
                archive.writestr("header.json", json.dumps(log))
                for place, sample in enumerate(samples):
                    text = json.dumps(sample)
                    archive.writestr(f"samples/{place}_epoch_1.json", text)
        else:
            (path / f"{k}.json").write_text(json.dumps({**log, "samples": samples}))
    return path


LONG = {
    "csv": ("t.csv", as_csv),
    "tsv": ("t.tsv", lambda path, rows: as_csv(path, rows, "\t")),
    "json lines": ("t.jsonl", as_json_lines),
    "json": ("t.json", as_json),
    "parquet": ("t.parquet", as_parquet),
    "py_irt": ("t.jsonlines", as_py_irt),
}
FRAMES = {
    "pandas": lambda rows: pd.DataFrame(records(rows)),
    "polars": lambda rows: pl.DataFrame(records(rows)),
    "arrow": lambda rows: pa.Table.from_pylist(records(rows)),
}


def check(table, rows):
    """The very cells of the rows, and nothing else."""
    assert set(table.subjects.tolist()) == {row[0] for row in rows}
    assert set(table.items.tolist()) == {row[1] for row in rows}
    assert table.num_observed == len(rows)
    place = {name: k for k, name in enumerate(table.subjects.tolist())}
    column = {name: k for k, name in enumerate(table.items.tolist())}
    for subject, item, value in rows:
        assert table.values[place[subject], column[item]] == value


@pytest.mark.parametrize("kind", sorted(LONG))
@quick
@given(subjects=names, items=names)
def test_files_of_rows(kind, tmp_path, subjects, items):
    name, write = LONG[kind]
    rows = responses(subjects, items)
    check(irtjax.read(write(tmp_path / name, rows)), rows)


@pytest.mark.parametrize("kind", sorted(FRAMES))
@quick
@given(subjects=names, items=names)
def test_frames(kind, subjects, items):
    rows = responses(subjects, items)
    check(irtjax.read(FRAMES[kind](rows)), rows)


@quick
@given(subjects=names, items=names)
def test_wide_files_and_saved_tables(tmp_path, subjects, items):
    values = np.add.outer(np.arange(len(subjects)), np.arange(len(items))) % 2
    rows = responses(subjects, items)
    table = ResponseTable.from_arrays(values, subjects=subjects, items=items)
    check(irtjax.read(table.save(tmp_path / "t.parquet")), rows)
    check(irtjax.read(table.save(tmp_path / "t.json")), rows)
    wide = pd.DataFrame(values, columns=items)
    wide.insert(0, "model name", subjects)
    wide.to_csv(tmp_path / "w.csv", index=False)
    check(irtjax.read(tmp_path / "w.csv", subject="model name"), rows)


@quick
@given(subjects=names, items=names)
def test_logs_of_inspect(tmp_path, subjects, items):
    rows = responses(subjects, items)
    table = irtjax.read(as_inspect(tmp_path / "logs", rows))
    check(table, [(subject, f"t/{item}", value) for subject, item, value in rows])


@pytest.mark.parametrize("write", [as_json_lines, as_json], ids=["lines", "array"])
@pytest.mark.parametrize(
    "items",
    [
        [9007199254740992, 9007199254740993],
        [2**63 + 5, 2**63 + 6],
        [12345678901234567890123, 12345678901234567890124],
        [9007199254740993, 9007199254740992, 1.5],
    ],
)
def test_whole_numbers_wider_than_a_float_stay_different(tmp_path, items, write):
    rows = responses(["m", "n"], items)
    expected = [(subject, str(item), value) for subject, item, value in rows]
    check(irtjax.read(write(tmp_path / "t.json", rows)), expected)
    frame = pd.DataFrame(
        {
            "model": [row[0] for row in rows],
            "item": pd.Series([row[1] for row in rows], dtype=object),
            "score": [row[2] for row in rows],
        }
    )
    check(irtjax.read(frame), expected)


def test_frames_of_numbers_and_texts_as_names():
    frame = pd.DataFrame({"model": ["m", "n"] * 2, "item": [7, 7, "q", "q"]})
    frame["score"] = [1, 0, 0, 1]
    assert irtjax.read(frame).items.tolist() == ["7", "q"]


def test_a_name_that_ends_with_nul_is_refused(tmp_path):
    # NumPy drops it, so that two names would become one.
    path = as_json_lines(tmp_path / "t.jsonl", responses(["m", "n"], ["a", "a\0"]))
    with pytest.raises(ValueError, match=r"name 'a\\x00' ends with a NUL"):
        irtjax.read(path)


def test_a_space_after_each_comma_belongs_to_the_delimiter(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model, item, score\nm, q1, 1\nm, q2, 0\nn, q1, 0\nn, q2, 1\n")
    table = irtjax.read(path)
    assert table.items.tolist() == ["q1", "q2"] and table.subjects.tolist() == [
        "m",
        "n",
    ]


def test_samples_that_a_log_announces_and_does_not_hold_are_named(tmp_path):
    folder = as_inspect(tmp_path / "logs", responses(["m", "n"], ["a", "b", "c"]))
    path = folder / "0.json"
    log = json.loads(path.read_text())
    log["results"]["total_samples"] = 5
    path.write_text(json.dumps(log))
    notes = irtjax.read(folder).notes
    assert "0.json announces 5 samples and holds 3: the others are missing" in notes


def test_members_and_samples_that_stand_twice_are_named(tmp_path):
    folder = as_inspect(tmp_path / "logs", responses(["m", "n"], ["a", "b"]))
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(folder / "1.eval", "a") as archive,
    ):
        sample = {"id": "a", "epoch": 1, "scores": {"s": {"value": "C"}}}
        archive.writestr("samples/0_epoch_1.json", json.dumps(sample))
    notes = irtjax.read(folder).notes
    name = "'samples/0_epoch_1.json'"
    assert f"1.eval holds {name} more than once: the last was read" in notes


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "t.jsonl",
            '{"model": "m", "item": "a", "item": "b", "score": 1}\n',
            "'item' tw",
        ),
        (
            "t.json",
            '[{"model": "m", "item": "a", "item": "b", "score": 1}]',
            "'item' st",
        ),
    ],
)
def test_a_record_with_a_field_twice_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        irtjax.read(tmp_path / name)


def test_a_key_that_stands_twice_in_a_log_is_named(tmp_path):
    line = '{"subject_id": "%s", "responses": {"q1": 1, "q2": 0, "q1": 0}}\n'
    path = tmp_path / "t.jsonlines"
    path.write_text(line % "m" + line % "n")
    notes = irtjax.read(path).notes
    assert any("line 1: 'q1' stands twice in one object" in note for note in notes)
