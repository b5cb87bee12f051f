"""The order of the package's folders, enforced on the import statements themselves.

The table of folders in `docs/architecture.md` is the order. A module imports only from
its own row of the table and the rows above it, whether at the top of the file, inside a
function, under TYPE_CHECKING or by its name in a string. No chain of imports leads back
to where it started, and every top-level name has a row. What the page says of files and
types is checked too.
"""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "irtjax"
PAGE = CHECKOUT / "docs" / "architecture.md"
#: The row of the public names, which are in the package's own `__init__`.
ROOT = "__init__"


def table_of(page: Path, heading: str) -> list[list[str]]:
    """Cells of the table of a page whose first column has a heading."""
    lines = page.read_text(encoding="utf-8").splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def code_in(text: str) -> list[str]:
    """What a text sets in code type, outside blocks."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


#: The first path component below the package decides the row.
LAYERS = [tuple(code_in(cells[0])) for cells in table_of(PAGE, "folder")]
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
    """The part of a module's name that the table of folders lists."""
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


def named_modules(path: Path, known: Iterable[str]) -> set[str]:
    """Modules whose names are strings of a file, as `import_module` takes them.

    A name of a class behind a colon is left out, as in "a.b:C".
    """
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    values = {node.value for node in nodes if isinstance(node, ast.Constant)}
    texts = {text.partition(":")[0] for text in values if isinstance(text, str)}
    return texts & set(known)


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
            found.append(f"{module}: no row in {PAGE.name}; give {here!r} its place")
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
        # No part of the chains: a catalogue loads what it names when it is used.
        for target in sorted(named_modules(path, set(files) - {package.name})):
            if ROW.get(component(target), 0) > ROW[here]:
                found.append(f"{module}: names {target}, from a row below its own")
    parts: dict[str, set[str]] = {}
    for module, targets in graph.items():
        here = component(module)
        parts.setdefault(here, set()).update({component(t) for t in targets} - {here})
    # Two subpackages may be tangled although no two of their modules are.
    cycle = find_cycle(graph) or find_cycle(parts)
    if cycle:
        found.append("import cycle: " + " -> ".join(cycle))
    return found


def test_every_module_keeps_the_order_of_folders():
    assert "irtjax" in module_files(PACKAGE)
    assert violations(PACKAGE) == []


def test_capabilities_are_not_tests_of_classes():
    """What a method, model or family can do is a method or field of its class."""
    asked = re.compile(r"isinstance\((\w+\.)*(family|method), (?!str|type)")
    found = []
    for folder in ("fitting", "calibration"):
        for path in sorted((PACKAGE / folder).glob("*.py")):
            lines = path.read_text(encoding="utf-8").splitlines()
            found += [f"{path.name}: {x.strip()}" for x in lines if asked.search(x)]
    assert found == []


def count_matches(pattern: str) -> dict[str, int]:
    """Lines of the package that match a pattern, by file; none is left out."""
    counts = {
        path.relative_to(PACKAGE).as_posix(): len(
            re.findall(pattern, path.read_text(encoding="utf-8"))
        )
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    return {file: count for file, count in counts.items() if count}


def test_few_places_ask_which_parts_a_result_has():
    """Objects answer by methods: a part, a table or a model that lacks it is neutral.

    The limit is of lines outside the parts themselves.
    """
    asked = count_matches(r"\.(?:structure|factors|lengths|groups) is (?:not )?None")
    others = {k: n for k, n in asked.items() if not k.startswith("calibration/parts/")}
    assert sum(others.values()) <= 20, others


def test_few_files_ask_for_the_number_of_abilities():
    """Families have it; others ask for shapes, or a model whether it has several."""
    assert len(count_matches(r"\.dims\b")) <= 4


def test_the_table_lists_every_folder_once_and_no_other():
    listed = [part for parts in LAYERS for part in parts]
    assert len(listed) == len(set(listed))
    assert set(listed) == {component(module) for module in module_files(PACKAGE)}


def test_every_type_is_in_the_file_that_the_page_names():
    rows = table_of(PAGE, "type")
    assert len(rows) > 9
    for name, file, _ in rows:
        (name,), (file,) = code_in(name), code_in(file)
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        classes = {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
        assert name in classes, f"{file} has no class {name}"


def test_every_file_that_a_page_names_exists():
    pages = [PAGE, CHECKOUT / "CONTRIBUTING.md"]
    pages += sorted((CHECKOUT / "docs" / "evidence").glob("*.md"))
    folders = [CHECKOUT, PACKAGE, *PACKAGE.glob("*/")]
    for page in pages:
        for name in code_in(page.read_text(encoding="utf-8")):
            is_file = re.fullmatch(r"[\w./-]*\.(py|md)|[\w./-]+/", name)
            if is_file and name != "leaderboard.md":  # Which a fit writes.
                found = any((folder / name).exists() for folder in folders)
                assert found, f"{page.name} names {name}, which does not exist"


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
            "inference": "def f():\n    from irtjax.models import test",
            "fitting": "import irtjax.inference\nimport irtjax.models.logistic as m",
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
            {"models": 'HOMES = {"fit": "irtjax.fitting:fit"}', "fitting": ""},
            "irtjax.models: names irtjax.fitting, from a row below its own",
        ),
        (
            {"report": "from irtjax import fit"},
            "irtjax.report: imports irtjax, from a row below its own",
        ),
        (
            {
                "inference/__init__": "",
                "inference/a": "import irtjax.inference.b",
                "inference/b": "import irtjax.inference.a",
            },
            "import cycle: irtjax.inference.a -> irtjax.inference.b"
            " -> irtjax.inference.a",
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
                "numerics/__init__": "",
                "numerics/a": "import irtjax._types.c",
                "numerics/b": "",
                "_types/__init__": "",
                "_types/c": "import irtjax.numerics.b",
            },
            "import cycle: _types -> numerics -> _types",
        ),
        (
            {"utils": ""},
            "irtjax.utils: no row in architecture.md; give 'utils' its place",
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
