"""What a command left in a folder: the earlier files, the new ones, or neither."""

import enum
import hashlib
import json
import shutil
from collections.abc import Container
from pathlib import Path

#: A file of somebody else, which must stay.
OTHER = "notes.txt"
#: What a command in parts writes of them.
RECORD = "run.json"
#: What it writes last, of all parts.
PAGES = ("report.html", "summary.md")


class State(enum.Enum):
    """The files of a folder after a command ended."""

    OLD = "old"  # All earlier files, to the byte, or no folder where there was none.
    NEW = "new"  # All files of the command, each of them whole.
    PARTS = "parts"  # Of a command in parts: each is old, new or gone; see `_of_parts`.
    LOST = "lost"  # Earlier files or those of others are missing or damaged.
    MIXED = "mixed"  # Some earlier files and some new ones.


class Outputs:
    """The outputs of a command, and those of an earlier one in their place."""

    def __init__(
        self, name: str, old: Path, new: Path, seconds: float, in_folder: Container[str]
    ) -> None:
        self.name, self.old, self.new, self.seconds = name, old, new, seconds
        self.names = {*digests(new)}
        self._earlier, self._later = digests(old), digests(new)
        self.before: dict[str, str] | None = None
        self.parts = sorted({x.partition("/")[0] for x in self.names if "/" in x})
        self._needs_folder = name in in_folder
        self._hashes = [_record(folder).get("data_hash") for folder in (old, new)]

    def begin(self, target: Path, empty: bool) -> Path:
        """Makes the folder as it is before the command; `empty`: without one."""
        shutil.rmtree(target, ignore_errors=True)
        for path in target.parent.glob(".irtjax-*"):
            shutil.rmtree(path, ignore_errors=True)
        Path(f"{target}.nuts.npz").unlink(missing_ok=True)
        self.before = None
        if not empty:
            shutil.copytree(self.old, target)
            if "fit.json" not in self.names:
                (target / OTHER).write_text("mine")
            self.before = digests(target)
        elif self._needs_folder:
            target.mkdir()
            self.before = {}
        return target

    def places(self, target: Path) -> list[Path]:
        """The folder and those of its parts, as far as they exist."""
        found = [target, *(target / part for part in self.parts)]
        return [folder for folder in found if folder.is_dir()]

    def state(self, target: Path, of_two: bool = False) -> State:
        """What is there once a process has begun to write to the folder again.

        `of_two`: the command of the earlier outputs was run again too.
        """
        from irtjax.data.writing import check_place, undisturbed

        check_place(target)
        for folder in self.places(target):
            check_place(folder)
        with undisturbed(target):
            if not target.exists():
                return State.OLD if self.before is None else State.LOST
            found = digests(target)
        if found == self.before:
            return State.OLD
        if self.before is not None and found.get(OTHER) != self.before.get(OTHER):
            return State.LOST
        if complete(target) != found.keys() - {OTHER}:
            return State.LOST
        if self.parts:
            return self._of_parts(found, _record(target), of_two)
        return self._of_files(found, self.names, of_two)[0]

    def _of_files(
        self, found: dict[str, str], names: set[str], of_two: bool
    ) -> tuple[State, State | None]:
        """Whether files are the earlier ones or those of a command, and which one."""
        parts = {_part(x) for x in names}
        among = lambda files: {
            x: files[x] for x in files.keys() - {OTHER, RECORD} if _part(x) in parts
        }
        own, earlier = among(found), among(self.before or {})
        if own == earlier:
            return State.OLD, State.OLD
        # Some files, such as figures, are other ones each time.
        old, new = self._earlier, self._later
        is_old = any(own[x] == old.get(x) != new.get(x) for x in own)
        is_new = any(own[x] == new.get(x) != old.get(x) for x in own)
        if is_old and is_new or is_old and not of_two:
            return State.MIXED, None
        wanted = {x for x in old if _part(x) in parts} - {RECORD} if is_old else names
        origin = State.OLD if is_old else State.NEW if is_new else None
        return (State.NEW if own.keys() >= wanted else State.MIXED), origin

    def _of_parts(self, found: dict[str, str], record: dict, of_two: bool) -> State:
        """The state of a command that writes one part after the other, and a record.

        Each part is the earlier one or the new one, or its files are gone; and the
        record states "done" of parts of one run only.
        """
        groups: dict[str, set[str]] = {}
        for name in self.names - {RECORD}:
            groups.setdefault(_part(name), set()).add(name)
        both = {part: self._of_files(found, x, of_two) for part, x in groups.items()}
        states = {part: state for part, (state, _) in both.items()}
        present = {_part(name) for name in found.keys() - {RECORD, OTHER}}
        gone = states.keys() - present
        if any(x is State.MIXED for part, x in states.items() if part not in gone):
            return State.MIXED
        done = {x for x, text in record.get("parts", {}).items() if text == "done"}
        expected = {State.OLD: self._hashes[0], State.NEW: self._hashes[1]}
        if done & gone:
            return State.MIXED
        # Pages of all parts are of the run that has any.
        for part in done | ({""} - gone if done else set()):
            origin = both[part][1]
            if origin is not None and expected[origin] != record["data_hash"]:
                return State.MIXED
        new = not gone and {*states.values()} == {State.NEW} and done >= {*self.parts}
        return State.NEW if new else State.PARTS

    def equal(self, target: Path) -> bool:
        """Whether all files equal those of the uninterrupted command, to the byte.

        Except three that state the seconds and the folder of their run.
        """
        found, timed = digests(target), {"fit.json", "leaderboard.md", "report.html"}
        return {*found} == self.names and all(
            found[name] == self._later[name] for name in self.names - timed
        )

    def leftovers(self, target: Path) -> int:
        """Hidden files that are there after the next command that writes there."""
        from irtjax.data.writing import check_place

        check_place(target)
        places = [*self.places(target), target.parent]
        return sum(p.name.startswith(".") for place in places for p in place.iterdir())


def _part(name: str) -> str:
    """The part of a command that a file is of; empty for those of the whole."""
    return name.rpartition("/")[0] or ("" if name in PAGES else "fit")


def _record(folder: Path) -> dict:
    """What has become of each part."""
    path = folder / RECORD
    return json.loads(path.read_text()) if path.is_file() else {}


def digests(folder: Path) -> dict[str, str]:
    """Digests of the files of a folder; hidden folders are no outputs."""
    paths = [p for p in folder.iterdir() if not p.name.startswith(".")]
    paths += [x for p in paths if p.is_dir() for x in p.iterdir()]
    name = lambda path: path.relative_to(folder).as_posix()
    return {
        name(p): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in paths
        if p.is_file() and not p.name.startswith(".")
    }


def complete(folder: Path) -> set[str]:
    """Names of the files that can be read to their end."""
    names = {*digests(folder)} - {OTHER}
    return {name for name in names if is_whole(folder / name)}


def is_whole(path: Path) -> bool:
    """Whether a file can be read to its end."""
    try:
        _read(path)
    except Exception:
        return False
    return True


def _read(path: Path) -> None:
    import matplotlib.image
    import numpy as np
    import pyarrow.csv
    import pyarrow.parquet

    if path.suffix == ".json":
        json.loads(path.read_text())
    elif path.suffix == ".csv":
        assert path.read_bytes().endswith(b"\n")
        pyarrow.csv.read_csv(path)
    elif path.suffix == ".parquet":
        pyarrow.parquet.read_table(path)
    elif path.suffix == ".png":
        matplotlib.image.imread(path)
    elif path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            assert all(file[name] is not None for name in file.files)
    elif path.suffix == ".html":
        assert path.read_text().endswith("</html>")
    else:
        assert path.read_text().endswith("\n")
