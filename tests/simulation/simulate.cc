#include "simulate.h"

#include "violation.h"

namespace dtrun::simulation {

Result simulate(std::uint64_t seed, Trace::Output output) {
  const Scenario scenario = draw_scenario(seed);
  Trace trace(output);
  World world(scenario, trace);
  Result result;
  try {
    world.run();
  } catch (const Violation& violation) {
    result.rule = violation.rule();
    result.text = violation.what();
    trace.line(Moment::zero(), "broken: {}: {}", result.rule, result.text);
  }
  result.hash = trace.hash();
  result.tally = world.tally();
  return result;
}

}  // namespace dtrun::simulation
