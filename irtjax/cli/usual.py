"""Which options `--help` lists; `--help-all` lists every one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Commands with at most so many options and arguments list all of them.
FEW = 14
#: Options that most people use, by name; arguments are always listed.
_USUAL = (
    "out model method bounds level overwrite verbose json"
    " subject item response metric filter trials"
)
#: Options of commands that have others in their place.
_OWN = {
    "run": "out size bounds overwrite verbose json subject item response metric filter"
    " trials",
    "arena": "out ties cluster covariate category judge model both_bad winner level"
    " json",
    "score": "fit out level json subject item response metric filter trials",
    "rank": "level everything against flow top figure verbose json",
    "compare": "fit level out json fail_if subject item response metric filter",
    "report": "out json subject item response metric filter trials",
    "adapt": "out responses num_items min_items se reliability select cost pass_mark"
    " harness run json",
    "shrink": "out size score_error rule stratify avoid folds sizes json subject item"
    " response metric",
    "audit": "fit out model fdr chance permutations json subject item response metric"
    " filter trials",
    "dimensions": "out most json subject item response metric filter trials",
    "stability": "out kind num model level json subject item response metric filter"
    " trials",
    "clusters": "out by level json subject item response metric filter trials",
    "power": "sizes models difference accuracy correlation wanted level json subject"
    " item response metric",
    "horizons": "subject task minutes response family date dates link slope difficulty"
    " weights out level json",
    "reliability": "fit facet columns sizes target out level json subject item response"
    " metric trials",
    "claim": "fit costs margin record run_sd gate out level json subject item response"
    " metric",
    "generalise": "schemes models family date item_features subject_table item_table"
    " out level json subject item response metric",
    "compare-models": "models prior_scales scheme out json subject item response metric"
    " trials",
    "cold-start": "item_features subject_features item_columns subject_columns out"
    " level json subject item response metric",
    "clean": "min_subjects min_items out json subject item response metric",
    "dif": "subjects method reference cluster out json subject item response metric",
    "rasch": "groups subject_table model out json subject item response metric",
    "network": "method top residual folds out json subject item response metric",
    "correlates": "subjects column related unrelated family trait method item_table"
    " out level json subject item response",
    "info": "json bounds subject item response metric filter trials missing_as epoch",
}


def rare(command: Any) -> list[Any]:
    """Returns the options of a command that its short help leaves out."""
    parameters = command.params
    if len(parameters) <= FEW:
        return []
    usual = _OWN.get(command.name, _USUAL).split()
    return [
        x
        for x in parameters
        if x.param_type_name == "option" and not x.required and x.name not in usual
    ]


@contextmanager
def without_rare(command: Any) -> Iterator[None]:
    """Within the block, the help of a command has the usual options only."""
    hidden = [x for x in rare(command) if not x.hidden]
    epilog = command.epilog
    for parameter in hidden:
        parameter.hidden = True
    if hidden:
        note = f"irtjax {command.name} --help-all lists {len(hidden)} more options."
        command.epilog = f"{epilog}\n\n{note}" if epilog else note
    try:
        yield
    finally:
        command.epilog = epilog
        for parameter in hidden:
            parameter.hidden = False
