"""`audit`: which items of a benchmark are bad, with error control."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.auditing.control import no_signal
from irtjax.auditing.examine import (
    LEAST_COMPLETE,
    SEEN,
    TESTED,
    Found,
    Known,
    all_flags,
    column_of,
    decide,
    examine,
    several_abilities,
)
from irtjax.auditing.tables import benchmark_table, item_table
from irtjax.calibration.calibration import Calibration
from irtjax.data import ResponseTable, read
from irtjax.numerics.tails import ENUMERATED, log_choose
from irtjax.validity import classical, sum_scores
from irtjax.validity.asymptotes import LEAST_ANSWERS

if TYPE_CHECKING:
    import pyarrow as pa


#: Share of misfitting items from which the model is to blame.
MANY = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class Audit:
    """What is known about the quality of each item and each benchmark.

    Attributes:
        items: One row per item, in the order of the data; the columns are listed in
            docs/audit.md. Nulls stand where there is no number.
        benchmarks: One row per benchmark: its difficulty (`benchmark_difficulty`) and
            the means of the other five properties, their ranks and the sum of these
            (the least is the best), and the share of items with each defect.
        control: One row per tested defect: how many items have it, and how many where
            there is no signal; None unless permutations were requested.
        groups: The groups of scores behind S-X2, for figures; None without.
        fit: The calibration that was used.
        alpha: Cronbach's alpha of the whole test; NaN where it does not exist.
        false_discovery_rate: Level at which each defect is decided.
        warnings: What the tables must be read with, each a sentence.
    """

    items: pa.Table
    benchmarks: pa.Table
    control: pa.Table | None
    groups: sum_scores.GroupTests | None
    fit: Calibration
    alpha: float
    false_discovery_rate: float
    warnings: tuple[str, ...]

    def counts(self) -> dict[str, int]:
        """Number of items by defect."""
        flags = [flag.split("; ") for flag in self.items.column("flags").to_pylist()]
        return {name: sum(name in f for f in flags) for name in (*TESTED, *SEEN)}

    def flagged(self, defect: str) -> list[str]:
        """Names of the items with a defect, the surest first.

        Raises:
            ValueError: If there is no such defect.
        """
        if defect not in TESTED and defect not in SEEN:
            known = ", ".join((*TESTED, *SEEN))
            raise ValueError(f"defect {defect!r} is not one of {known}")
        rows = self.items.select(["item", "flags"]).to_pylist()
        chosen = [k for k, x in enumerate(rows) if defect in x["flags"].split("; ")]
        if defect in TESTED:
            p_value = self.items.column(column_of(defect)).to_pylist()
            chosen.sort(key=lambda k: p_value[k])
        return [rows[k]["item"] for k in chosen]


def audit(
    fit: Calibration | ResponseTable | Any,
    data: ResponseTable | Any = None,
    *,
    false_discovery_rate: float = 0.05,
    chance: float | Mapping[str, float] = 0.0,
    permutations: int = 0,
    seed: int = 0,
    **options: Any,
) -> Audit:
    """Examines every item: what it is like, and which defects it has.

    Each defect is a test of every item, and over items the false discovery rate of
    each is controlled (Benjamini and Hochberg 1995): on average at most that share of
    the items flagged with one kind are not. Where every item is sound, the
    chance of any flag of a kind is at most that. docs/audit-tests.md explains how each
    test is made and what it assumes.

    Args:
        fit: A calibration of these items with a model of one ability. Or the responses
            alone, to which "2pl" is then fitted.
        data: Right and wrong responses: a `ResponseTable`, or anything `irtjax.read`
            takes.
        false_discovery_rate: Level for each defect.
        chance: Lower asymptote that is not suspicious, such as 0.25 for four choices:
            one number, or one for each benchmark by name.
        permutations: Tables without signal to draw and to examine in the same way.
        seed: Seed of these.
        **options: Given to `irtjax.fit` where there is no fit.

    Returns:
        The audit.

    Raises:
        ValueError: If the responses are not right or wrong, the fit is of other items
            or of a model with several abilities, or an option is out of range.

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> report = audit(table)
    >>> report.items.num_rows == table.num_items, report.counts()["duplicate"]
    (True, 0)
    """
    known = fit if isinstance(fit, Calibration) else None
    if isinstance(data, Calibration) or (known is None) != (data is None):
        raise ValueError("audit takes a fit and the responses, or the responses alone")
    data, fit = (fit if known is None else data), known
    table = data if isinstance(data, ResponseTable) else read(data)
    _check(table, false_discovery_rate, permutations)
    guess = _guessing(table, chance)
    if fit is None:
        from irtjax.fitting.fit import fit as make_fit

        chosen = {"model": "2pl", "standard_errors": "none", **options}
        if chosen["model"] in ("multibenchmark", "multimetric"):
            raise ValueError(several_abilities(chosen["model"]))
        fit = make_fit(table, **chosen)
    elif options:
        raise ValueError(
            f"{', '.join(options)}: options of a fit, but a fit is given; leave one out"
        )
    known = Known.of(fit, table)
    found = examine(table, known, guess)
    decided = decide(found, false_discovery_rate)
    control = None
    if permutations:
        control = no_signal(
            table,
            known,
            guess,
            found,
            level=false_discovery_rate,
            permutations=permutations,
            seed=seed,
        )
    flags = all_flags(found, decided)
    return Audit(
        items=item_table(table, found, decided, flags, false_discovery_rate),
        benchmarks=benchmark_table(table, found, flags),
        control=control,
        groups=found.groups,
        fit=fit,
        alpha=found.classical.alpha,
        false_discovery_rate=false_discovery_rate,
        warnings=tuple(_warnings(table, found, flags, false_discovery_rate)),
    )


def _check(table: ResponseTable, level: float, permutations: int) -> None:
    """Refuses data and levels that an audit cannot be of."""
    if table.kind != "binary":
        raise ValueError(
            f"an audit is of right and wrong responses, not of {table.kind} responses:"
            " put a threshold to them first"
        )
    if table.num_subjects < 3 or table.num_items < 3:
        raise ValueError(
            f"an audit needs at least 3 subjects and 3 items, not"
            f" {table.num_subjects} and {table.num_items}"
        )
    if not 0 < level < 1:
        raise ValueError(f"false_discovery_rate {level:g} is not between 0 and 1")
    if permutations < 0:
        raise ValueError(f"permutations {permutations} is below 0")


def _guessing(table: ResponseTable, chance: float | Mapping[str, float]) -> np.ndarray:
    """The unsuspicious lower asymptote of each item."""
    if isinstance(chance, Mapping):
        names = set(table.benchmarks.tolist())
        for name in chance:
            if name not in names:
                shown = ", ".join(sorted(names)[:5])
                raise ValueError(f"chance: no benchmark is called {name!r} ({shown})")
        values = np.array([chance.get(x, 0.0) for x in table.benchmarks.tolist()])
    else:
        values = np.full(table.num_items, float(chance))
    if not ((values >= 0) & (values < 1)).all():
        bad = values[~((values >= 0) & (values < 1))][0]
        raise ValueError(f"chance {bad:g} is not at least 0 and below 1")
    return values


def _warnings(
    table: ResponseTable, found: Found, flags: Mapping[str, np.ndarray], level: float
) -> list[str]:
    """Describes what could not be tested, or could hardly be found."""
    lines = []
    count = table.num_subjects
    if count < 2 * classical.ENOUGH:
        half = count // 2
        least = float(np.exp(-log_choose(np.array(count), np.array(half))))
        tested = int(np.isfinite(found.classical.item_rest).sum())
        needed = int(np.ceil(least * tested / level))
        how = "exact" if count <= ENUMERATED else "nearly exact"
        so = f"{max(needed, 1):,} of {tested:,} items must reach that before one is"
        if needed > tested:
            so = "no item can be"
        lines.append(
            f"{count} subjects have next to no power: the {how} test of one item gives"
            f" at the least p = {least:.2g}, so {so} flagged; an item without a flag is"
            f" not thereby a good one"
        )
    if not found.classical.alpha >= classical.LEAST_RELIABILITY:
        alpha = found.classical.alpha
        shown = f"{alpha:.2g}" if np.isfinite(alpha) else "undefined"
        lines.append(
            f"the items have next to nothing in common (alpha {shown}): no item is"
            " called undiscriminating, wrongly keyed, misfitting or contaminated,"
            " since the others have too little information about ability"
        )
    if found.groups is None:
        why = f"{found.num_complete:,} subjects answered every item, and S-X2 needs"
        why += f" {LEAST_COMPLETE}"
        if found.num_complete >= LEAST_COMPLETE:
            why = "the subjects' scores are too few or too alike: S-X2 needs"
            why += f" {sum_scores.LEAST_GROUPS} groups of different scores"
        lines.append(f"{why}: it is left out")
    short = int(np.sum(found.classical.observed < LEAST_ANSWERS))
    if short:
        lines.append(
            f"{short:,} of {table.num_items:,} items have fewer than {LEAST_ANSWERS}"
            " responses, which the test of contamination needs: they are left out of it"
        )
    misfits, tested = flags["misfit"], np.isfinite(found.p_values()["misfit"])
    if misfits.sum() > MANY * max(tested.sum(), 1):
        lines.append(
            f"{misfits.sum():,} of {tested.sum():,} items misfit: with"
            f" {found.num_complete:,} subjects small departures show, and the"
            f" {found.known.fit.model.name} model may be unlike all of these data"
            " rather than the items bad; try another, and compare by the figure"
        )
    if table.num_items < 30:
        lines.append(
            f"with {table.num_items} items each weighs in its own ability estimates:"
            " residual correlations are then too low, and dependence is overlooked"
        )
    return lines
