"""Values of options that a shell completes on TAB: names of models, methods, rules.

The lists are written here, since the catalogues take a second to load. Where an option
has no list, shells complete the names of files.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from irtjax.cli.options import READING
from irtjax.data.reading.options import CHOICES

#: What the methods are.
METHODS = {
    **dict.fromkeys(("em", "saem", "gvem"), "marginal"),
    **dict.fromkeys(("mm", "gradient"), "joint"),
    "neural": "twin networks",
    "vibo": "amortised variational",
    "laplace": "items integrated out",
    "nuts": "full posterior",
    "vi": "Gaussian posterior",
}
MODELS = """
rasch 1pl 2pl 3pl 4pl probit1pl probit2pl cloglog2pl
graded partial_credit pcm rsm nominal
continuous beta inflated_beta share mixed lart
multibenchmark multimetric hierarchical factor
""".split()
_RULES = "auto regression information clustering discrimination difficulty random"
#: Values by option, or by command and option where commands differ.
VALUES: dict[str, Iterable[str]] = {
    "model": ["auto", *MODELS],
    "method": ["auto", *METHODS],
    "item_model": [*MODELS, "binary"],
    "shrink rule": _RULES.split(),
    "dif method": ["score", "mh", "logistic"],
    "stability kind": [
        "items",
        "halves",
        "benchmarks",
        "subjects",
        "families",
        "starts",
    ],
    "device": ["cpu", "gpu", "tpu"],
    **{name: values for name, values in CHOICES.items() if name in READING},
    "priors": ["weak", "none", "held_out"],
    "start": ["proportions", "spectral", "low_rank"],
    "standard_errors": ["observed", "cross_product", "sandwich", "none"],
    "population": ["normal", "histogram"],
    "link": ["logit", "probit"],
    "rotation": "oblimin promax geomin geomin_orthogonal varimax quartimax bifactor"
    " target target_orthogonal none".split(),
    "stop": ["kkt", "relative_change"],
    "criterion": ["log_loss", "f1"],
    "head": ["irt", "deep"],
    "encoder": ["lookup", "graph"],
    "score scoring": ["eap", "map", "ml", "wle"],
    "measures": ["both", "accuracy", "length"],
    "aim": ["score", "ability"],
    "average": ["items", "benchmarks"],
    "select": "information mutual_information kl random fixed d_optimal a_optimal score"
    "".split(),
    "adapt scoring": ["eap", "map"],
    "truth": ["bank", "draw"],
    "undecided": ["pass", "fail"],
}
#: Names of subjects of a saved fit, by command and parameter.
_SUBJECTS = {"compare first", "compare second", "predict subject_names", "adapt rival"}


def complete_values(command: TyperCommand) -> None:
    """Lets the parameters of a command complete the values that are listed here."""
    for parameter in command.params:
        place = f"{command.name} {parameter.name}"
        values = VALUES.get(place, VALUES.get(str(parameter.name)))
        if values is not None:
            _complete(parameter, lambda ctx, values=values: values)
        elif place in _SUBJECTS:
            _complete(parameter, _subjects)


def _complete(parameter: Any, values: Callable[[Any], Iterable[str]]) -> None:
    """Has a shell complete an option from values."""

    def complete(ctx: Any, incomplete: str) -> list[Any]:
        # Typer has its own copy of Click since 0.20, and used the other before.
        base = TyperCommand.__mro__[1].__module__.rpartition(".")[0]
        item = importlib.import_module(f"{base}.shell_completion").CompletionItem
        return [item(x) for x in values(ctx) if x.startswith(incomplete)]

    parameter.shell_complete = complete


def _subjects(ctx: Any) -> list[str]:
    """Names of the subjects of the fit that the command line has; none without."""
    import csv

    place = ctx.params.get("fit") or ctx.params.get("folder")
    try:
        with open(Path(place) / "abilities.csv", newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            where = next(rows).index("subject")
            names = [row[where] for row in rows]
    except (OSError, TypeError, ValueError, LookupError, StopIteration, csv.Error):
        return []
    # A shell would take such a name for several words, or for a command.
    return [x for x in names if x.isprintable() and not set(x) & set(" '\"\\$`;&|<>()")]
