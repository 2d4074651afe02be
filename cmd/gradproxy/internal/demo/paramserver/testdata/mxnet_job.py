"""One role of an MXNet job, as DMLC_ROLE says. A scheduler or server lives inside the import and ends with the job.

Workers train a small classifier on data of their own with a gluon.Trainer, and print the SHA-256 of its final weights.
usage: mxnet_job.py STEPS MOMENTUM
"""
import hashlib
import sys

import mxnet as mx
from mxnet import autograd, gluon

steps, momentum = int(sys.argv[1]), float(sys.argv[2])
kv = mx.kv.create("dist_sync")
mx.random.seed(kv.rank + 1)  # other weights on every worker: worker 0's count
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(40, in_units=30, activation="relu"), gluon.nn.Dense(7, in_units=40))
net.initialize(mx.init.Xavier())
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": momentum}, kvstore=kv)
loss = gluon.loss.SoftmaxCrossEntropyLoss()
batch = 12  # no power of two: gradients are scaled by its inverse
for _ in range(steps):
    images, labels = mx.nd.random.normal(shape=(batch, 30)), mx.nd.random.randint(0, 7, (batch,)).astype("float32")
    with autograd.record():
        losses = loss(net(images), labels)
    losses.backward()
    trainer.step(batch)
weights = hashlib.sha256()
for p in net.collect_params().values():
    weights.update(p.data().asnumpy().tobytes())
print(weights.hexdigest(), flush=True)
