"""The object that hands out items, and tests with labels."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.adaptive import AdaptiveTest, Design, ItemBank, simulate_tests
from irtjax.data.table import ResponseTable
from irtjax.storage import load, save
from tests.adaptive_cases import (
    KEY,
    LENGTH,
    POPULATION,
    THETA,
    bank_of,
    run_of,
)
from tests.small_fits import small_fit, small_table


def answer_all(test: AdaptiveTest) -> list[tuple[str, float]]:
    found = []
    while (item := test.next_item()) is not None:
        test.record(item, len(item) % 2)
        found.append((item, test.ability))
    return found


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize("k", [0, 1, 4])
def test_a_test_put_aside_goes_on_as_it_would_have(tmp_path, k, waiting):
    fit, rules = (
        small_fit(errors=False),
        dict(randomesque=3, quota={"b0": np.int8(1), "b1": 2}),
    )
    whole = answer_all(AdaptiveTest(fit, 8, **rules))
    test = AdaptiveTest(fit, 8, **rules)
    for _ in range(k):
        item = test.next_item()
        test.record(item, len(item) % 2)
    handed = test.next_item() if waiting else None
    # Another day, the calibration comes from its folder too.
    source = load(save(fit, tmp_path / "fit")) if waiting else fit
    again = AdaptiveTest.load(test.save(tmp_path / "t.json"), source)
    assert again.ability == test.ability and again.responses == test.responses
    if waiting:
        again.record(handed, len(handed) % 2)
        assert again.ability == whole[k][1]
    else:
        with pytest.raises(ValueError, match="was not handed out"):
            again.record(whole[k][0], 1)
    assert answer_all(again) == whole[k + waiting :]
    assert not list(tmp_path.glob(".*"))


def test_bad_files_are_refused_in_one_line(tmp_path):
    fit, path = small_fit(errors=False), tmp_path / "t.json"
    test = AdaptiveTest(fit, 5)
    test.record(test.next_item(), 1)
    good = json.loads(test.save(path).read_text())

    def refused(match, content=None, source=fit):
        if content is not None:
            path.write_text(
                content if isinstance(content, str) else json.dumps(content)
            )
        with pytest.raises(ValueError, match=match) as error:
            AdaptiveTest.load(path, source)
        assert "\n" not in str(error.value) and "t.json" in str(error.value)

    refused("other items or parameters", source=small_fit("rasch"))
    refused("not JSON", "{")
    refused("not a saved adaptive test", {"format": "other"})
    refused("newer irtjax", good | {"version": 99})
    refused("damaged", {k: v for k, v in good.items() if k != "responses"})
    refused("could not be given", good | {"responses": good["responses"] * 2})
    refused("no item named", good | {"responses": [["nobody", 1]]})
    refused("categories", good | {"responses": [[good["responses"][0][0], 3]]})
    refused("damaged", good | {"rules": good["rules"] | {"colour": 1}})
    path.unlink()
    refused("cannot read")
    with pytest.raises(ValueError, match="cannot write"):
        test.save(tmp_path / "nowhere" / "t.json")


def test_what_is_recorded_is_checked():
    test = AdaptiveTest(small_fit(errors=False), 2)
    names = small_table().items.tolist()
    with pytest.raises(ValueError, match="call next_item"):
        test.record(names[0], 1)
    item = test.next_item()
    other = next(name for name in names if name != item)
    for bad, match in [
        (("nobody", 1), "no item named 'nobody' in the bank of 15 items"),
        ((other, 1), "waits for its response"),
        ((item, 2), "not one of the categories 0 to 1"),
        ((item, 0.5), "not one of the categories"),
        ((item, float("nan")), "not one of the categories"),
        ((item, "1"), "not one of the categories"),
        ((item, None), "not one of the categories"),
    ]:
        with pytest.raises(ValueError, match=match) as error:
            test.record(*bad)
        assert "\n" not in str(error.value)
        # Nothing has changed.
        assert test.num_given == 0 and test.next_item() == item
    test.record(item, True)
    with pytest.raises(ValueError, match="was not handed out"):
        test.record(item, 1)
    test.record(test.next_item(), np.int8(0))
    assert test.next_item() is None
    with pytest.raises(ValueError, match="the test is over .number of items."):
        test.record(item, 1)


@pytest.mark.parametrize(
    ("rules", "match"),
    [
        (dict(select="best"), "select 'best' is not one of information"),
        (dict(scoring="ml"), "scoring 'ml' is not one of eap"),
        (dict(num_items=0), "num_items 0"),
        (dict(randomesque=0), "randomesque 0"),
        (dict(randomesque=2, select="random"), "randomesque 2 needs"),
        (dict(standard_error=0.0), "standard_error 0"),
        (dict(reliability=1.0), "reliability 1"),
        (dict(gain=-0.1), "gain -0.1"),
        (dict(quota="fair"), "quota 'fair'"),
        (dict(quota={"b7": 1.0}), "no items are of group 'b7'; there are b0, b1"),
        (dict(quota={"b0": -1.0}), "weights must be"),
        (dict(max_exposure=0.0), "max_exposure 0"),
        (dict(items=["x"]), "no item named 'x'"),
        (dict(max_exposure=0.1, times_used={"x": 3}), "no item named 'x'"),
    ],
)
def test_bad_rules_are_refused_in_one_line(rules, match):
    with pytest.raises(ValueError, match=match) as error:
        AdaptiveTest(small_fit(errors=False), **rules)
    assert "\n" not in str(error.value)


def test_other_bad_beginnings_are_refused():
    with pytest.raises(ValueError, match="not from a str"):
        AdaptiveTest("fit")
    with pytest.raises(ValueError, match="quota needs content groups"):
        AdaptiveTest(bank_of(), quota="equal")
    bank = bank_of("graded")
    thresholds = bank.items.intercept.at[2].set(bank.items.intercept[2, ::-1])
    broken = bank.items._replace(intercept=thresholds)
    with pytest.raises(ValueError, match="item 3 of the bank has no probabilities"):
        ItemBank.create(bank.model, broken, POPULATION)
    weights = jnp.zeros(61)
    shaped = ItemBank.create(
        bank.model, bank.items, POPULATION._replace(log_weights=weights)
    )
    with pytest.raises(ValueError, match="histogram"):
        AdaptiveTest(shaped, scoring="map")
    assert AdaptiveTest(shaped).standard_error > 0


def test_items_given_by_name_are_the_only_ones_and_in_their_order():
    names = small_table().items.tolist()
    chosen = [names[7], names[2], names[11]]
    test = AdaptiveTest(small_fit(errors=False), select="fixed", items=chosen)
    assert [name for name, _ in answer_all(test)] == chosen
    assert test.stopped == "no items left"
    worn = AdaptiveTest(
        small_fit(errors=False),
        num_tests=9,
        max_exposure=0.2,
        times_used={name: 2 for name in names[3:]},
    )
    assert {name for name, _ in answer_all(worn)} == set(names[:3])


# Simulated and replayed tests with labels.


def test_replayed_subjects_respond_as_they_did():
    table, fit = small_table(), small_fit(errors=False)
    # Another order of items, and one that the fit does not know.
    order = table.items[::-1]
    shuffled = table.select(items=order)
    strange = ResponseTable.from_arrays(
        np.c_[np.where(shuffled.observed, shuffled.values, np.nan), np.ones(24)],
        subjects=table.subjects,
        items=[*order.tolist(), "unknown"],
    )
    tests = simulate_tests(fit, key=KEY, num_items=15, replay=strange)
    assert tests.replayed
    assert any("1 item is not in the bank" in note for note in tests.notes)
    for subject in range(24):
        count = tests.num_given[subject]
        items = tests.given[subject, :count]
        assert count == table.observed[subject].sum()
        assert table.observed[subject, items].all()
        np.testing.assert_array_equal(
            tests.responses[subject, :count], table.values[subject, items]
        )
    # With all answers given, the score is that of all answers; the nodes differ.
    np.testing.assert_allclose(tests.ability[:, -1], tests.truth, atol=1e-6)
    assert "ability_all_items" in tests.table.column_names


def test_responses_that_do_not_suit_are_refused():
    fit = small_fit(errors=False)
    other = ResponseTable.from_arrays([[1, 0]], items=["x", "y"])
    with pytest.raises(ValueError, match="none of the 2 items"):
        simulate_tests(fit, key=KEY, replay=other)
    names = small_table().items[:2]
    wrong = ResponseTable.from_arrays([[1, 2]], items=names, subjects=["s"])
    with pytest.raises(ValueError, match="subject s, item b1/q1: the response 2"):
        simulate_tests(fit, key=KEY, replay=wrong)
    counts = ResponseTable.from_arrays([[1, 2]], items=names, trials=[[3, 3]])
    with pytest.raises(ValueError, match="counts of trials"):
        graded, names = bank_of("graded"), [*names, *(f"n{k}" for k in range(38))]
        simulate_tests(graded, key=KEY, replay=counts, names=names)
    with pytest.raises(ValueError, match="num_subjects 0"):
        simulate_tests(fit, 0, key=KEY)


def test_the_table_and_curves_of_simulated_tests():
    tests = simulate_tests(
        bank_of(), key=KEY, num_items=LENGTH, ability=THETA, standard_error=0.6
    )
    rows = tests.table.to_pylist()
    assert [row["num_items"] for row in rows] == tests.num_given.tolist()
    assert {row["stopped"] for row in rows} <= {
        *("standard error", "number of items", "number of items; standard error")
    }
    for row, truth, path in zip(rows, THETA.tolist(), tests.ability, strict=True):
        assert row["true_ability"] == truth and row["ability"] == path[-1]
    errors = [[(path[k] - t) ** 2 for path, t in zip(tests.ability, THETA, strict=True)]
              for k in range(LENGTH)]  # fmt: skip
    np.testing.assert_allclose(tests.rmse(), np.sqrt(np.mean(errors, axis=1)))
    np.testing.assert_allclose(
        tests.mean_standard_error() ** 2, (tests.standard_error**2).mean(0)
    )
    assert tests.exposure().sum() == pytest.approx(tests.num_given.mean())


def test_more_subjects_than_go_side_by_side_get_the_same_tests(monkeypatch):
    design = Design.create(LENGTH)
    monkeypatch.setattr("irtjax.adaptive.simulation.SIDE_BY_SIDE", 5)
    # Another key, or the program that is compiled for all at once would serve.
    from irtjax.adaptive.simulation import run_tests

    in_turns = jax.jit(lambda key: run_tests(bank_of(), design, key=key, theta=THETA))
    got = in_turns(KEY)
    np.testing.assert_array_equal(got.items, run_of().items)
    np.testing.assert_allclose(got.ability, run_of().ability, atol=1e-12)
