"""Writes the pages of the API, one for each module: `python -m tools.api_pages`.

`docs/api.md` lists every public name with its page. A page lists the names of its
module with the first sentence of their docstrings, then the docstrings themselves
(mkdocstrings). `tests/test_docs.py` fails where pages are not those that this writes.
"""

import importlib
import inspect
import re
from pathlib import Path

import irtjax

DOCS = Path(__file__).resolve().parent.parent / "docs"
#: Names that are documented where they are defined, by module.
MORE = {
    "adaptive": ["adaptive.study.StudyRules"],
    "calibration": ["calibration.rank.RankedSubjects"],
    "fitting": ["fitting.settings.Settings"],
    "models": ["models.multilevel.specification.AbstractMultilevel", "models.priors"],
    "estimators": [
        "estimators.ascent.AbstractIteration",
        "estimators.ascent.Ascent",
        "estimators.ascent.Image",
        "estimators.posterior",
    ],
    "harness": ["harness.inspect", "harness.inspect_samples", "harness.lm_eval"],
    "report": ["report.page.PageOptions"],
    "storage": ["storage.to_arviz"],
    "subsets": ["subsets.pool.SubsetSettings"],
    "validity": ["validity.recovery"],
}
#: Modules that are for the package itself.
INTERNAL = {"numerics"}
#: Where a name without a module of `irtjax` belongs.
HOMES = {"_types": "estimators", "likelihood": "estimators"}


def sentence(value: object) -> str:
    """The first sentence of a docstring, for a cell of a table."""
    if isinstance(value, dict):
        return "Names, and what each stands for"
    text = inspect.getdoc(value) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    first = re.sub(r":math:`([^`]*)`", r"\1", re.split(r"(?<=\.) ", first)[0])
    return first.rstrip(".:").replace("|", r"\|")


def members(module: str) -> dict[str, object]:
    """Public names of a module, as dotted names after `irtjax.`, with their objects."""
    found: dict[str, object] = {}
    for name, home in irtjax._HOMES.items():
        folder = home.split(".")[0]
        if HOMES.get(folder, folder) == module:
            found[name] = getattr(irtjax, name)
    loaded = importlib.import_module(f"irtjax.{module}")
    for name in getattr(loaded, "__all__", ()):
        value = getattr(loaded, name)
        known = any(value is x for x in found.values())
        if not known and callable(value):
            found[f"{module}.{name}"] = value
    for name in MORE.get(module, ()):
        folder, _, last = name.rpartition(".")
        parent = importlib.import_module(f"irtjax.{folder}")
        found[name] = getattr(parent, last, None) or importlib.import_module(
            f"irtjax.{name}"
        )
    return found


def pages() -> dict[Path, str]:
    """The text of every page."""
    index = [
        "# API",
        "",
        "Look up every public function and class, by module. Names without a module"
        " are of the package itself, such as `irtjax.fit`. Shapes have one vocabulary:"
        " subjects, items, dims, nodes, observations, draws.",
        "",
        "| module | names |",
        "|---|---|",
    ]
    found = {}
    for module in irtjax._MODULES:
        if module in INTERNAL:
            continue
        names = members(module)
        path = DOCS / "api" / f"{module}.md"
        links = [f"[`{x}`](api/{module}.md#irtjax.{x})" for x in names]
        index.append(f"| [{module}](api/{module}.md) | {', '.join(links)} |")
        about = sentence(importlib.import_module(f"irtjax.{module}"))
        lines = [f"# irtjax.{module}", "", f"{about}.", "", "| name | what it is |"]
        lines += ["|---|---|"]
        lines += [f"| [`{x}`](#irtjax.{x}) | {sentence(v)} |" for x, v in names.items()]
        lines += [""] + [f"::: irtjax.{name}" for name in names]
        found[path] = "\n".join(lines) + "\n"
    found[DOCS / "api.md"] = "\n".join(index) + "\n"
    return found


if __name__ == "__main__":
    for place, text in pages().items():
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, encoding="utf-8")
