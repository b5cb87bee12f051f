"""Bad input ends with exit code 2 and one line on standard error."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from irtjax.cli.fit_options import FLAGS, OPTIONS
from irtjax.cli.options import READING
from irtjax.report.words import wording

#: Typer's class of usage errors, which it does not export itself.
UsageError: Any = next(
    cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException"
)
BAD_INPUT, INTERRUPTED = 2, 130
#: Options of irtjax itself, not of a command.
_BEFORE = {"--config", "--no-config", "--import", "--version"}
_READING = {name: f"--{name.replace('_', '-')}" for name in READING}
#: Settings of arenas and networks that messages name.
_ARENA = {"ties": "--ties", "both_bad": "--both-bad", "bootstrap": "--bootstrap"}
_FLAGS = _READING | FLAGS | _ARENA | {"top": "--top"}
#: Switches by name, with the flag that turns each off, if there is one.
_SWITCHES = {x.name: x.off for x in OPTIONS if x.kind is bool}
_TEXT = r"(?:'[^']*'|\"[^\"]*\")"
#: A keyword argument: one or several texts, another value, or none.
_KEYWORD = re.compile(
    rf"(?<![\w/.'\",:-])(?<!--set )(?<!\w\()({'|'.join(_FLAGS)})="
    rf"(?:({_TEXT}(?:,? (?:or )?{_TEXT})*)|(None|True|False|\d[\d.e-]*\b|\.\.\.)"
    r"|(?=[\s,;:.)]|$))"
)
#: A setting of `irtjax.fit` without a value, where no other word can be meant.
_SETTING = re.compile(
    r"^(start|priors|penalty)(?= ['\"])"
    rf"|^({'|'.join(FLAGS)})(?= (?:requires|has|have|needs|is|takes?) )"
    rf"|(?<=raise )({'|'.join(FLAGS)})\b|(?<=leave )({'|'.join(FLAGS)})(?= out\b)"
    rf"|^({'|'.join(FLAGS)})(?= [\d,]+: )|(?<=lower )({'|'.join(FLAGS)})\b"
    rf"|(?<=omit )({'|'.join(FLAGS)})(?=[,;]|$)"
    rf"|(?<=and )({'|'.join(FLAGS)})(?= requires )"
    rf"|(?<=requires )({'|'.join(FLAGS)})(?=[ :;,]|$)"
)
#: A metric or filter for each of some benchmarks, or the facet around each nested one.
_BY_BENCHMARK = re.compile(r"\b(metric|filter|nested)=\{([^}]*)\}")
#: A comma between two options.
_BETWEEN = re.compile(rf"(--[\w-]+ (?:{_TEXT}|[^\s,;'\"]+)), (?=--\w)")
_BOUNDS = re.compile(r"\bbounds=\(([-\d.e]+), ([-\d.e]+)\)")
_UNDEFINED = re.compile(
    r"(?<= )((?!__main__)\S+)(\.\w+, which is not defined here: )"
    "import its module before loading"
)


def one_line(message: str) -> str:
    r"""Returns a message without line breaks or control characters.

    >>> one_line(" two\nlines ")
    'two lines'
    """
    printable = "".join(c if c.isprintable() else " " for c in message)
    return " ".join(printable.split())


class ErrorGroup(TyperGroup):
    """The command group that turns every refusal into one line.

    Refusals, and warnings and notes in the files of a command, name options as they are
    typed.
    """

    def main(self, *args: Any, **settings: Any) -> Any:
        """Runs the command; see `TyperGroup.main`."""
        try:
            with wording(as_options):
                code = super().main(*args, **{**settings, "standalone_mode": False})
        except UsageError as error:
            context = getattr(error, "ctx", None)
            command = context.command_path if context is not None else "irtjax"
            option = getattr(error, "option_name", None)
            message = one_line(error.format_message())
            if option in _BEFORE:
                message = f"{option} is written before the command, as irtjax {option}"
            elif option == "--fit" and context is not None:
                message = _without_fit(context)
            _end(f"{message} (see `{command} --help`)", 2)
        except typer.Abort:
            _end("interrupted", INTERRUPTED)
        except (ValueError, OSError, MemoryError, OverflowError) as error:
            if os.environ.get("IRTJAX_TRACEBACK"):
                raise
            _end(explain(error), BAD_INPUT)
        except RuntimeError as error:
            # What XLA makes of an allocation that fails.
            lacking = "RESOURCE_EXHAUSTED" in str(error)
            if not lacking or os.environ.get("IRTJAX_TRACEBACK"):
                raise
            _end(explain(MemoryError()), BAD_INPUT)
        else:
            if code == INTERRUPTED:  # What Typer makes of Ctrl-C.
                _end("interrupted", INTERRUPTED)
            sys.exit(code if isinstance(code, int) else 0)


def _without_fit(context: Any) -> str:
    """Where a command that has no option --fit takes the fit, if it does."""
    command, parameters = context.command_path, context.command.params
    if any(x.param_type_name == "argument" and x.metavar == "DIR" for x in parameters):
        return f"the folder of a fit stands without an option: {command} DIR"
    return f"{command} takes no fit: leave --fit out"


def explain(error: BaseException) -> str:
    """Returns what went wrong, in one line."""
    if isinstance(error, MemoryError):
        return "not enough memory: fit fewer items or subjects, or use --float32"
    if isinstance(error, OverflowError):
        return f"a number is too large: {one_line(str(error))}"
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{place}"
    return as_options(one_line(str(error))) or type(error).__name__


def as_options(message: str) -> str:
    """Returns a message in which settings of Python are options as they are typed.

    >>> as_options("choose one with metric= among a, b, or pass missing_as='wrong'")
    'choose one with --metric among a, b, or pass --missing-as wrong'
    >>> as_options("raise max_steps, or use method='em' or 'saem', not 'mm'")
    "raise --max-steps, or use --method em or saem, not 'mm'"
    >>> as_options("as in metric={'arc': 'acc', 'gsm8k': 'exact_match'}, or leave")
    'as in --metric arc=acc --metric gsm8k=exact_match, or leave'
    >>> as_options("take them as scores, with bounds=(0, 100)")
    'take them as scores, with --bounds 0 100'
    >>> as_options("it may be subject='a model', item='doc.id'")
    "it may be --subject 'a model' --item doc.id"
    >>> as_options("benchmark math:subject=algebra,level=1 has several metrics")
    'benchmark math:subject=algebra,level=1 has several metrics'
    """
    message = _BY_BENCHMARK.sub(_options_by_benchmark, message)
    message = _BOUNDS.sub(r"--bounds \1 \2", message)
    message = _BETWEEN.sub(r"\1 ", _KEYWORD.sub(_option, message))
    message = _SETTING.sub(lambda found: _FLAGS[found[0]], message)
    return _UNDEFINED.sub(r"\1\2add --import \1 before the command", message)


def _options_by_benchmark(match: re.Match[str]) -> str:
    """A mapping as the options that it stands for."""
    pairs = re.findall(rf"({_TEXT}): ({_TEXT})", match[2])
    words = (shlex.quote(f"{k[1:-1]}={v[1:-1]}") for k, v in pairs)
    return " ".join(f"--{match[1]} {word}" for word in words)


def _option(match: re.Match[str]) -> str:
    """The option of a keyword argument; what has none stays."""
    name, texts, value = match.groups()
    flag = _FLAGS[name]
    if texts:
        # Quotes stay where the shell needs them.
        bare = re.sub(r"""(['"])([\w.:/*-]+)\1""", r"\2", texts)
        return f"{flag} {bare}"
    if value in ("True", "False") and name in _SWITCHES:
        return (flag if value == "True" else _SWITCHES[name]) or match[0]
    if value in ("True", "False", "None"):
        return "--priors none" if (name, value) == ("priors", "None") else match[0]
    return f"{flag} {value}" if value else flag


def lead_with_option(message: str, options: Mapping[str, str]) -> str:
    """Returns a message that begins with an option for the argument it begins with.

    >>> lead_with_option("size 9 is too large", {"size": "--size"})
    '--size 9 is too large'
    """
    name, space, rest = message.partition(" ")
    return f"{options.get(name, name)}{space}{rest}"


def _end(message: str, code: int) -> None:
    """Prints one line and ends the process."""
    sys.stderr.write(f"irtjax: {one_line(message)}\n")
    sys.exit(code)
