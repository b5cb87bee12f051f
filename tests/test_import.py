"""What importing may do: nothing that starts JAX, changes it, or costs time."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import irtjax

CHECKOUT = Path(__file__).resolve().parent.parent
# Imported where they are used, so that `import irtjax` stays quick.
HEAVY = ("pandas", "polars", "matplotlib", "pyarrow", "rich", "typer", "blackjax")

# Run in a fresh interpreter: sys.argv holds the package, then "all" to import every
# submodule of it too. A module set to None in sys.modules cannot be imported.
PROBE = """
import importlib, json, pkgutil, sys

package, scope = sys.argv[1:]
if scope == "all":
    sys.modules["pandas"] = None
    import jax
    settings = dict(jax.config.values)
root = importlib.import_module(package)
loaded = sorted({name.split(".")[0] for name in sys.modules})
names = []
if scope == "all":
    for info in pkgutil.walk_packages(root.__path__, package + "."):
        importlib.import_module(info.name)
        names.append(info.name)
import jax
from jax._src import xla_bridge

# Looked at before live_arrays, which starts a backend by being asked.
started = xla_bridge.backends_are_initialized()
changed = []
if scope == "all":
    now = dict(jax.config.values)
    changed = sorted(k for k in now if k in settings and now[k] != settings[k])
arrays = len(jax.live_arrays()) if started else 0
print(json.dumps(dict(loaded=loaded, names=names, started=started,
                      arrays=arrays, changed=changed)))
"""


def probe(folder: Path, package: str, scope: str) -> dict:
    """Import a package found in a folder in a new process; say what it did."""
    # JAX from the environment's settings alone, not from those of this test run.
    env = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    env |= {"PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, package, scope],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_the_package_loads_nothing_heavy():
    loaded = probe(CHECKOUT, "irtjax", "root")["loaded"]
    assert "irtjax" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_a_saved_fit_loads_no_comparisons_and_no_statistics_of_scipy():
    """They take half a second of each command on responses."""
    absent = "irtjax.comparisons", "scipy.stats", "scipy.optimize"
    code = f"import sys, irtjax.storage; assert not {{*{absent}}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=True, timeout=120)


def test_a_claim_on_the_responses_of_a_fit_loads_no_jax():
    """It takes two thirds of the second that the command has."""
    needed = "irtjax.cli.claim, irtjax.data.table, irtjax.validity.claims"
    needed += ", irtjax.storage.plain"
    code = (
        f"import sys, {needed}; assert not {{'jax', 'scipy.stats'}} & {{*sys.modules}}"
    )
    subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=True, timeout=120)


def test_a_fit_by_em_loads_no_other_method():
    """Other methods and kinds of models take a third of the modules."""
    loaded = "fitting.fit", "fitting.one_ability", "estimators.marginal.em"
    absent = ("joint", "laplace", "posterior", "neural", "modal_posteriors")
    code = (
        f"import sys, {', '.join(f'irtjax.{x}' for x in loaded)};"
        f" print([x for x in sys.modules if x.startswith("
        f"{tuple(f'irtjax.estimators.{x}' for x in absent)})])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=CHECKOUT,
        check=True,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]"


def test_dir_lists_the_public_names_alone():
    assert dir(irtjax) == sorted([*irtjax.__all__, "__version__"])


def test_importing_every_module_leaves_jax_untouched():
    """No array, no backend, no changed setting; and none of them needs pandas."""
    seen = probe(CHECKOUT, "irtjax", "all")
    assert seen["names"]
    assert (seen["started"], seen["arrays"], seen["changed"]) == (False, 0, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "field", "expected"),
    [
        ("import jax.numpy as jnp\nNODES = jnp.linspace(-4, 4, 61)", "arrays", 1),
        ("import jax\nCPU = jax.devices()[0]", "started", True),
        (
            "import jax\njax.config.update('jax_enable_x64', True)",
            "changed",
            ["jax_enable_x64"],
        ),
    ],
)
def test_the_probe_notices_a_bad_module(tmp_path, source, field, expected):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "bad" / "inner.py").write_text(source, encoding="utf-8")
    seen = probe(tmp_path, "bad", "all")
    assert seen["names"] == ["bad.inner"]
    assert seen[field] == expected


@pytest.mark.slow
def test_the_probe_notices_a_heavy_import(tmp_path):
    (tmp_path / "heavy.py").write_text("import pyarrow, rich", encoding="utf-8")
    loaded = probe(tmp_path, "heavy", "root")["loaded"]
    assert [name for name in HEAVY if name in loaded] == ["pyarrow", "rich"]


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    version = project["project"]["version"]
    citation = (CHECKOUT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    changes = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"version: {version}" in citation
    assert f"## [{version}]" in changes
