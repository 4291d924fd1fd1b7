foreach(name agent_handshake failure_report job_page request_parser round_head round_member store_core store_session store token
    worker_env)
  dtrun_test(rendezvous/${name}_test.cc LINKS dtrun::rendezvous GTest::gmock)
endforeach()
dtrun_test(rendezvous/file_store_test.cc LINKS dtrun::rendezvous GTest::gmock PROCESSORS 2)
foreach(name store_collectives tcp_store tcp_store_server)
  dtrun_test(rendezvous/${name}_test.cc LINKS dtrun::rendezvous PROCESSORS 2)
endforeach()
