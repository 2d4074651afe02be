#!/usr/bin/env python3
"""Records the vectors in this directory: real training, small models, a slice of the gradients of one or two steps.

Whole sequences of gradients are made by go run ./integration/cmd/recordgradients.

    apt-get install python3-torch python3-numpy dataset-fashion-mnist
    ./record.py                       # a few minutes; writes cnn.npy mlp.npy lm.npy pseudo.npy beside itself

Each file is a float32 array of shape (steps, 65536): the same elements at successive steps, in the order in which
PyTorch lays them out. Another version of PyTorch or of Python, whose library's source is the text of the language model,
changes the values a little and hardly changes the figures measured on them.
"""
import glob
import gzip
import os
import re
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

N = 65536  # elements kept of each gradient
HERE = os.path.dirname(os.path.abspath(__file__))


def save(name, steps):
    a = np.stack([s[:N].numpy().astype('<f4') for s in steps])
    assert a.shape == (len(steps), N), a.shape
    np.save(os.path.join(HERE, name), a)
    print(name, a.shape, 'zeros %.1f %%' % (100 * (a == 0).mean()))


def fashion():
    def read(name, skip):
        path = '/usr/share/datasets/fashion-mnist/' + name
        opener = gzip.open if os.path.exists(path + '.gz') else open
        with opener(path + ('.gz' if opener is gzip.open else ''), 'rb') as f:
            return torch.from_numpy(np.frombuffer(f.read(), np.uint8, offset=skip).copy())
    x = read('train-images-idx3-ubyte', 16).float().div(255).view(-1, 1, 28, 28)
    return x, read('train-labels-idx1-ubyte', 8).long()


def train(model, x, y, keep, first, steps):
    """SGD with momentum, batches of 64; returns keep's gradients at the given steps."""
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    out = []
    for step in range(first + steps):
        i = torch.randint(len(x), (64,))
        opt.zero_grad()
        F.cross_entropy(model(x[i]), y[i]).backward()
        if step >= first:
            out.append(torch.cat([p.grad.flatten() for p in keep]).clone())
        opt.step()
    return out


def images():
    x, y = fashion()
    cnn = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3), nn.BatchNorm2d(128), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    save('cnn.npy', train(cnn, x, y, [cnn[8].weight], 100, 2))
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    save('mlp.npy', train(mlp, x, y, [mlp[1].weight], 100, 1))


class Words(nn.Module):
    """Predicts the next word: embedding, GRU, linear."""

    def __init__(self, vocabulary):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 64)
        self.gru = nn.GRU(64, 128, batch_first=True)
        self.out = nn.Linear(128, vocabulary)

    def forward(self, x):
        return self.out(self.gru(self.embed(x))[0])

    def kept(self, of):
        """256 rows of the embedding, about half of them touched by a batch, and the start of the GRU's weights."""
        return torch.cat([of(self.embed.weight)[192:448].flatten(),
                          of(self.gru.weight_ih_l0).flatten(), of(self.gru.weight_hh_l0).flatten()]).clone()


def language():
    files = sorted(glob.glob(os.path.dirname(os.__file__) + '/*.py'))
    words = re.findall(r'\w+|[^\w\s]', ' '.join(open(f, errors='replace').read() for f in files))
    rank = {}
    for w in words:
        rank[w] = rank.get(w, 0) + 1
    vocabulary = {w: i for i, w in enumerate(sorted(rank, key=lambda w: (-rank[w], w))[:4095])}
    ids = torch.tensor([vocabulary.get(w, 4095) for w in words])
    model = Words(4096)
    opt = torch.optim.Adam(model.parameters(), 2e-3)

    def step():
        i = torch.randint(len(ids) - 33, (16,))[:, None] + torch.arange(33)
        opt.zero_grad()
        F.cross_entropy(model(ids[i[:, :-1]]).flatten(0, 1), ids[i[:, 1:]].flatten()).backward()

    for _ in range(400):
        step()
        opt.step()
    steps = []
    for _ in range(2):
        step()
        steps.append(model.kept(lambda p: p.grad))
        opt.step()
    save('lm.npy', steps)
    before = model.kept(lambda p: p.detach())
    for _ in range(50):
        step()
        opt.step()
    save('pseudo.npy', [before - model.kept(lambda p: p.detach())])


if __name__ == '__main__':
    torch.set_num_threads(1)
    print('torch', torch.__version__, 'python', sys.version.split()[0])
    for record in images, language:
        torch.manual_seed(1)
        record()
