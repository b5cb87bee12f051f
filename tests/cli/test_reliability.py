"""`irtjax reliability`: coefficients of logs, and designs of scores with raters."""

import csv
import json

import numpy as np
from typer.testing import CliRunner

from irtjax.cli.app import app


def scores(path):
    """Scores of 8 models on 12 items by 3 raters."""
    rng = np.random.default_rng(0)
    model, item, rater = (x.ravel() for x in np.indices((8, 12, 3)))
    value = rng.normal(size=8)[model] + rng.normal(size=(8, 12))[model, item]
    value = value + 0.5 * rng.normal(size=3)[rater] + rng.normal(size=len(model))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "question", "rater", "points"])
        for row in zip(model, item, rater, value, strict=True):
            names = [f"model-{row[0]}", f"question-{row[1]}", f"rater-{row[2]}"]
            writer.writerow([*names, row[3]])
    return path


def run(*words):
    """The result of a command that succeeds."""
    result = CliRunner().invoke(app, ["reliability", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result


def test_responses_have_coefficients_and_a_sentence(tmp_path):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(12, 1)) + rng.normal(size=(12, 40)) > 0
    file = tmp_path / "results.csv"
    with file.open("w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(["model", *(f"q{k}" for k in range(40))])
        writer.writerows([f"m{k}", *map(int, row)] for k, row in enumerate(values))
    out = tmp_path / "out"
    result = run(file, "--out", out)
    assert len(result.stdout.split("Written to")[0].splitlines()) <= 20
    assert "must differ by" in result.stdout and "points on 40 items" in result.stdout
    names = {path.name for path in out.iterdir()}
    assert names == {"reliability.csv", "scores.csv", "components.csv"}
    found = json.loads(run(file, "--json").stdout)
    assert 0 < found["alpha"] < 1 and 0 < found["omega"] < 1
    assert found["sem"] < found["difference"]
    names = [row["component"] for row in found["components"]]
    assert names == ["subject", "item", "residual"]
    assert len(found["subjects"]) == 12 and found["runs"] is None


def test_facets_have_components_and_designs(tmp_path):
    file = scores(tmp_path / "scores.csv")
    words = [file, "--facet", "question", "--facet", "rater"]
    words += ["--columns", "model,points", "--sizes", "question=10,40"]
    words += ["--sizes", "rater=1,3", "--cost", "question=1", "--cost", "rater=0.1"]
    result = run(*words)
    assert "model × question" in result.stdout and "cost" in result.stdout
    found = json.loads(run(*words, "--json").stdout)
    assert len(found["components"]) == 7 and len(found["designs"]) == 4
    assert found["designs"][0]["cost"] == 11
    out = tmp_path / "out"
    run(*words, "--out", out)
    names = {path.name for path in out.iterdir()}
    assert names == {"components.csv", "designs.csv"}


def test_wrong_words_are_refused_in_a_line(tmp_path):
    file = scores(tmp_path / "scores.csv")
    facets = ["--facet", "question", "--facet", "rater", "--columns", "model,points"]
    for words, message in (
        ([*facets, "--sizes", "items=3"], "'items' is not one of the facets"),
        ([*facets, "--cost", "rater=1"], "--cost requires --sizes"),
        ([*facets, "--sizes", "rater"], "--sizes rater is not of the form"),
        ([*facets, "--item", "question"], "--item is not for --facet"),
        (["--facet", "judge"], "no column 'subject' among"),
    ):
        result = CliRunner().invoke(app, ["reliability", str(file), *words])
        assert result.exit_code and message in " ".join(result.output.split())
