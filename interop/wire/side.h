/* One side of a conversation over a libfabric: everything opened for one endpoint and one peer. */
#ifndef SIDE_H
#define SIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define WHOLE_TAG UINT64_MAX
#define SEGMENTS 4

struct options {
	const char *provider;
	enum fi_ep_type type;
	bool server;
	bool shared_rx;         /* connected endpoints receive from a shared context */
	bool rma;               /* the endpoint reads and writes remote memory */
	bool atomic;            /* and changes it atomically */
	bool virtual_addr;      /* which is named by its address, with a key of the provider's choice */
	bool context;           /* send and receive through context 1 of a scalable endpoint */
	bool wait;              /* wait in fi_cq_sread instead of reading again and again */
	const char *node;       /* our own address */
	const char *service;    /* our port, or NULL for any */
	const char *work;
	size_t largest;
	size_t injected;        /* the largest that is injected: both sides must agree */
	unsigned seconds;       /* nothing may take longer */
};

/* One operation. The completion names it by its context, so it stays where it is until `done`. */
struct op {
	struct fi_context2 context;
	bool done;
	bool may_fail;          /* an error of this one is for its owner to judge */
	int error;
	uint64_t flags;
	size_t len;
	uint64_t data;
	uint64_t tag;
	fi_addr_t source;
	void (*arrived)(struct op *op, void *buf, size_t len);  /* for each message in a multi-receive buffer */
	void *owner;
};

struct side {
	struct options opt;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fid_pep *pep;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *srx;
	struct fid_ep *sep;
	struct fid_ep *ep;
	struct fid_ep *rx;      /* where receives are posted: `ep`, `srx` or a receive context */
	fi_addr_t to;           /* the peer, for calls that name it */
	unsigned written;       /* writes of the peer with CQ data, not yet looked at; the last one's data and length */
	uint64_t written_data;
	size_t written_len;
	int broken;             /* the first error that an operation ended with */
};

/* The largest message or write that works inject. */
size_t largest_injected(const struct side *s);

/* Prints `ERROR ...` and exits. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void check(long result, const char *what);

/* Prints a line for the script, or reads one that starts with `word`. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *hear(const char *word);

double now(void);

void side_open(struct side *s);
void side_close(struct side *s);

/* Takes completions from the queue; `finish` until `op` is one of them. */
void progress(struct side *s);
void finish(struct side *s, struct op *op, const char *what);

/* Repeats a call while the queue is full. */
#define POST(s, what, call) do { \
	long result_; \
	while ((result_ = (call)) == -FI_EAGAIN) progress(s); \
	check(result_, what); \
} while (0)

#endif
