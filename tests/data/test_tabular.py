"""Wide and long tables: CSV, Parquet, JSON lines and data frames."""

import dataclasses
import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irtjax.data import ResponseTable, read
from irtjax.fitting.defaults import choose

WIDE = Path(__file__).parent.parent / "fixtures" / "wide"


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["tidy.csv", "tidy.parquet"])
def test_tidy(name):
    table = read(WIDE / name)
    assert table.subjects.tolist() == ["toy-1b", "toy-7b"]
    assert table.items.tolist() == ["gsm8k/0", "gsm8k/1"]
    assert table.values.tolist() == [[1, 0], [1, 0]]
    assert table.num_observed == 3
    assert table.benchmarks.tolist() == ["gsm8k", "gsm8k"]
    assert table.lengths is not None
    assert table.lengths[0].tolist() == [310, 3683]
    assert any("1 of 4 cells (25 %) is missing" in note for note in table.notes)
    assert table.sources == (str(WIDE / name),)


def test_psychometric_standard_names_its_subjects_id():
    table = read(WIDE / "irw.csv")
    assert table.subjects.tolist() == ["toy-1b"]
    assert table.values.tolist() == [[1, 0]]
    assert table.benchmarks.tolist() == ["gsm8k", "gsm8k"]


def test_booleans_are_responses():
    table = read(WIDE / "metabench_long.csv")
    assert table.items.tolist() == ["1", "2"]
    assert table.values.tolist() == [[1, 0]]


def test_wide_without_names_of_subjects():
    table = read(WIDE / "mirt_wide.csv")
    assert table.subjects.tolist() == ["subject 1", "subject 2"]
    assert table.items.tolist() == ["Item.1", "Item.2", "Item.3"]
    assert table.observed is not None
    assert table.observed.tolist() == [[True, True, False], [True, True, True]]


def test_wide_without_header():
    table = read(WIDE / "psnirt_noheader.csv")
    assert table.items.tolist() == ["item 1", "item 2", "item 3"]
    assert table.values.tolist() == [[1, 0, 0], [1, 0, 1]]
    assert table.num_observed == 4


def test_wide_with_unnamed_subjects_and_a_twin_of_lengths():
    table = read(WIDE / "lart_accuracy.csv", length=WIDE / "lart_cot_length.csv")
    assert table.subjects.tolist() == ["toy_1b_zero_shot", "toy_7b_one_shot"]
    assert table.items.tolist() == ["0", "1", "2"]
    assert table.lengths is not None
    assert table.lengths.tolist() == [[310, 3683, 0], [120, 905, 2210]]


@pytest.mark.parametrize(
    ("text", "shape", "items"),
    [
        ("0,1,1\n1,0,1\n", (2, 3), ["item 1", "item 2", "item 3"]),
        ("0,1,2,3\n1,0,1,0\n1,1,1,0\n", (2, 4), ["0", "1", "2", "3"]),
        ("m,1,0,1\nn,1,1,1\n", (2, 3), ["item 1", "item 2", "item 3"]),
        ("model,7,12\nm,1,0\nn,1,1\n", (2, 2), ["7", "12"]),
        (",0,1\n0,1,0\n1,1,1\n", (2, 2), ["0", "1"]),
        ("q1,q2\n1,0\n", (1, 2), ["q1", "q2"]),
        ("q,q\n1,0\n", (1, 2), ["q", "q.1"]),
        ("NA,1,0\n0,1,1\n", (2, 3), ["item 1", "item 2", "item 3"]),
    ],
)
def test_header_is_told_from_data(tmp_path, text, shape, items):
    table = read(write(tmp_path, text))
    assert table.values.shape == shape
    assert table.items.tolist() == items


@pytest.mark.parametrize(
    "text",
    [
        "#model,item,score\nm1,q1,1\nm1,q2,0\nm2,q1,0\nm2,q2,1\n",
        "# model,item,score\nm1,q1,1\nm1,q2,0\nm2,q1,0\nm2,q2,1\n",
        # Below a comment, and in another order.
        "# in May\n#item,score,model\nq1,1,m1\nq2,0,m1\nq1,0,m2\nq2,1,m2\n",
        "#model,q1,q2\nm1,1,0\nm2,0,1\n",
        # An empty cell below the header is no name of a column.
        "#model,item,score\nm1,q0,\nm1,q1,1\nm1,q2,0\nm2,q1,0\nm2,q2,1\n",
    ],
)
def test_a_header_may_begin_with_a_number_sign(tmp_path, text):
    table = read(write(tmp_path, text)).select(items=["q1", "q2"])
    assert table.subjects.tolist() == ["m1", "m2"]
    assert table.values.tolist() == [[1, 0], [0, 1]]


def test_header_can_be_forced(tmp_path):
    path = write(tmp_path, "0,1,2\n1,0,1\n")
    assert read(path).num_subjects == 1
    assert read(path, header=False).num_subjects == 2


@pytest.mark.parametrize("text", ["a\tb\n1\t0\n", "a;b\n1;0\n", "\n\na,b\r\n1,0\r\n"])
def test_delimiters_and_line_ends(tmp_path, text):
    table = read(write(tmp_path, text))
    assert table.items.tolist() == ["a", "b"]
    assert table.values.tolist() == [[1, 0]]


def test_gzip_and_byte_order_mark(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress("\ufeffmodel,q1,q2\nm,1,0\n".encode()))
    table = read(path)
    assert table.subjects.tolist() == ["m"]
    assert table.items.tolist() == ["q1", "q2"]


def test_items_as_rows_are_told_by_name_or_by_the_caller(tmp_path):
    text = "item,m,n\nx/1,1,0\nx/2,1,1\nx/3,0,1\n"
    table = read(write(tmp_path, text))
    assert table.subjects.tolist() == ["m", "n"]
    assert table.values.tolist() == [[1, 1, 0], [0, 1, 1]]
    assert any("rows were read as items" in note for note in table.notes)
    girth = read(
        write(tmp_path, "1,0\n1,1\n0,1\n", "g.csv"), orientation="items_by_subjects"
    )
    assert girth.values.tolist() == [[1, 1, 0], [0, 1, 1]]
    assert girth.subjects.tolist() == ["subject 1", "subject 2"]


def test_a_tall_nameless_matrix_is_reported_as_in_doubt(tmp_path):
    rows = "".join(f"{k % 2},{k % 3 % 2}\n" for k in range(20))
    notes = read(write(tmp_path, rows)).notes
    assert any("orientation='items_by_subjects'" in note for note in notes)


def test_names_keep_leading_zeros(tmp_path):
    table = read(write(tmp_path, "model,item,correct\n007,01,1\n007,1,0\n"))
    assert table.subjects.tolist() == ["007"]
    assert table.items.tolist() == ["01", "1"]


def test_extra_columns_of_text_are_not_read(tmp_path):
    text = 'model,item,answer,correct\nm,q,"a, ""quoted""\nanswer",1\nn,q,b,0\n'
    assert read(write(tmp_path, text)).values.tolist() == [[1], [0]]


def test_columns_named_by_the_caller(tmp_path):
    path = write(tmp_path, "who,what,points,other\nm,q,0.5,9\nn,q,0.25,9\n")
    table = read(path, subject="who", item="what", response="points")
    assert table.values.tolist() == [[0.5], [0.25]]


def test_item_of_several_columns(tmp_path):
    path = write(tmp_path, "model,item,rater,score\nm,q,r1,1\nm,q,r2,0\n")
    table = read(path, item=["item", "rater"])
    assert table.items.tolist() == ["q/r1", "q/r2"]
    assert table.values.tolist() == [[1, 0]]
    assert table.item_facets["rater"].tolist() == ["r1", "r2"]
    assert table.item_facets["item"].tolist() == ["q", "q"]


def test_parts_of_items_follow_them_over_files(tmp_path):
    first = write(tmp_path, "model,item,rater,score\nm,q,r2,1\n")
    second = tmp_path / "other.csv"
    second.write_text("model,item,rater,score\nn,p,r1,0\nn,q,r2,1\n")
    table = read([first, second], item=["item", "rater"])
    parts = zip(table.item_facets["item"], table.item_facets["rater"], strict=True)
    assert table.items.tolist() == [f"{item}/{rater}" for item, rater in parts]


def test_equal_item_names_in_two_benchmarks_stay_apart(tmp_path):
    path = write(tmp_path, "model,benchmark,item,score\nm,a,0,1\nm,b,0,0\n")
    table = read(path)
    assert table.items.tolist() == ["a/0", "b/0"]
    assert table.benchmarks.tolist() == ["a", "b"]


def test_words_as_verdicts(tmp_path):
    path = write(tmp_path, "model,item,score\nm,1,C\nm,2,I\nm,3,P\nm,4,\n")
    table = read(path)
    assert table.values.tolist() == [[1, 0, 0.5, 0]]
    assert table.num_observed == 3


def test_numbers_whose_type_changes_far_down(tmp_path):
    # A reader that types columns by their first megabytes stumbles over the last row.
    rows = [f"m{k},q,1,{'x' * 200}\n" for k in range(100_000)]
    path = write(tmp_path, "model,item,score,text\n" + "".join(rows) + "z,q,0.5,\n")
    table = read(path)
    assert table.num_subjects == 100_001
    assert table.values[-1, 0] == 0.5
    assert table.values[:-1].min() == 1


def test_json_lines_and_array(tmp_path):
    lines = (
        '{"model": "m", "item": "q\u2028", "score": true}\n{"model": "n", "item": 5}\n'
    )
    table = read(write(tmp_path, lines, "t.jsonl"))
    assert table.items.tolist() == ["q\u2028", "5"]
    assert table.num_observed == 1
    array = '[{"model": "m", "item": "q", "score": 1, "extra": {"a": []}}]'
    assert read(write(tmp_path, array, "t.json")).values.tolist() == [[1]]


def test_pandas_index_names_the_subjects(tmp_path):
    frame = pd.DataFrame({"q1": [1, 0], "q2": [None, 1]}, index=["m", "n"])
    table = read(frame)
    assert table.subjects.tolist() == ["m", "n"]
    assert table.items.tolist() == ["q1", "q2"]
    assert table.num_observed == 3
    frame.rename_axis("model").to_parquet(tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet").data_hash() == read(frame).data_hash()
    turned = frame.T.rename_axis("item")
    assert read(turned).data_hash() == read(frame).data_hash()


def test_filtered_pandas_frame_is_named_by_its_column():
    frame = pd.DataFrame({"model": ["m", "n", "o"], "q1": [1, 0, 1]})
    table = read(frame[frame["q1"] == 1])
    assert table.subjects.tolist() == ["m", "o"]
    assert table.items.tolist() == ["q1"]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, pl.LazyFrame])
def test_any_frame(make):
    frame = make({"model": ["m", "m", "n"], "item": [1, 2, 1], "correct": [1, 0, 1]})
    table = read(frame)
    assert table.subjects.tolist() == ["m", "n"]
    assert table.items.tolist() == ["1", "2"]
    assert table.num_observed == 3


def test_inspect_sample_frame():
    frame = pd.DataFrame(
        {
            "sample_id": ["s1", "s2"],
            "eval_id": ["e", "e"],
            "model": ["m", "m"],
            "task_name": ["t", "t"],
            "id": ["q1", "q2"],
            "epoch": [1, 1],
            "score_match": ["C", "I"],
        }
    )
    table = read(frame)
    assert table.items.tolist() == ["t/q1", "t/q2"]
    assert table.values.tolist() == [[1, 0]]
    assert table.metric == "match"
    with pytest.raises(ValueError, match="metric= among match, other"):
        read(frame.assign(score_other=[1.0, 0.5]))


def test_the_only_column_of_words_names_the_subjects(tmp_path):
    table = read(
        write(tmp_path, "llm_name,family,q1\na,x,1\nb,y,0\n"), subject="llm_name"
    )
    assert table.subject_facets["family"].tolist() == ["x", "y"]
    table = read(write(tmp_path, "llm_name,q1,q2\na,1,0\nb,0,0\n"))
    assert table.subjects.tolist() == ["a", "b"]
    assert table.items.tolist() == ["q1", "q2"]


def test_a_column_that_counts_the_rows_is_no_item(tmp_path):
    rows = "".join(f"{k},{k % 2},{k % 3 % 2}\n" for k in range(1, 21))
    table = read(write(tmp_path, "nr,q1,q2\n" + rows))
    assert table.items.tolist() == ["q1", "q2"]
    assert table.subjects.tolist() == [str(k) for k in range(1, 21)]


@pytest.mark.parametrize("name", ["passed", "pass@1", "pass1", "pass_at_1"])
def test_columns_of_coding_benchmarks_are_known(tmp_path, name):
    """The difficulty of a problem is no fitted parameter beside a column of scores."""
    text = f"model,prompt_id,platform,difficulty,{name}\na,p1,x,easy,1\na,p2,y,hard,0\n"
    table = read(write(tmp_path, text + "b,p1,x,easy,0\nb,p2,y,hard,0\n"))
    assert table.items.tolist() == ["p1", "p2"]
    assert table.values.tolist() == [[1, 0], [0, 0]]
    # Beside a column of scores it is no second metric.
    beside = read(write(tmp_path, f"model,item,score,{name}\na,x,1,0\nb,x,0,1\n"))
    assert beside.values.tolist() == [[1], [0]]
    with pytest.raises(ValueError, match="no column of responses; name it with"):
        read(write(tmp_path, "model,item,platform,difficulty\na,p1,x,easy\n"))


def test_the_only_column_without_another_role_has_the_responses(tmp_path):
    table = read(write(tmp_path, "model,item,seed,chrf\na,x,0,0.5\nb,x,0,0.25\n"))
    assert table.values.tolist() == [[0.5], [0.25]]
    note = "column 'chrf' was read as the responses (response= names another)"
    assert note in table.notes


def test_counts_beside_scores_are_by_benchmark(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["model,item,benchmark,score"]
    for k in range(12):
        for j in range(6):
            right = [int(rng.random() < 0.2 + 0.05 * k) for _ in range(3)]
            lines += [f"m{k},q{j},code,{x}" for x in right]
            lines += [f"m{k},s{j},essay,{0.3 + 0.04 * k + 0.02 * t}" for t in (0, 1)]
    path = write(tmp_path, "\n".join(lines) + "\n")
    table = read(path, trials="counts")
    assert table.trials is not None
    code = table.benchmarks == "code"
    assert (table.trials[:, code] == 3).all() and (table.trials[:, ~code] == 1).all()
    np.testing.assert_allclose(table.values[:, ~code][2], 0.39)
    assert any("scores of benchmarks essay are no counts" in x for x in table.notes)
    assert "repeats were summed: up to 3 trials per cell" in table.notes
    plain = write(tmp_path, "model,item,score\na,x,1\n", "plain.csv")
    with pytest.raises(ValueError, match="no metric qa=acc: the input names no"):
        read(plain, metric={"qa": "acc"})
    choice = choose(table)
    assert (choice.model, choice.method) == ("mixed", "laplace")
    only = [line for line in lines if "code" not in line]
    path = write(tmp_path, "\n".join(only) + "\n")
    with pytest.raises(ValueError, match="needs responses of 0 and 1, but there is"):
        read(path, trials="counts")


def test_several_rows_of_one_subject_are_repeats(tmp_path):
    path = write(tmp_path, "model,q1,q2\nm,1,0\nm,1,\nn,0,1\n")
    table = read(path, trials="counts")
    assert table.trials is not None
    assert table.values.tolist() == [[2, 0], [0, 1]]
    assert table.trials.tolist() == [[2, 1], [1, 1]]


def test_the_first_of_several_trials_has_its_own_length():
    """Rows need not come in the order of their trials."""
    frame = pd.DataFrame(
        {
            "model": ["a", "a", "b", "b"],
            "item": ["x"] * 4,
            "epoch": [2, 1, 1, 2],
            "correct": [0, 1, 1, 0],
            "tokens": [200.0, 100.0, None, 50.0],
        }
    )
    table = read(frame, length="tokens", trials="first")
    assert table.values.tolist() == [[1], [1]]
    assert table.lengths is not None
    # Of a first trial without a length nothing is known: the second has another.
    np.testing.assert_array_equal(table.lengths, [[100.0], [np.nan]])


def test_categories_of_polars_are_read_as_their_text():
    """Their codes are unsigned integers."""
    frame = pl.DataFrame(
        {"model": ["a", "a", "b", "b"], "item": ["x", "y"] * 2, "score": list("CIIC")}
    ).with_columns(pl.col("score").cast(pl.Categorical))
    assert read(frame).values.tolist() == [[1, 0], [0, 1]]
    wrong = frame.with_columns(pl.Series("score", ["C", "I", "maybe", "C"]))
    wrong = wrong.with_columns(pl.col("score").cast(pl.Categorical))
    with pytest.raises(ValueError, match="row 3, column 'score' is 'maybe'"):
        read(wrong)


@pytest.mark.parametrize("option", ["response", "subject", "length", "benchmark"])
def test_columns_named_for_a_frame_of_inspect_must_be_there(option):
    names = "sample_id eval_id model id epoch score_match task_name".split()
    row = ["s1", "e1", "a", 1, 1, "C", "t"]
    frame = pd.DataFrame([row], columns=names)
    with pytest.raises(ValueError, match=f"no column 'nope' for {option}="):
        read(frame, **{option: "nope"})


def test_frames_that_cannot_be_read():
    for frame in (
        pd.DataFrame([[1, 0]], columns=["q", "q"]),
        pd.DataFrame({"model": ["m", "n"], "q": [1, "x"]}),
        pl.DataFrame({"model": ["m"], "q": [[1]]}),
        pa.table({}),
    ):
        with pytest.raises(ValueError, match="frame|unique"):
            read(frame)


def test_matrix_and_list_of_inputs(tmp_path):
    a = write(tmp_path, "model,a/1,a/2\nm,1,0\nn,1,1\n", "a.csv")
    b = write(tmp_path, "model,b/1\nn,0\no,1\n", "b.csv")
    table = read([a, b])
    assert table.subjects.tolist() == ["m", "n", "o"]
    assert table.items.tolist() == ["a/1", "a/2", "b/1"]
    assert table.values.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert table.num_observed == 6
    for other in (str(tmp_path / "?.csv"), tmp_path):
        assert read(other).data_hash() == table.data_hash()
    assert read(np.eye(3)).num_items == 3


def test_facets_outlive_a_merge(tmp_path):
    a = write(
        tmp_path, "model,family,organization,x,y\nm,f,o,1,0\nn,g,o,1,1\n", "a.csv"
    )
    b = write(tmp_path, "model,family,z\nn,h,0\nk,f,1\nm,,1\n", "b.csv")
    table = read([a, b])
    assert table.subjects.tolist() == ["m", "n", "k"]
    # An empty facet contradicts nothing, and a file without the column tells nothing.
    assert table.subject_facets["family"].tolist() == ["f", "g", "f"]
    assert table.subject_facets["organization"].tolist() == ["o", "o", ""]
    told = [note for note in table.notes if "family" in note]
    assert len(told) == 1
    assert "of 1 subject, such as 'n' is 'g' and 'h': the first was kept" in told[0]
    # An item of both files may be told of two benchmarks; another facet comes from one.
    parts = [
        dataclasses.replace(
            ResponseTable.from_arrays([[1, 0]], subjects=[who], items=["x", "y"]),
            item_facets={name: np.array(labels) for name, labels in facets.items()},
        )
        for who, facets in (
            ("m", {"benchmark": ["s", "t"]}),
            ("n", {"benchmark": ["s", "u"], "skill": ["", "sums"]}),
        )
    ]
    merged = read(parts)
    assert merged.item_facets["benchmark"].tolist() == ["s", "t"]
    assert merged.item_facets["skill"].tolist() == ["", "sums"]
    assert any("of 1 item, such as 'y' is 't' and 'u'" in n for n in merged.notes)


def test_files_that_overlap(tmp_path):
    a = write(tmp_path, "model,x,y\nm,1,0\n", "a.csv")
    b = write(tmp_path, "model,x\nm,0\nn,1\n", "b.csv")
    with pytest.raises(ValueError, match="'m' to 'x' is also in .*a.csv:"):
        read([a, b])
    assert read([a, b], trials="mean").values.tolist() == [[0.5, 0], [1, 0]]
    assert read([a, b], trials="first").values.tolist() == [[1, 0], [1, 0]]
    counts = read([a, b], trials="counts")
    assert counts.trials is not None
    assert counts.trials.tolist() == [[2, 1], [1, 0]]
    assert counts.values.tolist() == [[1, 0], [1, 0]]
    # Another file may be of another benchmark or metric, but not another run.
    one = write(tmp_path, "model,x,y\nm,1,0\n", "run1.csv")
    two = write(tmp_path, "model,x\nm,0\nn,1\n", "run2.csv")
    assert read([one, two]).data_hash() == counts.data_hash()
    one = write(tmp_path, "model,x,y\nm,1,0.5\n", "run1.csv")
    two = write(tmp_path, "model,x\nm,0.2\nn,1\n", "run2.csv")
    assert read([one, two]).values.tolist() == [[0.6, 0.5], [1, 0]]


def test_patterns_with_frequencies(tmp_path):
    table = read(write(tmp_path, "q1,q2,freq\n0,0,2\n1,0,0\n1,1,3\n"))
    assert table.values.tolist() == [[0, 0]] * 2 + [[1, 1]] * 3


def test_wide_parquet_of_many_columns(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, (5, 3000)).astype(np.int8)
    columns = {f"q{k}": values[:, k] for k in range(values.shape[1])}
    pq.write_table(
        pa.table({"model": list("abcde"), **columns}), tmp_path / "t.parquet"
    )
    table = read(tmp_path / "t.parquet")
    assert np.array_equal(table.values, values)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([0, 1, None]), min_size=4, max_size=4),
        min_size=2,
        max_size=5,
    ).filter(lambda rows: any(cell is not None for row in rows for cell in row))
)
def test_wide_and_long_forms_agree(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("forms")
    cells = [["" if c is None else str(c) for c in row] for row in rows]
    wide = "model,q1,q2,q3,q4\n" + "".join(
        f"m{k},{','.join(row)}\n" for k, row in enumerate(cells)
    )
    long = "model,item,correct\n" + "".join(
        f"m{k},q{j},{cell}\n"
        for k, row in enumerate(cells)
        for j, cell in enumerate(row, 1)
    )
    a, b = write(folder, wide, "wide.csv"), write(folder, long, "long.csv")
    assert read(a).data_hash() == read(b).data_hash()


A_AND_ARC = "model,benchmark,item,score,prompt\n" + "".join(
    f"A,{name},{k},{score},{name} {k}\n"
    for name, k, score in (("gsm8k", 0, 1), ("gsm8k", 1, 0), ("arc", 0, 1))
)
B_ALONE = "model,benchmark,item,score,prompt\nB,gsm8k,0,1,gsm8k 0\nB,gsm8k,1,1,?\n"


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_files_of_other_benchmarks_share_their_items(tmp_path, names):
    texts = {"a": A_AND_ARC, "b": B_ALONE}
    table = read([write(tmp_path, texts[x], f"{x}.csv") for x in names])
    assert sorted(table.items) == ["arc/0", "gsm8k/0", "gsm8k/1"]
    both = table.select(items=["gsm8k/0", "gsm8k/1"])
    rows = dict(zip(both.subjects.tolist(), both.values.tolist(), strict=True))
    assert rows == {"A": [1, 0], "B": [1, 1]}
    assert both.observed is None
    assert table.item_texts["gsm8k/0"].prompt == "gsm8k 0"
    whole = A_AND_ARC + B_ALONE.split("\n", 1)[1]
    assert set(read(write(tmp_path, whole, "whole.csv")).items) == set(table.items)


def test_a_name_that_clashes_between_files_gets_its_benchmark(tmp_path):
    for name in ("gsm8k", "arc"):
        text = f"model,benchmark,item,part,score\nA,{name},0,p,1\nA,{name},1,p,0\n"
        write(tmp_path, text, f"{name}.csv")
    table = read(tmp_path, item=["item", "part"])
    assert sorted(table.items) == ["arc/0/p", "arc/1/p", "gsm8k/0/p", "gsm8k/1/p"]
    assert table.item_facets["part"].tolist() == ["p"] * 4


def test_names_of_repeats_mean_the_same_in_every_file(tmp_path):
    text = "model,item,rater,score\n{0},1,{1},1\n{0},1,{2},0\n"
    write(tmp_path, text.format("A", "anna", "bob"), "a.csv")
    write(tmp_path, text.format("B", "bob", "zoe"), "b.csv")
    bob = read(tmp_path, epoch=1)
    assert (bob.subjects.tolist(), bob.values.tolist()) == (["A", "B"], [[0], [1]])


@pytest.mark.parametrize("index", [["model"], ["model", "item"], ["item"]])
def test_a_long_frame_of_pandas_may_have_its_names_in_the_index(tmp_path, index):
    rows = {"model": ["A", "A", "B"], "item": ["x", "y", "x"], "score": [1, 0, 1]}
    frame = pd.DataFrame(rows)
    wanted = read(frame).data_hash()
    assert read(frame.set_index(index)).data_hash() == wanted
    frame.set_index(index).to_parquet(tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet").data_hash() == wanted


def test_a_wide_frame_with_a_named_index_stays_wide():
    frame = pd.DataFrame([[1, 0], [0, 1]], index=["A", "B"], columns=["x", "y"])
    for name in ("model", "item", "checkpoint"):
        frame.index.name = name
        table = read(frame)
        assert table.values.tolist() == [[1, 0], [0, 1]]
        assert ("A" in table.items) == (name == "item")


def test_categories_of_numbers_are_numbers(tmp_path):
    score = pd.Categorical([1, 0, None], categories=[0, 1])
    frame = pd.DataFrame(
        {"model": ["A", "A", "B"], "item": ["x", "y", "x"], "score": score}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (frame, tmp_path / "t.parquet"):
        table = read(source)
        assert (table.values[0].tolist(), table.num_observed) == ([1, 0], 2)


def test_a_byte_order_mark_before_a_blank_line(tmp_path):
    for text in ("a,b\n1,0\n0,1\n", "model,item,score\nm,a,1\nm,b,0\n"):
        table = read(write(tmp_path, "\ufeff\n" + text))
        assert table.items.tolist() == ["a", "b"]


def test_a_frame_of_counts_is_read_again():
    table = ResponseTable.from_arrays(
        [[2, 1], [0, 1]], subjects=["a", "b"], items=["x", "y"], trials=[[2, 2], [2, 1]]
    )
    frame = table.to_frame("pandas")
    again = read(frame, trials="counts")
    assert again.values.tolist() == [[2, 1], [0, 1]]
    assert again.trials is not None
    assert again.trials.tolist() == [[2, 2], [2, 1]]
    assert read(frame, trials="mean").values.tolist() == [[1, 0.5], [0, 1]]
    assert read(frame).data_hash() == again.data_hash()
    with pytest.raises(ValueError, match="numbers of successes .* trials='counts'"):
        read(frame, trials="first")
    with pytest.raises(ValueError, match="row 1 has 3 successes in 2 trials"):
        read(frame.assign(response=3), trials="counts")


def test_a_table_with_numbers_of_documents_is_no_log(tmp_path):
    rows = [
        f'{{"model": "{m}", "doc_id": {k}, "target": "x", "acc": {k}}}'
        for m in "AB"
        for k in (0, 1)
    ]
    table = read(write(tmp_path, "\n".join(rows), "own.jsonl"))
    assert (table.subjects.tolist(), table.items.tolist()) == (["A", "B"], ["0", "1"])
