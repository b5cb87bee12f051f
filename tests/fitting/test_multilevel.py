"""Multilevel fits through the front door: tables, disk, new subjects, command line."""

import dataclasses
import functools
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from scipy import optimize, special
from typer.testing import CliRunner

import irtjax
from experiments.lego_irt.tables import simulated_ratings
from irtjax.calibration.parts.groups import vanishing_groups
from irtjax.cli.app import app
from irtjax.data.responses import Responses
from irtjax.estimators.laplace.components import without_end
from irtjax.estimators.laplace.estimates import divergence_warnings
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.m_step import pull_of_priors
from irtjax.estimators.laplace.problem import MultilevelProblem, start_components
from irtjax.estimators.posterior.methods import NUTS, Variational
from irtjax.inference import errors_over_covariances, score_groups
from irtjax.models.families.logistic import Binary, LogisticItems
from irtjax.models.multilevel.covariance_mixture import Possible
from irtjax.models.multilevel.model import Hyperpriors, general_ability
from irtjax.models.multilevel.specification import MultiBenchmark
from irtjax.models.priors import Normal
from irtjax.storage import FIT_FILES, STRUCTURE_FILES, draw_labels
from tests.estimators.laplace.test_laplace import benchmarks, simulated

SUBJECTS, ITEMS, GROUPS = 40, 240, 3


@functools.cache
def drawn():
    model = benchmarks(SUBJECTS, ITEMS, GROUPS)
    data, theta, psi, own, _, _ = simulated(model)
    table = irtjax.ResponseTable.from_arrays(
        np.asarray(data.values),
        benchmark=[f"bench {g}" for g in np.asarray(model.group)],
    )
    # Domains that make no difference.
    domain = np.array([f"d{k % 5}" for k in range(ITEMS)])
    facets = {**table.item_facets, "domain": domain}
    table = dataclasses.replace(table, item_facets=facets)
    return table, theta, psi, own


@functools.cache
def fitted():
    # As the command line has it, so that its programs are compiled already.
    return irtjax.fit(drawn()[0], "multibenchmark", facets=("domain",), max_steps=60)


def test_what_stopped_the_fast_route_is_said():
    model = benchmarks(5, 9, 3)
    zeros = start_components(model, jnp.zeros((9, 2)))
    gone, wide = (np.asarray(x) for x in without_end(model, zeros))
    assert not gone.any() and not wide.any()
    away = zeros._replace(
        log_scale=jnp.asarray([0.0, -4.0, 0.0]), log_residual_sd=jnp.asarray([0.8, 0.8])
    )
    gone, wide = (np.asarray(x) for x in without_end(model, away))
    layout = SimpleNamespace(groups=np.array(["law", "code", "math"]))
    estimates = SimpleNamespace(groups=SimpleNamespace(vanishing=gone))
    (said,) = vanishing_groups(estimates, layout)
    assert "of code have a standard deviation of 0" in said and "hierarchical" in said
    # Intercepts may spread.
    (said,) = divergence_warnings(model, wide)
    assert "items' discrimination diverges" in said and "priors={'disc" in said


def by_subject(fit, values):
    """Rows of `values`, which are in the order of the fit's table, in the data's."""
    place = {
        name: k for k, name in enumerate(fit.abilities.table["subject"].to_pylist())
    }
    return np.asarray(values)[[place[name] for name in drawn()[0].subjects.tolist()]]


@pytest.mark.slow
def test_abilities_by_group_and_in_general():
    fit, (_, theta, psi, _) = fitted(), drawn()
    assert fit.status == irtjax.Status.CONVERGED
    structure = fit.structure
    assert structure.groups.tolist() == ["bench 0", "bench 1", "bench 2"]
    found = by_subject(fit, structure.ability)
    for m in range(GROUPS):
        # 80 items: an ability's error is about 0.25 of its standard deviation.
        assert np.corrcoef(found[:, m], theta[:, m])[0, 1] > 0.9
    general = by_subject(fit, fit.abilities.table["ability"].to_numpy())
    error = by_subject(fit, fit.abilities.table["ability_se"].to_numpy())
    # Of psi a part stays open whatever the responses say: as much as Sigma has it, over
    # all Sigma that may be, and that is about what the likeliest one says.
    left = general_ability(structure.specific_covariance).variance
    assert error.min() > 0.9 * np.sqrt(left)
    # What may be of correlations is far on both sides of what is likeliest.
    pairs = np.triu_indices(GROUPS, 1)
    lower, upper = structure.correlation_lower, structure.correlation_upper
    assert (lower < structure.specific_correlation)[pairs].all()
    assert (upper > structure.specific_correlation)[pairs].all()
    assert (upper - lower)[pairs].min() > 0.3
    assert (np.abs(general - psi) < 4 * error).all()
    ranks = fit.abilities.table["rank"].to_numpy()
    found = fit.abilities.table["ability"].to_numpy()
    np.testing.assert_array_equal(np.argsort(ranks), np.argsort(-found))
    assert structure.specific_correlation == pytest.approx(
        structure.specific_correlation.T
    )
    names = structure.effects[0].tolist()
    assert names[0] == "all items" and "benchmark: bench 1" in names
    assert fit.items.table.num_rows == ITEMS
    assert all(
        fit.items.table[c].null_count == 0 for c in ("difficulty", "intercept_se")
    )


@pytest.mark.slow
def test_a_saved_fit_comes_back_and_scores_new_subjects(tmp_path):
    fit = fitted()
    folder = irtjax.save(fit, tmp_path / "fit")
    names = {path.name for path in folder.iterdir()}
    assert {"group_abilities.csv", "correlations.csv", "effects.csv"} <= names
    rows = pyarrow.csv.read_csv(folder / "group_abilities.csv")
    assert rows.num_rows == SUBJECTS * GROUPS
    again = irtjax.load(folder)
    np.testing.assert_array_equal(again.structure.ability, fit.structure.ability)
    assert again.structure.groups.tolist() == fit.structure.groups.tolist()
    # Scored anew with items as known, subjects stand where the fit had them.
    whole = irtjax.score(again, drawn()[0])
    assert whole.scoring == "map"
    scored = whole.table
    general = by_subject(fit, fit.abilities.table["ability"].to_numpy())
    assert np.corrcoef(scored["ability"].to_numpy(), general)[0, 1] > 0.995
    assert "ability_bench 2_se" in scored.column_names
    # Their errors count what is not known of the scale, of a fit from disk too.
    alone = fit.with_part(dataclasses.replace(fit.structure, possible=None))
    given = irtjax.score(alone, drawn()[0]).table
    name = "ability_bench 2_se"
    more = scored[name].to_numpy() / given[name].to_numpy()
    # Forty subjects know the origin to 0.18, and an ability to 0.25 given it.
    assert more.min() > 0.98 and 1.1 < np.median(more) < 1.8
    # Those of subjects in the middle may be less: where a group's own part is nearly
    # nothing, its ability says what the general one is.
    assert scored["ability_se"].to_pylist() != given["ability_se"].to_pylist()
    with pytest.raises(ValueError, match="models with one ability: use map"):
        irtjax.score(again, drawn()[0], scoring="wle")


@pytest.mark.slow
def test_ordered_ratings_with_raters_as_a_level(tmp_path):
    table = simulated_ratings(30, 12, seed=1)
    fit = irtjax.fit(table, "multibenchmark", item_model="graded", facets=["rater"])
    assert fit.status == irtjax.Status.CONVERGED
    effects = dict(zip(*fit.structure.effects, strict=True))
    easier = effects["rater: rater 1"][1] - effects["rater: rater 0"][1]
    # Severities 1.5 apart, each over 24 items whose intercepts have an sd of 1.
    assert abs(easier - 1.5) < 3 * (2 / 24) ** 0.5
    spacing = fit.parameters.items.spacing
    # Categories are cut 2 apart at equal slopes of 1.5.
    assert np.exp(np.log(spacing).mean()) == pytest.approx(2.0, rel=0.15)
    again = irtjax.load(irtjax.save(fit, tmp_path / "fit"))
    header = pyarrow.csv.read_csv(tmp_path / "fit" / "effects.csv").column_names
    assert header[1:3] == ["log_discrimination", "intercept"]
    assert header[3:] == [f"log_spacing_{k + 1}" for k in range(spacing.shape[1])]
    np.testing.assert_array_equal(again.parameters.items.spacing, spacing)
    scored = irtjax.score(again, table).table["ability"].to_numpy()
    names = fit.abilities.table["subject"].to_pylist()
    kept = dict(zip(names, fit.abilities.table["ability"].to_pylist(), strict=True))
    mine = [kept[name] for name in table.subjects.tolist()]
    assert np.corrcoef(scored, mine)[0, 1] > 0.99


def test_scores_by_group_are_the_joint_mode():
    rng = np.random.default_rng(4)
    group = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    own = np.array([[0.5, 0.2, 0.0], [0.2, 0.6, -0.1], [0.0, -0.1, 0.3]])
    a, d = rng.uniform(0.5, 2, 8), rng.normal(size=8)
    items = LogisticItems(*(jnp.asarray(x) for x in (a, d, 0 * a, 0 * a + 1)))
    values = (rng.random((3, 8)) < 0.5).astype(np.int8)
    seen = rng.random((3, 8)) < 0.8
    data = Responses(jnp.asarray(values * seen), jnp.asarray(seen))
    found = score_groups(
        Binary(slopes="positive"), items, jnp.asarray(group), jnp.asarray(own), data
    )
    assert bool(found.converged.all())
    precision = np.linalg.inv(own + 1)

    def surprise(theta, row):
        eta = a * theta[group] + d
        sign = 2 * values[row] - 1
        return (
            np.sum(np.logaddexp(0, -sign * eta)[seen[row]])
            + 0.5 * theta @ precision @ theta
        )

    weights = np.linalg.solve(own + 1, np.ones(3))
    for row in range(3):
        best = optimize.minimize(surprise, np.zeros(3), (row,), tol=1e-10)
        np.testing.assert_allclose(found.ability[row], best.x, atol=1e-5)
        eta = a * best.x[group] + d
        right = 1 / (1 + np.exp(-eta))
        info = np.bincount(group, a**2 * right * (1 - right) * seen[row], 3)
        covariance = np.linalg.inv(precision + np.diag(info))
        np.testing.assert_allclose(
            found.error[row], np.sqrt(np.diag(covariance)), rtol=1e-4
        )
        spread = weights @ covariance @ weights + 1 - weights.sum()
        assert float(found.general_error[row]) == pytest.approx(spread**0.5, rel=1e-4)
    # One spread that may be, the likeliest in its units: the same errors.
    ones = np.ones((1, 3))
    general, by_group = errors_over_covariances(
        found, own, 1.0, Possible(own[None], np.ones(1), ones, 0 * ones)
    )
    np.testing.assert_allclose(general, found.general_error, rtol=1e-5)
    np.testing.assert_allclose(by_group, found.error, rtol=1e-5)
    # Two units that are as likely, a tenth to either side: what responses point at
    # moves by a tenth, abilities by the share of it that is not the prior's.
    units = np.array([0.9, 1.1])[:, None] * ones
    two = Possible(np.stack([own, own]), np.ones(2), units, 0 * units)
    _, wider = errors_over_covariances(found, own, 1.0, two)
    moved = np.sqrt(wider**2 - np.asarray(found.error) ** 2)
    assert (moved <= 0.1 * np.abs(found.ability) + 1e-6).all() and moved.max() > 0.005


def small_table(items=12):
    rng = np.random.default_rng(1)
    theta, d = rng.normal(size=(15, 1)), rng.normal(size=items)
    right = rng.random((15, items)) < 1 / (1 + np.exp(-theta - d))
    names = [f"b{k % 2}/q{k // 2}" for k in range(items)]
    return irtjax.ResponseTable.from_arrays(
        right, items=names, benchmark=[name[:2] for name in names]
    )


@pytest.mark.slow
def test_a_sampled_fit_says_how_far_to_trust_it(tmp_path):
    method = NUTS(num_warmup=60, num_draws=40, num_chains=2)
    table, phases = small_table(), []
    fit = irtjax.fit(
        table,
        "hierarchical",
        method,
        key=jax.random.key(2),
        facets=("stem",),
        progress=lambda phase, *rest: phases.append(phase),
    )
    assert {"fit", "warm-up", "finished"} <= set(phases)
    assert fit.status != irtjax.Status.CONVERGED  # Of so few draws.
    assert any("draws" in text for text in fit.warnings)
    draws = fit.structure.draws
    assert draws.values["ability"].shape == (2, 40, 15, 1)
    mean = np.asarray(draws.values["ability"]).mean((0, 1))[:, 0]
    theta = dict(zip(table.subjects.tolist(), mean, strict=True))
    named = fit.abilities.table.to_pydict()
    for name, ability in zip(named["subject"], named["ability"], strict=True):
        assert ability == pytest.approx(theta[name], abs=1e-9)
    assert np.isfinite([fit.log_likelihood, fit.aic, fit.bic, fit.residual]).all()
    effects = fit.structure.effects[0].tolist()
    assert {"benchmark: b0", "stem: q3"} <= set(effects)
    labels = draw_labels(fit)
    for variable, values in draws.values.items():
        axes = labels["dims"].get(variable, [])
        sizes = [len(labels["coords"][axis]) for axis in axes]
        assert values.shape[2:] == tuple(sizes), variable
    assert labels["coords"]["facet"].tolist() == ["benchmark", "stem"]
    again = irtjax.load(irtjax.save(fit, tmp_path / "fit"))
    assert again.structure.draws is None
    assert again.structure.facets.tolist() == ["benchmark", "stem"]
    with pytest.raises(ValueError, match="the fit has no draws: fit with method='nu"):
        draw_labels(again)


@pytest.mark.slow
def test_draws_in_a_file_bear_the_names_of_the_table(tmp_path):
    arviz = pytest.importorskip("arviz", reason="needs the extra irtjax[arviz]")
    pytest.importorskip("h5netcdf", reason="needs the extra irtjax[arviz]")
    rng = np.random.default_rng(2)
    subjects = ["gpt-4", "claude", "llama", "a model"]  # In no order of any kind.
    items = [f"{name}/q{k}" for name in ("mmlu", "arc", "gsm8k") for k in range(2)]
    score = 1 / (1 + np.exp(-rng.normal(size=(4, 1)) - rng.normal(size=(4, 6))))
    rows = {
        "model": np.repeat(subjects, 6).tolist(),
        "item": items * 4,
        "task": [name.split("/")[0] for name in items] * 4,
        "score": score.ravel().tolist(),
    }
    pyarrow.csv.write_csv(pa.table(rows), tmp_path / "long.csv")
    words = ["fit", str(tmp_path / "long.csv"), "--out", str(tmp_path / "out")]
    words += ["--model", "multibenchmark", "--benchmark", "task", "--method", "nuts"]
    words += ["--chains", "2", "--draws", "8", "--warmup", "20", "--no-figures"]
    done = CliRunner().invoke(app, [*words, "--quiet", "--save-draws"])
    assert done.exit_code == 0, done.stderr
    drawn_values = arviz.from_netcdf(tmp_path / "out" / "draws.nc")
    means = drawn_values.posterior.mean(("chain", "draw"))
    # The tables are made of the same draws, and name their rows themselves.
    read = lambda name: pyarrow.csv.read_csv(tmp_path / "out" / name).to_pylist()
    for row in read("group_abilities.csv"):
        found = means["ability"].sel(subject=row["subject"], group=row["group"])
        assert float(found) == pytest.approx(row["ability"])
    for row in read("abilities.csv"):
        found = means["general_mean"].sel(subject=row["subject"])
        assert float(found) == pytest.approx(row["ability"])
    for row in read("items.csv"):
        found = means["coordinates"].sel(item=row["item"])
        assert float(found.sel(coordinate="intercept")) == pytest.approx(
            row["intercept"]
        )
        assert float(found.sel(coordinate="log_dispersion")) == pytest.approx(
            np.log(row["dispersion"])
        )
    for row in read("effects.csv"):
        found = means["effects"].sel(effect=row.pop("effect"))
        assert {k: float(found.sel(coordinate=k)) for k in row} == pytest.approx(row)
    assert means["specific_covariance"].dims == ("group", "other_group")
    names = set(arviz.summary(drawn_values, kind="stats").index)
    assert {"ability[gpt-4, arc]", "component_sd[benchmark, intercept]"} <= names


@pytest.mark.slow
def test_a_gaussian_in_place_of_draws_says_how_near_it_is():
    method = Variational(num_steps=150)
    fit = irtjax.fit(small_table(), "2pl", method, key=jax.random.key(1))
    assert fit.options["method"] == "vi" and fit.structure.draws is None
    # Mean field, far too few steps: errors that cannot be trusted, and it says so.
    assert any("Pareto k" in text or "not converged" in text for text in fit.warnings)
    # Its own steps and their bound, not those of the fit that it begins at.
    assert fit.num_steps == len(fit.trace) == 150
    short = irtjax.fit(small_table(), "2pl", "vi", key=jax.random.key(1), max_steps=20)
    assert short.num_steps == short.options["max_steps"] == 20
    if short.status != 0:
        assert any("such as max_steps=40" in text for text in short.warnings)
    table = fit.abilities.table
    order = np.corrcoef(table["ability"].to_numpy(), table["accuracy"].to_numpy())
    assert order[0, 1] > 0.9


@pytest.mark.slow
def test_the_fast_route_is_near_the_posterior():
    table = drawn()[0]
    method = NUTS(num_warmup=500, num_draws=500, num_chains=4)
    full, fast = (
        irtjax.fit(table, "multibenchmark", how) for how in (method, Laplace(order=3))
    )
    ability = [by_subject(f, f.structure.ability) for f in (full, fast)]
    error = [by_subject(f, f.structure.error) for f in (full, fast)]
    gap = (ability[1] - ability[0]) / error[0]
    # Empirical Bayes takes variances as known: means within a third of an error,
    # errors within a quarter.
    assert np.sqrt(np.mean(gap**2)) < 0.5
    assert np.median(error[1] / error[0]) == pytest.approx(1, abs=0.25)
    # Scores on these items depend on the responses most: closer than abilities.
    score, spread = (
        [f.abilities.table[name].to_numpy() for f in (full, fast)]
        for name in ("expected_score", "expected_score_se")
    )
    gap = (score[1] - score[0]) / spread[0]
    assert np.sqrt(np.mean(gap**2)) < 0.2
    # The error of a standard deviation of 400 effective draws is 3.5 %.
    assert np.median(spread[1] / spread[0]) == pytest.approx(1, abs=0.1)


def test_what_cannot_be_done_is_said():
    table = small_table()
    one = dataclasses.replace(table, item_facets={})
    with pytest.raises(ValueError, match="two or more benchmarks or metrics"):
        irtjax.fit(one, "multibenchmark")
    with pytest.raises(ValueError, match="estimate the priors of items"):
        irtjax.fit(table, "hierarchical", priors=None)
    with pytest.raises(ValueError, match="no facet 'domain' of items"):
        irtjax.fit(table, "hierarchical", facets=("domain",))
    with pytest.raises(ValueError, match="covariate 'words' needs one finite number"):
        irtjax.fit(table, "hierarchical", item_covariates={"words": np.ones(3)})
    with pytest.raises(ValueError, match="item_model requires"):
        irtjax.fit(table, "2pl", "laplace", item_model="3pl")
    prior = irtjax.models.priors.Normal(0.0, 1.0)
    with pytest.raises(ValueError, match="no parameter 'slope' in this model"):
        irtjax.fit(table, "2pl", "laplace", priors={"slope": prior})
    with pytest.raises(ValueError, match="facets requires a multilevel model"):
        irtjax.fit(table, "2pl", "em", facets=("stem",))
    with pytest.raises(ValueError, match="hyperpriors requires a multilevel model"):
        irtjax.fit(table, "2pl", "em", hyperpriors=Hyperpriors(scale=0.5))
    with pytest.raises(ValueError, match=r"hyperpriors is a dict: give irtjax\.Hyper"):
        irtjax.fit(table, "hierarchical", hyperpriors={"scale": 0.5})
    with pytest.raises(ValueError, match="scale=0; it needs a number above 0"):
        Hyperpriors(scale=0)


@pytest.mark.slow
def test_the_model_of_a_fit_has_the_priors_that_were_given(tmp_path):
    given = {"intercept": Normal(0.0, 2.0)}
    fit = irtjax.fit(small_table(), "rasch", "laplace", priors=given, max_steps=1)
    assert fit.model.priors == given and fit.model.name == "rasch"
    assert irtjax.load(irtjax.save(fit, tmp_path / "fit")).model.priors == given


@pytest.mark.slow
def test_priors_of_what_is_learned_can_be_given(tmp_path):
    table, scale = small_table(), 0.05
    # Near 0 EM crawls, and accelerated it comes to rest some percent too soon.
    method = Laplace(order=5, tolerance=1e-4, depth=0)
    door = functools.partial(
        irtjax.fit, table, "hierarchical", method, item_model="rasch"
    )
    tight = door(hyperpriors=Hyperpriors(general=scale))
    # Abilities were drawn with a standard deviation of 1. Near 0 the log-likelihood
    # rises by D tau^2, D half of the sum over subjects of r^2 - sum of p (1 - p) with r
    # their sums of residuals: the mode of log tau is scale / sqrt(1 - 2 D scale^2).
    chance = table.item_accuracy()
    residual = (table.values - chance).sum(axis=1)
    rise = 0.5 * np.sum(residual**2 - np.sum(chance * (1 - chance)))
    expected = scale / np.sqrt(1 - 2 * rise * scale**2)
    # The next term of the series is about D^2 tau^4, a hundredth.
    assert tight.structure.general_variance**0.5 == pytest.approx(expected, rel=0.05)
    usual = door()
    assert usual.structure.general_variance > 0.25
    again = irtjax.load(irtjax.save(tight, tmp_path / "fit"))
    told = again.options["hyperpriors"]
    assert told["general"] == scale and told["component"] == Hyperpriors().component
    assert "hyperpriors" not in usual.options


@pytest.mark.slow
@pytest.mark.parametrize("family", ["rasch", "2pl"])
def test_benchmarks_spread_as_widely_as_they_do(family, tmp_path):
    rng, true = np.random.default_rng(2), np.array([0.3, 0.7, 1.5])
    subjects, items = 60, 180
    benchmark = np.arange(items) % 3
    theta, log_a = rng.normal(size=(subjects, 1)), 0.3 * rng.normal(size=items)
    log_a *= family == "2pl"
    d = np.array([-0.5, 0, 0.5])[benchmark] + true[benchmark] * rng.normal(size=items)
    right = rng.random((subjects, items)) < special.expit(np.exp(log_a) * theta + d)
    names = np.array(["a", "b", "c"])
    table = irtjax.ResponseTable.from_arrays(
        right.astype(np.int8), benchmark=names[benchmark]
    )
    fit = irtjax.fit(table, "hierarchical", item_model=family, sd_by_benchmark=True)
    assert fit.status == irtjax.Status.CONVERGED
    folder = irtjax.save(fit, tmp_path / "fit")
    spreads = pyarrow.csv.read_csv(folder / "variance_components.csv")
    parts = ["benchmark", "items", "items of a", "items of b", "items of c"]
    assert spreads["of"].to_pylist() == parts
    found = spreads["intercept"].to_numpy()[2:]
    # An intercept of 60 answers has an error of 0.3 or so, and 60 of them tell a
    # variance s^2 to (s^2 + 0.09) sqrt(2 / 60): four of these, in log s.
    error = (1 + 0.09 / true**2) / np.sqrt(2 * 60)
    assert (np.abs(np.log(found / true)) < 4 * error).all()
    # Those of all items are the geometric mean.
    columns = ["log_discrimination", "intercept"][family == "rasch" :]
    assert spreads.column_names == ["of", *columns]
    for column in columns:
        each = spreads[column].to_numpy()[1:]
        assert each[0] == pytest.approx(np.exp(np.log(each[1:]).mean()))
    again = irtjax.load(folder)
    np.testing.assert_array_equal(
        again.structure.standard_deviations[1], fit.structure.standard_deviations[1]
    )
    assert again.options["sd_by_benchmark"] is True


@pytest.mark.slow
def test_spreads_of_given_priors_are_blank(tmp_path):
    table = drawn()[0]
    fit = irtjax.fit(
        table,
        "rasch",
        Variational(num_steps=20),
        priors={"intercept": Normal(0.0, 2.0)},
    )
    folder = irtjax.save(fit, tmp_path / "fit")
    spreads = pyarrow.csv.read_csv(folder / "variance_components.csv").to_pydict()
    assert spreads == {"of": ["benchmark", "items"], "intercept": [None, None]}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_units_pull_at_effects_in_single_precision_too(dtype):
    # Two benchmarks of these sizes add up to all items, exactly so in float32.
    sizes = [30, 50]
    table = irtjax.ResponseTable.from_arrays(
        np.random.default_rng(0).integers(0, 2, (6, sum(sizes))),
        benchmark=np.repeat(["a", "b"], sizes),
    )
    family = Binary(slopes="positive")
    model = MultiBenchmark().lay_out(table, family, dtype).model
    problem = MultilevelProblem.create(model, table.responses(dtype))
    components = start_components(model, jnp.zeros((80, 2), dtype))
    slope, curvature = jax.jit(pull_of_priors)(model, problem.distinct, components)
    # Prior precisions: 1 / 25 of the mean of all items, those of exp(-0.5) of levels.
    wanted = np.exp(1.0) * np.array([[0.5, -0.5], [-0.5, 0.5]]) + 0.25 / 25
    np.testing.assert_allclose(curvature, wanted, rtol=0.02)
    assert slope.dtype == dtype and np.isfinite(slope).all()


def test_spreads_by_benchmark_need_several():
    table = drawn()[0]
    one = irtjax.ResponseTable.from_arrays(table.values)
    with pytest.raises(ValueError, match="items of two or more benchmarks"):
        irtjax.fit(one, "hierarchical", sd_by_benchmark=True)
    with pytest.raises(ValueError, match="sd_by_benchmark requires a multilevel"):
        irtjax.fit(table, "2pl", "em", sd_by_benchmark=True)


@pytest.mark.slow
def test_the_command_line(tmp_path):
    table = drawn()[0]
    rows = pa.table(
        {
            "model": np.repeat(table.subjects, table.num_items).tolist(),
            "item": np.tile(table.items, table.num_subjects).tolist(),
            "benchmark": np.tile(table.benchmarks, table.num_subjects).tolist(),
            "score": table.values.ravel().tolist(),
        }
    )
    pyarrow.csv.write_csv(rows, tmp_path / "long.csv")
    labels = pa.table(
        {
            "item": table.items.tolist(),
            "domain": table.item_facets["domain"].tolist(),
        }
    )
    pyarrow.csv.write_csv(labels, tmp_path / "items.csv")
    run = lambda *words: CliRunner().invoke(app, [str(w) for w in words])
    command = ("fit", tmp_path / "long.csv", "--out", tmp_path / "out", "--json")
    done = run(
        *command,
        *("--model", "multibenchmark", "--benchmark", "benchmark", "--no-figures"),
        *("--facets", "domain", "--item-table", tmp_path / "items.csv"),
        *("--max-steps", 60),
    )
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["options"]["facets"] == ["domain"]
    assert content["log_likelihood"] == pytest.approx(fitted().log_likelihood)
    effects = pyarrow.csv.read_csv(tmp_path / "out" / "effects.csv")
    assert "domain: d4" in effects["effect"].to_pylist()
    assert (tmp_path / "out" / "correlations.csv").is_file()
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written <= {*FIT_FILES, *STRUCTURE_FILES}
    done = run(*command, "--resume")
    assert done.exit_code == 2 and "--resume requires --method nuts" in done.stderr


def test_options_of_plain_fits_are_refused():
    table = drawn()[0]
    for option in ({"start": "spectral"}, {"standard_errors": "none"}):
        with pytest.raises(
            ValueError, match=f"{next(iter(option))} requires method em"
        ):
            irtjax.fit(table, "multibenchmark", **option)


@pytest.mark.slow
def test_hundreds_of_subjects_are_fitted_by_default():
    """The order of the quadrature follows the number of subjects."""
    rng = np.random.default_rng(0)
    ability, easiness = rng.normal(size=(220, 1)), rng.normal(size=(1, 24))
    right = rng.random((220, 24)) < 1 / (1 + np.exp(-ability - easiness))
    fit = irtjax.fit(irtjax.ResponseTable.from_arrays(right), "hierarchical")
    assert fit.status == irtjax.Status.CONVERGED
    rows = fit.abilities.table.to_pydict()
    found = dict(zip(rows["subject"], rows["ability"], strict=True))
    values = [found[name] for name in fit.subject_names.tolist()]
    # Two dozen answers of discrimination 1: a reliability of about 0.8.
    assert np.corrcoef(values, ability[:, 0])[0, 1] > 0.85
