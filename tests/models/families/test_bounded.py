"""Scores in [0, 1] from table to calibration, file and command line."""

import json
import re

import jax
import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import irtjax
from irtjax import ResponseTable
from irtjax.cli.app import app
from irtjax.data.scores import END, default_squeeze, rescale, to_logits
from irtjax.models import catalogue
from irtjax.models.families.bounded import binary_items, prepare, with_scores
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items
from irtjax.numerics.kernels import equal_nodes
from tests.tables import standard_population

ALL = np.ones(3, bool)


def table_of(values, **options):
    return ResponseTable.from_arrays(values, **options)


def simulated(name="continuous", num_subjects=60, num_items=8, seed=3):
    """A table of scores, its true items and abilities."""
    make = catalogue.SCORE_MODELS[name]
    model = make(np.arange(num_items) % 2 == 0) if name == "mixed" else make()
    keys = jax.random.split(jax.random.key(seed), 3)
    items = simulate_items(model, num_items, keys[0], discrimination=(0.8, 2.0))
    theta = simulate_abilities(num_subjects, keys[1])
    data = simulate(model, items, theta, keys[2], missing=0.05)
    scores = model.family.to_scores(data.values, items)
    table = table_of(np.asarray(scores), observed=np.asarray(data.observed))
    return table, items, theta


def test_only_ends_move_by_default_and_order_is_kept():
    table = table_of([[0.0, 0.001, 0.5], [1.0, np.nan, 0.9]])
    found = to_logits(table, ALL)
    # 0.001 is nearest to an end, so ends go to 0.0005.
    assert found.squeeze == default_squeeze(table.values) == 1000
    assert found.num_squeezed == 2
    y = 1 / (1 + np.exp(-found.values))
    np.testing.assert_allclose(y[0], [0.0005, 0.001, 0.5])
    np.testing.assert_allclose(y[1, [0, 2]], [0.9995, 0.9])
    assert found.values[1, 1] == 0


def test_a_chosen_squeeze_is_that_of_smithson_and_verkuilen_at_the_ends():
    table = table_of([[0.0, 0.003, 0.5], [1.0, 0.2, 0.9]])
    found = to_logits(table, ALL, squeeze=20)
    y = 1 / (1 + np.exp(-found.values))
    formula = (np.array([0.0, 1.0]) * 19 + 0.5) / 20
    np.testing.assert_allclose([y[0, 0], y[1, 0]], formula)
    # A score nearer to the end than that goes there too, and is counted.
    assert y[0, 1] == pytest.approx(formula[0]) and found.num_squeezed == 3
    np.testing.assert_allclose(y[0, 2], 0.5)
    for size in (1, 1e16, float("nan")):
        with pytest.raises(ValueError, match=r"is not from 2 to 1e\+15"):
            to_logits(table, ALL, squeeze=size)


def test_scores_next_to_an_end_in_double_precision_have_logits():
    table = table_of([[1 - 1e-16, 1.0, 1e-300], [0.5, 0.0, 0.3]])
    for ends in (None, 0.0):
        assert np.isfinite(to_logits(table, ALL, ends=ends).values).all()


def test_ends_are_codes_within_their_tolerance():
    table = table_of([[0.0, 0.01, 0.02], [1.0, 0.99, np.nan]])
    found = to_logits(table, ALL, ends=0.01).values
    assert found[0, :2].tolist() == [-END] * 2 and found[1, :2].tolist() == [END] * 2
    assert found[0, 2] == pytest.approx(np.log(0.02 / 0.98)) and found[1, 2] == 0
    assert to_logits(table, ALL, ends=0.0).values[0, 1] == pytest.approx(
        np.log(0.01 / 0.99)
    )
    with pytest.raises(ValueError, match=r"ends 0\.5 is not a distance"):
        to_logits(table, ALL, ends=0.5)


def test_bounds_rescale_and_name_what_is_outside():
    table = table_of([[-0.69, -0.1], [np.nan, 0.0]])
    found = rescale(table, (-1, 0))
    np.testing.assert_allclose(found.values, [[0.31, 0.9], [0, 1]])
    assert found.notes == ("scores from -1 to 0 were rescaled to 0 to 1",)
    message = r"subject 'subject 1', item 'item 1': score -0\.69 is not between 0 and 1"
    with pytest.raises(ValueError, match=message + r"; .*--bounds LOW HIGH"):
        irtjax.fit(table, "continuous")
    with pytest.raises(ValueError, match=r"score -0\.69 is not between -0\.5 and 0"):
        rescale(table, (-0.5, 0))
    with pytest.raises(ValueError, match="are not two rising numbers"):
        rescale(table, (1, 1))


def judged():
    """Simulated scores of two metrics, the second from 1 to 9, and these in [0, 1]."""
    table, *_ = simulated()
    names = ["rouge", "judge"] * 4
    values, there = table.values.copy(), table.observed.copy()
    values[0, 0], values[1, 1] = 0, 1
    there[[0, 1], [0, 1]] = True
    options = {"observed": there, "benchmark": names}
    inside = table_of(np.where(there, values, 0), **options)
    judge = np.arange(8) % 2 == 1
    wide = table_of(np.where(judge, 1 + 8 * values, values), **options)
    return inside, wide, judge


def test_each_metric_has_its_own_bounds_and_its_own_ends():
    inside, wide, judge = judged()
    back = rescale(wide, {"judge": (1, 9)})
    np.testing.assert_allclose(back.values, inside.values, atol=1e-14)
    assert back.notes == ("scores of 'judge' from 1 to 9 were rescaled to 0 to 1",)
    found = to_logits(inside, np.ones(8, bool))
    sizes = {
        name: default_squeeze(inside.values[:, chosen][inside.observed[:, chosen]])
        for name, chosen in (("rouge", ~judge), ("judge", judge))
    }
    assert found.squeeze == pytest.approx(sizes)
    assert found.num_squeezed == 2
    y = 1 / (1 + np.exp(-found.values))
    # An end goes half-way to the score of its own metric that is nearest to an end.
    assert y[0, 0] == pytest.approx(1 / (2 * sizes["rouge"]))
    assert y[1, 1] == pytest.approx(1 - 1 / (2 * sizes["judge"]))
    given = to_logits(inside, np.ones(8, bool), squeeze={"judge": 20.0}).squeeze
    assert given == {"rouge": found.squeeze["rouge"], "judge": 20.0}


def test_items_with_bounds_are_scores_whatever_they_got():
    table = table_of([[1.0, 1.0, 0.3], [0.0, 1.0, 0.6]], benchmark=["a", "b", "b"])
    assert binary_items(table).tolist() == [True, True, False]
    assert binary_items(table, {"b": (1, 10)}).tolist() == [True, False, False]
    # Of newcomers' answers to the rest of a benchmark there is nothing to rescale.
    part = rescale(table, {"b": (1, 10)}, np.array([True, False, False]))
    np.testing.assert_array_equal(part.values, table.values)


@pytest.mark.slow
def test_bounds_of_a_metric_go_with_a_fit(tmp_path):
    inside, wide, _ = judged()
    options = {"standard_errors": "none"}
    known = irtjax.fit(inside, "continuous", **options)
    fit = irtjax.fit(wide, "continuous", bounds={"judge": (1, 9)}, **options)
    name = "discrimination"
    np.testing.assert_allclose(
        fit.items.table[name], known.items.table[name], rtol=1e-6
    )
    again = irtjax.load(irtjax.save(fit, tmp_path / "saved"))
    assert again.options["bounds"] == {"judge": [1.0, 9.0]}
    # Newcomers need no labels, nor all of the metrics.
    new = wide.select(items=np.arange(8) % 2 == 1)
    new = table_of(new.values, items=new.items, observed=new.observed)
    old = inside.select(items=new.items)
    np.testing.assert_allclose(
        irtjax.score(again, new).table["ability"],
        irtjax.score(known, old).table["ability"],
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": {"bleu": (1, 9)}}, "given of 'bleu'; benchmarks are: 'judge', 'r"),
        ({"bounds": {"judge": (9, 1)}}, r"bounds of 'judge' \(9, 1\) are not two"),
        ({"squeeze": {"bleu": 20}}, "squeeze is given of 'bleu'; benchmarks are:"),
        ({}, r"--bounds-of judge=LOW:HIGH"),
    ],
)
def test_bounds_of_no_metric_are_refused(options, message):
    inside, wide, _ = judged()
    table = inside if "squeeze" in options else wide
    with pytest.raises(ValueError, match=message) as caught:
        irtjax.fit(table, "continuous", **options)
    assert "\n" not in str(caught.value)


HALF = [[0.2, 1.0], [0.5, 0.0], [0.3, 0.1]]


@pytest.mark.parametrize(
    ("values", "model", "options", "message"),
    [
        ([[0, 1], [1, 0]], "continuous", {}, "no score is between 0 and 1"),
        ([[0, 1], [1, 0]], "mixed", {}, "right or wrong only; .* use model='2pl'"),
        (HALF, "mixed", {}, "scores only"),
        (HALF, "2pl", {}, "choose a 0/1 metric, or model='continuous'"),
        ([[0, 1], [1, 0]], "2pl", {"squeeze": 20}, "squeeze is for models of scores"),
        ([[0, 1], [1, 0]], "2pl", {"bounds": (0, 2)}, "bounds is for models of scores"),
        (HALF, "continuous", {"ends": 0.1}, "ends is for the model 'inflated_beta'"),
        (HALF, "inflated_beta", {"squeeze": 9}, "keeps its ends: leave squeeze out"),
        (
            HALF,
            "beta",
            {"method": "gradient"},
            "method='em', 'saem', 'laplace', 'nuts'",
        ),
        (HALF, "inflated_beta", {"ends": 0.7}, r"ends 0\.7 is not a distance"),
    ],
)
def test_what_does_not_suit_is_refused_in_one_line(values, model, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        irtjax.fit(table_of(values), model, **options)
    assert "\n" not in str(caught.value)


def test_kinds_of_items_are_told_by_their_values():
    values = [[1, 0.5, 3, 1.0], [0, 0.25, 0, 0.0]]
    trials = [[1, 1, 5, 1], [1, 1, 5, 1]]
    assert binary_items(table_of(values, trials=trials)).tolist() == [
        *(True, False, True, True)
    ]
    values = np.where(np.arange(4) == 1, 1, values)
    table = table_of(values, trials=np.where(np.arange(4) == 1, 2, trials))
    with pytest.raises(ValueError, match="counts of trials are not scores"):
        irtjax.fit(table, "beta")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    table, *_ = simulated("mixed")
    values = table.values.copy()
    values[2, 1], values[3, 1] = 0, 1
    observed = table.observed.copy()
    observed[2:4, 1] = True
    table = table_of(values, observed=observed)
    fit = irtjax.fit(table, "mixed")
    folder = irtjax.save(fit, tmp_path_factory.mktemp("fits") / "mixed")
    return table, fit, folder


@pytest.mark.slow
def test_a_calibration_says_what_was_done(fitted):
    table, fit, folder = fitted
    assert fit.status is irtjax.Status.CONVERGED
    assert any(w.startswith("2 scores were within ") for w in fit.warnings)
    assert fit.options["squeeze"] == default_squeeze(
        table.values[:, 1::2][table.observed[:, 1::2]]
    )
    columns = fit.items.table.to_pydict()
    assert [x is None for x in columns["dispersion"]] == [True, False] * 4
    assert [x is None for x in columns["dispersion_se"]] == [True, False] * 4
    # Three parameters for a score, two for an answer.
    assert fit.num_parameters == 4 * 3 + 4 * 2
    accuracy = np.asarray(columns["accuracy"])
    np.testing.assert_allclose(accuracy, table.item_accuracy())
    saved = json.loads((folder / "fit.json").read_text())
    assert saved["options"]["squeeze"] == fit.options["squeeze"]


def test_the_log_likelihood_is_that_of_the_scores(fitted):
    # The density of Y is that of its logit times 1 / (y (1 - y)).
    table, fit, _ = fitted
    items = fit.parameters.items
    dispersion = np.asarray(items.dispersion)
    logits = to_logits(table, dispersion > 0).values
    grid = np.linspace(-7, 7, 2001)
    eta = np.asarray(items.discrimination) * grid[:, None] + items.intercept
    normal = stats.norm.logpdf(
        logits[:, None], eta, np.where(dispersion > 0, dispersion, 1)
    )
    y = 1 / (1 + np.exp(-logits[:, None]))
    density = normal - np.log(y * (1 - y))
    right = -np.log1p(np.exp(np.where(table.values == 1, -1, 1)[:, None] * eta))
    cells = np.where(dispersion > 0, density, right) * table.observed[:, None]
    weights = stats.norm.pdf(grid) * (grid[1] - grid[0])
    expected = np.log(np.exp(cells.sum(2)) @ weights).sum()
    assert fit.log_likelihood == pytest.approx(expected, abs=1e-6)
    assert fit.trace[-1] == pytest.approx(expected + fit.log_prior, abs=1e-4)


def test_an_adaptive_test_is_refused(fitted):
    with pytest.raises(ValueError, match="a mixed model has scores and no categories"):
        irtjax.AdaptiveTest(fitted[1])


def test_a_saved_fit_scores_newcomers_the_same(fitted):
    table, fit, folder = fitted
    loaded = irtjax.load(folder)
    assert loaded.model == fit.model
    # Fewer items, in another order: kinds go with their items.
    part = table.select(items=["item 5", "item 2", "item 8"])
    one = irtjax.score(fit, part).table
    assert irtjax.score(loaded, part).table.equals(one)
    whole = irtjax.score(loaded, table).table.to_pydict()
    abilities = dict(
        zip(
            *(fit.abilities.table.to_pydict()[n] for n in ("subject", "ability")),
            strict=True,
        )
    )
    for name, ability in zip(whole["subject"], whole["ability"], strict=True):
        assert ability == pytest.approx(abilities[name], abs=1e-6)
    wrong = table_of(np.full((1, 1), 0.5), items=["item 1"])
    with pytest.raises(ValueError, match="value 0.5 is not right or wrong"):
        irtjax.score(fit, wrong)


@pytest.mark.slow
def test_the_command_line(tmp_path):
    def ok(*args):
        result = CliRunner().invoke(app, [str(a) for a in args])
        assert result.exit_code == 0, result.output + str(result.exception)
        return result

    out = tmp_path / "scores.csv"
    size = ("--num-subjects", 40, "--num-items", 6)
    ok("simulate", "--model", "continuous", *size, "-o", out, "-q")
    table = irtjax.read(out)
    assert table.kind == "continuous"
    assert 0 < table.values.min() < table.values.max() < 1
    assert "suggested" in ok("info", out).stdout
    told = json.loads(ok("info", out, "--json").stdout)
    assert told["suggested_model"] == "continuous"
    shifted = tmp_path / "shifted.csv"
    text = [line.split(",") for line in out.read_text().splitlines()]
    body = [[row[0], *(repr(2 * float(x) - 1) for x in row[1:])] for row in text[1:]]
    shifted.write_text("\n".join(",".join(row) for row in [text[0], *body]))
    for data, extra in ((out, ()), (shifted, ("--bounds", -1, 1))):
        quick = ("--standard-errors", "none", "--no-figures", "-q", "--squeeze", 50)
        ok("fit", data, "--model", "continuous", *quick, *extra, "-o", f"{data}.fit")
    one, two = (irtjax.load(f"{path}.fit") for path in (out, shifted))
    np.testing.assert_allclose(
        one.parameters.items.intercept, two.parameters.items.intercept, atol=1e-6
    )
    scored = json.loads(
        ok("score", shifted, "--fit", f"{shifted}.fit", "--json").stdout
    )
    assert len(scored["subjects"]) == 40
    again = tmp_path / "again.csv"
    ok("simulate", "--fit", f"{shifted}.fit", "--num-subjects", 5, "-o", again, "-q")
    assert irtjax.read(again).values.min() < 0
    refused = CliRunner().invoke(app, ["fit", str(shifted), "-m", "beta", "-o", "x"])
    assert refused.exit_code == 2
    assert re.search(
        r"score -0\.\d+ is not between 0 and 1; .*--bounds", refused.stderr
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", ["continuous", "beta"])
def test_an_item_without_variation_stays_finite(model):
    table, *_ = simulated("continuous", 30, 4)
    values = table.values.copy()
    values[:, 0], values[:, 1] = 0.5, values[:, 2]
    values[:, 3] = 0.0
    table = table_of(values, observed=table.observed)
    fit = irtjax.fit(table, model, standard_errors="none", max_steps=60)
    assert all(np.isfinite(x).all() for x in fit.parameters.items)
    assert "all wrong" in fit.items.table.column("flags").to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.SCORE_MODELS)
def test_errors_of_items_and_abilities_are_those_made(name):
    table, items, theta = simulated(name, 400, 12)
    fit = irtjax.fit(table, name)
    assert fit.status is irtjax.Status.CONVERGED
    model = fit.model
    scores = prepare(table, model)
    data = with_scores(table.responses(float), scores, float)
    problem = irtjax.Problem.create(model, data)
    rows = model.unconstrain(jax.tree.map(np.asarray, fit.parameters.items))
    nodes = equal_nodes(-6.0, 6.0, 201)
    found = irtjax.item_covariance(problem, rows, standard_population(), nodes)
    # Errors of items hang together by the sample's location and scale: their whole
    # covariance is each item's own block, and between items what they share.
    num_items, columns = rows.shape
    shared = np.asarray(found.shared).reshape(-1, rows.size)
    whole = (shared.T @ shared).reshape(num_items, columns, num_items, columns)
    index = np.arange(num_items)
    whole[index, :, index, :] = found.items
    free = np.flatnonzero(np.ravel(problem.free))
    whole = whole.reshape(rows.size, rows.size)[np.ix_(free, free)]
    gap = np.ravel(rows - model.unconstrain(items))[free]
    distance = gap @ np.linalg.solve(whole, gap)
    # Chi-square with as many degrees of freedom; two-sided, one failure in 1,000. Rare
    # ends make errors of cuts skewed, and priors pull them in: no sharper than that.
    low, high = stats.chi2(free.size).ppf([5e-4, 1 - 5e-4])
    assert low < distance < high
    by_name = fit.abilities.table.to_pydict()
    place = [int(name.split()[1]) - 1 for name in by_name["subject"]]
    error = np.array(by_name["ability"]) - np.asarray(theta)[place]
    inside = np.abs(error) < 1.96 * np.array(by_name["ability_se"])
    # 4.5 binomial errors; what they share, the error of the mean of 400, is a
    # twentieth of a standard deviation and small beside their own.
    assert abs(inside.mean() - 0.95) < 4.5 * np.sqrt(0.95 * 0.05 / 400)
