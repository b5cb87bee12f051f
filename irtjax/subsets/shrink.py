"""Small benchmarks: `shrink` and `subset_errors`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import jax
import numpy as np
from jax.sharding import Mesh

from irtjax._types import KeyArray, RandomKey, Status, check_keywords
from irtjax.calibration.calibration import Calibration
from irtjax.data import ResponseTable
from irtjax.data.item_texts import Ids, chosen, sample_files
from irtjax.data.matching import match_all_items
from irtjax.data.wording import counted, percent
from irtjax.fitting.defaults import AUTO
from irtjax.fitting.fit import fit
from irtjax.models.families.shares import ShareScores
from irtjax.models.model import Model
from irtjax.numerics.precision import full_precision
from irtjax.numerics.programs import unstored_over_devices
from irtjax.numerics.progress import watched
from irtjax.numerics.random_keys import as_key, split_key
from irtjax.subsets.crossfit import (
    Knowledge,
    Pool,
    choose_from,
    folds_of,
    integrated_fit,
    knowledge_of,
    learn,
    predict_held,
    whole_of,
)
from irtjax.subsets.errors import SubsetErrors, agreement, check_reference, summarise
from irtjax.subsets.pool import (
    SubsetSettings,
    check_choice,
    check_folds,
    check_size,
    make_pool,
)
from irtjax.subsets.predictor import Prediction, Whole, join, uncalibrated
from irtjax.subsets.rules import compare, sentence
from irtjax.subsets.selection import RULES, ItemChoice, expected_errors
from irtjax.subsets.subset import Shrunken

#: Held-out subjects below which an interval depends on few.
ENOUGH_SUBJECTS = 20


@unstored_over_devices
@full_precision
def shrink(
    data: ResponseTable | Any,
    size: int | None = None,
    *,
    standard_error: float | None = None,
    score_error: float | None = None,
    rule: str = AUTO,
    model: Model | str | Calibration = AUTO,
    folds: int | None = None,
    level: float = 0.95,
    key: RandomKey | None = None,
    mesh: Mesh | None = None,
    **options: Unpack[SubsetSettings],
) -> Shrunken:
    """Chooses a subset of items that stands for all, and a predictor of full scores.

    - "auto": the rule below with the smallest cross-validated error of the full score;
      a tie, within one standard error, goes to the simplest.
    - "regression": forward selection in a linear regression of the full score.
    - "information": one item after another, each the one that takes away most expected
      variance of the full score, or of ability (`aim`), over the population or at
      `abilities`; at one ability, the items of the most Fisher information.
    - "discrimination": the largest discriminations.
    - "clustering": the items nearest the centres of k-means clusters of success vectors
      (anchor points of tinyBenchmarks, Maia Polo et al. 2024).
    - "difficulty": random items, spread evenly over the difficulties.
    - "random": any items, each as likely.

    Separated items are chosen where no others are left, then items without variation,
    and last those to avoid.
    The full score is predicted as what was observed plus what is expected of the rest,
    over the posterior of ability. Held-out subjects, without whom items are chosen and
    the model fitted, correct its bias and determine how wide intervals must be.

    Args:
        data: Right and wrong or ordered responses, or scores: a `ResponseTable`, or
            anything that `irtjax.read` takes.
        size: Number of items; or give an error instead.
        standard_error: The fewest items whose expected error of ability is at most
            this, root mean square over the abilities that the choice weighs.
        score_error: The fewest whose expected error of the full score is at most this,
            by the model (a share: 0.01 is one point), without its misfit.
        rule: One of these. Without folds "auto" is "random"; with an error, an
            aim or abilities it is "information".
        model: A model or its name, fitted by the method that `irtjax.fit` chooses; or
            a calibration of the same data by one ability, whose items are used, and in
            the folds its model and method.
        folds: Folds of subjects behind the intervals and the comparison of rules; None
            for 5 (fewer with fewer than 10 subjects). 0 takes the model's own errors.
        level: Level of the intervals.
        key: A whole number or a JAX key, for folds, clusters and random items; a fixed
            one when None.
        mesh: Devices that the subjects of each fit are divided over; see `irtjax.fit`.
        **options: `aim`, `abilities`, `stratify`, `average`, `avoid` and `bounds` of
            `irtjax.subsets.pool.SubsetSettings`, where each is explained.

    Raises:
        TypeError: If there is no option of a name.
        ValueError: In one line, for a size or an error that cannot be had, an unknown
            rule, or models other than of one ability and of categories or shares.

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> small = shrink(table, 12, rule="clustering", stratify="benchmark", folds=0)
    >>> small.predict(table).table.num_rows
    60
    """
    key = as_key(key)
    check_keywords("shrink", options, SubsetSettings)
    check_choice(rule, level)
    if sum(x is not None for x in (size, standard_error, score_error)) != 1:
        raise ValueError("give one of size, standard_error and score_error")
    pool, warnings = make_pool(data, model, **options)
    pool = pool.over(mesh)
    table = pool.table
    if size is not None:
        check_size(size, table.num_items)
    count = 0 if folds == 0 else check_folds(folds, table.num_subjects)
    knowledge, fitted, notes = _estimate(pool, model)
    warnings += notes
    fold_key, choice_key = split_key(key)
    special = size is None or pool.is_special
    rules, reason = _candidates(rule, special, count)
    if size is None:
        size = _size_for(
            pool, knowledge, rules[0], standard_error, score_error, choice_key
        )
    validated = _Validated(rules[0], reason, uncalibrated(level))
    if count:
        fold = folds_of(table.num_subjects, count, fold_key)
        validated = _validate(pool, fold, rule, rules, reason, size, level, choice_key)
    choice = choose_from(pool, knowledge, validated.rule, (size,), choice_key)[size]
    return _subset(pool, knowledge, fitted, choice, validated, level, warnings)


class _Validated(NamedTuple):
    """The rule that is taken and why, and how it predicts held-out subjects."""

    rule: str
    reason: str
    calibrator: Any
    held_out: dict[str, Any] = {}
    rows: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()


def _validate(
    pool: Pool, fold, asked, rules, reason: str, size: int, level: float, key: KeyArray
) -> _Validated:
    """Compares rules by cross-validation, and calibrates intervals."""
    predictions, score = _cross_validate(pool, fold, rules, size, key)
    compared = compare(predictions, np.sort(fold), score, level)
    held_out = summarise(compared.score, compared.prediction, score)
    rows = () if reason or asked != AUTO else compared.rows
    return _Validated(
        compared.rule,
        sentence(rows) if rows else reason,
        compared.calibrator,
        held_out,
        rows,
        _few(len(score), level, compared.enough),
    )


def _subset(
    pool: Pool,
    knowledge: Knowledge,
    fitted,
    choice: ItemChoice,
    validated: _Validated,
    level,
    warnings,
) -> Shrunken:
    """The chosen items with all that predicts full scores from them."""
    ability, total = _expected(knowledge, choice)
    whole = Whole.of(knowledge.curves, pool.target)
    table, items = pool.table, choice.items
    named = "benchmark" in table.item_facets
    ids, unsure = _ids_of(table, items)
    scores, ends = isinstance(pool.model.family, ShareScores), None
    if scores:
        every = np.repeat([[0.0], [1.0]], table.num_items, axis=1)
        ends = (every if pool.ends is None else pool.ends)[:, items]
    return Shrunken(
        items=table.items[items],
        weights=choice.weight,
        benchmarks=table.benchmarks[items] if named else None,
        target=pool.target[items],
        num_items=table.num_items,
        rule=validated.rule,
        model=pool.model,
        parameters=jax.tree.map(lambda x: np.asarray(x)[items], fitted),
        nodes=knowledge.curves.ability,
        log_weight=knowledge.curves.log_weight,
        whole_mean=whole.mean,
        whole_variance=whole.variance,
        calibrator=validated.calibrator,
        level=level,
        standard_error=ability,
        score_error=total,
        held_out=validated.held_out,
        warnings=(*warnings, *validated.warnings, *unsure),
        reason=validated.reason,
        rules=validated.rows,
        item_ids=ids,
        item_contents=chosen(table.item_contents, table.items[items].tolist()),
        reversed_scores=chosen(table.reversed_scores or {}, table.items[items]),
        worth=pool.score_worth[items] if scores else None,
        ends=ends,
    )


def _ids_of(table: ResponseTable, items: np.ndarray) -> tuple[Ids, tuple[str, ...]]:
    """Ids of items in the harness that logged them; a warning if they are unsure."""
    names = table.items[items].tolist()
    ids = chosen(table.item_ids, names)
    try:
        sample_files(names, ids)
    except ValueError as error:
        return ids, (f"there are no files of samples for a harness: {error}",)
    return ids, ()


def _cross_validate(pool: Pool, fold, rules, size: int, key: KeyArray):
    """Predictions by rule of the subjects, fold by fold, and their full scores."""
    order, predictions = np.argsort(fold, kind="stable"), {}
    codes, score = range(fold.max() + 1), pool.full_scores()[order]
    for k in watched(codes, "fold"):
        predictions |= _predicted(pool, fold, (k,), rules, (size,), key)
    return {r: join([predictions[k, r, size] for k in codes]) for r in rules}, score


def _candidates(rule: str, special: bool, folds: int) -> tuple[tuple[str, ...], str]:
    """The rules to compare and, where "auto" compares none, why in one line."""
    if rule != AUTO:
        return (rule,), ""
    if special:
        why = "because an error, an aim or abilities were given"
        return ("information",), f"rule taken: information, {why}"
    if folds:
        return RULES, ""
    first = RULES[0]
    return (first,), f"rule taken: {first}, because no subjects are left out (folds 0)"


@unstored_over_devices
@full_precision
def subset_errors(
    data: ResponseTable | Any,
    sizes: Sequence[int],
    rules: Sequence[str] = (*RULES, AUTO),
    *,
    model: Model | str = AUTO,
    folds: int = 5,
    level: float = 0.95,
    reference: Mapping[str, float] | None = None,
    key: RandomKey | None = None,
    mesh: Mesh | None = None,
    **options: Unpack[SubsetSettings],
) -> SubsetErrors:
    """How well subsets predict the full scores of held-out subjects.

    Each fold of subjects is predicted by items chosen, and a model fitted, without it.
    Its intervals are calibrated without it too: on each other fold, predicted from the
    subjects of neither. On these "auto" compares the rules, so its error and coverage
    are those of subjects that had no part in the comparison.

    Args:
        data: See `shrink`.
        sizes: Numbers of items.
        rules: Rules of choice, "auto" for the one that `shrink` takes.
        model: See `shrink`; no calibration, since it has seen all subjects.
        folds: Number of folds, at least 3: F (F + 1) / 2 fits are made.
        level: Level of the intervals.
        reference: Values of subjects, higher for better, to compare the order with.
        key: See `shrink`.
        mesh: See `shrink`.
        **options: See `shrink`.

    Raises:
        ValueError: As `shrink`.

    >>> import irtjax
    >>> errors = subset_errors(irtjax.make_demo().table, [20], ["random"], folds=3)
    >>> errors.rows[0]["size"], errors.rows[0]["mean_absolute_error"] < 0.1
    (20, True)
    """
    key = as_key(key)
    check_keywords("subset_errors", options, SubsetSettings)
    for rule in rules:
        check_choice(rule, level)
    if folds < 3:
        raise ValueError(f"folds {folds}: intervals are judged by at least 3")
    pool, warnings = make_pool(data, model, **options)
    pool = pool.over(mesh)
    subjects, num_items = pool.table.num_subjects, pool.table.num_items
    count = check_folds(folds, subjects)
    if not len(sizes) or not len(rules):
        raise ValueError("sizes and rules: give one or more of each")
    for size in sizes:
        check_size(size, num_items, "sizes")
    if reference is not None:
        check_reference(reference, pool.table.subjects)
    ordered = tuple(sorted(set(sizes)))
    fold_key, choice_key = split_key(key)
    fold = folds_of(subjects, count, fold_key)
    score = pool.full_scores()
    largest = math.ceil(subjects / count)
    tried = {r: _candidates(r, pool.is_special, count)[0] for r in rules}
    compared = tuple(dict.fromkeys(rule for some in tried.values() for rule in some))
    alone = [(k,) for k in range(count)]
    pairs = {}
    for out in watched([*itertools.combinations(range(count), 2), *alone], "fit"):
        pairs[out] = pairs[out[::-1]] = _predicted(
            pool, fold, out, compared, ordered, choice_key
        )

    judged, enough = _judged(pairs, tried, ordered, fold, score, level)
    judge = lambda x: agreement(x, score, pool.table.subjects, reference)
    rows = ({"rule": r, "size": n, **judge(x)} for (r, n), x in judged.items())
    warnings += _few(subjects - 2 * largest, level, enough)
    return SubsetErrors(tuple(rows), level, subjects, num_items, warnings)


def _judged(pairs, tried, sizes, fold: np.ndarray, score, level: float):
    """Predictions of every fold by rule and size; whether all have enough subjects.

    The rule of a fold, and its intervals, are those of the other folds, which `pairs`
    has predicted without both.
    """
    count, order = fold.max() + 1, np.argsort(fold, kind="stable")

    def others(k: int, rule: str, size: int) -> Prediction:
        codes = (m for m in range(count) if m != k)
        return join([pairs[k, m][m, rule, size] for m in codes])

    parts: dict[tuple[str, int], list] = {(m, n): [] for m in tried for n in sizes}
    enough = True
    for k in range(count):
        left = order[fold[order] != k]
        for (asked, size), judged in parts.items():
            apart = {rule: others(k, rule, size) for rule in tried[asked]}
            compared = compare(apart, fold[left], score[left], level)
            left_out = np.flatnonzero(fold == k)
            predicted = pairs[(k,)][k, compared.rule, size]
            judged.append((predicted, left_out, compared))
            enough &= compared.enough
    return parts, enough


def _predicted(pool: Pool, fold: np.ndarray, out: tuple[int, ...], rules, sizes, key):
    """Predictions of some folds from one fit without them, by fold, rule and size."""
    knowledge = learn(pool, np.isin(fold, out))
    chosen = {r: choose_from(pool, knowledge, r, sizes, key) for r in watched(rules)}
    predictions: dict[tuple[int, str, int], Prediction] = {}
    for code in out:
        rows = np.flatnonzero(fold == code)
        whole = whole_of(pool, knowledge, rows)
        for rule, size in itertools.product(rules, sizes):
            choice = chosen[rule][size]
            predictions[code, rule, size] = predict_held(
                pool, knowledge, choice, rows, whole
            )
    return predictions


def _few(subjects: int, level: float, enough: bool) -> tuple[str, ...]:
    """Warns where a level needs more held-out subjects than there are.

    Without their number, so that a subset and its errors by size warn once.
    """
    if enough and subjects >= ENOUGH_SUBJECTS:
        return ()
    return (
        f"too few held-out subjects to calibrate {percent(level)} intervals: they use"
        " the largest held-out error, or the normal interval if that is wider",
    )


def _expected(knowledge: Knowledge, choice: ItemChoice) -> tuple[float, float]:
    """Errors that the model expects: of ability, and of the full score."""
    errors = expected_errors(knowledge.worth, choice.items)
    ability, score = (float(np.asarray(x)[-1]) for x in errors)
    return ability, score


def _size_for(pool, knowledge, rule, standard_error, score_error, key) -> int:
    """The fewest items with an expected error of at most the given one."""
    place = 0 if standard_error is not None else 1
    name = ("standard_error", "score_error")[place]
    wanted = standard_error if standard_error is not None else score_error
    count = pool.table.num_items
    if not wanted > 0:
        raise ValueError(f"{name} {wanted:g} is not above 0")

    def error(size: int) -> float:
        choice = choose_from(pool, knowledge, rule, (size,), key)[size]
        return _expected(knowledge, choice)[place]

    if rule != "clustering":
        order = choose_from(pool, knowledge, rule, (count,), key)[count].items
        errors = expected_errors(knowledge.worth, order)[place]
        reached = np.flatnonzero(np.asarray(errors) <= wanted)
        least = float(errors[-1])
        if reached.size:
            return int(reached[0]) + 1
    elif (least := error(count)) <= wanted:
        # Clusters are not nested, but more of them nearly always have more information.
        low, high = 0, count
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if error(middle) <= wanted else (middle, high)
        return high
    raise ValueError(
        f"{name} {wanted:g} cannot be reached: all {counted(count, 'item')} together"
        " have"
        f" {least:.3g}"
    )


def _estimate(pool: Pool, model: Any):
    """Curves of the items from all subjects, item records, and warnings."""
    warnings, nobody = (), np.zeros(pool.table.num_subjects, bool)
    if isinstance(model, Calibration):
        rows = match_all_items(
            pool.table, model.item_names, "shrink", model.item_contents
        )
        items = jax.tree.map(lambda x: np.asarray(x)[rows], model.parameters.items)
        population = model.parameters.population
    elif pool.method == "em":
        fitted = fit(
            pool.table, pool.model, "em", standard_errors="none", mesh=pool.mesh
        )
        items, population = fitted.parameters.items, fitted.parameters.population
        warnings = tuple(fitted.warnings)
    else:
        # Errors of estimates, most of the time of a fit of few subjects, are not used.
        fitted, status = integrated_fit(pool, nobody)
        items, population = fitted.items, fitted.population
        if status != Status.CONVERGED:
            warnings = (f"the fit {status.explain()}: predictions may be off",)
    return knowledge_of(pool, items, population, nobody), items, warnings
