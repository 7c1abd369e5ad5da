"""The names of `epicscorelibs.ca` that users of aioca import; without a C library."""
