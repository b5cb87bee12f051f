"""The metric, filter and run that are read when subjects differ in what they have."""

import json

import pytest

from irtjax.data import read
from irtjax.data.reading.options import Choices, ReadOptions
from irtjax.data.reading.read import gather
from irtjax.data.reading.survey import open_choices

DATE = "2026-03-01T10-20-30.123456"
FILTERS = ("strict-match", "flexible-extract")


def write_log(folder, subject, scores, *, task="t", filters=("none",), date=DATE):
    """Writes a sample log; `scores` has by metric the score of each document."""
    path = folder / subject / f"samples_{task}_{date}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "doc_id": number,
            "doc_hash": f"hash{number}",
            "doc": {"id": number},
            "target": "0",
            "filter": name,
            "metrics": list(scores),
            **{metric: values[number] for metric, values in scores.items()},
        }
        for name in filters
        for number in range(len(next(iter(scores.values()))))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def offered(source, **asked):
    """What the command that `irtjax info` prints has to choose."""
    options = ReadOptions(**asked)
    records = gather(source, options).records
    assert records is not None
    return open_choices(records, options)


def noted(table, text):
    return any(text in note for note in table.notes)


@pytest.fixture
def uneven(tmp_path):
    """Of two subjects, only the first has the metric that is usually read."""
    write_log(tmp_path, "a", {"acc": [1, 0], "acc_norm": [0, 1]})
    write_log(tmp_path, "b", {"acc": [1, 1]})
    return tmp_path


def test_usual_metric_is_one_that_every_subject_has(uneven):
    table = read(uneven)
    assert (table.subjects.tolist(), table.metric) == (["a", "b"], "acc")
    assert table.values.tolist() == [[1, 0], [1, 1]]
    assert offered(uneven) == {}


def test_subjects_without_the_metric_are_noted(uneven):
    table = read(uneven, metric="acc_norm")
    assert table.subjects.tolist() == ["a"]
    note = "1 of 2 subjects has no metric 'acc_norm' on t and was left out there: b"
    assert noted(table, note)
    assert not noted(read(uneven, metric="acc"), "left out")


def test_subjects_without_the_filter_are_noted(tmp_path):
    write_log(tmp_path, "a", {"exact_match": [1, 0]}, filters=FILTERS)
    write_log(tmp_path, "b", {"exact_match": [1, 0]})
    write_log(tmp_path, "c", {"exact_match": [1, 0]})
    table = read(tmp_path)
    assert table.subjects.tolist() == ["a"]
    assert noted(table, "2 of 3 subjects have no filter 'strict-match' on t and were")


def test_subjects_of_a_table_without_the_metric_are_noted(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(
        "model,item,metric,score\na,q,acc,1\na,q,acc_norm,0\nb,q,acc,1\na,r,acc_norm,1\n"
    )
    table = read(path, metric="acc_norm")
    assert noted(table, "1 of 2 subjects has no metric 'acc_norm' and was left out")


def completions(folder, subject, temperature, status):
    path = folder / f"{subject}_vllm_temp_{temperature}.eval_results.json"
    found = {"base_status": status, "plus_status": status}
    tasks = {f"HumanEval/{number}": [found] for number in range(2)}
    path.write_text(json.dumps({"eval": tasks, "hash": ""}))


def test_filter_of_one_subject_is_read_of_all(tmp_path):
    completions(tmp_path, "a", 0.2, "pass")
    completions(tmp_path, "a", 0.8, "fail")
    completions(tmp_path, "b", 0.2, "fail")
    table = read(tmp_path, filter="vllm_temp_0.2")
    assert table.subjects.tolist() == ["a", "b"]
    assert table.values.tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize(
    "asked",
    [
        {"filter": Choices(["t=flexible-extract"])},
        {"filter": {"t": "flexible-extract"}},
        {"metric": "exact_match,flexible-extract"},
    ],
)
def test_filter_of_a_benchmark_is_not_replaced(tmp_path, asked):
    write_log(tmp_path, "a", {"exact_match": [1, 0]}, filters=FILTERS[:1])
    with pytest.raises(ValueError, match="no filter 'flexible-extract' on benchmark"):
        read(tmp_path, **asked)
    with pytest.raises(ValueError, match="no filter 'flexible-extract' on benchmark"):
        offered(tmp_path, **asked)


@pytest.mark.parametrize(
    "asked",
    [
        {"metric": Choices(["t=foo,second"])},
        {"metric": {"t": "foo,second"}},
        {"metric": "foo,second"},
    ],
)
def test_filter_in_the_name_of_a_metric_leaves_nothing_to_choose(tmp_path, asked):
    scores = {"foo": [1, 0], "bar": [0, 1]}
    write_log(tmp_path, "a", scores, filters=("first", "second"))
    assert offered(tmp_path, **asked) == {}
    assert read(tmp_path, **asked).metric == "foo,second"


def test_an_unknown_filter_is_shown_as_it_was_typed(tmp_path):
    write_log(tmp_path, "a", {"exact_match": [1, 0]}, filters=FILTERS)
    write_log(tmp_path, "a", {"acc": [1, 0]}, task="u")
    with pytest.raises(ValueError, match="no filter other, t=strict-match; there are"):
        read(tmp_path, filter={"*": "other", "t": "strict-match"})


def test_filter_of_all_benchmarks_leaves_those_with_one(tmp_path):
    write_log(tmp_path, "a", {"exact_match": [1, 0]}, filters=FILTERS)
    write_log(tmp_path, "a", {"acc": [1, 0]}, task="u")
    table = read(tmp_path, filter="flexible-extract")
    assert table.metric == "acc / exact_match,flexible-extract"


def test_shorter_latest_run_is_noted(tmp_path):
    for task in ("t", "u"):
        write_log(tmp_path, "a", {"acc": [1, 1, 1, 0, 0]}, task=task)
    later = DATE.replace("2026-03", "2026-04")
    write_log(tmp_path, "a", {"acc": [0]}, date=later)
    write_log(tmp_path, "a", {"acc": [0, 0, 0, 0, 1]}, date=later, task="u")
    table = read(tmp_path)
    assert table.num_items == 6
    assert noted(table, "fewer responses than another (a on t: 1 of 5 items): leave")


def inspect_log(path, scores, status="success", **spec):
    """Writes an Inspect log; None is a sample in error, two in a list are epochs."""
    samples = [
        {"id": number, "epoch": epoch, "scores": {} if x is None else {"s": x}}
        for number, epochs in enumerate(scores)
        for epoch, x in enumerate(epochs, 1)
    ]
    spec = {"task": "t", "model": "m", "eval_id": path.name, **spec}
    path.write_text(json.dumps({"status": status, "eval": spec, "samples": samples}))
    return path


def test_run_that_succeeded_is_preferred(tmp_path):
    inspect_log(tmp_path / "a.json", [["C"], ["I"]], created="2026-01-02")
    inspect_log(tmp_path / "b.json", [["I"]], "cancelled", created="2026-01-03")
    table = read(tmp_path)
    assert table.values.tolist() == [[1, 0]]
    assert noted(table, "a run that succeeded was taken, and a later one that did not")
    assert not noted(table, "fewer responses")
    # Of those that did not succeed, the latest.
    inspect_log(tmp_path / "a.json", [["C"], ["C"]], "error", created="2026-01-02")
    table = read(tmp_path)
    assert table.values.tolist() == [[0]]
    assert noted(table, "(m on t: 1 of 2 items)")
    assert not noted(table, "a run that succeeded was taken")


def test_failed_repeats_count_as_wrong_if_asked(tmp_path):
    path = inspect_log(tmp_path / "a.json", [["C", None], ["C", "C"], [None, None]])
    assert read(path, trials="mean").values.tolist() == [[1, 1, 0]]
    wrong = read(path, trials="mean", missing_as="wrong")
    assert wrong.values.tolist() == [[0.5, 1, 0]]
    assert wrong.observed is None
    assert noted(wrong, "3 missing responses count as wrong")
    assert noted(wrong, "3 samples without a score count as wrong")
    counts = read(path, trials="counts", missing_as="wrong")
    assert counts.values.tolist() == [[1, 2, 0]]
    assert counts.trials is not None
    assert counts.trials.tolist() == [[2, 2, 2]]
    single = inspect_log(tmp_path / "b.json", [["C", None]])
    assert offered(single, missing_as="wrong") == {}
    usual = read(single, missing_as="wrong")
    assert usual.values.tolist() == [[1]] and usual.trials is not None
    assert usual.trials.tolist() == [[2]]
    assert offered(single, missing_as="wrong", trials="error") == {"trials": "auto"}


def test_subject_of_a_log_in_the_working_folder(tmp_path, monkeypatch):
    path = write_log(tmp_path, "org__m", {"acc": [1, 0]})
    monkeypatch.chdir(path.parent)
    assert read(path.name).subjects.tolist() == ["org/m"]


def test_repeats_in_two_files_name_both(tmp_path):
    write_log(tmp_path / "x", "a", {"acc": [1, 0]})
    write_log(tmp_path / "y", "a", {"acc": [0, 0]})
    names = r"2 responses, in .*x/a/samples_t_.*, .*y/a/samples_t_.* distinct names$"
    with pytest.raises(ValueError, match=names):
        read(tmp_path, trials="error")
    rows = "model,item,score\nm,q,1\nm,r,0\n"
    for name in ("one.csv", "two.csv"):
        (tmp_path / name).write_text(rows)
    paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
    with pytest.raises(ValueError, match=r"2 responses, in .*one.csv, .*two.csv; 2"):
        read(paths, trials="error")
    for path in paths:
        path.write_text("model,q,r\nm,1,0\nn,1,1\n")
    with pytest.raises(ValueError, match=r"two.csv: the .* also in .*one.csv \(4"):
        read(paths, trials="error")
    # Epochs in one file do not name it twice.
    path = inspect_log(tmp_path / "a.json", [["C", "I"]])
    with pytest.raises(ValueError, match="2 epochs or trials: choose"):
        read(path, trials="error")


def test_item_that_occurs_twice_names_the_file(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("item,a,b\nq,1,0\nq,1,1\n")
    with pytest.raises(ValueError, match=r"wide.csv: item 'q' occurs 2 times"):
        read(path, orientation="items_by_subjects", subject_name="m")
