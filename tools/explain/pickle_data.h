// pickle_data: reads the values of a Python pickle that holds nothing but data: dicts, lists,
// tuples, texts, numbers, True, False, None. It names no class and calls nothing: a pickle that
// wants that is refused. Source: Python's Lib/pickletools.py, protocols 2 to 5.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

namespace dtrun::explain {

bool looks_like_pickle(std::string_view bytes);

/// Tuples become lists; keys of dicts that are numbers become texts.
/// @param source names the bytes in errors. @throws Error kProtocol
boost::json::value parse_pickle(std::string_view bytes, const std::string& source);

}  // namespace dtrun::explain
