"""Runs the notebooks and stores their outputs: `python -m tools.notebooks [NAME…]`.

Without Jupyter: a cell is Python; what it prints and its last expression are its
outputs. Figures are PNG, results with an HTML form have both forms. The pages of the
site have the same cells (`tools/site_markdown.py`).
"""

import ast
import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "notebooks"
#: Dots per inch of figures.
DPI = 72


def code_cells(content: dict) -> list[dict]:
    """The cells of a notebook that run."""
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, state: dict, name: str) -> list[dict]:
    """Runs a cell and returns its outputs in the format of notebooks."""
    tree, value = ast.parse(source, name), None
    last = (
        tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec", dont_inherit=True), state)
        if last is not None:
            code = compile(ast.Expression(last.value), name, "eval", dont_inherit=True)
            value = eval(code, state)
    outputs = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data = {"metadata": {}, "data": forms_of(value)}
        outputs.append({"output_type": "display_data", **data})
    return outputs


def forms_of(value: Any) -> dict[str, Any]:
    """A value as a notebook shows it."""
    if hasattr(value, "savefig"):
        file = io.BytesIO()
        value.savefig(file, format="png", dpi=DPI, bbox_inches="tight")
        return {
            "image/png": base64.b64encode(_small(file.getvalue())).decode(),
            "text/plain": ["a figure"],
        }
    forms: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        forms["text/html"] = value._repr_html_().splitlines(keepends=True)
    return forms


def _small(picture: bytes) -> bytes:
    """A PNG with a palette of 64 colours."""
    from PIL import Image

    file = io.BytesIO()
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(64)
    image.save(file, format="png", optimize=True)
    return file.getvalue()


def run(path: Path) -> dict:
    """Runs a notebook in an empty folder; returns it with its outputs."""
    content = json.loads(path.read_text(encoding="utf-8"))
    state: dict = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, cell in enumerate(code_cells(content), start=1):
            source = "".join(cell["source"])
            cell["outputs"] = run_cell(source, state, f"{path.name}, cell {number}")
            cell["execution_count"] = number
    return content


def notebook_lines(path: Path) -> list[str]:
    """The cells of a notebook as lines of Markdown."""
    out: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            # Dollars are the formulas of notebooks.
            source = re.sub(r"\$([^$\n]+)\$", r"\\(\1\\)", source)
            out += ["", *source.split("\n")]
        else:
            out += ["", "```python", *source.split("\n"), "```"]
        for output in cell.get("outputs", ()):
            out += ["", *_output_lines(output), ""]
    return out


def _output_lines(output: dict) -> list[str]:
    """What a cell printed, or its result: a figure, a table, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"].split())
        return [f'<img alt="figure" src="data:image/png;base64,{picture}">']
    if "text/html" in data:
        # One block of HTML: an empty line would end it.
        html = "".join(data["text/html"])
        return [f"<div>{' '.join(html.split())}</div>"]
    text = "".join(output.get("text") or data.get("text/plain", ""))
    return ["```text", *text.rstrip("\n").split("\n"), "```"]


def main() -> None:
    """Runs the notebooks that are named, or all, and writes their outputs."""
    os.environ["COLUMNS"] = "80"
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            text = json.dumps(run(path), indent=1, ensure_ascii=False)
            path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
