"""The answers behind responses, one row for each attempt.

A response states whether a model was right; its answer, which of the wrong ones it
gave. Answers are stored as codes of texts, about eleven bytes an attempt. Nothing is
sorted or counted before it is asked for (`irtjax.auditing.items_to_read`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

#: Characters that are kept of an answer. Longer ones get a hash, so that they agree
#: with equal ones only.
LONGEST_ANSWER = 80
#: What harnesses write where they found no answer.
NOTHING = {"", "[invalid]", "[no answer]", "<no answer>", "[none]"}
#: A number with what people write around it: $ and %, thousands, a point at its end.
_NUMBER = re.compile(r"[$€£]?\s?([-+]?(\d{1,3}(,\d{3})+|\d+)?(\.\d+)?)\s?%?\.?")
#: An option by its letter, such as "(B)" and "b.".
_LETTER = re.compile(r"\(?([a-zA-Z])[).:]?")


def short_answer(text: Any) -> str:
    r"""An answer as it is kept: without superfluous spaces, cut if it is long.

    >>> short_answer("  4 \n 2 "), short_answer("[invalid]"), short_answer(None)
    ('4 2', '', '')
    >>> len(short_answer("long " * 100))
    80
    """
    if text is None:
        return ""
    text = text if isinstance(text, str) else str(text)
    words = " ".join(text.split())
    if not words.isascii():  # Halves of surrogate pairs are no characters.
        words = words.encode("utf-8", "replace").decode("utf-8")
    if words.casefold() in NOTHING:
        return ""
    if len(words) <= LONGEST_ANSWER:
        return words
    mark = hashlib.blake2b(words.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{words[: LONGEST_ANSWER - 10]}… {mark}"


def coded_answers(texts: Iterable[Any]) -> tuple[np.ndarray, list[str]]:
    """Codes of answers, and the distinct ones, of which the first is "".

    >>> coded_answers(["B", None, " B "])[0].tolist()
    [1, 0, 1]
    """
    union: dict[str, int] = {"": 0}
    memory: dict[Any, int] = {}
    codes = []
    for text in texts:
        code = memory.get(text)
        if code is None:
            code = memory[text] = union.setdefault(short_answer(text), len(union))
        codes.append(code)
    return np.asarray(codes, np.int32), list(union)


def plain_answer(text: str) -> str:
    """An answer as it is compared: without case, and numbers by their value.

    >>> plain_answer("(B)"), plain_answer("$1,250.00"), plain_answer("Paris.")
    ('b', '1250', 'paris')
    """
    text = text.strip().casefold()
    letter = _LETTER.fullmatch(text)
    if letter:
        return letter[1]
    number = _NUMBER.fullmatch(text)
    if number and any(map(str.isdigit, number[1])) and len(number[1]) < 16:
        return f"{float(number[1].replace(',', '')):.15g}"
    return text.rstrip(". ") or text


@dataclasses.dataclass(frozen=True, eq=False)
class Answers:
    """Answers of subjects to items, with the texts that they are codes of.

    Attributes:
        subject: `[attempts]` places of subjects in the table.
        item: `[attempts]` places of items.
        code: `[attempts]` places in `texts`.
        wrong: `[attempts]` whether the attempt scored 0.
        texts: The distinct answers.
        options: `[items]` numbers of options to choose from; 0 where not known.
        shape: Numbers of subjects and items of the table.
    """

    subject: np.ndarray
    item: np.ndarray
    code: np.ndarray
    wrong: np.ndarray
    texts: tuple[str, ...]
    options: np.ndarray
    shape: tuple[int, int]

    def __len__(self) -> int:
        return len(self.code)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.subject, self.item, self.code, self.wrong, self.options)
        return sum(array.nbytes for array in arrays)

    @staticmethod
    def of(
        subject: np.ndarray,
        item: np.ndarray,
        code: np.ndarray,
        wrong: np.ndarray,
        texts: Sequence[str],
        shape: tuple[int, int],
        options: np.ndarray | None = None,
    ) -> Answers | None:
        """Answers of attempts, without those that have none; None if none has one.

        >>> found = Answers.of([0, 1], [0, 0], [1, 0], [True, True], ["", "B"], (2, 1))
        >>> found.subject.tolist(), found.texts
        ([0], ('B',))
        """
        code = np.asarray(code)
        answered = np.array([bool(text) for text in texts], bool)
        keep = answered[code] if len(texts) else np.zeros(len(code), bool)
        if not keep.any():
            return None
        place = np.cumsum(answered) - 1
        count = np.zeros(shape[1], np.int16) if options is None else options
        return Answers(
            np.asarray(subject)[keep].astype(_kind(shape[0])),
            np.asarray(item)[keep].astype(_kind(shape[1])),
            place[code[keep]].astype(np.int32),
            np.asarray(wrong, bool)[keep],
            tuple(text for text in texts if text),
            np.asarray(count, np.int16),
            shape,
        )

    def select(
        self, rows: np.ndarray | None, columns: np.ndarray | None
    ) -> Answers | None:
        """Answers of some subjects and items; None where a place occurs twice."""
        subject, item = self.subject, self.item
        keep = np.ones(len(self), bool)
        shape = list(self.shape)
        options = self.options
        for axis, places in enumerate((rows, columns)):
            if places is None:
                continue
            new = np.full(self.shape[axis], -1)
            new[places] = np.arange(len(places))
            if np.count_nonzero(new >= 0) < len(places):
                return None
            shape[axis] = len(places)
            if axis == 0:
                subject = new[subject]
                keep &= subject >= 0
            else:
                item, options = new[item], options[places]
                keep &= item >= 0
        return Answers.of(
            subject[keep],
            item[keep],
            self.code[keep],
            self.wrong[keep],
            self.texts,
            (shape[0], shape[1]),
            options,
        )

    def take(self, keep: np.ndarray) -> Answers | None:
        """Some of the attempts, by a mask."""
        return Answers.of(
            self.subject[keep],
            self.item[keep],
            self.code[keep],
            self.wrong[keep],
            self.texts,
            self.shape,
            self.options,
        )


def _kind(size: int) -> type:
    """The small integer type of places."""
    return np.uint16 if size <= 2**16 else np.int32


def joined(
    parts: Iterable[tuple[Answers | None, np.ndarray, np.ndarray]],
    shape: tuple[int, int],
) -> Answers | None:
    """Answers of several tables as those of one.

    Args:
        parts: Of each its answers, and the places of its subjects and items in the one.
        shape: Numbers of subjects and items of the one.
    """
    answered = [part for part in parts if part[0] is not None]
    if not answered:
        return None
    union: dict[str, int] = {}
    columns: list[list[np.ndarray]] = [[], [], [], []]
    options = np.zeros(shape[1], np.int16)
    for part, rows, places in answered:
        assert part is not None
        code = [union.setdefault(text, len(union)) for text in part.texts]
        new = (rows[part.subject], places[part.item], np.array(code)[part.code])
        for column, values in zip(columns, (*new, part.wrong), strict=True):
            column.append(values)
        options[places] = np.maximum(options[places], part.options)
    subject, item, code, wrong = map(np.concatenate, columns)
    return Answers.of(subject, item, code, wrong, list(union), shape, options)


def to_arrays(answers: Answers) -> dict[str, Any]:
    """Answers as arrays and a list of texts; `from_lists` reads them."""
    names = ("subject", "item", "code", "wrong", "options")
    return {name: getattr(answers, name) for name in names} | {
        "texts": list(answers.texts)
    }


def to_lists(answers: Answers) -> dict[str, list[Any]]:
    """The same as lists, for JSON."""
    return {name: np.asarray(x).tolist() for name, x in to_arrays(answers).items()}


def from_lists(content: Mapping[str, Any], shape: tuple[int, int]) -> Answers | None:
    """The answers that `to_arrays` or `to_lists` gave.

    Raises:
        ValueError: They are not of a table of this shape.
    """
    names = ("subject", "item", "code", "wrong")
    columns = [np.asarray(content[name], np.int64) for name in names]
    texts, options = content["texts"], np.asarray(content["options"], np.int16)
    limits = (*shape, len(texts), 2)
    fits = len({len(column) for column in columns}) == 1 and len(options) == shape[1]
    fits &= all(
        column.min(initial=0) >= 0 and column.max(initial=-1) < limit
        for column, limit in zip(columns, limits, strict=True)
    )
    if not fits:
        raise ValueError("its answers are not those of its subjects and items")
    subject, item, code, wrong = columns
    return Answers.of(subject, item, code, wrong > 0, texts, shape, options)
