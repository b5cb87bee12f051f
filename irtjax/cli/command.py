"""Commands that take defaults from a configuration file and complete their values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from irtjax.cli import completion, config, errors, usual

_ARGUMENTS = "irtjax.arguments"
_CONFIGURATION = "irtjax.configuration"
_HELP_ALL = "irtjax.help_all"
#: The option that lists every option.
HELP_ALL = "--help-all"


def _full(path: Any) -> Any:
    """A path without `~` and `..`, so that all that use it agree on the place."""
    if not isinstance(path, str | Path):
        return path
    full = Path(os.path.expanduser(path))
    # Behind a folder that does not exist the system refuses `..`.
    return Path(os.path.realpath(full)) if ".." in full.parts else full


class Command(TyperCommand):
    """A command of irtjax."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        completion.complete_values(self)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command line; see `TyperCommand.parse_args`."""
        options = args[: args.index("--")] if "--" in args else args
        if HELP_ALL in options:
            ctx.meta[_HELP_ALL] = True
            args = ["--help"]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help, of every option where all are asked for."""
        if ctx.meta.get(_HELP_ALL):
            super().format_help(ctx, formatter)
            return
        with usual.without_rare(self):
            super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; see `TyperCommand.invoke`."""
        for parameter in self.params:
            if config.is_path(parameter):
                ctx.params[parameter.name] = _full(ctx.params[parameter.name])
        config.note_taken(ctx, ctx.meta.get(_CONFIGURATION))
        return super().invoke(ctx)


class Group(errors.ErrorGroup):
    """The group of commands, whose options have the defaults of a configuration."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command line; see `TyperGroup.parse_args`."""
        ctx.meta[_ARGUMENTS] = list(args)
        if args[:1] == [HELP_ALL]:
            args = ["--help"]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; see `TyperGroup.invoke`."""
        # The help is of irtjax, whatever folder it is read in.
        if {"--help", "-h", HELP_ALL} & {*ctx.meta[_ARGUMENTS]}:
            return super().invoke(ctx)
        configuration = _configuration(ctx.params)
        if configuration is None:
            return super().invoke(ctx)
        commands: Any = self.commands
        ctx.meta[_CONFIGURATION] = configuration
        ctx.default_map = configuration.defaults(commands)
        try:
            return super().invoke(ctx)
        except errors.UsageError as error:
            raise _of_file(error, configuration) from None


def _configuration(options: Mapping[str, Any]) -> config.Configuration | None:
    """The configuration that a command line names, or that is found."""
    named = options.get("config")
    if named is not None and options.get("no_config"):
        raise ValueError("--config names a file and --no-config none: leave one out")
    if named is not None:
        return config.read(Path(named), named=True)
    return None if options.get("no_config") else config.find()


def _of_file(error: Any, configuration: config.Configuration) -> Exception:
    """A refusal of a value that the file has, named by file and key; others stay."""
    ctx, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if ctx is None or parameter is None:
        return error
    source = ctx.get_parameter_source(parameter.name)
    if source is None or source.name != "DEFAULT_MAP":
        return error
    table, key = configuration.table(ctx.info_name), config.key_of(parameter)
    return ValueError(f"{configuration.path}: {table} {key}: {error.message}")
