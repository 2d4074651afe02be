// A library that is loaded before PyTorch's (LD_PRELOAD), and has a thread wait in c10d::ProcessGroupGloo::nextTag until another one has taken a tag and calls a collective
// again. The kernel may have any thread wait there.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#define NEXT_TAG _ZN4c10d16ProcessGroupGloo7nextTagEv
#define NAME_OF(symbol) NAME(symbol)
#define NAME(symbol) #symbol

static __thread int waits;   // this thread is the one that waits
static volatile int waiting; // it is in nextTag
static volatile int others;  // calls of other threads since then

// tag_waits makes this thread the one that waits in its next call, or no longer.
void tag_waits(int yes) { waits = yes; }

// tag_waiting waits until that thread is in nextTag.
void tag_waiting(void)
{
	while (!waiting)
		usleep(100);
}

unsigned NEXT_TAG(void *group)
{
	static unsigned (*real)(void *group);
	if (!real) {
		void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
		if (!torch || !(real = dlsym(torch, NAME_OF(NEXT_TAG))))
			abort();
	}
	if (waits) {
		others = 0;
		waiting = 1;
		while (others < 2)
			usleep(100);
		unsigned tag = real(group);
		waiting = 0;
		return tag;
	}
	if (waiting && ++others == 2)
		while (waiting)
			usleep(100);
	return real(group);
}
