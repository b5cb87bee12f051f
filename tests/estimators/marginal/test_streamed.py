"""EM of streamed responses is EM of the same responses in memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import irtjax
from irtjax._types import Status
from irtjax.data import stream as streams
from irtjax.data.reading.first_pass import make_stream
from irtjax.data.reading.options import ReadOptions
from irtjax.data.streamed_responses import StreamedResponses
from irtjax.estimators.driver import Run
from irtjax.estimators.marginal import em
from irtjax.estimators.start import start_values
from irtjax.estimators.timing import Clock
from irtjax.inference import streamed as streamed_inference
from irtjax.likelihood import streamed_counts
from irtjax.likelihood.counts import expected_counts
from irtjax.likelihood.problem import Problem

SHAPE = 150, 30
#: What takes longer than a few seconds, most of which compile programs.
slow = pytest.mark.slow


def binary(share):
    """Responses of a 2PL, NaN where missing; each subject has some."""
    rng = np.random.default_rng(0)
    ability, slope = rng.normal(size=(SHAPE[0], 1)), rng.uniform(0.5, 1.5, SHAPE[1])
    logit = slope * ability + rng.normal(size=SHAPE[1])
    values = (rng.random(SHAPE) < 1 / (1 + np.exp(-logit))).astype(float)
    missing = rng.random(SHAPE) >= share
    missing[:, 0] &= missing[:, 1:].sum(axis=1) < SHAPE[1] - 1
    return np.where(missing, np.nan, values)


def ordinal(share):
    """Responses 0 to 2: twice a 2PL."""
    first, second = binary(share), binary(1.0)
    return first + np.roll(second, 1, axis=0)


def streamed(values, tmp_path, monkeypatch):
    """The layout of a long file, in small blocks of which the last one is short."""
    monkeypatch.setattr(streams, "BLOCK_CELLS", 500)
    # So few that windows are too narrow at first.
    monkeypatch.setattr(streamed_counts, "SAMPLE", 1)
    monkeypatch.setattr(streamed_counts, "BLOCK_PAIRS", 1)
    monkeypatch.setattr(streamed_counts, "PIECE_PAIRS", 1)
    monkeypatch.setattr(streamed_counts, "PIECE", 61 * 20)
    row, column = np.nonzero(~np.isnan(values))
    score = pa.array(values[row, column].astype(np.int8))
    names = [f"m{i:03d}" for i in row], [f"q{j:02d}" for j in column]
    table = pa.table({"model": names[0], "item": names[1], "score": score})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=300)
    folder = tmp_path / "stream"
    folder.mkdir()
    stream = make_stream(tmp_path / "x.parquet", folder, ReadOptions())
    # In the order of the matrix.
    assert [int(x[1:]) for x in stream.items] == [*dict.fromkeys(column.tolist())]
    return StreamedResponses.of(stream), [int(x[1:]) for x in stream.items]


def in_memory(values, items):
    """The same responses as a matrix."""
    part = values[:, items]
    missing = np.isnan(part)
    observed = None if not missing.any() else jnp.asarray(~missing)
    return irtjax.Responses(jnp.asarray(np.nan_to_num(part), jnp.int8), observed)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        *[("2pl", share) for share in (1.0, 0.6, 0.15)],
        *[pytest.param(name, 0.6, marks=slow) for name in ("rasch", "3pl", "graded")],
    ],
)
def test_a_pass_has_the_counts_of_the_responses_in_memory(
    name, share, tmp_path, monkeypatch
):
    values = ordinal(share) if name == "graded" else binary(share)
    data, items = streamed(values, tmp_path, monkeypatch)
    assert data.source.is_matrix == (share > 0.5)
    model = irtjax.MODELS[name](**({"num_categories": 3} if name == "graded" else {}))
    matrix = in_memory(values, items)
    start = start_values(model, matrix)
    own = start_values(model, data)
    for one, other in zip(own.items, start.items, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(own.theta, start.theta, rtol=1e-9, atol=1e-9)
    nodes = jnp.linspace(-6, 6, 201)
    log_weights = -(nodes**2) / 2
    arguments = model, start.items, nodes, log_weights
    wanted = expected_counts(*arguments, matrix)
    for centre in (None, wanted.centre):
        found = streamed_counts.streamed_counts(*arguments, data, centre=centre)
        for one, other in zip(found[:4], wanted[:4], strict=True):
            pairs = zip(one, other, strict=True) if isinstance(one, tuple) else None
            for a, b in pairs or [(one, other)]:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
        np.testing.assert_array_equal(found.centre, wanted.centre)


@slow
@pytest.mark.parametrize("share", [1.0, 0.6, 0.15])
def test_a_streamed_fit_is_the_fit_in_memory(share, tmp_path, monkeypatch):
    values = binary(share)
    data, items = streamed(values, tmp_path, monkeypatch)
    matrix, model = in_memory(values, items), irtjax.MODELS["2pl"]()
    method = em.EM(tolerance=1e-6)
    run = Run(Clock(None))
    fits = [
        method.solve(Problem.create(model, x), start_values(model, x), run).fit
        for x in (data, matrix)
    ]
    assert {int(fit.status) for fit in fits} <= {Status.CONVERGED, Status.STALLED}
    np.testing.assert_allclose(
        fits[0].log_lik, fits[1].subject_log_lik[: SHAPE[0]].sum(), rtol=1e-10
    )
    pairs = zip(*(fit.parameters.items for fit in fits), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other[: SHAPE[1]], atol=1e-6)


@pytest.mark.parametrize("share", [pytest.param(0.6, marks=slow), 0.15])
def test_errors_of_an_item_given_the_others_are_those_of_its_hessian(
    share, tmp_path, monkeypatch
):
    values = binary(share)
    data, items = streamed(values, tmp_path, monkeypatch)
    matrix, model = in_memory(values, items), irtjax.MODELS["2pl"](priors=None)
    start = start_values(model, matrix)
    coordinates = model.unconstrain(start.items)
    nodes = jnp.linspace(-6, 6, 41)
    log_weights = start.population.log_weights_at(nodes)

    @jax.jit
    @jax.hessian
    def hessian(row):
        changed = model.constrain(coordinates.at[0].set(row))
        counts = expected_counts(model, changed, nodes, log_weights, matrix)
        return -jnp.sum(counts.log_marginal)

    monkeypatch.setattr(streamed_inference, "DENSE_LIMIT", 0)
    monkeypatch.setattr(streamed_inference, "CHUNK", 50)
    problem = Problem.create(model, data)
    covariance = streamed_inference.streamed_covariance(
        problem, coordinates, start.population, nodes
    )
    wanted = np.linalg.inv(hessian(coordinates[0]))
    np.testing.assert_allclose(covariance.items[0], wanted, rtol=1e-7)
    assert covariance.identified.all()


def test_a_method_without_passes_on_the_host_is_refused(tmp_path, monkeypatch):
    data, _ = streamed(binary(1.0), tmp_path, monkeypatch)
    model = irtjax.MODELS["2pl"]()
    problem, start = Problem.create(model, data), start_values(model, data)
    with pytest.raises(ValueError, match="fitted by method='em'"):
        irtjax.MM().solve(problem, start, Run(Clock(None)))
