"""What commands print and write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def print_json(content: Any) -> None:
    """Prints strict JSON on standard output."""
    import json
    import sys

    from irtjax.storage.encoding import plain

    text = json.dumps(plain(content), allow_nan=False, ensure_ascii=False)
    sys.stdout.write(text + "\n")
    # A reader that went away (`| head`) shows here, where it is handled.
    sys.stdout.flush()


def command_line() -> str | None:
    """Returns the command as it was typed; None in a process of another program."""
    import shlex
    import sys

    program = Path(sys.argv[0])
    names = program.stem, program.parent.name
    if names[0] != "irtjax" and names != ("__main__", "irtjax"):
        return None
    return shlex.join(["irtjax", *sys.argv[1:]])


def say(*sentences: str) -> None:
    """Prints sentences on standard output."""
    from irtjax.cli import screen

    screen.show_sentences(screen.console(), sentences)


def written(folder: Path, names: Iterable[str]) -> str:
    """Returns a sentence on which of some files are in a folder."""
    found = ", ".join(name for name in names if (folder / name).is_file())
    return f"Written to {folder}: {found}"


def check_out_folder(out: Path | None) -> None:
    """Refuses a folder that is a file."""
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a folder")


def check_out_file(out: Path | None) -> None:
    """Refuses a place that cannot be written before anything takes time."""
    if out is None:
        return
    check_table_name(out)
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder: name a file")
    from irtjax.data.files import atomic_path

    probe = out.with_name(f".{out.name}.probe")
    with atomic_path(probe):
        pass
    probe.unlink(missing_ok=True)


def check_table_name(out: Path) -> None:
    """Refuses a name of another ending than those of tables."""
    if out.suffix not in (".csv", ".parquet"):
        raise ValueError(f"--out {out}: the name must end in .csv or .parquet")


def make_folder(out: Path) -> None:
    """Makes the folder that a command writes to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make --out {out}: {error.strerror}") from None


def write_files(contents: Mapping[Path, pa.Table | Callable[[Path], Any]]) -> None:
    """Writes tables, and what functions write, whole or not at all.

    Files appear together: they are renamed only after the last was written.
    """
    from irtjax.data.files import atomic_path
    from irtjax.storage import write_table

    with ExitStack() as stack:
        for path, content in contents.items():
            place = stack.enter_context(atomic_path(path))
            if callable(content):
                content(place)
            else:
                write_table(content, place)
