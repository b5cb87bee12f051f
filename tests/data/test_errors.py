"""Bad input is refused in one line that names the place and the cure."""

import gzip
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irtjax.data import read
from tests.reading_cases import refused

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.mark.parametrize(
    ("text", "options", "parts"),
    [
        ("", {}, ["t.csv is empty"]),
        ("   \n", {}, ["t.csv is empty"]),
        ("model,q1\n", {}, ["t.csv has a header but no rows"]),
        ("model\nm\n", {}, ["no columns of responses"]),
        (
            "model,item,correct\nm,q,1\n",
            {"response": "points"},
            ["no column 'points' for response=", "model, item, correct"],
        ),
        ("model,q1\nm,1\n", {"subject": "who"}, ["no column 'who' for subject="]),
        ("model,item,x,z\nm,q,1,2\n", {}, ["no column of responses", "among: x, z"]),
        ("item,correct\nq,1\n", {}, ["no column of subjects", "subject_name="]),
        ("model,correct\nm,1\n", {"response": "correct"}, ["no column of items"]),
        (
            "model,q1,q2\nm,1,0\nn,1,oops\n",
            {},
            ["row 2, column 'q2' is 'oops'", "not a number"],
        ),
        (
            "model,item,correct\nm,q1,1\nm,q2,maybe\n",
            {},
            ["row 2, column 'correct' is 'maybe'"],
        ),
        ("model,item,correct\nm,q1,inf\n", {}, ["row 1, column 'correct' is infinite"]),
        ("model,q1\nm,1\n,0\n", {}, ["row 2 has no name in column 'model'"]),
        ("model,item,correct\nm,q1,\nm,q2,NA\n", {}, ["every response is missing"]),
        ("model,q1,q2\nm,,\nn,,NA\n", {}, ["every response is missing"]),
        (
            "model,item,correct\nm,q1,1\nm,q1,0\nm,q2,1\nm,q2,1\n",
            {"trials": "error"},
            ["('m', 'q1') has 2 responses; 2 pairs repeat", "trials='mean'"],
        ),
        (
            "model,item,trial,correct\nm,q1,0,1\nm,q1,1,0\n",
            {"trials": "error"},
            ["('m', 'q1') has 2 epochs or trials", "epoch= (epochs found: 0, 1)"],
        ),
        (
            "model,item,trial,correct\n" + "".join(f"m,q,{k},1\n" for k in range(12)),
            {"trials": "error"},
            ["(epochs found: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... (12 in all))"],
        ),
        (
            "model,q1\nm,1\nm,0\n",
            {"trials": "error"},
            ["('m', 'q1') has 2 responses", "trials="],
        ),
        (
            "model,item,metric,score\nm,q,acc,1\nm,q,f1,0.5\n",
            {},
            ["several metrics", "acc, f1"],
        ),
        (
            "model,item,score,correct\nm,q,0.5,1\n",
            {},
            ["several metrics", "score, correct"],
        ),
        (
            "model,item,test_condition,score\nm,q,a,1\nm,q,b,0\n",
            {},
            ["several filters", "filter= among a, b"],
        ),
        ("model,item,correct\nm,q,0.5\nm,q,1\n", {"trials": "counts"}, ["0 and 1"]),
        ("model,item,correct\nm,q,1\n", {"epoch": 3}, ["no epoch or trial 3"]),
        ("model,q1\nm,1\n", {"benchmark": "b"}, ["wide matrix", "benchmark="]),
        ("a,b\n1,0\n1\n", {}, ["equally long lines", "Expected 2 columns, got 1"]),
        ("item,a,b\nq1,1.1,-0.3\nq2,0.7,0.85\n", {}, ["fitted parameters (a, b)"]),
        ("model_a,model_b,winner\nm,n,m\n", {}, ["holds battles (a row compares"]),
        (
            "name,kind\nm,big\nn,small\n",
            {},
            ["name, kind", "name its columns with subject="],
        ),
        ("model,q1\nm,1\n", {"trials": "sum"}, ["trials='sum' is not one of 'auto'"]),
        ("model,q1\nm,1\n", {"format": "excel"}, ["format='excel' is not one of"]),
        ("model,q1\nm,1\n", {"length": "nope.csv"}, ["no such file or folder: nope"]),
        (
            "model,benchmark,item,correct\nm,a,q,1\nn,,q,1\n",
            {"item": "item", "missing_as": "x"},
            ["missing_as='x'"],
        ),
    ],
)
def test_bad_tables(tmp_path, text, options, parts):
    path = tmp_path / "t.csv"
    path.write_text(text)
    message = refused(path, **options)
    for part in parts:
        assert part in message
    if not options:
        assert "t.csv" in message


def test_missing_places(tmp_path):
    assert "no such file or folder" in refused(tmp_path / "no.csv")
    assert "no file matches" in refused(str(tmp_path / "*.csv"))
    assert "a folder without files" in refused(tmp_path)
    assert "the list of inputs is empty" in refused([])
    assert "cannot read a int" in refused(3)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_unreadable_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,0\n")
    path.chmod(0)
    assert "Permission denied" in refused(path)


class _Trap:
    """An object whose unpickling leaves a mark."""

    def __reduce__(self):
        return (os.mkdir, ("unpickled",))


# Protocols 0 and 1 are plain text without a mark of their own: told by name alone.
@pytest.mark.parametrize(
    ("name", "protocol"),
    [(name, k) for name in ("t.pickle", "t.pt") for k in range(6)]
    + [(name, k) for name in ("t.csv", "t") for k in range(2, 6)],
)
def test_pickle_is_never_opened(tmp_path, monkeypatch, protocol, name):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.write_bytes(pickle.dumps(_Trap(), protocol))
    for options in ({}, {"format": "csv"}, {"format": "inspect"}):
        assert "is a pickle" in refused(path, **options)
    assert not (tmp_path / "unpickled").exists()


def test_torch_archive_is_refused_as_pickle(tmp_path):
    path = tmp_path / "weights.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"x")
    assert "is a pickle" in refused(path)


def test_other_binary_files(tmp_path):
    np.savez(tmp_path / "t.npz", a=np.eye(2))
    assert "numpy archive" in refused(tmp_path / "t.npz")
    (tmp_path / "t.png").write_bytes(b"\x89PNG\r\n\0\0")
    assert "is an image" in refused(tmp_path / "t.png")
    (tmp_path / "t.bin").write_bytes(b"\0\1\2")
    assert "binary file" in refused(tmp_path / "t.bin")
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("a.csv", "a,b\n1,0\n")
    assert "no Inspect log: it has no header.json" in refused(tmp_path / "t.zip")


def test_damaged_files(tmp_path):
    whole = tmp_path / "t.parquet"
    pq.write_table(pa.table({"model": ["m"], "q": [1]}), whole)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:-20])
    assert "cut.parquet is damaged or cut off" in refused(cut)
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(b"model,q\nm,1\n" * 50)[:-12])
    assert "t.csv.gz" in refused(packed)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"model,q1\nm\xff,1\n", 2),
        (b"mod\xffel,q1\nm,1\n", 1),
        (b"model,item,correct\n" + b"m,q,1\n" * 20_000 + b"n\xe9,q,1\n", 20_002),
    ],
)
def test_text_that_is_not_utf8(tmp_path, content, line):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert f"t.csv: line {line} is not UTF-8 text" in refused(path)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            '{"subject_id": "m", "responses": {"q": 1}}\n{"subject_',
            "line 2: not valid JSON, or cut off",
        ),
        ('{"subject_id": "m", "responses": {"q": "x"}}', "line 1, item 'q' is 'x'"),
        ('{"subject_id": "m", "responses": {}}', "no responses"),
        (
            '{"evalId": "e", "results": {"version": 3, "results": [], "stats": {}},'
            ' "config": {"providers": []}, "shareableUrl": null}',
            "t.jsonl: no record has a score",
        ),
        (
            '{"version": 3, "timestamp": "t", "prompts": [], "stats": {"errors": 1}}',
            "a summary of promptfoo without results; write --output results.jsonl",
        ),
        (
            '{"spec": {"completion_fns": ["m"], "eval_name": "e.dev", "base_eval": "e",'
            ' "run_id": "r"}}\n{"run_id": "r", "event_id": 0, "sample_id": "e.dev.0",'
            ' "type": "match", "data": {"correct": true}}',
            "is a log of OpenAI Evals, which irtjax does not read; write its events of",
        ),
        (
            '{"run_id": "r", "event_id": 7, "sample_id": "e.dev.0", "type": "match",'
            ' "data": {"correct": true}, "created_by": "", "created_at": "t"}',
            "item (sample_id) and correct (data.correct)",
        ),
        ('{"final_report": {"accuracy": 0.5}}', "log of OpenAI Evals"),
        (
            '{"object": "list", "data": [{"object": "eval.run.output_item",'
            ' "status": "pass", "datasource_item_id": 5}]}',
            "model (sample.model), item (datasource_item_id) and correct (status)",
        ),
        (
            '{"doc_id": 0, "doc": {}, "acc": 1}\n{"doc": {}}',
            "line 2: no field 'doc_id'; sample logs of",
        ),
        (
            '{"doc_id": 0, "doc": {}, "acc": 1}\n[1]',
            "line 2: it is a list, not an object",
        ),
        ('{"version": 2, "status": "success", "eval": {"task": "t"', "or cut off"),
        ('{"evaluation_id": 1, "sample_id": 2, "evaluation": {}}', "'model_id'"),
        ('{"cut off', "is not valid JSON"),
        ("[1, 2]", "not records with named fields"),
        ('{"ability": [0], "diff": [1], "disc": [1]}', "parameters of a fitted model"),
        ('{"deep": {"er": {}}}', "JSON of no known kind (fields deep); write it as"),
        (
            '{"n": 9, "2PL": {"converged": true, "coef": {}}, "freq": [4, 5]}',
            "is one record with nested fields (n, 2PL, freq), such as the estimates of"
            " a fitted model, and has no responses: give the file of the responses",
        ),
        ('{"model": "m", "item": "q", "score": "?"}', "row 1, column 'score' is '?'"),
    ],
)
def test_bad_json(tmp_path, text, part):
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    message = refused(path)
    assert part in message
    assert "t.jsonl" in message


def test_the_file_of_data_is_named_among_others(tmp_path):
    (tmp_path / "README.md").write_text("# notes")
    (tmp_path / "pyproject.toml").write_text("[tool]\n")
    (tmp_path / "results.json").write_text('{"final_report": {"accuracy": 0.5}}')
    assert "for example results.json is a log of OpenAI Evals" in refused(tmp_path)


def test_configuration_files(tmp_path):
    for name, text, kind in (
        ("a.toml", "[tool]\nx = 1\n", "a configuration file (TOML): give the file"),
        ("b.toml", "x = 1\n", "a configuration file (TOML)"),
        ("c.ini", "[pytest]\n", "a configuration file (INI)"),
        ("d.yaml", "task: x\n", "YAML, as configuration files are: give the file of"),
    ):
        path = tmp_path / name
        path.write_text(text)
        assert f"{name} is {kind}" in refused(path)
    (tmp_path / "r.csv").write_text("model,q1,q2\nm,1,0\nn,0,1\n")
    assert read(tmp_path).num_observed == 4


def test_forced_format_that_does_not_fit(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,q1\nm,1\n")
    for kind in ("inspect", "lm_eval", "every_eval_ever", "py_irt", "parquet", "table"):
        assert "t.csv" in refused(path, format=kind)


def test_folders_of_several_kinds(tmp_path):
    (tmp_path / "a.csv").write_text("model,q1\nm,1\n")
    (tmp_path / "b.jsonl").write_text('{"subject_id": "n", "responses": {"q1": 0}}')
    (tmp_path / "notes.md").write_text("# notes")
    assert "several kinds of files (csv, py_irt): choose" in refused(tmp_path)
    table = read(tmp_path, format="py_irt")
    assert table.subjects.tolist() == ["n"]
    assert any("2 other files" in note for note in table.notes)
    (tmp_path / "a.csv").unlink()
    (tmp_path / "b.jsonl").unlink()
    assert "notes.md is not a data file" in refused(tmp_path)


def test_parameters_of_the_examples_are_refused():
    wide = FIXTURES / "wide"
    assert "fitted parameters (a, b)" in refused(wide / "fluid_irt_model.csv")
    assert "holds battles" in refused(wide / "irw_comp.csv")
    assert "parameters of a fitted" in refused(FIXTURES / "py_irt/best_parameters.json")
