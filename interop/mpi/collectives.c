/* Collective operations of many sizes, on several communicators, every result checked. */
#include <string.h>

#include "say.h"

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
static void gather_uneven(int count)
{
	int counts[64], starts[64], total = 0;
	int64_t *v, *out;

	for (int r = 0; r < all; r++) {
		counts[r] = count * (r % 3 + 1);
		starts[r] = total;
		total += counts[r];
	}
	v = mine((size_t)counts[me]);
	out = room((size_t)total * sizeof *out);
	MPI_Allgatherv(v, counts[me], MPI_INT64_T, out, counts, starts, MPI_INT64_T, comm);
	for (int r = 0; r < all; r++)
		for (int i = 0; i < counts[r]; i++)
			expect("MPI_Allgatherv", (size_t)(starts[r] + i), out[starts[r] + i], item(r, (size_t)i));
	free(v);
	free(out);
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

#define AT_ONCE 12

/* Many collectives under way at the same time. */
static void nonblocking(int count)
{
	int64_t *v[AT_ONCE], *out[AT_ONCE];
	MPI_Request request[AT_ONCE];

	for (int k = 0; k < AT_ONCE; k++) {
		v[k] = mine((size_t)count);
		out[k] = room((size_t)count * (size_t)all * sizeof **out);
		switch (k % 3) {
		case 0: MPI_Ibcast(v[k], count, MPI_INT64_T, k % all, comm, &request[k]); break;
		case 1: MPI_Iallreduce(v[k], out[k], count, MPI_INT64_T, MPI_SUM, comm, &request[k]); break;
		default: MPI_Iallgather(v[k], count, MPI_INT64_T, out[k], count, MPI_INT64_T, comm, &request[k]);
		}
	}
	MPI_Waitall(AT_ONCE, request, MPI_STATUSES_IGNORE);
	for (int k = 0; k < AT_ONCE; k++) {
		size_t n = (size_t)count;

		for (size_t i = 0; k % 3 == 0 && i < n; i++)
			expect("MPI_Ibcast", i, v[k][i], item(k % all, i));
		for (size_t i = 0; k % 3 == 1 && i < n; i++)
			expect("MPI_Iallreduce", i, out[k][i], sum(i, all));
		for (size_t i = 0; k % 3 == 2 && i < n * (size_t)all; i++)
			expect("MPI_Iallgather", i, out[k][i], item((int)(i / n), i % n));
		free(v[k]);
		free(out[k]);
	}
}

static void all_of_them(MPI_Comm on, int largest)
{
	static const int counts[] = { 1, 2, 7, 16, 17, 100, 1000, 1024, 8191, 16384, 65537, 262144, 1048576 };

	comm = on;
	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &all);
	for (size_t c = 0; c < sizeof counts / sizeof *counts && counts[c] <= largest; c++) {
		for (int root = 0; root < all; root++) {
			broadcast(counts[c], root);
			reduce(counts[c], root);
			gather_and_scatter(counts[c], root);
		}
		gather_uneven(counts[c]);
		all_to_all(counts[c]);
		if (counts[c] <= 65537)
			nonblocking(counts[c]);
		MPI_Barrier(comm);
	}
}

/* collectives [LARGEST]: in elements of 8 bytes */
int main(int argc, char **argv)
{
	int largest = argc > 1 ? atoi(argv[1]) : 65537;
	MPI_Comm half, twin;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	all_of_them(MPI_COMM_WORLD, largest);
	MPI_Comm_dup(MPI_COMM_WORLD, &twin);
	MPI_Comm_split(twin, rank % 2, -rank, &half);
	all_of_them(half, largest < 1024 ? largest : 1024);
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
