"""Scores of which lower is better are reversed, with a note, or asked for."""

import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.cli.errors import as_options
from irtjax.data.reading.directions import way_of
from irtjax.data.reversal import aligned, bounds_of_values

RNG = np.random.default_rng(0)
#: Mean errors of the models, the best first.
ERRORS = np.array([0.1, 0.2, 0.3, 0.4])


def scores(low=0.0, high=1.0, items=12, digits=3):
    """Errors of four models from low to high, the first of which has the least."""
    noise = RNG.uniform(-0.05, 0.05, size=(4, items))
    return np.round(low + (high - low) * (ERRORS[:, None] + noise), digits)


def long(values, column, **more):
    """A data frame with a row for each score."""
    rows = [(f"m{i}", f"q{j}", x) for (i, j), x in np.ndenumerate(values)]
    return pd.DataFrame(rows, columns=["model", "item", column]).assign(**more)


def order(table):
    """Subjects by their mean values, the best first."""
    return table.subjects[np.argsort(-table.subject_accuracy())].tolist()


BEST_FIRST = ["m0", "m1", "m2", "m3"]


@pytest.mark.parametrize(
    "name",
    """brier_score Brier BrierScore wer WER WER(%) cer mean_wer perplexity
    word_perplexity wikitext_ppl loss val_loss test.loss error error_rate mae RMSE mse
    mean_squared_error mer time_to_solve MeanAbsoluteError latency latency_ms
    p95_latency edit_distance bits_per_byte nll
    negative_log_likelihood hallucination_rate toxicity avg_toxicity ter ece log_loss
    false_positive_rate num_errors word-error-rate cost regret""".split(),
)
def test_known_errors_are_reversed(name):
    assert way_of(name) == "lower"
    table = irtjax.read(long(scores(), name), response=name)
    assert order(table) == BEST_FIRST
    assert table.metric == f"1 - {name}"
    assert set(table.reversed_scores.values()) == {f"1 - {name}"}
    note = f"lower {name} is better: scores are 1 - {name} (higher_is_better='{name}'"
    assert sum(x.startswith(note) for x in table.notes) == 1
    kept = irtjax.read(long(scores(), name), response=name, higher_is_better=name)
    assert order(kept) == BEST_FIRST[::-1] and kept.reversed_scores == {}


@pytest.mark.parametrize(
    "name",
    """score accuracy acc f1 correct is_correct no_error error_free win/loss
    correct_after_error error_detection_accuracy toxicity_detection_f1 loss_recovery
    rouge_l bleu exact_match wer_reduction distress interval interference terse
    persistence neg_log_loss 1-wer brier_skill_score error_handling pass@1 mercy
    toxicity_auroc edit_similarity hosted master maestro lossless""".split(),
)
def test_other_names_are_no_errors(name):
    assert way_of(name) in ("", "higher")
    table = irtjax.read(long(scores(), name), response=name)
    assert order(table) == BEST_FIRST[::-1]
    assert table.reversed_scores == {}


@pytest.mark.parametrize(
    "name",
    """dist io_error q_error my_custom_loss refusal refusal_rate attack_success_rate
    rank failed levenshtein accuracy_drop mean_rank seconds total_time
    price bias mean_bias_error_rate_of_all penalty""".split(),
)
def test_what_may_be_an_error_is_asked_for_and_both_cures_work(tmp_path, name):
    file = tmp_path / "a.csv"
    long(scores(), name).to_csv(file, index=False)
    with pytest.raises(ValueError) as refusal:
        irtjax.read(file, response=name)
    message = as_options(str(refusal.value))
    cures = re.findall(r"--(?:lower|higher)-is-better \S+", message)
    assert len(cures) == 2 and "\n" not in message, message
    for cure in cures:
        words = ["info", str(file), "--response", name, *shlex.split(cure), "--json"]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    assert order(irtjax.read(file, response=name, lower_is_better=name)) == BEST_FIRST


@pytest.mark.parametrize(
    "low, high, digits, c",
    [(0, 1, 3, 1), (0, 5, 2, 0), (1, 5, 0, None), (0, 100, 0, None), (0.5, 90, 1, 0)],
)
def test_how_scores_are_reversed(low, high, digits, c):
    values = scores(low, high, digits=digits)
    table = irtjax.read(long(values, "wer"), response="wer")
    c = values.min() + values.max() if c is None else c
    assert np.allclose(table.values, c - values, atol=1e-12)
    text = f"{c:g} - wer" if c else "-wer"
    assert set(table.reversed_scores.values()) == {text}
    if c > 1:  # Ordered categories stay where they are.
        assert table.values.min() == values.min()
        assert table.values.max() == values.max()


def test_missing_scores_stay_missing_and_repeats_are_averaged():
    values = scores()
    values[0, 3] = np.nan
    table = irtjax.read(long(values, "wer"), response="wer")
    assert (~table.observed).sum() == 1 and not table.observed[0, 3]
    twice = pd.concat([long(values, "wer"), long(values + 0.1, "wer")])
    table = irtjax.read(twice, response="wer", trials="mean")
    assert np.allclose(table.values[1:], 0.95 - values[1:])
    flags = long((values > 0.25).astype(int), "error", trial=1)
    counts = irtjax.read(flags, response="error", trials="counts")
    assert np.array_equal(counts.values, (values <= 0.25) | np.isnan(values))


def test_a_column_of_failed_calls_is_no_response():
    frame = long(1 - scores(), "score", error="", loss=0.5)
    frame.loc[0, "error"] = "timeout"
    table = irtjax.read(frame)
    assert order(table) == BEST_FIRST and table.reversed_scores == {}
    assert table.num_observed == 47


def test_several_metrics_in_one_table(tmp_path):
    good, bad = 1 - scores(), scores(0, 20, digits=2)
    frame = pd.concat(
        [
            long(good, "value", metric="accuracy"),
            long(bad, "value", metric="latency_ms"),
        ]
    )
    for metric in ("accuracy", "latency_ms"):
        table = irtjax.read(frame, metric=metric)
        assert order(table) == BEST_FIRST
    assert table.metric == "-latency_ms"
    both = irtjax.read(frame, benchmark="metric")
    of = both.benchmarks == "latency_ms"
    assert order(both.select(items=of)) == order(both.select(items=~of)) == BEST_FIRST
    assert np.allclose(both.values[:, of], -bad)
    assert {*both.reversed_scores} == {*both.items[of].tolist()}
    # A benchmark may name the metric of general scores.
    named = frame.rename(columns={"metric": "benchmark", "value": "score"})
    again = irtjax.read(named)
    assert np.allclose(again.values, both.values)
    # Written and read again, they are not reversed twice.
    for copy in (irtjax.read(both), irtjax.read(both.to_frame())):
        assert order(copy.select(items=of)) == BEST_FIRST


def test_matrices(tmp_path):
    values = scores(0, 3, items=3, digits=2)
    columns = ["mmlu_accuracy", "wikitext_perplexity", "loss"]
    frame = pd.DataFrame(values, columns=columns)
    frame.insert(0, "model", BEST_FIRST)
    table = irtjax.read(frame)
    assert np.allclose(table.values, values * [1, -1, -1])
    assert {*table.reversed_scores} == {*columns[1:]}
    # The metric of all columns.
    whole = frame.set_axis(["model", "x", "y", "z"], axis=1)
    assert order(irtjax.read(whole, metric="wer")) == BEST_FIRST
    assert order(irtjax.read(whole, lower_is_better="*")) == BEST_FIRST
    one = irtjax.read(whole, lower_is_better="y")
    assert np.allclose(one.values, values * [1, -1, 1])
    # Right or wrong responses to an item of such a name, and ratings by one word.
    binary = frame.assign(**dict.fromkeys(columns, [1, 0, 1, 1]))
    assert irtjax.read(binary).reversed_scores == {}
    ratings = frame.assign(**dict.fromkeys(columns[::2], [1, 3, 2, 4]))
    assert {*irtjax.read(ratings).reversed_scores} == {"wikitext_perplexity"}


def test_matrices_in_several_files_have_one_formula(tmp_path):
    values = scores(1, 9, digits=0)
    for k, part in enumerate((values[:2], values[2:])):
        frame = pd.DataFrame(part, columns=[f"q{j}" for j in range(12)])
        frame.insert(0, "model", BEST_FIRST[2 * k : 2 * k + 2])
        frame.to_csv(tmp_path / f"{k}.csv", index=False)
    table = irtjax.read(tmp_path, metric="edit_distance")
    assert np.array_equal(table.values, values.min() + values.max() - values)


def test_options_that_name_nothing_are_refused():
    frame = long(scores(), "score")
    for option in ("lower_is_better", "higher_is_better"):
        with pytest.raises(ValueError, match=f"{option}='ms' names no metric.*: score"):
            irtjax.read(frame, **{option: "ms"})
    assert order(irtjax.read(frame, lower_is_better="score")) == BEST_FIRST
    assert order(irtjax.read(frame, lower_is_better=["sc*"])) == BEST_FIRST


def test_a_log_against_the_name_is_asked_for(tmp_path):
    from tests.data.test_lm_eval import DATE, sample, write_log

    write_log(tmp_path, "a", [sample(k, 0.2, metric="ter") for k in range(3)])
    totals = {"results": {"t": {}}, "higher_is_better": {"t": {"ter": True}}}
    (tmp_path / "a" / f"results_{DATE}.json").write_text(json.dumps(totals))
    with pytest.raises(ValueError, match="log states that higher is better, against"):
        irtjax.read(tmp_path)
    lower = irtjax.read(tmp_path, lower_is_better="ter")
    assert np.allclose(lower.values, 0.8)
    assert np.allclose(irtjax.read(tmp_path, higher_is_better="ter").values, 0.2)


def test_saved_tables_keep_their_directions(tmp_path):
    table = irtjax.read(long(scores(), "wer"), response="wer")
    for ending in ("json", "parquet"):
        path = table.save(tmp_path / f"t.{ending}")
        again = irtjax.read(path)
        assert again.reversed_scores == table.reversed_scores
        assert np.array_equal(again.values, table.values)
        assert again.data_hash() == table.data_hash()
    part = table.select(items=table.items[:2])
    assert [*part.reversed_scores] == part.items.tolist()


def test_tables_take_the_directions_of_others():
    raw = irtjax.read(long(scores(), "wer"), response="wer", higher_is_better="wer")
    table = irtjax.read(long(scores(), "wer"), response="wer")
    items = table.items.tolist()
    there = aligned(raw, table.reversed_scores, items)
    assert np.allclose(there.values, 1 - raw.values)
    back = aligned(there, {}, items)
    assert np.allclose(back.values, raw.values) and back.reversed_scores == {}
    other = aligned(there, dict.fromkeys(items, "-wer"), items)
    assert np.allclose(other.values, -raw.values)
    # One that was not read is taken as it is.
    plain = irtjax.ResponseTable.from_arrays(raw.values, items=items)
    assert aligned(plain, table.reversed_scores, items) is plain
    # And a matrix merged with it has one formula for each item.
    merged = irtjax.read([table, back.replace(subjects=np.array(["a", "b", "c", "d"]))])
    assert np.allclose(merged.values[4:], 1 - back.values)


def test_bounds_are_those_of_reported_scores():
    table = irtjax.read(long(scores(0, 60, digits=1), "latency"), response="latency")
    assert bounds_of_values(table, (0, 60)) == (-60, 0)
    assert bounds_of_values(table, (-60, 0)) == (0, 60)
    frame = pd.concat(
        [
            long(scores(0, 60, digits=1), "score", benchmark="latency"),
            long(scores(), "score", benchmark="quiz"),
        ]
    )
    mixed = irtjax.read(frame)
    expected = {"latency": (-60.0, 0.0), "quiz": (0.0, 60.0)}
    assert bounds_of_values(mixed, (0, 60)) == expected
    with pytest.raises(ValueError, match="score 2[0-9.]* is not between 0 and 20"):
        irtjax.fit(table, bounds=(0, 20))


def test_errors_of_the_shared_case(shared_cases):
    path = shared_cases / "C37/brier.csv"
    table = irtjax.read(path, response="brier_score")
    assert order(table)[0] == "org-a/alpha-70b"
    assert table.subject_accuracy().max() == pytest.approx(0.89, abs=0.005)
