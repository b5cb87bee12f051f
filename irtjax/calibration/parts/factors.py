"""Results of a factor model in a calibration: loadings, factors, their tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from irtjax.calibration.parts.lengths import correlation_interval
from irtjax.calibration.parts.part import Findings, Part
from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Estimates, FactorEstimates

#: Items with at least this structure coefficient belong to a factor, and how many a
#: factor needs: fewer may be copies of one item.
SALIENT, FEWEST_ITEMS = 0.4, 3
#: Share of an item's communality from which it measures one factor alone.
PURE = 0.95
#: Share of random starts at the best value below which a rotation is in doubt.
FEW_STARTS = 0.05


@dataclasses.dataclass(frozen=True, eq=False)
class Factors(FactorEstimates, Part):
    """Loadings of items, and abilities of subjects, on several factors.

    Fields are those of `FactorEstimates`, without its covariances of items, and the
    `names` of the factors, `[factors]`. Subjects are in the order of the fit's.
    """

    prefix: ClassVar[str] = "factors."
    absence: ClassVar[str] = "this fit has no factors: fit model='factor'"
    axes: ClassVar[Mapping[str, str]] = {
        "names": "factors",
        "loadings": "items factors",
        "loadings_error": "items factors",
        "structure": "items factors",
        "communality": "items",
        "correlation": "factors factors",
        "ability": "subjects factors",
        "covariance": "subjects factors factors",
        "mean": "subjects factors",
        "spread": "subjects factors factors",
        "rotation": "",
        "share_at_best": "",
        "axes_known": "",
        "correlation_error": "factors factors",
        "at_fixed_axes": "items columns columns",
        "from_target": "factors",
    }

    names: np.ndarray = dataclasses.field(kw_only=True)

    @property
    def factor_names(self) -> tuple[str, ...]:
        """Names of the factors."""
        return tuple(self.names.tolist())

    @property
    def no_rank(self) -> str:
        """Ranks are by the expected score, whose error is not that of one ability."""
        return "the fit has several abilities"

    @property
    def error(self) -> np.ndarray:
        """`[subjects, factors]` standard errors of the abilities."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    def correlation_interval(self, level: float = 0.95) -> np.ndarray | None:
        """`[2, factors, factors]` bounds of Phi by Fisher's z; None without errors."""
        if self.correlation_error is None:
            return None
        inside = ~np.eye(len(self.names), dtype=bool)
        bounds = np.ones((2, *inside.shape))
        bounds[:, inside] = correlation_interval(
            self.correlation[inside], self.correlation_error[inside], level
        )
        return bounds

    @classmethod
    def of(cls, table: ResponseTable, estimates: Estimates, layout: Any) -> Self | None:
        """The factors of a model with several abilities; `layout` is their names."""
        if estimates.factors is None:
            return None
        fields: dict[str, Any] = {**vars(estimates.factors), "item_errors": None}
        return cls(names=np.asarray(layout), **fields)

    def take(self, order: np.ndarray) -> Self:
        """The factors with their subjects in another order."""
        names = "ability", "covariance", "mean", "spread"
        return dataclasses.replace(
            self, **{name: getattr(self, name)[order] for name in names}
        )

    def item_columns(self, estimates: Estimates | None = None) -> dict[str, Any]:
        """Loadings with errors, structure, communality."""
        columns = {}
        for k, name in enumerate(self.names):
            columns[f"loading_{name}"] = self.loadings[:, k]
            if self.loadings_error is not None:
                columns[f"loading_{name}_se"] = self.loadings_error[:, k]
        for k, name in enumerate(self.names):
            columns[f"structure_{name}"] = self.structure[:, k]
        return columns | {"communality": self.communality}

    def ability_columns(self, estimates: Estimates) -> dict[str, Any]:
        """An ability and its error for each factor."""
        columns = {}
        for k, name in enumerate(self.names):
            columns[f"ability_{name}"] = self.ability[:, k]
            columns[f"ability_{name}_se"] = self.error[:, k]
        return columns

    def findings(
        self, table: ResponseTable, estimates: Estimates, options: dict[str, Any]
    ) -> Findings:
        """Factors that few items measure, and what the rotation leaves open."""
        return findings_of(self, options)

    def figures(self) -> list[tuple[str, str, str]]:
        """Loadings, and subjects with them."""
        return [
            ("Structure of items", "structure.png", "plot_structure"),
            ("Subjects and items", "biplot.png", "plot_biplot"),
        ]

    @classmethod
    def from_own(
        cls, own: dict[str, Any], arrays: Mapping[str, Any], document: Any
    ) -> Self:
        """The factors of a file."""
        own["rotation"] = str(own["rotation"])
        own["share_at_best"] = float(own["share_at_best"])
        own["axes_known"] = bool(own.get("axes_known", True))
        # Files of before have the covariances about the modes alone.
        own.setdefault("spread", own.get("covariance"))
        if "certificate" in own:
            own["certificate"] = float(own["certificate"])
        return cls(**own)


def findings_of(factors: Factors, options: dict[str, Any]) -> Findings:
    """Warnings about factors that few items measure, and notes on the rotation."""
    warnings, notes = [], []
    positive = bool(options.get("positive"))
    free = len(factors.names) > 1 and options.get("loadings") == "all"
    salient = (np.abs(factors.structure) >= SALIENT).sum(axis=0)
    few = [
        str(n) for n, k in zip(factors.names, salient, strict=True) if k < FEWEST_ITEMS
    ]
    if few:
        warnings.append(
            f"fewer than {FEWEST_ITEMS} items have a structure coefficient of at least"
            f" {SALIENT} on {', '.join(few)}: use fewer factors, and look for copies of"
            " an item (irtjax audit)"
        )
    # A mask of loadings identifies factors that share their items.
    if positive and free:
        share = factors.loadings**2 / np.maximum(factors.communality, 1e-12)[:, None]
        pure = (share >= PURE).sum(axis=0)
        names = [str(n) for n in factors.names]
        counts = ", ".join(f"{k} ({n})" for n, k in zip(names, pure, strict=True))
        notes.append(
            f"items with at least {100 * PURE:g} % of their communality on one factor:"
            f" {counts}"
        )
        vague = [n for n, k in zip(names, pure, strict=True) if k < FEWEST_ITEMS]
        if vague:
            warnings.append(
                f"fewer than {FEWEST_ITEMS} items measure {', '.join(vague)} alone:"
                " other non-negative loadings may fit as well, so the factors may not"
                " be identified"
            )
    if factors.share_at_best < FEW_STARTS:
        notes.append(
            f"{100 * factors.share_at_best:.2g} % of the starts of the rotation reached"
            " its best value: another rotation may be as simple"
        )
    if factors.from_target is not None:
        apart = ", ".join(
            f"{x:.2f} ({name})"
            for name, x in zip(factors.names, factors.from_target, strict=True)
            if np.isfinite(x)
        )
        notes.append(
            f"root mean square of the differences of loadings from the target: {apart}"
        )
    if (
        factors.loadings_error is not None
        and factors.axes_known
        and free
        and not positive
    ):
        notes.append("errors of loadings leave out that of the factors' directions")
    return Findings(tuple(warnings), tuple(notes))


def correlation_columns(factors: Factors, level: float) -> dict[str, np.ndarray]:
    """A row for each pair of factors: correlation, error, and interval at a level."""
    pairs = np.triu_indices(len(factors.names), 1)
    bounds = factors.correlation_interval(level)
    assert factors.correlation_error is not None and bounds is not None
    return {
        "first": factors.names[pairs[0]],
        "second": factors.names[pairs[1]],
        "correlation": factors.correlation[pairs],
        "correlation_se": factors.correlation_error[pairs],
        "lower": bounds[0][pairs],
        "upper": bounds[1][pairs],
    }
