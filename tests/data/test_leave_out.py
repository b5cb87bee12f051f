"""Subjects can be left out when responses are read."""

import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.cli.errors import as_options

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
