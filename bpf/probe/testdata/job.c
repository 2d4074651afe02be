// A process that connects to a port of loopback, from another one if that is given, and calls the library's functions as the lines on standard input say. It answers
// each line by one: the tag of the collective, or another number.

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "torch.h"

static struct group groups[128];
static struct tensor tensors[8];

struct order {
	char name[16];
	unsigned long a, b, c, d;
};

static void *only_reduces(void *o)
{
	struct order *order = o;
	if (order->c)
		all_reduce_bucket(&tensors[order->b]);
	return (void *)(unsigned long)allreduce(&groups[order->a], &tensors[order->b], 0);
}

// A waiter is a thread within an all-reduce that has no tag yet. Each tensor has one.
static struct waiter {
	pthread_t thread;
	struct order order;
} waiters[8];

static void enter(struct order *o)
{
	struct waiter *w = &waiters[o->b];
	volatile unsigned char *bytes = tensors[o->b].bytes;
	w->order = *o;
	bytes[1] = 0;
	bytes[0] = WAITS;
	if (pthread_create(&w->thread, 0, only_reduces, &w->order))
		exit(1);
	while (!bytes[1])
		usleep(100);
}

static unsigned long leave(struct order *o)
{
	void *tag;
	tensors[o->a].bytes[0] = GOES;
	if (pthread_join(waiters[o->a].thread, &tag))
		exit(1);
	return (unsigned long)tag;
}

// bench returns the least time that this thread has taken for that many sums of a bucket, in ns.
static unsigned long bench(struct order *o)
{
	unsigned long least = ~0ul;
	for (unsigned long round = 0; round < o->d; round++) {
		struct timespec begin, end;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
		for (unsigned long i = 0; i < o->c; i++) {
			all_reduce_bucket(&tensors[o->b]);
			allreduce(&groups[o->a], &tensors[o->b], 0);
		}
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
		unsigned long took = (end.tv_sec - begin.tv_sec) * 1000000000ul + end.tv_nsec - begin.tv_nsec;
		least = took < least ? took : least;
	}
	return least;
}

static int in_order(const void *a, const void *b)
{
	unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;
	return x < y ? -1 : x > y;
}

// cold returns the median time of a sum of a bucket, in ns, where the thread has written to that many bytes since the last one, so that they have taken the place of all else in the
// processor's caches.
static unsigned long cold(struct order *o)
{
	static unsigned long took[10000];
	unsigned long sums = o->d < 1 ? 1 : o->d > 10000 ? 10000 : o->d;
	volatile char *memory = malloc(o->c + 1);
	if (!memory)
		exit(1);
	for (unsigned long i = 0; i < sums; i++) {
		for (unsigned long at = 0; at < o->c; at += 64)
			memory[at]++;
		struct timespec begin, end;
		clock_gettime(CLOCK_MONOTONIC, &begin);
		all_reduce_bucket(&tensors[o->b]);
		allreduce(&groups[o->a], &tensors[o->b], 0);
		clock_gettime(CLOCK_MONOTONIC, &end);
		took[i] = (end.tv_sec - begin.tv_sec) * 1000000000ul + end.tv_nsec - begin.tv_nsec;
	}
	free((void *)memory);
	qsort(took, sums, sizeof(took[0]), in_order);
	return took[sums / 2];
}

// after returns two median times of a bucket's sum and of the work that follows, in ns: in the upper half where the sum is by functions that are probed, in the lower half where it is by
// twins of them. Both take turns. The work runs much code and writes to that many bytes.
static unsigned long after(struct order *o)
{
	enum { MOST = 20000 };
	static unsigned long took[2][MOST];
	unsigned long rounds = o->d < 1 ? 1 : o->d > MOST ? MOST : o->d;
	volatile char *memory = malloc(o->c + 1);
	if (!memory)
		exit(1);
	for (unsigned long i = 0; i < 2 * rounds; i++) {
		int probed = (i & 3) == 1 || (i & 3) == 2;
		struct timespec begin, end;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
		if (probed) {
			all_reduce_bucket(&tensors[o->b]);
			allreduce(&groups[o->a], &tensors[o->b], 0);
		} else {
			twins(&groups[o->a], &tensors[o->b]);
		}
		for (int k = 0; k < 4; k++) {
			work();
			for (unsigned long at = k * 64; at < o->c; at += 256)
				memory[at]++;
		}
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
		took[probed][i / 2] = (end.tv_sec - begin.tv_sec) * 1000000000ul + end.tv_nsec - begin.tv_nsec;
	}
	free((void *)memory);
	for (int probed = 0; probed < 2; probed++)
		qsort(took[probed], rounds, sizeof(took[0][0]), in_order);
	return took[1][rounds / 2] << 32 | took[0][rounds / 2];
}

static unsigned long obey(struct order *o)
{
	if (!strcmp(o->name, "tensor"))
		return set_tensor(&tensors[o->a], o->b, o->c, o->d), 0;
	if (!strcmp(o->name, "new"))
		return new_group(&groups[o->a], o->b, o->c), 0;
	if (!strcmp(o->name, "connect"))
		return connect_group(&groups[o->a], o->b, o->c), 0;
	if (!strcmp(o->name, "end"))
		return end_group(&groups[o->a]), 0;
	if (!strcmp(o->name, "announce"))
		return all_reduce_bucket(&tensors[o->a]), 0;
	if (!strcmp(o->name, "free"))
		return end_reducer(), 0;
	if (!strcmp(o->name, "renew"))
		return new_buckets(), 0;
	if (!strcmp(o->name, "reduce"))
		return allreduce(&groups[o->a], &tensors[o->b], o->c);
	if (!strcmp(o->name, "scatter"))
		return reduce_scatter(&groups[o->a]);
	if (!strcmp(o->name, "broadcast"))
		return broadcast(&groups[o->a]);
	if (!strcmp(o->name, "barrier"))
		return monitored_barrier(&groups[o->a]);
	if (!strcmp(o->name, "unseen"))
		return unseen(&groups[o->a]);
	if (!strcmp(o->name, "enter")) // an all-reduce on a thread of its own, which waits before it takes a tag; with c it is a bucket's
		return enter(o), 0;
	if (!strcmp(o->name, "leave"))
		return leave(o);
	if (!strcmp(o->name, "fail")) {
		tensors[o->b].bytes[0] = FAILS;
		allreduce(&groups[o->a], &tensors[o->b], 0);
		tensors[o->b].bytes[0] = GOES;
		return 0;
	}
	if (!strcmp(o->name, "bench"))
		return bench(o);
	if (!strcmp(o->name, "cold"))
		return cold(o);
	if (!strcmp(o->name, "after"))
		return after(o);
	if (!strcmp(o->name, "thread")) { // an all-reduce on a thread of its own
		pthread_t thread;
		void *tag;
		if (pthread_create(&thread, 0, only_reduces, o) || pthread_join(thread, &tag))
			exit(1);
		return (unsigned long)tag;
	}
	if (!strcmp(o->name, "fork")) { // a child that has the same objects
		pid_t child = fork();
		if (!child)
			_exit(allreduce(&groups[o->a], &tensors[o->b], 0));
		int status;
		if (child < 0 || waitpid(child, &status, 0) != child)
			exit(1);
		return WEXITSTATUS(status);
	}
	if (!strcmp(o->name, "heir")) { // a child that inherits the connection, and lives as long as standard input is open
		pid_t child = fork();
		if (!child)
			for (;;)
				pause();
		return child;
	}
	exit(2);
}

int main(int count, char **arguments)
{
	if (count < 2)
		return 2;
	int s = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from = to;
	from.sin_port = count > 2 ? htons(atoi(arguments[2])) : 0;
	if (bind(s, (struct sockaddr *)&from, sizeof(from)) || connect(s, (struct sockaddr *)&to, sizeof(to)))
		return 3;
	char line[256];
	while (fgets(line, sizeof(line), stdin)) {
		struct order o = {0};
		if (sscanf(line, "%15s %lu %lu %lu %lu", o.name, &o.a, &o.b, &o.c, &o.d) < 1)
			return 4;
		if (!strcmp(o.name, "execute")) // this program anew, which connects as it did
			return execv("/proc/self/exe", arguments);
		printf("%lu\n", obey(&o));
		fflush(stdout);
	}
	return 0;
}
