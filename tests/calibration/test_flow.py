"""Moves between ranks by accuracy and by ability, their reasons, and their cause."""

import dataclasses
import functools
import json
import types
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit
from scipy.stats import chi2, spearmanr
from typer.testing import CliRunner

import irtjax
from irtjax.calibration.flow import _weights, rank_flow
from irtjax.calibration.heterogeneity import (
    _grouped,
    _weighted_spearman,
    _without_prior,
    discrimination_heterogeneity,
    variation,
)
from irtjax.calibration.parts import Factors
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from irtjax.cli.app import app
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.priors import Normal
from irtjax.plots import plot_rank_flow
from tests.small_fits import small_fit, small_table


def of_ranks(ability, accuracy, low=None, high=None) -> irtjax.Calibration:
    """A calibration with these abilities and accuracies; rank intervals are wide."""
    size = len(ability)
    fit = small_fit("rasch", errors=False)
    columns = {
        "subject": [f"s{k}" for k in range(size)],
        "ability": np.asarray(ability, float),
        "ability_se": np.full(size, 0.1),
        "accuracy": np.asarray(accuracy, float),
        "rank_lower": np.ones(size, int) if low is None else low,
        "rank_upper": np.full(size, size) if high is None else high,
    }
    names = np.array(columns["subject"])
    abilities = AbilityTable(pa.table(columns))
    return dataclasses.replace(fit, subject_names=names, abilities=abilities)


def test_moves_ties_and_tops():
    # By ability s0 > s1 > s2 > s3 > s4; by accuracy s3 is first, s1 and s2 tie.
    fit = of_ranks(
        [5, 4, 3, 2, 1],
        [0.8, 0.7, 0.7, 0.9, 0.1],
        low=[1, 1, 2, 4, 5],
        high=[1, 2, 3, 4, 5],
    )
    rows = rank_flow(fit, top=5).table.to_pylist()
    assert [row["rank_before"] for row in rows] == [2, 3, 3, 1, 5]
    assert [row["move"] for row in rows] == [1, 1, 0, -3, 0]
    assert [row["beyond"] for row in rows] == [True, True, False, True, False]
    found = rank_flow(fit, top=3)
    # s3 is fourth by ability, so it is in one top only.
    assert found.table.column("subject").to_pylist() == ["s0", "s1", "s2"]
    assert "s0 from 2 to 1" in found.sentence
    with pytest.raises(ValueError, match="no subject is in the first 1"):
        rank_flow(fit, top=1)


def test_the_sentence_counts_one_subject_as_one():
    fit = of_ranks([5, 4, 3, 2], [0.9, 0.8, 0.6, 0.7], high=[1, 2, 3, 4])
    assert rank_flow(fit, top=1).sentence.startswith(
        "1 subject is in the first 1 by accuracy and by ability, and it has the same"
        " rank in both. Kendall"
    )
    fit = of_ranks([5, 4, 3], [0.7, 0.7, 0.1], low=[1, 2, 3], high=[1, 2, 3])
    text = rank_flow(fit, top=2).sentence
    assert ", and 1 of them has different ranks. 1 moves beyond its rank" in text
    fit = of_ranks([5, 4, 3], [0.7, 0.6, 0.9], low=[1, 2, 3], high=[1, 2, 3])
    text = rank_flow(fit, top=2).sentence
    assert "1 subject is in the first 2" in text and "it has different ranks." in text


def test_equal_abilities_up_to_rounding_share_a_rank():
    fit = of_ranks([1, 1 + 1e-12, 0], [0.5, 0.6, 0.1])
    assert rank_flow(fit).table.column("rank").to_pylist() == [1, 1, 3]


def test_a_fit_against_itself_never_moves():
    fit = of_ranks([1 + 1e-12, 1, 1 + 1e-12, 0], [0.5, 0.6, 0.1, 0.2])
    found = rank_flow(fit, against=fit)
    assert found.table.column("rank").to_pylist() == [1, 1, 1, 4]
    assert found.table.column("move").to_pylist() == [0] * 4 and found.kendall == 1


def test_accuracies_up_to_rounding_share_a_rank():
    fit = of_ranks([2, 1, 0], [0.3, 0.1 + 0.2, 0.1])
    found = rank_flow(fit).table.column("rank_before").to_pylist()
    assert found == [1, 1, 3]


def test_a_ranking_of_ties_has_no_kendall():
    found = rank_flow(of_ranks([1, 1, 1], [0.5, 0.6, 0.1]))
    assert found.kendall is None
    assert "All subjects are tied in one ranking" in found.sentence


def test_subjects_without_an_ability_or_responses_are_left_out():
    fit = of_ranks([1, np.nan, 0, 2], [0.5, 0.6, 0.1, np.nan])
    found = rank_flow(fit)
    assert found.num_subjects == 2
    assert found.table.column("rank").to_pylist() == [1, 2]
    # Intervals are of ranks among all, so they are not compared with ranks of two.
    assert found.table.column("beyond").to_pylist() == [None, None]


@functools.cache
def with_slopes() -> tuple[irtjax.Calibration, irtjax.ResponseTable]:
    """Four items, the first two with slopes of 3: s0 is right on these alone."""
    values = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 1], [0, 0, 0, 1]])
    names, items = [f"s{k}" for k in range(4)], ["a", "b", "c", "d"]
    table = irtjax.ResponseTable.from_arrays(values, subjects=names, items=items)
    slope = np.array([3.0, 3.0, 1.0, 1.0])
    fit = of_ranks(values @ slope / 4, values.mean(axis=1))
    columns = {"item": items, "discrimination": slope}
    own = {"item_names": np.array(items), "items": ItemTable(pa.table(columns))}
    fit = dataclasses.replace(fit, **own)
    return fit, table


def test_reasons_are_the_items_that_weigh_more_or_less():
    fit, table = with_slopes()
    rows = {row["subject"]: row for row in rank_flow(fit, data=table).table.to_pylist()}
    # s0 has ability 6 and s2 has 5: from the second place (tied) to the first.
    assert rows["s0"]["move"] == 1 and rows["s2"]["move"] == -1
    # By hand: weights 1.5 and 0.5; item means 1/2, 1/4, 1/2, 3/4. Of s0 the items give
    # 1/4, 3/8, 1/4 and 3/8; of s2 1/4, -1/8, -1/4 and -1/8.
    assert [rows["s0"][f"item_{k}"] for k in (1, 2, 3)] == ["b", "d", "a"]
    assert [rows["s2"][f"item_{k}"] for k in (1, 2, 3)] == ["c", "b", "d"]
    assert rows["s3"]["item_1"] is None


def test_weights_of_several_abilities_are_derivatives_of_expected_scores():
    """By differences in a response, which the mode of the abilities follows."""
    rng = np.random.default_rng(0)
    slopes, level = rng.uniform(0.2, 1.5, (6, 2)), rng.normal(size=6)
    chance = lambda theta: expit(slopes @ theta + level)

    def mode(y):
        theta = np.zeros(2)
        for _ in range(30):
            p = chance(theta)
            step = slopes.T @ (y - p) - theta
            precision = np.eye(2) + (slopes.T * (p * (1 - p))) @ slopes
            theta = theta + np.linalg.solve(precision, step)
        return theta, np.linalg.inv(precision)

    values = rng.integers(0, 2, (3, 6))
    modes, covariances = map(np.array, zip(*map(mode, values), strict=True))
    none: Any = None
    found = Factors(
        names=np.array(["a", "b"]),
        loadings=none,
        loadings_error=none,
        structure=none,
        communality=none,
        correlation=none,
        ability=modes,
        covariance=covariances,
        mean=modes,
        spread=covariances,
        rotation="none",
        share_at_best=1.0,
    )
    fit = of_ranks([3, 2, 1], values.mean(axis=1))
    zero = np.zeros(6)
    items = LogisticItems(slopes, level, zero, zero + 1)
    fit = dataclasses.replace(
        fit,
        model=factor_model(Factor(2)),
        parameters=fit.parameters._replace(items=items),
        parts=(found,),
        items=ItemTable(pa.table({"discrimination": zero})),
    )
    weights = _weights(fit, fit.subject_names[::-1])
    assert weights is not None
    for y, row in zip(values[::-1], weights, strict=True):
        ends = [
            [chance(mode(y + sign * 1e-4 * (np.arange(6) == j))[0]).mean()
             for j in range(6)]
            for sign in (1, -1)
        ]  # fmt: skip
        moves = np.subtract(*ends)
        np.testing.assert_allclose(row, moves / moves.mean(), rtol=1e-5)


def test_another_fit_takes_the_place_of_accuracy():
    fit, table = with_slopes()
    rows = rank_flow(fit, against=fit, data=table).table.to_pylist()
    assert all(row["move"] == 0 and row["item_1"] is None for row in rows)
    other = of_ranks([1, 2, 3, 4], [0.1] * 4)
    assert rank_flow(fit, against=other).against == "another fit"
    with pytest.raises(ValueError, match="neither 'accuracy' nor a fit"):
        rank_flow(fit, against="score")


def test_the_figure_has_a_ribbon_for_each_and_a_bar_for_each_rank():
    fit = of_ranks([5, 4, 3, 2, 1], [0.8, 0.7, 0.7, 0.9, 0.1])
    axes = plot_rank_flow(fit).axes[0]
    assert len(axes.collections) == 5
    # Four ranks by accuracy, of which one is shared, and five by ability.
    assert len(axes.patches) == 9
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("3=") == 1


def test_the_command_shows_and_draws_the_flow(tmp_path):
    folder, figure = tmp_path / "fit", tmp_path / "flow.png"
    irtjax.save(small_fit(), folder)
    responses = small_table().save(tmp_path / "responses.json")
    command = ["rank", str(folder), "--flow", "accuracy", "--top", "9"]
    command += [str(responses)]
    result = CliRunner().invoke(app, [*command, "--figure", str(figure)])
    assert result.exit_code == 0, result.stderr
    assert "in the first 9 by accuracy" in " ".join(result.stdout.split())
    assert figure.stat().st_size > 1000
    content = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert content["top"] == 9 and "item_1" in content["subjects"][0]
    for wrong, message in (
        (["--top", "3"], "--top requires --flow"),
        (["--flow", "accuracy", "--figure", "x.pdf"], "ends in .png"),
        (["--flow", "accuracy", "--against", "x"], "leave one out"),
        (["--flow", "accuracy", "--level", "0.9"], "--level has no effect"),
        (["--flow", "accuracy", "--draws", "900"], "--draws has no effect"),
        (["--flow", "accuracy", "--seed", "0"], "--seed has no effect"),
        (["--flow", "accuracy", "--all"], "--all has no effect"),
        (["--item", "q"], "--item requires --flow and FILE"),
        (["--flow", "accuracy", "--missing-as", "wrong"], "--missing-as requires"),
    ):
        result = CliRunner().invoke(app, ["rank", str(folder), *wrong])
        assert result.exit_code == 2 and message in result.stderr


def test_the_command_reads_responses_as_it_is_told(tmp_path):
    folder, path = tmp_path / "fit", tmp_path / "long.csv"
    irtjax.save(small_fit(), folder)
    table = small_table()
    assert table.observed is not None
    lines = ["who,item,benchmark,ok"]
    for i, j in np.argwhere(table.observed):
        # One name has a comma and quotes.
        name = '"' + str(table.subjects[i]).replace('"', '""') + '"'
        cells = name, table.items[j], table.benchmarks[j], int(table.values[i, j])
        lines.append(",".join(map(str, cells)))
    path.write_text("\n".join(lines))
    command = ["rank", str(folder), "--flow", "accuracy", str(path)]
    command += ["--subject", "who", "--response", "ok", "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["subjects"]
    assert any(row["move"] and row["item_1"] for row in rows)


def test_variation_without_noise_is_recovered():
    rng = np.random.default_rng(8)
    truth = rng.normal(1.2, 0.3, 4000)
    variance = rng.uniform(0.02, 0.4, truth.size)
    value = truth + np.sqrt(variance) * rng.normal(size=truth.size)
    # tau^2 has a standard error of about 0.006 here, and sd = 0.3 one of 0.01.
    assert variation(value, variance) == pytest.approx(0.25, abs=0.03)
    assert value.std() / value.mean() > 0.45
    assert variation(truth, np.zeros(truth.size)) == pytest.approx(
        truth.std(ddof=1) / truth.mean(), rel=1e-6
    )


@pytest.mark.slow
def test_variation_of_discriminations_by_the_weak_prior():
    rng = np.random.default_rng(3)
    slope, easy = rng.normal(1.2, 0.3, 300), rng.normal(size=300)
    chance = 1 / (1 + np.exp(-rng.normal(size=(150, 1)) * slope - easy))
    table = irtjax.ResponseTable.from_arrays(rng.random(chance.shape) < chance)
    found = discrimination_heterogeneity(irtjax.fit(table, "2pl"))
    # Errors of slopes are about 0.25: their variance has 300 terms.
    assert found.cv > 0.3
    assert found.cv_corrected == pytest.approx(0.25, abs=0.05)
    assert found.lower is not None and found.spearman is not None
    assert found.lower <= found.spearman <= 1


def test_the_interval_of_the_variation_covers():
    """400 sets of 20 estimates: five standard errors of a share of 95 %."""
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(400):
        variance = rng.uniform(0.05, 0.5, 20) ** 2
        value = 1 + 0.25 * rng.normal(size=20) + np.sqrt(variance) * rng.normal(size=20)
        targets = chi2.ppf([0.975, 0.025], 19)
        low, high = (variation(value, variance, float(x)) for x in targets)
        # Of a mean of 1, whose own error of 0.07 hardly matters to so wide intervals.
        covered += low <= 0.25 <= high
    assert abs(covered / 400 - 0.95) < 5 * (0.05 * 0.95 / 400) ** 0.5


def test_items_that_the_prior_determines_do_not_count():
    """An estimate with the error of its prior is not that of the responses."""
    model = types.SimpleNamespace(priors={"discrimination": Normal(1.0, 1.0)})
    fit: Any = types.SimpleNamespace(model=model, options={"anchored_items": 3})
    value, error = np.array([0.8, 1.2, 2.2]), np.array([0.3, 0.3, 0.999])
    alone, variance = _without_prior(fit, value, error)
    # 1 / e^2 - 1 is 10.11: (0.8 / e^2 - 1) / 10.11.
    np.testing.assert_allclose(alone, [0.78022, 1.21978], rtol=1e-5)
    np.testing.assert_allclose(variance, 1 / (1 / 0.09 - 1))


def test_resampled_rank_correlations_are_those_of_repeated_subjects():
    rng = np.random.default_rng(6)
    x = rng.normal(size=30)
    y = np.round(x + rng.normal(size=30))  # Ties.
    rows = rng.integers(0, 30, (5, 30))
    counts = np.stack([np.bincount(row, minlength=30) for row in rows]).astype(float)
    found = _weighted_spearman([_grouped(x), _grouped(y)], counts)
    wanted = [spearmanr(x[row], y[row])[0] for row in rows]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_what_has_no_discriminations_is_refused():
    with pytest.raises(ValueError, match="no discrimination for each item"):
        discrimination_heterogeneity(small_fit("rasch", errors=False))
    found = discrimination_heterogeneity(small_fit())
    assert found.num_items >= 13
    assert found.cv_lower <= found.cv_corrected <= found.cv_upper
