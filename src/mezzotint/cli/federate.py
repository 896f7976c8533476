"""`mezzotint federate`."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import RenderableType

import mezzotint as mz
from mezzotint.cli import common
from mezzotint.cli.common import AsJson, Options, ProofOption, option
from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import write_text
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import above, number

if TYPE_CHECKING:
    from mezzotint.federated.app import RunReport
    from mezzotint.federated.encoding import Encoding
    from mezzotint.federated.settings import RunSettings, Scheme

EXAMPLE = "mezzotint federate --mechanism quantize --bits 4 --rounds 6 --out run --json"

TABLES = ("quantize", "rqm", "pbm", "erm", "optm", "optimal")
_CLIP = "clip"
_RANKED = "ranked"
_ROUNDED = "rounded-gaussian"
_REPORT_EPSILON = 4.0
_FURTHER = (
    "ledger", "measured", "evaluations", "incidents", "stopped", "seconds",
)  # fmt: skip
"""Fields of the report that --json prints under their own names."""


def command(
    context: typer.Context,
    mechanism: Annotated[
        str,
        option(
            "A mechanism file; a table: quantize (no noise, default), rqm, pbm, erm, optm, optimal; clients' noise: "
            "rounded-gaussian; clip (16-bit grid, no noise); with --trust local: ranked."
        ),
    ] = "",
    trust: Annotated[
        str, option("sum: the server sees secure sums only. local: each client's ranked report.")
    ] = "sum",
    bits: Annotated[
        int | None,
        option("Bits per report: 4 for named tables; for ranked, the fewest that suffice."),
    ] = None,
    clip: Annotated[
        float, option("Clipping range of a coordinate, data units, for tables and clip.")
    ] = 0.4,
    report_epsilon: Annotated[
        float,
        option(
            "Local epsilon of ONE coordinate's report, or of a ranked vector's; 0: 4 (rqm, pbm: as in their papers)."
        ),
    ] = 0.0,
    noise_multiplier: Annotated[
        float | None,
        option(
            "Standard deviation of the sum's noise, divided by --l2-norm; default: the least that keeps to --epsilon, "
            "or 1 without --epsilon."
        ),
    ] = None,
    l2_norm: Annotated[
        float, option("Clip a vector to this norm and rotate it; 0: off (noise and ranked: 1).")
    ] = 0.0,
    dataset: Annotated[str, option("digits, femnist, mnist, cifar10 or cifar100.")] = "digits",
    data: Annotated[str, option("Folder or file of the data set; digits needs none.")] = "",
    model: Annotated[str, option("softmax, small-cnn or cnn.")] = "softmax",
    clients: Annotated[int, option("Total number of clients (femnist: writers, 0 for all).")] = 100,
    dirichlet: Annotated[
        float, option("Dirichlet parameter of the split; smaller values split less evenly.")
    ] = 0.5,
    per_round: Annotated[int, option("Clients per round.")] = 100,
    spare: Annotated[
        int, option("Extra clients drawn per round, so that it need not wait for the slowest.")
    ] = 0,
    minimum: Annotated[
        int, option("Minimum number of clients in a sum; 0: half of those drawn, plus 1.")
    ] = 0,
    sampling: Annotated[
        str, option("fixed, or cyclic: all take turns.", "--participation")
    ] = "fixed",
    roster: Annotated[
        Path | None, option("Roster of all clients (`mezzotint roster make`); with --app.")
    ] = None,
    colluding: Annotated[float, option("Share of clients that may collude with the server.")] = 0.2,
    dropping: Annotated[float, option("Share of a round's clients that may drop out.")] = 0.2,
    rounds: Annotated[int, option("Rounds of the run.")] = 6,
    algorithm: Annotated[str, option("fedavg or fedsgd.")] = "fedavg",
    steps: Annotated[int, option("Local steps of fedavg.", "--local-steps")] = 5,
    rate: Annotated[float, option("Local step size of fedavg.", "--client-learning-rate")] = 0.5,
    batch: Annotated[
        int, option("Maximum records per local step; 0: all.", "--client-batch-size")
    ] = 0,
    proximal: Annotated[float, option("FedProx: weight of the proximal term; 0: fedavg.")] = 0.0,
    most_examples: Annotated[
        int, option("Weigh clients by their number of examples up to this; 0: equally.")
    ] = 0,
    learning_rate: Annotated[
        float, option("Server learning rate: factor applied to the mean update.")
    ] = 2.0,
    server_optimizer: Annotated[str, option("fedavg (the mean update) or fedavgm.")] = "fedavg",
    evaluate_every: Annotated[
        int,
        option(
            "Rounds between noisy secure sums of clients' own loss and accuracy, counted in every claim; 0: never."
        ),
    ] = 0,
    evaluate_noise: Annotated[
        float, option("As --noise-multiplier, for the sum of measurements.")
    ] = 8.0,
    largest_loss: Annotated[
        float, option("Bound to which a client's loss is clipped in that sum.")
    ] = 5.0,
    epsilon: Annotated[
        float,
        option("Budget of the central (--trust local: local) claim, never exceeded; 0: none."),
    ] = 0.0,
    delta: Annotated[float, option("Delta of all claims.")] = 1e-6,
    seed: Annotated[
        int, option("Seed of the split and the initial model; private noise is never seeded.")
    ] = 0,
    out: Annotated[Path | None, option("Folder for model, ledger and report.")] = None,
    resume: Annotated[
        bool, option("Continue the run in --out with its settings.", "--resume")
    ] = False,
    app: Annotated[
        Path | None, option("Write a folder for `flwr run` instead of simulating here.")
    ] = None,
    proof: ProofOption = None,
    as_json: AsJson = False,
) -> None:
    """Run federated learning through secure sums or single private reports, here or as an app for `flwr run`."""
    options = dict(locals())
    _refuse_idle(options)
    with tempfile.TemporaryDirectory() as scratch:
        if resume:
            from mezzotint.federated.ledger import Checkpoint

            if out is None:
                raise ParameterError(
                    "resume", "no folder", "name the run's folder: --out run --resume"
                )
            Checkpoint.load(out)
            settings = mz.federated.RunSettings.load(out)
        else:
            settings = _settings(options)
            encoding = _encoding(options, settings)
            if out is not None and out.is_file():
                raise ParameterError("out", str(out), "is a file, not a folder; name a folder")
            if (
                out is not None and (out / "ledger.jsonl").exists()
            ):  # after the errors of other options
                remedy = "contains a run already; continue it with --resume, or name another folder"
                raise ParameterError("out", str(out), remedy)
            if app is not None:
                _write_app(app, settings, encoding, out)
                common.show({"app": str(app), "settings": settings.as_dict()}, as_json, list)
                return
            settings = replace(settings, mechanism=_place(encoding, out, Path(scratch)))
        try:
            report = mz.federated.simulate(
                settings, tell=lambda line: common.say(line, on=common.notices())
            )
        except (KeyboardInterrupt, SystemExit):
            kept = (
                f"finished rounds are kept; continue with: mezzotint federate --out {out} --resume"
            )
            common.note(f"ended early; {kept if out else 'nothing is kept without --out'}")
            raise
    if proof is not None:
        _prove(report, proof)
    facts = {
        "accuracy": report.accuracy[-1],
        "history": report.accuracy,
        "bits": report.report_bits,
    }
    facts |= {"wire_bits": report.bits, "mse": report.mse}
    facts |= {view: report.claims.get(view) for view in ("local", "central")}
    common.show(
        facts | common.picked(report, *_FURTHER), as_json, lambda: _picture(report, settings)
    )


def _refuse_idle(options: Options) -> None:
    """Refuse options that were given but would have no effect."""
    name, local = options["mechanism"], options["trust"] == "local"
    noisy, table = not local and name == _ROUNDED, name in ("", *TABLES)
    sums = "applies to secure sums only; leave it out with --trust local"
    measured = "needs --evaluate-every, or leave it out"
    of_tables = "applies to named tables only; name one with --mechanism, or leave it out"
    rules: dict[str, tuple[bool, str]] = {
        "bits": (not table and name != _RANKED, of_tables),
        "report_epsilon": (
            (not table and name != _RANKED) or (not local and name in ("", "quantize")),
            "applies only to named tables with noise (rqm, pbm, erm, optm, optimal) and to ranked; leave it out",
        ),
        "noise_multiplier": (
            not noisy,
            f"needs --mechanism {_ROUNDED}",
        ),
        "clip": (
            local or not (table or name == _CLIP),
            "applies only to named tables and to clip; leave it out",
        ),
        "evaluate_noise": (not options["evaluate_every"], measured),
        "largest_loss": (not options["evaluate_every"], measured),
        **dict.fromkeys(
            ("steps", "rate", "proximal"),
            (
                options["algorithm"] == "fedsgd",
                "applies to --algorithm fedavg only: fedsgd sends one gradient; leave it out",
            ),
        ),
        **dict.fromkeys(("colluding", "dropping"), (local, sums)),
        "proof": _unprovable(name, options["app"]),
    }
    if options["resume"]:
        remedy = "a resumed run keeps its settings; leave it out, or start another run"
        kept = ("context", "out", "resume", "proof", "as_json")
        rules = {given: (given not in kept, remedy) for given in options}
    for given, (idle, remedy) in rules.items():
        source = options["context"].get_parameter_source(given)
        if idle and source is not None and source.name == "COMMANDLINE":
            value = options[given]
            value = " ".join(map(str, value)) if isinstance(value, tuple) else value
            raise ParameterError(given, str(value) if isinstance(value, Path) else value, remedy)


def _unprovable(name: str, app: Path | None) -> tuple[bool, str]:
    """Whether no proof can come of a run, and why."""
    if app is not None:
        return True, "a run's cost is proved when it has ended; leave it out with --app"
    if name == _ROUNDED:
        return (
            True,
            "claims of rounded-gaussian are computed, no proof is known; leave it out",
        )
    return name in (
        "",
        "quantize",
        _CLIP,
    ), "nothing is claimed without noise; leave it out, or name a mechanism"


def _settings(options: Options) -> RunSettings:
    """Those of a new run; what --mechanism names is added once it is made."""
    given = {
        field.name: options[field.name]
        for field in fields(mz.federated.RunSettings)
        if field.name in options
    }
    out, roster = options["out"], options["roster"]
    if roster is not None and options["app"] is None:
        raise ParameterError(
            "roster", str(roster), "simulated clients have no identities; use it with --app"
        )
    given |= {
        "mechanism": "",
        "out": "" if out is None else str(out.resolve()),
        "roster": str(roster or ""),
    }
    return mz.federated.RunSettings(**given)


def _encoding(options: Options, settings: RunSettings) -> Scheme | None:
    """How to turn an update into a report; None for `clip`."""
    name, bits, report_epsilon = options["mechanism"], options["bits"], options["report_epsilon"]
    most_examples = options["most_examples"]
    if not 0 <= report_epsilon < math.inf:
        raise ParameterError(
            "report_epsilon", report_epsilon, "need an epsilon > 0, or 0 for the default"
        )
    if most_examples < 0:
        raise ParameterError(
            "most_examples", most_examples, "need a number of examples, or 0 for equal weights"
        )
    if settings.trust == "local":
        if most_examples:
            raise ParameterError(
                "most_examples", most_examples, "single reports have equal weights; leave it out"
            )
        return _ranked(name, settings, bits, report_epsilon)
    if name == _ROUNDED:
        encoding = _noise(settings, options["noise_multiplier"], bool(most_examples))
    else:
        norm = settings.l2_norm or None
        encoding = _table(
            name or "quantize", 4 if bits is None else bits, settings.clip, report_epsilon, norm
        )
    if not most_examples:
        return encoding
    return mz.federated.WeightedEncoding(
        inner=encoding or settings.encoding(), most_examples=most_examples
    )


def _ranked(
    name: str, settings: RunSettings, bits: int | None, report_epsilon: float
) -> mz.vectors.RankedCodebook:
    """The codebook of single reports: made for the model, or from a file."""
    if name not in ("", _RANKED):
        if not Path(name).exists():
            remedy = "with --trust local give ranked, or the file of a ranked codebook; other mechanisms need a sum"
            raise ParameterError("mechanism", name, remedy)
        return mz.vectors.RankedCodebook.load(name)
    with common.renamed(epsilon="report_epsilon"):
        return mz.vectors.ranked_codebook(
            _size(settings),
            report_epsilon or _REPORT_EPSILON,
            bits,
            clip_norm=settings.l2_norm or 1.0,
        )


def _size(settings: RunSettings) -> int:
    """Parameters of the model."""
    from mezzotint.federated import tasks

    return tasks.model_for(settings.model, settings.federation()).initial(settings.seed).size


def _prove(report: RunReport, path: Path) -> None:
    """Certify the central claim (the local one if there are no sums) in the report, if the kernel accepts it."""
    view = next((view for view in ("central", "local") if view in report.promises), None)
    if view is None:
        raise ParameterError(
            "proof", str(path), "nothing is claimed of this run; there is nothing to prove"
        )
    if report.promises[view].release is None:
        remedy = "what clients measured is added to what updates cost, and sums of claims are not proved; leave one out"
        raise ParameterError("proof", str(path), remedy)
    found = common.write_proof(
        cast(mz.privacy.Release, report.promises[view].release), path, overwrite=True
    )
    report.claims[view] |= {**found.as_dict(), "text": str(found)}


def _table(
    name: str, bits: int, clip: float, report_epsilon: float, l2_norm: float | None
) -> Encoding | None:
    """The encoding of a table by name or from a file; None for `clip`, which has none."""
    if not 1 <= bits <= 12:
        raise ParameterError("bits", bits, "need 1 to 12 bits for a report of a table")
    if not 0 < clip < math.inf:
        raise ParameterError("clip", clip, "need a finite clipping range > 0")
    if name == _RANKED:
        raise ParameterError("mechanism", name, "its indices cannot be summed; use --trust local")
    if name == _CLIP:
        return None
    if name in TABLES:
        with common.renamed(epsilon="report_epsilon"):
            table = _named(name, 2**bits, clip, report_epsilon)
        return mz.federated.TableEncoding(mechanism=table, l2_norm=l2_norm)
    if not Path(name).exists():
        known = ", ".join((*TABLES, _ROUNDED, _CLIP))
        raise ParameterError("mechanism", name, f"no such file; name one, or use {known}")
    try:
        return mz.federated.load_encoding(Path(name), l2_norm=l2_norm)
    except ParameterError as error:
        if error.parameter != "levels":
            raise
        remedy = (
            "its levels are not integer multiples of a step, so sums of codes do not decode to sums of values; design "
            "it on an even grid (--levels=-3,-1,1,3)"
        )
        raise ParameterError("mechanism", name, remedy) from error


def _named(name: str, levels: int, clip: float, report_epsilon: float) -> Mechanism:
    if name == "quantize":
        return mz.families.stochastic_rounding(lower=-clip, upper=clip, levels=levels)
    if name == "rqm" and report_epsilon == 0:
        return mz.families.rqm(lower=-clip, upper=clip, levels=levels, extension=clip, q=0.42)
    if name == "pbm" and report_epsilon == 0:
        return mz.families.pbm(lower=-clip, upper=clip, trials=levels - 1, theta=0.25)
    epsilon = report_epsilon or _REPORT_EPSILON
    if name in ("rqm", "pbm"):
        return mz.design.calibrate(
            name, epsilon=epsilon, lower=-clip, upper=clip, levels=levels
        ).mechanism
    return _on_even_levels(name, levels, clip, epsilon)


def _on_even_levels(name: str, levels: int, clip: float, epsilon: float) -> Mechanism:
    """Sums need even levels: the best of nine ranges, from the least that unbiased reports allow."""
    if name == "optm" and levels > 4:
        remedy = "OPTM searches boxes of probabilities, too many beyond 4 levels: use --bits 2, or optimal"
        raise ParameterError("bits", (levels - 1).bit_length(), remedy)
    reaches = [clip * 1.02 * 1.18**place / math.tanh(epsilon / 2) for place in range(9)]
    problem: Options = {"epsilon": epsilon, "lower": -clip, "upper": clip}
    designs: dict[str, Callable[[list[float]], mz.design.DesignResult]] = {
        "optimal": lambda even: mz.design.optimal(levels=even, knots=9, **problem),
        "erm": lambda even: mz.design.calibrate("erm", levels=even, **problem),
        "optm": lambda even: mz.design.optm(bins=even, boxes=9, **problem),
    }
    return common.best_on_even_levels(levels, reaches, designs[name])


def _noise(settings: RunSettings, noise_multiplier: float | None, one_more: bool) -> Encoding:
    """The encoding of updates, with one more coordinate if a number joins, at the noise given or found."""
    from mezzotint.federated import budgets
    from mezzotint.federated.secagg import roster as draws
    from mezzotint.privacy.claim import counted

    population, size = len(settings.federation().clients), _size(settings) + one_more

    def make(multiplier: float) -> Encoding:
        norm, clients = settings.l2_norm or 1.0, settings.per_round
        asked: Options = {
            "noise_multiplier": multiplier,
            "l2_norm": norm,
            "clients": clients,
            "size": size,
        }
        return mz.federated.gaussian_encoding(**asked)

    if noise_multiplier is not None or settings.epsilon == 0:
        given = 1.0 if noise_multiplier is None else noise_multiplier
        return make(given)
    drawn = settings.per_round + settings.spare
    sampling = check_choice("sampling", settings.sampling, draws.SAMPLINGS)
    rounds = draws.most_participations(
        sampling, rounds=settings.rounds, per_round=drawn, population=population
    )
    least = settings.minimum or drawn // 2 + 1
    epsilon, delta = _left_for_updates(settings, least)
    found, encoding = budgets.noise_within(
        epsilon, make, rounds=rounds, clients=least, size=size, delta=delta
    )
    told = f"clients in {rounds} of {counted(settings.rounds, 'round')} (sums of {least} or more)"
    common.note(
        f"--noise-multiplier {found:.6g} keeps {told} within --epsilon {settings.epsilon:g}"
    )
    return encoding


def _left_for_updates(settings: RunSettings, least: int) -> tuple[float, float]:
    """Epsilon and delta of the budget without what clients measure."""
    if not settings.evaluations:
        return settings.epsilon, settings.delta
    measuring, told = settings.measuring(0), {"rounds": settings.evaluations, "clients": least}
    claim = measuring.central(**told, size=0, delta=settings.delta / 2)
    cost = math.inf if claim is None else claim.epsilon
    if cost >= settings.epsilon:
        remedy = f"what clients measure alone costs {cost:g}: use more --evaluate-noise, or ask less often"
        raise ParameterError("epsilon", settings.epsilon, remedy)
    return settings.epsilon - cost, settings.delta / 2


def _write_app(app: Path, settings: RunSettings, encoding: Scheme | None, out: Path | None) -> None:
    """The folder for `flwr run`, and what to do with it."""
    if out is not None and out.is_absolute():
        remedy = "results of an app go below the directory of its SuperLink: give a relative folder, or none"
        raise ParameterError("out", str(out), remedy)
    from mezzotint.federated import folder as folders

    folders.write_app(app, replace(settings, out="" if out is None else str(out)), encoding)
    common.note(f"check it with: flwr build --app {app}; run it with: flwr run {app}")
    simulated = (
        f"flwr federation simulation-config @none/default local --num-supernodes {settings.clients}"
    )
    common.note(f"to simulate its clients on one machine, first: {simulated}")
    if settings.evaluate_every:
        common.note(
            "nodes tell what they measure only under a policy with evaluate_noise_multiplier; others refuse"
        )
    if settings.data:
        common.note(
            "every node names its data in --node-config 'data=\"/path\"', the SuperLink's machine in the environment "
            "variable MEZZOTINT_DATA"
        )


def _place(encoding: Scheme | None, out: Path | None, scratch: Path) -> str:
    """The folder of the run's encoding: beside its results, or a temporary one."""
    from mezzotint.federated import folder as folders

    if encoding is None:
        return ""
    folder = out if out is not None else scratch
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / folders.ENCODING
    write_text(path, folders.described(encoding), overwrite=True)
    return str(path.resolve())


def _picture(report: RunReport, settings: RunSettings) -> list[RenderableType]:
    from mezzotint.privacy.claim import basis, counted

    views, smallest = (
        (("local",), "mean") if settings.trust == "local" else (("local", "central"), "sum")
    )
    charges, claims = report.ledger["charges"], report.claims
    cells = {"bits": str(report.report_bits), "bits on the wire": str(report.bits)}
    cells |= {"MSE of a report": number(report.mse)}
    known = {view: claims.get(view, {}).get("epsilon") for view in views}
    cells |= {
        f"{view} epsilon": "none" if one in (None, "inf") else above(float(one))
        for view, one in known.items()
    }
    cells |= {"rounds charged": str(max(charges.values(), default=0))}
    stated = {
        view: basis(claim["observer"], certified=claim["certified"])
        for view, claim in claims.items()
    }
    lines = [
        f"{view}: {claims.get(view, {}).get('text', _unclaimed(view, report))}" for view in views
    ]
    if settings.trust == "local":
        lines.append("observer: the server itself, which sees every report")
    lines.append(
        f"ledger: {counted(len(report.ledger['rounds']), 'round')}, smallest {smallest} "
        f"{counted(report.ledger['smallest_sum'], 'client')}, {counted(len(charges), 'client')} charged"
    )
    for one in report.measured[-1:]:
        told = ", ".join(
            f"{name} {one[name][0]:.4f} (noise {one[name][1]:.2g})" for name in ("loss", "accuracy")
        )
        lines.append(f"measured by {one['clients']} clients after round {one['round']}: {told}")
    if report.stopped:
        lines.append(f"stopped: {report.stopped}")
    title = f"{settings.dataset}, {settings.model}: accuracy {report.accuracy[-1]:.4f}"
    caption = "; ".join(f"{view} epsilon {text}" for view, text in stated.items())
    return [
        common.TerminalTable(cells, [tuple(cells.values())], left=(), title=title, caption=caption),
        *lines,
    ]


def _unclaimed(view: str, report: RunReport) -> str:
    if not report.ledger["charges"]:
        return "nothing was released"
    if view == "local" and "central" in report.claims:
        return "no epsilon can be claimed: whoever sees a report, the server too, sees it without noise"
    return "no epsilon can be claimed: the mechanism has no noise"
