"""PyTorch jobs over Gloo that know nothing of proxies, and sum other things than gradients: DistributedDataParallel of an
MLP on Fashion-MNIST, or local steps, with averages of weights, momentum, maxima and so on in between. Each such sum is
compared with what the ranks put in, which they tell each other by files: one bit that differs is counted.

One process a rank, with the variables of torch_job.py:
  RANK=0 WORLD_SIZE=2 ... python3 torch_sums.py --folder /tmp/sums --cases rare,each,random --collectives 10000

Cases run one after another, each in a process group of its own, again and again until there were as many collectives as
--collectives says. At the end one JSON line to stdout. Runs on torch 1.13.1 and 2.15.
"""
import quick  # before a framework

import argparse
import datetime
import gc
import itertools
import json
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn

import fashion
import letters


class Case:
    """A job. sums: pairs of what is summed and every how many steps; training: ddp, byhand (one all-reduce of all gradients,
    by the script) or local (none); model: mlp, lora (an MLP whose adapters learn) or lm (the next letter of a text); lossy: the step
    from which on DDP's gradients may lose something, None: they are not proved."""

    def __init__(self, sums, steps=30, training="ddp", optimizer="sgd", lr=0.05, loss="mean", lossy=2, hidden=64,
                 flat=True, model="mlp", random=0.0, only_after=0, hook=None, **ddp):
        self.sums, self.steps, self.training, self.optimizer, self.lr = sums, steps, training, optimizer, lr
        self.loss, self.lossy, self.hidden, self.flat, self.model = loss, lossy, hidden, flat, model
        self.random, self.only_after, self.hook, self.ddp = random, only_after, hook, ddp


MIXED = ["weights", "momentum", "max", "squares", "noise", "integers"]
CASES = {
    # Three schedules of one job.
    "rare": Case([("weights", 5), ("momentum", 10), ("max", 7)], steps=100),
    "each": Case([("weights", 1), ("momentum", 1), ("max", 1)], steps=100),
    "random": Case([(kind, 1) for kind in MIXED], steps=100, random=0.3),

    # Jobs in which a sum that is no gradient had lost something with sums: gradients.
    "ema-5": Case([("ema", 5)], loss="sum", lr=0.001),
    "ema-10": Case([("ema", 10)], loss="sum", lr=0.001, steps=50),
    "ema-unused": Case([("ema", 7)], loss="sum", lr=0.001, find_unused_parameters=True),
    "ema-mean": Case([("ema", 10)]),
    "average-10": Case([("weights", 10)], loss="sum", lr=0.001),
    "momentum": Case([("momentum", 10)], steps=50),
    "adam-momentum": Case([("momentum", 10), ("variance", 10)], steps=50, optimizer="adamw", lr=3e-3),
    "max": Case([("max", 10), ("min", 7), ("product", 9)]),
    "fisher": Case([("squares", 10)], steps=50),
    "parameters": Case([("weights", 5)], flat=False, loss="sum", lr=0.001),
    "buckets": Case([("weights", 5), ("noise", 3)], bucket_cap_mb=0.05, hidden=128),
    "then-averages": Case([("weights", 20)], steps=100, only_after=30),
    "static": Case([("weights", 5)], lossy=3, static_graph=True),
    "adamw-5": Case([("weights", 5)], training="local", optimizer="adamw", lr=3e-3, flat=False, steps=60),
    "adamw-50": Case([("weights", 50)], training="local", optimizer="adamw", lr=3e-3, flat=False, steps=300),
    "local-20": Case([("weights", 20), ("momentum", 20), ("variance", 20)], training="local", optimizer="adamw", lr=3e-3, steps=200),
    "sgd-20": Case([("weights", 20), ("momentum", 20)], training="local", flat=False, lr=0.1, steps=200),
    "lora": Case([("weights", 20)], training="local", optimizer="adamw", lr=1e-3, flat=False, model="lora", steps=200),
    "byhand": Case([("weights", 5)], training="byhand", steps=40),
    "diloco": Case([("steps", 5), ("weights", 20)], training="local", optimizer="adamw", lr=3e-3, steps=80),
    "hook": Case([("weights", 5)], lossy=None, hook="fp16"),

    # More such jobs, of which most lost something on an earlier word of the user.
    "ema-50": Case([("ema", 50)], loss="sum", lr=0.001, steps=150),
    "ema-unused-10": Case([("ema", 10)], loss="sum", lr=0.001, find_unused_parameters=True),
    "buckets-sum": Case([("weights", 5)], loss="sum", lr=0.001, bucket_cap_mb=0.05, hidden=128),
    "weights-1": Case([("weights", 1)], steps=20),
    "lm-ema-5": Case([("ema", 5)], model="lm", optimizer="adamw", lr=3e-3),
    "lm-weights-10": Case([("weights", 10)], model="lm", optimizer="adamw", lr=3e-3),
    "lm-momentum": Case([("momentum", 10), ("variance", 10)], model="lm", optimizer="adamw", lr=3e-3, steps=50),
    "integers": Case([("integers", 10), ("confusion", 10), ("scalar", 3)], steps=40),
    "lm-local-5": Case([("weights", 5)], training="local", model="lm", optimizer="adamw", lr=3e-3, flat=False, steps=100),
    "lm-local-50": Case([("weights", 50)], training="local", model="lm", optimizer="adamw", lr=3e-3, flat=False, steps=500),
    "lm-flat-20": Case([("weights", 20)], training="local", model="lm", optimizer="adamw", lr=1e-3, steps=240),
    "adam-20": Case([("weights", 20), ("variance", 20)], training="local", optimizer="adam", lr=1e-3, flat=False, steps=240),
    "then-averages-fast": Case([("weights", 20)], steps=100, only_after=30, lr=0.2),
    "activations": Case([("activations", 1)], training="byhand", hidden=128),
    "preactivations": Case([("preactivations", 1)], training="byhand", hidden=128),
}


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--folder", required=True, help="where the ranks tell each other what they put in")
    p.add_argument("--cases", default=",".join(CASES), help="of " + ", ".join(CASES))
    p.add_argument("--collectives", type=int, default=0, help="all-reduces in all, at least; 0: each case once")
    p.add_argument("--batch", type=int, default=16, help="images a rank and step")
    p.add_argument("--steps", type=int, help="of each case, instead of its own number")
    p.add_argument("--pause", type=float, default=0.5, help="seconds between the making of a process group and its first step, as jobs need to load their data")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--timeout", type=float, default=300, help="seconds after which a collective fails")
    return p.parse_args()


class Sums:
    """All-reduces that are checked."""

    def __init__(self, folder):
        self.folder, self.count, self.inexact, self.worst = folder, 0, {}, 0.0
        self.kinds = {}  # of each case and kind: sums, inexact ones, error of the worst
        self.rank, self.world, self.group = dist.get_rank(), dist.get_world_size(), None

    def file(self, k, rank):
        return os.path.join(self.folder, "%d.%d" % (k, rank))

    def reduce(self, case, kind, tensor, op=dist.ReduceOp.SUM, group=None):
        """Sums tensor over the ranks of the group, and compares the result with the ranks' inputs."""
        k = self.give(tensor.numpy())
        dist.all_reduce(tensor, op=op, group=group or self.group)
        self.check(k, case, kind, tensor.numpy(), op)
        return tensor

    def compare(self, case, kind, given, got):
        """Compares the result of a sum that is over with the ranks' inputs."""
        k = self.give(given)
        dist.barrier(group=self.group)
        self.check(k, case, kind, got, dist.ReduceOp.SUM)

    def give(self, given):
        """Tells the other ranks what this one puts into sum k, and returns k."""
        k, self.count = self.count, self.count + 1
        given.tofile(self.file(k, self.rank))
        if k >= 2:  # all ranks have returned from the one before the last
            os.remove(self.file(k - 2, self.rank))
        return k

    def check(self, k, case, kind, got, op):
        inputs = [np.fromfile(self.file(k, r), got.dtype) for r in range(self.world)]
        add = {dist.ReduceOp.SUM: np.add, dist.ReduceOp.MAX: np.maximum, dist.ReduceOp.MIN: np.minimum, dist.ReduceOp.PRODUCT: np.multiply}[op]
        wanted = []
        for order in itertools.permutations(range(self.world)):  # a ring begins at another rank for each part
            want = inputs[order[0]]
            for r in order[1:]:
                want = add(want, inputs[r])
            wanted.append(want)
        wrong = ~np.any([(got == want) | (got != got) & (want != want) for want in wanted], axis=0)  # or both are not a number
        name = case + "/" + kind
        seen = self.kinds.setdefault(name, {"sums": 0, "inexact": 0, "worst": 0.0})
        seen["sums"] += 1
        if wrong.any():
            error = float(np.linalg.norm((got - wanted[0]).astype(np.float64)) / (np.linalg.norm(wanted[0].astype(np.float64)) or 1))
            self.inexact[name] = self.inexact.get(name, 0) + 1
            self.worst = max(self.worst, error)
            seen["inexact"], seen["worst"] = seen["inexact"] + 1, max(seen["worst"], error)


class Lora(nn.Module):
    """A layer that learns by two adapters only."""

    def __init__(self, before, after, rank=16):
        super().__init__()
        self.fixed = nn.Linear(before, after)
        self.fixed.requires_grad_(False)
        self.down, self.up = nn.Linear(before, rank, bias=False), nn.Linear(rank, after, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.fixed(x) + self.up(self.down(x))


def flat(tensors):
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def optimizer(c, parameters):
    if c.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=c.lr)
    if c.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=c.lr)
    return torch.optim.SGD(parameters, lr=c.lr, momentum=0.9)


def state(opt, parameters, *names):
    """What the optimizer keeps of each parameter, by the first of names that it has."""
    kept = [opt.state[p] for p in parameters]
    return [next((s[n] for n in names if s.get(n) is not None), torch.zeros_like(p)) for s, p in zip(kept, parameters)]


class Job:
    """A case under way."""

    def __init__(self, a, name, sums, data, seed):
        self.c, self.name, self.sums = CASES[name], name, sums
        c, rank, world = self.c, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(seed)
        if c.model == "lm":
            net = letters.Attention(c.hidden)
        elif c.model == "lora":
            net = nn.Sequential(Lora(fashion.PIXELS, 256), nn.ReLU(), nn.Linear(256, fashion.CLASSES))
        else:
            net = nn.Sequential(nn.Linear(fashion.PIXELS, c.hidden), nn.ReLU(), nn.Linear(c.hidden, c.hidden), nn.ReLU(), nn.Linear(c.hidden, fashion.CLASSES))
        self.net = self.model = net
        self.parameters = [p for p in net.parameters() if p.requires_grad]
        if c.training == "ddp":
            self.model = nn.parallel.DistributedDataParallel(net, process_group=sums.group, **c.ddp)
            if c.hook:
                from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
                self.model.register_comm_hook(sums.group, getattr(default_hooks, c.hook + "_compress_hook"))
        self.opt = optimizer(c, self.parameters)
        self.ema = [p.detach().clone() for p in self.parameters]
        self.before = [p.detach().clone() for p in self.parameters]
        self.random, self.shared = np.random.default_rng([seed, rank]), np.random.default_rng(seed)
        if c.model == "lm":
            draws = torch.Generator().manual_seed(seed * world + rank)
            self.draw = lambda: letters.batch(a.batch, draws)
        else:
            batches = fashion.Batches(*data, rank, world, a.batch, seed)
            self.draw = lambda: map(torch.from_numpy, batches.draw())
        self.gradients = 0  # all-reduces of DDP

    def tensors(self, kind):
        if kind == "weights":
            return self.parameters
        if kind == "ema":
            return self.ema
        if kind == "momentum":
            return state(self.opt, self.parameters, "momentum_buffer", "exp_avg")
        if kind == "variance":
            return state(self.opt, self.parameters, "exp_avg_sq")
        if kind == "steps":  # DiLoCo's pseudo-gradients
            return [b - p.detach() for b, p in zip(self.before, self.parameters)]
        if kind == "squares":
            return [p.grad.square() for p in self.parameters]
        if kind in ("max", "min", "product"):
            return [p.grad.abs() for p in self.parameters]
        if kind == "noise":  # as like gradients as can be
            scale = float(flat([p.grad for p in self.parameters]).std())
            return [torch.from_numpy(self.random.standard_normal(p.shape, np.float32)) * scale for p in self.parameters]
        if kind == "integers":
            return [torch.from_numpy(self.random.integers(0, 100, tuple(p.shape))) for p in self.parameters]
        if kind in ("activations", "preactivations"):
            with torch.no_grad():
                return [self.net[:2 if kind == "activations" else 1](self.inputs)]
        if kind == "confusion":
            return [torch.from_numpy(self.random.integers(0, 100, fashion.CLASSES ** 2).astype(np.float32))]
        if kind == "scalar":
            return [torch.tensor([self.random.random()])]
        return [p.grad for p in self.parameters]

    def reduce(self, kind):
        op = {"max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN, "product": dist.ReduceOp.PRODUCT}.get(kind, dist.ReduceOp.SUM)
        tensors = self.tensors(kind)
        given = [flat(tensors)] if self.c.flat else [t.detach().reshape(-1).clone() for t in tensors]
        means = [self.sums.reduce(self.name, kind, t, op) / self.sums.world for t in given]
        if kind in ("gradients", "weights", "momentum", "variance"):
            with torch.no_grad():
                for t, mean in zip(tensors, torch.cat(means).split([t.numel() for t in tensors])):
                    t.copy_(mean.view_as(t))
        self.before = [p.detach().clone() for p in self.parameters]

    def step(self, step):
        c = self.c
        self.inputs, labels = self.draw()
        self.opt.zero_grad()
        nn.functional.cross_entropy(self.model(self.inputs).flatten(0, -2), labels, reduction=c.loss).backward()
        self.gradients += c.training == "ddp"
        if c.training == "byhand":
            self.reduce("gradients")
        self.opt.step()
        for e, p in zip(self.ema, self.parameters):
            e.mul_(0.9).add_(p.detach(), alpha=0.1)
        if step < c.only_after:
            return
        for kind, every in c.sums:
            due = self.shared.random() < c.random if c.random else (step + 1) % every == 0
            if due:
                self.reduce(kind)


def main():
    a = arguments()
    torch.set_num_threads(1)
    quick.joins()
    began = time.perf_counter()
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=a.timeout))
    quick.begins()
    data = fashion.load("train")
    sums = Sums(a.folder)
    gradients = lossy_bytes = spare_bytes = 0
    for n in itertools.count():
        for name in a.cases.split(","):
            sums.group = dist.new_group()
            dist.barrier(group=sums.group)  # connects, if it has not
            time.sleep(a.pause)
            job = Job(a, name, sums, data, a.seed + n)
            steps = a.steps or job.c.steps
            for step in range(steps):
                job.step(step)
            size = sum(p.numel() * p.element_size() for p in job.parameters)
            if job.c.training == "ddp" and job.c.lossy is not None:
                lossy_bytes += size * (sums.world - 1) * max(0, steps - job.c.lossy)
                spare_bytes += size * (sums.world - 1) * (job.c.lossy - 2)  # new buckets may lie where the old ones lay
            gradients += job.gradients
            dist.barrier(group=sums.group)
            print("%s: %d sums so far, inexact: %s" % (name, sums.count, sums.inexact), file=sys.stderr, flush=True)
            del job.model, job
            gc.collect()  # a model and its hooks refer to each other
            dist.destroy_process_group(sums.group)
        if sums.count + gradients >= a.collectives:
            break
    print(json.dumps({
        "job": "torch", "version": torch.__version__, "rank": dist.get_rank(), "world": dist.get_world_size(),
        "collectives": sums.count + gradients, "sums": sums.count, "inexact": sums.inexact, "worst": sums.worst,
        "kinds": sums.kinds, "lossy_bytes": lossy_bytes, "spare_bytes": spare_bytes, "seconds": time.perf_counter() - began,
    }), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    quick.ends()


if __name__ == "__main__":
    main()
