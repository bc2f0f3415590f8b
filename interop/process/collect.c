/*
 * Collective operations of many processes, more than there are processors: every operation, with one element, a few and
 * many, and with several roots; what each process gets is held against a plain computation.
 *
 *     collect PROVIDER PROCESSES
 */
#include "end.h"

#define MOST 64
#define LONGEST 3000

static struct board {
	volatile int named, done;
	struct name names[MOST];
} *board;

static struct want want;
static int me, all;
static struct end end;
static struct fid_eq *eq;
static fi_addr_t group;
static uint64_t *in, *out;
static long checks;

/* Element `i` of what `rank` puts in, in operation `number`. */
static uint64_t item(int rank, unsigned number, size_t i)
{
	return (uint64_t)(rank + 1) << 40 | (uint64_t)number << 24 | i;
}

static uint64_t sum(unsigned number, size_t i)
{
	uint64_t total = 0;

	for (int rank = 0; rank < all; rank++)
		total += item(rank, number, i);
	return total;
}

static void wait_for_all(const char *what)
{
	struct fi_cq_tagged_entry entry;
	double until = now() + 60;
	int n;

	while (!(n = poll_one(&end, &entry))) {
		if (now() > until)
			fail("%s is not done in 60 s", what);
	}
	if (n < 0)
		fail("%s: %s", what, fi_strerror(-n));
	if (!(entry.flags & FI_COLLECTIVE))
		fail("%s: flags %#llx", what, (unsigned long long)entry.flags);
}

#define OPERATIONS 9

static const char *const names[OPERATIONS] = { "fi_barrier", "fi_broadcast", "fi_allreduce", "fi_reduce", "fi_allgather",
	"fi_gather", "fi_alltoall", "fi_scatter", "fi_reduce_scatter" };

static bool has_root(int which)
{
	return which == 1 || which == 3 || which == 5 || which == 7;
}

static ssize_t start(int which, size_t count, fi_addr_t root, void *context)
{
	struct fid_ep *ep = end.ep;

	switch (which) {
	case 0: return fi_barrier(ep, group, context);
	case 1: return fi_broadcast(ep, out, count, NULL, group, root, FI_UINT64, 0, context);
	case 2: return fi_allreduce(ep, in, count, NULL, out, NULL, group, FI_UINT64, FI_SUM, 0, context);
	case 3: return fi_reduce(ep, in, count, NULL, out, NULL, group, root, FI_UINT64, FI_SUM, 0, context);
	case 4: return fi_allgather(ep, in, count, NULL, out, NULL, group, FI_UINT64, 0, context);
	case 5: return fi_gather(ep, in, count, NULL, out, NULL, group, root, FI_UINT64, 0, context);
	case 6: return fi_alltoall(ep, in, count, NULL, out, NULL, group, FI_UINT64, 0, context);
	case 7: return fi_scatter(ep, in, count, NULL, out, NULL, group, root, FI_UINT64, 0, context);
	default: return fi_reduce_scatter(ep, in, count, NULL, out, NULL, group, FI_UINT64, FI_SUM, 0, context);
	}
}

/* Element `i` of what this process gets, of `*length`. */
static uint64_t expected(int which, size_t count, int root, unsigned number, size_t i, size_t *length)
{
	bool is_root = me == root;
	size_t mine = (size_t)me * count + i;

	switch (which) {
	case 0: *length = 0; return 0;
	case 1: *length = count; return item(root, number, i);
	case 2: *length = count; return sum(number, i);
	case 3: *length = is_root ? count : 0; return sum(number, i);
	case 4: *length = count * (size_t)all; return item((int)(i / count), number, i % count);
	case 5: *length = is_root ? count * (size_t)all : 0; return item((int)(i / count), number, i % count);
	case 6: *length = count * (size_t)all; return item((int)(i / count), number, (size_t)me * count + i % count);
	case 7: *length = count; return item(root, number, mine);
	default: *length = count; return sum(number, mine);
	}
}

static void run(int which, size_t count, int root, unsigned number)
{
	size_t room = (size_t)all * count, length;
	struct fi_context2 context;

	for (size_t i = 0; i < room; i++) {
		in[i] = item(me, number, i);
		out[i] = ~0ull;
	}
	if (which == 1 && me == root)
		memcpy(out, in, count * sizeof *out);
	POST(&end, start(which, count, (fi_addr_t)root, &context));
	wait_for_all(names[which]);
	expected(which, count, root, number, 0, &length);
	for (size_t i = 0; i < length; i++, checks++)
		if (out[i] != expected(which, count, root, number, i, &length))
			fail("%s of %zu with root %d: element %zu is %#llx instead of %#llx", names[which], count, root, i,
			     (unsigned long long)out[i],
			     (unsigned long long)expected(which, count, root, number, i, &length));
	/* Nothing is written behind. */
	for (size_t i = length; i < room && !(which == 1 && me == root); i++)
		if (out[i] != ~0ull)
			fail("%s of %zu: element %zu of %zu is written", names[which], count, i, length);
}

static void be_member(void)
{
	static const size_t counts[] = { 1, 37, LONGEST };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_set_attr set_attr = { .count = (size_t)all, .start_addr = 0, .end_addr = (fi_addr_t)all - 1, .stride = 1 };
	struct fi_eq_entry entry;
	struct fid_av_set *set;
	struct fid_mc *mc;
	fi_addr_t address;
	uint32_t event;
	double until;
	ssize_t ret;

	in = malloc((size_t)all * LONGEST * sizeof *in);
	out = malloc((size_t)all * LONGEST * sizeof *out);
	open_end(&want, &end);
	/* An endpoint that joins has a queue for that. */
	CLOSE(end.ep);
	check(fi_eq_open(end.fabric, &eq_attr, &eq, NULL), "fi_eq_open");
	check(fi_endpoint(end.domain, end.info, &end.ep, NULL), "fi_endpoint");
	check(fi_ep_bind(end.ep, &end.av->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(end.ep, &end.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_ep_bind(end.ep, &eq->fid, 0), "fi_ep_bind");
	check(fi_enable(end.ep), "fi_enable");
	name_of(&end, &board->names[me]);
	__atomic_add_fetch(&board->named, 1, __ATOMIC_SEQ_CST);
	await_word(&board->named, all, "the names of all");
	for (int rank = 0; rank < all; rank++)
		if (meet(&end, &board->names[rank]) != (fi_addr_t)rank)
			fail("rank %d has another address", rank);
	check(fi_av_set(end.av, &set_attr, &set, NULL), "fi_av_set");
	check(fi_av_set_addr(set, &address), "fi_av_set_addr");
	check(fi_join_collective(end.ep, address, set, 0, &mc, NULL), "fi_join_collective");
	until = now() + 60;
	while ((ret = fi_eq_read(eq, &event, &entry, sizeof entry, 0)) == -FI_EAGAIN) {
		fi_cq_read(end.cq, NULL, 0);
		if (now() > until)
			fail("the group is not joined in 60 s");
	}
	if (ret < 0 || event != FI_JOIN_COMPLETE)
		fail("joining: %zd, event %u", ret, event);
	group = fi_mc_addr(mc);
	for (unsigned round = 0; round < sizeof counts / sizeof *counts; round++)
		for (int which = 0; which < OPERATIONS; which++) {
			/* The first, one in the middle and the last; of many processes only that in the middle. */
			bool once = !has_root(which) || all > 16;

			for (int at = once; at < (once ? 2 : 3); at++)
				run(which, counts[round], at * (all - 1) / 2, round * 100 + (unsigned)which * 10 + (unsigned)at);
		}
	if (me == 0)
		printf("collect: %ld elements checked by the first of %d\n", checks, all);
	/* Whoever is done makes progress for the others until all are. */
	__atomic_add_fetch(&board->done, 1, __ATOMIC_SEQ_CST);
	until = now() + 60;
	while (__atomic_load_n(&board->done, __ATOMIC_SEQ_CST) < all) {
		fi_cq_read(end.cq, NULL, 0);
		if (now() > until)
			fail("others are not done in 60 s");
	}
	check(fi_close(&mc->fid), "fi_close of the group");
	check(fi_close(&set->fid), "fi_close of the set");
	CLOSE(end.ep);
	check(fi_close(&eq->fid), "fi_close of the event queue");
	close_end(&end);
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	static char labels[MOST][16];
	int pids[MOST];

	if (argc < 3)
		return 2;
	all = atoi(argv[2]);
	if (all < 2 || all > MOST)
		return 2;
	want = (struct want){ .provider = argv[1], .caps = FI_MSG | FI_COLLECTIVE, .progress = FI_PROGRESS_MANUAL };
	board = shared(sizeof *board);
	for (me = 0; me < all; me++) {
		snprintf(labels[me], sizeof labels[me], "%d", me);
		pids[me] = spawn(labels[me]);
		if (!pids[me])
			be_member();
	}
	for (me = 0; me < all; me++)
		ends_well(pids[me], labels[me], 80);
	printf("collect: complete\n");
	return 0;
}
