"""`irtjax info`: what is in a file, a folder of logs, or a saved fit."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax.cli import config
from irtjax.cli import options as opt
from irtjax.cli.output import print_json
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    import numpy as np

    from irtjax.calibration.calibration import Calibration
    from irtjax.data import ResponseTable
    from irtjax.data.scores import Bounds


@opt.with_options
def info_command(
    files: opt.Files,
    scores: opt.ScoreRange,
    *,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Describes files (subjects, items, gaps, a model), or a fit."""
    from irtjax.storage import is_fit, load

    limits = scores.setting().get("bounds")
    place = Path(os.path.expanduser(files[0]))
    if len(files) == 1 and is_fit(place):
        if limits is not None:
            raise ValueError(f"--bounds is for responses, and {place} is a fit")
        for name in {*config.typed(reading.chosen())} - {"texts"}:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} is for responses, and {place} is a fit")
        from irtjax.report.summary import items_by_flag
        from irtjax.storage.encoding import to_json

        fit = load(place)
        document = {
            **to_json(fit),
            "flagged_items": items_by_flag(fit),
            "items_without_variation": items_by_flag(fit, constant=True),
        }
    else:
        with ProgressLine(output.quiet) as progress:
            progress("read")
            document = _read(files, reading, limits)
        fit = None
    if output.json:
        print_json(document)
    elif not output.quiet:
        _show(document) if fit is None else _show_fit(fit)


#: What begins the advice to give bounds; the options follow.
GIVE_BOUNDS = "give the lowest and highest possible score"


def _read(
    files: list[str], reading: opt.Reading, bounds: Bounds | None
) -> dict[str, Any]:
    """Facts about responses; where choices are open, what there is to choose."""
    from irtjax.data.reading.options import ReadOptions
    from irtjax.data.reading.read import gather
    from irtjax.data.reading.survey import open_choices, survey, taken

    options = ReadOptions(**reading.arguments())
    gathered = gather(files[0] if len(files) == 1 else files, options)
    offers, added, usual = [], {}, {}
    if gathered.records is not None and len(gathered.records):
        offers = survey(gathered.records)
        added = open_choices(gathered.records, options)
        if not added and options.metric is None and options.filter is None:
            usual = taken(gathered.records, options, offers)
    table = gathered.table(dataclasses.replace(options, **added))
    facts = _describe(table, bounds)
    if len(offers) > 1 or any(offer.epochs > 1 for offer in offers):
        facts["offers"] = [offer._asdict() for offer in offers]
    for name, choice in (("command", added), ("usual", usual)):
        if choice:
            chosen = dataclasses.replace(reading, **_as_options(choice))
            # One subject is described, and not fitted.
            fits = min(table.num_subjects, table.num_items) > 1
            words = ["irtjax", "fit" if fits else "info", *map(shlex.quote, files)]
            words += [*chosen.flags(), *map(shlex.quote, opt.bounds_flags(bounds))]
            # A fit of these scores is refused without bounds.
            asked = facts["reason"].partition(f"{GIVE_BOUNDS} with ")[2]
            words += [asked] * bool(fits and asked)
            facts[name] = " ".join([*words, *["--out", "calibrated"] * fits])
    return facts


def _as_options(added: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `irtjax.read` as options of the command line."""
    chosen: dict[str, Any] = {}
    for name, value in added.items():
        if name == "trials":
            chosen[name] = value
        elif isinstance(value, str):
            chosen[name] = [value]
        else:
            texts = []
            for benchmark, wanted in value.items():
                text = wanted if isinstance(wanted, str) else wanted[0]
                texts.append(text if benchmark == "*" else f"{benchmark}={text}")
            chosen[name] = texts
    return chosen


def _describe(table: ResponseTable, bounds: Bounds | None) -> dict[str, Any]:
    """What is worth knowing about responses before a fit."""
    import numpy as np

    from irtjax.data.reversal import bounds_of_values

    mean = table.subject_accuracy()
    inner = bounds_of_values(table, bounds)
    inside = table if inner is None else _within(table, inner)
    by_item, by_subject = inside.item_accuracy(), inside.subject_accuracy()
    seen = table.seen
    largest = float(seen.max())
    shares = table.trials is not None or (table.kind != "ordinal" and largest <= 1)
    shares = shares or bounds is not None
    top = 1.0 if shares else largest
    sizes = _counts(table.benchmarks)
    categories = None
    if table.kind in ("binary", "ordinal"):
        counts = list(_counts(seen).items())[:20]
        categories = {f"{level:g}": count for level, count in counts}
    model, reason = _suggest(table)
    if bounds is not None and inner is not None and model is not None:
        model, reason = _suggest_within(table, bounds, inner)
    return {
        "kind": table.kind,
        "num_subjects": table.num_subjects,
        "num_items": table.num_items,
        "num_observed": table.num_observed,
        "share_missing": 1 - table.num_observed / max(table.size, 1),
        "benchmarks": {name: size for name, size in sizes.items() if name},
        "metric": table.metric,
        "categories": categories,
        "mean": float(np.nanmean(mean)) if np.isfinite(mean).any() else None,
        "items_all_highest": int(np.sum(by_item >= top)),
        "items_all_zero": int(np.sum(by_item == 0)),
        "subjects_all_highest": int(np.sum(by_subject >= top)),
        "subjects_all_zero": int(np.sum(by_subject == 0)),
        "has_lengths": table.has_lengths,
        "suggested_model": model,
        "reason": reason,
        "examples": {
            "subjects": table.subjects[:3].tolist(),
            "items": table.items[:3].tolist(),
        },
        "sources": list(table.sources),
        "notes": list(table.notes),
        "data_hash": table.data_hash(),
    }


def _counts(values: np.ndarray) -> dict[Any, int]:
    """How often each value occurs, in ascending order."""
    import numpy as np

    names, counts = np.unique(values, return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _suggest(table: ResponseTable) -> tuple[str | None, str]:
    """The model to begin with and why, or None and what prevents a fit."""
    import numpy as np

    from irtjax.data.coding import coded
    from irtjax.data.table import FEW_SUBJECTS, MOST_LEVELS
    from irtjax.data.wording import are, counted

    count, table = table.num_subjects, coded(table)
    binary, ordered = ("rasch", "pcm") if count < FEW_SUBJECTS else ("2pl", "graded")
    few = f"; {counted(count, 'subject')} {are(count)} too few for slopes"
    few *= count < FEW_SUBJECTS
    if count < 2 or table.num_items < 2:
        return None, "a fit compares at least two subjects on at least two items"
    if table.kind == "continuous":
        return _suggest_for_scores(table)
    if table.kind == "ordinal" and np.ptp(table.seen) < MOST_LEVELS:
        from irtjax.fitting.defaults import choose

        chosen = choose(table)
        if chosen.bounds is not None:
            low, high = chosen.bounds
            return getattr(chosen.model, "name", chosen.model), (
                f"ratings from {low:g} to {high:g} of few subjects are scores; fit them"
                f" with --bounds {low:g} {high:g}"
            )
        return ordered, f"the responses are ordered categories{few}"
    if table.kind == "ordinal":
        return _suggest_for_scores(table)
    if table.trials is not None:
        from irtjax.models.families.bounded import binary_items

        if not binary_items(table).all():
            return "mixed", "some items have counts of right responses, others scores"
    each = table.num_observed / table.num_items
    responses = counted(round(each), "response")
    return binary, f"right or wrong, {responses} to an item on average{few}"


def _within(table: ResponseTable, bounds: Bounds) -> ResponseTable:
    """Scores as shares of their range; one outside its bounds is refused."""
    from irtjax.data.scores import rescale

    return rescale(table, bounds)


def _suggest_within(
    table: ResponseTable, bounds: Bounds, inner: Bounds
) -> tuple[str, str]:
    """As `_suggest`, for scores whose bounds are given; `inner`: of their values."""
    flags = shlex.join(opt.bounds_flags(bounds))
    model, reason = _suggest_for_scores(table, inner)
    return model, f"{reason}; fit them with {flags}"


def _suggest_for_scores(
    table: ResponseTable, bounds: Bounds | None = None
) -> tuple[str, str]:
    """As `_suggest`, for scores, of which the bounds may be given."""
    from irtjax.data.wording import are, counted, percent

    values = (table if bounds is None else _within(table, bounds)).seen
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 1:
        return _suggest_bounds(table, low, high)
    from irtjax.models.families.bounded import MANY_ENDS, at_the_ends, binary_items

    ends = at_the_ends(table, bounds)
    if ends >= MANY_ENDS:
        at = percent(round(ends, 3))
        return "share", f"{at} of the scores are at an end of their range"
    whole = binary_items(table, bounds)
    if whole.any():
        sure = f"{counted(whole.sum(), 'item')} {are(whole.sum())}"
        return "mixed", f"{sure} right or wrong, the others scores"
    return "continuous", "the responses are scores between 0 and 1"


def _suggest_bounds(table: ResponseTable, low: float, high: float) -> tuple[str, str]:
    """As `_suggest`, for scores from `low` to `high` that need bounds."""
    import numpy as np

    from irtjax.data.reversal import bounds_of_values
    from irtjax.data.scores import benchmarks_of
    from irtjax.models.families.bounded import MANY_ENDS, at_the_ends

    outside = ((table.values < 0) | (table.values > 1)).any(axis=0)
    names = list(dict.fromkeys(table.benchmarks[outside].tolist()))
    part = table.select(items=np.flatnonzero(outside))
    with contextlib.suppress(ValueError):  # Of items of two directions.
        ends = bounds_of_values(part, (low, high))
        low, high = (low, high) if isinstance(ends, Mapping) else ends
    give = f"scores from {low:g} to {high:g}; {GIVE_BOUNDS}"
    if len(names) < len(benchmarks_of(table)):
        flags = [x for name in names for x in ("--bounds-of", f"{name}=LOW:HIGH")]
        return "auto", f"{give} with {shlex.join(flags)}"
    if low < 0 or not (high in (5, 10) or 20 < high <= 100):
        return "auto", f"{give} with --bounds LOW HIGH"
    # Ratings often begin at 1.
    ends = (1 if low == 1 and high <= 10 else 0, high if high <= 10 else 100)
    many = at_the_ends(table, bounds_of_values(table, ends)) >= MANY_ENDS
    model = "share" if many else "continuous"
    return model, f"{give} with --bounds {ends[0]} {ends[1]:g}"


def _show(facts: dict[str, Any]) -> None:
    """Prints the facts of a table of responses."""
    from irtjax.cli import screen
    from irtjax.data.wording import percent
    from irtjax.report.words import number

    missing = percent(round(facts["share_missing"], 4))
    rows = [
        ["subjects", f"{facts['num_subjects']:,}"],
        ["items", f"{facts['num_items']:,}"],
        ["responses", f"{facts['num_observed']:,} ({missing} missing)"],
        ["kind", facts["kind"]],
        ["metric", facts["metric"] or "not named"],
        ["mean response", number(facts["mean"], 3)],
    ]
    if facts["categories"]:
        shown = ", ".join(f"{k}: {v:,}" for k, v in facts["categories"].items())
        rows.append(["values", shown])
    for what in ("items", "subjects"):
        highest, zero = facts[f"{what}_all_highest"], facts[f"{what}_all_zero"]
        rows.append([f"{what} without variation", f"{highest:,} top, {zero:,} zero"])
    if facts["has_lengths"]:
        rows.append(["response lengths", "known"])
    benchmarks = facts["benchmarks"]
    if benchmarks:
        some = [f"{name} ({size:,})" for name, size in list(benchmarks.items())[:12]]
        rest = f", ... ({len(benchmarks)} in all)" if len(benchmarks) > 12 else ""
        rows.append(["benchmarks (items)", ", ".join(some) + rest])
    for what in ("subjects", "items"):
        rows.append([f"first {what}", ", ".join(facts["examples"][what])])
    model = facts["suggested_model"]
    advice = f"--model {model}: " if model else ""
    rows.append(["suggested", advice + facts["reason"]])
    screen.show_facts(rows)
    _show_offers(facts)
    screen.show_warnings([], facts["notes"])


#: Offers that are shown; a JSON document has all.
_MOST_OFFERS = 40


def _show_offers(facts: dict[str, Any]) -> None:
    """Benchmarks with their metrics, filters and epochs, and the command to go on."""
    from irtjax.cli import screen

    offers = facts.get("offers", [])
    if offers:
        header = ["benchmark", "metric", "filter", "subjects", "items", "epochs"]
        rows = [
            [
                *(offer[name] or "-" for name in header[:3]),
                *(f"{offer[name]:,}" for name in header[3:]),
                _values(offer),
            ]
            for offer in offers[:_MOST_OFFERS]
        ]
        left = len(offers) - len(rows)
        title = f"Found, and {left:,} more" if left else "Found"
        screen.show_table(title, [*header, "values"], rows, left=3)
    if "command" in facts:
        screen.show_sentences(["There is a choice. The facts above are those of:"])
        screen.show_command(facts["command"])
    if "usual" in facts:
        sentence = "The usual ones are read. To read others, change the names in:"
        screen.show_sentences([sentence])
        screen.show_command(facts["usual"])


def _values(offer: dict[str, Any]) -> str:
    """What the values of an offer are."""
    if not offer["numeric"]:
        return "no numbers"
    return "0 or 1" if offer["binary"] else "scores"


def _show_fit(fit: Calibration) -> None:
    """Prints what a saved fit has."""
    from irtjax.cli import screen
    from irtjax.report.leaderboard_page import benchmark_rows, option_pairs
    from irtjax.report.summary import fit_sentences, item_sentences

    screen.show_sentences([*fit_sentences(fit), *item_sentences(fit)])
    header, rows = benchmark_rows(fit, lambda name: name or "(all)")
    screen.show_table("Benchmarks", header, rows)
    screen.show_sentences([f"Options: {', '.join(option_pairs(fit.options))}"])
    screen.show_warnings(fit.warnings, fit.notes)
