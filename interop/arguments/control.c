/* The other calls: address vectors, queues, counters, options, names, binding, connections, wait and poll sets. */
#include "arguments.h"

#define ANY { { 0 } }

/* What the calls of this file need besides a pair: a queue and a counter that are waited for, sets, a fresh endpoint. */
static struct fid_cq *cq;
static struct fid_cntr *cntr;
static struct fid_eq *eq;
static struct fid_poll *poll_set;
static struct fid_ep *fresh;
static char name[256], room[1024];
static size_t name_len, len;
static fi_addr_t addrs[4];
static struct fi_context2 context;
static struct fid *fids[1], *alias;
static uint32_t event;

static void open_all(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC, .flags = FI_WRITE };
	struct fi_poll_attr poll_attr = { 0 };

	open_pair();
	require(fi_cq_open(rig.domain, &cq_attr, &cq, NULL), "fi_cq_open");
	require(fi_cntr_open(rig.domain, &cntr_attr, &cntr, NULL), "fi_cntr_open");
	require(fi_eq_open(rig.fabric, &eq_attr, &eq, NULL), "fi_eq_open");
	require(fi_poll_open(rig.domain, &poll_attr, &poll_set), "fi_poll_open");
	require(fi_endpoint(rig.domain, rig.info, &fresh, NULL), "fi_endpoint");
	name_len = sizeof name;
	require(fi_getname(&rig.peer->fid, name, &name_len), "fi_getname");
}

/* A call, its usual arguments and itself. */
#define CALL(id, expression, ...) \
	static void usual_##id(uint64_t *values) \
	{ \
		const uint64_t usual[] = { __VA_ARGS__ }; \
		len = sizeof room; \
		addrs[0] = rig.type == FI_EP_RDM ? rig.to_peer : 0; \
		memcpy(values, usual, sizeof usual); \
	} \
	static long make_##id(const uint64_t *values) \
	{ \
		(void)values; \
		return (long)(expression); \
	}

static const struct bit insert_bits[] = { { "FI_MORE", FI_MORE }, { "FI_SYNC_ERR", FI_SYNC_ERR },
	{ "FI_AV_USER_ID", FI_AV_USER_ID }, { 0 } };
static const struct bit bind_bits[] = { { "FI_TRANSMIT", FI_TRANSMIT }, { "FI_RECV", FI_RECV }, { "FI_READ", FI_READ },
	{ "FI_WRITE", FI_WRITE }, { "FI_REMOTE_READ", FI_REMOTE_READ }, { "FI_REMOTE_WRITE", FI_REMOTE_WRITE },
	{ "FI_SELECTIVE_COMPLETION", FI_SELECTIVE_COMPLETION }, { 0 } };
static const struct bit peek_bits[] = { { "FI_PEEK", FI_PEEK }, { 0 } };

/* Text that is returned is there or not. */
static long there(const void *text)
{
	return text != NULL;
}

CALL(insert, fi_av_insert(rig.av, PTR(0), values[1], PTR(2), values[3], PTR(4)), VALUE(name), 1, VALUE(addrs), 0, VALUE(&context))
CALL(insertsvc, fi_av_insertsvc(rig.av, PTR(0), PTR(1), PTR(2), values[3], PTR(4)), VALUE("127.0.0.1"), VALUE("12345"),
     VALUE(addrs), 0, VALUE(&context))
CALL(insertsym, fi_av_insertsym(rig.av, PTR(0), values[1], PTR(2), values[3], PTR(4), values[5], PTR(6)),
     VALUE("127.0.0.1"), 1, VALUE("12345"), 2, VALUE(addrs), 0, VALUE(&context))
CALL(remove, fi_av_remove(rig.av, PTR(0), values[1], values[2]), VALUE(addrs), 1, 0)
CALL(lookup, fi_av_lookup(rig.av, values[0], PTR(1), PTR(2)), addrs[0], VALUE(room), VALUE(&len))
CALL(straddr, there(fi_av_straddr(rig.av, PTR(0), PTR(1), PTR(2))), VALUE(name), VALUE(room), VALUE(&len))

CALL(cq_read, fi_cq_read(cq, PTR(0), values[1]), VALUE(room), 1)
CALL(cq_readfrom, fi_cq_readfrom(cq, PTR(0), values[1], PTR(2)), VALUE(room), 1, VALUE(addrs))
CALL(cq_readerr, fi_cq_readerr(cq, PTR(0), values[1]), VALUE(room), 0)
CALL(cq_sread, fi_cq_sread(cq, PTR(0), values[1], PTR(2), 0), VALUE(room), 1, VALUE(&len))
CALL(cq_sreadfrom, fi_cq_sreadfrom(cq, PTR(0), values[1], PTR(2), PTR(3), 0), VALUE(room), 1, VALUE(addrs), VALUE(&len))
CALL(cq_signal, fi_cq_signal(cq), 0)
CALL(cq_strerror, there(fi_cq_strerror(cq, (int)values[0], PTR(1), PTR(2), values[3])), FI_EINVAL, VALUE(addrs), VALUE(room),
     sizeof room)

CALL(eq_read, fi_eq_read(eq, PTR(0), PTR(1), values[2], values[3]), VALUE(&event), VALUE(room), sizeof room, 0)
CALL(eq_readerr, fi_eq_readerr(eq, PTR(0), values[1]), VALUE(room), 0)
CALL(eq_write, fi_eq_write(eq, (uint32_t)values[0], PTR(1), values[2], values[3]), FI_NOTIFY, VALUE(room),
     sizeof(struct fi_eq_entry), 0)
CALL(eq_sread, fi_eq_sread(eq, PTR(0), PTR(1), values[2], 0, values[3]), VALUE(&event), VALUE(room), sizeof room, 0)
CALL(eq_strerror, there(fi_eq_strerror(eq, (int)values[0], PTR(1), PTR(2), values[3])), FI_EINVAL, VALUE(addrs), VALUE(room),
     sizeof room)

CALL(cntr_read, fi_cntr_read(cntr), 0)
CALL(cntr_readerr, fi_cntr_readerr(cntr), 0)
CALL(cntr_add, fi_cntr_add(cntr, values[0]), 1)
CALL(cntr_adderr, fi_cntr_adderr(cntr, values[0]), 1)
CALL(cntr_set, fi_cntr_set(cntr, values[0]), 1)
CALL(cntr_seterr, fi_cntr_seterr(cntr, values[0]), 1)
CALL(cntr_wait, fi_cntr_wait(cntr, values[0], 0), 0)

CALL(getopt, fi_getopt(&rig.ep->fid, (int)values[0], (int)values[1], PTR(2), PTR(3)), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
     VALUE(room), VALUE(&len))
CALL(setopt, fi_setopt(&rig.ep->fid, (int)values[0], (int)values[1], PTR(2), values[3]), FI_OPT_ENDPOINT,
     FI_OPT_MIN_MULTI_RECV, VALUE(&len), sizeof len)
CALL(getname, fi_getname(&rig.ep->fid, PTR(0), PTR(1)), VALUE(room), VALUE(&len))
CALL(setname, fi_setname(&fresh->fid, PTR(0), values[1]), VALUE(name), name_len)
CALL(getpeer, fi_getpeer(rig.ep, PTR(0), PTR(1)), VALUE(room), VALUE(&len))
CALL(connect, fi_connect(fresh, PTR(0), PTR(1), values[2]), VALUE(name), VALUE(room), 4)
CALL(accept, fi_accept(fresh, PTR(0), values[1]), VALUE(room), 4)
CALL(shutdown, fi_shutdown(rig.ep, values[0]), 0)

CALL(bind_cq, fi_ep_bind(fresh, PTR(0), values[1]), VALUE(&cq->fid), FI_TRANSMIT | FI_RECV)
CALL(bind_cntr, fi_ep_bind(fresh, PTR(0), values[1]), VALUE(&cntr->fid), FI_TRANSMIT | FI_RECV)
CALL(bind_av, fi_ep_bind(fresh, PTR(0), values[1]), VALUE(&rig.av->fid), 0)
CALL(bind_eq, fi_ep_bind(fresh, PTR(0), values[1]), VALUE(&eq->fid), 0)
CALL(enable, fi_enable(fresh), 0)
CALL(cancel, fi_cancel(&rig.ep->fid, PTR(0)), VALUE(&context))
CALL(alias, fi_alias(&rig.ep->fid, PTR(0), values[1]), VALUE(&alias), FI_TRANSMIT)
CALL(control_ep, fi_control(&rig.ep->fid, (int)values[0], NULL), FI_ENABLE)
CALL(control_cq, fi_control(&cq->fid, (int)values[0], NULL), FI_GETWAIT)
CALL(control_eq, fi_control(&eq->fid, (int)values[0], NULL), FI_GETWAIT)
CALL(control_cntr, fi_control(&cntr->fid, (int)values[0], NULL), FI_GETWAIT)
CALL(control_domain, fi_control(&rig.domain->fid, (int)values[0], NULL), FI_FLUSH_WORK)
CALL(control_mr, fi_control(&rig.mr->fid, (int)values[0], NULL), FI_ENABLE)
CALL(domain_bind, fi_domain_bind(rig.domain, PTR(0), values[1]), VALUE(&eq->fid), 0)
CALL(av_bind, fi_av_bind(rig.av, PTR(0), values[1]), VALUE(&eq->fid), 0)
CALL(mr_bind, fi_mr_bind(rig.mr, PTR(0), values[1]), VALUE(&cntr->fid), FI_REMOTE_WRITE)

CALL(poll_add, fi_poll_add(poll_set, PTR(0), values[1]), VALUE(&cq->fid), 0)
CALL(poll_del, fi_poll_del(poll_set, PTR(0), values[1]), VALUE(&cq->fid), 0)
CALL(poll, fi_poll(poll_set, PTR(0), (int)values[1]), VALUE(room), 4)
CALL(trywait, fi_trywait(rig.fabric, PTR(0), (int)values[1]), VALUE(fids), 0)

CALL(atomicvalid, fi_atomicvalid(rig.ep, (enum fi_datatype)values[0], (enum fi_op)values[1], PTR(2)), FI_UINT64, FI_SUM,
     VALUE(&len))
CALL(fetchvalid, fi_fetch_atomicvalid(rig.ep, (enum fi_datatype)values[0], (enum fi_op)values[1], PTR(2)), FI_UINT64, FI_SUM,
     VALUE(&len))
CALL(comparevalid, fi_compare_atomicvalid(rig.ep, (enum fi_datatype)values[0], (enum fi_op)values[1], PTR(2)), FI_UINT64,
     FI_CSWAP, VALUE(&len))
CALL(query, fi_query_atomic(rig.domain, (enum fi_datatype)values[0], (enum fi_op)values[1], PTR(2), values[3]), FI_UINT64,
     FI_SUM, VALUE(room), 0)
CALL(open_ops, fi_open_ops(&rig.domain->fid, PTR(0), values[1], PTR(2), PTR(3)), VALUE("no such operations"), 0, VALUE(room),
     VALUE(&context))
CALL(tostr, there(fi_tostr(PTR(0), (enum fi_type)values[1])), VALUE(room), FI_TYPE_VERSION)
CALL(strerror, there(fi_strerror((int)values[0])), FI_EINVAL)

#define T(id) usual_##id, make_##id
#define P_TYPES P_CHOICE(0, "datatype", FI_UINT128), P_CHOICE(1, "op", FI_MSWAP)
#define P_STRERROR P_NUMBER(0, "prov_errno"), P_POINTER(1, "err_data"), P_POINTER(2, "buf"), P_NUMBER(3, "len")

static const struct call control_calls[] = {
	{ "fi_av_insert", { P_POINTER(0, "addr"), P_NUMBER(1, "count"), P_POINTER(2, "fi_addr"), P_FLAGS(3, "flags", insert_bits),
			    P_POINTER(4, "context") }, T(insert) },
	{ "fi_av_insertsvc", { P_POINTER(0, "node"), P_POINTER(1, "service"), P_POINTER(2, "fi_addr"),
			       P_FLAGS(3, "flags", insert_bits), P_POINTER(4, "context") }, T(insertsvc) },
	{ "fi_av_insertsym", { P_POINTER(0, "node"), P_NUMBER(1, "nodecnt"), P_POINTER(2, "service"), P_NUMBER(3, "svccnt"),
			       P_POINTER(4, "fi_addr"), P_FLAGS(5, "flags", insert_bits), P_POINTER(6, "context") },
	  T(insertsym) },
	{ "fi_av_remove", { P_POINTER(0, "fi_addr"), P_NUMBER(1, "count"), P_FLAGS(2, "flags", none_bits) }, T(remove) },
	{ "fi_av_lookup", { P_NUMBER(0, "fi_addr"), P_POINTER(1, "addr"), P_POINTER(2, "addrlen") }, T(lookup) },
	{ "fi_av_straddr", { P_POINTER(0, "addr"), P_POINTER(1, "buf"), P_POINTER(2, "len") }, T(straddr) },
	{ "fi_cq_read", { P_POINTER(0, "buf"), P_NUMBER(1, "count") }, T(cq_read) },
	{ "fi_cq_readfrom", { P_POINTER(0, "buf"), P_NUMBER(1, "count"), P_POINTER(2, "src_addr") }, T(cq_readfrom) },
	{ "fi_cq_readerr", { P_POINTER(0, "buf"), P_FLAGS(1, "flags", none_bits) }, T(cq_readerr) },
	{ "fi_cq_sread", { P_POINTER(0, "buf"), P_NUMBER(1, "count"), P_POINTER(2, "cond") }, T(cq_sread) },
	{ "fi_cq_sreadfrom", { P_POINTER(0, "buf"), P_NUMBER(1, "count"), P_POINTER(2, "src_addr"), P_POINTER(3, "cond") },
	  T(cq_sreadfrom) },
	{ "fi_cq_signal", ANY, T(cq_signal) },
	{ "fi_cq_strerror", { P_STRERROR }, T(cq_strerror) },
	{ "fi_eq_read", { P_POINTER(0, "event"), P_POINTER(1, "buf"), P_NUMBER(2, "len"), P_FLAGS(3, "flags", peek_bits) },
	  T(eq_read) },
	{ "fi_eq_readerr", { P_POINTER(0, "buf"), P_FLAGS(1, "flags", peek_bits) }, T(eq_readerr) },
	{ "fi_eq_write", { P_CHOICE(0, "event", FI_JOIN_COMPLETE), P_POINTER(1, "buf"), P_NUMBER(2, "len"),
			   P_FLAGS(3, "flags", none_bits) }, T(eq_write) },
	{ "fi_eq_sread", { P_POINTER(0, "event"), P_POINTER(1, "buf"), P_NUMBER(2, "len"), P_FLAGS(3, "flags", peek_bits) },
	  T(eq_sread) },
	{ "fi_eq_strerror", { P_STRERROR }, T(eq_strerror) },
	{ "fi_cntr_read", ANY, T(cntr_read) },
	{ "fi_cntr_readerr", ANY, T(cntr_readerr) },
	{ "fi_cntr_add", { P_NUMBER(0, "value") }, T(cntr_add) },
	{ "fi_cntr_adderr", { P_NUMBER(0, "value") }, T(cntr_adderr) },
	{ "fi_cntr_set", { P_NUMBER(0, "value") }, T(cntr_set) },
	{ "fi_cntr_seterr", { P_NUMBER(0, "value") }, T(cntr_seterr) },
	{ "fi_cntr_wait", { P_NUMBER(0, "threshold") }, T(cntr_wait) },
	{ "fi_getopt", { P_NUMBER(0, "level"), P_CHOICE(1, "optname", FI_OPT_XPU_TRIGGER), P_POINTER(2, "optval"),
			 P_POINTER(3, "optlen") }, T(getopt) },
	{ "fi_setopt", { P_NUMBER(0, "level"), P_CHOICE(1, "optname", FI_OPT_XPU_TRIGGER), P_POINTER(2, "optval"),
			 P_NUMBER(3, "optlen") }, T(setopt) },
	{ "fi_getname", { P_POINTER(0, "addr"), P_POINTER(1, "addrlen") }, T(getname) },
	{ "fi_setname", { P_POINTER(0, "addr"), P_NUMBER(1, "addrlen") }, T(setname) },
	{ "fi_getpeer", { P_POINTER(0, "addr"), P_POINTER(1, "addrlen") }, T(getpeer) },
	{ "fi_connect", { P_POINTER(0, "addr"), P_POINTER(1, "param"), P_NUMBER(2, "paramlen") }, T(connect) },
	{ "fi_accept", { P_POINTER(0, "param"), P_NUMBER(1, "paramlen") }, T(accept) },
	{ "fi_shutdown", { P_FLAGS(0, "flags", none_bits) }, T(shutdown) },
	{ "fi_ep_bind cq", { P_POINTER(0, "fid"), P_FLAGS(1, "flags", bind_bits) }, T(bind_cq) },
	{ "fi_ep_bind cntr", { P_POINTER(0, "fid"), P_FLAGS(1, "flags", bind_bits) }, T(bind_cntr) },
	{ "fi_ep_bind av", { P_POINTER(0, "fid"), P_FLAGS(1, "flags", none_bits) }, T(bind_av) },
	{ "fi_ep_bind eq", { P_POINTER(0, "fid"), P_FLAGS(1, "flags", none_bits) }, T(bind_eq) },
	{ "fi_enable", ANY, T(enable) },
	{ "fi_cancel", { P_POINTER(0, "context") }, T(cancel) },
	{ "fi_alias", { P_POINTER(0, "alias"), P_FLAGS(1, "flags", bind_bits) }, T(alias) },
	{ "fi_control ep", { P_CHOICE(0, "command", FI_EXPORT_FID) }, T(control_ep) },
	{ "fi_control cq", { P_CHOICE(0, "command", FI_EXPORT_FID) }, T(control_cq) },
	{ "fi_control eq", { P_CHOICE(0, "command", FI_EXPORT_FID) }, T(control_eq) },
	{ "fi_control cntr", { P_CHOICE(0, "command", FI_EXPORT_FID) }, T(control_cntr) },
	{ "fi_control domain", { P_CHOICE(0, "command", FI_EXPORT_FID) }, T(control_domain) },
	{ "fi_control mr", { P_CHOICE(0, "command", FI_EXPORT_FID) }, T(control_mr) },
	{ "fi_domain_bind", { P_POINTER(0, "fid"), P_FLAGS(1, "flags", none_bits) }, T(domain_bind) },
	{ "fi_av_bind", { P_POINTER(0, "fid"), P_FLAGS(1, "flags", none_bits) }, T(av_bind) },
	{ "fi_mr_bind", { P_POINTER(0, "fid"), P_FLAGS(1, "flags", bind_bits) }, T(mr_bind) },
	{ "fi_poll_add", { P_POINTER(0, "fid"), P_FLAGS(1, "flags", none_bits) }, T(poll_add) },
	{ "fi_poll_del", { P_POINTER(0, "fid"), P_FLAGS(1, "flags", none_bits) }, T(poll_del) },
	{ "fi_poll", { P_POINTER(0, "context"), P_NUMBER(1, "count") }, T(poll) },
	{ "fi_trywait", { P_POINTER(0, "fids"), P_NUMBER(1, "count") }, T(trywait) },
	{ "fi_atomicvalid", { P_TYPES, P_POINTER(2, "count") }, T(atomicvalid) },
	{ "fi_fetch_atomicvalid", { P_TYPES, P_POINTER(2, "count") }, T(fetchvalid) },
	{ "fi_compare_atomicvalid", { P_TYPES, P_POINTER(2, "count") }, T(comparevalid) },
	{ "fi_query_atomic", { P_TYPES, P_POINTER(2, "attr"), P_FLAGS(3, "flags", none_bits) }, T(query) },
	{ "fi_open_ops", { P_POINTER(0, "name"), P_FLAGS(1, "flags", none_bits), P_POINTER(2, "ops"), P_POINTER(3, "context") },
	  T(open_ops) },
	{ "fi_tostr", { P_POINTER(0, "data"), P_CHOICE(1, "datatype", 64) }, T(tostr) },
	{ "fi_strerror", { P_NUMBER(0, "errnum") }, T(strerror) },
	{ 0 } };

const struct group control_group = { "control", open_all, control_calls, true };
