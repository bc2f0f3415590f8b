/*
 * What the files of this program share. main.c tells what it does.
 *
 * A call is described by facts: its parameters, and for each what it is, down to the fields of the structures it points
 * to. From these vary.c makes the cases; nobody writes them down.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>

/* What a parameter or a field is, and so what is tried for it. */
enum kind {
	END,
	POINTER,	/* NULL */
	STRUCT,		/* NULL, and all of its fields in turn */
	NUMBER,		/* 0, 1 and the maximum */
	CHOICE,		/* each value of the enum, the one behind the last, and the maximum */
	FLAGS,		/* none, each bit alone, and the known ones in pairs */
	BITS,		/* none, and each bit alone: where pairs take too long */
};

struct bit {
	const char *name;
	uint64_t value;
};

struct field {
	const char *name;
	enum kind kind;
	size_t offset, size;
	const void *facts;	/* STRUCT: its fields; FLAGS, BITS: the known bits */
	uint64_t last;		/* CHOICE: the last value */
};

#define PARAMS 12

/* A call; its parameters are fields of 8 bytes each, one behind the other. */
struct call {
	const char *name;
	struct field params[PARAMS + 1];
	/* Fills in what a program passes as a rule, structures too: before each case. */
	void (*usual)(uint64_t *values);
	/* Makes the call, and what belongs to it: closes what it opened, or looks how an operation ended. */
	long (*make)(const uint64_t *values);
};

/* Calls that are tried on the same objects. */
struct group {
	const char *name;
	/* Opens the objects, in a process of the group's own. */
	void (*open)(void);
	const struct call *calls;
	/* A case that was accepted ends its process: what it leaves behind would meet the next one. */
	bool alone;
};

/* A parameter: its number, name, and what it is. */
#define AT(n, name) name, .offset = 8 * (n), .size = 8
#define P_POINTER(n, name) { AT(n, name), .kind = POINTER }
#define P_NUMBER(n, name) { AT(n, name), .kind = NUMBER }
#define P_FLAGS(n, name, bits) { AT(n, name), .kind = FLAGS, .facts = bits }
#define P_BITS(n, name, bits) { AT(n, name), .kind = BITS, .facts = bits }
#define P_CHOICE(n, name, top) { AT(n, name), .kind = CHOICE, .last = top }
#define P_STRUCT(n, name, fields) { AT(n, name), .kind = STRUCT, .facts = fields }

/* A field of a structure. */
#define IN(type, f) #f, .offset = offsetof(type, f), .size = sizeof(((type *)0)->f)
#define F_POINTER(type, f) { IN(type, f), .kind = POINTER }
#define F_NUMBER(type, f) { IN(type, f), .kind = NUMBER }
#define F_FLAGS(type, f, bits) { IN(type, f), .kind = FLAGS, .facts = bits }
#define F_BITS(type, f, bits) { IN(type, f), .kind = BITS, .facts = bits }
#define F_CHOICE(type, f, top) { IN(type, f), .kind = CHOICE, .last = top }
#define F_STRUCT(type, f, fields) { IN(type, f), .kind = STRUCT, .facts = fields }

#define PTR(n) ((void *)(uintptr_t)values[n])
#define VALUE(pointer) ((uint64_t)(uintptr_t)(pointer))

/* facts.c: the structures and the bits. */
extern const struct field info_fields[], av_fields[], cq_fields[], cntr_fields[], eq_fields[], wait_fields[],
	poll_fields[], tx_fields[], rx_fields[], mr_fields[], av_set_fields[], fabric_fields[], iovec_fields[], msg_fields[],
	tagged_fields[], rma_msg_fields[], rma_iov_fields[], atomic_msg_fields[], rma_ioc_fields[], ioc_fields[],
	collective_attr_fields[], length_fields[], send_work_fields[], tagged_work_fields[],
	rma_work_fields[], atomic_work_fields[], fetch_work_fields[], compare_work_fields[], cntr_work_fields[];
extern const struct bit caps_bits[], mode_bits[], operation_bits[], order_bits[], mr_bits[], access_bits[],
	getinfo_bits[], set_bits[], none_bits[];

/* main.c: the cases of a group, each begun and ended. */
bool trial(const char *call, const char *path, const char *value);
void result(long returned);
/* Adds to what is printed of the case, behind what the call returned. */
void remark(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What was said so far is no part of the case. */
void forget(void);
/* Ends the process: something that the cases build on cannot be had. */
void require(long returned, const char *what);

/* vary.c */
void try_all(const struct call *call);

/* rig.c: the objects that calls are made on. */
struct rig {
	const char *provider;
	enum fi_ep_type type;
	uint64_t caps;	/* asked for, where the provider has them; with FI_COLLECTIVE endpoints have the event queue */
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_av *av;
	/* Two endpoints that reach each other, each with a queue, and memory that they reach. */
	struct fid_ep *ep, *peer;
	struct fid_cq *cq, *peer_cq;
	struct fid_pep *pep;
	fi_addr_t to_peer, to_ep;
	struct fid_mr *mr;
	uint64_t target, key;
};
extern struct rig rig;

/* What peers may reach. */
extern char target[4096];

struct fi_info *ask(void);
void open_nothing(void);
void open_domain(void);
void open_pair(void);
/* An endpoint with a queue of its own, ready to be connected or used. */
struct fid_ep *open_ep(struct fi_info *info, struct fid_cq **cq);
/* Makes progress on both, and hands an entry of a queue to `see`, with 0 or the error. */
void pump(void (*see)(bool ours, const struct fi_cq_tagged_entry *entry, int error));
/* The info of the rig, copied to a place where a case may change it. */
struct fi_info *usual_info(void);
/* Closes what a call opened, if it did. */
long opened(long returned, struct fid **object);

extern const struct group getinfo_group, open_group, msg_group, rma_group, atomic_group, control_group, collective_group,
	connect_group, objects_group, work_group;
