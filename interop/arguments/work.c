/* Deferred work, fi_trigger(3): FI_QUEUE_WORK with each operation, and what a counter makes of it; FI_CANCEL_WORK. */
#include "arguments.h"

static struct fid_cntr *trigger, *counts;
static char source[64], fetched[64], compared[64], partner[64];
static struct iovec iov;
static struct fi_ioc ioc, fetch_ioc, compare_ioc;
static struct fi_rma_iov rma_iov;
static struct fi_rma_ioc rma_ioc;
static void *desc;
static struct fi_context2 context, marks[2];
static struct fi_deferred_work work;
static unsigned passed, done;
static int failed;

static void see(bool ours, const struct fi_cq_tagged_entry *entry, int error)
{
	if (entry->op_context == marks || entry->op_context == marks + 1) {
		passed++;
	} else if (ours) {
		done++;
		failed = error;
	}
}

static void open_work(void)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };

	rig.caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_TRIGGER;
	if (rig.type == FI_EP_RDM)
		rig.caps |= FI_TAGGED;
	open_pair();
	require(fi_cntr_open(rig.domain, &attr, &trigger, NULL), "fi_cntr_open");
	require(fi_cntr_open(rig.domain, &attr, &counts, NULL), "fi_cntr_open");
}

/* A message to the peer and one back: what was said before has come when they come. */
static void turn(void)
{
	static char words[2], places[2];
	struct fid_ep *const eps[2] = { rig.ep, rig.peer };
	const fi_addr_t to[2] = { rig.to_peer, rig.to_ep };

	for (int n = 0; n < 2; n++) {
		ssize_t sent;

		passed = 0;
		require(fi_recv(eps[!n], places + n, 1, NULL, FI_ADDR_UNSPEC, marks), "fi_recv");
		while ((sent = fi_send(eps[n], words + n, 1, NULL, to[n], marks + 1)) == -FI_EAGAIN)
			pump(see);
		require(sent, "fi_send");
		while (passed < 2)
			pump(see);
	}
}

static void usual_work(uint64_t *values, enum fi_op_type type)
{
	desc = fi_mr_desc(rig.mr);
	iov = (struct iovec) { source, 8 };
	ioc = (struct fi_ioc) { source, 1 };
	fetch_ioc = (struct fi_ioc) { fetched, 1 };
	compare_ioc = (struct fi_ioc) { compared, 1 };
	rma_iov = (struct fi_rma_iov) { rig.target, 8, rig.key };
	rma_ioc = (struct fi_rma_ioc) { rig.target, 1, rig.key };
	work = (struct fi_deferred_work) { .threshold = 1, .triggering_cntr = trigger, .completion_cntr = counts };
	work.op_type = type;
	/* A counter that is changed says so itself. */
	if (type == FI_OP_CNTR_SET || type == FI_OP_CNTR_ADD)
		work.completion_cntr = NULL;
	values[0] = VALUE(&work);
}

/* Queued; then the counter reaches 1. What has come of it when messages have gone both ways, and of a cancel after it. */
static long make_work(const uint64_t *values)
{
	long returned = fi_control(&rig.domain->fid, FI_QUEUE_WORK, PTR(0));

	if (returned)
		return returned;
	/* What it sends or receives has a partner, which comes before the messages of `turn`. */
	if (work.op_type == FI_OP_SEND)
		fi_recv(rig.peer, partner, sizeof partner, NULL, FI_ADDR_UNSPEC, marks);
	if (work.op_type == FI_OP_TSEND)
		fi_trecv(rig.peer, partner, sizeof partner, NULL, FI_ADDR_UNSPEC, 0, ~0ULL, marks);
	returned = fi_cntr_add(trigger, 1);
	if (returned)
		remark(" fi_cntr_add %ld", returned);
	pump(see);
	if (work.op_type == FI_OP_RECV)
		fi_send(rig.peer, partner, 8, NULL, rig.to_ep, marks + 1);
	if (work.op_type == FI_OP_TRECV)
		fi_tsend(rig.peer, partner, 8, NULL, rig.to_ep, 0, marks + 1);
	for (int n = 0; n < 4; n++)
		turn();
	/* What goes to the endpoint itself has to connect first. */
	for (int n = 0; n < 2000 && !done && !fi_cntr_read(counts) && !fi_cntr_readerr(counts); n++)
		pump(see);
	remark(" %u done", done);
	if (failed)
		remark(" error -%d", failed);
	remark(" counts %llu failures %llu", (unsigned long long)fi_cntr_read(counts),
	       (unsigned long long)fi_cntr_readerr(counts));
	return 0;
}

/* Of work that waits for a count that is not there. */
static long make_cancel(const uint64_t *values)
{
	long returned;

	work.threshold = 100;
	returned = fi_control(&rig.domain->fid, FI_QUEUE_WORK, &work);
	return returned ? returned : fi_control(&rig.domain->fid, FI_CANCEL_WORK, PTR(0));
}

#define MSG(pieces) .ep = rig.ep, .msg.msg_iov = pieces, .msg.desc = &desc, .msg.iov_count = 1, \
	.msg.addr = rig.to_peer, .msg.context = &context
#define TO(places) .msg.rma_iov = places, .msg.rma_iov_count = 1
#define SWAP .msg.datatype = FI_UINT64, .msg.op = FI_CSWAP
#define SUM .msg.datatype = FI_UINT64, .msg.op = FI_SUM
#define FETCH .fetch.msg_iov = &fetch_ioc, .fetch.desc = &desc, .fetch.iov_count = 1
#define COMPARE .compare.msg_iov = &compare_ioc, .compare.desc = &desc, .compare.iov_count = 1

/* An operation: its usual values, and its fields with those of the work around it. */
#define WORK(name, type, member, structure, ...) \
	static void usual_##name(uint64_t *values) \
	{ \
		static struct structure op; \
		usual_work(values, type); \
		op = (struct structure) { __VA_ARGS__ }; \
		work.op.member = &op; \
	}

WORK(send, FI_OP_SEND, msg, fi_op_msg, MSG(&iov))
WORK(recv, FI_OP_RECV, msg, fi_op_msg, MSG(&iov))
WORK(tsend, FI_OP_TSEND, tagged, fi_op_tagged, MSG(&iov))
WORK(trecv, FI_OP_TRECV, tagged, fi_op_tagged, MSG(&iov))
WORK(read, FI_OP_READ, rma, fi_op_rma, MSG(&iov), TO(&rma_iov))
WORK(write, FI_OP_WRITE, rma, fi_op_rma, MSG(&iov), TO(&rma_iov))
WORK(atomic, FI_OP_ATOMIC, atomic, fi_op_atomic, MSG(&ioc), TO(&rma_ioc), SUM)
WORK(fetch, FI_OP_FETCH_ATOMIC, fetch_atomic, fi_op_fetch_atomic, MSG(&ioc), TO(&rma_ioc), SUM, FETCH)
WORK(compare, FI_OP_COMPARE_ATOMIC, compare_atomic, fi_op_compare_atomic, MSG(&ioc), TO(&rma_ioc), SWAP, FETCH, COMPARE)
WORK(set, FI_OP_CNTR_SET, cntr, fi_op_cntr, .cntr = counts, .value = 5)
WORK(add, FI_OP_CNTR_ADD, cntr, fi_op_cntr, .cntr = counts, .value = 5)

#define WORK_FIELDS(name, of_op) \
	static const struct field name[] = { \
		F_NUMBER(struct fi_deferred_work, threshold), F_POINTER(struct fi_deferred_work, triggering_cntr), \
		F_POINTER(struct fi_deferred_work, completion_cntr), \
		{ "op", .offset = offsetof(struct fi_deferred_work, op), .size = sizeof(void *), .kind = STRUCT, \
		  .facts = of_op }, { 0 } }

WORK_FIELDS(with_msg, send_work_fields);
WORK_FIELDS(with_tagged, tagged_work_fields);
WORK_FIELDS(with_rma, rma_work_fields);
WORK_FIELDS(with_atomic, atomic_work_fields);
WORK_FIELDS(with_fetch, fetch_work_fields);
WORK_FIELDS(with_compare, compare_work_fields);
WORK_FIELDS(with_cntr, cntr_work_fields);

/* Receives and sends are described alike, so one may stand for the other. */
static const struct field type_fields[] = { F_NUMBER(struct fi_deferred_work, op_type), { 0 } };

#define QUEUES(type, name, fields) \
	{ "fi_control FI_QUEUE_WORK " #type, { P_STRUCT(0, "work", fields) }, usual_##name, make_work }

static const struct call work_calls[] = {
	{ "fi_control FI_QUEUE_WORK", { P_STRUCT(0, "work", type_fields) }, usual_send, make_work },
	QUEUES(FI_OP_SEND, send, with_msg), QUEUES(FI_OP_RECV, recv, with_msg), QUEUES(FI_OP_TSEND, tsend, with_tagged),
	QUEUES(FI_OP_TRECV, trecv, with_tagged), QUEUES(FI_OP_READ, read, with_rma), QUEUES(FI_OP_WRITE, write, with_rma),
	QUEUES(FI_OP_ATOMIC, atomic, with_atomic), QUEUES(FI_OP_FETCH_ATOMIC, fetch, with_fetch),
	QUEUES(FI_OP_COMPARE_ATOMIC, compare, with_compare), QUEUES(FI_OP_CNTR_SET, set, with_cntr),
	QUEUES(FI_OP_CNTR_ADD, add, with_cntr),
	{ "fi_control FI_CANCEL_WORK", { P_POINTER(0, "work") }, usual_send, make_cancel },
	{ 0 } };

const struct group work_group = { "work", open_work, work_calls, true };
