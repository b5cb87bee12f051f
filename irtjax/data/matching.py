"""Items and subjects of a table among known ones, by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irtjax.data.arrays import as_labels, places_of
from irtjax.data.item_texts import Contents, refuse_other_contents
from irtjax.data.table import ResponseTable
from irtjax.data.wording import listing, short_names


def match_items(
    table: ResponseTable, names: np.ndarray, whole: str, contents: Contents
) -> np.ndarray:
    """Returns the place of each item of a table among known names, or -1.

    Items of a known name with another content than in `contents` are refused.

    >>> table = ResponseTable.from_arrays([[1, 0, 1]], items=["a", "b", "c"])
    >>> match_items(table, np.array(["c", "a"]), "the fit", {}).tolist()
    [1, -1, 0]
    """
    places = places_of(names, table.items)
    if not (places >= 0).any():
        raise ValueError(
            f"none of the {table.num_items} items of the responses is in {whole}"
            f" (there: {table.items[0]}, ...; in {whole}: {names[0]}, ...): items are"
            " matched by name"
        )
    refuse_other_contents(table.item_contents, contents, whole)
    return places


def arrange(
    table: ResponseTable,
    names: np.ndarray,
    whole: str,
    top: int,
    contents: Contents,
    ends: np.ndarray | None = None,
    *,
    lowest: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Responses `lowest` to `top` of known items in order, their mask, and the places.

    `ends` `[2, items]` are the lowest and the highest score of the known items, whose
    scores are returned as shares of that range.
    """
    places = match_items(table, names, whole, contents)
    matched = places >= 0
    responses, seen = table.values, table.observed
    if seen is None:
        seen = np.ones(responses.shape, bool)
    low, high = np.array([[lowest], [top]]) if ends is None else ends[:, places]
    wrong = (responses < low) | (responses > high)
    if ends is None:
        wrong = wrong | (responses != np.rint(responses))
    wrong = wrong & seen & matched
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        what = f"an integer from {lowest} to {top}"
        if ends is not None:
            what = f"from {low[column]:g} to {high[column]:g}"
        raise ValueError(
            f"subject {table.subjects[row]}, item {table.items[column]}: the response"
            f" {responses[row, column]:g} is not {what}"
        )
    shape = table.num_subjects, len(names)
    dtype = np.int8 if top <= np.iinfo(np.int8).max else np.int32
    if ends is not None:
        responses, dtype = (responses - low) / (high - low), np.float64
    values, observed = np.zeros(shape, dtype), np.zeros(shape, bool)
    values[:, places[matched]] = np.where(seen, responses, 0)[:, matched]
    observed[:, places[matched]] = seen[:, matched]
    return values, observed, places


def match_all_items(
    table: ResponseTable, names: np.ndarray, verb: str, contents: Contents
) -> np.ndarray:
    """Returns the positions of a table's items in a fit, which must have all.

    Items with another content than in `contents` are refused.
    """
    places = places_of(names, table.items)
    if (places < 0).any():
        name = str(table.items[np.argmin(places)])
        raise ValueError(
            f"item {name!r} is not in the fit: {verb} the data that were fitted"
        )
    refuse_other_contents(table.item_contents, contents, "the fit")
    return places


def positions(names: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns the position of each wanted name among `names`; KeyError without one.

    >>> positions(np.array(["b", "a", "c"]), np.array(["a", "b", "c"])).tolist()
    [1, 0, 2]
    """
    if np.array_equal(names, wanted):
        return np.arange(len(names))
    place = {name: row for row, name in enumerate(names.tolist())}
    return np.array([place[name] for name in wanted.tolist()], np.int64)


def find_names(
    labels: np.ndarray, wanted: Sequence[str] | np.ndarray | None, kind: str
) -> np.ndarray:
    """Returns the position of each wanted name among those of a fit; all for None.

    A subject may have the short name by which tables list it (`short_names`).

    >>> find_names(np.array(["a", "b", "c"]), ["c", "a"], "subject").tolist()
    [2, 0]
    >>> find_names(np.array(["org/a", "org/b"]), ["b"], "subject").tolist()
    [1]
    """
    if wanted is None:
        return np.arange(len(labels))
    places = places_of(labels, as_labels(wanted))
    if kind == "subject" and (places < 0).any():
        short = np.array(list(short_names(labels.tolist()).values()))
        places = np.where(places < 0, places_of(short, as_labels(wanted)), places)
    if (places < 0).any():
        from difflib import get_close_matches

        names, name = labels.tolist(), str(wanted[int(places.argmin())])
        near = get_close_matches(name, names, 3) or [n for n in names if name in n][:3]
        hint = f"did you mean {' or '.join(near)}?"
        hint = hint if near else f"there are {listing(names, 3)}"
        raise ValueError(f"no {kind} is called {name!r}; {hint}")
    return places


def find_two(names: np.ndarray, first: str, second: str) -> np.ndarray:
    """Where two different subjects are among the names.

    >>> find_two(np.array(["a", "b"]), "b", "a").tolist()
    [1, 0]
    """
    places = find_names(names, [first, second], "subject")
    if places[0] == places[1]:
        raise ValueError(f"{first!r} is compared with itself: name two subjects")
    return places
