"""A PyTorch job over Gloo that knows nothing of proxies: an MLP on Fashion-MNIST, or with --model one of torch_models.py, the same every time.

One process a rank:
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=lo python3 torch_job.py --steps 50

Modes
  ddp        DistributedDataParallel
  fsdp       fully_shard on CPU (torch >= 2.6)
  localsgd   each rank steps alone; every --local-steps steps the weights are averaged
  byhand     one all-reduce of all gradients end to end, without DDP
  postlocal  torch's own post-local SGD: DDP for --warmup steps, then the weights are averaged every --local-steps
  allreduce  no training: --rounds all-reduces of --mib MiB, timed

Writes "step K" to stderr after step K, and at the end one JSON line to stdout. Two runs with the same arguments
and the same torch end with the same hashes. Exit code 77: this torch cannot do it, and the line says why.
Runs on torch 1.13.1 and 2.15.
"""
import quick  # before a framework

import argparse
import datetime
import hashlib
import json
import os
import statistics
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn

import clock
import fashion
import record
import torch_models


class Unsupported(Exception):
    """This torch cannot run the mode that was asked for."""


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=["ddp", "fsdp", "byhand", "localsgd", "postlocal", "allreduce"], default="ddp")
    p.add_argument("--model", choices=sorted(torch_models.MODELS), help="instead of the MLP; modes ddp and byhand")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--hidden", default="1024,512", help="widths of the hidden layers")
    p.add_argument("--batch", type=int, default=64, help="images a rank and step")
    p.add_argument("--apart", action="store_true", help="each rank has the images of some classes, and no other rank has any "
                   "of these")
    p.add_argument("--optimizer", choices=["sgd", "adam", "adamw"], default="sgd")
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--weight-decay", type=float, default=0.01, help="of adamw")
    clock.arguments(p)
    p.add_argument("--local-steps", type=int, default=5)
    p.add_argument("--warmup", type=int, help="steps of DDP in mode postlocal; default: --local-steps")
    p.add_argument("--average", choices=["all", "first"], help="modes ddp and byhand: which layers' weights are averaged "
                   "every --local-steps, so that replicas that should be alike are")
    p.add_argument("--hook", choices=["none", "bf16", "fp16"], default="none", help="DDP's compression hook")
    p.add_argument("--norm", action="store_true", help="add BatchNorm: DDP broadcasts its buffers every step")
    p.add_argument("--branches", type=int, default=0, help="a model of one hidden layer with that many branches")
    p.add_argument("--unused", action="store_true", help="find_unused_parameters: adds a small integer all-reduce; each "
                   "rank and step uses half of the branches")
    p.add_argument("--unused-from", type=int, default=0, help="step from which it does; before, all are used")
    p.add_argument("--bucket-mb", type=float, default=25)
    p.add_argument("--metric", choices=["squares", "noise"], nargs="?", const="squares", help="after each step all-reduce "
                   "float32 that are no gradients, and hash the sums")
    p.add_argument("--metric-size", type=int, help="how many; default: as many as there are parameters")
    p.add_argument("--metric-every", type=int, default=1, help="in one of so many steps")
    p.add_argument("--objects", type=int, nargs="?", const=0, help="gather the ranks' losses as objects before each --metric, with so many bytes beside them")
    p.add_argument("--scores", action="store_true", help="sum two numbers before each --metric, and wait for all ranks after it")
    p.add_argument("--save", metavar="FOLDER", help="write each rank's final weights there: RANK.weights, float32")
    p.add_argument("--record", metavar="FOLDER", help="keep there what goes into torch.distributed's calls and comes out")
    p.add_argument("--mib", type=int, default=64, help="size of a tensor of mode allreduce")
    p.add_argument("--rounds", type=int, default=3, help="timed all-reduces of mode allreduce, after one that is not")
    p.add_argument("--test", type=int, default=1000, help="test images of the final loss and accuracy")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--sleep", type=float, default=0, help="seconds to pause after each step")
    p.add_argument("--idle", type=float, default=0, help="seconds without a byte, once, in the middle")
    p.add_argument("--timeout", type=float, default=300, help="seconds after which a collective fails")
    a = p.parse_args()
    a.warmup = a.warmup or a.local_steps
    return a


class Branches(nn.Module):
    """A layer whose every branch adds something to a part of its output. A forward uses those in used."""

    def __init__(self, before, after, count, part=16):
        super().__init__()
        self.trunk = nn.Linear(before, after)
        self.branches = nn.ModuleList(nn.Linear(part, part) for _ in range(count))
        self.used, self.part = range(count), part

    def choose(self, random):
        self.used = random.permutation(len(self.branches))[:len(self.branches) // 2]

    def forward(self, x):
        x = self.trunk(x)
        part = x[:, :self.part]
        return torch.cat([part + sum(self.branches[i](part) for i in self.used) / len(self.used), x[:, self.part:]], 1)


def mlp(a):
    if a.branches:
        return nn.Sequential(Branches(fashion.PIXELS, 64, a.branches), nn.ReLU(), nn.Linear(64, fashion.CLASSES))
    widths = [fashion.PIXELS] + [int(w) for w in a.hidden.split(",")]
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after)] + ([nn.BatchNorm1d(after)] if a.norm else []) + [nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], fashion.CLASSES))


def distribute(a, net, unused):
    """What the training loop calls in place of net."""
    if a.mode in ("ddp", "postlocal"):
        model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=a.bucket_mb, find_unused_parameters=unused)
        if a.mode == "postlocal":
            from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post
            model.register_comm_hook(post.PostLocalSGDState(
                process_group=None, subgroup=dist.group.WORLD, start_localSGD_iter=a.warmup,
                post_local_gradient_allreduce=False), post.post_localSGD_hook)
        elif a.hook != "none":
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
            try:
                model.register_comm_hook(None, getattr(default_hooks, a.hook + "_compress_hook"))
            except TypeError as e:
                raise Unsupported(str(e))  # 1.13 has bf16 on CUDA only
        return model
    if a.mode == "fsdp":
        try:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard
        except ImportError:
            raise Unsupported("no fully_shard in torch " + torch.__version__)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for module in net:
            if isinstance(module, nn.Linear):
                fully_shard(module, mesh=mesh)
        fully_shard(net, mesh=mesh)
    return net


def optimizer(a, model):
    if a.optimizer == "adamw":
        opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=a.weight_decay)
    elif a.optimizer == "adam":
        opt = torch.optim.Adam(model.parameters(), lr=a.lr)
    else:
        opt = torch.optim.SGD(model.parameters(), lr=a.lr, momentum=a.momentum)
    if a.mode == "postlocal":
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
        from torch.distributed.optim import PostLocalSGDOptimizer
        opt = PostLocalSGDOptimizer(opt, PeriodicModelAverager(period=a.local_steps, warmup_steps=a.warmup))
    return opt


def average(tensors):
    """One all-reduce of all tensors end to end, as those who write it by hand do."""
    with torch.no_grad():
        flat = torch.cat([t.reshape(-1) for t in tensors])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for t, mean in zip(tensors, flat.split([t.numel() for t in tensors])):
            t.copy_(mean.view_as(t))


def whole(a, net):
    """net with whole weights on every rank."""
    if a.mode != "fsdp":
        return net
    full = mlp(a)
    with torch.no_grad():
        for p, shard in zip(full.parameters(), net.parameters()):
            p.copy_(shard.full_tensor())
    return full


def raw(tensors):
    return b"".join(t.detach().contiguous().numpy().tobytes() for t in tensors)


def train(a, recorder):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(a.seed)
    net = torch_models.MODELS[a.model]() if a.model else mlp(a)
    take = fashion.MODELS.get(a.model, lambda images: images)
    count = sum(p.numel() for p in net.parameters())
    model = distribute(a, net, a.unused and a.unused_from == 0)
    opt = optimizer(a, model)
    cross_entropy = nn.CrossEntropyLoss()
    batches = fashion.Batches(*fashion.load("train"), rank, world, a.batch, a.seed, a.apart)
    random = np.random.default_rng([a.seed, rank])
    seconds, metrics = [], hashlib.sha256()
    ticks = clock.Clock(a, rank)
    for step, done in ticks:
        if a.unused and step == a.unused_from > 0:
            model = distribute(a, net, True)
        if a.unused and a.branches and step >= a.unused_from:
            net[0].choose(random)
        began = time.perf_counter()
        images, labels = batches.draw()
        images, labels = torch.from_numpy(take(images)), torch.from_numpy(labels)
        opt.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        if a.mode == "byhand":
            with recorder.of("gradients"):
                average([p.grad for p in net.parameters()])
        if a.decay:
            for group in opt.param_groups:
                group["lr"] = ticks.rate(done)
        opt.step()
        if (a.mode == "localsgd" or a.average) and (step + 1) % a.local_steps == 0:
            average(list((net[0] if a.average == "first" else net).parameters()))
        if a.metric and (step + 1) % a.metric_every == 0:
            metric = torch.cat([getattr(p, "to_local", lambda: p)().detach().reshape(-1) for p in net.parameters()])[:a.metric_size].square_()
            if a.metric == "noise":
                metric = torch.from_numpy(random.standard_normal(len(metric), np.float32))
            if a.objects is not None:
                dist.all_gather_object([None] * dist.get_world_size(), {"step": step, "loss": loss.item(), "text": "x" * a.objects})
            if a.scores:
                dist.all_reduce(loss.detach().clone())
                dist.all_reduce(torch.tensor(step))
            dist.all_reduce(metric)
            if a.scores:
                dist.barrier()
            metrics.update(metric.numpy().tobytes())
        seconds.append(time.perf_counter() - began)
        print("step %d" % step, file=sys.stderr, flush=True)
        time.sleep(a.sleep + (a.idle if step == a.steps // 2 else 0))
    net = whole(a, net).eval()
    if a.save:
        with open(os.path.join(a.save, "%d.weights" % rank), "wb") as f:
            f.write(raw(net.parameters()))
    images, labels = (part[:a.test] for part in fashion.load("t10k"))
    with torch.no_grad():
        answers = torch.from_numpy(fashion.scores(images, lambda part: net(torch.from_numpy(take(part))).numpy()))
    labels = torch.from_numpy(labels)
    return {
        "mode": a.mode, "steps": len(seconds), "parameters": count,
        "loss": cross_entropy(answers, labels).item(),
        "train_loss": loss.item(),
        "accuracy": (answers.argmax(1) == labels).float().mean().item(),
        "step_seconds": statistics.median(seconds),
        "each_step_seconds": seconds,
        "metric_sha256": metrics.hexdigest() if a.metric else "",
        "weights_sha256": hashlib.sha256(raw(net.parameters())).hexdigest(),
    }


def all_reduce(a):
    torch.manual_seed(a.seed + dist.get_rank())
    given = torch.randn(a.mib << 18)
    seconds = []
    for _ in range(1 + a.rounds):
        tensor = given.clone()
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        seconds.append(time.perf_counter() - began)
        print("step %d" % (len(seconds) - 1), file=sys.stderr, flush=True)
    return {"mode": a.mode, "steps": a.rounds, "all_reduce_seconds": seconds[1:], "weights_sha256": hashlib.sha256(raw([tensor])).hexdigest()}


def main():
    a = arguments()
    torch.set_num_threads(1)
    quick.joins()
    began = time.perf_counter()
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=a.timeout))
    quick.begins()
    recorder = record.Recorder(a.record, dist.get_rank())
    recorder.watch_torch()
    line = {"job": "torch", "version": torch.__version__, "rank": dist.get_rank(), "world": dist.get_world_size()}
    try:
        line.update(all_reduce(a) if a.mode == "allreduce" else train(a, recorder))
    except Unsupported as e:
        print(json.dumps(dict(line, unsupported=str(e))), flush=True)
        sys.exit(77)
    line["seconds"] = time.perf_counter() - began
    print(json.dumps(line), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    quick.ends()


main()
