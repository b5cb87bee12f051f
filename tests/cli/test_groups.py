"""`irtjax fit --family` and `--cluster`: columns of the files, and of side tables."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from irtjax.cli.app import app


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="irtjax")


def written(path: Path, header: list[str], rows) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def responses(tmp_path):
    """A long file of 8 models, 4 bases, 30 items and 6 passages."""
    rng = np.random.default_rng(0)
    rows = [
        (
            f"m{i}",
            f"b{i // 2}",
            f"q{j}",
            f"p{j // 5}",
            int(rng.random() < 0.3 + 0.06 * i),
        )
        for i in range(8)
        for j in range(30)
    ]
    header = ["model", "origin", "question_id", "passage", "correct"]
    return written(tmp_path / "long.csv", header, rows)


NAMED = ["--subject", "model", "--item", "question_id", "--response", "correct"]


def labels(folder: Path, name: str, column: str) -> list:
    return parquet.read_table(folder / name)[column].to_pylist()


@pytest.mark.slow
def test_columns_of_the_files_group(responses, tmp_path):
    out = tmp_path / "fit"
    options = ["--family", "origin", "--cluster", "passage", "--no-figures"]
    options += ["--method", "em"]
    result = run("fit", responses, *NAMED, *options, "--out", out)
    assert result.exit_code == 0, result.output
    assert set(labels(out, "abilities.parquet", "family")) == {"b0", "b1", "b2", "b3"}
    assert labels(out, "items.parquet", "cluster")[:6] == [*["p0"] * 5, "p1"]
    options = json.loads((out / "fit.json").read_text())["options"]
    assert (options["family"], options["cluster"]) == ("origin", "passage")


def test_columns_of_side_tables_group_and_a_refusal_names_them(responses, tmp_path):
    out = tmp_path / "fit"
    fit = ["fit", responses, *NAMED, "--no-figures", "--method", "em", "--out", out]
    refused = run(*fit, "--cluster", "text")
    assert refused.exit_code == 2
    assert "--item-table FILE --cluster text" in " ".join(refused.output.split())
    items = written(
        tmp_path / "items.csv", ["item", "text"], [(f"q{j}", j // 5) for j in range(30)]
    )
    result = run(*fit, "--cluster", "text", "--item-table", items)
    assert result.exit_code == 0, result.output
    assert labels(out, "items.parquet", "cluster")[4:6] == ["0", "1"]


def test_run_takes_groups_a_title_and_figures(responses, tmp_path):
    out = tmp_path / "run"
    options = ["--family", "origin", "--cluster", "passage", "--title", "Of <passages>"]
    options += ["--figures", "--model", "1pl", "--method", "em", "--size", 5]
    result = run("run", responses, *NAMED, *options, "--out", out)
    assert result.exit_code == 0, result.output
    assert set(labels(out, "abilities.parquet", "family")) == {"b0", "b1", "b2", "b3"}
    assert labels(out, "items.parquet", "cluster")[:6] == [*["p0"] * 5, "p1"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<h1><bdi>Of &lt;passages&gt;</bdi></h1>" in page
    assert "<title>Of &lt;passages&gt;" in page
    for name in ("abilities.png", "audit/properties.png"):
        assert (out / name).stat().st_size > 1000, name
    assert (out / "subset" / "subset.csv").read_text().count("\n") == 6
    for name in ("First", "Read", "Next"):
        assert f"\n{name} " in result.stdout
    # The columns are looked for before the fit.
    refused = run("run", responses, *NAMED, "--family", "base", "--out", tmp_path / "x")
    assert refused.exit_code == 2 and "base" in refused.stderr
