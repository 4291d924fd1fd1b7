// OptionReference: the option table as a manual page and as docs/options.md. The build installs the
// one, a test keeps the other true: `dtrun --reference=markdown > docs/options.md`.
#pragma once

#include <string>

namespace dtrun::launcher {

/// dtrun.1, for man(1).
std::string manual_page();
/// docs/options.md.
std::string option_markdown();

}  // namespace dtrun::launcher
