// The functions of NVIDIA's driver that NIXL's plugin is linked to, for machines without one (run by interop/run): each says that there
// is no device.

enum { CUDA_ERROR_NO_DEVICE = 100 };

int cuCtxSetCurrent(void *context) {
    (void)context;
    return CUDA_ERROR_NO_DEVICE;
}

int cuDeviceGetPCIBusId(char *id, int size, int device) {
    (void)id, (void)size, (void)device;
    return CUDA_ERROR_NO_DEVICE;
}

int cuPointerGetAttributes(unsigned count, void *attributes, void **data, unsigned long long pointer) {
    (void)count, (void)attributes, (void)data, (void)pointer;
    return CUDA_ERROR_NO_DEVICE;
}
