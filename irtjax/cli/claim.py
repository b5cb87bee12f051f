"""`irtjax claim`: what may be said of subjects?"""

from __future__ import annotations

import csv
import dataclasses
import functools
from pathlib import Path
from typing import Annotated

import typer

from irtjax.cli import config, gates
from irtjax.cli import options as opt
from irtjax.cli.output import check_file, print_json, write_files, written
from irtjax.cli.pipeline import load_fit, responses_of
from irtjax.cli.progress import ProgressLine


@dataclasses.dataclass(frozen=True)
class ClaimOptions:
    """What a claim depends on beside responses: each field is an option."""

    costs: Annotated[
        Path | None,
        opt.option("CSV file with the columns subject and cost.", metavar="FILE"),
    ] = None
    margin: Annotated[
        float | None, opt.option('Points by which "no worse" may be worse.')
    ] = None
    record: Annotated[
        float | None,
        opt.option(
            "Score of the record, in points. \\[default: the best of the others]"
        ),
    ] = None
    run_sd: opt.RunSd = None
    anytime: Annotated[
        bool,
        opt.option("The verdict holds however often it is looked at.", "--anytime"),
    ] = False

    def arguments(self) -> dict[str, object]:
        """Returns the arguments of `irtjax.claim`."""
        values = dataclasses.asdict(self)
        if self.costs is not None:
            values["costs"] = _costs(self.costs)
        return values


@opt.with_options
def claim_command(
    text: Annotated[
        str,
        typer.Argument(
            metavar="CLAIM",
            help='"A > B", "A in top 3", "A is the best", "A within 2 points of'
            ' B", "A cheaper than B and no worse", "A beats the record", "A above'
            ' 85".',
            show_default=False,
        ),
    ],
    files: opt.MaybeFiles = None,
    fit: Annotated[
        Path | None,
        opt.option("Folder of a fit that keeps its responses.", metavar="DIR"),
    ] = None,
    out: Annotated[
        Path | None, opt.out("FILE", "Page of Markdown: data, backing, rebuttals.")
    ] = None,
    gate: Annotated[
        bool,
        opt.option("Exit with status 1 unless the claim is supported.", "--gate"),
    ] = False,
    level: opt.Level = 0.95,
    seed: opt.Seed = 0,
    *,
    about: ClaimOptions,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Says whether a claim about subjects is supported, and what would decide it."""
    opt.check_level(level)
    if out is not None:
        check_file("--out", out)
    if fit is None and not files:
        raise ValueError("name the responses, `irtjax claim CLAIM FILE`, or --fit DIR")
    for name in config.typed(reading.chosen()) if not files else ():
        raise ValueError(f"--{name.replace('_', '-')} requires FILE to read")
    from irtjax.data.fit_folder import coded_responses, is_fit
    from irtjax.data.writing import write_text
    from irtjax.validity.claims import claim, parse

    parse(text)
    with ProgressLine(output.quiet) as progress:
        progress("read")
        if fit is None:
            table = reading.read(files or [])
        elif files or not is_fit(fit):
            table = responses_of(load_fit(fit), fit, files, reading)
        else:
            table = coded_responses(fit)
        progress("claim")
        result = claim(text, table, level=level, key=seed, **about.arguments())  # type: ignore[arg-type]
        if out is not None:
            write_files({out: functools.partial(write_text, result.report())})
    if output.json:
        names = [field.name for field in dataclasses.fields(result)]
        document = {name: getattr(result, name) for name in names}
        print_json(document | {"sentence": result.sentence})
    elif not output.quiet:
        from irtjax.cli import screen

        place = [] if out is None else [written(out.parent, [out.name])]
        screen.show_sentences([result.sentence, *_decided(result), *place])
    if gate and result.verdict != "supported":
        gates.end([f"the claim is {result.verdict}: {text}"])


def _decided(result) -> list[str]:
    """What would decide a claim that is open."""
    from irtjax.data.wording import points

    if result.verdict != "open" or result.items_needed is None:
        return []
    cost = result.cost_needed
    price = "" if cost is None else f", for {cost:,.2f} more"
    return [
        f"These items find a difference of {points(result.detectable, 3)}; the"
        f" estimated one needs {result.items_needed:,} items{price}."
    ]


def _costs(path: Path) -> dict[str, float]:
    """Costs by subject."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        if not {"subject", "cost"} <= {*(reader.fieldnames or ())}:
            raise ValueError(f"--costs {path}: the columns are subject and cost")
        costs = {}
        for number, row in enumerate(reader, 2):
            try:
                costs[row["subject"]] = float(row["cost"])
            except ValueError:
                raise ValueError(
                    f"--costs {path}, line {number}: {row['cost']!r} is no number"
                ) from None
    return costs
