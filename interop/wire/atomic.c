/* Atomics on the other side's memory: what they fetch, and what they leave there. */
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_atomic.h>

#include "work.h"

#define MOST 500
#define PIECES 3
#define INJECTED 4

/* Cells of one datatype. */
struct cells {
	enum fi_datatype type;
	size_t width;
	size_t count;
};

static uint64_t get_cell(const struct cells *c, const void *buf, size_t k)
{
	uint32_t half;
	uint64_t whole;

	if (c->width == sizeof half) {
		memcpy(&half, (const uint8_t *)buf + k * sizeof half, sizeof half);
		return half;
	}
	memcpy(&whole, (const uint8_t *)buf + k * sizeof whole, sizeof whole);
	return whole;
}

static void set_cell(const struct cells *c, void *buf, size_t k, uint64_t value)
{
	uint32_t half = (uint32_t)value;

	if (c->width == sizeof half)
		memcpy((uint8_t *)buf + k * sizeof half, &half, sizeof half);
	else
		memcpy((uint8_t *)buf + k * sizeof value, &value, sizeof value);
}

static void random_cells(const struct cells *c, void *buf, uint64_t *state)
{
	for (size_t k = 0; k < c->count; k++)
		set_cell(c, buf, k, next_random(state));
}

static void expect_cells(const struct cells *c, const void *found, const void *wanted, const char *what)
{
	for (size_t k = 0; k < c->count; k++)
		if (get_cell(c, found, k) != get_cell(c, wanted, k))
			fail("%s: cell %zu of %zu is 0x%lx instead of 0x%lx", what, k, c->count, get_cell(c, found, k),
			     get_cell(c, wanted, k));
}

static void finish_atomic(struct side *s, struct op *op, const char *what)
{
	finish(s, op, what);
	if (!(op->flags & FI_ATOMIC))
		fail("%s completed with flags 0x%lx", what, op->flags);
}

/* As many cells in pieces that follow each other, if there are enough. */
static size_t cut_cells(const struct cells *c, size_t ends[PIECES])
{
	if (c->count < PIECES) {
		ends[0] = c->count;
		return 1;
	}
	ends[0] = c->count / 3;
	ends[1] = c->count / 2 + 1;
	ends[2] = c->count;
	return ends[1] < ends[2] ? 3 : 2;
}

/* Reads by one atomic from several pieces of memory into as many, or writes, where there is nothing to fetch. */
static void in_pieces(struct side *s, const struct cells *c, const struct region *r, void *operand, void *result)
{
	uint64_t addr = r->theirs.addr + GUARDS;
	struct fi_rma_ioc remote[PIECES];
	struct fi_ioc local[PIECES];
	size_t ends[PIECES], pieces = cut_cells(c, ends), at = 0;
	struct op op = { 0 };
	struct fi_msg_atomic msg = {
		.msg_iov = operand ? local : NULL, .iov_count = operand ? pieces : 0, .addr = s->to, .rma_iov = remote,
		.rma_iov_count = pieces, .datatype = c->type, .op = operand ? FI_ATOMIC_WRITE : FI_ATOMIC_READ, .context = &op,
	};

	for (size_t i = 0; i < pieces; i++) {
		uint8_t *buf = operand ? operand : result;

		remote[i] = (struct fi_rma_ioc){ addr + at * c->width, ends[i] - at, r->theirs.key };
		local[i] = (struct fi_ioc){ buf + at * c->width, ends[i] - at };
		at = ends[i];
	}
	if (operand)
		POST(s, "fi_atomicmsg", fi_atomicmsg(s->ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION));
	else
		POST(s, "fi_fetch_atomicmsg", fi_fetch_atomicmsg(s->ep, &msg, local, NULL, pieces, FI_COMPLETION));
	finish_atomic(s, &op, operand ? "an atomic write" : "an atomic read");
}

/* Changes the other side's cells, which are zero, and ends with those that both can compute. */
static void change(struct side *s, const struct cells *c, const struct region *r, uint64_t state, void *last)
{
	uint64_t addr = r->theirs.addr + GUARDS, key = r->theirs.key;
	uint8_t cells[MOST * 8], operand[MOST * 8], compare[MOST * 8], result[MOST * 8];
	size_t injected = c->count < INJECTED ? c->count : INJECTED;
	struct op sum = { 0 }, fetch = { 0 }, swap = { 0 };

	random_cells(c, cells, &state);
	memcpy(operand, cells, sizeof operand);
	POST(s, "fi_atomic", fi_atomic(s->ep, operand, c->count, NULL, s->to, addr, key, c->type, FI_SUM, &sum));
	finish_atomic(s, &sum, "a sum");

	random_cells(c, operand, &state);
	POST(s, "fi_fetch_atomic",
	     fi_fetch_atomic(s->ep, operand, c->count, NULL, result, NULL, s->to, addr, key, c->type, FI_SUM, &fetch));
	finish_atomic(s, &fetch, "a sum that fetches");
	expect_cells(c, result, cells, "a sum that fetches");
	for (size_t k = 0; k < c->count; k++)
		set_cell(c, cells, k, get_cell(c, cells, k) + get_cell(c, operand, k));

	random_cells(c, operand, &state);
	memcpy(compare, cells, sizeof compare);
	for (size_t k = 1; k < c->count; k += 2)
		set_cell(c, compare, k, ~get_cell(c, cells, k));
	POST(s, "fi_compare_atomic",
	     fi_compare_atomic(s->ep, operand, c->count, NULL, compare, NULL, result, NULL, s->to, addr, key, c->type,
			       FI_CSWAP, &swap));
	finish_atomic(s, &swap, "a swap");
	expect_cells(c, result, cells, "a swap");
	for (size_t k = 0; k < c->count; k += 2)
		set_cell(c, cells, k, get_cell(c, operand, k));

	random_cells(c, operand, &state);
	POST(s, "fi_inject_atomic",
	     fi_inject_atomic(s->ep, operand, injected, s->to, addr, key, c->type, FI_BXOR));
	for (size_t k = 0; k < injected; k++)
		set_cell(c, cells, k, get_cell(c, cells, k) ^ get_cell(c, operand, k));
	memset(operand, 0, sizeof operand);
	in_pieces(s, c, r, NULL, result);
	expect_cells(c, result, cells, "an atomic read");
	in_pieces(s, c, r, last, NULL);
}

static void verify_cells(const struct cells *c, struct region *r, const void *wanted)
{
	size_t len = c->count * c->width;

	expect_cells(c, r->memory + GUARDS, wanted, "an atomic write");
	for (size_t i = 0; i < GUARDS; i++)
		if (r->memory[i] || r->memory[GUARDS + len + i])
			fail("atomics on %zu cells went further", c->count);
	memset(r->memory, 0, r->room);
}

/* Round after round one side changes the cells of the other one, which looks at them then. Sides change each round. */
void atomics(struct side *s, const struct work *w)
{
	static const size_t counts[] = { 1, 2, 3, 17, MOST };
	static const struct cells types[] = { { FI_UINT64, 8, 0 }, { FI_UINT32, 4, 0 } };
	struct region r;
	unsigned rounds = 0;
	uint8_t word = 1;

	(void)w;
	open_region(s, &r);
	for (unsigned i = 0; i < 4 * sizeof counts / sizeof *counts; i++, rounds++) {
		struct cells c = types[i / 2 % 2];
		uint64_t state = i, last_state = ~(uint64_t)i;
		uint8_t last[MOST * 8];

		c.count = counts[i / 4];
		random_cells(&c, last, &last_state);
		if (s->opt.server == i % 2) {
			change(s, &c, &r, state, last);
			tell(s, &word, 1);
			hear_of(s, &word, 1);
		} else {
			hear_of(s, &word, 1);
			verify_cells(&c, &r, last);
			tell(s, &word, 1);
		}
	}
	check(fi_close(&r.mr->fid), "fi_close of the region");
	free(r.memory);
	say("DONE %u rounds", rounds);
}
