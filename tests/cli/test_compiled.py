"""Stored programs are whole or absent, and damaged ones are compiled again."""

import os
import subprocess
import sys
import types

import pytest

from irtjax import _backend
from irtjax.cli import _lacking_space, compiled, machine
from irtjax.cli.compiled import DigestCache, check_entries


def test_a_damaged_program_is_forgotten_and_replaced(tmp_path):
    cache, program = DigestCache(tmp_path), bytes(range(256)) * 4
    assert cache.get("a") is None
    cache.put("a", program)
    assert cache.get("a") == program
    (place,) = tmp_path.iterdir()
    whole = place.read_bytes()
    for damaged in (b"", whole[:10], whole[:-1], bytes(len(whole)), whole[:-1] + b"?"):
        place.write_bytes(damaged)
        assert cache.get("a") is None and not place.exists()
        cache.put("a", program)
        assert cache.get("a") == program


def test_a_program_of_another_key_is_forgotten(tmp_path):
    cache = DigestCache(tmp_path)
    cache.put("a", b"of a")
    (place,) = tmp_path.iterdir()
    cache.put("b", b"of b")
    other = next(x for x in tmp_path.iterdir() if x != place)
    other.write_bytes(place.read_bytes())
    assert cache.get("a") == b"of a"
    assert cache.get("b") is None and not other.exists()


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    cache = DigestCache(tmp_path / "file")
    cache.put("a", b"x")
    assert cache.get("a") is None

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    _backend.replace_file(str(tmp_path / "folder" / "name"), b"x")
    assert list((tmp_path / "folder").iterdir()) == []


def test_jax_reads_and_writes_through_the_digests(tmp_path, monkeypatch):
    from jax._src import compilation_cache

    # Undone after the test.
    monkeypatch.setattr(
        compilation_cache, "get_file_cache", compilation_cache.get_file_cache
    )
    check_entries()
    cache, path = compilation_cache.get_file_cache(str(tmp_path))
    assert isinstance(cache, DigestCache) and path == str(tmp_path)
    cache.put("a", b"x")
    assert cache.get("a") == b"x"


def test_without_a_home_no_folder_is_made(tmp_path, monkeypatch):
    import platformdirs

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda _: "~/.cache/irtjax")
    monkeypatch.setattr(compiled, "check_entries", lambda: pytest.fail("no cache"))
    config = types.SimpleNamespace(jax_compilation_cache_dir=None)
    machine._keep_compiled_code(types.SimpleNamespace(config=config))
    assert list(tmp_path.iterdir()) == []


def test_too_few_addresses_are_refused_in_one_line(tmp_path):
    pytest.importorskip("resource")
    assert _lacking_space() == ""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9));"
        " from irtjax.cli import main; sys.argv = ['irtjax', 'info', 'x']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert "`ulimit -v` allows 1.0 GB of addresses, irtjax needs 3.3" in done.stderr
    assert done.stderr.count("\n") == 1
