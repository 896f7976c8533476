"""`mezzotint federate`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from mezzotint.cli.common import AsJson, load_mechanism, notices, number, output, print_json
from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.core.mechanism import Mechanism

checkpoints: Any = LazyModule("mezzotint.federated.checkpoint")
families: Any = LazyModule("mezzotint.families")
folders: Any = LazyModule("mezzotint.federated.folder")
run_settings: Any = LazyModule("mezzotint.federated.settings")
simulation: Any = LazyModule("mezzotint.federated.simulation")

EXAMPLE = "mezzotint federate --mechanism quantize --bits 4 --rounds 6 --out run --json"

_QUANTIZE, _CLIP = "quantize", "clip"


def command(
    mechanism: Annotated[
        str,
        typer.Option(
            help="A mechanism file, or quantize (noise-free), rqm, pbm (at the papers' parameters), clip (16-bit grid)."
        ),
    ] = _QUANTIZE,
    bits: Annotated[int, typer.Option(help="Bits of a report for the mechanisms named.")] = 4,
    clip: Annotated[float, typer.Option(help="Clipping range of a coordinate, data units, for those named.")] = 0.4,
    l2_norm: Annotated[float, typer.Option(help="Also clip a client's whole vector to this norm; 0 does not.")] = 0.0,
    dataset: Annotated[str, typer.Option(help="digits, femnist, mnist, cifar10 or cifar100.")] = "digits",
    data: Annotated[str, typer.Option(help="Folder or file of the data set; digits needs none.")] = "",
    model: Annotated[str, typer.Option(help="softmax, small-cnn or cnn.")] = "softmax",
    clients: Annotated[int, typer.Option(help="Clients in all (femnist: writers, 0 for all).")] = 100,
    alpha: Annotated[float, typer.Option(help="Dirichlet parameter of the split; small is uneven.")] = 0.5,
    per_round: Annotated[int, typer.Option(help="Clients in a round.")] = 100,
    minimum: Annotated[int, typer.Option(help="Fewest summands of a sum; 0: half of --per-round + 1.")] = 0,
    sampling: Annotated[str, typer.Option(help="fixed or poisson.")] = "fixed",
    rounds: Annotated[int, typer.Option(help="Rounds.")] = 6,
    algorithm: Annotated[str, typer.Option(help="fedavg or fedsgd.")] = "fedavg",
    steps: Annotated[int, typer.Option(help="Local steps of fedavg.")] = 5,
    rate: Annotated[float, typer.Option(help="Local step size of fedavg.")] = 0.5,
    batch: Annotated[int, typer.Option(help="Most records per local step; 0 for all.")] = 0,
    learning_rate: Annotated[float, typer.Option(help="Factor of the mean update.")] = 2.0,
    epsilon: Annotated[float, typer.Option(help="Budget of the central claim, never exceeded; 0: none.")] = 0.0,
    delta: Annotated[float, typer.Option(help="Delta of all claims.")] = 1e-5,
    seed: Annotated[int, typer.Option(help="Of split and start; private noise is never seeded.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for model, ledger and report.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, with its settings.")] = False,
    app: Annotated[Path | None, typer.Option(help="Write a folder for `flwr run` instead of simulating here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Federated learning through secure sums: simulated here, or written as an app for `flwr run`."""
    with tempfile.TemporaryDirectory() as scratch:
        if resume:
            settings = _resumed(out)
        else:
            table = _mechanism(mechanism, bits, clip)
            settings = run_settings.RunSettings(
                dataset=dataset, data=data, model=model, clients=clients, alpha=alpha, seed=seed, algorithm=algorithm,
                steps=steps, rate=rate, batch=batch, clip=clip, l2_norm=l2_norm, learning_rate=learning_rate,
                rounds=rounds, per_round=per_round, minimum=minimum, sampling=sampling, epsilon=epsilon, delta=delta,
                mechanism=_place(table, _fresh(out), app, Path(scratch)), out="" if out is None else str(out.resolve()),
            )  # fmt: skip
        if app is not None:
            folders.write_app(app, settings)
            notices().print(f"mezzotint: run it with: flwr run {app}", markup=False)
            return
        report = simulation.simulate(settings, tell=lambda line: notices().print(line, highlight=False))
    _show(report, settings, as_json)


def _mechanism(name: str, bits: int, clip: float) -> Mechanism | None:
    if not 1 <= bits <= 12:
        raise ParameterError("bits", bits, "1 to 12 bits a report")
    if not clip > 0:
        raise ParameterError("clip", clip, "a clipping range > 0")
    if name == _QUANTIZE:
        return families.stochastic_rounding(lower=-clip, upper=clip, levels=2**bits)
    if name == "rqm":
        return families.rqm(lower=-clip, upper=clip, levels=2**bits, extension=clip, q=0.42)
    if name == "pbm":
        return families.pbm(lower=-clip, upper=clip, trials=2**bits - 1, theta=0.25)
    return None if name == _CLIP else load_mechanism(Path(name))


def _fresh(out: Path | None) -> Path | None:
    if out is not None and (out / "ledger.jsonl").exists():
        raise ParameterError("out", str(out), "holds a run already; go on with --resume, or name another folder")
    return out


def _place(table: Mechanism | None, out: Path | None, app: Path | None, scratch: Path) -> str:
    """Where the run finds its table: beside its results, beside its app, or in a temporary folder."""
    if table is None:
        return ""
    folder = app if app is not None else out if out is not None else scratch
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mechanism.json"
    table.save(path, overwrite=True)
    return str(path.resolve())


def _resumed(out: Path | None) -> Any:
    if out is None:
        raise ParameterError("resume", "no folder", "name the run's folder: --out run --resume")
    checkpoints.Checkpoint.load(out)
    return run_settings.RunSettings.load(out)


def _show(report: Any, settings: Any, as_json: bool) -> None:
    facts = {
        "accuracy": report.accuracy[-1],
        "history": report.accuracy,
        "bits": report.report_bits,
        "wire_bits": report.bits,
        "mse": report.mse,
        "local": report.claims.get("local"),
        "central": report.claims.get("central"),
        "ledger": report.ledger,
        "incidents": report.incidents,
        "stopped": report.stopped,
        "seconds": report.seconds,
    }
    if as_json:
        print_json(facts)
        return
    table = Table(
        title=f"{settings.dataset}, {settings.model}: accuracy {report.accuracy[-1]:.4f}", title_justify="left"
    )
    for name in ("bits", "bits on the wire", "MSE of a report", "local epsilon", "central epsilon", "rounds charged"):
        table.add_column(name, justify="right")
    claims = [_epsilon(report.claims.get(view, {}).get("epsilon")) for view in ("local", "central")]
    charged = max(report.ledger["charges"].values(), default=0)
    table.add_row(str(report.report_bits), str(report.bits), number(report.mse), *claims, str(charged))
    output().print(table)
    for view in ("local", "central"):
        text = report.claims.get(view, {}).get("text", "No epsilon can be claimed: the mechanism has no table.")
        output().print(f"{view}: {text}", markup=False, highlight=False, soft_wrap=True)
    rounds = report.ledger["rounds"]
    summary = f"ledger: {len(rounds)} rounds, smallest sum {report.ledger['smallest_sum']} clients"
    output().print(f"{summary}, {len(report.ledger['charges'])} clients charged", markup=False, highlight=False)
    if report.stopped:
        output().print(f"stopped: {report.stopped}", markup=False, highlight=False, soft_wrap=True)


def _epsilon(value: Any) -> str:
    return "none" if value is None or value == "inf" else number(float(value))
