"""Items where models agree on another answer: wrong keys are found with ten models."""

import numpy as np
import pytest
from scipy.stats import binom

import irtjax
from irtjax.auditing import items_to_read
from irtjax.data.answers import Answers
from irtjax.data.item_texts import ItemText

MODELS, ITEMS, PLANTED = 10, 400, 6


def drawn(seed, *, options=4, planted=PLANTED, models=MODELS, items=ITEMS, free=False):
    """Answers by number `[models, items]` (0 is right), keys, and items of wrong keys.

    Wrong options have popularities of their own, and in a tenth of the items nine of
    ten wrong answers are the same one.
    """
    rng = np.random.default_rng(seed)
    ability, difficulty = rng.normal(1.5, 1, models), rng.normal(0, 1.2, items)
    chance = 1 / (1 + np.exp(difficulty - ability[:, None]))
    if not free:
        chance = 0.1 + 0.9 * chance
    wrong = 30 if free else options - 1
    popular = rng.dirichlet(np.full(wrong, 0.2 if free else 1.0), items)
    trap = rng.random(items) < 0.1
    popular[trap] *= 0.1
    popular[trap, 0] += 0.9
    answers = np.zeros((models, items), int)
    for k in range(items):
        given = 1 + rng.choice(wrong, models, p=popular[k])
        answers[:, k] = np.where(rng.random(models) < chance[:, k], 0, given)
    keys, bad = np.zeros(items, int), np.sort(rng.choice(items, planted, replace=False))
    keys[bad] = 1 + rng.integers(wrong, size=planted)
    return answers, keys, bad


def table_of(answers, keys, options=0):
    """A table with these answers; the text of an answer is its number."""
    models, items = answers.shape
    subject, item = np.divmod(np.arange(answers.size), items)
    names = [f"q{k}" for k in range(items)]
    right = answers == keys
    texts = [f"v{k}" for k in range(answers.max() + 1)]
    given = Answers.of(
        subject,
        item,
        answers.ravel(),
        ~right.ravel(),
        texts,
        answers.shape,
        np.full(items, options),
    )
    table = irtjax.ResponseTable.from_arrays(right.astype(np.int8), items=names)
    known = {name: ItemText("", texts[k]) for name, k in zip(names, keys, strict=True)}
    return table.replace(answers=given, item_texts=known)


def fitted(table):
    return irtjax.fit(table, "rasch", "em", standard_errors="none")


@pytest.mark.parametrize("free", [False, True])
def test_most_wrong_keys_stand_first_with_ten_models(free):
    found, significant, false = [], 0, 0
    for seed in range(5):
        answers, keys, bad = drawn(seed, free=free)
        table = table_of(answers, keys, 0 if free else 4)
        read = items_to_read(fitted(table), table)
        first = read.table.column("item").to_pylist()[: PLANTED + 1]
        names = {f"q{k}" for k in bad}
        found.append(len(names & set(first)))
        significant += len(read.significant)
        false += len(set(read.significant) - names)
    # Five of six on average; the information of the data allows little more, as
    # experiments with the true curves show (docs/audit.md).
    assert np.mean(found) >= 5 and min(found) >= 3
    # At a rate of .05 more than this many are false in less than 1 % of the cases.
    assert significant >= 5
    assert false <= binom.ppf(0.99, significant, 0.05)


def test_p_values_of_sound_items_are_valid_with_popular_distractors():
    p, flagged = [], 0
    for seed in range(3):
        answers, keys, _ = drawn(100 + seed, planted=0)
        table = table_of(answers, keys, 4)
        read = items_to_read(fitted(table), table)
        flagged += bool(read.significant)
        p += read.table.column("p_value").to_pylist()
    # In one of twenty tables at most an item is significant.
    assert flagged <= binom.ppf(0.99, 3, 0.05)
    for level in (0.01, 0.05):
        # Of all items of the three tables; those without an agreement have p = 1.
        most = binom.ppf(0.999, 3 * ITEMS, level)
        assert np.sum(np.array(p) <= level) <= most
