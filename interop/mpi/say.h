/* What both programs share: numbers both sides can compute, and how a rank gives up. */
#ifndef SAY_H
#define SAY_H

#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

static inline void give_up(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "rank %d: ", rank);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static inline uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static inline uint64_t next_random(uint64_t *state)
{
	return *state = mix(*state);
}

static inline void *room(size_t len)
{
	void *memory = malloc(len ? len : 1);

	if (!memory)
		give_up("no memory for %zu bytes", len);
	return memory;
}

#endif
