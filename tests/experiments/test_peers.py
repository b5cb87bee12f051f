"""Side by side with other packages: the data, the judgement, and formulas."""

import numpy as np

import irtjax
from experiments.peers import packages, run, simulate


def test_logs_are_read_as_the_responses_that_were_drawn(tmp_path):
    data = simulate.draw(3)
    simulate.write_logs(data, tmp_path / "logs")
    table = irtjax.read(tmp_path / "logs")
    assert table.num_subjects == 10
    assert set(table.items.tolist()) == set(packages.names(np.arange(410)))
    place = {name: k for k, name in enumerate(packages.names(np.arange(410)))}
    columns = [place[name] for name in table.items.tolist()]
    np.testing.assert_array_equal(table.values, data.right[:, columns])


def test_expected_scores_are_those_of_the_responses():
    """40 data sets: a mean of 16,400 responses has an error of 0.004."""
    sets = [simulate.draw(seed) for seed in range(40)]
    scores = np.mean([data.right.mean(axis=1) for data in sets], axis=0)
    assert np.abs(scores - sets[0].population).max() < 4 * 0.004
    assert (sets[0].key > 0).sum() == simulate.WRONG_KEYS


def test_a_judgement_counts_false_pairs_of_equal_models():
    data = simulate.draw(0)
    every = np.ones((10, 10), bool)
    said = packages.Said(data.population, every, None, None, None, "two words")
    row = run.judged(said, data)
    assert (row["found"], row["false"], row["different"]) == (42, 3, 42)
    assert (row["order"], row["words"]) == (1.0, 2)


def test_the_formulas_run_and_missing_packages_are_named(capsys, monkeypatch):
    monkeypatch.setitem(run.PACKAGES, "evalci", (packages.by_evalci, ("no_such",)))
    found = run.main(["--only", "lm-eval table", "paired t tests", "evalci"])
    assert set(found) == {"lm-eval table", "paired t tests"}
    assert "evalci: no_such not installed, skipped" in capsys.readouterr().out
    assert all(row["found"] > 25 and row["false"] < 2 for row in found.values())
