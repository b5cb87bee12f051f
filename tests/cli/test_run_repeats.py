"""The commands on folders in which every model answered each item several times."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app

MODELS, ITEMS, TRIALS = 6, 12, 3


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="irtjax")


def right():
    """Responses `[models, items, trials]` of which those to one item agree."""
    rng = np.random.default_rng(3)
    ability, easy = np.linspace(-1.5, 1.5, MODELS), rng.normal(0, 1, ITEMS)
    chance = 1 / (1 + np.exp(-(ability[:, None] + easy)))
    chance = rng.beta(chance, 1 - chance)[:, :, None]
    return (rng.random((MODELS, ITEMS, TRIALS)) < chance).astype(int)


@pytest.fixture
def inspect_logs(tmp_path):
    """Logs of Inspect with three epochs."""
    folder = tmp_path / "inspect"
    folder.mkdir()
    for m, model in enumerate(right()):
        samples = [
            {
                "id": f"q{k}",
                "epoch": epoch + 1,
                "scores": {"match": {"value": "CI"[1 - model[k, epoch]]}},
            }
            for epoch in range(TRIALS)
            for k in range(ITEMS)
        ]
        spec = {"task": "t", "model": f"org/m{m}", "eval_id": f"e{m}"}
        log = {"status": "success", "eval": spec, "samples": samples}
        (folder / f"{m}.json").write_text(json.dumps(log))
    return folder


@pytest.fixture
def harness_logs(tmp_path):
    """Logs of a generate_until task with three repeats and two unusual filters."""
    folder = tmp_path / "lm eval"
    for m, model in enumerate(right()):
        lines = [
            {
                "doc_id": k,
                "doc_hash": f"h{k}",
                "doc": {"question": f"q{k}"},
                "target": "1",
                "filter": name,
                "metrics": ["exact_match"],
                "exact_match": 1.0,
                "scores_per_repeat": {"exact_match": scores},
            }
            for name in ("first-number", "any-number")
            for k in range(ITEMS)
            for scores in [
                model[k].tolist() if name == "first-number" else [1] * TRIALS
            ]
        ]
        path = folder / f"org__m{m}" / "samples_gsm_2026-04-01T00-00-00.000000.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize("kind", ["inspect_logs", "harness_logs"])
def test_a_run_takes_repeats_to_the_end(kind, request, tmp_path):
    logs, out = request.getfixturevalue(kind), tmp_path / "out"
    # The method that compiles in the shortest time.
    result = run("run", logs, "--out", out, "--method", "em", "--verbose")
    assert result.exit_code == 0, result.stderr or result.exception
    parts = json.loads((out / "run.json").read_text())["parts"]
    assert parts == {"fit": "done", "audit": "done", "subset": "done"}
    fit = irtjax.load(out)
    assert fit.options["model"].startswith("share")
    table = irtjax.read(logs)
    assert table.values.tolist() == right().sum(axis=2).tolist()
    shown = " ".join(result.stdout.split())
    assert "72 subject-item pairs had repeats by epoch or trial" in shown
    if kind == "harness_logs":
        assert "with first-number, not any-number" in shown
        other = irtjax.read(logs, filter="any-number")
        assert (other.values == TRIALS).all()
    scored = run("score", logs, "--fit", out, "--json")
    assert scored.exit_code == 0, scored.stderr
    first = json.loads(scored.stdout)["subjects"][0]
    assert first["accuracy"] == pytest.approx(right()[0].mean(), abs=1e-9)


@pytest.mark.slow
def test_other_commands_take_repeats(inspect_logs, tmp_path):
    shown = run("info", inspect_logs)
    assert shown.exit_code == 0 and "There is a choice" not in shown.stdout
    for words in (
        ("dimensions", inspect_logs, "--most", "1"),
        ("stability", inspect_logs, "--kind", "halves", "--model", "rasch"),
        ("shrink", inspect_logs, "--size", "4", "--out", tmp_path / "subset"),
    ):
        result = run(*words)
        assert result.exit_code == 0, (words, result.stderr, result.exception)
