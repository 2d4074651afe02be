"""Lets a job of seconds start and end fast. It is imported before a framework, whose modules are some hundred thousand objects that live
as long as the process: to look for garbage among them again and again takes longer than such a job's training.

With RANKS_JOIN=stdin in the environment the ranks of a job also start at once. Each writes "joins" to stderr when its modules are loaded, and
joins the others when its stdin ends: the program that started the ranks says which one comes first, and no rank waits for another's modules.

With RANKS_BEGIN=FILE in the environment they begin to train once there is such a file: a real job loads its data meanwhile, which takes longer than proxies
need to attach probes to its processes.
"""
import gc
import os
import sys
import time

gc.set_threshold(100_000)  # new objects after which the collector looks for garbage; Python's own threshold is 700


def joins():
    """Called when the modules are loaded, before the rank joins the others."""
    gc.freeze()
    if os.environ.get("RANKS_JOIN") == "stdin":
        print("joins", file=sys.stderr, flush=True)
        sys.stdin.read()


def begins():
    """Called when the rank has joined the others, before its first step."""
    file = os.environ.get("RANKS_BEGIN")
    while file and not os.path.exists(file):
        time.sleep(0.01)


def ends():
    """Called at the end of the program. The interpreter then looks for garbage three times, and finds none among frozen objects."""
    gc.freeze()
