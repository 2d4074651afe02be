"""A text, and a model that predicts each next of its letters. The text is of Python's own library, so that jobs need no data."""
import functools
import os

import torch
from torch import nn

LETTERS, LENGTH = 64, 16


@functools.lru_cache(None)
def ids():
    """The text, a number below LETTERS for each letter."""
    folder = os.path.dirname(os.__file__)
    text = "".join(open(os.path.join(folder, f), errors="replace").read() for f in ("argparse.py", "ast.py", "inspect.py"))
    return torch.tensor([min(LETTERS - 1, max(0, ord(c) - 32 if ord(c) < 96 else ord(c) - 64)) for c in text])


def batch(n, random):
    """n pieces of LENGTH letters from random places, and the letters that follow each letter, one after another."""
    i = torch.randint(len(ids()) - LENGTH - 1, (n,), generator=random)[:, None] + torch.arange(LENGTH + 1)
    return ids()[i[:, :-1]], ids()[i[:, 1:]].flatten()


class Attention(nn.Module):
    """Predicts the next of LENGTH letters."""

    def __init__(self, width=48, letters=LETTERS):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Embedding(LENGTH, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0, batch_first=True, norm_first=True)
        self.out = nn.Linear(width, letters)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), float("-inf")).triu(1))

    def forward(self, x):
        return self.out(self.layer(self.letters(x) + self.places.weight, self.mask))
