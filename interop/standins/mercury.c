/*
 * A stand-in for Mercury's plugin for OFI (NA), as DAOS uses it, over tcp, tcp;ofi_rxm (which is DAOS' default) or shm.
 *
 * Each process is a client and a server with one context. A request is a message that the server did not ask for: over tcp
 * it has its number as completion data and lands in a buffer for many messages, over shm it is tagged. It carries the
 * address of whoever sent it, which the server inserts when it is new. Requests are echoed, or name memory of the client,
 * which the server reads (put) or writes (get) before it answers by a tagged message. The client registers that memory
 * for each request anew. Requests that nobody answers are cancelled. Whoever finds nothing to do sleeps on the queue's
 * descriptor, if fi_trywait says so.
 */
#include "frame.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define MESSAGE 4096
#define MULTI (64 * MESSAGE)
#define MULTIS 4
#define POSTED 64               /* receives of tagged requests, over shm */
#define CLIENT 8                /* requests of a client on their way */
#define BULK (1024 * 1024)
#define PIECE (256 * 1024)      /* a bulk transfer is made of such */
#define BATCH 16
#define UNEXPECTED (1ull << 32)
#define NAME 64

enum verb { ECHO, PUT, GET, SILENCE, BYE };

/* At the front of each request; the bytes that were asked to be echoed follow. */
struct request_head {
	uint32_t verb, from, number, len;
	uint64_t key, base, bulk;
	uint32_t name_len;
	unsigned char name[NAME];
};

struct reply_head {
	uint32_t number, len;
};

enum kind { SEND, RECEIVE, MULTIPLE, REQUEST, READ, WRITE };

struct job;

struct op {
	struct fi_context2 context;     /* the first member: completions name the operation by it */
	enum kind kind;
	bool is_cancelled;
	unsigned char *buf;
	struct job *job;
};

/* A request of ours, or one that we serve. */
struct job {
	bool is_busy, has_sent, has_reply, is_server;
	enum verb verb;
	int peer;
	uint32_t number;
	size_t len;
	int pieces;
	unsigned char *memory;
	struct fid_mr *mr;
	struct request_head head;
	struct op send, reply, piece[BULK / PIECE];
	unsigned char out[MESSAGE], in[MESSAGE];
	struct job *next;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_mr *multi_mr;
static int queue_fd;
static bool is_shm, by_tag;
static fi_addr_t peers[MAX_RANKS];
static unsigned char names[MAX_RANKS][NAME];
static size_t name_lens[MAX_RANKS];
static bool is_known[MAX_RANKS];
static struct job clients[CLIENT], *unused;
static struct op multis[MULTIS], posted[POSTED];
static uint64_t next_key = 1;
static uint32_t next_number;
static int byes, serving, cancelling;

static struct fi_info *hints_for(void)
{
	struct fi_info *hints = fi_allocinfo();

	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | (is_shm ? FI_SOURCE : FI_MULTI_RECV);
	hints->mode = FI_CONTEXT | FI_ASYNC_IOV;
	hints->addr_format = is_shm ? FI_ADDR_STR : FI_SOCKADDR_IN;
	hints->ep_attr->type = FI_EP_RDM;
	hints->ep_attr->protocol = is_shm ? FI_PROTO_SHM : !strcmp(provider, "tcp") ? FI_PROTO_XNET : FI_PROTO_RXM;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->av_type = FI_AV_UNSPEC;
	hints->domain_attr->cq_data_size = 4;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL | FI_MR_ENDPOINT;
	hints->tx_attr->op_flags = FI_INJECT_COMPLETE;
	hints->fabric_attr->prov_name = strdup(provider);
	return hints;
}

/* A list first, from which the interface is chosen; then that one by its name and address, with the sizes wanted. */
static void find(void)
{
	struct fi_info *hints = hints_for(), *all;

	check(fi_getinfo(FI_VERSION(1, 20), NULL, NULL, 0, hints, &all), "fi_getinfo");
	if (strcmp(all->fabric_attr->prov_name, provider) || all->ep_attr->protocol != hints->ep_attr->protocol ||
	    all->addr_format != hints->addr_format)
		fail("provider %s, protocol %u, address format %u", all->fabric_attr->prov_name, all->ep_attr->protocol,
		     all->addr_format);
	if (!all->domain_attr->name || !strcmp(all->domain_attr->name, provider) != is_shm)
		fail("the domain is called %s, and not as an interface", all->domain_attr->name);
	hints->domain_attr->name = strdup(all->domain_attr->name);
	if (!is_shm) {
		struct sockaddr_in *from = calloc(1, sizeof *from);

		if (!from || !all->src_addr)
			fail("no source address");
		*from = *(struct sockaddr_in *)all->src_addr;
		from->sin_port = 0;
		hints->src_addr = from;
		hints->src_addrlen = sizeof *from;
	}
	hints->tx_attr->size = 512;
	hints->rx_attr->size = is_shm ? 512 : 4096;
	check(fi_getinfo(FI_VERSION(1, 20), NULL, NULL, 0, hints, &info), "fi_getinfo of the interface");
	if (strcmp(info->domain_attr->name, hints->domain_attr->name) ||
	    info->tx_attr->size < hints->tx_attr->size || info->rx_attr->size < hints->rx_attr->size ||
	    info->domain_attr->cq_data_size < 4)
		fail("domain %s, queues of %zu and %zu, data of %zu bytes", info->domain_attr->name, info->tx_attr->size,
		     info->rx_attr->size, info->domain_attr->cq_data_size);
	fi_freeinfo(hints);
	fi_freeinfo(all);
}

static struct fid_mr *enroll(void *buf, size_t len, uint64_t access)
{
	struct iovec iov = { buf, len };
	struct fi_mr_attr attr = { .mr_iov = &iov, .iov_count = 1, .access = access, .iface = FI_HMEM_SYSTEM };
	struct fid_mr *mr;

	if (!(info->domain_attr->mr_mode & FI_MR_PROV_KEY))
		attr.requested_key = next_key++;
	check(fi_mr_regattr(domain, &attr, 0, &mr), "fi_mr_regattr");
	if (info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
		check(fi_mr_bind(mr, &ep->fid, 0), "fi_mr_bind");
		check(fi_mr_enable(mr), "fi_mr_enable");
	}
	return mr;
}

static void post_multi(struct op *op)
{
	struct iovec iov = { op->buf, MULTI };
	void *desc = fi_mr_desc(multi_mr);
	struct fi_msg msg = { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = op };

	check(fi_recvmsg(ep, &msg, FI_MULTI_RECV), "fi_recvmsg of a buffer for many");
}

static void post_request(struct op *op)
{
	check(fi_trecv(ep, op->buf, MESSAGE, NULL, FI_ADDR_UNSPEC, UNEXPECTED, UNEXPECTED - 1, op), "fi_trecv of requests");
}

static void open_all(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD, .size = 131072 };
	struct fi_av_attr av_attr = { .type = FI_AV_UNSPEC };
	size_t least = MESSAGE, len = NAME, size = sizeof least;
	unsigned char *buffers;
	int result;

	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
	check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
	result = fi_cq_open(domain, &cq_attr, &cq, NULL);
	if (result == -FI_ENOSYS && is_shm) {
		/* So it is with C libfabric's provider shm: then the plugin polls. */
		cq_attr.wait_obj = FI_WAIT_NONE;
		queue_fd = -1;
		result = fi_cq_open(domain, &cq_attr, &cq, NULL);
	}
	check(result, "fi_cq_open");
	if (queue_fd >= 0)
		check(fi_control(&cq->fid, FI_GETWAIT, &queue_fd), "fi_control(FI_GETWAIT)");
	check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the queue");
	check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind of the address vector");
	if (!by_tag) {
		check(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), "fi_setopt");
		least = 0;
		check(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &size), "fi_getopt");
		if (least != MESSAGE)
			fail("FI_OPT_MIN_MULTI_RECV is %zu after %d was set", least, MESSAGE);
	}
	check(fi_enable(ep), "fi_enable");
	check(fi_getname(&ep->fid, names[me], &len), "fi_getname");
	name_lens[me] = len;
	buffers = aligned_alloc(4096, (size_t)MULTIS * MULTI);
	if (!buffers)
		fail("no memory");
	multi_mr = enroll(buffers, (size_t)MULTIS * MULTI, FI_SEND | FI_RECV);
	for (int i = 0; i < MULTIS && !by_tag; i++) {
		multis[i] = (struct op){ .kind = MULTIPLE, .buf = buffers + (size_t)i * MULTI };
		post_multi(&multis[i]);
	}
	for (int i = 0; i < POSTED && by_tag; i++) {
		posted[i] = (struct op){ .kind = REQUEST, .buf = buffers + (size_t)i * MESSAGE };
		post_request(&posted[i]);
	}
}

/* A client looks a server up by what was left for it; a server learns of a client by its first request. */
static void know(int peer, const unsigned char *name, size_t len)
{
	unsigned char found[NAME];
	char text[NAME * 2];
	size_t room = sizeof found, text_room = sizeof text;

	if (is_known[peer])
		return;
	if (fi_av_insert(av, name, 1, &peers[peer], 0, NULL) != 1)
		fail("fi_av_insert");
	check(fi_av_lookup(av, peers[peer], found, &room), "fi_av_lookup");
	if (!is_shm && (room < len || memcmp(found, name, 8)))
		fail("fi_av_lookup gives another address than was inserted");
	if (!fi_av_straddr(av, found, text, &text_room) || (!is_shm && !strstr(text, "fi_sockaddr_in://")))
		fail("fi_av_straddr: %s", text);
	memcpy(names[peer], name, len);
	name_lens[peer] = len;
	is_known[peer] = true;
}

static bool progress(void);

static uint64_t key_of(const struct job *job, int what)
{
	int client = job->is_server ? job->peer : me, server = job->is_server ? me : job->peer;

	return hash((uint64_t)client << 8 | (uint64_t)server, job->number, (uint64_t)what);
}

static void send_request(struct job *job, size_t bytes)
{
	struct request_head head = { job->verb, (uint32_t)me, job->number, (uint32_t)bytes, 0, 0, job->len,
		(uint32_t)name_lens[me], { 0 } };
	ssize_t result;

	memcpy(head.name, names[me], name_lens[me]);
	if (job->mr) {
		head.key = fi_mr_key(job->mr);
		head.base = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)job->memory : 0;
	}
	memcpy(job->out, &head, sizeof head);
	fill(job->out + sizeof head, bytes, key_of(job, 10));
	job->send = (struct op){ .kind = SEND, .job = job };
	do {
		result = by_tag
			? fi_tsend(ep, job->out, sizeof head + bytes, NULL, peers[job->peer], UNEXPECTED | job->number,
				   &job->send)
			: fi_senddata(ep, job->out, sizeof head + bytes, NULL, job->number, peers[job->peer], &job->send);
	} while (result == -FI_EAGAIN && (progress(), true));
	check(result, "sending a request");
	count_started();
}

static void start(struct job *job)
{
	unsigned char *memory = job->memory;
	ssize_t result;

	memset(job, 0, sizeof *job);
	job->memory = memory;
	job->is_busy = true;
	job->number = ++next_number;
	job->verb = pick(16) ? pick(3) : SILENCE;
	do
		job->peer = (int)pick((uint32_t)ranks);
	while (job->peer == me);
	job->reply = (struct op){ .kind = RECEIVE, .job = job };
	do {
		result = fi_trecv(ep, job->in, MESSAGE, NULL, peers[job->peer], job->number, 0, &job->reply);
	} while (result == -FI_EAGAIN && (progress(), true));
	check(result, "fi_trecv of a reply");
	if (job->verb == PUT || job->verb == GET) {
		job->len = pick(4) ? 1 + pick(PIECE) : BULK;
		job->mr = enroll(memory, BULK, job->verb == PUT ? FI_REMOTE_READ : FI_REMOTE_WRITE);
		if (job->verb == PUT)
			fill(memory, job->len, key_of(job, 11));
		else
			memset(memory, 0, job->len);
	}
	send_request(job, pick(4) ? pick(512) : MESSAGE - sizeof(struct request_head));
}

/* All of a request of ours is done: what has come is checked. */
static void finish(struct job *job)
{
	struct reply_head head;

	if (!job->has_sent || !job->has_reply || job->verb == BYE)
		return;
	if (job->verb != SILENCE) {
		memcpy(&head, job->in, sizeof head);
		if (head.number != job->number)
			fail("reply %u to request %u", head.number, job->number);
		require(job->in + sizeof head, head.len, key_of(job, job->verb == ECHO ? 10 : 12), "a reply");
		count_checked(head.len);
	}
	if (job->verb == GET) {
		require(job->memory, job->len, key_of(job, 13), "what was got");
		count_checked(job->len);
	}
	if (job->mr)
		check(fi_close(&job->mr->fid), "fi_close of a registration");
	job->mr = NULL;
	job->is_busy = false;
}

static void answer(struct job *job)
{
	struct reply_head head = { job->number, 0 };
	ssize_t result;

	head.len = job->verb == ECHO ? job->head.len : 8 + pick(256);
	if (head.len > MESSAGE - sizeof head)
		head.len = MESSAGE - sizeof head;
	memcpy(job->out, &head, sizeof head);
	fill(job->out + sizeof head, head.len, key_of(job, job->verb == ECHO ? 10 : 12));
	job->send = (struct op){ .kind = SEND, .job = job };
	do {
		result = fi_tsend(ep, job->out, sizeof head + head.len, NULL, peers[job->peer], job->number, &job->send);
	} while (result == -FI_EAGAIN && (progress(), true));
	check(result, "fi_tsend of a reply");
}

/* Reads or writes the client's memory, in pieces. */
static void transfer(struct job *job)
{
	job->mr = enroll(job->memory, BULK, job->verb == PUT ? FI_READ : FI_WRITE);
	if (job->verb == GET)
		fill(job->memory, job->len, key_of(job, 13));
	job->pieces = (int)((job->len + PIECE - 1) / PIECE);
	for (int i = 0, all = job->pieces; i < all; i++) {
		size_t at = (size_t)i * PIECE, len = job->len - at < PIECE ? job->len - at : PIECE;
		void *desc = fi_mr_desc(job->mr);
		struct iovec iov = { job->memory + at, len };
		struct fi_rma_iov rma_iov = { job->head.base + at, len, job->head.key };
		struct fi_msg_rma msg = { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = peers[job->peer],
			.rma_iov = &rma_iov, .rma_iov_count = 1, .context = &job->piece[i] };
		ssize_t result;

		job->piece[i] = (struct op){ .kind = job->verb == PUT ? READ : WRITE, .job = job };
		do {
			result = job->verb == PUT ? fi_readmsg(ep, &msg, FI_COMPLETION)
				: fi_writemsg(ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
		} while (result == -FI_EAGAIN && (progress(), true));
		check(result, "a bulk transfer");
	}
}

/* Jobs to be begun: not from within progress(), which may be called by whoever finds a full queue. */
static struct job *queued, **queued_end = &queued;

static void requested(const unsigned char *bytes, size_t len)
{
	struct job *job = unused;
	struct request_head head;

	if (len < sizeof head)
		fail("a request of %zu bytes", len);
	memcpy(&head, bytes, sizeof head);
	if (head.from >= (uint32_t)ranks || head.len != len - sizeof head || head.bulk > BULK || head.name_len > NAME)
		fail("a request that nobody sent");
	if (job) {
		unused = job->next;
	} else {
		job = calloc(1, sizeof *job);
		if (!job || !(job->memory = malloc(BULK)))
			fail("no memory");
	}
	job->is_server = true;
	job->verb = head.verb;
	job->peer = (int)head.from;
	job->number = head.number;
	job->len = head.bulk;
	job->head = head;
	job->next = NULL;
	require(bytes + sizeof head, head.len, key_of(job, 10), "a request");
	count_checked(len);
	*queued_end = job;
	queued_end = &job->next;
	serving++;
}

static void served(struct job *job)
{
	if (job->mr)
		check(fi_close(&job->mr->fid), "fi_close of a registration");
	job->mr = NULL;
	job->next = unused;
	unused = job;
	serving--;
}

static void serve(struct job *job)
{
	know(job->peer, job->head.name, job->head.name_len);
	switch (job->verb) {
	case ECHO:
		answer(job);
		break;
	case PUT:
	case GET:
		transfer(job);
		break;
	case BYE:
		byes++;
		served(job);
		break;
	default:
		served(job);
		break;
	}
}

static void completed(const struct fi_cq_tagged_entry *entry)
{
	struct op *op = entry->op_context;
	struct job *job;

	if (!op)
		fail("a completion without context, flags %#llx", (unsigned long long)entry->flags);
	job = op->job;
	switch (op->kind) {
	case SEND:
		if (job->is_server) {
			served(job);
		} else if (job->verb == SILENCE) {
			job->has_sent = true;
			op = &job->reply;
			op->is_cancelled = true;
			check(fi_cancel(&ep->fid, op), "fi_cancel of a reply");
		} else {
			job->has_sent = true;
			finish(job);
		}
		break;
	case RECEIVE:
		job->has_reply = true;
		finish(job);
		break;
	case MULTIPLE:
		if (entry->len) {
			if (!(entry->flags & FI_REMOTE_CQ_DATA))
				fail("a request without its number");
			if ((unsigned char *)entry->buf < op->buf || (unsigned char *)entry->buf + entry->len > op->buf + MULTI)
				fail("a request outside of its buffer");
			requested(entry->buf, entry->len);
		}
		if (entry->flags & FI_MULTI_RECV)
			post_multi(op);
		break;
	case REQUEST:
		requested(op->buf, entry->len);
		post_request(op);
		break;
	case READ:
	case WRITE:
		if (--job->pieces == 0) {
			if (job->verb == PUT) {
				require(job->memory, job->len, key_of(job, 11), "what was put");
				count_checked(job->len);
			}
			*queued_end = job;
			job->next = NULL;
			job->has_sent = true;
			queued_end = &job->next;
		}
		break;
	}
}

/* Takes what is in the queue; whether there was anything. */
static bool progress(void)
{
	struct fi_cq_tagged_entry entry[BATCH];
	fi_addr_t from[BATCH];
	ssize_t n = fi_cq_readfrom(cq, entry, BATCH, from);

	if (n == -FI_EAGAIN)
		return false;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry error = { 0 };
		struct op *op;

		check(fi_cq_readerr(cq, &error, 0), "fi_cq_readerr");
		op = error.op_context;
		if (error.err != FI_ECANCELED || !op || !op->is_cancelled)
			fail("an operation failed: %s", strerror(error.err));
		if (op->job) {
			op->job->has_reply = true;
			finish(op->job);
		} else {
			cancelling--;
		}
		return true;
	}
	check(n, "fi_cq_readfrom");
	for (ssize_t i = 0; i < n; i++)
		completed(&entry[i]);
	return true;
}

/* Sleeps until something has come or time is over. */
static void sleep_on_queue(void)
{
	struct fid *fid = &cq->fid;
	struct pollfd poll_fd = { queue_fd, POLLIN, 0 };
	int result;

	if (queue_fd < 0)
		return;
	result = fi_trywait(fabric, &fid, 1);
	if (result == -FI_EAGAIN)
		return;
	check(result, "fi_trywait");
	if (poll(&poll_fd, 1, is_over() ? -1 : until_over()) < 0 && errno != EINTR)
		fail("poll: %s", strerror(errno));
}

static bool step(void)
{
	bool more = false;

	while (queued) {
		struct job *job = queued;

		queued = job->next;
		if (!queued)
			queued_end = &queued;
		job->next = NULL;
		if (job->has_sent) {
			job->has_sent = false;
			answer(job);
		} else {
			serve(job);
		}
		more = true;
	}
	for (int i = 0; i < CLIENT; i++)
		if (!clients[i].is_busy && !is_over()) {
			start(&clients[i]);
			more = true;
		}
	return progress() || more;
}

static bool is_busy(void)
{
	for (int i = 0; i < CLIENT; i++)
		if (clients[i].is_busy)
			return true;
	return serving > 0;
}

/* Tells everybody that no request of ours will follow. */
static void say_bye(struct job *jobs)
{
	for (int peer = 0; peer < ranks; peer++) {
		struct job *job = &jobs[peer];

		if (peer == me)
			continue;
		job->is_busy = job->has_reply = true;
		job->verb = BYE;
		job->peer = peer;
		job->number = ++next_number;
		send_request(job, 0);
	}
}

static void run(void)
{
	struct job *last = calloc(MAX_RANKS, sizeof *last);
	bool told = false;
	int waiting;

	is_shm = by_tag = !strcmp(provider, "shm");
	find();
	open_all();
	for (int peer = 0; peer < ranks; peer++)
		if (peer != me)
			leave_note(peer, names[me], name_lens[me]);
	for (int peer = 0; peer < ranks; peer++) {
		unsigned char name[MAX_NOTE];

		if (peer != me)
			know(peer, name, take_note(peer, name));
	}
	for (int i = 0; i < CLIENT; i++)
		if (!(clients[i].memory = aligned_alloc(4096, BULK)))
			fail("no memory");
	if (!last)
		fail("no memory");
	meet();
	do {
		if (!step())
			sleep_on_queue();
		if (!told && is_over() && !is_busy()) {
			say_bye(last);
			told = true;
		}
		waiting = byes < ranks - 1;
		for (int peer = 0; peer < ranks; peer++)
			waiting += peer != me && (!last[peer].has_sent || !told);
	} while (waiting || is_busy() || queued);
	/* What is posted for requests is cancelled, and reported so. */
	for (int i = 0; i < (by_tag ? POSTED : MULTIS); i++) {
		struct op *op = by_tag ? &posted[i] : &multis[i];

		op->is_cancelled = true;
		cancelling++;
		check(fi_cancel(&ep->fid, op), "fi_cancel");
	}
	while (cancelling)
		if (!progress())
			sleep_on_queue();
	for (int peer = 0; peer < ranks; peer++)
		if (peer != me)
			check(fi_av_remove(av, &peers[peer], 1, 0), "fi_av_remove");
	check(fi_close(&ep->fid), "fi_close of the endpoint");
	check(fi_close(&cq->fid), "fi_close of the queue");
	check(fi_close(&multi_mr->fid), "fi_close of a registration");
	check(fi_close(&av->fid), "fi_close of the address vector");
	check(fi_close(&domain->fid), "fi_close of the domain");
	check(fi_close(&fabric->fid), "fi_close of the fabric");
	fi_freeinfo(info);
}

const struct consumer consumer = { "mercury", run };
