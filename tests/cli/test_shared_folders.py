"""A command never replaces the files of another one in its `--out` folder."""

import itertools

import pytest
from typer.testing import CliRunner

from irtjax.cli import (
    adapt,
    arena,
    audit,
    clusters,
    cold_start,
    compare_models,
    correlates,
    dif,
    dimensions,
    fit_statistics,
    forecast,
    generalise,
    horizons,
    joint,
    judges,
    link,
    network,
    rasch,
    reliability,
    shrink,
    stability,
)
from irtjax.cli.app import app
from irtjax.cli.output import SHARED, check_out_folder
from irtjax.harness import lm_eval
from irtjax.storage import FIT_FILES, RUN_FILES, STRUCTURE_FILES

#: All names that a command writes into the folder of `--out`.
NAMES = {
    "fit": (*FIT_FILES, *STRUCTURE_FILES),
    "audit": (
        *(*audit.FILES, *audit.FLAGGED, *audit.CLEAN, audit.CONTROL),
        *audit.FIGURES,
    ),
    "shrink": (*shrink.SUBSET_FILES, *shrink.ERROR_FILES, "report.html"),
    "compare": ("report.html",),
    "run": (*FIT_FILES, *STRUCTURE_FILES, *RUN_FILES),
    "adapt": adapt.FILES,
    "arena": arena.WRITTEN,
    "joint": (*joint.TABLES, joint.FIGURE),
    "judges": tuple(judges.TABLES.values()),
    "adapt --harness": (lm_eval.SETTINGS, lm_eval.TEST, "table.md", "adapt.csv"),
    "stability": (*stability.TABLES, stability.FIGURE),
    "reliability": (*reliability.TABLES, reliability.BY_ABILITY),
    "correlates": (*correlates.TABLES, correlates.FIGURE),
    "forecast": forecast.TABLES,
    "cold-start": cold_start.TABLES,
    "generalise": (*generalise.TABLES, generalise.FIGURE),
    "compare-models": (*compare_models.TABLES, compare_models.FIGURE),
    "horizons": horizons.TABLES,
    "dif": dif.TABLES,
    "link": (*link.TABLES, link.EQUATED),
    "rasch": (*rasch.TABLES, rasch.FIGURE),
    "fit-statistics": fit_statistics.TABLES,
    "network": network.TABLES,
    "clusters": (*clusters.TABLES, *clusters.FIGURES),
    "dimensions": (dimensions.TABLE, dimensions.FIGURE),
}


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(NAMES, 2)])
def test_a_command_is_refused_the_folder_of_another_that_it_would_damage(
    first, second, tmp_path
):
    common = set(NAMES[first]) & set(NAMES[second])
    marks, shared = SHARED.get(first, ((), ()))
    # A run writes all that a fit does.
    assert common <= set(shared) or not common or {first, second} == {"fit", "run"}
    for name in marks or NAMES[first]:
        (tmp_path / name).touch()
    if first == "audit":  # An audit has its page too.
        (tmp_path / "report.html").touch()
    if common:
        with pytest.raises(ValueError, match=f"`irtjax {second}` would replace"):
            check_out_folder(tmp_path, NAMES[second], second)
    else:
        check_out_folder(tmp_path, NAMES[second], second)


@pytest.mark.parametrize("name", sorted(SHARED))
def test_a_command_replaces_its_own_files(name, tmp_path):
    for file in NAMES[name]:
        (tmp_path / file).write_text("earlier")
    check_out_folder(tmp_path, NAMES[name], name)
    # The check writes nothing itself, and the files of another are still refused.
    assert {file.read_text() for file in tmp_path.iterdir()} == {"earlier"}
    with pytest.raises(ValueError, match=f"`irtjax {name}`|another page") as refused:
        check_out_folder(tmp_path, NAMES[name], "another command")
    assert "`irtjax another command` would replace" in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        "audit r.csv",
        "shrink r.csv --size 3",
        "compare a b --fit fit",
        "run r.csv --overwrite",
    ],
)
def test_the_folder_of_a_fit_keeps_its_page(words, tmp_path):
    """`audit --fit fit --out fit` replaced the item parameters of the fit."""
    (tmp_path / "fit.json").write_text("{}")
    result = CliRunner().invoke(app, [*words.split(), "--out", str(tmp_path)])
    assert result.exit_code == 2
    message = result.stderr.replace("\n", "")
    assert f"choose another folder, such as {tmp_path / words.split()[0]}" in message


@pytest.mark.parametrize("words", ["fit r.csv", "demo"])
def test_fit_does_not_replace_the_files_of_another_command(words, tmp_path):
    """`fit --overwrite` replaced the tables and the page of an audit."""
    for name in ("items.csv", "benchmarks.csv", "summary.md", "report.html"):
        (tmp_path / name).write_text("audit")
    words = [*words.split(), "--out", str(tmp_path), "--overwrite"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    message = result.stderr.replace("\n", "")
    who = f"`irtjax {words[0]}`"
    assert f"has files of `irtjax audit`, and {who} would replace" in message
    assert f"choose another folder, such as {tmp_path / words[0]}" in message
    assert (tmp_path / "items.csv").read_text() == "audit"
