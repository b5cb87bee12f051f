"""Sizes that no memory holds are refused with what they need, before allocation."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.adaptive import study
from irtjax.estimators.laplace.item_posterior import hermite_nodes
from irtjax.estimators.neural.towers import make_tower
from irtjax.estimators.posterior.nuts import NoUTurn
from irtjax.estimators.posterior.sample import sample
from irtjax.models import simulate as draws
from irtjax.models.catalogue import two_parameter
from irtjax.numerics import memory
from irtjax.numerics.acceleration import empty_memory
from irtjax.ranking.ranks import _draw_ranks

MANY = 10**14


def files(root, contents):
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system whose files are below a folder."""
    path = memory.Path
    change = lambda *parts: tmp_path / str(path(*parts)).lstrip("/")
    monkeypatch.setattr(memory, "Path", change)
    return tmp_path


@pytest.mark.parametrize(
    ("contents", "available"),
    [
        ({}, 8e9),
        ({"sys/fs/cgroup/a/memory.max": "5000\n"}, 8e9),  # Without what is used.
        (
            {
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.current": "100\n",
                "sys/fs/cgroup/a/memory.max": "5000\n",
                "sys/fs/cgroup/a/memory.current": "4000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 1500\n",
            },
            2500,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,memory:/job\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "8000\n",
            },
            -1000,
        ),
    ],
)
def test_available_memory_is_the_least_of_all_limits(system, contents, available):
    files(system, {"proc/meminfo": "MemFree: 1 kB\nMemAvailable: 7812500 kB\n"})
    files(system, {"proc/self/cgroup": "9:name=systemd:/\n0::/a/b\n", **contents})
    assert memory._of_machine() == [8e9]
    assert min([8e9, *memory._of_groups()]) == available


def test_limits_of_the_process_count():
    resource = pytest.importorskip("resource")
    if memory._fields(memory.Path("/proc/self/status")) == {}:
        pytest.skip("no /proc")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (2**46, before[1]))
    try:
        found = memory._of_limits()
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    assert any(2**45 < x < 2**46 for x in found)
    assert memory.available_memory() > 1e6


def test_refusals_name_need_and_cure():
    with pytest.raises(ValueError) as caught:
        memory.require_memory(8e18, "10^18 draws", "use fewer")
    assert re.fullmatch(
        r"10\^18 draws: 8,000,000 TB of memory needed, [\d.,]+ [MGT]B available: use"
        " fewer",
        str(caught.value),
    )


def too_many_draws():
    method, normal = NoUTurn(num_draws=MANY), lambda x, _: -jnp.sum(x**2)
    sample(normal, jnp.zeros(2), None, key=jax.random.key(0), method=method)


def too_many_ranks():
    errors = type("Errors", (), {"own": lambda _: np.ones(3)})()
    errors.shared = errors.covariance = None  # type: ignore[attr-defined]
    _draw_ranks(np.zeros(3), errors, 0.9, MANY, jax.random.key(0))


def too_many_responses():
    model, key = two_parameter(), jax.random.key(0)
    items = jax.eval_shape(lambda: draws.simulate_items(model, 3_000_000, key))
    theta = jax.ShapeDtypeStruct((3_000_000,), float)
    jax.eval_shape(lambda i, t: draws.simulate(model, i, t, key), items, theta)


def too_wide_a_network():
    one, key = jnp.zeros(1), jax.random.key(0)
    make_tower(64, (MANY,), one, looked_up=True, key=key)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (too_many_draws, "4 chains of 100,000,000,000,000 draws: .*num_draws"),
        (too_many_ranks, "100,000,000,000,000 draws of 3 ranks"),
        (too_many_responses, "3,000,000 subjects x 3,000,000 items: 18 TB"),
        (lambda: hermite_nodes(10**9, 2), "1,000,000,000 quadrature nodes .* order"),
        (lambda: hermite_nodes(30, 12), "30 x 30 .* quadrature nodes"),
        (lambda: empty_memory(5, MANY, float), "lower memory"),
        (lambda: study._check_size(MANY, 3, 1, 5), "000 tests of 3 items"),
        (lambda: study._check_size(2, 3, MANY, 5), "000 of each item: .*lower repeats"),
        (too_wide_a_network, "layers of 64, 100,000,000,000,000, 1 numbers"),
        (lambda: irtjax.fit(np.eye(2), max_steps=2 * 10**9), "max_steps 2,000,000,000"),
        (lambda: irtjax.fit(np.eye(2), max_steps=2**31), r"from 1 to 2\*\*31 - 1"),
    ],
)
def test_what_no_memory_holds_is_refused_before_allocation(monkeypatch, ask, message):
    monkeypatch.setattr(memory, "_of_machine", lambda: [8e9])
    with pytest.raises(ValueError, match=message):
        ask()


def test_commands_refuse_absurd_sizes(tmp_path):
    from typer.testing import CliRunner

    from irtjax.cli.app import app

    table = irtjax.ResponseTable.from_arrays([[1, 0, 1], [0, 0, 1], [1, 1, 0]])
    path = table.save(tmp_path / "r.parquet")
    out = tmp_path / "o.csv"
    for command, message in (
        (f"simulate --out {out} --num-subjects 3000000 --num-items 3000000", "18 TB"),
        (f"simulate --out {out} --model graded --categories {10**12}", "categories"),
        (f"fit {path} --out {tmp_path / 'o'} --max-steps {2 * 10**30}", "--max-steps"),
    ):
        found = CliRunner().invoke(app, [*command.split(), "--quiet"])
        assert found.exit_code == 2, found.output
        assert message in found.stderr and found.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["r.parquet"]
