// Standard streams of a child: its output is its parent's, its input comes from nowhere.
#pragma once

#include "dtrun/base/unique_fd.h"

namespace dtrun::mp {

/// What stdio and iostreams hold back.
void flush_standard_streams();

/// In a copy: standard input from /dev/null.
void close_standard_input();

/// A duplicate; /dev/null where the program has closed that stream.
base::UniqueFd duplicate_stream(int fd);

}  // namespace dtrun::mp
