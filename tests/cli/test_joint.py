"""`irtjax joint`: from folders and tables to the agreement of sources."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app


@pytest.fixture
def places(tmp_path):
    """An arena and a table of accuracies of the same models under other names."""
    rng = np.random.default_rng(0)
    ability = np.linspace(-1.5, 1.5, 8)
    i, j = (x.ravel() for x in np.indices((8, 8)))
    i, j = i[i < j], j[i < j]
    wins = rng.binomial(200, 1 / (1 + np.exp(ability[j] - ability[i])))
    outcomes = np.column_stack([wins, 200 - wins, 0 * wins, 0 * wins])
    names = [f"m{k}" for k in range(8)]
    table = irtjax.ComparisonTable.of(names, i, j, outcomes)
    irtjax.fit_comparisons(table).save(tmp_path / "arena")
    own = ability.copy()
    own[2] += 3  # Of m2, accuracy is far above its votes.
    rows = [f"org/M{k},{own[k]},0.05" for k in range(8)]
    text = "\n".join(["subject,ability,ability_se", *rows])
    (tmp_path / "accuracy.csv").write_text(text)
    pairs = "\n".join(["name,subject", *(f"org/M{k},m{k}" for k in range(8))])
    (tmp_path / "names.csv").write_text(pairs)
    return tmp_path


def test_joint_writes_tables_and_a_figure_and_prints_twenty_lines(places):
    words = [
        "joint",
        f"votes={places / 'arena'}",
        f"accuracy={places / 'accuracy.csv'}",
    ]
    words += ["--names", str(places / "names.csv")]
    result = CliRunner().invoke(app, [*words, "--out", str(places / "out")])
    assert result.exit_code == 0, result.output
    assert "votes, accuracy: 0." in result.output and "by 8 models" in result.output
    assert len(result.output.splitlines()) <= 20
    written = {path.name for path in (places / "out").iterdir()}
    tables = {"source_agreement.csv", "residuals.csv", "shared_abilities.csv"}
    assert written == tables | {"sources.png"}
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    rows = [row for row in found["residuals"] if row["source"] == "accuracy"]
    assert max(rows, key=lambda row: row["residual"])["subject"] == "m2"
    assert len(found["abilities"]) == 8 and found["agreement"][0]["num_common"] == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["arena"], "'arena' is not NAME=VALUE"),
        (["votes={arena}", "accuracy={accuracy}"], "0 common models"),
        (["votes={arena}", "--weight", "votes=x"], "--weight votes=x: give a number"),
        (["votes={arena}", "votes={arena}"], "two sources have the same name"),
        (["votes={names}"], "has no column 'ability'"),
    ],
)
def test_joint_refuses_in_one_line(words, message, places):
    files = {x: places / f"{x}.csv" for x in ("accuracy", "names")}
    words = [x.format(arena=places / "arena", **files) for x in words]
    result = CliRunner().invoke(app, ["joint", *words])
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
