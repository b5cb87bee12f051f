"""The command line: names become objects, results become files and tables."""

from __future__ import annotations


def main() -> None:
    """Runs the `irtjax` command; ends the process with its exit code."""
    from irtjax.cli.app import app
    from irtjax.cli.machine import hide_pandas

    hide_pandas()
    app(prog_name="irtjax")
