"""Fills blocks of printed text of pages: `python -m tools.printed_blocks PAGE…`.

Runs the code of a page as `tests/test_docs.py` does, and replaces each stretch of a
`text` block by the printed lines that it is found in, so that tables have their
headings and columns. `...` between stretches stays. An empty block gets all that was
printed. A stretch that is not found is named.
"""

import contextlib
import os
import re
import sys
import tempfile
from pathlib import Path

import jax

import irtjax
from irtjax.cli.demo import long_form
from irtjax.storage import write_table
from tests import test_docs as docs


def filled(page: Path) -> str:
    """The text of a page with what its code prints."""
    text = page.read_text(encoding="utf-8")
    state: dict = {"__name__": "__main__"}
    printed, blocks = "", docs.blocks_of(page)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language == "python":
            printed = docs.run_python(block, page, state)
        elif block.language == "sh":
            shown = following is not None and following.language == "text"
            printed = docs.run_shell(block, shown)
        elif block.language == "text":
            new = lines_of(block, printed, page)
            old = f"```text\n{block.code}```"
            text = text.replace(old, f"```text\n{new}```", 1)
    return text


def lines_of(block: docs.Block, printed: str, page: Path) -> str:
    """The block with its stretches as they were printed."""
    printed = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    if not block.code.strip():
        return printed + "\n"
    stretches, at, out = block.code.split("...\n"), 0, []
    ends = [found.span() for found in re.finditer(r"\S+", printed)]
    words = [found[0] for found in re.finditer(r"\S+", printed)]
    for stretch in stretches:
        wanted = stretch.split()
        while at + len(wanted) <= len(words):
            if all(map(docs.same, wanted, words[at : at + len(wanted)])):
                break
            at += 1
        else:
            print(f"{page.name}:{block.line}: not printed: {stretch.strip()[:200]}")
            return block.code
        if wanted:
            first = printed.rfind("\n", 0, ends[at][0]) + 1
            last = printed.find("\n", ends[at + len(wanted) - 1][1] - 1)
            lines = printed[first : last if last >= 0 else None]
            out.append(lines + "\n")
        else:
            out.append("")
        at += len(wanted)
    return "...\n".join(out)


def main() -> None:
    """Rewrites the pages that are named."""
    os.environ["COLUMNS"] = "80"
    # As the tests run them.
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_compilation_cache_dir", str(Path(".cache/jax").resolve()))
    for name in sys.argv[1:]:
        page = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            table = long_form(irtjax.make_demo().table)
            Path("results").mkdir()
            for place in ("results.csv", "results/demo.csv"):
                write_table(table, Path(place))
            text = filled(page)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
