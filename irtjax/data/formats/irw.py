"""Tables of the Item Response Warehouse (IRW): what differs from other long tables.

A row is a response: ``id, item, resp``. Some tables have ``rt`` (seconds), ``rater``,
``wave`` or another column of occasions, and ``item_family``. They are ordinary CSV or
Parquet files with one response a row, so `data/reading` reads them; it takes the names
below. Covariates (``cov_…``, ``itemcov_…``, ``Qmatrix__…``) are not read. Tables of
competitions (``agent_a, agent_b, winner``) are battles: see `arena.py`.
"""

from __future__ import annotations

from irtjax.data.arrays import as_labels
from irtjax.data.reading.records import Coded, join_coded

SUBJECT, RESPONSE = "id", "resp"
#: What tells repeated responses of a subject to an item apart.
REPEATS = ("rater", "wave", "timepoint", "occasion")
#: The column of benchmarks.
FAMILY = "item_family"
#: The column of response times, in seconds.
TIME = "rt"


def without_na(families: Coded) -> Coded:
    """Families of items, "" for NA, which R writes for a missing name."""
    names = ["" if name == "NA" else name for name in families.labels.tolist()]
    return join_coded([Coded(families.codes, as_labels(names))])


def time_note(column: str, source: str) -> str:
    """The note on a column of times, which are no lengths."""
    return (
        f"{source}: column {column!r} is a time, not a length in tokens, and was not"
        f" read (length={column!r} reads it as lengths)"
    )
