"""Parts of a multilevel model that labels and covariates of a table describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.models.multilevel.model import MultilevelModel

#: Standard deviations of covariates for which priors of effects, stated per unit, are
#: wide and the regression is well conditioned.
LEAST_SD, MOST_SD = 1e-2, 1e3
#: Name of the component of the effects of features.
FEATURES = "features"
#: Between the names of a facet and of what it is nested in.
NESTED = "/"


class Layout(NamedTuple):
    """A multilevel model and the names of its parts.

    Groups, effects on items' coordinates (those of groups last), covariates of
    subjects with their means, what each item measures (None where items are not
    shared), facets, and the benchmarks whose items have standard deviations of their
    own.
    """

    model: MultilevelModel
    groups: np.ndarray
    effects: np.ndarray
    covariates: np.ndarray
    covariate_means: np.ndarray
    stems: np.ndarray | None
    facets: np.ndarray
    clusters: np.ndarray


def item_design(
    facets: Mapping[str, np.ndarray],
    covariates: Mapping[str, np.ndarray],
    stem: np.ndarray,
    stems: np.ndarray | None,
    features: Mapping[str, np.ndarray] | None = None,
) -> tuple[np.ndarray, list[str], list[int]]:
    """The design D, names of its columns, and the component of each (-1 for none).

    A mean, dummies of facets, centred covariates, and standardised features, which are
    one component after the facets: a row for each stem. `stem` is the stem of each
    item; `stems` its name where items are shared.
    """
    first = np.unique(stem, return_index=True)[1]
    columns, effects, component = [np.ones((len(first), 1))], ["all items"], [-1]
    for place, (facet, own) in enumerate(facets.items()):
        _check_within(own, stem, first, stems, f"facet {facet!r}")
        values, index = np.unique(own[first], return_inverse=True)
        columns.append(np.eye(len(values))[index])
        effects += [f"{facet}: {value}" for value in values]
        component += [place] * len(values)
    for name, values in covariates.items():
        values = _covariate(name, values, len(stem), "items")
        _check_within(values, stem, first, stems, f"covariate {name!r}")
        columns.append((values[first] - values[first].mean())[:, None])
        effects.append(str(name))
        component.append(-1)
    for name, values in (features or {}).items():
        _check_within(values, stem, first, stems, f"feature {name!r}")
        own = values[first]
        columns.append(((own - own.mean()) / own.std())[:, None])
        effects.append(f"{FEATURES}: {name}")
        component.append(len(facets))
    return np.concatenate(columns, axis=1), effects, component


def item_features(features: Any, size: int) -> dict[str, np.ndarray]:
    """Features of items by name, each `[items]` finite and not the same for all.

    Raises:
        ValueError: If shapes or values do not suit, or there is one feature alone.
    """
    if features is None:
        return {}
    if not isinstance(features, Mapping):
        array = np.asarray(features, float)
        if array.ndim != 2 or len(array) != size:
            raise ValueError(
                f"item_features has shape {array.shape}: give one row for each of the"
                f" {size:,} items"
            )
        features = {str(k + 1): column for k, column in enumerate(array.T)}
    by_name = {str(k): np.asarray(v, float) for k, v in features.items()}
    for name, values in by_name.items():
        if values.shape != (size,) or not np.isfinite(values).all():
            raise ValueError(
                f"item_features: {name!r} needs one finite number for each of the"
                f" {size:,} items"
            )
        if np.ptp(values) == 0:
            raise ValueError(
                f"item_features: {name!r} is the same for all items: leave it out"
            )
    if len(by_name) == 1:
        raise ValueError(
            "item_features has 1 feature, whose effect has no variance to estimate:"
            " give it as a covariate (item_covariates)"
        )
    return by_name


def stems_of(table: ResponseTable) -> np.ndarray:
    """Names of items without the benchmark's: the same for all metrics of a thing."""
    if "stem" in table.item_facets:
        return np.asarray(table.item_facets["stem"])
    pairs = zip(table.items.tolist(), table.benchmarks.tolist(), strict=True)
    return np.asarray([item.removeprefix(f"{name}/") for item, name in pairs])


def facet_labels(
    by_facet: Mapping[str, np.ndarray], facets: Sequence[str]
) -> dict[str, np.ndarray]:
    """Labels `[items]` by facet, in order; "a/b" gives a, and a and b together."""
    nested: dict[str, np.ndarray] = {}
    for facet in facets:
        parts = [facet] if facet in by_facet else facet.split(NESTED)
        lacking = [part for part in parts if part not in by_facet]
        if lacking:
            raise ValueError(
                f"no facet {lacking[0]!r} of items; there are"
                f" {', '.join(sorted(by_facet))}"
            )
        labels = [by_facet[part].astype(str).tolist() for part in parts]
        for depth in range(1, len(parts) + 1):
            rows = zip(*labels[:depth], strict=True)
            joined = np.asarray([NESTED.join(row) for row in rows])
            # An outer facet with one label for all items shifts nothing.
            if depth == len(parts) or len(np.unique(joined)) > 1:
                nested.setdefault(NESTED.join(parts[:depth]), joined)
    return nested


def shared_stems(
    table: ResponseTable,
    labels: Mapping[str, np.ndarray],
    shared_items: Any,
    names: np.ndarray,
    group: np.ndarray,
) -> np.ndarray:
    """What each item measures, `[items]`, checked."""
    if isinstance(shared_items, str):
        if shared_items not in labels:
            raise ValueError(
                f"no facet {shared_items!r} of items names what they measure; there are"
                f" {', '.join(sorted(labels))}"
            )
        stems = labels[shared_items].astype(str)
    else:
        stems = np.asarray(shared_items).astype(str)
        if stems.shape != (table.num_items,):
            raise ValueError(
                f"shared_items has {stems.size:,} names, not one for each of the"
                f" {table.num_items:,} items"
            )
    pairs, count = np.unique(
        np.stack([stems, names[group].astype(str)]), axis=1, return_counts=True
    )
    if (count > 1).any():
        thing, metric = pairs[:, int(np.argmax(count > 1))].tolist()
        raise ValueError(
            f"{thing!r} has two items of {metric!r}: shared items need one column for"
            " each thing measured and metric"
        )
    if len(np.unique(stems)) == len(stems):
        raise ValueError(
            "no two items measure the same thing: name the facet in which the metrics"
            " of a thing agree, such as 'stem'"
        )
    return stems


def _check_within(values, stem, first, stems, what: str) -> None:
    """Refuses values that differ between the columns of one shared item."""
    wrong = values != values[first][stem]
    if wrong.any():
        thing = str(stems[int(np.argmax(wrong))])
        raise ValueError(
            f"{what} differs between the metrics of {thing!r}: shared items have one"
            " value for all metrics"
        )


def _covariate(name: str, values: Any, size: int, of: str) -> np.ndarray:
    """Numbers that vary, on a scale for which the priors of effects are made."""
    values = np.asarray(values, float)
    if values.shape != (size,) or not np.isfinite(values).all():
        raise ValueError(
            f"covariate {name!r} needs one finite number for each of the {size:,} {of}"
        )
    sd = float(values.std())
    if sd <= 1e-12 * max(float(np.abs(values).max()), 1e-300):
        raise ValueError(
            f"covariate {name!r} is the same for all {of}: leave it out, its effect"
            " cannot be estimated"
        )
    if not LEAST_SD <= sd <= MOST_SD:
        raise ValueError(
            f"covariate {name!r} has a standard deviation of {sd:.3g}: give it in"
            " other units, in which it is about 1 (effects have priors per unit)"
        )
    return values


def subject_design(
    table: ResponseTable, covariates: Mapping[str, np.ndarray] | Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Names of the covariates of subjects, their means, and deviations from these."""
    size = table.num_subjects
    if covariates is None:
        return np.zeros(0, str), np.zeros(0), np.zeros((size, 0))
    if not isinstance(covariates, Mapping):
        array = np.asarray(covariates, float)
        if array.ndim not in (1, 2) or array.shape[0] != size:
            raise ValueError(
                f"subject_covariates has shape {array.shape}: give one row for each of"
                f" the {size:,} subjects"
            )
        rows = array.reshape(size, -1).T
        covariates = {f"covariate {k + 1}": row for k, row in enumerate(rows)}
    columns = [_covariate(str(k), v, size, "subjects") for k, v in covariates.items()]
    design = np.stack(columns, axis=1) if columns else np.zeros((size, 0))
    mean = design.mean(axis=0)
    return np.asarray(list(covariates), str), mean, design - mean
