//! int64in: a whole number of 64 bits read.

crate::record::longin::whole_input!(
    Int64In,
    "int64in",
    Int64,
    i64,
    ["Soft Channel", "Async Soft Channel"],
    severities {}
);
