"""A whole job of NVIDIA FLARE that knows nothing of proxies: a server, and N clients at another site, train an MLP on Fashion-MNIST by FedAvg.

Server, clients and the job's processes are those of the nvflare package, provisioned as its documentation says, with connection_security: clear.
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=8002 python3 nvflare_job.py --folder NEW     the server; it submits the job
  RANK=1 ... the same arguments                                                                      the clients
Both ranks must see --folder. Each prints one line of JSON at the end; accuracy and the hash of the final weights are the server's. Two runs with the
same arguments end with the same hash. nvflare_app.py has the training.
"""
import quick  # before a framework

import argparse
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np

import fashion

PROJECT = """api_version: 3
name: lab
description: lab
connection_security: clear
participants:
  - {{name: localhost, type: server, org: lab, fed_learn_port: {port}, admin_port: {admin}}}
{clients}
  - {{name: admin@lab.org, type: admin, org: lab, role: project_admin}}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
    args: {{template_file: [master_template.yml]}}
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {{config_folder: config, scheme: {scheme}}}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--folder", required=True, help="a folder that both ranks see, which does not exist yet")
    p.add_argument("--scheme", choices=["grpc", "tcp", "http"], default="grpc")
    p.add_argument("--clients", type=int, default=2)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--tensors", choices=["numpy", "torch"], default="numpy", help="what the job exchanges; torch needs torch")
    p.add_argument("--transfer", choices=["FULL", "DIFF"], default="FULL", help="clients send weights, or differences")
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--steps", type=int, default=20, help="that a client makes in a round")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--test", type=int, default=1000, help="test images of the final loss and accuracy")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--timeout", type=float, default=120)
    return p.parse_args()


class Job:
    def __init__(self, a):
        self.a = a
        self.root = os.path.abspath(a.folder)
        self.kits = os.path.join(self.root, "ws", "lab", "prod_00")
        self.result = os.path.join(self.root, "result.npz")
        self.sites = ["site-%d" % (i + 1) for i in range(a.clients)]
        self.end = time.monotonic() + a.timeout
        self.processes = []
        self.port = int(os.environ["MASTER_PORT"])
        self.env = dict(os.environ, HOME=self.root, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"], OPENBLAS_NUM_THREADS="1")
        for k in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            self.env.pop(k, None)

    def left(self):
        if self.end < time.monotonic():
            raise SystemExit("the job takes more than %g s" % self.a.timeout)
        return self.end - time.monotonic()

    def provision(self):
        """Makes the kits of all participants, and the job."""
        clients = "\n".join("  - {name: %s, type: client, org: lab}" % n for n in self.sites)
        os.makedirs(self.root)
        with open(os.path.join(self.root, "project.yml"), "w") as f:
            f.write(PROJECT.format(port=self.port, admin=self.port + 1, scheme=self.a.scheme, clients=clients))
        with open(os.path.join(self.root, "provision.log"), "w") as log:
            subprocess.run([sys.executable, "-m", "nvflare.cli", "provision", "-p", "project.yml", "-w", "ws"], cwd=self.root, env=self.env,
                           check=True, stdout=log, stderr=log, timeout=self.left())
        for n in ["localhost"] + self.sites:  # the store of jobs stays in the folder
            local = os.path.join(self.kits, n, "local")
            with open(os.path.join(local, "resources.json.default")) as f:
                text = f.read().replace("/tmp/nvflare/", os.path.join(self.root, "store", ""))
            with open(os.path.join(local, "resources.json"), "w") as f:
                f.write(text)
            os.makedirs(os.path.join(self.kits, n, "transfer"), exist_ok=True)
        self.point(os.path.join(self.kits, "localhost", "startup", "fed_server.json"), "0.0.0.0")  # localhost is not seen from the other site
        for n in self.sites:
            self.point(os.path.join(self.kits, n, "startup", "fed_client.json"), os.environ["MASTER_ADDR"])

    def point(self, name, host):
        """Changes the address of the server in a participant's configuration."""
        with open(name) as f:
            config = json.load(f)
        config["servers"][0]["service"]["target"] = "%s:%d" % (host, self.port)
        with open(name, "w") as f:
            json.dump(config, f)

    def write(self):
        """Writes the job that is submitted."""
        a, app = self.a, os.path.join(self.root, "job", "app")
        o = {"seed": a.seed, "hidden": a.hidden, "steps": a.steps, "batch": a.batch, "lr": a.lr, "clients": a.clients, "tensors": a.tensors,
             "transfer": a.transfer, "result": self.result}
        os.makedirs(os.path.join(app, "config"))
        os.makedirs(os.path.join(app, "custom"))
        for name in ("nvflare_app.py", "fashion.py"):
            shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), os.path.join(app, "custom"))
        kind = "numpy" if a.tensors == "numpy" else "pytorch"

        def write(name, value):
            with open(os.path.join(self.root, "job", name), "w") as f:
                json.dump(value, f)
        write("meta.json", {"name": "lab", "resource_spec": {}, "deploy_map": {"app": ["@ALL"]}, "min_clients": a.clients})
        write("app/config/config_fed_server.json", {
            "format_version": 2, "task_data_filters": [], "task_result_filters": [],
            "workflows": [{"id": "controller", "path": "nvflare.app_common.workflows.fedavg.FedAvg", "args": {
                "num_clients": a.clients, "num_rounds": a.rounds, "persistor_id": "persistor",
                "aggregator": {"path": "nvflare_app.InOrder", "args": {"options": o}}}}],
            "components": [{"id": "persistor", "path": "nvflare_app.Persistor", "args": {"options": o}}]})
        write("app/config/config_fed_client.json", {
            "format_version": 2, "task_data_filters": [], "task_result_filters": [], "components": [],
            "executors": [{"tasks": ["*"], "executor": {"path": "nvflare.app_common.executors.client_api_executor.ClientAPIExecutor", "args": {
                "execution_mode": "in_process", "task_script_path": "nvflare_app.py", "task_script_args": json.dumps(o).encode().hex(),
                "params_exchange_format": kind, "server_expected_format": kind, "params_transfer_type": "FULL"}}}]})

    def start(self, site, module, config, *more):
        log = open(os.path.join(self.root, site + ".log"), "w")
        self.processes.append(subprocess.Popen(
            [sys.executable, "-u", "-m", module, "-m", os.path.join(self.kits, site), "-s", config, "--set", "secure_train=true", *more, "org=lab", "config_folder=config"],
            cwd=os.path.join(self.kits, site), env=self.env, stdout=log, stderr=log, start_new_session=True))

    def mark(self, name):
        """Tells the other rank how far this one is."""
        with open(os.path.join(self.root, name), "w"):
            pass

    def stop(self):
        for how, wait in ((signal.SIGTERM, 1), (signal.SIGKILL, 8)):
            for p in self.processes:
                try:
                    os.killpg(p.pid, how)
                except ProcessLookupError:
                    pass
            for p in self.processes:
                try:
                    p.wait(wait)
                except subprocess.TimeoutExpired:
                    pass

    def tell(self):
        """Writes "step N" to stderr as each round N ends, until the job does."""
        for k in range(self.a.rounds):
            while not os.path.exists("%s.round%d" % (self.result, k)):
                if os.path.exists(os.path.join(self.root, "ended")):
                    return
                time.sleep(0.02)
            print("step %d" % k, file=sys.stderr, flush=True)

    def server(self):
        """Starts the server, submits the job once all clients are there, and waits for its end. It returns the seconds that the job took."""
        self.provision()
        self.write()
        self.start("localhost", "nvflare.private.fed.app.server.server_train", "fed_server.json")
        os.environ["HOME"] = self.root
        from nvflare.fuel.flare_api.flare_api import new_secure_session
        stdout, sys.stdout = sys.stdout, sys.stderr  # where NVFlare prints
        while True:
            try:
                socket.create_connection(("localhost", self.port + 1), 1).close()
                break
            except OSError:  # the server does not listen yet
                self.left()
                time.sleep(0.2)
        session = new_secure_session("admin@lab.org", os.path.join(self.kits, "admin@lab.org"), timeout=self.left())
        self.mark("listens")
        while len(session.get_system_info().client_info) < self.a.clients:
            self.left()
            time.sleep(0.2)
        threading.Thread(target=self.tell, daemon=True).start()
        begin = time.monotonic()
        job = session.submit_job(os.path.join(self.root, "job"))
        _, meta = session.monitor_job_and_return_job_meta(job, timeout=self.left(), poll_interval=0.5)
        took = time.monotonic() - begin
        status = (meta or {}).get("status")
        self.mark("ended")
        sys.stdout = stdout
        if "COMPLETED" not in str(status):
            raise SystemExit("the job ended as %s; see %s" % (status, self.root))
        return took

    def clients(self):
        """Runs the clients until the job has ended."""
        while not os.path.exists(os.path.join(self.root, "listens")):
            self.left()
            time.sleep(0.1)
        for n in self.sites:
            self.start(n, "nvflare.private.fed.app.client.client_train", "fed_client.json", "uid=" + n)
        while not os.path.exists(os.path.join(self.root, "ended")):
            self.left()
            time.sleep(0.1)

    def report(self):
        import nvflare
        import nvflare_app
        with np.load(self.result) as f:
            w = {k: f[k] for k in f.files}
        h = hashlib.sha256()
        for k in sorted(w):
            h.update(w[k].tobytes())
        images, labels = fashion.load("t10k")
        loss, accuracy = fashion.judge(fashion.scores(images[:self.a.test], lambda x: nvflare_app.forward(w, x)[1]), labels[:self.a.test])
        return {"job": "nvflare", "version": nvflare.__version__, "world": self.a.clients, "parameters": sum(v.size for v in w.values()),
                "dense_bytes": sum(v.nbytes for v in w.values()), "steps": self.a.rounds, "loss": loss, "accuracy": accuracy, "weights_sha256": h.hexdigest()}


def main():
    a = arguments()
    rank, job, begin, took = int(os.environ["RANK"]), Job(a), time.monotonic(), 0
    quick.joins()
    try:
        if rank == 0:
            took = job.server()
        else:
            job.clients()
    finally:
        job.stop()
    print(json.dumps({**job.report(), "seconds": took or time.monotonic() - begin}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
