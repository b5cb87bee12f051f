"""Fits whose subjects are divided over devices: the same bits for 1, 2 and 4."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import irtjax
from irtjax.data.sharded_responses import NUM_SEGMENTS, ShardedResponses, check_mesh
from irtjax.estimators.driver import run_jit
from irtjax.likelihood.padding import divide_problem, pad_start
from irtjax.models.catalogue import factor_model
from irtjax.subsets.pool import make_pool

SIZES = (1, 2, 4)


def mesh_of(size: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:size]), ("subjects",))


def responses_of_2pl(num_subjects: int, num_items: int, seed: int = 0) -> np.ndarray:
    """Responses with a fifth missing, and an item that few subjects answered."""
    rng = np.random.default_rng(seed)
    ability = rng.normal(size=(num_subjects, 1))
    slope, difficulty = rng.uniform(0.5, 2, num_items), rng.normal(size=num_items)
    chance = 1 / (1 + np.exp(-slope * (ability - difficulty)))
    values = (rng.random(chance.shape) < chance).astype(float)
    values[rng.random(chance.shape) < 0.2] = np.nan
    values[: num_subjects - 12, 0] = np.nan  # The first item is of one device alone.
    values[num_subjects - 12 :, 0] = np.arange(12) % 3 == 0
    return values


def columns_of(fit: irtjax.Calibration) -> dict[str, np.ndarray]:
    tables = fit.items.table, fit.abilities.table
    return {
        f"{number} {name}": np.asarray(table[name].to_numpy(zero_copy_only=False))
        for number, table in enumerate(tables)
        for name in table.column_names
    }


def test_sums_over_segments_are_those_of_the_matrix():
    rng = np.random.default_rng(0)
    shape = 3 * NUM_SEGMENTS, 5
    data = irtjax.Responses(
        rng.integers(0, 2, shape).astype(np.int8),
        rng.random(shape) < 0.8,
        subject_weight=rng.random(shape[0]),
    )
    vectors = jnp.asarray(rng.normal(size=(shape[0], 2)))
    sums = [data.column_products(vectors)]
    rows = [data.row_products(jnp.ones((5, 1)), jnp.ones((5, 1)))]
    for size in SIZES:
        divided = ShardedResponses.of(data, mesh_of(size))
        products = eqx.filter_jit(lambda data: data.column_products(vectors))
        sums.append(products(divided))
        rows.append(divided.row_products(jnp.ones((5, 1)), jnp.ones((5, 1))))
    chex.assert_trees_all_close(sums[0], sums[1], rtol=1e-13)
    for one, other in zip(sums[1:], sums[2:], strict=False):
        chex.assert_trees_all_equal(jax.device_get(one), jax.device_get(other))
    # Sums of whole numbers have no rounding.
    for other in rows[1:]:
        chex.assert_trees_all_equal(np.asarray(rows[0]), np.asarray(other))
    np.testing.assert_allclose(divided.answered(), data.answered())


def test_em_over_1_2_and_4_devices_is_equal_to_the_last_bit():
    values = responses_of_2pl(203, 6)  # 16 segments divide no 203 subjects.
    data = irtjax.Responses(np.nan_to_num(values).astype(np.int8), ~np.isnan(values))
    model, method = irtjax.MODELS["2pl"](), irtjax.EM(nodes=jnp.linspace(-6, 6, 61))
    problem, start = (
        irtjax.Problem.create(model, data),
        irtjax.start_values(model, data),
    )
    whole = run_jit(problem, method, start)
    fits = []
    for size in SIZES:
        divided = divide_problem(problem, np.float64, mesh_of(size))
        fits.append(run_jit(divided, method, pad_start(start, divided.data)))
    arrays = [jax.device_get(jax.tree.leaves(fit.state)) for fit in fits]
    chex.assert_trees_all_equal(*arrays)
    # Sums are added in another order: the log-likelihood moves by some ulp, and the
    # estimates by what a residual of 1e-4 standard errors allows, of at most .6.
    assert float(fits[0].log_lik) == pytest.approx(float(whole.log_lik), rel=1e-10)
    own = jax.tree.map(lambda x: x[:6], fits[0].parameters.items)
    chex.assert_trees_all_close(own, whole.parameters.items, atol=6e-5)


def responses_of_two_factors() -> np.ndarray:
    rng = np.random.default_rng(3)
    ability, slopes = rng.normal(size=(75, 2)), rng.uniform(0.5, 1.5, (2, 8))
    values = (rng.random((75, 8)) < 1 / (1 + np.exp(-ability @ slopes))).astype(float)
    values[rng.random(values.shape) < 0.1] = np.nan
    return values


@pytest.mark.slow
def test_gaussian_em_over_1_2_and_4_devices_is_equal_to_the_last_bit():
    values = responses_of_two_factors()
    data = irtjax.Responses(np.nan_to_num(values).astype(np.int8), ~np.isnan(values))
    model, method = factor_model(irtjax.Factor(2)), irtjax.GVEM()
    problem = irtjax.Problem.create(model, data)
    start, fits = irtjax.start_values(model, data), []
    for size in SIZES:
        divided = divide_problem(problem, np.float64, mesh_of(size))
        own = pad_start(start, divided.data)
        fits.append(run_jit(divided, method, own, max_steps=20))
    arrays = [jax.device_get(jax.tree.leaves(fit.state)) for fit in fits]
    chex.assert_trees_all_equal(*arrays)


@pytest.mark.slow
def test_fits_of_two_factors_are_equal_to_the_last_bit():
    table = irtjax.ResponseTable.from_arrays(responses_of_two_factors())
    model = irtjax.Factor(2)
    fits = [irtjax.fit(table, model, "gvem", mesh=mesh_of(n)) for n in SIZES]
    whole = irtjax.fit(table, model, "gvem")
    first, *others = map(columns_of, fits)
    for other in others:
        chex.assert_trees_all_equal(first, other)
    assert fits[0].num_steps == whole.num_steps
    assert len({fit.log_likelihood for fit in fits}) == 1
    assert fits[0].log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-10)


def test_devices_without_subjects_and_items_of_one_device_keep_the_bits():
    # 9 subjects are of 16 rows: of four devices the last one has copies alone, and only
    # the first one has responses to the last item.
    values = np.array([[0, 1, 0, 1, 1, 0, 1, 0, 1], [1, 0, 0, 1, 1, 1, 0, 0, 1]] * 2).T
    observed = np.ones(values.shape, bool)
    observed[4:, 3] = False
    data = irtjax.Responses(values.astype(np.int8), observed)
    # At the usual tolerance log-likelihoods without priors differ by 1e-5 relative.
    nodes = jnp.linspace(-6, 6, 61)
    model, method = irtjax.MODELS["rasch"](), irtjax.EM(nodes=nodes, tolerance=1e-9)
    problem = irtjax.Problem.create(model, data)
    start, fits = irtjax.start_values(model, data), []
    whole = run_jit(problem, method, start)
    for size in (1, 4):
        divided = divide_problem(problem, np.float64, mesh_of(size))
        fits.append(run_jit(divided, method, pad_start(start, divided.data)))
    weight = np.asarray(divided.data.subject_weight).reshape(4, -1)
    assert len(weight.ravel()) == 16 and not weight[3].any()
    arrays = [jax.device_get(jax.tree.leaves(fit.state)) for fit in fits]
    chex.assert_trees_all_equal(*arrays)
    assert float(fits[0].log_lik) == pytest.approx(float(whole.log_lik), rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["em", "mm", "saem"])
def test_fits_over_1_2_and_4_devices_are_equal_to_the_last_bit(method):
    values = responses_of_2pl(203, 12)  # 16 segments divide no 203 subjects.
    table = irtjax.ResponseTable.from_arrays(values)
    fits = [irtjax.fit(table, "2pl", method, mesh=mesh_of(n)) for n in SIZES]
    whole = irtjax.fit(table, "2pl", method)
    first, *others = map(columns_of, fits)
    for other in others:
        chex.assert_trees_all_equal(first, other)
    assert len({fit.log_likelihood for fit in fits}) == 1
    assert fits[0].log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-10)
    for name, column in columns_of(whole).items():
        if name in ("0 discrimination", "0 intercept", "1 ability", "1 ability_se"):
            np.testing.assert_allclose(first[name], column, atol=6e-5)


def table_of_lengths() -> irtjax.ResponseTable:
    """Responses of 61 subjects to 6 items with their lengths, a tenth missing."""
    rng = np.random.default_rng(5)
    ability, shape = rng.normal(size=(61, 1)), (61, 6)
    speed = 0.5 * ability + 0.8 * rng.normal(size=ability.shape)
    chance = 1 / (1 + np.exp(-ability - rng.normal(size=6)))
    values = (rng.random(shape) < chance).astype(float)
    values[rng.random(shape) < 0.1] = np.nan
    lengths = np.exp(5 - 0.5 * speed + 0.4 * rng.normal(size=shape))
    lengths[np.isnan(values)] = np.nan
    return irtjax.ResponseTable.from_arrays(values, lengths=lengths)


def test_sums_of_response_lengths_are_equal_to_the_last_bit():
    data = table_of_lengths().responses(length_offset=1.0)
    model = irtjax.MODELS["lart"]()
    problem = irtjax.Problem.create(model, data)
    at = irtjax.start_values(model, data).lengths
    assert model.lengths is not None and at is not None

    @eqx.filter_jit
    def sums(data):
        summary = model.lengths.summary(at, data)
        mean, variance = model.lengths.ability(at, summary)
        speed = model.lengths.speed(at, summary, mean, variance)
        update = model.lengths.improve(at, data, mean, variance, speed)
        return update.folded, summary

    divided = [divide_problem(problem, np.float64, mesh_of(n)).data for n in SIZES]
    first, *others = (jax.device_get(sums(each)) for each in divided)
    for other in others:
        chex.assert_trees_all_equal(first, other)
    folded, summary = sums(data)
    own = first[0], jax.tree.map(lambda x: x[:61], first[1])
    chex.assert_trees_all_close(own, (folded, summary), rtol=1e-12)


@pytest.mark.slow
def test_complete_scores_gain_rows_without_responses():
    rng = np.random.default_rng(1)
    ability, easiness = rng.normal(size=(37, 1)), rng.normal(size=6)
    scores = 1 / (1 + np.exp(-ability - easiness - 0.5 * rng.normal(size=(37, 6))))
    table = irtjax.ResponseTable.from_arrays(scores)
    fits = [
        irtjax.fit(table, "continuous", "em", mesh=mesh, standard_errors="none")
        for mesh in (None, mesh_of(2))
    ]
    assert fits[1].log_likelihood == pytest.approx(fits[0].log_likelihood, rel=1e-10)
    assert fits[1].abilities.table.num_rows == 37


def test_what_cannot_be_divided_is_refused_with_what_can():
    table = irtjax.ResponseTable.from_arrays(responses_of_2pl(40, 6))
    with pytest.raises(ValueError, match=r"by method 'laplace' .* method='em'"):
        irtjax.fit(table, "2pl", "laplace", mesh=mesh_of(2))
    with pytest.raises(ValueError, match="a mesh of 3 devices .* 1, 2, 4, 8 devices"):
        check_mesh(mesh_of(3))
    with pytest.raises(ValueError, match="is no jax.sharding.Mesh"):
        irtjax.fit(table, "2pl", "em", mesh=2)


def test_folds_by_laplace_are_refused_with_a_cure():
    table = irtjax.ResponseTable.from_arrays(responses_of_2pl(12, 6)[:, 1:])
    pool, _ = make_pool(table, "2pl")
    with pytest.raises(ValueError, match=r"'laplace' do not divide .* as an object"):
        pool.over(mesh_of(2))


@pytest.mark.slow
def test_cross_validation_over_1_2_and_4_devices_is_equal_to_the_last_bit():
    table = irtjax.ResponseTable.from_arrays(responses_of_2pl(61, 9)[:, 1:])
    model = irtjax.MODELS["rasch"]()
    rows = [
        irtjax.subset_errors(
            table, [3], ["information"], model=model, folds=3, mesh=mesh
        ).rows
        for mesh in (None, *map(mesh_of, SIZES))
    ]
    assert rows[1] == rows[2] == rows[3]
    # Folds converge to .01 standard errors, of some .3: abilities move by .003, and
    # expected scores by a quarter of that.
    difference = rows[1][0]["mean_absolute_error"] - rows[0][0]["mean_absolute_error"]
    assert abs(difference) < 1e-3


@pytest.mark.slow
def test_windows_of_nodes_and_many_blocks_keep_the_bits():
    # 4,096 subjects to a segment are two blocks, most of them on a window of nodes.
    rng = np.random.default_rng(2)
    ability = np.sort(rng.normal(size=(NUM_SEGMENTS * 4096, 1)), axis=0)
    values = (rng.random((len(ability), 20)) < 1 / (1 + np.exp(-ability))).astype(int)
    model, data = irtjax.MODELS["2pl"](), irtjax.Responses(values.astype(np.int8))
    start = irtjax.start_values(model, data)
    method = irtjax.EM(nodes=jnp.linspace(-6, 6, 121), window=80)
    fits = []
    for size in SIZES:
        problem = irtjax.Problem.create(model, ShardedResponses.of(data, mesh_of(size)))
        fits.append(run_jit(problem, method, start, max_steps=30))
    arrays = [jax.device_get(eqx.filter(fit, eqx.is_array)) for fit in fits]
    chex.assert_trees_all_equal(*map(jax.tree.leaves, arrays))


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["subjects", "items"])
def test_replicates_over_devices_are_those_of_one(unit):
    values = responses_of_2pl(60, 5)
    data = irtjax.Responses(np.nan_to_num(values).astype(np.int8), ~np.isnan(values))
    model, method = irtjax.MODELS["rasch"](), irtjax.EM(nodes=jnp.linspace(-6, 6, 61))
    problem, start = (
        irtjax.Problem.create(model, data),
        irtjax.start_values(model, data),
    )
    options = {"key": 0, "num_replicates": 2, "batch_size": 2, "unit": unit}
    whole, *divided = (
        irtjax.bootstrap(problem, method, start, mesh=mesh, **options)
        for mesh in (None, mesh_of(1), mesh_of(4))
    )
    chex.assert_trees_all_equal(*map(jax.device_get, divided))
    # A residual of 1e-4 standard errors, of at most .6 in the items; slopes of some
    # replicates of a 2PL would have no finite estimate.
    chex.assert_trees_all_close(divided[0].parameters, whole.parameters, atol=6e-5)
    chex.assert_trees_all_close(divided[0].ability, whole.ability, atol=6e-5)
