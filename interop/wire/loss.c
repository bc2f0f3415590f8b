/* Works in which the script kills one side: what the other one was waiting for must end with an error. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "work.h"

#define WINDOW 4
#define DRAIN_LEN (64u << 20)

static void ended(int error, const char *what)
{
	say("ENDED %s: %s", what, fi_strerror(error));
	exit(0);
}

static unsigned unfinished(const struct op *ops, unsigned count)
{
	unsigned n = 0;

	for (unsigned i = 0; i < count; i++)
		n += !ops[i].done;
	return n;
}

/* The connection is lost: nothing that waits for the peer may go on waiting. */
static void end_all(struct side *s, struct op *ops, unsigned count, const char *what)
{
	while (unfinished(ops, count))
		progress(s);
	ended(s->broken, what);
}

/* Sends or receives into one slot; says whether it is under way. */
static bool post(struct side *s, const struct work *w, uint8_t *buf, struct op *op)
{
	long result;

	*op = (struct op){ .may_fail = true };
	do {
		if (w->tagged && s->opt.server)
			result = fi_trecv(s->rx, buf, DRAIN_LEN, NULL, FI_ADDR_UNSPEC, 1, 0, op);
		else if (w->tagged)
			result = fi_tsend(s->ep, buf, DRAIN_LEN, NULL, s->to, 1, op);
		else if (s->opt.server)
			result = fi_recv(s->rx, buf, DRAIN_LEN, NULL, FI_ADDR_UNSPEC, op);
		else
			result = fi_send(s->ep, buf, DRAIN_LEN, NULL, s->to, op);
		if (result == -FI_EAGAIN)
			progress(s);
	} while (result == -FI_EAGAIN && !s->broken);
	if (result && !s->broken)
		s->broken = (int)-result;
	op->done = result != 0;
	return !result;
}

/* Whether a part of a message is in the buffer of a receive, and not all of it. */
static bool halfway(const uint8_t *buf, const struct op *op)
{
	const volatile uint8_t *place = buf;

	return !op->done && place[0] && !place[DRAIN_LEN - 1];
}

/* The client sends large messages for ever; the server receives them. Then it stops in the middle of one until the script
   has killed its peer: a receive from anybody for which no message has begun may wait for others. */
void drain(struct side *s, const struct work *w)
{
	struct op op[WINDOW];
	uint8_t *buf[WINDOW];
	unsigned finished = 0;
	bool said = false;

	for (int i = 0; i < WINDOW; i++) {
		buf[i] = calloc(1, DRAIN_LEN);
		if (!buf[i])
			fail("no memory");
		if (!s->opt.server)
			buf[i][0] = buf[i][DRAIN_LEN - 1] = 1;
		if (!post(s, w, buf[i], &op[i]))
			fail("cannot begin: %s", fi_strerror(s->broken));
	}
	while (!s->broken) {
		progress(s);
		for (int i = 0; i < WINDOW && !s->broken; i++) {
			if (!said && finished >= 2 && (!s->opt.server || halfway(buf[i], &op[i]))) {
				said = true;
				say("STARTED");
				if (s->opt.server)
					usleep(500 * 1000);
			}
			if (!op[i].done)
				continue;
			finished++;
			if (s->opt.server)
				buf[i][0] = buf[i][DRAIN_LEN - 1] = 0;
			post(s, w, buf[i], &op[i]);
		}
	}
	/* A receive from anybody on a connectionless endpoint may still be served by somebody else. */
	if (s->opt.server && s->opt.type == FI_EP_RDM)
		ended(s->broken, "a receive");
	end_all(s, op, WINDOW, s->opt.server ? "every receive" : "every send");
}

/* The client's tagged messages are too long to be sent before the server, which never does, has buffers for them. */
void stuck(struct side *s, const struct work *w)
{
	struct op op[WINDOW];
	uint8_t *buf = calloc(1, DRAIN_LEN);
	double until = now() + 0.3;

	for (int i = 0; i < WINDOW && !s->opt.server; i++)
		if (!post(s, w, buf, &op[i]))
			fail("cannot begin: %s", fi_strerror(s->broken));
	while (now() < until)
		progress(s);
	say("STARTED");
	while (!s->broken)
		progress(s);
	end_all(s, op, WINDOW, "every send");
}

/* The client waits for a message from the server in particular, with whom it has spoken before. */
void await(struct side *s, const struct work *w)
{
	struct op op = { 0 };
	uint64_t word = 0;
	struct message hello = { .len = sizeof word, .tag = 1 };

	if (s->opt.server) {
		transmit(s, &hello, w->tagged, &word, &op);
	} else {
		receive(s, &hello, w->tagged, s->to, &word, &op);
	}
	finish(s, &op, "a greeting");
	hello.tag = 2;
	receive(s, &hello, w->tagged, s->to, &word, &op);
	op.may_fail = true;
	say("STARTED");
	finish(s, &op, "a receive from a peer that is gone");
	ended(op.error, "a directed receive");
}

/* Tries to get an answer from the server for a second. */
static bool asked(struct side *s, uint64_t question, uint64_t *answer, struct op *heard)
{
	struct op op = { .may_fail = true };
	double until = now() + 1;
	long result;

	do {
		result = fi_send(s->ep, &question, sizeof question, NULL, s->to, &op);
		if (result)
			progress(s);
	} while (result == -FI_EAGAIN && now() < until);
	if (result)
		return false;
	while (!op.done)
		progress(s);
	while (!op.error && now() < until) {
		progress(s);
		if (!heard->done || heard->error)
			continue;
		*heard = (struct op){ .may_fail = true };
		if (*answer == question) {
			POST(s, "fi_recv", fi_recv(s->rx, answer, sizeof *answer, NULL, FI_ADDR_UNSPEC, heard));
			return true;
		}
		/* An answer to an older question. */
		POST(s, "fi_recv", fi_recv(s->rx, answer, sizeof *answer, NULL, FI_ADDR_UNSPEC, heard));
	}
	if (heard->done)
		fail("a receive from anybody ended with %s", fi_strerror(heard->error));
	return false;
}

static void echo(struct side *s)
{
	uint64_t word;
	struct op op;

	for (;;) {
		op = (struct op){ 0 };
		POST(s, "fi_recv", fi_recv(s->rx, &word, sizeof word, NULL, FI_ADDR_UNSPEC, &op));
		finish(s, &op, "a question");
		op = (struct op){ .may_fail = true };
		POST(s, "fi_send", fi_send(s->ep, &word, sizeof word, NULL, s->to, &op));
		finish(s, &op, "an answer");
	}
}

/* The server is killed and another one started at its address; the client must reach that one, by the same fi_addr_t. */
void restart(struct side *s, const struct work *w)
{
	struct op heard = { .may_fail = true };
	uint64_t answer, question = 1;
	unsigned attempts = 0;

	(void)w;
	if (s->opt.server)
		echo(s);
	POST(s, "fi_recv", fi_recv(s->rx, &answer, sizeof answer, NULL, FI_ADDR_UNSPEC, &heard));
	for (; question <= 100; question++)
		if (!asked(s, question, &answer, &heard))
			fail("no answer before the restart");
	say("STARTED");
	hear("GO");
	while (!asked(s, question++, &answer, &heard))
		attempts++;
	for (unsigned i = 0; i < 100; i++)
		if (!asked(s, question++, &answer, &heard))
			fail("no answer after the restart");
	say("DONE after %u attempts", attempts + 1);
	exit(0);
}
