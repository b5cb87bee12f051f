"""What a refusal of a table advises works: the options it prints are added and run."""

from __future__ import annotations

import itertools
import json
import re
import shlex

import pytest
from typer.testing import CliRunner

from irtjax.cli.app import app

MODELS = ["gpt-4o", "claude 3.5", "llama-3-8b", "qwen2.5-7b"]
SCORES = {
    model: [int((3 * i + 5 * j) % 7 < 4) for j in range(8)]
    for i, model in enumerate(MODELS)
}
#: An option and its value.
OPTION = re.compile(r"--([a-z-]+) ('[^']*'|[^\s;,]+)")


def info(*words: str):
    """The facts of `irtjax info`, or its refusal."""
    done = CliRunner().invoke(app, ["info", *words, "--json"])
    if done.exit_code == 0:
        return json.loads(done.stdout)
    assert done.exit_code == 2 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.strip()


def rows(*columns: str, text: str):
    """A long table: a line of a format with the model, item and score of each cell."""
    lines = [
        text.format(m=m, j=j, s=SCORES[m][j], b=bool(SCORES[m][j]))
        for m, j in itertools.product(MODELS, range(8))
    ]
    return "\n".join([",".join(columns), *lines]) + "\n"


def by_model(columns: str, text: str):
    """A table of each model by the name of its file."""
    return {
        f"{m}.csv": "\n".join(
            [columns, *(text.format(j=j, s=s, b=bool(s)) for j, s in enumerate(x))]
        )
        + "\n"
        for m, x in SCORES.items()
    }


def lines(make):
    """JSON lines of the records of all cells."""
    cells = itertools.product(MODELS, range(8))
    return "\n".join(json.dumps(make(m, j, SCORES[m][j])) for m, j in cells)


#: Files by name, of inputs whose refusal has all options.
TABLES = {
    "names of no role": {"t.csv": rows("who", "what", "how", text="{m},q{j},{s}")},
    "a name of subjects alone": {
        "t.csv": rows("model", "segment", "chrf", text="{m},{j},0.{s}{j}")
    },
    "numbers as items": {
        "t.csv": rows("system_used", "segment", "chrf", text="{m},{j},0.{s}{j}")
    },
    "words": {"t.csv": rows("machine", "case nr", "result", text="{m},q{j},{b}")},
    "columns besides": {
        "t.csv": rows("run", "engine", "case", "cost", "ok", text="r,{m},c{j},{j},{b}")
    },
    "an index": {
        "t.csv": "".join(
            f"{k - 1 if k else ''},{line}\n"
            for k, line in enumerate(
                rows("judge", "story", "good", text="{m},t{j},{s}").splitlines()
            )
        )
    },
    "a file for each model": by_model("idx,prompt,quality", "{j},p{j},{s}"),
    "ids for each model": by_model("id,prediction,correct", "{j},x,{b}"),
    "folders": {
        f"{m}/out.csv": x.replace(".csv", "")
        for m, x in zip(
            MODELS, by_model("idx,prompt,quality", "{j},p{j},{s}").values(), strict=True
        )
    },
    "nested": {
        "t.jsonl": lines(
            lambda m, j, s: {
                "meta": {"model": m},
                "doc": {"id": j},
                "metric": {"bleu": s},
            }
        )
    },
    "deeply nested": {
        "t.jsonl": lines(
            lambda m, j, s: {
                "model": {"name": m},
                "sample": {"id": f"q{j}"},
                "scores": {"rouge": {"f": s / 2}},
            }
        )
    },
    "lists": {
        "t.json": json.dumps(
            [
                {
                    "config": {"llm": m},
                    "cases": [{"nr": j, "passed": bool(s)} for j, s in enumerate(x)],
                }
                for m, x in SCORES.items()
            ]
        )
    },
    "a list for each model": {
        f"{m}.json": json.dumps(
            {
                "date": {},
                "samples": [{"id": j, "m": {"acc": s}} for j, s in enumerate(x)],
            },
            indent=1,
        )
        for m, x in SCORES.items()
    },
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Writes files into a folder, the working one, and returns what to read."""
    monkeypatch.chdir(tmp_path)

    def write(files: dict[str, str]) -> str:
        folder = tmp_path / "my logs"
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return str(folder if len(files) > 1 else folder / next(iter(files)))

    return write


def advised(message: str) -> list[str]:
    """The options that a message advises, as they are typed."""
    advice = message.rpartition("it may be ")[2]
    return [word for found in OPTION.finditer(advice) for word in shlex.split(found[0])]


@pytest.mark.parametrize("name", TABLES)
def test_the_options_that_may_fit_do(place, name):
    source = place(TABLES[name])
    message = info(source)
    assert isinstance(message, str) and "it may be --" in message, message
    facts = info(source, *advised(message))
    assert isinstance(facts, dict), facts
    shape = facts["num_subjects"], facts["num_items"], facts["num_observed"]
    assert shape == (4, 8, 32)
    found = {x.replace("/out", "") for x in facts["examples"]["subjects"]}
    assert found <= {*MODELS}


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("model,item,score\na,x,good\na,y,bad\nb,x,bad\nb,y,good\n", "--right good"),
        ("model,q1,q2\na,win,loss\nb,loss,win\n", "--right win"),
        (
            "model,item,result\na,x,PASSED\na,y,ERROR\nb,x,FAILED\n",
            "--right PASSED",
        ),
        ("id,q1,q2\nr0,A,B\ns1,A,C\ns2,B,B\n", "--key r0"),
        ("q1,q2\nA,B\nA,C\nB,B\n", "--key 'subject 1'"),
        ("id,q1,q2\ns1,A,C\ns2,B,B\n", "--key key.csv"),
        (
            "model,item,response,target\na,q1,A,B\na,q2,B,B\nb,q1,B,B\nb,q2,C,B\n",
            "--key target",
        ),
        ("model,item,grade\na,q1,A\na,q2,B\nb,q1,C\nb,q2,A\n", "--right A"),
    ],
)
def test_options_in_a_refusal_work(place, tmp_path, text, advice):
    (tmp_path / "key.csv").write_text("item,key\nq1,A\nq2,B\n")
    source = place({"t.csv": text})
    message = info(source)
    assert isinstance(message, str) and advice in message, message
    facts = info(source, *shlex.split(advice))
    assert isinstance(facts, dict), facts


@pytest.mark.parametrize(
    ("files", "choices"),
    [
        ({"t.csv": "model,item,ok,ms\na,x,1,3\na,y,0,4\nb,x,0,5\nb,y,1,6\n"}, ["ok"]),
        (by_model("question_id,em,f1", "q{j},{s},{s}"), ["em", "f1"]),
        (
            {
                "t.csv": "model,item,status,by\na,x,solved,w\na,y,unsolved,w\n"
                "b,x,solved,w\n"
            },
            ["status"],
        ),
    ],
)
def test_columns_that_may_be_responses(place, files, choices):
    source = place(files)
    for choice in choices:
        assert isinstance(info(source), str)
        facts = info(source, "--response", choice)
        assert isinstance(facts, dict), facts


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        ({"m.csv": "question_id,score\nq1,1\nq2,0\n"}, "--subject-name"),
        (
            by_model("qid,em", "q{j},{s}"),
            "--subject-from file with --item and --response",
        ),
    ],
)
def test_names_of_subjects(place, files, advice):
    source = place(files)
    message = info(source)
    assert isinstance(message, str) and advice in message, message
    given = {"--subject-name": ["--subject-name", "m"]}
    more = ["--subject-from", "file", "--item", "qid", "--response", "em"]
    assert isinstance(info(source, *given.get(advice, more)), dict)


def test_files_whose_names_repeat(place):
    text = "question_id,score\nq1,1\nq2,0\n"
    source = place({f"{m}/{task}.csv": text for m in "ab" for task in ("x", "y")})
    message = info(source)
    for option in ("--subject-from folder", "--subject-from file"):
        assert isinstance(message, str) and option in message
        assert isinstance(info(source, *option.split()), dict)
