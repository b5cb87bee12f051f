"""Compiled functions of adaptive tests multiply in full precision on every device."""

import importlib
import inspect
import pkgutil

import irtjax.adaptive


def test_every_compiled_function_has_full_precision():
    found = []
    for known in pkgutil.iter_modules(irtjax.adaptive.__path__):
        module = importlib.import_module(f"irtjax.adaptive.{known.name}")
        for name, value in vars(module).items():
            own = str(getattr(value, "__module__", "")).startswith("irtjax")
            # `full_precision` returns a plain function around the compiled one.
            either = value, getattr(value, "__wrapped__", None)
            compiled = any(hasattr(x, "lower") for x in either)
            # A result may have a lower bound.
            if own and compiled and not inspect.isclass(value):
                found.append(name)
                assert inspect.isfunction(value), f"{module.__name__}.{name}"
    assert {"run_tests_jit", "_start_jit", "_update_jit", "_propose"} <= set(found)
