"""Long tables whose columns have no usual names, and tables without responses."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

import irtjax

MODELS, ITEMS = ("anna", "bert", "carl"), ("add", "sort", "swap", "trim", "zip")
PAIRS = list(itertools.product(MODELS, ITEMS))
SCORES = [int((k * 7) % 3 > 0) for k in range(len(PAIRS))]


def long(subject="agent", item="task", response="resolved", **more):
    """A table with a row for each pair, and further columns."""
    columns = {subject: [x for x, _ in PAIRS], item: [x for _, x in PAIRS]}
    return pa.table({**columns, response: SCORES, **more})


@pytest.mark.parametrize(
    "names",
    [
        ("agent", "task", "resolved"),
        ("llm_used", "prompt_hash", "passed"),
        ("candidate", "testcase", "is_right"),
        ("model", "task", "score"),
        ("模型", "题目", "得分"),
    ],
)
def test_a_long_table_is_read_where_names_and_values_leave_no_doubt(names):
    table = irtjax.read(long(*names))
    assert table.subjects.tolist() == list(MODELS)
    assert table.items.tolist() == list(ITEMS)
    values = table.values.ravel().tolist()
    assert values == SCORES
    assert table.benchmarks is None or len(set(table.benchmarks)) == 1
    assert any(all(repr(x) in note for x in names) for note in table.notes)


def test_other_columns_and_missing_pairs_are_no_doubt(tmp_path):
    import pyarrow.csv

    minutes = [3.5 * k for k in range(len(PAIRS))]
    path = tmp_path / "runs.csv"
    pyarrow.csv.write_csv(long(minutes=minutes).slice(0, 13), path)
    table = irtjax.read(path)
    assert (table.num_subjects, table.num_items, table.num_observed) == (3, 5, 13)


@pytest.mark.parametrize(
    "table",
    [
        long(passed=SCORES[::-1]),  # Which of the two is the response?
        long("who", "what", "how"),
        pa.concat_tables([long(), long()]),  # Each pair twice.
    ],
    ids=["two outcomes", "names of no role", "pairs twice"],
)
def test_a_doubt_is_asked(table):
    with pytest.raises(ValueError, match="subject=, item= and response="):
        irtjax.read(table)


def test_a_table_with_one_row_a_subject_is_no_long_one():
    columns = {
        "model": list(MODELS),
        "task_type": ["code", "text", "code"],
        "points": [1, 0, 1],
    }
    with pytest.raises(ValueError, match="task_type"):
        irtjax.read(pa.table({name: x * 2 for name, x in columns.items()}))


def test_the_column_that_crosses_the_items_is_named_and_can_be_read():
    table = long("alias", "task_id", "score", kin=[x[0] for _, x in PAIRS])
    with pytest.raises(ValueError, match="subject='alias'"):
        irtjax.read(table)
    assert irtjax.read(table, subject="alias").num_subjects == 3


def test_metric_and_bounds_are_asked_for_at_once():
    ratings = np.arange(len(PAIRS)) % 5 + 1
    tables = [
        long("model", "item", "ignored")
        .drop_columns(["ignored"])
        .append_column("dimension", [[name] * len(PAIRS)])
        .append_column("score", [ratings])
        for name in ("style", "facts")
    ]
    with pytest.raises(ValueError, match=r"style, facts.*bounds=\(1, 5\)"):
        irtjax.read(pa.concat_tables(tables))


def test_a_column_of_texts_is_no_candidate_for_responses():
    families = ["abc"] * len(PAIRS)
    table = long("model", "item", "rouge", family=families, bleu=SCORES)
    with pytest.raises(ValueError, match="response= among: rouge, bleu$"):
        irtjax.read(table)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"model": MODELS, "base": ("x", "y", "z")}, "no column of responses"),
        (
            {
                "item": ITEMS,
                "origin": "help help chat chat code".split(),
                "chars": range(5),
            },
            "no column of responses",
        ),
        (
            {"score": [4, 5, 4, 3] * 4, "grader": [*"ggmm"] * 4, "LLM": [*"xyxy"] * 4},
            "no column names an item",
        ),
    ],
)
def test_tables_without_responses_or_items_are_named_as_such(columns, words):
    with pytest.raises(ValueError, match=words) as refusal:
        irtjax.read(pa.table({name: list(x) for name, x in columns.items()}))
    assert "response=" not in str(refusal.value)


def test_counts_by_pair_and_outcomes_of_the_first_are_comparisons():
    sides = {"model_a": ["x", "y", "z"], "model_b": ["y", "z", "x"]}
    counts = pa.table({**sides, "wins_a": [3, 2, 1], "wins_b": [1, 1, 4]})
    chosen = pa.table({**sides, "first_is_chosen": [1, 0, 1]})
    for table in (counts, chosen):
        with pytest.raises(ValueError, match="irtjax arena"):
            irtjax.read(table)
    assert irtjax.read_comparisons(counts).num_comparisons == 12
    found = irtjax.read_comparisons(chosen)
    assert found.outcomes[:, 0].tolist() == [1, 0, 1]
    words = chosen.set_column(2, "first_wins", [["true", "no", "TRUE"]])
    same = irtjax.read_comparisons(words)
    assert same.outcomes.tolist() == found.outcomes.tolist()
    wrong = chosen.set_column(2, "first_wins", [["true", "maybe", "no"]])
    with pytest.raises(ValueError, match="row 2: first_wins is 'maybe'"):
        irtjax.read_comparisons(wrong)
