"""One small calibration with every kind of oddity, shared by the tests of the edge."""

import functools

import jax
import numpy as np

import irtjax

#: Names that Markdown, HTML, terminals, CSV or mathematics could trip over.
NASTY = 'we$ird_$x|<b>[red]\x1b[31m *m*, "q"'


@functools.cache
def small_table() -> irtjax.ResponseTable:
    """24 subjects on 15 items of two benchmarks, some missing, one item all right."""
    random = np.random.default_rng(1)
    ability = np.linspace(-2, 2, 24)
    slope = random.uniform(0.8, 1.8, 15)
    slope[3] = -1.5
    chance = 1 / (1 + np.exp(-slope * (ability[:, None] - np.linspace(-1.5, 1.5, 15))))
    right = (random.random(chance.shape) < chance).astype(float)
    right[:, 0] = 1
    right[random.random(chance.shape) < 0.05] = np.nan
    subjects = [f"vendor/model_{k}" for k in range(23)] + [NASTY]
    return irtjax.ResponseTable.from_arrays(
        right,
        subjects=subjects,
        items=[f"b{k % 2}/q{k}" for k in range(14)] + ["co$t_$2|x"],
        benchmark=[f"b{k % 2}" for k in range(15)],
    )


@functools.cache
def small_fit(
    model: str = "2pl", method: str = "em", errors: bool = True
) -> irtjax.Calibration:
    """A calibration of `small_table`; item errors for the 2PL only, if at all."""
    # Their program takes several seconds to compile.
    known = errors and (model, method) == ("2pl", "em")
    kind = "observed" if known else "none"
    key = jax.random.key(0)
    return irtjax.fit(small_table(), model, method, standard_errors=kind, key=key)
