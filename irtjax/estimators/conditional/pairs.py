r"""Conditional likelihood of all pairs of items, whatever else is missing.

Given the sum s of two responses to items j and k, they are c and s - c with chance

    p_jk,s(c) = w_jc w_k,s-c / sum_e w_je w_k,s-e,

w the weights of `numerics.category_sums` (Zwinderman 1995; of two categories one item
is right with chance sigma(b_k - b_j)). The sum of these log-likelihoods over pairs and
subjects is that of two products of the table; its errors are those of the sandwich over
subjects.
"""

from __future__ import annotations

import numpy as np


class PairLikelihood:
    """The likelihood of pairs in log weights.

    Args:
        codes: `[subjects, items]` categories, 0 where missing.
        seen: `[subjects, items]` what was observed; None if all was.
        most: The highest category.
    """

    def __init__(self, codes: np.ndarray, seen: np.ndarray | None, most: int) -> None:
        self._size = most + 1
        category = range(self._size)
        seen = np.ones(codes.shape, bool) if seen is None else seen
        self._chosen = [(seen & (codes == c)).astype(float) for c in category]
        # `[items, items]` subjects with c on the one and d on the other.
        number = {
            (c, d): self._chosen[c].T @ self._chosen[d]
            for c in category
            for d in category
        }
        for of_pair in number.values():
            np.fill_diagonal(of_pair, 0)
        self._number = number
        self._of_sum = [
            sum(number[c, s - c] for c in self._split(s)) for s in range(2 * most + 1)
        ]

    def _split(self, total: int) -> range:
        """Categories of the first item with which a sum is possible."""
        most = self._size - 1
        return range(max(0, total - most), min(most, total) + 1)

    def _log_chances(self, log_weight: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
        """`[items, items]` log p of categories c and d, given their sum, by (c, d)."""
        out = {}
        for total in range(len(self._of_sum)):
            parts = {
                c: log_weight[:, c, None] + log_weight[None, :, total - c]
                for c in self._split(total)
            }
            whole = np.logaddexp.reduce(np.stack(list(parts.values())))
            for c, part in parts.items():
                # A sum that no categories of the two give.
                with np.errstate(invalid="ignore"):
                    log_chance = part - whole
                out[c, total - c] = np.where(np.isnan(log_chance), -np.inf, log_chance)
        return out

    def value(self, log_weight: np.ndarray) -> float:
        """The log-likelihood, each pair once."""
        chances = self._log_chances(log_weight)
        return (
            sum(
                float(np.sum(number * np.where(number > 0, chances[pair], 0)))
                for pair, number in self._number.items()
            )
            / 2
        )

    def derivatives(self, log_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and information in psi of the categories from the second on."""
        items, size = len(log_weight), self._size - 1
        chances = {x: np.exp(y) for x, y in self._log_chances(log_weight).items()}
        gradient = np.zeros((items, size))
        information = np.zeros((items, size, items, size))
        diagonal = np.arange(items)
        for total, number in enumerate(self._of_sum):
            split = self._split(total)
            for c in split:
                if c == 0:
                    continue
                own = chances[c, total - c]
                expected = (number * own).sum(axis=1)
                gradient[:, c - 1] += expected - self._number[c, total - c].sum(axis=1)
                information[diagonal, c - 1, diagonal, c - 1] += expected
                for d in split:
                    joint = number * own * chances[d, total - d]
                    if d > 0:
                        # The same item in another category.
                        information[diagonal, c - 1, diagonal, d - 1] -= joint.sum(
                            axis=1
                        )
                    if total - d > 0:
                        # The other item, in the category that goes with d of this one.
                        covariance = number * own * (c == d) - joint
                        information[:, c - 1, :, total - d - 1] += covariance
        return gradient.ravel(), information.reshape(items * size, items * size)

    def scores(self, log_weight: np.ndarray) -> np.ndarray:
        """`[subjects, items * (categories - 1)]` derivatives of each subject."""
        size = self._size - 1
        chances = {x: np.exp(y) for x, y in self._log_chances(log_weight).items()}
        out = np.zeros((*self._chosen[0].shape, size))
        for a, first in enumerate(self._chosen):
            for b, second in enumerate(self._chosen):
                others = second.sum(axis=1, keepdims=True) - (second if a == b else 0)
                if a > 0:
                    out[:, :, a - 1] -= first * others
                for c in self._split(a + b):
                    if c > 0:
                        chance = chances[c, a + b - c].copy()
                        np.fill_diagonal(chance, 0)
                        out[:, :, c - 1] += first * (second @ chance.T)
        return out.reshape(len(out), -1)
