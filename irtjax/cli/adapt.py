"""`irtjax adapt`: how adaptive tests over the items of a fit would do."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.errors import lead_with_option
from irtjax.cli.harness import HarnessOptions, run_rounds
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.pipeline import load_fit
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    import numpy as np

    from irtjax.adaptive import SimulatedTests
    from irtjax.calibration.calibration import Calibration
    from irtjax.data import ResponseTable

#: Lengths at which the table shows the errors.
SHOWN = (1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000)

#: What `--out` writes.
FILES = ("adapt.parquet", "adapt.csv", "adapt.png", "trajectory.png")

#: Options for arguments of `irtjax.simulate_tests`, in messages.
_OPTIONS = {
    "key": "--seed",
    "num_items": "--num-items",
    "min_items": "--min-items",
    "num_subjects": "--num-subjects",
    "standard_error": "--se",
    "max_exposure": "--max-exposure",
    "pass_mark": "--pass-mark",
    **{
        x: f"--{x}" for x in ("reliability", "randomesque", "select", "scoring", "gain")
    },
    **{x: f"--{x}" for x in ("determinant", "composite", "cost", "budget", "price")},
    **{x: f"--{x}" for x in ("risk", "indifference", "truth", "population")},
    "score_error": "--score-se",
    "subject_table": "--subject-table",
    **{x: f"--{x}" for x in ("repeats", "icc", "rival")},
    **{f"{x}:": f"--{x}:" for x in ("composite", "cost", "losses", "truth")},
    **{f"{x}:": f"--{x}:" for x in ("rival", "population")},
}

_stop = functools.partial(opt.option, panel="Ending")
_choose = functools.partial(opt.option, panel="Choosing items")
_decide = functools.partial(opt.option, panel="Costs and decisions")


@dataclasses.dataclass(frozen=True)
class RuleOptions:
    """Rules of a test: each field is an option."""

    num_items: Annotated[int, _stop("Items of a test, at the most.")] = 50
    min_items: Annotated[
        int, _stop("Items before which no rule on error, gain or decision ends a test.")
    ] = 1
    se: Annotated[float | None, _stop("End below this error.")] = None
    reliability: Annotated[float | None, _stop("End above this reliability.")] = None
    gain: Annotated[
        float | None,
        _stop("End when no item left has this share of the test information."),
    ] = None
    determinant: Annotated[
        float | None,
        _stop("Of several abilities: end below this determinant of their covariance."),
    ] = None
    select: Annotated[
        str,
        _choose(
            "information, mutual_information, kl, score, random or fixed; of several"
            " abilities d_optimal or a_optimal too."
        ),
    ] = "information"
    scoring: Annotated[str, _choose("eap or map.")] = "eap"
    composite: Annotated[
        str | None,
        _choose(
            "Of several abilities: measure their sum with these weights, not the"
            " expected score.",
            metavar="A,B",
        ),
    ] = None
    repeats: Annotated[
        int,
        _choose(
            "Times that an item may be given, to models that respond differently each"
            " time; --num-items counts responses."
        ),
    ] = 1
    icc: Annotated[
        float | None,
        _choose(
            "With --repeats: correlation of responses to an item, given ability; if"
            " --replay has counts, estimated from them."
        ),
    ] = None
    randomesque: Annotated[
        int, _choose("Draw from the K most informative items.", metavar="K")
    ] = 1
    quota: Annotated[
        bool, _choose("Give every benchmark an equal share.", "--quota")
    ] = False
    max_exposure: Annotated[
        float | None, _choose("Largest share of the tests that may use an item.")
    ] = None
    cost: Annotated[
        Path | None,
        _decide(
            "Table with the columns item and cost: choose the most information per"
            " cost.",
            metavar="FILE",
        ),
    ] = None
    budget: Annotated[
        float | None, _decide("End when no item left is affordable; with --cost.")
    ] = None
    price: Annotated[
        float | None,
        _decide("End when no item decreases the loss by this times its cost."),
    ] = None
    pass_mark: Annotated[
        float | None, _decide("Decide whether abilities are above this.")
    ] = None
    rival: Annotated[
        str | None,
        _decide(
            "In place of a mark: decide whether abilities are above that of this"
            " subject of the fit.",
            metavar="NAME",
        ),
    ] = None
    losses: Annotated[
        str | None,
        _decide(
            "Losses of a wrong pass and of a wrong fail, 1,1 if not given; with"
            " --pass-mark or --rival.",
            metavar="A,B",
        ),
    ] = None
    risk: Annotated[
        float | None, _decide("End when the expected loss of deciding is below this.")
    ] = None
    indifference: Annotated[
        float | None,
        _decide("Decide by Wald's test of the mark plus and minus this; with --risk."),
    ] = None

    def rules(self, names: np.ndarray) -> dict[str, Any]:
        """Returns the arguments of `irtjax.simulate_tests`."""
        arguments = dataclasses.asdict(self)
        arguments["standard_error"] = arguments.pop("se")
        arguments["quota"] = "equal" if self.quota else None
        for name in ("composite", "losses"):
            arguments[name] = opt.numbers(f"--{name}", arguments[name])
        if self.losses is not None and self.pass_mark is None and self.rival is None:
            raise ValueError(
                "--losses requires --pass-mark or --rival: they are of that decision"
            )
        arguments["losses"] = arguments["losses"] or [1.0, 1.0]
        if self.cost is not None:
            from irtjax.cli.side_tables import SideTable

            side = SideTable.read("--cost", self.cost, "item", names)
            arguments["cost"] = side.numbers("cost")
        return arguments


@dataclasses.dataclass(frozen=True)
class SubjectOptions:
    """Who is tested where nobody is live: each field is an option."""

    num_subjects: Annotated[int, opt.option("Number of simulated subjects.")] = 200
    replay: Annotated[
        list[str] | None,
        opt.option(
            "Replay the recorded responses of real subjects instead.", metavar="FILE"
        ),
    ] = None
    truth: Annotated[
        str,
        opt.option(
            "Items by which simulated subjects respond: bank, draw (drawn from their"
            " errors), or the folder of another fit.",
            metavar="NAME",
        ),
    ] = "bank"
    population: Annotated[
        str | None,
        opt.option(
            "Mean and standard deviation of the abilities of simulated subjects, if not"
            " those of the fit; of several abilities for all, or all means and then all"
            " deviations.",
            metavar="A,B",
        ),
    ] = None
    length: Annotated[
        str | None,
        opt.option(
            "Of --replay: column of response lengths; for a wide matrix, the file."
        ),
    ] = None
    trials: Annotated[
        str | None,
        opt.option(
            "Of --replay: repeated responses to an item: auto, error, mean, first"
            " or counts (the default with --repeats)."
        ),
    ] = None
    subject_table: opt.SubjectTable = None
    join: Annotated[
        str, opt.option("Of --replay: what identifies items of logs, hash or id.")
    ] = "hash"
    missing_values: Annotated[
        list[str] | None,
        opt.option(
            "Of --replay: number or word that means no score; may be repeated.",
            metavar="VALUE",
        ),
    ] = None

    def given(self) -> dict[str, bool]:
        """Whether each option differs from its default."""
        fields = dataclasses.fields(self)
        flag = lambda name: f"--{name.replace('_', '-')}"
        return {flag(x.name): getattr(self, x.name) != x.default for x in fields}

    def check(self) -> None:
        """Refuses options of reading where nothing is read."""
        changed = self.given()
        for option, reason in (
            ("--length", "reads their lengths"),
            ("--trials", "reads their repeats"),
            ("--join", "is of their items"),
            ("--missing-values", "is of their scores"),
        ):
            if changed[option] and not self.replay:
                raise ValueError(f"{option} requires --replay FILE: it {reason}")

    def read(self, repeats: int, fit: Any) -> ResponseTable | None:
        """Returns the recorded responses, if any, for tests with so many repeats."""
        if not self.replay:
            return None
        options: dict[str, Any] = {
            "length": self.length,
            "trials": self.trials or ("counts" if repeats > 1 else "auto"),
            "join": self.join,
            "missing_values": self.missing_values,
        }
        return opt.Reading(**options).read(self.replay, fit)


@opt.with_options
def adapt_command(
    folder: opt.Folder,
    who: SubjectOptions,
    seed: opt.Seed = 0,
    out: Annotated[
        Path | None,
        opt.out(
            "DIR",
            "Folder for adapt.parquet, adapt.csv and adapt.png; with --harness, for"
            " the test.",
        ),
    ] = None,
    *,
    output: opt.Output,
    rules: RuleOptions,
    live: HarnessOptions,
) -> None:
    """Simulates adaptive tests over the items of a fit, compared with random items.

    With --harness it gives one test to a real model instead.
    """
    by = "adapt" if live.harness is None else "adapt --harness"
    check_out_folder(out, FILES, by)
    options = who.given()
    options.pop("--subject-table")
    simulated = options | {
        "--repeats": rules.repeats != 1,
        "--icc": rules.icc is not None,
        "--max-exposure": rules.max_exposure is not None,
    }
    if live.check(simulated, out) and out is not None:
        show = "json" if output.json else None if output.quiet else "text"
        table = who.subject_table
        run_rounds(folder, out, live, rules, seed, _OPTIONS, show, table)
        return
    who.check()
    with ProgressLine(output.quiet) as progress:
        progress("read")
        fit = load_fit(folder)
        table = who.read(rules.repeats, fit)
        chosen = rules.rules(fit.item_names)
        progress("adapt")
        tests, baseline = _simulate(fit, chosen, who, table, seed, progress)
        if out is not None:
            progress("write")
            _write(out, tests, baseline)
    if output.json:
        chosen["cost"] = None if rules.cost is None else str(rules.cost)
        print_json(_document(tests, baseline, chosen, seed, out))
    elif not output.quiet:
        _show(tests, baseline, out, "items" if rules.repeats == 1 else "responses")


def _truth(name: str) -> Any:
    """The truth of `irtjax.simulate_tests`: a word, or another fit."""
    return name if name in ("bank", "draw") else load_fit(Path(name))


def _population(text: str | None) -> Any:
    """Means and standard deviations, half of the numbers each; None without any."""
    values = opt.numbers("--population", text)
    if values is None:
        return None
    half, odd = divmod(len(values), 2)
    if odd:
        raise ValueError(f"--population {text}: write as many means as deviations")
    parts = values[:half], values[half:]
    return tuple(x[0] if half == 1 else x for x in parts)


def _simulate(
    fit: Calibration,
    rules: dict[str, Any],
    who: SubjectOptions,
    table: ResponseTable | None,
    seed: int,
    progress: ProgressLine,
) -> tuple[SimulatedTests, SimulatedTests | None]:
    """The tests, and tests of as many random items of the same subjects."""
    from irtjax.adaptive import simulate_tests
    from irtjax.adaptive.design import COMPARED

    try:
        # The same key: the same subjects.
        chosen = {"key": seed, "replay": table}
        chosen["truth"] = _truth(who.truth)
        chosen["population"] = _population(who.population)
        chosen["subject_table"] = who.subject_table
        tests = simulate_tests(fit, who.num_subjects, **chosen, **rules)
        if rules["select"] == "random":
            return tests, None
        shared = {name: rules[name] for name in ("num_items", *COMPARED)}
        progress("tests of random items")
        baseline = simulate_tests(
            fit, who.num_subjects, **chosen, **shared, select="random"
        )
        return tests, baseline
    except ValueError as error:
        raise ValueError(lead_with_option(str(error), _OPTIONS)) from None


def _write(out: Path, tests: SimulatedTests, baseline: SimulatedTests | None) -> None:
    """Writes the errors by test length as Parquet, CSV and a figure, and one test."""
    from irtjax.plots import plot_adaptive, plot_trajectory, save_figure

    table = tests.table
    figures = plot_adaptive(tests, baseline), plot_trajectory(tests)
    pictures = (functools.partial(save_figure, figure) for figure in figures)
    contents = zip(FILES, (table, table, *pictures), strict=True)
    write_files({out / name: content for name, content in contents})


def _curve(tests: SimulatedTests) -> dict[str, Any]:
    """Errors by test length, for JSON."""
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
        "coverage": None if tests.replayed else tests.coverage(),
        "largest_exposure": float(tests.exposure().max()),
        "by_num_items": _curve(tests),
        "random_by_num_items": None if baseline is None else _curve(baseline),
        "subjects": tests.table.to_pylist(),
        "notes": tests.notes,
        "out": None if out is None else str(out),
    }


def _show(
    tests: SimulatedTests, baseline: SimulatedTests | None, out: Path | None, noun: str
) -> None:
    """Prints errors at some test lengths."""
    from irtjax.cli import screen
    from irtjax.data.wording import counted
    from irtjax.report.words import number

    length = tests.ability.shape[1]
    header = [noun, "RMSE", "error"]
    curves = [tests.rmse(), tests.mean_standard_error()]
    if baseline is not None:
        header += ["random: RMSE", "error"]
        curves += [baseline.rmse(), baseline.mean_standard_error()]
    lengths = [k for k in SHOWN if k < length] + [length]
    rows = [[f"{k:,}", *(number(c[k - 1], 3) for c in curves)] for k in lengths]
    kind = "replayed" if tests.replayed else "simulated"
    title = (
        f"{counted(len(tests.subjects), f'{kind} subject')},"
        f" {counted(len(tests.items), 'item')}"
    )
    screen.show_table(title, header, rows)
    place = [] if out is None else [written(out, FILES)]
    details = [*_of_costs(tests, baseline), *_of_decisions(tests)]
    screen.show_sentences([*_sentences(tests, noun), *details, *place])
    screen.show_warnings([], tests.notes)


def _sentences(tests: SimulatedTests, noun: str) -> list[str]:
    """The lengths of the tests, why they ended, and the use of items."""
    from collections import Counter

    from irtjax.adaptive import StopFlag
    from irtjax.data.wording import counted, were

    count = tests.num_given
    reasons = Counter(StopFlag(int(flag)).explain() for flag in tests.stopped)
    ended = ", ".join(f"{text} ({n:,})" for text, n in reasons.most_common())
    exposure = tests.exposure()
    return [
        f"Tests took {count.mean():.1f} {noun} on average, {count.min()} to"
        f" {count.max()}. Ended by: {ended}.",
        f"{(exposure > 0).sum():,} of {counted(len(exposure), 'item')}"
        f" {were((exposure > 0).sum())} used; the"
        " most used"
        f" one in {100 * exposure.max():.0f} % of the tests.",
    ]


def _of_costs(tests: SimulatedTests, baseline: SimulatedTests | None) -> list[str]:
    """What tests cost, and the error at half of that."""
    from irtjax.report.words import number

    if tests.cost is None:
        return []
    cost = tests.cost[:, -1]
    half = float(cost.mean()) / 2
    at_half = number(float(tests.rmse_by_cost([half])[0]), 3)
    other = ""
    if baseline is not None:
        other = f" (random items: {number(float(baseline.rmse_by_cost([half])[0]), 3)})"
    return [
        f"Tests cost {number(cost.mean(), 3)} on average, {number(cost.min(), 3)} to"
        f" {number(cost.max(), 3)}. At half of that the RMSE is {at_half}{other}."
    ]


def _of_decisions(tests: SimulatedTests) -> list[str]:
    """How many subjects passed, and how many were decided wrongly."""
    from irtjax.data.wording import counted

    if tests.passed is None:
        return []
    passed = tests.passed
    share = 100 * float((passed != (tests.truth > tests.pass_mark)).mean())
    wrong = f"{share:.1f} % of the decisions were wrong."
    if tests.replayed:
        # No true ability is known.
        wrong = f"{share:.1f} % of the decisions differ from that by the score from all"
        wrong += " responses."
    return [f"{passed.sum():,} of {counted(len(passed), 'subject')} passed; {wrong}"]
