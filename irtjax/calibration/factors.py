"""Results of a factor model in a calibration: loadings, factors, their tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from irtjax.calibration.lengths import correlation_interval
from irtjax.estimators.estimates import Estimates

#: Items with at least this structure coefficient belong to a factor, and how many a
#: factor needs: fewer may be copies of one item.
SALIENT, FEWEST_ITEMS = 0.4, 3
#: Share of an item's communality from which it measures one factor alone.
PURE = 0.95
#: Share of random starts at the best value below which a rotation is in doubt.
FEW_STARTS = 0.05


class Factors(NamedTuple):
    """Loadings of items, and abilities of subjects, on several factors.

    Attributes:
        names: `[factors]` names.
        loadings: `[items, factors]` standardised pattern, a / sqrt(a'Phi a + v), v the
            variance of the link's distribution.
        loadings_error: Their standard errors, or None.
        structure: `[items, factors]` correlations of items and factors, loadings Phi.
        communality: `[items]` share of an item's latent variance due to the factors.
        correlation: `[factors, factors]` Phi.
        ability: `[subjects, factors]` abilities, in the order of the fit's `subjects`.
            They are posterior modes.
        covariance: `[subjects, factors, factors]` their covariances, by the curvature
            there.
        mean: `[subjects, factors]` posterior means, of which expected scores are.
        spread: `[subjects, factors, factors]` posterior covariances about them.
        rotation: Name of the rotation, or "none".
        share_at_best: Share of the rotation's random starts that reached its best
            value; NaN without rotation.
        axes_known: Whether errors of loadings are those of known axes: they leave out
            the error of the rotation.
        correlation_error: `[factors, factors]` standard errors of Phi, 0 on the
            diagonal, NaN where not identified. None where the correlations are fixed
            (orthogonal factors), those of estimated abilities (`mm`), or rotated
            without the covariance of all items.
        at_fixed_axes: `[items, columns, columns]` covariance of the slopes and other
            coordinates of each item without the error of the rotation, which abilities
            follow, so that it adds nothing to the errors of expected scores. None
            without rotation or standard errors.
        from_target: `[factors]` root mean square of the differences of loadings from
            the specified cells of a target, NaN without any; None without a target.
        certificate: q of the fit at the penalty of noise that found the number of
            factors: it is the best fit of any number if q is at most 1.01. None where
            the number was given.
    """

    names: np.ndarray
    loadings: np.ndarray
    loadings_error: np.ndarray | None
    structure: np.ndarray
    communality: np.ndarray
    correlation: np.ndarray
    ability: np.ndarray
    covariance: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    rotation: str
    share_at_best: float
    axes_known: bool = True
    correlation_error: np.ndarray | None = None
    at_fixed_axes: np.ndarray | None = None
    from_target: np.ndarray | None = None
    certificate: float | None = None

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


def factors_of(
    estimates: Estimates, names: Any, order: np.ndarray | None = None
) -> Factors | None:
    """The factors with their names, subjects in an order; None for other models."""
    loadings = estimates.factors
    if loadings is None:
        return None
    places = slice(None) if order is None else order
    best = loadings.share_at_best
    return Factors(
        np.asarray(names),
        loadings.loadings,
        loadings.loadings_error,
        loadings.structure,
        loadings.communality,
        loadings.correlation,
        loadings.ability[places],
        loadings.covariance[places],
        loadings.mean[places],
        loadings.spread[places],
        loadings.rotation,
        float("nan") if best is None else best,
        loadings.axes_known,
        loadings.correlation_error,
        loadings.at_fixed_axes,
        loadings.from_target,
        loadings.certificate,
    )


def warnings_of(found: Factors, options: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Warnings about factors that few items measure, and notes on the rotation."""
    warnings, notes = [], []
    positive = bool(options.get("positive"))
    free = len(found.names) > 1 and options.get("loadings") == "all"
    salient = (np.abs(found.structure) >= SALIENT).sum(axis=0)
    few = [
        str(n) for n, k in zip(found.names, salient, strict=True) if k < FEWEST_ITEMS
    ]
    if few:
        warnings.append(
            f"fewer than {FEWEST_ITEMS} items have a structure coefficient of at least"
            f" {SALIENT} on {', '.join(few)}: use fewer factors, and look for copies of"
            " an item (irtjax audit)"
        )
    # A mask of loadings identifies factors that share their items.
    if positive and free:
        share = found.loadings**2 / np.maximum(found.communality, 1e-12)[:, None]
        pure = (share >= PURE).sum(axis=0)
        names = [str(n) for n in found.names]
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
    if found.share_at_best < FEW_STARTS:
        notes.append(
            f"{100 * found.share_at_best:.2g} % of the starts of the rotation reached"
            " its best value: another rotation may be as simple"
        )
    if found.from_target is not None:
        apart = ", ".join(
            f"{x:.2f} ({name})"
            for name, x in zip(found.names, found.from_target, strict=True)
            if np.isfinite(x)
        )
        notes.append(
            f"root mean square of the differences of loadings from the target: {apart}"
        )
    if found.loadings_error is not None and found.axes_known and free and not positive:
        notes.append("errors of loadings leave out that of the factors' directions")
    return warnings, notes


def ability_columns(found: Factors) -> dict[str, np.ndarray]:
    """Columns of the ability table: an ability and its error for each factor."""
    columns = {}
    for k, name in enumerate(found.names):
        columns[f"ability_{name}"] = found.ability[:, k]
        columns[f"ability_{name}_se"] = found.error[:, k]
    return columns


def loading_columns(found: Factors) -> dict[str, np.ndarray]:
    """Columns of items: loadings with errors, structure, communality."""
    columns = {}
    for k, name in enumerate(found.names):
        columns[f"loading_{name}"] = found.loadings[:, k]
        if found.loadings_error is not None:
            columns[f"loading_{name}_se"] = found.loadings_error[:, k]
    for k, name in enumerate(found.names):
        columns[f"structure_{name}"] = found.structure[:, k]
    return columns | {"communality": found.communality}


def correlation_columns(found: Factors, level: float) -> dict[str, np.ndarray]:
    """A row for each pair of factors: correlation, error, and interval at a level."""
    pairs = np.triu_indices(len(found.names), 1)
    bounds = found.correlation_interval(level)
    assert found.correlation_error is not None and bounds is not None
    return {
        "first": found.names[pairs[0]],
        "second": found.names[pairs[1]],
        "correlation": found.correlation[pairs],
        "correlation_se": found.correlation_error[pairs],
        "lower": bounds[0][pairs],
        "upper": bounds[1][pairs],
    }
