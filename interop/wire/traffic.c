/* Works in which both sides live to the end. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "work.h"

/* The message of one round of ping-pong, from the server or from the client. */
static struct message in_round(const struct work *w, size_t len, unsigned round, bool server)
{
	uint64_t state = (uint64_t)round << 8 | (uint64_t)w->how << 1 | server;

	return (struct message){ .len = len, .seed = next_random(&state), .tag = next_random(&state), .how = w->how };
}

static void send_round(struct side *s, const struct work *w, size_t len, unsigned round)
{
	struct message m = in_round(w, len, round, s->opt.server);
	uint8_t *buf = new_buffer(len);
	struct op op;

	fill(buf, len, m.seed);
	transmit(s, &m, w->tagged, buf, &op);
	finish(s, &op, "a send");
	free(buf);
}

/* Says to the other side that we are ready, and waits until it says so. */
static void meet(struct side *s)
{
	struct message ready = { .len = 1, .tag = 0 };
	uint8_t in, out = 0;
	struct op sent, heard;

	receive(s, &ready, false, FI_ADDR_UNSPEC, &in, &heard);
	transmit(s, &ready, false, &out, &sent);
	finish(s, &heard, "a receive");
	finish(s, &sent, "a send");
}

/* A receive that was posted for the other side's message of one round. */
struct posted {
	struct message message;
	uint8_t *buf;
	struct op op;
};

/* Every other receive says whom it is from. */
static void post_round(struct side *s, const struct work *w, struct posted *p, size_t len, unsigned round)
{
	p->message = in_round(w, len, round, !s->opt.server);
	p->buf = new_buffer(len);
	receive(s, &p->message, w->tagged, round & 1 ? s->to : FI_ADDR_UNSPEC, p->buf, &p->op);
}

static void finish_round(struct side *s, const struct work *w, struct posted *p)
{
	finish(s, &p->op, "a receive");
	verify_received(s, &p->message, w->tagged, p->buf, &p->op);
	free(p->buf);
}

#define ROUNDS 1024

/* Every power of two with its neighbours, up to the largest; small ones more often. */
static unsigned sizes_of_rounds(size_t sizes[ROUNDS], size_t largest)
{
	unsigned rounds = 0;

	for (size_t power = 1; power / 2 < largest; power *= 2)
		for (size_t len = power - 1; len <= power + 1 && len <= largest; len++)
			for (int i = 0; i < (len <= 65536 ? 8 : 2) && rounds < ROUNDS; i++)
				sizes[rounds++] = len;
	return rounds;
}

/*
 * A message there and one back, round after round. The server has a receive for the next round before it answers:
 * the C library dies of a tagged message on a connected endpoint when no receive waits for it.
 */
void ping_pong(struct side *s, const struct work *w)
{
	size_t sizes[ROUNDS];
	unsigned rounds = sizes_of_rounds(sizes, w->how == INJECT ? largest_injected(s) : s->opt.largest);
	struct posted posted[2];

	if (s->opt.server)
		post_round(s, w, &posted[0], sizes[0], 0);
	if (w->tagged)
		meet(s);
	for (unsigned i = 0; i < rounds; i++) {
		if (s->opt.server) {
			finish_round(s, w, &posted[i % 2]);
			if (i + 1 < rounds)
				post_round(s, w, &posted[(i + 1) % 2], sizes[i + 1], i + 1);
			send_round(s, w, sizes[i], i);
		} else {
			post_round(s, w, &posted[0], sizes[i], i);
			send_round(s, w, sizes[i], i);
			finish_round(s, w, &posted[0]);
		}
	}
	say("DONE %u rounds", rounds);
}

/*
 * With delivery complete, nothing completes before the other side has processed it; and with manual progress that
 * side does nothing while it sleeps. It tells in its answer when it woke: on one machine both have the same clock.
 */
void late(struct side *s, const struct work *w)
{
	static const size_t sizes[] = { 1, 64, 4096, 100000, 1 << 20 };
	struct message answer = { .len = sizeof(double), .tag = UINT64_MAX }, asleep = { .len = 1 };
	uint8_t letter;
	double woken, completed;
	struct op op, reply;
	uint8_t *buf;

	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct message m = in_round(w, sizes[i], i, false);

		buf = new_buffer(m.len);
		meet(s);
		if (s->opt.server) {
			receive(s, &m, w->tagged, FI_ADDR_UNSPEC, buf, &op);
			POST(s, "fi_inject", fi_inject(s->ep, "z", 1, s->to));
			usleep(100000);
			woken = now();
			finish(s, &op, "a late receive");
			verify_received(s, &m, w->tagged, buf, &op);
			transmit(s, &answer, w->tagged, &woken, &reply);
			finish(s, &reply, "an answer");
		} else {
			fill(buf, m.len, m.seed);
			receive(s, &asleep, false, FI_ADDR_UNSPEC, &letter, &op);
			finish(s, &op, "a word that the other side sleeps");
			receive(s, &answer, w->tagged, FI_ADDR_UNSPEC, &woken, &reply);
			transmit(s, &m, w->tagged, buf, &op);
			finish(s, &op, "a send with delivery complete");
			completed = now();
			finish(s, &reply, "an answer");
			if (completed < woken)
				fail("%zu bytes were called delivered %.6f s before the other side saw them",
				     m.len, woken - completed);
		}
		free(buf);
	}
	say("DONE %zu messages", sizeof sizes / sizeof *sizes);
}

#define BATCH 128
#define BATCHES 30

struct flow {
	struct message message[BATCH];
	uint8_t *buf[BATCH];
	struct op op[BATCH];
};

static void plan_batch(struct side *s, struct flow *f, unsigned batch, bool server)
{
	uint64_t state = (uint64_t)batch << 1 | server;

	for (unsigned i = 0; i < BATCH; i++) {
		f->message[i] = random_message(&state, s->opt.largest / 4, (uint64_t)batch << 32 | i);
		f->buf[i] = new_buffer(f->message[i].len);
	}
}

/* Receives are posted in this order: as they come, or with tags in any. */
static void order_of_receives(unsigned order[BATCH], uint64_t state, bool shuffled)
{
	for (unsigned i = 0; i < BATCH; i++) {
		unsigned j = shuffled ? (unsigned)(next_random(&state) % (i + 1)) : i;

		order[i] = order[j];
		order[j] = i;
	}
}

static void post_receives(struct side *s, const struct work *w, struct flow *in, const unsigned *order, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		unsigned n = order[i];

		receive(s, &in->message[n], w->tagged, n & 1 ? s->to : FI_ADDR_UNSPEC, in->buf[n], &in->op[n]);
	}
}

/*
 * Both sides send batches of mixed messages at once. Half of the receives are posted after the sends; but all of
 * them before with a shared receive context, where the C library cannot take tagged messages that come too early.
 */
void stream(struct side *s, const struct work *w)
{
	struct flow *in = malloc(sizeof *in), *out = malloc(sizeof *out);
	unsigned order[BATCH] = { 0 }, early = s->opt.shared_rx ? BATCH : BATCH / 2;

	for (unsigned batch = 0; batch < BATCHES; batch++) {
		plan_batch(s, in, batch, !s->opt.server);
		plan_batch(s, out, batch, s->opt.server);
		order_of_receives(order, batch, w->tagged);
		post_receives(s, w, in, order, early);
		if (s->opt.shared_rx)
			meet(s);
		for (unsigned i = 0; i < BATCH; i++) {
			fill(out->buf[i], out->message[i].len, out->message[i].seed);
			transmit(s, &out->message[i], w->tagged, out->buf[i], &out->op[i]);
		}
		post_receives(s, w, in, order + early, BATCH - early);
		for (unsigned i = 0; i < BATCH; i++) {
			finish(s, &in->op[i], "a receive");
			verify_received(s, &in->message[i], w->tagged, in->buf[i], &in->op[i]);
			free(in->buf[i]);
		}
		for (unsigned i = 0; i < BATCH; i++) {
			finish(s, &out->op[i], "a send");
			free(out->buf[i]);
		}
	}
	free(in);
	free(out);
	say("DONE %u messages each way", BATCHES * BATCH);
}

#define MULTI_MESSAGES 4000
/* The least room in which C libfabric goes on using a buffer, if not set. */
#define MULTI_LARGEST (16u << 10)
#define MULTI_ROOM (512u << 10)
#define MULTI_BUFFERS 2

/* What the receiver of multi-receive buffers expects next. */
struct expected {
	uint64_t state;
	unsigned count;
	uint8_t *copy;
	struct op *current;
};

static void take_next(struct op *op, void *buf, size_t len)
{
	struct expected *e = op->owner;
	struct message m = random_message(&e->state, MULTI_LARGEST, 0);

	if (len != m.len)
		fail("message %u in a multi-receive buffer has %zu bytes instead of %zu", e->count, len, m.len);
	memset(e->copy, 0, len);
	memcpy(e->copy, buf, len);
	for (size_t i = len; i < len + 16; i++)
		e->copy[i] = 0xa5;
	verify(e->copy, len, m.seed, "multi-receive");
	e->count++;
}

static void post_multi(struct side *s, struct expected *e, struct op *op, void *room)
{
	struct iovec iov = { room, MULTI_ROOM };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = op };

	*op = (struct op){ .arrived = take_next, .owner = e };
	POST(s, "fi_recvmsg with FI_MULTI_RECV", fi_recvmsg(s->rx, &msg, FI_MULTI_RECV | FI_COMPLETION));
}

static void receive_multi(struct side *s)
{
	struct expected e = { .state = 7, .copy = new_buffer(MULTI_LARGEST) };
	struct op op[MULTI_BUFFERS], reply;
	struct message answer = { .len = 8 };
	uint64_t words = 0;
	size_t least = MULTI_LARGEST;
	void *room[MULTI_BUFFERS];

	/* C libfabric has no such option on a shared receive context. */
	if (!s->srx)
		check(fi_setopt(&s->rx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least),
		      "fi_setopt");
	for (int i = 0; i < MULTI_BUFFERS; i++)
		post_multi(s, &e, &op[i], room[i] = new_buffer(MULTI_ROOM));
	while (e.count < MULTI_MESSAGES) {
		progress(s);
		for (int i = 0; i < MULTI_BUFFERS; i++)
			if (op[i].done)
				post_multi(s, &e, &op[i], room[i]);
	}
	transmit(s, &answer, false, &words, &reply);
	finish(s, &reply, "an answer");
}

/* The client sends small messages without pause; the server has two large buffers for all of them. */
void multi(struct side *s, const struct work *w)
{
	struct flow *out = calloc(1, sizeof *out);
	struct message answer = { .len = 8 };
	uint64_t state = 7, words;
	struct op reply;

	if (s->opt.server) {
		receive_multi(s);
	} else {
		receive(s, &answer, false, FI_ADDR_UNSPEC, &words, &reply);
		for (unsigned i = 0; i < MULTI_MESSAGES; i++) {
			unsigned slot = i % BATCH;

			if (i >= BATCH)
				finish(s, &out->op[slot], "a send");
			free(out->buf[slot]);
			out->message[slot] = random_message(&state, MULTI_LARGEST, 0);
			out->buf[slot] = new_buffer(out->message[slot].len);
			fill(out->buf[slot], out->message[slot].len, out->message[slot].seed);
			transmit(s, &out->message[slot], w->tagged, out->buf[slot], &out->op[slot]);
		}
		for (unsigned i = 0; i < BATCH; i++)
			finish(s, &out->op[i], "a send");
		finish(s, &reply, "an answer");
	}
	free(out);
	say("DONE %u messages", MULTI_MESSAGES);
}

/* A receive with flags; returns the error of its completion. */
static int look(struct side *s, const struct message *m, uint64_t flags, void *buf, struct op *op)
{
	struct iovec iov = { buf, buf ? m->len : 0 };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = buf ? 1 : 0, .addr = FI_ADDR_UNSPEC,
		.tag = m->tag, .context = op };
	struct fi_context2 context = op->context;

	*op = (struct op){ .context = context, .may_fail = true };
	POST(s, "fi_trecvmsg", fi_trecvmsg(s->rx, &msg, flags | FI_COMPLETION));
	finish(s, op, "a look");
	if (op->error && op->error != FI_ENOMSG)
		fail("a look ended with %s", fi_strerror(op->error));
	return op->error;
}

static void look_until_found(struct side *s, const struct message *m, uint64_t flags, struct op *op)
{
	while (look(s, m, flags, NULL, op))
		;
	if (op->len != m->len || op->tag != m->tag)
		fail("a look found %zu bytes with tag 0x%lx instead of %zu with 0x%lx", op->len, op->tag, m->len, m->tag);
}

/* The server looks at each message before it takes it: plainly, by a claim, or not at all. */
void peek(struct side *s, const struct work *w)
{
	static const size_t sizes[] = { 8, 4096, 300000 };
	static const uint64_t ways[] = { FI_PEEK, FI_PEEK | FI_CLAIM, FI_PEEK | FI_DISCARD };

	for (unsigned i = 0; i < 36; i++) {
		struct message m = in_round(w, sizes[i % 3], i, false);
		uint64_t way = ways[i / 3 % 3];
		uint8_t *buf = new_buffer(m.len);
		struct op op = { 0 };

		if (!s->opt.server) {
			send_round(s, w, m.len, i);
		} else {
			look_until_found(s, &m, way, &op);
			if (way & FI_CLAIM) {
				look(s, &m, FI_CLAIM, buf, &op);
			} else if (way & FI_DISCARD) {
				if (!look(s, &m, FI_PEEK, NULL, &op))
					fail("a message is still there after FI_DISCARD");
			} else {
				receive(s, &m, true, FI_ADDR_UNSPEC, buf, &op);
				finish(s, &op, "a receive after FI_PEEK");
			}
			if (!(way & FI_DISCARD))
				verify_received(s, &m, true, buf, &op);
		}
		free(buf);
	}
	say("DONE 36 messages");
}
