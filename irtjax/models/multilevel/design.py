"""The multilevel model that labels and covariates of a table describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.multilevel.model import Hyperpriors, MultilevelModel
from irtjax.models.priors import AbstractPrior

#: Fewest responses of a subject to a group at which abilities are sampled as they are.
ENOUGH = 10
#: Standard deviations of covariates for which priors of effects, stated per unit, are
#: wide and the regression is well conditioned.
LEAST_SD, MOST_SD = 1e-2, 1e3
#: Between the names of a level and of what it is nested in.
NESTED = "/"


class Layout(NamedTuple):
    """A multilevel model and the names of its parts.

    Groups, effects on items' coordinates (those of groups last), covariates of
    subjects, what each item measures (None where items are not shared), facets, and
    the benchmarks whose items have standard deviations of their own.
    """

    model: MultilevelModel
    groups: np.ndarray
    effects: np.ndarray
    covariates: np.ndarray
    stems: np.ndarray | None
    facets: np.ndarray
    clusters: np.ndarray


def lay_out(
    table: ResponseTable,
    family: AbstractResponseFamily,
    *,
    grouped: bool,
    facets: Sequence[str] = (),
    shared_items: str | Sequence[str] | np.ndarray | None = None,
    metric_effects: bool = True,
    item_covariates: Mapping[str, np.ndarray] | None = None,
    subject_covariates: Mapping[str, np.ndarray] | np.ndarray | None = None,
    sd_by_benchmark: bool = False,
    priors: Mapping[str, AbstractPrior] | None = None,
    hyperpriors: Hyperpriors | None = None,
    dtype: Any = float,
) -> Layout:
    """The multilevel model of a table with its benchmarks as groups.

    `irtjax.fit` describes the arguments. `family` has positive discriminations, or
    none. Each benchmark has an ability of its own if `grouped`. The effects of a level
    have a standard deviation; "benchmark" is a facet wherever there are several, and
    "a/b" is a, and b within a. LEGO-MM as printed has no `metric_effects`. Covariates
    are centred: "all items" is the mean, and ability 0 that of an average subject. With
    `sd_by_benchmark`, b_ij ~ N(mu_j, sigma_j^2) of AIMS 2.3.5. `priors` replace
    estimated ones.

    Raises:
        ValueError: If a facet or parameter is unknown, a covariate does not suit the
            table, or items cannot be shared.
    """
    if family.has_slope and family.parameters[0].bijection.kind != "positive":
        raise ValueError(
            "multilevel models keep discriminations above 0: use a family with"
            " positive slopes"
        )
    priors = dict(priors or {})
    known = [parameter.name for parameter in family.parameters]
    for name in priors:
        if name not in known:
            raise ValueError(
                f"no parameter {name!r} in this model; it has {', '.join(known)}"
            )
    if not isinstance(hyperpriors, Hyperpriors | None):
        raise ValueError(
            f"hyperpriors is a {type(hyperpriors).__name__}: give"
            " irtjax.Hyperpriors(...)"
        )
    benchmark = np.asarray(table.benchmarks)
    benchmarks, of_item = np.unique(benchmark, return_inverse=True)
    names, group, several = benchmarks, of_item, len(benchmarks) > 1
    if not grouped:
        names, group = np.array(["all"]), np.zeros(table.num_items, int)
    labels = {name: np.asarray(codes) for name, codes in table.item_facets.items()}
    labels = {"benchmark": benchmark, **labels, "stem": stems_of(table)}
    stems, stem = None, np.arange(table.num_items)
    if shared_items is not None:
        stems = _shared(table, labels, shared_items, names, group)
        _, stem = np.unique(stems, return_inverse=True)
    first = np.unique(stem, return_index=True)[1]
    num_stems = len(first)
    columns, effects, component = [np.ones((num_stems, 1))], ["all items"], [-1]
    chosen = facet_labels(labels, facets)
    if several and stems is None:
        chosen = {"benchmark": labels["benchmark"], **chosen}
    for place, (facet, own) in enumerate(chosen.items()):
        _check_within(own, stem, first, stems, f"facet {facet!r}")
        values, index = np.unique(own[first], return_inverse=True)
        columns.append(np.eye(len(values))[index])
        effects += [f"{facet}: {value}" for value in values]
        component += [place] * len(values)
    for name, values in (item_covariates or {}).items():
        values = _covariate(name, values, table.num_items, "items")
        _check_within(values, stem, first, stems, f"covariate {name!r}")
        columns.append((values[first] - values[first].mean())[:, None])
        effects.append(str(name))
        component.append(-1)
    shifts = stems is not None and metric_effects
    if shifts:
        effects += [f"metric: {name}" for name in names]
    clusters, cluster = np.zeros(0, str), None
    if sd_by_benchmark:
        if not several or stems is not None:
            raise ValueError(
                "sd_by_benchmark needs items of two or more benchmarks, each with"
                " items of its own"
            )
        if set(known) <= set(priors):
            raise ValueError("sd_by_benchmark has no effect: all priors are given")
        clusters, cluster = benchmarks, jnp.asarray(of_item)
    covariates, subject = _subject_design(table, subject_covariates)
    answered = table.num_observed / (table.num_subjects * len(names))
    # Shared items without shifts identify one common scale of all abilities.
    scales = len(names) > 1 and family.has_slope and (stems is None or shifts)
    model = MultilevelModel(
        family,
        jnp.asarray(group),
        jnp.asarray(stem),
        jnp.asarray(np.concatenate(columns, axis=1), dtype),
        jnp.asarray(component),
        jnp.asarray(subject, dtype),
        priors,
        hyperpriors or Hyperpriors(),
        cluster=cluster,
        num_clusters=len(clusters),
        num_groups=len(names),
        num_stems=num_stems,
        num_components=len(chosen),
        has_group_effects=shifts,
        has_group_scales=scales,
        centred=answered >= ENOUGH,
    )
    parts = np.asarray(effects), covariates, stems, np.asarray(list(chosen), str)
    return Layout(model, names, *parts, clusters)


def stems_of(table: ResponseTable) -> np.ndarray:
    """Names of items without the benchmark's: the same for all metrics of a thing."""
    if "stem" in table.item_facets:
        return np.asarray(table.item_facets["stem"])
    pairs = zip(table.items.tolist(), table.benchmarks.tolist(), strict=True)
    return np.asarray([item.removeprefix(f"{name}/") for item, name in pairs])


def facet_labels(
    known: Mapping[str, np.ndarray], facets: Sequence[str]
) -> dict[str, np.ndarray]:
    """Labels `[items]` by facet, in order; "a/b" gives a, and a and b together."""
    found: dict[str, np.ndarray] = {}
    for facet in facets:
        parts = [facet] if facet in known else facet.split(NESTED)
        lacking = [part for part in parts if part not in known]
        if lacking:
            raise ValueError(
                f"no facet {lacking[0]!r} of items; there are"
                f" {', '.join(sorted(known))}"
            )
        labels = [known[part].astype(str).tolist() for part in parts]
        for depth in range(1, len(parts) + 1):
            rows = zip(*labels[:depth], strict=True)
            joined = np.asarray([NESTED.join(row) for row in rows])
            # An outer facet with one label for all items shifts nothing.
            if depth == len(parts) or len(np.unique(joined)) > 1:
                found.setdefault(NESTED.join(parts[:depth]), joined)
    return found


def _shared(
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


def _subject_design(
    table: ResponseTable, covariates: Mapping[str, np.ndarray] | Any
) -> tuple[np.ndarray, np.ndarray]:
    """Names of the covariates of subjects, and their deviations from their means."""
    size = table.num_subjects
    if covariates is None:
        return np.zeros(0, str), np.zeros((size, 0))
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
    return np.asarray(list(covariates), str), design - design.mean(axis=0)
