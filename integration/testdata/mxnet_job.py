"""A job on MXNet's parameter servers (ps-lite) that knows nothing of proxies: an MLP on Fashion-MNIST, or with --model one of mxnet_models.py.

One process for each role, as ps-lite's variables say:
  DMLC_ROLE=scheduler|server|worker DMLC_NUM_SERVER=2 DMLC_NUM_WORKER=4 DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=9000
  DMLC_NODE_HOST=127.0.0.1 python3 mxnet_job.py --steps 20

Arrays of at least MXNET_KVSTORE_BIGARRAY_BOUND elements are split over the servers. DMLC_PS_VAN_TYPE=p3 sends in slices by
priority, and needs --update workers.

Workers write "step K" to stderr after step K; every process writes one JSON line to stdout at its end. Which worker has
which rank is ps-lite's choice, and it has no effect on the weights. With dist_sync two runs with the same arguments end
with the same hash if there are two workers, or with --grid.
"""
import argparse
import hashlib
import json
import os
import statistics
import sys
import time

import clock
import fashion


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--model", choices=sorted(fashion.MODELS), help="instead of the MLP; its training images are all, and its test images others")
    p.add_argument("--kvstore", choices=["dist_sync", "dist_async"], default="dist_sync")
    p.add_argument("--update", choices=["servers", "workers"], default="servers", help="who steps: workers then get weights "
                   "back, or sums of gradients")
    p.add_argument("--compress", type=float, metavar="THRESHOLD", help="MXNet's 2-bit codes for gradients")
    p.add_argument("--half", action="store_true", help="the second layer in float16, on the servers in float32 as well")
    p.add_argument("--sparse", action="store_true", help="a row-sparse embedding beside the pixels")
    p.add_argument("--grid", type=int, metavar="BITS", help="round gradients to multiples of 2^-BITS: sums of a few such "
                   "numbers are exact, so that the order in which a server adds them up does not matter")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--hidden", default="64,64", help="widths of the two hidden layers")
    p.add_argument("--batch", type=int, default=32, help="images a worker and step")
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--optimizer", choices=["sgd", "adam", "adamw"], default="sgd")
    p.add_argument("--momentum", type=float, default=0, help="of sgd")
    p.add_argument("--weight-decay", type=float, default=0.01, help="of adamw")
    clock.arguments(p)
    p.add_argument("--save", metavar="FOLDER", help="write each worker's final weights there: RANK.weights")
    p.add_argument("--test", type=int, default=1000, help="test images of the final loss and accuracy")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--sleep", type=float, default=0, help="seconds to pause after each step")
    p.add_argument("--spike", type=int, default=-1, metavar="STEP", help="the gradients of this step are a thousand times as large")
    p.add_argument("--pulls", type=int, default=1, help="with dist_async: how often to pull the final weights")
    p.add_argument("--alike", metavar="FOLDER", help="write RANK.alike there: a line, NAME SHA256, for whatever should have "
                   "the same bits on all workers that have something of this name")
    return p.parse_args()


def finish(**line):
    print(json.dumps(dict(job="mxnet", **line)), flush=True)


began = time.perf_counter()
try:
    import mxnet as mx  # a scheduler or server lives in here, until the job ends
except SystemExit as e:
    if not e.code:
        finish(role=os.environ["DMLC_ROLE"], seconds=time.perf_counter() - began)
    raise

import numpy as np
from mxnet import autograd, gluon

import mxnet_models
import mxnet_servers

BRIGHTEST = 24  # pixels whose places are the words of the embedding


class Half(gluon.Block):
    """A dense layer with weights of float16, which computes in float32: MXNet has no such layer for CPUs."""

    def __init__(self, before, after):
        super().__init__()
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(after, before), dtype="float16")
            self.bias = self.params.get("bias", shape=(after,), dtype="float16", init="zeros")
        self.after = after

    def forward(self, x):
        weight, bias = self.weight.data().astype("float32"), self.bias.data().astype("float32")
        return mx.nd.relu(mx.nd.FullyConnected(x, weight, bias, num_hidden=self.after))


class Net(gluon.Block):
    def __init__(self, a):
        super().__init__()
        first, second = (int(w) for w in a.hidden.split(","))
        width = 32 if a.sparse else 0
        with self.name_scope():
            self.words = mxnet_models.Words(fashion.PIXELS, width) if a.sparse else None
            self.first = gluon.nn.Dense(first, in_units=fashion.PIXELS + width, activation="relu")
            self.second = Half(first, second) if a.half else gluon.nn.Dense(second, in_units=first, activation="relu")
            self.last = gluon.nn.Dense(fashion.CLASSES, in_units=second)

    def forward(self, x):
        images = x.asnumpy()
        if self.words:
            words = np.argpartition(images, -BRIGHTEST, 1)[:, -BRIGHTEST:]
            x = mx.nd.concat(x, self.words(mx.nd.array(words)).mean(axis=1), dim=1)
        return self.last(self.second(self.first(x)))


class ByHand:
    """What a gluon.Trainer does, with a push and a pull of each array: MXNet's compression knows no push that pulls as well,
    which is all that a Trainer uses."""

    def __init__(self, parameters, kv, optimizer, compress):
        self.parameters, self.kv = [parameters[name] for name in sorted(parameters.keys())], kv
        kv.set_gradient_compression({"type": "2bit", "threshold": compress})
        kv.set_optimizer(optimizer)

    def begin(self):
        for key, p in enumerate(self.parameters):
            self.kv.init(key, p.data())
            self.kv.pull(key, p.data())

    def step(self):
        for key, p in enumerate(self.parameters):
            self.kv.push(key, p.grad(), priority=-key)
        for key, p in enumerate(self.parameters):
            self.kv.pull(key, p.data(), priority=-key)


class Trainer:
    """A gluon.Trainer whose parts can be looked at in between. It numbers its parameters in the order of their names."""

    def __init__(self, parameters, kv, optimizer, update):
        self.parameters = [parameters[name] for name in sorted(parameters.keys())]
        self.trainer = gluon.Trainer(parameters, optimizer, kvstore=kv, update_on_kvstore=update == "servers")

    def begin(self):
        # As its first step would: MXNet has no other name for it.
        self.trainer._init_kvstore()
        self.trainer._init_params()

    def step(self):
        self.trainer._allreduce_grads()

    def update(self):
        self.trainer.update(1)


class Alike:
    """Writes down what should be alike. Without a folder it does nothing."""

    def __init__(self, folder, rank):
        self.file = open(os.path.join(folder, "%d.alike" % rank), "w") if folder else None

    def note(self, name, array):
        if self.file:
            print(name, hashlib.sha256(array.asnumpy().tobytes()).hexdigest(), file=self.file, flush=True)

    def rows(self, name, array):
        if self.file:
            for row, value in zip(array.indices.asnumpy(), array.data):
                self.note("%s.%d" % (name, row), value)


def round_to_grid(parameters, bits):
    for p in parameters:
        gradient = p.grad()
        if gradient.dtype == np.float16:  # powers of 2 that float16 does not hold
            gradient[:] = ((gradient.astype("float32") * 2.0 ** bits).round() / 2.0 ** bits).astype("float16")
        else:
            gradient[:] = (gradient * 2.0 ** bits).round() / 2.0 ** bits


def chosen_optimizer(a, param_dict):
    """What the servers run. Gradients of a worker are sums over its batch."""
    falls = None
    if a.decay:
        falls = mxnet_servers.Falling(a.lr, a.clock) if a.seconds else mx.lr_scheduler.PolyScheduler(a.steps, base_lr=a.lr, pwr=1)
    common = dict(learning_rate=a.lr, lr_scheduler=falls, rescale_grad=1 / a.batch, param_dict=param_dict)
    if a.optimizer == "adamw":
        return mxnet_servers.AdamW(a.weight_decay, **common)
    if a.optimizer == "adam":
        return mx.optimizer.create("adam", **common)
    return mx.optimizer.create("sgd", momentum=a.momentum, multi_precision=a.half, **common)


def train(a):
    kv = mx.kv.create(a.kvstore)
    mx.random.seed(a.seed * 1000 + kv.rank)  # other weights on every worker, of which those of rank 0 must win
    np.random.seed(a.seed * 1000 + kv.rank)
    net = mxnet_models.MODELS[a.model]() if a.model else Net(a)
    take = fashion.MODELS.get(a.model, lambda images: images)
    net.initialize(mx.init.Xavier())
    found = net.collect_params()
    optimizer = chosen_optimizer(a, dict(enumerate(found[n] for n in sorted(found.keys()))))
    job = ByHand(found, kv, optimizer, a.compress) if a.compress else Trainer(found, kv, optimizer, a.update)
    words = getattr(net, "words", None)
    sparse = words.weight if words else None
    dense = [(key, p) for key, p in enumerate(job.parameters) if p is not sparse]
    alike = Alike(a.alike, kv.rank)
    if kv.rank == 0:
        for key, p in dense:
            alike.note("first.%d" % key, p.data())
    job.begin()
    for key, p in dense:
        alike.note("first.%d" % key, p.data())
    images, labels = fashion.load("t10k")  # enough for an MLP, and read in a moment; the last ones are for the test
    test = images[-a.test:], labels[-a.test:]
    images, labels = fashion.load("train") if a.model else (images[:-a.test], labels[:-a.test])
    batches = fashion.Batches(images, labels, kv.rank, kv.num_workers, a.batch, a.seed)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    seconds = []
    for step, _ in clock.Clock(a, kv.rank):
        images, labels = batches.draw()
        with autograd.record():
            loss = loss_of(net(mx.nd.array(take(images))), mx.nd.array(labels))
        loss.backward()
        if step == a.spike:
            for p in job.parameters:
                p.grad()[:] = 1000 * p.grad()
        if a.grid:
            round_to_grid(job.parameters, a.grid)
        mx.nd.waitall()
        start = time.perf_counter()
        job.step()
        mx.nd.waitall()
        seconds.append(time.perf_counter() - start)
        if a.kvstore == "dist_sync":
            if words:
                alike.rows("%d.rows" % step, words.rows)
            for key, p in dense:
                alike.note("%d.%d" % (step, key), p.grad() if a.update == "workers" else p.data())
        if a.update == "workers":
            job.update()
        print("step %d" % step, file=sys.stderr, flush=True)
        time.sleep(a.sleep)
    if a.kvstore == "dist_async":
        kv._barrier()  # all pushes of all workers have been answered, so what the servers have is final
        for _ in range(a.pulls):
            for key, p in dense:
                kv.pull(key, p.data())
            mx.nd.waitall()
    if words:
        words.keep()
    weights = [(words.kept if p is sparse else p.data()).asnumpy() for p in job.parameters if p.grad_req != "null"]  # all that is learnt
    kv._barrier()
    loss, accuracy = fashion.judge(fashion.scores(test[0], lambda part: net(mx.nd.array(take(part))).asnumpy()), test[1])
    raw = b"".join(w.tobytes() for w in weights)
    if a.save:
        with open(os.path.join(a.save, "%d.weights" % kv.rank), "wb") as f:
            f.write(raw)
    return {
        "rank": kv.rank, "world": kv.num_workers, "kvstore": kv.type, "steps": len(seconds),
        "parameters": sum(w.size for w in weights),
        "dense_bytes": len(raw) - (words.kept.size * 4 if words else 0), "loss": loss, "accuracy": accuracy,
        "step_seconds": statistics.median(seconds),
        "weights_sha256": hashlib.sha256(raw).hexdigest(),
    }


def main():
    line = train(arguments())
    finish(role="worker", version=mx.__version__, seconds=time.perf_counter() - began, **line)


main()
