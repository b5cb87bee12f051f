"""What every person checks of what is printed."""

import re

from irtjax.data.text_table import display_width
from tests.cli.test_cli import run


def said(*args: object) -> str:
    """What a command prints; it ends with 0, and standard error has no traceback."""
    done = run(*args)
    assert done.exit_code == 0, done.stderr or done.exception
    assert "Traceback" not in done.stderr and "Traceback" not in done.stdout
    return done.stdout


def words(text: str) -> list[str]:
    """Words and numbers, without what is drawn."""
    return [word for word in text.split() if any(c.isalnum() for c in word)]


def check_short(text: str, folder: object) -> None:
    """A page of text at most, no line wider than a terminal but those with a path."""
    lines = text.splitlines()
    assert len(lines) <= 22 and len(words(text)) <= 130, text
    assert all(display_width(x) <= 80 for x in lines if str(folder) not in x)
    for absent in ("warning", "log-likelihood", "dataclass", "pyarrow"):
        assert absent not in text


def line_of(text: str, name: str) -> str:
    """A line of the verdict with those that continue it."""
    found = re.search(rf"^{name} .*(?:\n {{10}}.*)*", text, re.M)
    return " ".join(found[0].split()) if found is not None else ""
