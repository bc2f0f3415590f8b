/* An object as users drop it beside the library: a provider with what is defined when it is compiled, or none. */

#include <stddef.h>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>

#ifndef PROVIDER_NAME
#define PROVIDER_NAME "tiny"
#endif
#ifndef INTERFACE
#define INTERFACE FI_VERSION(1, 17)
#endif

#ifndef NO_ENTRY

static int no_info(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
                   struct fi_info **info)
{
    (void)version, (void)node, (void)service, (void)flags, (void)hints, (void)info;
    return -FI_ENODATA;
}

#ifndef NO_FABRIC
static int closes;

/* The first time something in the fabric seems to be open. */
static int close_fabric(struct fid *fid)
{
    (void)fid;
    return closes++ == 0 ? -FI_EBUSY : 0;
}

static struct fi_ops operations = { .size = sizeof operations, .close = close_fabric };

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    static struct fid_fabric only;

    (void)attr;
    only.fid.fclass = FI_CLASS_FABRIC;
    only.fid.context = context;
    only.fid.ops = &operations;
    *fabric = &only;
    return 0;
}
#else
#define open_fabric NULL
#endif

static struct fi_provider provider = {
    .version = FI_VERSION(1, 0),
    .fi_version = INTERFACE,
    .name = PROVIDER_NAME,
    .getinfo = no_info,
    .fabric = open_fabric,
};

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void)
{
    return RETURNED;
}

#else

int nothing_to_see(void)
{
    return 0;
}

#endif
