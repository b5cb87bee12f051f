"""No verb joins items of equal names and other contents: a re-ordered benchmark."""

import dataclasses
import hashlib

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.adaptive.labels import label
from irtjax.adaptive.misfit import _of_calibration
from irtjax.adaptive.study import _matched
from irtjax.calibration.flow import rank_flow
from irtjax.cli.app import app
from irtjax.cli.pipeline import Job, calibrate
from irtjax.cli.progress import ProgressLine
from irtjax.data.item_texts import ItemText
from irtjax.data.matching import match_all_items
from irtjax.fitting.anchors import read_anchor, refuse_other_anchors
from irtjax.harness.lm_eval import Rounds
from irtjax.prediction.agreement import response_icc
from irtjax.report.page_data import cells_of
from irtjax.storage import load_contents
from irtjax.subsets.pool import make_pool
from irtjax.subsets.shrink import _estimate
from tests.harness.logs import NAMES, TASKS, toy_fit, write_logs
from tests.small_fits import small_fit, small_table

REFUSED = "are others than those"


def numbered(names, shift=0):
    """Contents of items, as if the benchmark had been moved by some places."""
    return {name: f"lm-eval:{k + shift}" for k, name in enumerate(map(str, names))}


def of(thing, shift=0):
    names = getattr(thing, "item_names", None)
    names = thing.items if names is None else names
    return dataclasses.replace(thing, item_contents=numbered(names, shift))


@pytest.mark.slow
def test_verbs_refuse_responses_to_other_items_of_the_same_names():
    fit, same, other = of(small_fit()), of(small_table()), of(small_table(), 1)
    bank = label(fit, 3, None, None, {})
    uses = {
        "score": lambda data: irtjax.score(fit, data),
        "replay": lambda data: _matched(bank, data, False),
        "page": lambda data: cells_of(fit, data),
        "clusters": lambda data: match_all_items(
            data, fit.item_names, "analyse", fit.item_contents
        ),
        "shrink": lambda data: _estimate(make_pool(data, fit, stratify=None)[0], fit),
        "flow": lambda data: rank_flow(fit, 3, data=data),
    }
    for use in uses.values():
        use(same)
        with pytest.raises(ValueError, match=REFUSED):
            use(other)


def test_another_fit_has_the_items_of_the_bank():
    fit = of(small_fit())
    bank = label(fit, 3, None, None, {})
    _of_calibration(fit, bank)
    with pytest.raises(ValueError, match="in the fit of the truth, such as"):
        _of_calibration(of(fit, 1), bank)


def test_correlations_of_repeats_are_of_the_items_of_the_fit():
    table = of(small_table(), 1)
    trials = np.full(table.values.shape, 2)
    counts = dataclasses.replace(table, trials=trials)
    with pytest.raises(ValueError, match=REFUSED):
        response_icc(of(small_fit()), counts)


def test_anchors_are_those_of_the_same_items(tmp_path):
    fit = dataclasses.replace(of(small_fit()), item_texts={"b0/q0": ItemText("?")})
    irtjax.save(fit, tmp_path / "fit")
    assert load_contents(tmp_path / "fit") == dict(fit.item_contents)
    job = Job("2pl", "em", {"anchor": tmp_path / "fit"})
    with pytest.raises(ValueError, match=f"in the fit {tmp_path / 'fit'}, such as"):
        calibrate(of(small_table(), 1), job, None, ProgressLine(True), 0.0)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_anchors_of_a_file_of_a_fit_are_those_of_the_same_items(ending, tmp_path):
    fit = of(small_fit())
    irtjax.save(fit, tmp_path / "fit")
    path = tmp_path / "fit" / f"items.{ending}"
    with pytest.raises(ValueError, match=f"in the fit of {path}, such as"):
        irtjax.fit(of(small_table(), 1), "2pl", "em", anchor=str(path))
    anchored = read_anchor(path)
    refuse_other_anchors(path, anchored, fit.item_contents)
    # Items that are not anchored may be others, and a copy elsewhere has no contents.
    others = of(small_table(), 1).item_contents
    refuse_other_anchors(path, {}, others)
    refuse_other_anchors(tmp_path / "items.csv", anchored, others)


def test_rounds_of_a_harness_refuse_documents_of_another_version(tmp_path):
    hashes = {x: hashlib.sha256(x.encode()).hexdigest() for x in NAMES}
    contents = {x: f"lm-eval:{y}" for x, y in hashes.items()}
    moved = dict(zip(contents, [*contents.values()][1:] + ["lm-eval:0"], strict=True))
    for name, known in (("same", contents), ("moved", moved)):
        fit = dataclasses.replace(toy_fit(), item_contents=known)
        rounds = Rounds.begin(fit, tmp_path / name, round_size=4, num_items=8)
        rounds.step()
        asked: dict[str, list[int]] = {}
        for item in rounds.test.handed_out:
            task, _, number = item.partition("/")
            asked.setdefault(task, []).append(int(number))
        write_logs(asked, rounds.logs)
        if name == "same":
            assert rounds.step() and rounds.test.num_given == 4
        else:
            with pytest.raises(ValueError, match="4 documents are others than those"):
                rounds.step()
            assert rounds.test.num_given == 0


def test_ids_join_where_they_are_said_to_be_right(tmp_path):
    """`--join id` is what the refusal names, and no command had it."""
    fit = of(toy_fit())
    irtjax.save(fit, tmp_path / "fit")
    asked = {task: [*range(size)] for task, size in TASKS.items()}
    write_logs(asked, tmp_path / "logs")
    logs = str(tmp_path / "logs")

    def run(*words):
        return CliRunner().invoke(app, [*map(str, words)])

    score = ("score", logs, "--fit", tmp_path / "fit", "--quiet")
    refused = run(*score)
    assert refused.exit_code == 2
    assert "or pass --join id if the names are right" in refused.stderr
    assert run(*score, "--join", "id").exit_code == 0
    replay = (
        "adapt",
        tmp_path / "fit",
        "--replay",
        logs,
        "--num-items",
        3,
        "--quiet",
    )
    assert "--join id" in run(*replay).stderr
    assert run(*replay, "--join", "id").exit_code == 0
    pair = ("compare", *fit.subject_names[:2], "--fit", tmp_path / "fit", "--json")
    assert "--join requires LOGS" in run(*pair, "--join", "id").stderr
    # With them the names join, and who is compared is not in them.
    assert "no subject named" in run(*pair, logs, "--join", "id").stderr
    wrong = run("info", logs, "--join", "names")
    assert "--join names is not one of" in wrong.stderr
    alone = run("adapt", tmp_path / "fit", "--join", "id")
    assert "--join requires --replay" in alone.stderr
