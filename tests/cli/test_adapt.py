"""`irtjax adapt` and the figure of adaptive tests."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax import plots
from irtjax.cli.adapt import _of_decisions
from irtjax.cli.app import app
from tests.small_fits import small_fit, small_table

LENGTH = 6


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="irtjax")


def ok(*args: object):
    result = run("adapt", *args)
    assert result.exit_code == 0, result.stderr or result.exception
    return result


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return irtjax.save(small_fit(errors=False), tmp_path_factory.mktemp("fits") / "fit")


def from_python(**more):
    return irtjax.simulate_tests(
        small_fit(errors=False), 30, key=jax.random.key(4), num_items=LENGTH, **more
    )


def test_one_subject_is_singular(saved):
    result = ok(saved, "--num-items", 1, "--num-subjects", 1, "--select", "random")
    assert "1 simulated subject, " in result.stdout


def test_it_writes_the_tests_that_python_gives(tmp_path, saved):
    out = tmp_path / "deep" / "adapt"
    result = ok(
        saved, "--num-items", LENGTH, "--num-subjects", 30, "--seed", 4, "--out", out
    )
    names = {"adapt.parquet", "adapt.csv", "adapt.png", "trajectory.png"}
    assert {path.name for path in out.iterdir()} == names
    want = from_python()
    table = pyarrow.parquet.read_table(out / "adapt.parquet")
    assert table.equals(want.table)
    read = pyarrow.csv.read_csv(out / "adapt.csv")
    np.testing.assert_allclose(read["ability"], want.ability[:, -1])
    for name in ("adapt.png", "trajectory.png"):
        assert (out / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "30 simulated subjects, 15 items" in result.stdout
    assert f"Tests took {LENGTH}.0 items on average" in result.stdout
    last = [f"{LENGTH}", f"{want.rmse()[-1]:.3f}"]
    assert any(line.split()[:2] == last for line in result.stdout.splitlines())


def test_it_speaks_to_machines(saved):
    more = (
        "--num-items",
        LENGTH,
        "--num-subjects",
        30,
        "--seed",
        4,
        "--se",
        0.7,
        "--quota",
    )
    content = json.loads(ok(saved, *more, "--randomesque", 2, "--json").stdout)
    want = from_python(standard_error=0.7, quota="equal", randomesque=2)
    assert content["by_num_items"]["rmse"] == want.rmse().tolist()
    random = from_python(select="random", quota="equal")
    assert content["random_by_num_items"]["rmse"] == random.rmse().tolist()
    assert content["subjects"] == want.table.to_pylist()
    assert content["mean_num_items"] == want.num_given.mean() < LENGTH
    assert content["quota"] == "equal" and content["standard_error"] == 0.7


def test_it_replays_recorded_responses(tmp_path, saved):
    path = small_table().save(tmp_path / "responses.json")
    more = ("--num-items", 15, "--replay", path, "--json", "--scoring", "map")
    content = json.loads(ok(saved, *more).stdout)
    seen = small_table().observed.sum(1).tolist()
    assert [row["num_items"] for row in content["subjects"]] == seen
    assert content["replayed"] and "ability_all_items" in content["subjects"][0]


def test_it_can_be_quiet_and_has_no_baseline_for_random_items(saved):
    few = ("--num-items", LENGTH, "--num-subjects", 30, "--seed", 4)
    assert ok(saved, *few, "--quiet").stdout == ""
    content = json.loads(ok(saved, *few, "--select", "random", "--json").stdout)
    assert content["random_by_num_items"] is None


@pytest.mark.slow
def test_costs_and_decisions(tmp_path, saved):
    names = small_table().items.tolist()
    rows = [("item", "cost"), *((f'"{x}"', 1 + k % 3) for k, x in enumerate(names))]
    path = tmp_path / "cost.csv"
    path.write_text("\n".join(f"{a},{b}" for a, b in rows), encoding="utf-8")
    few = ("--num-items", LENGTH, "--num-subjects", 30, "--seed", 4, "--cost", path)
    more = ("--budget", 5, "--pass-mark", 0.1, "--losses", "1,2", "--price", 0.001)
    content = json.loads(ok(saved, *few, *more, "--json").stdout)
    rules = dict(cost=[1.0 + k % 3 for k in range(15)], budget=5.0, price=0.001)
    want = from_python(**rules, pass_mark=0.1, losses=(1, 2))
    assert content["subjects"] == want.table.to_pylist()
    assert content["cost"] == str(path) and max(want.cost[:, -1]) <= 5
    out = tmp_path / "out"
    shown = ok(saved, *few, *more, "--out", out).stdout
    assert "Tests cost" in shown and "of the decisions were wrong" in shown
    left = plots.plot_adaptive(want, from_python(**rules, select="random")).axes[0]
    assert left.get_xlabel() == "Cost of a test" and len(left.lines) == 2
    budgets, errors = left.lines[0].get_data()
    np.testing.assert_array_equal(errors, want.rmse_by_cost(budgets))


def test_decisions_on_recorded_subjects_are_not_called_wrong():
    found = from_python()
    passed = found.ability[:, -1] > 0.1
    share = 100 * (passed != (found.truth > 0.1)).mean()
    simulated = dataclasses.replace(found, passed=passed, pass_mark=0.1)
    wrong = f"{share:.1f} % of the decisions were wrong"
    assert wrong in _of_decisions(simulated)[0]
    # No true ability is known.
    sentence = _of_decisions(dataclasses.replace(simulated, replayed=True))[0]
    assert f"{share:.1f} % of the decisions differ from that by" in sentence
    assert "score from all responses" in sentence and "wrong" not in sentence


def test_bad_input_is_one_line(tmp_path, saved):
    (tmp_path / "file").write_text("")
    few = ("--num-items", LENGTH, "--num-subjects", 30)
    other = irtjax.ResponseTable.from_arrays([[1, 0]], items=["x", "y"])
    strange = other.save(tmp_path / "strange.json")
    for args, message in [
        ((tmp_path / "none",), "no such folder"),
        ((saved, "--num-items", 0), "--num-items 0 is not at least 1"),
        ((saved, "--num-subjects", 0), "--num-subjects 0 is not at least 1"),
        ((saved, "--se", -1), "--se -1 is not above 0"),
        ((saved, "--reliability", 2), "--reliability 2 is not between"),
        ((saved, "--gain", 1), "--gain 1 is not between"),
        ((saved, "--select", "best"), "--select 'best' is not one of"),
        ((saved, "--scoring", "ml"), "--scoring 'ml' is not one of"),
        ((saved, "--randomesque", 0), "--randomesque 0 is not at least 1"),
        ((saved, "--max-exposure", 2), "--max-exposure 2 is not above 0"),
        ((saved, "--replay", strange), "none of the 2 items"),
        ((saved, "--budget", 2), "--budget 2 needs a cost"),
        ((saved, "--risk", 0.1), "--risk 0.1 needs a pass_mark"),
        ((saved, "--losses", "a"), "--losses a: write numbers"),
        ((saved, "--losses", "1,1"), "--losses requires --pass-mark"),
        ((saved, "--pass-mark", 0, "--risk", 0.5), "--risk 0.5 is not below 0.5"),
        ((saved, "--pass-mark", 0, "--losses", "1"), "--losses: give two numbers"),
        ((saved, "--cost", tmp_path / "no.csv"), "cannot read it"),
        ((saved, *few, "--out", tmp_path / "file"), "is a file: name a folder"),
        ((saved, *few, "--out", tmp_path / "file" / "in"), "cannot write to"),
    ]:
        # Quiet: on a slow machine a line of progress would come first.
        result = run("adapt", *args, "--quiet")
        assert result.exit_code == 2, args
        assert result.stderr.startswith("irtjax: ") and message in result.stderr
        assert result.stderr.count("\n") == 1 and result.stdout == ""


def test_the_figure_draws_the_curves():
    tests, random = from_python(), from_python(select="random")
    left, right = plots.plot_adaptive(tests, random).axes
    drawn = {line.get_label(): line.get_ydata() for line in left.lines}
    np.testing.assert_array_equal(drawn["adaptive: RMSE"], tests.rmse())
    np.testing.assert_array_equal(
        drawn["random: standard error"], random.mean_standard_error()
    )
    assert len(drawn) == 4
    shares = right.lines[0].get_ydata()
    np.testing.assert_array_equal(np.sort(shares), np.sort(tests.exposure()))
    limit = float(np.median(tests.standard_error[:, 3]))
    shorter = from_python(standard_error=limit)
    lengths = plots.plot_adaptive(shorter, random).axes[2]
    shares = [patch.get_height() for patch in lengths.patches]
    # A bar for 0 items to the most, of each arm.
    count = np.bincount(shorter.num_given, minlength=LENGTH + 1) / 30
    np.testing.assert_allclose(shares[: LENGTH + 1], count)
    alone = plots.plot_adaptive(tests).axes[0]
    assert [line.get_label() for line in alone.lines] == ["RMSE", "standard error"]


def test_the_course_of_one_test_is_drawn():
    tests = from_python(standard_error=0.7)
    subject = int(np.argmin(tests.num_given))
    axes = plots.plot_trajectory(tests, tests.subjects[subject]).axes[0]
    count = tests.num_given[subject]
    lines = {line.get_label(): line for line in axes.lines}
    x, y = lines["estimate"].get_data()
    np.testing.assert_array_equal(x, np.arange(count + 1))
    np.testing.assert_array_equal(y[1:], tests.ability[subject, :count])
    assert y[0] == tests.prior[0]
    assert lines["true ability"].get_ydata()[0] == tests.truth[subject]
    right = tests.responses[subject, :count] > 0
    drawn = [len(c.get_offsets()) for c in axes.collections[1:]]
    assert drawn == [right.sum(), (~right).sum()]
    session = irtjax.AdaptiveTest(small_fit(errors=False), 3)
    while (item := session.next_item()) is not None:
        session.record(item, 1)
    y = plots.plot_trajectory(session).axes[0].lines[0].get_ydata()
    np.testing.assert_array_equal(y[1:], session.table["ability"])
    for bad, match in (("nobody", "no subject is called"), (99, "there are 30")):
        with pytest.raises(ValueError, match=match):
            plots.plot_trajectory(tests, bad)
    with pytest.raises(ValueError, match="level 2"):
        plots.plot_trajectory(tests, level=2)


def test_the_information_of_items_is_drawn():
    fit = small_fit(errors=False)
    left, right = plots.plot_item_information(fit, 4, ability=0.3).axes
    assert len(left.lines) == 4
    nodes = np.append(left.lines[0].get_xdata(), 0.3)
    table = irtjax.item_information(fit.model, fit.parameters.items, nodes)
    best = np.argmax(plots.curves.expected_information(fit))
    np.testing.assert_allclose(left.lines[0].get_ydata(), table[:-1, best], rtol=1e-9)
    chosen, random = (line.get_ydata() for line in right.lines)
    np.testing.assert_allclose(np.diff(chosen), np.sort(table[-1])[::-1], rtol=1e-9)
    assert chosen[-1] == pytest.approx(random[-1]) and chosen[0] == random[0] == 0


def test_a_population_is_means_and_then_deviations(saved):
    from irtjax.cli.adapt import _population

    assert _population(None) is None and _population("1,0.5") == (1, 0.5)
    assert _population("0,1,2,3") == ([0, 1], [2, 3])
    for text, message in (
        ("1", "--population 1: write as many means as deviations"),
        ("1,x", "--population 1,x: write numbers"),
        ("1,-1", "--population: the standard deviation -1"),
        ("1,2,3,4", "--population: the bank has one ability"),
    ):
        found = run("adapt", saved, "--num-items", 3, "--quiet", "--population", text)
        assert found.exit_code == 2 and message in found.stderr


@pytest.mark.slow
def test_subjects_may_come_from_another_population(saved):
    few = ("--num-items", LENGTH, "--num-subjects", 30, "--seed", 4, "--json")
    content = json.loads(ok(saved, *few, "--population", "4,0.1").stdout)
    ability = [row["true_ability"] for row in content["subjects"]]
    assert abs(np.mean(ability) - 4) < 0.1 and content["coverage"] < 0.9


@pytest.mark.slow
def test_subjects_may_respond_by_other_items(saved):
    few = ("--num-items", LENGTH, "--num-subjects", 30, "--seed", 4, "--json")
    content = json.loads(ok(saved, *few, "--truth", saved).stdout)
    # The same fit as truth: nodes of other lengths of tests do not enter responses.
    assert content["subjects"] == from_python().table.to_pylist()
    refused = run("adapt", saved, *few, "--truth", "draw", "--quiet")
    assert refused.exit_code == 2 and "no errors of items" in refused.stderr
    noted = ok(saved, *few[:-1], "--reliability", 0.999).stdout
    assert "reliability 0.999 cannot be reached" in " ".join(noted.split())


@pytest.mark.slow
def test_repeats_and_a_rival_are_those_of_python(saved, tmp_path):
    rng = np.random.default_rng(0)
    names = irtjax.load(saved).item_names
    trials = rng.integers(1, 4, (12, 15))
    lines = ["subject,item,score"]
    for (row, column), count in np.ndenumerate(trials):
        right = rng.binomial(count, 0.5)
        name = '"' + str(names[column]).replace('"', '""') + '"'
        lines += [f"s{row},{name},{int(k < right)}" for k in range(count)]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    few = ("--num-items", 12, "--seed", 4, "--rival", "vendor/model_3", "--risk", 0.05)
    more = ("--repeats", 3, "--icc", 0.4, "--replay", path)
    content = json.loads(ok(saved, *few, *more, "--json").stdout)
    table = irtjax.read(path, trials="counts")
    found = irtjax.adaptive.simulate_tests(
        irtjax.load(saved), key=jax.random.key(4), num_items=12, replay=table,
        rival="vendor/model_3", risk=0.05, repeats=3, icc=0.4,
    )  # fmt: skip
    assert content["subjects"] == found.table.to_pylist()
    for given, message in (
        (("--trials", "first"), "--trials requires --replay FILE"),
        (("--repeats", 3), "--repeats 3 needs an icc"),
        (("--rival", "x"), "--rival: no subject named 'x'"),
    ):
        assert message in run("adapt", saved, *given).stderr
