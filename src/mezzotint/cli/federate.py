"""`mezzotint federate`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, final

import typer
from rich.console import RenderableType

import mezzotint as mz
from mezzotint.cli import common, console, messages, tables
from mezzotint.cli.options import OUTPUT, AsJson, ProofOption, argument, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import refuse_existing, write_text
from mezzotint.core.records import JsonObject, above, counted, exactly, number

if TYPE_CHECKING:
    from mezzotint.cli.federate_run import RunFile
    from mezzotint.federated.app import RunReport
    from mezzotint.federated.settings import RunSettings, Scheme

EXAMPLE = "mezzotint federate --example > run.toml; mezzotint federate run.toml --out run"

RUN = "Run"

_FURTHER = (
    "ledger", "measured", "evaluations", "incidents", "stopped", "seconds",
)  # fmt: skip
"""Fields of the report that --json prints under their own names."""


@final
@dataclass(frozen=True, kw_only=True)
class FederateOptions:
    """Options of the verb."""

    file: Annotated[
        Path | None, argument("Run file; --example prints one.", metavar="RUN.TOML")
    ] = None
    changes: Annotated[
        list[str] | None,
        option(
            "Change a value, as in rounds.count=3; repeatable.",
            "--set",
            metavar="KEY=VALUE",
            panel=RUN,
        ),
    ] = None
    example: Annotated[
        bool, option("Print a run file and nothing else.", "--example", panel=RUN)
    ] = False
    dry_run: Annotated[
        bool,
        option("Play one round on made-up data: nothing is charged.", "--dry-run", panel=RUN),
    ] = False
    out: Annotated[Path | None, option("Folder for model, ledger and report.", panel=OUTPUT)] = None
    resume: Annotated[
        bool, option("Continue the run in --out with its settings.", "--resume", panel=RUN)
    ] = False
    app: Annotated[
        Path | None, option("Write a folder for `flwr run` instead of simulating.", panel=OUTPUT)
    ] = None
    proof: ProofOption = None
    as_json: AsJson = False


def command(options: FederateOptions) -> None:
    """Run federated learning through secure sums or single private reports, here or as an app for
    `flwr run`.
    """
    if options.example:
        from mezzotint.cli.federate_run import EXAMPLE_RUN

        typer.echo(EXAMPLE_RUN, nl=False)
    elif options.resume:
        _refuse_beside_resume(options.file, options.changes, options.app, options.dry_run)
        _resume(options)
    else:
        from mezzotint.cli.federate_run import NAMES

        run = _read(options.file, options.changes)
        with messages.renamed(NAMES):
            _begin(run, options)


def _begin(run: RunFile, options: FederateOptions) -> None:
    """A new run: rehearsed, written as an app, or simulated."""
    settings = run.settings(options.out)
    if options.dry_run:
        _dry_run(run, settings, options.as_json)
        return
    _refuse_options(run, settings, options.app, options.proof)
    scheme = _scheme(run, settings, options.out)
    if options.app is not None:
        _write_app(options.app, settings, scheme, options.out)
        json_fields = {"app": str(options.app), "settings": settings.as_dict()}
        console.show(json_fields, options.as_json, list)
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        settings = replace(settings, mechanism=_place(scheme, options.out, Path(scratch)))
        _run(settings, options)


def _run(settings: RunSettings, options: FederateOptions) -> None:
    """Simulate the run; prove what can be proved, and print what was reached and what it cost."""
    if options.proof is not None:
        refuse_existing(options.proof, overwrite=True, parameter="proof")
    with _going_on(options.out):
        report = mz.federated.simulate(
            settings, tell=lambda line: console.say(line, on=console.notices())
        )
    if options.proof is not None:
        _prove(report, options.proof)
    _show(report, settings, options.as_json)


def _read(file: Path | None, changes: list[str] | None) -> RunFile:
    from mezzotint.cli.federate_run import read_run

    if file is None:
        raise ParameterError("run", "no file", "name a run file; --example prints one")
    return read_run(file, changes or [])


def _scheme(run: RunFile, settings: RunSettings, out: Path | None) -> Scheme:
    """The scheme of a new run; then its folder is looked at, which hides no other error."""
    from mezzotint.cli.federate_run import make_scheme
    from mezzotint.federated.app import holds_run

    scheme = make_scheme(run, settings, size=settings.model_size(settings.federation()))
    if out is not None and out.is_file():
        raise ParameterError("out", str(out), "is a file, not a folder; name a folder")
    if out is not None and holds_run(out):
        remedy = "contains a run already; continue it with --resume, or name another folder"
        raise ParameterError("out", str(out), remedy)
    return scheme


def _refuse_beside_resume(
    file: Path | None, changes: list[str] | None, app: Path | None, dry_run: bool
) -> None:
    """Refuse what a resumed run, which keeps its settings, would ignore."""
    ignored = {"run": file, "set": changes, "app": app, "dry_run": dry_run or None}
    for option_name, value in ignored.items():
        if value:
            remedy = "a resumed run keeps its settings; leave it out, or start another run"
            raise ParameterError(option_name, str(value), remedy)


def _refuse_options(
    run: RunFile, settings: RunSettings, app: Path | None, proof: Path | None
) -> None:
    """Refuse a roster without an app, and a proof that can never be."""
    from mezzotint.cli.federate_run import Grid, RoundedGaussian

    if settings.roster and app is None:
        remedy = "simulated clients have no identities; use it with --app"
        raise ParameterError("roster", settings.roster, remedy)
    if proof is None:
        return
    remedy = ""
    if app is not None:
        remedy = "a run's cost is proved when it has ended; leave it out with --app"
    elif isinstance(run.mechanism, RoundedGaussian):
        remedy = "claims of rounded-gaussian are computed, no proof is known; leave it out"
    elif isinstance(run.mechanism, Grid) or getattr(run.mechanism, "family", "") == "quantize":
        remedy = "nothing is claimed without noise; leave it out, or name another mechanism"
    if remedy:
        raise ParameterError("proof", str(proof), remedy)


def _resume(options: FederateOptions) -> None:
    from mezzotint.federated.run_ledger import Checkpoint

    out = options.out
    if out is None:
        raise ParameterError("resume", "no folder", "name the run's folder: --out run --resume")
    Checkpoint.load(out)
    _run(mz.federated.RunSettings.load(out), options)


@contextmanager
def _going_on(out: Path | None) -> Iterator[None]:
    """Whatever ends a run early, say how it goes on: another would charge its clients again."""
    try:
        yield
    except BaseException as error:
        consequence = "no round had begun"
        if out is None:
            consequence = "nothing is kept without --out"
        has_begun = out is not None and (out / "ledger.jsonl").exists()
        if has_begun:
            command_line = f"mezzotint federate --out {out} --resume"
            consequence = f"finished rounds are kept; continue with: {command_line}"
        if isinstance(error, KeyboardInterrupt | SystemExit):
            console.note(f"ended early; {consequence}")
        elif has_begun:
            error.add_note(consequence)
        raise


def _dry_run(run: RunFile, settings: RunSettings, as_json: bool) -> None:
    """One round on made-up data, and what the run would cost."""
    from mezzotint.cli.federate_run import make_scheme
    from mezzotint.federated.dry_run import made_up, rehearse

    # Of a data set whose clients were to be counted there are those of a round.
    settings = replace(
        settings, population=settings.population or settings.clients_per_round + settings.spare
    )
    scheme = make_scheme(run, settings, size=settings.model_size(made_up(settings, 1)))
    json_fields = rehearse(settings, scheme).as_dict()
    rounds = counted(json_fields["rounds"], "round")
    price = f"no epsilon can be claimed of the run, {rounds} of a client"
    if json_fields["epsilon"] is not None:
        price = _price(settings, json_fields)
    sentences: list[RenderableType] = [
        f"one round of {json_fields['clients']} clients on made-up data: "
        f"{json_fields['parameters']:,} parameters, {json_fields['bits']} bits each on the wire, "
        f"{json_fields['seconds']:.1f} s",
        price,
        "nothing was read, kept or charged",
    ]
    if json_fields["rounds"] < json_fields["wanted"]:
        sentences.append(
            f"warning: the budget of epsilon {exactly(settings.epsilon)} ends the run after "
            f"{json_fields['rounds']} of {counted(json_fields['wanted'], 'round')} of a client"
        )
    if json_fields["warning"]:
        sentences.append(f"warning: {json_fields['warning']}")
    console.show(json_fields, as_json, lambda: sentences)


def _price(settings: RunSettings, rehearsal: JsonObject) -> str:
    """A sentence on what the run costs, and under which conditions."""
    from mezzotint.federated.secagg.roster import RISK

    rounds = rehearsal["rounds"]
    worst = f"a client in {counted(rounds, 'round')}"
    if rehearsal["evaluations"]:
        worst += f" and in {counted(rehearsal['evaluations'], 'sum')} of what clients measure"
    if settings.observer != "reports":
        worst += f", each a sum of the fewest clients allowed, {settings.fewest_summands}"
        if settings.corrupted:
            worst += f", of whom {settings.corrupted} add no noise"
        worst += "; rounds that clients spoil are repeated, and cost more"
    chance = ""
    # A budget that ends the run earlier is kept to, whatever is drawn.
    if settings.may_be_exceeded and rounds == rehearsal["wanted"]:
        chance = f", but for draws of probability {RISK:g},"
    cost = f"epsilon {above(rehearsal['epsilon'])}, delta {above(rehearsal['delta'])}"
    return f"at worst{chance} the run costs {cost}: {worst}"


def _show(report: RunReport, settings: RunSettings, as_json: bool) -> None:
    json_fields: JsonObject = {
        "accuracy": report.accuracy[-1],
        "history": report.accuracy,
        "bits": report.report_bits,
        "wire_bits": report.bits,
        "mse": report.mse,
    }
    json_fields |= {view: report.claims.get(view) for view in ("local", "central")}
    console.show(
        json_fields | common.picked(report, *_FURTHER), as_json, lambda: _picture(report, settings)
    )


def _prove(report: RunReport, path: Path) -> None:
    """Certify the central claim (the local one if there are no sums) in the report, if the kernel
    accepts it.
    """
    promised_views = [view for view in ("central", "local") if view in report.promises]
    if not promised_views:
        raise ParameterError(
            "proof", str(path), "nothing is claimed of this run; there is nothing to prove"
        )
    view = promised_views[0]
    if report.promises[view].release is None:
        remedy = (
            "what clients measured is added to what updates cost, and sums of claims are not "
            "proved; leave one out"
        )
        raise ParameterError("proof", str(path), remedy)
    release = cast(mz.privacy.Release, report.promises[view].release)
    proved = common.write_proof(release, path, overwrite=True)
    report.claims[view] |= {**proved.as_dict(), "text": str(proved)}


def _write_app(app: Path, settings: RunSettings, scheme: Scheme, out: Path | None) -> None:
    """The folder for `flwr run`, and what to do with it."""
    if out is not None and out.is_absolute():
        remedy = (
            "results of an app go below the directory of its SuperLink: give a relative folder, or "
            "none"
        )
        raise ParameterError("out", str(out), remedy)
    from mezzotint.federated import app_folder

    folder_name = ""
    if out is not None:
        folder_name = str(out)
    app_folder.write_app(app, replace(settings, out=folder_name), scheme)
    console.note(f"check it with: flwr build --app {app}; run it with: flwr run {app}")
    simulated = (
        "flwr federation simulation-config @none/default local --num-supernodes "
        f"{settings.population}"
    )
    console.note(f"to simulate its clients on one machine, first: {simulated}")
    if settings.evaluate_every:
        console.note(
            "nodes tell what they measure only under a policy with evaluate_noise_multiplier; "
            "others refuse"
        )
    if settings.data:
        console.note(
            "every node names its data in --node-config 'data=\"/path\"', the SuperLink's machine "
            "in the environment variable MEZZOTINT_DATA"
        )


def _place(scheme: Scheme, out: Path | None, scratch: Path) -> str:
    """The folder of the run's encoding: beside its results, or a temporary one."""
    from mezzotint.federated import app_folder

    folder = scratch
    if out is not None:
        folder = out
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / app_folder.ENCODING
    write_text(path, app_folder.described(scheme), overwrite=True)
    return str(path.resolve())


def _picture(report: RunReport, settings: RunSettings) -> list[RenderableType]:
    from mezzotint.privacy.claim import basis

    views = ["local"]
    if settings.observer != "reports":
        views.append("central")
    claims = report.claims
    cells = {"bits": str(report.report_bits), "bits on the wire": str(report.bits)}
    cells["MSE of a report"] = number(report.mse)
    for view in views:
        cell = "none"
        epsilon = claims.get(view, {}).get("epsilon")
        if epsilon not in (None, "inf"):
            cell = above(float(epsilon))
        cells[f"{view} epsilon"] = cell
    cells["rounds charged"] = str(max(report.ledger["charges"].values(), default=0))
    title = f"{settings.dataset}, {settings.model}: accuracy {report.accuracy[-1]:.4f}"
    standings = []
    for view, claim in claims.items():
        standing = basis(claim["observer"], certified=claim["certified"])
        standings.append(f"{view} epsilon {standing}")
    caption = "; ".join(standings)
    row = tuple(cells.values())
    table = tables.TerminalTable(cells, [row], left=(), title=title, caption=caption)
    return [table, *_lines(report, settings, views)]


def _lines(report: RunReport, settings: RunSettings, views: list[str]) -> list[str]:
    """Claims, ledger and measurements in sentences."""

    sentences = []
    for view in views:
        text = report.claims.get(view, {}).get("text", _unclaimed(view, report))
        sentences.append(f"{view}: {text}")
    smallest = "sum"
    if settings.observer == "reports":
        sentences.append("observer: the server itself, which sees every report")
        smallest = "mean"
    ledger = report.ledger
    sentences.append(
        f"ledger: {counted(len(ledger['rounds']), 'round')}, smallest {smallest} "
        f"{counted(ledger['smallest_sum'], 'client')}, {counted(len(ledger['charges']), 'client')} "
        "charged"
    )
    for measured in report.measured[-1:]:
        values = []
        for name in ("loss", "accuracy"):
            value, noise = measured[name][:2]
            values.append(f"{name} {value:.4f} (noise {noise:.2g})")
        who = (
            f"measured by {counted(measured['clients'], 'client')} after round {measured['round']}"
        )
        sentences.append(f"{who}: {', '.join(values)}")
    if report.stopped:
        sentences.append(f"stopped: {report.stopped}")
    return sentences


def _unclaimed(view: str, report: RunReport) -> str:
    if not report.ledger["charges"]:
        return "nothing was released"
    if view == "local" and "central" in report.claims:
        return (
            "no epsilon can be claimed: whoever sees a report, the server too, sees it without "
            "noise"
        )
    return "no epsilon can be claimed: the mechanism has no noise"
