"""JAX's cache of compiled programs, with a digest in every file.

JAX writes a file of its cache in place and reads it back unchecked. A process that is
killed while it writes leaves a part of a program, which JAX reports in every later run
and never replaces; changed bytes would be executed. Here files appear whole, and one
whose digest is wrong, or that is of another key, is deleted and compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from irtjax._backend import replace_file

_SIZE = hashlib.sha256().digest_size


def check_entries() -> None:
    """Puts the digests into JAX's cache; releases without this place keep their own."""
    with contextlib.suppress(ImportError):
        from jax._src import compilation_cache
        from jax._src.compilation_cache_interface import CacheInterface

        base: Any = CacheInterface

        class Checked(DigestCache, base):
            pass

        if hasattr(compilation_cache, "get_file_cache"):
            compilation_cache.get_file_cache = lambda path: (Checked(path), path)


class DigestCache:
    """Programs by key in the files of a folder, each after its digest."""

    def __init__(self, path: Any) -> None:
        self.path = self._path = Path(path)

    def get(self, key: str) -> bytes | None:
        """The program of a key; None if there is none, or a damaged one."""
        place = self._place(key)
        try:
            content = place.read_bytes()
        except OSError:
            return None
        if _digest(key, content[_SIZE:]) == content[:_SIZE]:
            return content[_SIZE:]
        with contextlib.suppress(OSError):
            place.unlink()
        return None

    def put(self, key: str, value: bytes) -> None:
        """Stores the program of a key, whole or not at all."""
        replace_file(str(self._place(key)), _digest(key, value) + value)

    def _place(self, key: str) -> Path:
        return self.path / f"{key}-checked"


def _digest(key: str, value: bytes) -> bytes:
    """Digest of a program together with its key."""
    return hashlib.sha256(key.encode() + b"\0" + value).digest()
