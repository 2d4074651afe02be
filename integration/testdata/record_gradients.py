"""Records the gradients of successive steps of real training, one .npy file for each model.

  python3 record_gradients.py --out FOLDER --steps 400

  cnn   a convolutional network with batch normalization on Fashion-MNIST, SGD with momentum
  lm    a transformer of two layers that predicts the next word of Python's own library, Adam

A file is a float32 array of shape (steps, elements): row k is the gradient of all parameters in step k, counted from the start of the
training, end to end in PyTorch's order, as DistributedDataParallel puts them into one bucket. Two runs with the same arguments,
torch, Python and kind of processor write the same files. The text is the library of the Python that runs this program, so
another version of Python gives other gradients of lm. Runs on torch 1.13.1 and 2.15.
"""
import argparse
import glob
import os
import re
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import fashion

WORDS, CONTEXT = 512, 32


def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3), nn.BatchNorm2d(128), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, fashion.CLASSES))


def images(seed):
    """Yields the model, its optimizer and the loss of one batch."""
    x, y = fashion.load("train")
    batches = fashion.Batches(x, y, 0, 1, 64, seed)
    model = convolutions()

    def loss():
        images, labels = batches.draw()
        return F.cross_entropy(model(torch.from_numpy(images).view(-1, 1, 28, 28)), torch.from_numpy(labels))

    return model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), loss


class Transformer(nn.Module):
    """Predicts the next of CONTEXT words."""

    def __init__(self, width=64, layers=2):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width))
        self.out = nn.Linear(width, WORDS)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, x):
        return self.out(self.layers(self.words(x) + self.places.weight, self.mask))


def text():
    """The words of Python's library as numbers below WORDS, the last of which stands for all rare words."""
    files = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))
    words = re.findall(r"\w+|[^\w\s]", " ".join(open(f, errors="replace").read() for f in files))
    count = {}
    for w in words:
        count[w] = count.get(w, 0) + 1
    number = {w: i for i, w in enumerate(sorted(count, key=lambda w: (-count[w], w))[:WORDS - 1])}
    return torch.tensor([number.get(w, WORDS - 1) for w in words])


def language(seed):
    ids = text()
    model = Transformer()

    def loss():
        i = torch.randint(len(ids) - CONTEXT - 1, (16,))[:, None] + torch.arange(CONTEXT + 1)
        return F.cross_entropy(model(ids[i[:, :-1]]).flatten(0, 1), ids[i[:, 1:]].flatten())

    return model, torch.optim.Adam(model.parameters(), 1e-3), loss


MODELS = {"cnn": images, "lm": language}


def record(name, steps, seed, path):
    torch.manual_seed(seed)
    model, optimizer, loss_of = MODELS[name](seed)
    parameters = list(model.parameters())
    elements = sum(p.numel() for p in parameters)
    rows = np.lib.format.open_memmap(path + ".part", mode="w+", dtype="<f4", shape=(steps, elements))
    first = last = 0.0
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        rows[step] = torch.cat([p.grad.flatten() for p in parameters]).numpy()
        optimizer.step()
        last = 0.9 * last + 0.1 * loss.item() if step else loss.item()
        first = first or last
    rows.flush()
    os.rename(path + ".part", path)
    print("%s: %d steps of %d elements, loss %.3f to %.3f, torch %s, python %s" %
          (path, steps, elements, first, last, torch.__version__, sys.version.split()[0]), file=sys.stderr)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True, help="folder for the files")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--model", choices=sorted(MODELS), action="append", help="may be repeated; default: all")
    a = p.parse_args()
    torch.set_num_threads(1)  # the order of sums is that of one thread
    os.makedirs(a.out, exist_ok=True)
    for name in a.model or sorted(MODELS):
        record(name, a.steps, a.seed, os.path.join(a.out, name + ".npy"))


main()
