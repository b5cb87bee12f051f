"""Flags and warnings, on tables small enough to see."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from irtjax._types import Status
from irtjax.calibration import flags
from irtjax.data.stored_cells import DenseCells
from irtjax.models.catalogue import one_parameter, two_parameter
from irtjax.models.priors import Normal


def test_margins_of_items_and_subjects():
    values = np.array([[1, 0, 0, 0], [1, 0, 1, 0]], np.int8)
    observed = np.array([[1, 1, 1, 0], [1, 1, 1, 0]], bool)
    items = flags.margins(DenseCells(values, observed), 1, 0)
    assert items.observed.tolist() == [2, 2, 2, 0]
    assert items.highest.tolist() == [True, False, False, False]
    assert items.lowest.tolist() == [False, True, False, False]
    texts = flags.join_flags(4, flags.no_variation(items))
    assert texts == [flags.ALL_RIGHT, flags.ALL_WRONG, "", flags.NO_RESPONSES]
    subjects = flags.margins(DenseCells(values, observed), 1, 1)
    assert subjects.total.tolist() == [1, 2]
    assert not subjects.highest.any() and not subjects.lowest.any()


def test_margins_with_trials_and_categories():
    trials = np.array([[2, 3], [2, 0]])
    right = np.array([[2, 0], [2, 0]], np.int8)
    counts = flags.margins(DenseCells(right, trials=trials), 1, 0)
    assert counts.observed.tolist() == [4, 3]
    assert counts.highest.tolist() == [True, False]
    assert counts.lowest.tolist() == [False, True]
    ordered = flags.margins(DenseCells(np.array([[2, 1], [2, 2]], np.int8)), 2, 0)
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
        found = flags.separated_items(DenseCells(values[order]), ability[order])
        assert found.tolist() == [apart]


def test_separation_of_many_subjects():
    # More of them at either end than are looked at first for few subjects.
    ability = np.random.default_rng(0).normal(size=6000)
    apart, overlap = ability > 2.5, ability > 2.5
    overlap = np.where(ability == ability.min(), True, overlap)
    values = np.stack([apart, ~apart, overlap], axis=1).astype(np.int8)
    found = flags.separated_items(DenseCells(values), ability)
    assert found.tolist() == [True, True, False]


def test_separation_is_judged_on_what_was_observed():
    values = np.array([[0], [0], [0], [1]], np.int8)
    observed = np.array([[1], [1], [1], [1]], bool)
    ability = np.array([0.0, 3.0, 1.0, 2.0])
    assert not flags.separated_items(DenseCells(values, observed), ability)[0]
    observed[1] = False
    assert flags.separated_items(DenseCells(values, observed), ability)[0]


def test_components_of_who_answered_what():
    assert DenseCells(np.eye(3, dtype=np.int8)).num_components() == 1
    number_of = lambda seen: DenseCells(seen, seen).num_components()
    blocks = np.kron(np.eye(3, dtype=bool), np.ones((2, 4), bool))
    assert number_of(blocks) == 3
    blocks[0, -1] = True
    assert number_of(blocks) == 2
    # Rows and columns without responses are no group of their own.
    assert number_of(np.pad(blocks, 1)) == 2
    chain = np.eye(30, dtype=bool) | np.eye(30, k=1, dtype=bool)
    assert number_of(chain) == 1


def _findings(count, **given):
    which = dict.fromkeys(flags.ItemFindings._fields, np.zeros(count, bool))
    return flags.ItemFindings(**{**which, **given})


def test_item_flags():
    values = np.array([[1, 0, 1, 0], [1, 1, 0, 1]], np.int8)
    found = flags.margins(DenseCells(values), 1, 0)
    findings = _findings(
        4,
        negative=np.array([False, True, False, False]),
        separated=np.array([False, True, False, False]),
        diverging=np.array([True, False, True, False]),
        not_identified=np.array([False, False, False, True]),
    )
    free = flags.item_flags(two_parameter(None), found, findings)
    # No variation explains an estimate without a limit.
    assert free == [
        flags.ALL_RIGHT,
        f"{flags.NEGATIVE}; {flags.SEPARATED}",
        flags.RUNAWAY,
        flags.NOT_IDENTIFIED,
    ]
    # Where a prior determines the slope, or all items share one, separation is none.
    for model in (two_parameter(), one_parameter(None)):
        assert flags.item_flags(model, found, findings)[1] == flags.NEGATIVE


def test_only_estimates_without_a_prior_diverge():
    slope, intercept = np.array([1.0, 30.0, 1.0]), np.array([0.0, 0.0, -30.0])
    diverging = [
        flags.diverging_items(model, slope, intercept).tolist()
        for model in (
            two_parameter(),
            two_parameter(None),
            two_parameter({"discrimination": Normal(1.0, 1.0)}),
        )
    ]
    assert diverging == [
        [False, False, False],
        [False, True, True],
        [False, False, True],
    ]


def test_estimates_that_do_not_exist():
    values = np.array([[1, 0, 1], [1, 1, 0]], np.int8)
    found = flags.margins(DenseCells(values), 1, 0)
    findings = _findings(3, separated=np.array([False, False, True]))
    lost = flags.without_estimate(two_parameter(None), found, findings)
    assert lost.tolist() == [True, False, True]
    assert not flags.without_estimate(two_parameter(), found, findings).any()


def test_the_note_counts_separated_items():
    assert flags.separation_note(np.zeros(3, bool)) is None
    assert "2 items are separated" in str(flags.separation_note(np.ones(2, bool)))


def _warnings(model=None, single_precision=False, **changes):
    model = two_parameter() if model is None else model
    estimates = {
        "problem": SimpleNamespace(model=model, free=np.ones((2, 2), bool)),
        "several": False,
        "num_factors": 0,
        "priors": frozenset(model.priors),
        "status": Status.CONVERGED,
        "residual": 1e-5,
        "joint": False,
        "trained": False,
        "limit": "max_steps",
        "coordinates": np.zeros((2, 2), np.float32 if single_precision else float),
    }
    settings = {
        "num_subjects": 500,
        "components": 1,
        "flags": ["", ""],
        "subject_flags": [""],
    }
    for name, value in changes.items():
        (estimates if name in estimates else settings)[name] = value
    return flags.fit_warnings(SimpleNamespace(**estimates), **settings)


MLE = two_parameter(None)


def test_a_clean_fit_has_no_warning():
    assert _warnings() == ()
    assert _warnings(joint=True, responses_per_subject=1000) == ()
    # Items without variation are no fault: a prior determines their estimates.
    assert _warnings(flags=["all right", "all wrong"]) == ()


def test_intervals_of_few_subjects_are_said_to_cover_less():
    text = " ".join(_warnings(num_subjects=20))
    assert "differences cover 86 to 94 %: use method='laplace'" in text
    # Where means are compared another warning has the reason; joint ones cover more.
    for changes in ({"tested": False}, {"joint": True}):
        text = " ".join(_warnings(num_subjects=20, **changes))
        assert "only 20 subjects" in text and "laplace" not in text
    for tested in (True, False):
        text = " ".join(_warnings(joint=True, tested=tested))
        assert "few responses" in text and ("method='em'" in text) == tested
    fixed = SimpleNamespace(model=two_parameter(), free=np.zeros((2, 2), bool))
    text = " ".join(_warnings(num_subjects=20, problem=fixed))
    assert "only 20 subjects" in text and "laplace" not in text


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("flag", flags.MEANING)
def test_warnings_do_not_advise_priors_to_users_who_have_them(status, flag):
    found = _warnings(
        status=status, num_subjects=10, flags=[flag], subject_flags=["all right"]
    )
    assert not [text for text in found if "use priors" in text]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": Status.MAX_STEPS}, "stopped at the step limit"),
        ({"status": Status.NONFINITE}, "the last finite state was kept"),
        ({"num_subjects": 30}, "only 30 subjects .* depend strongly on the priors"),
        (
            {"num_subjects": 30, "model": two_parameter(None)},
            "item parameters are poorly determined",
        ),
        ({"components": 3}, "fall into 3 groups"),
        (
            {"flags": ["no responses"] * 2, "items": np.arange(2)},
            r"^2 items: no responses: 0, 1 \(nothing was observed: check the read",
        ),
        (
            {"flags": ["all right"], "model": two_parameter(None)},
            r"^1 item: all right \(every resp.*; without a prior it has no limit",
        ),
        (
            {"subject_flags": ["all wrong"]},
            r"^1 subject: all wrong \(the estimate depends on the distribution of",
        ),
        (
            {"subject_flags": ["all wrong"], "joint": True, "model": MLE},
            r"^1 subject: all wrong \(the estimate has no finite value; use priors",
        ),
        (
            {"flags": ["not identified"] * 7, "items": np.arange(7)},
            r"^7 items: not identified: 0, 1, 2, 3, 4 and 2 more \(.*; use a model",
        ),
        (
            {"flags": ["not identified"], "model": MLE},
            r"^1 item: not identified \(.*; use priors, or a model with fewer",
        ),
        ({"status": Status.MAX_STEPS, "model": MLE}, "raise max_steps, or use priors$"),
        ({"status": Status.MAX_STEPS}, "provisional; raise max_steps$"),
        ({"status": Status.MAX_STEPS, "trained": True}, "raise epochs$"),
        ({"status": Status.MAX_STEPS, "limit": "num_steps"}, "raise num_steps$"),
        ({"status": Status.STALLED, "single_precision": True}, "use float64"),
        ({"status": Status.STALLED}, "use smaller steps"),
        ({"status": Status.NONFINITE}, "use other start values$"),
        ({"status": Status.NONFINITE, "model": MLE}, "use priors$"),
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
