"""Lets torch 2 train without its compiler, with TORCH_COMPILER=no in the environment. It is imported before torch.

A job here compiles nothing. Yet torch loads what describes its operations to the compiler at once, and the compiler itself as soon as a
program uses DistributedDataParallel or an optimizer, only for these to ask it to leave them alone: more than a thousand modules, which take
longer than the job's training and all of the rest of torch. What is imported in their place leaves everything alone. Collectives, gradients
and optimizers are torch's own. Modes fsdp and postlocal use more of these modules, and so load all of them.
"""
import functools
import os
import sys
import types


def disable(fn=None, recursive=True, **_):
    """What the compiler must not touch is called as it is."""
    return fn if fn is not None else functools.partial(disable, recursive=recursive)


def stand_in(name, **contents):
    """Has name imported as a package of these contents."""
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__, module.__path__ = __file__, []
    vars(module).update(contents)
    return module


def leave_out():
    inline = types.SimpleNamespace(cache_clear=lambda: None)
    stand_in("torch._dynamo", disable=disable, graph_break=lambda: None,
             utils=stand_in("torch._dynamo.utils", get_optimize_ddp_mode=lambda: "no_optimization"),
             trace_rules=stand_in("torch._dynamo.trace_rules", LEGACY_MOD_INLINELIST=set(), get_legacy_mod_inlinelist=inline,
                                  clear_lru_cache=lambda: None))
    stand_in("torch._meta_registrations")
    stand_in("torch.export")


if os.environ.get("TORCH_COMPILER") == "no" and not {"fsdp", "postlocal"} & set(sys.argv):
    leave_out()
