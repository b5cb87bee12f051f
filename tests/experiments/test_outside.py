"""The comparison with packages of R: what is skipped, and its small form."""

import os

import numpy as np
import pytest

import irtjax
from experiments.outside import (
    claims,
    classical,
    conditional,
    data,
    mixed,
    rotations,
    rscript,
    run,
)


def test_without_r_every_part_is_named_and_skipped(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run.main([]) == {}
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{x}: Rscript is not installed, skipped" for x in run.PARTS]


def rows_of(part):
    """Rows of a part's small form; skips where R or a package of it is missing."""
    # Asked in the test: to load the packages of all parts takes seconds.
    if (why := rscript.missing(part.PACKAGES)) is not None:
        pytest.skip(why)
    return part.main(small=True)


def fake_r(tmp_path, monkeypatch, body):
    """Puts a program of this body in the place of Rscript."""
    path = tmp_path / "Rscript"
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def test_warnings_of_r_are_printed(tmp_path, monkeypatch, capsys):
    fake_r(tmp_path, monkeypatch, "echo 'failed to converge' >&2; echo '{\"x\": 1}'")
    assert rscript.call("mixed.R", {}) == {"x": 1}
    assert capsys.readouterr().err == "mixed.R: failed to converge\n"


def test_a_script_of_r_that_hangs_is_stopped(tmp_path, monkeypatch):
    fake_r(tmp_path, monkeypatch, "exec sleep 20")
    with pytest.raises(RuntimeError, match=r"mixed\.R failed: over 0\.1 seconds"):
        rscript.call("mixed.R", {}, limit=0.1)


def test_data_that_are_missing_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(data, "SHARED", tmp_path)
    assert data.classic("lsat7") is None and data.evaluations(3) is None
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and said[0].endswith("lsat7.parquet is not there, skipped")


@pytest.mark.slow
def test_rotations_are_those_of_gparotation():
    rows = rows_of(rotations)
    assert len(rows) == 11
    for row in rows:
        # GPArotation stops at a projected gradient of 1e-8, or after 1,000 steps.
        assert row["criterion"] < 1e-9
        assert row["criterion"] < -1e-6 or row["loadings"] < 1e-5


@pytest.mark.slow
def test_classical_statistics_are_those_of_psych_and_stats():
    for row in rows_of(classical):
        # psych finds tetrachoric correlations to 2e-5. WLSMV is another estimator.
        bound = {"tetrachoric correlation": 1e-4}.get(row["quantity"], 1e-12)
        assert row["difference"] < (2 if "WLSMV" in row["quantity"] else bound), row


@pytest.mark.slow
def test_item_fit_is_that_of_erm_and_estimates_are_close():
    for row in rows_of(conditional):
        exact = "difference" in row["quantity"]
        assert row["largest gap / SE"] < (1e-10 if exact else 0.5), row


@pytest.mark.slow
def test_laplace_agrees_with_quadrature_and_sampling_in_r():
    rows = {row["quantity"]: row for row in rows_of(mixed)}
    height = rows["log-likelihood"]
    assert abs(height["irtjax"] - height["R"]) < 0.1
    for name in ("SD of abilities", "SD of items"):
        assert rows[name]["irtjax"] == pytest.approx(rows[name]["R"], rel=0.02)
    # 4,000 draws of 8 abilities are exact to about a tenth of a standard error.
    gap = rows["abilities: largest gap / SE"]
    assert gap["irtjax"] < 0.2 < gap["lme4"]
    for which in ("least", "largest"):
        ratio = rows[f"errors of differences, {which} ratio"]["irtjax"]
        assert ratio == pytest.approx(1, abs=0.25)
    assert rows["pairs decided otherwise"]["irtjax"] <= 2


def test_verdicts_are_those_of_other_packages():
    """Of clear differences and of equal systems; the packages are not installed here
    by default (`experiments/outside/README.md`)."""
    pytest.importorskip("honestboard")
    pytest.importorskip("claimeval")
    rng = np.random.default_rng(0)
    right = rng.random((6, 120)) < np.array([[0.9], [0.9], [0.6], [0.6], [0.3], [0.3]])
    names = [f"s{k}" for k in range(6)]
    table = irtjax.ResponseTable.from_arrays(right.astype(int), subjects=names)
    for row in claims.rows_of(table):
        if "P ≥ .9" in row["claim and rule"] or "mcb" in row["claim and rule"]:
            continue
        assert row["irtjax alone"] + row["other alone"] <= 1, row
