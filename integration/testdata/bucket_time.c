// A library that is loaded before PyTorch's (LD_PRELOAD), and measures how long each call of c10d::Reducer::all_reduce_bucket takes, in which DistributedDataParallel begins to sum a
// bucket. It writes the times to the file that BUCKET_TIMES names, which has the size of struct times.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ALL_REDUCE_BUCKET _ZN4c10d7Reducer17all_reduce_bucketERNS0_6BucketE
#define NAME_OF(symbol) NAME(symbol)
#define NAME(symbol) #symbol

#define CALLS (1 << 16)
struct times {
	uint64_t calls;		     // so far
	uint32_t nanoseconds[CALLS]; // of the newest ones: call i at i % CALLS
};

static struct times *times;
static void (*real)(void *reducer, void *bucket);

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("BUCKET_TIMES");
	int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (file < 0)
		return;
	void *memory = mmap(0, sizeof(struct times), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory != MAP_FAILED)
		times = memory;
	close(file);
}

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

// A process has one thread at a time that calls it.
void ALL_REDUCE_BUCKET(void *reducer, void *bucket)
{
	if (!real) {
		void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
		if (!torch || !(real = dlsym(torch, NAME_OF(ALL_REDUCE_BUCKET))))
			abort();
	}
	uint64_t begun = now();
	real(reducer, bucket);
	uint64_t took = now() - begun;
	if (!times)
		return;
	uint64_t n = times->calls;
	times->nanoseconds[n % CALLS] = took < UINT32_MAX ? took : UINT32_MAX;
	__atomic_store_n(&times->calls, n + 1, __ATOMIC_RELEASE);
}
