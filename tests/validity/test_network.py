"""Networks of items: enumeration, closed forms, recomputed values of LSAT7."""

import itertools
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import logsumexp
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.validity.ising import (
    all_patterns,
    features,
    fit_exact,
    fit_pseudolikelihood,
)

PAIRS = np.triu_indices(5, 1)


@pytest.fixture(scope="module")
def lsat7(shared_data):
    content = pq.read_table(shared_data / "classic" / "lsat7.parquet")
    names = [x for x in content.column_names if x.startswith("lsat7")]
    values = np.stack([content.column(x).to_numpy().astype(int) for x in names], 1)
    return irtjax.ResponseTable.from_arrays(values, items=names)


def log_chances_of(thresholds, weights):
    """Patterns and their log chances, written out."""
    patterns = np.array(list(itertools.product([0.0, 1.0], repeat=len(thresholds))))
    energy = [y @ thresholds + y @ np.triu(weights, 1) @ y for y in patterns]
    return patterns, np.array(energy) - logsumexp(energy)


def drawn(rng, size, thresholds, weights):
    patterns, log_chance = log_chances_of(thresholds, weights)
    return patterns[rng.choice(len(patterns), size, p=np.exp(log_chance))]


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(3)
    weights = np.triu(rng.normal(0, 0.7, (6, 6)) * (rng.random((6, 6)) < 0.6), 1)
    return rng.normal(0, 0.7, 6), weights + weights.T


# aims.md S5: LSAT7 by BFGS in an independent script (`checks/ising.py`), four decimals.
RECOMPUTED = {
    "exact": (
        -2653.1473,
        [-0.0367, -0.8359, -0.7042, -1.0157, 0.4392],
        [
            0.4055,
            0.5562,
            0.7046,
            0.7218,
            1.1352,
            0.3410,
            0.1310,
            0.5632,
            0.6184,
            0.2589,
        ],
    ),
    "pseudolikelihood": (
        -2579.1194,
        [-0.0397, -0.8397, -0.7081, -1.0121, 0.4367],
        [
            0.4076,
            0.5581,
            0.7043,
            0.7229,
            1.1368,
            0.3408,
            0.1319,
            0.5623,
            0.6220,
            0.2563,
        ],
    ),
}


@pytest.mark.parametrize("method", RECOMPUTED)
def test_recomputed_values_of_lsat7(lsat7, method):
    value, thresholds, weights = RECOMPUTED[method]
    result = irtjax.network(lsat7, method)
    # Half a unit of the last decimal, and as much for the other program's stop.
    assert abs(result.log_likelihood - value) < 1e-4
    estimates = result.table.column("threshold").to_numpy()
    np.testing.assert_allclose(estimates, thresholds, atol=1e-4)
    np.testing.assert_allclose(result.weights[PAIRS], weights, atol=1e-4)
    size = np.abs(result.weights).sum(axis=1)
    np.testing.assert_allclose(result.table.column("strength").to_numpy(), size)
    edge = result.edges.to_pylist()[0]
    assert (edge["item"][-1], edge["other_item"][-1]) == ("2", "3")
    assert edge["weight"] == pytest.approx(weights[4], abs=1e-4)


def test_exact_estimates_have_the_moments_and_the_likelihood_of_enumeration(model):
    right = drawn(np.random.default_rng(0), 700, *model)
    fit = fit_exact(right)
    patterns, log_chance = log_chances_of(fit.thresholds, fit.weights)
    codes = (right @ 2 ** np.arange(5, -1, -1)).astype(int)
    assert fit.log_likelihood == pytest.approx(log_chance[codes].sum(), abs=1e-8)
    # At the maximum of an exponential family expected statistics are those observed.
    expected = np.exp(log_chance) @ features(patterns)
    np.testing.assert_allclose(expected, features(right).mean(axis=0), atol=1e-7)
    assert sorted(map(tuple, all_patterns(6))) == sorted(map(tuple, patterns))


@pytest.mark.parametrize("fit", [fit_exact, fit_pseudolikelihood])
def test_two_items_have_their_log_odds_ratio_and_its_error(fit):
    counts = {(0, 0): 31, (0, 1): 12, (1, 0): 20, (1, 1): 57}
    right = np.array([cell for cell, n in counts.items() for _ in range(n)], float)
    result = fit(right)
    n = np.array(list(counts.values()))
    ratio = np.log(n[0] * n[3] / (n[1] * n[2]))
    # The model is saturated: any consistent estimate has the multinomial's error.
    assert result.weights[0, 1] == pytest.approx(ratio, abs=1e-7)
    assert result.errors[0, 1] == pytest.approx(np.sqrt((1 / n).sum()), abs=1e-6)
    assert result.thresholds[1] == pytest.approx(np.log(12 / 31), abs=1e-7)
    error = np.sqrt(1 / 12 + 1 / 31)
    assert result.errors[1, 1] == pytest.approx(error, abs=1e-6)


@pytest.mark.parametrize("fit", [fit_exact, fit_pseudolikelihood])
def test_errors_cover_the_weights(model, fit):
    rng = np.random.default_rng(1)
    first, second = np.triu_indices(6, 1)
    covered = []
    for _ in range(60):
        result = fit(drawn(rng, 1000, *model))
        z = (result.weights - model[1])[first, second] / result.errors[first, second]
        covered.append(np.abs(z) < 1.96)
    # 900 intervals: 95 % within 3 standard errors of 0.73 %.
    assert 0.928 < np.mean(covered) < 0.972


def test_pseudolikelihood_in_blocks_is_that_of_the_whole(model, monkeypatch):
    right = drawn(np.random.default_rng(2), 300, *model)
    whole = fit_pseudolikelihood(right)
    monkeypatch.setattr("irtjax.validity.ising.BLOCK", 50 * 36)
    blocks = fit_pseudolikelihood(right)
    np.testing.assert_allclose(blocks.weights, whole.weights, atol=1e-9)
    np.testing.assert_allclose(blocks.errors, whole.errors, atol=1e-9)


def test_weights_of_rank_one_are_a_two_parameter_model(model):
    """Marsman et al. 2018: ability is integrated out, with a prior of its own."""
    slopes, thresholds = np.array([0.5, 1.2, 0.8, 1.0]), model[0][:4]
    weights = np.outer(slopes, slopes)
    patterns, log_chance = log_chances_of(thresholds, weights)
    x, w = np.polynomial.hermite_e.hermegauss(80)
    # The square of s = sum a_j y_j has a_j^2 y_j^2 = a_j^2 y_j on its diagonal.
    intercepts = thresholds - slopes**2 / 2
    logits = intercepts + x[:, None] * slopes
    right = (logits[:, None, :] * patterns - np.logaddexp(0, logits)[:, None]).sum(2)
    density = np.log(w) + np.logaddexp(0, logits).sum(axis=1)
    two = logsumexp(right + (density - logsumexp(density))[:, None], axis=0)
    np.testing.assert_allclose(two, log_chance, atol=1e-10)


def test_subjects_and_items_left_out_are_counted():
    rng = np.random.default_rng(0)
    right = (rng.random((60, 5)) < 0.5).astype(float)
    right[:, 1], right[3, 0], right[9, 2] = 1, np.nan, np.nan
    result = irtjax.network(irtjax.ResponseTable.from_arrays(right))
    assert result.num_subjects == 58 and result.table.num_rows == 4
    assert result.warnings == (
        "2 subjects with missing responses left out.",
        "1 item without variation left out.",
    )
    same = irtjax.network(
        irtjax.ResponseTable.from_arrays(np.delete(right, [3, 9], 0)[:, [0, 2, 3, 4]])
    )
    np.testing.assert_allclose(result.weights, same.weights, atol=1e-12)


def test_items_with_the_largest_variance_are_chosen():
    share = np.array([0.1, 0.5, 0.9, 0.4])
    right = (np.arange(40)[:, None] < 40 * share).astype(int)
    right = np.random.default_rng(0).permuted(right, axis=0)
    result = irtjax.network(irtjax.ResponseTable.from_arrays(right), top=2)
    assert result.table.column("item").to_pylist() == ["item 2", "item 4"]


def test_pairs_that_separate_have_no_error():
    rng = np.random.default_rng(0)
    right = (rng.random((200, 4)) < 0.5).astype(int)
    right[:, 1] = right[:, 0]
    result = irtjax.network(irtjax.ResponseTable.from_arrays(right))
    edge = result.edges.to_pylist()[0]
    assert edge["weight"] > 8 and edge["weight_se"] is None and edge["q_value"] is None
    assert result.warnings[0].startswith("1 pair of items separate")


def test_two_numbers_are_wrong_and_right():
    """1 and 2 are 0 and 1 for all that takes right and wrong responses."""
    pytest.importorskip("sklearn")
    coins = (np.random.default_rng(0).random((60, 5)) < 0.5).astype(int)
    group = np.arange(60) % 2
    table, other = (irtjax.ResponseTable.from_arrays(x) for x in (coins, coins + 1))
    for run in (
        lambda x: irtjax.network(x).weights,
        lambda x: irtjax.network(x, "glasso").weights,
        lambda x: irtjax.dif(x, group, method="mh").table["statistic"].to_numpy(),
        lambda x: irtjax.rasch(x, draws=0).table["difficulty"].to_numpy(),
        lambda x: irtjax.cold_start(x, item_features={"x": np.arange(5)}).logit,
    ):
        np.testing.assert_array_equal(run(other), run(table))
    assert irtjax.rasch(other, draws=0).model == "rasch"


def test_bad_input_has_one_line():
    table = irtjax.ResponseTable.from_arrays
    coins = (np.random.default_rng(0).random((40, 16)) < 0.5).astype(float)
    with pytest.raises(ValueError, match="right and wrong .* are continuous"):
        irtjax.network(table(coins + 0.5 * coins[::-1] / 3))
    counts = table(np.full((9, 4), 2), trials=np.full((9, 4), 3))
    with pytest.raises(ValueError, match="are counts: take their means, trials='mean'"):
        irtjax.network(counts, "glasso")
    with pytest.raises(ValueError, match="is not one of pseudolikelihood, exact"):
        irtjax.network(table(coins), "ising")
    with pytest.raises(ValueError, match="at most 15 items"):
        irtjax.network(table(coins), "exact")
    with pytest.raises(ValueError, match="choose at most 100 items"):
        irtjax.network(table(np.tile(coins, (1, 7))))
    with pytest.raises(ValueError, match="0 of 40 subjects responded to every item"):
        coins[np.arange(40), np.arange(40) % 16] = np.nan
        irtjax.network(table(coins))


def test_the_command_has_what_python_has(tmp_path):
    rng = np.random.default_rng(0)
    right = (rng.random((80, 4)) < 0.5).astype(int)
    table = irtjax.ResponseTable.from_arrays(right)
    file = table.save(tmp_path / "responses.parquet")
    words = ["network", str(file), "--json", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    document, result = json.loads(done.stdout), irtjax.network(table)
    assert document["log_likelihood"] == pytest.approx(result.log_likelihood)
    assert document["edges"] == result.edges.to_pylist()
    assert document["items"] == result.table.to_pylist()
    files = {x.name for x in (tmp_path / "out").iterdir()}
    assert files == {"network_items.csv", "network_edges.csv"}
    text = CliRunner().invoke(app, words[:2]).stdout
    assert "expected influence" in text and " ± " in text


def test_few_subjects_do_not_determine_most_pairs():
    right = np.random.default_rng(0).integers(0, 2, (12, 10))
    table = irtjax.ResponseTable.from_arrays(right)
    with pytest.raises(ValueError, match="12 subjects .* 45 pairs .*top="):
        irtjax.network(table)
    assert np.isfinite(irtjax.network(table.select(items=[0, 1, 2])).weights).all()
