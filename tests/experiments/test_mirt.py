"""R's mirt as a peer: the skip line, the script, the files and what is read back."""

import os
import re
import sys

import numpy as np
import pytest

from experiments.cbmm import methods, run, simulations
from experiments.scaling import mirt, peers

#: Stands in for Rscript: slopes 1, 2, ... (turned round by the last argument), mean
#: responses as intercepts and abilities.
FAKE = """#!{python}
import csv, pathlib, sys
if sys.argv[1] == "-e":
    assert 'requireNamespace("mirt"' in sys.argv[2]
    sys.exit({absent})
script, responses, items, abilities, cycles = sys.argv[1:]
assert "library(mirt)" in pathlib.Path(script).read_text()
header, *rows = csv.reader(open(responses))
if cycles == "13":
    print("noise", file=sys.stderr)
    sys.exit("Error: too few categories\\nCalls: f\\nExecution halted")
known = lambda cells: [float(x) for x in cells if x != "NA"]
mean = lambda cells: sum(known(cells)) / len(known(cells))
with open(items, "w") as file:
    print('"a1","d"', file=file)
    for k, column in enumerate(zip(*rows)):
        print({sign} * (k + 1), mean(column), sep=",", file=file)
with open(abilities, "w") as file:
    print('"theta"', *({sign} * mean(row) for row in rows), sep="\\n", file=file)
print("RESULT", 0.5, int(cycles) - 1, "TRUE", "")
"""


def install(folder, monkeypatch, absent=0, sign=1):
    path = folder / "Rscript"
    path.write_text(FAKE.format(python=sys.executable, absent=absent, sign=sign))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_without_r_the_peer_is_named_and_skipped(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    line = "mirt (R): Rscript is not installed, skipped"
    assert mirt.missing() == line == peers.absent(mirt.NAME, "")
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))
    lines = methods.add_peers()
    assert lines[0] == line and mirt.NAME not in methods.METHODS


def test_without_the_package_too(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, absent=1)
    assert mirt.missing() == "mirt (R): the R package mirt is not installed, skipped"


def test_responses_go_out_and_estimates_come_back(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch)
    assert mirt.missing() is None
    values = np.array([[1, 0, 1], [1, 1, 0], [0, 0, 1], [1, 0, 0]])
    observed = np.ones(values.shape, bool)
    observed[0, 0] = observed[3, 2] = False
    found = mirt.fit_mirt(values, observed, 20)
    assert found.discrimination.tolist() == [1, 2, 3]
    np.testing.assert_allclose(found.intercept, [2 / 3, 1 / 4, 2 / 3])
    np.testing.assert_allclose(found.ability, [1 / 2, 2 / 3, 1 / 3, 1 / 2])
    assert (found.seconds, found.cycles, found.converged) == (0.5, 19, True)
    with pytest.raises(RuntimeError, match=r"mirt \(R\) failed: Error: too few"):
        mirt.fit_mirt(values, None, 13)
    with pytest.raises(RuntimeError, match="printed no result"):
        mirt.parse("")


def test_the_script_has_four_arguments_and_is_whole():
    used = {int(k) for k in re.findall(r"args\[(\d)\]", mirt.SCRIPT)}
    assert used == {1, 2, 3, 4}
    for left, right in ("()", "[]"):
        assert mirt.SCRIPT.count(left) == mirt.SCRIPT.count(right)
    assert 'itemtype = "2PL"' in mirt.SCRIPT and 'method = "EAP"' in mirt.SCRIPT
    assert mirt.SCRIPT.isascii() and mirt.SCRIPT.count('"') % 2 == 0


def test_studies_have_it_where_it_is_installed(tmp_path, monkeypatch, capsys):
    install(tmp_path, monkeypatch, sign=-1)
    few = {"additive": methods.METHODS["additive"]}
    monkeypatch.setattr(methods, "METHODS", few)
    monkeypatch.setattr(simulations, "METHODS", few)
    monkeypatch.setattr(run, "prepare", lambda: None)
    rows = run.main(["--small", "--only", "temperature"])["temperature"]
    # Reversed signs are turned.
    other, row = rows
    assert (
        other["method"] == "additive"
        and row["method"] == mirt.NAME
        and row["spearman_theta"] > 0.5
    )
    assert row["steps"] == methods.MOST_STEPS - 1 and row["gradient"] is None
    assert f"{mirt.NAME}: " not in capsys.readouterr().out
    monkeypatch.setattr(methods, "MOST_STEPS", 13)
    more = ["--method", mirt.NAME]
    (row,) = run.main(["--small", "--only", "temperature", *more])["temperature"]
    assert row["status"] == "mirt (R) failed: Error: too few categories"


@pytest.mark.slow
def test_the_peer_is_timed_inside_r(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch)
    kept = {mirt.NAME: peers.PEERS[mirt.NAME]}
    monkeypatch.setattr(peers, "PEERS", kept)
    result = peers.measure({"subjects": 100, "items": 12})
    values = {row["quantity"]: row["value"] for row in result["rows"]}
    assert values[mirt.NAME] == 0.5 and not result["notes"]
    assert "mirt (R) / irtjax em, second call" in values
