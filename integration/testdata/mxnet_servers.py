"""Parts of an optimizer that MXNet's servers run. A server unpickles them while it imports mxnet, of which it never has more than the
modules that are imported here."""
from mxnet import lr_scheduler, optimizer

import clock


class AdamW(optimizer.Adam):
    """Adam with weight decay beside it, which MXNet has as an operator only."""

    def __init__(self, weight_decay, **more):
        super().__init__(**more)
        self.weight_decay = weight_decay

    def update(self, index, weight, grad, state):
        super().update(index, weight, grad, state)
        weight *= 1 - self._get_lr(index) * self.weight_decay


class Falling(lr_scheduler.LRScheduler):
    """A learning rate that falls to 0 as rank 0 tells the time."""

    def __init__(self, base_lr, folder):
        super().__init__(base_lr)
        self.first, self.folder = base_lr, folder  # an optimizer sets base_lr

    def __call__(self, update):  # counted from 1
        return self.first * (1 - clock.told(self.folder, max(update - 1, 0)))
