"""`irtjax simulate`: responses whose truth is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtjax.cli import options as opt

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.data import ResponseTable


def simulate_command(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="CSV or Parquet file of responses; the truth is put in its folder.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", help="Model to draw from.")
    ] = "2pl",
    subjects: Annotated[
        int, typer.Option("--subjects", min=1, help="Number of subjects.")
    ] = 200,
    items: Annotated[
        int, typer.Option("--items", min=1, help="Number of items.")
    ] = 100,
    categories: Annotated[
        int,
        typer.Option("--categories", min=2, help="Categories of an ordered response."),
    ] = 4,
    missing: Annotated[
        float, typer.Option("--missing", help="Share of cells that are missing.")
    ] = 0.0,
    fit: Annotated[
        Path | None,
        typer.Option(
            "--fit", metavar="DIR", help="Use the items and population of this fit."
        ),
    ] = None,
    seed: opt.Seed = 0,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Simulates responses, and writes them with the true items and abilities."""
    if out.suffix not in (".csv", ".parquet"):
        raise ValueError(f"--out {out}: the name must end in .csv or .parquet")
    if not 0 <= missing < 1:
        raise ValueError(f"--missing {missing:g} is not a share from 0 to below 1")
    from irtjax.cli.machine import prepare

    prepare()
    table, item_truth, ability_truth = draw(
        model, subjects, items, categories, missing, fit, seed
    )
    truth = [
        out.with_name(f"{out.stem}.items{out.suffix}"),
        out.with_name(f"{out.stem}.abilities{out.suffix}"),
    ]
    beside = dict(zip(truth, (item_truth, ability_truth), strict=True))
    lengths = None
    if table.lengths is not None:
        lengths = out.with_name(f"{out.stem}.lengths{out.suffix}")
        beside[lengths] = wide(table, table.lengths)
        table = dataclasses.replace(table, lengths=None)
    _write(out, table, beside)
    if json:
        from irtjax.cli.pipeline import print_json

        print_json(
            {
                "out": str(out),
                "truth": [str(path) for path in truth],
                **({} if lengths is None else {"lengths": str(lengths)}),
                "num_subjects": table.num_subjects,
                "num_items": table.num_items,
                "num_observed": table.num_observed,
                "seed": seed,
            }
        )
    elif not quiet:
        from irtjax.cli import screen

        screen.show_sentences(
            screen.console(),
            [
                f"{table.num_subjects:,} subjects x {table.num_items:,} items written"
                f" to {out}; truth in {truth[0].name} and {truth[1].name}"
                + ("" if lengths is None else f"; lengths in {lengths.name}"),
            ],
        )


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
    import jax.numpy as jnp
    import numpy as np
    import pyarrow as pa

    from irtjax.data import ResponseTable
    from irtjax.data.scores import to_bounds
    from irtjax.models.catalogue import (
        BINARY_MODELS,
        LENGTH_MODELS,
        ORDERED_MODELS,
        SCORE_MODELS,
    )
    from irtjax.models.families.continuous import AbstractScoreFamily
    from irtjax.models.families.mixed import MixedScores
    from irtjax.models.lengths import LengthParameters
    from irtjax.models.simulate import (
        simulate,
        simulate_abilities,
        simulate_items,
        simulate_length_items,
        simulate_log_lengths,
    )

    item_key, ability_key, key = jax.random.split(jax.random.key(seed), 3)
    length_key, log_key = jax.random.split(jax.random.fold_in(key, 1))
    lengths, offset = None, 1.0
    names: list[str] = [f"item_{k + 1}" for k in range(num_items)]
    population, bounds, benchmarks = None, None, None
    if folder is not None:
        from irtjax.storage import load

        saved = load(folder)
        chosen, names = saved.model, saved.items.tolist()
        records = jax.tree.map(jnp.asarray, saved.parameters.items)
        population = jax.tree.map(jnp.asarray, saved.parameters.population)
        lengths = jax.tree.map(jnp.asarray, saved.parameters.lengths)
        offset = saved.options.get("length_offset", offset)
        bounds, benchmarks = saved.options.get("bounds"), saved.benchmarks
    else:
        if model in ORDERED_MODELS:
            chosen = ORDERED_MODELS[model](categories)
        elif model in BINARY_MODELS:
            chosen = BINARY_MODELS[model]()
        elif model == "mixed":
            chosen = SCORE_MODELS[model](np.arange(num_items) % 2 == 0)
        elif model in SCORE_MODELS:
            chosen = SCORE_MODELS[model]()
        elif model in LENGTH_MODELS:
            chosen = LENGTH_MODELS[model]()
            # Hundreds of tokens: exp(6) is 400.
            drawn = simulate_length_items(num_items, length_key)
            drawn = drawn._replace(speed_intercept=drawn.speed_intercept + 6)
            lengths = LengthParameters(drawn, jnp.asarray(-0.8))
        else:
            known = ", ".join(
                [*BINARY_MODELS, *ORDERED_MODELS, *LENGTH_MODELS, *SCORE_MODELS]
            )
            raise ValueError(f"--model {model} is not one of {known}")
        records = simulate_items(chosen, num_items, item_key)
    theta = simulate_abilities(num_subjects, ability_key, population)
    data = simulate(chosen, records, theta, key, missing=missing)
    subjects = [f"subject_{k + 1}" for k in range(num_subjects)]
    by_length, speed = None, {}
    if lengths is not None:
        log_length, tau = simulate_log_lengths(lengths, theta, log_key)
        tokens = np.rint(np.exp(np.asarray(log_length)) - offset)
        by_length, speed = np.maximum(tokens, 0), {"speed": np.asarray(tau)}
    values = np.asarray(data.values)
    if isinstance(chosen.family, AbstractScoreFamily):
        values = np.asarray(chosen.family.to_scores(data.values, records))
        if bounds is not None:
            inside, values = values, to_bounds(values, bounds, benchmarks)
            if isinstance(chosen.family, MixedScores):
                values = np.where(chosen.family.binary, inside, values)
    table = ResponseTable.from_arrays(
        values,
        subjects=subjects,
        items=names,
        observed=None if data.observed is None else np.asarray(data.observed),
        lengths=by_length,
        benchmark=benchmarks,
    )
    columns: dict[str, Any] = {"item": pa.array(names)}
    fields = records._asdict()
    if lengths is not None:
        fields |= lengths.items._asdict()
    for field, values in fields.items():
        array = np.asarray(values)
        if array.ndim == 1:
            columns[field] = array
        else:
            for h in range(array.shape[1]):
                columns[f"{field}_{h + 1}"] = array[:, h]
    abilities = pa.table({"subject": subjects, "ability": np.asarray(theta), **speed})
    return table, pa.table(columns), abilities


def _write(out: Path, table: ResponseTable, truth: dict[Path, pa.Table]) -> None:
    from contextlib import ExitStack

    from irtjax.data.files import atomic_path
    from irtjax.storage import write_table

    # All three appear together: renamed only after the last was written.
    with ExitStack() as stack:
        for path, rows in truth.items():
            write_table(rows, stack.enter_context(atomic_path(path)))
        place = stack.enter_context(atomic_path(out))
        if out.suffix == ".parquet":
            table.save(place)
        else:
            write_table(wide(table), place)


def wide(table: ResponseTable, cells: Any = None) -> pa.Table:
    """Returns a table with a row per subject and a column per item.

    Its cells are the responses, or others of the same shape.
    """
    import numpy as np
    import pyarrow as pa

    absent = None if table.observed is None else ~table.observed
    values = np.asfortranarray(table.values if cells is None else cells)
    columns = [pa.array(table.subjects.tolist(), pa.string())]
    for k in range(table.num_items):
        mask = None if absent is None else np.ascontiguousarray(absent[:, k])
        columns.append(pa.array(values[:, k], mask=mask))
    return pa.table(columns, names=["subject", *table.items.tolist()])
