"""How comparisons are fitted: one record for Python, `fit.json` and the checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from irtjax._types import RandomKey
from irtjax.comparisons.families import LINKS, TIES, PairFamily
from irtjax.comparisons.presets import Preset, preset_of

#: The model of rankings.
RANKINGS = "plackett_luce"
#: Values of settings that have few.
CHOICES = {
    "model": (*LINKS, RANKINGS),
    "ties": TIES,
    "both_bad": ("tie", "drop", "outcome"),
}
#: Replicates below which the errors themselves are uncertain by 7 % and more.
FEWEST_REPLICATES = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairSettings:
    """The settings of `irtjax.fit_comparisons`, which documents them.

    Raises:
        ValueError: If a value is none that the setting has, or two exclude each other.

    >>> PairSettings(ties="davidson").family
    PairFamily(link='bradley_terry', ties='davidson')
    """

    model: str = "bradley_terry"
    ties: str = "half"
    both_bad: str = "tie"
    cluster: str | Sequence[str] = ()
    covariates: Sequence[str] = ()
    order: bool = False
    category: str | None = None
    judge: str | None = None
    tie_rates: bool = False
    bootstrap: int = 0
    key: RandomKey | None = None
    preset: str | None = None
    level: float = 0.95

    def __post_init__(self) -> None:
        for name, values in CHOICES.items():
            value = getattr(self, name)
            if value not in values:
                raise ValueError(f"{name}={value!r} is not one of {', '.join(values)}")
        if self.model == "thurstone" and self.ties == "davidson":
            raise ValueError("ties='davidson' is of bradley_terry; use 'rao_kupper'")
        if len(self.clusters) > 2:
            raise ValueError("errors count two kinds of clusters at most")
        self._check_bootstrap()
        self._check_preset()
        pairwise = self.mixed or self.bootstrap or self.covariates or self.order
        if self.model == RANKINGS and (pairwise or self.ties != "half"):
            raise ValueError(
                "model='plackett_luce' has no ties, covariates, order, category, judge"
                " and bootstrap: leave them out"
            )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> PairSettings:
        """The settings of keyword arguments.

        Raises:
            ValueError: If there is no setting of a name.

        >>> PairSettings.of({"tie": "drop"})
        Traceback (most recent call last):
        ValueError: there is no setting 'tie' of comparisons; did you mean ties=?
        """
        names = [field.name for field in dataclasses.fields(cls)]
        unknown = next((name for name in settings if name not in names), None)
        if unknown is None:
            return cls(**settings)
        near = get_close_matches(unknown, names, 1)
        cure = f"did you mean {near[0]}=?" if near else f"it has {', '.join(names)}"
        raise ValueError(f"there is no setting {unknown!r} of comparisons; {cure}")

    @property
    def clusters(self) -> list[str]:
        """Labels of the clusters."""
        return [self.cluster] if isinstance(self.cluster, str) else list(self.cluster)

    @property
    def mixed(self) -> bool:
        """Whether the model has random effects, or "both bad" as an outcome."""
        random = self.category or self.judge or self.tie_rates
        return bool(random) or self.both_bad == "outcome"

    @property
    def by_pair(self) -> bool:
        """Whether comparisons of a pair are alike but for clusters."""
        apart = self.mixed or self.covariates or self.order or self.bootstrap
        weighted = self.preset is not None and bool(self.clusters)
        return not apart and not weighted and self.model != RANKINGS

    @property
    def family(self) -> PairFamily:
        """The family of comparisons of two."""
        # Two of a ranking follow Bradley and Terry's model.
        link = "bradley_terry" if self.model == RANKINGS else self.model
        return PairFamily(link, self.ties)

    @property
    def arena(self) -> Preset | None:
        """Settings of a published arena."""
        return preset_of(self.preset)

    def check(self, labels: Mapping[str, Any], features: Mapping[str, Any]) -> None:
        """Refuses names that a table does not have."""
        names = [("cluster", x, labels) for x in self.clusters]
        names += [("category", self.category, labels), ("judge", self.judge, labels)]
        names += [("covariate", x, features) for x in self.covariates]
        for kind, name, columns in names:
            if name is not None and name not in columns:
                listed = ", ".join(columns) or "none"
                raise ValueError(
                    f"no {kind} {name!r} among those of the table: {listed}"
                )

    def check_pairs(self) -> None:
        """Refuses settings of fits that have no checks by pair and no influence."""
        if self.model == RANKINGS or self.preset is not None:
            raise ValueError(
                "checks and influence are of comparisons of two without a preset: leave"
                " model='plackett_luce' and preset out"
            )

    def document(self, sizes: Mapping[str, float]) -> dict[str, Any]:
        """The settings as `fit.json` has them.

        Args:
            sizes: Standard deviation of each covariate.
        """
        names = ("category", "judge", "tie_rates", "bootstrap", "preset")
        others = {name: getattr(self, name) for name in names}
        return {
            "model": self.model,
            "ties": self.ties,
            "both_bad": self.both_bad,
            "cluster": self.clusters,
            "covariates": list(self.covariates),
            "order": self.order,
            "sizes": dict(sizes),
            **{name: value for name, value in others.items() if value},
        }

    def _check_preset(self) -> None:
        """Refuses settings that a published arena does not have."""
        plain = (self.model, self.ties) == ("bradley_terry", "half")
        if self.arena is not None and (self.mixed or self.bootstrap or not plain):
            raise ValueError(
                f"preset={self.preset!r} is bradley_terry with ties='half': leave"
                " model, ties, both_bad='outcome', category, judge, tie_rates and"
                " bootstrap out"
            )

    def _check_bootstrap(self) -> None:
        """Refuses replicates that are few, or of what is not bootstrapped."""
        if not self.bootstrap:
            return
        if self.bootstrap < FEWEST_REPLICATES:
            raise ValueError(
                f"bootstrap={self.bootstrap}: give {FEWEST_REPLICATES} replicates or"
                " more"
            )
        if self.mixed:
            raise ValueError(
                "bootstrap is not for category, judge, tie_rates and"
                " both_bad='outcome': leave it out, their errors are those of the mixed"
                " model"
            )
        if len(self.clusters) > 1:
            raise ValueError("bootstrap weights clusters of one kind: give one cluster")
