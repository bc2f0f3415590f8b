/* The calls that move data: fi_msg(3), fi_tagged(3), fi_rma(3), fi_atomic(3). */
#include <time.h>

#include "arguments.h"

#define TAG 7

static char buffer[64], result_room[64], compare_room[64];
static struct iovec iov;
static struct fi_ioc ioc, result_ioc, compare_ioc;
static struct fi_rma_iov rma_iov;
static struct fi_rma_ioc rma_ioc;
static void *desc;
static struct fi_context2 context;

/* What is there to end a case: messages of one letter that say that all before them has been looked at. */
static struct fi_context2 mark[32];
static unsigned marks;
static char rooms[16][64], letters[3] = { 'M', 'S', 'R' };
enum { MESSAGE, SENTINEL, REPLY };

static bool sentinel_came, reply_came;
static unsigned done, arrived;
static int failed;

static bool is_mark(const void *op_context)
{
	return (const char *)op_context >= (char *)mark && (const char *)op_context < (char *)(mark + 32);
}

static void see(bool ours, const struct fi_cq_tagged_entry *entry, int error)
{
	const size_t room = (size_t)((struct fi_context2 *)entry->op_context - mark);

	if (ours && !is_mark(entry->op_context)) {
		done++;
		failed = error;
	} else if (is_mark(entry->op_context) && room < 16 && !error && entry->flags & FI_RECV) {
		switch (rooms[room][0]) {
		case 'S':
			sentinel_came = true;
			break;
		case 'R':
			reply_came = true;
			break;
		case 'M':
			break;
		default:
			arrived += !ours;
		}
	}
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* One of the letters, sent until it is taken. */
static bool say(struct fid_ep *ep, fi_addr_t to, int letter, bool tagged, double limit)
{
	ssize_t sent;

	do {
		if (tagged)
			sent = fi_tsend(ep, letters + letter, 1, NULL, to, TAG, mark + 16 + marks % 16);
		else
			sent = fi_send(ep, letters + letter, 1, NULL, to, mark + 16 + marks % 16);
		if (sent == -FI_EAGAIN)
			pump(see);
	} while (sent == -FI_EAGAIN && now() < limit);
	marks++;
	return !sent;
}

static void post(struct fid_ep *ep, bool tagged, unsigned *room)
{
	memset(rooms[*room], 0, sizeof rooms[0]);
	if (tagged)
		fi_trecv(ep, rooms[*room], sizeof rooms[0], NULL, FI_ADDR_UNSPEC, 0, ~0ULL, mark + *room);
	else
		fi_recv(ep, rooms[*room], sizeof rooms[0], NULL, FI_ADDR_UNSPEC, mark + *room);
	++*room;
}

/* Room at the peer for what a case sends, before it does. */
static unsigned used;

static void ready(void)
{
	used = 0;
	for (int n = 0; n < 4; n++)
		post(rig.peer, false, &used);
	for (int n = 0; n < 2 && rig.type == FI_EP_RDM; n++)
		post(rig.peer, true, &used);
	memset(buffer, 'x', sizeof buffer);
}

/* What came of a call that returned 0: a message goes to the peer and one comes back, and what has not happened by then
 * does not. `receives`: the call posted a receive, so the peer sends messages. */
static long outcome(long returned, bool receives)
{
	const double limit = now() + 5;

	if (returned)
		return returned;
	if (receives) {
		say(rig.peer, rig.to_ep, MESSAGE, false, limit);
		if (rig.type == FI_EP_RDM)
			say(rig.peer, rig.to_ep, MESSAGE, true, limit);
	}
	for (int n = 0; n < 3; n++)
		post(rig.ep, false, &used);
	if (!say(rig.ep, rig.to_peer, SENTINEL, false, limit))
		remark(" stuck");
	while (!sentinel_came && now() < limit)
		pump(see);
	say(rig.peer, rig.to_ep, REPLY, false, limit);
	while (!reply_came && now() < limit)
		pump(see);
	for (int n = 0; n < 200; n++)
		pump(see);
	if (!done)
		remark(" nothing");
	else if (failed)
		remark(" error -%d", failed);
	else
		remark(" done");
	if (done > 1)
		remark(" %u times", done);
	if (!receives && arrived)
		remark(" arrived");
	if (!sentinel_came || !reply_came)
		remark(" stuck");
	return returned;
}

static void one_piece(void)
{
	desc = fi_mr_desc(rig.mr);
	iov = (struct iovec) { buffer, 8 };
	ioc = (struct fi_ioc) { buffer, 1 };
	result_ioc = (struct fi_ioc) { result_room, 1 };
	compare_ioc = (struct fi_ioc) { compare_room, 1 };
	rma_iov = (struct fi_rma_iov) { rig.target, 8, rig.key };
	rma_ioc = (struct fi_rma_ioc) { rig.target, 1, rig.key };
}

/* Sends and receives, untagged and tagged: buf or iov, len or count, desc, addr, context, tag, data, ignore. */

static void usual_plain(uint64_t *values)
{
	one_piece();
	values[0] = VALUE(buffer);
	values[1] = 8;
	values[2] = VALUE(desc);
	values[3] = rig.to_peer;
	values[4] = VALUE(&context);
	values[5] = TAG;
	values[6] = 5;
	values[7] = 0;
}

static void usual_vector(uint64_t *values)
{
	usual_plain(values);
	values[0] = VALUE(&iov);
	values[1] = 1;
	values[2] = VALUE(&desc);
}

static void from_anyone(uint64_t *values)
{
	usual_plain(values);
	values[3] = FI_ADDR_UNSPEC;
}

static void vector_from_anyone(uint64_t *values)
{
	usual_vector(values);
	values[3] = FI_ADDR_UNSPEC;
}

static void usual_msg(uint64_t *values)
{
	static struct fi_msg msg;

	one_piece();
	msg = (struct fi_msg) { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = rig.to_peer, .context = &context,
				.data = 5 };
	values[0] = VALUE(&msg);
	values[1] = 0;
}

static void usual_tagged_msg(uint64_t *values)
{
	static struct fi_msg_tagged msg;

	one_piece();
	msg = (struct fi_msg_tagged) { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = rig.to_peer, .tag = TAG,
				       .context = &context, .data = 5 };
	values[0] = VALUE(&msg);
	values[1] = 0;
}

static void msg_from_anyone(uint64_t *values)
{
	usual_msg(values);
	((struct fi_msg *)PTR(0))->addr = FI_ADDR_UNSPEC;
}

static void tagged_from_anyone(uint64_t *values)
{
	usual_tagged_msg(values);
	((struct fi_msg_tagged *)PTR(0))->addr = FI_ADDR_UNSPEC;
}

#define BUF PTR(0)
#define LEN values[1]
#define DESC PTR(2)
#define ADDR values[3]
#define CONTEXT PTR(4)

#define MAKE(name, receives, ...) \
	static long make_##name(const uint64_t *values) \
	{ \
		ready(); \
		return outcome(__VA_ARGS__, receives); \
	}

MAKE(send, false, fi_send(rig.ep, BUF, LEN, DESC, ADDR, CONTEXT))
MAKE(sendv, false, fi_sendv(rig.ep, BUF, PTR(2), LEN, ADDR, CONTEXT))
MAKE(sendmsg, false, fi_sendmsg(rig.ep, PTR(0), values[1]))
MAKE(senddata, false, fi_senddata(rig.ep, BUF, LEN, DESC, values[6], ADDR, CONTEXT))
MAKE(inject, false, fi_inject(rig.ep, BUF, LEN, ADDR))
MAKE(injectdata, false, fi_injectdata(rig.ep, BUF, LEN, values[6], ADDR))
MAKE(recv, true, fi_recv(rig.ep, BUF, LEN, DESC, ADDR, CONTEXT))
MAKE(recvv, true, fi_recvv(rig.ep, BUF, PTR(2), LEN, ADDR, CONTEXT))
MAKE(recvmsg, true, fi_recvmsg(rig.ep, PTR(0), values[1]))
MAKE(tsend, false, fi_tsend(rig.ep, BUF, LEN, DESC, ADDR, values[5], CONTEXT))
MAKE(tsendv, false, fi_tsendv(rig.ep, BUF, PTR(2), LEN, ADDR, values[5], CONTEXT))
MAKE(tsendmsg, false, fi_tsendmsg(rig.ep, PTR(0), values[1]))
MAKE(tsenddata, false, fi_tsenddata(rig.ep, BUF, LEN, DESC, values[6], ADDR, values[5], CONTEXT))
MAKE(tinject, false, fi_tinject(rig.ep, BUF, LEN, ADDR, values[5]))
MAKE(tinjectdata, false, fi_tinjectdata(rig.ep, BUF, LEN, values[6], ADDR, values[5]))
MAKE(trecv, true, fi_trecv(rig.ep, BUF, LEN, DESC, ADDR, values[5], values[7], CONTEXT))
MAKE(trecvv, true, fi_trecvv(rig.ep, BUF, PTR(2), LEN, ADDR, values[5], values[7], CONTEXT))
MAKE(trecvmsg, true, fi_trecvmsg(rig.ep, PTR(0), values[1]))

#define P_BUF P_POINTER(0, "buf"), P_NUMBER(1, "len")
#define P_DESC P_POINTER(2, "desc")
#define P_PIECES P_STRUCT(0, "iov", iovec_fields), P_NUMBER(1, "count"), P_DESC
#define P_ADDR P_NUMBER(3, "addr")
#define P_CONTEXT P_POINTER(4, "context")
#define P_TAG P_NUMBER(5, "tag")
#define P_DATA P_NUMBER(6, "data")
#define P_IGNORE P_NUMBER(7, "ignore")
#define P_MSG(fields) P_STRUCT(0, "msg", fields), P_FLAGS(1, "flags", operation_bits)

static const struct call msg_calls[] = {
	{ "fi_send", { P_BUF, P_DESC, P_ADDR, P_CONTEXT }, usual_plain, make_send },
	{ "fi_sendv", { P_PIECES, P_ADDR, P_CONTEXT }, usual_vector, make_sendv },
	{ "fi_sendmsg", { P_MSG(msg_fields) }, usual_msg, make_sendmsg },
	{ "fi_senddata", { P_BUF, P_DESC, P_DATA, P_ADDR, P_CONTEXT }, usual_plain, make_senddata },
	{ "fi_inject", { P_BUF, P_ADDR }, usual_plain, make_inject },
	{ "fi_injectdata", { P_BUF, P_DATA, P_ADDR }, usual_plain, make_injectdata },
	{ "fi_recv", { P_BUF, P_DESC, P_ADDR, P_CONTEXT }, from_anyone, make_recv },
	{ "fi_recvv", { P_PIECES, P_ADDR, P_CONTEXT }, vector_from_anyone, make_recvv },
	{ "fi_recvmsg", { P_MSG(msg_fields) }, msg_from_anyone, make_recvmsg },
	{ "fi_tsend", { P_BUF, P_DESC, P_ADDR, P_TAG, P_CONTEXT }, usual_plain, make_tsend },
	{ "fi_tsendv", { P_PIECES, P_ADDR, P_TAG, P_CONTEXT }, usual_vector, make_tsendv },
	{ "fi_tsendmsg", { P_MSG(tagged_fields) }, usual_tagged_msg, make_tsendmsg },
	{ "fi_tsenddata", { P_BUF, P_DESC, P_DATA, P_ADDR, P_TAG, P_CONTEXT }, usual_plain, make_tsenddata },
	{ "fi_tinject", { P_BUF, P_ADDR, P_TAG }, usual_plain, make_tinject },
	{ "fi_tinjectdata", { P_BUF, P_DATA, P_ADDR, P_TAG }, usual_plain, make_tinjectdata },
	{ "fi_trecv", { P_BUF, P_DESC, P_ADDR, P_TAG, P_IGNORE, P_CONTEXT }, from_anyone, make_trecv },
	{ "fi_trecvv", { P_PIECES, P_ADDR, P_TAG, P_IGNORE, P_CONTEXT }, vector_from_anyone, make_trecvv },
	{ "fi_trecvmsg", { P_MSG(tagged_fields) }, tagged_from_anyone, make_trecvmsg },
	{ 0 } };

const struct group msg_group = { "msg", open_pair, msg_calls, true };

/* Reads and writes: buf or iov, len or count, desc, addr, context, remote address, key, data. */

static void usual_rma(uint64_t *values)
{
	usual_plain(values);
	values[5] = rig.target;
	values[6] = rig.key;
	values[7] = 5;
}

static void usual_rma_vector(uint64_t *values)
{
	usual_rma(values);
	values[0] = VALUE(&iov);
	values[1] = 1;
	values[2] = VALUE(&desc);
}

static void usual_rma_msg(uint64_t *values)
{
	static struct fi_msg_rma msg;

	one_piece();
	msg = (struct fi_msg_rma) { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = rig.to_peer, .rma_iov = &rma_iov,
				    .rma_iov_count = 1, .context = &context, .data = 5 };
	values[0] = VALUE(&msg);
	values[1] = 0;
}

#define WHERE values[5], values[6]
MAKE(read, false, fi_read(rig.ep, BUF, LEN, DESC, ADDR, WHERE, CONTEXT))
MAKE(readv, false, fi_readv(rig.ep, BUF, PTR(2), LEN, ADDR, WHERE, CONTEXT))
MAKE(readmsg, false, fi_readmsg(rig.ep, PTR(0), values[1]))
MAKE(write, false, fi_write(rig.ep, BUF, LEN, DESC, ADDR, WHERE, CONTEXT))
MAKE(writev, false, fi_writev(rig.ep, BUF, PTR(2), LEN, ADDR, WHERE, CONTEXT))
MAKE(writemsg, false, fi_writemsg(rig.ep, PTR(0), values[1]))
MAKE(writedata, false, fi_writedata(rig.ep, BUF, LEN, DESC, values[7], ADDR, WHERE, CONTEXT))
MAKE(inject_write, false, fi_inject_write(rig.ep, BUF, LEN, ADDR, WHERE))
MAKE(inject_writedata, false, fi_inject_writedata(rig.ep, BUF, LEN, values[7], ADDR, WHERE))

#define P_WHERE P_NUMBER(5, "addr"), P_NUMBER(6, "key")
#define P_PEER P_NUMBER(3, "dest_addr")
#define P_RMA_DATA P_NUMBER(7, "data")

static const struct call rma_calls[] = {
	{ "fi_read", { P_BUF, P_DESC, P_PEER, P_WHERE, P_CONTEXT }, usual_rma, make_read },
	{ "fi_readv", { P_PIECES, P_PEER, P_WHERE, P_CONTEXT }, usual_rma_vector, make_readv },
	{ "fi_readmsg", { P_MSG(rma_msg_fields) }, usual_rma_msg, make_readmsg },
	{ "fi_write", { P_BUF, P_DESC, P_PEER, P_WHERE, P_CONTEXT }, usual_rma, make_write },
	{ "fi_writev", { P_PIECES, P_PEER, P_WHERE, P_CONTEXT }, usual_rma_vector, make_writev },
	{ "fi_writemsg", { P_MSG(rma_msg_fields) }, usual_rma_msg, make_writemsg },
	{ "fi_writedata", { P_BUF, P_DESC, P_RMA_DATA, P_PEER, P_WHERE, P_CONTEXT }, usual_rma, make_writedata },
	{ "fi_inject_write", { P_BUF, P_PEER, P_WHERE }, usual_rma, make_inject_write },
	{ "fi_inject_writedata", { P_BUF, P_RMA_DATA, P_PEER, P_WHERE }, usual_rma, make_inject_writedata },
	{ 0 } };

const struct group rma_group = { "rma", open_pair, rma_calls, true };

/* Atomics: buf or iov, count, desc, addr, context, remote address, key, datatype, operation, result, compare. */

static void usual_atomic(uint64_t *values)
{
	usual_rma(values);
	values[1] = 1;
	values[7] = FI_UINT64;
	values[8] = FI_SUM;
	values[9] = VALUE(result_room);
	values[10] = VALUE(compare_room);
}

static void usual_swap(uint64_t *values)
{
	usual_atomic(values);
	values[8] = FI_CSWAP;
}

static void usual_atomic_vector(uint64_t *values)
{
	usual_atomic(values);
	values[0] = VALUE(&ioc);
	values[2] = VALUE(&desc);
	values[9] = VALUE(&result_ioc);
	values[10] = VALUE(&compare_ioc);
}

static void usual_swap_vector(uint64_t *values)
{
	usual_atomic_vector(values);
	values[8] = FI_CSWAP;
}

/* msg, flags, results, their descriptors and count, compares, their descriptors and count. */
static void usual_atomic_msg(uint64_t *values)
{
	static struct fi_msg_atomic msg;

	one_piece();
	msg = (struct fi_msg_atomic) { .msg_iov = &ioc, .desc = &desc, .iov_count = 1, .addr = rig.to_peer,
				       .rma_iov = &rma_ioc, .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM,
				       .context = &context, .data = 5 };
	values[0] = VALUE(&msg);
	values[1] = 0;
	values[2] = VALUE(&result_ioc);
	values[3] = VALUE(&desc);
	values[4] = 1;
	values[5] = VALUE(&compare_ioc);
	values[6] = VALUE(&desc);
	values[7] = 1;
}

static void usual_swap_msg(uint64_t *values)
{
	usual_atomic_msg(values);
	((struct fi_msg_atomic *)PTR(0))->op = FI_CSWAP;
}

#define WHAT (enum fi_datatype)values[7], (enum fi_op)values[8]
MAKE(atomic, false, fi_atomic(rig.ep, BUF, LEN, DESC, ADDR, WHERE, WHAT, CONTEXT))
MAKE(atomicv, false, fi_atomicv(rig.ep, BUF, PTR(2), LEN, ADDR, WHERE, WHAT, CONTEXT))
MAKE(atomicmsg, false, fi_atomicmsg(rig.ep, PTR(0), values[1]))
MAKE(inject_atomic, false, fi_inject_atomic(rig.ep, BUF, LEN, ADDR, WHERE, WHAT))
MAKE(fetch, false, fi_fetch_atomic(rig.ep, BUF, LEN, DESC, PTR(9), DESC, ADDR, WHERE, WHAT, CONTEXT))
MAKE(fetchv, false, fi_fetch_atomicv(rig.ep, BUF, PTR(2), LEN, PTR(9), PTR(2), 1, ADDR, WHERE, WHAT, CONTEXT))
MAKE(fetchmsg, false, fi_fetch_atomicmsg(rig.ep, PTR(0), PTR(2), PTR(3), values[4], values[1]))
MAKE(compare, false,
     fi_compare_atomic(rig.ep, BUF, LEN, DESC, PTR(10), DESC, PTR(9), DESC, ADDR, WHERE, WHAT, CONTEXT))
MAKE(comparev, false, fi_compare_atomicv(rig.ep, BUF, PTR(2), LEN, PTR(10), PTR(2), 1, PTR(9), PTR(2), 1, ADDR, WHERE, WHAT,
					 CONTEXT))
MAKE(comparemsg, false,
     fi_compare_atomicmsg(rig.ep, PTR(0), PTR(5), PTR(6), values[7], PTR(2), PTR(3), values[4], values[1]))

#define P_COUNT P_POINTER(0, "buf"), P_NUMBER(1, "count")
#define P_WHAT P_CHOICE(7, "datatype", FI_UINT128), P_CHOICE(8, "op", FI_MSWAP)
#define P_RESULT P_POINTER(9, "result")
#define P_COMPARE P_POINTER(10, "compare")
#define P_IOCS P_STRUCT(0, "iov", ioc_fields), P_NUMBER(1, "count"), P_DESC
#define P_RESULTS P_STRUCT(9, "resultv", ioc_fields)
#define P_COMPARES P_STRUCT(10, "comparev", ioc_fields)
#define P_FETCHED P_STRUCT(2, "resultv", ioc_fields), P_POINTER(3, "result_desc"), P_NUMBER(4, "result_count")
#define P_COMPARED P_STRUCT(5, "comparev", ioc_fields), P_POINTER(6, "compare_desc"), P_NUMBER(7, "compare_count")

static const struct call atomic_calls[] = {
	{ "fi_atomic", { P_COUNT, P_DESC, P_PEER, P_WHERE, P_WHAT, P_CONTEXT }, usual_atomic, make_atomic },
	{ "fi_atomicv", { P_IOCS, P_PEER, P_WHERE, P_WHAT, P_CONTEXT }, usual_atomic_vector, make_atomicv },
	{ "fi_atomicmsg", { P_MSG(atomic_msg_fields) }, usual_atomic_msg, make_atomicmsg },
	{ "fi_inject_atomic", { P_COUNT, P_PEER, P_WHERE, P_WHAT }, usual_atomic, make_inject_atomic },
	{ "fi_fetch_atomic", { P_COUNT, P_DESC, P_RESULT, P_PEER, P_WHERE, P_WHAT, P_CONTEXT }, usual_atomic, make_fetch },
	{ "fi_fetch_atomicv", { P_IOCS, P_RESULTS, P_PEER, P_WHERE, P_WHAT, P_CONTEXT }, usual_atomic_vector, make_fetchv },
	{ "fi_fetch_atomicmsg", { P_MSG(atomic_msg_fields), P_FETCHED }, usual_atomic_msg, make_fetchmsg },
	{ "fi_compare_atomic", { P_COUNT, P_DESC, P_COMPARE, P_RESULT, P_PEER, P_WHERE, P_WHAT, P_CONTEXT }, usual_swap,
	  make_compare },
	{ "fi_compare_atomicv", { P_IOCS, P_COMPARES, P_RESULTS, P_PEER, P_WHERE, P_WHAT, P_CONTEXT }, usual_swap_vector,
	  make_comparev },
	{ "fi_compare_atomicmsg", { P_MSG(atomic_msg_fields), P_FETCHED, P_COMPARED }, usual_swap_msg, make_comparemsg },
	{ 0 } };

const struct group atomic_group = { "atomic", open_pair, atomic_calls, true };
