"""A part of the compiler that gives wrong numbers, and what turns it off."""

import importlib.metadata
import os
import subprocess
import sys
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from irtjax import _backend
from irtjax._backend import NEEDS_OPTION, OPTION, RIGHT, UNTESTED

CHECKOUT = Path(__file__).resolve().parent.parent
#: What was wrong: a product with a broadcast operand, added to a sum. In jaxlib 0.10.2
#: it reads memory that nothing was written to, so that it may be right by chance.
PROGRAM = """
import irtjax
import jax, numpy as np
import jax.numpy as jnp
jax.config.update("jax_enable_x64", True)

def product(v, s, theta):
    total = jnp.sum(theta[:, None] * s, axis=1)[None]
    return total + v @ jnp.broadcast_to(s, (181, 30)).T

arrays = np.random.default_rng(0).normal(size=(30, 30)), np.full(30, 0.7)
arrays = *arrays, np.linspace(-6, 6, 181)
wanted = arrays[2].reshape(-1) * 21 + (arrays[0] @ arrays[1])[:, None]
worst = 0
for _ in range(20):
    # NaN counts as infinite.
    error = np.nan_to_num(jax.jit(product)(*arrays) - wanted, nan=np.inf)
    worst = max(worst, np.abs(error).max())
    other = np.full((200, 200), np.nan) @ np.ones((200, 200))
print(worst)
"""

#: A fit that was wrong: its log-likelihood, and the exact one at the same estimates.
FIT = """
import irtjax
import jax, numpy as np
from scipy.stats import multivariate_normal
jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
logits = rng.normal(size=(30, 1)) + np.linspace(-1, 1, 30) + rng.normal(size=(30, 30))
scores = 1 / (1 + np.exp(-logits))
fit = irtjax.fit(irtjax.read(scores), "continuous", standard_errors="none")
names = "discrimination", "intercept", "dispersion"
slope, mean, sd = (fit.items.table[name].to_numpy() for name in names)
# Logits are normal with one common factor.
normal = multivariate_normal(mean, np.outer(slope, slope) + np.diag(sd**2))
exact = normal.logpdf(logits).sum() - np.sum(np.log(scores) + np.log1p(-scores))
print(fit.log_likelihood - exact)
"""


#: A release that needs the option, in tests of the decision.
FAULTY = "8.0"


def run(program, **variables):
    """The output of a program in a new process with the settings of a user."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XLA_", "JAX_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"PYTHONPATH": str(CHECKOUT)} | variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_product_that_was_wrong_is_right_once_irtjax_is_imported():
    assert float(run(PROGRAM, JAX_PLATFORMS="cpu")) < 1e-9


@pytest.mark.slow  # The product above is the part of the fit that was wrong.
def test_a_fit_that_was_wrong_has_the_exact_likelihood():
    # Quadrature is exact to 7e-6 at the widest nodes; the fault costs hundreds.
    assert abs(float(run(FIT, JAX_PLATFORMS="cpu"))) < 1e-4


def test_nothing_is_decided_before_jax_is_imported():
    """The import of irtjax starts no process and leaves no hook behind."""
    program = """
import os, sys
import irtjax, irtjax.cli
from irtjax import _backend
assert not {"jax", "subprocess", "importlib.metadata"} & set(sys.modules)
_backend._recall_or_test = lambda release: _backend.NEEDS_OPTION
os.environ["XLA_FLAGS"] = "--xla_dump_to=x"  # Not lost, although it is set late.
import jax
assert irtjax._BeforeJax not in sys.meta_path
print(os.environ["XLA_FLAGS"])
"""
    assert run(program) == f"--xla_dump_to=x {OPTION}=\n"


def test_an_import_after_jax_decides_at_once():
    program = """
import importlib.metadata, os
import jax
importlib.metadata.version = lambda name: "9.0"
import irtjax
print(os.environ["XLA_FLAGS"])
"""
    # That release is not installed, so no child can test it: the option decides.
    assert run(program) == (f"{OPTION}=\n" if _backend._knows_option() else "\n")


@pytest.fixture
def decide(monkeypatch, tmp_path):
    """Makes the decision as in another process; returns the flags that are set then.

    `decide.statuses` are those of children without and with the option, of the release
    FAULTY that it is wrong without; `decide.children` counts the children.
    """
    cache = tmp_path / "cache"
    monkeypatch.setattr(_backend, "_knows_option", lambda: call.known)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(cache))

    def status(release, flags):
        call.children += 1
        found = (_backend.WRONG_NUMBERS, 0) if release == FAULTY else call.statuses
        return found[flags == f"{OPTION}="]

    monkeypatch.setattr(_backend, "_status_of_child", status)

    def call(before="", release="9.0", started=False, platforms=None):
        monkeypatch.setenv("XLA_FLAGS", before)
        monkeypatch.setattr(importlib.metadata, "version", lambda name: release)
        config = types.SimpleNamespace(jax_platforms=platforms)
        monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(config=config))
        bridge = types.SimpleNamespace(backends_are_initialized=lambda: started)
        monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
        _backend.turn_off_faulty_fusion()
        return os.environ["XLA_FLAGS"]

    call.children, call.statuses, call.cache, call.known = 0, (0, 0), cache, False
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Unless a test expects one.
        yield call


def test_flags_of_the_user_stay(decide, tmp_path):
    assert decide("--xla_a=x", FAULTY) == f"--xla_a=x {OPTION}="
    assert decide(f"{OPTION}=dot", FAULTY) == f"{OPTION}=dot"
    # XLA takes a value without a dash at the beginning for the name of a file.
    (tmp_path / "flags").write_text("--xla_a=x\n", encoding="utf-8")
    assert decide(str(tmp_path / "flags"), FAULTY) == f"--xla_a=x {OPTION}="
    (tmp_path / "flags").write_text(f"{OPTION}=dot\n", encoding="utf-8")
    assert decide(str(tmp_path / "flags"), FAULTY) == str(tmp_path / "flags")
    assert decide("no such file", FAULTY) == "no such file"


def test_a_process_without_the_cpu_is_left_alone(decide, monkeypatch):
    assert decide(release=FAULTY, platforms="cuda") == ""
    assert decide(release=FAULTY, platforms="cuda,cpu") == f"{OPTION}="
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    assert decide(release=FAULTY) == ""
    # What the program chooses counts more than the environment, as in JAX.
    assert decide(release=FAULTY, platforms="cpu") == f"{OPTION}="


def test_without_jaxlib_and_in_the_child_nothing_happens(decide, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setenv("XLA_FLAGS", "")
    with monkeypatch.context() as patch:
        patch.setattr(importlib.metadata, "version", missing)
        _backend.turn_off_faulty_fusion()
    monkeypatch.setenv(_backend.IN_CHILD, "1")
    assert decide() == decide(release=FAULTY) == "" and decide.children == 0


def test_too_late_is_said(decide):
    with pytest.warns(RuntimeWarning, match="before the first array"):
        # The environment is that of processes that this one starts.
        assert decide(release=FAULTY, started=True) == f"{OPTION}="
    decide.statuses = (0, 0)
    assert decide(started=True) == ""  # Right without the option: never too late.


@pytest.mark.parametrize(
    ("without", "with_option", "found", "children"),
    [
        (0, 1, RIGHT, 1),
        (_backend.WRONG_NUMBERS, 0, NEEDS_OPTION, 2),
        (-11, 0, NEEDS_OPTION, 2),  # It crashes without the option,
        (None, 0, NEEDS_OPTION, 2),  # or never ends.
    ],
)
def test_another_release_is_tested_once(decide, without, with_option, found, children):
    decide.statuses = without, with_option
    wanted = f"{OPTION}=" if found == NEEDS_OPTION else ""
    assert decide() == wanted
    assert decide() == wanted and decide.children == children
    (stored,) = (decide.cache / "fusion").iterdir()
    assert stored.read_text(encoding="utf-8") == found
    assert "9.0" in stored.name
    stored.write_text("damaged", encoding="utf-8")
    assert decide() == wanted and decide.children == 2 * children


def test_a_release_that_stays_wrong_is_named_each_time(decide):
    decide.statuses = _backend.WRONG_NUMBERS, -6
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="9.0 computes wrong numbers"):
            assert decide() == ""
    assert decide.children == 2


def test_where_nothing_can_be_tested_the_cure_is_named(decide):
    decide.statuses = None, None
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="test it.*import irtjax, jax"):
            assert decide() == ""  # An option that is unknown would end the process.
    decide.known = True  # Off unless shown right.
    assert decide() == f"{OPTION}="
    assert decide.children == 6 and not decide.cache.exists()


@pytest.mark.slow
def test_the_library_has_the_name_of_an_option_that_it_knows(monkeypatch):
    release = importlib.metadata.version("jaxlib")
    with_option = _backend._status_of_child(release, f"{OPTION}=")
    assert _backend._knows_option() == (with_option == 0)
    monkeypatch.setattr(_backend, "OPTION", "--xla_no_option_of_this_name")
    assert not _backend._knows_option()


def test_a_cache_that_cannot_be_written_costs_time_only(decide, monkeypatch):
    decide.statuses = _backend.WRONG_NUMBERS, 0
    decide.cache.write_text("not a folder", encoding="utf-8")
    assert decide() == decide() == f"{OPTION}=" and decide.children == 4
    # Where the option is known, no process tests: it would in vain for the next.
    decide.known = True
    assert decide() == f"{OPTION}=" and decide.children == 4
    decide.known = False
    # Without a home the folder is relative; nothing is written to the current one.
    monkeypatch.chdir(decide.cache.parent)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: "~/.cache/irtjax")
    assert decide() == f"{OPTION}="
    assert [path.name for path in Path().iterdir()] == ["cache"]


def test_another_cpu_or_release_has_a_result_of_its_own(decide, monkeypatch):
    places = {_backend._place("9.0"), _backend._place("9.1")}
    assert len(places) == 2 and _backend._place("9.0") in places
    monkeypatch.setattr("platform.machine", lambda: "another")
    assert _backend._place("9.0") not in places


def test_first_imports_at_the_same_time(decide):
    place = _backend._place("9.0")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: _backend._recall_or_test("9.0"), range(64)))
    assert set(found) == {RIGHT}
    assert os.listdir(os.path.dirname(place)) == [os.path.basename(place)]


@pytest.mark.parametrize("python", [None, "", "/opt/host", sys.executable + "-no"])
def test_an_interpreter_that_cannot_be_started(monkeypatch, python):
    monkeypatch.setattr(sys, "executable", python)
    assert _backend._status_of_child("9.0", "") is None


def test_a_child_that_never_ends(monkeypatch):
    monkeypatch.setattr(_backend, "TIMEOUT", 0.01)
    assert _backend._status_of_child("9.0", "") is None


def test_the_child_tells_what_the_installed_release_does(monkeypatch):
    release = importlib.metadata.version("jaxlib")
    # What would hide the fault from the child, or stop it, is not handed down.
    monkeypatch.setenv("JAX_DISABLE_JIT", "true")
    monkeypatch.setenv("JAX_PLATFORMS", "none")
    found = _backend._test(release)
    assert found in (RIGHT, NEEDS_OPTION)
    status = _backend._status_of_child
    assert status(release, "--xla_no_option_of_this_name=") not in (0, None)
    assert status("another release", "") == 1
    assert _backend._test("another release") == UNTESTED
