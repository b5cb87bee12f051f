"""Checks of fits of comparisons: their null distributions, and planted misfit."""

import numpy as np
import pytest

import irtjax
from irtjax.comparisons import diagnose


def votes(seed=0, models=6, number=3000, cut=0.3, taste=0.0, prompts=300, gap=None):
    """Battles on prompts that may share tastes; `gap(first, second, row)` adds."""
    rng = np.random.default_rng(seed)
    ability = np.linspace(-0.8, 0.8, models)
    first = rng.integers(models, size=number)
    second = (first + rng.integers(1, models, size=number)) % models
    prompt = rng.integers(prompts, size=number)
    value = ability + taste * rng.normal(size=(prompts, models))
    d = value[prompt, first] - value[prompt, second]
    if gap is not None:
        d = d + gap(first, second, np.arange(number))
    d = d + rng.logistic(size=number)
    kind = np.where(d > cut, 0, np.where(d < -cut, 1, 2))
    return irtjax.ComparisonTable.of(
        [f"m{k}" for k in range(models)],
        first,
        second,
        np.eye(4)[kind],
        labels={
            "prompt": np.char.add("p", prompt.astype(str)),
            "time": (1.7e9 + 60.0 * np.arange(number)).astype(str),
        },
    )


def test_the_deviance_is_that_of_the_saturated_model():
    table = votes()
    result = diagnose(table, ties="drop")
    fit = irtjax.fit_comparisons(table, ties="drop")
    pairs = fit.pairs
    wins, losses = (np.asarray(pairs[x]) for x in ("wins_a", "wins_b"))
    share = wins / (wins + losses)
    best = np.sum(wins * np.log(share) + losses * np.log1p(-share))
    assert result.deviance == pytest.approx(2 * (best - fit.log_likelihood), rel=1e-9)
    assert result.degrees == 15 - 6 + 1
    assert result.triples == 20
    assert sorted(result.to_frame("arrow").column_names) == sorted(
        "model_a model_b comparisons share expected_share z q_value".split()
    )


@pytest.mark.parametrize(
    ("options", "cut"),
    [
        ({"ties": "drop"}, 0.3),
        ({"ties": "rao_kupper"}, 0.5),
        ({"ties": "half", "order": True}, 0.0),
        ({"ties": "drop", "cluster": "prompt"}, 0.0),
    ],
)
def test_residuals_are_standard_normal_where_the_model_holds(options, cut):
    z, chances = [], []
    for seed in range(20):
        # Prompts add an effect of the first place, which pairs do not share.
        result = diagnose(votes(seed, cut=cut), **options)
        z.append(np.asarray(result.table["z"]))
        chances.append(result.p_value)
    # 20 x 15 squares, 10 of 15 independent: their mean has a standard error of .1.
    assert np.mean(np.square(z)) == pytest.approx(1, abs=0.3)
    if "cluster" not in options:
        assert np.mean(np.array(chances) < 0.05) <= 0.25


def test_errors_of_clusters_widen_what_is_expected():
    """Prompts with tastes: residuals by prompt have the variance 1, others more."""
    square = {"prompt": [], None: []}
    for seed in range(10):
        table = votes(seed, number=6000, cut=0.0, taste=1.5, prompts=60)
        for cluster, into in square.items():
            z = np.asarray(diagnose(table, cluster=cluster).table["z"])
            into.append(np.mean(z**2))
    assert np.mean(square["prompt"]) == pytest.approx(1, abs=0.3)
    assert np.mean(square[None]) > 1.3


def test_ties_as_halves_have_their_smaller_variance():
    """Rao and Kupper's votes: a tie in three votes, squares of about 1."""
    squares = [
        np.mean(np.square(diagnose(votes(seed, cut=0.6)).table["z"]))
        for seed in range(20)
    ]
    assert np.mean(squares) == pytest.approx(1, abs=0.3)


def test_a_pair_that_does_not_fit_and_cycles_are_named():
    def rock_paper(first, second, row):
        step = (first - second) % 6
        return np.select([step == 3, step < 3], [0.0, 1.5], -1.5)

    result = diagnose(votes(gap=rock_paper))
    texts = result.significant()
    assert "pairs do not fit" in texts[0] and "triples are cyclic" in texts[1]
    assert result.cyclic > 3 * result.cyclic_expected
    assert result.p_value < 1e-6


def test_drift_is_named_and_halves_agree():
    def late(first, second, row):
        effect = np.where(row > 1500, 1.2, 0.0)
        return effect * ((first == 2) * 1.0 - (second == 2))

    table = votes(gap=late)
    result = diagnose(table, cluster="prompt", time="time")
    assert result.drift["subject"].to_pylist()[0] == "m2"
    assert result.drift["q_value"].to_pylist()[0] < 0.01
    assert "m2 most" in result.significant()[-1]
    assert result.correlation > 0.95
    assert min(result.halves["q_value"].to_pylist()) > 0.01
    quiet = diagnose(votes(), cluster="prompt", time="time")
    assert quiet.significant() == []


def test_unknown_labels_are_refused():
    with pytest.raises(ValueError, match=r"no label 'user' .*: prompt, time"):
        diagnose(votes(number=50), cluster="user")


def with_effects(seed, *, category=0.0, judge=0.0, tie=0.0, number=4000):
    """Rao and Kupper's votes with planted effects of categories, judges and ties."""
    rng = np.random.default_rng(seed)
    models, topics = 6, 5
    own = np.linspace(-0.8, 0.8, models)[:, None]
    own = own + category * rng.normal(size=(models, topics))
    first = rng.integers(models, size=number)
    second = (first + rng.integers(1, models, size=number)) % models
    topic, rater = rng.integers(topics, size=number), rng.integers(12, size=number)
    alpha = np.exp(judge * rng.normal(size=12))
    cut = np.exp(-0.7 + tie * rng.normal(size=models))
    gap = alpha[rater] * (own[first, topic] - own[second, topic])
    gap, h = gap + rng.logistic(size=number), np.sqrt(cut[first] * cut[second])
    kind = np.where(gap > h, 0, np.where(gap < -h, 1, 2))
    return irtjax.ComparisonTable.of(
        [f"m{k}" for k in range(models)],
        first,
        second,
        np.eye(4)[kind],
        labels={
            "topic": np.char.add("t", topic.astype(str)),
            "judge": np.char.add("j", rater.astype(str)),
            "prompt": np.char.add("p", rng.integers(300, size=number).astype(str)),
        },
    )


@pytest.mark.parametrize(
    ("planted", "options"),
    [
        ({"category": 0.5}, {"category": "topic"}),
        ({"category": 0.5}, {"category": "topic", "cluster": "prompt"}),
        ({"judge": 0.6}, {"judge": "judge"}),
        ({"tie": 0.5}, {"tie_rates": True}),
    ],
)
def test_residuals_with_random_effects_are_standard_normal(planted, options):
    squares = []
    for seed in range(12):
        result = diagnose(with_effects(seed, **planted), ties="rao_kupper", **options)
        squares.append(np.mean(np.asarray(result.table["z"]) ** 2))
    # 12 x 15 squares of 10 independent ones: their mean has a standard error of .13.
    assert np.mean(squares) == pytest.approx(1, abs=0.4)
    assert np.isnan(result.deviance) and "Deviance" not in str(result)


def test_a_pair_that_does_not_fit_is_named_with_categories():
    table = with_effects(0, category=0.4)
    outcomes = table.outcomes.copy()
    pair = (table.first == 0) & (table.second == 1)
    outcomes[pair] = [1, 0, 0, 0]
    other = irtjax.ComparisonTable.of(
        table.subjects, table.first, table.second, outcomes, labels=table.labels
    )
    result = diagnose(other, category="topic")
    row = result.table.to_pylist()[0]
    assert {row["model_a"], row["model_b"]} == {"m0", "m1"} and row["q_value"] < 1e-6
    assert result.halves is None and result.drift is None


def test_rankings_and_presets_are_refused():
    for option in ({"model": "plackett_luce"}, {"preset": "arena_rank"}):
        with pytest.raises(ValueError, match="comparisons of two without a preset"):
            diagnose(votes(number=50), **option)
