r"""Similarity of items by features against similarity by responses.

Items with features e (embeddings of their texts, judged properties) have the cosine
:math:`\cos(e_j, e_k)`. Their responses correlate because both depend on ability, and
because of what only the two share. So there are two correlations: the tetrachoric one,
and that of residuals of responses regressed on the mean response of the subject and its
square. Both have a null: tables simulated from a model of one ability that fits the
responses, in which features matter for nothing but difficulty. With few subjects a
tetrachoric correlation is near 1 or -1 by chance.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from irtjax._types import RandomKey
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.numerics.seeds import seed_of
from irtjax.validity.filtering import BAND, TABLES, simulated_chances
from irtjax.validity.tetrachoric import tetrachoric_of_counts

if TYPE_CHECKING:
    import pyarrow as pa

#: Pairs of items at the most, and bins of cosines with as many pairs each.
MOST_PAIRS, BINS = 20_000, 10
#: Pairs of a call of one program.
BATCH = 2048


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SemanticSpace(HasTable):
    """Correlations of responses by the similarity of items' features.

    Attributes:
        table: A row for each bin of cosines, and one of `all` pairs: `cosine_from`,
            `cosine_to`, `pairs`, mean `tetrachoric` with `tetrachoric_lower` and
            `tetrachoric_upper` (band of simulated tables), mean `residual` correlation
            with its band.
        pairs: A row for each pair of items, at most 20,000 of them at random:
            `first`, `second`, `cosine`, `tetrachoric` and `residual` correlation.
        correlation: Of the cosines with the tetrachoric and with the residual
            correlations: value, and band of simulated tables, by name.
        subjects: Number of subjects.
        sentence: The result in words.
    """

    title = "Semantic and behavioural space"

    table: pa.Table
    pairs: pa.Table
    correlation: dict[str, tuple[float, float, float]]
    subjects: int
    sentence: str


def semantic_space(
    data: ResponseTable | Any,
    features: np.ndarray,
    *,
    tables: int = TABLES,
    key: RandomKey = 0,
) -> SemanticSpace:
    """Compares the similarity of items' features with that of their responses.

    Args:
        data: Right and wrong responses without missing ones: a `ResponseTable`, or what
            `irtjax.read` takes.
        features: `[items, features]` numbers; columns are standardised.
        tables: Simulated tables of the null; 0 for none.
        key: Seed of sampled pairs and of simulated tables.

    Returns:
        Mean correlations by bin of cosines, and their correlations with the cosines.

    Raises:
        ValueError: Responses are not right or wrong or some are missing, or features
            are not numbers of each item.

    >>> import irtjax
    >>> rng = np.random.default_rng(0)
    >>> logit = rng.normal(size=(50, 1)) - rng.normal(size=20)
    >>> table = irtjax.ResponseTable.from_arrays(1 * (rng.random(logit.shape) < logit))
    >>> space = semantic_space(table, rng.normal(size=(20, 3)))  # doctest: +SKIP
    >>> space.table.num_rows  # doctest: +SKIP
    11
    """
    import pyarrow as pa

    if not isinstance(data, ResponseTable):
        from irtjax.data import read

        data = read(data)
    if data.kind != "binary" or data.num_observed < data.num_subjects * data.num_items:
        raise ValueError("semantic_space needs right and wrong responses, none missing")
    features = np.asarray(features, float)
    if features.ndim != 2 or len(features) != data.num_items:
        raise ValueError(
            f"features of shape {features.shape}: give a row for each of the"
            f" {data.num_items:,} items"
        )
    if not np.isfinite(features).all():
        raise ValueError("features have values that are no finite numbers")
    mean = data.item_accuracy()
    varied = (mean > 0) & (mean < 1)
    table, features = data.select(items=varied), features[varied]
    rng = np.random.default_rng(seed_of(key))
    pairs = _pairs(table.num_items, rng)
    cosine = _cosines(features, pairs)
    edges = np.quantile(cosine, np.linspace(0, 1, BINS + 1))
    bins = np.clip(np.searchsorted(edges, cosine, "right") - 1, 0, BINS - 1)
    observed = _correlations(np.asarray(table.values, float), pairs)
    own = _summary(observed, cosine, bins)
    null = np.array(
        [
            _summary(
                _correlations((rng.random(p.shape) < p) * 1.0, pairs), cosine, bins
            )
            for p in simulated_chances(table, rng, tables)
        ]
    )
    lower, upper = np.full((2, *own.shape), np.nan)
    if tables:
        lower, upper = np.quantile(null, [(1 - BAND) / 2, (1 + BAND) / 2], axis=0)
    columns = {
        "cosine_from": [*edges[:-1], edges[0]],
        "cosine_to": [*edges[1:], edges[-1]],
        "pairs": [*np.bincount(bins, minlength=BINS), len(cosine)],
    }
    correlation = {}
    for k, name in enumerate(("tetrachoric", "residual")):
        columns[name] = own[k, :-1]
        columns[f"{name}_lower"] = lower[k, :-1]
        columns[f"{name}_upper"] = upper[k, :-1]
        correlation[name] = tuple(float(x[k, -1]) for x in (own, lower, upper))
    value, low, high = correlation["residual"]
    place = "above" if value > high else "below" if value < low else "within"
    band = f", {place} the band of one ability, {low:.3f} to {high:.3f}"
    sentence = (
        f"Cosines of features correlate {value:.3f} with residual correlations of"
        f" responses{band if tables else ''} ({table.num_subjects:,} subjects)."
    )
    names = table.items.astype(str)
    each = {
        "first": pa.array(names[pairs[0]].tolist(), pa.string()),
        "second": pa.array(names[pairs[1]].tolist(), pa.string()),
        "cosine": cosine,
        "tetrachoric": observed[0],
        "residual": observed[1],
    }
    return SemanticSpace(
        pa.table(columns), pa.table(each), correlation, table.num_subjects, sentence
    )


def _pairs(items: int, rng: np.random.Generator) -> np.ndarray:
    """Different pairs of items, `[2, pairs]`: all, or a sample."""
    first, second = np.triu_indices(items, 1)
    if len(first) <= MOST_PAIRS:
        return np.stack([first, second])
    chosen = rng.choice(len(first), MOST_PAIRS, replace=False)
    return np.stack([first[chosen], second[chosen]])


def _cosines(features: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    sd = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(sd > 0, sd, 1)
    scaled /= np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1e-12)
    first, second = pairs
    return np.sum(scaled[first] * scaled[second], axis=1)


def _correlations(values: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Tetrachoric and residual correlation of each pair, `[2, pairs]`."""
    first, second = pairs
    score = values.mean(axis=1)
    base = np.linalg.qr(np.stack([np.ones_like(score), score, score**2], axis=1))[0]
    rest = values - base @ (base.T @ values)
    rest /= np.maximum(np.linalg.norm(rest, axis=0), 1e-12)
    residual = np.sum(rest[:, first] * rest[:, second], axis=0)
    return np.stack([_tetrachorics(values, pairs), residual])


def _summary(correlations: np.ndarray, cosine, bins) -> np.ndarray:
    """Means by bin, of all, and correlation with cosines; NaN pairs are left out."""
    rows = []
    for correlation in correlations:
        valid = np.isfinite(correlation)
        own, place = correlation[valid], bins[valid]
        number = np.maximum(np.bincount(place, minlength=BINS), 1)
        means = np.bincount(place, own, minlength=BINS) / number
        whole = np.corrcoef(cosine[valid], own)[0, 1]
        rows.append([*means, own.mean(), whole])
    return np.asarray(rows)


def _tetrachorics(values: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Of each pair, in batches of one shape."""
    first, second = pairs
    total = values.sum(axis=0)
    joint = np.sum(values[:, first] * values[:, second], axis=0)
    counts = np.stack(
        [joint, total[first], total[second], np.full_like(joint, len(values))]
    )
    size = len(first)
    counts = np.pad(counts, [(0, 0), (0, -size % BATCH)], mode="edge")
    parts = [
        np.asarray(tetrachoric_of_counts(*map(jnp.asarray, counts[:, a : a + BATCH])))
        for a in range(0, counts.shape[1], BATCH)
    ]
    return np.concatenate(parts)[:size]
