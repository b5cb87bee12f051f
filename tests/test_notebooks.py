"""The notebooks run from top to bottom, without Jupyter, and are stored without output.

Their own assertions are the test: each compares its results with other code.
"""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted(
    (Path(__file__).resolve().parent.parent / "docs" / "notebooks").glob("*.ipynb")
)


def code_cells(path: Path) -> list[dict]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_output(path):
    for cell in code_cells(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    state: dict = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(path)):
        code = compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec")
        exec(code, state)
    assert capsys.readouterr().out
