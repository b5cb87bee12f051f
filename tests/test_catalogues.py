"""Every model and every method by name, from a table to a saved calibration.

A model or a method that is added to a catalogue is tested here for free.
"""

import dataclasses
import functools

import numpy as np
import pytest

import irtjax
from irtjax.cli.simulate import draw
from irtjax.estimators.catalogue import METHODS, method_class
from irtjax.models.catalogue import MODELS, MULTILEVEL_MODELS

SUBJECTS, ITEMS = 60, 20
#: Settings that make a method quick; the others are quick enough.
QUICK = {
    "nuts": {"num_warmup": 150, "num_draws": 100, "num_chains": 2},
    "vi": {"num_steps": 300},
    "neural": {"epochs": 20},
    "vibo": {"epochs": 60},
}
#: Fitted in the default run; the programs of the others take longer to compile.
FAST_METHODS, FAST_MODELS = ("em", "neural"), ("nominal",)


def slow_unless(names, fast):
    return [n if n in fast else pytest.param(n, marks=pytest.mark.slow) for n in names]


@functools.cache
def simulated(model: str):
    """A table of the model's kind with two benchmarks, and the true abilities."""
    single = "2pl" if model in MULTILEVEL_MODELS else model
    table, _, truth = draw(single, SUBJECTS, ITEMS, 3, 0.05, None, 3)
    benchmark = np.where(np.arange(ITEMS) % 2 == 0, "law", "code")
    facets = {**table.item_facets, "benchmark": benchmark}
    table = dataclasses.replace(table, item_facets=facets)
    return table, truth["ability"].to_numpy()


def check(fit, table, truth, tmp_path):
    """Estimates are finite, near the truth, and the same after saving."""
    ability = fit.ability_table["ability"].to_numpy()
    # Reliability of 20 items is about .8, so the correlation is about .9.
    assert np.corrcoef(ability, truth)[0, 1] > 0.7
    errors = fit.ability_table["ability_se"].to_numpy()
    assert np.isfinite(errors).all() and (errors > 0).all()
    assert np.isfinite([fit.log_likelihood, fit.log_prior, fit.aic, fit.bic]).all()
    chance = irtjax.predict(fit).expected
    assert chance.shape == (SUBJECTS, ITEMS) and np.isfinite(chance).all()
    assert len(irtjax.rank(fit).rows()) == SUBJECTS
    assert fit.options["model"] in fit.summary()
    irtjax.save(fit, tmp_path / "fit")
    again = irtjax.load(tmp_path / "fit")
    np.testing.assert_allclose(again.ability_table["ability"].to_numpy(), ability)
    assert again.options["method"] == fit.options["method"]


@pytest.mark.parametrize("method", slow_unless(METHODS, FAST_METHODS))
def test_every_method_by_name(method, tmp_path):
    table, truth = simulated("2pl")
    fit = irtjax.fit(table, "2pl", method, **QUICK.get(method, {}))
    assert fit.options["method"] == method
    check(fit, table, truth, tmp_path)


@pytest.mark.parametrize(
    "model", slow_unless([*MODELS, *MULTILEVEL_MODELS], FAST_MODELS)
)
def test_every_model_by_name(model, tmp_path):
    table, truth = simulated(model)
    fit = irtjax.fit(table, model)
    assert fit.options["model"] == model
    check(fit, table, truth, tmp_path)


@pytest.mark.parametrize("method", METHODS)
def test_a_setting_of_another_method_is_refused(method):
    table, _ = simulated("2pl")
    own = {f.name for f in dataclasses.fields(method_class(method))}
    name = next(n for n in ("num_ratios", "window") if n not in own)
    with pytest.raises(ValueError, match=f"{name} requires method"):
        irtjax.fit(table, "2pl", method, **{name: 1})
