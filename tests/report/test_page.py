"""`report.html`: true to the tables, safe with any name, small enough to be mailed."""

import base64
import dataclasses
import hashlib
import html.parser
import json
import re
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from typer.testing import CliRunner

import irtjax
from irtjax.calibration.result_tables import ItemTable
from irtjax.calibration.score import _check_values
from irtjax.calibration.shown_names import short_names
from irtjax.cli.app import app
from irtjax.data.sparse_table import SparseCells
from irtjax.models.catalogue import factor_model, graded
from irtjax.models.factors import Factor
from irtjax.models.families.continuous import ScoreItems
from irtjax.models.families.graded import GradedItems
from irtjax.models.families.logistic import LogisticItems
from irtjax.report import page_data, report_page, subset_page
from irtjax.report.page_head import title_of
from irtjax.report.page_html import json_text
from irtjax.report.page_scores import _brackets, tied_places, tied_text
from irtjax.report.summary import UNSETTLED
from irtjax.storage import save
from irtjax.subsets.predictor import Calibrator
from irtjax.subsets.subset import Shrunken
from tests.report.pages import HOSTILE, hostile_fit, large_fit
from tests.small_fits import small_fit, small_table

VALUE = {digit: k for k, digit in enumerate(page_data.DIGITS)}


class Page(html.parser.HTMLParser):
    """What a browser would find: elements, attributes, texts of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        inside = self.found[-1][0] if self.found else ""
        if self.cdata_elem in self.raw:
            self.raw[self.cdata_elem].append(data)
        elif inside:
            self.text.append(data)

    @property
    def data(self) -> dict:
        return json.loads(self.raw["script"][0])


def names_of(items: dict) -> list[str]:
    """As the page's script reads them."""
    if isinstance(items["names"], list):
        width, text = items["names"]
        value = lambda k: len(VALUE) * VALUE[text[k]] + VALUE[text[k + 1]]
        hexes = "".join(f"{value(k):03x}" for k in range(0, len(text), 2))
        step = width + -width % 3
        return [hexes[k : k + width] for k in range(0, len(hexes), step)]
    out, before = [], ""
    for line in items["names"].split("\n"):
        before = before[: VALUE[line[0]]] + line[1:]
        out.append(before)
    return out


def cells_of(row: str, count: int) -> list[float]:
    """Packed responses of one subject, NaN where missing."""
    cells = [VALUE[row[k // 4]] // 3 ** (k % 4) % 3 for k in range(count)]
    return [np.nan if cell == 2 else cell for cell in cells]


def shares_of(row: str) -> np.ndarray:
    digits = np.array([VALUE[x] for x in row]).reshape(-1, 2)
    level = digits @ [len(page_data.DIGITS), 1]
    return np.where(level > page_data.LEVELS, np.nan, level / page_data.LEVELS)


@pytest.fixture(scope="module")
def fit():
    return small_fit(errors=False)


@pytest.fixture(scope="module")
def page(fit):
    return Page(report_page(fit, data=small_table(), command="irtjax fit a.csv"))


@settings(max_examples=50)
@given(st.text(max_size=20))
def test_json_stands_in_a_script_element_whatever_its_texts_are(text):
    out = json_text({"a": text, text: [None, 1.5]})
    assert not re.search("[<>&\u2028\u2029]", out)
    assert json.loads(out) == {"a": text, text: [None, 1.5]}


@settings(max_examples=50)
@given(st.lists(st.text(max_size=30), max_size=8))
def test_names_read_back_and_steer_nothing(names):
    shown = page_data.labels(names)
    assert len(set(shown)) == len(shown) == len(names)
    assert all(x.isprintable() and x for x in shown)
    if names:
        assert names_of({"names": page_data.front_coded(shown)}) == shown


def test_hostile_names_are_text_and_nothing_else():
    fit, data = hostile_fit()
    texts = {HOSTILE[1]: "<img src=x onerror=alert(1)>\x1b[0m\nA) 1", "b": "unused"}
    text = report_page(fit, data=data, texts=texts)
    assert len(text) < 300_000  # Two names of each kind have a million letters.
    found = Page(text)
    plain, _ = Page(report_page(small_fit(errors=False), data=small_table())), None
    # Only elements that the page has with any names, and attributes without handlers.
    assert {tag for tag, _ in found.found} <= {tag for tag, _ in plain.found}
    assert not any(key.startswith("on") for _, pairs in found.found for key in pairs)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e\u2028]", text)
    assert "{{" in text and "49" not in found.data["subjects"]["names"][0]
    assert HOSTILE[0] in "".join(found.text)
    shown = "".join(found.text)
    assert "(no name)" in shown and "xxx…xxx" in shown and "yyy…yyy" in shown


def test_nothing_is_fetched_and_only_our_script_may_run(page):
    policy = next(x["content"] for _, x in page.found if "http-equiv" in x)
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    for kind, texts in page.raw.items():
        digest = hashlib.sha256(texts[-1].encode()).digest()
        assert f"'sha256-{base64.b64encode(digest).decode()}'" in policy, kind
    assert [x.get("type") for t, x in page.found if t == "script"] == [
        "application/json",
        None,
    ]
    assert not any({"src", "style"} & pairs.keys() for _, pairs in page.found)
    links = [x["href"] for _, x in page.found if "href" in x]
    ids = {x["id"] for _, x in page.found if "id" in x}
    assert links and all(link[0] == "#" and link[1:] in ids for link in links)
    labelled = [x["aria-labelledby"] for _, x in page.found if "aria-labelledby" in x]
    assert {x for text in labelled for x in text.split()} - ids <= {
        "scatter-t",
        "scatter-d",
    }


def test_the_script_gets_the_numbers_of_the_tables(fit, page):
    data, rows = page.data, fit.rank().rows()
    assert data["subjects"]["names"] == page_data.labels(r["subject"] for r in rows)
    for name in ("ability", "accuracy", "probability_best"):
        mine = np.array(data["subjects"][name]) / 1000
        np.testing.assert_allclose(mine, [row[name] for row in rows], atol=5.1e-4)
    mine = np.array(data["subjects"]["expected_score_upper"]) / 1e6
    wanted = [row["expected_score_upper"] for row in rows]
    np.testing.assert_allclose(mine, wanted, atol=5.1e-7)
    # Four digits of an error: differences of two subjects are computed from these.
    scale = data["subjects"]["scale_of_exact"]
    error = np.array([row["ability_se"] for row in rows])
    assert scale * np.median(error) > 9_999
    exact = np.array(data["subjects"]["exact_ability"]) / scale
    np.testing.assert_allclose(exact, [x["ability"] for x in rows], atol=0.51 / scale)
    table = fit.items.table
    assert names_of(data["items"]) == page_data.labels(fit.item_names)
    for name, scale in (
        ("discrimination", 1000),
        ("difficulty", 100),
        ("accuracy", 1000),
    ):
        mine = np.array(data["items"][name], float) / scale
        wanted = np.array(table[name].to_pylist(), float)
        np.testing.assert_allclose(mine, wanted, atol=0.51 / scale)
    observed = data["items"]["observed"]
    mine = [observed["values"][VALUE[x]] for x in observed["codes"]]
    assert mine == table["observed"].to_pylist()
    curves = data["curves"]
    assert curves["link"] == "logit" and "c" not in curves
    d = np.array(curves["d"]) / 1000
    np.testing.assert_allclose(d, table["intercept"].to_numpy(), atol=5.1e-4)


def test_responses_are_those_of_the_data_in_the_order_of_the_ranks(fit, page):
    source, given = small_table(), page.data["responses"]
    assert given["packed"]
    place = {name: k for k, name in enumerate(source.subjects.tolist())}
    for row, text in zip(fit.rank().rows(), given["rows"], strict=True):
        k = place[row["subject"]]
        wanted = np.where(source.observed[k], source.values[k], np.nan)
        np.testing.assert_array_equal(cells_of(text, len(fit.item_names)), wanted)
    # Of subjects and items in another order, and with some left out.
    part = source.select(subjects=source.subjects[::-2], items=source.items[::-1])
    other = page_data.cells_of(fit, part).rate
    full = page_data.cells_of(fit, source).rate
    known = np.isin(fit.subject_names, part.subjects)
    np.testing.assert_array_equal(other[known], full[known])
    assert np.isnan(other[~known]).all()
    with pytest.raises(ValueError, match="no subject of the fit is in the responses"):
        report_page(fit, data=irtjax.ResponseTable.from_arrays([[1, 0]]))


def test_a_page_without_the_responses_that_were_given_has_a_note(fit):
    source = small_table()
    by_cell = lambda x: x.replace(values=x.cells, observed=None)
    assert "the page has no responses" not in report_page(fit, data=by_cell(source))
    part = source.select(subjects=source.subjects[1:])
    page = report_page(fit, data=by_cell(part))
    assert "the page has no responses: where few are observed, they must" in page
    half = source.replace(values=source.values + 2.5)
    page = report_page(fit, data=half)
    assert "the page has no responses: those given are not on the scale" in page


def test_right_and_wrong_cells_are_scored_without_more_matrices(fit, monkeypatch):
    source = small_table()
    few = source.replace(values=source.cells, observed=None)
    assert irtjax.score(fit, few).table.equals(irtjax.score(fit, source).table)
    graded = few.replace(values=dataclasses.replace(few.sparse, value=few.seen * 2))
    with pytest.raises(ValueError, match="the response 2 is not 0 or 1"):
        _check_values(fit, graded)
    monkeypatch.setattr(SparseCells, "dense", None)
    _check_values(fit, source.replace(values=source.cells, observed=None))


def test_scores_take_two_digits_and_only_so_many_are_kept(monkeypatch):
    rate = np.random.default_rng(0).random((5, 7))
    rate[1, 2] = np.nan
    cells = page_data.PageCells(rate, binary=False)
    order = np.array([3, 1, 0, 2, 4])
    found = page_data.response_rows(cells, order)
    shares = np.array([shares_of(row) for row in found["rows"]])
    np.testing.assert_allclose(shares, rate[order], atol=1e-4)
    monkeypatch.setattr(page_data, "MOST_CELLS", 8 * 7 * 3)
    assert len(page_data.response_rows(cells, order)["rows"]) == 3
    monkeypatch.setattr(page_data, "MOST_CELLS", 8 * 7)
    assert page_data.response_rows(cells, order) is None


@pytest.mark.parametrize("binary", [True, False])
def test_points_of_a_curve_are_of_all_subjects_where_few_have_responses(
    monkeypatch, binary
):
    rng = np.random.default_rng(1)
    rate = rng.random((40, 3))
    rate = np.rint(rate) if binary else rate
    rate[rng.random(rate.shape) < 0.3] = np.nan
    ability = np.sort(rng.normal(size=40))[::-1].copy()
    order = rng.permutation(40)
    cells = page_data.PageCells(rate, binary)
    assert "groups" not in page_data.response_rows(cells, order, ability)
    monkeypatch.setattr(page_data, "MOST_CELLS", 8 * 3 * 3)
    found = page_data.response_rows(cells, order, ability)["groups"]
    # Five subjects each, the weakest first, who are the last in the order.
    for g in range(8):
        who = np.arange(40 - 5 * g - 5, 40 - 5 * g)
        assert found["theta"][g] == pytest.approx(ability[who].mean(), abs=1e-4)
        for k in range(3):
            seen = rate[order[who], k]
            seen = seen[np.isfinite(seen)]
            mean, error = (shares_of(found[x][k])[g] for x in ("mean", "error"))
            if not seen.size:
                assert np.isnan([mean, error]).all()
                continue
            assert mean == pytest.approx(seen.mean(), abs=1e-4)
            expected = np.sqrt(max(seen.var(), 0.01) / seen.size)
            assert error == pytest.approx(expected, abs=1e-4)


def test_a_standard_error_beyond_its_scale_is_not_drawn(fit):
    """Its line ends there, and each end of the line is within the figure."""
    from irtjax.report.page_figures import information_figure

    found = information_figure(fit)
    lines = {c["kind"]: c["path"][1:].split("L") for c in found["curves"]}
    heights = [float(point.split()[1]) for point in lines["dashed"]]
    assert len(heights) < len(lines["all"])
    assert min(heights) >= 26 and len(set(heights[:3])) == 3


def test_curves_without_a_formula_are_tables_of_the_family():
    model = graded(3)
    slope = jnp.array([1.0, 2.0, -0.7])
    cuts = jnp.array([[1.0, -1.0], [0.5, 0.2], [2.0, -0.3]])
    items, ends = GradedItems(slope, cuts), (-3.0, 3.0)
    found = page_data.curve_data(model, items, np.array([2, 0]), ends)
    shares = np.array([shares_of(row) for row in found["rows"]])
    grid = np.linspace(*ends, shares.shape[1])
    # E[y] of two cuts is the sum of both chances to pass one.
    wanted = expit(grid[:, None, None] * slope[:, None] + cuts).sum(-1).T / 2
    np.testing.assert_allclose(shares, wanted[[2, 0]], atol=1e-4)
    pair = factor_model(Factor(factors=2))
    assert page_data.curve_data(pair, items, np.arange(1), ends) is None


def test_asymptotes_are_part_of_the_formula():
    model = irtjax.MODELS["4pl"]()
    numbers = (jnp.array([1.0, 2.0]), jnp.array([0.5, -1.0]))
    items = LogisticItems(*numbers, jnp.array([0.2, 0.0]), jnp.array([0.9, 1.0]))
    found = page_data.curve_data(model, items, np.arange(2), (-3, 3))
    assert found == {"link": "logit", "d": [500, -1000]} | {
        "c": [200, 0],
        "u": [900, 1000],
    }


def section_of(source: str, name: str) -> str:
    """A section of a page."""
    start = source.index(f'<section id="{name}"')
    return source[start : source.index("</section>", start)]


def tiles_of(source: str) -> list[str]:
    """The three answers at the head of a page, as text."""
    (found,) = re.findall('<dl class="tiles".*?</dl>', source, re.DOTALL)
    parts = re.findall('<div class="tile">(.*?)</div>', found, re.DOTALL)
    return [" ".join(re.sub("<[^>]*>", " ", part).split()) for part in parts]


def as_models(fit):
    """A fit of logs, which have models and tasks."""
    options = {**fit.options, "nouns": ["model", "task"]}
    return dataclasses.replace(fit, options=options)


def with_flags(fit, flags):
    place = fit.items.table.column_names.index("flags")
    found = pa.array([flags.get(k, "") for k in range(15)])
    table = fit.items.table.set_column(place, "flags", found)
    return dataclasses.replace(fit, items=ItemTable(table))


def test_flagged_items_come_with_evidence_and_text(fit):
    bad = with_flags(fit, {3: "negative discrimination; not identified"})
    texts = {
        str(fit.item_names[3]): "2 + 2 = ?\n<b>A) 4</b>",
        str(fit.item_names[0]): "easy",
    }
    source = report_page(bad, data=small_table(), texts=texts)
    found = Page(source)
    section = section_of(source, "read")
    assert "1 of 15 items is flagged." in section
    assert "stronger subjects do worse" in section and "b1/q3" in section
    assert "2 + 2 = ?\n&lt;b&gt;A) 4&lt;/b&gt;" in section and "easy" not in section
    assert "<summary>2 + 2 = ? &lt;b&gt;A) 4&lt;/b&gt;</summary>" in section
    assert found.data["texts"] == {"3": texts["b1/q3"], "0": "easy"}
    # Above the list of items.
    assert source.index('id="read-h"') < source.index('id="items-h"')
    # The weakest and the strongest third, by ability.
    order = [row["subject"] for row in bad.rank().rows()]
    data, item = small_table(), 3
    for part, label in ((order[-8:], "weakest"), (order[:8], "strongest")):
        rows = np.isin(data.subjects, part)
        mean = data.values[rows, item][data.observed[rows, item]].mean()
        assert f'<td class="wide">{mean:.2f}</td>' in section, label


class Found(NamedTuple):
    """As `irtjax.auditing.items_to_read` returns it."""

    table: pa.Table
    significant: tuple[str, ...]

    def sentence(self, most: int = 5) -> str:
        names = ", ".join(self.significant[:most])
        if not self.significant:
            return f"no item stands out; first: {self.table['item'][0]}"
        count = len(self.significant)
        return f"{count} items where most models agree on another answer: {names}"


def found_items(fit, *significant):
    rows = [
        (str(fit.item_names[k]), "<b>B</b>", 20 - k, "A", 1e-5 * (k + 1), 24)
        for k in (5, 7, 2, 9, 4, 8)
    ]
    names = ("item", "answer", "count", "key", "p_value", "models")
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    return Found(table, significant)


def test_items_on_whose_answer_models_agree_come_first(fit):
    found = found_items(fit, str(fit.item_names[5]), str(fit.item_names[7]))
    texts = {str(fit.item_names[5]): "Which river?\nExpected: A"}
    source = report_page(
        with_flags(fit, {3: "negative discrimination"}), to_read=found, texts=texts
    )
    section = section_of(source, "read")
    places = [section.index(f">{fit.item_names[k]}</bdi>") for k in (5, 7, 3)]
    assert places == sorted(places)
    # Two are significant, five are shown.
    shown = [k for k in (2, 9, 4, 8) if f">{fit.item_names[k]}</bdi>" in section]
    assert shown == [2, 9, 4]
    row = section[places[0] : section.index("</tr>", places[0])]
    assert "Which river?" in row and "&lt;b&gt;B&lt;/b&gt;" in row
    assert (
        '<td class="p">15 of 24</td>' in row and ">A</bdi>" in row and "6.0e-05" in row
    )
    tile = tiles_of(source)[1]
    assert tile.startswith("Items to read 3 Where most models agree on another answer:")
    assert "Flagged: 1 negative discrimination." in tile
    # What the head states is not repeated.
    assert "agree on another answer" not in section


def test_where_no_item_stands_out_the_first_ones_are_shown(fit):
    source = report_page(fit, to_read=found_items(fit))
    section = section_of(source, "read")
    assert section.count("data-item=") == 5
    assert tiles_of(source)[1].startswith("Items to read None No item stands out;")


@pytest.mark.parametrize(
    ("flags", "tile", "note"),
    [
        ({}, "None No item is flagged.", ""),
        (
            {1: "all right", 2: "all wrong", 5: "all wrong"},
            "None No item is flagged",
            "3 of 15 items have no variation, which is no evidence of a fault: 2 all"
            " wrong, 1 all right.",
        ),
        (
            {1: "all right", 3: "negative discrimination"},
            "1 Flagged: 1 negative discrimination.",
            "1 of 15 items has no variation, which is no evidence of a fault: 1 all"
            " right.",
        ),
        (dict.fromkeys(range(15), "all wrong"), "None", "15 of 15 items have no"),
    ],
)
def test_items_without_variation_are_counted_apart(fit, flags, tile, note):
    source = report_page(with_flags(fit, flags))
    assert tiles_of(source)[1].startswith(f"Items to read {tile}")
    assert note in section_of(source, "items")
    assert ('id="read-h"' in source) == ("Flagged" in tile)


def test_an_audit_begins_with_its_bad_items_and_their_p_values(fit):
    from irtjax.auditing import TESTED, Audit
    from irtjax.auditing.examine import column_of

    flags = [""] * 15
    flags[2], flags[5] = "misfit; saturated", "saturated"
    columns = {"item": fit.item_names.tolist(), "flags": flags}
    for defect in TESTED:
        p = [0.5] * 15
        if defect == "misfit":
            p[2] = 1.3e-7
        columns[column_of(defect)], columns["q" + column_of(defect)[1:]] = p, p
    found = Audit(
        pa.table(columns), pa.table({}), None, None, fit, 0.9, 0.1, "", ("few",)
    )
    source = report_page(fit, audit=found)
    assert source.index('id="read-h"') < source.index('id="scores-h"')
    assert source.count('id="read-h"') == 1
    section = section_of(source, "read")
    assert "q = 1.3e-07" in section and "1 of 15 items is flagged" in section
    assert "false discovery rate of 10 %" in section and "saturated" not in section
    source = report_page(as_models(fit), audit=found, items_first=False)
    assert source.index('id="read-h"') > source.index('id="scores-h"')


def test_the_page_names_a_few_of_many_files(fit):
    sources = [f"logs/{k}.jsonl" for k in range(40)]
    many = dataclasses.replace(fit, options={**fit.options, "sources": sources})
    text = " ".join(Page(report_page(many)).text)
    assert "logs/0.jsonl" in text and "logs/39.jsonl" not in text and "34 more" in text


def test_the_head_has_three_answers_and_warns_first(fit):
    ranked = fit.rank()
    source = report_page(fit, ranked=ranked)
    first, read, cheaper = tiles_of(source)
    assert first.startswith("First place ") and read.startswith("Items to read ")
    assert cheaper.startswith("Cheaper ")
    pairs = f"{ranked.num_different} of {ranked.num_pairs} pairs differ (5 % false)."
    assert pairs in first
    assert "24 subjects · 15 items · 2 benchmarks · 3.6 % missing" in source
    assert "<h1><bdi>b0 and b1</bdi></h1>" in source and 'role="alert"' not in source
    unsettled = dataclasses.replace(fit, status=irtjax.Status.MAX_STEPS)
    page = report_page(unsettled, title="A <b>title</b>", folder="logs/report")
    assert f'role="alert">{UNSETTLED}</p>' in page
    assert "<h1><bdi>A &lt;b&gt;title&lt;/b&gt;</bdi></h1>" in page
    assert "<bdi>report</bdi>" in page


def test_a_title_is_of_tasks_data_or_folder(fit):
    one = dataclasses.replace(fit, benchmarks=None)
    named = lambda *sources: dataclasses.replace(
        one, options={**fit.options, "sources": list(sources)}
    )
    assert title_of(fit, "x") == "b0 and b1"
    assert title_of(named("/logs/mmlu.csv"), "x") == "mmlu"
    assert title_of(named("/logs/a.json", "/logs/b.json"), "x") == "logs"
    assert title_of(named("/a/1.json", "/b/1.json"), "x") == "x"
    assert title_of(one, "") == "Leaderboard"


def test_a_page_states_who_is_tied_with_whom(fit):
    ranked = fit.rank()
    rows, source = ranked.rows(), report_page(fit, ranked=ranked)
    names = page_data.labels(row["subject"] for row in rows)
    places = tied_places(ranked)
    for k, row in enumerate(rows):
        tied = {
            j
            for j, other in enumerate(rows)
            if max(row["first_group"], other["first_group"])
            <= min(row["last_group"], other["last_group"])
        }
        assert tied == {*range(places[k][0], places[k][1] + 1)}
    section = section_of(source, "scores")
    assert section.count("<tr>") == 25 and section.count("<circle") == 24
    assert f"<tr><td>1–{places[0][1] + 1}</td>" in section
    # A bracket for each group of several.
    groups = [group for group in ranked.groups if len(group) > 1]
    assert section.count("<path d=") == len(groups) > 1
    text = tied_text(list(short_names(names).values()), 0, places[0])
    assert f'<td class="text wide">{text}</td>' in section
    assert text.startswith(names[1].removeprefix("vendor/"))
    # Its expected score in points, with the interval of the table.
    score, ends = rows[0]["expected_score"], rows[0]["expected_score_lower"]
    assert f"<td>{score:.2f}</td>".replace(">0.", ">.") in section
    assert f"{ends:.2f}–".removeprefix("0") in section


def test_brackets_of_ties_share_a_lane_only_where_they_do_not_overlap():
    groups = [(1, 1), (1, 2), (2, 3), (3, 3), (4, 4), (4, 4)]
    rows = [{"first_group": a, "last_group": b} for a, b in groups]
    paths, lanes, apart = _brackets(rows, len(rows), 0, 10)
    # Rows 0-1, 1-2 and 2-3, and 4-5: the first lane has the first, third and fourth.
    starts = [path.split("h")[0] for path in paths]
    assert starts == ["M-4 4", f"M{apart - 4} 14", "M-4 24", "M-4 44"] and lanes == 2
    # One that goes on below the figure has no end.
    (path, *_), _, _ = _brackets(rows, 1, 0, 10)
    assert path == "M-4 4h4V10"


def test_tasks_have_the_means_of_the_table(fit):
    source, rows = report_page(fit), fit.rank().rows()
    section = section_of(source, "tasks")
    cells = re.findall(r'<td class="h(\d)">([\d.]+)<', section)
    assert len(cells) == 48
    for k, row in enumerate(rows):
        for n, name in enumerate(("b0", "b1")):
            value = row[f"accuracy[{name}]"]
            assert cells[2 * k + n][1] == f"{value:.2f}".removeprefix("0")
    shades = sorted((float(text), int(shade)) for shade, text in cells)
    assert [x for _, x in shades] == sorted(x for _, x in shades)
    assert {shades[0][1], shades[-1][1]} == {0, 9}
    one = dataclasses.replace(fit, benchmarks=None)
    assert 'id="tasks"' not in report_page(one)


def test_a_test_of_many_persons_begins_with_its_items(fit):
    fit, data = large_fit(600, 200)
    source = report_page(fit, data=data)
    assert source.index('id="items-h"') > source.index('id="scores-h"')
    fit, data = large_fit(60, 12)
    source = report_page(fit, data=data)
    assert source.index('id="items-h"') < source.index('id="scores-h"')
    assert "60 subjects · 12 items" in source
    source = report_page(as_models(fit), data=data)
    assert source.index('id="items-h"') > source.index('id="scores-h"')
    assert "60 models · 12 items · 12 tasks" in source and "Tasks</h2>" in source
    # Of few subjects the errors of items are as large as their cloud.
    fit, data = large_fit(19, 40)
    assert 'id="scatter"' not in report_page(fit, data=data)
    fit, data = large_fit(20, 40)
    assert 'id="scatter"' in report_page(fit, data=data)


class Past(NamedTuple):
    """As `irtjax.storage.history` returns it."""

    table: pa.Table
    sentences: list[str]


def test_the_history_is_drawn_with_new_models(fit):
    rows = []
    for date, names in (("2026-01-01T10", "abc"), ("2026-02-01T10", "bacd")):
        for k, name in enumerate(names):
            score = 0.9 - k / 10
            row = {"date": date, "subject": f"<{name}>", "rank": k + 1}
            row |= {f"expected_score{x}": score for x in ("", "_lower", "_upper")}
            rows.append(row | {"new": name == "d"})
    past = Past(pa.Table.from_pylist(rows), ["2026-02-01: <b> passed <a>"])
    section = section_of(report_page(fit, history=past), "history")
    assert "2026-02-01: &lt;b&gt; passed &lt;a&gt;" in section
    assert section.count('class="fresh"') == 1 and section.count('class="dot"') == 6
    lines = re.findall('<line class="line" [^>]*y1="(\\d+)" y2="(\\d+)"', section)
    # b rises from the second place, a falls, c stays.
    assert lines == [("60", "40"), ("40", "60"), ("80", "80")]
    assert "&lt;b&gt;\n2026-01-01: rank 2, .80 (.80–.80)" in section
    assert 'id="history"' not in report_page(fit, history=Past(past.table, []))


def test_a_model_of_several_abilities_has_no_curve_over_one(fit):
    slopes = np.stack([np.ones(15), np.linspace(0, 1, 15)], axis=1)
    items = fit.parameters.items._replace(discrimination=slopes)
    several = dataclasses.replace(
        fit,
        model=factor_model(Factor(factors=2)),
        parameters=fit.parameters._replace(items=items),
    )
    source = report_page(several, data=small_table())
    assert 'id="information"' not in source
    assert "Items have several discriminations: shown is that in the" in source
    found = Page(source).data
    assert found["curves"] is None and len(found["responses"]["rows"]) == 24


def test_curves_of_factors_are_formulas_or_tables():
    slope = jnp.array([[1.0, 0.5], [2.0, -0.25], [0.0, 1.5]])
    places, names = np.array([2, 0]), ["maths", "language"]
    middle, zeros = jnp.array([0.5, -1.0, 0.25]), jnp.zeros(3)
    items = LogisticItems(slope, middle, zeros, zeros + 1)
    for link in ("logit", "probit"):
        model = factor_model(Factor(factors=2, link=link))
        found = page_data.factor_curves(model, items, places, names)
        assert found == {
            "names": names,
            "left": 0,
            "link": link,
            "a": [[0, 1500], [1000, 500]],
            "d": [250, 500],
        }
    cuts = jnp.array([[1.0, -1.0], [0.5, 0.2], [2.0, -0.3]])
    model = factor_model(Factor(factors=2, item_model="graded"), 3)
    records = GradedItems(slope, cuts)
    found = page_data.factor_curves(model, records, places, names)
    shares = np.array([[shares_of(row) for row in item] for item in found["rows"]])
    grid = np.linspace(-3, 3, shares.shape[2])
    logits = grid[:, None, None, None] * slope[:, :, None] + cuts[:, None]
    wanted = np.moveaxis(expit(logits).sum(-1) / 2, 0, 2)[[2, 0]]
    np.testing.assert_allclose(shares, wanted, atol=1e-4)
    # Scores without residual variance are those of the logits.
    model = factor_model(Factor(factors=2, item_model="continuous"))
    records = ScoreItems(slope, middle, zeros + 1e-6)
    found = page_data.factor_curves(model, records, places, names)
    shares = np.array([[shares_of(row) for row in item] for item in found["rows"]])
    wanted = np.moveaxis(expit(grid[:, None, None] * slope + middle[:, None]), 0, 2)
    np.testing.assert_allclose(shares, wanted[[2, 0]], atol=1e-4)


@pytest.mark.parametrize("hashed", [False, True])
def test_a_large_page_can_be_mailed(hashed):
    fit, data = large_fit(60, 5000, hashed=hashed)
    prompts = {name: "What is the answer? " * 90 for name in fit.item_names}
    few = {k: "negative discrimination" for k in range(0, 5000, 90)}
    place = fit.items.table.column_names.index("flags")
    flags = pa.array([few.get(k, "") for k in range(5000)])
    table = fit.items.table.set_column(place, "flags", flags)
    fit = dataclasses.replace(fit, items=ItemTable(table))
    text = report_page(fit, data=data, texts={} if hashed else prompts)
    # Items named by hashes of 32 digits, which share nothing, are the worst case.
    # With room for longer names of subjects and notes, of 500,000 bytes.
    assert len(text.encode()) <= 490_000, len(text.encode())
    found = Page(text).data
    assert len(found["responses"]["rows"]) == 60
    wanted = fit.item_names.tolist()
    assert names_of(found["items"]) == wanted


def test_of_many_items_the_flagged_ones_are_kept():
    flags = [""] * 1000
    flags[777] = flags[3] = "negative discrimination"
    shown = page_data.shown_items(flags, 100)
    assert {3, 777} <= set(shown.tolist()) and 90 <= len(set(shown.tolist())) <= 100
    assert shown[0] == 0 and shown[-1] == 999


def test_a_subset_has_its_items_weights_and_errors():
    model = irtjax.MODELS["2pl"]()
    items = model.constrain(jnp.array([[1.0, 0.5], [2.0, -1.0]]))
    nodes = np.linspace(-3, 3, 5)
    small = Shrunken(
        items=np.array(["<b>one</b>", "two"]),
        weights=np.array([0.25, 0.75]),
        benchmarks=None,
        target=np.array([0.5, 0.5]),
        num_items=40,
        rule="random",
        model=model,
        parameters=items,
        nodes=nodes,
        log_weight=np.zeros(5),
        whole_mean=np.linspace(0, 1, 5),
        whole_variance=np.ones(5),
        calibrator=Calibrator(0.0, 2.0),
        level=0.95,
        standard_error=0.3,
        score_error=0.02,
        held_out={},
        warnings=("few subjects",),
    )
    source = subset_page(small, sentences=["2 of 40 items."], notes=["read as it is"])
    found = Page(source)
    assert "<b>one</b>" in "".join(found.text) and "few subjects" in source
    assert found.data["items"]["weight"] == [25_000, 75_000]
    assert found.data["items"]["discrimination"] == [1000, 2000]
    assert found.data["curves"]["d"] == [500, -1000] and not found.data["subjects"]
    assert 'id="scores"' not in source and "0.7500" in source
    assert "<h1><bdi>2 of 40 items</bdi></h1>" in source
    assert "<h1><bdi>Two</bdi></h1>" in subset_page(small, title="Two")


def test_commands_write_the_page(fit, tmp_path):
    folder = save(fit, tmp_path / "fit")
    run = lambda *words: CliRunner().invoke(app, list(map(str, words)))
    made = run("report", folder, "--json")
    assert made.exit_code == 0, made.output
    path = folder / "report.html"
    assert json.loads(made.stdout) == {"out": str(path), "bytes": path.stat().st_size}
    assert Page(path.read_text("utf-8")).data["responses"] is None
    refused = run("report", folder, "--out", tmp_path / "page.pdf")
    assert refused.exit_code == 2 and "ends in .html" in refused.stderr
    with pytest.MonkeyPatch.context() as patch:  # Before anything is computed.
        patch.setattr("irtjax.cli.report.page_of", None)
        refused = run("report", folder, "--out", tmp_path / "new" / "p.html")
        assert (
            refused.exit_code == 2 and "choose a folder that exists" in refused.stderr
        )
    assert "requires FILE" in run("report", folder, "--metric", "acc").stderr
    assert run("report", folder, "--no-texts", "--title", "Mine").exit_code == 0
    assert "<h1><bdi>Mine</bdi></h1>" in path.read_text("utf-8")
    rows = fit.rank().rows()
    pair = rows[4]["subject"], rows[1]["subject"]
    out = tmp_path / "pair"
    made = run("compare", *pair, "--fit", folder, "--out", out)
    assert made.exit_code == 0 and "report.html" in made.stdout, made.output
    source = (out / "report.html").read_text("utf-8")
    assert Page(source).data["pair"] == [4, 1]
    # The head is on the two, and a page has no option to add.
    (shown,) = re.findall('<ul class="answers".*?</ul>', source, re.DOTALL)
    assert pair[0] in shown and pair[1] in shown
    line = made.stdout.splitlines()[0]
    assert line.startswith(f"{pair[0]} − {pair[1]}: score ") and line in shown
    assert shown.count("<li>") == 1 and "add the responses" not in source


def test_a_report_of_a_fit_has_the_page(fit, tmp_path):
    texts = {str(fit.item_names[0]): "a question"}
    more = {"figures": False, "data": small_table(), "texts": texts}
    folder = irtjax.write_report(fit, tmp_path / "fit", **more)
    found = Page((folder / "report.html").read_text("utf-8"))
    assert found.data["responses"] and found.data["texts"] == {"0": "a question"}
    # A fit saved over it has no page of the one before.
    save(fit, folder)
    assert not (folder / "report.html").exists()


def test_moments_do_not_depend_on_missing_responses_of_others():
    rate = np.random.default_rng(0).integers(0, 2, (40, 3)).astype(float)
    with_gap = np.vstack([rate, np.full(3, np.nan)])
    full = page_data.PageCells(rate, True).moments(np.arange(40))
    for one, other in zip(
        full, page_data.PageCells(with_gap, True).moments(np.arange(41)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(full[2], rate.var(axis=0))
    same = page_data.PageCells(rate, True)
    assert same.of_items(np.arange(3)) is same
    np.testing.assert_array_equal(same.of_items(np.arange(2)).rate, rate[:, :2])
