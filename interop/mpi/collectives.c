/* Collective operations of many sizes, on several communicators, every result checked. */
#include <string.h>

#include "say.h"

/* Of the ranks of a job. */
#define LARGEST_JOB 64

static MPI_Comm comm;
static int me, all;             /* rank and size in `comm` */
static unsigned long checks;

/* Element `i` of what rank `r` brings. Small, so that sums are exact. */
static int64_t item(int r, size_t i)
{
	return (int64_t)(mix((uint64_t)r << 40 ^ i) % 1000003);
}

static int64_t *mine(size_t count)
{
	int64_t *v = room(count * sizeof *v);

	for (size_t i = 0; i < count; i++)
		v[i] = item(me, i);
	return v;
}

static void expect(const char *what, size_t i, int64_t got, int64_t wanted)
{
	checks++;
	if (got != wanted)
		give_up("%s on %d ranks, element %zu: %ld instead of %ld", what, all, i, got, wanted);
}

static int64_t sum(size_t i, int upto)
{
	int64_t total = 0;

	for (int r = 0; r < upto; r++)
		total += item(r, i);
	return total;
}

static void broadcast(int count, int root)
{
	int64_t *v = mine((size_t)count);

	MPI_Bcast(v, count, MPI_INT64_T, root, comm);
	for (size_t i = 0; i < (size_t)count; i++)
		expect("MPI_Bcast", i, v[i], item(root, i));
	free(v);
}

static void reduce(int count, int root)
{
	int64_t *v = mine((size_t)count), *out = room((size_t)count * sizeof *out);

	MPI_Reduce(v, out, count, MPI_INT64_T, MPI_SUM, root, comm);
	for (size_t i = 0; me == root && i < (size_t)count; i++)
		expect("MPI_Reduce", i, out[i], sum(i, all));
	MPI_Allreduce(v, out, count, MPI_INT64_T, MPI_SUM, comm);
	for (size_t i = 0; i < (size_t)count; i++)
		expect("MPI_Allreduce", i, out[i], sum(i, all));
	MPI_Scan(v, out, count, MPI_INT64_T, MPI_SUM, comm);
	for (size_t i = 0; i < (size_t)count; i++)
		expect("MPI_Scan", i, out[i], sum(i, me + 1));
	MPI_Exscan(v, out, count, MPI_INT64_T, MPI_SUM, comm);
	for (size_t i = 0; me && i < (size_t)count; i++)
		expect("MPI_Exscan", i, out[i], sum(i, me));
	free(v);
	free(out);
}

static void gather_and_scatter(int count, int root)
{
	size_t n = (size_t)count;
	int64_t *v = mine(n), *out = room(n * (size_t)all * sizeof *out);

	MPI_Gather(v, count, MPI_INT64_T, out, count, MPI_INT64_T, root, comm);
	for (size_t i = 0; me == root && i < n * (size_t)all; i++)
		expect("MPI_Gather", i, out[i], item((int)(i / n), i % n));
	memset(v, 0, n * sizeof *v);
	MPI_Scatter(out, count, MPI_INT64_T, v, count, MPI_INT64_T, root, comm);
	for (size_t i = 0; i < n; i++)
		expect("MPI_Scatter", i, v[i], item(me, i));
	memset(out, 0, n * (size_t)all * sizeof *out);
	MPI_Allgather(v, count, MPI_INT64_T, out, count, MPI_INT64_T, comm);
	for (size_t i = 0; i < n * (size_t)all; i++)
		expect("MPI_Allgather", i, out[i], item((int)(i / n), i % n));
	free(v);
	free(out);
}

/* Rank `r` brings `r % 3 + 1` times `count` elements. */
static void uneven(int count, int root)
{
	int counts[LARGEST_JOB], starts[LARGEST_JOB], total = 0;
	int64_t *v, *out, *back;

	for (int r = 0; r < all; r++) {
		counts[r] = count * (r % 3 + 1);
		starts[r] = total;
		total += counts[r];
	}
	v = mine((size_t)counts[me]);
	out = room((size_t)total * sizeof *out);
	back = room((size_t)counts[me] * sizeof *back);
	MPI_Allgatherv(v, counts[me], MPI_INT64_T, out, counts, starts, MPI_INT64_T, comm);
	for (int r = 0; r < all; r++)
		for (int i = 0; i < counts[r]; i++)
			expect("MPI_Allgatherv", (size_t)(starts[r] + i), out[starts[r] + i], item(r, (size_t)i));
	memset(out, 0, (size_t)total * sizeof *out);
	MPI_Gatherv(v, counts[me], MPI_INT64_T, out, counts, starts, MPI_INT64_T, root, comm);
	for (int r = 0; me == root && r < all; r++)
		for (int i = 0; i < counts[r]; i++)
			expect("MPI_Gatherv", (size_t)(starts[r] + i), out[starts[r] + i], item(r, (size_t)i));
	MPI_Scatterv(out, counts, starts, MPI_INT64_T, back, counts[me], MPI_INT64_T, root, comm);
	for (int i = 0; i < counts[me]; i++)
		expect("MPI_Scatterv", (size_t)i, back[i], item(me, (size_t)i));
	free(v);
	v = mine((size_t)total);
	MPI_Reduce_scatter(v, back, counts, MPI_INT64_T, MPI_SUM, comm);
	for (int i = 0; i < counts[me]; i++)
		expect("MPI_Reduce_scatter", (size_t)i, back[i], sum((size_t)(starts[me] + i), all));
	free(v);
	free(out);
	free(back);
}

static void all_to_all(int count)
{
	size_t n = (size_t)count, total = n * (size_t)all;
	int64_t *v = mine(total), *out = room(total * sizeof *out);

	MPI_Alltoall(v, count, MPI_INT64_T, out, count, MPI_INT64_T, comm);
	for (size_t i = 0; i < total; i++)
		expect("MPI_Alltoall", i, out[i], item((int)(i / n), (size_t)me * n + i % n));
	MPI_Reduce_scatter_block(v, out, count, MPI_INT64_T, MPI_SUM, comm);
	for (size_t i = 0; i < n; i++)
		expect("MPI_Reduce_scatter_block", i, out[i], sum((size_t)me * n + i, all));
	free(v);
	free(out);
}

/* Rank `a` and rank `b` give each other `(a + b) % 3` times `count` elements. */
static void all_to_all_uneven(int count)
{
	int counts[LARGEST_JOB], starts[LARGEST_JOB], bytes[LARGEST_JOB], total = 0;
	MPI_Datatype types[LARGEST_JOB];
	int64_t *v, *out;

	for (int r = 0; r < all; r++) {
		counts[r] = count * ((me + r) % 3);
		starts[r] = total;
		bytes[r] = total * (int)sizeof *v;
		types[r] = MPI_INT64_T;
		total += counts[r];
	}
	v = room((size_t)total * sizeof *v);
	out = room((size_t)total * sizeof *out);
	for (int r = 0; r < all; r++)
		for (int i = 0; i < counts[r]; i++)
			v[starts[r] + i] = item(me, (size_t)r << 32 | (size_t)i);
	for (int typed = 0; typed < 2; typed++) {
		const char *what = typed ? "MPI_Alltoallw" : "MPI_Alltoallv";

		memset(out, 0, (size_t)total * sizeof *out);
		if (typed)
			MPI_Alltoallw(v, counts, bytes, types, out, counts, bytes, types, comm);
		else
			MPI_Alltoallv(v, counts, starts, MPI_INT64_T, out, counts, starts, MPI_INT64_T, comm);
		for (int r = 0; r < all; r++)
			for (int i = 0; i < counts[r]; i++)
				expect(what, (size_t)(starts[r] + i), out[starts[r] + i],
				       item(r, (size_t)me << 32 | (size_t)i));
	}
	free(v);
	free(out);
}

enum { IBCAST, IREDUCE, IALLREDUCE, ISCAN, IEXSCAN, IGATHER, ISCATTER, IALLGATHER, IALLTOALL, IREDUCE_SCATTER_BLOCK,
       IBARRIER, KINDS };

/* What has to be in element `i` of the result of a collective, if anything; `n` elements are of each rank. */
static int wanted(int kind, int root, size_t n, size_t i, int64_t *value)
{
	switch (kind) {
	case IBCAST: *value = item(root, i); return i < n;
	case IREDUCE: *value = sum(i, all); return i < n && me == root;
	case IALLREDUCE: *value = sum(i, all); return i < n;
	case ISCAN: *value = sum(i, me + 1); return i < n;
	case IEXSCAN: *value = sum(i, me); return i < n && me;
	case IGATHER: *value = item((int)(i / n), i % n); return me == root;
	case ISCATTER: *value = item(root, (size_t)me * n + i); return i < n;
	case IALLGATHER: *value = item((int)(i / n), i % n); return 1;
	case IALLTOALL: *value = item((int)(i / n), (size_t)me * n + i % n); return 1;
	case IREDUCE_SCATTER_BLOCK: *value = sum((size_t)me * n + i, all); return i < n;
	default: return 0;
	}
}

/* Many collectives under way at the same time. */
static void nonblocking(int count)
{
	const MPI_Datatype type = MPI_INT64_T;
	size_t n = (size_t)count, total = n * (size_t)all;
	int64_t *v[KINDS], *out[KINDS];
	MPI_Request request[KINDS];

	for (int k = 0; k < KINDS; k++) {
		int root = k % all;

		v[k] = mine(total);
		out[k] = room(total * sizeof **out);
		switch (k) {
		case IBCAST:
			memcpy(out[k], v[k], n * sizeof **v);
			MPI_Ibcast(out[k], count, type, root, comm, &request[k]);
			break;
		case IREDUCE: MPI_Ireduce(v[k], out[k], count, type, MPI_SUM, root, comm, &request[k]); break;
		case IALLREDUCE: MPI_Iallreduce(v[k], out[k], count, type, MPI_SUM, comm, &request[k]); break;
		case ISCAN: MPI_Iscan(v[k], out[k], count, type, MPI_SUM, comm, &request[k]); break;
		case IEXSCAN: MPI_Iexscan(v[k], out[k], count, type, MPI_SUM, comm, &request[k]); break;
		case IGATHER: MPI_Igather(v[k], count, type, out[k], count, type, root, comm, &request[k]); break;
		case ISCATTER: MPI_Iscatter(v[k], count, type, out[k], count, type, root, comm, &request[k]); break;
		case IALLGATHER: MPI_Iallgather(v[k], count, type, out[k], count, type, comm, &request[k]); break;
		case IALLTOALL: MPI_Ialltoall(v[k], count, type, out[k], count, type, comm, &request[k]); break;
		case IREDUCE_SCATTER_BLOCK:
			MPI_Ireduce_scatter_block(v[k], out[k], count, type, MPI_SUM, comm, &request[k]);
			break;
		default: MPI_Ibarrier(comm, &request[k]);
		}
	}
	MPI_Waitall(KINDS, request, MPI_STATUSES_IGNORE);
	for (int k = 0; k < KINDS; k++) {
		static const char *const names[] = { "MPI_Ibcast", "MPI_Ireduce", "MPI_Iallreduce", "MPI_Iscan", "MPI_Iexscan",
			"MPI_Igather", "MPI_Iscatter", "MPI_Iallgather", "MPI_Ialltoall", "MPI_Ireduce_scatter_block",
			"MPI_Ibarrier" };
		int64_t value;

		for (size_t i = 0; i < total; i++)
			if (wanted(k, k % all, n, i, &value))
				expect(names[k], i, out[k][i], value);
		free(v[k]);
		free(out[k]);
	}
}

static void on(MPI_Comm chosen)
{
	comm = chosen;
	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &all);
}

static void all_of_them(MPI_Comm chosen, int largest)
{
	static const int counts[] = { 1, 2, 7, 16, 17, 100, 1000, 1024, 8191, 16384, 65537, 262144, 1048576 };

	on(chosen);
	for (size_t c = 0; c < sizeof counts / sizeof *counts && counts[c] <= largest; c++) {
		for (int root = 0; root < all; root++) {
			broadcast(counts[c], root);
			reduce(counts[c], root);
			gather_and_scatter(counts[c], root);
		}
		uneven(counts[c], (int)c % all);
		all_to_all(counts[c]);
		all_to_all_uneven(counts[c]);
		if (counts[c] <= 65537)
			nonblocking(counts[c]);
		MPI_Barrier(comm);
	}
}

/* Collectives in an order of chance, each of a size of chance, on communicators that take turns by chance. */
static void any_of_them(MPI_Comm *on_which, size_t choices, int steps, int largest, uint64_t seed)
{
	uint64_t state = mix(seed);
	int magnitudes = 1;

	while (largest >> magnitudes)
		magnitudes++;
	for (int step = 0; step < steps; step++) {
		int count, root;

		on(on_which[next_random(&state) % choices]);
		/* Each magnitude is as likely as another one. */
		count = 1 << next_random(&state) % (uint64_t)magnitudes;
		count += (int)(next_random(&state) % (uint64_t)count);
		count = count < largest ? count : largest;
		root = (int)(next_random(&state) % (uint64_t)all);
		switch (next_random(&state) % 8) {
		case 0: broadcast(count, root); break;
		case 1: reduce(count, root); break;
		case 2: gather_and_scatter(count, root); break;
		case 3: uneven(count, root); break;
		case 4: all_to_all(count); break;
		case 5: all_to_all_uneven(count); break;
		case 6: nonblocking(count); break;
		default: MPI_Barrier(comm);
		}
	}
}

/* collectives [LARGEST [STEPS SEED]]: in elements of 8 bytes; so many steps of chance instead of one of each */
int main(int argc, char **argv)
{
	int largest = argc > 1 ? atoi(argv[1]) : 65537;
	MPI_Comm half, twin;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (largest < 1 || ranks > LARGEST_JOB)
		give_up("needs a size, and %d ranks at most", LARGEST_JOB);
	MPI_Comm_dup(MPI_COMM_WORLD, &twin);
	MPI_Comm_split(twin, rank % 2, -rank, &half);
	if (argc == 4) {
		any_of_them((MPI_Comm[]){ MPI_COMM_WORLD, twin }, 2, atoi(argv[2]), largest, strtoull(argv[3], NULL, 10));
	} else {
		all_of_them(MPI_COMM_WORLD, largest);
		all_of_them(half, largest < 1024 ? largest : 1024);
	}
	for (int i = 0; i < 1000; i++)
		MPI_Barrier(i % 2 ? twin : half);
	MPI_Comm_free(&half);
	MPI_Comm_free(&twin);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("collectives: %d ranks, %lu results on rank 0 are right\n", ranks, checks);
	MPI_Finalize();
	return 0;
}
