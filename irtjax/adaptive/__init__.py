"""Adaptive testing: the next item is chosen from the responses so far.

`AdaptiveTest` hands out one item at a time by name; `simulate_tests` shows how a bank
of items would do. Underneath are pure steps, `start`, `select`, `update` and `stop`,
on a state of fixed size.
"""

from irtjax.adaptive.bank import AbstractBank
from irtjax.adaptive.design import Design, Rules, StopFlag
from irtjax.adaptive.item_bank import ItemBank
from irtjax.adaptive.lengths import Answer, LengthBank
from irtjax.adaptive.misfit import draw_items, misfit_study
from irtjax.adaptive.model_bank import AbstractModelBank
from irtjax.adaptive.node_bank import AbstractNodeBank
from irtjax.adaptive.normal_bank import FactorBank
from irtjax.adaptive.normal_posterior import FactorPosterior
from irtjax.adaptive.repeats import Repeats, TrialCounts
from irtjax.adaptive.session import AdaptiveTest
from irtjax.adaptive.simulation import Tests, run_test, run_tests
from irtjax.adaptive.state import State
from irtjax.adaptive.steps import (
    above_mark,
    affordable,
    open_items,
    passed,
    risk,
    select,
    spent,
    start,
    stop,
    update,
)
from irtjax.adaptive.study import SimulatedTests, simulate_tests

__all__ = [
    "AbstractBank",
    "AbstractModelBank",
    "AbstractNodeBank",
    "AdaptiveTest",
    "Answer",
    "Design",
    "FactorBank",
    "FactorPosterior",
    "ItemBank",
    "LengthBank",
    "Repeats",
    "Rules",
    "SimulatedTests",
    "State",
    "StopFlag",
    "Tests",
    "TrialCounts",
    "above_mark",
    "affordable",
    "draw_items",
    "misfit_study",
    "open_items",
    "passed",
    "risk",
    "run_test",
    "run_tests",
    "select",
    "simulate_tests",
    "spent",
    "start",
    "stop",
    "update",
]
