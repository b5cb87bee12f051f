"""Likelihoods written a second time, the long way: the truth the tests compare with.

Plain probabilities of every (subject, item, node), no logs of sums, no matrix
products, nothing from the package but a model's map from coordinates to item
parameters and its priors (which have tests of their own).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from irtjax.data.responses import Responses
from irtjax.data.scores import END
from irtjax.models.model import Model

#: Models of scores in [0, 1].
SCORES = ("continuous", "beta", "inflated_beta", "share", "mixed")


def normal_weights(nodes):
    """Normal weights on equally spaced nodes, summing to one."""
    density = stats.norm.pdf(np.asarray(nodes))
    return density / density.sum()


# As one program: its operations one by one compile for many times as long.
@functools.partial(jax.jit, static_argnums=0)
def category_probabilities(name: str, items, theta):
    """P(y = k | theta), `[nodes, items, categories]`, of the model of that name."""
    theta = jnp.asarray(theta)[:, None]
    slope, intercept = items.discrimination, items.intercept
    if name == "nominal":
        slopes, intercepts = items.category_slope, items.category_intercept
        odds = jnp.exp(slopes * theta[..., None] + intercepts)
        odds = jnp.concatenate([jnp.ones_like(odds[..., :1]), odds], -1)
        return odds / odds.sum(-1, keepdims=True)
    if name == "rsm":
        last = -jnp.sum(items.step, -1, keepdims=True)
        intercept = intercept[:, None] + jnp.concatenate([items.step, last], -1)
    if name in ("graded", "partial_credit", "pcm", "rsm"):
        predictor = slope[:, None] * theta[..., None] + intercept
        if name == "graded":
            above = 1 / (1 + jnp.exp(-predictor))
            ends = [jnp.ones_like(above[..., :1]), jnp.zeros_like(above[..., :1])]
            cumulative = jnp.concatenate([ends[0], above, ends[1]], -1)
            return cumulative[..., :-1] - cumulative[..., 1:]
        first = jnp.zeros_like(predictor[..., :1])
        odds = jnp.exp(jnp.concatenate([first, jnp.cumsum(predictor, -1)], -1))
        return odds / odds.sum(-1, keepdims=True)
    predictor = slope * theta + intercept
    if name == "cloglog2pl":
        rising = 1 - jnp.exp(-jnp.exp(predictor))
    elif name.startswith("probit"):
        rising = 0.5 * (1 + jax.scipy.special.erf(predictor / np.sqrt(2)))
    else:
        rising = 1 / (1 + jnp.exp(-predictor))
    lower, upper = items.lower_asymptote, items.upper_asymptote
    right = lower + (upper - lower) * rising
    return jnp.stack([1 - right, right], -1)


@functools.partial(jax.jit, static_argnums=0)
def score_densities(name: str, items, theta, values):
    """Density of each logit at each node, `[subjects, items, nodes]`.

    That of the score y times y (1 - y), or the probability where there is one; of a
    share its quasi-likelihood as one response.
    """
    z = jnp.asarray(values, float)[..., None]
    slope, intercept = (x[:, None] for x in items[:2])
    eta = slope * jnp.asarray(theta) + intercept
    mean = 1 / (1 + jnp.exp(-eta))
    if name == "share":
        return mean**z * (1 - mean) ** (1 - z)
    dispersion = items[2][:, None]
    if name in ("continuous", "mixed"):
        sd = jnp.where(dispersion > 0, dispersion, 1)
        normal = jnp.exp(-(((z - eta) / sd) ** 2) / 2) / (sd * np.sqrt(2 * np.pi))
        right = jnp.where(z == 1, mean, 1 - mean)
        return jnp.where(dispersion > 0, normal, right)
    low, high = z <= -END, z >= END
    y = 1 / (1 + jnp.exp(-jnp.where(low | high, 0, z)))
    up, down = mean * dispersion, (1 - mean) * dispersion
    gamma = lambda x: jnp.exp(jax.scipy.special.gammaln(x))
    beta = gamma(dispersion) / gamma(up) / gamma(down) * y**up * (1 - y) ** down
    if name == "beta":
        return beta
    zero = 1 / (1 + jnp.exp(eta - items.lower_cut[:, None]))
    one = 1 / (1 + jnp.exp(items.upper_cut[:, None] - eta))
    between = (1 - zero - one) * beta
    return jnp.where(low, zero, jnp.where(high, one, between))


def cells(name: str, items, theta, data: Responses):
    """Probability or density of each response, 1 where missing."""
    if name not in SCORES:
        return cell_probabilities(category_probabilities(name, items, theta), data)
    found = score_densities(name, items, theta, data.values)
    if data.observed is None:
        return found
    return jnp.where(data.observed[..., None], found, 1.0)


def cell_probabilities(probabilities, data: Responses):
    """Probability of each response at each node, `[subjects, items, nodes]`."""
    values = np.asarray(data.values).astype(int)
    observed = np.ones(values.shape, bool)
    if data.observed is not None:
        observed = np.asarray(data.observed)
    if data.trials is not None:
        trials = np.asarray(data.trials)
        right = jnp.moveaxis(probabilities[..., 1], 0, -1)[None]
        cells = right ** values[..., None]
        cells = cells * (1 - right) ** (trials - values)[..., None]
    else:
        by_item = jnp.moveaxis(probabilities, 0, -1)
        cells = by_item[np.arange(values.shape[1]), values]
    return jnp.where(observed[..., None], cells, 1.0)


def subject_likelihoods(name, items, data: Responses, theta, weights):
    """Marginal likelihood of each subject, `[subjects]`."""
    found = cells(name, items, theta, data)
    if data.item_weight is not None:
        found = found ** np.asarray(data.item_weight)[:, None]
    return jnp.prod(found, 1) @ weights


def marginal_log_likelihood(name, items, data: Responses, theta, weights):
    """Weighted sum over subjects of the log marginal likelihood."""
    terms = jnp.log(subject_likelihoods(name, items, data, theta, weights))
    if data.subject_weight is not None:
        terms = terms * np.asarray(data.subject_weight)
    return jnp.sum(terms)


def unpack(model: Model, vector, num_items: int):
    """Coordinates, mean, log sd, and the frame of the priors, out of one vector."""
    coordinates = vector[:-4].reshape(num_items, model.family.num_columns)
    return coordinates, vector[-4], vector[-3], vector[-2:]


def pack(coordinates, mean=0.0, log_sd=0.0, frame=(0.0, 0.0)):
    """One vector of coordinates, mean, log sd, and the frame of the priors."""
    return jnp.concatenate([jnp.ravel(coordinates), jnp.stack([mean, log_sd, *frame])])


def log_prior(model: Model, items, log_sd, frame):
    """Log priors of items seen by an ability shifted and stretched by the frame.

    The objective is the largest value over all frames: to maximise it, let the frame
    move with the other parameters.
    """
    slope, intercept = items.discrimination, items.intercept
    shape = (-1,) + (1,) * (intercept.ndim - 1)
    moved = items._replace(intercept=intercept + slope.reshape(shape) * frame[0])
    if model.family.has_slope:
        moved = moved._replace(discrimination=slope * jnp.exp(frame[1]))
    total = jnp.sum(jax.vmap(model.log_prior)(moved))
    return total + model.log_common_slope_prior(jnp.exp(log_sd))


def marginal_objective(model: Model, data: Responses, nodes, weights=None):
    """Log-likelihood plus log priors as a function of one vector; see `pack`."""
    weights = normal_weights(nodes) if weights is None else weights

    def objective(vector):
        coordinates, mean, log_sd, frame = unpack(model, vector, data.num_items)
        items = model.constrain(coordinates)
        theta = mean + jnp.exp(log_sd) * nodes
        value = marginal_log_likelihood(model.name, items, data, theta, weights)
        return value + log_prior(model, items, log_sd, frame)

    return objective


def expected_objective(model: Model, data: Responses, nodes):
    """Q(new | old) of EM, priors included, as a function of two vectors."""
    weights = normal_weights(nodes)

    def parts(vector):
        coordinates, mean, log_sd, frame = unpack(model, vector, data.num_items)
        items = model.constrain(coordinates)
        theta = mean + jnp.exp(log_sd) * nodes
        found = cells(model.name, items, theta, data)
        return found, log_prior(model, items, log_sd, frame)

    def objective(new, old):
        joint = jnp.prod(parts(old)[0], 1) * weights
        posterior = joint / joint.sum(1, keepdims=True)
        if data.subject_weight is not None:
            posterior = posterior * np.asarray(data.subject_weight)[:, None]
        found, prior = parts(new)
        return jnp.sum(posterior * jnp.log(found).sum(1)) + prior

    return objective


def joint_log_likelihood(name, items, theta, data: Responses):
    """Log-likelihood of items and abilities, `[subjects]`."""
    found = cells(name, items, theta, data)
    own = found[np.arange(data.num_subjects), :, np.arange(data.num_subjects)]
    return jnp.log(own).sum(1)
