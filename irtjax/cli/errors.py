"""Bad input ends with exit code 2 and one line on standard error."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from irtjax.cli.options import Reading

#: Typer's class of usage errors, which it does not export itself.
_UsageError: Any = next(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException"
)
BAD_INPUT = 2
_NAMES = "|".join(field.name for field in dataclasses.fields(Reading))
_KEYWORD = re.compile(rf"(?<![\w/.-])({_NAMES})=(?:(?=[\s,;:.)]|$)|(['\"]))")


def one_line(message: str) -> str:
    r"""Returns a message without line breaks or control characters.

    >>> one_line(" two\nlines ")
    'two lines'
    """
    printable = "".join(c if c.isprintable() else " " for c in message)
    return " ".join(printable.split())


class Group(TyperGroup):
    """The command group that turns every refusal into one line."""

    def main(self, *args: Any, **given: Any) -> Any:
        """Runs the command; see `TyperGroup.main`."""
        try:
            code = super().main(*args, **{**given, "standalone_mode": False})
        except _UsageError as error:
            context = getattr(error, "ctx", None)
            command = context.command_path if context is not None else "irtjax"
            _end(f"{one_line(error.format_message())} (see `{command} --help`)", 2)
        except typer.Abort:
            _end("interrupted", 130)
        except (ValueError, OSError, MemoryError) as error:
            if os.environ.get("IRTJAX_TRACEBACK"):
                raise
            _end(_explain(error), BAD_INPUT)
        else:
            sys.exit(code if isinstance(code, int) else 0)


def _explain(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "not enough memory: fit fewer items or subjects, or use --float32"
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{place}"
    return as_options(one_line(str(error))) or type(error).__name__


def as_options(message: str) -> str:
    """Returns a message in which Python's keyword arguments are options.

    >>> as_options("choose one with metric= among a, b, or pass missing_as='wrong'")
    "choose one with --metric among a, b, or pass --missing-as 'wrong'"
    """

    def option(match: re.Match[str]) -> str:
        value = f" {match[2]}" if match[2] else ""
        return f"--{match[1].replace('_', '-')}{value}"

    return _KEYWORD.sub(option, message)


def lead_with_option(message: str, options: Mapping[str, str]) -> str:
    """Returns a message that begins with an option for the argument it begins with.

    >>> lead_with_option("size 9 is too large", {"size": "--size"})
    '--size 9 is too large'
    """
    name, space, rest = message.partition(" ")
    return f"{options.get(name, name)}{space}{rest}"


def _end(message: str, code: int) -> None:
    sys.stderr.write(f"irtjax: {one_line(message)}\n")
    sys.exit(code)
