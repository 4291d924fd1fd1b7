add_library(dtrun_rank_support STATIC support/rank_processes.cc support/rank_threads.cc)
target_link_libraries(dtrun_rank_support
  PUBLIC dtrun_test_support dtrun::collectives PRIVATE GTest::gtest dtrun_flags)

dtrun_test(collectives/backend_spec_test.cc LINKS dtrun_rank_support)
dtrun_test(collectives/fingerprint_test.cc LINKS dtrun::collectives)
dtrun_test(collectives/schedule_test.cc LINKS dtrun::collectives)
dtrun_test(collectives/process_group_test.cc LINKS dtrun_rank_support PROCESSORS 2)
dtrun_test(collectives/disagreement_test.cc LINKS dtrun_rank_support PROCESSORS 2)
dtrun_test(collectives/failure_test.cc LINKS dtrun_rank_support PROCESSORS 2)
dtrun_test(collectives/cpu_parts_test.cc LINKS dtrun_rank_support PROCESSORS 2)
dtrun_test(collectives/membership_test.cc LINKS dtrun_rank_support)
dtrun_test(collectives/vectors_test.cc LINKS dtrun_rank_support dtrun_test_vectors PROCESSORS 2)
dtrun_test(collectives/nccl_test.cc LINKS dtrun_rank_support)
