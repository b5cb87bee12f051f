"""Items that changed since a fit: their names, and the scale of ability.

Logs of a later version of a benchmark have other contents under some names. Those are
other items, and get names of their own. Items that are fitted again have the scale of
all subjects that responded by then: a link by the items that did not change puts the
new fit on the scale of the one before, so that abilities of all times are compared.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.rescaled import check_one_scale
from irtjax.data import ResponseTable
from irtjax.data.arrays import as_labels
from irtjax.data.item_texts import Contents, other_contents
from irtjax.data.wording import counted, have, listing

#: Names of the two fits in the note on their link.
NAMES = "the fit before", "the new fit"
#: Note on fits that `check_one_scale` refuses.
OTHER_SCALE = (
    "abilities have another scale than before: only fits of one ability, without"
    " response lengths, covariates of subjects and groups, keep their scale"
)


def named_by_content(
    new: ResponseTable, contents: Contents
) -> tuple[ResponseTable, tuple[str, ...]]:
    """Responses whose items of other contents than those of a fit have other names.

    Such an item has the name under which the fit has its content, or a new one. Where
    most items have contents that the fit has not, the names stay, and these responses
    cannot be joined to those of the fit: it may be another benchmark.

    Args:
        new: The responses.
        contents: Hashes of the items of the fit.

    >>> table = ResponseTable.from_arrays([[1, 0, 1]], items=["a", "b", "c"])
    >>> table = dataclasses.replace(table, item_contents={"a": "x:1", "b": "x:9"})
    >>> named_by_content(table, {"a": "x:1", "b": "x:2"})[0].items.tolist()
    ['a', 'b (2)', 'c']
    """
    changed = other_contents(new.item_contents, contents)
    if not changed:
        return new, ()
    count = Counter(contents.values())
    by_content = {x: name for name, x in contents.items() if count[x] == 1}
    stay = {*new.items.tolist()} - {*changed}
    names: dict[str, str] = {}
    for name in changed:
        other = by_content.get(new.item_contents[name], name)
        if other == name or other in stay or other in names.values():
            number = 2
            while (other := f"{name} ({number})") in {*contents, *stay}:
                number += 1
        names[name] = other
    others = [f"{old}: {name}" for old, name in names.items() if name not in contents]
    if 2 * len(others) > len(new.item_contents):
        return new, ()
    renamed: Any = {
        field: {names.get(x, x): value for x, value in getattr(new, field).items()}
        for field in ("item_texts", "item_ids", "item_contents", "reversed_scores")
        if getattr(new, field)
    }
    items = as_labels(names.get(x, x) for x in new.items.tolist())
    notes = (
        f"{counted(len(others), 'item')} {have(len(others))} another content than in"
        f" the fit, and a new name ({listing(others, 3)})",
    ) * bool(others)
    return dataclasses.replace(new, items=items, **renamed), notes


def on_scale_of(
    before: Calibration, fit: Calibration, drifted: Sequence[str]
) -> tuple[Calibration, tuple[str, ...]]:
    """A fit on the scale of the one before, and what was done.

    Args:
        before: The fit before.
        fit: The fit of the same and more responses.
        drifted: Names of items that drifted, which link nothing.
    """
    if fit.options.get("anchored_items"):
        return fit, ()
    try:
        for one in (before, fit):
            check_one_scale(one)
    except ValueError:
        return fit, (OTHER_SCALE,)
    from irtjax.validity.linking import link

    common = [x for x in fit.item_names.tolist() if x in {*before.item_names.tolist()}]
    items = [x for x in common if x not in {*drifted}]
    try:
        result = link(before, fit, names=NAMES, items=items)
    except ValueError as error:
        return fit, (f"abilities have another scale than before: {error}",)
    number = result.constants["common"][-1].as_py()
    linking = counted(number, "item" if result.table.num_rows else "subject")
    names = list(dict.fromkeys([*drifted, *result.drifted]))
    note = f"abilities stay on the scale of before: {linking} link the fits"
    note += f"; left out as drifted: {listing(names, 3)}" * bool(names)
    return fit.rescaled(result), (note,)
