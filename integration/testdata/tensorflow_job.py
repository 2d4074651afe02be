"""A TensorFlow job over gRPC that knows nothing of proxies: an MLP on Fashion-MNIST, the same every time.

One process for each node (nodes.py), with the roles ps and worker, in mode strategy also one chief:
  NODES='[{"role": "ps", "host": "127.0.0.1", "port": 20000}, {"role": "worker", "host": "127.0.0.1", "port": 20010}]' NODE=0 \
    python3 tensorflow_job.py --mode async --end /tmp/end

Modes
  sync      TensorFlow 1: each worker has its own graph, SyncReplicasOptimizer on the servers
  async     TensorFlow 1: each worker steps when it can
  strategy  ParameterServerStrategy: the chief hands out steps, workers take them
  mirrored  MultiWorkerMirroredStrategy: a ring of the workers, without servers

Workers, and the chief, write "step K" to stderr after step K; every process writes one JSON line to stdout at its end. Two runs with the same arguments end
with the same hash in the modes sync and mirrored with two workers, which also have the same hash as each other, and in the others with one worker.
"""
import quick  # before a framework

import argparse
import hashlib
import json
import os
import statistics
import sys
import time

for name in "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY":  # which TensorFlow's gRPC would dial
    os.environ.pop(name, None)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np

import fashion
import nodes


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=["sync", "async", "strategy", "mirrored"], default="sync")
    p.add_argument("--steps", type=int, default=20, help="of each worker; in mode strategy of all together")
    p.add_argument("--hidden", default="128,64", help="widths of the hidden layers")
    p.add_argument("--batch", type=int, default=32, help="images a worker and step")
    p.add_argument("--optimizer", choices=["sgd", "momentum", "adam"], default="sgd")
    p.add_argument("--keras", action="store_true", help="Keras's optimizer in place of TensorFlow 1's, whose operations are not fused; modes strategy and mirrored")
    p.add_argument("--resource", action="store_true", help="resource variables; modes sync and async")
    p.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32", help="of weights")
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--decay", action="store_true", help="the learning rate falls to 0 over the training, evenly; mode sync")
    p.add_argument("--first", type=int, default=0, help="steps at the beginning whose time does not count")
    p.add_argument("--test", type=int, default=1000, help="test images of the final loss and accuracy")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--sleep", type=float, default=0, help="seconds to pause after each step")
    p.add_argument("--save", metavar="FOLDER", help="write each replica's final weights there: RANK.weights, float32")
    p.add_argument("--timeout", type=float, default=0, help="ignored")
    nodes.arguments(p)
    return p.parse_args()


def initial(a):
    """The first weights, by name."""
    random = np.random.default_rng(a.seed)
    widths = [fashion.PIXELS] + [int(w) for w in a.hidden.split(",")] + [fashion.CLASSES]
    weights = {}
    for i, (before, after) in enumerate(zip(widths, widths[1:])):
        weights["w%d" % i] = (random.standard_normal((before, after)) * (2 / before) ** 0.5).astype(np.float32)
        weights["b%d" % i] = np.zeros(after, np.float32)
    return weights


def forward(tf, values, x):
    """The scores of x. Elements of another type than float32 are computed with in float32."""
    for i in range(len(values) // 2):
        x = tf.matmul(x, tf.cast(values["w%d" % i], tf.float32)) + tf.cast(values["b%d" % i], tf.float32)
        if 2 * i + 2 < len(values):
            x = tf.nn.relu(x)
    return x


def loss_of(tf, values, images, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=forward(tf, values, images)))


def batches(a, rank, world):
    return fashion.Batches(*fashion.load("train"), rank, world, a.batch, a.seed)


def cluster():
    roles = {}
    for n in nodes.ALL:
        roles.setdefault(n["role"], []).append(nodes.address(n))
    return roles


def old_optimizer(tf, a, rate):
    """One of TensorFlow 1, whose update is one operation."""
    v1 = tf.compat.v1.train
    return {"sgd": lambda: v1.GradientDescentOptimizer(rate), "momentum": lambda: v1.MomentumOptimizer(rate, 0.9), "adam": lambda: v1.AdamOptimizer(rate)}[a.optimizer]()


def optimizer(tf, a):
    if not a.keras:
        return old_optimizer(tf, a, a.lr)
    o = tf.keras.optimizers
    return {"sgd": lambda: o.SGD(a.lr), "momentum": lambda: o.SGD(a.lr, momentum=0.9), "adam": lambda: o.Adam(a.lr)}[a.optimizer]()


class Steps:
    """Tells how far the training is, and how long steps take."""

    def __init__(self, a):
        self.a, self.seconds, self.began = a, [], None

    def __iter__(self):
        for step in range(self.a.steps):
            self.began = time.perf_counter()
            yield step
            self.seconds.append(time.perf_counter() - self.began)
            print("step %d" % step, file=sys.stderr, flush=True)
            time.sleep(self.a.sleep)


def report(a, weights, steps, version, world):
    weights = {k: np.asarray(w) for k, w in weights.items()}
    images, labels = (part[:a.test] for part in fashion.load("t10k"))
    x = fashion.floats(images)
    for i in range(len(weights) // 2):
        x = x @ weights["w%d" % i].astype(np.float32) + weights["b%d" % i].astype(np.float32)
        x = np.maximum(x, 0) if 2 * i + 2 < len(weights) else x
    loss, accuracy = fashion.judge(x, labels)
    raw = b"".join(np.ascontiguousarray(weights[k]).tobytes() for k in sorted(weights))
    if a.save:
        with open(os.path.join(a.save, "%d.weights" % nodes.index()), "wb") as f:
            f.write(b"".join(weights[k].astype(np.float32).tobytes() for k in sorted(weights)))
    seconds = steps.seconds[a.first:]
    nodes.finish("tensorflow", version=version, rank=nodes.index(), world=world, steps=len(steps.seconds), parameters=sum(w.size for w in weights.values()),
                 dense_bytes=len(raw), loss=loss, accuracy=accuracy, seconds=sum(seconds), step_seconds=statistics.median(seconds),
                 each_step_seconds=steps.seconds, weights_sha256=hashlib.sha256(raw).hexdigest())


def leave():
    """Ends at once: TensorFlow's servers and queue runners have no end."""
    sys.stdout.flush()
    os._exit(0)


def serve(a, tf, version):
    """A server, or a worker that a chief hands steps to."""
    tf.distribute.Server(cluster(), job_name=nodes.ROLE, task_index=nodes.index(), protocol="grpc", start=True)
    nodes.listens(a)
    nodes.wait(a)
    nodes.finish("tensorflow", version=version)
    leave()


def graph_job(a, tf2):
    """TensorFlow 1's loop, in a worker."""
    tf = tf2.compat.v1
    tf.disable_eager_execution()
    if not a.resource:
        tf.disable_resource_variables()
    world, index = len(nodes.of("worker")), nodes.index()
    chief = index == 0
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
    spec = tf.train.ClusterSpec(cluster())
    nodes.join(a, "ps")
    server = tf.train.Server(spec, job_name="worker", task_index=index, config=config, protocol="grpc")
    dtype = tf2.as_dtype(a.dtype)
    own = "/job:worker/task:%d" % index
    hooks = []
    with tf.device(tf.train.replica_device_setter(cluster=spec, worker_device=own)):
        count = tf.train.get_or_create_global_step()
        variables = {k: tf.get_variable(k, initializer=tf.constant(w.astype(dtype.as_numpy_dtype))) for k, w in initial(a).items()}
        ended = tf.get_variable("ended", initializer=tf.constant(0, tf.int32), trainable=False)
        ends = tf.assign_add(ended, 1, use_locking=True) if not a.resource else ended.assign_add(1)
        images = tf.placeholder(tf.float32, [None, fashion.PIXELS])
        labels = tf.placeholder(tf.int64, [None])
        with tf.device(own):
            copies = {k: tf.identity(v) for k, v in variables.items()}
        loss = loss_of(tf, copies, images, labels)
        rate = tf.train.polynomial_decay(a.lr, count, a.steps, 0.0) if a.decay else a.lr
        opt = old_optimizer(tf2, a, rate)
        if a.mode == "sync":
            opt = tf.train.SyncReplicasOptimizer(opt, replicas_to_aggregate=world, total_num_replicas=world)
        train = opt.apply_gradients(opt.compute_gradients(loss, list(variables.values())), global_step=count)
        if a.mode == "sync":
            hooks.append(opt.make_session_run_hook(chief, num_tokens=0))
    if not chief:  # a worker that finds the weights without values sleeps for 30 s
        with tf.Session(server.target, config=config) as s:
            missing = tf.report_uninitialized_variables(tf.global_variables())
            while len(s.run(missing)):
                time.sleep(0.1)
    session = tf.train.MonitoredTrainingSession(server.target, is_chief=chief, hooks=hooks, config=config, log_step_count_steps=None, summary_dir=None)
    data, steps = batches(a, index, world), Steps(a)
    for _ in steps:
        x, y = data.draw()
        session.run([train, loss], {images: x, labels: y})
    raw = session._tf_sess()
    n = raw.run(ends)
    while n < world:
        time.sleep(0.1)
        n = raw.run(ended)
    weights = raw.run(dict(variables))
    n = raw.run(ends)  # nobody leaves while another one needs the servers
    while n < 2 * world:
        time.sleep(0.1)
        n = raw.run(ended)
    report(a, weights, steps, tf2.__version__, world)
    if chief:
        time.sleep(1)  # the others have read the last number
        nodes.end(a)
    leave()


def strategy_job(a, tf):
    """The chief of ParameterServerStrategy."""
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    nodes.join(a, "ps")
    nodes.join(a, "worker")
    world = len(nodes.of("worker"))
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster()), task_type="chief", task_id=0, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    dtype = tf.as_dtype(a.dtype)
    with strategy.scope():
        variables = {k: tf.Variable(w.astype(dtype.as_numpy_dtype), name=k) for k, w in initial(a).items()}
        opt = optimizer(tf, a)
        if a.keras:
            opt.build([variables[k] for k in sorted(variables)])

    def dataset():
        images, labels = fashion.load("train")
        order = np.random.default_rng(a.seed).permutation(len(images))[:max(a.steps, 8) * a.batch]
        return tf.data.Dataset.from_tensor_slices((images[order], labels[order])).batch(a.batch, drop_remainder=True).repeat()

    iterator = iter(coordinator.create_per_worker_dataset(dataset))

    @tf.function
    def step(iterator):
        def replica(images, labels):
            x = (tf.cast(images, tf.float32) - 128) / 128
            with tf.GradientTape() as tape:
                loss = loss_of(tf, variables, x, labels)
            names = sorted(variables)
            opt.apply_gradients(zip(tape.gradient(loss, [variables[k] for k in names]), [variables[k] for k in names]))
            return loss
        return strategy.run(replica, args=next(iterator))

    steps = Steps(a)
    for i in steps:
        coordinator.schedule(step, args=(iterator,))
        if world == 1 or i % world == world - 1 or i == a.steps - 1:
            coordinator.join()
    report(a, {k: v.numpy() for k, v in variables.items()}, steps, tf.__version__, world)
    nodes.end(a)
    leave()


def mirrored_job(a, tf):
    """A worker of MultiWorkerMirroredStrategy."""
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster(), "task": {"type": "worker", "index": nodes.index()}})
    world, communication = len(nodes.of("worker")), tf.distribute.experimental
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication.CommunicationOptions(
        implementation=communication.CommunicationImplementation.RING))
    dtype = tf.as_dtype(a.dtype)
    with strategy.scope():
        variables = {k: tf.Variable(w.astype(dtype.as_numpy_dtype), name=k) for k, w in initial(a).items()}
        opt = optimizer(tf, a)

    @tf.function
    def step(images, labels):
        def replica(images, labels):
            with tf.GradientTape() as tape:
                loss = loss_of(tf, variables, images, labels) / world
            names = sorted(variables)
            opt.apply_gradients(zip(tape.gradient(loss, [variables[k] for k in names]), [variables[k] for k in names]))
            return loss
        return strategy.run(replica, args=(images, labels))

    data, steps = batches(a, nodes.index(), world), Steps(a)
    for _ in steps:
        x, y = data.draw()
        step(tf.constant(x), tf.constant(y)).numpy()
    weights = {k: v.numpy() for k, v in variables.items()}
    report(a, weights, steps, tf.__version__, world)
    if nodes.index() == 0:  # the others still talk to this one
        nodes.wait(a, also=lambda: world == 1)
    else:
        nodes.end(a)
        time.sleep(1)
    leave()


def main():
    a = arguments()
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(4)
    if nodes.ROLE == "ps" or nodes.ROLE == "worker" and a.mode == "strategy":
        serve(a, tf, tf.__version__)
    {"sync": graph_job, "async": graph_job, "strategy": strategy_job, "mirrored": mirrored_job}[a.mode](a, tf)


main()
