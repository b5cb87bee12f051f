"""Altered files of every format end in a table or in one line."""

import pytest

from experiments.fuzz import run
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


def test_problems_are_found(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,q1,q2\nm,1,0\nn,0,1\n")

    def fails(*_):
        raise KeyError("x")

    assert run.watched(lambda: "table")[0] == "table"
    assert run.watched(fails)[0] == "KeyError: 'x'"
    assert run.run_command("nothing").startswith("refused")
    rows = run.check(path)
    assert [row["found"] for row in rows] == ["table", "table"]
    problems = [(3, "read", "timeout")]
    assert "| CSV | 1 | 1 | 0 | 0 | 1 |" in run.report("CSV", rows, problems)
