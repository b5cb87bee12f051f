"""`irtjax adapt --harness`: an adaptive test that an evaluation harness gives."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.errors import lead_with_option
from irtjax.cli.output import print_json, write_files
from irtjax.cli.pipeline import load_fit

if TYPE_CHECKING:
    from irtjax.harness.estimate import Estimate, Number
    from irtjax.harness.lm_eval import Rounds

HARNESSES = ("lm-eval",)

_live = functools.partial(opt.option, panel="Inside a harness")


@dataclasses.dataclass(frozen=True)
class HarnessOptions:
    """A test that a harness gives: each field is an option."""

    harness: Annotated[
        str | None,
        _live(
            "Give the test to a real model, in rounds that this harness evaluates:"
            " lm-eval. --out has the state; repeat the command after each round.",
            metavar="NAME",
        ),
    ] = None
    round_size: Annotated[
        int | None, _live("Items of a round, 10 if not given.", metavar="N")
    ] = None
    run: Annotated[
        str | None,
        _live(
            "Command of the harness with its model, such as 'lm_eval --model hf"
            " --model_args pretrained=NAME': every round is run.",
            metavar="COMMAND",
        ),
    ] = None
    metric: Annotated[
        list[str] | None,
        _live(
            "Metric of the logs, as for the fit: NAME or TASK=NAME, repeated.",
            metavar="NAME",
        ),
    ] = None
    filter: Annotated[
        list[str] | None, _live("Answer filter of the logs, alike.", metavar="NAME")
    ] = None
    score_se: Annotated[
        float | None,
        _live("With --select score: end below this error of the score.", metavar="X"),
    ] = None
    level: opt.SomeLevel = None

    def given(self) -> list[str]:
        """Options that are for a harness, as far as they were given."""
        fields = dataclasses.asdict(self)
        return [f"--{k.replace('_', '-')}" for k, v in fields.items() if v is not None]

    def check(self, unsuitable: dict[str, bool], out: Path | None) -> bool:
        """Whether a harness was named; refuses options that do not suit.

        Args:
            unsuitable: Options of simulations, and whether each was given.
            out: The folder.
        """
        if self.harness is None:
            if self.given():
                raise ValueError(f"{self.given()[0]} requires --harness")
            return False
        if self.harness not in HARNESSES:
            raise ValueError(
                f"--harness {self.harness} is not one of {', '.join(HARNESSES)}; for"
                " Inspect see irtjax.harness.inspect in Python"
            )
        if out is None:
            raise ValueError("--harness requires --out DIR: it has the state")
        opt.check_level(self.level)
        wrong = [name for name, used in unsuitable.items() if used]
        if wrong:
            raise ValueError(
                f"{wrong[0]} is for simulated tests: leave it out with --harness"
            )
        return True


def run_rounds(
    folder: Path,
    out: Path,
    live: HarnessOptions,
    rules: Any,
    seed: int,
    names: dict[str, str],
    show: str | None,
    subject_table: Path | None = None,
) -> None:
    """Resumes a test as far as it can: `irtjax adapt --harness`.

    Args:
        folder: The fit.
        out: The folder of the test.
        live: The options of the harness.
        rules: `RuleOptions`.
        seed: Of what is random.
        names: Options by names of arguments, for messages.
        show: "json", "text" or None for nothing.
        subject_table: Covariates of the model.
    """
    from irtjax.harness.lm_eval import SETTINGS, Rounds

    fit = load_fit(folder)
    try:
        if (out / SETTINGS).exists():
            rounds = Rounds.resume(fit, out)
            _check_same(rounds, live, rules, seed, fit.item_names, names, out)
        else:
            chosen = rules.rules(fit.item_names)
            chosen |= {"key": seed, "score_error": live.score_se}
            chosen["subject_table"] = subject_table
            rounds = _begin(fit, out, live, chosen)
        rounds.step()
        if live.run is not None:
            _run(rounds, live.run)
    except ValueError as error:
        raise ValueError(lead_with_option(str(error), names)) from None
    estimate = rounds.estimate(live.level) if rounds.test.num_given else None
    table = rounds.table(live.level) if rounds.over and estimate else None
    if table is not None:
        text = lambda path: path.write_text(table + "\n", encoding="utf-8")
        write_files({out / "adapt.csv": rounds.test.table, out / "table.md": text})
    if show == "json":
        print_json(_document(rounds, estimate, table))
    elif show == "text":
        again = f"irtjax adapt {shlex.join([str(folder), '--harness', 'lm-eval'])}"
        _show(rounds, estimate, table, f"{again} --out {shlex.quote(str(out))}")


def _begin(fit: Any, out: Path, live: HarnessOptions, rules: dict[str, Any]) -> Rounds:
    """Starts the rounds of a test in lm-evaluation-harness."""
    from irtjax.harness.lm_eval import ROUND_SIZE, Rounds

    reading = opt.Reading(metric=live.metric, filter=live.filter).arguments()
    size = ROUND_SIZE if live.round_size is None else live.round_size
    chosen = {name: reading[name] for name in ("metric", "filter")}
    return Rounds.begin(fit, out, round_size=size, **chosen, **rules)


def _check_same(
    rounds: Rounds,
    live: HarnessOptions,
    rules: Any,
    seed: int,
    items: Any,
    names: dict[str, str],
    out: Path,
) -> None:
    """Refuses options that differ from those with which a test was begun."""
    from irtjax.storage.plain import plain

    begun, usual = rounds.test.rules, type(rules)().rules(items)
    wanted = rules.rules(items)
    changed = {k: v for k, v in wanted.items() if plain(v) != plain(usual[k])}
    if seed:
        changed["key"] = seed
    if live.score_se is not None:
        changed["score_error"] = live.score_se
    for name, value in changed.items():
        if plain(value) != plain(begun.get(name)):
            option = names.get(name, f"--{name}")
            raise ValueError(
                f"{option} differs from that of the test in {out}, which was begun"
                f" with {begun.get(name)}: leave it out, or choose another --out"
            )
    for name in ("metric", "filter", "round_size"):
        typed = getattr(live, name)
        before = getattr(rounds.settings, name)
        before = [before] if isinstance(before, str) else before
        if typed is not None and typed != before:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{option} differs from that of the test in {out}: leave it out, or"
                " choose another --out"
            )


def _run(rounds: Rounds, program: str) -> None:
    """Runs the harness for every round that is left."""
    import subprocess

    from irtjax.data.wording import counted

    while not rounds.over:
        asked, number = len(rounds.test.handed_out), rounds.number
        before = rounds.test.num_given, rounds.test.skipped
        words = [*shlex.split(program), *rounds.arguments()]
        try:
            code = subprocess.call(words)
        except OSError as error:
            raise ValueError(f"--run {words[0]}: {error.strerror}") from None
        if code:
            raise ValueError(
                f"--run: round {rounds.number} ended with exit status {code}; repeat"
                " this command to go on"
            )
        if not rounds.step():
            raise ValueError(
                f"--run: round {rounds.number} has left no sample logs in {rounds.logs}"
            )
        # Without this a run could ask for the same documents for ever.
        if before == (rounds.test.num_given, rounds.test.skipped):
            raise ValueError(
                f"--run: round {number} returned none of its"
                f" {counted(asked, 'document')}: the"
                " data set differs from that of the fit"
            )


def _number(number: Number) -> dict[str, float]:
    return dataclasses.asdict(number)


def _document(
    rounds: Rounds, estimate: Estimate | None, table: str | None
) -> dict[str, Any]:
    """What `--json` prints."""
    test = rounds.test
    document: dict[str, Any] = {
        "over": rounds.over,
        "stopped": test.stopped or None,
        "round": rounds.number,
        "num_given": test.num_given,
        "handed_out": list(test.handed_out),
        "skipped": list(test.skipped),
        "model": rounds.model,
        "command": rounds.command() or None,
        "table": table,
        "notes": rounds.notes,
        "warnings": test.warnings,
    }
    if estimate is not None:
        document["level"] = estimate.level
        document["ability"] = _number(estimate.ability)
        document["expected_score"] = _number(estimate.score)
        tasks = estimate.benchmarks.items()
        if rounds.drawn:
            document["score"] = test.score(estimate.level)._asdict()
        document["benchmarks"] = {name: _number(x) for name, x in tasks}
    return document


def _show(
    rounds: Rounds, estimate: Estimate | None, table: str | None, again: str
) -> None:
    """Prints the estimate so far, and the next round or the end."""
    from irtjax.cli import screen
    from irtjax.data.wording import counted

    if estimate is not None:
        screen.show_sentences(_sentences(rounds, estimate))
    if rounds.over:
        screen.show_sentences([f"Ended by: {rounds.test.stopped}."])
        if table is not None:
            screen.show_text(f"\n{table}\n")
            files = "adapt.csv, table.md"
            written = f"Written to {rounds.folder}: {files}"
            screen.show_sentences([_ABOUT_TABLE, written])
    else:
        count = len(rounds.test.handed_out)
        sentence = (
            f"Round {rounds.number} has {counted(count, 'item')}. Evaluate them, with"
            " the"
        )
        sentence += " options of your model in place of MODEL:"
        screen.show_sentences([sentence])
        screen.show_command(rounds.command())
        screen.show_sentences(["Then go on with:"])
        screen.show_command(again)
    screen.show_warnings(list(rounds.test.warnings), rounds.notes)


_ABOUT_TABLE = (
    "Values of tasks are expected scores on all items of the fit, with their standard"
    " errors, which count those of the items where the fit has them."
)


def _sentences(rounds: Rounds, estimate: Estimate) -> list[str]:
    """The estimates so far."""
    from irtjax.data.wording import counted, percent
    from irtjax.harness.estimate import Number
    from irtjax.report.words import number

    def shown(x: Number, digits: int) -> str:
        bounds = f"{number(x.lower, digits)} to {number(x.upper, digits)}"
        return f"{number(x.value, digits)} ({percent(estimate.level)}: {bounds})"

    score = f"expected score on all {counted(len(rounds.fit.item_names), 'item')}"
    flags = f" {estimate.flags}." if estimate.flags else ""
    skipped = len(rounds.test.skipped)
    without = f", {skipped} without a score" if skipped else ""
    drawn = []
    if rounds.drawn:
        whole = rounds.test.score(estimate.level)
        parts = whole.score, whole.standard_error, whole.lower, whole.upper
        all_items = counted(whole.items, "item")
        drawn = [f"Score on all {all_items}, without bias: {shown(Number(*parts), 3)}."]
    return [
        f"{rounds.model}: ability {shown(estimate.ability, 2)}, {score}"
        f" {shown(estimate.score, 3)}, from"
        f" {counted(estimate.num_items, 'item')}{without}.{flags}",
        *drawn,
    ]
