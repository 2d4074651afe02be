"""A whole job of OpenFL that knows nothing of proxies: an aggregator, and collaborators at another site, train an MLP on Fashion-MNIST by federated averaging.

Aggregator, collaborators and their gRPC connections are those of the openfl package, without TLS.
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=5000 python3 openfl_job.py     the aggregator
  RANK=1 ... the same arguments                                                        the collaborators, a thread each
Each prints one line of JSON at the end; accuracy and the hash of the final weights are the aggregator's. Two runs with the same arguments end with
the same hash.
"""
import quick  # before a framework

import argparse
import hashlib
import json
import os
import sys
import tempfile
import threading
import time
import traceback

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np
import openfl
from openfl.component.aggregator.aggregator import Aggregator
from openfl.component.assigner.static_grouped_assigner import StaticGroupedAssigner
from openfl.component.collaborator.collaborator import Collaborator
from openfl.federated.task.runner import TaskRunner
from openfl.interface.aggregation_functions import WeightedAverage
from openfl.transport.grpc.aggregator_client import AggregatorGRPCClient
from openfl.transport.grpc.aggregator_server import AggregatorGRPCServer
from openfl.utilities import TensorKey

import fashion

AGGREGATOR, FEDERATION = "aggregator", "federation"


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--clients", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--steps", type=int, default=20, help="that a collaborator makes in a round")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--test", type=int, default=1000, help="test images of the final loss and accuracy")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--timeout", type=float, default=150)
    return p.parse_args()


def initial(a):
    random = np.random.default_rng(a.seed)
    widths = [fashion.PIXELS, a.hidden, fashion.CLASSES]
    w = {}
    for i, (before, after) in enumerate(zip(widths, widths[1:])):
        w["fc%d.weight" % i] = (random.standard_normal((before, after)) * (2 / before) ** 0.5).astype(np.float32)
        w["fc%d.bias" % i] = np.zeros(after, np.float32)
    return w


def forward(w, x):
    h = np.maximum(x @ w["fc0.weight"] + w["fc0.bias"], 0)
    return h, h @ w["fc1.weight"] + w["fc1.bias"]


class Runner(TaskRunner):
    """A collaborator's training."""

    def __init__(self, a, number):
        super().__init__(None)
        self.a, self.names = a, list(initial(a))
        self.batches = fashion.Batches(*fashion.load("train"), number, a.clients, a.batch, a.seed)

    def get_required_tensorkeys_for_function(self, function, **kwargs):
        return [TensorKey(name, "GLOBAL", 0, False, ("model",)) for name in self.names]

    def train(self, col_name, round_num, input_tensor_dict, **kwargs):
        w = {k: np.array(v, np.float32) for k, v in input_tensor_dict.items()}
        for _ in range(self.a.steps):
            x, labels = self.batches.draw()
            h, scores = forward(w, x)
            p = np.exp(scores - scores.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            loss = float(-np.log(p[np.arange(len(labels)), labels] + 1e-9).mean())
            p[np.arange(len(labels)), labels] -= 1
            p /= len(labels)
            dh = (p @ w["fc1.weight"].T) * (h > 0)
            for name, d in (("fc1.weight", h.T @ p), ("fc1.bias", p.sum(0)), ("fc0.weight", x.T @ dh), ("fc0.bias", dh.sum(0))):
                w[name] = w[name] - np.float32(self.a.lr) * d.astype(np.float32)
        out = {TensorKey(k, col_name, round_num, False, ("trained",)): v for k, v in w.items()}
        out[TensorKey("loss", col_name, round_num, True, ("metric",))] = np.array(loss)
        return out, {}

    def get_train_data_size(self):
        return 1

    def get_valid_data_size(self):
        return 1


def tasks():
    return {"train": {"function": "train", "aggregation_type": WeightedAverage(), "kwargs": {"metrics": ["loss"]}}}


def names(a):
    return ["collaborator%d" % i for i in range(a.clients)]


def aggregate(a, folder):
    """Runs the aggregator to its end, and returns the final weights."""
    assigner = StaticGroupedAssigner([{"name": "all", "collaborators": names(a), "tasks": ["train"]}], tasks=tasks(), authorized_cols=names(a), rounds_to_train=a.rounds)
    path = lambda name: os.path.join(folder, name)
    aggregator = Aggregator(
        aggregator_uuid=AGGREGATOR, federation_uuid=FEDERATION, authorized_cols=names(a), init_state_path=path("init.pbuf"), best_state_path=path("best.pbuf"),
        last_state_path=path("last.pbuf"), assigner=assigner, use_delta_updates=False, rounds_to_train=a.rounds, db_store_rounds=2, initial_tensor_dict=initial(a),
        persist_checkpoint=False)
    AggregatorGRPCServer(aggregator, int(os.environ["MASTER_PORT"]), use_tls=False, require_client_auth=False).serve()
    return {k: np.asarray(v, np.float32) for k, v in aggregator.last_tensor_dict.items()}


def collaborate(a, number):
    try:
        collaborator(a, number)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def collaborator(a, number):
    name = names(a)[number]
    client = AggregatorGRPCClient(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), AGGREGATOR, FEDERATION, name, use_tls=False, require_client_auth=False)
    Collaborator(name, AGGREGATOR, FEDERATION, client, Runner(a, number), tasks(), use_delta_updates=False, db_store_rounds=2).run()


def main():
    a = arguments()
    begin = time.monotonic()
    threading.Timer(a.timeout, lambda: os._exit(3)).start()
    stdout, sys.stdout = sys.stdout, sys.stderr
    quick.joins()
    report = {"job": "openfl", "version": openfl.__version__, "world": a.clients, "steps": a.rounds}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if os.environ["RANK"] == "0":
            w = aggregate(a, folder)
            images, labels = fashion.load("t10k")
            report["loss"], report["accuracy"] = fashion.judge(fashion.scores(images[:a.test], lambda x: forward(w, x)[1]), labels[:a.test])
            h = hashlib.sha256()
            for k in sorted(w):
                h.update(w[k].tobytes())
            report.update(parameters=sum(v.size for v in w.values()), dense_bytes=sum(v.nbytes for v in w.values()), weights_sha256=h.hexdigest())
        else:
            threads = [threading.Thread(target=collaborate, args=(a, i)) for i in range(a.clients)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
    print(json.dumps({**report, "seconds": time.monotonic() - begin}), file=stdout, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
