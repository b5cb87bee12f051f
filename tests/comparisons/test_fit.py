"""Abilities from comparisons, against independent programs and closed forms."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.optimize import minimize
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.comparisons import (
    PairCounts,
    PairFamily,
    PairParameters,
    log_likelihood,
    maximise,
)

#: Log-likelihood and abilities of MT-bench's human votes by independent programs
#: (SciPy's BFGS, printed to four digits), in the order of the names.
MT_BENCH = {
    ("bradley_terry", "half"): (-961.3749, "-.7216 .6081 .5803 1.0491 -1.4028 -.1130"),
    ("bradley_terry", "drop"): (-604.5798, "-.9922 .8341 .8285 1.4410 -1.9776 -.1337"),
    ("bradley_terry", "davidson"): (
        -1537.2825,
        "-1.0540 .8953 .8529 1.5376 -2.0722 -.1596",
    ),
    ("bradley_terry", "rao_kupper"): (
        -1532.6952,
        "-.8054 .6714 .6246 1.1779 -1.5260 -.1425",
    ),
    ("thurstone", "half"): (-961.8889, "-.4358 .3627 .3517 .6246 -.8311 -.0720"),
}
#: Standard errors there, by no cluster, by question and by judge.
ERRORS = {
    (): ".0890 .0808 .0679 .0858 .0989 .0769",
    ("question_id",): ".1171 .1267 .0736 .1058 .1208 .0885",
    ("judge",): ".0784 .0876 .0413 .0878 .0898 .0721",
}
#: Davidson by psychotools 0.7.2 of R, the votes of each pair in one column of x,
#: btmodel(paircomp(x, mscale = -1:1), type = "loglin", undecided = TRUE): logLik,
#: coefficients less that of vicuna with log nu last, and their standard errors.
PSYCHOTOOLS = (
    -1537.28250642,
    "-.8944296004 1.0549007093 1.0124853261 1.6972185966 -1.9126468034 -.1467142032",
    ".154688418 .150380088 .132128493 .157460985 .172769024 .061419461",
)
#: Nats for each vote of Chatbot Arena in August 2024 (leaderbot's counts).
ARENA = (
    ({"ties": "rao_kupper", "both_bad": "drop"}, 1.0094825),
    ({"ties": "rao_kupper"}, 1.0582693),
    ({"ties": "half", "both_bad": "drop"}, 0.6554111),
    ({"ties": "drop"}, 0.635052),
)


def small(seed: int = 0, subjects: int = 5, votes: int = 400) -> irtjax.ComparisonTable:
    """Battles with ties, whose abilities are 0.4 apart."""
    rng = np.random.default_rng(seed)
    ability = 0.4 * np.arange(subjects)
    first = rng.integers(subjects, size=votes)
    second = (first + rng.integers(1, subjects, size=votes)) % subjects
    gap = ability[first] - ability[second] + rng.logistic(size=votes)
    kind = np.where(gap > 0.3, 0, np.where(gap < -0.3, 1, 2))
    names = [f"m{k}" for k in range(subjects)]
    return irtjax.ComparisonTable.of(names, first, second, np.eye(4)[kind])


@pytest.mark.parametrize(("model", "ties"), MT_BENCH)
def test_votes_of_mt_bench(model, ties, shared_data):
    table = irtjax.read_comparisons(shared_data / "pairwise" / "mt_bench_human.csv")
    value, abilities = MT_BENCH[model, ties]
    fit = irtjax.fit_comparisons(table, model, ties=ties)
    assert fit.log_likelihood == pytest.approx(value, abs=6e-5)
    wanted = [float(x) for x in abilities.split()]
    np.testing.assert_allclose(fit.abilities.estimates, wanted, atol=6e-5)


def test_undecided_votes_are_those_of_psychotools(shared_data):
    value, coefficients, errors = PSYCHOTOOLS
    table = irtjax.read_comparisons(shared_data / "pairwise" / "mt_bench_human.csv")
    fit = irtjax.fit_comparisons(table, ties="davidson")
    assert fit.log_likelihood == pytest.approx(value, abs=1e-7)
    ability, covariance = fit.abilities.estimates, fit.abilities.covariance
    tie, tie_error = fit.effects["tie"]
    found = np.append(ability[:5] - ability[5], tie)
    # Its iterations end at a relative change of the deviance of 1e-8.
    np.testing.assert_allclose(found, np.array(coefficients.split(), float), atol=1e-6)
    own = np.diagonal(covariance)
    variance = own[:5] + own[5] - 2 * covariance[:5, 5]
    found = np.append(np.sqrt(variance), tie_error)
    np.testing.assert_allclose(found, np.array(errors.split(), float), rtol=1e-5)


@pytest.mark.parametrize("cluster", ERRORS)
def test_errors_of_mt_bench(cluster, shared_data):
    table = irtjax.read_comparisons(shared_data / "pairwise" / "mt_bench_human.csv")
    fit = irtjax.fit_comparisons(table, cluster=cluster)
    wanted = np.array([float(x) for x in ERRORS[cluster].split()])
    if cluster:
        number = len(np.unique(table.labels[cluster[0]]))
        wanted = wanted * (number / (number - 1)) ** 0.5
    np.testing.assert_allclose(fit.abilities.standard_error, wanted, atol=6e-5 * 1.01)


@pytest.mark.parametrize(("options", "nats"), ARENA)
def test_votes_of_an_arena(options, nats, shared_data):
    path = shared_data / "arena" / "chatbot_arena_2024_08_counts.parquet"
    fit = irtjax.fit_comparisons(irtjax.read_comparisons(path), **options)
    assert -fit.log_likelihood / fit.num_comparisons == pytest.approx(nats, abs=6e-7)


@pytest.mark.parametrize("model", ["bradley_terry", "thurstone"])
@pytest.mark.parametrize("ties", ["half", "drop", "davidson", "rao_kupper"])
def test_the_maximum_is_that_of_another_optimiser(model, ties):
    """SciPy's BFGS on the written-out chances reaches no more."""
    from scipy.special import expit, ndtr

    if (model, ties) == ("thurstone", "davidson"):
        pytest.skip("Davidson's ties are of Bradley and Terry's model")
    table, cdf = small(), {"bradley_terry": expit, "thurstone": ndtr}[model]
    win, loss, tie = table.outcomes[:, :3].T

    def loss_of(z):
        d = z[table.first] - z[table.second]
        if ties == "davidson":
            parts = np.exp(d / 2), np.exp(-d / 2), np.exp(z[-1]) * np.ones_like(d)
            chance = np.array(parts) / np.sum(parts, axis=0)
        elif ties == "rao_kupper":
            a, b = cdf(d - np.exp(z[-1])), cdf(-d - np.exp(z[-1]))
            chance = np.array([a, b, 1 - a - b])
        else:
            chance = np.array([cdf(d), cdf(-d), np.ones_like(d)])
        half = tie / 2 if ties == "half" else 0
        each = np.array([win + half, loss + half, tie])
        used = each if ties in ("davidson", "rao_kupper") else each[:2]
        logs = np.log(np.maximum(chance[: len(used)], 1e-300))
        return -np.sum(used * logs) + 1e-3 * z[:5].sum() ** 2

    other = minimize(loss_of, np.append(np.zeros(5), -0.5), method="BFGS")
    fit = irtjax.fit_comparisons(table, model, ties=ties)
    assert fit.log_likelihood == pytest.approx(-other.fun, abs=1e-6)
    assert fit.abilities.estimates.sum() == pytest.approx(0, abs=1e-10)
    np.testing.assert_allclose(fit.abilities.estimates, other.x[:5], atol=2e-4)


def test_information_and_sandwich_agree_where_the_model_holds():
    table = small(votes=20_000)
    labels = {"each": np.arange(20_000).astype(str)}
    table = irtjax.ComparisonTable.of(
        table.subjects, table.first, table.second, table.outcomes, labels=labels
    )
    options = {"ties": "drop"}
    plain = irtjax.fit_comparisons(table, **options).abilities.standard_error
    robust = irtjax.fit_comparisons(table, cluster="each", **options)
    np.testing.assert_allclose(robust.abilities.standard_error, plain, rtol=0.03)


def test_clusters_twice_are_the_clusters():
    """Each vote four times in one cluster: errors are those of the votes alone."""
    one = small(votes=300)
    votes = np.arange(300).astype(str)
    make = lambda times: irtjax.ComparisonTable.of(
        one.subjects,
        np.tile(one.first, times),
        np.tile(one.second, times),
        np.tile(one.outcomes, (times, 1)),
        labels={"vote": np.tile(votes, times), "same": np.tile(votes, times)},
    )
    single = irtjax.fit_comparisons(make(1), cluster="vote").abilities
    four = irtjax.fit_comparisons(make(4), cluster="vote").abilities
    twice = irtjax.fit_comparisons(make(4), cluster=["vote", "same"]).abilities
    np.testing.assert_allclose(four.standard_error, single.standard_error, rtol=1e-8)
    np.testing.assert_allclose(twice.standard_error, single.standard_error, rtol=1e-6)


@pytest.mark.parametrize(("cluster", "covers"), [(("prompt",), True), ((), False)])
@pytest.mark.slow
def test_clustered_intervals_cover(cluster, covers):
    """Prompts whose battles are alike, each with exactly the chances of the model.

    `experiments/comparisons` has more models, ranks and false discoveries.
    """
    from scipy.special import expit, ndtr

    rng, inside, truth = np.random.default_rng(0), [], np.linspace(-1, 1, 6)
    for _ in range(100):
        prompt = np.arange(3000) % 300
        some = np.argsort(rng.random((300, 6)), axis=1)[:, :4]
        one = rng.integers(4, size=3000)
        other = (one + rng.integers(1, 4, size=3000)) % 4
        first, second = some[prompt, one], some[prompt, other]
        taste = rng.normal(size=(300, 6))
        z = (taste[prompt, first] - taste[prompt, second]) / 2
        level = ndtr(z + np.sqrt(0.5) * rng.normal(size=3000))
        won = level < expit(truth[first] - truth[second])
        table = irtjax.ComparisonTable.of(
            [f"m{k}" for k in range(6)],
            first,
            second,
            np.eye(4)[np.where(won, 0, 1)],
            labels={"prompt": prompt.astype(str)},
        )
        found = irtjax.fit_comparisons(table, cluster=cluster).abilities
        inside.append(np.abs(found.estimates - truth) <= 1.96 * found.standard_error)
    # 600 intervals, 5 of 6 independent: a standard error of 1 %.
    assert np.mean(inside) >= 0.925 if covers else np.mean(inside) < 0.88


def test_a_style_is_found():
    rng = np.random.default_rng(0)
    base, style = small(votes=4000), rng.normal(0, 2.0, 4000)
    ability = 0.4 * np.arange(5)
    logit = ability[base.first] - ability[base.second] + 0.25 * style / 2.0
    won = rng.random(4000) < 1 / (1 + np.exp(-logit))
    table = irtjax.ComparisonTable.of(
        base.subjects,
        base.first,
        base.second,
        np.eye(4)[np.where(won, 0, 1)],
        features={"length": style},
    )
    fit = irtjax.fit_comparisons(table, covariates=["length"], order=True)
    effect, error = fit.effects["length"]
    assert abs(effect - 0.25 * np.sqrt(np.mean(style**2)) / 2) < 2 * error
    assert abs(fit.effects["order"][0]) < 3 * fit.effects["order"][1]
    shuffled = table.select(rng.permutation(4000))
    again = irtjax.fit_comparisons(shuffled, covariates=["length"], order=True)
    assert again.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-8)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[3, 0, 0, 0], [4, 0, 0, 0], [2, 2, 0, 0]], "never lost: a"),
        ([[3, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], "never compared"),
    ],
)
def test_abilities_that_do_not_exist_are_named(rows, said):
    keep = [k for k, row in enumerate(rows) if sum(row)]
    first, second = np.array([0, 0, 1])[keep], np.array([1, 2, 2])[keep]
    table = irtjax.ComparisonTable.of("abc", first, second, np.array(rows)[keep])
    fit = irtjax.fit_comparisons(table)
    assert said in fit.warnings[0]
    assert np.isfinite(fit.abilities.covariance).all()
    ranked = irtjax.rank(fit)
    assert all(0 <= x <= 1 for x in ranked.table["expected_score_lower"].to_pylist())


def test_a_separating_covariate_is_named():
    table = small(votes=50)
    win = table.outcomes[:, 0] - table.outcomes[:, 1]
    parts = table.subjects, table.first, table.second, table.outcomes
    table = irtjax.ComparisonTable.of(*parts, features={"style": 3 * win})
    fit = irtjax.fit_comparisons(table, ties="drop", covariates=["style"])
    assert "effects of style" in fit.warnings[-1]
    assert abs(fit.effects["style"][0]) < 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "elo"}, "model='elo' is not one of bradley_terry, thurstone"),
        ({"ties": "win"}, "ties='win' is not one of half, drop"),
        ({"cluster": "prompt"}, "no cluster 'prompt'"),
        ({"covariates": ["x"]}, "no covariate 'x'"),
        ({"model": "thurstone", "ties": "davidson"}, "use 'rao_kupper'"),
    ],
)
def test_unknown_names_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        irtjax.fit_comparisons(small(), **options)


def test_replicates_by_vmap_are_single_fits():
    table, family = small(), PairFamily(ties="rao_kupper")
    pairs = PairCounts(
        jnp.asarray(table.first),
        jnp.asarray(table.second),
        jnp.asarray(table.outcomes[:, :3]),
        jnp.zeros((len(table.first), 0)),
    )
    start = PairParameters(jnp.zeros(5), jnp.zeros(0), jnp.full(1, -0.5))
    weight = jax.random.poisson(jax.random.key(0), 1.0, (3, len(table.first)))
    fit = jax.jit(
        lambda w: maximise(
            family,
            pairs._replace(outcomes=pairs.outcomes * w[:, None]),
            start,
            jnp.zeros(6),
        ),
    )
    every = jax.vmap(fit)(weight)
    for k in range(3):
        one = fit(weight[k])
        np.testing.assert_allclose(
            every.parameters.ability[k], one.parameters.ability, atol=1e-8
        )
    slope = jax.grad(lambda p: log_likelihood(family, p, pairs))(
        jax.tree.map(lambda x: x + 0.0, start)
    )
    assert np.sum(slope.ability) == pytest.approx(0, abs=1e-9)


def test_the_command_writes_what_python_has(tmp_path):
    table, file = small(), tmp_path / "battles.csv"
    words = np.array(["model_a", "model_b", "tie"])[table.outcomes.argmax(axis=1)]
    lines = ["model_a,model_b,winner,question_id"]
    names = table.subjects
    lines += [
        f"{names[i]},{names[j]},{word},q{k % 40}"
        for k, (i, j, word) in enumerate(
            zip(table.first, table.second, words, strict=True)
        )
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "arena"
    options = ["--ties", "davidson", "--cluster", "question_id", "--json"]
    result = CliRunner().invoke(app, ["arena", str(file), "--out", str(out), *options])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    read = irtjax.read_comparisons(file)
    fit = irtjax.fit_comparisons(read, ties="davidson", cluster="question_id")
    kept = json.loads((out / "fit.json").read_text(encoding="utf-8"))
    assert kept["log_likelihood"] == pytest.approx(fit.log_likelihood, abs=1e-9)
    assert said["log_likelihood"] == kept["log_likelihood"]
    stored = pq.read_table(out / "abilities.parquet")
    wanted = irtjax.rank(fit).table
    assert {"subject", "ability", "ability_se", "rank", "rank_lower", "rank_upper"} <= {
        *stored.column_names
    }
    assert stored["ability"].to_pylist() == pytest.approx(wanted["ability"].to_pylist())
    counts = irtjax.read_comparisons(out / "pairs.csv")
    again = irtjax.fit_comparisons(counts, ties="davidson")
    assert again.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-8)


def test_bootstrap_of_questions_of_mt_bench(shared_data):
    """Errors of an independent bootstrap that draws questions with replacement."""
    table = irtjax.read_comparisons(shared_data / "pairwise" / "mt_bench_human.csv")
    wanted = [0.1125, 0.1259, 0.0761, 0.1066, 0.1245, 0.0883]
    options = {"cluster": "question_id", "bootstrap": 4000}
    fit = irtjax.fit_comparisons(table, **options)
    # Errors of both bootstraps (1-4 %), and those of weights in place of draws: of
    # 80 questions these differ by 3 %.
    ratio = fit.abilities.standard_error / wanted
    np.testing.assert_allclose(ratio, 1, atol=0.06)
    assert np.mean(ratio) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("ties", ["half", "drop", "rao_kupper"])
def test_bootstrap_agrees_with_the_sandwich(ties):
    """Also of votes that are added up already, and of a covariate."""
    base = small(votes=4000)
    rng = np.random.default_rng(1)
    parts = base.subjects, base.first, base.second, base.outcomes
    labels = {"each": np.arange(4000).astype(str)}
    features = {"length": rng.choice([-1.0, 0.5, 2.0], 4000)}
    table = irtjax.ComparisonTable.of(*parts, labels=labels, features=features)
    options = {"ties": ties, "covariates": ["length"]}
    wanted = irtjax.fit_comparisons(table, cluster="each", **options)
    for cluster in ("each", ()):
        fit = irtjax.fit_comparisons(table, cluster=cluster, bootstrap=3000, **options)
        ratio = fit.abilities.standard_error / wanted.abilities.standard_error
        # Standard errors of 3,000 replicates have errors of 1.3 %.
        np.testing.assert_allclose(ratio, 1, atol=0.06)
        assert fit.effects["length"][1] == pytest.approx(
            wanted.effects["length"][1], rel=0.06
        )


def test_replicates_far_from_the_data_converge():
    """A model of two clusters: where their weights are large, by Newton's method."""
    from irtjax.comparisons import bootstrap

    base = small(votes=400)
    rows = np.r_[base.outcomes, np.eye(4)[[0] * 8 + [1] * 2 + [0] * 3 + [1] * 7]]
    sides = np.r_[base.first, np.full(20, 5)], np.r_[base.second, np.zeros(20, int)]
    clusters = np.r_[np.arange(400) % 30, np.repeat([30, 31], 10)].astype(str)
    names = [*base.subjects, "x"]
    table = irtjax.ComparisonTable.of(names, *sides, rows, labels={"part": clusters})
    seen = []
    exactly = bootstrap._exactly
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            bootstrap, "_exactly", lambda *x: seen.append(x[3].shape) or exactly(*x)
        )
        fit = irtjax.fit_comparisons(table, cluster="part", bootstrap=200)
    assert seen and seen[0][2] < 100
    # A share w of the weights of the two gives log odds of .3 + .5 w, whose standard
    # deviation for uniform w is .62, times the root of (C + 1) / (C - 1) = 33 / 31.
    error = fit.abilities.compare("x", "m0").standard_error
    assert error == pytest.approx(0.64, rel=0.15)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bootstrap": 20}, "give 100 replicates or more"),
        ({"bootstrap": 200, "category": "prompt"}, "bootstrap is not for category"),
        ({"bootstrap": 200, "cluster": ["prompt", "judge"]}, "clusters of one kind"),
    ],
)
def test_bootstraps_without_meaning_are_refused(options, said):
    table, labels = (
        small(),
        {x: np.arange(400).astype(str) for x in ("prompt", "judge")},
    )
    parts = table.subjects, table.first, table.second, table.outcomes
    table = irtjax.ComparisonTable.of(*parts, labels=labels)
    with pytest.raises(ValueError, match=said):
        irtjax.fit_comparisons(table, **options)


def test_votes_on_items_are_conditional_maximum_likelihood():
    """Rasch's conditional likelihood of persons who met two items each.

    Given one of two solved, the item that was solved is the winner: its likelihood is
    that of Bradley and Terry's model of the items, which are the easier the abler.
    """
    rng = np.random.default_rng(3)
    persons, items = 3000, 6
    pair = np.array([rng.choice(items, 2, replace=False) for _ in range(persons)])
    easy, skill = np.linspace(-1, 1, items), rng.normal(size=(persons, 1))
    solved = rng.random((persons, 2)) < 1 / (1 + np.exp(-skill - easy[pair]))
    one = solved.sum(axis=1) == 1
    pair, solved = pair[one], solved[one]
    names = [f"i{k}" for k in range(items)]
    rows = np.eye(4)[np.where(solved[:, 0], 0, 1)]
    table = irtjax.ComparisonTable.of(names, pair[:, 0], pair[:, 1], rows)
    fit = irtjax.fit_comparisons(table)

    def symmetric(values):
        """Elementary symmetric functions, by products of polynomials."""
        found = np.array([1.0])
        for x in values:
            found = np.convolve(found, [1.0, x])
        return found

    def conditional(beta):
        total = 0.0
        for k in range(items):
            for j in range(k):
                here = (np.sort(pair, axis=1) == [j, k]).all(axis=1)
                wins = np.array([np.sum(pair[here][solved[here]] == x) for x in (j, k)])
                gamma = symmetric(np.exp(-beta[[j, k]]))
                total += -wins @ beta[[j, k]] - wins.sum() * np.log(gamma[1])
        return total

    beta = -fit.abilities.estimates
    assert conditional(beta) == pytest.approx(fit.log_likelihood, abs=1e-8)
    # The maximum: all derivatives by central differences are 0.
    moved = [
        conditional(beta + s * 1e-4 * row) for row in np.eye(items) for s in (1, -1)
    ]
    np.testing.assert_allclose(np.diff(np.reshape(moved, (-1, 2))) / 2e-4, 0, atol=1e-4)
    # And by an optimiser of its own.
    other = minimize(
        lambda b: -conditional(b) + b.sum() ** 2, np.zeros(items), tol=1e-10
    )
    assert -other.fun == pytest.approx(fit.log_likelihood, abs=1e-8)
