"""The processes of a job that have roles, as the environment names them, and how they end together.

NODES is an array of JSON objects with the role, host and first port of each process, and NODE is this process's place in it. Servers of some
frameworks never end by themselves: one that is given --end FILE ends once that file is there, which the process that trains makes when it is done. All
processes see the file, so that nothing of this crosses the network.
"""
import json
import os
import time

ALL = json.loads(os.environ["NODES"])
NUMBER = int(os.environ["NODE"])
SELF = ALL[NUMBER]
ROLE = SELF["role"]


def of(role):
    """The processes of a role, in their order."""
    return [n for n in ALL if n["role"] == role]


def index():
    """The place of this process among those of its role, from 0."""
    return of(ROLE).index(SELF)


def address(node, port=0):
    return "%s:%d" % (node["host"], node["port"] + port)


def arguments(p):
    p.add_argument("--end", metavar="FILE", required=True, help="the processes that never end by themselves end once this file is there")


def end(a):
    """Ends the processes that wait."""
    with open(a.end, "w"):
        pass


def wait(a, also=lambda: False):
    """Waits for the end, or until also() says that it need not."""
    while not os.path.exists(a.end) and not also():
        time.sleep(0.1)


def listens(a):
    """Tells the others that this process's server listens."""
    with open("%s.%d" % (a.end, NUMBER), "w"):
        pass


def join(a, role):
    """Waits until the servers of all processes of a role listen: some frameworks wait for many seconds after a refused connection."""
    while not all(os.path.exists("%s.%d" % (a.end, i)) for i, n in enumerate(ALL) if n["role"] == role):
        time.sleep(0.05)


def finish(job, **line):
    print(json.dumps(dict(job=job, role=ROLE, **line)), flush=True)
