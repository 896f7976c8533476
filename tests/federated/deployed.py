"""A SuperLink and SuperNodes as separate processes over TLS on loopback, with an app of the test's own."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from federated import liars

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "secure-sum-test"
version = "1.0.0"
description = "one round"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "test"

[tool.flwr.app.components]
serverapp = "secure_sum_test.server:server_app"
clientapp = "secure_sum_test.client:client_app"

[tool.flwr.app.config]
folder = "FOLDER"
outcome = "outcome"
nodes = 8
coordinates = 3000
minimum = 4
stage-timeout = 30.0
corrupted = 0.3
dropped = 0.2
plain = 0
rounds = 1
forget = ""
attack = ""
"""

CLIENT = '''
"""Known integers, in plain rounds and secure ones; some clients stop where they are told to.

Of plain rounds' processes nothing of mezzotint is a part: they are what is compared with.
"""

import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp


def inputs(place, coordinates):
    return np.random.default_rng(place).integers(-7, 8, coordinates).astype(np.float64)


def lose_state():
    """This process dies when its answer has left, and before the client's state has."""
    import signal

    from flwr.supernode.runtime import run_clientapp

    def die(**anything):
        os.kill(os.getpid(), signal.SIGKILL)

    run_clientapp.push_task_output = die


def mod(message, context, call_next):
    record = message.content.config_records.get("mezzotint")
    stage = "plain" if record is None else str(record["stage"])
    with Path(str(context.node_config["marker"]) + "-starts").open("a") as file:
        file.write(f"{os.getpid()} {stage}\\n")
    if record is None:  # an ordinary round, for comparison
        return call_next(message, context)
    if context.node_config.get("stop") == stage:
        # The test kills this node now; it never answers.
        Path(str(context.node_config["marker"])).write_text(stage)
        time.sleep(600)
    from mezzotint.federated.client_mod import SecureUpdates
    from mezzotint.federated.policy import Policy

    if stage in str(context.run_config["forget"]).split():
        lose_state()
    if "policy" in context.node_config:
        return SecureUpdates()(message, context, call_next)
    corrupted = min(0.2, float(context.run_config["corrupted"]))
    return SecureUpdates(Policy(corrupted=corrupted))(message, context, call_next)


client_app = ClientApp(mods=[mod])


@client_app.train()
def train(message, context):
    coordinates = next(iter(message.content.array_records.values()))["a"].numpy().size
    update = inputs(int(context.node_config["partition-id"]), coordinates)
    records = {"arrays": ArrayRecord({"a": Array(update)}), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(records), reply_to=message)
'''

THIEF = '''
"""Named like the app that clients were promised; it answers with whatever it can read."""

from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

client_app = ClientApp()


@client_app.train()
def train(message, context):
    names = [name for name in ("identity", "policy") if name in context.node_config]
    files = {name: Path(str(context.node_config[name])).read_bytes() for name in names}
    return Message(RecordDict({"stolen": ConfigRecord(files)}), reply_to=message)
'''

SERVER = '''
"""Secure sums of known integers, and plain rounds in between."""

import json
import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from mezzotint.federated.encoding import FixedPointEncoding
from mezzotint.federated.secagg import Roster
from mezzotint.federated.secure_strategy import SecureStrategy
from secure_sum_test.liars import Liar, introduced

ENCODING = FixedPointEncoding(clip=7.0, grid_bits=4)
server_app = ServerApp()


@server_app.main()
def main(grid, context):
    config = context.run_config
    folder = Path(str(config["folder"]))
    if config["attack"] == "theft":
        write(folder / str(config["outcome"]), theft(grid, int(config["nodes"])))
        return
    if config["attack"]:
        attacked = attack(grid, str(config["attack"]), int(config["nodes"]), folder)
        write(folder / str(config["outcome"]), attacked)
        return
    payloads = []
    strategy = SecureStrategy(
        encoding=ENCODING, clients_per_round=int(config["nodes"]), minimum=int(config["minimum"]), returns="update",
        stage_timeout=float(config["stage-timeout"]), corrupted=float(config["corrupted"]),
        dropped=float(config["dropped"]),
    )
    take = strategy._take_one

    def record(now, index, answer):
        if answer is not None and isinstance(answer.get("payload"), bytes):
            payloads.append((now.server.stage, now.name(index), answer["payload"].hex()))
        take(now, index, answer)

    strategy._take_one = record
    start = ArrayRecord({"a": Array(np.zeros(int(config["coordinates"])))})
    seconds, stages = {"plain": [], "secure": []}, []
    processor = {"plain": [], "secure": []}
    nodes = int(config["nodes"])
    counts = {"plain": int(config["plain"]), "secure": int(config["rounds"])}
    for number in range(max(counts.values())):
        began, spent = time.monotonic(), processor_seconds(folder)
        if number < counts["plain"]:
            fedavg = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
            fedavg.start(grid=grid, initial_arrays=start, num_rounds=1, timeout=float(config["stage-timeout"]))
            seconds["plain"].append(time.monotonic() - began)
            processor["plain"].append(processor_seconds(folder) - spent)
        began, spent = time.monotonic(), processor_seconds(folder)
        if number < counts["secure"]:
            strategy.one_round(grid, start, {}, left=counts["secure"] - number - 1)
            seconds["secure"].append(time.monotonic() - began)
            processor["secure"].append(processor_seconds(folder) - spent)
            stages.append(dict(strategy.seconds))
    total = strategy.last_sum
    outcome = {
        "values": None if total is None else total.values.tolist(),
        "charges": strategy.ledger.charges,
        "rounds": strategy.ledger.rounds,
        "incidents": [(one.client, one.name) for one in strategy.incidents],
        "payloads": payloads,
        "seconds": seconds,
        "processor": processor,
        "stages": stages,
    }
    write(folder / str(config["outcome"]), outcome)


def processor_seconds(folder):
    """Processor time of all processes of the deployment so far, those that ended included."""
    sessions = set(json.loads((folder / "sessions.json").read_text()))
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended, and its parent has its time
            continue
        if int(fields[3]) in sessions:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def write(name, outcome):
    part = name.with_suffix(".part")
    part.write_text(json.dumps(outcome))
    part.rename(part.with_suffix(".json"))


def theft(grid, nodes):
    """What clients answer to a plain message, by the names of their files."""
    deadline = time.monotonic() + 120
    while len(list(grid.get_node_ids())) < nodes and time.monotonic() < deadline:
        time.sleep(0.2)
    sent = [
        Message(RecordDict(), message_type="train", dst_node_id=node) for node in grid.get_node_ids()
    ]
    stolen = []
    for answer in grid.send_and_receive(sent, timeout=90.0):
        if not answer.has_error():
            record = answer.content.config_records["stolen"]
            stolen.append({name: data.hex() for name, data in record.items()})
    return {"asked": len(sent), "stolen": stolen}


def attack(grid, stage, nodes, folder):
    """Clients whose state was lost after their answer to a stage are asked for another; how many give one."""
    roster = Roster.load(folder / "roster.json")
    known = introduced(grid, nodes)
    liar = Liar(grid, roster=roster, nodes=known, encoding=ENCODING, size=40, session=os.urandom(16))
    if stage == "deal":
        liar.begin()
        return {"answers": len(liar.begin()[1])}
    if stage == "sum":
        server, _ = liar.begin()
        server.bind(liar.digest(0.0))
        partners = dict(server.advance())
        first = liar.ask("sum", partners)
        return {"first": len(first), "answers": len(liar.ask("sum", partners))}
    # Who lost the state in which it signed cannot open: there, a second signature is asked for at once.
    united = stage == "unite"
    done = liar.run(united=united, absent=None if united else 0, opens=united)
    # Client 0, if it was absent, signed nothing yet: it is left out of both sets.
    signed, opened, _ = liar.second_set(done, *([1] if united else [0, 1]))
    return {"first": len(done.masked), "answers": signed + opened}
'''


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on right now."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _certificate(
    subject: str, key, issuer: str, issuer_key, *, authority: bool
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    name, by = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (subject, issuer)
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if not authority:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(issuer_key, hashes.SHA256())


def write_certificates(folder: Path) -> None:
    """ca.crt, server.crt and server.key for loopback."""
    root, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(
        _certificate("ca", root, "ca", root, authority=True).public_bytes(pem)
    )
    (folder / "server.crt").write_bytes(
        _certificate("localhost", server, "ca", root, authority=False).public_bytes(pem)
    )
    (folder / "server.key").write_bytes(
        server.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


class Deployment:
    """Started processes; `close` ends exactly those, with all that they started.

    Arguments:
        folder: of logs, certificates and results.
        nodes: how many SuperNodes.
        stops: node -> the stage at which the test's own app lets it be killed.
        configs: node -> files that its configuration names.
        options: of every SuperNode's command.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int,
        stops: dict[int, str],
        configs: Mapping[int, Mapping[str, Path]] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.options = options
        self.configs = configs or {}
        self.processes: dict[str, subprocess.Popen] = {}
        self.bin = Path(sys.executable).parent
        write_certificates(folder)
        self.port, *ports = free_ports(nodes + 1)
        home = folder / "home"
        home.mkdir()
        connection = f"""
            [superlink]
            default = "test"

            [superlink.test]
            address = "127.0.0.1:{self.port}"
            root-certificates = "{folder / "ca.crt"}"
            """
        (home / "config.toml").write_text(textwrap.dedent(connection))
        self.environment = {**os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
        self.environment["PATH"] = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        keys = [f"--ssl-{kind}file={folder / name}" for kind, name in
                (("ca-cert", "ca.crt"), ("cert", "server.crt"), ("key", "server.key"))]  # fmt: skip
        try:
            self._start(ports, stops, keys)
        except BaseException:
            self.close()
            raise

    def _start(self, ports: list[int], stops: dict[int, str], keys: list[str]) -> None:
        folder = self.folder
        self._spawn(
            "superlink", "flower-superlink", "--host=127.0.0.1", f"--port={self.port}",
            "--disable-runtime-dependency-installation", *keys,
        )  # fmt: skip
        self._await_port()
        for place, port in enumerate(ports):
            config = f"partition-id={place} marker='\"{folder / f'marker-{place}'}\"'".replace(
                "'", ""
            )
            if place in stops:
                config += f' stop="{stops[place]}"'
            config += "".join(
                f' {key}="{path}"' for key, path in self.configs.get(place, {}).items()
            )
            self._spawn(
                f"node-{place}", "flower-supernode", f"--superlink=127.0.0.1:{self.port}",
                f"--root-certificates={folder / 'ca.crt'}", "--host=127.0.0.1", f"--port={port}",
                f"--ssl-certfile={folder / 'server.crt'}", f"--ssl-keyfile={folder / 'server.key'}",
                f"--ssl-ca-certfile={folder / 'ca.crt'}", f"--node-config={config}", *self.options,
            )  # fmt: skip
        sessions = [process.pid for process in self.processes.values()]
        (folder / "sessions.json").write_text(json.dumps(sessions))

    def _spawn(self, name: str, program: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(self.bin / program), *arguments],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await_port(self) -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        raise AssertionError((self.folder / "superlink.log").read_text())

    def submit(self, settings: str = "", app: Path | None = None, *, client: str = CLIENT) -> str:
        """`flwr run` of the test's own app, or of the one given; the run's number.

        Arguments:
            settings: of the run.
            app: its folder; None writes the test's own.
            client: the text of the client's module in that.
        """
        if app is None:
            app = self.folder / "app"
            (app / "secure_sum_test").mkdir(parents=True, exist_ok=True)
            (app / "pyproject.toml").write_text(PYPROJECT.replace("FOLDER", str(self.folder)))
            for name, text in (
                ("__init__", ""),
                ("client", client),
                ("server", SERVER),
                ("liars", Path(liars.__file__).read_text()),
            ):
                (app / "secure_sum_test" / f"{name}.py").write_text(text)
        chosen = ["--run-config", settings] if settings else []
        told = json.loads(self._flwr("run", str(app), "test", "--format=json", *chosen))
        return str(told["run-id"])

    def log(self, run: str, *, until: str) -> str:
        """What `flwr log` shows of a run, once these words are in it: lines are sent there from time to time."""
        deadline = time.monotonic() + 300
        while until not in (told := self._flwr("log", run, "test", "--show")):
            assert time.monotonic() < deadline, told
            time.sleep(0.5)
        return told

    def _flwr(self, *words: str) -> str:
        command = [str(self.bin / "flwr"), *words]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def kill(self, name: str) -> None:
        """kill -9 of a node with its workers."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def await_file(self, name: str, seconds: float) -> Path:
        """The file, once it is there."""
        path = self.folder / name
        deadline = time.monotonic() + seconds
        while not path.exists():
            if time.monotonic() > deadline:
                logs = [
                    log.read_text(errors="replace")[-1500:]
                    for log in sorted(self.folder.glob("*.log"))
                ]
                raise AssertionError(f"{name} never came\n" + "\n".join(logs))
            time.sleep(0.1)
        return path

    def close(self) -> None:
        """Ends everything that was started."""
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
