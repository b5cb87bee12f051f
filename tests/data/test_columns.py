"""One name for one quantity: the columns of every table are on one page."""

import re
from functools import partial

import jax
import pyarrow as pa
import pytest

import irtjax
from irtjax.auditing.examine import SEEN, TESTED
from irtjax.data.columns import COLUMNS, meaning_of
from irtjax.data.frames import HasTable
from irtjax.data.result_text import level_of
from irtjax.fitting import verbs
from tests.small_fits import small_fit, small_table
from tools import columns_page

KEY = jax.random.key(0)


def tables_of(result: HasTable) -> list[pa.Table]:
    """All tables of a result."""
    fields = vars(result).values() if hasattr(result, "__dict__") else ()
    return [result.table, *(x for x in fields if isinstance(x, pa.Table))]


def test_the_page_is_that_of_the_generator():
    """`python -m tools.columns_page` writes it."""
    assert columns_page.PAGE.read_text(encoding="utf-8") == columns_page.page()


def test_names_have_one_meaning_and_no_level():
    names = [name for kind in COLUMNS.values() for name in kind]
    assert len(names) == len({*names})
    assert not [name for name in names if re.search(r"_9[05]|_se$|_lower$", name)]
    assert meaning_of("lower_95") is meaning_of("score_level") is None


@pytest.mark.parametrize(
    "make",
    [
        lambda fit, data: fit.items,
        lambda fit, data: fit.abilities,
        lambda fit, data: irtjax.rank(fit),
        lambda fit, data: irtjax.rank(fit, level=0.9),
        lambda fit, data: irtjax.score(fit, data),
        lambda fit, data: irtjax.predict(fit, categories=True),
        lambda fit, data: irtjax.compare(fit, *data.subjects[:2], data=data),
        lambda fit, data: irtjax.missingness(data),
        lambda fit, data: irtjax.audit(fit, data),
        lambda fit, data: irtjax.simulate_tests(
            fit, 5, key=jax.random.key(0), num_items=3
        ),
    ],
    ids=(
        "items abilities rank rank_90 score predict compare missing audit tests".split()
    ),
)
def test_every_column_has_its_name_on_the_page(make):
    result = make(small_fit(), small_table())
    for table in tables_of(result):
        names = table.column_names
        assert [name for name in names if meaning_of(name) is None] == []
        if "lower" in names:
            assert level_of(table) == getattr(result, "level", 0.95)
    assert result.table.num_rows == len(result.to_frame("pandas"))


def test_a_comparison_prints_as_a_line_and_is_a_table(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    fit, data = small_fit(), small_table()
    first, second = fit.abilities.table["subject"].to_pylist()[:2]
    found = irtjax.compare(fit, first, second, data=data)
    assert repr(found).startswith(f"{first} − {second}: score ")
    assert "=None" not in repr(found)
    # A line, folded to the width of the terminal.
    assert all(len(line) <= 80 for line in repr(found).splitlines())
    rows = found.to_frame("arrow").to_pylist()
    assert [row["measure"] for row in rows] == ["expected_score", "accuracy", "ability"]
    assert rows[1]["difference"] == found.accuracy_difference
    assert rows[2]["upper"] == found.upper and rows[0]["lower"] == found.score_lower
    assert found._repr_html_().count("<tr>") == 4
    # Without a model of responses there is one row less.
    alone = irtjax.compare(fit, first, second, level=0.9)
    assert alone.table.num_rows == 2 and level_of(alone.table) == 0.9


def test_every_defect_has_its_columns():
    for defect in (*TESTED, *SEEN):
        for start in ("p", "q", "share"):
            assert meaning_of(f"{start}_{defect.replace(' ', '_')}") is not None


def test_responses_are_ranked_and_compared_as_fits_are(tmp_path, monkeypatch):
    # A method that compiles in less time than the default one.
    quick = {"model": "2pl", "method": "em", "standard_errors": "none"}
    monkeypatch.setattr(verbs, "make_fit", partial(irtjax.fit, **quick))
    table = small_table()
    fit = irtjax.fit(table, **quick)
    ranked = irtjax.rank(table.to_frame("polars"))
    assert ranked.table.equals(irtjax.rank(fit).table)
    first, second = table.subjects[:2]
    path = tmp_path / "table.csv"
    path.write_text(table.to_frame("pandas").to_csv(index=False))
    found = irtjax.compare(path, first, second)
    wanted = irtjax.compare(fit, first, second, data=table)
    assert found == wanted and found.accuracy_difference is not None
    for wrong in (3, {}, None):
        with pytest.raises(ValueError, match="cannot read a .*: give a path"):
            irtjax.rank(wrong)
