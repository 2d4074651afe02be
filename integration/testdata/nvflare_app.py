"""The parts of nvflare_job.py that run inside NVFlare's own processes: an MLP on Fashion-MNIST, and its federated average.

nvflare_job.py copies this file and fashion.py into the job that it submits. The server adds the sites' results up in the order of the sites' names, so
that the same arguments end with the same weights.
"""
import json
import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

import fashion


def register(o):
    """Has NVFlare exchange torch's tensors, as safetensors, if the job does."""
    if o["tensors"] == "torch":
        from nvflare.app_opt.pt.decomposers import TensorDecomposer
        from nvflare.fuel.utils import fobs
        fobs.register(TensorDecomposer)


def exchanged(o, w):
    """A float32 array as the job exchanges it."""
    if o["tensors"] == "numpy":
        return np.ascontiguousarray(w, np.float32)
    import torch
    return torch.from_numpy(np.ascontiguousarray(w, np.float32))


def array(w):
    return np.array(w if isinstance(w, np.ndarray) else w.detach().numpy(), np.float32)


def initial(o):
    random = np.random.default_rng(o["seed"])
    widths = [fashion.PIXELS, o["hidden"], fashion.CLASSES]
    w = {}
    for i, (before, after) in enumerate(zip(widths, widths[1:])):
        w["fc%d.weight" % i] = (random.standard_normal((before, after)) * (2 / before) ** 0.5).astype(np.float32)
        w["fc%d.bias" % i] = np.zeros(after, np.float32)
    return w


def forward(w, x):
    h = np.maximum(x @ w["fc0.weight"] + w["fc0.bias"], 0)
    return h, h @ w["fc1.weight"] + w["fc1.bias"]


def train(o, w, batches):
    for _ in range(o["steps"]):
        x, labels = batches.draw()
        h, scores = forward(w, x)
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(labels)), labels] -= 1
        p /= len(labels)
        dh = (p @ w["fc1.weight"].T) * (h > 0)
        for name, d in (("fc1.weight", h.T @ p), ("fc1.bias", p.sum(0)), ("fc0.weight", x.T @ dh), ("fc0.bias", dh.sum(0))):
            w[name] = w[name] - np.float32(o["lr"]) * d.astype(np.float32)
    return w


def client(o):
    """A site's training script."""
    import nvflare.client as flare
    register(o)
    flare.init()
    site = int(flare.get_site_name().split("-")[1]) - 1
    batches = fashion.Batches(*fashion.load("train"), site, o["clients"], o["batch"], o["seed"])
    while flare.is_running():
        model = flare.receive()
        if model is None:
            break
        before = {k: array(model.params[k]) for k in model.params}
        w = train(o, dict(before), batches)
        if o["transfer"] == "DIFF":
            w = {k: w[k] - before[k] for k in w}
        flare.send(flare.FLModel(params={k: exchanged(o, v) for k, v in w.items()}, params_type=o["transfer"],
                                 meta={"NUM_STEPS_CURRENT_ROUND": o["steps"]}))


if __name__ == "__main__":
    client(json.loads(bytes.fromhex(sys.argv[1])))
else:
    from nvflare.app_common.abstract.fl_model import FLModel
    from nvflare.app_common.abstract.model import make_model_learnable
    from nvflare.app_common.abstract.model_persistor import ModelPersistor
    from nvflare.app_common.aggregators.model_aggregator import ModelAggregator

    class Persistor(ModelPersistor):
        """Keeps the global model: the last one is the job's result."""

        def __init__(self, options):
            super().__init__()
            self.o, self.saved = options, 0
            register(options)

        def load_model(self, fl_ctx):
            return make_model_learnable(weights={k: exchanged(self.o, w) for k, w in initial(self.o).items()}, meta_props={})

        def save_model(self, model, fl_ctx):
            np.savez(self.o["result"] + ".part.npz", **{k: array(w) for k, w in model["weights"].items()})
            os.replace(self.o["result"] + ".part.npz", self.o["result"])
            open("%s.round%d" % (self.o["result"], self.saved), "w").close()
            self.saved += 1

    class InOrder(ModelAggregator):
        """The mean of the results, added up in the order of the sites' names."""

        def __init__(self, options):
            super().__init__()
            self.o, self.got = options, {}

        def accept_model(self, model):
            self.got[model.meta["client_name"]] = model

        def aggregate_model(self):
            models = [self.got[k] for k in sorted(self.got)]
            mean = {}
            for k in models[0].params:
                total = array(models[0].params[k])
                for m in models[1:]:
                    total = total + array(m.params[k])
                mean[k] = exchanged(self.o, total / np.float32(len(models)))
            return FLModel(params=mean, params_type=models[0].params_type, meta={"nr_aggregated": len(models)})

        def reset_stats(self):
            self.got = {}
