"""Stored programs give the same numbers without tracing, and never wrong ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.models.catalogue import two_parameter
from irtjax.models.families.logistic import Binary, LogisticItems
from irtjax.models.model import Model
from irtjax.numerics import programs
from irtjax.scoring.information import group_information

ITEMS = LogisticItems(
    jnp.array([1.0, 0.5, 2.0]), jnp.array([0.0, 1.0, -1.0]), jnp.zeros(3), jnp.ones(3)
)
NODES = np.linspace(-2, 2, 5)
CODES = np.array([0, 1, 1])


class Steeper(Binary):
    """A family of a user: its code is not irtjax's."""

    def natural(self, item, theta):
        """Log Q and log P - log Q at twice the ability."""
        return super().natural(item, 2 * theta)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder in which programs are stored, and nothing in memory."""
    monkeypatch.setattr(programs, "_on_one_cpu", lambda: True)
    programs.store_in(tmp_path)
    group_information.programs.clear()
    yield tmp_path
    programs.store_in(None)
    group_information.programs.clear()


def information(model=None, items=ITEMS, num_groups=2):
    model = two_parameter() if model is None else model
    return np.asarray(group_information(model, items, NODES, CODES, num_groups))


def test_a_stored_program_is_not_traced_again(folder, monkeypatch):
    expected = np.asarray(
        group_information.jitted(two_parameter(), ITEMS, NODES, CODES, 2)
    )
    np.testing.assert_array_equal(information(), expected)
    assert len(list(folder.iterdir())) == 1
    group_information.programs.clear()
    monkeypatch.setattr(group_information, "_export", None)
    np.testing.assert_array_equal(information(), expected)


def test_a_program_of_another_call_is_replaced(folder):
    information()
    (two,) = folder.iterdir()
    information(num_groups=3)
    three = next(x for x in folder.iterdir() if x != two)
    three.write_bytes(two.read_bytes())
    group_information.programs.clear()
    assert information(num_groups=3).shape == (5, 3)
    assert three.read_bytes() != two.read_bytes()


def test_a_program_does_not_depend_on_where_its_arguments_come_from():
    # Otherwise results of programs compile the next one a second time.
    array = jnp.ones(3)
    result = jax.device_put(array, jax.devices()[0])
    one, other = (programs._compile(jnp.sin, [x]).as_text() for x in (array, result))
    assert one == other


def test_other_arguments_have_other_programs(folder):
    two = information()
    three = information(num_groups=3)
    assert three.shape == (5, 3)
    probit = information(Model("probit", Binary(link="probit"), {}))
    assert np.abs(probit - two).max() > 0.01
    steeper = ITEMS._replace(discrimination=2 * ITEMS.discrimination)
    assert np.abs(information(items=steeper) - two).max() > 0.1
    single = LogisticItems(*(x.astype("float32") for x in ITEMS))
    assert information(items=single).shape == (5, 2)
    # Other values of an array of the same shape use the same program.
    assert len(list(folder.iterdir())) == 4


def test_code_of_a_user_is_never_stored(folder):
    found = information(Model("steeper", Steeper(), {}))
    assert not list(folder.iterdir())
    assert np.abs(found - information()).max() > 0.01


def test_a_setting_of_jax_is_part_of_the_key(folder):
    information()
    with jax.numpy_rank_promotion("warn"):
        information()
    assert len(list(folder.iterdir())) == 2


def test_under_a_transformation_nothing_is_stored(folder):
    gradient = jax.grad(
        lambda nodes: jnp.sum(
            group_information(two_parameter(), ITEMS, nodes, CODES, 2)
        )
    )(jnp.asarray(NODES))
    step = 1e-5
    moved = [
        group_information.jitted(two_parameter(), ITEMS, NODES + s, CODES, 2).sum(1)
        for s in (step, -step)
    ]
    np.testing.assert_allclose(gradient, (moved[0] - moved[1]) / (2 * step), atol=1e-8)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("content", [b"", b"no program", None])
def test_a_damaged_file_is_written_again(folder, content):
    expected = information()
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    group_information.programs.clear()
    np.testing.assert_array_equal(information(), expected)
    assert path.stat().st_size > 0.9 * len(whole)


def test_the_oldest_programs_are_deleted(folder, monkeypatch):
    information()
    (first,) = folder.iterdir()
    os.utime(first, (1, 1))
    monkeypatch.setattr(programs, "MOST_BYTES", first.stat().st_size * 3 // 2)
    information(num_groups=3)
    (kept,) = folder.iterdir()
    assert kept != first


def test_the_key_has_every_source_file(tmp_path):
    digests = set()
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.py", "1"), ("c/d.py", "1")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        digests.add(programs._code(tmp_path))
    assert len(digests) == 4


CHILD = """
import atexit, json, sys
import jax
names = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **more: "trace" in event and names.append(more["fun_name"])
)
from irtjax.cli import main
atexit.register(lambda: print(json.dumps(names), file=sys.stderr))
main()
"""


@pytest.mark.parametrize(
    "method", ["em", pytest.param("laplace", marks=pytest.mark.slow)]
)
def test_a_second_process_traces_no_fit_and_finds_the_same(tmp_path, method):
    responses = np.random.default_rng(0).binomial(1, 0.6, (8, 12))
    responses[:, 0] = [0, 1] * 4
    np.savetxt(tmp_path / "r.csv", responses, "%d", ",", header="i" + ",i" * 11)
    traced, tables = [], []
    for name in ("first", "second"):
        out = tmp_path / name
        done = subprocess.run(
            [sys.executable, "-c", CHILD]
            + ["fit", "r.csv", "--method", method, "--model", "2pl", "--quiet"]
            + ["--no-figures", "--out", str(out)],
            cwd=tmp_path,
            env=os.environ
            | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
            | {"PYTHONPATH": str(Path(programs.__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        )
        traced.append(set(json.loads(done.stderr.splitlines()[-1])))
        tables.append([(out / f"{x}.csv").read_text() for x in ("items", "abilities")])
    assert any(name.startswith("run_") for name in traced[0])
    assert not any(name.startswith(("run", "begin")) for name in traced[1])
    assert tables[0] == tables[1]
