"""Prompts, answers and ids of items: read once an item, cut, kept, and exported."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from irtjax.cli.options import Reading
from irtjax.cli.output import SAMPLE_FILES as ON_COMMAND_LINE
from irtjax.data import ResponseTable, item_texts, read
from irtjax.data.item_texts import LONGEST, SAMPLE_FILES, ItemText, SourceId
from irtjax.data.reading import tabular
from irtjax.data.reading.options import Choices
from tests.data.test_lm_eval import FIXTURES, sample, write_log

MARKUP = "<b>|`*_\x1b[31m" + "```\n" * 3


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def request(prompt, *choices):
    """The requests of a record: one, or one for each choice."""
    pairs = [{"arg_0": prompt, "arg_1": x} for x in choices or ({"until": ["\n"]},)]
    return {f"gen_args_{k}": pair for k, pair in enumerate(pairs)}


def answered(doc_id, right, answer, **more):
    """A record of a model that wrote something."""
    more = {"target": "12", "arguments": request(f"what is {doc_id}?"), **more}
    return sample(doc_id, float(right), filtered_resps=[answer], **more)


def test_prompt_target_and_most_frequent_wrong_answer_of_lm_eval(tmp_path):
    answers = {"a": ("12", "13 "), "b": ("5", "13"), "c": ("5", "13"), "d": ("5", "1")}
    for name, (first, second) in answers.items():
        rows = [answered(0, first == "12", first), answered(1, False, second)]
        write_log(tmp_path, f"o__{name}", rows)
    table = read(tmp_path)
    assert table.item_texts == {
        "t/0": ItemText("what is 0?", "12", "5", 3),
        "t/1": ItemText("what is 1?", "12", "13", 3),
    }
    bare = read(tmp_path, texts=False)
    assert bare.item_texts == {} and bare.item_ids == table.item_ids
    assert bare.data_hash() == table.data_hash()


def test_choices_of_lm_eval_are_named_by_their_texts(tmp_path):
    more = {"target": "1", "arguments": request("colour?", " red", " green", " blue")}
    chosen = [["-3.0", "False"], ["-2.0", "False"], ["-1.5", "True"]]
    row = sample(0, 0.0, filtered_resps=chosen, **more)
    write_log(tmp_path, "o__a", [row])
    assert read(tmp_path).item_texts["t/0"] == ItemText("colour?", "green", "blue", 1)


@pytest.mark.parametrize(
    ("arguments", "doc", "prompt"),
    [
        ([["old?", {}]], {"q": 1}, "old?"),  # before 0.4.3
        (None, {"Question": "in doc?", "id": "x"}, "in doc?"),
        (None, {"story": "s"}, '{"story": "s"}'),
        ("[]", "plain", "plain"),
        ({"gen_args_0": 3}, None, ""),
        ([[["deep"]]], {"problem": "p"}, "p"),
    ],
)
def test_texts_of_other_forms(tmp_path, arguments, doc, prompt):
    row = sample(0, 1.0, doc=doc, arguments=arguments, target=None)
    write_log(tmp_path, "o__a", [row])
    assert read(tmp_path).item_texts["t/0"].prompt == prompt


def test_wrong_answers_are_those_under_the_filter_that_is_read(tmp_path):
    rows = [
        answered(0, False, "[invalid]", filter="strict-match"),
        answered(0, False, "7", filter="flexible-extract"),
    ]
    for name in "ab":
        write_log(tmp_path, f"o__{name}", rows)
    assert read(tmp_path).item_texts["t/0"].wrong == "[invalid]"
    other = read(tmp_path, filter="flexible-extract")
    assert other.item_texts["t/0"].wrong == "7"


@pytest.mark.parametrize(
    "asked",
    [
        {"filter": Choices(["flexible-extract"])},
        {"filter": Choices(["strict-match", "t=flexible-extract"])},
        {"filter": {"*": "strict-match", "t": "flexible-extract"}},
        {"metric": "acc,flexible-extract"},
        {"metric": Choices(["t=acc,flexible-extract"])},
    ],
)
def test_wrong_answers_are_of_the_filter_however_it_is_named(tmp_path, asked):
    for task in "tu":
        rows = [
            answered(0, False, "[invalid]", filter="strict-match"),
            answered(0, False, "7", filter="flexible-extract"),
        ]
        write_log(tmp_path, "o__a", rows, task=task)
    texts = read(tmp_path, **asked).item_texts
    assert texts["t/0"].wrong == "7"
    if "*" in str(asked) or "strict" in str(asked):
        assert texts["u/0"].wrong == "[invalid]"


def test_texts_and_ids_are_of_the_run_that_is_read(tmp_path):
    later = "2026-04-01T10-20-30.123456"
    old = answered(5, False, "old", content="x", arguments=request("old?"))
    new = answered(0, False, "new", content="x", arguments=request("new?"))
    write_log(tmp_path, "o__a", [old])
    write_log(tmp_path, "o__a", [new], date=later)
    [(name, text)] = read(tmp_path).item_texts.items()
    assert text == ItemText("new?", "12", "new", 1)
    ids = (SourceId("lm-eval", "t", "0"),)
    assert read(tmp_path).item_ids[name] == ids
    # A later run without scores is not read.
    bypass = {k: v for k, v in new.items() if k != "acc"} | {"metrics": ["bypass"]}
    write_log(tmp_path, "o__a", [bypass], date=later)
    assert read(tmp_path).item_texts["t/5"] == ItemText("old?", "12", "old", 1)


@pytest.mark.parametrize(
    ("target", "likely", "right", "answer"),
    [("2", 0, 1, "2"), ("2", 2, 1, "4"), ("2", 0, 0, "4"), ("2", 3, 0, "")],
)
def test_target_that_is_a_choice_and_a_number(tmp_path, target, likely, right, answer):
    more = {"target": target, "arguments": request("1+1=", " 2", " 3", " 4", " 5")}
    likelihoods = [[str(-1 - (k != likely)), "False"] for k in range(4)]
    row = sample(0, float(right), filtered_resps=likelihoods, **more)
    write_log(tmp_path, "o__a", [row])
    assert read(tmp_path).item_texts["t/0"].answer == answer
    # The next model settles it.
    row = sample(0, 1.0, filtered_resps=likelihoods[::-1], **more)
    write_log(tmp_path, "o__b", [{**row, "filtered_resps": [[0, ""], *[[-1, ""]] * 3]}])
    assert read(tmp_path).item_texts["t/0"].answer == (answer or "2")


def test_choices_that_are_parts_of_contexts(tmp_path):
    pairs = [("She met Ann so Ann", " left."), ("She met Ann so Eve", " left.")]
    requests = [{"arg_0": x, "arg_1": y} for x, y in pairs]
    arguments = {f"gen_args_{k}": pair for k, pair in enumerate(requests)}
    more = {"target": " left.", "arguments": arguments}
    row = sample(0, 0.0, filtered_resps=[[-1, "True"], [-2, "False"]], **more)
    write_log(tmp_path, "o__a", [row])
    expected = ItemText("She met Ann so _ left.", "Eve", "Ann", 1)
    assert read(tmp_path).item_texts["t/0"] == expected


@pytest.mark.parametrize("agree", [True, False])
def test_answer_column_of_a_file_for_each_model(tmp_path, agree):
    """What each model answered is not what was expected."""
    for name in "ab":
        answer = "blue" if agree else name
        rows = f"model,item,score,prompt,answer\n{name},q,1,colour?,{answer}\n"
        (tmp_path / f"{name}.csv").write_text(rows)
    expected = ItemText("colour?", "blue" if agree else "")
    assert read(tmp_path).item_texts == {"q": expected}
    # One model alone does not settle it.
    assert read(tmp_path / "a.csv").item_texts == {"q": ItemText("colour?")}


def test_texts_of_inspect_are_of_the_run_that_is_read(tmp_path):
    statuses = {"1": ("error", "first?"), "2": ("success", "second?")}
    for day, (status, prompt) in {**statuses, "3": ("error", "third?")}.items():
        scores = {"match": {"value": "I", "answer": prompt}}
        log = {
            "status": status,
            "eval": {
                "task": "t",
                "model": "m",
                "created": f"2026-01-0{day}",
                "eval_id": day,
            },
            "samples": [{"id": 1, "input": prompt, "target": "", "scores": scores}],
        }
        (tmp_path / f"{day}.json").write_text(json.dumps(log))
    expected = ItemText("second?", "", "second?", 1)
    assert list(read(tmp_path).item_texts.values()) == [expected]


def test_texts_nested_beyond_what_can_be_written_are_left_out():
    assert item_texts.text_of(nested(10**5)) == ""


def test_texts_are_cut_and_wrong_answers_few(tmp_path):
    long = "few-shot " * 10**5 + "the question"
    rows = [answered(0, False, "x" * 10**6, arguments=request(long), target=long)]
    write_log(tmp_path, "o__a", rows)
    for k in range(40):
        write_log(tmp_path, f"o__b{k}", [answered(0, False, f"{k}")])
    text = read(tmp_path).item_texts["t/0"]
    assert [len(text.prompt), len(text.answer), len(text.wrong)] == [
        LONGEST,
        LONGEST,
        200,
    ]
    assert text.prompt.startswith("few-shot") and text.prompt.endswith("the question")


def test_texts_of_inspect_and_every_eval_ever():
    table = read(
        next((FIXTURES / "inspect").glob("*task_TaskToy1.eval")), trials="mean"
    )
    assert table.item_texts["toy_task/q1"] == ItemText("toy q1?", "12")
    assert table.item_texts["toy_task/q2"].wrong_count == 1
    assert table.sample_ids("inspect") == {"toy_task": ["q1", "q2"]}
    shared = read(FIXTURES / "eee")
    assert [x[:2] for x in shared.item_texts.values()] == [
        ("toy 0?", "12"),
        ("toy 1?", "12"),
    ]
    assert shared.item_ids == {}
    assert read(FIXTURES / "eee", texts=False).item_texts == {}


@pytest.mark.parametrize("depth", [50, 800])
def test_deep_nesting_is_no_text(tmp_path, depth):
    deep = json.dumps(nested(depth))
    sample = f'{{"id": 1, "input": {deep}, "scores": {{"m": {{"value": 1}}}}}}'
    head = '"status": "success", "eval": {"model": "m", "task": "t", "eval_id": "e"}'
    (tmp_path / "log.json").write_text(f'{{{head}, "samples": [{sample}]}}')
    assert read(tmp_path).item_texts == {"t/1": ItemText()}


def test_messages_of_inspect_are_one_text(tmp_path):
    parts = [{"type": "text", "text": "look"}, {"type": "image", "image": "data:"}]
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": parts},
    ]
    log = {
        "status": "success",
        "eval": {"model": "m", "task": "t", "eval_id": "e"},
        "samples": [
            {
                "id": 7,
                "input": messages,
                "target": ["a", "b"],
                "scores": {"match": {"value": "I", "answer": "c"}},
            },
            {
                "id": 8,
                "input": {"odd": 1},
                "scores": {"match": {"value": float("nan")}},
            },
            {"id": 9, "target": 3, "scores": {"match": {"value": "C", "answer": "3"}}},
        ],
    }
    (tmp_path / "log.json").write_text(json.dumps(log))
    table = read(tmp_path)
    want = ItemText("system: be brief\n\nuser: look", "a or b", "c", 1)
    assert table.item_texts["t/7"] == want
    assert table.item_texts["t/8"] == ItemText()
    assert table.item_texts["t/9"] == ItemText("", "3")


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "jsonl", "frame"])
def test_texts_of_long_tables(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(tabular, "_BLOCK", 256)
    rows = [
        {
            "model": f"m{i}",
            "item": f"{j}",
            "task": f"t{j % 2}",
            "score": (i + j) % 2,
            "prompt": f"what is, {j}?" if j != 3 else None,
            "answer": j if j != 3 else None,
        }
        for i in range(12)
        for j in range(i % 2, 9)  # items begin at different rows
    ]
    frame = pd.DataFrame(rows).astype({"answer": str})
    path = tmp_path / f"a.{ending}"
    if ending == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif ending == "parquet":
        frame.to_parquet(path, row_group_size=7)
    elif ending != "frame":
        frame.to_csv(path, index=False)
    source = frame if ending == "frame" else path
    table = read(source)
    assert table.item_texts["8"][0] == "what is, 8?"
    assert table.item_texts["8"].answer.startswith("8")
    assert read(source, texts=False).item_texts == {}
    # Answers that differ by model are not what is expected.
    frame["answer"] = frame["model"]
    assert read(frame).item_texts["8"] == ItemText("what is, 8?")
    assert read(frame.rename(columns={"answer": "gold"})).item_texts["8"].answer == "m0"


def test_items_named_by_benchmark_keep_their_texts():
    frame = pd.DataFrame(
        {
            "model": ["a", "a"],
            "task": ["x", "y"],
            "item": ["1", "1"],
            "question_text": ["in x", "in y"],
            "score": [1, 0],
        }
    )
    table = read(frame)
    assert {k: v.prompt for k, v in table.item_texts.items()} == {
        "x/1": "in x",
        "y/1": "in y",
    }


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_texts_survive_select_merge_and_saving(tmp_path, ending):
    one = ResponseTable.from_arrays([[1, 0], [0, 1]], items=["a/1", "a/2"])
    text = ItemText(f"{MARKUP} ñ \U0001f600", "2", "3", 4)
    one = dataclasses.replace(
        one,
        item_texts={"a/1": text, "a/2": ItemText("other")},
        item_ids={
            "a/1": (SourceId("lm-eval", "a", "1"),),
            "a/2": (SourceId("lm-eval", "a", ""),),
        },
    )
    loaded = read(one.save(tmp_path / f"t.{ending}"))
    assert read(tmp_path / f"t.{ending}", texts=False).item_texts == {}
    assert loaded.item_texts == one.item_texts and loaded.item_ids == one.item_ids
    assert one.data_hash() == loaded.data_hash()
    part = loaded.select(items=["a/1"])
    assert part.item_texts == {"a/1": text} and list(part.item_ids) == ["a/1"]
    other = ResponseTable.from_arrays([[1]], subjects=["n"], items=["a/1"])
    again = {"a/1": (SourceId("lm-eval", "a", "9"),)}
    merged = read([part, dataclasses.replace(other, item_ids=again)])
    assert merged.item_texts == {"a/1": text}
    with pytest.raises(ValueError, match=r"'a/1': the logs differ in .*\(a 1, a 9\)"):
        merged.sample_ids("lm-eval")


def test_ids_of_lm_eval_are_its_own_numbers(tmp_path):
    for name, order in (("a", (2, 10, 0)), ("b", (0, 2, 10))):
        rows = [sample(k, 1.0, content=f"c{k}") for k in order]
        write_log(tmp_path, f"o__{name}", rows)
        write_log(tmp_path, f"o__{name}", rows[:1], task="u_v")
    table = read(tmp_path)
    assert table.sample_ids("lm-eval")["t"] == [0, 2, 10]
    named = read(tmp_path, item="doc_hash")
    assert named.select(items=["t/c10"]).sample_ids("lm-eval") == {"t": [10]}
    with pytest.raises(ValueError, match="'t/2' is of no log of inspect"):
        table.sample_ids("inspect")
    with pytest.raises(ValueError, match="not one of 'lm-eval', 'inspect'"):
        table.sample_ids("helm")
    plain = ResponseTable.from_arrays(np.eye(2))
    assert item_texts.sample_files(plain.items.tolist(), plain.item_ids) == {}
    with pytest.raises(ValueError, match="'item 1' is of no log of lm-eval"):
        plain.sample_ids("lm-eval")


def test_logs_that_disagree_on_numbers_are_refused(tmp_path):
    write_log(tmp_path, "o__a", [sample(0, 1.0, content="x"), sample(1, 1.0)])
    write_log(tmp_path, "o__b", [sample(5, 1.0, content="x"), sample(1, 1.0)])
    table = read(tmp_path)
    message = r"item 't/0': the logs differ in its number there \(t 0, t 5\); give logs"
    with pytest.raises(ValueError, match=message):
        table.sample_ids("lm-eval")
    assert table.select(items=["t/1"]).sample_ids("lm-eval") == {"t": [1]}


def test_a_number_with_two_contents_is_refused(tmp_path):
    write_log(tmp_path, "o__a", [sample(0, 1.0, content="old")])
    write_log(tmp_path, "o__b", [sample(0, 1.0, content="new")])
    table = read(tmp_path)
    assert table.num_items == 2
    with pytest.raises(ValueError, match="its number there stands for items of diff"):
        table.select(items=table.items[:1]).sample_ids("lm-eval")


def test_parts_of_a_score_are_one_document():
    table = read(FIXTURES / "lm_eval", parts="items", trials="mean")
    several = [name for name in table.items.tolist() if name.startswith("ifeval/0")]
    assert table.select(items=several).sample_ids("lm-eval") == {"ifeval": [0]}


def test_files_for_harnesses():
    ids = {
        "t/a": (SourceId("inspect", "t", "a*"),),
        "t/b": (SourceId("inspect", "t", "it's"),),
        "u/c": (SourceId("inspect", "u", "x,y"),),
        "v/1": (SourceId("lm-eval", "v", "12"), SourceId("inspect", "v", "w")),
        "v/2": (SourceId("lm-eval", "v", "3"), SourceId("inspect", "v", "z")),
    }
    files = item_texts.sample_files(["t/b", "t/a", "u/c"], ids)
    assert json.loads(files["inspect_samples.json"]) == {
        "t": ["it's", "a[*]"],
        "u": ["x,y"],
    }
    first, second = files["inspect_samples.txt"].splitlines()
    assert first == """inspect eval t --sample-id 'it'"'"'s,a[*]'"""
    assert second.startswith("# 'u': 'x,y' has a comma")
    files = item_texts.sample_files(["v/1", "v/2"], ids)
    assert files["lm_eval_samples.json"] == '{"v": [3, 12]}\n'
    assert set(files) == set(SAMPLE_FILES) == set(ON_COMMAND_LINE)
    with pytest.raises(ValueError, match="'t/a' is of no log of lm-eval"):
        item_texts.sample_files(["v/1", "t/a"], ids)


def test_the_option_keeps_no_texts(tmp_path):
    write_log(tmp_path, "o__a", [answered(0, True, "12")])
    assert Reading().read([str(tmp_path)]).item_texts
    quiet = Reading(texts=False)
    assert quiet.read([str(tmp_path)]).item_texts == {}
    assert quiet.flags() == ["--no-texts"]
