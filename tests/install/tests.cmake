# What the README and the pages tell a newcomer to do is done, word for word, in folders of their own under the build.
if(DTRUN_SANITIZE STREQUAL "")
  set(install_test ${CMAKE_CURRENT_SOURCE_DIR}/install/install_test ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  add_test(NAME install.TheFirstProgramIsBuiltAsItsPageSays COMMAND ${install_test} first_steps)
  set_tests_properties(install.TheFirstProgramIsBuiltAsItsPageSays PROPERTIES FIXTURES_SETUP installed TIMEOUT 600)
  foreach(pair "readme,TheProgramOfTheReadmeRuns" "tensors,TheProgramsOfThePageOnTensorsRun" "dtensor,TheProgramsOfThePageOnDTensorRun"
      "moved,WhatIsInstalledMayBeMoved" "libraries,LibrariesAreOpenedWhenTheyAreNeeded"
      "manuals,ManualPagesNameWhatIsInstalled" "packages,PackagesHoldWhatIsInstalled" "clang,ClangCompilesTheFirstProgram")
    string(REGEX MATCH "^([a-z]+),(.*)$" _ ${pair})
    add_test(NAME install.${CMAKE_MATCH_2} COMMAND ${install_test} ${CMAKE_MATCH_1})
    set_tests_properties(install.${CMAKE_MATCH_2} PROPERTIES FIXTURES_REQUIRED installed TIMEOUT 120 SKIP_REGULAR_EXPRESSION "^skipped: ")
  endforeach()
  get_property(tests DIRECTORY PROPERTY TESTS)
  list(FILTER tests INCLUDE REGEX "^install\\.")
  set_tests_properties(${tests} PROPERTIES LABELS install PROCESSORS 2)
endif()
