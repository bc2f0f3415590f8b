/*
 * MPI_Allreduce over the libfabric that the MPI loads, and fi_allreduce of another one, in turns.
 *
 *     allreduce LIBRARY PAIRS MILLISECONDS BYTES...
 *
 * Each pair times as many calls of both as take so long, and checks what the last of them gave. A line for each size:
 * bytes, the medians in microseconds, and the median, least and greatest of the pairs' ratios.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "say.h"

#define NAME 64
#define PAIRS 64

static struct fid_cq *cq;
static struct fid_eq *eq;
static struct fid_ep *ep;
static fi_addr_t group;

static void must(const char *what, long done)
{
	if (done)
		give_up("%s: %ld", what, done);
}

#define MUST(call) must(#call, (call))

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found)
		give_up("%s", dlerror());
	return found;
}

/* An endpoint of the provider tcp of that library. */
static struct fid_av *open_endpoint(const char *path)
{
	/* Its names are not to be found by the MPI, and those of the MPI's not by it. */
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	struct fi_av_attr of_av = { .type = FI_AV_TABLE };
	struct fi_cq_attr of_cq = { .format = FI_CQ_FORMAT_CONTEXT };
	struct fi_eq_attr of_eq = { 0 };
	struct fi_info *hints, *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;

	if (!library)
		give_up("%s", dlerror());
	__typeof__(&fi_getinfo) getinfo = symbol(library, "fi_getinfo");
	__typeof__(&fi_fabric) open_fabric = symbol(library, "fi_fabric");
	__typeof__(&fi_dupinfo) dupinfo = symbol(library, "fi_dupinfo");

	hints = dupinfo(NULL);
	hints->caps = FI_MSG | FI_COLLECTIVE;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("tcp");
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->mr_mode = ~(FI_MR_BASIC | FI_MR_SCALABLE);
	MUST(getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
	MUST(open_fabric(info->fabric_attr, &fabric, NULL));
	MUST(fi_domain(fabric, info, &domain, NULL));
	MUST(fi_av_open(domain, &of_av, &av, NULL));
	MUST(fi_cq_open(domain, &of_cq, &cq, NULL));
	MUST(fi_eq_open(fabric, &of_eq, &eq, NULL));
	MUST(fi_endpoint(domain, info, &ep, NULL));
	MUST(fi_ep_bind(ep, &av->fid, 0));
	MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(ep, &eq->fid, 0));
	MUST(fi_enable(ep));
	return av;
}

/* Joins all ranks' endpoints in one group. */
static void join(struct fid_av *av)
{
	struct fi_av_set_attr attr = { .count = ranks, .start_addr = 0, .end_addr = ranks - 1, .stride = 1 };
	char *names = room((size_t)ranks * NAME), name[NAME] = { 0 };
	size_t len = sizeof name;
	struct fid_av_set *set;
	struct fid_mc *mc;
	struct fi_eq_entry entry;
	fi_addr_t addr;
	uint32_t event;
	ssize_t done;

	MUST(fi_getname(&ep->fid, name, &len));
	MPI_Allgather(name, NAME, MPI_BYTE, names, NAME, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		if (fi_av_insert(av, names + (size_t)i * NAME, 1, &addr, 0, NULL) != 1)
			give_up("the address of rank %d is not taken", i);
	MUST(fi_av_set(av, &attr, &set, NULL));
	MUST(fi_av_set_addr(set, &addr));
	MUST(fi_join_collective(ep, addr, set, 0, &mc, NULL));
	while ((done = fi_eq_read(eq, &event, &entry, sizeof entry, 0)) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	if (done < 0 || event != FI_JOIN_COMPLETE)
		give_up("the group is not joined: %zd", done);
	group = fi_mc_addr(mc);
	free(names);
}

static void by_library(double *in, double *out, int count)
{
	struct fi_cq_entry entry;
	ssize_t done;

	while ((done = fi_allreduce(ep, in, count, NULL, out, NULL, group, FI_DOUBLE, FI_SUM, 0, NULL)) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	must("fi_allreduce", done);
	while ((done = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
		;
	if (done != 1)
		give_up("fi_allreduce ended in error");
}

static void by_mpi(double *in, double *out, int count)
{
	MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Microseconds a call, of the slowest rank. */
static double measure(void (*call)(double *, double *, int), double *in, double *out, int count, double seconds)
{
	const int first = 10;
	double begin = now(), took;
	long calls;

	for (int i = 0; i < first; i++)
		call(in, out, count);
	calls = (long)(seconds * first / (now() - begin)) + first;
	MPI_Bcast(&calls, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	memset(out, 0, (size_t)count * sizeof *out);
	MPI_Barrier(MPI_COMM_WORLD);
	begin = now();
	for (long i = 0; i < calls; i++)
		call(in, out, count);
	took = (now() - begin) / (double)calls * 1e6;
	for (int i = 0; i < count; i++)
		if (out[i] != ranks * (ranks - 1) / 2.0 + (double)ranks * i)
			give_up("element %d of %d: %g", i, count, out[i]);
	MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return took;
}

static void size(long bytes, int pairs, double seconds)
{
	double mpi[PAIRS], library[PAIRS], ratio[PAIRS];
	int count = (int)(bytes / (long)sizeof(double)), middle = pairs / 2;
	double *in = room(bytes), *out = room(bytes);

	for (int i = 0; i < count; i++)
		in[i] = rank + i;
	for (int p = 0; p < pairs; p++) {
		mpi[p] = measure(by_mpi, in, out, count, seconds);
		library[p] = measure(by_library, in, out, count, seconds);
		ratio[p] = library[p] / mpi[p];
	}
	qsort(mpi, pairs, sizeof *mpi, compare);
	qsort(library, pairs, sizeof *library, compare);
	qsort(ratio, pairs, sizeof *ratio, compare);
	if (!rank) {
		printf("%9ld %12.1f %12.1f %8.2f  (%.2f to %.2f)\n", bytes, mpi[middle], library[middle], ratio[middle], ratio[0],
		       ratio[pairs - 1]);
		fflush(stdout);
	}
	free(in);
	free(out);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int pairs = argc > 2 ? atoi(argv[2]) : 0;

	if (argc < 5 || pairs < 1 || pairs > PAIRS)
		give_up("usage: allreduce LIBRARY PAIRS MILLISECONDS BYTES...");
	join(open_endpoint(argv[1]));
	if (!rank)
		printf("%9s %12s %12s %8s  (%d pairs on %d ranks)\n", "bytes", "MPI us", "library us", "ratio", pairs, ranks);
	for (int i = 4; i < argc; i++)
		size(atol(argv[i]), pairs, atof(argv[3]) * 1e-3);
	MPI_Finalize();
	if (!rank)
		printf("%d ranks, all sums are right\n", ranks);
	return 0;
}
