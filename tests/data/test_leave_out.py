"""Subjects can be left out when responses are read."""

import io
import re
import shutil
from pathlib import Path

import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.cli.errors import as_options
from irtjax.data.reading.leave_out import without
from tests.small_fits import small_fit

LONG = """model,item,correct
base,q1,1
base,q2,0
base-4bit,q1,1
base-4bit,q3,1
other [a],q1,0
other [a],q2,1
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(LONG)
    return path


@pytest.mark.parametrize(
    "names, left, items",
    [
        ("base", ["base-4bit", "other [a]"], ["q1", "q2", "q3"]),
        (["*-4bit"], ["base", "other [a]"], ["q1", "q2"]),
        (["other [a]"], ["base", "base-4bit"], ["q1", "q2", "q3"]),
        (["base*"], ["other [a]"], ["q1", "q2"]),
    ],
)
def test_by_name_and_pattern(file, names, left, items):
    table = irtjax.read(file, leave_out=names)
    assert table.subjects.tolist() == left
    assert table.items.tolist() == items
    assert sum("left out" in note for note in table.notes) == 1


def test_says_which_items_go_with_them(file):
    note = irtjax.read(file, leave_out="*-4bit").notes
    assert "1 subject left out: base-4bit; with them 1 item that only they met" in note


def test_refuses_names_of_nobody(file):
    with pytest.raises(ValueError, match="names no subject: 'bass': did you mean ba"):
        irtjax.read(file, leave_out="bass")
    with pytest.raises(ValueError, match="leaves no subject"):
        irtjax.read(file, leave_out="*")


def test_an_empty_list_leaves_nobody_out(file):
    table = irtjax.read(file, leave_out=[])
    assert table.num_subjects == 3
    assert not any("left out" in note for note in table.notes)


@pytest.mark.parametrize("names", [3, [3], ["base", 3]])
def test_refuses_what_is_no_text(file, names):
    with pytest.raises(ValueError, match="leave_out= takes .* as text: write '3', not"):
        irtjax.read(file, leave_out=names)


def test_on_the_command_line(file):
    found = CliRunner().invoke(app, ["info", str(file), "--leave-out", "*-4bit"])
    assert found.exit_code == 0, found.output
    assert "1 subject left out: base-4bit" in found.output
    with pytest.raises(ValueError) as refusal:
        irtjax.read(file, leave_out="nobody")
    said = as_options(str(refusal.value))
    assert said == "--leave-out names no subject: 'nobody'"


#: Of each format of logs that names their subject: a log, its subject, and what is
#: damaged in it; without that the second half is lost.
FIXTURES = Path(__file__).parents[1] / "fixtures"
DAMAGED = {
    "evalplus": ("toyorg--toy-1b*.json", "toyorg/toy-1b", '"base_status": '),
    "helm": ("**/*toy-1b/per_instance_stats.json", "toyorg/toy-1b", '"mean": '),
    "inspect": ("new.json", "toyorg/toy-9b", ""),
    "livecodebench": ("**/toy-1b/*_eval_all.json", "toy-1b", '"graded_list": '),
    "lm_eval": ("toyorg__toy-9b/samples_gsm8k_*.jsonl", "toyorg/toy-9b", '"doc_id": '),
    "opencompass": ("**/results/toy-1b/gsm8k.json", "toy-1b", '"correct": '),
    "tau_bench": ("retail/*-toy-1b-*.json", "toy-1b", '"reward": '),
    "tau2_bench": ("toy-1b_airline.json", "toyorg/toy-1b", '"reward": '),
}


def other_model(folder, format):
    """Adds a log of another model, where the fixture has one, and its files once."""
    if format == "lm_eval":
        for path in (folder / "toyorg__toy-1b").glob("*_aime_*"):
            path.unlink()
        shutil.copytree(folder / "toyorg__toy-1b", folder / "toyorg__toy-9b")
        for path in (folder / "toyorg__toy-9b").glob("results*"):
            path.unlink()
    if format == "inspect":
        for path in folder.glob("*.eval"):
            path.unlink()
        (log,) = folder.glob("*.json")
        text = log.read_text().replace("toy-1b", "toy-9b").replace("EvToy1", "EvToy9")
        (folder / "new.json").write_text(text)


@pytest.mark.parametrize("format", DAMAGED)
def test_a_damaged_log_of_such_a_subject_is_not_read(tmp_path, format):
    folder = shutil.copytree(FIXTURES / format, tmp_path / format)
    other_model(folder, format)
    name, subject, damage = DAMAGED[format]
    options = {"trials": "mean"}
    (path,) = folder.glob(name)
    whole, content = irtjax.read(folder, **options), path.read_bytes()
    assert subject in whole.subjects
    if damage == "PAR1":
        path.write_bytes(content[:4] + bytes(len(content) // 2) + content[-600:])
    elif damage:
        path.write_bytes(
            content.replace(damage.encode(), f'{damage}{{}}, "no": '.encode())
        )
    else:
        path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=re.escape(path.name)):
        irtjax.read(folder, **options)
    table = irtjax.read(folder, leave_out=subject, **options)
    others = whole.subjects[whole.subjects != subject]
    assert table.subjects.tolist() == others.tolist() and len(others)
    assert f"1 subject left out: {subject}" in table.notes
    assert str(path) not in table.sources and str(path) in whole.sources
    with pytest.raises(ValueError, match="names no subject: 'nobody'"):
        irtjax.read(folder, leave_out=[subject, "nobody"], **options)


def test_repeats_of_such_a_subject_are_not_refused(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(LONG + "base-4bit,q1,0\nbase-4bit,q4,1\n")
    with pytest.raises(ValueError, match="has 2 responses"):
        irtjax.read(path, trials="error")
    table = irtjax.read(path, leave_out="*-4bit", trials="error")
    assert table.subjects.tolist() == ["base", "other [a]"]
    assert table.items.tolist() == ["q1", "q2"]
    assert any("with them 2 items" in note for note in table.notes)
    # Nor are two tables that both have it.
    other = tmp_path / "other.csv"
    other.write_text("model,item,correct\nbase-4bit,q1,0\nthird,q1,1\n")
    with pytest.raises(ValueError):
        irtjax.read([irtjax.read(path, trials="mean"), irtjax.read(other)])
    table = irtjax.read(
        [irtjax.read(path, trials="mean"), irtjax.read(other)], leave_out="*-4bit"
    )
    assert table.subjects.tolist() == ["base", "other [a]", "third"]


def test_items_that_only_such_a_subject_met_are_left_out(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(LONG + "base,q4,\nbase-4bit,q4,1\n")
    assert "q4" in irtjax.read(path, trials="mean").items
    table = irtjax.read(path, leave_out="*-4bit")
    assert table.items.tolist() == ["q1", "q2"]
    assert any("with them 2 items" in note for note in table.notes)


def test_a_subject_whose_log_was_not_read_is_always_named():
    table = irtjax.ResponseTable.from_arrays([[1, 0], [1, 1]], subjects=["a[b]", "c"])
    # "a[b]" is the name of a subject of the table, and a pattern for that of the log.
    _, (left,), (note,) = without(None, [table], "a[b]", ["ab"])
    assert left.subjects.tolist() == ["c"]
    assert note == "2 subjects left out: ab, a[b]"


#: Of each format: a log, and its subject.
CUT = {
    "evalplus": ("toyorg--toy-1b*.json", "toyorg/toy-1b"),
    "opencompass": ("**/results/toy-1b/gsm8k.json", "toy-1b"),
    "tau_bench": ("retail/*-toy-1b-*.json", "toy-1b"),
    "tau2_bench": ("toy-1b_airline.json", "toyorg/toy-1b"),
}


@pytest.mark.parametrize("format", CUT)
def test_a_log_that_is_cut_off_is_named(tmp_path, format):
    folder = shutil.copytree(FIXTURES / format, tmp_path / format)
    name, subject = CUT[format]
    (path,) = folder.glob(name)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="cut off at line") as refusal:
        irtjax.read(folder, trials="mean")
    assert str(refusal.value).startswith(f"{path}: ")
    assert "\n" not in str(refusal.value)
    if format != "tau2_bench":  # Whose subject is inside the file.
        table = irtjax.read(folder, trials="mean", leave_out=subject)
        assert subject not in table.subjects and table.num_subjects
        assert f"1 subject left out: {subject}" in table.notes


def test_is_of_responses_not_of_a_fit(tmp_path):
    irtjax.save(small_fit(errors=False), tmp_path / "fit")
    for option in (["--leave-out", "a"], ["--metric", "acc"]):
        found = CliRunner().invoke(app, ["info", str(tmp_path / "fit"), *option])
        assert found.exit_code == 2
        assert f"{option[0]} is for responses, and" in found.stderr


CELLS = {
    "long": "model,item,correct\na,q1,1\na,q2,0\nb,q1,0\nb,q2,1\nbad,q1,<er\nbad,,1\n",
    "infinite": "model,item,correct\na,q1,1\na,q2,0\nb,q1,0\nb,q2,1\nbad,q1,inf\n",
    "wide": ",q1,q2\na,1,0\nb,0,1\nbad,#DIV/0!,1\n",
    "transposed": "item,a,b,bad\nq1,1,0,x\nq2,0,1,1\n",
}


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_cells_of_a_subject_to_leave_out_need_not_be_sound(tmp_path, kind, ending):
    path = tmp_path / f"t{ending}"
    if ending == ".csv":
        path.write_text(CELLS[kind])
    else:
        table = csv.read_csv(io.BytesIO(CELLS[kind].encode()))
        parquet.write_table(table, path)
    with pytest.raises(ValueError, match=r"row \d"):
        irtjax.read(path)
    for name in ("bad", "ba*"):
        table = irtjax.read(path, leave_out=name)
        assert table.subjects.tolist() == ["a", "b"]
        assert table.items.tolist() == ["q1", "q2"]
        assert table.values.tolist() == [[1, 0], [0, 1]]
    # The cells of those who stay must be.
    with pytest.raises(ValueError, match=r"row \d"):
        irtjax.read(path, leave_out="b")
