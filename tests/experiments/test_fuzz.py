"""Altered files of every format end in a table or in one line."""

import gzip
import random
from collections import Counter

import pytest

import irtjax
from experiments.fuzz import fits, guided, minimal, run
from experiments.fuzz.enlarge import enlarge
from experiments.fuzz.mutate import seeds, write_more


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return {**seeds(), **write_more(tmp_path_factory.mktemp("whole"))}


KINDS = (*seeds(), "flat JSON", "saved table, JSON", "saved table, Parquet")


@pytest.mark.parametrize("kind", KINDS)
def test_altered_files_end_in_a_table_or_a_line(tmp_path, whole, kind):
    found = set()
    # Folders of logs take longer.
    for number in range(20 if whole[kind][0].is_dir() else 100):
        path = run.make(kind, whole[kind], number, tmp_path)
        outcome = run.read_one(path)
        assert outcome in ("table", "refused"), (kind, number, outcome)
        found.add(outcome)
        if number % 50 == 0:
            outcome = run.run_command("info", str(path))
            assert outcome in ("table", "refused"), (kind, number, outcome)
    assert found == ({"refused"} if kind == "arena battles" else {"table", "refused"})


@pytest.mark.slow
def test_problems_are_found(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,q1,q2\nm,1,0\nn,0,1\n")

    def fails(*_):
        raise KeyError("x")

    assert run.watched(lambda: "table")[0] == "table"
    assert run.watched(fails)[0] == "KeyError: 'x'"
    assert run.run_command("nothing").startswith("refused")
    run.check(path)  # Imports are not counted.
    rows = run.check(path)
    assert [row["found"] for row in rows] == ["table", "table"]
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    size = path.stat().st_size
    assert run.allowed_for(path) == 20 * size + 2 * run.COLUMN
    assert run.allowed_for(packed) == 20 * size
    problems = [(3, "read", "timeout")]
    assert "| CSV | 1 | 1 | 0 | 0 | 1 |" in run.report("CSV", rows, problems)


@pytest.mark.parametrize("kind", ["lm-eval", "CSV", "Inspect archive", "SWE-bench"])
def test_files_that_hypothesis_draws_end_in_a_table_or_a_line(tmp_path, whole, kind):
    assert minimal.examine(whole[kind], 25, tmp_path) == ("", None)


def test_of_files_that_fail_the_smallest_is_kept(tmp_path, monkeypatch):
    source = tmp_path / "t.csv"
    source.write_text("model,q1,q2\nm,1,0\nn,0,1\n")

    def read_one(path):
        content = path.read_bytes()
        if content[:2] != b"\x1f\x8b" and b"=1+1" in content:
            raise KeyError("x")
        return "table"

    monkeypatch.setattr(run, "read_one", read_one)
    (tmp_path / "made").mkdir()
    found, path = minimal.examine([source], 1000, tmp_path / "made")
    assert found == "KeyError: 'x'"
    # Of the cells that can stand in the place of another it is the only one.
    assert path is not None and path.read_text().count("=1+1") == 1
    assert len(path.read_text()) < 30


def test_inputs_of_fits_are_written_again_by_their_number(tmp_path):
    found = []
    for place in ("a", "b"):
        folder = tmp_path / place
        folder.mkdir()
        made = [fits.prepare(number, folder) for number in (1, 3)]
        found.append([(x.name, y) for x, y in made])
        found[-1] += [p.read_bytes() for p in run.files_of(folder)]
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", range(14))
def test_degenerate_responses_end_a_fit_in_one_line_or_can_be_written(tmp_path, kind):
    rng = random.Random(kind)
    values, _ = fits.responses(rng)
    bad = fits.degrade(values, rng)
    assert bad.shape == values.shape
    fits.write(bad, tmp_path / "r.csv", rng)
    assert run.read_one(tmp_path / "r.csv") in ("table", "refused")


def test_a_refused_fit_leaves_nothing(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("model,q1\nm,1\nn,0\n")
    assert fits.outcome_of(path, [], tmp_path / "fit") == "refused"
    (tmp_path / "other").write_text("")
    assert fits.outcome_of(path, [], tmp_path / "fit").startswith("refused, with")


@pytest.mark.slow
def test_fits_end_in_a_folder_or_a_line(capsys):
    assert fits.main(["--count", "12"]) == 0
    assert "| 12 |" in capsys.readouterr().out


def test_the_corpus_of_the_guided_run_is_read(tmp_path):
    guided.fill(tmp_path / "corpus")
    found = Counter(
        guided.outcome(path.read_bytes(), tmp_path)
        for path in (tmp_path / "corpus").iterdir()
    )
    assert found.keys() <= {"table", "refused"} and found["table"] > 10
    assert guided.outcome(b"", tmp_path) == "refused"


@pytest.mark.parametrize(
    "kind", ["lm-eval", "Inspect archive", "Every Eval Ever", "CSV", "flat JSON"]
)
def test_enlarged_files_have_copies_under_other_names(tmp_path, whole, kind):
    times = 0
    for source in whole[kind]:
        content = source.read_bytes()
        path = tmp_path / source.name
        path.write_bytes(enlarge(source, content, 5 * len(content)))
        if run.read_one(source) == run.read_one(path) == "table":
            few, many = (irtjax.read(x, trials="mean") for x in (source, path))
            larger = many.num_items * many.num_subjects
            times = max(times, larger / (few.num_items * few.num_subjects))
    assert times == 5


@pytest.mark.slow
@pytest.mark.parametrize("number", [10, 31, 38, 60, 92])
def test_tables_of_many_columns_end_in_time(tmp_path, whole, number):
    """Names that numbering of repeated ones made equal; a minute of copies of a table.

    They have 16,000 to 58,000 columns.
    """
    path = run.make("CSV", whole["CSV"], number, tmp_path, run.LARGE)
    run.read_one(path)  # Imports are not counted.
    (row,) = run.check(path, info=False)
    assert row["found"] in ("table", "refused")
