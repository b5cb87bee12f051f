"""Items of a table among known items, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from irtjax.data.table import ResponseTable


def match_items(table: ResponseTable, names: np.ndarray, whole: str) -> np.ndarray:
    """Places of a table's items among known ones, by name.

    Args:
        table: Responses.
        names: `[known]` names, each once.
        whole: The holder of the known items, such as "the fit", for the message.

    Returns:
        `[items]` places; -1 for an item that is not known.

    Raises:
        ValueError: If no item is known.

    >>> from irtjax.data import ResponseTable
    >>> table = ResponseTable.from_arrays([[1, 0, 1]], items=["a", "b", "c"])
    >>> match_items(table, np.array(["c", "a"]), "the fit").tolist()
    [1, -1, 0]
    """
    places = _places(table, names)
    if not (places >= 0).any():
        raise ValueError(
            f"none of the {table.num_items} items of the responses is in {whole}"
            f" (there: {table.items[0]}, ...; in {whole}: {names[0]}, ...): items are"
            " matched by name"
        )
    return places


def arrange(
    table: ResponseTable, names: np.ndarray, whole: str, top: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Responses in the order of known items, with their mask, and `match_items`.

    Responses are `[subjects, known]` and 0 where there are none. They must be integers
    from 0 to `top`.
    """
    places = match_items(table, names, whole)
    known = places >= 0
    given, seen = table.values, table.observed
    if seen is None:
        seen = np.ones(given.shape, bool)
    wrong = ((given < 0) | (given > top) | (given != np.rint(given))) & seen & known
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"subject {table.subjects[row]}, item {table.items[column]}: the response"
            f" {given[row, column]:g} is not an integer from 0 to {top}"
        )
    shape = table.num_subjects, len(names)
    values, observed = np.zeros(shape, np.int8), np.zeros(shape, bool)
    values[:, places[known]] = np.where(seen, given, 0)[:, known]
    observed[:, places[known]] = seen[:, known]
    return values, observed, places


def match_all_items(table: ResponseTable, names: np.ndarray, verb: str) -> np.ndarray:
    """The same for what was fitted, where every item must be known.

    Args:
        table: Responses.
        names: `[known]` names of a fit's items.
        verb: What is to be done with the data that were fitted, for the message.

    Returns:
        `[items]` places.

    Raises:
        ValueError: If an item is not known.
    """
    places = _places(table, names)
    if (places < 0).any():
        name = str(table.items[np.argmin(places)])
        raise ValueError(
            f"item {name!r} is not in the fit: {verb} the data that were fitted"
        )
    return places


def _places(table: ResponseTable, names: np.ndarray) -> np.ndarray:
    """Places of names among known ones; -1 for unknown ones."""
    place = {name: row for row, name in enumerate(names.tolist())}
    return np.array([place.get(name, -1) for name in table.items.tolist()])


def positions(names: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns where each wanted name stands among `names`, the same in another order.

    >>> positions(np.array(["b", "a", "c"]), np.array(["a", "b", "c"])).tolist()
    [1, 0, 2]
    """
    place = {name: row for row, name in enumerate(names.tolist())}
    return np.array([place[name] for name in wanted.tolist()], np.int64)


def find_names(
    known: np.ndarray, wanted: Sequence[str] | np.ndarray, kind: str
) -> np.ndarray:
    """Returns the position of each wanted name among the known ones.

    Args:
        known: `[known]` names of a fit.
        wanted: Names to find.
        kind: What the names are of, "subject" or "item", for the message.

    Raises:
        ValueError: If a name is not known; the message gives the nearest known names.

    >>> find_names(np.array(["a", "b", "c"]), ["c", "a"], "subject").tolist()
    [2, 0]
    """
    names = known.tolist()
    place = {name: row for row, name in enumerate(names)}
    found = [place.get(str(name), -1) for name in wanted]
    if -1 in found:
        from difflib import get_close_matches

        name = str(wanted[found.index(-1)])
        near = get_close_matches(name, names, 3) or [n for n in names if name in n][:3]
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"no {kind} is called {name!r} in this fit{hint}")
    return np.array(found, np.int64)
