"""What the folder of a run has for its verdict: items to read, a small benchmark."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax.data.fit_folder import is_subset

if TYPE_CHECKING:
    from irtjax.subsets.subset import Shrunken

#: The parts of the folder.
TO_READ, SUBSET, RECORD = "items_to_read.csv", "subset", "run.json"
#: Before the reason why a part is missing.
LEFT_OUT = "left out: "


def cheaper(small: Shrunken, place: str) -> str:
    """What a small benchmark gives, and its file in the folder `place`."""
    text = small.sentence(place)
    return text if small.harness_files() else f"{text}: {place}/{SUBSET}.csv"


def kept(folder: Path, shown: str) -> dict[str, Any]:
    """Arguments of `report.verdict.verdict` that the folder of a run has.

    Files that cannot be read are no reason to show nothing else.

    Args:
        folder: The folder.
        shown: Its name in lines that are printed.
    """
    parts: dict[str, Any] = {}
    # Where `add` could not examine the items they are those of the audit.
    path = folder / TO_READ
    path = path if path.is_file() else folder / "audit" / TO_READ
    with contextlib.suppress(ValueError):
        if path.is_file():
            from irtjax.auditing.agreement import read_items_to_read

            parts["to_read"] = read_items_to_read(path)
    line = _left_out(folder)
    with contextlib.suppress(ValueError):
        if is_subset(folder / SUBSET):
            from irtjax.subsets.subset import load_subset

            line = cheaper(load_subset(folder / SUBSET), str(Path(shown, SUBSET)))
    return parts | ({"more": {"Cheaper": line}} if line else {})


def _left_out(folder: Path) -> str:
    """Why a run made no small benchmark, or nothing."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        content = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        text = str(content["parts"][SUBSET])
        if text.startswith(LEFT_OUT):
            return text.removeprefix(LEFT_OUT)
    return ""
