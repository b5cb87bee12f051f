"""From labels and covariates of a table to the multilevel model that they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.multilevel.model import Hierarchical, Hyperpriors
from irtjax.models.priors import AbstractPrior

#: Fewest responses of a subject to a group at which abilities are sampled as they are.
ENOUGH = 10
#: Standard deviations of covariates for which the priors of their effects, stated per
#: unit of the covariate, are wide and the regression is well conditioned.
LEAST_SPREAD, MOST_SPREAD = 1e-2, 1e3
#: Between the names of a level and of what it is nested in.
NESTED = "/"


class Layout(NamedTuple):
    """A multilevel model and the names of its parts.

    Attributes:
        model: The model.
        groups: `[groups]` names.
        effects: `[effects]` names of the effects on items' coordinates; those of the
            groups, where there are such, come last.
        covariates: `[covariates]` names of the effects on abilities.
        stems: `[items]` what each item measures, where items are shared; else None.
        levels: `[components]` names of the levels, whose effects have a standard
            deviation each.
        clusters: `[clusters]` names of the benchmarks whose items have standard
            deviations of their own.
    """

    model: Hierarchical
    groups: np.ndarray
    effects: np.ndarray
    covariates: np.ndarray
    stems: np.ndarray | None
    levels: np.ndarray
    clusters: np.ndarray


def lay_out(
    table: ResponseTable,
    family: AbstractResponseFamily,
    *,
    grouped: bool,
    levels: Sequence[str] = (),
    shared_items: str | Sequence[str] | np.ndarray | None = None,
    metric_effects: bool = True,
    item_covariates: Mapping[str, np.ndarray] | None = None,
    subject_covariates: Mapping[str, np.ndarray] | np.ndarray | None = None,
    spread_by_benchmark: bool = False,
    priors: Mapping[str, AbstractPrior] | None = None,
    hyperpriors: Hyperpriors | None = None,
    dtype: Any = float,
) -> Layout:
    """The multilevel model of a table.

    Args:
        table: The responses; groups are its benchmarks.
        family: Response family with positive discriminations, or with none.
        grouped: Whether each benchmark has an ability of its own.
        levels: Facets of items whose values have effects on items' coordinates, each
            with a standard deviation of its own; "benchmark" is one of them wherever
            there are several benchmarks. "a/b" is a, and b within a: equal values of
            b under two values of a are two levels.
        shared_items: The facet that names the thing measured, or such a name for each
            item: columns of one thing, one for each group, have the same coordinates.
        metric_effects: For shared items: whether each group shifts the coordinates of
            all its items (LEGO-MM as printed has no such shifts).
        item_covariates: `[items]` numbers by name, with effects on items' coordinates.
            They are taken from their mean, where "all items" stands.
        subject_covariates: `[subjects]` numbers by name, or `[subjects, covariates]`,
            with effects on abilities; taken from their mean too, so that ability 0 is
            that of an average subject.
        spread_by_benchmark: Whether items of each benchmark have standard deviations of
            their own around its mean, b_ij ~ N(mu_j, sigma_j^2) of AIMS 2.3.5; else one
            serves all.
        priors: Priors of named item parameters, in place of learned ones.
        hyperpriors: Priors of what is learned.
        dtype: Floating type.

    Raises:
        ValueError: If a facet is unknown, a parameter is, a covariate does not suit the
            table, or items cannot be shared.

    >>> from irtjax.models.families.logistic import Binary
    >>> table = ResponseTable.from_arrays([[1, 0, 1], [0, 0, 1]])
    >>> layout = lay_out(table, Binary(slopes="unit"), grouped=False)
    >>> layout.effects.tolist(), layout.model.num_groups
    (['all items'], 1)
    """
    if family.has_slope and family.parameters[0].bijection.kind != "positive":
        raise ValueError(
            "multilevel models keep discriminations above 0: use a family with"
            " positive slopes"
        )
    _check_priors(family, priors or {})
    if not isinstance(hyperpriors, Hyperpriors | None):
        raise ValueError(
            f"hyperpriors is a {type(hyperpriors).__name__}: give"
            " irtjax.Hyperpriors(...)"
        )
    benchmarks, of_item = np.unique(np.asarray(table.benchmarks), return_inverse=True)
    names, group, several = benchmarks, of_item, len(benchmarks) > 1
    if not grouped:
        names, group = np.array(["all"]), np.zeros(table.num_items, int)
    facets: dict[str, np.ndarray] = {
        "benchmark": np.asarray(table.benchmarks),
        **{name: np.asarray(labels) for name, labels in table.item_facets.items()},
        "stem": stems_of(table),
    }
    stems, stem = None, np.arange(table.num_items)
    if shared_items is not None:
        stems = _shared(table, facets, shared_items, names, group)
        _, stem = np.unique(stems, return_inverse=True)
    num_stems = int(stem.max()) + 1
    first = np.unique(stem, return_index=True)[1]
    columns, effects, component = [np.ones((num_stems, 1))], ["all items"], [-1]
    chosen = level_labels(facets, levels)
    if several and stems is None:
        chosen = {"benchmark": facets["benchmark"], **chosen}
    for place, (level, labels) in enumerate(chosen.items()):
        _check_within(labels, stem, first, stems, f"level {level!r}")
        values, index = np.unique(labels[first], return_inverse=True)
        columns.append(np.eye(len(values))[index])
        effects += [f"{level}: {value}" for value in values]
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
    if spread_by_benchmark:
        if not several or stems is not None:
            raise ValueError(
                "spread_by_benchmark needs items of two or more benchmarks, each with"
                " items of its own"
            )
        if {parameter.name for parameter in family.parameters} <= set(priors or {}):
            raise ValueError(
                "spread_by_benchmark has nothing to learn: all priors are given"
            )
        clusters, cluster = benchmarks, jnp.asarray(of_item)
    covariates, subject = _subject_design(table, subject_covariates)
    answered = table.num_observed / (table.num_subjects * len(names))
    model = Hierarchical(
        family,
        jnp.asarray(group),
        jnp.asarray(stem),
        jnp.asarray(np.concatenate(columns, axis=1), dtype),
        jnp.asarray(component),
        jnp.asarray(subject, dtype),
        dict(priors or {}),
        Hyperpriors() if hyperpriors is None else hyperpriors,
        cluster=cluster,
        num_clusters=len(clusters),
        num_groups=len(names),
        num_stems=num_stems,
        num_components=len(chosen),
        has_group_effects=shifts,
        # Shared items without shifts identify one common scale of all abilities.
        has_group_scales=len(names) > 1
        and family.has_slope
        and (stems is None or shifts),
        centred=answered >= ENOUGH,
    )
    parts = np.asarray(effects), covariates, stems, np.asarray(list(chosen), str)
    return Layout(model, names, *parts, clusters)


def stems_of(table: ResponseTable) -> np.ndarray:
    """Names of items with the benchmark's taken off: one for all metrics of a thing."""
    if "stem" in table.item_facets:
        return np.asarray(table.item_facets["stem"])
    pairs = zip(table.items.tolist(), table.benchmarks.tolist(), strict=True)
    return np.asarray([item.removeprefix(f"{name}/") for item, name in pairs])


def level_labels(
    facets: Mapping[str, np.ndarray], levels: Sequence[str]
) -> dict[str, np.ndarray]:
    """Labels `[items]` by level, in order; "a/b" gives a, and a and b together.

    Raises:
        ValueError: If there is no such facet.

    >>> facets = {"suite": np.array(["x", "y"]), "task": np.array(["1", "1"])}
    >>> found = level_labels(facets, ["suite/task"])
    >>> list(found), found["suite/task"].tolist()
    (['suite', 'suite/task'], ['x/1', 'y/1'])
    """
    found: dict[str, np.ndarray] = {}
    for level in levels:
        parts = [level] if level in facets else level.split(NESTED)
        lacking = [part for part in parts if part not in facets]
        if lacking:
            raise ValueError(
                f"no facet {lacking[0]!r} of items; there are"
                f" {', '.join(sorted(facets))}"
            )
        labels = [facets[part].astype(str).tolist() for part in parts]
        for depth in range(1, len(parts) + 1):
            rows = zip(*labels[:depth], strict=True)
            joined = np.asarray([NESTED.join(row) for row in rows])
            # An outer level that all items share shifts nothing.
            if depth == len(parts) or len(np.unique(joined)) > 1:
                found.setdefault(NESTED.join(parts[:depth]), joined)
    return found


def _check_priors(
    family: AbstractResponseFamily, priors: Mapping[str, AbstractPrior]
) -> None:
    known = [parameter.name for parameter in family.parameters]
    for name in priors:
        if name not in known:
            raise ValueError(
                f"no parameter {name!r} in this model; it has {', '.join(known)}"
            )


def _shared(
    table: ResponseTable,
    facets: Mapping[str, np.ndarray],
    shared_items: Any,
    names: np.ndarray,
    group: np.ndarray,
) -> np.ndarray:
    """What each item measures, `[items]`; refuses what would share nothing."""
    if isinstance(shared_items, str):
        if shared_items not in facets:
            raise ValueError(
                f"no facet {shared_items!r} of items names what they measure; there are"
                f" {', '.join(sorted(facets))}"
            )
        stems = facets[shared_items].astype(str)
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
    """Numbers that vary, and on a scale that the priors of effects are made for."""
    values = np.asarray(values, float)
    if values.shape != (size,) or not np.isfinite(values).all():
        raise ValueError(
            f"covariate {name!r} needs one finite number for each of the {size:,} {of}"
        )
    spread = float(values.std())
    if spread <= 1e-12 * max(float(np.abs(values).max()), 1e-300):
        raise ValueError(
            f"covariate {name!r} is the same for all {of}: leave it out, nothing can be"
            " learned of it"
        )
    if not LEAST_SPREAD <= spread <= MOST_SPREAD:
        raise ValueError(
            f"covariate {name!r} has a standard deviation of {spread:.3g}: give it in"
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
