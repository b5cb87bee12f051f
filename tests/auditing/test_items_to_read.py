"""Items where models agree on another answer: wrong keys are found with ten models."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import binom

import irtjax
from irtjax.auditing import items_to_read
from irtjax.auditing.same_answers import log_partition
from irtjax.calibration.result_tables import AbilityTable
from irtjax.data.answers import Answers
from irtjax.data.item_texts import ItemText
from tests.cli.test_adapt import run

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


@pytest.mark.slow
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
    # Five of six on average; the data allow little more, as simulations with the true
    # curves show (docs/evidence/items-to-read.md).
    assert np.mean(found) >= 5 and min(found) >= 3
    # At a rate of .05 more than this many are false in less than 1 % of the cases.
    assert significant >= 1
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


def test_an_item_that_all_get_wrong_is_listed_if_they_agree():
    answers, keys, _ = drawn(7, planted=0)
    answers[:, 3], keys[3] = 0, 2
    table = table_of(answers, keys, 4)
    assert table.item_accuracy()[3] == 0
    read = items_to_read(fitted(table), table)
    row = read.table.to_pylist()[0]
    assert row["item"] == "q3" and row["answer"] == "v0" and row["key"] == "v2"
    assert row["count"] == row["wrong"] == row["models"] == MODELS
    assert row["p_value"] < 0.005
    said = read.sentence()
    assert said.startswith("no item stands out; first: q3,")
    least = items_to_read(fitted(table), table, false_discovery_rate=0.9)
    assert least.significant[0] == "q3"
    assert "where most models agree on another answer: q3" in least.sentence()


def test_able_models_on_the_other_answer_are_more_evidence_than_weak_ones():
    answers, keys, _ = drawn(8, planted=0)
    order = np.argsort(-(answers == 0).mean(1))
    for item, who in ((0, order[:6]), (1, order[-6:])):
        answers[:, item] = 0
        answers[who, item] = 1
    table = table_of(answers, keys, 4)
    rows = {x["item"]: x for x in items_to_read(fitted(table), table).table.to_pylist()}
    assert rows["q0"]["count"] == 6 and rows["q0"]["p_value"] < 0.02
    # Items with p of .5 and more are not listed.
    assert "q1" not in rows or rows["q1"]["p_value"] > 0.05


@pytest.mark.slow
def test_repeats_count_with_their_share():
    answers, keys, _ = drawn(9, planted=0, items=60)
    repeats = np.stack([answers] * 3)
    repeats[0, :5, 4] = 1  # Once of three times.
    repeats[:, 5:8, 4] = 1
    repeats[:, 8:, 4] = 0
    repeats[1:, :5, 4] = 0
    wrong = repeats != keys
    _, subject, item = np.indices(repeats.shape).reshape(3, -1)
    given = Answers.of(
        subject, item, repeats.ravel(), wrong.ravel(), list("ABCD"), answers.shape
    )
    counts = irtjax.ResponseTable.from_arrays(
        (~wrong).sum(0), trials=np.full(answers.shape, 3)
    )
    table = counts.replace(answers=given)
    fit = irtjax.fit(table, method="em", standard_errors="none")
    name = str(table.items[4])
    rows = {x["item"]: x for x in items_to_read(fit, table).table.to_pylist()}
    assert rows[name]["count"] == pytest.approx(3 + 5 / 3, abs=1e-3)
    assert rows[name]["answer"] == "B"


def test_models_of_one_family_count_as_one():
    answers, keys, _ = drawn(10, planted=0)
    answers[:, 0] = 0
    answers[:5, 0] = 1
    table = table_of(answers, keys, 4)
    fit = fitted(table)
    alone = {x["item"]: x for x in items_to_read(fit, table).table.to_pylist()}["q0"]
    family = ["one"] * 5 + [f"m{k}" for k in range(5)]
    abilities = fit.abilities.table.append_column("family", [family])
    related = dataclasses.replace(fit, abilities=AbilityTable(abilities))
    found = items_to_read(related, table).table.to_pylist()
    assert alone["count"] == 5
    # One unit is no agreement.
    assert "q0" not in {x["item"] for x in found}


@pytest.mark.parametrize("kind", ["binary", "scores"])
def test_low_scores_of_able_models_without_answers(kind):
    rng = np.random.default_rng(1)
    ability = np.linspace(-2, 2, 12)[:, None]
    scores = 1 / (1 + np.exp(rng.normal(0, 1, 80) - ability))
    scores[:, 7] = 1 - scores[:, 7]
    values = np.clip(scores + rng.normal(0, 0.05, scores.shape), 0, 1).round(3)
    if kind == "binary":
        values = (rng.random(scores.shape) < scores).astype(np.int8)
        values[:, 7] = ability[:, 0] < 0
    table = irtjax.ResponseTable.from_arrays(values)
    # Of the fit only the subjects are needed.
    right = irtjax.ResponseTable.from_arrays((values > 0.5).astype(np.int8))
    read = items_to_read(fitted(right), table)
    assert read.table["item"][0].as_py() == "item 8"
    assert read.table["evidence"][0].as_py() == "low scores of able models"
    if kind == "scores":
        assert read.significant == ("item 8",)
        assert "able models score low" in read.sentence()


def test_scores_are_audited_by_what_needs_no_right_responses():
    rng = np.random.default_rng(2)
    ability = np.linspace(-2, 2, 20)[:, None]
    scores = 1 / (1 + np.exp(rng.normal(0, 1, 40) - ability))
    values = np.clip(scores + rng.normal(0, 0.05, scores.shape), 0, 1).round(3)
    values[:, 5] = values[::-1, 5]
    values[:, 9] = values[:, 8]
    report = irtjax.audit(irtjax.ResponseTable.from_arrays(values), method="em")
    assert report.flagged("negative discrimination") == ["item 6"]
    assert set(report.flagged("duplicate")) == {"item 9", "item 10"}
    assert sum(report.counts().values()) == 3
    assert sum("left out" in text for text in report.warnings) == 1
    assert report.to_read is not None and report.to_read.significant == ("item 6",)


def test_the_probability_of_partitions_sums_to_one():
    # Of three answers among three options: all partitions, with their numbers.
    options, s = 3.0, 0.7
    partitions = [((3,), 1), ((2, 1), 3), ((1, 1, 1), 1)]
    total = 0.0
    for sizes, number in partitions:
        term = sum(gammaln(s + n) - gammaln(s) for n in sizes)
        count = np.array(len(sizes))
        one = log_partition(term, count, np.array(3.0), options, options * s)
        total += number * np.exp(one)
    assert total == pytest.approx(1)


def test_command_writes_the_items_to_read(tmp_path):
    answers, keys, bad = drawn(1, items=60, planted=2)
    rows = ["model,item,prediction,target,correct"]
    for item in range(60):
        for model in range(MODELS):
            given, key = (f"=v{x[item]}" for x in (answers[model], keys))
            rows.append(f"m{model},q{item},{given},{key},{int(given == key)}")
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    out = tmp_path / "out"
    result = run(
        *("audit", tmp_path / "a.csv", "--model", "rasch", "--out", out),
        *("--no-figures", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    lines = (out / "items_to_read.csv").read_text().splitlines()
    assert lines[0].replace('"', "").startswith("item,answer,count,key,p_value,")
    # No answer is a formula of a spreadsheet.
    assert "'=v" in lines[1] and ',"=' not in "".join(lines)
    document = json.loads(result.stdout)["items_to_read"]
    first = [x["item"] for x in document["items"][:4]]
    assert {f"q{k}" for k in bad} & set(first)
