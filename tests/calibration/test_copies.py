"""Copies of a subject are found, and nothing else is taken for one."""

import numpy as np
import pytest

import irtjax
from irtjax.calibration.copies import copies_of, warnings_of
from irtjax.calibration.flags import COPY

COPIES = "same"


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def right_or_wrong(rng, ability, items, log_slope=(0.1, 0.4)):
    slope = np.exp(rng.normal(*log_slope, size=items))
    easy = rng.normal(0.3, 1.2, size=items)
    chance = 1 / (1 + np.exp(-slope * (np.asarray(ability)[:, None] + easy)))
    return (rng.random(chance.shape) < chance).astype(np.int8)


def groups(found):
    return [group.tolist() for group in found.groups]


@pytest.mark.parametrize("subjects, items", [(3, 240), (12, 120), (150, 240)])
def test_finds_a_copy_and_a_near_one(rng, subjects, items):
    values = right_or_wrong(rng, rng.normal(size=subjects), items)
    values = np.vstack([values, values[:2]])
    values[-1, :2] = 1 - values[-1, :2]
    found = copies_of(values, None)
    assert groups(found) == [[0, subjects], [1, subjects + 1]]
    assert found.different == (0, 2)
    assert found.shared == (items, items)


@pytest.mark.parametrize("log_slope", [(0.1, 0.4), (1.0, 0.5)])
def test_equal_abilities_are_no_copies(log_slope):
    # The chance of an error of the test is at most .01 a data set.
    rng, false = np.random.default_rng(0), 0
    for ability in (np.zeros(12), np.full(12, 2.5), np.full(12, -3.0)):
        for items in (30, 240, 1500):
            for _ in range(10):
                values = right_or_wrong(rng, ability, items, log_slope)
                false += len(copies_of(values, None).groups)
    assert false == 0


@pytest.mark.parametrize("subjects, items", [(12, 240), (30, 60), (60, 240)])
@pytest.mark.parametrize("slope", [8.0, 1e6])
def test_steep_items_make_no_copies(subjects, items, slope):
    """Subjects of like ability agree on items of Guttman's form, by ability alone."""
    rng, false = np.random.default_rng(2), 0
    for _ in range(2):
        ability, place = rng.normal(size=(subjects, 1)), rng.normal(size=items)
        chance = 1 / (1 + np.exp(-np.clip(slope * (ability - place), -99, 99)))
        false += len(copies_of(rng.random(chance.shape) < chance, None).groups)
    assert false == 0


def test_copies_of_most_subjects_do_not_hide_each_other(rng):
    # Four of five subjects are copies: each is predicted by the others.
    values = right_or_wrong(rng, rng.normal(size=2), 240)
    values = values[[0, 0, 0, 0, 1]]
    values[1, 5] = 1 - values[1, 5]
    assert groups(copies_of(values, None)) == [[0, 1, 2, 3]]


def test_subjects_without_variation_are_no_copies():
    values = right_or_wrong(np.random.default_rng(1), np.linspace(-1, 1, 10), 100)
    values[:3], values[-2:] = 0, 1
    assert groups(copies_of(values, None)) == []


def test_subjects_that_fail_the_same_benchmarks_are_no_copies(rng):
    chance = 1 / (1 + np.exp(-0.7 * rng.normal(size=(40, 1)) - rng.normal(3, 1, 300)))
    values = (rng.random(chance.shape) < chance).astype(np.int8)
    fails = rng.random((40, 3)) < 0.4
    values[np.repeat(fails, 100, axis=1)] = 0
    names = np.repeat(["a", "b", "c"], 100)
    assert groups(copies_of(values, None, None, names)) == []
    # Small benchmarks share one level, and a copy is found among all.
    names = np.where(np.arange(300) % 10 == 0, np.arange(300).astype(str), names)
    assert groups(copies_of(values, None, None, names)) == []
    values[7] = values[fails.sum(1).argmin()]
    (found,) = copies_of(values, None, None, names).groups
    assert 7 in found and found.size == 2


@pytest.mark.parametrize("kind", ["ordinal", "scores", "counts"])
def test_responses_of_every_kind(rng, kind):
    trials = None
    if kind == "ordinal":
        values = rng.integers(0, 5, size=(9, 80))
    elif kind == "scores":
        values = rng.random((9, 80))
    else:
        trials = np.full((9, 80), 10)
        values = rng.integers(0, 11, size=(9, 80))
    assert groups(copies_of(values, None, trials)) == []
    values[6] = values[3]
    assert groups(copies_of(values, None, trials)) == [[3, 6]]


def test_missing_responses_are_not_compared(rng):
    values = right_or_wrong(rng, rng.normal(size=8), 200)
    values[5] = values[2]
    observed = rng.random(values.shape) < 0.6
    values = values * observed
    found = copies_of(values, observed)
    assert groups(found) == [[2, 5]]
    assert found.shared == (int((observed[2] & observed[5]).sum()),)
    # Copies that met no item together cannot be seen.
    observed[2], observed[5] = np.arange(200) < 100, np.arange(200) >= 100
    assert groups(copies_of(values * observed, observed)) == []


def test_many_items_are_sampled_and_counted_whole(rng):
    values = right_or_wrong(rng, rng.normal(size=6), 5000)
    values[4] = values[1]
    values[4, ::50] = 1 - values[4, ::50]
    found = copies_of(values, None)
    assert groups(found) == [[1, 4]]
    assert found.different == (100,)
    assert found.shared == (5000,)


def test_a_fit_warns_and_flags_and_leaves_out(rng, tmp_path):
    values = right_or_wrong(rng, rng.normal(size=8), 120)
    values[7] = values[0]
    names = [f"model {k}" for k in range(7)] + ["model 0 again"]
    table = irtjax.ResponseTable.from_arrays(values, subjects=names)
    fit = irtjax.fit(table, "rasch", "em")
    warning = next(text for text in fit.warnings if COPIES in text)
    assert "subjects model 0, model 0 again gave the same 120 responses" in warning
    flagged = [
        row["subject"]
        for row in fit.abilities.table.to_pylist()
        if COPY in row["flags"]
    ]
    assert sorted(flagged) == ["model 0", "model 0 again"]
    table.save(tmp_path / "table.parquet")
    left = irtjax.read(tmp_path / "table.parquet", leave_out="* again")
    assert groups(copies_of(left.values, left.observed)) == []


def test_names_a_few_groups(rng):
    values = np.repeat(right_or_wrong(rng, rng.normal(size=5), 300), 2, axis=0)
    (warning,) = warnings_of(copies_of(values, None), np.arange(10).astype(str))
    assert warning.count(" gave the same 300 responses") == 3
    assert "2 more groups likewise" in warning


@pytest.mark.slow
def test_an_audit_warns_too(rng):
    values = right_or_wrong(rng, rng.normal(size=12), 60)
    values[11] = values[4]
    found = irtjax.audit(irtjax.ResponseTable.from_arrays(values))
    (warning,) = (text for text in found.warnings if COPIES in text)
    assert "subjects subject 5, subject 12 gave the same 60 responses" in warning


@pytest.mark.slow
def test_a_copy_draws_two_parameter_ranks_to_itself(rng):
    """What the warning says: of models with slopes ranks move towards copies."""
    moved = []
    for _ in range(6):
        ability = rng.normal(size=11)
        values = right_or_wrong(rng, ability, 120)
        middle = int(np.argsort(ability)[7])
        table = irtjax.ResponseTable.from_arrays
        alone = irtjax.fit(table(values), "2pl", "laplace")
        twice = irtjax.fit(table(np.vstack([values, values[middle]])), "2pl", "laplace")
        at = [f.structure.ability[:11, 0] for f in (alone, twice)]
        z = [(x[middle] - x.mean()) / x.std() for x in at]
        moved.append(z[1] - z[0])
    # Upwards in nearly every data set: on average by more than two errors.
    assert np.mean(moved) > 2 * np.std(moved, ddof=1) / len(moved) ** 0.5
