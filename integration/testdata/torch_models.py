"""Three small models of Fashion-MNIST for torch_job.py. Each takes what fashion.MODELS makes of an image."""
import torch
import torch.nn as nn

import fashion


def conv():
    """Convolutions with batch normalization: 75,562 parameters."""
    layers, before = [], 1
    for after, stride in (32, 2), (64, 2), (96, 1):
        layers += [nn.Conv2d(before, after, 3, stride), nn.BatchNorm2d(after), nn.ReLU()]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, fashion.CLASSES))


class Block(nn.Module):
    """Attention and a hidden layer, each behind a normalization and beside a way past it."""

    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.look, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.hidden = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        n, tokens, width = x.shape
        q, k, v = self.look(self.before(x)).view(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = (q @ k.transpose(2, 3) * (width // self.heads) ** -0.5).softmax(3) @ v
        x = x + self.out(seen.transpose(1, 2).reshape(n, tokens, width))
        return x + self.hidden(self.after(x))


class Transformer(nn.Module):
    """A transformer of one layer: 37,898 parameters."""

    def __init__(self, width=64):
        super().__init__()
        self.tokens = nn.Linear(fashion.SIDE, width)
        self.places = nn.Parameter(torch.randn(fashion.SIDE, width) * 0.02)
        self.blocks = nn.Sequential(Block(width), nn.LayerNorm(width))
        self.last = nn.Linear(width, fashion.CLASSES)

    def forward(self, x):
        return self.last(self.blocks(self.tokens(x) + self.places).mean(1))


class Embedding(nn.Module):
    """A vector for each word: 104,282 parameters, most of whose gradients are zero in a step."""

    def __init__(self, width=8):
        super().__init__()
        self.words = nn.Embedding(fashion.WORDS, width)
        nn.init.normal_(self.words.weight, std=0.1)
        self.last = nn.Linear(fashion.PLACES * width, fashion.CLASSES)

    def forward(self, words):
        return self.last(self.words(words).flatten(1))


MODELS = {"conv": conv, "transformer": Transformer, "embedding": Embedding}
