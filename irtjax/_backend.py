"""The machine: its cores, and a part of its compiler that may give wrong numbers.

Since jaxlib 0.10.2 XLA fuses matrix products and sums on a CPU, with the operations
around them, into kernels of the library YNNPACK. Some of these kernels are wrong: a
product with a broadcast operand, added to a sum, is NaN or another number at each call,
and so is `irtjax.fit` of 30 subjects and 30 scores (see also github.com/jax-ml/jax,
issues 39103 and 39257). An option of XLA turns this fusion off.

XLA reads its options once, when JAX starts, and ends the process at an unknown option.
So the decision is made when JAX is imported, and not before: `import irtjax` and
`irtjax --help` stay quick. Each release of jaxlib is tested once, in a child process
that runs this file, and the result is stored in the user's cache folder. The fusion
stays on only in releases that are shown to be right.
"""

from __future__ import annotations

import os
import sys

#: The kinds of operations that are fused; none, if empty.
OPTION = "--xla_cpu_experimental_ynn_fusion_type"
#: Set in the child process, which must not start a child of its own.
IN_CHILD = "IRTJAX_TESTS_JAXLIB"
#: Exit status of the child when the numbers are wrong.
WRONG_NUMBERS = 97
#: Seconds for a child: a wrong kernel may never end.
TIMEOUT = 60
#: A release is right as it is, right with the option, or wrong with it too; or the test
#: could not run, which is not stored.
RIGHT, NEEDS_OPTION, WRONG, UNTESTED = "right", "needs option", "wrong", "untested"


def num_cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def turn_off_faulty_fusion() -> None:
    """Adds the option to `XLA_FLAGS` unless jaxlib is right without it.

    The user's own setting of the option is kept. A process that does not compute on a
    CPU is left alone, for its accelerator may come with another XLA. A RuntimeWarning
    is given if numbers may be wrong: JAX has started without the option, the option
    does not help, or jaxlib could be neither tested nor found to know the option.
    """
    import warnings
    from importlib.metadata import PackageNotFoundError, version

    try:
        flags, release = _flags(), version("jaxlib")
    except (OSError, ValueError, PackageNotFoundError):
        return  # XLA ends the process at a file of flags that it cannot read.
    if OPTION in flags or IN_CHILD in os.environ or not _computes_on_cpu():
        return
    verdict = _recall_or_test(release)
    if verdict == UNTESTED and _knows_option():
        verdict = NEEDS_OPTION
    if verdict == NEEDS_OPTION:
        os.environ["XLA_FLAGS"] = f"{flags} {OPTION}=".strip()
        if not has_started():
            return
    texts = {
        NEEDS_OPTION: "may compute wrong numbers on a CPU, and JAX had started before"
        " irtjax could turn the faulty part off: import irtjax before the first array"
        f" is made, or set XLA_FLAGS={OPTION}= in the environment",
        WRONG: f"computes wrong numbers on this CPU, and XLA's option {OPTION}= does"
        " not help: install another release of jax and jaxlib",
        UNTESTED: "may compute wrong numbers on a CPU, and irtjax could not test it in"
        " a child process: run `python -c 'import irtjax, jax'` once in a terminal,"
        " which stores the result of the test",
    }
    if verdict in texts:
        text = f"jaxlib {release} {texts[verdict]}"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def has_started() -> bool:
    """Whether JAX has started a backend, so that its platform is chosen.

    JAX has no public function for this. Where the name is missing, the answer is False.
    """
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "backends_are_initialized", lambda: False)())


def _flags() -> str:
    """`XLA_FLAGS`, or the content of the file that it names instead."""
    flags = os.environ.get("XLA_FLAGS", "").strip()
    if not flags or flags.startswith("-"):
        return flags
    with open(flags, encoding="utf-8") as file:
        return file.read().strip()


def _computes_on_cpu() -> bool:
    """Whether JAX may use the CPU, by its settings so far."""
    config = getattr(sys.modules.get("jax"), "config", None)
    chosen = getattr(config, "jax_platforms", None) or os.environ.get("JAX_PLATFORMS")
    return not chosen or "cpu" in chosen.split(",")


def _recall_or_test(release: str) -> str:
    """The cached verdict on a release on this CPU, or a new test of it."""
    import contextlib

    place = _place(release)
    with (
        contextlib.suppress(OSError, ValueError),
        open(place, encoding="utf-8") as file,
    ):
        verdict = file.read()
        if verdict in (RIGHT, NEEDS_OPTION, WRONG):
            return verdict
    if not _can_store(place) and _knows_option():
        return NEEDS_OPTION  # A test in every process would take seconds each.
    verdict = _test(release)
    if verdict != UNTESTED:
        replace_file(place, verdict.encode())
    return verdict


def _knows_option() -> bool:
    """Whether XLA has the option: its name is in jaxlib's libraries."""
    import contextlib
    import mmap
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("jaxlib")
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder).glob("*"):
            if path.suffix not in (".so", ".pyd", ".dll", ".dylib"):
                continue
            with (
                contextlib.suppress(OSError, ValueError),
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            ):
                if content.find(OPTION.lstrip("-").encode()) >= 0:
                    return True
    return False


def _place(release: str) -> str:
    """The file with the result for this release and CPU; "" without a cache folder."""
    import hashlib
    import platform

    from platformdirs import user_cache_dir

    kind = "\n".join((release, sys.platform, platform.machine(), processor()))
    name = f"jaxlib-{release}-{hashlib.sha256(kind.encode()).hexdigest()[:16]}"
    folder = user_cache_dir("irtjax")  # Relative where the user has no home.
    return os.path.join(folder, "fusion", name) if os.path.isabs(folder) else ""


def processor() -> str:
    """The system's description of the processor, the same in every run."""
    import platform

    try:
        # The first processor's lines, without those that change from run to run.
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            first = "".join(iter(lines.readline, "\n")).splitlines()
        return "".join(x for x in first if "MHz" not in x and "bogomips" not in x)
    except OSError:
        return platform.processor()


def replace_file(place: str, content: bytes) -> None:
    """Writes a complete file of the cache, or nothing if that fails."""
    import contextlib
    import tempfile

    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(place))
        try:
            with open(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, place)
        except OSError:  # A full disk must not fill up further.
            os.unlink(temporary)


def _can_store(place: str) -> bool:
    """Whether a file of the cache can be written, its folders made on the way."""
    folder = os.path.dirname(place)
    while folder and not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK)


def _test(release: str) -> str:
    """Tests a release in child processes, without the option and then with it."""
    without = _status_of_child(release, "")
    if without == 0:
        return RIGHT
    with_option = _status_of_child(release, f"{OPTION}=")
    if with_option == 0:
        return NEEDS_OPTION
    return WRONG if WRONG_NUMBERS in (without, with_option) else UNTESTED


def _status_of_child(release: str, flags: str) -> int | None:
    """Exit status of this file run by the same Python; None if it cannot be run."""
    import subprocess

    # An interpreter that is embedded in another program has that program's name.
    python = sys.executable or ""
    if not os.path.basename(python).lower().startswith(("python", "pypy")):
        return None
    inherited = {
        k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))
    }
    ours = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, IN_CHILD: "1"}
    arguments = [python, "-P", __file__, release, *map(str, sys.path)]
    silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        return subprocess.call(
            arguments, env=inherited | ours, timeout=TIMEOUT, **silent
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def products_are_right() -> bool:
    """Whether JAX computes products that faulty releases of jaxlib get wrong."""
    import jax
    import numpy as np

    jnp = jax.numpy

    @jax.jit
    def with_sum(v, s, theta):
        total = jnp.sum(theta[:, None] * s, axis=1)[None]
        return total + v @ jnp.broadcast_to(s, (181, 30)).T

    @jax.jit
    def with_squares(rows, matrix):
        return jax.vmap(lambda row: jnp.sum(jnp.square(matrix @ row)))(rows)

    rng = np.random.default_rng(0)
    v, rows = rng.normal(size=(30, 30)), rng.normal(size=(40_000, 3))
    s, theta, matrix = np.full(30, 0.7), np.linspace(-6, 6, 181), np.diag([1, 2, 3.0])
    sums = theta * 21 + (v @ s)[:, None]
    squares = np.sum((rows @ matrix) ** 2, axis=1)
    # A wrong kernel reads memory that nothing was written to. Its number may be right
    # by chance, so it runs five times, and NaN is written to memory that is freed.
    for _ in range(5):
        pairs = (with_sum(v, s, theta), sums), (with_squares(rows, matrix), squares)
        # Single precision is right to 1e-5 of these numbers, which reach 200.
        if not all(np.allclose(a, b, rtol=1e-4, atol=1e-2) for a, b in pairs):
            return False
        _ = np.full((200, 200), np.nan) @ np.ones((200, 200))
    return True


if __name__ == "__main__":
    from importlib.metadata import version

    release, sys.path[:] = sys.argv[1], sys.argv[2:]
    if version("jaxlib") != release:
        sys.exit(1)
    sys.exit(0 if products_are_right() else WRONG_NUMBERS)
