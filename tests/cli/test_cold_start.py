"""`irtjax cold-start`: new items, new pairs and differences of labels."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from irtjax.cli.app import app


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Responses of four agents with five models, and features of all."""
    path = tmp_path_factory.mktemp("cold")
    rng = np.random.default_rng(0)
    size = rng.normal(size=30)
    agents, models = np.repeat(list("wxyz"), 5), np.tile(list("abcde"), 4)
    ability = np.repeat([0.0, 0.5, 1.0, 1.5], 5) + np.tile(np.arange(5) - 2, 4)
    right = rng.random((20, 30)) < 1 / (1 + np.exp(size - ability[:, None]))
    rows = [
        f"{agents[i]}-{models[i]},item {j},{int(right[i, j])}"
        # The last pair and the last item are new.
        for i in range(19)
        for j in range(29)
    ]
    (path / "runs.csv").write_text("\n".join(["subject,item,response", *rows]))
    lines = [f"item {j},{x}" for j, x in enumerate(size)]
    (path / "items.csv").write_text("\n".join(["item,size", *lines]))
    lines = [f"{a}-{m},{a},{m}" for a, m in zip(agents, models, strict=True)]
    (path / "pairs.csv").write_text("\n".join(["subject,agent,model", *lines]))
    return path


def call(folder, *words):
    """Runs the command on the responses."""
    return CliRunner().invoke(app, ["cold-start", str(folder / "runs.csv"), *words])


def test_new_items_pairs_and_differences(folder, tmp_path):
    words = ["--item-features", str(folder / "items.csv"), "--out", str(tmp_path / "o")]
    words += ["--subject-features", str(folder / "pairs.csv")]
    result = call(folder, *words, "--difference", "agent=z,w", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    new = [row for row in document["subjects"] if not row["observed"]]
    assert [row["subject"] for row in new] == ["z-e"]
    assert new[0]["expected"] > 0.8
    [change] = document["differences"]
    assert change["lower"] < 1.5 < change["upper"]
    assert 0 < change["points_lower"] < change["points"] < change["points_upper"]
    parts = [(row["of"], row["part"]) for row in document["variances"]]
    assert ("item", "numbers") in parts and ("subject", "model") in parts
    lines = (tmp_path / "o" / "new_responses.csv").read_text().splitlines()
    # 20 subjects and the new item, and 29 other items of the new pair.
    assert len(lines) == 1 + 20 + 29


def test_screen_shows_what_is_new(folder):
    words = ["--subject-features", str(folder / "pairs.csv")]
    result = call(folder, *words, "--difference", "agent=z,w")
    assert result.exit_code == 0, result.output
    assert "new subject" in result.output and "agent: z, not w" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --item-features FILE or --subject-features FILE"),
        (["--subject-features", "pairs.csv", "--difference", "z,w"], "COLUMN=LABEL,"),
        (["--subject-features", "pairs.csv", "--difference", "agent=z,q"], "label 'q'"),
        (["--subject-features", "pairs.csv", "--subject-columns", "org"], "no column"),
    ],
)
def test_bad_options_in_one_line(folder, words, message):
    words = [str(folder / x) if x.endswith(".csv") else x for x in words]
    result = call(folder, *words)
    assert result.exit_code != 0
    assert message in str(result.exception) + result.output
