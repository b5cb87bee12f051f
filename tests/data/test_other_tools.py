"""Files of evaluation tools that are described by paths, and files of totals."""

import csv
import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irtjax.data import read
from irtjax.data.formats import arena
from irtjax.data.reading.recognise import identify
from tests.reading_cases import refused

FIXTURES = Path(__file__).parent.parent / "fixtures"
SMALL, LARGE = "toyorg/toy-1b", "toyorg/toy-7b"


def cells(table):
    seen = table.values if table.observed is None else table.observed
    known = seen if table.observed is not None else [[True] * table.num_items] * 99
    return {
        subject: [
            float(table.values[i, j]) if known[i][j] else None
            for j in range(table.num_items)
        ]
        for i, subject in enumerate(table.subjects.tolist())
    }


def noted(table, part):
    return any(part in note for note in table.notes)


def write(path, content, lines=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = content if lines else [content]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


@pytest.fixture
def logs(tmp_path):
    """A copy of a fixture's folder, to change."""

    def copy(name):
        return Path(shutil.copytree(FIXTURES / name, tmp_path / name))

    return copy


PLAIN = {SMALL: [1, 0, 0], LARGE: [1, 1, 0]}
SHORT = {"toy-1b": [1, 0, 0], "toy-7b": [1, 1, 0]}
CASES = [f"test_case_{k}" for k in range(3)]
TASKS = [f"task-{k}" for k in range(3)]
QUESTIONS = [f"arena-hard-v0.1/{k:032x}" for k in range(3)]


@pytest.mark.parametrize(
    ("folder", "metric", "items", "rows"),
    [
        ("deepeval", "success", CASES, PLAIN),
        ("evalscope", "acc", [f"gsm8k_main/{k}" for k in range(3)], SHORT),
        ("braintrust", "ExactMatch", [f"record{k}" for k in range(3)], PLAIN),
        (
            "wildbench",
            "score",
            ["s0", "s1", "s2"],
            {SMALL: [7, 3, 3], LARGE: [7, 7, 3]},
        ),
        ("terminal_bench", "is_resolved", TASKS, PLAIN),
        ("harbor", "reward", TASKS, {SMALL: [1, 0, 0], LARGE: [1, 1, None]}),
        ("mlflow", "exact_match/v1", ["1", "2", "3"], SHORT),
        ("langfuse", "correctness", [f"item-{k}" for k in range(3)], PLAIN),
        (
            "promptfoo",
            "success",
            ["0", "1", "2"],
            {f"openai:{model}": row for model, row in PLAIN.items()},
        ),
        (
            "bigcodebench",
            "status",
            [f"BigCodeBench/{k}" for k in range(3)],
            PLAIN,
        ),
        (
            "swe_bench_info",
            None,
            [f"swe_bench/toy__repo-{k}" for k in range(3)],
            SHORT,
        ),
        (
            "aider",
            "pass",
            ["go/bowling", "python/bowling", "rust/bowling"],
            {SMALL: [0, 1, 0], LARGE: [1, 1, 0]},
        ),
        (  # Wins by A and B swapped, clear ones three times: (1·1 + 3·0) / 4 and so on.
            "arena_hard",
            "win",
            QUESTIONS,
            {"toy-1b": [1, 0.5 / 4, 0], "toy-7b": [1, 0.75, None]},
        ),
        ("lmms_eval", "toy_acc", [f"toy_mmmu/{k}" for k in range(3)], PLAIN),
        (
            "mteb",
            "main_score,test",
            ["ToyClassification", "ToyRetrieval", "ToySTS"],
            {SMALL: [0.4, 0.6, 0.4], LARGE: [0.4, 0.6, 0.6]},
        ),
    ],
)
def test_a_folder_of_a_tool(folder, metric, items, rows):
    table = read(FIXTURES / folder)
    assert table.metric == metric
    assert table.items.tolist() == items
    found = cells(table)
    assert list(found) == list(rows)
    for subject, row in rows.items():
        assert found[subject] == pytest.approx(row), subject


CASE_ROWS = {
    # Subjects, items, and the mean response, counted in the files without irtjax.
    "C16": (6, 25, 0.54),
    "C43": (6, 30, 103 / 180),
    "C70": (6, 6, None),
    "C19": (5, 20, 0.66),
    "C18": (6, 20, 0.625),
    "C51": (5, 25, 0.68),
    "C13": (8, 40, 167 / 320),
    "C01": (9, 40, None),
    "C46": (6, 30, 106 / 180),
    "C87": (6, 20, 77 / 120),
    "C04": (4, 80, 196 / 320),
    "C11": (8, 20, None),
    "C03b": (8, 44, None),
}


@pytest.mark.parametrize("case", CASE_ROWS)
def test_files_that_people_have(shared_cases, case):
    subjects, items, mean = CASE_ROWS[case]
    table = read(shared_cases / case)
    assert (table.num_subjects, table.num_items) == (subjects, items)
    assert table.num_observed == table.size
    if mean is not None:
        assert float(table.values.mean()) == pytest.approx(mean)


def test_values_that_people_have(shared_cases):
    """Against the files themselves, by another way than the paths of the reader."""
    table = read(shared_cases / "C01")
    for path in (shared_cases / "C01").rglob("reka-edge.json"):
        scores = {
            x["session_id"]: float(x["score"]) for x in json.loads(path.read_text())
        }
        row = table.subjects.tolist().index("reka/reka-edge")
        assert dict(zip(table.items.tolist(), table.values[row], strict=True)) == scores
    # Two files of one model, with other answers, are two subjects.
    assert sum("Qwen1.5-72B-Chat" in name for name in table.subjects.tolist()) == 2
    table = read(shared_cases / "C70")
    path = shared_cases / "C70/results/org-a__alpha-70b/abc123/ArguAna.json"
    score = json.loads(path.read_text())["scores"]["test"][0]["main_score"]
    row = table.subjects.tolist().index("org-a/alpha-70b")
    assert table.values[row, table.items.tolist().index("ArguAna")] == score
    # The accuracies that the runs state.
    table = read(shared_cases / "C46")
    stated = {
        found["model_name"]: found["accuracy"]
        for path in (shared_cases / "C46").rglob("run_metadata.json")
        for found in [json.loads(path.read_text())]
    }
    means = dict(zip(table.subjects.tolist(), table.subject_accuracy(), strict=True))
    assert means == pytest.approx(stated)
    table = read(shared_cases / "C13")
    for path in (shared_cases / "C13").glob("*pass_at_k.json"):
        found = json.loads(path.read_text())
        row = table.subjects.tolist().index(found["model"])
        assert table.subject_accuracy()[row] == pytest.approx(found["pass@1"])
    for metric, field in (("pass@1", "Pass@1"), ("pass@1-COT", "Pass@1-COT")):
        table = read(shared_cases / "C03b", metric=metric)
        path = shared_cases / "C03b" / "performances_execution.json"
        for row in json.loads(path.read_text())["performances"][:50]:
            i = table.subjects.tolist().index(row["model"])
            j = table.items.tolist().index(f"livecodebench/{row['sample_id']}")
            assert table.values[i, j] == row[field]


def test_livecodebench_as_csv_and_as_json(shared_cases, tmp_path):
    path = shared_cases / "C03" / "performances_execution.csv"
    for metric in (None, "pass@1-COT"):
        one, two = read(path, metric=metric), read(shared_cases / "C03b", metric=metric)
        assert cells(one) == cells(two)
    assert noted(read(path), "pass@1, not pass@1-COT")
    # Columns that are named are those of any table.
    named = {"subject": "model", "item": "question_id", "response": "Pass@1"}
    assert read(path, **named, trials="mean").num_items == 8
    own = tmp_path / "t.csv"
    own.write_text("model,question_id,sample_id,Pass@1\nm,1,s0,50\nm,1,s1,\n")
    assert cells(read(own)) == {"m": [50, None]}
    own.write_text("model,question_id,sample_id,Pass@1\nm,1,s0,half\n")
    message = refused(own)
    assert "row 1" in message
    assert "Pass@1" in message


# Files without responses


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            "C05/polyglot_leaderboard.yml",
            ["Aider's leaderboard", ".aider.results.json"],
        ),
        (
            "C06/arena_hard_leaderboard.csv",
            ["leaderboard (score, rating_q025", "JUDGE"],
        ),
        ("C06b/board.csv", ["leaderboard (score, rating_q025", "of Arena-Hard its"]),
        ("C15", ["totals of EuroEval", "--log_samples"]),
        ("C45", ["totals of the BigCode harness", "response and trials"]),
        ("C10", ["irtjax arena", "responses of models to items"]),
        ("C53", ["irtjax arena", "responses of models to items"]),
        ("C68", ["irtjax arena", "responses of models to items"]),
    ],
)
def test_files_without_responses(shared_cases, case, words):
    message = refused(shared_cases / case)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "text",
    [
        "Model,Scores,CI (%)\na,50.1,(-1.0 / +1.2)\nb,40,(-1 / +1)\n",
        "model,score,95% CI\na,1,0.5\nb,2,0.5\n",
        "model,elo,elo_lower,elo_upper\na,1000,990,1010\nb,900,890,910\n",
        "model,mean,std_err\na,0.5,0.1\nb,0.6,0.1\n",
        "model\trating\trating_q025\trating_q975\tvotes\na\t1\t0\t2\t9\nb\t1\t0\t2\t9\n",
    ],
)
def test_a_score_with_its_interval_is_a_leaderboard(tmp_path, text):
    path = tmp_path / "board.csv"
    path.write_text(text)
    assert "holds the totals of a leaderboard" in refused(path)


def test_items_named_like_intervals_are_items(tmp_path):
    for header in ("model,q1,upper,lower", "model,ci_build,ci_test,deploy"):
        path = tmp_path / "matrix.csv"
        path.write_text(f"{header}\na,1,0,1\nb,0,0,1\n")
        assert read(path).num_items == 3


def test_the_cure_of_totals_of_code(tmp_path):
    """The table that the message asks for is read."""
    totals = {"humaneval": {"pass@1": 0.31, "pass@10": 0.5}, "config": {"model": "m"}}
    path = write(tmp_path / "evaluation_results.json", totals)
    message = refused(path)
    assert "the columns model, item, response and trials" in message
    table = tmp_path / "counts.csv"
    table.write_text(
        "model,item,response,trials\nm,HumanEval/0,7,20\nm,HumanEval/1,0,20\n"
        "n,HumanEval/0,20,20\nn,HumanEval/1,3,20\n"
    )
    assert cells(read(table, trials="mean")) == {"m": [0.35, 0], "n": [1, 0.15]}


def test_the_cure_of_aiders_leaderboard(logs, tmp_path):
    """The folder of the runs is read, hidden files in it too; the latest run counts."""
    board = tmp_path / "board.yml"
    board.write_text(
        "- dirname: d\n  model: m\n  edit_format: diff\n  pass_rate_1: 9.0\n"
    )
    assert "give the folder of the runs (tmp.benchmarks)" in refused(board)
    root = logs("aider")
    table = read(root)
    assert table.num_items == 3
    assert cells(read(root, metric="pass_1"))[LARGE] == [0, 1, 0]
    again = root / "2026-04-01-10-20-30--toy-1b"
    shutil.copytree(root / "2026-03-01-10-20-30--toy-1b", again)
    path = next(again.rglob("python/**/.aider.results.json"))
    path.write_text(path.read_text().replace("true", "false"))
    table = read(root)
    assert cells(table)[SMALL] == [0, 0, 0]
    assert noted(table, "the latest run was taken")


def test_euroeval_of_older_versions(tmp_path):
    line = {"dataset": "d", "task": "t", "model": "m", "scandeval_version": "9"}
    path = write(tmp_path / "scandeval.jsonl", line | {"results": {"raw": {}}})
    assert "totals of EuroEval" in refused(path)


# Comparisons of models


@pytest.mark.parametrize(
    "names",
    [
        ["model_a", "model_b", "winner"],
        ["Model A", "Model B", "Winner"],
        ["model_1", "model_2", "g1_winner", "g2_winner"],
        ["winner", "loser"],
        ["Winner_ID", "Loser_ID", "date"],
        ["player_1", "player_2", "score_1", "score_2"],
        ["prompt", "model_left", "model_right", "preference"],
        ["system_a_id", "system_b_id", "verdict"],
        ["model1", "model2", "result"],
        ["answer1_model_id", "answer2_model_id", "score"],
        ["model", "opponent", "result"],
        ["home_team", "away_team", "home_score", "away_score"],
    ],
)
def test_comparisons_are_recognised(names, tmp_path):
    assert arena.is_battles(names)
    (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join("x" * len(names)))
    write(tmp_path / "t.jsonl", dict.fromkeys(names, "x"))
    pq.write_table(pa.table({name: ["x"] for name in names}), tmp_path / "t.parquet")
    for ending in ("csv", "jsonl", "parquet"):
        message = refused(tmp_path / f"t.{ending}")
        assert "holds battles (a row compares two models)" in message
        assert "irtjax arena" in message


@pytest.mark.parametrize(
    "header",
    [
        "item,model_a,model_b,model_c",  # items as rows
        "question,model_1,model_2",
        "model,winner_q1,loser_q2",
        "model_a,q1,q2",
        "question,model_a,model_b,gold",
    ],
)
def test_ordinary_tables_are_no_comparisons(header, tmp_path):
    assert not arena.is_battles(header.split(","))
    path = tmp_path / "t.csv"
    cut = ",1" * header.count(",")
    path.write_text(f"{header}\na{cut}\nb{cut.replace('1', '0', 1)}\n")
    assert read(path).num_observed == 2 * header.count(",")


def test_lists_of_wrong_responses_alone_are_no_responses(tmp_path):
    """Read as they are, every response would be wrong."""
    totals = {"accuracy": 0.5, "correct_count": 1, "total_count": 2}
    wrong = {"id": "simple_1", "model_name": "m", "valid": False, "error": ["x"]}
    path = write(tmp_path / "BFCL_v3_simple_score.json", [totals, wrong], lines=True)
    assert "holds the wrong responses of BFCL alone" in refused(path)


def test_feedback_of_open_webui(tmp_path):
    data = {"rating": 1, "model_id": "m", "sibling_model_ids": ["n"]}
    path = write(
        tmp_path / "export.json", [{"id": "f", "type": "rating", "data": data}]
    )
    assert "irtjax arena" in refused(path)


# deepeval


def test_deepeval_of_evaluate_and_of_its_cache(logs, tmp_path):
    root = logs("deepeval")
    whole = json.loads((root / "test_run_toy-1b.json").read_text())
    cache = root / "own" / ".latest_test_run.json"
    write(
        cache, {"testRunData": whole | {"hyperparameters": None}, "testRunLink": None}
    )
    assert cells(read(cache)) == {"own": [1, 0, 0]}
    assert cells(read(root / "own")) == {"own": [1, 0, 0]}  # Hidden, and read.
    snake = [
        {"name": x["name"], "success": x["success"], "input": x["input"],
         "metrics_data": [{"name": "G", "score": 0.5, "success": True}]}
        for x in whole["testCases"]
    ]  # fmt: skip
    path = write(tmp_path / "run" / "m.json", {"test_results": snake})
    assert cells(read(path)) == {"m": [1, 0, 0]}
    assert cells(read(path, metric="G")) == {"m": [0.5, 0.5, 0.5]}
    assert cells(read(write(tmp_path / "list.json", snake))) == {"list": [1, 0, 0]}


def test_deepeval_runs_of_one_model_are_two_subjects(logs):
    """They differ in what is tested, such as the prompt."""
    root = logs("deepeval")
    for path in root.glob("*.json"):
        path.write_text(path.read_text().replace(LARGE, SMALL))
    table = read(root)
    names = table.subjects.tolist()
    assert names == [f"{SMALL} (toy-1b)", f"{SMALL} (toy-7b)"]
    assert noted(table, f"several files are of {SMALL}: each is a subject")


def test_deepeval_names_count_cases_and_do_not_join_others(logs):
    """Cases have the names test_case_0, ... in the order of each run."""
    root = logs("deepeval")
    path = root / "test_run_toy-7b.json"
    run = json.loads(path.read_text())
    for case, name in zip(run["testCases"], reversed(CASES), strict=True):
        case["name"] = name
    write(path, run)
    assert cells(read(root)) == PLAIN
    assert list(cells(read(root, join="id"))[LARGE]) == [0, 1, 1]


def test_deepeval_thresholds_show_where_lower_is_better(logs):
    root = logs("deepeval")
    for path in root.glob("*.json"):
        run = json.loads(path.read_text())
        for k, case in enumerate(run["testCases"]):
            safe = {"name": "Risk", "threshold": 0.5, "success": k < 2}
            case["metricsData"].append(safe | {"score": [0.125, 0.25, 0.75][k]})
        write(path, run)
    table = read(root, metric="Risk")
    assert cells(table)[SMALL] == [0.875, 0.75, 0.25]
    assert noted(table, "lower Risk is better")
    assert cells(read(root, metric="Correctness (GEval)"))[SMALL] == [0.8, 0.3, 0.3]


def test_deepeval_metrics_that_failed_are_no_verdict(logs):
    """The judge's call failed, and deepeval counts the case as failed."""
    root = logs("deepeval")
    path = root / "test_run_toy-7b.json"
    run = json.loads(path.read_text())
    run["testCases"][0]["success"] = False
    run["testCases"][0]["metricsData"][0] |= {"score": None, "error": "timeout"}
    write(path, run)
    table = read(root)
    assert cells(table)[LARGE] == [None, 1, 0]
    assert noted(table, "1 failed call is missing")


# evalscope


def test_evalscope_runs_repeats_and_versions(logs, tmp_path):
    root = logs("evalscope")
    first = root / "20260301_102030"
    later = Path(shutil.copytree(first, root / "20260401_102030"))
    path = later / "reviews" / "toy-1b" / "gsm8k_main.jsonl"
    path.write_text(path.read_text().replace('"acc": 1.0', '"acc": 0.0'))
    table = read(root)
    assert cells(table)["toy-1b"] == [0, 0, 0]
    assert noted(table, "the latest run was taken")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for k in range(3):  # A second answer to each sample.
        score = {"value": {"acc": 1.0}, "main_score_name": "acc"}
        sample = {"score": score, "sample_id": 3 + k, "group_id": k}
        rows.append(rows[k] | {"index": 3 + k, "sample_score": sample})
    write(path, rows, lines=True)
    assert cells(read(root, trials="mean"))["toy-1b"] == [0.5, 0.5, 0.5]
    old = tmp_path / "old" / "reviews" / "m" / "arc_main.jsonl"
    review = lambda x: [{"index": 0, "review": {"gold": "A", "pred": "B", "result": x}}]
    write(
        old,
        [
            {"index": k, "choices": review(x), "raw_input": {"q": k}, "model_spec": {}}
            for k, x in enumerate([True, False, 1.0])
        ],
        lines=True,
    )
    assert cells(read(tmp_path / "old")) == {"m": [1, 0, 1]}


def test_evalscope_predictions_and_reports_name_the_reviews(logs):
    root = logs("evalscope") / "20260301_102030"
    for folder, what in (("predictions", "predictions"), ("reports", "the totals")):
        message = refused(root / folder)
        assert f"holds {what} of evalscope" in message
        assert "give the .jsonl files in its folder reviews" in message
    assert read(root / "reviews").num_subjects == 2


# MTEB


def mteb(folder, task, splits, **more):
    fields = {"dataset_revision": "x", "task_name": task, "mteb_version": "2.1"}
    return write(folder / f"{task}.json", {**fields, "scores": splits, **more})


def score_of(value, subset="default"):
    return {
        "main_score": value,
        "ndcg_at_10": 0.1,
        "hf_subset": subset,
        "languages": [],
    }


def test_mteb_subsets_splits_and_folders(tmp_path):
    for model, languages in (("org__m", "en de"), ("org__n", "en de fr")):
        scores = [score_of(0.1 * (k + 1), x) for k, x in enumerate(languages.split())]
        mteb(tmp_path / model / ("a" * 40), "Multi", {"test": scores})
        both = {"dev": [score_of(0.9)], "test": [score_of(0.2)]}
        mteb(tmp_path / model / ("a" * 40), "Two", both)
    table = read(tmp_path)
    assert table.items.tolist() == ["Multi/en", "Multi/de", "Two", "Multi/fr"]
    assert cells(table)["org/m"] == [0.1, 0.2, 0.2, None]
    assert noted(table, "models have different subsets of 1 task")
    assert cells(read(tmp_path, filter="dev", metric="main_score")) == {
        "org/m": [0.9],
        "org/n": [0.9],
    }
    shutil.rmtree(tmp_path / "org__n")
    assert cells(read(tmp_path)) == {"org/m": pytest.approx([0.15, 0.2])}
    assert read(tmp_path, parts="items").num_items == 3


def test_mteb_before_1_11(tmp_path):
    old = {"dataset_revision": "x", "mteb_dataset_name": "Old", "mteb_version": "1.0"}
    scores = {"en": {"accuracy": 0.5, "main_score": 0.5}, "evaluation_time": 3.0}
    write(tmp_path / "m" / "Old.json", old | {"test": scores})
    write(
        tmp_path / "m" / "Flat.json",
        old | {"mteb_dataset_name": "Flat", "test": {"main_score": 0.7}},
    )
    assert cells(read(tmp_path)) == {"m": [0.7, 0.5]}
    meta = {"name": "org/m", "revision": None, "n_parameters": 1}
    path = write(tmp_path / "meta.json", meta | {"similarity_fn_name": "cosine"})
    assert "describes a model of MTEB; give the files of tasks" in refused(path)


# Braintrust


def test_braintrust_without_models_and_with_failed_calls(logs, tmp_path):
    root = logs("braintrust")
    for path in root.glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            row["metadata"] = None
        rows[0]["error"] = "timeout"
        write(path, rows, lines=True)
    table = read(root)
    assert cells(table) == {"toy-1b": [None, 0, 0], "toy-7b": [None, 1, 0]}
    assert noted(table, "2 failed calls are missing")
    page = write(tmp_path / "page" / "a.json", {"events": rows, "cursor": None})
    assert cells(read(page, missing_as="wrong")) == {"a": [0, 1, 0]}
    array = tmp_path / "page" / "b.json"
    array.write_text(json.dumps(rows))
    assert read(tmp_path / "page").subjects.tolist() == ["a", "b"]
    both = read(root, metric="Levenshtein", missing_as="wrong")
    assert cells(both)["toy-7b"] == [0, 0.875, 0.25]


# Terminal-Bench


def test_terminal_bench_runs_agents_and_trials(logs):
    root = logs("terminal_bench")
    run = root / "2026-03-01__10-00-00"
    again = Path(shutil.copytree(run, root / "2026-03-09__10-00-00"))
    assert read(root).kind == "counts"
    assert cells(read(root, trials="mean"))[SMALL] == [1, 0, 0]
    path = again / "run_metadata.json"
    path.write_text(path.read_text().replace("toy-agent", "other"))
    names = read(root).subjects.tolist()
    assert names == [f"{SMALL} (toy-agent)", LARGE, f"{SMALL} (other)"]
    # A run that was stopped has no file for all of its trials.
    shutil.rmtree(again)
    (run / "results.json").unlink()
    assert cells(read(root)) == PLAIN
    (run / "run_metadata.json").unlink()
    assert read(run).subjects.tolist() == [run.name]


def test_terminal_bench_descriptions_name_the_results(logs):
    root = logs("terminal_bench")
    path = next(root.rglob("run_metadata.json"))
    assert "describes a run of Terminal-Bench; give the results.json" in refused(path)
    job = logs("harbor") / "toy-1b" / "result.json"
    assert "give the result.json of its trials" in refused(job)


# MLflow


def test_mlflow_tables_in_folders_of_runs(tmp_path):
    columns = [
        "question",
        "latency",
        "relevance/v1/score",
        "relevance/v1/justification",
    ]
    for run, scores in (("a1", [5, 3]), ("b2", [4, None])):
        data = [[f"q{k}", 0.1, x, "j"] for k, x in enumerate(scores)]
        path = tmp_path / run / "artifacts" / "eval_results_table.json"
        write(path, {"columns": columns, "data": data})
    table = read(tmp_path)
    assert cells(table) == {"a1": [5, 3], "b2": [4, None]}
    assert table.metric == "relevance/v1"
    bad = write(tmp_path / "eval_results_table.json", {"columns": ["a"], "data": [[1]]})
    assert "without a column of scores" in refused(bad)
    write(bad, {"columns": ["a", "b/score"], "data": [[1, 1], [1]]})
    assert "row 2 has not 2 cells" in refused(bad)


# Langfuse


def test_langfuse_forms_and_columns(logs, tmp_path):
    path = logs("langfuse") / "scores_export.csv"
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["value"] = float(row["value"])
    for name, content, lines in (
        ("a.json", rows, False),
        ("b.jsonl", rows, True),
        ("c.json", {"data": rows, "meta": {"page": 1}}, False),
    ):
        assert cells(read(write(tmp_path / name, content, lines))) == PLAIN
    named = {"subject": "datasetRunName", "item": "datasetItemId", "response": "value"}
    assert cells(read(path, **named, metric="correctness")) == PLAIN
    other = read(path, subject="traceId", item="datasetItemId")
    assert other.num_subjects == 6
    assert "no column 'model' for subject=" in refused(path, subject="model")
    assert "'tone' is 'formal, kind', which is not a number" in refused(
        path, metric="tone"
    )


def test_langfuse_exports_without_runs(logs, tmp_path):
    """As the page exports them: traces alone, and the items of runs in another file."""
    path = logs("langfuse") / "scores_export.csv"
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    bare = [{k: v for k, v in x.items() if not k.startswith("dataset")} for x in rows]
    scores = write(tmp_path / "s" / "scores.jsonl", bare, lines=True)
    message = refused(scores)
    assert "name no item of a data set; add the columns datasetRunName" in message
    items = [
        {"id": x["id"], "datasetItemId": x["datasetItemId"], "traceId": x["traceId"],
         "datasetName": "d"}
        for x in rows
    ]  # fmt: skip
    write(tmp_path / "s" / "items.jsonl", items, lines=True)
    message = refused(tmp_path / "s")
    assert "holds several scores of an item, and nothing names their models" in message
    renamed = [
        x | {"who": old["datasetRunName"], "what": old["datasetItemId"]}
        for x, old in zip(bare, rows, strict=True)
    ]
    own = write(tmp_path / "own.jsonl", renamed, lines=True)
    assert cells(read(own, subject="who", item="what")) == PLAIN
    for row, old in zip(bare, rows, strict=True):
        row["metadata"] = json.dumps({"model": old["datasetRunName"]})
    write(scores, bare, lines=True)
    assert cells(read(tmp_path / "s")) == PLAIN


# promptfoo


def promptfoo_rows():
    found = json.loads((FIXTURES / "promptfoo" / "results.json").read_text())
    return found["results"]["results"]


OPENAI = {f"openai:{model}": row for model, row in PLAIN.items()}


def test_promptfoo_lines_prompts_and_failed_calls(tmp_path):
    rows = promptfoo_rows()
    assert cells(read(write(tmp_path / "r.jsonl", rows, lines=True))) == OPENAI
    old = [
        {"provider": x["provider"]["id"], "vars": x["vars"], "success": x["success"],
         "score": x["score"], "prompt": {"raw": "p", "display": "p"}}
        for x in rows
    ]  # fmt: skip
    summary = {"version": 2, "results": old, "stats": {}, "table": {}}
    assert cells(read(write(tmp_path / "old.json", {"results": summary}))) == OPENAI
    assert cells(read(write(tmp_path / "node.json", summary))) == OPENAI
    rows[0] |= {"failureReason": 2, "success": False, "error": "API error"}
    table = read(write(tmp_path / "failed.jsonl", rows, lines=True))
    assert cells(table)[f"openai:{SMALL}"] == [None, 0, 0]
    assert noted(table, "1 failed call is missing")
    for row in rows:
        row["provider"] = {"id": "m"}
        row["prompt"] = {"label": f"prompt {row['promptIdx']}"}
    table = read(write(tmp_path / "prompts.jsonl", rows, lines=True))
    assert table.subjects.tolist() == ["m: prompt 0", "m: prompt 1"]
    for row in rows:  # Of long prompts only the ends differ.
        row["prompt"] = {"label": "x" * 99 + str(row["promptIdx"])}
    table = read(write(tmp_path / "prompts.jsonl", rows, lines=True))
    long = "m: " + "x" * 60 + "..."
    assert table.subjects.tolist() == [long, f"{long} (2)"]


def test_promptfoo_variables_that_differ_by_provider(tmp_path):
    rows = promptfoo_rows()
    for number, row in enumerate(rows):
        row["testCase"]["vars"] |= {"sessionId": f"{number}", "when": f"{number}"}
    assert cells(read(write(tmp_path / "r.jsonl", rows, lines=True))) == OPENAI


@pytest.mark.parametrize("kind", ["cells", "columns"])
def test_promptfoo_csv(tmp_path, kind):
    path = tmp_path / "results.csv"
    providers = [f"[openai:{model}] Answer {{{{question}}}}" for model in PLAIN]
    parts = ["Status", "Score", "Named Scores", "Grader Reason", "Comment"]
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        header = ["question"]
        for name in providers:
            header += [name, *parts] if kind == "columns" else [name]
        out.writerow(header)
        for k in range(3):
            row = [f"toy {k}?, again"]
            for scores in PLAIN.values():
                verdict = "PASS" if scores[k] else "FAIL"
                if kind == "columns":
                    row += ["text", verdict, f"{scores[k]:.2f}", "", "because", ""]
                else:
                    row += [f"[{verdict}] ({scores[k]:.2f}, tone: 0.50)\n\ntext\n"]
            out.writerow(row)
    table = read(path)
    assert cells(table) == OPENAI
    assert cells(read(path, metric="score")) == OPENAI
    assert identify(path).format == "promptfoo"


def test_promptfoo_csv_that_is_bad(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("q,[openai:m] p\nx,[PASS] (1.00) a\ny,perhaps\n")
    assert "begins with no verdict ([PASS], [FAIL] or [ERROR])" in refused(path)
    path.write_text("q,[openai:m] p\nx,[PASS] (1.00) a\ny\n")
    assert "row 2 has 1 cells, and the header has 2" in refused(path)
    yaml = tmp_path / "r.yaml"
    yaml.write_text("evalId: eval-x\nresults:\n  version: 3\n")
    assert "--output results.json" in refused(yaml)


# lmms-eval


def test_lmms_eval_objects_without_scores(logs):
    root = logs("lmms_eval")
    for path in root.rglob("*_results.json"):
        path.write_text(
            path.read_text().replace('"toy_acc,none": 0', '"toy_acc,none": 9')
        )
    # What equal texts would give is not what the task reports.
    assert "metric 'toy_acc' has no score per item" in refused(root)
    for path in root.rglob("*_samples_*"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            row["toy_acc"] = {"question_id": 1, "score": 0.25}
        write(path, rows, lines=True)
    for path in root.rglob("*_results.json"):
        path.unlink()
    assert cells(read(root)) == {SMALL: [0.25] * 3, LARGE: [0.25] * 3}


def test_the_cure_of_older_logs_of_lmms_eval(tmp_path):
    records = [
        {"doc_id": k, "target": "A", "filtered_resps": ["A"], "doc_hash": f"h{k}",
         "acc": {"score": k}}
        for k in range(2)
    ]  # fmt: skip
    old = {"args": {}, "model_configs": {}, "logs": records, "time": "t"}
    message = refused(write(tmp_path / "mmmu_val.json", old))
    name = message.rpartition("MODEL/")[2].replace("TASK", "mmmu_val")
    write(tmp_path / "m" / name, records, lines=True)
    assert cells(read(tmp_path / "m")) == {"m": [0, 1]}


def test_lmms_eval_later_run_counts(logs):
    root = logs("lmms_eval")
    path = next((root / "toyorg__toy-1b").glob("*_samples_*"))
    later = path.with_name(path.name.replace("20260301", "20260401"))
    later.write_text(
        path.read_text().replace('"parsed_pred": "B"', '"parsed_pred": "A"')
    )
    path.with_name("20260301_102030_results.json").unlink()
    table = read(root)
    assert cells(table)[SMALL.replace("/", "__").replace("__", "/")] == [1, 1, 1]


# BigCodeBench, SWE-bench


def test_bigcodebench_totals_and_files_without_status(logs):
    root = logs("bigcodebench")
    totals = next(root.glob("*pass_at_k.json"))
    assert "totals of BigCodeBench; give the *_eval_results.json" in refused(totals)
    path = next(root.glob("*eval_results.json"))
    path.write_text(path.read_text().replace('"status"', '"other"'))
    assert "no field 'base_status'" in refused(path)


# What is bad, for all


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [
        ("deepeval", "*toy-7b.json"),
        ("evalscope", "reviews/toy-7b/*.jsonl"),
        ("mteb", "ToySTS.json"),
        ("braintrust", "*7b.jsonl"),
        ("wildbench", "toy-7b.json"),
        ("terminal_bench", "2026-03-02*/results.json"),
        ("mlflow", "toy-7b/*.json"),
        ("arena_hard", "toy-7b.jsonl"),
        ("aider", "*toy-7b/python/**/.aider.results.json"),
    ],
)
def test_logs_that_are_cut_off_are_refused_by_name(logs, folder, pattern):
    root = logs(folder)
    path = next(root.rglob(pattern))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    message = refused(root)
    assert str(path) in message
    assert "cut off" in message or "line" in message


@pytest.mark.parametrize(
    "folder",
    ["deepeval", "evalscope", "terminal_bench", "mlflow", "promptfoo", "langfuse"],
)
def test_packed_files_are_read_alike(logs, folder):
    root = logs(folder)
    for path in [x for x in root.rglob("*") if x.is_file()]:
        if path.name != "run_metadata.json":
            packed = path.with_name(f"{path.name}.gz")
            packed.write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    assert cells(read(root)) == cells(read(FIXTURES / folder))


def test_a_score_that_is_no_number_names_its_place(tmp_path):
    row = {"session_id": "s", "model_test": "m", "score": "good"}
    path = write(tmp_path / "m.json", [row])
    message = refused(path)
    assert f"{path}: record 1: 'score' is 'good', which is not a number" in message


@pytest.mark.parametrize(
    "record",
    [
        {"model": "m", "item": "q", "score": 1, "input": "x"},
        {"name": "q", "success": True, "model": "m"},
        {"index": 0, "model": "m", "score": 1.0},
        {"session_id": "s", "model": "m", "score": 4},
        {"task_id": "t", "model": "m", "passed": True},
        {"name": "m", "value": 1, "item": "q"},
        {"question_id": "q", "model": "m", "judge": "j", "score": 7},
        {"columns": 1, "data": 2, "model": "m"},
    ],
)
def test_ordinary_records_are_none_of_a_tool(tmp_path, record):
    path = write(tmp_path / "t.jsonl", record)
    assert identify(path).format == "json"


def test_ordinary_tables_are_none_of_a_tool(tmp_path):
    for header in (
        "model,item,score",
        "model,name,value",
        "model,[a],[b]",
        "id,Status,Score,q1",
        "traceId,name,value",
        "model,[GSM8K] accuracy,[openai:m] score",
    ):
        path = tmp_path / "t.csv"
        path.write_text(f"{header}\nm,0,1\n")
        assert identify(path).format == "csv", header
