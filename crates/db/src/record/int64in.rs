//! int64in: a 64-bit integer input.

crate::record::longin::integer_input!(
    Int64In,
    "int64in",
    Int64,
    i64,
    ["Soft Channel", "Async Soft Channel", "Program"],
    severities {}
);
