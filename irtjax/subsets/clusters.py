"""K-means of items by their success vectors, and the item nearest each centre."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray

#: Lloyd's steps; assignments have settled long before on every data set tried.
NUM_STEPS = 30


@partial(jax.jit, static_argnames=("num_clusters", "num_steps"))
def k_means(
    points: Float[Array, "points dims"],
    weight: Float[Array, " points"],
    key: KeyArray,
    *,
    num_clusters: int,
    num_steps: int = NUM_STEPS,
) -> tuple[Array, Array]:
    """Lloyd's algorithm from seeds far apart (k-means++, Arthur, Vassilvitskii 2007).

    Args:
        points: What to cluster.
        weight: How often each point counts.
        key: Random key of the seeds.
        num_clusters: Number of centres.
        num_steps: Steps after the seeds.

    Returns:
        The cluster of each point and its squared distance from each centre,
        `[points, clusters]`. A cluster may be empty where points repeat.
    """
    size = jnp.sum(points**2, axis=1)
    dtype = points.dtype

    def distance(centres):
        """Squared distances from centres, `[points, centres]`."""
        cross = points @ centres.T
        inner = size[:, None] - 2 * cross + jnp.sum(centres**2, axis=1)
        return jnp.maximum(inner, 0)

    def seed(carry, step):
        """Draws a centre with probability in proportion to the squared distance."""
        nearest, centres = carry
        # Squared distances of rounding's size are none.
        far = jnp.where(nearest > 1e-6 * jnp.max(size), nearest, 0) * weight
        far = jnp.where(jnp.sum(far) > 0, far, weight)
        chosen = jax.random.categorical(jax.random.fold_in(key, step), jnp.log(far))
        centre = points[chosen]
        nearest = jnp.minimum(nearest, distance(centre[None])[:, 0])
        return (nearest, centres.at[step].set(centre)), None

    empty = jnp.zeros((num_clusters, points.shape[1]), dtype)
    # Before the first seed all points are equally far.
    start = (jnp.full(len(points), jnp.max(size) + 1), empty)
    (_, centres), _ = lax.scan(seed, start, jnp.arange(num_clusters))

    def improve(_, centres):
        """Moves each centre to the mean of its points."""
        label = jnp.argmin(distance(centres), axis=1)
        mass = jax.ops.segment_sum(weight, label, num_clusters)
        total = jax.ops.segment_sum(points * weight[:, None], label, num_clusters)
        mean = total / jnp.maximum(mass, jnp.finfo(dtype).tiny)[:, None]
        return jnp.where(mass[:, None] > 0, mean, centres)

    centres = lax.fori_loop(0, num_steps, improve, centres)
    between = distance(centres)
    return jnp.argmin(between, axis=1), between


def anchors(
    vectors: np.ndarray, mass: np.ndarray, size: int, key: KeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """One item for each cluster of success vectors, with the mass of its cluster.

    The anchor points of tinyBenchmarks (Maia Polo et al. 2024, arXiv 2402.14992): the
    item nearest the centre stands for the cluster. Where items repeat, clusters may be
    empty; then further items are drawn from the heaviest clusters, and the items of a
    cluster share its mass.

    Args:
        vectors: `[items, subjects]` responses to each item.
        mass: `[items]` what each item counts in the full score.
        size: Number of items to choose.
        key: Random key.

    Returns:
        Positions of the chosen items, heaviest first, and their weights, which sum to
        that of all items.
    """
    if size >= len(mass):
        order = np.argsort(-mass, kind="stable")
        return order, mass[order]
    # Equal items are done once: with a dozen subjects most of them are.
    points, place, count = np.unique(
        vectors, axis=0, return_inverse=True, return_counts=True
    )
    place = place.reshape(-1)
    clusters = min(size, len(points))
    label, between = (
        np.asarray(x)
        for x in k_means(
            jnp.asarray(points),
            jnp.asarray(count, points.dtype),
            key,
            num_clusters=clusters,
        )
    )
    item_label = label[place]
    total = np.bincount(item_label, weights=mass, minlength=clusters)
    own = between[np.arange(len(points)), label]
    # The nearest of each cluster: sort by cluster, then distance; take the first.
    near = np.lexsort((np.arange(len(mass)), own[place], item_label))
    _, first = np.unique(item_label[near], return_index=True)
    chosen = near[first]
    if len(chosen) < size:
        taken = np.zeros(len(mass), bool)
        taken[chosen] = True
        rest = np.flatnonzero(~taken)
        draw = np.asarray(jax.random.permutation(jax.random.fold_in(key, size), rest))
        heavy = draw[np.argsort(-total[item_label[draw]], kind="stable")]
        chosen = np.concatenate([chosen, heavy[: size - len(chosen)]])
    sharing = np.bincount(item_label[chosen], minlength=clusters)
    weight = total[item_label[chosen]] / sharing[item_label[chosen]]
    order = np.argsort(-weight, kind="stable")
    return chosen[order], weight[order]
