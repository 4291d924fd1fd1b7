# The simulator of the rounds, the exhaustive search and their own copy of the round logic, in which bugs can be planted
# (docs/simulation.md). The copy never meets the layer's own library: whoever links both has two of everything.
set(rounds ${PROJECT_SOURCE_DIR}/rendezvous)
add_library(dtrun_simulation STATIC
  ${rounds}/src/rounds/absent_agents.cc
  ${rounds}/src/rounds/natural_order.cc
  ${rounds}/src/wire/printable.cc
  ${rounds}/src/rounds/restart_policy.cc
  ${rounds}/src/rounds/round_admission.cc
  ${rounds}/src/rounds/round_head.cc
  ${rounds}/src/rounds/round_head_end.cc
  ${rounds}/src/rounds/round_head_gathering.cc
  ${rounds}/src/rounds/round_head_members.cc
  ${rounds}/src/rounds/round_member.cc
  ${rounds}/src/rounds/round_messages.cc
  ${rounds}/src/rounds/round_places.cc
  simulation/planted.cc
  simulation/referee.cc
  simulation/scenario.cc
  simulation/search.cc
  simulation/search_key.cc
  simulation/search_world.cc
  simulation/simulate.cc
  simulation/words.cc
  simulation/world.cc
  simulation/world_agents.cc
  simulation/world_election.cc
  simulation/world_faults.cc
  simulation/world_network.cc
  simulation/world_verdict.cc
  simulation/world_workers.cc)
dtrun_units(dtrun_simulation 12)
target_compile_definitions(dtrun_simulation PUBLIC DTRUN_PLANTED_BUGS)
target_include_directories(dtrun_simulation PUBLIC
  ${rounds}/include ${rounds}/src ${CMAKE_CURRENT_SOURCE_DIR}/simulation)
target_link_libraries(dtrun_simulation PUBLIC dtrun::base fmt::fmt dtrun_flags)
foreach(program round_joins round_search round_simulator)
  add_executable(${program} simulation/${program}.cc)
  target_link_libraries(${program} PRIVATE dtrun_simulation)
endforeach()
dtrun_test(simulation/tests LINKS dtrun_simulation COMPUTES SOURCES planted_bugs round_search round_simulation)
if(DTRUN_LONG_TESTS)
  dtrun_test(simulation/long_tests LINKS dtrun_simulation LABEL long TIMEOUT 1800 COMPUTES SOURCES round_search_long)
endif()
