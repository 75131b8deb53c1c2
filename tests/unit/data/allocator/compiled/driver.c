/* A CUDA runtime and driver without a device: memory is bookkeeping, nothing is ever computed.
 *
 * torch's compiled allocator (libc10_cuda.so) runs on it unchanged, which shows what the allocator
 * decides on a machine without a GPU. Every call that changes memory prints a line:
 *
 *   S address bytes   a segment from cudaMalloc        R address bytes   one back by cudaFree
 *   V address bytes   a range of addresses             M/U address bytes a page mapped, unmapped
 *
 * Addresses rise, with a page between segments; with STUB_ALTERNATE set every second segment lies
 * below all others, so that age and address differ.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_MEMORY 2
#define PAGE (2ull << 20)
#define MOST 65536

static uint64_t total = 1ull << 44, used, rising = 1ull << 32, falling = 1ull << 46;
static uint64_t begins[MOST], sizes[MOST];
static int held, alternate = -1;
static uint64_t handle_sizes[1 << 20], handles = 1;

void stub_set_total(uint64_t bytes) { total = bytes; }

static uint64_t pages(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static uint64_t fresh(uint64_t bytes) {
  if (alternate < 0 && (alternate = getenv("STUB_ALTERNATE") != NULL)) rising = 1ull << 46;
  if (alternate && ++alternate % 2) return falling -= pages(bytes) + PAGE;
  uint64_t address = rising;
  rising += pages(bytes) + PAGE;
  return address;
}

static int say(const char *what, uint64_t address, uint64_t bytes) {
  printf("%s %llu %llu\n", what, (unsigned long long)address, (unsigned long long)bytes);
  return 0;
}

/* -- runtime ------------------------------------------------------------------------------------ */

int cudaMalloc(void **pointer, size_t bytes) {
  if (used + pages(bytes) > total || held == MOST) return OUT_OF_MEMORY;
  used += pages(bytes);
  begins[held] = fresh(bytes);
  sizes[held] = bytes;
  *pointer = (void *)begins[held];
  return say("S", begins[held++], bytes);
}

int cudaFree(void *pointer) {
  for (int i = 0; i < held; i++) {
    if (begins[i] != (uint64_t)pointer) continue;
    used -= pages(sizes[i]);
    say("R", begins[i], sizes[i]);
    begins[i] = begins[--held];
    sizes[i] = sizes[held];
    return 0;
  }
  return 0; /* a null pointer */
}

int cudaMemGetInfo(size_t *left, size_t *all) { *left = total - used; *all = total; return 0; }
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaSetDevice(int device) { (void)device; return 0; }
int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int cudaGetLastError(void) { return 0; }
const char *cudaGetErrorString(int error) { (void)error; return "no device"; }
const char *cudaGetErrorName(int error) { (void)error; return "no device"; }
int cudaStreamIsCapturing(void *stream, int *status) { (void)stream; *status = 0; return 0; }
int cudaStreamSynchronize(void *stream) { (void)stream; return 0; }
int cudaStreamQuery(void *stream) { (void)stream; return 0; }
int cudaDeviceSynchronize(void) { return 0; }
int cudaDriverGetVersion(int *version) { *version = 13000; return 0; }
int cudaThreadExchangeStreamCaptureMode(int *mode) { (void)mode; return 0; }
int cudaDeviceGetStreamPriorityRange(int *low, int *high) { *low = 0; *high = -1; return 0; }

/* Of the properties the allocator reads the memory size: after name, uuid, luid and node mask. */
static int properties(char *found) {
  memset(found, 0, 288);
  memcpy(found + 288, &total, sizeof total);
  return 0;
}
int cudaGetDeviceProperties(char *found, int device) { (void)device; return properties(found); }
int cudaGetDeviceProperties_v2(char *found, int device) { (void)device; return properties(found); }

/* -- driver ------------------------------------------------------------------------------------- */

int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t a, uint64_t b, uint64_t c) {
  (void)a, (void)b, (void)c;
  return say("V", *address = fresh(bytes), bytes);
}
int cuMemAddressFree(uint64_t address, size_t bytes) { (void)address, (void)bytes; return 0; }
int cuMemCreate(uint64_t *handle, size_t bytes, const void *a, uint64_t b) {
  (void)a, (void)b;
  if (used + pages(bytes) > total) return OUT_OF_MEMORY;
  used += pages(bytes);
  handle_sizes[*handle = handles++] = bytes;
  return 0;
}
int cuMemRelease(uint64_t handle) { used -= pages(handle_sizes[handle]); return 0; }
int cuMemMap(uint64_t address, size_t bytes, size_t a, uint64_t b, uint64_t c) {
  (void)a, (void)b, (void)c;
  return say("M", address, bytes);
}
int cuMemUnmap(uint64_t address, size_t bytes) { return say("U", address, bytes); }
int cuMemSetAccess(uint64_t a, size_t b, const void *c, size_t d) { (void)a, (void)b, (void)c, (void)d; return 0; }
int cuMemGetAllocationGranularity(size_t *bytes, const void *a, int b) { (void)a, (void)b; *bytes = PAGE; return 0; }
int cuGetErrorString(int error, const char **text) { (void)error; *text = "no device"; return 0; }
int cuDeviceGetAttribute(int *value, int a, int b) { (void)a, (void)b; *value = 0; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)1; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) { (void)id; *device = (void *)1; return 0; }
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *a) { (void)device, (void)a; *count = 0; return 0; }
int nvmlDeviceGetGpuFabricInfoV(void) { return 0; }

static int refused(void) { return 999; }
static int entry(const char *name, void **function) {
  if (!(*function = dlsym(RTLD_DEFAULT, name))) *function = (void *)refused;
  return 0;
}
int cudaGetDriverEntryPoint(const char *name, void **function, uint64_t flags, int *status) {
  (void)flags;
  if (status) *status = 0;
  return entry(name, function);
}
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, uint64_t flags, int *status) {
  (void)version;
  return cudaGetDriverEntryPoint(name, function, flags, status);
}
