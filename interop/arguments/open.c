/* fi_getinfo, and the calls that open objects. */
#include "arguments.h"

/* Where calls put what they open, and its context. */
static struct fid *object;
static char context[64];

/* fi_getinfo(3) */

static void usual_getinfo(uint64_t *values)
{
	static struct fi_info hints, *found;
	static struct fi_tx_attr tx;
	static struct fi_rx_attr rx;
	static struct fi_ep_attr ep;
	static struct fi_domain_attr domain;
	static struct fi_fabric_attr fabric;

	hints = (struct fi_info) { .mode = FI_CONTEXT | FI_CONTEXT2, .tx_attr = &tx, .rx_attr = &rx, .ep_attr = &ep,
				   .domain_attr = &domain, .fabric_attr = &fabric };
	tx = (struct fi_tx_attr) { 0 };
	rx = (struct fi_rx_attr) { 0 };
	ep = (struct fi_ep_attr) { .type = rig.type };
	domain = (struct fi_domain_attr) { .name = rig.info->domain_attr->name,
		.mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM };
	fabric = (struct fi_fabric_attr) { .name = rig.info->fabric_attr->name, .prov_name = (char *)rig.provider };
	found = NULL;
	values[0] = FI_VERSION(1, 17);
	values[1] = VALUE(strcmp(rig.provider, "shm") ? "127.0.0.1" : "fi_shm://arguments");
	values[2] = VALUE("12345");
	values[3] = FI_SOURCE;
	values[4] = VALUE(&hints);
	values[5] = VALUE(&found);
}

static long make_getinfo(const uint64_t *values)
{
	struct fi_info **found = PTR(5);
	long returned = fi_getinfo((uint32_t)values[0], PTR(1), PTR(2), values[3], PTR(4), found);

	if (!returned && found)
		fi_freeinfo(*found);
	return returned;
}

static const struct call getinfo_calls[] = {
	{ "fi_getinfo",
	  { P_NUMBER(0, "version"), P_POINTER(1, "node"), P_POINTER(2, "service"), P_FLAGS(3, "flags", getinfo_bits),
	    P_STRUCT(4, "hints", info_fields), P_POINTER(5, "info") },
	  usual_getinfo, make_getinfo },
	{ 0 } };

const struct group getinfo_group = { "getinfo", open_nothing, getinfo_calls, false };

/* fi_fabric(3), fi_domain(3), fi_passive_ep(3) */

static void usual_fabric(uint64_t *values)
{
	values[0] = VALUE(usual_info()->fabric_attr);
	values[1] = VALUE(&object);
	values[2] = VALUE(context);
	object = NULL;
}

static long make_fabric(const uint64_t *values)
{
	return opened(fi_fabric(PTR(0), PTR(1), PTR(2)), PTR(1));
}

static void usual_of_info(uint64_t *values)
{
	values[0] = VALUE(usual_info());
	values[1] = VALUE(&object);
	values[2] = VALUE(context);
	values[3] = 0;
	object = NULL;
}

static long make_domain(const uint64_t *values)
{
	return opened(fi_domain(rig.fabric, PTR(0), PTR(1), PTR(2)), PTR(1));
}

static long make_domain2(const uint64_t *values)
{
	return opened(fi_domain2(rig.fabric, PTR(0), PTR(1), values[3], PTR(2)), PTR(1));
}

static long make_passive_ep(const uint64_t *values)
{
	return opened(fi_passive_ep(rig.fabric, PTR(0), PTR(1), PTR(2)), PTR(1));
}

static long make_endpoint(const uint64_t *values)
{
	return opened(fi_endpoint(rig.domain, PTR(0), PTR(1), PTR(2)), PTR(1));
}

static long make_endpoint2(const uint64_t *values)
{
	return opened(fi_endpoint2(rig.domain, PTR(0), PTR(1), values[3], PTR(2)), PTR(1));
}

static long make_scalable_ep(const uint64_t *values)
{
	return opened(fi_scalable_ep(rig.domain, PTR(0), PTR(1), PTR(2)), PTR(1));
}

/* Calls with an attribute, a place for the object and its context. */
#define OPENS(name, type, call, ...) \
	static void usual_##name(uint64_t *values) \
	{ \
		static type attr; \
		attr = (type) { __VA_ARGS__ }; \
		values[0] = VALUE(&attr); \
		values[1] = VALUE(&object); \
		values[2] = VALUE(context); \
		object = NULL; \
	} \
	static long make_##name(const uint64_t *values) \
	{ \
		return opened(call, PTR(1)); \
	}

OPENS(eq, struct fi_eq_attr, fi_eq_open(rig.fabric, PTR(0), PTR(1), PTR(2)), .wait_obj = FI_WAIT_FD)
OPENS(wait, struct fi_wait_attr, fi_wait_open(rig.fabric, PTR(0), PTR(1)), .wait_obj = FI_WAIT_UNSPEC)
OPENS(poll, struct fi_poll_attr, fi_poll_open(rig.domain, PTR(0), PTR(1)), .flags = 0)
OPENS(av, struct fi_av_attr, fi_av_open(rig.domain, PTR(0), PTR(1), PTR(2)), .type = FI_AV_TABLE, .count = 16)
OPENS(cq, struct fi_cq_attr, fi_cq_open(rig.domain, PTR(0), PTR(1), PTR(2)), .size = 16, .format = FI_CQ_FORMAT_TAGGED)
OPENS(cntr, struct fi_cntr_attr, fi_cntr_open(rig.domain, PTR(0), PTR(1), PTR(2)), .events = FI_CNTR_EVENTS_COMP)
OPENS(av_set, struct fi_av_set_attr, fi_av_set(rig.av, PTR(0), PTR(1), PTR(2)), .start_addr = FI_ADDR_NOTAVAIL,
      .end_addr = FI_ADDR_NOTAVAIL, .stride = 1)

static void usual_stx(uint64_t *values)
{
	usual_of_info(values);
	values[0] = VALUE(usual_info()->tx_attr);
}

static long make_stx(const uint64_t *values)
{
	return opened(fi_stx_context(rig.domain, PTR(0), PTR(1), PTR(2)), PTR(1));
}

static void usual_srx(uint64_t *values)
{
	usual_of_info(values);
	values[0] = VALUE(usual_info()->rx_attr);
}

static long make_srx(const uint64_t *values)
{
	return opened(fi_srx_context(rig.domain, PTR(0), PTR(1), PTR(2)), PTR(1));
}

/* fi_mr(3) */

static char memory[4096];
static struct iovec piece;

static void usual_reg(uint64_t *values)
{
	values[0] = VALUE(memory);
	values[1] = sizeof memory;
	values[2] = FI_REMOTE_READ | FI_REMOTE_WRITE;
	values[3] = 0;
	values[4] = 77;
	values[5] = 0;
	values[6] = VALUE(&object);
	values[7] = VALUE(context);
	object = NULL;
}

static long make_reg(const uint64_t *values)
{
	return opened(fi_mr_reg(rig.domain, PTR(0), values[1], values[2], values[3], values[4], values[5], PTR(6), PTR(7)),
		      PTR(6));
}

static void usual_regv(uint64_t *values)
{
	usual_reg(values);
	piece = (struct iovec) { memory, sizeof memory };
	values[0] = VALUE(&piece);
	values[1] = 1;
}

static long make_regv(const uint64_t *values)
{
	return opened(fi_mr_regv(rig.domain, PTR(0), values[1], values[2], values[3], values[4], values[5], PTR(6), PTR(7)),
		      PTR(6));
}

static void usual_regattr(uint64_t *values)
{
	static struct fi_mr_attr attr;

	piece = (struct iovec) { memory, sizeof memory };
	attr = (struct fi_mr_attr) { .mr_iov = &piece, .iov_count = 1, .access = FI_REMOTE_READ | FI_REMOTE_WRITE,
				     .requested_key = 77, .context = context };
	values[0] = VALUE(&attr);
	values[1] = 0;
	values[2] = VALUE(&object);
	object = NULL;
}

static long make_regattr(const uint64_t *values)
{
	return opened(fi_mr_regattr(rig.domain, PTR(0), values[1], PTR(2)), PTR(2));
}

static const struct bit open_bits[] = { { "FI_PEER", FI_PEER }, { 0 } };
static const struct bit reg_bits[] = {
	{ "FI_RMA_EVENT", FI_RMA_EVENT }, { "FI_RMA_PMEM", FI_RMA_PMEM }, { "FI_HMEM_DEVICE_ONLY", FI_HMEM_DEVICE_ONLY },
	{ "FI_HMEM_HOST_ALLOC", FI_HMEM_HOST_ALLOC }, { 0 } };

#define OPENED P_POINTER(1, "object"), P_POINTER(2, "context")

static const struct call open_calls[] = {
	{ "fi_fabric", { P_STRUCT(0, "attr", fabric_fields), OPENED }, usual_fabric, make_fabric },
	{ "fi_domain", { P_STRUCT(0, "info", info_fields), OPENED }, usual_of_info, make_domain },
	{ "fi_domain2", { P_FLAGS(3, "flags", open_bits) }, usual_of_info, make_domain2 },
	{ "fi_passive_ep", { P_STRUCT(0, "info", info_fields), OPENED }, usual_of_info, make_passive_ep },
	{ "fi_endpoint", { P_STRUCT(0, "info", info_fields), OPENED }, usual_of_info, make_endpoint },
	{ "fi_endpoint2", { P_FLAGS(3, "flags", open_bits) }, usual_of_info, make_endpoint2 },
	{ "fi_scalable_ep", { P_STRUCT(0, "info", info_fields), OPENED }, usual_of_info, make_scalable_ep },
	{ "fi_eq_open", { P_STRUCT(0, "attr", eq_fields), OPENED }, usual_eq, make_eq },
	{ "fi_wait_open", { P_STRUCT(0, "attr", wait_fields), P_POINTER(1, "object") }, usual_wait, make_wait },
	{ "fi_poll_open", { P_STRUCT(0, "attr", poll_fields), P_POINTER(1, "object") }, usual_poll, make_poll },
	{ "fi_av_open", { P_STRUCT(0, "attr", av_fields), OPENED }, usual_av, make_av },
	{ "fi_cq_open", { P_STRUCT(0, "attr", cq_fields), OPENED }, usual_cq, make_cq },
	{ "fi_cntr_open", { P_STRUCT(0, "attr", cntr_fields), OPENED }, usual_cntr, make_cntr },
	{ "fi_av_set", { P_STRUCT(0, "attr", av_set_fields), OPENED }, usual_av_set, make_av_set },
	{ "fi_stx_context", { P_STRUCT(0, "attr", tx_fields), OPENED }, usual_stx, make_stx },
	{ "fi_srx_context", { P_STRUCT(0, "attr", rx_fields), OPENED }, usual_srx, make_srx },
	{ "fi_mr_reg",
	  { P_POINTER(0, "buf"), P_NUMBER(1, "len"), P_FLAGS(2, "access", access_bits), P_NUMBER(3, "offset"),
	    P_NUMBER(4, "requested_key"), P_FLAGS(5, "flags", reg_bits), P_POINTER(6, "mr"), P_POINTER(7, "context") },
	  usual_reg, make_reg },
	{ "fi_mr_regv",
	  { P_STRUCT(0, "iov", iovec_fields), P_NUMBER(1, "count"), P_FLAGS(2, "access", access_bits), P_NUMBER(3, "offset"),
	    P_NUMBER(4, "requested_key"), P_FLAGS(5, "flags", reg_bits), P_POINTER(6, "mr"), P_POINTER(7, "context") },
	  usual_regv, make_regv },
	{ "fi_mr_regattr",
	  { P_STRUCT(0, "attr", mr_fields), P_FLAGS(1, "flags", reg_bits), P_POINTER(2, "mr") },
	  usual_regattr, make_regattr },
	{ 0 } };

const struct group open_group = { "open", open_domain, open_calls, false };
