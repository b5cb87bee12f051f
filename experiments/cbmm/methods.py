"""The methods that the studies compare, each from responses to one point."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.optimize import minimize
from scipy.special import expit

import irtjax
from experiments.cbmm.printed import printed
from experiments.scaling import mirt, pyirt
from irtjax._types import Status
from irtjax.estimators.joint.gradient import Gradient
from irtjax.estimators.joint.objective import diverging, weighted_moments
from irtjax.estimators.marginal.em import EM
from irtjax.inference import score
from irtjax.likelihood.problem import Start
from irtjax.models.families.logistic import LogisticItems
from irtjax.numerics.kernels import equal_nodes

#: Step limit of every method, as in the paper.
MOST_STEPS = 1000
#: Nodes of `em`, the same for all data so that a shape is one program: 0.04 apart, for
#: posteriors down to a standard deviation of 0.04 (5,000 items, or 400 at s = 0.18).
NODES = 301


class Seconds(NamedTuple):
    """How long a fit took: on the clock, and of all processors."""

    clock: float
    processor: float


class Found(NamedTuple):
    """An estimate: items and abilities, and how it was reached; a row per replicate.

    `status` is a code of `Status` in compiled programs and its name elsewhere.
    `residual` is how far the method's own criterion is from 0, where it has one, and
    `memory` the bytes of its compiled program: responses, results, temporaries.
    """

    items: LogisticItems
    theta: jax.Array
    steps: Any
    status: Any
    residual: Any = None
    seconds: Seconds | None = None
    memory: int | None = None


#: A fit: responses, the mask of those observed (or None), a seed, the temperature.
Method = Callable[..., Found]


def record(a, d) -> LogisticItems:
    """Items with these discriminations and intercepts."""
    a, d = jnp.asarray(a, float), jnp.asarray(d, float)
    return LogisticItems(a, d, jnp.zeros_like(a), jnp.ones_like(a))


def standardised(theta, a, d) -> tuple[LogisticItems, jax.Array]:
    """The same logits with abilities of mean 0 and standard deviation 1."""
    theta, a, d = jnp.asarray(theta), jnp.asarray(a), jnp.asarray(d)
    mean, sd = weighted_moments(theta, None)
    return record(a * sd, d + a * mean), (theta - mean) / sd


def by_printed(values, observed, seed, temperature) -> Found:
    """Algorithm 1 as printed, from one random start; logits are over the temperature.

    The random start is on the scale of the temperature, so that it matters here.
    """
    sign = jnp.where(True if observed is None else observed, 2.0 * values - 1, 0)
    found = printed(sign, jax.random.key(seed), temperature=temperature)
    theta, a, b, steps, _ = found
    point = standardised(theta, a / temperature, b / temperature)
    ended = jnp.where(steps < MOST_STEPS, Status.CONVERGED, Status.MAX_STEPS)
    return Found(*point, steps, ended)


def data_of(values, observed) -> irtjax.Responses:
    """The arrays that irtjax takes."""
    values = values if observed is None else jnp.where(observed, values, 0)
    mask = None if observed is None else jnp.asarray(observed)
    return irtjax.Responses(jnp.asarray(values, jnp.int8), mask)


def by_joint(make: Callable[[], Any], priors: Any = "weak") -> Method:
    """A joint method of irtjax, with discriminations of at least 0."""

    def fit(values, observed, seed, temperature) -> Found:
        del seed, temperature
        method = make()
        model = method.adapted(irtjax.MODELS["2pl"](priors, positive=True))
        data = data_of(values, observed)
        problem = irtjax.Problem.create(model, data)
        start = irtjax.start_values(model, data)
        found = irtjax.run(problem, method, start, max_steps=MOST_STEPS)
        theta = found.parameters.theta
        assert theta is not None
        ended = found.num_steps, found.status, found.residual
        return Found(found.parameters.items, theta, *ended)

    return fit


def by_em(values, observed, seed, temperature) -> Found:
    """Marginal maximum likelihood with weak priors; EAP scores."""
    del seed, temperature
    model, data = irtjax.MODELS["2pl"](), data_of(values, observed)
    start = irtjax.start_values(model, data)
    nodes = jnp.asarray(equal_nodes(-6.0, 6.0, NODES))
    problem = irtjax.Problem.create(model, data)
    found = irtjax.run(problem, EM(nodes), start, max_steps=MOST_STEPS)
    items, population = found.parameters.items, found.parameters.population
    theta = score(model, items, population, data, nodes=nodes).ability
    return Found(items, theta, found.num_steps, found.status, found.residual)


@jax.jit
def _loss_and_gradient(x, right, seen):
    """Plain joint loss in nats and its gradient in (theta, a, d)."""
    rows, columns = right.shape
    theta, a, d = jnp.split(x, [rows, rows + columns])
    eta = jnp.outer(theta, a) + d
    value = jnp.sum(jnp.where(seen, jnp.logaddexp(0, eta) - right * eta, 0))
    left = jnp.where(seen, jax.nn.sigmoid(eta) - right, 0)
    return value, jnp.concatenate([left @ a, theta @ left, left.sum(axis=0)])


def by_scipy(values, observed, seed, temperature, change=1e-12) -> Found:
    """Plain joint likelihood by SciPy's L-BFGS-B, from the start of the paper.

    It ends at a relative `change` of the loss.
    """
    del temperature
    (rows, columns), rng = values.shape, np.random.default_rng(seed)
    right = jnp.asarray(values, float)
    seen = jnp.ones(values.shape, bool) if observed is None else jnp.asarray(observed)

    def loss(x):
        value, gradient = _loss_and_gradient(x, right, seen)
        return float(value), np.asarray(gradient)

    normal = rng.normal(size=rows + 2 * columns)
    normal[rows : rows + columns] = np.exp(normal[rows : rows + columns])
    bounds = [(None, None)] * rows + [(0, None)] * columns + [(None, None)] * columns
    options = {"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS, "ftol": change}
    found = minimize(
        loss, normal, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    status = "CONVERGED" if found.success else "MAX_STEPS"
    point = standardised(*np.split(found.x, [rows, rows + columns]))
    return Found(*point, int(found.nit), status)


def by_means(values, observed, seed, temperature) -> Found:
    """Log odds of subject and item added: equal discriminations, no iteration."""
    del seed, temperature
    seen = np.ones(values.shape) if observed is None else observed
    odds = lambda axis: np.log(
        (np.sum(seen * values, axis) + 0.5) / (np.sum(seen * (1 - values), axis) + 0.5)
    )
    right = np.sum(seen * values)
    overall = np.log(right / (seen.sum() - right))
    one = np.ones(values.shape[1])
    return Found(*standardised(odds(1), one, odds(0) - overall), None, "CONVERGED")


METHODS: dict[str, Method] = {
    "printed": by_printed,
    "mm, penalty 0": by_joint(lambda: irtjax.MM(penalty=0.0), None),
    "mm": by_joint(irtjax.MM),
    "em": by_em,
    "gradient": by_joint(Gradient),
    "scipy": by_scipy,
    "additive": by_means,
}
#: The same to the paper's stop, a relative change of the loss of 1e-4: for `speed`.
EARLY: dict[str, Method] = {
    "mm, 1e-4": by_joint(lambda: irtjax.MM(penalty=0.0, stop="relative_change"), None),
    "scipy, 1e-4": partial(by_scipy, change=1e-4),
}
#: Methods that are no JAX program: their replicates run one by one.
ON_HOST = ("scipy", "scipy, 1e-4", "additive", mirt.NAME, pyirt.NAME)


def fits(
    name: str,
    values: Sequence[np.ndarray],
    observed: Sequence[np.ndarray] | None,
    seeds: Sequence[int],
    temperature: float = 1.0,
) -> list[Found | RuntimeError]:
    """Fits of replicates of one size, with their seconds after compilation.

    The replicates of a JAX method are one program, a `lax.map` over them, so that each
    has their mean time. A peer may fail: its error is then in place of the fit.
    """
    if name in ON_HOST:
        memory = None
        if name.startswith("scipy"):  # Its loss is compiled.
            zero, shape = jnp.zeros(values[0].shape), values[0].shape
            point = jnp.zeros(shape[0] + 2 * shape[1]), zero, zero > 0
            _loss_and_gradient(*point)
            memory = memory_of(_loss_and_gradient.lower(*point).compile())
        masks = [None] * len(values) if observed is None else observed
        found = [
            _on_host(name, *given, temperature)
            for given in zip(values, masks, seeds, strict=True)
        ]
        return [
            one if isinstance(one, RuntimeError) else one._replace(memory=memory)
            for one in found
        ]
    stack = lambda parts: None if parts is None else jnp.asarray(np.stack(parts))
    given = stack(values), stack(observed), jnp.asarray(seeds), temperature
    shape = name, len(values), values[0].shape, observed is None
    if shape not in _compiled:
        _compiled[shape] = _mapped.lower(name, *given).compile()
    began = _now()
    several = jax.block_until_ready(_compiled[shape](*given))
    seconds = Seconds(*((_now() - began) / len(values)))
    memory = memory_of(_compiled[shape])
    return [
        _read(several, number)._replace(seconds=seconds, memory=memory)
        for number in range(len(values))
    ]


@partial(jax.jit, static_argnums=0)
def _mapped(name, values, observed, seeds, temperature) -> Found:
    one = lambda given: (METHODS | EARLY)[name](*given, temperature)
    return lax.map(one, (values, observed, seeds))


def _on_host(name: str, *given) -> Found | RuntimeError:
    began = _now()
    try:
        found = (METHODS | EARLY)[name](*given)
    except RuntimeError as error:
        return error
    return found._replace(seconds=Seconds(*(_now() - began)))


def _read(several: Found, number: int) -> Found:
    """The fit of one replicate, from what a program returned."""
    found = jax.tree.map(lambda x: x[number], several)
    residual = None if found.residual is None else float(found.residual)
    status = Status(int(found.status)).name
    return found._replace(steps=int(found.steps), status=status, residual=residual)


def memory_of(compiled: Any) -> int:
    """Bytes of a compiled program: arguments, results and temporaries."""
    sizes = compiled.memory_analysis()
    arrays = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
    return int(arrays + sizes.temp_size_in_bytes)


def _now() -> np.ndarray:
    """Seconds of the clock and of all processors."""
    return np.array([time.perf_counter(), time.process_time()])


#: Compiled programs by method, number and shape of replicates, and whether complete.
_compiled: dict[tuple, Any] = {}


def left_gradient(found: Found, values, observed) -> float:
    """Largest gradient of the plain joint likelihood, in standard errors.

    A discrimination at 0 may be pushed against its bound.
    """
    theta, a, d = (np.asarray(x) for x in (found.theta, *found.items[:2]))
    eta = np.outer(theta, a) + d
    seen = np.ones(eta.shape) if observed is None else observed.astype(float)
    left, info = seen * (values - expit(eta)), seen * expit(eta) * expit(-eta)
    slopes = theta @ left
    slopes = np.where((a <= 0) & (slopes < 0), 0, slopes)
    parts = (
        (left @ a, info @ a**2),
        (slopes, theta**2 @ info),
        (left.sum(axis=0), info.sum(axis=0)),
    )
    return max(float(np.max(np.abs(g) / np.sqrt(h + 1e-12))) for g, h in parts)


def left_kkt(found: Found, values, observed) -> float:
    """Relative KKT residual of the plain joint likelihood with a >= 0, that of `MM`."""
    return float(_kkt(found.items, found.theta, data_of(values, observed)))


@jax.jit
def _kkt(items: LogisticItems, theta: jax.Array, data: irtjax.Responses) -> jax.Array:
    method = irtjax.MM(penalty=0.0)
    model = irtjax.MODELS["2pl"](None, positive=True)
    problem = irtjax.Problem.create(method.adapted(model), data)
    start = method.init(problem, Start(items, theta), None)
    return method.step(problem, start, None).residual


_diverging = eqx.filter_jit(diverging)


def share_diverging(found: Found, values, observed) -> tuple[float, float]:
    """Shares of subjects and of items without a finite joint estimate."""
    model, data = irtjax.MODELS["2pl"](None), data_of(values, observed)
    where = _diverging(model, data, found.items, found.theta)
    return float(jnp.mean(where.subjects)), float(jnp.mean(where.items))


def by_mirt(values, observed, seed, temperature) -> Found:
    """Marginal 2PL and EAP scores of R's mirt, as in the paper."""
    del seed, temperature
    found = mirt.fit_mirt(values, observed, MOST_STEPS)
    status = "CONVERGED" if found.converged else "MAX_STEPS"
    return _of_peer(found, found.cycles, status)


def by_pyirt(values, observed, seed, temperature) -> Found:
    """Variational 2PL of py-irt, as in the paper."""
    del seed, temperature
    found = pyirt.fit_pyirt(values, observed)
    return _of_peer(found, pyirt.EPOCHS, "CONVERGED")  # It has no criterion.


def _of_peer(found: mirt.Mirt | pyirt.PyIrt, steps: int, status: str) -> Found:
    point = standardised(found.ability, found.discrimination, found.intercept)
    # A sign is a convention; here it is that of the other methods.
    if point[0].discrimination.sum() < 0:
        items, theta = point
        point = record(-items.discrimination, items.intercept), -theta
    return Found(*point, steps, status)


def add_peers() -> list[str]:
    """Adds installed peers to the methods; lines on those that are left out."""
    lines = []
    for peer, fit in ((mirt, by_mirt), (pyirt, by_pyirt)):
        why = peer.missing()
        if why is None:
            METHODS[peer.NAME] = fit
        else:
            lines.append(why)
    return lines
