r"""Networks of items: which responses depend on each other, given all others?

An edge is a weight omega_jk of an Ising model (`irtjax.validity.ising`): by how much
the logit of item j changes where item k is right and all other items are equal.

With weights of rank one, omega_jk = a_j a_k, an Ising model is a two-parameter model in
which ability has another distribution, since exp(s^2 / 2) = E exp(s x), x normal, gives
p(y) as an integral of prod_j exp(y_j (tau_j + a_j x)) over x (Kac 1968; Marsman et al.
2018, An Introduction to Network Psychometrics). Responses of one time cannot tell
dependence between items from a common ability; a network is another view of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtr

from irtjax._types import RandomKey
from irtjax.data.coding import coded
from irtjax.data.frames import HasTable
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.numerics.seeds import seed_of
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity import ising, latent_network, sparse_networks
from irtjax.validity.tetrachoric import tetrachoric

if TYPE_CHECKING:
    import pyarrow as pa

METHODS = ("pseudolikelihood", "exact", "elasso", "glasso")
EDGE_RULES = ("and", "or")
#: Columns of edges with errors.
TESTS = ("weight_se", "p_value", "q_value")
#: Size of a weight, in logits, from which responses separate: odds of 3,000.
SEPARATED = 8.0


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Network(HasTable):
    """A network of items.

    Attributes:
        table: `item`, `threshold` (of Ising models), `strength` (sum of the sizes of
            its weights), `expected_influence` (sum of the weights).
        edges: A row for each weight that is not 0, the largest first: `item`,
            `other_item`, `weight`, and without penalty `weight_se`, `p_value` and
            `q_value` (Benjamini and Hochberg), None where responses separate.
        weights: `[items, items]`, symmetric, 0 on the diagonal: in logits; partial
            correlations of "glasso".
        method: The method.
        log_likelihood: In nats; that of the pseudo-likelihood is a sum over items.
        num_subjects: Subjects who responded to every item; no others count.
        warnings: Reasons to doubt the weights, each a sentence.
        held_out: With `folds`, a row for each of `network`, `2pl` and `independent`
            items: `log_score`, the mean log chance of a response of a subject left out,
            given its other responses, in nats; its `difference` from the 2PL, paired
            over subjects; both with `_se`.
    """

    title = "Network of items"

    table: pa.Table
    edges: pa.Table
    weights: np.ndarray
    method: str
    log_likelihood: float
    num_subjects: int
    warnings: tuple[str, ...]
    held_out: pa.Table | None = None

    @property
    def sentence(self) -> str:
        """Whether the network or a 2PL predicts responses better, in words."""
        if self.held_out is None:
            return ""
        row = self.held_out.to_pylist()[0]
        size, error = row["difference"], row["difference_se"]
        by = f"{abs(size):.4f} ± {error:.4f} nats a response"
        if abs(size) < 1.96 * error:
            return f"The network and a 2PL predict responses left out alike: {by}."
        pair = ("The network", "a 2PL") if size > 0 else ("A 2PL", "the network")
        return " predicts responses left out better than ".join(pair) + f": {by}."


class _Complete(NamedTuple):
    """Names `[items]`, responses `[subjects, items]`, and what was left out in words.

    No response is missing, and every item varies.
    """

    items: np.ndarray
    values: np.ndarray
    warnings: tuple[str, ...]


def network(
    data: ResponseTable,
    method: str = "pseudolikelihood",
    *,
    item_names: Sequence[str] | None = None,
    top: int | None = None,
    edge_rule: str = "and",
    gamma: float | None = None,
    residual: bool = False,
    folds: int | None = None,
    key: RandomKey | None = None,
) -> Network:
    """Estimates which responses depend on each other, given all other items.

    The Ising model p(y) = exp(sum_j tau_j y_j + sum_{j<k} omega_jk y_j y_k) / Z, of
    which omega_jk is the weight of an edge and tau_j the threshold of an item
    (`irtjax.validity.ising`). With many items for their subjects most weights are
    noise: a lasso sets them to 0 (`irtjax.validity.sparse_networks`).

    Args:
        data: Right and wrong responses; any scores for "glasso". Subjects with missing
            ones are left out.
        method: "pseudolikelihood", with errors over subjects (up to 100 items);
            "exact", the likelihood by enumeration of all patterns (up to 15);
            "elasso", sparse; "glasso", a sparse Gaussian graphical model of the
            tetrachoric correlations, or of the correlations of scores.
        item_names: The items; None for all.
        top: Of these, as many as this with the largest variance; None for all.
        edge_rule: Of "elasso", whether an edge needs weights in the regressions of both
            items ("and") or of one ("or").
        gamma: Penalty of a further edge in the extended BIC of sparse networks; 0.25 of
            "elasso" and 0.5 of "glasso" by default.
        residual: Estimate the weights that a 2PL leaves unexplained: its logits of each
            response, given the subject's others, are an offset of "pseudolikelihood".
        folds: Compare the network with a 2PL and with independent items by subjects
            left out, in so many parts. Not of "glasso".
        key: A whole number or a JAX key, for the parts.

    Returns:
        Weights, strengths and errors; see `Network`.

    Raises:
        ValueError: For responses other than right and wrong, an unknown method or item,
            too many items, fewer than two items that vary among the subjects with all
            responses, too few subjects for the weights of most pairs, or a sparse
            network without scikit-learn.

    >>> import irtjax
    >>> rng = np.random.default_rng(0)
    >>> first, other = rng.random((2, 500)) < 0.5
    >>> same = np.where(rng.random(500) < 0.9, first, ~first)
    >>> right = np.stack([first, same, other], axis=1).astype(int)
    >>> table = irtjax.ResponseTable.from_arrays(right, items=["x", "y", "z"])
    >>> edge = irtjax.network(table).edges.to_pylist()[0]
    >>> edge["item"], edge["other_item"]
    ('x', 'y')
    """
    choices = ("method", method, METHODS), ("edge_rule", edge_rule, EDGE_RULES)
    for name, value, names in choices:
        if value not in names:
            raise ValueError(f"{name} {value!r} is not one of {', '.join(names)}")
    if residual and method != "pseudolikelihood":
        raise ValueError(
            f"residual networks are not of {method}: choose method='pseudolikelihood'"
        )
    if folds is not None and method == "glasso":
        raise ValueError(
            "glasso has no chances of responses to compare: choose method='elasso'"
        )
    data = coded(data)
    if method in sparse_networks.GAMMA:
        sparse_networks.check_scikit_learn()
    part = _complete(data, item_names, top, method)
    right = part.values
    if gamma is None:
        gamma = sparse_networks.GAMMA.get(method, 0.0)
    if method == "glasso":
        return _partial_correlations(part, data.kind == "binary", gamma)

    def fit(train: np.ndarray) -> ising.Ising:
        if method == "exact":
            return ising.fit_exact(right[train])
        if method == "elasso":
            return sparse_networks.fit_elasso(right[train], gamma, edge_rule)
        return ising.fit_pseudolikelihood(right[train])

    def logits(train: np.ndarray, ability: latent_network.Ability) -> np.ndarray:
        if not residual:
            return fit(train).logits(right)
        ability, rest = latent_network.fit_residual(right[train], ability)
        return ability.logits(right) + rest.logits(right)

    everyone, scores = np.ones(len(right), bool), None
    if residual:
        ability = latent_network.TwoParameterModel(right).fit(everyone)
        estimate = latent_network.fit_residual(right, ability)[1]
    else:
        estimate = fit(everyone)
    if folds is not None:
        scores = latent_network.held_out(right, logits, folds, seed_of(key))
    result = _network(part, method, **estimate._asdict())
    return dataclasses.replace(result, held_out=scores)


def _complete(
    data: ResponseTable,
    item_names: Sequence[str] | None,
    top: int | None,
    method: str,
) -> _Complete:
    """The chosen items that vary, and the subjects who responded to all of them."""
    if data.kind == "counts":
        raise ValueError(
            "a network is of one response of a subject to an item, and these are"
            " counts: take their means, trials='mean', and method='glasso'"
        )
    if data.kind != "binary" and method != "glasso":
        raise ValueError(
            "an Ising model is of right and wrong responses, and these are"
            f" {data.kind}: choose method='glasso' for scores"
        )
    if item_names is not None:
        data = data.select(items=list(item_names))
    values, observed = (np.asarray(x) for x in data.stored.dense)
    names = np.asarray(data.items)
    if top is not None:
        with_gaps = np.ma.masked_array(values, ~observed, dtype=float)
        variance = with_gaps.var(axis=0).filled(0)
        chosen = np.sort(np.argsort(-variance, kind="stable")[:top])
        values, observed, names = values[:, chosen], observed[:, chosen], names[chosen]
    rows = observed.all(axis=1)
    used = values[rows].astype(np.float64)
    varies = (used != used[:1]).any(axis=0)
    if varies.sum() < 2:
        raise ValueError(
            f"{rows.sum():,} of {counted(rows.size, 'subject')} responded to every"
            " item, and fewer than two items vary among them: choose items with few"
            " missing responses"
        )
    warnings = ()
    if not rows.all():
        count = counted((~rows).sum(), "subject")
        warnings += (f"{count} with missing responses left out.",)
    if not varies.all():
        warnings += (f"{counted((~varies).sum(), 'item')} without variation left out.",)
    return _Complete(names[varies], used[:, varies], warnings)


def _partial_correlations(part: _Complete, binary: bool, gamma: float) -> Network:
    """The network of the graphical lasso."""
    size, count = part.values.shape
    if binary:
        raw = tetrachoric(ResponseTable.from_arrays(part.values.astype(np.int8)))
    else:
        raw = np.corrcoef(part.values.T)
    matrix = sparse_networks.positive_definite(raw)
    precision, _ = sparse_networks.fit_glasso(matrix, size, gamma)
    root = np.sqrt(np.diagonal(precision))
    weights = np.where(np.eye(count) == 1, 0.0, -precision / np.outer(root, root)) + 0.0
    fit = np.linalg.slogdet(precision)[1] - (matrix * precision).sum()
    repair = np.abs(matrix - raw).max()
    if repair > 0:
        words = (
            "Correlations were not positive definite: eigenvalues were raised, which"
            f" changed correlations by up to {repair:.2g}."
        )
        part = part._replace(warnings=(*part.warnings, words))
    value = size / 2 * (fit - count * np.log(2 * np.pi))
    return _network(part, "glasso", weights, float(value))


def _network(
    part: _Complete,
    method: str,
    weights: np.ndarray,
    log_likelihood: float,
    thresholds: np.ndarray | None = None,
    errors: np.ndarray | None = None,
) -> Network:
    """The result with its tables."""
    import pyarrow as pa

    names, warnings = part.items, part.warnings
    first, second = np.nonzero(np.triu(weights))
    order = np.argsort(-np.abs(weights[first, second]), kind="stable")
    first, second = first[order], second[order]
    value = weights[first, second]
    edges = {"item": names[first].tolist(), "other_item": names[second].tolist()}
    edges["weight"] = value
    if errors is not None:
        far = np.abs(value) > SEPARATED
        if far.sum() > far.size / 2:
            raise ValueError(
                f"{counted(len(part.values), 'subject')} with all responses do not"
                f" determine weights of {counted(far.size, 'pair')} of items: choose"
                " method='elasso', or fewer items (top=)"
            )
        if far.any():
            warnings += (
                f"{counted(far.sum(), 'pair')} of items separate: their weights are"
                " infinite, and others depend on them; choose fewer items.",
            )
        error = errors[first, second]
        error = np.where(far | (error == 0), np.nan, error)
        chance = 2 * ndtr(-np.abs(value / error))
        tests = error, chance, benjamini_hochberg(chance)
        for column, numbers in zip(TESTS, tests, strict=True):
            edges[column] = pa.array(numbers, from_pandas=True)
    nodes = {"item": names.tolist()}
    nodes |= {} if thresholds is None else {"threshold": thresholds}
    nodes["strength"] = np.abs(weights).sum(axis=0)
    nodes["expected_influence"] = weights.sum(axis=0)
    tables = pa.table(nodes), pa.table(edges)
    return Network(*tables, weights, method, log_likelihood, len(part.values), warnings)
