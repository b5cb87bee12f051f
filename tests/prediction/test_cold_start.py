"""Responses to new items and of new subjects, from features."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import irtjax
from irtjax.data.features import read_features
from irtjax.prediction.crossed_effects import (
    LOG_SD,
    MEAN_SD,
    CrossedResponses,
    fit_effects,
)

SUBJECTS, ITEMS = 40, 60


def simulated(seed, subjects=SUBJECTS, items=ITEMS):
    """Responses, features of items, and difficulties by them."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(items, 4))
    difficulty = features @ [1.0, -0.7, 0.4, 0.0] + rng.normal(0, 0.7, items)
    ability = rng.normal(0, 1.2, (subjects, 1))
    right = rng.random((subjects, items)) < expit(ability - difficulty)
    return right.astype(float), features, difficulty


def dense_objective(logs, right, trials, rows, columns):
    """Laplace's approximation with all effects in one dense Hessian."""
    n, m = right.shape
    q, k = rows.shape[1], columns.shape[1]
    cells = np.arange(n * m)
    first, second = cells // m, cells % m
    design = np.concatenate(
        [np.ones((n * m, 1)), rows[first], np.eye(n)[first], columns[second]]
        + [np.eye(m)[second]],
        axis=1,
    )
    sizes = [1, q, n, k, m]
    variance = np.repeat([MEAN_SD**2, *np.exp(logs)], sizes)
    y, t, x = right.ravel(), trials.ravel(), np.zeros(design.shape[1])
    for _ in range(60):
        p = expit(design @ x)
        hessian = (design.T * (t * p * (1 - p))) @ design + np.diag(1 / variance)
        x = x + np.linalg.solve(hessian, design.T @ (y - t * p) - x / variance)
    eta = design @ x
    value = np.sum(y * eta - t * np.logaddexp(0, eta)) - np.sum(x**2 / variance) / 2
    log_determinant = np.linalg.slogdet(hessian)[1]
    return value - (np.sum(np.log(variance)) + log_determinant) / 2


def test_variances_maximise_a_dense_laplace_approximation():
    rng = np.random.default_rng(0)
    rows, columns = rng.normal(size=(8, 2)), rng.normal(size=(11, 3))
    trials = rng.integers(0, 4, (8, 11)).astype(float)
    eta = rows @ [1.0, -1.0] + rng.normal(size=8)
    right = rng.binomial(trials.astype(int), expit(eta[:, None] + columns[:, 0]))
    right = right.astype(float)
    effects = fit_effects(CrossedResponses(right, trials), (rows,), (columns,))

    def minus(logs):
        gap = [
            logs[0] + np.log(np.mean(np.sum(rows**2, axis=1))),
            logs[2] + np.log(np.mean(np.sum(columns**2, axis=1))),
        ]
        value = dense_objective(logs, right, trials, rows, columns)
        return np.sum(np.square(gap)) / (2 * LOG_SD**2) - value

    best = minimize(minus, np.zeros(4), bounds=[(-9, 6)] * 4)
    own = [effects.row_variances, effects.column_variances]
    logs = np.log(np.concatenate([[*x.blocks, x.residual] for x in own]))
    dense = dense_objective(logs, right, trials, rows, columns)
    # The same formula by other algebra; the mean's variance of 100 costs digits.
    assert abs(effects.log_likelihood - dense) < 1e-6
    assert minus(logs) - best.fun < 1e-4


def test_crossed_effects_are_those_of_lme4(shared_data, monkeypatch):
    """`glmer(r2 ~ 1 + (1 | id) + (1 | item), binomial, VerbAgg)` of lme4 1.1-31.

    Its mean has no prior and is not integrated out: here it is an offset.
    """
    import pyarrow.parquet as pq

    rows = pq.read_table(shared_data / "classic" / "verbagg.parquet").to_pandas()
    right = (rows.select_dtypes("number").to_numpy() > 0).astype(float)
    assert right.shape == (316, 24)
    monkeypatch.setattr("irtjax.prediction.crossed_effects.MEAN_SD", 1e-4)
    data = CrossedResponses(right.T, np.ones_like(right.T))
    effects = fit_effects(data, offset=-0.16260854)
    # lme4 stops at a relative change of 1e-6 or so of the deviance.
    assert effects.log_likelihood == pytest.approx(-4101.54880674, abs=1e-4)
    sd = [effects.row_variances.residual**0.5, effects.column_variances.residual**0.5]
    assert sd == pytest.approx([1.1294896, 1.3733358], rel=1e-4)


def test_new_items_are_predicted_with_intervals_that_cover():
    right, features, difficulty = simulated(1)
    new = np.arange(0, ITEMS, 3)
    train = right.copy()
    train[:, new] = np.nan
    table = irtjax.ResponseTable.from_arrays(train)
    result = irtjax.cold_start(table, item_features=features)
    rows = result.items.to_pandas()
    assert (rows["observed"] == 0).to_numpy().nonzero()[0].tolist() == new.tolist()
    # The residual's standard deviation of .7, and an error of the regression.
    assert rows["difficulty_se"][new].between(0.5, 1.2).all()
    shift = rows["difficulty"] - difficulty
    assert np.std(shift[new]) < 1.0 < np.std(difficulty)
    score = right.mean(axis=0)
    covered = ((rows["lower"] <= score) & (score <= rows["upper"]))[new]
    # 20 intervals of 95 %: fewer than 16 have a chance of .3 %.
    assert covered.sum() >= 16
    # Chances are means over the normal logit, here by Gauss's 41 nodes.
    node, weight = np.polynomial.hermite_e.hermegauss(41)
    chance = expit(result.logit[..., None] + result.logit_se[..., None] * node)
    exact = chance @ weight / weight.sum()
    np.testing.assert_allclose(result.expected, exact, atol=1e-6)


def test_few_responses_move_predictions_towards_them():
    """No, few and all responses are one posterior, with falling errors."""
    right, features, _ = simulated(2)
    errors = []
    for number in (0, 10, SUBJECTS):
        train = right.copy()
        train[number:, 0] = np.nan
        table = irtjax.ResponseTable.from_arrays(train)
        errors.append(irtjax.cold_start(table, item_features=features).items[2][0])
    values = [x.as_py() for x in errors]
    assert values[0] > 1.3 * values[1] > 1.3 * values[2]


def test_more_subjects_than_items_give_the_same_effects():
    """The denser side is chosen by size, and neither changes the estimates."""
    right, features, _ = simulated(3, 30, 31)
    data = CrossedResponses(right, np.ones_like(right))
    one = fit_effects(data, (), (features,))
    other = fit_effects(data.turned, (features,), ()).turned
    # The same maximum to the optimiser's tolerance of 1e-9 of a value of 500.
    assert abs(one.log_likelihood - other.log_likelihood) < 1e-5
    assert np.allclose(one.variance, other.variance, atol=2e-3)


def test_labels_have_effects_and_differences():
    rng = np.random.default_rng(4)
    agent, model = np.repeat(["x", "y", "z"], 10), np.tile(list("abcdefghij"), 3)
    by_agent = {"x": 0.0, "y": 1.0, "z": 2.0}
    ability = (
        np.array([by_agent[x] for x in agent])
        + rng.normal(0, 1, 10)[np.tile(np.arange(10), 3)]
    )
    right = rng.random((30, 80)) < expit(ability[:, None] - rng.normal(0, 1, 80))
    names = [f"{x}/{y}" for x, y in zip(agent, model, strict=True)]
    table = irtjax.ResponseTable.from_arrays(1.0 * right[:29], subjects=names[:29])
    features = {"subject": names, "agent": agent, "model": model}
    result = irtjax.cold_start(table, subject_features=_arrow(features))
    change = result.difference("agent", "z", "x")
    assert abs(change["difference"] - 2) < 3 * change["standard_error"]
    last = result.subjects.to_pylist()[-1]
    # The pair that was not run is predicted from its agent and its model.
    assert last["subject"] == "z/j" and last["observed"] == 0
    assert last["lower"] <= right[29].mean() <= last["upper"]
    with pytest.raises(ValueError, match="no label 'w'; it has x, y, z"):
        result.difference("agent", "w", "x")


def _arrow(columns):
    import pyarrow as pa

    return pa.table({k: list(v) for k, v in columns.items()})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"item": ["a", "b"], "size": [1, 2]},
            r"--item-features has no row for item 'c' \(2 of 4 are missing\)",
        ),
        (
            {"item": list("abcda"), "size": [1, 2, 3, 4, 5]},
            "has two rows for item 'a'",
        ),
        (
            {
                "item": list("abcd"),
                "date": ["2026-01-01", "2026-02-30", "2026-03-01", "2026-03-02"],
            },
            "column 'date', 'b': '2026-02-30' is not a date such as 2026-01-31",
        ),
        (
            {"item": list("abcd"), "size": ["1", "2", "large", "3"]},
            "column 'size', 'c': 'large' is not a number, as 3 other values are",
        ),
        ({"item": list("abcd"), "size": [1, None, 2, 3]}, "'b': no value"),
        ({"task": list("wxyz"), "size": [1, 1, 2, 3]}, "no column with names such as"),
    ],
)
def test_bad_tables_are_refused_in_one_line(columns, message):
    with pytest.raises(ValueError, match=message) as error:
        read_features(_arrow(columns), np.array(list("abcd")), "item")
    assert "\n" not in str(error.value)


def test_arrays_need_a_row_for_each_item(tmp_path):
    path = tmp_path / "embeddings.npy"
    np.save(path, np.zeros((3, 2)))
    with pytest.raises(ValueError, match="a row for each of the 4 items"):
        read_features(path, np.array(list("abcd")), "item")


def test_scores_and_few_subjects_are_refused():
    with pytest.raises(ValueError, match="3 subjects with responses"):
        irtjax.cold_start(np.eye(3, 20), item_features={"x": np.arange(20)})
    with pytest.raises(ValueError, match="right and wrong responses"):
        irtjax.cold_start(np.full((9, 9), 0.5), item_features={"x": np.arange(9)})


@pytest.mark.parametrize(
    ("name", "tasks", "plain"),
    # The ridge of `checks/agents_cold_start.py`, with the same folds.
    [
        pytest.param("swebench_verified", 500, 0.8403, marks=pytest.mark.slow),
        ("terminal_bench_2", 89, 0.7898),
    ],
)
def test_judged_features_predict_new_tasks_of_agents(shared_data, name, tasks, plain):
    import pyarrow.parquet as pq

    folder = shared_data / "agents"
    rows = pq.read_table(folder / f"{name}_long.parquet").to_pandas()
    right = rows.pivot(index="agent", columns="task", values="resolved").astype(float)
    fold = np.random.default_rng(0).permutation(tasks) % 5
    areas, covered = [], []
    score = right.mean().to_numpy()
    for k in range(5):
        new, train = fold == k, right.to_numpy().copy()
        train[:, new] = np.nan
        table = irtjax.ResponseTable.from_arrays(train, items=right.columns.to_numpy())
        result = irtjax.cold_start(
            table, item_features=folder / f"{name}_task_features.csv"
        )
        answers = right.to_numpy()[:, new].ravel()
        areas.append(_area(answers, result.expected[:, new].ravel()))
        lower, upper = (result.items[x].to_numpy() for x in ("lower", "upper"))
        covered += ((lower <= score) & (score <= upper))[new].tolist()
    assert np.mean(areas) > plain
    # 95 % with three binomial errors of 89 and of 500 tasks.
    assert abs(np.mean(covered) - 0.95) < 3 * (0.95 * 0.05 / tasks) ** 0.5


def _area(right, chance):
    """Area under the curve of true and false positives."""
    rank = np.argsort(np.argsort(chance)) + 1.0
    one = right == 1
    pairs = one.sum() * (~one).sum()
    return (rank[one].sum() - one.sum() * (one.sum() + 1) / 2) / pairs
