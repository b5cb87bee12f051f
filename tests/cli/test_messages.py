"""Messages and help name options as they are typed."""

import dataclasses
import re

import pytest
from typer.testing import CliRunner

from irtjax.calibration.assumptions import NormalityTest, warnings_of
from irtjax.cli.app import app
from irtjax.cli.errors import as_options
from irtjax.cli.fit_options import FLAGS, OPTIONS, option_of, parse_sets
from irtjax.estimators.catalogue import METHODS, method_class
from irtjax.models.catalogue import MODELS, MULTILEVEL_MODELS


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("use method='em'", "use --method em"),
        (
            "estimated by method='em' or 'saem', not 'mm'",
            "estimated by --method em or saem, not 'mm'",
        ),
        (
            "by method='laplace', 'nuts' or 'vi', not 'em'",
            "by --method laplace, nuts or vi, not 'em'",
        ),
        ("fit model='multibenchmark'", "fit --model multibenchmark"),
        (
            "method='em' with population='histogram' estimates",
            "--method em with --population histogram estimates",
        ),
        ("provisional; raise max_steps, or", "provisional; raise --max-steps, or"),
        ("raise target_acceptance (0.95)", "raise --target-acceptance (0.95)"),
        ("NUTS has num_chains=0; it", "NUTS has --chains 0; it"),
        ("positive (positive=True), or", "positive (--positive), or"),
        (
            "metric_effects=False requires shared_items: metrics",
            "--no-metric-effects requires --share-items: metrics",
        ),
        ("item_uncertainty=False", "--items-known"),
        ("resume=True resumes", "--resume resumes"),
        ("or priors=None where", "or --priors none where"),
        (
            "population requires method em; laplace does not accept it",
            "--population requires --method em; laplace does not accept it",
        ),
        (
            "population requires method='em' and facets requires method='laplace': l",
            "--population requires --method em and --facets requires --method laplace",
        ),
        ("item_model requires a multilevel model: use the", "--item-model requires a"),
        ("positive has no effect on a rasch model", "--positive has no effect on a"),
        ("a mode: leave squeeze out", "a mode: leave --squeeze out"),
        ("of items: omit priors, or name", "of items: omit --priors, or name"),
        (
            "pass trials='mean', or metric= one of",
            "pass --trials mean, or --metric one",
        ),
        ("filter='two words'", "--filter 'two words'"),
        ("read them with length=...", "read them with --length ..."),
        (
            "max_steps is not a limit of method nuts: set its number of steps with"
            " num_warmup= and num_draws=",
            "--max-steps is not a limit of method nuts: set its number of steps with"
            " --warmup and --draws",
        ),
        ("name with item= all columns", "name with --item all columns"),
        (
            "the family __main__.Slip, which is not defined here: import its module"
            " before loading",
            "",
        ),
        (
            "the prior a.b.Slip, which is not defined here: import its module before"
            " loading",
            "the prior a.b.Slip, which is not defined here: add --import a.b before the"
            " command",
        ),
        # Words that are no settings, and values that cannot be typed, stay.
        ("the level of the model is a start; x=1 stays", ""),
        ("priors={'intercept': Normal(0, 1)}", ""),
        ("use penalty=0 for plain maximum likelihood", "use --penalty 0 for plain"),
        ("bounds=(low, high) (--bounds LOW HIGH)", ""),
        ("no column 'max_steps'; it has max_steps, chains", ""),
        ("fit.method='em' a/model='x' --level=0.9", ""),
        ("the model requires binary responses", ""),
        ("models that fit have facets", ""),
    ],
)
def test_settings_in_messages_become_options(said, typed):
    assert as_options(said).startswith(typed or said)
    assert typed or as_options(said) == said


def test_every_setting_has_its_option():
    for option in OPTIONS:
        for name in option.names:
            assert option_of(name) == option.flag
            assert as_options(f"use {name}='x'") == f"use {option.flag} x"


def test_the_warning_of_normality_names_the_method():
    (said,) = warnings_of(NormalityTest(-1.0, 2.0, 1e-9))
    assert "method='em' with population='histogram' estimates" in said


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        ("level=0.5", "use --level"),
        ("key=1", "use --seed"),
        ("dtype=float32", "use --float32"),
        ("start=3", "use --start"),
        ("method=em", "use --method"),
        ("num_draws=5", "use --draws"),
        ("bounds=[0, 2]", "use --bounds"),
        ("data=x.csv", "name the files"),
        ("checkpoint=x", "--resume resumes"),
        ("hyperpriors=1", "in Python"),
    ],
)
def test_set_refuses_what_has_an_option(given, cure):
    with pytest.raises(ValueError, match=rf"^--set {re.escape(given)}: .*{cure}"):
        parse_sets(["order=8", given])
    run = CliRunner().invoke(app, ["fit", "x.csv", "-o", "x", "--set", given])
    assert run.exit_code == 2 and run.stderr.count("\n") == 1
    assert f"--set {given}: " in run.stderr


def shown_help(command: str) -> str:
    run = CliRunner().invoke(app, [command, "--help-all"], env={"COLUMNS": "400"})
    assert run.exit_code == 0, run.exception
    return run.stdout


def test_the_help_has_the_names_of_the_catalogues():
    text = re.sub(r"[\s│]+", " ", shown_help("fit"))
    for name in (*METHODS, *MODELS, *MULTILEVEL_MODELS):
        assert re.search(rf"[ ;]{name}[,;. ]", text), name
    assert "{" not in text.split("Options", 1)[1]


def test_the_help_has_the_defaults_of_the_methods():
    lines = {}
    for line in shown_help("fit").splitlines():
        if found := re.search(r"(--[\w-]+).*\[default: ([^\]]+)\]", line):
            lines[found[1]] = found[2]
    for method in METHODS:
        for field in dataclasses.fields(method_class(method)):
            options = [o for o in OPTIONS if field.name in o.names]
            if method not in ("nuts", "neural", "vibo") or field.default is None:
                continue
            if options and field.name != "amortised":
                shown = lines[FLAGS[field.name]]
                value = str(field.default).removesuffix(".0").strip("(,)") or "none"
                assert re.search(rf"(^|[ ,]){value}($|[ ,])", shown), (field, shown)
    assert lines["--chains"] == "4" and lines["--encoder"] == "lookup"
    assert lines["--epochs"] == "50 (neural), 200 (vibo)"


@pytest.mark.parametrize(
    ("command", "default"),
    [("rank", "4000; "), ("audit", "auto"), ("shrink", "5; ")],
)
def test_other_defaults_are_shown(command, default):
    assert f"[default: {default}" in shown_help(command)


@pytest.mark.parametrize("model", ["graded", "nominal", "partial_credit"])
def test_very_many_categories_are_refused_before_a_fit(tmp_path, model):
    rows = [f"m{s},q{i},{7 * s + i}\n" for s in range(20) for i in range(7)]
    path = tmp_path / "t.csv"
    path.write_text("model,item,score\n" + "".join(rows) + "m20,q0,100000\n")
    words = ["fit", path, "--model", model, "--out", tmp_path / "out"]
    found = CliRunner().invoke(app, [*map(str, words)])
    assert found.exit_code == 2
    assert "141 categories, of at most 100" in found.stderr
    # The cure is typed as it stands.
    assert "--model continuous and --bounds 0 100000" in found.stderr


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ("adapt --fit DIR", "stands without an option: irtjax adapt DIR"),
        ("report --fit DIR --out x.html", "without an option: irtjax report DIR"),
        ("shrink r.csv --fit DIR --out x", "irtjax shrink takes no fit: leave --fit"),
        ("fit r.csv --fit=DIR", "irtjax fit takes no fit: leave --fit out"),
    ],
)
def test_a_fit_where_no_option_takes_it(words, cure):
    result = CliRunner().invoke(app, words.split(), prog_name="irtjax")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert cure in result.stderr
