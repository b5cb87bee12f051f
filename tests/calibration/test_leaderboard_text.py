"""The leaderboard on the screen: its width, ranks and ties, scale and digits."""

import re
import time

import numpy as np
import pyarrow as pa
import pytest

from irtjax.calibration.leaderboard_text import (
    leaderboard_rows,
    leaderboard_table,
    leaderboard_text,
    tie_ranks,
)
from irtjax.calibration.rank import RankedSubjects
from irtjax.data.text_table import display_width

SCORES = [0.78, 0.775, 0.72, 0.6, 0.5, 0.4, 0.39, 0.38, 0.2, 0.1]
GROUPS = ([1, 1, 2, 3, 4, 5, 5, 5, 6, 7], [1, 1, 2, 3, 4, 5, 5, 5, 6, 7])


def ranked(scores, names=None, half=0.03, groups=None, **changes):
    """A ranking of these scores; by default every subject differs from all others."""
    size = len(scores)
    scores = np.asarray(scores, float)
    alone = list(range(1, size + 1))
    first, last = (alone, alone) if groups is None else groups
    names = [f"model-{k}" for k in range(size)] if names is None else names
    columns = {
        "subject": names,
        "ability": scores,
        "ability_se": np.full(size, half),
        "lower": scores - half,
        "upper": scores + half,
        "rank": alone,
        "rank_lower": alone,
        "rank_upper": alone,
        "probability_best": np.eye(size)[0] if size else [],
        "first_group": pa.array(first, pa.int64()),
        "last_group": pa.array(last, pa.int64()),
        "expected_score": scores,
        "expected_score_lower": scores - half,
        "expected_score_upper": scores + half,
        "accuracy": scores,
        **changes,
    }
    table = pa.table(columns)
    return RankedSubjects(table, [], size * (size - 1) // 2, 0, 0.95, "", "model")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize(
    "names",
    [
        [f"organisation/a-model-with-a-long-name-{k}" for k in range(10)],
        ["模型" * 12 + str(k) for k in range(10)],
        [f"m{k}\x1b[31m\u202e\n" for k in range(10)],
    ],
)
def test_any_names_fit_any_screen(width, unicode, names):
    text = leaderboard_text(
        ranked(SCORES, names, groups=GROUPS), width=width, unicode=unicode
    )
    lines = text.splitlines()
    assert max(map(display_width, lines)) <= width
    assert "\x1b" not in text and "\u202e" not in text
    assert text.isascii() or unicode
    assert len(lines) in (12, 13)  # Heading, names of columns, rows; what is left out.


def test_ranks_and_names_of_ties_agree():
    # Overlapping groups: 0-1, 1-2, then 3 alone.
    found = ranked([0.8, 0.7, 0.6, 0.1], groups=([1, 1, 2, 3], [1, 2, 2, 3]))
    low, high = tie_ranks(found)
    assert low.tolist() == [1, 1, 2, 4] and high.tolist() == [2, 3, 3, 4]
    header, rows = leaderboard_rows(found)
    assert header == ["rank", "model", "score", "95 %", "tied with"]
    assert [row[0] for row in rows] == ["1–2", "1–3", "2–3", "4"]
    assert [row[-1] for row in rows] == [
        "model-1", "model-0, model-2", "model-1", "–",
    ]  # fmt: skip
    numbers = leaderboard_table(found).to_pylist()
    assert numbers[1]["tied_rank_upper"] == 3 and numbers[1]["model"] == "model-1"


def test_points_stand_where_their_scores_are():
    text = leaderboard_text(ranked(SCORES), width=100, unicode=True)
    heading, *lines = text.splitlines()[1:]
    places = [line.index("●") for line in lines]
    assert places == sorted(places, reverse=True) and len({*places}) > 5
    # A label of the scale stands above the point of its value.
    column = heading.index(".5", heading.index("%")) + 1
    assert abs(lines[4].index("●") - column) <= 1
    for line in lines:
        assert line.index("━") < line.index("●") < line.rindex("━")


def test_long_tables_show_both_ends_and_all_on_request():
    scores = np.linspace(0.9, 0.1, 5000)
    found = ranked(scores, groups=(np.ones(5000, int), np.ones(5000, int)))
    began = time.process_time()
    text = leaderboard_text(found, width=80)
    # Only the rows shown are made: 0.1 s here.
    assert time.process_time() - began < 5
    assert "(4,989 more)" in text and len(text.splitlines()) == 14
    assert "1–5,000" in text and "model-4999" in text
    # Names shorter than what stands for the rest leave the drawing whole.
    groups = (np.ones(30, int), np.ones(30, int))
    names = [f"s{k}" for k in range(30)]
    narrow = ranked(np.linspace(1.7, 1.4, 30), names, half=0.3, groups=groups)
    for line in leaderboard_text(narrow, width=80, unicode=True).splitlines():
        assert "●" not in line or "…" not in line[: line.rindex("━")]
    whole = leaderboard_text(ranked(scores[:100]), width=80, everything=True)
    assert len(whole.splitlines()) == 102 and "more" not in whole
    assert "more" not in leaderboard_text(ranked(scores[:12]), width=80)


@pytest.mark.parametrize("width", [70, 80, 100, 120])
def test_long_names_stay_different_and_ties_are_whole_names(width):
    kinds = [f"vendor_family_{size}b_{kind}_2507" for size in (30, 235)
             for kind in ("instruct", "thinking", "base")]  # fmt: skip
    names = [f"{kind}_{shots}_shot" for kind in kinds for shots in ("zero", "one")]
    groups = (np.ones(12, int), np.ones(12, int))
    found = ranked(np.linspace(0.9, 0.1, 12), names, groups=groups)
    text = leaderboard_text(found, width=width, unicode=True)
    lines = text.splitlines()
    assert max(map(display_width, lines)) <= width
    shown = [line.split()[1] for line in lines[-12:]]
    assert len({*shown}) == 12
    for name, whole in zip(shown, names, strict=True):
        begin, _, end = name.partition("…")
        assert begin in whole and end in whole
        # What makes it another model than the others is there.
        assert {*whole.split("_")[2:4]} & {*name.replace("…", "_").split("_")}
    if width == 80:
        assert lines[1].startswith(' names begin with "vendor_family_" and end in')
        assert "●" in text
    assert lines[-1].endswith("11 others")


def test_organisations_are_left_out_before_names_are_cut():
    names = [f"{org}/{org}-large-2407-v{k}" for k, org in enumerate(
        ("mistralai", "anthropic", "deepseek"))]  # fmt: skip
    found = ranked([0.9, 0.8, 0.7], names, groups=([1, 1, 2], [1, 2, 2]))
    text = leaderboard_text(found, width=80, unicode=True)
    assert all(f" {name.partition('/')[2]} " in text for name in names)
    assert "/" not in text
    wide = leaderboard_text(found, width=140, unicode=True)
    assert all(f" {name} " in wide for name in names)


def test_digits_follow_the_intervals_and_the_scale_of_scores():
    narrow = leaderboard_text(ranked([0.784, 0.779], half=0.002), width=80)
    assert ".784" in narrow and ".782–.786" in narrow
    wide = leaderboard_text(ranked([85.3, 20.1], half=3.0), width=80)
    assert "85.3" in wide and "82.3–88.3" in wide
    below = leaderboard_text(ranked([0.1, -0.2], half=0.05), width=80, unicode=True)
    assert "−.20" in below and "−.25–−.15" in below
    perfect = leaderboard_text(ranked([1.0, 0.5]), width=80)
    assert re.search(r" 1\.00 .* \.50 ", perfect, re.S)


def test_what_has_no_interval_score_or_subject():
    none = pa.nulls(2, pa.float64())
    bare = {name: none for name in ("expected_score_lower", "expected_score_upper")}
    text = leaderboard_text(ranked([0.7, 0.6], **bare), width=80)
    assert "95 %" not in text and ".70" in text
    no_score = {**bare, "expected_score": none}
    text = leaderboard_text(ranked([1.5, -0.5], **no_score), width=80)
    assert "ability" in text and "score" not in text and "1.50" in text
    assert "No model has a finite ability." in leaderboard_text(ranked([]), width=80)
    one = leaderboard_text(ranked([0.5]), width=80).splitlines()
    assert len(one) == 3 and " 1 " in one[-1]
    equal = ranked([0.5, 0.5], half=0.0, groups=([1, 1], [1, 1]))
    assert leaderboard_text(equal, width=80).count("1–2") == 2


def test_the_place_of_the_page_moves_below_where_it_is_long():
    found = ranked(SCORES)
    short = leaderboard_text(found, place="out/report.html", width=80).splitlines()
    assert short[0].endswith("out/report.html") and len(short[0]) == 80
    long = leaderboard_text(found, place="x" * 90, width=80).splitlines()
    assert long[1] == " " + "x" * 90
