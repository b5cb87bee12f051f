"""The methods that the studies compare, each from responses to one point."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

import irtjax
from experiments.cbmm.printed import printed
from experiments.scaling import mirt
from irtjax._types import Status
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint.gradient import Gradient
from irtjax.estimators.joint.objective import diverging, weighted_moments
from irtjax.estimators.marginal.em import EM
from irtjax.models.families.logistic import LogisticItems
from irtjax.numerics.kernels import equal_nodes
from irtjax.scoring import score

#: Step limit of every method, as in the paper.
MOST_STEPS = 1000
#: Nodes of `em`, the same for all data so that a shape is one program: 0.04 apart, for
#: posteriors down to a standard deviation of 0.04 (5,000 items, or 400 at s = 0.18).
NODES = 301


class Found(NamedTuple):
    """An estimate: items and abilities, and how it was reached."""

    items: LogisticItems
    theta: jax.Array
    steps: int | None
    status: str
    #: How far the method's own criterion is from 0, where it has one.
    residual: float | None = None


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


def by_printed(values, observed, seed, temperature: float = 1.0) -> Found:
    """Algorithm 1 as printed, from one random start; logits are over the temperature.

    The random start is on the scale of the temperature, so that it matters here.
    """
    sign = 2.0 * values - 1
    sign = sign if observed is None else np.where(observed, sign, 0)
    key = jax.random.key(seed)
    found = printed(jnp.asarray(sign), key, temperature=temperature)
    theta, a, b, steps, _ = found
    a, b = a / temperature, b / temperature
    status = "CONVERGED" if int(steps) < MOST_STEPS else "MAX_STEPS"
    return Found(*standardised(theta, a, b), int(steps), status)


def data_of(values, observed) -> irtjax.Responses:
    """The arrays that irtjax takes."""
    values = values if observed is None else np.where(observed, values, 0)
    mask = None if observed is None else jnp.asarray(observed)
    return irtjax.Responses(jnp.asarray(values, jnp.int8), mask)


def by_joint(make: Callable[[], Any], priors: Any = "weak") -> Method:
    """A joint method of irtjax, with discriminations of at least 0."""

    def fit(values, observed, seed) -> Found:
        del seed
        method = make()
        model = method.adapted(irtjax.MODELS["2pl"](priors, positive=True))
        data = data_of(values, observed)
        problem = irtjax.Problem.create(model, data)
        start = irtjax.start_values(model, data)
        found = run_jit(problem, method, start, max_steps=MOST_STEPS)
        theta = found.parameters.theta
        assert theta is not None
        status = Status(int(found.status)).name
        steps, residual = int(found.num_steps), float(found.residual)
        return Found(found.parameters.items, theta, steps, status, residual)

    return fit


def by_em(values, observed, seed) -> Found:
    """Marginal maximum likelihood with weak priors; EAP scores."""
    del seed
    model, data = irtjax.MODELS["2pl"](), data_of(values, observed)
    start = irtjax.start_values(model, data)
    nodes = jnp.asarray(equal_nodes(-6.0, 6.0, NODES))
    problem = irtjax.Problem.create(model, data)
    found = run_jit(problem, EM(nodes), start, max_steps=MOST_STEPS)
    items, population = found.parameters.items, found.parameters.population
    theta = score(model, items, population, data, nodes=nodes).ability
    steps, status = int(found.num_steps), Status(int(found.status)).name
    return Found(items, theta, steps, status, float(found.residual))


def by_scipy(values, observed, seed) -> Found:
    """Plain joint likelihood by SciPy's L-BFGS-B, from the start of the paper."""
    (rows, columns), rng = values.shape, np.random.default_rng(seed)
    right = np.asarray(values, float)
    seen = np.ones_like(right) if observed is None else observed.astype(float)

    def loss(x):
        theta, a, d = np.split(x, [rows, rows + columns])
        eta = np.outer(theta, a) + d
        value = np.sum(seen * (np.logaddexp(0, eta) - right * eta))
        left = seen * (expit(eta) - right)
        return value, np.concatenate([left @ a, theta @ left, left.sum(axis=0)])

    normal = rng.normal(size=rows + 2 * columns)
    normal[rows : rows + columns] = np.exp(normal[rows : rows + columns])
    bounds = [(None, None)] * rows + [(0, None)] * columns + [(None, None)] * columns
    options = {"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS, "ftol": 1e-12}
    found = minimize(
        loss, normal, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    status = "CONVERGED" if found.success else "MAX_STEPS"
    point = standardised(*np.split(found.x, [rows, rows + columns]))
    return Found(*point, int(found.nit), status)


def by_means(values, observed, seed) -> Found:
    """Log odds of subject and item added: equal discriminations, no iteration."""
    del seed
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
#: Methods without a program to compile first.
UNCOMPILED = ("scipy", "additive", mirt.NAME)


class Seconds(NamedTuple):
    """How long a fit took: on the clock, and of all processors."""

    clock: float
    processor: float


def timed(name: str, values, observed, seed: int, **more) -> tuple[Found, Seconds]:
    """A fit and its seconds, after one that compiles for this shape."""
    shape = name, values.shape, observed is None
    if shape not in _compiled and name not in UNCOMPILED:
        jax.block_until_ready(METHODS[name](values, observed, seed, **more).theta)
        _compiled.add(shape)
    began = time.perf_counter(), time.process_time()
    found = METHODS[name](values, observed, seed, **more)
    jax.block_until_ready(found.theta)
    clock, processor = time.perf_counter() - began[0], time.process_time() - began[1]
    return found, Seconds(clock, processor)


_compiled: set[Any] = set()


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


_diverging = eqx.filter_jit(diverging)


def share_diverging(found: Found, values, observed) -> tuple[float, float]:
    """Shares of subjects and of items without a finite joint estimate."""
    model, data = irtjax.MODELS["2pl"](None), data_of(values, observed)
    where = _diverging(model, data, found.items, found.theta)
    return float(jnp.mean(where.subjects)), float(jnp.mean(where.items))


def by_mirt(values, observed, seed) -> Found:
    """Marginal 2PL and EAP scores of R's mirt, as in the paper."""
    del seed
    found = mirt.fit_mirt(values, observed, MOST_STEPS)
    point = standardised(found.ability, found.discrimination, found.intercept)
    # A sign is a convention; here it is that of the other methods.
    if point[0].discrimination.sum() < 0:
        items, theta = point
        point = record(-items.discrimination, items.intercept), -theta
    status = "CONVERGED" if found.converged else "MAX_STEPS"
    return Found(*point, found.cycles, status)


def add_peers() -> list[str]:
    """Adds mirt to the methods if it is installed; lines on what is left out."""
    why = mirt.missing()
    if why is None:
        METHODS[mirt.NAME] = by_mirt
    return [
        *([] if why is None else [why]),
        "py-irt, girth: left out here; experiments/scaling has them (--case peers)",
    ]
