"""Sample logs of lm-evaluation-harness, and items that join by content."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irtjax.data import ResponseTable, read
from irtjax.data.reading.identity import ItemKey, copies, label_items

FIXTURES = Path(__file__).parent.parent / "fixtures"
HARNESS = FIXTURES / "lm_eval" / "toyorg__toy-1b"
DATE = "2026-03-01T10-20-30.123456"


def sample(doc_id, value, *, content=None, metric="acc", filter="none", **more):
    """One record of lm-evaluation-harness."""
    record = {
        "doc_id": doc_id,
        "doc": {"id": f"d{doc_id}"},
        "target": "0",
        "arguments": {},
        "resps": [["x"]],
        "filtered_resps": ["x"],
        "filter": filter,
        "metrics": [metric],
        "doc_hash": content or f"hash{doc_id}",
        metric: value,
    }
    return {k: v for k, v in {**record, **more}.items() if v is not ...}


def write_log(folder, model, records, *, task="t", date=DATE, ending="jsonl"):
    place = folder / model
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"samples_{task}_{date}.{ending}"
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


def harness(name: str, **options) -> ResponseTable:
    return read(next(HARNESS.glob(f"samples_{name}_*")), **options)


def test_harness_filters():
    strict = harness("gsm8k", filter="strict-match")
    assert strict.subjects.tolist() == ["toyorg/toy-1b"]
    assert strict.items.tolist() == ["gsm8k/0", "gsm8k/1"]
    assert strict.benchmarks.tolist() == ["gsm8k", "gsm8k"]
    assert strict.values.tolist() == [[1, 0]]
    assert strict.metric == "exact_match,strict-match"
    flexible = harness("gsm8k", metric="exact_match,flexible-extract")
    assert flexible.values.tolist() == [[1, 1]]
    # The usual one, and it is said.
    usual = harness("gsm8k")
    assert usual.values.tolist() == strict.values.tolist()
    note = "gsm8k: exact_match with strict-match, not flexible-extract"
    assert any(note in x for x in usual.notes)
    assert not any("usual" in x for x in strict.notes)
    with pytest.raises(ValueError, match="no filter 'maj'.*strict-match"):
        harness("gsm8k", filter="maj")
    # A filter of its own wins over that in the name of a metric.
    both = harness(
        "gsm8k", metric="exact_match,strict-match", filter="flexible-extract"
    )
    assert both.metric == "exact_match,flexible-extract"


def test_harness_metrics():
    assert harness("arc_easy", metric="acc").values.tolist() == [[1, 0]]
    assert harness("arc_easy", metric="acc_norm").values.tolist() == [[0, 0]]
    usual = harness("arc_easy")
    assert (usual.metric, usual.values.tolist()) == ("acc_norm", [[0, 0]])
    assert any("arc_easy: acc_norm, not acc" in note for note in usual.notes)
    with pytest.raises(ValueError, match="no metric 'f1'; there are: acc, acc_norm"):
        harness("arc_easy", metric="f1")


def test_harness_lists_are_averaged_or_made_items():
    single = harness("ifeval", metric="prompt_level_strict_acc")
    assert single.values.tolist() == [[0]]
    assert not any("averaged" in note for note in single.notes)
    name = "inst_level_strict_acc"
    assert harness("ifeval", metric=name).values.tolist() == [[0.5]]
    parts = harness("ifeval", metric=name, parts="items")
    assert parts.items.tolist() == ["ifeval/0#1", "ifeval/0#2"]
    assert any("made items of their own" in note for note in parts.notes)
    assert parts.values.tolist() == [[1, 0]]


def test_harness_repeats():
    with pytest.raises(ValueError, match="2 epochs or trials: choose trials="):
        harness("aime", trials="error")
    assert harness("aime").kind == "counts"
    assert harness("aime", trials="mean").values.tolist() == [[0.5]]
    assert harness("aime", trials="first").values.tolist() == [[1]]
    assert harness("aime", epoch=1).values.tolist() == [[0]]
    counts = harness("aime", trials="counts")
    assert counts.kind == "counts"
    assert counts.trials is not None
    assert (counts.values.tolist(), counts.trials.tolist()) == ([[1]], [[2]])


def test_harness_array_of_the_first_versions():
    path = next((FIXTURES / "lm_eval_old").glob("*.jsonl"))
    table = read(path, filter="filter0")
    assert table.subjects.tolist() == ["toyorg/toy-1b"]
    assert table.items.tolist() == ["gsm8k/0", "gsm8k/1"]
    assert table.values.tolist() == [[0, 1]]
    assert read(path).values.tolist() == [[0, 1]]


def old_log(folder, scores, results=None, task="gsm8k", model="org__old"):
    """A log up to 0.4.6: scores by filter, in order, without names."""
    records = [
        sample(k, value, metric="exact_match", filter=..., metrics=...)
        for one in scores
        for k, value in enumerate(one)
    ]
    write_log(folder, model, records, task=task)
    if results is not None:
        content = {"results": {task: {f"exact_match,{k}": v for k, v in results}}}
        path = folder / model / f"results_{DATE}.json"
        path.write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {"filter": "strict-match"},
        {"filter": {"gsm8k": "strict-match"}},
        {"metric": "exact_match,strict-match"},
    ],
)
def test_the_only_filter_of_an_old_log_needs_no_name(tmp_path, options):
    table = read(old_log(tmp_path, [[1, 0]]), **options)
    assert table.values.tolist() == [[1, 0]]
    assert any("their only one was read for" in note for note in table.notes)


def test_only_filters_with_names_are_not_taken_for_others(tmp_path):
    records = [sample(0, 1, metric="exact_match"), sample(1, 0, metric="exact_match")]
    write_log(tmp_path, "m", records, task="gsm8k")
    with pytest.raises(ValueError, match="no filter 'strict-match'"):
        read(tmp_path, filter={"gsm8k": "strict-match"})
    with pytest.raises(ValueError, match="no filter 'strict-match'"):
        read(tmp_path, filter="strict-match")


def test_results_name_the_filters_of_old_logs(tmp_path):
    named = [("strict-match", 0.5), ("flexible-extract", 1.0)]
    folder = old_log(tmp_path / "a", [[1, 0], [1, 1]], named)
    assert read(folder).values.tolist() == [[1, 0]]
    flexible = read(folder, filter="flexible-extract")
    assert flexible.values.tolist() == [[1, 1]]
    # Means that contradict the order: the names are not sure.
    wrong = [(name, 0.25) for name, _ in named]
    folder = old_log(tmp_path / "b", [[1, 0], [1, 1]], wrong)
    assert read(folder).metric == "exact_match,filter0"
    # One filter whose name is another.
    folder = old_log(tmp_path / "c", [[1, 0]], [("flexible-extract", 0.5)])
    with pytest.raises(ValueError, match="no filter 'strict-match'"):
        read(folder, filter={"gsm8k": "strict-match"})
    assert read(folder).metric == "exact_match,flexible-extract"


def test_harness_folder_of_tasks():
    table = read(
        FIXTURES / "lm_eval",
        metric=["acc_norm", "prompt_level_loose_acc", "exact_match"],
        filter="flexible-extract",
        trials="mean",
    )
    scores = dict(zip(table.items.tolist(), table.values[0].tolist(), strict=True))
    assert scores == {
        "aime/0": 0.5,
        "arc_easy/0": 0.0,
        "arc_easy/1": 0.0,
        "gsm8k/0": 1.0,
        "gsm8k/1": 1.0,
        "ifeval/0": 1.0,
    }
    assert any("metric differs by benchmark" in note for note in table.notes)
    by_name = read(
        FIXTURES / "lm_eval",
        metric={"arc_easy": "acc", "ifeval": "prompt_level_strict_acc"},
        filter="strict-match",
        trials="mean",
    )
    assert by_name.item_accuracy().tolist() == [0.5, 1, 0, 1, 0, 0]


def test_epoch_leaves_tasks_without_repeats_alone():
    table = read(
        FIXTURES / "lm_eval",
        metric=["acc", "exact_match", "prompt_level_strict_acc"],
        filter="strict-match",
        epoch=1,
    )
    assert table.num_items == 6
    assert table.select(items=["aime/0"]).values.tolist() == [[0]]


def test_old_and_new_versions_of_one_task_merge(tmp_path):
    write_log(tmp_path, "a", [sample(0, 1.0)])
    write_log(tmp_path, "b", [sample(0, 0.0, filter=..., metrics=..., doc_hash=...)])
    table = read(tmp_path)
    assert table.items.tolist() == ["t/0"]
    assert table.values.tolist() == [[1], [0]]


def test_direction_of_a_metric_is_that_of_the_results(tmp_path):
    write_log(tmp_path, "a", [sample(0, 1.0, metric="error_rate")])
    totals = {"results": {"t": {}}, "higher_is_better": {"t": {"error_rate": False}}}
    (tmp_path / "a" / f"results_{DATE}.json").write_text(
        json.dumps({**totals, "model_name": "org/a"})
    )
    table = read(tmp_path)
    assert table.subjects.tolist() == ["org/a"]
    assert any("lower error_rate is better" in note for note in table.notes)
    assert table.values.tolist() == [[0]]


def test_harness_metric_that_a_task_lacks_is_the_usual_one_there_and_said():
    names = ("arc_easy", "gsm8k", "ifeval", "aime")
    paths = [next(HARNESS.glob(f"samples_{name}_*")) for name in names]
    table = read(paths, metric="acc", trials="mean")
    assert set(table.benchmarks) == set(names)
    assert table.metric == (
        "acc / exact_match,score-first / exact_match,strict-match"
        " / prompt_level_strict_acc"
    )
    (note,) = (x for x in table.notes if "lack the metric 'acc'" in x)
    for text in (
        "3 benchmarks",
        "ifeval: prompt_level_strict_acc",
        "aime: exact_match",
    ):
        assert text in note
    # A list is all that is wanted.
    only = read(paths, metric=["acc"])
    assert set(only.benchmarks) == {"arc_easy"}
    assert sum("has no metric 'acc' and was left out" in n for n in only.notes) == 3
    for missing in ("nope", ["nope"], {"*": "nope"}):
        with pytest.raises(
            ValueError, match="no metric .*nope.*; there are: acc, acc_"
        ):
            read(paths, metric=missing)


def test_harness_metric_that_a_task_lacks_needs_a_choice_where_none_is_usual(tmp_path):
    paths = [next(HARNESS.glob("samples_arc_easy_*"))]
    many = {"metrics": ["bleu", "rouge"], "bleu": 1.0, "rouge": 0.0}
    paths += [write_log(tmp_path, "a", [{**sample(0, 1.0, metric="bleu"), **many}])]
    with pytest.raises(ValueError, match="benchmark 't' has no metric") as caught:
        read(paths, metric="acc")
    message = str(caught.value)
    assert "\n" not in message
    assert "it has bleu, rouge" in message
    assert "metric={'arc_easy': 'acc', 't': 'bleu'}" in message
    # One other metric that is not usual: nothing to choose, and nothing is guessed.
    write_log(tmp_path, "a", [sample(0, 1.0, metric="bleu")])
    table = read(paths, metric="acc")
    assert set(table.benchmarks) == {"arc_easy"}
    assert any("'t' has no metric 'acc' and was left out" in n for n in table.notes)


def test_metrics_and_filters_by_benchmark():
    names = ("arc_easy", "ifeval", "gsm8k")
    paths = [next(HARNESS.glob(f"samples_{name}_*")) for name in names]
    usual = read(paths)
    assert usual.metric == (
        "acc_norm / exact_match,strict-match / prompt_level_strict_acc"
    )
    # What a mapping does not name is as without it; "*" is for all others.
    named = {"arc_easy": "acc", "gsm8k": "exact_match,flexible-extract"}
    table = read(paths, metric=named)
    assert table.metric == (
        "acc / exact_match,flexible-extract / prompt_level_strict_acc"
    )
    assert dict(zip(table.items.tolist(), table.values[0].tolist(), strict=True)) == {
        "arc_easy/0": 1, "arc_easy/1": 0, "ifeval/0": 0, "gsm8k/0": 1, "gsm8k/1": 1,
    }  # fmt: skip
    others = read(paths, metric={"arc_easy": "acc", "*": "exact_match"})
    assert set(others.benchmarks) == {"arc_easy", "gsm8k"}
    note = "benchmark 'ifeval' has no metric 'exact_match' and was left out"
    assert any(note in x for x in others.notes)
    with pytest.raises(ValueError, match="no metric 'acc' on benchmark 'gsm8k'; there"):
        read(paths, metric={"gsm8k": "acc"})
    by_filter = read(paths, filter={"gsm8k": "flexible-extract"})
    assert by_filter.metric is not None and "flexible-extract" in by_filter.metric
    for option in ("metric", "filter"):
        with pytest.raises(ValueError, match=f"{option}: no benchmark 'x'; there are"):
            read(paths, **{option: {"x": "acc"}})


@pytest.mark.parametrize("value", [0, 999, None])
@pytest.mark.parametrize("listed", [True, False])
def test_answers_that_were_not_scored_are_no_responses(tmp_path, value, listed):
    more = {} if listed else {"metrics": ..., "filter": ...}
    records = [sample(k, value, metric="bypass", **more) for k in range(2)]
    path = write_log(tmp_path, "a", records)
    with pytest.raises(ValueError, match="--predict_only; evaluate it again") as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    # Beside a scored log it takes no part: not even its subject is in the table.
    write_log(tmp_path, "b", [sample(0, 1.0), sample(1, 0.0)])
    table = read(tmp_path)
    assert table.subjects.tolist() == ["b"]
    assert table.kind == "binary"
    assert any(f"{path} holds answers without" in note for note in table.notes)


def test_no_score_is_not_offered_among_metrics(tmp_path):
    scored = sample(0, 1.0, bypass=0)
    path = write_log(tmp_path, "a", [{**scored, "metrics": ["bypass", "acc"]}])
    assert read(path).metric == "acc"
    with pytest.raises(ValueError, match="no metric 'bypass'; there are: acc$"):
        read(path, metric="bypass")


def test_leaderboard_json_lines_without_filters(tmp_path):
    records = [
        sample(k, float(k), filter=..., metrics=..., acc_norm=1.0) for k in (0, 1)
    ]
    for record in records:
        del record["acc"]
    write_log(tmp_path, "org__m_x", records, task="leaderboard_mmlu_pro", ending="json")
    table = read(tmp_path)
    assert table.subjects.tolist() == ["org/m_x"]
    assert table.items.tolist() == ["leaderboard_mmlu_pro/0", "leaderboard_mmlu_pro/1"]
    assert table.metric == "acc_norm"


def test_lines_in_any_order_join_by_content(tmp_path):
    # The second model saw the documents in another order: ids differ, content agrees.
    write_log(tmp_path, "a", [sample(0, 1.0, content="x"), sample(1, 0.0, content="y")])
    write_log(tmp_path, "b", [sample(1, 1.0, content="x"), sample(0, 0.0, content="y")])
    table = read(tmp_path)
    assert table.items.tolist() == ["t/0", "t/1"]
    assert table.values.tolist() == [[1, 0], [1, 0]]
    assert any("joined by content under differing ids" in n for n in table.notes)
    assert read(tmp_path, join="id").values.tolist() == [[1, 0], [0, 1]]


def test_one_id_with_two_contents_is_two_items(tmp_path):
    write_log(tmp_path, "a", [sample(0, 1.0, content="x"), sample(1, 0.0, content="y")])
    write_log(
        tmp_path, "b", [sample(0, 1.0, content="x"), sample(1, 0.0, content="zz")]
    )
    table = read(tmp_path)
    assert table.items.tolist() == ["t/0", "t/1", "t/1~zz"]
    assert table.num_observed == 4
    assert any("1 id stands for items of differing content" in n for n in table.notes)


def test_equal_documents_within_a_task_stay_apart(tmp_path):
    records = [sample(k, float(k % 2), content="same") for k in range(3)]
    write_log(tmp_path, "a", records)
    write_log(tmp_path, "b", records[::-1])
    assert read(tmp_path).values.tolist() == [[0, 1, 0], [0, 1, 0]]


def test_latest_run_is_taken(tmp_path):
    write_log(tmp_path, "a", [sample(0, 0.0)], date="2026-03-01T10-20-30.123456")
    write_log(tmp_path, "a", [sample(0, 1.0)], date="2026-04-01T10-20-30.123456")
    write_log(tmp_path, "b", [sample(0, 0.0)], date="2025-01-01T10-20-30.123456")
    table = read(tmp_path)
    assert table.values.tolist() == [[1], [0]]
    assert any("the latest run was taken" in note for note in table.notes)
    assert read(tmp_path, run="all", trials="mean").values.tolist() == [[0.5], [0]]
    assert read(tmp_path, run="all").trials is not None


def test_item_named_by_a_path_into_the_record(tmp_path):
    path = write_log(tmp_path, "a", [sample(0, 1.0), sample(1, 0.0)])
    assert read(path, item="doc.id").items.tolist() == ["t/d0", "t/d1"]
    with pytest.raises(ValueError, match="no field 'key'; there are: id"):
        read(path, item="doc.key")


def test_pairs_are_no_scores(tmp_path):
    records = [sample(k, [0.0, 1.0], metric="f1") for k in (0, 1)]
    path = write_log(tmp_path, "a", records)
    with pytest.raises(ValueError, match="no record has a score"):
        read(path)
    for record in records:
        record["metrics"].append("acc")
        record["acc"] = 1.0
    path = write_log(tmp_path, "a", records)
    table = read(path)
    assert table.metric == "acc"
    assert any("'f1' has no score per item in 2 records" in n for n in table.notes)


def test_missing_is_not_wrong(tmp_path):
    write_log(tmp_path, "a", [sample(0, 1.0), sample(1, None), sample(2, math.nan)])
    write_log(tmp_path, "b", [sample(0, 0.0), sample(1, 1.0), sample(2, 1.0)])
    table = read(tmp_path)
    assert table.item_accuracy().tolist() == [0.5, 1.0, 1.0]
    assert any("2 of 6 cells (33.33 %) are missing" in note for note in table.notes)
    wrong = read(tmp_path, missing_as="wrong")
    assert wrong.observed is None
    assert wrong.item_accuracy().tolist() == [0.5, 0.5, 0.5]
    assert any("count as wrong" in note for note in wrong.notes)


def test_items_that_all_or_none_solve_are_kept(tmp_path):
    for model in "ab":
        write_log(tmp_path, model, [sample(0, 1.0), sample(1, 0.0)])
    assert read(tmp_path).item_accuracy().tolist() == [1, 0]


def test_totals_never_enter_the_table():
    with pytest.raises(ValueError, match="totals of an evaluation.*--log_samples"):
        read(next(HARNESS.glob("results_*.json")))


def test_old_log_without_hashes_joins_by_id():
    keys = [ItemKey("t", "0", "x"), ItemKey("t", "0"), ItemKey("t", "1")]
    assert label_items(keys, "hash")[0] == ["t/0", "t/0", "t/1"]


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc")), unique=True))
def test_labels_are_equal_exactly_for_equal_content(pairs):
    numbered = copies((str(k), content) for k, content in pairs)
    keys = [ItemKey("t", str(k), content, numbered[str(k)]) for k, content in pairs]
    labels, _ = label_items(keys, "hash")
    groups = {(key.content, key.copy) for key in keys}
    assert len(set(labels)) == len(groups)
    for a, label_a in zip(keys, labels, strict=True):
        for b, label_b in zip(keys, labels, strict=True):
            same = (a.content, a.copy) == (b.content, b.copy)
            assert same == (label_a == label_b)
