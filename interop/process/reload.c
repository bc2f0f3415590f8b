/*
 * The library is loaded, used and unloaded again, many times, and leaves nothing behind: no descriptor, no mapping, no
 * thread.
 *
 *     reload PATH PROVIDER|none
 *
 * With `none` nothing is opened in between. The path is that of libfabric.so.1; this program is not linked to it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define ROUNDS 100
#define FIRST 10        /* rounds that may take what is kept */

struct counts {
	int descriptors, maps, threads;
};

static struct {
	int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
	int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
	void (*freeinfo)(struct fi_info *);
	struct fi_info *(*dupinfo)(const struct fi_info *);
	const char *(*strerror)(int);
} lib;

#define MUST(call) do { int ret_ = (int)(call); if (ret_ < 0) { \
	fprintf(stderr, "rank main: %s: %s\n", #call, lib.strerror(-ret_)); exit(1); } } while (0)

static int entries(const char *folder)
{
	DIR *dir = opendir(folder);
	int count = 0;

	if (!dir)
		return -1;
	while (readdir(dir))
		count++;
	closedir(dir);
	/* Not `.` and `..`. */
	return count - 2;
}

static struct counts count(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	struct counts now = { 0 };
	int c;

	while (maps && (c = getc(maps)) != EOF)
		now.maps += c == '\n';
	if (maps)
		fclose(maps);
	/* Not the one of the folder that is read. */
	now.descriptors = entries("/proc/self/fd") - 1;
	now.threads = entries("/proc/self/task");
	return now;
}

static bool is_loaded(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);

	if (handle)
		dlclose(handle);
	return handle != NULL;
}

/* Two endpoints in one process; one message from a thread of its own. */
static void *use(void *provider)
{
	struct fi_info *hints = lib.dupinfo(NULL), *info;
	bool tcp = !strcmp(provider, "tcp");
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep[2];
	struct fid_cq *cq[2];
	struct fid_av *av;
	unsigned char name[256];
	size_t len = sizeof name;
	char word[8] = "nothing";
	struct fi_context2 context[2];
	struct fi_cq_tagged_entry entry;
	fi_addr_t to;
	ssize_t n;

	hints->caps = FI_MSG | FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->fabric_attr->prov_name = strdup(provider);
	MUST(lib.getinfo(FI_VERSION(1, 17), tcp ? "127.0.0.1" : NULL, NULL, tcp ? FI_SOURCE : 0, hints, &info));
	lib.freeinfo(hints);
	MUST(lib.fabric(info->fabric_attr, &fabric, NULL));
	MUST(fi_domain(fabric, info, &domain, NULL));
	MUST(fi_av_open(domain, &av_attr, &av, NULL));
	for (int i = 0; i < 2; i++) {
		MUST(fi_cq_open(domain, &cq_attr, &cq[i], NULL));
		MUST(fi_endpoint(domain, info, &ep[i], NULL));
		MUST(fi_ep_bind(ep[i], &av->fid, 0));
		MUST(fi_ep_bind(ep[i], &cq[i]->fid, FI_TRANSMIT | FI_RECV));
		MUST(fi_enable(ep[i]));
	}
	MUST(fi_getname(&ep[1]->fid, name, &len));
	if (fi_av_insert(av, name, 1, &to, 0, NULL) != 1)
		exit(1);
	MUST(fi_trecv(ep[1], word, sizeof word, NULL, FI_ADDR_UNSPEC, 1, 0, &context[1]));
	while ((n = fi_tsend(ep[0], "arrived", 8, NULL, to, 1, &context[0])) == -FI_EAGAIN)
		fi_cq_read(cq[0], &entry, 1);
	MUST(n);
	for (int i = 0; i < 2; i++) {
		/* Both look: with manual progress one alone would wait for the other. */
		while ((n = fi_cq_read(cq[i], &entry, 1)) == -FI_EAGAIN)
			fi_cq_read(cq[!i], NULL, 0);
		MUST(n);
	}
	if (strcmp(word, "arrived")) {
		fprintf(stderr, "rank main: received \"%s\"\n", word);
		exit(1);
	}
	for (int i = 0; i < 2; i++) {
		MUST(fi_close(&ep[i]->fid));
		MUST(fi_close(&cq[i]->fid));
	}
	MUST(fi_close(&av->fid));
	MUST(fi_close(&domain->fid));
	MUST(fi_close(&fabric->fid));
	lib.freeinfo(info);
	return NULL;
}

/* Finds nothing, but makes the library look for all providers. */
static void *look(void *unused)
{
	struct fi_info *info = NULL;

	(void)unused;
	if (!lib.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info))
		lib.freeinfo(info);
	lib.strerror(FI_EAGAIN);
	return NULL;
}

int main(int argc, char **argv)
{
	struct counts first = { 0 }, last;
	bool unloaded = true;

	if (argc != 3)
		return 2;
	for (int round = 0; round < ROUNDS; round++) {
		void *handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
		pthread_t thread;

		if (!handle) {
			fprintf(stderr, "rank main: round %d: %s\n", round, dlerror());
			return 1;
		}
		lib.getinfo = dlsym(handle, "fi_getinfo");
		lib.fabric = dlsym(handle, "fi_fabric");
		lib.freeinfo = dlsym(handle, "fi_freeinfo");
		lib.dupinfo = dlsym(handle, "fi_dupinfo");
		lib.strerror = dlsym(handle, "fi_strerror");
		/* A thread that has used the library may live on when that is unloaded, or end before. */
		if (pthread_create(&thread, NULL, strcmp(argv[2], "none") ? use : look, argv[2]))
			return 1;
		pthread_join(thread, NULL);
		if (round % 2)
			strcmp(argv[2], "none") ? use(argv[2]) : look(NULL);
		dlclose(handle);
		unloaded &= !is_loaded(argv[1]);
		last = count();
		if (round == FIRST)
			first = last;
	}
	printf("reload: %s; %d descriptors, %d maps, %d threads after %d rounds; %d, %d, %d after %d\n",
	       unloaded ? "unloaded each time" : "stays", first.descriptors, first.maps, first.threads, FIRST,
	       last.descriptors, last.maps, last.threads, ROUNDS);
	/* The allocator may still take a mapping or two; a leak would take one each round. */
	if (last.descriptors > first.descriptors || last.threads > first.threads || last.maps > first.maps + 8) {
		fprintf(stderr, "rank main: something is left behind each time\n");
		return 1;
	}
	return 0;
}
