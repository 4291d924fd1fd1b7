# Everything comes from Debian packages (scripts/install-packages) and, for CUDA, from the toolkit.
find_package(Boost 1.81 REQUIRED)
find_package(Threads REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED)
find_path(OPENBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas x86_64-linux-gnu REQUIRED)
find_path(DLPACK_INCLUDE_DIR dlpack/dlpack.h REQUIRED)
# Compiled into its user, so that libdtrun.a needs no library more.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
if(DTRUN_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(DTRUN_BENCH)
  find_package(benchmark REQUIRED)
endif()

set(DTRUN_HAVE_CUDA OFF)
if(NOT DTRUN_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit)
  if(CUDAToolkit_FOUND)
    find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  endif()
  if(CUDAToolkit_FOUND AND NCCL_LIBRARY AND NCCL_INCLUDE_DIR)
    set(DTRUN_HAVE_CUDA ON)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
    enable_language(CUDA)
    # CMake 3.25 does not know yet that nvcc takes this.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    # Of the host's side, which starts kernels and does nothing else; ptxas has its own level. A unit takes 1.2 to 1.6 s less of 10.
    string(REPLACE "-O3" "-O1" CMAKE_CUDA_FLAGS_RELEASE "${CMAKE_CUDA_FLAGS_RELEASE}")
  elseif(DTRUN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DTRUN_CUDA=ON, but no CUDA toolkit with NCCL was found; set CUDAToolkit_ROOT, or DTRUN_CUDA=OFF")
  endif()
endif()
message(STATUS "dtrun: CUDA ${DTRUN_HAVE_CUDA}")

set(DTRUN_GLOO AUTO CACHE STRING "OFF or AUTO: AUTO builds backend gloo where libgloo is found")
find_library(GLOO_LIBRARY gloo)
find_path(GLOO_INCLUDE_DIR gloo/context.h)
set(DTRUN_HAVE_GLOO OFF)
if(NOT DTRUN_GLOO STREQUAL "OFF" AND GLOO_LIBRARY AND GLOO_INCLUDE_DIR)
  set(DTRUN_HAVE_GLOO ON)
endif()
message(STATUS "dtrun: gloo ${DTRUN_HAVE_GLOO}")

# Open MPI's header only: the library itself is opened by the program that needs it.
set(DTRUN_MPI AUTO CACHE STRING "OFF or AUTO: AUTO builds backend mpi where Open MPI is found")
find_path(OPEN_MPI_INCLUDE_DIR mpi.h
  HINTS ENV MPI_HOME
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi /usr/lib64/openmpi /usr/lib/openmpi
  PATH_SUFFIXES include NO_DEFAULT_PATH)
find_library(OPEN_MPI_LIBRARY mpi HINTS ${OPEN_MPI_INCLUDE_DIR}/../lib NO_DEFAULT_PATH)
set(DTRUN_HAVE_MPI OFF)
if(NOT DTRUN_MPI STREQUAL "OFF" AND OPEN_MPI_INCLUDE_DIR AND OPEN_MPI_LIBRARY)
  set(DTRUN_HAVE_MPI ON)
  # libmpi.so -> libmpi.so.40.30.4, whose interface is libmpi.so.40.
  file(REAL_PATH ${OPEN_MPI_LIBRARY} OPEN_MPI_FILE)
  string(REGEX MATCH "libmpi\\.so\\.[0-9]+" OPEN_MPI_SONAME ${OPEN_MPI_FILE})
endif()
message(STATUS "dtrun: mpi ${DTRUN_HAVE_MPI}")

# The lines of the user's program in errors. GCC's libbacktrace: Debian has it beside g++, not clang, which finds the library only.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES backtrace)
check_cxx_source_compiles("#include <backtrace.h>
  int main() { return backtrace_create_state(nullptr, 1, nullptr, nullptr) == nullptr ? 1 : 0; }" DTRUN_HAVE_BACKTRACE)
unset(CMAKE_REQUIRED_LIBRARIES)
message(STATUS "dtrun: libbacktrace ${DTRUN_HAVE_BACKTRACE}")
