"""`irtjax run`: one folder, one summary, and what stays when a part fails."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli import pipeline
from irtjax.cli import run as running
from irtjax.cli.app import app
from irtjax.data.writing import reserved
from irtjax.storage import FIT_FILES, RUN_FILES, STRUCTURE_FILES
from tests.small_fits import small_fit, small_table


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="irtjax")


@pytest.fixture
def saved_table(tmp_path) -> Path:
    path = tmp_path / "responses.parquet"
    small_table().save(path)
    return path


@pytest.fixture
def quick(monkeypatch):
    """One fit for all tests, without figures, and a subset without folds."""
    monkeypatch.setattr(pipeline, "calibrate", lambda *_: small_fit(errors=False))
    monkeypatch.setattr("irtjax.report.write.figure_makers", lambda _: [])
    for name in ("item_properties", "difficulty_discrimination", "flagged_items"):
        monkeypatch.setattr(f"irtjax.plots.plot_{name}", lambda *_: None)
    monkeypatch.setattr("irtjax.plots.save_figure", lambda _, place: place.touch())
    from irtjax.subsets import shrink as module

    whole = module.shrink
    less = lambda table, size, **given: whole(
        table, size, **given, folds=0, rule="discrimination"
    )
    monkeypatch.setattr(module, "shrink", less)


def test_everything_is_in_one_folder_with_one_summary(quick, saved_table, tmp_path):
    out = tmp_path / "deep" / "out"
    result = run("run", saved_table, "--out", out, "--verbose")
    assert result.exit_code == 0, result.stderr or result.exception
    for part in ("Who is best: ", "Bad items: ", "Fewer items: 7 of 15"):
        assert part in result.stdout
    assert result.stdout.count("Written to") == 1
    # The folder is that of the fit, with the audit and the subset in it and one page.
    assert {"audit", "subset", "run.json", "summary.md"} < {*os.listdir(out)}
    assert {*os.listdir(out)} <= {
        *(*FIT_FILES, *STRUCTURE_FILES, *RUN_FILES, "audit", "subset")
    }
    assert [x.parent for x in out.rglob("report.html")] == [out]
    assert irtjax.load(out).subject_names.size == 24
    assert (out / "audit" / "items.csv").is_file()
    assert (out / "subset" / "subset.csv").is_file()
    page = (out / "summary.md").read_text(encoding="utf-8")
    assert page.startswith("# Summary") and "## Bad items" in page
    assert "\x1b" not in page and "<b>" not in page
    # What was done in reading, such as subjects left out, is there too.
    notes = page.partition("## Notes")[2].partition("## Files")[0]
    assert notes.count("\n- ") == len(small_fit(errors=False).notes) > 0
    # All three answers are on the one page.
    page = (out / "report.html").read_text(encoding="utf-8")
    few = page[page.index('<section id="few"') :].partition("</section>")[0]
    assert (
        "7 of 15 items (error not measured)" in few
        and '<a href="#few">Fewer items</a>' in page
    )
    chosen = pyarrow.csv.read_csv(out / "subset" / "subset.csv")["item"].to_pylist()
    cells = [row.partition("</td>")[0] for row in few.split('<tr><td class="text">')]
    assert cells[1:8] == chosen
    # A second run replaces the first; other folders need --overwrite.
    again = run("run", saved_table, "--out", out, "--size", 4, "--json")
    content = json.loads(again.stdout)
    assert content["parts"] == {"fit": "done", "audit": "done", "subset": "done"}
    assert len(content["subset"]["items"]) == 4
    assert content["fit"]["num_subjects"] == 24 and content["audit"]["counts"]


def test_bad_items_are_not_in_the_subset(quick, saved_table, tmp_path, monkeypatch):
    def few(flagged):
        monkeypatch.setattr(running, "_spoilt", lambda _: flagged)
        result = run("run", saved_table, "--out", tmp_path / "out", "-v")
        assert result.exit_code == 0, result.stderr
        _, _, text = " ".join(result.stdout.split()).partition("Fewer items: ")
        page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
        chosen = pyarrow.csv.read_csv(tmp_path / "out" / "subset" / "subset.csv")
        return text.partition("warning:")[0], page, chosen["item"].to_pylist()

    text, _, chosen = few(set())
    assert "flagged" not in text
    text, page, others = few({*chosen[:3]})
    assert not {*chosen[:3]} & {*others}
    for shown in (text, page):
        assert "3 flagged items are not among the chosen items, but full" in shown
        assert "full scores count them" in shown
    items = small_table().items.tolist()
    text, page, _ = few({*items})
    for shown in (text, page):
        assert "7 of the chosen items are flagged (" in shown
        assert "too few others" in shown


def test_what_was_made_stays_when_a_part_fails(
    quick, saved_table, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    assert run("run", saved_table, "--out", out, "-q").exit_code == 0

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(running, "_audit", fail)
    result = run("run", saved_table, "--out", out, "--verbose")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        f"irtjax: audit: failed: No space left on device; fit, subset in {out} complete"
    )
    assert "Bad items: failed (No space left on device)." in result.stdout
    record = json.loads((out / "run.json").read_text())
    assert record["parts"]["audit"].startswith("failed: ")
    assert (out / "subset" / "subset.csv").is_file() and (out / "fit.json").is_file()
    # Tables of the earlier run are not of this one.
    assert not list((out / "audit").iterdir())


def content(folder):
    return {x: x.read_bytes() for x in folder.rglob("*") if x.is_file()}


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("cannot write to out: No space left"), 2), (KeyboardInterrupt(), 130)],
)
def test_a_fit_that_is_not_written_changes_nothing(
    quick, saved_table, tmp_path, monkeypatch, error, status
):
    out = tmp_path / "parent" / "out"

    def ends(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "write", ends)
        assert run("run", saved_table, "--out", out).exit_code == status
        assert not out.parent.exists()
    assert run("run", saved_table, "--out", out, "-q").exit_code == 0
    before = content(out)
    monkeypatch.setattr(pipeline, "write", ends)
    assert run("run", saved_table, "--out", out).exit_code == status
    assert content(out) == before


def test_a_folder_is_checked_again_after_the_fit(
    quick, saved_table, tmp_path, monkeypatch
):
    out, calibrate = tmp_path / "out", pipeline.calibrate

    def slow(*args):
        out.mkdir()
        (out / "mine.txt").write_text("of somebody else")
        return calibrate(*args)

    monkeypatch.setattr(pipeline, "calibrate", slow)
    result = run("run", saved_table, "--out", out)
    assert result.exit_code == 2 and "other than an earlier run" in result.stderr
    assert [x.name for x in content(out)] == ["mine.txt"]


def test_the_files_of_an_earlier_part_go_together(tmp_path, monkeypatch):
    for name in ("a.csv", "b.csv", "mine.txt"):
        (tmp_path / name).write_text(name)
    before, names = content(tmp_path), ["a.csv", "b.csv", "none.csv"]

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("irtjax.data.writing._move", killed)
        with pytest.raises(KeyboardInterrupt):
            running.remove_files(tmp_path, names)
    assert content(tmp_path) == before
    running.remove_files(tmp_path, names)
    assert [*content(tmp_path)] == [tmp_path / "mine.txt"]


def test_two_runs_do_not_mix_in_one_folder(quick, saved_table, tmp_path):
    out = tmp_path / "out"
    with reserved(out):
        result = run("run", saved_table, "--out", out)
        assert result.exit_code == 2 and "another process writes to" in result.stderr
        assert result.stderr.count("\n") == 1
    assert not out.exists()


def test_a_run_that_ends_after_its_fit_has_no_parts_of_the_earlier_one(
    quick, saved_table, tmp_path, monkeypatch
):
    out, write = tmp_path / "out", pipeline.write
    assert run("run", saved_table, "--out", out, "-q").exit_code == 0

    def interrupted(*args, **given):
        write(*args, **given)
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "write", interrupted)
    assert run("run", saved_table, "--out", out).exit_code == 130
    record = json.loads((out / "run.json").read_text())
    assert record["parts"] == {"fit": "done", "audit": "not made", "subset": "not made"}
    assert not (out / "report.html").exists() and not (out / "summary.md").exists()


def test_an_interrupt_leaves_the_parts_before(
    quick, saved_table, tmp_path, monkeypatch
):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "_shrink", interrupt)
    result = run("run", saved_table, "--out", tmp_path / "out")
    assert result.exit_code == 130 and result.stderr.endswith("irtjax: interrupted\n")
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["parts"] == {"fit": "done", "audit": "done", "subset": "not made"}


def table_of(values, **facets):
    return irtjax.ResponseTable.from_arrays(values, **facets)


def test_parts_that_responses_have_not_are_left_out():
    one = SimpleNamespace(
        several_abilities=False,
        model=irtjax.MODELS["2pl"](),
    )
    several = SimpleNamespace(**{**vars(one), "several_abilities": True})
    right = table_of(np.eye(5))
    scores = table_of(np.linspace(0.1, 0.9, 30).reshape(5, 6))
    assert running._no_audit(right, one) == running._no_subset(right, one, 2) == ""
    # Of scores there is an audit, also of several abilities.
    assert running._no_audit(scores, one) == running._no_audit(scores, several) == ""
    whole = SimpleNamespace(**{**vars(one), "model": irtjax.MODELS["share"]()})
    assert running._no_subset(scores, whole, 2) == ""
    counts = table_of(np.eye(5), trials=np.full((5, 5), 2))
    assert running._no_audit(counts, one) == running._no_subset(counts, one, 2) == ""
    assert "one ability" in running._no_audit(right, several)
    assert "one ability" in running._no_subset(right, several, 2)
    assert "at least 3" in running._no_audit(table_of(np.eye(2)), one)
    assert "at least 4" in running._no_subset(table_of(np.eye(3)), one, 2)


def test_the_subset_is_50_items_or_half():
    assert [running._size(None, n) for n in (1, 15, 99, 100, 5000)] == [
        0,
        7,
        49,
        50,
        50,
    ]
    assert running._size(15, 15) == 15
    with pytest.raises(ValueError, match="--size 16: there are 15"):
        running._size(16, 15)


def test_what_can_be_refused_is_refused_at_once(tmp_path, saved_table):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    for out, message in [
        (tmp_path / "other", "other than an earlier run"),
        (saved_table, "is a file"),
    ]:
        result = run("run", saved_table, "--out", out)
        assert result.exit_code == 2 and message in result.stderr
        assert result.stderr.count("\n") == 1
    missing = run("run", tmp_path / "none.csv", "--out", tmp_path / "out")
    assert missing.exit_code == 2 and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_command_with_nothing_replaced(tmp_path):
    irtjax.make_demo().table.save(tmp_path / "demo.parquet")
    result = run(
        "run", tmp_path / "demo.parquet", "--out", tmp_path / "out", "--figures"
    )
    assert result.exit_code == 0
    assert (tmp_path / "out" / "abilities.png").is_file()
    assert (tmp_path / "out" / "audit" / "properties.png").is_file()
    assert (tmp_path / "out" / "subset" / "subset.json").is_file()
