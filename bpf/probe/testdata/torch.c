// A library with the functions of libtorch_cpu.so that are probed, and with its objects: STORAGE, ELEMENTS, TYPE, OP and MEMBERS are where
// a release of PyTorch keeps their parts.

#include <string.h>
#include <unistd.h>

#include "torch.h"

#define ALLREDUCE _ZN4c10d16ProcessGroupGloo9allreduceERSt6vectorIN2at6TensorESaIS3_EERKNS_16AllreduceOptionsE
#define NEXT_TAG _ZN4c10d16ProcessGroupGloo7nextTagEv
#define ALL_REDUCE_BUCKET _ZN4c10d7Reducer17all_reduce_bucketERNS0_6BucketE
#define END_REDUCER _ZN4c10d7ReducerD1Ev
#define NEW_BUCKETS _ZN4c10d7Reducer18initialize_bucketsESt6vectorIS1_ImSaImEESaIS3_EE
#define NEW_GROUP                                                                                                                                  \
	_ZN4c10d16ProcessGroupGlooC1ERKN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_default_null_typeIS3_EEEEiiNS2_INS0_7OptionsENS5_ISA_EEEE
#define CONNECT _ZN4c10d16ProcessGroupGloo15connectContextsEiiRKN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_default_null_typeIS3_EEEE
#define END_GROUP _ZN4c10d16ProcessGroupGlooD1Ev
#define BROADCAST _ZN4c10d16ProcessGroupGloo9broadcastERSt6vectorIN2at6TensorESaIS3_EERKNS_16BroadcastOptionsE
#define MONITORED_BARRIER _ZN4c10d16ProcessGroupGloo16monitoredBarrierERKNS_14BarrierOptionsEb
#define REDUCE_SCATTER _ZN4c10d16ProcessGroupGloo21reduce_scatter_singleERN2at6TensorES3_RKNS_20ReduceScatterOptionsE

void set_tensor(struct tensor *t, unsigned long storage, unsigned long elements, unsigned char type)
{
	*(unsigned long *)(t->bytes + STORAGE) = storage;
	*(unsigned long *)(t->bytes + ELEMENTS) = elements;
	t->bytes[TYPE] = type;
	t->bytes[0] = GOES;
}

__attribute__((noinline)) unsigned NEXT_TAG(struct group *g) { return g->tag++; }

unsigned unseen(struct group *g) { return NEXT_TAG(g); }

struct work { // returned in memory, as objects of C++ are
	long words[4];
};

__attribute__((noinline)) struct work ALLREDUCE(struct group *g, struct tensor ***tensors, unsigned char *options)
{
	(void)options;
	volatile unsigned char *bytes = tensors[0][0]->bytes;
	while (bytes[0] == WAITS) {
		bytes[1] = 1;
		usleep(100);
	}
	if (bytes[0] == FAILS)
		return (struct work){{0}};
	return (struct work){{NEXT_TAG(g)}};
}

unsigned allreduce(struct group *g, struct tensor *t, int op)
{
	unsigned char options[64];
	memset(options, 1, sizeof(options)); // another operator than most calls'
	options[OP] = op;
	struct tensor *list[1] = {t}, **vector[2] = {list, list + 1};
	return ALLREDUCE(g, vector, op < 0 ? (unsigned char *)64 : options).words[0]; // options that nobody can read
}

__attribute__((noinline)) void ALL_REDUCE_BUCKET(void *reducer, struct tensor **bucket)
{
	void *volatile use[2] = {reducer, bucket}; // so that it begins as in PyTorch: with a push
	(void)use;
}

void all_reduce_bucket(struct tensor *t) { ALL_REDUCE_BUCKET(0, &t); }

__attribute__((noinline)) static void twin_of_bucket(void *reducer, struct tensor **bucket)
{
	void *volatile use[2] = {reducer, bucket};
	(void)use;
}

__attribute__((noinline)) static struct work twin_of_allreduce(struct group *g, struct tensor ***tensors, unsigned char *options)
{
	void *volatile use[2] = {tensors, options};
	(void)use;
	g->tag--; // which the probed function counts
	return (struct work){{NEXT_TAG(g)}};
}

void twins(struct group *g, struct tensor *t)
{
	unsigned char options[64];
	memset(options, 1, sizeof(options));
	struct tensor *list[1] = {t}, **vector[2] = {list, list + 1};
	twin_of_bucket(0, &t);
	twin_of_allreduce(g, vector, options);
}

#ifdef WORK // for a benchmark alone: a compiler takes seconds for it
// 768 functions, more than fit into the cache of the first level.
static volatile unsigned long state;
#define PART(n)                                                                                                                                    \
	__attribute__((noinline)) static void part##n(void)                                                                                        \
	{                                                                                                                                          \
		unsigned long x = state;                                                                                                           \
		for (int i = 0; i < 4; i++)                                                                                                        \
			x = x & 1 ? x * (2 * n + 1) + i : (x >> 1) ^ (n << i);                                                                     \
		state = x + n;                                                                                                                     \
	}
#define FOUR(f, n) f(n##0) f(n##1) f(n##2) f(n##3)
#define SIXTEEN(f, n) FOUR(f, n##0) FOUR(f, n##1) FOUR(f, n##2) FOUR(f, n##3)
#define MANY(f, n) SIXTEEN(f, n##0) SIXTEEN(f, n##1) SIXTEEN(f, n##2) SIXTEEN(f, n##3)
#define ALL(f) MANY(f, 10) MANY(f, 11) MANY(f, 12) MANY(f, 13) MANY(f, 20) MANY(f, 21) MANY(f, 22) MANY(f, 23) MANY(f, 30) MANY(f, 31) MANY(f, 32) MANY(f, 33)
ALL(PART)
#define CALL(n) part##n();
void work(void) { ALL(CALL) }
#else
void work(void) { _exit(1); }
#endif

__attribute__((noinline)) void END_REDUCER(void *reducer)
{
	void *volatile use = reducer;
	(void)use;
}

void end_reducer(void) { END_REDUCER(0); }

__attribute__((noinline)) void NEW_BUCKETS(void *reducer, void *indices)
{
	void *volatile use[2] = {reducer, indices};
	(void)use;
}

void new_buckets(void) { NEW_BUCKETS(0, 0); }

__attribute__((noinline)) void NEW_GROUP(struct group *g, void *store, int rank, int size, void *options)
{
	(void)store, (void)options;
	*(int *)(g->other + MEMBERS) = rank;
	*(int *)(g->other + MEMBERS + 4) = size;
	g->tag = 0;
}

void new_group(struct group *g, int size, int rank) { NEW_GROUP(g, 0, rank, size, 0); }

__attribute__((noinline)) void CONNECT(struct group *g, int rank, int size, void *store)
{
	(void)store;
	*(int *)(g->other + MEMBERS) = rank;
	*(int *)(g->other + MEMBERS + 4) = size;
	g->tag = 0;
}

void connect_group(struct group *g, int size, int rank) { CONNECT(g, rank, size, 0); }

__attribute__((noinline)) void END_GROUP(struct group *g) { g->tag = 0; }

void end_group(struct group *g) { END_GROUP(g); }

__attribute__((noinline)) struct work REDUCE_SCATTER(struct group *g) { return (struct work){{NEXT_TAG(g)}}; }

__attribute__((noinline)) struct work BROADCAST(struct group *g) { return (struct work){{NEXT_TAG(g)}}; }

unsigned broadcast(struct group *g) { return BROADCAST(g).words[0]; }

__attribute__((noinline)) unsigned MONITORED_BARRIER(struct group *g)
{
	NEXT_TAG(g);
	return NEXT_TAG(g);
}

unsigned monitored_barrier(struct group *g) { return MONITORED_BARRIER(g); }

unsigned reduce_scatter(struct group *g) { return REDUCE_SCATTER(g).words[0]; }

#ifdef OLD
void _ZN4c10d12ProcessGroup4Work4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE(void) {}
#endif
