"""`irtjax rasch`: does the number of right responses say everything?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.progress import ProgressLine
from irtjax.data.wording import counted, listing

if TYPE_CHECKING:
    from irtjax.validity.rasch import Rasch

#: What `--out` writes.
TABLES, FIGURE = ("rasch.csv",), "rasch.png"
#: Items that the screen shows, and that a sentence names.
MOST_ITEMS, MOST_NAMES = 8, 5


@opt.with_options
def rasch_command(
    files: opt.Files,
    groups: Annotated[
        str,
        opt.option(
            "Groups of subjects to compare: score, or a column of the files or of"
            " --subject-table.",
            "--groups",
            "--by",
            metavar="COLUMN",
        ),
    ] = "score",
    subject_table: Annotated[
        Path | None,
        opt.option(
            "Table with a row for each subject: columns subject, and others.",
            metavar="TABLE",
        ),
    ] = None,
    model: Annotated[
        str | None,
        opt.option(
            "rasch (right and wrong), pcm or rsm (ordered categories). Default: rasch"
            " or pcm, by the responses.",
            metavar="MODEL",
        ),
    ] = None,
    out: Annotated[
        Path | None, opt.out("DIR", "Folder for rasch.csv and rasch.png.")
    ] = None,
    seed: opt.Seed = 0,
    *,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Difficulties given the sums of subjects, and tests of the Rasch model."""
    check_out_folder(out, (*TABLES, FIGURE), "rasch")
    with ProgressLine(output.quiet) as progress:
        progress("read")
        table = reading.read(files)
        if groups != "score":
            from irtjax.cli.side_tables import with_groups

            table = with_groups(table, "by", groups, subject_table, "subject")
        progress("test")
        from irtjax.validity.rasch import rasch

        result = rasch(table, groups, model=model, key=seed)
        if out is not None:
            _write(out, result)
    if output.json:
        print_json(_document(result))
    elif not output.quiet:
        _show(result, [] if out is None else [written(out, (*TABLES, FIGURE))])


def _write(out: Path, result: Rasch) -> None:
    """Writes the items, and of two groups the figure, both or none."""
    from irtjax import plots

    contents: dict[Path, Any] = {out / TABLES[0]: result.table}
    if len(result.groups) == 2:
        contents[out / FIGURE] = plots.plot_rasch(result)
    write_files(contents, stale=[out / FIGURE])


def _document(result: Rasch) -> dict[str, Any]:
    """What `--json` prints."""
    names = "model", "log_likelihood", "groups", "rms_difference", "num_subjects"
    tests = {
        name: None if test is None else test._asdict()
        for name, test in (
            ("andersen", result.andersen),
            ("wald", result.wald),
            ("martin_loef", result.martin_loef),
        )
    }
    return {
        **{name: getattr(result, name) for name in (*names, "pairwise")},
        **tests,
        "verdict": result.verdict,
        "items": result.table.to_pylist(),
    }


def _show(result: Rasch, place: list[str]) -> None:
    """The verdict, the tests, and the items that differ most, on the screen."""
    from irtjax.cli import screen
    from irtjax.data.wording import p_text
    from irtjax.report.words import number

    rows = result.table.to_pylist()
    screen.show_sentences([result.verdict + "."])
    cells = [
        [
            name,
            f"{test.statistic:.2f}",
            str(test.df),
            p_text(test.p_value).removeprefix("= ") + " (drawn)" * test.drawn,
        ]
        for name, test in (
            ("Andersen", result.andersen),
            ("Wald", result.wald),
            ("Martin-Löf", result.martin_loef),
        )
        if test is not None
    ]
    screen.show_table("", ["test", "chi-square", "df", "p"], cells)
    shown = [x for x in rows if x.get("q_value") is not None]
    shown = sorted(shown, key=lambda x: x["p_value"])[:MOST_ITEMS]
    cells = [
        [
            row["item"],
            f"{number(row['difficulty'])} ± {number(row['difficulty_se'])}",
            f"{row['difference']:+.2f} ± {number(row['difference_se'])}",
            f"{row['q_value']:.2g}",
        ]
        for row in shown
    ]
    if cells:
        first, second = result.groups
        between = f"{second} less {first}"
        screen.show_table("", ["item", "difficulty", between, "q"], cells)
    test = result.andersen or result.wald
    num_left_out = 0 if test is None else test.left_out
    if num_left_out:
        names = [x["item"] for x in rows if x.get("difference_se", 0) is None]
        place = [
            f"The test of groups leaves out {counted(num_left_out, 'item')} that a"
            f" group does not compare{': ' * bool(names)}{listing(names, MOST_NAMES)}.",
            *place,
        ]
    left = sum(row["difficulty"] is None for row in rows)
    if left:
        place = [
            f"{left} of {len(rows)} items have no difficulty: their responses do not"
            " compare them with the others.",
            *place,
        ]
    screen.show_sentences(place)
