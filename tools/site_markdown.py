r"""Markdown of the documentation site: formulas, doctests, notebooks.

`zensical.toml` names this file as an extension of Markdown. Browsers typeset MathML
without a script. Formulas are those that `pymdownx.arithmatex` finds, \(...\) in a line
and \[...\] as a block; one that cannot be converted ends the build. In docstrings,
formulas may also be roles and directives of reStructuredText. Lines of a docstring from
`>>>` to the next empty line become a block of code; Markdown alone would read them as
quotations. A line `notebook: NAME.ipynb` becomes the cells of this notebook, with
their outputs and figures.
"""

import re
from html import unescape
from textwrap import dedent
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString
from math_core import LatexToMathML

from tools.notebooks import FOLDER, notebook_lines


class _Formulas(Treeprocessor):
    def run(self, root: Element) -> None:
        convert = LatexToMathML().convert_with_local_state
        for element in root.iter():
            if element.get("class") == "arithmatex" and element.text:
                source = unescape(element.text)
                block = source.startswith(r"\[")
                formula = convert(source[2:-2], displaystyle=block)
                # Kept aside by Markdown, so that nothing in it is escaped again.
                element.text = AtomicString(self.md.htmlStash.store(formula))


_ROLE = re.compile(r":math:`([^`]*)`")
_DIRECTIVE = re.compile(r"^\.\. math::\n\n((?: +\S.*(?:\n|\Z))+)", re.MULTILINE)


_NOTEBOOK = re.compile(r"^notebook: ([\w-]+\.ipynb)$")


class _Notebooks(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        for line in lines:
            found = _NOTEBOOK.match(line)
            out += notebook_lines(FOLDER / found[1]) if found else [line]
        return out


class _Docstrings(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        text = _ROLE.sub(r"\\(\1\\)", "\n".join(lines))
        text = _DIRECTIVE.sub(lambda m: f"\\[\n{dedent(m[1])}\\]\n", text)
        return self.with_doctests(text.split("\n"))

    def with_doctests(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        inside = fenced = False
        for line in lines:
            fenced ^= line.lstrip().startswith("```")
            if not inside and not fenced and line.startswith(">>> "):
                inside = True
                out += ["", "```pycon"]
            elif inside and not line.strip():
                inside = False
                out.append("```")
            out.append(line)
        return [*out, "```"] if inside else out


class SiteMarkdown(Extension):
    """Registers them."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Registers what adds fences before these are read, formulas after all else."""
        md.preprocessors.register(_Notebooks(md), "notebooks", 41)
        md.preprocessors.register(_Docstrings(md), "docstrings", 40)
        md.treeprocessors.register(_Formulas(md), "mathml", -10)


def makeExtension(**options: str) -> SiteMarkdown:
    """Returns the extension, under the name that Markdown looks for."""
    return SiteMarkdown(**options)
