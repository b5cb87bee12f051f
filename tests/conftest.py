"""Settings shared by all tests: float64 on four CPU devices, and data."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

# Before NumPy is imported: threads of OpenBLAS wait in a loop that takes a core from
# the other workers, and matrices of tests are small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax  # noqa: E402
import pytest  # noqa: E402

CHECKOUT = Path(__file__).resolve().parent.parent
#: XLA's own loops in place of fused kernels, and a program as one piece for LLVM
#: rather than up to 32 to compile side by side: a tenth of the time of all tests each.
#: Moving what is constant out of loops is a sixth of the time of compiling a fit.
QUICK_FLAGS = (
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_disable_hlo_passes=while-loop-invariant-code-motion",
)


def pytest_configure(config: pytest.Config) -> None:
    """Set JAX up before any test module is imported and a backend can start."""
    # Checks against published values and other software need float64; the library
    # itself follows the data, so float32 is tested by passing float32 arrays.
    jax.config.update("jax_enable_x64", True)
    selected = config.getoption("markexpr")
    asked_for_gpu = "gpu" in selected and "not gpu" not in selected
    if not asked_for_gpu:
        # On an H200 (JAX 0.11.2) errors of abilities were wrong by 0.0003 so.
        _compile_fast()
    # Four devices, so that sharded code is tested on every machine.
    jax.config.update("jax_num_cpu_devices", 4)
    if not asked_for_gpu and "JAX_PLATFORMS" not in os.environ:
        # The same results on a machine that happens to have an accelerator.
        jax.config.update("jax_platforms", "cpu")
    _keep_compiled_code(config)
    _share_contexts()
    # Tracing makes tuples by the million and hardly a cycle: at Python's own 700, the
    # search for cycles is a twentieth of the time of all tests.
    gc.set_threshold(50_000, *gc.get_threshold()[1:])


def pytest_collection_finish() -> None:
    """Search no more for cycles in what was imported, which stays to the end."""
    gc.freeze()


#: The files that take longest, to begin with: workers take whole files, and one that
#: begins a long file last keeps the others waiting.
LONG_FILES = (
    "test_maintainer.py",
    "test_docs.py",
    "test_laplace.py",
    "test_mm.py",
    "test_scores.py",
    "test_numpyro_model.py",
    "test_transformations.py",
    "test_covariance_draws.py",
    "test_functional.py",
    "test_distinct_items.py",
    "test_mcmc.py",
    "test_every_fit.py",
    "test_auditing.py",
    "test_counts.py",
    "test_lengths.py",
    "test_multilevel.py",
    "test_saem.py",
    "test_cli.py",
    "test_item_covariance.py",
    "test_em.py",
    "test_lart.py",
    "test_gradient.py",
    "test_bounded.py",
    "test_bootstrap.py",
    "test_rules.py",
    "test_variational.py",
    "test_shrink.py",
    "test_lsat7.py",
    "test_metabench.py",
    "test_priors.py",
    "test_small.py",
    "test_adapt.py",
    # These would be the last of all.
    "test_dimensionality.py",
    "test_stability.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first; within a file, tests stay in their order."""
    place = {name: k for k, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


def _compile_fast() -> None:
    """Have XLA spend half the time on programs that run for a millisecond.

    Compiling is most of the time of these tests. `XLA_FLAGS="" python -m pytest`
    compiles as for users; the docstrings' examples and the experiments always do.
    """
    if "XLA_FLAGS" in os.environ:
        return
    jax.config.update("jax_disable_most_optimizations", True)
    # For processes that tests start, and for the other workers.
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
    # XLA ends a process at a flag that it does not know, and flags come and go.
    flags = {"XLA_FLAGS": " ".join(QUICK_FLAGS)}
    known = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, **flags, "JAX_PLATFORMS": "cpu"},
        stderr=subprocess.DEVNULL,
        check=False,
    )
    os.environ["XLA_FLAGS"] = "" if known.returncode else flags["XLA_FLAGS"]


def _keep_compiled_code(config: pytest.Config) -> None:
    """Let a second run, and the other workers, reuse what was compiled."""
    cache = getattr(config, "cache", None)  # absent under -p no:cacheprovider
    if cache is None:
        return
    # Rewriting the asserts of all files is 8 s in each worker; so are the modules of
    # processes that tests start.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    jax.config.update("jax_compilation_cache_dir", str(cache.mkdir("jax")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


#: Programs that are lowered in one context, which keeps their types and constants.
PROGRAMS_OF_A_CONTEXT = 200


def _share_contexts() -> None:
    """Lower many programs in one MLIR context.

    JAX makes a context for each program, which takes 5 of the 8 ms that an operation on
    arrays of a new shape takes; tests have tens of thousands of such operations.
    """
    from jax._src.interpreters import mlir

    make = getattr(mlir, "make_ir_context", None)
    if make is None:  # Not part of JAX's interface: tests are slower without it.
        return
    own = threading.local()

    def shared():
        if getattr(own, "left", 0) == 0:
            own.context, own.left = make(), PROGRAMS_OF_A_CONTEXT
        own.left -= 1
        return own.context

    mlir.make_ir_context = shared


#: Memory mappings of a process from which compiled programs are dropped. Each program
#: on a CPU takes a dozen or so, and Linux kills a process that asks for 65,530.
MANY_MAPPINGS = 35_000
#: Seconds of tests between looks at the mappings: a look takes up to 25 ms, and
#: nothing compiles more than some hundred programs in that time.
BETWEEN_LOOKS = 5.0
_last_look = time.monotonic()


#: Tests after which a process drops its programs: at the end of a file, since files
#: share few programs and tests of one file many, or after more within a file. JAX
#: keeps the text of up to 2,048 lowered ones, which fill memory and slow the next
#: compilations. With two workers, tests/estimators took 6.6 GB without this.
BETWEEN_FILES, WITHIN_FILE = 50, 200
_num_tests = 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Drop programs now and then, and before mappings of memory run out."""
    global _last_look, _num_tests
    _num_tests += 1
    is_last = nextitem is None or nextitem.path != item.path
    many = _num_tests >= (BETWEEN_FILES if is_last else WITHIN_FILE)
    maps = Path("/proc/self/maps")
    if time.monotonic() - _last_look > BETWEEN_LOOKS and maps.exists():
        with maps.open("rb") as lines:
            many = many or sum(1 for _ in lines) > MANY_MAPPINGS
        _last_look = time.monotonic()
    if many:
        jax.clear_caches()
        _num_tests = 0


@pytest.fixture
def strict_promotion() -> Iterator[None]:
    """Refuse silent dtype promotion (int8 to float, float32 to float64) in a test.

    A fixture and not the rule for all tests: optax, blackjax and numpyro mix dtypes
    inside, so that code that calls them cannot run under it.
    """
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data sets beside the checkout; skips the test when absent."""
    folder = CHECKOUT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the real data sets in {folder}, which are not there")
    return folder


@pytest.fixture(scope="session")
def shared_cases() -> Path:
    """Folder of small inputs that people really have; skips the test when absent."""
    folder = CHECKOUT.parent / "shared" / "cases" / "inputs"
    if not folder.is_dir():
        pytest.skip(f"needs the inputs in {folder}, which are not there")
    return folder


@pytest.fixture
def stores_one_each(tmp_path, monkeypatch):
    """Stores programs; a function that asserts that each of some is stored once."""
    from irtjax.numerics import programs

    monkeypatch.setattr(programs, "_on_one_cpu", lambda: True)
    programs.store_in(tmp_path)
    watched = []

    def watch(*shared):
        for program in shared:
            monkeypatch.setattr(program, "programs", {})
        watched.extend(shared)

    def check():
        assert watched
        assert [len(program.programs) for program in watched] == [1] * len(watched)

    yield watch, check
    programs.store_in(None)
