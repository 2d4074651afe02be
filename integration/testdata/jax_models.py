"""Three small models of Fashion-MNIST for jax_job.py, the same as those of torch_models.py, and optimizers."""
import jax
import jax.numpy as jnp
import numpy as np

import fashion

HEADS, NARROW = 4, 1e-5  # what normalization adds to a variance


class Conv:
    """Convolutions with batch normalization."""

    layers = ((1, 32, 2), (32, 64, 2), (64, 96, 1))  # channels before and after, stride

    def initial(self, random):
        weights = {}
        for i, (before, after, _) in enumerate(self.layers):
            weights["conv%d" % i] = normal(random, (after, before, 3, 3), (2 / (9 * before)) ** 0.5)
            weights["shift%d" % i], weights["scale%d" % i] = np.zeros(after, np.float32), np.ones(after, np.float32)
        dense(weights, random, "last", self.layers[-1][1], fashion.CLASSES)
        return weights

    def statistics(self):
        """The running mean and variance of each normalization."""
        return [(np.zeros(after, np.float32), np.ones(after, np.float32)) for _, after, _ in self.layers]

    def scores(self, w, statistics, x, training):
        """The scores, and the new statistics."""
        kept = []
        for i, ((_, _, stride), (mean, variance)) in enumerate(zip(self.layers, statistics)):
            x = jax.lax.conv_general_dilated(x, w["conv%d" % i], (stride, stride), "VALID")
            if training:
                now = x.mean((0, 2, 3)), x.var((0, 2, 3))
                kept.append(tuple(0.9 * old + 0.1 * jax.lax.stop_gradient(new) for old, new in zip((mean, variance), now)))
                mean, variance = now
            factor = w["scale%d" % i] * jax.lax.rsqrt(variance + NARROW)
            x = jax.nn.relu(x * factor[:, None, None] + (w["shift%d" % i] - mean * factor)[:, None, None])
        return linear(w, "last", x.mean((2, 3))), kept


class Transformer:
    """A transformer of one layer."""

    width, blocks = 64, 1

    def initial(self, random):
        weights, width = {"places": normal(random, (fashion.SIDE, self.width), 0.02)}, self.width
        dense(weights, random, "tokens", fashion.SIDE, width)
        for b in range(self.blocks):
            for name, before, after in ("look", width, 3 * width), ("out", width, width), ("first", width, 2 * width), ("second", 2 * width, width):
                dense(weights, random, "%d%s" % (b, name), before, after)
        for name in ["%d%s" % (b, name) for b in range(self.blocks) for name in ("before", "after")] + ["end"]:
            weights[name + "_shift"], weights[name + "_scale"] = np.zeros(width, np.float32), np.ones(width, np.float32)
        dense(weights, random, "last", width, fashion.CLASSES)
        return weights

    def statistics(self):
        return []

    def scores(self, w, _, x, training):
        x = linear(w, "tokens", x) + w["places"]
        for b in range(self.blocks):
            name = str(b)
            q, k, v = jnp.moveaxis(linear(w, name + "look", normalize(w, name + "before", x)).reshape(x.shape[:2] + (3, HEADS, -1)), 2, 0)
            seen = jnp.einsum("nhij,njhd->nihd", jax.nn.softmax(jnp.einsum("nihd,njhd->nhij", q, k) * q.shape[3] ** -0.5), v)
            x = x + linear(w, name + "out", seen.reshape(x.shape))
            x = x + linear(w, name + "second", jax.nn.relu(linear(w, name + "first", normalize(w, name + "after", x))))
        return linear(w, "last", normalize(w, "end", x).mean(1)), []


class Embedding:
    """A vector for each word: most of their gradients are zero in a step."""

    width = 8

    def initial(self, random):
        weights = {"words": normal(random, (fashion.WORDS, self.width), 0.1)}
        dense(weights, random, "last", fashion.PLACES * self.width, fashion.CLASSES)
        return weights

    def statistics(self):
        return []

    def scores(self, w, _, words, training):
        return linear(w, "last", jnp.asarray(w["words"])[words].reshape(len(words), -1)), []


def normal(random, shape, deviation):
    return (random.standard_normal(shape) * deviation).astype(np.float32)


def dense(weights, random, name, before, after):
    weights[name], weights[name + "_bias"] = normal(random, (before, after), before ** -0.5), np.zeros(after, np.float32)


def linear(w, name, x):
    return x @ w[name] + w[name + "_bias"]


def normalize(w, name, x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + NARROW) * w[name + "_scale"] + w[name + "_shift"]


MODELS = {"conv": Conv, "transformer": Transformer, "embedding": Embedding}


def memory(weights):
    """What the optimizer remembers at first: two values for each weight, and the steps so far."""
    zeros = jax.tree.map(np.zeros_like, weights)
    return zeros, zeros, np.float32(0)


def descend(a, weights, gradients, memory, rate):
    """The weights after a step, and what the optimizer then remembers. Momentum as in torch."""
    first, second, steps = memory
    steps = steps + 1
    if a.optimizer == "sgd":
        first = jax.tree.map(lambda m, g: a.momentum * m + g, first, gradients)
        return jax.tree.map(lambda w, m: w - rate * m, weights, first), (first, second, steps)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    decay = a.weight_decay if a.optimizer == "adamw" else 0.0

    def change(w, m, v):
        return w - rate * (m / (1 - 0.9 ** steps) / (jnp.sqrt(v / (1 - 0.999 ** steps)) + 1e-8) + decay * w)
    return jax.tree.map(change, weights, first, second), (first, second, steps)
