"""`irtjax adapt`: how adaptive tests over the items of a fit would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtjax.cli import options as opt
from irtjax.cli.progress import Progress

if TYPE_CHECKING:
    from irtjax.adaptive import SimulatedTests
    from irtjax.calibration.calibration import Calibration

#: Lengths at which the table shows the errors.
SHOWN = (1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000)

_Stop = "Ending"
_Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="Folder that `irtjax fit` wrote.", show_default=False
    ),
]
_Items = Annotated[
    int,
    typer.Option(
        "--items", help="Items of a test, at the most.", rich_help_panel=_Stop
    ),
]
_Error = Annotated[
    float | None,
    typer.Option("--se", help="End below this error.", rich_help_panel=_Stop),
]
_Reliability = Annotated[
    float | None,
    typer.Option(
        "--reliability", help="End above this reliability.", rich_help_panel=_Stop
    ),
]
_Gain = Annotated[
    float | None,
    typer.Option(
        "--gain",
        help="End when no item left has this share of the test information.",
        rich_help_panel=_Stop,
    ),
]
_Select = Annotated[str, typer.Option("--select", help="information, random or fixed.")]
_Score = Annotated[str, typer.Option("--score", help="eap or map.")]
_Randomesque = Annotated[
    int,
    typer.Option(
        "--randomesque", metavar="K", help="Draw from the K most informative items."
    ),
]
_Quota = Annotated[
    bool, typer.Option("--quota", help="Give every benchmark an equal share.")
]
_Exposure = Annotated[
    float | None,
    typer.Option(
        "--max-exposure", help="Largest share of the tests that may use an item."
    ),
]
_Subjects = Annotated[
    int, typer.Option("--subjects", help="Number of simulated subjects.")
]
_Responses = Annotated[
    list[str] | None,
    typer.Option(
        "--responses",
        metavar="FILE",
        help="Replay the recorded responses of real subjects instead.",
    ),
]
_Length = Annotated[
    str | None,
    typer.Option(
        "--length",
        help="Of --responses: column of response lengths; for a wide matrix, the file.",
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="Folder for adapt.parquet, adapt.csv and adapt.png.",
    ),
]


def adapt_command(
    folder: _Folder,
    items: _Items = 50,
    se: _Error = None,
    reliability: _Reliability = None,
    gain: _Gain = None,
    select: _Select = "information",
    score: _Score = "eap",
    randomesque: _Randomesque = 1,
    quota: _Quota = False,
    max_exposure: _Exposure = None,
    subjects: _Subjects = 200,
    responses: _Responses = None,
    length: _Length = None,
    seed: opt.Seed = 0,
    out: _Out = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Simulates adaptive tests over the items of a fit, compared with random items."""
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a folder")
    if length is not None and not responses:
        raise ValueError("--length requires --responses FILE: it reads their lengths")
    rules = {
        "num_items": items,
        "select": select,
        "score": score,
        "standard_error": se,
        "reliability": reliability,
        "gain": gain,
        "randomesque": randomesque,
        "quota": "equal" if quota else None,
        "max_exposure": max_exposure,
    }
    with Progress(quiet) as progress:
        progress("read")
        from irtjax.cli.machine import prepare

        prepare()
        from irtjax.storage import load

        fit = load(folder)
        table = None
        if responses:
            from irtjax.data import read

            files = responses[0] if len(responses) == 1 else responses
            table = read(files, length=length)
        progress("adapt")
        try:
            tests, baseline = _simulate(fit, rules, subjects, table, seed)
        except ValueError as error:
            raise ValueError(_as_options(str(error))) from None
        if out is not None:
            progress("write")
            _write(out, tests, baseline)
    if json:
        from irtjax.cli.pipeline import print_json

        print_json(_document(tests, baseline, rules, seed, out))
    elif not quiet:
        _show(tests, baseline, out)


def _simulate(
    fit: Calibration, rules: dict[str, Any], subjects: int, table: Any, seed: int
) -> tuple[SimulatedTests, SimulatedTests | None]:
    """The tests, and tests of as many random items of the same subjects."""
    import jax

    from irtjax.adaptive import simulate_tests

    chosen = {"key": jax.random.key(seed), "responses": table}
    tests = simulate_tests(fit, subjects, **chosen, **rules)
    if rules["select"] == "random":
        return tests, None
    kept = {name: rules[name] for name in ("num_items", "score", "quota")}
    # The same key: the same subjects.
    return tests, simulate_tests(fit, subjects, **chosen, **kept, select="random")


def _as_options(message: str) -> str:
    """A message of `simulate_tests` in which its arguments are options."""
    for name, option in (
        ("num_items ", "--items "),
        ("num_subjects ", "--subjects "),
        ("standard_error ", "--se "),
        ("max_exposure ", "--max-exposure "),
        ("reliability ", "--reliability "),
        ("randomesque ", "--randomesque "),
        ("select ", "--select "),
        ("score ", "--score "),
        ("gain ", "--gain "),
    ):
        if message.startswith(name):
            return option + message.removeprefix(name)
    return message


def _write(out: Path, tests: SimulatedTests, baseline: SimulatedTests | None) -> None:
    from contextlib import ExitStack

    from irtjax.data.files import atomic_path
    from irtjax.plots import plot_adaptive, save_figure
    from irtjax.storage import write_table

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make --out {out}: {error.strerror}") from None
    table = tests.table()
    # They appear together: renamed only after the last was written.
    with ExitStack() as stack:
        for name in ("adapt.parquet", "adapt.csv"):
            write_table(table, stack.enter_context(atomic_path(out / name)))
        place = stack.enter_context(atomic_path(out / "adapt.png"))
        save_figure(plot_adaptive(tests, baseline), place)


def _curve(tests: SimulatedTests) -> dict[str, Any]:
    return {"rmse": tests.rmse(), "standard_error": tests.mean_standard_error()}


def _document(
    tests: SimulatedTests,
    baseline: SimulatedTests | None,
    rules: dict[str, Any],
    seed: int,
    out: Path | None,
) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        **rules,
        "seed": seed,
        "replayed": tests.replayed,
        "num_subjects": len(tests.subjects),
        "bank_size": len(tests.items),
        "mean_num_items": float(tests.num_given.mean()),
        "largest_exposure": float(tests.exposure().max()),
        "by_num_items": _curve(tests),
        "random_by_num_items": None if baseline is None else _curve(baseline),
        "subjects": tests.table().to_pylist(),
        "notes": tests.notes,
        "out": None if out is None else str(out),
    }


def _show(
    tests: SimulatedTests, baseline: SimulatedTests | None, out: Path | None
) -> None:
    from irtjax.cli import screen
    from irtjax.report.words import number

    console = screen.console()
    length = tests.ability.shape[1]
    header = ["items", "RMSE", "error"]
    curves = [tests.rmse(), tests.mean_standard_error()]
    if baseline is not None:
        header += ["random: RMSE", "error"]
        curves += [baseline.rmse(), baseline.mean_standard_error()]
    lengths = [k for k in SHOWN if k < length] + [length]
    rows = [[f"{k:,}", *(number(c[k - 1], 3) for c in curves)] for k in lengths]
    kind = "replayed" if tests.replayed else "simulated"
    title = f"{len(tests.subjects):,} {kind} subjects, {len(tests.items):,} items"
    screen.show_table(console, title, header, rows)
    screen.show_sentences(console, [*sentences(tests), *_written(out)])
    screen.show_warnings(console, [], tests.notes)


def _written(out: Path | None) -> list[str]:
    return [] if out is None else [f"Written to {out}: adapt.parquet, .csv, .png"]


def sentences(tests: SimulatedTests) -> list[str]:
    """Returns the lengths of the tests, why they ended, and the use of items."""
    from collections import Counter

    from irtjax.adaptive import StopFlag

    count = tests.num_given
    reasons = Counter(StopFlag(int(flag)).explain() for flag in tests.stopped)
    ended = ", ".join(f"{text} ({n:,})" for text, n in reasons.most_common())
    exposure = tests.exposure()
    return [
        f"Tests took {count.mean():.1f} items on average, {count.min()} to"
        f" {count.max()}. Ended by: {ended}.",
        f"{(exposure > 0).sum():,} of {len(exposure):,} items were used; the most used"
        f" one in {100 * exposure.max():.0f} % of the tests.",
    ]
