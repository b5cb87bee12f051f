"""What labels and covariates say of items and subjects, through the front door."""

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pyarrow.csv
import pytest

import irtjax
from irtjax.estimators.driver import run
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import MultilevelProblem
from irtjax.models.families.logistic import Binary
from irtjax.models.multilevel.design import facet_labels
from irtjax.models.multilevel.model import Hyperpriors
from irtjax.models.multilevel.specification import Hierarchical, MultiMetric
from irtjax.prediction.responses import predict_responses
from tests.estimators.laplace.test_laplace import metrics

SUBJECTS, THINGS, METRICS = 12, 20, 3
METHOD = Laplace(order=2)
#: Few, so that roundings of two compilations do not grow.
STEPS = 8


@functools.cache
def drawn():
    """Things measured by three metrics that differ in level and slope."""
    rng = np.random.default_rng(0)
    scale = np.array([0.5, 0.4, 0.6])
    ability = rng.normal(size=(SUBJECTS, 1)) + scale * rng.normal(
        size=(SUBJECTS, METRICS)
    )
    slope, easiness = np.exp(0.3 * rng.normal(size=THINGS)), rng.normal(size=THINGS)
    chances = [
        1 / (1 + np.exp(-unit * slope * ability[:, [m]] - easiness - shift))
        for m, (unit, shift) in enumerate([(1.0, -1.0), (0.8, 0.0), (1.3, 0.7)])
    ]
    right = rng.random((SUBJECTS, METRICS * THINGS)) < np.concatenate(chances, axis=1)
    names = [f"metric {m}/q{k:02d}" for m in range(METRICS) for k in range(THINGS)]
    return irtjax.ResponseTable.from_arrays(
        right, items=names, benchmark=[name[:8] for name in names]
    )


@functools.cache
def shared():
    return irtjax.fit(
        drawn(), "multimetric", METHOD, shared_items="stem", max_steps=STEPS
    )


def by_subject(fit, values):
    """Rows of `values`, which are in the order of the fit's table, in the data's."""
    place = {
        name: k for k, name in enumerate(fit.abilities.table["subject"].to_pylist())
    }
    return np.asarray(values)[[place[name] for name in drawn().subjects.tolist()]]


@functools.cache
def direct():
    """The same model, written without the door."""
    model = metrics(SUBJECTS, THINGS, METRICS)
    problem = MultilevelProblem.create(model, drawn().responses(float))
    return problem, eqx.filter_jit(run)(problem, METHOD, None, max_steps=STEPS)


@pytest.mark.slow
def test_shared_items_are_the_model_of_columns_of_one_stem():
    family = Binary(slopes="positive")
    layout = MultiMetric(shared_items="stem").lay_out(drawn(), family)
    assert eqx.tree_equal(layout.model, metrics(SUBJECTS, THINGS, METRICS))
    names, values = shared().structure.effects
    assert names.tolist() == ["all items", *(f"metric: metric {m}" for m in range(3))]
    # Levels of -1, 0 and 0.7 for everyone, in that order.
    assert (np.diff(values[1:, 1]) > 0).all()
    assert shared().structure.stems.tolist() == [f"q{k:02d}" for k in range(THINGS)] * 3
    options = shared().options
    assert options["shared_items"] == "stem" and options["metric_effects"]


@pytest.mark.slow
def test_shared_items_are_fitted_as_without_the_door():
    fit, (problem, found) = shared(), direct()
    state = found.state
    assert fit.num_steps == int(found.num_steps)
    # The same program on the same numbers, compiled apart.
    np.testing.assert_allclose(
        by_subject(fit, fit.structure.ability), state.ability, rtol=1e-6
    )
    rows = np.asarray(state.mean)[np.asarray(problem.distinct.of_stem)]
    rows = rows[np.arange(METRICS * THINGS) % THINGS]
    rows = rows + np.asarray(state.components.group_effects).repeat(THINGS, axis=0)
    np.testing.assert_allclose(
        fit.parameters.items.discrimination, np.exp(rows[:, 0]), rtol=1e-6
    )
    np.testing.assert_allclose(fit.parameters.items.intercept, rows[:, 1], rtol=1e-6)
    np.testing.assert_allclose(
        fit.structure.effects[1][1:], state.components.group_effects, rtol=1e-6
    )


@pytest.mark.slow
def test_shared_items_are_saved_loaded_and_score_newcomers(tmp_path):
    fit = shared()
    again = irtjax.load(irtjax.save(fit, tmp_path / "fit"))
    assert again.structure.stems.tolist() == fit.structure.stems.tolist()
    effects = pyarrow.csv.read_csv(tmp_path / "fit" / "effects.csv")
    assert "metric: metric 2" in effects["effect"].to_pylist()
    # One metric of some things alone tells of a newcomer too.
    table = drawn().select(items=np.arange(THINGS, THINGS + 15))
    scored, expected = (irtjax.score(x, table).table for x in (again, fit))
    assert scored.equals(expected)
    own, other = (scored[f"ability_metric {m}_se"].to_numpy() for m in (1, 0))
    assert (own < other).all()
    found = by_subject(fit, fit.structure.ability)[:, 1]
    assert np.corrcoef(scored["ability_metric 1"].to_numpy(), found)[0, 1] > 0.9


@pytest.mark.slow
def test_shared_items_predict_every_metric():
    problem, found = direct()
    multimetric = MultiMetric(shared_items="stem")
    layout = multimetric.lay_out(drawn(), Binary(slopes="positive"))
    same = MultilevelProblem.create(layout.model, drawn().responses(float))
    ours, theirs = (predict_responses(p, found.state, order=1) for p in (same, problem))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    means = np.asarray(ours).reshape(SUBJECTS, METRICS, THINGS).mean(axis=(0, 2))
    seen = drawn().values.reshape(SUBJECTS, METRICS, THINGS).mean(axis=(0, 2))
    # Levels of metrics have a wide prior: means are met to a fraction of their error.
    np.testing.assert_allclose(means, seen, atol=0.03)


@pytest.mark.slow
def test_shared_items_as_printed_have_one_unit():
    fit = irtjax.fit(
        drawn(), "multimetric", METHOD, shared_items="stem", metric_effects=False
    )
    assert fit.structure.effects[0].tolist() == ["all items"]
    a = np.asarray(fit.parameters.items.discrimination).reshape(METRICS, THINGS)
    np.testing.assert_array_equal(a[0], a[2])


def test_items_that_cannot_be_shared_are_refused():
    table, family = drawn(), Binary(slopes="positive")
    door = lambda **settings: MultiMetric(**settings).lay_out(table, family)
    with pytest.raises(ValueError, match="no facet 'article' of items names what"):
        door(shared_items="article")
    with pytest.raises(ValueError, match="has 3 names, not one for each of the 60"):
        door(shared_items=["a", "b", "c"])
    with pytest.raises(ValueError, match="'q' has two items of 'metric 0'"):
        door(shared_items=["q"] * table.num_items)
    with pytest.raises(ValueError, match="no two items measure the same thing"):
        door(shared_items=table.items)
    with pytest.raises(ValueError, match="facet 'benchmark' differs between the metr"):
        door(shared_items="stem", facets=("benchmark",))
    words = {"words": np.arange(60.0)}
    with pytest.raises(ValueError, match="covariate 'words' differs between the metr"):
        door(shared_items="stem", item_covariates=words)
    with pytest.raises(ValueError, match="requires the model multimetric"):
        irtjax.fit(table, "hierarchical", shared_items="stem")


def test_facets_cross_by_name_or_nest():
    domain = np.array(["easy", "hard"])[np.arange(60) % 2]
    facets = {"benchmark": np.asarray(drawn().benchmarks), "domain": domain}
    crossed = facet_labels(facets, ("domain",))["domain"]
    assert np.unique(crossed).tolist() == ["easy", "hard"]
    nested = facet_labels(facets, ("benchmark/domain",))
    assert list(nested) == ["benchmark", "benchmark/domain"]
    assert len(np.unique(nested["benchmark/domain"])) == 6
    with pytest.raises(ValueError, match="no facet 'suite' of items; there are bench"):
        facet_labels(facets, ("suite/domain",))


def test_covariates_are_checked_and_centred():
    table, family = drawn(), Binary(slopes="positive")
    door = lambda **settings: Hierarchical(**settings).lay_out(table, family)
    size = np.linspace(0, 3, SUBJECTS)
    first = {"n": np.eye(60)[0]}
    layout = door(subject_covariates={"size": size}, item_covariates=first)
    assert layout.covariates.tolist() == ["size"] and layout.effects[-1] == "n"
    narrow = Hyperpriors(tilt=0.5)
    assert door(hyperpriors=narrow).model.hyperpriors is narrow
    np.testing.assert_allclose(layout.model.subject_design[:, 0], size - 1.5)
    assert float(jnp.abs(layout.model.design[:, -1].mean())) < 1e-12
    both = door(subject_covariates=np.stack([size, size**2], axis=1))
    assert both.covariates.tolist() == ["covariate 1", "covariate 2"]
    for values, words in (
        (np.full(SUBJECTS, 2.1), "is the same for all subjects: leave it out"),
        (size * 1e6, "give it in other units"),
        (np.where(size > 1, np.nan, 0), "one finite number for each of the 12 subj"),
    ):
        with pytest.raises(ValueError, match=words):
            door(subject_covariates={"size": values})
    with pytest.raises(ValueError, match=r"has shape \(3,\): give one row"):
        door(subject_covariates=np.ones(3))


def test_features_are_a_component_of_effects():
    table, family = drawn(), Binary(slopes="positive")
    features = np.random.default_rng(0).normal(5, 3, (60, 4))
    door = lambda x: Hierarchical(item_features=x).lay_out(table, family)
    layout = door(features)
    model, facets = layout.model, layout.facets.tolist()
    assert facets[-1] == "features" and model.num_components == len(facets)
    assert model.component[-4:].tolist() == [len(facets) - 1] * 4
    np.testing.assert_allclose(model.design[:, -4:].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(model.design[:, -4:].std(axis=0), 1, rtol=1e-6)
    by_name = door({"size": features[:, 0], "age": features[:, 1]})
    assert by_name.effects[-2:].tolist() == ["features: size", "features: age"]
    for values, words in (
        (features[:9], "give one row for each of the 60 items"),
        ({"size": features[:, 0], "age": np.ones(60)}, "'age' is the same for all"),
        ({"size": features[:30, 0]}, "'size' needs one finite number for each of the"),
        ({"size": features[:, 0]}, "has 1 feature"),
    ):
        with pytest.raises(ValueError, match=f"item_features.*{words}"):
            door(values)
