"""Damaged files of every kind give a table or one clear line, nothing else."""

import random
from pathlib import Path

import numpy as np
import pytest

from irtjax.data import ResponseTable, read

FIXTURES = Path(__file__).parent.parent / "fixtures"
FILES = sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.is_file() and path.suffix not in ("", ".md", ".txt")
)
INSERTS = [b'"', b",", b"\n", b"{", b"}", b"[", b"]", b"null", b"NaN", b"1e999"]
INSERTS += [b"\0", b"\xff", b"-", b"{}", b"[]", b"true", b"\r", b"\t", b"9" * 30]


def damage(content: bytes, rng: random.Random) -> bytes:
    """Cuts, drops, inserts or flips a few bytes."""
    out = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        place, kind = rng.randrange(len(out) + 1), rng.randrange(4)
        if kind == 0:
            del out[place : place + rng.randint(1, 30)]
        elif kind == 1:
            out[place : place + rng.randint(0, 8)] = rng.choice(INSERTS)
        elif kind == 2:
            out = out[:place]
        elif place < len(out):
            out[place] ^= 1 << rng.randrange(8)
    return bytes(out)


#: Without choices, and with those of logs that have several metrics and trials.
CHOICES = (
    {},
    {"metric": ["acc", "exact_match", "inst_level_strict_acc"], "trials": "mean"},
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[-30:])
def test_damaged_files(tmp_path, path):
    rng = random.Random(path.name)
    target = tmp_path / path.name
    for k in range(16):
        target.write_bytes(damage(path.read_bytes(), rng))
        try:
            table = read(target, **CHOICES[k % 2])
        except ValueError as error:
            assert "\n" not in str(error)
            assert not isinstance(error, UnicodeError)
        else:
            assert np.isfinite(table.values).all()


@pytest.mark.parametrize("ending", [".json", ".parquet"])
def test_damaged_saved_tables(tmp_path, ending):
    rng = random.Random(0)
    path = tmp_path / f"t{ending}"
    whole = ResponseTable.from_arrays([[1, 0, np.nan], [0, 1, 1]], benchmark=[*"aab"])
    content = whole.save(path).read_bytes()
    for _ in range(100):
        path.write_bytes(damage(content, rng))
        try:
            table = ResponseTable.load(path)
        except ValueError as error:
            assert "is not a saved response table" in str(error)
            assert "\n" not in str(error)
        else:
            assert np.isfinite(table.values).all()
