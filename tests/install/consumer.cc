// A user's program against the installed headers and libraries.
#include <dtrun/dtrun.h>

int main() { dtrun::print("{}", dtrun::tensor({{1, 2}, {3, 4}}) + dtrun::tensor({10, 20})); }
