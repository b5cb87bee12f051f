"""Families of subjects: fine-tunes of one model are not independent of each other."""

from __future__ import annotations

import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.data.wording import listing

#: The facet of subjects that names their family, where none is given.
FAMILY = "family"


def families_of(
    table: ResponseTable, family: str | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Names of the families, and the number `[subjects]` of each subject's.

    Args:
        table: The responses.
        family: Facet of the subjects; None for "family" if they have it.

    Returns:
        None if subjects have no families.

    Raises:
        ValueError: There is no such facet, or all subjects are of one family.

    >>> table = ResponseTable.from_arrays(np.eye(3))
    >>> families_of(table, None) is None
    True
    """
    facets = table.subject_facets
    if family is not None and family not in facets:
        there = listing(sorted(facets)) or "none"
        raise ValueError(f"no facet {family!r} of subjects; there are: {there}")
    name = family or (FAMILY if FAMILY in facets else None)
    if name is None:
        return None
    names, own = np.unique(facets[name], return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            f"all subjects have the {name} {str(names[0])!r}: resampling needs at least"
            " 2 families, so name another facet of the subjects as the family"
        )
    return names, own
