"""`audit`: which items of a benchmark are bad, with error control."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from irtjax._types import RandomKey
from irtjax.auditing.agreement import ItemsToRead, items_to_read
from irtjax.auditing.cautions import cautions
from irtjax.auditing.control import no_signal
from irtjax.auditing.examine import (
    SEEN,
    TESTED,
    ItemStatistics,
    OrderedFit,
    all_flags,
    column_of,
    decide,
    examine,
    several_abilities,
)
from irtjax.auditing.of_scores import examine_scores, left_out
from irtjax.auditing.tables import benchmark_table, item_table
from irtjax.calibration import copies
from irtjax.calibration.calibration import Calibration
from irtjax.data import ResponseTable, read
from irtjax.data.frames import HasTable
from irtjax.data.matching import match_all_items
from irtjax.data.scores import MAJORITY, as_majority
from irtjax.data.wording import counted
from irtjax.estimators.catalogue import method_class
from irtjax.estimators.driver import RunSettings
from irtjax.fitting.defaults import AUTO, choose
from irtjax.fitting.fit import fit as make_fit
from irtjax.models.catalogue import model_class
from irtjax.models.families.bounded import binary_items
from irtjax.models.multilevel.specification import AbstractMultilevel
from irtjax.numerics.precision import full_precision
from irtjax.numerics.seeds import seed_of
from irtjax.validity import sum_scores
from irtjax.validity.missingness import describe, missing_of_table


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Audit(HasTable):
    """The quality of each item and each benchmark.

    Attributes:
        items: One row per item, in the order of the data; the columns are listed in
            docs/columns.md. Nulls stand where there is no number.
        benchmarks: One row per benchmark: its difficulty (`benchmark_difficulty`) and
            the means of the other five properties, their ranks and the sum of these
            (the least is the best), and the share of items with each defect.
        control: One row per tested defect: how many items have it, and how many
            without signal; None unless permutations were requested.
        groups: The groups of scores behind S-X2, for figures; None without.
        fit: The calibration that was used.
        alpha: Cronbach's alpha of the whole test; NaN where it does not exist.
        false_discovery_rate: Level at which each defect is tested.
        missing: Which items are missing more often for weak or for strong subjects, in
            words (`irtjax.missingness`). That is no defect of an item.
        warnings: What the tables must be read with, each a sentence.
        to_read: The items to read first, by the answers of models or by low scores of
            able ones (`irtjax.auditing.items_to_read`).
    """

    title = "Items with flags"
    columns = ("item", "flags", "accuracy", "discrimination", "observed")

    items: pa.Table
    benchmarks: pa.Table
    control: pa.Table | None
    groups: sum_scores.GroupTests | None
    fit: Calibration
    alpha: float
    false_discovery_rate: float
    missing: str
    warnings: tuple[str, ...]
    to_read: ItemsToRead | None = None

    @property
    def table(self) -> pa.Table:
        """The items."""
        return self.items

    @property
    def sentence(self) -> str:
        """How many items have flags."""
        flagged = self._shown().num_rows
        return f"{flagged:,} of {counted(self.items.num_rows, 'item')} are flagged."

    def _shown(self) -> pa.Table:
        """The items with flags."""
        return self.items.filter(pc.field("flags") != "")

    def counts(self) -> dict[str, int]:
        """Number of items by defect."""
        flags = [flag.split("; ") for flag in self.items.column("flags").to_pylist()]
        return {name: sum(name in f for f in flags) for name in (*TESTED, *SEEN)}

    def flagged(self, defect: str) -> list[str]:
        """Names of the items with a defect, the smallest p-value first.

        Raises:
            ValueError: If there is no such defect.
        """
        if defect not in (defects := (*TESTED, *SEEN)):
            raise ValueError(f"defect {defect!r} is not one of {', '.join(defects)}")
        rows = self.items.select(["item", "flags"]).to_pylist()
        chosen = [k for k, x in enumerate(rows) if defect in x["flags"].split("; ")]
        if defect in TESTED:
            p_value = self.items.column(column_of(defect)).to_pylist()
            chosen.sort(key=lambda k: p_value[k])
        return [rows[k]["item"] for k in chosen]

    def nearest(self, num_items: int = 3) -> list[tuple[str, str, float]]:
        """Item, defect and p-value of the items with the smallest p-values.

        They are the first to read where few subjects leave the tests without power.
        The p-values are those of single tests, before the false discovery rate.
        """
        names = self.items.column("item").to_pylist()
        columns = [
            self.items.column(column_of(defect)).to_pylist() for defect in TESTED
        ]
        p = np.array([[np.nan if x is None else x for x in c] for c in columns], float)
        p = np.where(np.isfinite(p), p, np.inf)
        least, defect = p.min(0), np.array(list(TESTED))[p.argmin(0)]
        order = np.argsort(least, kind="stable")[:num_items]
        return [
            (names[k], str(defect[k]), float(least[k]))
            for k in order.tolist()
            if least[k] < 1
        ]


@full_precision
def audit(
    fit: Calibration | ResponseTable | Any,
    data: ResponseTable | Any = None,
    *,
    false_discovery_rate: float = 0.05,
    chance: float | Mapping[str, float] = 0.0,
    permutations: int = 0,
    key: RandomKey | None = None,
    **options: Any,
) -> Audit:
    """Examines every item: its properties and its defects.

    Each defect is a test of every item, and over items the false discovery rate of
    each is controlled (Benjamini and Hochberg 1995): on average at most that share of
    the items flagged with one kind do not have it. Where every item is sound, the
    chance of any flag of a kind is at most that. docs/evidence/audit-tests.md explains
    how each test is made and what it assumes.

    Args:
        fit: A calibration of these items with a model of one ability. Or the responses
            alone: they are fitted by the model and the method that `irtjax.fit` chooses
            for right and wrong responses, unless `options` name others.
        data: The responses: a `ResponseTable`, or what `irtjax.read` takes. Counts of
            trials are right where at least half of them are; they are then fitted
            again. Of scores and of ordered categories negative discrimination and
            duplicates are tested.
        false_discovery_rate: Level for each defect.
        chance: Lower asymptote that is not suspicious, such as 0.25 for four choices:
            one number, or one for each benchmark by name.
        permutations: Tables without signal to draw and to examine in the same way.
        key: A whole number or a JAX key, for these.
        **options: Given to `irtjax.fit` where there is no fit.

    Raises:
        ValueError: If the fit is of other items, or of right and wrong responses by a
            model with several abilities, or an option is out of range.

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> report = audit(table)
    >>> report.items.num_rows == table.num_items, report.counts()["duplicate"]
    (True, 0)
    """
    has_fit = isinstance(fit, Calibration)
    if isinstance(data, Calibration) or has_fit == (data is None):
        raise ValueError("audit takes a fit and the responses, or the responses alone")
    data = data if has_fit else fit
    table = data if isinstance(data, ResponseTable) else read(data)
    level = false_discovery_rate
    if has_fit and options:
        raise ValueError(
            f"{', '.join(options)}: options of a fit, but a fit is given; leave one out"
        )
    raw, made = table, fit
    single = table.kind != "counts" or not binary_items(table).all()
    if not single:
        table = as_majority(table)
    if not single and isinstance(fit, Calibration):
        # Curves of one trial are not those of the majority.
        right = fit.model.family.num_categories == 2
        fit, options["model"] = table, fit.model.name if right else AUTO
    _check(table, level, permutations)
    if table.kind != "binary":
        return _of_scores(fit, table, level, options)
    guess = _guessing(table, chance)
    if not isinstance(fit, Calibration):
        model, method = options.pop("model", AUTO), options.pop("method", AUTO)
        kind = model_class(model)
        if issubclass(kind, AbstractMultilevel) and kind.grouped:
            raise ValueError(several_abilities(kind.name))
        model, method, *_ = choose(table, model, method, options)
        # `fit` refuses what is no method.
        runs = getattr(_class_of(method), "runs", RunSettings())
        if "standard_errors" in runs.options:
            options.setdefault("standard_errors", "none")
        fit = make_fit(table, model, method, **options)
        # The fit's own phases are over.
        if options.get("progress") is not None:
            options["progress"]("examine items", 0, math.nan, math.nan, 0.0)
    ordered = OrderedFit.of(fit, table)
    statistics = examine(table, ordered, guess)
    control = None
    if permutations:
        control = no_signal(
            table, ordered, guess, statistics, level, permutations, seed_of(key)
        )
    return _report(
        table,
        statistics,
        level,
        lambda flags: [
            *([] if single else [MAJORITY]),
            *cautions(table, statistics, flags, level),
        ],
        control=control,
        to_read=_to_read(made if has_fit else fit, raw, level),
    )


def _report(
    table: ResponseTable,
    statistics: ItemStatistics,
    level: float,
    warn: Callable[[dict[str, np.ndarray]], list[str]],
    *,
    control: pa.Table | None,
    to_read: ItemsToRead | None,
) -> Audit:
    """Decides on every item, and makes the tables; warnings depend on the flags."""
    decided = decide(statistics, level)
    flags = all_flags(statistics, decided)
    missing = missing_of_table(table)
    return Audit(
        items=item_table(table, statistics, decided, flags, missing, level),
        benchmarks=benchmark_table(table, statistics, flags),
        groups=statistics.groups,
        fit=statistics.fitted.fit,
        alpha=statistics.classical.alpha,
        false_discovery_rate=level,
        missing=describe(missing, table.items, table.benchmarks, level),
        warnings=tuple(warn(flags)),
        control=control,
        to_read=to_read,
    )


def _to_read(fit: Any, table: ResponseTable, level: float) -> ItemsToRead | None:
    """The items to read; None where the fit is of other subjects."""
    if np.isin(table.subjects, fit.subject_names).any():
        return items_to_read(fit, table, false_discovery_rate=level)
    return None


def _of_scores(fit: Any, table: ResponseTable, level: float, options: Any) -> Audit:
    """The audit of ordered categories or scores."""
    if not isinstance(fit, Calibration):
        model, method = options.pop("model", AUTO), options.pop("method", AUTO)
        fit = make_fit(table, model, method, **options)
    elif fit.model.family.num_categories == 2 and not fit.options.get("worth"):
        raise ValueError(
            f"the fit is of right and wrong responses, and these are {table.kind}: give"
            " the fit of these responses"
        )
    match_all_items(table, fit.item_names, "audit", fit.item_contents)
    return _report(
        table,
        examine_scores(fit, table),
        level,
        lambda _: [
            *copies.warnings_of(copies.of_table(table), table.subjects),
            left_out(),
        ],
        control=None,
        to_read=_to_read(fit, table, level),
    )


def _class_of(method: Any) -> Any:
    """A method, or the class of its name."""
    return method_class(method) if isinstance(method, str) else method


def _check(table: ResponseTable, level: float, permutations: int) -> None:
    """Refuses data and levels that an audit cannot be of."""
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
        names = table.benchmarks.tolist()
        for name in chance:
            if name not in names:
                shown = ", ".join(sorted(set(names))[:5])
                raise ValueError(f"chance: no benchmark is called {name!r} ({shown})")
        values = np.array([chance.get(name, 0.0) for name in names])
    else:
        values = np.full(table.num_items, float(chance))
    wrong = values[~((values >= 0) & (values < 1))]
    if wrong.size:
        raise ValueError(f"chance {wrong[0]:g} is not at least 0 and below 1")
    return values
