"""PyTorch jobs over Gloo that know nothing of proxies, and use DistributedDataParallel in ways that the plain loop of torch_job.py does
not: one small MLP on Fashion-MNIST each. Between its steps each sums something else, which is compared with the ranks' inputs as in torch_sums.py.

One process a rank, with the variables of torch_job.py:
  RANK=0 WORLD_SIZE=2 ... python3 torch_variants.py --folder /tmp/sums --variants zero,powersgd,join

Variants run one after another, each in process groups of its own. With --fork the process that trains is a child of the one that was started, which
has loaded the framework. The variant restart writes a checkpoint after half of its steps, ends all groups and executes the program anew in its place.
At the end one JSON line to stdout. Two runs with the same arguments and the same torch end with the same hashes. Runs on torch 1.13.1 and 2.15.
"""
import quick  # before a framework

import argparse
import contextlib
import ctypes
import datetime
import gc
import hashlib
import json
import os
import sys
import threading
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn

import fashion
from torch_sums import Sums, flat

SIDE = fashion.SIDE // 2  # of the images that the variants see
PIXELS = SIDE * SIDE


def rows(images):
    """The rows of pixels of images of half the size."""
    return torch.from_numpy(images).view(-1, 1, fashion.SIDE, fashion.SIDE)[:, :, ::2, ::2].reshape(-1, PIXELS)


class Plain:
    """Buckets are made anew after the first step. lossy: the step from which on gradients may lose something."""

    steps, lossy, hidden, ddp = 8, 2, 96, {"bucket_cap_mb": 0.02}  # several buckets on 2.15

    def __init__(self, a, name, sums, data):
        self.a, self.name, self.sums, self.done = a, name, sums, 0
        torch.manual_seed(a.seed)
        self.net = self.make()
        self.model = self.distribute(self.net)
        self.opt = self.optimizer()
        self.batches = fashion.Batches(*data, sums.rank, sums.world, a.batch, a.seed)

    def make(self):
        return nn.Sequential(nn.Linear(PIXELS, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.hidden), nn.ReLU(), nn.Linear(self.hidden, fashion.CLASSES))

    def distribute(self, net, group=None):
        return nn.parallel.DistributedDataParallel(net, process_group=group or self.sums.group, **self.ddp)

    def optimizer(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)

    def draw(self):
        images, labels = self.batches.draw()
        return rows(images), torch.from_numpy(labels)

    def backward(self, model):
        images, labels = self.draw()
        nn.functional.cross_entropy(model(images).float(), labels).backward()

    def weights(self, net=None, group=None):
        """Sums the weights, which are as many as the gradients."""
        self.sums.reduce(self.name, "weights", flat((net or self.net).parameters()).float(), group=group)

    def step(self):
        self.opt.zero_grad()
        self.backward(self.model)
        self.opt.step()
        if self.done % 3 == 2:
            self.weights()
        self.done += 1

    def train(self):
        while self.done < self.steps:
            self.step()

    def nets(self):
        return [self.net]

    def size(self):
        return sum(p.numel() * p.element_size() for p in self.net.parameters())

    def bytes(self):
        """Of gradients that lose something, and that may besides, in one phase of the rings, over all ranks."""
        return self.size() * (self.sums.world - 1) * max(0, self.steps - self.lossy), 0


class Zero(Plain):
    """Each rank updates a part of the weights, and sends it to the others."""

    def optimizer(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(self.net.parameters(), torch.optim.SGD, process_group=self.sums.group, lr=0.05, momentum=0.9)


class PowerSGD(Plain):
    """A hook sums the buckets themselves for some steps, and then products of them in memory of its own."""

    begin, ddp = 5, {}  # one bucket, so that the hook's sums have an order

    def distribute(self, net, group=None):
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
        model = super().distribute(net, group)
        model.register_comm_hook(power.PowerSGDState(self.sums.group, matrix_approximation_rank=8, start_powerSGD_iter=self.begin), power.powerSGD_hook)
        return model

    def backward(self, model):
        call, kept = dist.all_reduce, []

        def watched(tensor, *args, **kwargs):
            given = tensor.clone()
            work = call(tensor, *args, **kwargs)
            work.wait()
            kept.append((given, tensor.clone()))  # before the hook goes on with it
            return work

        dist.all_reduce = watched
        try:
            super().backward(model)
        finally:
            dist.all_reduce = call
        if self.done < self.begin:
            return
        given, got = (flat(tensors).numpy() for tensors in zip(*kept))
        self.sums.compare(self.name, "products", given, got)

    def bytes(self):
        return self.size() * (self.sums.world - 1) * (self.begin - self.lossy), 0


class PostLocal(Plain):
    """A hook sums the buckets for some steps, and then nothing. At the end the weights are summed, when the buckets are freed."""

    begin, ddp = 5, {}

    def distribute(self, net, group=None):
        from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post
        model = super().distribute(net, group)
        state = post.PostLocalSGDState(self.sums.group, self.sums.group, self.begin, post_local_gradient_allreduce=False)
        model.register_comm_hook(state, post.post_localSGD_hook)
        return model

    def train(self):
        while self.done < self.steps:
            self.opt.zero_grad()
            self.backward(self.model)
            self.opt.step()
            self.done += 1
        del self.model
        gc.collect()
        self.weights()

    def bytes(self):
        return self.size() * (self.sums.world - 1) * (self.begin - self.lossy), 0


class Groups(Plain):
    """Two models, each in a process group of its own. Their sums have the same tags. The second group also sums the first model's weights."""

    other = 80  # width of the second model

    def __init__(self, a, name, sums, data):
        super().__init__(a, name, sums, data)
        self.group = dist.new_group()
        dist.barrier(group=self.group)
        time.sleep(a.pause)
        self.hidden, own = self.other, self.hidden
        self.second = self.make()
        self.hidden = own
        self.second_model = self.distribute(self.second, self.group)
        self.second_opt = torch.optim.SGD(self.second.parameters(), lr=0.05, momentum=0.9)

    def step(self):
        super().step()
        self.second_opt.zero_grad()
        self.backward(self.second_model)
        self.second_opt.step()
        if self.done % 2:
            self.weights(self.net, self.group)

    def train(self):
        super().train()
        del self.second_model
        gc.collect()
        dist.destroy_process_group(self.group)

    def nets(self):
        return [self.net, self.second]

    def bytes(self):
        both = sum(p.numel() * p.element_size() for net in self.nets() for p in net.parameters())
        return both * (self.sums.world - 1) * (self.steps - self.lossy), 0


class Alike(Groups):
    """The same of two equal models in one bucket each, of as many elements as the weights: the lengths on the wire do not tell the groups' sums apart."""

    ddp = {}
    other = Plain.hidden

    def bytes(self):
        return 0, super().bytes()[0]


class Accumulate(Plain):
    """Two of three backward passes sum nothing. The gradients lie in the buckets' memory."""

    ddp = {"bucket_cap_mb": 0.02, "gradient_as_bucket_view": True}

    def backward(self, model):
        for k in range(3):
            with model.no_sync() if k < 2 else contextlib.nullcontext():
                super().backward(model)


class Branches(nn.Module):
    """Layers of which one forward uses half, and each rank others."""

    def __init__(self, rank, hidden):
        super().__init__()
        self.trunk = nn.Linear(PIXELS, hidden)
        self.branches = nn.ModuleList(nn.Linear(hidden, fashion.CLASSES) for _ in range(4))
        self.random = np.random.default_rng(rank)

    def forward(self, x):
        x = self.trunk(x).relu()
        return sum(self.branches[i](x) for i in self.random.permutation(len(self.branches))[:2])


class Unused(Plain):
    """DDP looks for parameters without gradients, and sums a map of these."""

    ddp = {"bucket_cap_mb": 0.02, "find_unused_parameters": True}

    def make(self):
        return Branches(self.sums.rank, self.hidden)


class Normalize(torch.autograd.Function):
    """Normalizes over the batches of all ranks, as SyncBatchNorm does, which PyTorch has not on processors. Both passes sum."""

    @staticmethod
    def forward(ctx, x, sums, name):
        n = len(x) * sums.world
        mean, square = (sums.reduce(name, "statistics", torch.cat([x.sum(0), x.square().sum(0)])) / n).chunk(2)
        scale = (square - mean * mean + 1e-5).rsqrt()
        y = (x - mean) * scale
        ctx.save_for_backward(y, scale)
        ctx.n, ctx.sums, ctx.name = n, sums, name
        return y

    @staticmethod
    def backward(ctx, g):
        y, scale = ctx.saved_tensors
        mean, along = (ctx.sums.reduce(ctx.name, "statistics", torch.cat([g.sum(0), (g * y).sum(0)])) / ctx.n).chunk(2)
        return (g - mean - y * along) * scale, None, None


class Norm(nn.Module):
    def __init__(self, sums, name):
        super().__init__()
        self.sums, self.name = sums, name

    def forward(self, x):
        return Normalize.apply(x, self.sums, self.name)


class Normalized(Plain):
    """Sums of statistics come between DDP's sums, in the midst of the backward pass."""

    hidden = 640

    def make(self):
        return nn.Sequential(nn.Linear(PIXELS, self.hidden), Norm(self.sums, self.name), nn.ReLU(), nn.Linear(self.hidden, fashion.CLASSES))


class Half(Plain):
    """Weights and gradients of bfloat16."""

    def make(self):
        return super().make().bfloat16()

    def draw(self):
        images, labels = super().draw()
        return images.bfloat16(), labels


class WithEmpty(nn.Module):
    """A net beside a parameter without elements, whose type gives it a bucket of its own. Its sum sends nothing."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.empty = nn.Parameter(torch.empty(0, dtype=torch.float64))

    def forward(self, x):
        return self.net(x) + self.empty.sum().float()


class Empty(Plain):
    def make(self):
        return WithEmpty(super().make())


class Uneven(Plain):
    """The last rank has fewer batches. In the steps that it lacks DDP's join has it sum zeros, in memory that is no bucket's."""

    lacks = 3

    def train(self):
        with self.model.join():
            for _ in range(self.steps - self.lacks * (self.sums.rank == self.sums.world - 1)):
                self.opt.zero_grad()
                self.backward(self.model)
                self.opt.step()
        self.weights()

    def bytes(self):
        own = self.size() * (self.sums.world - 1) // self.sums.world  # of one rank
        slack = 64 * self.lacks  # the ring's parts of a sum differ by some elements
        return own * (self.sums.world * (self.steps - self.lossy) - self.lacks) - slack, 2 * slack


class Images(torch.utils.data.Dataset):
    """The batches of a rank."""

    def __init__(self, batches, steps):
        self.drawn = [batches.draw() for _ in range(steps)]

    def __len__(self):
        return len(self.drawn)

    def __getitem__(self, i):
        images, labels = self.drawn[i]
        return rows(images), torch.from_numpy(labels)


class Workers(Plain):
    """Batches come from processes that are forked once the ranks are connected, and inherit their connections."""

    def train(self):
        loader = iter(torch.utils.data.DataLoader(Images(self.batches, self.steps), batch_size=None, num_workers=2, multiprocessing_context="fork"))
        self.draw = lambda: next(loader)
        super().train()


class Restart(Plain):
    """A checkpoint after half of the steps, and the rest by the program that is executed anew."""

    def train(self):
        while self.done < self.steps // 2:
            self.step()

    def save(self, path):
        torch.save({"net": self.net.state_dict(), "opt": self.opt.state_dict(), "done": self.done}, path)

    def resume(self, path):
        saved = torch.load(path)
        self.net.load_state_dict(saved["net"])
        self.opt.load_state_dict(saved["opt"])
        for _ in range(saved["done"]):
            self.draw()
        self.done = saved["done"]
        self.train = super().train

    def bytes(self):
        return self.size() * (self.sums.world - 1) * (self.steps // 2 - self.lossy), 0  # of each half


class Threads(Plain):
    """In each second step another thread sums noise, of a bucket's size, and waits for its tag until the second bucket's sum has begun (tag_order.c, which must be
    loaded). The noise gets the tag that this sum was about to get. What the first two buckets of such a step sum is not proved."""

    steps = 40

    def make(self):
        wide = [layer for _ in range(3) for layer in (nn.Linear(self.hidden, self.hidden, bias=False), nn.ReLU())]  # each a bucket but for the last, which is with the output
        return nn.Sequential(nn.Linear(PIXELS, self.hidden, bias=False), nn.ReLU(), *wide, nn.Linear(self.hidden, fashion.CLASSES, bias=False))

    def overlaps(self, step):
        return step >= 3 and step % 2 == 1

    def backward(self, model):
        if not self.overlaps(self.done):
            return super().backward(model)
        order = ctypes.CDLL(None)  # the library that was loaded first
        noise = torch.from_numpy(np.random.default_rng((self.done, self.sums.rank)).standard_normal(self.hidden ** 2, np.float32))

        def other():
            order.tag_waits(1)
            self.sums.reduce(self.name, "noise", noise)

        thread = threading.Thread(target=other)
        thread.start()
        order.tag_waiting()
        super().backward(model)
        thread.join()

    def bytes(self):
        overlapped = sum(map(self.overlaps, range(self.steps)))
        return (self.size() * (self.steps - self.lossy) - 4 * self.hidden * (2 * self.hidden + fashion.CLASSES) * overlapped) * (self.sums.world - 1), 0


VARIANTS = {
    "plain": Plain, "zero": Zero, "powersgd": PowerSGD, "postlocal": PostLocal, "groups": Groups, "alike": Alike, "accumulate": Accumulate, "unused": Unused,
    "normalized": Normalized, "half": Half, "empty": Empty, "uneven": Uneven, "workers": Workers, "restart": Restart, "threads": Threads,
}


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--folder", required=True, help="where the ranks tell each other what they put in, and keep checkpoints")
    p.add_argument("--variants", default=",".join(VARIANTS), help="of " + ", ".join(VARIANTS))
    p.add_argument("--batch", type=int, default=8, help="images a rank and step")
    p.add_argument("--pause", type=float, default=0, help="seconds between the making of a process group and its first step, as jobs need to load their data")
    p.add_argument("--fork", action="store_true", help="a child trains")
    p.add_argument("--resume", metavar="FILE", help="the totals of the program that was executed before this one")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--timeout", type=float, default=300, help="seconds after which a collective fails")
    return p.parse_args()


def fork():
    """Returns in a child. The parent ends as the child does."""
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xff)


def execute(a, sums, job, totals, names):
    """Executes this program anew, for the variants that are left, the first of them half done."""
    file = os.path.join(a.folder, "%d.totals" % sums.rank)
    job.save(file + ".checkpoint")
    totals.update(count=sums.count, inexact=sums.inexact, worst=sums.worst)
    with open(file, "w") as f:
        json.dump(totals, f)
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    arguments = [x for x in sys.argv if x != "--fork"] + ["--variants", ",".join(names), "--resume", file]
    os.execv(sys.executable, [sys.executable] + arguments)


def main():
    a = arguments()
    torch.set_num_threads(1)
    quick.joins()
    if a.fork:
        fork()
    began = time.perf_counter()
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=a.timeout))
    quick.begins()
    data = tuple(part[:4096] for part in fashion.load("t10k"))
    sums = Sums(a.folder)
    totals = {"lossy": 0, "spare": 0, "weights": ""}
    if a.resume:
        with open(a.resume) as f:
            totals = json.load(f)
        sums.count, sums.inexact, sums.worst = totals["count"], totals["inexact"], totals["worst"]
    names = a.variants.split(",")
    for n, name in enumerate(names):
        sums.group = dist.new_group()
        dist.barrier(group=sums.group)  # connects, if it has not
        time.sleep(a.pause)
        job = VARIANTS[name](a, name, sums, data)
        if a.resume and n == 0:
            job.resume(a.resume + ".checkpoint")
        job.train()
        lossy, spare = job.bytes()
        totals["lossy"] += lossy
        totals["spare"] += spare
        if job.done < job.steps and name == "restart":
            dist.barrier(group=sums.group)
            execute(a, sums, job, totals, names[n:])
        weights = b"".join(flat(net.parameters()).float().numpy().tobytes() for net in job.nets())
        totals["weights"] = hashlib.sha256(totals["weights"].encode() + weights).hexdigest()
        dist.barrier(group=sums.group)
        print("%s: %d sums so far, inexact: %s, weights %.8s" % (name, sums.count, sums.inexact, totals["weights"]), file=sys.stderr, flush=True)
        del job
        gc.collect()  # a model and its hooks refer to each other
        dist.destroy_process_group(sums.group)
    print(json.dumps({
        "job": "torch", "version": torch.__version__, "rank": dist.get_rank(), "world": dist.get_world_size(),
        "collectives": sums.count, "sums": sums.count, "inexact": sums.inexact, "worst": sums.worst, "weights_sha256": totals["weights"],
        "lossy_bytes": totals["lossy"], "spare_bytes": totals["spare"], "seconds": time.perf_counter() - began,
    }), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    quick.ends()


main()
