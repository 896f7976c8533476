"""Certified beside computed: what the exact check costs in epsilon and in seconds, claim by claim.

Run: python benchmarks/kernel.py [--only local|sums|examples|training|users|memoised|profiles] [--match TEXT] [--json]

computed: the float accountant's epsilon; log10 of delta for profiles. ratio: certified over computed (of delta for
profiles), or "computed" when nothing was certified.
check: CPU seconds of one `mezzotint.kernel.check`; account: of the float accountant. kB: size of the claim file.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sums import CLIENTS, TABLES

from mezzotint import design, families, kernel, privacy, smoothed
from mezzotint.core.mechanism import Mechanism
from mezzotint.privacy.propose import Outcome, propose_local, propose_profile
from mezzotint.privacy.sums.proposals import propose_sum
from mezzotint.training.rqp import (
    Phase,
    Poisson,
    epsilon as training_epsilon,
    propose_training,
    training_release,
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One claim."""

    claim: str
    computed: float
    ratio: float | None
    kind: str
    account: float
    check: float
    size: float
    reason: str


_asked = ""
_WORDS = {"public": "seen", "poisson": "secret", "add_or_remove_one": "add or remove"}


def _named(table: str, shape: dict[str, Any]) -> str:
    """A row's name, as docs/benchmarks.md has it."""
    words = [table]
    for key, value in shape.items():
        words.append(
            f"{value:,} clients"
            if key == "clients"
            else _WORDS.get(value)
            or f"{key} {value}".replace("dimension", "coordinates").replace("_", " ")
        )
    return ", ".join(words)


def _epsilon_ratio(outcome: Outcome, computed: float) -> float:
    return float(outcome.claim.epsilon) / computed


def _delta_ratio(outcome: Outcome, log10_delta: float) -> float:
    return 10 ** (float(outcome.claim.statement["log10_delta"]) - log10_delta)


def _line(
    name: str,
    account: Callable[[], float],
    propose: Callable[[float], Outcome],
    ratio: Callable[[Outcome, float], float] = _epsilon_ratio,
) -> Line | None:
    if _asked not in name:
        return None
    started = time.process_time()
    computed = account()
    between = time.process_time()
    outcome = propose(computed)
    check = 0.0
    if outcome.proof is not None:
        again = time.process_time()
        kernel.check(outcome.claim, outcome.proof)
        check = time.process_time() - again
    return Line(
        claim=name,
        computed=computed,
        ratio=None if outcome.proof is None else ratio(outcome, computed),
        kind="" if outcome.proof is None else str(outcome.proof["kind"]),
        account=between - started,
        check=check,
        size=len(outcome.text or "") / 1000,
        reason=outcome.reason,
    )


def _rqm(levels: int) -> Mechanism:
    return families.rqm(lower=-1, upper=1, levels=levels, extension=1.0, q=0.42)


def local() -> Iterator[Line | None]:
    """Every report is seen."""
    tables = {"RQM m=4": _rqm(4), "RQM m=16": _rqm(16)}
    tables["optimal m=4, epsilon 1"] = design.optimal(
        epsilon=1.0, lower=-1, upper=1, levels=4
    ).mechanism
    shapes: list[dict[str, Any]] = [
        {"rounds": 1}, {"dimension": 3, "rounds": 10}, {"rounds": 100}, {"rounds": 1000}, {"rounds": 10_000},
        {"rounds": 100, "sampling": "public", "rate": 0.05},
        {"dimension": 2, "rounds": 100, "sampling": "poisson", "rate": 0.1},
        {"dimension": 2, "rounds": 100, "sampling": "poisson", "rate": 0.1, "neighboring": "add_or_remove_one"},
    ]  # fmt: skip
    for name, mechanism in tables.items():
        for shape in shapes:
            yield _reported(name, mechanism, shape)


def _reported(name: str, mechanism: Mechanism, shape: dict[str, Any]) -> Line | None:
    asked = {"sampling_rate" if key == "rate" else key: value for key, value in shape.items()}
    release = privacy.Release(mechanism=mechanism, delta=1e-6, **asked)
    return _line(
        _named(name, shape),
        lambda: privacy.account(release).epsilon,
        lambda value: propose_local(release, value),
    )


def _summed(name: str, mechanism: Mechanism, **shape: Any) -> Line | None:
    release = privacy.Release(mechanism=mechanism, trust="secure_sum", delta=1e-6, **shape)
    return _line(
        _named(f"{name}, sum", shape),
        lambda: privacy.account(release).epsilon,
        lambda value: propose_sum(release, value),
    )


def _shortened(name: str, mechanism: Mechanism, **shape: Any) -> Line | None:
    """The same sums of vectors with a bounded norm."""
    release = privacy.Release(
        mechanism=mechanism, trust="secure_sum", delta=1e-6, clip_norm=1.0, clients=shape["clients"],
        dimension=shape["dimension"],
    )  # fmt: skip
    return _line(
        _named(f"{name}, sum", {**shape, "L2 norm": 1}),
        lambda: privacy.account(release).epsilon,
        lambda value: Outcome(
            claim=kernel.ExactClaim(
                release=None, statement={"kind": "dp", "epsilon": str(value), "delta": "1e-6"}
            ),
            proof=None,
            reason=privacy.prove(release)[0].reason,
        ),
    )


def sums() -> Iterator[Line | None]:
    """One secure sum, delta = 1e-6: RQM with four levels, and all rows of benchmarks/sums.py."""
    for clients in CLIENTS:
        yield _summed("RQM m=4", _rqm(4), clients=clients)
    for name, build in TABLES.items():
        for clients in CLIENTS:
            yield _summed(name.removesuffix(" Delta=c q=.42"), build(), clients=clients)


def examples() -> Iterator[Line | None]:
    """The rest of what docs/accounting.md computes, and ten rounds of ten coordinates in sums."""
    table = _rqm(4)
    together = families.discrete_gaussian(sigma=2.0).mechanism(lower=0, upper=1)
    yield _summed("discrete Gaussian, sigma 2", together, clients=100, rounds=20)
    response = families.randomized_response(lower=-1, upper=1, epsilon=0.4)
    yield _reported("randomized response, epsilon 0.4", response, {"dimension": 5, "rounds": 20})
    yield _summed("RQM m=4", table, clients=1000, corrupted=50, rounds=10)
    yield _summed("RQM m=4", table, clients=100, dimension=16)
    yield _shortened("RQM m=4", table, clients=100, dimension=16)
    for name, mechanism in {"RQM m=4": table, "RQM m=16": _rqm(16)}.items():
        yield _summed(name, mechanism, clients=1000, dimension=10, rounds=10)


def training() -> Iterator[Line | None]:
    """DP-SGD and RQP-SGD, delta = 1e-5."""
    for z, rate, steps, q, bits in (
        (1.0, 0.01, 1000, 1.0, 1), (1.0, 0.01, 10_000, 1.0, 1), (0.8, 0.002, 100_000, 1.0, 1),
        (1.0, 0.01, 1000, 0.7, 1), (1.0, 0.01, 1000, 0.9, 2), (1.0, 0.01, 1000, 0.99, 4), (2.0, 1.0, 10, 1.0, 1),
    ):  # fmt: skip
        shape = {"steps": steps, "sampling_rate": rate, "q": q, "bits": bits, "delta": 1e-5}
        yield _line(
            f"z={z:g} rate={rate:g} steps={steps} q={q:g} bits={bits}",
            lambda z=z, shape=shape: training_epsilon(z, **shape).epsilon,
            lambda value, z=z, shape=shape: propose_training(
                epsilon=value, noise_multiplier=z, **shape
            ),
        )
    for z, rate, steps in ((1.0, 0.01, 1000), (2.0, 0.1, 20), (4.0, 0.2, 100)):
        shape = {"steps": steps, "sampling_rate": rate, "delta": 1e-5, "neighboring": "replace_one"}
        yield _line(
            f"z={z:g} rate={rate:g} steps={steps} replace-one",
            lambda z=z, shape=shape: training_epsilon(z, **shape).epsilon,
            lambda value, z=z, shape=shape: propose_training(
                epsilon=value, noise_multiplier=z, **shape
            ),
        )


def users() -> Iterator[Line | None]:
    """All records of one user in a training run, delta = 1e-5."""
    for records, rate, steps, neighboring in (
        (2, 0.01, 100, "add_or_remove_one"),
    ):  # fmt: skip
        sampling = Poisson(rate=rate, records_per_user=records)
        phase = Phase(noise_multiplier=1.0, kappa=1.0, sampling=sampling, steps=steps)
        release = training_release([phase], delta=1e-5, neighboring=neighboring)
        shape = {"sampling_rate": rate, "steps": steps, "records_per_user": records, "delta": 1e-5}
        yield _line(
            f"users of {records} records, z=1 rate={rate:g} steps={steps} {neighboring}",
            lambda release=release: privacy.account(release).epsilon,
            lambda value, shape=shape, neighboring=neighboring: propose_training(
                epsilon=value, noise_multiplier=1.0, neighboring=neighboring, **shape
            ),
        )


def memoised() -> Iterator[Line | None]:
    """Reports of equal values that are copies, pure."""
    for distinct in (1, 10):
        release = privacy.Release(mechanism=_rqm(4), delta=0.0, rounds=365, distinct=distinct)

        def propose(value: float, release: privacy.Release = release) -> Outcome:
            proved, proof = privacy.prove(release)
            assert proved.checked is not None
            return Outcome(claim=proved.checked, proof=proof)

        yield _line(
            f"RQM m=4, memoised, {distinct} distinct values, rounds 365",
            lambda release=release: privacy.account(release).epsilon,
            propose,
        )


def profiles() -> Iterator[Line | None]:
    """Histograms of samples without replacement, of databases of two types."""
    for first, second, loss_rate, epsilon in (
        (600, 400, 0.1, 0.1), (81_283_501, 74_223_975, 0.002, math.log(51 / 49)),
    ):  # fmt: skip
        profile = smoothed.profile(counts=(first, second), loss_rate=loss_rate, epsilon=epsilon)

        def propose(
            _: float, first: int = first, second: int = second, profile: Any = profile
        ) -> Outcome:
            return propose_profile(
                first,
                second,
                sampled=profile.sampled,
                epsilon=profile.epsilon,
                log10_delta=profile.log10_upper,
            )

        yield _line(
            f"smoothed profile, {first:,} and {second:,} records, {loss_rate:g} lost, epsilon {epsilon:.3g}",
            lambda profile=profile: profile.log10_delta,
            propose,
            _delta_ratio,
        )


def main() -> None:
    """Prints the table, a line at a time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        choices=[
            "local", "sums", "examples", "training", "users", "memoised", "profiles",
        ],
    )  # fmt: skip
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--match", default="", help="rows with this text in their name only")
    options = parser.parse_args()
    global _asked
    _asked = options.match
    parts = {
        "local": local,
        "sums": sums,
        "examples": examples,
        "training": training,
        "users": users,
        "memoised": memoised,
        "profiles": profiles,
    }
    if not options.json:
        print(
            f"{'claim':62} {'computed':>10} {'ratio':>8} {'kind':8} account s  check s      kB  reason"
        )
    for name, part in parts.items():
        for line in part() if options.only in (None, name) else ():
            if line is None:
                continue
            if options.json:
                print(json.dumps(asdict(line)), flush=True)
                continue
            ratio = "computed" if line.ratio is None else f"{line.ratio:.5f}"
            figures = f"{line.account:9.2f} {line.check:8.2f} {line.size:7.1f}"
            print(
                f"{line.claim:62} {line.computed:10.6g} {ratio:>8} {line.kind:8} {figures}  {line.reason}",
                flush=True,
            )


if __name__ == "__main__":
    main()
