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
from jax.experimental.compilation_cache import compilation_cache

from irtjax.inference.information import group_information
from irtjax.models.catalogue import two_parameter
from irtjax.models.families.logistic import Binary, LogisticItems
from irtjax.models.model import Model
from irtjax.numerics import executables, programs

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
    # What JAX's cache has is not stored.
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield tmp_path
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()
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
    monkeypatch.setattr(programs, "compile_program", None)
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
    one, other = (
        executables._compile(jnp.sin, [x])[0].as_text() for x in (array, result)
    )
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
    monkeypatch.setattr(executables, "MOST_BYTES", first.stat().st_size * 3 // 2)
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


@programs.stored_jit
def drawn(key, scale):
    """Draws, a Cholesky factor by LAPACK, and a scale that may have no own dtype."""
    found = scale * jax.random.normal(key, (3,))
    return found, jnp.linalg.cholesky(jnp.eye(3) + found[:, None] * found), 2 * scale


@programs.stored_jit
def with_callback(x):
    """A number that Python computes."""
    return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct((), x.dtype), x)


@programs.stored_jit
def next_key(key):
    """A result that has no shape and dtype of numbers."""
    return jax.random.fold_in(key, 1)


@pytest.fixture
def ours(folder, monkeypatch):
    """Functions of this file count as irtjax's, whose code is in the key."""
    monkeypatch.setattr(programs, "KNOWN", programs.KNOWN | {__name__.split(".")[0]})
    for function in (drawn, with_callback, next_key):
        function.programs.clear()
    return folder


def test_keys_and_numbers_without_a_dtype_are_as_without_storing(ours):
    # A number of Python under jit: its dtype is that of what it is multiplied with.
    scale = jax.jit(lambda: jnp.asarray(2.0, dtype=None) * 1)()
    weak = jax.lax.full((), 2.0)
    for given in (scale, weak, jnp.float32(2)):
        expected = drawn.jitted(jax.random.key(3), given)
        for _ in range(2):
            drawn.programs.clear()  # The second time it is read from the file.
            found = drawn(jax.random.key(3), given)
            for one, other in zip(found, expected, strict=True):
                assert one.dtype == other.dtype and one.weak_type == other.weak_type
                # Two compilations of the same sums of three numbers.
                np.testing.assert_allclose(one, other, rtol=1e-6)
    assert list(ours.iterdir())


def test_machine_code_that_cannot_be_run_is_compiled_again(folder, monkeypatch):
    expected = information()

    def unusable(path):
        def call(arrays):
            raise jax.errors.JaxRuntimeError("NOT_FOUND: a kernel")

        return call

    (path,) = folder.iterdir()
    damaged = path.stat().st_mtime_ns
    group_information.programs.clear()
    monkeypatch.setattr(programs, "load_program", unusable)
    np.testing.assert_array_equal(information(), expected)
    np.testing.assert_array_equal(information(), expected)
    assert path.stat().st_mtime_ns > damaged


def test_programs_of_the_cache_of_jax_are_not_stored(folder, tmp_path):
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "jax"))
    compilation_cache.reset_cache()
    try:
        expected = information()
        (path,) = (x for x in folder.iterdir() if x.is_file())
        path.unlink()
        group_information.programs.clear()
        # Now compiled by JAX's cache: written again, its kernels would be missing.
        np.testing.assert_array_equal(information(), expected)
        assert not path.exists()
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_programs_that_need_more_than_arrays_are_not_stored(ours):
    assert float(with_callback(jnp.ones(()))) == 1.0
    found = next_key(jax.random.key(0))
    assert bool(jnp.all(found == jax.random.fold_in(jax.random.key(0), 1)))
    assert not list(ours.iterdir())
    assert len(with_callback.programs) == 1  # Compiled once all the same.


@pytest.mark.parametrize("given", ["", "off", "OFF", "0"])
def test_the_environment_turns_storing_off(monkeypatch, given):
    monkeypatch.setenv("IRTJAX_CACHE_DIR", given)
    assert programs.cache_folder() is None


def test_the_environment_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("IRTJAX_CACHE_DIR", str(tmp_path))
    assert programs.cache_folder() == tmp_path
    monkeypatch.delenv("IRTJAX_CACHE_DIR")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: "~/.cache/irtjax")
    assert programs.cache_folder() is None  # No home.


def test_a_folder_that_cannot_be_written_is_no_error(folder, tmp_path):
    (tmp_path / "file").write_text("")
    programs.store_in(tmp_path / "file" / "below")
    expected = group_information.jitted(two_parameter(), ITEMS, NODES, CODES, 2)
    np.testing.assert_allclose(information(), expected)
    assert (tmp_path / "file").read_text() == ""


LIBRARY = """
import json, logging, sys
import numpy as np
import irtjax
assert "jax" not in sys.modules
import jax
folder = jax.config.jax_compilation_cache_dir
names = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **more: "backend_compile" in event and names.append(
        more.get("fun_name", ""))
)
right = np.random.default_rng(0).binomial(1, 0.6, (8, 12))
fit = irtjax.fit(irtjax.ResponseTable.from_arrays(right), "2pl", "em")
assert jax.config.jax_compilation_cache_dir == folder
print(json.dumps([names, fit.log_likelihood, fit.items.table.to_pydict()], default=str))
"""


@pytest.mark.slow
def test_a_second_process_compiles_no_fit_from_python(tmp_path):
    found = []
    for cache in ("cache", "cache", "off"):
        done = subprocess.run(
            [sys.executable, "-c", LIBRARY],
            cwd=tmp_path,
            env=os.environ
            | {"IRTJAX_CACHE_DIR": cache if cache == "off" else str(tmp_path / cache)}
            | {"PYTHONPATH": str(Path(programs.__file__).parents[2])}
            | {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(json.loads(done.stdout))
    stored = [path.name for path in (tmp_path / "cache" / "programs").iterdir()]
    assert len(stored) >= 8
    # What is compiled in the second process is single operations.
    assert len(found[1][0]) <= len(found[0][0]) - len(stored)
    assert not any(name.startswith(("run", "begin", "_cov")) for name in found[1][0])
    assert found[0][1:] == found[1][1:]
    # Without storing XLA's own options are used; the fit agrees to its tolerance.
    np.testing.assert_allclose(found[2][1], found[0][1], rtol=1e-6)


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
