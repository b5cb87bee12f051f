"""The documentation runs: every block of code, and what it prints.

On a page, Python blocks share one state and one folder, in which `results.csv` and
`results/` hold the responses of `irtjax demo`. Of a shell block, the lines that
call `irtjax` run in this process. A block marked `text` is the output of the block
above it: its words must follow in the same order, its numbers agree up to two units
of the last digit shown (one where it is a whole number), and a line "..." stands for
anything.
"""

import ast
import contextlib
import dataclasses
import inspect
import io
import re
import shlex
import tokenize
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import irtjax
from irtjax._types import Status
from irtjax.calibration import flags
from irtjax.cli.app import app
from irtjax.cli.demo import long_form
from irtjax.data.reading.options import CHOICES, FORMATS, ReadOptions
from irtjax.fitting.settings import Settings
from irtjax.inference import KINDS, ScoreFlag
from irtjax.inference import METHODS as SCORES
from irtjax.storage import FIT_FILES, STRUCTURE_FILES, write_table
from tests.tables import ALL_PAIRS, refusal
from tools import api_pages

CHECKOUT = Path(__file__).resolve().parent.parent
DOCS = CHECKOUT / "docs"
PAGES = [CHECKOUT / "README.md", *sorted(DOCS.rglob("*.md"))]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(-?\d[\d,]*(?:\.\d+)?)")


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    code: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start(2)))
        for found in _FENCE.finditer(text)
    ]


def commands_of(code: str) -> list[list[str]]:
    lines = code.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[1:] for line in words if line[:1] == ["irtjax"]]


def run_python(block: Block, page: Path, state: dict) -> str:
    # Blank lines in front, so that a traceback names the line of the page.
    source = "\n" * block.line + block.code
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, str(page), "exec", dont_inherit=True), state)
    return out.getvalue()


def run_shell(block: Block, shown: bool) -> str:
    out = ""
    for arguments in commands_of(block.code):
        # Nobody watches.
        arguments = arguments if shown else [*arguments, "--quiet"]
        result = CliRunner().invoke(app, arguments, prog_name="irtjax")
        refused = result.exit_code == 2 and result.stderr.startswith("irtjax: ")
        assert result.exit_code == 0 or refused, (arguments, result.stderr)
        out += result.stdout + (result.stderr if refused else "")
    return out


def same(shown: str, printed: str) -> bool:
    """Whether a word of a page is the word printed, numbers up to rounding."""
    parts, others = _NUMBER.split(shown), _NUMBER.split(printed)
    if len(parts) != len(others):
        return False
    for place, (part, other) in enumerate(zip(parts, others, strict=True)):
        if place % 2 == 0:
            if part != other:
                return False
            continue
        decimals = len(part.partition(".")[2])
        slack = 2.01 * 10**-decimals if decimals else 1
        if abs(float(part.replace(",", "")) - float(other.replace(",", ""))) > slack:
            return False
    return True


def layout(text: str) -> tuple[list[str], list[bool]]:
    """The words of a text, and whether what is between them separates columns."""
    parts = re.split(r"(\s+)", text.strip())
    return parts[::2], ["\n" not in gap and len(gap) > 1 for gap in parts[1::2]]


def follows(shown: str, printed: str) -> str:
    """Returns the first stretch of what a page shows that was not printed, or ""."""
    (words, gaps), at = layout(printed), 0
    for stretch in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE):
        wanted, between = layout(stretch)
        size = len(wanted) if stretch.strip() else 0
        while at + size <= len(words):
            alike = all(map(same, wanted[:size], words[at : at + size]))
            if alike and between == gaps[at : at + max(size - 1, 0)]:
                break
            at += 1
        else:
            return stretch.strip()
        at += size
    return ""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder but for the responses of the demonstration."""
    table = long_form(irtjax.make_demo().table)
    (tmp_path / "results").mkdir()
    for place in ("results.csv", "results/demo.csv"):
        write_table(table, tmp_path / place)
    monkeypatch.chdir(tmp_path)
    return tmp_path


RUNNABLE = [
    page
    for page in PAGES
    if any(
        b.language == "python" or (b.language == "sh" and commands_of(b.code))
        for b in blocks_of(page)
    )
]


#: Pages whose code compiles for long; the others show what a new user tries first.
LONG = {
    "adaptive",
    "adaptive-costs",
    "adaptive-misfit",
    "adaptive-several",
    "audit-tests",
    "bayes",
    "bootstrap",
    "clusters",
    "continuous",
    "convergence",
    "estimators",
    "extend-methods",
    "factors",
    "functional",
    "functional-recipes",
    "harness",
    "inside-your-own-jit",
    "joint",
    "joint-estimation",
    "joint-bias",
    "large-data",
    "latency",
    "multilevel",
    "model-fit",
    "multilevel-estimation",
    "neural",
    "new-models",
    "numpyro",
    "posterior-checks",
    "relatives",
    "scaling",
    "uncertainty",
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow) if page.stem in LONG else page
        for page in RUNNABLE
    ],
    ids=lambda page: page.stem,
)
def test_every_block_of_a_page_runs_and_prints_what_it_says(page, folder):
    state: dict = {"__name__": "__main__"}
    printed = ""
    blocks = blocks_of(page)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language == "python":
            printed = run_python(block, page, state)
        elif block.language == "sh":
            shown = following is not None and following.language == "text"
            printed = run_shell(block, shown)
        elif block.language == "text":
            missing = follows(block.code, printed)
            assert not missing, f"{page.name}:{block.line}: not printed:\n{missing}"


def test_the_comparison_of_outputs_can_fail():
    assert follows("a 1.50\n...\nz", "a 1.51 b c z") == ""
    assert follows("a 1.50", "a 1.53") == "a 1.50"
    assert follows("1,341 pairs", "1,345 pairs") == "1,341 pairs"
    assert follows("b\n...\na", "a b") == "a"
    assert follows("a b", "a  b") == "a b"  # Columns of a table are kept,
    assert follows("a  b", "a   b") == follows("...\nb\n...", "a b c") == ""
    assert follows("a\nb", "a b") == follows("a b", "a\nb") == ""  # not lines.


def test_the_readme_has_two_set_up_commands():
    lines = [
        line
        for block in blocks_of(CHECKOUT / "README.md")
        for line in block.code.splitlines()
        if "venv" in line
    ]
    assert [line.split(" && ")[-1].split()[:2] for line in lines] == [
        [".venv/bin/irtjax", "demo"],
        [".venv/bin/python", "-m"],
    ]
    assert not any(line.endswith("\\") for line in lines)


def test_links_and_pictures_exist():
    for page in [*PAGES, CHECKOUT / "CONTRIBUTING.md"]:
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" not in target and not target.startswith("#"):
                path = page.parent / target.partition("#")[0]
                assert path.exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_navigation():
    text = (CHECKOUT / "zensical.toml").read_text(encoding="utf-8")
    listed = set(re.findall(r'= "([\w/-]+\.md)"', text))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} == listed


def test_every_public_name_is_in_the_reference():
    text = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    public = {n for n in irtjax.__all__ if not inspect.ismodule(getattr(irtjax, n))}
    assert public - set(re.findall(r"^::: irtjax\.(\w+)$", text, re.M)) == set()


def test_pages_of_the_api_are_those_of_the_generator():
    """`python -m tools.api_pages` writes them."""
    pages = api_pages.pages()
    assert {page for page in pages if page.parent.name == "api"} == {
        *(DOCS / "api").glob("*.md")
    }
    for page, text in pages.items():
        written = page.read_text(encoding="utf-8")
        assert written == text, f"{page.name}: run `python -m tools.api_pages`"


def test_the_reference_lists_every_setting():
    listed: dict[type, set[str]] = {Settings: set(Settings.__annotations__)}
    for kind in (irtjax.NUTS, irtjax.Variational):
        listed[kind] = {field.name for field in dataclasses.fields(kind)}
    for kind, names in listed.items():
        text = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")[2]
        assert names == set(re.findall(r"^ {4}(\w+):", text, re.M)), kind


def test_pages_are_short():
    for page in [CHECKOUT / "CONTRIBUTING.md", *PAGES]:
        lines = page.read_text(encoding="utf-8").count("\n")
        assert lines <= 150, (page.name, lines)


def names_in(page: str) -> set[str]:
    """What a page sets in code type outside blocks."""
    text = _FENCE.sub("", (DOCS / page).read_text(encoding="utf-8"))
    return set(re.findall(r"`([^`\n]+)`", text))


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("models.md", irtjax.MODELS),
        ("reading-data.md", FORMATS),
        ("reading-data.md", ReadOptions.__dataclass_fields__),
        (
            "reading-data.md",
            [f'"{x}"' for name, xs in CHOICES.items() for x in xs if name != "format"],
        ),
        ("convergence.md", [status.name for status in Status]),
        ("convergence.md", flags.MEANING),
        ("uncertainty.md", [*KINDS, *SCORES]),
        ("uncertainty.md", [f.explain() for f in ScoreFlag if f]),
        ("cli-fit.md", [*FIT_FILES, *STRUCTURE_FILES]),
    ],
)
def test_a_page_names_everything_there_is(page, names):
    assert set(names) - names_in(page) == set()


def test_the_table_of_estimators_states_which_method_fits_which_model():
    text = (DOCS / "estimators.md").read_text(encoding="utf-8")
    table = text.partition("## Which method fits which model\n\n")[2].split("\n\n")[0]
    head, _, *rows = [
        [re.findall(r"`(\w+)`", cell) or cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
    ]
    stated = {
        (model, method): cell == "yes"
        for models, *cells in rows
        for model in models
        for methods, cell in zip(head[1:], cells, strict=True)
        for method in methods
    }
    assert stated == {
        (name, method): refusal(name, method) is None
        for name, method in ALL_PAIRS
        if name != "2pl of counts"
    }


def test_the_pages_of_the_command_line_have_every_command_and_option():
    pages = sorted(DOCS.glob("cli*.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    sections = dict(
        re.findall(r"^## `irtjax ([\w-]+)`\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    )
    commands = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    assert set(sections) == set(commands)
    shared = re.findall(r"^## [^\n]*options\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    for name, command in commands.items():
        written = set(re.findall(r"--[\w-]+", sections[name] + "".join(shared)))
        options = {o for p in command.params for o in p.opts if o.startswith("--")}
        assert options <= written, (name, options - written)
    everything = {
        option
        for command in commands.values()
        for parameter in command.params
        for option in [*parameter.opts, *parameter.secondary_opts]
    }
    own = ("version", "help", "help-all", "import", "config", "no-config")
    own += ("install-completion", "show-completion")
    named = {f"--{o}" for o in own}
    assert set(re.findall(r"`(--[\w-]+)", text)) <= everything | named


def code_lines(source: str, names: set[str]) -> int:
    """Lines of code of top-level definitions: no blanks, comments or docstrings."""
    kept: set[int] = set()
    dropped: set[int] = set()
    for node in ast.parse(source).body:
        if getattr(node, "name", None) in names:
            kept |= set(range(node.lineno, (node.end_lineno or 0) + 1))
            for part in ast.walk(node):
                if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
                    dropped |= set(range(part.lineno, (part.end_lineno or 0) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    dropped |= {
        t.start[0]
        for t in tokens
        if t.string == t.line.strip() != "" and t.type == tokenize.COMMENT
    }
    lines = source.splitlines()
    return sum(bool(lines[row - 1].strip()) for row in kept - dropped)


def test_a_model_takes_under_forty_lines():
    folder = CHECKOUT / "irtjax/models/families"
    # Items that lack categories are served by classes that ordered families share;
    # only `Nominal` has a form of its own for them.
    helpers = {
        ("graded", "PartialCredit"): {"GradedItems", "category_shares"},
        ("cloglog", "ComplementaryLogLog"): set(),
        ("rating", "RatingScale"): set(),
    }
    sizes = {
        name: code_lines(
            (folder / f"{file}.py").read_text(encoding="utf-8"), {name, *own}
        )
        for (file, name), own in helpers.items()
    }
    assert all(10 < size < 40 for size in sizes.values()), sizes
    blocks = blocks_of(DOCS / "extend.md")
    page = "\n".join(block.code for block in blocks if block.language == "python")
    assert 10 < code_lines(page, {"MultipleChoice"}) < 40
