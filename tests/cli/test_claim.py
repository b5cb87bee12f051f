"""`irtjax claim`: from responses to a verdict, a page and an exit status."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app


@pytest.fixture
def file(tmp_path):
    """Responses of four models, the first far ahead."""
    rng = np.random.default_rng(0)
    chance = np.array([0.9, 0.6, 0.6, 0.3])[:, None]
    values = (rng.random((4, 120)) < chance).astype(int)
    table = irtjax.ResponseTable.from_arrays(values, subjects=["a", "b", "c", "d"])
    path = tmp_path / "results.csv"
    path.write_text(table.to_frame("pandas").to_csv(index=False))
    return path


def run(*words):
    """The result of `irtjax claim`."""
    return CliRunner().invoke(app, ["claim", *map(str, words)])


def test_a_claim_has_a_verdict_and_a_page(file, tmp_path):
    page = tmp_path / "claim.md"
    result = run("a > b", file, "--out", page)
    assert result.exit_code == 0, result.output
    assert "a > b: supported, P > .99" in result.stdout
    assert "## Rebuttals" in page.read_text()
    found = json.loads(run("a is the best", file, "--json").stdout)
    assert found["verdict"] == "supported" and found["probability"] > 0.95
    assert found["upper"] == 1 and found["items"] == 120


def test_a_gate_fails_unless_the_claim_is_supported(file):
    assert run("a > d", file, "--gate").exit_code == 0
    result = run("b > c", file, "--gate")
    assert result.exit_code == 1 and "the claim is open: b > c" in result.output
    assert "needs" in result.stdout


@pytest.mark.slow
def test_a_fit_has_its_responses(file, tmp_path):
    fit = tmp_path / "fit"
    words = ["fit", str(file), "--model", "rasch", "--method", "em", "--out", str(fit)]
    assert CliRunner().invoke(app, [*words, "--no-figures"]).exit_code == 0
    found = json.loads(run("a > b", "--fit", fit, "--json").stdout)
    assert (
        found["sentence"] == json.loads(run("a > b", file, "--json").stdout)["sentence"]
    )


def test_costs_are_a_table(file, tmp_path):
    costs = tmp_path / "costs.csv"
    costs.write_text("subject,cost\na,1\nb,3\n")
    text = "a cheaper than b and no worse"
    assert "supported" in run(text, file, "--costs", costs).stdout
    costs.write_text("subject,cost\na,1\nb,many\n")
    result = run(text, file, "--costs", costs)
    assert result.exit_code and "line 3: 'many' is no number" in result.output


def test_wrong_words_are_refused_in_a_line(file):
    for words, message in (
        (["a and b", file], "is no claim that is understood"),
        (["a > x", file], "no subject is called 'x'"),
        (["a > b"], "name the responses"),
        (["a > b", "--item", "q"], "--fit DIR"),
    ):
        result = run(*words)
        assert result.exit_code and message in " ".join(result.output.split())
