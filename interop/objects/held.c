/* Opens a fabric of the provider `tiny`, and closes it twice: the first time its provider refuses. */

#include <stdio.h>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

int main(void)
{
    struct fi_fabric_attr attr = { .prov_name = "tiny", .name = "tiny" };
    struct fid_fabric *fabric = NULL;
    int here, opened, refused, closed;

    opened = fi_fabric(&attr, &fabric, &here);
    if (opened || !fabric || fabric->fid.context != &here) {
        printf("fi_fabric: %d\n", opened);
        return 1;
    }
    refused = fi_close(&fabric->fid);
    closed = fi_close(&fabric->fid);
    printf("refused %d, closed %d\n", refused, closed);
    return refused != -FI_EBUSY || closed != 0;
}
