"""The answers behind responses: read from logs and tables, kept in every step."""

import json

import numpy as np
import pytest

from irtjax.data import ResponseTable, read
from irtjax.data.answers import Answers, plain_answer, short_answer
from tests.data.test_item_texts import answered, request
from tests.data.test_lm_eval import sample, write_log


def given(table):
    """Answers by subject and item, with whether they are wrong; repeats in a list."""
    found = {}
    a = table.answers
    for row in range(len(a)):
        pair = str(table.subjects[a.subject[row]]), str(table.items[a.item[row]])
        found.setdefault(pair, []).append((a.texts[a.code[row]], bool(a.wrong[row])))
    return found


def test_text_of_generative_tasks(tmp_path):
    for name, answer in {"a": "12", "b": " 5 ", "c": "[invalid]"}.items():
        write_log(tmp_path, f"o__{name}", [answered(0, answer == "12", answer)])
    table = read(tmp_path)
    assert given(table) == {
        ("o/a", "t/0"): [("12", False)],
        ("o/b", "t/0"): [("5", True)],
    }
    assert read(tmp_path, texts=False).answers is None


def test_most_likely_choice_of_the_metric_that_is_read(tmp_path):
    # By log-likelihood "no" is the most likely, by that of a letter "certainly".
    more = {"target": "0", "arguments": request("?", " certainly", " no")}
    row = sample(
        0, 0.0, filtered_resps=[[-4.0, False], [-2.0, True]], acc_norm=1.0, **more
    )
    row["metrics"] = ["acc", "acc_norm"]
    write_log(tmp_path, "o__a", [row])
    assert given(read(tmp_path, metric="acc")) == {("o/a", "t/0"): [("no", True)]}
    table = read(tmp_path, metric="acc_norm")
    assert given(table) == {("o/a", "t/0"): [("certainly", False)]}
    assert table.answers.options.tolist() == [2]


def test_each_repeat_of_a_record_has_its_answer(tmp_path):
    row = sample(
        0,
        0.5,
        metric="exact_match",
        filtered_resps=[["7", "8"]],
        scores_per_repeat={"exact_match": [1.0, 0.0]},
    )
    write_log(tmp_path, "o__a", [row])
    table = read(tmp_path)
    assert given(table) == {("o/a", "t/0"): [("7", False), ("8", True)]}
    first = read(tmp_path, trials="first")
    assert given(first) == {("o/a", "t/0"): [("7", False)]}


def test_answers_of_inspect_by_epoch(tmp_path):
    samples = [
        {
            "id": "x",
            "epoch": epoch,
            "input": "2 + 2?",
            "target": "4",
            "scores": {"match": {"value": value, "answer": answer}},
        }
        for epoch, (value, answer) in enumerate([("C", "4"), ("I", "5")], 1)
    ]
    spec = {"task": "t", "model": "o/a", "eval_id": "e"}
    log = {"status": "success", "eval": spec, "samples": samples}
    (tmp_path / "a.json").write_text(json.dumps(log))
    table = read(tmp_path)
    assert given(table) == {("o/a", "t/x"): [("4", False), ("5", True)]}
    assert table.item_texts["t/x"].answer == "4"


@pytest.mark.parametrize(
    ("folder", "wanted"),
    [
        ("helm", {"a"}),
        ("opencompass", {"12"}),
        ("evalscope", {"?"}),
        ("braintrust", {"?"}),
        ("deepeval", {"?"}),
        ("promptfoo", {"?"}),
        ("mlflow", {"?"}),
        ("nemo_skills", {"1", "2", "3"}),
        ("lighteval_old", {"12"}),
        ("lighteval", {"12"}),
        ("eee", {"12"}),
    ],
)
def test_logs_of_other_tools(folder, wanted, request):
    table = read(request.path.parent.parent / "fixtures" / folder)
    assert {*table.answers.texts} == wanted


@pytest.mark.parametrize(
    ("header", "of_row"),
    [
        ("model,item,prediction,target,correct", "{m},{q},{a},{k},{c}"),
        ("model,item,answer,key,correct", "{m},{q},{a},{k},{c}"),
        ("model,item,response,key", "{m},{q},{a},{k}"),
        (
            "model,question_id,predicted_answer,correct_answer,score",
            "{m},{q},{a},{k},{c}",
        ),
    ],
)
def test_columns_of_a_table(tmp_path, header, of_row):
    rows, wanted = [header], {}
    for m in "xyz":
        for q in range(4):
            a, k = "ABCD"[(ord(m) * q) % 4], "ABCD"[q]
            rows.append(of_row.format(m=m, q=f"q{q}", a=a, k=k, c=int(a == k)))
            wanted[m, f"q{q}"] = [(a, a != k)]
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    table = read(tmp_path / "a.csv")
    assert given(table) == wanted
    assert table.item_texts["q2"].answer == "C"


def test_an_answer_that_is_the_same_for_all_is_the_expected_one(tmp_path):
    rows = [f"{m},q{q},{'AB'[q]},{int(m > 'x')}" for m in "xyz" for q in range(2)]
    (tmp_path / "a.csv").write_text("\n".join(["model,item,answer,correct", *rows]))
    table = read(tmp_path / "a.csv")
    assert table.answers is None and table.item_texts["q1"].answer == "B"


@pytest.mark.parametrize("transposed", [False, True])
def test_matrix_of_choices_with_its_key(tmp_path, transposed):
    rows = ["model,q1,q2,q3", "KEY,A,B,C", "x,A,C,C", "y,B,B,D", "z,A,,B"]
    options = {}
    if transposed:
        rows = [",".join(x) for x in zip(*[x.split(",") for x in rows], strict=True)]
        options = {"orientation": "items_by_subjects", "key": "KEY"}
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    found = given(read(tmp_path / "a.csv", **options))
    assert found["x", "q2"] == [("C", True)] and found["y", "q2"] == [("B", False)]
    assert ("z", "q2") not in found and len(found) == 8


def small():
    """Two subjects, three items, one repeat."""
    answers = Answers.of(
        np.array([0, 0, 1, 1]),
        np.array([0, 2, 2, 2]),
        np.array([0, 1, 2, 1]),
        np.array([True, False, True, False]),
        ["B", "C", "A"],
        (2, 3),
        np.array([4, 4, 4]),
    )
    table = ResponseTable.from_arrays([[0, 1, 1], [1, 1, 0]], items=["p", "q", "r"])
    return table.replace(answers=answers)


def test_a_part_of_a_table_has_its_answers():
    part = small().select(subjects=["subject 2", "subject 1"], items=["r"])
    assert given(part) == {
        ("subject 1", "r"): [("C", False)],
        ("subject 2", "r"): [("A", True), ("C", False)],
    }
    assert part.answers.options.tolist() == [4]
    assert small().select(items=["q"]).answers is None


@pytest.mark.parametrize("name", ["t.json", "t.parquet"])
def test_saved_answers_come_back(tmp_path, name):
    table = small()
    again = ResponseTable.load(table.save(tmp_path / name))
    assert given(again) == given(table)
    assert again.answers.options.tolist() == [4, 4, 4]


def test_tables_of_several_files_join_their_answers(tmp_path):
    for m in "xy":
        rows = ["model,item,prediction,target,correct", f"{m},q1,{m},x,{int(m == 'x')}"]
        (tmp_path / f"{m}.csv").write_text("\n".join(rows) + "\n")
        small().replace(subjects=np.array([f"{m}1", f"{m}2"])).save(
            tmp_path / f"{m}.parquet"
        )
    both = given(read([tmp_path / "x.csv", tmp_path / "y.csv"]))
    assert both == {("x", "q1"): [("x", False)], ("y", "q1"): [("y", True)]}
    saved = read([tmp_path / "x.parquet", tmp_path / "y.parquet"])
    assert len(saved.answers) == 8 and ("y2", "r") in given(saved)


def test_answers_are_compared_by_what_they_mean():
    same = [("b", "(B)"), ("1,200", "$1200.00"), ("Paris", " paris. "), ("50%", "50")]
    assert all(plain_answer(x) == plain_answer(y) for x, y in same)
    assert plain_answer("1.5") != plain_answer("15")
    assert short_answer("x" * 500) != short_answer("x" * 501)
    assert short_answer("\ud800") == "?" and short_answer(" \n ") == ""


def test_an_answer_takes_few_bytes():
    table = small()
    size = np.arange(100_000)
    many = Answers.of(
        size % 60, size % 5000, size % 4, size % 2 > 0, "ABCD", (60, 5000)
    )
    assert many.nbytes / len(many) < 12 and table.answers.nbytes > 0
