/*
 * Pairs of ranks that answer each other, then a ring in which each rank exchanges messages with both neighbours. There is
 * no barrier: ranks dawdle at random, so one may be several rounds and a size ahead of its neighbour.
 */
#include <string.h>
#include <time.h>

#include "say.h"

enum { TRIPS = 20, ROUNDS = 12, AHEAD = 4, SIDES = 2 };

static size_t largest;

static uint64_t seed_of(int from, int to, size_t size, int round)
{
	return mix((uint64_t)from << 48 | (uint64_t)to << 32 | (uint64_t)size << 8 | (uint64_t)round);
}

/* Every eighth byte of long messages is looked at, and all of short ones. */
static size_t step(size_t size)
{
	return size > 4096 ? 8 : 1;
}

static void fill(uint8_t *buf, size_t size, uint64_t seed)
{
	for (size_t i = 0; i < size; i += step(size))
		buf[i] = (uint8_t)(seed >> (i % 56)) ^ (uint8_t)(i >> 3);
}

static void check(const uint8_t *buf, size_t size, uint64_t seed, int from)
{
	for (size_t i = 0; i < size; i += step(size))
		if (buf[i] != ((uint8_t)(seed >> (i % 56)) ^ (uint8_t)(i >> 3)))
			give_up("%zu bytes from %d: byte %zu is wrong", size, from, i);
}

static void dawdle(uint64_t *state)
{
	struct timespec pause = { 0, (long)(next_random(state) % 2000000) };

	if (next_random(state) % 4 == 0)
		nanosleep(&pause, NULL);
}

static void answer(size_t size)
{
	int peer = rank ^ 1;
	uint8_t *buf = room(size);

	for (int trip = 0; peer < ranks && trip < TRIPS; trip++) {
		for (int turn = 0; turn < 2; turn++) {
			int from = turn == rank % 2 ? rank : peer;
			uint64_t seed = seed_of(from, turn, size, trip);

			if (from == rank) {
				fill(buf, size, seed);
				MPI_Send(buf, (int)size, MPI_BYTE, peer, trip, MPI_COMM_WORLD);
			} else {
				MPI_Recv(buf, (int)size, MPI_BYTE, peer, trip, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				check(buf, size, seed, peer);
			}
		}
	}
	free(buf);
}

static void exchange(size_t size, uint64_t *state)
{
	/* Of side 0 comes what the rank before sends to its side 1. */
	int peers[SIDES] = { (rank + ranks - 1) % ranks, (rank + 1) % ranks };
	uint8_t *out[AHEAD][SIDES], *in[AHEAD][SIDES];
	MPI_Request requests[AHEAD][2 * SIDES];

	for (int i = 0; i < AHEAD; i++)
		for (int side = 0; side < SIDES; side++) {
			out[i][side] = room(size);
			in[i][side] = room(size);
		}
	for (int round = 0; round < ROUNDS + AHEAD; round++) {
		int at = round % AHEAD, before = round - AHEAD;

		if (before >= 0) {
			MPI_Waitall(2 * SIDES, requests[at], MPI_STATUSES_IGNORE);
			for (int side = 0; side < SIDES; side++)
				check(in[at][side], size, seed_of(peers[side], !side, size, before), peers[side]);
		}
		if (round >= ROUNDS)
			continue;
		dawdle(state);
		for (int side = 0; side < SIDES; side++) {
			fill(out[at][side], size, seed_of(rank, side, size, round));
			MPI_Irecv(in[at][side], (int)size, MPI_BYTE, peers[side], !side, MPI_COMM_WORLD,
				  &requests[at][side]);
		}
		for (int side = 0; side < SIDES; side++)
			MPI_Isend(out[at][side], (int)size, MPI_BYTE, peers[side], side, MPI_COMM_WORLD,
				  &requests[at][SIDES + side]);
	}
	for (int i = 0; i < AHEAD; i++)
		for (int side = 0; side < SIDES; side++) {
			free(out[i][side]);
			free(in[i][side]);
		}
}

/* neighbours [LARGEST]: from 8 bytes on; without it, they only start and end */
int main(int argc, char **argv)
{
	uint64_t state;

	largest = argc > 1 ? (size_t)atol(argv[1]) : 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	state = mix((uint64_t)rank);
	for (size_t size = 8; size <= largest; size *= 2)
		answer(size);
	for (size_t size = 8; size <= largest; size *= 2)
		exchange(size, &state);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("neighbours: %d ranks, messages up to %zu bytes are right\n", ranks, largest);
	MPI_Finalize();
	return 0;
}
