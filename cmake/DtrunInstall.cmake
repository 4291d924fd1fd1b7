# `cmake --install` puts down the binary, the libraries, the public headers and a package for find_package(dtrun).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/dtrun)
get_property(layers GLOBAL PROPERTY DTRUN_LAYERS)
foreach(layer ${layers})
  set_target_properties(dtrun_${layer} PROPERTIES EXPORT_NAME ${layer})
  install(TARGETS dtrun_${layer} EXPORT dtrun_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${layer}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
set_target_properties(dtrun_dtrun PROPERTIES EXPORT_NAME dtrun)
install(TARGETS dtrun_dtrun EXPORT dtrun_targets)
# dtrun_launch, the launcher as a library, stays at home.
install(TARGETS dtrun_launcher dtrun_store RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(DTRUN_SANITIZE STREQUAL "")
  install(FILES ${PROJECT_BINARY_DIR}/launcher/dtrun.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${PROJECT_BINARY_DIR}/launcher/dtrun.bash RENAME dtrun
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endif()
# Only when asked for (cmake --install BUILD --component torch_links): PyTorch's own torchrun may be in the same folder.
foreach(link torchrun torch.distributed.launch)
  install(CODE "file(CREATE_LINK dtrun \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/${link}\" SYMBOLIC)"
    COMPONENT torch_links EXCLUDE_FROM_ALL)
endforeach()
install(EXPORT dtrun_targets NAMESPACE dtrun:: DESTINATION ${package_folder})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/dtrunConfig.cmake.in ${PROJECT_BINARY_DIR}/dtrunConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dtrunConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dtrunConfig.cmake ${PROJECT_BINARY_DIR}/dtrunConfigVersion.cmake DESTINATION ${package_folder})
