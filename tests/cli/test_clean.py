"""`irtjax clean`: what is left, and why."""

import json

import numpy as np
from typer.testing import CliRunner

from irtjax.cli.app import app
from irtjax.data import read


def test_responses_that_are_left_are_written(tmp_path):
    values = np.random.default_rng(0).integers(0, 2, (12, 10))
    values[:, 9] = values[:, 8]
    rows = [f"m{i},q{j},{values[i, j]}" for i in range(12) for j in range(10)]
    rows.append("rare,q0,1")
    path, out = tmp_path / "runs.csv", tmp_path / "clean.csv"
    path.write_text("\n".join(["subject,item,response", *rows]))
    words = ["clean", str(path), "--min-subjects", "5", "--min-items", "5"]
    result = CliRunner().invoke(app, [*words, "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["subjects"], document["items"]) == (12, 9)
    reasons = [row["reason"] for row in document["left_out"]]
    assert reasons == ["subjects of few items", "duplicates"]
    left = read(out)
    assert left.num_items == 9 and "rare" not in left.subjects.tolist()
    shown = CliRunner().invoke(app, words)
    assert "12 subjects and 9 items are left of 13 and 10." in shown.output
