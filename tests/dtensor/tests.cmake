# The vectors lie compressed in the tree and are unpacked beside the tests' programs.
set(vector_folder ${CMAKE_CURRENT_BINARY_DIR}/vectors)
set(vector_files)
foreach(name collectives colossal layout modules redistribute ops
    ops_index ops_matmul ops_nn ops_pointwise ops_reduction ops_view training training_modules)
  set(packed ${CMAKE_CURRENT_SOURCE_DIR}/vectors/${name}.jsonl.gz)
  set(unpacked ${vector_folder}/${name}.jsonl)
  add_custom_command(OUTPUT ${unpacked}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${vector_folder}
    COMMAND gzip -dc ${packed} > ${unpacked}
    DEPENDS ${packed} VERBATIM)
  list(APPEND vector_files ${unpacked})
endforeach()
add_library(dtrun_test_vectors STATIC support/vector_file.cc ${vector_files})
target_compile_definitions(dtrun_test_vectors PRIVATE DTRUN_VECTOR_FOLDER="${vector_folder}")
target_link_libraries(dtrun_test_vectors PUBLIC dtrun_test_support dtrun::base PRIVATE dtrun_flags)

dtrun_test(dtensor/tests LINKS dtrun::dtensor dtrun_test_vectors SOURCES cut placement layout notation choice sharding_picture parallel/pipeline_schedule checkpoint/manifest checkpoint/plan)
dtrun_test(dtensor/plan_tests LINKS dtrun::dtensor dtrun_test_vectors COMPUTES SOURCES cheapest_plan exchange_copies explanation layout_converter redistribute_plan)
add_library(dtrun_simulated_staging STATIC dtensor/simulated_staging.cc)
target_include_directories(dtrun_simulated_staging PRIVATE ${PROJECT_SOURCE_DIR}/collectives/src)
target_link_libraries(dtrun_simulated_staging
  PUBLIC dtrun_simulated_cuda dtrun::collectives PRIVATE GTest::gtest dtrun_flags)
# Ranks are threads.
set(operator_tables in_place index pointwise products reductions rows views)
list(TRANSFORM operator_tables REPLACE "(.+)" "dtensor/operators/\\1.cc")
set(operator_samples arithmetic comparisons functions in_place networks operator_samples orders places products reductions rows views)
list(TRANSFORM operator_samples REPLACE "(.+)" "dtensor/samples/\\1.cc")
dtrun_test(dtensor/rank_tests LINKS dtrun::dtensor dtrun_rank_support dtrun_test_vectors dtrun_simulated_staging dtrun_tensor_goldens PROCESSORS 2
  WITH ${operator_tables} dtensor/checkpoint/disk_model.cc dtensor/factory_samples.cc dtensor/operator_devices.cc ${operator_samples} dtensor/still_layouts.cc DEFINITIONS DTRUN_DOCS="${PROJECT_SOURCE_DIR}/docs" DTRUN_HEADERS="${PROJECT_SOURCE_DIR}/dtensor/include"
  SOURCES ragged ragged_operators
  checkpoint/async_saver checkpoint/block_writer checkpoint/chunk_reads checkpoint/crash checkpoint/crash_of_two checkpoint/devices checkpoint/faults checkpoint/offline checkpoint/read_ahead checkpoint/save_and_load checkpoint/series checkpoint/shared_reads checkpoint/state
  data/data_loader local_map nn/distribute_module nn/layers nn/meta_scope nn/module nn/module_gradients nn/module_vectors nn/training_modules optim/half_training optim/optim_vectors optim/optimizer optim/training_tools parallel/context_parallel parallel/data_parallel parallel/dropout parallel/explain_step parallel/fully_shard parallel/fully_shard_compute parallel/fully_shard_kept parallel/loss_curves parallel/parallelize parallel/pipeline parallel/predict_step parallel/regions parallel/transformer_counts parallel/zero_redundancy_optimizer
  threads autograd bad_arguments bad_input bad_operands cause check_rule communication cross_mesh device_mesh explain factories failure gradient_samples mesh_slices outside_mesh planned_mesh tensor redistribute redistribute_vectors repeated_crossing repeated_move trace composed elementwise index known_wrong_results operator_vectors operators_page own_operator reduction rows random random_program sample_goldens spare_owners spec_memory strides ops missing_rules tape methods any_layout cut_rows carried_kinds crossing_kinds peak_memory)

# Trainings one after the other; the long form goes on for half an hour.
set(soak_definitions $<$<NOT:$<STREQUAL:${DTRUN_SANITIZE},>>:DTRUN_SOAK_MEMORY_IS_THE_SANITIZERS>)
dtrun_test(dtensor/soak_tests LINKS dtrun::dtensor dtrun_rank_support PROCESSORS 2 SOURCES parallel/soak
  DEFINITIONS DTRUN_SOAK_SECONDS=1 ${soak_definitions})
if(DTRUN_LONG_TESTS)
  dtrun_test(dtensor/long_tests LINKS dtrun::dtensor dtrun_rank_support PROCESSORS 2 LABEL long TIMEOUT 2400 SOURCES parallel/soak
    DEFINITIONS DTRUN_SOAK_SECONDS=1800 ${soak_definitions})
endif()
