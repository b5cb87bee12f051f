"""`irtjax generalise`: splits by columns of files and tables."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from irtjax.cli.app import app

SUBJECTS, ITEMS = 150, 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Responses in rows with a benchmark, and a table of dates of subjects."""
    path = tmp_path_factory.mktemp("generalise")
    rng = np.random.default_rng(1)
    ability, easy = rng.normal(size=SUBJECTS), rng.normal(size=ITEMS)
    right = rng.random((SUBJECTS, ITEMS)) < 1 / (1 + np.exp(-ability[:, None] - easy))
    lines = ["subject,item,response,benchmark"]
    lines += [
        f"m{i},q{j},{int(right[i, j])},{'ab'[j % 2]}"
        for i in range(SUBJECTS)
        for j in range(ITEMS)
    ]
    (path / "r.csv").write_text("\n".join(lines))
    dates = [f"m{i},2024-{1 + i % 12:02d}-01,f{i // 2}" for i in range(SUBJECTS)]
    (path / "dates.csv").write_text("\n".join(["subject,date,family", *dates]))
    return path


def run(*words):
    """Runs the command."""
    return CliRunner().invoke(app, ["generalise", *map(str, words)])


def test_schemes_with_their_columns(folder):
    result = run(
        folder / "r.csv",
        *("--schemes", "rows,group,temporal", "--models", "2pl", "--family", "family"),
        *("--subject-table", folder / "dates.csv", "--cutoff", "2024-10-01"),
        *("--out", folder / "out", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    rows = document["rows"]
    assert {x["scheme"] for x in rows} == {"rows", "group", "temporal"}
    assert document["auc"] == rows[0]["auc"] and rows[0]["model"] == "2pl"
    assert 0.6 < rows[0]["auc_lower"] < rows[0]["auc"] < rows[0]["auc_upper"] < 0.9
    # A quarter of the subjects is from October on; .3 of their responses train.
    last = next(x for x in rows if x["scheme"] == "temporal")
    assert last["predicted"] / (SUBJECTS * ITEMS) == pytest.approx(0.25 * 0.7, abs=0.02)
    assert len(document["sentences"]) == 3
    names = {x.name for x in (folder / "out").iterdir()}
    assert names == {"generalise.csv", "curves.csv", "generalise.png"}


def test_features_predict_items_without_a_response(folder):
    """The feature is the easiness that responses were drawn by."""
    easy = np.random.default_rng(1)
    easy.normal(size=SUBJECTS)
    lines = [f"q{j},{x}" for j, x in enumerate(easy.normal(size=ITEMS))]
    (folder / "features.csv").write_text("\n".join(["item,easy", *lines]))
    result = run(
        *(folder / "r.csv", "--schemes", "items", "--folds", "5"),
        *("--item-features", folder / "features.csv", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    additive = next(x for x in document["rows"] if x["model"] == "additive")
    assert document["model"] == "features"
    assert document["gain_lower"] > 0 and document["auc"] > additive["auc"] + 0.05


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--schemes", "row"), "--schemes row: no such scheme; there are entry, rows"),
        (("--schemes", "temporal"), "--date date: no such column; give a table"),
        (("--models", "nine"), "no model 'nine'; there are"),
        (("--exposure", "1"), "exposure 1 is not between 0 and 1"),
        (("--level", "95"), "did you mean 0.95?"),
        (("--schemes", "items"), "need features of items (--item-features FILE)"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder, words, message):
    result = run(folder / "r.csv", *words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
