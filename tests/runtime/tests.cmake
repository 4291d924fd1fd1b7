add_executable(misbehave runtime/workers/misbehave.cc)
target_link_libraries(misbehave PRIVATE dtrun::dtrun dtrun_flags)

foreach(name job start)
  dtrun_test(runtime/${name}_test.cc LINKS dtrun::base GTest::gmock PROCESSORS 2)
  target_compile_definitions(runtime_${name}_test PRIVATE DTRUN_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_dependencies(runtime_${name}_test misbehave hello dtrun_launcher)
endforeach()
# The promise is a thousand of a thousand; the long form keeps it, every run of the suite shows a part of it.
target_compile_definitions(runtime_job_test PRIVATE DTRUN_KILL_RUNS=30)
