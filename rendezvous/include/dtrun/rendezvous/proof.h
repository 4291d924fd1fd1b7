// Proof: how the agents of a job prove to each other that they belong to it. A value.
#pragma once

#include <memory>
#include <variant>

#include "dtrun/rendezvous/realm.h"
#include "dtrun/rendezvous/token.h"

namespace dtrun::rendezvous {

/// monostate: no proof is asked for. A token: whoever has it belongs. A realm: this process's user
/// in it belongs.
using Proof = std::variant<std::monostate, Token, std::shared_ptr<Realm>>;

}  // namespace dtrun::rendezvous
