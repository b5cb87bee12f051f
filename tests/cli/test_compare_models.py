"""`irtjax compare-models`: tables, figure and refusals."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from irtjax.cli.app import app


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Responses of a Rasch model, of the shape of other tests: one compiled program."""
    rng = np.random.default_rng(2)
    ability, easy = rng.normal(size=(150, 1)), rng.normal(size=60)
    right = (rng.random((150, 60)) < 1 / (1 + np.exp(-ability - easy))).astype(int)
    path = tmp_path_factory.mktemp("compare_models") / "r.csv"
    lines = [",".join(["subject", *(f"q{j}" for j in range(60))])]
    lines += [",".join([f"m{i}", *map(str, row)]) for i, row in enumerate(right)]
    path.write_text("\n".join(lines))
    return path


def run(*words):
    """Runs the command."""
    return CliRunner().invoke(app, ["compare-models", *map(str, words)])


def test_priors_are_compared(file):
    out = file.parent / "out"
    words = "--models", "2pl", "--prior-scales", "0.5,2", "--folds", 3
    result = run(file, *words, "--out", out, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert [row["prior_scale"] for row in document["rows"]] == [0.5, 2]
    assert len(document["folds"]) == 6
    assert document["chosen"] == "2pl with priors 0.5 times as wide"
    assert document["sentence"].startswith("Use 2pl with priors 0.5 times")
    names = {x.name for x in out.iterdir()}
    assert names == {"models.csv", "folds.csv", "models.png"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--models", "nine"), "no model 'nine'; there are"),
        (("--scheme", "row"), "no scheme 'row' of folds"),
        (("--prior-scales", "a"), "--prior-scales a: write numbers with commas"),
        (("--prior-scales", "0"), "prior scales [0.0] are not positive numbers"),
        (("--models", "factor:2", "--prior-scales", "1"), "'factor:2' is not one"),
    ],
)
def test_bad_input_is_refused_in_one_line(file, words, message):
    result = run(file, *words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
