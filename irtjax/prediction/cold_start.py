r"""Cold start: responses of new subjects, or to new items, from features.

The logit of a right response is an ability less a difficulty. Both regress on features
within the fit, and what the features do not explain is a residual:

.. math:: \operatorname{logit} P_{ij} = \theta_i - b_j, \quad
          \theta_i \sim N(f_i' g, \sigma^2), \quad b_j \sim N(e_j' h, \tau^2).

Effects g and h of each group of features are normal with one variance, a ridge that the
marginal likelihood chooses with the residual variances (`prediction.crossed_effects`).
An item without responses has the prediction of its features, one with a few a
compromise, and one with many its own difficulty: all are one posterior. The same is
true of subjects. Rasch's slopes of 1 are a restriction: features predict no slopes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtri

from irtjax.data.coding import coded
from irtjax.data.features import FeatureBlock, Features, blocks_of, read_features
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.prediction.crossed_effects import (
    CrossedEffects,
    CrossedResponses,
    fit_effects,
)
from irtjax.prediction.stacking import cells_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Nodes over the posterior of a logit. With a standard deviation of 3 they err by 1e-4.
NODES = 21
#: Fewest subjects, or items, with responses for a residual variance.
FEWEST = 5


class LabelEffects(NamedTuple):
    """Effects of the labels of a column.

    Attributes:
        levels: The labels.
        mean: `[levels]` effects on ability or difficulty.
        covariance: `[levels, levels]`.
        code: Label of each subject or item.
        side: 0 of subjects, 1 of items.
    """

    levels: tuple[str, ...]
    mean: np.ndarray
    covariance: np.ndarray
    code: np.ndarray
    side: int


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ColdStart(HasTable):
    """Abilities and difficulties by features, and chances of all responses.

    Attributes:
        items: A row for each item: `item`, `difficulty` with `difficulty_se`,
            `expected` (mean response of all subjects) with `lower` and `upper`, which
            count what single responses add, and `observed` responses.
        subjects: A row for each subject: `subject`, `ability` (of mean 0 over those
            with responses) with `ability_se`, `expected` (mean response to all items),
            `lower`, `upper`, `observed`.
        effects: A row for each feature that has an effect of its own: `of` ("subject"
            or "item"), `feature`, `level` (of labels), `effect` on ability or
            difficulty (of one standard deviation of a number), `effect_se`, `lower`,
            `upper`.
        variances: A row for each block of features and each residual: `of`, `part`,
            `sd` of abilities or difficulties by it, `share` of their variance.
        expected: `[subjects, items]` chances of a right response.
        logit: `[subjects, items]` posterior means of the logits.
        logit_se: `[subjects, items]` their standard errors.
        level: Level of the intervals.
        log_likelihood: Laplace's approximation.
        labels: Effects of each column of labels.
        warnings: Reasons to doubt it.
    """

    title = "Cold start"

    items: pa.Table
    subjects: pa.Table
    effects: pa.Table
    variances: pa.Table
    expected: np.ndarray
    logit: np.ndarray
    logit_se: np.ndarray
    level: float
    log_likelihood: float
    labels: dict[str, LabelEffects]
    warnings: tuple[str, ...] = ()

    @property
    def table(self) -> pa.Table:
        """The items."""
        return self.items

    def difference(self, feature: str, first: str, second: str) -> dict[str, float]:
        """Effect of one label less that of another, with its interval.

        Points are what the mean of all responses is higher with the first label than
        with the second, if all subjects (items) have it and all else is as it is.

        Args:
            feature: A column of labels, such as "agent".
            first: A label.
            second: Another.

        Returns:
            `difference` of abilities (of difficulties for items), its `standard_error`,
            `lower` and `upper`; and `points` (in percent) with `points_lower` and
            `points_upper`.

        Raises:
            ValueError: If there is no such column or label.
        """
        if feature not in self.labels:
            raise ValueError(
                f"no labels {feature!r}; there are {', '.join(self.labels) or 'none'}"
            )
        levels, mean, covariance, code, side = self.labels[feature]
        places = []
        for name in (first, second):
            if name not in levels:
                raise ValueError(
                    f"{feature} has no label {name!r}; it has {', '.join(levels[:6])}"
                    + ", ..." * (len(levels) > 6)
                )
            places.append(levels.index(name))
        one, other = places
        value = float(mean[one] - mean[other])
        part = covariance[np.ix_(places, places)]
        error = float(np.sqrt(part[0, 0] + part[1, 1] - 2 * part[0, 1]))
        half = float(ndtri(0.5 + self.level / 2)) * error
        # The mean over a normal logit is nearly that of a shrunken one (MacKay 1992).
        shrink = 1 / np.sqrt(1 + np.pi * self.logit_se**2 / 8)
        sign = 1.0 if side == 0 else -1.0
        steps = sign * (mean[other] - mean[code])
        base = self.logit + (steps[:, None] if side == 0 else steps)
        chances = lambda step: float(expit(shrink * (base + sign * step)).mean())
        ends = value, value - half, value + half
        points = [100 * (chances(x) - chances(0)) for x in ends]
        return {
            "difference": value,
            "standard_error": error,
            "lower": value - half,
            "upper": value + half,
            "points": points[0],
            "points_lower": min(points),
            "points_upper": max(points),
        }

    @property
    def new_responses(self) -> pa.Table:
        """Chances of responses of subjects or to items that have none.

        `subject`, `item`, `expected`, and `lower` and `upper` for the chance.
        """
        import pyarrow as pa

        observed = [x["observed"].to_numpy() == 0 for x in (self.subjects, self.items)]
        row, column = np.nonzero(observed[0][:, None] | observed[1])
        half = float(ndtri(0.5 + self.level / 2)) * self.logit_se[row, column]
        logit = self.logit[row, column]
        return pa.table(
            {
                "subject": self.subjects["subject"].take(pa.array(row)),
                "item": self.items["item"].take(pa.array(column)),
                "expected": self.expected[row, column],
                "lower": expit(logit - half),
                "upper": expit(logit + half),
            }
        )


def cold_start(
    data: ResponseTable | Any,
    *,
    item_features: Any = None,
    subject_features: Any = None,
    item_columns: Sequence[str] | None = None,
    subject_columns: Sequence[str] | None = None,
    level: float = 0.95,
) -> ColdStart:
    """Predicts responses to items, or of subjects, that nobody has responses of yet.

    Features are a CSV or Parquet file, a data frame, a mapping from names to columns, a
    matrix or an .npy file. Numbers and dates are standardised; each column of labels
    (scaffold, model, repository) has effects of its own. Rows of a table whose names
    are not in the responses are new items or subjects, and are predicted.

    Args:
        data: Right and wrong responses or counts of right ones: a `ResponseTable`, or
            what `irtjax.read` takes. Items without any response are predicted too.
        item_features: Features of items; a row for each, or None.
        subject_features: Features of subjects; a row for each, or None.
        item_columns: Columns of features of items to use; None for all.
        subject_columns: Columns of features of subjects to use; None for all.
        level: Level of the intervals.

    Returns:
        Abilities, difficulties, effects, variances, and chances of all responses.

    Raises:
        ValueError: There are no features, some lack, a number or date is none,
            responses are not right or wrong, or fewer than 5 subjects or items have
            any.

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> size = table.item_accuracy() + np.linspace(0, 0.2, table.num_items)
    >>> result = irtjax.cold_start(table, item_features={"size": size})
    >>> result.variances["part"].to_pylist()
    ['residual', 'numbers', 'residual']
    """
    if item_features is None and subject_features is None:
        raise ValueError("give features of items, of subjects, or of both")
    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")
    table = _table_of(data)
    right, trials = cells_of(table)
    sides = []
    for source, names, what, columns in (
        (subject_features, table.subjects, "subject", subject_columns),
        (item_features, table.items, "item", item_columns),
    ):
        none = Features(names, np.zeros((len(names), 0)), (), {})
        features = (
            none if source is None else read_features(source, names, what, columns)
        )
        sides.append(features)
    size = tuple(len(x.names) for x in sides)
    right, trials = (
        np.pad(x, [(0, n - m) for n, m in zip(size, x.shape, strict=True)])
        for x in (np.where(trials > 0, right, 0.0), np.asarray(trials, float))
    )
    observed = [np.sum(trials > 0, axis=1), np.sum(trials > 0, axis=0)]
    for count, what in zip(observed, ("subject", "item"), strict=True):
        if np.sum(count > 0) < FEWEST:
            raise ValueError(
                f"{counted(int(np.sum(count > 0)), what)} with responses: the variance"
                f" of residuals needs {FEWEST}"
            )
    blocks = [blocks_of(f, n > 0) for f, n in zip(sides, observed, strict=True)]
    warnings = _unused(sides, blocks)
    effects = _fit(CrossedResponses(right, trials), *blocks)
    return _result(effects, sides, blocks, observed, level, warnings)


def feature_chances(
    item_features: Any = None, subject_features: Any = None
) -> Callable[[ResponseTable], np.ndarray]:
    """A model of features as a function from responses to chances.

    For `irtjax.prediction.generalise`: the chances `[subjects, items]` of all cells of
    a table of training responses, in which items to predict have none. Files are read
    once, matrices have a row for each item of the table.

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> model = feature_chances({"accuracy": table.item_accuracy()})
    >>> model(table).shape == table.values.shape
    True
    """

    def chances(table: ResponseTable) -> np.ndarray:
        result = cold_start(
            table, item_features=item_features, subject_features=subject_features
        )
        return result.expected[: table.num_subjects, : table.num_items]

    return chances


def _table_of(data: Any) -> ResponseTable:
    """Right and wrong responses, or counts."""
    if not isinstance(data, ResponseTable):
        from irtjax.data import read

        data = read(data)
    data = coded(data)
    values = np.asarray(data.values)
    if data.trials is None and not np.isin(values, (0, 1)).all():
        raise ValueError(
            "cold start needs right and wrong responses, or counts of right ones: these"
            f" are {data.kind}; give a threshold when reading"
        )
    return data


def _unused(
    known: list[Features], blocks: list[tuple[FeatureBlock, ...]]
) -> tuple[str, ...]:
    """Warnings of columns that are in no block."""
    unused = []
    for features, used in zip(known, blocks, strict=True):
        names = {block.name for block in used}
        levels = {x for block in used if block.name == "numbers" for x in block.levels}
        if features.numbers.shape[1] <= 256:
            unused += [x for x in features.columns if x not in levels]
        unused += [x for x in features.labels if x not in names]
    if not unused:
        return ()
    return (
        f"not used: {', '.join(map(repr, unused))} (the same for all with responses, or"
        " a label of one row each)",
    )


def _fit(data: CrossedResponses, subjects, items) -> CrossedEffects:
    """Effects with subjects as rows; the side with fewer members is the dense one."""
    own, others = (tuple(block.values for block in x) for x in (subjects, items))
    if data.right.shape[0] <= data.right.shape[1]:
        return fit_effects(data, own, others)
    return fit_effects(data.turned, others, own).turned


def _result(effects, known, blocks, observed, level, warnings) -> ColdStart:
    """Tables of a fit."""
    import pyarrow as pa

    location = float(effects.row[observed[0] > 0].mean())
    logit = effects.row[:, None] + effects.column
    deviation = np.sqrt(np.maximum(effects.variance, 0))
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    chance = np.zeros_like(logit)
    for node, weight in zip(nodes, weights, strict=True):
        chance += weight * expit(logit + node * deviation)
    quantile = float(ndtri(0.5 + level / 2))
    tables = []
    sides = ("subject", "ability", 1.0), ("item", "difficulty", -1.0)
    for side, (what, name, sign) in enumerate(sides):
        value = effects.row - location if side == 0 else effects.column + location
        spread = effects.row_variance if side == 0 else effects.column_variance
        error = np.sqrt(spread)
        axis = 1 - side
        noise = np.sqrt(np.sum(chance * (1 - chance), axis=axis)) / logit.shape[axis]
        mean = chance.mean(axis=axis)
        ends = {}
        for end, step in (("lower", -quantile), ("upper", quantile)):
            move = step * error
            moved = expit(logit + (move[:, None] if side == 0 else move)).mean(axis)
            # Of the mean of single responses, given the chances.
            ends[end] = mean + np.sign(step) * np.hypot(moved - mean, step * noise)
        columns = {
            what: known[side].names.astype(str).tolist(),
            name: sign * value,
            f"{name}_se": error,
            "expected": mean,
            **{end: np.clip(x, 0, 1) for end, x in ends.items()},
            "observed": observed[side],
        }
        tables.append(pa.table(columns))
    effect_rows, variance_rows, contrasts = _effects(effects, blocks, quantile)
    return ColdStart(
        tables[1],
        tables[0],
        pa.Table.from_pylist(effect_rows, schema=_effect_schema()),
        pa.Table.from_pylist(variance_rows),
        chance,
        logit,
        deviation,
        level,
        effects.log_likelihood,
        contrasts,
        warnings,
    )


def _effects(effects: CrossedEffects, blocks, quantile: float):
    """Rows of effects and of variances, and effects of labels by column."""
    effect_rows, variance_rows, contrasts = [], [], {}
    parts = (
        ("subject", 1.0, blocks[0], effects.row_blocks, effects.row_variances),
        ("item", -1.0, blocks[1], effects.column_blocks, effects.column_variances),
    )
    for what, sign, own, estimates, variances in parts:
        shares = []
        for block, (mean, covariance), variance in zip(
            own, estimates, variances.blocks, strict=True
        ):
            part = variance * float(np.mean(np.sum(block.values**2, axis=1)))
            shares.append((block.name, part))
            if not block.levels:
                continue
            labels = block.name != "numbers"
            if labels:
                code = np.argmax(block.values, axis=1)
                effect = sign * mean
                contrasts[block.name] = LabelEffects(
                    block.levels, effect, covariance, code, int(what == "item")
                )
            for k, level_name in enumerate(block.levels):
                value, error = sign * float(mean[k]), float(covariance[k, k]) ** 0.5
                effect_rows.append(
                    {
                        "of": what,
                        "feature": block.name if labels else level_name,
                        "level": level_name if labels else None,
                        "effect": value,
                        "effect_se": error,
                        "lower": value - quantile * error,
                        "upper": value + quantile * error,
                    }
                )
        shares.append(("residual", variances.residual))
        whole = sum(part for _, part in shares)
        variance_rows += [
            {"of": what, "part": name, "sd": part**0.5, "share": part / whole}
            for name, part in shares
        ]
    return effect_rows, variance_rows, contrasts


def _effect_schema() -> pa.Schema:
    import pyarrow as pa

    numbers = "effect", "effect_se", "lower", "upper"
    texts = "of", "feature", "level"
    fields = [(x, pa.string()) for x in texts] + [(x, pa.float64()) for x in numbers]
    return pa.schema(fields)
