"""The compiler's fault that wrong numbers came from, and what keeps it off."""

import os
import subprocess
import sys
import warnings

import pytest

from irtjax import _backend

#: What was wrong: a product with a broadcast operand, added to a sum. In jaxlib 0.10.2
#: it reads memory that nothing was written to, so that it fails now and then only.
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
for _ in range(20):
    np.testing.assert_allclose(jax.jit(product)(*arrays), wanted, atol=1e-9)
    other = np.full((200, 200), np.nan) @ np.ones((200, 200))
"""


def test_a_product_that_was_wrong_is_right_once_irtjax_is_imported():
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def flags(monkeypatch):
    """Sets flags and a release, imports nothing, and says what flags there are then."""

    def after(before, release="0.10.2", started=False):
        monkeypatch.setenv("XLA_FLAGS", before)
        monkeypatch.setattr(_backend, "version", lambda _: release)
        bridge = type("Bridge", (), {"backends_are_initialized": lambda: started})
        monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
        _backend.turn_off_faulty_fusion()
        return os.environ["XLA_FLAGS"]

    return after


def test_flags_of_the_user_stay(flags):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert flags("--xla_dump_to=x") == f"--xla_dump_to=x {_backend.OPTION}="
        assert flags(f"{_backend.OPTION}=dot") == f"{_backend.OPTION}=dot"


def test_other_releases_are_left_alone(flags):
    assert flags("", release="0.10.1") == ""


def test_too_late_is_said(flags):
    with pytest.warns(RuntimeWarning, match="before the first array"):
        flags("", started=True)
