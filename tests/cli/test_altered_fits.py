"""Every command that takes a fit refuses an altered one, and writes nothing.

Each alteration is one that an array, a document or a table can have, although the file
is whole. Fits of before have no digests, so they are taken away here.
"""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.storage import load_responses
from tests.small_fits import small_fit, small_table


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a fit without digests and the responses that it was made from."""
    place = tmp_path_factory.mktemp("saved")
    fit = small_fit("2pl", "em", False)
    irtjax.save(fit, place / "whole", responses=small_table())
    irtjax.save(fit, place / "fit")
    document(place / "fit", lambda content: content.pop("digests"))
    table = small_table().select(subjects=[0, 1, 2])
    table.save(place / "responses.parquet")
    return place


def document(fit, change):
    path = fit / "fit.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def array(name, change):
    def alter(fit):
        with np.load(fit / "parameters.npz") as file:
            arrays = dict(file)
        np.savez(fit / "parameters.npz", **{**arrays, name: change(arrays[name])})

    return alter


def column(file, name, value):
    def alter(fit):
        table = pq.read_table(fit / file)
        k = table.column_names.index(name)
        new = pa.array([value] * table.num_rows)
        pq.write_table(table.set_column(k, name, new), fit / file)

    return alter


ALTERED = {
    "slopes that are NaN": array("items.discrimination", lambda x: x * np.nan),
    "infinite intercepts": array("items.intercept", lambda x: x + np.inf),
    "whole numbers": array("items.intercept", lambda x: x.astype(int)),
    "complex numbers": array("items.intercept", lambda x: x + 1j),
    "a matrix": array("items.intercept", lambda x: np.stack([x, x], 1)),
    "fewer items": array("item_names", lambda x: x[:-1]),
    "asymptotes above 1": array("items.upper_asymptote", lambda x: x + 1),
    "a population of two": array("population.mean", lambda x: np.stack([x, x])),
    "a negative deviation": array("population.sd", lambda x: -1 - x),
    "another count": lambda fit: document(fit, lambda c: c.update(num_items=3)),
    "no model": lambda fit: document(fit, lambda c: c.update(model={})),
    "another family": lambda fit: document(
        fit, lambda c: c["model"]["family"].update({"class": "Nominal"})
    ),
    "a level of 2": lambda fit: document(fit, lambda c: c.update(level=2)),
    "bounds that are text": lambda fit: document(
        fit, lambda c: c["options"].update(bounds="x")
    ),
    "a share of 2": column("abilities.parquet", "probability_best", 2.0),
    "a negative error": column("abilities.parquet", "ability_se", -1.0),
    "ranks that are text": column("abilities.parquet", "rank", "first"),
    "an infinite difficulty": column("items.parquet", "difficulty", np.inf),
}
COMMANDS = {
    "score": ("score", "{data}", "--fit", "{fit}", "--out", "{out}.csv"),
    "add": ("add", "{data}", "--to", "{fit}"),
    "history": ("history", "{fit}"),
    "rank": ("rank", "{fit}"),
    "compare": ("compare", "vendor/model_1", "vendor/model_2", "--fit", "{fit}"),
    "report": ("report", "{fit}", "--out", "{out}.html"),
    "predict": ("predict", "{fit}", "--out", "{out}.csv"),
    "adapt": (
        "adapt",
        "{fit}",
        "--num-subjects",
        "3",
        "--num-items",
        "2",
        "--out",
        "{out}",
    ),
    "audit": ("audit", "{data}", "--fit", "{fit}", "--out", "{out}"),
    "clusters": ("clusters", "{fit}", "{data}", "--out", "{out}"),
    "simulate": ("simulate", "--fit", "{fit}", "--out", "{out}.csv"),
    "info": ("info", "{fit}"),
}


#: One alteration of each file of a fit: of the arrays, the document and the two tables.
OF_EACH_FILE = (
    "slopes that are NaN",
    "no model",
    "a share of 2",
    "an infinite difficulty",
)
#: All commands load a fit by one function, so one of them stands for the rest.
ALTERATIONS = [
    (command, alteration)
    for command in sorted(COMMANDS)
    for alteration in sorted(ALTERED)
    if command == "rank" or alteration in OF_EACH_FILE
]


@pytest.mark.parametrize(("command", "alteration"), ALTERATIONS)
def test_an_altered_fit_is_refused(saved, tmp_path, command, alteration):
    fit = shutil.copytree(saved / "fit", tmp_path / "fit")
    ALTERED[alteration](fit)
    refuse(command, fit, saved, tmp_path)


def other_responses(fit):
    table = load_responses(fit)
    table.replace(values=1 - table.values).save(fit / "responses.parquet")


def cut(name):
    def alter(fit):
        content = (fit / name).read_bytes()
        (fit / name).write_bytes(content[: len(content) // 2])

    return alter


#: What the digests of a fit show in files that are whole, or cut off.
CHANGED = {
    "other responses": other_responses,
    "responses that are cut off": cut("responses.parquet"),
    "responses without content": lambda fit: (fit / "responses.parquet").write_text(""),
}


CHANGES = [
    (command, change)
    for command in sorted(COMMANDS)
    for change in sorted(CHANGED)
    if command == "rank" or change == "other responses"
]


@pytest.mark.parametrize(("command", "change"), CHANGES)
def test_changed_responses_are_refused(saved, tmp_path, command, change):
    fit = shutil.copytree(saved / "whole", tmp_path / "fit")
    CHANGED[change](fit)
    refuse(command, fit, saved, tmp_path)


def refuse(command, fit, saved, tmp_path):
    values = {"data": saved / "responses.parquet", "fit": fit, "out": tmp_path / "out"}
    words = [word.format(**values) for word in COMMANDS[command]]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, SystemExit) and done.exit_code == 2
    assert done.stderr.count("\n") == 1 and "run the fit again" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["fit"]
