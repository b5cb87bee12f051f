"""Saving and loading: equal to the last bit, whole or not at all, no pickle."""

import dataclasses
import io
import json
import math
import shutil
import zipfile

import jax
import numpy as np
import pytest

import irtjax
from irtjax.data.item_texts import ItemText
from irtjax.models.catalogue import BINARY_MODELS, ORDERED_MODELS, weak_priors
from irtjax.models.families.graded import Graded
from irtjax.storage import encoding, folder
from tests.small_fits import small_fit, small_table


def assert_equal(one: irtjax.Calibration, two: irtjax.Calibration) -> None:
    leaves, tree = jax.tree.flatten(one.parameters)
    others, other_tree = jax.tree.flatten(two.parameters)
    assert tree == other_tree
    for a, b in zip(leaves, others, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)
    assert one.items.table.equals(two.items.table)
    assert one.abilities.table.equals(two.abilities.table)
    for name in (
        "subject_names",
        "item_names",
        "benchmarks",
        "trace",
        "item_covariance",
        "ability_shared",
    ):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    for name in (
        *("status", "num_steps", "log_likelihood", "log_prior", "num_parameters"),
        *("num_observed", "aic", "bic", "warnings", "notes", "options", "versions"),
        *("data_hash", "timings", "resolution", "level", "residual"),
    ):
        assert getattr(one, name) == getattr(two, name), name
    assert encoding.encode(one.model) == encoding.encode(two.model)


@pytest.mark.parametrize(
    "model", ["rasch", "2pl", pytest.param("4pl", marks=pytest.mark.slow)]
)
def test_a_loaded_fit_equals_the_saved_one(tmp_path, model):
    fit = small_fit(model)
    assert_equal(irtjax.load(irtjax.save(fit, tmp_path / "fit")), fit)


def test_texts_of_items_are_saved_and_go_with_the_fit(tmp_path):
    fit = small_fit("rasch")
    texts = {str(fit.item_names[0]): ItemText("<b>\x1b[31m\n", "a", "b", 2)}
    place = irtjax.save(dataclasses.replace(fit, item_texts=texts), tmp_path / "fit")
    assert irtjax.load(place).item_texts == texts
    (place / "item_texts.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(ValueError, match=r"is damaged: item_texts\.parquet"):
        irtjax.load(place)
    irtjax.save(fit, place)
    assert irtjax.load(place).item_texts == {}
    logged = dataclasses.replace(small_table(), item_texts=texts)
    contents = {"b0/q0": "lm-eval:5e"}
    logged = dataclasses.replace(logged, item_contents=contents)
    fit = irtjax.fit(logged, "rasch", standard_errors="none")
    assert (fit.item_texts, fit.item_contents) == (texts, contents)


@pytest.mark.slow
def test_a_loaded_joint_fit_keeps_its_abilities(tmp_path):
    fit = small_fit("2pl", "mm")
    assert fit.parameters.theta is not None
    assert_equal(irtjax.load(irtjax.save(fit, tmp_path / "fit")), fit)


@pytest.mark.slow
def test_a_loaded_graded_fit_keeps_its_thresholds(tmp_path):
    random = np.random.default_rng(0)
    steps = np.linspace(-1, 1, 40)[:, None] + random.logistic(size=(40, 6))
    values = (steps > -0.7).astype(int) + (steps > 0.7)
    family = Graded(3)
    model = irtjax.Model("graded", family, weak_priors(family))
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(table, model, standard_errors="none")
    loaded = irtjax.load(irtjax.save(fit, tmp_path / "fit"))
    assert loaded.parameters.items.intercept.shape == (6, 2)
    assert_equal(loaded, fit)


def test_float32_stays_float32(tmp_path):
    fit = irtjax.fit(small_table(), "2pl", dtype=np.float32, standard_errors="none")
    loaded = irtjax.load(irtjax.save(fit, tmp_path / "fit"))
    assert loaded.parameters.items.intercept.dtype == np.float32
    assert_equal(loaded, fit)


@pytest.mark.parametrize("name", sorted(BINARY_MODELS | ORDERED_MODELS))
def test_every_named_model_survives_encoding(name):
    model = ORDERED_MODELS[name](3) if name in ORDERED_MODELS else BINARY_MODELS[name]()
    assert encoding.decode(json.loads(json.dumps(encoding.encode(model)))) == model


def test_only_known_classes_are_made_from_a_file():
    with pytest.raises(ValueError, match="no model part is called 'Popen'"):
        encoding.decode({"class": "Popen", "args": "true"})
    with pytest.raises(ValueError, match="a int cannot be saved"):
        encoding.encode(3)


def test_json_is_strict_and_the_tables_hold_no_infinity(tmp_path):
    place = irtjax.save(small_fit(), tmp_path / "fit")

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    content = json.loads((place / "fit.json").read_text(), parse_constant=refuse)
    assert content["status"]["name"] == "converged"
    for name in ("items", "abilities"):
        text = (place / f"{name}.csv").read_text().lower()
        assert "nan" not in text.replace("_nan", "") and "inf" not in text
    header = (place / "items.csv").read_text().splitlines()[0].replace('"', "")
    assert header.split(",")[:15] == [
        *("item", "benchmark", "discrimination", "discrimination_se", "intercept"),
        *("intercept_se", "difficulty", "difficulty_se", "lower_asymptote"),
        *("lower_asymptote_se", "upper_asymptote", "upper_asymptote_se"),
        *("accuracy", "observed", "flags"),
    ]


def test_what_is_not_finite_becomes_null():
    assert encoding.plain({"x": math.inf, "y": [math.nan, 1.5]}) == {
        "x": None,
        "y": [None, 1.5],
    }


def test_nothing_is_written_when_something_fails(tmp_path):
    def fail(place):
        (place / "half.txt").write_text("half")
        raise RuntimeError("no more figures")

    with pytest.raises(RuntimeError):
        irtjax.save(small_fit(), tmp_path / "new", extras=[fail])
    assert list(tmp_path.iterdir()) == []

    place = irtjax.save(small_fit("rasch"), tmp_path / "old")
    before = {p.name: p.read_bytes() for p in place.iterdir()}
    with pytest.raises(RuntimeError):
        irtjax.save(small_fit(), place, extras=[fail])
    assert {p.name: p.read_bytes() for p in place.iterdir()} == before


def test_a_new_fit_replaces_an_old_one_and_leaves_other_files(tmp_path):
    place = irtjax.write_report(small_fit("rasch"), tmp_path / "fit")
    (place / "my_notes.txt").write_text("mine")
    irtjax.save(small_fit(), place)
    assert irtjax.load(place).model.name == "2pl"
    assert (place / "my_notes.txt").read_text() == "mine"
    # Figures of the old fit would be wrong beside the new one.
    assert not (place / "abilities.png").exists()
    assert not [p for p in place.iterdir() if p.name.startswith(".irtjax")]


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(ValueError, match="holds something other than an irtjax fit"):
        irtjax.save(small_fit(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["precious.txt"]
    irtjax.save(small_fit(), tmp_path, overwrite=True)
    assert (tmp_path / "precious.txt").read_text() == "x"
    assert irtjax.load(tmp_path).num_steps == small_fit().num_steps


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file"):
        irtjax.save(small_fit(), tmp_path / "file")
    with pytest.raises(ValueError, match="cannot write to"):
        irtjax.save(small_fit(), tmp_path / "file" / "below")


def damage_version(place):
    content = json.loads((place / "fit.json").read_text())
    (place / "fit.json").write_text(json.dumps({**content, "version": 99}))


def damage_format(place):
    (place / "fit.json").write_text('{"format": "something else"}')


def damage_model(place):
    content = json.loads((place / "fit.json").read_text())
    content["model"]["class"] = "Evil"
    (place / "fit.json").write_text(json.dumps(content))


def damage_key(place):
    content = json.loads((place / "fit.json").read_text())
    del content["bic"]
    (place / "fit.json").write_text(json.dumps(content))


def damage_pickle(place):
    arrays = dict(np.load(place / "parameters.npz"))
    np.savez(place / "parameters.npz", **{**arrays, "trace": np.array([{}])})


def damage_rows(place):
    import pyarrow.parquet as pq

    table = pq.read_table(place / "items.parquet")
    pq.write_table(table.slice(1), place / "items.parquet")


def truncate(name):
    def damage(place):
        data = (place / name).read_bytes()
        (place / name).write_bytes(data[: len(data) // 2])

    return damage


def recode(file, name):
    """Names of a table in a file become bytes that are not UTF-8."""

    def damage(place):
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(place / file)
        names = pa.array([b"\xff"] * table.num_rows).view(pa.string())
        k = table.column_names.index(name)
        pq.write_table(table.set_column(k, name, names), place / file)

    return damage


def damage_names(place):
    arrays = dict(np.load(place / "parameters.npz"))
    arrays["item_names"][3] = "\ud800"
    np.savez(place / "parameters.npz", **arrays)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "no such folder"),
        (lambda p: (p / "fit.json").unlink(), "has no fit.json"),
        (damage_version, "newer irtjax .format 99.*upgrade"),
        (damage_format, "was not written by irtjax"),
        (damage_model, "no model part is called 'Evil'"),
        (damage_key, "no field 'bic'"),
        (damage_pickle, "damaged.*pickle"),
        (damage_rows, "items.parquet has 14 rows, but parameters.npz has 15"),
        (lambda p: (p / "parameters.npz").unlink(), "parameters.npz is missing"),
        (lambda p: (p / "abilities.parquet").unlink(), "abilities.parquet is missing"),
        (truncate("fit.json"), "fit.json: not valid JSON"),
        (truncate("parameters.npz"), "damaged"),
        (truncate("items.parquet"), "damaged: items.parquet"),
        (recode("items.parquet", "item"), "items.parquet: column 'item' .*not UTF-8"),
        (recode("abilities.parquet", "subject"), "'subject' .*not UTF-8 text; run"),
        (damage_names, "item_names.npy holds no text"),
    ],
)
def test_a_damaged_folder_gets_one_clear_line(tmp_path, damage, message):
    place = irtjax.save(small_fit(), tmp_path / "fit")
    damage(place)
    with pytest.raises(ValueError, match=message) as caught:
        irtjax.load(place)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_owned_are_the_files_written(tmp_path):
    place = irtjax.write_report(small_fit(), tmp_path / "fit")
    # A fit with response lengths has one figure more: see test_length_fit.
    assert {p.name for p in place.iterdir()} == set(folder.FIT_FILES) - {
        "latency.png",
        "item_parameters.png",
    }


#: What is in the place of a value: each ends in a line, or is read.
ODD = (None, True, -1, 0, 1e308, "x", "", [], [[1]], {}, {"a": 1}, ["x"], 10**400)


def use(place):
    """Loads a fit and does with it what `irtjax info` does; or the refusal."""
    from irtjax.report.summary import fit_sentences, item_sentences, items_by_flag

    try:
        fit = irtjax.load(place)
    except ValueError as error:
        assert str(place) in str(error)
        assert "\n" not in str(error)
        assert len(str(error)) < 800
        return str(error)
    for show in (encoding.to_json, items_by_flag, str, fit_sentences, item_sentences):
        show(fit)
    return ""


def without_digests(place):
    """Makes a fit one of before, whose files have no digests."""
    path = place / "fit.json"
    content = json.loads(path.read_text())
    del content["digests"]
    path.write_text(json.dumps(content))


def test_a_fit_with_any_field_of_its_document_altered(tmp_path, monkeypatch):
    place = irtjax.save(small_fit(), tmp_path / "fit")
    without_digests(place)
    path = place / "fit.json"
    whole = path.read_text()
    # These files stay as they are.
    arrays, table = folder.read_arrays, folder.read_table
    known = {"parameters.npz": arrays(place / "parameters.npz")}
    known |= {x: table(place / x) for x in ("items.parquet", "abilities.parquet")}
    monkeypatch.setattr(folder, "read_arrays", lambda path: dict(known[path.name]))
    monkeypatch.setattr(folder, "read_table", lambda path: known[path.name])
    refused = 0
    for name in json.loads(whole):
        for odd in (*ODD, ...):
            content = json.loads(whole)
            if odd is ...:
                del content[name]
            else:
                content[name] = odd
            path.write_text(json.dumps(content))
            refused += bool(use(place))
    for name in ("class", "family", "priors", "scale", "lengths", "name"):
        for odd in ODD:
            content = json.loads(whole)
            content["model"][name] = odd
            path.write_text(json.dumps(content))
            refused += bool(use(place))
    assert refused > 200
    path.write_text('{"format": ' + "[" * 100_000)
    assert "nested too deeply" in use(place)
    path.write_text(whole)
    assert use(place) == ""


@pytest.mark.parametrize(
    "odd",
    [
        lambda x: x[..., :-1] if x.ndim else x[None],
        lambda x: np.arange(x.size) if x.dtype.kind == "U" else x.astype(str),
        lambda x: x[None],
        lambda x: np.zeros(0),
        lambda x: np.array([object()]),
    ],
    ids=["shorter", "type", "axis", "empty", "pickle"],
)
def test_a_fit_with_any_array_altered(tmp_path, odd):
    place = irtjax.save(small_fit(), tmp_path / "fit")
    without_digests(place)
    with np.load(place / "parameters.npz") as file:
        whole = dict(file)
    for name in whole:
        if name.startswith("population"):
            continue  # Of one ability or several.
        changed = {**whole, name: odd(whole[name])}
        np.savez(place / "parameters.npz", **changed)
        message = use(place)
        # A trace has any length, and shared errors any rank.
        assert message or name in ("trace", "ability_shared")


def test_an_array_takes_what_its_file_holds(tmp_path):
    place = irtjax.save(small_fit(), tmp_path / "fit")
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, header)
    with zipfile.ZipFile(place / "parameters.npz", "w") as archive:
        archive.writestr("theta.npy", buffer.getvalue() + b"\0" * 8)
    assert "theta.npy is no plain array" in use(place)


def test_a_fit_with_any_column_of_its_tables_altered(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = irtjax.save(small_fit(), tmp_path / "fit")
    without_digests(place)
    for file in ("items.parquet", "abilities.parquet"):
        whole = pq.read_table(place / file)
        for k, name in enumerate(whole.column_names):
            for column in (
                pa.array([[1]] * whole.num_rows),
                pa.array([b"\xff"] * whole.num_rows),
                pa.array(["x"] * whole.num_rows),
                pa.array([1] * whole.num_rows),
                pa.nulls(whole.num_rows),
            ):
                pq.write_table(whole.set_column(k, name, column), place / file)
                use(place)
        pq.write_table(whole, place / file)
    assert use(place) == ""


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "items.discrimination",
            lambda x: x * np.nan,
            "discrimination that is not fin",
        ),
        ("items.intercept", lambda x: x + np.inf, "intercept that is not finite"),
        ("items.intercept", lambda x: x.astype(np.float16), "of type float16"),
        ("items.intercept", lambda x: x.astype(int), "of type int64 and shape"),
        ("items.lower_asymptote", lambda x: x - 2, "is not between 0 and 1"),
        ("population.sd", lambda x: -x, "sd that is not between 0 and inf"),
        ("population.mean", lambda x: np.stack([x, x]), r"needs floats of shape \(\)"),
        ("item_covariance", lambda x: x * np.nan, "item_covariance that is not fin"),
    ],
)
@pytest.mark.parametrize("has_digests", [True, False])
def test_a_fit_with_numbers_that_its_model_cannot_have(
    tmp_path, name, change, message, has_digests
):
    place = irtjax.save(small_fit(), tmp_path / "fit")
    with np.load(place / "parameters.npz") as file:
        arrays = dict(file)
    np.savez(place / "parameters.npz", **{**arrays, name: change(arrays[name])})
    if not has_digests:
        without_digests(place)
    with pytest.raises(ValueError, match=f"is damaged: .*{message}.*; run the fit aga"):
        irtjax.load(place)


def test_a_fit_of_before_has_no_digests_and_loads(tmp_path):
    place = irtjax.save(small_fit(), tmp_path / "fit")
    without_digests(place)
    assert use(place) == ""


@pytest.mark.parametrize("file", ["items.parquet", "parameters.npz", "fit.json"])
def test_a_plausible_change_of_a_file_is_named(tmp_path, file):
    import pyarrow.parquet as pq

    place = irtjax.save(small_fit(), tmp_path / "fit")
    if file == "fit.json":
        content = json.loads((place / file).read_text())
        content["status"]["name"] = "max_steps"
        (place / file).write_text(json.dumps(content))
    elif file == "parameters.npz":
        with np.load(place / file) as arrays:
            changed = {**arrays, "items.intercept": arrays["items.intercept"] + 0.1}
        np.savez(place / file, **changed)
    else:
        table = pq.read_table(place / file)
        k = table.column_names.index("difficulty")
        pq.write_table(
            table.set_column(k, "difficulty", [table["accuracy"]]), place / file
        )
    with pytest.raises(ValueError, match=f"{file} was changed after it was written"):
        irtjax.load(place)


def test_a_fit_loads_after_its_layout_changed_or_prompts_were_deleted(tmp_path):
    texts = {str(small_fit().item_names[0]): ItemText("prompt", "a", "b", 2)}
    fit = dataclasses.replace(small_fit(), item_texts=texts)
    place = irtjax.save(fit, tmp_path / "fit")
    path = place / "fit.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    (place / "item_texts.parquet").unlink()
    assert irtjax.load(place).item_texts == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bounds", [1, 0]),
        ("bounds", "x"),
        ("worth", -1),
        ("sources", [1]),
        ("loadings", 3),
        ("item_uncertainty", "no"),
        ("method", None),
    ],
)
def test_a_fit_with_options_that_cannot_be(tmp_path, name, value):
    place = irtjax.save(small_fit(), tmp_path / "fit")
    without_digests(place)
    path = place / "fit.json"
    content = json.loads(path.read_text())
    content["options"][name] = value
    path.write_text(json.dumps(content))
    assert bool(use(place)) == (value is not None)


def test_a_fit_refuses_items_of_other_content(tmp_path):
    table = small_table()
    contents = {name: f"lm-eval:{k}" for k, name in enumerate(table.items.tolist())}
    fit = dataclasses.replace(small_fit(), item_contents=contents)
    fit = irtjax.load(irtjax.save(fit, tmp_path / "fit"))
    assert fit.item_contents == contents
    renumbered = dict(zip(contents, reversed(contents.values()), strict=True))
    with pytest.raises(ValueError, match="14 of the items are others .* in the fit"):
        irtjax.score(fit, dataclasses.replace(table, item_contents=renumbered))
    with pytest.raises(ValueError, match="14 of the items are others .* in the fit"):
        irtjax.audit(fit, dataclasses.replace(table, item_contents=renumbered))
