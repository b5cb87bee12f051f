"""Directions on the command line: stated in the output, kept by a saved fit."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app

RNG = np.random.default_rng(1)
MODELS = [f"m{k}" for k in range(9)]


def ok(*words):
    """The output of a command that succeeds."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def flags(path, column, models=MODELS):
    """Writes wrong responses as 1, of which the first model has the fewest."""
    rate = np.linspace(0.1, 0.9, len(models))
    wrong = RNG.random((len(models), 30)) < rate[:, None]
    rows = [(models[i], f"q{j}", int(x)) for (i, j), x in np.ndenumerate(wrong)]
    pd.DataFrame(rows, columns=["model", "item", column]).to_csv(path, index=False)
    return wrong


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fit of error flags, and the file that it was made from."""
    folder = tmp_path_factory.mktemp("directions")
    wrong = flags(folder / "flags.csv", "error_rate")
    out = folder / "fit"
    words = ["fit", folder / "flags.csv", "--response", "error_rate", "--out", out]
    text = ok(*words, "--model", "rasch", "--method", "em", "--no-figures")
    return folder, out, wrong, text


def test_a_fit_states_and_keeps_the_direction(fitted):
    _, out, wrong, text = fitted
    sentence = "Lower error_rate is better: scores are 1 - error_rate."
    assert sentence.rstrip(".") in " ".join(text.split())
    for name in ("leaderboard.md", "report.html"):
        page = (out / name).read_text().replace("\\_", "_")
        assert "Lower error_rate is better" in page, name
    assert "Both are of reversed scores (1 - error_rate): higher is better." in page
    document = json.loads((out / "fit.json").read_text())
    assert document["options"]["reversed_scores"] == ["1 - error_rate"]
    fit = irtjax.load(out)
    assert set(fit.reversed_scores.values()) == {"1 - error_rate"}
    table = fit.abilities.table.to_pandas().set_index("subject")
    assert table["rank"].idxmin() in MODELS[:2]
    assert np.allclose(table.loc[MODELS, "accuracy"], 1 - wrong.mean(axis=1))
    assert sentence in " ".join(ok("info", out).split())


def test_new_data_have_the_direction_of_the_fit(fitted, tmp_path):
    folder, out, *_ = fitted
    # Of any name, also one that is asked for without the fit.
    wrong = flags(tmp_path / "new.csv", "dist", ["good", "bad"])
    words = ["score", tmp_path / "new.csv", "--response", "dist", "--fit", out]
    rows = json.loads(ok(*words, "--json"))["subjects"]
    assert [row["accuracy"] for row in rows] == pytest.approx(1 - wrong.mean(axis=1))
    assert rows[0]["ability"] > rows[1]["ability"]
    fit = irtjax.load(out)
    for options in ({}, {"higher_is_better": "error_rate"}):
        given = {"response": "error_rate", **options}
        table = irtjax.read(folder / "flags.csv", **given)
        ability = irtjax.score(fit, table).table.column("ability").to_numpy()
        assert ability[0] > ability[-1] + 1
        result = irtjax.compare(fit, "m0", "m8", data=table)
        assert result.right_first > result.right_second
    data = [folder / "flags.csv", "--response", "error_rate"]
    result = json.loads(ok("compare", "m0", "m8", "--fit", out, *data, "--json"))
    assert result["difference"] > 0 and result["right_first"] > result["right_second"]
    ok("report", out, *data, "--out", tmp_path / "page.html")
    assert "Lower error_rate is better" in (tmp_path / "page.html").read_text()


def test_info_states_bounds_of_reported_scores(tmp_path):
    seconds = np.round(RNG.uniform(1, 40, size=(8, 12)), 1)
    rows = [(f"m{i}", f"q{j}", x) for (i, j), x in np.ndenumerate(seconds)]
    frame = pd.DataFrame(rows, columns=["model", "item", "latency"])
    frame.to_csv(tmp_path / "a.csv", index=False)
    words = ["info", tmp_path / "a.csv", "--response", "latency"]
    facts = json.loads(ok(*words, "--json"))
    low, high = seconds.min(), seconds.max()
    assert facts["reason"].startswith(f"scores from {low:g} to {high:g}; give the")
    assert facts["metric"] == "-latency"
    facts = json.loads(ok(*words, "--bounds", 0, 60, "--json"))
    assert facts["reason"].endswith("fit them with --bounds 0 60")


def test_refusals_name_reported_scores(tmp_path):
    seconds = np.linspace(1, 40, 40).reshape(4, 10)
    rows = [(f"m{i}", f"q{j}", x) for (i, j), x in np.ndenumerate(seconds)]
    frame = pd.DataFrame(rows, columns=["model", "item", "latency"])
    frame["latency"] += 0.5
    table = irtjax.read(frame, response="latency")
    with pytest.raises(ValueError, match="score 1.5 is not between 0 and 1;"):
        irtjax.fit(table)
    with pytest.raises(ValueError, match="score 20.5 is not between 0 and 20;"):
        irtjax.fit(table, bounds=(0, 20))
