// Stands for CUDA's driver: three devices, of which one does not say where it is.
#include <cstring>

extern "C" {

int cuInit(unsigned) {
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 3;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal + 10;
  return 0;
}
int cuDeviceGetPCIBusId(char* address, int size, int device) {
  if (device == 11) return 101;
  std::strncpy(address, device == 10 ? "0000:af:00.0" : "0000:3b:00.0",
               static_cast<std::size_t>(size));
  return 0;
}

}  // extern "C"
