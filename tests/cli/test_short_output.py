"""What people read first: the short table and verdict of logs, and what they paste."""

import csv
import hashlib
import io
import json
import re
import shlex
import shutil

import numpy as np
import pytest

from irtjax.data.text_table import display_width
from tests.cli.test_cli import ok, run, strict

TASKS = {"mcq_sim": 40, "math_sim": 30, "gen_sim": 30}
MODELS = [f"org/{name}" for name in (
    "llama-70b", "qwen-72b", "mistral-large", "llama-8b", "qwen-7b", "gemma-9b",
    "phi-4", "olmo-7b", "falcon-7b", "pythia-6b",
)]  # fmt: skip
ABILITY = [1.6, 1.6, 1.0, 0.7, 0.5, 0.3, 0.0, -0.4, -0.8, -1.3]


def write_logs(folder, models=tuple(MODELS), tasks=None):
    """Logs of lm-evaluation-harness: two tasks of one filter, one of two."""
    rng = np.random.default_rng(3)
    for task, size in (tasks or TASKS).items():
        difficulty = rng.normal(size=size)
        for model, ability in zip(models, ABILITY, strict=False):
            right = rng.random(size) < 1 / (1 + np.exp(1.3 * (difficulty - ability)))
            lines = []
            for k in range(size):
                name = f"{task}/{k}"
                record = {
                    "doc_id": k,
                    "doc": {"question": name, "answer": "1"},
                    "target": "1",
                    "arguments": {"gen_args_0": {"arg_0": name, "arg_1": {}}},
                    "resps": [["1" if right[k] else "2"]],
                    "filtered_resps": ["1" if right[k] else "2"],
                    "metrics": ["exact_match"],
                    "doc_hash": hashlib.sha256(name.encode()).hexdigest(),
                    "exact_match": float(right[k]),
                }
                filters = ["strict-match", "flexible-extract"]
                for chosen in filters if task == "math_sim" else ["none"]:
                    lines.append(json.dumps(record | {"filter": chosen}))
            place = folder / model.replace("/", "__")
            place.mkdir(parents=True, exist_ok=True)
            name = f"samples_{task}_2026-03-01T10-20-30.123456.jsonl"
            (place / name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Logs of ten models, the folder of their run, and what it printed."""
    folder = tmp_path_factory.mktemp("short")
    logs, out = write_logs(folder / "logs"), folder / "out"
    return logs, out, ok("run", logs, "--out", out).stdout


def words(text):
    """Words and numbers, without what is drawn."""
    return [word for word in text.split() if any(c.isalnum() for c in word)]


def test_ten_models_are_twenty_lines_of_eighty_columns(made):
    _, out, text = made
    lines = text.splitlines()
    # 124 here: what these ten models happen to have differs by a few words.
    assert len(lines) <= 22 and len(words(text)) <= 126
    # A command and the path of a file stay on one line, to be copied.
    folded = [line for line in lines if str(out) not in line]
    assert len(folded) >= 14 and all(display_width(x) <= 80 for x in folded)
    assert lines[0].startswith("10 models · 100 items · 3 tasks · complete")
    names = [line.split()[0] for line in lines if re.match(r"[A-Z][a-z]+ {2}", line)]
    assert names[0] == "First" and names[-1] == "Next" and "Mind" in names
    assert "math_sim is strict-match" in text and str(out / "report.html") in text
    for absent in ("warning", "note", "log-likelihood", "Written to", "P(best)"):
        assert absent not in text
    # The rest is in the summary, and on request.
    assert "log-likelihood" in (out / "summary.md").read_text()


def test_show_rank_and_print_are_the_same_table(made):
    _, out, text = made
    board = text[text.index(" rank") : text.index("First")]
    verdict = text[text.index("First") :]
    assert {"Read", "Cheaper"} <= {line.split()[0] for line in verdict.splitlines()}
    for command in ("show", "rank"):
        assert board in ok(command, out).stdout
        assert verdict in ok(command, out).stdout
    found = strict(ok("rank", out, "--json").stdout)["verdict"]
    assert found["Cheaper"].startswith("50 items give") and found["Read"]
    shown = ok("show", out, "--verbose").stdout
    assert "log-likelihood" in shown and "ability" in shown


def test_parts_that_cannot_be_read_are_left_out(made, tmp_path):
    _, out, text = made
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    (copy / "items_to_read.csv").write_text("no,such\n1,2\n")
    (copy / "subset" / "subset.json").write_text("{")
    shown = ok("show", copy).stdout
    assert "First" in shown and "Cheaper" not in shown and "no item" not in shown
    for name in ("run.json", "items_to_read.csv"):
        (copy / name).unlink()
    shutil.rmtree(copy / "subset")
    # As after `add`: those of the audit.
    read = text[text.index("Read") : text.index("Cheaper")]
    assert read in ok("show", copy).stdout
    shutil.rmtree(copy / "audit")
    assert ok("show", copy).stdout.partition("First")[2] in shown


def test_what_is_pasted_has_every_row(made):
    _, out, _ = made
    form = lambda name, *more: ok("show", out, "--format", name, *more).stdout
    rows = list(csv.DictReader(io.StringIO(form("csv"))))
    assert {row["model"] for row in rows} == {*MODELS}
    assert all(0 <= float(row["expected_score"]) <= 1 for row in rows)
    assert form("md").count("\n|") == 11
    latex = form("latex")
    assert latex.count(r"\\") == 11 and r"95 \%" in latex
    tables = form("lm-eval")
    head = "|Tasks|Version|Filter|n-shot|Metric|"
    assert head in re.sub(r" *\| *", "|", tables) and tables.count("|math") == 10
    row = next(line for line in tables.splitlines() if line.startswith("|math_sim"))
    assert [x.strip() for x in row.split("|")][3:6] == [
        "strict-match",
        "",
        "exact_match",
    ]
    items = list(csv.DictReader(io.StringIO(form("csv", "--items"))))
    assert len(items) == 100 and float(items[0]["difficulty_se"]) > 0
    assert form("md", "--tasks").splitlines()[0].count("|") == 5
    assert "(88 more)" in ok("items", out).stdout
    assert len(ok("items", out, "--all").stdout.splitlines()) == 102
    refused = run("show", out, "--items", "--format", "lm-eval")
    assert refused.exit_code == 2 and "lm-eval is not one of" in refused.stderr


def test_commands_that_print_a_result_have_it_as_json(made):
    _, out, _ = made
    found = strict(ok("show", out, "--json").stdout)
    assert {"Read", "Cheaper"} <= {*found["verdict"]}
    assert found["subjects"][0]["tied_rank_lower"] == 1
    assert found["verdict"]["Next"].startswith("irtjax compare ")
    assert len(strict(ok("items", out, "--json").stdout)["items"]) == 100
    assert len(strict(ok("show", out, "--tasks", "--json").stdout)["tasks"]) == 10


LINE = re.compile(
    r"(\S+) − (\S+): (?:score (\S+) \[\S+, \S+\]; )?accuracy (\S+) \[\S+, \S+\],"
    r" p (?:< )?\S+ \((\d+) paired items\): (.*)\n"
)


def matched(line):
    """The parts of a comparison."""
    found = LINE.fullmatch(line)
    assert found is not None, line
    return found


def signed(text):
    return float(text.replace("−", "-"))


def test_two_models_are_compared_in_a_line(made):
    logs, out, text = made
    first, second = MODELS[0], MODELS[-1]
    lines = [ok("compare", first, second, logs).stdout]
    lines.append(ok("compare", first, second, "--fit", out).stdout)
    # The same fit of the same logs; the folder keeps the responses.
    assert lines[0] == lines[1]
    found = matched(lines[0])
    assert found[5] == "100" and found[6] == f"{first} is better, P > .99"
    back = matched(ok("compare", second, first, "--fit", out).stdout)
    # Always the first less the second.
    assert back[1] == second and signed(back[3]) == -signed(found[3]) < 0
    assert back[6] == f"{first} is better, P > .99"
    command = shlex.split(text.partition("\nNext")[2])
    near = matched(ok(*command[1:]).stdout)
    # By the short names that the table shows, too.
    short = [name.removeprefix("org/") for name in command[2:4]]
    assert matched(ok("compare", *short, *command[4:]).stdout)[0] == near[0]
    assert near[6].startswith("tied, P(better) .")
    scores = {
        x["subject"]: x for x in strict(ok("rank", out, "--json").stdout)["subjects"]
    }
    gap = scores[first]["expected_score"] - scores[second]["expected_score"]
    assert abs(signed(found[3]) - gap) < 0.0006  # Three digits.


def test_two_models_alone_have_the_paired_test(tmp_path):
    logs = write_logs(tmp_path / "two", MODELS[2:4])
    found = matched(ok("compare", *MODELS[2:4], logs).stdout)
    assert found[3] is None and found[5] == "100"
    content = strict(ok("compare", *MODELS[2:4], logs, "--json").stdout)
    assert round(content["difference"], 3) == signed(found[4])
    result = run("compare", *MODELS[2:4])
    assert result.exit_code == 2
    assert f"irtjax compare {MODELS[2]} {MODELS[3]} LOGS" in result.stderr
    result = run("compare", MODELS[2], "nobody", logs)
    assert result.exit_code == 2 and "nobody" in result.stderr


def test_ascii_where_the_terminal_has_no_unicode(made, monkeypatch):
    _, out, _ = made
    monkeypatch.setattr("irtjax.data.text_table.has_unicode", lambda *_: False)
    monkeypatch.setattr(
        "irtjax.calibration.leaderboard_text.has_unicode", lambda: False
    )
    assert ok("show", out).stdout.isascii()
    assert ok("compare", *MODELS[:2], "--fit", out).stdout.isascii()


def test_a_short_test_shows_its_items(tmp_path):
    rng = np.random.default_rng(0)
    ability = rng.normal(size=80)
    right = rng.random((80, 6)) < 1 / (
        1 + np.exp(np.linspace(-1, 1, 6) - ability[:, None])
    )
    rows = [f"p{i},q{j},{int(x)}" for (i, j), x in np.ndenumerate(right)]
    path = tmp_path / "short.csv"
    path.write_text("person,item,score\n" + "\n".join(rows) + "\n")
    text = ok("fit", path, "--out", tmp_path / "fit", "--no-figures").stdout
    assert text.startswith("80 subjects · 6 items · complete")
    header = next(line for line in text.splitlines() if " difficulty" in line)
    assert header.split()[:3] == ["item", "difficulty", "error"]
    assert all(f" q{j} " in text for j in range(6))


def test_help_lists_the_usual_options_and_help_all_every_one():
    few, every = ok("fit", "--help").stdout, ok("fit", "--help-all").stdout
    assert len(few.splitlines()) <= 70 and "--help-all lists" in few
    assert "--embedding-size" in every and "--embedding-size" not in few
    assert "--out" in few and "--filter" in few
    for command in ("run", "score", "compare", "audit", "shrink", "adapt"):
        few = ok(command, "--help").stdout
        assert few.count(" --") <= 2 * 16, command  # Some have a short form.
    # A rare option still works, and one that does not exist is still refused.
    assert "--seeed" in run("fit", "x.csv", "--seeed", "1").stderr
