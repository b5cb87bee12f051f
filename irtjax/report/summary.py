"""The result in plain sentences: who is ahead, how surely, and which items are bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from irtjax._types import Status
from irtjax.calibration.discrimination import FALSE_DISCOVERY_RATE
from irtjax.calibration.flags import NO_VARIATION, NOT_IDENTIFIED
from irtjax.data.wording import percent
from irtjax.report.words import interval, listing, number, visible

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects

#: Warning about subjects where a fit has not converged.
UNSETTLED = "The fit has not converged: do not use the abilities and errors below."

#: Names of subjects that the best one is tied with, in one sentence.
MOST_RIVALS = 5


def flag_counts(table: pa.Table, name: str) -> dict[str, list[str]]:
    """Returns the names in a column of a table by flag, the commonest flag first.

    >>> import pyarrow as pa
    >>> table = pa.table({"item": ["x", "y"], "flags": ["all right", ""]})
    >>> flag_counts(table, "item")
    {'all right': ['x']}
    """
    found: dict[str, list[str]] = {}
    names = table.column(name).to_pylist()
    for one, flags in zip(names, table.column("flags").to_pylist(), strict=True):
        for flag in filter(None, (flags or "").split("; ")):
            found.setdefault(flag, []).append(one)
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def summarise(
    fit: Calibration, ranked: RankedSubjects, escape: Callable[[str], str] = visible
) -> list[str]:
    """Returns sentences on the fit, the subjects and the items, names escaped."""
    return [
        *fit_sentences(fit),
        *subject_sentences(ranked, escape, has_converged(fit)),
        *item_sentences(fit, escape),
    ]


def fit_sentences(fit: Calibration) -> list[str]:
    """Returns a sentence on what was fitted and how it ended."""
    status = Status(int(fit.status))
    method = str(fit.options.get("method", "")).upper()
    verb = "" if has_converged(fit) else "NOT CONVERGED: "
    cells = len(fit.subjects) * len(fit.items)
    missing = 1 - fit.num_observed / cells
    sentences = [
        f"{verb}{fit.model.name} by {method or 'its method'} on"
        f" {len(fit.subjects):,} subjects and {len(fit.items):,} items"
        f" ({percent(round(missing, 3))} missing): {status.explain()} after"
        f" {fit.num_steps:,} iterations; log-likelihood {number(fit.log_likelihood)},"
        f" AIC {number(fit.aic, 1)}, BIC {number(fit.bic, 1)}."
    ]
    if fit.options.get("choice"):
        choice = str(fit.options["choice"])
        sentences.append(f"{choice[0].upper()}{choice[1:]}.")
    lost = flag_counts(fit.item_table, "item").get(NOT_IDENTIFIED, [])
    if lost:
        sentences.append(
            f"NOT IDENTIFIED: {len(lost):,} of {len(fit.items):,} items have parameters"
            " that the data and the priors do not determine; these have no standard"
            " error (see the warnings)."
        )
    if fit.parameters.lengths is not None:
        rho, bounds = float(fit.parameters.lengths.correlation), None
        found = f"Ability and speed correlate at {number(rho)}"
        if fit.correlation_interval is not None:
            bounds = fit.correlation_interval
            found += f" ({interval(*bounds)}, {percent(fit.level)})"
        # A direction only where the interval is clear of zero.
        if bounds is not None and bounds[0] * bounds[1] > 0:
            how = "at greater length" if rho < 0 else "more briefly"
            found += f": subjects of higher ability write {how}"
        sentences.append(f"{found}.")
    return sentences


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
    name = escape(best["subject"])
    more = sum(rank == 1 for rank in table.column("rank").to_pylist()) - 1
    who, it = f"{name} has", "It"
    if more:
        who, it = f"{name} and {more:,} more have", name
    out += [
        f"{who} the highest ability, {number(best['ability'])} ± {number(half)}"
        f" ({percent(ranked.level)}). {it} is"
        f" the best of all with probability {number(best['probability_best'])};"
        f" {percent(ranked.level)} interval of its rank:"
        f" {interval(best['rank_lower'], best['rank_upper'], 0)}."
    ]
    if table.num_rows > 1:
        # The best subject is in the first group alone or with those that it ties with.
        group = ranked.groups[0]
        rivals = [name for name in group if name != best["subject"]]
        # Only those that are named are escaped: there can be 500,000.
        rivals[:MOST_RIVALS] = map(escape, rivals[:MOST_RIVALS])
        out.append(
            f"It is statistically tied with {listing(rivals, MOST_RIVALS)}: no"
            " difference within this group is significant."
            if rivals
            else "It is significantly different from every other subject, pair by pair."
        )
        share = ranked.num_different / max(ranked.num_pairs, 1)
        count = len(ranked.groups)
        form = "overlapping groups" if count > 1 else "group"
        out.append(
            f"Of {ranked.num_pairs:,} pairs of subjects {ranked.num_different:,}"
            f" ({percent(round(share, 3))}) are significantly different (false"
            f" discovery rate {percent(round(1 - ranked.level, 6))}); the subjects"
            f" form {count:,} {form} of statistically tied subjects."
        )
    return out


def item_sentences(
    fit: Calibration, escape: Callable[[str], str] = visible
) -> list[str]:
    """Returns sentences, with a line per flag, on items to examine.

    Items without variation are counted apart: that is a fact, not a defect.
    """
    found = flag_counts(fit.item_table, "item")
    still = {name: found.pop(name) for name in NO_VARIATION if name in found}
    rate, total = percent(FALSE_DISCOVERY_RATE), len(fit.items)
    out = [
        _counted(total, found, f"are flagged (false discovery rate {rate})", escape)
        if found
        else f"No item is flagged (false discovery rate {rate})."
    ]
    if still:
        out.append(_counted(total, still, "have no variation", escape))
    return out


def _counted(
    total: int, found: dict[str, list[str]], what: str, escape: Callable[[str], str]
) -> str:
    """A sentence on items, with a line per flag."""
    count = len(set().union(*found.values()))
    lines = [f"{count:,} of {total:,} items {what}:"]
    for flag, which in list(found.items())[:8]:
        some = listing([escape(name) for name in which], 3)
        lines.append(f"  {flag}: {len(which):,} ({some})")
    return "\n".join(lines)
