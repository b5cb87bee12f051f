"""Logs of efficient-lm-eval (LEGO-IRT), and all metrics of a log at once."""

import json
from pathlib import Path

import numpy as np
import pytest

import irtjax
from irtjax.data.reading.recognise import identify

LOGS = Path(__file__).parent.parent / "fixtures" / "efficient_lm_eval"


def test_choices_are_read_by_dataset_and_sample():
    table = irtjax.read(LOGS / "choices.jsonl")
    assert table.subjects.tolist() == ["toy/alpha-1b", "toy/beta-2b", "gamma-3b"]
    assert table.items.tolist() == [f"{d}/{k}" for d in ("CSQA", "MMLU") for k in "012"]
    assert table.values.tolist() == [
        *([0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1])
    ]
    assert table.kind == "binary" and table.metric == "is_correct"
    assert table.item_texts["CSQA/1"].prompt == "Which toy is number 1?"
    assert table.item_texts["MMLU/1"].answer == "A"


def test_of_several_metrics_the_usual_one_is_read_and_named():
    table = irtjax.read(LOGS / "xsum.jsonl")
    assert table.metric == "bleu" and table.num_items == 4
    assert any("bleu, not rouge1, bertscore_F1" in note for note in table.notes)
    other = irtjax.read(LOGS / "xsum.jsonl", metric="rouge1")
    assert other.values[2].tolist() == pytest.approx([0.46, 0.48, 0.5, 0.52])


def test_the_column_names_that_the_package_fits(tmp_path):
    """As its examples rename them: model_id and benchmark, with or without payload."""
    path = tmp_path / "renamed.jsonl"
    rows = [json.loads(line) for line in (LOGS / "xsum.jsonl").open()]
    keys = {"key": "key", "request_model": "model_id", "metric": "metric"}
    keys |= {"dataset": "benchmark"}
    path.write_text(
        "\n".join(json.dumps({new: r[old] for old, new in keys.items()}) for r in rows)
    )
    assert identify(path).format == "efficient_lm_eval"
    table = irtjax.read(path)
    np.testing.assert_array_equal(table.values, irtjax.read(LOGS / "xsum.jsonl").values)
    assert table.items[0] == "XSUM/84a3-0" and set(table.benchmarks) == {"XSUM"}


def test_a_failed_call_has_no_score_and_is_named(tmp_path):
    path = tmp_path / "failed.jsonl"
    rows = [json.loads(line) for line in (LOGS / "choices.jsonl").open()]
    rows[0]["metric"] = None
    path.write_text("\n".join(map(json.dumps, rows)))
    table = irtjax.read(path)
    assert table.num_observed == 17
    assert any("1 record without a score was left out" in x for x in table.notes)


def test_every_metric_is_a_benchmark_and_outputs_are_stems():
    table = irtjax.read(LOGS / "xsum.jsonl", metric="all")
    names = ["bleu", "rouge1", "bertscore_F1"]
    assert list(dict.fromkeys(table.benchmarks.tolist())) == names
    assert table.items[:5].tolist() == [
        *(f"bleu/XSUM/{k}" for k in (15, 16, 17, 18)),
        "rouge1/XSUM/15",
    ]
    for name in names:
        mine = table.values[:, table.benchmarks == name]
        one = irtjax.read(LOGS / "xsum.jsonl", metric=name)
        np.testing.assert_array_equal(mine, one.values)
    assert table.item_texts["rouge1/XSUM/15"].answer == "Article 0 in a line."
    assert any("3 metrics were read" in note for note in table.notes)


def test_a_benchmark_of_one_metric_keeps_its_items():
    table = irtjax.read(LOGS, metric="all")
    assert set(table.benchmarks.tolist()) == {
        *("CSQA", "MMLU", "XSUM/bleu", "XSUM/rouge1", "XSUM/bertscore_F1")
    }
    assert {"MMLU/0", "XSUM/bleu/XSUM/15"} <= set(table.items.tolist())
    alone = irtjax.read(LOGS / "choices.jsonl", metric="all")
    usual = irtjax.read(LOGS / "choices.jsonl")
    assert alone.items.tolist() == usual.items.tolist()
    np.testing.assert_array_equal(alone.values, usual.values)


def test_all_metrics_of_a_table_and_their_directions(tmp_path):
    path = tmp_path / "long.csv"
    rows = ["model,item,metric,score"]
    for i, model in enumerate("abc"):
        rows += [f"{model},q{k},wer,{0.1 * i + 0.05 * k:.2f}" for k in range(4)]
        rows += [f"{model},q{k},bleu,{0.2 * i + 0.05 * k:.2f}" for k in range(4)]
    path.write_text("\n".join(rows))
    table = irtjax.read(path, metric="all")
    assert set(table.benchmarks.tolist()) == {"wer", "bleu"}
    # Of word error rates lower is better.
    wer = table.values[:, table.benchmarks == "wer"]
    np.testing.assert_allclose(wer[1], 0.9 - 0.05 * np.arange(4))


def test_a_metric_of_that_name_is_read_alone(tmp_path):
    path = tmp_path / "named.csv"
    rows = [f"{m},q{k},{x},{k % 2}" for m in "ab" for k in (1, 2) for x in ("all", "f")]
    path.write_text("model,item,metric,score\n" + "\n".join(rows))
    table = irtjax.read(path, metric="all")
    assert table.metric == "all" and table.num_items == 2


def test_one_metric_alone_refuses_the_model_of_several_and_names_the_cure():
    table = irtjax.read(LOGS / "xsum.jsonl")
    with pytest.raises(ValueError, match="metric='all'"):
        irtjax.fit(table, "multimetric")


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_a_log_that_is_cut_off_is_named(tmp_path, share):
    content = (LOGS / "xsum.jsonl").read_bytes()
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"metrics\.jsonl"):
        irtjax.read(path)
