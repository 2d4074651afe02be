#!/usr/bin/env bash
# Records the captures of this folder: real jobs of integration/testdata with two workers, on loopback in a network namespace of their own, and
# the line that the job prints at its end as the truth. It takes root, tcpdump, and the frameworks of integration/env/install.sh.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
jobs=$(cd "$folder/../../../../../integration/testdata" && pwd)
frameworks=${GRADPROXY_ENV:-$HOME/.cache/gradproxy/env}

# record NAME COMMAND...: runs the command, whose output is the truth, and captures.
record() {
	local name=$1 namespace=record-$1-$$ watcher
	shift
	ip netns add "$namespace"
	ip -n "$namespace" link set lo up
	ip netns exec "$namespace" tcpdump -i lo -s 0 -B 65536 -w "$folder/$name.pcap" tcp 2>/dev/null &
	watcher=$!
	sleep 1
	ip netns exec "$namespace" "$@" | tail -n 1 >"$folder/$name.json"
	sleep 1
	kill -INT "$watcher"
	wait "$watcher" || true
	ip netns del "$namespace"
	gzip -9nf "$folder/$name.pcap"
}

# ranks COMMAND...: two ranks. It prints the line of rank 0.
ranks() {
	export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
	RANK=1 "$@" >/dev/null 2>&1 &
	RANK=0 "$@" 2>/dev/null
	wait $!
}

# servers COMMAND...: a scheduler, a server and two workers of ps-lite. It prints the line of a worker.
servers() {
	export DMLC_NUM_SERVER=1 DMLC_NUM_WORKER=2 DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=9000 DMLC_NODE_HOST=127.0.0.1 OMP_NUM_THREADS=1
	for role in scheduler server worker; do
		DMLC_ROLE=$role "$@" >/dev/null 2>&1 &
	done
	DMLC_ROLE=worker "$@" 2>/dev/null
	wait
}
export -f ranks servers

record torch113 bash -c 'ranks "$@"' _ /usr/bin/python3 "$jobs/torch_job.py" --hidden 8 --steps 8
record torch215 bash -c 'ranks "$@"' _ "$frameworks/torch215/bin/python3" "$jobs/torch_job.py" --hidden 8 --steps 8
record jax bash -c 'ranks "$@"' _ "$frameworks/jax/bin/python3" "$jobs/jax_job.py" --hidden 8 --steps 8
record mxnet bash -c 'servers "$@"' _ "$frameworks/mxnet/bin/python3" "$jobs/mxnet_job.py" --hidden 8,8 --steps 6
