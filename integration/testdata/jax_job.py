"""A JAX job over Gloo that knows nothing of proxies: an MLP on Fashion-MNIST, or with --model one of jax_models.py, the same every time.

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
import quick  # before a framework

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

import clock
import fashion
import jax_models
import record


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=["shard_map", "jit", "fsdp"], default="shard_map")
    p.add_argument("--model", choices=sorted(jax_models.MODELS), help="instead of the MLP; mode shard_map")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--hidden", default="1024,512", help="widths of the hidden layers, divisible by the ranks in mode fsdp")
    p.add_argument("--batch", type=int, default=64, help="images a rank and step")
    p.add_argument("--optimizer", choices=["sgd", "adam", "adamw"], default="sgd", help="of a --model")
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--momentum", type=float, default=0, help="of sgd with a --model")
    p.add_argument("--weight-decay", type=float, default=0.01, help="of adamw")
    clock.arguments(p)
    p.add_argument("--save", metavar="FOLDER", help="write each rank's final weights there: RANK.weights, float32")
    p.add_argument("--test", type=int, default=1000, help="test images of the final loss and accuracy")
    p.add_argument("--shift", default="", help="steps, with commas between, in which something is summed up that is no gradient "
                   "but has the shape of one, right before it: the first matrix's, then the second's, and so on; mode shard_map")
    p.add_argument("--record", metavar="FOLDER", help="keep there what goes into these sums and comes out")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--sleep", type=float, default=0, help="seconds to pause after each step")
    p.add_argument("--idle", type=float, default=0, help="seconds without a byte, once, in the middle")
    p.add_argument("--timeout", type=float, default=300, help="seconds after which ranks that do not join are given up")
    a = p.parse_args()
    if not a.model and (a.decay or a.optimizer != "sgd" or a.momentum):
        p.error("--decay, --optimizer and --momentum need a --model")
    if a.model and (a.mode != "shard_map" or a.shift):
        p.error("a --model has mode shard_map only, and no --shift")
    return a


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

    def advance(self, images, labels, rate):
        """Makes a step, and returns its loss."""
        self.parameters, loss = self.step(self.parameters, images, labels)
        return loss

    def scores(self, images):
        """The scores of images, by the weights that the ranks have now."""
        x, weights = fashion.floats(images), self.whole()
        for i in range(0, len(weights), 2):
            x = x @ weights[i] + weights[i + 1]
            x = np.maximum(x, 0) if i + 2 < len(weights) else x
        return x

    def whole(self):
        """All weights, on every rank."""
        gather = jax.jit(lambda p: p, out_shardings=self.copied)
        return [np.asarray((gather(w) if self.a.mode == "fsdp" else w).addressable_data(0)) for w in self.parameters]


class ModelJob(Job):
    """A Job that trains one of jax_models.py."""

    def __init__(self, a, world):
        self.a, self.world, self.model = a, world, jax_models.MODELS[a.model]()
        self.mesh = mesh = Mesh(np.array(jax.devices()), ("ranks",))
        self.copied, self.rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("ranks"))
        weights = self.model.initial(np.random.default_rng(a.seed))
        self.parameters, self.memory = jax.tree.map(lambda w: self.place(w, self.copied), (weights, jax_models.memory(weights)))
        self.statistics = jax.tree.map(lambda s: self.feed(s[None]), self.model.statistics())  # each rank has its own
        self.step = self.explicit(mesh)

    def explicit(self, mesh):
        shared, cut = PartitionSpec(), PartitionSpec("ranks")

        @jax.jit
        @functools.partial(jax.shard_map, mesh=mesh, in_specs=(shared, shared, cut, cut, cut, shared), out_specs=(shared, shared, cut, shared))
        def step(parameters, memory, statistics, images, labels, rate):
            def loss_of(weights):
                scores, kept = self.model.scores(weights, jax.tree.map(lambda s: s[0], statistics), images, True)
                return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean(), kept

            own = jax.tree.map(lambda w: jax.lax.pcast(w, "ranks", to="varying"), parameters)
            (loss, kept), gradients = jax.value_and_grad(loss_of, has_aux=True)(own)
            means = jax.tree.map(lambda g: jax.lax.psum(g, "ranks") / self.world, gradients)
            parameters, memory = jax_models.descend(self.a, parameters, means, memory, rate)
            return parameters, memory, jax.tree.map(lambda s: s[None], kept), jax.lax.pmean(loss, "ranks")
        return step

    def advance(self, images, labels, rate):
        self.parameters, self.memory, self.statistics, loss = self.step(self.parameters, self.memory, self.statistics, images, labels, np.float32(rate))
        return loss

    def scores(self, images):
        weights, statistics = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), (self.parameters, self.statistics))
        statistics = jax.tree.map(lambda s: s[0], statistics)
        score = jax.jit(lambda x: self.model.scores(weights, statistics, x, False)[0])
        return fashion.scores(images, lambda part: np.asarray(score(fashion.MODELS[self.a.model](part))))

    def whole(self):
        return [np.asarray(w.addressable_data(0)) for w in jax.tree.leaves(self.parameters)]


def train(a, rank, world):
    job = ModelJob(a, world) if a.model else Job(a, world)
    take = fashion.MODELS.get(a.model, lambda images: images)
    batches = fashion.Batches(*fashion.load("train"), rank, world, a.batch, a.seed)
    recorder = record.Recorder(a.record, rank)
    shifts = [int(k) for k in a.shift.split(",") if k]
    seconds = []
    ticks = clock.Clock(a, rank)
    for step, done in ticks:
        began = time.perf_counter()
        images, labels = batches.draw()
        images, labels = job.feed(take(images)), job.feed(labels.astype(np.int32))
        if step in shifts:
            matrix = 2 * shifts.index(step) % len(job.parameters)
            job.parameters, loss, given, total = job.explicit(job.mesh, matrix)(job.parameters, images, labels)
            recorder.keep("sum", *(np.asarray(x.addressable_data(0)).tobytes() for x in (given, total)))
        else:
            loss = job.advance(images, labels, ticks.rate(done))
        loss = float(loss.addressable_data(0))
        seconds.append(time.perf_counter() - began)
        print("step %d" % step, file=sys.stderr, flush=True)
        time.sleep(a.sleep + (a.idle if step == a.steps // 2 else 0))
    weights = job.whole()
    x, labels = (part[:a.test] for part in fashion.load("t10k"))
    loss_of_test, accuracy = fashion.judge(job.scores(x), labels)
    raw = b"".join(np.ascontiguousarray(w).tobytes() for w in weights)
    if a.save:
        with open(os.path.join(a.save, "%d.weights" % rank), "wb") as f:
            f.write(raw)
    return {
        "mode": a.mode, "steps": len(seconds), "parameters": sum(w.size for w in weights),
        "loss": loss_of_test,
        "train_loss": loss,
        "accuracy": accuracy,
        "step_seconds": statistics.median(seconds),
        "weights_sha256": hashlib.sha256(raw).hexdigest(),
    }


def main():
    a = arguments()
    quick.joins()
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
    quick.ends()


main()
