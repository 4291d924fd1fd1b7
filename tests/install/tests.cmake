# What `cmake --install` puts down serves a project outside the tree.
if(DTRUN_SANITIZE STREQUAL "")
  add_test(NAME install.AProjectOutsideTheTreeBuildsAgainstWhatIsInstalled
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/build_consumer ${PROJECT_BINARY_DIR})
  set_tests_properties(install.AProjectOutsideTheTreeBuildsAgainstWhatIsInstalled PROPERTIES LABELS install TIMEOUT 120 PROCESSORS 2)
endif()
