"""Log-likelihoods of all models, methods and data to full precision, and their times.

    python experiments/scaling/likelihoods.py --json before.json
    python experiments/scaling/likelihoods.py --against before.json --only "gvem"
    python experiments/scaling/likelihoods.py --times

A change of an estimator that is to leave the estimates as they are is run before and
after. The fits are those of `tests/tables.py` and of classical data sets, in double
precision. The classical sets need ../shared/data; without that folder they are left
out, and the script says so.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import irtjax
from irtjax.estimators.catalogue import method_class
from irtjax.estimators.driver import Fit, Run, run
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import MultilevelProblem
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.marginal.gaussian import GVEM
from irtjax.estimators.start import start_values
from irtjax.estimators.timing import Clock
from irtjax.fitting.problem import make_task, specify
from irtjax.fitting.settings import sort_settings
from irtjax.likelihood.cubature import grid_nodes
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import factor_model, two_parameter
from irtjax.models.factors import Factor
from irtjax.numerics.kernels import equal_nodes

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
#: Methods whose fits depend on no random numbers.
EXACT = ("em", "gvem", "mm", "gradient", "laplace")
#: Relative difference of log-likelihoods that counts as a change.
SMALL = 1e-10
#: Steps, and repetitions, whose least time is printed.
NUM_STEPS, REPEATS = 20, 5


class ClassicalFit(NamedTuple):
    """A data set of ../shared/data, and a model and a method by name."""

    data: str
    model: Any
    method: str

    @property
    def name(self) -> str:
        """The name of the case."""
        model = self.model if isinstance(self.model, str) else repr(self.model)
        return f"classical {self.data} {model} {self.method}"


CLASSICAL = (
    *(ClassicalFit("LSAT7", name, "em") for name in ("1pl", "2pl", "3pl")),
    *(ClassicalFit("LSAT7", "2pl", name) for name in ("mm", "gradient")),
    ClassicalFit("Science", "graded", "em"),
    ClassicalFit("Science", "graded", "mm"),
    ClassicalFit("Science", irtjax.Factor(2), "em"),
    *(ClassicalFit("VerbAgg", name, "em") for name in ("rasch", "2pl")),
    ClassicalFit("VerbAgg", "2pl", "mm"),
    *(ClassicalFit("VerbAgg", irtjax.Factor(2), name) for name in ("em", "gvem", "mm")),
    ClassicalFit("AMC23", "lart", "em"),
    ClassicalFit("AMC23", "2pl", "laplace"),
    ClassicalFit("GSM8K", "2pl", "em"),
    ClassicalFit("SWE-bench Verified", "2pl", "mm"),
    ClassicalFit("SWE-bench Verified", "2pl", "laplace"),
)


@functools.cache
def classical_table(name: str) -> irtjax.ResponseTable:
    """A table of ../shared/data: rows are subjects, columns are items."""
    from pyarrow import parquet

    if name == "SWE-bench Verified":
        return irtjax.read(
            SHARED / "agents" / "swebench_verified_long.parquet",
            subject="agent", item="task", response="resolved",
        )  # fmt: skip
    path = {
        "LSAT7": "classic/lsat7.parquet",
        "Science": "classic/science.parquet",
        "VerbAgg": "classic/verbagg.parquet",
        "AMC23": "lart/accuracy_amc23.parquet",
        "GSM8K": "metabench/gsm8k_2pl_responses.parquet",
    }[name]

    def matrix(file: str) -> np.ndarray:
        table = parquet.read_table(SHARED / file)
        columns = [table[name].to_numpy() for name in table.column_names]
        return np.stack([x for x in columns if x.dtype.kind in "iu"], axis=1)

    values = matrix(path).astype(float)
    lengths = None
    if name == "AMC23":
        lengths = 1 + matrix("lart/cot_length_amc23.parquet").astype(float)
    if name == "VerbAgg":
        values = (values > 0).astype(float)
    return irtjax.ResponseTable.from_arrays(values, lengths=lengths)


def solved(table: irtjax.ResponseTable, model: Any, method: str, **settings) -> Fit:
    """The fit of `irtjax.fit`, without errors and tables."""
    kind = method_class(method)
    specification = specify(model, kind)
    limit = settings.pop("max_steps", None)
    parts = sort_settings(settings, specification, kind, limit)
    task = make_task(table, specification, method, parts, level=0.95, dtype=None)
    settings_of_run = Run(Clock(), None, limit, 0.95, parts.options)
    return task.method.solve(task.problem, task.start, settings_of_run).fit


def all_fits() -> Iterator[tuple[str, Callable[[], Fit]]]:
    """The name of each case, and the call that makes its fit."""
    from tests import tables
    from tests.test_every_fit import make_table

    pairs: Any = tables.PAIRS
    for parameter in pairs:
        model, method = parameter.values[0]
        yield (
            f"arrays {model} {method}",
            functools.partial(tables.grid_fit, model, method),
        )
    for name, method in tables.ALL_PAIRS:
        if method in EXACT and (name, method) not in tables.REFUSED:
            case = tables.BY_NAME[name]
            settings = tables.SETTINGS.get(method, {})
            yield (
                f"names {name} {method}",
                functools.partial(
                    solved, make_table(case.kind), case.model, method, **settings
                ),
            )
    if not SHARED.exists():
        print(f"without the classical sets: there is no folder {SHARED}")
        return
    for case in CLASSICAL:
        yield (
            case.name,
            lambda case=case: solved(
                classical_table(case.data), case.model, case.method
            ),
        )


def numbers_of(fit: Fit) -> dict[str, float | int]:
    """What is compared, and the number of steps."""
    return {
        "log_lik": float(np.sum(np.asarray(fit.subject_log_lik, np.float64))),
        "objective": float(fit.objective),
        "num_steps": int(fit.num_steps),
        "status": int(fit.status),
    }


def difference(new: dict[str, Any], old: dict[str, Any]) -> float:
    """The larger relative difference of log-likelihood and objective."""
    names = {"log_lik", "objective"} & old.keys()
    return max(abs(new[x] - old[x]) / max(abs(old[x]), 1) for x in names)


def compare(words: list[str], earlier: dict[str, Any] | None) -> dict[str, Any]:
    """Makes the fits whose names contain a word, and prints each as it ends."""
    results: dict[str, Any] = {}
    largest = 0.0
    for name, make in all_fits():
        if words and not any(word in name for word in words):
            continue
        results[name] = new = numbers_of(make())
        line = f"{name}: {new['log_lik']!r} in {new['num_steps']} steps"
        if earlier is not None and name in earlier:
            old = earlier[name]
            change = difference(new, old)
            largest = max(largest, change)
            verdict = "as before" if change <= SMALL else "CHANGED"
            line += f" (before {old['num_steps']}), {change:.1e}: {verdict}"
        print(line, flush=True)
    if earlier is not None:
        print(f"largest relative difference: {largest:.1e}")
    return results


def timed_cases() -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, problem, method that does not converge, and start values."""
    rng = np.random.default_rng(0)

    def binary(subjects: int, items: int, dims: int) -> irtjax.Responses:
        theta = rng.standard_normal((subjects, dims))
        slopes = 0.7 * rng.standard_normal((items, dims)) + 0.5
        eta = theta @ slopes.T + rng.standard_normal(items)
        right = rng.random(eta.shape) < 1 / (1 + np.exp(-eta))
        return irtjax.Responses(jnp.asarray(right, jnp.int8))

    data, model = binary(2000, 400, 1), two_parameter()
    problem, start = Problem.create(model, data), start_values(model, data)
    nodes = jnp.asarray(equal_nodes(-6.0, 6.0, 61))
    yield "EM, 1 ability, 2,000 x 400", problem, EM(nodes, 0.0), start
    yield "MM, 1 ability, 2,000 x 400", problem, MM(0.0), start
    for dims, make, size in (
        (2, lambda: EM(jnp.asarray(grid_nodes(0.5, 2)), 0.0), (500, 60)),
        (3, lambda: GVEM(0.0), (500, 60)),
        (3, lambda: MM(0.0), (1000, 400)),
    ):
        data, model = binary(*size, dims), factor_model(Factor(factors=dims))
        problem, start = Problem.create(model, data), start_values(model, data)
        name = f"{make().name}, {dims} abilities, {size[0]:,} x {size[1]}"
        yield name, problem, make(), start
    data = binary(12, 1000, 1)
    problem = MultilevelProblem.create(two_parameter(positive=True), data)
    yield "Laplace, 12 x 1,000", problem.by_distinct(), Laplace(5, 0.0), None


def print_times(words: list[str]) -> None:
    """Processor seconds to compile a fit, and of its steps after that."""
    for name, problem, method, start in timed_cases():
        if words and not any(word in name for word in words):
            continue
        began = time.process_time()
        jitted: Any = eqx.filter_jit(run)
        program = jitted.lower(problem, method, start, max_steps=NUM_STEPS).compile()
        compiling = time.process_time() - began
        again = functools.partial(program, problem, method, start, max_steps=NUM_STEPS)
        fit = jax.block_until_ready(again())
        times = []
        for _ in range(REPEATS):
            began = time.process_time()
            jax.block_until_ready(again())
            times.append(time.process_time() - began)
        each = 1e3 * min(times) / int(fit.num_steps)
        print(f"{name}: compiling {compiling:.2f} s, a step {each:.2f} ms", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Parses the arguments and runs what they ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file to write the results to")
    parser.add_argument("--against", type=Path, help="file of earlier results")
    parser.add_argument("--only", nargs="*", default=[], help="words of names of cases")
    parser.add_argument("--times", action="store_true", help="times in place of fits")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    if options.times:
        print_times(options.only)
        return
    earlier = None
    if options.against is not None:
        earlier = json.loads(options.against.read_text())
    results = compare(options.only, earlier)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
