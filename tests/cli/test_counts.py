"""One of something is singular in what commands print."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax._types import Status
from irtjax.cli.app import app
from irtjax.data.wording import are, counted, have, were
from irtjax.validity import starts
from irtjax.validity.discrimination_path import DiscriminationPath

#: "1 items", "1 subjects have", "1 other files": not "of 1", "item 1" or a decimal.
PLURAL = re.compile(
    r"(?<![\d.,] )(?<![\w.,=])1 (?!of )(?:(?!of )[a-z-]+ ){0,2}?"
    r"(?:items|subjects|responses|files|pairs|cells|scores|tasks|records|ids|rows"
    r"|benchmarks|attempts|judgements|samples|others|iterations|groups)\b"
)
TABLES = {
    "one.csv": "model,item,score\nm,q1,1\n",
    "gap.csv": "model,item,score\nm,q1,1\nm,q2,N\nn,q1,0\nn,q2,1\n",
    "twice.csv": "model,item,trial,score\nm,q1,1,1\nm,q1,2,1\nn,q1,1,0\n",
    "error.csv": "model,item,score,error\nm,q1,1,\nm,q2,0,timeout\nn,q1,0,\nn,q2,1,\n",
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("missing", ["missing", "wrong"])
def test_notes_on_one_of_something(tmp_path, name, missing):
    (tmp_path / name).write_text(TABLES[name])
    (tmp_path / "notes.json").write_text('{"a": {}}')  # One other file.
    options = ["--trials", "mean", "--missing-as", missing]
    found = CliRunner().invoke(app, ["info", str(tmp_path), *options])
    assert found.exit_code == 0, found.output
    text = " ".join(found.output.split())
    text = text[text.index("note: ") :]  # Before it are tables, with counts alone.
    assert "1 other file in" in text
    assert not PLURAL.search(text), text
    assert not re.search(r"\b1 [a-z-]+ (?:are|were|have)\b", text), text


def test_a_summary_of_one_item():
    table = irtjax.ResponseTable.from_arrays([[1], [0], [1]])
    text = str(table)
    assert "3 subjects · 1 item · 3 binary responses" in text
    assert not PLURAL.search(text), text


def test_sentences_on_one_run_and_one_item():
    runs = SimpleNamespace(status=np.array([Status.MAX_STEPS, Status.CONVERGED]))
    first = np.array([True, False])
    for turned in (first, ~first):  # The first run is reversed, or ends lower.
        found = starts._warnings(runs, ~first, turned & first, np.array([3.0, 0.0]))
        text = found[0]
        assert text.startswith(("1 of 2 runs is reversed", "1 of 2 runs ends below"))
    path = dict.fromkeys([x.name for x in dataclasses.fields(DiscriminationPath)])
    path |= {"selected": first, "items": np.array(["a", "b"]), "level": 0.05}
    expected = "1 of 2 items discriminates at level 0.05; 1 has a discrimination of 0"
    assert DiscriminationPath(**path).sentence == expected


def test_verbs():
    words = [(counted(k, "gap"), are(k), were(k), have(k)) for k in (1, 2)]
    assert words == [
        ("1 gap", "is", "was", "has"),
        ("2 gaps", "are", "were", "have"),
    ]
