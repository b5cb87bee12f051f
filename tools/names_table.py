"""Writes the table of names in `docs/cli.md`: `python -m tools.names_table`.

An option of several commands is one thing with one name. The table lists each with its
commands, as the commands have them. `tests/cli/test_names.py` fails where the table is
not the one that this writes.
"""

import itertools
from collections import defaultdict
from pathlib import Path

from typer.main import get_command

from irtjax.cli.app import app
from irtjax.cli.options import READING

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEADING = "## Table of names\n"
#: Options of one command need no table: its own section has them.
LEAST = 2
#: Options side by side: the page has at most 150 lines.
ACROSS = 3


def options() -> dict[str, dict[str, object]]:
    """Parameters by the long name of their option, and by command."""
    found: dict[str, dict[str, object]] = defaultdict(dict)
    commands = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    for command, parts in sorted(commands.items()):
        for parameter in parts.params:
            for flag in [*parameter.opts, *parameter.secondary_opts]:
                if flag.startswith("--"):
                    found[flag][command] = parameter
    return found


def section() -> str:
    """The section of the page."""
    every = options()
    total = len({command for commands in every.values() for command in commands})
    reading = {f"--{name.replace('_', '-')}" for name in READING}
    rows = []
    for flag, commands in sorted(every.items()):
        if len(commands) < LEAST or flag in reading | {"--no-texts"}:
            continue
        missing = total - len(commands)
        names = ", ".join(f"`{name}`" for name in commands)
        rows.append(f"`{flag}` | {'all' if not missing else names}")
    # In reading order down each part.
    size = -(-len(rows) // ACROSS)
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    together = itertools.zip_longest(*parts, fillvalue=" | ")
    rows = [f"| {' | '.join(row)} |" for row in together]
    head = "Options that several commands have; those of reading are above."
    top = "| option | commands " * len(parts) + "|"
    lines = [HEADING, head, "", top, "|---|---" * len(parts) + "|", *rows]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with its section."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(HEADING)
    _, mark, after = rest.partition("\n## ")
    return f"{before}{section()}{mark}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
