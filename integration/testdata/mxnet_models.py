"""Three small models of Fashion-MNIST for mxnet_job.py, the same as those of torch_models.py."""
import mxnet as mx
from mxnet import gluon

import fashion


class Words(gluon.Block):
    """The embeddings of words. It asks the servers for their rows, and for no others."""

    def __init__(self, words, width, init=None):
        super().__init__()
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(words, width), stype="row_sparse", grad_stype="row_sparse", init=init)
        self.words, self.width = words, width
        self.rows = None  # the last ones that came
        self.kept = None  # all rows, to be used from now on

    def forward(self, words):
        self.rows = self.kept if self.kept is not None else self.weight.row_sparse_data(words.reshape(-1))
        return mx.nd.Embedding(words, self.rows, input_dim=self.words, output_dim=self.width, sparse_grad=self.kept is None)

    def all(self):
        return self.weight.row_sparse_data(mx.nd.arange(self.words))

    def keep(self):
        """Asks for all rows once, and for none any more."""
        self.kept = self.all().tostype("default")


class Conv(gluon.nn.Sequential):
    """Convolutions with batch normalization."""

    def __init__(self):
        super().__init__()
        before = 1
        for after, stride in (32, 2), (64, 2), (96, 1):
            self.add(gluon.nn.Conv2D(after, 3, stride, in_channels=before), gluon.nn.BatchNorm(in_channels=after), gluon.nn.Activation("relu"))
            before = after
        self.add(gluon.nn.GlobalAvgPool2D(), gluon.nn.Dense(fashion.CLASSES, in_units=before))


class Attention(gluon.Block):
    """Attention and a hidden layer, each behind a normalization and beside a way past it."""

    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        with self.name_scope():
            self.before, self.after = gluon.nn.LayerNorm(in_channels=width), gluon.nn.LayerNorm(in_channels=width)
            self.look, self.out = tokens(width, 3 * width), tokens(width, width)
            self.first, self.second = tokens(width, 2 * width, activation="relu"), tokens(2 * width, width)

    def forward(self, x):
        n, count, width = x.shape
        # Three times as many pictures as there are images and heads: of queries, of keys, of values.
        parts = self.look(self.before(x)).reshape((n, count, 3, self.heads, -1)).transpose((2, 0, 3, 1, 4)).reshape((3, n * self.heads, count, -1))
        seen = mx.nd.batch_dot(mx.nd.softmax(mx.nd.batch_dot(parts[0], parts[1], transpose_b=True) * (width // self.heads) ** -0.5), parts[2])
        x = x + self.out(seen.reshape((n, self.heads, count, -1)).transpose((0, 2, 1, 3)).reshape((n, count, width)))
        return x + self.second(self.first(self.after(x)))


def tokens(before, after, **more):
    """A dense layer for each token."""
    return gluon.nn.Dense(after, in_units=before, flatten=False, **more)


class Transformer(gluon.Block):
    """A transformer of one layer."""

    def __init__(self, width=64):
        super().__init__()
        with self.name_scope():
            self.tokens = tokens(fashion.SIDE, width)
            self.places = self.params.get("places", shape=(fashion.SIDE, width), init=mx.init.Normal(0.02))
            self.blocks = gluon.nn.Sequential()
            self.blocks.add(Attention(width), gluon.nn.LayerNorm(in_channels=width))
            self.last = gluon.nn.Dense(fashion.CLASSES, in_units=width)

    def forward(self, x):
        return self.last(self.blocks(mx.nd.broadcast_add(self.tokens(x), self.places.data().expand_dims(0))).mean(axis=1))


class Embedding(gluon.Block):
    """A vector for each word. Only the rows of a step's words have gradients, and travel."""

    def __init__(self, width=8):
        super().__init__()
        with self.name_scope():
            self.words = Words(fashion.WORDS, width, mx.init.Normal(0.1))
            self.last = gluon.nn.Dense(fashion.CLASSES, in_units=fashion.PLACES * width)

    def forward(self, words):
        return self.last(self.words(words))


MODELS = {"conv": Conv, "transformer": Transformer, "embedding": Embedding}
