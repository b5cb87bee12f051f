"""The size of a fit in one line, in the words of its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax._types import Status
from irtjax.data.wording import NOUNS, counted

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration


def nouns_of(fit: Calibration) -> tuple[str, str]:
    """Returns what the data of a fit call a subject and a benchmark."""
    subject, benchmark = fit.options.get("nouns", NOUNS)
    return subject, benchmark


def heading(fit: Calibration) -> str:
    """Returns subjects, items, benchmarks and the share that is missing.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> heading(irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch"))
    '4 subjects · 4 items · complete'
    """
    subject, benchmark = nouns_of(fit)
    parts = [
        counted(len(fit.subject_names), subject),
        counted(len(fit.item_names), "item"),
    ]
    labels = [] if fit.benchmarks is None else np.unique(fit.benchmarks)
    if len(labels) > 1:
        parts.append(counted(len(labels), benchmark))
    missing = 1 - fit.num_observed / (len(fit.subject_names) * len(fit.item_names))
    few = f"{missing:.1%}" if missing < 0.1 else f"{missing:.0%}"
    parts.append("complete" if missing <= 0 else f"{few.replace('%', ' %')} missing")
    if Status(int(fit.status)) != Status.CONVERGED:
        parts.append("NOT CONVERGED")
    return " · ".join(parts)
