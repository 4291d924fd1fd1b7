// Visit: a dtrun-doctor that another one has started on this host (--visit). It listens at two
// ports, tells on its standard output who it is and what it has found, and then answers questions
// on its standard input, a line of JSON each, until that ends:
//
//     -> {"dtrun-doctor": "0.1.0", "mark": "a1b2...", "ports": [41234, 29500], "findings": [...]}
//     <- {"ask": "time", "number": 1}
//     -> {"time": 1795717792584042000, "number": 1}              nanoseconds since the epoch
//     <- {"ask": "connect", "to": [{"host", "port", "mark"}, ...], "number": 2}
//     -> {"reached": [{"host", "port", "error", "nanoseconds"}, ...], "number": 2}
//
// Whoever connects to one of its ports gets its mark, which is random: a name may lead elsewhere.
#pragma once

#include <boost/json/array.hpp>
#include <string_view>

#include "doctor/finding.h"

namespace dtrun::doctor {

/// What the first line begins with, behind whatever the remote shell has printed before it.
inline constexpr std::string_view kVisitGreeting = "{\"dtrun-doctor\":";

/// @param port that jobs of several nodes meet at; not listened at where somebody has it
/// @return the exit code
int run_visit(const Findings& findings, int port);

}  // namespace dtrun::doctor
