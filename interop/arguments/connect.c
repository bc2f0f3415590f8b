/* Connection management, fi_cm(3): each case on endpoints of its own, with the events that come of it. */
#include <netinet/in.h>
#include <time.h>

#include "arguments.h"

/* Seconds for an event to come, on a machine that does much else. */
#define PATIENCE 5

/* A passive endpoint, and an endpoint that asks it for a connection. */
static struct fid_pep *pep;
static struct fid_ep *asks, *answers;
static struct fid_cq *cqs[2];
static struct sockaddr_in name;
static char param[256], room[256];
static size_t len;

static struct {
	struct fi_eq_cm_entry entry;
	char data[256];
} cm;

static const struct field address_fields[] = {
	F_NUMBER(struct sockaddr_in, sin_family), F_NUMBER(struct sockaddr_in, sin_port), { 0 } };


static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* The next event, or 0; an error of the queue is told, with how much data came with it. */
static uint32_t event(void)
{
	const double limit = now() + PATIENCE;
	struct fi_cq_tagged_entry entry;
	struct fi_eq_err_entry failed = { 0 };
	uint32_t event;
	ssize_t got;

	while ((got = fi_eq_read(rig.eq, &event, &cm, sizeof cm, 0)) == -FI_EAGAIN && now() < limit)
		for (int n = 0; n < 2; n++)
			if (cqs[n])
				fi_cq_read(cqs[n], &entry, 1);
	if (got == -FI_EAVAIL) {
		got = fi_eq_readerr(rig.eq, &failed, 0);
		remark(" error -%d with %zu B", failed.err, failed.err_data_size);
		return 0;
	}
	if (got < 0) {
		remark(" nothing");
		return 0;
	}
	remark(" %s", fi_tostr(&event, FI_TYPE_EQ_EVENT));
	/* Who asks is told what the other one has said to it; C tells who has accepted of bytes too, which nobody sent. */
	if ((size_t)got > sizeof cm.entry && (event != FI_CONNECTED || cm.entry.fid == &asks->fid))
		remark(" with %zu B", (size_t)got - sizeof cm.entry);
	return event;
}

/* Each case has an event queue of its own: what comes of the last one does not matter. */
static void listening(void)
{
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_NONE };
	size_t size = sizeof name;

	require(fi_eq_open(rig.fabric, &eq, &rig.eq, NULL), "fi_eq_open");
	require(fi_passive_ep(rig.fabric, rig.info, &pep, NULL), "fi_passive_ep");
	require(fi_pep_bind(pep, &rig.eq->fid, 0), "fi_pep_bind");
	require(fi_listen(pep), "fi_listen");
	require(fi_getname(&pep->fid, &name, &size), "fi_getname");
	asks = open_ep(rig.info, &cqs[0]);
}

/* A request stands in the queue, and was taken from there. */
static struct fi_info *asked(void)
{
	listening();
	require(fi_connect(asks, &name, param, 4), "fi_connect");
	require(event() != FI_CONNREQ, "FI_CONNREQ");
	return cm.entry.info;
}

static void connected(void)
{
	answers = open_ep(asked(), &cqs[1]);
	require(fi_accept(answers, NULL, 0), "fi_accept");
	for (int n = 0; n < 2; n++)
		require(event() != FI_CONNECTED, "FI_CONNECTED");
}

/* Values are: an address or handle, its length or parameters, the length of these, flags. */

static void usual_connect(uint64_t *values)
{
	static struct sockaddr_in to;

	listening();
	to = name;
	len = sizeof room;
	values[0] = VALUE(&to);
	values[1] = VALUE(param);
	values[2] = 4;
}

static void accept_it(void)
{
	if (event() != FI_CONNREQ)
		return;
	answers = open_ep(cm.entry.info, &cqs[1]);
	remark(" %d", fi_accept(answers, NULL, 0));
	if (event())
		event();
}

static long make_connect(const uint64_t *values)
{
	long returned = fi_connect(asks, PTR(0), PTR(1), values[2]);

	if (!returned)
		accept_it();
	return returned;
}

static long make_connect_twice(const uint64_t *values)
{
	require(fi_connect(asks, &name, NULL, 0), "fi_connect");
	return fi_connect(asks, PTR(0), PTR(1), values[2]);
}

static long make_connect_unbound(const uint64_t *values)
{
	struct fid_ep *bare;

	require(fi_endpoint(rig.domain, rig.info, &bare, NULL), "fi_endpoint");
	return fi_connect(bare, PTR(0), PTR(1), values[2]);
}

static long make_connect_connected(const uint64_t *values)
{
	(void)values;
	connected();
	forget();
	return fi_connect(asks, &name, NULL, 0);
}

static void usual_nothing(uint64_t *values)
{
	(void)values;
}

static void usual_request(uint64_t *values)
{
	values[0] = 0;
	values[1] = VALUE(param);
	values[2] = 4;
}

static long make_accept(const uint64_t *values)
{
	long returned;

	answers = open_ep(asked(), &cqs[1]);
	forget();
	returned = fi_accept(answers, PTR(1), values[2]);
	if (!returned && event())
		event();
	return returned;
}

static long make_accept_twice(const uint64_t *values)
{
	connected();
	forget();
	return fi_accept(answers, PTR(1), values[2]);
}

static long make_accept_unasked(const uint64_t *values)
{
	listening();
	return fi_accept(asks, PTR(1), values[2]);
}

static void usual_reject(uint64_t *values)
{
	values[0] = VALUE(asked()->handle);
	values[1] = VALUE(param);
	values[2] = 4;
	forget();
}

static long make_reject(const uint64_t *values)
{
	long returned = fi_reject(pep, PTR(0), PTR(1), values[2]);

	if (!returned)
		event();
	return returned;
}

/* Another passive endpoint than the one that was asked. */
static long make_reject_other(const uint64_t *values)
{
	struct fid_pep *other;

	require(fi_passive_ep(rig.fabric, rig.info, &other, NULL), "fi_passive_ep");
	require(fi_pep_bind(other, &rig.eq->fid, 0), "fi_pep_bind");
	require(fi_listen(other), "fi_listen");
	return fi_reject(other, PTR(0), PTR(1), values[2]);
}

/* Passive endpoints: bound, and listening. */

static struct fid_pep *new_pep(bool bound)
{
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_NONE };
	struct fid_pep *made;

	require(fi_eq_open(rig.fabric, &eq, &rig.eq, NULL), "fi_eq_open");
	require(fi_passive_ep(rig.fabric, rig.info, &made, NULL), "fi_passive_ep");
	if (bound)
		require(fi_pep_bind(made, &rig.eq->fid, 0), "fi_pep_bind");
	return made;
}

static long make_listen(const uint64_t *values)
{
	(void)values;
	return fi_listen(new_pep(true));
}

static long make_listen_unbound(const uint64_t *values)
{
	(void)values;
	return fi_listen(new_pep(false));
}

static long make_listen_twice(const uint64_t *values)
{
	(void)values;
	pep = new_pep(true);
	require(fi_listen(pep), "fi_listen");
	return fi_listen(pep);
}

static const struct bit bind_bits[] = { { "FI_TRANSMIT", FI_TRANSMIT }, { "FI_RECV", FI_RECV }, { 0 } };

static void usual_pep_bind(uint64_t *values)
{
	pep = new_pep(false);
	values[0] = VALUE(&rig.eq->fid);
	values[1] = 0;
}

static long make_pep_bind(const uint64_t *values)
{
	return fi_pep_bind(pep, PTR(0), values[1]);
}

static long make_pep_bind_av(const uint64_t *values)
{
	(void)values;
	return fi_pep_bind(new_pep(false), &rig.av->fid, 0);
}

/* Names: a place, and its length. */

static void usual_name(uint64_t *values)
{
	len = sizeof room;
	values[0] = VALUE(room);
	values[1] = VALUE(&len);
}

/* How long it says the name is. */
static long length(long returned)
{
	remark(" len %zu", len);
	return returned;
}

static long make_name_of_pep(const uint64_t *values)
{
	listening();
	return length(fi_getname(&pep->fid, PTR(0), PTR(1)));
}

static long make_name_of_new_pep(const uint64_t *values)
{
	return length(fi_getname(&new_pep(false)->fid, PTR(0), PTR(1)));
}

static long make_name_of_ep(const uint64_t *values)
{
	connected();
	forget();
	return length(fi_getname(&asks->fid, PTR(0), PTR(1)));
}

static long make_peer(const uint64_t *values)
{
	connected();
	forget();
	return length(fi_getpeer(answers, PTR(0), PTR(1)));
}

static long make_peer_of_asking(const uint64_t *values)
{
	listening();
	return length(fi_getpeer(asks, PTR(0), PTR(1)));
}

static void usual_setname(uint64_t *values)
{
	static struct sockaddr_in own;

	own = (struct sockaddr_in) { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	values[0] = VALUE(&own);
	values[1] = sizeof own;
}

static long make_setname(const uint64_t *values)
{
	pep = new_pep(true);
	return fi_setname(&pep->fid, PTR(0), values[1]);
}

static long make_setname_listening(const uint64_t *values)
{
	listening();
	return fi_setname(&pep->fid, PTR(0), values[1]);
}

static void usual_shutdown(uint64_t *values)
{
	values[0] = 0;
}

static long make_shutdown(const uint64_t *values)
{
	long returned;

	connected();
	forget();
	returned = fi_shutdown(asks, values[0]);
	if (!returned)
		event();
	return returned;
}

static long make_shutdown_twice(const uint64_t *values)
{
	connected();
	forget();
	require(fi_shutdown(asks, 0), "fi_shutdown");
	return fi_shutdown(asks, values[0]);
}

static long make_shutdown_peer(const uint64_t *values)
{
	connected();
	require(fi_shutdown(asks, 0), "fi_shutdown");
	event();
	forget();
	return fi_shutdown(answers, values[0]);
}

static long make_shutdown_new(const uint64_t *values)
{
	listening();
	return fi_shutdown(asks, values[0]);
}

#define ANY { { 0 } }
#define P_PARAM P_POINTER(1, "param"), P_NUMBER(2, "paramlen")
#define P_NAME P_POINTER(0, "addr"), P_STRUCT(1, "addrlen", length_fields)
#define P_SET_NAME P_STRUCT(0, "addr", address_fields), P_NUMBER(1, "addrlen")

static const struct call connect_calls[] = {
	{ "fi_listen", ANY, usual_nothing, make_listen },
	{ "fi_listen without fi_pep_bind", ANY, usual_nothing, make_listen_unbound },
	{ "fi_listen after fi_listen", ANY, usual_nothing, make_listen_twice },
	{ "fi_pep_bind", { P_POINTER(0, "bfid"), P_FLAGS(1, "flags", bind_bits) }, usual_pep_bind, make_pep_bind },
	{ "fi_pep_bind of an AV", ANY, usual_nothing, make_pep_bind_av },
	{ "fi_connect to a listener", { P_STRUCT(0, "addr", address_fields), P_PARAM }, usual_connect, make_connect },
	{ "fi_connect after fi_connect", ANY, usual_connect, make_connect_twice },
	{ "fi_connect without fi_ep_bind", ANY, usual_connect, make_connect_unbound },
	{ "fi_connect when connected", ANY, usual_nothing, make_connect_connected },
	{ "fi_accept of a request", { P_PARAM }, usual_request, make_accept },
	{ "fi_accept after fi_accept", { P_PARAM }, usual_request, make_accept_twice },
	{ "fi_accept without a request", { P_PARAM }, usual_request, make_accept_unasked },
	{ "fi_reject", { P_POINTER(0, "handle"), P_PARAM }, usual_reject, make_reject },
	{ "fi_reject by another", { P_POINTER(0, "handle") }, usual_reject, make_reject_other },
	{ "fi_getname of a passive endpoint", { P_NAME }, usual_name, make_name_of_pep },
	{ "fi_getname of a new passive endpoint", { P_NAME }, usual_name, make_name_of_new_pep },
	{ "fi_getname when connected", { P_NAME }, usual_name, make_name_of_ep },
	{ "fi_getpeer when connected", { P_NAME }, usual_name, make_peer },
	{ "fi_getpeer before fi_connect", { P_NAME }, usual_name, make_peer_of_asking },
	{ "fi_setname of a passive endpoint", { P_SET_NAME }, usual_setname, make_setname },
	{ "fi_setname when listening", { P_SET_NAME }, usual_setname, make_setname_listening },
	{ "fi_shutdown when connected", { P_FLAGS(0, "flags", none_bits) }, usual_shutdown, make_shutdown },
	{ "fi_shutdown after fi_shutdown", ANY, usual_shutdown, make_shutdown_twice },
	{ "fi_shutdown after that of the peer", ANY, usual_shutdown, make_shutdown_peer },
	{ "fi_shutdown before fi_connect", ANY, usual_shutdown, make_shutdown_new },
	{ 0 } };

const struct group connect_group = { "connect", open_domain, connect_calls, true };
