# `cmake --install` puts down the programs, one archive of all layers with its headers, a package for find_package(dtrun) and
# one for pkg-config, manual pages and documents. Nothing of it knows where it lies: the folder may be moved. Its components are
# the packages of DtrunPackages.cmake: `launcher`, unless another is named, and `development`.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME launcher)

# The whole worker side as one file: libdtrun.a, and dtrun::dtrun to who finds the package.
get_property(layers GLOBAL PROPERTY DTRUN_LAYERS)
set(objects)
foreach(layer ${layers})
  list(APPEND objects $<TARGET_OBJECTS:dtrun_${layer}>)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${layer}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
endforeach()
get_property(parts_of_layers GLOBAL PROPERTY DTRUN_PARTS_OF_LAYERS)
foreach(part ${parts_of_layers})
  list(APPEND objects $<TARGET_OBJECTS:${part}>)
endforeach()
add_library(dtrun_archive STATIC EXCLUDE_FROM_ALL ${objects})
set_target_properties(dtrun_archive PROPERTIES OUTPUT_NAME dtrun EXPORT_NAME dtrun LINKER_LANGUAGE CXX)
target_compile_features(dtrun_archive INTERFACE cxx_std_20)
target_include_directories(dtrun_archive INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(dtrun_archive INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
set(parts dtrun_archive dtrun_launcher dtrun_bench dtrun_ckpt dtrun_doctor dtrun_explain dtrun_jobs dtrun_plan dtrun_store)
set(package_links "-L\${libdir} -ldtrun -pthread -ldl")
if(DTRUN_HAVE_CUDA)
  # With the CUDA runtime in it, who links it needs no toolkit.
  get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/add_cudart.mri CONTENT "open libdtrun.a\naddlib ${cudart}\nsave\nend\n")
  add_custom_command(TARGET dtrun_archive POST_BUILD WORKING_DIRECTORY ${PROJECT_BINARY_DIR} VERBATIM
    COMMAND sh -c "\"$0\" -M < add_cudart.mri" ${CMAKE_AR})
  target_link_libraries(dtrun_archive INTERFACE rt)
  string(APPEND package_links " -lrt")
endif()
if(DTRUN_HAVE_BACKTRACE)
  # In it, who links it may have another compiler.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libbacktrace.a OUTPUT_VARIABLE backtrace OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/add_backtrace.mri CONTENT "open libdtrun.a\naddlib ${backtrace}\nsave\nend\n")
  add_custom_command(TARGET dtrun_archive POST_BUILD WORKING_DIRECTORY ${PROJECT_BINARY_DIR} VERBATIM
    COMMAND sh -c "\"$0\" -M < add_backtrace.mri" ${CMAKE_AR})
endif()
list(APPEND parts dtrun_hwloc dtrun_tls)
install(TARGETS dtrun_hwloc dtrun_tls LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(DTRUN_HAVE_GLOO)
  list(APPEND parts dtrun_gloo)
  install(TARGETS dtrun_gloo LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# Where programs look for the modules that they open.
target_link_options(dtrun_archive INTERFACE $<INSTALL_INTERFACE:-Wl,-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}>)
string(APPEND package_links " -Wl,-rpath,\${libdir}")

# What is not built yet, is: who has built the demo only may install. dtrun_launch, the launcher as a library, stays at home.
install(CODE "if(NOT CMAKE_INSTALL_COMPONENT STREQUAL torch_links)
  execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${PROJECT_BINARY_DIR}\" --parallel --target dtrun_installed COMMAND_ERROR_IS_FATAL ANY)
endif()" ALL_COMPONENTS)
install(TARGETS dtrun_launcher dtrun_bench dtrun_ckpt dtrun_doctor dtrun_explain dtrun_jobs dtrun_plan dtrun_store RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS dtrun_archive EXPORT dtrun_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)

install(FILES ${PROJECT_SOURCE_DIR}/tools/dtrun-bench.1 ${PROJECT_SOURCE_DIR}/tools/dtrun-ckpt.1
  ${PROJECT_SOURCE_DIR}/tools/dtrun-doctor.1 ${PROJECT_SOURCE_DIR}/tools/dtrun-explain.1 ${PROJECT_SOURCE_DIR}/tools/dtrun-jobs.1
  ${PROJECT_SOURCE_DIR}/tools/dtrun-plan.1 ${PROJECT_SOURCE_DIR}/tools/dtrun-store.1
  DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
# "man dtrun-ps", too: a command of dtrun that dtrun-jobs carries out.
foreach(command ps status stacks attach signal)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/tools/dtrun-${command}.1 CONTENT ".so man1/dtrun-jobs.1\n")
  install(FILES ${PROJECT_BINARY_DIR}/tools/dtrun-${command}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endforeach()
if(DTRUN_SANITIZE STREQUAL "")
  list(APPEND parts dtrun_references)
  install(FILES ${PROJECT_BINARY_DIR}/launcher/dtrun.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${PROJECT_BINARY_DIR}/launcher/dtrun.bash RENAME dtrun
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endif()
# The manual pages name them: docs/elastic.md is share/doc/dtrun/docs/elastic.md.
install(FILES ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development
  PATTERN CMakeLists.txt EXCLUDE)
# Only when asked for (cmake --install BUILD --component torch_links): PyTorch's own torchrun may be in the same folder.
foreach(link torchrun torch.distributed.launch)
  install(CODE "set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
file(MAKE_DIRECTORY \"\${folder}\")
file(CREATE_LINK dtrun \"\${folder}/${link}\" SYMBOLIC)"
    COMPONENT torch_links EXCLUDE_FROM_ALL)
endforeach()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/dtrun)
install(EXPORT dtrun_targets NAMESPACE dtrun:: DESTINATION ${package_folder} COMPONENT development)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/dtrunConfig.cmake.in ${PROJECT_BINARY_DIR}/dtrunConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dtrunConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dtrunConfig.cmake ${PROJECT_BINARY_DIR}/dtrunConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT development)

file(RELATIVE_PATH package_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/dtrun.pc.in ${PROJECT_BINARY_DIR}/dtrun.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/dtrun.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

add_custom_target(dtrun_installed)
add_dependencies(dtrun_installed ${parts})
