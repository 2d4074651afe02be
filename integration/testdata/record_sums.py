"""Records the all-reduces of small trainings whose ranks also sum something else than gradients.

  python3 record_sums.py --out FOLDER

The ranks train in one process, one after another, and a sum is the sum of their tensors, as torch.distributed would give it. For
each job a file JOB.npy holds a float32 array of shape (sums, ranks, elements): the tensor that each rank puts into each of the job's
all-reduces, all of one size. JOB.txt names each of them in its line: gradient, or the word for something else. Every job has two
ranks. Runs on torch 1.13.1 and 2.15.
"""
import argparse
import copy
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import fashion

RANKS, BATCH = 2, 32


def perceptron():
    return nn.Sequential(nn.Linear(fashion.PIXELS, 32), nn.ReLU(), nn.Linear(32, fashion.CLASSES))


class Attention(nn.Module):
    """Predicts the next of 16 letters."""

    def __init__(self, width=48, letters=64):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Embedding(16, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0, batch_first=True, norm_first=True)
        self.out = nn.Linear(width, letters)
        self.register_buffer("mask", torch.full((16, 16), float("-inf")).triu(1))

    def forward(self, x):
        return self.out(self.layer(self.letters(x) + self.places.weight, self.mask))


def flat(tensors):
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def spread(vector, tensors):
    with torch.no_grad():
        for t, part in zip(tensors, vector.split([t.numel() for t in tensors])):
            t.copy_(part.view_as(t))


class Job:
    """A model on each rank, its optimizer and its data."""

    def __init__(self, model, optimizer, reduction="mean", apart=False):
        torch.manual_seed(1)
        first = model()
        self.models = [first] + [copy.deepcopy(first) for _ in range(RANKS - 1)]
        self.optimizers = [optimizer(m.parameters()) for m in self.models]
        self.reduction = reduction
        self.language = isinstance(first, Attention)
        if self.language:
            text = "".join(open(os.path.join(os.path.dirname(os.__file__), f), errors="replace").read() for f in ("argparse.py", "ast.py", "inspect.py"))
            self.ids = torch.tensor([min(63, max(0, ord(c) - 32 if ord(c) < 96 else ord(c) - 64)) for c in text])
            self.random = torch.Generator().manual_seed(2)
        else:
            x, y = fashion.load("train")
            self.batches = [fashion.Batches(x, y, r, RANKS, BATCH, 3, apart) for r in range(RANKS)]
        self.sums, self.names = [], []

    def parameters(self, rank):
        return list(self.models[rank].parameters())

    def backward(self, rank):
        self.optimizers[rank].zero_grad()
        if self.language:
            i = torch.randint(len(self.ids) - 17, (BATCH,), generator=self.random)[:, None] + torch.arange(17)
            x, y = self.ids[i[:, :-1]], self.ids[i[:, 1:]].flatten()
        else:
            images, labels = self.batches[rank].draw()
            x, y = torch.from_numpy(images), torch.from_numpy(labels)
        F.cross_entropy(self.models[rank](x).flatten(0, -2), y, reduction=self.reduction).backward()

    def reduce(self, name, tensors, op=torch.add):
        """The all-reduce of a flat tensor of each rank."""
        self.names.append(name)
        self.sums.append(torch.stack(tensors).numpy())
        result = tensors[0]
        for t in tensors[1:]:
            result = op(result, t)
        return result

    def step(self):
        """A step as DistributedDataParallel makes it: mean gradients, one bucket."""
        for r in range(RANKS):
            self.backward(r)
        total = self.reduce("gradient", [flat(p.grad for p in self.parameters(r)) / RANKS for r in range(RANKS)])
        for r in range(RANKS):
            spread(total, [p.grad for p in self.parameters(r)])
            self.optimizers[r].step()

    def local(self, steps):
        for r in range(RANKS):
            for _ in range(steps):
                self.backward(r)
                self.optimizers[r].step()

    def average(self, name):
        """Averages the weights."""
        total = self.reduce(name, [flat(self.parameters(r)) / RANKS for r in range(RANKS)])
        for r in range(RANKS):
            spread(total, self.parameters(r))

    def state(self, rank, key):
        return flat(self.optimizers[rank].state[p][key] for p in self.parameters(rank))


def sgd(rate, momentum=0.9):
    return lambda p: torch.optim.SGD(p, rate, momentum=momentum)


def adam(rate):
    return lambda p: torch.optim.AdamW(p, rate)


def beside(job, steps, other, due):
    """Gradients in every step, and the sum that other makes after those that are due."""
    for step in range(steps):
        job.step()
        if due(step):
            other(job)


def every(n):
    return lambda step: step % n == n - 1


def moving(job):
    """An exponential moving average of the weights, which all ranks have alike."""
    now = flat(job.parameters(0))
    job.moving = now if not hasattr(job, "moving") else 0.9 * job.moving + 0.1 * now
    job.reduce("average", [job.moving / RANKS] * RANKS)


def weights(job):
    job.average("weights")


def of_state(key):
    return lambda job: job.reduce(key, [job.state(r, key) / RANKS for r in range(RANKS)])


def of_gradients(name, function, op=torch.add):
    return lambda job: job.reduce(name, [function(flat(p.grad for p in job.parameters(r))) for r in range(RANKS)], op)


def diloco(job, rounds, steps):
    """Pseudo-gradients of outer steps with momentum, and the weights as well in every fourth."""
    outer, momentum = flat(job.parameters(0)), 0
    for k in range(rounds):
        job.local(steps)
        total = job.reduce("gradient", [(outer - flat(job.parameters(r))) / RANKS for r in range(RANKS)])
        momentum = 0.9 * momentum + total
        outer = outer - 0.7 * (total + 0.9 * momentum)
        for r in range(RANKS):
            spread(outer, job.parameters(r))
        if k % 4 == 3:
            job.average("weights")


def local(job, rounds, steps):
    for _ in range(rounds):
        job.local(steps)
        job.average("weights")


def jobs():
    """Returns for each job its name, the job, and the function that runs it."""
    mlp, lm, steps = perceptron, Attention, 120
    summed = lambda: Job(mlp, sgd(0.05 / BATCH), "sum")
    mean = lambda: Job(mlp, sgd(0.05))
    words = lambda: Job(lm, adam(1e-3))
    yield "gradients-mlp", mean, lambda j: beside(j, steps, None, lambda s: False)
    yield "gradients-mlp-sum", summed, lambda j: beside(j, steps, None, lambda s: False)
    yield "gradients-lm", words, lambda j: beside(j, steps, None, lambda s: False)
    yield "gradients-apart", lambda: Job(mlp, sgd(0.05), apart=True), lambda j: beside(j, steps, None, lambda s: False)
    for n in 5, 7, 10, 50:
        yield "sum-average-%d" % n, summed, lambda j, n=n: beside(j, steps, moving, every(n))
    for n in 1, 5, 7, 10:
        yield "weights-%d" % n, mean, lambda j, n=n: beside(j, steps, weights, every(n))
    for n in 1, 5, 7, 10:
        yield "momentum-%d" % n, mean, lambda j, n=n: beside(j, steps, of_state("momentum_buffer"), every(n))
    for key in "exp_avg", "exp_avg_sq":
        yield "lm-%s-10" % key.replace("_", ""), words, lambda j, k=key: beside(j, steps, of_state(k), every(10))
    magnitudes = of_gradients("maximum", torch.abs, torch.maximum)
    yield "max-magnitudes-10", mean, lambda j: beside(j, steps, magnitudes, every(10))
    yield "max-10", mean, lambda j: beside(j, steps, of_gradients("maximum", lambda g: g, torch.maximum), every(10))
    yield "max-only", mean, lambda j: max_only(j, steps)
    yield "fisher-10", mean, lambda j: beside(j, steps, of_gradients("squares", lambda g: g * g * 100), every(10))
    yield "local-lm-5", lambda: Job(lm, adam(3e-3)), lambda j: local(j, 40, 5)
    yield "local-lm-20", lambda: Job(lm, adam(3e-3)), lambda j: local(j, 40, 20)
    yield "local-mlp-20", mean, lambda j: local(j, 40, 20)
    yield "local-lm-50", lambda: Job(lm, adam(1e-2)), lambda j: local(j, 20, 50)
    yield "diloco-lm-20", lambda: Job(lm, adam(3e-3)), lambda j: diloco(j, 30, 20)


def max_only(job, steps):
    """Each step has the maxima of the ranks' gradients, and no gradients."""
    for _ in range(steps):
        for r in range(RANKS):
            job.backward(r)
        of_gradients("maximum", lambda g: g.clone(), torch.maximum)(job)
        for r in range(RANKS):
            job.optimizers[r].step()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True, help="folder for the files")
    p.add_argument("--job", action="append", help="may be repeated; default: all")
    a = p.parse_args()
    torch.set_num_threads(1)
    os.makedirs(a.out, exist_ok=True)
    for name, make, run in jobs():
        if a.job and name not in a.job:
            continue
        job = make()
        run(job)
        path = os.path.join(a.out, name)
        with open(path + ".txt", "w") as f:
            f.write("".join(n + "\n" for n in job.names))
        np.save(path + ".part.npy", np.stack(job.sums).astype("<f4"))
        os.rename(path + ".part.npy", path + ".npy")
        print(path, len(job.names), "sums", file=sys.stderr)


main()
