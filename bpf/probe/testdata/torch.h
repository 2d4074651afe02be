// What job.c needs of torch.c.

enum { FAILS, GOES, WAITS };

struct tensor {
	unsigned char bytes[256]; // a call with a tensor whose first byte is FAILS fails; one whose first byte is WAITS sets the second one, and takes no tag as long as the first one stays so
};

struct group {
	unsigned char other[TAG];
	unsigned tag; // the next one
};

void set_tensor(struct tensor *t, unsigned long storage, unsigned long elements, unsigned char type);
void new_group(struct group *g, int size, int rank);
void connect_group(struct group *g, int size, int rank); // reconfigures it
void end_group(struct group *g);
void all_reduce_bucket(struct tensor *t);
void end_reducer(void);
void new_buckets(void);
unsigned allreduce(struct group *g, struct tensor *t, int op);
unsigned broadcast(struct group *g);
unsigned monitored_barrier(struct group *g); // returns its second tag
unsigned unseen(struct group *g);	     // of no function that is probed
unsigned reduce_scatter(struct group *g);
void twins(struct group *g, struct tensor *t); // a bucket's sum by functions that are like the probed ones, and are not probed
void work(void);			       // runs much code, if the library is compiled with WORK
