//go:build ignore

// Programs that run at the entry of functions of libtorch_cpu.so, and note the callers of all-reduces: doc.go tells the proof.
// They read the job's memory and change nothing in it. None runs at the return of a function: that would end a process whose function
// throws, since unwinding does not know the kernel's return address.

#include "../headers/bpf.h"
#include "registers.h"

static long (*bpf_probe_read_user)(void *dst, __u32 size, const void *src) = (void *)112;
static __u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static __u64 (*bpf_get_attach_cookie)(void *context) = (void *)174;
static long (*bpf_get_ns_current_pid_tgid)(__u64 device, __u64 inode, void *ids, __u32 size) = (void *)120;

// The PID namespace in which the reader numbers processes, a file of nsfs; 0: the host's first one, whose numbers the kernel has too.
volatile const __u64 namespace_device;
volatile const __u64 namespace_inode;

enum { BPF_NOEXIST = 1 };

// A layout says where a build of torch keeps the parts of its objects. Which one is right is not known here: each is
// read, and the reader compares them with the wire. They differ in the reference counts of c10::intrusive_ptr_target, with
// which each object begins, and in what c10::TensorImpl says of its Python object: each is one word, or two.
struct layout {
	__u32 storage;	// in c10::TensorImpl: the object that owns the memory
	__u32 elements; // in c10::TensorImpl: their number
	__u32 type;	// in c10::TensorImpl: c10::ScalarType
	__u32 op;	// in c10d::AllreduceOptions: c10d::ReduceOp::RedOpType, but for old releases
};
#define LAYOUTS 3
#define TORCH_2_15 ((struct layout){16, 152, 160, 16}) // 2.13 to 2.15
#define TORCH_1_13 ((struct layout){24, 168, 176, 24}) // 1.12 to 2.2, but for the operator in 1.12: see op_first
#define TORCH_2_5 ((struct layout){16, 160, 168, 16})  // 2.3 to 2.12

// The bytes of an object that hold the parts of all layouts are read at once: a read costs more than a few cache lines.
#define TENSOR_BEGIN 16
#define TENSOR_BYTES 161
#define OPTIONS_BYTES 25
struct objects {
	__u8 tensor[(TENSOR_BYTES + 7) & ~7];
	__u8 options[(OPTIONS_BYTES + 7) & ~7];
};

// A group is an object of class c10d::ProcessGroupGloo.
struct group {
	__u64 object; // its address; 0: a free place; CHANGING: another group is taking the place
	// In the upper half the tag after the ones that all calls get that have entered its methods. In the lower half its generation, which tells it from
	// the process's other groups, also from earlier ones at this address, and from itself before its calls were forgotten.
	__u64 expected;
	__u32 size;   // ranks; 0: its construction was not seen
	__u32 first;  // tag from which on its all-reduces are noted
	__u64 members[2]; // the process's rank in it, and above that the ranks, where a layout with one word of reference counts has them, and with two
};
#define CHANGING 1
#define MEMBERS_ONE 16
#define MEMBERS_TWO 24

// A thread may be about to sum a bucket, and has entered a method of a group that gives tags. Another thread may take the place at any time, so each of the last two words names its thread.
struct thread {
	__u64 id;     // process and thread, which is about to sum a bucket
	__u64 tensor; // of the bucket; 0: none
	__u64 tag;    // which a group was about to give to the thread's last call, with the thread's number above it
	__u64 group;  // of that call: its generation, above the thread's number (30 bits) and the number of tags that the call takes (2 bits)
};

// A process is one that the reader has named. Of others nothing is noted. It has the groups that live, or some of them if there are
// too many. A thread has a place by its number. If it loses it to another one, it sums no bucket as far as is known.
#define PROCESSES 512
#define GROUPS 64
#define THREADS 16
struct process {
	__u32 epoch;	   // the reader's name of the process, which no other process ever has
	__u32 library;	   // the reader's name of the library that the process has mapped
	__u32 counter;	   // where a group keeps its next tag
	__u32 generations; // given to groups
	__u32 reduces;	   // all-reduces
	__u32 buckets;	   // all-reduces of a bucket's own memory, in some layout
	__u32 reducer_buckets; // buckets that DistributedDataParallel was about to sum, in whatever way
	__u32 others;	   // other collectives that look like all-reduces on the wire
	__u32 last;	   // place of the group that has called last
	__u32 freed;	   // times at which buckets were freed, or were about to be
	__u32 op_first;	   // 1: the layout is that of 1.12, where c10d::ReduceOp is a number, the first byte of c10d::AllreduceOptions; 0: an object, as layouts have it
	__u32 place;	   // in struct recent, which no other process has now
	__u64 alone;	   // changes of its groups after which it had one group
	struct thread threads[THREADS];
	struct group groups[GROUPS];
};

struct call_key {
	__u32 epoch;
	__u32 generation;
	__u32 tag;
};

// A sum is the tensor of an all-reduce, as a layout shows it.
struct sum {
	__u64 storage;
	__u64 elements;
	__u8 type;
	__u8 op;
	__u16 zero16;
	__u32 zero32;
};

struct call {
	__u32 tensors; // of an all-reduce; 0: another collective, or several calls that expected the same tag
	__u32 bucket;  // 1: the tensor is that of the bucket that DistributedDataParallel was about to sum
	__u32 freed;   // of the process, at the call
	__u32 zero;
	struct sum sums[LAYOUTS];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct process);
	MAP_UINT(max_entries, PROCESSES);
	MAP_UINT(map_flags, BPF_F_NO_PREALLOC);
} processes SEC(".maps");

// The calls that struct recent does not have: those of processes with several groups, and the tags that several calls have expected. What both have, this map has right.
struct {
	MAP_UINT(type, BPF_MAP_TYPE_LRU_HASH);
	MAP_TYPE(key, struct call_key);
	MAP_TYPE(value, struct call);
	MAP_UINT(max_entries, 16384);
} calls SEC(".maps");

// A recent_call is a call of a process that has one group, with all that an answer about its tag takes.
struct recent_call {
	__u64 version; // odd while the call is written
	__u64 changes; // of the process's groups before the call
	__u32 epoch;   // of the process
	__u32 generation;
	__u32 tag;
	__u32 size;
	__u64 members[2];
	struct call call;
};

// The newest calls lie in memory that the reader's other process maps (recent_linux.go), where it finds most answers without a question. A process's groups
// have not changed since a call if their number of changes is the same: only then is the call the whole answer about its tag. The number
// grows after each change, and before the program that has made it ends, so before the changed group sends anything.
#define RECENT (1 << RECENT_BITS)
#define RECENT_BITS 14
struct recent {
	__u64 changes[PROCESSES]; // of the groups of the process that has the place, or of a process before
	struct recent_call calls[RECENT];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct recent);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, BPF_F_MMAPABLE);
} recent SEC(".maps");

INLINE struct recent *recent_calls(void)
{
	__u32 only = 0;
	return bpf_map_lookup_elem(&recent, &only);
}

INLINE __u64 changes_of(struct process *p)
{
	struct recent *r = recent_calls();
	return r ? *(volatile __u64 *)&r->changes[p->place & (PROCESSES - 1)] : 0;
}

// change is a full barrier, on each processor: the kernel gives atomic instructions that order to programs which use their value.
INLINE __u64 change(struct process *p)
{
	struct recent *r = recent_calls();
	__u64 before = r ? __sync_fetch_and_add(&r->changes[p->place & (PROCESSES - 1)], 1) : 0;
	asm volatile("" : : "r"(before));
	return before;
}

// changed counts a change of the process's groups, and notes whether one group is left.
INLINE void changed(struct process *p)
{
	__u64 changes = change(p) + 1;
	int one = 0;
	for (int i = 0; i < GROUPS; i++)
		if (p->groups[i].object) {
			if (one)
				return;
			one = 1;
		}
	if (one)
		p->alone = changes;
}

// doubt makes the reader ask for every call of the process so far.
INLINE void doubt(struct process *p)
{
	__u64 changes = change(p);
	__sync_val_compare_and_swap(&p->alone, changes, changes + 1);
}

INLINE __u64 read64(__u64 address)
{
	__u64 v = 0;
	bpf_probe_read_user(&v, sizeof(v), (void *)address);
	return v;
}

// current returns the numbers of the thread's process, in the upper half, and of the thread, in the reader's namespace. Threads of other namespaces
// have the number 0, which no process has.
INLINE __u64 current(void)
{
	if (!namespace_inode)
		return bpf_get_current_pid_tgid();
	struct {
		__u32 thread, process;
	} ids = {};
	if (bpf_get_ns_current_pid_tgid(namespace_device, namespace_inode, &ids, sizeof(ids)))
		return 0;
	return (__u64)ids.process << 32 | ids.thread;
}

// process_of returns the thread's process, if the reader has named it and the program was attached to its library.
// Another library of ours may be the same file, if file systems show it in several places.
INLINE struct process *process_of(void *context)
{
	__u32 id = current() >> 32;
	struct process *p = bpf_map_lookup_elem(&processes, &id);
	if (!p || p->library != bpf_get_attach_cookie(context))
		return 0;
	return p;
}

// place_of returns the place of a group; 0: it has none.
INLINE struct group *place_of(struct process *p, __u64 object)
{
	struct group *last = &p->groups[p->last & (GROUPS - 1)];
	if (last->object == object)
		return last;
	for (int i = 0; i < GROUPS; i++)
		if (p->groups[i].object == object) {
			p->last = i;
			return &p->groups[i];
		}
	return 0;
}

// take returns a free place, or else one in turn; 0: another thread takes it. To look for the group that has
// not called for longest would cost the verifier seconds at each load.
INLINE struct group *take(struct process *p, __u32 generation)
{
	for (__u32 i = 0; i < GROUPS; i++) {
		struct group *g = &p->groups[i];
		if (!g->object && !__sync_val_compare_and_swap(&g->object, 0, CHANGING))
			return g;
	}
	struct group *g = &p->groups[generation & (GROUPS - 1)];
	__u64 object = g->object;
	if (object <= CHANGING || __sync_val_compare_and_swap(&g->object, object, CHANGING) != object)
		return 0;
	return g;
}

// A fresh group is one that begins to be followed.
struct fresh {
	__u64 object;
	__u64 members[2];
	__u32 size;
	__u32 first;
};

// anywhere returns g. The verifier then knows only that it is one of the places, and need not go through the rest of a program for each of them.
INLINE struct group *anywhere(struct process *p, struct group *g)
{
	__u64 at = (char *)g - (char *)p->groups;
	asm volatile("" : "+r"(at));
	at &= ~7ul; // the verifier wants to see that fields are aligned
	return at <= sizeof(p->groups) - sizeof(*g) ? (struct group *)((char *)p->groups + at) : 0;
}

// begin gives a new group the place g, which is that of an earlier group with this address; 0: another one. It returns the place, or 0.
INLINE struct group *begin(struct process *p, struct group *g, const struct fresh *f)
{
	__u32 generation = __sync_fetch_and_add(&p->generations, 1) + 1;
	if (!g || __sync_val_compare_and_swap(&g->object, f->object, CHANGING) != f->object)
		g = take(p, generation);
	if (!g || !(g = anywhere(p, g)))
		return 0;
	g->expected = (__u64)f->first << 32 | generation;
	g->size = f->size;
	g->first = f->first;
	g->members[0] = f->members[0];
	g->members[1] = f->members[1];
	g->object = f->object;
	changed(p);
	return g;
}

// forget makes all that was noted of the group's calls unknown, and all calls that are on their way to get tags.
INLINE void forget(struct process *p, struct group *g)
{
	__u32 generation = __sync_fetch_and_add(&p->generations, 1) + 1;
	*(volatile __u32 *)&g->expected = generation; // the lower half
	changed(p);
}

// An entry is a call that has entered a method of a group, which gives it a tag.
struct entry {
	struct call_key key; // with the tag that the group was about to give
	__u32 end;	     // last of the tags that the call, and others on their way, may get
	__u64 changes;	     // of the process's groups before the call
	int alone;	     // 1: all calls before it have got their tags, so that it gets that one, or else a later call does and confuses it before
	int doubtful;	     // 1: a call on its way may get a tag that another one expects
};

// last_tags returns how many tags the thread's last call was to take, if it was of the same group and has got none: it has failed, or calls another method now. That is so if the group is still about to give the
// same tag. Otherwise it returns 0.
INLINE __u32 last_tags(struct thread *t, __u32 thread, __u32 generation, __u32 tag)
{
	__u64 group = t->group;
	int same = t->tag == ((__u64)thread << 32 | tag) && group >> 2 == ((__u64)generation << 30 | thread);
	return same ? group & 3 : 0;
}

// enter notes that a thread has entered a method of a group that takes so many tags, and returns the group; 0: it has no place, or nothing is known of the call.
//
// The group's counter is read before the call is counted. If both numbers are the same, all calls before it have got their tags. A later call that gets the tag that this one expects has read the counter before it
// got that, so it finds the counter behind the count. It confuses all tags that it may get, and they are those from the counter to its own count: no more calls can be on their way. model_test.go tries all orders.
INLINE struct group *enter(struct process *p, __u64 object, __u32 tags, struct entry *e)
{
	__u32 tag = 0;
	e->changes = changes_of(p); // before the group is read: a change since then makes the call unknown. The count's instruction orders both
	struct group *g = place_of(p, object);
	long unread = bpf_probe_read_user(&tag, sizeof(tag), (void *)(object + p->counter));
	if (!g) {
		if (unread)
			return 0; // a tag that was given and has no call is unknown
		struct fresh f = {.object = object, .first = tag};
		f.members[0] = read64(object + MEMBERS_ONE);
		f.members[1] = read64(object + MEMBERS_TWO);
		g = begin(p, 0, &f);
		e->changes = changes_of(p);
	}
	if (!g || !(g = anywhere(p, g)))
		return 0;
	__u64 before = __sync_fetch_and_add(&g->expected, (__u64)tags << 32);
	if (unread) {
		forget(p, g);
		return 0;
	}
	__u32 was = before >> 32, generation = before;
	__s32 ahead = tag - was;
	e->key = (struct call_key){.epoch = p->epoch, .generation = generation, .tag = tag};
	e->end = ahead < 0 ? was : tag;
	__u32 thread = bpf_get_current_pid_tgid() & ((1 << 30) - 1);
	struct thread *t = &p->threads[thread & (THREADS - 1)];
	__u32 failed = last_tags(t, thread, generation, tag);
	t->tag = (__u64)thread << 32 | tag;
	t->group = (__u64)generation << 32 | thread << 2 | tags;
	if (!ahead && !failed) {
		e->alone = 1;
		return g;
	}
	e->doubtful = 1;
	if (failed) {
		__sync_fetch_and_add(&g->expected, -((__u64)failed << 32));
		e->end = was - failed;
	} else if (ahead > 0) { // calls were not counted. Those after this one may have expected too low a tag, up to here
		__u32 counted = __sync_fetch_and_add(&g->expected, (__u64)ahead << 32) >> 32;
		e->end = counted - 1;
	}
	if (!bpf_probe_read_user(&tag, sizeof(tag), (void *)(object + p->counter)))
		e->key.tag = tag; // tags before that are other calls'
	if ((__s32)(e->end - e->key.tag) < 0)
		e->end = e->key.tag;
	return g;
}

// put writes a call of the group g where the newest calls lie, changes being those of the process's groups before it. It reports whether it could: another call may be on its
// way to the same place.
INLINE int put(struct recent *all, struct process *p, struct group *g, struct call_key *key, __u64 changes, struct call *c)
{
	// The calls of a process lie side by side. Those of processes with neighbouring places lie far apart.
	struct recent_call *r = &all->calls[((p->place * 2654435761U >> (32 - RECENT_BITS)) + key->tag) & (RECENT - 1)];
	__u64 version = r->version;
	if (version & 1 || __sync_val_compare_and_swap(&r->version, version, version + 1) != version)
		return 0;
	r->changes = changes;
	r->epoch = p->epoch;
	r->generation = key->generation;
	r->tag = key->tag;
	r->size = g->size;
	r->members[0] = g->members[0];
	r->members[1] = g->members[1];
	r->call = *c;
	return __sync_val_compare_and_swap(&r->version, version + 1, version + 2) == version + 1;
}

// show writes a call of a process that has one group, g, where the reader finds it without a question. It reports whether it could, and no group has changed nor a call come into doubt meanwhile.
INLINE int show(struct process *p, struct group *g, struct call_key *key, __u64 changes, struct call *c)
{
	struct recent *all = recent_calls();
	if (!all || p->alone != changes || !put(all, p, g, key, changes, c))
		return 0;
	return *(volatile __u64 *)&all->changes[p->place & (PROCESSES - 1)] == changes;
}

// confuse notes that several calls have expected the tags from e's to its end: which of them gets which is not known. The recent calls that have the tags become doubtful before they are written over. If one is
// on its way there, its own program sees the doubt.
#define CONFUSED 8
INLINE void confuse(struct process *p, struct group *g, struct entry *e, struct call *c)
{
	__u32 more = e->end - e->key.tag;
	int lost = more >= CONFUSED;
	__builtin_memset(c, 0, sizeof(*c));
	doubt(p);
	struct recent *all = recent_calls();
	for (__u32 i = 0; i < CONFUSED && !lost; i++) {
		lost = bpf_map_update_elem(&calls, &e->key, c, 0) != 0;
		if (all)
			put(all, p, g, &e->key, ~0ull, c); // for questions alone
		if (i == more)
			break;
		e->key.tag++;
	}
	if (lost)
		forget(p, g);
}

// note notes a call that a group is about to give its next tag.
INLINE void note(struct process *p, __u64 object, struct call *c)
{
	struct entry e = {};
	struct group *g = enter(p, object, 1, &e);
	if (!g)
		return;
	if (e.alone && show(p, g, &e.key, e.changes, c)) // a call that comes to expect the tag as well does so after changes were read, and doubts them
		return;
	if (!e.alone || bpf_map_update_elem(&calls, &e.key, c, BPF_NOEXIST)) // another thread calls too, or the last call has failed
		confuse(p, g, &e, c);
	else
		doubt(p); // a recent call of another group may have the tag
}

// pass notes a call that takes so many tags and sends no message of an all-reduce: it matters only where other threads call too.
INLINE int pass(struct process *p, __u64 object, __u32 tags)
{
	struct entry e = {};
	struct group *g = p ? enter(p, object, tags, &e) : 0;
	if (g && e.doubtful) {
		struct call c;
		confuse(p, g, &e, &c);
	}
	return 0;
}

// c10d::Reducer::all_reduce_bucket(Bucket &bucket): the bucket's first word is the tensor of its gradients.
SEC("uprobe/all_reduce_bucket")
int all_reduce_bucket(struct pt_regs *r)
{
	struct process *p = process_of(r);
	if (!p)
		return 0;
	__u64 id = bpf_get_current_pid_tgid();
	struct thread *t = &p->threads[id & (THREADS - 1)];
	t->tensor = 0;
	t->id = id;
	t->tensor = read64(ARG2(r));
	__sync_fetch_and_add(&p->reducer_buckets, 1);
	return 0;
}

// c10d::Reducer::~Reducer(), and c10d::Reducer::initialize_buckets(...), which makes a reducer's buckets anew: tensors of anybody may lie where theirs lay. A hook may
// have summed nothing since they were announced.
SEC("uprobe/free_buckets")
int free_buckets(struct pt_regs *r)
{
	struct process *p = process_of(r);
	if (!p)
		return 0;
	__sync_fetch_and_add(&p->freed, 1);
	for (int i = 0; i < THREADS; i++)
		p->threads[i].tensor = 0;
	return 0;
}

INLINE void sum_of(struct sum *s, struct objects *o, struct layout l)
{
	s->storage = *(__u64 *)(o->tensor + l.storage - TENSOR_BEGIN);
	s->elements = *(__u64 *)(o->tensor + l.elements - TENSOR_BEGIN);
	s->type = o->tensor[l.type - TENSOR_BEGIN];
	s->op = o->options[l.op];
}

// c10d::ProcessGroupGloo::allreduce(std::vector<at::Tensor> &tensors, const AllreduceOptions &options), which returns an object.
// The first call after all_reduce_bucket is the bucket's, or the bucket has none.
SEC("uprobe/allreduce")
int allreduce(struct pt_regs *r)
{
	struct process *p = process_of(r);
	if (!p)
		return 0;
	__u64 id = bpf_get_current_pid_tgid();
	struct thread *t = &p->threads[id & (THREADS - 1)];
	struct {
		__u64 first, end;
	} list = {};
	bpf_probe_read_user(&list, sizeof(list), (void *)MEMBER_ARG1(r));
	struct call c = {.tensors = (list.end - list.first) / 8, .freed = p->freed};
	if (c.tensors == 1) {
		__u64 tensor = read64(list.first);
		struct objects o; // both are read, whatever the first read says: the verifier of Linux before 6.3 demands that all of it is written
		long unread = bpf_probe_read_user(o.tensor, TENSOR_BYTES, (void *)(tensor + TENSOR_BEGIN));
		unread |= bpf_probe_read_user(o.options, OPTIONS_BYTES, (void *)MEMBER_ARG2(r));
		if (unread) {
			c.tensors = 0; // nothing is known of the call
		} else {
			sum_of(&c.sums[1], &o, TORCH_1_13);
			if (p->op_first) {
				c.sums[1].op = o.options[0];
			} else {
				sum_of(&c.sums[0], &o, TORCH_2_15);
				sum_of(&c.sums[2], &o, TORCH_2_5);
			}
			if (t->id == id && t->tensor == tensor && tensor) {
				c.bucket = 1;
				__sync_fetch_and_add(&p->buckets, 1);
			}
		}
	}
	if (t->id == id)
		t->tensor = 0;
	__sync_fetch_and_add(&p->reduces, 1);
	note(p, MEMBER_THIS(r), &c);
	return 0;
}

// Methods of c10d::ProcessGroupGloo that return an object, and send the messages of an all-reduce.
SEC("uprobe/other")
int other(struct pt_regs *r)
{
	struct process *p = process_of(r);
	if (!p)
		return 0;
	struct call c = {};
	__sync_fetch_and_add(&p->others, 1);
	note(p, MEMBER_THIS(r), &c);
	return 0;
}

// Methods of c10d::ProcessGroupGloo that return an object, take a tag and send other messages.
SEC("uprobe/untold")
int untold(struct pt_regs *r) { return pass(process_of(r), MEMBER_THIS(r), 1); }

// c10d::ProcessGroupGloo::monitoredBarrier(const BarrierOptions &options, bool waitAllRanks), which returns nothing and takes two tags.
SEC("uprobe/monitoredBarrier")
int monitored_barrier(struct pt_regs *r) { return pass(process_of(r), ARG1(r), 2); }

// made follows a group that begins to count tags, perhaps where another one was, and then in its place.
INLINE void made(struct process *p, __u64 object, __u32 rank, __u32 size)
{
	struct fresh f = {.object = object, .size = size};
	f.members[0] = f.members[1] = (__u64)size << 32 | rank;
	begin(p, place_of(p, object), &f);
}

// c10d::ProcessGroupGloo::ProcessGroupGloo(store, int rank, int size, options): a new group.
SEC("uprobe/ProcessGroupGloo")
int new_group(struct pt_regs *r)
{
	struct process *p = process_of(r);
	if (p)
		made(p, ARG1(r), ARG3(r), ARG4(r));
	return 0;
}

// c10d::ProcessGroupGloo::connectContexts(int rank, int size, store): a group's connections are made, also those of a group that is
// reconfigured: it has other members then, and counts tags from 0.
SEC("uprobe/connectContexts")
int connect_group(struct pt_regs *r)
{
	struct process *p = process_of(r);
	if (p)
		made(p, ARG1(r), ARG2(r), ARG3(r));
	return 0;
}

// c10d::ProcessGroupGloo::~ProcessGroupGloo()
SEC("uprobe/~ProcessGroupGloo")
int end_group(struct pt_regs *r)
{
	struct process *p = process_of(r);
	if (!p)
		return 0;
	__u64 object = ARG1(r);
	for (int i = 0; i < GROUPS; i++)
		if (p->groups[i].object == object)
			p->groups[i].object = 0;
	changed(p);
	return 0;
}

char _license[] SEC("license") = "GPL";
