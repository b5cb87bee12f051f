"""Items handed out side by side, and items without a response."""

import itertools
import json

import numpy as np
import pytest

from irtjax.adaptive import AdaptiveTest
from tests.small_fits import small_fit, small_table


def response(item: str) -> int:
    return len(item) % 2


def begin(**rules) -> AdaptiveTest:
    return AdaptiveTest(small_fit(errors=False), **rules)


def test_one_item_at_a_time_is_a_round_of_one():
    one, rounds = begin(num_items=6), begin(num_items=6)
    while (item := one.next_item()) is not None:
        (same,) = rounds.next_items(1)
        assert same == item
        one.record(item, response(item))
        rounds.record(item, response(item))
    assert rounds.next_items(1) == [] and rounds.over


def test_a_round_has_the_best_items_at_the_ability_so_far():
    test = begin()
    # With the best item closed, and so on, the same test names the same items.
    names, want = test._bank.names.tolist(), []
    for _ in range(4):
        free = [name for name in names if name not in want]
        want.append(begin(items=free).next_item())
    assert test.next_items(4) == want
    # They wait: more are added behind them, and asking for fewer shows the first.
    assert test.next_items(6)[:4] == want and test.next_items(2) == want[:2]
    assert len(test.handed_out) == 6


def test_the_order_of_responses_does_not_matter():
    abilities = set()
    for order in itertools.permutations(range(3)):
        test = begin()
        items = test.next_items(3)
        for k in order:
            test.record(items[k], response(items[k]))
        abilities.add(round(test.ability, 10))
    assert len(abilities) == 1


def test_items_that_wait_count_for_length_quota_and_budget():
    assert len(begin(num_items=4).next_items(9)) == 4
    quota = begin(quota="equal", num_items=8).next_items(8)
    assert sum(item.startswith("b1") for item in quota) == 4
    cost = dict.fromkeys(small_table().items.tolist(), 1.0)
    assert len(begin(cost=cost, budget=3.0).next_items(9)) == 3


def test_a_test_ends_when_nothing_waits_any_more():
    test = begin(standard_error=0.75)
    items = test.next_items(5)
    for k, item in enumerate(items, 1):
        test.record(item, k % 2)
        if k < 5:
            # Below the error, but a response that was paid for still counts.
            assert not test.over and test.stopped == ""
    assert test.standard_error < 0.75
    assert test.over and test.stopped == "standard error" and not test.next_items(5)


def test_an_item_without_a_response_is_not_given_again():
    test = begin()
    first = test.next_item()
    before = test.ability
    test.skip(first)
    assert test.ability == before and test.num_given == 0
    assert test.skipped == (first,) and test.handed_out == ()
    seen = []
    while (item := test.next_item()) is not None:
        seen.append(item)
        test.record(item, 1)
    assert first not in seen and len(seen) == 14
    with pytest.raises(ValueError, match="was not handed out|the test is over"):
        test.skip(first)


def test_a_test_with_items_that_wait_is_saved(tmp_path):
    test = begin(randomesque=3, num_items=9)
    items = test.next_items(4)
    test.record(items[2], 1)
    test.skip(items[0])
    again = AdaptiveTest.load(test.save(tmp_path / "t.json"), small_fit(errors=False))
    assert again.handed_out == test.handed_out == (items[1], items[3])
    assert again.skipped == (items[0],)
    assert again.next_items(4) == test.next_items(4)
    for both in (test, again):
        both.record(items[3], 0)
    assert np.isclose(again.ability, test.ability)


def test_what_waits_is_named():
    test = begin()
    a, b = test.next_items(2)
    other = next(name for name in test._bank.names.tolist() if name not in (a, b))
    with pytest.raises(ValueError, match=f"{a!r}, {b!r} wait for their responses"):
        test.record(other, 1)


def test_a_file_of_an_earlier_version_is_read(tmp_path):
    test, path = begin(), tmp_path / "t.json"
    item = test.next_item()
    content = json.loads(test.save(path).read_text())
    del content["skipped"]
    content["rules"]["score"] = content["rules"].pop("scoring")
    for waiting, want in ((item, (item,)), (None, ())):
        path.write_text(json.dumps(content | {"version": 2, "handed_out": waiting}))
        assert AdaptiveTest.load(path, small_fit(errors=False)).handed_out == want


def test_an_ended_test_with_a_skipped_item_is_resumed(tmp_path):
    test = begin(num_items=3)
    skipped = test.next_item()
    test.skip(skipped)
    while (item := test.next_item()) is not None:
        test.record(item, 1)
    again = AdaptiveTest.load(test.save(tmp_path / "t.json"), small_fit(errors=False))
    assert (again.num_given, again.skipped, again.over) == (3, (skipped,), True)
    assert again.ability == test.ability


def test_items_of_the_callers_choice_are_as_those_of_the_test():
    fit = small_fit(errors=False)
    first, second, third, fourth = fit.item_names[[4, 9, 2, 7]].tolist()
    test, fixed = begin(num_items=3), begin(items=[first, second, fourth])
    assert test.hand_out(first) == test.hand_out(second) == ""
    assert test.handed_out == (first, second)
    with pytest.raises(ValueError, match="waits already, or cannot be given again"):
        test.hand_out(first)
    with pytest.raises(ValueError, match="no item named 'x'"):
        test.hand_out("x")
    test.record(second, 1)
    test.record(first, 0)
    for item in (first, second):
        fixed.hand_out(item)
        fixed.record(item, int(item == second))
    assert test.ability == pytest.approx(fixed.ability, abs=1e-12)
    with pytest.raises(ValueError, match="cannot be given again"):
        test.hand_out(first)
    with pytest.raises(ValueError, match="cannot be given again"):
        fixed.hand_out(third)  # Not among the items that may be given.
    # One that waits counts for the length.
    assert test.hand_out(third) == "" and test.hand_out(fourth) == "number of items"
    test.record(third, 1)
    assert test.over and test.stopped == "number of items"
