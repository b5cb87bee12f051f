"""The folder of a fit: the names of its files, and the responses that it keeps."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax.data import writing
from irtjax.data.decode import Record, decode
from irtjax.data.files import check_parquet, check_text, read_bytes
from irtjax.data.item_texts import texts_from_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.data.table import ResponseTable

FIT_FORMAT, ARENA_FORMAT = "irtjax.fit", "irtjax.arena"
#: The responses of a fit, if they are kept.
RESPONSES = "responses.parquet"
#: Names that a fit uses in its folder; other files stay as they are.
FIT_FILES = tuple(
    "fit.json parameters.npz items.parquet items.csv abilities.parquet abilities.csv"
    " leaderboard.md report.html abilities.png wright_map.png latency.png"
    " item_response_functions.png test_information.png item_parameters.png".split()
)
#: Those of a multilevel fit or a factor model, of items with texts, and of responses
#: that are kept, in addition.
STRUCTURE_FILES = tuple(
    "effects.csv variance_components.csv subject_effects.csv group_abilities.csv"
    " correlations.csv diagnostics.csv trajectories.csv draws.nc group_abilities.png"
    " correlations.png loadings.csv structure.csv"
    " factor_correlations.csv factor_correlation_errors.csv structure.png biplot.png"
    f" item_texts.parquet item_contents.parquet {RESPONSES}".split()
)
#: Those of `irtjax run`, whose folder is that of its fit: what became of each part.
RUN_FILES = ("run.json", "summary.md", "items_to_read.csv")
#: Folders in that of a fit: parts of a run, and what the fit was before.
PARTS = ("audit", "subset", "snapshots")
#: Prompts and answers of the items, where the data had them.
TEXTS = "item_texts.parquet"
#: Hashes of the content of the items, where the data had them.
CONTENTS = "item_contents.parquet"


class Mark(Record):
    """The fields that mark a fit of this version."""

    format: Any = None
    version: Any = None


class _Facts(Record):
    """The digests of the files of a fit, and its options."""

    digests: dict[str, str] | None = None
    options: dict[str, Any] = {}


def is_fit(folder: str | Path) -> bool:
    """Whether a folder holds a fit that irtjax wrote, of any version."""
    return _format_of(folder) == FIT_FORMAT


def is_arena(folder: str | Path) -> bool:
    """Whether a folder holds a fit of comparisons that irtjax wrote, of any version."""
    return _format_of(folder) == ARENA_FORMAT


def is_subset(path: str | Path) -> bool:
    """Whether a path is a saved subset, or a folder with one and no fit."""
    path = Path(os.path.expanduser(path))
    if path.is_dir():
        return (path / "subset.json").is_file() and not (path / "fit.json").is_file()
    return path.is_file() and path.suffix == ".json"


def _format_of(folder: str | Path) -> Any:
    """The format that `fit.json` of a folder names; None where there is none."""
    path = Path(folder, "fit.json")
    if not path.is_file():
        return None
    try:
        return decode(read_bytes(path), Mark, str(path)).format
    except ValueError:
        return None


def is_file_of_fit(path: Path, folder: Path) -> bool:
    """Whether a file in the folder of a fit, or below it, belongs to the fit."""
    names = list(path.relative_to(folder).parts)
    if len(names) > 1:
        return names[0] in PARTS
    return names[0] in (*FIT_FILES, *STRUCTURE_FILES, *RUN_FILES)


def damaged(folder: Path, reason: str) -> ValueError:
    """The refusal of a damaged fit."""
    reason = " ".join(reason.split())
    return ValueError(f"the fit in {folder} is damaged: {reason}; run the fit again")


def load_responses(folder: str | Path) -> ResponseTable:
    """Reads the responses that a fit was made of, where its folder keeps them.

    Args:
        folder: What `irtjax.save(..., responses=table)` or the command line wrote.

    Returns:
        The responses as they were read, with texts of items if the folder has these.

    Raises:
        ValueError: If the folder has none, or they were changed since.

    >>> import tempfile, irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> fit = irtjax.fit(table, "rasch")
    >>> folder = irtjax.save(fit, tempfile.mkdtemp(), responses=table)
    >>> load_responses(folder).values.tolist() == table.values.tolist()
    True
    """
    from irtjax.data.table import ResponseTable

    folder = writing.full_path(folder)
    with writing.undisturbed(folder):
        if not (folder / RESPONSES).is_file():
            raise without_responses(folder)
        facts = _facts_of(folder)
        _check_digest(folder, facts)
        try:
            table = ResponseTable.load(folder / RESPONSES)
            texts = texts_from_rows(read_rows(folder / TEXTS))
            return table.replace(item_texts=texts, item_contents=contents_of(folder))
        except (OSError, ValueError, KeyError) as error:
            raise damaged(folder, str(error)) from None


def without_responses(folder: Path) -> ValueError:
    """The refusal of a fit that does not keep its responses."""
    return ValueError(
        f"the fit in {folder} does not keep its responses: name the files that it was"
        " made from"
    )


def coded_responses(folder: str | Path) -> ResponseTable:
    """The responses that a fit keeps, with its codes; JAX is not loaded.

    Raises:
        ValueError: As `load_responses`.
    """
    from irtjax.data.coding import coded_as

    table = load_responses(folder)
    return coded_as(_facts_of(writing.full_path(folder)).options, table)


def _facts_of(folder: Path) -> _Facts:
    """What `fit.json` says of a fit's responses."""
    try:
        return decode(read_bytes(folder / "fit.json"), _Facts, "fit.json")
    except ValueError as error:
        raise damaged(folder, str(error)) from None


def _check_digest(folder: Path, content: _Facts) -> None:
    """Refuses responses that are not those that were written with the fit."""
    here = hashlib.sha256((folder / RESPONSES).read_bytes()).hexdigest()
    if content.digests is not None and content.digests.get(RESPONSES) != here:
        raise damaged(folder, f"{RESPONSES} was changed after it was written")


def contents_of(folder: Path) -> dict[str, str]:
    """Contents of items by name; empty where the fit has no such file."""
    rows = read_rows(folder / CONTENTS)
    return {str(row["item"]): str(row["content"]) for row in rows}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet table; none where there is no such file."""
    return read_table(path).to_pylist() if path.is_file() else []


def read_table(path: Path) -> pa.Table:
    """A Parquet table of at most the size that is allowed, whose texts are UTF-8."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_parquet(path, pq.read_metadata(path), None)
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise ValueError(f"{path.name}: {error}") from None
    check_text(path, table)
    return table
