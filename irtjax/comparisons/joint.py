"""Responses, comparisons and other scores of the same models on one scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.special import ndtr

from irtjax.calibration.abilities import Abilities
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.parts import Structure
from irtjax.calibration.tables import floats
from irtjax.comparisons import sources
from irtjax.comparisons.fit import Arena, fit_comparisons
from irtjax.data import ResponseTable
from irtjax.data.comparison_table import ComparisonTable
from irtjax.data.frames import HasTable
from irtjax.data.wording import counted
from irtjax.fitting.fit import fit
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.ranking.pairs import without_scale

if TYPE_CHECKING:
    import pyarrow as pa

#: Common subjects with which Fisher's z, of variance 1 / (n - 3), has an error.
FEWEST_COMMON = 4
#: Estimates in all sources, from which the time is minutes: subjects of one source,
#: which add nothing to the agreement, are then left out.
MOST_ESTIMATES = 600
#: Share of the prior variance that responses remove at least; less is none.
LEAST_INFORMATION = 1e-3


class Agreement(NamedTuple):
    """The correlation of true abilities in two sources.

    Attributes:
        first, second: Names of the sources.
        correlation: Estimate; errors of measurement do not attenuate it.
        lower, upper: Interval by likelihood ratio.
        num_common: Subjects that both have.
    """

    first: str
    second: str
    correlation: float
    lower: float
    upper: float
    num_common: int


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Joint(HasTable):
    """Abilities of the same models in several sources, on one scale.

    Attributes:
        abilities: Shared abilities: of each model the weighted mean of its true
            abilities in the sources, each in standard deviations from its mean over
            models. Models without a source have its expectation given the others.
        agreement: A row for each pair of sources.
        residuals: A row for each model in a source that another source has too:
            subject, source, ability and ability_se in units of the source; expected,
            from the other sources; residual, residual_se, p_value of no residual, and
            q_value, the p-value adjusted for the false discovery rate in the source.
        sources: By name, mean and standard deviation of true abilities.
        log_likelihood: Restricted log-likelihood of means and covariance.
        level: Level of intervals.
        warnings: What limits the results.
        notes: What was done with the data.
    """

    title = "What a source has beyond the others"
    columns = ("subject", "source", "residual", "residual_se", "q_value")

    abilities: Abilities
    agreement: tuple[Agreement, ...]
    residuals: pa.Table
    sources: Mapping[str, tuple[float, float]]
    log_likelihood: float
    level: float = 0.95
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> pa.Table:
        """The residuals."""
        return self.residuals

    def differences(self, source: str) -> list[dict[str, Any]]:
        """Rows of `residuals` of a source that are significant, the highest first."""
        rows = [row for row in self.residuals.to_pylist() if row["source"] == source]
        rows = [row for row in rows if row["q_value"] <= 1 - self.level]
        return sorted(rows, key=lambda row: -row["residual"])

    def document(self) -> dict[str, Any]:
        """All but abilities and residuals, as `joint.json` has it."""
        return {
            "agreement": [row._asdict() for row in self.agreement],
            "sources": {
                name: {"mean": mean, "sd": sd}
                for name, (mean, sd) in self.sources.items()
            },
            "log_likelihood": self.log_likelihood,
            "level": self.level,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }


def fit_jointly(
    *measured: Any,
    weights: Mapping[str, float] | None = None,
    names: Mapping[str, str] | None = None,
    level: float = 0.95,
    **named: Any,
) -> Joint:
    r"""Joins abilities from several sources: responses, comparisons, any scores.

    With source s, :math:`y_{is} = m_s + t_{is} + e_{is}`. Errors e have the covariance
    that the source has, true abilities :math:`t_i \sim N(0, \Sigma)`. Sigma is
    estimated by restricted maximum likelihood (`comparisons.sources`).

    Args:
        measured: Responses, then comparisons: a `ResponseTable` or a fit of one, a
            `ComparisonTable` or a fit of one, or `Abilities`. Abilities of a fit are
            posterior means, of which the prior is taken away again.
        weights: Weight of each source in the shared ability; by default equal ones.
            With 0 a source, such as response length, still has its agreement.
        names: Names of models as the sources have them, to the common ones.
        level: Level of intervals; 1 - the false discovery rate.
        named: Sources by name, any number: `votes=arena, judge=abilities`.

    Returns:
        Shared abilities, agreement of the sources, and residuals.

    Raises:
        ValueError: If there is no source, one is of another kind or of several
            abilities, names are equal after renaming, or two sources have less than
            four common models.

    >>> rng = np.random.default_rng(1)
    >>> true = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], 60)
    >>> true[0] = 0, 3
    >>> seen, models = true + 0.2 * rng.normal(size=(60, 2)), np.arange(60).astype(str)
    >>> accuracy, votes = (Abilities(models, y, np.full(60, 0.2)) for y in seen.T)
    >>> joint = fit_jointly(accuracy=accuracy, votes=votes)
    >>> joint.agreement[0].lower < 0.9 < joint.agreement[0].upper
    True
    >>> joint.differences("votes")[0]["subject"]
    '0'
    """
    inputs = dict(zip(("responses", "comparisons"), measured, strict=False)) | named
    if len(measured) > 2:
        raise ValueError("name the sources if there are more than two: votes=, judge=")
    if not inputs:
        raise ValueError("fit_jointly needs a source: responses=, comparisons=")
    parts = {
        name: _renamed(_measured(x, name), names, name) for name, x in inputs.items()
    }
    parts, notes = _of_several(parts)
    _check_common(parts)
    labels = list(parts)
    models, subject = np.unique(
        np.concatenate([np.asarray(x.names, str) for x in parts.values()]),
        return_inverse=True,
    )
    # In standard deviations of each source, so that one tolerance suits all.
    unit = np.array([_spread(x, name) for name, x in parts.items()])
    source = np.repeat(np.arange(len(parts)), [len(x.names) for x in parts.values()])
    covariance = block_diag(*(_covariance(x) for x in parts.values()))
    value = np.concatenate([x.estimates for x in parts.values()])
    scale = unit[source]
    estimates = sources.SourceEstimates(
        value / scale, covariance / np.outer(scale, scale), source, subject.reshape(-1)
    )
    sigma, at = sources.maximum(estimates)
    deviation = np.sqrt(np.diagonal(sigma))
    flat = deviation < 1e-4
    warnings = tuple(
        f"errors explain all differences between models in {labels[s]}: its agreement"
        " with other sources is not identified"
        for s in np.flatnonzero(flat)
    )
    weight = _weights(weights, labels) / np.where(flat, np.inf, deviation)
    mean, posterior = sources.combination(estimates, sigma, at, weight)
    heading = f"{counted(len(models), 'model')} · {', '.join(labels)}"
    shared = Abilities(
        models, mean, posterior, level=level, heading=heading, noun="model"
    )
    return Joint(
        shared,
        _agreements(estimates, sigma, labels, level),
        _residuals(estimates, sigma, at, scale, models, labels),
        {
            name: (float(m), float(sd))
            for name, m, sd in zip(
                labels, at.means * unit, deviation * unit, strict=True
            )
        },
        at.value,
        level,
        warnings,
        notes,
    )


def _measured(source: Any, name: str) -> Abilities:
    """Estimates of a source whose errors do not depend on a prior."""
    if isinstance(source, ResponseTable):
        source = fit(source)
    if isinstance(source, ComparisonTable):
        source = fit_comparisons(source)
    if isinstance(source, Calibration):
        return without_prior(source)
    abilities = source.abilities if isinstance(source, (Arena, Joint)) else source
    if not isinstance(abilities, Abilities):
        raise ValueError(
            f"{name} is a {type(source).__name__}: give a ResponseTable, a"
            " ComparisonTable, a fit of one, or Abilities"
        )
    return abilities


def without_prior(calibration: Calibration) -> Abilities:
    r"""Abilities of a fit as their responses alone have them.

    A posterior mean e with variance s^2 under the prior N(m, p^2) is, where the
    likelihood is normal, that of an estimate :math:`m + (e - m) / r` with variance
    :math:`s^2 / r`, :math:`r = 1 - s^2 / p^2`. Loadings of shared errors are divided by
    r. The error of the scale of all abilities is left out: the joint scale is free.

    Raises:
        ValueError: If the fit has several abilities.

    >>> import irtjax
    >>> rng = np.random.default_rng(0)
    >>> odds = rng.normal(size=(60, 1)) - rng.normal(size=20)
    >>> right = rng.random((60, 20)) < 1 / (1 + np.exp(-odds))
    >>> calibration = irtjax.fit(irtjax.ResponseTable.from_arrays(right), "rasch")
    >>> wider = without_prior(calibration).estimates.std()
    >>> bool(wider > np.std(calibration.abilities.table["ability"]))
    True
    """
    if calibration.factor_names:
        raise ValueError(
            "a factor model has several abilities: give Abilities of one of them"
        )
    ability, total = floats(calibration.abilities.table, "ability", "ability_se")
    error, shared = without_scale(
        total, calibration.ability_shared, calibration.ability_scale
    )
    common = np.zeros((len(ability), 0)) if shared is None else np.asarray(shared)
    own = np.maximum(error**2 - np.sum(common**2, axis=1), 0)
    population = calibration.parameters.population
    mean, variance = float(population.mean), float(population.sd) ** 2
    if calibration.multilevel:
        variance = float(calibration.require(Structure).general_variance)
    informed = 1 - own / variance
    rows = np.flatnonzero(informed > LEAST_INFORMATION)  # NaN is not.
    share = informed[rows]
    loading = common[rows] / share[:, None]
    return Abilities(
        np.asarray(calibration.subject_names, str)[rows],
        mean + (ability[rows] - mean) / share,
        np.diag(own[rows] / share) + loading @ loading.T,
        level=calibration.level,
    )


def _renamed(part: Abilities, names: Mapping[str, str] | None, name: str) -> Abilities:
    """The abilities under common names."""
    common = [str((names or {}).get(str(x), x)) for x in part.names]
    values, counts = np.unique(common, return_counts=True)
    if counts.max(initial=1) > 1:
        raise ValueError(
            f"{name} has two models named {str(values[counts > 1][0])!r} after"
            " renaming: give them different names"
        )
    return dataclasses.replace(part, names=common)


def _of_several(parts: dict[str, Abilities]) -> tuple[dict[str, Abilities], tuple]:
    """Of very many models only those of several sources, and a note of it."""
    every = np.concatenate([np.asarray(x.names, str) for x in parts.values()])
    if len(every) <= MOST_ESTIMATES or len(parts) == 1:
        return parts, ()
    models, counts = np.unique(every, return_counts=True)
    several = models[counts > 1]
    note = f"{counted(int((counts == 1).sum()), 'model')} of one source are left out"
    chosen = {}
    for name, part in parts.items():
        rows = np.flatnonzero(np.isin(np.asarray(part.names, str), several))
        chosen[name] = Abilities(
            np.asarray(part.names)[rows],
            part.estimates[rows],
            _covariance(part)[np.ix_(rows, rows)],
        )
    return chosen, (note,)


def _check_common(parts: Mapping[str, Abilities]) -> None:
    """Refuses two sources of which too few models are the same."""
    labels = list(parts)
    for k, one in enumerate(labels):
        for other in labels[:k]:
            common = np.intersect1d(
                np.asarray(parts[one].names), np.asarray(parts[other].names)
            )
            if len(common) < FEWEST_COMMON:
                first, second = (
                    str(next(iter(parts[x].names), "")) for x in (other, one)
                )
                raise ValueError(
                    f"{other} and {one} have {counted(len(common), 'common model')} by"
                    f" name (such as {first!r} and {second!r}), and their agreement"
                    f" needs {FEWEST_COMMON}: rename with names="
                )


def _spread(part: Abilities, name: str) -> float:
    """Standard deviation of estimates."""
    spread = float(np.std(part.estimates))
    if not spread > 0:
        raise ValueError(f"all models have the same ability in {name}: leave it out")
    return spread


def _covariance(part: Abilities) -> np.ndarray:
    """`[subjects, subjects]` covariance of errors."""
    errors = part.covariance
    return np.diag(errors**2) if errors.ndim == 1 else errors


def _weights(weights: Mapping[str, float] | None, labels: list[str]) -> np.ndarray:
    """Weights of sources, whose sizes sum to 1."""
    for name in weights or {}:
        if name not in labels:
            raise ValueError(f"weights has {name!r}, not one of {', '.join(labels)}")
    values = np.array([(weights or {}).get(name, 1.0) for name in labels], float)
    if not (np.isfinite(values).all() and values.any()):
        raise ValueError("weights are not all finite, or all 0: give one above 0")
    return values / np.abs(values).sum()


def _agreements(
    estimates: sources.SourceEstimates,
    sigma: np.ndarray,
    labels: list[str],
    level: float,
) -> tuple[Agreement, ...]:
    """A row for each pair of sources."""
    deviation = np.sqrt(np.maximum(np.diagonal(sigma), 1e-12))
    correlation = np.clip(sigma / np.outer(deviation, deviation), -1, 1)
    rows = []
    for k, one in enumerate(labels):
        for j in range(k + 1, len(labels)):
            lower, upper = sources.correlation_interval(estimates, sigma, (k, j), level)
            counts = np.bincount(estimates.subject[np.isin(estimates.source, (k, j))])
            common = int((counts == 2).sum())
            value = float(correlation[k, j])
            rows.append(Agreement(one, labels[j], value, lower, upper, common))
    return tuple(rows)


def _residuals(
    estimates: sources.SourceEstimates,
    sigma: np.ndarray,
    at: sources.Likelihood,
    scale: np.ndarray,
    models: np.ndarray,
    labels: list[str],
) -> pa.Table:
    """The table of residuals, in units of each source."""
    import pyarrow as pa

    expected, residual, error = sources.residuals(estimates, sigma, at)
    rows = np.flatnonzero(np.isfinite(residual) & (error > 0))
    p_value = 2 * ndtr(-np.abs(residual[rows] / error[rows]))
    q_value = np.empty(len(rows))
    for s in range(len(labels)):
        inside = estimates.source[rows] == s
        q_value[inside] = benjamini_hochberg(p_value[inside])
    numbers = {
        "ability": estimates.value,
        "ability_se": np.sqrt(np.diagonal(estimates.covariance)),
        "expected": expected,
        "residual": residual,
        "residual_se": error,
    }
    columns = {name: x[rows] * scale[rows] for name, x in numbers.items()}
    return pa.table(
        {
            "subject": models[estimates.subject[rows]].tolist(),
            "source": [labels[s] for s in estimates.source[rows]],
            **columns,
            "p_value": p_value,
            "q_value": q_value,
        }
    )
