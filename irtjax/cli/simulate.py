"""`irtjax simulate`: responses whose truth is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from irtjax.cli import options as opt
from irtjax.cli.imports import own_or_name
from irtjax.cli.machine import prepare
from irtjax.cli.output import check_out_file, print_json, say, write_files
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from irtjax.data import ResponseTable


@opt.with_options
def simulate_command(
    out: Annotated[
        Path,
        opt.out(
            "FILE", "CSV or Parquet file of responses; the truth is put in its folder."
        ),
    ],
    model: Annotated[
        str, opt.option("Model to draw from: a name, or MODULE:NAME.", "--model", "-m")
    ] = "2pl",
    num_subjects: Annotated[int, opt.option("Number of subjects.", min=1)] = 200,
    num_items: Annotated[int, opt.option("Number of items.", min=1)] = 100,
    categories: Annotated[
        int, opt.option("Categories of an ordered response.", min=2, max=1000)
    ] = 4,
    missing: Annotated[float, opt.option("Share of cells that are missing.")] = 0.0,
    fit: Annotated[
        Path | None,
        opt.option("Use the items and population of this fit.", metavar="DIR"),
    ] = None,
    seed: opt.Seed = 0,
    *,
    output: opt.Output,
) -> None:
    """Simulates responses, and writes them with the true items and abilities."""
    from irtjax.data.wording import counted

    kinds = ("items", "abilities", "lengths")
    beside = [out.with_name(f"{out.stem}.{kind}{out.suffix}") for kind in kinds]
    check_out_file(out, *beside)
    if not 0 <= missing < 1:
        raise ValueError(f"--missing {missing:g} is not a share from 0 to below 1")
    with ProgressLine(output.quiet) as progress:
        progress("draw")
        prepare()
        table, *truths = draw(
            model, num_subjects, num_items, categories, missing, fit, seed
        )
        progress("write")
        _write(out, beside, table, truths)
    truth, lengths = beside[:2], beside[2:] if table.has_lengths else []
    if output.json:
        print_json(
            {
                "out": str(out),
                "truth": [str(path) for path in truth],
                **({"lengths": str(lengths[0])} if lengths else {}),
                "num_subjects": table.num_subjects,
                "num_items": table.num_items,
                "num_observed": table.num_observed,
                "seed": seed,
            }
        )
    elif not output.quiet:
        say(
            f"{counted(table.num_subjects, 'subject')} x"
            f" {counted(table.num_items, 'item')} written"
            f" to {out}; truth in {truth[0].name} and {truth[1].name}"
            + "".join(f"; lengths in {path.name}" for path in lengths)
        )


def _write(out: Path, beside: list[Path], table: ResponseTable, truths: Any) -> None:
    """Writes responses, the true items and abilities, and response lengths if any."""
    files: dict[Path, Any] = dict(zip(beside[:2], truths, strict=True))
    if table.has_lengths:
        files[beside[2]] = wide(table, table.lengths)
        table = dataclasses.replace(table, lengths=None)
    files[out] = table.save if out.suffix == ".parquet" else wide(table)
    # The lengths of an earlier simulation are not of these responses.
    write_files(files, stale=beside[2:])


class _Source(NamedTuple):
    """What responses are drawn from: items by `names`, and options of a fit."""

    model: Any
    items: Any
    names: list[str]
    population: Any = None
    lengths: Any = None
    offset: float = 1.0
    bounds: Any = None
    benchmarks: Any = None
    factors: tuple[str, ...] = ()


def draw(
    model: str,
    num_subjects: int,
    num_items: int,
    categories: int,
    missing: float,
    folder: Path | None,
    seed: int,
) -> tuple[ResponseTable, pa.Table, pa.Table]:
    """Returns simulated responses, the true items and the true abilities."""
    import jax
    import numpy as np
    import pyarrow as pa

    from irtjax.data import ResponseTable
    from irtjax.models import simulate as draws

    item_key, ability_key, key = jax.random.split(jax.random.key(seed), 3)
    length_key, log_key = jax.random.split(jax.random.fold_in(key, 1))
    if folder is None:
        _check_size(num_subjects, num_items)
        source = _drawn_items(model, num_items, categories, item_key, length_key)
    else:
        source = _saved_items(folder, num_subjects)
    theta = draws.simulate_abilities(num_subjects, ability_key, source.population)
    data = draws.simulate(source.model, source.items, theta, key, missing=missing)
    subjects = [f"subject_{k + 1}" for k in range(num_subjects)]
    by_length, speed = None, {}
    if source.model.has_lengths:
        log_length, tau = draws.simulate_log_lengths(source.lengths, theta, log_key)
        tokens = np.rint(np.exp(np.asarray(log_length)) - source.offset)
        by_length, speed = np.maximum(tokens, 0), {"speed": np.asarray(tau)}
    table = ResponseTable.from_arrays(
        _values(source, data.values),
        subjects=subjects,
        items=source.names,
        observed=None if data.observed is None else np.asarray(data.observed),
        lengths=by_length,
        benchmark=source.benchmarks,
    )
    of_subjects = {"ability": np.asarray(theta)}
    if source.factors:
        by_factor = zip(source.factors, np.asarray(theta).T, strict=True)
        of_subjects = {f"ability_{name}": column for name, column in by_factor}
    abilities = pa.table({"subject": subjects, **of_subjects, **speed})
    return table, _item_table(source), abilities


def _drawn_items(model: str, num_items: int, categories: int, key, length_key):
    """Items of a model by name, or of the user's own, with those of its lengths."""
    import jax.numpy as jnp

    from irtjax.models import simulate as draws
    from irtjax.models.lengths import LengthParameters

    chosen, lengths = _model_of(model, num_items, categories), None
    if chosen.has_lengths:
        # Hundreds of tokens: exp(6) is 400.
        drawn = draws.simulate_length_items(num_items, length_key)
        drawn = drawn._replace(speed_intercept=drawn.speed_intercept + 6)
        lengths = LengthParameters(drawn, jnp.asarray(-0.8))
    names = [f"item_{k + 1}" for k in range(num_items)]
    items = draws.simulate_items(chosen, num_items, key)
    return _Source(chosen, items, names, lengths=lengths)


def _saved_items(folder: Path, num_subjects: int) -> _Source:
    """Items and population of a fit, if so many subjects fit into the memory."""
    import jax
    import jax.numpy as jnp

    from irtjax.storage import load

    fit = load(folder)
    items, population, _, lengths = jax.tree.map(jnp.asarray, fit.parameters)
    _check_size(num_subjects, len(fit.item_names))
    return _Source(
        fit.model,
        items,
        fit.item_names.tolist(),
        population=population,
        lengths=lengths,
        offset=fit.options.get("length_offset", 1.0),
        bounds=fit.options.get("bounds"),
        benchmarks=fit.benchmarks,
        factors=fit.factor_names,
    )


def _values(source: _Source, drawn: Any) -> np.ndarray:
    """Responses as the data of a fit have them: scores within their bounds."""
    import numpy as np

    from irtjax.data.scores import to_bounds
    from irtjax.models.families.continuous import AbstractScoreFamily
    from irtjax.models.families.mixed import MixedScores

    family = source.model.family
    if not isinstance(family, AbstractScoreFamily):
        return np.asarray(drawn)
    inside = np.asarray(family.to_scores(drawn, source.items))
    if source.bounds is None:
        return inside
    values = to_bounds(inside, source.bounds, source.benchmarks)
    mixed = isinstance(family, MixedScores)
    return np.where(family.binary, inside, values) if mixed else values


def _item_table(source: _Source) -> pa.Table:
    """The true parameters of the items, a column for each number."""
    import numpy as np
    import pyarrow as pa

    fields = source.items._asdict()
    if source.model.has_lengths:
        fields |= source.lengths.items._asdict()
    columns: dict[str, Any] = {"item": pa.array(source.names)}
    for field, array in fields.items():
        if array.ndim == 1:
            columns[field] = np.asarray(array)
        else:
            for h, column in enumerate(np.asarray(array).T):
                columns[f"{field}_{h + 1}"] = column
    return pa.table(columns)


def _check_size(num_subjects: int, num_items: int) -> None:
    """Refuses what does not fit into the memory, before anything is drawn.

    At least two copies of a byte for each response, 200 bytes for each name with its
    parameters.
    """
    from irtjax.data.wording import counted
    from irtjax.numerics.memory import require_memory

    names = 200.0 * (num_subjects + num_items)
    what = f"{counted(num_subjects, 'subject')} x {counted(num_items, 'item')}"
    require_memory(2.0 * num_subjects * num_items + names, what, "simulate fewer")


def _model_of(model: str, num_items: int, categories: int) -> Any:
    """The model of a name, or one of the user's own."""
    import numpy as np

    from irtjax.models import catalogue as models

    chosen, every = own_or_name(model, "--model"), models.MODELS
    if not isinstance(chosen, str):
        return chosen
    makers = {k: v for k, v in every.items() if not isinstance(v, type)}
    if model not in makers:
        raise ValueError(f"--model {model} is not one of {', '.join(makers)}")
    settings: list[Any] = [categories] if model in models.ORDERED_MODELS else []
    settings += [np.arange(num_items) % 2 == 0] if model == "mixed" else []
    return makers[model](*settings)


def wide(table: ResponseTable, cells: Any = None) -> pa.Table:
    """Returns responses, or other cells, with a row per subject, a column per item."""
    import numpy as np
    import pyarrow as pa

    absent = None if table.observed is None else ~table.observed
    values = np.asfortranarray(table.values if cells is None else cells)
    columns = [pa.array(table.subjects.tolist(), pa.string())]
    for k in range(table.num_items):
        mask = None if absent is None else np.ascontiguousarray(absent[:, k])
        columns.append(pa.array(values[:, k], mask=mask))
    return pa.table(columns, names=["subject", *table.items.tolist()])
