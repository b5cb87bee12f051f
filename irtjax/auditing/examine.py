"""`audit`: which items of a benchmark are bad, with error control."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.auditing import classical as classic
from irtjax.auditing import score_groups
from irtjax.auditing.properties import SATURATED, item_properties
from irtjax.auditing.residuals import DEPENDENT, dependence, duplicates, item_fit
from irtjax.auditing.tails import ENUMERATED, benjamini_hochberg, log_choose
from irtjax.data import ResponseTable, read

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration import Calibration

#: Defects that are decided by a test, and what each means.
TESTED = {
    "negative discrimination": "stronger subjects do worse",
    "suspected wrong key": "turned round, the item would discriminate",
    "no discrimination": f"it correlates with ability by less than {classic.MARGIN}",
    "misfit": "its curve is not that of the model",
    "suspected contamination": "weak subjects are right more often than guessing tells",
    "local dependence": "it goes with another item beyond ability",
    "duplicate": "another item has the same answers from everybody",
}
#: Defects that can be seen, without a test.
SEEN = {
    "no variation": "all right, all wrong, or never answered",
    "saturated": f"the strongest subject is right with chance {SATURATED} or more",
}
#: Points of the population's distribution of ability.
NODES = 241
#: Standard deviations to either side that they span.
SPAN = 5.0
#: Subjects who answered everything, below which the groups of scores are left out.
LEAST_COMPLETE = score_groups.LEAST_GROUPS * score_groups.LEAST_IN_GROUP


@dataclasses.dataclass(frozen=True, eq=False)
class Audit:
    """What is known about the quality of each item and each benchmark.

    Attributes:
        items: One row per item, in the order of the data; the columns are listed in
            docs/audit.md. Nulls stand where there is no number.
        benchmarks: One row per benchmark: means of the six properties, their ranks and
            the sum of these (the least is the best), and the share of items with each
            defect.
        control: One row per tested defect: how many items have it, and how many where
            there is no signal; None unless permutations were asked for.
        groups: The groups of scores behind S-X2, for figures; None without.
        fit: The calibration that was used.
        alpha: Cronbach's alpha of the whole test; NaN where it does not exist.
        false_discovery_rate: Level at which each defect is decided.
        warnings: What the tables must be read with, each a sentence.
    """

    items: pa.Table
    benchmarks: pa.Table
    control: pa.Table | None
    groups: score_groups.GroupTests | None
    fit: Calibration
    alpha: float
    false_discovery_rate: float
    warnings: tuple[str, ...]

    def counts(self) -> dict[str, int]:
        """Number of items by defect."""
        flags = [flag.split("; ") for flag in self.items.column("flags").to_pylist()]
        return {name: sum(name in f for f in flags) for name in (*TESTED, *SEEN)}

    def flagged(self, defect: str) -> list[str]:
        """Names of the items with a defect, the surest first.

        Raises:
            ValueError: If there is no such defect.
        """
        if defect not in TESTED and defect not in SEEN:
            known = ", ".join((*TESTED, *SEEN))
            raise ValueError(f"defect {defect!r} is not one of {known}")
        rows = self.items.select(["item", "flags"]).to_pylist()
        chosen = [k for k, x in enumerate(rows) if defect in x["flags"].split("; ")]
        if defect in TESTED:
            p_value = self.items.column(column_of(defect)).to_pylist()
            chosen.sort(key=lambda k: p_value[k])
        return [rows[k]["item"] for k in chosen]


def column_of(defect: str) -> str:
    """Name of the column with the p-values of a defect.

    >>> column_of("local dependence")
    'p_local_dependence'
    """
    return "p_" + defect.replace(" ", "_")


def audit(
    data: ResponseTable | Any,
    fit: Calibration | None = None,
    *,
    false_discovery_rate: float = 0.05,
    chance: float | Mapping[str, float] = 0.0,
    permutations: int = 0,
    seed: int = 0,
    **options: Any,
) -> Audit:
    """Examines every item: what it is like, and which defects it has.

    Each defect is a test of every item, and over items the false discovery rate of
    each is controlled (Benjamini and Hochberg 1995): on average at most that share of
    the items called, say, "local dependence" are not. Where every item is sound, the
    chance of any flag of a kind is at most that. docs/audit.md says how each test is
    made and what it takes for granted.

    Args:
        data: Right and wrong answers: a `ResponseTable`, or anything `irtjax.read`
            takes.
        fit: A calibration of these items with a model of one ability; None fits "2pl".
        false_discovery_rate: Level for each defect.
        chance: Lower asymptote that is not suspicious, such as 0.25 for four choices:
            one number, or one for each benchmark by name.
        permutations: Tables without signal to draw and to examine in the same way.
        seed: Seed of these.
        **options: Given to `irtjax.fit` where there is no fit.

    Returns:
        The audit.

    Raises:
        ValueError: If the responses are not right or wrong, the fit is of other items
            or of a model with several abilities, or an option is out of range.

    >>> import irtjax
    >>> table = irtjax.make_demo().table
    >>> report = audit(table)
    >>> report.items.num_rows == table.num_items, report.counts()["duplicate"]
    (True, 0)
    """
    table = data if isinstance(data, ResponseTable) else read(data)
    _check(table, false_discovery_rate, permutations)
    guess = _guessing(table, chance)
    if fit is None:
        from irtjax.fitting import fit as make_fit

        chosen = {"model": "2pl", "standard_errors": "none", **options}
        fit = make_fit(table, **chosen)
    elif options:
        raise ValueError(
            f"{', '.join(options)}: options of a fit, but a fit is given; leave one out"
        )
    known = Known.of(fit, table)
    found = examine(table, known, guess)
    decided = decide(found, false_discovery_rate)
    control = None
    if permutations:
        from irtjax.auditing.control import no_signal

        control = no_signal(
            table,
            known,
            guess,
            decided,
            level=false_discovery_rate,
            permutations=permutations,
            seed=seed,
        )
    from irtjax.auditing.tables import benchmark_table, item_table

    flags = all_flags(found, decided)
    return Audit(
        items=item_table(table, found, decided, flags, false_discovery_rate),
        benchmarks=benchmark_table(table, found, flags),
        control=control,
        groups=found.groups,
        fit=fit,
        alpha=found.classical.alpha,
        false_discovery_rate=false_discovery_rate,
        warnings=tuple(_warnings(table, found, false_discovery_rate)),
    )


def _check(table: ResponseTable, level: float, permutations: int) -> None:
    if table.kind != "binary":
        raise ValueError(
            f"an audit is of right and wrong answers, not of {table.kind} responses:"
            " put a threshold to them first"
        )
    if table.num_subjects < 3 or table.num_items < 3:
        raise ValueError(
            f"an audit needs at least 3 subjects and 3 items, not"
            f" {table.num_subjects} and {table.num_items}"
        )
    if not 0 < level < 1:
        raise ValueError(f"false_discovery_rate {level:g} is not between 0 and 1")
    if permutations < 0:
        raise ValueError(f"permutations {permutations} is below 0")


def _guessing(table: ResponseTable, chance: float | Mapping[str, float]) -> np.ndarray:
    """The unsuspicious lower asymptote of each item."""
    if isinstance(chance, Mapping):
        names = set(table.benchmarks.tolist())
        for name in chance:
            if name not in names:
                shown = ", ".join(sorted(names)[:5])
                raise ValueError(f"chance: no benchmark is called {name!r} ({shown})")
        values = np.array([chance.get(x, 0.0) for x in table.benchmarks.tolist()])
    else:
        values = np.full(table.num_items, float(chance))
    if not ((values >= 0) & (values < 1)).all():
        bad = values[~((values >= 0) & (values < 1))][0]
        raise ValueError(f"chance {bad:g} is not at least 0 and below 1")
    return values


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """A calibration in the order of a table.

    Attributes:
        fit: The calibration.
        items: Item records, `[items]`.
        ability: `[subjects]` abilities.
        error: `[subjects]` their standard errors.
    """

    fit: Calibration
    items: Any
    ability: np.ndarray
    error: np.ndarray

    @staticmethod
    def of(fit: Calibration, table: ResponseTable) -> Known:
        """Finds the items and subjects of a table in a calibration.

        Raises:
            ValueError: If the model is unsuitable or an item is not in it.
        """
        import jax

        family = fit.model.family
        if family.num_categories != 2 or not hasattr(family, "asymptotes"):
            raise ValueError(
                "an audit needs a model of right and wrong answers (2pl, 3pl, 4pl),"
                f" not {fit.model.name}"
            )
        if fit.structure is not None and len(fit.structure.groups) > 1:
            raise ValueError(
                f"an audit needs one ability, but {fit.model.name} has one for each"
                f" benchmark: fit 2pl, or audit each benchmark alone"
            )
        place = {name: row for row, name in enumerate(fit.items.tolist())}
        rows = [place.get(name, -1) for name in table.items.tolist()]
        if -1 in rows:
            name = str(table.items[rows.index(-1)])
            raise ValueError(
                f"item {name!r} is not in the fit: audit the data that were fitted"
            )
        abilities = fit.ability_table
        who = abilities.column("subject").to_pylist()
        if not set(table.subjects.tolist()) <= set(who):
            from irtjax.verbs import score

            abilities = score(fit, table).table
            who = abilities.column("subject").to_pylist()
        position = {name: row for row, name in enumerate(who)}
        order = np.array([position[name] for name in table.subjects.tolist()])
        ability, error = (
            np.array(abilities.column(name).to_pylist(), np.float64)[order]
            for name in ("ability", "ability_se")
        )
        # A subject without a finite score stands where the population does.
        lost = ~np.isfinite(ability)
        ability = np.where(lost, float(fit.parameters.population.mean), ability)
        error = np.where(np.isfinite(error), error, 0.0)
        chosen = np.array(rows)
        items = jax.tree.map(lambda x: np.asarray(x)[chosen], fit.parameters.items)
        return Known(fit, items, ability, error)

    @property
    def num_parameters(self) -> int:
        """Estimated parameters of each item."""
        return max(int(self.fit.model.family.num_columns), 1)

    def population(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes of the population's ability and their weights."""
        population = self.fit.parameters.population
        mean, sd = float(population.mean), float(population.sd)
        standard = np.linspace(-SPAN, SPAN, NODES)
        weights = np.exp(-0.5 * standard**2)
        return mean + sd * standard, weights / weights.sum()

    def curves(self, nodes: np.ndarray) -> np.ndarray:
        """Chance of a right answer, `[items, nodes]`."""
        import jax
        import jax.numpy as jnp

        from irtjax.auditing.residuals import chances

        records = jax.tree.map(jnp.asarray, self.items)
        grid = jnp.asarray(nodes, records[0].dtype)
        return np.asarray(chances(self.fit.model.family, records, grid), float).T


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
    """Statistics of every item, before any decision."""

    known: Known
    classical: classic.Classical
    properties: dict[str, np.ndarray]
    residuals: Any
    partners: Any
    duplicates: Any
    groups: score_groups.GroupTests | None
    num_complete: int

    def p_values(self) -> dict[str, np.ndarray]:
        """P-values `[items]` by tested defect; NaN where an item was not tested."""
        varied = np.isfinite(self.classical.item_rest)
        nothing = np.full(varied.size, np.nan)
        groups = self.groups
        values = {
            "negative discrimination": self.classical.p_negative,
            "suspected wrong key": self.classical.p_wrong_key,
            "no discrimination": self.classical.p_weak,
            "misfit": nothing if groups is None else groups.p_misfit,
            "suspected contamination": nothing
            if groups is None
            else groups.p_contaminated,
            "local dependence": self.partners.p_value,
            "duplicate": self.duplicates.p_value,
        }
        return {name: np.where(varied, p, np.nan) for name, p in values.items()}


def examine(table: ResponseTable, known: Known, guess: np.ndarray) -> Found:
    """Computes all statistics of all items."""
    import jax
    import jax.numpy as jnp

    values, observed = table.values, table.observed
    family = known.fit.model.family
    records = jax.tree.map(jnp.asarray, known.items)
    cells = (family, records, known.ability, values, observed)
    slope, intercept, lower, upper = (np.asarray(x, float) for x in known.items)
    complete = values if observed is None else values[observed.all(1)]
    groups = None
    if len(complete) >= LEAST_COMPLETE:
        nodes, weights = known.population()
        groups = score_groups.group_tests(
            complete,
            known.curves(nodes),
            nodes,
            weights,
            (slope, intercept),
            guess,
            known.num_parameters,
        )
    return Found(
        known,
        classic.classical(values, observed),
        _properties(known, slope, intercept, lower, upper),
        item_fit(*cells),
        dependence(*cells),
        duplicates(*cells),
        groups,
        len(complete),
    )


def _properties(known: Known, slope, intercept, lower, upper):
    """The six properties; of a probit model by its own curve."""
    strongest = float(known.ability.max())
    found = item_properties(slope, intercept, lower, upper, strongest)
    if getattr(known.fit.model.family, "link", "logit") == "logit":
        return found
    from scipy.stats import norm

    place = slope * strongest + intercept
    chance = lower + (upper - lower) * norm.cdf(place)
    leh = slope * (upper - lower) * norm.pdf(place)
    spread = np.maximum(chance * (1 - chance), 1e-300)
    return {**found, "chance": chance, "leh": leh, "information": leh**2 / spread}


def decide(found: Found, level: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Adjusted p-values and decisions, each `[items]`, by tested defect."""
    decided = {}
    for name, p_value in found.p_values().items():
        adjusted = benjamini_hochberg(p_value)
        flagged = np.nan_to_num(adjusted, nan=1.0) <= level
        if name == "local dependence":
            flagged &= np.nan_to_num(found.partners.q3) >= DEPENDENT
        decided[name] = (adjusted, flagged)
    return decided


def all_flags(found: Found, decided) -> dict[str, np.ndarray]:
    """Decisions `[items]` by defect, tested and seen."""
    flags = {name: flagged for name, (_, flagged) in decided.items()}
    still = ~np.isfinite(found.classical.item_rest)
    flags["no variation"] = still
    flags["saturated"] = found.properties["chance"] >= SATURATED
    return flags


def _warnings(table: ResponseTable, found: Found, level: float) -> list[str]:
    """Says what could not be tested, or could hardly be found."""
    lines = []
    count = table.num_subjects
    if count < 2 * classic.ENOUGH:
        half = count // 2
        least = float(np.exp(-log_choose(np.array(count), np.array(half))))
        tested = int(np.isfinite(found.classical.item_rest).sum())
        needed = int(np.ceil(least * tested / level))
        how = "exact" if count <= ENUMERATED else "nearly exact"
        lines.append(
            f"{count} subjects have next to no power: the {how} test of one item gives"
            f" at the least p = {least:.2g}, so {max(needed, 1):,} of {tested:,} items"
            f" must reach that before one is flagged; an item without a flag is not"
            f" thereby a good one"
        )
    if not found.classical.alpha >= classic.LEAST_RELIABILITY:
        lines.append(
            f"the items have next to nothing in common (alpha"
            f" {found.classical.alpha:.2g}): no item is called undiscriminating or"
            f" wrongly keyed, since the others say too little about ability"
        )
    if found.groups is None:
        lines.append(
            f"{found.num_complete:,} subjects answered every item, and S-X2 and the"
            f" test of contamination need {LEAST_COMPLETE}: both are left out"
        )
    if table.num_items < 30:
        lines.append(
            f"with {table.num_items} items each weighs in its own ability estimates:"
            " residual correlations are then too low, and dependence is overlooked"
        )
    return lines
