"""PyTorch jobs of torchft, fault-tolerant training by replicas, that know nothing of proxies: an MLP on Fashion-MNIST. The replicas sum over a process
group that is made anew at each quorum. All sums but gradients of DistributedDataParallel are compared with the replicas' inputs, as in torch_sums.py.

One process a replica, with the variables of torch_job.py; replica 0 also runs the lighthouses, from MASTER_PORT on:
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=lo python3 torchft_job.py --folder /tmp/sums --modes ddp,localsgd

Modes run one after another, each in a process group of its own
  ddp        torchft's DistributedDataParallel; every third step the weights are averaged as well
  localsgd   the weights are averaged every --local-steps steps
  diloco     the change of the weights is, for an outer optimizer

--quorums steps of each mode end with an error in each replica, so that the step is discarded and the next quorum makes a new process group. At the end
one JSON line to stdout. Two runs with the same arguments end with the same hashes.
"""
import quick  # before a framework

import argparse
import fcntl
import hashlib
import json
import os
import socket
import struct
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torchft
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo, LocalSGD

import fashion
from torch_sums import flat

SIDE = fashion.SIDE // 2  # of the images that the replicas see
PIXELS = SIDE * SIDE


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--folder", required=True, help="where the replicas tell each other what they put in")
    p.add_argument("--modes", default="ddp,localsgd,diloco")
    p.add_argument("--steps", type=int, default=12, help="that are tried, of each mode; of the modes other than ddp averages")
    p.add_argument("--quorums", type=int, default=1, help="of these steps end with an error, at even distances")
    p.add_argument("--local-steps", type=int, default=5)
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--batch", type=int, default=16, help="images a replica and step")
    p.add_argument("--pause", type=float, default=0.5, help="seconds between the making of a process group and its first sum of gradients, as jobs need to load their data")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--timeout", type=float, default=60, help="seconds after which a collective fails")
    return p.parse_args()


def own_address():
    """The IPv4 address of the interface that Gloo uses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        name = struct.pack("256s", os.environ["GLOO_SOCKET_IFNAME"].encode())
        return socket.inet_ntoa(fcntl.ioctl(s.fileno(), 0x8915, name)[20:24])  # SIOCGIFADDR


class Group(torchft.ProcessGroupGloo):
    """Keeps what goes into sums that are no gradients, and what comes out. Each new group waits for its first sum."""

    def __init__(self, timeout, pause):
        super().__init__(timeout=timeout)
        self.pause, self.gradients, self.kept, self.made, self.calls = pause, False, [], 0, 0
        self.fails = False  # the step under way ends with an error

    def configure(self, *args, **kwargs):
        super().configure(*args, **kwargs)
        self.made, self.fails = self.made + 1, False
        time.sleep(self.pause)

    def errored(self):
        return RuntimeError("on demand") if self.fails else super().errored()

    def allreduce(self, tensors, opts):
        self.calls += 1
        if not self.gradients:
            self.kept += [(t.clone(), t) for t in tensors]
        return super().allreduce(tensors, opts)


class Sums:
    """Compares averages with the replicas' inputs."""

    def __init__(self, folder, rank, world):
        self.folder, self.rank, self.world = folder, rank, world
        self.count, self.inexact, self.worst = 0, {}, 0.0

    def check(self, mode, kept):
        """kept: inputs and averages. The sum of two numbers has one value, whoever adds them, and half of it is exact."""
        for given, got in kept:
            k, self.count = self.count, self.count + 1
            own = os.path.join(self.folder, "%d.%d" % (k, self.rank))
            torch.save(given, own + ".part")
            os.rename(own + ".part", own)
            inputs = [self.input(k, r) for r in range(self.world)]
            wrong = got - sum(inputs[1:], inputs[0]) / self.world
            if wrong.any():
                self.inexact[mode] = self.inexact.get(mode, 0) + 1
                self.worst = max(self.worst, float(wrong.norm() / got.norm()))
        kept.clear()

    def input(self, k, r):
        file = os.path.join(self.folder, "%d.%d" % (k, r))
        while not os.path.exists(file):
            time.sleep(0.0005)
        return torch.load(file)


class Mode:
    """A training under way."""

    def __init__(self, a, name, rank, world, data, lighthouse):
        self.a, self.name = a, name
        torch.manual_seed(a.seed)
        self.net = nn.Sequential(nn.Linear(PIXELS, a.hidden), nn.ReLU(), nn.Linear(a.hidden, a.hidden), nn.ReLU(), nn.Linear(a.hidden, fashion.CLASSES))
        self.batches = fashion.Batches(*data, rank, world, a.batch, a.seed)
        self.group = Group(timedelta(seconds=a.timeout), a.pause)
        own = own_address()
        self.store = dist.TCPStore(own, 0, is_master=True, wait_for_workers=False)
        self.manager = torchft.Manager(
            pg=self.group, min_replica_size=world, rank=0, world_size=1, store_addr=own, store_port=self.store.port, hostname=own,
            lighthouse_addr=lighthouse, replica_id="%s_%d" % (name, rank), timeout=timedelta(seconds=a.timeout),
            use_async_quorum=False, init_sync=False, state_dict=self.net.state_dict, load_state_dict=self.net.load_state_dict)
        opt = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        if name == "ddp":
            self.model, self.opt = torchft.DistributedDataParallel(self.manager, self.net), torchft.Optimizer(self.manager, opt)
        else:
            self.model, self.opt = self.net, opt
        self.lossy = 0  # values of each gradient that must lose something

    def batch(self):
        images, labels = self.batches.draw()
        images = torch.from_numpy(images).view(-1, 1, fashion.SIDE, fashion.SIDE)[:, :, ::2, ::2].reshape(-1, PIXELS)
        return images, torch.from_numpy(labels)

    def backward(self):
        images, labels = self.batch()
        nn.functional.cross_entropy(self.model(images), labels).backward()

    def fails(self, step):
        """Whether a step ends with an error."""
        n = self.a.quorums
        return any(step == (k + 1) * self.a.steps // (n + 1) for k in range(n))

    def train(self, sums):
        if self.name == "ddp":
            return self.train_ddp(sums)
        with self.outer():
            for step in range(self.a.steps):
                for local in range(self.a.local_steps):
                    self.opt.zero_grad()
                    self.backward()
                    self.group.fails = self.fails(step)
                    self.opt.step()
                sums.check(self.name, self.group.kept)

    def outer(self):
        if self.name == "localsgd":
            return LocalSGD(self.manager, self.net, self.opt, self.a.local_steps)
        return DiLoCo(self.manager, [self.net], self.opt, torch.optim.SGD(self.net.parameters(), lr=0.7, momentum=0.9, nesterov=True), self.a.local_steps)

    def train_ddp(self, sums):
        values = 0  # of each gradient over this process group
        for step in range(self.a.steps):
            made = self.group.made
            self.opt.zero_grad()  # and a quorum
            values = values + 1 if self.group.made == made else 1
            self.lossy += values > 2
            self.group.gradients = True
            self.backward()
            self.group.gradients = False
            if step % 3 == 2:
                self.manager.allreduce(flat(self.net.parameters())).wait()
                sums.check(self.name, self.group.kept)
            self.group.fails = self.fails(step)
            self.opt.step()

    def end(self, lighthouse):
        self.manager.shutdown()
        self.group.shutdown()
        if lighthouse:
            lighthouse.shutdown()


def main():
    a = arguments()
    torch.set_num_threads(1)
    quick.joins()
    began = time.perf_counter()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port = int(os.environ["MASTER_PORT"])
    data = tuple(part[:4096] for part in fashion.load("t10k"))
    sums = Sums(a.folder, rank, world)
    lossy, weights, calls = 0, "", 0
    for n, name in enumerate(a.modes.split(",")):
        # One of its own: a lighthouse waits for earlier replicas for as long as their heartbeats may be late.
        lighthouse = LighthouseServer(bind="[::]:%d" % (port + n), min_replicas=world, join_timeout_ms=10_000) if rank == 0 else None
        mode = Mode(a, name, rank, world, data, "http://%s:%d" % (os.environ["MASTER_ADDR"], port + n))
        mode.train(sums)
        lossy += 4 * sum(p.numel() for p in mode.net.parameters()) * mode.lossy * (world - 1)
        weights = hashlib.sha256(weights.encode() + flat(mode.net.parameters()).numpy().tobytes()).hexdigest()
        calls += mode.group.calls
        print("%s: %d groups, %d sums so far, inexact: %s, weights %.8s" % (name, mode.group.made, sums.count, sums.inexact, weights), file=sys.stderr, flush=True)
        mode.end(lighthouse)
    print(json.dumps({
        "job": "torchft", "version": torch.__version__, "rank": rank, "world": world, "collectives": calls, "sums": sums.count, "inexact": sums.inexact,
        "worst": sums.worst, "weights_sha256": weights, "lossy_bytes": lossy, "seconds": time.perf_counter() - began,
    }), flush=True)
    quick.ends()


main()
