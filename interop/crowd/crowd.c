/*
 * Many processes that connect, exchange and leave, each at a moment of its own.
 *
 *     crowd [options]     (see usage() below)
 *
 * What it proves: once a call that injects has returned 0, or the completion of an operation was read, the data reaches
 * a peer that lives and makes progress, whatever the sender does then: it closes everything, ends without closing, is
 * killed, or becomes another program. And that every process ends.
 *
 * The processes are forked before any of them opens anything. They find each other, and say how far they are, by memory
 * they share (`struct board`); messages go by libfabric only. Exit status 0, or 1 with a line per process that says
 * what it still waits for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define MAX_RANKS 64
#define MAX_NAME 256
#define MAX_BUSY 16
#define SLOT 64         /* bytes a one-sided write changes */
#define HEAD 8          /* rank and number of the sender, at the front of each message */

/* How the data goes out. ANY takes one of the messages above it each time. */
enum kind { INJECT, SEND, SEND_INJECT, SILENT_INJECT, TRANSMIT, DELIVERY, ANY, UNTAGGED, WRITE, WRITE_DELIVERY,
	INJECT_WRITE, ATOMIC, INJECT_ATOMIC, KINDS };
static const char *const kind_names[KINDS] = { "inject", "send", "send-inject", "silent-inject", "transmit", "delivery",
	"any", "untagged", "write", "write-delivery", "inject-write", "atomic", "inject-atomic" };

/* How a process ends after its last completion. */
enum leaving { CLOSE, SHUFFLED, EXIT, AT_ONCE, EXEC, KILLED, LEAVINGS };
static const char *const leaving_names[LEAVINGS] = { "close", "shuffled", "exit", "at-once", "exec", "killed" };

/* What a receiver does at first. */
enum receiver { POLLS, LATE, STOPPED, POSTS_LATE, RECEIVERS };
static const char *const receiver_names[RECEIVERS] = { "polls", "late", "stopped", "posts-late" };

/* Who sends to whom: all to all, all others to rank 0, or rank 0 to all others. */
enum shape { ALL, TO_ONE, FROM_ONE };

static struct {
	const char *provider;
	int ranks;
	int messages;
	enum kind kind;
	enum leaving leaving;
	enum receiver receiver;
	enum shape shape;
	bool earlier_asks;      /* for a connection, of two processes; else the later one does */
	bool connected;         /* an endpoint for each peer (FI_EP_MSG) instead of one for all (FI_EP_RDM) */
	size_t largest;
	unsigned pause;         /* ms that a late or stopped receiver does nothing */
	unsigned seed;
	int rounds;
	int seconds;
	int busy;               /* processes beside that only compute */
} opt = { "tcp", 2, 100, INJECT, CLOSE, POLLS, ALL, false, false, 0, 200, 1, 1, 60, 0 };

/* How far a process is. The others read it, and whoever looks when time is over. */
struct mark {
	int pid;
	volatile int ready;             /* its name stands here */
	volatile int sent;              /* calls that returned 0 */
	volatile int completed;         /* of those with a completion */
	volatile int received;
	volatile int done;              /* all it had to do is done; it is leaving */
	volatile int gone;              /* the parent has seen its end */
	unsigned char name[MAX_NAME];
	size_t name_len;
	uint64_t key, base;
};

struct board {
	volatile int started;
	struct mark mark[MAX_RANKS];
};

static struct board *board;
static int me = -1;
static int busy_pid[MAX_BUSY];

struct op {
	struct fi_context2 context;     /* the first member: a completion names the operation by it */
	bool receive;
	unsigned char *buf;
	size_t len;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;               /* of datagrams */
static struct fid_ep *eps[MAX_RANKS];   /* connected, by peer */
static struct fid_pep *pep;
static struct fid_eq *eq;
static bool is_up[MAX_RANKS], is_down[MAX_RANKS];
static struct fid_cq *cq;
static struct fid_av *av;
static struct fid_mr *mr;
static fi_addr_t peer[MAX_RANKS];
static struct op *sends, *receives;
static unsigned char *memory, *arena;
static int expected, outstanding;
static unsigned state_of_random;

static unsigned pick(unsigned below)
{
	state_of_random = state_of_random * 1664525u + 1013904223u;
	return below ? (state_of_random >> 8) % below : 0;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	fprintf(stderr, "rank %d: %s\n", me, line);
	_exit(1);
}

static void check(long result, const char *what)
{
	if (result < 0)
		fail("%s: %s", what, fi_strerror((int)-result));
}

static bool one_sided(void)
{
	return opt.kind >= WRITE;
}

/* Connected endpoints of C libfabric have tags with a shared receive context only. */
static bool tagged(void)
{
	return opt.kind < UNTAGGED && !opt.connected;
}

static bool talks(int from, int to)
{
	return from != to && (opt.shape == ALL || (opt.shape == TO_ONE ? to : from) == 0);
}

static bool sending(void)
{
	return opt.shape == ALL || (me == 0) == (opt.shape == FROM_ONE);
}

static bool receiving(void)
{
	return opt.shape == ALL || (me == 0) == (opt.shape == TO_ONE);
}

/* What stands behind the head of a message, so that a wrong one is known. */
static unsigned char filler(int from, int number, size_t at)
{
	return (unsigned char)(from * 131 + number * 7 + at * 13);
}

static void fill(unsigned char *buf, int from, int number, size_t len)
{
	uint32_t head[2] = { (uint32_t)from, (uint32_t)number };

	memcpy(buf, head, HEAD);
	for (size_t i = HEAD; i < len; i++)
		buf[i] = filler(from, number, i);
}

static bool is_filled(const unsigned char *buf, int from, int number, size_t len)
{
	uint32_t head[2];

	memcpy(head, buf, HEAD);
	if (head[0] != (uint32_t)from || head[1] != (uint32_t)number)
		return false;
	for (size_t i = HEAD; i < len; i++)
		if (buf[i] != filler(from, number, i))
			return false;
	return true;
}

/* Takes what is in the queue; `true` if there was anything. */
static bool progress(void)
{
	struct fi_cq_tagged_entry entry[16];
	ssize_t n = fi_cq_read(cq, entry, 16);

	if (n == -FI_EAGAIN)
		return false;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry error = { 0 };

		check(fi_cq_readerr(cq, &error, 0), "fi_cq_readerr");
		fail("an operation failed: %s, flags %#llx", fi_strerror(error.err), (unsigned long long)error.flags);
	}
	check(n, "fi_cq_read");
	for (ssize_t i = 0; i < n; i++) {
		struct op *op = entry[i].op_context;

		if (!op || !op->receive) {
			board->mark[me].completed++;
			outstanding--;
			continue;
		}
		uint32_t head[2];

		memcpy(head, op->buf, HEAD);
		if (entry[i].len < HEAD || !is_filled(op->buf, (int)head[0], (int)head[1], entry[i].len))
			fail("message %u of rank %u is not what was sent", head[1], head[0]);
		if (tagged() && entry[i].tag != ((uint64_t)head[0] << 32 | head[1]))
			fail("message %u of rank %u came with tag %llx", head[1], head[0],
			     (unsigned long long)entry[i].tag);
		board->mark[me].received++;
	}
	return true;
}

/* One-sided: how many of the peers' operations are in our memory. */
static int arrived(void)
{
	int count = 0;

	for (int from = 0; from < opt.ranks; from++) {
		if (!talks(from, me))
			continue;
		if (opt.kind >= ATOMIC) {
			count += (int)*(volatile uint64_t *)(memory + (size_t)from * 8);
			continue;
		}
		for (int n = 0; n < opt.messages; n++)
			count += is_filled(memory + ((size_t)from * opt.messages + n) * SLOT, from, n, SLOT);
	}
	return count;
}

static struct fi_info *hints_for(void)
{
	struct fi_info *hints = fi_allocinfo();

	hints->caps = FI_MSG;
	if (one_sided())
		hints->caps |= FI_RMA;
	if (tagged())
		hints->caps |= FI_TAGGED;
	if (opt.kind >= ATOMIC)
		hints->caps |= FI_ATOMIC;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = opt.connected ? FI_EP_MSG : FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->domain_attr->threading = pick(2) ? FI_THREAD_DOMAIN : FI_THREAD_SAFE;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->fabric_attr->prov_name = strdup(opt.provider);
	return hints;
}

static struct fid_ep *ep_of(int rank)
{
	return opt.connected ? eps[rank] : ep;
}

static void post_receives(void)
{
	size_t room = opt.largest;
	int n = 0;

	for (int number = 0; number < opt.messages; number++)
		for (int from = 0; from < opt.ranks; from++) {
			if (!talks(from, me))
				continue;
			struct op *op = &receives[n];
			ssize_t result;

			op->receive = true;
			op->buf = arena + (size_t)n * room;
			do {
				result = tagged()
					? fi_trecv(ep_of(from), op->buf, room, NULL, FI_ADDR_UNSPEC,
						   (uint64_t)from << 32 | (uint32_t)number, 0, op)
					: fi_recv(ep_of(from), op->buf, room, NULL, FI_ADDR_UNSPEC, op);
			} while (result == -FI_EAGAIN && (progress(), true));
			check(result, "posting a receive");
			n++;
		}
}

static struct fid_ep *open_endpoint(struct fi_info *of)
{
	struct fid_ep *opened;

	check(fi_endpoint(domain, of, &opened, NULL), "fi_endpoint");
	check(fi_ep_bind(opened, opt.connected ? &eq->fid : &av->fid, 0), "fi_ep_bind of the event queue or addresses");
	check(fi_ep_bind(opened, &cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION), "fi_ep_bind cq for sends");
	check(fi_ep_bind(opened, &cq->fid, FI_RECV), "fi_ep_bind cq for receives");
	check(fi_enable(opened), "fi_enable");
	return opened;
}

/* Whether there is a connection with it. */
static bool meets(int rank)
{
	return talks(me, rank) || talks(rank, me);
}

static int rank_of(const struct fid *fid)
{
	for (int rank = 0; rank < opt.ranks; rank++)
		if (eps[rank] && &eps[rank]->fid == fid)
			return rank;
	fail("an event of no endpoint");
}

/* Takes an event, if there is one: a peer asks, is connected, or has left, each of them once. */
static bool take_event(void)
{
	struct { struct fi_eq_cm_entry entry; uint32_t from; } cm;
	uint32_t event, from;
	ssize_t n = fi_eq_read(eq, &event, &cm, sizeof cm, 0);
	int rank;

	if (n == -FI_EAGAIN)
		return false;
	if (n == -FI_EAVAIL) {
		struct fi_eq_err_entry error = { 0 };

		check(fi_eq_readerr(eq, &error, 0), "fi_eq_readerr");
		fail("connecting failed: %s", fi_strerror(error.err));
	}
	check(n, "fi_eq_read");
	switch (event) {
	case FI_CONNREQ:
		memcpy(&from, cm.entry.data, sizeof from);
		if ((size_t)n != sizeof cm.entry + sizeof from || from >= (uint32_t)opt.ranks || eps[from] || !meets((int)from))
			fail("a request of %zd bytes to connect, from rank %u", n, from);
		eps[from] = open_endpoint(cm.entry.info);
		check(fi_accept(eps[from], NULL, 0), "fi_accept");
		fi_freeinfo(cm.entry.info);
		break;
	case FI_CONNECTED:
		rank = rank_of(cm.entry.fid);
		if (is_up[rank])
			fail("connected to rank %d twice", rank);
		is_up[rank] = true;
		break;
	case FI_SHUTDOWN:
		rank = rank_of(cm.entry.fid);
		if (!is_up[rank] || is_down[rank])
			fail("rank %d leaves that is not there", rank);
		is_down[rank] = true;
		break;
	default:
		fail("event %u", event);
	}
	return true;
}

/* Whether we ask for the connection with it. */
static bool asks(int rank)
{
	return meets(rank) && (opt.earlier_asks ? rank > me : rank < me);
}

/* Those that are to be asked are, in an order of chance; the others are taken as they come. */
static void connect_all(void)
{
	uint32_t own = (uint32_t)me;
	int asked = 0, up = 0, wanted = 0, to_ask = 0;

	for (int rank = 0; rank < opt.ranks; rank++) {
		wanted += meets(rank);
		to_ask += asks(rank);
	}
	while (up < wanted) {
		int rank = (int)pick((unsigned)opt.ranks);

		if (asked < to_ask && asks(rank) && !eps[rank]) {
			eps[rank] = open_endpoint(info);
			check(fi_connect(eps[rank], board->mark[rank].name, &own, sizeof own), "fi_connect");
			asked++;
		}
		take_event();
		progress();
		up = 0;
		for (rank = 0; rank < opt.ranks; rank++)
			up += is_up[rank];
	}
	if (!one_sided() && opt.receiver != POSTS_LATE && receiving())
		post_receives();
}

static void set_up(void)
{
	struct fi_info *hints = hints_for();
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .size = 1024, .wait_obj = FI_WAIT_NONE };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .count = (size_t)opt.ranks };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_NONE };
	size_t bytes = (size_t)opt.ranks * opt.messages * SLOT;
	struct mark *mark = &board->mark[me];
	bool is_tcp = !strncmp(opt.provider, "tcp", 3);

	check(fi_getinfo(FI_VERSION(1, 17), is_tcp ? "127.0.0.1" : NULL, NULL, is_tcp ? FI_SOURCE : 0, hints, &info),
	      "fi_getinfo");
	fi_freeinfo(hints);
	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
	if (opt.connected) {
		check(fi_eq_open(fabric, &eq_attr, &eq, NULL), "fi_eq_open");
		check(fi_passive_ep(fabric, info, &pep, NULL), "fi_passive_ep");
		check(fi_pep_bind(pep, &eq->fid, 0), "fi_pep_bind");
		check(fi_listen(pep), "fi_listen");
	} else {
		check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
		ep = open_endpoint(info);
	}

	expected = 0;
	for (int rank = 0; rank < opt.ranks; rank++)
		expected += talks(rank, me) ? opt.messages : 0;
	if (opt.kind == INJECT || opt.kind == SEND_INJECT || opt.kind == SILENT_INJECT || opt.kind == ANY ||
	    opt.kind == UNTAGGED) {
		if (!opt.largest || opt.largest > info->tx_attr->inject_size)
			opt.largest = info->tx_attr->inject_size;
	} else if (!opt.largest) {
		opt.largest = 100000;
	}
	receives = calloc((size_t)expected + 1, sizeof *receives);
	sends = calloc((size_t)opt.messages * opt.ranks, sizeof *sends);
	arena = malloc(((size_t)expected + 1) * opt.largest);
	memory = calloc(1, bytes);
	if (!receives || !sends || !arena || !memory)
		fail("no memory");
	if (one_sided()) {
		check(fi_mr_reg(domain, memory, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, (uint64_t)me + 1, 0, &mr,
				NULL), "fi_mr_reg");
		mark->key = fi_mr_key(mr);
		mark->base = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)memory : 0;
	} else if (opt.receiver != POSTS_LATE && receiving() && !opt.connected) {
		post_receives();
	}
	mark->name_len = MAX_NAME;
	check(fi_getname(opt.connected ? &pep->fid : &ep->fid, mark->name, (size_t *)&mark->name_len), "fi_getname");
	__atomic_store_n(&mark->ready, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&board->started, __ATOMIC_ACQUIRE))
		usleep(200);
	if (opt.connected)
		connect_all();
	for (int rank = 0; rank < opt.ranks && !opt.connected; rank++)
		if (rank != me && fi_av_insert(av, board->mark[rank].name, 1, &peer[rank], 0, NULL) != 1)
			fail("fi_av_insert of rank %d", rank);
}

static ssize_t send_with(struct fid_ep *via, const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct fi_msg plain = { .msg_iov = msg->msg_iov, .iov_count = msg->iov_count, .addr = msg->addr,
		.context = msg->context };

	return tagged() ? fi_tsendmsg(via, msg, flags) : fi_sendmsg(via, &plain, flags);
}

/* Starts one operation; what fi_* returned. */
static ssize_t start(enum kind kind, int to, int number, struct op *op)
{
	uint64_t tag = (uint64_t)me << 32 | (uint32_t)number;
	fi_addr_t dest = peer[to];
	struct fid_ep *via = ep_of(to);
	struct mark *mark = &board->mark[to];
	struct iovec iov = { op->buf, op->len };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .addr = dest, .tag = tag, .context = op };
	uint64_t there = mark->base + ((size_t)me * opt.messages + number) * SLOT;
	struct fi_rma_iov rma_iov = { there, op->len, mark->key };
	struct fi_msg_rma rma = { .msg_iov = &iov, .iov_count = 1, .addr = dest, .rma_iov = &rma_iov,
		.rma_iov_count = 1, .context = op };
	uint64_t cell = mark->base + (size_t)me * 8;
	struct fi_ioc ioc = { op->buf, 1 };
	struct fi_rma_ioc rma_ioc = { cell, 1, mark->key };
	struct fi_msg_atomic atomic = { .msg_iov = &ioc, .iov_count = 1, .addr = dest, .rma_iov = &rma_ioc,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM, .context = op };

	switch (kind) {
	case INJECT:
		return tagged() ? fi_tinject(via, op->buf, op->len, dest, tag) : fi_inject(via, op->buf, op->len, dest);
	case UNTAGGED:
		return fi_inject(via, op->buf, op->len, dest);
	case SEND:
		return send_with(via, &msg, FI_COMPLETION);
	case SEND_INJECT:
		return send_with(via, &msg, FI_INJECT | FI_COMPLETION);
	case SILENT_INJECT:
		return send_with(via, &msg, FI_INJECT);
	case TRANSMIT:
		return send_with(via, &msg, FI_TRANSMIT_COMPLETE | FI_COMPLETION);
	case DELIVERY:
		return send_with(via, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION);
	case WRITE:
		return fi_writemsg(via, &rma, FI_COMPLETION);
	case WRITE_DELIVERY:
		return fi_writemsg(via, &rma, FI_DELIVERY_COMPLETE | FI_COMPLETION);
	case INJECT_WRITE:
		return fi_inject_write(via, op->buf, op->len, dest, there, mark->key);
	case ATOMIC:
		return fi_atomicmsg(via, &atomic, FI_COMPLETION);
	case INJECT_ATOMIC:
		return fi_inject_atomic(via, op->buf, 1, dest, cell, mark->key, FI_UINT64, FI_SUM);
	case ANY:
	case KINDS:
		break;
	}
	return -FI_EINVAL;
}

/* Whether the buffer belongs to the caller again when the call returns. */
static bool copies(enum kind kind)
{
	return kind == INJECT || kind == SEND_INJECT || kind == SILENT_INJECT || kind == UNTAGGED ||
		kind == INJECT_WRITE || kind == INJECT_ATOMIC;
}

static bool completes(enum kind kind)
{
	return kind != INJECT && kind != SILENT_INJECT && kind != UNTAGGED && kind != INJECT_WRITE &&
		kind != INJECT_ATOMIC;
}

static void send_all(void)
{
	int order[MAX_RANKS], count = 0;

	for (int rank = 0; rank < opt.ranks; rank++)
		if (talks(me, rank))
			order[count++] = rank;
	for (int number = 0; number < opt.messages; number++) {
		for (int i = count - 1; i > 0; i--) {
			int j = (int)pick((unsigned)i + 1), swap = order[i];

			order[i] = order[j];
			order[j] = swap;
		}
		for (int i = 0; i < count; i++) {
			int to = order[i];
			struct op *op = &sends[(size_t)number * opt.ranks + to];
			enum kind kind = opt.kind == ANY ? pick(ANY) : opt.kind;
			ssize_t result;

			if (one_sided()) {
				op->len = opt.kind >= ATOMIC ? 8 : SLOT;
			} else {
				size_t most = pick(4) ? (opt.largest < 64 ? opt.largest : 64) : opt.largest;

				op->len = HEAD + pick((unsigned)(most - HEAD) + 1);
			}
			op->buf = malloc(op->len);
			if (!op->buf)
				fail("no memory");
			if (opt.kind >= ATOMIC)
				*(uint64_t *)op->buf = 1;
			else
				fill(op->buf, me, number, op->len);
			while ((result = start(kind, to, number, op)) == -FI_EAGAIN)
				progress();
			check(result, kind_names[kind]);
			if (copies(kind)) {
				memset(op->buf, 0xa5, op->len);
				free(op->buf);
			}
			outstanding += completes(kind);
			board->mark[me].sent++;
			if (!pick(8))
				progress();
		}
	}
	while (outstanding > 0)
		progress();
}

/* What is open, in an order in which it can be closed. */
static int list_open(struct fid **fids)
{
	int count = 0;

	for (int rank = 0; rank < opt.ranks; rank++)
		if (eps[rank])
			fids[count++] = &eps[rank]->fid;
	if (ep)
		fids[count++] = &ep->fid;
	if (pep)
		fids[count++] = &pep->fid;
	if (mr)
		fids[count++] = &mr->fid;
	if (av)
		fids[count++] = &av->fid;
	fids[count++] = &cq->fid;
	if (eq)
		fids[count++] = &eq->fid;
	fids[count++] = &domain->fid;
	fids[count++] = &fabric->fid;
	return count;
}

/* Objects in an order of chance: one that others still use is refused, and comes again. */
static void close_shuffled(void)
{
	struct fid *left[MAX_RANKS + 8];
	int all = list_open(left), open = all;

	for (int tries = 0; open > 0; tries++) {
		struct fid **fid = &left[pick((unsigned)all)];

		if (tries > 100000)
			fail("not everything can be closed");
		if (*fid && fi_close(*fid) == 0) {
			*fid = NULL;
			open--;
		}
	}
}

__attribute__((noreturn)) static void leave(void)
{
	struct fid *left[MAX_RANKS + 8];

	__atomic_store_n(&board->mark[me].done, 1, __ATOMIC_RELEASE);
	switch (opt.leaving) {
	case CLOSE:
		for (int i = 0, all = list_open(left); i < all; i++)
			check(fi_close(left[i]), "fi_close in order");
		_exit(0);
	case SHUFFLED:
		close_shuffled();
		_exit(0);
	case EXIT:
		exit(0);
	case AT_ONCE:
		_exit(0);
	case EXEC:
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	case KILLED:
	case LEAVINGS:
		break;
	}
	raise(SIGKILL);
	_exit(1);
}

static void be(int rank)
{
	bool pauses;

	me = rank;
	pauses = (opt.receiver == LATE || opt.receiver == POSTS_LATE) && receiving();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	state_of_random = opt.seed * 7919u + (unsigned)rank * 104729u;
	set_up();
	if (sending() && opt.shape != ALL)
		usleep(pick(3000));
	if (pauses && !sending())
		usleep(opt.pause * 1000);
	if (sending())
		send_all();
	if (pauses && sending())
		usleep(pick(opt.pause) * 1000);
	if (!one_sided() && opt.receiver == POSTS_LATE && receiving())
		post_receives();
	for (unsigned turn = 0; receiving(); turn++) {
		if (!progress() && one_sided() && turn % 64 == 0)
			board->mark[me].received = arrived();
		if (board->mark[me].received >= expected)
			break;
	}
	/* The first one, or who only receives from it, stays until it has been told that all its peers have left. */
	for (int rank = 0; opt.connected && (me == 0) != (opt.shape == FROM_ONE) && rank < opt.ranks; rank++)
		while (meets(rank) && !is_down[rank])
			if (!take_event())
				progress();
	leave();
}

static void report(void)
{
	for (int rank = 0; rank < opt.ranks; rank++) {
		struct mark *mark = &board->mark[rank];

		fprintf(stderr, "rank %d (%d): %s%s, %d started, %d completed, %d received\n", rank, mark->pid,
			mark->gone ? "ended" : "still there", mark->done ? " with all done" : "", mark->sent,
			mark->completed, mark->received);
	}
}

static bool play(int round)
{
	double end = now() + opt.seconds;
	int left = opt.ranks, ready;
	bool good = true;

	memset(board, 0, sizeof *board);
	opt.seed++;
	for (int rank = 0; rank < opt.ranks; rank++) {
		int pid = fork();

		if (pid < 0) {
			perror("fork");
			exit(2);
		}
		if (pid == 0)
			be(rank);
		board->mark[rank].pid = pid;
	}
	do {
		int status;

		ready = 0;
		for (int rank = 0; rank < opt.ranks; rank++)
			ready += __atomic_load_n(&board->mark[rank].ready, __ATOMIC_ACQUIRE);
		if (waitpid(-1, &status, WNOHANG) > 0 || now() > end) {
			fprintf(stderr, "round %d: not all processes could begin\n", round);
			good = false;
			break;
		}
		usleep(200);
	} while (ready < opt.ranks);
	if (opt.receiver == STOPPED)
		kill(board->mark[opt.shape == FROM_ONE].pid, SIGSTOP);
	__atomic_store_n(&board->started, 1, __ATOMIC_RELEASE);
	if (opt.receiver == STOPPED) {
		usleep(opt.pause * 1000);
		kill(board->mark[opt.shape == FROM_ONE].pid, SIGCONT);
	}
	while (good && left > 0) {
		int status, pid = waitpid(-1, &status, WNOHANG);

		if (pid <= 0) {
			if (now() > end) {
				fprintf(stderr, "round %d, seed %u: not finished after %d s\n", round, opt.seed - 1,
					opt.seconds);
				good = false;
			}
			usleep(200);
			continue;
		}
		left--;
		for (int rank = 0; rank < opt.ranks; rank++) {
			struct mark *mark = &board->mark[rank];
			bool ended = opt.leaving == KILLED ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
				: WIFEXITED(status) && WEXITSTATUS(status) == 0;

			if (mark->pid != pid)
				continue;
			mark->gone = 1;
			if (!mark->done || !ended) {
				fprintf(stderr, "round %d, seed %u: rank %d ended with status %#x\n", round,
					opt.seed - 1, rank, (unsigned)status);
				good = false;
			}
		}
	}
	if (good)
		return true;
	report();
	for (int rank = 0; rank < opt.ranks; rank++)
		if (!board->mark[rank].gone)
			kill(board->mark[rank].pid, SIGKILL);
	for (int rank = 0; rank < opt.ranks; rank++)
		waitpid(board->mark[rank].pid, NULL, 0);
	return false;
}

static int choose(const char *what, const char *word, const char *const *names, int count)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(word, names[i]))
			return i;
	fprintf(stderr, "crowd: no %s is called %s; there are:", what, word);
	for (int i = 0; i < count; i++)
		fprintf(stderr, " %s", names[i]);
	fputc('\n', stderr);
	exit(2);
}

/* Processes that compute until we end, so that those under test rarely have a processor. */
static void keep_busy(int count)
{
	for (int i = 0; i < count; i++) {
		int pid = fork();

		if (pid < 0) {
			perror("fork");
			exit(2);
		}
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (volatile unsigned long n = 0;; n++)
				;
		}
		busy_pid[i] = pid;
	}
}

static void usage(void)
{
	puts("crowd [-p PROVIDER] [-n RANKS] [-m MESSAGES] [-k KIND] [-l LEAVING] [-r RECEIVER] [-o | -f] [-c] [-e]\n"
	     "      [-b BYTES] [-z MS] [-s SEED] [-R ROUNDS] [-t SECONDS] [-B BUSY]\n"
	     "  -m  messages of each process to each other one; with -o to rank 0 only, with -f from rank 0 only\n"
	     "  -c  connected endpoints (FI_EP_MSG); -e  of two processes the earlier one asks for the connection\n"
	     "  -b  the longest message; -z  how long a late or stopped receiver does nothing\n"
	     "  -t  a round may take so long; -B  so many processes beside only compute");
	exit(2);
}

int main(int argc, char **argv)
{
	int option, lost = 0;

	while ((option = getopt(argc, argv, "p:n:m:k:l:r:ofceb:z:s:R:t:B:")) != -1) {
		switch (option) {
		case 'p': opt.provider = optarg; break;
		case 'n': opt.ranks = atoi(optarg); break;
		case 'm': opt.messages = atoi(optarg); break;
		case 'k': opt.kind = choose("kind", optarg, kind_names, KINDS); break;
		case 'l': opt.leaving = choose("leaving", optarg, leaving_names, LEAVINGS); break;
		case 'r': opt.receiver = choose("receiver", optarg, receiver_names, RECEIVERS); break;
		case 'o': opt.shape = TO_ONE; break;
		case 'f': opt.shape = FROM_ONE; break;
		case 'e': opt.earlier_asks = true; break;
		case 'c': opt.connected = true; break;
		case 'b': opt.largest = (size_t)atol(optarg); break;
		case 'z': opt.pause = (unsigned)atoi(optarg); break;
		case 's': opt.seed = (unsigned)atoi(optarg); break;
		case 'R': opt.rounds = atoi(optarg); break;
		case 't': opt.seconds = atoi(optarg); break;
		case 'B': opt.busy = atoi(optarg); break;
		default: usage();
		}
	}
	if (opt.ranks < 2 || opt.ranks > MAX_RANKS || opt.messages < 1 || opt.rounds < 1 ||
	    opt.busy < 0 || opt.busy > MAX_BUSY)
		usage();
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	keep_busy(opt.busy);
	for (int round = 0; round < opt.rounds; round++)
		lost += !play(round);
	for (int i = 0; i < opt.busy; i++)
		kill(busy_pid[i], SIGKILL);
	printf("crowd: %d of %d rounds complete\n", opt.rounds - lost, opt.rounds);
	return lost ? 1 : 0;
}
