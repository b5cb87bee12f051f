"""A fit as the item bank of a harness: its items by the harness's own ids."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from irtjax.data.wording import counted, listing

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration


def open_fit(fit: Calibration | str | Path) -> Calibration:
    """Returns a calibration that may be a folder that `irtjax fit` wrote.

    Raises:
        ValueError: If it cannot be read, or has an ability for each benchmark.
    """
    from irtjax.storage import load

    calibration = load(fit) if isinstance(fit, str | Path) else fit
    if calibration.num_groups > 1:
        raise ValueError(
            "the fit has an ability for each benchmark, and an adaptive evaluation"
            " measures one: fit the same responses with a model of one ability, such as"
            " 2pl"
        )
    return calibration


class ItemIds:
    """Names of the items of a fit by the ids that a harness has for them.

    Readers of logs name an item BENCHMARK/ID. An id is looked up as the whole name,
    then within one benchmark: the one given, or the one that has such ids.
    """

    def __init__(self, fit: Calibration, benchmark: str | None = None) -> None:
        names = fit.item_names.tolist()
        self._whole = set(names)
        self._of: dict[str, dict[str, str]] = {}
        labels = [""] * len(names) if fit.benchmarks is None else fit.benchmarks
        for name, label in zip(names, map(str, labels), strict=True):
            prefix = label or name.rpartition("/")[0]
            if prefix and name.startswith(f"{prefix}/"):
                inner = name.removeprefix(f"{prefix}/")
                self._of.setdefault(prefix, {})[inner] = name
        if benchmark is not None and benchmark not in self._of:
            raise ValueError(
                f"benchmark {benchmark!r}: the fit has no items {benchmark}/ID; its"
                f" benchmarks are: {listing(list(self._of)) or 'none'}"
            )
        self._benchmark = benchmark

    def match(self, ids: Iterable[str]) -> dict[str, str]:
        """Returns the name of the item of each id that the fit has.

        Raises:
            ValueError: If the fit has none of them, or several benchmarks have.
        """
        wanted = list(dict.fromkeys(ids))
        if self._benchmark is None:
            whole = {x: x for x in wanted if x in self._whole}
            if whole:
                return whole
        candidates = {
            name: {x: inner[x] for x in wanted if x in inner}
            for name, inner in self._of.items()
            if self._benchmark in (None, name)
        }
        having = [name for name, items in candidates.items() if items]
        if len(having) > 1:
            raise ValueError(
                f"the fit has samples of these ids in several benchmarks"
                f" ({listing(having)}): choose one with benchmark="
            )
        if not having:
            first = min(self._whole)
            raise ValueError(
                f"the fit has none of the {counted(len(wanted), 'sample')} (the first"
                " is"
                f" {wanted[0] if wanted else None!r}; an item of the fit is {first!r}):"
                " items are matched as BENCHMARK/ID"
            )
        return candidates[having[0]]
