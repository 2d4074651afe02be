"""A job of Flower that knows nothing of proxies: flower_app.py, a server and its clients.

One process for each node (nodes.py), with the roles server and client:
  NODES='[{"role": "server", "host": "127.0.0.1", "port": 20000}, {"role": "client", "host": "127.0.0.1", "port": 20010}]' NODE=0 \
    python3 flower_job.py --mode join --end /tmp/end

Modes
  join   start_server and start_client: one gRPC stream for each client
  fleet  flower-superlink with "flwr run", and flower-supernode: gRPC up to Flower 1.39, HTTP from 1.40 on

Every process writes one JSON line to stdout at its end, the server's with the hash of the weights. Two runs with the same arguments and numpy end with the same
hash, whatever the mode and the release.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib import metadata

import flower_app
import nodes

VERSION = metadata.version("flwr")
RELEASE = tuple(int(n) for n in VERSION.split(".")[:2])
OVER_HTTP = RELEASE >= (1, 40)
PROGRAMS = os.path.dirname(sys.executable)

# Where an app of Flower says what it is.
PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "app"
version = "1.0.0"
description = "an MLP"
license = {{ file = "LICENSE" }}
dependencies = ["flwr>={release}"]
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "nobody"
fab-format-version = 1
flwr-version-target = "{release}"
[tool.flwr.app.components]
serverapp = "flower_app:server_app"
clientapp = "flower_app:client_app"
[tool.flwr.app.config]
{config}
[tool.flwr.federations]
default = "here"
[tool.flwr.federations.here]
address = "{control}"
insecure = true
"""
CONNECTIONS = """
[superlink]
default = "here"
[superlink.here]
address = "{control}"
insecure = true
"""


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=["join", "fleet"], default="join")
    for name, value in flower_app.DEFAULTS.items():
        if name not in ("clients", "result"):
            p.add_argument("--" + name, type=type(value), default=value)
    p.add_argument("--steps", type=int, help="ignored")
    p.add_argument("--timeout", type=float, default=170, help="seconds after which the job has failed")
    nodes.arguments(p)
    a = p.parse_args()
    a.clients = len(nodes.of("client"))
    return a


class Programs:
    """Flower's own programs, with a home of their own. All that they start ends with them."""

    def __init__(self):
        self.home = tempfile.mkdtemp(prefix="flower")
        self.mark = "FLWR_HOME=" + os.path.join(self.home, "home")
        self.all = []
        self.env = dict(os.environ, FLWR_HOME=os.path.join(self.home, "home"), FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1",
                        OPENBLAS_NUM_THREADS="1", PYTHONUNBUFFERED="1", PATH=PROGRAMS + os.pathsep + os.environ["PATH"])
        for name in "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY":  # which Flower would dial
            self.env.pop(name, None)
        os.makedirs(os.path.join(self.home, "home"))

    def start(self, name, *arguments):
        self.all.append(subprocess.Popen([os.path.join(PROGRAMS, name), *arguments], env=self.env, cwd=self.home, stdout=sys.stderr))

    def running(self):
        return all(p.poll() is None for p in self.all)

    def end(self):
        for p in self.all:
            p.send_signal(signal.SIGINT)
        try:
            for p in self.all:
                p.wait(5)
        except subprocess.TimeoutExpired:
            pass
        for pid in filter(str.isdigit, os.listdir("/proc")):  # apps have sessions of their own
            try:
                with open("/proc/%s/environ" % pid, "rb") as f:
                    if self.mark.encode() in f.read().split(b"\0"):
                        os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass
        shutil.rmtree(self.home, ignore_errors=True)


def known(option):
    """Whether a program of this release shows an option to its users: one that is hidden may be there to be refused. The source says so; --help would take
    seconds, for it loads all of Flower."""
    folder = importlib.util.find_spec("flwr").submodule_search_locations[0]
    for path in pathlib.Path(folder).rglob("*.py"):
        if any(a.lstrip().startswith('"%s"' % option) and "SUPPRESS" not in a for a in path.read_text(encoding="utf-8").split("add_argument(")[1:]):
            return True
    return False


def reachable(host, port, until):
    while time.monotonic() < until:
        try:
            socket.create_connection((host, port), 1).close()
            return True
        except OSError:
            time.sleep(0.1)
    return False


def app(a, folder, control, config):
    """Writes the app, which is trained."""
    os.makedirs(folder)
    here = os.path.dirname(os.path.abspath(__file__))
    for name in "flower_app.py", "fashion.py":
        shutil.copy(os.path.join(here, name), folder)
    with open(os.path.join(folder, "LICENSE"), "w") as f:
        f.write("Apache-2.0\n")
    lines = "\n".join("%s = %s" % (k, json.dumps(v)) for k, v in config.items())
    with open(os.path.join(folder, "pyproject.toml"), "w") as f:
        f.write(PYPROJECT.format(release=VERSION, config=lines, control=control))


def superlink(a, config, until):
    """The server of mode fleet."""
    own, programs = nodes.SELF, Programs()
    host, fleet, web = own["host"], own["port"], own["port"] + 1
    try:
        options = ["--insecure"]
        if known("--disable-runtime-dependency-installation"):
            options.append("--disable-runtime-dependency-installation")
        control = "%s:%d" % (host, fleet if OVER_HTTP else web)
        if OVER_HTTP:
            options += ["--host", host, "--port", str(fleet)]
        else:
            options += ["--fleet-api-address", "%s:%d" % (host, fleet)]
            if known("--host"):
                options += ["--host", host, "--port", str(web)]
            else:  # the control interface is gRPC's
                options += ["--exec-api-address" if known("--exec-api-address") else "--control-api-address", control]
        programs.start("flower-superlink", *options)
        with open(os.path.join(programs.home, "home", "config.toml"), "w") as f:
            f.write(CONNECTIONS.format(control=control))
        app(a, os.path.join(programs.home, "app"), control, config)
        if not (reachable(host, fleet, until) and reachable(host, int(control.rsplit(":", 1)[1]), until)):
            return
        began = time.monotonic()
        subprocess.run([os.path.join(PROGRAMS, "flwr"), "run", os.path.join(programs.home, "app"), "here"], env=programs.env, cwd=programs.home, stdout=sys.stderr,
                       check=True)
        while not os.path.exists(config["result"]) and programs.running() and time.monotonic() < until:
            time.sleep(0.2)
        finish(config, began)
    finally:
        nodes.end(a)
        time.sleep(3)  # clients say that they leave
        programs.end()


def finish(config, began):
    """Reports what the last round has learnt, if there is something."""
    if os.path.exists(config["result"]):
        with open(config["result"]) as f:
            nodes.finish("flower", version=VERSION, world=config["clients"], steps=config["rounds"], seconds=time.monotonic() - began, **json.load(f))


def supernode(a, until):
    """A client of mode fleet."""
    own, server, programs = nodes.SELF, nodes.of("server")[0], Programs()
    try:
        reachable(server["host"], server["port"], until)
        option = ["--port", str(own["port"])]
        if known("--clientappio-api-address"):
            option = ["--clientappio-api-address", "127.0.0.1:%d" % own["port"]]
        programs.start("flower-supernode", "--insecure", "--superlink", nodes.address(server), "--node-config",
                       "partition-id=%d num-partitions=%d" % (nodes.index(), a.clients), *option)
        nodes.wait(a, also=lambda: not programs.running() or time.monotonic() > until)
    finally:
        programs.end()
    nodes.finish("flower", version=VERSION)


def main():
    a = arguments()
    until = time.monotonic() + a.timeout
    config = {name: getattr(a, name) for name in flower_app.DEFAULTS if name != "result"}
    config["result"] = a.end + ".result"
    server = nodes.of("server")[0]
    if a.mode == "fleet":
        superlink(a, config, until) if nodes.ROLE == "server" else supernode(a, until)
        return
    import flwr
    began = time.monotonic()
    if nodes.ROLE == "server":
        flwr.server.start_server(server_address=nodes.address(server), config=flwr.server.ServerConfig(num_rounds=a.rounds), strategy=flower_app.strategy(config))
        finish(config, began)
        return
    reachable(server["host"], server["port"], until)
    flwr.client.start_client(server_address=nodes.address(server), client=flower_app.client(config, nodes.index()))
    nodes.finish("flower", version=VERSION)


main()
