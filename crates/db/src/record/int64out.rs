//! int64out: a 64-bit integer output.

use crate::record::longout::Choice;

crate::record::longout::whole_output!(Int64Out, "int64out", Int64, i64, fields {} private {} severities {});

impl Choice for Int64Out {}
