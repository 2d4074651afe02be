"""Records the all-reduces of small trainings whose ranks also sum something else than gradients.

  python3 record_sums.py --out FOLDER

The ranks train in one process, one after another, and a sum is the sum of their tensors, as torch.distributed would give it. For
each job a file JOB.npy holds a float32 array of shape (sums, ranks, elements): the tensor that each rank puts into each of the job's
all-reduces, all of one size, and JOB.first the weights before the first step, which DistributedDataParallel broadcasts, in the same order. JOB.txt names each of them in its line: gradient, or the word for something else; the words maximum,
minimum and product also name the operation. Every job has two ranks. Runs on torch 1.13.1 and 2.15.

The jobs in the folder "tuning" are those by which the bounds of the content check were chosen. Those in "measuring" have other models,
optimizers, seeds and sums; no bound was chosen by them.
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
import letters

RANKS, BATCH = 2, 32


def perceptron():
    return nn.Sequential(nn.Linear(fashion.PIXELS, 32), nn.ReLU(), nn.Linear(32, fashion.CLASSES))


def convolution():
    return nn.Sequential(nn.Unflatten(1, (1, fashion.SIDE, fashion.SIDE)),
                         nn.Conv2d(1, 12, 3, stride=2), nn.BatchNorm2d(12), nn.ReLU(),
                         nn.Conv2d(12, 24, 3, stride=2), nn.BatchNorm2d(24), nn.ReLU(),
                         nn.Flatten(), nn.Linear(24 * 36, fashion.CLASSES))


def tanh():
    return nn.Sequential(nn.Linear(fashion.PIXELS, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, fashion.CLASSES))


class Recurrent(nn.Module):
    """Predicts the next of 16 letters."""

    def __init__(self, width=40, letters=64):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.layer = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, letters)

    def forward(self, x):
        return self.out(self.layer(self.letters(x))[0])


class Critic(nn.Module):
    """Scores images; of a batch, the first half are real, and a generator that does not learn makes the others."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(fashion.PIXELS, 32), nn.LeakyReLU(0.2), nn.Linear(32, fashion.CLASSES))

    def forward(self, x):
        half = len(x) // 2
        return self.layers(torch.cat([x[:half], torch.tanh(torch.randn_like(x[half:]))]))


def flat(tensors):
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def spread(vector, tensors):
    with torch.no_grad():
        for t, part in zip(tensors, vector.split([t.numel() for t in tensors])):
            t.copy_(part.view_as(t))


class Job:
    """A model on each rank, its optimizer and its data."""

    def __init__(self, model, optimizer, reduction="mean", apart=False, seed=1, batch=BATCH):
        torch.manual_seed(seed)
        first = model()
        self.first = flat(first.parameters()).clone()
        self.models = [first] + [copy.deepcopy(first) for _ in range(RANKS - 1)]
        self.optimizers = [optimizer(m.parameters()) for m in self.models]
        self.reduction = reduction
        self.batch = batch
        self.language = isinstance(first, (letters.Attention, Recurrent))
        if self.language:
            self.random = torch.Generator().manual_seed(seed + 1)
        else:
            x, y = fashion.load("train")
            self.batches = [fashion.Batches(x, y, r, RANKS, batch, seed + 2, apart) for r in range(RANKS)]
        self.sums, self.names = [], []

    def parameters(self, rank):
        return list(self.models[rank].parameters())

    def backward(self, rank):
        self.optimizers[rank].zero_grad()
        if self.language:
            x, y = letters.batch(self.batch, self.random)
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


def sharpness(job, steps):
    """Sharpness-aware minimization: gradients at the weights, and then at weights that are worse."""
    for _ in range(steps):
        for r in range(RANKS):
            job.backward(r)
        total = job.reduce("gradient", [flat(p.grad for p in job.parameters(r)) / RANKS for r in range(RANKS)])
        before = flat(job.parameters(0))
        for r in range(RANKS):
            spread(before + 0.05 * total / total.norm(), job.parameters(r))
            job.backward(r)
        total = job.reduce("gradient", [flat(p.grad for p in job.parameters(r)) / RANKS for r in range(RANKS)])
        for r in range(RANKS):
            spread(before, job.parameters(r))
            spread(total, [p.grad for p in job.parameters(r)])
            job.optimizers[r].step()


def rewards(job, steps):
    """Policy gradients: a rank samples a class for each image, and is rewarded if it is the right one."""
    for _ in range(steps):
        for r in range(RANKS):
            job.optimizers[r].zero_grad()
            images, labels = job.batches[r].draw()
            policy = torch.distributions.Categorical(logits=job.models[r](torch.from_numpy(images)))
            action = policy.sample()
            (-policy.log_prob(action) * ((action == torch.from_numpy(labels)).float() - 0.1)).mean().backward()
        total = job.reduce("gradient", [flat(p.grad for p in job.parameters(r)) / RANKS for r in range(RANKS)])
        for r in range(RANKS):
            spread(total, [p.grad for p in job.parameters(r)])
            job.optimizers[r].step()


def curvature(job):
    """Hutchinson's estimate of the diagonal of the Hessian, as AdaHessian sums it."""
    tensors = []
    for r in range(RANKS):
        images, labels = job.batches[r].draw()
        parameters = job.parameters(r)
        loss = F.cross_entropy(job.models[r](torch.from_numpy(images)), torch.from_numpy(labels))
        grads = torch.autograd.grad(loss, parameters, create_graph=True)
        signs = [torch.randint(0, 2, g.shape) * 2. - 1 for g in grads]
        tensors.append(flat(z * h for z, h in zip(signs, torch.autograd.grad(grads, parameters, signs))) / RANKS)
    job.reduce("curvature", tensors)


def of_own(name, op):
    """A sum of gradients of one more batch, which the ranks have not summed."""
    def other(job):
        for r in range(RANKS):
            job.backward(r)
        job.reduce(name, [flat(p.grad for p in job.parameters(r)) for r in range(RANKS)], op)
    return other


def stochastic(job):
    """Stochastic weight averaging: the mean of the weights of some steps."""
    job.seen = getattr(job, "seen", 0) + 1
    now = flat(job.parameters(0))
    job.mean = now if job.seen == 1 else job.mean + (now - job.mean) / job.seen
    job.reduce("average", [job.mean / RANKS] * RANKS)


def variates(job, rounds, steps):
    """SCAFFOLD: changes of the weights by local steps, and then control variates."""
    for _ in range(rounds):
        start = flat(job.parameters(0))
        job.local(steps)
        changes = [start - flat(job.parameters(r)) for r in range(RANKS)]
        total = job.reduce("gradient", [c / RANKS for c in changes])
        job.reduce("variate", [c / steps / 0.05 / RANKS for c in changes])
        for r in range(RANKS):
            spread(start - total, job.parameters(r))


def slow(job, rounds, steps):
    """SlowMo: after local steps the weights, and then the momentum."""
    for _ in range(rounds):
        job.local(steps)
        job.average("weights")
        job.reduce("momentum_buffer", [job.state(r, "momentum_buffer") / RANKS for r in range(RANKS)])


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


def tuning():
    """Returns for each job its name, the job, and the function that runs it."""
    mlp, lm, steps = perceptron, letters.Attention, 120
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


def measuring():
    """As tuning."""
    steps = 120
    nothing = lambda j: beside(j, steps, None, lambda s: False)
    conv = lambda **more: lambda: Job(convolution, adam(2e-3), seed=11, **more)
    deep = lambda: Job(tanh, sgd(0.1, 0), seed=12)
    nesterov = lambda: Job(tanh, lambda p: torch.optim.SGD(p, 0.03, momentum=0.95, nesterov=True), seed=13)
    mean_square = lambda: Job(tanh, lambda p: torch.optim.RMSprop(p, 1e-3), seed=14)
    words = lambda: Job(Recurrent, adam(2e-3), seed=15)
    yield "gradients-conv", conv(), nothing
    yield "gradients-conv-accumulated", conv(batch=256), nothing
    yield "gradients-conv-sum", conv(reduction="sum"), nothing
    yield "gradients-tanh", deep, nothing
    yield "gradients-gru", words, nothing
    yield "gradients-critic", lambda: Job(Critic, adam(1e-3), seed=16), nothing
    yield "gradients-sharpness", nesterov, lambda j: sharpness(j, steps // 2)
    yield "gradients-rewards", deep, lambda j: rewards(j, steps)
    yield "gradients-conv-apart", conv(apart=True), nothing
    for n in 3, 8, 20:
        yield "momentum-tanh-%d" % n, nesterov, lambda j, n=n: beside(j, steps, of_state("momentum_buffer"), every(n))
    yield "square-rms-10", mean_square, lambda j: beside(j, steps, of_state("square_avg"), every(10))
    yield "expavg-conv-6", conv(), lambda j: beside(j, steps, of_state("exp_avg"), every(6))
    yield "expavg-gru-15", words, lambda j: beside(j, steps, of_state("exp_avg"), every(15))
    yield "average-conv-12", conv(reduction="sum"), lambda j: beside(j, steps, stochastic, every(12))
    yield "average-gru-8", words, lambda j: beside(j, steps, stochastic, every(8))
    yield "moving-tanh-4", deep, lambda j: beside(j, steps, moving, every(4))
    for n in 2, 9:
        yield "weights-conv-%d" % n, conv(), lambda j, n=n: beside(j, steps, weights, every(n))
        yield "weights-gru-%d" % n, words, lambda j, n=n: beside(j, steps, weights, every(n))
    keep = lambda g: g.clone()
    for name, op in ("maximum", torch.maximum), ("minimum", torch.minimum), ("product", torch.mul):
        yield "%s-tanh-9" % name, deep, lambda j, a=of_gradients(name, keep, op): beside(j, steps, a, every(9))
        yield "%s-own-6" % name, deep, lambda j, a=of_own(name, op): beside(j, steps, a, every(6))
        yield "%s-conv-1" % name, conv(), lambda j, a=of_gradients(name, keep, op): beside(j, steps, a, every(1))
    yield "maximum-weights-7", conv(), lambda j: beside(j, steps, lambda j: j.reduce("maximum", [flat(j.parameters(r)) for r in range(RANKS)], torch.maximum), every(7))
    yield "maximum-only-gru", words, lambda j: max_only(j, steps)
    yield "fisher-conv-5", conv(), lambda j: beside(j, steps, of_gradients("squares", lambda g: g * g * 1000), every(5))
    yield "curvature-tanh-6", deep, lambda j: beside(j, steps, curvature, every(6))
    for n in 1, 2, 5, 20:
        yield "local-conv-%d" % n, conv(), lambda j, n=n: local(j, 40, n)
        yield "local-gru-%d" % n, lambda: Job(Recurrent, adam(5e-3), seed=17), lambda j, n=n: local(j, 40, n)
    yield "federated-20", lambda: Job(convolution, sgd(0.05, 0), apart=True, seed=18), lambda j: local(j, 40, 20)
    yield "slow-5", nesterov, lambda j: slow(j, 30, 5)
    yield "variates-5", deep, lambda j: variates(j, 60, 5)
    yield "diloco-gru-10", words, lambda j: diloco(j, 40, 10)


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
    for group, name, make, run in [(g.__name__, *job) for g in (tuning, measuring) for job in g()]:
        path = os.path.join(a.out, group, name)
        if a.job and name not in a.job or os.path.exists(path + ".npy") and os.path.exists(path + ".first"):
            continue
        os.makedirs(os.path.join(a.out, group), exist_ok=True)
        job = make()
        run(job)
        with open(path + ".txt", "w") as f:
            f.write("".join(n + "\n" for n in job.names))
        job.first.numpy().astype("<f4").tofile(path + ".first")
        np.save(path + ".part.npy", np.stack(job.sums).astype("<f4"))
        os.rename(path + ".part.npy", path + ".npy")
        print(path, len(job.names), "sums", file=sys.stderr)


main()
