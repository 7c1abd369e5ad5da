//! int64out: a 64-bit integer output.

use crate::record::longout::OutputOption;

crate::record::longout::integer_output!(Int64Out, "int64out", Int64, i64, fields {} private {} severities {});

impl OutputOption for Int64Out {}
