"""Models and priors compared by responses that are left out.

Each fold of the responses is left out in turn, models are fitted to the others, and
predict those left out by posterior means of chances. Models differ on the same folds,
so differences have smaller errors than scores.

The simplest model within one standard error of the best is chosen (Breiman, Friedman,
Olshen and Stone 1984, Classification and Regression Trees): what is more complex must
predict better by more than noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax._types import RandomKey
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.estimators.folds import Losses, losses
from irtjax.numerics.precision import full_precision
from irtjax.numerics.progress import watched
from irtjax.prediction import splits
from irtjax.prediction.accuracy import NEAREST, area_under_curve
from irtjax.prediction.generalise import checked_table, labelled
from irtjax.prediction.held_out import OnNodes, predictor
from irtjax.prediction.splits import FOLDS, Split
from irtjax.prediction.stacking import cells_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Scores of a fold, in the order of tables.
SCORES = ("log_score", "auc", "brier")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CrossValidation(HasTable):
    """Models and priors compared by responses left out.

    Attributes:
        table: A row for each model and prior, in their order: `model`, `prior_scale`
            (None without scales), `log_score` (mean log-likelihood of a response in
            nats), `auc` and `brier` with standard errors over folds (`_se`), `loss` of
            log score against the best with `loss_se`, paired over folds, and whether it
            is `best` and `chosen`.
        scores: A row for each fold and model: `fold`, `model`, `prior_scale`, scores,
            number of `responses`.
        best: Label of the model with the highest log score.
        chosen: Label of the first model within one standard error of the best.
        sentence: The choice in words.
        warnings: Reasons to doubt it.
    """

    title = "Models compared by responses left out"
    columns = ("model", "prior_scale", "log_score", "log_score_se", "loss", "loss_se")
    columns += ("auc", "brier")

    table: pa.Table
    scores: pa.Table
    best: str
    chosen: str
    sentence: str
    warnings: tuple[str, ...] = ()


@full_precision
def cross_validate(
    data: ResponseTable | Any,
    models: Sequence[str] | Mapping[str, Any] = ("1pl", "2pl"),
    *,
    prior_scales: Sequence[float] | None = None,
    scheme: str = "entry",
    folds: int | np.ndarray = FOLDS,
    key: RandomKey = 0,
    progress: Callable[[str], None] | None = None,
) -> CrossValidation:
    """Compares models and priors by how well they predict responses left out.

    Args:
        data: A `ResponseTable` of right and wrong responses, or counts of right ones;
            or what `irtjax.read` takes.
        models: Models from the simplest to the most complex, as for
            `irtjax.generalise`.
        prior_scales: Factors of the standard deviations of item priors, each of which
            is tried; None for the priors as they are. Only for models that `em`
            estimates on nodes.
        scheme: What is left out: "entry" (responses), "rows" (subjects) or "columns"
            (items), of which 30 % of the responses train.
        folds: Number of folds, or `[subjects, items]` the fold of each response.
        key: Seed of the folds.
        progress: Called with what is being done.

    Returns:
        The comparison.

    Raises:
        ValueError: If responses are not right or wrong, a model is unknown, scales are
            not positive or the model has no priors to scale, or a fold has no response.

    >>> table = ResponseTable.from_arrays(np.tri(20))
    >>> share = lambda part: np.full(part.values.shape, part.values.mean())
    >>> even = lambda part: np.full(part.values.shape, 0.5)
    >>> cross_validate(table, {"even": even, "mean": share}).chosen
    'even'
    """
    table = checked_table(data, 0.95)
    parts = splits.cross_folds(table, scheme, folds, key=key)
    right, count = cells_of(table)
    scales = _ascending(prior_scales)
    report = progress or (lambda text: None)
    labels: list[tuple[str, float | None]] = []
    scores: list[np.ndarray] = []
    for label, (model, settings) in watched([*labelled(models).items()], "model"):
        made = predictor(table, model, settings)
        if prior_scales is not None and not isinstance(made, OnNodes):
            raise ValueError(
                f"prior scales are of models that em estimates, and {label!r} is not"
                " one: leave the scales out, or give method='em'"
            )
        of_folds = []
        for number, part in enumerate(watched(parts, "fold")):
            report(f"{label}, fold {number + 1} of {len(parts)}")
            of_folds.append(_scores_of(made, scales, part, right, count))
        scores.append(np.array(of_folds))
        labels += [(label, scale) for scale in scales]
    every = np.concatenate(scores, axis=1)
    counts = np.array([(count * part.test).sum() for part in parts])
    return _result(labels, every, counts)


def _scores_of(
    made: Any, scales: list[float | None], part: Split, right, count
) -> list[list[float]]:
    """`[scales, scores]` of one fold, each scale beginning at the fit of the last."""
    start, rows = None, []
    for scale in scales:
        model = made if scale is None else made.scaled(scale)
        chance, start = model.joint(part.train, start)
        if made is not model:
            # The nodes that resolve the posteriors, once they are known.
            made.grid = model.grid
        of_test = chance[part.test], right[part.test], count[part.test]
        rows.append(_fold_scores(*of_test))
    return rows


def _fold_scores(chance: np.ndarray, right: np.ndarray, count: np.ndarray):
    """The scores of one fold."""
    wrong, total = count - right, count.sum()
    near = np.clip(chance, NEAREST, 1 - NEAREST)
    log_score = (right @ np.log(near) + wrong @ np.log1p(-near)) / total
    brier = (right @ (1 - chance) ** 2 + wrong @ chance**2) / total
    return [log_score, area_under_curve(right, wrong, chance), brier]


def _ascending(prior_scales: Sequence[float] | None) -> list[float | None]:
    """The scales from the strongest prior on; [None] without any."""
    if prior_scales is None:
        return [None]
    scales = sorted({float(x) for x in prior_scales})
    if not scales or not all(0 < x < np.inf for x in scales):
        raise ValueError(
            f"prior scales {list(prior_scales)} are not positive numbers, such as"
            " [0.5, 1, 2]"
        )
    return [*scales]


def _result(
    labels: list[tuple[str, float | None]], scores: np.ndarray, counts: np.ndarray
) -> CrossValidation:
    """The comparison from `[folds, models, scores]`."""
    import pyarrow as pa

    number = len(scores)
    compared = losses(scores[..., 0])
    mean = scores.mean(axis=0)
    error = scores.std(axis=0, ddof=1) / number**0.5
    columns: dict[str, Any] = {
        "model": [label for label, _ in labels],
        "prior_scale": pa.array([scale for _, scale in labels], pa.float64()),
    }
    for k, name in enumerate(SCORES):
        columns |= {name: mean[:, k], f"{name}_se": error[:, k]}
    columns |= {"loss": compared.loss, "loss_se": compared.error}
    at = np.arange(len(labels))
    columns |= {"best": at == compared.best, "chosen": at == compared.chosen}
    of_folds = [
        {
            "fold": fold + 1,
            "model": label,
            "prior_scale": scale,
            **dict(zip(SCORES, scores[fold, k].tolist(), strict=True)),
            "responses": int(counts[fold]),
        }
        for fold in range(number)
        for k, (label, scale) in enumerate(labels)
    ]
    words = [_words(*label) for label in labels]
    return CrossValidation(
        pa.table(columns),
        pa.Table.from_pylist(of_folds),
        words[compared.best],
        words[compared.chosen],
        _sentence(words, compared),
        _edges(labels, compared.best),
    )


def _words(label: str, scale: float | None) -> str:
    """A model with its prior in words."""
    return label if scale is None else f"{label} with priors {scale:g} times as wide"


def _sentence(words: list[str], compared: Losses) -> str:
    """The choice in words."""
    best, chosen = compared.best, compared.chosen
    if chosen == best:
        rest = [k for k in range(len(words)) if k != best]
        if not rest:
            return f"Only {words[best]} was compared."
        second = min(rest, key=lambda k: compared.loss[k])
        return (
            f"Use {words[best]}: it predicts responses left out best, by"
            f" {compared.loss[second]:.4f} nats a response (standard error"
            f" {compared.error[second]:.4f}) before {words[second]}."
        )
    return (
        f"Use {words[chosen]}: {words[best]} predicts responses left out better by"
        f" {compared.loss[chosen]:.4f} nats a response, within one standard error"
        f" ({compared.error[chosen]:.4f})."
    )


def _edges(labels: list[tuple[str, float | None]], best: int) -> tuple[str, ...]:
    """A warning where the best scale is the smallest or the largest one."""
    label, scale = labels[best]
    scales = [x for name, x in labels if name == label and x is not None]
    if scale is None or len(scales) < 2 or scale not in (scales[0], scales[-1]):
        return ()
    return (
        f"the best prior scale of {label}, {scale:g}, is at the end of those tried"
        f" ({scales[0]:g} to {scales[-1]:g}): try others",
    )
