"""Which of two nested models fits better: likelihood ratio, held-out loss, items."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
from scipy.special import ndtr

from irtjax._types import RandomKey
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.tables import number_column
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, p_text
from irtjax.prediction.cross_validation import cross_validate
from irtjax.prediction.splits import FOLDS
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity.fitted_curves import FittedCurves
from irtjax.validity.limited_information import p_value
from irtjax.validity.nested_tests import (
    LEAST_SUBJECTS,
    WaldTests,
    enough_subjects,
    guess_scores,
    slope_scores,
    slope_wald,
)

#: Models whose items have tests of their own, by the parameter that the larger adds.
EQUAL_SLOPES, FREE_SLOPES, GUESSES = ("rasch", "1pl"), ("2pl",), ("3pl",)


@dataclasses.dataclass(frozen=True, eq=False)
class FitComparison(HasTable):
    """Two nested fits compared.

    Attributes:
        statistic: Twice the difference of the log-likelihoods.
        degrees: Difference of the numbers of parameters.
        p_value: Chance of a larger statistic if the smaller model holds.
        table: A row for each fit, the smaller one first: model, log_likelihood,
            parameters, aic, bic; with the responses also log_loss, the mean of a
            response left out in nats.
        gain: With the responses, log loss of the smaller model less that of the larger
            one, on the same responses left out; above 0 the larger predicts better.
        gain_se: Its standard error, paired over folds.
        items: With the responses, a row for each item: z of the score test of a slope
            of its own (1PL to 2PL) or of a lower asymptote (2PL to 3PL, one-sided),
            step (the slope's change as a share of the common one, or the asymptote, by
            one step), p_value, q_value (Benjamini and Hochberg); of slopes also
            wald_z, wald_p_value, wald_q_value of each slope against their mean. None
            for other models, or with few subjects.
        wald: The Wald test of equal slopes in the larger model, or None.
        notes: Reasons to doubt the numbers, each a sentence.
    """

    statistic: float
    degrees: int
    p_value: float
    table: pa.Table
    gain: float | None
    gain_se: float | None
    items: pa.Table | None
    wald: WaldTests | None
    notes: tuple[str, ...]

    def __str__(self) -> str:
        small, large = self.table.column("model").to_pylist()
        if small == large:
            sizes = self.table.column("parameters").to_pylist()
            small, large = (f"{small} of {size:,} parameters" for size in sizes)
        held_out = ""
        if self.gain is not None:
            held_out = (
                f"{large} predicts responses left out by {self.gain:+.4f} nats a"
                f" response better than {small} (standard error {self.gain_se:.4f}); "
            )
        degrees = counted(self.degrees, "degree of freedom", "degrees of freedom")
        return (
            f"{held_out}{large} against {small}: likelihood ratio"
            f" {self.statistic:.2f} with {degrees}, p {p_text(self.p_value)}"
        )


def compare_fits(
    a: Calibration,
    b: Calibration,
    data: ResponseTable | None = None,
    *,
    folds: int = FOLDS,
    key: RandomKey = 0,
) -> FitComparison:
    """Compares two nested fits of the same responses.

    2 (log L_large - log L_small) is chi-squared with the difference of the numbers of
    parameters if the smaller model holds (Wilks 1938). Where that model is on the
    boundary of the larger one, as a 2PL in a 3PL, p-values are too large. The smaller
    AIC or BIC is the better fit, and needs no nesting. With the responses, both models
    are fitted to parts of them and predict the others, and items are tested one by one
    (`irtjax.validity.nested_tests`).

    Args:
        a: A fit by a marginal method, without priors.
        b: Another fit of the same responses, in any order.
        data: The responses that were fitted, right and wrong.
        folds: Number of parts that are left out in turn.
        key: Seed of the parts.

    Raises:
        ValueError: If the responses differ, if the numbers of parameters are equal, or
            if a fit has no marginal likelihood.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]] * 5
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> rasch, two = (irtjax.fit(table, x, method="em") for x in ("rasch", "2pl"))
    >>> irtjax.compare_fits(rasch, two).degrees
    3
    """
    if a.data_hash != b.data_hash:
        raise ValueError("the two fits are of different responses: fit one table twice")
    small, large = sorted((a, b), key=lambda fit: fit.num_parameters)
    degrees = large.num_parameters - small.num_parameters
    if degrees == 0:
        raise ValueError(
            f"both fits have {small.num_parameters:,} parameters, so that neither is"
            " nested: compare their AIC"
        )
    for fit in (small, large):
        joint = fit.parameters.theta is not None
        if fit.multilevel or joint or fit.options.get("worth"):
            raise ValueError(
                f"{fit.model.name} has no marginal likelihood of its items: fit with"
                ' method="em"'
            )
    statistic = 2 * (large.log_likelihood - small.log_likelihood)
    notes = ()
    if any(fit.log_prior for fit in (small, large)):
        notes += (
            "Priors moved the estimates from the largest likelihood: fit with"
            " priors={} for an exact test.",
        )
    if statistic < 0:
        notes += ("The larger model is less likely: the fits are not nested.",)
    gain = gain_se = items = wald = None
    losses: dict[str, list[float]] = {}
    if data is not None:
        if data.data_hash() != a.data_hash:
            raise ValueError("the table is not that of the fits: give the fitted one")
        if any("groups" in fit.options for fit in (small, large)):
            notes += (
                "Fits with groups are not compared by responses left out, nor by item.",
            )
        else:
            losses, gain, gain_se = _left_out(small, large, data, folds, key)
            items, wald, more = _item_tests(small, large, data)
            notes += more
    table = pa.Table.from_pylist(
        [
            {
                "model": fit.model.name,
                "log_likelihood": fit.log_likelihood,
                "parameters": fit.num_parameters,
                "aic": fit.aic,
                "bic": fit.bic,
            }
            for fit in (small, large)
        ]
    )
    for name, column in losses.items():
        table = table.append_column(name, pa.array(column))
    chance = p_value(max(statistic, 0.0), degrees)
    return FitComparison(
        statistic, degrees, chance, table, gain, gain_se, items, wald, notes
    )


def _left_out(
    small: Calibration, large: Calibration, data: ResponseTable, folds: int, key
) -> tuple[dict[str, list[float]], float, float]:
    """Log losses of responses left out, the larger model's gain, and its error."""
    models = {"small": small.model, "large": large.model}
    scores = cross_validate(data, models, folds=folds, key=key).scores
    names = np.array(scores["model"].to_pylist())
    score = scores["log_score"].to_numpy()
    before, after = (-score[names == name] for name in models)
    gains = before - after
    error = gains.std(ddof=1) / np.sqrt(gains.size)
    columns = {"log_loss": [float(before.mean()), float(after.mean())]}
    return columns, float(gains.mean()), float(error)


def _item_tests(
    small: Calibration, large: Calibration, data: ResponseTable
) -> tuple[pa.Table | None, WaldTests | None, tuple[str, ...]]:
    """Score and Wald tests of the items, and why there are none."""
    names = small.model.name, large.model.name
    of_slopes = names[0] in EQUAL_SLOPES and names[1] in FREE_SLOPES
    of_guesses = names[0] in FREE_SLOPES and names[1] in GUESSES
    if not (of_slopes or of_guesses):
        return None, None, ("Items are tested for 1pl or rasch, 2pl and 3pl only.",)
    tested = large if of_slopes else small
    if not enough_subjects(data.num_subjects, tested.num_parameters):
        note = (
            f"{data.num_subjects:,} subjects are too few for tests of the items, which"
            f" need {LEAST_SUBJECTS} for each of {tested.num_parameters:,} parameters."
        )
        return None, None, (note,)
    values, observed = data.stored.dense
    seen = np.asarray(observed, bool)
    values = np.where(seen, values, 0)
    fitted = FittedCurves.of(small, data)
    wald = None
    if of_slopes:
        z, step = slope_scores(fitted, values, seen)
        chance = 2 * ndtr(-np.abs(z))
        wald = slope_wald(FittedCurves.of(large, data), values, seen)
    else:
        z, step = guess_scores(fitted, values, seen)
        chance = ndtr(-z)
    columns = {"z": z, "step": step, "p_value": chance}
    columns["q_value"] = benjamini_hochberg(chance)
    if wald is not None:
        two_sided = 2 * ndtr(-np.abs(wald.z))
        columns |= {"wald_z": wald.z, "wald_p_value": two_sided}
        columns["wald_q_value"] = benjamini_hochberg(two_sided)
    numbers = {name: number_column(x) for name, x in columns.items()}
    return pa.table({"item": data.items.tolist(), **numbers}), wald, ()
