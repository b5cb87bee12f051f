"""Drift of items: tails against enumeration, false alarms, and keys that changed."""

import itertools

import numpy as np
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import irtjax
from irtjax.calibration.drift import LEVEL, _p_values, _tails, drifted_items
from irtjax.cli.app import app
from irtjax.ranking.discoveries import benjamini_hochberg

OLD, NEW, ITEMS = 40, 7, 60
NAMES = [f"model-{k:02}" for k in range(OLD + NEW)]
#: Items whose key is another one for the new models, and the first models after it.
CHANGED = [3, 17, 40]


def responses(changed=(), seed=0):
    """Models of which the new ones are the abler; easy items have other keys."""
    rng = np.random.default_rng(seed)
    ability = np.append(rng.normal(size=OLD), rng.normal(1.0, 0.3, size=NEW))
    difficulty = rng.normal(size=ITEMS)
    difficulty[CHANGED] = -1.5
    chance = expit(1.3 * (ability[:, None] - difficulty))
    right = rng.random(chance.shape) < chance
    for j in changed:
        right[OLD:, j] = ~right[OLD:, j]
    items = [f"q{k:02}" for k in range(ITEMS)]
    return irtjax.ResponseTable.from_arrays(right, subjects=NAMES, items=items)


@pytest.fixture(scope="module")
def fit():
    return irtjax.fit(responses().select(subjects=NAMES[:OLD]), "rasch")


def test_tails_are_those_of_all_outcomes():
    rng = np.random.default_rng(1)
    chance, values = rng.uniform(0.1, 0.9, (4, 5)), rng.integers(0, 2, (4, 5))
    seen = rng.random((4, 5)) < 0.8
    values = np.where(seen, values, 0)
    below, above = _tails(chance, np.zeros((4, 5)), values, seen)
    for j in range(5):
        rows = np.flatnonzero(seen[:, j])
        low = high = 0.0
        for outcome in itertools.product((0, 1), repeat=len(rows)):
            p = chance[rows, j]
            mass = np.prod(np.where(outcome, p, 1 - p))
            low += mass * (sum(outcome) <= values[rows, j].sum())
            high += mass * (sum(outcome) >= values[rows, j].sum())
        assert below[j] == pytest.approx(low, rel=1e-12)
        assert above[j] == pytest.approx(high, rel=1e-12)
    # Errors of items make a surprise smaller.
    sure, wide = (_tails(chance[:, :1] * 0 + 0.9, np.full((4, 1), s),
                         np.zeros((4, 1)), np.ones((4, 1), bool))[0]
                  for s in (0, 1.0))  # fmt: skip
    assert sure[0] == pytest.approx(0.1**4) and wide[0] > 5 * sure[0]


@pytest.mark.parametrize("relatives", [0.0, 1.0])
def test_false_alarms_are_rare(relatives):
    """400 sets without drift, with known chances: any item flagged in 1 % at most.

    Discrete tails are conservative. With `relatives` new models share what they can,
    which makes every item deviate and is no drift of an item.
    """
    rng, alarms = np.random.default_rng(2), 0
    for _ in range(400):
        logits = rng.normal(1, 1, (1, 100)) + rng.normal(0, 0.5, (6, 1))
        shared = relatives * rng.normal(size=(1, 100))
        values = rng.random((6, 100)) < expit(logits + shared)
        chance = np.clip(expit(logits), 0.01, 0.99)
        tails = _tails(chance, np.zeros_like(chance), values, np.ones((6, 100), bool))
        alarms += bool((benjamini_hochberg(_p_values(*tails, None)) <= LEVEL).any())
    # 4 expected at most, with a standard deviation of 2.
    assert alarms <= 10


def test_changed_keys_are_found_and_others_are_not(fit):
    new = responses(CHANGED).select(subjects=NAMES[OLD:])

    def drifted(table):
        whole = irtjax.score(fit, table).whole
        assert whole is not None
        return drifted_items(whole, table)

    assert {*drifted(new)} == {f"q{j:02}" for j in CHANGED}
    sound = responses().select(subjects=NAMES[OLD:])
    assert drifted(sound) == []
    # Two models are too few.
    two = new.select(subjects=NAMES[OLD : OLD + 2])
    assert drifted(two) == []


def test_add_fits_again_where_items_drifted_and_says_so_where_it_does_not(
    fit, tmp_path
):
    kept = responses().select(subjects=NAMES[:OLD])
    new = responses(CHANGED).select(subjects=NAMES[OLD:])
    names = "3 items drifted (q"
    done = irtjax.add(irtjax.save(fit, tmp_path / "a", responses=kept), new)
    assert done.refit.startswith(names) and not done.advised
    assert irtjax.history(tmp_path / "a").steps[0].calibrated == done.refit

    run = lambda *words: CliRunner().invoke(app, [str(word) for word in words])
    path = new.save(tmp_path / "new.parquet")
    folder = irtjax.save(fit, tmp_path / "d", responses=kept)
    shown = run("add", path, "--to", folder)
    assert shown.exit_code == 0, shown.stderr
    said = " ".join(shown.stdout.split())
    assert f"The items were fitted again: {done.refit}." in said
    folder = irtjax.save(fit, tmp_path / "e", responses=kept)
    said = " ".join(run("add", path, "--to", folder, "--refit", "never").stdout.split())
    assert f"The items stay as they are, although {done.refit}, as requested." in said
    assert "To fit the items again: irtjax add" in said

    folder = irtjax.save(fit, tmp_path / "b", responses=kept)
    first, rest = NAMES[OLD : OLD + 2], NAMES[OLD + 2 :]
    assert not irtjax.add(folder, new.select(subjects=first), refit="never").advised
    # Those that were added before count too.
    done = irtjax.add(folder, new.select(subjects=rest), refit="never")
    assert done.refit == "" and done.advised.startswith(names)
    assert "items stay as they are, although 3 items drifted" in " ".join(done.notes)
    shown = run("history", folder).stdout
    assert f"Refit advised: {done.advised}" in " ".join(shown.split())
    command = " ".join(shown.split()).partition("again: irtjax ")[2].split()
    again = run(*command)
    assert again.exit_code == 0 and "fitted again: requested" in again.stdout
    assert irtjax.history(folder).advised == ""
    alone = irtjax.save(fit, tmp_path / "c")
    done = irtjax.add(alone, new)
    assert done.advised.startswith(names) and "does not keep" in done.notes[0]
