"""The result of a fit on the host: parameters, tables, warnings, provenance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from irtjax import ranking
from irtjax._types import RandomKey, Status
from irtjax.calibration.parts import Factors, Part, ResponseLengths, Structure
from irtjax.calibration.rank import GroupNames, RankedSubjects
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from irtjax.calibration.scale import compares_means
from irtjax.calibration.tables import floats, interval_columns
from irtjax.data.frames import HasTable
from irtjax.data.item_texts import ItemText
from irtjax.data.result_text import with_level
from irtjax.data.wording import NOUNS, counted
from irtjax.likelihood.problem import Parameters
from irtjax.likelihood.quadrature import Resolution
from irtjax.models.model import Model

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.estimators.posterior.nuts import Draws


_Part = TypeVar("_Part", bound=Part)

#: Columns that begin the table of a ranking; the others follow as in the ability table.
_FIRST = ("subject", "ability", "ability_se", "lower", "upper", "rank", "rank_lower")
_FIRST += ("rank_upper", "probability_best", "first_group", "last_group")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Calibration(HasTable):
    """A fitted model with its labels: what `irtjax.fit` returns and `load` restores.

    Everything that has an axis of subjects follows `subject_names`, the order of the
    data: `abilities`, `ability_shared`, `parameters.theta`, the abilities and draws of
    `structure`. `irtjax.rank` sorts subjects by ability, as the saved tables do.

    Attributes:
        model: The model.
        parameters: Estimates: item records, population, and joint abilities if any.
        subject_names: `[subjects]` names.
        item_names: `[items]` names.
        benchmarks: `[items]` benchmark names, or None.
        status: How the iteration ended.
        num_steps: Steps taken.
        trace: `[num_steps]` objective after each step.
        residual: Distance from a stationary point.
        log_likelihood: In nats, without priors.
        log_prior: Log prior density at the estimates.
        num_parameters: Estimated parameters of items and population, and abilities of
            joint methods; the effective number of a multilevel model.
        num_observed: Observed responses.
        aic: -2 log-likelihood + 2 parameters. Of shares, whose likelihood is a
            quasi-likelihood, it compares fits of the same worth only.
        bic: -2 log-likelihood + parameters * log(subjects).
        items: Items, their parameters with standard errors, and flags.
        abilities: Subjects, abilities with intervals, ranks, and flags.
        warnings: Reasons to doubt the numbers, each a sentence.
        notes: How the data were read, and a sampler's verdict where it is good.
        options: The options of the fit.
        versions: Versions of the packages that made it.
        data_hash: Hash of the data.
        timings: Seconds by phase; "compile" apart from the rest.
        resolution: Distances of the quadrature nodes compared with the posteriors.
        level: Level of the intervals.
        item_covariance: `[items, columns, columns]`, of unconstrained coordinates.
        ability_shared: `[subjects, rank]` loadings of shared errors of abilities (see
            `scoring.Scores`), or None.
        ability_scale: `[subjects]` the part of `ability_shared` that stretches all
            abilities alike (`ranking.scale_loadings`), which tests of equal abilities
            leave out; or None.
        parts: What only some fits have: lengths, `structure`, `factors`.
        item_texts: Prompt, expected answer and most frequent wrong answer by item,
            where the data had them (`ResponseTable.item_texts`).
        item_contents: Hashes of the content of items, where the data had them.
    """

    columns = RankedSubjects.columns

    model: Model
    parameters: Parameters
    subject_names: np.ndarray
    item_names: np.ndarray
    benchmarks: np.ndarray | None
    status: Status
    num_steps: int
    trace: np.ndarray
    residual: float
    log_likelihood: float
    log_prior: float
    num_parameters: int
    num_observed: int
    aic: float
    bic: float
    items: ItemTable
    abilities: AbilityTable
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    options: dict[str, Any]
    versions: dict[str, str]
    data_hash: str
    timings: dict[str, float]
    resolution: Resolution | None
    level: float
    item_covariance: np.ndarray | None = None
    ability_shared: np.ndarray | None = None
    ability_scale: np.ndarray | None = None
    parts: tuple[Part, ...] = ()
    item_texts: Mapping[str, ItemText] = dataclasses.field(default_factory=dict)
    item_contents: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def reversed_scores(self) -> dict[str, str]:
        """By item, the formula of scores of which lower is better, as "1 - wer"."""
        if "reversed_scores" not in self.items.table.column_names:
            return {}
        names, formulas = (
            self.items.table.column(x).to_pylist() for x in ("item", "reversed_scores")
        )
        pairs = zip(names, formulas, strict=True)
        return {name: formula for name, formula in pairs if formula}

    def part(self, kind: type[_Part]) -> _Part | None:
        """The part of this class; None of fits without it."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def require(self, kind: type[_Part]) -> _Part:
        """The part of this class; a ValueError of fits without it."""
        part = self.part(kind)
        if part is None:
            raise ValueError(kind.absence)
        return part

    def with_part(self, part: Part) -> Calibration:
        """The fit with a part, in place of the one of its class if it has one."""
        others = (x for x in self.parts if type(x) is not type(part))
        return dataclasses.replace(self, parts=(*others, part))

    @property
    def structure(self) -> Structure | None:
        """Abilities by group and related results, for multilevel models."""
        return self.part(Structure)

    @property
    def factors(self) -> Factors | None:
        """Loadings and abilities, for factor models."""
        return self.part(Factors)

    @property
    def factor_names(self) -> tuple[str, ...]:
        """Names of the factors; none of fits without."""
        return tuple(name for part in self.parts for name in part.factor_names)

    @property
    def at_fixed_axes(self) -> np.ndarray | None:
        """`Factors.at_fixed_axes`; None without a rotation."""
        factors = self.factors
        return None if factors is None else factors.at_fixed_axes

    @property
    def multilevel(self) -> bool:
        """Whether items were integrated out; `structure` has the rest."""
        return any(part.integrates_items for part in self.parts)

    @property
    def num_groups(self) -> int:
        """Number of groups of items with an ability each; 1 for one ability of all."""
        structure = self.structure
        return 1 if structure is None else len(structure.groups)

    @property
    def several_abilities(self) -> bool:
        """Whether subjects have an ability for each group, or on each factor."""
        return self.num_groups > 1 or len(self.factor_names) > 0

    @property
    def abilities_are_scores(self) -> bool:
        """Whether the ability of a subject is its expected score on all items."""
        return self.model.several

    @property
    def draws(self) -> Draws | None:
        """Draws of the posterior, of a multilevel model by `nuts`; else None."""
        structure = self.structure
        return None if structure is None else structure.draws

    @property
    def correlation_error(self) -> float | None:
        """Standard error of the correlation of ability and speed, if it has one."""
        lengths = self.part(ResponseLengths)
        return None if lengths is None else lengths.correlation_error

    @property
    def correlation_interval(self) -> tuple[float, float] | None:
        """Bounds of the correlation of ability and speed at `level`, by Fisher's z."""
        lengths = self.part(ResponseLengths)
        return None if lengths is None else lengths.correlation_interval(self.level)

    @property
    def nouns(self) -> tuple[str, str]:
        """What the data call a subject and a benchmark."""
        subject, benchmark = self.options.get("nouns", NOUNS)
        return subject, benchmark

    @property
    def heading(self) -> str:
        """Subjects, items, benchmarks and the share that is missing, in a line.

        >>> import irtjax
        >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
        >>> irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch").heading
        '4 subjects · 4 items · complete'
        """
        subject, benchmark = self.nouns
        subjects, items = len(self.subject_names), len(self.item_names)
        parts = [counted(subjects, subject), counted(items, "item")]
        labels = [] if self.benchmarks is None else np.unique(self.benchmarks)
        if len(labels) > 1:
            parts.append(counted(len(labels), benchmark))
        missing = 1 - self.num_observed / (subjects * items)
        few = f"{missing:.1%}" if missing < 0.1 else f"{missing:.0%}"
        share = f"{few.replace('%', ' %')} missing"
        parts.append("complete" if missing <= 0 else share)
        if Status(int(self.status)) != Status.CONVERGED:
            parts.append("NOT CONVERGED")
        return " · ".join(parts)

    def rank(
        self,
        *,
        level: float | None = None,
        num_draws: int | None = None,
        key: RandomKey | None = None,
        simultaneous: bool = False,
    ) -> RankedSubjects:
        """Ranks the subjects; see `irtjax.ranking.rank` for the formulas.

        Args:
            level: Level of the intervals; None takes that of the fit.
            num_draws: Draws behind rank intervals and P(best); None as for
                `irtjax.ranking.rank`.
            key: A whole number or a JAX key, for new draws. By default, at the level of
                the fit, rank intervals and P(best) are those of its ability table.
            simultaneous: Whether ranks and pairs hold all together
                (`irtjax.ranking.rank`).

        Returns:
            The ranked subjects.

        Raises:
            ValueError: If the level is not between 0 and 1.

        >>> import irtjax
        >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
        >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch")
        >>> ranked = fit.rank()
        >>> ranked.table.column("subject")[0].as_py()
        'subject 1'
        """
        import pyarrow as pa

        chosen = self.level if level is None else level
        table = self.abilities.table
        ability, error = floats(table, "ability", "ability_se")
        finite = np.flatnonzero(np.isfinite(ability) & np.isfinite(error))
        # The scale of ability is estimated too, and no order depends on it.
        own, shared = ranking.without_scale(
            error, self.ability_shared, self.ability_scale
        )
        intervals = None
        if key is None and num_draws is None and chosen == self.level:
            names = ranking.RankIntervals._fields
            columns = (np.asarray(table.column(name))[finite] for name in names)
            intervals = ranking.RankIntervals(*columns)
        shared = None if shared is None else shared[finite]
        options = {"level": chosen, "num_draws": num_draws, "intervals": intervals}
        options |= {"pooled": compares_means(self), "simultaneous": simultaneous}
        ranked = ranking.rank(
            ability[finite], own[finite], key=key, shared=shared, **options
        )
        names = table.column("subject").take(pa.array(finite)).combine_chunks()
        groups = GroupNames(names, ranked.groups)
        order = np.argsort(-ability[finite], kind="stable")
        best_first = finite[order]
        sorted_table = table.take(pa.array(best_first))
        columns = dict(zip(table.column_names, sorted_table.columns, strict=True))
        if chosen != self.level:
            columns |= interval_columns(self, sorted_table, chosen)
            # Degrees of freedom are not kept, so accuracies have no other interval.
            for name in [x for x in columns if x.startswith("accuracy")]:
                if name.endswith(("_lower", "_upper")):
                    del columns[name]
        # From the same draws as P(best), so that the two agree.
        for name in ("rank_lower", "rank_upper", "probability_best"):
            columns[name] = pa.array(getattr(ranked, name)[order])
        columns["first_group"] = pa.array(ranked.first_group[order] + 1)
        columns["last_group"] = pa.array(ranked.last_group[order] + 1)
        names = [*_FIRST, *(name for name in columns if name not in _FIRST)]
        result = with_level(pa.table({name: columns[name] for name in names}), chosen)
        pairs = ranked.num_pairs, ranked.num_different
        return RankedSubjects(
            result, groups, *pairs, chosen, self.heading, self.nouns[0]
        )

    def rescaled(self, link: Any) -> Calibration:
        """The fit on the scale of the first fit of a link (`irtjax.link`).

        Abilities become A theta + B, discriminations a / A and difficulties A b + B.
        Their errors, and those of scores of new subjects, include the error of the
        link. Ranks and expected scores do not change.

        Args:
            link: A link of this fit.

        Returns:
            A calibration; `options["scale"]` has A and B. `irtjax.link` has an example.

        Raises:
            ValueError: If the link does not include this fit, or other results of the
                fit depend on the scale (`calibration.rescaled.check_one_scale`).
        """
        return link.rescaled(self)

    def summary(self) -> str:
        """Returns the model and its fit in ten lines; `print(fit)` is the leaderboard.

        >>> import irtjax
        >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
        >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch")
        >>> print(fit.summary().splitlines()[0])
        rasch by laplace on 4 subjects and 4 items (16 responses): converged
        """
        most = 4  # Subjects; of the warnings one is shown.
        method = self.options.get("method", "its method")
        lines = [
            f"{self.model.name} by {method} on"
            f" {counted(len(self.subject_names), 'subject')} and"
            f" {counted(len(self.item_names), 'item')}"
            f" ({counted(self.num_observed, 'response')}):"
            f" {self.status.explain()}",
        ]
        if self.options.get("worth"):
            value = f"{self.log_likelihood:,.2f}"
            lines.append(f"quasi-log-likelihood {value} (no AIC or BIC)")
        else:
            lines.append(
                f"log-likelihood {self.log_likelihood:,.2f}, AIC {self.aic:,.1f}, BIC"
                f" {self.bic:,.1f}"
            )
        names = ("subject", "rank", "ability", "ability_se", "expected_score")
        # Of equal ranks the order of `irtjax.rank`.
        best_first = [("rank", "ascending"), ("ability", "descending")]
        table = self.abilities.table.select(names).sort_by(best_first)
        for row in table.slice(0, most).to_pylist():
            ability, error, score = (
                "–" if row[name] is None else f"{row[name]:.2f}" for name in names[2:]
            )
            lines.append(
                f"{row['rank']:>4}  {row['subject']}: ability {ability} ± {error}"
                f" (standard error), expected score {score}"
            )
        if table.num_rows > most:
            lines.append(f"      and {counted(table.num_rows - most, 'more subject')}")
        if self.warnings:
            rest = len(self.warnings) - 1
            rest = f" (+ {rest} more)" if rest else ""
            lines.append(f"warning: {self.warnings[0]}{rest}")
        lines.append("see .abilities, .items, .warnings; irtjax.rank(fit)")
        return "\n".join(lines)

    @property
    def table(self) -> pa.Table:
        """The table of abilities: `abilities.table`."""
        return self.abilities.table

    def _ranked(self) -> HasTable:
        """The ranking; abilities if none is finite."""
        columns = (self.table.column(name) for name in ("ability", "ability_se"))
        values = np.array([x.to_pylist() for x in columns], float)
        if not np.isfinite(values).all(axis=0).any():
            return self.abilities
        return self.rank()

    def _text(self) -> str:
        """The short leaderboard."""
        return self._ranked()._text()

    def _heading(self) -> str:
        return self._ranked()._heading()

    def _shown(self) -> pa.Table:
        return self._ranked()._shown()
