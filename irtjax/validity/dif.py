r"""Differential item functioning: items that favour a group of equal ability.

Four tests of every item, each in one pass: the score (Lagrange multiplier) test in a
multiple-group 2PL (`validity.score_tests`), Mantel-Haenszel and logistic regression
(`validity.stratified`), and a test within pairs (`validity.paired_responses`). Groups
that differ in ability have no differential functioning by that alone.

Items that differ would move the populations, and with them every other item. So the
difference of an item is first judged from the centre of all items' differences, a
bisquare mean (Halpin 2024): items far from it get parameters of their own in each group
(`irtjax.split_items`), the model is fitted again, and this repeats until the items that
differ stay the same. The test of an item that has its own parameters is then Wald's,
since the steps from these are 0. For strata and pairs items that differ are left out of
what others are judged by in the same way.

The effect of an item is the difference of the chance to be right, in points of a
hundred, over the abilities of all subjects.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import chi2

from irtjax.calibration.parts.populations import Populations
from irtjax.data.coding import coded
from irtjax.data.frames import HasTable
from irtjax.data.split_items import split_items
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, listing
from irtjax.fitting.fit import fit as fit_table
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity.dif_tables import moves, parameter_table, subject_table
from irtjax.validity.group_scores import (
    GroupSteps,
    Normals,
    cluster_scores,
    group_steps,
    number_scores,
    posterior_means,
)
from irtjax.validity.paired_responses import paired_tests
from irtjax.validity.score_tests import (
    StepTests,
    common_step,
    number_tests,
    step_tests,
)
from irtjax.validity.stratified import logistic_tests, mantel_haenszel
from irtjax.validity.subject_groups import (
    SubjectGroups,
    check_groups,
    comparable,
    labels_of,
    observed_of,
    pairs_of,
    right_of,
    subject_groups,
)

if TYPE_CHECKING:
    import pyarrow as pa

METHODS = "score", "mh", "logistic", "paired"
#: Rounds of leaving items out.
ROUNDS = 6
#: Standard errors from the centre at which an item is left out of the first common fit.
FAR = 2.6
#: Tuning constant of the bisquare mean: 95 % efficiency for normal errors.
BISQUARE = 4.685
#: Nodes of an effect over the abilities of all subjects.
NODES = np.linspace(-4, 4, 33)
#: Items that a note names.
MOST_NAMES = 5
#: Standard errors of a difference that is found in four of five cases at p = .05.
DETECTABLE = 2.8


@dataclasses.dataclass(frozen=True, eq=False)
class DIF(HasTable):
    """Tests of all items.

    Attributes:
        table: `item`, `statistic`, `df`, `p_value`, `q_value` (Benjamini and Hochberg),
            `effect` in points, with `effect_se` if the method has it, `effect_group` in
            which the item has that effect, `differs`, and by method `odds_ratio`,
            `delta` and `ets_class` ("mh"), `nonuniform` and `r2` ("logistic").
        group: The facet.
        reference: Name of the group that effects are relative to; "" of numbers.
        method: "score", "mh", "logistic" or "paired".
        sizes: Number of subjects by group.
        score_difference: Points that the items which differ add to the mean score of
            the group less that of the reference, by group.
        detectable: Effect in points that an item of median error would have to have;
            NaN where the method has no errors.
        subjects: `subject`, `group`, `level` (ability with "score", else share right)
            and its `rank`; `rank_split` with the items that differ free in each group
            ("score"), and `rank_without` them.
        parameters: Of the items that differ, by group ("score"): `discrimination` and
            `intercept` with standard errors, conditional on the other items; else None.
        notes: What limits the tests, and how far subjects move.
    """

    table: pa.Table
    group: str
    reference: str
    method: str
    sizes: dict[str, int]
    score_difference: dict[str, float]
    detectable: float
    subjects: pa.Table
    parameters: pa.Table | None = None
    notes: tuple[str, ...] = ()

    @property
    def items(self) -> list[str]:
        """Names of the items that differ, the largest effect first."""
        rows = [x for x in self.table.to_pylist() if x["differs"]]
        return [x["item"] for x in sorted(rows, key=lambda x: -abs(x["effect"]))]

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        count = len(self.items)
        total = self.table.num_rows
        text = f"{count:,} of {counted(total, 'item')} favour a group"
        if not count:
            return f"{text} of equal ability"
        moved = max(self.score_difference.items(), key=lambda x: abs(x[1]))
        if not self.reference:
            return f"{text}: their chance changes with {self.group}"
        return (
            f"{text}: together they change the mean score of {moved[0]} less"
            f" {self.reference} by {moved[1]:+.1f} points"
        )

    def __str__(self) -> str:
        return self.sentence


def dif(
    data: ResponseTable,
    group: str | Any,
    *,
    method: str = "score",
    reference: str | None = None,
    cluster: str | Any = None,
    fdr: float = 0.05,
    corrected: bool = True,
    purified: bool = True,
) -> DIF:
    """Tests which items favour a group of subjects of equal ability.

    Args:
        data: Right and wrong responses.
        group: A facet of subjects, or a label or number for each. Numbers (sizes,
            dates) are tested as such by "score" and "logistic".
        method: "score", "mh" (two groups), "logistic", or "paired" (two groups in which
            the same subjects are, such as two prompts).
        reference: The group that effects are relative to; the largest where None.
        cluster: Subjects that depend on each other, such as fine-tunes of one model: a
            facet, or a label for each ("score"); the label of a pair ("paired").
        fdr: Share of false ones among the items that are said to differ.
        corrected: Whether Mantel-Haenszel is corrected for continuity.
        purified: Whether items that differ are left out of what others are judged by.

    Returns:
        The tests; see `DIF`.

    Raises:
        ValueError: For responses other than right and wrong, fewer than two groups,
            a group of one subject or cluster, groups that share no item, or settings
            that the method does not have.

    >>> import irtjax
    >>> rng = np.random.default_rng(0)
    >>> family = np.repeat(["a", "b"], 150)
    >>> easy = np.zeros((300, 12)); easy[150:, 3] = 2
    >>> logit = rng.normal(size=(300, 1)) + rng.normal(size=12) + easy
    >>> right = (rng.random((300, 12)) < 1 / (1 + np.exp(-logit))).astype(int)
    >>> table = irtjax.ResponseTable.from_arrays(right)
    >>> irtjax.dif(table, family, method="mh").items
    ['item 4']
    """
    if method not in METHODS:
        raise ValueError(f"no method {method!r}; there are {', '.join(METHODS)}")
    data = coded(data)
    if data.kind != "binary":
        raise ValueError(
            f"differential functioning needs right and wrong responses, and these are"
            f" {data.kind}: write 1 for what counts as right and 0 for other scores"
        )
    name, groups = subject_groups(data, group, reference)
    check_groups(data, name, groups)
    _check_method(name, groups, method, cluster)
    codes = labels = None
    if cluster is not None:
        labels = labels_of(data, cluster, "cluster")
        codes = np.unique(labels, return_inverse=True)[1]
        if method == "score":
            _check_clusters(name, groups, codes)
    common = comparable(data, groups)
    nobody = np.zeros(data.num_items, bool)
    fits: list[_Fitted] = []
    rows = np.arange(data.num_subjects)
    if method == "score":

        def test(differs: np.ndarray) -> _Tested:
            tested, fitted = _by_score(data, groups, codes, differs)
            fits.append(fitted)
            return tested.of(common)

    elif method == "paired":
        assert labels is not None
        pairs = pairs_of(groups, labels)
        rows = np.sort(np.concatenate(pairs))
        test = lambda differs: _by_pairs(data, pairs, ~differs & common).of(common)
    else:
        test = lambda differs: _by_strata(
            data, groups, method, corrected, ~differs & common
        ).of(common)
    tested = test(nobody)
    if purified:
        first = _far_from_centre(fits[0].steps) & common if fits else None
        tested = _rounds(test, first, tested, fdr)
    if len(rows) < data.num_subjects:
        groups = SubjectGroups(groups.names, groups.codes[rows])
        data = data.select(subjects=rows)
    return _result(data, name, groups, method, tested, fdr, fits)


def _check_method(name: str, groups: SubjectGroups, method: str, cluster: Any) -> None:
    """Refuses groups and clusters that a method does not have."""
    two = groups.number is None and len(groups.names) == 2
    if method in ("mh", "paired") and not two:
        raise ValueError(
            f"method {method!r} compares two groups, and {name!r} has"
            f" {'numbers' if groups.number is not None else len(groups.names)}: use"
            " method='score' or 'logistic'"
        )
    if cluster is not None and method not in ("score", "paired"):
        raise ValueError(f"cluster needs method='score' or 'paired', not {method!r}")
    if cluster is None and method == "paired":
        raise ValueError(
            "method 'paired' needs cluster: a label that both subjects of a pair have,"
            " such as the model"
        )


def _check_clusters(name: str, groups: SubjectGroups, clusters: np.ndarray) -> None:
    """Refuses a group of one cluster: how much clusters differ cannot be estimated."""
    pairs = np.unique(np.stack([groups.codes, clusters]), axis=1)
    counts = np.bincount(pairs[0], minlength=len(groups.names))
    if counts.min() < 2:
        small = groups.names[int(np.argmin(counts))]
        raise ValueError(
            f"group {small!r} of {name} is one cluster, and cluster needs two in each"
            " group: join it with another group, or leave its subjects out"
        )


class _Tested(NamedTuple):
    """Tests `[items]`, with effects in points and the group that has each."""

    statistic: np.ndarray
    df: int
    effect: np.ndarray
    which: np.ndarray
    others: dict[str, Any]
    p_value: np.ndarray

    def of(self, items: np.ndarray) -> _Tested:
        """The tests of these items; NaN for the others."""
        if items.all():
            return self
        only = lambda x: np.where(items, x, np.nan) if x.dtype.kind == "f" else x
        others = {name: only(x) for name, x in self.others.items()}
        return self._replace(
            statistic=only(self.statistic),
            effect=only(self.effect),
            others=others,
            p_value=only(self.p_value),
        )


def _by_strata(
    data: ResponseTable,
    groups: SubjectGroups,
    method: str,
    corrected: bool,
    anchors: np.ndarray,
) -> _Tested:
    """Mantel-Haenszel, or logistic regression, by the score on the anchors."""
    right, seen = right_of(data), observed_of(data)
    if method == "mh":
        focal = groups.codes == 1
        test = mantel_haenszel(right, seen, focal, anchors, corrected=corrected)
        with np.errstate(divide="ignore"):
            delta = -2.35 * np.log(test.odds_ratio)
        others = {
            "odds_ratio": test.odds_ratio,
            "delta": delta,
            "ets_class": ets_class(delta, chi2.sf(test.statistic, 1)),
        }
        first, p_value = np.ones(data.num_items, int), chi2.sf(test.statistic, 1)
        return _Tested(test.statistic, 1, test.effect, first, others, p_value)
    code = groups.codes if groups.number is None else groups.number
    tests = logistic_tests(right, seen, code, anchors)
    df = 2 * (1 if groups.number is not None else len(groups.names) - 1)
    effect, which = _differences(right, seen, groups)
    statistic = tests.uniform + tests.nonuniform
    p_value = chi2.sf(statistic, df)
    return _Tested(statistic, df, effect, which, tests._asdict(), p_value)


def _by_pairs(
    data: ResponseTable, pairs: tuple[np.ndarray, np.ndarray], anchors: np.ndarray
) -> _Tested:
    """Tests within pairs of subjects, by their discordant responses."""
    right, seen = right_of(data) > 0, observed_of(data)
    there = np.ones_like(right) if seen is None else seen
    first, second = pairs
    tests = paired_tests(
        right[first], right[second], there[first] & there[second], anchors
    )
    others = {"effect_se": tests.effect_se, "discordant": tests.discordant}
    group, p_value = np.ones(data.num_items, int), chi2.sf(tests.statistic, 1)
    return _Tested(tests.statistic, 1, tests.effect, group, others, p_value)


class _Fitted(NamedTuple):
    """A multiple-group fit, and the parameters that items would have in each group."""

    normals: Normals
    steps: GroupSteps


def _by_score(
    data: ResponseTable, groups: SubjectGroups, clusters: Any, differs: np.ndarray
) -> tuple[_Tested, _Fitted]:
    """Score tests; the items that differ have parameters of their own in each group."""
    normals = _common_fit(data, groups, differs)
    right, seen, nodes = right_of(data), observed_of(data), _nodes(data)
    observed = None if seen is None else seen.astype(np.float64)
    cells = right, observed, groups.codes
    steps = group_steps(*cells, normals, nodes)
    position = np.stack([normals.slope, normals.intercept], axis=2)
    steps = steps._replace(step=position + steps.step)
    if groups.number is not None:
        # An item with parameters of its own in each group has no score left that a
        # number could account for: it gets those of all groups.
        common = np.where(differs[:, None], common_step(steps), position[0])
        tested = _number_tests(*cells, groups.number, normals, nodes, common, clusters)
    elif clusters is not None:
        sums = cluster_scores(*cells, normals, nodes, steps.regressed, clusters)
        members = np.zeros(sums.shape[1::-1], bool)
        members[clusters, groups.codes] = True
        tested = step_tests(steps, sums, members)
    else:
        tested = step_tests(steps)
    inflation = np.broadcast_to(tested.inflation, position.shape[1])
    information = steps.information / inflation[:, None, None]
    steps = steps._replace(information=information)
    effect, error, which = _effects(steps)
    others = {"effect_se": error}
    tests = _Tested(tested.statistic, tested.df, effect, which, others, tested.p_value)
    return tests, _Fitted(normals, steps)


def _number_tests(
    right: np.ndarray,
    seen: np.ndarray | None,
    codes: np.ndarray,
    number: np.ndarray,
    normals: Normals,
    nodes: np.ndarray,
    common: np.ndarray,
    clusters: np.ndarray | None,
) -> StepTests:
    """Tests of items with parameters `common` against a number."""
    number = (number - number.mean()) / number.std()
    scores = number_scores(right, seen, codes, number, normals, nodes, common)
    if clusters is None:
        return number_tests(scores)
    sums = cluster_scores(
        right, seen, codes, normals, nodes, scores.regressed, clusters, common, number
    )
    return number_tests(scores, sums.sum(axis=0))


def _rounds(
    test: Callable[[np.ndarray], _Tested],
    first: np.ndarray | None,
    tested: _Tested,
    fdr: float,
) -> _Tested:
    """The tests where the items that differ stay the same; `first` are left out first.

    `test` takes the items that are left out, and `tested` left out none.
    """
    apart = benjamini_hochberg(tested.p_value) <= fdr
    visited = {np.zeros_like(apart).tobytes()}
    if first is not None:
        apart = apart | first
    while apart.tobytes() not in visited and len(visited) <= ROUNDS:
        if (~apart).sum() < 2:
            break
        visited.add(apart.tobytes())
        tested = test(apart)
        apart = benjamini_hochberg(tested.p_value) <= fdr
    return tested


def ets_class(delta: np.ndarray, p_value: np.ndarray) -> np.ndarray:
    """A, B or C of the Educational Testing Service: negligible, moderate, large.

    >>> ets_class(np.array([0.2, 1.2, -2.0]), np.array([0.5, 0.01, 0.001])).tolist()
    ['A', 'B', 'C']
    """
    size = np.where(np.isfinite(delta), np.abs(delta), 0)
    significant = p_value < 0.05
    classes = np.where(significant & (size >= 1), "B", "A")
    return np.where(significant & (size >= 1.5), "C", classes)


def _differences(right, seen, groups: SubjectGroups) -> tuple[np.ndarray, np.ndarray]:
    """Standardised differences from the reference in strata, and the group of each."""
    everyone = np.ones(right.shape[1], bool)
    by_group = []
    for k in range(1, len(groups.names)):
        two = (groups.codes == 0) | (groups.codes == k)
        part = None if seen is None else seen[two]
        test = mantel_haenszel(right[two], part, groups.codes[two] == k, everyone)
        by_group.append(test.effect)
    effects = np.nan_to_num(np.stack(by_group))
    group = np.argmax(np.abs(effects), axis=0)
    return effects[group, np.arange(len(group))], group + 1


def _score_difference(
    differs, effect, group, groups: SubjectGroups
) -> dict[str, float]:
    """Points of the mean score that the items that differ add, by group."""
    count = len(differs)
    return {
        name: float(np.sum(effect[differs & (group == k)]) / count)
        for k, name in enumerate(groups.names)
        if k
    }


def _common_fit(
    data: ResponseTable, groups: SubjectGroups, differs: np.ndarray
) -> Normals:
    """The fit in which the items that differ have parameters of their own.

    Parameters are `[groups, items]`, in the order of the table.
    """
    labels = np.array([f"{k:04d}" for k in groups.codes])
    facets = {**data.subject_facets, "dif group": labels}
    table = data.replace(subject_facets=facets)
    names = table.items[differs].tolist()
    if names:
        table = split_items(table, names, by="dif group")
    fit = fit_table(table, "2pl", "em", groups="dif group", standard_errors="none")
    items, part = fit.parameters.items, fit.require(Populations)
    count = len(groups.names)
    slope, intercept = (
        np.empty((count, data.num_items)) for _ in ("discrimination", "intercept")
    )
    for target, values in (
        (slope, np.asarray(items.discrimination, np.float64)),
        (intercept, np.asarray(items.intercept, np.float64)),
    ):
        common = int((~differs).sum())
        target[:, ~differs] = values[:common]
        target[:, differs] = values[common:].reshape(-1, count).T
    return Normals(slope, intercept, part.mean, part.sd)


def _nodes(data: ResponseTable) -> np.ndarray:
    """Standardised nodes as far apart as the narrowest posterior is wide."""
    answered = max(float(np.max(data.num_answered(1))), 1.0)
    spacing = min(0.25, 1 / math.sqrt(1 + answered / 2))
    half = math.ceil(6 / spacing)
    return np.linspace(-6, 6, 2 * half + 1)


def _effects(steps: GroupSteps):
    """Largest effect of each item in points, its error, and the group that has it."""
    weight = np.exp(-(NODES**2) / 2)
    weight /= weight.sum()
    logit = steps.step[..., 0, None] * NODES + steps.step[..., 1, None]
    chance = expit(logit)
    spread = chance * (1 - chance)
    gradient = np.stack([spread @ (weight * NODES), spread @ weight], axis=2)
    variance = np.einsum(
        "gja,gjab,gjb->gj", gradient, np.linalg.inv(steps.information), gradient
    )
    level = chance @ weight
    effects = 100 * (level[1:] - level[0])
    errors = 100 * np.sqrt(variance[1:] + variance[0])
    group = np.argmax(np.abs(effects / errors), axis=0)
    at = group, np.arange(len(group))
    return effects[at], errors[at], group + 1


def _far_from_centre(steps: GroupSteps) -> np.ndarray:
    """Items whose difference of intercepts is far from the centre of all."""
    covariance = np.linalg.inv(steps.information)
    slope = np.maximum(steps.step[..., 0].mean(axis=0), 0.2)
    far = np.zeros(steps.step.shape[1], bool)
    for k in range(1, len(steps.step)):
        gap = (steps.step[k, :, 1] - steps.step[0, :, 1]) / slope
        error = np.sqrt(covariance[k, :, 1, 1] + covariance[0, :, 1, 1]) / slope
        far |= np.abs(gap - bisquare_mean(gap, error)) > FAR * error
    return far


def bisquare_mean(value: np.ndarray, error: np.ndarray) -> float:
    """Tukey's bisquare mean of values with standard errors, from their median.

    >>> value = np.array([0.1, -0.1, 0.0, 0.05, 3.0])
    >>> round(bisquare_mean(value, np.full(5, 0.1)), 3)
    0.014
    """
    centre = float(np.median(value))
    for _ in range(50):
        u = (value - centre) / (BISQUARE * error)
        weight = np.where(np.abs(u) < 1, (1 - u**2) ** 2, 0) / error**2
        if not weight.sum() > 0:
            return centre
        new = float(weight @ value / weight.sum())
        if abs(new - centre) < 1e-10:
            return new
        centre = new
    return centre


def _result(
    data: ResponseTable,
    name: str,
    groups: SubjectGroups,
    method: str,
    tested: _Tested,
    fdr: float,
    fits: list[_Fitted],
) -> DIF:
    """The table of items, with what limits it."""
    q_value = benjamini_hochberg(tested.p_value)
    differs = q_value <= fdr
    detectable = math.nan
    if "effect_se" in tested.others:
        detectable = DETECTABLE * float(np.nanmedian(tested.others["effect_se"]))
    difference = _score_difference(differs, tested.effect, tested.which, groups)
    sizes = np.bincount(groups.codes, minlength=len(groups.names))
    by_name = dict(zip(groups.names, (int(x) for x in sizes), strict=True))
    parameters = None
    if fits:
        parameters = parameter_table(data, groups, differs, fits[-1].steps)
    subjects = _ranked(data, groups, differs, fits)
    notes = [moves(subjects)] if differs.any() else []
    return DIF(
        _item_table(data, groups, tested, q_value, differs),
        name,
        groups.names[0] if groups.number is None else "",
        method,
        by_name,
        difference,
        detectable,
        subjects,
        parameters,
        (*notes, *_limits(data, groups, detectable)),
    )


def _item_table(
    data: ResponseTable,
    groups: SubjectGroups,
    tested: _Tested,
    q_value: np.ndarray,
    differs: np.ndarray,
) -> pa.Table:
    """A row for each item; null where an item has no test."""
    import pyarrow as pa

    table = {
        "item": data.items.tolist(),
        "statistic": tested.statistic,
        "df": np.full(data.num_items, tested.df),
        "p_value": tested.p_value,
        "q_value": q_value,
        "effect": tested.effect,
        **tested.others,
        "effect_group": [groups.names[k] for k in tested.which],
        "differs": differs,
    }
    real = lambda x: isinstance(x, np.ndarray) and x.dtype.kind == "f"
    columns = {
        name: pa.array(x, mask=np.isnan(x)) if real(x) else x
        for name, x in table.items()
    }
    return pa.table(columns)


def _limits(data: ResponseTable, groups: SubjectGroups, detectable: float) -> list[str]:
    """Notes on items without a test or with little power."""
    notes = []
    untested = ~comparable(data, groups)
    if untested.any():
        notes.append(
            f"{counted(untested.sum(), 'item')} not tested, because a group has no"
            f" responses: {listing(data.items[untested].tolist(), MOST_NAMES)}"
        )
    constant = _constant(data, groups) & ~untested
    if constant.any():
        notes.append(
            f"{counted(constant.sum(), 'item')} all right or all wrong in a group, of"
            " which tests have little power:"
            f" {listing(data.items[constant].tolist(), MOST_NAMES)}"
        )
    if np.isfinite(detectable):
        notes.append(
            f"an item of median error must differ by {detectable:.0f} points to be"
            " found in four of five cases, before the correction for many items"
        )
    return notes


def _ranked(
    data: ResponseTable,
    groups: SubjectGroups,
    differs: np.ndarray,
    fits: list[_Fitted],
) -> pa.Table:
    """Ranks with all items alike, with items that differ free, and without these."""
    right, seen = right_of(data), observed_of(data)
    there = np.ones(right.shape) if seen is None else seen.astype(np.float64)
    rest = there * ~differs
    if not fits:
        share = lambda cells: (right * cells).sum(1) / np.maximum(cells.sum(1), 1)
        return subject_table(data, groups, share(there), None, share(rest))
    nodes = _nodes(data)
    ability = lambda cells, normals: posterior_means(
        right, cells, groups.codes, normals, nodes
    )
    first, last = fits[0].normals, fits[-1].normals
    levels = ability(there, first), ability(there, last), ability(rest, last)
    return subject_table(data, groups, *levels)


def _constant(data: ResponseTable, groups: SubjectGroups) -> np.ndarray:
    """`[items]` whether an item has no variation in a group."""
    right, seen = right_of(data), observed_of(data)
    there = np.ones_like(right) if seen is None else seen
    constant = np.zeros(data.num_items, bool)
    for k in range(len(groups.names)):
        rows = groups.codes == k
        hits, count = (right[rows] * there[rows]).sum(0), there[rows].sum(0)
        constant |= (hits == 0) | (hits == count)
    return constant
