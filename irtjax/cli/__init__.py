"""The command line: names become objects, results become files and tables."""

from __future__ import annotations


def main() -> None:
    """Runs the `irtjax` command; ends the process with its exit code."""
    import gc
    import os

    # Imports and tracing make millions of objects and hardly a cycle: with Python's own
    # threshold the search for cycles is a twelfth of the time of a small fit.
    gc.set_threshold(200_000, 20, 100)
    # Typer's pydantic would read the metadata of every installed package for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # NumPy's products here are small, and idle threads of its library spin: they take a
    # quarter of the processor time of a small fit, and slow down JAX's threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from irtjax.cli.app import app
    from irtjax.cli.machine import hide_pandas

    hide_pandas()
    app(prog_name="irtjax")
