"""Multilevel models as `irtjax.fit` takes them: frozen records of their settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.model import Model
from irtjax.models.multilevel.design import (
    FEATURES,
    NESTED,
    Layout,
    facet_labels,
    item_design,
    item_features,
    shared_stems,
    stems_of,
    subject_design,
)
from irtjax.models.multilevel.model import Hyperpriors, MultilevelModel
from irtjax.models.priors import AbstractPrior

#: Fewest responses of a subject to a group at which abilities are sampled as they are.
ENOUGH = 10


@dataclasses.dataclass(frozen=True)
class AbstractMultilevel:
    """A model of items nested in benchmarks or metrics, with its settings as fields.

    Fields are explained where `irtjax.fit` takes them by name, in
    `irtjax.fitting.settings.Settings`; `item_model` may also be a `Model` with positive
    slopes, and `priors` replace estimated ones by parameter name ("weak" for none).

    Raises:
        ValueError: If `priors` is neither.
    """

    name: ClassVar[str]
    #: Whether each benchmark or metric has an ability of its own.
    grouped: ClassVar[bool] = False
    #: Whether items can share parameters.
    shares: ClassVar[bool] = False

    item_model: Model | str | None = None
    facets: Sequence[str] | Mapping[str, np.ndarray] = ()
    shared_items: str | Sequence[str] | np.ndarray | None = None
    metric_effects: bool = True
    sd_by_benchmark: bool = False
    item_covariates: Mapping[str, np.ndarray] | None = None
    item_features: Mapping[str, np.ndarray] | np.ndarray | None = None
    subject_covariates: Mapping[str, np.ndarray] | np.ndarray | None = None
    hyperpriors: Hyperpriors | None = None
    priors: Mapping[str, AbstractPrior] | str | None = "weak"

    def __post_init__(self):
        if self.priors != "weak" and not isinstance(self.priors, Mapping):
            raise ValueError(
                "multilevel models estimate the priors of items: omit priors, or name"
                " those to fix"
            )

    @property
    def all_facets(self) -> tuple[str, ...]:
        """Names of the facets, with "stem" where items may be shared, but are not."""
        facets = tuple(self.facets)
        stem = self.shares and self.shared_items is None and "stem" not in facets
        return ("stem", *facets) if stem else facets

    @property
    def given_priors(self) -> dict[str, AbstractPrior]:
        """The priors that are not learned."""
        return dict(self.priors) if isinstance(self.priors, Mapping) else {}

    def with_facets(self, table: ResponseTable) -> ResponseTable:
        """The table with labels of facets that were given for each item."""
        if not isinstance(self.facets, Mapping):
            return table
        # The labels of "benchmark/domain" are those of the domain.
        facets = {
            name.rsplit(NESTED)[-1]: np.asarray(labels).astype(str)
            for name, labels in self.facets.items()
        }
        return table.replace(item_facets={**table.item_facets, **facets})

    def lay_out(
        self, table: ResponseTable, family: AbstractResponseFamily, dtype=float, name=""
    ) -> Layout:
        """The model of arrays for the labels of a table; `name` is for messages.

        `family` has positive discriminations, or none. "benchmark" is a facet wherever
        there are several. Covariates are centred: "all items" is the mean, and ability
        0 that of an average subject. With `sd_by_benchmark`, b_ij ~ N(mu_j, sigma_j^2)
        of AIMS 2.3.5.
        """
        benchmark = np.asarray(table.benchmarks)
        benchmarks, of_item = np.unique(benchmark, return_inverse=True)
        self._check(family, benchmarks.tolist(), name or self.name)
        names, group, several = benchmarks, of_item, len(benchmarks) > 1
        if not self.grouped:
            names, group = np.array(["all"]), np.zeros(table.num_items, int)
        labels = {k: np.asarray(codes) for k, codes in table.item_facets.items()}
        labels = {"benchmark": benchmark, **labels, "stem": stems_of(table)}
        stems, stem = None, np.arange(table.num_items)
        if self.shared_items is not None:
            stems = shared_stems(table, labels, self.shared_items, names, group)
            _, stem = np.unique(stems, return_inverse=True)
        facets = facet_labels(labels, self.all_facets)
        if several and stems is None:
            facets = {"benchmark": labels["benchmark"], **facets}
        by_name = self.item_covariates or {}
        features = item_features(self.item_features, table.num_items)
        design, effects, component = item_design(facets, by_name, stem, stems, features)
        components = [*facets, *([FEATURES] if features else [])]
        shifts = stems is not None and self.metric_effects
        if shifts:
            effects += [f"metric: {name}" for name in names]
        clusters, cluster = np.zeros(0, str), None
        if self.sd_by_benchmark:
            if not several or stems is not None:
                raise ValueError(
                    "sd_by_benchmark needs items of two or more benchmarks, each with"
                    " items of its own"
                )
            if {p.name for p in family.parameters} <= self.given_priors.keys():
                raise ValueError("sd_by_benchmark has no effect: all priors are given")
            clusters, cluster = benchmarks, jnp.asarray(of_item)
        covariates, means, subject = subject_design(table, self.subject_covariates)
        answered = table.num_observed / (table.num_subjects * len(names))
        # Shared items without shifts identify one common scale of all abilities.
        scales = len(names) > 1 and family.has_slope and (stems is None or shifts)
        model = MultilevelModel(
            family,
            # `asarray` of whole numbers compiles a program for each shape.
            jax.device_put(np.asarray(group)),
            jax.device_put(np.asarray(stem)),
            jnp.asarray(design, dtype),
            jax.device_put(np.asarray(component)),
            jnp.asarray(subject, dtype),
            self.given_priors,
            self.hyperpriors or Hyperpriors(),
            cluster=cluster,
            num_clusters=len(clusters),
            num_groups=len(names),
            num_stems=len(design),
            num_components=len(components),
            has_group_effects=shifts,
            has_group_scales=scales,
            centred=answered >= ENOUGH,
        )
        return Layout(
            model,
            names,
            np.asarray(effects),
            covariates,
            means,
            stems,
            np.asarray(components, str),
            clusters,
        )

    def _check(
        self, family: AbstractResponseFamily, benchmarks: list[str], name: str
    ) -> None:
        """Refuses settings that do not suit each other, the family or the table."""
        if self.grouped and len(benchmarks) < 2:
            raise ValueError(
                f"a {name} model needs items of two or more benchmarks or metrics, not"
                f" of {benchmarks[0]!r} alone: name their column with benchmark= when"
                " reading, read all metrics of a log with metric='all', or use the"
                " model 'hierarchical'"
            )
        if self.shared_items is None and not self.metric_effects:
            raise ValueError(
                "metric_effects=False requires shared_items: metrics that share nothing"
                " have all parameters of their own"
            )
        if self.shared_items is not None and not self.shares:
            raise ValueError(
                f"shared_items requires the model multimetric, not {name}: it names"
                " what several metrics measure"
            )
        if family.has_slope and family.parameters[0].bijection.kind != "positive":
            raise ValueError(
                "multilevel models keep discriminations above 0: use a family with"
                " positive slopes"
            )
        parameters = [parameter.name for parameter in family.parameters]
        for prior in self.given_priors:
            if prior not in parameters:
                raise ValueError(
                    f"no parameter {prior!r} in this model; it has"
                    f" {', '.join(parameters)}"
                )
        if not isinstance(self.hyperpriors, Hyperpriors | None):
            raise ValueError(
                f"hyperpriors is a {type(self.hyperpriors).__name__}: give"
                " irtjax.Hyperpriors(...)"
            )

    def record(self, layout: Layout) -> dict[str, Any]:
        """Settings for the record of a fit, some only where they were given."""
        settings: dict[str, Any] = {
            "priors": {name: repr(prior) for name, prior in self.given_priors.items()},
            "facets": list(self.all_facets),
            "item_covariates": sorted(self.item_covariates or {}),
            "subject_covariates": layout.covariates.tolist(),
        }
        mark = f"{FEATURES}: "
        features = [x for x in layout.effects.tolist() if x.startswith(mark)]
        if self.item_features is not None:
            settings["item_features"] = [x.removeprefix(mark) for x in features]
        shared = self.shared_items
        if shared is not None:
            settings["shared_items"] = shared if isinstance(shared, str) else "given"
            settings["metric_effects"] = self.metric_effects
        if self.sd_by_benchmark:
            settings["sd_by_benchmark"] = True
        if self.hyperpriors is not None:
            scales = vars(self.hyperpriors).items()
            settings["hyperpriors"] = {name: float(value) for name, value in scales}
        return settings


class MultiBenchmark(AbstractMultilevel):
    """An ability for each benchmark in addition to the general one.

    The settings are those of `AbstractMultilevel`.

    >>> MultiBenchmark(item_model="rasch", facets=("domain",)).all_facets
    ('domain',)
    """

    name: ClassVar[str] = "multibenchmark"
    grouped: ClassVar[bool] = True


class MultiMetric(AbstractMultilevel):
    """An ability for each metric in addition to the general one.

    What is measured is a facet, "stem", unless metrics share its parameters
    (`shared_items`). The settings are those of `AbstractMultilevel`.

    >>> MultiMetric().all_facets, MultiMetric(shared_items="stem").all_facets
    (('stem',), ())
    """

    name: ClassVar[str] = "multimetric"
    grouped: ClassVar[bool] = True
    shares: ClassVar[bool] = True


class Hierarchical(AbstractMultilevel):
    """One ability; items by benchmark and further facets.

    The settings are those of `AbstractMultilevel`.

    >>> Hierarchical(facets=("domain", "domain/topic")).all_facets
    ('domain', 'domain/topic')
    """

    name: ClassVar[str] = "hierarchical"


#: Settings of multilevel models and their defaults; those of named models left out.
MULTILEVEL: dict[str, Any] = {
    field.name: field.default
    for field in dataclasses.fields(AbstractMultilevel)
    if field.name != "priors"
}
