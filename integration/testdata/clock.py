"""How far a training is: by its steps, or by the time, which rank 0 tells the other ranks.

With --seconds a training ends after a time and not after a number of steps. All ranks must end after the same step and use
the same learning rate in each, so only rank 0 looks at a clock: before each step it writes how much of the time is over to
a file, and the other ranks wait for that file. Its folder is one that all ranks see, so that nothing crosses the network.
"""
import itertools
import os
import time


def arguments(p):
    p.add_argument("--decay", action="store_true", help="the learning rate falls to 0 over the training, evenly")
    p.add_argument("--seconds", type=float, help="end that many seconds after the first step, in which frameworks compile, and not after --steps")
    p.add_argument("--clock", metavar="FOLDER", help="an empty folder that all ranks see, for --seconds: rank 0 tells the time there")


def told(folder, step):
    """What rank 0 has told before this step. It waits for that."""
    while True:
        try:
            with open(os.path.join(folder, str(step))) as f:
                return float(f.read())
        except FileNotFoundError:
            time.sleep(0.0005)


class Clock:
    """The steps of a training. a: the program's arguments."""

    def __init__(self, a, rank):
        if a.seconds and not a.clock:
            raise SystemExit("--seconds %g: needs --clock FOLDER" % a.seconds)
        self.a, self.rank, self.start = a, rank, None

    def __iter__(self):
        """Each step, and how much of the training is done before it: from 0 to below 1."""
        if not self.a.seconds:
            for step in range(self.a.steps):
                yield step, step / self.a.steps
            return
        for step in itertools.count():
            done = self.tell(step) if self.rank == 0 else told(self.a.clock, step)
            if done >= 1:
                return
            yield step, done

    def tell(self, step):
        if step == 1:
            self.start = time.perf_counter()
        done = (time.perf_counter() - self.start) / self.a.seconds if step else 0.0
        name = os.path.join(self.a.clock, str(step))
        with open(name + ".part", "w") as f:
            f.write(repr(done))
        os.rename(name + ".part", name)  # nobody sees half of it
        return done

    def rate(self, done):
        """The learning rate there."""
        return self.a.lr * (1 - done) if self.a.decay else self.a.lr
