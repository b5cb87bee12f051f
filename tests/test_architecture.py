"""The layer order of the package, enforced on the import statements themselves.

A module imports only from its own row of LAYERS and the rows above it, whether at
the top of the file, inside a function or under TYPE_CHECKING; no chain of imports
leads back to where it started; and every top-level name has a row.
"""

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "irtjax"
ROOT = "the public names (__init__)"
# The first path component below the package decides the row.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_backend", "_programs", "_types", "numerics", "transforms"),
    ("data",),
    ("models",),
    ("estimators",),
    (
        *("information", "scoring", "uncertainty", "resampling", "checks", "ranking"),
        *("diagnostics", "validity", "accuracy"),
    ),
    (
        *("anchors", "timing", "length_tables", "score_tables", "calibration"),
        *("calibration_tables", "calibrating"),
        *("structure_layout", "structured_summary", "structured", "prediction"),
        *("posterior", "fit_choices", "fit_defaults", "fit_runs", "fitting"),
        *("storage", "sampling"),
    ),
    ("analysis", "adaptive", "auditing", "verbs"),
    ("report", "plots", "demo"),
    (ROOT,),
    ("cli", "__main__"),
)
ROW = {part: row for row, parts in enumerate(LAYERS) for part in parts}


def module_files(package: Path) -> dict[str, Path]:
    """Dotted module name -> file, for every Python file of the package."""
    files = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        files[".".join(parts)] = path
    return files


def component(module: str) -> str:
    """The part of a module's name that LAYERS speaks of."""
    return (module.split(".") + [ROOT])[1]


def imported_modules(path: Path, package: str, known: Iterable[str]) -> set[str]:
    """Modules of the package that a file names in its import statements.

    `from a.b import c` means the module a.b.c where there is one, else a.b. A relative
    import comes back with its dots, for the caller to refuse.
    """
    known = set(known)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in known else base)
    return {name for name in found if name.split(".")[0] in (package, "")}


def find_cycle(graph: dict[str, set[str]]) -> list[str] | None:
    """One closed chain of imports, first name repeated at its end, or None."""
    done: set[str] = set()

    def visit(node: str, trail: list[str]) -> list[str] | None:
        if node in trail:
            return trail[trail.index(node) :] + [node]
        if node in done:
            return None
        for target in sorted(graph.get(node, ())):
            cycle = visit(target, trail + [node])
            if cycle:
                return cycle
        done.add(node)
        return None

    for start in sorted(graph):
        cycle = visit(start, [])
        if cycle:
            return cycle
    return None


def violations(package: Path) -> list[str]:
    """Every breach of the layer order in a package folder, one line each."""
    files = module_files(package)
    graph: dict[str, set[str]] = {}
    found = []
    for module, path in files.items():
        here = component(module)
        if here not in ROW:
            found.append(f"{module}: no row in LAYERS; give {here!r} its place there")
            continue
        graph[module] = set()
        for target in sorted(imported_modules(path, package.name, files)):
            there = component(target)
            if target.startswith("."):
                found.append(f"{module}: relative import of {target}")
            elif target not in files:
                found.append(f"{module}: imports {target}, which does not exist")
            elif there in ROW and ROW[there] > ROW[here]:
                found.append(f"{module}: imports {target}, from a row below its own")
            else:
                graph[module].add(target)
    parts: dict[str, set[str]] = {}
    for module, targets in graph.items():
        here = component(module)
        parts.setdefault(here, set()).update({component(t) for t in targets} - {here})
    # Two subpackages may be tangled although no two of their modules are.
    cycle = find_cycle(graph) or find_cycle(parts)
    if cycle:
        found.append("import cycle: " + " -> ".join(cycle))
    return found


def test_every_module_keeps_the_layer_order():
    assert "irtjax" in module_files(PACKAGE)
    assert violations(PACKAGE) == []


def write_package(folder: Path, sources: dict[str, str]) -> Path:
    """A small package in which each name.py holds the given source."""
    package = folder / "irtjax"
    for name, source in {"__init__": "", **sources}.items():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return package


def test_a_good_package_has_no_violations(tmp_path):
    package = write_package(
        tmp_path,
        {
            "__init__": "from irtjax.fitting import fit",
            "_types": "import numpy",
            "numerics": "from irtjax._types import Status",
            "models/__init__": "from irtjax.models.logistic import Logistic",
            "models/logistic": "from irtjax import numerics",
            "information": "",
            "scoring": "def f():\n    from irtjax.information import test",
            "fitting": "import irtjax.scoring\nimport irtjax.models.logistic as m",
            "cli": "import irtjax\nfrom irtjax import fit",
            "__main__": "from irtjax.cli import main",
        },
    )
    assert violations(package) == []


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (
            {"data": "import irtjax.models", "models": ""},
            "irtjax.data: imports irtjax.models, from a row below its own",
        ),
        (
            {"numerics": "def f():\n    from irtjax import data", "data": ""},
            "irtjax.numerics: imports irtjax.data, from a row below its own",
        ),
        (
            {
                "models/__init__": "",
                "models/x": "if TYPE_CHECKING:\n    from irtjax.fitting import Fit",
                "fitting": "",
            },
            "irtjax.models.x: imports irtjax.fitting, from a row below its own",
        ),
        (
            {"report": "from irtjax import fit"},
            "irtjax.report: imports irtjax, from a row below its own",
        ),
        (
            {"scoring": "import irtjax.checks", "checks": "import irtjax.scoring"},
            "import cycle: irtjax.checks -> irtjax.scoring -> irtjax.checks",
        ),
        (
            {
                "models/__init__": "from irtjax.models.a import A",
                "models/a": "from irtjax.models import b_of_another_name",
            },
            "import cycle: irtjax.models -> irtjax.models.a -> irtjax.models",
        ),
        (
            {
                "analysis/__init__": "",
                "analysis/a": "import irtjax.adaptive.c",
                "analysis/b": "",
                "adaptive/__init__": "",
                "adaptive/c": "import irtjax.analysis.b",
            },
            "import cycle: adaptive -> analysis -> adaptive",
        ),
        (
            {"utils": ""},
            "irtjax.utils: no row in LAYERS; give 'utils' its place there",
        ),
        (
            {"data/__init__": "from .table import Table", "data/table": ""},
            "irtjax.data: relative import of .table",
        ),
        (
            {"plots": "from irtjax.reports import table"},
            "irtjax.plots: imports irtjax.reports, which does not exist",
        ),
    ],
)
def test_a_bad_package_is_refused(tmp_path, sources, expected):
    assert violations(write_package(tmp_path, sources)) == [expected]
