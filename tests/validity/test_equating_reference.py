"""Equated scores against those that equateIRT prints.

Difficulties and discriminations of two forms of 20 items, the constants of their link
(a weighted bisector of two chains) and the equated scores are printed by the tutorial
of equateIRT (Battauz 2015, J. Stat. Softw. 68; sections 5 and 6, from `data2pl`).
"""

import jax
import numpy as np
import pytest

import irtjax
from irtjax.validity.equating import (
    _abilities_at,
    _chances,
    _distribution,
    _true,
)
from irtjax.validity.link_estimation import NODES

FORM_1 = """
 0.058224616 1.076092086   0.654862838 1.341200299   0.028019255 1.123453456
 0.073234265 1.091380106   0.522747833 1.483887762   0.831399476 1.300806488
 0.575285842 1.353845457  -0.342019714 1.381906844   0.428922604 1.272436496
 0.852091712 1.008690352   0.456475784 1.288728736  -0.137534728 1.473055586
 0.519128781 1.342341968   0.415936521 1.281925510   0.841940468 1.457139147
-0.006686047 1.007880221  -0.773019644 0.949042894   0.155039212 1.057666073
 0.337353040 1.201282017  -0.182437547 0.976907845
"""
FORM_4 = """
-0.18966258 0.96336363  -0.57151991 1.01240417  -0.97068963 1.05633835
 0.28221916 0.87356846   0.02656655 1.06908275  -0.12088864 1.10250771
 0.47589388 1.04526491  -0.01063699 0.93408343  -0.93598686 0.93004199
 0.54314189 1.11220053  -1.12849656 1.03344365  -0.77000076 0.96422272
 1.08701579 0.99182420   0.88830215 0.95219518   0.22917144 1.13447404
-0.78046634 1.18533478   0.13591938 1.04662444  -0.21787300 0.94374714
-0.05849482 0.80777460  -0.06296350 1.05217297
"""
#: Abilities of form 4 are A theta + B of form 1.
A, B = 1.189738, -0.4316305
#: Scores 1 to 19 of form 4: their abilities and scores on form 1.
ABILITIES = """
-3.2018628 -2.4342926 -1.9548627 -1.5906884 -1.2874493 -1.0206725 -0.7769609
-0.5479067 -0.3275850 -0.1113201  0.1050414  0.3256710  0.5553007  0.7999529
 1.0681829  1.3736059  1.7410355  2.2254147  3.0012603
"""
TRUE = """
 1.015953  1.955948  2.893737  3.841937  4.805130  5.784930  6.781477  7.794013
 8.821124  9.860811 10.910495 11.966967 13.026319 14.083854 15.133999 16.170197
17.184780 18.168749 19.111255
"""
#: The same for scores 0 to 16 by equal ranks.
OBSERVED = """
-0.01421594  0.95379681  1.90979310  2.86661488  3.83082127  4.80579296
 5.79315712  6.79342490  7.80635915  8.83092394  9.86541737 10.90798519
11.95636186 13.00728219 14.05690943 15.10136220 16.13633708
"""


def numbers(text):
    return np.array(text.split(), float)


@pytest.fixture(scope="module")
def forms():
    """(a, d) of both forms, and A and B of form 4 on the scale of form 1."""
    pairs = (numbers(text).reshape(-1, 2) for text in (FORM_1, FORM_4))
    items = [np.stack([a, -a * b], axis=1) for b, a in (x.T for x in pairs)]
    return (*items, np.array([1 / A, -B / A]))


def test_true_scores_are_those_of_equateirt(forms):
    family = irtjax.MODELS["2pl"]().family
    with jax.enable_x64(True):
        start = _abilities_at(family, forms[1])
        equated = np.asarray(_true(family, start, np.array([0.0, 1.0]), *forms))
    # Parameters, constants and results are printed with seven digits.
    np.testing.assert_allclose(start, numbers(ABILITIES), atol=2e-6)
    np.testing.assert_allclose(equated[1:-1], numbers(TRUE), atol=3e-6)


def test_observed_scores_are_those_of_equateirt(forms):
    """equateIRT weighs both populations by a half, `equate` takes the first alone."""
    old, new, (scale, shift) = forms
    family = irtjax.MODELS["2pl"]().family
    distributions = []
    with jax.enable_x64(True):
        for x, factor, origin in ((old, 1, 0), (new, 1 / scale, -shift / scale)):
            parts = (m + s * NODES for m, s in ((0.0, 1.0), (shift, scale)))
            chances = (_chances(family, x, factor * t + origin) for t in parts)
            distributions.append(sum(np.asarray(_distribution(p)) / 2 for p in chances))
    ranks = np.cumsum(distributions[1]) - distributions[1] / 2
    ends = np.concatenate([[0], np.cumsum(distributions[0])])
    equated = np.interp(ranks, ends, np.arange(len(ends)) - 0.5)[:17]
    # Nodes of the two programs differ: a thousandth of a score.
    np.testing.assert_allclose(equated, numbers(OBSERVED), atol=1e-3)
