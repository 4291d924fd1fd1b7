foreach(name agent_handshake failure_report job_page request_parser round_head round_member store_core store_session store token
    worker_env)
  dtrun_test(rendezvous/${name}_test.cc LINKS dtrun::rendezvous GTest::gmock)
endforeach()
dtrun_test(rendezvous/file_store_test.cc LINKS dtrun::rendezvous GTest::gmock PROCESSORS 2)
foreach(name store_collectives store_reach tcp_store tcp_store_server wire_faults wire_semantics wire_vectors)
  dtrun_test(rendezvous/${name}_test.cc LINKS dtrun::rendezvous PROCESSORS 2)
endforeach()
# A real etcd, for tests of what stands on one.
add_library(dtrun_etcd_lab STATIC support/etcd_lab.cc)
target_link_libraries(dtrun_etcd_lab PUBLIC dtrun_test_support dtrun::rendezvous PRIVATE dtrun_flags)
target_compile_definitions(dtrun_etcd_lab PUBLIC DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
# One CTest test per program: its tests share an etcd. Without one those that need it are skipped.
function(dtrun_etcd_test file name)
  add_executable(rendezvous_${file} rendezvous/${file}.cc)
  target_link_libraries(rendezvous_${file} PRIVATE dtrun_etcd_lab GTest::gmock GTest::gtest_main dtrun_flags)
  target_include_directories(rendezvous_${file} PRIVATE ${PROJECT_SOURCE_DIR}/rendezvous/src)
  add_dependencies(tests_rendezvous rendezvous_${file})
  add_test(NAME ${name} COMMAND rendezvous_${file})
  set_tests_properties(${name} PROPERTIES LABELS rendezvous TIMEOUT 120 PROCESSORS 2
    SKIP_REGULAR_EXPRESSION "no etcd here")
endfunction()
dtrun_etcd_test(etcd_client_test EtcdClientTest)
