"""From a calibration, or a bank, to a bank with names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.adaptive.bank import AbstractBank
from irtjax.adaptive.design import Design
from irtjax.adaptive.item_bank import ItemBank
from irtjax.adaptive.lengths import LengthBank
from irtjax.adaptive.normal_bank import FactorBank
from irtjax.adaptive.regressed import regressed_items
from irtjax.adaptive.steps import decided_by_population
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.covariates import priors_of, read_covariates
from irtjax.calibration.item_error import factor_item_errors, item_errors
from irtjax.data.arrays import check_unique, names_of
from irtjax.data.item_texts import Contents
from irtjax.models.model import Population

#: Share of the population that should reach a target of error.
REACHED = 0.5


class LabelledBank(NamedTuple):
    """A bank with the names of its items."""

    bank: AbstractBank
    names: np.ndarray  # [items]
    groups: np.ndarray | None  # [items] content groups, such as benchmarks
    factors: np.ndarray | None  # [dims] names of several abilities
    source: Calibration | None = None

    @property
    def contents(self) -> Contents:
        """Hashes of the content of the items, where the data of the fit had them."""
        return {} if self.source is None else self.source.item_contents

    def position(self, name: str) -> int:
        """Where an item is in the bank; a name of no item is refused."""
        place = np.flatnonzero(self.names == name)
        if not len(place):
            raise ValueError(
                f"no item named {name!r} in the bank of {len(self.names):,} items (the"
                f" first is {str(self.names[0])!r})"
            )
        return int(place[0])

    def design(self, num_items: int | None, **rules: Any) -> Design:
        """The rules of tests of at most `num_items` items, None for the whole bank."""
        size = self.bank.num_items * max(rules.get("repeats", 1), 1)
        longest = size if num_items is None else min(num_items, size)
        if isinstance(rules.get("cost"), Mapping):
            rules["cost"] = self._costs(rules["cost"])
        if isinstance(rules.get("rival"), str):
            rules["rival"] = self._rival(rules["rival"])
        design = Design.create(longest, groups=self.groups, **rules)
        self.bank.check(design)
        return design

    def warnings(
        self, design: Design, allowed: np.ndarray | None = None
    ) -> tuple[str, ...]:
        """Targets that cannot be reached or are reached at once, each a sentence."""
        sentences = self._out_of_reach(design, allowed) + self._decided(design)
        return sentences + self._exact()

    def _exact(self) -> tuple[str, ...]:
        """Errors of items that standard errors leave out."""
        if self.source is None:
            return ()
        without = self.bank.items_without_errors
        if without is None:
            if self.source.options.get("item_uncertainty", True) is False:
                reason = ", as in the fit (item_uncertainty=False)"
            else:
                reason = ": the fit has no errors of its items"
            return (f"items are taken as known{reason}",)
        count, effect = without
        if not count:
            return ()
        noun = "1 item has" if count == 1 else f"{count:,} items have"
        return (f"{noun} no finite errors: {effect}",)

    def _decided(self, design: Design) -> tuple[str, ...]:
        """A decision that needs no responses."""
        if not decided_by_population(self.bank, design):
            return ()
        assert design.risk is not None and design.pass_mark is not None
        return (
            f"risk {float(design.risk):g} is reached without a response: the population"
            f" alone decides on pass_mark {float(design.pass_mark):g}; give a smaller"
            " risk, or an indifference",
        )

    def _out_of_reach(
        self, design: Design, allowed: np.ndarray | None
    ) -> tuple[str, ...]:
        """Targets of error that the items cannot reach."""
        sd = float(self.bank.sd)
        limits = {}
        if design.standard_error is not None:
            limits["standard_error"] = float(design.standard_error)
        if design.reliability is not None:
            limits["reliability"] = sd * math.sqrt(1 - float(design.reliability))
        if not limits:
            return ()
        usable = np.ones(self.bank.num_items, bool) if allowed is None else allowed
        usable = design.with_weight(jnp.asarray(usable))
        smallest_errors = self.bank.smallest_errors(design, usable)
        errors, weights = (np.asarray(x, float) for x in smallest_errors)
        # Where nobody is the errors do not matter: beyond 3 standard deviations.
        errors = np.where(weights > 1e-3 * weights.max(), errors, np.inf)
        smallest, at = float(errors.min()), "at best"
        if self.bank.several:
            # Near the ends of the score its error vanishes, whatever the items.
            smallest, at = float(np.sqrt(weights @ errors**2)), "on average at best"
        at_best = f"{at} standard error {smallest:.3g}"
        at_best += f" (reliability {1 - (smallest / sd) ** 2:.3g})"
        sentences = []
        for name, limit in limits.items():
            share = float(weights @ (errors < limit))
            target = f"{name} {float(getattr(design, name)):g}"
            noun = "items" if design.repeats == 1 else "responses to items"
            items = f"{design.num_items:,} {noun} of this bank"
            if share == 0:
                sentences.append(f"{target} cannot be reached: {items} give {at_best}")
            elif share < REACHED:
                sentences.append(
                    f"{target} can be reached for {100 * share:.2g} % of the population"
                    f" alone: {items} give {at_best}"
                )
        return tuple(sentences)

    def _rival(self, name: str) -> tuple[float, float]:
        """Ability and standard error of a subject of the calibration."""
        if self.source is None:
            raise ValueError(
                f"rival {name!r}: a bank has no subjects; give its ability and"
                " standard error"
            )
        if self.bank.several and self.bank.on_axes:
            raise ValueError(
                f"rival {name!r} with a composite: give the composite of its abilities"
                " and its standard error"
            )
        table = self.source.abilities.table
        names = np.asarray(table["subject"].to_pylist(), np.str_)
        place = np.flatnonzero(names == name)
        if not len(place):
            raise ValueError(
                f"rival: no subject named {name!r} in the calibration of"
                f" {len(names):,} (the first is {str(names[0])!r})"
            )
        at = int(place[0])
        ability, error = table["ability"][at].as_py(), table["ability_se"][at].as_py()
        if ability is None or error is None:
            raise ValueError(f"rival {name!r} has no ability with a standard error")
        return float(ability), float(error)

    def _costs(self, cost: Mapping[str, Any]) -> np.ndarray:
        """Costs by name in the order of the bank; every item needs one."""
        lacking = [name for name in self.names.tolist() if name not in cost]
        if lacking:
            raise ValueError(
                f"cost: no cost of item {lacking[0]!r} ({len(lacking):,} of"
                f" {len(self.names):,} are missing)"
            )
        costs = np.array([float(cost[name]) for name in self.names.tolist()])
        bad = ~(np.isfinite(costs) & (costs > 0))
        if bad.any():
            at = int(bad.argmax())
            raise ValueError(
                f"cost {costs[at]:g} of item {str(self.names[at])!r} is not above 0"
            )
        return costs


def check_exposure(limit: float | None) -> None:
    """Refuses a largest share of tests that is none."""
    if limit is not None and not 0 < limit <= 1:
        raise ValueError(f"max_exposure {limit:g} is not above 0 and at most 1")


def label(
    source: Any,
    num_items: int | None,
    names: Any,
    groups: Any,
    rules: Mapping[str, Any],
    population: Population | None = None,
) -> LabelledBank:
    """A bank for tests of `num_items`; names and groups of None: the calibration's.

    `population` takes the place of that of a calibration of one ability.
    """
    bank, factors, composite = source, None, rules.get("composite")
    calibration = source if isinstance(source, Calibration) else None
    if isinstance(source, Calibration):
        bank, factors = _bank_of(source, num_items, rules, population)
        names = source.item_names if names is None else names
        groups = source.benchmarks if groups is None else groups
    elif not isinstance(source, AbstractBank):
        raise ValueError(
            f"a test is built from a calibration (irtjax.fit, irtjax.load) or an"
            f" ItemBank, not from a {type(source).__name__}"
        )
    if composite is not None and not (bank.several and factors is not None):
        cure = "give it to FactorBank.create" if bank.several else "leave it out"
        raise ValueError(f"composite is for a calibration of several abilities: {cure}")
    labels = names_of("item", names, bank.num_items)
    check_unique("item", labels)
    if groups is not None:
        groups = names_of("content group", groups, bank.num_items)
    if factors is None:
        factors = bank.factor_names
    return LabelledBank(bank, labels, groups, factors, calibration)


def prior_by_covariates(source: Any, subject_table: Any, names: Any = ()):
    """Names, covariates and priors of subjects whom a calibration has not met.

    Args:
        source: A calibration of one ability with `subject_covariates`.
        subject_table: As for `calibration.covariates.read_priors`.
        names: `[subjects]`; without any, all subjects of the table.

    Raises:
        ValueError: If the source is no such calibration, or covariates are missing.
    """
    if not isinstance(source, Calibration) or source.num_groups > 1:
        raise ValueError(
            "subject_table is for a calibration of one ability with covariates of"
            " subjects: leave it out"
        )
    subjects, covariates = read_covariates(source, subject_table, names)
    return subjects, covariates, priors_of(source, covariates)


def counts_of(fit: Calibration) -> np.ndarray:
    """`[items]` numbers of responses of a calibration."""
    return fit.items.table["observed"].to_numpy()


def _bank_of(
    fit: Calibration,
    num_items: int | None,
    rules: Mapping[str, Any],
    population: Population | None,
):
    """The bank of a calibration, and the names of its factors if it has several."""
    model, parameters = fit.model, jax.tree.map(jnp.asarray, fit.parameters)
    if fit.factor_names:
        return _factor_bank(fit, rules.get("composite")), np.array(fit.factor_names)
    items: Any = parameters.items
    population = parameters.population if population is None else population
    assert population is not None
    errors = item_errors(fit)
    options: dict[str, Any] = dict(num_items=num_items)
    if errors is not None:
        options |= dict(covariance=errors.items, scale=errors.scale)
    if model.has_lengths:
        options["offset"] = fit.options["length_offset"]
        bank = LengthBank.of(model, items, population, parameters.lengths, **options)
        return bank, None
    repeats = max(rules.get("repeats", 1), 1)
    return ItemBank.create(model, items, population, repeats=repeats, **options), None


def _factor_bank(fit: Calibration, composite: Any) -> FactorBank:
    """The bank of a calibration of several abilities."""
    parameters = jax.tree.map(jnp.asarray, fit.parameters)
    items, blocks, sample = parameters.items, factor_item_errors(fit), None
    if blocks is not None:
        sample = len(fit.subject_names)
        # Joint estimates are too large by about what their prior takes away.
        weight = 1.0 if fit.parameters.theta is None else 0.0
        items, blocks = regressed_items(
            fit.model, items, parameters.population, blocks, counts_of(fit), weight
        )
    return FactorBank.create(
        fit.model,
        items,
        parameters.population,
        composite=composite,
        covariance=blocks,
        num_subjects=sample,
        axes_fixed=sample is not None and fit.options.get("loadings", "all") != "all",
    )
