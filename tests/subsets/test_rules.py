"""The default of `shrink`: which rule is taken, and how honest its errors are."""

import json
from functools import cache

import jax
import numpy as np
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.cli.shrink import subset_sentences
from irtjax.models.catalogue import two_parameter
from irtjax.subsets.crossfit import Pool, choose_from, learn
from irtjax.subsets.forward import RIDGE, forward_priority, spread_priority
from irtjax.subsets.predictor import Prediction
from irtjax.subsets.rules import compare
from irtjax.subsets.selection import RULES, shares

KEY = jax.random.key(2)
LEVEL = 0.9


def responses(rng, subjects: int, slope, shift) -> np.ndarray:
    """Of a model with as many abilities as slopes have rows."""
    ability = rng.normal(size=(subjects, len(slope)))
    chance = 1 / (1 + np.exp(-ability @ slope - shift))
    return (rng.random(chance.shape) < chance).astype(float)


@cache
def two_abilities() -> tuple[irtjax.ResponseTable, np.ndarray]:
    """300 subjects and 3,000 fresh ones on 40 items, a quarter of a second ability."""
    rng = np.random.default_rng(4)
    own = np.arange(40) % 4 == 3
    slope = np.stack([np.where(own, 0.0, 1.5), np.where(own, 2.0, 0.0)])
    shift = rng.normal(size=40)
    values = responses(rng, 3300, slope, shift)
    return irtjax.ResponseTable.from_arrays(values[:300]), values[300:]


@cache
def default() -> irtjax.Shrunken:
    return irtjax.shrink(two_abilities()[0], 8)


@cache
def small_table() -> irtjax.ResponseTable:
    """A part of `two_abilities`, where its size does not matter."""
    return two_abilities()[0].select(subjects=np.arange(60), items=np.arange(20))


@cache
def small_default() -> irtjax.Shrunken:
    return irtjax.shrink(small_table(), 6, folds=2)


def fresh_errors(small: irtjax.Shrunken) -> np.ndarray:
    values = two_abilities()[1]
    found = small.predict(irtjax.ResponseTable.from_arrays(values)).table
    return np.abs(np.array(found["expected_score"].to_pylist()) - values.mean(1))


SHIFT = np.where(np.arange(60) < 25, -12.0, np.linspace(-1.5, 1.5, 60))


def models(seed: int, count: int) -> irtjax.ResponseTable:
    """Models on 60 items, 25 of which are too hard for any of them."""
    rng = np.random.default_rng(seed)
    values = responses(rng, count, np.full((1, 60), 1.2), SHIFT)
    return irtjax.ResponseTable.from_arrays(values)


def forward_by_hand(values, target, turns, stratum, tier) -> list[int]:
    """Each choice by the inverse of the covariance of all that were chosen."""
    covariance = np.cov(values.T, bias=True)
    ridge = RIDGE * np.trace(covariance) / len(covariance)
    with_score, order = covariance @ target, []
    for turn in turns:
        allowed = [j for j in np.flatnonzero(stratum == turn) if j not in order]
        lowest = min(tier[j] for j in allowed)
        best = {}
        for j in (j for j in allowed if tier[j] == lowest):
            some = [*order, j]
            among = covariance[np.ix_(some, some)] + ridge * np.eye(len(some))
            best[j] = with_score[some] @ np.linalg.solve(among, with_score[some])
        order.append(max(best, key=lambda j: best[j]))
    return order


def test_regression_takes_the_item_that_explains_most_of_what_is_left():
    rng = np.random.default_rng(0)
    values = responses(rng, 60, rng.uniform(0, 2, (2, 20)), rng.normal(size=20))
    target = rng.dirichlet(np.ones(20))
    stratum, tier = np.repeat([0, 1], [14, 6]), np.where(np.arange(20) % 7 == 0, 1, 0)
    turns = shares(target, stratum, 12)
    vectors = (values - values.mean(0)).T
    score = forward_priority(vectors, target, stratum, turns, tier)
    wanted = forward_by_hand(values, target, turns, stratum, tier)
    assert np.argsort(-score)[:12].tolist() == wanted
    # Held-out subjects are rows of 0: the same order, whatever their number.
    more = np.concatenate([vectors, np.zeros((20, 9))], axis=1)
    again = forward_priority(more, target, stratum, turns, tier)
    assert np.argsort(-again)[:12].tolist() == wanted


def test_every_beginning_is_spread_over_difficulties():
    total = np.random.default_rng(1).permutation(64)
    nothing = np.zeros(64, int)
    order = np.argsort(-spread_priority(total, nothing, nothing, KEY), kind="stable")
    for size in (2, 4, 8, 16, 32):
        gaps = np.diff(np.sort(total[order[:size]]))
        assert set(gaps.tolist()) == {64 // size}
    other = spread_priority(total, nothing, nothing, jax.random.key(3))
    assert np.argsort(-other, kind="stable")[0] != order[0]
    # Strata and tiers are spread each by itself.
    stratum = np.repeat([0, 1], 32)
    score = spread_priority(np.arange(64), stratum, nothing, KEY)
    for code in (0, 1):
        mine = np.flatnonzero(stratum == code)
        first = np.sort(mine[np.argsort(-score[mine], kind="stable")[:8]])
        assert set(np.diff(first).tolist()) == {4}


@cache
def with_flat_items():
    """32 of 40 items vary, 4 of them separated; 8 have equal responses.

    As many subjects and items as in `two_abilities`, for the same programs.
    """
    rng = np.random.default_rng(6)
    ability = np.sort(rng.normal(size=(300, 1)), axis=0)
    noisy = (rng.random((300, 28)) < 1 / (1 + np.exp(-ability))).astype(float)
    # Right for the best alone, whose places the other items leave as they are.
    cut = np.zeros((300, 4))
    cut[np.argsort(noisy.sum(1), kind="stable")[-4:]] = 1
    flat = np.repeat(np.repeat([[0.0, 1.0]], 300, axis=0), 4, axis=1)
    table = irtjax.ResponseTable.from_arrays(np.hstack([flat, cut, noisy]))
    target, nothing = np.full(40, 1 / 40), np.zeros(40, int)
    pool = Pool(table, two_parameter("weak"), target, nothing)
    return pool, learn(pool, np.zeros(300, bool))


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_items_without_variation_are_chosen_last(rule):
    pool, known = with_flat_items()
    assert known.tier.tolist() == np.repeat([2, 1, 0], [8, 4, 28]).tolist()
    for size, found in choose_from(pool, known, rule, (28, 32, 35), KEY).items():
        count = np.bincount(known.tier[found.items], minlength=3)
        assert count.tolist() == [28, min(size - 28, 4), max(size - 32, 0)]
        assert found.weight.sum() == pytest.approx(1)


def made(error: np.ndarray):
    """Predictions of a full score of 0.5 that miss by `error`."""
    one = np.ones_like(error)
    return Prediction(0.5 + error, 0.05 * one, one, 0 * one, 0.5 * one, one, one)


def test_the_simplest_rule_within_one_standard_error_is_taken():
    rng = np.random.default_rng(0)
    fold, truth = np.arange(40) % 5, np.full(40, 0.5)
    near = rng.normal(size=40) * 0.1
    far = {"random": made(near * 3), "clustering": made(near)}
    found = compare(far, fold, truth, LEVEL)
    assert found.rule == "clustering"
    assert [row["rule"] for row in found.rows] == ["clustering", "random"]
    excess = 2 * np.abs(near)
    assert found.rows[1]["excess"] == pytest.approx(excess.mean())
    by_fold = [excess[fold == k].mean() for k in range(5)]
    wanted = max(excess.std(ddof=1) / 40**0.5, np.std(by_fold, ddof=1) / 5**0.5)
    assert found.rows[1]["excess_se"] == pytest.approx(wanted)
    assert [row["taken"] for row in found.rows] == [True, False]
    # A hundredth of a standard error better is a tie, which the simpler rule takes.
    noise = rng.permutation(near)
    noise *= np.abs(near).mean() / np.abs(noise).mean() * (1 + 1e-3)
    tied = compare(
        {"random": made(noise), "clustering": made(near)}, fold, truth, LEVEL
    )
    assert tied.rule == "random" and tied.rows[0]["rule"] == "clustering"


def test_intervals_hold_after_the_best_of_many_equal_rules_was_taken():
    """Six rules of equal quality: the errors of the one taken are smallest by luck."""
    rng = np.random.default_rng(5)
    subjects, runs = 39, 400
    fold, truth = np.arange(subjects) % 5, np.full(subjects, 0.5)
    inside, stated, own = [], [], []
    for _ in range(runs):
        error = 0.08 * rng.standard_t(4, (len(RULES), subjects)) / 2**0.5
        missed = map(made, np.clip(error, -0.5, 0.5))
        some: dict[str, Prediction] = dict(zip(RULES, missed, strict=True))
        found = compare(some, fold, truth, LEVEL)
        fresh = np.clip(0.08 * rng.standard_t(4, 200) / 2**0.5, -0.5, 0.5)
        low, high = found.calibrator.interval(made(fresh))
        inside.append(np.mean((low - 1e-9 <= 0.5) & (high + 1e-9 >= 0.5)))
        stated.append(np.abs(found.score - truth).mean())
        own.append(next(r["mean_absolute_error"] for r in found.rows if r["taken"]))
    # The truth: the mean absolute error of any of the rules.
    draws = np.clip(0.08 * rng.standard_t(4, 200_000) / 2**0.5, -0.5, 0.5)
    exact = np.abs(draws).mean()
    # 400 runs: three standard errors of each mean.
    margin = 3 * np.std(inside) / runs**0.5
    assert np.mean(inside) > LEVEL - margin
    assert np.mean(stated) > exact - 3 * np.std(stated) / runs**0.5
    # What the test could not see otherwise: without care the error is too small.
    assert np.mean(own) < exact - 3 * np.std(own) / runs**0.5


@pytest.mark.slow
def test_the_default_is_as_good_as_every_rule_on_fresh_subjects():
    table = two_abilities()[0]
    found = default()
    assert {row["rule"] for row in found.rules} == set(RULES)
    mine = fresh_errors(found)
    spread = max(row["excess_se"] for row in found.rules)
    for rule in RULES:
        single = irtjax.shrink(table, 8, rule=rule, folds=0)
        other = fresh_errors(single)
        excess = mine - other
        # One standard error is what ties may cost, two are chance: those of the
        # comparison on 300 subjects, and of the mean over the fresh ones.
        assert excess.mean() < 3 * np.hypot(spread, excess.std() / len(excess) ** 0.5)
        if rule == "information":
            # It chooses for one ability: what it leaves out of the second costs it.
            assert mine.mean() < 0.95 * other.mean()


@pytest.mark.slow
def test_the_default_is_the_rule_that_it_names():
    found = default()
    alone = irtjax.shrink(two_abilities()[0], 8, rule=found.rule)
    assert alone.items.tolist() == found.items.tolist()
    assert alone.rules == () and alone.reason == ""
    taken = next(row for row in found.rules if row["taken"])
    assert taken["rule"] == found.rule
    single = alone.held_out["mean_absolute_error"]
    assert taken["mean_absolute_error"] == pytest.approx(single, abs=1e-12)
    assert found.reason.startswith(f"rule taken: {found.rule}, the ")
    best = found.rules[0]["rule"]
    ends = f"the best, {best}", f"the best of {len(RULES)} on subjects left out"
    assert "\n" not in found.reason and found.reason.endswith(ends)
    said, why = subset_sentences(found)
    assert found.error == taken["mean_absolute_error"] and alone.error == single
    error = f"{found.error:.2f}".removeprefix("0")
    assert said == f"8 items give the full score to ±{error} on average."
    assert why == f"R{found.reason[1:]}."
    assert subset_sentences(alone)[1].startswith("Items are chosen ")


@pytest.mark.slow
def test_ten_models_get_items_that_vary():
    table = models(0, 10)
    varies = np.ptp(table.values, axis=0) > 0
    found = irtjax.shrink(table, 15, folds=2)
    # Whatever is taken is not significantly worse than the best.
    assert {row["rule"] for row in found.rules} == set(RULES)
    [taken] = [row for row in found.rules if row["taken"]]
    assert taken["rule"] == found.rule and taken["excess"] <= taken["excess_se"]
    assert found.model.family == two_parameter(None).family
    assert varies[np.isin(table.items, found.items)].all()
    assert found.held_out["num_subjects"] == 10 and found.calibrator.multiplier > 1.9


@pytest.mark.parametrize(
    ("more", "rule", "reason"),
    [
        ({"size": 6, "folds": 0}, "random", "no subjects are left out"),
        ({"size": 6, "aim": "ability", "folds": 2}, "information", "an aim or abilit"),
        (
            {"size": 6, "abilities": [0.5], "folds": 2},
            "information",
            "an aim or abilit",
        ),
        ({"standard_error": 0.7, "folds": 0}, "information", "an error, an aim"),
    ],
)
def test_the_default_says_where_it_compares_nothing(more, rule, reason):
    found = irtjax.shrink(small_table(), **more)
    assert found.rule == rule and found.rules == ()
    assert reason in found.reason


def test_the_record_keeps_the_comparison(tmp_path):
    found = small_default()
    found.save(tmp_path)
    again = irtjax.load_subset(tmp_path)
    assert again.rules == found.rules and again.reason == found.reason
    written = pyarrow.csv.read_csv(tmp_path / "rules.csv").to_pylist()
    assert [row["rule"] for row in written] == [row["rule"] for row in again.rules]
    for row, want in zip(written, again.rules, strict=True):
        assert row["excess_se"] == pytest.approx(want["excess_se"], rel=1e-9)
    irtjax.shrink(small_table(), 5, rule="random", folds=0).save(tmp_path)
    assert not (tmp_path / "rules.csv").exists()


def test_the_command_line_shows_the_comparison(tmp_path):
    data = small_table().save(tmp_path / "responses.json")
    out = tmp_path / "small"
    args = ["shrink", str(data), "--size", "6", "--out", str(out), "--seed", "0"]
    args += ["--folds", "2"]
    shown = CliRunner().invoke(app, args, prog_name="irtjax", env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.stderr or shown.exception
    assert "6 items give the full score to ±." in shown.stdout
    assert "Rule taken: " + small_default().rule in " ".join(shown.stdout.split())
    assert "rules.csv" in shown.stdout
    saved = json.loads((out / "subset.json").read_text())
    assert [row["rule"] for row in saved["rules"]] == [
        r["rule"] for r in small_default().rules
    ]
    asked = CliRunner().invoke(app, [*args, "--rule", "random", "--json"])
    content = json.loads(asked.stdout)
    assert content["rule"] == "random" and content["rules"] == []
    names = {path.name for path in out.iterdir()}
    assert names == {"subset.csv", "subset.json", "report.html"}


@pytest.mark.slow
def test_errors_of_the_default_are_of_subjects_that_did_not_compare():
    table = two_abilities()[0]
    errors = irtjax.subset_errors(table, [8], folds=4)
    rows = {row["rule"]: row for row in errors.rows}
    assert set(rows) == {*RULES, "auto"}
    best = min(rows[rule]["mean_absolute_error"] for rule in RULES)
    auto = rows["auto"]
    assert best - 1e-12 <= auto["mean_absolute_error"]
    assert auto["mean_absolute_error"] < best + 3 * auto["mean_absolute_error_se"]
    # 300 intervals: three standard errors of 0.013, and as much for the calibration.
    assert auto["coverage"] == pytest.approx(0.95, abs=0.055)
    assert auto["rules_taken"].split()[0].rstrip(",") in RULES


@pytest.mark.slow
def test_the_default_on_metabench(shared_data):
    """5,041 models, 50 of 249 items: 0.022, against 0.027 to 0.037 by other rules.

    Standard errors over models are 0.0003 to 0.0005, and those of rules by chance
    (random, difficulty, clustering) differ from one draw to the next by 0.0015.
    """
    table = irtjax.read(shared_data / "metabench" / "gsm8k_2pl_responses.parquet")
    found = irtjax.shrink(table, 50)
    assert found.rule == "regression"
    error = {row["rule"]: row["mean_absolute_error"] for row in found.rules}
    for rule, measured, margin in [
        ("regression", 0.0220, 0.001),
        ("clustering", 0.0271, 0.0045),
        ("random", 0.0285, 0.0045),
        ("difficulty", 0.0280, 0.0045),
        ("information", 0.0349, 0.0015),
        ("discrimination", 0.0369, 0.0015),
    ]:
        assert error[rule] == pytest.approx(measured, abs=margin), rule
    assert found.held_out["mean_absolute_error"] < 0.024
    row = irtjax.subset_errors(table, [50], ["auto"]).rows[0]
    assert row["rule"] == "auto" and row["rules_taken"] == "regression"
    assert row["mean_absolute_error"] == pytest.approx(error["regression"], abs=0.001)
    # 5,041 intervals in five folds: three standard errors of 0.003.
    assert row["coverage"] == pytest.approx(0.95, abs=0.01)


@pytest.mark.slow
def test_ten_models_with_impossible_items_predict_better_than_a_random_mean():
    """Of 60 items 25 are wrong for all; the errors are of 200 new models."""
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        slope = np.exp(0.3 * rng.normal(size=(1, 60)))
        shift = rng.normal(0.5, 1.2, 60)
        shift[:25] = -50
        train, new = responses(rng, 10, slope, shift), responses(rng, 200, slope, shift)
        small = irtjax.shrink(irtjax.ResponseTable.from_arrays(train), 15, folds=0)
        predicted = small.predict(irtjax.ResponseTable.from_arrays(new))
        full = new.mean(axis=1)
        by_model = np.asarray(predicted.table.column("expected_score")) - full
        any_items = new[:, rng.choice(60, 15, replace=False)].mean(axis=1) - full
        errors.append((np.abs(by_model).mean(), np.abs(any_items).mean()))
    # Over 40 data sets .038 and .083, with standard deviations .004 and .025.
    ours, plain = np.mean(errors, axis=0)
    assert ours < 0.046 < plain
