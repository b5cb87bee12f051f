"""The result in plain sentences: who is ahead, how surely, and which items are bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from irtjax._types import Status
from irtjax.calibration.discrimination import FALSE_DISCOVERY_RATE
from irtjax.calibration.flags import CONSTANT, NEGATIVE, NOT_IDENTIFIED
from irtjax.calibration.parts import ResponseLengths
from irtjax.calibration.parts.factors import correlation_columns
from irtjax.data.reversal import directions_of
from irtjax.data.wording import counted, have, percent
from irtjax.ranking.accuracy import ENOUGH_CLUSTERS
from irtjax.report.words import interval, listing, number, visible
from irtjax.validity.classical import ENOUGH

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects

#: Warning about subjects where a fit has not converged.
UNSETTLED = "The fit has not converged: do not use the abilities and errors below."

#: Pairs of factors whose correlations are named.
MOST_PAIRS = 3
#: Names of subjects that the best one is tied with, in one sentence.
MOST_RIVALS = 5


def flag_counts(table: pa.Table, name: str) -> dict[str, list[str]]:
    """Returns the names in a column of a table by flag, the commonest flag first.

    >>> import pyarrow as pa
    >>> table = pa.table({"item": ["x", "y"], "flags": ["all right", ""]})
    >>> flag_counts(table, "item")
    {'all right': ['x']}
    """
    names_of: dict[str, list[str]] = {}
    names = table.column(name).to_pylist()
    for one, flags in zip(names, table.column("flags").to_pylist(), strict=True):
        for flag in filter(None, (flags or "").split("; ")):
            names_of.setdefault(flag, []).append(one)
    return dict(sorted(names_of.items(), key=lambda pair: -len(pair[1])))


def items_by_flag(fit: Calibration, constant: bool = False) -> dict[str, list[str]]:
    """Returns names of flagged items by flag, or of those without variation."""
    flagged = flag_counts(fit.items.table, "item").items()
    return {flag: names for flag, names in flagged if (flag in CONSTANT) == constant}


def summarise(
    fit: Calibration, ranked: RankedSubjects, escape: Callable[[str], str] = visible
) -> list[str]:
    """Returns sentences on the fit, the subjects and the items, names escaped."""
    return [
        *fit_sentences(fit, escape),
        *subject_sentences(ranked, escape, has_converged(fit)),
        *item_sentences(fit, escape),
    ]


def constant_items(fit: Calibration) -> dict[str, int]:
    """Returns the number of items without variation by flag."""
    flagged = items_by_flag(fit, constant=True)
    return {flag: len(names) for flag, names in flagged.items()}


def constant_sentence(constant: dict[str, int], total: int) -> str:
    """Returns a sentence on items without variation by flag; "" if there are none.

    >>> constant_sentence({"all wrong": 11}, 500)
    '11 of 500 items have no variation, which is no evidence of a fault: 11 all wrong.'
    >>> constant_sentence({"": 1}, 15)
    '1 of 15 items has no variation, which is no evidence of a fault.'
    """
    count = sum(constant.values())
    if not count:
        return ""
    return _constant(count, total, [f"{n:,} {x}" for x, n in constant.items() if x])


def _constant(count: int, total: int, kinds: list[str]) -> str:
    """The sentence on items without variation, of what kinds if these are known."""
    return (
        f"{count:,} of {counted(total, 'item')} {have(count)} no variation, which is no"
        f" evidence of a fault{': ' * bool(kinds)}{', '.join(kinds)}."
    )


def _likelihood(fit: Calibration) -> str:
    """The log-likelihood with its criteria, which a quasi-likelihood has not."""
    value = f"log-likelihood {number(fit.log_likelihood)}"
    if fit.options.get("worth"):
        return f"quasi-{value} (no AIC or BIC)"
    return f"{value}, AIC {number(fit.aic, 1)}, BIC {number(fit.bic, 1)}"


def direction_sentences(
    fit: Calibration, escape: Callable[[str], str] = visible
) -> list[str]:
    """Returns sentences on scores of which lower is better, none without such."""
    formulas = dict.fromkeys(fit.reversed_scores.values())
    return [escape(sentence) for sentence in directions_of(formulas)]


def score_sentence(fit: Calibration) -> str:
    """Returns which scores are the better ones, for the legend of a table."""
    formulas = list(dict.fromkeys(fit.reversed_scores.values()))
    if not formulas:
        return "Higher is better."
    some = "" if len(fit.reversed_scores) == len(fit.item_names) else "some "
    return f"Both are of {some}reversed scores ({listing(formulas)}): higher is better."


def fit_sentences(
    fit: Calibration, escape: Callable[[str], str] = visible
) -> list[str]:
    """Returns sentences on what was fitted, how it ended, and what abilities are."""
    status = Status(int(fit.status))
    method = str(fit.options.get("method", "")).upper()
    verb = "" if has_converged(fit) else "NOT CONVERGED: "
    cells = len(fit.subject_names) * len(fit.item_names)
    missing = 1 - fit.num_observed / cells
    sentences = [
        f"{verb}{fit.model.name} by {method or 'its method'} on"
        f" {counted(len(fit.subject_names), 'subject')} and"
        f" {counted(len(fit.item_names), 'item')}"
        f" ({percent(round(missing, 3))} missing): {status.explain()} after"
        f" {counted(fit.num_steps, 'iteration')}; {_likelihood(fit)}."
    ]
    if fit.options.get("choice"):
        choice = str(fit.options["choice"])
        sentences.append(f"{choice[0].upper()}{choice[1:]}.")
    sentences += direction_sentences(fit, escape)
    benchmarks = 0 if fit.benchmarks is None else len(set(fit.benchmarks.tolist()))
    if benchmarks >= ENOUGH_CLUSTERS:
        sentences.append(
            f"Intervals of accuracies are for other benchmarks like these {benchmarks},"
            " those of scores for these items."
        )
    if NOT_IDENTIFIED in items_by_flag(fit):
        sentences.append(
            "NOT IDENTIFIED: the data and the priors do not determine some parameters"
            " of items; these have no standard error (see the warnings)."
        )
    if fit.model.has_lengths:
        rho, bounds = float(fit.require(ResponseLengths).items.correlation), None
        sentence = f"Ability and speed correlate at {number(rho)}"
        if fit.correlation_interval is not None:
            bounds = fit.correlation_interval
            sentence += f" ({interval(*bounds)}, {percent(fit.level)})"
        # A direction only where the interval is clear of zero.
        if bounds is not None and bounds[0] * bounds[1] > 0:
            how = "at greater length" if rho < 0 else "more briefly"
            sentence += f": subjects of higher ability write {how}"
        sentences.append(f"{sentence}.")
    return [*sentences, *_factor_sentences(fit, escape)]


def _factor_sentences(fit: Calibration, escape: Callable[[str], str]) -> list[str]:
    """Returns a sentence on the correlations of a few factors that have errors."""
    factors = fit.factors
    count = 0 if factors is None else len(factors.names) * (len(factors.names) - 1) // 2
    if factors is None or factors.correlation_error is None or count > MOST_PAIRS:
        return []
    columns = correlation_columns(factors, fit.level)
    texts = [
        f"{escape(str(first))} and {escape(str(second))} {number(value)}"
        f" ({interval(low, high)})"
        for first, second, value, _, low, high in zip(*columns.values(), strict=True)
    ]
    noun = "Correlation" if count == 1 else "Correlations"
    text = percent(fit.level)
    return [f"{noun} of factors, with {text} intervals: {', '.join(texts)}."]


def has_converged(fit: Calibration) -> bool:
    """Whether the abilities of a fit, and their errors, can be relied on."""
    return Status(int(fit.status)) == Status.CONVERGED


def subject_sentences(
    ranked: RankedSubjects,
    escape: Callable[[str], str] = visible,
    converged: bool = True,
) -> list[str]:
    """Returns sentences on who is ahead and how many differ significantly.

    Where the fit has not converged, the first one is on the consequence.
    """
    table = ranked.table
    if not table.num_rows:
        return ["No subject has a finite ability."]
    best = ranked.rows(stop=1)[0]
    half = (best["upper"] - best["lower"]) / 2
    out = [] if converged else [UNSETTLED]
    name, first = escape(best["subject"]), table.column("rank").to_pylist().count(1)
    height = f"ability, {number(best['ability'])} ± {number(half)}"
    height += f" ({percent(ranked.level)})"
    it_is = "It is" if first == 1 else "They are"
    out.append(
        f"{name} has the highest {height}. It is the best of all with probability"
        f" {number(best['probability_best'])}; {percent(ranked.level)} interval of its"
        f" rank: {interval(best['rank_lower'], best['rank_upper'], 0)}."
        if first == 1
        else f"{first:,} subjects share the highest {height}."
    )
    if table.num_rows > 1:
        # The best subject is in the first group alone or with those that it ties with.
        leaders = set(table.column("subject").slice(0, first).to_pylist())
        rivals = [name for name in ranked.groups[0] if name not in leaders]
        # Only those that are named are escaped: there can be 500,000.
        rivals[:MOST_RIVALS] = map(escape, rivals[:MOST_RIVALS])
        if rivals:
            out.append(
                f"{it_is} statistically tied with {listing(rivals, MOST_RIVALS)}: no"
                " difference within this group is significant."
            )
        elif first < table.num_rows:
            different = "significantly different from every other subject, pair by pair"
            out.append(f"{it_is} {different}.")
        share = ranked.num_different / max(ranked.num_pairs, 1)
        count = len(ranked.groups)
        form = "groups" if count > 1 else "group"
        if sum(map(len, ranked.groups)) > table.num_rows:
            form = f"overlapping {form}"
        out.append(
            f"Of {counted(ranked.num_pairs, 'pair')} of subjects"
            f" {ranked.num_different:,} ({percent(round(share, 3))}) are significantly"
            " different (false discovery rate"
            f" {percent(round(1 - ranked.level, 6))}); the subjects form"
            f" {count:,} {form} of statistically tied subjects."
        )
    return out


def item_sentences(
    fit: Calibration, escape: Callable[[str], str] = visible
) -> list[str]:
    """Returns sentences on items that no warning counts.

    Items without variation are no evidence of a fault.
    """
    rate, total, out = percent(FALSE_DISCOVERY_RATE), len(fit.item_names), []
    if NEGATIVE not in items_by_flag(fit):
        count, power = len(fit.subject_names), ""
        if count < 2 * ENOUGH:  # As in an audit.
            power = f"; {count} subjects have very little power to find one"
        out.append(
            f"No item has negative discrimination (false discovery rate {rate}{power})."
        )
    constant = items_by_flag(fit, constant=True)
    if constant:
        counts = [
            f"{len(items):,} {flag} ({listing([escape(x) for x in items], 3)})"
            for flag, items in constant.items()
        ]
        out.append(_constant(sum(map(len, constant.values())), total, counts))
    return out
