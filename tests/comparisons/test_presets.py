"""Published arenas by their settings, against figures of arena-rank 0.1.1."""

import numpy as np
import pytest

import irtjax

#: By arena-rank 0.1.1 on `styled()`: `ContextualBradleyTerry` (reg=1), its effect,
#: abilities less their mean and sandwich errors; `BradleyTerry` on a `PairDataset` with
#: reweighted=True, without length.
EFFECT = 0.04093462
STYLED = "-1.00210907 -.48108624 -.25690673 .22278807 .55184385 .96547013"
STYLED_ERRORS = ".05800319 .04807831 .04061955 .03443825 .03036870 .02866764"
PLAIN = "-1.00175534 -.48137213 -.25644184 .22439874 .55092227 .96424829"
PLAIN_ERRORS = ".0581573 .04821687 .04071406 .03447648 .03043458 .02875189"


def styled(seed=0, models=6, votes=8000, effect=0.25):
    """Votes, some pairs rarer than others, on ability and a length in its units."""
    rng = np.random.default_rng(seed)
    ability = np.linspace(-1, 1, models)
    popular = np.arange(1, models + 1) ** 2 / np.sum(np.arange(1, models + 1) ** 2)
    first = rng.choice(models, votes, p=popular)
    second = (first + rng.integers(1, models, size=votes)) % models
    length = rng.normal(size=votes)
    gap = ability[first] - ability[second] + effect * length + rng.logistic(size=votes)
    kind = np.where(gap > 0.3, 0, np.where(gap < -0.3, 1, 2))
    return irtjax.ComparisonTable.of(
        [f"m{k}" for k in range(models)],
        first,
        second,
        np.eye(4)[kind],
        features={"length": length},
    )


@pytest.mark.parametrize(
    ("covariates", "abilities", "errors"),
    [(["length"], STYLED, STYLED_ERRORS), ([], PLAIN, PLAIN_ERRORS)],
)
def test_the_preset_is_arena_rank(covariates, abilities, errors):
    fit = irtjax.fit_comparisons(styled(), covariates=covariates, preset="arena_rank")
    # Its search ends at a change of the mean loss of 1e-9.
    wanted = np.array(abilities.split(), float)
    np.testing.assert_allclose(fit.abilities.estimates, wanted, atol=5e-6)
    # Ours multiply by C / (C - 1), its information has a ridge of 1e-5.
    wanted = np.array(errors.split(), float)
    np.testing.assert_allclose(fit.abilities.standard_error, wanted, rtol=2e-3)
    assert any("settings of arena-rank" in text for text in fit.warnings)


def test_a_length_effect_is_recovered_and_the_preset_shrinks_it():
    """The effect .25: within its interval, and .041 by the settings of arena-rank."""
    table = styled()
    size = np.sqrt(np.mean(table.features["length"] ** 2))
    effect, error = irtjax.fit_comparisons(table, covariates=["length"]).effects[
        "length"
    ]
    assert abs(effect - 0.25 * size) < 1.96 * error
    shrunk = irtjax.fit_comparisons(table, covariates=["length"], preset="arena_rank")
    assert shrunk.effects["length"][0] == pytest.approx(EFFECT, abs=1e-6)
    assert shrunk.style is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"preset": "elo"}, "preset='elo' is not one of arena_rank"),
        ({"preset": "arena_rank", "ties": "drop"}, "leave model, ties"),
    ],
)
def test_other_presets_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        irtjax.fit_comparisons(styled(votes=100), **options)
