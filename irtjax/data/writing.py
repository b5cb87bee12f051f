"""Files that appear together or not at all, whatever ends the process.

1. Files are written into a staging folder on the same file system, `.irtjax-*`, and
   flushed to the disk.
2. A folder that does not exist appears by one rename, with its parents; so does one
   file. These renames are atomic.
3. Several files of a folder that exists are moved one by one. Before the first move
   they are renamed to `moves` in the staging folder, next to `gone`, which has an empty
   file for each name that goes. A process that is killed before that has changed
   nothing. The moves that a process killed after that has left are done by the next one
   of the same user that writes there (`_settle`); until then reading is refused. A move
   that fails is undone, with those before it.

A process locks its staging folder, and the system unlocks it when the process ends. So
the staging folders of dead processes are known: they are completed or deleted. A
staging folder is recognized by a mark that has its inode, which no archive and no copy
can have: other folders of such names are never touched, unless they are empty. A
process that is killed between making the folder and its mark, or between deleting them,
leaves an empty one.

The moves themselves and the reading of several files lock the folder, so that two
processes never mix their files.
Without locks (Windows, some network file systems) what a killed process leaves is
completed or deleted a day later.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
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
#: Names that `tempfile.mkdtemp` makes of it.
_NAME = re.compile(re.escape(_PREFIX) + "[a-z0-9_]{8}")
#: What a staging folder has: files to come, those that are to be moved now, names of
#: files that go, files that were replaced, and moves that are done or undone.
_NEW, _MOVES, _GONE, _OLD, _DONE = "new", "moves", "gone", "old", "done"
#: Seconds that another process may move its files; it takes milliseconds.
_PATIENCE = 30.0
#: Attempts to make a staging folder that another process does not delete at once.
_TRIES = 100
#: Folders that this process has reserved.
_reserved: set[Path] = set()
#: Seconds after which a staging folder is a dead process's, where there are no locks.
_DEAD = 24 * 3600.0


@contextlib.contextmanager
def together(folder: str | Path, stale: Iterable[str] = ()) -> Iterator[Path]:
    """Yields a folder to write files to; they become those of ``folder`` at the end.

    All files appear, or none if the block or the writing fails. Other files of the
    folder stay. A file that is replaced leaves its permissions to the new one; a
    symbolic link is replaced, not its target.

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
    folder = full_path(folder)
    with _refusals(f"cannot write to {folder}"):
        place, missing = _settled(folder)
        with _staging(place) as staging:
            inner = staging.joinpath(_NEW, *missing)
            inner.mkdir(parents=True, exist_ok=True)
            with _writing(staging):
                yield inner
            _flush(staging / _NEW)
            _appear(staging, inner, folder, tuple(stale))


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yields a temporary path that becomes ``path`` only if the block succeeds.

    Where ``path`` is a symbolic link, its target is written.
    """
    name, target = Path(path).name, full_path(path)
    with _refusals(f"cannot write {path}"):
        _settle(target.parent)
        with _staging(target.parent) as staging:
            new = staging / _NEW / name
            with _writing(staging):
                yield new
            _keep_mode(target, new)
            _flush(staging / _NEW)
            os.replace(new, target)
            _flush_folder(target.parent)


def write_text(text: str, path: Path) -> None:
    """Writes text as UTF-8, as a file of `together` or `atomic_path`."""
    path.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def undisturbed(folder: Path) -> Iterator[None]:
    """Keeps other processes from moving files into a folder that is being read.

    A folder that does not exist cannot be locked: check that it does before.

    Raises:
        ValueError: If a process was killed while it replaced files of this folder.
    """
    if not folder.is_dir():
        yield
        return
    with _locked(folder, shared=True):
        # No process that lives moves files now.
        if any(_moves_due(staging, folder) for staging in _stagings(folder)):
            raise ValueError(
                f"{folder}: a process was killed while it replaced files here; run the"
                " same command again with this folder, as the same user"
            )
        yield


@contextlib.contextmanager
def reserved(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Keeps other processes from writing to a folder within the block.

    For several calls of `together` whose files belong to each other. A folder that does
    not exist is made, with its parents; those that are empty in the end go again.

    Args:
        folder: The folder.
        patience: Seconds to wait for another process that has reserved it.

    Raises:
        ValueError: If another process has reserved it, or it cannot be made.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "results")
    >>> with reserved(folder):
    ...     with together(folder) as place:
    ...         _ = (place / "a.txt").write_text("a")
    >>> (folder / "a.txt").read_text()
    'a'
    """
    folder = full_path(folder)
    with _refusals(f"cannot write to {folder}"):
        made, lock = _reserve(folder, time.monotonic() + patience)
    _reserved.add(folder)
    try:
        yield
    finally:
        _reserved.discard(folder)
        with contextlib.suppress(OSError):
            for each in made:
                each.rmdir()
        _unlock(lock)


def _reserve(folder: Path, until: float) -> tuple[list[Path], int | None]:
    """Folders that were made for one, and its lock, if it is free by some time."""
    while True:
        made = [x for x in (folder, *folder.parents) if not x.is_dir()]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            if folder in _reserved:
                raise BlockingIOError
            lock = _lock(folder, wait=False)
        except BlockingIOError:
            _wait(until, f"another process writes to {folder}: wait until it has ended")
            continue
        if lock is None or _is_at(folder, lock):
            return made, lock
        # Another process has removed the folder, which was empty, before the lock.
        _unlock(lock)


def _is_at(folder: Path, lock: int) -> bool:
    """Whether the folder that is locked is still the one of this path."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(folder))
    except FileNotFoundError:
        return False


def check_place(folder: Path, names: Iterable[str] = ()) -> None:
    """Refuses, before a long computation, a folder that cannot be written to.

    Args:
        folder: The folder, or one that is to be made.
        names: Names of files that will be written there.

    Raises:
        ValueError: If it is a file, it is not writable, or a name is that of a folder.
    """
    folder = full_path(folder)
    with _refusals(f"cannot write to {folder}"):
        place, missing = _settled(folder)
        # Permission bits do not show whether the file system accepts a file.
        with tempfile.TemporaryFile(dir=place):
            pass
        if not missing:
            _check_names(folder, names)


def is_staging(path: Path) -> bool:
    """Whether a path has the name of a folder that some process writes to, or wrote."""
    return _NAME.fullmatch(path.name) is not None


def full_path(path: str | Path) -> Path:
    """A path without `~`, `..` and symbolic links.

    The system refuses `..` behind a folder that does not exist.
    """
    # `Path.expanduser` raises a RuntimeError for a user who does not exist.
    expanded = os.path.expanduser(os.fspath(path))
    if os.path.basename(os.path.normpath(expanded)).startswith(_PREFIX):
        raise ValueError(
            f"{path}: names that begin with {_PREFIX} are for unfinished files of"
            " irtjax; choose another"
        )
    return Path(os.path.realpath(expanded))


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
    """Refuses names that are folders in a folder."""
    for name in names:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            raise ValueError(
                f"cannot write {path}: it is a folder; choose another place"
            )


@contextlib.contextmanager
def _refusals(what: str) -> Iterator[None]:
    """Errors of the system inside become refusals of one line."""
    try:
        yield
    except OSError as error:
        if getattr(error, "elsewhere", False):
            raise
        raise ValueError(
            f"{what}: {_reason(error)}; nothing was written: choose a place that"
            " exists and that you may write to, with enough space"
        ) from None


@contextlib.contextmanager
def _writing(staging: Path) -> Iterator[None]:
    """Marks errors of a block that are of another file than those it writes."""
    try:
        yield
    except OSError as error:
        name = error.filename
        inside = name is None or staging in Path(os.path.abspath(str(name))).parents
        error.elsewhere = not inside  # pyright: ignore[reportAttributeAccessIssue]
        raise


def _reason(error: OSError) -> str:
    """The system's words; libraries put more around them."""
    return os.strerror(error.errno) if error.errno else str(error)


@contextlib.contextmanager
def _staging(place: Path) -> Iterator[Path]:
    """Makes a staging folder in a folder, locked until it is deleted at the end."""
    staging, lock = _new_staging(place)
    try:
        (staging / _NEW).mkdir()
        yield staging
    finally:
        _discard(staging)
        _unlock(lock)


def _new_staging(place: Path) -> tuple[Path, int | None]:
    """A staging folder with its mark, and its lock."""
    for _ in range(_TRIES):
        staging = Path(tempfile.mkdtemp(dir=place, prefix=_PREFIX))
        lock = _lock(staging)
        try:
            _mark(staging).touch()
            return staging, lock
        except FileNotFoundError:
            # Another process took it for one that a dead process left, before the lock.
            _unlock(lock)
        except BaseException:
            _discard(staging)
            _unlock(lock)
            raise
    raise OSError(errno.EAGAIN, "other processes delete unfinished files")


def _mark(staging: Path) -> Path:
    """The file that shows that irtjax made a folder, here."""
    return staging / f"inode-{os.lstat(staging).st_ino}"


def _discard(staging: Path) -> None:
    """Deletes a staging folder, its mark last, unless replaced files are in it."""
    with contextlib.suppress(OSError):
        if (staging / _OLD).exists():
            (staging / _OLD).rmdir()
        if (staging / _MOVES).exists():
            # Moves that are done, or undone, must not be carried out again.
            os.rename(staging / _MOVES, staging / _DONE)
        for name in (_NEW, _GONE, _DONE):
            if (staging / name).exists():
                shutil.rmtree(staging / name)
        _mark(staging).unlink(missing_ok=True)
        staging.rmdir()


def _flush(folder: Path) -> None:
    """Flushes files and folders to the disk: afterwards a rename loses nothing."""
    for path in folder.iterdir():
        if path.is_dir():
            _flush(path)
            continue
        _flush_file(path)
    _flush_folder(folder)


def _flush_file(path: Path) -> None:
    """Has the system write a file to the disk."""
    # Windows flushes files that are open for writing only.
    with open(path, "rb+" if os.name == "nt" else "rb") as file:
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Has the system write the names in a folder to the disk."""
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
        names = _names(inner)
        gone = [x for x in stale if x not in names and os.path.lexists(folder / x)]
        _check_names(folder, [*names, *gone])
        for name in names:
            _keep_mode(folder / name, inner / name)
        if len(names) == 1 and not gone:
            os.replace(inner / names[0], folder / names[0])
        else:
            _plan(staging, inner, gone)
            _move(staging, folder)
        _flush_folder(folder)


def _keep_mode(old: Path, new: Path) -> None:
    """Gives a file the permissions of the one that it replaces."""
    with contextlib.suppress(OSError):
        os.chmod(new, stat.S_IMODE(os.stat(old).st_mode) & 0o777)


def _names(folder: Path) -> list[str]:
    """Names of a folder's files, documents last."""
    return sorted(os.listdir(folder), key=_order)


def _order(name: str) -> tuple[bool, str]:
    """Sort key of the order in which files move."""
    # A document describes the files next to it: it leaves first and comes last.
    return name.endswith(".json"), name


def _plan(staging: Path, inner: Path, gone: list[str]) -> None:
    """Stores which files are to be moved; one rename makes it valid."""
    (staging / _OLD).mkdir()
    (staging / _GONE).mkdir()
    for name in gone:
        (staging / _GONE / name).touch()
    _flush_folder(staging / _GONE)
    staging.chmod(0o755)  # Other users see that files are moved.
    os.rename(inner, staging / _MOVES)
    _flush_folder(staging)


def _left(staging: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Names of files that are still to come, and of others that are still to go."""
    isin = lambda name, place: os.path.lexists(place / name)
    gone = [name for name in _names(staging / _GONE) if isin(name, folder)]
    gone = [name for name in gone if not isin(name, staging / _OLD)]
    return _names(staging / _MOVES), gone


def _moves_due(staging: Path, folder: Path) -> list[Path] | None:
    """Files that are still to be moved; None without a plan that is in force."""
    try:
        since = os.lstat(staging / _GONE).st_mtime_ns
        left = [folder / name for names in _left(staging, folder) for name in names]
        times = [os.lstat(x).st_mtime_ns for x in left if os.path.lexists(x)]
    except OSError:  # There is none, or its owner keeps others out.
        return None
    # A file that somebody has written since then is not replaced by an older one.
    return left if max(times, default=0) <= since else None


def _move(staging: Path, folder: Path) -> None:
    """Does the moves that are left; undoes them if one fails."""
    new, old = staging / _MOVES, staging / _OLD
    names, gone = _left(staging, folder)
    done: list[tuple[Path, Path]] = []

    def move(source: Path, target: Path) -> None:
        os.replace(source, target)
        done.append((source, target))

    try:
        for name in sorted([*names, *gone], key=_order, reverse=True):
            if os.path.lexists(folder / name):
                move(folder / name, old / name)
        for name in names:
            move(new / name, folder / name)
    except BaseException:
        for source, target in reversed(done):
            os.replace(target, source)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _settle(folder: Path, locked: bool = False) -> None:
    """Completes or deletes what this user's dead processes left in a folder."""
    dead = [x for x in _stagings(folder) if _is_mine(x) and _is_dead(x)]
    if not dead:
        return
    # The folder is locked before a staging folder, everywhere: a process that waited
    # for the folder could do old moves after newer ones.
    with contextlib.nullcontext() if locked else _locked(folder):
        for staging in dead:
            _settle_one(staging, folder)


def _settle_one(staging: Path, folder: Path) -> None:
    """Ends the writing that a killed process left, if no process is at it."""
    lock = None
    try:
        lock = _lock(staging, wait=False)
        if _moves_due(staging, folder) is not None:
            _move(staging, folder)
        _discard(staging)
    except OSError:
        pass  # Another process does it, or this one may not.
    finally:
        _unlock(lock)


def _stagings(folder: Path) -> list[Path]:
    """Staging folders of a folder, by their names."""
    try:
        return [x for x in folder.iterdir() if is_staging(x)]
    except OSError:
        return []


def _is_mine(staging: Path) -> bool:
    """Whether irtjax made a folder for this user, here: archives could plant one.

    Nothing is lost with an empty one.
    """
    with contextlib.suppress(OSError):
        status = os.lstat(staging)
        user = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        if user and stat.S_ISDIR(status.st_mode):
            mark, names = _mark(staging).name, set(os.listdir(staging))
            own = {mark, _NEW, _MOVES, _GONE, _OLD, _DONE}
            return not names or mark in names <= own
    return False


def _is_dead(staging: Path) -> bool:
    """Whether the process that made a staging folder has ended."""
    try:
        lock = _lock(staging, wait=False)
        _unlock(lock)
        return lock is not None or time.time() - os.lstat(staging).st_mtime > _DEAD
    except OSError:  # It lives, or has just ended and deleted its folder.
        return False


@contextlib.contextmanager
def _locked(folder: Path, shared: bool = False) -> Iterator[None]:
    """Holds the lock of a folder, where there are locks."""
    if folder in _reserved:
        yield
        return
    until, lock = time.monotonic() + _PATIENCE, None
    while True:
        try:
            lock = _lock(folder, shared, wait=False)
            break
        except BlockingIOError:
            locked = f"another process has locked {folder} for {_PATIENCE:.0f} seconds"
            _wait(until, f"{locked}: end it")
    try:
        yield
    finally:
        _unlock(lock)


def _wait(until: float, refusal: str) -> None:
    """Waits a moment for another process; after some time its folder is refused."""
    if time.monotonic() > until:
        raise ValueError(f"{refusal}, or choose another folder") from None
    time.sleep(0.02)


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
    """Frees a lock, if there is one."""
    if lock is not None:
        os.close(lock)
