"""`irtjax adapt`: how adaptive tests over the items of a fit would do."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.errors import lead_with_option
from irtjax.cli.output import check_out_folder, make_folder, print_json, write_files
from irtjax.cli.pipeline import load_fit
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.adaptive import SimulatedTests
    from irtjax.calibration.calibration import Calibration

#: Lengths at which the table shows the errors.
SHOWN = (1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000)

#: Options for arguments of `irtjax.simulate_tests`, in messages.
_OPTIONS = {
    "num_items": "--items",
    "num_subjects": "--subjects",
    "standard_error": "--se",
    "max_exposure": "--max-exposure",
    **{x: f"--{x}" for x in ("reliability", "randomesque", "select", "score", "gain")},
    **{x: f"--{x}" for x in ("determinant", "composite")},
    "composite:": "--composite:",
}


_stop = functools.partial(opt.option, panel="Ending")


def adapt_command(
    folder: opt.Folder,
    items: Annotated[int, _stop("Items of a test, at the most.")] = 50,
    se: Annotated[float | None, _stop("End below this error.")] = None,
    reliability: Annotated[float | None, _stop("End above this reliability.")] = None,
    gain: Annotated[
        float | None,
        _stop("End when no item left has this share of the test information."),
    ] = None,
    determinant: Annotated[
        float | None,
        _stop("Of several abilities: end below this determinant of their covariance."),
    ] = None,
    select: Annotated[
        str,
        opt.option(
            "information, mutual_information, kl, random or fixed; of several abilities"
            " d_optimal or a_optimal too, not kl."
        ),
    ] = "information",
    composite: Annotated[
        str | None,
        opt.option(
            "Of several abilities: measure their sum with these weights, not the"
            " expected score.",
            metavar="A,B",
        ),
    ] = None,
    score: Annotated[str, opt.option("eap or map.")] = "eap",
    randomesque: Annotated[
        int, opt.option("Draw from the K most informative items.", metavar="K")
    ] = 1,
    quota: Annotated[
        bool, opt.option("Give every benchmark an equal share.", "--quota")
    ] = False,
    max_exposure: Annotated[
        float | None, opt.option("Largest share of the tests that may use an item.")
    ] = None,
    subjects: Annotated[int, opt.option("Number of simulated subjects.")] = 200,
    responses: Annotated[
        list[str] | None,
        opt.option(
            "Replay the recorded responses of real subjects instead.", metavar="FILE"
        ),
    ] = None,
    length: Annotated[
        str | None,
        opt.option(
            "Of --responses: column of response lengths; for a wide matrix, the file."
        ),
    ] = None,
    seed: opt.Seed = 0,
    out: Annotated[
        Path | None,
        opt.out("DIR", "Folder for adapt.parquet, adapt.csv and adapt.png."),
    ] = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Simulates adaptive tests over the items of a fit, compared with random items."""
    check_out_folder(out)
    if length is not None and not responses:
        raise ValueError("--length requires --responses FILE: it reads their lengths")
    rules = {
        "num_items": items,
        "select": select,
        "score": score,
        "standard_error": se,
        "reliability": reliability,
        "gain": gain,
        "determinant": determinant,
        "composite": _weights(composite),
        "randomesque": randomesque,
        "quota": "equal" if quota else None,
        "max_exposure": max_exposure,
    }
    with ProgressLine(quiet) as progress:
        progress("read")
        fit = load_fit(folder)
        table = opt.Reading(length=length).read(responses) if responses else None
        progress("adapt")
        try:
            tests, baseline = _simulate(fit, rules, subjects, table, seed)
        except ValueError as error:
            raise ValueError(lead_with_option(str(error), _OPTIONS)) from None
        if out is not None:
            progress("write")
            _write(out, tests, baseline)
    if json:
        print_json(_document(tests, baseline, rules, seed, out))
    elif not quiet:
        _show(tests, baseline, out)


def _weights(text: str | None) -> list[float] | None:
    """Numbers with commas between, or None."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--composite {text}: write numbers with commas between"
        ) from None


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
    kept = {x: rules[x] for x in ("num_items", "score", "quota", "composite")}
    # The same key: the same subjects.
    return tests, simulate_tests(fit, subjects, **chosen, **kept, select="random")


def _write(out: Path, tests: SimulatedTests, baseline: SimulatedTests | None) -> None:
    from irtjax.plots import plot_adaptive, save_figure

    make_folder(out)
    figure = plot_adaptive(tests, baseline)
    write_files(
        {
            out / "adapt.parquet": tests.table(),
            out / "adapt.csv": tests.table(),
            out / "adapt.png": functools.partial(save_figure, figure),
        }
    )


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
    written = [] if out is None else [f"Written to {out}: adapt.parquet, .csv, .png"]
    screen.show_sentences(console, [*_sentences(tests), *written])
    screen.show_warnings(console, [], tests.notes)


def _sentences(tests: SimulatedTests) -> list[str]:
    """The lengths of the tests, why they ended, and the use of items."""
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
