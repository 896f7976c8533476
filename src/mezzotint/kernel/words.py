"""The words that may be said of a claim. No other module says "certified"."""

from __future__ import annotations

from mezzotint.kernel.claim import Claim, Release

VERSION = 1
"""Of this kernel, as its sentences name it."""


def words(claim: Claim, reason: str = "") -> str:
    """One sentence: certified when `check` stamped the claim, else computed, with the reason.

    Numbers stand as they were checked, never rounded. Draws from a seed protect nobody, checked or not.
    """
    what = _statement(claim)
    if claim.release is not None and claim.release.seeded:
        return f"simulation; no privacy: {what}, had the draws been secret"
    if claim.certified:
        return f"certified: {what}, checked by mezzotint.kernel {VERSION}"
    return f"computed: {what}" + (f" ({reason})" if reason else "")


def _statement(claim: Claim) -> str:
    said = claim.statement
    if claim.release is None:
        who = f"{said.get('epsilon')}-DP mechanism with {said.get('levels')} levels, inputs uniform on [-1, 1]"
        return f"mean squared error of at least {said.get('value')} for every unbiased {who}"
    where = f"for {_unit(claim.release)}, {_seen(claim.release)}"
    if said["kind"] == "renyi":
        return f"Renyi divergence of order {said['order']} at most {said['epsilon']} {where}"
    return f"({said['epsilon']}, {said['delta']})-differential privacy {where}"


def _unit(release: Release) -> str:
    if release.unit == "client":
        return "replacing everything that one client ever reports about"
    return {"replace_one": "replacing", "add_or_remove_one": "adding or removing"}[release.neighboring] + " one record"


def _seen(release: Release) -> str:
    reports = sum(count for _, count in release.tables)
    each = "" if release.observer == "model" else f" of {reports} coordinate{'s' * (reports != 1)}"
    rounds = f"{release.rounds} round{'s' * (release.rounds != 1)}{each}"
    seen = {
        "reports": "to an observer of every report",
        "secure_sum": f"to an observer of the secure sums of {release.clients} clients ({release.corrupted} corrupted)",
        "model": f"to an observer of every step, noise multiplier {release.noise_multiplier}, noise taken as ideal",
    }[release.observer]
    rate = {"none": "", "revealed": f", taking part visibly with probability {release.rate}"}
    rate["poisson"] = f", taking part in secret with probability {release.rate}"
    return f"{seen}, in {rounds}{rate[release.sampling]}"
