"""What a command left in a folder: the earlier files, the new ones, or neither."""

import enum
import hashlib
import json
import shutil
from collections.abc import Container
from pathlib import Path

#: A file of somebody else, which must stay.
OTHER = "notes.txt"


class State(enum.Enum):
    """The files of a folder after a command ended."""

    OLD = "old"  # All earlier files, to the byte, or no folder where there was none.
    NEW = "new"  # All files of the command, each of them whole.
    LOST = "lost"  # Earlier files or those of others are missing or damaged.
    MIXED = "mixed"  # Some earlier files and some new ones.


class Outputs:
    """The outputs of a command, and those of an earlier one in their place."""

    def __init__(
        self, name: str, old: Path, new: Path, seconds: float, in_folder: Container[str]
    ) -> None:
        self.name, self.old, self.new, self.seconds = name, old, new, seconds
        self.names = {path.name for path in new.iterdir()}
        earlier, later = digests(old), digests(new)
        #: Files that are the same in both, and so show nothing.
        self.alike = {x for x in later if later[x] == earlier.get(x)}
        self.before: dict[str, str] | None = None
        self._needs_folder = name in in_folder

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

    def state(self, target: Path) -> State:
        """What is there once a process has begun to write to the folder again."""
        from irtjax.data.writing import check_place, undisturbed

        check_place(target)
        with undisturbed(target):
            if not target.exists():
                return State.OLD if self.before is None else State.LOST
            found = digests(target)
        if found == self.before:
            return State.OLD
        if self.before is not None and found.get(OTHER) != self.before.get(OTHER):
            return State.LOST
        whole = complete(target)
        own = found.keys() - {OTHER}
        earlier = self.before or {}
        same = {x for x in own if found[x] == earlier.get(x)}
        if whole != own:
            return State.LOST
        new = own >= self.names and same <= self.alike
        return State.NEW if new else State.MIXED

    def leftovers(self, target: Path) -> int:
        """Hidden files that are there after the next command that writes there."""
        from irtjax.data.writing import check_place

        check_place(target)
        places = [p for p in (target, target.parent) if p.is_dir()]
        return sum(p.name.startswith(".") for place in places for p in place.iterdir())


def digests(folder: Path) -> dict[str, str]:
    """Digests of the files of a folder; hidden folders are no outputs."""
    files = [p for p in folder.iterdir() if p.is_file()]
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def complete(folder: Path) -> set[str]:
    """Names of the files that can be read to their end."""
    return {p.name for p in folder.iterdir() if p.name != OTHER and _is_whole(p)}


def _is_whole(path: Path) -> bool:
    if path.is_dir():
        return False
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
