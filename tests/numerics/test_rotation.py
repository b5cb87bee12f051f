"""Rotation against published solutions, other optimisers and first principles.

`ABILITY` and its rotations are the values that the tests of R's GPArotation compare
with (two factors of R's `ability.cov` by `factanal`; Bernaards and Jennrich 2005).
`ATHLETES` and its quartimin are in the same tests, as printed to four digits. `SPSS`
are eight personality items with the output of SPSS, with Kaiser's normalisation
(psych.unl.edu/psycrs/statpage/pc_rot.pdf).
"""

from functools import partial
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm, orthogonal_procrustes
from scipy.optimize import linear_sum_assignment, minimize

from irtjax.numerics import rotation as module
from irtjax.numerics.loadings import (
    align,
    communality,
    congruence,
    standardised_loadings,
    structure_matrix,
)
from irtjax.numerics.rotation import ROTATIONS, Rotation, oblimin, rotate

# One shape and number of starts for most tests: each is a program to compile.
STARTS = 20
NAMES = [name for name, entry in ROTATIONS.items() if not entry.needs_target]


def matrix(text: str) -> Any:
    return np.array([row.split() for row in text.strip().splitlines()], float)


# Columns: varimax, not normalised.
ABILITY = matrix("""
    0.515866523962843160 0.527879475961036904
    0.175054634278874244 0.616460231981747930
    0.232057748479543163 0.853211588623112749
    0.122822468397975171 0.464213243286899446
    0.961376376417989453 0.152689863976982837
    0.791292800869773050 0.200653429940987366""")
#: `factanal(factors = 2, covmat = ability.cov)` of R 4.2.2, where those tests start.
FACTANAL = matrix("""
    0.49943782903989237 0.54344904693110307
    0.15607007943128628 0.62153798991196596
    0.20578698995858299 0.85992588538427184
    0.10853075444055588 0.46776101732284181
    0.95624247027983134 0.18209631992181438
    0.78476818387786618 0.22482213687364588""")
ABILITY_ROTATED = {
    "quartimax": matrix("""
    0.534714740804540178 0.508778102568043678
    0.197348140750149392 0.609689309353509956
    0.262919828098457153 0.844212045390758559
    0.139616102327241837 0.459441658926639795
    0.966291466215733252 0.117641548844535412
    0.798063848020893585 0.171756193883937508"""),
    "oblimin": matrix("""
     0.3863615904740822504  0.4745127741495974161
    -0.0110059418769087539  0.6458720769633764514
    -0.0262926272350604423  0.8961141105684561348
    -0.0180200526810754824  0.4882928281695405048
     0.9900944939102318543 -0.0370718282544326011
     0.7905657274265397438  0.0526109550054999417"""),
    "geomin_orthogonal": matrix("""
    0.572197044101002361 0.4662247895688098054
    0.243573415560656120 0.5927388411683653935
    0.326956608263186954 0.8215352639437966120
    0.174476792179181994 0.4473668997335142894
    0.972471249855535680 0.0431091626026945812
    0.808894688433769660 0.1099794466209375043"""),
    "geomin": matrix("""
     0.39672053553904490508  0.4713295988080449250
     0.00424452688463150020  0.6389466007374070555
    -0.00510976786312981532  0.8864521406378518265
    -0.00646959173137159373  0.4830101828530461994
     0.98709860078485589518 -0.0318959930081098297
     0.79011178369962709045  0.0558689642678330683"""),
    "target_orthogonal": matrix("""
    0.551529228817982942 0.4905002767031292898
    0.217748645523411000 0.6027046291262584399
    0.291173432863349457 0.8348885228488550636
    0.154994397662456290 0.4544843569140373241
    0.969702339393929247 0.0850652965070581996
    0.803390575440818822 0.1448091121037717866"""),
    "target": matrix("""
    0.735795682866631218 0.565351705145453853
    0.433590223819374398 0.664644550038417159
    0.589924557708411568 0.920006940799857786
    0.317543426981046928 0.500590650032113116
    1.021758247914384077 0.155121528590726393
    0.872521244896209747 0.208735706420634437"""),
}
ATHLETES = matrix("""
    .73 -.07 .50
    .82 -.01 .27
    .77 -.46 -.22
    .78 .17 .03
    .77 .41 .13
    .81 -.01 .27
    .71 -.45 -.30
    .82 .12 -.11
    .66 -.15 -.45
    .39 .76 -.40""")
ATHLETES_QUARTIMIN = matrix("""
     0.9451 -0.0535 -0.18033
     0.7725  0.1431  0.01187
     0.1323  0.8617 -0.12847
     0.5377  0.2050  0.28753
     0.6888 -0.0555  0.44072
     0.7665  0.1386  0.00987
     0.0150  0.8967 -0.08931
     0.4047  0.3792  0.32647
    -0.1056  0.7915  0.24071
    -0.0155 -0.0165  0.94994""")
SPSS = matrix("""
    .758 .413 1.164E-03
    .693 .489 -.199
    .362 .656 -.204
    .826 6.589E-02 .235
    .540 -.510 .441
    .654 -.335 .507
    -.349 .539 .669
    -.580 .450 .551""")
SPSS_QUARTIMAX = matrix("""
    .814 .285 -4.99E-02
    .856 8.321E-02 -.135
    .746 -.203 7.244E-02
    .576 .634 -8.73E-02
    -6.10E-02 .850 -.142
    .129 .882 -3.86E-02
    2.063E-02 -4.15E-02 .927
    -.181 -.220 .873""")
SPSS_PATTERN = matrix("""
    .241 .787 -1.36E-02
    1.783E-02 .848 -.119
    -.240 .779 6.824E-02
    .608 .507 -2.52E-02
    .858 -.163 -7.26E-02
    .896 3.050E-02 3.954E-02
    9.405E-02 7.397E-02 .949
    -8.61E-02 -.113 .875""")
SPSS_STRUCTURE = matrix("""
    .379 .829 -.146
    .191 .862 -.203
    -.123 .731 .051
    .701 .613 -.218
    .847 -.010 -.261
    .891 .180 -.176
    -.118 .000 .919
    -.313 -.211 .906""")
#: Thurstone's twenty boxes, their target (- is free), and the pattern that GPArotation
#: prints, which is the one of Jennrich (2002), to 10 digits.
BOXES = matrix("""
    0.659 -0.736 0.138
    0.725 0.180 -0.656
    0.665 0.537 0.500
    0.869 -0.209 -0.443
    0.834 0.182 0.508
    0.836 0.519 0.152
    0.856 -0.452 -0.269
    0.848 -0.426 0.320
    0.861 0.416 -0.299
    0.880 -0.341 -0.354
    0.889 -0.417 0.436
    0.875 0.485 -0.093
    0.667 -0.725 0.109
    0.717 0.246 -0.619
    0.634 0.501 0.522
    0.936 0.257 0.165
    0.966 -0.239 -0.083
    0.625 -0.720 0.166
    0.702 0.112 -0.650
    0.664 0.536 0.488""")
BOXES_TARGET = np.array(
    [
        [0 if cell == "0" else np.nan for cell in row]
        for row in "0-0 -00 00- --0 0-- -0- --0 0-- -0- --0 0-- -0- 0-0 -00"
        " 00- --- --- 0-0 -00 00-".split()
    ]
)
BOXES_PATTERN = matrix("""
    0.0132419456 -0.9936076528 0.0072654600
    0.9912131454 -0.0117832070 0.0006545860
    0.0179844732 -0.0026607685 0.9855810048
    0.7719843508 -0.4772354834 0.0015477360
    0.0033419865 -0.3929041695 0.8740437937
    0.4093434784 -0.0027461055 0.8156498887
    0.5475705552 -0.7295104493 -0.0202113539
    0.0229237905 -0.8701171273 0.4045422528
    0.7991105803 0.0241681048 0.4527270439
    0.6639350236 -0.6214966501 -0.0051869283
    -0.0583979068 -0.9151793189 0.5115219498
    0.6392440620 0.0184175035 0.6435441963
    0.0459708650 -0.9798080160 -0.0029186431
    0.9710338955 0.0384706508 0.0600664504
    -0.0262277634 -0.0248206009 0.9652727092
    0.3799810552 -0.2807383567 0.7260479937
    0.4898518255 -0.6522681291 0.2857389667
    -0.0245105764 -0.9712204280 0.0191329017
    0.9570822022 -0.0608629372 -0.0450509422
    0.0279790373 0.0003645875 0.9760837717""")
TURN = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]


def turned(loadings, name: Any, **settings):
    return rotate(jnp.asarray(loadings), name, num_starts=STARTS, **settings)


def numpy_criterion(name):
    """Criteria as Bernaards and Jennrich (2005) print them."""
    if name.startswith("geomin"):
        return lambda l: np.sum(np.prod((l**2 + 0.01) ** (1 / 3), 1))
    if name == "oblimin":
        crossed = 1 - np.eye(3)
        return lambda l: np.sum(l**2 * (l**2 @ crossed)) / 4
    if name == "quartimax":
        return lambda l: -np.sum(l**4) / 4
    if name == "bifactor":
        return lambda l: np.sum(l[:, 1] ** 2 * l[:, 2] ** 2) / 2
    return lambda l: -np.sum((l**2 - (l**2).mean(0)) ** 2) / 4


def svd_varimax(loadings, normalise):
    """The classical iteration (Horst 1965; R's `varimax`)."""
    length = np.sqrt((loadings**2).sum(1, keepdims=True)) if normalise else 1
    scaled, turn = loadings / length, np.eye(loadings.shape[1])
    for _ in range(2000):
        now = scaled @ turn
        left, _, right = np.linalg.svd(
            scaled.T @ (now**3 - now * (now**2).mean(0)), full_matrices=False
        )
        turn = left @ right
    return loadings @ turn


def in_order(loadings):
    loadings = loadings[:, np.argsort(-((loadings**2).sum(0)))]
    return loadings * np.sign(loadings.sum(0))


@pytest.mark.parametrize("name", ABILITY_ROTATED)
def test_rotations_of_ability_agree_with_gparotation(name):
    published = ABILITY_ROTATED[name]
    if ROTATIONS[name].needs_target:
        # Printed are the local optima that one start leads to.
        target: Any = np.repeat([[1.0, 0.0], [0.0, 1.0]], 3, 0)
        found = rotate(ABILITY, name, num_starts=1, target=target)
        value = float(np.sum((published - target) ** 2))
        assert float(found.value) == pytest.approx(value)
    else:
        found = turned(ABILITY, name)
    assert found.converged
    loadings = align(jnp.asarray(published), found.loadings).loadings
    # GPArotation stops at a projected gradient of 1e-5, for oblimin at 1e-8.
    near = 1e-8 if name == "oblimin" else 2e-5
    np.testing.assert_allclose(loadings, published, atol=near)


def gradient_projection(loadings, name, least):
    """Jennrich (2001, 2002) from the identity, to a projected gradient of `least`."""
    entry, transform, step = ROTATIONS[name], np.eye(loadings.shape[1]), 1.0
    given = ()
    if entry.needs_target:
        given = jnp.asarray(np.repeat([[1.0, 0.0], [0.0, 1.0]], 3, 0)), True
    slope = jax.jit(jax.value_and_grad(lambda x: entry.criterion(x, *given)))

    def at(transform):
        inverse = np.linalg.inv(transform)
        rotated = loadings @ (inverse.T if entry.oblique else transform)
        value, by = map(np.asarray, slope(rotated))
        by = -(rotated.T @ by @ inverse).T if entry.oblique else loadings.T @ by
        return rotated, float(value), by

    def back(transform):
        if entry.oblique:
            return transform / np.linalg.norm(transform, axis=0)
        left, _, right = np.linalg.svd(transform)
        return left @ right

    rotated, value, by = at(transform)
    for _ in range(200):
        across = transform.T @ by
        if entry.oblique:
            projected = by - transform * np.diag(across)
        else:
            projected = by - transform @ (across + across.T) / 2
        size = np.linalg.norm(projected)
        if size < least:
            break
        step *= 2
        for _ in range(11):
            moved = back(transform - step * projected)
            found = at(moved)
            if found[1] < value - step * size**2 / 2:
                break
            step /= 2
        transform, (rotated, value, by) = moved, found
    return rotated


@pytest.mark.parametrize(
    "name", ["quartimax", "geomin_orthogonal", "geomin", "target_orthogonal", "target"]
)
def test_published_rotations_are_where_gparotation_stops(name):
    """From its start, to 1e-6; run on, at the rotation found here."""
    published = ABILITY_ROTATED[name]
    stopped, ended = (gradient_projection(FACTANAL, name, x) for x in (1e-5, 1e-8))
    stopped = align(jnp.asarray(published), jnp.asarray(stopped)).loadings
    np.testing.assert_allclose(stopped, published, atol=1e-6)
    target: Any = np.repeat([[1.0, 0.0], [0.0, 1.0]], 3, 0)
    more = {"target": target} if ROTATIONS[name].needs_target else {}
    found = rotate(jnp.asarray(FACTANAL), name, num_starts=1, **more).loadings
    ended = align(found, jnp.asarray(ended)).loadings
    np.testing.assert_allclose(ended, found, atol=1e-6)


def test_a_target_with_free_cells_agrees_with_gparotation():
    found = rotate(BOXES, "target", num_starts=5, target=BOXES_TARGET)
    assert found.converged
    # GPArotation leaves the sign of a factor to chance; here sums are positive.
    signs = np.sign(BOXES_PATTERN.sum(0))
    np.testing.assert_allclose(found.loadings, BOXES_PATTERN * signs, atol=1e-6)


def test_varimax_of_ability_agrees_with_gparotation():
    start = ABILITY @ np.array([[0.6, 0.8], [-0.8, 0.6]])
    found = turned(start, "varimax", normalise=False)
    np.testing.assert_allclose(found.loadings, in_order(ABILITY), atol=1e-7)


def test_quartimin_of_athletes_and_its_correlations():
    found = turned(ATHLETES, "oblimin")
    np.testing.assert_allclose(found.loadings, ATHLETES_QUARTIMIN, atol=6e-5)
    phi = np.array([[1, 0.554, 0.259], [0.554, 1, 0.186], [0.259, 0.186, 1]])
    np.testing.assert_allclose(found.correlations, phi, atol=6e-4)


def test_kaiser_normalisation_agrees_with_spss():
    """Two items without loadings, which must not matter, give the usual shape."""
    loadings = np.concatenate([SPSS, np.zeros((2, 3))])
    found = turned(loadings, "quartimax", normalise=True)
    np.testing.assert_allclose(found.loadings[:8], in_order(SPSS_QUARTIMAX), atol=1e-3)
    assert (found.loadings[8:] == 0).all()
    found = turned(loadings, "oblimin", normalise=True)
    structure = structure_matrix(found.loadings, found.correlations)[:8]
    order = np.argsort(-(SPSS_STRUCTURE**2).sum(0))
    # SPSS stops early: 0.003 and 0.004 apart, as GPArotation is.
    np.testing.assert_allclose(found.loadings[:8], SPSS_PATTERN[:, order], atol=3e-3)
    np.testing.assert_allclose(structure, SPSS_STRUCTURE[:, order], atol=4e-3)


def test_varimax_and_promax_agree_with_their_iteration_and_formula():
    for normalise in (True, False):
        found = turned(ATHLETES, "varimax", normalise=normalise)
        expected = in_order(svd_varimax(ATHLETES, normalise))
        np.testing.assert_allclose(found.loadings, expected, atol=1e-7)
    varied = in_order(svd_varimax(ATHLETES, True))
    goal = np.abs(varied) ** 3 * varied
    u = np.linalg.lstsq(varied, goal, rcond=None)[0]
    u = u @ np.diag(np.sqrt(np.diag(np.linalg.inv(u.T @ u))))
    phi = np.linalg.inv(u.T @ u)
    order = np.argsort(-((varied @ u @ phi) ** 2).sum(0))
    found = turned(ATHLETES, "promax")
    np.testing.assert_allclose(found.loadings, (varied @ u)[:, order], atol=1e-7)
    np.testing.assert_allclose(found.correlations, phi[order][:, order], atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_every_rotation_keeps_the_fit_and_is_stationary(name):
    oblique = ROTATIONS[name].oblique
    found = turned(ATHLETES, name)
    arrays: Any = map(np.asarray, found[:3])
    pattern, transform, phi = arrays
    assert found.converged and 0 < found.share_at_best <= 1
    np.testing.assert_allclose(pattern @ phi @ pattern.T, ATHLETES @ ATHLETES.T, 1e-10)
    np.testing.assert_allclose(transform.T @ transform, phi, atol=1e-12)
    np.testing.assert_allclose(pattern @ transform.T, ATHLETES, atol=1e-12)
    np.testing.assert_allclose(np.diag(phi), 1, atol=1e-12)
    explained = (structure_matrix(pattern, phi) ** 2).sum(0)
    assert (np.diff(explained[ROTATIONS[name].general :]) <= 0).all()
    assert (pattern.sum(0) > 0).all()
    if not oblique:
        np.testing.assert_allclose(phi, np.eye(3), atol=1e-12)
    # The criterion in numpy along curves through the optimum, by central differences.
    if name == "promax":
        return
    length = np.sqrt((ATHLETES**2).sum(1, keepdims=True))
    scaled = ATHLETES / length if ROTATIONS[name].normalise else ATHLETES
    criterion = numpy_criterion(name)

    def along(direction):
        if not oblique:
            return criterion(scaled @ transform @ expm(direction - direction.T))
        moved = transform + direction
        moved = moved / np.sqrt((moved**2).sum(0))
        return criterion(scaled @ np.linalg.inv(moved).T)

    assert along(np.zeros((3, 3))) == pytest.approx(float(found.value))
    for direction in np.random.default_rng(0).standard_normal((5, 3, 3)) * 1e-5:
        slope = (along(direction) - along(-direction)) / 2e-5
        assert abs(slope) < 1e-6


@pytest.mark.parametrize("num_starts", [5, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["geomin", "oblimin", "quartimax"])
def test_no_optimiser_finds_a_better_value(name, num_starts):
    """Another parametrisation, other steps and other starts, from scipy."""
    found, criterion = turned(ATHLETES, name), numpy_criterion(name)
    random = np.random.default_rng(5)

    def value(free):
        turn = free.reshape(3, 3)
        if not ROTATIONS[name].oblique:
            return criterion(ATHLETES @ np.linalg.qr(turn)[0])
        turn = turn / np.sqrt((turn**2).sum(0))
        return criterion(ATHLETES @ np.linalg.inv(turn).T)

    starts = random.standard_normal((num_starts, 9))
    values = [minimize(value, start).fun for start in starts]
    assert float(found.value) <= min(values) + 1e-9
    assert min(values) == pytest.approx(float(found.value), abs=1e-5)


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.slow] * (x != "oblimin")) for x in NAMES],
)
def test_results_do_not_depend_on_the_axes_of_the_input(name):
    found = turned(ATHLETES, name)
    for other in (ATHLETES[:, [2, 0, 1]] * [-1, 1, -1], ATHLETES @ TURN):
        again = turned(other, name)
        np.testing.assert_allclose(again.loadings, found.loadings, atol=1e-6)
        np.testing.assert_allclose(again.correlations, found.correlations, atol=1e-6)
    if name == "geomin":
        # The same starts by default, others by key.
        assert (turned(ATHLETES, name).transform == found.transform).all()
        other = turned(ATHLETES, name, key=jax.random.key(3))
        np.testing.assert_allclose(other.loadings, found.loadings, atol=1e-6)


def test_local_minima_show_in_the_share_of_starts():
    """Factors that correlate at 0.9: most starts end with uncorrelated ones."""
    phi = np.array([[1, 0.9], [0.9, 1]])
    planted = np.kron(np.eye(2), np.full((5, 1), 0.7))
    found = turned(planted @ np.linalg.cholesky(phi), "oblimin")
    assert found.converged and found.value < 1e-12
    np.testing.assert_allclose(found.correlations, phi, atol=1e-6)
    assert found.share_at_best * STARTS == pytest.approx(
        round(float(found.share_at_best) * STARTS)
    )
    assert 0.1 < found.share_at_best < 0.6


PLANTED = np.array(
    [[0.7, 0, 0], [0.8, 0, 0], [0.6, 0, 0], [0.5, 0.4, 0], [0, 0.7, 0], [0, 0.6, 0]]
    + [[0, 0.5, 0.3], [0, 0, 0.6], [0, 0, 0.7], [0.3, 0, 0.5]]
)


@pytest.mark.parametrize("name", ["target", "target_orthogonal"])
def test_a_partial_target_recovers_a_planted_pattern(name):
    phi = np.array([[1, 0.4, 0.2], [0.4, 1, 0.3], [0.2, 0.3, 1]])
    root = np.linalg.cholesky(phi if name == "target" else np.eye(3)).T
    # Zeros alone identify the axes up to sign, a value the sign of its column too.
    target = np.where(PLANTED == 0, 0, np.nan)
    target[2, 1], target[4, 1] = np.nan, -0.7
    found = turned(PLANTED @ root.T @ TURN, name, target=target)
    planted = PLANTED * [1, -1, 1]
    np.testing.assert_allclose(found.loadings, planted, atol=1e-6)
    if name == "target":
        expected = phi * np.outer([1, -1, 1], [1, -1, 1])
        np.testing.assert_allclose(found.correlations, expected, atol=1e-6)
    assert found.value < 1e-12


def test_bifactor_keeps_the_general_factor_first():
    """A weak general factor, two groups: a perfect bifactor solution of value 0."""
    planted = np.zeros((10, 3))
    planted[:, 0] = [0.3, 0.2, 0.4, 0.3, 0.2, 0.3, 0.2, 0.4, 0.3, 0.1]
    planted[:5, 2], planted[5:, 1] = (
        [0.6, 0.7, 0.5, 0.8, 0.6],
        [0.7, 0.5, 0.8, 0.6, 0.9],
    )
    found = turned(planted @ TURN, "bifactor")
    assert found.value < 1e-12
    np.testing.assert_allclose(found.loadings, planted, atol=1e-5)


def test_replicates_are_rotated_in_one_vmap():
    replicates = ATHLETES + np.random.default_rng(2).normal(0, 0.05, (3, 10, 3))
    replicates = jnp.asarray(replicates)
    found = jax.vmap(partial(turned, name="oblimin"))(replicates)
    for r in range(3):
        one = turned(replicates[r], "oblimin")
        np.testing.assert_allclose(found.loadings[r], one.loadings, atol=1e-7)
        np.testing.assert_allclose(found.value[r], one.value, 1e-10)
    spoilt = jax.vmap(partial(turned, name="oblimin"))(replicates.at[1].set(jnp.nan))
    assert spoilt.converged.tolist() == [True, False, True]


def test_single_precision():
    found = turned(ATHLETES.astype(np.float32), "oblimin")
    assert {x.dtype for x in found[:5]} == {jnp.dtype("float32")}
    assert found.converged
    np.testing.assert_allclose(found.loadings, ATHLETES_QUARTIMIN, atol=3e-4)
    assert found.share_at_best == 1


@pytest.mark.parametrize(("room", "num_starts"), [(1, STARTS - 1), (4, STARTS - 2)])
def test_more_starts_than_have_room_run_in_turn(monkeypatch, room, num_starts):
    expected = turned(ATHLETES, "quartimax")
    monkeypatch.setattr(module, "_MOST_LOADINGS", room * ATHLETES.size)
    found = rotate(ATHLETES, "quartimax", num_starts=num_starts)
    np.testing.assert_allclose(found.loadings, expected.loadings, atol=1e-7)


def test_one_factor_is_returned_with_a_positive_sum():
    loadings = -matrix("0.5\n0.7\n-0.1")
    for name in ("oblimin", "promax"):
        found = rotate(loadings, name, num_starts=2)
        np.testing.assert_allclose(found.loadings, -loadings, rtol=1e-15)
        assert float(found.transform[0, 0]) == pytest.approx(-1, abs=1e-14)
        assert float(found.correlations[0, 0]) == pytest.approx(1, abs=1e-14)
        assert found.converged and found.share_at_best == 1


def test_own_criterion_with_its_parameters():
    biquartimin = Rotation(partial(oblimin, gamma=0.5), oblique=True)
    found = turned(ATHLETES, biquartimin)
    square = np.asarray(found.loadings) ** 2
    other = square - 0.5 * square.mean(0)
    expected = np.sum((1 - np.eye(3)) * (square.T @ other)) / 4
    assert float(found.value) == pytest.approx(expected)
    # 0 is quartimin.
    assert oblimin(jnp.asarray(ABILITY)) == pytest.approx(
        np.sum(ABILITY[:, 0] ** 2 * ABILITY[:, 1] ** 2) / 2
    )


ONE_LOST = np.where(np.arange(len(ATHLETES))[:, None] == 2, np.nan, ATHLETES)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rotation": "equamax"}, "rotation 'equamax' is not one of varimax, "),
        ({"loadings": ATHLETES[0]}, r"shape \(3,\); give a matrix"),
        ({"loadings": ATHLETES * [1, np.nan, 1]}, "10 items .* not finite; drop them"),
        ({"loadings": ONE_LOST}, "^1 item has loadings .* not finite; drop it$"),
        ({"loadings": ATHLETES[:, [0, 1, 1]]}, "rank 2, .*; fit 2 factors or"),
        ({"num_starts": 0}, "num_starts is 0; give 1 or more"),
        ({"rotation": "target"}, "needs a target: pass target="),
        ({"target": ATHLETES}, "pass rotation='target'"),
        (
            {"rotation": "target", "target": ATHLETES.T},
            r"target has shape \(3, 10\), loadings \(10, 3\); give",
        ),
        (
            {"rotation": "target", "target": [[0.0, 0.0, np.nan]] * 10},
            "specifies 0 cells of factor 3; give 2 or more of each factor",
        ),
        (
            {"rotation": "target", "target": np.where(ATHLETES > 0.8, 1, np.nan)},
            "specifies 3 cells, too few for 3 factors; give 6 or more",
        ),
        ({"rotation": "bifactor", "loadings": ABILITY}, "one group factor"),
    ],
)
def test_wrong_input_is_refused_with_a_cure(settings, message):
    with pytest.raises(ValueError, match=message) as refused:
        rotate(**{"loadings": ATHLETES, **settings})
    assert "\n" not in str(refused.value)


def test_standardised_loadings_and_their_structure():
    random = np.random.default_rng(3)
    root = random.standard_normal((3, 3))
    slopes: Any = random.standard_normal((6, 3))
    covariance: Any = root @ root.T
    sd = np.sqrt(np.diag(covariance))
    phi = covariance / np.outer(sd, sd)
    for link, error in (("logit", np.pi**2 / 3), ("probit", 1.0)):
        loadings = standardised_loadings(slopes, covariance, link)
        total = np.diag(slopes @ covariance @ slopes.T) + error
        # The covariance of a latent response with a factor, over both deviations.
        expected = slopes @ covariance / sd / np.sqrt(total)[:, None]
        structure = structure_matrix(loadings, phi)
        np.testing.assert_allclose(structure, expected, 1e-12)
        share = np.asarray(communality(loadings, phi))
        np.testing.assert_allclose(share, 1 - error / total, 1e-12)
        assert (np.abs(structure) < 1).all() and (share < 1).all()
    one = standardised_loadings(jnp.array([[1.702]]), jnp.eye(1))
    assert one == pytest.approx(0.6843, abs=1e-4)
    with pytest.raises(ValueError, match="link 'cloglog' is not one of logit, probit"):
        standardised_loadings(slopes, covariance, "cloglog")
    # Rotation changes neither communalities nor what the structure explains.
    found = turned(ATHLETES, "oblimin")
    share = communality(found.loadings, found.correlations)
    np.testing.assert_allclose(share, (ATHLETES**2).sum(1), 1e-10)


@pytest.mark.parametrize("dims", [3, 7])
def test_align_undoes_any_permutation_and_sign(dims):
    random = np.random.default_rng(dims)
    reference: Any = random.standard_normal((20, dims))
    order = np.stack([random.permutation(dims) for _ in range(4)])
    signs = random.choice([-1, 1], (4, 1, dims))
    replicates: Any = np.stack([reference[:, o] for o in order]) * signs
    replicates += random.normal(0, 0.5, replicates.shape)
    found = jax.vmap(align, (None, 0))(jnp.asarray(reference), jnp.asarray(replicates))
    for r in range(4):
        match = np.asarray(congruence(reference, replicates[r]))
        a, b = reference[:, 0], replicates[r][:, 1]
        assert match[0, 1] == pytest.approx(a @ b / np.sqrt(a @ a * (b @ b)))
        columns = linear_sum_assignment(-np.abs(match))[1]
        sign = np.sign(match[np.arange(dims), columns])
        expected = replicates[r][:, columns] * sign
        np.testing.assert_allclose(found.loadings[r], expected, 1e-12)
        np.testing.assert_allclose(columns, np.argsort(order[r]))
        change = np.asarray(found.transform[r])
        np.testing.assert_allclose(replicates[r] @ change, expected, atol=1e-12)
        diagonal = np.abs(match[np.arange(dims), columns])
        np.testing.assert_allclose(found.congruence[r], diagonal, 1e-10)
        one = align(reference, replicates[r])
        np.testing.assert_allclose(one.loadings, expected, 1e-12)
        if dims == 3:
            sums = [np.abs(match)[range(3), p].sum() for p in permutations(range(3))]
            assert float(found.congruence[r].sum()) == pytest.approx(max(sums))


def test_align_by_procrustes():
    noisy = ATHLETES @ TURN + np.random.default_rng(0).normal(0, 0.1, (10, 3))
    found = align(ATHLETES, jnp.asarray(noisy), "procrustes")
    expected = orthogonal_procrustes(noisy, ATHLETES)[0]
    np.testing.assert_allclose(found.transform, expected, atol=1e-12)
    np.testing.assert_allclose(found.loadings, noisy @ expected, atol=1e-12)


def test_starts_to_a_target_use_the_items_with_a_target(monkeypatch):
    """A sample of all items would have few of the ten, or none."""
    rng = np.random.default_rng(0)
    simple = 0.1 * rng.normal(size=(300, 3))
    simple[np.arange(300), np.arange(300) % 3] += 0.6
    given = jnp.asarray(simple @ np.linalg.qr(rng.normal(size=(3, 3)))[0])
    target = np.full((300, 3), np.nan)
    target[:10] = np.where(np.arange(10)[:, None] % 3 == np.arange(3), 0.6, 0)
    whole = rotate(given, "target", num_starts=10, target=target)
    monkeypatch.setattr(module, "_SAMPLED", 12)
    some = rotate(given, "target", num_starts=10, target=target)
    np.testing.assert_allclose(some.loadings, whole.loadings, atol=1e-6)
    np.testing.assert_allclose(some.share_at_best, whole.share_at_best)


def test_align_refuses_what_it_cannot_match():
    with pytest.raises(ValueError, match="give both the same items and number"):
        align(ATHLETES, ATHLETES[:, :2])
    with pytest.raises(ValueError, match="method 'sign' is not one of columns, proc"):
        align(ATHLETES, jnp.asarray(ATHLETES), "sign")
    zero = jnp.zeros((3, 2))
    assert (congruence(zero, zero) == 0).all()


@pytest.mark.parametrize(
    "name",
    [
        "oblimin",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("varimax", "promax")),
    ],
)
def test_starts_on_a_sample_of_many_items_find_what_all_items_find(name, monkeypatch):
    rng = np.random.default_rng(0)
    simple = 0.1 * rng.normal(size=(300, 3))
    simple[np.arange(300), np.arange(300) % 3] += rng.uniform(0.4, 0.8, 300)
    given = jnp.asarray(simple @ np.linalg.qr(rng.normal(size=(3, 3)))[0])
    whole = rotate(given, name, num_starts=10)
    monkeypatch.setattr(module, "_SAMPLED", 100)
    some = rotate(given, name, num_starts=10)
    np.testing.assert_allclose(some.value, whole.value, rtol=1e-9)
    np.testing.assert_allclose(some.loadings, whole.loadings, atol=1e-5)
    np.testing.assert_allclose(some.correlations, whole.correlations, atol=1e-5)
    turned = given @ np.linalg.inv(np.asarray(some.transform)).T
    np.testing.assert_allclose(turned, some.loadings, atol=1e-9)
    assert some.converged and some.share_at_best > 0.5
