"""The file `report.html`: from a context and data to a page, safe with any text.

All texts pass through Jinja's escaping; the script and the style are allowed by their
hashes alone, so markup that got in as text could not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from irtjax.report import page_data

#: Name of the file.
PAGE = "report.html"
#: Letters of a sentence, which can hold names of any length.
SENTENCE = 2000
#: Files of the template that stand in the page, by the name that the template has. The
#: scripts share one scope, in this order.
_SCRIPTS = ("page", "scores", "compare", "items", "item")
_INLINE = {"script": tuple(f"{x}.js" for x in _SCRIPTS), "style": ("page.css",)}
#: Identifier and name of each section, and what it needs.
_SECTIONS = (
    ("scores", "Scores", "scores"),
    ("tasks", "Tasks", "tasks"),
    ("covariates", "Style", "covariates"),
    ("effects", "Effects", "effects"),
    ("wins", "Wins", "wins"),
    ("read", "Items to read", "read"),
    ("compare", "Compare two", "compare"),
    ("items", "Items", "items"),
    ("subset", "Errors to expect", "subset"),
    ("few", "Fewer items", "few"),
    ("history", "History", "history"),
    ("information", "Information", "information"),
    ("notes", "Notes", None),
)
#: Sections that come first on the page of a test, or of an audit.
_FIRST = {"items": ("read", "items"), "read": ("read",)}


def write_page(path: str | Path, page: str) -> Path:
    """Writes a page as UTF-8, whole or not at all, and returns its path."""
    from irtjax.data.writing import atomic_path

    path = Path(path)
    with atomic_path(path) as place:
        place.write_bytes(page.encode("utf-8", "replace"))
    return path


def render(context: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """Returns the page of a context for the template, and of data for the script."""
    import jinja2
    from markupsafe import Markup

    folder = Path(__file__).parent / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder, encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.Undefined,
        trim_blocks=True,
    )
    environment.filters["breakable"] = breakable
    content = {"digits": page_data.DIGITS, **content}
    parts = {name: _hashed(*files) for name, files in _INLINE.items()}
    inline = {
        name: {"text": Markup(text), "hash": digest}
        for name, (text, digest) in parts.items()
    }
    first = _FIRST.get(str(context.get("first")), ())
    order = sorted(_SECTIONS, key=lambda one: one[0] not in first)
    named = {"tasks": context.get("tasks_heading")}
    sections = [
        (one, named.get(one) or name)
        for one, name, needed in order
        if needed is None or context.get(needed)
    ]
    template = environment.get_template("page.html")
    return template.render(
        this={"notes": [], **context},
        **context,
        **inline,
        sections=sections,
        data=Markup(json_text(content)),
        version=version_of_irtjax(),
    )


def breakable(text: str) -> Any:
    """A name with places where a line may end, escaped.

    >>> str(breakable("a_<b>/c"))
    'a_<wbr>&lt;b&gt;/<wbr>c'
    """
    from markupsafe import Markup, escape

    safe = str(escape(text))
    for letter in "_/":
        safe = safe.replace(letter, f"{letter}<wbr>")
    return Markup(safe)


@cache
def _hashed(*names: str) -> tuple[str, str]:
    """Inline files as one, and the source expression that allows it."""
    folder = Path(__file__).parent / "templates"
    lines = []
    for name in names:
        lines += (folder / name).read_text(encoding="utf-8").splitlines()
    # Without indentation and comments: a tenth of a small page.
    code = [x for line in lines if (x := line.strip()) and not x.startswith("//")]
    if names[0].endswith(".js"):
        code = ['"use strict"; (() => {', *code, "})();"]
    text = "\n".join(code) + "\n"
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"sha256-{digest}"


def json_text(content: Any) -> str:
    r"""Returns JSON that can stand in a script element, whatever its texts are.

    >>> json_text({"a": "</script>&\u2028"})
    '{"a":"\\u003c/script\\u003e\\u0026\\u2028"}'
    """
    text = json.dumps(
        content, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def version_of_irtjax() -> str:
    """The version that writes the page; or "0+unknown" of a checkout."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("irtjax")
    except PackageNotFoundError:
        return "0+unknown"


def now() -> str:
    """The time, for the page."""
    import datetime

    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
