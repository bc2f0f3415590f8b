/* Reads and writes of the other side's memory. Each side checks what the other one put there. */
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_rma.h>

#include "work.h"

#define KEY 7
#define SIZES 64

void tell(struct side *s, void *buf, size_t len)
{
	struct op op = { 0 };

	POST(s, "fi_send", fi_send(s->ep, buf, len, NULL, s->to, &op));
	finish(s, &op, "a send");
}

void hear_of(struct side *s, void *buf, size_t len)
{
	struct op op = { 0 };

	POST(s, "fi_recv", fi_recv(s->rx, buf, len, NULL, FI_ADDR_UNSPEC, &op));
	finish(s, &op, "a receive");
	if (op.len != len)
		fail("%zu bytes came instead of %zu", op.len, len);
}

void open_region(struct side *s, struct region *r)
{
	uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
	struct place ours = { 0 };
	struct op op = { 0 };

	r->room = s->opt.largest + 2 * GUARDS;
	r->memory = calloc(1, r->room);
	if (!r->memory)
		fail("no memory for %zu bytes", r->room);
	check(fi_mr_reg(s->domain, r->memory, r->room, access, 0, KEY, 0, &r->mr, NULL), "fi_mr_reg");
	if (s->info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC))
		ours.addr = (uintptr_t)r->memory;
	ours.key = fi_mr_key(r->mr);
	POST(s, "fi_recv", fi_recv(s->rx, &r->theirs, sizeof r->theirs, NULL, FI_ADDR_UNSPEC, &op));
	tell(s, &ours, sizeof ours);
	finish(s, &op, "a receive");
}

static void cut_memory(struct iovec iov[SEGMENTS], void *buf, size_t len)
{
	const size_t ends[SEGMENTS] = { len / 9, len / 2, len - len / 4, len };
	size_t at = 0;

	for (int i = 0; i < SEGMENTS; i++) {
		iov[i] = (struct iovec){ (uint8_t *)buf + at, ends[i] - at };
		at = ends[i];
	}
}

/* The peer's memory from GUARDS on, in three pieces that follow each other. */
static void cut_place(struct fi_rma_iov iov[3], const struct region *r, size_t len)
{
	const size_t ends[3] = { len / 3, len / 2, len };
	size_t at = 0;

	for (int i = 0; i < 3; i++) {
		iov[i] = (struct fi_rma_iov){ r->theirs.addr + GUARDS + at, ends[i] - at, r->theirs.key };
		at = ends[i];
	}
}

static void put(struct side *s, const struct work *w, struct region *r, void *buf, size_t len, uint64_t data)
{
	uint64_t addr = r->theirs.addr + GUARDS, key = r->theirs.key;
	struct fi_rma_iov remote[3];
	struct iovec local[SEGMENTS];
	struct fi_msg_rma msg = {
		.msg_iov = local, .iov_count = SEGMENTS, .addr = s->to, .rma_iov = remote, .rma_iov_count = 3, .data = data,
	};
	struct op op = { 0 };

	cut_memory(local, buf, len);
	cut_place(remote, r, len);
	msg.context = &op;
	switch (w->how) {
	case INJECT:
		POST(s, "fi_inject_write", fi_inject_write(s->ep, buf, len, s->to, addr, key));
		memset(buf, 0, len);
		return;
	case DATA:
		POST(s, "fi_writedata", fi_writedata(s->ep, buf, len, NULL, data, s->to, addr, key, &op));
		break;
	case DELIVERY:
		POST(s, "fi_writemsg", fi_writemsg(s->ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION));
		break;
	case IOV:
		POST(s, "fi_writemsg", fi_writemsg(s->ep, &msg, FI_REMOTE_CQ_DATA | FI_COMPLETION));
		break;
	default:
		POST(s, "fi_write", fi_write(s->ep, buf, len, NULL, s->to, addr, key, &op));
	}
	finish(s, &op, "a write");
	if ((op.flags & (FI_RMA | FI_WRITE)) != (FI_RMA | FI_WRITE))
		fail("a write completed with flags 0x%lx", op.flags);
}

static void get(struct side *s, const struct work *w, struct region *r, void *buf, size_t len)
{
	uint64_t addr = r->theirs.addr + GUARDS, key = r->theirs.key;
	struct fi_rma_iov remote[3];
	struct iovec local[SEGMENTS];
	struct op op = { 0 };
	struct fi_msg_rma msg = {
		.msg_iov = local, .iov_count = SEGMENTS, .addr = s->to, .rma_iov = remote, .rma_iov_count = 3, .context = &op,
	};

	cut_memory(local, buf, len);
	cut_place(remote, r, len);
	if (w->how == IOV)
		POST(s, "fi_readmsg", fi_readmsg(s->ep, &msg, FI_COMPLETION));
	else
		POST(s, "fi_read", fi_read(s->ep, buf, len, NULL, s->to, addr, key, &op));
	finish(s, &op, "a read");
	if ((op.flags & (FI_RMA | FI_READ)) != (FI_RMA | FI_READ))
		fail("a read completed with flags 0x%lx", op.flags);
}

static void verify_memory(const struct region *r, size_t len, uint64_t seed)
{
	uint8_t *wanted = new_buffer(len);

	fill(wanted, len, seed);
	if (memcmp(r->memory + GUARDS, wanted, len))
		fail("a write of %zu bytes left others", len);
	for (size_t i = 0; i < GUARDS; i++)
		if (r->memory[i] || r->memory[GUARDS + len + i])
			fail("a write of %zu bytes went further", len);
	memset(r->memory, 0, r->room);
	free(wanted);
}

static void await_data(struct side *s, uint64_t data, size_t len)
{
	while (!s->written)
		progress(s);
	s->written--;
	if (s->written_data != data || s->written_len != len)
		fail("CQ data 0x%lx of %zu bytes came instead of 0x%lx of %zu", s->written_data, s->written_len, data, len);
}

static bool has_data(const struct work *w)
{
	return w->how == DATA || w->how == IOV;
}

/*
 * Round after round: one side writes and says so, the other one looks at its memory, puts something else there, and
 * says so; then the first one reads that. Sides change each round.
 */
void one_sided(struct side *s, const struct work *w)
{
	static const size_t steps[] = { 0, 1, 7, 8, 9, 64, 120, 121, 1000, 4096, 16383, 65536, 100001, 1 << 20, 4 << 20 };
	size_t largest = w->how == INJECT ? largest_injected(s) : s->opt.largest;
	struct region r;
	unsigned rounds = 0;
	uint8_t word = 1;

	open_region(s, &r);
	for (unsigned i = 0; i < 2 * sizeof steps / sizeof *steps; i++) {
		size_t len = steps[i / 2];
		uint64_t state = i, seed = next_random(&state), answer = next_random(&state);
		uint8_t *buf;

		if (len > largest || (w->how == IOV && len < 9))
			continue;
		rounds++;
		buf = new_buffer(len);
		if (s->opt.server == i % 2) {
			fill(buf, len, seed);
			put(s, w, &r, buf, len, seed);
			tell(s, &word, 1);
			hear_of(s, &word, 1);
			memset(buf, 0, len);
			get(s, w, &r, buf, len);
			verify(buf, len, answer, "a read");
			tell(s, &word, 1);
		} else {
			hear_of(s, &word, 1);
			if (has_data(w))
				await_data(s, seed, len);
			verify_memory(&r, len, seed);
			fill(r.memory + GUARDS, len, answer);
			tell(s, &word, 1);
			hear_of(s, &word, 1);
			memset(r.memory, 0, r.room);
		}
		free(buf);
	}
	check(fi_close(&r.mr->fid), "fi_close of the region");
	free(r.memory);
	say("DONE %u rounds", rounds);
}
