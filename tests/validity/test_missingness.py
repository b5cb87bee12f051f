"""Missing responses and ability: size, power, an independent computation, ends."""

import itertools

import numpy as np
import pytest

import irtjax
from irtjax.numerics.tails import permutation_tails
from irtjax.validity.missing_draws import draw_few
from irtjax.validity.missing_matrix import links_of, missing_by_ability


def responses(rng, subjects, items):
    """Abilities and Rasch responses."""
    ability = rng.normal(size=subjects)
    logit = ability[:, None] + rng.normal(size=items)
    return ability, (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(np.int8)


def of_missing(right, seen):
    return missing_by_ability(right * seen, seen)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["at random", "by subject"])
def test_size_where_missing_does_not_depend_on_ability(pattern):
    rng, p_value, flagged = np.random.default_rng(3), [], []
    for _ in range(200):
        _, right = responses(rng, 40, 20)
        # Rates of subjects from 0 to 0.9, unrelated to their abilities.
        rate = 0.2 if pattern == "at random" else 0.9 * rng.beta(0.4, 0.6, (40, 1))
        found = of_missing(right, rng.random(right.shape) >= rate)
        p_value.append(found.p_value)
        flagged.append(any(x is not None for x in found.more_for(0.05)))
    share = np.nanmean(np.array(p_value) <= 0.05, axis=1)
    # Items of a table share the abilities: the error is that over tables. 3.5 of them.
    error = 3.5 * share.std() / 200**0.5
    assert error < 0.02 and share.mean() < 0.05 + error
    # Subjects with a few responses are in part fitted by the item effects: there the
    # level is not reached.
    assert share.mean() > (0.05 - error if pattern == "at random" else 0.02)
    # Any item flagged in at most 5 % of tables, plus 3 errors of that share.
    assert np.mean(flagged) <= 0.05 + 3 * (0.05 * 0.95 / 200) ** 0.5


def test_gated_items_are_missing_more_often_for_weak_subjects():
    rng = np.random.default_rng(0)
    _, right = responses(rng, 300, 40)
    gated = np.arange(40) < 8
    # All wrong responses of gated items are lost, and a tenth of the others.
    seen = np.where(gated, right == 1, rng.random(right.shape) >= 0.1)
    found = of_missing(right, seen)
    # Many responses missing, and many not.
    many = gated & (abs(found.missing - 150) < 110)
    assert many.sum() >= 6 and set(found.more_for(0.05)[many]) == {"weak"}
    # 32 true null hypotheses, of which the rate allows 0.05 * 8 / 0.95 in the mean.
    assert sum(x is not None for x in found.more_for(0.05)[~gated]) <= 2
    # The mirror image: right responses are lost.
    turned = of_missing(right, np.where(gated, right == 0, seen))
    many = gated & (abs(turned.missing - 150) < 110)
    assert many.sum() >= 6 and set(turned.more_for(0.05)[many]) == {"strong"}


def test_subjects_who_met_other_items_are_compared_by_the_common_ones():
    rng = np.random.default_rng(1)
    ability, right = responses(rng, 400, 60)
    strong = ability > np.median(ability)
    seen = np.ones(right.shape, bool)
    seen[:, 20:40] = strong[:, None]
    seen[:, 40:] = ~strong[:, None]
    found = of_missing(right, seen)
    assert found.more_for(0.05)[20:40].tolist() == ["weak"] * 20
    assert found.more_for(0.05)[40:].tolist() == ["strong"] * 20
    assert not found.missing[:20].any() and np.isnan(found.p_value[:20]).all()
    # Halves of a normal distribution differ by 1.6 standard deviations; curves of
    # responses, and the common scale from 20 items, take some of that.
    expected = (ability[~strong].mean() - ability[strong].mean()) / ability.std()
    np.testing.assert_allclose(found.difference[20:40], expected, rtol=0.2)
    np.testing.assert_allclose(found.difference[40:], -expected, rtol=0.2)


@pytest.mark.parametrize(
    ("subjects", "failures"), [(200, 0.0), (200, 0.03), (200, 0.1), (60, 0.03)]
)
def test_size_where_subjects_did_not_run_a_benchmark(subjects, failures):
    rng, any_flag = np.random.default_rng(7), []
    item = np.arange(40) < 20
    for _ in range(100):
        ability, kind = rng.normal(size=(subjects, 1)), rng.random((subjects, 1))
        # Most ran the easy benchmark alone, some the other one alone, some both.
        logit = ability + np.where(item, 3.5, 0) + 0.5 * rng.normal(size=40)
        seen = np.where(item, (kind < 0.8) | (kind > 0.9), kind > 0.8)
        seen &= rng.random(seen.shape) >= failures
        right = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(np.int8)
        found = of_missing(right, seen)
        any_flag.append(any(x is not None for x in found.more_for(0.05)))
        assert len(set(found.p_value)) == 2 or failures
    # The level, and 3 standard errors of 100 tables. Without blocks 13 to 30 % are.
    assert np.mean(any_flag) <= 0.05 + 3 * (0.05 * 0.95 / 100) ** 0.5


@pytest.mark.parametrize("named", [True, False])
def test_failed_calls_of_a_benchmark_that_some_did_not_run(named):
    """They are tested among those who ran it, whom the whole mask would hide."""
    rng = np.random.default_rng(12)
    _, right = responses(rng, 1000, 40)
    gated = np.isin(np.arange(40), [20, 21, 22])
    lost = np.where(gated & (right == 0), 0.5, 0.03)
    ran = (np.arange(40) < 20) | (rng.random((1000, 1)) < 0.5)
    seen = ran & (rng.random(right.shape) >= lost)
    names = np.repeat(["a", "b"], 20)
    found = missing_by_ability(right * seen, seen, names if named else None)
    # By their whole masks these are 0.0005, 0.19 and 0.016.
    assert (found.p_value[gated] < 0.006).all() and found.weak[gated].all()
    assert not any(found.more_for(0.05)[~gated])


def test_a_block_is_tested_by_the_mean_of_the_common_items():
    """Without a shift of the subjects who ran it, whatever the mean ability."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        _, right = responses(rng, 100, 45)
        # Of three benchmarks all ran the first, half the second, some of them the last.
        level = rng.choice(3, size=(100, 1), p=[0.4, 0.05, 0.55])
        seen = np.repeat([0, 1, 2], [5, 20, 20]) <= level
        names = np.repeat(["a", "b", "c"], [5, 20, 20])
        found = missing_by_ability(right * seen, seen, names)
        common = np.repeat(right[:, :5].mean(1)[:, None], 2, axis=1)
        lost = ~seen[:, [5, 25]]
        tails = permutation_tails(lost, np.ones(lost.shape, bool), common)
        wanted = np.minimum(1, 2 * np.minimum(*tails))
        np.testing.assert_allclose(found.p_value[[5, 25]], wanted, rtol=1e-6)


def test_masks_of_two_benchmarks_are_linked_if_nearly_the_same_subjects_ran_them():
    rng = np.random.default_rng(2)
    ran = rng.random((100, 3)) < 0.5
    ran[:, 2] = ran[:, 0] ^ (np.arange(100) < 8)
    for turned in (False, True):
        by_any, by_same = links_of(np.column_stack([ran[:, :2], ran[:, 2] ^ turned]))
        np.testing.assert_array_equal(by_any, np.eye(3) + np.eye(3)[[2, 1, 0]] > 0)
        np.testing.assert_array_equal(by_same, np.eye(3) > 0 if turned else by_any)
    # Two masks less their mean would be each other's reverse.
    assert [x.sum() for x in links_of(ran[:, :2])] == [2, 2]


def test_drawn_tails_are_those_of_all_choices():
    rng = np.random.default_rng(6)
    score = rng.exponential(size=(18, 4)) ** 2
    known = np.ones(score.shape, bool)
    known[3, 1] = False
    missing = np.zeros(score.shape, bool)
    order = np.argsort(-score, axis=0)
    for item, size in enumerate((1, 2, 3, 16)):
        missing[order[1 : size + 1, item], item] = True
    missing &= known
    upper, lower = np.full((2, 4), 0.01)
    draw_few(upper, lower, missing, known, score)
    for item in range(4):
        mine = score[known[:, item], item]
        size, total = missing[:, item].sum(), score[missing[:, item], item].sum()
        sums = np.array([sum(x) for x in itertools.combinations(mine, size)])
        for found, exact in (
            (upper[item], np.mean(sums >= total - 1e-9)),
            (lower[item], np.mean(sums <= total + 1e-9)),
        ):
            # Four standard errors of 4,999 draws, and the one that is added.
            error = 4 * (exact * (1 - exact) / 4999) ** 0.5 + 1 / 5000
            assert abs(found - exact) < error


def test_a_benchmark_that_strong_subjects_ran_is_one_name_and_one_test():
    rng = np.random.default_rng(8)
    ability, right = responses(rng, 60, 90)
    seen = np.ones(right.shape, bool)
    seen[:, 30:60] = ability[:, None] > 0
    seen[:, 60] = rng.random(60) < 0.8
    benchmark = np.repeat(["gsm8k", "mmlu", "arc"], 30)
    table = irtjax.ResponseTable.from_arrays(np.where(seen, right, np.nan))
    table = table.replace(item_facets={"benchmark": benchmark})
    found = irtjax.missingness(table)
    assert found.sentence.startswith(
        "Of 31 items with missing responses, 30 are missing more often for weak"
        " subjects (all 30 items of mmlu)"
    )
    p, q = (found.table[x].to_numpy()[30:61] for x in ("p_value", "q_value"))
    # Two tests: one mask of 30 items, and that of one item.
    assert len(set(p)) == 2 and q[0] == pytest.approx(2 * p[0])
    # With failed calls masks differ, and a benchmark still has one name.
    lost = rng.random(right.shape) < 0.02
    table = irtjax.ResponseTable.from_arrays(np.where(seen & ~lost, right, np.nan))
    table = table.replace(item_facets={"benchmark": benchmark})
    assert "(all 30 items of mmlu" in irtjax.missingness(table).sentence


def test_very_many_masks_are_tested_one_by_one(monkeypatch):
    rng = np.random.default_rng(9)
    _, right = responses(rng, 80, 30)
    seen = rng.random(right.shape) >= 0.3
    seen[:, 1] = seen[:, 0]
    plain = of_missing(right, seen)
    monkeypatch.setattr("irtjax.validity.missing_matrix.MOST_MASKS", 5)
    monkeypatch.setattr("irtjax.validity.missing_matrix.BLOCK", 400)
    for one, other in zip(plain, of_missing(right, seen), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_few_subjects_have_the_exact_permutation_test():
    rng = np.random.default_rng(5)
    _, right = responses(rng, 8, 6)
    seen = rng.random(right.shape) >= 0.25
    seen[0] = True
    found = of_missing(right, seen)
    # Least squares of subject and item effects by a design matrix.
    row, column = np.nonzero(seen)
    design = np.zeros((len(row), 14))
    design[np.arange(len(row)), row] = design[np.arange(len(row)), 8 + column] = 1
    effect = np.linalg.lstsq(design, right[seen].astype(float), rcond=None)[0]
    left = np.where(seen, right - effect[8:] - effect[:8].mean(), 0)
    answers = seen.sum(1)
    mean = left.sum(1) / answers
    within = np.sum(np.where(seen, left - mean[:, None], 0) ** 2) / (seen.sum() - 8)
    centre = np.average(mean, weights=answers)
    between = np.sum(answers * (mean - centre) ** 2) - 7 * within
    between = max(between / (seen.sum() - np.sum(answers**2) / seen.sum()), 0)
    precision = 1 / (between + within / answers)
    left -= np.where(seen, np.average(mean, weights=precision), 0)
    for j in np.flatnonzero(found.missing):
        count = answers - seen[:, j]
        score = (left.sum(1) - left[:, j]) / count / (between + within / count) ** 0.5
        missing = np.flatnonzero(~seen[:, j])
        sums = np.array(
            [
                score[list(x)].sum()
                for x in itertools.combinations(range(8), len(missing))
            ]
        )
        tails = [np.mean(s * sums >= s * score[missing].sum() - 1e-5) for s in (1, -1)]
        assert found.p_value[j] == pytest.approx(min(1, 2 * min(tails)), abs=1e-9)


def test_order_of_subjects_and_items_does_not_matter():
    rng = np.random.default_rng(2)
    _, right = responses(rng, 50, 12)
    seen = rng.random(right.shape) >= 0.3
    rows, columns = rng.permutation(50), rng.permutation(12)
    plain = of_missing(right, seen)
    turned = of_missing(right[rows][:, columns], seen[rows][:, columns])
    # The last field numbers masks in the order of items.
    for one, other in zip(plain[:-1], turned[:-1], strict=True):
        np.testing.assert_allclose(other, one[columns], rtol=1e-6)


def test_without_missing_responses_the_sentence_states_it():
    found = irtjax.missingness(irtjax.ResponseTable.from_arrays(np.eye(4)))
    assert found.sentence == "No response is missing."
    assert found.table["missing"].to_pylist() == [0] * 4
    assert found.table["p_value"].null_count == 4


def test_ends_have_no_number_and_no_test():
    seen = np.array([[True, False], [True, False], [True, False]])
    found = missing_by_ability(seen.astype(np.int8), seen)
    assert found.missing.tolist() == [0, 3] and np.isnan(found.p_value).all()
    two = irtjax.ResponseTable.from_arrays([[1, np.nan], [0, 1]])
    assert irtjax.missingness(two).sentence.startswith("No item was")
    with pytest.raises(ValueError, match="not between 0 and 1"):
        irtjax.missingness(two, false_discovery_rate=0)
    # Subjects with one response each: no ability without the item, no test.
    alone = np.where(np.eye(5) > 0, 1.0, np.nan)
    table = irtjax.missingness(irtjax.ResponseTable.from_arrays(alone)).table
    assert table["difference"].null_count == 5


@pytest.mark.parametrize("kind", ["ordinal", "counts", "scores"])
def test_other_responses(kind):
    rng = np.random.default_rng(4)
    ability = rng.normal(size=(400, 1))
    chance = 1 / (1 + np.exp(-ability - rng.normal(size=15)))
    values = rng.binomial(4, chance).astype(float)
    lost = (np.arange(15) == 6) & (rng.random(chance.shape) < 1 - chance)
    if kind == "counts":
        trials = np.where(lost, 0, 4)
        table = irtjax.ResponseTable.from_arrays(values * (trials > 0), trials=trials)
    else:
        values = np.where(lost, np.nan, values)
        values[:, 1] *= 10  # The range of an item is no weight.
        values = values if kind == "ordinal" else values / 41
        table = irtjax.ResponseTable.from_arrays(values)
    found = irtjax.missingness(table)
    which = [k for k, x in enumerate(found.table["missing_more_for"].to_pylist()) if x]
    assert which == [6]
    assert "1 is missing more often for weak subjects (item 7)" in found.sentence
