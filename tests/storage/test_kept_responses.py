"""The responses that a fit keeps in its folder, and what reads them."""

import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.data.sparse_table import SparseCells
from irtjax.storage import load_responses
from tests.small_fits import small_fit, small_table


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="irtjax")


@pytest.fixture
def folder(tmp_path):
    return irtjax.save(
        small_fit(errors=False), tmp_path / "fit", responses=small_table()
    )


def equal(a, b):
    assert a.subjects.tolist() == b.subjects.tolist()
    assert a.items.tolist() == b.items.tolist()
    assert a.data_hash() == b.data_hash()
    assert {k: v.tolist() for k, v in a.item_facets.items()} == {
        k: v.tolist() for k, v in b.item_facets.items()
    }


def test_a_fit_keeps_its_responses(folder):
    equal(load_responses(folder), small_table())
    # The folder is read as these; so is one that has files of other commands in it.
    for part in ("audit", "snapshots"):
        (folder / part).mkdir()
        (folder / part / "items.csv").write_text("item,x\na,1\n")
    equal(irtjax.read(folder), small_table())


def scores(kind):
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2, (4, 6)).astype(float)
    if kind == "halves":
        return {"values": values / 2}
    if kind == "thirds":
        return {"values": values / 3}
    if kind == "missing":
        values[1, 2] = np.nan
        return {"values": values}
    if kind == "counts":
        return {"values": values, "trials": np.full((4, 6), 3)}
    return {"values": values, "lengths": rng.integers(1, 900, (4, 6)) + 0.0}


@pytest.mark.parametrize("kind", ["halves", "thirds", "missing", "counts", "lengths"])
def test_all_kinds_are_kept_without_loss(kind, tmp_path):
    names = [f"q{k}" for k in range(6)]
    made = scores(kind)
    table = irtjax.ResponseTable.from_arrays(**made, items=names, benchmark="aabbcc")
    table.save(tmp_path / "r.parquet")
    again = irtjax.ResponseTable.load(tmp_path / "r.parquet")
    equal(again, table)
    assert again.values.dtype == table.values.dtype
    if kind == "lengths":
        assert again.lengths.tolist() == table.lengths.tolist()
    stored = str(pq.read_schema(tmp_path / "r.parquet").field("values").type)
    small = {"halves": "halffloat", "thirds": "double"}.get(kind, "int8")
    assert small in stored


def test_cells_of_a_sparse_table_are_kept(tmp_path):
    cells = SparseCells.of([0, 0, 1, 2], [1, 4, 2, 0], [1, 0, 1, 1], (3, 5))
    table = irtjax.ResponseTable.from_cells(cells, subjects="abc", items="vwxyz")
    table.save(tmp_path / "r.parquet")
    again = irtjax.ResponseTable.load(tmp_path / "r.parquet")
    assert again.sparse.column.tolist() == cells.column.tolist()


def test_a_table_of_before_is_read(tmp_path):
    """Its facts were in the metadata of the file."""
    table = small_table()
    table.save(tmp_path / "r.parquet")
    content = pq.read_table(tmp_path / "r.parquet")
    facts = json.loads(content.column("facts")[0].as_py()) | {"version": 1}
    mark = {b"irtjax.response_table": json.dumps(facts).encode()}
    old = content.drop_columns("facts").replace_schema_metadata(mark)
    pq.write_table(old, tmp_path / "old.parquet")
    equal(irtjax.ResponseTable.load(tmp_path / "old.parquet"), table)
    equal(irtjax.read(tmp_path / "old.parquet"), table)


def test_many_responses_take_little_space(tmp_path):
    """60 x 5,000 right or wrong responses: a bit each, and names once."""
    right = np.random.default_rng(0).random((60, 5000)) < 0.6
    names = [f"task_{k // 100}/{k}" for k in range(5000)]
    table = irtjax.ResponseTable.from_arrays(right, items=names)
    table.save(tmp_path / "r.parquet")
    # The entropy of the responses is 36 kB, that of 5,000 numbered names below 20 kB.
    assert (tmp_path / "r.parquet").stat().st_size < 300_000 / 4


def test_responses_of_others_are_not_kept(tmp_path):
    fit = small_fit(errors=False)
    with pytest.raises(ValueError, match="item"):
        irtjax.save(fit, tmp_path / "fit", responses=small_table().select(items=[0, 1]))
    assert not (tmp_path / "fit").exists()


def test_commands_take_what_the_fit_keeps(folder, tmp_path):
    first, second = small_fit(errors=False).subject_names[:2].tolist()
    alone = irtjax.save(small_fit(errors=False), tmp_path / "alone")
    few = small_table()
    few.save(tmp_path / "r.parquet")
    kept = run("compare", first, second, "--fit", folder, "--json")
    named = (tmp_path / "r.parquet",)
    given = run("compare", first, second, "--fit", alone, *named, "--json")
    assert json.loads(kept.stdout) == json.loads(given.stdout)
    assert json.loads(kept.stdout)["shared"] is not None
    bare = run("compare", first, second, "--fit", alone, "--json")
    assert json.loads(bare.stdout)["shared"] is None
    # The folder is the fit and the responses.
    for words in (("audit", folder), ("audit", "--fit", folder)):
        found = json.loads(run(*words, "--json").stdout)
        assert len(found["items"]) == few.num_items
    for words in (("audit", alone), ("audit", "--fit", alone)):
        refused = run(*words)
        assert refused.exit_code == 2
        assert "does not keep its responses: name the files" in refused.stderr
    assert run("audit").stderr.startswith("irtjax: name FILE...")


@pytest.mark.parametrize("damage", ["cut", "other", "gone"])
def test_responses_that_were_changed_are_refused(folder, damage, tmp_path):
    path = folder / "responses.parquet"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    elif damage == "other":
        small_table().select(subjects=[1, 0]).save(path)
    else:
        os.remove(path)
        with pytest.raises(ValueError, match="does not keep its responses"):
            load_responses(folder)
        assert irtjax.load(folder).subject_names.size  # Private data may be deleted.
        return
    for call in (irtjax.load, load_responses):
        with pytest.raises(ValueError, match=r"responses\.parquet was changed after"):
            call(folder)
    with pytest.raises(
        ValueError, match=r"responses\.parquet (is damaged|was changed)"
    ):
        irtjax.read(folder)


def write_csv(path, names, values, system="system"):
    rows = [
        f"{name},q{k},{int(right)},{int(1 - right)}"
        for name, line in zip(names, values, strict=True)
        for k, right in enumerate(line)
    ]
    path.write_text("\n".join([f"{system},question,right,wrong", *rows]) + "\n")
    return path


def test_new_responses_are_read_as_those_of_the_fit(tmp_path):
    right = np.random.default_rng(3).random((9, 12)) < 0.6
    old = write_csv(tmp_path / "old.csv", [f"m{k}" for k in range(8)], right[:8])
    new = write_csv(tmp_path / "new.csv", ["m8"], right[8:])
    names = ["--subject", "system", "--item", "question", "--response", "right"]
    out = tmp_path / "fit"
    more = ("--model", "rasch", "--no-figures", "--out", out)
    made = run("fit", old, *names, *more)
    assert made.exit_code == 0, made.stderr
    found = json.loads(run("score", new, "--fit", out, "--json").stdout)
    (row,) = found["subjects"]
    assert row["accuracy"] == pytest.approx(right[8].mean())
    scored = irtjax.score(irtjax.load(out), new)
    assert scored.table.column("ability")[0].as_py() == row["ability"]
    # What is typed wins, and a message states what was not.
    other = json.loads(
        run("score", new, "--fit", out, "--response", "wrong", "--json").stdout
    )
    (turned,) = other["subjects"]
    assert turned["accuracy"] == pytest.approx(1 - right[8].mean())
    bad = write_csv(tmp_path / "bad.csv", ["m9"], right[8:], system="network")
    refused = run("score", bad, "--fit", out)
    assert refused.exit_code == 2 and refused.stderr.count("\n") == 1
    assert "read with the options of the fit, --subject system" in refused.stderr
    cured = run("score", bad, "--fit", out, "--subject", "network")
    assert cured.exit_code == 0, cured.stderr


def test_responses_may_be_left_out(tmp_path):
    right = np.random.default_rng(3).random((8, 12)) < 0.6
    path = tmp_path / "r.parquet"
    irtjax.ResponseTable.from_arrays(right).save(path)
    out = tmp_path / "fit"
    more = ("--model", "rasch", "--no-figures", "--no-responses")
    made = run("fit", path, "--out", out, *more)
    assert made.exit_code == 0, made.stderr
    assert not (out / "responses.parquet").exists()


def test_a_folder_with_logs_and_a_fit_is_read_as_the_logs(tmp_path):
    right = np.random.default_rng(3).random((8, 12)) < 0.6
    names = [f"m{k}" for k in range(8)]
    write_csv(tmp_path / "results.csv", names, right)
    small = irtjax.read(tmp_path, subject="system", item="question", response="right")
    fit = small_fit(errors=False)
    irtjax.save(fit, tmp_path, overwrite=True, responses=small_table())
    options = {"subject": "system", "item": "question", "response": "right"}
    equal(irtjax.read(tmp_path, **options), small)
