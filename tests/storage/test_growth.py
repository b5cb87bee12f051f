"""`add`, `history` and the ranks of new subjects among those of a fit."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.auditing import items_to_read
from irtjax.calibration.leaderboard_text import leaderboard_rows
from irtjax.cli.app import app
from irtjax.data import writing
from irtjax.plots import plot_history
from irtjax.storage import growth, load_responses
from irtjax.storage.history import _step
from irtjax.storage.snapshots import Snapshot, snapshot_of

NAMES = [f"org/model-{k:02}" for k in range(14)]


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="irtjax")


def right(items=60, subjects=14, seed=0):
    rng = np.random.default_rng(seed)
    gap = np.linspace(-1.5, 1.5, subjects)[:, None] - rng.normal(size=items)
    return (rng.random((subjects, items)) < 1 / (1 + np.exp(-gap))).astype(float)


def table_of(values, subjects=NAMES, **more):
    names = [f"q{k:02}" for k in range(values.shape[1])]
    options = {"items": names, "benchmark": [x[:2] for x in names], **more}
    return irtjax.ResponseTable.from_arrays(
        values, subjects=subjects[: len(values)], **options
    )


WHOLE = table_of(right())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The fit of eleven models, and its responses."""
    old = WHOLE.select(subjects=NAMES[:11])
    place = tmp_path_factory.mktemp("growth") / "fit"
    return irtjax.save(irtjax.fit(old, "rasch"), place, responses=old)


@pytest.fixture
def folder(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "fit"))


def test_a_new_model_stands_where_another_fit_puts_it(saved):
    """Against a fit of all twelve: the same rank, and a score within part of its error.

    The items move by what one of twelve models adds, 1 / sqrt(12) of an error at most.
    """
    scored = irtjax.score(irtjax.load(saved), WHOLE.select(subjects=[NAMES[11]]))
    (row,) = scored.table.to_pylist()
    again = irtjax.rank(irtjax.fit(WHOLE.select(subjects=NAMES[:12]), "rasch"))
    other = {x["subject"]: x for x in again.table.to_pylist()}[NAMES[11]]
    assert row["rank"] == other["rank"]
    for name in ("rank_lower", "rank_upper"):
        assert abs(row[name] - other[name]) <= 1
    gap = abs(row["expected_score"] - other["expected_score"])
    assert gap < other["expected_score_se"] / 12**0.5
    assert row["accuracy"] == pytest.approx(other["accuracy"])
    ratio = row["expected_score_se"] / other["expected_score_se"]
    assert ratio == pytest.approx(1, abs=0.25)
    assert row["tied_with"] and NAMES[0] not in row["tied_with"].split("; ")


def test_a_model_of_the_fit_keeps_its_place(saved):
    fit = irtjax.load(saved)
    scored = irtjax.score(fit, WHOLE.select(subjects=NAMES[3:5]))
    mine = {x["subject"]: x for x in irtjax.rank(fit).table.to_pylist()}
    for row in scored.table.to_pylist():
        known = mine[row["subject"]]
        assert row["rank"] == known["rank"]
        gap = abs(row["expected_score"] - known["expected_score"])
        assert gap < known["expected_score_se"] / 4
    assert len(scored.whole.subject_names) == 11


def test_added_models_join_without_moving_others(folder):
    before = irtjax.load(folder).abilities.table.to_pydict()
    done = irtjax.add(folder, WHOLE.select(subjects=[NAMES[11]]))
    assert done.subjects == (NAMES[11],) and done.refit == "" and done.changed
    fit = irtjax.load(folder)
    assert fit.subject_names.tolist() == NAMES[:12]
    after = fit.abilities.table.to_pydict()
    for name in ("ability", "ability_se", "expected_score", "accuracy"):
        assert after[name][:11] == before[name]
    assert sorted(after["rank"]) == [*range(1, 13)]
    kept = load_responses(folder)
    assert kept.data_hash() == WHOLE.select(subjects=NAMES[:12]).data_hash()
    assert fit.data_hash == kept.data_hash()
    # Every command takes the folder as before.
    for words in (("rank",), ("info",), ("audit",)):
        assert run(*words, folder, "--json").exit_code == 0
    pair = run("compare", NAMES[0], NAMES[11], "--fit", folder, "--json")
    assert json.loads(pair.stdout)["shared"] == 60


def test_what_is_known_already_is_not_added_again(folder):
    first = (folder / "fit.json").read_bytes()
    done = irtjax.add(folder, WHOLE.select(subjects=NAMES[:5]))
    assert not done.changed and (folder / "fit.json").read_bytes() == first
    # All logs, with one new model among them.
    done = irtjax.add(folder, WHOLE.select(subjects=NAMES[:12]))
    assert done.subjects == (NAMES[11],) and not done.refit
    other = table_of(1 - right()).select(subjects=[NAMES[0]])
    with pytest.raises(ValueError, match=r"'org/model-00', item 'q00': .* in the fit"):
        irtjax.add(folder, other)


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (WHOLE.select(subjects=NAMES[11:]), "3 models were added to the 11 models"),
        (table_of(right(61)).select(subjects=[NAMES[11]]), "1 item is new (q60)"),
        (table_of(right(62)).select(subjects=[NAMES[2]], items=[60, 61]), "2 items"),
    ],
)
def test_the_items_are_fitted_again_where_the_scale_asks_for_it(folder, new, reason):
    done = irtjax.add(folder, new)
    assert reason in done.refit
    fit = irtjax.load(folder)
    assert fit.model.name == "rasch" and fit.options.get("added") is None
    (step,) = irtjax.history(folder).steps
    assert step.calibrated == done.refit
    assert step.subjects_added == done.subjects
    # It is the fit of all responses, made once.
    alone = irtjax.fit(load_responses(folder), "rasch")
    assert fit.log_likelihood == pytest.approx(alone.log_likelihood, rel=1e-9)


def test_refit_may_be_refused_or_requested(folder, tmp_path):
    new = table_of(right(61)).select(subjects=[NAMES[11]])
    with pytest.raises(ValueError, match="refit='now' is not one of auto"):
        irtjax.add(folder, new, refit="now")
    done = irtjax.add(folder, new, refit="never")
    assert done.refit == "" and "q60" in done.notes[-1]
    done = irtjax.add(folder, WHOLE.select(subjects=[NAMES[12]]), refit="always")
    assert done.refit
    old = WHOLE.select(subjects=NAMES[:11])
    alone = irtjax.save(irtjax.fit(old, "rasch"), tmp_path / "alone")
    done = irtjax.add(alone, new)
    assert done.refit == "" and any("does not keep its resp" in x for x in done.notes)
    with pytest.raises(ValueError, match="cannot be fitted again: the fit does not"):
        irtjax.add(alone, WHOLE.select(subjects=[NAMES[12]]), refit="always")


def snapshot(abilities, error=0.1, level=0.95, items=("a", "b")):
    import pyarrow as pa

    names = list(abilities)
    values = np.array(list(abilities.values()), float)
    rank = (-values).argsort().argsort() + 1
    columns = {"subject": names, "ability": values, "rank": rank}
    columns |= {"rank_lower": rank, "rank_upper": rank}
    columns |= {"error": np.full(len(names), error), "shared": [[] for _ in names]}
    columns |= {"expected_score": values / 10}
    return Snapshot("", "2026-01-01", "", level, pa.table(columns), np.array(items))


def test_moves_are_those_that_are_significant_both_times():
    before = snapshot({"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.99})
    after = snapshot({"a": 1.0, "b": 2.0, "c": 0.99, "d": 1.0}, items=("b", "z"))
    step = _step(before, after)
    # c and d change their ranks, by a tenth of an error.
    assert [(x.subject, x.passed, x.passed_by) for x in step.moves] == [
        ("b", ("a",), ()),
        ("a", (), ("b",)),
    ]
    assert step.items_added == ("z",) and step.items_retired == ("a",)
    new = snapshot({"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.99, "e": 2.5})
    step = _step(before, new)
    assert not step.moves and step.subjects_added == ("e",)
    assert step.below == {"b": ("e",), "c": ("e",), "d": ("e",)}
    gone = _step(new, before)
    assert gone.subjects_gone == ("e",) and not gone.below


def test_false_moves_are_rare():
    """Equal models, another independent set of responses at each time: 400 histories.

    Both times a pair must be significant at 5 %, adjusted over six pairs.
    """
    rng, moves = np.random.default_rng(0), 0
    for _ in range(400):
        pair = [dict(zip("abcd", rng.normal(size=4), strict=True)) for _ in range(2)]
        moves += bool(_step(*(snapshot(x, error=1.0) for x in pair)).moves)
    assert moves <= 3


def test_history_of_a_fit_on_the_screen(folder, tmp_path):
    empty = run("history", folder)
    assert "No model was added yet: irtjax add NEW --to" in empty.stdout
    WHOLE.select(subjects=[NAMES[11]]).save(tmp_path / "new.parquet")
    added = run("add", tmp_path / "new.parquet", "--to", folder)
    assert added.exit_code == 0, added.stderr
    assert "1 new subject of 12" in added.stdout
    assert (folder / "leaderboard.md").is_file()
    assert NAMES[11] in (folder / "report.html").read_text(encoding="utf-8")
    # The items to read are those of all twelve models.
    fit, table = irtjax.load(folder), load_responses(folder)
    to_read = pyarrow.csv.read_csv(folder / "items_to_read.csv")
    assert to_read["models"].to_pylist() == [12] * to_read.num_rows
    found = items_to_read(fit, table).table
    for name in ("item", "count", "p_value"):
        assert to_read[name].to_pylist() == pytest.approx(found[name].to_pylist())
    picture = tmp_path / "history.png"
    shown = run("history", folder, "--figure", picture)
    assert shown.exit_code == 0, shown.stderr
    assert "1 model added (org/model-11), no significant move" in shown.stdout
    # A path is never broken.
    lines = [x for x in shown.stdout.splitlines() if x != str(picture)]
    assert max(map(len, lines)) <= 80
    # Scores have the digits of the leaderboard.
    header, *board = leaderboard_rows(irtjax.rank(fit))
    shown = {row[1]: row[2] for row in irtjax.history(folder).standings()[1]}
    name, score = header.index("subject"), header.index("score")
    assert shown == {row[name]: row[score] for row in board[0]}
    assert picture.read_bytes()[:4] == b"\x89PNG"
    found = json.loads(run("history", folder, "--json").stdout)
    assert found["steps"][0]["subjects_added"] == [NAMES[11]]
    times = {row["date"] for row in found["subjects"]}
    assert len(times) == 2 and len(found["subjects"]) == 23
    labels = [x.get_text() for x in plot_history(irtjax.history(folder)).axes[0].texts]
    assert NAMES[11] in labels
    # A second time changes nothing, and says so.
    again = run("add", tmp_path / "new.parquet", "--to", folder)
    assert again.exit_code == 0 and "Nothing was added." in again.stdout


ADD = """
import sys, jax
jax.config.update("jax_enable_x64", True)
import irtjax
print(irtjax.add(sys.argv[1], sys.argv[2]).subjects)
"""


def test_the_page_has_the_history(folder):
    assert run("report", folder).exit_code == 0
    assert 'id="history"' not in (folder / "report.html").read_text()
    irtjax.add(folder, WHOLE.select(subjects=[NAMES[11]]))
    assert run("report", folder).exit_code == 0
    page = (folder / "report.html").read_text()
    section = page[page.index('<section id="history"') :].partition("</section>")[0]
    assert section.count('class="fresh"') == 1 and section.count('class="dot"') == 22
    assert f"1 model added ({NAMES[11]})" in section


def test_processes_that_add_at_once_lose_nothing(folder, tmp_path):
    work, names = [], NAMES[11:13]
    for name in names:
        path = tmp_path / f"{name[-2:]}.parquet"
        WHOLE.select(subjects=[name]).save(path)
        command = [sys.executable, "-c", ADD, str(folder), str(path)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        work.append(subprocess.Popen(command, **pipes))
    for process in work:
        out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    assert {*irtjax.load(folder).subject_names} == {*NAMES[:13]}
    assert {*load_responses(folder).subjects} == {*NAMES[:13]}
    found = irtjax.history(folder)
    assert sorted(x for step in found.steps for x in step.subjects_added) == names
    assert len(found.steps) == 2


def test_add_waits_for_another_process_and_not_for_ever(folder, monkeypatch):
    monkeypatch.setattr(growth, "PATIENCE", 0.2)
    with writing.reserved(folder / "snapshots"):
        with pytest.raises(ValueError, match="another process writes to"):
            irtjax.add(folder, WHOLE.select(subjects=[NAMES[11]]))
    assert irtjax.add(folder, WHOLE.select(subjects=[NAMES[11]])).changed


def test_a_fit_that_is_replaced_meanwhile_is_not_lost(folder, monkeypatch):
    whole, calls = growth._grown, []

    def slow(*args):
        calls.append(1)
        if len(calls) == 1:  # Another command replaces the fit.
            old = WHOLE.select(subjects=NAMES[:10])
            irtjax.save(irtjax.fit(old, "rasch"), folder, responses=old)
        return whole(*args)

    monkeypatch.setattr(growth, "_grown", slow)
    irtjax.add(folder, WHOLE.select(subjects=[NAMES[11]]))
    names = irtjax.load(folder).subject_names.tolist()
    assert len(calls) == 2 and names == [*NAMES[:10], NAMES[11]]


def test_an_add_that_ends_early_changes_nothing(folder, monkeypatch):
    content = lambda: {x: x.read_bytes() for x in folder.iterdir() if x.is_file()}
    before = content()

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(growth, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            irtjax.add(folder, WHOLE.select(subjects=[NAMES[11]]))
    assert content() == before and not irtjax.history(folder).steps
    irtjax.add(folder, WHOLE.select(subjects=[NAMES[11]]))
    # The snapshot that was left is that of this step, once.
    assert len(os.listdir(folder / "snapshots")) == 1
    assert len(irtjax.history(folder).steps) == 1


@pytest.mark.parametrize("name", ["snapshot.json", "subjects.parquet", "items.parquet"])
def test_a_snapshot_that_was_changed_is_refused(folder, name):
    irtjax.add(folder, WHOLE.select(subjects=[NAMES[11]]))
    (place,) = (folder / "snapshots").iterdir()
    content = (place / name).read_bytes()
    (place / name).write_bytes(content[:-20] + content[-19:])
    for words in (("history", folder), ("rank", folder), ("info", folder)):
        refused = run(*words)
        assert refused.exit_code == 2 and refused.stderr.count("\n") == 1
        assert "was changed after it was written" in refused.stderr


def test_a_snapshot_has_the_errors_of_the_fit(saved):
    fit = irtjax.load(saved)
    found = snapshot_of(fit, "2026-01-01")
    ranked = irtjax.rank(fit)
    from irtjax.storage.history import _ahead

    ahead = _ahead(found, fit.subject_names.tolist())
    assert int(ahead.sum()) == ranked.num_different


def test_items_that_are_fitted_again_keep_the_scale_of_before(folder):
    """The three new models are the best: a scale of all would lower the eleven."""
    before = irtjax.load(folder).abilities.table["ability"].to_numpy()
    done = irtjax.add(folder, WHOLE.select(subjects=NAMES[11:]))
    assert "abilities stay on the scale of before: 60 items link" in done.notes[-1]
    fit = irtjax.load(folder)
    alone = irtjax.fit(load_responses(folder), "rasch").abilities.table
    shift = fit.abilities.table["ability"].to_numpy() - alone["ability"].to_numpy()
    assert np.ptp(shift) < 1e-5 and fit.notes[-1].startswith("on the scale of the fit")
    moved = alone["ability"].to_numpy()[:11] - before
    kept = fit.abilities.table["ability"].to_numpy()[:11] - before
    assert moved.mean() < -0.2 and abs(kept.mean()) < 0.05
    # Ranks are those of the new fit.
    assert fit.abilities.table["rank"].equals(alone["rank"])


def test_an_item_of_another_content_is_another_item(tmp_path):
    contents = {name: f"lm-eval:{name}" for name in WHOLE.items.tolist()}
    logged = dataclasses.replace(WHOLE, item_contents=contents)
    old = logged.select(subjects=NAMES[:11])
    place = irtjax.save(irtjax.fit(old, "rasch"), tmp_path / "fit", responses=old)
    # One item was corrected, and two have each other's number.
    contents = contents | {"q00": "lm-eval:corrected"}
    contents |= {"q01": "lm-eval:q02", "q02": "lm-eval:q01"}
    corrected = dataclasses.replace(WHOLE, item_contents=contents)
    done = irtjax.add(place, corrected.select(subjects=[NAMES[11]]))
    assert "1 item is new (q00 (2))" in done.refit
    assert (
        "1 item has another content" in done.notes[0] and "60 items" in done.notes[-1]
    )
    kept = load_responses(place)
    row = kept.subjects.tolist().index(NAMES[11])
    column = [kept.items.tolist().index(x) for x in ("q01", "q02", "q00 (2)")]
    assert kept.values[row, column].tolist() == WHOLE.values[11, [2, 1, 0]].tolist()
    # Where nearly all differ they are no versions of these items.
    others = {name: f"lm-eval:other {name}" for name in contents}
    strange = dataclasses.replace(WHOLE, item_contents=others)
    with pytest.raises(ValueError, match="are others than those of the same names"):
        irtjax.add(place, strange.select(subjects=[NAMES[12]]))
