"""Does a model fit? M2 and C2 with RMSEA, SRMSR, CFI; items, subjects, and ranks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
from scipy.special import ndtr

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.tables import number_column
from irtjax.data.matching import places_of
from irtjax.data.table import ResponseTable
from irtjax.data.wording import are, counted, listing, p_text
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity.fitted_curves import FittedCurves
from irtjax.validity.item_fit import (
    MisfitEffect,
    ScoreGroupFit,
    misfit_effect,
    rest_group_fit,
    score_group_fit,
)
from irtjax.validity.limited_information import (
    Moments,
    limited_fit,
    p_value,
    rmsea,
)
from irtjax.validity.person_fit import response_fit

#: Pairs of items that `largest` lists, and items that a note names.
MOST_PAIRS, MOST_NAMES = 10, 5
#: Root mean square correlation of missing responses from which they are missing
#: together: variances of products are then wrong by more than this share of those of
#: the missing cells.
MISSING_TOGETHER = 0.1
#: Share of complete subjects from which S-X2 is of them alone, in groups of scores.
MOSTLY_COMPLETE = 0.9
#: Share of false ones among the items that misfit.
FALSE_DISCOVERIES = 0.05


@dataclasses.dataclass(frozen=True, eq=False)
class FitStatistics:
    """How well a model reproduces means and correlations of its items.

    Attributes:
        name: "M2" for right and wrong responses, "C2" with more categories.
        statistic: Chi-squared with `degrees` if the model holds.
        degrees: Degrees of freedom.
        p_value: Chance of a larger statistic if the model holds; NaN without degrees.
        rmsea: Root mean square error of approximation: misfit by degree of freedom,
            which does not grow with the number of subjects.
        rmsea_interval: Its 90 % interval.
        srmsr: Root mean square of the residual correlations of items.
        cfi: Comparative fit index: 1 of a perfect model, 0 of independent items.
        tli: Tucker-Lewis index, the same by degree of freedom.
        num_subjects: Subjects that M2 counts.
        residuals: `[items, items]` correlations, observed less expected.
        largest: Pairs of items with the largest residual correlations.
        subjects: A row for each subject: zh, lz_star, infit, outfit
            (`irtjax.validity.person_fit`), p_value of an lz* as low under the model,
            and q_value, the same adjusted for the number of subjects (Benjamini and
            Hochberg).
        items: A row for each item: zh, infit, outfit, and of right and wrong responses
            s_x2, s_x2_degrees, rmsd (`irtjax.validity.item_fit`), p_value of S-X2 and
            q_value, the same adjusted for the number of items. S-X2 has groups of
            scores, of complete subjects; if more than a tenth of the subjects lack
            responses, groups of what a subject's other responses imply.
        effect: How far subjects move without the items of a q_value up to .05; None
            without S-X2.
        notes: What to know about the numbers, each a sentence.
    """

    name: str
    statistic: float
    degrees: int
    p_value: float
    rmsea: float
    rmsea_interval: tuple[float, float]
    srmsr: float
    cfi: float
    tli: float
    num_subjects: int
    residuals: np.ndarray
    largest: pa.Table
    subjects: pa.Table
    items: pa.Table
    effect: MisfitEffect | None
    notes: tuple[str, ...]

    def __str__(self) -> str:
        low, high = self.rmsea_interval
        first = "" if self.effect is None else f"{self.effect}. "
        return (
            f"{first}{self.name} {self.statistic:,.2f} with {self.degrees:,} degrees of"
            f" freedom (p {p_text(self.p_value)}), RMSEA {self.rmsea:.3f} (90 %"
            f" interval {low:.3f} to {high:.3f}), SRMSR {self.srmsr:.3f}, CFI"
            f" {self.cfi:.3f}"
        )


def fit_statistics(fit: Calibration, table: ResponseTable) -> FitStatistics:
    """Tests a fit against the means and products of its items' responses.

    M2 (Maydeu-Olivares and Joe 2006) for right and wrong responses, C2 (Cai and Monroe
    2014) for more categories, from shares of categories and mean products of scores:
    `irtjax.validity.limited_information` has the formula. RMSEA is
    sqrt(max(M2 - df, 0) / (df (N - 1))), SRMSR the root mean square of residual
    correlations, CFI 1 - max(M2 - df, 0) / max(M2_0 - df_0, 0) with M2_0 of independent
    items, N sum r^2 over pairs of items.

    Args:
        fit: A fit of a model with one ability by a marginal method (`em`).
        table: The responses that were fitted. Responses missing one by one, whatever
            the ability and the other items, lower M2's weight of their items; if items
            are missing together, only subjects who responded to every item count, as
            in mirt up to version 1.40, whatever is missing.

    Raises:
        ValueError: If the model has several abilities, integrates items out, has fixed
            parameters or no categories; if responses are shares of trials; if items
            differ from those of the fit or are more than 400; or if no two subjects
            responded to every item.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]] * 5
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> fit = irtjax.fit(table, "rasch", method="em")
    >>> irtjax.fit_statistics(fit, table).degrees  # 10 moments, 5 parameters
    5
    """
    fitted = FittedCurves.of(fit, table)
    values, seen, notes = _responses(table)
    curves = fitted.curves
    observed = Moments.of(values, curves.codes, seen)
    result = limited_fit(
        curves, fitted.weights, observed, fitted.parameters, fitted.with_scale
    )
    degrees, size = result.degrees, observed.size
    if degrees <= 0:
        notes += ("The model has as many parameters as moments: no test.",)
    estimate, *interval = rmsea(result.statistic, degrees, size)
    num_items = table.num_items
    upper = result.residuals[np.triu_indices(num_items, 1)]
    # Items without variation have no correlations.
    pairs = int(np.isfinite(upper).sum())
    constant = table.items[~np.isfinite(result.residuals).any(axis=1)].tolist()
    if constant:
        notes += (
            f"{counted(len(constant), 'item')} without variation"
            f" ({listing(constant, MOST_NAMES)}): leave out, then fit again.",
        )
    excess = max(result.statistic - degrees, 0.0)
    most = max(result.independent - pairs, excess, 1e-300)
    tli = np.nan
    if degrees > 0 and result.independent > pairs:
        ratio = result.independent / pairs
        tli = (ratio - result.statistic / degrees) / (ratio - 1)
    subjects, items, effect, note = _response_fit(fit, table, fitted)
    return FitStatistics(
        "M2" if curves.codes.size == 2 else "C2",
        result.statistic,
        degrees,
        p_value(result.statistic, degrees),
        estimate,
        (interval[0], interval[1]),
        float(np.sqrt(np.nanmean(upper**2))),
        1 - excess / most,
        float(tli),
        size,
        result.residuals,
        _largest(result.residuals, table.items),
        subjects,
        items,
        effect,
        notes + note,
    )


def _responses(
    table: ResponseTable,
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Responses, where they exist, and a note on missing ones."""
    values, observed = table.stored.dense
    seen = np.asarray(observed, bool)
    if seen.all():
        return values, seen, ()
    if not _missing_together(seen):
        missing, cells = int((~seen).sum()), f"{seen.size:,} responses"
        note = f"{missing:,} of {cells} {are(missing)} missing: taken as at random."
        return values, seen, (note,)
    complete = seen.all(1)
    size, whole = int(complete.sum()), table.num_subjects
    if size < 2:
        raise ValueError(
            f"items are missing together, and {size} of {whole:,} subjects responded to"
            " every item, where M2 needs two: leave out items with missing responses,"
            " then fit again"
        )
    note = (
        f"Items are missing together: the {size:,} of {whole:,} subjects who responded"
        " to every item count."
    )
    return values[complete], seen[complete], (note,)


def _missing_together(seen: np.ndarray) -> bool:
    """Whether responses `[subjects, items]` are missing in blocks of items."""
    exists = seen[:, ~seen.all(0)].astype(float)
    gap = exists - exists.mean(0)
    sd = np.sqrt((gap**2).mean(0))
    if not exists.shape[1] or not sd.all():
        return True
    size, num_items = exists.shape
    correlations = gap.T @ gap / size / np.outer(sd, sd)
    pairs = max(num_items * (num_items - 1), 1)
    square = ((correlations**2).sum() - num_items) / pairs
    # Independent ones correlate by chance: 1 / size in the mean of squares.
    return bool(square - 1 / size > MISSING_TOGETHER**2)


def _response_fit(
    fit: Calibration,
    table: ResponseTable,
    fitted: FittedCurves,
) -> tuple[pa.Table, pa.Table, MisfitEffect | None, tuple[str, ...]]:
    """Fit of subjects and of items; the effect of misfit; a note on S-X2."""
    places = places_of(fit.subject_names, table.subjects)
    if (places < 0).any():
        name = table.subjects[np.argmin(places)]
        raise ValueError(f"subject {name!r} is not in the fit: test the fitted data")
    abilities = fit.abilities.table.column("ability").to_numpy()[places]
    values, observed = table.stored.dense
    observed = np.asarray(observed, bool)
    seen = observed & np.isfinite(abilities)[:, None]
    theta = np.nan_to_num(abilities, nan=0.0)
    of_subjects, of_items = response_fit(
        fit.model.family, fitted.items, theta, values, seen
    )
    subjects = of_subjects._asdict() | _discoveries(ndtr(of_subjects.lz_star))
    columns = {name: getattr(of_items, name) for name in ("zh", "infit", "outfit")}
    effect, note = None, ()
    if fitted.curves.codes.size == 2:
        num_parameters = fit.model.family.num_columns
        groups, note = _group_fit(fitted, values, observed, num_parameters)
        s_x2, degrees, p, rmsd = groups
        tests = _discoveries(p)
        columns |= {"s_x2": s_x2, "s_x2_degrees": degrees, "rmsd": rmsd} | tests
        if np.isfinite(p).any():
            misfits = tests["q_value"] <= FALSE_DISCOVERIES
            likelihood = fitted.likelihood(values, observed)
            effect = misfit_effect(likelihood, misfits, rmsd)
    return (
        _rows("subject", table.subjects, subjects),
        _rows("item", table.items, columns),
        effect,
        note,
    )


def _group_fit(
    fitted: FittedCurves, values: np.ndarray, seen: np.ndarray, num_parameters: int
) -> tuple[ScoreGroupFit, tuple[str, ...]]:
    """S-X2 in groups of scores, or of other responses; a note on the latter."""
    complete = seen.all(1)
    number, size = int(complete.sum()), complete.size
    if number >= MOSTLY_COMPLETE * size:
        chance = fitted.curves.probabilities[..., 1]
        weights = fitted.weights
        return score_group_fit(values[complete], chance, weights, num_parameters), ()
    note = (
        f"{number:,} of {size:,} subjects responded to every item: S-X2 has groups of"
        " what a subject's other responses imply, not of scores."
    )
    likelihood = fitted.likelihood(values, seen)
    return rest_group_fit(likelihood, num_parameters), (note,)


def _discoveries(p_values: np.ndarray) -> dict[str, np.ndarray]:
    """P-values and the same adjusted for their number."""
    return {"p_value": p_values, "q_value": benjamini_hochberg(p_values)}


def _rows(name: str, labels: np.ndarray, columns: dict[str, np.ndarray]) -> pa.Table:
    """A table of labels and columns of numbers."""
    numbers = {key: number_column(x) for key, x in columns.items()}
    return pa.table({name: labels.tolist(), **numbers})


def _largest(residuals: np.ndarray, names: np.ndarray) -> pa.Table:
    """The pairs of items of the largest residual correlations."""
    first, second = np.triu_indices(len(names), 1)
    size = np.abs(np.nan_to_num(residuals[first, second]))
    order = np.argsort(-size, kind="stable")[:MOST_PAIRS]
    first, second = first[order], second[order]
    return pa.table(
        {
            "item": names[first].tolist(),
            "other_item": names[second].tolist(),
            "residual_correlation": residuals[first, second],
        }
    )
