"""A psychometrician who comes from mirt: LSAT7 as a CSV file, tables of items."""

import csv
import re

import numpy as np
import pytest

import irtjax
from tests.cli.test_cli import ok, strict

#: People with each of the patterns 00000 to 11111 (Bock and Lieberman 1970).
COUNTS = [12, 19, 1, 7, 3, 19, 3, 17, 10, 5, 3, 7, 7, 23, 8, 28]
COUNTS += [7, 39, 11, 34, 14, 51, 15, 90, 6, 25, 7, 35, 18, 136, 32, 308]
#: mirt 1.47: a1, its error, d, its error (SE.type = "Oakes", TOL = 1e-10).
MIRT = {
    "Item.1": (0.9875, 0.1772, 1.8559, 0.1315),
    "Item.2": (1.0808, 0.1688, 0.8080, 0.0912),
    "Item.3": (1.7075, 0.3211, 1.8052, 0.2048),
    "Item.4": (0.7650, 0.1341, 0.4860, 0.0749),
    "Item.5": (0.7357, 0.1511, 1.8545, 0.1144),
}
LOG_LIKELIHOOD = -2658.8051


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The file as R's `write.csv` writes it, its fit, and what was printed."""
    folder = tmp_path_factory.mktemp("lsat7")
    patterns = (np.arange(32)[:, None] >> np.arange(4, -1, -1)) & 1
    rows = np.repeat(patterns, COUNTS, axis=0).tolist()
    with (folder / "lsat7.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["", *MIRT])
        out.writerows([k, *row] for k, row in enumerate(rows, 1))
    done = ok(
        *("fit", folder / "lsat7.csv", "--model", "2pl", "--priors", "none"),
        *("--out", folder / "fitted"),
    )
    return folder, done


def test_the_screen_has_the_table_of_items(fitted):
    folder, done = fitted
    assert "Traceback" not in done.stderr and "1,000 subjects · 5 items" in done.stdout
    for text in (done.stdout, ok("items", folder / "fitted").stdout):
        for name, (slope, slope_error, level, _) in MIRT.items():
            row = re.search(rf"^ {re.escape(name)} +(.*)$", text, re.M)
            assert row is not None
            difficulty, _, slope_shown, error_shown, *_ = map(float, row[1].split()[:4])
            # Two digits are printed.
            assert slope_shown == pytest.approx(slope, abs=0.0051)
            assert error_shown == pytest.approx(slope_error, abs=0.0051)
            assert difficulty == pytest.approx(-level / slope, abs=0.0051)


def test_the_estimates_are_those_of_mirt(fitted):
    folder, _ = fitted
    fit = irtjax.load(folder / "fitted")
    # mirt's 61 nodes and ours integrate to 1e-3 alike.
    assert fit.log_likelihood == pytest.approx(LOG_LIKELIHOOD, abs=2e-3)
    assert fit.aic == pytest.approx(20 - 2 * LOG_LIKELIHOOD, abs=4e-3)
    names = ("discrimination", "discrimination_se", "intercept", "intercept_se")
    for row in fit.items.table.to_pylist():
        found = [row[name] for name in names]
        # The optimum to a hundredth of a standard error; errors to half a percent.
        for value, wanted, step in zip(
            found, MIRT[row["item"]], (2e-3, 2e-3, 2e-3, 1e-3), strict=True
        ):
            assert value == pytest.approx(wanted, abs=step), row["item"]


def test_what_is_typed_in_python_prints_tables(fitted):
    folder, _ = fitted
    fit = irtjax.load(folder / "fitted")
    for shown, lines in ((fit, 40), (fit.items, 12), (fit.abilities, 20)):
        text = str(shown)
        assert "Item.3" in text or "subject" in text
        assert len(text.splitlines()) <= lines and "Table" not in text
        assert max(map(len, text.splitlines())) <= 100
    assert fit.items.to_frame("pandas").shape[0] == 5
    rows = strict(ok("items", folder / "fitted", "--json").stdout)["items"]
    assert [row["item"] for row in rows] == [*MIRT]


def test_scores_are_the_expected_a_posteriori_of_the_pattern(fitted):
    """Against the posterior by the same parameters, on a grid of its own."""
    folder, _ = fitted
    table = irtjax.load(folder / "fitted").abilities.table.to_pylist()
    grid = np.linspace(-6, 6, 1201)
    patterns = (np.arange(32)[:, None] >> np.arange(4, -1, -1)) & 1
    slope, level = (np.array([x[k] for x in MIRT.values()]) for k in (0, 2))
    p = 1 / (1 + np.exp(-(slope * grid[:, None] + level)))
    start = np.cumsum([0, *COUNTS])
    for k, pattern in enumerate(patterns):
        weight = np.where(pattern, p, 1 - p).prod(axis=1) * np.exp(-(grid**2) / 2)
        mean = (grid * weight).sum() / weight.sum()
        # Four digits of the parameters.
        assert table[start[k]]["ability"] == pytest.approx(mean, abs=2e-3)
