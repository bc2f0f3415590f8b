/* Contexts of scalable endpoints, fi_control(3) of every object with an argument, and waiting for sets: fi_poll(3). */
#include "arguments.h"

/* An object of each kind; NULL if the library has none on this provider. */
static struct fid_cq *cq;
static struct fid_cntr *cntr;
static struct fid_eq *eq;
static struct fid_wait *wait_set;
static struct fid_poll *poll_set;
static struct fid_ep *ep, *sep, *srx;
static struct fid_stx *stx;
static struct fid_pep *pep;
static struct fid *object, *fids[1];
static char context[64], room[4096] __attribute__((aligned(64)));

static void open_objects(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_wait_attr wait_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_poll_attr poll_attr = { 0 };

	open_pair();
	require(fi_cq_open(rig.domain, &cq_attr, &cq, NULL), "fi_cq_open");
	require(fi_cntr_open(rig.domain, &cntr_attr, &cntr, NULL), "fi_cntr_open");
	require(fi_eq_open(rig.fabric, &eq_attr, &eq, NULL), "fi_eq_open");
	require(fi_endpoint(rig.domain, rig.info, &ep, NULL), "fi_endpoint");
	/* What not every provider has. */
	if (fi_wait_open(rig.fabric, &wait_attr, &wait_set))
		wait_set = NULL;
	if (fi_poll_open(rig.domain, &poll_attr, &poll_set))
		poll_set = NULL;
	if (fi_scalable_ep(rig.domain, rig.info, &sep, NULL))
		sep = NULL;
	if (fi_stx_context(rig.domain, rig.info->tx_attr, &stx, NULL))
		stx = NULL;
	if (fi_srx_context(rig.domain, rig.info->rx_attr, &srx, NULL))
		srx = NULL;
	if (fi_passive_ep(rig.fabric, rig.info, &pep, NULL))
		pep = NULL;
}

/* Contexts of a scalable endpoint: index, attributes, place, context. */

static void usual_tx(uint64_t *values)
{
	values[0] = 0;
	values[1] = VALUE(usual_info()->tx_attr);
	values[2] = VALUE(&object);
	values[3] = VALUE(context);
	object = NULL;
}

static void usual_rx(uint64_t *values)
{
	usual_tx(values);
	values[1] = VALUE(usual_info()->rx_attr);
}

static long make_tx(const uint64_t *values)
{
	return sep ? opened(fi_tx_context(sep, (int)values[0], PTR(1), PTR(2), PTR(3)), PTR(2)) : -FI_ENOSYS;
}

static long make_rx(const uint64_t *values)
{
	return sep ? opened(fi_rx_context(sep, (int)values[0], PTR(1), PTR(2), PTR(3)), PTR(2)) : -FI_ENOSYS;
}

/* An endpoint that is not scalable has none. */
static long make_tx_of_ep(const uint64_t *values)
{
	return opened(fi_tx_context(ep, (int)values[0], PTR(1), PTR(2), PTR(3)), PTR(2));
}

static long make_rx_of_ep(const uint64_t *values)
{
	return opened(fi_rx_context(ep, (int)values[0], PTR(1), PTR(2), PTR(3)), PTR(2));
}

static const struct bit bind_bits[] = { { "FI_TRANSMIT", FI_TRANSMIT }, { "FI_RECV", FI_RECV }, { "FI_READ", FI_READ },
	{ "FI_WRITE", FI_WRITE }, { "FI_SELECTIVE_COMPLETION", FI_SELECTIVE_COMPLETION }, { 0 } };

static void usual_bind(uint64_t *values)
{
	values[0] = VALUE(&rig.av->fid);
	values[1] = 0;
}

static long make_bind(const uint64_t *values)
{
	return sep ? fi_scalable_ep_bind(sep, PTR(0), values[1]) : -FI_ENOSYS;
}

static void usual_bind_tx(uint64_t *values)
{
	values[0] = VALUE(&cq->fid);
	values[1] = FI_TRANSMIT;
}

static long make_bind_tx(const uint64_t *values)
{
	struct fid_ep *tx;
	long returned;

	if (!sep)
		return -FI_ENOSYS;
	require(fi_tx_context(sep, 0, NULL, &tx, NULL), "fi_tx_context");
	returned = fi_ep_bind(tx, PTR(0), values[1]);
	opened(0, (struct fid *[]) { &tx->fid });
	return returned;
}

/* Commands: one, and its argument. Zeroes are an argument of some kind for all of them. */

static void usual_control(uint64_t *values)
{
	memset(room, 0, sizeof room);
	values[0] = FI_GETWAIT;
	values[1] = VALUE(room);
}

#define CONTROL(name, object) \
	static long make_control_##name(const uint64_t *values) \
	{ \
		return (object) ? fi_control(&(object)->fid, (int)values[0], PTR(1)) : -FI_ENOSYS; \
	}

CONTROL(fabric, rig.fabric)
CONTROL(domain, rig.domain)
CONTROL(av, rig.av)
CONTROL(eq, eq)
CONTROL(cq, cq)
CONTROL(cntr, cntr)
CONTROL(ep, ep)
CONTROL(used, rig.ep)
CONTROL(sep, sep)
CONTROL(srx, srx)
CONTROL(stx, stx)
CONTROL(pep, pep)
CONTROL(mr, rig.mr)
CONTROL(wait, wait_set)
CONTROL(poll, poll_set)

/* The argument of FI_ALIAS, of the flags of operations, and a backlog. */

static struct fi_alias alias;

static void usual_alias(uint64_t *values)
{
	object = NULL;
	alias = (struct fi_alias) { .fid = &object, .flags = FI_TRANSMIT };
	values[0] = VALUE(&alias);
}

static long make_alias(const uint64_t *values)
{
	return opened(fi_control(&rig.ep->fid, FI_ALIAS, PTR(0)), &object);
}

static const struct field alias_fields[] = {
	F_POINTER(struct fi_alias, fid), F_FLAGS(struct fi_alias, flags, bind_bits), { 0 } };
static const struct field operation_fields[] = {
	{ "value", .size = 8, .kind = FLAGS, .facts = operation_bits }, { 0 } };
static uint64_t word;

static void usual_flags(uint64_t *values)
{
	word = FI_TRANSMIT;
	values[0] = VALUE(&word);
}

static long make_get_flags(const uint64_t *values)
{
	return fi_control(&rig.ep->fid, FI_GETOPSFLAG, PTR(0));
}

static long make_set_flags(const uint64_t *values)
{
	return fi_control(&rig.ep->fid, FI_SETOPSFLAG, PTR(0));
}

static void usual_backlog(uint64_t *values)
{
	word = 4;
	values[0] = VALUE(&word);
}

static long make_backlog(const uint64_t *values)
{
	return pep ? fi_control(&pep->fid, FI_BACKLOG, PTR(0)) : -FI_ENOSYS;
}

/* Objects that can be waited for: where they stand, and how many. */

static void usual_trywait(uint64_t *values)
{
	values[0] = VALUE(fids);
	values[1] = 1;
}

#define TRYWAIT(name, object) \
	static long make_trywait_##name(const uint64_t *values) \
	{ \
		if (!(object)) \
			return -FI_ENOSYS; \
		fids[0] = &(object)->fid; \
		return fi_trywait(rig.fabric, PTR(0), (int)values[1]); \
	}

TRYWAIT(cq, cq)
TRYWAIT(eq, eq)
TRYWAIT(cntr, cntr)
TRYWAIT(wait, wait_set)
TRYWAIT(poll, poll_set)
TRYWAIT(ep, ep)

static long make_trywait_null(const uint64_t *values)
{
	fids[0] = NULL;
	return fi_trywait(rig.fabric, PTR(0), (int)values[1]);
}

static void usual_wait(uint64_t *values)
{
	(void)values;
}

/* Nothing comes: a call ends by its time. */
static long make_wait_0(const uint64_t *values)
{
	(void)values;
	return wait_set ? fi_wait(wait_set, 0) : -FI_ENOSYS;
}

static long make_wait_1(const uint64_t *values)
{
	(void)values;
	return wait_set ? fi_wait(wait_set, 1) : -FI_ENOSYS;
}

#define P_CONTEXT(fields) P_NUMBER(0, "index"), P_STRUCT(1, "attr", fields), P_POINTER(2, "object"), P_POINTER(3, "context")
#define P_COMMAND P_CHOICE(0, "command", FI_EXPORT_FID), P_POINTER(1, "arg")
#define P_BIND P_POINTER(0, "fid"), P_FLAGS(1, "flags", bind_bits)
#define P_FIDS P_POINTER(0, "fids"), P_NUMBER(1, "count")
#define CONTROLS(name) { "fi_control with an argument, " #name, { P_COMMAND }, usual_control, make_control_##name }
#define TRYWAITS(name) { "fi_trywait " #name, { P_FIDS }, usual_trywait, make_trywait_##name }
#define T(name) usual_##name, make_##name

static const struct call objects_calls[] = {
	{ "fi_tx_context", { P_CONTEXT(tx_fields) }, T(tx) },
	{ "fi_rx_context", { P_CONTEXT(rx_fields) }, T(rx) },
	{ "fi_tx_context of an endpoint", { P_NUMBER(0, "index") }, usual_tx, make_tx_of_ep },
	{ "fi_rx_context of an endpoint", { P_NUMBER(0, "index") }, usual_rx, make_rx_of_ep },
	{ "fi_ep_bind of a scalable endpoint", { P_BIND }, T(bind) },
	{ "fi_ep_bind of a context", { P_BIND }, T(bind_tx) },
	CONTROLS(fabric), CONTROLS(domain), CONTROLS(av), CONTROLS(eq), CONTROLS(cq), CONTROLS(cntr), CONTROLS(ep),
	CONTROLS(used), CONTROLS(sep), CONTROLS(srx), CONTROLS(stx), CONTROLS(pep), CONTROLS(mr), CONTROLS(wait),
	CONTROLS(poll),
	{ "fi_control FI_ALIAS", { P_STRUCT(0, "alias", alias_fields) }, T(alias) },
	{ "fi_control FI_GETOPSFLAG", { P_STRUCT(0, "flags", operation_fields) }, usual_flags, make_get_flags },
	{ "fi_control FI_SETOPSFLAG", { P_STRUCT(0, "flags", operation_fields) }, usual_flags, make_set_flags },
	{ "fi_control FI_BACKLOG", { P_STRUCT(0, "backlog", length_fields) }, T(backlog) },
	TRYWAITS(cq), TRYWAITS(eq), TRYWAITS(cntr), TRYWAITS(wait), TRYWAITS(poll), TRYWAITS(ep), TRYWAITS(null),
	{ "fi_wait for 0 ms", { { 0 } }, usual_wait, make_wait_0 },
	{ "fi_wait for 1 ms", { { 0 } }, usual_wait, make_wait_1 },
	{ 0 } };

const struct group objects_group = { "objects", open_objects, objects_calls, true };
