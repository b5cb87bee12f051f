"""`irtjax power`: how many items does a comparison need?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtjax.cli import config
from irtjax.cli import options as opt
from irtjax.cli.output import print_json
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.validity.power import Power


@dataclasses.dataclass(frozen=True)
class PowerOptions:
    """The comparison to plan: each field is an option."""

    sizes: Annotated[
        str | None,
        opt.option(
            "Numbers of items, the rows of the table. \\[default: 50 to 5000]",
            metavar="N,N...",
        ),
    ] = None
    models: Annotated[
        int | None,
        opt.option("Number of models whose pairs are all compared."),
    ] = None
    difference: Annotated[
        float, opt.option("Difference of two mean scores; 0.05 is five points.")
    ] = 0.05
    accuracy: Annotated[
        float | None, opt.option("Mean score. \\[default: of the data, or 0.7]")
    ] = None
    correlation: Annotated[
        float | None,
        opt.option(
            "Correlation of two models' responses to an item. \\[default: of the data,"
            " or 0.3]"
        ),
    ] = None
    cluster_size: Annotated[
        float | None, opt.option("Items that share a passage. \\[default: 1]")
    ] = None
    cluster_correlation: Annotated[
        float | None,
        opt.option("Correlation of two items of a passage. \\[default: 0.1]"),
    ] = None
    wanted: Annotated[float, opt.option("The power wanted.", "--power")] = 0.8
    level: opt.Level = 0.95

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `irtjax.power`."""
        values = dataclasses.asdict(self)
        values |= {"sizes": _numbers(self.sizes), "power": values.pop("wanted")}
        return values


@opt.with_options
def power_command(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE...]",
            help="Responses, or the folder of a fit: accuracy, correlation and"
            " benchmarks are theirs.",
            show_default=False,
        ),
    ] = None,
    *,
    study: PowerOptions,
    scores: opt.ScoreRange,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Computes which differences a comparison finds, and the items that it needs."""
    opt.check_level(study.level)
    if not files:
        for name in config.typed(reading.chosen()):
            raise ValueError(f"--{name.replace('_', '-')} requires FILE")
        if scores.setting():
            raise ValueError("--bounds requires FILE")
    from irtjax.validity.power import power

    with ProgressLine(output.quiet) as progress:
        progress("read")
        table = scores.rescale(reading.read(files)) if files else None
        result = power(table, **study.arguments())
    if output.json:
        print_json(_document(result))
    elif not output.quiet:
        _show(result)


def _numbers(text: str | None) -> list[int] | None:
    """The numbers of an option such as 100,400."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.replace("_", "").split(",") if part.strip()]
    except ValueError:
        raise ValueError(
            f"--sizes {text} is not a list of whole numbers such as 100,400"
        ) from None


def _document(result: Power) -> dict[str, Any]:
    """What `--json` prints."""
    names = ("difference", "models", "accuracy", "correlation", "level", "power")
    head = {name: getattr(result, name) for name in names}
    needed = ("items_needed", "items_needed_of_pairs")
    head |= {name: getattr(result, name) for name in needed}
    return head | {"design": result.design._asdict(), "rows": result.table.to_pylist()}


def _show(result: Power) -> None:
    """Prints the assumptions, the table and the items that are needed."""
    from irtjax.cli import screen

    columns = {
        "power": f"power for {result.difference:.3g}",
        "detectable": f"found at {result.power:.2g}",
        "half_width": "± score",
    }
    if "power_of_pairs" in result.table.column_names:
        assert result.models is not None
        pairs = f"{result.models * (result.models - 1) // 2:,}"
        columns |= {
            "power_of_pairs": f"in {pairs} pairs",
            "detectable_of_pairs": f"found in {pairs}",
        }
    rows = [
        [f"{row['items']:,}", *(f"{row[x]:.3f}" for x in columns)]
        for row in result.table.to_pylist()
    ]
    assumed, *needed = result.sentences
    screen.show_sentences([assumed])
    screen.show_table("", ["items", *columns.values()], rows, left=0)
    screen.show_sentences(needed)
