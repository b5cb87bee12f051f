"""Errors by runs: from repeats, as stated, and in all that reads errors."""

import pathlib

import numpy as np
import pytest

import irtjax
from irtjax.calibration.runs import ONE_RUN, with_run_sd
from irtjax.data.reading.run_errors import run_errors
from irtjax.data.runs import RunErrors

#: Runs, subjects, items; standard deviation of what a run's responses share.
RUNS, SUBJECTS, ITEMS, EFFECT = 4, 12, 60, 0.12


@pytest.fixture(scope="module")
def responses():
    """`[runs, subjects, items]` responses whose chance a run moves by its effect."""
    rng = np.random.default_rng(3)
    chance = rng.uniform(0.25, 0.75, (SUBJECTS, 1)) + rng.uniform(-0.2, 0.2, ITEMS)
    moved = chance + EFFECT * rng.normal(size=(RUNS, SUBJECTS, 1))
    return (rng.random((RUNS, SUBJECTS, ITEMS)) < moved.clip(0, 1)).astype(int)


#: Standard deviation of the ability of a model from run to run, of two runs.
RUN_ABILITY = 0.25


@pytest.fixture(scope="module")
def fit():
    """A fit of two runs of 30 models, as 60 subjects, and its table."""
    rng = np.random.default_rng(8)
    easy, ability = rng.normal(size=80), rng.normal(size=30)
    logit = (ability + RUN_ABILITY * rng.normal(size=(2, 30)))[..., None] - easy
    right = rng.random((2, 30, 80)) < 1 / (1 + np.exp(-logit))
    table = irtjax.ResponseTable.from_arrays(right.reshape(60, 80))
    return irtjax.fit(table, "rasch", method="em"), table


def column(fit, name):
    return np.asarray(fit.abilities.table[name], float)


def written(responses, path: pathlib.Path) -> pathlib.Path:
    """A long table with a column of runs."""
    lines = ["model,item,run,correct"]
    for (run, subject, item), value in np.ndenumerate(responses):
        lines.append(f"m{subject},q{item},{run},{value}")
    path.write_text("\n".join(lines))
    return path


def by_anova(responses) -> float:
    """Component of runs within subjects: (MS of runs - MS of the rest) / items."""
    means = responses.mean(axis=2)
    runs = responses.shape[2] * np.sum((means - means.mean(axis=0)) ** 2)
    cell = responses - responses.mean(axis=0)
    own = cell - (means - means.mean(axis=0))[:, :, None]
    degrees = (RUNS - 1) * SUBJECTS
    rest = np.sum(own**2) / (degrees * (ITEMS - 1))
    return (runs / degrees - rest) / responses.shape[2]


def test_the_component_of_runs_is_that_of_the_analysis_of_variance(responses):
    run, cell = np.indices((RUNS, SUBJECTS * ITEMS)).reshape(2, -1)
    errors = run_errors(cell, run, responses.reshape(-1) * 1.0, (SUBJECTS, ITEMS))
    assert errors is not None and not errors.own
    assert errors.common == pytest.approx(np.sqrt(by_anova(responses) / RUNS))


def test_repeats_in_one_file_and_in_several_are_read_alike(responses, tmp_path):
    table = irtjax.read(written(responses, tmp_path / "long.csv"))
    expected = np.sqrt(by_anova(responses) / RUNS)
    assert table.run_error == pytest.approx(expected)
    for run in range(RUNS):
        header = ",".join(["model", *(f"q{j}" for j in range(ITEMS))])
        rows = [
            ",".join([f"m{i}", *map(str, responses[run, i])]) for i in range(SUBJECTS)
        ]
        (tmp_path / f"run{run}.csv").write_text("\n".join([header, *rows]))
    files = irtjax.read([str(tmp_path / f"run{run}.csv") for run in range(RUNS)])
    assert files.run_error == pytest.approx(expected)
    part = table.select(subjects=[3, 1], items=np.arange(5))
    assert part.run_error.tolist() == table.run_error[[3, 1]].tolist()
    for name in ("saved.json", "saved.parquet"):
        again = irtjax.ResponseTable.load(table.save(tmp_path / name))
        assert again.run_error.tolist() == table.run_error.tolist()


def test_independent_repeats_add_nothing(responses, tmp_path):
    """Of each cell's responses in random order no run has an effect."""
    shuffled = np.random.default_rng(5).permuted(responses, axis=0)
    assert irtjax.read(written(shuffled, tmp_path / "long.csv")).run_error is None


def test_numbers_right_have_no_runs(responses, tmp_path):
    lines = ["model,item,num_correct,num_samples"]
    for (subject, item), value in np.ndenumerate(responses.sum(axis=0)):
        lines.append(f"m{subject},q{item},{value},{RUNS}")
    (tmp_path / "counts.csv").write_text("\n".join(lines))
    table = irtjax.read(tmp_path / "counts.csv")
    assert table.kind == "counts" and table.run_error is None


def test_repeats_widen_the_leaderboard_and_pairs(fit):
    narrow, alone = fit
    run = np.linspace(0.02, 0.05, 60)
    table = alone.replace(runs=RunErrors(run, {}))
    wide = irtjax.fit(table, "rasch", method="em")
    for name in ("expected_score_se", "accuracy_se"):
        assert column(wide, name) == pytest.approx(np.hypot(column(narrow, name), run))
    assert (column(wide, "ability_se") > column(narrow, "ability_se")).all()
    assert any("runs of a subject differ" in note for note in wide.notes)
    pair = "subject 1", "subject 2"
    one, other = (
        irtjax.compare(wide, *pair, data=table),
        irtjax.compare(narrow, *pair, data=alone),
    )
    assert one.standard_error > other.standard_error
    assert one.accuracy_se == pytest.approx(
        np.hypot(other.accuracy_se, np.hypot(*run[:2]))
    )


def test_a_stated_standard_deviation_is_in_every_error(fit, tmp_path):
    before, table = fit
    after = irtjax.fit(table, "rasch", method="em", run_sd=3)
    later = with_run_sd(before, 3)
    for name in after.abilities.table.column_names:
        assert after.abilities.table[name] == later.abilities.table[name], name
    assert column(after, "expected_score_se") == pytest.approx(
        np.hypot(column(before, "expected_score_se"), 0.03)
    )
    # r / b: the error of an ability whose expected score moves by r.
    added = column(after, "ability_se") ** 2 - column(before, "ability_se") ** 2
    slope = np.polyfit(column(before, "ability"), column(before, "expected_score"), 1)
    assert np.sqrt(added) == pytest.approx(0.03 / slope[0])
    assert (column(after, "accuracy_lower") < column(before, "accuracy_lower")).all()
    ranked, wide = irtjax.rank(before), irtjax.rank(after)
    assert wide.num_different < ranked.num_different
    assert wide.level == before.level
    irtjax.save(after, tmp_path / "fit")
    saved = irtjax.load(tmp_path / "fit")
    assert saved.options["run_sd"] == 3
    with pytest.raises(ValueError, match="have a run_sd of 3 points already"):
        with_run_sd(saved, 1)


def test_new_subjects_have_the_standard_deviation_of_the_fit(fit):
    before, table = fit
    after, few = with_run_sd(before, 3), table.select(subjects=[0, 1])
    few = few.replace(subjects=np.array(["new", "other"]))
    one, other = (irtjax.score(x, few).table for x in (before, after))
    added = np.square(other["ability_se"]) - np.square(one["ability_se"])
    slope = np.polyfit(column(before, "ability"), column(before, "expected_score"), 1)
    assert np.sqrt(added) == pytest.approx(0.03 / slope[0])
    part = few.select(items=np.arange(20))
    one, other = (irtjax.estimate_score(x, part).table for x in (before, after))
    square = [np.square(x["score_se"]) for x in (one, other)]
    # Predictions weigh the abilities of the fit by their errors.
    assert square[1] - square[0] == pytest.approx(0.03**2, rel=0.01)


def test_errors_of_abilities_count_that_runs_differ(fit):
    """Of runs of one model z has a variance of 1; without their variance of more."""
    ability = column(fit[0], "ability")
    # A score moves by its slope, about .2, times the ability.
    slope = np.polyfit(ability, column(fit[0], "expected_score"), 1)[0]
    square = []
    for run_sd in (0, 100 * slope * RUN_ABILITY):
        error = column(with_run_sd(fit[0], run_sd), "ability_se")
        z = (ability[:30] - ability[30:]) / np.hypot(error[:30], error[30:])
        square.append(np.mean(z**2))
    # Of 30 pairs it has an error of .26.
    assert 0.5 < square[1] < 1.5 and square[0] > square[1]


def test_models_of_one_run_are_said_to_be(fit, tmp_path):
    assert ONE_RUN not in fit[0].notes
    table = fit[1].replace(nouns=("model", "benchmark"))
    assert ONE_RUN in irtjax.fit(table, "rasch", method="em").notes
    stated = irtjax.fit(table, "rasch", method="em", run_sd=1.5)
    assert ONE_RUN not in stated.notes
    assert any("1.50 points from run to run" in note for note in stated.notes)


@pytest.mark.parametrize("run_sd", [-1, np.inf])
def test_a_negative_standard_deviation_is_refused(fit, run_sd):
    with pytest.raises(ValueError, match="standard deviation in points, such as 1.5"):
        irtjax.fit(fit[1], "rasch", run_sd=run_sd)
