"""NumPy archives read as plain arrays: no pickle, and no more than a file holds."""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from irtjax.data.files import Unpacked

#: zlib packs zeros to a thousandth; what remains is a bound by the free memory.
_RATIO = 1100
#: What zipfile and the header of an array raise for archives that are altered.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, MemoryError),
    *(SyntaxError, TypeError, KeyError, OverflowError, NotImplementedError),
    tokenize.TokenError,
)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a ``.npz`` file by name.

    Raises:
        ValueError: It cannot be read, an array is no plain one, or it would take more
            memory than the file holds for it.
    """
    unpacked = Unpacked(path, _RATIO)
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise zipfile.BadZipFile(f"{info.filename} is packed differently")
                with archive.open(info) as file:
                    data = unpacked.read(file)
                arrays[info.filename.removesuffix(".npy")] = _array(data, info.filename)
    except _DAMAGE as error:
        raise ValueError(f"{path.name} is damaged or no archive ({error})") from None
    return arrays


def _array(data: bytes, name: str) -> np.ndarray:
    """The array of a member of an archive; refuses pickles and damage."""
    file = io.BytesIO(data)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(np.lib.format.read_magic(file))
    if read is None:
        raise zipfile.BadZipFile(f"{name} has another form")
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise zipfile.BadZipFile(f"{name} is a pickle, which is never opened")
    size = len(data) - file.tell()
    if dtype.kind not in "biufU" or math.prod(shape) * dtype.itemsize != size:
        raise zipfile.BadZipFile(f"{name} is no plain array")
    array = np.frombuffer(data, dtype, offset=file.tell())
    array = array.reshape(shape, order="F" if fortran else "C").copy()
    if dtype.kind == "U" and size:
        codes = array.reshape(-1).view(np.uint32)
        # Halves of surrogate pairs are no characters: no file or terminal takes them.
        if codes.max() > 0x10FFFF or (codes >> 11 == 0xD800 >> 11).any():
            raise zipfile.BadZipFile(f"{name} holds no text")
    return array
