"""Keeps what each rank puts into collectives and gets out of them, so that someone who knows neither the framework nor
what lies between the ranks can add it up: K.OPERATION.RANK.in and .out in a folder, raw little-endian bytes, K from 0.
OPERATION is sum, gather, or gradients.
"""
import contextlib
import os


class Recorder:
    """Without a folder it keeps nothing."""

    def __init__(self, folder, rank):
        self.folder, self.rank, self.count = folder, rank, 0
        self.sum = "sum"

    @contextlib.contextmanager
    def of(self, operation):
        """Sums are of this operation meanwhile."""
        self.sum, before = operation, self.sum
        yield
        self.sum = before

    def keep(self, operation, given, result):
        """given and result: bytes. operation: as above."""
        if not self.folder:
            return
        name = os.path.join(self.folder, "%d.%s.%d." % (self.count, operation, self.rank))
        for end, data in (("in", given), ("out", result)):
            with open(name + end, "wb") as f:
                f.write(data)
        self.count += 1

    def watch_torch(self):
        """Keeps the collectives that Python code calls by torch.distributed's names. DistributedDataParallel calls its own
        from C++, which are not seen; but its hooks, which ask for sums of gradients as the backward pass goes on, are."""
        if not self.folder:
            return
        import torch.distributed as dist

        def raw(tensor):
            return tensor.detach().contiguous().numpy().tobytes()

        def all_reduce(call):
            def recorded(tensor, *args, **kwargs):
                given = raw(tensor)
                work = call(tensor, *args, **kwargs)
                if work is not None:
                    work.wait()
                self.keep("gradients" if kwargs.get("async_op") else self.sum, given, raw(tensor))
                return work
            return recorded

        def all_gather(call):
            def recorded(output, tensor, *args, **kwargs):
                given = raw(tensor)  # now, for it may be a part of output
                work = call(output, tensor, *args, **kwargs)
                if work is not None:
                    work.wait()
                self.keep("gather", given, raw(output))
                return work
            return recorded

        for name, wrap in ("all_reduce", all_reduce), ("all_gather_into_tensor", all_gather), ("all_gather_single", all_gather):
            if hasattr(dist, name):
                setattr(dist, name, wrap(getattr(dist, name)))
