"""Commands are made from the parameters of the verbs of Python that they call."""

import dataclasses
import inspect

import pytest
from typer.main import get_command

import irtjax
from irtjax.adaptive.design import Rules
from irtjax.cli.adapt import RuleOptions
from irtjax.cli.app import app
from irtjax.cli.arena import ArenaModel
from irtjax.cli.audit import AuditOptions
from irtjax.cli.clusters import ClusterOptions
from irtjax.cli.fit_options import OPTIONS
from irtjax.cli.power import PowerOptions
from irtjax.cli.shrink import SubsetOptions
from irtjax.cli.stability import StabilityOptions
from irtjax.comparisons import PairSettings
from irtjax.estimators.catalogue import METHODS, method_class
from irtjax.estimators.driver import ITEM_OPTIONS
from irtjax.fitting.settings import DATA, MODEL, Settings
from irtjax.models.factors import FACTOR
from irtjax.models.multilevel.specification import MULTILEVEL
from irtjax.subsets.pool import make_pool


@pytest.mark.parametrize(
    ("arguments", "verbs"),
    [
        (PowerOptions().arguments(), [irtjax.power]),
        (StabilityOptions().arguments(), [irtjax.stability]),
        (dataclasses.asdict(ClusterOptions()), [irtjax.heterogeneity]),
        (AuditOptions(seed=None).arguments(), [irtjax.audit]),
        # Keywords of `shrink` that it hands on have their defaults there.
        (
            SubsetOptions().target() | SubsetOptions().arguments(),
            [make_pool, irtjax.shrink],
        ),
    ],
)
def test_options_have_the_names_and_the_defaults_of_the_verb(arguments, verbs):
    parameters = {}
    for verb in verbs:
        parameters |= inspect.signature(verb).parameters
    for name, value in arguments.items():
        assert value == parameters[name].default, name


def test_rules_of_adaptive_tests_are_those_of_python():
    names = {*RuleOptions().rules([])} - {"num_items", "max_exposure"}
    assert names == {*Rules.__annotations__}


def test_options_of_arenas_have_the_names_and_the_defaults_of_their_settings():
    settings = PairSettings()
    for option in dataclasses.fields(ArenaModel):
        name = {"covariate": "covariates"}.get(option.name, option.name)
        assert (option.default or None) == (getattr(settings, name) or None), name


def test_options_of_a_fit_are_its_settings_with_their_defaults():
    classes = [method_class(name) for name in METHODS]
    names = {field.name for kind in classes for field in dataclasses.fields(kind)}
    names |= {name for kind in classes for name in kind.runs.options}
    defaults = {**MODEL, **DATA, **MULTILEVEL, **FACTOR, **ITEM_OPTIONS}
    tables = {"item_table", "subject_table"}
    for option in OPTIONS:
        setting = option.setting or option.name
        assert setting in names | tables | Settings.__annotations__.keys()
        if option.default is not None and setting in defaults:
            assert option.default == defaults[setting], setting


@pytest.mark.parametrize("name", get_command(app).commands)  # pyright: ignore
def test_a_command_has_at_most_ten_parameters(name):
    command = get_command(app).commands[name]  # pyright: ignore
    callback = inspect.unwrap(command.callback)
    assert len(inspect.signature(callback).parameters) <= 10
