"""Options of the joint methods on the command line."""

import json

import numpy as np
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app


def command(tmp_path, *options):
    rng = np.random.default_rng(0)
    theta, level = rng.normal(size=40), np.linspace(-1, 1, 12)
    right = rng.random((40, 12)) < 1 / (1 + np.exp(-theta[:, None] - level))
    rows = ["subject,item,response"]
    rows += [f"s{i:02},i{j:02},{x:d}" for (i, j), x in np.ndenumerate(right)]
    (tmp_path / "long.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    out = ["fit", str(tmp_path / "long.csv"), "--out", str(tmp_path / "fit")]
    return CliRunner().invoke(app, [*out, "--no-figures", *options])


def test_settings_of_mm_reach_the_method(tmp_path):
    options = "--method mm --model 2pl --temperature .5 --penalty 2"
    options += " --stop relative_change --memory 0 --standard-errors none"
    done = command(tmp_path, *options.split())
    assert done.exit_code == 0, done.output
    stated = json.loads((tmp_path / "fit" / "fit.json").read_text())["options"]
    wanted = {"temperature": 0.5, "penalty": 2.0, "stop": "relative_change"}
    assert wanted.items() <= stated.items() and stated["memory"] == 0
    table = irtjax.read(tmp_path / "long.csv")
    method = irtjax.MM(temperature=0.5, penalty=2.0, stop="relative_change", memory=0)
    again = irtjax.fit(table, "2pl", method, standard_errors="none")
    saved = irtjax.load(tmp_path / "fit")
    assert saved.log_likelihood == again.log_likelihood


def test_settings_of_mm_require_it(tmp_path):
    done = command(tmp_path, "--method", "em", "--temperature", ".5")
    assert done.exit_code == 2
    assert "--temperature requires --method mm, not em" in done.output
    done = command(tmp_path, "--method", "em", "--penalty", "0")
    assert "--penalty requires --method mm or gradient, not em" in done.output
