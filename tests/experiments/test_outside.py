"""The comparison with packages of R: what is skipped, and its small form."""

import shutil

import pytest

from experiments.outside import (
    classical,
    conditional,
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


def needs(part):
    """Marks a slow test that is skipped where R or a package of it is missing."""
    why = "Rscript is not installed"
    if shutil.which("Rscript") is not None:
        why = rscript.missing(part.PACKAGES)
    return lambda test: pytest.mark.slow(
        pytest.mark.skipif(why is not None, reason=str(why))(test)
    )


@needs(rotations)
def test_rotations_are_those_of_gparotation():
    rows = rotations.main(small=True)
    assert len(rows) == 11
    for row in rows:
        # GPArotation stops at a projected gradient of 1e-8, or after 1,000 steps.
        assert row["criterion"] < 1e-9
        assert row["criterion"] < -1e-6 or row["loadings"] < 1e-5


@needs(classical)
def test_classical_statistics_are_those_of_psych_and_stats():
    for row in classical.main(small=True):
        # psych finds tetrachoric correlations to 2e-5. WLSMV is another estimator.
        bound = {"tetrachoric correlation": 1e-4}.get(row["quantity"], 1e-12)
        assert row["difference"] < (2 if "WLSMV" in row["quantity"] else bound), row


@needs(conditional)
def test_item_fit_is_that_of_erm_and_estimates_are_close():
    for row in conditional.main(small=True):
        exact = "difference" in row["quantity"]
        assert row["largest gap / SE"] < (1e-10 if exact else 0.5), row


@needs(mixed)
def test_laplace_agrees_with_quadrature_and_sampling_in_r():
    rows = {row["quantity"]: row for row in mixed.main(small=True)}
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
