"""The lines of the verdict: who is first, alone or tied, and what matters."""

import dataclasses
import re
import shlex
from typing import Any

import irtjax
from irtjax._types import Status
from irtjax.data.text_table import display_width
from irtjax.report.verdict import first, verdict, verdict_text
from tests.calibration.test_leaderboard_text import ranked
from tests.small_fits import small_fit


def lines_of(**changes):
    """The verdict of the small fit, with some fields changed."""
    fit = dataclasses.replace(small_fit(), **changes)
    return verdict(fit, irtjax.rank(fit), folder="a folder")


def test_the_first_is_alone_or_tied_and_a_tie_is_called_a_tie():
    alone = ranked([0.8, 0.7, 0.6])
    alone = dataclasses.replace(alone, num_different=3)
    assert first(alone) == "model-0, alone (P > .99). 3 of 3 pairs differ (5 % false)."
    groups = ([1, 1, 2], [1, 1, 2])
    chances: Any = {"probability_best": [0.51, 0.49, 0.0]}
    names = ["org/llama-70b", "org/qwen-72b", "org/m"]
    both = ranked([0.8, 0.79, 0.6], names, groups=groups, **chances)
    both = dataclasses.replace(both, num_different=2)
    # The names come first; what does not fit has a line of its own.
    assert first(both) == (
        "llama-70b and qwen-72b share it (P .51).\n2 of 3 pairs differ (5 % false)."
    )
    every = ranked([0.8, 0.79, 0.6], groups=([1, 1, 1], [1, 1, 1]), **chances)
    assert first(every) == "all 3 are tied: no pair differs (5 % false)."
    assert "ahead" not in first(both) + first(every) + first(alone)
    # One that is most likely the best shares it with nobody, tests of pairs or not.
    likely = dataclasses.replace(
        ranked(
            [0.8, 0.79, 0.6], names, groups=groups, probability_best=[0.96, 0.04, 0]
        ),
        num_different=2,
    )
    assert first(likely) == (
        "llama-70b (P .96), not significantly ahead of qwen-72b.\n"
        "2 of 3 pairs differ (5 % false)."
    )
    many = ranked(
        [0.5] * 60,
        groups=([1] * 59 + [2], [1] * 59 + [2]),
        probability_best=[1 / 59] * 59 + [0],
    )
    assert re.fullmatch(r"model-0, .*, \+\d\d more share it .*\n.*", first(many))


def test_two_long_names_are_cut_and_stay_different():
    names = [f"vendor_family_30b_{x}_2507_{y}_shot" for x in ("instruct", "thinking")
             for y in ("one", "zero")]  # fmt: skip
    chances: Any = {"probability_best": [0.5, 0.49, 0.0, 0.0]}
    both = ranked([0.8, 0.79, 0.6, 0.5], names, groups=([1, 1, 2, 3],) * 2, **chances)
    line = first(both).splitlines()[0]
    assert display_width(line) <= 70
    assert line.endswith("instruct_2507_zero share it (P .50).")
    assert "instruct_2507_one and " in line
    # Whole where there is room.
    assert first(both, width=140).startswith(f"{names[0]} and {names[1]} share it")


def test_what_cannot_be_ranked_is_stated():
    assert first(ranked([])) == "no model has a finite ability"
    assert first(ranked([0.5])) == "there is one model: nothing to compare"
    found = lines_of(status=Status.MAX_STEPS)
    assert "NOT CONVERGED" in found["First"]
    assert "alone" not in found["First"] and "share" not in found["First"]


def test_one_or_two_warnings_that_matter_and_no_note_of_every_fit():
    assert lines_of(warnings=(), notes=())["First"]
    assert "Mind" not in lines_of(warnings=(), notes=())
    warnings = (
        "10 subjects and 600 responses are few: in simulations of such sizes",
        "the data fall into 2 groups without a common subject or item: abilities in"
        " different groups are comparable only through the population",
        "3 items: negative discrimination (q1, q2, q3)",
    )
    chosen = (
        "usual metrics and filters were read (math_sim: exact_match with strict-match,"
        " not flexible-extract; mcq_sim: acc_norm, not acc)",
        "9 items are separated (column 'separated'): that is no defect",
    )
    assert lines_of(warnings=warnings, notes=chosen)["Mind"] == (
        "the data fall into 2 groups without a common subject or item; math_sim is"
        " strict-match"
    )
    # That data are few comes last.
    assert lines_of(warnings=warnings[:1], notes=())["Mind"] == (
        "10 subjects and 600 responses are few"
    )


def test_lines_fit_the_screen_and_commands_stay_whole():
    found = lines_of(warnings=("word " * 60,))
    found["Next"] = "irtjax compare " + "x" * 90 + " y --fit DIR"
    text = verdict_text(found, width=60, unicode=False)
    assert text.isascii()
    for line in text.splitlines():
        assert display_width(line) <= 60 or line.startswith("Next")
    assert found["Next"] in text


def test_the_command_that_follows_can_be_copied():
    command = lines_of()["Next"]
    words = shlex.split(command)
    assert words[:2] == ["irtjax", "compare"] and words[-2:] == ["--fit", "a folder"]
    assert words[2] in small_fit().subject_names.tolist()
