"""Files of adaptive tests: their form, and the bank that they belong to."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from irtjax.adaptive.factor_bank import FactorBank
from irtjax.adaptive.factor_errors import SlopeErrors
from irtjax.adaptive.item_bank import ItemBank
from irtjax.adaptive.labels import LabelledBank
from irtjax.data.writing import atomic_path
from irtjax.storage.encoding import plain

FORMAT = "irtjax.adaptive_test"
VERSION = 4


def fingerprint(bank: LabelledBank) -> str:
    """Hash of the names and parameters of a bank."""
    # Not of the tables: another machine may compute them to other last digits.
    parts: Any = bank.bank
    digest = hashlib.sha256(json.dumps(bank.names.tolist()).encode())
    if isinstance(parts, ItemBank | FactorBank):
        family = parts.model.family
        fields = [str(getattr(family, f.name)) for f in dataclasses.fields(family)]
        digest.update(json.dumps([type(family).__name__, *fields]).encode())
        population = parts.mean, parts.sd, getattr(parts, "lengths", None)
        if isinstance(parts, FactorBank):
            population = parts.center, parts.spread, parts.composite
        items = parts.items
        if isinstance(getattr(parts, "errors", None), SlopeErrors):
            # Drawn towards their mean: another machine has other last digits.
            items = jax.tree.map(_rounded, items)
        parts = (items, *population)
        parts += _errors_of(bank.bank)
    for leaf in jax.tree.leaves(parts):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:32]


def _errors_of(bank: Any) -> tuple[np.ndarray, ...]:
    """Errors of the items and the scale of a bank, none of one that has none."""
    found = []
    names = "errors", "moves", "scale", "sampling"
    errors, moves, scale, sampling = (getattr(bank, x, None) for x in names)
    if isinstance(errors, SlopeErrors):
        found.append(np.asarray(errors.blocks, float))
    elif errors is not None:
        # Roots of one covariance may differ in signs between machines.
        root = np.asarray(errors.root, float)
        found += [root @ np.swapaxes(root, 1, 2), np.asarray(errors.identified, float)]
    elif moves is not None:
        rows = np.asarray(moves, float)
        found.append(np.sum(rows**2, axis=1))
    found += [np.asarray(x, float) for x in (scale, sampling) if x is not None]
    return tuple(map(_rounded, found))


def _rounded(values: Any) -> np.ndarray:
    """Without the last digits, which may differ too; no negative zero."""
    return np.round(np.asarray(values, float), 6) + 0.0


def write_saved(path: Path, bank: LabelledBank, content: dict[str, Any]) -> None:
    """Writes a test and the fingerprint of its bank, whole or not at all."""
    marks = {"format": FORMAT, "version": VERSION, "bank": fingerprint(bank)}
    found = plain(marks | content)
    text = json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False)
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
