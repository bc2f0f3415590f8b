/* Messages that both sides can compute: how they are sent, received and checked. */
#include <stdlib.h>
#include <string.h>

#include "work.h"

#define GUARD 0xa5
#define GUARDS 16

uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

struct message random_message(uint64_t *state, size_t largest, uint64_t tag)
{
	static const struct { unsigned percent; size_t limit; } classes[] = {
		{ 50, 256 }, { 85, 16 << 10 }, { 98, 256 << 10 }, { 100, SIZE_MAX },
	};
	unsigned draw = (unsigned)(next_random(state) % 100), class = 0;
	size_t limit;

	while (draw >= classes[class].percent)
		class++;
	limit = classes[class].limit < largest ? classes[class].limit : largest;
	return (struct message){
		.len = 1 + next_random(state) % limit, .seed = next_random(state), .tag = tag,
		.how = (enum how)(next_random(state) % HOWS),
	};
}

/* Never empty, and followed by bytes that nobody may touch. */
void *new_buffer(size_t len)
{
	uint8_t *buf = malloc(len + GUARDS);

	if (!buf)
		fail("no memory for %zu bytes", len);
	memset(buf + len, GUARD, GUARDS);
	return buf;
}

static uint64_t word(uint64_t seed, size_t index)
{
	return (seed + index) * 0x9e3779b97f4a7c15;
}

void fill(uint8_t *buf, size_t len, uint64_t seed)
{
	uint64_t w;
	size_t i;

	for (i = 0; i + 8 <= len; i += 8) {
		w = word(seed, i);
		memcpy(buf + i, &w, 8);
	}
	w = word(seed, i);
	memcpy(buf + i, &w, len - i);
}

void verify(const uint8_t *buf, size_t len, uint64_t seed, const char *what)
{
	uint64_t w, difference = 0;
	size_t i;

	for (i = 0; i + 8 <= len; i += 8) {
		memcpy(&w, buf + i, 8);
		difference |= w ^ word(seed, i);
	}
	w = word(seed, i);
	if (difference || memcmp(buf + i, &w, len - i))
		fail("%s: wrong bytes in a message of %zu", what, len);
	for (i = len; i < len + GUARDS; i++)
		if (buf[i] != GUARD)
			fail("%s: something was written behind a message of %zu bytes", what, len);
}

/* Cuts a buffer into uneven pieces. */
static void cut(struct iovec iov[SEGMENTS], void *buf, size_t len)
{
	const size_t ends[SEGMENTS] = { len / 7, len / 3, len - len / 5, len };
	size_t from = 0;

	for (int i = 0; i < SEGMENTS; i++) {
		iov[i] = (struct iovec){ (uint8_t *)buf + from, ends[i] - from };
		from = ends[i];
	}
}

static void transmit_tagged(struct side *s, const struct message *m, void *buf, struct op *op)
{
	struct iovec iov[SEGMENTS] = { { buf, m->len } };
	struct fi_msg_tagged msg = { .msg_iov = iov, .iov_count = 1, .addr = s->to, .tag = m->tag, .context = op };

	switch (m->how) {
	case INJECT:
		POST(s, "fi_tinject", fi_tinject(s->ep, buf, m->len, s->to, m->tag));
		break;
	case DATA:
		if (m->len <= s->info->tx_attr->inject_size && m->seed & 1) {
			POST(s, "fi_tinjectdata", fi_tinjectdata(s->ep, buf, m->len, m->seed, s->to, m->tag));
			op->done = true;
		} else {
			POST(s, "fi_tsenddata", fi_tsenddata(s->ep, buf, m->len, NULL, m->seed, s->to, m->tag, op));
		}
		break;
	case DELIVERY:
		POST(s, "fi_tsendmsg", fi_tsendmsg(s->ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION));
		break;
	case IOV:
		cut(iov, buf, m->len);
		POST(s, "fi_tsendv", fi_tsendv(s->ep, iov, NULL, SEGMENTS, s->to, m->tag, op));
		break;
	default:
		POST(s, "fi_tsend", fi_tsend(s->ep, buf, m->len, NULL, s->to, m->tag, op));
	}
}

static void transmit_untagged(struct side *s, const struct message *m, void *buf, struct op *op)
{
	struct iovec iov[SEGMENTS] = { { buf, m->len } };
	struct fi_msg msg = { .msg_iov = iov, .iov_count = 1, .addr = s->to, .context = op };

	switch (m->how) {
	case INJECT:
		POST(s, "fi_inject", fi_inject(s->ep, buf, m->len, s->to));
		break;
	case DATA:
		if (m->len <= s->info->tx_attr->inject_size && m->seed & 1) {
			POST(s, "fi_injectdata", fi_injectdata(s->ep, buf, m->len, m->seed, s->to));
			op->done = true;
		} else {
			POST(s, "fi_senddata", fi_senddata(s->ep, buf, m->len, NULL, m->seed, s->to, op));
		}
		break;
	case DELIVERY:
		POST(s, "fi_sendmsg", fi_sendmsg(s->ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION));
		break;
	case IOV:
		cut(iov, buf, m->len);
		POST(s, "fi_sendv", fi_sendv(s->ep, iov, NULL, SEGMENTS, s->to, op));
		break;
	default:
		POST(s, "fi_send", fi_send(s->ep, buf, m->len, NULL, s->to, op));
	}
}

/* Sends `buf`, which holds the bytes of `m` already. What is too long for inject is sent plainly. */
void transmit(struct side *s, const struct message *m, bool tagged, void *buf, struct op *op)
{
	struct message sent = *m;

	if (m->how == INJECT && m->len > s->info->tx_attr->inject_size)
		sent.how = PLAIN;
	*op = (struct op){ .done = sent.how == INJECT };
	if (tagged)
		transmit_tagged(s, &sent, buf, op);
	else
		transmit_untagged(s, &sent, buf, op);
	/* After an inject the buffer is the caller's again. */
	if (op->done)
		memset(buf, 0, sent.len);
}

void receive(struct side *s, const struct message *m, bool tagged, fi_addr_t from, void *buf, struct op *op)
{
	struct iovec iov[SEGMENTS];

	*op = (struct op){ 0 };
	cut(iov, buf, m->len);
	if (tagged && m->how == IOV)
		POST(s, "fi_trecvv", fi_trecvv(s->rx, iov, NULL, SEGMENTS, from, m->tag, 0, op));
	else if (tagged)
		POST(s, "fi_trecv", fi_trecv(s->rx, buf, m->len, NULL, from, m->tag, 0, op));
	else if (m->how == IOV)
		POST(s, "fi_recvv", fi_recvv(s->rx, iov, NULL, SEGMENTS, from, op));
	else
		POST(s, "fi_recv", fi_recv(s->rx, buf, m->len, NULL, from, op));
}

void verify_received(struct side *s, const struct message *m, bool tagged, const void *buf, const struct op *op)
{
	uint64_t wanted = FI_RECV | (tagged ? FI_TAGGED : FI_MSG) | (m->how == DATA ? FI_REMOTE_CQ_DATA : 0);

	if ((op->flags & (wanted | FI_REMOTE_CQ_DATA)) != wanted)
		fail("a message of %zu bytes came with flags 0x%lx instead of 0x%lx", m->len, op->flags, wanted);
	if (op->len != m->len)
		fail("%zu bytes came instead of %zu", op->len, m->len);
	if (tagged && op->tag != m->tag)
		fail("tag 0x%lx came instead of 0x%lx", op->tag, m->tag);
	if (m->how == DATA && op->data != m->seed)
		fail("CQ data 0x%lx came instead of 0x%lx", op->data, m->seed);
	if (s->opt.type == FI_EP_RDM && op->source != s->to)
		fail("the source is %lu instead of %lu", op->source, s->to);
	verify(buf, m->len, m->seed, "received");
}
