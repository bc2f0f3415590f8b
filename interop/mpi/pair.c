/* Two ranks that exchange messages as they are told over a socket, and say what that took: `ripstop-bench compare --mpi`.
 *
 *     pair SOCKET [CORE CORE]
 *
 * Each rank connects to the socket and says `rank PATH`, with the libfabric.so.1 that it has loaded or `-`. Then it obeys lines
 * of the form `KIND BYTES COUNT BEFORE DEPTH`, where BEFORE messages do not count, and answers each with nanoseconds. It sleeps
 * while there is no line. All messages are in one buffer, and all receives in another: nobody looks at them. */
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "say.h"

enum { DATA = 1, ACK = 2, MAX_DEPTH = 1024 };

static char *from, *into;
static int size, depth, peer;

static void recv_start(MPI_Request *request)
{
	MPI_Irecv(into, size, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, request);
}

static void send_start(MPI_Request *request)
{
	MPI_Isend(from, size, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, request);
}

static void finish(MPI_Request *request)
{
	MPI_Wait(request, MPI_STATUS_IGNORE);
}

/* There and back. */
static void latency(int count)
{
	for (int i = 0; i < count; i++) {
		if (!rank)
			MPI_Send(from, size, MPI_BYTE, peer, DATA, MPI_COMM_WORLD);
		MPI_Recv(into, size, MPI_BYTE, peer, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank)
			MPI_Send(from, size, MPI_BYTE, peer, DATA, MPI_COMM_WORLD);
	}
}

/* One each way at once. */
static void exchange(int count)
{
	for (int i = 0; i < count; i++)
		MPI_Sendrecv(from, size, MPI_BYTE, peer, DATA, into, size, MPI_BYTE, peer, DATA, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
}

/* Rank 0 sends; at most `depth` are not acknowledged. Rank 1 acknowledges half as many at once; `count` is a multiple. */
static void stream(int count)
{
	static MPI_Request requests[MAX_DEPTH];
	int batch = depth > 1 ? depth / 2 : 1, acknowledged = 0, started = 0;
	char ack[8] = {0};

	for (int i = 0; i < depth; i++)
		requests[i] = MPI_REQUEST_NULL;
	for (int i = 0; i < count; i++) {
		MPI_Request *request = &requests[i % depth];

		if (!rank) {
			if (i - acknowledged == depth) {
				MPI_Recv(ack, sizeof ack, MPI_BYTE, peer, ACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				acknowledged += batch;
			}
			finish(request);
			send_start(request);
		} else {
			for (; started < count && started < i + depth; started++)
				recv_start(&requests[started % depth]);
			finish(request);
			if ((i + 1) % batch == 0)
				MPI_Send(ack, sizeof ack, MPI_BYTE, peer, ACK, MPI_COMM_WORLD);
		}
	}
	for (; !rank && acknowledged < count; acknowledged += batch)
		MPI_Recv(ack, sizeof ack, MPI_BYTE, peer, ACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Waitall(depth, requests, MPI_STATUSES_IGNORE);
}

/* Both send; what comes acknowledges what went. */
static void streams_both_ways(int count)
{
	static MPI_Request sends[MAX_DEPTH], receives[2 * MAX_DEPTH];
	int room = 2 * depth, started = 0, received = 0;

	for (int i = 0; i < depth; i++)
		sends[i] = MPI_REQUEST_NULL;
	for (int i = 0; i < count; i++) {
		for (; started < count && started < received + room; started++)
			recv_start(&receives[started % room]);
		finish(&sends[i % depth]);
		send_start(&sends[i % depth]);
		for (; i - received >= depth - 1 && received < count; received++)
			finish(&receives[received % room]);
	}
	for (; received < count; received++) {
		if (started < count)
			recv_start(&receives[started++ % room]);
		finish(&receives[received % room]);
	}
	MPI_Waitall(depth, sends, MPI_STATUSES_IGNORE);
}

static const struct {
	const char *name;
	void (*run)(int count);
} KINDS[] = {
	{"latency", latency}, {"exchange", exchange}, {"stream", stream}, {"streams-both-ways", streams_both_ways},
};

/* Carries out a line, and gives nanoseconds. */
static long long obey(const char *line)
{
	char name[32];
	int count, before;

	if (sscanf(line, "%31s %d %d %d %d", name, &size, &count, &before, &depth) != 5 || size < 0 || depth < 1 ||
	    depth > MAX_DEPTH)
		give_up("an order that makes no sense: %s", line);
	free(from);
	free(into);
	from = memset(room((size_t)size), 1, (size_t)size);
	into = memset(room((size_t)size), 2, (size_t)size);
	for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
		struct timespec start, end;

		if (strcmp(KINDS[k].name, name))
			continue;
		KINDS[k].run(before);
		clock_gettime(CLOCK_MONOTONIC, &start);
		KINDS[k].run(count);
		clock_gettime(CLOCK_MONOTONIC, &end);
		return (end.tv_sec - start.tv_sec) * 1000000000LL + end.tv_nsec - start.tv_nsec;
	}
	give_up("no such kind: %s", name);
	return 0;
}

/* The libfabric.so.1 that this process has loaded. */
static const char *loaded(void)
{
	static char line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof line, maps)) {
		char *path = strchr(line, '/');

		if (path && strstr(path, "/libfabric.so")) {
			path[strcspn(path, "\n")] = 0;
			fclose(maps);
			return path;
		}
	}
	if (maps)
		fclose(maps);
	return "-";
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char line[256];
	FILE *orders;
	int fd;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2 || (argc != 2 && argc != 4) || strlen(argv[1]) >= sizeof address.sun_path)
		give_up("start it with two ranks as: pair SOCKET [CORE CORE]");
	peer = !rank;
	if (argc == 4) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET((size_t)atoi(argv[2 + rank]), &set);
		if (sched_setaffinity(0, sizeof set, &set))
			give_up("cannot run on core %s", argv[2 + rank]);
	}
	strcpy(address.sun_path, argv[1]);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) || !(orders = fdopen(fd, "r")))
		give_up("cannot connect to %s", argv[1]);
	dprintf(fd, "%d %s\n", rank, loaded());
	while (fgets(line, sizeof line, orders))
		dprintf(fd, "%lld\n", obey(line));
	MPI_Finalize();
	return 0;
}
