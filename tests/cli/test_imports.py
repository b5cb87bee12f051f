"""Modules of the user on the command line, and what is not imported."""

import json
import sys

import numpy as np
import pytest

import irtjax
from tests.cli.test_cli import assert_refused, ok, run, shell, write_long
from tests.small_fits import small_table

#: A module with a family, models of it, and a method.
MODULE = """
from typing import ClassVar
import equinox as eqx
import jax
import jax.numpy as jnp
import irtjax
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.priors import Normal
from irtjax.numerics.bijections import Parameter

HALF = jnp.log(jnp.asarray(3.0))  # As precise as a fit.


class Guess(irtjax.AbstractResponseFamily):
    Items: ClassVar[type] = LogisticItems
    options: int = eqx.field(static=True, default=4)
    num_categories = 2

    @property
    def parameters(self):
        return Parameter("discrimination"), Parameter("intercept")

    def statistics(self, values):
        return (values,)

    def natural(self, item, theta):
        predictor = item.discrimination * theta + item.intercept
        wrong = jnp.log1p(-1 / self.options) - jax.nn.softplus(predictor)
        return wrong, jnp.log(-jnp.expm1(wrong)) - wrong

    def complete(self, fields):
        guess = jnp.full_like(fields["intercept"], 1 / self.options)
        return LogisticItems(**fields, lower_asymptote=guess, upper_asymptote=guess**0)

    def start(self, means, slope):
        share = jnp.clip((means[0] * self.options - 1) / (self.options - 1), 0.1, 0.9)
        intercept = jnp.log(share / (1 - share))
        return self.complete({"discrimination": slope, "intercept": intercept})


PRIORS = {"discrimination": Normal(1.0, 1.0), "intercept": Normal(0.0, 2.0)}
model = irtjax.Model("guess", Guess(), PRIORS)


def make():
    return model


def method():
    return irtjax.EM(num_newton=2)


def broken():
    raise RuntimeError("no such luck")
"""


@pytest.fixture(name="place")
def place_fixture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cli_guess.py").write_text(MODULE)
    (tmp_path / "cli_bad.py").write_text("x = 1 +\n")
    (tmp_path / "cli_needs.py").write_text("import cli_absent_package\n")
    write_long(tmp_path / "long.csv", small_table())
    yield tmp_path
    for name in ("cli_guess", "cli_bad", "cli_needs"):
        sys.modules.pop(name, None)


def test_a_family_of_ones_own_is_fitted_and_ranked(place):
    path = list(sys.path)
    more = ("--no-figures", "--standard-errors", "none", "-q")
    names = ("--model", "cli_guess:make", "--method", "cli_guess:method")
    ok("fit", "long.csv", *names, "-o", "own", *more)
    assert sys.path == path
    content = json.loads((place / "own" / "fit.json").read_text())
    assert content["model"]["family"]["class"] == "cli_guess.Guess"
    assert content["options"]["method"] == "em" and content["model"]["name"] == "guess"
    module = sys.modules["cli_guess"]
    assert module.HALF.dtype == np.float64
    again = irtjax.fit(
        irtjax.read("long.csv"), module.model, module.method(), standard_errors="none"
    )
    fit = irtjax.load("own")
    np.testing.assert_allclose(
        fit.parameters.items.intercept, again.parameters.items.intercept, atol=1e-8
    )
    # In a process of its own, which has no such class.
    done = shell("rank", "own", "--json")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (
        "irtjax: own: this fit has the family cli_guess.Guess, which is not defined"
        " here: add --import cli_guess before the command\n"
    )
    done = shell("--import", "cli_guess", "rank", "own", "--json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["subjects"][0]
    assert (
        first["subject"]
        == json.loads(ok("rank", "own", "--json").stdout)["subjects"][0]["subject"]
    )


def test_a_model_of_ones_own_is_simulated(place):
    size = ("--num-subjects", 40, "--num-items", 3, "-q")
    ok("simulate", "-o", "s.csv", "--model", "cli_guess:model", *size)
    rows = (place / "s.items.csv").read_text().splitlines()
    column = rows[0].replace('"', "").split(",").index("lower_asymptote")
    assert [float(row.split(",")[column]) for row in rows[1:]] == [0.25] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--import", "cli_absent"], "--import cli_absent: no module 'cli_absent' in"),
        (["--import", "cli_guess.py"], "name a module, such as mine for mine.py"),
        (["--import", "cli_bad"], r"--import cli_bad: SyntaxError: .*TRACEBACK=1"),
        (["--import", "cli_needs"], "ModuleNotFoundError: .*cli_absent_package"),
        (["--model", "cli_guess:modle"], "--model cli_guess:modle: there is none; nam"),
        (["--model", "cli_guess:Guess"], "it is a Guess; name a model in the"),
        (["--model", "cli_guess:broken"], "broken: RuntimeError: no such luck"),
        (
            ["--method", "cli_guess:make"],
            "it is a Model; name an irtjax.AbstractMethod",
        ),
        (["--model", "cli_absent:m"], "--model cli_absent: no module"),
    ],
)
def test_what_cannot_be_imported_is_one_line(place, words, message):
    command = ["fit", "long.csv", "-o", "out"]
    early = words[0] == "--import"
    before = sorted(place.iterdir())
    assert_refused(run(*(words + command if early else command + words)), message)
    assert [x for x in sorted(place.iterdir()) if x.name != "__pycache__"] == before
