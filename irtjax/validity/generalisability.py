r"""Generalisability theory: variance components of scores, and designs that measure.

A score is a sum of random effects, one for each set of facets that are crossed,

.. math::

    y = \mu + u_p + u_i + u_r + u_{pi} + u_{pr} + u_{ir} + e,

p the object of measurement (subjects) and i, r facets such as items and raters; a facet
that is nested (items in benchmarks) occurs only with the one around it. The components,
variances of the effects, are those of the expected mean squares where the design is
complete and no mean square is too small, which is where restricted maximum likelihood
has its maximum; else they maximise that likelihood by its average information
(Gilmour, Thompson and Cullis 1995, Biometrics 51). Brennan (2001), Generalizability
Theory; AIMS, chapter on reliability.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from irtjax.data.frames import HasTable
from irtjax.data.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

#: Iterations of restricted likelihood; ten are usual.
MOST_ITERATIONS = 100
#: Relative change of the components at which they are final.
TOLERANCE = 1e-8
#: Levels of all effects but those of the largest facet, of which equations are dense.
MOST_LEVELS = 8_000
#: Designs that are compared at the most.
MOST_DESIGNS = 20_000
#: What is not explained by the effects, as a component.
RESIDUAL = "residual"


class Effects(NamedTuple):
    """Random effects of a design.

    Attributes:
        names: Facets of each effect, such as ("subject",), ("item",); outer facets of a
            nested one are among them.
        codes: Level of each effect at each score, `[scores]` each.
        sizes: Number of levels of each effect.
    """

    names: tuple[tuple[str, ...], ...]
    codes: tuple[np.ndarray, ...]
    sizes: tuple[int, ...]


class VarianceComponents(NamedTuple):
    """Variance components.

    Attributes:
        variances: `[effects + 1]`, the residual last; never below 0.
        covariance: Of the estimates, `[effects + 1, effects + 1]`.
        mean: The grand mean.
        log_likelihood: Restricted log-likelihood.
        converged: Whether the iterations ended by themselves.
    """

    variances: np.ndarray
    covariance: np.ndarray
    mean: float
    log_likelihood: float
    converged: bool


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Generalisability(HasTable):
    """Variance components of scores, and coefficients of designs.

    Attributes:
        table: A row for each component: `component`, `levels`, `variance`,
            `variance_se`, `share` of the sum.
        covariance: Of the variances, in the order of the rows.
        facets: Facets beside the object, in the order of `sizes`.
        subject: Name of the object of measurement.
        sizes: Levels of each facet in the data: the mean number for an object of one
            that is missing in part, for each outer level of one that is nested.
        nested: The facet around each nested one.
        mean: The grand mean.
        log_likelihood: Restricted log-likelihood.
        warnings: Reasons to doubt it.
    """

    title = "Variance components"

    table: pa.Table
    covariance: np.ndarray
    facets: tuple[str, ...]
    subject: str
    sizes: Mapping[str, float]
    nested: Mapping[str, str]
    mean: float
    log_likelihood: float
    warnings: tuple[str, ...] = ()

    @property
    def variances(self) -> dict[str, float]:
        """Variance by component."""
        names = self.table["component"].to_pylist()
        return dict(zip(names, self.table["variance"].to_pylist(), strict=True))

    def design(self, **sizes: float) -> MeasurementDesign:
        r"""Coefficients of a design with so many levels of each facet.

        The error of a comparison has the variance
        :math:`\sigma^2_\delta = \sum_k \sigma^2_k / n_k` over components that the
        object shares with facets, n_k the product of their sizes; the error of a score
        as such, :math:`\sigma^2_\Delta`, those of facets alone too. Then
        :math:`E\rho^2 = \sigma^2_p / (\sigma^2_p + \sigma^2_\delta)`, and
        :math:`\Phi` with :math:`\sigma^2_\Delta` (Brennan 2001, 4.20 and 4.21).

        Args:
            **sizes: Levels by facet; those of the data where left out. Of a nested
                facet, levels within each outer one.

        Raises:
            ValueError: A facet is not one of the design, or a size is below 1.

        >>> rng = np.random.default_rng(0)
        >>> right = rng.random((40, 1)) > rng.random((40, 9)) * rng.random(9)
        >>> study = generalisability(right)
        >>> study.design(item=90).coefficient > study.design().coefficient
        True
        """
        for name, size in sizes.items():
            if name not in self.facets:
                facets = ", ".join(self.facets)
                raise ValueError(f"{name!r} is not one of the facets: {facets}")
            if not size >= 1:
                raise ValueError(f"a design needs 1 or more of {name}, not {size}")
        sizes = {**self.sizes, **sizes}
        relative, absolute = self._weights(sizes)
        variances = np.array(self.table["variance"].to_pylist())
        own = float(variances[self._place((self.subject,))])
        small, large = float(relative @ variances), float(absolute @ variances)
        gradient = -own * relative
        gradient[self._place((self.subject,))] += small
        total = max(own + small, 1e-300)
        error = math.sqrt(max(gradient @ self.covariance @ gradient, 0)) / total**2
        whole = max(own + large, 1e-300)
        return MeasurementDesign(
            {name: sizes[name] for name in self.facets},
            own / total,
            error,
            own / whole,
            math.sqrt(small),
            math.sqrt(large),
        )

    def designs(
        self,
        sizes: Mapping[str, Sequence[float]],
        costs: Mapping[str, float] | None = None,
        target: float | None = None,
    ) -> pa.Table:
        """Designs of all these sizes, cheapest first, else in the order of sizes.

        The cost of a design is that of each facet times its levels and those of the
        facets before it: of `{"item": 1, "rater": 2}` n_i + 2 n_i n_r. With a `target`,
        the designs whose standard error of a comparison is at most that.

        Raises:
            ValueError: A facet is not one of the design, there are more than
                `MOST_DESIGNS`, or none has the target.
        """
        import pyarrow as pa

        names = [name for name in self.facets if name in sizes]
        number = math.prod(len(sizes[name]) for name in names)
        if number > MOST_DESIGNS:
            raise ValueError(f"{number:,} designs are too many: give fewer sizes")
        for name in [*sizes, *(costs or {})]:
            if name not in self.facets:
                facets = ", ".join(self.facets)
                raise ValueError(f"{name!r} is not one of the facets: {facets}")
        rows = []
        for chosen in itertools.product(*(sizes[name] for name in names)):
            design = self.design(**dict(zip(names, chosen, strict=True)))
            row: dict[str, Any] = dict(design.sizes)
            if costs:
                row["cost"] = _cost(design.sizes, costs)
            row |= {
                "coefficient": design.coefficient,
                "coefficient_se": design.coefficient_se,
                "dependability": design.dependability,
                "relative_error": design.relative_error,
                "absolute_error": design.absolute_error,
            }
            rows.append(row)
        if target is not None:
            least = min(row["relative_error"] for row in rows)
            rows = [row for row in rows if row["relative_error"] <= target]
            if not rows:
                raise ValueError(
                    f"no design has a standard error of {target:g}; the least is"
                    f" {least:.3g}: give larger sizes"
                )
        if costs:
            rows.sort(key=lambda row: (row["cost"], row["relative_error"]))
        return pa.Table.from_pylist(rows)

    def _place(self, names: tuple[str, ...]) -> int:
        """Row of the component with these facets."""
        return self.table["component"].to_pylist().index(" × ".join(names))

    def _weights(self, sizes: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """Factors of each component in the relative and in the absolute error."""
        number = lambda name: (
            sizes[name] * (number(self.nested[name]) if name in self.nested else 1)
        )
        relative, absolute = [], []
        for component in self.table["component"].to_pylist():
            names = component.split(" × ")
            if component == RESIDUAL:
                names = [self.subject, *self.facets]
            facets = [name for name in names if name != self.subject]
            inner = {self.nested[name] for name in facets if name in self.nested}
            weight = 1 / math.prod(number(x) for x in facets if x not in inner)
            weight = weight if facets else 0.0
            relative.append(weight if self.subject in names else 0.0)
            absolute.append(weight)
        return np.array(relative), np.array(absolute)


class MeasurementDesign(NamedTuple):
    """A design and how well it measures.

    Attributes:
        sizes: Levels by facet.
        coefficient: Generalisability coefficient, of comparisons.
        coefficient_se: Its standard error.
        dependability: Index of dependability, of scores as such.
        relative_error: Standard error of a comparison with the mean of all objects.
        absolute_error: Standard error of a score.
    """

    sizes: dict[str, float]
    coefficient: float
    coefficient_se: float
    dependability: float
    relative_error: float
    absolute_error: float


def _cost(sizes: Mapping[str, float], costs: Mapping[str, float]) -> float:
    """Cost of a design: each facet's times its levels and those of facets before."""
    total, levels = 0.0, 1.0
    for name, size in sizes.items():
        levels *= size
        total += costs.get(name, 0.0) * levels
    return total


def generalisability(
    data: Any,
    facets: Sequence[str] = ("item",),
    *,
    subject: str = "subject",
    score: str = "score",
    nested: Mapping[str, str] | None = None,
) -> Generalisability:
    """Estimates variance components of scores: a G study.

    Args:
        data: A long table with a row for each score (an Arrow table, or columns by
            name), or a matrix `[subjects, items]` with NaN where missing, whose facet
            is "item".
        facets: Columns of the facets, such as "item", "rater".
        subject: Column of the object of measurement.
        score: Column of the scores.
        nested: The facet around each nested one: `{"item": "benchmark"}`.

    Returns:
        The components; `design` and `designs` tell how other designs would measure.

    Raises:
        ValueError: A column is missing, a score is not a number, a facet has one level,
            no subject has two scores, or there are too many levels to separate.

    >>> rng = np.random.default_rng(0)
    >>> skill, items = rng.normal(size=(100, 1)), rng.normal(size=20)
    >>> study = generalisability(skill + items + rng.normal(size=(100, 20)))
    >>> study.table["component"].to_pylist()
    ['subject', 'item', 'residual']
    """
    labels, scores = _columns(data, (subject, *facets), score)
    nested = dict(nested or {})
    for inner, outer in nested.items():
        if inner not in facets or outer not in facets:
            raise ValueError(
                f"nested {inner!r} in {outer!r}: both must be facets,"
                f" facets={[*facets]!r}"
            )
    codes = {}
    for name in (subject, *facets):
        code = labels[name]
        if name in nested:
            outer = labels[nested[name]]
            code = _numbered(outer * (int(code.max()) + 1) + code)
        codes[name] = code
        if code.max() < 1:
            raise ValueError(
                f"{name} has one level: leave it out, or give scores of more"
            )
    effects = _effects(codes, subject, facets, nested)
    estimated = variance_components(scores, effects)
    return _result(estimated, effects, codes, subject, tuple(facets), nested)


def _columns(
    data: Any, names: tuple[str, ...], score: str
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Numbers of labels by column, and scores, of the rows that have a score."""
    import pyarrow as pa

    if isinstance(data, (np.ndarray, list, tuple)):
        matrix = np.asarray(data, float)
        if matrix.ndim != 2 or names[1:] != ("item",):
            raise ValueError(
                "a matrix of scores has two dimensions, and its facet is 'item': give"
                " a long table for other facets"
            )
        present = np.isfinite(matrix)
        place = np.nonzero(present)
        codes = [_numbered(x) for x in place]
        return dict(zip(names, codes, strict=True)), _checked(matrix[present], score)
    columns = {}
    for name in (*names, score):
        labels = data.column_names if isinstance(data, pa.Table) else [*data]
        if name not in labels:
            others = ", ".join(labels)
            raise ValueError(
                f"there is no column {name!r}; there are {others}: name one of these"
            )
        column = data[name]
        column = column if isinstance(column, pa.ChunkedArray) else pa.array(column)
        columns[name] = column
    try:
        scores = columns[score].cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowException, TypeError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"column {score!r} has no numbers: {text}") from None
    present = np.isfinite(scores)
    codes = {}
    for name in names:
        labels = columns[name].filter(pa.array(present))
        if labels.null_count:
            raise ValueError(f"column {name!r} has rows without a label: fill them in")
        encoded = labels.dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = pa.concat_arrays(encoded.chunks)
        codes[name] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, _checked(scores[present], score)


def _checked(scores: np.ndarray, name: str) -> np.ndarray:
    """The scores, if there are two different ones."""
    if not len(scores) or scores.min() == scores.max():
        raise ValueError(f"all scores of {name!r} are the same: nothing varies")
    return scores


def _numbered(code: np.ndarray) -> np.ndarray:
    """Codes as numbers from 0."""
    return np.unique(code, return_inverse=True)[1].reshape(-1)


def _effects(
    codes: Mapping[str, np.ndarray],
    subject: str,
    facets: Sequence[str],
    nested: Mapping[str, str],
) -> Effects:
    """All interactions that have more scores than levels; the last is the residual."""
    names, levels, sizes = [], [], []
    everything = (subject, *facets)
    number = len(codes[subject])
    for count in range(1, len(everything) + 1):
        for chosen in itertools.combinations(everything, count):
            if any(x in nested and nested[x] not in chosen for x in chosen):
                continue
            code = np.zeros(number, np.int64)
            for name in chosen:
                code = code * (int(codes[name].max()) + 1) + codes[name]
            used, place = np.unique(code, return_inverse=True)
            if len(used) < number:
                names.append(chosen)
                levels.append(place.reshape(-1))
                sizes.append(len(used))
    if (subject,) not in names:
        raise ValueError(f"no {subject} has two scores: reliability needs some")
    effects = Effects(tuple(names), tuple(levels), tuple(sizes))
    _check_crossed(effects, subject, nested)
    return effects


def _check_crossed(effects: Effects, subject: str, nested: Mapping[str, str]) -> None:
    """Refuses two effects with the same levels, whose variances have only a sum."""
    for one, other in itertools.combinations(range(len(effects.names)), 2):
        size = effects.sizes[one]
        pairs = effects.codes[one] * effects.sizes[other] + effects.codes[other]
        if size != effects.sizes[other] or len(np.unique(pairs)) != size:
            continue
        first, second = effects.names[one], effects.names[other]
        facets = [x for x in (*second, *first) if (x in first) != (x in second)]
        outer = [x for x in facets if x != subject]
        inside = len(first) == 1 and {*first, *outer} == {*second}
        if inside and outer[0] not in nested:
            pair = {first[0]: outer[0]}
            cure = f"each {first[0]} has one {outer[0]}, so give nested={pair!r}"
        else:
            cure = f"leave out {outer[0] if outer else first[-1]}"
        raise ValueError(
            f"{' × '.join(first)} and {' × '.join(second)} have the same levels, so"
            f" that only the sum of their variances is identified: {cure}"
        )


class _Strata(NamedTuple):
    """Mean squares of a complete design, a row for each effect and the residual.

    Attributes:
        degrees: Degrees of freedom.
        mean_squares: Mean squares.
        expected: `[strata, components]`: factors of the variances in each expected
            mean square.
    """

    degrees: np.ndarray
    mean_squares: np.ndarray
    expected: np.ndarray


def _strata(scores: np.ndarray, effects: Effects) -> _Strata | None:
    """The strata of a complete design, or None where levels differ in numbers.

    The sum of squares of an effect is that of its means less those of the effects that
    are part of it; a score at a level of effect k shares it with n / levels others.
    """
    number = len(scores)
    for code, size in zip(effects.codes, effects.sizes, strict=True):
        if number % size or (np.bincount(code, minlength=size) * size != number).any():
            return None
    sets = [frozenset(), *map(frozenset, effects.names)]
    # Of effects with fewer scores than levels in the product, some cells are missing.
    by_set = dict(zip(sets[1:], effects.sizes, strict=True))
    for one, other in itertools.combinations(sets[1:], 2):
        union, meet = one | other, one & other
        if union in by_set and by_set[union] * by_set.get(meet, 1) != (
            by_set[one] * by_set[other]
        ):
            return None
    sums = [scores.sum() ** 2 / number]
    degrees, squares = [1.0], [sums[0]]
    for code, size in zip(effects.codes, effects.sizes, strict=True):
        sums.append(float(np.sum(np.bincount(code, scores, size) ** 2) * size / number))
    for place in range(1, len(sets)):
        parts = [k for k in range(place) if sets[k] < sets[place]]
        degrees.append(effects.sizes[place - 1] - sum(degrees[k] for k in parts))
        squares.append(sums[place] - sum(squares[k] for k in parts))
    degrees.append(number - sum(degrees))
    squares.append(float(scores @ scores) - sum(squares))
    degree, square = np.array(degrees[1:]), np.maximum(squares[1:], 0)
    if (degree <= 0).any():
        return None
    expected = np.zeros((len(degree), len(degree)))
    expected[:, -1] = 1
    for k, size in enumerate(effects.sizes):
        for row in range(k + 1):
            if sets[row + 1] <= sets[k + 1]:
                expected[row, k] = number / size
    return _Strata(degree, square / degree, expected)


def _of_strata(strata: _Strata, mean: float) -> VarianceComponents:
    """The variances with the highest restricted likelihood of a complete design.

    Mean squares are independent multiples of chi-squared variables. Their equations are
    solved; where a variance were negative, the likelihood is maximised over the others.
    """
    degrees, squares, expected = strata
    variances = np.linalg.solve(expected, squares)
    free = np.ones(len(variances), bool)
    floor = 1e-12 * max(squares.max(), 1e-300)

    def information(variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        level = np.maximum(expected @ variances, floor)
        slope = 0.5 * degrees * (squares / level - 1) / level
        weight = 0.5 * degrees / level**2
        return expected.T @ slope, (expected.T * weight) @ expected

    if (variances < 0).any():
        variances = np.maximum(variances, 0)
        variances[-1] = max(variances[-1], floor)
        for _ in range(MOST_ITERATIONS):
            gradient, bend = information(variances)
            free = (variances > 0) | (gradient > 0)
            step = np.zeros_like(variances)
            step[free] = np.linalg.solve(bend[np.ix_(free, free)], gradient[free])
            new = np.maximum(variances + step, 0)
            new[-1] = max(new[-1], 0.1 * variances[-1])
            change = np.abs(new - variances).max()
            variances = new
            if change <= TOLERANCE * variances.sum():
                break
        free = variances > 0
    bend = information(variances)[1]
    covariance = np.zeros_like(bend)
    if squares.max() > 0:
        covariance[np.ix_(free, free)] = np.linalg.inv(bend[np.ix_(free, free)])
    level = np.maximum(expected @ variances, floor)
    log_likelihood = -0.5 * float(degrees @ (np.log(level) + squares / level))
    number = degrees.sum() + 1
    log_likelihood -= 0.5 * (math.log(number) + (number - 1) * math.log(2 * math.pi))
    return VarianceComponents(variances, covariance, mean, log_likelihood, True)


def variance_components(scores: np.ndarray, effects: Effects) -> VarianceComponents:
    """Variances of effects by restricted maximum likelihood.

    Args:
        scores: `[scores]`.
        effects: The random effects; the residual is that of the scores.

    Raises:
        ValueError: The design is incomplete and has too many levels.
    """
    mean = float(np.mean(scores))
    # VarianceComponents do not depend on the mean; sums of squares lose digits by it.
    strata = _strata(scores - mean, effects)
    if strata is not None:
        return _of_strata(strata, mean)
    return _Equations(scores - mean, effects).maximise(mean)


class _Equations:
    """Henderson's mixed model equations, without the effect of the most levels.

    Its part of the matrix is diagonal and is eliminated, so that what is inverted has a
    row for each level of the others.
    """

    def __init__(self, scores: np.ndarray, effects: Effects) -> None:
        order = sorted(range(len(effects.sizes)), key=lambda k: effects.sizes[k])
        self.order, self.number = order, len(scores)
        sizes = [1, *(effects.sizes[k] for k in order)]
        codes = [np.zeros(self.number, int), *(effects.codes[k] for k in order)]
        rest = sum(sizes[:-1])
        if rest > MOST_LEVELS:
            raise ValueError(
                f"scores are missing, and effects have {rest:,} levels without the"
                f" largest, above {MOST_LEVELS:,}: leave out a facet, or draw a sample"
                " of its levels"
            )
        ones, places = np.ones(self.number), np.arange(self.number)
        make = lambda code, size: sparse.csr_array(
            (ones, (places, code)), (self.number, size)
        )
        parts = [make(*x) for x in zip(codes, sizes, strict=True)]
        self.sizes, self.scores = np.array(sizes[1:]), scores
        self.bounds = np.cumsum([0, *sizes])
        self.dense = sparse.hstack(parts[:-1]).tocsr()
        self.large = parts[-1]
        self.square = (self.dense.T @ self.dense).toarray()
        cross = self.dense.T @ self.large
        full = cross.nnz > 0.05 * math.prod(cross.shape)
        self.cross = cross.toarray() if full else cross.tocsr()
        self.count = np.bincount(codes[-1], minlength=sizes[-1]).astype(float)

    def products(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Z' times columns: of the dense effects and of the large one."""
        return self.dense.T @ columns, self.large.T @ columns

    def maximise(self, mean: float) -> VarianceComponents:
        """Average information steps, halved until the likelihood rises."""
        total = float(np.var(self.scores))
        floor = 1e-9 * max(total, 1e-300)
        variances = np.full(len(self.sizes) + 1, total / (len(self.sizes) + 1))
        variances = np.maximum(variances, floor)
        state = self.at(variances)
        converged = False
        for _ in range(MOST_ITERATIONS):
            gradient, bend = state.gradient, state.information.copy()
            free = (variances > floor) | (gradient > 0)
            step = np.zeros_like(variances)
            # Effects whose predictions are all next to 0 have no average information.
            least = 1e-4 * self.levels / (2 * variances**2)
            places = np.arange(len(variances))
            bend[places, places] = np.maximum(np.diag(bend), least)
            chosen = np.ix_(free, free)
            step[free] = np.linalg.lstsq(bend[chosen], gradient[free])[0]
            if step @ gradient < 0:  # Not an ascent: the step of EM.
                step = np.where(free, variances**2 * gradient * 2 / self.levels, 0)
            scale = 1.0
            while True:
                new = np.maximum(variances + scale * step, 0.05 * variances)
                new = np.maximum(new, floor)
                after = self.at(new)
                gain = after.log_likelihood - state.log_likelihood
                slack = 1e-12 * abs(state.log_likelihood)
                if gain >= -slack or scale < 1e-4:
                    break
                scale /= 2
            change = np.abs(new - variances).max() / new.sum()
            variances, state = new, after
            if change <= TOLERANCE:
                converged = True
                break
        # Variances that fall to 0 do so by a factor a step.
        inside = (variances > 1e-5 * variances.sum()) | (state.gradient > 0)
        covariance = np.zeros_like(state.information)
        chosen = np.ix_(inside, inside)
        covariance[chosen] = np.linalg.pinv(state.information[chosen])
        variances = np.where(inside, variances, 0)
        # In the order of the effects again, the residual last.
        back = np.empty(len(variances), int)
        back[[*self.order, len(self.order)]] = np.arange(len(variances))
        return VarianceComponents(
            variances[back],
            covariance[np.ix_(back, back)],
            mean + state.mean,
            state.log_likelihood,
            converged,
        )

    @property
    def levels(self) -> np.ndarray:
        """Levels of each effect, and scores."""
        return np.array([*self.sizes, self.number], float)

    def at(self, variances: np.ndarray) -> _Likelihood:
        """Restricted log-likelihood with gradient and average information."""
        *own, residual = variances
        small = np.repeat([0.0, *(1 / x for x in own[:-1])], [1, *self.sizes[:-1]])
        matrix = self.square / residual + np.diag(small)
        diagonal = self.count / residual + 1 / own[-1]
        inner = self.cross / residual
        reduced = inner * (1 / diagonal)[None, :]
        matrix = matrix - np.asarray(
            (reduced @ inner.T).toarray()
            if sparse.issparse(inner)
            else reduced @ inner.T
        )
        root = linalg.cholesky(matrix, lower=True)
        inverse = linalg.cho_solve((root, True), np.eye(len(matrix)))

        def solve(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Effects of right-hand sides Z' columns / residual."""
            left, right = (x / residual for x in self.products(columns))
            shape = (-1,) + (1,) * (columns.ndim - 1)
            divided = right / diagonal.reshape(shape)
            dense = inverse @ (left - inner @ divided)
            large = divided - (inner.T @ dense) / diagonal.reshape(shape)
            return dense, large

        fitted = lambda dense, large: self.dense @ dense + self.large @ large
        dense, large = solve(self.scores)
        error = self.scores - fitted(dense, large)
        traces = self._traces(inverse, reduced, diagonal)
        effects = [dense[a:b] for a, b in itertools.pairwise(self.bounds[1:-1])]
        effects.append(large)
        squares = np.array([float(x @ x) for x in effects])
        own = np.array(own)
        gradient = -0.5 * (self.sizes / own - (traces + squares) / own**2)
        left = self.number - 1 - np.sum(self.sizes - traces / own)
        last = -0.5 * (left / residual - float(error @ error) / residual**2)
        # Working variates V_k P y of the average information.
        places = [slice(a, b) for a, b in itertools.pairwise(self.bounds[1:-1])]
        work = [
            self.dense[:, x] @ dense[x] / v
            for x, v in zip(places, own[:-1], strict=True)
        ]
        work = np.stack([*work, self.large @ large / own[-1], error / residual], 1)
        projected = (work - fitted(*solve(work))) / residual
        log_det = 2 * np.log(np.diag(root)).sum() + np.log(diagonal).sum()
        log_det += float(self.sizes @ np.log(own)) + self.number * math.log(residual)
        log_det += (self.number - 1) * math.log(2 * math.pi)
        log_likelihood = -0.5 * (log_det + float(self.scores @ error) / residual)
        return _Likelihood(
            log_likelihood,
            np.array([*gradient, last]),
            0.5 * work.T @ projected,
            float(dense[0]),
        )

    def _traces(self, inverse: np.ndarray, reduced: Any, diagonal: np.ndarray):
        """Trace of the inverse of the equations at each effect."""
        own = np.diag(inverse)
        traces = [own[a:b].sum() for a, b in itertools.pairwise(self.bounds[1:-1])]
        product = inverse @ reduced
        if sparse.issparse(reduced):
            large = float(reduced.multiply(np.asarray(product)).sum())
        else:
            large = float(np.sum(product * reduced))
        return np.array([*traces, (1 / diagonal).sum() + large])


class _Likelihood(NamedTuple):
    """Restricted log-likelihood at some variances, and the mean there."""

    log_likelihood: float
    gradient: np.ndarray
    information: np.ndarray
    mean: float


def _result(
    estimated: VarianceComponents,
    effects: Effects,
    codes: Mapping[str, np.ndarray],
    subject: str,
    facets: tuple[str, ...],
    nested: Mapping[str, str],
) -> Generalisability:
    """The table of components, sizes of the facets in the data, and warnings."""
    import pyarrow as pa

    names = [" × ".join(x) for x in effects.names] + [RESIDUAL]
    variances = estimated.variances
    total = max(float(variances.sum()), 1e-300)
    table = pa.table(
        {
            "component": names,
            "levels": [*effects.sizes, len(codes[subject])],
            "variance": variances,
            "variance_se": np.sqrt(np.maximum(np.diag(estimated.covariance), 0)),
            "share": variances / total,
        }
    )
    sizes = {x: _mean_levels(codes, x, subject, nested.get(x)) for x in facets}
    warnings = []
    zero = [x for x, v in zip(names, variances, strict=True) if v <= 0]
    if zero:
        warnings.append(
            f"no variance was found of {', '.join(zero)}: its estimate is at 0, where"
            " it has no standard error"
        )
    if not estimated.converged:
        warnings.append(
            f"variances did not converge in {MOST_ITERATIONS} iterations: leave out"
            " facets with few levels"
        )
    few = [x for x in (subject, *facets) if codes[x].max() < 4]
    if few:
        least = min(int(codes[x].max()) + 1 for x in few)
        warnings.append(
            f"{' and '.join(few)}: from {counted(least, 'level')} a variance is hardly"
            " known"
        )
    return Generalisability(
        table,
        estimated.covariance,
        facets,
        subject,
        sizes,
        nested,
        estimated.mean,
        estimated.log_likelihood,
        tuple(warnings),
    )


def _mean_levels(
    codes: Mapping[str, np.ndarray], facet: str, subject: str, outer: str | None
) -> float:
    """Levels of a facet that a subject meets: the harmonic mean over subjects.

    Errors of means go as 1 / n, of which this is the mean.
    """
    within = codes[subject]
    if outer is not None:
        within = within * (int(codes[outer].max()) + 1) + codes[outer]
    pairs = np.unique(np.stack([within, codes[facet]]), axis=1)
    return float(1 / np.mean(1 / np.unique(pairs[0], return_counts=True)[1]))
