// torch_flight: what PyTorch's flight recorder has written of one rank, as a RankFlight. Both its
// forms, pickle and JSON, have the same fields (torch/csrc/distributed/c10d/FlightRecorder.hpp of
// PyTorch 2.x).
#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "dtrun/rendezvous/flight_record.h"

namespace dtrun::explain {

bool is_torch_flight(const boost::json::value& document);

/// The file does not say whose it is: its name ends with the rank, as PyTorch writes it.
/// @throws Error kProtocol where it does not, or the document is malformed
rendezvous::RankFlight torch_flight_of(const boost::json::value& document, const std::string& path);

}  // namespace dtrun::explain
