"""`irtjax power` through the real command."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app


def run(*arguments):
    return CliRunner().invoke(app, ["power", *map(str, arguments)])


def test_the_table_fits_a_terminal_and_agrees_with_python():
    shown = run("--models", 10, "--sizes", "100,1000")
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    found = irtjax.power(models=10, sizes=[100, 1000])
    assert f"{found.items_needed:,} items are needed" in shown.stdout
    document = json.loads(run("--models", 10, "--sizes", "100,1000", "--json").stdout)
    assert document["rows"] == found.table.to_pylist()
    assert document["items_needed_of_pairs"] == found.items_needed_of_pairs


@pytest.fixture
def responses(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "results.csv"
    rows = [f"m{i},q{j},{int(rng.random() < 0.6)}" for i in range(5) for j in range(40)]
    path.write_text("\n".join(["model,item,score", *rows]), encoding="utf-8")
    return path


def test_files_give_accuracy_and_models(responses):
    document = json.loads(run(responses, "--json").stdout)
    assert document["models"] == 5
    assert 40 in [row["items"] for row in document["rows"]]
    assert document["accuracy"] == pytest.approx(0.6, abs=0.12)


def test_the_folder_of_a_fit_has_its_responses(responses, tmp_path):
    table, folder = irtjax.read(responses), tmp_path / "fitted"
    fit = irtjax.fit(table, "rasch", "em", standard_errors="none")
    irtjax.save(fit, folder, responses=table)
    assert run(folder, "--json").stdout == run(responses, "--json").stdout


def test_scores_on_another_scale_need_their_bounds(responses):
    text = responses.read_text(encoding="utf-8").replace(",1\n", ",7.5\n")
    responses.write_text(text, encoding="utf-8")
    refused = run(responses)
    assert refused.exit_code == 1 or "--bounds" in refused.stderr
    scored = run(responses, "--bounds", 0, 10, "--json")
    document = json.loads(scored.stdout)
    assert document["accuracy"] == pytest.approx(0.45, abs=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--difference", 5], "5 points are 0.05"),
        (["--sizes", "a"], "--sizes a is not a list of whole numbers"),
        (["--subject", "x"], "--subject requires FILE"),
        (["--accuracy", 0.99, "--difference", 0.1], "impossible at accuracy 0.99"),
    ],
)
def test_bad_input_is_one_line(arguments, message):
    found = run(*arguments)
    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stderr.count("\n") == 1
