"""Altered files that coverage chooses: a target for atheris.

    pip install atheris
    python experiments/fuzz/guided.py CORPUS -max_total_time=600

The folder CORPUS is filled with the whole files of `mutate.py` if it does not exist.
Every input is given to `irtjax.read` under the name of its format; what ends in
anything but a table or a `ValueError` of one line stops the run, and atheris keeps the
input. Without atheris `run.py` alters files by what their parts mean.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

#: Names under which an input is read; its first byte chooses one.
NAMES = (
    "t.csv",
    "t.json",
    "rows.jsonl",
    "t.parquet",
    "samples_task_2026-03-01T10-20-30.123456.jsonl",
    "2026-03-01T10-20-30+00-00_task_id.eval",
    "2026-03-01T10-20-30+00-00_task_id.json",
    "x_samples.jsonl",
)


def fill(folder: Path) -> None:
    """Writes the whole files of all formats, each after the byte of its name."""
    from experiments.fuzz.mutate import seeds

    folder.mkdir(parents=True)
    endings = [Path(name).suffix for name in NAMES]
    for number, (kind, paths) in enumerate(seeds().items()):
        for k, path in enumerate(paths):
            if path.is_file() and path.suffix in endings:
                place = endings.index(path.suffix)
                if kind == "lm-eval":
                    place = 4
                elif kind.startswith("Inspect"):
                    place = 5 if path.suffix == ".eval" else 6
                data = bytes([place]) + path.read_bytes()
                (folder / f"{number}-{k}").write_bytes(data)


def outcome(data: bytes, folder: Path) -> str:
    """What reading an input ends in: "table", "refused" or a problem."""
    from experiments.fuzz.run import read_one

    if not data:
        return "refused"
    path = folder / NAMES[data[0] % len(NAMES)]
    path.write_bytes(data[1:])
    try:
        return read_one(path)
    finally:
        path.unlink()


def main() -> None:
    """Runs atheris with the arguments of libFuzzer."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris")
    places = [Path(x) for x in sys.argv[1:] if not x.startswith("-")]
    if places and not places[0].exists():
        fill(places[0])
    with atheris.instrument_imports(include=["irtjax.data"]):
        import irtjax.data

        # Readers are imported when they are needed: here, to be followed.
        for module in pkgutil.walk_packages(irtjax.data.__path__, "irtjax.data."):
            importlib.import_module(module.name)
    with tempfile.TemporaryDirectory() as place:

        def one(data: bytes) -> None:
            found = outcome(data, Path(place))
            if found not in ("table", "refused"):
                raise RuntimeError(found)

        atheris.Setup(sys.argv, one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
