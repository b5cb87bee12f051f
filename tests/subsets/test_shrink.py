"""Small benchmarks: what is chosen, what is predicted, and who was never seen."""

import dataclasses
import json
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.csv
import pytest
from scipy import stats
from typer.testing import CliRunner

import irtjax
from irtjax import plots
from irtjax.cli.app import app
from irtjax.data.item_texts import SourceId
from irtjax.models.catalogue import two_parameter
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Population
from irtjax.subsets.clusters import anchors
from irtjax.subsets.crossfit import (
    Pool,
    choose_from,
    folds_of,
    learn,
    padded_task,
    predict_held,
    whole_of,
)
from irtjax.subsets.errors import rank_correlation
from irtjax.subsets.pool import make_pool, suspicious_items
from irtjax.subsets.predictor import Prediction, correct, scale
from irtjax.subsets.selection import (
    AVOIDED,
    RULES,
    choose,
    expected_errors,
    greedy_order,
    shares,
    worth,
)
from irtjax.subsets.shrink import _ids_of

UNIT = Population(jnp.array(0.0), jnp.array(1.0))
KEY = jax.random.key(5)
SUBJECTS, ITEMS = 200, 24


def items_of(slope, shift):
    slope, shift = np.asarray(slope, float), np.asarray(shift, float)
    zero = jnp.zeros(len(slope))
    return LogisticItems(jnp.asarray(slope), jnp.asarray(shift), zero, zero + 1)


@cache
def table(missing: float = 0.0) -> irtjax.ResponseTable:
    """A 2PL that holds: every third item is sharp, the others nearly say nothing."""
    rng = np.random.default_rng(3)
    slope = np.where(np.arange(ITEMS) % 3 == 0, 2.5, 0.4)
    shift = rng.normal(size=ITEMS)
    ability = rng.normal(size=(SUBJECTS, 1))
    right = rng.random((SUBJECTS, ITEMS)) < 1 / (1 + np.exp(-slope * ability - shift))
    values = right.astype(float)
    values[rng.random(values.shape) < missing] = np.nan
    return irtjax.ResponseTable.from_arrays(
        values, benchmark=["a" if k < 16 else "b" for k in range(ITEMS)]
    )


@cache
def pool(missing: float = 0.0) -> Pool:
    given = table(missing)
    target, stratum = np.full(ITEMS, 1 / ITEMS), np.repeat([0, 1], [16, 8])
    return Pool(given, two_parameter("weak"), target, stratum)


@cache
def known(missing: float = 0.0):
    return learn(pool(missing), np.arange(SUBJECTS) % 5 == 0)


@cache
def fitted() -> irtjax.Calibration:
    return irtjax.fit(table())


@cache
def small() -> irtjax.Shrunken:
    return irtjax.shrink(table(), 8, folds=2)


def weigh(slope, shift, abilities=None):
    count = len(slope)
    items = items_of(slope, shift)
    target = np.full(count, 1 / count)
    return worth(two_parameter(None), items, UNIT, target, abilities)


def greedy_by_hand(knowledge, size: int) -> list[int]:
    weight, information = (
        np.asarray(knowledge.weight),
        np.asarray(knowledge.information),
    )
    precision, order = np.full(len(weight), float(knowledge.precision)), []
    for _ in range(size):
        variance = [
            np.inf if j in order else weight @ (1 / (precision + information[:, j]))
            for j in range(information.shape[1])
        ]
        order.append(int(np.argmin(variance)))
        precision = precision + information[:, order[-1]]
    return order


def test_greedy_choice_is_that_of_one_item_after_another():
    rng = np.random.default_rng(0)
    knowledge = weigh(rng.uniform(0.3, 2.5, 30), rng.normal(size=30))
    nothing = jnp.zeros(30, int)
    order = greedy_order(knowledge, nothing, nothing[:12], "ability", nothing)
    assert order.tolist() == greedy_by_hand(knowledge, 12)
    # At one ability it is the order of the items' information there.
    alone = weigh(rng.uniform(0.3, 2.5, 30), rng.normal(size=30), [0.7])
    order = greedy_order(alone, nothing, nothing, "ability", nothing)
    by_information = np.argsort(-np.asarray(alone.information)[0], kind="stable")
    assert order.tolist() == by_information.tolist()


@pytest.mark.parametrize("rule", ["information", "discrimination"])
def test_planted_informative_items_are_picked(rule):
    found = choose_from(pool(), known(), rule, (8,), KEY)[8]
    # Stratified 16 to 8: sharp items 0, 3, ..., 15 of "a", of which 5 fit, and 18, 21.
    sharp = np.isin(found.items, np.arange(0, ITEMS, 3)).sum()
    assert sharp == 7
    assert (pool().stratum[found.items] == 1).sum() == 3


def test_strata_have_their_shares_at_every_size():
    mass, stratum = np.full(30, 1 / 30), np.repeat([0, 1, 2], [18, 9, 3])
    turns = shares(mass, stratum, 30)
    for size in range(1, 31):
        count = np.bincount(turns[:size], minlength=3)
        assert count.tolist() == [1, 1, 0] if size == 2 else size < 3 or count.min() > 0
        # Webster's apportionment with a seat for each: the divisor under which all
        # that have more round to their seats.
        low = np.max(np.array([18, 9, 3]) / (count + 0.5))
        more = count > 1
        high = np.min(np.array([18, 9, 3])[more] / (count[more] - 0.5), initial=np.inf)
        assert low <= high * (1 + 1e-9)
    assert np.bincount(turns).tolist() == [18, 9, 3]
    knowledge = weigh(np.linspace(0.5, 2, 30), np.zeros(30))
    for rule in RULES:
        found = choose(
            knowledge, rule, (10,), mass=mass, stratum=stratum, key=KEY,
            vectors=np.random.default_rng(0).random((30, 12)),
        )[10]  # fmt: skip
        assert np.bincount(stratum[found.items]).tolist() == [6, 3, 1]
        assert len(set(found.items.tolist())) == 10
        by_stratum = np.bincount(stratum[found.items], weights=found.weight)
        np.testing.assert_allclose(by_stratum, [0.6, 0.3, 0.1])


def test_clusters_are_found_and_weigh_as_many_as_they_have():
    rng = np.random.default_rng(1)
    centres = rng.random((3, 40)) > 0.5
    label = np.repeat([0, 1, 2], [10, 6, 4])
    flipped = rng.random((20, 40)) < 0.03
    chosen, weight = anchors(
        (centres[label] ^ flipped).astype(float), np.full(20, 0.05), 3, KEY
    )
    assert label[chosen].tolist() == [0, 1, 2]
    np.testing.assert_allclose(weight, [0.5, 0.3, 0.2])
    # Equal items: as many as asked for all the same, and no mass is lost.
    twins = np.repeat(centres, 5, axis=0).astype(float)
    chosen, weight = anchors(twins, np.full(15, 1 / 15), 7, KEY)
    assert len(set(chosen.tolist())) == 7 and weight.sum() == pytest.approx(1)


def test_expected_errors_are_those_of_the_formulas():
    knowledge = weigh([1.0, 2.0, 0.5], [0.0, 1.0, -1.0])
    ability, score = expected_errors(knowledge, jnp.array([1, 0, 2]))
    w, info = np.asarray(knowledge.weight), np.asarray(knowledge.information)
    after = 1 / (1 + info[:, 1])
    assert ability[0] == pytest.approx(np.sqrt(w @ after))
    left = np.asarray(knowledge.slope)[:, [0, 2]].sum(1)
    noise = np.asarray(knowledge.noise)[:, [0, 2]].sum(1)
    assert score[0] == pytest.approx(np.sqrt(w @ (left**2 * after + noise)))
    assert score[-1] == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("missing", [0.0, pytest.param(0.3, marks=pytest.mark.slow)])
def test_all_items_predict_exactly(missing):
    given, knowledge = pool(missing), known(missing)
    choice = choose_from(given, knowledge, "random", (ITEMS,), KEY)[ITEMS]
    rows = np.arange(SUBJECTS)
    found = predict_held(
        given, knowledge, choice, rows, whole_of(given, knowledge, rows)
    )
    np.testing.assert_allclose(found.score, given.full_scores(), atol=1e-12)
    assert found.error.max() < 1e-6 and choice.weight.sum() == pytest.approx(1)


def test_a_prediction_is_the_sum_over_all_that_may_be():
    """Brute force over ability on a fine grid and every pattern of unseen answers."""
    model, items = two_parameter(None), items_of([1.2, 0.7, 2.0], [0.3, -0.4, 0.1])
    given = irtjax.ResponseTable.from_arrays([[1, 0, 1], [0, 0, 1]])
    rule = Pool(given, model, np.full(3, 1 / 3), np.zeros(3, int))
    from irtjax.subsets.crossfit import knowledge_of
    from irtjax.subsets.selection import ItemChoice

    knowledge = knowledge_of(rule, items, UNIT, np.zeros(2, bool))
    choice = ItemChoice(np.array([2]), np.ones(1))
    rows = np.arange(2)
    found = predict_held(rule, knowledge, choice, rows, whole_of(rule, knowledge, rows))
    theta = np.linspace(-8, 8, 4001)
    slope, shift = (np.asarray(x)[:, None] for x in items[:2])
    chance = 1 / (1 + np.exp(-slope * theta - shift))
    posterior = stats.norm.pdf(theta) * chance[2]
    posterior /= posterior.sum()
    outcomes = [
        (
            (x + y + 1) / 3,
            np.sum(
                posterior
                * np.where(x, chance[0], 1 - chance[0])
                * np.where(y, chance[1], 1 - chance[1])
            ),
        )
        for x in (0, 1)
        for y in (0, 1)
    ]
    mean = sum(value * p for value, p in outcomes)
    spread = sum((value - mean) ** 2 * p for value, p in outcomes)
    assert found.score[0] == pytest.approx(mean, abs=1e-6)
    assert found.error[0] == pytest.approx(np.sqrt(spread), abs=1e-6)


def test_held_out_subjects_are_never_seen():
    held = np.arange(SUBJECTS) % 5 == 0
    values = table().values.copy()
    values[held] = 1 - values[held]
    other = irtjax.ResponseTable.from_arrays(values)
    turned = Pool(other, pool().model, pool().target, pool().stratum)
    again = learn(turned, held)
    # Accumulated in another order, sums may differ in their last digits.
    np.testing.assert_allclose(again.curves.mean, known().curves.mean, atol=1e-9)
    for rule in RULES:
        first = choose_from(pool(), known(), rule, (6,), KEY)[6]
        second = choose_from(turned, again, rule, (6,), KEY)[6]
        assert first.items.tolist() == second.items.tolist()


@pytest.mark.slow
def test_folds_have_the_form_of_the_calibrations_population():
    """Two kinds of subjects: the weights of a fold have two peaks, as the fit's."""
    rng = np.random.default_rng(8)
    size = (SUBJECTS, 1)
    ability = rng.choice([-1.5, 1.5], size=size) + 0.3 * rng.normal(size=size)
    chance = 1 / (1 + np.exp(-1.5 * ability - rng.normal(size=ITEMS)))
    given = irtjax.ResponseTable.from_arrays(
        (rng.random(chance.shape) < chance).astype(float)
    )
    fit = irtjax.fit(given, "2pl", population="histogram", standard_errors="none")
    made = make_pool(given, fit, stratify=None)[0]
    assert made.form == "histogram"
    held = np.arange(SUBJECTS) % 4 == 0
    curves = learn(made, held).curves
    middle = np.abs(curves.ability) < 0.4
    sides = np.abs(np.abs(curves.ability) - 1) < 0.4
    weight = np.exp(curves.log_weight - curves.log_weight.max())
    assert weight[sides].mean() > 2 * weight[middle].mean()
    plain = dataclasses.replace(made, form="normal")
    normal = learn(plain, held).curves
    weight = np.exp(normal.log_weight - normal.log_weight.max())
    assert np.interp(0, normal.ability, weight) > 0.99


@pytest.mark.parametrize(
    "model, method, family, refitted",
    [
        # By default in test_ten_models_get_items_that_vary.
        pytest.param("2pl", "laplace", {}, "laplace", marks=pytest.mark.slow),
        pytest.param("hierarchical", "em", "rasch", "em", marks=pytest.mark.slow),
        pytest.param(
            *("hierarchical", "laplace", {"item_model": "probit2pl"}, "em"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_folds_fit_the_family_of_the_calibration(model, method, family, refitted):
    """A multilevel model has a family of its own, which its name does not specify."""
    few = table().select(subjects=np.arange(SUBJECTS) < 20)
    if method == "laplace":
        fit = irtjax.fit(few, model, method, **family)
    else:
        # A fit that takes a third of the time, on record as one by laplace.
        fit = irtjax.fit(few, family, method, standard_errors="none")
        record = fit.options | {"model": model, "method": "laplace"}
        fit = dataclasses.replace(fit, options=record)
    made = make_pool(few, fit, stratify=None)[0]
    assert made.method == refitted
    small = irtjax.shrink(few, 6, rule="information", model=fit, folds=2)
    assert small.model.family == fit.model.family
    held = small.predict(few).table.num_rows
    assert held == 20 and small.held_out["mean_absolute_error"] < 0.15


def test_folds_of_a_model_object_are_fitted_by_em():
    few = table().select(subjects=np.arange(SUBJECTS) < 20)
    model = irtjax.MODELS["2pl"](positive=True)
    assert irtjax.fitting.defaults.choose(few, model).method == "laplace"
    assert make_pool(few, model, stratify=None)[0].method == "em"


def calibrate(prediction, score, level):
    correction, left = correct(prediction, score)
    return scale(prediction, left, level, correction)


def test_intervals_hold_fresh_subjects():
    calibration, test = 199, 4000
    rng = np.random.default_rng(8)

    def draw(count):
        error = rng.uniform(0.01, 0.05, count)
        score = rng.uniform(0.3, 0.7, count)
        # Three times the error that is stated, with heavy tails and a bias.
        truth = score + 0.02 + 3 * error * rng.standard_t(4, count) / 2
        unseen, known = np.ones(count), np.zeros(count)
        mean = rng.uniform(0.3, 0.7, count)
        return Prediction(score, error, unseen, known, mean, score, error), truth

    held = []
    for _ in range(20):
        calibrator, enough = calibrate(*draw(calibration), 0.9)
        fresh, truth = draw(test)
        low, high = calibrator.interval(fresh)
        inside = (low <= truth) & (truth <= high)
        possible = (truth >= 0) & (truth <= 1)
        held.append(inside[possible].mean())
        assert enough
    # Each coverage varies by sqrt(.9 * .1 / 200) = 0.021 with the calibration set;
    # the mean of 20 by 0.005, four of which are allowed, and the correction's share.
    assert np.mean(held) == pytest.approx(0.9, abs=0.02)


def test_too_few_subjects_are_said():
    few = Prediction(*(np.full(5, x) for x in (0.5, 0.1, 1.0, 0.0, 0.5, 0.0, 1.0)))
    truth = np.array([0.5, 0.5, 0.5, 0.5, 0.9])
    calibrator, enough = calibrate(few, truth, 0.95)
    assert not enough and calibrator.correction == ()
    low, high = calibrator.interval(few)
    assert low[0] < 0.1 + 1e-9 and high[0] > 0.9 - 1e-9


def test_folds_share_subjects_out():
    fold = folds_of(23, 5, KEY)
    assert sorted(np.bincount(fold).tolist()) == [4, 4, 5, 5, 5]


@pytest.mark.slow
def test_the_errors_of_subsets_in_a_model_that_holds():
    errors = irtjax.subset_errors(
        table(), [4, 12, ITEMS], ["information", "random"], folds=3
    )
    rows = {(row["rule"], row["size"]): row for row in errors.rows}
    for rule in ("information", "random"):
        few, more, whole = (rows[rule, size] for size in (4, 12, ITEMS))
        assert few["mean_absolute_error"] > more["mean_absolute_error"] > 0.01
        assert whole["mean_absolute_error"] < 1e-12 and whole["coverage"] == 1
        for row in (few, more):
            # 200 intervals scaled by some 130: three standard errors of 0.025.
            assert row["coverage"] > 0.95 - 0.075
            assert row["kendall"] > 0.4
    assert errors.size_for("random", 1e-9) == ITEMS
    assert errors.size_for("random", 1.0) == 4
    left, right = plots.plot_subset_errors(errors).axes
    drawn = left.lines[0].get_ydata()
    assert drawn[0] == pytest.approx(
        100 * rows["information", 4]["mean_absolute_error"]
    )
    assert len(right.lines) == 2


def test_a_subset_predicts_and_says_what_held_out_subjects_said():
    found = small()
    assert found.size == 8 and found.weights.sum() == pytest.approx(1)
    assert found.held_out["num_subjects"] == SUBJECTS
    predicted = found.predict(table()).table.to_pydict()
    full = table().subject_accuracy()
    ends = ("", "_lower", "_upper")
    score, low, high = (np.array(predicted[f"expected_score{k}"]) for k in ends)
    assert np.mean((low <= full) & (full <= high)) > 0.9
    assert rank_correlation(score, full) > 0.5
    # What is known and what cannot be known bound the score.
    rows = table().select(items=found.items)
    known_part = rows.values.sum(1) / ITEMS
    assert np.all(low >= known_part - 1e-12)
    assert np.all(high <= known_part + 1 - 8 / ITEMS + 1e-12)


@pytest.mark.slow
def test_errors_can_be_asked_for():
    with_error = irtjax.shrink(table(), standard_error=0.5, aim="ability", folds=0)
    assert with_error.standard_error <= 0.5
    fewer = irtjax.shrink(table(), with_error.size - 1, aim="ability", folds=0)
    assert fewer.standard_error > 0.5
    for more in ({"rule": "clustering"}, {"rule": "random"}):
        assert (
            irtjax.shrink(table(), score_error=0.06, folds=0, **more).score_error
            <= 0.06
        )


def test_bad_requests_are_one_line():
    scores = irtjax.ResponseTable.from_arrays([[0.2, 0.5], [0.1, 0.9]])
    for more, message in [
        ({}, "give one of size"),
        ({"size": 0}, "size 0 is not between 1"),
        ({"size": 3, "rule": "best"}, "rule 'best' is not one of"),
        ({"size": 3, "aim": "fame"}, "aim 'fame' is not one of"),
        ({"size": 3, "stratify": "topic"}, "no facet 'topic'"),
        ({"size": 3, "average": "models"}, "average 'models'"),
        ({"size": 3, "folds": 500}, "folds 500"),
        ({"size": 2.5}, "size 2.5 is not a whole number"),
        ({"size": 3, "abilities": [np.nan]}, "abilities must be finite"),
        ({"standard_error": 1e-6}, "standard_error 1e-06 cannot be reached"),
        ({"size": 3, "level": 2}, "level 2 is not between"),
        ({"size": 3, "model": "hierarchical"}, "does not fit multilevel"),
        ({"size": 3, "model": irtjax.MultiMetric()}, "does not fit multilevel"),
        ({"size": 3, "model": "factor"}, "and factor models: give a fit of one"),
    ]:
        with pytest.raises(ValueError, match=message):
            irtjax.shrink(table(), **more)
    for sizes, more, message in [
        ([], {}, "one or more"),
        ([3, 99], {}, "sizes 99 is not between"),
        ([3], {"reference": {"nobody": 1.0}}, "names 0 of the subjects"),
        ([3], {"reference": dict.fromkeys(table().subjects, np.nan)}, "leave it out"),
    ]:
        with pytest.raises(ValueError, match=message):
            irtjax.subset_errors(table(), sizes, **more)
    with pytest.raises(ValueError, match="3 subjects are too few to hold any out"):
        irtjax.shrink(table().select(subjects=np.arange(3)), 2)
    with pytest.raises(ValueError, match="or share for scores"):
        irtjax.shrink(scores, 1, folds=0, model="beta")
    with pytest.raises(ValueError, match="none of the 2 items"):
        small().predict(irtjax.ResponseTable.from_arrays([[1, 0]], items=["x", "y"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"level": float("nan")}, "not numbers"),
        ({"num_items": 2}, "are not some of 2"),
        ({"items": ["a"] * 8}, "each once"),
        ({"benchmarks": ["x"]}, "benchmarks are not 8"),
        (
            {"calibrator": {"misfit": 0.0, "multiplier": np.inf, "correction": []}},
            "calibrator",
        ),
    ],
)
def test_a_spoilt_file_is_refused(tmp_path, change, message):
    path = small().save(tmp_path) / "subset.json"
    content = json.loads(path.read_text()) | change
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"is not a saved subset.*{message}"):
        irtjax.load_subset(tmp_path)


#: Of an item whose number stands for two contents.
NO_ID = (SourceId("lm-eval", "t", ""),)


def test_files_for_a_harness_are_written_where_ids_are_sure(tmp_path):
    names = small().items.tolist()
    ids = {x: (SourceId("lm-eval", "t", f"{9 - k}"),) for k, x in enumerate(names)}
    logged = dataclasses.replace(small(), item_ids=ids)
    logged.save(tmp_path)
    written = json.loads((tmp_path / "lm_eval_samples.json").read_text())
    assert written == {"t": list(range(2, 10))}
    assert irtjax.load_subset(tmp_path).sample_files() == logged.sample_files()
    unsure = dataclasses.replace(small(), item_ids=ids | {names[0]: NO_ID})
    unsure.save(tmp_path)
    assert not (tmp_path / "lm_eval_samples.json").exists()
    with pytest.raises(ValueError, match=f"item {names[0]!r}: its number there stands"):
        unsure.sample_files()
    assert small().sample_files() == {}


def test_a_subset_keeps_the_contents_of_its_items(tmp_path):
    """A re-ordered benchmark was scored as if its items were those of the names."""

    def numbered(shift):
        names = enumerate(table().items.tolist())
        return {name: f"lm-eval:{k + shift}" for k, name in names}

    same, moved = (
        dataclasses.replace(table(), item_contents=numbered(k)) for k in (0, 1)
    )
    dataclasses.replace(small(), item_contents=numbered(0)).save(tmp_path)
    loaded = irtjax.load_subset(tmp_path)
    assert loaded.item_contents == numbered(0)
    assert loaded.predict(same).table.equals(small().predict(table()).table)
    with pytest.raises(ValueError, match="items are others .* in the subset"):
        loaded.predict(moved)


@pytest.mark.slow
def test_shrink_notes_the_contents_of_the_items():
    contents = {name: f"lm-eval:{k}" for k, name in enumerate(table().items.tolist())}
    logged = dataclasses.replace(table(), item_contents=contents)
    found = irtjax.shrink(logged, 4, rule="random", folds=0)
    wanted = {name: contents[name] for name in found.items.tolist()}
    assert found.item_contents == wanted


def test_unsure_ids_are_said_with_the_subset():
    ids = dict.fromkeys(table().items.tolist(), NO_ID)
    logged = dataclasses.replace(table(), item_ids=ids)
    found, [warning] = _ids_of(logged, np.array([2, 0]))
    assert list(found) == table().items[[2, 0]].tolist()
    assert warning.startswith("there are no files of samples for a harness: item")
    assert _ids_of(table(), np.array([0])) == ({}, ())


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="irtjax")


@pytest.mark.slow
def test_the_command_line_goes_there_and_back(tmp_path):
    data = table().save(tmp_path / "responses.json")
    place = tmp_path / "reference.csv"
    pairs = zip(table().subjects, table().subject_accuracy(), strict=True)
    lines = [f"{name},{value}" for name, value in pairs]
    place.write_text("\n".join(["subject,score", *lines]))
    out = tmp_path / "small"
    few = ("--size", 8, "--folds", 3, "--out", out, "--seed", 0)
    more = ("--sizes", "4,12", "--reference", place, "--json")
    result = run("shrink", data, *few, *more)
    assert result.exit_code == 0, result.stderr or result.exception
    content = json.loads(result.stdout)
    names = {
        "subset.csv",
        "subset.json",
        "rules.csv",
        "errors.csv",
        "shrink.png",
        "report.html",
    }
    assert {path.name for path in out.iterdir()} == names
    run("shrink", data, *few, "--quiet")  # No errors are asked for: none stay.
    kept = {"subset.csv", "subset.json", "rules.csv", "report.html"}
    assert {path.name for path in out.iterdir()} == kept
    written = pyarrow.csv.read_csv(out / "subset.csv")
    assert written.column_names == ["item", "benchmark", "weight", "order"]
    assert sum(written["weight"].to_pylist()) == pytest.approx(1)
    # The reference is the full score: agreement with either is the same.
    for row in content["errors"]:
        assert row["reference_kendall"] == pytest.approx(row["kendall"])
        mean = row["reference_kendall_of_mean"]
        assert mean == pytest.approx(row["kendall_of_mean"])
    loaded = irtjax.load_subset(out)
    assert loaded.items.tolist() == [str(x) for x in written["item"].to_pylist()]
    subset = table().select(items=loaded.items).save(tmp_path / "new.json")
    scored = run("score", subset, "--fit", out, "--json")
    assert scored.exit_code == 0, scored.stderr or scored.exception
    rows = json.loads(scored.stdout)["subjects"]
    again = irtjax.shrink(table(), 8, folds=3).predict(table()).table.to_pylist()
    for row, want in zip(rows, again, strict=True):
        for name in ("expected_score", "expected_score_upper"):
            assert row[name] == pytest.approx(want[name], abs=1e-12)
    assert "predicted scores on 24 items" in run("score", subset, "--fit", out).stdout


def test_the_command_line_refuses_in_one_line(tmp_path):
    data = table().save(tmp_path / "responses.json")
    small().save(tmp_path / "small")
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": "irtjax.subset", "version": 1}')
    out = ("--out", tmp_path / "out", "--quiet")
    for args, message in [
        (("shrink", data, *out), "give one of --size"),
        (("shrink", data, *out, "--size", 99), "--size 99 is not between"),
        (("shrink", data, *out, "--size", 3, "--rule", "luck"), "--rule 'luck'"),
        (("shrink", data, *out, "--size", 3, "--sizes", "a"), "write whole numbers"),
        (("shrink", data, *out, "--size", 3, "--at", "x"), "write numbers"),
        (("shrink", data, *out, "--size", 3, "--sizes", "99"), "--sizes 99 is not"),
        (("shrink", data, *out, "--size", 3, "--reference", data), "requires --sizes"),
        (("score", data, "--fit", broken, "--quiet"), "is not a saved subset"),
        (("score", data, "--fit", tmp_path / "small", "--level", 0.5), "leave"),
    ]:
        result = run(*args)
        assert result.exit_code == 2, args
        assert result.stderr.startswith("irtjax: ") and message in result.stderr
        assert result.stderr.count("\n") == 1 and result.stdout == ""


@pytest.mark.parametrize("rule", RULES)
def test_items_to_avoid_are_chosen_last(rule):
    """Of 24 items six are to be avoided: 18 others first, then these."""
    avoid = table().items[[0, 3, 6, 7, 9, 23]].tolist()
    given = {"rule": rule, "avoid": avoid, "folds": 0, "model": fitted()}
    small = irtjax.shrink(table(), 9, **given)
    assert not {*avoid} & {*small.items.tolist()}
    most = irtjax.shrink(table(), 20, **given).items.tolist()
    assert len({*avoid} & {*most}) == 2
    # The full score counts them still.
    assert small.num_items == ITEMS


def test_a_task_gives_its_items_to_others_before_bad_ones_are_taken():
    mass, stratum = np.full(12, 1 / 12), np.repeat([0, 1, 2], [6, 4, 2])
    avoid = np.arange(12) >= 9
    seats = lambda size: np.bincount(shares(mass, stratum, size, avoid), minlength=3)
    assert seats(3).tolist() == [2, 1, 0]
    assert seats(9).tolist() == [6, 3, 0] and seats(12).tolist() == [6, 4, 2]
    assert shares(mass, stratum, 3).tolist() == [0, 1, 2]


def test_every_task_is_present_by_default():
    small = irtjax.shrink(table(), 5, rule="random", folds=0)
    everything = set(table().benchmarks.tolist())
    assert len(everything) > 1 and set(small.benchmarks.tolist()) == everything
    alike = irtjax.shrink(table(), 5, rule="random", folds=0, stratify="benchmark")
    assert alike.items.tolist() == small.items.tolist()
    anything = irtjax.shrink(table(), 5, rule="random", folds=0, stratify=None)
    assert anything.items.tolist() != small.items.tolist()


def test_items_with_a_wrong_key_are_not_chosen():
    """60 subjects, 40 items, 4 of them with the reversed key."""
    rng = np.random.default_rng(1)
    chance = 1 / (1 + np.exp(-1.5 * (rng.normal(size=(60, 1)) - rng.normal(size=40))))
    right = rng.random(chance.shape) < chance
    right[:, :4] = ~right[:, :4]
    data = irtjax.ResponseTable.from_arrays(right)
    found = np.flatnonzero(suspicious_items(data))
    assert {0, 1, 2, 3} <= {*found.tolist()}
    pool, _ = make_pool(data, "2pl", stratify=None)
    assert np.flatnonzero(pool.tiers(np.zeros(60, bool)) == AVOIDED).tolist() == [
        *found.tolist()
    ]
    named, _ = make_pool(data, "2pl", stratify=None, avoid=[data.items[7]])
    assert np.flatnonzero(named.avoid).tolist() == [7]


def test_a_sentence_has_one_error_and_the_file():
    held = {"mean_absolute_error": 0.0312}
    one = dataclasses.replace(small(), rules=(), held_out=held, item_ids={})
    count = len(one.items)
    assert one.sentence() == f"{count} items give the full score to ±.03 on average"
    assert one.sentence("small") == one.sentence()
    near = dataclasses.replace(one, held_out={"mean_absolute_error": 0.0041})
    assert "±.004 on" in near.sentence()
    ids = {x: (SourceId("lm-eval", "t", f"{k}"),) for k, x in enumerate(one.items)}
    logged = dataclasses.replace(one, item_ids=ids)
    assert logged.sentence("subset").endswith("on average: subset/lm_eval_samples.json")
    unsure = dataclasses.replace(one, item_ids=dict.fromkeys(one.items, NO_ID))
    assert unsure.sentence("subset") == one.sentence()
    unknown = dataclasses.replace(one, held_out={})
    assert "±" not in unknown.sentence() and "not measured" in unknown.sentence()


def test_names_to_avoid_are_checked():
    with pytest.raises(ValueError, match="no item named 'nothing'"):
        irtjax.shrink(table(), 9, rule="random", avoid=["nothing"], folds=0)


def test_too_few_subjects_are_warned_of_once():
    """A subset and its errors by size hold out different numbers of subjects."""
    from irtjax.cli.shrink import document
    from irtjax.report.page_subset import subset_page

    few = table().select(subjects=np.arange(12))
    given = {"model": "rasch", "folds": 3}
    small = irtjax.shrink(few, 4, rule="random", **given)
    errors = irtjax.subset_errors(few, [4], ["random"], **given)
    said = lambda warnings: sum("too few held-out" in text for text in warnings)
    assert said(small.warnings) == said(errors.warnings) == 1
    assert said(document(small, errors, [], "out")["warnings"]) == 1
    assert subset_page(small, errors).count("too few held-out subjects") == 1


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_folds_have_the_programs_of_the_whole(missing):
    """Where folds differed in distinct items, each compiled for a quarter minute."""
    rng = np.random.default_rng(0)
    right = (rng.random((12, 2_000)) < rng.beta(2, 1, 2_000)).astype(float)
    right[rng.random(right.shape) < missing] = np.nan
    table = irtjax.ResponseTable.from_arrays(right)
    pool, _ = make_pool(table, "auto", stratify=None, avoid=())
    assert pool.method == "laplace"
    forms = set()
    for count in (0, 2, 3):
        held = np.arange(12) < count
        problem = padded_task(pool, held)[0].problem.by_distinct()
        arrays, form = jax.tree.flatten(problem)
        forms.add(
            (
                str(form),
                *((np.shape(x), str(getattr(x, "dtype", float))) for x in arrays),
            )
        )
        assert float(problem.model.subject_weight.sum()) == 12 - count
    assert len(forms) == 1
