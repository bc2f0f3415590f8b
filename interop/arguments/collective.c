/* Collectives and what they are done in: fi_collective(3), fi_av_set(3). Two members, the endpoints of the pair. */
#include <sys/wait.h>
#include <unistd.h>

#include "arguments.h"

/* A member: its endpoint, the set it joined with, and the group. */
static struct member {
	struct fid_ep *ep;
	struct fid_av_set *set;
	struct fid_mc *mc;
	fi_addr_t set_addr, coll_addr;
	struct fi_context2 join, operation, message;
	uint64_t source[16], result[16], desc[2];
	bool joined, done;
	int failed;
} members[2];

/* The library has no collectives on this provider. */
static bool lacking;

/* Messages that came, and sends that completed, of those that `turn` makes. */
static unsigned passed;

static void see(bool ours, const struct fi_cq_tagged_entry *entry, int error)
{
	struct member *member = &members[!ours];

	if (entry->op_context == &member->message) {
		passed++;
	} else if (entry->op_context == &member->operation || (ours && !entry->op_context)) {
		member->done = true;
		member->failed = error;
	}
}

/* Joins of both members that have ended. */
static void take_events(void)
{
	struct fi_eq_entry entry = { 0 };
	struct fi_eq_err_entry failed = { 0 };
	uint32_t event;
	ssize_t got = fi_eq_read(rig.eq, &event, &entry, sizeof entry, 0);

	if (got == -FI_EAVAIL && fi_eq_readerr(rig.eq, &failed, 0) > 0)
		entry.context = failed.context;
	else if (got <= 0)
		return;
	for (int n = 0; n < 2; n++)
		if (entry.context == &members[n].join || (!n && !entry.context)) {
			members[n].joined = true;
			members[n].failed = failed.err;
		}
}

/* A message of each member to the other one: what both have said before it has come when it comes. */
static void turn(void)
{
	static char words[2], rooms[2];
	const fi_addr_t to[2] = { rig.to_peer, rig.to_ep };

	passed = 0;
	for (int n = 0; n < 2; n++) {
		ssize_t sent;

		require(fi_recv(members[n].ep, rooms + n, 1, NULL, FI_ADDR_UNSPEC, &members[n].message), "fi_recv");
		while ((sent = fi_send(members[n].ep, words + n, 1, NULL, to[n], &members[n].message)) == -FI_EAGAIN)
			pump(see);
		require(sent, "fi_send");
	}
	while (passed < 4) {
		pump(see);
		take_events();
	}
}

/* More of them than any algorithm of two members has steps. */
#define TURNS 16

static int make_set(struct member *member)
{
	struct fi_av_set_attr attr = { .count = 2, .start_addr = 0, .end_addr = 1, .stride = 1 };
	int made = fi_av_set(rig.av, &attr, &member->set, NULL);

	return made ? made : fi_av_set_addr(member->set, &member->set_addr);
}

/* Whether there are collectives: a library may offer the capability, be built without them, and die of the question. */
static bool answers(void)
{
	struct fi_collective_attr attr = { .op = FI_SUM, .datatype = FI_UINT64 };
	pid_t child = fork();
	int status;

	if (!child) {
		fi_query_collective(rig.domain, FI_ALLREDUCE, &attr, 0);
		_exit(0);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
		!fi_query_collective(rig.domain, FI_ALLREDUCE, &attr, 0);
}

static void open_collective(void)
{
	rig.caps = FI_MSG | FI_TAGGED | FI_COLLECTIVE;
	open_pair();
	members[0].ep = rig.ep;
	members[1].ep = rig.peer;
	lacking = !(rig.caps & FI_COLLECTIVE) || !answers();
	for (int n = 0; n < 2 && !lacking; n++)
		require(make_set(&members[n]), "fi_av_set");
	for (int n = 0; n < 2 && !lacking; n++)
		require(fi_join_collective(members[n].ep, members[n].set_addr, members[n].set, 0, &members[n].mc,
					   &members[n].join), "fi_join_collective");
	while (!lacking && !(members[0].joined && members[1].joined)) {
		pump(see);
		take_events();
	}
	for (int n = 0; n < 2 && !lacking; n++) {
		require(-members[n].failed, "joining");
		members[n].coll_addr = fi_mc_addr(members[n].mc);
	}
}

/* fi_query_collective(3) */

static void usual_query(uint64_t *values)
{
	static struct fi_collective_attr attr;

	attr = (struct fi_collective_attr) { .op = FI_SUM, .datatype = FI_UINT64 };
	values[0] = FI_ALLREDUCE;
	values[1] = VALUE(&attr);
	values[2] = 0;
}

static long make_query(const uint64_t *values)
{
	return lacking ? -FI_ENOSYS : fi_query_collective(rig.domain, (enum fi_collective_op)values[0], PTR(1), values[2]);
}

/* fi_av_set(3), with addresses in the vector */

static struct fid_av_set *fresh;

static void usual_set(uint64_t *values)
{
	static struct fi_av_set_attr attr;

	attr = (struct fi_av_set_attr) { .count = 2, .start_addr = 0, .end_addr = 1, .stride = 1 };
	values[0] = VALUE(&attr);
	values[1] = VALUE(&fresh);
	values[2] = VALUE(members);
	fresh = NULL;
}

static long make_av_set(const uint64_t *values)
{
	return lacking ? -FI_ENOSYS : opened(fi_av_set(rig.av, PTR(0), PTR(1), PTR(2)), PTR(1));
}

static void usual_of_set(uint64_t *values)
{
	static fi_addr_t addr;

	values[0] = lacking ? 0 : VALUE(members[1].set);
	values[1] = 0;
	values[2] = VALUE(&addr);
}

/* A call on a set of its own with both addresses. */
#define OF_SET(name, expression) \
	static long make_##name(const uint64_t *values) \
	{ \
		struct member own; \
		long returned; \
		(void)values; \
		if (lacking) \
			return -FI_ENOSYS; \
		require(make_set(&own), "fi_av_set"); \
		returned = expression; \
		return opened(returned, (struct fid *[]) { &own.set->fid }); \
	}

OF_SET(union, fi_av_set_union(own.set, PTR(0)))
OF_SET(intersect, fi_av_set_intersect(own.set, PTR(0)))
OF_SET(diff, fi_av_set_diff(own.set, PTR(0)))
OF_SET(insert, fi_av_set_insert(own.set, values[1]))
OF_SET(insert_new, (fi_av_set_remove(own.set, 0), fi_av_set_insert(own.set, values[1])))
OF_SET(remove, fi_av_set_remove(own.set, values[1]))
OF_SET(set_addr, fi_av_set_addr(own.set, PTR(2)))

/* fi_join_collective(3): the peer joins as a member does as a rule */

static struct fid_mc *mcs[2];

static void usual_join(uint64_t *values)
{
	values[0] = members[0].set_addr;
	values[1] = VALUE(members[0].set);
	values[2] = 0;
	values[3] = VALUE(mcs);
	values[4] = VALUE(&members[0].join);
}

static long make_join(const uint64_t *values)
{
	long returned;

	if (lacking)
		return -FI_ENOSYS;
	members[0].joined = members[1].joined = false;
	returned = fi_join_collective(rig.ep, values[0], PTR(1), values[2], PTR(3), PTR(4));
	if (returned)
		return returned;
	returned = fi_join_collective(rig.peer, members[1].set_addr, members[1].set, 0, mcs + 1, &members[1].join);
	if (returned)
		remark(" the peer %ld", returned);
	for (int n = 0; n < TURNS; n++)
		turn();
	for (int n = 0; n < 2; n++)
		remark(members[n].failed ? " error" : members[n].joined ? " joined" : " nothing");
	return 0;
}

static void usual_mc_addr(uint64_t *values)
{
	(void)values;
}

static long make_mc_addr(const uint64_t *values)
{
	(void)values;
	return lacking ? -FI_ENOSYS : fi_mc_addr(members[0].mc) != FI_ADDR_NOTAVAIL;
}

/* The operations: buf, count, desc, result, result_desc, coll_addr, root_addr, datatype, op, flags, context. */

static void usual_operation(uint64_t *values)
{
	struct member *own = &members[0];
	const uint64_t usual[] = { VALUE(own->source), 2, VALUE(own->desc), VALUE(own->result), VALUE(own->desc),
				   own->coll_addr, rig.to_ep, FI_UINT64, FI_SUM, 0, VALUE(&own->operation) };

	memcpy(values, usual, sizeof usual);
}

/* An argument of the peer in place of ours, unless the case has changed it. */
#define SWAPPED(n, part) (values[n] == VALUE(own->part) ? VALUE(peer->part) : values[n])

/* Both members make the call, with the same arguments: in a collective they have to be. */
static long both(ssize_t (*call)(struct fid_ep *ep, const uint64_t *values), const uint64_t *values)
{
	struct member *own = &members[0], *peer = &members[1];
	uint64_t theirs[PARAMS];
	long returned;

	if (lacking)
		return -FI_ENOSYS;
	own->done = peer->done = false;
	own->failed = peer->failed = 0;
	returned = call(own->ep, values);
	if (returned)
		return returned;
	memcpy(theirs, values, sizeof theirs);
	theirs[0] = SWAPPED(0, source);
	theirs[3] = SWAPPED(3, result);
	theirs[10] = VALUE(&peer->operation);
	if (values[5] == own->coll_addr)
		theirs[5] = peer->coll_addr;
	returned = call(peer->ep, theirs);
	if (returned)
		remark(" the peer %ld", returned);
	for (int n = 0; n < TURNS && !(own->done && peer->done); n++)
		turn();
	for (int n = 0; n < 2; n++)
		remark(members[n].failed ? " error" : members[n].done ? " done" : " nothing");
	return 0;
}

#define COLLECTIVE(name, expression) \
	static ssize_t call_##name(struct fid_ep *ep, const uint64_t *values) \
	{ \
		return expression; \
	} \
	static long make_##name(const uint64_t *values) \
	{ \
		return both(call_##name, values); \
	}

#define SOURCE PTR(0), values[1], PTR(2)
#define RESULT PTR(3), PTR(4)
#define GROUP values[5]
#define ROOT values[6]
#define TYPE (enum fi_datatype)values[7]
#define OP (enum fi_op)values[8]
#define REST values[9], PTR(10)

COLLECTIVE(barrier, fi_barrier(ep, GROUP, PTR(10)))
COLLECTIVE(barrier2, fi_barrier2(ep, GROUP, REST))
COLLECTIVE(broadcast, fi_broadcast(ep, SOURCE, GROUP, ROOT, TYPE, REST))
COLLECTIVE(alltoall, fi_alltoall(ep, SOURCE, RESULT, GROUP, TYPE, REST))
COLLECTIVE(allreduce, fi_allreduce(ep, SOURCE, RESULT, GROUP, TYPE, OP, REST))
COLLECTIVE(allgather, fi_allgather(ep, SOURCE, RESULT, GROUP, TYPE, REST))
COLLECTIVE(reduce_scatter, fi_reduce_scatter(ep, SOURCE, RESULT, GROUP, TYPE, OP, REST))
COLLECTIVE(reduce, fi_reduce(ep, SOURCE, RESULT, GROUP, ROOT, TYPE, OP, REST))
COLLECTIVE(scatter, fi_scatter(ep, SOURCE, RESULT, GROUP, ROOT, TYPE, REST))
COLLECTIVE(gather, fi_gather(ep, SOURCE, RESULT, GROUP, ROOT, TYPE, REST))

static const struct bit join_bits[] = { { "FI_SEND", FI_SEND }, { "FI_RECV", FI_RECV }, { "FI_COLLECTIVE", FI_COLLECTIVE },
	{ "FI_SCATTER", FI_SCATTER }, { 0 } };

#define P_SOURCE P_POINTER(0, "buf"), P_NUMBER(1, "count"), P_POINTER(2, "desc")
#define P_RESULT P_POINTER(3, "result"), P_POINTER(4, "result_desc")
#define P_GROUP P_NUMBER(5, "coll_addr")
#define P_ROOT P_NUMBER(6, "root_addr")
#define P_TYPE P_CHOICE(7, "datatype", FI_UINT128)
#define P_OP P_CHOICE(8, "op", FI_MSWAP)
#define P_PAIRS P_FLAGS(9, "flags", operation_bits), P_POINTER(10, "context")
#define P_REST P_BITS(9, "flags", operation_bits), P_POINTER(10, "context")
#define T(name) usual_operation, make_##name
#define T_SET(name) usual_of_set, make_##name

static const struct call collective_calls[] = {
	{ "fi_query_collective", { P_CHOICE(0, "coll", FI_GATHER), P_STRUCT(1, "attr", collective_attr_fields),
				   P_FLAGS(2, "flags", none_bits) }, usual_query, make_query },
	{ "two addresses, fi_av_set", { P_STRUCT(0, "attr", av_set_fields), P_POINTER(1, "set"), P_POINTER(2, "context") }, usual_set,
	  make_av_set },
	{ "fi_av_set_union", { P_POINTER(0, "src") }, T_SET(union) },
	{ "fi_av_set_intersect", { P_POINTER(0, "src") }, T_SET(intersect) },
	{ "fi_av_set_diff", { P_POINTER(0, "src") }, T_SET(diff) },
	{ "fi_av_set_insert", { P_NUMBER(1, "addr") }, T_SET(insert) },
	{ "fi_av_set_insert after fi_av_set_remove", { P_NUMBER(1, "addr") }, T_SET(insert_new) },
	{ "fi_av_set_remove", { P_NUMBER(1, "addr") }, T_SET(remove) },
	{ "fi_av_set_addr", { P_POINTER(2, "coll_addr") }, T_SET(set_addr) },
	{ "fi_join_collective", { P_NUMBER(0, "coll_addr"), P_POINTER(1, "set"), P_FLAGS(2, "flags", join_bits),
				  P_POINTER(3, "mc"), P_POINTER(4, "context") }, usual_join, make_join },
	{ "fi_mc_addr", { { 0 } }, usual_mc_addr, make_mc_addr },
	{ "fi_barrier", { P_GROUP, P_POINTER(10, "context") }, T(barrier) },
	{ "fi_barrier2", { P_GROUP, P_PAIRS }, T(barrier2) },
	{ "fi_broadcast", { P_SOURCE, P_GROUP, P_ROOT, P_TYPE, P_REST }, T(broadcast) },
	{ "fi_alltoall", { P_SOURCE, P_RESULT, P_GROUP, P_TYPE, P_REST }, T(alltoall) },
	{ "fi_allreduce", { P_SOURCE, P_RESULT, P_GROUP, P_TYPE, P_OP, P_REST }, T(allreduce) },
	{ "fi_allgather", { P_SOURCE, P_RESULT, P_GROUP, P_TYPE, P_REST }, T(allgather) },
	{ "fi_reduce_scatter", { P_SOURCE, P_RESULT, P_GROUP, P_TYPE, P_OP, P_REST }, T(reduce_scatter) },
	{ "fi_reduce", { P_SOURCE, P_RESULT, P_GROUP, P_ROOT, P_TYPE, P_OP, P_REST }, T(reduce) },
	{ "fi_scatter", { P_SOURCE, P_RESULT, P_GROUP, P_ROOT, P_TYPE, P_REST }, T(scatter) },
	{ "fi_gather", { P_SOURCE, P_RESULT, P_GROUP, P_ROOT, P_TYPE, P_REST }, T(gather) },
	{ 0 } };

const struct group collective_group = { "collective", open_collective, collective_calls, true };
