"""What a fit of comparisons returns: abilities, effects, pairs, and its folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irtjax._types import Status
from irtjax.calibration.abilities import Abilities
from irtjax.comparisons.mixed_tables import TABLES
from irtjax.data.fit_folder import ARENA_FORMAT
from irtjax.data.frames import HasTable

#: The version of `fit.json`.
ARENA_VERSION = 1
#: Tables that some fits have, by the name of the file.
OPTIONAL = ("style", *TABLES)
#: Arrays of the abilities in `abilities.npz`, in the order of the names.
ARRAYS = ("estimates", "covariance", "score", "score_se", "observed")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Arena(HasTable):
    """Abilities of subjects who were compared with each other.

    Attributes:
        abilities: Names, estimates with a sum of 0, their covariance, and the expected
            share of wins (ties as halves) against the average of the others.
        effects: Estimate and standard error of each covariate and of the order, in
            standard deviations of the covariate; also "tie", log nu or log h,
            "both_bad" and "both_bad_slope", b and g of `comparisons.mixed`, and
            standard deviations "category_sd", "judge_sd" and "tie_rates_sd".
        log_likelihood: Without constants of the counts.
        num_parameters: Abilities less 1, covariates, and the parameter of ties.
        num_comparisons: Comparisons that count.
        status: Whether the estimates converged.
        options: How the fit was made.
        warnings: What limits the results.
        notes: What was done with the data.
        data_hash: Of the table.
        pairs: A row for each pair: numbers of wins, ties and verdicts that both are
            bad, and the expected share of the first.
        style: With covariates, a row for each model: ability, ability without
            covariates, their difference and its standard error (`comparisons.style`).
        tables: With the option of each: "categories", "judges" and "tie_rates", with
            errors (`comparisons.mixed_tables`).
        answers: Of `irtjax arena`, as far as they were computed: "influence" (the
            fewest comparisons on which the first place depends), "decision" (further
            battles of the best two that decide; None for no number), "checks" of the
            fit, and "misfit", those of them that are significant.
    """

    abilities: Abilities
    effects: Mapping[str, tuple[float, float]]
    log_likelihood: float
    num_parameters: int
    num_comparisons: float
    status: Status
    options: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    data_hash: str = ""
    pairs: Any = None
    style: Any = None
    tables: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    answers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def table(self) -> Any:
        """The models with their ranks, best first, as a table."""
        return self.abilities.table

    def _shown(self) -> Any:
        """The leaderboard, as `irtjax.rank` shows it."""
        return self.abilities.rank()._shown()

    def _heading(self) -> str:
        return self.abilities.heading

    def _text(self) -> str:
        return self.abilities.rank()._text()

    @property
    def covariate_effects(self) -> dict[str, tuple[float, float]]:
        """Of the effects, those of covariates and of the order."""
        names = [*self.options.get("covariates", ()), "order"]
        return {name: self.effects[name] for name in names if name in self.effects}

    def document(self) -> dict[str, Any]:
        """All but the abilities, as `fit.json` has it."""
        return {
            "format": ARENA_FORMAT,
            "version": ARENA_VERSION,
            "kind": "comparisons",
            "log_likelihood": self.log_likelihood,
            "num_parameters": self.num_parameters,
            "num_comparisons": self.num_comparisons,
            "num_subjects": len(self.abilities.names),
            "subjects": list(map(str, self.abilities.names)),
            "heading": self.abilities.heading,
            "noun": self.abilities.noun,
            "status": self.status.name,
            "level": self.abilities.level,
            "effects": {
                name: {"estimate": value, "se": error}
                for name, (value, error) in self.effects.items()
            },
            "options": dict(self.options),
            "answers": dict(self.answers),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "data_hash": self.data_hash,
        }

    def arrays(self) -> dict[str, Any]:
        """The numbers of the abilities, in the order of the names."""
        abilities = self.abilities
        count = len(abilities.names)
        missing = np.full((2, count), np.nan)
        score = missing if abilities.expected is None else abilities.expected
        votes = np.zeros(count) if abilities.observed is None else abilities.observed
        values = abilities.estimates, abilities.covariance, *score, votes
        return dict(zip(ARRAYS, map(np.asarray, values), strict=True))

    def save(
        self, folder: str | Path, extras: Sequence[Callable[[Path], None]] = ()
    ) -> None:
        """Writes abilities, pairs, style and fit.json into a folder, all or none.

        `irtjax.storage.load_arena` restores the fit from it.

        Args:
            folder: The folder, which is made if there is none.
            extras: Functions that write more files into a given folder.

        Raises:
            ValueError: If they cannot be written.
        """
        import json

        import pyarrow.csv as pa_csv
        import pyarrow.parquet as pq

        from irtjax.data.spreadsheets import defuse
        from irtjax.data.writing import together, write_text

        tables = {"abilities": self.abilities.rank().table, "pairs": self.pairs}
        tables |= {"style": self.style, **self.tables}
        stale = [f"{x}.{kind}" for x in OPTIONAL for kind in ("parquet", "csv")]
        with together(folder, stale=stale) as place:
            for name, table in tables.items():
                if table is not None:
                    pq.write_table(table, place / f"{name}.parquet")
                    pa_csv.write_csv(defuse(table), place / f"{name}.csv")
            np.savez(place / "abilities.npz", **self.arrays())
            for extra in extras:
                extra(place)
            text = json.dumps(self.document(), indent=2, ensure_ascii=False)
            write_text(text + "\n", place / "fit.json")


def win_shares(
    arena: Arena, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns observed and expected shares and numbers of comparisons by pair.

    Args:
        arena: The fit.
        names: Models, in the order of rows and columns.

    Returns:
        Three arrays `[models, models]`: the share of points of the row's model, ties
        being half, NaN without a comparison; the share that the fit expects; and the
        number of comparisons.
    """
    table, size = arena.pairs, len(names)
    at = {name: k for k, name in enumerate(names)}
    sides = [
        np.array([at.get(x, -1) for x in table.column(name).to_pylist()], int)
        for name in ("model_a", "model_b")
    ]
    chosen = np.flatnonzero((sides[0] >= 0) & (sides[1] >= 0))
    i, j = (side[chosen] for side in sides)
    columns = ("wins_a", "wins_b", "ties", "both_bad", "expected_share_a")
    win, loss, tie, bad, mean = (np.asarray(table.column(x))[chosen] for x in columns)
    if arena.options.get("both_bad") == "drop":
        bad = 0 * bad
    if arena.options.get("ties") == "drop":
        tie, bad = 0 * tie, 0 * bad
    points, games, expected = (np.zeros((size, size)) for _ in range(3))
    even = (tie + bad) / 2
    points[i, j], points[j, i] = win + even, loss + even
    games[i, j] = games[j, i] = win + loss + tie + bad
    expected[i, j], expected[j, i] = mean, 1 - mean
    share = np.where(games > 0, points / np.where(games > 0, games, 1), np.nan)
    return share, expected, games
