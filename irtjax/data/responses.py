"""The arrays that enter ``jit``: responses of subjects to items, on one measure."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Num


class Responses(eqx.Module):
    """Responses of many subjects to many items; arrays only, no labels.

    Missing cells hold 0 in ``values`` and ``False`` in ``observed``: a 0 adds nothing
    to any sufficient statistic of a response family, so only the base term of the
    log-likelihood needs the mask. Other numbers in missing cells are replaced by 0.

    Weights, not shapes, express bootstrap replicates, folds and padding: changing
    ``subject_weight`` or ``item_weight`` never recompiles.

    Attributes:
        values: `[subjects, items]`; int8 for binary and ordinal data, float for
            continuous data, the number right for binomial counts.
        observed: `[subjects, items]` mask, or None when nothing is missing.
        trials: `[subjects, items]` trials of each count (0 if missing), or None for 1.
        subject_weight: `[subjects]`, or None for weight 1 each.
        item_weight: `[items]` in the likelihood of an ability, or None for 1 each.
        item_facets: integer codes `[items]` by name, such as "benchmark".
        log_length: `[subjects, items]` logarithms of lengths, 0 if missing, or None.
        length_observed: `[subjects, items]` mask of lengths; None when all are known.
        evidence: `[subjects, 2]` log-likelihood e_0 theta - e_1 theta^2 / 2 of each
            ability from other data (another measure, an earlier test), or None. For a
            normal N(m, s^2) in place of a population N(0, 1): e_0 = m / s^2,
            e_1 = 1 / s^2 - 1.

    >>> import jax.numpy as jnp
    >>> data = Responses(jnp.array([[1, 0], [1, 1]], jnp.int8))
    >>> data.num_subjects, data.num_items
    (2, 2)
    """

    values: Num[Array, "subjects items"]
    observed: Bool[Array, "subjects items"] | None = None
    trials: Int[Array, "subjects items"] | None = None
    subject_weight: Float[Array, " subjects"] | None = None
    item_weight: Float[Array, " items"] | None = None
    item_facets: dict[str, Int[Array, " items"]] = eqx.field(default_factory=dict)
    log_length: Float[Array, "subjects items"] | None = None
    length_observed: Bool[Array, "subjects items"] | None = None
    evidence: Float[Array, "subjects 2"] | None = None

    def __post_init__(self) -> None:
        """Puts 0 in missing cells."""
        self.values = _filled(self.values, self.observed)
        self.trials = _filled(self.trials, self.observed)

    @property
    def num_subjects(self) -> int:
        """Number of rows."""
        return self.values.shape[0]

    @property
    def num_items(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    @property
    def is_complete(self) -> bool:
        """Whether every cell is one observed response."""
        return self.exposure is None

    @property
    def exposure(self) -> Array | None:
        """What the base term is multiplied by: trials, the mask, or None for ones."""
        return self.observed if self.trials is None else self.trials


def _filled(values: Any, observed: Any) -> Any:
    """Values with 0 where they are not observed."""
    # Of in_axes= of a vmap, which has this class too, these are no matrices.
    if np.ndim(values) < 2 or np.ndim(observed) < 2:
        return values
    if _is_on_host(values) and _is_on_host(observed):
        # Most data have no other number there. To compare arrays on the host compiles
        # nothing; a masked copy is one program for each shape.
        missing = ~np.asarray(observed, bool)
        if not (missing & (np.asarray(values) != 0)).any():
            return values
    return jnp.where(observed, values, jnp.zeros((), values.dtype))


def _is_on_host(array: Any) -> bool:
    """Whether NumPy sees the memory of an array without a copy."""
    if isinstance(array, Tracer):
        return False
    if not isinstance(array, jax.Array):
        return True
    return array.is_fully_addressable and all(
        device.platform == "cpu" for device in array.devices()
    )
