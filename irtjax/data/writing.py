"""Files that appear together or not at all, whatever ends the process.

1. Files are written into a staging folder on the same file system, `.irtjax-*`, and
   flushed to the disk.
2. A folder that does not exist appears by one rename, with its parents; so does one
   file. These renames are atomic.
3. Several files of a folder that exists are moved one by one. Before the first move, a
   plan of the moves is renamed into the staging folder. A process that is killed before
   that has changed nothing. The moves that a process killed after that has left are
   done by the next one that reads or writes the folder (`settle`). A move that fails
   is undone, with those before it.

A process locks its staging folder, and the system unlocks it when the process ends. So
the staging folders of dead processes are known: they are completed or deleted. The
moves themselves and the reading of several files lock the folder, so that two processes
never mix their files. Without locks (Windows, some network file systems) what a killed
process leaves is completed or deleted a day later.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl as _locks
except ImportError:  # Windows
    _locks: Any = None

_PREFIX = ".irtjax-"
_PLAN = "plan.json"
#: Seconds that another process may move its files; it takes milliseconds.
_PATIENCE = 30.0
#: Seconds after which a staging folder is a dead process's, where there are no locks.
_DEAD = 24 * 3600.0


@contextlib.contextmanager
def together(folder: str | Path, stale: Iterable[str] = ()) -> Iterator[Path]:
    """Yields a folder to write files to; they become those of ``folder`` at the end.

    All files appear, or none if the block or the writing fails. Other files of the
    folder stay.

    Args:
        folder: Folder to write to; it is made, with its parents, if there is none.
        stale: Names of files that go if the block does not write them: those of an
            earlier run that the new files would contradict.

    Raises:
        ValueError: If files cannot be written; then nothing has changed.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "results")
    >>> with together(folder) as place:
    ...     _ = (place / "a.txt").write_text("a")
    ...     folder.exists()
    False
    >>> [path.name for path in folder.iterdir()]
    ['a.txt']
    """
    folder = Path(folder).expanduser().absolute()
    with _refusals(folder):
        place, missing = _settled(folder)
        with _staging(place) as staging:
            inner = staging.joinpath("new", *missing)
            inner.mkdir(parents=True)
            yield inner
            _flush(staging / "new")
            _appear(staging, inner, folder, tuple(stale))


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yields a temporary path that becomes ``path`` only if the block succeeds."""
    place = Path(path).absolute()
    try:
        _settle(place.parent)
        with _staging(place.parent) as staging:
            yield staging / place.name
            _flush(staging)
            os.replace(staging / place.name, place)
            _flush_folder(place.parent)
    except OSError as error:
        raise ValueError(
            f"cannot write {path}: {_reason(error)}; choose a place that exists and"
            " that you may write to"
        ) from None


@contextlib.contextmanager
def undisturbed(folder: Path) -> Iterator[None]:
    """Keeps other processes from moving files into a folder that is being read.

    Raises:
        ValueError: If a process was killed while it replaced files of this folder, and
            this process may not complete that.
    """
    if not folder.is_dir():
        yield
        return
    if not _settle(folder):
        raise ValueError(
            f"{folder}: a process was killed while it replaced files here; let the user"
            " who started it, with write access, run `irtjax rank` on this folder"
        )
    with _locked(folder, shared=True):
        yield


def check_place(folder: Path, names: Iterable[str] = ()) -> None:
    """Refuses, before a long computation, a folder that cannot be written to.

    Args:
        folder: The folder, or one that is to be made.
        names: Names of files that will be written there.

    Raises:
        ValueError: If it is a file, it is not writable, or a name is that of a folder.
    """
    folder = Path(folder).expanduser().absolute()
    with _refusals(folder):
        place, missing = _settled(folder)
        # Permission bits do not show whether the file system accepts a file.
        with tempfile.TemporaryFile(dir=place):
            pass
        if not missing:
            _check_names(folder, names)


def is_staging(path: Path) -> bool:
    """Whether a path is where some process writes, or wrote until it was killed."""
    return path.name.startswith(_PREFIX)


def _nearest(folder: Path) -> tuple[Path, list[str]]:
    """The nearest folder that exists, and the names of those to make in it."""
    place, missing = folder, []
    while not place.is_dir():
        if os.path.lexists(place):
            raise ValueError(
                f"cannot write to {folder}: {place} is a file; name a folder"
            )
        missing.insert(0, place.name)
        place = place.parent
    return place, missing


def _settled(folder: Path) -> tuple[Path, list[str]]:
    """As `_nearest`, without what dead processes left there."""
    place, missing = _nearest(folder)
    # A process that was killed after it made the folder has left its parent to clean.
    for each in {place, folder.parent} if not missing else {place}:
        _settle(each)
    return place, missing


def _check_names(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            raise ValueError(
                f"cannot write {path}: it is a folder; choose another place"
            )


@contextlib.contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot write to {folder}: {_reason(error)}; nothing was written: choose a"
            " folder that you may write to, with enough space"
        ) from None


def _reason(error: OSError) -> str:
    """The system's words; libraries put more around them."""
    return os.strerror(error.errno) if error.errno else str(error)


@contextlib.contextmanager
def _staging(place: Path) -> Iterator[Path]:
    """Makes a staging folder in a folder, locked until it is deleted at the end."""
    while True:
        staging = Path(tempfile.mkdtemp(dir=place, prefix=_PREFIX))
        lock = _lock(staging)
        # Before it was locked, another process may have taken it for a dead one's.
        if staging.is_dir():
            break
        _unlock(lock)
    try:
        yield staging
    finally:
        _discard(staging)
        _unlock(lock)


def _discard(staging: Path) -> None:
    with contextlib.suppress(OSError):
        # A plan whose moves are done, or undone, must not be carried out again.
        (staging / _PLAN).unlink(missing_ok=True)
        shutil.rmtree(staging, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Flushes files and folders to the disk: afterwards a rename loses nothing."""
    for path in folder.iterdir():
        if path.is_dir():
            _flush(path)
            continue
        _flush_file(path)
    _flush_folder(folder)


def _flush_file(path: Path) -> None:
    # Windows flushes files that are open for writing only.
    with open(path, "rb+" if os.name == "nt" else "rb") as file:
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    # Not every system opens folders, and not every file system flushes them.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _appear(staging: Path, inner: Path, folder: Path, stale: tuple[str, ...]) -> None:
    """Makes the files of a staging folder those of the folder."""
    while True:
        place, missing = _nearest(folder)
        if not missing:
            break
        # The outermost folder that is missing comes with all that is in it.
        source = [inner, *inner.parents][len(missing) - 1]
        try:
            os.rename(source, place / missing[0])
        except OSError:
            if (place / missing[0]).is_dir():
                continue  # Another process has made it since.
            raise
        _flush_folder(place)
        return
    with _locked(folder):
        _settle(folder, locked=True)
        names = sorted((path.name for path in inner.iterdir()), key=_order)
        gone = [x for x in stale if x not in names and os.path.lexists(folder / x)]
        gone.sort(key=_order)
        _check_names(folder, [*names, *gone])
        if len(names) == 1 and not gone:
            os.replace(inner / names[0], folder / names[0])
        else:
            where = str(inner.relative_to(staging))
            plan = {"from": where, "names": names, "stale": gone}
            _write_plan(staging, plan)
            _move(staging, folder, plan)
        _flush_folder(folder)


def _order(name: str) -> bool:
    # A document describes the files next to it: it leaves first and comes last.
    return name.endswith(".json")


def _write_plan(staging: Path, plan: dict[str, Any]) -> None:
    (staging / "old").mkdir(exist_ok=True)
    draft = staging / "draft"
    draft.write_text(json.dumps(plan), encoding="utf-8")
    _flush_file(draft)
    os.replace(draft, staging / _PLAN)
    _flush_folder(staging)


def _move(staging: Path, folder: Path, plan: dict[str, Any]) -> None:
    """Carries out what a plan has left to do; undoes it if that fails."""
    new, old = staging / plan["from"], staging / "old"
    done: list[tuple[Path, Path]] = []

    def move(source: Path, target: Path) -> None:
        os.replace(source, target)
        done.append((source, target))

    left = [name for name in plan["names"] if os.path.lexists(new / name)]
    leaves = left + [x for x in plan["stale"] if not os.path.lexists(old / x)]
    try:
        for name in sorted(leaves, key=_order, reverse=True):
            if os.path.lexists(folder / name):
                move(folder / name, old / name)
        for name in left:
            move(new / name, folder / name)
    except BaseException:
        for source, target in reversed(done):
            os.replace(target, source)
        raise


def _settle(folder: Path, locked: bool = False) -> bool:
    """Completes or deletes what dead processes left; False if a plan must stay."""
    try:
        with os.scandir(folder) as entries:
            found = [Path(x.path) for x in entries if x.name.startswith(_PREFIX)]
    except OSError:
        return True
    found = [staging for staging in found if _is_mine(staging)]
    if not found:
        return True
    # The folder is locked before a staging folder, everywhere: a process that waited
    # for the folder could carry out an old plan after a newer one.
    with contextlib.nullcontext() if locked else _locked(folder):
        return all([_settle_one(staging, folder) for staging in found])


def _settle_one(staging: Path, folder: Path) -> bool:
    lock = None
    try:
        lock = _lock(staging, wait=False)
        if lock is None and time.time() - os.lstat(staging).st_mtime < _DEAD:
            return True
        plan = _plan_of(staging)
        if plan is not None:
            _move(staging, folder, plan)
        _discard(staging)
    except BlockingIOError:
        pass  # A process that lives is writing.
    except (OSError, ValueError, KeyError, TypeError):
        return not (staging / _PLAN).exists()
    finally:
        _unlock(lock)
    return True


def _is_mine(staging: Path) -> bool:
    """Whether this user made it: another one could plant one in a shared place."""
    with contextlib.suppress(OSError):
        status = os.lstat(staging)
        mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        return mine and stat.S_ISDIR(status.st_mode)
    return False


def _plan_of(staging: Path) -> dict[str, Any] | None:
    """The plan of a staging folder; None if there is none."""
    try:
        plan = json.loads((staging / _PLAN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    names = [*plan["names"], *plan["stale"]]
    if any(os.path.basename(name) != name for name in names):
        raise ValueError(f"{staging} has no plan of irtjax")
    return plan


@contextlib.contextmanager
def _locked(folder: Path, shared: bool = False) -> Iterator[None]:
    """Holds the lock of a folder, where there are locks."""
    until, lock = time.monotonic() + _PATIENCE, None
    while True:
        try:
            lock = _lock(folder, shared, wait=False)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                raise ValueError(
                    f"another process has locked {folder} for {_PATIENCE:.0f} seconds:"
                    " end it, or choose another folder"
                ) from None
            time.sleep(0.01)
    try:
        yield
    finally:
        _unlock(lock)


def _lock(folder: Path, shared: bool = False, wait: bool = True) -> int | None:
    """Locks a folder; None where that is not possible. `_unlock` takes the result.

    A BlockingIOError if another process has locked it and this one does not wait.
    """
    if _locks is None:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    kind = _locks.LOCK_SH if shared else _locks.LOCK_EX
    try:
        _locks.flock(handle, kind if wait else kind | _locks.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # A file system without locks.
        os.close(handle)
        return None
    return handle


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)
