"""Outputs appear together or not at all: killed, full disks, two writers."""

import errno
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

from irtjax.data import writing
from irtjax.data.writing import (
    atomic_path,
    check_place,
    is_staging,
    reserved,
    together,
    undisturbed,
)

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
    """Files by name, without what is left of processes that were killed."""
    return {p.name: p.read_text() for p in folder.iterdir() if not is_staging(p)}


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
    before, after = (begin, AFTER) if begin else (None, NEW)
    seen, refused = [], 0
    for last in range(1, steps + 1):
        folder = tmp_path / str(last)
        try:
            with undisturbed(folder):
                found = content(folder) if folder.exists() else None
            assert found in (before, after), last
        except ValueError as error:
            assert "was killed" in str(error)
            refused += 1
        # The next one that writes does the moves that are left.
        check_place(folder)
        found = content(folder) if folder.exists() else None
        assert found in (before, after), last
        seen.append(found == after)
        # Not even the empty folder of a process killed before it made its mark.
        assert not [*folder.glob(".irtjax-*"), *tmp_path.glob(".irtjax-*")]
    # Nothing of the new files, then all of them.
    assert seen == sorted(seen) and not seen[0] and seen[-1]
    assert (refused > 4) == bool(begin)


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


@pytest.mark.parametrize("fails", range(1, 7))
def test_moves_that_fail_are_undone(tmp_path, monkeypatch, fails):
    folder, calls, replace = fill(tmp_path / "out", OLD), [], os.replace

    def sometimes(source, target):
        calls.append(source)
        if len(calls) == fails:
            raise PermissionError(1, "Operation not permitted")
        replace(source, target)

    monkeypatch.setattr(os, "replace", sometimes)
    # Three old files that leave, three new ones that come.
    with pytest.raises(ValueError, match="cannot write to .*not permitted.*nothing"):
        write(folder)
    assert content(folder) == OLD


def test_replaced_files_stay_where_moves_can_be_neither_done_nor_undone(tmp_path):
    folder = fill(tmp_path / "out", OLD)
    staging = stop_in_moves(folder)
    assert content(staging / "old") == {"fit.json": "old"}
    check_place(folder)
    assert content(folder) == AFTER and not staging.exists()


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

    write(
        folder, dict.fromkeys([*names, "fit.json"], "x")
    )  # A folder that does not exist cannot be locked.
    writers = [threading.Thread(target=work, args=(who,)) for who in "xyz"]
    for writer in writers:
        writer.start()
    # On a busy machine a second writer may come late.
    begin, reads = time.monotonic(), 0
    spent = lambda: time.monotonic() - begin
    while not errors and (spent() < 0.5 or (len(seen) < 2 and spent() < 60)):
        with undisturbed(folder):
            texts = set(content(folder).values())
        assert len(texts) == 1
        seen |= texts
        reads += 1
    stop.set()
    for writer in writers:
        writer.join()
    assert not errors and len(seen) > 1 and reads > 1
    assert sorted(content(folder)) == sorted([*names, "fit.json"])


def stop_in_moves(folder):
    """Leaves what a process leaves that is killed after its first move."""
    calls, replace = [], os.replace

    def once(source, target):
        calls.append(source)
        if len(calls) > 1:
            raise PermissionError(1, "Operation not permitted")
        replace(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", once)
        with pytest.raises(ValueError, match="not permitted"):
            write(folder)
    (staging,) = folder.glob(".irtjax-*")
    return staging


def test_reading_changes_nothing_and_refuses_unfinished_moves(tmp_path):
    folder = fill(tmp_path / "out", OLD)
    staging = stop_in_moves(folder)
    before = sorted(folder.rglob("*"))
    with pytest.raises(ValueError, match="was killed"), undisturbed(folder):
        pass
    assert sorted(folder.rglob("*")) == before
    check_place(folder)
    assert content(folder) == AFTER and not staging.exists()


def test_unfinished_moves_of_another_user_are_named_and_left(tmp_path, monkeypatch):
    folder = fill(tmp_path / "out", OLD)
    staging = stop_in_moves(folder)
    assert staging.stat().st_mode & 0o777 == 0o755
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(ValueError, match="was killed"), undisturbed(folder):
        pass
    check_place(folder)
    assert staging.exists()
    # It does not keep anyone from writing.
    write(folder)
    with undisturbed(folder):
        assert content(folder) == AFTER


def test_moves_from_before_a_file_was_written_are_not_done(tmp_path):
    folder = fill(tmp_path / "out", OLD)
    staging = stop_in_moves(folder)
    time.sleep(0.02)
    fill(folder, {"a.csv": "newer"})
    check_place(folder)
    assert (folder / "a.csv").read_text() == "newer"
    with undisturbed(folder):
        pass
    # Files that it had replaced are not lost.
    assert (staging / "old" / "fit.json").read_text() == "old"


def test_a_copy_or_an_archive_of_unfinished_moves_is_not_carried_out(tmp_path):
    folder = fill(tmp_path / "out", OLD)
    stop_in_moves(folder)
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-Rp", str(folder), str(copy)], check=True)
    before = sorted(copy.rglob("*"))
    check_place(copy)
    assert sorted(copy.rglob("*")) == before
    with pytest.raises(ValueError, match="was killed"), undisturbed(copy):
        pass


@pytest.mark.parametrize("name", ["venv", "notes", "notes123", "abcdefgh"])
def test_folders_of_such_names_that_irtjax_did_not_make_stay(tmp_path, name):
    mine = tmp_path / f".irtjax-{name}"
    fill(mine, {"mine.txt": "x"})
    (mine / "new").mkdir()
    fill(mine / "new", {"mine.txt": "x"})
    with undisturbed(tmp_path):
        pass
    check_place(tmp_path)
    write(tmp_path)
    with atomic_path(tmp_path / "one.txt") as place:
        place.write_text("x")
    assert (mine / "mine.txt").exists() and (mine / "new" / "mine.txt").exists()
    # Nor with the content of a staging folder, or one more file.
    (mine / "mine.txt").unlink()
    check_place(tmp_path)
    assert (mine / "new" / "mine.txt").exists()
    fill(mine, {"mine.txt": "x", f"inode-{mine.stat().st_ino}": ""})
    check_place(tmp_path)
    assert (mine / "mine.txt").exists()


def test_empty_folders_of_dead_processes_go_and_those_of_live_ones_stay(tmp_path):
    dead, live = tmp_path / ".irtjax-deaddead", tmp_path / ".irtjax-livelive"
    dead.mkdir()
    live.mkdir()
    lock = writing._lock(live)
    assert lock is not None
    check_place(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [live.name]
    writing._unlock(lock)
    check_place(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_new_folder_that_another_process_deletes_is_made_again(tmp_path, monkeypatch):
    made, make = [], tempfile.mkdtemp

    def deleted(**given):
        made.append(make(**given))
        if len(made) < 3:
            os.rmdir(made[-1])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", deleted)
    write(tmp_path / "out")
    assert content(tmp_path / "out") == NEW and len(made) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_at_the_beginning_leaves_no_folder(tmp_path, monkeypatch):
    """The hidden folder stayed, locked as long as the process lived."""
    touch = Path.touch

    def full(path, *given, **more):
        if path.name.startswith("inode-"):
            raise OSError(errno.ENOSPC, "full")
        touch(path, *given, **more)

    monkeypatch.setattr(Path, "touch", full)
    with pytest.raises(ValueError, match="No space left"):
        write(tmp_path / "out")
    assert not [*tmp_path.iterdir()]


def test_outputs_do_not_have_the_names_of_unfinished_ones(tmp_path):
    for begin in (check_place, together(tmp_path / ".irtjax-results").__enter__):
        with pytest.raises(ValueError, match="names that begin with .irtjax-"):
            begin(*[tmp_path / ".irtjax-results"] * (begin is check_place))
    assert not [*tmp_path.iterdir()]


def test_two_dots_behind_a_folder_that_does_not_exist(tmp_path):
    write(tmp_path / "aa" / ".." / "bb")
    check_place(tmp_path / "aa" / ".." / "cc")
    assert content(tmp_path / "bb") == NEW
    assert [p.name for p in tmp_path.iterdir()] == ["bb"]


def test_a_user_who_does_not_exist_is_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("~nosuchuser")
    assert content(tmp_path / "~nosuchuser") == NEW


def test_files_that_are_replaced_leave_their_permissions(tmp_path):
    folder = fill(tmp_path / "out", OLD)
    (folder / "a.csv").chmod(0o640)
    write(folder)
    link, target = tmp_path / "link.csv", folder / "a.csv"
    assert target.stat().st_mode & 0o777 == 0o640
    link.symlink_to(target)
    with atomic_path(link) as place:
        assert place.name == "link.csv"
        place.write_text("by the link")
    assert link.is_symlink() and target.read_text() == "by the link"
    assert target.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("kind", [together, atomic_path])
def test_other_files_that_cannot_be_read_are_not_called_unwritable(tmp_path, kind):
    with pytest.raises(FileNotFoundError), kind(tmp_path / "out"):
        (tmp_path / "input.csv").read_text()
    with pytest.raises(ValueError, match="cannot write"), kind(tmp_path / "out") as x:
        (x / "none" / "file").write_text("")
    assert not [*tmp_path.iterdir()]


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


def test_a_reserved_folder_is_of_one_process(tmp_path):
    with reserved(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not (tmp_path / "a").exists()
    place = tmp_path / "new"
    code = textwrap.dedent(
        """
        import pathlib, sys
        from irtjax.data.writing import reserved

        with reserved(pathlib.Path(sys.argv[1])):
            pass
        """
    )
    command = [sys.executable, "-c", code, str(place)]
    with reserved(place):
        # This process writes; another one waits for it, or is refused at once.
        write(place)
        done = subprocess.run(command, capture_output=True, text=True)
        last = done.stderr.splitlines()[-1]
        assert done.returncode == 1 and "another process writes to" in last
    assert content(place) == NEW
    assert subprocess.run(command).returncode == 0
    assert content(place) == NEW
    # Made in vain, it goes; one of the user stays.
    with reserved(tmp_path / "empty"):
        assert (tmp_path / "empty").is_dir()
    assert not (tmp_path / "empty").exists()
    (tmp_path / "own").mkdir()
    with reserved(tmp_path / "own"):
        pass
    assert (tmp_path / "own").is_dir()
