"""Accuracy and lengths of real models: EM and SAEM agree."""

import numpy as np
import pytest

import irtjax


@pytest.mark.parametrize(
    ("name", "correlation"),
    [
        pytest.param("amc23", -0.84, marks=pytest.mark.slow),
        pytest.param("aime24", -0.89, marks=pytest.mark.slow),
        pytest.param("math500", -0.70, marks=pytest.mark.slow),
    ],
)
def test_em_and_saem_agree(shared_data, name, correlation):
    folder = shared_data / "lart"
    lengths = folder / f"cot_length_{name}.parquet"
    table = irtjax.read(folder / f"accuracy_{name}.parquet", length=lengths)
    exact, random = (
        irtjax.fit(table, "lart", method, standard_errors="none")
        for method in ("em", "saem")
    )
    rho, other = (float(f.parameters.lengths.correlation) for f in (exact, random))
    assert rho == pytest.approx(correlation, abs=0.005)
    assert abs(rho - other) <= 0.02
    assert random.log_likelihood == pytest.approx(exact.log_likelihood, rel=5e-4)
    abilities = [
        dict(
            zip(
                fit.abilities.table.column("subject").to_pylist(),
                fit.abilities.table.column("ability").to_pylist(),
                strict=True,
            )
        )
        for fit in (exact, random)
    ]
    pairs = np.array([[a[s] for a in abilities] for s in table.subjects.tolist()])
    assert np.corrcoef(pairs.T)[0, 1] >= 0.999
