"""Outputs appear together or not at all: killed, full disks, two writers."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from irtjax.data import writing
from irtjax.data.writing import atomic_path, check_place, together, undisturbed

OLD = {"a.csv": "old a", "b.csv": "old b", "fit.json": "old", "notes.txt": "mine"}
NEW = {"a.csv": "new a", "c.csv": "new c", "fit.json": "new"}
AFTER = {**NEW, "notes.txt": "mine"}
STALE = ("b.csv", "d.csv")


def fill(folder, files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def content(folder):
    return {p.name: p.read_text() for p in folder.iterdir()}


def write(folder, files=NEW):
    with together(folder, stale=STALE) as place:
        fill(place, files)


# A process without JAX that ends itself, as `kill -9` would, at the k-th change of the
# file system. `os.replace` in the writing module and file writes are all its changes.
KILLED = textwrap.dedent(
    """
    import os, pathlib, sys
    sys.path.insert(0, sys.argv[1])
    import irtjax.data.writing as writing

    folder, places = pathlib.Path(sys.argv[2]), sys.argv[3:]
    STALE = ("b.csv", "d.csv")
    NEW = {"a.csv": "new a", "c.csv": "new c", "fit.json": "new"}

    def run(folder, last):
        calls = 0

        def counted(function):
            def call(*args, **kwargs):
                nonlocal calls
                calls += 1
                if calls == last:
                    os._exit(9)
                return function(*args, **kwargs)
            return call

        for name in ("replace", "rename", "fsync", "unlink", "rmdir", "mkdir"):
            setattr(os, name, counted(getattr(os, name)))
        with writing.together(folder, stale=STALE) as place:
            for name, text in NEW.items():
                (place / name).write_text(text)

    for last in range(1, 100):
        child = os.fork()
        if child == 0:
            run(folder / str(last), last)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            print(last)
            break
    """
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("begin", [None, OLD])
def test_killed_at_any_step_the_files_are_old_or_new(tmp_path, begin):
    for last in range(1, 100):
        if begin:
            fill(tmp_path / str(last), begin)
    root = str(writing.Path(writing.__file__).parents[2])
    command = [sys.executable, "-c", KILLED, root, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    steps = int(done.stdout)
    assert steps > 12  # Every file flushed, the plan, the moves, and the cleaning.
    seen = []
    for last in range(1, steps + 1):
        folder = tmp_path / str(last)
        with undisturbed(folder):
            found = content(folder) if folder.exists() else None
        before, after = (begin, AFTER) if begin else (None, NEW)
        assert found in (before, after), last
        seen.append(found == after)
    # Nothing of the new files, then all of them.
    assert seen == sorted(seen) and not seen[0] and seen[-1]
    # What is left of the dead goes with the next one that writes there.
    write(tmp_path / "next")
    assert not [p for p in tmp_path.iterdir() if writing.is_staging(p)]


@pytest.mark.parametrize("name", ["a.csv", "b.csv"])
def test_a_folder_in_the_place_of_a_file_changes_nothing(tmp_path, name):
    folder = fill(tmp_path / "out", {"fit.json": "old"})
    (folder / name).mkdir()
    with pytest.raises(ValueError, match=f"{name}: it is a folder"):
        check_place(folder, ["fit.json", *NEW, *STALE])
    with pytest.raises(ValueError, match=f"{name}: it is a folder"):
        write(folder)
    assert {p.name for p in folder.iterdir()} == {name, "fit.json"}
    assert (folder / "fit.json").read_text() == "old"


@pytest.mark.parametrize("fails", range(1, 8))
def test_moves_that_fail_are_undone(tmp_path, monkeypatch, fails):
    folder, calls, replace = fill(tmp_path / "out", OLD), [], os.replace

    def sometimes(source, target):
        calls.append(source)
        if len(calls) == fails:
            raise PermissionError(1, "Operation not permitted")
        replace(source, target)

    monkeypatch.setattr(os, "replace", sometimes)
    # The plan, three old files that leave, three new ones that come.
    with pytest.raises(ValueError, match="cannot write to .*not permitted.*nothing"):
        write(folder)
    assert content(folder) == OLD


def test_a_missing_folder_comes_with_its_parents_or_not_at_all(tmp_path):
    with pytest.raises(RuntimeError), together(tmp_path / "a" / "b" / "c") as place:
        fill(place, NEW)
        raise RuntimeError("no more")
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "a" / "b" / "c")
    assert content(tmp_path / "a" / "b" / "c") == NEW
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_another_process_makes_meanwhile_gets_the_files(tmp_path):
    with together(tmp_path / "a" / "b") as place:
        fill(place, NEW)
        fill(tmp_path / "a", {"other.txt": "x"})
    assert content(tmp_path / "a" / "b") == NEW
    with together(tmp_path / "d") as place:
        fill(place, NEW)
        fill(tmp_path / "d", {"a.csv": "other", "other.txt": "x"})
    assert content(tmp_path / "d") == {**NEW, "other.txt": "x"}


def test_permissions_are_those_of_other_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "out")
        with atomic_path(tmp_path / "file.csv") as place:
            place.write_text("x")
    finally:
        os.umask(before)
    modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.rglob("*")}
    assert modes.pop("out") == 0o750 and set(modes.values()) == {0o640}


def test_writers_of_one_folder_never_mix_their_files(tmp_path):
    folder, names = tmp_path / "out", [f"{k}.csv" for k in range(8)]
    stop, seen, errors = threading.Event(), set(), []

    def work(who):
        try:
            while not stop.is_set():
                write(folder, dict.fromkeys([*names, "fit.json"], who))
        except BaseException as error:
            errors.append(error)

    writers = [threading.Thread(target=work, args=(who,)) for who in "xyz"]
    for writer in writers:
        writer.start()
    until = time.monotonic() + 0.5
    while time.monotonic() < until and not errors:
        with undisturbed(folder):
            found = [p for p in folder.glob("*.*") if not writing.is_staging(p)]
            texts = {p.read_text() for p in found}
        assert len(texts) <= 1
        seen |= texts
    stop.set()
    for writer in writers:
        writer.join()
    assert not errors and len(seen) > 1
    assert sorted(content(folder)) == sorted([*names, "fit.json"])


def leave_plan(folder, plan):
    """What a process leaves that is killed after it wrote its plan."""
    staging = folder / ".irtjax-dead"
    fill(staging, {})
    fill(staging / "new", {"a.csv": "new a"})
    (staging / "old").mkdir()
    (staging / "plan.json").write_text(json.dumps(plan))
    return staging


def test_a_plan_out_of_the_folder_or_of_another_user_is_not_carried_out(
    tmp_path, monkeypatch
):
    folder = fill(tmp_path / "out", OLD)
    for names in (["../a.csv"], [str(tmp_path / "a.csv")], 3):
        staging = leave_plan(folder, {"from": "new", "names": names, "stale": []})
        with pytest.raises(ValueError, match="was killed"), undisturbed(folder):
            pass
        assert staging.exists() and not (tmp_path / "a.csv").exists()
        write(folder)  # It does not keep anyone from writing.
        assert (folder / "a.csv").read_text() == "new a"
        fill(folder, OLD)
        writing.shutil.rmtree(staging)
    leave_plan(folder, {"from": "new", "names": ["a.csv"], "stale": []})
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with undisturbed(folder):
        assert (folder / "a.csv").read_text() == "old a"
    monkeypatch.undo()
    with undisturbed(folder):
        assert (folder / "a.csv").read_text() == "new a"


@pytest.mark.parametrize("size", [1, 100, 4096, 40_000])
def test_a_full_disk_leaves_everything_as_it_was(tmp_path, size):
    resource = pytest.importorskip("resource")
    folder = fill(tmp_path / "out", OLD)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with pytest.raises(ValueError, match="cannot write to .*: File too large"):
            write(folder, {"a.csv": "x", "b.csv": "x" * (size + 1)})
        with (
            pytest.raises(ValueError, match="cannot write .*: File too large"),
            atomic_path(tmp_path / "one.csv") as place,
        ):
            place.write_text("x" * (size + 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert content(folder) == OLD
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
