"""Hostile and foreign input: one line that says what is wrong, in bounded memory."""

import gzip
import io
import json
import os
import socket
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irtjax.cli.side_tables import read_content
from irtjax.data import files, read
from irtjax.data.decode import Record, decode, is_nested, json_values
from irtjax.fitting.anchors import read_anchor

FIXTURES = Path(__file__).parent.parent / "fixtures"
DEEP, LONG = "[" * 100_000 + "]" * 100_000, "1" + "0" * 5000
#: JSON values that belong nowhere, as text.
VALUES = (
    *(DEEP, '{"a":' * 100_000 + "1" + "}" * 100_000, LONG, "1" + "0" * 400, "1e400"),
    *("null", "[]", "[[1]]", "{}", '"x"', "-1", "true", "NaN", "-Infinity", '""'),
    *('"\\ud800"', '"a\\u0000b"', '[{"a": null}]', '{"a": [1]}', "0.5"),
)
MARK = '"@@"'


def checked_outcome(source, **options) -> str:
    """The refusal, one line, or "" for a table, which must be finite."""
    start = time.monotonic()
    try:
        table = read(source, **options)
    except ValueError as error:
        message = str(error)
        assert not isinstance(error, UnicodeError), message
        assert "\n" not in message
        assert len(message) < 800
        return message
    finally:
        assert time.monotonic() - start < 20
    assert np.isfinite(table.values).all()
    return ""


def logs() -> list[tuple[str, Any]]:
    """Records of every log with a mark in the place of each field in turn."""
    sample = {
        "doc_id": 0,
        "doc": {},
        "filter": "none",
        "metrics": ["acc"],
        "doc_hash": "h",
        "acc": 1.0,
        "scores_per_repeat": {"acc": [1.0]},
    }
    instance = {
        "evaluation_id": "t/m/17",
        "model_id": "m",
        "evaluation_name": "t",
        "evaluation_result_id": "acc",
        "sample_id": "0",
        "sample_hash": "h",
        "evaluation": {"score": 1.0},
        "error": None,
        "token_usage": {"output_tokens": 3},
    }
    log = {
        "version": 2,
        "status": "success",
        "error": None,
        "eval": {"task": "t", "model": "m", "eval_id": "e", "created": "2026"},
        "samples": [
            {
                "id": "q",
                "epoch": 1,
                "scores": {"s": {"value": 1}},
                "error": None,
                "invalidation": None,
                "model_usage": {"m": {"output_tokens": 3}},
            }
        ],
    }
    found = {
        "lm_eval": sample,
        "every_eval_ever": instance,
        "inspect": log,
        "py_irt": {"subject_id": "m", "responses": {"q": 1, "r": 0}},
        "json": {"model": "m", "item": "q", "score": 1, "trial": 0},
    }
    return [(kind, record) for kind, x in found.items() for record in marked(x)]


def marked(value):
    """Yields a JSON value with a mark in place of each part of it."""
    yield "@@"
    if isinstance(value, dict):
        for key, inner in value.items():
            for part in marked(inner):
                yield {**value, key: part}
    elif isinstance(value, list):
        for part in marked(value[0]):
            yield [part, *value[1:]]


@pytest.mark.parametrize("kind", ["lm_eval", "every_eval_ever", "inspect", "py_irt"])
def test_any_value_in_any_place_of_a_log(tmp_path, kind):
    path = tmp_path / "log.json"
    for format, record in logs():
        if format != kind:
            continue
        for value in VALUES:
            path.write_text(json.dumps(record).replace(MARK, value) + "\n")
            message = checked_outcome(path, format=kind)
            assert not message or str(path) in message


@pytest.mark.parametrize("array", [False, True])
def test_any_value_in_a_table_of_json(tmp_path, array):
    path = tmp_path / "t.json"
    other = json.dumps({"model": "n", "item": "q", "score": 0, "trial": 0})
    for format, record in logs():
        for value in VALUES if format == "json" else ():
            text = json.dumps(record).replace(MARK, value)
            whole = f"[{text},{other}]" if array else f"{text}\n{other}\n"
            path.write_text(whole)
            checked_outcome(path, format="json")
            checked_outcome(path)


def test_messages_name_place_field_and_cure(tmp_path):
    path = tmp_path / "samples_t.jsonl"
    good = {"doc_id": 0, "doc": {}, "filter": "a", "metrics": ["acc"], "acc": 1}
    for change, part in [
        ({"metrics": 3}, "line 2: field 'metrics' is a whole number, not a list or"),
        ({"filter": ["x"]}, "line 2: field 'filter' is a list, not text or null; samp"),
        ({"acc": "MARK"}, "line 2, field 'acc' is a number that is too large"),
    ]:
        text = json.dumps(good | change).replace('"MARK"', "1e999")
        path.write_text(f"{json.dumps(good)}\n{text}\n")
        assert f"{path}: {part}" in checked_outcome(path).replace("acc': it", "acc'")
    inspect = tmp_path / "log.eval"
    with zipfile.ZipFile(inspect, "w") as archive:
        archive.writestr("header.json", "null")
    assert f"{inspect}: header.json: it is null, not an object; an Inspect log has" in (
        checked_outcome(inspect)
    )


def test_json_of_pythons_own_writer_is_read(tmp_path):
    class One(Record):
        id: str
        score: float

    halves = json.dumps({"id": "\ud83d x \\ud800 \U0001f600", "score": float("nan")})
    found = decode(halves.encode(), One, "a")
    assert found.id == "\ufffd x \\ud800 \U0001f600"
    assert np.isnan(found.score)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a":1}\r\n\r\n{"a":2}')
    assert [place for place, _ in json_values(path)] == [
        f"{path}: line 1",
        f"{path}: line 3",
    ]
    assert is_nested(b"x" * (1 << 20) + b"[" * 300)
    assert not is_nested(b"[]{}" * 1000)


def bomb(kind: str) -> bytes:
    """Three million bytes of spaces and more, packed."""
    spaces, out = b" " * 3_000_000, io.BytesIO()
    if kind == "gzip":
        return gzip.compress(b"a,b\n" + spaces)
    packing = zipfile.ZIP_STORED if kind == "zstd" else zipfile.ZIP_DEFLATED
    if kind == "bzip2":
        packing = zipfile.ZIP_BZIP2
    header = {"status": "success", "eval": {"model": "m", "task": "t"}}
    with zipfile.ZipFile(out, "w", packing) as archive:
        archive.writestr("header.json", json.dumps(header))
        member = spaces
        if kind == "zstd":
            zstandard = pytest.importorskip("zstandard")
            member = zstandard.ZstdCompressor().compress(spaces)
        archive.writestr("summaries.json", member)
    if kind != "zstd":
        return out.getvalue()
    data = bytearray(out.getvalue())
    place = data.index(b"PK\3\4", 4)
    struct.pack_into("<H", data, place + 8, 93)
    place = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    struct.pack_into("<H", data, place + 10, 93)
    return bytes(data)


@pytest.mark.parametrize("kind", ["gzip", "deflate", "zstd", "bzip2"])
def test_what_a_file_unpacks_to_is_counted(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(files, "_UNPACKED", 1 << 20)
    path = tmp_path / ("a.csv" if kind == "gzip" else "a.eval")
    path.write_bytes(bomb(kind))
    wanted = "packed in a way" if kind == "bzip2" else "and unpacks to more than 1,04"
    assert wanted in checked_outcome(path)


def test_limits_follow_the_free_memory(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("model,q1\nm,1\n")
    monkeypatch.setattr(files, "available_memory", lambda: 10)
    assert "more than the free memory" in checked_outcome(path)
    monkeypatch.undo()
    assert 1 << 20 < files.available_memory() < 1 << 62


def test_parquet_that_would_fill_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    size = 200_000
    zeros = pa.DictionaryArray.from_arrays(np.zeros(size, np.int8), pa.array(["m"]))
    equal = {"model": zeros, "item": zeros, "score": np.zeros(size, np.int8)}
    pq.write_table(pa.table(equal), path)
    monkeypatch.setattr(files, "_MANY_ROWS", 1000)
    assert "200,000 rows in" in checked_outcome(path)
    monkeypatch.undo()
    monkeypatch.setattr(files, "_UNPACKED", 1 << 20)
    long = pa.table({"model": ["a" * 3_000_000], "item": ["q"], "score": [1]})
    pq.write_table(long, path, compression="zstd")
    assert "unpacks to more than" in checked_outcome(path)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("model," + "q," * 100_001 + "\nm,1\n", "100,003 columns, of at most 100,000"),
        ("m" + ",1" * 200_000, "too many columns, of at most 100,000"),
        (json.dumps({f"q{k}": 1 for k in range(100_001)}), "100,001 fields"),
        (
            "q1,q2,freq\n1,0,1000000000000\n",
            "'freq' repeats its rows 1,000,000,000,000",
        ),
        (
            "model,item,trial,score\nm,q,1e300,1\n",
            "'trial' is 1e+300, which is no whole",
        ),
        ("model,q1,q2\nm" + "x" * 200_000 + ",1,0\n", "no readable table"),
        (
            '{"model": "' + "x" * 2_000_000 + '", "item": "q", "score": 1}',
            "2,000,000 ch",
        ),
        ("model,q1\nm\0,1\n", "a binary file of no known kind"),
        ('"model,q1\nm,1\n', "no columns of responses"),
        ('model,q1,q2\n"m,1,0\nn,0,1\n', "no table of equally long lines"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "not records with named fields"),
        ("[null]", "not records with named fields"),
        ('{"model": "\udcff", "item": "q", "score": 1}', "bytes that are not UTF-8"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, part):
    path = tmp_path / "t.csv"
    path.write_text(text, errors="surrogateescape")
    assert part in checked_outcome(path)


def test_many_names_take_little_memory(tmp_path):
    path = tmp_path / "t.csv"
    rows = (f"m{k},q{k},x{k},1\n" for k in range(20_000))
    path.write_text("model,item,metric,score\n" + "".join(rows))
    assert "several metrics: choose one" in checked_outcome(path)
    rows = (f"m{k % 50},q{k // 50},{k}\n" for k in range(20_000))
    path.write_text("model,item,score\n" + "".join(rows))
    assert checked_outcome(path) == ""


def test_a_table_too_large_for_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("model,item,score\nm,q,1\nn,r,1\n")
    monkeypatch.setattr("irtjax.numerics.memory.available_memory", lambda: 50.0)
    assert "2 subjects by 2 items is too large" in checked_outcome(path)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
        pa.array([[1]] * 4),
        pa.array([{"a": [{"b": 1}]}] * 4),
        pa.array([b"\xff"] * 4),
        pa.array([1, 2, 1, 2]).dictionary_encode(),
        pa.array(["a", None, "b", None]).dictionary_encode(),
        pa.array([2**64 - 1] * 4, pa.uint64()),
        pa.array([1e300] * 4),
        pa.array([float("inf")] * 4),
        pa.array([10] * 4, pa.duration("s")),
        pa.nulls(4),
    ],
    ids=lambda column: str(column.type)[:20],
)
def test_columns_of_every_type(tmp_path, column):
    rows = {"model": [*"mmnn"], "item": [*"pqpq"], "score": [1.0, 0.0, 1.0, 1.0]}
    names = (*rows, "trial", "length", "metric", "benchmark", "filter", "error")
    path, arrow = tmp_path / "t.parquet", tmp_path / "t.arrow"
    tables = [pa.table({**rows, name: column}) for name in names]
    wide = {"model": [*"abcd"], "q1": column, "q2": [1, 0, 1, 0]}
    for table in (*tables, pa.table(wide), pa.table({"q1": column})):
        pq.write_table(table, path)
        with pa.OSFile(str(arrow), "wb") as file:
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        checked_outcome(path)
        checked_outcome(arrow)


def test_metadata_of_other_programs(tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"model": [*"mn"], "q": [1, 0]})
    for text in (*VALUES, "{", '{"index_columns": 5}', '{"index_columns": [[1], 7]}'):
        for key in (b"pandas", b"irtjax.response_table"):
            data = text.encode()
            pq.write_table(table.replace_schema_metadata({key: data}), path)
            message = checked_outcome(path)
            assert (message == "") == (key == b"pandas"), message


def test_what_is_no_file_is_not_opened(tmp_path):
    pipe, place = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
    good = tmp_path / "t.csv"
    good.write_text("model,q1,q2\nm,1,0\nn,0,1\n")
    for options in ({}, {"format": "csv"}, {"format": "inspect"}, {"format": "table"}):
        assert "a pipe, not a file" in checked_outcome(pipe, **options)
        assert "a socket, not a file" in checked_outcome(place, **options)
        assert "a device, not a file" in checked_outcome("/dev/zero", **options)
    assert "a pipe, not a file" in checked_outcome(good, length=str(pipe))
    assert checked_outcome(tmp_path) == ""
    if Path("/proc/kmsg").exists():
        for options in ({}, {"format": "csv"}, {"format": "inspect"}):
            assert checked_outcome("/proc/kmsg", **options)


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"\x28\xb5\x2f\xfd\0", "packed with zstd: unpack it with"),
        (b"SQLite format 3\0", "an SQLite database: export"),
        (b"\x89HDF\r\n", "an HDF5 file"),
        (b"<!DOCTYPE html>\n", "a web page: download the file itself"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"RDX3\nX\n\0", "data saved by R"),
    ],
)
def test_files_of_other_programs_are_named(tmp_path, data, part):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    assert f"{path} is " in checked_outcome(path)
    assert part in checked_outcome(path)


def test_text_of_other_systems(tmp_path):
    path = tmp_path / "t.csv"
    for text in (
        "\ufeffmodel,q1,q2\nm,1,0\nn,0,1\n",
        "model,q1,q2\r\nm,1,0\nn,0,1\r",
        "model,q1,q2\rm,1,0\rn,0,1\r",
        "RDX3,q1,q2\nm,1,0\nn,0,1\n",
    ):
        path.write_bytes(text.encode())
        assert read(path).values.tolist() == [[1, 0], [0, 1]]
    path.write_text("model,q1\nm,1\n", encoding="utf-16-le")
    assert "NUL bytes" in checked_outcome(path, format="csv")


def test_gzip_that_is_altered(tmp_path):
    content = gzip.compress(b"model,q1,q2\nm,1,0\nn,0,1\n")
    path = tmp_path / "t.csv.gz"
    for place in range(len(content)):
        path.write_bytes(content[:place])
        assert checked_outcome(path)
        altered = bytearray(content)
        altered[place] ^= 0xFF
        path.write_bytes(altered)
        checked_outcome(path)


def test_a_matrix_of_lengths_is_no_matrix_of_responses(tmp_path):
    lengths = FIXTURES / "wide" / "lart_cot_length.csv"
    message = checked_outcome(lengths)
    assert f"{lengths} holds response lengths (numbers up to 3,683)" in message
    assert f"length='{lengths}'" in message
    assert read(lengths, format="csv").values.max() == 3683
    table = read(FIXTURES / "wide" / "lart_accuracy.csv", length=lengths)
    assert table.lengths is not None
    other = tmp_path / "t.csv"
    other.write_text(lengths.read_text())
    assert any("pass this file as length=" in note for note in read(other).notes)
    # Percentages, and a benchmark of this name, are scores.
    for name, text in (("tokens.csv", "m,q\na,55\nb,100\n"), ("x.csv", "m,q\na,500\n")):
        (tmp_path / name).write_text(text)
        assert not any("length" in note for note in read(tmp_path / name).notes)


def test_side_files(tmp_path):
    good = {"item": [*"ab"], "intercept": [0.5, 1.0]}
    path = tmp_path / "anchors.parquet"
    for column in (
        pa.array([[1]] * 2),
        pa.array([{"a": 1}] * 2),
        pa.array([10] * 2, pa.date32()),
        pa.array([b"\xff"] * 2),
        pa.array([float("inf")] * 2),
        pa.array(["x"] * 2),
    ):
        for name in good:
            pq.write_table(pa.table({**good, name: column}), path)
            try:
                read_anchor(path)
            except ValueError as error:
                assert str(path) in str(error)
            else:
                assert name == "item"
    bytes_for_text = pa.array([b"\xff"] * 2).view(pa.string())
    pq.write_table(pa.table({**good, "item": bytes_for_text}), path)
    with pytest.raises(ValueError, match=r"anchors.parquet: .*'item' .*not UTF-8"):
        read_anchor(path)
    table = tmp_path / "anchors.csv"
    for content in (b"", b"\xff\xfe", b'"', b"item,intercept\na\n", b"\0" * 9):
        table.write_bytes(content)
        with pytest.raises(ValueError, match="anchors.csv") as caught:
            read_anchor(table)
        assert "\n" not in str(caught.value)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="--item-table .*it is a pipe, not a file"):
        read_content("--item-table", tmp_path / "pipe")
    assert read_content("--item-table", FIXTURES / "wide" / "irw.csv").num_rows > 0
