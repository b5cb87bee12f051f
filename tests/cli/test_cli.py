"""The command line: the whole job, and one line for every bad input."""

import csv
import dataclasses
import json
import os
import pickle
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax._backend import OPTION
from irtjax.cli.app import app
from irtjax.cli.errors import as_options
from irtjax.cli.progress import ProgressLine
from irtjax.models.catalogue import ORDERED_MODELS
from irtjax.report.words import wording
from tests.small_fits import NASTY, small_fit, small_table

CHECKOUT = Path(__file__).resolve().parents[2]


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="irtjax")


def ok(*args: object):
    result = run(*args)
    assert result.exit_code == 0, result.stderr or result.exception
    return result


def strict(text: str):
    """The one JSON document of an output, without NaN or Infinity."""

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


def write_long(path: Path, table: irtjax.ResponseTable) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["model", "item", "benchmark", "correct"])
        for i, j in np.argwhere(table.observed):
            names = table.subjects[i], table.items[j], table.benchmarks[j]
            out.writerow([*names, int(table.values[i, j])])
    return path


@pytest.fixture(scope="module")
def responses(tmp_path_factory) -> Path:
    return write_long(tmp_path_factory.mktemp("data") / "long.csv", small_table())


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return irtjax.save(small_fit(), tmp_path_factory.mktemp("fits") / "fit")


def test_files_of_a_command_name_options_and_those_of_python_settings(tmp_path):
    warnings, notes = ("use method='nuts'",), ("read with missing_as='wrong'",)
    fit = dataclasses.replace(small_fit(), warnings=warnings, notes=notes)
    folder = irtjax.save(fit, tmp_path / "fit")
    ok("report", folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "use --method nuts" in page and "read with --missing-as wrong" in page
    assert "method=" not in page.partition("<h2>Warnings")[2]
    page = irtjax.report.leaderboard(fit, irtjax.rank(fit))
    assert "use method='nuts'" in page and "missing\\_as='wrong'" in page
    with wording(as_options):
        page = irtjax.report.leaderboard(fit, irtjax.rank(fit))
    assert "use --method nuts" in page and "read with --missing-as wrong" in page


def test_fit_writes_everything_and_says_where(tmp_path, responses):
    out = tmp_path / "deep" / "fit"
    more = ("--level", 0.9, "--seed", 3, "--figures", "--verbose")
    result = ok("fit", responses, "--out", out, *more)
    assert {p.name for p in out.iterdir()} == {
        *("fit.json", "parameters.npz", "leaderboard.md", "report.html"),
        *("items.parquet", "items.csv", "abilities.parquet", "abilities.csv"),
        *("abilities.png", "wright_map.png", "item_response_functions.png"),
        *("test_information.png", "responses.parquet"),
        # 24 subjects: items are integrated out, with priors learned from all of them.
        *("effects.csv", "variance_components.csv", "responses.parquet"),
    }
    assert "Chosen from the data: model 2pl" in result.stdout
    assert "90 % interval" in result.stdout and "leaderboard.md" in result.stdout
    assert "negative discrimination" in result.stdout and "\x1b" not in result.stdout
    fit = irtjax.load(out)
    assert fit.level == 0.9 and fit.options["seed"] == 3
    assert fit.timings["read"] > 0
    # The same numbers as from Python: the file has what the table has.
    np.testing.assert_allclose(
        fit.parameters.items.intercept[np.argsort(fit.item_names)],
        irtjax.fit(small_table()).parameters.items.intercept[
            np.argsort(small_table().items)
        ],
        atol=1e-6,
    )


def test_fit_for_machines(tmp_path, responses):
    out = tmp_path / "fit"
    more = ("--no-figures", "--standard-errors", "none", "--verbose")
    result = ok("fit", responses, "-o", out, "--json", *more)
    content = strict(result.stdout)
    assert content["num_subjects"] == 24 and content["model"]["name"] == "2pl"
    assert content["subjects"][0]["rank"] == 1
    assert content["items_without_variation"] == {"all right": ["b0/q0"]}
    assert "all right" not in content["flagged_items"]
    assert not (out / "abilities.png").exists()


def test_quiet_says_nothing(tmp_path, responses):
    more = ("--no-figures", "--standard-errors", "none", "--quiet")
    result = ok("fit", responses, "--out", tmp_path / "fit", *more)
    assert result.stdout == "" and result.stderr == ""


@pytest.mark.slow
def test_float32(tmp_path, responses):
    more = ("--no-figures", "--standard-errors", "none", "--float32", "-q")
    try:
        ok("fit", responses, "--out", tmp_path / "fit", *more)
    finally:
        jax.config.update("jax_enable_x64", True)
    loaded = irtjax.load(tmp_path / "fit")
    assert loaded.parameters.items.intercept.dtype == np.float32
    assert loaded.options["dtype"] == "float32"


def test_anchored_items_stay_where_they_are(tmp_path, responses, saved):
    out = tmp_path / "fit"
    more = ("--no-figures", "--standard-errors", "none", "-q")
    ok("fit", responses, "--out", out, "--anchor", saved, *more)
    place = {name: k for k, name in enumerate(small_fit().item_names)}
    loaded = irtjax.load(out)
    order = [place[name] for name in loaded.item_names]
    # To 1e-8: the tables hold doubles, and CSV is not on the way.
    np.testing.assert_allclose(
        loaded.parameters.items.intercept,
        small_fit().parameters.items.intercept[order],
        atol=1e-8,
    )


@pytest.mark.parametrize(
    ("method", "ending"),
    [("eap", "csv"), ("eap", "parquet"), ("map", "csv"), ("ml", "csv"), ("wle", "csv")],
)
def test_score(tmp_path, responses, saved, method, ending):
    out = tmp_path / f"scores.{ending}"
    result = ok("score", responses, "--fit", saved, "--scoring", method, "-o", out)
    # Scores of the fit's kind are ranked among those of the fit.
    title = "rank" if method == "eap" else f"24 subjects, {method.upper()} scores"
    assert result.stdout.lstrip().startswith(title)
    assert str(out) in result.stdout
    if ending == "parquet":
        import pyarrow.parquet as pq

        rows = pq.read_table(out).to_pylist()
    else:
        rows = list(csv.DictReader(open(out, encoding="utf-8")))
    assert len(rows) == 24
    if method == "eap":
        # Scoring the calibration data gives the abilities of the calibration.
        table = small_fit().abilities.table
        names = table.column("subject").to_pylist()
        known = dict(zip(names, table.column("ability").to_pylist(), strict=True))
        for row in rows:
            assert abs(float(row["ability"]) - known[row["subject"]]) < 1e-6
    assert all(float(row["ability_se"]) > 0 for row in rows)


def test_score_ignores_unknown_items_and_says_so(tmp_path, saved):
    path = tmp_path / "new.csv"
    path.write_text("model,item,correct\nnew,b1/q1,1\nnew,b0/q2,0\nnew,strange,1\n")
    content = strict(ok("score", path, "--fit", saved, "--json").stdout)
    assert content["subjects"][0]["observed"] == 2
    assert any("1 item is not in the fit" in note for note in content["notes"])
    shown = ok("score", path, "--fit", saved).stdout
    assert "new " in shown and "item is not in the fit and left out: strange" in shown


def test_rank(saved, tmp_path):
    result = ok("rank", saved, "--verbose")
    assert "rank" in result.stdout and "P(best)" in result.stdout
    content = strict(ok("rank", saved, "--json", "--level", 0.8).stdout)
    subjects = content["subjects"]
    assert content["level"] == 0.8 and subjects[0]["rank"] == 1
    assert abs(sum(s["probability_best"] for s in subjects) - 1) < 1e-9
    abilities = [s["ability"] for s in subjects]
    assert abilities == sorted(abilities, reverse=True)
    assert {name for group in content["groups"] for name in group} == {
        s["subject"] for s in subjects
    }
    assert ok("rank", saved, "--json").stdout == ok("rank", saved, "--json").stdout
    picture = tmp_path / "changes.png"
    ok("rank", saved, "--against", saved, "--figure", picture, "--quiet")
    assert [p.name for p in tmp_path.glob("*.png")] == ["changes.png"]
    assert picture.read_bytes()[:4] == b"\x89PNG"
    lost = tmp_path / "no" / "changes.png"
    assert_refused(run("rank", saved, "--against", saved), "requires --figure")
    both = ("rank", saved, "--against", saved, "--figure")
    assert_refused(run(*both, lost), "choose a folder that exists")
    assert_refused(run(*both, tmp_path / "changes.gif"), "ends in .png")


def test_compare(saved, responses):
    best, worst = "vendor/model_22", "vendor/model_0"
    content = strict(ok("compare", best, worst, "--fit", saved, "--json").stdout)
    assert content["difference"] > 0 and content["shared"] is None
    back = strict(ok("compare", worst, best, "--fit", saved, "--json").stdout)
    assert back["difference"] == -content["difference"]
    more = (responses, "--verbose")
    result = ok("compare", worst, best, "--fit", saved, *more)
    # Always the first less the second.
    assert result.stdout.startswith(f"{worst} − {best}: score −.")
    assert f"{best} is better, P > .99" in result.stdout
    assert "items that both answered" in " ".join(result.stdout.split())
    assert "paired t test over" in " ".join(result.stdout.split())
    alone = ok("compare", worst, best, "--fit", saved, "--verbose").stdout
    alone = " ".join(alone.split())
    # The interval has the error of the scale, z and p have not.
    given = content["difference"] / content["z"]
    wider = content["standard_error"] > 1.01 * given
    assert wider and "interval can contain 0 where p is small" in alone


def test_predict(saved, tmp_path):
    out = tmp_path / "chances.csv"
    ok("predict", saved, "--out", out, "--subject-names", "vendor/model_3")
    rows = list(csv.DictReader(open(out, encoding="utf-8")))
    assert len(rows) == 15 and {row["subject"] for row in rows} == {"vendor/model_3"}
    assert all(0 <= float(row["expected"]) <= 1 for row in rows)
    wrong = run("predict", saved, "--out", out, "--item-names", "b0/q")
    assert_refused(wrong, "no item is called")
    assert_refused(run("predict", saved, "--out", tmp_path / "x.txt"), "must end in")


def test_notes_name_options_as_they_are_typed(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, size=(60, 4)).astype(str)
    text = "\n".join(["q1,q2,q3,q4", *map(",".join, rows)])
    (tmp_path / "wide.csv").write_text(text + "\n", encoding="utf-8")
    more = ("--no-figures", "--standard-errors", "none", "--verbose")
    result = ok("fit", tmp_path / "wide.csv", "-o", tmp_path / "fit", *more)
    said = " ".join(result.stdout.split())
    assert "pass --orientation items_by_subjects" in said
    assert "orientation=" not in said


def test_a_narrow_screen_loses_whole_columns_not_digits(monkeypatch, capsys):
    from irtjax.cli import screen

    for width in (80, 100, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        screen.show_ranking(small_fit().rank(), everything=True)
        text = capsys.readouterr().out
        header = next(line for line in text.splitlines() if "subject " in line)
        assert ("responses" in header) == (width == 160)
        assert "95 % interval" in header and "groups" in header
        assert "…" not in header
        # Every interval is whole: two numbers around its dots.
        assert text.count(" … ") == 2 * len(small_fit().subject_names)
        assert max(map(len, text.splitlines())) <= width


def test_accuracies_by_benchmark_are_shown_where_there_are_several(
    responses, tmp_path, monkeypatch, capsys
):
    from irtjax.cli import screen
    from irtjax.report.words import score_text

    fast = ("--standard-errors", "none", "--no-figures", "--verbose")
    shown = ok("fit", responses, "-o", tmp_path / "fit", *fast).stdout
    section = shown.split("Accuracy by benchmark")[1]
    ranked = irtjax.load(tmp_path / "fit").rank()
    for row in ranked.rows(stop=3):
        cells = [
            score_text(
                *(row[f"accuracy[{name}]{end}"] for end in ("", "_lower", "_upper"))
            )
            for name in ("b0", "b1")
        ]
        assert f"{cells[0]}  {cells[1]}" in section
    # Benchmarks for which a narrow screen has no room are named.
    monkeypatch.setenv("COLUMNS", "40")
    screen.show_ranking(ranked, everything=True)
    section = capsys.readouterr().out.split("Accuracy by benchmark")[1]
    assert "(a wider screen has: b1)" in section
    assert section.count("[.") == len(ranked.rows())


def test_one_benchmark_has_no_accuracies_of_its_own(tmp_path):
    lines = [f"m{k},q{j},{(k + j) % 2}" for k in range(4) for j in range(4)]
    (tmp_path / "one.csv").write_text("model,item,score\n" + "\n".join(lines))
    fast = ("--standard-errors", "none", "--no-figures", "--verbose")
    shown = ok("fit", tmp_path / "one.csv", "-o", tmp_path / "fit", *fast).stdout
    assert "Accuracy by benchmark" not in shown


def test_names_reach_the_terminal_as_text(saved):
    text = ok("rank", saved).stdout
    assert "\x1b" not in text
    # Markup in a name is shown, not obeyed.
    assert "[red]" in text.replace("\n", "").replace(" ", "")
    assert NASTY.replace("\x1b", "")[:12] in text


@pytest.mark.parametrize(
    ("model", "ending"),
    [("2pl", "csv"), ("4pl", "parquet"), ("graded", "csv"), ("partial_credit", "csv")],
)
def test_simulate(tmp_path, model, ending):
    out = tmp_path / f"sim.{ending}"
    size = ("--num-subjects", 30, "--num-items", 8, "--missing", 0.2, "--seed", 5)
    ordered = model in ORDERED_MODELS
    if ordered:
        size = (*size, "--categories", 3)
    ok("simulate", "--model", model, *size, "-o", out)
    table = irtjax.read(out)
    assert (table.num_subjects, table.num_items) == (30, 8)
    assert table.values.max() == (2 if ordered else 1)
    # Binomial standard error of a share of 240 cells is 0.026: within 5 of them.
    assert abs(1 - table.num_observed / 240 - 0.2) < 5 * 0.026
    assert {p.name for p in tmp_path.iterdir()} == {
        f"sim{middle}.{ending}" for middle in ("", ".items", ".abilities")
    }
    before = out.read_bytes()
    ok("simulate", "--model", model, *size, "-o", out, "-q")
    assert out.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("model", ["nominal", "pcm", "cloglog2pl"])
def test_simulated_responses_are_fitted_by_their_own_model(tmp_path, model):
    size = ("--num-subjects", 80, "--num-items", 6, "--seed", 5)
    if model in ORDERED_MODELS:
        size = (*size, "--categories", 3)
    ok("simulate", "--model", model, *size, "-o", tmp_path / "sim.csv")
    ok("fit", tmp_path / "sim.csv", "--model", model, "-o", tmp_path / "fit")
    fit = irtjax.load(tmp_path / "fit")
    assert fit.model.name == model and fit.status is irtjax.Status.CONVERGED
    again = irtjax.fit(irtjax.read(tmp_path / "sim.csv"), model)
    np.testing.assert_allclose(
        fit.parameters.items.intercept, again.parameters.items.intercept, atol=1e-6
    )


def test_simulate_from_a_fit_keeps_its_items(tmp_path, saved):
    ok("simulate", "--fit", saved, "--num-subjects", 5, "-o", tmp_path / "sim.parquet")
    table = irtjax.read(tmp_path / "sim.parquet")
    assert table.items.tolist() == small_fit().item_names.tolist()


def test_info_of_a_file_and_of_a_fit(responses, saved):
    content = strict(ok("info", responses, "--json").stdout)
    assert content["num_items"] == 15 and content["kind"] == "binary"
    assert content["benchmarks"] == {"b0": 8, "b1": 7}
    assert content["items_all_highest"] == 1
    assert content["suggested_model"] == "2pl"
    assert "24" in ok("info", responses).stdout
    content = strict(ok("info", saved, "--json").stdout)
    assert content["model"]["name"] == "2pl"
    assert "Benchmarks" in ok("info", saved).stdout


def test_info_lists_metrics_to_choose_from(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text(
        "model,item,metric,score\na,x,acc,1\na,x,f1,0\nb,x,acc,0\nb,x,f1,1\n"
        "a,y,acc,1\na,y,f1,0\nb,y,acc,0\nb,y,f1,1\n"
    )
    content = strict(ok("info", path, "--json").stdout)
    assert [offer["metric"] for offer in content["offers"]] == ["acc", "f1"]
    assert content["command"] == f"irtjax fit {path} --metric acc --out calibrated"
    shown = ok("info", path).stdout
    assert content["command"] in shown and "f1" in shown
    refused = run("fit", path, "--out", tmp_path / "fit")
    assert refused.exit_code == 2 and "--metric among acc, f1" in refused.stderr
    chosen = strict(ok("info", path, "--metric", "f1", "--json").stdout)
    assert chosen["metric"] == "f1" and "command" not in chosen
    # One subject is described, and not fitted.
    alone = strict(ok("info", path, "--leave-out", "b", "--json").stdout)
    assert alone["command"] == f"irtjax info {path} --metric acc --leave-out b"
    ok(*shlex.split(alone["command"])[1:])


def test_the_command_that_info_prints_has_the_bounds_that_scores_need(tmp_path):
    import shlex

    path = tmp_path / "rated.csv"
    rows = [
        f"m{k},q{j},{metric},{1 + (7 * k + 3 * j) % 17 / 4:g}"
        for k in range(6)
        for j in range(8)
        for metric in ("clear", "true")
    ]
    path.write_text("\n".join(["model,item,metric,score", *rows]))
    command = strict(ok("info", path, "--json").stdout)["command"]
    assert command == f"irtjax fit {path} --metric clear --bounds 1 5 --out calibrated"
    words = shlex.split(command)[1:-1]
    ok(*words, tmp_path / "fit", "--no-figures", "--standard-errors", "none")


def write_harness_logs(folder: Path) -> Path:
    """Four models on a multiple-choice and a generative task, and one with repeats."""
    rng = np.random.default_rng(0)
    for k in range(4):
        place = folder / f"org__model-{k}"
        place.mkdir(parents=True)
        tasks = {"arc_easy": [], "gsm8k": [], "aime": []}
        for doc in range(8):
            known = {"doc_id": doc, "doc_hash": f"h{doc}", "target": "A", "resps": []}
            one, other = (int(x) for x in rng.random(2) < 0.2 + 0.2 * k)
            many = {"metrics": ["acc", "acc_norm"], "filter": "none"}
            tasks["arc_easy"].append(known | many | {"acc": other, "acc_norm": one})
            for name, score in (("strict-match", one), ("flexible-extract", 1)):
                exact = {"metrics": ["exact_match"], "filter": name}
                tasks["gsm8k"].append(known | exact | {"exact_match": score})
            twice = {"metrics": ["exact_match"], "filter": "none", "exact_match": one}
            twice["scores_per_repeat"] = {"exact_match": [one, other]}
            tasks["aime"].append(known | twice)
        for task, records in tasks.items():
            path = place / f"samples_{task}_2026-04-01T00-00-00.000000.jsonl"
            path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return folder


def test_names_with_an_equals_sign_are_chosen(tmp_path):
    path = tmp_path / "run.csv"
    rows = ["model,item,benchmark,metric,score"]
    for k in range(4):
        for j in range(4):
            for benchmark in ("", "b=1"):
                name = f"{benchmark}q{j}"
                rows += [f"m{k},{name},{benchmark},pass@k=1,{int(k > j)}"]
                rows += [f"m{k},{name},{benchmark},pass@k=5,1"]
    path.write_text("\n".join(rows) + "\n")
    command = strict(ok("info", path, "--json").stdout)["command"]
    words = shlex.split(command)[1:-2]
    assert words.count("--metric") == 2
    out = ("--model", "rasch", "--method", "em", "--no-figures")
    out += ("--standard-errors", "none")
    ok(*words, "--out", tmp_path / "one", *out)
    facts = strict(ok("info", path, "--metric", "pass@k=5", "--json").stdout)
    assert facts["metric"] == "pass@k=5" and facts["mean"] == 1
    both = ("--metric", "pass@k=5", "--metric", "b=1=pass@k=1")
    facts = strict(ok("info", path, *both, "--json").stdout)
    assert facts["metric"] == "pass@k=1 / pass@k=5"


def test_an_ordinary_folder_of_logs_is_fitted_by_the_command_that_info_prints(
    tmp_path, monkeypatch
):
    logs = write_harness_logs(tmp_path / "my logs")
    monkeypatch.chdir(tmp_path)
    shown = ok("info", logs).stdout
    command = next(x for x in shown.splitlines() if x.startswith("  irtjax fit"))
    words = shlex.split(command)
    assert words[3] == "--metric"
    quick = ("--no-figures", "--standard-errors", "none")
    ok(*words[1:], *quick, "--model", "rasch", "--method", "em")
    fit = irtjax.load(tmp_path / "calibrated")
    assert len(fit.item_names) == 24
    plain = irtjax.read(logs)
    assert any(
        "arc_easy: acc_norm, not acc; gsm8k: exact_match" in x for x in plain.notes
    )
    assert plain.items.tolist() == fit.item_names.tolist()
    # What is usual has a name for each task that has several, to change.
    usual = strict(ok("info", logs, "--trials", "first", "--json").stdout)["usual"]
    assert usual in ok("info", logs, "--trials", "first").stdout
    words = shlex.split(usual)[3:-2]
    assert "arc_easy=acc_norm" in words and "gsm8k=strict-match" in words
    same = [
        strict(ok("info", logs, *x, "--json").stdout)["data_hash"]
        for x in (words, ("--trials", "first"))
    ]
    assert same[0] == same[1]
    # The other metric of one task and the other filter of another.
    more = ("--metric", "arc_easy=acc", "--filter", "gsm8k=flexible-extract")
    facts = strict(ok("info", logs, *more, "--trials", "mean", "--json").stdout)
    assert facts["metric"] == "acc / exact_match / exact_match,flexible-extract"
    assert not {"command", "usual"} & set(facts)
    for given, message in (
        (("--metric", "arc_easy=acc", "--metric", "arc_easy=f1"), "there is one"),
        (("--metric", ""), "write NAME or BENCHMARK=NAME"),
        (("--metric", "arc=acc"), "metric: no benchmark 'arc'; there are: "),
    ):
        refused = run("info", logs, *given)
        assert refused.exit_code == 2 and message in refused.stderr


# Each writes its input below a folder and returns the arguments and what must be said.
def bad_missing(folder):
    return [folder / "absent.csv"], r"no such file or folder: .*absent\.csv"


def bad_empty(folder):
    (folder / "empty.csv").write_text("")
    return [folder / "empty.csv"], r"empty\.csv is empty"


def bad_column(folder):
    path = write_long(folder / "long.csv", small_table())
    return [path, "--item", "question"], "question.*correct"


def bad_cell(folder):
    (folder / "x.csv").write_text("model,q1,q2\na,1,0\nb,maybe,1\n")
    return [folder / "x.csv"], "x.csv.*q1.*maybe"


def bad_range(folder):
    (folder / "x.csv").write_text("model,q1,q2\na,1,0\nb,7,1\nc,0,1\n")
    return [folder / "x.csv"], "'b'.*'q1'.*7.*graded"


def bad_one_subject(folder):
    (folder / "x.csv").write_text("model,q1,q2\na,1,0\n")
    return [folder / "x.csv"], "1 subject:.*at least two"


def bad_one_item(folder):
    (folder / "x.csv").write_text("model,item,correct\na,q,1\nb,q,0\n")
    return [folder / "x.csv"], "1 item:.*at least two"


def bad_all_missing(folder):
    (folder / "x.csv").write_text("model,item,correct\na,q,\nb,q,\na,r,\n")
    return [folder / "x.csv"], "every response is missing"


def bad_duplicates(folder):
    (folder / "x.csv").write_text("model,item,correct\na,q,1\na,q,0\nb,q,1\n")
    return [folder / "x.csv", "--trials", "error"], "'?a'?.*'?q'?.*--trials"


def bad_metrics(folder):
    (folder / "x.csv").write_text(
        "model,item,metric,score\na,q,acc,1\na,q,f1,0\nb,q,acc,0\nb,q,f1,1\n"
    )
    return [folder / "x.csv"], "--metric.*acc.*f1"


def bad_log(folder):
    (folder / "x.eval").write_bytes(b"PK\x03\x04 cut short")
    return [folder / "x.eval"], r"x\.eval"


def bad_pickle(folder):
    (folder / "x.pkl").write_bytes(pickle.dumps([1, 2]))
    return [folder / "x.pkl"], "pickle"


def bad_model(folder):
    path = write_long(folder / "x.csv", small_table())
    return [path, "--model", "5pl"], "5pl.*2pl"


def bad_method(folder):
    path = write_long(folder / "x.csv", small_table())
    return [path, "--method", "magic"], "magic.*em"


def bad_priors(folder):
    path = write_long(folder / "x.csv", small_table())
    return [path, "--priors", "strong"], "strong.*weak"


def bad_level(folder):
    path = write_long(folder / "x.csv", small_table())
    return [path, "--level", "95"], r"--level 95 .*did you mean 0\.95"


def bad_high_level(folder):
    path = write_long(folder / "x.csv", small_table())
    return [path, "--level", "1.5"], r"--level 1.5 is not between 0 and 1\n"


def bad_sampling(folder):
    path = write_long(folder / "x.csv", small_table())
    return [
        path,
        "--method",
        "laplace",
        "--draws",
        "5",
    ], "--draws requires --method .*nuts"


def bad_family(folder):
    path = write_long(folder / "x.csv", small_table())
    return [path, "--item-model", "3pl"], "--item-model requires a multilevel model"


def bad_anchor(folder):
    path = write_long(folder / "x.csv", small_table())
    return [path, "--anchor", folder / "none.csv"], "none.csv"


def bad_option(folder):
    return [folder / "x.csv", "--modle", "2pl"], "--modle"


def bad_number(folder):
    return [folder / "x.csv", "--seed", "one"], "--seed"


def bad_nothing(folder):
    return [], "FILE"


def bad_device(folder):
    path = write_long(folder / "x.csv", small_table())
    return [path, "--device", "abacus"], "abacus.*cpu"


BAD = [value for name, value in sorted(globals().items()) if name.startswith("bad_")]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.__name__)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, bad):
    args, message = bad(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = run("fit", *args, "--out", tmp_path / "out")
    assert_refused(result, message)
    assert sorted(tmp_path.rglob("*")) == before


def assert_refused(result, message):
    import re

    assert result.exit_code == 2, (result.stderr, result.exception)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("irtjax: ")
    assert "Traceback" not in result.stderr
    assert re.search(message, result.stderr), result.stderr


def test_an_output_place_that_will_not_do(tmp_path, responses):
    (tmp_path / "file").write_text("x")
    refused = {
        tmp_path / "file": "is a file",
        tmp_path / "file" / "below": "cannot write to",
        Path("/proc/irtjax"): "cannot write to",
        tmp_path: "holds something other than an irtjax fit",
    }
    for place, message in refused.items():
        assert_refused(run("fit", responses, "--out", place), message)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_bad_input_of_the_other_commands(tmp_path, responses, saved):
    other = tmp_path / "other.csv"
    other.write_text("model,item,correct\na,x,1\na,y,0\nb,x,1\n")
    wide = tmp_path / "wide.csv"
    wide.write_text("model,b1/q1,b0/q2\na,1,3\n")
    best = "vendor/model_22"
    empty = tmp_path / "empty"
    empty.mkdir()
    for args, message in [
        (["score", other, "--fit", saved], "none of the 2 items.*matched by name"),
        (["score", wide, "--fit", saved], "item b0/q2: the response 3 is not 0 or 1"),
        (["score", responses, "--fit", saved, "--scoring", "x"], "'x'.*eap"),
        (["score", responses, "--fit", saved, "-o", "s.txt"], r"\.csv or \.parquet"),
        (["score", responses, "--fit", saved, "-o", "/proc/s.csv"], "cannot write"),
        (["score", responses, "--fit", tmp_path / "no"], "no such folder"),
        (["score", responses], "--fit"),
        (["rank", empty], "has no fit.json"),
        (["clusters", empty, responses], r"`irtjax fit --model factor\s--out`"),
        (["rank", saved, "--level", "2"], "--level 2 is not between 0 and 1"),
        (["compare", best, "model5", "--fit", saved], "did you mean vendor/model_5"),
        (["compare", best, best, "--fit", saved], "compared with itself"),
        (["simulate", "-o", tmp_path / "s.xlsx"], r"\.csv or \.parquet"),
        (["simulate", "-o", tmp_path / "s.csv", "--missing", "1"], "--missing 1"),
        (["simulate", "-o", tmp_path / "s.csv", "--model", "9pl"], "9pl.*2pl"),
        (
            ["simulate", "-o", tmp_path / "s.csv", "--model", "hierarchical"],
            "hierarchical is not one of",
        ),
        (["simulate", "-o", tmp_path / "no" / "s.csv"], "cannot write"),
        (["info", tmp_path / "absent"], "no such file or folder"),
        (["demo", "--out", tmp_path], "holds something other"),
        (["frobnicate"], "frobnicate"),
    ]:
        assert_refused(run(*args), message)
    names = {p.name for p in tmp_path.iterdir()}
    assert names == {"other.csv", "wide.csv", "empty"}


def shell(*args: object, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "JAX_PLATFORMS": "cpu", **more}
    return subprocess.run(
        [sys.executable, "-m", "irtjax", *map(str, args)],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "bad",
    [pytest.param(bad_missing, marks=pytest.mark.slow), bad_range],
    ids=lambda b: b.__name__,
)
def test_bad_input_in_a_real_process(tmp_path, bad):
    args, message = bad(tmp_path)
    done = shell("fit", *args, "--out", tmp_path / "out")

    class Result:
        exit_code, stdout, stderr = done.returncode, done.stdout, done.stderr
        exception = None

    # Progress lines may come before, where the machine is slow.
    lines = [x for x in done.stderr.splitlines() if x.startswith("irtjax: ")]
    Result.stderr = "\n".join(lines) + "\n"
    assert_refused(Result, message)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "delay",
    [0.2, 1.0, *(pytest.param(x / 50, marks=SLOW) for x in range(4, 150, 3))],
)
def test_an_interrupt_at_any_moment_is_one_line(responses, tmp_path, delay):
    command = [sys.executable, "-m", "irtjax", "fit", responses, "--method", "em"]
    out = ["--out", tmp_path / "out", "--population", "histogram"]
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    # Not that of the tests, so that there is something to interrupt.
    env["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    # jaxlib is not tested first, which takes longer than all else.
    env["XLA_FLAGS"] = f"{env.get('XLA_FLAGS', '')} {OPTION}=".strip()
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process = subprocess.Popen([*map(str, [*command, *out])], env=env, **pipes)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    if delay < 0.15 and process.returncode != 130:
        pytest.skip("Python itself had not started")
    assert process.returncode == 130, said
    assert "Traceback" not in said and "Error" not in said
    assert said.endswith("irtjax: interrupted\n")
    # Files are whole or not there.
    assert not list(tmp_path.glob("out/*"))


def test_interrupt_during_an_import_counts_at_its_end(tmp_path):
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nended = True\n"
    (tmp_path / "slow.py").write_text(text)
    # Between the two imports a thread has no time to interrupt.
    program = (
        "import os, sys\nfrom irtjax.cli import _listen\n_listen()\n"
        "try:\n    import slow\n    import json\n    print('not interrupted')\n"
        "except KeyboardInterrupt:\n    print(sys.modules['slow'].ended, flush=True)\n"
        # After a second it would be raised again.
        "    os._exit(0)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert (found.stdout, found.stderr) == ("True\n", "")


def test_interrupt_before_the_command_line_is_imported(tmp_path):
    # The command's module, as the script of an installation imports it.
    scripts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    module, _, name = scripts["scripts"]["irtjax"].partition(":")
    program = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'irtjax.cli':\n"
        "            raise KeyboardInterrupt\n"
        f"before = set(sys.modules)\nfrom {module} import {name} as command\n"
        f"assert set(sys.modules) - before == {{'irtjax', '{module}'}}, sys.modules\n"
        "sys.meta_path.insert(0, Interrupt())\ncommand()\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
    )
    assert (found.returncode, found.stdout) == (130, "")
    assert found.stderr == "irtjax: interrupted\n"


@pytest.mark.slow
def test_a_refused_table_never_aborts_the_process(tmp_path):
    """Destructors of pyarrow and jaxlib did so 4 times in 30."""
    path = tmp_path / "bad.csv"
    path.write_text('model,q1,q2\nm,1,"x\n')
    for _ in range(60):
        done = shell("info", path)
        assert done.returncode == 2 and "terminate" not in done.stderr


def test_help_is_quick_and_loads_nothing_heavy():
    probe = (
        "import atexit, sys\n"
        "sys.argv = ['irtjax', '--help']\n"
        "from irtjax.cli import main\n"
        "heavy = {'jax', 'numpy', 'pyarrow', 'matplotlib', 'scipy', 'pandas'}\n"
        "loaded = lambda: ','.join(sorted(heavy & set(sys.modules)))\n"
        "atexit.register(lambda: sys.stderr.write(loaded()))\n"
        "main()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for command in ("fit", "score", "rank", "compare", "simulate", "info", "demo"):
        assert command in done.stdout
    # What it loads decides how long it takes, on any machine.
    assert done.stderr == ""


def test_version():
    assert ok("--version").stdout.startswith("irtjax ")


def test_interrupted_output_is_no_error(saved):
    if sys.platform == "win32":
        pytest.skip("needs a POSIX pipe")
    done = subprocess.run(
        f"{sys.executable} -m irtjax rank {saved} --all | head -n 1; true",
        shell=True,
        executable="/bin/bash",
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr


class Terminal:
    """A stream that remembers, and says whether it is a terminal."""

    def __init__(self, terminal: bool):
        self.terminal, self.text = terminal, ""

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_shows_phase_iteration_objective_and_time(terminal):
    stream = Terminal(terminal)
    with ProgressLine(stream=stream, patience=0.02, interval=0.02) as progress:
        progress("fit", 12, -1234.5, 0.01, 0.0)
        deadline = time.monotonic() + 10
        while "fit" not in stream.text and time.monotonic() < deadline:
            time.sleep(0.01)
    for part in ("fit", "iteration 12", "objective -1,234.500", "residual 0.01", " s"):
        assert part in stream.text
    # A terminal's line is wiped in the end; a log file's lines stay.
    assert stream.text.endswith("\r" if terminal else "\n")


def test_progress_is_silent_when_quiet_or_quick():
    quiet, quick = Terminal(False), Terminal(False)
    with ProgressLine(quiet=True, stream=quiet, patience=0.0):
        time.sleep(0.05)
    with ProgressLine(stream=quick, patience=60.0) as progress:
        progress("read")
    assert quiet.text == quick.text == ""


def test_progress_shows_no_number_that_is_none():
    progress = ProgressLine(quiet=True)
    progress("scores", 0, float("nan"), float("inf"))
    assert "nan" not in progress.line() and "inf" not in progress.line()


def test_demo_recovers_the_truth(tmp_path):
    shown = ok("demo", "--out", tmp_path / "demo").stdout
    assert "results.csv" in shown.partition("Written to")[2]
    assert_refused(run("demo", "--out", tmp_path / "demo"), "results.csv exists")
    content = strict(ok("demo", "--json").stdout)
    close = content["closeness"]
    # With 60 subjects and errors near 0.2 on abilities of spread 1, a rank
    # correlation below 0.95 or more than a sixth of intervals missing is a fault.
    assert close["ability_spearman"] > 0.95
    assert close["difference_coverage"] > 0.83
    assert close["difficulty_coverage"] > 0.85
    assert len(close["caught"]) >= 4 and not set(close["missed"]) & set(close["caught"])
    assert content["num_subjects"] == 60 and len(close["benchmarks"]) == 3
    assert irtjax.load(tmp_path / "demo").num_steps == content["num_steps"]
    # The documentation reads these responses.
    truth = write_long(tmp_path / "truth.csv", irtjax.make_demo().table)
    one, other = (
        list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
        for path in (tmp_path / "demo" / "results.csv", truth)
    )
    assert one == other and len(one) == 1 + content["num_observed"]
