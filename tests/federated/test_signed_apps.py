"""What the documented deployment relies on in Flower: which apps a node installs. Read with docs/federated-threat-model.md.

Flower's own functions, by their names in 1.41: a release that moves them fails here, and the page has to be read again.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from federated.deployed import THIEF, Deployment

flower = pytest.importorskip("flwr.supernode.start_client_internal")
fabs = pytest.importorskip("flwr.supercore.fab")
commands = pytest.importorskip("flwr.supernode.cli.flower_supernode")


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _signed(key: Ed25519PrivateKey, content: bytes, signed_at: int) -> str:
    said = signed_at.to_bytes(8, "big") + hashlib.sha256(content).digest()
    signature = base64.urlsafe_b64encode(key.sign(said)).decode()
    return json.dumps({"signature": signature, "signed_at": signed_at})


def _fab(content: bytes, **verifications: str) -> Any:
    told = {"valid_license": "Valid", **verifications}
    return fabs.Fab(hashlib.sha256(content).hexdigest(), content, told)


def test_an_app_is_installed_if_one_trusted_key_signed_it_whenever_that_was() -> None:
    """No expiry and no run is signed: one dated 1970 passes, so one key is for one release of one app."""
    mine, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    trusted = {"fpk_1": _public(mine)}
    for signed_at in (0, int(time.time())):
        assert flower._verify_fab(_fab(b"app", fpk_1=_signed(mine, b"app", signed_at)), trusted)
    for content, name, key in (
        (b"app", "fpk_1", other),
        (b"app", "fpk_2", mine),
        (b"another app", "fpk_1", mine),
    ):
        signed = {name: _signed(key, b"app", 0)}
        assert not flower._verify_fab(_fab(content, **signed), trusted)
    assert not flower._verify_fab(_fab(b"app"), trusted)


def test_an_empty_list_of_trusted_keys_switches_the_check_off(tmp_path: Path) -> None:
    """Flower takes it for no list: the page says so, and how to look."""
    (tmp_path / "empty.yaml").write_text("{}\n")
    assert not commands._try_obtain_trusted_entities(tmp_path / "empty.yaml")


@pytest.mark.slow
@pytest.mark.parametrize("trusts", [True, False], ids=["one key", "no key"])
def test_a_node_that_trusts_a_key_runs_no_unsigned_app(tmp_path: Path, trusts: bool) -> None:
    """The same deployment, with a list of one key and with an empty one: the second runs what the server delivers."""
    keys = {"fpk_1": _public(Ed25519PrivateKey.generate())} if trusts else {}
    (tmp_path / "trusted.yaml").write_text(json.dumps(keys))
    options = [f"--trusted-entities={tmp_path / 'trusted.yaml'}"]
    nodes = 4
    deployment = Deployment(tmp_path, nodes, {}, options=options)
    with contextlib.closing(deployment):
        deployment.submit(f"nodes={nodes} minimum=3 corrupted=0.0 stage-timeout=20.0")
        outcome = json.loads(deployment.await_file("outcome.json", 300).read_text())
    started = [place for place in range(nodes) if (tmp_path / f"marker-{place}-starts").exists()]
    assert started == ([] if trusts else list(range(nodes)))
    assert (outcome["values"] is None) == trusts


@pytest.mark.slow
@pytest.mark.parametrize("trusts", [True, False], ids=["one key", "no key"])
def test_a_thief_in_the_apps_name_takes_nothing_from_nodes_that_trust_a_key(
    tmp_path: Path, trusts: bool
) -> None:
    """The server delivers an app that answers with the client's key and policy: with an empty list, it gets them."""
    keys = {"fpk_1": _public(Ed25519PrivateKey.generate())} if trusts else {}
    (tmp_path / "trusted.yaml").write_text(json.dumps(keys))
    nodes, secrets = 2, {"identity": b"a key", "policy": b"minimum = 4"}
    for name, content in secrets.items():
        (tmp_path / name).write_bytes(content)
    configs = {place: {name: tmp_path / name for name in secrets} for place in range(nodes)}
    options = [f"--trusted-entities={tmp_path / 'trusted.yaml'}"]
    deployment = Deployment(tmp_path, nodes, {}, configs, options=options)
    with contextlib.closing(deployment):
        deployment.submit(f'nodes={nodes} attack="theft"', client=THIEF)
        outcome = json.loads(deployment.await_file("outcome.json", 300).read_text())
    assert outcome["asked"] == nodes
    loot = {name: content.hex() for name, content in secrets.items()}
    assert outcome["stolen"] == ([] if trusts else [loot] * nodes)
