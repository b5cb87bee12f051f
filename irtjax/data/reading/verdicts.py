"""Words for right, wrong and no answer, as tools and spreadsheets write them.

Only words with one meaning are here. "timeout", "error", "refused" or "partial" count
as wrong for some tools and as missing for others: the caller states which are right.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

# The words of spreadsheets for TRUE and FALSE are among them.
_RIGHT = """
true correct right yes pass passed success successful succeeded solved resolved
wahr richtig korrekt ja bestanden|vrai juste exact oui réussi|verdadero cierto sí si
correcto aprobado|vero giusto corretto|verdadeiro certo correto sim|waar juist goed
prawda poprawne poprawnie tak|sant sann sand rätt rett korrekt rigtig riktig|tosi oikein
kyllä|igaz helyes igen|pravda správně ano|adevărat corect da|αληθησ αληθής σωστό ναι
истина верно правильно да|правда правильно так|doğru evet|benar ya|đúng|सही हाँ|صحيح نعم
是 对 對 正确 正確 真|はい 正解 真|예 참 정답 맞음|✓ ✔ ✅ ☑ √ ○ ◯ 👍
"""
_WRONG = """
false incorrect wrong no fail failed failure unsuccessful unsolved unresolved
falsch unwahr inkorrekt nein|faux non échec|falso incorrecto|errato sbagliato|errado
incorreto não|onwaar onjuist fout nee|fałsz niepoprawne niepoprawnie nie|falskt usann
usant falsk fel feil nej nei forkert galt|epätosi väärin ei|hamis helytelen nem|nepravda
špatně ne|fals incorect nu|ψευδησ ψευδής λάθος όχι|ложь неверно неправильно нет
неправда ні|yanlış yanliş hayır hayir|salah tidak|sai|गलत नहीं|خطأ لا
否 错 錯 错误 錯誤 不对 不對 不正确 不正確 假
いいえ 不正解 誤り 偽|아니요 거짓 오답 틀림
✗ ✘ ❌ ✖ × ☒ 👎
"""
_UNANSWERED = (
    "not attempted|no answer|noanswer|not answered|unanswered|no response|abstain"
    "|abstained|skip|skipped|omitted|not reached|未作答|keine antwort|sans réponse"
    "|sin respuesta|нет ответа"
)
#: Letters for right and wrong, where the two occur and no other letter.
_PAIRS = "yn jn on sn tf vf wf rf pf rw"
#: Those for right that need no letter for wrong.
_SURE = "yt"
#: Of Inspect: correct, incorrect, partly correct, and no answer.
_INSPECT, _NONE = {"c": 1.0, "i": 0.0, "p": 0.5}, "n"
#: Around a word: spaces and signs that are no words themselves.
_AROUND = r"[\s\[\](){}<>\"'`*_.,:;!|-]+"
_EDGES = re.compile(f"^{_AROUND}|{_AROUND}$|[\ufe0e\ufe0f]")
_PERCENT = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s*[%\uff05]")


def plain_word(text: str) -> str:
    """A word as it is compared: without case, marks around it, "_" and "-".

    >>> plain_word("**Correct.**"), plain_word("NOT_ATTEMPTED")
    ('correct', 'not attempted')
    """
    word = text.strip()
    if not word.isalpha() or not word.isascii():
        word = unicodedata.normalize("NFKC", word) if not word.isascii() else word
        word = re.sub(r"[\s_-]+", " ", _EDGES.sub("", word))
    return word.casefold()


def _listed(text: str) -> set[str]:
    """The words of a list, as they are compared."""
    return {plain_word(word) for word in re.split(r"[|\s]+", text.strip())}


_SCORES = {**dict.fromkeys(_listed(_RIGHT), 1.0), **dict.fromkeys(_listed(_WRONG), 0.0)}
NO_ANSWER = frozenset(plain_word(word) for word in _UNANSWERED.split("|"))


class Verdicts(NamedTuple):
    """Scores of words, and words of no answer, all as `plain_word` has them."""

    scores: Mapping[str, float]
    no_answer: frozenset[str]

    def knows(self, text: str) -> bool:
        """Whether a text is one of the words."""
        word = plain_word(text)
        return word in self.scores or word in self.no_answer


def verdicts_of(texts: Iterable[str | None]) -> Verdicts:
    """The words among texts that are verdicts; letters are, where all of them can be.

    >>> verdicts_of(["Y", "N"]).scores["n"], verdicts_of(["C", "I"]).scores["c"]
    (0.0, 1.0)
    >>> verdicts_of(["A", "C", "D"]).knows("C")
    False
    """
    words = (plain_word(text) for text in texts if text)
    letters = {word for word in words if len(word) == 1 and word.isascii()}
    letters = {word for word in letters if word.isalpha()}
    for right, wrong in _PAIRS.split():
        if letters == {right, wrong} or letters == {right} <= {*_SURE}:
            return Verdicts({**_SCORES, right: 1.0, wrong: 0.0}, NO_ANSWER)
    if letters <= {*_INSPECT, _NONE}:
        return Verdicts({**_SCORES, **_INSPECT}, NO_ANSWER | {_NONE})
    return Verdicts(_SCORES, NO_ANSWER)


def percentage(text: str) -> float | None:
    """The share that a text such as "85 %" is; None for another text.

    >>> percentage("85%"), percentage("7,5 %"), percentage("85")
    (0.85, 0.075, None)
    """
    match = _PERCENT.fullmatch(text.strip())
    return None if match is None else float(match[1].replace(",", ".")) / 100


def counts_of(texts: Iterable[str], most: int = 6) -> str:
    """Words with how often each occurs, the most frequent first, for a message.

    >>> counts_of(["good", "bad", "good"])
    "'good' (2), 'bad' (1)"
    """
    counts = Counter(" ".join(text.split())[:40] for text in texts)
    shown = [f"{word!r} ({count:,})" for word, count in counts.most_common(most)]
    rest = [f"... ({len(counts)} words in all)"] if len(counts) > most else []
    return ", ".join(shown + rest)
