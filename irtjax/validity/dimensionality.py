r"""How many abilities responses measure: four answers from one set of fits.

- **Held-out cells.** Models of 0, 1, ... factors are fitted to the cells outside each
  of five folds; what counts is the mean log-likelihood of the cells in it. 0 factors
  are the items' proportions. The number chosen is the smallest whose loss against the
  best is at most one standard error of it, over the folds. It is 1 in place of 0 where
  one factor orders these cells better by two standard errors of the area under the
  curve: with few subjects predictions are in order, but surer than they should be.
- **JIC** (Chen and Li 2022): -2 l_K + K max(N, J) log(n / max(N, J)), l_K the joint
  log-likelihood and n the observed cells.
- **Parallel analysis** (Horn 1965): eigenvalues of the tetrachoric correlations above
  the 95 % quantile of those with each item's responses permuted over subjects.
- **The rank at the penalty of noise** (`estimators.noise_rank`): noise is simulated
  from the fit of the number chosen by held-out cells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import RandomKey
from irtjax.data import read
from irtjax.data.frames import HasTable
from irtjax.data.scores import MAJORITY, as_majority
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.estimators.folds import FOLDS, Folds, Losses, folds_of, losses
from irtjax.estimators.noise_rank import GLOBAL, fit_factors, noise_rank
from irtjax.models.factors import FEWEST_ITEMS
from irtjax.models.families.bounded import binary_items
from irtjax.numerics.memory import require_memory
from irtjax.numerics.precision import full_precision
from irtjax.numerics.progress import watched
from irtjax.numerics.random_keys import as_key
from irtjax.validity.tetrachoric import Solved, tetrachoric

if TYPE_CHECKING:
    import pyarrow as pa

#: Permutations of parallel analysis, and the quantiles of their eigenvalues: those of
#: the band of the figure, the second of which an eigenvalue must exceed.
PERMUTATIONS, QUANTILES = 20, (0.05, 0.95)
#: Items up to which tetrachoric correlations are computed, of a random subset beyond.
MOST_ITEMS = 300
#: Responses that a pair of items has in common on average, beyond which subjects are
#: drawn: the error of a correlation is 0.013. With 50,000 subjects all took a minute.
ENOUGH_PAIRED = 10_000
#: Bytes of a cell of these items: 200,000 x 300 took 33.
PARALLEL_BYTES = 34.0
#: Largest number of factors that is tried where none is given, and the share of the
#: subjects or items, the fewer of them, below which it stays: a matrix of half its rank
#: is no simpler than the responses.
MOST, MOST_SHARE = 8, 0.5
#: Standard errors of the area under the curve by which one factor is better than none.
ORDERED = 2.0
#: Items from which Lanczos's method finds the leading eigenvalues.
LANCZOS = 100
#: Share of the pairs of items without a correlation, each taken as 0, from which
#: eigenvalues are those of the missing responses and are left out.
FEW_PAIRS = 0.5


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dimensions(HasTable):
    """Evidence on the number of factors.

    Attributes:
        table: A row for 0, 1, ... factors: `factors`, `held_out` (mean log-likelihood
            of held-out cells, nats), `loss` against the best with `loss_se`, `auc` of
            held-out cells (None if all are right, or all wrong), `log_likelihood`,
            `jic`, `eigenvalue` of the correlation matrix with the 5 and 95 % quantiles
            of permuted responses, `eigenvalue_permuted_lower` and
            `eigenvalue_permuted`, None without parallel analysis.
        chosen: By held-out cells with the one-standard-error rule; 1 in place of 0
            where one factor orders them better.
        best: With the highest held-out log-likelihood.
        by_jic: With the lowest JIC.
        by_parallel: Leading eigenvalues above those of permuted responses; None where
            most pairs of items have too few responses in common.
        by_penalty: Rank at the penalty of noise.
        certificate: q of that fit; None where items or subjects carry no signal.
        notes: What was left out.
        by_order: Whether 1 was chosen in place of 0.
    """

    title = "Number of factors"
    columns = ("factors", "held_out", "loss", "loss_se", "auc", "jic", "eigenvalue")
    columns += ("eigenvalue_permuted",)

    table: pa.Table
    chosen: int
    best: int
    by_jic: int
    by_parallel: int | None
    by_penalty: int
    certificate: float
    notes: tuple[str, ...] = ()
    by_order: bool = False

    @property
    def most(self) -> int:
        """Largest number of factors that was tried."""
        return self.table.num_rows - 1

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        noun = "factor" if self.chosen == 1 else "factors"
        head = (
            f"Use {self.chosen} {noun}: more do not predict held-out responses better"
            " by a standard error."
        )
        if self.by_order:
            none, one = self.table["auc"].to_pylist()[:2]
            head = (
                "Use 1 factor: it orders held-out responses better than none (area"
                f" under the curve {one:.2f} against {none:.2f}), but its predictions"
                " are too sure, as with few subjects."
            )
        elif self.chosen == self.most:
            head = (
                f"Use {self.chosen} {noun} or more: fewer predict held-out responses"
                f" worse by a standard error, and {self.most} is the largest number"
                " tried, so try more."
            )
        parallel = (
            "no parallel analysis"
            if self.by_parallel is None
            else f"parallel analysis {self._up_to(self.by_parallel)}"
        )
        proof = "" if self.certificate <= GLOBAL else ", not shown to be the best fit"
        return (
            f"{head} (Best {self._up_to(self.best)}; JIC {self._up_to(self.by_jic)};"
            f" {parallel}; rank at the penalty of noise"
            f" {self._up_to(self.by_penalty)}{proof}.)"
        )

    def _up_to(self, count: int) -> str:
        """A number of factors; the largest that was tried is a lower bound."""
        return f"at least {count}" if count == self.most else f"{count}"


@full_precision
def dimensions(
    data: ResponseTable | Any,
    *,
    most: int | None = None,
    key: RandomKey | None = None,
    progress: Callable[[str], None] | None = None,
) -> Dimensions:
    """Estimates how many abilities right and wrong responses measure.

    One compiled program serves every number of factors and every fold: factors are
    left out, and cells held out, by masks.

    Args:
        data: A `ResponseTable`, or anything `irtjax.read` takes.
        most: Largest number of factors; None for 8, or fewer than half as many as
            there are subjects and items, the fewer of them.
        key: A whole number or a JAX key, for folds and permutations; a fixed one when
            None.
        progress: Called with what is being done.

    Returns:
        The evidence.

    Raises:
        ValueError: If responses are not right or wrong, there are fewer subjects or
            items than factors, fewer than three items vary, a fold has no response, or
            the memory does not suffice.

    >>> rng = np.random.default_rng(0)
    >>> ability, easy = rng.normal(size=(60, 1)), rng.normal(size=12)
    >>> right = rng.random((60, 12)) < 1 / (1 + np.exp(-2 * ability - easy))
    >>> number = dimensions(ResponseTable.from_arrays(right), most=2)
    >>> number.chosen, number.table.num_rows
    (1, 3)
    """
    table = data if isinstance(data, ResponseTable) else read(data)
    if most is None:
        fewest = min(table.num_subjects, table.num_items)
        most = min(MOST, max(1, int(np.ceil(MOST_SHARE * fewest)) - 1))
    of_counts: list[str] = []
    if table.trials is not None and binary_items(table).all():
        table, of_counts = as_majority(table), [MAJORITY]
    _check(table, most)
    report = progress or (lambda text: None)
    key = as_key(key)
    fold_key, noise_key, key = jax.random.split(key, 3)
    dtype = jnp.zeros(()).dtype
    folds = folds_of(table, fold_key, what="dimensions")
    if table.sparse is not None:
        # A dense table needs more for its fits.
        _check_parallel(table)
    responses = folds.whole
    # Each takes about as long as a fold does.
    parts = iter(watched([*range(FOLDS), "all cells", "parallel analysis", "rank"]))
    out = _held_out(folds, most, report, parts)
    next(parts)
    report("all cells")
    heights = np.empty(most + 1)
    heights[0] = folds.log_likelihood_of_means()
    fits = [fit_factors(responses, size, most, dtype) for size in watched(out.sizes)]
    heights[1:] = [float(fit.log_lik) for fit in fits[1:]]
    large, count = max(table.num_subjects, table.num_items), folds.num_observed
    jic = -2 * heights + np.arange(most + 1) * large * np.log(max(count / large, 1))
    next(parts)
    report("parallel analysis")
    eigenvalues, permuted, notes = _parallel(table, most, key)
    by_parallel = None
    if len(eigenvalues):
        above = eigenvalues > permuted[1]
        by_parallel = int(above.argmin()) if not above.all() else len(above)
    next(parts)
    report("rank at the penalty of noise")
    proof = noise_rank(responses, fits[out.chosen], most, dtype, noise_key)
    next(parts, None)
    return Dimensions(
        _rows(out, heights, jic, eigenvalues, permuted),
        out.chosen,
        out.losses.best,
        int(jic.argmin()),
        by_parallel,
        proof.rank,
        proof.certificate,
        (*of_counts, *notes),
        out.chosen > out.losses.chosen,
    )


class _HeldOut(NamedTuple):
    """`[folds, most + 1]` log-likelihoods of held-out cells, and areas under curves."""

    height: np.ndarray
    area: np.ndarray

    @property
    def sizes(self) -> range:
        """Numbers of factors."""
        return range(self.height.shape[1])

    @property
    def mean_area(self) -> list[float | None]:
        """Means over the folds that have right and wrong responses; None without."""
        finite = ~np.isnan(self.area).any(axis=1)
        if not finite.any():
            return [None] * len(self.sizes)
        return self.area[finite].mean(axis=0).tolist()

    @property
    def losses(self) -> Losses:
        """The numbers compared; `chosen` are the fewest factors close to the best."""
        return losses(self.height)

    @property
    def chosen(self) -> int:
        """The fewest factors close to the best, 1 in place of 0 where it orders."""
        chosen, gain = self.losses.chosen, self.area[:, 1] - self.area[:, 0]
        gain = gain[~np.isnan(gain)]
        if chosen or len(gain) < 2:
            return chosen
        error = gain.std(ddof=1) / len(gain) ** 0.5
        return int(gain.mean() > ORDERED * error)


def _held_out(folds: Folds, most: int, report, parts: Iterator) -> _HeldOut:
    """Fits each number of factors without each fold of cells, and predicts these."""
    dtype = jnp.zeros(()).dtype
    held_out = _HeldOut(np.empty((FOLDS, most + 1)), np.empty((FOLDS, most + 1)))
    for k in range(FOLDS):
        next(parts)
        training = folds.without(k)
        for size in watched(held_out.sizes):
            report(f"fold {k + 1} of {FOLDS}, {counted(size, 'factor')}")
            fit = fit_factors(training, size, most, dtype) if size else None
            held_out.height[k, size], held_out.area[k, size] = folds.judge(
                k, training, fit
            )
    return held_out


def _rows(out: _HeldOut, heights, jic, eigenvalues, permuted) -> pa.Table:
    """The table of the evidence, a row for each number of factors."""
    import pyarrow as pa

    most = len(heights) - 1
    _, loss, loss_se = out.losses
    blank = lambda x: pa.array([None, *x][: most + 1] + [None] * (most - len(x)))
    return pa.table(
        {
            "factors": list(out.sizes),
            "held_out": out.height.mean(axis=0),
            "loss": loss,
            "loss_se": loss_se,
            "auc": out.mean_area,
            "log_likelihood": heights,
            "jic": jic,
            "eigenvalue": blank(eigenvalues.tolist()),
            "eigenvalue_permuted_lower": blank(permuted[0].tolist()),
            "eigenvalue_permuted": blank(permuted[1].tolist()),
        }
    )


def _check(table: ResponseTable, most: int) -> None:
    """Refuses other responses than right and wrong, and too many factors."""
    if table.kind != "binary" or table.trials is not None:
        raise ValueError(
            f"dimensions needs responses that are right or wrong, not {table.kind}:"
            " choose a 0/1 metric"
        )
    limit = min(table.num_subjects, table.num_items) - 1
    if not 1 <= most <= limit:
        raise ValueError(
            f"most {most}: give 1 to {limit} factors for {table.num_subjects} subjects"
            f" and {table.num_items} items"
        )
    right, seen = table.stored.sum(0), table.stored.count(0)
    varied = int(((right > 0) & (right < seen)).sum())
    if varied < FEWEST_ITEMS:
        raise ValueError(
            f"dimensions needs {FEWEST_ITEMS} items that some subjects have right and"
            f" others wrong; there {'is' if varied == 1 else 'are'} {varied} of"
            f" {table.num_items}"
        )


def _check_parallel(table: ResponseTable) -> None:
    """Refuses subjects whose matrix of the items of parallel analysis does not fit."""
    items = min(table.num_items, MOST_ITEMS)
    size = f"{table.num_subjects:,} subjects by {items:,} items"
    need = PARALLEL_BYTES * table.num_subjects * items
    require_memory(need, f"parallel analysis of {size}", "select fewer subjects")


def _parallel(table: ResponseTable, most: int, key):
    """Leading eigenvalues of tetrachoric correlations, and the permuted quantiles.

    All are empty without parallel analysis, and the notes have the reason.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    right, seen = table.stored.sum(0), table.stored.count(0)
    places, notes = np.flatnonzero((right > 0) & (right < seen)), []
    if len(places) < table.num_items:
        left = table.num_items - len(places)
        notes.append(
            f"parallel analysis leaves out {counted(left, 'item')} without variation"
        )
    if len(places) > MOST_ITEMS:
        notes.append(
            f"parallel analysis is of {counted(MOST_ITEMS, 'item')} drawn at random"
        )
        places = np.sort(rng.choice(places, MOST_ITEMS, replace=False))
    part = table.select(items=places)
    share = part.num_observed / (part.num_subjects * part.num_items)
    enough = int(ENOUGH_PAIRED / max(share, 1e-9) ** 2)
    if enough < part.num_subjects:
        drawn = np.sort(rng.choice(part.num_subjects, enough, replace=False))
        part = part.select(subjects=drawn)
        notes.append(f"parallel analysis is of {enough:,} subjects drawn at random")

    solved = Solved()
    correlation = tetrachoric(part, solved)
    pairs = correlation[np.triu_indices(len(correlation), 1)]
    unknown = float(np.isnan(pairs).mean()) if pairs.size else 0.0
    if unknown > FEW_PAIRS:
        why = (
            f"no parallel analysis: {unknown:.0%} of the pairs of items have no"
            " correlation, since too few subjects have responses to both"
        )
        return np.empty(0), np.empty((2, 0)), [why]
    draws = []
    for _ in watched(range(PERMUTATIONS), "permutation"):
        # Each item's responses and missing cells move together: its margin stays.
        rows = np.tile(np.arange(part.num_subjects)[:, None], part.num_items)
        order = rng.permuted(rows, axis=0)
        values = np.take_along_axis(part.values, order, 0)
        seen = None
        if part.observed is not None:
            seen = np.take_along_axis(part.observed, order, 0)
        moved = part.replace(values=values, observed=seen)
        draws.append(_leading(tetrachoric(moved, solved), most))
    quantiles = np.quantile(draws, QUANTILES, axis=0)
    return _leading(correlation, most), quantiles, notes


def _leading(correlation: np.ndarray, most: int) -> np.ndarray:
    """The largest eigenvalues, in descending order; a missing correlation is 0.

    Of many items by Lanczos's method: LAPACK's eigenvalues of 300 took 0.01 s, but 0.9
    s where its threads waited for those of JAX.
    """
    matrix = np.nan_to_num(correlation)
    if len(matrix) < LANCZOS:
        return np.linalg.eigvalsh(matrix)[::-1][:most]
    from scipy.sparse.linalg import eigsh

    first = np.ones(len(matrix))
    eigenvalues = eigsh(matrix, most, which="LA", v0=first, return_eigenvectors=False)
    return np.sort(eigenvalues)[::-1]
