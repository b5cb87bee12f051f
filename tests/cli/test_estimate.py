"""`irtjax estimate`: the score of a new model from a few answers."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app


def write(values, path, subjects=None):
    """Responses, NaN where missing, as a long table."""
    table = irtjax.ResponseTable.from_arrays(
        values, subjects=subjects, items=[f"q{k}" for k in range(values.shape[1])]
    )
    path.write_text(table.to_frame("pandas").to_csv(index=False))
    return path


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    """The folder of a fit of 60 models and 50 items."""
    folder = tmp_path_factory.mktemp("estimate")
    rng = np.random.default_rng(0)
    logit = rng.normal(size=(60, 1)) - np.linspace(-2, 2, 50)
    values = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    file, out = write(values, folder / "results.csv"), folder / "fit"
    words = ["fit", str(file), "--model", "rasch", "--method", "em", "--out", str(out)]
    assert CliRunner().invoke(app, [*words, "--no-figures"]).exit_code == 0
    return out


def run(*words):
    """The result of `irtjax estimate`."""
    return CliRunner().invoke(app, ["estimate", *map(str, words)])


def test_a_new_model_has_a_score_with_an_interval(fit, tmp_path):
    rng = np.random.default_rng(1)
    values = (rng.random((1, 50)) < 0.6).astype(float)
    values[0, rng.permutation(50)[:30]] = np.nan
    file = write(values, tmp_path / "few.csv", ["new"])
    out = tmp_path / "scores.csv"
    result = run(file, "--fit", fit, "--out", out)
    assert result.exit_code == 0, result.output
    assert "new" in result.stdout and out.read_text().startswith('"subject","score"')
    found = json.loads(run(file, "--fit", fit, "--json").stdout)
    assert 0 <= found["lower"] < found["score"] < found["upper"] <= 1
    assert found["answers"] == 20 and found["items"] == 50
    assert found["design"] == "random" and len(found["subjects"]) == 1


def test_drawn_items_have_their_chances_in_a_column(fit, tmp_path):
    lines = ["subject,item,response,chance"]
    lines += [f"new,q{k},{k % 2},{1 / (50 - k)}" for k in range(15)]
    file = tmp_path / "drawn.csv"
    file.write_text("\n".join(lines))
    words = [file, "--fit", fit, "--probability", "chance"]
    found = json.loads(run(*words, "--json").stdout)
    assert found["design"] == "sequential" and 0 < found["score_se"] < 0.3
    result = run(*words[:-1], "weight")
    assert result.exit_code and "requires the columns" in result.output


def test_answers_to_other_items_are_refused(fit, tmp_path):
    rng = np.random.default_rng(2)
    table = irtjax.ResponseTable.from_arrays((rng.random((1, 20)) < 0.5).astype(float))
    file = tmp_path / "other.csv"
    file.write_text(table.to_frame("pandas").to_csv(index=False))
    result = run(file, "--fit", fit)
    assert result.exit_code and "is of the fit" in " ".join(result.output.split())
