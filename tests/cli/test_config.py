"""Defaults from irtjax.toml and pyproject.toml: found, checked, noted, recorded."""

from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from irtjax.cli import config
from irtjax.cli.app import app

RESPONSES = "model,item,correct\n" + "".join(
    f"m{i},q{j},{int(i > j)}\n" for i in range(4) for j in range(3)
)


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="irtjax")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder two below one that may have a configuration."""
    place = tmp_path / "project" / "logs"
    place.mkdir(parents=True)
    (place / "r.csv").write_text(RESPONSES)
    monkeypatch.chdir(place)
    return tmp_path


def put(folder: Path, text: str, name: str = "irtjax.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def defaults(text: str, folder: Path, named: bool = False):
    commands = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    return config.read(put(folder, text), named).defaults(commands)


def test_the_nearest_file_above_gives_defaults_that_are_noted(folder):
    put(folder, "[info]\njson = true\n")
    assert run("info", "r.csv").stdout.startswith("{")
    path = put(folder / "project", '[info]\nquiet = false\nmissing_as = "wrong"\n')
    found = run("info", "r.csv")
    assert found.exit_code == 0 and not found.stdout.startswith("{")
    assert found.stderr == f"note: from {path}: quiet = false, missing-as = wrong\n"


def test_the_command_line_wins_and_no_config_takes_none(folder):
    put(folder, '[info]\nmissing_as = "nonsense"\n')
    assert run("info", "r.csv").exit_code == 2
    won = run("info", "r.csv", "--missing-as", "wrong")
    assert won.exit_code == 0 and won.stderr == ""
    without = run("--no-config", "info", "r.csv")
    assert without.exit_code == 0 and without.stderr == ""


def test_a_table_of_pyproject_is_one_too(folder):
    put(folder, "[info]\njson = true\n")
    # Without the table it is somebody else's.
    put(folder / "project", '[project]\nname = "irtjax-user"\n', "pyproject.toml")
    assert run("info", "r.csv").stdout.startswith("{")
    text = "[tool.irtjax]\nquiet = true\n"
    path = put(folder / "project", text, "pyproject.toml")
    assert run("info", "r.csv").output == ""
    put(folder, "")
    assert run("--config", path, "info", "r.csv").output == ""
    # A message has the name that the table has in this file.
    path = put(folder / "project", "[tool.irtjax]\nfit = 1\n", "pyproject.toml")
    for text in ("fit = 1", "[tool.irtjax.fit]\nlevl = 1"):
        put(folder / "project", f"[tool.irtjax]\n{text}\n", "pyproject.toml")
        said = run("--config", path, "info", "r.csv").stderr
        assert "[tool.irtjax.fit]" in said and said.startswith(f"irtjax: {path}: ")


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ('out = "../elsewhere"', "it writes outside the folder of this file"),
        ('out = "/tmp/elsewhere"', "it writes outside the folder of this file"),
        ('out = "link/fit"', "it writes outside the folder of this file"),
        ('set.checkpoint = "../run.npz"', "it writes outside the folder of this file"),
        ("overwrite = true", "it replaces files"),
    ],
)
def test_a_found_file_neither_writes_elsewhere_nor_replaces(folder, text, because):
    (folder / "project" / "logs" / "link").symlink_to(folder)
    path = put(folder / "project" / "logs", f"[fit]\n{text}\n")
    refused = run("fit", "r.csv")
    assert refused.exit_code == 2 and because in refused.stderr
    assert f"irtjax --config {path}" in " ".join(refused.stderr.split())
    # A file that is named is trusted.
    assert defaults(f"[fit]\n{text}\n", folder / "project" / "logs", named=True)["fit"]


def test_a_found_file_that_writes_is_noted_though_it_asks_for_silence(folder):
    text = 'quiet = true\n[simulate]\nout = "s.csv"\n'
    path = put(folder / "project" / "logs", text)
    found = run("simulate", "--num-subjects", 5, "--num-items", 3)
    assert found.exit_code == 0
    assert found.stderr.startswith(f"note: from {path}: ")
    assert "out = " in found.stderr


def test_quiet_commands_are_not_noted(folder):
    put(folder, "[info]\njson = true\n")
    assert run("info", "r.csv", "--quiet").stderr == ""


def test_help_is_that_of_irtjax_in_any_folder(folder):
    usual = run("shrink", "--help").stdout
    put(folder, "[shrink]\nsize = 77\n")
    assert run("shrink", "--help").stdout == usual
    put(folder, "this is no TOML")
    assert run("shrink", "-h").stdout == usual
    assert run("--help").exit_code == run("--version").exit_code == 0


def test_values_are_as_typed(folder):
    found = defaults(
        "level = 0.9\n[fit]\nlevel = 0.8\nmax-steps = 9\nbounds = [0, 10]\n"
        'set.order = 8\nfigures = false\nitems-known = true\nanchor = "a.csv"\n'
        'metric = "acc"\n'
        'out = "/o"\n[audit]\nchance = {arc = 0.25}\nno-figures = true\n'
        '[score]\nfit = "f"\n',
        folder,
        named=True,
    )
    fit = found["fit"]
    assert fit["level"] == "0.8" and found["rank"]["level"] == "0.9"
    assert fit["max_steps"] == "9" and fit["bounds"] == ["0", "10"]
    assert fit["set_"] == ["order=8"] and fit["metric"] == ["acc"]
    assert fit["figures"] is False and fit["item_uncertainty"] is False
    # Files are where the configuration is.
    assert fit["anchor"] == str(folder / "a.csv") and fit["out"] == "/o"
    assert found["score"]["fit"] == str(folder / "f")
    assert found["audit"]["chance"] == ["arc=0.25"]
    assert found["audit"]["figures"] is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[info", r"Expected .\]. at the end of a table"),
        ("[fitt]\nx = 1", r"\[fitt\] is no command; did you mean fit\?"),
        ("[fit]\nmodle = 1", r"\[fit\] 'modle' is no option.*did you mean model\?"),
        ("[info]\nmodel = 1", r"\[info\] 'model' is no option of irtjax info"),
        ("modle = 1", "'modle' is an option of no command"),
        ("fit = 1", r"write \[fit\]"),
        ("[info]\njson = 1", r"\[info\] json: write true or false"),
        ("[info]\nepoch = true", r"\[info\] epoch: write text or a number"),
        ("[info]\nepoch = 1.5", r"\[info\] epoch: "),
        ("[info]\nepoch = []", r"\[info\] epoch: write text or a number, not list"),
        ("[fit]\nbounds = 3", r"\[fit\] bounds: write a list of 2"),
        ('[fit]\nmodel = "os:path"', r"\[fit\] model: MODULE:NAME imports code"),
        ('[adapt]\nrun = "touch x"', r"\[adapt\] run: it runs a program"),
        ('import = "os"', "'import' is an option of no command"),
        ("a" * 1_000_001, "larger than 1 MB"),
        ("a=" + "[" * 5000, "nested too deeply|is no TOML|at line|at end"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(folder, text, message):
    import re

    path = put(folder, text)
    result = run("info", "r.csv")
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"irtjax: {path}: ")
    assert re.search(message, result.stderr), result.stderr


def test_a_named_file_may_name_a_model_of_your_own(folder):
    found = defaults('[fit]\nmodel = "mine:Model"', folder, named=True)
    assert found["fit"]["model"] == "mine:Model"
    found = defaults('[adapt]\nrun = "lm_eval"', folder, named=True)
    assert found["adapt"]["run"] == "lm_eval"


def test_homes_and_two_dots_are_resolved_once(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    for given, place in (
        ("~/none/../r.csv", folder / "r.csv"),
        ("~/r.csv", folder / "r.csv"),
        ("aa/../r.csv", Path("r.csv").absolute()),
        ("~nosuchuser.csv", Path("~nosuchuser.csv")),
    ):
        result = run(
            "simulate", "--num-subjects", 3, "--num-items", 3, f"--out={given}"
        )
        assert result.exit_code == 0, result.stderr or result.exception
        assert f"{place}" in result.stdout and place.is_file()
    put(folder / "project", '[simulate]\nout = "~nosuchuser/r.csv"')
    result = run("simulate", "--num-subjects", 3, "--num-items", 3)
    assert result.exit_code == 2 and "choose a folder that exists" in result.stderr
    assert "no such file" in run("info", "~nosuchuser").stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--config", "none.toml", "info", "r.csv"], "no such file"),
        (["--config", "r.csv", "--no-config", "info", "r.csv"], "leave one out"),
        (["info", "r.csv", "--config", "x.toml"], "written before the command"),
        (["--config", "r.csv", "info", "r.csv"], "r.csv: .*line"),
    ],
)
def test_options_of_the_configuration(folder, args, message):
    import re

    result = run(*args)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert re.search(message, result.stderr), result.stderr


def test_options_that_a_command_cannot_use_are_not_held_against_a_file(folder):
    from irtjax.cli.options import Reading
    from irtjax.cli.rank import _check_reading

    put(folder, '[info]\nsubject = "model"\n')
    assert run("info", "r.csv").exit_code == 0
    assert config.taken() == {
        "file": str(folder / "irtjax.toml"),
        "options": {"subject": "model"},
    }
    _check_reading(Reading(subject="model"), None)
    run("--no-config", "info", "r.csv")
    assert config.taken() is None
    with pytest.raises(ValueError, match="--subject requires"):
        _check_reading(Reading(subject="model"), None)
