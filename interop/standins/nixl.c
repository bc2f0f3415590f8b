/*
 * A stand-in for NVIDIA NIXL's libfabric backend on the provider tcp.
 *
 * Each process is an agent with one rail. It finds the first tcp domain, asks again by the domain's name, exposes a region
 * whose key is its own address, and posts a pool of receives. An agent moves a window of memory to a peer by several
 * writes with completion data that names the transfer, then notifies the peer by a message with data; the peer has the
 * window when it has seen the notification and as many writes. A thread of its own reads the queue while another one posts
 * (FI_THREAD_COMPLETION, as NIXL asks). Here the peer checks the window and notifies the agent, which reads a part of it
 * back before it uses the window again.
 */
#include "frame.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define WINDOW (1024 * 1024)
#define SLOTS 2                 /* windows that are on their way to each peer */
#define MAX_BLOCKS 16
#define POOL 256                /* receives that are posted */
#define NOTE_SIZE 2048
#define BATCH 16

/* The 32 bits of completion data: what it is, from whom, and the number of the transfer. */
#define DATA(type, agent, number) ((uint64_t)(type) | (uint64_t)(agent) << 4 | (uint64_t)(number) << 12)
#define TYPE_OF(data) ((data) & 0xf)
#define AGENT_OF(data) ((int)((data) >> 4 & 0xff))
#define NUMBER_OF(data) ((uint32_t)((data) >> 12 & 0xfffff))
enum { TRANSFER = 1, NOTIFICATION, ACKNOWLEDGED, BYE };

enum kind { RECEIVE, SEND, WRITE, READ };

struct request {
	struct fi_context2 context;     /* the first member: completions name the request by it */
	enum kind kind;
	bool is_busy;
	unsigned char *buf;
	struct window *window;
	struct request *next;
};

/* What we move to a peer, or what it moves to us. */
struct window {
	int peer, slot;
	uint32_t number;
	/* as the one who moves it */
	enum { IDLE, WRITING, NOTIFIED, CONFIRMED, READING, READ_BACK } state;
	int blocks, pending;
	size_t at, len;
	/* as the one to whom it is moved */
	int seen, expected;             /* writes; expected is -1 until the notification is there */
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_mr *pool_mr, *memory_mr, *source_mr;
static fi_addr_t peers[MAX_RANKS];
static uint64_t keys[MAX_RANKS], bases[MAX_RANKS];
static unsigned char *pool, *memory, *source, *scratch;
static struct window out[MAX_RANKS][SLOTS], in[MAX_RANKS][SLOTS];
static struct request *unused;
static int byes, outstanding;

/* Guards everything above that changes, except what is posted; `changed` when the thread that reads has changed it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, reading = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static volatile bool stop;

struct exposed {
	unsigned char name[128];
	uint64_t key, base;
};

static struct fi_info *hints_for(uint64_t extra, const char *domain_name)
{
	struct fi_info *hints = fi_allocinfo();

	hints->caps = FI_MSG | FI_RMA | FI_LOCAL_COMM | FI_REMOTE_COMM | extra;
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_COMPLETION;
	if (domain_name) {
		hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED;
		hints->domain_attr->mr_key_size = 0;
		hints->domain_attr->name = strdup(domain_name);
	} else {
		hints->domain_attr->mr_mode = ~3;
	}
	return hints;
}

/* Discovery, then the rail: the first domain of the provider, asked for by its name only. */
static void find(void)
{
	struct fi_info *hints = hints_for(0, NULL), *all, *one;
	const char *name = NULL;
	int result = fi_getinfo(FI_VERSION(1, 18), NULL, NULL, 0, hints, &all);

	fi_freeinfo(hints);
	if (result == -FI_ENODATA && !has_network())
		skip("this machine has no network, and NIXL requires FI_REMOTE_COMM");
	check(result, "fi_getinfo of the discovery");
	for (one = all; one && !name; one = one->next)
		if (!strcmp(one->fabric_attr->prov_name, provider) && one->domain_attr->name)
			name = one->domain_attr->name;
	if (!name)
		fail("the discovery finds no domain of %s", provider);

	hints = hints_for(FI_HMEM, name);
	result = fi_getinfo(FI_VERSION(1, 18), NULL, NULL, 0, hints, &info);
	if (result || !info) {
		hints->caps &= ~FI_HMEM;
		check(fi_getinfo(FI_VERSION(1, 18), NULL, NULL, 0, hints, &info), "fi_getinfo of the rail");
	}
	fi_freeinfo(hints);
	if (strcmp(info->domain_attr->name, name))
		fail("asked for domain %s, got %s", name, info->domain_attr->name);
	if (info->domain_attr->mr_mode & (FI_MR_PROV_KEY | FI_MR_VIRT_ADDR))
		fail("mr_mode %#x: keys and offsets are to be the application's", info->domain_attr->mr_mode);
	if (info->domain_attr->cq_data_size < 4 || info->domain_attr->mr_key_size < 8)
		fail("completion data of %zu bytes, keys of %zu", info->domain_attr->cq_data_size,
		     info->domain_attr->mr_key_size);
	fi_freeinfo(all);
}

static struct fid_mr *enroll(void *buf, size_t len)
{
	struct iovec iov = { buf, len };
	struct fi_mr_attr attr = { .mr_iov = &iov, .iov_count = 1, .requested_key = (uintptr_t)buf,
		.access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, .iface = FI_HMEM_SYSTEM };
	struct fid_mr *mr;

	check(fi_mr_regattr(domain, &attr, 0, &mr), "fi_mr_regattr with an address as its key");
	if (info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
		check(fi_mr_bind(mr, &ep->fid, 0), "fi_mr_bind");
		check(fi_mr_enable(mr), "fi_mr_enable");
	}
	if (fi_mr_key(mr) == FI_KEY_NOTAVAIL)
		fail("a registration has no key");
	return mr;
}

static struct request *take(enum kind kind)
{
	struct request *request;

	pthread_mutex_lock(&lock);
	request = unused;
	if (request)
		unused = request->next;
	outstanding += kind != RECEIVE;
	pthread_mutex_unlock(&lock);
	if (!request) {
		request = calloc(1, sizeof *request);
		if (!request)
			fail("no memory");
	}
	request->kind = kind;
	request->is_busy = true;
	request->window = NULL;
	return request;
}

/* With the lock held. */
static void give_back(struct request *request)
{
	request->is_busy = false;
	request->next = unused;
	unused = request;
}

static void post_receive(struct request *request)
{
	struct iovec iov = { request->buf, NOTE_SIZE };
	void *desc = fi_mr_desc(pool_mr);
	struct fi_msg msg = { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = request };

	check(fi_recvmsg(ep, &msg, 0), "fi_recvmsg");
}

/* A notification has come. With the lock held. */
static void notified(uint64_t data, const unsigned char *text, size_t len)
{
	int agent = AGENT_OF(data);
	unsigned number, slot, blocks;
	size_t bytes;
	char copy[NOTE_SIZE + 1];

	memcpy(copy, text, len);
	copy[len] = 0;
	if (agent >= ranks || agent == me || sscanf(copy, "agent %*u transfer %u slot %u blocks %u bytes %zu", &number, &slot, &blocks,
							    &bytes) != 4 ||
	    bytes > WINDOW || number != NUMBER_OF(data) || slot >= SLOTS)
		fail("a notification that nobody sent: %s", copy);
	switch (TYPE_OF(data)) {
	case NOTIFICATION:
		if (in[agent][slot].expected >= 0)
			fail("transfer %u of agent %d is announced twice", number, agent);
		in[agent][slot].expected = (int)blocks;
		in[agent][slot].number = number;
		in[agent][slot].len = bytes;
		break;
	case ACKNOWLEDGED:
		if (out[agent][slot].state != NOTIFIED || out[agent][slot].number != number)
			fail("transfer %u to agent %d is confirmed, but not under way", number, agent);
		out[agent][slot].state = CONFIRMED;
		break;
	case BYE:
		byes++;
		break;
	default:
		fail("message type %llu", (unsigned long long)TYPE_OF(data));
	}
}

static void completed(const struct fi_cq_data_entry *entry)
{
	struct request *request = entry->op_context;

	pthread_mutex_lock(&lock);
	if (entry->flags & FI_SEND) {
		if (!request->is_busy || request->kind != SEND)
			fail("a completion of no send");
		free(request->buf);
		request->buf = NULL;
		outstanding--;
		give_back(request);
	} else if (entry->flags & FI_RECV) {
		if (!request->is_busy || request->kind != RECEIVE)
			fail("a completion of no receive");
		if (!(entry->flags & FI_REMOTE_CQ_DATA))
			fail("a message without data");
		notified(entry->data, request->buf, entry->len);
		pthread_mutex_unlock(&lock);
		memset(request->buf, 0, NOTE_SIZE);
		post_receive(request);
		pthread_mutex_lock(&lock);
	} else if (entry->flags & (FI_WRITE | FI_READ)) {
		if (!request->is_busy || request->kind != (entry->flags & FI_WRITE ? WRITE : READ))
			fail("a completion of no transfer");
		request->window->pending--;
		outstanding--;
		give_back(request);
	} else if (entry->flags & (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA)) {
		int agent = AGENT_OF(entry->data);

		if (TYPE_OF(entry->data) != TRANSFER || agent >= ranks || agent == me)
			fail("a write with data %#llx", (unsigned long long)entry->data);
		in[agent][NUMBER_OF(entry->data) % SLOTS].seen++;
	} else {
		fail("a completion has flags %#llx", (unsigned long long)entry->flags);
	}
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

/* By both threads. */
static bool progress(void)
{
	struct fi_cq_data_entry entries[BATCH];
	ssize_t n;

	pthread_mutex_lock(&reading);
	n = fi_cq_read(cq, entries, BATCH);
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry error = { 0 };

		check(fi_cq_readerr(cq, &error, 0), "fi_cq_readerr");
		fail("an operation failed: %s, flags %#llx", strerror(error.err), (unsigned long long)error.flags);
	}
	pthread_mutex_unlock(&reading);
	if (n == -FI_EAGAIN)
		return false;
	check(n, "fi_cq_read");
	for (ssize_t i = 0; i < n; i++)
		completed(&entries[i]);
	return true;
}

static void *read_queue(void *unused_argument)
{
	while (!stop)
		if (!progress())
			sched_yield();
	return unused_argument;
}

static void notify(int peer, int type, uint32_t number, int slot, int blocks, size_t bytes)
{
	struct request *request = take(SEND);
	ssize_t result;
	int len;

	request->buf = malloc(NOTE_SIZE);
	if (!request->buf)
		fail("no memory");
	/* Notifications are as long as whoever uses NIXL makes them. */
	memset(request->buf, '.', NOTE_SIZE);
	len = sprintf((char *)request->buf, "agent %d transfer %u slot %d blocks %d bytes %zu", me, number, slot, blocks,
		      bytes);
	request->buf[len] = '.';
	do {
		result = fi_senddata(ep, request->buf, (size_t)len + 1 + pick(NOTE_SIZE - (uint32_t)len), NULL,
				     DATA(type, me, number), peers[peer], request);
	} while (result == -FI_EAGAIN && (progress(), true));
	check(result, "fi_senddata");
}

static unsigned char *window_of(unsigned char *base, int peer, int slot)
{
	return base + ((size_t)peer * SLOTS + (size_t)slot) * WINDOW;
}

static uint64_t key_of(int from, int to, uint32_t number)
{
	return hash((uint64_t)from << 8 | (uint64_t)to, number, 3);
}

/* Writes a window in blocks: the last one by fi_writedata, those before it by fi_writemsg, which says that more follow. */
static void start_transfer(struct window *w)
{
	unsigned char *from = window_of(source, w->peer, w->slot);
	uint64_t there = bases[w->peer] + ((size_t)me * SLOTS + (size_t)w->slot) * WINDOW;
	size_t at = 0;

	w->number += SLOTS;
	w->number &= 0xfffff;
	w->blocks = 1 + (int)pick(MAX_BLOCKS);
	w->len = pick(2) ? WINDOW : (size_t)w->blocks + pick(WINDOW - MAX_BLOCKS);
	w->pending = w->blocks;
	w->state = WRITING;
	fill(from, w->len, key_of(me, w->peer, w->number));
	for (int i = 0; i < w->blocks; i++) {
		bool is_last = i == w->blocks - 1;
		size_t len = is_last ? w->len - at : w->len / (size_t)w->blocks;
		struct request *request = take(WRITE);
		uint64_t data = DATA(TRANSFER, me, w->number);
		void *desc = fi_mr_desc(source_mr);
		struct iovec iov = { from + at, len };
		struct fi_rma_iov rma_iov = { there + at, len, keys[w->peer] };
		struct fi_msg_rma msg = { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = peers[w->peer],
			.rma_iov = &rma_iov, .rma_iov_count = 1, .context = request, .data = data };
		ssize_t result;

		request->window = w;
		do {
			result = is_last ? fi_writedata(ep, from + at, len, desc, data, peers[w->peer], there + at,
							keys[w->peer], request)
				: fi_writemsg(ep, &msg, FI_REMOTE_CQ_DATA | FI_MORE);
		} while (result == -FI_EAGAIN && (progress(), true));
		check(result, "a write");
		at += len;
	}
	count_started();
}

static void read_back(struct window *w)
{
	struct request *request = take(READ);
	ssize_t result;

	w->at = pick((uint32_t)(w->len / 8)) * 8;
	w->pending = 1;
	w->state = READING;
	request->window = w;
	do {
		result = fi_read(ep, window_of(scratch, w->peer, w->slot), w->len - w->at, fi_mr_desc(source_mr),
				 peers[w->peer],
				 bases[w->peer] + ((size_t)me * SLOTS + (size_t)w->slot) * WINDOW + w->at,
				 keys[w->peer], request);
	} while (result == -FI_EAGAIN && (progress(), true));
	check(result, "fi_read");
}

/* One step of what is moved to a peer; whether anything is on its way. */
static bool move(struct window *w)
{
	unsigned char *from = window_of(source, w->peer, w->slot), *back = window_of(scratch, w->peer, w->slot);
	int state, pending;

	pthread_mutex_lock(&lock);
	state = w->state;
	pending = w->pending;
	pthread_mutex_unlock(&lock);
	if (state == IDLE) {
		if (is_over())
			return false;
		start_transfer(w);
	} else if (state == WRITING && !pending) {
		pthread_mutex_lock(&lock);
		w->state = NOTIFIED;
		pthread_mutex_unlock(&lock);
		notify(w->peer, NOTIFICATION, w->number, w->slot, w->blocks, w->len);
	} else if (state == CONFIRMED) {
		read_back(w);
	} else if (state == READING && !pending) {
		if (memcmp(back, from + w->at, w->len - w->at))
			fail("what was read back is not what was written");
		memset(back, 0, WINDOW);
		w->state = IDLE;
	}
	return true;
}

/* Checks what has been moved to us, once it is complete. */
static void accept_window(struct window *w)
{
	unsigned char *here = window_of(memory, w->peer, w->slot);
	uint32_t number;
	bool is_complete;
	size_t len;

	pthread_mutex_lock(&lock);
	is_complete = w->expected >= 0 && w->seen == w->expected;
	if (w->expected >= 0 && w->seen > w->expected)
		fail("%d writes of agent %d, which announced %d", w->seen, w->peer, w->expected);
	number = w->number;
	len = w->len;
	if (is_complete) {
		w->seen = 0;
		w->expected = -1;
	}
	pthread_mutex_unlock(&lock);
	if (!is_complete)
		return;
	require(here, len, key_of(w->peer, me, number), "a window");
	count_checked(len);
	notify(w->peer, ACKNOWLEDGED, number, w->slot, 0, 0);
}

static void open_all(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE, .size = 12288 };
	struct fi_av_attr av_attr = { 0 };
	struct exposed mine = { 0 };
	size_t len = sizeof mine.name, bytes = (size_t)MAX_RANKS * SLOTS * WINDOW;

	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
	check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
	check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
	check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the queue");
	check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind of the address vector");
	check(fi_enable(ep), "fi_enable");
	check(fi_getname(&ep->fid, mine.name, &len), "fi_getname");

	pool = aligned_alloc(4096, (size_t)POOL * NOTE_SIZE);
	memory = aligned_alloc(4096, bytes);
	source = aligned_alloc(4096, 2 * bytes);
	if (!pool || !memory || !source)
		fail("no memory");
	scratch = source + bytes;
	pool_mr = enroll(pool, (size_t)POOL * NOTE_SIZE);
	memory_mr = enroll(memory, bytes);
	source_mr = enroll(source, 2 * bytes);
	for (int i = 0; i < POOL; i++) {
		struct request *request = take(RECEIVE);

		request->buf = pool + (size_t)i * NOTE_SIZE;
		post_receive(request);
	}
	mine.key = fi_mr_key(memory_mr);
	if (mine.key != (uintptr_t)memory)
		fail("key %#llx instead of the one asked for", (unsigned long long)mine.key);
	for (int peer = 0; peer < ranks; peer++)
		if (peer != me)
			leave_note(peer, &mine, sizeof mine);
}

static void connect_all(void)
{
	for (int peer = 0; peer < ranks; peer++) {
		struct exposed theirs;

		if (peer == me)
			continue;
		take_note(peer, &theirs);
		if (fi_av_insert(av, theirs.name, 1, &peers[peer], 0, NULL) != 1)
			fail("fi_av_insert");
		keys[peer] = theirs.key;
		bases[peer] = theirs.base;
		for (int slot = 0; slot < SLOTS; slot++) {
			out[peer][slot] = (struct window){ .peer = peer, .slot = slot, .number = (uint32_t)slot };
			in[peer][slot] = (struct window){ .peer = peer, .slot = slot, .expected = -1 };
		}
	}
}

/* Waits for the other thread, a little while only: time may be over. */
static void wait_for_change(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&lock);
	pthread_cond_timedwait(&changed, &lock, &until);
	pthread_mutex_unlock(&lock);
}

static void run(void)
{
	bool told = false, more = true;
	pthread_t reader;

	find();
	open_all();
	connect_all();
	meet();
	if (pthread_create(&reader, NULL, read_queue, NULL))
		fail("no thread");
	while (more) {
		bool moving = false;

		for (int peer = 0; peer < ranks; peer++)
			for (int slot = 0; slot < SLOTS && peer != me; slot++) {
				moving |= move(&out[peer][slot]);
				accept_window(&in[peer][slot]);
			}
		if (!moving && !told) {
			for (int peer = 0; peer < ranks; peer++)
				if (peer != me)
					notify(peer, BYE, 0, 0, 0, 0);
			told = true;
		}
		pthread_mutex_lock(&lock);
		more = !told || byes < ranks - 1 || outstanding;
		pthread_mutex_unlock(&lock);
		if (more)
			wait_for_change();
	}
	stop = true;
	pthread_join(reader, NULL);
	for (int peer = 0; peer < ranks; peer++)
		if (peer != me)
			check(fi_av_remove(av, &peers[peer], 1, 0), "fi_av_remove");
	/* In NIXL's order: with receives posted, and registrations after the endpoint. */
	check(fi_close(&ep->fid), "fi_close of the endpoint");
	check(fi_close(&cq->fid), "fi_close of the queue");
	check(fi_close(&av->fid), "fi_close of the address vector");
	check(fi_close(&pool_mr->fid), "fi_close of a registration");
	check(fi_close(&memory_mr->fid), "fi_close of a registration");
	check(fi_close(&source_mr->fid), "fi_close of a registration");
	check(fi_close(&domain->fid), "fi_close of the domain");
	check(fi_close(&fabric->fid), "fi_close of the fabric");
	fi_freeinfo(info);
}

const struct consumer consumer = { "nixl", run };
