"""Kinds of models: named or as objects, and kinds of your own."""

import dataclasses
import typing

import chex
import numpy as np
import pytest

import irtjax
from irtjax.estimators.catalogue import METHODS, method_class
from irtjax.fitting.one_ability import OneAbility
from irtjax.fitting.problem import make_task, specify
from irtjax.fitting.settings import sort_settings
from irtjax.fitting.specification import AbstractSpecification
from irtjax.models.catalogue import MULTILEVEL_MODELS, two_parameter
from irtjax.models.priors import Normal

RIGHT = np.random.default_rng(0).integers(0, 2, size=(9, 12))
TABLE = irtjax.ResponseTable.from_arrays(
    RIGHT,
    items=[f"{'ab'[j % 2]}/{j // 2}" for j in range(12)],
    benchmark=[("a", "b")[j % 2] for j in range(12)],
)


def task_of(model, method="laplace", **settings):
    kind = method_class(method)
    specification = specify(model, kind)
    parts = sort_settings(settings, specification, kind)
    return make_task(TABLE, specification, method, parts, level=0.95, dtype=None)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("multibenchmark", {}),
        (
            "multibenchmark",
            {
                "item_model": "rasch",
                "sd_by_benchmark": True,
                "subject_covariates": {"size": np.arange(9.0)},
                "hyperpriors": irtjax.Hyperpriors(scale=0.5),
            },
        ),
        ("multimetric", {}),
        ("multimetric", {"shared_items": "stem", "metric_effects": False}),
        (
            "hierarchical",
            {
                "facets": {"benchmark/topic": np.arange(12) % 3},
                "item_covariates": {"words": np.arange(12.0)},
                "priors": {"intercept": Normal(0.0, 2.0)},
            },
        ),
    ],
)
def test_a_named_model_is_the_object_with_the_same_settings(name, settings):
    named = task_of(name, **settings)
    given = task_of(irtjax.MODELS[name](**settings))
    assert named.options == given.options and named.options["model"] == name
    chex.assert_trees_all_equal(named.layout.model, given.layout.model)
    for one, other in zip(named.layout[1:], given.layout[1:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_models_has_every_name_that_fit_accepts():
    multilevel = {"multibenchmark", "multimetric", "hierarchical"}
    assert multilevel < irtjax.MODELS.keys() and len(irtjax.MODELS) == 23
    for name, kind in MULTILEVEL_MODELS.items():
        assert irtjax.MODELS[name] is kind and kind.name == name
    assert irtjax.MODELS["multimetric"] is irtjax.MultiMetric
    with pytest.raises(dataclasses.FrozenInstanceError):
        irtjax.Hierarchical().facets = ("domain",)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (irtjax.MultiBenchmark(facets=("x",)), {"facets": ("x",)}, "facets is a sett"),
        # At its default too: the object may state another value.
        (irtjax.MultiMetric(), {"metric_effects": True}, "metric_effects is a sett"),
        (irtjax.Hierarchical(), {"priors": "weak"}, "in the model .* [(]hierarchical"),
        (two_parameter(), {"positive": False}, "in the model that is given [(]2pl"),
        (irtjax.MultiBenchmark(), {"method": "em"}, "'laplace', 'nuts' or 'vi', not"),
        (irtjax.MultiBenchmark(shared_items="stem"), {}, "requires the model multim"),
        (irtjax.MultiBenchmark(item_model="multimetric"), {}, "no model 'multimetric'"),
        (irtjax.MultiBenchmark(item_model="1pl"), {}, "equal slopes as 'rasch'"),
        (irtjax.MultiBenchmark, {}, "no model <class"),
        (None, {}, "no model None; there are rasch"),
    ],
)
def test_what_does_not_suit_is_refused_in_one_line(model, settings, message):
    with pytest.raises(ValueError, match=message) as found:
        irtjax.fit(TABLE, model, **settings)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("priors", [None, "none", "flat"])
def test_multilevel_models_have_learned_or_given_priors(priors):
    with pytest.raises(ValueError, match="multilevel models estimate the priors"):
        irtjax.MultiBenchmark(priors=priors)


def test_an_audit_refuses_several_abilities_by_name_and_object():
    for model in ("multibenchmark", irtjax.MultiBenchmark()):
        with pytest.raises(ValueError, match="but multibenchmark has one for each"):
            irtjax.audit(TABLE, model=model)


def test_every_kind_of_model_is_served_by_some_methods():
    served = {
        model: [name for name in METHODS if specify(model).serves(method_class(name))]
        for model in ("2pl", "hierarchical")
    }
    assert served["hierarchical"] == ["laplace", "nuts", "vi"]
    # Those three serve a model of one ability too, by another specification.
    assert {*served["2pl"], *served["hierarchical"]} == set(METHODS)
    assert specify("2pl", method_class("laplace")).serves(method_class("laplace"))


class Mirrored(AbstractSpecification):
    """A kind of model outside the package: a 2PL, right and wrong exchanged."""

    name = "mirrored"
    settings = {"mirror": False}

    def serves(self, method):
        return method.marginal and not method.multilevel

    def task(self, table, method, parts, level, floating):
        if parts.model["mirror"]:
            table = dataclasses.replace(table, values=1 - table.values)
        parts = parts._replace(model=OneAbility.settings)
        return OneAbility("2pl").task(table, method, parts, level, floating)


def test_a_kind_of_model_of_your_own_plugs_in():
    settings = {"standard_errors": "none", "tolerance": 0.1}
    plain = irtjax.fit(TABLE, "2pl", "em", **settings)
    fits = {
        mirror: irtjax.fit(TABLE, Mirrored(), mirror=mirror, **settings)
        for mirror in (False, True)
    }
    assert fits[False].items.table.equals(plain.items.table)
    accuracy = fits[True].abilities.table["accuracy"].to_numpy()
    np.testing.assert_allclose(accuracy, 1 - RIGHT.mean(axis=1))
    with pytest.raises(ValueError, match="no setting 'mirror'"):
        irtjax.fit(TABLE, "2pl", mirror=True)
    with pytest.raises(ValueError, match="mirrored model is estimated by .*'gvem', no"):
        irtjax.fit(TABLE, Mirrored(), "mm")


@pytest.mark.parametrize(
    "kind",
    [irtjax.Factor, irtjax.Model, irtjax.MultiBenchmark, irtjax.Hierarchical],
)
def test_type_checkers_know_every_model_object_that_fit_takes(kind):
    known = typing.get_args(typing.get_type_hints(irtjax.fit)["model"])
    assert any(issubclass(kind, one) for one in known)
