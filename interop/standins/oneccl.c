/*
 * A stand-in for oneCCL's transport (ATL over OFI): it opens the library by dlopen and finds six functions by name.
 *
 * Each process has two workers, each with an endpoint of its own (contexts of one scalable endpoint where the provider has
 * such), one address table, and manual progress by whoever waits. The workers run collective operations as oneCCL makes
 * them of tagged messages: an allreduce around the ring, an exchange of all with all in pieces of chance, each received
 * by its source. `-p tcp,shm` opens both: what is small goes by shm, the rest by tcp. In the end what may be left is
 * drained by a receive of anything, which is cancelled.
 */
#include "frame.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define WORKERS 2
#define MAX_PROVIDERS 2
#define BATCH 8
#define MOST 65536              /* numbers of an allreduce, and bytes of a piece */
#define BY_SHM 4096             /* with two providers, up to so many bytes */

static struct {
	__typeof__(fi_getinfo) *getinfo;
	__typeof__(fi_freeinfo) *freeinfo;
	__typeof__(fi_dupinfo) *dupinfo;
	__typeof__(fi_fabric) *fabric;
	__typeof__(fi_strerror) *strerror;
	__typeof__(fi_tostr) *tostr;
	__typeof__(fi_version) *version;
} lib;

/* A worker's part of a provider. */
struct end {
	struct fid_ep *tx, *rx;
	struct fid_cq *cq;
};

struct opened {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_ep *scalable;
	struct end end[WORKERS];
	fi_addr_t addr[MAX_RANKS * WORKERS];
	int names;              /* of each process: 1 with a scalable endpoint, else one for each worker */
	int context_bits;
};

struct request {
	struct fi_context context;      /* the first member: completions name the request by it */
	enum { STARTED, COMPLETED, FOUND, NOT_FOUND } state;
	bool is_peek;
	size_t len;
};

/* What a worker owns. */
struct worker {
	int index;
	uint64_t round;
	int64_t *numbers, *incoming;
	unsigned char *out[MAX_RANKS], *in[MAX_RANKS];
};

static struct opened opened[MAX_PROVIDERS];
static int providers;

static void *find(void *handle, const char *name)
{
	void *symbol = dlsym(handle, name);

	if (!symbol)
		fail("dlsym(%s): %s", name, dlerror());
	return symbol;
}

static void open_library(void)
{
	void *handle = dlopen("libfabric.so.1", RTLD_LAZY | RTLD_GLOBAL);

	if (!handle)
		fail("dlopen: %s", dlerror());
	lib.getinfo = find(handle, "fi_getinfo");
	lib.freeinfo = find(handle, "fi_freeinfo");
	lib.dupinfo = find(handle, "fi_dupinfo");
	lib.fabric = find(handle, "fi_fabric");
	lib.strerror = find(handle, "fi_strerror");
	lib.tostr = find(handle, "fi_tostr");
	lib.version = find(handle, "fi_version");
}

static struct fi_info *ask(const char *name)
{
	/* fi_allocinfo() is this call. */
	struct fi_info *hints = lib.dupinfo(NULL), *info;
	int result;

	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->fabric_attr->prov_name = strdup(name);
	result = lib.getinfo(lib.version(), NULL, NULL, 0, hints, &info);
	lib.freeinfo(hints);
	if (result)
		fail("fi_getinfo of %s: %s", name, lib.strerror(-result));
	if (strcmp(info->fabric_attr->prov_name, name))
		fail("asked for provider %s, got %s", name, info->fabric_attr->prov_name);
	if (!strstr(lib.tostr(info, FI_TYPE_INFO), name))
		fail("fi_tostr does not name the provider %s", name);
	/* All 64 bits of a tag are used. */
	if (info->ep_attr->mem_tag_format >> 63 == 0)
		fail("tag format %#llx", (unsigned long long)info->ep_attr->mem_tag_format);
	return info;
}

static void open_end(struct opened *o, int index)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct end *end = &o->end[index];

	check(fi_cq_open(o->domain, &cq_attr, &end->cq, NULL), "fi_cq_open");
	if (o->scalable) {
		struct fi_rx_attr rx_attr = *o->info->rx_attr;
		struct fi_tx_attr tx_attr = *o->info->tx_attr;

		rx_attr.caps |= FI_TAGGED;
		tx_attr.caps |= FI_TAGGED;
		check(fi_rx_context(o->scalable, index, &rx_attr, &end->rx, NULL), "fi_rx_context");
		check(fi_ep_bind(end->rx, &end->cq->fid, FI_RECV), "fi_ep_bind of a receive context");
		check(fi_tx_context(o->scalable, index, &tx_attr, &end->tx, NULL), "fi_tx_context");
		check(fi_ep_bind(end->tx, &end->cq->fid, FI_SEND), "fi_ep_bind of a transmit context");
		check(fi_enable(end->rx), "fi_enable");
		check(fi_enable(end->tx), "fi_enable");
		return;
	}
	check(fi_endpoint(o->domain, o->info, &end->tx, NULL), "fi_endpoint");
	end->rx = end->tx;
	check(fi_ep_bind(end->tx, &end->cq->fid, FI_SEND | FI_RECV), "fi_ep_bind of the queue");
	check(fi_ep_bind(end->tx, &o->av->fid, 0), "fi_ep_bind of the address vector");
	check(fi_enable(end->tx), "fi_enable");
}

static void open_provider(struct opened *o, const char *name)
{
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };

	o->info = ask(name);
	check(lib.fabric(o->info->fabric_attr, &o->fabric, NULL), "fi_fabric");
	check(fi_domain(o->fabric, o->info, &o->domain, NULL), "fi_domain");
	o->names = WORKERS;
	if (o->info->domain_attr->max_ep_tx_ctx > 1 && o->info->domain_attr->max_ep_rx_ctx > 1) {
		o->names = 1;
		while (1 << o->context_bits < WORKERS)
			o->context_bits++;
		av_attr.rx_ctx_bits = o->context_bits;
		o->info->ep_attr->tx_ctx_cnt = o->info->ep_attr->rx_ctx_cnt = WORKERS;
	}
	check(fi_av_open(o->domain, &av_attr, &o->av, NULL), "fi_av_open");
	if (o->names == 1) {
		check(fi_scalable_ep(o->domain, o->info, &o->scalable, NULL), "fi_scalable_ep");
		check(fi_scalable_ep_bind(o->scalable, &o->av->fid, 0), "fi_scalable_ep_bind");
	}
	for (int i = 0; i < WORKERS; i++)
		open_end(o, i);
	if (o->scalable)
		check(fi_enable(o->scalable), "fi_enable of the scalable endpoint");
}

/* The size is asked for first, by a call without room. */
static size_t name_of(struct opened *o, int index, unsigned char *name, size_t room)
{
	struct fid *fid = o->scalable ? &o->scalable->fid : &o->end[index].tx->fid;
	size_t len = 0;
	int result = fi_getname(fid, NULL, &len);

	if (result != -FI_ETOOSMALL || !len || len > room)
		fail("fi_getname without room: %d, %zu bytes", result, len);
	check(fi_getname(fid, name, &len), "fi_getname");
	return len;
}

/* All names of all processes, our own too, go into the table by one call, in order. */
static void connect_all(void)
{
	unsigned char note[MAX_NOTE], mine[MAX_NOTE], *table[MAX_PROVIDERS];
	size_t len[MAX_PROVIDERS], used = 0;

	for (int p = 0; p < providers; p++)
		for (int i = 0; i < opened[p].names; i++) {
			len[p] = name_of(&opened[p], i, mine + used, sizeof mine - used);
			used += len[p];
		}
	for (int p = 0; p < providers; p++)
		table[p] = calloc((size_t)ranks * WORKERS, len[p]);
	for (int peer = 0; peer < ranks; peer++)
		leave_note(peer, mine, used);
	for (int peer = 0; peer < ranks; peer++) {
		size_t at = 0;

		take_note(peer, note);
		for (int p = 0; p < providers; p++) {
			size_t all = len[p] * (size_t)opened[p].names;

			memcpy(table[p] + (size_t)peer * all, note + at, all);
			at += all;
		}
	}
	for (int p = 0; p < providers; p++) {
		int count = ranks * opened[p].names;

		if (fi_av_insert(opened[p].av, table[p], (size_t)count, opened[p].addr, 0, NULL) != count)
			fail("fi_av_insert of %d names", count);
		free(table[p]);
	}
}

static struct opened *way(size_t len)
{
	return &opened[providers > 1 && len > BY_SHM];
}

static fi_addr_t address(struct opened *o, int peer, int worker)
{
	return o->names == 1 ? fi_rx_addr(o->addr[peer], worker, o->context_bits) : o->addr[peer * o->names + worker];
}

static void progress(struct worker *w)
{
	for (int p = 0; p < providers; p++) {
		struct fid_cq *cq = opened[p].end[w->index].cq;
		struct fi_cq_tagged_entry entry[BATCH];
		ssize_t n = fi_cq_read(cq, entry, BATCH);

		if (n == -FI_EAGAIN)
			continue;
		if (n == -FI_EAVAIL) {
			struct fi_cq_err_entry error = { 0 };
			struct request *request;

			check(fi_cq_readerr(cq, &error, 0), "fi_cq_readerr");
			request = error.op_context;
			if (error.err != FI_ENOMSG || !request->is_peek)
				fail("an operation failed: %s", lib.strerror(error.err));
			request->state = NOT_FOUND;
			continue;
		}
		check(n, "fi_cq_read");
		for (ssize_t i = 0; i < n; i++) {
			struct request *request = entry[i].op_context;

			if (request->state != STARTED)
				fail("a completion for no request");
			request->len = entry[i].len;
			request->state = request->is_peek ? FOUND : COMPLETED;
		}
	}
}

/* Tags are unique within a round: who sends, to whom, what it is. */
static uint64_t tag_of(const struct worker *w, int from, int what)
{
	return 1ull << 63 | w->round << 24 | (uint64_t)w->index << 22 | (uint64_t)(what & 0x3fff) << 8 | (uint64_t)from;
}

static void send_to(struct worker *w, int peer, const void *buf, size_t len, uint64_t tag, struct request *request)
{
	struct opened *o = way(len);
	struct iovec iov = { (void *)buf, len };
	void *desc = NULL;
	struct fi_msg_tagged msg = { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .tag = tag, .context = request,
		.addr = address(o, peer, w->index) };
	ssize_t result;

	*request = (struct request){ .state = STARTED };
	while ((result = fi_tsendmsg(o->end[w->index].tx, &msg, 0)) == -FI_EAGAIN)
		progress(w);
	check(result, "fi_tsendmsg");
	count_started();
}

static void receive(struct worker *w, int peer, void *buf, size_t len, uint64_t tag, uint64_t flags, struct request *request)
{
	struct opened *o = way(len);
	struct iovec iov = { buf, len };
	void *desc = NULL;
	struct fi_msg_tagged msg = { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .tag = tag, .context = request,
		.addr = address(o, peer, w->index) };
	ssize_t result;

	*request = (struct request){ .state = STARTED, .is_peek = flags & FI_PEEK };
	if (flags & FI_PEEK)
		msg.iov_count = 0;
	while ((result = fi_trecvmsg(o->end[w->index].rx, &msg, flags)) == -FI_EAGAIN)
		progress(w);
	check(result, "fi_trecvmsg");
}

static void wait_for(struct worker *w, struct request *request)
{
	while (request->state == STARTED)
		progress(w);
}

/* Sends to the next one and receives from the one before. */
static void shift(struct worker *w, const void *out, void *in, size_t out_len, size_t in_len, int what)
{
	int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
	struct request sent, received;

	receive(w, before, in, in_len, tag_of(w, before, what), 0, &received);
	send_to(w, next, out, out_len, tag_of(w, me, what), &sent);
	wait_for(w, &sent);
	wait_for(w, &received);
	if (received.len != in_len)
		fail("step %d: %zu of %zu bytes", what, received.len, in_len);
}

/* Each process adds hash(round, i) * (rank + 1), which is made to be small enough to sum up exactly. */
static int64_t number(const struct worker *w, uint64_t i, int rank)
{
	return (int64_t)(hash(w->round << 1 | (uint64_t)w->index, i, 4) >> 16) * (rank + 1);
}

/* Around the ring, first to sum up the parts and then to hand them on. */
static void allreduce(struct worker *w)
{
	size_t count = 1 + hash(w->round, (uint64_t)w->index, 5) % (hash(w->round, 0, 6) % 2 ? 64 : MOST), part[MAX_RANKS + 1];
	int factor = ranks * (ranks + 1) / 2;

	for (size_t i = 0; i < count; i++)
		w->numbers[i] = number(w, i, me);
	for (int i = 0; i <= ranks; i++)
		part[i] = count * (size_t)i / (size_t)ranks;
	for (int step = 0; step < 2 * (ranks - 1); step++) {
		bool is_sum = step < ranks - 1;
		int out = (me + (is_sum ? 0 : ranks) - step + 2 * ranks) % ranks;
		int in = (out + ranks - 1) % ranks;

		shift(w, w->numbers + part[out], is_sum ? w->incoming : w->numbers + part[in],
		      (part[out + 1] - part[out]) * 8, (part[in + 1] - part[in]) * 8, step);
		for (size_t i = part[in]; is_sum && i < part[in + 1]; i++)
			w->numbers[i] += w->incoming[i - part[in]];
	}
	for (size_t i = 0; i < count; i++)
		if (w->numbers[i] != number(w, i, 0) * factor)
			fail("round %llu: sum %zu of %zu is wrong", (unsigned long long)w->round, i, count);
	count_checked(count * 8);
}

static size_t piece(const struct worker *w, int from, int to)
{
	uint64_t chance = hash(w->round << 1 | (uint64_t)w->index, (uint64_t)from << 8 | (uint64_t)to, 7);

	return chance % 2 ? (chance >> 1) % 512 : (chance >> 1) % MOST;
}

/* All with all, each piece of another size; every fourth round the receiver first looks whether something is there. */
static void exchange(struct worker *w)
{
	struct request sent[MAX_RANKS], received[MAX_RANKS], peek;
	uint64_t key = w->round << 1 | (uint64_t)w->index;

	for (int peer = 0; peer < ranks; peer++) {
		if (peer == me)
			continue;
		fill(w->out[peer], piece(w, me, peer), hash(key, (uint64_t)me << 8 | (uint64_t)peer, 8));
		send_to(w, peer, w->out[peer], piece(w, me, peer), tag_of(w, me, 0x1000), &sent[peer]);
	}
	for (int peer = 0; peer < ranks; peer++) {
		size_t len = piece(w, peer, me);

		if (peer == me)
			continue;
		if (w->round % 4 == 0 && providers == 1) {
			do {
				receive(w, peer, NULL, 0, tag_of(w, peer, 0x1000), FI_PEEK | FI_COMPLETION, &peek);
				wait_for(w, &peek);
			} while (peek.state == NOT_FOUND);
			if (peek.len != len)
				fail("a peek finds %zu bytes instead of %zu", peek.len, len);
		}
		receive(w, peer, w->in[peer], len, tag_of(w, peer, 0x1000), 0, &received[peer]);
	}
	for (int peer = 0; peer < ranks; peer++) {
		size_t len = piece(w, peer, me);

		if (peer == me)
			continue;
		wait_for(w, &sent[peer]);
		wait_for(w, &received[peer]);
		if (received[peer].len != len)
			fail("a piece of %zu bytes instead of %zu", received[peer].len, len);
		require(w->in[peer], len, hash(key, (uint64_t)peer << 8 | (uint64_t)me, 8), "a piece");
		count_checked(len);
	}
}

/* What process 0 finds about the time goes around, so that all have the same number of rounds. */
static bool go_on(struct worker *w)
{
	int32_t more = !is_over();
	struct request request;

	if (me > 0) {
		receive(w, me - 1, &more, sizeof more, tag_of(w, me - 1, 0x2000), 0, &request);
		wait_for(w, &request);
	}
	if (me < ranks - 1) {
		send_to(w, me + 1, &more, sizeof more, tag_of(w, me, 0x2000), &request);
		wait_for(w, &request);
	}
	return more;
}

/* As when oneCCL resets: receives anything that may be left, finds nothing, and cancels the receive. */
static void drain(struct worker *w)
{
	for (int p = 0; p < providers; p++) {
		struct end *end = &opened[p].end[w->index];
		struct fi_cq_tagged_entry entry[BATCH];
		struct fi_cq_err_entry error = { 0 };
		struct fi_context context;
		unsigned char byte;
		ssize_t n;

		while ((n = fi_trecv(end->rx, &byte, 1, NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX, &context)) == -FI_EAGAIN)
			progress(w);
		check(n, "fi_trecv of anything");
		for (int i = 0; i < 100; i++)
			if ((n = fi_cq_read(end->cq, entry, BATCH)) != -FI_EAGAIN)
				fail("something was left: fi_cq_read %zd", n);
		check(fi_cancel(&end->rx->fid, &context), "fi_cancel");
		while ((n = fi_cq_read(end->cq, entry, BATCH)) == -FI_EAGAIN)
			;
		if (n != -FI_EAVAIL || fi_cq_readerr(end->cq, &error, 0) != 1 || error.err != FI_ECANCELED ||
		    error.op_context != &context)
			fail("a cancelled receive is reported as %zd, %s", n, lib.strerror(error.err));
	}
}

static void *work(void *argument)
{
	struct worker *w = argument;

	w->numbers = calloc(MOST, 8);
	w->incoming = calloc(MOST, 8);
	if (!w->numbers || !w->incoming)
		fail("no memory");
	for (int peer = 0; peer < ranks; peer++) {
		w->out[peer] = malloc(MOST);
		w->in[peer] = malloc(MOST);
		if (!w->out[peer] || !w->in[peer])
			fail("no memory");
	}
	while (go_on(w)) {
		allreduce(w);
		exchange(w);
		w->round++;
	}
	return NULL;
}

static void close_provider(struct opened *o)
{
	for (int i = 0; i < WORKERS; i++) {
		check(fi_close(&o->end[i].rx->fid), "fi_close of what receives");
		if (o->scalable)
			check(fi_close(&o->end[i].tx->fid), "fi_close of what transmits");
		check(fi_close(&o->end[i].cq->fid), "fi_close of the queue");
	}
	if (o->scalable)
		check(fi_close(&o->scalable->fid), "fi_close of the scalable endpoint");
	check(fi_close(&o->av->fid), "fi_close of the address vector");
	check(fi_close(&o->domain->fid), "fi_close of the domain");
	check(fi_close(&o->fabric->fid), "fi_close of the fabric");
	lib.freeinfo(o->info);
}

static void run(void)
{
	struct worker workers[WORKERS] = { 0 };
	pthread_t threads[WORKERS];
	bool both = !strcmp(provider, "tcp,shm");

	open_library();
	providers = both ? 2 : 1;
	open_provider(&opened[0], both ? "shm" : provider);
	if (both)
		open_provider(&opened[1], "tcp");
	connect_all();
	meet();
	for (int i = 0; i < WORKERS; i++) {
		workers[i].index = i;
		if (pthread_create(&threads[i], NULL, work, &workers[i]))
			fail("no thread");
	}
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	meet();
	for (int i = 0; i < WORKERS; i++)
		drain(&workers[i]);
	meet();
	for (int p = 0; p < providers; p++)
		close_provider(&opened[p]);
}

const struct consumer consumer = { "oneccl", run };
