/*
 * An RDMA device that is memory of one process, for counting the instructions of what is above it: libibverbs.so.1 and
 * librdmacm.so.1 at once. Its queue pairs are reliable connections within the process; a request is carried out, and
 * completed on both sides, by the call that posts it. One thread uses it at a time.
 *
 * It calls no other library once a connection stands, so what callgrind counts outside of this file is of its caller.
 */
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The macros of the headers, which choose among functions. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

enum { PIECES = 4, INLINE = 256, QUEUE = 8192, REGIONS = 4096 };

static void broken(const char *what)
{
	fprintf(stderr, "bench/device: %s\n", what);
	abort();
}

static void *new(size_t size)
{
	void *memory = calloc(1, size);

	if (!memory)
		broken("no memory");
	return memory;
}

/* Copies without the C library, whose instructions count. */
static inline void copy(void *to, const void *from, size_t size)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

/* Descriptors that are readable as often as they were told. */
static int signal_new(void)
{
	return eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
}

static void signal_tell(int fd)
{
	if (eventfd_write(fd, 1))
		broken("a signal is not told");
}

static int signal_take(int fd)
{
	eventfd_t one;

	return eventfd_read(fd, &one);
}

/* The device. */

static struct ibv_device device = {
	.node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "memory0", .dev_name = "uverbs0",
};

static struct ibv_context *context(void);

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = new(2 * sizeof *list);

	list[0] = &device;
	if (count)
		*count = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *which)
{
	return which->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *which)
{
	(void)which;
	return context();
}

int ibv_close_device(struct ibv_context *of)
{
	(void)of;
	return 0;
}

struct ibv_context **rdma_get_devices(int *count)
{
	struct ibv_context **list = new(2 * sizeof *list);

	list[0] = context();
	if (count)
		*count = 1;
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

int ibv_query_device(struct ibv_context *of, struct ibv_device_attr *attr)
{
	(void)of;
	*attr = (struct ibv_device_attr){
		.fw_ver = "1", .vendor_id = 1, .vendor_part_id = 1, .hw_ver = 1, .max_mr_size = UINT64_MAX,
		.max_qp = 1 << 16, .max_qp_wr = QUEUE, .max_sge = PIECES, .max_sge_rd = PIECES, .max_cq = 1 << 16,
		.max_cqe = 1 << 20, .max_mr = REGIONS, .max_pd = 1 << 16, .max_qp_rd_atom = 128,
		.max_qp_init_rd_atom = 128, .max_srq = 1 << 16, .max_srq_wr = QUEUE, .max_srq_sge = PIECES,
		.max_pkeys = 1, .phys_port_cnt = 1, .page_size_cap = 4096,
	};
	return 0;
}

int ibv_query_port(struct ibv_context *of, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	struct ibv_port_attr whole = {
		.state = IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096, .gid_tbl_len = 1,
		.max_msg_sz = 1u << 31, .pkey_tbl_len = 1, .active_width = 2, .active_speed = 32, .phys_state = 5,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};

	(void)of;
	(void)port;
	memcpy(attr, &whole, offsetof(struct ibv_port_attr, port_cap_flags2));
	return 0;
}

int ibv_query_gid(struct ibv_context *of, uint8_t port, int index, union ibv_gid *gid)
{
	(void)of;
	(void)port;
	(void)index;
	memset(gid, 0, sizeof *gid);
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	gid->raw[15] = 1;
	return 0;
}

int ibv_query_pkey(struct ibv_context *of, uint8_t port, int index, __be16 *key)
{
	(void)of;
	(void)port;
	(void)index;
	*key = 0xffff;
	return 0;
}

int ibv_get_async_event(struct ibv_context *of, struct ibv_async_event *event)
{
	(void)of;
	(void)event;
	errno = EAGAIN;
	return -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

/* Memory. */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *of)
{
	struct ibv_pd *pd = new(sizeof *pd);

	pd->context = of;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

/* By their keys, from 1 on. */
static struct {
	char *start;
	size_t length;
	int access;
	struct ibv_mr *mr;
} regions[REGIONS];

/* How many registrations were made and ended, and how many of the next are refused, for a test to read and set. */
struct {
	unsigned long made, ended, refuse;
} registrations;

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *start, size_t length, int access)
{
	if (registrations.refuse) {
		registrations.refuse--;
		errno = ENOMEM;
		return NULL;
	}
	for (uint32_t key = 1; key < REGIONS; key++) {
		struct ibv_mr *mr = regions[key].mr;

		if (mr)
			continue;
		mr = new(sizeof *mr);
		*mr = (struct ibv_mr){ pd->context, pd, start, length, key, key, key };
		regions[key].start = start;
		regions[key].length = length;
		regions[key].access = access;
		regions[key].mr = mr;
		registrations.made++;
		return mr;
	}
	errno = ENOMEM;
	return NULL;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *start, size_t length, uint64_t at, unsigned int access)
{
	(void)at;
	return ibv_reg_mr(pd, start, length, (int)access);
}

/* What the last registration of a dma-buf was given, and the error that the next ones get, for a test to read and set. */
struct {
	uint64_t offset, length, at;
	int fd, access, refusal;
} last_dmabuf = { .refusal = EOPNOTSUPP };

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t at, int fd, int access)
{
	last_dmabuf.offset = offset;
	last_dmabuf.length = length;
	last_dmabuf.at = at;
	last_dmabuf.fd = fd;
	last_dmabuf.access = access;
	if (last_dmabuf.refusal) {
		errno = last_dmabuf.refusal;
		return NULL;
	}
	return ibv_reg_mr(pd, (void *)(uintptr_t)at, length, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	regions[mr->lkey].mr = NULL;
	registrations.ended++;
	free(mr);
	return 0;
}

/* Whether some of this memory is registered for writes, of this process or of peers; for a test that gives memory back. */
bool may_be_written(const char *start, size_t length)
{
	for (uint32_t key = 1; key < REGIONS; key++)
		if (regions[key].mr && regions[key].access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) &&
		    start < regions[key].start + regions[key].length && regions[key].start < start + length)
			return true;
	return false;
}

/* Whether a key lets this memory be reached. */
static inline bool is_reachable(uint64_t address, size_t length, uint32_t key)
{
	char *memory = (char *)(uintptr_t)address;

	return !length || (key < REGIONS && regions[key].mr && memory >= regions[key].start &&
			   memory + length <= regions[key].start + regions[key].length);
}

/* The memory that a key lets be reached; a request for other memory is a fault of the caller's. */
static inline char *reach(uint64_t address, size_t length, uint32_t key)
{
	if (!is_reachable(address, length, key))
		broken("memory that is not registered");
	return (char *)(uintptr_t)address;
}

/* What a test counts and sets. */

/*
 * Which requests are held back, how many of reads were posted and how many requests are held, for a test to set and read:
 * `requests_let_go` carries out those that are held, and holds back no more. How many were posted with their data inline,
 * and how many polls have found nothing. Where `silent` is set, a queue pair is not told that its peer has gone: what it
 * posts is held back.
 */
struct {
	unsigned long hold, reads, held, inlined, polls, silent;
} requests;

/* Values of `requests.hold`. What is posted behind a held read overtakes it. */
enum { HOLD_ALL = 1, HOLD_READS = 2 };

/* Completions. */

struct channel {
	struct ibv_comp_channel raw;
	struct ibv_cq *told[QUEUE];
	unsigned first, last;
};

struct cq {
	struct ibv_cq raw;
	unsigned first, last, mask;
	bool armed;
	struct ibv_wc entries[];
};

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *of)
{
	struct channel *channel = new(sizeof *channel);

	channel->raw.context = of;
	channel->raw.fd = signal_new();
	return &channel->raw;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	free(channel);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *of, int entries, void *about, struct ibv_comp_channel *channel, int vector)
{
	unsigned room = 1;
	struct cq *cq;

	(void)vector;
	while (room < (unsigned)entries)
		room *= 2;
	cq = new(sizeof *cq + room * sizeof *cq->entries);
	cq->raw.context = of;
	cq->raw.channel = channel;
	cq->raw.cq_context = about;
	cq->raw.cqe = (int)room;
	cq->mask = room - 1;
	return &cq->raw;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *raw, struct ibv_cq **cq, void **about)
{
	struct channel *channel = (struct channel *)raw;

	if (signal_take(raw->fd))
		return -1;
	*cq = channel->told[channel->first++ % QUEUE];
	*about = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	cq->comp_events_completed += count;
}

static void complete(struct ibv_cq *raw, const struct ibv_wc *wc)
{
	struct cq *cq = (struct cq *)raw;
	struct channel *channel = (struct channel *)raw->channel;

	if (cq->last - cq->first > cq->mask)
		broken("a completion queue is full");
	cq->entries[cq->last++ & cq->mask] = *wc;
	if (cq->armed && channel) {
		cq->armed = false;
		channel->told[channel->last++ % QUEUE] = raw;
		signal_tell(raw->channel->fd);
	}
}

static int poll_cq(struct ibv_cq *raw, int most, struct ibv_wc *wc)
{
	struct cq *cq = (struct cq *)raw;
	int count = 0;

	for (; count < most && cq->first != cq->last; count++)
		wc[count] = cq->entries[cq->first++ & cq->mask];
	requests.polls += !count;
	return count;
}

static int req_notify_cq(struct ibv_cq *raw, int solicited)
{
	(void)solicited;
	((struct cq *)raw)->armed = true;
	return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_SUCCESS ? "success" : status == IBV_WC_WR_FLUSH_ERR ? "flushed" : "failed";
}

/* Queue pairs and shared receive queues. */

struct receives {
	unsigned first, last;
	struct {
		uint64_t id;
		int count;
		struct ibv_sge pieces[PIECES];
	} all[QUEUE];
};

struct srq {
	struct ibv_srq raw;
	struct receives receives;
};

struct qp {
	struct ibv_qp raw;
	/* While it is connected. */
	struct qp *peer;
	bool failed, all_signalled;
	struct receives *receives;
	struct receives own;
};

static int take_receives(struct receives *receives, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	for (; wr; wr = wr->next) {
		if (receives->last - receives->first == QUEUE || wr->num_sge > PIECES) {
			*bad = wr;
			return ENOMEM;
		}
		receives->all[receives->last % QUEUE].id = wr->wr_id;
		receives->all[receives->last % QUEUE].count = wr->num_sge;
		for (int i = 0; i < wr->num_sge; i++)
			receives->all[receives->last % QUEUE].pieces[i] = wr->sg_list[i];
		receives->last++;
	}
	return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct srq *srq = new(sizeof *srq);

	srq->raw.context = pd->context;
	srq->raw.pd = pd;
	srq->raw.srq_context = attr->srq_context;
	return &srq->raw;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	free(srq);
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return take_receives(&((struct srq *)srq)->receives, wr, bad);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_cap *cap = &attr->cap;
	struct qp *qp;

	if (cap->max_send_sge > PIECES || cap->max_recv_sge > PIECES || cap->max_inline_data > INLINE ||
	    cap->max_send_wr > QUEUE || cap->max_recv_wr > QUEUE) {
		errno = EINVAL;
		return NULL;
	}
	qp = new(sizeof *qp);
	qp->raw.context = pd->context;
	qp->raw.qp_context = attr->qp_context;
	qp->raw.pd = pd;
	qp->raw.send_cq = attr->send_cq;
	qp->raw.recv_cq = attr->recv_cq;
	qp->raw.srq = attr->srq;
	qp->raw.qp_type = attr->qp_type;
	qp->all_signalled = attr->sq_sig_all;
	qp->receives = attr->srq ? &((struct srq *)attr->srq)->receives : &qp->own;
	return &qp->raw;
}

/* A request that is held back. */
struct held {
	struct held *next;
	struct qp *qp;
	struct ibv_send_wr wr;
	struct ibv_sge pieces[PIECES];
	char inlined[INLINE];
};

static struct held *held;

static void hold_back(struct qp *qp, const struct ibv_send_wr *wr)
{
	struct held **at = &held, *one = new(sizeof *one);
	char *end = one->inlined;

	one->qp = qp;
	one->wr = *wr;
	memcpy(one->pieces, wr->sg_list, (size_t)wr->num_sge * sizeof *wr->sg_list);
	/* Inline data is the caller's again when the call returns. */
	for (int i = 0; wr->send_flags & IBV_SEND_INLINE && i < wr->num_sge; i++) {
		struct ibv_sge *piece = &one->pieces[i];

		if (piece->length > (size_t)(one->inlined + INLINE - end))
			broken("more inline data than the queue pair takes");
		memcpy(end, (const char *)(uintptr_t)piece->addr, piece->length);
		piece->addr = (uintptr_t)end;
		end += piece->length;
	}
	one->wr.sg_list = one->pieces;
	one->wr.next = NULL;
	while (*at)
		at = &(*at)->next;
	*at = one;
	requests.held++;
}

/* Takes the oldest request that is held back, or the oldest of one queue pair. */
static struct held *next_held(const struct qp *of)
{
	for (struct held **at = &held; *at; at = &(*at)->next) {
		struct held *one = *at;

		if (of && one->qp != of)
			continue;
		*at = one->next;
		requests.held--;
		return one;
	}
	return NULL;
}

/* What is not done any more ends, on both sides. */
static void disconnect(struct qp *qp)
{
	if (!qp || qp->failed)
		return;
	qp->failed = true;
	for (struct held *one; (one = next_held(qp)); free(one))
		complete(qp->raw.send_cq, &(struct ibv_wc){ .wr_id = one->wr.wr_id, .status = IBV_WC_WR_FLUSH_ERR });
	for (; qp->receives == &qp->own && qp->own.first != qp->own.last; qp->own.first++)
		complete(qp->raw.recv_cq, &(struct ibv_wc){ .wr_id = qp->own.all[qp->own.first % QUEUE].id,
			 .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV });
	if (!requests.silent)
		disconnect(qp->peer);
}

int ibv_destroy_qp(struct ibv_qp *raw)
{
	struct qp *qp = (struct qp *)raw;

	if (qp->peer) {
		if (!requests.silent)
			disconnect(qp->peer);
		qp->peer->peer = NULL;
	}
	for (struct held *one; (one = next_held(qp));)
		free(one);
	free(qp);
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR)
		disconnect((struct qp *)qp);
	return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	(void)pd;
	(void)attr;
	errno = EOPNOTSUPP;
	return NULL;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	(void)ah;
	return 0;
}

static int post_recv(struct ibv_qp *raw, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *qp = (struct qp *)raw;

	for (; qp->failed && wr; wr = wr->next)
		complete(raw->recv_cq, &(struct ibv_wc){ .wr_id = wr->wr_id, .status = IBV_WC_WR_FLUSH_ERR,
			 .opcode = IBV_WC_RECV });
	return take_receives(&qp->own, wr, bad);
}

/* Uses the peer's next receive, for a message or for the immediate data of a write. */
static void receive(struct qp *peer, const struct ibv_send_wr *wr, enum ibv_wc_opcode kind)
{
	struct receives *receives = peer->receives;
	unsigned at = receives->first % QUEUE, piece = 0;
	struct ibv_wc wc = { .opcode = kind, .qp_num = peer->raw.qp_num };
	size_t filled = 0;

	if (receives->first++ == receives->last)
		broken("a message without a receive");
	wc.wr_id = receives->all[at].id;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *from = &wr->sg_list[i];
		const char *memory = (const char *)(uintptr_t)from->addr;
		size_t left = from->length;

		if (!(wr->send_flags & IBV_SEND_INLINE))
			reach(from->addr, left, from->lkey);
		wc.byte_len += from->length;
		while (kind == IBV_WC_RECV && left) {
			const struct ibv_sge *to = &receives->all[at].pieces[piece];
			size_t part = to->length - filled;

			if (piece >= (unsigned)receives->all[at].count)
				broken("a message that is longer than its receive");
			part = part < left ? part : left;
			copy(reach(to->addr + filled, part, to->lkey), memory, part);
			memory += part;
			left -= part;
			filled += part;
			if (filled == to->length) {
				piece++;
				filled = 0;
			}
		}
	}
	if (wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = wr->imm_data;
	}
	complete(peer->raw.recv_cq, &wc);
}

/* Writes and reads: the peer's memory is one piece. Returns whether the peer lets it be reached. */
static bool move(const struct ibv_send_wr *wr, bool is_read)
{
	uint64_t there = wr->wr.rdma.remote_addr;
	size_t length = 0;

	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	if (!is_reachable(there, length, wr->wr.rdma.rkey))
		return false;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *here = &wr->sg_list[i];
		bool is_inline = wr->send_flags & IBV_SEND_INLINE;
		char *mine = is_inline ? (char *)(uintptr_t)here->addr : reach(here->addr, here->length, here->lkey);
		char *theirs = reach(there, here->length, wr->wr.rdma.rkey);

		copy(is_read ? mine : theirs, is_read ? theirs : mine, here->length);
		there += here->length;
	}
	return true;
}

static int carry_out(struct qp *qp, const struct ibv_send_wr *wr)
{
	struct ibv_cq *cq = qp->raw.send_cq;
	struct ibv_wc wc = { .wr_id = wr->wr_id, .qp_num = qp->raw.qp_num };
	bool moved = true;

	if (qp->failed || !qp->peer) {
		wc.status = IBV_WC_WR_FLUSH_ERR;
		complete(cq, &wc);
		return 0;
	}
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		receive(qp->peer, wr, IBV_WC_RECV);
		wc.opcode = IBV_WC_SEND;
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		moved = move(wr, false);
		if (moved && wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
			receive(qp->peer, wr, IBV_WC_RECV_RDMA_WITH_IMM);
		wc.opcode = IBV_WC_RDMA_WRITE;
		break;
	case IBV_WR_RDMA_READ:
		moved = move(wr, true);
		wc.opcode = IBV_WC_RDMA_READ;
		break;
	default:
		return EOPNOTSUPP;
	}
	if (!moved) {
		wc.status = IBV_WC_REM_ACCESS_ERR;
		complete(cq, &wc);
		disconnect(qp);
	} else if (qp->all_signalled || wr->send_flags & IBV_SEND_SIGNALED) {
		complete(cq, &wc);
	}
	return 0;
}

static bool holds(bool reads)
{
	return requests.hold && (requests.hold != HOLD_READS || reads);
}

static int post_send(struct ibv_qp *raw, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *qp = (struct qp *)raw;

	for (; wr; wr = wr->next) {
		int refused = 0;

		bool reads = wr->opcode == IBV_WR_RDMA_READ;

		requests.reads += reads;
		requests.inlined += !!(wr->send_flags & IBV_SEND_INLINE);
		if (!qp->failed && (holds(reads) || (requests.silent && (!qp->peer || qp->peer->failed))))
			hold_back(qp, wr);
		else
			refused = carry_out(qp, wr);
		if (refused) {
			*bad = wr;
			return refused;
		}
	}
	return 0;
}

void requests_let_go(void)
{
	requests.hold = 0;
	for (struct held *one; (one = next_held(NULL)); free(one))
		carry_out(one->qp, &one->wr);
}

static struct ibv_context *context(void)
{
	static struct ibv_context one = { .device = &device, .cmd_fd = -1, .async_fd = -1, .num_comp_vectors = 1 };

	if (one.async_fd < 0) {
		one.async_fd = signal_new();
		one.ops.poll_cq = poll_cq;
		one.ops.req_notify_cq = req_notify_cq;
		one.ops.post_srq_recv = post_srq_recv;
		one.ops.post_send = post_send;
		one.ops.post_recv = post_recv;
	}
	return &one;
}

/* Connections. */

struct event {
	struct rdma_cm_event raw;
	struct event *next;
	char data[256];
};

struct id {
	struct rdma_cm_id raw;
	bool listens;
	/* The other end, from a request on. */
	struct id *peer;
	struct id *next;
	/* Those that nobody has taken, of an id that has no channel yet. */
	struct event *waiting;
};

struct event_channel {
	struct rdma_event_channel raw;
	struct event *events;
};

static struct id *ids;

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct event_channel *channel = new(sizeof *channel);

	channel->raw.fd = signal_new();
	return &channel->raw;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	close(channel->fd);
	free(channel);
}

static void append(struct event **list, struct event *event)
{
	while (*list)
		list = &(*list)->next;
	*list = event;
}

static void tell(struct id *about, struct id *id, enum rdma_cm_event_type kind, const struct rdma_conn_param *said)
{
	struct event_channel *channel = (struct event_channel *)about->raw.channel;
	struct event *event = new(sizeof *event);

	event->raw.id = &id->raw;
	event->raw.listen_id = about == id ? NULL : &about->raw;
	event->raw.event = kind;
	if (said) {
		event->raw.param.conn = *said;
		memcpy(event->data, said->private_data, said->private_data_len);
		event->raw.param.conn.private_data = said->private_data_len ? event->data : NULL;
	}
	append(channel ? &channel->events : &about->waiting, event);
	if (channel)
		signal_tell(channel->raw.fd);
}

int rdma_get_cm_event(struct rdma_event_channel *raw, struct rdma_cm_event **event)
{
	struct event_channel *channel = (struct event_channel *)raw;

	if (signal_take(raw->fd))
		return -1;
	*event = &channel->events->raw;
	channel->events = channel->events->next;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	free(event);
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	(void)event;
	return "an event";
}

/* An id without a channel is asked for what is done at once. */
int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **raw, void *about, enum rdma_port_space space)
{
	struct id *id = new(sizeof *id);

	id->raw.channel = channel;
	id->raw.context = about;
	id->raw.ps = space;
	id->next = ids;
	ids = id;
	*raw = &id->raw;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *raw)
{
	struct id *id = (struct id *)raw, **at = &ids;
	struct event_channel *channel = (struct event_channel *)raw->channel;

	while (*at != id)
		at = &(*at)->next;
	*at = id->next;
	if (id->peer)
		id->peer->peer = NULL;
	/* Its events are gone with it. */
	for (struct event **event = channel ? &channel->events : &id->waiting; *event;) {
		struct event *gone = *event;

		if (gone->raw.id != raw) {
			event = &gone->next;
			continue;
		}
		*event = gone->next;
		free(gone);
		if (channel)
			signal_take(channel->raw.fd);
	}
	free(id);
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	ibv_destroy_qp(id->qp);
	id->qp = NULL;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

static socklen_t length(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static in_port_t *port_of(struct rdma_cm_id *id)
{
	struct rdma_addr *addr = &id->route.addr;

	return addr->src_addr.sa_family == AF_INET6 ? &addr->src_sin6.sin6_port : &addr->src_sin.sin_port;
}

static void bind_to_device(struct rdma_cm_id *id)
{
	id->verbs = context();
	id->port_num = 1;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	static uint16_t next_port = 40000;

	if (address->sa_family != AF_INET && address->sa_family != AF_INET6) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	memcpy(&id->route.addr.src_storage, address, length(address));
	if (!*port_of(id))
		*port_of(id) = htons(next_port++);
	bind_to_device(id);
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return *port_of(id);
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)backlog;
	((struct id *)id)->listens = true;
	return 0;
}

static void done(struct rdma_cm_id *id, enum rdma_cm_event_type kind)
{
	if (id->channel)
		tell((struct id *)id, (struct id *)id, kind, NULL);
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int milliseconds)
{
	(void)milliseconds;
	memcpy(&id->route.addr.dst_storage, to, length(to));
	if (!id->verbs && rdma_bind_addr(id, from ? from : to))
		return -1;
	done(id, RDMA_CM_EVENT_ADDR_RESOLVED);
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int milliseconds)
{
	(void)milliseconds;
	done(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	id->qp = ibv_create_qp(pd, attr);
	id->pd = pd;
	return id->qp ? 0 : -1;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	return rdma_create_qp(id, attr->pd, (struct ibv_qp_init_attr *)attr);
}

int rdma_connect(struct rdma_cm_id *raw, struct rdma_conn_param *said)
{
	struct sockaddr_in *to = &raw->route.addr.dst_sin;
	struct id *id = (struct id *)raw, *asked, *listener = ids;

	/* The port is at one place in addresses of both families. */
	while (listener && !(listener->listens && *port_of(&listener->raw) == to->sin_port))
		listener = listener->next;
	if (!listener) {
		tell(id, id, RDMA_CM_EVENT_REJECTED, NULL);
		return 0;
	}
	rdma_create_id(listener->raw.channel, (struct rdma_cm_id **)&asked, listener->raw.context, raw->ps);
	asked->raw.route.addr = listener->raw.route.addr;
	memcpy(&asked->raw.route.addr.dst_storage, &raw->route.addr.src_storage, sizeof(struct sockaddr_storage));
	bind_to_device(&asked->raw);
	asked->peer = id;
	id->peer = asked;
	tell(listener, asked, RDMA_CM_EVENT_CONNECT_REQUEST, said);
	return 0;
}

int rdma_accept(struct rdma_cm_id *raw, struct rdma_conn_param *said)
{
	struct id *id = (struct id *)raw, *peer = id->peer;

	if (!peer || !peer->raw.qp || !raw->qp) {
		errno = EINVAL;
		return -1;
	}
	((struct qp *)raw->qp)->peer = (struct qp *)peer->raw.qp;
	((struct qp *)peer->raw.qp)->peer = (struct qp *)raw->qp;
	tell(peer, peer, RDMA_CM_EVENT_ESTABLISHED, said);
	tell(id, id, RDMA_CM_EVENT_ESTABLISHED, NULL);
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t length)
{
	struct id *peer = ((struct id *)id)->peer;
	struct rdma_conn_param said = { .private_data = data, .private_data_len = length };

	if (peer)
		tell(peer, peer, RDMA_CM_EVENT_REJECTED, &said);
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *raw)
{
	struct id *id = (struct id *)raw, *peer = id->peer;

	disconnect((struct qp *)raw->qp);
	if (peer)
		tell(peer, peer, RDMA_CM_EVENT_DISCONNECTED, NULL);
	tell(id, id, RDMA_CM_EVENT_DISCONNECTED, NULL);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *raw, struct rdma_event_channel *to)
{
	struct id *id = (struct id *)raw;
	struct event_channel *from = (struct event_channel *)raw->channel;

	for (struct event **event = from ? &from->events : &id->waiting; *event;) {
		struct event *moved = *event;

		if ((moved->raw.listen_id ? moved->raw.listen_id : moved->raw.id) != raw) {
			event = &moved->next;
			continue;
		}
		*event = moved->next;
		moved->next = NULL;
		append(&((struct event_channel *)to)->events, moved);
		signal_tell(to->fd);
		if (from)
			signal_take(from->raw.fd);
	}
	raw->channel = to;
	return 0;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **found)
{
	struct addrinfo wanted = { .ai_socktype = SOCK_STREAM }, *all = NULL;
	struct rdma_addrinfo *info = new(sizeof *info);
	bool passive = hints && hints->ai_flags & RAI_PASSIVE;
	struct sockaddr *address = new(sizeof(struct sockaddr_storage));

	if (hints && hints->ai_flags & RAI_FAMILY)
		wanted.ai_family = hints->ai_family;
	if (hints)
		*info = *hints;
	info->ai_next = NULL;
	info->ai_src_addr = info->ai_dst_addr = NULL;
	if (hints && hints->ai_src_len) {
		info->ai_src_addr = new(sizeof(struct sockaddr_storage));
		memcpy(info->ai_src_addr, hints->ai_src_addr, hints->ai_src_len);
	}
	if (!node && !service && hints && hints->ai_dst_len) {
		memcpy(address, hints->ai_dst_addr, hints->ai_dst_len);
	} else if (node || service) {
		wanted.ai_flags = passive ? AI_PASSIVE : 0;
		if (getaddrinfo(node, service, &wanted, &all)) {
			errno = ENODATA;
			return -1;
		}
		memcpy(address, all->ai_addr, all->ai_addrlen);
		freeaddrinfo(all);
	} else if (info->ai_src_addr) {
		free(address);
		address = NULL;
	}
	if (address && passive) {
		info->ai_src_addr = address;
		info->ai_src_len = length(address);
	} else if (address && address->sa_family) {
		info->ai_dst_addr = address;
		info->ai_dst_len = length(address);
	}
	if (info->ai_src_addr || info->ai_dst_addr)
		info->ai_family = (info->ai_src_addr ? info->ai_src_addr : info->ai_dst_addr)->sa_family;
	*found = info;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *info)
{
	if (!info)
		return;
	free(info->ai_src_addr);
	free(info->ai_dst_addr);
	free(info);
}
