"""Defaults of options: `irtjax.toml`, or the table `[tool.irtjax]` of `pyproject.toml`.

A table for each command, such as `[fit]`, has its options by their long names; options
above the tables are for every command that has them. A value is read as it would be
typed, so one place decides what is valid.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typer.core import TyperCommand

#: Names of files that are looked for, in the working folder and those above it.
OWN, SHARED = "irtjax.toml", "pyproject.toml"
#: Parameters whose value is a program to run.
_PROGRAMS = ("run",)
#: Parameters that name what is written, and those that let files be replaced.
_WRITTEN, _REPLACING = ("out",), ("overwrite",)
#: The largest file that is read, in bytes.
LARGEST = 1_000_000
#: What the running command took: file and options; None without a file.
_taken: ContextVar[dict[str, Any] | None] = ContextVar("irtjax_config", default=None)


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The tables of one file.

    `named`: whether the user named the file, rather than it being found.
    """

    path: Path
    tables: Mapping[str, Any]
    named: bool = False

    def table(self, command: str) -> str:
        """The head of the table with the options of a command, as in the file."""
        return f"[{'tool.irtjax.' if self.path.name == SHARED else ''}{command}]"

    def defaults(
        self, commands: Mapping[str, TyperCommand]
    ) -> dict[str, dict[str, Any]]:
        """Returns values of parameters by command, every key checked.

        Raises:
            ValueError: In one line, with file and key, for an unknown command or
                option, and for a value that no option has.
        """
        options_of = {name: _options(command) for name, command in commands.items()}
        values: dict[str, dict[str, Any]] = {name: {} for name in commands}
        for key, value in self.tables.items():
            if not isinstance(value, Mapping) and key not in commands:
                having = [name for name in commands if _name(key) in options_of[name]]
                if not having:
                    every = {x for options in options_of.values() for x in options}
                    raise ValueError(
                        f"{self.path}: {key!r} is an option of no command"
                        f"{_instead(_name(key), every)}"
                    )
                for name in having:
                    self._put(values[name], options_of[name], "", key, value)
        # Those of a command's own table replace those of all commands.
        for key, value in self.tables.items():
            if key not in commands and isinstance(value, Mapping):
                raise ValueError(
                    f"{self.path}: {self.table(key)} is no command"
                    f"{_instead(key, commands)}"
                )
            if key in commands and not isinstance(value, Mapping):
                raise ValueError(
                    f"{self.path}: {key} is a command: write {self.table(key)} above"
                    " its options"
                )
            for name, setting in value.items() if key in commands else ():
                if _name(name) not in options_of[key]:
                    raise ValueError(
                        f"{self.path}: {self.table(key)} {name!r} is no option of"
                        f" irtjax {key}"
                        f"{_instead(_name(name), options_of[key])}"
                    )
                self._put(
                    values[key], options_of[key], f"{self.table(key)} ", name, setting
                )
        return values

    def _put(
        self, values: dict, options: dict, place: str, name: str, value: Any
    ) -> None:
        """Adds the value of one option, as the command line has it, to those found."""
        parameter, inverted = options[_name(name)]
        where = f"{self.path}: {place}{name}"
        value = _as_typed(where, parameter, value)
        value = not value if inverted else value
        code = parameter.name in ("model", "method") and ":" in str(value)
        code = "MODULE:NAME imports code" if code else ""
        code = "it runs a program" if parameter.name in _PROGRAMS else code
        if parameter.name in _REPLACING and value:
            code = "it replaces files"
        if any(map(self._is_outside, _written(parameter, value))):
            code = "it writes outside the folder of this file"
        if code and not self.named:
            # A folder from elsewhere must not run code, or write elsewhere, because a
            # command is run in it.
            raise ValueError(
                f"{where}: {code}: write it on the command line, or name the file,"
                f" irtjax --config {self.path}"
            )
        if parameter.metavar in ("FILE", "DIR") or is_path(parameter):
            join = lambda x: os.path.join(self.path.parent, os.path.expanduser(x))
            value = [*map(join, value)] if isinstance(value, list) else join(value)
        values[parameter.name] = value

    def _is_outside(self, path: str) -> bool:
        """Whether a path leads out of the folder of the file."""
        folder = os.path.realpath(self.path.parent)
        place = os.path.realpath(os.path.join(folder, os.path.expanduser(path)))
        return os.path.commonpath([folder, place]) != folder


def _written(parameter: Any, value: Any) -> list[str]:
    """Paths that an option has written, as of `out`, or of the setting `checkpoint`."""
    if parameter.name in _WRITTEN:
        return [str(value)]
    if parameter.name != "set_":
        return []
    pairs = (str(setting).partition("=") for setting in value)
    return [path for name, _, path in pairs if name == "checkpoint"]


def find() -> Configuration | None:
    """Returns the configuration of the working folder, or of the nearest above it."""
    try:
        folder = Path.cwd()
    except OSError:  # It was deleted.
        return None
    for place in (folder, *folder.parents):
        # Folders above may be closed to this user, which `Path.is_file` raises.
        if os.path.isfile(place / OWN):
            return read(place / OWN)
        if os.path.isfile(place / SHARED):
            configuration = read(place / SHARED)
            if configuration.tables:
                return configuration
    return None


def read(path: Path, named: bool = False) -> Configuration:
    """Reads one file; of a `pyproject.toml` the table `[tool.irtjax]`.

    Raises:
        ValueError: If it cannot be read, or is no TOML; in one line.
    """
    shared = path.name == SHARED
    try:
        if not path.is_file():
            raise ValueError("there is no such file")
        if path.stat().st_size > LARGEST:
            raise ValueError("it is no configuration: it is larger than 1 MB")
        content = path.read_bytes()
        if shared and not named and b"irtjax" not in content:
            return Configuration(path, {})
        import tomllib

        tables = tomllib.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is no TOML: it is not UTF-8") from None
    except RecursionError:
        raise ValueError(f"{path}: is no TOML: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if shared:
        tables = tables.get("tool", {})
        tables = tables.get("irtjax", {}) if isinstance(tables, dict) else {}
        if not isinstance(tables, dict):
            raise ValueError(f"{path}: tool.irtjax is no table")
        if named and not tables:
            raise ValueError(f"{path}: it has no table [tool.irtjax]")
    return Configuration(path, tables, named)


def note_taken(context: Any, configuration: Configuration | None) -> None:
    """Notes on standard error what a command takes from a configuration, if anything.

    Args:
        context: Of the command, after its command line was read.
        configuration: What its defaults are of.
    """
    _taken.set(None)
    if configuration is None:
        return
    taken = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if source is not None and source.name == "DEFAULT_MAP":
            taken[key_of(parameter)] = context.params[parameter.name]
    if not taken:
        return
    _taken.set({"file": str(configuration.path), "options": _plain(taken)})
    # A file must not write to a folder of its own in silence.
    chosen = context.params.get("quiet") and (
        "quiet" not in taken or "out" not in taken
    )
    if not chosen:
        from irtjax.cli.errors import one_line

        shown = ", ".join(f"{key} = {_shown(value)}" for key, value in taken.items())
        sys.stderr.write(f"note: from {one_line(f'{configuration.path}: {shown}')}\n")


def taken() -> dict[str, Any] | None:
    """What the running command took from a configuration: its file and options."""
    return _taken.get()


def typed(names: Iterable[str]) -> list[str]:
    """Those of some parameters that were typed, not taken from a configuration."""
    record = _taken.get() or {"options": {}}
    return [name for name in names if _name(name) not in record["options"]]


def key_of(parameter: Any) -> str:
    """The key of an option in a configuration."""
    flags = [flag[2:] for flag in parameter.opts if flag.startswith("--")]
    return flags[0] if flags else _name(parameter.name)


def _options(command: TyperCommand) -> dict[str, tuple[Any, bool]]:
    """Parameters by the names of their long flags, and whether a flag inverts them."""
    by_flag = {}
    for parameter in command.params:
        if parameter.param_type_name != "option":
            continue
        for flags, inverted in (
            (parameter.opts, False),
            (getattr(parameter, "secondary_opts", ()), True),
        ):
            for flag in flags:
                if flag.startswith("--"):
                    by_flag[flag[2:]] = parameter, inverted
    return by_flag


def _name(key: str) -> str:
    """The name of an option; `max_steps` is `max-steps`."""
    return key.replace("_", "-")


def _instead(name: str, names) -> str:
    """What may have been meant, or what there is."""
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f": there are {', '.join(names)}" if len(names) < 25 else ""


def _as_typed(where: str, parameter: Any, value: Any) -> Any:
    """A value in the form in which the command line has it."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise ValueError(f"{where}: write true or false")
        return value
    if isinstance(value, Mapping) and parameter.multiple:
        return [f"{key}={_text(where, x)}" for key, x in value.items()]
    if parameter.multiple:
        values = value if isinstance(value, list) else [value]
        return [_text(where, x) for x in values]
    if parameter.nargs > 1:
        if not isinstance(value, list) or len(value) != parameter.nargs:
            raise ValueError(f"{where}: write a list of {parameter.nargs}")
        return [_text(where, x) for x in value]
    return _text(where, value)


def _text(where: str, value: Any) -> str:
    """A value of the file as the text of an option."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        kind = "true or false" if isinstance(value, bool) else type(value).__name__
        raise ValueError(f"{where}: write text or a number, not {kind}")
    return str(value)


def is_path(parameter: Any) -> bool:
    """Whether an option names a file or folder, in any version of Typer."""
    described = getattr(parameter, "type_descriptor", None)
    if described is not None:
        return bool(described.is_path)
    return getattr(getattr(parameter, "type", None), "name", "") in ("path", "file")


def _plain(value: Any) -> Any:
    """Values as JSON has them."""
    if isinstance(value, dict):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    return str(value) if isinstance(value, Path) else value


def _shown(value: Any) -> str:
    """A value as the configuration file writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
