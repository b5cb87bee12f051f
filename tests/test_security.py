"""Promises of SECURITY.md that the source can break, and the single version."""

import ast
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import irtjax

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "irtjax").rglob("*.py"))
#: Modules that reach other hosts, start other programs, or run data as code.
MODULES = {"socket", "ssl", "http", "urllib", "requests", "ftplib", "smtplib", "shelve"}
MODULES |= {"marshal", "dill", "cloudpickle", "joblib", "httpx", "aiohttp", "yaml"}
#: What starts a process: the test of jaxlib in a child, and `adapt --run COMMAND`.
STARTS = {"_backend.py": {"subprocess"}, "cli/harness.py": {"subprocess"}}
#: A parent that watches its own process, started with the arguments of the command.
STARTS["cli/distributed.py"] = {"subprocess"}
#: Pickle is written into a hash, and never read.
PICKLERS = {"numerics/programs.py": {"pickle"}}


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def called(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_no_code_from_data_and_no_network():
    assert len(SOURCES) > 100
    for path in SOURCES:
        check_source(path)


def check_source(path):
    name = path.relative_to(ROOT / "irtjax").as_posix()
    tree = ast.parse(path.read_text())
    roots = {module.partition(".")[0] for module in imported(tree)}
    allowed = STARTS.get(name, set()) | PICKLERS.get(name, set())
    assert not (roots & (MODULES | {"subprocess", "pickle"})) - allowed, name
    for function, call in called(tree):
        assert function not in ("eval", "exec", "os.system", "os.popen", "pickle.load")
        assert not function.endswith(("pickle.loads", ".Unpickler", ".read_pickle"))
        given = {word.arg: ast.unparse(word.value) for word in call.keywords}
        assert given.get("shell", "False") == "False"
        if function == "np.load":
            assert given.get("allow_pickle") == "False"


def test_the_version_stands_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited is not None and cited[1] == project["version"]
    assert irtjax.__version__ == version("irtjax")
    written = [p.name for p in SOURCES if f'"{project["version"]}"' in p.read_text()]
    assert written == []
