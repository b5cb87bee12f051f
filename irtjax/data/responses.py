"""The arrays that enter ``jit``: many subjects on many items, one measure."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Num


class Responses(eqx.Module):
    """Responses of many subjects to many items; arrays only, no labels.

    Missing cells hold 0 in ``values`` and ``False`` in ``observed``: a 0 adds nothing
    to any sufficient statistic of a response family, so only the base term of the
    log-likelihood needs the mask.

    Weights, not shapes, express bootstrap replicates, folds and padding: changing
    ``subject_weight`` or ``item_weight`` never recompiles.

    Attributes:
        values: `[subjects, items]`; int8 for binary and ordinal data, float for
            continuous data, the number right for binomial counts.
        observed: `[subjects, items]` mask, or None when nothing is missing.
        trials: `[subjects, items]` number of trials behind each count (0 where
            missing), or None when each cell is a single response.
        subject_weight: `[subjects]`, or None for weight 1 each.
        item_weight: `[items]` weight of each item in what is learned about a
            subject, or None for weight 1 each.
        item_facets: integer codes `[items]` by name, such as "benchmark".

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

    @property
    def num_subjects(self) -> int:
        """Number of rows."""
        return self.values.shape[0]

    @property
    def num_items(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    @property
    def exposure(self) -> Array | None:
        """What the base term is multiplied by: trials, the mask, or None for ones."""
        return self.observed if self.trials is None else self.trials
