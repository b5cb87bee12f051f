"""The evidence of items to read by the answers that models gave."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.auditing import same_answers
from irtjax.auditing.same_answers import FREE, AnswerCurves, AnswerShares
from irtjax.data import ResponseTable
from irtjax.data.answers import LONGEST_ANSWER, Answers, plain_answer
from irtjax.data.arrays import places_of
from irtjax.prediction.responses import predict

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: What the evidence is.
SAME_ANSWER = "same answer"
#: Items with right keys that are drawn in all, and the fewest of one group.
DRAWN, FEWEST_DRAWN = 20_000, 5_000
#: Curves of the population of items.
MOST_CURVES = 200
#: Cells of units by drawn items, and by curves.
MOST_CELLS = 4_000_000
#: Items of a benchmark from which it is a population of its own, and how many are.
FEW_ITEMS, MOST_GROUPS = 50, 6
#: Distinct answers of a benchmark up to which they are options to choose from, and
#: items for each from which that is no accident.
MOST_OPTIONS, ITEMS_PER_OPTION = 10, 3


@dataclasses.dataclass
class _Data:
    """Responses and answers by item and unit: a model, or a family of models."""

    right: np.ndarray  # [items, units] shares of right attempts
    seen: np.ndarray  # [items, units] 1 where a unit responded
    shares: AnswerShares
    options: np.ndarray  # [items] wrong options
    keys: list[str]
    texts: list[str]  # Of the numbers of answers in `shares`.
    answered: np.ndarray  # [items] whether any answer is known

    @property
    def free(self) -> np.ndarray:
        """Whether an item has free answers, not options, `[items]`."""
        return self.options >= FREE


def by_answers(
    fit: Calibration, table: ResponseTable, units: np.ndarray, seed: int
) -> list[dict[str, Any]]:
    """A row for each item whose answers are known.

    Args:
        fit: The calibration.
        table: Its responses, with answers.
        units: `[subjects]` the independent unit of each; -1 of those to leave out.
        seed: Seed of the items that are drawn.
    """
    assert table.answers is not None
    data = _data(table, table.answers, units)
    chance, places = _chances(fit, table, units)
    groups = _groups(table, data)
    count = max(DRAWN // max(len(groups), 1), FEWEST_DRAWN)
    count = min(count, max(MOST_CELLS // len(chance), MOST_CURVES))
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for items in groups:
        mine = np.flatnonzero(np.isin(places, items))
        if len(mine) < FEW_ITEMS:
            mine = np.arange(len(places))
        mine = mine[
            np.linspace(0, len(mine) - 1, min(len(mine), MOST_CURVES)).astype(int)
        ]
        rows += _of_group(data, items, chance[:, mine], places[mine], count, rng)
    return rows


def _of_group(
    data: _Data,
    items: np.ndarray,
    chance: np.ndarray,
    places: np.ndarray,
    count: int,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """The rows of items that share a population of curves and of answers."""
    new = np.full(len(data.keys), -1)
    new[items] = np.arange(len(items))
    use = new[data.shares.item] >= 0
    shares = AnswerShares(*(x[use] for x in data.shares))
    shares = shares._replace(item=new[shares.item])
    own = np.full(len(items), -1)
    placed = np.flatnonzero((places >= 0) & (new[places] >= 0))
    own[new[places[placed]]] = placed
    right, seen, options = data.right[items], data.seen[items], data.options[items]
    curves = AnswerCurves.of(chance)
    blocks = same_answers.blocks_of(shares)
    popularity = same_answers.popularity_of(blocks, len(items), options)
    evidence = same_answers.evidence(
        right, seen, shares, curves, own, options, popularity
    )
    lost = (seen - right).sum()
    unanswered = 1 - min(shares.share.sum() / lost, 1.0) if lost > 0 else 0.0
    drawn = same_answers.null(seen, curves, options, popularity, unanswered, count, rng)
    p = same_answers.p_values(evidence.total, drawn)
    # The most common wrong answer; of several, that with the most evidence.
    order = np.lexsort((-evidence.log_ratio, -blocks.count, blocks.item))
    first = order[np.unique(blocks.item[order], return_index=True)[1]]
    top = dict(zip(blocks.item[first].tolist(), first.tolist(), strict=True))
    rows = []
    for k, place in enumerate(items.tolist()):
        block = top.get(k)
        text = "" if block is None else data.texts[shares.answer[blocks.start[block]]]
        rows.append(
            {
                "place": place,
                "answer": text,
                "count": 0.0 if block is None else float(blocks.count[block]),
                "key": data.keys[place],
                "p_value": float(p[k]),
                "weight": float(evidence.total[k]),
                "wrong": float((seen[k] - right[k]).sum()),
                "models": int(seen[k].sum()),
                "evidence": SAME_ANSWER,
            }
        )
    return rows


def _groups(table: ResponseTable, data: _Data) -> list[np.ndarray]:
    """Items by the population that they are of: large benchmarks, and the others.

    Items to choose answers of and items with free answers are apart.
    """
    names, codes, counts = np.unique(
        table.benchmarks, return_inverse=True, return_counts=True
    )
    large = np.argsort(-counts, kind="stable")[:MOST_GROUPS]
    large = large[counts[large] >= FEW_ITEMS]
    codes = np.where(np.isin(codes, large), codes.reshape(-1), len(names))
    pair = 2 * codes + data.free
    answered = np.flatnonzero(data.answered)
    return [answered[pair[answered] == x] for x in np.unique(pair[answered])]


def _chances(
    fit: Calibration, table: ResponseTable, units: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Chances `[units, curves]` of right responses, and the item of each curve."""
    size = len(fit.item_names)
    most = max(MOST_CELLS // len(units), MOST_CURVES)
    chosen = np.linspace(0, size - 1, min(size, most)).astype(int)
    mine = np.flatnonzero(units >= 0)
    names = table.subjects[mine], fit.item_names[chosen]
    expected = predict(fit, subject_names=names[0], item_names=names[1]).expected
    # A subject without a finite ability has the chances of the others.
    expected = np.where(np.isfinite(expected), expected, np.nanmean(expected, axis=0))
    expected = expected / max(float(expected.max(initial=0)), 1.0)
    total = np.zeros((int(units.max()) + 1, expected.shape[1]))
    np.add.at(total, units[mine], expected)
    size = np.bincount(units[mine], minlength=len(total))
    return total / size[:, None], places_of(table.items, names[1])


def sums_of_units(units: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Sums over the subjects of each unit, `[units, items]`.

    >>> sums_of_units(np.array([1, -1, 0, 1]), np.array([[1.0], [2.0], [4.0], [8.0]]))
    array([[4.],
           [9.]])
    """
    order = np.argsort(units, kind="stable")
    order = order[units[order] >= 0]
    start = np.unique(units[order], return_index=True)[1]
    values = matrix[order].astype(np.float32 if matrix.dtype == bool else matrix.dtype)
    return values if len(start) == len(order) else np.add.reduceat(values, start)


def wrong_shares(table: ResponseTable) -> tuple[np.ndarray, np.ndarray]:
    """The share of wrong attempts of each cell `[subjects, items]`, and the mask."""
    seen = np.ones((table.num_subjects, table.num_items), bool)
    if table.observed is not None:
        seen = table.observed
    values = table.values.astype(np.float32)
    if table.trials is not None:
        seen = table.trials > 0
        values = values / np.maximum(table.trials, 1)
    elif table.kind != "binary":
        values = np.clip(values, 0, 1) if values.max(initial=0) <= 1 else values > 0
    return np.where(seen, 1 - values, 0), seen


def _data(table: ResponseTable, answers: Answers, units: np.ndarray) -> _Data:
    """Right responses and wrong answers by item and unit."""
    wrong, seen = wrong_shares(table)
    number, mine = int(units.max()) + 1, units >= 0
    counts = sums_of_units(units, seen)
    shown = counts > 0
    lost = np.where(shown, sums_of_units(units, wrong) / np.maximum(counts, 1), 0)
    codes, keys, texts, expected = _coded(table, answers)
    size = len(texts)
    subject, item = answers.subject.astype(int), answers.item.astype(int)
    code = codes[answers.code]
    attempts = np.zeros(seen.shape, np.float32)
    np.add.at(attempts, (subject, item), 1)
    if table.trials is not None:
        attempts = np.maximum(attempts, table.trials)
    # A wrong answer that is the key, or right elsewhere, is one of another form.
    use = answers.wrong & mine[subject] & ~np.isin(item * size + code, expected)
    subject, item, code = subject[use], item[use], code[use]
    unit = units[subject]
    # The share of an attempt in a subject's, and of a subject in a unit's.
    share = 1 / attempts[subject, item] / np.maximum(counts[unit, item], 1)
    rows, back = np.unique((item * size + code) * number + unit, return_inverse=True)
    total = np.bincount(back.reshape(-1), share, len(rows))
    place, unit = np.divmod(rows, number)
    answered = np.zeros(table.num_items, bool)
    answered[answers.item] = True
    return _Data(
        right=np.where(shown, 1 - lost, 0).T.astype(float),
        seen=shown.T.astype(float),
        shares=AnswerShares(*np.divmod(place, size), unit, total),
        options=_options(table, answers, codes, size),
        keys=keys,
        texts=texts,
        answered=answered,
    )


def _coded(
    table: ResponseTable, answers: Answers
) -> tuple[np.ndarray, list[str], list[str], np.ndarray]:
    """Answers that are compared as equal.

    Returns:
        Numbers of the texts of `answers`; the key of each item; the text of each
        number; and the pairs of an item and a number that are right, as item * numbers
        + number.
    """
    numbers: dict[str, int] = {}
    plain = [plain_answer(text) for text in answers.texts]
    codes = np.array([numbers.setdefault(x, len(numbers)) for x in plain])
    # The text of a number is its most common form.
    often = np.bincount(answers.code, minlength=len(codes))
    order = np.lexsort((-often, codes))
    first = order[np.unique(codes[order], return_index=True)[1]]
    texts = [answers.texts[k] for k in first.tolist()]
    size = len(texts)
    wrong = ~answers.wrong
    pairs, count = np.unique(
        answers.item[wrong].astype(int) * size + codes[answers.code[wrong]],
        return_counts=True,
    )
    keys, expected = [""] * table.num_items, []
    for k in np.argsort(count, kind="stable").tolist():
        item, number = divmod(int(pairs[k]), size)
        keys[item] = texts[number]
    for place, name in enumerate(table.items.tolist()):
        text = table.item_texts.get(name)
        if text is None or not text.answer:
            continue
        for part in {text.answer, *text.answer.split(" or ")}:
            number = numbers.get(plain_answer(" ".join(part.split())), -1)
            expected += [place * size + number] * (number >= 0)
        if len(text.answer) <= LONGEST_ANSWER or not keys[place]:
            keys[place] = " ".join(text.answer.split())[-LONGEST_ANSWER:]
    return codes, keys, texts, np.union1d(pairs, np.array(expected, int))


def _options(
    table: ResponseTable, answers: Answers, codes: np.ndarray, size: int
) -> np.ndarray:
    """Wrong options of each item: one less than there are, or those of free answers."""
    names, benchmark = np.unique(table.benchmarks, return_inverse=True)
    benchmark = benchmark.reshape(-1)
    pairs = np.unique(benchmark[answers.item].astype(int) * size + codes[answers.code])
    distinct = np.bincount(pairs // size, minlength=len(names))
    items = np.bincount(benchmark, minlength=len(names))
    few = (distinct <= MOST_OPTIONS) & (items >= ITEMS_PER_OPTION * distinct)
    options = np.where(few[benchmark], np.maximum(distinct[benchmark] - 1.0, 1.0), FREE)
    return np.where(answers.options > 1, answers.options - 1.0, options)
