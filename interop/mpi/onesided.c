/*
 * One-sided operations between all ranks: put and get in every size, and atomics of all ranks on the same cells, which
 * must come out as if they had been done in some order.
 */
#include <stdbool.h>
#include <string.h>

#include "say.h"

#define TICKETS 200             /* that each rank draws */
#define TURNS 20                /* of each rank under the lock */
#define SUMS 64                 /* cells of an array that all add to */

/* Cells that each rank offers. */
enum { TICKET, LOCK, GUARDED, CHAIN, CELLS };

static size_t largest;

static uint8_t pattern(int from, int to, size_t i)
{
	return (uint8_t)(mix((uint64_t)from << 40 | (uint64_t)to << 20 | i / 8) >> (i % 8 * 8));
}

static void check_block(const uint8_t *block, size_t len, int from, int to, const char *how)
{
	for (size_t i = 0; i < len; i++)
		if (block[i] != pattern(from, to, i))
			give_up("%s of %zu bytes from rank %d to rank %d: byte %zu is wrong", how, len, from, to, i);
}

/* Every rank puts a block into each other one, and then gets those that the others put elsewhere. */
static void blocks(void)
{
	size_t room_for_one = largest + 1;
	uint8_t *memory = room((size_t)ranks * room_for_one), *block = room(room_for_one);
	MPI_Win win;

	MPI_Win_create(memory, (MPI_Aint)((size_t)ranks * room_for_one), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	for (size_t len = 1; len <= largest; len = len * 3 + 1) {
		memset(memory, 0, (size_t)ranks * room_for_one);
		MPI_Win_fence(0, win);
		for (int to = 0; to < ranks; to++) {
			uint8_t *own = room(len);

			for (size_t i = 0; i < len; i++)
				own[i] = pattern(rank, to, i);
			MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
			MPI_Put(own, (int)len, MPI_BYTE, to, (MPI_Aint)((size_t)rank * room_for_one), (int)len, MPI_BYTE, win);
			MPI_Win_unlock(to, win);
			free(own);
		}
		MPI_Barrier(MPI_COMM_WORLD);
		for (int from = 0; from < ranks; from++) {
			MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
			check_block(memory + (size_t)from * room_for_one, len, from, rank, "a put");
			if (memory[(size_t)from * room_for_one + len])
				give_up("a put of %zu bytes from rank %d wrote behind its end", len, from);
			MPI_Win_unlock(rank, win);
		}
		for (int at = 0; at < ranks; at++) {
			int from = (rank + at) % ranks;

			MPI_Win_lock(MPI_LOCK_SHARED, at, 0, win);
			MPI_Get(block, (int)len, MPI_BYTE, at, (MPI_Aint)((size_t)from * room_for_one), (int)len, MPI_BYTE, win);
			MPI_Win_unlock(at, win);
			check_block(block, len, from, at, "a get");
		}
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_free(&win);
	free(memory);
	free(block);
}

static void fetch(MPI_Win win, MPI_Op op, int64_t value, int at, int cell, int64_t *before)
{
	MPI_Fetch_and_op(&value, before, MPI_INT64_T, at, cell, op, win);
	MPI_Win_flush(at, win);
}

/* Draws numbers at rank 0: every number goes to one rank, and each rank sees its own ones rise. */
static void tickets(MPI_Win win)
{
	int64_t own[TICKETS], last = -1, *all = room(sizeof own * (size_t)ranks);
	bool *seen = room((size_t)ranks * TICKETS);

	MPI_Win_lock_all(0, win);
	for (int i = 0; i < TICKETS; i++) {
		fetch(win, MPI_SUM, 1, 0, TICKET, &own[i]);
		if (own[i] <= last)
			give_up("number %ld was drawn after number %ld", (long)own[i], (long)last);
		last = own[i];
	}
	MPI_Win_unlock_all(win);
	MPI_Allgather(own, TICKETS, MPI_INT64_T, all, TICKETS, MPI_INT64_T, MPI_COMM_WORLD);
	memset(seen, 0, (size_t)ranks * TICKETS);
	for (int i = 0; i < ranks * TICKETS; i++) {
		if (all[i] < 0 || all[i] >= ranks * TICKETS || seen[all[i]])
			give_up("number %ld was drawn twice, or is none", (long)all[i]);
		seen[all[i]] = true;
	}
	free(all);
	free(seen);
}

/* A lock of compare and swap, and below it a counter that is read and written in two steps. */
static void guarded(MPI_Win win)
{
	const int64_t nobody = 0, us = rank + 1;
	int home = ranks - 1;
	int64_t found, value;

	MPI_Win_lock_all(0, win);
	for (int i = 0; i < TURNS; i++) {
		do {
			MPI_Compare_and_swap(&us, &nobody, &found, MPI_INT64_T, home, LOCK, win);
			MPI_Win_flush(home, win);
			if (found == us)
				give_up("the lock is ours before we took it");
		} while (found != nobody);
		MPI_Get(&value, 1, MPI_INT64_T, home, GUARDED, 1, MPI_INT64_T, win);
		MPI_Win_flush(home, win);
		value++;
		MPI_Put(&value, 1, MPI_INT64_T, home, GUARDED, 1, MPI_INT64_T, win);
		MPI_Win_flush(home, win);
		MPI_Compare_and_swap(&nobody, &us, &found, MPI_INT64_T, home, LOCK, win);
		MPI_Win_flush(home, win);
		if (found != us)
			give_up("the lock was taken away by %ld", (long)found);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Get(&value, 1, MPI_INT64_T, home, GUARDED, 1, MPI_INT64_T, win);
	MPI_Win_unlock_all(win);
	if (value != (int64_t)TURNS * ranks)
		give_up("the counter under the lock is %ld", (long)value);
}

/* Everyone swaps names into one cell: each name but the last comes out once. */
static void chain(MPI_Win win)
{
	int64_t own[TURNS], value = 0, *all = room(sizeof own * (size_t)ranks), sum = 0, names = 0;

	MPI_Win_lock_all(0, win);
	for (int i = 0; i < TURNS; i++)
		fetch(win, MPI_REPLACE, (int64_t)1 << 32 | (int64_t)(rank * TURNS + i), 0, CHAIN, &own[i]);
	MPI_Barrier(MPI_COMM_WORLD);
	fetch(win, MPI_NO_OP, 0, 0, CHAIN, &value);
	MPI_Win_unlock_all(win);
	MPI_Allgather(own, TURNS, MPI_INT64_T, all, TURNS, MPI_INT64_T, MPI_COMM_WORLD);
	for (int i = 0; i < ranks * TURNS; i++) {
		sum += mix((uint64_t)all[i]);
		names += mix((uint64_t)1 << 32 | (uint64_t)i);
	}
	if (sum + (int64_t)mix((uint64_t)value) != names + (int64_t)mix(0))
		give_up("names were lost or doubled");
	free(all);
}

/* Everyone adds to an array at each rank. */
#define ADD(type, mpi_type, win_of) do { \
	type *sums = room(sizeof(type) * SUMS), *add = room(sizeof(type) * SUMS); \
	MPI_Win win_of; \
	for (int i = 0; i < SUMS; i++) { \
		sums[i] = 0; \
		add[i] = (type)(rank + 1) * (type)(i + 1); \
	} \
	MPI_Win_create(sums, sizeof(type) * SUMS, sizeof(type), MPI_INFO_NULL, MPI_COMM_WORLD, &win_of); \
	MPI_Win_fence(0, win_of); \
	for (int at = 0; at < ranks; at++) { \
		MPI_Accumulate(add, SUMS, mpi_type, at, 0, SUMS, mpi_type, MPI_SUM, win_of); \
		for (int i = 0; i < SUMS; i += 7) \
			MPI_Accumulate(add + i, 1, mpi_type, at, i, 1, mpi_type, MPI_SUM, win_of); \
	} \
	MPI_Win_fence(0, win_of); \
	for (int i = 0; i < SUMS; i++) { \
		type each = (type)(ranks * (ranks + 1) / 2) * (type)(i + 1); \
		if (sums[i] != (i % 7 ? each : 2 * each)) \
			give_up("a sum of " #type " is wrong"); \
	} \
	MPI_Win_free(&win_of); \
	free(sums); \
	free(add); \
} while (0)

int main(int argc, char **argv)
{
	int64_t *cells;
	MPI_Win win;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	largest = argc > 1 ? strtoul(argv[1], NULL, 10) : 65536;

	blocks();
	cells = room(sizeof *cells * CELLS);
	memset(cells, 0, sizeof *cells * CELLS);
	MPI_Win_create(cells, sizeof *cells * CELLS, sizeof *cells, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	tickets(win);
	guarded(win);
	chain(win);
	MPI_Win_free(&win);
	free(cells);
	ADD(int32_t, MPI_INT32_T, narrow);
	ADD(int64_t, MPI_INT64_T, wide);
	ADD(double, MPI_DOUBLE, floating);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("onesided: %d ranks, puts, gets and atomics are right\n", ranks);
	MPI_Finalize();
	return 0;
}
