"""Process N of three of a JAX job: python3 meshes.py N. In each of four meshes it sums up 10 elements of 4 bytes, three times."""
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

process = int(sys.argv[1])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize("127.0.0.1:29500", 3, process)
for members in [0, 1], [1, 2], [2, 0], [0, 1, 2]:
    if process not in members:
        continue
    mesh, cut = Mesh(np.array([jax.devices()[i] for i in members]), ("ranks",)), PartitionSpec("ranks")
    add = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "ranks"), mesh=mesh, in_specs=(cut,), out_specs=PartitionSpec()))
    mine = np.full((1, 10), process + 1, np.float32)
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, cut), mine, (len(members), 10))
    for _ in range(3):
        y = add(x)
    print(process, members, np.asarray(y.addressable_data(0))[0])
jax.distributed.shutdown()
