"""The names of `epicscorelibs` that users of aioca import."""
