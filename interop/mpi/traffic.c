/*
 * Random messages between all ranks, a rank's own included: many at once, taken in every way that MPI has. Each
 * message tells who sent it, when and with which tag, so a receive that matches several is checked for order too.
 */
#include <stdbool.h>
#include <string.h>

#include "say.h"

#define MESSAGES 160            /* of each rank in a round */
#define TAGS 5

/* How the receives of a round are posted. */
enum way {
	EXACT,                  /* source and tag given, in random order */
	ANY,                    /* neither given */
	ANY_SOURCE,             /* the tag given */
	ANY_TAG,                /* the source given */
	PROBE,                  /* looked at before they are received */
	WAYS,
	MATCHED_PROBE,          /* looked at and taken in one step: only when asked for */
};

struct header {
	int32_t source, tag, number, len;
	uint64_t seed;
};

struct message {
	int to, tag, len;
	uint64_t seed;
	bool synchronous;
};

struct receive {
	int source, tag;        /* as given to MPI */
	uint8_t *buf;
	MPI_Request request;
	MPI_Status status;
};

static size_t largest;
static bool matched;
static unsigned long received;

/*
 * What rank `from` sends in a round: every rank can compute it. Open MPI 4.1 does not answer a synchronous message that
 * MPI_Mrecv took over OFI (ompi_mtl_ofi_mrecv_callback; later ones do), so there are none then.
 */
static void plan(struct message out[MESSAGES], unsigned round, int from)
{
	uint64_t state = mix((uint64_t)round << 16 | (uint64_t)from);

	for (int i = 0; i < MESSAGES; i++) {
		uint64_t draw = next_random(&state) % 100;
		size_t limit = draw < 40 ? 128 : draw < 80 ? 8192 : draw < 98 ? 262144 : largest;

		if (limit > largest)
			limit = largest;
		out[i].to = (int)(next_random(&state) % (uint64_t)ranks);
		out[i].tag = (int)(next_random(&state) % TAGS);
		out[i].len = (int)(sizeof(struct header) + next_random(&state) % limit);
		out[i].seed = next_random(&state);
		out[i].synchronous = next_random(&state) % 8 == 0 && !matched;
	}
}

static uint8_t pattern(uint64_t seed, size_t i)
{
	return (uint8_t)((seed >> (i % 56)) + i);
}

static uint8_t *build(const struct message *m, int number)
{
	struct header head = { rank, m->tag, number, m->len, m->seed };
	uint8_t *buf = room((size_t)m->len);

	memcpy(buf, &head, sizeof head);
	for (size_t i = sizeof head; i < (size_t)m->len; i++)
		buf[i] = pattern(m->seed, i);
	return buf;
}

/* The message is whole, and is what the status says. */
static struct header inspect(const struct receive *r)
{
	struct header head;
	int len;

	MPI_Get_count(&r->status, MPI_BYTE, &len);
	if (len < (int)sizeof head)
		give_up("a message of %d bytes", len);
	memcpy(&head, r->buf, sizeof head);
	if (head.len != len || head.source != r->status.MPI_SOURCE || head.tag != r->status.MPI_TAG)
		give_up("%d bytes from %d with tag %d say they are %d bytes from %d with tag %d", len,
			r->status.MPI_SOURCE, r->status.MPI_TAG, head.len, head.source, head.tag);
	if ((r->source != MPI_ANY_SOURCE && r->source != head.source) || (r->tag != MPI_ANY_TAG && r->tag != head.tag))
		give_up("a receive for source %d, tag %d took source %d, tag %d", r->source, r->tag, head.source, head.tag);
	for (size_t i = sizeof head; i < (size_t)len; i++)
		if (r->buf[i] != pattern(head.seed, i))
			give_up("wrong byte %zu of %d from %d", i, len, head.source);
	received++;
	return head;
}

/*
 * In the order in which they were posted, receives that could have taken each other's messages got them in the order
 * in which those were sent.
 */
static void inspect_order(struct receive *in, int count, enum way way)
{
	bool any_tag = way == ANY || way == ANY_TAG || way == PROBE || way == MATCHED_PROBE;
	int last[64][TAGS];

	memset(last, -1, sizeof last);
	for (int i = 0; i < count; i++) {
		struct header head = inspect(&in[i]);
		int *before = &last[head.source][any_tag ? 0 : head.tag];

		if (head.number <= *before)
			give_up("message %d of rank %d overtook its message %d", *before, head.source, head.number);
		*before = head.number;
	}
}

/* Which receives this rank needs, for what the others send. */
static int plan_receives(struct receive *in, unsigned round, enum way way)
{
	uint64_t state = mix(~(uint64_t)round ^ (uint64_t)rank);
	struct message out[MESSAGES];
	int count = 0;

	for (int from = 0; from < ranks; from++) {
		plan(out, round, from);
		for (int i = 0; i < MESSAGES; i++) {
			int at;

			if (out[i].to != rank)
				continue;
			/* Insert at a random place. */
			at = (int)(next_random(&state) % (uint64_t)(count + 1));
			in[count++] = in[at];
			in[at].source = way == EXACT || way == ANY_TAG ? from : MPI_ANY_SOURCE;
			in[at].tag = way == EXACT || way == ANY_SOURCE ? out[i].tag : MPI_ANY_TAG;
		}
	}
	return count;
}

static void post(struct receive *in, int count)
{
	for (int i = 0; i < count; i++) {
		in[i].buf = room(sizeof(struct header) + largest);
		MPI_Irecv(in[i].buf, (int)(sizeof(struct header) + largest), MPI_BYTE, in[i].source, in[i].tag,
			  MPI_COMM_WORLD, &in[i].request);
	}
}

static void take(struct receive *in, int count, enum way way)
{
	MPI_Message message;
	int len;

	for (int i = 0; i < count; i++) {
		struct receive *r = &in[i];

		switch (way) {
		case PROBE:
			MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &r->status);
			MPI_Get_count(&r->status, MPI_BYTE, &len);
			r->buf = room((size_t)len);
			MPI_Recv(r->buf, len, MPI_BYTE, r->status.MPI_SOURCE, r->status.MPI_TAG, MPI_COMM_WORLD,
				 &r->status);
			break;
		case MATCHED_PROBE:
			MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &r->status);
			MPI_Get_count(&r->status, MPI_BYTE, &len);
			r->buf = room((size_t)len);
			MPI_Mrecv(r->buf, len, MPI_BYTE, &message, &r->status);
			break;
		default:
			MPI_Wait(&r->request, &r->status);
		}
	}
}

/* In every other round the receives come after the messages. */
static void play(unsigned round)
{
	static struct message out[MESSAGES];
	static uint8_t *bufs[MESSAGES];
	static MPI_Request sends[MESSAGES];
	enum way way = matched ? MATCHED_PROBE : (enum way)(round % WAYS);
	struct receive *in = room(sizeof *in * (size_t)(MESSAGES * ranks + 1));
	int count = plan_receives(in, round, way);
	bool posted = way != PROBE && way != MATCHED_PROBE, early = round / WAYS % 2 == 0;

	plan(out, round, rank);
	if (posted && early)
		post(in, count);
	for (int i = 0; i < MESSAGES; i++) {
		bufs[i] = build(&out[i], i);
		if (out[i].synchronous)
			MPI_Issend(bufs[i], out[i].len, MPI_BYTE, out[i].to, out[i].tag, MPI_COMM_WORLD, &sends[i]);
		else
			MPI_Isend(bufs[i], out[i].len, MPI_BYTE, out[i].to, out[i].tag, MPI_COMM_WORLD, &sends[i]);
	}
	if (posted && !early)
		post(in, count);
	take(in, count, way);
	MPI_Waitall(MESSAGES, sends, MPI_STATUSES_IGNORE);
	inspect_order(in, count, way);
	for (int i = 0; i < MESSAGES; i++)
		free(bufs[i]);
	for (int i = 0; i < count; i++)
		free(in[i].buf);
	free(in);
	/* Wildcards must not take what belongs to the next round. */
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Receives that nothing is sent for can be taken back. */
static void cancel(void)
{
	MPI_Request request[8];
	MPI_Status status;
	int nothing[8], cancelled;

	for (int i = 0; i < 8; i++)
		MPI_Irecv(&nothing[i], 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : (rank + 1) % ranks, 1000 + i, MPI_COMM_WORLD,
			  &request[i]);
	for (int i = 7; i >= 0; i--) {
		MPI_Cancel(&request[i]);
		MPI_Wait(&request[i], &status);
		MPI_Test_cancelled(&status, &cancelled);
		if (!cancelled)
			give_up("a receive that nothing was sent for was not cancelled");
	}
}

/* A message longer than the buffer is an error of the receive, and the next one is received as ever. */
static void truncate_one(int len)
{
	uint8_t *out = room((size_t)len), *in = room((size_t)len);
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, error, class;
	MPI_Request send[2];

	memset(out, 7, (size_t)len);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Isend(out, len, MPI_BYTE, to, 1, MPI_COMM_WORLD, &send[0]);
	MPI_Isend(out, len, MPI_BYTE, to, 2, MPI_COMM_WORLD, &send[1]);
	error = MPI_Recv(in, len / 2, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Error_class(error, &class);
	if (class != MPI_ERR_TRUNCATE)
		give_up("%d bytes into %d: error class %d", len, len / 2, class);
	MPI_Recv(in, len, MPI_BYTE, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (memcmp(in, out, (size_t)len))
		give_up("wrong bytes after a truncated message");
	MPI_Waitall(2, send, MPI_STATUSES_IGNORE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	free(out);
	free(in);
}

/* traffic ROUNDS LARGEST [matched]: every other way in turn, or by matched probes */
int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 2 * WAYS;

	largest = argc > 2 ? (size_t)atol(argv[2]) : 1 << 20;
	matched = argc > 3;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (unsigned round = 0; round < rounds; round++)
		play(round);
	cancel();
	truncate_one(64);
	truncate_one(1 << 20);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("traffic: %d ranks, %u rounds, %lu messages on rank 0 are right\n", ranks, rounds, received);
	MPI_Finalize();
	return 0;
}
