"""What shells complete: the lists against the catalogues, and the scripts in shells."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import irtjax
from irtjax.adaptive.design import SELECTIONS
from irtjax.cli.app import app
from irtjax.cli.completion import METHODS, MODELS, VALUES
from irtjax.estimators import catalogue
from irtjax.inference import KINDS
from irtjax.subsets.selection import RULES
from irtjax.validity.stability import KINDS as STABILITY

CHECKOUT = Path(__file__).resolve().parents[2]


def complete(shell: str, line: str) -> list[str]:
    """What is offered for the last word of a command line."""
    words = line.split(" ")
    env = {"_IRTJAX_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        env |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    else:
        env |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    result = CliRunner().invoke(app, [], env=env, prog_name="irtjax")
    assert result.exit_code == 0, result.exception
    lines = result.stdout.split("\n")
    return [x.split("\t")[0] for x in lines if x]


def test_the_lists_are_those_of_the_catalogues():
    assert set(MODELS) == set(irtjax.MODELS)
    assert list(METHODS) == list(catalogue.METHODS)
    assert set(VALUES["shrink rule"]) == {"auto", *RULES}
    assert set(VALUES["stability kind"]) == set(STABILITY)
    assert set(VALUES["standard_errors"]) == {*KINDS, "none"}
    assert set(VALUES["select"]) == set(SELECTIONS)


def test_every_list_is_of_an_option():
    commands = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    places = {f"{c} {p.name}" for c, x in commands.items() for p in x.params}
    names = {place.split(" ")[1] for place in places}
    assert {x for x in VALUES if " " in x} <= places
    assert {x for x in VALUES if " " not in x} <= names


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("irtjax fit --model grad", ["graded"]),
        ("irtjax fit -m 4", ["4pl"]),
        ("irtjax run x.csv --method la", ["laplace"]),
        ("irtjax fit x.csv --standard-errors s", ["sandwich"]),
        ("irtjax stability --kind ", STABILITY),
        ("irtjax shrink --rule reg", ["regression"]),
        ("irtjax comp", ["compare", "compare-models"]),
        ("irtjax fit --max-st", ["--max-steps"]),
        # Files are left to the shell.
        ("irtjax fit --out ", []),
        ("irtjax fit resu", []),
        ("irtjax --no-c", ["--no-config"]),
    ],
)
def test_values_commands_and_options(shell, line, offered):
    assert sorted(complete(shell, line)) == sorted(offered)


def test_zsh_gets_arguments_or_files():
    assert '"graded"' in complete("zsh", "irtjax fit --model grad")[0]
    assert complete("zsh", "irtjax fit --out ") == ["_files"]


def test_subjects_of_a_fit_are_offered(tmp_path):
    names = ["gpt-4", "gpt 5", "org/gpt", "$(rm)"]
    rows = "".join(f"{x},0\n" for x in names)
    (tmp_path / "abilities.csv").write_text(f"subject,ability\n{rows}")
    place = shlex.quote(str(tmp_path))
    assert complete("bash", f"irtjax compare --fit {place} ") == ["gpt-4", "org/gpt"]
    assert complete("bash", f"irtjax compare --fit {place} a o") == ["org/gpt"]
    assert complete("bash", "irtjax compare --fit nowhere g") == []


def in_shell(shell: str, tmp_path: Path, script: str) -> list[str]:
    """Lines that a script prints in a shell that has the completion of irtjax."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    command = tmp_path / "irtjax"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m irtjax "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PATH": path}
    options = {"bash": ["--norc", "-c"], "fish": ["--no-config", "-c"]}[shell]
    done = subprocess.run(
        [shell, *options, script],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()


def test_the_script_works_in_bash(tmp_path):
    script = (
        'eval "$(_IRTJAX_COMPLETE=source_bash irtjax)"; COMP_CWORD=3;'
        " COMP_WORDS=(irtjax fit --method n); _irtjax_completion irtjax;"
        ' printf "%s\\n" "${COMPREPLY[@]}"; complete -p irtjax'
    )
    found = in_shell("bash", tmp_path, script)
    assert found[:2] == ["neural", "nuts"] and found[2:4] == ["complete", "-o"]


def test_the_script_works_in_fish(tmp_path):
    script = "_IRTJAX_COMPLETE=source_fish irtjax | source;"
    script += ' complete -C "irtjax fit --method la"'
    assert in_shell("fish", tmp_path, script) == ["laplace"]


def test_help_names_the_options_of_completion():
    shown = CliRunner().invoke(app, ["--help"], prog_name="irtjax").stdout
    assert "--install-completion" in shown and "--show-completion" in shown
