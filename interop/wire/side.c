/* Opens an endpoint, connects it to the peer that the script names, and reads its completions. */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <netinet/in.h>

#include "side.h"

#define CM_WORDS "connection parameters travel with the request and the answer"
#define CM_SECONDS 60

/* Of a scalable endpoint. */
#define CONTEXTS 2

static double started;
static unsigned limit;

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void fail(const char *format, ...)
{
	va_list args;

	printf("ERROR ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	exit(1);
}

void check(long result, const char *what)
{
	if (result < 0)
		fail("%s: %s (%ld)", what, fi_strerror((int)-result), result);
}

void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

char *hear(const char *word)
{
	static char line[512];
	size_t len = strlen(word);

	if (!fgets(line, sizeof line, stdin) || strncmp(line, word, len))
		fail("expected a line that starts with %s", word);
	line[strcspn(line, "\n")] = 0;
	return line[len] ? line + len + 1 : line + len;
}

/* Says which file the linker loaded, so that the script can tell the libraries apart. */
static void say_library(void)
{
	char line[1024], *path;
	FILE *maps = fopen("/proc/self/maps", "r");
	uint32_t version = fi_version();

	while (maps && fgets(line, sizeof line, maps)) {
		path = strchr(line, '/');
		if (!path || !strstr(path, "libfabric"))
			continue;
		path[strcspn(path, "\n")] = 0;
		say("LIB %u.%u %s", FI_MAJOR(version), FI_MINOR(version), path);
		fclose(maps);
		return;
	}
	fail("no libfabric in /proc/self/maps");
}

static void say_address(const void *address, size_t len)
{
	printf("ADDR ");
	for (size_t i = 0; i < len; i++)
		printf("%02x", ((const uint8_t *)address)[i]);
	printf("\n");
	fflush(stdout);
}

static size_t hear_address(uint8_t *address, size_t room)
{
	const char *hex = hear("PEER");
	size_t len = strlen(hex) / 2;

	if (len > room)
		fail("the peer's address is too long");
	for (size_t i = 0; i < len; i++)
		sscanf(hex + 2 * i, "%2hhx", &address[i]);
	return len;
}

/* A context of a scalable endpoint is found on the port of the endpoint plus its index. */
static void say_own_address(struct fid *fid, unsigned short context)
{
	uint8_t address[128];
	size_t len = sizeof address;

	check(fi_getname(fid, address, &len), "fi_getname");
	if (context)
		((struct sockaddr_in *)address)->sin_port = htons(ntohs(((struct sockaddr_in *)address)->sin_port) + context);
	say_address(address, len);
}

static struct fi_info *hints_for(const struct options *opt)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		fail("fi_allocinfo: no memory");
	hints->caps = FI_MSG;
	if (opt->type == FI_EP_RDM)
		hints->caps |= FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV | FI_MULTI_RECV;
	if (opt->shared_rx) {
		hints->caps |= FI_TAGGED | FI_MULTI_RECV;
		hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	}
	if (opt->context) {
		hints->caps |= FI_NAMED_RX_CTX;
		hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = CONTEXTS;
	}
	if (opt->rma)
		hints->caps |= FI_RMA;
	if (opt->atomic)
		hints->caps |= FI_ATOMIC;
	if (opt->virtual_addr)
		hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = opt->type;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS | (opt->rma && !opt->atomic ? FI_ORDER_SAW : 0);
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->cq_data_size = 8;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->addr_format = strchr(opt->node, ':') ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
	hints->fabric_attr->prov_name = strdup(opt->provider);
	return hints;
}

size_t largest_injected(const struct side *s)
{
	size_t own = s->info->tx_attr->inject_size;

	return own < s->opt.injected ? own : s->opt.injected;
}

/* What to open, from our own address or, with `peer`, from the address to connect to. */
static struct fi_info *choose(const struct options *opt, const void *peer, size_t len)
{
	struct fi_info *hints = hints_for(opt), *info;
	const char *node = peer ? NULL : opt->node;

	if (peer) {
		hints->dest_addr = memcpy(malloc(len), peer, len);
		hints->dest_addrlen = len;
	}
	check(fi_getinfo(FI_VERSION(1, 17), node, peer ? NULL : opt->service, peer ? 0 : FI_SOURCE, hints, &info),
	      "fi_getinfo");
	if (strcmp(info->fabric_attr->prov_name, opt->provider))
		fail("fi_getinfo answers %s", info->fabric_attr->prov_name);
	fi_freeinfo(hints);
	return info;
}

static void open_event_queue(struct side *s)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };

	check(fi_eq_open(s->fabric, &attr, &s->eq, NULL), "fi_eq_open");
}

/* Opens the last contexts of a scalable endpoint. */
static void open_contexts(struct side *s)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE, .count = 1, .rx_ctx_bits = 1 };

	check(fi_scalable_ep(s->domain, s->info, &s->sep, NULL), "fi_scalable_ep");
	check(fi_av_open(s->domain, &av, &s->av, NULL), "fi_av_open");
	check(fi_scalable_ep_bind(s->sep, &s->av->fid, 0), "fi_scalable_ep_bind to the AV");
	check(fi_tx_context(s->sep, CONTEXTS - 1, NULL, &s->ep, NULL), "fi_tx_context");
	check(fi_ep_bind(s->ep, &s->cq->fid, FI_SEND), "fi_ep_bind of the transmit context to the CQ");
	check(fi_enable(s->ep), "fi_enable of the transmit context");
	check(fi_rx_context(s->sep, CONTEXTS - 1, NULL, &s->rx, NULL), "fi_rx_context");
	check(fi_ep_bind(s->rx, &s->cq->fid, FI_RECV), "fi_ep_bind of the receive context to the CQ");
	check(fi_enable(s->rx), "fi_enable of the receive context");
	check(fi_enable(s->sep), "fi_enable of the scalable endpoint");
}

static void open_endpoint(struct side *s)
{
	struct fi_cq_attr attr = {
		.size = 4096, .format = FI_CQ_FORMAT_TAGGED,
		.wait_obj = s->opt.wait ? FI_WAIT_UNSPEC : FI_WAIT_NONE,
	};
	struct fi_av_attr av = { .type = FI_AV_TABLE, .count = 1 };

	check(fi_domain(s->fabric, s->info, &s->domain, NULL), "fi_domain");
	check(fi_cq_open(s->domain, &attr, &s->cq, NULL), "fi_cq_open");
	if (s->opt.context) {
		open_contexts(s);
		return;
	}
	check(fi_endpoint(s->domain, s->info, &s->ep, NULL), "fi_endpoint");
	check(fi_ep_bind(s->ep, &s->cq->fid, FI_SEND | FI_RECV), "fi_ep_bind to the CQ");
	s->rx = s->ep;
	if (s->opt.shared_rx) {
		check(fi_srx_context(s->domain, s->info->rx_attr, &s->srx, NULL), "fi_srx_context");
		check(fi_ep_bind(s->srx, &s->cq->fid, FI_RECV), "fi_ep_bind of the shared context to the CQ");
		check(fi_ep_bind(s->ep, &s->srx->fid, 0), "fi_ep_bind to the shared context");
		s->rx = s->srx;
	}
	if (s->opt.type == FI_EP_RDM) {
		check(fi_av_open(s->domain, &av, &s->av, NULL), "fi_av_open");
		check(fi_ep_bind(s->ep, &s->av->fid, 0), "fi_ep_bind to the AV");
	} else {
		check(fi_ep_bind(s->ep, &s->eq->fid, 0), "fi_ep_bind to the EQ");
	}
	check(fi_enable(s->ep), "fi_enable");
}

/* Waits for one event, with the words of the peer if it should bring some. */
static void expect_event(struct side *s, uint32_t wanted, struct fi_info **info, const char *words)
{
	static const char *const names[] = { [FI_CONNREQ] = "FI_CONNREQ", [FI_CONNECTED] = "FI_CONNECTED",
		[FI_SHUTDOWN] = "FI_SHUTDOWN" };
	union { struct fi_eq_cm_entry cm; uint8_t room[sizeof(struct fi_eq_cm_entry) + 256]; } entry;
	struct fi_eq_err_entry error = { 0 };
	uint32_t event = 0;
	ssize_t len = -FI_EAGAIN;
	double until = now() + CM_SECONDS;

	/* With manual progress nothing moves between the calls, so they are short. */
	while (len == -FI_EAGAIN && now() < until)
		len = fi_eq_sread(s->eq, &event, &entry, sizeof entry, 100, 0);
	if (len == -FI_EAVAIL) {
		check(fi_eq_readerr(s->eq, &error, 0), "fi_eq_readerr");
		fail("instead of %s: %s", names[wanted], fi_strerror(error.err));
	}
	if (len < 0 || event != wanted)
		fail("instead of %s: event %u, %s", names[wanted], event, len < 0 ? fi_strerror((int)-len) : "");
	/* Padding may follow the words. */
	if (words && ((size_t)len < sizeof entry.cm + strlen(words) || memcmp(entry.cm.data, words, strlen(words))))
		fail("%s came with the wrong parameters: %zd bytes", names[wanted], len - (ssize_t)sizeof entry.cm);
	if (info)
		*info = entry.cm.info;
}

static void listen_and_accept(struct side *s)
{
	struct fi_info *request = NULL;

	check(fi_passive_ep(s->fabric, s->info, &s->pep, NULL), "fi_passive_ep");
	check(fi_pep_bind(s->pep, &s->eq->fid, 0), "fi_pep_bind");
	check(fi_listen(s->pep), "fi_listen");
	say_own_address(&s->pep->fid, 0);
	hear_address((uint8_t[128]){ 0 }, 128);
	expect_event(s, FI_CONNREQ, &request, CM_WORDS);
	fi_freeinfo(s->info);
	s->info = request;
	open_endpoint(s);
	check(fi_accept(s->ep, CM_WORDS, strlen(CM_WORDS)), "fi_accept");
	expect_event(s, FI_CONNECTED, NULL, NULL);
}

static void connect_to_peer(struct side *s)
{
	uint8_t peer[128];
	size_t len;

	say_address("", 0);
	len = hear_address(peer, sizeof peer);
	fi_freeinfo(s->info);
	s->info = choose(&s->opt, peer, len);
	open_endpoint(s);
	check(fi_connect(s->ep, peer, CM_WORDS, strlen(CM_WORDS)), "fi_connect");
	expect_event(s, FI_CONNECTED, NULL, CM_WORDS);
}

static void insert_peer(struct side *s)
{
	uint8_t peer[128];

	say_own_address(&s->ep->fid, s->opt.context);
	hear_address(peer, sizeof peer);
	if (fi_av_insert(s->av, peer, 1, &s->to, 0, NULL) != 1)
		fail("fi_av_insert did not take the peer's address");
}

void side_open(struct side *s)
{
	started = now();
	limit = s->opt.seconds;
	say_library();
	s->to = FI_ADDR_UNSPEC;
	s->info = choose(&s->opt, NULL, 0);
	check(fi_fabric(s->info->fabric_attr, &s->fabric, NULL), "fi_fabric");
	if (s->opt.type == FI_EP_RDM) {
		open_endpoint(s);
		insert_peer(s);
		return;
	}
	open_event_queue(s);
	if (s->opt.server)
		listen_and_accept(s);
	else
		connect_to_peer(s);
}

static void close_fid(void *object, const char *what)
{
	if (object)
		check(fi_close(object), what);
}

void side_close(struct side *s)
{
	/* The client ends the connection, and the server is told. */
	if (s->opt.type == FI_EP_MSG && s->opt.server)
		expect_event(s, FI_SHUTDOWN, NULL, NULL);
	if (s->opt.type == FI_EP_MSG)
		check(fi_shutdown(s->ep, 0), "fi_shutdown");
	close_fid(&s->ep->fid, "fi_close of the endpoint");
	if (s->srx)
		close_fid(&s->srx->fid, "fi_close of the shared context");
	if (s->sep) {
		close_fid(&s->rx->fid, "fi_close of the receive context");
		close_fid(&s->sep->fid, "fi_close of the scalable endpoint");
	}
	if (s->av)
		close_fid(&s->av->fid, "fi_close of the AV");
	close_fid(&s->cq->fid, "fi_close of the CQ");
	close_fid(&s->domain->fid, "fi_close of the domain");
	if (s->pep)
		close_fid(&s->pep->fid, "fi_close of the passive endpoint");
	if (s->eq)
		close_fid(&s->eq->fid, "fi_close of the EQ");
	close_fid(&s->fabric->fid, "fi_close of the fabric");
	fi_freeinfo(s->info);
}

static void complete(struct side *s, const struct fi_cq_tagged_entry *entry, fi_addr_t source)
{
	struct op *op = entry->op_context;

	if (entry->flags & FI_REMOTE_WRITE) {
		if ((entry->flags & (FI_RMA | FI_REMOTE_CQ_DATA)) != (FI_RMA | FI_REMOTE_CQ_DATA))
			fail("a write of the peer came with flags 0x%lx", entry->flags);
		s->written++;
		s->written_data = entry->data;
		s->written_len = entry->len;
		return;
	}
	if (!op)
		fail("a completion without context, flags 0x%lx", entry->flags);
	if (op->arrived && entry->flags & FI_RECV && entry->len)
		op->arrived(op, entry->buf, entry->len);
	if (op->arrived && !(entry->flags & FI_MULTI_RECV))
		return;
	if (op->done)
		fail("two completions of one operation, flags 0x%lx", entry->flags);
	op->done = true;
	op->flags = entry->flags;
	op->len = entry->len;
	op->data = entry->data;
	op->tag = entry->tag;
	op->source = source;
}

static void complete_with_error(struct side *s)
{
	struct fi_cq_err_entry entry = { 0 };
	ssize_t result = fi_cq_readerr(s->cq, &entry, 0);
	struct op *op = entry.op_context;

	if (result == -FI_EAGAIN)
		return;
	check(result, "fi_cq_readerr");
	if (!entry.err)
		fail("an error entry without an error");
	if (!op || !op->may_fail)
		fail("an operation ended with %s (provider's: %d), flags 0x%lx, %zu bytes", fi_strerror(entry.err),
		     entry.prov_errno, entry.flags, entry.len);
	op->done = true;
	op->error = entry.err;
	op->flags = entry.flags;
	if (!s->broken)
		s->broken = entry.err;
}

void progress(struct side *s)
{
	struct fi_cq_tagged_entry entries[16];
	fi_addr_t sources[16];
	ssize_t n;

	if (now() - started > limit)
		fail("not finished after %u s", limit);
	for (int i = 0; i < 16; i++)
		sources[i] = FI_ADDR_NOTAVAIL;
	if (s->opt.wait)
		n = fi_cq_sreadfrom(s->cq, entries, 16, sources, NULL, 500);
	else
		n = fi_cq_readfrom(s->cq, entries, 16, sources);
	if (n == -FI_EAVAIL) {
		complete_with_error(s);
	} else if (n == -FI_EAGAIN || n == -FI_EINTR) {
		if (!s->opt.wait)
			sched_yield();
	} else {
		check(n, "reading the CQ");
		if (!n)
			fail("fi_cq_read says 0");
		for (ssize_t i = 0; i < n; i++)
			complete(s, &entries[i], sources[i]);
	}
}

void finish(struct side *s, struct op *op, const char *what)
{
	double until = now() + limit;

	while (!op->done) {
		if (now() > until)
			fail("no completion of %s after %u s", what, limit);
		progress(s);
	}
}
