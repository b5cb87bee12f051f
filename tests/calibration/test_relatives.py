"""Families of subjects and clusters of items: found, or given, and counted."""

from __future__ import annotations

import numpy as np
import pytest

import irtjax
from irtjax.calibration.dependence import (
    above_shuffled,
    between_items,
    between_subjects,
    residuals_of,
    search_groups,
)
from irtjax.calibration.groupings import _stem_of_item, families_of
from irtjax.calibration.relatives import intraclass_of


def drawn(
    subjects: int, items: int, *, passages: float = 0, family: float = 0, seed: int = 0
) -> np.ndarray:
    """Responses with a shift by subject and passage of five items, or family and item.

    Four subjects next to each other are a family.
    """
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(subjects, 1))
    slope, intercept = np.exp(rng.normal(0, 0.3, items)), rng.normal(0, 1, items)
    shift = passages * rng.normal(size=(subjects, items // 5))[:, np.arange(items) // 5]
    related = (
        family * rng.normal(size=(subjects // 4 + 1, items))[np.arange(subjects) // 4]
    )
    chance = 1 / (1 + np.exp(-slope * (theta + shift) - intercept - related))
    return (rng.random(chance.shape) < chance).astype(float)


def fitted(values: np.ndarray, **settings):
    return irtjax.fit(irtjax.ResponseTable.from_arrays(values), **settings)


def errors(fit) -> np.ndarray:
    return np.array(fit.abilities.table["ability_se"].to_pylist())


@pytest.fixture(scope="module")
def independent():
    return fitted(drawn(20, 100))


@pytest.mark.slow
def test_independent_responses_have_no_finding_and_no_standing_note(independent):
    assert not any("agree" in note or "assumed" in note for note in independent.notes)
    assert "cluster" not in independent.items.table.column_names
    assert "family" not in independent.abilities.table.column_names


def test_z_is_standard_normal_where_responses_are_independent():
    rng = np.random.default_rng(3)
    found = []
    for _ in range(60):
        theta = rng.normal(size=24)
        chance = 1 / (1 + np.exp(-theta[:, None] - rng.normal(size=120)))
        slope = (rng.random(chance.shape) < chance) - chance
        part = np.zeros(120, int)
        residuals = residuals_of(slope, chance * (1 - chance), theta, part)
        items = between_items(residuals, np.arange(120) // 5)
        found.append((items.z, between_subjects(residuals, np.arange(24) // 4).z))
    # Of 60 draws the mean has a standard error of 0.13, the SD one of 0.09.
    assert np.all(np.abs(np.mean(found, axis=0)) < 4 * 0.13)
    assert np.all(np.abs(np.std(found, axis=0) - 1) < 4 * 0.09)


@pytest.mark.slow
def test_passages_are_found_measured_and_counted():
    values = drawn(20, 100, passages=1.2)
    fit = fitted(values)
    (note,) = (x for x in fit.notes if "agree beyond" in x)
    assert "clusters of 5 adjacent items: 20 clusters of 5 items" in note
    assert fit.items.table["cluster"].to_pylist()[3:7] == ["1", "1", "2", "2"]
    given = fitted(values, cluster=np.arange(100) // 5)
    np.testing.assert_allclose(errors(given), errors(fit))
    alone = fitted(values, cluster=np.arange(100))
    # A variance of 1.44 by clusters of information 0.8 more than doubles that of errors
    # of ability given the items, which are most of the errors.
    assert np.median(errors(fit) / errors(alone)) > 1.1
    score, plain = (
        np.array(x.abilities.table["expected_score_se"].to_pylist())
        for x in (fit, alone)
    )
    assert np.median(score / plain) > 1.2
    # The accuracies are over passages too.
    paired = irtjax.compare(
        fit, "subject 1", "subject 2", data=irtjax.ResponseTable.from_arrays(values)
    )
    assert paired.clusters == 20 and paired.by_cluster


@pytest.mark.slow
def test_families_are_found_in_the_responses():
    fit = fitted(drawn(24, 300, family=2.0))
    (note,) = (x for x in fit.notes if "related subjects" in x)
    assert "families found in the responses" in note and "subject 1" in note
    families = np.array(fit.abilities.table["family"].to_pylist())
    same = families[:, None] == families
    truth = np.arange(24) // 4 == (np.arange(24) // 4)[:, None]
    assert (same == truth).mean() > 0.9


def residuals(related: np.ndarray, items: int, size: float):
    """Residuals of subjects whose groups share a shift on each item."""
    rng = np.random.default_rng(2)
    count = len(related)
    slope = rng.normal(size=(count, items))
    slope += size * rng.normal(size=(count, items))[related]
    weight, part = np.ones((count, items)), np.zeros(items, int)
    return residuals_of(slope, weight, np.linspace(-2, 2, count), part)


@pytest.mark.parametrize("is_related", [False, True])
def test_hundreds_of_subjects_on_few_items_are_families_only_if_they_are(is_related):
    """Residuals of easy items are skewed: their signs are no null of them."""
    rng = np.random.default_rng(58)
    ability, slope = rng.normal(size=(800, 1)), rng.uniform(0.7, 1.7, 40)
    logit = slope * ability + rng.normal(size=40)
    chance = 1 / (1 + np.exp(-logit))
    shift = 2 * rng.normal(size=(160, 40))[np.arange(800) // 5] * is_related
    right = rng.random(chance.shape) < 1 / (1 + np.exp(-logit - shift))
    information = slope**2 * chance * (1 - chance)
    residual = residuals_of(
        slope * (right - chance), information, ability[:, 0], np.zeros(40, int)
    )
    assert search_groups(residual) is not None
    groups = search_groups(residual, is_binary=True)
    assert (groups is not None) == is_related


def named(names: list[str]):
    return irtjax.ResponseTable.from_arrays(
        np.eye(len(names), 3, dtype=int), subjects=names
    )


@pytest.mark.parametrize(
    "name",
    [
        "qwen_qwen3_{}b_{}_shot",
        "Qwen/Qwen3-{}B-{}-shot",
        "qwen3 {}b ({})",
        "qwen-{}b@{}",
        "vendor/qwen3:{}b/{}",
    ],
)
def test_runs_of_one_model_are_relatives_and_models_of_one_vendor_need_not_be(name):
    names = [name.format(k + 1, run) for k in range(16) for run in ("one", "zero")]
    found = residuals(np.arange(32) // 2, 300, 1.0)
    families = families_of(named(names), found, None)
    assert families is not None
    np.testing.assert_array_equal(np.bincount(families.codes), np.full(16, 2))


def test_models_of_one_vendor_are_relatives_where_their_responses_agree():
    names = [f"{who}-{k}b-chat" for who in ("llama", "qwen", "phi") for k in range(6)]
    found = residuals(np.arange(18) // 6, 300, 1.0)
    families = families_of(named(names), found, None)
    assert families is not None and families.names is not None
    assert families.names.tolist() == ["llama", "phi", "qwen"]


def test_a_pair_that_depends_no_more_than_others_is_no_family():
    """Of 5,000 responses to items of a second ability any two of one side agree."""
    names = [f"model{'abcdefghijkl'[k]}" for k in range(12)]
    names[3], names[6] = "qwen-plus", "qwen2.5-3b"
    side = np.array([0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 0, 1])
    found = residuals(side, 5000, 0.5)
    pair = np.r_[:6, 3, 6:11]
    assert between_subjects(found, pair).z > 4
    assert above_shuffled(found, pair) < 3
    families = families_of(named(names), found, None)
    # The search may find the sides.
    assert families is None or families.names is None


@pytest.mark.slow
def test_families_by_name_make_the_population_uncertain(independent):
    family = [f"base {k // 4}" for k in range(20)]
    fit = fitted(drawn(20, 100), family=family)
    assert fit.options["family"] == "family"
    assert fit.abilities.table["family"].to_pylist()[:5] == [*family[:4], "base 1"]
    # These families are not related: abilities are as uncertain as they were, up to
    # the error of the intraclass correlation.
    ability = np.array(fit.abilities.table["ability"].to_pylist())
    assert intraclass_of(ability, np.arange(20) // 4) < 0.6
    assert np.all(errors(fit) >= errors(independent) - 1e-9)
    # No order depends on the mean and the scale.
    for column in ("rank_lower", "rank_upper"):
        ranks, before = (
            np.array(x.abilities.table[column].to_pylist()) for x in (fit, independent)
        )
        assert np.abs(ranks - before).max() <= 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"family": ["a", "b"]}, "family has 2 labels, but there are 5 subjects"),
        ({"cluster": "passage"}, "no facet 'passage' of items for cluster"),
        ({"cluster": ["a"] * 8}, "the same label for all items"),
    ],
)
def test_labels_that_are_none_are_refused(settings, words):
    with pytest.raises(ValueError, match=words) as refusal:
        fitted(drawn(5, 10)[:, :8], **settings)
    assert "\n" not in str(refusal.value)


def test_names_of_items_end_with_their_number():
    names = ["race/high12.txt-3", "p1 q2", "item_7", "7"]
    assert [*map(_stem_of_item, names)] == ["race/high12.txt", "p1", "item", ""]
