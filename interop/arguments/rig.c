/* The objects that calls are made on. */
#include "arguments.h"

struct rig rig;
char target[4096];

static int find(struct fi_info *hints, struct fi_info **info)
{
	const bool is_shm = !strcmp(rig.provider, "shm");

	return fi_getinfo(FI_VERSION(1, 17), is_shm ? NULL : "127.0.0.1", NULL, is_shm ? 0 : FI_SOURCE, hints, info);
}

/* The info of the provider and endpoint type under test. */
struct fi_info *ask(void)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;

	hints->fabric_attr->prov_name = strdup(rig.provider);
	hints->ep_attr->type = rig.type;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->data_progress = hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->caps = rig.caps;
	if (rig.caps && find(hints, &info)) {
		rig.caps = 0;
		hints->caps = 0;
	}
	if (!info)
		require(find(hints, &info), "fi_getinfo");
	fi_freeinfo(hints);
	return info;
}

void open_nothing(void)
{
	rig.info = ask();
}

void open_domain(void)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE };

	open_nothing();
	require(fi_fabric(rig.info->fabric_attr, &rig.fabric, NULL), "fi_fabric");
	require(fi_domain(rig.fabric, rig.info, &rig.domain, NULL), "fi_domain");
	require(fi_av_open(rig.domain, &av, &rig.av, NULL), "fi_av_open");
}

void pump(void (*see)(bool ours, const struct fi_cq_tagged_entry *entry, int error))
{
	struct fi_cq_tagged_entry entry;

	for (int n = 0; n < 2; n++) {
		struct fid_cq *cq = n ? rig.peer_cq : rig.cq;
		struct fi_cq_err_entry failed = { 0 };
		ssize_t got = fi_cq_read(cq, &entry, 1);

		if (got == 1) {
			see(!n, &entry, 0);
		} else if (got == -FI_EAVAIL && fi_cq_readerr(cq, &failed, 0) == 1) {
			entry = (struct fi_cq_tagged_entry) { .op_context = failed.op_context, .flags = failed.flags };
			see(!n, &entry, failed.err);
		}
	}
}

struct fid_ep *open_ep(struct fi_info *info, struct fid_cq **cq)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .size = 64 };
	struct fid_ep *ep;

	require(fi_cq_open(rig.domain, &attr, cq, NULL), "fi_cq_open");
	require(fi_endpoint(rig.domain, info, &ep, NULL), "fi_endpoint");
	if (rig.type == FI_EP_RDM)
		require(fi_ep_bind(ep, &rig.av->fid, 0), "fi_ep_bind av");
	if (rig.type == FI_EP_MSG || rig.caps & FI_COLLECTIVE)
		require(fi_ep_bind(ep, &rig.eq->fid, 0), "fi_ep_bind eq");
	require(fi_ep_bind(ep, &(*cq)->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind cq");
	require(fi_enable(ep), "fi_enable");
	return ep;
}

static fi_addr_t insert(struct fid_ep *ep)
{
	char name[256];
	size_t len = sizeof name;
	fi_addr_t addr;

	require(fi_getname(&ep->fid, name, &len), "fi_getname");
	require(fi_av_insert(rig.av, name, 1, &addr, 0, NULL) != 1, "fi_av_insert");
	return addr;
}

/* The next event, which has to be this one. */
static struct fi_info *event(uint32_t wanted)
{
	struct fi_cq_tagged_entry entry;
	char room[512];
	struct fi_eq_cm_entry *cm = (void *)room;
	uint32_t event;
	ssize_t got;

	while ((got = fi_eq_read(rig.eq, &event, room, sizeof room, 0)) == -FI_EAGAIN) {
		if (rig.cq)
			fi_cq_read(rig.cq, &entry, 1);
		if (rig.peer_cq)
			fi_cq_read(rig.peer_cq, &entry, 1);
	}
	require(got < 0 || event != wanted, "event");
	return cm->info;
}

static void connect_pair(void)
{
	char name[256];
	size_t len = sizeof name;
	struct fi_info *request;

	require(fi_passive_ep(rig.fabric, rig.info, &rig.pep, NULL), "fi_passive_ep");
	require(fi_pep_bind(rig.pep, &rig.eq->fid, 0), "fi_pep_bind");
	require(fi_listen(rig.pep), "fi_listen");
	require(fi_getname(&rig.pep->fid, name, &len), "fi_getname");
	rig.ep = open_ep(rig.info, &rig.cq);
	require(fi_connect(rig.ep, name, NULL, 0), "fi_connect");
	request = event(FI_CONNREQ);
	rig.peer = open_ep(request, &rig.peer_cq);
	require(fi_accept(rig.peer, NULL, 0), "fi_accept");
	event(FI_CONNECTED);
	event(FI_CONNECTED);
	fi_freeinfo(request);
}

static unsigned seen;

static void count(bool ours, const struct fi_cq_tagged_entry *entry, int error)
{
	(void)ours;
	(void)entry;
	require(error, "the first message");
	seen++;
}

void open_pair(void)
{
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_NONE };
	static char first[8];
	ssize_t sent;

	open_domain();
	require(fi_eq_open(rig.fabric, &eq, &rig.eq, NULL), "fi_eq_open");
	if (rig.type == FI_EP_RDM) {
		rig.ep = open_ep(rig.info, &rig.cq);
		rig.peer = open_ep(rig.info, &rig.peer_cq);
		rig.to_ep = insert(rig.ep);
		rig.to_peer = insert(rig.peer);
	} else {
		connect_pair();
	}
	require(fi_mr_reg(rig.domain, target, sizeof target, FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ |
			  FI_REMOTE_WRITE, 0, 77, 0, &rig.mr, NULL), "fi_mr_reg");
	rig.key = fi_mr_key(rig.mr);
	rig.target = rig.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)target : 0;
	/* Messages both ways: then there is a connection. */
	require(fi_recv(rig.ep, first, sizeof first, NULL, FI_ADDR_UNSPEC, NULL), "fi_recv");
	require(fi_recv(rig.peer, first, sizeof first, NULL, FI_ADDR_UNSPEC, NULL), "fi_recv");
	while ((sent = fi_send(rig.ep, first, sizeof first, NULL, rig.to_peer, NULL)) == -FI_EAGAIN)
		pump(count);
	require(sent, "fi_send");
	while (seen < 2)
		pump(count);
	while ((sent = fi_send(rig.peer, first, sizeof first, NULL, rig.to_ep, NULL)) == -FI_EAGAIN)
		pump(count);
	require(sent, "fi_send");
	while (seen < 4)
		pump(count);
}

struct fi_info *usual_info(void)
{
	static struct fi_info info;
	static struct fi_tx_attr tx;
	static struct fi_rx_attr rx;
	static struct fi_ep_attr ep;
	static struct fi_domain_attr domain;
	static struct fi_fabric_attr fabric;

	info = *rig.info;
	tx = *rig.info->tx_attr;
	rx = *rig.info->rx_attr;
	ep = *rig.info->ep_attr;
	domain = *rig.info->domain_attr;
	fabric = *rig.info->fabric_attr;
	info.next = NULL;
	info.tx_attr = &tx;
	info.rx_attr = &rx;
	info.ep_attr = &ep;
	info.domain_attr = &domain;
	info.fabric_attr = &fabric;
	return &info;
}

long opened(long returned, struct fid **object)
{
	if (!returned && object && *object) {
		int closed = fi_close(*object);

		if (closed)
			remark(" fi_close %d", closed);
	} else if (!returned && object) {
		remark(" nothing");
	}
	return returned;
}
