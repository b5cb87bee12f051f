"""What an audit could not test, or could hardly find, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from irtjax.auditing.examine import LEAST_COMPLETE, ItemStatistics
from irtjax.calibration import copies
from irtjax.data import ResponseTable
from irtjax.data.wording import counted, have
from irtjax.numerics.tails import ENUMERATED, log_choose
from irtjax.validity import classical, sum_scores
from irtjax.validity.asymptotes import LEAST_ANSWERS
from irtjax.validity.item_fit import MisfitEffect, NodeLikelihood, misfit_effect

#: Subjects below which most leaked items are not found.
FEW_LEAKED = 1000
#: Share of misfitting items from which the model is to blame.
MANY = 0.5
#: Items below which residual correlations are too low.
FEW_ITEMS = 30


def cautions(
    table: ResponseTable, statistics: ItemStatistics, flags: dict, level: float
) -> list[str]:
    """What the tables of an audit must be read with, each a sentence."""
    return [
        # Tests count copies as independent subjects.
        *copies.warnings_of(copies.of_table(table), table.subjects),
        *_of_power(table, statistics, level),
        *_of_slopes(statistics),
        *_of_reliability(statistics),
        *_of_misfit_groups(statistics),
        *_of_contamination(table, statistics),
        *_of_many_misfits(table, statistics, flags),
        *_of_few_items(table),
    ]


def _of_power(table: ResponseTable, statistics: ItemStatistics, level) -> Iterator[str]:
    count = table.num_subjects
    if count >= 2 * classical.ENOUGH:
        return
    least = float(np.exp(-log_choose(np.array(count), np.array(count // 2))))
    tested = int(np.isfinite(statistics.classical.item_rest).sum())
    needed = int(np.ceil(least * tested / level))
    how = "exact" if count <= ENUMERATED else "nearly exact"
    so = f"{max(needed, 1):,} of {tested:,} items must reach that before one is"
    if needed > tested:
        so = "no item can be"
    yield (
        f"{count} subjects have very little power to find a bad item: the {how}"
        f" test of one item has a smallest possible p of {least:.2g}, so {so}"
        " flagged; an item without a flag can still be bad"
    )


def _of_slopes(statistics: ItemStatistics) -> Iterator[str]:
    model = statistics.fitted.fit.model
    if not model.family.has_slope:
        yield (
            f"a {model.name} model has slopes of 1: discriminations, and the"
            " properties that depend on them, describe the model and not the items"
        )


def _of_reliability(statistics: ItemStatistics) -> Iterator[str]:
    alpha = statistics.classical.alpha
    if not alpha >= classical.LEAST_RELIABILITY:
        shown = f"{alpha:.2g}" if np.isfinite(alpha) else "undefined"
        yield (
            f"the items have next to nothing in common (alpha {shown}): no item is"
            " called undiscriminating, wrongly keyed, misfitting or contaminated,"
            " since the others have too little information about ability"
        )


def _of_misfit_groups(statistics: ItemStatistics) -> Iterator[str]:
    if statistics.groups is not None:
        return
    complete = statistics.num_complete
    if complete < LEAST_COMPLETE:
        yield (
            f"{counted(complete, 'subject')} answered every item, and S-X2 needs"
            f" {LEAST_COMPLETE}: it is left out"
        )
    else:
        yield (
            "the subjects' scores are too few or too alike: S-X2 needs"
            f" {sum_scores.LEAST_GROUPS} groups of different scores: it is left out"
        )


def _of_contamination(
    table: ResponseTable, statistics: ItemStatistics
) -> Iterator[str]:
    if statistics.fitted.link is None:
        yield (
            "contamination is tested against logistic or normal curves, which a"
            f" {statistics.fitted.fit.model.name} model does not have: it is left out;"
            " audit a fit of 2pl to test it"
        )
        return
    count = table.num_subjects
    short = int(np.sum(statistics.classical.observed < LEAST_ANSWERS))
    if short:
        yield (
            f"{short:,} of {counted(table.num_items, 'item')} {have(short)} fewer than"
            f" {LEAST_ANSWERS}"
            " responses, which the test of contamination needs: they are left out of it"
        )
    if short < table.num_items and count < FEW_LEAKED:
        yield (
            f"{count:,} subjects are too few to find most leaked items (in simulations,"
            " of items leaked to half of the subjects none of 24 was flagged with 300"
            " subjects, and 61 % with 1,500): no flag for contamination is no evidence"
            " against a leak"
        )


def _of_many_misfits(
    table: ResponseTable, statistics: ItemStatistics, flags: dict
) -> Iterator[str]:
    misfits, tested = flags["misfit"], np.isfinite(statistics.p_values()["misfit"])
    if misfits.sum() > MANY * max(tested.sum(), 1):
        effect = str(_effect_of_misfit(table, statistics, misfits))
        yield (
            f"{effect[0].lower()}{effect[1:]}: with {statistics.num_complete:,}"
            " subjects small departures show, and the"
            f" {statistics.fitted.fit.model.name} model may be unlike all of these data"
            " rather than the items bad; try another, and compare by the figure"
        )


def _effect_of_misfit(
    table: ResponseTable, statistics: ItemStatistics, misfits: np.ndarray
) -> MisfitEffect:
    """How far subjects move without the items that misfit."""
    groups = statistics.groups
    assert groups is not None  # Items without a test do not misfit.
    nodes, weights = statistics.fitted.population()
    right = statistics.fitted.curves(nodes)
    values, observed = table.stored.dense
    likelihood = NodeLikelihood(
        values,
        np.asarray(observed, bool),
        np.stack([1 - right, right], -1),
        np.arange(2.0),
        nodes,
        weights,
    )
    rmsd = np.sqrt(((groups.right - groups.expected) ** 2 / groups.sizes).sum(1))
    return misfit_effect(likelihood, misfits, rmsd)


def _of_few_items(table: ResponseTable) -> Iterator[str]:
    if table.num_items < FEW_ITEMS:
        yield (
            f"with {table.num_items} items each weighs in its own ability estimates:"
            " residual correlations are then too low, and dependence is overlooked"
        )
