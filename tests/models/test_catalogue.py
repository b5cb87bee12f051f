"""The named models: what each estimates, its priors, and what is refused."""

import pytest

from irtjax.models import catalogue
from irtjax.models.catalogue import MODELS, resolve_priors, weak_priors
from irtjax.models.priors import Beta, LogNormal, Normal

ESTIMATED = {
    "rasch": ("intercept",),
    "1pl": ("intercept",),
    "2pl": ("discrimination", "intercept"),
    "3pl": ("discrimination", "intercept", "lower_asymptote"),
    "4pl": ("discrimination", "intercept", "lower_asymptote", "upper_asymptote"),
    "probit1pl": ("intercept",),
    "probit2pl": ("discrimination", "intercept"),
}


@pytest.mark.parametrize("name", ESTIMATED)
def test_each_name_estimates_its_parameters(name):
    model = MODELS[name]()
    assert model.name == name
    assert tuple(p.name for p in model.family.parameters) == ESTIMATED[name]
    assert model.family.num_columns == len(ESTIMATED[name])
    assert model.scale == ("unit_slope" if name == "rasch" else "standard")
    assert model.family.has_slope == ("discrimination" in ESTIMATED[name])
    assert MODELS[name](None).priors == {}
    # Every estimated parameter has a weak prior, and a common slope has one too.
    assert set(model.priors) == {*ESTIMATED[name], "discrimination"}


def test_coordinates_are_named_with_their_scale():
    three = MODELS["3pl"]().family
    assert three.coordinate_names[2] == "logit_lower_asymptote"
    ordered = catalogue.graded(4, positive=True).family
    assert ordered.coordinate_names == (
        *("log_discrimination", "intercept", "log_spacing_1", "log_spacing_2"),
    )


def test_weak_priors_suit_the_sign_of_the_slopes():
    signed = catalogue.two_parameter().family
    positive = catalogue.two_parameter(positive=True).family
    assert isinstance(weak_priors(signed)["discrimination"], Normal)
    assert isinstance(weak_priors(positive)["discrimination"], LogNormal)


def test_priors_by_name_mapping_or_none():
    family = catalogue.three_parameter().family
    assert resolve_priors(family, "none") == resolve_priors(family, None) == {}
    chosen = {"lower_asymptote": Beta(5.0, 17.0)}
    assert resolve_priors(family, chosen) == chosen
    with pytest.raises(
        ValueError, match="neither 'weak', 'none', 'held_out' nor a mapping"
    ):
        resolve_priors(family, "strong")
    with pytest.raises(ValueError, match="no parameter named 'guessing' in this model"):
        resolve_priors(family, {"guessing": Beta(5.0, 17.0)})


@pytest.mark.parametrize("create", [catalogue.graded, catalogue.partial_credit])
def test_ordered_models_need_two_categories(create):
    assert create(3).family.num_columns == 3
    with pytest.raises(ValueError, match="1 categories: a response needs at least 2"):
        create(1)
