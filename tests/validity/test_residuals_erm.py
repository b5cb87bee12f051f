"""Infit, outfit and a tetrachoric correlation against R's eRm and psych.

The values are of R 4.2.2 with eRm 1.0-2 (`RM`, `person.parameter`, `itemfit`) and
psych 2.2.9 (`tetrachoric` with `correct = 0`). eRm's fit is of the subjects who have
neither all nor none right, at their maximum likelihood abilities.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.data.stored_cells import DenseCells
from irtjax.models.catalogue import rasch
from irtjax.models.families.logistic import LogisticItems
from irtjax.validity.residuals import item_fit
from irtjax.validity.tetrachoric import tetrachoric_of_counts

ROWS, COLUMNS = np.arange(30)[:, None], np.arange(4)
PRODUCTS = 7 * ROWS + 3 * COLUMNS + ROWS * COLUMNS
VALUES = (PRODUCTS % 11 < 3 + ROWS / 6 + 0.9 * COLUMNS).astype(np.int8)
EASINESS = [-0.592908809372, -0.316487961125, 0.454698385249, 0.454698385249]
#: Of 1, 2 and 3 right.
ABILITY = np.array([-1.15294604391211, -0.00106691413414, 1.15245580001636])
INFIT = [1.096119969951, 1.007488405750, 0.664824240719, 1.103049045775]
OUTFIT = [1.148183935520, 0.977541266918, 0.575223788183, 1.100299445444]


def test_infit_and_outfit_are_those_of_erm():
    assert VALUES.sum(0).tolist() == [16, 18, 23, 23]
    right = VALUES.sum(1)
    inside = (right > 0) & (right < 4)
    ones = jnp.ones(4)
    items = LogisticItems(ones, jnp.array(EASINESS), 0 * ones, ones)
    ability = ABILITY[right[inside] - 1]
    found = item_fit(rasch().family, items, ability, DenseCells(VALUES[inside]))
    np.testing.assert_allclose(found.infit, INFIT, rtol=1e-10)
    np.testing.assert_allclose(found.outfit, OUTFIT, rtol=1e-10)


def test_a_tetrachoric_correlation_is_that_of_psych():
    counts = (jnp.asarray(float(x)) for x in (9, 16, 18, 30))
    # psych's optimiser stops within 3e-5.
    assert float(tetrachoric_of_counts(*counts)) == pytest.approx(-0.1300575, abs=5e-5)
