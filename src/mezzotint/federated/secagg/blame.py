"""Proofs that a client dealt useless shares: anyone can check them, and none fits an honest client.

A dealing is signed, and holds a commitment to each share. Shares that match the commitments but do
not restore the secret of that dealing (the seed that it commits to, the key that it names) were
dealt wrongly by the signer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import read_object, write_text
from mezzotint.core.records import JsonObject
from mezzotint.federated.secagg import masks, messages
from mezzotint.federated.secagg.client import mask_key_from_seed
from mezzotint.federated.secagg.masks import signed
from mezzotint.federated.secagg.messages import BytesByClient, Deal, Portion
from mezzotint.federated.secagg.plan import RoundPlan
from mezzotint.federated.secagg.wire import ProtocolError, Reader

Kind = Literal["self", "key"]
"""The secret that shares are of: the seed of a client's own mask, or that of its mask key."""

_FORMAT = "mezzotint blame"
_BYTE_FIELDS = ("identity", "plan", "dealing")


def restored(
    plan: RoundPlan, deal: Deal, seed_commitment: bytes, kind: Kind, shares: BytesByClient
) -> bytes | None:
    """The secret that a quorum's shares restore; None unless it is the one of the dealing."""
    secret = masks.combine(shares, plan.quorum)
    if secret is None:
        return None
    owner = deal.index
    if kind == "self":
        promised = seed_commitment
        actual = masks.commitment(secret, plan=plan.base, owner=owner, holder=owner, kind=b"seed")
    else:
        promised = deal.mask
        mask_key = mask_key_from_seed(secret, plan, owner)
        actual = masks.public_bytes(mask_key)
    if actual != promised:
        return None
    return secret


def is_promised(
    share: bytes, portion: Portion, plan: RoundPlan, *, owner: int, holder: int, kind: Kind
) -> bool:
    """Whether a share is the one that its dealer committed to."""
    promised = portion.of_key
    if kind == "self":
        promised = portion.of_self
    actual = masks.commitment(share, plan=plan.base, owner=owner, holder=holder, kind=kind.encode())
    return actual == promised


@final
@dataclass(frozen=True, kw_only=True)
class Blame:
    """A client's dealing, and shares that prove it useless.

    Arguments:
        identity: of the client, 32 bytes.
        plan: of the round, as on the wire.
        dealing: the client's message.
        kind: the secret to which the shares belong.
        shares: member of the committee -> the share that it opened.
    """

    identity: bytes
    plan: bytes
    dealing: bytes
    kind: Kind
    shares: BytesByClient

    def check(self) -> None:
        """Check the proof.

        Raises:
            ParameterError: not signed by that client, not its shares, too few, or consistent ones.
        """
        try:
            with Reader(self.plan, "plan") as reader:
                plan = RoundPlan.from_reader(reader)
            deal, seed_commitment = messages.read_dealing(self.dealing, plan)
        except ProtocolError as error:
            raise ParameterError("blame", "the dealing", f"is not of this plan: {error}") from None
        statement = deal.statement(plan)
        if not signed(self.identity, deal.signature, statement):
            raise ParameterError("blame", "the dealing", "was not signed by this client")
        if len(self.shares) < plan.quorum:
            raise ParameterError("blame", f"{len(self.shares)} shares", f"{plan.quorum} are needed")
        for holder, share in self.shares.items():
            self._check_share(share, holder, deal.index, plan)
        secret = restored(plan, deal, seed_commitment, self.kind, self.shares)
        if secret is not None:
            raise ParameterError(
                "blame", "the shares", "fit together; nothing is wrong with this dealing"
            )

    def _check_share(self, share: bytes, holder: int, owner: int, plan: RoundPlan) -> None:
        """Refuse a share that the dealing did not promise to this member."""
        if not 0 <= holder < plan.members:
            raise ParameterError("blame", f"member {holder}", "is not in the committee")
        portion = messages.portion(self.dealing, holder)
        if not is_promised(share, portion, plan, owner=owner, holder=holder, kind=self.kind):
            raise ParameterError(
                "blame", f"the share of member {holder}", "is not the one that was dealt"
            )

    def save(self, path: Path) -> None:
        """Write the file, replacing one that exists."""
        document: JsonObject = {"format": _FORMAT}
        for field_name in _BYTE_FIELDS:
            document[field_name] = getattr(self, field_name).hex()
        document["kind"] = self.kind
        document["shares"] = {str(holder): share.hex() for holder, share in self.shares.items()}
        write_text(path, json.dumps(document), overwrite=True)

    @classmethod
    def load(cls, path: str | Path) -> Blame:
        """The blame in a file, not checked; FileFormatError for another file."""
        document = read_object(path)
        try:
            if document["format"] != _FORMAT:
                raise ValueError("another format")
            kind = document["kind"]
            if kind not in ("self", "key"):
                raise ValueError("another kind")
            byte_fields = {name: bytes.fromhex(document[name]) for name in _BYTE_FIELDS}
            shares: dict[int, bytes] = {}
            for holder, share in document["shares"].items():
                shares[int(holder)] = bytes.fromhex(share)
            return cls(**byte_fields, kind=kind, shares=shares)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            file_name = Path(path).name
            raise FileFormatError(f"{file_name}: not a proof of blame ({error})") from None
