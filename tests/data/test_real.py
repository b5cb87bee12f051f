"""Real evaluation data: shapes, missing counts and means as published."""

import numpy as np
import pytest

from irtjax.data import read


@pytest.mark.parametrize(
    ("name", "shape", "missing", "mean", "kind"),
    [
        ("lart/accuracy_math500.parquet", (158, 500), 0, 0.4840, "binary"),
        ("lart/accuracy_amc23.parquet", (156, 40), 0, 0.4002, "binary"),
        ("lart/accuracy_aime24.parquet", (156, 30), 0, 0.1859, "binary"),
        ("metabench/gsm8k_2pl_responses.parquet", (5041, 249), 0, 0.3821, "binary"),
        ("metabench/mmlu_3pl_responses.parquet", (4278, 102), 0, 0.6140, "binary"),
        ("alpacaeval/preference_v2.parquet", (58, 805), 10, 0.1278, "continuous"),
        ("classic/lsat7.parquet", (1000, 5), 0, 0.7414, "binary"),
        ("classic/lsat7_patterns.csv", (1000, 5), 0, 0.7414, "binary"),
        ("classic/science.parquet", (392, 4), 0, 2.917, "ordinal"),
        ("classic/verbagg.parquet", (316, 24), 0, 0.678, "ordinal"),
    ],
)
def test_matrices(shared_data, name, shape, missing, mean, kind):
    table = read(shared_data / name)
    assert table.values.shape == shape
    assert table.values.size - table.num_observed == missing
    # Published to four places, or three: half a unit of the last.
    assert table.values.sum() / table.num_observed == pytest.approx(mean, abs=6e-4)
    assert table.kind == kind


def test_items_as_rows_with_eleven_benchmarks(shared_data):
    table = read(shared_data / "psn_irt/responses_corrected_items_by_models.parquet")
    assert table.values.shape == (12, 41_871)
    assert table.subjects[1] == "DeepSeek-V3"
    assert table.values.size - table.num_observed == 1_255
    names, counts = np.unique(table.benchmarks, return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True))["mmlu"] == 14_042
    assert len(names) == 11
    accuracy = table.item_accuracy()
    # All-wrong and all-right items, as the data's notes count them.
    assert ((accuracy == 0).sum(), (accuracy == 1).sum()) == (673, 2_463)


def test_three_benchmarks_merge_on_their_models(shared_data):
    table = read(str(shared_data / "lart/accuracy_*.parquet"))
    assert table.values.shape == (158, 570)
    # The two models without the smaller benchmarks miss 40 + 30 items each.
    assert table.values.size - table.num_observed == 2 * 70
    assert set(table.benchmarks) == {"math500", "amc23", "aime24"}


def test_lengths_of_a_twin_matrix(shared_data):
    table = read(
        shared_data / "lart/accuracy_math500.parquet",
        length=shared_data / "lart/cot_length_math500.parquet",
    )
    assert table.lengths is not None
    assert (table.lengths == 0).sum() == 4_368
    assert table.lengths.max() == 23_482


def test_long_tables(shared_data):
    path = shared_data / "livecodebench/execution_long.parquet"
    table = read(path)
    with pytest.raises(ValueError, match="2,874 of 17,723 scores are -1, apart from"):
        read(path, response="pass1_cot")
    other = read(path, response="pass1_cot", missing_values=-1)
    assert other.num_subjects * other.num_items - other.num_observed == 2_874
    assert table.values.mean() != other.values.mean()
    assert table.values.shape == (37, 479)
    assert table.values.mean() == pytest.approx(39.92, abs=6e-3)
    ratings = shared_data / "summeval/ratings_long.parquet"
    with pytest.raises(ValueError, match="coherence, consistency, fluency, relevance"):
        read(ratings)
    table = read(ratings, metric="fluency", item=["item", "rater_type", "rater"])
    assert table.values.shape == (12, 800)
    assert table.kind == "ordinal"
    experts = np.char.find(table.items, "expert") >= 0
    assert table.values[:, experts].mean() == pytest.approx(4.608, abs=6e-4)


@pytest.mark.parametrize(
    "name",
    [
        "metabench/gsm8k_2pl_items.parquet",
        "metabench/gsm8k_2pl_abilities.parquet",
        "psn_irt/items.parquet",
    ],
)
def test_parameter_files_are_told_from_responses(shared_data, name):
    with pytest.raises(ValueError, match="looks like a table of fitted parameters"):
        read(shared_data / name)
