"""Items to read first: most models agree on another answer than the key."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from irtjax._types import RandomKey
from irtjax.auditing.by_answers import by_answers
from irtjax.auditing.low_scores import LOW_SCORES, low_scores
from irtjax.data import ResponseTable
from irtjax.data.arrays import places_of
from irtjax.data.frames import HasTable
from irtjax.data.side_files import read_side_file
from irtjax.data.wording import counted
from irtjax.numerics.memory import available_memory
from irtjax.numerics.seeds import seed_of
from irtjax.ranking.discoveries import benjamini_hochberg

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: The usual false discovery rate.
_LEVEL = 0.05
#: Bytes of a cell: scores, wrong shares, masks, and room for passes.
CELL_BYTES = 40.0


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ItemsToRead(HasTable):
    """Items in the order in which to read them, and those that are significant.

    Attributes:
        table: A row for each item with evidence, the most first: item, answer (the most
            common wrong one), count (models that gave it), key, p_value, q_value,
            wrong (models that are wrong), models, benchmark, evidence.
        significant: Names of the items whose key or question is likely wrong, at the
            false discovery rate.
        false_discovery_rate: The level.
        num_items: Items that were looked at.
        reason: Why none was looked at; empty where they were.
    """

    title = "Items to read"
    columns = ("item", "answer", "count", "key", "p_value")

    table: pa.Table
    significant: tuple[str, ...]
    false_discovery_rate: float
    num_items: int
    reason: str = ""

    def __len__(self) -> int:
        return self.table.num_rows

    def sentence(self, most: int = 5) -> str:
        """The significant items in a sentence; "" where no item has evidence.

        Where none was looked at, the reason.

        Args:
            most: Names to list.
        """
        items, kinds = (
            self.table.column(name).to_pylist() for name in ("item", "evidence")
        )
        if not items:
            return self.reason
        names = list(self.significant)
        if not names:
            first = ", ".join(_brief(items[: min(most, 3)]))
            return f"no item stands out; first: {first}"
        of = dict(zip(items, kinds, strict=True))
        same = {of[name] for name in names}
        what = "where most models agree on another answer"
        if same == {LOW_SCORES}:
            what = "on which able models score low"
        elif len(same) > 1:
            what = "where models agree on another answer, or able ones score low"
        rest = f" and {len(names) - most:,} more" if len(names) > most else ""
        shown = ", ".join(_brief(names[:most]))
        return f"{counted(len(names), 'item')} {what}: {shown}{rest}"

    def _below(self) -> list[str]:
        """The sentence, below the table."""
        return [text for text in [self.sentence()] if text]


def read_items_to_read(path: Path) -> ItemsToRead:
    """The items to read that a file of this name has, at a false discovery rate of 5 %.

    Raises:
        ValueError: It cannot be read, or has no such columns.
    """
    table = read_side_file(path, str(path))
    try:
        names = table.column("item").to_pylist()
        adjusted = [float(x) for x in table.column("q_value").to_pylist()]
        kinds = table.column("evidence").to_pylist()
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has no items to read: {error}") from None
    likely = zip(names, adjusted, strict=True)
    significant = tuple(name for name, value in likely if value <= _LEVEL)
    return ItemsToRead(table, significant, _LEVEL, len(kinds))


def _brief(names: list[str]) -> list[str]:
    """Names to print, without a benchmark that the name before has too.

    >>> _brief(["mmlu/3", "mmlu/17", "gsm8k/4", "q1"])
    ['mmlu/3', '17', 'gsm8k/4', 'q1']
    """
    parts, before = [], ""
    for name in names:
        name = "".join(c for c in name if c.isprintable())
        benchmark, slash, rest = name.partition("/")
        parts.append(rest if slash and rest and benchmark == before else name)
        before = benchmark if slash else ""
    return parts


def items_to_read(
    fit: Calibration,
    table: ResponseTable,
    *,
    false_discovery_rate: float = _LEVEL,
    key: RandomKey | None = None,
) -> ItemsToRead:
    """Ranks items by how surprising it is that models agree on another answer.

    Ten models have next to no power in a test of a single item, but where the key is
    wrong the able ones give the same other answer. For each item the p-value is the
    chance of as much agreement, by as able models, if models err independently given
    their abilities, at items like those of the fit, and with wrong answers as popular
    as they are in these data (`irtjax.auditing.same_answers`). Models of one family
    count as one model, and each repeat with its share. Where responses have no answers,
    the evidence is that abler models score lower (`irtjax.auditing.low_scores`).

    Args:
        fit: A calibration of these subjects.
        table: Their responses, with answers where the logs have them.
        false_discovery_rate: Level of `ItemsToRead.significant`.
        key: A whole number or a JAX key, for the items that are drawn.

    Raises:
        ValueError: If no subject of the table is in the fit, or the level is not
            between 0 and 1.

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> to_read = items_to_read(irtjax.fit(table, "rasch", "em"), table)
    >>> to_read.table.column_names[:5]
    ['item', 'answer', 'count', 'key', 'p_value']
    """
    if not 0 < false_discovery_rate < 1:
        raise ValueError(
            f"false_discovery_rate {false_discovery_rate:g} is not between 0 and 1"
        )
    units = _units(fit, table)
    if table.sparse is not None:
        if CELL_BYTES * table.size > available_memory():
            return _too_large(table, false_discovery_rate)
        # As a matrix.
        table = dataclasses.replace(table)
    rows = []
    if table.answers is not None:
        rows = by_answers(fit, table, units, seed_of(key))
    listed = {row["place"] for row in rows}
    if len(listed) < table.num_items:
        rows += low_scores(table, units, listed, seed_of(key))
    for row in rows:
        place = row.pop("place")
        row["item"] = str(table.items[place])
        row["benchmark"] = str(table.benchmarks[place])
    return _result(rows, table, false_discovery_rate)


def _too_large(table: ResponseTable, level: float) -> ItemsToRead:
    """No items, of a table whose matrix needs more memory than there is."""
    shortened = _result([], table, level)
    size = f"{table.num_subjects:,} x {table.num_items:,}"
    needed = CELL_BYTES * table.size / 2**30
    reason = f"not examined: a matrix of {size} needs {needed:,.0f} GB of memory"
    return dataclasses.replace(shortened, num_items=0, reason=reason)


def _units(fit: Calibration, table: ResponseTable) -> np.ndarray:
    """The independent unit of each subject, `[subjects]`: a family or the subject."""
    who = places_of(fit.subject_names, table.subjects)
    if (who < 0).all():
        raise ValueError(
            "no subject of the responses is in the fit: give the fit of these responses"
        )
    unit = np.arange(table.num_subjects)
    if "family" in fit.abilities.table.column_names:
        names, families = (
            np.asarray(fit.abilities.table.column(x).to_pylist())
            for x in ("subject", "family")
        )
        place = places_of(names, table.subjects)
        labelled = np.flatnonzero(place >= 0)
        unit[labelled] = table.num_subjects + np.unique(
            families[place[labelled]], return_inverse=True
        )[1].reshape(-1)
    return np.where(who >= 0, np.unique(unit, return_inverse=True)[1].reshape(-1), -1)


def _result(rows: list[dict], table: ResponseTable, level: float) -> ItemsToRead:
    """Rows in order of their evidence, and what is significant."""
    rows.sort(key=lambda row: (row["p_value"], -row["weight"]))
    p = np.array([row["p_value"] for row in rows], float)
    adjusted = benjamini_hochberg(p) if len(rows) else p
    listed = [
        k for k, row in enumerate(rows) if row["count"] > 1.001 and row["p_value"] < 0.5
    ]
    text, number = pa.string(), pa.float64()
    whole = all(row[x] == int(row[x]) for row in rows for x in ("count", "wrong"))
    counts = pa.int64() if whole else number
    schema = {
        **dict.fromkeys(("item", "answer"), text),
        "count": counts,
        "key": text,
        "p_value": number,
        "q_value": number,
        "wrong": counts,
        "models": pa.int64(),
        **dict.fromkeys(("benchmark", "evidence"), text),
    }
    values = [{**rows[k], "q_value": float(adjusted[k])} for k in listed]
    for row in values:
        for name in ("count", "wrong"):
            row[name] = int(row[name]) if whole else round(float(row[name]), 3)
    out = pa.Table.from_pylist(
        [{name: row[name] for name in schema} for row in values], pa.schema(schema)
    )
    significant = tuple(row["item"] for row in values if row["q_value"] <= level)
    return ItemsToRead(out, significant, level, table.num_items)
