"""`irtjax compare --fail-if`: exit status, sentences, JSON and JUnit."""

import csv
import dataclasses
import json
import shlex
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.calibration.conditions import Verdict
from irtjax.calibration.scale import BECAUSE, BY_MEANS
from irtjax.cli import gates
from irtjax.cli.app import app
from irtjax.cli.compare import _sentences
from irtjax.ranking import Comparison
from tests.small_fits import NASTY, small_fit, small_table

CHECKOUT = Path(__file__).resolve().parents[2]
WEAK, STRONG = "vendor/model_0", "vendor/model_22"


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="irtjax")


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fits") / "fit"
    return irtjax.save(small_fit(errors=False), folder)


@pytest.fixture(scope="module")
def responses(tmp_path_factory) -> Path:
    path, table = tmp_path_factory.mktemp("data") / "long.csv", small_table()
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["model", "item", "correct"])
        for i, j in np.argwhere(table.observed):
            out.writerow([table.subjects[i], table.items[j], int(table.values[i, j])])
    return path


def compare(saved, *more, first=WEAK, second=STRONG):
    return run("compare", first, second, "--fit", saved, *more)


def test_pairs_that_are_compared_by_mean_responses_are_explained(saved, tmp_path):
    sentence = "the two are compared by mean responses, as by the paired test"
    fit = small_fit(errors=False)
    few = f"3 subjects {BECAUSE}: {BY_MEANS}"
    changed = irtjax.save(dataclasses.replace(fit, warnings=(few,)), tmp_path / "fit")
    text = " ".join(compare(changed, "--verbose").stdout.split())
    assert sentence in text and f"{STRONG} is better" in text
    text = " ".join(compare(saved, "--verbose").stdout.split())
    assert sentence not in text and f"{STRONG} is better" in text


def test_the_fit_of_a_gate_may_stand_in_the_configuration(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "irtjax.toml").write_text(
        f"[compare]\nfit = {json.dumps(str(saved))}\n"
    )
    assert run("compare", WEAK, STRONG, "--fail-if", "A < B").exit_code == 1
    assert run("compare", STRONG, WEAK, "--fail-if", "A < B").exit_code == 0


def test_a_condition_that_holds_ends_with_one_sentence(saved):
    failed = compare(saved, "--fail-if", "A < B")
    assert failed.exit_code == 1
    assert f"{STRONG} is better" in failed.stdout
    assert failed.stderr.count("\n") == 1
    assert failed.stderr.startswith(
        "irtjax: --fail-if 'A < B' holds (significant at the 95 % level): ability of"
        f" {WEAK} less that of {STRONG} -"
    )
    # Quiet is without tables, not without reasons.
    quiet = compare(saved, "--fail-if", "A < B", "--quiet")
    assert (quiet.exit_code, quiet.stdout) == (1, "")
    assert quiet.stderr == failed.stderr


def test_conditions_that_do_not_hold_or_are_undecided_pass(saved):
    passed = compare(saved, "--fail-if", "A > B")
    assert passed.exit_code == 0 and passed.stderr == ""
    assert "--fail-if 'A > B' does not hold: ability" in passed.stdout
    tied = {"first": "vendor/model_11", "second": "vendor/model_12"}
    unknown = compare(saved, "--fail-if", "A < B", **tied)
    assert unknown.exit_code == 0 and "is undecided (not" in unknown.stdout
    strict = compare(saved, "--fail-if", "A < B", "--undecided", "fail", **tied)
    assert strict.exit_code == 1 and "is undecided" in strict.stderr


def test_every_condition_is_judged(saved, tmp_path):
    place = tmp_path / "gate.xml"
    result = compare(
        *(saved, "--json", "--junit", place, "--level", 0.9),
        *("--fail-if", "P(A < B) > 0.9", "--fail-if", f"{STRONG} < {WEAK}"),
        *("--fail-if", "B > 1e9"),
    )
    assert result.exit_code == 1 and result.stderr.count("\n") == 1
    found = json.loads(result.stdout)
    assert found["failed"] and found["level"] == 0.9
    outcomes = [(x["outcome"], x["failed"]) for x in found["conditions"]]
    assert outcomes == [
        *(("holds", True), ("does not hold", False), ("does not hold", False))
    ]
    suite = ElementTree.parse(place).getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert [len(case.findall("failure")) for case in suite] == [1, 0, 0]


def test_without_conditions_nothing_changes(saved):
    result = compare(saved, "--json")
    assert result.exit_code == 0 and "conditions" not in json.loads(result.stdout)


def test_a_report_has_no_markup_of_names(tmp_path):
    verdict = Verdict(
        f"'{NASTY}' < B", "undecided", 0.0, -1.0, 1.0, 0.0, 1.0, 0.95, NASTY + "\0"
    )
    failed = gates.Gate().failures([verdict])
    assert failed == [None]
    gates.write_junit(tmp_path / "x.xml", [verdict], failed)
    root = ElementTree.parse(tmp_path / "x.xml").getroot()
    case = root[0][0]
    assert "<b>" in str(case.get("name")) and case[0].tag == "skipped"
    assert root[0].get("skipped") == "1"


def test_a_fit_that_has_not_converged_is_the_reason():
    numbers = 0.0, -1.0, 1.0, 0.0, 1e-25, 0.95
    verdict = Verdict("A < B", "undecided", *numbers, "the fit has not ...", False)
    (failed,) = gates.Gate(undecided="fail").failures([verdict])
    assert failed == "--fail-if 'A < B' is undecided: the fit has not ..."
    chance = Verdict("P(A < B) > 1 %", "holds", 0.5, None, None, 0.01, None, 0.95, "x")
    assert gates.Gate().failures([chance]) == ["--fail-if 'P(A < B) > 1 %' holds: x"]


def test_a_test_without_an_error_is_named():
    fields = dict.fromkeys(Comparison._fields, 0.1) | {"shared": 2, "clusters": 2}
    fields |= {"accuracy_difference": -1.0, "accuracy_p_value": 0.5, "accuracy_se": 0.0}
    lines = _sentences("a", "b", Comparison(**fields | {"by_cluster": False}), 0.95)
    assert lines[-1].endswith(
        "p = 0.5 (exact test: the difference is the same in all 2 items)."
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--fail-if", "A < C"], "'C' is neither"),
        (["--fail-if", "A < B", "--undecided", "maybe"], "not pass or fail"),
        (["--junit", "x.xml"], "requires --fail-if"),
        (["--fail-if", "A < B", "--junit", "x.json"], "must end in .xml"),
        (["--fail-if", "accuracy(A) < accuracy(B)"], "add the responses, as LOGS"),
        (["--fail-if", "accuracy(A) < 0.5", "--level", "0.8"], "leave --level out"),
    ],
)
def test_mistakes_end_with_2_and_one_line(saved, more, message):
    result = compare(saved, *more)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1 and message in result.stderr


def test_accuracies_are_compared_on_the_responses(saved, responses):
    text = "accuracy(A) < accuracy(B)"
    result = compare(saved, responses, "--fail-if", text)
    assert result.exit_code == 1 and "accuracy of" in result.stderr


def example_steps() -> list[list[str]]:
    """The `irtjax` commands of the GitHub Actions example in docs/ci.md."""
    yaml = pytest.importorskip("yaml")
    text = (CHECKOUT / "docs" / "ci.md").read_text(encoding="utf-8")
    example = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    jobs = example["jobs"]
    # YAML 1.1 reads `on` as true; GitHub does not.
    assert example[True] == "pull_request" and jobs["gate"]["runs-on"]
    steps = jobs["gate"]["steps"]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    commands = [shlex.split(x["run"], comments=True) for x in steps if "run" in x]
    written = [x["with"]["path"].split() for x in steps if "if" in x]
    found = [x for x in commands if x[0] == "irtjax"]
    assert written == [["gate.xml", "calibrated"]]
    assert written[0][0] in found[1] and written[0][1] in found[0]
    return [x[1:] for x in found]


def test_the_example_of_github_actions_has_known_options():
    fit, compared = example_steps()
    for command, *arguments in (fit, compared):
        described = run(command, "--help-all").stdout
        options = [x for x in arguments if x.startswith("--")]
        assert options and all(option in described for option in options)


@pytest.mark.slow
@pytest.mark.parametrize("good", [True, False])
def test_the_example_of_github_actions_works(tmp_path, monkeypatch, good):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    chances = dict.fromkeys("abcdef", 0.5) | {"old-model": 0.7}
    chances["new-model"] = 0.75 if good else 0.2
    Path("logs").mkdir()
    for name, chance in chances.items():
        lines = ["model,item,score"]
        lines += [f"{name},q{k},{int(rng.random() < chance)}" for k in range(60)]
        Path("logs", f"{name}.csv").write_text("\n".join(lines))
    fit, compared = example_steps()
    assert run(*fit, "--quiet").exit_code == 0
    done = run(*compared, "--quiet")
    assert done.exit_code == (0 if good else 1), done.stderr
    suite = ElementTree.parse("gate.xml").getroot()
    assert suite.get("tests") == "2"
    assert (suite.get("failures") == "0") == good
