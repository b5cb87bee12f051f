"""Several calibrations on one scale: linking constants, drifted items, abilities.

`validity.link_estimation` has the formulas.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
from scipy.stats import chi2

from irtjax.calibration.flags import CONSTANT
from irtjax.data.frames import HasTable
from irtjax.data.wording import counted, listing
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity.link_estimation import (
    NODES,
    WEIGHTS,
    Form,
    FormPairs,
    ItemLines,
    LinkEstimate,
    curves,
    distances,
    family_of,
    line_matrices,
    pairs_of,
    solve,
    solve_moments,
    with_errors,
)
from irtjax.validity.linked_fits import linked_abilities, rescaled_fit
from irtjax.validity.subject_links import (
    LEAST_SUBJECTS,
    SharedSubjects,
    solve_subjects,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.abilities import Abilities
    from irtjax.calibration.calibration import Calibration

METHODS = (
    "robust",
    "weighted",
    "stocking_lord",
    "haebara",
    "mean_mean",
    "mean_sigma",
    "subjects",
)
#: Methods by distances that count errors of items.
BY_ERRORS = "robust", "weighted"
#: Items that a note names.
MOST_NAMES = 5
#: Common items below which a note says that they are few.
FEW = 10
#: Dispersion of items between versions above which a note states it.
NOTED = 1.5


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Link(HasTable):
    """Calibrations on the scale of the first.

    Attributes:
        table: `item`, `version` and `reference` whose parameters are compared,
            `statistic`, `df`, `p_value`, `q_value` (Benjamini and Hochberg), `effect`:
            points of a hundred that the item is easier in `version` at equal ability,
            `direction` and `drifts`.
        constants: A row for each version: `A`, `A_se`, `B`, `B_se` of
            theta_first = A theta + B, `reference`: the version that it is linked to,
            and the number of `common` items, or of subjects if these link it.
        covariance: `[2 versions, 2 versions]` of A and B of all versions.
        method: Name of the method.
        estimate: Constants with their derivatives in the items' coordinates.
        fits: The calibrations, by `constants["version"]`.
        forms: The same as arrays.
        notes: What limits the link.
    """

    table: pa.Table
    constants: pa.Table
    covariance: np.ndarray
    method: str
    estimate: LinkEstimate
    fits: tuple[Calibration, ...]
    forms: tuple[Form, ...]
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def abilities(self) -> Abilities:
        """Subjects of all versions on the first scale, with linking errors.

        Expected scores are those on the items of the first. The version follows the
        name of subjects of several.
        """
        names = self.constants["version"].to_pylist()
        with jax.enable_x64(True):
            return linked_abilities(self.fits, names, self.forms, self.estimate)

    @property
    def A(self) -> float:
        """A of the last version."""
        return self.constants["A"][-1].as_py()

    @property
    def B(self) -> float:
        """B of the last version."""
        return self.constants["B"][-1].as_py()

    @property
    def A_se(self) -> float:
        """Standard error of A; NaN without errors of items."""
        return self.constants["A_se"][-1].as_py()

    @property
    def B_se(self) -> float:
        """Standard error of B; NaN without errors of items."""
        return self.constants["B_se"][-1].as_py()

    @property
    def drifted(self) -> list[str]:
        """Names of the items that drift in any version, the largest effect first."""
        rows = [row for row in self.table.to_pylist() if row["drifts"]]
        rows.sort(key=lambda row: -abs(row["effect"]))
        return list(dict.fromkeys(row["item"] for row in rows))

    def rescaled(self, fit: Calibration) -> Calibration:
        """One of the linked calibrations on the first scale: `Calibration.rescaled`."""
        places = [k for k, other in enumerate(self.fits) if other is fit]
        if not places:
            names = ", ".join(self.constants["version"].to_pylist())
            raise ValueError(
                f"the link of {names} does not include this fit: rescale one that was"
                " given to irtjax.link"
            )
        reference = self.constants["version"][0].as_py()
        return rescaled_fit(fit, self.forms, self.estimate, places[-1], reference)

    def __str__(self) -> str:
        rows = self.table.to_pylist()
        easier = sum(row["drifts"] and row["effect"] > 0 for row in rows)
        items = len({row["item"] for row in rows})
        text = (
            f"A {self.A:.3f} (standard error {self.A_se:.3f}), B {self.B:.3f}"
            f" ({self.B_se:.3f}); {len(self.drifted):,} of"
            f" {counted(items, 'common item')} drift"
        )
        return text + (f", {easier:,} of them easier" if self.drifted else "")


class _Common(NamedTuple):
    """What all steps of a link use."""

    fits: Sequence[Calibration]
    forms: list[Form]
    names: list[str]
    usable: list[np.ndarray]
    tree: list[tuple[int, int]]
    by_subjects: list[bool]

    @property
    def item_pairs(self) -> list[tuple[int, int]]:
        """Pairs of the tree that items link."""
        pairs = zip(self.tree, self.by_subjects, strict=True)
        return [pair for pair, by_subjects in pairs if not by_subjects]

    @property
    def counts(self) -> list[int]:
        """Items, or subjects, by which each calibration is linked; 0 of the first."""
        counts = [0] * len(self.forms)
        for (parent, child), by_subjects in zip(
            self.tree, self.by_subjects, strict=True
        ):
            pair = self.forms[parent].subjects, self.forms[child].subjects
            if not by_subjects:
                first, second = (
                    self.forms[k].items[self.usable[k]] for k in (parent, child)
                )
                pair = first, second
            counts[child] = int(np.count_nonzero(np.isin(*pair)))
        return counts

    @property
    def slope(self) -> bool:
        """Whether items have slopes."""
        return self.fits[0].model.family.has_slope


def link(
    *fits: Calibration,
    method: str = "robust",
    chain: bool = False,
    fdr: float = 0.05,
    names: Sequence[str] = (),
    items: Sequence[str] | None = None,
) -> Link:
    """Puts calibrations of versions of a benchmark on the scale of the first.

    Items are matched by name. Abilities of a later version become A theta + B,
    discriminations a / A, difficulties A b + B.

    Args:
        *fits: Two or more calibrations of one model with one ability, the oldest first.
        method: "robust" (least squares weighted by the errors of items, in which items
            that drift have no weight), "weighted" (the same with all items),
            "stocking_lord" and "haebara" (curves of the test and of items), "mean_mean"
            or "mean_sigma" (moments of difficulties), or "subjects" (abilities of the
            subjects that versions share). Versions with too few common items are linked
            by common subjects whatever the method, one after another; rows without
            names are common only by "subjects".
        chain: Whether versions are linked one after another, each with the version that
            shares most items. By default all versions with common items count at once;
            moments always make chains.
        fdr: Share of false ones among the items that are said to drift.
        names: Names of the versions; "1", "2", ... by default.
        items: Names of the items by which versions may be linked; all by default.

    Returns:
        The link; see `Link`. Errors follow from the errors of the items and of location
        and scale of every calibration, by the delta method, as if the calibrations had
        different subjects. Items that drift are judged by the robust link.

    Raises:
        ValueError: For an unknown method, fewer than two calibrations, different
            models, several abilities, or too few common items and subjects.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch", method="em")
    >>> same = irtjax.link(fit, fit, method="mean_mean")
    >>> same.A, same.B, same.drifted
    (1.0, 0.0, [])
    >>> fit.rescaled(same).options["scale"]
    {'A': 1.0, 'B': 0.0}
    """
    _check(fits, method, fdr)
    names = [str(k + 1) for k in range(len(fits))] if not names else list(names)
    if len(names) != len(fits) or len(set(names)) < len(names):
        raise ValueError(f"give {len(fits)} different names of versions, not {names}")
    with jax.enable_x64(True):
        forms = [Form.of(fit) for fit in fits]
        usable, notes = _usable(fits, forms, names, method)
        if items is not None:
            usable = [
                mask & np.isin(form.items, list(items))
                for mask, form in zip(usable, forms, strict=True)
            ]
        pairs, by_subjects = _tree(forms, usable, names, fits, method)
        common = _Common(fits, forms, names, usable, pairs, by_subjects)
        lines = ItemLines.of(family_of(fits[0]), forms)
        has_errors = all(
            np.isfinite(form.own[mask]).all()
            for form, mask in zip(forms, usable, strict=True)
        )
        estimate = _estimate(common, lines, method, chain)
        robust = estimate
        if has_errors and method != "robust":
            robust = _estimate(common, lines, "robust", chain)
        pairs = pairs_of(forms, usable, common.item_pairs)
        table = _drift(common, lines, pairs, robust if has_errors else None, fdr)
    notes += _notes(common, robust.dispersion, has_errors)
    return Link(
        table,
        _constants(common, estimate),
        estimate.covariance,
        method,
        estimate,
        tuple(fits),
        tuple(forms),
        tuple(notes),
    )


def _check(fits: Sequence[Calibration], method: str, fdr: float) -> None:
    """Refuses what has no link."""
    if method not in METHODS:
        raise ValueError(f"no method {method!r}; there are {', '.join(METHODS)}")
    if not 0 < fdr < 1:
        raise ValueError(f"fdr {fdr:g} is not between 0 and 1")
    if len(fits) < 2:
        raise ValueError("a link needs two calibrations or more, the oldest first")
    for fit in fits:
        model = fit.model
        if model.several or fit.num_groups > 1:
            raise ValueError(
                "calibrations of one ability are linked, and one has several: fit each"
                " with one, such as 2pl"
            )
        if (
            model.scale == "standard" and not model.family.has_slope
        ) or model.family.common_columns:
            raise ValueError(
                f"items of a {model.name} model share parameters, which two"
                " calibrations estimate apart: fit rasch or 2pl"
            )
    for fit in fits[1:]:
        if family_of(fit) != family_of(fits[0]):
            raise ValueError(
                f"one calibration is a {fits[0].model.name} and another a"
                f" {fit.model.name} model: fit both with one"
            )


def _usable(
    fits: Sequence[Calibration], forms: list[Form], names: list[str], method: str
) -> tuple[list[np.ndarray], list[str]]:
    """Items of each calibration that can link it, and what was left out."""
    changed: set[str] = set()
    contents: dict[str, str] = {}
    for fit in fits:
        texts: Mapping[str, str] = fit.item_contents
        changed |= {x for x in texts if contents.setdefault(x, texts[x]) != texts[x]}
    notes, usable = [], []
    if changed:
        notes.append(
            f"{counted(len(changed), 'item')} with one name and different contents:"
            " left out"
        )
    for fit, form, name in zip(fits, forms, names, strict=True):
        mask = np.isfinite(form.x).all(axis=1) & ~np.isin(form.items, list(changed))
        some = np.isfinite(form.own).all(axis=(1, 2))
        if not some.any() and method in BY_ERRORS:
            raise ValueError(
                f"calibration {name} has no standard errors of items, which method"
                f" {method!r} requires: fit it with standard_errors='observed', or use"
                " method='stocking_lord'"
            )
        constant = mask & np.isin(form.items, _constant(fit))
        if constant.any() and method not in BY_ERRORS:
            # Their parameters are those of the prior, and all items weigh alike.
            mask &= ~constant
            left = listing(form.items[constant].tolist(), MOST_NAMES)
            notes.append(
                f"{counted(constant.sum(), 'item')} all right or all wrong in"
                f" calibration {name}: left out ({left})"
            )
        usable.append(mask & some if some.any() else mask)
        if some.any() and (mask & ~some).any():
            count = int((mask & ~some).sum())
            notes.append(
                f"{counted(count, 'item')} of {name} without standard errors: left out"
            )
        if fit.multilevel:
            notes.append(
                f"items of {name} are posterior means, drawn towards the mean of all:"
                " A is more precise with method='em'"
            )
    return usable, notes


def _constant(fit: Calibration) -> list[str]:
    """Items of a calibration whose responses are all right or all wrong."""
    table = fit.items.table
    rows = zip(*(table[x].to_pylist() for x in ("item", "flags")), strict=True)
    return [item for item, text in rows if {*CONSTANT} & {*(text or "").split("; ")}]


def _tree(
    forms: list[Form],
    usable: list[np.ndarray],
    names: list[str],
    fits: Sequence[Calibration],
    method: str,
) -> tuple[list[tuple[int, int]], list[bool]]:
    """For each later calibration the linked one with which it shares most items.

    Pairs are in the order in which they are linked, the largest number first (Prim).
    The second value states which are linked by subjects: those without enough items.
    """
    items = [set(form.items[m].tolist()) for form, m in zip(forms, usable, strict=True)]
    subjects = [
        set(form.subjects.tolist())
        if method == "subjects" or not _are_numbered(form.subjects)
        else set()
        for form in forms
    ]
    least = 2 if fits[0].model.family.has_slope else 1
    enough_items = counted(least, "item")
    least = np.inf if method == "subjects" else least
    linked, pairs, by_subjects = [0], [], []
    while len(linked) < len(forms):
        options = [
            (len(items[a] & items[b]), len(subjects[a] & subjects[b]), a, b)
            for a in linked
            for b in range(len(forms))
            if b not in linked
        ]
        enough = [x for x in options if x[0] >= least]
        size, shared, parent, child = max(
            enough or options,
            key=lambda x: (x[0] if enough else x[1], x[0], x[2], -x[3]),
        )
        if not enough and shared < LEAST_SUBJECTS:
            raise ValueError(
                f"calibrations {names[parent]} and {names[child]} have"
                f" {counted(size, 'common item')} by name (such as"
                f" {str(forms[parent].items[0])!r} and {str(forms[child].items[0])!r})"
                f" and {counted(shared, 'common subject')}: a link needs {enough_items}"
                f" or {LEAST_SUBJECTS} subjects; use the same names in both"
            )
        pairs.append((parent, child))
        by_subjects.append(not enough)
        linked.append(child)
    return pairs, by_subjects


def _are_numbered(subjects: np.ndarray) -> bool:
    """Whether subjects are rows without names, which no two files share."""
    return all(re.fullmatch(r"subject \d+", name) for name in subjects.tolist())


def _start(items: ItemLines, pairs: FormPairs, slope: bool) -> np.ndarray:
    """A and B of the second of two calibrations, from medians."""
    (a, d), (other_a, other_d) = (
        (items.y[place, :1], items.y[place, 1:])
        for place in (pairs.first, pairs.second)
    )
    ratio = float(np.median(np.abs(other_a / a))) if slope else 1.0
    return np.array([ratio, float(np.median(-d / a + ratio * other_d / other_a))])


def _composed(common: _Common, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Constants on the first scale, of those of each pair of the tree."""
    constants = np.tile([1.0, 0.0], (len(common.forms), 1))
    for (parent, child), (a, b) in zip(common.tree, parts, strict=True):
        first_a, first_b = constants[parent]
        constants[child] = first_a * a, first_a * b + first_b
    return constants


def _estimate(
    common: _Common, items: ItemLines, method: str, chain: bool
) -> LinkEstimate:
    """Constants of all calibrations by a method."""
    forms, family = common.forms, family_of(common.fits[0])
    moments = method in ("mean_mean", "mean_sigma")
    chain = moments or any(common.by_subjects) or (chain and len(forms) > 2)
    parts = []
    for pair, by_subjects in zip(common.tree, common.by_subjects, strict=True):
        two = [forms[k] for k in pair]
        lines = ItemLines.of(family, two)
        if by_subjects:
            shared = SharedSubjects.of(*two)
            robust = method == "robust"
            parts.append(solve_subjects(shared, common.slope, robust, lines.x.shape))
            continue
        pairs = pairs_of(two, [common.usable[k] for k in pair], [(0, 1)])
        if moments:
            parts.append(solve_moments(method, two, lines, pairs, common.slope))
        else:
            start = np.array([[1.0, 0.0], _start(lines, pairs, common.slope)])
            if not chain:
                parts.append(start)
                continue
            parts.append(solve(family, method, two, lines, pairs, start))
    if chain:
        return _chained(common, parts, items.x.shape)
    every = [
        (a, b)
        for a in range(len(forms))
        for b in range(a + 1, len(forms))
        if np.isin(
            forms[a].items[common.usable[a]], forms[b].items[common.usable[b]]
        ).any()
    ]
    start = _composed(common, [part[1] for part in parts])
    pairs = pairs_of(forms, common.usable, every)
    return solve(family, method, forms, items, pairs, start)


def _chained(
    common: _Common, parts: Sequence[LinkEstimate], shape: tuple[int, ...]
) -> LinkEstimate:
    """Constants on the first scale from those of the pairs of the tree."""
    forms = common.forms
    constants = _composed(common, [part.constants[1] for part in parts])
    starts = np.cumsum([0, *(len(form.items) for form in forms)])
    derivative = np.zeros((len(forms), 2, *shape))
    # Derivatives of all constants in those of each pair.
    by_pair = np.zeros((len(forms), 2, len(parts), 2))
    moves = np.zeros((len(forms), 2 * len(forms), 2))
    by_subjects = np.zeros((2 * len(forms), 2 * len(forms)))
    for place, (pair, part) in enumerate(zip(common.tree, parts, strict=True)):
        parent, child = pair
        (a, b), first_a = part.constants[1], constants[parent, 0]
        by_pair[child] = np.tensordot(
            np.array([[a, 0.0], [b, 1.0]]), by_pair[parent], 1
        )
        by_pair[child, :, place] += first_a * np.eye(2)
    flat = by_pair.reshape(2 * len(forms), len(parts), 2)
    for place, (pair, part) in enumerate(zip(common.tree, parts, strict=True)):
        by_part, begin = flat[:, place], 0
        for k, form in zip(pair, (forms[k] for k in pair), strict=True):
            end = begin + len(form.items)
            own = np.tensordot(by_part, part.derivative[1][:, begin:end], 1)
            derivative[:, :, starts[k] : starts[k + 1]] += own.reshape(
                derivative[:, :, starts[k] : starts[k + 1]].shape
            )
            begin = end
        if common.by_subjects[place]:
            by_subjects += by_part @ part.own[2:, 2:] @ by_part.T
            for side, k in enumerate(pair):
                moves[k] += by_part @ part.by_scale[side, 2:]
    # That of subjects is in their errors already.
    pairs = list(zip(parts, common.by_subjects, strict=True))
    own = [part.dispersion for part, by_subjects in pairs if not by_subjects]
    dispersion = float(np.mean(own or [part.dispersion for part in parts]))
    return with_errors(constants, derivative, forms, dispersion, by_subjects, moves)


def _drift(
    common: _Common,
    items: ItemLines,
    pairs: FormPairs,
    estimate: LinkEstimate | None,
    fdr: float,
) -> pa.Table:
    """Tests of every common item of the pairs of the tree."""
    import pyarrow as pa

    size = len(pairs.first)
    first_line = 0 if common.slope else 1
    df = items.y.shape[1] - first_line
    statistic = effect = np.full(size, np.nan)
    if estimate is not None:
        statistic = _wald(common, items, pairs, estimate, first_line)
        effect = _effects(common, items, pairs, estimate.constants)
    p_value = chi2.sf(statistic, df)
    q_value = benjamini_hochberg(p_value)
    names = np.concatenate([form.items for form in common.forms])
    versions = np.array(common.names)
    return pa.table(
        {
            "item": names[pairs.first].tolist(),
            "version": versions[pairs.other].tolist(),
            "reference": versions[pairs.form].tolist(),
            "statistic": statistic,
            "df": np.full(size, df),
            "p_value": p_value,
            "q_value": q_value,
            "effect": effect,
            "direction": np.where(effect > 0, "easier", "harder").tolist(),
            "drifts": q_value <= fdr,
        }
    )


def _wald(
    common: _Common,
    items: ItemLines,
    pairs: FormPairs,
    estimate: LinkEstimate,
    first_line: int,
) -> np.ndarray:
    """Chi-squared r' Cov(r)^-1 r of every pair of items, r after linking.

    Errors of location and scale move constants and items so that r stays; what is left
    are the items' own errors, which r has directly and by the constants.
    """
    constants = estimate.constants
    parts = distances(pairs, items, constants, first_line)
    own = np.concatenate([form.own for form in common.forms])
    # From A to log A, of which `moves` are the derivatives.
    unit = np.stack([1 / constants[:, 0], np.ones(len(constants))], axis=1)
    places = np.stack(
        [2 * form + k for form in (pairs.form, pairs.other) for k in (0, 1)], axis=1
    )
    scale = unit.ravel()[places]
    block = estimate.own[places[:, :, None], places[:, None, :]] / estimate.dispersion
    block = block * scale[:, :, None] * scale[:, None, :]
    covariance = parts.total + parts.moves @ block @ np.swapaxes(parts.moves, 1, 2)
    flat = estimate.derivative.reshape(-1, *items.x.shape)
    for sign, form, place in (
        (1, pairs.form, pairs.first),
        (-1, pairs.other, pairs.second),
    ):
        matrix = line_matrices(constants[form], items.y.shape[1])[0]
        direct = sign * (matrix @ items.slopes[place])[:, first_line:] @ own[place]
        by_constants = flat[places, place[:, None]] * scale[:, :, None]
        cross = (
            direct @ np.swapaxes(by_constants, 1, 2) @ np.swapaxes(parts.moves, 1, 2)
        )
        covariance = covariance + cross + np.swapaxes(cross, 1, 2)
    values, vectors = np.linalg.eigh(covariance)
    turned = np.einsum("mab,ma->mb", vectors, parts.r)
    # With as many items as constants r is 0 without an error: no test.
    least = 1e-6 * np.trace(parts.total, axis1=1, axis2=2)[:, None]
    square = np.sum(turned**2 / np.maximum(values, least), axis=1)
    square = np.where((values > least).all(axis=1), square, np.nan)
    return square / estimate.dispersion


def _effects(
    common: _Common, items: ItemLines, pairs: FormPairs, constants: np.ndarray
) -> np.ndarray:
    """Points by which items are easier at abilities of the reference's population."""
    family = family_of(common.fits[0])
    top = max(family.num_categories - 1, 1)
    populations = np.array([form.population for form in common.forms])
    mean, sd = populations[pairs.form].T
    theta = mean[:, None] + sd[:, None] * NODES
    (a, b), (other_a, other_b) = (
        constants[form].T[:, :, None] for form in (pairs.form, pairs.other)
    )
    old = curves(family, items.x[pairs.first], theta)[0]
    new = curves(family, items.x[pairs.second], (a * theta + b - other_b) / other_a)[0]
    return 100 / top * np.asarray(new - old) @ WEIGHTS


def _constants(common: _Common, estimate: LinkEstimate) -> pa.Table:
    """The table of constants."""
    import pyarrow as pa

    error = np.sqrt(np.diag(estimate.covariance)).reshape(-1, 2)
    reference = dict(((child, common.names[p]) for p, child in common.tree))
    return pa.table(
        {
            "version": common.names,
            "A": estimate.constants[:, 0],
            "A_se": error[:, 0],
            "B": estimate.constants[:, 1],
            "B_se": error[:, 1],
            "reference": [reference.get(k) for k in range(len(common.names))],
            "common": common.counts,
        }
    )


def _notes(common: _Common, dispersion: float, has_errors: bool) -> list[str]:
    """What limits a link."""
    notes, counts = [], common.counts
    for (parent, child), by_subjects in zip(
        common.tree, common.by_subjects, strict=True
    ):
        name, other = common.names[child], common.names[parent]
        number = counted(
            counts[child], f"common {'subject' if by_subjects else 'item'}"
        )
        if by_subjects:
            notes.append(f"{name} is linked to {other} by {number}: no tests of drift")
        if counts[child] < FEW:
            notes.append(f"{name} has {number} only: its constants depend on each")
    subjects = [set(form.subjects.tolist()) for form in common.forms]
    shares_subjects = len(set.union(*subjects)) < sum(map(len, subjects))
    if shares_subjects:
        notes.append(
            "some subjects are in several versions: errors of A and B are those of"
            " different subjects, which are larger"
        )
    if not has_errors:
        notes.append("items without standard errors: no errors, and no tests of drift")
    if dispersion > NOTED:
        what = "items" if common.item_pairs else "subjects"
        then = "the versions may measure different abilities"
        if common.item_pairs:
            then = "drift is judged, and method 'robust' counts errors, by that"
        notes.append(
            f"{what} differ between versions by {dispersion**0.5:.1f} times their"
            f" standard errors: {then}"
        )
    return notes
