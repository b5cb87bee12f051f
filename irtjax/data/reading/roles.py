"""Roles that names of columns show: of repeats, conditions, topics and covariates."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

#: What a column changes: the item, its benchmark, or the subject.
Side: TypeAlias = Literal["item", "benchmark", "subject"]

#: A column of such words numbers repeats: "seed", "rollout_idx".
_REPEAT = set(
    "seed seeds run runs rollout rollouts repeat repeats repetition replicate"
    " replication rep trial attempt try epoch iteration iter draw".split()
)
#: With a word of numbering it does, too: "generation_idx". Alone these are texts.
_OUTPUT = set(
    "generation gen sample completion output response answer candidate".split()
)
_NUMBERING = set("id idx index number num no nr n k i".split())
#: Conditions of an item: in another language or for another judge it is another one.
_ITEM = set(
    "language lang locale dialect judge grader rater annotator evaluator scorer"
    " reviewer prompt template temperature temp shots shot fewshot nshot turn setting"
    " condition variant mode perturbation augmentation persona".split()
)
#: Names of items repeat in each topic.
_TOPIC = set(
    "subset subtask category topic domain discipline section config split subject"
    " course exam".split()
)
#: Conditions of a subject: with another effort it is another one.
_SUBJECT = set(
    "version checkpoint ckpt step revision effort reasoning thinking quantization quant"
    " precision scaffold agent harness adapter".split()
)
#: Words that may be next to those: "judge_model", "num_fewshot".
_ANY = _NUMBERING | set("name type code key label model few style system level".split())

#: Words of a number of right responses, and of a number of trials; of numbers.
_RIGHT = set(
    "correct passed pass passes success successes successful solved right resolved"
    " accepted hits".split()
)
_TRIALS = set(
    "samples trials attempts generations rollouts runs tries total completions repeats"
    " repetitions".split()
)
_DIGIT = re.compile(r"\d")
_COUNT = set("num n number no of count total".split())

#: Columns of a matrix that describe its rows: in any matrix, and where other names
#: have numbers, as those of items do ("race" and "seed" are benchmarks, too).
_DESCRIBING = set(
    "gender sex age birth_year year_of_birth date_of_birth birthdate dob date datetime"
    " timestamp created_at start_time end_time started_at ended_at release_date"
    " geschlecht alter sexo edad sexe".split()
)
_ALSO_ITEMS = set(
    "nationality ethnicity race education income marital_status occupation country city"
    " region state school classroom school_id class_id group cohort treatment arm site"
    " native_language mother_tongue duration genre grade source".split()
)
#: Share of the other names that have a digit.
_NUMBERED = 0.8


def plain_name(name: str) -> str:
    """A name of a column as synonyms are written: "Model Name" is model_name."""
    plain = name.strip().lower()
    # A table may have 100,000 columns.
    return re.sub(r"[ -]+", "_", plain) if " " in plain or "-" in plain else plain


def _words(name: str) -> set[str]:
    """The words of a name."""
    return {word for word in plain_name(name).replace(".", "_").split("_") if word}


def is_repeat(name: str) -> bool:
    """Whether a column numbers repeats, by its name.

    >>> [is_repeat(x) for x in ("seed", "rollout_idx", "generation", "gen_id")]
    [True, True, False, True]
    """
    words = _words(name) - {"random", "global"}
    numbers = bool(words & _NUMBERING)
    return (
        bool(words & _REPEAT)
        and words <= _REPEAT | _NUMBERING | {"name"}
        or (numbers and bool(words & _OUTPUT) and words <= _OUTPUT | _NUMBERING)
    )


def side_of(name: str) -> Side | None:
    """What a column is a condition of, by its name; None if of nothing known.

    >>> [side_of(x) for x in ("judge_model", "category", "reasoning_effort", "tokens")]
    ['item', 'benchmark', 'subject', None]
    """
    words = _words(name)
    sides: tuple[tuple[Side, Collection[str]], ...]
    sides = ("item", _ITEM), ("benchmark", _TOPIC), ("subject", _SUBJECT)
    words_of_roles = _ITEM | _TOPIC | _SUBJECT | _ANY
    if not words <= words_of_roles:
        return None
    return next((side for side, own in sides if not words.isdisjoint(own)), None)


def conditions_of(names: Sequence[str]) -> tuple[str, ...]:
    """Columns that are conditions by their names."""
    return tuple(name for name in names if side_of(name) is not None)


def is_successes(name: str) -> bool:
    """Whether a column may hold numbers of right responses, by its name.

    >>> [is_successes(x) for x in ("num_correct", "passed", "n", "pass_rate")]
    [True, True, False, False]
    """
    words = _words(name)
    # Of n samples of a program, c are correct.
    return words == {"c"} or (bool(words & _RIGHT) and words <= _RIGHT | _COUNT)


def is_sure(name: str) -> bool:
    """Whether such a name has a word for a number."""
    return bool(_words(name) & _COUNT)


def is_trials(name: str) -> bool:
    """Whether a column may hold numbers of trials, by its name.

    >>> [is_trials(x) for x in ("num_samples", "total", "n", "sample", "tokens")]
    [True, True, True, False, False]
    """
    words = _words(name)
    return bool(words & _TRIALS or words == {"n"}) and words <= _TRIALS | _COUNT


def describing(names: Sequence[str]) -> list[str]:
    """Columns of a matrix that describe its rows, by their names.

    >>> describing(["Gender", "q1", "q2", "group"]), describing(["arc", "race"])
    (['Gender', 'group'], [])
    """
    plain = {name: plain_name(name) for name in names}
    sure = [name for name in names if plain[name] in _DESCRIBING]
    also = [
        name
        for name in names
        if plain[name] in _ALSO_ITEMS or (is_repeat(name) and not _DIGIT.search(name))
    ]
    others = [name for name in names if name not in (*sure, *also)]
    numbered = sum(_DIGIT.search(name) is not None for name in others)
    return [*sure, *(also if others and numbered >= _NUMBERED * len(others) else [])]
