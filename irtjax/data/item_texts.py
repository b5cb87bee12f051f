"""What the items of a table ask, and the ids that evaluation harnesses have of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from irtjax.data.wording import listing

if TYPE_CHECKING:
    import pyarrow as pa

#: Characters that are kept of a prompt or an expected answer, and of a wrong answer.
LONGEST, LONGEST_WRONG = 2000, 200
#: Names of the harnesses that evaluate chosen samples, as people write them.
HARNESSES = ("lm-eval", "inspect")
#: What `sample_files` writes.
SAMPLE_FILES = ("lm_eval_samples.json", "inspect_samples.json", "inspect_samples.txt")


class ItemText(NamedTuple):
    """What an item asks, as far as a log has it; texts are cut (`cut`).

    Attributes:
        prompt: What the models were given.
        answer: What was expected.
        wrong: The most frequent wrong answer.
        wrong_count: How often it was given.
    """

    prompt: str = ""
    answer: str = ""
    wrong: str = ""
    wrong_count: int = 0

    def as_text(self) -> str:
        """All of it as one text.

        >>> print(ItemText("1 + 1?", "2", "3", 4).as_text())
        1 + 1?
        <BLANKLINE>
        Expected: 2
        Most frequent wrong answer (4 times): 3
        """
        lines = [self.prompt, "", f"Expected: {self.answer}" if self.answer else ""]
        if self.wrong:
            times = "once" if self.wrong_count == 1 else f"{self.wrong_count:,} times"
            lines.append(f"Most frequent wrong answer ({times}): {self.wrong}")
        return "\n".join(lines).strip()


class SourceId(NamedTuple):
    """The id of an item in the harness that logged it.

    Attributes:
        harness: One of `HARNESSES`.
        task: The task.
        id: The number of the document, or the id of the sample; "" where one stands for
            items of differing content, so that it is not known which is evaluated.
    """

    harness: str
    task: str
    id: str


Texts: TypeAlias = Mapping[str, ItemText]
#: Hashes of the content of items by name, as "FORMAT:HASH" of the logs.
Contents: TypeAlias = Mapping[str, str]
#: Several ids where logs differ.
Ids: TypeAlias = Mapping[str, tuple[SourceId, ...]]


def cut(text: str, most: int = LONGEST) -> str:
    """Returns a text with its middle left out if it is long.

    Three quarters are from its end, since the question follows the examples.

    >>> cut("abcdefgh", 5)
    'a…fgh'
    """
    if len(text) <= most:
        return text
    first = most // 4
    return f"{text[:first]}…{text[len(text) - (most - first - 1) :]}"


def text_of(value: Any) -> str:
    """A value of a log as text: JSON, if it is none; "" for null or deep nesting.

    >>> text_of("a"), text_of(None), text_of({"b": [1]})
    ('a', '', '{"b": [1]}')
    """
    if isinstance(value, str) or value is None:
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError, TypeError):
        return ""


def joined_texts(parts: Iterable[Texts]) -> dict[str, ItemText]:
    """The texts of several tables: the first of each item."""
    out: dict[str, ItemText] = {}
    for part in parts:
        for name, text in part.items():
            out.setdefault(name, text)
    return out


def joined_ids(parts: Iterable[Ids]) -> dict[str, tuple[SourceId, ...]]:
    """The ids of several tables: all of each item."""
    out: dict[str, tuple[SourceId, ...]] = {}
    for part in parts:
        for name, ids in part.items():
            out[name] = tuple(dict.fromkeys((*out.get(name, ()), *ids)))
    return out


def other_contents(contents: Contents, reference: Contents) -> list[str]:
    """Names of the items whose content differs from that of the reference.

    Hashes of different formats are not compared.

    >>> other_contents({"a/1": "lm-eval:5e"}, {"a/1": "lm-eval:7f"})
    ['a/1']
    """
    return [
        name
        for name, content in contents.items()
        if reference.get(name, content) != content
        and reference[name].partition(":")[0] == content.partition(":")[0]
    ]


def refuse_other_contents(contents: Contents, reference: Contents, whole: str) -> None:
    """Refuses items that are others than those of the same names.

    Hashes of different formats are not compared.

    Args:
        contents: Those of the items to match.
        reference: Those of the items to match them with.
        whole: What has these, for the message.

    Raises:
        ValueError: An item has another content.

    >>> refuse_other_contents({"a/1": "lm-eval:5e"}, {"a/1": "lm-eval:5e"}, "the fit")
    """
    differing = other_contents(contents, reference)
    if differing:
        raise ValueError(
            f"{len(differing):,} of the items are others than those of the same names"
            f" in {whole}, such as {differing[0]!r}: their logs number them in another"
            " way; read all logs in one call, which joins items by content, or pass"
            " join='id' if the names are right"
        )


def chosen(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Those of some items, in their order."""
    return {name: values[name] for name in names if name in values} if values else {}


def texts_to_rows(texts: Texts) -> list[dict[str, Any]]:
    """Texts as rows of a table."""
    return [{"item": name, **text._asdict()} for name, text in texts.items()]


def texts_from_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, ItemText]:
    """The texts that `texts_to_rows` was given."""
    out = {}
    for row in rows:
        prompt, answer, wrong = (str(row[x]) for x in ("prompt", "answer", "wrong"))
        out[str(row["item"])] = ItemText(prompt, answer, wrong, int(row["wrong_count"]))
    return out


def texts_table(texts: Texts) -> pa.Table:
    """Texts as an Arrow table: item, prompt, answer, wrong, wrong_count."""
    import pyarrow as pa

    words = {name: pa.string() for name in ("item", "prompt", "answer", "wrong")}
    schema = pa.schema({**words, "wrong_count": pa.int64()})
    return pa.Table.from_pylist(texts_to_rows(texts), schema)


def contents_table(contents: Contents) -> pa.Table:
    """Hashes of items as an Arrow table: item, content."""
    import pyarrow as pa

    schema = pa.schema({"item": pa.string(), "content": pa.string()})
    rows = [{"item": name, "content": content} for name, content in contents.items()]
    return pa.Table.from_pylist(rows, schema)


def ids_from_lists(content: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, Any]:
    """Ids that were saved as lists."""
    return {
        name: tuple(SourceId(*map(str, one)) for one in ids)
        for name, ids in content.items()
    }


def harnesses_of(items: Iterable[str], ids: Ids) -> list[str]:
    """The harnesses that logged some of the items."""
    logged = {one.harness for name in items for one in ids.get(name, ())}
    return [name for name in HARNESSES if name in logged]


def sample_ids(items: Iterable[str], ids: Ids, harness: str) -> dict[str, list[Any]]:
    """The ids of items in a harness, by task: whole numbers for lm-eval, in order.

    Raises:
        ValueError: An item has no id, or logs differ in it, so that the harness might
            evaluate another.

    >>> ids = {"a/3": (SourceId("lm-eval", "a", "3"),)}
    >>> sample_ids(["a/3"], ids, "lm-eval")
    {'a': [3]}
    """
    if harness not in HARNESSES:
        names = ", ".join(map(repr, HARNESSES))
        raise ValueError(f"harness={harness!r} is not one of {names}")
    out: dict[str, dict[Any, None]] = {}
    for name in items:
        own = [one for one in ids.get(name, ()) if one.harness == harness]
        if not own:
            raise ValueError(
                f"item {name!r} is of no log of {harness}, so that its number there is"
                f" unknown: read the logs of {harness} themselves"
            )
        unsure = any(not one.id for one in own)
        if unsure or len(own) > 1:
            shown = listing([f"{one.task} {one.id}" for one in own], 3)
            what = f"the logs differ in its number there ({shown})"
            if unsure:
                what = "its number there stands for items of differing content"
            raise ValueError(
                f"item {name!r}: {what}; give logs of one version of the data set"
            )
        value: Any = own[0].id
        if harness == "lm-eval":
            if not value.isdecimal():
                raise ValueError(f"item {name!r}: the doc_id {value!r} is no number")
            value = int(value)
        out.setdefault(own[0].task, {})[value] = None
    # The harness takes the documents in the order of the data, whatever the list has.
    return {
        task: sorted(x) if harness == "lm-eval" else list(x) for task, x in out.items()
    }


def sample_files(items: Sequence[str], ids: Ids) -> dict[str, str]:
    """Files for the harnesses that logged the items, by name; none without logs.

    `lm_eval_samples.json` is what `lm_eval --samples` takes, `inspect_samples.json` the
    ids by task for Python, and `inspect_samples.txt` a command for each task.

    Raises:
        ValueError: As for `sample_ids`.
    """
    import shlex

    out: dict[str, str] = {}
    for harness in harnesses_of(items, ids):
        tasks = sample_ids(items, ids, harness)
        name = f"{harness.replace('-', '_')}_samples"
        if harness == "inspect":  # It takes ids as patterns.
            tasks = {
                task: [_literal(x) for x in names] for task, names in tasks.items()
            }
        out[f"{name}.json"] = json.dumps(tasks, ensure_ascii=False) + "\n"
        if harness == "inspect":
            lines = []
            for task, names in tasks.items():
                comma = next((x for x in names if "," in x), None)
                if comma is not None:
                    lines.append(
                        f"# {task!a}: {comma!a} has a comma: use the JSON file"
                    )
                    continue
                command = ["inspect", "eval", task, "--sample-id", ",".join(names)]
                lines.append(shlex.join(command))
            out[f"{name}.txt"] = "\n".join(lines) + "\n"
    return out


def _literal(name: str) -> str:
    """A pattern of file names that only this name matches."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
