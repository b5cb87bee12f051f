"""Every public result prints a short table or sentence, never a dump of its fields."""

import functools

import numpy as np
import pyarrow as pa
import pytest

import irtjax
from irtjax.adaptive.misfit import MisfitStudy
from irtjax.auditing import items_to_read
from irtjax.calibration.flow import rank_flow
from irtjax.calibration.heterogeneity import discrimination_heterogeneity
from irtjax.data.text_table import display_width
from irtjax.estimators.posterior.psis import psis_loo
from irtjax.numerics.dispersion import Intraclass
from irtjax.prediction.predictive_checks import PredictiveChecks

#: Rows of a table that is shown whole, sentences and a heading of two lines.
MOST_LINES, WIDTH = 22, 80
SUBJECTS, ITEMS = 11, 30
NAMES = [f"organisation/long-model-name-{k}" for k in range(SUBJECTS)]


@functools.cache
def table() -> irtjax.ResponseTable:
    rng = np.random.default_rng(0)
    gap = rng.normal(size=(SUBJECTS, 1)) - rng.normal(size=ITEMS)
    items = [f"benchmark_{j % 2}/a-question-{j}" for j in range(ITEMS)]
    return irtjax.ResponseTable.from_arrays(
        rng.random(gap.shape) < 1 / (1 + np.exp(-gap)),
        subjects=NAMES,
        items=items,
        benchmark=[name.split("/")[0] for name in items],
    )


@functools.cache
def fit():
    return irtjax.fit(table(), "2pl", "em")


@functools.cache
def votes() -> irtjax.ComparisonTable:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 6, 300)
    second = (first + rng.integers(1, 6, 300)) % 6
    wins = rng.random(300) < 1 / (1 + np.exp(-(first - second) / 3))
    outcomes = np.stack([wins, ~wins, 0 * wins, 0 * wins], axis=1)
    return irtjax.ComparisonTable.of(NAMES[:6], first, second, outcomes)


@functools.cache
def arena():
    return irtjax.fit_comparisons(votes())


@functools.cache
def small():
    return irtjax.shrink(table(), 8, rule="random", model="rasch", folds=3)


def added(folder):
    old, new = (table().select(subjects=x) for x in (NAMES[:10], NAMES[10:]))
    irtjax.save(irtjax.fit(old, "rasch"), folder, responses=old)
    return irtjax.add(folder, new)


def joint(_):
    rng = np.random.default_rng(1)
    true = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], 60)
    names = np.arange(60).astype(str)
    measured = (irtjax.Abilities(names, y, np.full(60, 0.2)) for y in true.T)
    return irtjax.fit_jointly(**dict(zip(("accuracy", "votes"), measured, strict=True)))


def judges(_):
    rng = np.random.default_rng(0)
    truth = rng.random((8, 50)) < 0.6
    i, j, k = (x.ravel() for x in np.indices((8, 50, 3)))
    right = rng.random(i.size) < 0.9
    verdict = np.where(right, truth[i, j], ~truth[i, j])
    gold = np.where(j < 25, truth[i, j], np.nan)
    rows = {"subject": i, "item": j, "judge": k, "verdict": verdict, "gold": gold}
    return irtjax.fit_judges(rows)


def history(folder):
    added(folder)
    return irtjax.history(folder)


def loo(_):
    return psis_loo(np.random.default_rng(0).normal(-0.5, 0.1, (4, 200, 50)))


ROWS = pa.table({"statistic": ["mean of item"], "of": ["x"], "observed": [0.5]})
WALD = np.sort(np.random.default_rng(0).normal(size=SUBJECTS))

#: How each result is made, of a folder.
RESULTS = {
    "responses": lambda _: table(),
    "fit": lambda _: fit(),
    "items": lambda _: fit().items,
    "abilities": lambda _: fit().abilities,
    "rank": lambda _: irtjax.rank(fit()),
    "own abilities": lambda _: irtjax.Abilities(NAMES, WALD, np.full(SUBJECTS, 0.3)),
    "compare": lambda _: irtjax.compare(fit(), *NAMES[:2], data=table()),
    "score": lambda _: irtjax.score(fit(), table().select(subjects=NAMES[:3])),
    "audit": lambda _: irtjax.audit(fit(), table()),
    "items to read": lambda _: items_to_read(fit(), table()),
    "shrink": lambda _: small(),
    "predicted scores": lambda _: small().predict(table()),
    "errors of subsets": lambda _: irtjax.subset_errors(
        table(), [5, 10], ["random"], folds=3, model="rasch"
    ),
    "dimensions": lambda _: irtjax.dimensions(table(), most=2),
    "stability": lambda _: irtjax.stability(table(), num=5, model="rasch"),
    "predict": lambda _: irtjax.predict(fit()),
    "power": lambda _: irtjax.power(models=10, sizes=[100, 400]),
    "missingness": lambda _: irtjax.missingness(table()),
    "discrimination path": lambda _: irtjax.discrimination_path(table()),
    "simulated tests": lambda _: irtjax.simulate_tests(fit(), 8, key=0, num_items=4),
    "adaptive test": lambda _: irtjax.AdaptiveTest(fit(), 4),
    "flow": lambda _: rank_flow(fit(), data=table()),
    "demo": lambda _: irtjax.make_demo(),
    "add": added,
    "history": history,
    "votes": lambda _: votes(),
    "arena": lambda _: arena(),
    "abilities of an arena": lambda _: arena().abilities,
    "rank of an arena": lambda _: irtjax.rank(arena()),
    "compare in an arena": lambda _: irtjax.compare(arena(), *NAMES[:2]),
    "elo": lambda _: irtjax.elo(votes()),
    "influence": lambda _: irtjax.influence(votes()),
    "plan": lambda _: irtjax.plan_battles(arena(), 20),
    "joint": joint,
    "judges": judges,
    "predictive checks": lambda _: PredictiveChecks(ROWS),
    "misfit study": lambda _: MisfitStudy(ROWS),
}
#: Results that are a few numbers and no table.
SENTENCES = {
    "heterogeneity": lambda _: discrimination_heterogeneity(fit()),
    "leave one out": loo,
    "correlation of responses": lambda _: Intraclass(0.2, 0.05, 400),
}


def check_text(text: str) -> None:
    lines = text.splitlines()
    assert 1 <= len(lines) <= MOST_LINES, text
    assert max(map(display_width, lines)) <= WIDTH, text
    for dump in ("array(", "=None", "pyarrow", "<irtjax", " object at ", "Table("):
        assert dump not in text, text


@pytest.fixture(autouse=True)
def width(monkeypatch):
    monkeypatch.setenv("COLUMNS", str(WIDTH))


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_prints_as_a_short_table(name, tmp_path):
    found = RESULTS[name](tmp_path / "fit")
    check_text(repr(found))
    assert str(found) == repr(found)
    page = found._repr_html_()
    assert page.startswith("<table") and page.count("<tr") >= 1
    assert "array(" not in page and "=None" not in page
    rows = found.to_frame("arrow")
    assert isinstance(rows, pa.Table) and rows.num_columns > 1
    assert len(found.to_frame()) == rows.num_rows
    assert found.to_json().startswith("[")


@pytest.mark.parametrize("name", SENTENCES)
def test_a_result_without_a_table_prints_as_sentences(name, tmp_path):
    check_text(repr(SENTENCES[name](tmp_path)))
