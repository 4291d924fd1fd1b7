// Proof: by what the agents of a job know each other. A value.
#pragma once

#include <memory>
#include <variant>

#include "dtrun/rendezvous/realm.h"
#include "dtrun/rendezvous/token.h"

namespace dtrun::rendezvous {

/// Nothing: anybody is taken for what he says he is. A token: whoever has it. A realm: this
/// process's user in it.
using Proof = std::variant<std::monostate, Token, std::shared_ptr<Realm>>;

}  // namespace dtrun::rendezvous
