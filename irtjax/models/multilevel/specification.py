"""Multilevel models as `irtjax.fit` takes them: frozen records of their settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.model import Model
from irtjax.models.multilevel.design import NESTED, Layout, lay_out
from irtjax.models.multilevel.model import Hyperpriors
from irtjax.models.priors import AbstractPrior


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
    multilevel: ClassVar[bool] = True
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
        return dataclasses.replace(table, item_facets={**table.item_facets, **facets})

    def lay_out(
        self, table: ResponseTable, family: AbstractResponseFamily, dtype: Any, *, name
    ) -> Layout:
        """The model of arrays for the labels of a table; `name` is for messages."""
        names = np.unique(np.asarray(table.benchmarks)).tolist()
        if self.grouped and len(names) < 2:
            raise ValueError(
                f"a {name} model needs items of two or more benchmarks or metrics, not"
                f" of {names[0]!r} alone: name their column with benchmark= when"
                " reading, or use the model 'hierarchical'"
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
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        given |= {"facets": self.all_facets, "priors": self.given_priors}
        del given["item_model"]
        return lay_out(table, family, grouped=self.grouped, dtype=dtype, **given)

    def record(self, layout: Layout) -> dict[str, Any]:
        """Settings for the record of a fit, some only where they were given."""
        found: dict[str, Any] = {
            "priors": {name: repr(prior) for name, prior in self.given_priors.items()},
            "facets": list(self.all_facets),
            "item_covariates": sorted(self.item_covariates or {}),
            "subject_covariates": layout.covariates.tolist(),
        }
        shared = self.shared_items
        if shared is not None:
            found["shared_items"] = shared if isinstance(shared, str) else "given"
            found["metric_effects"] = self.metric_effects
        if self.sd_by_benchmark:
            found["sd_by_benchmark"] = True
        if self.hyperpriors is not None:
            scales = vars(self.hyperpriors).items()
            found["hyperpriors"] = {name: float(value) for name, value in scales}
        return found


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
