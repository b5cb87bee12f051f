"""Tables as people and spreadsheets write them: read as meant, or refused in a line."""

import pytest

import irtjax

LONG = [["m", "q1", 1.0], ["m", "q2", 0.5], ["n", "q1", 0.0], ["n", "q2", 1.0]]
WIDE = {"m": [1, 0, 1], "n": [0, 1, 1]}


def read(tmp_path, text, name="t.csv", **options):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return irtjax.read(path, **options)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffmodel;item;score\r\nm;q1;1,0\r\nm;q2;0,5\r\nn;q1;0\r\nn;q2;1,0\r\n",
        "sep=;\r\nmodel;item;score\r\nm;q1;1\r\nm;q2;0,5\r\nn;q1;0\r\nn;q2;1\r\n",
        "model,item,score,,\nm,q1,1,,\nm,q2,0.5,,\n,,,,\nn,q1,0,,\nn,q2,1,,\n,,,,\n",
        "Unnamed: 0,model,item,score\n0,m,q1,1\n1,m,q2,0.5\n2,n,q1,0\n3,n,q2,1\n",
    ],
    ids=["decimal commas", "sep=", "empty rows", "index"],
)
def test_long_tables(tmp_path, text):
    table = read(tmp_path, text)
    found = [
        [s, i, table.values[j, k]]
        for j, s in enumerate(table.subjects.tolist())
        for k, i in enumerate(table.items.tolist())
    ]
    assert found == LONG


@pytest.mark.parametrize(
    "text, note",
    [
        (",model,q1,q2,q3\n0,m,1,0,1\n1,n,0,1,1\n", "'' numbers the rows and was"),
        ("Unnamed: 0,model,q1,q2,q3\n0,m,1,0,1\n1,n,0,1,1\n", "numbers the rows"),
        (",item,m,n\n0,q1,1,0\n1,q2,0,1\n2,q3,1,1\n", "numbers the rows and was left"),
        ("model,q1,q2,q3,\nm,1,0,1,\nn,0,1,1,\n", ""),
        ("model,q1,q2,q3\nm,1,0,1\nn,0,1,1\naverage,0.5,.5,1\n", "row 'average' is"),
        ("model,q1,q2,q3\nm,1,0,1\nn,0,1,1\nMean,50,50,100\n", "row 'Mean' is the me"),
        ("model,q1,q2,q3,avg\nm,1,0,1,0.67\nn,0,1,1,.667\n", "'avg' is the mean of"),
        ("model,q1,q2,q3,Total\nm,1,0,1,2\nn,0,1,1,2\n", "'Total' is the sum of"),
        ("model,q1,q2,q3,Average ⬆️\nm,1,0,1,67\nn,0,1,1,66.67\n", "⬆️' is the mean"),
        ("model,q1,q2,q3\nm,1,0,1\nn,0,1,1\n📊 Avg. (%),50,50,100\n", "is the mean"),
        ("item,m,n,mean\nq1,1,0,0.5\nq2,0,1,0.5\nq3,1,1,1\n", "'mean' is the mean"),
    ],
)
def test_wide_tables(tmp_path, text, note):
    table = read(tmp_path, text)
    assert table.subjects.tolist() == list(WIDE)
    assert table.items.tolist() == ["q1", "q2", "q3"]
    assert table.values.tolist() == list(WIDE.values())
    assert any(note in x for x in table.notes) or not note


TABLE = "model,q1,q2,q3\nm,1,0,1\nn,0,1,1\n"


@pytest.mark.parametrize(
    "text",
    [
        f"# exported on 2026-05-01\n# by hand, of two models, and more\n\n{TABLE}",
        f"# exported,,,\n{TABLE}",
        f'"# of two, or more"\r\n{TABLE}',
        f"# made by a tool\n#{TABLE}",
        f"#{TABLE}",
        TABLE.replace(",", ";").replace("model", "# 1,5\nmodel"),
        f"# of a, b, c, d\n# a,b,c,d\n{TABLE}",
    ],
)
def test_comments_above_the_header_are_skipped(tmp_path, text):
    table = read(tmp_path, text)
    assert table.subjects.tolist() == list(WIDE)
    assert table.items.tolist() == ["q1", "q2", "q3"]
    assert table.values.tolist() == list(WIDE.values())


def test_comments_above_a_long_table_are_skipped(tmp_path):
    rows = [f"m{s},q{i},{(s + i) % 2}" for s in range(4) for i in range(3)]
    text = "\n".join(["# by hand", "model,item,score", *rows]) + "\n"
    assert read(tmp_path, text).values.shape == (4, 3)
    text = text.replace("by hand", "by hand, for now, of 3")  # As many cells.
    assert read(tmp_path, text).values.shape == (4, 3)


def test_comments_above_items_that_are_numbers_are_skipped(tmp_path):
    table = read(tmp_path, "# a,b,c,d\nmodel,1,2,3\nm,1,0,1\nn,0,1,1\n")
    assert table.items.tolist() == ["1", "2", "3"]
    # The first row below a header with a sign has numbers that count up, too.
    table = read(tmp_path, "#model,q1,q2,q3\nm,1,2,3\nn,0,1,1\n")
    assert table.subjects.tolist() == ["m", "n"]


@pytest.mark.parametrize(
    "above, first, row",
    [
        ("Results of May\n", "Results of May", 2),
        ("Results of May,,,\n", "Results of May", 2),
        ('"May, final"\n\n', "May, final", 3),
        ("# by hand\nMay\nthe second try\n", "May", 4),
    ],
)
def test_a_title_above_the_header_is_refused(tmp_path, above, first, row):
    with pytest.raises(ValueError) as error:
        read(tmp_path, above + TABLE)
    at = 2 if above.startswith("#") else 1
    assert f"row {at}, {first!r}, has one cell, and row {row} has 4" in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=f"row {row} has 4: delete"):
        read(tmp_path, above + TABLE.replace("q", ""))  # Items 1, 2, 3.


def test_a_first_subject_without_responses_is_no_title(tmp_path):
    table = read(tmp_path, "m,,,\nn,0,1,1\no,1,0,1\n")
    assert table.subjects.tolist() == ["m", "n", "o"]


def test_a_column_that_only_has_the_name_of_a_total_stays(tmp_path):
    table = read(tmp_path, "model,q1,q2,total\nm,1,0,0\nn,0,1,1\n")
    assert table.items.tolist() == ["q1", "q2", "total"]
    assert "column 'total' was read like the others: leave it out" in str(table.notes)


@pytest.mark.parametrize(
    "text, shape",
    [
        # 0 and 1 that are the sum or the mean of others by chance.
        ("model,q1,q2,total\nm,1,0,1\nn,0,0,0\no,0,1,1\n", (3, 3)),
        ("model,q1,q2,q3\nm,1,0,1\nn,1,0,1\nmean,1,0,1\n", (3, 3)),
        ("model,q1,q2,q3,overall\nm,1,,,1\nn,,0,,0\no,1,1,0,\n", (3, 4)),
        # As an item of a long table.
        ("model,item,score\nmean,total,1\nn,total,0\nmean,q,0\nn,q,1\n", (2, 2)),
    ],
)
def test_items_and_models_that_are_named_as_totals_stay(tmp_path, text, shape):
    assert read(tmp_path, text).values.shape == shape


@pytest.mark.parametrize(
    "text, column",
    [
        ("model\titem\tscore\ttokens\nm\tq1\t1\t1,234\nn\tq1\t0\t987\n", "tokens"),
        ("model;q1;q2\nm;1,234;1,100\nn;2,345;1,001\n", "q1"),
    ],
)
def test_commas_of_thousands_are_no_decimals(tmp_path, text, column):
    length = {"length": column} if column == "tokens" else {}
    with pytest.raises(ValueError, match=f"{column}' is '1,234'") as refusal:
        read(tmp_path, text, **length)
    assert "leave separators of thousands out" in str(refusal.value)


def test_decimal_commas_with_three_digits(tmp_path):
    table = read(tmp_path, "model;q1;q2\n1,5;0,125;1,000\n1,50;2,500;0\n")
    assert table.values.tolist() == [[0.125, 1.0], [2.5, 0.0]]
    assert table.subjects.tolist() == ["1,5", "1,50"]


def test_rows_after_an_empty_one_are_counted_without_it(tmp_path):
    with pytest.raises(ValueError, match="t.csv without 1 empty row: row 2, column"):
        read(tmp_path, "model,q1,q2\nm,1,0\n,,\nn,x,1\n,,\n")


def test_a_total_leaves_its_own_row_of_what_describes_rows(tmp_path):
    """Two rows may have the name of a total, of which one is."""
    rows = ["a,f,1,0,1", "b,m,1,1,1", "c,f,0,0,1"]
    rows += ["mean,x,0.67,0.33,1", "mean,y,0.5,0.2,0.9"]
    table = read(tmp_path, "\n".join(["model,gender,q1,q2,q3", *rows]) + "\n")
    assert table.subjects.tolist() == ["a", "b", "c", "mean"]
    assert table.subject_facets["gender"].tolist() == ["f", "m", "f", "y"]


def test_totals_of_a_table_with_gaps(tmp_path):
    table = read(tmp_path, "model,q1,q2,q3,mean\nm,1,,0,0.5\nn,0,1,1,.67\no,,,,\n")
    assert table.items.tolist() == ["q1", "q2", "q3"]
    assert table.num_observed == 5


@pytest.mark.parametrize("word", ["-", "--", "#N/A", "<NA>", "\u2013", "NA", "None"])
def test_missing_words(tmp_path, word):
    table = read(tmp_path, f"model,q1,q2\nm,1,{word}\nn,0,1\n")
    assert table.num_observed == 3


@pytest.mark.parametrize(
    "text, cure",
    [
        ("model,q1,q2\nm,100%,50%\nn,0%,5\n", "write all with a percent sign, or no"),
        ("model,item,score\nm,q1,75 %\nn,q1,5\n", "write all with a percent sign"),
        ('model,item,score\nm,q1,"1,200"\nn,q1,5\n', "leave separators of thousands"),
        ('model,item,score\nm,q1,"0,5"\nn,q1,1\n', "write decimals with a point, or"),
        (
            "model,q1,q2\nm,hit,miss\nn,miss,hit\n",
            "the right ones, such as right='hit', and",
        ),
        ("model|item|score\nm|q1|1\n", "columns are separated by commas, tabs or"),
    ],
)
def test_what_is_refused_has_a_cure(tmp_path, text, cure):
    with pytest.raises(ValueError, match="t.csv") as refusal:
        read(tmp_path, text)
    assert cure in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "one, two",
    [
        ("GPT-4", "gpt-4"),
        ("gpt 4", "gpt\u00a04"),
        ("gpt\u200b4", "gpt4"),
        ("mod\u00e8le", "mode\u0300le"),
        ("\U0001f999-7B", "\U0001f999-7b"),
    ],
)
def test_names_alike_are_told(tmp_path, one, two):
    text = f"model,item,score\n{one},q1,1\n{two},q2,0\nn,q1,0\nn,q2,1\n"
    table = read(tmp_path, text)
    assert table.num_subjects == 3
    assert any("are alike: give them one name" in x for x in table.notes)


@pytest.mark.parametrize(
    "one, two", [("org/m", "hf/org/m"), ("gpt-4o", "openai/GPT-4o"), ("3", "a/3")]
)
def test_a_model_named_with_and_without_provider_is_told(tmp_path, one, two):
    text = f"model,item,score\n{one},q1,1\n{two},q2,0\norg/n,q1,0\norg/n,q2,1\n"
    told = [x for x in read(tmp_path, text).notes if "in two harnesses" in x]
    assert len(told) == (one != "3")
    assert all(f"subjects {one!r} and {two!r} may be" in x for x in told)


def test_distinct_names_are_not_told(tmp_path):
    text = "model,item,score\na-2.0,1,1\na-2,2,0\nn,10,0\nn,01,1\n"
    text += "n,MATH 1 12,1\nn,MATH 11 2,0\n"
    assert not any("alike" in note for note in read(tmp_path, text).notes)


@pytest.mark.parametrize("name", ["t (1).csv", "t copy.csv", "t - Copy.csv"])
def test_copies_of_files_are_not_read(tmp_path, name):
    text = "model,item,score\nm,q1,1\nm,q2,0\nn,q1,0\nn,q2,1\n"
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / name).write_text(text)
    assert f"1 copy of other files was not read: {name}" in irtjax.read(tmp_path).notes
    # Another content is another file, whose repeats are a question.
    (tmp_path / name).write_text(text.replace("q2,1", "q2,0"))
    with pytest.raises(ValueError, match="has 2 responses"):
        irtjax.read(tmp_path)


def test_sources_that_repeat_are_no_subjects(tmp_path):
    """In data of surveys the column is where respondents come from."""
    table = read(tmp_path, "q1,q2,source\n1,0,2\n0,1,2\n1,1,1\n")
    assert table.num_subjects == 3 and table.items.tolist() == ["q1", "q2"]
    assert table.subject_facets["source"].tolist() == ["2", "2", "1"]
    named = read(tmp_path, "source,q1,q2\na,1,0\nb,0,1\n")
    assert named.subjects.tolist() == ["a", "b"]
