# What every target of the project has in common, in one place.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # What it needs where a header is precompiled (tests/CMakeLists.txt).
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

add_library(dtrun_flags INTERFACE)
# Code for any address would otherwise call each function of its own unit as one that another
# library may replace, which is never inlined.
target_compile_options(dtrun_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-fno-semantic-interposition>)
if(DTRUN_WARNINGS_AS_ERRORS)
  target_compile_options(dtrun_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
target_compile_definitions(dtrun_flags INTERFACE
  BOOST_ASIO_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED BOOST_FILESYSTEM_NO_DEPRECATED)
if(DTRUN_SANITIZE STREQUAL "address")
  target_compile_options(dtrun_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(dtrun_flags INTERFACE -fsanitize=address,undefined)
elseif(DTRUN_SANITIZE STREQUAL "thread")
  target_compile_options(dtrun_flags INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(dtrun_flags INTERFACE -fsanitize=thread)
  # TSan does not model std::atomic_thread_fence, which Asio's fenced blocks use.
  target_compile_definitions(dtrun_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
elseif(DTRUN_SANITIZE STREQUAL "fuzzer")
  # The fuzz targets alone link libFuzzer itself (tests/fuzz/tests.cmake).
  target_compile_options(dtrun_flags INTERFACE -fsanitize=fuzzer-no-link -fno-omit-frame-pointer)
  if(DTRUN_FUZZ_SANITIZERS)
    target_compile_options(dtrun_flags INTERFACE
      -fsanitize=${DTRUN_FUZZ_SANITIZERS} -fno-sanitize-recover=undefined)
    target_link_options(dtrun_flags INTERFACE -fsanitize=${DTRUN_FUZZ_SANITIZERS})
  endif()
elseif(NOT DTRUN_SANITIZE STREQUAL "")
  message(FATAL_ERROR "DTRUN_SANITIZE is '${DTRUN_SANITIZE}'; it must be empty, address, thread or fuzzer")
endif()

option(DTRUN_UNITY "compile the sources of one folder together: less than half the time" ON)

# dtrun_units(<target> <most>): compiles the sources of each folder of the target together, at most so many in a unit. Units are
# named for the folder, so that a new file moves others only within its own. A source that has properties of its own
# (definitions, options) stays a unit of its own: CMake leaves it out.
function(dtrun_units target most)
  if(NOT DTRUN_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  set(folders)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "${folder}" group)
    list(APPEND folders ${group})
    list(APPEND sources_of_${group} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(group ${folders})
    list(LENGTH sources_of_${group} count)
    math(EXPR units "(${count} + ${most} - 1) / ${most}")
    # Units are of about one length. A file counts 2 KiB at least, and only whole ones, so that few changes of a file move others.
    set(length 0)
    foreach(source ${sources_of_${group}})
      get_filename_component(path ${source} ABSOLUTE)
      file(SIZE ${path} bytes)
      math(EXPR length_of_${group}_${source} "${bytes} / 2048 + 1")
      math(EXPR length "${length} + ${length_of_${group}_${source}}")
    endforeach()
    set(before 0)
    foreach(source ${sources_of_${group}})
      math(EXPR unit "(2 * ${before} + ${length_of_${group}_${source}}) * ${units} / (2 * ${length})")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${unit})
      math(EXPR before "${before} + ${length_of_${group}_${source}}")
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# dtrun_layer(<name> SOURCES <files...> [LINKS <public targets...>] [PRIVATE_LINKS <targets...>])
# The static library of one layer: target dtrun_<name>, alias dtrun::<name>, public headers in
# <name>/include, private ones in <name>/src.
function(dtrun_layer name)
  cmake_parse_arguments(layer "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(dtrun_${name} STATIC ${layer_SOURCES})
  set_property(GLOBAL APPEND PROPERTY DTRUN_LAYERS ${name})
  add_library(dtrun::${name} ALIAS dtrun_${name})
  target_include_directories(dtrun_${name}
    PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
    PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(dtrun_${name} PUBLIC ${layer_LINKS} PRIVATE ${layer_PRIVATE_LINKS} $<BUILD_INTERFACE:dtrun_flags>)
  dtrun_units(dtrun_${name} 12)
endfunction()

# What every test's own file is compiled and linked with. It asserts, it does not compute: -O0 halves its compile time. The
# layers under it keep the preset's flags. What -fsanitize=undefined would check at every use of a pointer in the test itself
# takes as long to compile as all the rest, and the address sanitizer sees a bad one when it is used.
add_library(dtrun_test_main INTERFACE)
target_link_libraries(dtrun_test_main INTERFACE GTest::gtest_main dtrun_flags dtrun_test_flags)
add_library(dtrun_test_flags INTERFACE)
target_compile_options(dtrun_test_flags INTERFACE -O0
  $<$<STREQUAL:${DTRUN_SANITIZE},address>:-fno-sanitize=null,alignment,object-size,vptr>)

# dtrun_test(<layer>/<program> SOURCES <names...> [WITH <files...>] [LINKS <targets...>] [LABEL <label>] [PROCESSORS n] [TIMEOUT s] [COST s]
#            [DEFINITIONS <definitions...>] [DEPENDS <targets...>] [COMPUTES] [ONE_CTEST_TEST])
# One GoogleTest program, <layer>_<program>, of tests/<layer>/<name>_test.cc for each name, compiled together in units of a few
# files; found by CTest test by test. Its label is the layer, or `long` or `torch`. COMPUTES: the files themselves work for
# seconds, and are compiled as the layers are. COST: it takes so many seconds, and is among the first that are begun, so that
# nothing waits for it in the end. ONE_CTEST_TEST: the caller gives the program to CTest.
function(dtrun_test path)
  cmake_parse_arguments(test "COMPUTES;ONE_CTEST_TEST" "PROCESSORS;TIMEOUT;LABEL;COST" "SOURCES;WITH;LINKS;DEFINITIONS;DEPENDS" ${ARGN})
  string(REPLACE "/" "_" target ${path})
  get_filename_component(layer ${path} DIRECTORY)
  list(TRANSFORM test_SOURCES REPLACE "(.+)" "${layer}/\\1_test.cc")
  add_executable(${target} ${test_SOURCES} ${test_WITH})
  dtrun_units(${target} 8)
  if(test_COMPUTES)
    target_link_libraries(${target} PRIVATE dtrun_test_support ${test_LINKS} GTest::gtest_main dtrun_flags)
  else()
    target_link_libraries(${target} PRIVATE dtrun_test_support ${test_LINKS} dtrun_test_main)
  endif()
  target_compile_definitions(${target} PRIVATE ${test_DEFINITIONS})
  if(test_DEPENDS)
    add_dependencies(${target} ${test_DEPENDS})
  endif()
  # tests_<layer> builds the tests of one layer.
  if(NOT TARGET tests_${layer})
    add_custom_target(tests_${layer})
  endif()
  add_dependencies(tests_${layer} ${target})
  # The private headers of the layer under test may be tested too.
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${layer}/src)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/${layer}/src)
  endif()
  if(test_ONE_CTEST_TEST)
    return()
  endif()
  if(NOT test_TIMEOUT)
    set(test_TIMEOUT 300)
  endif()
  # One label only: gtest_discover_tests takes a list of them apart.
  if(NOT test_LABEL)
    set(test_LABEL ${layer})
  endif()
  if(NOT test_PROCESSORS)
    set(test_PROCESSORS 1)
  endif()
  if(NOT test_COST)
    set(test_COST 0)
  endif()
  # Under a sanitizer a process takes up to a second to start: programs that need one processor, which are the pure ones, run as
  # one test, whose output names what failed.
  if(NOT DTRUN_SANITIZE STREQUAL "" AND test_PROCESSORS EQUAL 1)
    add_test(NAME ${target} COMMAND ${target})
    set_tests_properties(${target} PROPERTIES LABELS ${test_LABEL} TIMEOUT 300 COST ${test_COST})
  else()
    gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST
      PROPERTIES LABELS ${test_LABEL} TIMEOUT ${test_TIMEOUT} PROCESSORS ${test_PROCESSORS} COST ${test_COST})
  endif()
endfunction()
