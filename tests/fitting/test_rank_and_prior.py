"""Factor models whose number of factors, or prior of slopes, the data choose."""

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.estimators.driver import run_jit
from irtjax.estimators.folds import folds_of
from irtjax.estimators.joint.gradient import Gradient
from irtjax.estimators.noise_rank import NoiseRank, fit_factors
from irtjax.estimators.slope_prior import PriorPath, prior_path
from irtjax.fitting import best_start, rank_and_prior, several_abilities
from irtjax.fitting.bootstrap import bootstrap
from irtjax.fitting.defaults import choose
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.priors import Normal
from irtjax.numerics.progress import watching
from tests.fitting import test_factors

SUBJECTS, ITEMS, MOST = 150, 24, 3
#: What is not tested here is left out.
LIGHT: dict[str, Any] = {"standard_errors": "none", "rotation": "none"}


@functools.cache
def table_of(factors: int = 2) -> irtjax.ResponseTable:
    """Items of simple structure on so many factors, a tenth of the cells missing."""
    rng = np.random.default_rng(5)
    slopes = np.zeros((ITEMS, max(factors, 1)))
    if factors:
        slopes[np.arange(ITEMS), np.arange(ITEMS) % factors] = 2.0
    eta = rng.normal(size=(SUBJECTS, slopes.shape[1])) @ slopes.T
    right = (rng.random(eta.shape) < expit(eta)).astype(np.int8)
    return irtjax.ResponseTable.from_arrays(right, observed=rng.random(eta.shape) < 0.9)


def fitted(planted: int = 2, **settings: Any):
    settings = {"standard_errors": "none", **settings}
    return irtjax.fit(table_of(planted), "factor", "mm", **settings)


@functools.cache
def of_noise():
    return fitted(factors=MOST, penalty="noise")


@functools.cache
def of_held_out():
    return fitted(factors=2, priors="held_out")


def fitted_without_search(monkeypatch, **proof: Any):
    """The fit of data that other tests compile for, after a search that found two."""
    proof = {"rank": 2, "certificate": 1.0001, "slope_sd": 0.06, **proof}
    found = NoiseRank(**{"used": 2, **proof}, log_likelihood=-9000.0, objective=-9900.0)
    monkeypatch.setattr(several_abilities, "find_rank", lambda *given: found)
    table = test_factors.drawn()[0]
    model = Factor(factors=3, rotation="none")
    return irtjax.fit(table, model, "mm", penalty="noise", standard_errors="none")


def test_the_record_is_that_of_the_refit(monkeypatch):
    found = fitted_without_search(monkeypatch)
    table = test_factors.drawn()[0]
    usual = irtjax.fit(table, "factor", "mm", factors=2, **LIGHT)
    own = {k: v for k, v in found.options.items() if k != "noise"}
    # Nothing that refits by the record searches again.
    assert own == usual.options and own["penalty"] == 1.0 and own["factors"] == 2
    assert found.options["noise"]["most"] == 3 and found.options["noise"]["rank"] == 2
    assert found.log_likelihood == usual.log_likelihood
    assert found.factors.certificate == 1.0001 and usual.factors.certificate is None
    assert found.warnings == usual.warnings
    assert found.notes[0] == (
        "the penalty of noise keeps 2 of 3 factors (q = 1.000: the best fit of any"
        " number of factors); log-likelihood -9,000.0, and"
        f" {usual.log_likelihood:,.1f} refitted without that penalty"
    )


def test_searches_and_starts_have_the_key_of_the_fit(monkeypatch):
    kept = []

    def stop(*given, **rest):
        kept.append(rest.get("key", given[-1]))
        raise StopIteration

    # Each ends where it would first use the key.
    monkeypatch.setattr(rank_and_prior, "rank_above_noise", stop)
    folds = lambda table, key, **rest: stop(key)
    monkeypatch.setattr(rank_and_prior, "folds_of", folds)
    monkeypatch.setattr(best_start, "random_starts", stop)
    table, key = test_factors.drawn()[0], jax.random.key(8)
    for settings in ({"penalty": "noise"}, {"priors": "held_out"}, {"positive": True}):
        for given in (key, None):
            with pytest.raises(StopIteration):
                irtjax.fit(table, "factor", "mm", factors=2, key=given, **settings)
    assert kept == [key, jax.random.key(0)] * 3


@pytest.mark.parametrize(("rank", "cure"), [(2, "local maximum"), (3, "raise factors")])
def test_a_fit_that_is_not_proven_is_warned_of(monkeypatch, rank, cure):
    made = rank_and_prior.with_rank
    changed = lambda task, found, most: made(
        task, found._replace(rank=rank, used=rank), most
    )
    monkeypatch.setattr(several_abilities, "with_rank", changed)
    fit = fitted_without_search(monkeypatch, certificate=1.05)
    assert "q = 1.050, 1 at the best" in fit.warnings[0]
    assert fit.warnings[0].endswith(cure) and "best fit of any" not in fit.notes[0]


@pytest.mark.slow
def test_the_fit_is_that_of_the_factors_above_noise():
    found, usual = of_noise(), fitted(factors=2)
    for one, other in zip(
        jax.tree.leaves(found.parameters),
        jax.tree.leaves(usual.parameters),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    noise = found.options["noise"]
    assert noise["most"] == MOST and noise["rank"] == 2
    assert noise["certificate"] == pytest.approx(1, abs=2e-3)
    # The penalty of noise is stronger, so its fit has a lower likelihood.
    assert noise["log_likelihood"] < found.log_likelihood
    assert noise["objective"] < noise["log_likelihood"]
    assert found.factors.certificate == noise["certificate"]


def test_a_saved_fit_keeps_its_certificate(tmp_path, monkeypatch):
    fit = fitted_without_search(monkeypatch)
    irtjax.save(fit, tmp_path / "fit")
    found = irtjax.load(tmp_path / "fit")
    assert found.factors.certificate == fit.factors.certificate
    assert found.options["noise"] == fit.options["noise"]


@pytest.mark.slow
@pytest.mark.parametrize("make", [of_noise, of_held_out])
def test_scores_and_replicates_are_of_the_found_model(make):
    fit, table = make(), table_of()
    scores = irtjax.score(fit, table).table
    assert scores.num_rows == SUBJECTS
    data = table.responses(jnp.float64)
    problem = Problem.create(fit.model, data)
    parts = jax.tree.map(jnp.asarray, fit.parameters)
    start = Start(parts.items, parts.theta, parts.population)
    method = irtjax.MM(penalty=fit.options["penalty"])
    given = {"key": jax.random.key(0), "num_replicates": 3}
    found = bootstrap(problem, method, start, **given)
    assert found.ability.shape == (3, SUBJECTS, 2)
    assert bool(np.isfinite(found.ability).all())
    # Weights of 1 leave the estimate where it is.
    again = run_jit(problem, method, start, max_steps=500)
    eta = lambda x: x.theta @ x.items.discrimination.T + x.items.intercept
    np.testing.assert_allclose(eta(again.parameters), eta(parts), atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "name"),
    [({"penalty": "noise"}, "pass"), ({"priors": "held_out"}, "prior")],
)
def test_a_watcher_sees_the_share_of_a_search(settings, name):
    seen = []
    with watching(lambda share, part: seen.append((share, part))):
        fitted(factors=2, **settings)
    shares = [share for share, part in seen if part.startswith(name)]
    # Both end before the last part where more would not help.
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] > 0.3


@pytest.mark.slow
def test_observed_cells_alone_have_the_same_rank_and_prior(monkeypatch):
    monkeypatch.setattr("irtjax.estimators.joint.mm.FEW_OBSERVED", 1.0)
    dense = table_of()
    few = dense.replace(values=dense.cells, observed=None)
    settings = {"factors": MOST, "penalty": "noise", "priors": "held_out"}
    found, usual = (
        irtjax.fit(x, "factor", "mm", **settings, standard_errors="none")
        for x in (few, dense)
    )
    assert found.options["storage"] == "cells"
    assert found.options["noise"]["rank"] == usual.options["noise"]["rank"] == 2
    assert found.options["prior_scale"]["slope_sd"] == pytest.approx(
        usual.options["prior_scale"]["slope_sd"]
    )
    # Noise is drawn by cell, so s differs by the draws.
    one, other = (x.options["noise"]["slope_sd"] for x in (found, usual))
    assert one == pytest.approx(other, rel=0.1)


@pytest.mark.slow
def test_no_factor_above_noise_is_refused():
    message = r"no factor is above noise \(0 of 3\): use a model with one ability"
    with pytest.raises(ValueError, match=message):
        fitted(0, factors=MOST, penalty="noise")


@pytest.mark.slow
def test_too_small_a_largest_number_is_warned_of():
    fit = fitted(factors=1, penalty="noise")
    assert fit.options["noise"]["certificate"] > 1.1 and fit.factors is None
    (warning,) = [x for x in fit.warnings if "penalty of noise" in x]
    assert warning.endswith("raise factors")
    assert not any("best fit of any number" in x for x in fit.notes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "em"}, "penalty requires method mm or gradient; em does not"),
        ({"positive": True}, "slopes of any sign: leave positive out"),
        ({"loadings": np.ones((ITEMS, MOST))}, "any sign: leave loadings out"),
        ({"target": np.zeros((ITEMS, MOST))}, "any sign: leave target out"),
        ({"lasso": 1.0}, "does not accept a lasso: leave lasso out"),
        ({"link": "probit"}, "right or wrong, with the logit link"),
        ({"item_model": "graded"}, "right or wrong, with the logit link"),
        ({"priors": {"discrimination": Normal(0.0, 2.0)}}, "leave priors out"),
        ({"penalty": "else"}, "penalty 'else': give a number of at least 0"),
        ({"model": "2pl", "factors": None}, "penalty 'noise': give a number of at"),
        ({"factors": ITEMS}, "24 factors of 150 subjects and 24 items: give at most"),
    ],
)
def test_where_noise_finds_nothing_it_is_refused(settings, message):
    settings = {"factors": MOST, "penalty": "noise", **settings}
    given = settings.pop("model", "factor"), settings.pop("method", "mm")
    settings = {k: v for k, v in settings.items() if v is not None}
    if "target" in settings or "loadings" in settings:
        del settings["factors"]
    with pytest.raises(ValueError, match=message) as refused:
        irtjax.fit(table_of(), *given, **settings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", [irtjax.MM, Gradient])
def test_a_method_object_has_a_number_for_its_penalty(kind):
    with pytest.raises(Exception, match="penalty|noise"):
        kind(penalty="noise")


def test_other_responses_are_refused():
    rng = np.random.default_rng(0)
    ratings = irtjax.ResponseTable.from_arrays(rng.integers(0, 4, (30, 8)))
    for settings in ({"penalty": "noise"}, {"priors": "held_out"}):
        with pytest.raises(ValueError, match="responses that are right or wrong"):
            irtjax.fit(ratings, "factor", "mm", factors=2, **settings)


@pytest.mark.parametrize(
    ("model", "method", "settings", "message"),
    [
        ("factor", "gvem", {}, "priors 'held_out' requires method='mm', not 'gvem'"),
        ("factor", "mm", {"lasso": 1.0}, "does not accept a lasso: leave lasso out"),
        ("factor", "mm", {"penalty": 0.0}, "no effect with penalty 0: leave penalty"),
        ("2pl", "mm", {}, "priors 'held_out' requires the model factor and method"),
        ("2pl", "laplace", {}, "omit priors, or name those to fix"),
        ("factor", "mm", {"priors": "other"}, "neither 'weak', 'none', 'held_out' nor"),
    ],
)
def test_held_out_priors_are_of_factor_models_by_mm(model, method, settings, message):
    settings = {"priors": "held_out", **settings}
    with pytest.raises(ValueError, match=message) as refused:
        irtjax.fit(table_of(), model, method, **settings)
    assert "\n" not in str(refused.value)


def test_auto_is_the_method_that_finds_what_is_left_to_the_data():
    for settings in ({"penalty": "noise"}, {"priors": "held_out"}):
        chosen = choose(table_of(), "factor", "auto", {"factors": 2, **settings})
        assert chosen.method == "mm" and "requires it" in chosen.reason


@pytest.mark.slow
def test_the_prior_is_the_one_that_predicts_held_out_responses_best():
    fit = of_held_out()
    record = fit.options["prior_scale"]
    rows = {row["slope_sd"]: row for row in record["path"]}
    best = record["slope_sd"]
    assert rows[best]["held_out"] == max(row["held_out"] for row in rows.values())
    assert rows[best]["loss"] == 0
    close = [s for s, row in rows.items() if row["loss"] <= row["loss_se"]]
    assert record["one_standard_error"] == min(close)
    assert fit.options["priors"]["discrimination"] == f"Normal(mean=0.0, sd={best})"
    assert fit.model.priors["discrimination"] == Normal(0.0, best)
    note = f"slopes have the prior N(0, {best:g}^2), chosen by held-out responses"
    assert any(x.startswith(note) for x in fit.notes)
    # It is the fit with that prior, whatever its start.
    prior = {"discrimination": Normal(0.0, best), "intercept": Normal(0.0, 3.0)}
    usual = fitted(factors=2, priors=prior)
    assert fit.log_likelihood == pytest.approx(usual.log_likelihood, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("cells", [False, True])
def test_fits_of_the_path_are_those_from_other_starts(cells):
    table, dtype = table_of(), jnp.zeros(()).dtype
    if cells:
        table = table.replace(values=table.cells, observed=None)
    folds = folds_of(table, jax.random.key(0), what="a test", cells=cells)
    problem = Problem.create(factor_model(Factor(2)), folds.whole)
    scales = (1.4, 1.0, 0.5)
    found = prior_path(problem, irtjax.MM(), folds, dtype, scales=scales)
    for scale in scales:
        column = int(np.flatnonzero(found.slope_sd == scale)[0])
        kept = folds.without(2)
        fit = fit_factors(kept, 2, 2, dtype, scale)
        height = folds.judge(2, kept, fit).log_likelihood
        assert found.height[2, column] == pytest.approx(height, abs=2e-4)


@pytest.mark.slow
def test_the_path_ends_where_predictions_are_worse():
    rows = of_held_out().options["prior_scale"]["path"]
    scales = [row["slope_sd"] for row in rows]
    assert scales == sorted(scales) and scales[-1] == 4.0 and len(scales) < 15
    assert all(row["loss"] > row["loss_se"] for row in rows[:2])


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"factors": 1}, {"positive": True}])
def test_one_factor_and_positive_slopes_have_a_path_too(settings):
    fit = fitted(1 if "factors" in settings else 2, priors="held_out", **settings)
    prior = fit.model.priors["discrimination"]
    assert prior == Normal(0.0, fit.options["prior_scale"]["slope_sd"])
    assert fit.status is irtjax.Status.CONVERGED


@pytest.mark.parametrize(("best", "at_edge"), [(0, True), (1, False), (2, True)])
def test_the_best_prior_at_the_end_is_warned_of(monkeypatch, best, at_edge):
    height = np.full((5, 3), -0.6) + 1e-3 * np.arange(5)[:, None]
    height[:, best] += 0.1
    given = test_factors.drawn()[0], "factor", "mm"
    settings: dict[str, Any] = {"factors": 2, **LIGHT}
    start = irtjax.fit(*given, **settings)
    items = jax.tree.map(jnp.asarray, start.parameters.items)
    first = Start(items, jnp.asarray(start.parameters.theta))
    path = PriorPath(np.array([0.5, 1.0, 2.0]), height, first)
    monkeypatch.setattr(rank_and_prior, "_path_of", lambda *given: path)
    fit = irtjax.fit(*given, **settings, priors="held_out")
    warned = [x for x in fit.warnings if "best standard deviation of slopes" in x]
    assert bool(warned) == at_edge
    assert fit.options["prior_scale"]["slope_sd"] == path.slope_sd[best]


@pytest.mark.slow
def test_both_on_the_command_line(tmp_path):
    table = table_of()
    lines = ["subject," + ",".join(table.items)]
    for subject, row in zip(table.subjects, table.values, strict=True):
        lines.append(f"{subject}," + ",".join(map(str, row)))
    (tmp_path / "wide.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["fit", str(tmp_path / "wide.csv"), "--out", str(tmp_path / "fit")]
    command += ["--model", "factor", "--method", "mm", "--factors", "3"]
    command += ["--penalty", "noise", "--priors", "held_out", "--no-figures"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    shown = " ".join(done.output.split())
    assert "the penalty of noise keeps 2 of 3 factors" in shown
    assert "chosen by held-out responses" in shown
    options = json.loads((tmp_path / "fit" / "fit.json").read_text())["options"]
    assert options["noise"]["rank"] == 2 and options["factors"] == 2
    assert options["prior_scale"]["path"]


@pytest.mark.parametrize(("given", "value"), [("noise", "noise"), ("0.5", 0.5)])
def test_the_option_of_the_penalty_is_read(given, value):
    from irtjax.cli.fit_options import FitOptions

    settings, _ = FitOptions(penalty=given).split()
    assert settings == {"penalty": value}
    with pytest.raises(ValueError, match="'loud' is neither a number nor noise"):
        FitOptions(penalty="loud").split()
