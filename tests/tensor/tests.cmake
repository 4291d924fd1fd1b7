# PyTorch's results lie compressed in the tree and are unpacked beside the tests' programs.
set(golden_folder ${CMAKE_CURRENT_BINARY_DIR}/tensor_goldens)
set(golden_files)
foreach(name tensor_prints tensor_ops)
  set(packed ${CMAKE_CURRENT_SOURCE_DIR}/vectors/${name}.jsonl.gz)
  set(unpacked ${golden_folder}/${name}.jsonl)
  add_custom_command(OUTPUT ${unpacked}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${golden_folder}
    COMMAND gzip -dc ${packed} > ${unpacked}
    DEPENDS ${packed} VERBATIM)
  list(APPEND golden_files ${unpacked})
endforeach()
add_library(dtrun_tensor_goldens STATIC tensor/golden_file.cc ${golden_files})
target_compile_definitions(dtrun_tensor_goldens PRIVATE DTRUN_GOLDEN_FOLDER="${golden_folder}")
target_link_libraries(dtrun_tensor_goldens
  PUBLIC dtrun_test_support dtrun::tensor PRIVATE dtrun_flags)

foreach(test half dtype shape view copy literal reduce_kernel ops random cuda)
  dtrun_test(tensor/${test}_test.cc LINKS dtrun::tensor)
endforeach()
foreach(test printing golden_ops)
  dtrun_test(tensor/${test}_test.cc LINKS dtrun::tensor dtrun_tensor_goldens)
endforeach()
