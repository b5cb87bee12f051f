"""The leaderboard and the sentences: true to the tables, safe with any name."""

import dataclasses
import re

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import irtjax
from irtjax.calibration.flags import flag_warnings
from irtjax.calibration.heterogeneity import discrimination_heterogeneity
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from irtjax.data.stored_cells import DenseCells
from irtjax.ranking.accuracy import accuracies
from irtjax.report import flag_counts, summarise
from irtjax.report.leaderboard_page import leaderboard, subject_cells
from irtjax.report.summary import fit_sentences, subject_sentences
from irtjax.report.words import listing, markdown, number, score_text, visible
from tests.small_fits import NASTY, small_fit, small_table

# Every backslash escape of CommonMark punctuation, undone.
UNESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


@given(st.text())
def test_markdown_names_read_back_and_hold_no_markup(name):
    import html

    escaped = markdown(name)
    assert html.unescape(UNESCAPE.sub(r"\1", escaped)) == html.unescape(
        html.escape(visible(name), quote=False)
    )
    assert "\n" not in escaped
    assert not re.search(r"[<>]|://|@", escaped)
    # No special character without its backslash.
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]{}|~!$]", UNESCAPE.sub("", escaped))


def test_a_hostile_name_stays_inside_its_cell():
    fit = small_fit()
    page = leaderboard(fit, fit.rank())
    row = next(line for line in page.splitlines() if "ird" in line and "| " in line)
    header = next(line for line in page.splitlines() if line.startswith("| subject"))
    bars = re.compile(r"(?<!\\)\|")
    assert len(bars.findall(row)) == len(bars.findall(header))
    assert "<b>" not in page and "\x1b" not in page


def test_the_page_shows_the_ranked_table():
    fit = small_fit()
    ranked = fit.rank()
    page = leaderboard(fit, ranked, [("Abilities", "abilities.png")])
    lines = page.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("| subject"))
    rows = lines[start + 2 : start + 2 + ranked.table.num_rows]
    best = ranked.table.slice(0, 1).to_pylist()[0]
    assert rows[0].startswith(f"| {markdown(best['subject'])} | 1 |")
    assert f"{best['ability']:.3f}" in rows[0]
    assert "95 % interval" in lines[start]
    assert "![Abilities](abilities.png)" in page
    assert "## Benchmarks" in page and fit.data_hash in page


def test_sentences_say_who_leads_and_what_is_flagged():
    fit = small_fit()
    ranked = fit.rank()
    text = "\n".join(summarise(fit, ranked))
    assert visible(ranked.groups[0][0]) in text
    assert f"{ranked.num_different:,} (" in text
    counts = flag_counts(fit.items.table, "item")
    # The table was made with one item that everyone solves, which is no defect.
    assert counts == {"all right": ["b0/q0"]}
    assert "No item has negative discrimination (false discovery rate 5 %)." in text
    assert "items has no variation, which is no evidence of a fault: 1 all" in text
    assert text.count("b0/q0") == leaderboard(fit, ranked).count("b0/q0") == 1


def test_the_page_states_why_ability_and_accuracy_differ():
    fit = small_fit()
    found = discrimination_heterogeneity(fit)
    page = leaderboard(fit, fit.rank())
    numbers = [f"{x:.2f}" for x in (found.cv, found.cv_corrected, found.spearman)]
    (line,) = [x for x in page.splitlines() if x.startswith("Why ability and accuracy")]
    assert all(x in line for x in numbers)
    assert f"({found.cv_lower:.2f} … {found.cv_upper:.2f}, 95 %)" in line
    assert "Missing responses matter too" in line
    rasch = small_fit("rasch", errors=False)
    assert "Why ability" not in leaderboard(rasch, rasch.rank())
    unsettled = dataclasses.replace(fit, status=irtjax.Status.MAX_STEPS)
    assert "Why ability" not in leaderboard(unsettled, unsettled.rank())


def test_flagged_items_are_counted_once():
    fit = small_fit()
    flags = fit.items.table.column("flags").to_pylist()
    flags[:2] = ["negative discrimination", "not identified"]
    place = fit.items.table.column_names.index("flags")
    table = fit.items.table.set_column(place, "flags", pa.array(flags))
    warnings = ("general", *flag_warnings(flags, fit.item_names, has_priors=True))
    fit = dataclasses.replace(fit, items=ItemTable(table), warnings=warnings)
    ranked = fit.rank()
    text = "\n".join(summarise(fit, ranked))
    assert "NOT IDENTIFIED: the data and the priors do not determine" in text
    assert "negative discrimination" not in text and "not identified" not in text
    first = visible(str(fit.item_names[0]))
    page = leaderboard(fit, ranked)
    assert "## Warnings\n\n- general\n\n## Subjects" in page
    section = page[page.index("## Flagged items") :]
    assert f"- 1 item: negative discrimination: {first} (stronger" in section
    rows = [line for line in page.splitlines() if line.startswith("| b")]
    # Items without variation do not count as flagged.
    assert sum(int(row.split(" | ")[-1].strip(" |")) for row in rows[-2:]) == 2


def test_flags_of_subjects_have_a_column_where_there_are_any():
    fit = small_fit()
    heads = {}
    for flag in ("", "same responses as another | subject"):
        flags = pa.array([flag, *[""] * (len(fit.subject_names) - 1)])
        place = fit.abilities.table.column_names.index("flags")
        table = fit.abilities.table.set_column(place, "flags", flags)
        flagged = dataclasses.replace(fit, abilities=AbilityTable(table))
        page = leaderboard(fit, flagged.rank())
        heads[flag] = next(x for x in page.splitlines() if x.startswith("| subject"))
        name = markdown(str(fit.subject_names[0]))
        row = next(x for x in page.splitlines() if x.startswith(f"| {name} |"))
        assert row.endswith(f" | {markdown(flag)} |") or not flag
    assert heads[""] + " flags |" == heads["same responses as another | subject"]


def test_accuracies_have_their_interval():
    fit = small_fit()
    ranked = fit.rank()
    best = ranked.rows(stop=1)[0]
    ends = best["accuracy"], best["accuracy_lower"], best["accuracy_upper"]
    assert score_text(*ends, 3) in leaderboard(fit, ranked)
    assert subject_cells(best)[-1] == score_text(*ends) and "[" in score_text(*ends)
    # From five benchmarks on it is over benchmarks, and a sentence states it.
    five = np.array([f"b{k % 5}" for k in range(len(fit.item_names))])
    for benchmarks, wanted in ((fit.benchmarks, False), (five, True)):
        text = " ".join(fit_sentences(dataclasses.replace(fit, benchmarks=benchmarks)))
        assert ("other benchmarks like these 5, those of sc" in text) == wanted
    # At another level there is none.
    assert "[" not in subject_cells(fit.rank(level=0.5).rows(stop=1)[0])[-1]


def test_accuracies_by_benchmark_are_those_of_its_items_alone():
    fit, table = small_fit("2pl"), small_table()
    for name in ("b0", "b1"):
        mine = table.benchmarks == name
        found = accuracies(DenseCells(table.values[:, mine], table.observed[:, mine]))
        for end, values in zip(("", "_se", "_lower", "_upper"), found, strict=True):
            column = fit.abilities.table[f"accuracy[{name}]{end}"].to_numpy()
            np.testing.assert_allclose(column, values)
    page = leaderboard(fit, fit.rank())
    section = page.split("## Accuracy by benchmark")[1].split("\n## ")[0]
    best = fit.rank().rows(stop=1)[0]
    cells = [
        score_text(*(best[f"accuracy[{x}]{end}"] for end in ("", "_lower", "_upper")))
        for x in ("b0", "b1")
    ]
    assert f"| {' | '.join(cells)} |" in section
    assert section.count("\n| ") == 2 + len(fit.subject_names)
    # At another level the intervals are unknown, and not shown.
    other = fit.rank(level=0.5)
    assert not [x for x in other.table.column_names if "]_lower" in x]
    assert "accuracy[b0]_lower" in fit.rank().table.column_names
    section = leaderboard(fit, other).split("## Accuracy by benchmark")[1]
    assert re.search(r"\| vendor/model\\_22 \| [\d.]+ \| [\d.]+ \|", section)


def test_a_tie_at_the_top_names_no_leader():
    values = np.repeat([[1, 1, 1, 0], [1, 0, 0, 0]], [3, 9], axis=0)
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(table, "rasch", "em", standard_errors="none")
    first, second, *_ = subject_sentences(fit.rank())
    assert first.startswith("3 subjects share the highest ability, ")
    assert "probability" not in first and "subject 1" not in first
    assert second.startswith("They are statistically tied with subject ")


def test_a_fit_that_did_not_converge_says_so():
    fit = dataclasses.replace(small_fit(), status=irtjax.Status.MAX_STEPS)
    first, caution, leader, *_ = summarise(fit, fit.rank())
    assert first.startswith("NOT CONVERGED")
    assert "do not use the abilities" in caution and "highest ability" in leader
    settled = summarise(small_fit(), fit.rank())
    assert not any("do not use" in sentence for sentence in settled)


def test_two_subjects_far_apart_are_two_groups():
    values = np.zeros((6, 40), int)
    for k in range(6):
        values[k, : 6 * k + 4] = 1
    names = [f"m{k}" for k in range(6)]
    table = irtjax.ResponseTable.from_arrays(values, subjects=names)
    fit = irtjax.fit(table, "rasch", "em", standard_errors="none")
    ranked = fit.rank()
    assert ranked.table.column("subject").to_pylist() == names[::-1]
    assert len(ranked.groups) > 1 and ranked.num_pairs == 15
    # Groups overlap only where somebody is in two of them.
    for groups, text in (
        ([names[3:], names[:3]], "form 2 groups of"),
        ([names[2:], names[:3]], "form 2 overlapping groups of"),
    ):
        said = subject_sentences(dataclasses.replace(ranked, groups=groups))[-1]
        assert text in said
    wide, narrow = fit.rank(level=0.99).table, fit.rank(level=0.5).table
    spans = [
        np.subtract(table["upper"].to_numpy(), table["lower"].to_numpy())
        for table in (wide, narrow)
    ]
    # Normal quantiles: 2.5758 / 0.6745.
    np.testing.assert_allclose(spans[0] / spans[1], 3.819, rtol=1e-3)


def test_words():
    assert number(float("nan")) == number(float("inf")) == "–"
    assert listing([]) == ""
    assert NASTY not in visible(NASTY)
    table = pa.table({"item": ["x", "y"], "flags": ["a; b", "b"]})
    assert flag_counts(table, "item") == {"b": ["x", "y"], "a": ["x"]}
