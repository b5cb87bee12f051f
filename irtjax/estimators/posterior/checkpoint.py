"""Chains of a sampler on disk: to resume after a crash, and for other programs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from irtjax.data.archives import read_archive, write_archive
from irtjax.data.writing import atomic_path
from irtjax.estimators.posterior.nuts import Chains, Draws, NoUTurn

if TYPE_CHECKING:
    import arviz  # pyright: ignore[reportMissingImports]
    import xarray  # pyright: ignore[reportMissingImports]

#: Version of the file's form; raised when its form changes.
FORMAT = "irtjax chains 1"
#: What `identity` compares, and how a difference is called.
_SAME = {
    "settings": "other settings of the sampler",
    "data": "other data",
    "key": "another random key",
    "start": "another model or other start values",
}


def identity(method: NoUTurn, data: Any, first: Chains) -> dict[str, Any]:
    """What a run must share with a checkpoint to resume from it, for JSON."""
    # Log densities before the first step identify the model, which has no name.
    names = ("num_warmup", "num_draws", "num_chains", "max_depth", "dense", "thinning")
    settings: dict[str, Any] = {name: getattr(method, name) for name in names}
    return {
        "settings": {**settings, "target_acceptance": float(method.target_acceptance)},
        "data": _hash_of(data),
        "key": np.asarray(jax.random.key_data(first.each.key)).tolist(),
        "start": np.asarray(first.each.log_density, float).tolist(),
    }


def _hash_of(data: Any) -> str:
    """SHA-256 of the arrays of a PyTree, with their paths, shapes and dtypes."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(data):
        array, name = np.asarray(leaf), jax.tree_util.keystr(path)
        digest.update(f"{name} {array.shape} {array.dtype}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save_chains(path: str | Path, chains: Chains, like: dict[str, Any]) -> Path:
    """Writes chains and the `identity` of their run, whole or not at all.

    An uncompressed NumPy archive without pickle; a ValueError if it cannot be written.
    """
    leaves = jax.tree.leaves(_with_key_data(chains))
    write_archive(Path(path), FORMAT, leaves, like)
    return Path(path)


def _with_key_data(chains: Chains) -> Chains:
    """The chains with the data of their keys, which NumPy can store."""
    data = jax.random.key_data(chains.each.key)
    return chains._replace(each=chains.each._replace(key=data))


def load_chains(path: str | Path, first: Chains, like: dict[str, Any]) -> Chains:
    """Reads chains that `save_chains` wrote, for `advance`.

    `first` are the chains of the run before their first step, `like` is its `identity`.
    A ValueError if there is no such file, it is no checkpoint, or it belongs to another
    model, data, key or settings.
    """
    what = "checkpoint of chains"
    arrays, identity = read_archive(path, FORMAT, what, with_identity=True)
    wanted, tree = jax.tree.flatten(_with_key_data(first))
    # Another machine may add in another order: log densities differ by rounding.
    slack = np.finfo(first.each.log_density.dtype).eps ** 0.5
    for name, words in _SAME.items():
        here, there = like[name], identity.get(name)
        same = there == here
        if name == "start" and len(there or ()) == len(here):
            same = np.allclose(there, here, slack, slack)
        if not same:
            raise ValueError(
                f"{path}: it belongs to a run with {words}; name another checkpoint"
            )
    if [(a.shape, a.dtype) for a in wanted] != [(a.shape, a.dtype) for a in arrays]:
        raise ValueError(
            f"{path}: it keeps other values of each draw; name another checkpoint"
        )
    chains = jax.tree.unflatten(tree, map(jax.numpy.asarray, arrays))
    kind = jax.random.key_impl(first.each.key)
    key = jax.random.wrap_key_data(chains.each.key, impl=kind)
    return chains._replace(each=chains.each._replace(key=key))


def check_arviz() -> None:
    """Raises, before a long run, if ArviZ or a writer of netCDF is not installed."""
    from importlib.util import find_spec

    for name in ("arviz", "h5netcdf", "h5py"):
        if find_spec(name) is None:
            raise ValueError(f"{name} is not installed: pip install 'irtjax[arviz]'")


def to_arviz(
    draws: Draws,
    *,
    log_likelihood: Any = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
) -> xarray.DataTree | arviz.InferenceData:
    """Draws as ArviZ' data structure, for its plots and other programs.

    Args:
        draws: The draws.
        log_likelihood: By name, `[chains, draws, ...]` log-likelihoods of observations.
        dims: Names of the axes after chains and draws, by name of a variable.
        coords: Labels along such an axis, by its name. `draw_labels` has both for the
            draws of a fit.

    Returns:
        A `DataTree` of xarray (an `InferenceData` with ArviZ before 1) with the groups
        `posterior`, `sample_stats` (with thinning, of the transitions that ended in a
        draw) and, where given, `log_likelihood`.

    Raises:
        ValueError: If ArviZ is not installed, or names or labels do not fit the draws.
    """
    try:
        import arviz  # pyright: ignore[reportMissingImports]
    except ImportError:
        message = "ArviZ is not installed: pip install 'irtjax[arviz]'"
        raise ValueError(message) from None
    variables = {**draws.values, **(log_likelihood or {})}
    dims, coords = dims or {}, coords or {}
    _check_labels(variables, dims, coords)
    # ArviZ' names.
    names = {
        "diverging": draws.divergent,
        "tree_depth": draws.tree_depth,
        "n_steps": draws.num_leapfrog,
        "acceptance_rate": draws.acceptance,
        "energy": draws.energy,
        "lp": draws.log_density,
    }
    last = slice(draws.thinning - 1, None, draws.thinning)
    statistics = {name: value[:, last] for name, value in names.items()}
    groups = {"posterior": draws.values, "sample_stats": statistics}
    if log_likelihood is not None:
        groups["log_likelihood"] = log_likelihood
    arrays = lambda of: {name: np.asarray(value) for name, value in of.items()}
    groups = {group: arrays(variables) for group, variables in groups.items()}
    axes_of = {name: list(axes) for name, axes in dims.items()}
    labels = {"dims": axes_of, "coords": arrays(coords)}
    if arviz.__version__.startswith("0."):
        return arviz.from_dict(**groups, **labels)
    return arviz.from_dict(groups, **labels)


def _check_labels(variables, dims, coords) -> None:
    """Refuses names of axes, or labels along them, that do not fit the variables."""
    for name, axes in dims.items():
        if name not in variables:
            raise ValueError(
                f"dims name {name!r}, which was not kept: there are"
                f" {', '.join(variables)}"
            )
        shape = np.shape(variables[name])[2:]
        if len(axes) != len(shape):
            raise ValueError(
                f"dims name {len(axes)} axes of {name!r} after chains and draws; it has"
                f" {len(shape)}"
            )
        for axis, size in zip(axes, shape, strict=True):
            if axis in coords and len(coords[axis]) != size:
                raise ValueError(
                    f"coords have {len(coords[axis])} labels of {axis!r}; {name!r} has"
                    f" {size}: give one for each"
                )


def write_draws(path: str | Path, draws: Draws, **options: Any) -> Path:
    """Writes draws as a netCDF file `.nc`, whole or not at all; returns its path.

    `arviz.from_netcdf` reads it. The options are those of `to_arviz`.

    Raises:
        ValueError: If ArviZ is not installed, or the file cannot be written.
    """
    data = to_arviz(draws, **options)
    with atomic_path(Path(path)) as temporary:
        data.to_netcdf(str(temporary), engine="h5netcdf")
    return Path(path)
