/* What two sides do together. Both run the same work; `opt.server` tells them apart. */
#ifndef WORK_H
#define WORK_H

#include "side.h"

/* Which call sends, and what is asked of it. */
enum how { PLAIN, INJECT, DATA, DELIVERY, IOV, HOWS };

struct work {
	const char *name;
	void (*run)(struct side *s, const struct work *w);
	bool tagged;
	enum how how;
};

extern const struct work works[];

/* A message as both sides can compute it. */
struct message {
	size_t len;
	uint64_t seed;          /* of its bytes, and its CQ data */
	uint64_t tag;
	enum how how;
};

struct message random_message(uint64_t *state, size_t largest, uint64_t tag);
uint64_t next_random(uint64_t *state);

void *new_buffer(size_t len);
void fill(uint8_t *buf, size_t len, uint64_t seed);
void verify(const uint8_t *buf, size_t len, uint64_t seed, const char *what);

void transmit(struct side *s, const struct message *m, bool tagged, void *buf, struct op *op);
void receive(struct side *s, const struct message *m, bool tagged, fi_addr_t from, void *buf, struct op *op);
void verify_received(struct side *s, const struct message *m, bool tagged, const void *buf, const struct op *op);

/* traffic.c */
void ping_pong(struct side *s, const struct work *w);
void late(struct side *s, const struct work *w);
void stream(struct side *s, const struct work *w);
void multi(struct side *s, const struct work *w);
void peek(struct side *s, const struct work *w);
/* rma.c */
#define GUARDS 16

/* What a peer must know to reach a region. */
struct place {
	uint64_t addr;
	uint64_t key;
};

/* Memory that the peer reaches, with guards around what it is to change; and where the peer has its own. */
struct region {
	uint8_t *memory;
	size_t room;
	struct fid_mr *mr;
	struct place theirs;
};

void tell(struct side *s, void *buf, size_t len);
void hear_of(struct side *s, void *buf, size_t len);
void open_region(struct side *s, struct region *r);
void one_sided(struct side *s, const struct work *w);
/* atomic.c */
void atomics(struct side *s, const struct work *w);
/* loss.c */
void drain(struct side *s, const struct work *w);
void stuck(struct side *s, const struct work *w);
void await(struct side *s, const struct work *w);
void restart(struct side *s, const struct work *w);

#endif
