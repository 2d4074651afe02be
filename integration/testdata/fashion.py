"""Fashion-MNIST as the jobs of this folder share it: read from the files of Debian's dataset-fashion-mnist, or from the same files unpacked in the
folder FASHION_MNIST. To unpack takes a rank longer than a short job's training; of unpacked files it reads the images that it sees."""
import gzip
import os

import numpy as np

FOLDER = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
SIDE, CLASSES = 28, 10
PIXELS = SIDE * SIDE
PLACES, GRADES = 7 * 7, 4  # of words
WORDS = PLACES * GRADES ** 4


def read_idx(name):
    """An idx file of unsigned bytes: two zero bytes, type 8, number of dimensions, their big-endian sizes, data."""
    path = os.path.join(FOLDER, name)
    if os.path.exists(path):
        raw = np.memmap(path, np.uint8, "r")
    else:
        with gzip.open(path + ".gz") as f:
            raw = f.read()
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">u4", dimensions, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load(part):
    """Images as rows of pixels, a byte each, and their labels as int64. part is "train" or "t10k"."""
    images = read_idx(part + "-images-idx3-ubyte")
    labels = read_idx(part + "-labels-idx1-ubyte")
    return images.reshape(len(images), PIXELS), labels.astype(np.int64)


def floats(images):
    """The pixels of images as float32 in [-1, 1). A short job sees few images, so that to convert all takes longer than to train."""
    return (images.astype(np.float32) - 128) / 128


def words(images):
    """Each image as PLACES words, numbers below WORDS: a word says which square of 4 by 4 pixels it is, and which of GRADES grades of
    brightness each quarter of the square has. Few words are common."""
    quarters = images.reshape(-1, 7, 2, 2, 7, 2, 2).mean((3, 6))  # rows of squares, of quarters, columns of squares, of quarters
    grades = np.clip((quarters + 1) * GRADES / 2, 0, GRADES - 1).astype(np.int64)
    squares = ((grades[:, :, 0, :, 0] * GRADES + grades[:, :, 0, :, 1]) * GRADES + grades[:, :, 1, :, 0]) * GRADES + grades[:, :, 1, :, 1]
    return squares.reshape(-1, PLACES) + np.arange(PLACES) * GRADES ** 4


# How a model takes rows of pixels. A transformer's tokens are an image's rows.
MODELS = {
    "conv": lambda images: images.reshape(-1, 1, SIDE, SIDE),
    "transformer": lambda images: images.reshape(-1, SIDE, SIDE),
    "embedding": words,
}


def scores(images, score, part=1000):
    """score of the pixels of images, a part at a time, which takes less memory."""
    return np.concatenate([score(floats(images[i:i + part])) for i in range(0, len(images), part)])


def judge(scores, labels):
    """The mean cross-entropy of scores, and the accuracy."""
    scores = scores - scores.max(1, keepdims=True)
    chosen = scores[np.arange(len(labels)), labels] - np.log(np.exp(scores).sum(1))
    return float(-chosen.mean()), float((scores.argmax(1) == labels).mean())


class Batches:
    """The batches of one rank: every rank draws the same permutations and takes its own part of each. With apart, the
    ranks share the classes out, and each draws from the images of its own."""

    def __init__(self, images, labels, rank, world, batch, seed, apart=False):
        if apart:
            own = labels * world // CLASSES == rank
            images, labels, rank, world = images[own], labels[own], 0, 1
        self.images, self.labels = images, labels
        self.rank, self.world, self.batch = rank, world, batch
        self.random = np.random.default_rng(seed)
        self.order, self.next = None, 0

    def draw(self):
        together = self.batch * self.world
        if self.order is None or self.next + together > len(self.order):
            self.order, self.next = self.random.permutation(len(self.images)), 0
        first = self.next + self.rank * self.batch
        mine = self.order[first:first + self.batch]
        self.next += together
        return floats(self.images[mine]), self.labels[mine]
