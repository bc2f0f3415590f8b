/*
 * Preloaded into a program: counts its calls of libfabric that read, write and change remote memory, and writes them to a
 * file of the folder INTEROP_COUNTS when the program ends. The library's own tables are not touched: each object gets
 * copies whose functions count and then call the real ones.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

enum { READS, WRITES, ATOMICS, FETCHES, COMPARES, KINDS };

static const char *const names[KINDS] = { "reads", "writes", "atomics", "fetches", "compares" };
static atomic_ulong counts[KINDS];
static atomic_bool used;

/* A copy of a table, and the one it is a copy of. */
#define COPY(type) struct copy_of_##type { struct type ops; struct type *real; }
COPY(fi_ops_fabric);
COPY(fi_ops_domain);
COPY(fi_ops_ep);
COPY(fi_ops_rma);
COPY(fi_ops_atomic);
#define REAL(type, table) (((struct copy_of_##type *)(table))->real)

static void *copy(const void *table, size_t len, size_t whole)
{
	unsigned char *made = calloc(1, whole);

	if (!made)
		abort();
	memcpy(made, table, len);
	return made;
}

/* Puts a copy in the place of a table. */
#define REPLACE(type, place, made) \
	struct copy_of_##type *made = copy(place, sizeof(struct type), sizeof *made); \
	made->real = (place); \
	(place) = &made->ops

#define COUNT(kind, result) ({ \
	ssize_t result_ = (result); \
	if (!result_) \
		atomic_fetch_add(&counts[kind], 1); \
	result_; \
})

static ssize_t counted_read(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src, uint64_t addr,
			    uint64_t key, void *context)
{
	return COUNT(READS, REAL(fi_ops_rma, ep->rma)->read(ep, buf, len, desc, src, addr, key, context));
}

static ssize_t counted_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
	return COUNT(READS, REAL(fi_ops_rma, ep->rma)->readmsg(ep, msg, flags));
}

static ssize_t counted_write(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr,
			     uint64_t key, void *context)
{
	return COUNT(WRITES, REAL(fi_ops_rma, ep->rma)->write(ep, buf, len, desc, to, addr, key, context));
}

static ssize_t counted_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
	return COUNT(WRITES, REAL(fi_ops_rma, ep->rma)->writemsg(ep, msg, flags));
}

static ssize_t counted_inject_write(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t addr,
				    uint64_t key)
{
	return COUNT(WRITES, REAL(fi_ops_rma, ep->rma)->inject(ep, buf, len, to, addr, key));
}

static ssize_t counted_atomic(struct fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t to, uint64_t addr,
			      uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	return COUNT(ATOMICS, REAL(fi_ops_atomic, ep->atomic)->write(ep, buf, count, desc, to, addr, key, type, op,
								      context));
}

static ssize_t counted_atomicmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, uint64_t flags)
{
	return COUNT(ATOMICS, REAL(fi_ops_atomic, ep->atomic)->writemsg(ep, msg, flags));
}

static ssize_t counted_inject_atomic(struct fid_ep *ep, const void *buf, size_t count, fi_addr_t to, uint64_t addr,
				     uint64_t key, enum fi_datatype type, enum fi_op op)
{
	return COUNT(ATOMICS, REAL(fi_ops_atomic, ep->atomic)->inject(ep, buf, count, to, addr, key, type, op));
}

static ssize_t counted_fetch(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
			     void *result_desc, fi_addr_t to, uint64_t addr, uint64_t key, enum fi_datatype type,
			     enum fi_op op, void *context)
{
	return COUNT(FETCHES, REAL(fi_ops_atomic, ep->atomic)->readwrite(ep, buf, count, desc, result, result_desc, to,
									  addr, key, type, op, context));
}

static ssize_t counted_fetchmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, struct fi_ioc *result, void **desc,
				size_t count, uint64_t flags)
{
	return COUNT(FETCHES, REAL(fi_ops_atomic, ep->atomic)->readwritemsg(ep, msg, result, desc, count, flags));
}

static ssize_t counted_compare(struct fid_ep *ep, const void *buf, size_t count, void *desc, const void *compare,
			       void *compare_desc, void *result, void *result_desc, fi_addr_t to, uint64_t addr,
			       uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	return COUNT(COMPARES, REAL(fi_ops_atomic, ep->atomic)->compwrite(ep, buf, count, desc, compare, compare_desc,
									   result, result_desc, to, addr, key, type, op,
									   context));
}

static ssize_t counted_comparemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, const struct fi_ioc *compare,
				  void **compare_desc, size_t compare_count, struct fi_ioc *result, void **result_desc,
				  size_t result_count, uint64_t flags)
{
	return COUNT(COMPARES, REAL(fi_ops_atomic, ep->atomic)->compwritemsg(ep, msg, compare, compare_desc,
									      compare_count, result, result_desc,
									      result_count, flags));
}

/* From now on this endpoint's calls are counted. */
static void watch(struct fid_ep *ep)
{
	REPLACE(fi_ops_rma, ep->rma, rma);
	rma->ops.read = counted_read;
	rma->ops.readmsg = counted_readmsg;
	rma->ops.write = counted_write;
	rma->ops.writemsg = counted_writemsg;
	rma->ops.inject = counted_inject_write;
	REPLACE(fi_ops_atomic, ep->atomic, atomic);
	atomic->ops.write = counted_atomic;
	atomic->ops.writemsg = counted_atomicmsg;
	atomic->ops.inject = counted_inject_atomic;
	atomic->ops.readwrite = counted_fetch;
	atomic->ops.readwritemsg = counted_fetchmsg;
	atomic->ops.compwrite = counted_compare;
	atomic->ops.compwritemsg = counted_comparemsg;
}

static int opened_context(struct fid_ep *sep, int index, struct fi_tx_attr *attr, struct fid_ep **ep, void *context)
{
	int result = REAL(fi_ops_ep, sep->ops)->tx_ctx(sep, index, attr, ep, context);

	if (!result)
		watch(*ep);
	return result;
}

static int opened_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
{
	int result = REAL(fi_ops_domain, domain->ops)->endpoint(domain, info, ep, context);

	if (!result)
		watch(*ep);
	return result;
}

static int opened_scalable(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep, void *context)
{
	int result = REAL(fi_ops_domain, domain->ops)->scalable_ep(domain, info, sep, context);

	if (!result) {
		REPLACE(fi_ops_ep, (*sep)->ops, ops);
		ops->ops.tx_ctx = opened_context;
	}
	return result;
}

static int opened_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context)
{
	int result = REAL(fi_ops_fabric, fabric->ops)->domain(fabric, info, domain, context);

	if (!result) {
		REPLACE(fi_ops_domain, (*domain)->ops, ops);
		ops->ops.endpoint = opened_endpoint;
		ops->ops.scalable_ep = opened_scalable;
	}
	return result;
}

/* In the place of the library's. */
int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	void *library = dlopen("libfabric.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int (*real)(struct fi_fabric_attr *, struct fid_fabric **, void *) = library ? dlsym(library, "fi_fabric") : NULL;
	int result;

	if (!real)
		abort();
	result = real(attr, fabric, context);
	if (!result) {
		atomic_store(&used, true);
		REPLACE(fi_ops_fabric, (*fabric)->ops, ops);
		ops->ops.domain = opened_domain;
	}
	return result;
}

__attribute__((destructor)) static void report(void)
{
	const char *folder = getenv("INTEROP_COUNTS");
	char path[4096];
	FILE *file;

	if (!folder || !atomic_load(&used))
		return;
	snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
	file = fopen(path, "w");
	if (!file)
		return;
	for (int i = 0; i < KINDS; i++)
		fprintf(file, "%s %lu\n", names[i], atomic_load(&counts[i]));
	fclose(file);
}
