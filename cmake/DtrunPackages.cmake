# `cpack` makes two Debian packages of what is installed: dtrun, what starts and runs jobs, and libdtrun-dev, what programs are
# built with. scripts/package calls it.
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL launcher development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PACKAGE_CONTACT "dtrun maintainers <maintainers@dtrun.invalid>" CACHE STRING "the Maintainer of the packages")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
# xz would take many times as long, and Debian's lintian knows no zstd.
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_LAUNCHER_PACKAGE_NAME dtrun)
set(CPACK_DEBIAN_LAUNCHER_PACKAGE_SECTION net)
set(CPACK_DEBIAN_LAUNCHER_DESCRIPTION "launcher for programs of many processes, as torchrun is for Python
dtrun starts one process per rank, on one node or many, connects them,
supervises them, says which rank failed and why, and leaves nothing behind.

In it are the launcher, its tools, manual pages, and the modules that
programs of libdtrun-dev open: hwloc, TLS and gloo.")
# By dpkg-shlibdeps: glibc, libstdc++, and what the modules need.
set(CPACK_DEBIAN_LAUNCHER_PACKAGE_SHLIBDEPS ON)
# What is opened or started where it is there.
set(CPACK_DEBIAN_LAUNCHER_PACKAGE_RECOMMENDS "openssh-client, libdnnl2 | libdnnl3, libopenblas0")
set(CPACK_DEBIAN_LAUNCHER_PACKAGE_SUGGESTS "elfutils | gdb, libmunge2, openmpi-bin, python3, libdtrun-dev")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libdtrun-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "torch.distributed and DTensor in C++: library and headers
What programs of dtrun are built with: libdtrun.a, headers, packages for
CMake (find_package(dtrun)) and pkg-config, examples.")
# The archive is of this version's programs; a program that links it needs a C++20 compiler and its libstdc++.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "dtrun (= ${PROJECT_VERSION}), g++ (>= 4:12) | clang (>= 1:14)")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "cmake, pkg-config")
include(CPack)
