"""Small benchmarks: `shrink` and `subset_errors`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from irtjax._types import KeyArray
from irtjax.data import ResponseTable, read
from irtjax.data.matching import match_all_items
from irtjax.fitting.defaults import INTEGRATED, choose
from irtjax.fitting.fit import fit
from irtjax.fitting.resolve import check_data, make_model
from irtjax.models.model import Model
from irtjax.subsets.crossfit import (
    Knowledge,
    Pool,
    choose_from,
    folds_of,
    join,
    knowledge_of,
    learn,
    predict_held,
    whole_of,
)
from irtjax.subsets.errors import SubsetErrors, agreement, check_reference, summarise
from irtjax.subsets.predictor import Prediction, Whole, uncalibrated
from irtjax.subsets.requests import check_average, check_choice, check_folds, check_size
from irtjax.subsets.rules import AUTO, COMPARED_FROM, SAFE, compare, counts, sentence
from irtjax.subsets.selection import METHODS, Choice, expected_errors
from irtjax.subsets.subset import Shrunken

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: Held-out subjects below which an interval depends on few.
ENOUGH_SUBJECTS = 20


def shrink(
    data: ResponseTable | Any,
    size: int | None = None,
    *,
    standard_error: float | None = None,
    score_error: float | None = None,
    method: str = AUTO,
    aim: str = "score",
    abilities: Sequence[float] | np.ndarray | None = None,
    stratify: str | None = None,
    average: str = "items",
    model: Model | str | Calibration = AUTO,
    folds: int | None = None,
    level: float = 0.95,
    key: KeyArray | None = None,
) -> Shrunken:
    """Chooses a subset of items that stands for all, and learns to predict from it.

    - "auto": the rule below with the smallest cross-validated error of the full score;
      a tie, within one standard error, goes to the simplest (`analysis.rules`).
    - "regression": one item after another, each the one that takes away most variance
      of the full score in a linear regression on the items chosen.
    - "information": one item after another, each the one that takes away most expected
      variance of the full score, or of ability (`aim`), over the population or at
      `abilities`; at one ability, the items of the most Fisher information.
    - "discrimination": the largest discriminations.
    - "clustering": the items nearest the centres of k-means clusters of success
      vectors, weighted by their clusters (anchor points of tinyBenchmarks, Maia Polo
      et al. 2024).
    - "difficulty": random items, spread evenly over the difficulties.
    - "random": any items, each as likely.

    Separated items are chosen where no others are left, items without variation last.
    The full score is predicted as what was observed plus what is expected of the rest,
    over the posterior of ability. Held-out subjects correct its bias and determine how
    wide intervals must be: in each fold the items are chosen, and the model fitted,
    without the subjects that are predicted.

    Args:
        data: A `ResponseTable`, or anything that `irtjax.read` takes: responses that
            are right or wrong, or ordered.
        size: Number of items; or give an error instead.
        standard_error: The fewest items whose expected error of ability is at most
            this, root mean square over the abilities that the choice weighs.
        score_error: The fewest whose expected error of the full score is at most this,
            by the model (a share: 0.01 is one point). Its misfit is not in it.
        method: One of these rules. With fewer than 20 subjects or without folds
            "auto" is "random"; with an error, an aim or abilities it is "information".
        aim: For "information": "score" or "ability".
        abilities: Where information matters, each as much; None for the population.
        stratify: Facet whose values all get their share of the items ("benchmark").
        average: "items": the full score is the mean over items; "benchmarks": the
            mean of the benchmarks' means.
        model: A model or its name, fitted by the method that `irtjax.fit` chooses; or
            a calibration of the same data by one ability, whose items are then used
            (and whose model and method, in the folds).
        folds: Folds of subjects behind the intervals and the comparison of rules; None
            for 5 (fewer with fewer than 10 subjects). 0 takes the model's own errors.
        level: Level of the intervals.
        key: Random key of folds, clusters and random items; a fixed one if None.

    Returns:
        The subset: items, weights, predictor, held-out errors.

    Raises:
        ValueError: In one line, for a size or an error that cannot be had, an unknown
            method, or data and models without one ability and categories.

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> small = shrink(table, 12, method="clustering", stratify="benchmark", folds=0)
    >>> small.predict(table).table.num_rows
    60
    """
    key = jax.random.key(0) if key is None else key
    check_choice(method, aim, level)
    if sum(x is not None for x in (size, standard_error, score_error)) != 1:
        raise ValueError("give one of size, standard_error and score_error")
    table = data if isinstance(data, ResponseTable) else read(data)
    # What can be refused at once is refused before anything is fitted.
    if size is not None:
        check_size(size, table.num_items)
    if folds != 0:
        check_folds(folds, table.num_subjects)
    pool, known, fitted, warnings = _prepare(
        table, model, stratify, average, aim, abilities
    )
    fold_key, choice_key = jax.random.split(key)
    special = size is None or aim != "score" or abilities is not None
    count = 0 if folds == 0 else check_folds(folds, pool.table.num_subjects)
    rules, reason = _candidates(method, special, count, pool.table.num_subjects)
    if size is None:
        own_key = jax.random.fold_in(choice_key, METHODS.index(rules[0]))
        size = _size_for(pool, known, rules[0], standard_error, score_error, own_key)
    calibrator, held_out, rows = uncalibrated(level), {}, ()
    if count:
        fold = folds_of(pool.table.num_subjects, count, fold_key)
        held = [np.flatnonzero(fold == k) for k in range(count)]
        parts = [
            _parts(pool, fold == k, [held[k]], rules, (size,), choice_key)[0]
            for k in range(count)
        ]
        order = np.concatenate(held)
        score = pool.full_scores()[order]
        found = {rule: join([part[rule, size] for part in parts]) for rule in rules}
        compared = compare(found, fold[order], score, level)
        calibrator = compared.judged.calibrator
        held_out = summarise(compared.score, compared.prediction, score)
        enough = compared.judged.enough
        warnings = (*warnings, *_few(len(score), level, enough))
        rules = (compared.rule,)
        if method == AUTO and not reason:
            rows, reason = compared.rows, sentence(compared.rows, count)
    method = rules[0]
    own_key = jax.random.fold_in(choice_key, METHODS.index(method))
    choice = choose_from(pool, known, method, (size,), own_key)[size]
    ability, total = _expected(known, choice)
    whole = Whole.of(known.curves, pool.target)
    table, items = pool.table, choice.items
    named = "benchmark" in table.item_facets
    return Shrunken(
        items=table.items[items],
        weights=choice.weight,
        benchmarks=table.benchmarks[items] if named else None,
        target=pool.target[items],
        num_items=table.num_items,
        method=method,
        model=pool.model,
        parameters=jax.tree.map(lambda x: np.asarray(x)[items], fitted),
        nodes=known.curves.ability,
        log_weight=known.curves.log_weight,
        whole_mean=whole.mean,
        whole_variance=np.asarray(whole.variance),
        calibrator=calibrator,
        level=level,
        standard_error=ability,
        score_error=total,
        held_out=held_out,
        warnings=warnings,
        reason=reason,
        rules=rows,
    )


def _candidates(method: str, special: bool, folds: int, subjects: int):
    """The rules to compare and, where "auto" compares none, why in one line."""
    if method != AUTO:
        return (method,), ""
    if special:
        return ("information",), (
            "rule taken: information, which an error, an aim or abilities are for"
        )
    if not folds or subjects < COMPARED_FROM:
        why = f"{subjects} subjects are too few" if folds else "without folds"
        why += f", at least {COMPARED_FROM} are needed" if folds else ""
        return (SAFE,), (
            f"rule taken: {SAFE}; rules are not compared by cross-validation ({why})"
        )
    return METHODS, ""


def subset_errors(
    data: ResponseTable | Any,
    sizes: Sequence[int],
    methods: Sequence[str] = (*METHODS, AUTO),
    *,
    aim: str = "score",
    abilities: Sequence[float] | np.ndarray | None = None,
    stratify: str | None = None,
    average: str = "items",
    model: Model | str = AUTO,
    folds: int = 5,
    level: float = 0.95,
    reference: Mapping[str, float] | None = None,
    key: KeyArray | None = None,
) -> SubsetErrors:
    """How well subsets predict the full scores of subjects nobody has seen.

    Each fold of subjects is predicted by items chosen, and a model fitted, without it.
    Its intervals are calibrated without it too: on each other fold, predicted from the
    subjects of neither. On these "auto" compares the rules, so its error and coverage
    are those of subjects that had no part in the comparison.

    Args:
        data: As for `shrink`.
        sizes: Numbers of items.
        methods: Rules of choice, "auto" for the one that `shrink` takes.
        aim: As for `shrink`, and so are the following.
        abilities: See `shrink`.
        stratify: See `shrink`.
        average: See `shrink`.
        model: See `shrink`; no calibration, since it has seen all subjects.
        folds: Number of folds, at least 3: F (F + 1) / 2 fits are made.
        level: Level of the intervals.
        reference: A value for (some) subjects, higher for better, whose order the
            predicted scores should have.
        key: Random key; a fixed one if None.

    Returns:
        Errors by method and size.

    Raises:
        ValueError: As `shrink`.

    >>> import irtjax
    >>> found = subset_errors(irtjax.make_demo().table, [20], ["random"], folds=3)
    >>> found.rows[0]["size"], found.rows[0]["mean_absolute_error"] < 0.1
    (20, True)
    """
    key = jax.random.key(0) if key is None else key
    for method in methods:
        check_choice(method, aim, level)
    if folds < 3:
        raise ValueError(f"folds {folds}: intervals are judged by at least 3")
    pool, warnings = _pool(data, model, stratify, average, aim, abilities)
    count = check_folds(folds, pool.table.num_subjects)
    if not len(sizes) or not len(methods):
        raise ValueError("sizes and methods: give one or more of each")
    for size in sizes:
        check_size(size, pool.table.num_items, "sizes")
    if reference is not None:
        check_reference(reference, pool.table.subjects)
    ordered = tuple(sorted(set(sizes)))
    fold_key, choice_key = jax.random.split(key)
    fold = folds_of(pool.table.num_subjects, count, fold_key)
    score = pool.full_scores()
    special = aim != "score" or abilities is not None
    smallest = pool.table.num_subjects - -(-pool.table.num_subjects // count)
    tried = {m: _candidates(m, special, count, smallest)[0] for m in methods}
    rules = tuple(dict.fromkeys(rule for some in tried.values() for rule in some))
    others = _pairs(pool, fold, rules, ordered, choice_key)
    found, taken, enough = {}, {}, True
    for k in range(count):
        held = np.flatnonzero(fold == k)
        parts = _parts(pool, fold == k, [held], rules, ordered, choice_key)[0]
        left = fold[others[rules[0], ordered[0], k][1]]
        for size in ordered:
            apart = {rule: others[rule, size, k] for rule in rules}
            for method in methods:
                compared = compare(
                    {rule: apart[rule][0] for rule in tried[method]},
                    left,
                    score[apart[rules[0]][1]],
                    level,
                )
                part = parts[compared.rule, size], held, compared.judged.calibrator
                found[method, size, k] = part
                taken.setdefault((method, size), []).append(compared.rule)
                enough &= compared.judged.enough
    rows = [
        {
            **agreement(
                method,
                size,
                [found[method, size, k] for k in range(count)],
                score,
                pool.table.subjects,
                reference,
            ),
            "rule": counts(taken[method, size]),
        }
        for method in methods
        for size in ordered
    ]
    smallest = pool.table.num_subjects - 2 * -(-pool.table.num_subjects // count)
    return SubsetErrors(
        tuple(rows),
        level,
        pool.table.num_subjects,
        pool.table.num_items,
        (*warnings, *_few(smallest, level, enough)),
    )


def _parts(
    pool: Pool, held: np.ndarray, groups: list[np.ndarray], rules, sizes, key
) -> list[dict[tuple[str, int], Prediction]]:
    """Predictions of groups of the held-out subjects by rule and size, from one fit."""
    known = learn(pool, held)
    wholes = [whole_of(pool, known, rows) for rows in groups]
    found = [{} for _ in groups]
    for rule in rules:
        own = jax.random.fold_in(key, METHODS.index(rule))
        for size, choice in choose_from(pool, known, rule, sizes, own).items():
            for part, rows, whole in zip(found, groups, wholes, strict=True):
                part[rule, size] = predict_held(pool, known, choice, rows, whole)
    return found


def _pairs(pool: Pool, fold, rules, sizes, key) -> dict[tuple, tuple]:
    """For each rule, size and fold: the other folds, predicted from neither."""
    count = int(fold.max()) + 1
    found: dict[tuple, list] = {}
    for k in range(count):
        for m in range(k + 1, count):
            groups = [np.flatnonzero(fold == code) for code in (m, k)]
            held = (fold == k) | (fold == m)
            parts = _parts(pool, held, groups, rules, sizes, key)
            for out, part, rows in zip((k, m), parts, groups, strict=True):
                for (rule, size), prediction in part.items():
                    found.setdefault((rule, size, out), []).append((prediction, rows))
    return {
        place: (join([part for part, _ in some]), np.concatenate([r for _, r in some]))
        for place, some in found.items()
    }


def _few(subjects: int, level: float, enough: bool) -> tuple[str, ...]:
    """Warns where a level needs more held-out subjects than there are."""
    if enough and subjects >= ENOUGH_SUBJECTS:
        return ()
    return (
        f"{subjects} held-out subjects are too few to calibrate {100 * level:.6g} %"
        " intervals: they reach as far as the worst of them, and at least as a normal"
        " error would",
    )


def _expected(known: Knowledge, choice: Choice) -> tuple[float, float]:
    """Errors that the model expects: of ability, and of the full score."""
    ability, score = expected_errors(known.worth, jax.numpy.asarray(choice.items))
    return float(ability[-1]), float(score[-1])


def _size_for(pool, known, method, standard_error, score_error, key) -> int:
    """The fewest items with an expected error of at most the given one."""
    place = 0 if standard_error is not None else 1
    wanted = standard_error if standard_error is not None else score_error
    name = ("standard_error", "score_error")[place]
    count = pool.table.num_items
    if not wanted > 0:
        raise ValueError(f"{name} {wanted:g} is not above 0")

    def error(size: int) -> float:
        """Expected error of the subset of a size."""
        choice = choose_from(pool, known, method, (size,), key)[size]
        return _expected(known, choice)[place]

    if method != "clustering":
        order = choose_from(pool, known, method, (count,), key)[count].items
        errors = expected_errors(known.worth, jax.numpy.asarray(order))[place]
        reached = np.flatnonzero(np.asarray(errors) <= wanted)
        least = float(np.asarray(errors)[-1])
        if reached.size:
            return int(reached[0]) + 1
    else:
        least = error(count)
        if least <= wanted:
            # Clusters are not nested, but more of them have more information, nearly
            # always.
            low, high = 0, count
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if error(middle) <= wanted else (middle, high)
            return high
    raise ValueError(
        f"{name} {wanted:g} cannot be reached: all {count} items together have"
        f" {least:.3g}"
    )


def _prepare(data, model, stratify, average, aim, abilities):
    """The pool, curves of its items from all subjects, their records, and warnings."""
    from irtjax.calibration.calibration import Calibration

    pool, warnings = _pool(data, model, stratify, average, aim, abilities)
    if isinstance(model, Calibration):
        rows = match_all_items(pool.table, model.items, "shrink")
        items = jax.tree.map(lambda x: np.asarray(x)[rows], model.parameters.items)
        population = model.parameters.population
    else:
        settings: Any = {"standard_errors": "none"} if pool.method == "em" else {}
        name = pool.model if pool.method == "em" else pool.model.name
        found = fit(pool.table, name, pool.method, **settings)
        items, population = found.parameters.items, found.parameters.population
        warnings = (*warnings, *found.warnings)
    nobody = np.zeros(pool.table.num_subjects, bool)
    return pool, knowledge_of(pool, items, population, nobody), items, warnings


def _pool(data, model, stratify, average, aim, abilities):
    """The items to choose from, their responses, and warnings."""
    from irtjax.calibration.calibration import Calibration

    table = data if isinstance(data, ResponseTable) else read(data)
    if table.trials is not None or table.kind == "continuous":
        raise ValueError(
            f"shrink needs responses that are right or wrong, or ordered, not"
            f" {table.kind}"
        )
    if isinstance(model, Calibration):
        structure = model.structure
        if structure is not None and len(structure.groups) > 1:
            raise ValueError(
                "shrink needs one ability, and this fit has one for each group: fit"
                " one of the benchmarks, or all by one ability"
            )
        chosen, method = model.model, "em"
        # Other models of `laplace` are fitted in the folds by EM, with their family.
        if model.options["model"] in INTEGRATED:
            method = model.options["method"]
    else:
        name, method, _ = choose(table, model)
        chosen = make_model(name, table, "weak")
    if not chosen.family.num_categories or chosen.lengths is not None:
        raise ValueError(
            f"shrink does not accept the model {chosen.name}: use one of right, wrong"
            " or ordered responses, without lengths"
        )
    check_data(table, chosen, 0.5)
    check_average(average)
    stratum = np.zeros(table.num_items, int)
    if stratify is not None:
        stratum = _codes(table, stratify)
    target = np.full(table.num_items, 1 / table.num_items)
    if average == "benchmarks":
        codes = _codes(table, "benchmark")
        count = np.bincount(codes)
        target = 1 / (len(count) * count[codes])
    where = None if abilities is None else np.asarray(abilities, float).reshape(-1)
    if where is not None and (where.size == 0 or not np.isfinite(where).all()):
        raise ValueError("abilities must be finite numbers, one or more")
    # Held-out subjects are predicted as new ones will be, by the same form.
    form = "normal"
    if isinstance(model, Calibration):
        free = model.parameters.population.log_weights is not None
        form = "histogram" if free else "normal"
    method = "laplace" if method == "laplace" else "em"
    pool = Pool(
        table, table.responses(), chosen, target, stratum, aim, where, form, method
    )
    unanswered = np.isnan(pool.full_scores())
    warnings = ()
    if unanswered.any():
        pool_table = table.select(subjects=~unanswered)
        pool = dataclasses.replace(
            pool, table=pool_table, responses=pool_table.responses()
        )
        warnings = (f"{unanswered.sum():,} subjects without responses are left out",)
    return pool, warnings


def _codes(table: ResponseTable, facet: str) -> np.ndarray:
    """Codes `[items]` of the values of a facet."""
    if facet not in table.item_facets:
        known = ", ".join(sorted(table.item_facets)) or "none"
        raise ValueError(
            f"items have no facet {facet!r} (there: {known}): name the column when"
            " reading, such as benchmark=..."
        )
    return np.unique(table.item_facets[facet], return_inverse=True)[1].reshape(-1)
