"""py-irt as a peer: the skip line, the file that goes out, the order of results."""

import json
import sys
import types

import numpy as np
import pytest

from experiments.cbmm import methods, run, simulations
from experiments.scaling import factors, mirt, peers, pyirt


class Trainer:
    """Stands in for py-irt: mean responses, subjects and items in reversed order."""

    def __init__(self, data_path, config, verbose):
        self.lines = [json.loads(line) for line in data_path.open()]
        self.epochs = config.epochs
        assert config.model_type == "2pl" and not verbose

    def train(self, device):
        assert device == "cpu"
        if self.epochs == 13:
            raise ValueError("no such device")
        subjects = [line["subject_id"] for line in self.lines][::-1]
        items = sorted({j for line in self.lines for j in line["responses"]}, key=int)
        items = items[::-1]
        mean = lambda values: float(np.mean(list(values)))
        of = lambda j: [x["responses"][j] for x in self.lines if j in x["responses"]]
        answers = {line["subject_id"]: line["responses"] for line in self.lines}
        self.last_params = {
            "ability": [mean(answers[s].values()) for s in subjects],
            "disc": [1.0 + int(j) for j in items],
            "diff": [-mean(of(j)) / (1.0 + int(j)) for j in items],
            "item_ids": dict(enumerate(items)),
            "subject_ids": dict(enumerate(subjects)),
        }


@pytest.fixture
def installed(monkeypatch):
    parts = {
        "py_irt.config": types.SimpleNamespace(IrtConfig=types.SimpleNamespace),
        "py_irt.training": types.SimpleNamespace(IrtModelTrainer=Trainer),
    }
    for name, part in parts.items():
        monkeypatch.setitem(sys.modules, name, part)
    monkeypatch.setattr(pyirt, "missing", lambda: None)


def test_without_the_package_it_is_named_and_skipped(monkeypatch):
    monkeypatch.setattr(pyirt.importlib.util, "find_spec", lambda name: None)
    line = "py-irt (variational): not installed, skipped"
    assert pyirt.missing() == line == peers.absent(pyirt.NAME, "")
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))
    assert line in methods.add_peers() and pyirt.NAME not in methods.METHODS


def test_responses_go_out_and_estimates_come_back(installed):
    values = np.array([[1, 0, 1], [1, 1, 0], [0, 0, 1], [1, 0, 0]])
    observed = np.ones(values.shape, bool)
    observed[0, 0] = observed[3, 2] = False
    found = pyirt.fit_pyirt(values, observed)
    assert found.discrimination.tolist() == [1, 2, 3]
    np.testing.assert_allclose(found.intercept, [2 / 3, 1 / 4, 2 / 3])
    np.testing.assert_allclose(found.ability, [1 / 2, 2 / 3, 1 / 3, 1 / 2])
    with pytest.raises(RuntimeError, match=r"\(variational\) failed: no such device"):
        pyirt.fit_pyirt(values, None, 13)
    observed[:, 1] = False
    with pytest.raises(RuntimeError, match="has 4 of 4 subjects and 2 of 3 items"):
        pyirt.fit_pyirt(values, observed)


def test_studies_have_it_where_it_is_installed(installed, monkeypatch):
    few = {"additive": methods.METHODS["additive"]}
    monkeypatch.setattr(methods, "METHODS", few)
    monkeypatch.setattr(simulations, "METHODS", few)
    monkeypatch.setattr(mirt, "missing", lambda: "mirt (R): not here")
    monkeypatch.setattr(run, "prepare", lambda: None)
    rows = run.main(["--small", "--only", "temperature"])["temperature"]
    assert [row["method"] for row in rows] == ["additive", pyirt.NAME]
    assert rows[1]["spearman_theta"] > 0.5 and rows[1]["steps"] == pyirt.EPOCHS


def test_the_case_of_factors_has_peers_that_are_installed(monkeypatch):
    values = (np.random.default_rng(0).random((40, 12)) < 0.5).astype(np.int8)
    sizes = []

    def fit(given):
        sizes.append(given.shape)
        return pyirt.PyIrt(*3 * [np.zeros(1)], seconds=3.0)

    monkeypatch.setattr(factors, "by_call", lambda given: (0.5, None))
    monkeypatch.setattr(pyirt, "missing", lambda: None)
    monkeypatch.setattr(pyirt, "fit_pyirt", fit)
    monkeypatch.setattr(mirt, "missing", lambda: "mirt (R): not here, skipped")
    rows, notes = factors.by_peers(values, {"cells": [8, 12]})
    assert sizes == [(40, 8)] and notes == ["mirt (R): not here, skipped"]
    assert [(x["quantity"], x["value"]) for x in rows] == [
        ("py-irt (variational), 8 items", 3.0),
        ("  over 2pl by mm, whole call", 6.0),
    ]
