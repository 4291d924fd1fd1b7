// A program that is never built: it owns the headers that the tests have precompiled.
