"""Plain-language flags: problems that a reader of the numbers must know.

Items and subjects without variation stay in the tables, marked in the column of flags:
that is no evidence of a fault. A flag that claims a defect is the decision of a test
with control of the false discovery rate (`irtjax.calibration.discrimination`).
Separation is no defect of an item: a flag only where no prior determines the slope.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from irtjax._types import Status
from irtjax.calibration.discrimination import FALSE_DISCOVERY_RATE
from irtjax.calibration.scale import estimates_slopes
from irtjax.data.stored_cells import AbstractStoredCells
from irtjax.data.wording import are, counted, percent
from irtjax.estimators.estimates import Estimates
from irtjax.likelihood.cubature import MOST_DIMS
from irtjax.models.model import Model

#: Subjects below which a model's item parameters depend strongly on their priors. From
#: the precision of a slope at average difficulty, about sqrt(8 / N) for the 2PL (0.4 at
#: 50), and the usual advice for models with asymptotes.
FEW_SUBJECTS = {1: 20, 2: 50, 3: 250, 4: 500}

#: The same for scores, which have more information: the relative error of a standard
#: deviation is sqrt(1 / (2 N)), an eighth at 30.
FEW_SUBJECTS_SCORES = 30

#: Least and most able subjects, or share of all, looked at first for separated items.
ENDS, SHARE = 100, 0.02
#: Cells that are looked at together, of items without overlap at the ends.
BLOCK = 2**22
#: Responses of a subject from which joint estimates of items have little bias.
ENOUGH_RESPONSES = 300

#: A discrimination or intercept beyond this, without a prior on it, diverges.
DIVERGING = 25.0

ALL_RIGHT = "all right"
ALL_WRONG = "all wrong"
NO_RESPONSES = "no responses"
NEGATIVE = "negative discrimination"
NOT_IDENTIFIED = "not identified"
SEPARATED = "separated"
RUNAWAY = "no finite estimate"
COPY = "same responses as another subject"

#: Facts about the responses: no test, and no defect of an item.
CONSTANT = (ALL_RIGHT, ALL_WRONG)
NO_VARIATION = (*CONSTANT, NO_RESPONSES)

#: Flags and what they mean.
MEANING = {
    ALL_RIGHT: "every response is the highest possible",
    ALL_WRONG: "every response is the lowest possible",
    NO_RESPONSES: "nothing was observed: check the reading",
    NEGATIVE: "stronger subjects do worse, false discovery rate"
    f" {percent(FALSE_DISCOVERY_RATE)}: check the key",
    NOT_IDENTIFIED: "the data do not determine all its parameters: those have no"
    " standard error",
    SEPARATED: "right and wrong responses do not overlap in ability: without a prior"
    " the slope has no finite maximum",
    RUNAWAY: "without a prior the likelihood has no maximum: the value is where the"
    " iteration stopped",
    COPY: "nearly the same responses as another subject: one model under two names?",
}

USE_PRIORS = "use priors"
#: Cures of flags of items in a fit with priors and in one without.
_CURES = {
    ALL_RIGHT: ("", "without a prior it has no limit"),
    NOT_IDENTIFIED: (
        "use a model with fewer parameters per item, or narrower priors",
        "use priors, or a model with fewer parameters per item",
    ),
    SEPARATED: ("give a prior on discriminations", USE_PRIORS),
    RUNAWAY: ("give priors on discriminations and intercepts", USE_PRIORS),
}
_CURES[ALL_WRONG] = _CURES[ALL_RIGHT]
#: Most items that a warning names.
MOST_NAMES = 5


class Margins(NamedTuple):
    """Counts of a table's rows or columns, each `[size]`."""

    observed: np.ndarray
    total: np.ndarray
    lowest: Bool[np.ndarray, " size"]
    highest: Bool[np.ndarray, " size"]


def margins(cells: AbstractStoredCells, top: int, axis: int, low: int = 0) -> Margins:
    """Margins of the items (axis 0) or the subjects, of responses `low` to `top`."""
    count, total = cells.count(axis), cells.sum(axis)
    some = count > 0
    lowest, highest = total == low * count, total == top * count
    return Margins(count, total, lowest & some, highest & some)


def no_variation(margins: Margins) -> list[tuple[str, Bool[np.ndarray, " size"]]]:
    """Flags of rows or columns without variation, or without responses, and where."""
    return [
        (NO_RESPONSES, margins.observed == 0),
        (ALL_RIGHT, margins.highest),
        (ALL_WRONG, margins.lowest & ~margins.highest),
    ]


def join_flags(size: int, flags: list[tuple[str, np.ndarray]]) -> list[str]:
    """One string of flags per row or column, "; " between them and "" for none.

    >>> join_flags(2, [("a", np.array([True, False])), ("b", np.array([True, False]))])
    ['a; b', '']
    """
    texts = [""] * size
    for name, mask in flags:
        for k in np.flatnonzero(mask).tolist():
            texts[k] = f"{texts[k]}; {name}" if texts[k] else name
    return texts


def separated_items(
    cells: AbstractStoredCells, ability: Float[np.ndarray, " subjects"]
) -> Bool[np.ndarray, " items"]:
    """Items whose right and wrong responses do not overlap in ability.

    A binary item is separated when every subject who is right is more able than every
    one who is wrong, or the reverse; items without variation are not.
    """
    # Most items have right and wrong responses among the least able and among the most
    # able: those overlap, and need no look at the other subjects.
    size = ability.size
    ends = min(max(ENDS, int(SHARE * size)), size // 2)
    order = np.argpartition(ability, [ends, size - ends - 1])
    overlap = np.ones(cells.shape[1], bool)
    for rows in (order[:ends], order[size - ends :]):
        part = cells.select(rows, None)
        total, count = part.sum(0), part.count(0)
        overlap &= (total > 0) & (total < count)
    # Places instead of abilities: equal abilities are not apart.
    place = np.unique(ability, return_inverse=True)[1].astype(np.int32)
    separated = np.zeros(cells.shape[1], bool)
    for block in cells.item_blocks(BLOCK, np.flatnonzero(~overlap)):
        right = block.seen & (block.values > 0)
        kinds, at = (right, block.seen & ~right), block.of_subjects(place)
        lowest = [np.where(kind, at, size).min(axis=0) for kind in kinds]
        highest = [np.where(kind, at, -1).max(axis=0) for kind in kinds]
        mixed = (highest[0] >= 0) & (highest[1] >= 0)
        apart = (lowest[0] > highest[1]) | (lowest[1] > highest[0])
        separated[block.items] = mixed & apart
    return separated


class ItemFindings(NamedTuple):
    """Findings about each item.

    Whether a test finds negative discrimination, right and wrong responses do not
    overlap in ability, an estimate grows without limit, a parameter is not identified.
    """

    negative: Bool[np.ndarray, " items"]
    separated: Bool[np.ndarray, " items"]
    diverging: Bool[np.ndarray, " items"]
    not_identified: Bool[np.ndarray, " items"]


def diverging_items(
    model: Model, slope: np.ndarray, intercept: np.ndarray
) -> Bool[np.ndarray, " items"]:
    """Items with an extreme slope or intercept that no prior keeps finite."""
    extreme = np.abs(intercept).reshape(len(slope), -1).max(axis=1)
    diverging = np.zeros(len(slope), bool)
    for name, size in (
        ("discrimination", np.abs(slope)),
        (model.family.intercept_name, extreme),
    ):
        if name not in model.priors:
            diverging |= size > DIVERGING
    return diverging


def without_estimate(
    model: Model, items: Margins, findings: ItemFindings
) -> Bool[np.ndarray, " items"]:
    """Items whose estimates do not exist, so that their errors do not either."""
    absent = findings.diverging.copy()
    if model.family.intercept_name not in model.priors:
        absent |= items.lowest | items.highest | (items.observed == 0)
    if model.family.has_slope and "discrimination" not in model.priors:
        absent |= findings.separated
    return absent


def item_flags(model: Model, items: Margins, findings: ItemFindings) -> list[str]:
    """One string of flags per item, "; " between them and "" for none."""
    constant = no_variation(items)
    varied = ~np.any([which for _, which in constant], axis=0)
    slope_alone = model.family.has_slope and "discrimination" not in model.priors
    others = [
        (NEGATIVE, findings.negative),
        (SEPARATED, findings.separated & slope_alone),
        (RUNAWAY, findings.diverging & varied),
        (NOT_IDENTIFIED, findings.not_identified),
    ]
    return join_flags(items.observed.size, constant + others)


def separation_note(separated: np.ndarray) -> str | None:
    """A note on items whose slopes the prior determines; None without such items.

    >>> separation_note(np.array([True, False]))[:22]
    '1 item is separated (c'
    """
    count = int(np.sum(separated))
    if not count:
        return None
    slopes = "their slopes" if count > 1 else "its slope"
    return (
        f"{counted(count, 'item')} {are(count)} separated (column 'separated'): right"
        " and wrong responses do not overlap in ability, and the prior determines"
        f" {slopes}; that is no defect"
    )


def direction_note(
    negative: np.ndarray, flags: list[str], items: np.ndarray
) -> str | None:
    """A note on items with negative slopes that no test flags; None without any.

    >>> direction_note(np.array([True, False]), ["", ""], np.array(["a", "b"]))[:33]
    '1 item is fitted with a negative '
    """
    flagged = np.array([NEGATIVE in flag.split("; ") for flag in flags])
    names = [str(name) for name in items[negative & ~flagged]]
    if not names:
        return None
    keys = "their keys" if len(names) > 1 else "its key"
    return (
        f"{counted(len(names), 'item')} {are(len(names))} fitted with a negative"
        " discrimination, the likelier sign (without error control):"
        f" {_listed(names)}; check {keys}"
    )


def _status_cure(estimates: Estimates) -> str:
    """What to do about a fit that did not converge."""
    # Networks and variational approximations take no other priors.
    priors = estimates.trained or estimates.priors
    if estimates.status == Status.STALLED:
        if estimates.coordinates.dtype == np.float32:
            return "use float64 (JAX_ENABLE_X64=1)"
        return "use smaller steps or larger batches, if the method takes them"
    if estimates.status == Status.NONFINITE:
        return "use other start values" if priors else "use priors"
    limit = "epochs" if estimates.trained else estimates.limit
    return f"raise {limit}" + ("" if priors else ", or use priors")


def fit_warnings(
    estimates: Estimates,
    *,
    num_subjects: int,
    components: int,
    flags: list[str],
    subject_flags: list[str],
    items: np.ndarray | None = None,
    responses_per_subject: float = 0.0,
    tested: bool = True,
) -> tuple[str, ...]:
    """Warnings about the whole fit, each a sentence.

    `flags` and `items` are the items' flags and names; `responses_per_subject` is a
    median; `tested`, whether pairs of subjects are tested.
    """
    model, priors = estimates.problem.model, bool(estimates.priors)
    joint, warnings = estimates.joint, []
    if estimates.status != Status.CONVERGED:
        warnings.append(
            f"{estimates.status.explain()} (residual {estimates.residual:.2g}): treat"
            f" the estimates as provisional; {_status_cure(estimates)}"
        )
    dims = estimates.num_factors
    needed = 50 * dims if dims else FEW_SUBJECTS.get(model.family.num_columns, 50)
    if model.family.num_categories == 0:
        needed = FEW_SUBJECTS_SCORES
    if num_subjects < needed:
        basis = (
            "item parameters depend strongly on the priors"
            if priors
            else "item parameters are poorly determined"
        )
        # By `em` with 12 to 50 subjects; by joint methods they cover 94 to 97 %.
        # `with_errors_of_scale` warns where mean responses are compared.
        pairs = "; 95 % intervals of differences cover 86 to 94 %: use method='laplace'"
        free = model.family.integrable and tested and not joint
        free = free and estimates_slopes(estimates)
        scores = "; 95 % intervals of expected scores cover 85 to 94 %"
        scores = scores * bool(dims and tested)
        warnings.append(
            f"only {num_subjects} subjects for a {model.name} model (about {needed}"
            f" advised): {basis}{pairs * free}{scores}"
        )
    if components > 1:
        warnings.append(
            f"the data fall into {components} groups without a common subject or item:"
            " abilities in different groups are comparable only through the population"
        )
    warnings += flag_warnings(flags, items, has_priors=priors)
    flagged = [flag.split("; ") for flag in subject_flags if flag]
    for name in (*NO_VARIATION, RUNAWAY):
        count = sum(name in names for names in flagged)
        if count:
            noun = "subjects" if count > 1 else "subject"
            warnings.append(
                f"{count} {noun}: {name} ({_of_subjects(name, priors, joint)})"
            )
    if joint and not estimates.trained and responses_per_subject < ENOUGH_RESPONSES:
        # Where mean responses are compared, `em` is no cure.
        cure, family = ": use method='em'" * tested, model.family
        if dims:  # Several abilities: gvem for logits, else em on a grid.
            logit = family.by_cell and getattr(family, "link", "") == "logit"
            cure = "; method='em' has no such bias if its grid resolves the posteriors"
            cure = cure if dims <= MOST_DIMS else ""
            if logit:
                cure = "; method='gvem' has no such bias and takes longer"
        warnings.append(
            "joint estimates of items are biased when each subject has few responses"
            f" (here {responses_per_subject:,.0f}){cure}"
        )
    return tuple(warnings)


def flag_warnings(
    flags: list[str], items: np.ndarray | None = None, *, has_priors: bool
) -> list[str]:
    """One warning for each flag that items have; `items` are their names.

    Items without variation get none where priors determine their estimates.
    """
    warnings = []
    for name in MEANING:
        flagged = [j for j, flag in enumerate(flags) if name in flag.split("; ")]
        if not flagged or (has_priors and name in CONSTANT):
            continue
        text = MEANING[name]
        if name in _CURES:
            text += f"; {_CURES[name][0 if has_priors else 1]}"
        named = (
            "" if items is None else f": {_listed([str(items[j]) for j in flagged])}"
        )
        warnings.append(f"{counted(len(flagged), 'item')}: {name}{named} ({text})")
    return warnings


def is_of_items(warning: str) -> bool:
    """Whether `flag_warnings` made a warning.

    >>> is_of_items("2 items: separated: a, b"), is_of_items("1 subject: all right")
    (True, False)
    """
    return re.match(r"[\d,]+ items?: ", warning) is not None


def _listed(names: list[str]) -> str:
    """The first names, and the number of those left out."""
    shown = ", ".join(names[:MOST_NAMES])
    left = len(names) - MOST_NAMES
    return shown if left <= 0 else f"{shown} and {left:,} more"


def _of_subjects(name: str, priors: bool, joint: bool) -> str:
    """What a flag of subjects means."""
    if name == NO_RESPONSES:
        return MEANING[name]
    if name == RUNAWAY:
        return f"{MEANING[name]}; {USE_PRIORS}"
    if not joint:
        return "the estimate depends on the distribution of ability"
    if priors:
        return "the estimate depends on the prior of abilities"
    return f"the estimate has no finite value; {USE_PRIORS}"
