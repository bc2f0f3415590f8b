/*
 * A stand-in for NCCL's OFI plugin (aws-ofi-nccl), protocol SENDRECV, as it runs on a provider without device memory.
 *
 * Each process listens once for every other one and connects to it: a handle with its name and a tag goes around the
 * library, the connecting side sends its own name under that tag with the control bit set, and the data of this
 * direction follows under the tag alone, up to 8 chunks at a time, received by source and tag into registered buffers.
 * All registrations have the key 0, which a provider without FI_RMA has to take.
 */
#include "frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define IN_FLIGHT 8
#define CHUNK (512 * 1024)
#define BATCH 16

/* Of libfabric 1.18; Debian's headers are older. */
#define OPT_CUDA_API_PERMITTED 10
#define OPT_SHARED_MEMORY_PERMITTED 11

struct request {
	struct fi_context2 context;     /* the first member: completions name the request by it */
	bool is_send, is_busy, is_done;
	size_t len;
	unsigned char *buf;
};

/* One direction with one peer. */
struct comm {
	fi_addr_t addr;
	uint64_t tag, posted, done;
	bool is_connected, has_last;
	struct request request[IN_FLIGHT], connect;
	unsigned char *memory;
	struct fid_mr *mr;
};

/* What goes around the library, and what is sent to connect. */
struct handle {
	char name[256];
	uint64_t tag;
};

static struct fi_info *list;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_mr *handle_mr;
static struct handle *handles;          /* those received, then those sent */
static struct comm sends[MAX_RANKS], receives[MAX_RANKS];
static uint64_t control;                /* the tag bit of connections */
static bool endpoint_mr;

static int ask(uint32_t version, bool device_memory)
{
	struct fi_info *hints = fi_allocinfo();
	int result;

	hints->caps = FI_LOCAL_COMM | FI_REMOTE_COMM | FI_TAGGED | FI_MSG;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->mr_key_size = 2;
	if (device_memory) {
		hints->caps |= FI_HMEM | FI_RMA | FI_READ;
		hints->domain_attr->mr_mode |= FI_MR_HMEM;
	}
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->control_progress = FI_PROGRESS_UNSPEC;
	hints->domain_attr->data_progress = FI_PROGRESS_UNSPEC;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->fabric_attr->prov_name = strdup(provider);
	result = fi_getinfo(version, NULL, NULL, 0, hints, &list);
	fi_freeinfo(hints);
	return result;
}

/* The plugin's search: device memory first, then without. */
static void find(void)
{
	static const struct { uint32_t version; bool device_memory; } tries[] = {
		{ FI_VERSION(1, 20), true }, { FI_VERSION(1, 18), true }, { FI_VERSION(1, 6), true },
		{ FI_VERSION(1, 6), false },
	};
	int result = -FI_ENODATA, bits = 64;

	for (size_t i = 0; i < sizeof tries / sizeof *tries && result; i++) {
		result = ask(tries[i].version, tries[i].device_memory);
		if (result && result != -FI_ENODATA)
			fail("fi_getinfo: %d, and only -FI_ENODATA lets the plugin try on", result);
	}
	if (result && !has_network())
		skip("this machine has no network, and the plugin requires FI_REMOTE_COMM");
	check(result, "fi_getinfo");
	if (strcmp(list->fabric_attr->prov_name, provider))
		fail("provider %s", list->fabric_attr->prov_name);
	if (list->mode & ~(FI_CONTEXT | FI_CONTEXT2))
		fail("mode %#llx was not offered", (unsigned long long)list->mode);
	/* A fault of the tcp provider that the plugin avoids: key 0 was taken once only, without FI_RMA. */
	if (FI_VERSION_LT(fi_version(), FI_VERSION(2, 2)) && !strcmp(list->fabric_attr->prov_name, "tcp"))
		list->caps |= FI_RMA;
	for (uint64_t format = list->ep_attr->mem_tag_format; bits && !(format >> 63); format <<= 1)
		bits--;
	if (bits < 32)
		fail("only %d bits of a tag", bits);
	control = 1ull << (bits - 1);
	endpoint_mr = list->domain_attr->mr_mode & FI_MR_ENDPOINT;
}

static struct fid_mr *enroll(void *buf, size_t len)
{
	struct iovec iov = { buf, len };
	struct fi_mr_attr attr = { .mr_iov = &iov, .iov_count = 1, .access = FI_SEND | FI_RECV, .iface = FI_HMEM_SYSTEM };
	struct fid_mr *mr;

	if (list->caps & FI_RMA)
		attr.access |= FI_READ;
	check(fi_mr_regattr(domain, &attr, 0, &mr), "fi_mr_regattr with key 0");
	if (endpoint_mr) {
		check(fi_mr_bind(mr, &ep->fid, 0), "fi_mr_bind");
		check(fi_mr_enable(mr), "fi_mr_enable");
	}
	return mr;
}

static void allow(int option, const char *name)
{
	bool no = false;
	int result = fi_setopt(&ep->fid, FI_OPT_ENDPOINT, option, &no, sizeof no);

	if (result && result != -FI_ENOPROTOOPT && result != -FI_EOPNOTSUPP)
		fail("fi_setopt(%s): %d; the plugin takes -FI_ENOPROTOOPT and -FI_EOPNOTSUPP only", name, result);
}

static void open_all(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .size = 12288 };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_info *info = fi_dupinfo(list);

	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
	check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
	check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
	check(fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV), "fi_ep_bind of the queue");
	check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind of the address vector");
	allow(OPT_CUDA_API_PERMITTED, "FI_OPT_CUDA_API_PERMITTED");
	allow(OPT_SHARED_MEMORY_PERMITTED, "FI_OPT_SHARED_MEMORY_PERMITTED");
	check(fi_enable(ep), "fi_enable");
	fi_freeinfo(info);
}

static void progress(void)
{
	struct fi_cq_tagged_entry entry[BATCH];
	ssize_t n = fi_cq_read(cq, entry, BATCH);

	if (n == -FI_EAGAIN)
		return;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry error = { 0 };

		check(fi_cq_readerr(cq, &error, 0), "fi_cq_readerr");
		fail("an operation failed: %s", fi_cq_strerror(cq, error.prov_errno, error.err_data, NULL, 0));
	}
	check(n, "fi_cq_read");
	for (ssize_t i = 0; i < n; i++) {
		struct request *request = entry[i].op_context;

		if (!request || !request->is_busy || request->is_done)
			fail("a completion for no request");
		if (!(entry[i].flags & (request->is_send ? FI_SEND : FI_RECV)) || !(entry[i].flags & FI_TAGGED))
			fail("a completion has flags %#llx", (unsigned long long)entry[i].flags);
		if (!request->is_send)
			request->len = entry[i].len;
		request->is_done = true;
	}
}

static void post(struct request *request, struct comm *comm, struct fid_mr *mr, uint64_t tag, size_t len)
{
	ssize_t result;

	request->is_busy = true;
	request->is_done = false;
	request->len = len;
	do {
		result = request->is_send
			? fi_tsend(ep, request->buf, len, fi_mr_desc(mr), comm->addr, tag, request)
			: fi_trecv(ep, request->buf, len, fi_mr_desc(mr), comm->addr, tag, 0, request);
	} while (result == -FI_EAGAIN && (progress(), true));
	check(result, request->is_send ? "fi_tsend" : "fi_trecv");
}

/* Listens for every peer, and tells each where. */
static void listen_for_all(void)
{
	size_t bytes = sizeof(struct handle) * MAX_RANKS * 2;
	uint64_t tag = 0;

	handles = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!handles)
		fail("no memory");
	memset(handles, 0, bytes);
	handle_mr = enroll(handles, bytes);
	for (int peer = 0; peer < ranks; peer++) {
		struct comm *comm = &receives[peer];
		struct handle mine = { .tag = ++tag };
		size_t len = sizeof mine.name;

		if (peer == me)
			continue;
		check(fi_getname(&ep->fid, mine.name, &len), "fi_getname");
		comm->tag = mine.tag;
		comm->addr = FI_ADDR_UNSPEC;
		comm->connect.buf = (unsigned char *)&handles[peer];
		post(&comm->connect, comm, handle_mr, comm->tag | control, sizeof(struct handle));
		leave_note(peer, &mine, sizeof mine);
	}
}

static void prepare(struct comm *comm, bool is_send)
{
	comm->memory = aligned_alloc(4096, (size_t)CHUNK * IN_FLIGHT);
	if (!comm->memory)
		fail("no memory");
	comm->mr = enroll(comm->memory, (size_t)CHUNK * IN_FLIGHT);
	for (int i = 0; i < IN_FLIGHT; i++) {
		comm->request[i].is_send = is_send;
		comm->request[i].buf = comm->memory + (size_t)CHUNK * i;
	}
}

static void connect_to(int peer)
{
	struct comm *comm = &sends[peer];
	struct handle *mine = &handles[MAX_RANKS + peer], theirs;
	size_t len = sizeof mine->name;

	take_note(peer, &theirs);
	if (fi_av_insert(av, theirs.name, 1, &comm->addr, 0, NULL) != 1)
		fail("fi_av_insert of what listens");
	comm->tag = theirs.tag;
	check(fi_getname(&ep->fid, mine->name, &len), "fi_getname");
	mine->tag = comm->tag;
	comm->connect.is_send = true;
	comm->connect.buf = (unsigned char *)mine;
	post(&comm->connect, comm, handle_mr, comm->tag | control, sizeof *mine);
	prepare(comm, true);
}

/* Takes the peer's connection, once it is there. */
static void accept_from(int peer)
{
	struct comm *comm = &receives[peer];

	if (comm->is_connected || !comm->connect.is_done)
		return;
	if (comm->connect.len != sizeof(struct handle) || handles[peer].tag != comm->tag)
		fail("what rank %d connects with is not what it sent", peer);
	if (fi_av_insert(av, handles[peer].name, 1, &comm->addr, 0, NULL) != 1)
		fail("fi_av_insert of what connects");
	comm->is_connected = true;
	prepare(comm, false);
}

static size_t length(int from, int to, uint64_t number)
{
	static const size_t most[4] = { 64, 4096, 65536, CHUNK };
	uint64_t chance = hash((uint64_t)from << 8 | (uint64_t)to, number, 1);

	if (chance % 4 == 3)
		return CHUNK;
	return 8 + (chance >> 8) % (most[chance % 4] - 8);
}

/* One step of what is sent to a peer; whether all is done. */
static bool send_step(int peer)
{
	struct comm *comm = &sends[peer];

	if (!comm->is_connected) {
		comm->is_connected = comm->connect.is_done;
		return false;
	}
	while (comm->done < comm->posted && comm->request[comm->done % IN_FLIGHT].is_done) {
		struct request *request = &comm->request[comm->done % IN_FLIGHT];

		/* The buffer is ours again: what arrives must be what was in it. */
		memset(request->buf, 0xa5, request->len);
		request->is_busy = false;
		comm->done++;
	}
	if (comm->has_last)
		return comm->done == comm->posted;
	if (comm->posted - comm->done < IN_FLIGHT) {
		struct request *request = &comm->request[comm->posted % IN_FLIGHT];
		size_t len = length(me, peer, comm->posted);
		uint64_t head = comm->posted << 1 | is_over();

		comm->has_last = head & 1;
		fill(request->buf, len, hash((uint64_t)me << 8 | (uint64_t)peer, comm->posted, 2));
		memcpy(request->buf, &head, sizeof head);
		post(request, comm, comm->mr, comm->tag, len);
		count_started();
		comm->posted++;
	}
	return false;
}

static bool receive_step(int peer)
{
	struct comm *comm = &receives[peer];

	accept_from(peer);
	if (!comm->is_connected)
		return false;
	while (!comm->has_last && comm->done < comm->posted && comm->request[comm->done % IN_FLIGHT].is_done) {
		struct request *request = &comm->request[comm->done % IN_FLIGHT];
		size_t len = length(peer, me, comm->done);
		unsigned char expected[8];
		uint64_t head;

		memcpy(&head, request->buf, sizeof head);
		if (head >> 1 != comm->done || request->len != len)
			fail("chunk %llu of rank %d: %zu bytes, number %llu", (unsigned long long)comm->done, peer,
			     request->len, (unsigned long long)(head >> 1));
		fill(expected, sizeof expected, hash((uint64_t)peer << 8 | (uint64_t)me, comm->done, 2));
		memcpy(request->buf, expected, sizeof expected);
		require(request->buf, len, hash((uint64_t)peer << 8 | (uint64_t)me, comm->done, 2), "a chunk");
		count_checked(len);
		memset(request->buf, 0, len);
		request->is_busy = false;
		comm->has_last = head & 1;
		comm->done++;
	}
	while (!comm->has_last && comm->posted - comm->done < IN_FLIGHT) {
		post(&comm->request[comm->posted % IN_FLIGHT], comm, comm->mr, comm->tag, CHUNK);
		comm->posted++;
	}
	return comm->has_last;
}

static void run(void)
{
	bool more;

	find();
	open_all();
	meet();
	listen_for_all();
	for (int peer = 0; peer < ranks; peer++)
		if (peer != me)
			connect_to(peer);
	do {
		more = false;
		progress();
		for (int peer = 0; peer < ranks; peer++) {
			if (peer == me)
				continue;
			more |= !send_step(peer);
			more |= !receive_step(peer);
		}
	} while (more);
	/* As the plugin: receives are posted yet, and the registrations go before the endpoint. */
	for (int peer = 0; peer < ranks; peer++) {
		if (peer == me)
			continue;
		check(fi_close(&sends[peer].mr->fid), "fi_close of a registration");
		check(fi_close(&receives[peer].mr->fid), "fi_close of a registration");
	}
	check(fi_close(&handle_mr->fid), "fi_close of a registration");
	check(fi_close(&ep->fid), "fi_close of the endpoint");
	check(fi_close(&av->fid), "fi_close of the address vector");
	check(fi_close(&cq->fid), "fi_close of the queue");
	check(fi_close(&domain->fid), "fi_close of the domain");
	check(fi_close(&fabric->fid), "fi_close of the fabric");
	fi_freeinfo(list);
}

const struct consumer consumer = { "nccl", run };
