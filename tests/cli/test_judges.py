"""`irtjax judges`: from reports to errors of judges and corrected accuracies."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from irtjax.cli.app import app


def reports(path, judges=3, gold=0.3):
    """Reports on 8 models and 40 items; the last judge likes length."""
    rng = np.random.default_rng(0)
    truth = rng.random((8, 40)) < 0.6
    model, item, judge = (x.ravel() for x in np.indices((8, 40, judges)))
    length = rng.normal(size=(8, 40))[model, item]
    odds = -1.5 + 3.5 * truth[model, item] + 1.5 * (judge == judges - 1) * length
    verdict = rng.random(len(odds)) < 1 / (1 + np.exp(-odds))
    gold = np.where(rng.random((8, 40)) < gold, truth, np.nan)[model, item]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["subject", "item", "judge", "verdict", "gold", "length"])
        for row in zip(model, item, judge, verdict, gold, length, strict=True):
            label = "" if np.isnan(row[4]) else int(row[4])
            names = [f"model-{row[0]}", f"item-{row[1]}", f"judge-{row[2]}"]
            writer.writerow([*names, int(row[3]), label, row[5]])
    return path


def test_judges_prints_twenty_lines_and_writes_tables(tmp_path):
    file, out = reports(tmp_path / "reports.csv"), tmp_path / "out"
    words = ["judges", str(file), "--style", "length", "--out", str(out)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    # The last lines name the folder, which is long here.
    printed = result.stdout.split("Written to")[0].splitlines()
    assert len(printed) <= 20 and "(2 more)" in result.stdout
    assert "Fleiss' kappa 0." in " ".join(printed)
    assert {path.name for path in out.iterdir()} == {
        *("judge_errors.csv", "corrected_accuracies.csv"),
        *("judge_agreement.csv", "judged_responses.csv"),
    }
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    biases = [row["length_bias"] for row in found["judges"]]
    assert max(biases) == biases[2] > 10
    assert len(found["accuracies"]) == 8 and len(found["pairs"]) == 3
    assert -1 < found["fleiss"] < 1 and found["converged"]


def test_several_files_are_one_table_and_json_lines_are_read(tmp_path):
    file = reports(tmp_path / "reports.csv")
    with file.open() as text:
        rows = list(csv.DictReader(text))
    for row in rows:
        row["verdict"] = int(row["verdict"])
        row["gold"] = int(row["gold"]) if row["gold"] else None
        row["length"] = float(row["length"])
    parts = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    for path, part in zip(parts, (rows[:500], rows[500:]), strict=True):
        path.write_text("\n".join(map(json.dumps, part)))
    more = ["--no-abilities", "--json"]
    one, other = (
        json.loads(CliRunner().invoke(app, ["judges", *places, *more]).stdout)
        for places in ([str(file)], list(map(str, parts)))
    )
    assert one == other


@pytest.mark.parametrize(
    ("options", "words", "message"),
    [
        ({"judges": 2}, [], "2 judges: their errors are identified by 3 or more"),
        ({"gold": 0.05}, [], "gold responses: label 50 or more"),
        ({}, ["--gold", "truth"], "needs a column 'truth'"),
        ({}, ["--style", "tone"], "needs a column 'tone'"),
        ({}, ["--level", "2"], "level"),
    ],
)
def test_what_does_not_identify_the_errors_is_refused_in_one_line(
    options, words, message, tmp_path
):
    file = reports(tmp_path / "reports.csv", **options)
    result = CliRunner().invoke(app, ["judges", str(file), *words])
    assert result.exit_code == 2 and not result.stdout
    assert message in " ".join(result.stderr.split())
