"""The `irtjax` command and the list of its subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from irtjax.cli.adapt import adapt_command
from irtjax.cli.add import add_command
from irtjax.cli.arena import arena_command
from irtjax.cli.audit import audit_command
from irtjax.cli.calibrate_items import calibrate_items_command
from irtjax.cli.claim import claim_command
from irtjax.cli.clean import clean_command
from irtjax.cli.clusters import clusters_command
from irtjax.cli.cold_start import cold_start_command
from irtjax.cli.command import Command, Group
from irtjax.cli.compare import compare_command
from irtjax.cli.compare_models import compare_models_command
from irtjax.cli.correlates import correlates_command
from irtjax.cli.demo import demo_command
from irtjax.cli.dif import dif_command
from irtjax.cli.dimensions import dimensions_command
from irtjax.cli.estimate import estimate_command
from irtjax.cli.fit import FitCommand, fit_command
from irtjax.cli.fit_statistics import fit_statistics_command
from irtjax.cli.forecast import forecast_command
from irtjax.cli.generalise import generalise_command
from irtjax.cli.history import history_command
from irtjax.cli.horizons import horizons_command
from irtjax.cli.imports import import_module
from irtjax.cli.info import info_command
from irtjax.cli.joint import joint_command
from irtjax.cli.judges import judges_command
from irtjax.cli.link import link_command
from irtjax.cli.network import network_command
from irtjax.cli.power import power_command
from irtjax.cli.predict import predict_command
from irtjax.cli.rank import rank_command
from irtjax.cli.rasch import rasch_command
from irtjax.cli.reliability import reliability_command
from irtjax.cli.report import report_command
from irtjax.cli.run import run_command
from irtjax.cli.score import score_command
from irtjax.cli.show import items_command, show_command
from irtjax.cli.shrink import shrink_command
from irtjax.cli.simulate import simulate_command
from irtjax.cli.stability import stability_command

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Item response theory for AI evaluation logs: calibrate items, score and rank"
    " models, with errors.",
)


def _version(asked: bool) -> None:
    """Prints the version and ends."""
    if asked:
        from irtjax._version import package_version

        typer.echo(f"irtjax {package_version()}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version."
        ),
    ] = False,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Take defaults of options from this file; else from irtjax.toml, or"
            " \\[tool.irtjax] of pyproject.toml, here or in a folder above.",
        ),
    ] = None,
    no_config: Annotated[
        bool, typer.Option("--no-config", help="Take no defaults from a file.")
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module of your own first, such as that of the family of a"
            " saved fit; may be repeated.",
        ),
    ] = None,
) -> None:
    """Imports the modules that were named; `Command` reads the other options."""
    for name in modules or ():
        import_module(name)


app.command("run", cls=Command)(run_command)
app.command("fit", cls=FitCommand)(fit_command)
app.command("show", cls=Command)(show_command)
app.command("items", cls=Command)(items_command)
app.command("score", cls=Command)(score_command)
app.command("add", cls=Command)(add_command)
app.command("history", cls=Command)(history_command)
app.command("rank", cls=Command)(rank_command)
app.command("compare", cls=Command)(compare_command)
app.command("report", cls=Command)(report_command)
app.command("predict", cls=Command)(predict_command)
app.command("adapt", cls=Command)(adapt_command)
app.command("shrink", cls=Command)(shrink_command)
app.command("audit", cls=Command)(audit_command)
app.command("dimensions", cls=Command)(dimensions_command)
app.command("rasch", cls=Command)(rasch_command)
app.command("network", cls=Command)(network_command)
app.command("fit-statistics", cls=Command)(fit_statistics_command)
app.command("dif", cls=Command)(dif_command)
app.command("link", cls=Command)(link_command)
app.command("stability", cls=Command)(stability_command)
app.command("reliability", cls=Command)(reliability_command)
app.command("claim", cls=Command)(claim_command)
app.command("estimate", cls=Command)(estimate_command)
app.command("clean", cls=Command)(clean_command)
app.command("cold-start", cls=Command)(cold_start_command)
app.command("generalise", cls=Command)(generalise_command)
app.command("compare-models", cls=Command)(compare_models_command)
app.command("horizons", cls=Command)(horizons_command)
app.command("correlates", cls=Command)(correlates_command)
app.command("forecast", cls=Command)(forecast_command)
app.command("calibrate-items", cls=Command)(calibrate_items_command)
app.command("arena", cls=Command)(arena_command)
app.command("joint", cls=Command)(joint_command)
app.command("judges", cls=Command)(judges_command)
app.command("clusters", cls=Command)(clusters_command)
app.command("power", cls=Command)(power_command)
app.command("simulate", cls=Command)(simulate_command)
app.command("info", cls=Command)(info_command)
app.command("demo", cls=Command)(demo_command)
