"""Chains of a sampler on disk: to go on from after a crash, and for other programs."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from irtjax.data.files import atomic_path
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
    """What a run must share with a checkpoint to go on from it.

    Args:
        method: The sampler.
        data: Its data.
        first: The chains before their first step. Their log densities stand for the
            model, which has no other name.

    Returns:
        Settings, a hash of the data, the key, and log densities at the start, as JSON
        holds them.
    """
    settings = {
        name: getattr(method, name)
        for name in ("num_warmup", "num_draws", "num_chains", "max_depth", "dense")
    }
    settings |= {"thinning": method.thinning}
    settings |= {"target_acceptance": float(method.target_acceptance)}
    return {
        "settings": settings,
        "data": hash_of(data),
        "key": np.asarray(jax.random.key_data(first.each.key)).tolist(),
        "start": np.asarray(first.each.log_density, float).tolist(),
    }


def hash_of(data: Any) -> str:
    """SHA-256 of the arrays of a PyTree, with their places, shapes and dtypes.

    >>> hash_of({"a": np.zeros(2)}) == hash_of({"a": np.zeros(2)})
    True
    >>> hash_of({"a": np.zeros(2)}) == hash_of({"b": np.zeros(2)})
    False
    """
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(data):
        array = np.asarray(leaf)
        digest.update(
            f"{jax.tree_util.keystr(path)} {array.shape} {array.dtype}".encode()
        )
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def save_chains(path: str | Path, chains: Chains, like: dict[str, Any]) -> Path:
    """Writes chains and what they belong to, whole or not at all.

    Args:
        path: The file, an uncompressed NumPy archive without pickle.
        chains: From `begin` or `advance`.
        like: The `identity` of the run.

    Returns:
        The path.

    Raises:
        ValueError: If it cannot be written.
    """
    path = Path(path)
    leaves = [_plain(leaf) for leaf in jax.tree.leaves(chains)]
    arrays: dict[str, Any] = {"format": np.array(FORMAT)}
    arrays |= {"identity": np.array(json.dumps(like))}
    arrays |= {f"leaf_{k}": leaf for k, leaf in enumerate(leaves)}
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)
    return path


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> np.ndarray:
    if _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def load_chains(path: str | Path, first: Chains, like: dict[str, Any]) -> Chains:
    """Reads chains back.

    Args:
        path: The file that `save_chains` wrote.
        first: Chains of the same run before their first step.
        like: The `identity` of the run.

    Returns:
        The chains, for `advance`.

    Raises:
        ValueError: If there is no such file, it is no checkpoint, or it belongs to
            another model, data, key or settings.
    """
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            known = str(archive["format"]) == FORMAT
            found = json.loads(str(archive["identity"]))
            arrays = [archive[f"leaf_{k}"] for k in range(len(archive.files) - 2)]
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError, AttributeError):
        # NumPy's own message proposes to read pickles; they are not read here.
        raise ValueError(f"{path}: it is damaged, or no checkpoint of chains") from None
    if not known:
        raise ValueError(f"{path}: another form of checkpoint; write it again")
    leaves, tree = jax.tree.flatten(first)
    wanted = [_plain(leaf) for leaf in leaves]
    dtype = first.each.log_density.dtype
    for name, words in _SAME.items():
        if not _same(found.get(name), like[name], name, dtype):
            raise ValueError(
                f"{path}: it belongs to a run with {words}; name another checkpoint"
            )
    if [(a.shape, a.dtype) for a in wanted] != [(a.shape, a.dtype) for a in arrays]:
        raise ValueError(
            f"{path}: it keeps other values of each draw; name another checkpoint"
        )
    filled = [_like(array, leaf) for array, leaf in zip(arrays, leaves, strict=True)]
    return jax.tree.unflatten(tree, filled)


def _like(array: np.ndarray, leaf: Any) -> Any:
    """The array as JAX', a random key where the leaf is one."""
    found = jax.numpy.asarray(array)
    if _is_key(leaf):
        return jax.random.wrap_key_data(found, impl=jax.random.key_impl(leaf))
    return found


def _same(found: Any, wanted: Any, name: str, dtype) -> bool:
    if name != "start":
        return found == wanted
    # Another machine may add in another order, which no decimal of a prior survives.
    slack = np.finfo(dtype).eps ** 0.5
    return len(found or ()) == len(wanted) and np.allclose(found, wanted, slack, slack)


def check_arviz() -> None:
    """Refuses at once what would fail after a long run.

    Raises:
        ValueError: If ArviZ, or what writes netCDF for it, is not installed.
    """
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
        Groups `posterior` and `sample_stats` (with thinning, of the transitions that
        ended in a draw), and `log_likelihood` where given: a `DataTree` of xarray, and
        an `InferenceData` with ArviZ before 1.

    Raises:
        ValueError: If ArviZ is not installed, or a variable has not the axes or the
            given labels along them.
    """
    try:
        import arviz  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError(
            "ArviZ is not installed: pip install 'irtjax[arviz]'"
        ) from None
    variables = {**draws.values, **(log_likelihood or {})}
    shapes = {name: np.shape(value)[2:] for name, value in variables.items()}
    dims, coords = dims or {}, coords or {}
    _check_labels(shapes, dims, coords)
    names = {
        "diverging": draws.divergent,
        "tree_depth": draws.tree_depth,
        "n_steps": draws.num_leapfrog,
        "acceptance_rate": draws.acceptance,
        "energy": draws.energy,
        "lp": draws.log_density,
    }
    last = slice(draws.thinning - 1, None, draws.thinning)
    groups = {
        "posterior": draws.values,
        "sample_stats": {name: value[:, last] for name, value in names.items()},
    }
    if log_likelihood is not None:
        groups["log_likelihood"] = log_likelihood
    groups = {
        group: {name: np.asarray(value) for name, value in variables.items()}
        for group, variables in groups.items()
    }
    labels = {
        "dims": {name: list(axes) for name, axes in dims.items()},
        "coords": {name: np.asarray(labels) for name, labels in coords.items()},
    }
    if arviz.__version__.startswith("0."):
        return arviz.from_dict(**groups, **labels)
    return arviz.from_dict(groups, **labels)


def _check_labels(
    shapes: Mapping[str, tuple[int, ...]],
    dims: Mapping[str, Sequence[str]],
    coords: Mapping[str, Any],
) -> None:
    """Refuses names of axes that are not those of the variables."""
    for name, axes in dims.items():
        if name not in shapes:
            raise ValueError(
                f"dims name {name!r}, which was not kept: there are {', '.join(shapes)}"
            )
        if len(axes) != len(shapes[name]):
            raise ValueError(
                f"dims name {len(axes)} axes of {name!r} after chains and draws; it has"
                f" {len(shapes[name])}"
            )
        for axis, size in zip(axes, shapes[name], strict=True):
            if axis in coords and len(coords[axis]) != size:
                raise ValueError(
                    f"coords have {len(coords[axis])} labels of {axis!r}; {name!r} has"
                    f" {size}: give one for each"
                )


def write_draws(path: str | Path, draws: Draws, **options: Any) -> Path:
    """Writes draws as a netCDF file, whole or not at all.

    Args:
        path: The file, `.nc`; `arviz.from_netcdf` reads it.
        draws: The draws.
        **options: As for `to_arviz`.

    Returns:
        The path.

    Raises:
        ValueError: If ArviZ is not installed, or the file cannot be written.
    """
    path = Path(path)
    data = to_arviz(draws, **options)
    with atomic_path(path) as temporary:
        data.to_netcdf(str(temporary), engine="h5netcdf")
    return path
