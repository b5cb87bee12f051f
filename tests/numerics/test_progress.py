"""The share done of nested loops, and who watches after a loop was left."""

import gc

import pytest

from irtjax.numerics import progress
from irtjax.numerics.progress import in_stretches, note_share, watched, watching


def shares_of(work):
    found = []
    with watching(lambda share, name: found.append((share, name))):
        work()
    return found


def test_shares_rise_to_one_whatever_is_nested():
    def work():
        for _ in watched(range(4), "fold"):
            for k in watched(range(3), "rule"):
                if k == 1:
                    note_share(0.5)

    found = shares_of(work)
    shares = [share for share, _ in found[:-1]]
    assert found[-1] == (None, "")
    assert shares == sorted(shares) and (shares[0], shares[-1]) == (0, 1)
    # The middle of the second rule of the first fold, of 4 x 3.
    assert 1.5 / 12 in [round(share, 12) for share in shares]
    assert {name for _, name in found[:-1]} == {f"fold {k} of 4" for k in (1, 2, 3, 4)}


def test_nothing_is_reported_without_a_watcher_or_of_one_part():
    assert list(watched("abc")) == ["a", "b", "c"]
    assert shares_of(lambda: list(watched(["all"], "part"))) == []


def test_a_loop_that_was_left_leaves_nobody_watching():
    def broken():
        for _ in watched(range(3)):
            raise ValueError

    found, kept = [], []
    with watching(lambda *x: found.append(x)):
        with pytest.raises(ValueError) as error:
            broken()
        kept.append(error)  # Its traceback keeps the loop alive.
        for _ in watched(range(2)):
            break
    before = len(found)
    kept.clear()
    del error
    gc.collect()
    list(watched(range(5)))
    assert found[-1][0] is None or len(found) == before
    assert all(share is None for share, _ in found[before:])


def test_a_single_share_is_of_the_part_around_it():
    def work():
        for _ in watched(range(2)):
            note_share(1)
        note_share(0.25, "fit")
        note_share(1)

    found = [share for share, _ in shares_of(work)]
    assert found == [0, 0.5, 0.5, 1.0, 1.0, None, 0.25, None]


def test_parts_taken_by_one_program_are_reported_in_stretches(monkeypatch):
    calls = []

    def advance(found, first, last):
        calls.append((first, last))
        return [*found, *range(first, last)]

    assert in_stretches(advance, [], 5) == [0, 1, 2, 3, 4] and calls == [(0, 5)]
    calls.clear()
    monkeypatch.setattr(progress, "STRETCH", 0.0)  # One part a call.
    shares = shares_of(lambda: in_stretches(advance, [], 4, "scores"))
    assert calls == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert shares == [(k / 4, "scores") for k in range(4)] + [(None, "")]
    calls.clear()
    monkeypatch.setattr(progress, "STRETCH", 1e6)  # As many as four times the last.
    shares_of(lambda: in_stretches(advance, [], 30))
    assert calls == [(0, 1), (1, 5), (5, 21), (21, 30)]
