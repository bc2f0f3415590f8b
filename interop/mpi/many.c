/* Many messages of one size at once: receives that wait for them, or messages that wait for their receives. */
#include <string.h>

#include "say.h"

/* Elements of a message. */
static int length = 1;

/* What each element of message `i` of rank `from` says. */
static int64_t item(int from, int i)
{
	return (int64_t)mix((uint64_t)from << 40 ^ (uint64_t)i);
}

static void expect(const MPI_Status *status, int from, int i, const int64_t *in)
{
	int64_t got = in[0];
	int elements;

	MPI_Get_count(status, MPI_INT64_T, &elements);
	for (int k = 1; k < length && got == item(from, i); k++)
		got = in[k];
	if (got != item(from, i) || status->MPI_SOURCE != from || status->MPI_TAG != i || elements != length)
		give_up("message %d of rank %d: tag %d of rank %d with %d elements, %lx instead of %lx", i, from,
			status->MPI_TAG, status->MPI_SOURCE, elements, (unsigned long)got, (unsigned long)item(from, i));
}

/* Rank 0 posts `count` receives for each other rank before the barrier, and the others send in reverse order after it. */
static void posted(int count)
{
	size_t others = (size_t)ranks - 1, all = (size_t)count * others;
	int64_t *in = room(all * sizeof *in);
	MPI_Request *requests = room(all * sizeof(MPI_Request));
	MPI_Status *statuses = room(all * sizeof *statuses);

	for (size_t k = 0; !rank && k < all; k++)
		MPI_Irecv(&in[k], 1, MPI_INT64_T, (int)(k % others) + 1, (int)(k / others), MPI_COMM_WORLD, &requests[k]);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = count - 1; rank && i >= 0; i--) {
		int64_t out = item(rank, i);

		MPI_Send(&out, 1, MPI_INT64_T, 0, i, MPI_COMM_WORLD);
	}
	if (!rank) {
		MPI_Waitall((int)all, requests, statuses);
		for (size_t k = 0; k < all; k++)
			expect(&statuses[k], (int)(k % others) + 1, (int)(k / others), &in[k]);
	}
	free(in);
	free(requests);
	free(statuses);
}

/* Every other rank starts `count` sends before the barrier, and rank 0 receives them after it: each rank in turn, the
 * first tag first, or the last one first. */
static void unexpected(int count, int backwards)
{
	size_t each = (size_t)length;
	int64_t *out = room((size_t)count * each * sizeof *out);
	int64_t *in = room(each * sizeof *in);
	MPI_Request *requests = room((size_t)count * sizeof(MPI_Request));

	for (int i = 0; rank && i < count; i++) {
		for (size_t k = 0; k < each; k++)
			out[(size_t)i * each + k] = item(rank, i);
		MPI_Isend(&out[(size_t)i * each], length, MPI_INT64_T, 0, i, MPI_COMM_WORLD, &requests[i]);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int k = 0; !rank && k < count; k++) {
		int i = backwards ? count - 1 - k : k;

		for (int from = 1; from < ranks; from++) {
			MPI_Status status;

			MPI_Recv(in, length, MPI_INT64_T, from, i, MPI_COMM_WORLD, &status);
			expect(&status, from, i, in);
		}
	}
	if (rank)
		MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
	free(out);
	free(in);
	free(requests);
}

/* many posted COUNT, many unexpected|backwards COUNT [ELEMENTS]: messages of each rank but the first to the first */
int main(int argc, char **argv)
{
	int count, known, *largest;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	count = argc >= 3 ? atoi(argv[2]) : 0;
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &known);
	if (ranks < 2 || count < 1 || !known || count - 1 > *largest)
		give_up("needs 2 ranks or more, and a count whose tags the MPI has");
	if (argc == 4 && strcmp(argv[1], "posted"))
		length = atoi(argv[3]);
	else if (argc > 3)
		length = 0;
	if (length < 1)
		give_up("needs messages of one element or more, and posted ones of just one");
	if (!strcmp(argv[1], "posted"))
		posted(count);
	else if (!strcmp(argv[1], "unexpected") || !strcmp(argv[1], "backwards"))
		unexpected(count, argv[1][0] == 'b');
	else
		give_up("%s is neither posted, unexpected nor backwards", argv[1]);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("many: %d ranks, %d %s messages of each are right\n", ranks, count, argv[1]);
	MPI_Finalize();
	return 0;
}
