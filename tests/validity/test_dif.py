"""Differential functioning: published values, likelihood ratios, planted items."""

import csv
import json

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import optimize
from scipy.special import expit
from scipy.stats import chi2, f
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.validity import group_scores
from irtjax.validity.group_scores import GroupSteps, Normals, group_steps, number_scores
from irtjax.validity.paired_responses import paired_tests
from irtjax.validity.score_tests import step_tests
from irtjax.validity.stratified import logistic_tests, mantel_haenszel, strata_of

ITEMS, SIZES = 20, (250, 150)
#: The planted item, easier for the second group by this.
PLANTED, SHIFT = 4, 1.5


def responses(seed=0, impact=0.7):
    rng = np.random.default_rng(seed)
    codes = np.repeat([0, 1], SIZES)
    theta = rng.normal(size=len(codes)) + impact * codes
    slope, intercept = rng.uniform(0.8, 1.6, ITEMS), rng.normal(size=ITEMS)
    intercept[PLANTED] = -0.5
    logit = theta[:, None] * slope + intercept
    logit[:, PLANTED] += SHIFT * codes
    right = (rng.random(logit.shape) < expit(logit)).astype(np.int8)
    table = irtjax.ResponseTable.from_arrays(right)
    labels = np.array(["old", "new"])[codes]
    return table.replace(subject_facets={"age": labels}), codes


@pytest.fixture(scope="module")
def data():
    return responses()


@pytest.fixture(scope="module")
def result(data):
    return irtjax.dif(data[0], "age")


@pytest.fixture(scope="module")
def verbagg(shared_data):
    content = pq.read_table(shared_data / "classic" / "verbagg.parquet")
    names = [x for x in content.column_names if x != "person"]
    values = [content.column(x).to_numpy().astype(int) for x in names]
    right = (np.stack(values, axis=1) > 0).astype(int)
    with (shared_data / "classic" / "verbagg_persons.csv").open() as file:
        gender = np.array([row["gender"] for row in csv.DictReader(file)])
    return irtjax.ResponseTable.from_arrays(right, items=names), gender


def columns(result, name):
    rows = result.table.to_pylist()
    return {row["item"]: row[name] for row in rows}


def test_mantel_haenszel_of_verbal_aggression_is_that_of_difr(verbagg):
    """difR's default: with the item, corrected for continuity, not purified."""
    table, gender = verbagg
    result = irtjax.dif(table, gender, method="mh", reference="F", purified=False)
    statistic, odds = columns(result, "statistic"), columns(result, "odds_ratio")
    published = {
        "S2WantShout": (9.6032, 2.8804),
        "S2DoScold": (6.8395, 0.3746),
        "S2DoCurse": (6.3029, 0.3209),
        "S3DoCurse": (5.7817, 0.4616),
        "S4WantShout": (4.1188, 2.3458),
        "S3DoScold": (3.8880, 0.4727),
    }
    for name, (value, ratio) in published.items():
        assert statistic[name] == pytest.approx(value, abs=6e-5)
        assert odds[name] == pytest.approx(ratio, abs=6e-5)
    assert sum(x > 3.8415 for x in statistic.values()) == len(published)
    delta, classes = columns(result, "delta"), columns(result, "ets_class")
    for name, (_, ratio) in published.items():
        # All are above 1.5 in size; of chi-squares above 3.84 that is large.
        assert delta[name] == pytest.approx(-2.35 * np.log(ratio), abs=5e-4)
        assert classes[name] == "C"


def test_logistic_tests_of_verbal_aggression_are_those_of_difr(verbagg):
    table, gender = verbagg
    right = np.asarray(table.values, float)
    codes = (gender == "M").astype(int)
    tests = logistic_tests(right, None, codes, np.ones(table.num_items, bool))
    uniform = dict(zip(table.items.tolist(), tests.uniform, strict=True))
    for name, value in {
        "S2WantShout": 11.3031,
        "S2DoScold": 9.1401,
        "S2DoCurse": 7.6372,
        "S3DoCurse": 7.1433,
    }.items():
        assert uniform[name] == pytest.approx(value, abs=6e-5)


def test_strata_of_an_item_outside_the_score_add_its_own_response(data):
    table, codes = data
    right = np.asarray(table.values, float)
    anchors = np.ones(ITEMS, bool)
    anchors[:3] = False
    test = mantel_haenszel(right, None, codes == 1, anchors)
    item = 1
    score = right[:, anchors].sum(axis=1) + right[:, item]
    hits, expected, variance = 0.0, 0.0, 0.0
    for level in np.unique(score):
        rows = score == level
        n_r, n_f = (rows & (codes == 0)).sum(), (rows & (codes == 1)).sum()
        total, m = n_r + n_f, right[rows, item].sum()
        if n_r and n_f and total > 1:
            hits += right[rows & (codes == 0), item].sum()
            expected += n_r * m / total
            variance += n_r * n_f * m * (total - m) / (total**2 * (total - 1))
    value = max(abs(hits - expected) - 0.5, 0) ** 2 / variance
    assert test.statistic[item] == pytest.approx(value, rel=1e-9)


def test_logistic_likelihoods_are_maxima_with_missing_responses(data):
    table, codes = data
    right = np.asarray(table.values, float)
    seen = np.random.default_rng(1).random(right.shape) < 0.8
    tests = logistic_tests(right * seen, seen, codes, np.ones(ITEMS, bool))
    score = strata_of(right * seen, seen, np.ones(ITEMS, bool)).astype(float)
    score = (score - score.mean()) / score.std()
    rows = seen[:, 2]
    one = np.ones(rows.sum())
    design = np.stack([one, score[rows], codes[rows], codes[rows] * score[rows]], 1)

    def best(count):
        x, y = design[:, :count], right[rows, 2]
        cost = lambda b: np.logaddexp(0, x @ b).sum() - y @ (x @ b)
        return -optimize.minimize(cost, np.zeros(count), tol=1e-10).fun

    assert tests.uniform[2] == pytest.approx(2 * (best(3) - best(2)), abs=1e-5)
    assert tests.nonuniform[2] == pytest.approx(2 * (best(4) - best(3)), abs=1e-5)
    # Nagelkerke's R2 with the group less that of the score alone.
    cox = lambda count: 1 - np.exp(2 * (best(1) - best(count)) / rows.sum())
    most = 1 - np.exp(2 * best(1) / rows.sum())
    assert tests.r2[2] == pytest.approx((cox(4) - cox(2)) / most, abs=1e-7)


def test_steps_are_those_of_the_likelihood_written_out(monkeypatch):
    rng, count = np.random.default_rng(3), 300
    slope, intercept = np.array([0.8, 1.2, 1.5, 1.0]), np.array([0.2, 0.5, -0.3, 0.8])
    mean, sd = 0.3, 1.2
    theta = rng.normal(mean, sd, (count, 1))
    right = (rng.random((count, 4)) < expit(theta * slope + intercept)).astype(float)
    normals = Normals(slope[None], intercept[None], np.array([mean]), np.array([sd]))
    nodes = np.linspace(-8, 8, 161)
    steps = group_steps(right, None, np.zeros(count, int), normals, nodes)

    def log_likelihood(x):
        theta = x[2] + jnp.exp(x[3]) * nodes
        a = jnp.asarray(slope).at[1].set(x[0])
        d = jnp.asarray(intercept).at[1].set(x[1])
        logit = theta[:, None] * a + d
        terms = right @ logit.T - jnp.sum(jax.nn.softplus(logit), axis=1)
        weight = jax.nn.log_softmax(-(nodes**2) / 2)
        return jnp.sum(jax.nn.logsumexp(terms + weight, axis=1))

    at = jnp.array([slope[1], intercept[1], mean, np.log(sd)])
    gradient = np.asarray(jax.grad(log_likelihood)(at))
    whole = -np.asarray(jax.hessian(log_likelihood)(at))
    schur = whole[:2, :2] - whole[:2, 2:] @ np.linalg.solve(
        whole[2:, 2:], whole[2:, :2]
    )
    np.testing.assert_allclose(steps.information[0, 1], schur, rtol=1e-6)
    np.testing.assert_allclose(
        steps.step[0, 1], np.linalg.solve(whole, gradient)[:2], rtol=1e-6
    )
    monkeypatch.setattr(group_scores, "BLOCK_BYTES", 50_000)
    blocks = group_steps(right, None, np.zeros(count, int), normals, nodes)
    for one, other in zip(blocks, steps, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_scores_of_a_number_are_those_of_the_likelihood_written_out():
    """Abilities depend on the number: their regression on it is estimated first."""
    rng, count = np.random.default_rng(4), 300
    slope, intercept = np.array([0.8, 1.2, 1.5, 1.0]), np.array([0.2, 0.5, -0.3, 0.8])
    x = rng.normal(size=count)
    theta = (0.3 + 0.8 * x + rng.normal(size=count))[:, None]
    right = (rng.random((count, 4)) < expit(theta * slope + intercept)).astype(float)
    normals = Normals(slope[None], intercept[None], np.array([0.2]), np.array([1.1]))
    nodes, codes = np.linspace(-8, 8, 161), np.zeros(count, int)
    at = np.stack([slope, intercept], axis=1)
    scores = number_scores(right, None, codes, x, normals, nodes, at)
    theta = 0.2 + 1.1 * nodes

    def log_likelihood(own, population):
        shape = jnp.ones((count, 1))
        a = (jnp.asarray(slope) * shape).at[:, 1].set(own[0] + own[2] * x)
        d = (jnp.asarray(intercept) * shape).at[:, 1].set(own[1] + own[3] * x)
        logit = theta[:, None, None] * a + d
        terms = jnp.sum(right * logit - jax.nn.softplus(logit), axis=2)
        centre = population[0] + population[2] * x
        gap = (nodes[:, None] - centre) * jnp.exp(-population[1])
        weight = -(gap**2) / 2 - population[1]
        return jnp.sum(jax.nn.logsumexp(terms + weight, axis=0))

    own = jnp.array([1.2, 0.5, 0.0, 0.0])
    cost = jax.jit(jax.value_and_grad(lambda x: -log_likelihood(own, x)))
    best = optimize.minimize(cost, np.zeros(3), jac=True, tol=1e-9).x
    both = lambda x: log_likelihood(x[:4], x[4:])
    place = jnp.concatenate([own, jnp.asarray(best)])
    gradient = np.asarray(jax.jit(jax.grad(both))(place))
    whole = -np.asarray(jax.jit(jax.hessian(both))(place))
    schur = whole[:4, :4] - whole[:4, 4:] @ np.linalg.solve(
        whole[4:, 4:], whole[4:, :4]
    )
    # EM ends within 1e-5 of the population's coefficients.
    np.testing.assert_allclose(scores.information[1], schur, rtol=2e-4, atol=2e-3)
    np.testing.assert_allclose(scores.score[1], gradient[:4], atol=5e-3)


def test_few_and_unequal_clusters_reject_as_often_as_stated():
    """Twelve clusters in one group and 48 in the other, dependence differs by item."""
    rng, items = np.random.default_rng(0), 4000
    groups = np.repeat([0, 1], [12, 48])
    members = groups[:, None] == [0, 1]
    scale = rng.gamma(8, 1 / 8, items) ** -0.5
    part = scale[:, None] * rng.normal(size=(60, items, 2))
    part[12:] *= 0.5
    sums = np.stack([part * (groups == k)[:, None, None] for k in (0, 1)])
    information = np.broadcast_to(np.eye(2), (2, items, 2, 2))
    steps = GroupSteps(sums.sum(axis=1), information, information)
    tests = step_tests(steps, sums, members)
    # 200 and 20 of 4000 items are expected, 14 and 4.5 their standard deviations.
    assert abs((tests.p_value < 0.05).sum() - 200) < 45
    assert abs((tests.p_value < 0.005).sum() - 20) < 15
    # Of 12 and 48 / 4 as large squares: 24 times the scale over the covariance 2.
    assert np.median(tests.inflation / (12 * scale**2)) == pytest.approx(1, abs=0.1)
    # A shift of three standard errors in each parameter is nearly always seen.
    error = scale * np.sqrt(24)
    moved = steps._replace(step=steps.step + 4 * error[:, None] * [[[0.0]], [[1.0]]])
    assert (step_tests(moved, sums, members).p_value < 0.005).mean() > 0.9


def test_the_planted_item_is_found_under_impact(result):
    assert result.items == [f"item {PLANTED + 1}"]
    assert result.reference == "old"
    row = result.table.to_pylist()[PLANTED]
    # 1.5 logits are 100 (P(d + 1.5) - P(d)) over abilities: 15 to 35 points.
    assert row["effect_group"] == "new"
    assert 10 < row["effect"] < 40
    assert result.score_difference["new"] == pytest.approx(row["effect"] / ITEMS)
    assert "1 of 20 items favour a group" in str(result)


def test_a_score_test_is_about_the_likelihood_ratio(data, result):
    """Both are chi-square with two degrees of freedom: of the item next in size."""
    table = data[0]
    planted = table.items[PLANTED]
    rows = [x for x in result.table.to_pylist() if x["item"] != planted]
    largest = max(rows, key=lambda x: x["statistic"])
    settings = {"groups": "age", "priors": None, "standard_errors": "none"}
    divided = irtjax.split_items(table, [planted], by="age")
    common = irtjax.fit(divided, "2pl", "em", **settings)
    divided = irtjax.split_items(table, [planted, largest["item"]], by="age")
    free = irtjax.fit(divided, "2pl", "em", **settings)
    ratio = 2 * (free.log_likelihood - common.log_likelihood)
    # Asymptotically equal: of 400 subjects within a fifth and half a unit.
    assert largest["statistic"] == pytest.approx(ratio, rel=0.2, abs=0.5)
    assert largest["p_value"] == pytest.approx(chi2.sf(largest["statistic"], 2))


def test_clusters_of_one_subject_change_little_and_pairs_count(data):
    table, codes = data
    one = irtjax.dif(table, "age", purified=False)
    alone = irtjax.dif(table, "age", purified=False, cluster=table.subjects)
    ours, theirs = columns(one, "statistic"), columns(alone, "statistic")
    ratio = np.array([theirs[x] / ours[x] for x in ours])
    # The sandwich of independent subjects estimates the same covariance.
    assert 0.7 < np.median(ratio) < 1.3
    # F of two contrasts with as many degrees of freedom as items share, at least those
    # of about 250 equal clusters.
    row = alone.table.to_pylist()[PLANTED]
    assert row["p_value"] > chi2.sf(row["statistic"], 2)
    assert row["p_value"] < f.sf(row["statistic"] / 2 * 0.99, 2, 100)
    # Every subject twice: the statistic doubles, and clusters take it back.
    twice = irtjax.ResponseTable.from_arrays(np.repeat(table.values, 2, axis=0))
    labels = np.repeat(codes, 2).astype(str)
    pairs = np.repeat(np.arange(len(codes)), 2)
    naive = irtjax.dif(twice, labels, purified=False, reference="0")
    counted = irtjax.dif(twice, labels, purified=False, reference="0", cluster=pairs)
    name = table.items[PLANTED]
    assert columns(naive, "statistic")[name] == pytest.approx(2 * ours[name], rel=0.02)
    assert columns(counted, "statistic")[name] == pytest.approx(theirs[name], rel=0.05)


def test_numbers_of_subjects_are_tested_as_such(data):
    table, codes = data
    date = codes + np.random.default_rng(0).normal(size=len(codes)) * 0.3
    result = irtjax.dif(table, date, fdr=0.05)
    assert result.items == [f"item {PLANTED + 1}"]
    assert result.reference == ""
    counted = irtjax.dif(table, date, cluster=table.subjects)
    assert counted.items == result.items


def test_tables_show_parameters_by_group_and_ranks(data, result):
    rows = result.parameters.to_pylist()
    assert [x["group"] for x in rows] == ["old", "new"]
    assert {x["item"] for x in rows} == {f"item {PLANTED + 1}"}
    gap = rows[1]["intercept"] - rows[0]["intercept"]
    error = np.hypot(rows[0]["intercept_se"], rows[1]["intercept_se"])
    # The score test of an item that is free in each group is Wald's: of both parameters
    # it is at least that of the intercept.
    statistic = columns(result, "statistic")[f"item {PLANTED + 1}"]
    assert abs(gap - SHIFT) < 3 * error
    assert statistic > (gap / error) ** 2 * 0.99
    assert result.subjects.num_rows == sum(SIZES)
    ranks = [result.subjects[x].to_numpy() for x in ("rank", "rank_split")]
    # One item in twenty that is easier by 1.5 logits: the second group falls.
    moved = ranks[1] - ranks[0]
    assert moved[data[1] == 1].mean() > 0 > moved[data[1] == 0].mean()
    assert any("subjects move" in note for note in result.notes)


def pairs(seed=0, count=60):
    """Models under two prompts: the second helps each one by an amount of its own."""
    rng = np.random.default_rng(seed)
    theta, gain = rng.normal(size=(count, 1)), rng.normal(0.5, 0.5, size=(count, 1))
    easy = rng.normal(size=ITEMS)
    planted = np.where(np.arange(ITEMS) == PLANTED, 2.0, 0.0)
    draw = lambda logit: rng.random((count, ITEMS)) < expit(logit)
    return draw(theta + easy), draw(theta + gain + easy + planted)


def test_pairs_are_mantel_haenszel_with_a_stratum_for_each_subject():
    first, second = pairs()
    seen = np.random.default_rng(1).random(first.shape) < 0.9
    everyone = np.ones(ITEMS, bool)
    tests = paired_tests(first, second, seen, everyone)
    for item in (0, PLANTED):
        gap, variance = 0.0, 0.0
        for one, two, there in zip(first, second, seen, strict=True):
            discordant = (one != two) & there
            if not discordant[item] or discordant.sum() < 2:
                continue
            total, m = discordant.sum(), (two & discordant).sum()
            gap += two[item] - m / total
            # One response to the item, total - 1 to others (Mantel, Haenszel 1959).
            variance += (total - 1) * m * (total - m) / (total**2 * (total - 1))
        assert tests.statistic[item] == pytest.approx(gap**2 / variance, rel=1e-9)
    # An item that is left out counts for itself, and for no other.
    anchors = everyone & (np.arange(ITEMS) != PLANTED)
    alone = paired_tests(first, second, seen, anchors)
    whole = paired_tests(
        first[:, anchors], second[:, anchors], seen[:, anchors], everyone[1:]
    )
    np.testing.assert_allclose(alone.statistic[anchors], whole.statistic)


def test_an_item_that_a_prompt_helps_is_found_within_pairs():
    first, second = pairs()
    right = np.concatenate([first, second]).astype(int)
    prompt, model = np.repeat(["zero", "one"], 60), np.tile(np.arange(60), 2)
    table = irtjax.ResponseTable.from_arrays(right)
    settings = {"method": "paired", "reference": "zero", "cluster": model}
    result = irtjax.dif(table, prompt, **settings)
    assert result.items == [f"item {PLANTED + 1}"]
    assert result.table.to_pylist()[PLANTED]["effect_group"] == "one"
    # Under the null hypothesis statistics are chi-square of mean 1 (40 x 19: ± .1).
    statistics = []
    for seed in range(40):
        one, two = pairs(seed)
        tests = paired_tests(one, two, np.ones_like(one), np.arange(ITEMS) != PLANTED)
        statistics.append(np.delete(tests.statistic, PLANTED))
    assert np.nanmean(statistics) == pytest.approx(1, abs=0.15)
    alone = irtjax.dif(
        table.select(subjects=np.arange(119)),
        prompt[:119],
        **{**settings, "cluster": model[:119]},
    )
    assert alone.subjects.num_rows == 118
    with pytest.raises(ValueError, match="0 subjects are in both groups 'zero'"):
        irtjax.dif(table, prompt, **{**settings, "cluster": np.arange(120)})
    with pytest.raises(ValueError, match="has 60 subjects of group 'zero'"):
        irtjax.dif(table, prompt, **{**settings, "cluster": np.zeros(120)})
    with pytest.raises(ValueError, match="method 'paired' needs cluster"):
        irtjax.dif(table, prompt, method="paired")


@pytest.mark.parametrize(
    ("group", "settings", "message"),
    [
        (["a"] * 400, {}, "the same for every subject"),
        ([""] * 200 + ["b"] * 200, {}, "has no label of subject 'subject 1' .200 of"),
        (["a"] * 399 + ["b"], {}, "group 'b' of group has one subject"),
        ("size", {}, "no facet 'size' of subjects for group"),
        (["a", "b"], {}, "group has 2 labels, but there are 400 subjects"),
        ([*["a"] * 200, *["b"] * 100, *["c"] * 100], {"method": "mh"}, "two groups"),
        ("age", {"method": "lr"}, "no method 'lr'"),
        ("age", {"method": "mh", "cluster": "age"}, "cluster needs method='score' or"),
        ("age", {"cluster": ["x"] * 250 + ["y"] * 150}, "group 'old' of age is one"),
        ("age", {"reference": "x"}, "no group 'x' of age; there are new, old"),
        (np.r_[np.nan, np.zeros(399)], {}, "no number for subject 'subject 1'"),
    ],
)
def test_groups_that_cannot_be_compared_are_refused(data, group, settings, message):
    with pytest.raises(ValueError, match=message):
        irtjax.dif(data[0], group, **settings)


def test_groups_without_items_in_common_are_refused(data):
    table, codes = data
    observed = (np.arange(ITEMS) < ITEMS // 2) == (codes == 0)[:, None]
    apart = table.replace(observed=observed, values=table.values * observed)
    with pytest.raises(ValueError, match="0 items in common of the groups of age"):
        irtjax.dif(apart, "age")


@pytest.mark.parametrize(
    "method", [pytest.param("score", marks=pytest.mark.slow), "mh", "logistic"]
)
def test_items_of_one_group_are_not_tested(data, method):
    """Half of the items are in common, and one of these the second group solves."""
    table, codes = data
    observed = np.ones(table.values.shape, bool)
    observed[codes == 0, :5], observed[codes == 1, 15:] = False, False
    values = np.where(codes[:, None] * (np.arange(ITEMS) == 9), 1, table.values)
    some = table.replace(observed=observed, values=values * observed)
    result = irtjax.dif(some, "age", method=method)
    tested = ~np.array([x["p_value"] is None for x in result.table.to_pylist()])
    assert tested.tolist() == [False] * 5 + [True] * 10 + [False] * 5
    assert result.notes[-2 - (method == "score") :][:2] == (
        "10 items not tested, because a group has no responses: item 1, item 2, item 3,"
        " item 4, item 5, ... (10 in all)",
        "1 item all right or all wrong in a group, of which tests have little power:"
        " item 10",
    )
    assert not method == "score" or result.detectable < 100


def test_the_command_writes_and_prints_the_items_that_differ(data, tmp_path):
    table = data[0]
    responses = tmp_path / "responses.csv"
    lines = ["model," + ",".join(table.items)]
    for name, row in zip(table.subjects, table.values, strict=True):
        lines.append(",".join([name, *map(str, row)]))
    responses.write_text("\n".join(lines))
    subjects = tmp_path / "models.csv"
    ages = table.subject_facets["age"].tolist()
    rows = [f"{x},{y}" for x, y in zip(table.subjects, ages, strict=True)]
    subjects.write_text("\n".join(["subject,age", *rows]))
    out = tmp_path / "dif"
    call = ["dif", str(responses), "--subjects", str(subjects), "--group", "age"]
    result = CliRunner().invoke(app, [*call, "--method", "mh", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "1 of 20 items favour a group" in result.output
    with (out / "dif.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [x["item"] for x in written if x["differs"] == "true"] == ["item 5"]
    assert (out / "dif.png").stat().st_size > 1000
    assert "dif_subjects.csv" in result.output
    shown = CliRunner().invoke(app, [*call, "--method", "mh", "--json"])
    assert json.loads(shown.stdout)["sizes"] == {"old": 250, "new": 150}
    wrong = CliRunner().invoke(app, [*call[:-1], "size"])
    assert "has no column 'size'; it has subject, age" in wrong.output
