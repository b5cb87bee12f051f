"""`irtjax calibrate-items`: new items from responses of the subjects of a fit."""

import json

import numpy as np
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app


def test_new_items_are_a_table_and_json(tmp_path):
    rng = np.random.default_rng(0)
    logit = rng.normal(size=(80, 1)) - np.linspace(-2, 2, 20)
    values = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    names = {"subjects": [f"m{k}" for k in range(80)]}
    names["items"] = [f"q{k}" for k in range(20)]
    table = irtjax.ResponseTable.from_arrays(values, **names)
    old, new = (tmp_path / name for name in ("old.csv", "new.csv"))
    for path, places in ((old, slice(0, 14)), (new, slice(14, 20))):
        part = table.select(items=np.arange(20)[places])
        path.write_text(part.to_frame("pandas").to_csv(index=False))
    fit, out = tmp_path / "fit", tmp_path / "new_items.csv"
    words = ["fit", str(old), "--model", "rasch", "--method", "em", "--out", str(fit)]
    assert CliRunner().invoke(app, [*words, "--no-figures"]).exit_code == 0
    words = ["calibrate-items", str(new), "--fit", str(fit)]
    result = CliRunner().invoke(app, [*words, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "q14" in result.stdout and "difficulty" in out.read_text()
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    difficulty = [row["difficulty"] for row in found["items"]]
    assert len(difficulty) == 6 and np.all(np.diff(difficulty) > -0.8)
    result = CliRunner().invoke(app, ["calibrate-items", str(old), "--fit", str(fit)])
    assert result.exit_code and "all items are of the fit" in result.output
