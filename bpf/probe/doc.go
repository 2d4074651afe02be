// Package probe finds out which code of a training process calls each collective.
//
// The wire of a ring all-reduce does not tell gradients from anything else that a job may sum. The process does:
// PyTorch exports the functions that call the collectives, and uprobes, programs that the kernel runs at the entry of a
// function, see them in an unchanged job. They read a few words of the job's memory and change nothing:
//
//	c10d::Reducer::all_reduce_bucket    DistributedDataParallel is about to sum a bucket of gradients: its tensor
//	c10d::Reducer::~Reducer()           the buckets are freed; c10d::Reducer::initialize_buckets makes them anew
//	c10d::ProcessGroupGloo::allreduce   an all-reduce of anybody: its memory, size, type, operator and tag
//	c10d::ProcessGroupGloo()            a new process group, with its number of ranks, and the end of one
//	c10d::ProcessGroupGloo::connectContexts   a group is connected, perhaps anew and to other members
//	c10d::ProcessGroupGloo::broadcast, barrier and so on   every other method that takes a tag is counted
//
// An all-reduce is a bucket's if it is the first on its thread after all_reduce_bucket, and sums the bucket's own
// tensor. Not proved are sums by a comm hook in memory of its own, reduce-scatters by FSDP's Python code, and
// collectives of other libraries.
//
// Where PyTorch keeps the parts of its objects differs from release to release. Each known layout is read, and the
// reader of a [Call] compares it with the wire, which contradicts the wrong ones.
//
// The tag that a call gets is on the wire. A process group counts tags; the machine code of
// c10d::ProcessGroupGloo::nextTag tells where its counter is. The programs read it before the call, and the reader of a
// Call reads it again. The thread takes the tag only later: another thread may call in between, and take that tag. So
// the programs count the tags that all calls take which have entered a method of the group. If the counter was behind
// before a call was counted, some call has no tag yet, and nothing is known of the calls at hand, nor of any call that
// was about to get a tag from the counter's to the count. If there are more than eight of these, all calls of the group
// so far are forgotten. A call that fails takes no tag: the next call of its thread finds that out, unless a tag was
// given in between, or the thread has called on another group since; then the counter stays behind, and the group
// proves nothing any more. A counter that is ahead shows that calls were not counted. They are added to the count, and
// the calls that have come before that are in doubt too. If two threads find several such calls at the same time, both
// may add them; then the counter stays behind as well.
//
// A call is not counted if no program knows its function, or if the kernel has skipped the program, as it does where
// one would interrupt another. If the group has given it a tag, nothing is known of it. As long as it has no tag, a
// call that comes after it may be noted under the tag that it then takes; if both also have the same size and type, the
// one is taken for the other. No case of it was seen.
//
// Buckets of a process live as long as no reducer was destroyed and none has made its buckets anew. A call has the
// number of times that this has happened, so that a bucket of one process group can be known again in the next: torchft
// makes its groups anew while its buckets stay. It also has the process's rank in the group, which says which part of
// the bucket a message holds. The rank is an argument of the constructor; of older groups it is read from the object.
//
// A process has entries for 64 groups. A new group takes a free entry, or else one in turn. If the group that had it
// calls again it is as new, and its number of ranks is not known any more.
//
// Another process than the one that loads the programs can read the newest calls, without capabilities and in some 0.1
// µs ([Recent]): the programs write them to memory that it maps. Where the memory does not tell the whole answer, as
// for a process with several groups, it has to ask the process that has loaded the programs.
//
// A call is kept once: in that memory if its process has one group, which takes 0.2 µs less than in an LRU map of the
// kernel, and otherwise in such a map. In the memory a later call takes its room, of the same process or of another
// one; then nothing is known of it. A tag that several calls have expected is in both, as one of whose call nothing is
// known. That several have expected it shows in the group's count, and the programs need not look for the call.
//
// It needs Linux 5.15 on amd64 or arm64, and CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE.
package probe

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target amd64,arm64 -type recent_call probe probe.c -- -mcpu=v3 -O2 -g -Wall -Wextra -Werror
