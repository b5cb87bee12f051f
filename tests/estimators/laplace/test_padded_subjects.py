"""Subjects that pad small data change no number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.estimators.laplace import problem
from irtjax.estimators.laplace.curvature import centred
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import MultilevelProblem
from irtjax.models.families.logistic import Binary
from irtjax.models.multilevel.specification import Hierarchical, MultiBenchmark
from irtjax.models.priors import LogNormal

SUBJECTS, ITEMS = 9, 24


def responses(subjects=SUBJECTS, benchmarks=1, scores=False, missing=0.0, seed=1):
    """Right or wrong, or scores, of items of some benchmarks."""
    rng = np.random.default_rng(seed)
    group = np.arange(ITEMS) % benchmarks
    ability = rng.normal(size=(subjects, 1)) + 0.5 * rng.normal(
        size=(subjects, benchmarks)
    )
    logit = np.exp(0.3 * rng.normal(size=ITEMS)) * ability[:, group]
    logit = logit + rng.normal(0, 1, ITEMS)
    chance = 1 / (1 + np.exp(-logit - scores * 0.5 * rng.normal(size=logit.shape)))
    values = chance if scores else (rng.random(logit.shape) < chance).astype(float)
    values[rng.random(values.shape) < missing] = np.nan
    names = [f"b{k}" for k in group]
    return irtjax.ResponseTable.from_arrays(values, benchmark=names)


COVARIATE = {"size": np.linspace(-1, 1, SUBJECTS) ** 3}
CASES = [
    pytest.param(
        "2pl", responses(missing=0.2), {}, id="one ability", marks=pytest.mark.slow
    ),
    pytest.param(
        "multibenchmark",
        responses(benchmarks=3, scores=True),
        {"subject_covariates": COVARIATE},
        id="scores, groups and a covariate",
        marks=pytest.mark.slow,
    ),
    *(
        pytest.param(*case, id=name, marks=pytest.mark.slow)
        for name, case in {
            "benchmarks": (
                "multibenchmark",
                responses(benchmarks=3, missing=0.2),
                {},
            ),
            "one benchmark's variances": (
                "hierarchical",
                responses(benchmarks=3),
                {"sd_by_benchmark": True, "subject_covariates": COVARIATE},
            ),
            "unit slopes": ("rasch", responses(), {}),
            "given slopes": (
                "2pl",
                responses(),
                {"priors": {"discrimination": LogNormal(0.0, 0.4)}},
            ),
            "metrics": (
                "multimetric",
                responses(benchmarks=2, scores=True),
                {"shared_items": [f"q{k // 2}" for k in range(ITEMS)]},
            ),
            "asymptotes": ("3pl", responses(), {}),
            "one score": ("continuous", responses(scores=True), {}),
        }.items()
    ),
]


@pytest.mark.parametrize(("model", "table", "settings"), CASES)
def test_a_fit_with_padded_subjects_is_the_fit(model, table, settings, monkeypatch):
    fit = lambda: irtjax.fit(table, model, "laplace", max_steps=12, **settings)
    padded = fit()
    monkeypatch.setattr(problem, "PADDED_CELLS", 0)
    plain = fit()
    near = {"rtol": 1e-6, "atol": 1e-8}
    # A share of 4,000 draws has an error of up to 0.5 / sqrt(4000) = 0.008, and draws
    # depend on the sign of eigenvectors: 4.5 errors of a difference.
    drawn = {"rtol": 0, "atol": 0.05}
    for name in ("log_likelihood", "num_parameters", "num_steps"):
        np.testing.assert_allclose(getattr(padded, name), getattr(plain, name), **near)
    for name in ("items", "abilities"):
        one, other = getattr(padded, name).table, getattr(plain, name).table
        assert one.column_names == other.column_names
        for column in one.column_names:
            found, expected = one[column].to_pylist(), other[column].to_pylist()
            if column in ("rank_lower", "rank_upper"):
                # From the same draws.
                np.testing.assert_allclose(found, expected, atol=1)
            elif isinstance(expected[0], float):
                found, expected = np.array(found, float), np.array(expected, float)
                how = drawn if column == "probability_best" else near
                np.testing.assert_allclose(found, expected, err_msg=column, **how)
            else:
                assert found == expected, column
    one, other = (x.ability_shared @ x.ability_shared.T for x in (padded, plain))
    np.testing.assert_allclose(one, other, **near)
    parts = ("item_covariance", "ability_scale", "structure", "trace")
    for name in parts:
        one, other = (
            jax.tree.leaves_with_path(getattr(fit, name)) for fit in (padded, plain)
        )
        assert len(one) == len(other)
        for (path, found), (_, expected) in zip(one, other, strict=True):
            if np.asarray(found).dtype.kind == "f":
                message, how = f"{name}{jax.tree_util.keystr(path)}", near
                if ".possible." in message:
                    # Draws magnify roundings. Their means have an error of 7 % of
                    # their standard deviation, so 0.001 % of it is no difference.
                    sd = np.std(expected, axis=0)
                    sd, how = np.where(sd > 0, sd, 1), near | {"atol": 1e-5}
                    found, expected = found / sd, expected / sd
                np.testing.assert_allclose(found, expected, err_msg=message, **how)
            else:
                np.testing.assert_array_equal(found, expected)


def test_abilities_of_padding_are_fixed_at_0():
    rng = np.random.default_rng(0)
    weight, array = jnp.array([1.0, 1.0, 1.0, 0.0]), rng.normal(size=(8, 8))
    kept = np.flatnonzero(np.tile(weight, 2))
    for parts in (0, 1, 2):
        found = np.asarray(centred(jnp.asarray(array), parts, weight))
        alone = centred(jnp.asarray(array[np.ix_(kept, kept)]), parts)
        np.testing.assert_allclose(found[np.ix_(kept, kept)], alone, atol=1e-12)
        assert not found[[3, 7]].any() and not found[:, [3, 7]].any()


def test_a_state_is_resized_by_subject():
    table = responses(benchmarks=2)
    layout = MultiBenchmark().lay_out(table, Binary(slopes="positive"))
    whole = MultilevelProblem.create(layout.model, table.responses())
    padded = whole.by_distinct()
    assert padded.data.num_subjects == 12 and float(padded.model.total_subjects) == 9
    state = jax.eval_shape(Laplace().init, padded, None, None)
    rng = np.random.default_rng(0)
    state = jax.tree.map(lambda x: rng.normal(size=x.shape), state)
    cut = problem.with_subjects(state, SUBJECTS)
    wanted = jax.eval_shape(Laplace().init, whole, None, None)
    for found, like in zip(jax.tree.leaves(cut), jax.tree.leaves(wanted), strict=True):
        assert np.shape(found) == like.shape
    blocks = state.ability_covariance.reshape(2, 12, 2, 12)[:, :9, :, :9]
    np.testing.assert_array_equal(cut.ability_covariance, blocks.reshape(18, 18))
    again = problem.with_subjects(cut, 12)
    np.testing.assert_array_equal(again.ability[:9], state.ability[:9])
    assert not np.asarray(again.ability[9:]).any()
    assert again.memory.points.shape == state.memory.points.shape


def test_data_of_many_cells_keep_their_subjects(monkeypatch):
    table = responses()
    layout = Hierarchical().lay_out(table, Binary(slopes="positive"))
    whole = MultilevelProblem.create(layout.model, table.responses())
    for limit in ("PADDED_CELLS", "PADDED_ABILITIES"):
        with monkeypatch.context() as patch:
            patch.setattr(problem, limit, 11)
            same = whole.by_distinct()
            assert same.data.num_subjects == SUBJECTS
            assert same.model.subject_weight is None
