"""Altered files that Hypothesis draws: of one that fails, the smallest.

    python experiments/fuzz/minimal.py --count 2000
    python experiments/fuzz/minimal.py --only CSV lm-eval

The alterations are those of `mutate.py`; what they draw at random, Hypothesis draws.
Of a file that ends in anything but a table or a `ValueError` of one line it looks for
simpler draws that fail alike, so that what is left has one alteration that matters.
That file is kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.fuzz import run
from experiments.fuzz.mutate import seeds, write_more

#: Files of some formats are slow to write, and need many draws.
SLOW = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
)


def examine(whole: list[Path], count: int, folder: Path) -> tuple[str, Path | None]:
    """Reads altered files of a format until one fails.

    Args:
        whole: Files or folders to alter.
        count: Number of altered files.
        folder: Place for them, not that of the whole files.

    Returns:
        What the smallest file that fails ends in, and that file; "" and None if all
        end in a table or in one line.
    """
    last: dict[str, Any] = {}

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=SLOW,
        phases=[Phase.generate, Phase.shrink],
        print_blob=False,
    )
    @given(st.randoms(use_true_random=False))
    def ends_in_a_table_or_a_line(rng: Any) -> None:
        path = run.make_by(rng, whole, folder)
        found = run.ended(lambda: run.read_one(path))
        # The last failing call is that of the smallest file.
        if found not in ("table", "refused"):
            last.update(found=found, path=path)
            raise AssertionError(found)

    try:
        ends_in_a_table_or_a_line()
    except AssertionError:
        return last["found"], last["path"]
    return "", None


def main(arguments: list[str] | None = None) -> int:
    """Examines all formats and returns the number of those with a problem."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="files of each format")
    parser.add_argument("--only", nargs="*", help="formats")
    parser.add_argument("--keep", type=Path, default=Path("found"), help="for files")
    asked = parser.parse_args(arguments)
    total = 0
    with tempfile.TemporaryDirectory() as name:
        source, place = Path(name, "whole"), Path(name, "altered")
        source.mkdir()
        place.mkdir()
        for kind, whole in {**seeds(), **write_more(source)}.items():
            if asked.only and kind not in asked.only:
                continue
            found, path = examine(whole, asked.count, place)
            print(f"{kind}: {found or 'no problem'}", flush=True)
            if path is not None:
                target = asked.keep / kind / path.name
                (shutil.copytree if path.is_dir() else _copy)(path, target)
                total += 1
    return total


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


if __name__ == "__main__":
    sys.exit(min(main(), 99))
