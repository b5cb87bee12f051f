"""Factor models through `irtjax.fit`: optimum, rotation, masks, verbs, refusals."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import expit
from typer.testing import CliRunner

import irtjax
from irtjax.calibration.parts.factors import Factors, findings_of
from irtjax.cli.app import app
from irtjax.estimators.driver import run_jit
from irtjax.estimators.marginal.gaussian import GVEM
from irtjax.estimators.start import start_values
from irtjax.fitting.defaults import choose
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor, bifactor, simple_structure
from irtjax.models.priors import Normal
from irtjax.models.simulate import simulate_abilities
from irtjax.numerics.rotation import rotate
from irtjax.plots.parameters import parameter_columns
from irtjax.storage.tables import factor_tables

SUBJECTS, ITEMS, FACTORS = 400, 60, 2
GROUPS = np.arange(ITEMS) % FACTORS
ZEROS = np.zeros((ITEMS, FACTORS))


@functools.cache
def drawn():
    """Responses to items that each measure one of two correlated factors."""
    rng = np.random.default_rng(3)
    root = np.linalg.cholesky([[1, 0.4], [0.4, 1]])
    theta = rng.normal(size=(SUBJECTS, FACTORS)) @ root.T
    slopes = np.zeros((ITEMS, FACTORS))
    slopes[np.arange(ITEMS), GROUPS] = rng.uniform(1.0, 2.2, ITEMS)
    intercept = rng.normal(size=ITEMS)
    chance = expit(theta @ slopes.T + intercept)
    right = (rng.random(chance.shape) < chance).astype(np.int8)
    seen = rng.random(chance.shape) < 0.9
    table = irtjax.ResponseTable.from_arrays(
        right, observed=seen, benchmark=np.array(["law", "code"])[GROUPS]
    )
    return table, slopes, chance.mean(axis=1)


@functools.cache
def fitted(**settings):
    """The fit by MM; `tests/estimators/marginal` has the marginal methods."""
    return irtjax.fit(drawn()[0], "factor", "mm", **settings)


def predictors(fit):
    items = fit.parameters.items
    return np.asarray(fit.parameters.theta @ items.discrimination.T + items.intercept)


def congruence(one, other):
    """Tucker's coefficients of matched columns."""
    sizes = np.linalg.norm(one, axis=0)[:, None] * np.linalg.norm(other, axis=0)
    found = np.abs(one.T @ other) / sizes
    return found[linear_sum_assignment(-found)]


def test_planted_simple_structure_is_found():
    table, slopes, score = drawn()
    fit = fitted()
    found = fit.factors
    assert (
        fit.status is irtjax.Status.CONVERGED and fit.options["rotation"] == "oblimin"
    )
    assert congruence(found.loadings, slopes).min() > 0.98
    assert found.share_at_best > 0.5
    # 400 subjects: the standard error of a correlation of .4 is .04, and that of its
    # estimate from abilities with a reliability of about .85 is larger.
    assert abs(found.correlation[0, 1] - 0.4) < 0.15
    low, high = (
        fit.abilities.table[f"expected_score_{end}"].to_numpy()
        for end in ("lower", "upper")
    )
    # Five standard errors of a share of 400: .055.
    assert ((low <= score) & (score <= high)).mean() > 0.95 - 0.055


def test_the_estimate_is_a_maximum_of_the_penalised_joint_likelihood():
    table, *_ = drawn()
    model = factor_model(Factor())
    data = table.select(subjects=np.arange(40), items=np.arange(12)).responses(float)
    problem = irtjax.Problem.create(model, data)
    start = start_values(model, data)
    fit = run_jit(problem, irtjax.MM(tolerance=1e-8), start, max_steps=3000)
    values, seen = np.asarray(data.values), np.asarray(data.observed)

    def loss(x):
        theta, rest = x[:80].reshape(40, 2), x[80:].reshape(12, 3)
        eta = theta @ rest[:, :2].T + rest[:, 2]
        height = np.sum(seen * (values * eta - np.logaddexp(0, eta)))
        height -= 0.5 * np.sum(theta**2) + 40 * np.log(2 * np.pi)
        for column, sd in ((rest[:, :2], 1.0), (rest[:, 2], 3.0)):
            height -= 0.5 * np.sum((column / sd) ** 2)
            height -= column.size * np.log(sd * np.sqrt(2 * np.pi))
        return -height

    best = fit.state.best
    rows = np.column_stack([best.discrimination, best.intercept])
    found = minimize(loss, np.concatenate([np.ravel(best.theta), rows.ravel()]))
    assert -found.fun == pytest.approx(float(fit.objective), abs=1e-6)


@pytest.mark.parametrize(
    ("method", "tolerance", "objective", "error"),
    # Of another number of nodes, a relative 1e-10.
    [("mm", 1e-10, -2238.875535454324, 1e-10), ("em", 1e-8, -2275.106749467052, 2e-7)],
)
def test_one_factor_has_the_objective_of_before(method, tolerance, objective, error):
    """Objectives of a 2PL by the last version without factor models."""
    rng = np.random.default_rng(5)
    theta, slope = rng.normal(size=(120, 1)), rng.uniform(0.6, 1.8, 40)
    chance = expit(theta * slope + rng.normal(size=40))
    right = (rng.random(chance.shape) < chance).astype(np.int8)
    seen = rng.random(chance.shape) < 0.85
    table = irtjax.ResponseTable.from_arrays(right, observed=seen)
    fit = irtjax.fit(
        table, "factor", method, factors=1, tolerance=tolerance, standard_errors="none"
    )
    assert fit.trace[-1] == pytest.approx(objective, rel=0, abs=error)


#: All items but the last ten have a loading.
ONE_MASK = np.arange(ITEMS)[:, None] < ITEMS - 10
ONE_FACTOR = {"factors": 1, "tolerance": 1e-9, "standard_errors": "none"}


@functools.cache
def masked_fit() -> irtjax.Calibration:
    return irtjax.fit(drawn()[0], "factor", "mm", loadings=ONE_MASK, **ONE_FACTOR)


def test_one_factor_with_a_mask_is_that_of_its_items():
    """Items with a loading of 0 tell nothing of ability, and do not set its scale."""
    table, masked = drawn()[0], masked_fit()
    part = table.select(items=table.items[:-10])
    alone = irtjax.fit(part, "factor", "mm", **ONE_FACTOR)
    ability, ours = (x.abilities.table["ability"].to_numpy() for x in (masked, alone))
    assert ability.mean() == pytest.approx(0, abs=1e-9)
    assert ability.std() == pytest.approx(1, abs=1e-9)
    assert np.all(masked.items.table["discrimination"].to_numpy()[-10:] == 0)
    np.testing.assert_allclose(ability, ours, atol=1e-5)


@pytest.mark.slow
def test_one_factor_is_the_2pl_by_mm():
    table, *_ = drawn()
    fit = fitted(factors=1)
    prior = irtjax.MODELS["2pl"]()
    model = irtjax.Model("2pl", prior.family, factor_model(Factor(1)).priors)
    other = irtjax.fit(table, model, "mm")
    assert fit.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-10)
    assert fit.factors is None
    # Its loadings are a / sqrt(a^2 + pi^2 / 3), with errors by the delta method.
    assert not factor_tables(other)
    rows, items = factor_tables(fit)["loadings"], fit.items.table
    slope, error = (
        items[name].to_numpy() for name in ("discrimination", "discrimination_se")
    )
    standard = lambda a: a / np.sqrt(a**2 + np.pi**2 / 3)
    found = rows["loading_factor_1"].to_numpy()
    np.testing.assert_allclose(found, standard(slope), rtol=1e-12)
    move = (standard(slope + 1e-5) - standard(slope - 1e-5)) / 2e-5
    found = rows["loading_factor_1_se"].to_numpy()
    np.testing.assert_allclose(found, move * error, rtol=1e-6)


def test_errors_that_are_not_known_are_empty_in_the_tables():
    fit = fitted()
    error = fit.factors.loadings_error.copy()
    error[3, 1] = np.nan
    fit = fit.with_part(dataclasses.replace(fit.factors, loadings_error=error))
    column = factor_tables(fit)["loadings"]["loading_factor_2_se"].to_pylist()
    assert column[3] is None and column[2] == error[2, 1]


@pytest.mark.parametrize(
    "rotation", ["none", "varimax", pytest.param("promax", marks=pytest.mark.slow)]
)
def test_a_rotation_changes_neither_likelihood_nor_scores(rotation):
    fit, other = fitted(), fitted(rotation=rotation)
    np.testing.assert_allclose(predictors(fit), predictors(other), atol=1e-8)
    for name in ("expected_score", "expected_score_se", "ability_se"):
        one, two = (x.abilities.table[name].to_numpy() for x in (fit, other))
        np.testing.assert_allclose(one, two, rtol=1e-6)
    np.testing.assert_allclose(
        fit.factors.communality, other.factors.communality, atol=1e-8
    )
    assert other.log_likelihood == fit.log_likelihood
    orthogonal = rotation != "promax"
    assert (abs(other.factors.correlation[0, 1]) < 1e-8) == orthogonal


def test_errors_of_loadings_are_of_the_size_of_their_errors():
    _, slopes, _ = drawn()
    found = fitted().factors
    covariance = np.array([[1, 0.4], [0.4, 1]])
    total = np.einsum("jk,kl,jl->j", slopes, covariance, slopes) + np.pi**2 / 3
    true = slopes / np.sqrt(total)[:, None]
    order = np.argmax(np.abs(found.loadings.T @ true), axis=1)
    error = (found.loadings - true[:, order]) / found.loadings_error
    # 120 numbers: the share of a normal below 1.96 has a standard error of .02. Errors
    # of the rotation, which all items share, are left out.
    assert (np.abs(error) < 1.96).mean() > 0.95 - 5 * 0.02


def test_a_mask_fixes_loadings_at_zero_and_names_the_factors():
    table, *_ = drawn()
    names = np.array(["law", "code"])[GROUPS]
    loadings = simple_structure(table.items.tolist(), names.tolist())
    fit = irtjax.fit(table, irtjax.Factor(loadings=loadings), "mm")
    found = fit.factors
    assert found.names.tolist() == ["law", "code"] and found.rotation == "none"
    assert np.all(found.loadings[np.arange(ITEMS), 1 - GROUPS] == 0)
    assert np.all(found.loadings_error[np.arange(ITEMS), 1 - GROUPS] == 0)
    assert np.all(found.loadings[np.arange(ITEMS), GROUPS] > 0.2)
    assert 0.2 < found.correlation[0, 1] < 0.6
    # The same by an array.
    mask = np.eye(2, dtype=bool)[GROUPS]
    again = irtjax.fit(table, "factor", "mm", loadings=mask)
    assert again.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-9)
    mask[6] = False
    again = irtjax.fit(table, "factor", "mm", loadings=mask, max_steps=3)
    assert f"1 item measures no factor by loadings: {table.items[6]}" in again.notes


@pytest.mark.slow  # A program of its own.
def test_non_negative_loadings():
    fit = fitted(positive=True)
    assert fit.status is irtjax.Status.CONVERGED and fit.options["rotation"] == "none"
    slopes = np.asarray(fit.parameters.items.discrimination)
    assert slopes.min() == 0.0
    # The prior of uncorrelated abilities leaves factors that correlate at .4 some
    # loadings in common.
    assert congruence(slopes, drawn()[1]).min() > 0.95


def test_ready_made_masks():
    assert bifactor(["a"], ["law"]) == {"a": ["general", "law"]}
    assert Factor(loadings=bifactor(list("abc"), list("xxy"))).count == 3


def test_every_verb_works_or_refuses_in_one_line(tmp_path):
    table, *_ = drawn()
    fit = fitted()
    ranked = irtjax.rank(fit).table
    assert (np.diff(ranked["ability"].to_numpy()) <= 0).all()
    first, last = ranked["subject"].to_pylist()[:: SUBJECTS - 1]
    compared = irtjax.compare(fit, first, last, data=table)
    assert compared.difference > 0 and compared.p_value < 1e-6
    # The same subjects as new ones have the errors of the fit, which count the items'.
    scored = irtjax.score(fit, table).table
    errors = [x["ability_se"].to_numpy() for x in (scored, fit.abilities.table)]
    np.testing.assert_allclose(*map(np.sort, errors), rtol=1e-6)
    for k in (1, 2):
        np.testing.assert_allclose(
            scored[f"ability_factor_{k}"].to_numpy(),
            fit.factors.ability[:, k - 1],
            atol=0.05,
        )
    np.testing.assert_allclose(
        scored["ability"].to_numpy(),
        fit.abilities.table["ability"].to_numpy(),
        atol=0.01,
    )
    # An expected score has bounds, and so has its interval, at any level.
    wide = irtjax.rank(fit, level=0.999999).table
    for found in (wide, fit.abilities.table, scored):
        assert min(found["lower"].to_pylist()) > 0
        assert max(found["upper"].to_pylist()) < 1
    predicted = irtjax.predict(fit, categories=True)
    mean = predicted.expected.mean(axis=1)
    np.testing.assert_allclose(
        mean, fit.abilities.table["expected_score"].to_numpy(), atol=1e-9
    )
    np.testing.assert_allclose(predicted.probabilities.sum(-1), 1)
    irtjax.save(fit, tmp_path / "fit")
    again = irtjax.load(tmp_path / "fit")
    for name, one in vars(fit.factors).items():
        np.testing.assert_array_equal(one, getattr(again.factors, name))
    assert again.abilities.table.equals(fit.abilities.table)
    for call in (
        lambda: irtjax.audit(fit, table),
        lambda: irtjax.shrink(table, 10, model=fit),
        lambda: irtjax.plots.plot_wright_map(fit),
        lambda: irtjax.score(fit, table, scoring="wle"),
        lambda: irtjax.item_information(fit.model, fit.parameters.items, jnp.zeros(3)),
        lambda: irtjax.test_information(fit.model, fit.parameters.items, jnp.zeros(3)),
    ):
        with pytest.raises(ValueError, match="one ability") as refused:
            call()
        assert "\n" not in str(refused.value)
    for plot in (irtjax.plots.plot_correlations, irtjax.plots.plot_abilities_by_group):
        with pytest.raises(ValueError, match="no groups of items: use plots"):
            plot(fit)
    (_, size, slope), (_, formula, difficulty) = parameter_columns(fit)
    assert (size, formula) == ("|a|", "−d / |a|")
    for name, values in (("discrimination", slope), ("difficulty", difficulty)):
        np.testing.assert_allclose(fit.items.table[name].to_numpy(), values)
    assert len(irtjax.plots.plot_item_parameters(fit).axes) == 2


@pytest.mark.slow
def test_errors_of_new_subjects_count_those_of_the_items():
    """The same subjects have the errors of the fit, whatever the rotation."""
    (table, *_), fit = drawn(), fitted()
    known = dataclasses.replace(fit, item_covariance=None)
    errors = [
        irtjax.score(x, table).table["ability_se"].to_numpy() for x in (fit, known)
    ]
    place = {
        name: k for k, name in enumerate(fit.abilities.table["subject"].to_pylist())
    }
    rows = [place[name] for name in table.subjects.tolist()]
    ratio = errors[0] / fit.abilities.table["ability_se"].to_numpy()[rows]
    np.testing.assert_allclose(ratio, 1, rtol=1e-6)
    assert (errors[1] < 0.999 * errors[0]).all()
    # Some of the items, in another order, are all items with the others missing.
    some = np.arange(ITEMS)[::-2]
    seen = np.zeros(table.values.shape, bool)
    seen[:, some] = True if table.observed is None else table.observed[:, some]
    whole = irtjax.ResponseTable.from_arrays(
        table.values, observed=seen, items=table.items, subjects=table.subjects
    )
    found = [irtjax.score(fit, x).table for x in (table.select(items=some), whole)]
    for name in ("ability", "ability_se", "lower"):
        np.testing.assert_allclose(*(x[name].to_numpy() for x in found), atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mm", "gvem"])
def test_errors_of_new_subjects_leave_out_that_of_the_rotation(method, tmp_path):
    """Of few items whose axes are not clear it made them up to 64 % larger."""
    rng = np.random.default_rng(1)
    chance = expit(rng.normal(size=(150, 2)) @ rng.normal(size=(2, 12)))
    right = (rng.random(chance.shape) < chance).astype(np.int8)
    table = irtjax.ResponseTable.from_arrays(right)
    fit = irtjax.fit(table, "factor", method, factors=2, rotation="varimax")
    assert fit.factors.rotation == "varimax"
    irtjax.save(fit, tmp_path / "fit")
    place = {
        name: k for k, name in enumerate(fit.abilities.table["subject"].to_pylist())
    }
    rows = [place[name] for name in table.subjects.tolist()]
    wanted = fit.abilities.table["ability_se"].to_numpy()[rows]
    for each in (fit, irtjax.load(tmp_path / "fit")):
        found = irtjax.score(each, table).table["ability_se"].to_numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("method", ["mm", pytest.param("gvem", marks=pytest.mark.slow)])
def test_the_command_line_writes_loadings_and_figures(tmp_path, method):
    table, *_ = drawn()
    rows = ["subject,item,response,task"]
    few = table.select(subjects=np.arange(60), items=np.arange(16))
    for i, subject in enumerate(few.subjects):
        rows += [
            f"{subject},{item},{few.values[i, j]},{few.benchmarks[j]}"
            for j, item in enumerate(few.items)
            if few.observed[i, j]
        ]
    (tmp_path / "long.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    command = ["fit", str(tmp_path / "long.csv"), "--benchmark", "task", "--model"]
    command += ["factor", "--method", method, "--factors", "2", "--rotation", "varimax"]
    command += ["--figures"]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "fit")])
    assert done.exit_code == 0, done.output
    names = {path.name for path in (tmp_path / "fit").iterdir()}
    files = "loadings.csv structure.csv factor_correlations.csv structure.png"
    assert set(files.split()) <= names
    text = (tmp_path / "fit" / "loadings.csv").read_text(encoding="utf-8")
    assert "loading_factor_2_se" in text.splitlines()[0]
    structure = pyarrow.csv.read_csv(tmp_path / "fit" / "structure.csv").to_pydict()
    numbers = [f"structure_factor_{k}" for k in (1, 2)]
    assert list(structure) == ["item", "benchmark", *numbers, "communality"]
    found = irtjax.load(tmp_path / "fit")
    assert structure["item"] == found.item_names.tolist()
    written = np.column_stack([structure[name] for name in numbers])
    np.testing.assert_allclose(written, found.factors.structure, atol=1e-6)
    communality = structure["communality"]
    np.testing.assert_allclose(communality, found.factors.communality, atol=1e-6)
    masks = ["item,law,code"]
    masks += [f"{item},{k % 2 == 0:d},{k % 2:d}" for k, item in enumerate(few.items)]
    (tmp_path / "mask.csv").write_text("\n".join(masks) + "\n", encoding="utf-8")
    command = [*command[:8], "--loadings", str(tmp_path / "mask.csv"), "--no-figures"]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "masked")])
    assert done.exit_code == 0, done.output
    saved = irtjax.load(tmp_path / "masked")
    assert saved.factors.names.tolist() == ["law", "code"]
    # A target for some items alone, of which one is not in the table.
    goals = ["item,code,law", *(f"{item},,0" for item in few.items[1:9:2])]
    goals += [f"{few.items[0]},0,0.5", f"{few.items[2]},0,", "unknown,0,0"]
    (tmp_path / "target.csv").write_text("\n".join(goals) + "\n", encoding="utf-8")
    command = [*command[:8], "--target", str(tmp_path / "target.csv"), "--verbose"]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "turned")])
    assert done.exit_code == 0, done.output
    assert "1 row of --target" in " ".join(done.output.split())
    turned = irtjax.load(tmp_path / "turned")
    assert turned.factors.rotation == "target"
    assert turned.factors.names.tolist() == ["code", "law"]
    place = {item: k for k, item in enumerate(turned.item_names.tolist())}
    loadings = turned.factors.loadings[[place[item] for item in few.items]]
    apart = [np.sqrt(np.mean(loadings[[0, 2], 0] ** 2))]
    off = loadings[[0, 1, 3, 5, 7], 1] - [0.5, 0, 0, 0, 0]
    apart += [np.sqrt(np.mean(off**2))]
    np.testing.assert_allclose(turned.factors.from_target, apart)
    out = tmp_path / "drawn.parquet"
    command = ["simulate", "--fit", str(tmp_path / "masked"), "--num-subjects", "5"]
    done = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert done.exit_code == 0, done.output
    names = pq.read_schema(tmp_path / "drawn.abilities.parquet").names
    assert names == ["subject", "ability_law", "ability_code"]


def test_responses_are_simulated_from_a_fit():
    fit = fitted()
    given = jax.tree.map(jnp.asarray, fit.parameters)
    theta = simulate_abilities(5000, jax.random.key(0), given.population)
    assert theta.shape == (5000, 2)
    # Five standard errors of a correlation of 5,000.
    found = np.corrcoef(np.asarray(theta).T)[0, 1]
    assert abs(found - fit.factors.correlation[0, 1]) < 5 / 5000**0.5
    data = irtjax.simulate(fit.model, given.items, theta, jax.random.key(1))
    chance = expit(np.asarray(theta @ given.items.discrimination.T + given.items[1]))
    error = np.asarray(data.values).mean(0) - chance.mean(0)
    assert np.abs(error).max() < 5 * 0.5 / 5000**0.5


@pytest.mark.slow
def test_correlations_of_a_fit_have_errors_a_table_and_a_sentence(tmp_path):
    """Of scores, whose fit is exact; errors: `test_marginal_covariance`."""
    rng = np.random.default_rng(5)
    items, mask = 6, np.eye(2, dtype=bool)[np.arange(6) % 2]
    theta = rng.normal(size=(80, 2)) @ np.linalg.cholesky([[1, 0.4], [0.4, 1]]).T
    scores = expit(1.5 * theta @ mask.T + rng.normal(size=(80, items)))
    table = irtjax.ResponseTable.from_arrays(scores)
    names = ["law|a", "code"]
    given = {item: [names[k % 2]] for k, item in enumerate(table.items)}
    fit = irtjax.fit(table, "factor", loadings=given, level=0.9)
    found = fit.factors
    error, rho = found.correlation_error[0, 1], found.correlation[0, 1]
    # That of a sample of 80, and more, since the abilities are not observed.
    assert (1 - rho**2) / 80**0.5 < error < 2 * (1 - rho**2) / 80**0.5
    low, high = found.correlation_interval(0.9)
    middle = np.arctanh(low[0, 1]) + np.arctanh(high[0, 1])
    np.testing.assert_allclose(middle / 2, np.arctanh(rho))
    width = (np.arctanh(high[0, 1]) - np.arctanh(rho)) * (1 - rho**2)
    np.testing.assert_allclose(width, 1.6448536 * error, rtol=1e-6)
    np.testing.assert_array_equal(np.diagonal(low), 1)
    irtjax.write_report(fit, tmp_path / "fit", figures=False)
    rows = (tmp_path / "fit" / "factor_correlation_errors.csv").read_text("utf-8")
    header, row = rows.strip().splitlines()
    columns = "first,second,correlation,correlation_se,lower,upper"
    assert header.replace('"', "") == columns
    np.testing.assert_allclose(
        [float(x) for x in row.split(",")[2:]],
        [rho, error, low[0, 1], high[0, 1]],
        rtol=1e-6,
    )
    page = (tmp_path / "fit" / "leaderboard.md").read_text("utf-8")
    assert "Correlation of factors, with 90 % intervals: " in page
    assert "law\\|a" in page and "law|a" not in page
    again = irtjax.load(tmp_path / "fit").factors
    np.testing.assert_array_equal(again.correlation_error, found.correlation_error)
    # A fit without errors, in the same folder, leaves no errors of another.
    irtjax.save(
        irtjax.fit(table, "factor", loadings=mask, standard_errors="none"),
        tmp_path / "fit",
    )
    assert not (tmp_path / "fit" / "factor_correlation_errors.csv").exists()
    assert irtjax.load(tmp_path / "fit").factors.correlation_error is None


@pytest.mark.slow  # Programs of its own.
@pytest.mark.parametrize("method", ["gvem", "em"])
def test_a_confirmatory_model_by_a_marginal_method(method, tmp_path):
    table, slopes, score = drawn()
    few = table.select(items=np.arange(24))
    fit = irtjax.fit(few, "factor", method, loadings=np.eye(2, dtype=bool)[GROUPS[:24]])
    found = fit.factors
    assert fit.status is irtjax.Status.CONVERGED
    # 400 subjects: the standard error of a correlation of .4 is .04, and about .06 with
    # abilities of a reliability of .8.
    assert abs(found.correlation[0, 1] - 0.4) < 3 * 0.06
    total = np.einsum("jk,kl,jl->j", slopes, [[1, 0.4], [0.4, 1]], slopes)
    true = (slopes / np.sqrt(total + np.pi**2 / 3)[:, None])[:24]
    used = true != 0
    error = (found.loadings - true)[used] / found.loadings_error[used]
    # 24 numbers: the share of a normal below 1.96 has a standard error of .044.
    assert (np.abs(error) < 1.96).mean() > 0.95 - 4 * 0.044
    # Every verb of a fit without abilities as parameters.
    assert irtjax.rank(fit).table.num_rows == SUBJECTS
    new = irtjax.score(fit, few)
    scored = new.table
    np.testing.assert_allclose(
        scored["ability"].to_numpy(),
        fit.abilities.table["ability"].to_numpy(),
        atol=1e-6,
    )
    first, last = fit.abilities.table["subject"].to_pylist()[:: SUBJECTS - 1]
    assert irtjax.compare(fit, first, last, data=few).difference > 0
    expected = irtjax.predict(fit).expected
    assert expected.shape == (SUBJECTS, 24)
    # Subjects with the responses of the fit are predicted as those of the fit.
    of_scores = irtjax.predict(fit, scored=new).expected
    np.testing.assert_allclose(of_scores, expected, atol=1e-5)
    given = jax.tree.map(jnp.asarray, fit.parameters)
    theta = simulate_abilities(50, jax.random.key(0), given.population)
    assert irtjax.simulate(fit.model, given.items, theta, jax.random.key(1)).num_items
    irtjax.save(fit, tmp_path / "fit")
    again = irtjax.load(tmp_path / "fit")
    np.testing.assert_array_equal(again.factors.correlation, found.correlation)
    np.testing.assert_array_equal(
        again.parameters.population.correlation, found.correlation
    )


@pytest.mark.slow  # Programs of its own.
def test_one_factor_is_the_2pl_by_em():
    table, *_ = drawn()
    prior = factor_model(Factor(1)).priors
    model = irtjax.Model("2pl", irtjax.MODELS["2pl"]().family, prior)
    fit = irtjax.fit(table, "factor", factors=1)
    assert fit.options["method"] == "em"
    other = irtjax.fit(table, model, "em")
    assert fit.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-10)


@pytest.mark.slow  # Programs of its own.
def test_planted_structure_is_found_from_few_items():
    table, slopes, _ = drawn()
    few = table.select(items=np.arange(24))
    fit = irtjax.fit(few, "factor")
    assert fit.options["method"] == "gvem"
    assert "responses to a factor on average, below 100" in fit.options["choice"]
    assert congruence(fit.factors.loadings, slopes[:24]).min() > 0.98
    # Principal axes have the same likelihood.
    plain = irtjax.fit(few, "factor", rotation="none")
    assert plain.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-8)


def test_the_default_method_goes_by_the_responses_to_a_factor():
    table, *_ = drawn()
    loadings = np.eye(2, dtype=bool)[GROUPS]
    for settings, method in (
        ({}, "gvem"),
        ({"loadings": loadings}, "gvem"),
        ({"factors": 1}, "em"),
        ({"priors": {"discrimination": Normal(1.0, 1.0)}}, "mm"),
        ({"bounds": (0, 1)}, "em"),
        ({"link": "probit"}, "em"),
    ):
        assert choose(table, "factor", settings=settings)[1] == method
    # Four copies of every item: 108 responses to a factor.
    wide = irtjax.ResponseTable.from_arrays(
        np.tile(table.values, 4), observed=np.tile(table.observed, 4)
    )
    assert choose(wide, Factor(2))[1] == "mm"
    assert "108 responses to a factor" in choose(wide, Factor(2)).reason


def test_items_that_the_only_factor_leaves_out_have_no_slope():
    fit = masked_fit()
    slopes = np.asarray(fit.parameters.items.discrimination)
    assert (slopes[-10:] == 0).all() and (np.abs(slopes[:-10]) > 0.01).all()
    # The files of a factor model are written for one factor, too.
    files = factor_tables(fit)
    assert list(files) == ["loadings", "structure", "factor_correlations"]
    rows = files["loadings"].to_pydict()
    loading = np.array(rows["loading_factor_1"])
    # Slopes of 0 leave abilities on the scale of the fit.
    scaled = slopes * float(fit.parameters.population.sd)
    np.testing.assert_allclose(loading, scaled / np.sqrt(scaled**2 + np.pi**2 / 3))
    np.testing.assert_allclose(rows["communality"], loading**2)
    assert "loading_factor_1_se" not in rows
    assert files["factor_correlations"]["factor_1"].to_pylist() == [1.0]
    with pytest.raises(ValueError, match="of one factor with positive=True"):
        Factor(loadings=ONE_MASK, positive=True)


@pytest.mark.slow
def test_a_bootstrap_of_a_marginal_method_has_modes():
    table, *_ = drawn()
    few = table.select(items=np.arange(12))
    fit = irtjax.fit(few, "factor", "gvem", rotation="none", standard_errors="none")
    problem = Problem.create(fit.model, few.responses(jnp.float64))
    start = Start(fit.parameters.items, None, fit.parameters.population)
    found = irtjax.bootstrap(
        problem, GVEM(), start, key=jax.random.key(0), num_replicates=3, max_steps=5
    )
    assert found.ability.shape == (3, few.num_subjects, 2)
    assert np.isfinite(found.ability).all()


@pytest.mark.parametrize("rotation", [None, "target_orthogonal"])
def test_loadings_are_rotated_to_a_target(rotation):
    """As `rotate` finds them, whatever the order in which the target names items."""
    table, *_ = drawn()
    settings: Any = {"factors": 2, "standard_errors": "none", "max_steps": 20}
    plain = irtjax.fit(table, "factor", "mm", rotation="none", **settings)
    target = np.where(np.arange(ITEMS)[:, None] < 10, np.nan, ZEROS)
    target[np.arange(ITEMS), GROUPS] = np.nan
    rows = {
        item: {name: x for name, x in zip("ba", row, strict=True) if not np.isnan(x)}
        for item, row in zip(table.items[::-1].tolist(), target[::-1], strict=True)
    }
    del settings["factors"]
    fit = irtjax.fit(table, "factor", "mm", target=rows, rotation=rotation, **settings)
    found = fit.factors
    assert found.rotation == (rotation or "target")
    assert found.names.tolist() == ["b", "a"] and fit.options["target"] == "given"
    goal = rotate(jnp.asarray(plain.factors.loadings), found.rotation, target=target)
    np.testing.assert_allclose(found.loadings, goal.loadings, atol=1e-8)
    np.testing.assert_allclose(found.correlation, goal.correlations, atol=1e-8)
    given = irtjax.fit(
        table, "factor", "mm", target=target, rotation=rotation, **settings
    )
    np.testing.assert_array_equal(given.factors.loadings, found.loadings)
    assert any("from the target" in note for note in fit.notes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"factors": 0}, "factors 0: give a whole number"),
        ({"factors": 60}, "60 factors of 400 subjects and 60 items: give at most 59"),
        ({"rotation": "turn"}, "no rotation 'turn'; there are none"),
        ({"rotation": "varimax", "positive": True}, "leave rotation out"),
        ({"loadings": np.ones((3, 2), bool)}, r"shape \(3, 2\): give items x factors"),
        ({"loadings": {"item 1": ["law"]}}, "no factor of item 'item 10'"),
        (
            {"loadings": np.arange(ITEMS)[:, None] < [ITEMS, 2]},
            "factor_2 has 2 items: a factor needs at least 3",
        ),
        ({"factors": 3, "loadings": np.ones((ITEMS, 2))}, "leave factors out"),
        ({"priors": None}, "a factor model needs priors"),
        ({"rotation": "target"}, "rotation 'target' requires target: the loa"),
        ({"target": ZEROS, "rotation": "varimax"}, "takes no target: use 'target' or"),
        ({"target": ZEROS, "positive": True}, "so leave target out"),
        ({"target": ZEROS, "factors": 3}, "the target has 2: leave factors out"),
        ({"target": ZEROS[:, :1]}, "the target has fewer than two factors"),
        ({"target": ZEROS[:3]}, r"target has shape \(3, 2\): give items x factors"),
        ({"target": ZEROS + 2}, "has 2 for item 'item 1' and factor_1: give standard"),
        ({"target": {"x": {"a": 0, "b": 0}}}, "names item 'x', which the table does"),
        ({"target": {"item 1": {"a": 0, "b": np.nan}}}, "specifies 1 cells, too few"),
        (
            {"method": "saem"},
            "is estimated by method='em', 'gvem' or 'mm', not 'saem'",
        ),
        (
            {"method": "em", "factors": 4},
            "at most 3 abilities, not 4: use method='gvem' or",
        ),
        ({"method": "em", "window": 40}, "window of EM needs one ability"),
        ({"method": "gvem", "factors": 1}, "fits at least two abilities"),
        (
            {"method": "gvem", "priors": {"discrimination": Normal(1.0, 1.0)}},
            "with mean 0, not 1: pass",
        ),
        ({"anchor": {"item 1": {"intercept": 0.0}}}, "takes no anchors"),
    ],
)
def test_what_cannot_be_fitted_is_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message) as refused:
        irtjax.fit(drawn()[0], "factor", **settings)
    assert "\n" not in str(refused.value)


def test_responses_that_do_not_differ_have_no_factors():
    values = np.ones((30, 20), np.int8)
    values[:10, :2] = 0
    table = irtjax.ResponseTable.from_arrays(values)
    message = "2 factors, but only 2 items of 20 have responses that differ"
    with pytest.raises(ValueError, match=message):
        irtjax.fit(table, "factor")


def test_more_factors_than_the_correlations_identify_are_named():
    """Ledermann's bound: 1 of 3 and 4 items, 2 of 5, 3 of 6, 14 of 20."""
    bounds = {3: 1, 4: 1, 5: 2, 6: 3, 20: 14}
    for items, most in bounds.items():
        assert not Factor(most).beyond(items, None)
        assert f"identify {most + 1} factors" in Factor(most + 1).beyond(items, None)
    mask = np.ones((4, 2), bool)
    assert Factor(loadings=mask).beyond(4, mask)
    mask[2:, 1] = False
    assert not Factor(loadings=mask).beyond(4, mask)


@pytest.mark.slow
def test_a_fit_warns_of_more_factors_than_the_correlations_identify():
    table = drawn()[0].select(items=np.arange(4), subjects=np.arange(60))
    settings: Any = {"standard_errors": "none", "max_steps": 5}
    fit = irtjax.fit(table, "factor", "mm", **settings)
    assert any("7 loadings are more than the 6 correl" in x for x in fit.warnings)


def test_settings_of_factors_need_the_model():
    with pytest.raises(ValueError, match="rotation requires the model factor"):
        irtjax.fit(drawn()[0], "2pl", rotation="varimax")
    with pytest.raises(ValueError, match="factors is a setting of models given by nam"):
        irtjax.fit(drawn()[0], irtjax.Factor(2), factors=3)


@pytest.mark.slow  # Another shape.
@pytest.mark.parametrize(
    ("method", "responses"),
    [
        ("mm", "binary"),
        ("gvem", "binary"),
        ("em", "binary"),
        ("em", "graded"),
        ("em", "partial_credit"),
        ("mm", "partial_credit"),
    ],
)
def test_degenerate_data_give_finite_numbers_and_warnings(method, responses):
    rng = np.random.default_rng(0)
    right = (rng.random((30, 12)) < 0.5).astype(np.int8)
    right[:, 0], right[0, 1:] = 1, 0
    right[:, 2] = right[:, 1]
    seen = np.ones(right.shape, bool)
    seen[1] = False
    if responses != "binary":  # One item has a category that nobody chose.
        right[:, 0] = 2
        right[:, 3:] += (rng.random((30, 9)) < 0.5).astype(np.int8)
        right[:, 4] = np.where(right[:, 4] == 1, 2, right[:, 4])
    fit = irtjax.fit(
        irtjax.ResponseTable.from_arrays(right, observed=seen),
        "factor",
        method,
        factors=2,
        responses=responses,
    )
    assert fit.status is irtjax.Status.CONVERGED
    table = fit.abilities.table
    for name in ("ability", "ability_se", "expected_score", "ability_factor_1"):
        assert np.isfinite(table[name].to_numpy(zero_copy_only=False)).all()
    assert np.isfinite(fit.factors.loadings).all()
    assert "all right" in fit.items.table["flags"].to_pylist()[0]


def test_factors_that_few_items_measure_are_named():
    structure = np.array([[0.9, 0.0]] * 4 + [[0.0, 0.8]] * 2 + [[0.5, 0.5]])
    none = np.zeros((1, 2))
    found = Factors(
        *(none, none, none, none),
        loadings=structure,
        correlation=np.eye(2),
        structure=structure[:6],
        communality=np.sum(structure**2, axis=1),
        rotation="oblimin",
        share_at_best=0.01,
        names=np.array(["law", "code"]),
    )
    options = {"positive": True, "loadings": "all"}
    warnings, notes = findings_of(found, options)
    assert warnings[0].startswith("fewer than 3 items have a structure coefficient")
    assert "on code: use fewer factors" in warnings[0]
    assert "items measure code alone" in warnings[1] and "law" not in warnings[1]
    assert notes[0] == (
        "items with at least 95 % of their communality on one factor: 4 (law), 2 (code)"
    )
    assert notes[1].startswith("1 % of the starts of the rotation")
    # Loadings fixed at 0 identify factors without items of their own.
    given, _ = findings_of(found, options | {"loadings": "given"})
    assert given == warnings[:1]
