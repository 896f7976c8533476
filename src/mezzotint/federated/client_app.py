"""The clients' half of Mezzotint's own Flower app: Flower starts a process per message, so imports
are deferred.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from mezzotint.core.arguments import with_old_names
from mezzotint.core.errors import ParameterError
from mezzotint.core.records import JsonObject, counted
from mezzotint.core.types import FloatArray
from mezzotint.federated.client_mod import EXAMPLES, SecureUpdates

if TYPE_CHECKING:
    from mezzotint.datasets import Features, Labels
    from mezzotint.federated.models import Model
    from mezzotint.federated.settings import RunSettings

PARAMETERS = "parameters"
TOLD = (
    "dataset",
    "data",
    "model",
    "population",
    "clients_per_round",
    "dirichlet",
    "seed",
    "algorithm",
    "steps",
    "client_learning_rate",
    "batch",
)
"""Settings sent to clients; all public."""


def data_here(told: str) -> str:
    """This machine's path of the data: MEZZOTINT_DATA if set, for a path means something on one
    machine only.
    """
    return os.environ.get("MEZZOTINT_DATA", told)


class _Task(NamedTuple):
    """A message's task: the settings sent, this client's place, model and records, and the
    parameters.
    """

    told: RunSettings
    place: int
    model: Model
    x: Features
    y: Labels
    parameters: FloatArray


def _task(message: Message, context: Context) -> _Task:
    from mezzotint.federated.models import model_for
    from mezzotint.federated.settings import RunSettings

    config: JsonObject = dict(message.content.config_records["config"])
    settings = RunSettings.from_config({setting: config[setting] for setting in TOLD})
    folder = str(context.node_config.get("data") or data_here(settings.data))
    federation = settings.federation(folder)
    if "partition-id" not in context.node_config:
        raise ParameterError(
            "node-config", "no partition-id", "start the node with --node-config 'partition-id=3'"
        )
    partition = int(context.node_config["partition-id"])
    if not 0 <= partition < len(federation.clients):
        raise ParameterError(
            "partition-id",
            partition,
            f"the data set has {counted(len(federation.clients), 'client')}",
        )
    features, labels = federation.clients[partition]
    parameters = (
        next(iter(message.content.array_records.values()))[PARAMETERS].numpy().astype(np.float64)
    )
    return _Task(
        settings, partition, model_for(settings.model, federation), features, labels, parameters
    )


def train(message: Message, context: Context) -> Message:
    """A client's train function: its update of the model; the mod clips and masks it."""
    settings, partition, model, features, labels, parameters = _task(message, context)
    config = message.content.config_records["config"]
    round_number = int(config["server-round"])  # type: ignore[arg-type]
    seed = int(
        np.random.SeedSequence([settings.seed, round_number, partition]).generate_state(1)[0]
    )
    update = settings.training.update(model, parameters, features, labels, seed=seed)
    counted = MetricRecord(
        {EXAMPLES: len(labels)}
    )  # stays on the client, except in sums that weigh by it
    content = RecordDict({"arrays": ArrayRecord({PARAMETERS: Array(update)}), "metrics": counted})
    return Message(content, reply_to=message)


def evaluate(message: Message, context: Context) -> Message:
    """A client's evaluate function: loss and accuracy on its training records; the mod masks
    them.
    """
    _, _, model, features, labels, parameters = _task(message, context)
    loss, accuracy = model.evaluate(parameters, features, labels)
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, EXAMPLES: len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@with_old_names({"trust": {"sum": "secure_sum", "local": "reports"}}, trust="observer")
def make_client_app(
    mod: Callable[..., Message] | None = None, *, observer: str = "secure_sum"
) -> ClientApp:
    """The client app, for secure sums or (observer "reports") single reports: of both, a server
    would ask for the weaker.
    """
    if mod is None and observer == "reports":
        from mezzotint.federated.local_reports import LocalUpdates

        mod = LocalUpdates()
    app = ClientApp(mods=[mod or SecureUpdates()])
    app.train()(train)
    app.evaluate()(evaluate)
    return app


client_app = make_client_app()
