"""What `irtjax.fit` chooses when nothing is asked for, and what it says of it."""

import functools

import equinox as eqx
import numpy as np
import pytest

import irtjax
from irtjax.data.table import FEW_SUBJECTS
from irtjax.fitting.defaults import FEW_RESPONSES, MOST_INTEGRATED, choose
from irtjax.models import catalogue
from irtjax.models.predictor import slope_parameters
from irtjax.numerics.bijections import Parameter
from irtjax.report import summarise


def table_of(subjects, items, kind="binary", missing=0.0, seed=0):
    """Half of the subjects respond by chance, the others nearly always the best."""
    rng = np.random.default_rng(seed)
    size = subjects, items
    options = {}
    good = (np.arange(subjects) % 2 == 0)[:, None]
    highest = (rng.random(size) < 0.9) & good & (kind != "counts")
    if missing:
        options["observed"] = rng.random(size) >= missing
    if kind == "counts":
        options["trials"] = np.full(size, 5)
        values = rng.binomial(5, np.where(good, 0.9, 0.5), size)
    elif kind == "same counts":
        options["trials"] = np.full(size, 5)
        values = 5 * rng.integers(0, 2, size)
    elif kind == "ordinal":
        values = rng.integers(0, 4, size)
    elif kind == "scores":
        values = rng.beta(2, 2, size)
    elif kind == "mixed":
        values = rng.beta(2, 2, size)
        values[:, ::2] = values[:, ::2] > 0.5
    else:
        values = rng.integers(0, 2, size)
    top = {"same counts": 5, "ordinal": 3, "scores": 0.99}.get(kind, 1)
    if kind == "mixed":
        top = np.where(np.arange(items) % 2 == 0, 1, 0.99)
    values = np.where(highest, top, values)
    return irtjax.ResponseTable.from_arrays(values, **options)


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("binary", "2pl"),
        ("counts", "2pl"),
        ("same counts", "share"),
        ("ordinal", "graded"),
        ("scores", "continuous"),
        ("mixed", "mixed"),
    ],
)
def test_the_kind_of_the_data_decides_the_model(kind, model):
    few, many = (choose(table_of(n, 12, kind)) for n in (8, 2 * FEW_RESPONSES))
    assert (few.model, few.method) == (model, "laplace")
    assert (many.model, many.method) == (model, "em")
    for choice in (few, many):
        assert choice.reason.startswith(f"chosen from the data: model {model}, because")
        assert f"method {choice.method}, because" in choice.reason


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("binary", "rasch"),
        ("counts", "rasch"),
        ("same counts", "share"),
        ("ordinal", "pcm"),
        ("scores", "continuous"),
    ],
)
def test_few_subjects_have_slopes_of_one(kind, model):
    for subjects in (2, FEW_SUBJECTS - 1):
        choice = choose(table_of(subjects, 12, kind))
        name = choice.model if isinstance(choice.model, str) else choice.model.name
        assert (name, choice.method) == (model, "laplace")
        assert f"{subjects} subjects are too few for slopes" in choice.reason
    if kind == "scores":
        assert choice.model.scale == "unit_slope"
        given = choose(table_of(2, 12, kind), settings={"priors": "weak"})
        assert given.model == "continuous"


@pytest.mark.slow
@pytest.mark.parametrize("subjects", [2, 3, 5])
def test_equal_subjects_seldom_differ_significantly(subjects):
    # Of the first pair in 60 data sets 3 are expected, and more than 9 in 1 of 1,000.
    significant = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, subjects])
        chance = 1 / (1 + np.exp(-1.2 * rng.normal(size=100)))
        table = irtjax.ResponseTable.from_arrays(rng.random((subjects, 100)) < chance)
        fit = irtjax.fit(table)
        first, second, *_ = fit.subject_names
        found = irtjax.compare(fit, first, second)
        significant += found.p_value < 0.05
        assert 0 < found.probability_greater < 1
    assert significant <= 9


def equal_subjects(seed: int, subjects: int, items: int) -> irtjax.ResponseTable:
    """Responses of subjects of one ability to items of all difficulties."""
    rng = np.random.default_rng([seed, subjects, items])
    rng.normal(size=subjects + items)
    chance = 1 / (1 + np.exp(-1.2 * rng.normal(size=items)))
    return irtjax.ResponseTable.from_arrays(rng.random((subjects, items)) < chance)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_fit_of_equal_subjects_ends_with_discriminations_of_one_size(seed):
    # With a wide prior of their spread it stalled, as most such fits.
    fit = irtjax.fit(equal_subjects(seed, 10, 240))
    assert (fit.options["model"], fit.options["method"]) == ("2pl", "laplace")
    assert fit.status == irtjax.Status.CONVERGED
    assert np.std(np.log(fit.items.table["discrimination"])) < 0.5
    assert irtjax.rank(fit).num_different == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [28, 35])
def test_a_few_items_that_agree_by_chance_do_not_take_all_discrimination(seed):
    # With a wide prior of their spread the first ended at a slope of 22 and all others
    # near 0, 6 nats below equal slopes; a proposal of the second had no likelihood.
    table = equal_subjects(seed, 15, 240)
    fit, equal = irtjax.fit(table), irtjax.fit(table, "rasch", "laplace")
    assert fit.options["model"] == "2pl"
    assert fit.status == irtjax.Status.CONVERGED
    assert fit.log_likelihood > equal.log_likelihood - 1
    assert np.std(np.log(fit.items.table["discrimination"])) < 0.5
    assert irtjax.rank(fit).num_different == 0


@pytest.mark.slow
@pytest.mark.parametrize(("subjects", "items"), [(8, 100), (10, 240), (15, 240)])
def test_equal_subjects_seldom_differ_by_the_2pl(subjects, items):
    # Two of 40 sets are expected to have a significant pair, more than 7 in 1 of 2,900.
    significant = converged = 0
    for seed in range(40):
        fit = irtjax.fit(equal_subjects(seed, subjects, items))
        assert fit.options["model"] == "2pl"
        significant += irtjax.rank(fit).num_different > 0
        converged += fit.status == irtjax.Status.CONVERGED
    assert significant <= 7
    assert converged >= 36


def test_whole_numbers_of_many_levels_are_scores():
    values = np.random.default_rng(0).integers(0, 11, size=(12, 8)) * 10
    values[:, 0] = 0  # An item that nobody solves has a score too.
    table = irtjax.ResponseTable.from_arrays(values)
    assert choose(table, settings={"bounds": (0, 100)}).model == "share"
    with pytest.raises(ValueError, match=r"give the lowest and highest scores"):
        irtjax.fit(table)
    few = irtjax.ResponseTable.from_arrays(values // 10)
    assert choose(few)[:2] == ("share", "laplace") and choose(few).bounds == (0, 10)


def test_responses_per_item_decide_the_method():
    # As many subjects as in the complete table, but few responses to an item.
    sparse = table_of(2 * FEW_RESPONSES, 30, missing=0.8)
    assert choose(sparse).method == "laplace"
    crowd = table_of(MOST_INTEGRATED + 50, 40, missing=0.97)
    assert choose(crowd).method == "em"
    assert "too many for laplace" in choose(crowd).reason


def test_what_is_asked_for_stands():
    table = table_of(8, 30)
    assert choose(table, "rasch", "mm")[:2] == ("rasch", "mm")
    assert choose(table, "rasch", "mm").reason == ""
    # A model by name keeps its meaning; the data decide how it is estimated.
    assert choose(table, "3pl").method == "laplace"
    assert choose(table, "1pl").method == "em"
    assert choose(table, "multibenchmark").method == "laplace"
    assert choose(table, "2pl", settings={"anchor": {"i": {}}}).method == "em"
    assert choose(table_of(300, 20), settings={"facets": ("x",)}).method == "laplace"
    with pytest.raises(ValueError, match="anchor requires method='em' and facets"):
        choose(table, settings={"anchor": {"i": {}}, "facets": ("x",)})


class Pattern(irtjax.AbstractResponseFamily):
    """A family outside the package: no more than `choose` looks at."""

    Items = None
    num_categories = 2
    statistics = natural = start = None
    slopes: str = eqx.field(static=True, default="positive")

    @property
    def parameters(self):
        return *slope_parameters(self.slopes), Parameter("intercept")


def test_the_family_decides_whether_items_can_be_integrated_out(monkeypatch):
    few = table_of(8, 30)
    em = {"rasch", "1pl", "probit1pl", "pcm", "rsm", "nominal", "lart"}
    for name in catalogue.MODELS:
        wanted = "gvem" if name == "factor" else "em" if name in em else "laplace"
        assert choose(few, name).method == wanted, name
    # A model object is treated as its name, unless its slopes or priors differ.
    made = functools.partial(catalogue.two_parameter, positive=True)
    assert choose(few, made()).method == "laplace"
    assert choose(few, made(None)).method == "em"
    assert choose(few, catalogue.two_parameter()).method == "em"

    def own(slopes="positive"):
        family = Pattern(slopes)
        return irtjax.Model("own", family, catalogue.weak_priors(family))

    assert choose(few, own()).method == "laplace"
    assert choose(few, own("free")).method == "em"
    monkeypatch.setitem(catalogue.MODELS, "own", own)
    assert choose(few, "own").method == "laplace"
    monkeypatch.setattr(Pattern, "integrable", False)
    assert choose(few, "own").method == choose(few, own()).method == "em"


@functools.cache
def leaderboard():
    """Ten subjects and 240 sound items: most slopes depend on the prior.

    As large as `equal_subjects` in a test above, whose compiled programs serve again.
    """
    rng = np.random.default_rng(5)
    theta, slope = rng.normal(size=10), np.exp(rng.normal(0.1, 0.4, size=240))
    logit = slope * (theta[:, None] - rng.normal(-0.3, 1.2, size=240))
    values = (rng.random((10, 240)) < 1 / (1 + np.exp(-logit))).astype(int)
    return irtjax.fit(irtjax.ResponseTable.from_arrays(values))


def test_a_fit_of_few_subjects_flags_no_sound_item():
    fit = leaderboard()
    rows = fit.items.table.to_pydict()
    flags = {flag for flag in rows["flags"] if flag}
    assert flags <= {"all right", "all wrong"}
    assert sum(rows["separated"]) > 2
    assert any("separated (column 'separated')" in note for note in fit.notes)
    assert not any("separated" in text for text in fit.warnings)
    said = " ".join(summarise(fit, irtjax.rank(fit)))
    assert "5 %; 10 subjects have very little power to find one)" in said
    assert "have no variation, which is no evidence of a fault:" in said
    assert not any("all right" in x or "all wrong" in x for x in fit.warnings)


def test_a_small_leaderboard_by_default(tmp_path):
    fit = leaderboard()
    assert fit.options["model"] == "2pl" and fit.options["method"] == "laplace"
    text = " ".join(summarise(fit, irtjax.rank(fit)))
    assert "Chosen from the data: model 2pl, because responses are right or" in text
    # The choice is on record, and is not asked for again by what reads the record.
    fit_again = irtjax.load(_saved(fit, tmp_path))
    assert fit_again.options["choice"] == fit.options["choice"]
    np.testing.assert_allclose(fit_again.ability_scale, fit.ability_scale)
    # Of ten subjects the scale of ability is known to about 1 / sqrt(20): the part
    # of the errors that moves all differences alike.
    ability = fit.abilities.table.column("ability").to_numpy()
    stretch = np.ptp(fit.ability_scale) / np.ptp(ability)
    assert 0.1 < stretch < 0.4


def _saved(fit, folder):
    irtjax.save(fit, folder / "fit")
    return folder / "fit"


@pytest.mark.slow
def test_many_categories_are_not_integrated_out():
    rng = np.random.default_rng(0)
    for top, method in ((4, "laplace"), (10, "em")):
        values = rng.integers(0, top + 1, (10, 40))
        values[0, :2] = 0, top
        table = irtjax.ResponseTable.from_arrays(values)
        chosen = choose(table, categories=True)
        assert chosen[:2] == ("graded", method) and chosen.bounds is None
    assert "11 categories are too many for laplace" in chosen.reason
    # Ratings of few subjects in many categories are scores.
    chosen = choose(table)
    assert chosen[:2] == ("share", "laplace") and chosen.bounds == (0, 10)
    assert "ratings from 0 to 10 are scores; method laplace" in chosen.reason
    assert choose(table, method="em").model == "graded"
    assert choose(table, "graded").model == "graded"
    assert choose(table, settings={"population": "histogram"}).model == "graded"
    many = irtjax.ResponseTable.from_arrays(np.tile(values, (10, 1)))
    assert choose(many)[:2] == ("graded", "em")
    few = choose(irtjax.ResponseTable.from_arrays(values[:5]))
    assert few.model.name == "share" and few.model.scale == "unit_slope"
    fit = irtjax.fit(table)
    assert fit.model.name == "share" and fit.options["bounds"] == [0, 10]
    # Scores have no categories, even if they are whole numbers.
    table, settings = irtjax.ResponseTable.from_arrays(values), {"bounds": (0, 10)}
    assert choose(table, settings=settings)[:2] == ("share", "laplace")
