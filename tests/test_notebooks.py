"""The notebooks run from top to bottom, and print what is stored in them.

Their own assertions compare each result with other code. CI runs all of them.
"""

import json
import re
from pathlib import Path

import pytest

from tests.test_docs import follows
from tools import notebooks

NOTEBOOKS = sorted(notebooks.FOLDER.glob("*.ipynb"))
#: Figures are PNG with few colours, so that a checkout stays small.
MOST_BYTES = 150_000


def stored(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def texts(cell: dict) -> str:
    """What a cell printed, and its result as text."""
    found = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        found.append("".join(output.get("text", data.get("text/plain", ""))))
    return "\n".join(found)


def figures(cell: dict) -> int:
    return sum("image/png" in x.get("data", {}) for x in cell["outputs"])


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_outputs_and_figures(path):
    cells = notebooks.code_cells(stored(path))
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert sum(map(figures, cells)) >= 1
    shown = [cell for cell in cells if re.search(r"print\(", "".join(cell["source"]))]
    assert all(texts(cell).strip() for cell in shown)
    assert path.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_a_page_of_the_site(path):
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert page == f"notebook: {path.name}\n"
    lines = notebooks.notebook_lines(path)
    text = "\n".join(lines)
    cells = notebooks.code_cells(stored(path))
    assert text.count("```python\n") == len(cells)
    assert text.count("<img ") == sum(map(figures, cells))
    assert next(line for line in lines if line).startswith("# ")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_stored(path):
    """`python -m tools.notebooks` stores it."""
    again = notebooks.code_cells(notebooks.run(path))
    for old, new in zip(notebooks.code_cells(stored(path)), again, strict=True):
        assert figures(old) == figures(new)
        missing = follows(texts(old), texts(new))
        assert not missing, f"{path.name}, cell {old['execution_count']}: {missing}"
