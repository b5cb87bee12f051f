"""Files of adaptive tests: their form, and the bank that they belong to."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from irtjax.adaptive.labels import LabelledBank
from irtjax.data.writing import atomic_path
from irtjax.storage.plain import plain

FORMAT = "irtjax.adaptive_test"
VERSION = 4


def fingerprint(bank: LabelledBank) -> str:
    """Hash of the names and parameters of a bank."""
    family, arrays = bank.bank.identity()
    digest = hashlib.sha256(json.dumps(bank.names.tolist()).encode())
    if family is not None:
        fields = [str(getattr(family, f.name)) for f in dataclasses.fields(family)]
        digest.update(json.dumps([type(family).__name__, *fields]).encode())
    for leaf in jax.tree.leaves(arrays):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:32]


def write_saved(path: Path, bank: LabelledBank, content: dict[str, Any]) -> None:
    """Writes a test and the fingerprint of its bank, whole or not at all."""
    marks = {"format": FORMAT, "version": VERSION, "bank": fingerprint(bank)}
    document = plain(marks | content)
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_saved(path: Path) -> dict[str, Any]:
    """The content of a saved test; refuses other files and newer forms."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError:
        raise ValueError(f"{path}: it is damaged: not JSON") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path}: it is not a saved adaptive test")
    version = content.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise ValueError(
            f"{path}: a newer irtjax wrote it (form {version}, this one reads up to"
            f" {VERSION}): upgrade irtjax"
        )
    rules = content.get("rules")
    if version < 4 and isinstance(rules, dict) and "score" in rules:
        rules["scoring"] = rules.pop("score")
    return content
