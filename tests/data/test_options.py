"""The reading options: one list for Python, the command line and saved fits."""

import dataclasses
import inspect
import json

import pytest

import irtjax
from irtjax.cli.options import READING, Reading
from irtjax.data.reading.options import CHOICES, ReadOptions

OPTIONS = ReadOptions.__dataclass_fields__
#: Options that only Python has.
PYTHON_ONLY = {"trial", "header", "parts"}


def test_read_documents_every_option():
    assert len(inspect.signature(irtjax.read).parameters) <= 10
    documented = (irtjax.read.__doc__ or "").partition("Keyword Args:")[2]
    documented = documented.partition("Returns:")[0]
    names = [x.strip().split(":")[0] for x in documented.splitlines() if x[8:9] != " "]
    assert sorted(filter(None, names)) == sorted(OPTIONS)
    for name, values in CHOICES.items():
        if name != "format":
            assert all(f'"{value}"' in documented for value in values)


@pytest.mark.parametrize("verb", [irtjax.read, irtjax.from_inspect])
@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("metrics", "did you mean metric="),
        ("leave-out", "did you mean leave_out="),
        ("xyz", "there are subject, item, "),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(tmp_path, verb, name, cure):
    source = tmp_path / "r.csv"
    source.write_text("model,item,score\na,x,1\n")
    if verb is irtjax.from_inspect:
        pd = pytest.importorskip("pandas")
        columns = ["id", "epoch", "model", "task_name", "score_match"]
        source = pd.DataFrame([("a", "1", "m", "t", "C")], columns=columns)
    with pytest.raises(ValueError, match=cure) as refusal:
        verb(source, **{name: "acc"})
    assert repr(name) in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", CHOICES)
def test_another_value_is_refused_with_those_there_are(name):
    with pytest.raises(ValueError, match=f"{name}='other' is not one of '"):
        irtjax.read("none.csv", **{name: "other"})


def test_the_command_line_has_the_options_of_python():
    assert set(READING) == set(OPTIONS) - PYTHON_ONLY
    order = [name for name in OPTIONS if name in READING]
    assert list(READING) == order
    assert {field.name for field in dataclasses.fields(Reading)} == set(OPTIONS)


def test_a_saved_fit_is_read_with_the_options_of_its_data(tmp_path):
    """The options that `irtjax fit` keeps are those that it was given, by name."""
    options = {"subject": "who", "item": ("part", "task"), "right": ["good"]}
    reading = Reading(**{**options, "item": "part, task"})
    assert reading.chosen() == options
    saved = {"reading": json.loads(json.dumps(reading.chosen()))}
    assert Reading(right=["fine"]).as_of(saved).chosen() == {
        **options,
        "right": ["fine"],
    }
