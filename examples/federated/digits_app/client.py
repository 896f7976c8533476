"""What a node runs. The mod clips, adds noise, masks; the train function is an ordinary one."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app import task
from mezzotint.federated import SecureUpdates

app = ClientApp(mods=[SecureUpdates()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """New weights, from the model in the message and this node's records."""
    arrays = next(iter(message.content.array_records.values()))
    place = int(context.node_config["partition-id"])
    # Every client is in every round, so that there are as many parts of the digits.
    parts = context.node_config.get("num-partitions", context.run_config["clients-per-round"])
    images, labels = task.load_client(place, int(parts), str(context.node_config.get("data", "")))
    weights = task.train(arrays["weights"].numpy(), images, labels)
    content = RecordDict(
        {
            "arrays": ArrayRecord({"weights": Array(weights)}),
            "metrics": MetricRecord({"num-examples": len(labels)}),
        }
    )
    return Message(content, reply_to=message)
