"""Abilities and calibrations of all versions on the scale of the first.

Errors of linked abilities are linear in independent factors: the items' own errors, by
the constants of the link; and the factors of shared errors of each calibration, by the
constants, which its location and scale move, and by its own abilities. So an error of
location or scale of a later calibration cancels: its constants follow it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.calibration.abilities import Abilities
from irtjax.calibration.item_error import item_errors
from irtjax.calibration.rescaled import Rescaling, moved_item, rescaled
from irtjax.ranking import leading_loadings
from irtjax.validity.link_estimation import Form, LinkEstimate, curves, family_of

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.models.family import AbstractResponseFamily

#: Subjects up to which abilities have the covariance of all pairs.
MOST_SUBJECTS = 5_000


def shared_loadings(
    forms: Sequence[Form], estimate: LinkEstimate, k: int
) -> np.ndarray:
    """`[subjects, any]` loadings of the errors of linked abilities of a calibration."""
    form, rows = forms[k], slice(2 * k, 2 * k + 2)
    values, vectors = np.linalg.eigh(np.nan_to_num(estimate.own))
    root = (vectors * np.sqrt(np.maximum(values, 0)))[rows]
    by_constants = np.column_stack([form.ability, np.ones_like(form.ability)])
    parts = [by_constants @ root]
    for m, other in enumerate(forms):
        moved = by_constants @ estimate.by_scale[m][rows]
        own = 0.0
        if m == k:
            scale = estimate.constants[k, 0]
            moved, own = moved + scale * form.design, scale * form.rest
        parts.append(moved @ other.scale + own)
    return np.concatenate(parts, axis=1)


def linked_abilities(
    fits: Sequence[Calibration],
    names: Sequence[str],
    forms: Sequence[Form],
    estimate: LinkEstimate,
) -> Abilities:
    """Subjects of all calibrations on the first scale, with the error of the link.

    Expected scores are those on the items of the first.
    """
    factor, shift = estimate.constants.T
    estimates = np.concatenate(
        [a * form.ability + b for a, b, form in zip(factor, shift, forms, strict=True)]
    )
    own = np.concatenate(
        [a * form.error for a, form in zip(factor, forms, strict=True)]
    )
    loadings = np.concatenate(
        [shared_loadings(forms, estimate, k) for k in range(len(forms))]
    )
    labels = [
        (name, version)
        for fit, version in zip(fits, names, strict=True)
        for name in fit.subject_names.tolist()
    ]
    count = Counter(name for name, _ in labels)
    subjects = np.array(
        [f"{x} ({version})" if count[x] > 1 else x for x, version in labels]
    )
    finite = np.isfinite(estimates) & np.isfinite(own)
    finite &= np.isfinite(loadings).all(axis=1)
    subjects, estimates = subjects[finite], estimates[finite]
    own, loadings = own[finite], loadings[finite]
    total = np.sqrt(own**2 + np.sum(loadings**2, axis=1))
    covariance = total
    if len(total) <= MOST_SUBJECTS:
        covariance = loadings @ loadings.T + np.diag(own**2)
    grid = np.linspace(-10, 10, 401)
    every = np.broadcast_to(grid, (len(forms[0].items), len(grid)))
    response = curves(family_of(fits[0]), forms[0].x, every)
    value, slope = (np.asarray(x).mean(axis=0) for x in response)
    expected = np.interp(estimates, grid, value)
    expected_error = total * np.abs(np.interp(estimates, grid, slope))
    heading = f"{len(subjects):,} subjects of {len(names)} versions on one scale"
    return Abilities(
        subjects, estimates, covariance, (expected, expected_error), heading=heading
    )


def rescaled_fit(
    fit: Calibration,
    forms: Sequence[Form],
    estimate: LinkEstimate,
    k: int,
    reference: str,
) -> Calibration:
    """A calibration on the scale of the first, the version `reference`."""
    scale, shift = estimate.constants[k].tolist()
    shared = np.nan_to_num(shared_loadings(forms, estimate, k))
    spectrum = np.linalg.eigvalsh(shared.T @ shared)
    rank = int(np.sum(spectrum > 1e-12 * spectrum[-1]))
    covariance = None
    if item_errors(fit) is not None:
        with jax.enable_x64(True):
            covariance = _item_covariance(fit, forms, estimate, k)
    change = Rescaling(
        scale,
        shift,
        covariance,
        leading_loadings(shared, rank) if rank else None,
        forms[k].error,
    )
    a_error, b_error = np.sqrt(np.diag(estimate.covariance))[2 * k : 2 * k + 2]
    note = (
        f"on the scale of {reference}: A {scale:.3f} (standard error {a_error:.3f}), B"
        f" {shift:.3f} ({b_error:.3f})"
    )
    return rescaled(fit, change, note)


def _item_covariance(
    fit: Calibration, forms: Sequence[Form], estimate: LinkEstimate, k: int
) -> np.ndarray:
    """Covariances of the items' coordinates on the first scale, with the link's error.

    An item's own error moves its coordinates, and the constants if it links.
    """
    form, rows = forms[k], slice(2 * k, 2 * k + 2)
    by_x, by_constants = map(
        np.asarray,
        _moves(fit.model.family, family_of(fit), form.x, estimate.constants[k]),
    )
    begin = sum(len(other.items) for other in forms[:k])
    own = np.nan_to_num(form.own)
    derivative = np.moveaxis(
        estimate.derivative[k][:, begin : begin + len(form.items)], 1, 0
    )
    direct, by_link = by_x @ own, by_constants @ derivative
    cross = direct @ np.swapaxes(by_link, 1, 2)
    total = direct @ np.swapaxes(by_x, 1, 2) + cross + np.swapaxes(cross, 1, 2)
    constants = np.nan_to_num(estimate.own[rows, rows])
    total = total + by_constants @ constants @ np.swapaxes(by_constants, 1, 2)
    for m, other in enumerate(forms):
        moved = by_constants @ estimate.by_scale[m][rows]
        moved = (moved + by_x @ form.moves if m == k else moved) @ other.scale
        total = total + moved @ np.swapaxes(moved, 1, 2)
    before = np.asarray(fit.item_covariance, float)
    usable = np.asarray(np.isfinite(form.own).all(axis=(1, 2)))
    # Items of which a coordinate has no error keep those of the others.
    return np.where(usable[:, None, None] | np.isfinite(before), total, np.nan)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _moves(
    family: AbstractResponseFamily,
    any_sign: AbstractResponseFamily,
    x: np.ndarray,
    constants: np.ndarray,
) -> tuple[jax.Array, jax.Array]:
    """Derivatives of the family's coordinates on another scale, in x, A and B."""

    def coordinates(x: jax.Array, constants: jax.Array) -> Any:
        moved = moved_item(family, any_sign.constrain(x), *constants)
        return family.unconstrain(moved)

    by_both = jax.jacfwd(coordinates, argnums=(0, 1))
    return jax.vmap(by_both, (0, None))(x, jnp.asarray(constants))
