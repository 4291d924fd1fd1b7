// What a rank did last, for the report of its failure. Pure.
#pragma once

#include <string>

#include "dtrun/rendezvous/flight_record.h"

namespace dtrun::launcher {

/// The newest five of the record, oldest first, a line each: "all_reduce #41 of group 'world'
/// (f32 x 1024, sum) at train.cc:12 had run for 3.0 s, waited for rank 1". Empty: it called none.
/// @param ended when the rank ended, in seconds since the epoch
std::string last_operations(const rendezvous::RankFlight& flight, double ended);

}  // namespace dtrun::launcher
