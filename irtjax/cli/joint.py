"""`irtjax joint`: fits, arenas and other scores of the same models on one scale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtjax.cli import options as opt
from irtjax.cli.machine import prepare
from irtjax.cli.output import check_out_folder, print_json, say, write_files, written
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.comparisons.joint import Joint

#: What `--out` writes; the figure is of the first two sources.
TABLES = ("source_agreement.csv", "residuals.csv", "shared_abilities.csv")
FIGURE = "sources.png"
#: Models that the table on screen names for each source: the farthest ones.
SHOWN = 5


@opt.with_options
def joint_command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=PLACE...",
            help="Folder of a fit or of an arena, or a CSV or Parquet file with"
            " subject, ability and ability_se.",
            show_default=False,
        ),
    ],
    names: Annotated[
        Path | None,
        opt.option(
            "CSV or Parquet file with the columns name, as a source has it, and"
            " subject, the common name.",
            metavar="FILE",
        ),
    ] = None,
    weight: Annotated[
        list[str] | None,
        opt.option(
            "Weight of a source in the shared ability; may be repeated. \\[default: 1]",
            metavar="NAME=X",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        opt.out("DIR", f"Folder for {', '.join(TABLES)} and a figure."),
    ] = None,
    level: opt.Level = 0.95,
    *,
    output: opt.Output,
) -> None:
    """Joins votes, accuracy and other scores: do they agree, and on which models?"""
    opt.check_level(level)
    check_out_folder(out, (*TABLES, FIGURE))
    places = dict(_parts(x, "votes=arena") for x in sources)
    if len(places) < len(sources):
        raise ValueError("two sources have the same name: give each one of its own")
    weights = {}
    for name, text in (_parts(x, "--weight votes=1") for x in weight or []):
        try:
            weights[name] = float(text)
        except ValueError:
            raise ValueError(f"--weight {name}={text}: give a number") from None
    with ProgressLine(output.quiet) as progress:
        progress("read")
        prepare()
        from irtjax.comparisons.joint import fit_jointly

        measured = {name: _source(name, Path(x)) for name, x in places.items()}
        common = None if names is None else _names(names)
        progress("fit")
        joint = fit_jointly(weights=weights, names=common, level=level, **measured)
        if out is not None:
            progress("write")
            _write(joint, out)
    if output.json:
        rows = {"residuals": joint.residuals.to_pylist()}
        print_json(
            joint.document() | rows | {"abilities": joint.abilities.rank().rows()}
        )
    elif not output.quiet:
        _show(joint, out)


def _parts(text: str, example: str) -> tuple[str, str]:
    """The name and the value of NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise ValueError(f"{text!r} is not NAME=VALUE, such as {example}")
    return name, value


def _source(name: str, place: Path) -> Any:
    """A fit, an arena, or abilities of a table."""
    from irtjax.data.fit_folder import is_arena
    from irtjax.storage import load, load_arena

    if place.is_dir():
        return load_arena(place) if is_arena(place) else load(place)
    import numpy as np

    from irtjax.calibration.abilities import Abilities
    from irtjax.cli.side_tables import column, read_content

    content = read_content(f"{name}=", place)
    names, ability, error = (
        column(f"{name}=", place, content, x)
        for x in ("subject", "ability", "ability_se")
    )
    try:
        return Abilities(names, np.array(ability, float), np.array(error, float))
    except (TypeError, ValueError) as problem:
        raise ValueError(f"{name}={place}: {problem}") from None


def _names(path: Path) -> dict[str, str]:
    """Common names by those of the sources."""
    from irtjax.cli.side_tables import column, read_content

    content = read_content("--names", path)
    pair = (column("--names", path, content, x) for x in ("name", "subject"))
    return {str(own): str(common) for own, common in zip(*pair, strict=True)}


def _write(joint: Joint, out: Path) -> None:
    """Writes tables and the figure."""
    import pyarrow as pa

    from irtjax.plots import plot_sources

    agreement = pa.Table.from_pylist([row._asdict() for row in joint.agreement])
    tables = agreement, joint.residuals, joint.abilities.rank().table
    contents: dict[Path, Any] = {
        out / name: table for name, table in zip(TABLES, tables, strict=True)
    }
    if len(joint.sources) > 1:
        first, second = list(joint.sources)[:2]
        contents[out / FIGURE] = plot_sources(joint, first, second)
    write_files(contents, stale=[out / FIGURE])


def _show(joint: Joint, out: Path | None) -> None:
    """Prints the agreement, and the models that differ most in each source."""
    from irtjax.cli.screen import show_text
    from irtjax.data.wording import counted, percent
    from irtjax.report.words import short

    show_text("Correlation of true abilities")
    for row in joint.agreement:
        show_text(
            f"  {row.first}, {row.second}: {row.correlation:.2f} [{row.lower:.2f},"
            f" {row.upper:.2f}] by {counted(row.num_common, 'model')}"
        )
    for source in joint.sources if joint.agreement else ():
        rows = joint.differences(source)
        title = counted(len(rows), "model")
        show_text(f"\n{title} with more or less {source} than expected")
        far = sorted(rows, key=lambda row: -abs(row["residual"]))[:SHOWN]
        for row in sorted(far, key=lambda row: -row["residual"]):
            residual, error = row["residual"], row["residual_se"]
            show_text(
                f"  {short(row['subject'], 34):<34} {residual:+6.2f} ± {error:.2f}"
            )
    rate = percent(1 - joint.level)
    say(
        f"± is a standard error; false discoveries are at most {rate}.",
        *joint.warnings,
        *joint.notes,
        "" if out is None else written(out, (*TABLES, FIGURE)),
    )
