// The one translation unit that compiles fmt itself. Debian has fmt as a shared library only, and a
// launcher that is to start in milliseconds carries what it would have to load.
#include <fmt/format-inl.h>

namespace fmt {

// The templates that fmt's headers only declare.
template detail::dragonbox::decimal_fp<float> detail::dragonbox::to_decimal(float);
template detail::dragonbox::decimal_fp<double> detail::dragonbox::to_decimal(double);
template detail::thousands_sep_result<char> detail::thousands_sep_impl(detail::locale_ref);
template char detail::decimal_point_impl(detail::locale_ref);
template void detail::buffer<char>::append(const char*, const char*);

}  // namespace fmt
