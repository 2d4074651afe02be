"""A JAX job over Gloo that knows nothing of proxies: an MLP on Fashion-MNIST, the same every time.

One process a rank, each with one CPU device:
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python3 jax_job.py --steps 50

Modes
  shard_map  an explicit psum of every gradient
  jit        a batch sharded over the ranks: XLA adds the all-reduces
  fsdp       jit with sharded parameters: XLA adds all-gathers and reduce-scatters

MASTER_PORT is JAX's coordination service. JAX announces the address that its own host name resolves to, so across
network namespaces /etc/hosts must map the name. Writes "step K" to stderr after step K, and at the end one JSON
line to stdout. Two runs with the same arguments and the same JAX end with the same hashes.
"""
import argparse
import functools
import hashlib
import json
import os
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import fashion
import record


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=["shard_map", "jit", "fsdp"], default="shard_map")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--hidden", default="1024,512", help="widths of the hidden layers, divisible by the ranks in mode fsdp")
    p.add_argument("--batch", type=int, default=64, help="images a rank and step")
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--test", type=int, default=1000, help="test images of the final loss and accuracy")
    p.add_argument("--shift", default="", help="steps, with commas between, in which something is summed up that is no gradient "
                   "but has the shape of one, right before it: the first matrix's, then the second's, and so on; mode shard_map")
    p.add_argument("--record", metavar="FOLDER", help="keep there what goes into these sums and comes out")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--sleep", type=float, default=0, help="seconds to pause after each step")
    p.add_argument("--idle", type=float, default=0, help="seconds without a byte, once, in the middle")
    p.add_argument("--timeout", type=float, default=300, help="seconds after which ranks that do not join are given up")
    return p.parse_args()


def initial(a):
    random = np.random.default_rng(a.seed)
    widths = [fashion.PIXELS] + [int(w) for w in a.hidden.split(",")] + [fashion.CLASSES]
    parameters = []
    for before, after in zip(widths, widths[1:]):
        parameters += [(random.standard_normal((before, after)) * (2 / before) ** 0.5).astype(np.float32),
                       np.zeros(after, np.float32)]
    return parameters


def forward(parameters, x):
    for i in range(0, len(parameters), 2):
        x = x @ parameters[i] + parameters[i + 1]
        if i + 2 < len(parameters):
            x = jnp.maximum(x, 0)
    return x


def cross_entropy(parameters, images, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(forward(parameters, images)), labels[:, None], 1).mean()


class Job:
    """Where arrays live, and the compiled training step."""

    def __init__(self, a, world):
        self.a, self.world = a, world
        self.mesh = mesh = Mesh(np.array(jax.devices()), ("ranks",))
        self.copied = NamedSharding(mesh, PartitionSpec())
        self.rows = NamedSharding(mesh, PartitionSpec("ranks"))
        given = initial(a)
        self.layout = [self.rows if a.mode == "fsdp" and len(w) % world == 0 else self.copied for w in given]
        self.parameters = [self.place(w, s) for w, s in zip(given, self.layout)]
        self.step = self.explicit(mesh) if a.mode == "shard_map" else self.automatic()

    def place(self, value, sharding):
        """The array that has value, of which this rank holds what sharding gives it."""
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    def feed(self, mine):
        """The array that has this rank's rows and the other ranks' below each other."""
        return jax.make_array_from_process_local_data(self.rows, mine, (len(mine) * self.world,) + mine.shape[1:])

    def descend(self, parameters, gradients):
        return [w - np.float32(self.a.lr) * g for w, g in zip(parameters, gradients)]

    def automatic(self):
        @functools.partial(jax.jit, out_shardings=(self.layout, self.copied))
        def step(parameters, images, labels):
            loss, gradients = jax.value_and_grad(cross_entropy)(parameters, images, labels)
            return self.descend(parameters, gradients), loss
        return step

    def explicit(self, mesh, shifted=None):
        """A step that sums up all matrices' gradients, then all biases'. With shifted, the index of a matrix, also each
        rank's own matrix, as if to average it, right before the gradient of it; the step then returns what was summed up
        by each rank, and the sum, as well."""
        shared, cut = PartitionSpec(), PartitionSpec("ranks")
        more = (cut, shared) if shifted is not None else ()

        @jax.jit
        @functools.partial(jax.shard_map, mesh=mesh, in_specs=(shared, cut, cut), out_specs=(shared, shared) + more)
        def step(parameters, images, labels):
            own = [jax.lax.pcast(w, "ranks", to="varying") for w in parameters]  # or the psum would come by itself
            loss, gradients = jax.value_and_grad(cross_entropy)(own, images, labels)
            means, other = [None] * len(own), ()
            for i in list(range(0, len(own), 2)) + list(range(1, len(own), 2)):
                if i == shifted:
                    matrix = own[i] * (1.0 + jax.lax.axis_index("ranks"))
                    other = (matrix, jax.lax.psum(matrix, "ranks"))
                means[i] = jax.lax.psum(gradients[i], "ranks") / self.world
            return (self.descend(parameters, means), jax.lax.pmean(loss, "ranks")) + other
        return step

    def whole(self):
        """All weights, on every rank."""
        gather = jax.jit(lambda p: p, out_shardings=self.copied)
        return [np.asarray((gather(w) if self.a.mode == "fsdp" else w).addressable_data(0)) for w in self.parameters]


def train(a, rank, world):
    job = Job(a, world)
    batches = fashion.Batches(*fashion.load("train"), rank, world, a.batch, a.seed)
    recorder = record.Recorder(a.record, rank)
    shifts = [int(k) for k in a.shift.split(",") if k]
    seconds = []
    for step in range(a.steps):
        began = time.perf_counter()
        images, labels = batches.draw()
        images, labels = job.feed(images), job.feed(labels.astype(np.int32))
        if step in shifts:
            matrix = 2 * shifts.index(step) % len(job.parameters)
            job.parameters, loss, given, total = job.explicit(job.mesh, matrix)(job.parameters, images, labels)
            recorder.keep("sum", *(np.asarray(x.addressable_data(0)).tobytes() for x in (given, total)))
        else:
            job.parameters, loss = job.step(job.parameters, images, labels)
        loss = float(loss.addressable_data(0))
        seconds.append(time.perf_counter() - began)
        print("step %d" % step, file=sys.stderr, flush=True)
        time.sleep(a.sleep + (a.idle if step == a.steps // 2 else 0))
    weights = job.whole()
    x, labels = (part[:a.test] for part in fashion.load("t10k"))
    for i in range(0, len(weights), 2):
        x = x @ weights[i] + weights[i + 1]
        x = np.maximum(x, 0) if i + 2 < len(weights) else x
    x = x - x.max(1, keepdims=True)
    chosen = x[np.arange(len(x)), labels] - np.log(np.exp(x).sum(1))
    return {
        "mode": a.mode, "steps": a.steps, "parameters": sum(w.size for w in weights),
        "loss": float(-chosen.mean()),
        "train_loss": loss,
        "accuracy": float((x.argmax(1) == labels).mean()),
        "step_seconds": statistics.median(seconds),
        "weights_sha256": hashlib.sha256(b"".join(np.ascontiguousarray(w).tobytes() for w in weights)).hexdigest(),
    }


def main():
    a = arguments()
    began = time.perf_counter()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"], world, rank,
                               initialization_timeout=int(a.timeout))
    line = {"job": "jax", "version": jax.__version__, "rank": rank, "world": world}
    line.update(train(a, rank, world))
    line["seconds"] = time.perf_counter() - began
    print(json.dumps(line), flush=True)
    jax.distributed.shutdown()


main()
