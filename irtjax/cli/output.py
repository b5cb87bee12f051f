"""What commands print and write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

#: What `data.item_texts.sample_files` writes, here without importing it.
SAMPLE_FILES = ("lm_eval_samples.json", "inspect_samples.json", "inspect_samples.txt")

#: Of each command that shares names of files with another: the files that show its
#: folder, and the names that are shared. A run has a fit too, so it is first; the page
#: alone is that of two subjects, so `compare` is last.
_OF_FIT = ("fit.json", "items.csv", "structure.png", "summary.md", "report.html")
_OF_FIT += ("abilities.csv", "abilities.parquet", "abilities.png")
_OF_AUDIT = ("items_to_read.csv", "items.csv", "benchmarks.csv", "summary.md")
_OF_ARENA = ("fit.json", "abilities.parquet", "abilities.csv")
SHARED = {
    "arena": (("pairs.csv",), (*_OF_ARENA, "report.html", "abilities.png")),
    "run": (("run.json",), (*_OF_FIT, "items_to_read.csv")),
    "fit": (("fit.json",), _OF_FIT),
    "shrink": (("subset.json",), ("report.html",)),
    "clusters": (("clusters.csv",), ("benchmarks.csv", "structure.png")),
    "adapt --harness": (("harness.json",), ("adapt.csv",)),
    "adapt": (("adapt.parquet",), ("adapt.csv",)),
    "audit": (_OF_AUDIT[1:], (*_OF_AUDIT, "report.html")),
    "compare": (("report.html",), ("report.html",)),
}


def print_json(content: Any) -> None:
    """Prints strict JSON on standard output."""
    import json
    import sys

    from irtjax.storage.plain import plain

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

    screen.show_sentences(sentences)


def written(folder: Path, names: Iterable[str]) -> str:
    """Returns a sentence on which of some files are in a folder."""
    present = ", ".join(name for name in names if (folder / name).is_file())
    # A file without a folder is in this one.
    return f"Written to {present if folder == Path() else f'{folder}: {present}'}"


def check_out_folder(
    out: Path | None,
    names: Iterable[str] = (),
    by: str | None = None,
    command: str | None = None,
) -> None:
    """Refuses a folder that files of these names cannot be written to.

    So is a folder where another command than `by` has written files of such names:
    they would be lost. `command` is what the message calls this one, if not `by`. This
    comes before anything takes time.
    """
    from irtjax.data.writing import check_place

    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a folder")
    if out is not None:
        names = list(names)
        check_place(out, names)
        if by is not None:
            _check_owner(out, names, by, command or by)


def _check_owner(out: Path, names: list[str], by: str, command: str) -> None:
    """Refuses a folder of another command that shares names of files with this one."""
    for owner, (marks, shared) in SHARED.items():
        if not all((out / name).is_file() for name in marks):
            continue
        common = [name for name in shared if name in names]
        if owner != by and common:
            what = f"`irtjax {owner}`" if owner != "compare" else "another page"
            raise ValueError(
                f"--out {out} has files of {what}, and `irtjax {command}` would"
                f" replace {', '.join(common)}: choose another folder, such as"
                f" {out / command.replace(' --', '-')}"
            )
        if common:  # Its own folder.
            return


def check_out_file(out: Path | None, *others: Path) -> None:
    """Refuses a place of a table, and of others, that cannot be written to.

    This comes before anything takes time.
    """
    if out is not None:
        check_table_name(out)
        for path in (out, *others):
            check_file("--out", path)


def check_file(option: str, path: Path) -> None:
    """Refuses a place of a file that cannot be written to."""
    from irtjax.data.writing import check_place

    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder: name a file")
    if not path.parent.is_dir():
        raise ValueError(
            f"cannot write {option} {path}: choose a folder that exists and that you"
            " may write to"
        )
    check_place(path.parent)


def check_table_name(out: Path) -> None:
    """Refuses a name of another ending than those of tables."""
    if out.suffix not in (".csv", ".parquet"):
        raise ValueError(f"--out {out}: the name must end in .csv or .parquet")


def write_files(
    contents: Mapping[Path, pa.Table | Figure | Callable[[Path], Any]],
    stale: Iterable[Path] = (),
) -> None:
    """Writes tables, figures, and what functions write, into one folder: all or none.

    A folder that does not exist is made. Files that are `stale` and not written go.
    """
    from irtjax.data.writing import together
    from irtjax.numerics.progress import watched
    from irtjax.storage import write_table

    (folder,) = {path.parent for path in contents}
    with together(folder, stale=[path.name for path in stale]) as place:
        for path, content in watched(contents.items(), "file"):
            if callable(content):
                content(place / path.name)
            elif hasattr(content, "savefig"):
                from irtjax.plots import save_figure

                save_figure(content, place / path.name)
            else:
                write_table(content, place / path.name)


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Removes files of these names from a folder: all, or none if the process ends."""
    from irtjax.data.writing import together

    paths = [folder / name for name in names]
    present = [x.name for x in paths if x.is_file() or x.is_symlink()]
    if present:
        with together(folder, stale=present):
            pass
