"""Alters files of every format, by what their parts mean and byte by byte.

`mutations(seed)` has for each format the whole files and a function that alters one.
The same seed and number give the same file.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
Random = random.Random
#: Text in place of a JSON value.
JSON_VALUES = (
    *("null", "true", "false", "0", "-1", "0.5", "2", "1e308", "1e400", "-0.0", "NaN"),
    *("Infinity", "-Infinity", "1" + "0" * 400, "1" + "0" * 5000, "[]", "{}", "[null]"),
    *('""', '"x"', '"1"', '"C"', '"\\ud800"', '"a\\u0000b"', '"\\u202e"', "[[1, 0]]"),
    *('{"a": 1}', '{"value": null}', "[1, 0]", "[true, null]", '{"": {"": []}}'),
    *(
        "[" * 3000 + "]" * 3000,
        '{"a":' * 3000 + "1" + "}" * 3000,
        '"' + "y" * 9000 + '"',
    ),
    *("[" * 100_000 + "]" * 100_000, "9" * 25, '"2026-01-01T00:00:00"'),
)
#: Text in place of a cell.
CELLS = (
    *("", "NA", "nan", "inf", "-inf", "1e400", "1e308", "-1", "0.5", "2", "100", "x"),
    *('"', "=1+1", "\0", "9" * 400, "1" + "0" * 30, "true", "C", "N", "a,b", "\ufeff"),
    *("'", "\u202e", "1;0", "1\t0", "y" * 9000, " 1 ", "1_000", "٣", "²", "0x1", "."),
)
NAMES = (
    *("model", "item", "subject", "correct", "score", "trial", "epoch", "metric", "id"),
    *("length", "benchmark", "filter", "error", "freq", "a", "b", "", " ", "model_a"),
    *(
        "passed",
        "score_x",
        "item_family",
        "__index_level_0__",
        "q\n",
        "\ud7ff",
        "subject",
    ),
)
_PIECES = b'" , \n { } [ ] null NaN 1e999 \0 \xff - {} [] true \r \t \\ \xef\xbb\xbf'
INSERTS = (*_PIECES.split(b" "), b"9" * 30, b"\n\n", b"PK\3\4", b"PAR1")


def damage(content: bytes, rng: Random) -> bytes:
    """Cuts, drops, inserts, copies or flips a few bytes."""
    out = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        place, kind = rng.randrange(len(out) + 1), rng.randrange(5)
        if kind == 0:
            del out[place : place + rng.randint(1, 30)]
        elif kind == 1:
            out[place : place + rng.randint(0, 8)] = rng.choice(INSERTS)
        elif kind == 2 and rng.random() < 0.3:
            out = out[:place]
        elif kind == 3:
            out[place:place] = out[place : place + rng.randint(1, 200)]
        elif place < len(out):
            out[place] ^= 1 << rng.randrange(8)
    return bytes(out)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to all parts of a JSON value."""
    found = [path]
    if isinstance(value, dict):
        parts: Any = value.items()
    else:
        parts = enumerate(value) if isinstance(value, list) else ()
    for key, inner in parts:
        found += places(inner, (*path, key))
    return found


def alter_value(value: Any, rng: Random, raw: dict[str, str]) -> Any:
    """A JSON value with one part replaced, dropped, renamed, copied or wrapped.

    What JSON cannot write is a mark, with its text in `raw`.
    """
    mark = f"@@{len(raw)}@@"
    raw[f'"{mark}"'] = rng.choice(JSON_VALUES)
    path = rng.choice(places(value))
    if not path:
        return rng.choice([mark, [value], [value, mark], {"a": value}, value])
    value = json.loads(json.dumps(value))
    holder = value
    for step in path[:-1]:
        holder = holder[step]
    key, kind = path[-1], rng.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = rng.choice(
            [[holder[key]], {"value": holder[key]}, str(holder[key])]
        )
    elif kind == 2 and isinstance(holder, dict):
        holder[rng.choice([*NAMES, *holder])] = holder.pop(key)
    elif kind == 3 and isinstance(holder, list):
        holder += [holder[key]] * rng.choice([1, 50])
    else:
        holder[key] = mark
    return value


def alter_json(content: bytes, rng: Random) -> bytes:
    """JSON, or lines of it, with one to three parts altered, then perhaps bytes."""
    try:
        values, end = _parsed(content.decode())
    except (ValueError, RecursionError):
        return damage(content, rng)  # Altered before.
    if not values:
        return content
    raw: dict[str, str] = {}
    for _ in range(rng.randint(1, 3)):
        k = rng.randrange(len(values))
        values[k] = alter_value(values[k], rng, raw)
    if end and rng.random() < 0.1:
        values = rng.choice([values[::-1], values * 2, values[:1], [values]])
    ends = (end or "\n",) if rng.random() < 0.9 else ("\r\n", "\r", " ", "\n\n", "")
    out = rng.choice(ends).join(json.dumps(v, indent=None) for v in values)
    for mark, found in raw.items():
        out = out.replace(mark, found)
    if rng.random() < 0.05 and out.startswith("{"):
        out = '{"model": 1, ' + out[1:]  # A key twice.
    return finish(out.encode("utf-8", "surrogatepass"), rng)


def _parsed(text: str) -> tuple[list[Any], str]:
    """The values of a text, and what ends each."""
    try:
        return [json.loads(text)], ""
    except json.JSONDecodeError:
        return [json.loads(x) for x in text.splitlines() if x.strip()], "\n"


def finish(data: bytes, rng: Random) -> bytes:
    """Packs, encodes or damages some of the altered texts."""
    kind = rng.randrange(20)
    if kind == 0:
        return gzip.compress(data)
    if kind == 1:
        return damage(gzip.compress(data), rng)
    if kind == 2:
        return b"\xef\xbb\xbf" + data
    if kind == 3:
        return data.decode("utf-8", "replace").encode("utf-16")
    if kind <= 7:
        return damage(data, rng) if data else data
    return data


def alter_csv(content: bytes, rng: Random) -> bytes:
    """A table with cells, rows, columns, names or its form altered."""
    text = content.decode("utf-8-sig")
    rows = list(csv.reader(io.StringIO(text))) or [[""]]
    for _ in range(rng.randint(1, 3)):
        k, kind = rng.randrange(len(rows)), rng.randrange(9)
        row = rows[k] = rows[k] or [""]
        j = rng.randrange(len(row))
        if kind <= 2:
            row[j] = rng.choice(CELLS)
        elif kind == 3:
            rows[0][rng.randrange(len(rows[0]) or 1) :][:1] = [rng.choice(NAMES)]
            rows[0] = [*rows[0][:j], rng.choice(NAMES), *rows[0][j + 1 :]]
        elif kind == 4:
            rows = [r[:j] + r[j + 1 :] for r in rows]
        elif kind == 5:
            rows = [[*r, r[j] if j < len(r) else ""] for r in rows]
        elif kind == 6:
            rows[k : k + 1] = rng.choice([[], [row, row], [row[:-1]], [[*row, "1"]]])
        elif kind == 7:
            rows += [row] * rng.choice([1, 300])
        else:
            rows = [list(r) for r in zip(*rows, strict=False)] or [[""]]
        rows = rows or [[""]]
    out = io.StringIO()
    style: dict[str, Any] = {"lineterminator": rng.choice("\n \r\n \r".split(" "))}
    quoting: Any = rng.choice([csv.QUOTE_MINIMAL] * 4 + [csv.QUOTE_ALL])
    writer = csv.writer(out, delimiter=rng.choice(",,,,\t;"), quoting=quoting, **style)
    writer.writerows(rows)
    return finish(out.getvalue().encode("utf-8", "surrogatepass"), rng)


def columns(size: int, rng: Random) -> pa.Array:
    """A column of some type that a reader may not expect."""
    makers: list[Callable[[], Any]] = [
        lambda: pa.array([[("a", 1)]] * size, pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([[1, 0]] * size),
        lambda: pa.array([{"a": [{"b": None}]}] * size),
        lambda: pa.nulls(size),
        lambda: pa.array([b"\xff"] * size),
        lambda: pa.array([rng.choice([1e300, np.inf, np.nan, -1.0])] * size),
        lambda: pa.array(rng.choices([0, 1, 2**62, -(2**62)], k=size)),
        lambda: pa.array([2**64 - 1] * size, pa.uint64()),
        lambda: pa.array([1] * size, pa.duration("s")),
        lambda: pa.array([1] * size, pa.date32()),
        lambda: pa.array(rng.choices([True, False, None], k=size)),
        lambda: pa.array(rng.choices(CELLS, k=size)),
        lambda: pa.array(rng.choices(["a", None], k=size)).dictionary_encode(),
        lambda: pa.array(rng.choices([1, 2], k=size)).dictionary_encode(),
        lambda: pa.array(np.ones(size, np.float16)),
        lambda: pa.array([str(k) for k in range(size)], pa.large_string()),
        lambda: pa.array([1] * size).cast(pa.decimal128(30, 2)),
    ]
    return rng.choice(makers)()


def alter_arrow(content: bytes, rng: Random) -> bytes:
    """A table with columns, names or metadata altered, as Parquet or Arrow."""
    table = pq.read_table(io.BytesIO(content))
    for _ in range(rng.randint(1, 3)):
        size, kind = table.num_rows, rng.randrange(6)
        names = table.column_names
        k = rng.randrange(len(names)) if names else 0
        if kind <= 1 and names:
            table = table.set_column(k, names[k], columns(size, rng))
        elif kind == 2:
            table = table.append_column(rng.choice(NAMES), columns(size, rng))
        elif kind == 3 and names:
            table = table.rename_columns(
                [*names[:k], rng.choice(NAMES), *names[k + 1 :]]
            )
        elif kind == 4 and names:
            table = rng.choice(
                [table.remove_column(k), table.slice(1), pa.concat_tables([table] * 2)]
            )
        else:
            meta = dict(table.schema.metadata or {})
            for key in [*meta] or [b"pandas"]:
                text = meta.get(key, b'{"index_columns": ["model"]}')
                meta[key] = b"\xff"
                # It may be no JSON after an earlier round.
                if text[:1] == b"{" and rng.random() < 0.8:
                    with contextlib.suppress(ValueError, RecursionError):
                        meta[key] = alter_json(text, rng)
            table = table.replace_schema_metadata(meta)
    out = io.BytesIO()
    try:
        if rng.random() < 0.2:
            with pa.ipc.new_file(out, table.schema) as writer:
                writer.write_table(table)
        else:
            pq.write_table(
                table, out, compression=rng.choice(["zstd", "none", "snappy"])
            )
    except (pa.ArrowException, ValueError):
        return damage(content, rng)
    return damage(out.getvalue(), rng) if rng.random() < 0.2 else out.getvalue()


def members_of(content: bytes) -> dict[str, bytes]:
    """Members of a zip archive, those that Inspect packs with zstandard too."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for info in archive.infolist():
            try:
                found[info.filename] = archive.read(info)
            except NotImplementedError:
                import zstandard

                start = info.header_offset
                sizes = struct.unpack("<HH", content[start + 26 : start + 30])
                raw = content[start + 30 + sum(sizes) :][: info.compress_size]
                unpack = zstandard.ZstdDecompressor().decompressobj()
                found[info.filename] = unpack.decompress(raw)
    return found


def alter_zip(content: bytes, rng: Random) -> bytes:
    """An archive with members altered, renamed, dropped or packed in another way."""
    if rng.random() < 0.3:
        return damage(content, rng)
    found = members_of(content)
    for _ in range(rng.randint(1, 2)):
        name, kind = rng.choice([*found]), rng.randrange(8)
        data = found.get(name, b"{}")
        if kind == 0 and len(found) > 1:
            del found[name]
        elif kind == 1:
            other = rng.choice(
                ["summaries.json", "header.json", "samples/q_epoch_1.json"]
            )
            found[other] = data
        elif kind == 2:
            found[name] = damage(data, rng)
        elif data[:1] in (b"{", b"["):
            found[name] = alter_json(data, rng)
        else:
            found[name] = damage(data, rng)
    out = io.BytesIO()
    packings = [zipfile.ZIP_DEFLATED] * 6 + [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2]
    with zipfile.ZipFile(out, "w", rng.choice(packings)) as archive:
        for name, data in found.items():
            archive.writestr(name, data)
    return out.getvalue()


def alter_npz(content: bytes, rng: Random) -> bytes:
    """Arrays with another shape, type or values, or none."""
    if rng.random() < 0.2:
        return alter_zip(content, rng)
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    name, kind = rng.choice([*arrays]), rng.randrange(8)
    array = arrays[name]
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[name] = array[..., :-1] if array.ndim else array[None]
    elif kind == 2:
        arrays[name] = (
            array.astype(str) if array.dtype.kind != "U" else np.arange(array.size)
        )
    elif kind == 3:
        arrays[name] = np.full(array.shape, rng.choice([np.nan, np.inf, -1e300, 0.0]))
    elif kind == 4:
        arrays[name] = np.zeros(0)
    elif kind == 5:
        arrays[rng.choice([*arrays, "theta", "structure.groups", "factors.names"])] = (
            array
        )
    elif kind == 6:
        arrays[name] = (
            np.array([object()] * 2) if rng.random() < 0.5 else array[..., None]
        )
    else:
        arrays[name] = np.repeat(array[None], 3, 0)
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def alter(name: str, content: bytes, rng: Random) -> bytes:
    """Alters a file by what it is."""
    if rng.random() < 0.1:
        return damage(content, rng)
    if content[:4] == b"PAR1":
        return alter_arrow(content, rng)
    if content[:2] == b"PK":
        return (alter_npz if name.endswith(".npz") else alter_zip)(content, rng)
    if content.lstrip()[:1] in (b"{", b"["):
        return alter_json(content, rng)
    return alter_csv(content, rng)


#: Formats whose files are read with others in their folders.
_FOLDERS = {
    "HELM": ["helm"],
    "lighteval": ["lighteval", "lighteval_old", "open_llm_v1"],
    "OpenCompass": ["opencompass"],
    "EvalPlus": ["evalplus"],
    "LiveCodeBench": ["livecodebench"],
    "SWE-bench": ["swe_bench", "swe_bench_board"],
    "tau-bench": ["tau_bench", "tau2_bench"],
    "AlpacaEval": ["alpaca_eval"],
    "AI Measurement Data Bank": ["measurement_db"],
    "arena battles": ["arena"],
    "efficient-lm-eval": ["efficient_lm_eval"],
}


def seeds() -> dict[str, list[Path]]:
    """Whole files or folders by format."""
    found = {
        "lm-eval": sorted(FIXTURES.glob("lm_eval*/**/*.jsonl")),
        "Inspect archive": sorted(FIXTURES.glob("inspect/*.eval")),
        "Inspect JSON": sorted(FIXTURES.glob("inspect/*.json")),
        "Every Eval Ever": sorted(FIXTURES.glob("eee*/**/*.jsonl")),
        "py-irt": sorted(FIXTURES.glob("py_irt/*")),
        "CSV": sorted(FIXTURES.glob("wide/*.csv")),
        "Parquet and Arrow": sorted(FIXTURES.glob("wide/*.parquet")),
        "lighteval": sorted(FIXTURES.glob("lighteval*/**/*.parquet")),
        "OpenCompass": sorted(FIXTURES.glob("opencompass/**/results/**/*.json")),
        "EvalPlus": sorted(FIXTURES.glob("evalplus/*.json")),
        "LiveCodeBench": sorted(FIXTURES.glob("livecodebench/**/*_eval_all.json")),
        "SWE-bench": sorted(FIXTURES.glob("swe_bench*/**/*.json")),
        "tau-bench": sorted(FIXTURES.glob("tau*_bench/**/*.json")),
        "AlpacaEval": sorted(FIXTURES.glob("alpaca_eval/**/annotations.json")),
        "Measurement Data Bank": sorted(FIXTURES.glob("measurement_db/*/*.parquet")),
    }
    for name, folders in _FOLDERS.items():
        found[name] = [FIXTURES / folder for folder in folders]
    return found


def write_more(folder: Path) -> dict[str, list[Path]]:
    """Writes whole files of the formats that irtjax writes, and flat JSON."""
    import irtjax

    table = irtjax.read(FIXTURES / "wide" / "tidy.csv")
    rows = [
        {"model": m, "item": f"q{k}", "correct": k % 2, "trial": 0, "tokens": 3 * k}
        for m in "abc"
        for k in range(5)
    ]
    lines = folder / "rows.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    array = folder / "rows.json"
    array.write_text(json.dumps(rows))
    return {
        "flat JSON": [lines, array],
        "saved table, JSON": [table.save(folder / "table.json")],
        "saved table, Parquet": [table.save(folder / "table.parquet")],
    }
