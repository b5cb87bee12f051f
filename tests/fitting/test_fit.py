"""The friendly door: what it refuses, what it chooses, and what comes out."""

import dataclasses
import time

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import irtjax
from irtjax._types import Status
from irtjax.data.table import ResponseTable
from irtjax.estimators.catalogue import METHODS
from irtjax.estimators.marginal.em import EM
from irtjax.fitting.defaults import choose
from irtjax.fitting.resolve import (
    check_data,
    make_method,
    make_model,
    weighted_priors,
)
from irtjax.likelihood.problem import Start
from irtjax.models import catalogue
from irtjax.models.priors import Normal
from irtjax.numerics.progress import watching
from tests.tables import case, draw, grid_fit, true_items

START = Start(true_items(catalogue.two_parameter()))
TABLE = ResponseTable.from_arrays([[0, 1, 1], [1, 0, 1], [1, 1, 0]])


def _table(name: str = "2pl") -> ResponseTable:
    data = case(name).data
    return ResponseTable.from_arrays(
        np.asarray(data.values), observed=np.asarray(data.observed)
    )


@pytest.fixture(scope="module")
def calibration():
    return irtjax.fit(_table())


def test_it_is_the_fit_of_the_parts(calibration):
    # Subjects may be sorted inside; the optimum is the same, to the tolerance of 1e-4
    # standard errors (of 0.1 to 1).
    assert calibration.status is Status.CONVERGED
    expected = grid_fit("2pl", "em")
    chex.assert_trees_all_close(
        calibration.parameters.items, expected.parameters.items, atol=1e-3
    )
    assert calibration.log_likelihood == pytest.approx(
        float(expected.log_lik), abs=1e-3
    )
    assert calibration.resolution.ratio <= 1
    assert calibration.num_steps == len(calibration.trace)
    assert calibration.timings.keys() >= {"read", "compile", "run", "start"}
    # Five items leave some subjects all right or all wrong; nothing else is amiss.
    assert all(" subjects: all " in text for text in calibration.warnings)


def test_progress_is_reported_and_changes_nothing(calibration):
    lines, shares = [], []
    note = lambda *args: lines.append(args)
    with watching(lambda *share: shares.append((lines[-1][0], *share))):
        other = irtjax.fit(_table(), standard_errors="none", progress=note)
    np.testing.assert_array_equal(other.trace, calibration.trace)
    chex.assert_trees_all_equal(other.parameters.items, calibration.parameters.items)
    fits = [line for line in lines if line[0] == "fit"]
    steps = [line[1] for line in fits]
    assert steps[0] == 0  # The phase begins before the first steps are computed.
    assert shares[0] == ("fit", 0.0, "fit")
    passes = [(share, name) for phase, share, name in shares if phase == "scores"]
    assert passes == [
        *((0.0, "pass 1 of 2"), (0.5, "pass 2 of 2"), (1.0, "pass 2 of 2")),
        (None, ""),
    ]
    assert steps == sorted(steps) and steps[-1] == calibration.num_steps
    assert fits[-1][2] == pytest.approx(calibration.trace[-1])
    phases = {"fit", "standard errors", "scores", "tables"}
    assert {line[0] for line in lines} == phases
    assert not np.any(np.diff([line[4] for line in lines]) < 0)


def test_one_step_is_said_not_to_be_enough():
    short = irtjax.fit(_table(), standard_errors="none", max_steps=2)
    assert short.status is Status.MAX_STEPS
    assert "stopped at the step limit" in short.warnings[0]


def test_nodes_that_are_too_wide_are_said():
    model = catalogue.two_parameter(None)
    steep = true_items(model)._replace(discrimination=jnp.full(6, 4.0))
    rng = np.random.default_rng(0)
    values = draw("2pl", steep, rng.standard_normal(240), rng)
    coarse = EM(jnp.linspace(-6, 6, 13), jnp.asarray(1e-4))
    fit = irtjax.fit(
        ResponseTable.from_arrays(values), model, coarse, standard_errors="none"
    )
    assert fit.resolution.ratio > 1
    assert fit.warnings[0].startswith("quadrature nodes are too wide: 13 nodes")


def test_an_unidentified_item_has_flags_and_no_errors():
    # Plain maximum likelihood with an item that everyone solves.
    values = np.asarray(case("2pl").data.values).copy()
    observed = np.asarray(case("2pl").data.observed)
    values[:, 0] = 1
    table = ResponseTable.from_arrays(values * observed, observed=observed)
    fit = irtjax.fit(table, "2pl", priors=None, max_steps=60)
    found = fit.items.table.to_pydict()
    assert found["flags"][0] == "all right"
    assert any("1 item: all right" in text for text in fit.warnings)
    for name in ("discrimination", "intercept"):
        assert all(np.isfinite(found[name]))
    # The errors of the other items exist.
    errors = found["intercept_se"]
    assert errors[0] is None and None not in errors[1:]
    assert np.isfinite(fit.log_likelihood)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (ResponseTable.from_arrays([[1, 0]]), "1 subject: a fit compares at least two"),
        (ResponseTable.from_arrays([[1], [0]]), "1 item: a fit compares at least two"),
        (
            ResponseTable.from_arrays(np.full((2, 2), np.nan)),
            "every response is missing",
        ),
        (
            ResponseTable.from_arrays([[0, 1], [2, 1]], subjects=["x", "y"]),
            "subject 'y', item 'item 1': value 2 is not 0 or 1, as a rasch model needs;"
            " choose a 0/1 metric",
        ),
        (ResponseTable.from_arrays([[0, 0.5], [1, 1]]), "value 0.5 is not 0 or 1"),
        (ResponseTable.from_arrays([[0, -0.5], [1, 1]]), "value -0.5 is not 0 or 1"),
        (
            ResponseTable.from_arrays([[3, 3], [3, 3]]),
            "every response is 3, so nothing",
        ),
    ],
)
def test_data_that_cannot_be_fitted(table, message):
    with pytest.raises(ValueError, match=message) as caught:
        irtjax.fit(table)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_steps": 0}, "max_steps 0: give a whole number from 1 to"),
        ({"max_steps": -1}, "max_steps -1: give a whole number"),
        ({"max_steps": 2.5}, "max_steps 2.5: give a whole number"),
        ({"max_steps": True}, "max_steps True: give a whole number"),
        ({"dtype": "int32"}, "dtype 'int32': give 'float64' or 'float32'"),
        ({"dtype": "zz"}, "dtype 'zz': give 'float64' or 'float32'"),
        ({"start": None}, "start None: give proportions, spectral, low_rank"),
        ({"start": 3}, "start 3: give proportions"),
        ({"start": START}, "start has 6 items, but the data have 3"),
        ({"priors": 3}, "priors 3 is neither 'weak', 'none', 'held_out' nor a mapping"),
        ({"priors": "strong", "method": "laplace"}, "priors 'strong' is neither"),
        ({"priors": {"intercept": 3}}, "prior of intercept 3: give an object of"),
        ({"key": -3}, r"key -3: give a whole number such as 0, or jax\.random\.key"),
        ({"level": "x"}, "level 'x': give a number between 0 and 1"),
        ({"level": 1.0}, "level 1.0 is not between 0 and 1"),
        ({"facets": 3, "method": "laplace"}, "facets 3: give a list of names"),
        ({"facets": "domain", "method": "laplace"}, "facets 'domain': give a list"),
        ({"method": None}, "method None: give auto, em, saem"),
        ({"method": irtjax.EM}, r"EM'>: give auto, em, .*, or irtjax\.EM\(\)"),
        ({"method": "em", "tolerance": "a"}, "tolerance 'a' is not a number at least"),
        ({"method": "em", "tolerance": -1}, "tolerance -1 is not a number at least 0"),
        ({"method": "laplace", "tolerance": -1.0}, "tolerance -1.0 is not a number"),
        ({"method": "saem", "num_draws": 0}, "SAEM has num_draws=0; it needs at lea"),
        ({"method": "nuts", "num_draws": 2.5}, "num_draws=2.5; it needs a whole num"),
        ({"method": "em", "nodes": 5}, "nodes 5 are no list of numbers: leave nodes"),
        ({"method": "saem", "nodes": "x"}, "nodes 'x' are no list of numbers"),
        ({"method": "em", "window": -1}, "EM has window=-1; it needs at least 0"),
        ({"method": "nuts", "resume": True}, "there is no checkpoint None: give the"),
        (
            {"method": "nuts", "resume": True, "checkpoint": "none.npz"},
            r"there is no checkpoint none\.npz: give the file",
        ),
    ],
)
def test_bad_values_are_refused_before_any_work(settings, message):
    settings = {"model": "2pl", "method": "em", **settings}
    began = time.process_time()
    with pytest.raises(ValueError, match=message) as caught:
        irtjax.fit(TABLE, **settings)
    assert "\n" not in str(caught.value)
    # Nothing is compiled, which takes longer.
    assert time.process_time() - began < 2


def test_the_source_is_named():
    table = dataclasses.replace(
        ResponseTable.from_arrays([[0, 1], [2, 1]]), sources=("runs.csv",)
    )
    with pytest.raises(ValueError, match="^runs.csv: subject"):
        irtjax.fit(table)


def test_ordered_data_and_their_models():
    ordered = ResponseTable.from_arrays([[0, 3, 1], [2, 1, 0]])
    assert make_model("graded", ordered, "weak").family.num_categories == 4
    with pytest.raises(ValueError, match="not an integer from 0 to 2.*start at 0"):
        check_data(ordered, catalogue.graded(3), 0.95)
    counts = ResponseTable.from_arrays([[1, 0], [2, 1]], trials=[[2, 2], [2, 2]])
    with pytest.raises(ValueError, match="counts of trials need a binary model"):
        check_data(counts, catalogue.graded(3), 0.95)
    with pytest.raises(ValueError, match="needs integer responses, not"):
        make_model("graded", ResponseTable.from_arrays([[0.5, 1], [0, 1]]), "weak")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "5pl"}, "no model '5pl'; there are rasch, 1pl.*partial_credit"),
        (
            {"method": "mcmc"},
            "no method 'mcmc'; there are em, .*gradient.*laplace, nuts",
        ),
        ({"model": "5pl"}, "no model '5pl'; there are .*multibenchmark"),
        ({"item_model": "3pl"}, "item_model requires a multilevel model"),
        (
            {"metric_effects": False, "method": "em"},
            "metric_effects requires a multilevel model",
        ),
        (
            {"model": "hierarchical", "metric_effects": False},
            "metric_effects=False requires shared_items",
        ),
        ({"model": "multibenchmark"}, "benchmarks or metrics, not of .* alone"),
        (
            {"method": "mm", "population": "histogram"},
            "population requires method em; mm does not",
        ),
        ({"level": 95}, "level 95 is not between 0 and 1"),
        ({"standard_errors": "jackknife"}, "'jackknife' are none of observed"),
        ({"priors": "flat"}, "priors 'flat' is neither"),
        ({"start": "random"}, "start 'random': give proportions"),
        ({"population": "uniform"}, "population 'uniform' is neither"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        irtjax.fit(TABLE, **options)


def test_methods_by_name():
    model, own = catalogue.two_parameter(), EM(num_newton=3)
    histogram = make_method("em", {"population": "histogram"}, model, 9)
    assert isinstance(histogram, EM) and histogram.population == "histogram"
    assert make_method(own, {}, model, 9) is own
    for name in METHODS:
        assert make_method(name, {}, model, 9).name == name
    # Joint methods penalise abilities as well as items, or neither.
    free = catalogue.two_parameter(None)
    assert make_method("mm", {}, model, 9) == irtjax.MM(penalty=1.0)
    assert make_method("mm", {}, free, 9) == irtjax.MM(penalty=0.0)


def test_settings_that_nothing_would_use_are_refused():
    model = catalogue.two_parameter()
    for options, message in (
        ({"model": model, "positive": True}, "positive is a setting of models given"),
        ({"model": model, "method": "em", "priors": None}, "state it in the model"),
        ({"method": EM(), "population": "histogram"}, r"EM\(population='histogram'\)"),
        ({"method": "em", "num_draws": 9}, "num_draws requires method saem or nuts"),
        ({"method": "mm", "resume": True}, "resume=True, but there is no checkpoint"),
        ({"method": "em", "priours": None}, "no setting 'priours'; there are anchor"),
        # Whatever the value: the default of another method is not in use either.
        (
            {"method": "neural", "standard_errors": "observed"},
            "standard_errors requires method em",
        ),
        ({"method": "laplace", "start": "proportions"}, "start requires method em"),
        ({"method": "saem", "population": "normal"}, "population requires method em"),
        (
            {"method": "neural", "priors": {"intercept": Normal(100.0, 0.001)}},
            "priors has no effect by method 'neural'",
        ),
        (
            {"method": "neural", "epochs": 2, "max_steps": 5},
            "epochs and max_steps set the same limit",
        ),
        (
            {"method": "saem", "num_steps": 2, "max_steps": 5},
            "num_steps and max_steps set the same limit",
        ),
        (
            {"method": "nuts", "max_steps": 5},
            "max_steps is not a limit of method nuts: set its number of steps with"
            " num_warmup= and num_draws=",
        ),
        *(
            ({"model": name, "method": method, "length_offset": 5.0}, "for the model l")
            for name in ("2pl", "multibenchmark")
            for method in ("laplace", "nuts", "auto")
        ),
        (
            {"model": "rasch", "method": "laplace", "positive": True},
            "positive has no effect on a rasch model",
        ),
        (
            {"model": "hierarchical", "item_model": "rasch", "positive": True},
            "positive has no effect on a rasch model",
        ),
    ):
        with pytest.raises(ValueError, match=message) as found:
            irtjax.fit(TABLE, **options)
        assert "\n" not in str(found.value)


def test_a_method_without_priors_records_none():
    for model in ("2pl", catalogue.two_parameter()):
        fit = irtjax.fit(TABLE, model, "neural", epochs=1)
        assert fit.options["priors"] == {}


def test_a_setting_of_one_method_decides_the_method():
    few = ResponseTable.from_arrays(np.eye(12, 20, dtype=int))
    assert choose(few).method == "laplace"
    for settings in ({"standard_errors": "observed"}, {"population": "normal"}):
        assert choose(few, settings=settings).method == "em"
    assert choose(few, settings={"anchor": None}).method == "laplace"


def test_fields_of_a_method_by_name_are_settings():
    fit, usual = (
        irtjax.fit(TABLE, "2pl", "em", standard_errors="none", **settings)
        for settings in ({"tolerance": 0.05}, {})
    )
    assert fit.num_steps < usual.num_steps


@pytest.mark.slow
def test_simulated_items_and_abilities_are_recovered():
    model = catalogue.two_parameter()
    items, rng = true_items(model, 10), np.random.default_rng(21)
    theta = rng.standard_normal(1000)
    fit = irtjax.fit(ResponseTable.from_arrays(draw("2pl", items, theta, rng)))
    found = {k: np.array(v) for k, v in fit.items.table.to_pydict().items()}
    truth = {
        "discrimination": np.asarray(items.discrimination),
        "intercept": np.asarray(items.intercept),
        "difficulty": -np.asarray(items.intercept / items.discrimination),
    }
    for name, value in truth.items():
        error, difference = found[f"{name}_se"], found[name] - value
        # Four standard errors for each, and for their mean square the 1 - 1e-4
        # quantile of chi-square(10) / 10, which is 3.6.
        assert (np.abs(difference) < 4 * error).all(), name
        assert np.mean((difference / error) ** 2) < 3.6
    # The order of slopes 0.8 to 1.5 with errors of about 0.12: a correlation near
    # 0.88, whose own standard error at ten items is 0.1.
    order = stats.spearmanr(found["discrimination"], truth["discrimination"])
    assert order.statistic > 0.88 - 4 * 0.1
    table = fit.abilities.table.to_pydict()
    estimate = dict(zip(table["subject"], table["ability"], strict=True))
    ability = np.array([estimate[name] for name in fit.subject_names.tolist()])
    # Ability and EAP correlate as the root of the reliability, 1 - mean error^2;
    # Spearman's is 0.02 lower for normal pairs, its standard error 0.01.
    reliability = 1 - np.mean(np.square(table["ability_se"]))
    correlation = stats.spearmanr(ability, theta).statistic
    assert correlation > np.sqrt(reliability) - 0.02 - 4 * 0.01
    # Intervals of 95 % cover their share of 1,000 within 4 binomial errors of 0.7 %.
    place = {name: k for k, name in enumerate(fit.subject_names.tolist())}
    true_ability = theta[[place[name] for name in table["subject"]]]
    inside = (table["lower"] <= true_ability) & (true_ability <= table["upper"])
    assert inside.mean() == pytest.approx(0.95, abs=4 * 0.007)


@pytest.mark.parametrize("penalty", [0, 0.0])
def test_priors_without_weight_are_none(penalty):
    model = catalogue.two_parameter()
    assert not weighted_priors(model, irtjax.MM(penalty=penalty)).priors
    assert weighted_priors(model, irtjax.MM(penalty=0.5)) is model
    assert weighted_priors(model, irtjax.EM()) is model
    several = irtjax.ResponseTable.from_arrays(np.eye(12))
    with pytest.raises(ValueError, match="needs priors, .* give a penalty above 0"):
        irtjax.fit(several, "factor", "mm", factors=2, penalty=penalty)


@pytest.mark.slow  # A program of its own.
def test_a_penalty_of_0_has_the_flags_of_no_priors():
    right = np.array(_table().values)
    right[0], right[:, 2] = 1, 1
    table = irtjax.ResponseTable.from_arrays(right)
    given = {"standard_errors": "none", "max_steps": 300}
    one = irtjax.fit(table, "2pl", "mm", penalty=0.0, **given)
    two = irtjax.fit(table, "2pl", "mm", priors=None, **given)
    chex.assert_trees_all_equal(one.parameters.items, two.parameters.items)
    assert one.items.table.equals(two.items.table) and one.warnings == two.warnings
    assert "no finite estimate" in one.abilities.table["flags"].to_pylist()[0]
    assert not any("depends on the prior" in text for text in one.warnings)
