/*
 * Ranks that exchange messages with others in turn: in each round with those a step further away, and then they are quiet for
 * a while, but make progress, so that a library which bounds its connections may end those that it does not need. At the end
 * each rank exchanges messages with all others.
 */
#include <string.h>
#include <time.h>

#include "say.h"

/* At once, and long ones. */
static const size_t sizes[] = { 8, 3000, 100000 };
enum { SIZES = 3, QUIET_MS = 1500 };

static uint64_t seed_of(int from, int to, int tag)
{
	return mix((uint64_t)from << 40 | (uint64_t)to << 20 | (uint64_t)tag);
}

static uint8_t byte_of(uint64_t seed, size_t at)
{
	return (uint8_t)(seed >> (at % 57)) ^ (uint8_t)(at >> 3);
}

/* One message of each size both ways with each of the peers; all are under way at once. */
static void exchange(const int *peers, int count, int round)
{
	int total = count * SIZES;
	MPI_Request *requests = room(2 * (size_t)total * sizeof *requests);
	uint8_t **in = room((size_t)total * sizeof *in), **out = room((size_t)total * sizeof *out);

	for (int n = 0; n < total; n++) {
		int peer = peers[n / SIZES], tag = round * SIZES + n % SIZES;
		uint64_t seed = seed_of(rank, peer, tag);
		size_t size = sizes[n % SIZES];

		in[n] = room(size);
		out[n] = room(size);
		memset(in[n], 0, size);
		for (size_t at = 0; at < size; at++)
			out[n][at] = byte_of(seed, at);
		MPI_Irecv(in[n], (int)size, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[2 * n]);
		MPI_Isend(out[n], (int)size, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[2 * n + 1]);
	}
	MPI_Waitall(2 * total, requests, MPI_STATUSES_IGNORE);
	for (int n = 0; n < total; n++) {
		int peer = peers[n / SIZES], tag = round * SIZES + n % SIZES;
		uint64_t seed = seed_of(peer, rank, tag);
		size_t size = sizes[n % SIZES];

		for (size_t at = 0; at < size; at++)
			if (in[n][at] != byte_of(seed, at))
				give_up("%zu bytes from %d in round %d: byte %zu is wrong", size, peer, round, at);
		free(in[n]);
		free(out[n]);
	}
	free(in);
	free(out);
	free(requests);
}

static double ms(void)
{
	return MPI_Wtime() * 1000;
}

static void be_quiet(void)
{
	struct timespec pause = { 0, 1000000 };
	double end = ms() + QUIET_MS;
	int found;

	while (ms() < end) {
		MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
		if (found)
			return;
		nanosleep(&pause, NULL);
	}
}

int main(int argc, char **argv)
{
	int *others;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	others = room((size_t)ranks * sizeof *others);
	for (int step = 1; 2 * step <= ranks; step++) {
		int peers[2] = { (rank + step) % ranks, (rank + ranks - step) % ranks };

		exchange(peers, 2 * step == ranks ? 1 : 2, step);
		be_quiet();
	}
	for (int n = 1; n < ranks; n++)
		others[n - 1] = (rank + n) % ranks;
	exchange(others, ranks - 1, 0);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("partners: %d ranks, all messages are right\n", ranks);
	free(others);
	MPI_Finalize();
	return 0;
}
