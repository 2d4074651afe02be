"""What the servers and clients of flower_job.py do: federated averaging of an MLP on Fashion-MNIST, in numpy, the same every time, with the interfaces of
Flower 1.0 (NumPyClient) and of its message interface. flower_job.py copies this file, with fashion.py, into an app of Flower."""
import hashlib
import json
import os
import sys

import numpy as np

import fashion

DEFAULTS = dict(rounds=3, clients=2, hidden=64, local=20, batch=32, lr=0.1, seed=7, test=1000, strategy="FedAvg", evaluate=1, others=0,
                result="")  # evaluate: whether clients judge the model after each round; others: whether it also has the arrays of others()


def initial(c):
    random = np.random.default_rng(c["seed"])
    return {
        "first.weight": (random.standard_normal((fashion.PIXELS, c["hidden"])) * (2 / fashion.PIXELS) ** 0.5).astype(np.float32),
        "first.bias": np.zeros(c["hidden"], np.float32),
        "second.weight": (random.standard_normal((c["hidden"], fashion.CLASSES)) * (1 / c["hidden"]) ** 0.5).astype(np.float32),
        "second.bias": np.zeros(fashion.CLASSES, np.float32),
        **(others(c) if c["others"] else {}),
    }


def others(c):
    """Arrays of types, shapes and orders that an MLP has not."""
    random = np.random.default_rng(c["seed"] + 1)

    def normal(*shape):
        return 0.01 * random.standard_normal(shape)
    return {
        "double": normal(300, 40), "half": normal(120, 50).astype(np.float16), "table": normal(4000, 16).astype(np.float32),
        "one": np.ones(1, np.float32), "scalar": np.array(0.5, np.float32), "empty": np.zeros((0, 7), np.float32),
        "wide": random.integers(-(1 << 40), 1 << 40, (500, 4)), "counts": np.zeros(700, np.int32), "bytes": random.integers(0, 256, 3001).astype(np.uint8),
        "flags": random.integers(0, 2, 1500) > 0, "columns": np.asfortranarray(normal(64, 33).astype(np.float32)),
        "foreign": normal(900).astype(">f4"), "complex": (normal(500) + 1j * normal(500)).astype(np.complex64),
    }


def moved(c, arrays, client, turn):
    """others() after a client's round: rows of the table that it has met, and all of the rest."""
    random = np.random.default_rng([c["seed"], turn, client])
    for w, (name, first) in zip(arrays, others(c).items()):
        w = np.asarray(w).astype(first.dtype)
        step = 0.001 * random.standard_normal(w.shape) if w.dtype.kind in "fc" else random.integers(0, 3, w.shape)
        if name == "table":
            step[random.random(len(step)) < 0.9] = 0
        yield np.asarray((w + step).astype(first.dtype), order="F" if name == "columns" else "C")


def scores(weights, x):
    hidden = np.maximum(x @ weights[0] + weights[1], 0)
    return hidden, hidden @ weights[2] + weights[3]


def train(c, weights, client, turn):
    """The weights after a client's steps of a round."""
    weights, rest = [np.array(w, np.float32) for w in weights[:4]], list(moved(c, weights[4:], client, turn))
    data = fashion.Batches(*fashion.load("t10k"), client, c["clients"], c["batch"], c["seed"] + turn)  # read in a moment
    for _ in range(c["local"]):
        x, labels = data.draw()
        hidden, z = scores(weights, x)
        z = np.exp(z - z.max(1, keepdims=True))
        error = z / z.sum(1, keepdims=True)
        error[np.arange(len(labels)), labels] -= 1
        error /= np.float32(len(labels))
        back = (error @ weights[2].T) * (hidden > 0)
        for w, gradient in zip(weights, (x.T @ back, back.sum(0), hidden.T @ error, error.sum(0))):
            w -= np.float32(c["lr"]) * gradient
    return weights + rest


def judge(c, weights):
    images, labels = (part[:c["test"]] for part in fashion.load("train"))  # whose images are not trained on
    return fashion.judge(fashion.scores(images, lambda x: scores(weights, x)[1]), labels)


def note(c, turn, weights):
    """Keeps what the last round has learnt for flower_job.py, whose process is another one."""
    loss, accuracy = judge(c, weights)
    if turn > 0:
        print("step %d" % (turn - 1), file=sys.stderr, flush=True)
    if turn == c["rounds"]:
        raw = b"".join(np.ascontiguousarray(w).tobytes() for w in weights)
        line = dict(loss=loss, accuracy=accuracy, weights_sha256=hashlib.sha256(raw).hexdigest(), parameters=sum(w.size for w in weights), dense_bytes=len(raw))
        with open(c["result"] + ".part", "w") as f:
            json.dump(line, f)
        os.rename(c["result"] + ".part", c["result"])
    return loss, accuracy


def client(c, number):
    """A client of Flower 1.0's interface."""
    import flwr

    class Client(flwr.client.NumPyClient):
        def get_parameters(self, config):
            return list(initial(c).values())

        def fit(self, weights, config):
            return train(c, weights, number, int(config["turn"])), c["local"] * c["batch"], {"client": number}

        def evaluate(self, weights, config):
            loss, accuracy = judge(c, weights)
            return loss, c["test"], {"accuracy": accuracy, "client": number}

    return Client().to_client()


def strategy(c):
    """A strategy of Flower 1.0's interface."""
    import flwr
    kind = getattr(flwr.server.strategy, c["strategy"])
    more = {} if c["evaluate"] else {"fraction_evaluate": 0.0}
    if c["strategy"] != "FedAvg":
        more["initial_parameters"] = flwr.common.ndarrays_to_parameters(list(initial(c).values()))

    class Strategy(kind):
        def aggregate_fit(self, turn, results, failures):
            return super().aggregate_fit(turn, sorted(results, key=lambda r: r[1].metrics["client"]), failures)  # a sum depends on the order

    return Strategy(min_fit_clients=c["clients"], min_evaluate_clients=c["clients"], min_available_clients=c["clients"],
                    on_fit_config_fn=lambda turn: {"turn": turn}, evaluate_fn=lambda turn, weights, config: (note(c, turn, weights)[0], {}), **more)


def settings(config):
    return dict(DEFAULTS, **{k: config[k] for k in DEFAULTS if k in config})


def apps():
    """The apps of the message interface."""
    from collections import OrderedDict
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp, strategy as strategies
    of_client, of_server = ClientApp(), ServerApp()

    def number_of(context):
        return int(context.node_config["partition-id"])

    def arrays(record):
        return [a.numpy() for a in record.values()]

    @of_client.train()
    def _(message, context):
        c, record, number = settings(context.run_config), message.content["arrays"], number_of(context)
        weights = train(c, arrays(record), number, int(message.content["config"]["server-round"]))
        metrics = MetricRecord({"num-examples": c["local"] * c["batch"], "client": number})
        return Message(content=RecordDict({"arrays": ArrayRecord(OrderedDict(zip(record.keys(), map(Array, weights)))), "metrics": metrics}), reply_to=message)

    @of_client.evaluate()
    def _(message, context):
        c = settings(context.run_config)
        loss, accuracy = judge(c, arrays(message.content["arrays"]))
        metrics = MetricRecord({"num-examples": c["test"], "loss": loss, "accuracy": accuracy, "client": number_of(context)})
        return Message(content=RecordDict({"metrics": metrics}), reply_to=message)

    @of_server.main()
    def _(grid, context):
        c = settings(context.run_config)

        class Strategy(getattr(strategies, c["strategy"])):
            def aggregate_train(self, turn, replies):
                return super().aggregate_train(turn, sorted(replies, key=lambda m: m.content["metrics"]["client"] if m.has_content() else -1))

        def evaluate(turn, record):
            loss, accuracy = note(c, turn, arrays(record))
            return MetricRecord({"loss": loss, "accuracy": accuracy})

        first = ArrayRecord(OrderedDict((k, Array(w)) for k, w in initial(c).items()))
        n = c["clients"]
        Strategy(fraction_train=1.0, fraction_evaluate=float(c["evaluate"]), min_train_nodes=n, min_evaluate_nodes=n * c["evaluate"], min_available_nodes=n).start(
            grid=grid, initial_arrays=first, num_rounds=c["rounds"], evaluate_fn=evaluate, train_config=ConfigRecord({"lr": c["lr"]}))

    return of_server, of_client


def old_apps():
    """The apps of a release without the message interface."""
    from flwr.client import ClientApp
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig

    def of_client(context):
        return client(settings(context.run_config), int(context.node_config["partition-id"]))

    def of_server(context):
        c = settings(context.run_config)
        return ServerAppComponents(strategy=strategy(c), config=ServerConfig(num_rounds=c["rounds"]))

    return ServerApp(server_fn=of_server), ClientApp(client_fn=of_client)


if __name__ == "flower_app":
    try:
        server_app, client_app = apps()
    except ImportError:
        try:
            server_app, client_app = old_apps()
        except ImportError:  # a release without apps
            server_app = client_app = None
