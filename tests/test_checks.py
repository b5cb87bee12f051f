"""Flags and warnings, on tables small enough to see."""

import re

import numpy as np
import pytest

from irtjax import checks
from irtjax._types import Status
from irtjax.models.catalogue import one_parameter, two_parameter


def test_margins_of_items_and_subjects():
    values = np.array([[1, 0, 0, 0], [1, 0, 1, 0]], np.int8)
    observed = np.array([[1, 1, 1, 0], [1, 1, 1, 0]], bool)
    items = checks.margins(values, observed, None, 1, 0)
    assert items.observed.tolist() == [2, 2, 2, 0]
    assert items.highest.tolist() == [True, False, False, False]
    assert items.lowest.tolist() == [False, True, False, False]
    assert checks.no_variation_flags(items) == [
        [checks.ALL_RIGHT],
        [checks.ALL_WRONG],
        [],
        [checks.NO_RESPONSES],
    ]
    subjects = checks.margins(values, observed, None, 1, 1)
    assert subjects.total.tolist() == [1, 2]
    assert not subjects.highest.any() and not subjects.lowest.any()


def test_margins_with_trials_and_categories():
    trials = np.array([[2, 3], [2, 0]])
    counts = checks.margins(np.array([[2, 0], [2, 0]], np.int8), None, trials, 1, 0)
    assert counts.observed.tolist() == [4, 3]
    assert counts.highest.tolist() == [True, False]
    assert counts.lowest.tolist() == [False, True]
    ordered = checks.margins(np.array([[2, 1], [2, 2]], np.int8), None, None, 2, 0)
    assert ordered.highest.tolist() == [True, False]


@pytest.mark.parametrize(
    ("column", "apart"),
    [
        ([0, 0, 1, 1], True),
        ([1, 1, 1, 0], True),
        ([0, 1, 0, 1], False),
        ([1, 1, 1, 1], False),
    ],
)
def test_separation(column, apart):
    ability = np.array([-1.0, 0.0, 1.0, 2.0])
    values = np.array(column, np.int8)[:, None]
    # In any order of the subjects.
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        found = checks.separated_items(values[order], None, ability[order])
        assert found.tolist() == [apart]


def test_separation_is_judged_on_what_was_observed():
    values = np.array([[0], [0], [0], [1]], np.int8)
    observed = np.array([[1], [1], [1], [1]], bool)
    ability = np.array([0.0, 3.0, 1.0, 2.0])
    assert not checks.separated_items(values, observed, ability)[0]
    observed[1] = False
    assert checks.separated_items(values, observed, ability)[0]


def test_components_of_who_answered_what():
    assert checks.num_components(None) == 1
    blocks = np.kron(np.eye(3, dtype=bool), np.ones((2, 4), bool))
    assert checks.num_components(blocks) == 3
    blocks[0, -1] = True
    assert checks.num_components(blocks) == 2
    # Rows and columns without responses are no group of their own.
    assert checks.num_components(np.pad(blocks, 1)) == 2
    chain = np.eye(30, dtype=bool) | np.eye(30, k=1, dtype=bool)
    assert checks.num_components(chain) == 1


def test_item_flags():
    values = np.array([[1, 0, 1, 0], [1, 1, 0, 1]], np.int8)
    found = checks.margins(values, None, None, 1, 0)
    slope = np.array([-1.0, -0.5, 40.0, 1.0])
    apart = np.array([False, True, False, False])
    flags = checks.item_flags(two_parameter(), found, slope, apart, slope > 25)
    # The prior alone speaks about an item without variation: no flag but that one.
    assert flags == [
        checks.ALL_RIGHT,
        f"{checks.NEGATIVE}; {checks.SEPARATED}",
        checks.RUNAWAY,
        "",
    ]
    common = checks.item_flags(one_parameter(), found, abs(slope), apart, slope > 99)
    assert common[1] == ""


def _warnings(**changes):
    settings = {
        "status": Status.CONVERGED,
        "residual": 1e-5,
        "num_subjects": 500,
        "components": 1,
        "flags": ["", ""],
        "subject_flags": [""],
        "joint": False,
    }
    model = changes.pop("model", two_parameter())
    return checks.fit_warnings(model, **{**settings, **changes})


def test_a_clean_fit_has_no_warning():
    assert _warnings() == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": Status.MAX_STEPS}, "stopped at the step limit"),
        ({"status": Status.NONFINITE}, "the last finite state was kept"),
        ({"num_subjects": 30}, "only 30 subjects .* rest on the priors"),
        (
            {"num_subjects": 30, "model": two_parameter(None)},
            "item parameters are poorly determined",
        ),
        ({"components": 3}, "fall into 3 groups"),
        ({"flags": ["all right", "all right"]}, r"^2 items: all right \(the est"),
        ({"subject_flags": ["all wrong"]}, r"^1 subject: all wrong \(the est"),
        (
            {"flags": ["negative discrimination; separated", ""]},
            "1 item: negative discrimination",
        ),
        ({"joint": True}, "joint estimates of items are biased"),
    ],
)
def test_each_trouble_has_its_sentence(changes, words):
    found = _warnings(**changes)
    assert found
    assert any(re.search(words, sentence) for sentence in found)


def test_every_flag_has_a_meaning():
    names = {checks.ALL_RIGHT, checks.ALL_WRONG, checks.NO_RESPONSES}
    names |= {checks.NEGATIVE, checks.SEPARATED, checks.RUNAWAY}
    assert names == set(checks.MEANING)
