"""The factor model: several abilities, each item with a discrimination for each.

    P(y_ij = 1) = F(a_j' theta_i + d_j),    theta_i ~ N(0, Sigma),  diag Sigma = 1,

F logistic or normal (AIMS, the logistic factor model; cBMM 2 with a >= 0), or ordered
categories with P(y_ij >= h) = F(a_j' theta_i + d_jh) or, of partial credit,
P(y_ij = h) / P(y_ij = h - 1) = exp(a_j' theta_i + d_jh), F logistic, or scores whose
logit is N(a_j' theta_i + d_j, sigma_j^2). It is exploratory (Sigma = I, then rotated),
non-negative (`positive`), or confirmatory (a mask of the loadings to estimate).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.models.families.continuous import LogitNormalScores
from irtjax.models.families.graded import Graded, PartialCredit
from irtjax.models.families.logistic import Binary
from irtjax.models.priors import AbstractPrior
from irtjax.numerics.rotation import ROTATIONS, check_target

#: Rotations by name; "none" are the principal axes.
NAMES = ("none", *ROTATIONS)
LINKS = ("logit", "probit")
ITEM_MODELS = ("binary", "graded", "partial_credit", "continuous")
#: Items with a discrimination that a factor needs: two are exchangeable with others.
FEWEST_ITEMS = 3


@dataclasses.dataclass(frozen=True)
class Factor:
    """A factor model with its settings.

    Attributes:
        factors: Number of factors; None: those of `loadings`, else 2.
        rotation: Name of a rotation (`NAMES`; see `irtjax.numerics.rotation`), or
            "none" for the principal axes; None: "oblimin" for exploratory models, or
            "target" with a target.
        positive: Keep every discrimination at or above 0; then nothing is rotated.
        loadings: Which discriminations to estimate: a mask `[items, factors]` in the
            order of the table's items, or by item name, each a list of names of
            factors (`simple_structure`, `bifactor`); None for all.
        link: F of binary responses, "logit" or "probit".
        item_model: "binary" (right or wrong, or counts), "graded" or "partial_credit"
            (ordered categories), or "continuous" (scores in [0, 1]); None: as the
            table's responses are, ordered categories being graded.
        priors: As for other models: weak, N(0, 1) of discriminations. "held_out" with
            the method "mm": N(0, s^2), s chosen by responses held out.
        target: Standardised loadings that a rotation approaches, for "target" (factors
            correlate) and "target_orthogonal": an array `[items, factors]` in the order
            of the table's items, NaN where free, or by item name, each a mapping of
            names of factors to loadings. Items and factors that it leaves out are free.
        num_starts: With `positive` and several factors by "mm": how many starts are
            tried, the usual one and random ones around it. The end with the highest
            objective is kept. None: 6, or 1 of more than a million cells.

    Raises:
        ValueError: For settings that do not go together.

    >>> Factor(factors=3).rotation_used
    'oblimin'
    """

    name: ClassVar[str] = "factor"

    factors: int | None = None
    rotation: str | None = None
    positive: bool = False
    loadings: np.ndarray | Mapping[str, Sequence[str]] | None = None
    link: str = "logit"
    item_model: str | None = None
    priors: Mapping[str, AbstractPrior] | str | None = "weak"
    target: np.ndarray | Mapping[str, Mapping[str, float]] | None = None
    num_starts: int | None = None

    def __post_init__(self):
        self._check_starts()
        if self.factors is not None:
            whole = isinstance(self.factors, int | np.integer)
            if not whole or isinstance(self.factors, bool) or self.factors < 1:
                raise ValueError(
                    f"factors {self.factors!r}: give a whole number from 1"
                )
            if self.loadings is not None and self._columns != self.factors:
                raise ValueError(
                    f"factors {self.factors}, but loadings have {self._columns}: leave"
                    " factors out"
                )
        if self.link not in LINKS:
            raise ValueError(f"no link {self.link!r}; there are {', '.join(LINKS)}")
        if self.item_model not in (None, *ITEM_MODELS):
            raise ValueError(
                f"no factor model with the item_model {self.item_model!r}; there are"
                f" {', '.join(ITEM_MODELS)}"
            )
        if self.link != "logit" and self.item_model not in (None, "binary"):
            raise ValueError(
                f"link {self.link!r} is for binary responses, not {self.item_model}"
                " ones: leave link out"
            )
        if self.loadings is not None and self.positive and self.count == 1:
            raise ValueError(
                "loadings of one factor with positive=True: leave positive out, or the"
                " items that do not measure the factor"
            )
        if self.rotation is not None and self.rotation not in NAMES:
            raise ValueError(
                f"no rotation {self.rotation!r}; there are {', '.join(NAMES)}"
            )
        if self.rotation not in (None, "none") and not self.explores:
            what = "positive=True" if self.positive else "given loadings"
            raise ValueError(
                f"rotation {self.rotation!r} requires an exploratory model: with {what}"
                " nothing is rotated, so leave rotation out"
            )
        self._check_target()

    def _check_starts(self) -> None:
        """Refuses numbers of starts that are none, and where there is one optimum."""
        num = self.num_starts
        if num is None:
            return
        whole = isinstance(num, int | np.integer) and not isinstance(num, bool)
        if not whole or num < 1:
            raise ValueError(f"num_starts {num!r}: give a whole number from 1")
        if not self.positive or self.loadings is not None or self.count == 1:
            raise ValueError(
                "num_starts is for positive=True with several factors and no loadings,"
                " where there may be several optima: leave it out"
            )

    def _check_target(self) -> None:
        """Refuses a target without its rotation, and such a rotation without it."""
        needed = [name for name, entry in ROTATIONS.items() if entry.needs_target]
        if self.target is None:
            if self.rotation in needed:
                raise ValueError(
                    f"rotation {self.rotation!r} requires target: the loadings to"
                    " approach"
                )
            return
        if not self.explores:
            what = "positive=True" if self.positive else "given loadings"
            raise ValueError(
                f"target requires an exploratory model: with {what} nothing is rotated,"
                " so leave target out"
            )
        if self.rotation not in (None, *needed):
            raise ValueError(
                f"rotation {self.rotation!r} takes no target: use"
                f" {' or '.join(map(repr, reversed(needed)))}, or leave target out"
            )
        columns = self._columns
        if columns != self.count:
            raise ValueError(
                f"factors {self.factors}, but the target has {columns}: leave factors"
                " out"
            )
        if columns < 2:
            raise ValueError("the target has fewer than two factors: leave it out")

    @property
    def _columns(self) -> int:
        """Number of factors of the given loadings or target."""
        matrix = self.target if self.loadings is None else self.loadings
        if isinstance(matrix, Mapping):
            return len(self.names())
        shape = () if matrix is None else np.shape(matrix)
        return shape[-1] if shape else 0

    @property
    def count(self) -> int:
        """Number of factors."""
        if self.factors is not None:
            return int(self.factors)
        return self._columns if self._is_given else 2

    @property
    def _is_given(self) -> bool:
        """Whether loadings or a target have columns."""
        return self.loadings is not None or self.target is not None

    @property
    def explores(self) -> bool:
        """Whether every discrimination is free and of any sign."""
        return not self.positive and self.loadings is None

    @property
    def rotation_used(self) -> str:
        """The rotation of the estimates."""
        if not self.explores or self.count == 1:
            return "none"
        return self.rotation or ("oblimin" if self.target is None else "target")

    def of(self, kind: str) -> Factor:
        """The model with the responses of a table of a kind, if none are stated."""
        kinds = {"binary": "binary", "counts": "binary", "ordinal": "graded"}
        if self.item_model is not None:
            return self
        return dataclasses.replace(self, item_model=kinds.get(kind, "continuous"))

    def family(
        self, num_categories: int = 2
    ) -> Binary | Graded | PartialCredit | LogitNormalScores:
        """The response family; of one factor it is that of one ability."""
        slopes = "positive" if self.positive else "free"
        dims = self.count if self.count > 1 else 0
        if self.item_model == "graded":
            return Graded(num_categories, slopes, dims)
        if self.item_model == "partial_credit":
            return PartialCredit(num_categories, slopes, dims)
        if self.item_model == "continuous":
            return LogitNormalScores(slopes, dims)
        return Binary(self.link, slopes=slopes, dims=dims)

    def names(self) -> tuple[str, ...]:
        """Names of the factors."""
        matrix = self.target if self.loadings is None else self.loadings
        if isinstance(matrix, Mapping):
            return tuple({str(name): None for row in matrix.values() for name in row})
        return tuple(f"factor_{k + 1}" for k in range(self.count))

    def mask(self, table: ResponseTable) -> np.ndarray | None:
        """`[items, factors]` discriminations to estimate; None for all.

        Raises:
            ValueError: If the mask does not suit the items, or a factor has fewer than
                three of them.
        """
        if self.loadings is None:
            return None
        names = self.names()
        if isinstance(self.loadings, Mapping):
            items = table.items.tolist()
            lacking = sorted(set(items) - set(self.loadings))
            if lacking:
                raise ValueError(
                    f"loadings name no factor of item {lacking[0]!r}: give every item a"
                    " row, empty if it measures nothing"
                )
            mask = np.array(
                [[f in self.loadings[item] for f in names] for item in items]
            )
        else:
            mask = np.asarray(self.loadings).astype(bool)
        wanted = table.num_items, self.count
        if mask.shape != wanted:
            raise ValueError(
                f"loadings have shape {mask.shape}: give items x factors, {wanted}"
            )
        count = mask.sum(axis=0)
        if (count < FEWEST_ITEMS).any():
            factor = int(np.argmin(count))
            raise ValueError(
                f"{names[factor]} has {count[factor]} items: a factor needs at least"
                f" {FEWEST_ITEMS}"
            )
        return mask

    def beyond(self, num_items: int, mask: np.ndarray | None) -> str:
        """A warning if there are more loadings than correlations of items; else "".

        J items have J (J - 1) / 2 correlations. K factors have J K loadings, of which a
        rotation of uncorrelated factors fixes K (K - 1) / 2 (Ledermann 1937).

        >>> Factor(3).beyond(6, None), Factor(3).beyond(5, None)[:45]
        ('', '12 loadings are more than the 10 correlations')
        """
        count, pairs = self.count, num_items * (num_items - 1) // 2
        free = num_items * count - count * (count - 1) // 2
        if mask is not None:
            free = int(mask.sum())
        if count == 1 or free <= pairs:
            return ""
        return (
            f"{free:,} loadings are more than the {pairs:,} correlations of"
            f" {num_items} items, which do not identify {count} factors (Ledermann"
            " 1937): priors decide between them, so use fewer factors"
        )

    def target_of(self, table: ResponseTable) -> np.ndarray | None:
        """`[items, factors]` loadings to approach, NaN where free; None without.

        Raises:
            ValueError: If the target does not suit the items, or holds anything but
                numbers from -1 to 1.
        """
        if self.target is None:
            return None
        wanted, names = (table.num_items, self.count), self.names()
        if isinstance(self.target, Mapping):
            row = {item: k for k, item in enumerate(table.items.tolist())}
            target = np.full(wanted, np.nan)
            for item, cells in self.target.items():
                if item not in row:
                    raise ValueError(
                        f"the target names item {item!r}, which the table does not"
                        " have: leave it out"
                    )
                for name, value in cells.items():
                    target[row[item], names.index(str(name))] = value
        else:
            target = np.asarray(self.target, float)
            if target.shape != wanted:
                raise ValueError(
                    f"the target has shape {target.shape}: give items x factors,"
                    f" {wanted}"
                )
        if (np.abs(target) > 1).any():
            where = np.argwhere(np.abs(target) > 1)[0]
            raise ValueError(
                f"the target has {target[tuple(where)]:g} for item"
                f" {str(table.items[where[0]])!r} and {names[where[1]]}: give"
                " standardised loadings, from -1 to 1"
            )
        check_target(target, ROTATIONS[self.rotation_used], names)
        return target

    def record(self) -> dict[str, Any]:
        """Settings for the record of a fit."""
        return {
            "factors": self.count,
            "rotation": self.rotation_used,
            "loadings": "all" if self.loadings is None else "given",
            **({} if self.target is None else {"target": "given"}),
            "link": self.link,
            "item_model": self.item_model or "binary",
        }


#: Settings of factor models given by name, and their defaults.
FACTOR: dict[str, Any] = {
    field.name: field.default for field in dataclasses.fields(Factor)
}


def simple_structure(
    items: Sequence[str], groups: Sequence[str]
) -> dict[str, list[str]]:
    """Loadings by which each item measures the factor of its group alone.

    Args:
        items: Names of the items.
        groups: `[items]` the group of each, such as its benchmark.

    >>> simple_structure(["a", "b"], ["law", "code"])
    {'a': ['law'], 'b': ['code']}
    """
    return {item: [str(group)] for item, group in zip(items, groups, strict=True)}


def bifactor(items: Sequence[str], groups: Sequence[str]) -> dict[str, list[str]]:
    """Loadings of a general factor and one for each group, such as a testlet.

    >>> bifactor(["a", "b"], ["law", "code"])
    {'a': ['general', 'law'], 'b': ['general', 'code']}
    """
    pairs = zip(items, groups, strict=True)
    return {item: ["general", str(group)] for item, group in pairs}
