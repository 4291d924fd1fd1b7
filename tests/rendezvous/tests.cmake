# Decisions and formats.
dtrun_test(rendezvous/tests LINKS dtrun::rendezvous GTest::gmock
  SOURCES agent_handshake agent_protocol attach_frame etcd_keys failure_report farewell flight_explanation flight_record flight_trace former_round head_sessions job_page linger master_address
    request_parser restart_policy round_head round_member store store_core store_session token worker_env
  WITH rendezvous/store_promises.cc)
# Sockets, files and threads.
dtrun_test(rendezvous/peer_tests LINKS dtrun::rendezvous GTest::gmock PROCESSORS 2
  SOURCES agent_dialer file_store head_service membership munge store_collectives store_quota store_reach store_release store_siege
    store_start_over tcp_store tcp_store_server wire_faults wire_semantics wire_vectors
  WITH rendezvous/store_promises.cc)

# A real etcd, for tests of what stands on one.
add_library(dtrun_etcd_lab STATIC support/etcd_lab.cc)
target_link_libraries(dtrun_etcd_lab PUBLIC dtrun_test_support dtrun::rendezvous PRIVATE dtrun_flags)
target_compile_definitions(dtrun_etcd_lab PUBLIC DTRUN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
# One CTest test per program: its tests share an etcd. Without one those that need it are skipped.
foreach(name Client Store Election)
  string(TOLOWER etcd_${name} file)
  dtrun_test(rendezvous/${file}_tests LINKS dtrun_etcd_lab GTest::gmock ONE_CTEST_TEST SOURCES ${file})
  add_test(NAME Etcd${name}Test COMMAND rendezvous_${file}_tests)
  set_tests_properties(Etcd${name}Test PROPERTIES LABELS rendezvous TIMEOUT 120 PROCESSORS 2 COST 10
    SKIP_REGULAR_EXPRESSION "no [eE]tcd here")
endforeach()
target_sources(rendezvous_etcd_store_tests PRIVATE rendezvous/store_promises.cc)
